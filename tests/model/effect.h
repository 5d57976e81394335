/* What a setting changes: two models by their configs, and the first thing in which they differ.
 * Both have first values by name, each with something of its own added, so that what they have in
 * common is the same; everything is compared bit for bit. */
#ifndef DRA_TESTS_MODEL_EFFECT_H
#define DRA_TESTS_MODEL_EFFECT_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/shape.h"
#include "check.h"
#include "dra/model.h"
#include "dra/train.h"

typedef enum effect_kind {
    EFFECT_OUTPUTS,
    EFFECT_GRADIENTS, /* and the loss */
    EFFECT_PARAMETERS,
    EFFECT_FIRST_VALUES,
    EFFECT_STATE,   /* the tensors of the state: what reading takes */
    EFFECT_DROPOUT, /* the loss where something is dropped out */
    EFFECT_NOTHING,
    EFFECT_KINDS = EFFECT_NOTHING
} effect_kind;

static const char *const effect_names[] = {"outputs", "gradients", "parameters", "first values",
                                           "state",   "dropout",   "nothing"};

enum { EFFECT_T = 11, EFFECT_SOURCE = 9, EFFECT_INPUTS = 8, EFFECT_WIDE = 4096 };

typedef struct effect_model {
    char             *text; /* its config */
    dra_error         err;  /* why there is no model */
    dra_model_config *c;
    dra_model        *model;
    dra_weights      *weights;
    dra_device       *device;
    uint64_t          hash[EFFECT_KINDS];
    bool              known[EFFECT_KINDS];
} effect_model;

/* ---- making one ------------------------------------------------------------------------------ */

static inline uint64_t effect_name_hash(const char *name)
{
    return dra_hash_of(0, name, strlen(name));
}

/* Hashes what was drawn, then stirs it. */
static inline void effect_stir(effect_model *m)
{
    const dra_specs *specs = dra_model_params(m->model);
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        const int64_t   n = dra_shape_count(&p->shape);
        const uint64_t  name = effect_name_hash(p->name);
        dra_real       *w = dra_weights_edit(m->weights, i);
        assert_non_null(w);
        m->hash[EFFECT_FIRST_VALUES] ^= dra_hash_of(name, w, (size_t)n * sizeof *w);
        for (int64_t k = 0; k < n && !p->frozen; k++)
            w[k] += (dra_real)(0.25 * sin((double)(name % 997) + 1.7 * (double)k));
    }
    m->known[EFFECT_FIRST_VALUES] = true;
}

/* A refusal is kept in m->err. */
static inline void effect_make(effect_model *m)
{
    dra_status st = dra_model_create(m->c, &m->model, &m->err);
    if (st == DRA_OK) st = dra_weights_draw(m->model, 3, &m->weights, &m->err);
    if (st == DRA_OK) {
        effect_stir(m);
        return;
    }
    dra_model_destroy(m->model);
    m->model = NULL;
}

/* `text` is taken over. */
static inline void effect_open(effect_model *m, char *text)
{
    *m = (effect_model){.text = text, .device = check_device(1, "ref")};
    if (dra_model_config_parse("config", text, strlen(text), &m->c, &m->err) == DRA_OK)
        effect_make(m);
}

static inline void effect_close(effect_model *m)
{
    dra_weights_destroy(m->weights);
    dra_model_destroy(m->model);
    dra_model_config_destroy(m->c);
    free(m->text);
    *m = (effect_model){0};
}

/* ---- what it reads --------------------------------------------------------------------------- */

typedef struct effect_inputs {
    int32_t   ids[EFFECT_T + 1], labels[1];
    dra_real  x[EFFECT_WIDE], weights[EFFECT_T];
    dra_named in[EFFECT_INPUTS];
    int       n;
    int64_t   T, context; /* tokens of the text and of what it sees; context 0: none */
} effect_inputs;

static inline int64_t effect_length(const dra_model_input *in, int64_t otherwise)
{
    return in->length ? in->length : otherwise;
}

static inline void effect_add(effect_inputs *to, const char *name, const void *data, size_t bytes)
{
    assert_true(to->n < EFFECT_INPUTS && bytes <= sizeof to->x);
    to->in[to->n++] = (dra_named){name, data, bytes};
}

