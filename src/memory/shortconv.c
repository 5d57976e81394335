/* shortconv: keys gate values, a convolution of each channel over the last W products, read by the
 * query as it is. Linear in the stream: no activation, no norm; heads play no part.
 *   y_t = q_t sum_j w_j (k v)_(t - W + 1 + j),   j = 0..W-1, zeros before the text
 * State taps (W - 1, C): the products before, oldest first.
 * [Liquid AI 2025: LFM2; Poli et al. 2023: Hyena, with a filter this short] */
#include <math.h>

#include "file/field_rows.h"
#include "memory/memory.h"
#include "memory/part.h"

enum { TAPS = 3, TAPS_MOST = 8 };

const dra_field dra_shortconv_fields[] = {
    {.name = "taps",
     .kind = DRA_FIELD_INT,
     .offset = offsetof(dra_shortconv_options, taps),
     .max = TAPS_MOST,
     .unset = "3",
     .about = "shortconv: how many tokens it sees, this one included"},
    {0}};
const dra_part dra_shortconv_part = {offsetof(dra_memory_config, shortconv),
                                     {dra_shortconv_fields}};

static const dra_part *const parts[] = {&dra_shortconv_part, NULL};
static const char *const     retrievals[] = {"formula", NULL};

static int64_t count_taps(const dra_memory_sizes *s)
{
    return s->config->shortconv.taps ? s->config->shortconv.taps : TAPS;
}

static dra_status check_shortconv(const dra_memory_sizes *s, dra_error *err)
{
    if (s->config->joined)
        return dra_fail(err, DRA_ERR_VALUE, "shortconv: keys and values cannot share one state");
    if (count_taps(s) == 1)
        return dra_fail(err, DRA_ERR_VALUE, "shortconv: taps is 1, expected 2 to %d", TAPS_MOST);
    if (s->D != s->E)
        return dra_fail(err, DRA_ERR_VALUE,
                        "shortconv: keys of %lld and values of %lld channels differ",
                        (long long)s->D, (long long)s->E);
    return DRA_OK;
}

static void declare_shortconv(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                              dra_specs *state)
{
    const int64_t W = count_taps(s), N = s->H * s->D;
    dra_specs_add(params, prefix,
                  &(dra_spec){"taps", DRA_SHAPE(N, W), DRA_FILL_UNIFORM,
                              .number = 1 / sqrt((double)W), .group = DRA_PARAM_VECTOR});
    dra_specs_add(state, prefix, &(dra_spec){"taps", DRA_SHAPE(W - 1, N)});
}

/* What a token writes is not there where it is skipped. */
static void step_shortconv(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    const int64_t           W = count_taps(s), N = s->H * s->D;
    const dra_value         row = dra_reshape(g, dra_mul(g, c->x[0], c->x[1]), DRA_SHAPE(-1, 1, N));
    const dra_value         input[] = {c->state[0], dra_memory_written(g, c, row, 3)};
    const dra_value         all = dra_concat(g, 2, input, 1); /* (B, W, N) */
    const dra_value         terms = dra_mul(g, all, dra_transpose(g, c->param[0], 0, 1));
    dra_value               y = dra_slice(g, terms, 1, 0, 1);
    for (int64_t j = 1; j < W; j++) y = dra_add(g, y, dra_slice(g, terms, 1, j, 1));
    r->state[0] = dra_memory_keep(g, c, c->state[0], dra_slice(g, all, 1, 1, W - 1));
    r->item[0] = c->x[0];
    r->item[1] = dra_mul(g, c->q, dra_reshape(g, y, DRA_SHAPE(-1, s->H, s->D)));
}

static void chunk_shortconv(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    if (dra_graph_failed(g)) return;
    const dra_shape heads = dra_shape_of(g, c->q);
    const dra_shape each = DRA_SHAPE(heads.dim[0], heads.dim[1], heads.dim[2] * heads.dim[3]);
    const dra_value x = dra_reshape(g, dra_mul(g, c->x[0], c->x[1]), each);
    const dra_value y = dra_conv(g, x, c->param[0], (dra_value){0}, c->state[0], c->mark, r->state);
    r->item[0] = c->x[0];
    r->item[1] = dra_mul(g, c->q, dra_reshape(g, y, heads));
}

const dra_memory dra_memory_shortconv = {"shortconv",       retrievals,     check_shortconv,
                                         declare_shortconv, step_shortconv, chunk_shortconv,
                                         .parts = parts};
