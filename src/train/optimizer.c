/* The optimizer: one program measures the gradients and changes the weights in place, unless their
 * norm or a loss is not finite. optimizer_kinds.c has AdamW, SGD, Lion and Muon. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "graph/op.h"
#include "model/model.h"
#include "train/gradients.h"
#include "train/optimizer.h"
#include "sequence/module.h"

struct dra_optimizer {
    dra_optimizer_config config;
    const dra_model     *model;
    const dra_specs     *params; /* of the model */
    dra_session         *session;
    dra_session         *with; /* shares its workspace */
    /* States of all parameters that have them, one after the other, and where in bytes. */
    dra_array *state[DRA_OPTIMIZER_STATES];
    size_t    *offset[DRA_OPTIMIZER_STATES];
    dra_array *norm;
    int       *param, *gradient, *name[DRA_OPTIMIZER_STATES]; /* numbers in the session */
    int        rate, step, metrics, fault, norm_to;
};

/* ---- the program: keyed by the rows of metrics ----------------------------------------------- */

/* The factor of all gradients, from their norm, the losses and earlier faults. */
static dra_value build_factor(dra_graph *g, const dra_optimizer *o, int64_t rows,
                              const dra_value *d, int n)
{
    const dra_value metrics = dra_state(g, "metrics", DRA_REAL, DRA_SHAPE(rows, DRA_METRICS));
    const dra_value fault = dra_state(g, "fault", DRA_I32, (dra_shape){0});
    const dra_value norm = dra_global_norm(g, n, d);
    dra_donate(g, "norm", norm, dra_state(g, "norm.to", DRA_REAL, (dra_shape){0}));
    return dra_step_factor(g, norm, dra_slice(g, metrics, 1, DRA_METRIC_LOSS, 1), fault,
                           o->config.clip);
}

static int states_of(const dra_optimizer *o, int i)
{
    return dra_optimizer_states(&o->config, dra_specs_at(o->params, i));
}

static void build_update(dra_graph *g, const dra_optimizer *o, int i, const dra_update *shared,
                         dra_value d)
{
    const dra_spec        *s = dra_specs_at(o->params, i);
    const int              n = states_of(o, i);
    const dra_group_config own = dra_optimizer_group(&o->config, o->model, s->group);
    char                   name[DRA_NAME_TEXT], part[16];
    dra_update             u = *shared;
    dra_value              old[DRA_OPTIMIZER_STATES];
    u.shape = s->shape;
    u.gradient = d;
    u.decay = own.wd;
    u.p = dra_parameter(g, s->name, DRA_REAL, s->shape);
    const dra_value p = u.p;
    for (int w = 0; w < n; w++)
        u.state[w] = old[w] = dra_state(
            g, dra_state_name(name, dra_optimizer_state_name(w), s->name), DRA_REAL, s->shape);
    if (own.lr != 1) u.rate = dra_affine(g, u.rate, own.lr, 0);
    dra_optimizer_rule(&o->config, s)->update(g, &u);
    dra_donate(g, dra_state_name(name, "new", s->name), u.p, p);
    for (int w = 0; w < n; w++) {
        snprintf(part, sizeof part, "new.%s", dra_optimizer_state_name(w));
        dra_donate(g, dra_state_name(name, part, s->name), u.state[w], old[w]);
    }
}

static void build_step(dra_graph *g, void *user, const void *key, size_t bytes)
{
    const dra_optimizer *o = user;
    const int            n = dra_specs_count(o->params);
    char                 name[DRA_NAME_TEXT];
    dra_value           *d = calloc((size_t)n + 1, sizeof *d);
    int                  k = 0;
    (void)bytes;
    if (!d) {
        dra_build_fail(g, "optimizer", DRA_ERR_MEMORY, "out of memory");
        return;
    }
    const dra_value rate = dra_input(g, "rate", DRA_REAL, (dra_shape){0});
    const dra_value step = dra_input(g, "step", DRA_I32, (dra_shape){0});
    for (int i = 0; i < n; i++) {
        const dra_spec *p = dra_specs_at(o->params, i);
        if (!p->frozen)
            d[k++] = dra_state(g, dra_state_name(name, "gradient", p->name), DRA_REAL, p->shape);
    }
    const dra_value  factor = build_factor(g, o, *(const int64_t *)key, d, k);
    const dra_update shared = {.config = &o->config, .rate = rate, .factor = factor, .step = step};
    for (int i = 0, at = 0; i < n; i++)
        if (!dra_specs_at(o->params, i)->frozen) build_update(g, o, i, &shared, d[at++]);
    free(d);
}

