/* moment: sums of outer products, read by features of the query (linear attention).
 *   S' = lambda S + f(k) v^T,   z' = lambda z + f(k),   y = f(q)^T S' / (f(q)^T z' + 1e-6)
 * f is elu(x) + 1, relu, e^x, random features of the softmax kernel (favor) or the identity;
 * without normalise there is no z and no denominator. e^x and favor keep S and z relative to e^mu
 * with a running maximum mu (H): mu' = max(mu + ln lambda, max_f a_f(k)), f = e^(a - mu'). The
 * result does not depend on mu, so it is a constant to the gradient.
 * With a bonus, a token is read before it is written, and itself through u (H) or (H, F):
 *   y = f(q)^T (S + diag(u) f(k) v^T),   without a denominator
 * State S (H, F, E), z (H, F), max (H). [Katharopoulos et al. 2020; Choromanski et al. 2021:
 * FAVOR+; Sun et al. 2023: RetNet; Peng et al. 2024: RWKV 5 and 6] */
#include <math.h>

#include "memory/lambda.h"
#include "memory/memory.h"

static const char *const retrievals[] = {"formula", NULL};

static const double NOTHING = -1e30, LEAST = 1e-30, SMALL = 1e-6;

static bool normalised(const dra_memory_sizes *s)
{
    if (s->config->normalise != DRA_DEFAULT) return s->config->normalise == DRA_ON;
    return s->config->phi != DRA_PHI_IDENTITY;
}

static bool exponential(const dra_memory_sizes *s)
{
    return s->config->phi == DRA_PHI_EXP || s->config->phi == DRA_PHI_FAVOR;
}

static int64_t features(const dra_memory_sizes *s)
{
    if (s->config->phi != DRA_PHI_FAVOR) return s->D;
    return s->config->features ? s->config->features : 2 * s->D;
}

static dra_status check(const dra_memory_sizes *s, dra_error *err)
{
    if (s->config->joined)
        return dra_fail(err, DRA_ERR_VALUE, "moment: keys and values cannot share one state");
    if (s->config->gamma.per == DRA_PER_CHANNEL && exponential(s))
        return dra_fail(err, DRA_ERR_VALUE,
                        "moment: gamma is per head with phi exp and favor, found per channel");
    if (s->config->phi == DRA_PHI_IDENTITY && normalised(s))
        return dra_fail(err, DRA_ERR_VALUE, "moment: phi identity has no normalisation");
    if (exponential(s) && !normalised(s))
        return dra_fail(err, DRA_ERR_VALUE, "moment: phi exp and favor need normalisation");
    if (s->config->features < 0 || (s->config->features && s->config->phi != DRA_PHI_FAVOR))
        return dra_fail(err, DRA_ERR_VALUE, "moment: features is %lld, which only favor has",
                        (long long)s->config->features);
    if (s->config->bonus && normalised(s))
        return dra_fail(err, DRA_ERR_VALUE, "moment: bonus and normalisation exclude each other");
    if (s->config->bonus_exp && !s->config->bonus)
        return dra_fail(err, DRA_ERR_VALUE, "moment: bonus_exp is set, but there is no bonus");
    return dra_lambda_check(s, "moment", err);
}

static int decays(const dra_memory_sizes *s) /* parameters */
{
    return (int)s->config->decay + (s->config->decay_rank ? 1 : 0);
}

static int bonus_at(const dra_memory_sizes *s)
{
    return decays(s) + (s->config->phi == DRA_PHI_FAVOR);
}

static void declare(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                    dra_specs *state)
{
    const int64_t F = features(s);
    dra_lambda_declare(s, F, prefix, params);
    if (s->config->phi == DRA_PHI_FAVOR)
        dra_specs_add(params, prefix,
                      &(dra_spec){.name = "omega",
                                  .shape = DRA_SHAPE(s->H, F, s->D),
                                  .fill = DRA_FILL_FAVOR,
                                  .frozen = true});
    if (s->config->bonus)
        dra_specs_add(
            params, prefix,
            &(dra_spec){s->config->bonus_exp ? "time_first" : "bonus",
                        s->config->bonus == DRA_BONUS_HEAD ? DRA_SHAPE(s->H) : DRA_SHAPE(s->H, F),
                        .number = s->config->bonus_exp ? 0 : 1});
    dra_specs_add(state, prefix, &(dra_spec){"S", DRA_SHAPE(s->H, F, s->E)});
    if (normalised(s)) dra_specs_add(state, prefix, &(dra_spec){"z", DRA_SHAPE(s->H, F)});
    if (exponential(s))
        dra_specs_add(state, prefix,
                      &(dra_spec){"max", DRA_SHAPE(s->H), .number = NOTHING, .maximum = true});
}

