/* A model: its config completed and checked, its tensors declared, its graph built. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "graph/op.h"
#include "model/model.h"
#include "model/xl.h"

/* ---- config ---------------------------------------------------------------------------------- */

static dra_status check_size(const char *name, int64_t n, dra_error *err)
{
    if (n >= 1 && n <= 1 << 20) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "model: %s is %lld, expected 1 to 1048576", name,
                    (long long)n);
}

static dra_status check(const dra_model_config *c, dra_error *err)
{
    dra_status st = check_size("vocab", c->vocab, err);
    if (st == DRA_OK) st = check_size("dim", c->dim, err);
    if (st == DRA_OK) st = check_size("depth", c->depth, err);
    if (st == DRA_OK) st = check_size("heads", c->heads, err);
    if (st == DRA_OK) st = check_size("context", c->context, err);
    if (st == DRA_OK) st = check_size("ff.dim", c->ff.dim, err);
    if (st != DRA_OK) return st;
    if (c->mixers < 0 || c->mixers > DRA_MIXERS_MOST)
        return dra_fail(err, DRA_ERR_VALUE, "model: %d mixers, expected 1 to %d", c->mixers,
                        DRA_MIXERS_MOST);
    if (c->mixers > c->depth && !c->layout[0])
        return dra_fail(err, DRA_ERR_VALUE, "model: %d mixers for %lld layers", c->mixers,
                        (long long)c->depth);
    if (c->ff.kind == DRA_FF_MIX && c->bias)
        return dra_fail(err, DRA_ERR_VALUE, "model: ff.kind mix has no bias");
    if (c->tied == DRA_ON && c->embed_dim && c->embed_dim != c->dim)
        return dra_fail(err, DRA_ERR_VALUE, "model: tied needs embed_dim %lld to be dim %lld",
                        (long long)c->embed_dim, (long long)c->dim);
    if (c->embed_norm_kind && !c->embed_norm)
        return dra_fail(err, DRA_ERR_VALUE, "model: embed_norm_kind without embed_norm");
    st = dra_xl_check(c, err);
    return st == DRA_OK ? dra_positions_check(c, err) : st;
}

