/* A model: its config completed and checked, its tensors declared, its graph built. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "graph/op.h"
#include "model/model.h"

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
    if (c->mixers > c->depth)
        return dra_fail(err, DRA_ERR_VALUE, "model: %d mixers for %lld layers", c->mixers,
                        (long long)c->depth);
    if (c->ff.kind == DRA_FF_MIX && c->bias)
        return dra_fail(err, DRA_ERR_VALUE, "model: ff.kind mix has no bias");
    return DRA_OK;
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

double dra_model_rescale(const dra_model_config *c, int64_t l)
{
    return c->rescale_every > 0 ? ldexp(1, (int)dra_imin(l / c->rescale_every, 400)) : 1;
}

/* Of q.k in layer l; 0: as mixers have it by themselves. */
static double score_scale(const dra_model_config *c, const dra_mixer_config *m, int64_t l)
{
    const int64_t D = m->key_dim ? m->key_dim : c->dim / m->heads;
    if (!c->layer_scale || D < 1) return m->score_scale;
    return (m->score_scale > 0 ? m->score_scale : 1 / sqrt((double)D)) / (double)(l + 1);
}

/* The mixer of layer l: what the model knows is filled in. */
static dra_mixer_config mixer_config(const dra_model_config *c, int64_t l)
{
    dra_mixer_config m = c->mixer[l % c->mixers];
    m.dim = c->dim;
    if (!m.heads) m.heads = c->heads;
    if (!m.key_dim) m.key_dim = c->key_dim;
    if (!m.value_dim) m.value_dim = c->value_dim;
    m.score_scale = score_scale(c, &m, l);
    m.bias = c->bias;
    m.norm = c->norm == DRA_MODEL_LAYER ? DRA_NORM_LAYER : DRA_NORM_RMS;
    m.norm_eps = c->norm_eps;
    m.rescale = dra_model_rescale(c, l);
    m.residual = c->block.norm == DRA_PLACE_POST ? DRA_RESIDUAL_POST : DRA_RESIDUAL_PRE;
    m.memory_residual = c->block.memory_residual;
    m.project = c->block.project;
    m.dropout = c->dropout;
    m.attention_dropout = c->attention_dropout;
    m.aux = c->aux;
    m.maps = c->maps;
    /* What is added to the stream starts small: 2 L parts of variance 1 / 2 L each. */
    m.out_gain = 1 / sqrt(2.0 * (double)c->depth);
    m.a.gamma.layer = m.b.gamma.layer = (int)l;
    m.a.gamma.layers = m.b.gamma.layers = (int)c->depth;
    return m;
}

/* ---- tensors --------------------------------------------------------------------------------- */

void dra_model_norm_declare(const dra_model_config *c, const char *prefix, dra_specs *params)
{
    dra_specs_add(params, prefix, &(dra_spec){"norm_g", DRA_SHAPE(c->dim), .number = 1});
    if (c->norm == DRA_MODEL_LAYER)
        dra_specs_add(params, prefix, &(dra_spec){"norm_b", DRA_SHAPE(c->dim)});
}

/* Adds the tensors of a part under a prefix and says where they are. */
static dra_part append(dra_model *m, const char *prefix, const dra_module *part)
{
    const dra_part at = {dra_specs_count(m->params), dra_specs_count(m->state)};
    for (int i = 0; i < dra_specs_count(part->params); i++)
        dra_specs_add(m->params, prefix, dra_specs_at(part->params, i));
    for (int i = 0; i < dra_specs_count(part->state); i++)
        dra_specs_add(m->state, prefix, dra_specs_at(part->state, i));
    return at;
}

static void declare_layer(dra_model *m, int64_t l)
{
    dra_layer *layer = &m->layer[l];
    char       prefix[48];
    snprintf(prefix, sizeof prefix, "layers.%lld.mixer.", (long long)l);
    layer->mix = append(m, prefix, dra_mixer_module(layer->mixer));
    snprintf(prefix, sizeof prefix, "layers.%lld.ff.", (long long)l);
    layer->ff = (dra_part){dra_specs_count(m->params), dra_specs_count(m->state)};
    dra_ff_declare(&m->config, prefix, m->params, m->state);
    layer->end = (dra_part){dra_specs_count(m->params), dra_specs_count(m->state)};
}

