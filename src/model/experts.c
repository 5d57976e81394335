/* A mixture of experts: a router chooses `top` of n feed-forwards for each token.
 *   p = softmax(W_router x) over all experts, of the largest, ties by number (over their sum)
 *   y = sum_e p_e W_down,e (W_up,e x * act(W_gate,e x)), in the order of numbers
 *     + sigmoid(w x) shared(x), a feed-forward for all tokens
 *   balance = n sum_e f_e p_e; f_e: tokens that have e, p_e: the sum of its p, each over all tokens
 * Matrices of experts stand one below the other, so W_up is (n F, C). The tokens are sorted by
 * expert, and each has one product (graph: dra_group_rows, dra_grouped_linear): a row of it has the
 * bits that it has alone, and so has its sum, whatever else is in the call. */
#include <math.h>

#include "base/error.h"
#include "file/field_rows.h"
#include "model/parts.h"
#include "model/stack.h"

const dra_field dra_expert_fields[] = {
    INT(dra_experts_config, count, "one for all tokens", "experts, of which a token has some"),
    INT(dra_experts_config, top, "required with count", "experts that a token has"),
    BOOL(dra_experts_config, normalise, "the weights of a token's experts add up to 1"),
    INT(dra_experts_config, shared, "none", "inner width of an expert that all tokens have"),
    BOOL(dra_experts_config, shared_gate, "what that one adds is gated by the token"),
    {0},
};

/* ---- tensors --------------------------------------------------------------------------------- */

dra_status dra_experts_check(const dra_sublayer_config *c, dra_error *err)
{
    const dra_ff_config      *f = &c->ff;
    const dra_experts_config *e = &f->experts;
    const bool                biases = f->bias == DRA_FF_BIAS_ALL || f->bias == DRA_FF_BIAS_IN ||
                        (f->bias == DRA_FF_BIAS_MODEL && c->mixer.bias);
    if (!e->count && (e->top || e->normalise || e->shared || e->shared_gate))
        return dra_fail(err, DRA_ERR_VALUE, "ff.experts: %s is set, but no count",
                        e->top         ? "top"
                        : e->normalise ? "normalise"
                        : e->shared    ? "shared"
                                       : "shared_gate");
    if (!e->count) return DRA_OK;
    if (e->count < 1 || e->count > 4096)
        return dra_fail(err, DRA_ERR_VALUE, "ff.experts: count is %lld, expected 1 to 4096",
                        (long long)e->count);
    if (e->top < 1 || e->top > e->count)
        return dra_fail(err, DRA_ERR_VALUE, "ff.experts: top is %lld, expected 1 to count %lld",
                        (long long)e->top, (long long)e->count);
    if (e->shared < 0 || (e->shared_gate && !e->shared))
        return dra_fail(err, DRA_ERR_VALUE, "ff.experts: shared is %lld%s", (long long)e->shared,
                        e->shared_gate ? ", but shared_gate is set" : ", expected 0 or more");
    if (f->kind == DRA_FF_MIX || biases || f->act_norm || f->gate_scale || f->dropout > 0)
        return dra_fail(err, DRA_ERR_VALUE, "ff.experts: experts have no %s",
                        f->kind == DRA_FF_MIX ? "kind mix"
                        : biases              ? "biases"
                        : f->act_norm         ? "act_norm"
                        : f->gate_scale       ? "gate_scale"
                                              : "dropout");
    return DRA_OK;
}

/* Matrices (O, I), of as many experts; 0: one. */
static int add_matrices(const dra_sublayer_config *c, dra_specs *params, const char *name,
                        int64_t experts, int64_t O, int64_t I, double std)
{
    const int     at = dra_specs_count(params);
    const int64_t rows = experts ? experts * O : O;
    dra_spec      spec = {name,          DRA_SHAPE(rows, I), DRA_FILL_NORMAL,
                          .number = std, .product = true,    .experts = experts};
    if (c->mixer.init == DRA_INIT_UNIFORM)
        spec.fill = DRA_FILL_UNIFORM, spec.number = 1 / sqrt((double)I);
    if (std == 0) spec.fill = DRA_FILL_CONST, spec.number = 0;
    dra_specs_add(params, NULL, &spec);
    return at;
}

/* As a feed-forward for all tokens starts, see ff.c. */
dra_experts dra_experts_declare(const dra_sublayer_config *c, dra_specs *params)
{
    const dra_experts_config *x = &c->ff.experts;
    const int64_t             C = c->mixer.dim, F = c->ff.dim, S = x->shared, n = x->count;
    const double in = 1 / sqrt((double)C), depth = c->depth ? 2.0 * (double)c->depth : 1;
    const double out = c->block.zero_out ? 0 : 1 / sqrt(depth * (double)F);
    const bool   gated = dra_ff_is_gated(&c->ff);
    dra_experts  e = {
         .gate = -1, .shared_up = -1, .shared_down = -1, .shared_gate = -1, .share = -1};
    e.router = add_matrices(c, params, "W_router", 0, n, C, in);
    e.up = add_matrices(c, params, "W_up", n, F, C, in);
    e.down = add_matrices(c, params, "W_down", n, C, F, out);
    if (gated) e.gate = add_matrices(c, params, "W_gate", n, F, C, in);
    if (!S) return e;
    e.shared_up = add_matrices(c, params, "W_shared_up", 0, S, C, in);
    e.shared_down = add_matrices(c, params, "W_shared_down", 0, C, S,
                                 c->block.zero_out ? 0 : 1 / sqrt(depth * (double)S));
    if (gated) e.shared_gate = add_matrices(c, params, "W_shared_gate", 0, S, C, in);
    if (x->shared_gate) e.share = add_matrices(c, params, "W_share", 0, 1, C, in);
    return e;
}

