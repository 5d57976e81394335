/* The state as a cache of transformers, tensors of layer L as its attributes are called:
 *   layers.L.keys, layers.L.values (B, K, T, D)   items of attention, keys as they were rotated
 *   layers.L.conv_states (B, channels, W)         inputs of convolutions, the last W tokens
 *   layers.L.recurrent_states (B, H, D, E)        matrices; of Mamba-2 (B, H, E, D)
 * Convolutions need W - 1 of the inputs; the oldest one goes out as 0 and is not looked at.
 * [transformers, cache_utils.py] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "model/model.h"

enum { STREAMS = 3 };

typedef struct part { /* what a layer may have */
    const char *name;
    const char *state[STREAMS]; /* which of its states are in it, one after the other */
    const char *of;             /* only with this one, or NULL */
    bool        turned;         /* values before keys */
} part;

/* Of Mamba-2 x, B, C are what is called values, keys, queries here; its states have a skip D. */
static const part parts[] = {{"keys", {"K"}},
                             {"values", {"V"}},
                             {"conv_states", {"conv_q", "conv_k", "conv_v"}, "delta"},
                             {"conv_states", {"conv_v", "conv_k", "conv_q"}, "moment"},
                             {"conv_states", {"taps"}},
                             {"recurrent_states", {"S"}, "delta"},
                             {"recurrent_states", {"S"}, "moment", .turned = true}};

enum { PARTS = sizeof parts / sizeof *parts };

static const dra_mixer_config *mixer_at(const dra_model *m, int64_t l)
{
    const dra_model_config *c = dra_model_config_of(m);
    return &c->mixer[c->n_pattern ? c->pattern[l] : l % c->mixers];
}

static int find_state(const dra_model *m, int64_t l, const char *name)
{
    char full[64];
    if (!name) return -1;
    snprintf(full, sizeof full, "layers.%lld.mixer.%s", (long long)l, name);
    return dra_specs_find(dra_model_state(m), full);
}

static bool has_part(const dra_model *m, int64_t l, const part *p)
{
    const char *memory = mixer_at(m, l)->a.memory;
    const int   at = find_state(m, l, p->state[0]);
    if (at < 0 || dra_specs_at(dra_model_state(m), at)->table) return false; /* of a segment */
    return !p->of || (memory && strcmp(memory, p->of) == 0);
}

/* Tensor `which`: its part, and its layer. NULL: there are not as many. */
static const part *find_part(const dra_model *m, int which, int64_t *layer)
{
    for (int64_t l = 0; l < dra_model_config_of(m)->depth; l++)
        for (int i = 0; i < PARTS; i++)
            if (has_part(m, l, &parts[i]) && which-- == 0) {
                *layer = l;
                return &parts[i];
            }
    return NULL;
}

/* Whether a state is in one of the tensors. */
static bool is_kept(const dra_model *m, const dra_spec *p)
{
    for (int64_t l = 0; l < dra_model_config_of(m)->depth; l++)
        for (int i = 0; i < PARTS; i++)
            for (int k = 0; k < STREAMS && has_part(m, l, &parts[i]); k++) {
                const int at = find_state(m, l, parts[i].state[k]);
                if (at >= 0 && dra_specs_at(dra_model_state(m), at) == p) return true;
            }
    return false;
}

/* Whether numbers depend on where in its text a token is. */
static bool knows_positions(const dra_model_config *c)
{
    bool knows = c->positions != DRA_POSITIONS_NONE || c->position.rotate != DRA_ROTATE_NONE;
    for (int64_t i = 0; i < c->mixers; i++) knows = knows || c->mixer[i].rotary;
    return knows;
}

/* A cache has the whole text, and says by its keys how many tokens that is. */
static dra_status check_states(const dra_model *m, dra_error *err)
{
    const dra_specs        *states = dra_model_state(m);
    const dra_model_config *c = dra_model_config_of(m);
    bool                    items = false;
    for (int i = 0; i < dra_specs_count(states); i++) {
        const dra_spec *p = dra_specs_at(states, i);
        items = items || p->items;
        if (!is_kept(m, p))
            return dra_fail(err, DRA_ERR_VALUE,
                            "cache: state %s has no place there, only those of attention, delta "
                            "and moment with their convolutions, and shortconv",
                            p->name);
        if (p->items && p->limit)
            return dra_fail(err, DRA_ERR_VALUE,
                            "cache: state %s has a window, expected attention over the whole text",
                            p->name);
    }
    if (c->memory_tokens)
        return dra_fail(err, DRA_ERR_VALUE, "cache: memory_tokens have no place there");
    if (!items && knows_positions(c))
        return dra_fail(err, DRA_ERR_VALUE,
                        "cache: the model has positions but no keys, so that a cache does not say "
                        "how much was read");
    return DRA_OK;
}

