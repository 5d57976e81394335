/* What the newest sample attended to, and which slots hold it, in a few layers of each run. */
#include "page.h"
#include "layer_maps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 64, LAYERS = 4 }; /* of what is shown */

/* ---- attention (1, H, T, rows) --------------------------------------------------------------- */

typedef struct attention {
    const cli_shown *map;
    int64_t          columns;
    int64_t         *column; /* the rows that someone attends to: others are room of the state */
} attention;

static double mean_of_heads(const cli_shown *s, int64_t t, int64_t row)
{
    const int64_t H = s->shape.dim[1], T = s->shape.dim[2], n = s->shape.dim[3];
    double        sum = 0;
    for (int64_t h = 0; h < H; h++) sum += s->at[(h * T + t) * n + row];
    return sum / (double)H;
}

/* By its root, or what is spread over many would not be seen. */
static double attention_at(const void *user, int64_t row, int64_t column)
{
    const attention *a = user;
    return sqrt(fmax(mean_of_heads(a->map, row, a->column[column]), 0));
}

static void write_attention(FILE *out, const cli_shown *s, const char *title, size_t colour)
{
    const int64_t T = s->shape.dim[2], n = s->shape.dim[3];
    attention     a = {s, 0, calloc((size_t)n + 1, sizeof *a.column)};
    for (int64_t j = 0; a.column && j < n; j++) {
        double sum = 0;
        for (int64_t t = 0; t < T; t++) sum += mean_of_heads(s, t, j);
        if (sum > 0) a.column[a.columns++] = j;
    }
    const svg_map m = {
        title, "attention, mean of heads", "token", "what it reads", T, a.columns, attention_at, &a,
        colour};
    if (a.columns) svg_heat(out, &m);
    free(a.column);
}

/* ---- occupancy (1, T, H, S) ------------------------------------------------------------------ */

static double occupancy_at(const void *user, int64_t row, int64_t column)
{
    const cli_shown *s = user;
    return s->at[column * s->shape.dim[2] * s->shape.dim[3] + row];
}

static void write_occupancy(FILE *out, const cli_shown *s, const char *title, size_t colour)
{
    const svg_map m = {
        title,           "occupancy of slots", "slot", "token", s->shape.dim[2] * s->shape.dim[3],
        s->shape.dim[1], occupancy_at,         s,      colour};
    svg_heat(out, &m);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void write_layer(FILE *out, const cli_record *r, int64_t layer, const cli_layer_maps *maps,
                        size_t colour)
{
    char       title[128];
    const bool blend = dra_mixer_config_of(dra_model_mixer(r->model, layer))->blend;
    for (int i = 0; i < 2; i++) {
        const cli_shown *attended = &maps->map[i][DRA_SHOW_ATTENTION];
        const cli_shown *full = &maps->map[i][DRA_SHOW_OCCUPANCY];
        snprintf(title, sizeof title, "%s, layer %lld%s", r->name, (long long)layer,
                 !blend ? ""
                 : i    ? ", memory b"
                        : ", memory a");
        if (attended->at) write_attention(out, attended, title, colour);
        if (full->at) write_occupancy(out, full, title, colour);
    }
}

/* The first tokens of the newest sample; as many as learned positions allow. */
static int64_t read_sample(const cli_record *r, dra_ids *ids)
{
    const dra_model_config *c = dra_model_config_of(r->model);
    const char             *text = r->samples[r->n_samples - 1].text;
    if (dra_encode(r->tokenizer, text, strlen(text), ids, NULL) != DRA_OK) return 0;
    int64_t n = ids->n < TOKENS ? (int64_t)ids->n : TOKENS;
    if (c->positions == DRA_POSITIONS_LEARNED && !c->xl.memory && n > c->context) n = c->context;
    for (int64_t i = 0; i < n; i++)
        if (ids->data[i] < 0 || ids->data[i] >= c->vocab) return i;
    return n;
}

static void write_run(const cli_page *p, size_t i, bool *open)
{
    const cli_record *r = &p->records[i];
    dra_ids           ids = {0};
    const int64_t     T = read_sample(r, &ids), L = dra_model_attentions(r->model);
    const int64_t     shown = L < LAYERS ? L : LAYERS;
    for (int64_t k = 0; T > 1 && k < shown; k++) { /* evenly, from the first to the last */
        const int64_t  layer = shown > 1 ? k * (L - 1) / (shown - 1) : 0;
        cli_layer_maps maps = {0};
        dra_error      err = {0};
        if (cli_layer_maps_read(r->model, r->weights, layer, ids.data, T, &maps, &err) != DRA_OK)
            continue; /* not every mixer has maps */
        if (!*open) {
            page_section(p->out, "What a sample reads");
            fprintf(p->out,
                    "<p class=\"soft\">The first tokens of the newest sample, %d at most; a "
                    "stronger "
                    "colour means more attention, or a fuller slot.</p>\n"
                    "<div class=\"cards\">\n",
                    TOKENS);
        }
        *open = true;
        write_layer(p->out, r, layer, &maps, i);
        cli_layer_maps_free(&maps);
    }
    dra_ids_free(&ids);
}

void page_maps(const cli_page *p)
{
    bool open = false;
    for (size_t i = 0; i < p->n; i++) {
        const cli_record *r = &p->records[i];
        if (r->weights && r->tokenizer && r->n_samples) write_run(p, i, &open);
    }
    if (open) fputs("</div></section>\n", p->out);
}
