/* dra info: which layer has which memory, as text and as JSON. */
#include "info.h"
#include "io/memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct layer {
    int64_t      first, last; /* equal layers share a row */
    outline_part part;
    size_t       fixed, windows, per_token; /* bytes of state */
} layer;

info_state info_state_of(const dra_model *m)
{
    const dra_specs *state = dra_model_state(m);
    info_state       s = {0};
    for (int i = 0; i < dra_specs_count(state); i++) {
        const dra_spec *p = dra_specs_at(state, i);
        const size_t    bytes = dra_spec_bytes(p);
        if (p->context)
            s.per_context += bytes;
        else if (!p->items)
            s.fixed += bytes;
        else if (p->limit)
            s.windows += (size_t)p->limit * bytes;
        else
            s.per_token += bytes;
    }
    return s;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* Whether a state belongs to the memory of a layer, of its attention or cross-attention. */
static bool is_of(const char *name, const layer *l)
{
    char        *end;
    const size_t n = strlen("layers.");
    if (strncmp(name, "layers.", n) != 0 || strtoll(name + n, &end, 10) != l->first) return false;
    return strncmp(end, l->part.kind == OUTLINE_CROSS ? ".cross." : ".mixer.", n) == 0;
}

static void add_state(const dra_spec *p, layer *l)
{
    const size_t bytes = dra_spec_bytes(p);
    *(!p->items  ? &l->fixed
      : p->limit ? &l->windows
                 : &l->per_token) += p->items && p->limit ? (size_t)p->limit * bytes : bytes;
}

/* Layers and their states are in the same order; some layers have no state, some states no
 * layer. */
static void measure_layers(const dra_model *m, layer *all, size_t n)
{
    const dra_specs *state = dra_model_state(m);
    size_t           at = 0;
    for (int i = 0; i < dra_specs_count(state); i++) {
        const dra_spec *p = dra_specs_at(state, i);
        size_t          k = at;
        if (!strstr(p->name, ".mixer.") && !strstr(p->name, ".cross.")) continue;
        while (k < n && !is_of(p->name, &all[k])) k++;
        if (k < n) at = k;
        if (k < n && !p->context) add_state(p, &all[k]);
    }
}

/* Finds the sublayers that have a memory. Returns how many; *out is to be freed. */
static size_t find_layers(const dra_model *m, layer **out)
{
    const int64_t  all = dra_model_sublayers(m);
    dra_model_step step;
    size_t         n = 0;
    *out = cli_room((size_t)all + 1, sizeof **out);
    for (int64_t i = 0; *out && i < all && dra_model_step_at(m, i, &step); i++) {
        layer *l = &(*out)[n];
        *l = (layer){step.layer, step.layer, outline_sublayer(m, &step)};
        if (l->part.kind == OUTLINE_FF) continue;
        n++;
    }
    measure_layers(m, *out, n);
    return n;
}

static bool are_alike(const layer *a, const layer *b)
{
    return b->first == a->last + 1 && a->fixed == b->fixed && a->windows == b->windows &&
           a->per_token == b->per_token && a->part.kind == b->part.kind &&
           strcmp(a->part.title, b->part.title) == 0 && strcmp(a->part.detail, b->part.detail) == 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static const char *state_text(const layer *l, char *text, size_t size)
{
    size_t n = 0;
    text[0] = '\0';
    if (l->fixed || !(l->windows + l->per_token))
        n += (size_t)snprintf(text, size, "%zu B", l->fixed + l->windows);
    else if (l->windows)
        n += (size_t)snprintf(text, size, "%zu B", l->windows);
    if (l->per_token) snprintf(text + n, size - n, "%s%zu B a token", n ? " + " : "", l->per_token);
    return text;
}

static void write_layer(const layer *l)
{
    char where[48], state[64];
    snprintf(where, sizeof where, l->last > l->first ? "%lld to %lld" : "%lld", (long long)l->first,
             (long long)l->last);
    cli_fold(58, stdout, "  %-8s  %-19s  %-23s  %s", where, l->part.title,
             state_text(l, state, sizeof state), l->part.detail);
}

void info_layers_text(const dra_model *m)
{
    layer       *all;
    const size_t n = find_layers(m, &all);
    if (n) printf("layers      %-19s  %-23s  heads\n", "memory", "state");
    for (size_t i = 0; i < n;) {
        layer  row = all[i];
        size_t k = i + 1;
        while (k < n && are_alike(&row, &all[k])) row.last = all[k++].last;
        write_layer(&row);
        i = k;
    }
    free(all);
}

void info_layers_json(const dra_model *m)
{
    layer       *all;
    const size_t n = find_layers(m, &all);
    fputs(" \"layers\": [", stdout);
    for (size_t i = 0; i < n; i++) {
        const layer *l = &all[i];
        printf(
            "%s\n  {\"layer\": %lld, \"memory\": \"%s\", \"detail\": \"%s\", \"parameters\": %lld",
            i ? "," : "", (long long)l->first, l->part.title, l->part.detail,
            (long long)l->part.params);
        printf(", \"state_bytes\": %zu, \"window_bytes\": %zu, \"state_bytes_per_token\": %zu}",
               l->fixed, l->windows, l->per_token);
    }
    fputs("],\n", stdout);
    free(all);
}