int dra_cache_count(const dra_model *m, dra_error *err)
{
    int64_t l;
    int     n = 0;
    if (check_states(m, err) != DRA_OK) return 0;
    while (find_part(m, n, &l)) n++;
    if (!n) dra_fail(err, DRA_ERR_VALUE, "cache: the model has no state");
    return n;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool is_conv(const part *p) { return strcmp(p->name, "conv_states") == 0; }

static const dra_spec *spec_of(const dra_model *m, int64_t l, const char *state)
{
    return dra_specs_at(dra_model_state(m), find_state(m, l, state));
}

dra_status dra_cache_at(const dra_model *m, int which, int64_t B, int64_t T, dra_cache_tensor *out,
                        dra_error *err)
{
    int64_t     l = 0;
    const part *p = find_part(m, which, &l);
    if (!p) return dra_fail(err, DRA_ERR_INDEX, "cache: there is no tensor %d", which);
    const dra_shape s = spec_of(m, l, p->state[0])->shape;
    snprintf(out->name, sizeof out->name, "layers.%lld.%s", (long long)l, p->name);
    out->items = spec_of(m, l, p->state[0])->items;
    if (is_conv(p)) {
        int64_t channels = 0;
        for (int k = 0; k < STREAMS && p->state[k]; k++)
            channels += spec_of(m, l, p->state[k])->shape.dim[1];
        out->shape = DRA_SHAPE(B, channels, s.dim[0] + 1);
    } else if (out->items) {
        out->shape = DRA_SHAPE(B, s.dim[0], T, s.dim[1]);
    } else {
        out->shape = DRA_SHAPE(B, s.dim[0], s.dim[1 + p->turned], s.dim[2 - p->turned]);
    }
    return DRA_OK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

typedef struct moving { /* between a state and its place in a tensor */
    bool      in;       /* into the state */
    dra_real *state, *there;
} moving;

static void move_number(const moving *v, int64_t state, int64_t there)
{
    if (v->in)
        v->state[state] = v->there[there];
    else
        v->there[there] = v->state[state];
}

/* (a, b, width) there (b, a, width). */
static void swap_axes(const moving *v, int64_t a, int64_t b, int64_t width)
{
    for (int64_t i = 0; i < a; i++)
        for (int64_t j = 0; j < b; j++)
            for (int64_t k = 0; k < width; k++)
                move_number(v, (i * b + j) * width + k, (j * a + i) * width + k);
}

/* (W - 1, n), there (n, W). */
static void move_inputs(const moving *v, int64_t n, int64_t W)
{
    for (int64_t c = 0; c < n; c++) {
        if (!v->in) v->there[c * W] = 0;
        for (int64_t j = 0; j + 1 < W; j++) move_number(v, j * n + c, c * W + j + 1);
    }
}

static void move_state(const part *p, const dra_spec *spec, int64_t T, const moving *v)
{
    const dra_shape *s = &spec->shape;
    if (is_conv(p)) {
        move_inputs(v, s->dim[1], s->dim[0] + 1);
    } else if (spec->items) {
        swap_axes(v, T, s->dim[0], s->dim[1]);
    } else {
        const int64_t one = s->dim[1] * s->dim[2];
        for (int64_t h = 0; h < s->dim[0]; h++) {
            const moving head = {v->in, v->state + h * one, v->there + h * one};
            if (p->turned)
                swap_axes(&head, s->dim[1], s->dim[2], 1);
            else
                swap_axes(&head, 1, one, 1);
        }
    }
}

/* One row: its states, one after the other in the tensor. */
static dra_status move_row(const dra_model *m, dra_states *to, const dra_states *s, int64_t l,
                           const part *p, int64_t b, dra_real *there, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int k = 0; k < STREAMS && p->state[k] && st == DRA_OK; k++) {
        const int       at = find_state(m, l, p->state[k]);
        const dra_spec *spec = dra_specs_at(dra_model_state(m), at);
        const size_t    n = dra_states_size(s, at, b);
        dra_real       *row = malloc(n * sizeof *row + 1);
        const int64_t   T = spec->items ? dra_states_items(s, b) : 0;
        const moving    v = {to != NULL, row, there};
        if (!row) return dra_fail(err, DRA_ERR_MEMORY, "cache: out of memory");
        if (!to) st = dra_states_read(s, at, b, row, n, err);
        if (st == DRA_OK) move_state(p, spec, T, &v);
        if (st == DRA_OK && to) st = dra_states_write(to, at, b, row, n, err);
        there += is_conv(p) ? spec->shape.dim[1] * (spec->shape.dim[0] + 1) : (int64_t)n;
        free(row);
    }
    return st;
}

static dra_status move_tensor(const dra_model *m, dra_states *to, const dra_states *s, int which,
                              dra_real *there, size_t count, dra_error *err)
{
    const int64_t    B = dra_states_batch(s), T = dra_states_items(s, 0);
    dra_cache_tensor t;
    char             text[80];
    int64_t          l = 0;
    dra_status       st = dra_cache_at(m, which, B, T, &t, err);
    const part      *p = find_part(m, which, &l);
    for (int64_t b = 1; b < B && st == DRA_OK && t.items; b++)
        if (dra_states_items(s, b) != T)
            st = dra_fail(err, DRA_ERR_VALUE,
                          "cache: rows 0 and %lld hold %lld and %lld tokens, expected as many",
                          (long long)b, (long long)T, (long long)dra_states_items(s, b));
    if (st == DRA_OK && count != (size_t)dra_shape_count(&t.shape))
        st = dra_fail(err, DRA_ERR_SHAPE, "cache: %s: %zu numbers, expected %s", t.name, count,
                      dra_shape_text(&t.shape, text, sizeof text));
    for (int64_t b = 0; b < B && st == DRA_OK; b++)
        st = move_row(m, to, s, l, p, b, there + (size_t)b * (count / (size_t)B), err);
    return st;
}

dra_status dra_cache_get(const dra_model *m, const dra_states *s, int which, dra_real *to,
                         size_t count, dra_error *err)
{
    return move_tensor(m, NULL, s, which, to, count, err);
}

dra_status dra_cache_set(const dra_model *m, dra_states *s, int which, const dra_real *from,
                         size_t count, dra_error *err)
{
    return move_tensor(m, s, s, which, (dra_real *)(uintptr_t)from, count, err);
}
