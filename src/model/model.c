/* A model: its config completed and checked, its tensors declared, its graph built. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/shape.h"
#include "file/json_make.h"
#include "graph/op.h"
#include "formats/format.h"
#include "model/model.h"
#include "model/owned.h"
#include "sequence/module.h"
#include "model/xl.h"
#include "model/streams.h"

/* ---- config ---------------------------------------------------------------------------------- */

static dra_status check_size(const char *name, int64_t n, dra_error *err)
{
    if (n >= 1 && n <= 1 << 20) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "model: %s is %lld, expected 1 to 1048576", name,
                    (long long)n);
}

/* Another stack's source of vectors, which are handed on as they are. */
static bool hands_on_vectors(const dra_model_config *c)
{
    return !c->depth && c->source.kind == DRA_SOURCE_VECTORS && c->head.kind == DRA_HEAD_NONE;
}

/* Layers are nodes of one graph, whose values have numbers of 22 bits. */
static dra_status check_depth(int64_t n, dra_error *err)
{
    if (n >= 1 && n <= DRA_DEPTH_MOST) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "model: depth is %lld, expected 1 to %d: a graph has 2^22 values, 128 a layer",
                    (long long)n, DRA_DEPTH_MOST);
}

/* What reads more than the stream, or squashes it. */
static dra_status check_additions(const dra_model_config *c, dra_error *err)
{
    if (c->norm_alpha > 0 && c->norm != DRA_NORM_TANH)
        return dra_fail(err, DRA_ERR_VALUE, "model: norm_alpha without norm tanh");
    if (c->rescale_every > 0 && c->norm == DRA_NORM_TANH)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: rescale_every and norm tanh exclude each other");
    if (c->reinject_gate && !c->reinject && !c->condition.add)
        return dra_fail(err, DRA_ERR_VALUE, "model: reinject_gate without reinject");
    if ((c->reinject || c->condition.add) && (c->block.streams > 1 || c->rescale_every))
        return dra_fail(err, DRA_ERR_VALUE, "model: %s and %s exclude each other",
                        c->reinject ? "reinject" : "condition.add",
                        c->rescale_every ? "rescale_every" : "streams");
    const bool  order = c->layout[0] || c->n_order || c->tied_layers || c->sandwich;
    const char *other = order                             ? "another layout"
                        : c->block.streams > 1            ? "streams"
                        : c->block.norm == DRA_PLACE_DUAL ? "norm dual"
                        : c->rescale_every                ? "rescale_every"
                                                          : NULL;
    if (c->unet && other)
        return dra_fail(err, DRA_ERR_VALUE, "model: unet and %s exclude each other", other);
    const char *once = c->unet                           ? "unet"
                       : c->block.streams > 1            ? "streams"
                       : c->block.norm == DRA_PLACE_DUAL ? "norm dual"
                       : c->rescale_every                ? "rescale_every"
                       : c->xl.memory                    ? "xl"
                                                         : NULL;
    if (c->recycle > 1 && once)
        return dra_fail(err, DRA_ERR_VALUE, "model: recycle and %s exclude each other", once);
    if (c->recycle > 1 && c->depth < 1)
        return dra_fail(err, DRA_ERR_VALUE, "model: recycle needs a depth of 1 or more");
    if (c->unet && c->depth < 2)
        return dra_fail(err, DRA_ERR_VALUE, "model: unet needs a depth of 2 or more");
    return DRA_OK;
}

static dra_status check_scales(const dra_model_config *c, dra_error *err)
{
    const bool logits = c->head.kind == DRA_HEAD_TOKENS && !c->head.bias;
    const bool tokens = c->source.kind == DRA_SOURCE_TOKENS;
    if (!(c->embed_scale >= 0 && c->logit_scale >= 0) || isinf(c->embed_scale + c->logit_scale))
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: embed_scale is %g, logit_scale %g, expected 0 or more",
                        c->embed_scale, c->logit_scale);
    if ((c->embed_scale > 0 && !tokens) || (c->logit_scale > 0 && !logits))
        return dra_fail(err, DRA_ERR_VALUE, "model: %s",
                        c->logit_scale > 0 && !logits
                            ? "logit_scale needs a head of tokens without a bias"
                            : "embed_scale needs a table of tokens");
    return DRA_OK;
}

