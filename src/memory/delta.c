/* delta: writes only what the key does not already recall.
 *   S' = S + k (b (v - S^T k))^T,   y = S'^T q,   with lambda S in place of S where there is decay
 * k and q of unit length, b = sigmoid(W_b x), or up to twice that, the strength of a write; q may
 * be over sqrt(D), as gated DeltaNet has it. Transition diagonal:
 *   S' = diag(lambda) S - (a kk) (S^T kk)^T + k' v^T,   y = S'^T q
 *   kk = k_k k of unit length,   a = sigmoid(b_rate + W_rate x),   k' = k (1 + (a - 1) k_a)
 * takes off what kk recalls at a rate a of each channel, whatever is written; a bonus adds
 * (q.(r_k k')) v after the head norm.
 * State S (H, D, E). [Schlag et al. 2021; Yang et al. 2024: DeltaNet; Peng et al. 2025: RWKV-7] */
#include <math.h>

#include "file/field_rows.h"
#include "memory/lambda.h"
#include "memory/memory.h"
#include "memory/part.h"

static const char *const transitions[] = {"strength", "diagonal", NULL};

const dra_field dra_delta_fields[] = {
    CHOICE(dra_delta_options, transition, transitions, "delta: its own rule, or that of RWKV-7"),
    INT(dra_delta_options, rate_rank, "a full matrix", "delta: rank of the map that makes rates"),
    REAL(dra_delta_options, strength, 0, 2, "1", "delta: the largest strength of a write"),
    REAL(dra_delta_options, unit_eps, 0, 1, "1e-12", "delta: epsilon of keys of length 1"),
    BOOL(dra_delta_options, scale_queries, "delta: queries have length 1 / sqrt(key_dim)"),
    {0}};
const dra_part dra_delta_part = {offsetof(dra_memory_config, delta), {dra_delta_fields}};

static const dra_part *const parts[] = {&dra_delta_part, &dra_lambda_part, NULL};
static const char *const     retrievals[] = {"formula", NULL};

/* What code_delta() makes: of the strength alone B, then L; else RECALL to KEY, then L. */
enum { B, RECALL = 0, REPLACE, KEY };
/* Parameters after those of the rate: how many these are follows from its rank. */
enum { K_K, K_A, R_K };

static bool is_diagonal(const dra_memory_sizes *s)
{
    return s->config->delta.transition == DRA_TRANSITION_DIAGONAL;
}

static int count_rates(const dra_memory_sizes *s) { return s->config->delta.rate_rank ? 3 : 2; }

static int lambda_at(const dra_memory_sizes *s)
{
    return is_diagonal(s) ? count_rates(s) + K_A + 1 + (s->config->lambda.bonus != DRA_BONUS_NONE)
                          : 1;
}

static dra_value l_code(const dra_memory_call *c)
{
    return c->code[is_diagonal(c->sizes) ? KEY + 1 : B + 1];
}

static dra_status check_delta(const dra_memory_sizes *s, dra_error *err)
{
    const dra_memory_config *c = s->config;
    if (c->joined)
        return dra_fail(err, DRA_ERR_VALUE, "delta: keys and values cannot share one state");
    if (!is_diagonal(s) && (c->delta.rate_rank || c->lambda.bonus))
        return dra_fail(err, DRA_ERR_VALUE, "delta: %s is set, which only transition diagonal has",
                        c->delta.rate_rank ? "rate_rank" : "bonus");
    if (is_diagonal(s) &&
        (c->delta.strength > 0 || c->delta.unit_eps > 0 || c->delta.scale_queries))
        return dra_fail(err, DRA_ERR_VALUE, "delta: %s is set, which transition diagonal has not",
                        c->delta.strength > 0   ? "strength"
                        : c->delta.unit_eps > 0 ? "unit_eps"
                                                : "scale_queries");
    if (c->lambda.rate_values)
        return dra_fail(err, DRA_ERR_VALUE, "delta: rate_values is set, which only moment has");
    if (c->lambda.bonus == DRA_BONUS_HEAD || c->lambda.bonus_exp)
        return dra_fail(err, DRA_ERR_VALUE, "delta: bonus is per channel, found %s",
                        c->lambda.bonus_exp ? "bonus_exp" : "per head");
    return dra_lambda_check(s, "delta", err);
}

static dra_low_rank rate_of(const dra_memory_sizes *s)
{
    return (dra_low_rank){.name = "W_rate",
                          .first = "W_rate_1",
                          .second = "W_rate_2",
                          .bias = "b_rate",
                          .out = DRA_SHAPE(s->H, s->D),
                          .group = DRA_PARAM_BIAS,
                          .rank = s->config->delta.rate_rank};
}

static void declare_delta(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                          dra_specs *state)
{
    const dra_shape    each = DRA_SHAPE(s->H, s->D);
    const dra_low_rank rate = rate_of(s);
    if (is_diagonal(s)) {
        dra_low_rank_declare(&rate, s->C, prefix, params);
        dra_specs_add(params, prefix,
                      &(dra_spec){"k_k", each, .number = 1, .group = DRA_PARAM_OTHER});
        dra_specs_add(params, prefix,
                      &(dra_spec){"k_a", each, .number = 1, .group = DRA_PARAM_OTHER});
        if (s->config->lambda.bonus)
            dra_specs_add(params, prefix, &(dra_spec){"r_k", each, .group = DRA_PARAM_OTHER});
    } else {
        dra_specs_add(
            params, prefix,
            &(dra_spec){"W_b", DRA_SHAPE(s->H, s->C), DRA_FILL_NORMAL, 1 / sqrt((double)s->C)});
    }
    dra_lambda_declare(s, s->D, prefix, params);
    dra_specs_add(state, prefix, &(dra_spec){"S", DRA_SHAPE(s->H, s->D, s->E)});
}

