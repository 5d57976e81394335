/* moment: sums of outer products, read by features of the query (linear attention).
 *   S' = lambda S + f(k) v^T,   z' = lambda z + f(k),   y = f(q)^T S' / (f(q)^T z' + 1e-6)
 * f is elu(x) + 1, relu, e^x, random features of the softmax kernel (favor) or the identity;
 * without normalise there is no z and no denominator. e^x and favor keep S and z relative to e^mu
 * with a running maximum mu (H): mu' = max(mu + ln lambda, max_f a_f(k)), f = e^(a - mu'). The
 * result does not depend on mu, so it is a constant to the gradient.
 * With a bonus, a token is read before it is written, and itself through u (H) or (H, F):
 *   y = f(q)^T (S + diag(u) f(k) v^T),   without a denominator
 * With rate_values, values are times the rate of the decay; with skip, D v is added (Mamba-2).
 * State S (H, F, E), z (H, F), max (H). [Katharopoulos et al. 2020; Choromanski et al. 2021:
 * FAVOR+; Sun et al. 2023: RetNet; Peng et al. 2024: RWKV 5 and 6] */
#include <math.h>

#include "file/field_rows.h"
#include "memory/lambda.h"
#include "memory/memory.h"
#include "memory/part.h"

static const char *const phis[] = {"elu1", "relu", "exp", "favor", "identity", NULL};

const dra_field dra_moment_fields[] = {
    CHOICE(dra_moment_options, phi, phis, "moment: feature map of queries and keys"),
    INT(dra_moment_options, features, "2 key_dim", "moment: features of favor"),
    SWITCH(dra_moment_options, normalise, "true but for identity",
           "moment: divide by the sum of the weights"),
    {.name = "skip",
     .kind = DRA_FIELD_BOOL,
     .unset = "false",
     .offset = offsetof(dra_moment_options, skip),
     .about = "moment: add a token's own value, times a learned factor of each head"},
    {0}};
const dra_part dra_moment_part = {offsetof(dra_memory_config, moment), {dra_moment_fields}};

static const dra_part *const parts[] = {&dra_moment_part, &dra_lambda_part, NULL};
static const char *const     retrievals[] = {"formula", NULL};

enum { RATE = 1 }; /* of the codes, after the decay */

static const double NOTHING = -1e30, LEAST = 1e-30, SMALL = 1e-6;

static bool is_normalised(const dra_memory_sizes *s)
{
    if (s->config->moment.normalise != DRA_DEFAULT) return s->config->moment.normalise == DRA_ON;
    return s->config->moment.phi != DRA_PHI_IDENTITY;
}

static bool is_exponential(const dra_memory_sizes *s)
{
    return s->config->moment.phi == DRA_PHI_EXP || s->config->moment.phi == DRA_PHI_FAVOR;
}

static int64_t count_features(const dra_memory_sizes *s)
{
    if (s->config->moment.phi != DRA_PHI_FAVOR) return s->D;
    return s->config->moment.features ? s->config->moment.features : 2 * s->D;
}

static dra_status check_moment(const dra_memory_sizes *s, dra_error *err)
{
    if (s->config->joined)
        return dra_fail(err, DRA_ERR_VALUE, "moment: keys and values cannot share one state");
    if (s->config->gamma.per == DRA_PER_CHANNEL && is_exponential(s))
        return dra_fail(err, DRA_ERR_VALUE,
                        "moment: gamma is per head with phi exp and favor, found per channel");
    if (s->config->moment.phi == DRA_PHI_IDENTITY && is_normalised(s))
        return dra_fail(err, DRA_ERR_VALUE, "moment: phi identity has no normalisation");
    if (is_exponential(s) && !is_normalised(s))
        return dra_fail(err, DRA_ERR_VALUE, "moment: phi exp and favor need normalisation");
    if (s->config->moment.features < 0 ||
        (s->config->moment.features && s->config->moment.phi != DRA_PHI_FAVOR))
        return dra_fail(err, DRA_ERR_VALUE, "moment: features is %lld, which only favor has",
                        (long long)s->config->moment.features);
    if (s->config->lambda.bonus && is_normalised(s))
        return dra_fail(err, DRA_ERR_VALUE, "moment: bonus and normalisation exclude each other");
    if (s->config->lambda.bonus_exp && !s->config->lambda.bonus)
        return dra_fail(err, DRA_ERR_VALUE, "moment: bonus_exp is set, but there is no bonus");
    return dra_lambda_check(s, "moment", err);
}