/* ---- the graph ------------------------------------------------------------------------------- */

typedef struct mixture {
    dra_graph                 *g;
    const dra_experts         *e;
    const dra_sublayer_config *c;
    const dra_module_call     *call;
    int64_t                    rows; /* B T */
} mixture;

static dra_value param_of(const mixture *m, int at)
{
    return at < 0 ? (dra_value){0} : m->call->param[at];
}

/* The inner values of the chosen experts, (rows top, F), times their weights (rows, top): so these
 * are on the way of the widest product's input, and the sum is one of rows. */
static dra_value build_chosen(const mixture *m, const dra_groups *r, dra_value x, dra_value weight)
{
    dra_graph      *g = m->g;
    const int64_t   S = m->rows * m->c->ff.experts.top;
    const dra_value in = dra_group_take(g, x, r->source, r->place);
    const dra_value own = dra_group_take(g, dra_reshape(g, weight, DRA_SHAPE(S, 1)), r->order,
                                         dra_reshape(g, r->place, DRA_SHAPE(S, 1)));
    dra_value       gate = {0}, h = dra_grouped_linear(g, in, param_of(m, m->e->up), r->ends);
    if (m->e->gate >= 0) gate = dra_grouped_linear(g, in, param_of(m, m->e->gate), r->ends);
    h = dra_mul(g, dra_ff_activate(g, m->c->ff.kind, h, gate), own);
    return dra_group_sum(g, dra_grouped_linear(g, h, param_of(m, m->e->down), r->ends), r->source,
                         r->place);
}

static dra_value build_shared(const mixture *m, dra_value x)
{
    const dra_value none = {0};
    dra_graph      *g = m->g;
    dra_value       gate = {0}, h = dra_linear(g, x, param_of(m, m->e->shared_up), none);
    if (m->e->shared_gate >= 0) gate = dra_linear(g, x, param_of(m, m->e->shared_gate), none);
    h = dra_ff_activate(g, m->c->ff.kind, h, gate);
    h = dra_linear(g, h, param_of(m, m->e->shared_down), none);
    if (m->e->share < 0) return h;
    return dra_mul(g, h, dra_sigmoid(g, dra_linear(g, x, param_of(m, m->e->share), none)));
}

/* The sum over tokens that are no padding of x (rows, n). */
static dra_value sum_tokens(const mixture *m, dra_value x, int64_t n)
{
    const dra_tokens *t = &m->call->tokens;
    const dra_value   all = dra_reshape(m->g, x, DRA_SHAPE(t->B, t->T, n));
    return dra_sum(m->g, dra_tokens_zero_pads(m->g, t, all), (dra_axes){2, {0, 1}, false});
}

static dra_value build_balance(const mixture *m, dra_value p, dra_value ids)
{
    const int64_t   n = m->c->ff.experts.count;
    dra_graph      *g = m->g;
    const dra_value has = dra_sum(g, dra_one_hot(g, ids, n), (dra_axes){1, {1}, false});
    const dra_value one = dra_broadcast(g, dra_number(g, 1), DRA_SHAPE(m->rows, 1));
    const dra_value tokens = dra_maximum(g, sum_tokens(m, one, 1), dra_number(g, 1));
    const dra_value f = dra_div(g, sum_tokens(m, has, n), tokens);
    const dra_value mean = dra_div(g, sum_tokens(m, p, n), tokens);
    return dra_affine(g, dra_sum_all(g, dra_mul(g, f, mean)), (double)n, 0);
}

dra_value dra_experts_build(dra_graph *g, const dra_experts *e, const dra_sublayer_config *c,
                            const dra_module_call *call, dra_value x, dra_value *balance)
{
    const dra_experts_config *k = &c->ff.experts;
    const dra_shape           shape = DRA_SHAPE(call->tokens.B, call->tokens.T, c->mixer.dim);
    const mixture             m = {g, e, c, call, shape.dim[0] * shape.dim[1]};
    const dra_value           u = dra_reshape(g, x, DRA_SHAPE(m.rows, c->mixer.dim));
    const dra_value           logits = dra_linear(g, u, param_of(&m, e->router), (dra_value){0});
    const dra_value           ids = dra_top_ids(g, logits, k->top), p = dra_softmax(g, logits);
    dra_value                 weight = dra_gather(g, p, ids, -1);
    if (k->normalise) weight = dra_div(g, weight, dra_sum_last(g, weight));
    const dra_groups r = dra_group_rows(g, ids, k->count);
    dra_value        y = build_chosen(&m, &r, u, weight);
    if (k->shared) y = dra_add(g, y, build_shared(&m, u));
    if (c->mixer.aux >> DRA_AUX_BALANCE & 1) *balance = build_balance(&m, p, ids);
    return dra_reshape(g, y, shape);
}