static inline void effect_input(effect_inputs *to, const dra_model_input *in)
{
    const dra_model_config *c = dra_model_config_of(in->model);
    const int64_t           n = effect_length(in, in->context ? EFFECT_SOURCE : EFFECT_T);
    const int64_t           S = c->source.size, channels = c->source.channels;
    if (in->condition) {
        effect_add(to, in->name, to->x + 7, (size_t)in->width * sizeof *to->x);
        return;
    }
    if (!in->numbers && in->context) to->context += n;
    if (!in->numbers && !in->context) to->T = n;
    if (in->numbers)
        effect_add(to, in->name, to->x, (size_t)n * sizeof *to->x);
    else if (in->kind == DRA_SOURCE_IMAGE)
        effect_add(to, in->name, to->x,
                   (size_t)((channels ? channels : 3) * S * S) * sizeof *to->x);
    else if (in->kind == DRA_SOURCE_VECTORS)
        effect_add(to, in->name, to->x, (size_t)(n * in->width) * sizeof *to->x);
    else
        effect_add(to, in->name, to->ids, (size_t)n * sizeof *to->ids);
}

static inline void effect_inputs_of(const effect_model *m, effect_inputs *to)
{
    static const int32_t ids[] = {1, 5, 3, 8, 0, 3, 2, 4, 3, 6, 1, 7};
    dra_model_input      in;
    *to = (effect_inputs){0};
    memcpy(to->ids, ids, sizeof ids);
    for (int i = 0; i < EFFECT_WIDE; i++) to->x[i] = (dra_real)sin(0.7 * i + 0.01 * (i % 91) * i);
    for (int i = 0; i < EFFECT_T; i++) to->weights[i] = 1;
    for (int i = 0; dra_model_input_at(m->model, i, &in); i++) effect_input(to, &in);
}

/* ---- what comes of it ------------------------------------------------------------------------ */

static inline void effect_add_result(dra_hash *h, dra_reader *r, const char *name)
{
    dra_shape shape;
    if (!dra_reader_result_shape(r, name, &shape)) return;
    const dra_real *y = dra_reader_result(r, name);
    assert_non_null(y);
    for (int64_t i = 0; i < dra_shape_count(&shape); i++)
        if (!isfinite((double)y[i])) fail_msg("%s has a number that is not finite", name);
    dra_hash_add_text(h, name);
    dra_hash_add(h, shape.dim, (size_t)shape.rank * sizeof *shape.dim);
    dra_hash_add(h, y, (size_t)dra_shape_count(&shape) * sizeof *y);
}

static inline uint64_t effect_outputs(const effect_model *m)
{
    static effect_inputs in;
    const dra_view       view = {.model = m->model,
                                 .hidden = true,
                                 .outs = true,
                                 .logits = dra_model_config_of(m->model)->head.kind == DRA_HEAD_TOKENS};
    const dra_module     module = dra_view_module(&view);
    dra_reader          *r = NULL;
    dra_states          *s = NULL;
    dra_error            err = {0};
    dra_hash             h;
    dra_status           st = dra_reader_create(m->device, &module, &r, &err);
    effect_inputs_of(m, &in);
    const dra_context_text text = {in.context, NULL};
    if (st == DRA_OK) st = dra_weights_bind(m->weights, r, &err);
    if (st == DRA_OK) st = dra_states_create(m->device, module.state, 1, &s, &err);
    if (st == DRA_OK)
        st = in.context ? dra_reader_read_context(r, s, &text, in.T, NULL, in.n, in.in, &err)
                        : dra_reader_read(r, s, in.T, NULL, in.n, in.in, &err);
    if (st != DRA_OK) fail_msg("%s: %s", m->text, err.text);
    dra_hash_begin(&h, 0);
    static const char *const names[] = {"hidden", "logits", "out", "numbers"};
    for (size_t i = 0; i < COUNT(names); i++) effect_add_result(&h, r, names[i]);
    dra_states_destroy(s);
    dra_reader_destroy(r);
    return dra_hash_end(&h);
}

