/* delta: writes only what the key does not already recall.
 *   S' = S + k (b (v - S^T k))^T,   y = S'^T q,   with lambda S in place of S where there is decay
 * k and q of unit length, b = sigmoid(W_b x) the strength of a write.
 * State S (H, D, E). [Schlag et al. 2021; Yang et al. 2024: DeltaNet] */
#include <math.h>

#include "memory/lambda.h"
#include "memory/memory.h"

static const char *const retrievals[] = {"formula", NULL};

static dra_status check(const dra_memory_sizes *s, dra_error *err)
{
    if (s->config->joined)
        return dra_fail(err, DRA_ERR_VALUE, "delta: keys and values cannot share one state");
    if (s->config->gamma.per == DRA_PER_CHANNEL)
        return dra_fail(err, DRA_ERR_VALUE, "delta: gamma is per head, found per channel");
    return DRA_OK;
}

static void declare(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                    dra_specs *state)
{
    dra_specs_add(
        params, prefix,
        &(dra_spec){"W_b", DRA_SHAPE(s->H, s->C), DRA_FILL_NORMAL, 1 / sqrt((double)s->C)});
    dra_lambda_declare(s, prefix, params);
    dra_specs_add(state, prefix, &(dra_spec){"S", DRA_SHAPE(s->H, s->D, s->E)});
}

static int code(dra_graph *g, const dra_memory_sizes *s, const dra_value *param, dra_value x,
                dra_value *out)
{
    out[0] = dra_sigmoid(g, dra_linear(g, x, param[0], (dra_value){0}));
    if (s->config->decay != DRA_DECAY_DATA) return 1;
    out[1] = dra_lambda_code(g, s, param + 1, x);
    return 2;
}

static void step(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    const dra_shape row = DRA_SHAPE(-1, s->H, 1, s->D), column = DRA_SHAPE(-1, s->H, s->D, 1);
    const dra_value k = dra_unit(g, c->x[0], 1e-12), q = dra_unit(g, c->q, 1e-12);
    const dra_value b = dra_reshape(g, c->code[0], DRA_SHAPE(-1, s->H, 1, 1));
    const dra_value v = dra_reshape(g, c->x[1], DRA_SHAPE(-1, s->H, 1, s->E));
    const dra_value l = dra_lambda_step(g, s, c->param + 1, c->code[1]);
    const dra_value S = dra_lambda_apply(g, l, c->state[0]);
    const dra_value miss = dra_sub(g, v, dra_matmul(g, dra_reshape(g, k, row), S));
    const dra_value write = dra_mul(g, dra_reshape(g, k, column), dra_mul(g, b, miss));
    r->state[0] = dra_memory_keep(g, c, c->state[0], dra_add(g, S, write));
    r->item[0] = c->x[0];
    r->item[1] = dra_reshape(g, dra_matmul(g, dra_reshape(g, q, row), r->state[0]),
                             DRA_SHAPE(-1, s->H, s->E));
}

static void chunk(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const bool             fixed = c->sizes->config->decay == DRA_DECAY_FIXED;
    const dra_value        l = fixed ? dra_log_sigmoid(g, c->param[1]) : c->code[1];
    const dra_delta_config config = {.q = dra_unit(g, c->q, 1e-12),
                                     .k = dra_unit(g, c->x[0], 1e-12),
                                     .v = c->x[1],
                                     .b = dra_memory_written(g, c, c->code[0], 3),
                                     .l = dra_memory_written(g, c, l, 3),
                                     .S = c->state[0],
                                     .mark = c->reads};
    r->item[0] = c->x[0];
    r->item[1] = dra_delta(g, &config, &r->state[0]);
}

const dra_memory dra_memory_delta = {.name = "delta",
                                     .retrievals = retrievals,
                                     .check = check,
                                     .declare = declare,
                                     .step = step,
                                     .chunk = chunk,
                                     .code = code,
                                     .options = DRA_OPTION_DECAY | DRA_CHUNK_SKIPS |
                                                DRA_CHUNK_BLOCKS};
