/* The graph of a model: sources, other stacks, layers, heads; and views of it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/shape.h"
#include "graph/op.h"
#include "model/model.h"
#include "model/streams.h"
#include "model/xl.h"

/* ---- what is embedded ------------------------------------------------------------------------ */

/* Rows of the table of positions for the last n given tokens, counted from the first of them. */
static dra_value add_positions(dra_graph *g, const dra_model *m, const dra_module_call *call,
                               int64_t n, dra_value x)
{
    const dra_model_config *c = &m->config;
    const dra_tokens       *t = &call->tokens;
    const double            scale = c->embed_unit ? 0 : c->position.scale;
    if (m->positions < 0 || dra_graph_failed(g)) return x;
    dra_value at = t->place.id ? t->place : t->pos;
    if (n < t->given)
        at = dra_sub(g, dra_slice(g, at, 1, t->given - n, n),
                     dra_integer(g, (int32_t)(t->given - n)));
    dra_value rows = dra_embedding(g, call->param[m->positions], at);
    if (dra_graph_failed(g)) return x;
    if (dra_dtype_of(g, rows) != DRA_REAL) rows = dra_cast(g, rows, DRA_REAL);
    if (c->embed_unit) rows = dra_unit_clamped(g, rows, 1e-12);
    return dra_add(g, x, scale > 0 ? dra_affine(g, rows, scale, 0) : rows);
}

static dra_value build_prepended(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                 bool recompute);

/* The vectors that a text starts with, as one table. */
static dra_value start_vectors(dra_graph *g, const dra_model *m, const dra_module_call *call)
{
    dra_value part[2];
    int       n = 0;
    if (m->memory_tokens >= 0) part[n++] = call->param[m->memory_tokens];
    if (m->cls_token >= 0) part[n++] = call->param[m->cls_token];
    for (int i = 0; n == 2 && i < n && !dra_graph_failed(g); i++)
        if (dra_dtype_of(g, part[i]) != DRA_REAL) part[i] = dra_cast(g, part[i], DRA_REAL);
    return n == 2 ? dra_concat(g, 2, part, 0) : part[0];
}

static dra_value embed_tokens(dra_graph *g, const dra_model *m, const dra_module_call *call,
                              dra_value ids, bool recompute)
{
    const dra_model_config *c = &m->config;
    const dra_value first = m->prepend ? build_prepended(g, m, call, recompute) : (dra_value){0};
    const int64_t   n = call->tokens.given -
                      (m->prepend ? dra_source_length(&m->prepend->config) : 0);
    if (n < 1) {
        dra_build_fail(g, "model", DRA_ERR_VALUE, "%lld tokens, fewer than are prepended",
                       (long long)call->tokens.given);
        return (dra_value){0};
    }
    dra_value x = dra_source_build(g, m, call, n, ids);
    x = add_positions(g, m, call, n, x);
    if (c->embed_norm) x = dra_norm_build(g, &m->embed_norm, call->param, x, c->norm_eps);
    if (first.id) x = dra_concat(g, 2, (const dra_value[]){first, x}, 1);
    x = dra_module_dropout_given(g, call, "embed.dropout", c->embed_dropout, x);
    if (m->project_w >= 0)
        x = dra_linear(g, x, call->param[m->project_w], call->param[m->project_b]);
    if (!dra_model_starts(c)) return x;
    return dra_tokens_insert_prefix(g, &call->tokens, start_vectors(g, m, call), x);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* A layer: the sublayers that share its number. */
dra_layer_result dra_layer_build(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                 int first, dra_value x, dra_channels *channels,
                                 dra_value *state_out)
{
    const dra_stack *s = &m->stack;
    dra_layer_result all = {.y = x};
    dra_value        balance = {0};
    for (int i = first; i < dra_stack_layer_end(s, first); i++) {
        const dra_stack_step *step = &s->step[i];
        dra_module_call       own = *call;
        own.param = call->param + s->entry[step->entry].params;
        own.state = call->state + step->states;
        const dra_sublayer_result r = dra_sublayer_build(g, dra_stack_at(s, i), &own, all.y,
                                                         channels, state_out + step->states);
        all.y = all.hidden[i - first] = r.y;
        all.add[i - first] = r.branch;
        const dra_sublayer_kind kind = dra_sublayer_config_of(dra_stack_at(s, i))->kind;
        if (kind == DRA_SUBLAYER_CROSS) all.cross = r.mixer;
        if (kind == DRA_SUBLAYER_FF && r.mixer.aux[DRA_AUX_BALANCE].id)
            balance = r.mixer.aux[DRA_AUX_BALANCE];
        if (kind != DRA_SUBLAYER_MIXER && all.branch.id) continue;
        all.branch = r.branch;
        all.mixer = r.mixer;
    }
    all.mixer.aux[DRA_AUX_BALANCE] = balance;
    return all;
}

/* Maps of attention over the context as outputs. */
static void put_out_cross(dra_graph *g, const dra_view *show, int layer, const dra_mixer_result *r)
{
    char name[64];
    for (int k = 0; k < DRA_SHOW_COUNT; k++) {
        if (!r->map[0][k].id || !(k == DRA_SHOW_SCORES ? show->scores : show->maps)) continue;
        snprintf(name, sizeof name, "layers.%d.cross.%s", layer, dra_show_name(k));
        dra_output(g, name, r->map[0][k]);
    }
}

/* Adds what a layer shows: sums of add-ons, maps as outputs. */
static void collect_shown(dra_graph *g, const dra_view *show, int layer, const dra_mixer_result *r,
                          dra_value *sum, int *count)
{
    const bool two = r->map[1][DRA_SHOW_ATTENTION].id || r->map[1][DRA_SHOW_WRITE].id;
    char       name[64];
    for (int k = 0; k < DRA_AUX_COUNT; k++) {
        if (!r->aux[k].id) continue;
        sum[k] = count[k]++ ? dra_add(g, sum[k], r->aux[k]) : r->aux[k];
    }
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < DRA_SHOW_COUNT; k++) {
            if (!r->map[i][k].id || !(k == DRA_SHOW_SCORES ? show->scores : show->maps)) continue;
            snprintf(name, sizeof name, "layers.%d.%s%s", layer,
                     !two ? ""
                     : i  ? "b."
                          : "a.",
                     dra_show_name(k));
            dra_output(g, name, r->map[i][k]);
        }
}