static int bonus_at(const dra_memory_sizes *s)
{
    return dra_lambda_count(s) + (s->config->moment.phi == DRA_PHI_FAVOR);
}

static int skip_at(const dra_memory_sizes *s)
{
    return bonus_at(s) + (s->config->lambda.bonus != DRA_BONUS_NONE);
}

static void declare_moment(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                           dra_specs *state)
{
    const int64_t F = count_features(s);
    dra_lambda_declare(s, F, prefix, params);
    if (s->config->moment.phi == DRA_PHI_FAVOR)
        dra_specs_add(params, prefix,
                      &(dra_spec){.name = "omega",
                                  .shape = DRA_SHAPE(s->H, F, s->D),
                                  .fill = DRA_FILL_FAVOR,
                                  .frozen = true,
                                  .group = DRA_PARAM_OTHER});
    if (s->config->lambda.bonus)
        dra_specs_add(params, prefix,
                      &(dra_spec){s->config->lambda.bonus_exp ? "time_first" : "bonus",
                                  s->config->lambda.bonus == DRA_BONUS_HEAD ? DRA_SHAPE(s->H)
                                                                            : DRA_SHAPE(s->H, F),
                                  .number = s->config->lambda.bonus_exp ? 0 : 1,
                                  .group = s->config->lambda.bonus_exp ? DRA_PARAM_TIME_FIRST
                                                                       : DRA_PARAM_BONUS});
    if (s->config->moment.skip)
        dra_specs_add(params, prefix,
                      &(dra_spec){"D", DRA_SHAPE(s->H), .number = 1, .group = DRA_PARAM_BONUS});
    dra_specs_add(state, prefix, &(dra_spec){"S", DRA_SHAPE(s->H, F, s->E)});
    if (is_normalised(s)) dra_specs_add(state, prefix, &(dra_spec){"z", DRA_SHAPE(s->H, F)});
    if (is_exponential(s))
        dra_specs_add(state, prefix,
                      &(dra_spec){"max", DRA_SHAPE(s->H), .number = NOTHING, .maximum = true});
}

static int code_moment(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                       const dra_seen *seen, dra_value *out)
{
    if (s->config->lambda.decay != DRA_DECAY_DATA) return 0;
    out[0] = dra_lambda_code(g, s, param, seen->decay, &out[RATE]);
    return out[RATE].id ? RATE + 1 : 1;
}

/* The value that is written. */
static dra_value rated_value(dra_graph *g, const dra_memory_call *c)
{
    if (!c->sizes->config->lambda.rate_values || dra_graph_failed(g)) return c->x[1];
    dra_shape s = dra_shape_of(g, c->code[RATE]);
    s.dim[s.rank++] = 1;
    return dra_mul(g, c->x[1], dra_reshape(g, c->code[RATE], s));
}

/* What is not written is not read. */
static dra_value read_skip(dra_graph *g, const dra_memory_call *c)
{
    const dra_memory_sizes *s = c->sizes;
    if (!s->config->moment.skip) return (dra_value){0};
    const dra_value D = dra_reshape(g, c->param[skip_at(s)], DRA_SHAPE(s->H, 1));
    return dra_mul(g, dra_memory_written(g, c, c->x[1], 4), D);
}