static int code(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                const dra_seen *seen, dra_value *out)
{
    if (s->config->decay != DRA_DECAY_DATA) return 0;
    out[0] = dra_lambda_code(g, s, param, seen->decay);
    return 1;
}

/* u (H, F), or none. */
static dra_value bonus(dra_graph *g, const dra_memory_call *c)
{
    const dra_memory_sizes *s = c->sizes;
    if (!s->config->bonus) return (dra_value){0};
    dra_value u = c->param[bonus_at(s)];
    if (s->config->bonus_exp) u = dra_exp(g, u);
    if (s->config->bonus == DRA_BONUS_CHANNEL) return u;
    return dra_broadcast(g, dra_reshape(g, u, DRA_SHAPE(s->H, 1)), DRA_SHAPE(s->H, features(s)));
}

/* Features of x (B, H, D): (B, H, F); for the exponential ones what stands in the exponent. */
static dra_value phi(dra_graph *g, const dra_memory_call *c, dra_value x)
{
    const dra_memory_sizes *s = c->sizes;
    switch (s->config->phi) {
    case DRA_PHI_RELU: return dra_relu(g, x);
    case DRA_PHI_ELU1: return dra_affine(g, dra_elu(g, x), 1, 1);
    case DRA_PHI_FAVOR: {
        const dra_value near = dra_affine(g, x, pow((double)s->D, -0.25), 0);
        const dra_value half = dra_affine(g, dra_sum_last(g, dra_square(g, near)), 0.5, 0);
        return dra_sub(g, dra_head_linear(g, near, c->param[decays(s)]), half);
    }
    default: return x; /* exp, identity */
    }
}

/* The largest of a row, as a constant. */
static dra_value top(dra_graph *g, dra_value x)
{
    return dra_stop_gradient(g, dra_max(g, x, (dra_axes){1, {-1}, true}));
}

/* (B, H, n) as a column (B, H, n, 1) or a row (B, H, 1, n). */
static dra_value column(dra_graph *g, const dra_memory_sizes *s, dra_value x)
{
    return dra_reshape(g, x, DRA_SHAPE(-1, s->H, dra_shape_of(g, x).dim[2], 1));
}

static dra_value row(dra_graph *g, const dra_memory_sizes *s, dra_value x)
{
    return dra_reshape(g, x, DRA_SHAPE(-1, s->H, 1, dra_shape_of(g, x).dim[2]));
}

static dra_value fade(dra_graph *g, const dra_memory_sizes *s, dra_value l, dra_value m)
{
    return exponential(s) ? dra_lambda_apply_jump(g, l, m) : dra_lambda_apply(g, l, m);
}

