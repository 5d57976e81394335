/* The optimizer: one program measures the gradients, and if their norm is finite another changes
 * the weights in place. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "run/run.h"
#include "sequence/module.h"

typedef struct runnable {
    dra_program *program;
    dra_buffers *buffers;
} runnable;

struct dra_optimizer {
    dra_optimizer_config config;
    const dra_specs     *params;
    runnable             measure, update;
    dra_real           **m, **v; /* NULL where the parameter is not trained */
    dra_real             rate, factor;
    int32_t              step;
};

/* Decay pulls at matrices that project, not at norms, biases, decay logits or tables. */
static bool decays(const char *name)
{
    static const char *const maps[] = {"P", "head", "join", "kappa", "nu", "pi_k", "pi_v"};
    const char              *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (strcmp(last, maps[i]) == 0) return true;
    return strstr(last, "W_") != NULL;
}

/* ---- programs -------------------------------------------------------------------------------- */

static dra_value gradient_input(dra_graph *g, const dra_spec *p)
{
    char name[DRA_NAME_TEXT];
    return dra_input(g, dra_state_name(name, "gradient", p->name), DRA_REAL, p->shape);
}

static void build_measure(dra_graph *g, const dra_optimizer *o)
{
    const int  n = dra_specs_count(o->params);
    int        k = 0;
    dra_value *d = calloc((size_t)n + 1, sizeof *d);
    for (int i = 0; d && i < n; i++)
        if (o->m[i]) d[k++] = gradient_input(g, dra_specs_at(o->params, i));
    if (d) dra_output(g, "norm", dra_global_norm(g, k, d));
    free(d);
}

/* The groups of RWKV-4's original trainer. */
static double faster(const dra_optimizer *o, const char *name)
{
    static const struct {
        const char *part;
        double      first, second; /* in the two stages */
    } groups[] = {{".time_decay", 2, 5}, {".time_first", 3, 5}, {".mu_", 1, 5}};
    for (size_t i = 0; o->config.rwkv_rates && i < sizeof groups / sizeof *groups; i++)
        if (strstr(name, groups[i].part))
            return o->config.rwkv_stage == 2 ? groups[i].second : groups[i].first;
    return 1;
}

static void build_update(dra_graph *g, const dra_optimizer *o)
{
    const dra_value rate = dra_input(g, "rate", DRA_REAL, (dra_shape){0});
    const dra_value factor = dra_input(g, "factor", DRA_REAL, (dra_shape){0});
    const dra_value step = dra_input(g, "step", DRA_I32, (dra_shape){0});
    char            name[DRA_NAME_TEXT];
    for (int i = 0; i < dra_specs_count(o->params); i++) {
        const dra_spec *s = dra_specs_at(o->params, i);
        if (!o->m[i]) continue;
        const dra_adamw_config config = {o->config.beta1, o->config.beta2, o->config.eps,
                                         decays(s->name) ? o->config.decay : 0};
        const dra_value        p = dra_parameter(g, s->name, DRA_REAL, s->shape);
        const dra_value        d = gradient_input(g, s);
        const dra_value m = dra_state(g, dra_state_name(name, "m", s->name), DRA_REAL, s->shape);
        const dra_value v = dra_state(g, dra_state_name(name, "v", s->name), DRA_REAL, s->shape);
        const double    k = faster(o, s->name);
        const dra_value own = k == 1 ? rate : dra_affine(g, rate, k, 0);
        const dra_adamw_result r = dra_adamw(g, p, d, m, v, own, factor, step, &config);
        dra_donate(g, dra_state_name(name, "new", s->name), r.p, p);
        dra_donate(g, dra_state_name(name, "new.m", s->name), r.m, m);
        dra_donate(g, dra_state_name(name, "new.v", s->name), r.v, v);
    }
}

static dra_status make(dra_device *device, const dra_optimizer                     *o,
                       void (*build)(dra_graph *, const dra_optimizer *), runnable *out,
                       dra_error *err)
{
    dra_graph *g = NULL;
    dra_status st = dra_graph_create(&g, err);
    if (st == DRA_OK) build(g, o);
    if (st == DRA_OK) st = dra_compile(g, device, &out->program, err);
    if (st == DRA_OK) st = dra_buffers_create(out->program, &out->buffers, err);
    dra_graph_destroy(g);
    return st;
}

/* ---- making one ------------------------------------------------------------------------------ */

static size_t bytes_of(const dra_optimizer *o, int i)
{
    return (size_t)dra_shape_count(&dra_specs_at(o->params, i)->shape) * sizeof(dra_real);
}