/* u (H, F), or none. */
static dra_value read_bonus(dra_graph *g, const dra_memory_call *c)
{
    const dra_memory_sizes *s = c->sizes;
    if (!s->config->lambda.bonus) return (dra_value){0};
    dra_value u = c->param[bonus_at(s)];
    if (s->config->lambda.bonus_exp) u = dra_exp(g, u);
    if (s->config->lambda.bonus == DRA_BONUS_CHANNEL) return u;
    return dra_broadcast(g, dra_reshape(g, u, DRA_SHAPE(s->H, 1)),
                         DRA_SHAPE(s->H, count_features(s)));
}

/* Features of x (B, H, D): (B, H, F); for the exponential ones what stands in the exponent. */
static dra_value apply_phi(dra_graph *g, const dra_memory_call *c, dra_value x)
{
    const dra_memory_sizes *s = c->sizes;
    switch (s->config->moment.phi) {
    case DRA_PHI_RELU: return dra_relu(g, x);
    case DRA_PHI_ELU1: return dra_affine(g, dra_elu(g, x), 1, 1);
    case DRA_PHI_FAVOR: {
        const dra_value near = dra_affine(g, x, pow((double)s->D, -0.25), 0);
        const dra_value half = dra_affine(g, dra_sum_last(g, dra_square(g, near)), 0.5, 0);
        return dra_sub(g, dra_head_linear(g, near, c->param[dra_lambda_count(s)]), half);
    }
    default: return x; /* exp, identity */
    }
}

/* The largest of a row, as a constant. */
static dra_value row_top(dra_graph *g, dra_value x)
{
    return dra_stop_gradient(g, dra_max(g, x, (dra_axes){1, {-1}, true}));
}

/* (B, H, n) as a column (B, H, n, 1) or a row (B, H, 1, n). */
static dra_value as_column(dra_graph *g, const dra_memory_sizes *s, dra_value x)
{
    return dra_reshape(g, x, DRA_SHAPE(-1, s->H, dra_shape_of(g, x).dim[2], 1));
}

static dra_value as_row(dra_graph *g, const dra_memory_sizes *s, dra_value x)
{
    return dra_reshape(g, x, DRA_SHAPE(-1, s->H, 1, dra_shape_of(g, x).dim[2]));
}

static dra_value fade_state(dra_graph *g, const dra_memory_sizes *s, dra_value l, dra_value m)
{
    return is_exponential(s) ? dra_lambda_apply_jump(g, l, m) : dra_lambda_apply(g, l, m);
}

static void step_moment(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    dra_value               l = dra_lambda_step(g, s, c->param, c->code[0]);
    dra_value               k = apply_phi(g, c, c->x[0]), q = apply_phi(g, c, c->q);
    if (dra_graph_failed(g)) return;
    if (is_exponential(s)) {
        const dra_shape one = DRA_SHAPE(-1, s->H, 1);
        const dra_value mu = dra_reshape(g, dra_stop_gradient(g, c->state[2]), one);
        const dra_value faded = l.id ? dra_add(g, mu,
                                               dra_reshape(g, l,
                                                           s->config->lambda.decay == DRA_DECAY_DATA
                                                               ? one
                                                               : DRA_SHAPE(s->H, 1)))
                                     : mu;
        const dra_value now = dra_stop_gradient(g, dra_maximum(g, faded, row_top(g, k)));
        const dra_value moved = dra_reshape(g, dra_sub(g, mu, now), DRA_SHAPE(-1, s->H, 1, 1));
        l = l.id ? dra_add(g, moved, l) : moved;
        k = dra_exp(g, dra_sub(g, k, now));
        q = dra_exp(g, dra_sub(g, q, row_top(g, q)));
        r->state[2] = dra_reshape(g, dra_memory_keep(g, c, mu, now), DRA_SHAPE(-1, s->H));
    }
    const dra_value v = rated_value(g, c);
    const dra_value write = dra_mul(g, as_column(g, s, k), as_row(g, s, v));
    const dra_value S = dra_add(g, fade_state(g, s, l, c->state[0]), write);
    r->state[0] = dra_memory_keep(g, c, c->state[0], S);
    const dra_value u = read_bonus(g, c);
    dra_value       y = dra_matmul(g, as_row(g, s, q), u.id ? c->state[0] : r->state[0]);
    if (u.id) { /* (B, H, 1, E) */
        const dra_value own = dra_mul(g, q, dra_mul(g, u, dra_memory_written(g, c, k, 3)));
        y = dra_add(g, y, dra_mul(g, as_row(g, s, dra_sum_last(g, own)), as_row(g, s, v)));
    }
    if (is_normalised(s)) {
        const dra_value z = fade_state(g, s, l, as_column(g, s, c->state[1]));
        const dra_value sum = dra_memory_keep(g, c, as_column(g, s, c->state[1]),
                                              dra_add(g, z, as_column(g, s, k)));
        const dra_value den = dra_matmul(g, as_row(g, s, q), sum);
        r->state[1] = dra_reshape(g, sum, DRA_SHAPE(-1, s->H, count_features(s)));
        y = dra_div(g, y,
                    is_exponential(s) ? dra_maximum(g, den, dra_number(g, LEAST))
                                      : dra_affine(g, den, 1, SMALL));
    }
    r->item[0] = c->x[0];
    r->item[1] = dra_reshape(g, y, DRA_SHAPE(-1, s->H, s->E));
}