static dra_status check_config(const dra_model_config *c, dra_error *err)
{
    const bool tokens = c->source.kind == DRA_SOURCE_TOKENS || c->head.kind == DRA_HEAD_TOKENS;
    dra_status st = tokens ? check_size("vocab", c->vocab, err) : DRA_OK;
    if (st == DRA_OK) st = check_size("dim", c->dim, err);
    if (st == DRA_OK && !hands_on_vectors(c)) st = check_depth(c->depth, err);
    if (st == DRA_OK) st = check_size("heads", c->heads, err);
    if (st == DRA_OK) st = check_size("context", c->context, err);
    if (st == DRA_OK) st = check_size("ff.dim", c->ff.dim, err);
    if (st != DRA_OK) return st;
    if (c->mixers > dra_imax(c->depth, 1) && !c->layout[0])
        return dra_fail(err, DRA_ERR_VALUE, "model: %d mixers for %lld layers", c->mixers,
                        (long long)c->depth);
    if (c->ff.kind == DRA_FF_MIX && c->bias)
        return dra_fail(err, DRA_ERR_VALUE, "model: ff.kind mix has no bias");
    if (c->tied == DRA_ON && c->embed_dim && c->embed_dim != c->dim)
        return dra_fail(err, DRA_ERR_VALUE, "model: tied needs embed_dim %lld to be dim %lld",
                        (long long)c->embed_dim, (long long)c->dim);
    if (c->embed_norm_kind && !c->embed_norm)
        return dra_fail(err, DRA_ERR_VALUE, "model: embed_norm_kind without embed_norm");
    if (!(c->output_softcap >= 0) || isinf(c->output_softcap))
        return dra_fail(err, DRA_ERR_VALUE, "model: output_softcap is %g, expected 0 or more",
                        c->output_softcap);
    if (c->output_softcap > 0 && (c->block.norm == DRA_PLACE_DUAL || c->rescale_every))
        return dra_fail(err, DRA_ERR_VALUE, "model: output_softcap and %s exclude each other",
                        c->rescale_every ? "rescale_every" : "norm dual");
    st = check_additions(c, err);
    if (st == DRA_OK) st = check_scales(c, err);
    if (st == DRA_OK) st = dra_source_check(c, err);
    if (st == DRA_OK) st = dra_head_check(c, err);
    if (st == DRA_OK) st = dra_xl_check(c, err);
    if (st == DRA_OK) st = dra_condition_check(c, err);
    return st == DRA_OK ? dra_positions_check(c, err) : st;
}

