/* RWKV's state in Hugging Face's layout, the layer fastest: of version 4 five tensors (B, channels,
 * L), of later ones three: (B, C, L) of the mixers' tokens before, (B, H, D, E, L) of their
 * matrices, (B, C, L) of the feed-forwards'. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/shape.h"
#include "model/model.h"

enum { LATER = 3 };

static const char *const parts[][DRA_RWKV_STATES] = {
    {"ff.x", "mixer.x", "mixer.A", "mixer.B", "mixer.p"}, {"mixer.x", "mixer.S", "ff.x"}};

static bool is_later(const dra_model *m)
{
    return dra_model_config_rwkv(dra_model_config_of(m)) > 4;
}

static const char *part_of(const dra_model *m, int which) { return parts[is_later(m)][which]; }

int dra_rwkv_state_count(const dra_model *m) { return is_later(m) ? LATER : DRA_RWKV_STATES; }

/* Where part `which` of layer l is among the states; -1: the model is none of these. */
static int place_of(const dra_model *m, int which, int64_t l)
{
    char name[64];
    snprintf(name, sizeof name, "layers.%lld.%s", (long long)l, part_of(m, which));
    return dra_specs_find(dra_model_state(m), name);
}

dra_shape dra_rwkv_state_shape(const dra_model *m, int64_t B, int which)
{
    dra_shape s = {.rank = 1, .dim = {B}};
    const int at = which < 0 || which >= dra_rwkv_state_count(m) ? -1 : place_of(m, which, 0);
    if (at < 0) return (dra_shape){0};
    const dra_shape *each = &dra_specs_at(dra_model_state(m), at)->shape;
    for (int32_t k = 0; k < each->rank; k++) s.dim[s.rank++] = each->dim[k];
    s.dim[s.rank++] = dra_model_config_of(m)->depth;
    return s;
}

/* Numbers of a part; -1 with an error. */
static int64_t check_part(const dra_model *m, const dra_states *s, int which, size_t count,
                          dra_error *err)
{
    const int64_t L = dra_model_config_of(m)->depth, B = dra_states_batch(s);
    char          text[80];
    if (which < 0 || which >= dra_rwkv_state_count(m)) {
        dra_fail(err, DRA_ERR_INDEX, "rwkv state: number %d, expected 0 to %d", which,
                 dra_rwkv_state_count(m) - 1);
        return -1;
    }
    for (int64_t l = 0; l < L; l++)
        if (place_of(m, which, l) < 0) {
            dra_fail(err, DRA_ERR_VALUE, "rwkv state: layer %lld has no %s", (long long)l,
                     part_of(m, which));
            return -1;
        }
    const dra_shape should = dra_rwkv_state_shape(m, B, which);
    if (count == (size_t)dra_shape_count(&should)) return (int64_t)count / (B * L);
    dra_fail(err, DRA_ERR_SHAPE, "rwkv state: %zu numbers, expected %s", count,
             dra_shape_text(&should, text, sizeof text));
    return -1;
}

typedef struct moving {
    const dra_states *from;
    dra_states       *to; /* or NULL: numbers go out */
    dra_real         *out;
    const dra_real   *in;
} moving;

static dra_status move_part(const dra_model *m, const moving *v, int which, size_t count,
                            dra_error *err)
{
    const int64_t C = check_part(m, v->from, which, count, err), L = dra_model_config_of(m)->depth;
    if (C < 0) return which < 0 || which >= dra_rwkv_state_count(m) ? DRA_ERR_INDEX : DRA_ERR_SHAPE;
    dra_real  *row = malloc((size_t)C * sizeof *row);
    dra_status st = row ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "rwkv state: out of memory");
    for (int64_t b = 0; b < dra_states_batch(v->from); b++)
        for (int64_t l = 0; l < L && st == DRA_OK; l++) {
            const int i = place_of(m, which, l);
            if (!v->to) st = dra_states_read(v->from, i, b, row, (size_t)C, err);
            for (int64_t c = 0; c < C && st == DRA_OK; c++)
                if (v->to)
                    row[c] = v->in[(b * C + c) * L + l];
                else
                    v->out[(b * C + c) * L + l] = row[c];
            if (v->to && st == DRA_OK) st = dra_states_write(v->to, i, b, row, (size_t)C, err);
        }
    free(row);
    return st;
}

dra_status dra_rwkv_state_get(const dra_model *m, const dra_states *s, int which, dra_real *to,
                              size_t count, dra_error *err)
{
    return move_part(m, &(moving){.from = s, .out = to}, which, count, err);
}

dra_status dra_rwkv_state_set(const dra_model *m, dra_states *s, int which, const dra_real *from,
                              size_t count, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int64_t b = 0; b < dra_states_batch(s) && st == DRA_OK; b++)
        if (dra_states_tokens(s, b) == 0) st = dra_states_place(s, b, 1, 1, err);
    return st == DRA_OK ? move_part(m, &(moving){.from = s, .to = s, .in = from}, which, count, err)
                        : st;
}