/* Features relative to the running maximum; l becomes what S and z fade by. */
static void scale_features(dra_graph *g, const dra_memory_call *c, dra_value *q, dra_value *k,
                           dra_value *l, dra_value *last)
{
    const dra_shape s = dra_shape_of(g, *k); /* (B, T, H, F) */
    const dra_shape each = DRA_SHAPE(s.dim[0], s.dim[1], s.dim[2]);
    dra_shape       column = s;
    dra_value       shift;
    column.dim[3] = 1;
    const dra_value high = dra_reshape(g, row_top(g, *k), each);
    const dra_value mu = dra_running_top(g, high, *l, c->state[2], c->mark, &shift, last);
    const dra_value above = dra_sub(g, *k, dra_stop_gradient(g, dra_reshape(g, mu, column)));
    *k = dra_exp(g, dra_minimum(g, above, dra_number(g, 0))); /* a pad may be above */
    *q = dra_exp(g, dra_sub(g, *q, row_top(g, *q)));
    *l = shift;
}

static void chunk_moment(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    dra_value               k = apply_phi(g, c, c->x[0]), q = apply_phi(g, c, c->q), l = c->code[0];
    if (dra_graph_failed(g)) return;
    if (s->config->lambda.decay == DRA_DECAY_FIXED) l = dra_lambda_fixed(g, s, c->param);
    if (is_exponential(s)) scale_features(g, c, &q, &k, &l, &r->state[2]);
    k = dra_memory_written(g, c, k, 4);
    l = dra_memory_written(g, c, l, dra_lambda_rank(s));
    const dra_moment_config config = {.q = q,
                                      .k = k,
                                      .v = rated_value(g, c),
                                      .l = l,
                                      .u = read_bonus(g, c),
                                      .S = c->state[0],
                                      .z = is_normalised(s) ? c->state[1] : (dra_value){0},
                                      .mark = c->reads,
                                      .normalise = is_normalised(s),
                                      .jumps = is_exponential(s),
                                      .eps = is_exponential(s) ? 0 : SMALL,
                                      .least = is_exponential(s) ? LEAST : 0};
    r->item[0] = c->x[0];
    r->item[1] = dra_moment(g, &config, &r->state[0], is_normalised(s) ? &r->state[1] : NULL);
}

const dra_memory dra_memory_moment = {.name = "moment",
                                      .retrievals = retrievals,
                                      .check = check_moment,
                                      .declare = declare_moment,
                                      .step = step_moment,
                                      .chunk = chunk_moment,
                                      .code = code_moment,
                                      .late = read_skip,
                                      .parts = parts,
                                      .chunks = DRA_CHUNK_SKIPS | DRA_CHUNK_BLOCKS};