void dra_model_config_complete(dra_model_config *c)
{
    dra_config_point(c);
    if (!c->mixers) c->mixers = 1;
    if (!c->heads) c->heads = 1;
    if (c->source.kind == DRA_SOURCE_IMAGE && !c->source.channels) c->source.channels = 3;
    if (!c->context && dra_source_length(c)) c->context = dra_source_length(c);
    if (!c->context) c->context = 256;
    if (c->tied == DRA_DEFAULT) c->tied = c->source.kind == DRA_SOURCE_TOKENS ? DRA_ON : DRA_OFF;
    if (!c->condition.dim && dra_condition_used(c)) c->condition.dim = c->dim;
    if (!(c->norm_eps > 0)) c->norm_eps = 1e-5;
    if (!(c->final_eps > 0)) c->final_eps = c->norm_eps;
    if (!c->ff.dim)
        c->ff.dim = c->ff.kind == DRA_FF_SWIGLU ? (8 * c->dim / 3 + 63) / 64 * 64 : 4 * c->dim;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int add_param(dra_model *m, const dra_spec *spec)
{
    const int at = dra_specs_count(m->params);
    dra_specs_add(m->params, NULL, spec);
    return at;
}

static int add_table(dra_model *m, const char *name, dra_param_group group, int64_t rows,
                     int64_t width, double std)
{
    return add_param(m, &(dra_spec){name, DRA_SHAPE(rows, width), DRA_FILL_NORMAL, .number = std,
                                    .product = true, .group = group});
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

/* How learned positions start: rows of length 1, or as x-transformers has them. */
static double positions_std(const dra_model_config *c)
{
    if (c->embed_unit) return 1e-5;
    return c->init == DRA_INIT_UNIFORM ? 1 : 1 / sqrt((double)dra_embed_width(c));
}

/* From the width of the embedding to that of the stream. */
static void declare_project(dra_model *m)
{
    const dra_model_config *c = &m->config;
    const int64_t           W = dra_embed_width(c);
    const double            within = 1 / sqrt((double)W);
    m->project_w = m->project_b = -1;
    if (W == c->dim) return;
    m->project_w = add_param(m, &(dra_spec){"embed_project_w", DRA_SHAPE(c->dim, W),
                                            DRA_FILL_UNIFORM, .number = within, .product = true,
                                            .group = DRA_PARAM_INPUT});
    m->project_b = add_param(m, &(dra_spec){"embed_project_b", DRA_SHAPE(c->dim), DRA_FILL_UNIFORM,
                                            .number = within, .group = DRA_PARAM_BIAS});
}

static dra_norm declare_embed_norm(dra_model *m)
{
    const dra_model_config *c = &m->config;
    const dra_norm_config   layer = {.kind = DRA_NORM_LAYER, .bias = DRA_OFF, .eps = c->norm_eps};
    const dra_norm_config   same = dra_model_norm(c);
    const bool              own = c->embed_norm_kind == DRA_EMBED_NORM_LAYER;
    return dra_norm_declare(own ? &layer : &same, dra_embed_width(c), "embed_", m->params);
}

/* Of a U-Net: the maps of its latter half. */
static int declare_skips(dra_model *m)
{
    const dra_model_config *c = &m->config;
    const int               first = dra_specs_count(m->params);
    const double            std = 1 / sqrt(2 * (double)c->dim);
    char                    name[40];
    for (int64_t l = (c->depth + 1) / 2; c->unet && l < c->depth; l++) {
        snprintf(name, sizeof name, "layers.%lld.skip_W", (long long)l);
        add_param(m, &(dra_spec){name, DRA_SHAPE(c->dim, 2 * c->dim),
                                 c->init == DRA_INIT_UNIFORM ? DRA_FILL_UNIFORM : DRA_FILL_NORMAL,
                                 .number = std, .product = true, .group = DRA_PARAM_MATRIX});
    }
    return first;
}

static void declare_reinjection(dra_model *m)
{
    const dra_model_config *c = &m->config;
    const double            std = 1 / sqrt((double)c->dim);
    const dra_fill          fill = c->init == DRA_INIT_UNIFORM ? DRA_FILL_UNIFORM : DRA_FILL_NORMAL;
    dra_spec                own = {"reinject_W",  DRA_SHAPE(c->dim, c->dim), fill,
                                   .number = std, .product = true,           .group = DRA_PARAM_MATRIX};
    m->reinject = c->reinject ? add_param(m, &own) : -1;
    own.name = "recycle_W";
    m->recycle = c->recycle > 1 ? add_param(m, &own) : -1;
    own.name = "reinject_gate", own.shape = DRA_SHAPE(1, c->dim);
    m->reinject_gate = c->reinject_gate ? add_param(m, &own) : -1;
}

static void declare_params(dra_model *m)
{
    const dra_model_config *c = &m->config;
    const dra_norm_config   norm = dra_model_norm(c);
    dra_source_declare(m);
    m->positions = c->positions == DRA_POSITIONS_LEARNED
                       ? add_table(m, "positions", DRA_PARAM_POSITION, c->context,
                                   dra_embed_width(c), positions_std(c))
                       : -1;
    if (c->embed_norm) m->embed_norm = declare_embed_norm(m);
    m->blend = add_blend(m);
    declare_project(m);
    m->memory_tokens = c->memory_tokens ? add_table(m, "memory_tokens", DRA_PARAM_VECTOR,
                                                    c->memory_tokens, c->dim, 1)
                                        : -1;
    m->streams = c->block.streams > 1
                     ? add_param(m, &(dra_spec){"streams", DRA_SHAPE(c->block.streams, c->dim),
                                                .group = DRA_PARAM_VECTOR})
                     : -1;
    declare_reinjection(m);
    m->skips = declare_skips(m);
    dra_condition_declare(m);
    dra_positions_declare(&m->distance, c, m->params);
    dra_stack_declare(&m->stack, m->params, m->state);
    m->has_norm = c->block.norm != DRA_PLACE_POST && !c->block.post_norm && c->depth;
    if (m->has_norm) m->norm = dra_norm_declare(&norm, c->dim, NULL, m->params);
    dra_head_declare(m);
    dra_compose_declare(m);
}

/* ---- making one ------------------------------------------------------------------------------ */

/* Of the tensors and the text of the config; a config that its format has no words for has none. */
static dra_status make_fingerprint(dra_model *m, dra_error *err)
{
    dra_json       maker = {0};
    json_t        *object = dra_json_object(&maker);
    dra_error      why = {0};
    char          *text = dra_model_config_dump("model", &m->config, object, &why);
    const uint64_t specs[] = {dra_specs_fingerprint(m->params), dra_specs_fingerprint(m->state)};
    dra_hash       h;
    json_decref(object);
    if (!text && why.code == DRA_ERR_MEMORY) return dra_fail(err, why.code, "%s", why.text);
    dra_hash_begin(&h, 0);
    dra_hash_add(&h, specs, sizeof specs);
    dra_hash_add_text(&h, text ? text : "");
    if (m->config.lora) dra_hash_add(&h, &m->config.lora->alpha, sizeof m->config.lora->alpha);
    m->fingerprint = dra_hash_end(&h);
    free(text);
    return DRA_OK;
}

/* A cache in bf16 needs one: items, which contexts, segments and whole texts are not. */
static dra_status check_cache(const dra_model *m, dra_error *err)
{
    if (!m->config.bf16_cache) return DRA_OK;
    for (int i = 0; i < dra_specs_count(m->state); i++)
        if (dra_specs_at(m->state, i)->bf16) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "model: a cache in bf16, but the model has no cache that grows with the text");
}

dra_status dra_model_create(const dra_model_config *config, dra_model **out, dra_error *err)
{
    dra_model *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return dra_fail(err, DRA_ERR_MEMORY, "model: out of memory");
    dra_status st = dra_config_fill(&m->config, config, &m->arena, err);
    dra_model_config_complete(&m->config);
    if (st == DRA_OK) st = check_config(&m->config, err);
    if (st == DRA_OK) st = dra_specs_create(&m->params, err);
    if (st == DRA_OK) st = dra_specs_create(&m->state, err);
    if (st == DRA_OK) st = dra_compose_open(m, err);
    if (st == DRA_OK) st = dra_stack_open(&m->stack, &m->config, err);
    if (st == DRA_OK) st = dra_xl_check_stack(m, err);
    if (st == DRA_OK) {
        declare_params(m);
        if (config->lora && config->tune_state)
            st = dra_fail(err, DRA_ERR_VALUE, "model: lora and tune_state exclude each other");
        if (st == DRA_OK && config->lora) st = dra_lora_declare(m, err);
        if (st == DRA_OK && config->tune_state) st = dra_start_declare(m, err);
    }
    if (st == DRA_OK) {
        st = dra_specs_error(m->params, err);
    }
    if (st == DRA_OK) st = dra_specs_error(m->state, err);
    if (st == DRA_OK) st = check_cache(m, err);
    if (st == DRA_OK) st = make_fingerprint(m, err);
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
    dra_compose_close(m);
    dra_specs_destroy(m->params);
    dra_specs_destroy(m->state);
    dra_arena_free(&m->arena);
    free(m);
}

const dra_model_config *dra_model_config_of(const dra_model *m) { return &m->config; }
const dra_specs        *dra_model_params(const dra_model *m) { return m->params; }
const dra_specs        *dra_model_state(const dra_model *m) { return m->state; }

/* The step of attention number i; -1: there are fewer. */
static int attention_step(const dra_model *m, int64_t i)
{
    return i >= 0 && i < m->stack.n_attentions ? m->stack.attention[i] : -1;
}

const dra_mixer *dra_model_mixer(const dra_model *m, int64_t i)
{
    const int k = attention_step(m, i);
    return k < 0 ? NULL : dra_sublayer_mixer(dra_stack_at(&m->stack, k));
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

int64_t dra_model_attentions(const dra_model *m) { return m->stack.n_attentions; }

int64_t dra_model_sublayers(const dra_model *m) { return m->stack.n_steps; }

int64_t dra_model_layers(const dra_model *m)
{
    return m->stack.n_steps ? m->stack.step[m->stack.n_steps - 1].layer + 1 : 0;
}

bool dra_model_drops(const dra_model *m)
{
    const dra_model_config *c = &m->config;
    bool                    drops = c->block.drop > 0 || c->ff.dropout > 0;
    for (int i = 0; i < c->n_drops; i++) drops = drops || c->drops[i] > 0;
    if (m->context) drops = drops || dra_model_drops(m->context);
    if (m->prepend) drops = drops || dra_model_drops(m->prepend);
    return drops || c->dropout > 0 || c->attention_dropout > 0 || c->embed_dropout > 0;
}

int64_t dra_model_param_count(const dra_model *m)
{
    int64_t n = 0;
    for (int i = 0; i < dra_specs_count(m->params); i++)
        n += dra_shape_count(&dra_specs_at(m->params, i)->shape);
    return n;
}

int64_t dra_model_active_count(const dra_model *m)
{
    const dra_experts_config *e = &m->config.ff.experts;
    int64_t                   n = 0;
    for (int i = 0; i < dra_specs_count(m->params); i++) {
        const dra_spec *p = dra_specs_at(m->params, i);
        const int64_t   all = dra_shape_count(&p->shape);
        n += p->experts ? all / p->experts * e->top : all;
    }
    return n;
}

uint64_t dra_model_fingerprint(const dra_model *m) { return m->fingerprint; }