static void step(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    dra_value               l = dra_lambda_step(g, s, c->param, c->code[0]);
    dra_value               k = phi(g, c, c->x[0]), q = phi(g, c, c->q);
    if (dra_graph_failed(g)) return;
    if (exponential(s)) {
        const dra_shape one = DRA_SHAPE(-1, s->H, 1);
        const dra_value mu = dra_reshape(g, dra_stop_gradient(g, c->state[2]), one);
        const dra_value faded = l.id ? dra_add(g, mu,
                                               dra_reshape(g, l,
                                                           s->config->decay == DRA_DECAY_DATA
                                                               ? one
                                                               : DRA_SHAPE(s->H, 1)))
                                     : mu;
        const dra_value now = dra_stop_gradient(g, dra_maximum(g, faded, top(g, k)));
        const dra_value moved = dra_reshape(g, dra_sub(g, mu, now), DRA_SHAPE(-1, s->H, 1, 1));
        l = l.id ? dra_add(g, moved, l) : moved;
        k = dra_exp(g, dra_sub(g, k, now));
        q = dra_exp(g, dra_sub(g, q, top(g, q)));
        r->state[2] = dra_reshape(g, dra_memory_keep(g, c, mu, now), DRA_SHAPE(-1, s->H));
    }
    const dra_value write = dra_mul(g, column(g, s, k), row(g, s, c->x[1]));
    const dra_value S = dra_add(g, fade(g, s, l, c->state[0]), write);
    r->state[0] = dra_memory_keep(g, c, c->state[0], S);
    const dra_value u = bonus(g, c);
    dra_value       y = dra_matmul(g, row(g, s, q), u.id ? c->state[0] : r->state[0]);
    if (u.id) { /* (B, H, 1, E) */
        const dra_value own = dra_mul(g, q, dra_mul(g, u, dra_memory_written(g, c, k, 3)));
        y = dra_add(g, y, dra_mul(g, row(g, s, dra_sum_last(g, own)), row(g, s, c->x[1])));
    }
    if (normalised(s)) {
        const dra_value z = fade(g, s, l, column(g, s, c->state[1]));
        const dra_value sum = dra_memory_keep(g, c, column(g, s, c->state[1]),
                                              dra_add(g, z, column(g, s, k)));
        const dra_value den = dra_matmul(g, row(g, s, q), sum);
        r->state[1] = dra_reshape(g, sum, DRA_SHAPE(-1, s->H, features(s)));
        y = dra_div(g, y,
                    exponential(s) ? dra_maximum(g, den, dra_number(g, LEAST))
                                   : dra_affine(g, den, 1, SMALL));
    }
    r->item[0] = c->x[0];
    r->item[1] = dra_reshape(g, y, DRA_SHAPE(-1, s->H, s->E));
}

/* Features relative to the running maximum; l becomes what S and z fade by. */
static void measure(dra_graph *g, const dra_memory_call *c, dra_value *q, dra_value *k,
                    dra_value *l, dra_value *last)
{
    const dra_shape s = dra_shape_of(g, *k); /* (B, T, H, F) */
    const dra_shape each = DRA_SHAPE(s.dim[0], s.dim[1], s.dim[2]);
    dra_shape       column = s;
    dra_value       shift;
    column.dim[3] = 1;
    const dra_value high = dra_reshape(g, top(g, *k), each);
    const dra_value mu = dra_running_top(g, high, *l, c->state[2], c->mark, &shift, last);
    const dra_value above = dra_sub(g, *k, dra_stop_gradient(g, dra_reshape(g, mu, column)));
    *k = dra_exp(g, dra_minimum(g, above, dra_number(g, 0))); /* a pad may be above */
    *q = dra_exp(g, dra_sub(g, *q, top(g, *q)));
    *l = shift;
}

static void chunk(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    dra_value               k = phi(g, c, c->x[0]), q = phi(g, c, c->q), l = c->code[0];
    if (dra_graph_failed(g)) return;
    if (s->config->decay == DRA_DECAY_FIXED) l = dra_lambda_fixed(g, s, c->param);
    if (exponential(s)) measure(g, c, &q, &k, &l, &r->state[2]);
    k = dra_memory_written(g, c, k, 4);
    l = dra_memory_written(g, c, l, dra_lambda_rank(s));
    const dra_moment_config config = {.q = q,
                                      .k = k,
                                      .v = c->x[1],
                                      .l = l,
                                      .u = bonus(g, c),
                                      .S = c->state[0],
                                      .z = normalised(s) ? c->state[1] : (dra_value){0},
                                      .mark = c->reads,
                                      .normalise = normalised(s),
                                      .jumps = exponential(s),
                                      .eps = exponential(s) ? 0 : SMALL,
                                      .least = exponential(s) ? LEAST : 0};
    r->item[0] = c->x[0];
    r->item[1] = dra_moment(g, &config, &r->state[0], normalised(s) ? &r->state[1] : NULL);
}

const dra_memory dra_memory_moment = {.name = "moment",
                                      .retrievals = retrievals,
                                      .check = check,
                                      .declare = declare,
                                      .step = step,
                                      .chunk = chunk,
                                      .code = code,
                                      .options = DRA_OPTION_PHI | DRA_OPTION_DECAY |
                                                 DRA_OPTION_BONUS | DRA_CHUNK_SKIPS |
                                                 DRA_CHUNK_BLOCKS};
