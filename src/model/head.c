/* Heads: what is made of the last hidden values.
 *   tokens    logits = W hidden (+ b); with numbers (xVal) a number for each token as well
 *             sigsoftmax: z + ln sigmoid(z) in place of logits z
 *             mixture: ln sum_k p_k softmax(W W_k hidden), p = softmax(w hidden)
 *   classes   logits = W pooled (+ b), pooled: the mean of hidden, its last, or that of a vector of
 *             its own before the text
 *   vectors   out = W hidden (+ b), or hidden itself */
#include <math.h>

#include "base/error.h"
#include "base/shape.h"
#include "graph/op.h"
#include "model/model.h"
#include "file/field_rows.h"
#include "model/parts.h"

DRA_CHOICES(head_kinds, DRA_HEAD_COUNT, "tokens", "classes", "vectors", "none");
DRA_CHOICES(pools, DRA_POOL_COUNT, "mean", "cls", "last");
const dra_field dra_head_fields[] = {
    CHOICE(dra_head_config, kind, head_kinds, "what the model puts out"),
    INT(dra_head_config, dim, "dim", "vectors: their width; classes: how many"),
    BOOL(dra_head_config, bias, "tokens, vectors: the head has a bias"),
    BOOL(dra_head_config, numbers, "tokens: put out numbers, too (xVal)"),
    CHOICE(dra_head_config, pool, pools, "classes: what stands for the text"),
    BOOL(dra_head_config, no_bias, "classes: the head has no bias"),
    BOOL(dra_head_config, sigsoftmax, "tokens: logits z become z + ln sigmoid(z)"),
    INT(dra_head_config, mixture, "1", "tokens: logits of a mixture of that many softmaxes"),
    {0},
};