/* What outputs are compared with. */
static inline dra_objective_kind effect_goal(const effect_model *m, effect_inputs *in)
{
    const dra_head_config *head = &dra_model_config_of(m->model)->head;
    const size_t           width = (size_t)dra_model_head_width(m->model);
    if (head->kind == DRA_HEAD_CLASSES && head->dim) {
        in->labels[0] = 1;
        effect_add(in, "labels", in->labels, sizeof in->labels);
        return DRA_OBJECTIVE_CLASSES;
    }
    if (head->kind == DRA_HEAD_TOKENS) {
        if (head->numbers) effect_add(in, "numbers", in->x + 3, (size_t)in->T * sizeof *in->x);
        return head->numbers ? DRA_OBJECTIVE_XVAL : DRA_OBJECTIVE_NEXT;
    }
    effect_add(in, "y", in->x + 3, (size_t)in->T * width * sizeof *in->x);
    effect_add(in, "weights", in->weights, (size_t)in->T * sizeof *in->weights);
    return DRA_OBJECTIVE_SQUARED;
}

/* Of the loss and all gradients, or of why they cannot be computed. */
static inline uint64_t effect_gradients(const effect_model *m, bool drops)
{
    static effect_inputs in;
    dra_gradients       *l = NULL;
    dra_error            err = {0};
    dra_hash             h;
    effect_inputs_of(m, &in);
    const bool                 language = dra_model_config_is_language(m->c);
    const dra_objective_kind   kind = effect_goal(m, &in);
    const dra_context_text     text = {in.context, NULL};
    const dra_gradients_config config = {
        .model = m->model, .device = m->device, .objective = kind, .terms = {.number_weight = 1}};
    const dra_microbatch q = {
        .B = 1,
        .T = in.T,
        .ids = language ? in.ids : NULL,
        .targets = dra_model_config_of(m->model)->head.kind == DRA_HEAD_TOKENS ? in.ids + 1 : NULL,
        .n_inputs = language ? 0 : in.n,
        .inputs = in.in,
        .context = in.context ? &text : NULL,
        .no_dropout = !drops};
    dra_microbatch_result r = {0};
    dra_status            st = dra_gradients_create(&config, &l, &err);
    if (st == DRA_OK) st = dra_gradients_bind(l, m->weights, &err);
    if (st == DRA_OK) st = dra_gradients_run(l, &q, &r, &err);
    dra_hash_begin(&h, 0);
    dra_hash_add_text(&h, err.text);
    dra_hash_add(&h, &r.loss, sizeof r.loss);
    for (int i = 0; st == DRA_OK && i < dra_specs_count(dra_model_params(m->model)); i++) {
        const dra_spec *p = dra_specs_at(dra_model_params(m->model), i);
        const dra_real *d = dra_gradients_of(l, i);
        if (d) dra_hash_add(&h, d, (size_t)dra_shape_count(&p->shape) * sizeof *d);
    }
    dra_gradients_destroy(l);
    return dra_hash_end(&h);
}

static inline uint64_t effect_specs(const dra_specs *specs)
{
    dra_hash h;
    dra_hash_begin(&h, 0);
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        const int64_t   facts[] = {p->limit, p->items, p->table, p->context, p->frozen};
        dra_hash_add_text(&h, p->name);
        dra_hash_add(&h, p->shape.dim, (size_t)p->shape.rank * sizeof *p->shape.dim);
        dra_hash_add(&h, facts, sizeof facts);
    }
    return dra_hash_end(&h);
}

static inline uint64_t effect_hash(effect_model *m, effect_kind kind)
{
    if (m->known[kind]) return m->hash[kind];
    m->known[kind] = true;
    switch (kind) {
    case EFFECT_OUTPUTS: return m->hash[kind] = effect_outputs(m);
    case EFFECT_PARAMETERS: return m->hash[kind] = effect_specs(dra_model_params(m->model));
    case EFFECT_STATE: return m->hash[kind] = effect_specs(dra_model_state(m->model));
    case EFFECT_GRADIENTS: return m->hash[kind] = effect_gradients(m, false);
    case EFFECT_DROPOUT: return m->hash[kind] = effect_gradients(m, true);
    default: return 0;
    }
}

/* The first thing in which two models differ. */
static inline effect_kind effect_of(effect_model *a, effect_model *b)
{
    for (int k = 0; k < EFFECT_KINDS; k++)
        if (effect_hash(a, (effect_kind)k) != effect_hash(b, (effect_kind)k)) return (effect_kind)k;
    return EFFECT_NOTHING;
}

#endif