/* As NAME.i, counted as reading has it in layer l. */
static void put_out(dra_graph *g, const dra_model *m, const dra_tokens *t, const char *what, int i,
                    int l, dra_value x)
{
    const double scale = dra_model_rescale(&m->config, l);
    char         name[32];
    snprintf(name, sizeof name, "%s.%d", what, i);
    x = dra_tokens_drop_prefix(g, t, dra_streams_close(g, x));
    dra_output(g, name, scale == 1 ? x : dra_affine(g, x, 1 / scale, 0));
}

/* The stream after each step of a layer, and what it adds. After the last step the stream is that
 * of the next layer. */
static void put_out_steps(dra_graph *g, const dra_model *m, const dra_tokens *t,
                          const dra_view *show, int first, const dra_layer_result *r)
{
    const dra_stack *s = &m->stack;
    const int        end = dra_stack_layer_end(s, first), l = s->step[first].layer;
    for (int i = first; i < end; i++) {
        if (show->adds) put_out(g, m, t, "add", i, l, r->add[i - first]);
        if (show->hiddens)
            put_out(g, m, t, "hidden", i + 1, i + 1 == end ? l + 1 : l, r->hidden[i - first]);
    }
}

/* Rows of state i, which holds items, that a query may meet. */
static int64_t items_rows(dra_graph *g, const dra_module_call *call, int i, int64_t limit)
{
    const dra_token_items *at = dra_tokens_items(&call->tokens, limit);
    if (at && at->pages.id) return dra_shape_of(g, at->pages).dim[1] * DRA_ATTEND_PAGE;
    return dra_shape_of(g, call->state[i]).dim[1];
}

/* Rows of keys that a query may meet in this call. */
static int64_t key_rows(dra_graph *g, const dra_model *m, const dra_module_call *call)
{
    int64_t rows = dra_imax(call->tokens.T,
                            call->tokens.segments.memory + call->tokens.segments.length);
    for (int i = 0; i < dra_specs_count(m->state) && !call->tokens.fresh; i++)
        if (dra_specs_at(m->state, i)->items && !dra_graph_failed(g))
            rows = dra_imax(rows, items_rows(g, call, i, dra_specs_at(m->state, i)->limit));
    return rows;
}