void dra_model_config_complete(dra_model_config *c)
{
    if (!c->mixers) c->mixers = 1;
    if (!c->heads) c->heads = 1;
    if (!c->context) c->context = 256;
    if (c->tied == DRA_DEFAULT) c->tied = DRA_ON;
    if (!(c->norm_eps > 0)) c->norm_eps = 1e-5;
    if (!(c->final_eps > 0)) c->final_eps = c->norm_eps;
    if (!c->ff.dim)
        c->ff.dim = c->ff.kind == DRA_FF_SWIGLU ? (8 * c->dim / 3 + 63) / 64 * 64 : 4 * c->dim;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int64_t embed_width(const dra_model_config *c)
{
    return c->embed_dim ? c->embed_dim : c->dim;
}

static int add(dra_model *m, const dra_spec *spec)
{
    const int at = dra_specs_count(m->params);
    dra_specs_add(m->params, NULL, spec);
    return at;
}

static int add_table(dra_model *m, const char *name, int64_t rows, int64_t width, double std)
{
    return add(m, &(dra_spec){name, DRA_SHAPE(rows, width), DRA_FILL_NORMAL, .number = std,
                              .product = true});
}

/* A blend by schedule: how far it is belongs to the model, so it is a parameter, not trained. */
static int add_blend(dra_model *m)
{
    for (int i = 0; i < m->config.mixers; i++) {
        const dra_mixer_config *x = &m->config.mixer[i];
        const int               at = dra_specs_count(m->params);
        if (x->blend != DRA_BLEND_INPUT) continue;
        dra_specs_add(
            m->params, NULL,
            &(dra_spec){"blend", (dra_shape){0},
                        .number = x->blend_value > 0 || x->blend_given ? x->blend_value : 0.7,
                        .frozen = true});
        return at;
    }
    return -1;
}

/* How tables start: rows of length 1, or as x-transformers has them. */
static double table_std(const dra_model_config *c, bool tokens)
{
    if (c->embed_unit) return 1e-5;
    if (c->init == DRA_INIT_UNIFORM) return tokens ? sqrt(2 / (double)embed_width(c)) : 1;
    return 1 / sqrt((double)embed_width(c));
}

/* From the width of the embedding to that of the stream. */
static void declare_project(dra_model *m)
{
    const dra_model_config *c = &m->config;
    const int64_t           W = embed_width(c);
    const double            within = 1 / sqrt((double)W);
    m->project_w = m->project_b = -1;
    if (W == c->dim) return;
    m->project_w = add(m, &(dra_spec){"embed_project_w", DRA_SHAPE(c->dim, W), DRA_FILL_UNIFORM,
                                      .number = within, .product = true});
    m->project_b = add(
        m, &(dra_spec){"embed_project_b", DRA_SHAPE(c->dim), DRA_FILL_UNIFORM, .number = within});
}

static dra_norm declare_embed_norm(dra_model *m)
{
    const dra_model_config *c = &m->config;
    const dra_norm_config   layer = {.kind = DRA_NORM_LAYER, .bias = DRA_OFF, .eps = c->norm_eps};
    const dra_norm_config   same = dra_model_norm(c);
    const bool              own = c->embed_norm_kind == DRA_EMBED_NORM_LAYER;
    return dra_norm_declare(own ? &layer : &same, embed_width(c), "embed_", m->params);
}

static void declare(dra_model *m)
{
    const dra_model_config *c = &m->config;
    const dra_norm_config   norm = dra_model_norm(c);
    const bool              uniform = c->init == DRA_INIT_UNIFORM;
    const double            head = uniform ? 1 / sqrt((double)c->dim) : 0;
    m->embedding = add_table(m, "embedding", c->vocab, embed_width(c), table_std(c, true));
    m->positions = c->positions == DRA_POSITIONS_LEARNED
                       ? add_table(m, "positions", c->context, embed_width(c), table_std(c, false))
                       : -1;
    if (c->embed_norm) m->embed_norm = declare_embed_norm(m);
    m->blend = add_blend(m);
    declare_project(m);
    m->memory_tokens = c->memory_tokens ? add_table(m, "memory_tokens", c->memory_tokens, c->dim, 1)
                                        : -1;
    dra_positions_declare(&m->distance, c, m->params);
    dra_stack_declare(&m->stack, m->params, m->state);
    m->has_norm = c->block.norm != DRA_PLACE_POST;
    if (m->has_norm) m->norm = dra_norm_declare(&norm, c->dim, NULL, m->params);
    m->head = m->embedding;
    if (c->tied == DRA_OFF)
        m->head = add(m, &(dra_spec){"head", DRA_SHAPE(c->vocab, c->dim),
                                     uniform ? DRA_FILL_UNIFORM : DRA_FILL_NORMAL,
                                     .number = uniform ? head : 1 / sqrt((double)c->dim),
                                     .product = true});
}

/* ---- making one ------------------------------------------------------------------------------ */

dra_status dra_model_create(const dra_model_config *config, dra_model **out, dra_error *err)
{
    dra_model *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return dra_fail(err, DRA_ERR_MEMORY, "model: out of memory");
    m->config = *config;
    dra_model_config_complete(&m->config);
    dra_status st = check(&m->config, err);
    if (st == DRA_OK) st = dra_specs_create(&m->params, err);
    if (st == DRA_OK) st = dra_specs_create(&m->state, err);
    if (st == DRA_OK) st = dra_stack_open(&m->stack, &m->config, err);
    if (st == DRA_OK) st = dra_xl_check_stack(m, err);
    if (st == DRA_OK) {
        declare(m);
        st = dra_specs_error(m->params, err);
    }
    if (st == DRA_OK) st = dra_specs_error(m->state, err);
    if (st == DRA_OK)
        *out = m;
    else
        dra_model_destroy(m);
    return st;
}

void dra_model_destroy(dra_model *m)
{
    if (!m) return;
    dra_stack_close(&m->stack);
    dra_specs_destroy(m->params);
    dra_specs_destroy(m->state);
    free(m);
}

const dra_model_config *dra_model_config_of(const dra_model *m) { return &m->config; }
const dra_specs        *dra_model_params(const dra_model *m) { return m->params; }
const dra_specs        *dra_model_state(const dra_model *m) { return m->state; }

/* The step of attention number i; -1: there are fewer. */
static int attention_step(const dra_model *m, int64_t i)
{
    for (int k = 0; k < m->stack.n_steps; k++)
        if (dra_sublayer_mixer(dra_stack_at(&m->stack, k)) && i-- == 0) return k;
    return -1;
}

const dra_sublayer *dra_model_attention(const dra_model *m, int64_t i)
{
    const int k = attention_step(m, i);
    return k < 0 ? NULL : dra_stack_at(&m->stack, k);
}

const dra_mixer *dra_model_mixer(const dra_model *m, int64_t i)
{
    const dra_sublayer *s = dra_model_attention(m, i);
    return s ? dra_sublayer_mixer(s) : NULL;
}

int64_t dra_model_attention_layer(const dra_model *m, int64_t i)
{
    const int k = attention_step(m, i);
    return k < 0 ? -1 : m->stack.step[k].layer;
}

int64_t dra_model_attention_params(const dra_model *m, int64_t i)
{
    const int k = attention_step(m, i);
    return k < 0 ? -1 : m->stack.entry[m->stack.step[k].entry].layer;
}

int64_t dra_model_attentions(const dra_model *m)
{
    int64_t n = 0;
    for (int k = 0; k < m->stack.n_steps; k++)
        n += dra_sublayer_mixer(dra_stack_at(&m->stack, k)) != NULL;
    return n;
}

int64_t dra_model_sublayers(const dra_model *m) { return m->stack.n_steps; }

int64_t dra_model_layers(const dra_model *m)
{
    return m->stack.step[m->stack.n_steps - 1].layer + 1;
}

bool dra_model_drops(const dra_model *m)
{
    const dra_model_config *c = &m->config;
    bool                    drops = c->block.drop > 0 || c->ff.dropout > 0;
    for (int i = 0; i < c->n_drops; i++) drops = drops || c->drops[i] > 0;
    return drops || c->dropout > 0 || c->attention_dropout > 0 || c->embed_dropout > 0;
}

int64_t dra_model_param_count(const dra_model *m)
{
    int64_t n = 0;
    for (int i = 0; i < dra_specs_count(m->params); i++)
        n += dra_shape_count(&dra_specs_at(m->params, i)->shape);
    return n;
}

uint64_t dra_model_fingerprint(const dra_model *m)
{
    uint64_t h = dra_specs_fingerprint(m->params) * 0x9e3779b97f4a7c15u ^
                 dra_specs_fingerprint(m->state);
    const size_t n = dra_model_config_text(&m->config, NULL, 0);
    char        *text = malloc(n + 1);
    if (text) dra_model_config_text(&m->config, text, n + 1);
    for (size_t i = 0; text && i < n; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    free(text);
    return h;
}

/* ---- the graph ------------------------------------------------------------------------------- */

/* Rows of a table, real however it is stored. */
static dra_value look_up(dra_graph *g, const dra_model_config *c, dra_value table, dra_value ids)
{
    dra_value x = dra_embedding(g, table, ids);
    if (dra_dtype_of(g, x) != DRA_REAL) x = dra_cast(g, x, DRA_REAL);
    return c->embed_unit ? dra_unit_clamped(g, x, 1e-12) : x;
}

static dra_value add_positions(dra_graph *g, const dra_model *m, const dra_module_call *call,
                               dra_value x)
{
    const dra_model_config *c = &m->config;
    const double            scale = c->embed_unit ? 0 : c->position.scale;
    if (m->positions < 0) return x;
    const dra_tokens *t = &call->tokens;
    const dra_value   rows = look_up(g, c, call->param[m->positions],
                                   t->place.id ? t->place : t->pos);
    return dra_add(g, x, scale > 0 ? dra_affine(g, rows, scale, 0) : rows);
}

static dra_value embed(dra_graph *g, const dra_model *m, const dra_module_call *call, dra_value ids)
{
    const dra_model_config *c = &m->config;
    const bool              embedded = !dra_graph_failed(g) && dra_dtype_of(g, ids) == DRA_REAL;
    dra_value               x = embedded ? ids : look_up(g, c, call->param[m->embedding], ids);
    x = add_positions(g, m, call, x);
    if (c->embed_norm) x = dra_norm_build(g, &m->embed_norm, call->param, x, c->norm_eps);
    x = dra_module_dropout_given(g, call, "embed.dropout", c->embed_dropout, x);
    if (m->project_w >= 0)
        x = dra_linear(g, x, call->param[m->project_w], call->param[m->project_b]);
    if (m->memory_tokens < 0) return x;
    return dra_tokens_take(g, &call->tokens, call->param[m->memory_tokens], x);
}

/* A layer: the sublayers that share its number. */
dra_layer_result dra_layer_build(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                 int first, dra_value x, dra_channels *channels,
                                 dra_value *state_out)
{
    const dra_stack *s = &m->stack;
    dra_layer_result all = {.y = x};
    for (int i = first; i < dra_stack_layer_end(s, first); i++) {
        const dra_stack_step *step = &s->step[i];
        dra_module_call       own = *call;
        own.param = call->param + s->entry[step->entry].params;
        own.state = call->state + step->states;
        const dra_sublayer_result r = dra_sublayer_build(g, dra_stack_at(s, i), &own, all.y,
                                                         channels, state_out + step->states);
        all.y = all.hidden[i - first] = r.y;
        all.add[i - first] = r.branch;
        if (!dra_sublayer_mixer(dra_stack_at(s, i)) && all.branch.id) continue;
        all.branch = r.branch;
        all.mixer = r.mixer;
    }
    return all;
}

/* Adds what a layer shows: sums of add-ons, maps as outputs. */
static void collect(dra_graph *g, const dra_view *show, int layer, const dra_mixer_result *r,
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
    x = dra_tokens_give(g, t, x);
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

/* Rows of keys that a query may meet in this call. */
static int64_t key_rows(dra_graph *g, const dra_model *m, const dra_module_call *call)
{
    int64_t rows = dra_imax(call->tokens.T,
                            call->tokens.pieces.memory + call->tokens.pieces.length);
    for (int i = 0; i < dra_specs_count(m->state) && !call->tokens.fresh; i++)
        if (dra_specs_at(m->state, i)->items && !dra_graph_failed(g))
            rows = dra_imax(rows, dra_shape_of(g, call->state[i]).dim[1]);
    return rows;
}

/* `room`: for all states. */
static dra_value build_layers(dra_graph *g, const dra_model *m, const dra_module_call *outer,
                              dra_value x, bool recompute, const dra_view *show, dra_value *room,
                              dra_value *state_out, dra_model_result *all)
{
    const dra_stack       *s = &m->stack;
    char                   name[32];
    int                    count[DRA_AUX_COUNT] = {0};
    dra_channels           channels = {0};
    dra_module_call        own = *outer;
    const dra_module_call *call = &own;
    own.state = dra_xl_turn_all(g, m, outer, room);
    if (m->blend >= 0) channels.value[DRA_CHANNEL_BLEND] = call->param[m->blend];
    dra_positions_build(g, &m->distance, &m->config, call->param, key_rows(g, m, call), &channels);
    for (int i = 0; i < s->n_steps; i = dra_stack_layer_end(s, i)) {
        const int l = s->step[i].layer;
        snprintf(name, sizeof name, "layers.%d", l);
        dra_scope_push(g, name);
        const dra_layer_result r = (recompute ? dra_layer_recompute : dra_layer_build)(
            g, m, call, i, x, &channels, state_out);
        collect(g, show, l, &r.mixer, all->aux, count);
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

/* The norm before the head; of two streams the second is normalised and added. */
static dra_value final_norm(dra_graph *g, const dra_model *m, const dra_module_call *call,
                            dra_value x, dra_value dual)
{
    const dra_model_config *c = &m->config;
    const double            scale = call->learning ? 1 : dra_model_rescale(c, dra_model_layers(m));
    const double            eps = c->final_eps * scale * scale;
    if (!m->has_norm) return x;
    if (!dual.id) return dra_norm_build(g, &m->norm, call->param, x, eps);
    return dra_add(g, x, dra_norm_build(g, &m->norm, call->param, dual, eps));
}

static dra_model_result build(dra_graph *g, const dra_model *m, const dra_module_call *call,
                              dra_value ids, bool recompute, const dra_view *show,
                              dra_value *state_out)
{
    dra_value        x = embed(g, m, call, ids);
    dra_model_result all = {0};
    if (show->streams) put_out(g, m, &call->tokens, "stream", 0, 0, x);
    if (show->hiddens) put_out(g, m, &call->tokens, "hidden", 0, 0, x);
    dra_value *room = calloc((size_t)dra_specs_count(m->state) + 1, sizeof *room);
    if (!room) dra_build_fail(g, "model", DRA_ERR_MEMORY, "out of memory");
    if (!room) return all;
    x = build_layers(g, m, call, x, recompute, show, room, state_out, &all);
    free(room);
    if (all.dual.id) all.dual = dra_tokens_give(g, &call->tokens, all.dual);
    all.hidden = final_norm(g, m, call, dra_tokens_give(g, &call->tokens, x), all.dual);
    all.head = call->param[m->head];
    return all;
}

dra_model_result dra_model_build(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                 dra_value ids, bool recompute, dra_value *state_out)
{
    return build(g, m, call, ids, recompute, &(dra_view){0}, state_out);
}

/* ---- views ----------------------------------------------------------------------------------- */

/* What the head reads of the tokens that are asked for, (B, n, C). */
static dra_value chosen(dra_graph *g, const dra_view *v, const dra_tokens *t, dra_value hidden)
{
    if (v->picks > 0)
        return dra_read_rows(g, hidden, dra_input(g, "picks", DRA_I32, DRA_SHAPE(t->B, v->picks)));
    const int64_t n = v->keep > 0 ? dra_imin(v->keep, t->given) : t->given;
    return dra_slice(g, hidden, 1, t->given - n, n);
}

static void build_view(dra_graph *g, const void *self, const dra_module_call *call,
                       dra_value *state_out)
{
    const dra_view        *v = self;
    const dra_tokens      *t = &call->tokens;
    const dra_shape        each = DRA_SHAPE(t->B, t->given);
    const dra_shape        wide = DRA_SHAPE(t->B, t->given, embed_width(&v->model->config));
    const dra_value        in = v->embedded ? dra_input(g, "x", DRA_REAL, wide)
                                            : dra_input(g, "ids", DRA_I32, each);
    const dra_value        none = {0};
    const dra_model_result r = build(g, v->model, call, in, false, v, state_out);
    if (v->hidden) dra_output(g, "hidden", r.hidden);
    if (v->losses) {
        const dra_value                targets = dra_input(g, "targets", DRA_I32, each);
        const dra_value                logits = dra_linear(g, r.hidden, r.head, none);
        const dra_cross_entropy_config c = {.ignore = -1, .use_ignore = true};
        dra_output(g, "losses", dra_token_losses(g, logits, targets, &c));
    }
    if (v->logits) dra_output(g, "logits", dra_linear(g, chosen(g, v, t, r.hidden), r.head, none));
}

dra_module dra_view_module(const dra_view *view)
{
    const dra_model *m = view->model;
    return (dra_module){m->params,
                        m->state,
                        build_view,
                        view,
                        .whole = m->config.visible == DRA_VISIBLE_WHOLE,
                        .start = m->config.memory_tokens,
                        .piece = m->config.xl.memory ? m->config.context : 0,
                        .memory = m->config.xl.memory,
                        .keep = view->keep,
                        .picks = view->picks};
}