dra_status dra_head_check(const dra_model_config *c, dra_error *err)
{
    const dra_head_config *h = &c->head;
    if ((unsigned)h->kind > DRA_HEAD_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "model: head: kind is %d, expected 0 to %d",
                        (int)h->kind, DRA_HEAD_NONE);
    if (h->kind == DRA_HEAD_TOKENS && h->dim)
        return dra_fail(err, DRA_ERR_VALUE, "model: head: dim is for classes and vectors");
    if ((unsigned)h->pool > DRA_POOL_LAST)
        return dra_fail(err, DRA_ERR_VALUE, "model: head: pool is %d, expected 0 to %d",
                        (int)h->pool, DRA_POOL_LAST);
    if ((h->pool || h->no_bias) && h->kind != DRA_HEAD_CLASSES)
        return dra_fail(err, DRA_ERR_VALUE, "model: head: %s needs kind classes",
                        h->pool ? "pool" : "no_bias");
    if ((h->sigsoftmax || h->mixture) && h->kind != DRA_HEAD_TOKENS)
        return dra_fail(err, DRA_ERR_VALUE, "model: head: %s needs kind tokens",
                        h->mixture ? "mixture" : "sigsoftmax");
    if (h->pool == DRA_POOL_CLS && c->visible != DRA_VISIBLE_BIDIRECTIONAL)
        return dra_fail(err, DRA_ERR_VALUE, "model: head: pool cls needs visible bidirectional");
    if (h->numbers && h->kind != DRA_HEAD_TOKENS)
        return dra_fail(err, DRA_ERR_VALUE, "model: head: numbers needs kind tokens");
    if (h->kind == DRA_HEAD_TOKENS && c->tied == DRA_ON && c->source.kind != DRA_SOURCE_TOKENS)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: tied needs a table of tokens: set tied to false");
    return DRA_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int add_param(dra_model *m, const char *name, dra_param_group group, dra_shape shape,
                     double number)
{
    const bool uniform = m->config.init == DRA_INIT_UNIFORM || m->config.head.kind;
    const int  at = dra_specs_count(m->params);
    dra_specs_add(m->params, NULL,
                  &(dra_spec){name, shape, uniform ? DRA_FILL_UNIFORM : DRA_FILL_NORMAL,
                              .number = number, .product = shape.rank == 2, .group = group});
    return at;
}

/* Rows of its map; 0: it has none. */
static int64_t width_of(const dra_model_config *c)
{
    if (c->head.kind == DRA_HEAD_TOKENS) return c->tied == DRA_OFF ? c->vocab : 0;
    return c->head.kind == DRA_HEAD_NONE ? 0 : c->head.dim;
}

static void declare_mixture(dra_model *m)
{
    const int64_t C = m->config.dim, K = m->config.head.mixture;
    const double  within = 1 / sqrt((double)C);
    m->mixture = dra_specs_count(m->params);
    add_param(m, "mixture_W", DRA_PARAM_MATRIX, DRA_SHAPE(K * C, C), within);
    add_param(m, "mixture_w", DRA_PARAM_MATRIX, DRA_SHAPE(K, C), within);
}

void dra_head_declare(dra_model *m)
{
    m->mixture = -1;
    if (m->config.head.mixture) declare_mixture(m);
    const dra_model_config *c = &m->config;
    const int64_t           n = width_of(c);
    const double            within = 1 / sqrt((double)c->dim);
    const bool              tokens = c->head.kind == DRA_HEAD_TOKENS;
    m->head = m->head_b = m->numbers_w = m->numbers_b = m->cls_token = -1;
    if (c->head.pool == DRA_POOL_CLS) {
        m->cls_token = dra_specs_count(m->params);
        dra_specs_add(m->params, NULL,
                      &(dra_spec){"cls_token", DRA_SHAPE(1, c->dim), DRA_FILL_NORMAL,
                                  .number = 0.02, .product = true, .group = DRA_PARAM_VECTOR});
    }
    if (n) m->head = add_param(m, "head", DRA_PARAM_HEAD, DRA_SHAPE(n, c->dim), within);
    if (tokens && !n) m->head = m->embedding;
    if (c->head.bias || (c->head.kind == DRA_HEAD_CLASSES && n && !c->head.no_bias))
        m->head_b = add_param(m, "head_b", DRA_PARAM_BIAS, DRA_SHAPE(tokens ? c->vocab : n),
                              within);
    if (!c->head.numbers) return;
    m->numbers_w = add_param(m, "numbers_w", DRA_PARAM_OTHER, DRA_SHAPE(1, c->dim), within);
    m->numbers_b = add_param(m, "numbers_b", DRA_PARAM_BIAS, DRA_SHAPE(1), within);
}

/* ---- the graph ------------------------------------------------------------------------------- */

int64_t dra_model_starts(const dra_model_config *c)
{
    return c->memory_tokens + (c->head.pool == DRA_POOL_CLS);
}

dra_value dra_head_cls(dra_graph *g, const dra_model *m, const dra_tokens *t, dra_value y)
{
    if (!y.id || dra_graph_failed(g)) return (dra_value){0};
    return dra_reshape(g, dra_slice(g, y, 1, m->config.memory_tokens, 1),
                       DRA_SHAPE(t->B, m->config.dim));
}

/* The given tokens with their marks. */
static dra_tokens given_of(dra_graph *g, const dra_tokens *t)
{
    dra_tokens given = *t;
    given.mark = dra_tokens_drop_prefix(g, t, t->mark);
    return given;
}

/* The last token that is no pad; of a row of pads the first. */
static dra_value last_token(dra_graph *g, const dra_tokens *t, dra_value x)
{
    const dra_shape row = DRA_SHAPE(t->B, dra_graph_failed(g) ? 1 : dra_shape_of(g, x).dim[2]);
    if (!t->mark.id || dra_graph_failed(g))
        return dra_reshape(g, dra_slice(g, x, 1, t->given - 1, 1), row);
    const dra_tokens given = given_of(g, t);
    const dra_value  at = dra_cast(g, dra_arange(g, t->given), DRA_REAL);
    const dra_value  all = dra_broadcast(g, at, DRA_SHAPE(t->B, t->given));
    const dra_value  top = dra_max(g, dra_tokens_zero_pads(g, &given, all),
                                   (dra_axes){1, {1}, true});
    return dra_reshape(g, dra_read_rows(g, x, dra_cast(g, top, DRA_I32)), row);
}

/* The mean over tokens that are no pads. */
static dra_value mean_tokens(dra_graph *g, const dra_tokens *t, dra_value x)
{
    const dra_axes time = {1, {1}, false};
    if (!t->mark.id || dra_graph_failed(g)) return dra_mean(g, x, time);
    const dra_shape  each = DRA_SHAPE(t->B, t->given);
    const dra_value  ones = dra_broadcast(g, dra_number(g, 1), each);
    const dra_tokens given = given_of(g, t);
    const dra_value  n = dra_sum(g, dra_tokens_zero_pads(g, &given, ones), time);
    const dra_value  sum = dra_sum(g, dra_tokens_zero_pads(g, &given, x), time);
    return dra_div(g, sum, dra_reshape(g, dra_maximum(g, n, dra_number(g, 1)), DRA_SHAPE(t->B, 1)));
}

void dra_head_build(dra_graph *g, const dra_model *m, const dra_module_call *call,
                    dra_model_result *r)
{
    const dra_tokens *t = &call->tokens;
    if (m->head >= 0) r->head = call->param[m->head];
    r->logit_scale = m->config.logit_scale;
    r->sigsoftmax = m->config.head.sigsoftmax;
    if (m->mixture >= 0) r->mixture_W = call->param[m->mixture];
    if (m->mixture >= 0) r->mixture_w = call->param[m->mixture + 1];
    if (m->head_b >= 0) r->head_bias = call->param[m->head_b];
    if (m->config.head.kind == DRA_HEAD_CLASSES && !r->pooled.id)
        r->pooled = (m->config.head.pool == DRA_POOL_LAST ? last_token : mean_tokens)(g, t,
                                                                                      r->hidden);
    if (m->numbers_w < 0) return;
    const dra_value y = dra_linear(g, r->hidden, call->param[m->numbers_w],
                                   call->param[m->numbers_b]);
    r->numbers = dra_reshape(g, y, DRA_SHAPE(t->B, t->given));
}

bool dra_head_is_linear(const dra_model_result *r)
{
    return !r->head_bias.id && !r->sigsoftmax && !r->mixture_w.id;
}

/* W (s hidden) = s (W hidden), with fewer products. */
dra_value dra_head_input(dra_graph *g, const dra_model_result *r, dra_value hidden)
{
    return r->logit_scale > 0 ? dra_affine(g, hidden, r->logit_scale, 0) : hidden;
}

static dra_value map_logits(dra_graph *g, const dra_model_result *r, dra_value hidden)
{
    const dra_value z = dra_linear(g, hidden, r->head, r->head_bias);
    return r->sigsoftmax ? dra_add(g, z, dra_log_sigmoid(g, z)) : z;
}

/* The logits of all softmaxes, hidden (..., C) -> (..., K, C) -> (..., K, V), and their mixture. */
static dra_value mix_softmaxes(dra_graph *g, const dra_model_result *r, dra_value hidden)
{
    const dra_value none = {0}, share = dra_softmax(g, dra_linear(g, hidden, r->mixture_w, none));
    dra_value       each = dra_linear(g, hidden, r->mixture_W, none);
    if (dra_graph_failed(g)) return none;
    dra_shape s = dra_shape_of(g, hidden), column = dra_shape_of(g, share);
    s.dim[s.rank] = s.dim[s.rank - 1], s.dim[s.rank - 1] = column.dim[column.rank - 1];
    s.rank++;
    column.dim[column.rank++] = 1;
    each = dra_softmax(g, map_logits(g, r, dra_reshape(g, each, s)));
    const dra_value p = dra_sum(g, dra_mul(g, each, dra_reshape(g, share, column)),
                                (dra_axes){1, {-2}, false});
    return dra_log(g, dra_maximum(g, p, dra_number(g, 1e-20)));
}

dra_value dra_head_apply(dra_graph *g, const dra_model_result *r, dra_value hidden)
{
    hidden = dra_head_input(g, r, hidden);
    if (!r->head.id) return hidden;
    return r->mixture_w.id ? mix_softmaxes(g, r, hidden) : map_logits(g, r, hidden);
}