/* Of a U-Net: layer l of the latter half reads what came into layer L-1-l, too. kept: what came
 * into each. */
static dra_value join_skip(dra_graph *g, const dra_model *m, const dra_module_call *call, int64_t l,
                           dra_value *kept, dra_value x)
{
    const int64_t L = m->config.depth, first = (L + 1) / 2;
    if (!m->config.unet) return x;
    kept[l] = x;
    if (l < first) return x;
    const dra_value both[] = {kept[L - 1 - l], x};
    return dra_linear(g, dra_concat(g, 2, both, -1), call->param[m->skips + l - first],
                      (dra_value){0});
}

/* What is added to all that sublayers read: x through a map, or the condition, as far as a gate
 * made of x lets it in. */
static dra_value build_reinjection(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                   dra_value x, dra_value condition)
{
    const dra_value none = {0};
    dra_value       more = none;
    if (m->reinject >= 0) more = dra_linear(g, x, call->param[m->reinject], none);
    if (m->config.condition.add)
        more = dra_reshape(g, condition, DRA_SHAPE(call->tokens.B, 1, m->config.dim));
    if (m->reinject_gate < 0) return more;
    return dra_mul(g, more, dra_sigmoid(g, dra_linear(g, x, call->param[m->reinject_gate], none)));
}

/* cap tanh(x / cap) */
static dra_value cap_logits(dra_graph *g, double cap, dra_value x)
{
    if (!(cap > 0)) return x;
    return dra_affine(g, dra_tanh(g, dra_affine(g, x, 1 / cap, 0)), cap, 0);
}

/* The norm before the head; of two streams the second is normalised and added. */
static dra_value final_norm(dra_graph *g, const dra_model *m, const dra_module_call *call,
                            dra_value x, dra_value dual, dra_value condition)
{
    const dra_model_config *c = &m->config;
    const double            scale = call->learning ? 1 : dra_model_rescale(c, dra_model_layers(m));
    const double            eps = c->final_eps * scale * scale;
    if (!m->has_norm) return x;
    const dra_value y = dra_norm_build(g, &m->norm, call->param, dual.id ? dual : x, eps);
    const dra_value normed = dra_norm_adapt(g, &m->norm, call->param, y, condition);
    return dual.id ? dra_add(g, x, normed) : normed;
}

/* What sublayers share, before any of them has run. */
static void open_channels(dra_graph *g, const dra_model *m, const dra_module_call *call,
                          dra_value x, dra_value context, dra_value condition, dra_channels *out)
{
    *out = (dra_channels){0};
    if (m->blend >= 0) out->value[DRA_CHANNEL_BLEND] = call->param[m->blend];
    out->value[DRA_CHANNEL_CONTEXT] = context;
    out->value[DRA_CHANNEL_CONDITION] = condition;
    dra_positions_build(g, &m->distance, &m->config, call->param, key_rows(g, m, call), out);
    out->value[DRA_CHANNEL_INJECT] = build_reinjection(g, m, call, x, condition);
}

/* What layers read the next time around: what was embedded, and a map of what they put out. */
static dra_value recycle_stream(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                dra_value embedded, dra_value x, dra_value condition)
{
    const dra_value none = {0}, capped = cap_logits(g, m->config.output_softcap, x);
    const dra_value put_out = final_norm(g, m, call, capped, none, condition);
    return dra_add(g, embedded,
                   dra_linear(g, dra_stop_gradient(g, put_out), call->param[m->recycle], none));
}

