/* wkv: RWKV-4's weighted mean of values, per channel, read by the receptance.
 *   y = s(q) (e^p A + e^(u+k) v) / (e^p B + e^(u+k)),   then with w = -exp(time_decay)
 *   e^p' (A', B') = e^(p+w) (A, B) + e^k (v, 1)
 * p is a running maximum, so that no exponential overflows; the heads play no part.
 * State A, B, p (C). [Peng et al. 2023: RWKV] */
#include <math.h>
#include <stdlib.h>

#include "memory/memory.h"

static const char *const retrievals[] = {"formula", NULL};

enum { TIME_DECAY, TIME_FIRST };
enum { A, B, P };

static const double NOTHING = -1e30; /* as a maximum: far below every key */

static dra_status check_wkv(const dra_memory_sizes *s, dra_error *err)
{
    if (s->config->joined)
        return dra_fail(err, DRA_ERR_VALUE, "wkv: keys and values cannot share one state");
    if (s->D != s->E)
        return dra_fail(err, DRA_ERR_VALUE, "wkv: keys of %lld and values of %lld channels differ",
                        (long long)s->D, (long long)s->E);
    return DRA_OK;
}

/* Decays from slow to fast over the channels, faster in deeper layers; the bonus of the token
 * itself differs between neighbours. [as the original initialisation] */
static void first_values(const dra_memory_sizes *s, int64_t N, double *decay, double *first)
{
    const dra_gamma_config *f = &s->config->gamma;
    const double            depth = f->layers > 1 ? (double)f->layer / (double)(f->layers - 1) : 0;
    for (int64_t c = 0; c < N; c++) {
        const double at = N > 1 ? (double)c / (double)(N - 1) : 0;
        decay[c] = -5 + 8 * pow(at, 0.7 + 1.3 * depth);
        first[c] = log(0.3) + 0.5 * (double)((c + 1) % 3 - 1);
    }
}

static void declare_wkv(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                        dra_specs *state)
{
    const int64_t   N = s->H * s->D;
    const dra_shape each = DRA_SHAPE(N);
    double         *values = calloc(2 * (size_t)N + 1, sizeof *values);
    double         *first = values ? values + N : NULL;
    if (values) first_values(s, N, values, first);
    dra_specs_add(params, prefix,
                  &(dra_spec){"time_decay", each, DRA_FILL_VALUES, .values = values,
                              .group = DRA_PARAM_TIME_DECAY});
    dra_specs_add(params, prefix,
                  &(dra_spec){"time_first", each, DRA_FILL_VALUES, .values = first,
                              .group = DRA_PARAM_TIME_FIRST});
    dra_specs_add(state, prefix, &(dra_spec){"A", each});
    dra_specs_add(state, prefix, &(dra_spec){"B", each});
    dra_specs_add(state, prefix, &(dra_spec){"p", each, .number = NOTHING, .maximum = true});
    free(values);
}

/* The two weights e^(a - q), e^(b - q), q = max(a, b), where the maximum is a constant. */
static dra_value weight_shares(dra_graph *g, dra_value a, dra_value b, dra_value e[2])
{
    const dra_value q = dra_stop_gradient(g, dra_maximum(g, a, b));
    e[0] = dra_exp(g, dra_sub(g, a, q));
    e[1] = dra_exp(g, dra_sub(g, b, q));
    return q;
}

/* e_0 x + e_1 y */
static dra_value mix_pair(dra_graph *g, const dra_value e[2], dra_value x, dra_value y)
{
    return dra_add(g, dra_mul(g, e[0], x), dra_mul(g, e[1], y));
}

static void step_wkv(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    const dra_shape         each = DRA_SHAPE(-1, s->H * s->D), heads = DRA_SHAPE(-1, s->H, s->D);
    const dra_value         k = dra_reshape(g, c->x[0], each), v = dra_reshape(g, c->x[1], each);
    const dra_value         w = dra_neg(g, dra_exp(g, c->param[TIME_DECAY]));
    const dra_value         p = dra_stop_gradient(g, c->state[P]), one = dra_number(g, 1);
    dra_value               e[2];
    weight_shares(g, p, dra_add(g, c->param[TIME_FIRST], k), e);
    const dra_value wkv = dra_div(g, mix_pair(g, e, c->state[A], v),
                                  mix_pair(g, e, c->state[B], one));
    r->state[P] = weight_shares(g, dra_add(g, p, w), k, e);
    r->state[A] = mix_pair(g, e, c->state[A], v);
    r->state[B] = mix_pair(g, e, c->state[B], one);
    r->item[0] = c->x[0];
    r->item[1] = dra_mul(g, dra_sigmoid(g, c->q), dra_reshape(g, wkv, heads));
}

static void chunk_wkv(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    if (dra_graph_failed(g)) return;
    const dra_shape heads = dra_shape_of(g, c->x[0]);
    const dra_shape each = DRA_SHAPE(heads.dim[0], heads.dim[1], heads.dim[2] * heads.dim[3]);
    const dra_value w = dra_neg(g, dra_exp(g, c->param[TIME_DECAY]));
    const dra_value k = dra_reshape(g, c->x[0], each), v = dra_reshape(g, c->x[1], each);
    const dra_value wkv = dra_wkv(g, k, v, w, c->param[TIME_FIRST],
                                  c->state[A].id ? c->state : NULL, c->mark, r->state);
    r->item[0] = c->x[0];
    r->item[1] = dra_mul(g, dra_sigmoid(g, c->q), dra_reshape(g, wkv, heads));
}

const dra_memory dra_memory_wkv = {"wkv", retrievals, check_wkv, declare_wkv, step_wkv, chunk_wkv};