static dra_status allocate(dra_optimizer *o, dra_error *err)
{
    const int n = dra_specs_count(o->params);
    o->m = calloc((size_t)n + 1, sizeof *o->m);
    o->v = calloc((size_t)n + 1, sizeof *o->v);
    bool ok = o->m && o->v;
    for (int i = 0; ok && i < n; i++) {
        if (dra_specs_at(o->params, i)->frozen) continue;
        o->m[i] = calloc(1, bytes_of(o, i) + 1);
        o->v[i] = calloc(1, bytes_of(o, i) + 1);
        ok = o->m[i] && o->v[i];
    }
    return ok ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "optimizer: out of memory");
}

static dra_status check(const dra_optimizer_config *c, dra_error *err)
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
    if (o->config.beta1 == 0) o->config.beta1 = 0.9;
    if (o->config.beta2 == 0) o->config.beta2 = 0.95;
    if (o->config.eps == 0) o->config.eps = 1e-8;
    o->params = dra_model_params(model);
    dra_status st = check(&o->config, err);
    if (st == DRA_OK) st = allocate(o, err);
    if (st == DRA_OK) st = make(device, o, build_measure, &o->measure, err);
    if (st == DRA_OK) st = make(device, o, build_update, &o->update, err);
    if (st == DRA_OK)
        *out = o;
    else
        dra_optimizer_destroy(o);
    return st;
}

static void release(runnable *r)
{
    dra_buffers_destroy(r->buffers);
    dra_program_destroy(r->program);
}

void dra_optimizer_destroy(dra_optimizer *o)
{
    if (!o) return;
    release(&o->measure);
    release(&o->update);
    for (int i = 0; i < dra_specs_count(o->params); i++) {
        if (o->m) free(o->m[i]);
        if (o->v) free(o->v[i]);
    }
    free(o->m);
    free(o->v);
    free(o);
}

dra_real *dra_optimizer_moment(dra_optimizer *o, int i, int which)
{
    return which ? o->v[i] : o->m[i];
}

/* ---- a step ---------------------------------------------------------------------------------- */

static dra_status bind_tensors(dra_optimizer *o, dra_weights *w, dra_learner *l, dra_error *err)
{
    char       name[DRA_NAME_TEXT];
    dra_status st = DRA_OK;
    for (int i = 0; i < dra_specs_count(o->params) && st == DRA_OK; i++) {
        const char  *p = dra_specs_at(o->params, i)->name;
        const size_t bytes = bytes_of(o, i);
        if (!o->m[i]) continue;
        dra_real *d = dra_learner_gradient_memory(l, i), *weight = dra_weights_edit(w, i);
        if (!weight) return dra_fail(err, DRA_ERR_MEMORY, "optimizer: no memory for %s", p);
        st = dra_bind(o->measure.buffers, dra_state_name(name, "gradient", p), d, bytes, err);
        if (st == DRA_OK) st = dra_bind(o->update.buffers, name, d, bytes, err);
        if (st == DRA_OK) st = dra_bind(o->update.buffers, p, weight, bytes, err);
        if (st == DRA_OK)
            st = dra_bind(o->update.buffers, dra_state_name(name, "m", p), o->m[i], bytes, err);
        if (st == DRA_OK)
            st = dra_bind(o->update.buffers, dra_state_name(name, "v", p), o->v[i], bytes, err);
    }
    return st;
}

static dra_status update(dra_optimizer *o, dra_error *err)
{
    dra_buffers *b = o->update.buffers;
    dra_status   st = dra_bind(b, "rate", &o->rate, sizeof o->rate, err);
    if (st == DRA_OK) st = dra_bind(b, "factor", &o->factor, sizeof o->factor, err);
    if (st == DRA_OK) st = dra_bind(b, "step", &o->step, sizeof o->step, err);
    return st == DRA_OK ? dra_run(b, err) : st;
}

dra_status dra_optimizer_step(dra_optimizer *o, dra_weights *w, dra_learner *l, double rate,
                              int64_t step, double *norm, dra_error *err)
{
    dra_status st = bind_tensors(o, w, l, err);
    if (st == DRA_OK) st = dra_run(o->measure.buffers, err);
    if (st != DRA_OK) return st;
    *norm = (double)*(const dra_real *)dra_result(o->measure.buffers, "norm");
    if (!isfinite(*norm)) return DRA_OK;
    const double clip = o->config.clip;
    o->rate = (dra_real)rate;
    o->factor = (dra_real)(clip > 0 ? fmin(1, clip / (*norm + 1e-6)) : 1);
    o->step = (int32_t)step;
    st = update(o, err);
    return st == DRA_OK ? dra_learner_bind(l, w, err) : st;
}