/* What is recalled, what replaces it, and the key that is written. */
static void code_diagonal(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                          const dra_seen *seen, dra_value *out)
{
    const dra_low_rank rate = rate_of(s);
    const dra_value   *own = param + count_rates(s);
    const dra_value    a = dra_sigmoid(g, dra_low_rank_build(g, &rate, param, seen->rate, false));
    const dra_value    kk = dra_unit_clamped(g, dra_mul(g, seen->k, own[K_K]), 1e-12);
    const dra_value    less = dra_mul(g, dra_affine(g, a, 1, -1), own[K_A]);
    out[RECALL] = dra_neg(g, kk);
    out[REPLACE] = dra_mul(g, kk, a);
    out[KEY] = dra_mul(g, seen->k, dra_affine(g, less, 1, 1));
}

static int code_delta(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                      const dra_seen *seen, dra_value *out)
{
    const int    n = is_diagonal(s) ? KEY + 1 : B + 1;
    const double most = s->config->delta.strength;
    dra_value    rate;
    if (is_diagonal(s))
        code_diagonal(g, s, param, seen, out);
    else
        out[B] = dra_sigmoid(g, dra_linear(g, seen->rate, param[0], (dra_value){0}));
    if (most > 0) out[B] = dra_affine(g, out[B], most, 0);
    if (s->config->lambda.decay != DRA_DECAY_DATA) return n;
    out[n] = dra_lambda_code(g, s, param + lambda_at(s), seen->decay, &rate);
    return n + 1;
}

/* k, or q, of length 1. */
static dra_value unit_key(dra_graph *g, const dra_memory_sizes *s, dra_value k)
{
    const double eps = s->config->delta.unit_eps;
    return dra_unit(g, k, eps > 0 ? eps : 1e-12);
}

static dra_value unit_query(dra_graph *g, const dra_memory_sizes *s, dra_value q)
{
    q = unit_key(g, s, q);
    return s->config->delta.scale_queries ? dra_affine(g, q, 1 / sqrt((double)s->D), 0) : q;
}

static void step_delta(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    const dra_shape row = DRA_SHAPE(-1, s->H, 1, s->D), column = DRA_SHAPE(-1, s->H, s->D, 1);
    const dra_value v = dra_reshape(g, c->x[1], DRA_SHAPE(-1, s->H, 1, s->E));
    const dra_value l = dra_lambda_step(g, s, c->param + lambda_at(s), l_code(c));
    const dra_value S = dra_lambda_apply(g, l, c->state[0]);
    dra_value       q = c->q, more;
    if (is_diagonal(s)) {
        const dra_value recall = dra_reshape(g, c->code[RECALL], row);
        const dra_value found = dra_matmul(g, recall, c->state[0]); /* (B, H, 1, E) */
        const dra_value put = dra_mul(g, dra_reshape(g, c->code[REPLACE], column), found);
        more = dra_add(g, put, dra_mul(g, dra_reshape(g, c->code[KEY], column), v));
    } else {
        const dra_value k = unit_key(g, s, c->x[0]);
        const dra_value b = dra_reshape(g, c->code[B], DRA_SHAPE(-1, s->H, 1, 1));
        const dra_value miss = dra_sub(g, v, dra_matmul(g, dra_reshape(g, k, row), S));
        more = dra_mul(g, dra_reshape(g, k, column), dra_mul(g, b, miss));
        q = unit_query(g, s, q);
    }
    r->state[0] = dra_memory_keep(g, c, c->state[0], dra_add(g, S, more));
    r->item[0] = c->x[0];
    r->item[1] = dra_reshape(g, dra_matmul(g, dra_reshape(g, q, row), r->state[0]),
                             DRA_SHAPE(-1, s->H, s->E));
}

static void chunk_delta(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    const bool              fixed = s->config->lambda.decay == DRA_DECAY_FIXED;
    const dra_value         l = fixed ? dra_lambda_fixed(g, s, c->param + lambda_at(s)) : l_code(c);
    dra_delta_config        config = {.v = c->x[1],
                                      .l = dra_memory_written(g, c, l, dra_lambda_rank(s)),
                                      .S = c->state[0],
                                      .mark = c->reads};
    if (is_diagonal(s)) {
        config.q = c->q;
        config.k = dra_memory_written(g, c, c->code[KEY], 4);
        config.recall = c->code[RECALL];
        config.replace = dra_memory_written(g, c, c->code[REPLACE], 4);
    } else {
        config.q = unit_query(g, s, c->q);
        config.k = unit_key(g, s, c->x[0]);
        config.b = dra_memory_written(g, c, c->code[B], 3);
    }
    r->item[0] = c->x[0];
    r->item[1] = dra_delta(g, &config, &r->state[0]);
}

/* (q.(r_k k')) v of each token by itself; what is not written is not read. */
static dra_value read_bonus(dra_graph *g, const dra_memory_call *c)
{
    const dra_memory_sizes *s = c->sizes;
    if (!s->config->lambda.bonus) return (dra_value){0};
    const dra_value k = dra_memory_written(g, c, c->code[KEY], 4);
    const dra_value own = dra_mul(g, c->q, dra_mul(g, c->param[count_rates(s) + R_K], k));
    return dra_mul(g, dra_sum_last(g, own), c->x[1]);
}

const dra_memory dra_memory_delta = {.name = "delta",
                                     .retrievals = retrievals,
                                     .check = check_delta,
                                     .declare = declare_delta,
                                     .step = step_delta,
                                     .chunk = chunk_delta,
                                     .code = code_delta,
                                     .late = read_bonus,
                                     .parts = parts,
                                     .chunks = DRA_CHUNK_SKIPS | DRA_CHUNK_BLOCKS};