static int add_table(dra_model *m, const char *name, int64_t rows)
{
    const int at = dra_specs_count(m->params);
    dra_specs_add(m->params, NULL,
                  &(dra_spec){name, DRA_SHAPE(rows, m->config.dim), DRA_FILL_NORMAL,
                              .number = 1 / sqrt((double)m->config.dim), .product = true});
    return at;
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

static void declare(dra_model *m)
{
    const dra_model_config *c = &m->config;
    m->embedding = add_table(m, "embedding", c->vocab);
    m->positions = c->positions == DRA_POSITIONS_LEARNED ? add_table(m, "positions", c->context)
                                                         : -1;
    m->embed_norm = c->embed_norm ? dra_specs_count(m->params) : -1;
    if (c->embed_norm) dra_model_norm_declare(c, "embed_", m->params);
    m->blend = add_blend(m);
    for (int64_t l = 0; l < c->depth; l++) declare_layer(m, l);
    m->norm = c->block.norm == DRA_PLACE_PRE ? dra_specs_count(m->params) : -1;
    if (m->norm >= 0) dra_model_norm_declare(c, NULL, m->params);
    m->head = c->tied == DRA_OFF ? add_table(m, "head", c->vocab) : m->embedding;
}

/* ---- making one ------------------------------------------------------------------------------ */

/* Collects the auxiliary losses it has; asks a mixer only for those it has. */
static dra_status open_mixer(const dra_mixer_config *c, dra_mixer **out, uint32_t *seen,
                             dra_error *err)
{
    dra_mixer_config plain = *c;
    plain.aux = 0;
    plain.maps = false;
    dra_status st = dra_mixer_create(&plain, out, err);
    if (st != DRA_OK) return st;
    plain.aux = c->aux & dra_mixer_aux_losses(*out);
    plain.maps = c->maps && dra_mixer_mappable(*out);
    *seen |= plain.aux;
    if (!plain.aux && !plain.maps) return DRA_OK;
    dra_mixer_destroy(*out);
    return dra_mixer_create(&plain, out, err);
}

static dra_status open_mixers(dra_model *m, dra_error *err)
{
    uint32_t seen = 0;
    m->layer = calloc((size_t)m->config.depth, sizeof *m->layer);
    if (!m->layer) return dra_fail(err, DRA_ERR_MEMORY, "model: out of memory");
    for (int64_t l = 0; l < m->config.depth; l++) {
        const dra_mixer_config c = mixer_config(&m->config, l);
        dra_error              why = {0};
        const dra_status       st = open_mixer(&c, &m->layer[l].mixer, &seen, &why);
        if (st != DRA_OK) return dra_fail(err, st, "layer %lld: %.400s", (long long)l, why.text);
    }
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (m->config.aux >> k & 1 && !(seen >> k & 1))
            return dra_fail(err, DRA_ERR_VALUE, "model: no layer has %s", dra_aux_name(k));
    return DRA_OK;
}

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
    if (st == DRA_OK) st = open_mixers(m, err);
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
    for (int64_t l = 0; m->layer && l < m->config.depth; l++) dra_mixer_destroy(m->layer[l].mixer);
    free(m->layer);
    dra_specs_destroy(m->params);
    dra_specs_destroy(m->state);
    free(m);
}

const dra_model_config *dra_model_config_of(const dra_model *m) { return &m->config; }
const dra_specs        *dra_model_params(const dra_model *m) { return m->params; }
const dra_specs        *dra_model_state(const dra_model *m) { return m->state; }
const dra_mixer        *dra_model_mixer(const dra_model *m, int64_t l) { return m->layer[l].mixer; }