/* ---- making one ------------------------------------------------------------------------------ */

static void name_all(dra_optimizer *o)
{
    char text[DRA_NAME_TEXT];
    for (int i = 0; i < dra_specs_count(o->params); i++) {
        const char *name = dra_specs_at(o->params, i)->name;
        o->param[i] = dra_session_name(o->session, name);
        o->gradient[i] = dra_session_name(o->session, dra_state_name(text, "gradient", name));
        for (int w = 0; w < states_of(o, i); w++)
            o->name[w][i] = dra_session_name(
                o->session, dra_state_name(text, dra_optimizer_state_name(w), name));
    }
    o->rate = dra_session_name(o->session, "rate");
    o->step = dra_session_name(o->session, "step");
    o->metrics = dra_session_name(o->session, "metrics");
    o->fault = dra_session_name(o->session, "fault");
    o->norm_to = dra_session_name(o->session, "norm.to");
}

/* Where state w of each parameter is in their block; returns the bytes of it. */
static size_t place_states(dra_optimizer *o, int w)
{
    size_t bytes = 0;
    for (int i = 0; i < dra_specs_count(o->params); i++) {
        const dra_shape *shape = &dra_specs_at(o->params, i)->shape;
        o->offset[w][i] = bytes;
        if (w < states_of(o, i))
            bytes += ((size_t)dra_shape_count(shape) * sizeof(dra_real) + 63) / 64 * 64;
    }
    return bytes;
}

static dra_status allocate_states(dra_optimizer *o, dra_device *device, dra_error *err)
{
    enum { NUMBERS = 2 + DRA_OPTIMIZER_STATES };
    const size_t n = (size_t)dra_specs_count(o->params);
    dra_status   st = DRA_OK;
    o->param = calloc(NUMBERS * n + 1, sizeof *o->param);
    o->offset[0] = calloc(DRA_OPTIMIZER_STATES * n + 1, sizeof *o->offset[0]);
    if (!o->offset[0] || !o->param)
        return dra_fail(err, DRA_ERR_MEMORY, "optimizer: out of memory");
    o->gradient = o->param + n;
    for (size_t w = 0; w < DRA_OPTIMIZER_STATES && st == DRA_OK; w++) {
        o->name[w] = o->gradient + (w + 1) * n;
        o->offset[w] = o->offset[0] + w * n;
        const size_t bytes = place_states(o, (int)w);
        if (bytes == 0) continue;
        st = dra_array_create(device, bytes, &o->state[w], err);
        if (st == DRA_OK) st = dra_array_fill(dra_array_whole(o->state[w]), 0, err);
    }
    return st == DRA_OK ? dra_array_create(device, sizeof(dra_real), &o->norm, err) : st;
}

dra_span dra_optimizer_moment(const dra_optimizer *o, int i, int which)
{
    const dra_spec *p = dra_specs_at(o->params, i);
    if (which >= states_of(o, i)) return (dra_span){0};
    const size_t bytes = (size_t)dra_shape_count(&p->shape) * sizeof(dra_real);
    return (dra_span){o->state[which], o->offset[which][i], bytes};
}

size_t dra_optimizer_bytes(const dra_optimizer *o)
{
    size_t bytes = 0;
    for (int i = 0; i < dra_specs_count(o->params); i++)
        for (int w = 0; w < states_of(o, i); w++) bytes += dra_optimizer_moment(o, i, w).bytes;
    return bytes;
}

static dra_status bind_own(dra_optimizer *o, dra_error *err)
{
    dra_status st = dra_session_bind(o->session, o->norm_to, dra_array_whole(o->norm), err);
    for (int i = 0; i < dra_specs_count(o->params); i++)
        for (int w = 0; w < states_of(o, i) && st == DRA_OK; w++)
            st = dra_session_bind(o->session, o->name[w][i], dra_optimizer_moment(o, i, w), err);
    return st;
}

/* Settings below 0 mean 0; a momentum below 0 also means that no state is kept for it. */
static void take_zeros(dra_optimizer_config *c)
{
    double *const numbers[] = {&c->beta1, &c->beta2, &c->eps, &c->muon_rate};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i] = fmax(0, *numbers[i]);
}