/* `room`: for all states, then for what comes into each layer. */
static dra_value build_layers(dra_graph *g, const dra_model *m, const dra_module_call *outer,
                              dra_value x, dra_value context, dra_value condition, bool recompute,
                              const dra_view *show, dra_value *room, dra_value *state_out,
                              dra_model_result *all)
{
    const dra_stack       *s = &m->stack;
    char                   name[32];
    int                    count[DRA_AUX_COUNT] = {0};
    const int              once = s->n_steps / (int)dra_imax(1, m->config.recycle);
    const dra_value        embedded = x;
    dra_channels           channels = {0};
    dra_module_call        own = *outer;
    const dra_module_call *call = &own;
    own.state = dra_xl_turn_all(g, m, outer, room);
    open_channels(g, m, call, x, context, condition, &channels);
    for (int i = 0; i < s->n_steps; i = dra_stack_layer_end(s, i)) {
        if (i && i % once == 0) {
            x = recycle_stream(g, m, call, embedded, x, condition);
            open_channels(g, m, call, x, context, condition, &channels);
        }
        const int l = s->step[i].layer;
        snprintf(name, sizeof name, "layers.%d", l);
        dra_scope_push(g, name);
        x = join_skip(g, m, call, l, room + dra_specs_count(m->state), x);
        const dra_layer_result r = (recompute ? dra_layer_recompute : dra_layer_build)(
            g, m, call, i, x, &channels, state_out);
        collect_shown(g, show, l, &r.mixer, all->aux, count);
        put_out_cross(g, show, l, &r.cross);
        x = r.y;
        dra_scope_pop(g);
        put_out_steps(g, m, &call->tokens, show, i, &r);
        if (show->branches) put_out(g, m, &call->tokens, "branch", l, l, r.branch);
        if (show->streams) put_out(g, m, &call->tokens, "stream", l + 1, l + 1, x);
    }
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (count[k] > 1) all->aux[k] = dra_affine(g, all->aux[k], 1.0 / count[k], 0);
    all->dual = channels.value[DRA_CHANNEL_DUAL];
    return x;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static dra_model_result build_stack(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                    dra_value ids, bool recompute, const dra_view *show,
                                    dra_value *state_out);

/* What another stack, an encoder, makes of the text of `call`, with parameters of its own. */
static dra_value build_other(dra_graph *g, const dra_model *other, const dra_module_call *call,
                             const dra_value *param, bool recompute)
{
    const size_t     n = (size_t)dra_specs_count(other->state);
    dra_value       *states = calloc(2 * n + 1, sizeof *states);
    dra_module_call  own = *call;
    dra_model_result r = {0};
    own.param = param;
    own.state = states;
    dra_scope_push(g, other->config.name);
    if (states)
        r = build_stack(g, other, &own, (dra_value){0}, recompute, &(dra_view){0}, states + n);
    else
        dra_build_fail(g, "model", DRA_ERR_MEMORY, "out of memory");
    dra_scope_pop(g);
    free(states);
    return r.hidden;
}

static dra_value same_for_all(dra_graph *g, int64_t B, dra_value row)
{
    return dra_broadcast(g, row, DRA_SHAPE(B, dra_shape_of(g, row).dim[0]));
}

/* A text of n tokens without marks, after M start vectors. */
static dra_tokens plain_text(dra_graph *g, int64_t B, int64_t n, int64_t M)
{
    const int64_t   T = M + n;
    const dra_value all = same_for_all(g, B, dra_arange(g, T)), own = dra_arange(g, n);
    const dra_value none = dra_broadcast(g, dra_integer(g, 0), DRA_SHAPE(B, T));
    dra_tokens      t = {.B = B, .T = T, .fresh = true, .pos = all, .start = M, .given = n};
    t.whole = true;
    t.lo = none;
    t.hi = dra_add(g, none, dra_integer(g, (int32_t)T));
    t.place = same_for_all(g, B, own);
    if (!M) return t;
    t.take = all;
    t.give = same_for_all(g, B, dra_add(g, own, dra_integer(g, (int32_t)M)));
    return t;
}

static dra_value build_prepended(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                 bool recompute)
{
    const dra_model_config *c = &m->prepend->config;
    dra_module_call         own = *call;
    if (dra_graph_failed(g)) return (dra_value){0};
    own.tokens = plain_text(g, call->tokens.B, dra_source_length(c), c->memory_tokens);
    return build_other(g, m->prepend, &own, call->param + m->prepend_params, recompute);
}

static dra_model_result build_stack(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                    dra_value ids, bool recompute, const dra_view *show,
                                    dra_value *state_out)
{
    dra_model_result all = {0};
    dra_value        context = {0};
    if (m->context && call->context)
        context = dra_context_take(
            g, call,
            build_other(g, m->context, call->context, call->param + m->context_params, recompute));
    const dra_value condition = dra_condition_build(g, m, call);
    dra_value       x = embed_tokens(g, m, call, ids, recompute);
    if (show->streams) put_out(g, m, &call->tokens, "stream", 0, 0, x);
    if (show->hiddens) put_out(g, m, &call->tokens, "hidden", 0, 0, x);
    if (m->streams >= 0) x = dra_streams_open(g, call->param[m->streams], x);
    const size_t inputs = m->config.unet ? (size_t)m->config.depth : 0;
    dra_value   *room = calloc((size_t)dra_specs_count(m->state) + inputs + 1, sizeof *room);
    if (!room) {
        dra_build_fail(g, "model", DRA_ERR_MEMORY, "out of memory");
        return all;
    }
    x = build_layers(g, m, call, x, context, condition, recompute, show, room, state_out, &all);
    free(room);
    x = dra_streams_close(g, cap_logits(g, m->config.output_softcap, x));
    if (m->cls_token >= 0)
        all.pooled = final_norm(g, m, call, dra_head_cls(g, m, &call->tokens, x),
                                dra_head_cls(g, m, &call->tokens, all.dual), condition);
    if (all.dual.id) all.dual = dra_tokens_drop_prefix(g, &call->tokens, all.dual);
    all.hidden = final_norm(g, m, call, dra_tokens_drop_prefix(g, &call->tokens, x), all.dual,
                            condition);
    dra_head_build(g, m, call, &all);
    return all;
}

dra_model_result dra_model_build(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                 dra_value ids, bool recompute, dra_value *state_out)
{
    return build_stack(g, m, call, ids, recompute, &(dra_view){0}, state_out);
}

/* ---- views ----------------------------------------------------------------------------------- */

/* What the head reads of the tokens that are asked for, (B, n, C). */
static dra_value chosen_tokens(dra_graph *g, const dra_view *v, const dra_tokens *t,
                               dra_value hidden)
{
    if (v->picks > 0)
        return dra_read_rows(g, hidden, dra_input(g, "picks", DRA_I32, DRA_SHAPE(t->B, v->picks)));
    const int64_t n = v->keep > 0 ? dra_imin(v->keep, t->given) : t->given;
    return dra_slice(g, hidden, 1, t->given - n, n);
}

static void put_out_heads(dra_graph *g, const dra_model *m, const dra_model_result *r)
{
    const dra_head_config *h = &m->config.head;
    if (h->kind == DRA_HEAD_CLASSES)
        dra_output(g, h->dim ? "logits" : "out", dra_head_apply(g, r, r->pooled));
    if (h->kind == DRA_HEAD_VECTORS) dra_output(g, "out", dra_head_apply(g, r, r->hidden));
    if (r->numbers.id) dra_output(g, "numbers", r->numbers);
}

static void build_view(dra_graph *g, const void *self, const dra_module_call *call,
                       dra_value *state_out)
{
    const dra_view        *v = self;
    const dra_tokens      *t = &call->tokens;
    const dra_shape        each = DRA_SHAPE(t->B, t->given);
    const dra_shape        wide = DRA_SHAPE(t->B, t->given, dra_embed_width(&v->model->config));
    const dra_value        in = v->embedded ? dra_input(g, "x", DRA_REAL, wide) : (dra_value){0};
    const dra_model_result r = build_stack(g, v->model, call, in, false, v, state_out);
    if (v->hidden) dra_output(g, "hidden", r.hidden);
    if (v->losses) {
        const dra_value                targets = dra_input(g, "targets", DRA_I32, each);
        const dra_value                logits = dra_head_apply(g, &r, r.hidden);
        const dra_cross_entropy_config c = {.ignore = -1, .use_ignore = true};
        dra_output(g, "losses", dra_token_losses(g, logits, targets, &c));
    }
    if (v->logits) dra_output(g, "logits", dra_head_apply(g, &r, chosen_tokens(g, v, t, r.hidden)));
    if (v->outs) put_out_heads(g, v->model, &r);
}

dra_module dra_view_module(const dra_view *view)
{
    const dra_model *m = view->model;
    return (dra_module){m->params,
                        m->state,
                        build_view,
                        view,
                        .whole = m->config.visible == DRA_VISIBLE_BIDIRECTIONAL,
                        .prefix = m->config.visible == DRA_VISIBLE_PREFIX,
                        .start = dra_model_starts(&m->config),
                        .context = m->context != NULL,
                        .context_start = m->context ? m->context->config.memory_tokens : 0,
                        .segment = m->config.xl.memory ? m->config.context : 0,
                        .memory = m->config.xl.memory,
                        .keep = view->keep,
                        .picks = view->picks};
}