bool dra_model_drops(const dra_model *m)
{
    const dra_model_config *c = &m->config;
    return c->dropout > 0 || c->attention_dropout > 0 || c->embed_dropout > 0;
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

dra_value dra_model_norm_build(dra_graph *g, const dra_model_config *c, const dra_value *param,
                               dra_value x, double eps)
{
    return c->norm == DRA_MODEL_LAYER ? dra_layer_norm(g, x, param[0], param[1], eps)
                                      : dra_rms_norm(g, x, param[0], eps);
}

/* Rows of a table, real however it is stored. */
static dra_value look_up(dra_graph *g, dra_value table, dra_value ids)
{
    const dra_value x = dra_embedding(g, table, ids);
    return dra_dtype_of(g, x) == DRA_REAL ? x : dra_cast(g, x, DRA_REAL);
}

static dra_value embed(dra_graph *g, const dra_model *m, const dra_module_call *call, dra_value ids)
{
    const bool embedded = !dra_graph_failed(g) && dra_dtype_of(g, ids) == DRA_REAL;
    dra_value  x = embedded ? ids : look_up(g, call->param[m->embedding], ids);
    if (m->positions >= 0)
        x = dra_add(g, x, look_up(g, call->param[m->positions], call->tokens.pos));
    if (m->embed_norm >= 0)
        x = dra_model_norm_build(g, &m->config, call->param + m->embed_norm, x, m->config.norm_eps);
    return dra_module_dropout(g, call, "embed.dropout", m->config.embed_dropout, x);
}

/* One block: the mixer with its residual, then the feed-forward with its own. */
dra_mixer_result dra_layer_build(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                 int64_t l, dra_value x, dra_value *state_out)
{
    const dra_layer      *layer = &m->layer[l];
    const dra_value       blend = m->blend < 0 ? (dra_value){0} : call->param[m->blend];
    const dra_module_call own = {.tokens = call->tokens,
                                 .param = call->param + layer->mix.params,
                                 .state = call->state + layer->mix.states,
                                 .learning = call->learning,
                                 .random = call->random,
                                 .at = call->at};
    dra_mixer_result      r = dra_mixer_build(g, layer->mixer, &own, x, blend,
                                              state_out + layer->mix.states);
    r.y = dra_ff_build(g, &m->config, call, l, &layer->ff, r.y, state_out);
    return r;
}

/* Adds what a layer shows: sums of add-ons, maps as outputs. */
static void collect(dra_graph *g, const dra_model *m, int64_t l, const dra_mixer_result *r,
                    dra_value *sum, int *count)
{
    const bool two = dra_mixer_config_of(m->layer[l].mixer)->blend != DRA_BLEND_NONE;
    char       name[64];
    for (int k = 0; k < DRA_AUX_COUNT; k++) {
        if (!r->aux[k].id) continue;
        sum[k] = count[k]++ ? dra_add(g, sum[k], r->aux[k]) : r->aux[k];
    }
    for (int i = 0; m->config.maps && i < 2; i++)
        for (int k = 0; k < DRA_SHOW_COUNT; k++) {
            if (!r->map[i][k].id) continue;
            snprintf(name, sizeof name, "layers.%lld.%s%s", (long long)l,
                     !two ? ""
                     : i  ? "b."
                          : "a.",
                     dra_show_name(k));
            dra_output(g, name, r->map[i][k]);
        }
}

/* As NAME.l, counted as reading has it. */
static void put_out(dra_graph *g, const dra_model *m, const char *what, int64_t l, dra_value x)
{
    const double scale = dra_model_rescale(&m->config, l);
    char         name[32];
    snprintf(name, sizeof name, "%s.%lld", what, (long long)l);
    dra_output(g, name, scale == 1 ? x : dra_affine(g, x, 1 / scale, 0));
}

static dra_model_result build(dra_graph *g, const dra_model *m, const dra_module_call *call,
                              dra_value ids, bool recompute, const dra_view *show,
                              dra_value *state_out)
{
    char             name[32];
    dra_value        x = embed(g, m, call, ids);
    dra_model_result all = {0};
    int              count[DRA_AUX_COUNT] = {0};
    if (show->streams) put_out(g, m, "stream", 0, x);
    for (int64_t l = 0; l < m->config.depth; l++) {
        snprintf(name, sizeof name, "layers.%lld", (long long)l);
        dra_scope_push(g, name);
        const dra_mixer_result r = (recompute ? dra_layer_recompute
                                              : dra_layer_build)(g, m, call, l, x, state_out);
        collect(g, m, l, &r, all.aux, count);
        x = r.y;
        dra_scope_pop(g);
        if (show->branches) put_out(g, m, "branch", l, r.branch);
        if (show->streams) put_out(g, m, "stream", l + 1, x);
    }
    const dra_model_config *c = &m->config;
    const double            scale = call->learning ? 1 : dra_model_rescale(c, c->depth);
    if (m->norm >= 0)
        x = dra_model_norm_build(g, c, call->param + m->norm, x, c->final_eps * scale * scale);
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (count[k] > 1) all.aux[k] = dra_affine(g, all.aux[k], 1.0 / count[k], 0);
    all.hidden = x;
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
    const int64_t n = v->keep > 0 ? dra_imin(v->keep, t->T) : t->T;
    return dra_slice(g, hidden, 1, t->T - n, n);
}

static void build_view(dra_graph *g, const void *self, const dra_module_call *call,
                       dra_value *state_out)
{
    const dra_view        *v = self;
    const dra_tokens      *t = &call->tokens;
    const dra_shape        each = DRA_SHAPE(t->B, t->T);
    const dra_shape        wide = DRA_SHAPE(t->B, t->T, v->model->config.dim);
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
    return (dra_module){view->model->params, view->model->state, build_view, view};
}