static dra_status check_config(const dra_optimizer_config *c, dra_error *err)
{
    if (c->decay >= 0 && c->clip >= 0 && isfinite(c->decay) && isfinite(c->clip)) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "optimizer: decay %g, clip %g, expected 0 or more",
                    c->decay, c->clip);
}

dra_status dra_optimizer_create(const dra_optimizer_config *config, const dra_model *model,
                                dra_device *device, dra_optimizer **out, dra_error *err)
{
    dra_optimizer *o = calloc(1, sizeof *o);
    *out = NULL;
    if (!o) return dra_fail(err, DRA_ERR_MEMORY, "optimizer: out of memory");
    o->config = *config;
    o->model = model;
    o->params = dra_model_params(model);
    dra_status st = check_config(&o->config, err);
    if (st == DRA_OK) st = dra_optimizer_complete("optimizer", &o->config, err);
    if (st == DRA_OK) st = dra_groups_check("optimizer", &o->config, model, err);
    take_zeros(&o->config);
    if (st == DRA_OK) st = allocate_states(o, device, err);
    if (st == DRA_OK) st = dra_session_create(device, build_step, o, &o->session, err);
    if (st == DRA_OK) name_all(o);
    if (st == DRA_OK) st = bind_own(o, err);
    if (st == DRA_OK)
        *out = o;
    else
        dra_optimizer_destroy(o);
    return st;
}

void dra_optimizer_destroy(dra_optimizer *o)
{
    if (!o) return;
    dra_session_destroy(o->session);
    for (int w = 0; w < DRA_OPTIMIZER_STATES; w++) dra_array_destroy(o->state[w]);
    dra_array_destroy(o->norm);
    free(o->offset[0]);
    free(o->param);
    free(o);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Binds the weights as arrays that the program may write to, the gradients, the metrics and the
 * fault. */
static dra_status bind_tensors(dra_optimizer *o, dra_weights *w, const dra_gradients *l,
                               dra_span metrics, dra_error *err)
{
    dra_session *s = o->session;
    dra_device  *device = dra_session_device(s);
    dra_status   st = dra_weights_train(w, device, err);
    for (int i = 0; i < dra_specs_count(o->params) && st == DRA_OK; i++) {
        if (dra_specs_at(o->params, i)->frozen) continue;
        st = dra_session_bind(s, o->param[i], dra_weights_span(w, i, device), err);
        if (st == DRA_OK) st = dra_session_bind(s, o->gradient[i], dra_gradients_span(l, i), err);
    }
    if (st == DRA_OK) st = dra_session_bind(s, o->metrics, metrics, err);
    return st == DRA_OK ? dra_session_bind(s, o->fault, dra_session_fault(s), err) : st;
}

dra_status dra_optimizer_start(dra_optimizer *o, dra_weights *w, dra_gradients *l, double rate,
                               int64_t step, dra_error *err)
{
    const dra_real r = (dra_real)rate;
    const int32_t  t = (int32_t)step;
    int64_t        rows;
    const dra_span metrics = dra_gradients_metrics(l, &rows);
    if (o->with != dra_gradients_session(l))
        dra_session_share(o->session, o->with = dra_gradients_session(l));
    dra_status st = dra_session_select(o->session, &rows, sizeof rows, err);
    if (st == DRA_OK) st = bind_tensors(o, w, l, metrics, err);
    if (st == DRA_OK) st = dra_session_put(o->session, o->rate, &r, sizeof r, err);
    if (st == DRA_OK) st = dra_session_put(o->session, o->step, &t, sizeof t, err);
    if (st == DRA_OK) st = dra_session_start(o->session, err);
    if (st == DRA_OK) dra_weights_changed(w);
    return st == DRA_OK ? dra_gradients_bind(l, w, err) : st;
}

dra_span dra_optimizer_norm(const dra_optimizer *o) { return dra_array_whole(o->norm); }

dra_status dra_optimizer_step(dra_optimizer *o, dra_weights *w, dra_gradients *l, double rate,
                              int64_t step, double *norm, dra_error *err)
{
    const dra_status st = dra_optimizer_start(o, w, l, rate, step, err);
    return st == DRA_OK ? dra_gradients_collect(l, 0, NULL, o, norm, err) : st;
}
