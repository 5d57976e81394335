/* A module as a graph: its parameters, states and tokens declared by name, then its own nodes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "graph/op.h"
#include "sequence/module.h"

const char *dra_state_name(char text[DRA_NAME_TEXT], const char *kind, const char *name)
{
    snprintf(text, DRA_NAME_TEXT, "%s.%s", kind, name);
    return text;
}

/* Items of a pool belong to all sequences: their tensor has batch 1. */
static int64_t batch_of(const dra_spec *p, const dra_module_shape *shape)
{
    if (!shape->pool) return shape->B;
    return p->items ? 1 : shape->pool;
}

static dra_shape state_shape(const dra_spec *p, int64_t B, int64_t rows)
{
    dra_shape s = {1, {B}};
    if (dra_spec_has_rows(p)) s.dim[s.rank++] = rows;
    for (int32_t i = 0; i < p->shape.rank && s.rank < DRA_MAX_RANK; i++)
        s.dim[s.rank++] = p->shape.dim[i];
    return s;
}

/* ---- layouts of parameters ------------------------------------------------------------------- */

dra_shape dra_param_layout_shape(const dra_param_layout *f, const dra_shape *s)
{
    dra_shape shape = *s;
    if (f->parts) shape.dim[0] *= f->parts;
    return f->transposed ? DRA_SHAPE(shape.dim[1], shape.dim[0]) : shape;
}

size_t dra_param_layout_bytes(const dra_param_layout *f, const dra_shape *s)
{
    const dra_shape shape = dra_param_layout_shape(f, s);
    size_t          bytes = 0;
    dra_type_bytes(f->dtype, &shape, &bytes);
    return bytes;
}

size_t dra_param_layout_place(const dra_param_layout *f, const dra_shape *s, size_t k)
{
    const size_t all = (size_t)dra_shape_count(s), parts = f->parts ? (size_t)f->parts : 1;
    if (!f->transposed) return (size_t)f->part * all + k;
    const size_t O = (size_t)s->dim[0], I = (size_t)s->dim[1];
    return k % I * parts * O + (size_t)f->part * O + k / I;
}

bool dra_param_layout_equal(const dra_param_layout *a, const dra_param_layout *b)
{
    return a->dtype == b->dtype && a->transposed == b->transposed && a->part == b->part &&
           a->parts == b->parts;
}

/* Declares the stored tensor and views it as the parameter; products take its strides as they
 * are. */
static dra_value declare_as(dra_graph *g, const dra_spec *p, const dra_param_layout *f)
{
    const dra_value all = dra_parameter(g, p->name, f->dtype, dra_param_layout_shape(f, &p->shape));
    const dra_value x = f->transposed ? dra_transpose(g, all, 0, 1) : all;
    return f->parts ? dra_slice(g, x, 0, f->part * p->shape.dim[0], p->shape.dim[0]) : x;
}

/* ---- the graph ------------------------------------------------------------------------------- */

/* Whoever asks for W gets W + scale B A. Products take the factors; where something else reads the
 * matrix, it is made. */
static void add_factors(dra_graph *g, const dra_specs *params, dra_value *param)
{
    for (int i = 0; i < dra_specs_count(params) && !dra_graph_failed(g); i++) {
        const dra_spec *p = dra_specs_at(params, i);
        if (!p->factors) continue;
        const dra_value   w = dra_dtype_of(g, param[i]) == DRA_REAL ? param[i]
                                                                    : dra_cast(g, param[i], DRA_REAL);
        const dra_factors f = {param[i], param[p->factors], param[p->factors + 1], p->factor_scale};
        param[i] = dra_add(g, w, dra_affine(g, dra_matmul(g, f.b, f.a), f.scale, 0));
        dra_note_factors(g, param[i], &f);
    }
}

static void declare_inputs(dra_graph *g, const dra_module *m, const dra_module_shape *shape,
                           dra_value *param, dra_value *state)
{
    char name[DRA_NAME_TEXT];
    for (int i = 0; i < dra_specs_count(m->params); i++) {
        const dra_param_layout plain = {DRA_REAL};
        param[i] = declare_as(g, dra_specs_at(m->params, i),
                              shape->layouts ? &shape->layouts[i] : &plain);
    }
    add_factors(g, m->params, param);
    for (int i = 0; i < dra_specs_count(m->state) && !shape->fresh; i++) {
        const dra_spec *p = dra_specs_at(m->state, i);
        state[i] = dra_state(
            g, dra_state_name(name, "state", p->name), dra_spec_dtype(p),
            state_shape(p, batch_of(p, shape), dra_spec_has_rows(p) ? shape->rows[i] : 0));
    }
}

/* ---- starts that are learned ----------------------------------------------------------------- */

/* States as they are kept, without their starts, become those that memories read, or back. Reading
 * a text whole, in parts or from where it stopped so gives the same gradients of starts. */
static void shift_states(dra_graph *g, const dra_module *m, const dra_value *param, bool back,
                         dra_value *state)
{
    for (int i = 0; i < dra_specs_count(m->state) && !dra_graph_failed(g); i++) {
        const dra_spec *p = dra_specs_at(m->state, i);
        if (!p->start || !state[i].id) continue;
        const dra_value start = dra_reshape(g, param[p->start], state_shape(p, 1, 0));
        state[i] = (back ? dra_sub : dra_add)(g, state[i], start);
    }
}

/* ---- rows of a pool -------------------------------------------------------------------------- */

/* Takes the states without items of B rows out of the pool; give_rows() puts them back. */
static void take_rows(dra_graph *g, const dra_module *m, const dra_module_shape *shape,
                      const dra_value *in, dra_value *used)
{
    if (!shape->pool) return;
    const dra_value from = dra_input(g, DRA_POOL_FROM, DRA_I32, DRA_SHAPE(shape->B));
    for (int i = 0; i < dra_specs_count(m->state) && !dra_graph_failed(g); i++) {
        const dra_spec *p = dra_specs_at(m->state, i);
        if (p->items || (p->context && shape->context)) continue;
        const dra_value rows = dra_reshape(g, in[i], DRA_SHAPE(shape->pool, -1));
        used[i] = dra_reshape(g, dra_embedding(g, rows, from),
                              state_shape(p, shape->B, shape->rows[i]));
    }
}

static void give_rows(dra_graph *g, const dra_module *m, const dra_module_shape *shape,
                      const dra_value *in, dra_value *next)
{
    if (!shape->pool) return;
    const dra_value to = dra_input(g, DRA_POOL_TO, DRA_I32, DRA_SHAPE(1, shape->B));
    for (int i = 0; i < dra_specs_count(m->state) && !dra_graph_failed(g); i++) {
        const dra_spec *p = dra_specs_at(m->state, i);
        if (p->items || !next[i].id) continue;
        const dra_value rows = dra_reshape(g, in[i], DRA_SHAPE(1, shape->pool, -1));
        const dra_value some = dra_reshape(g, next[i], DRA_SHAPE(1, shape->B, -1));
        next[i] = dra_reshape(g, dra_write_rows(g, rows, some, to),
                              state_shape(p, shape->pool, shape->rows[i]));
    }
}

static bool is_clamped(const dra_module *m, int i)
{
    const dra_spec *p = dra_specs_at(m->state, i);
    return !dra_spec_has_rows(p) && !p->maximum && !p->table;
}

/* Clamps states at the start or end of a call. Not items, which would cost a pass over the whole
 * past, and not states that hold a maximum, whose size means nothing. `some` has room for all
 * states. */
static void clamp_states(dra_graph *g, const dra_module *m, const dra_module_shape *shape,
                         dra_value *state, dra_value *some, dra_value *clamped)
{
    const double limit = shape->limit > 0 ? shape->limit : DRA_STATE_LIMIT;
    const int    all = dra_specs_count(m->state);
    int          n = 0;
    for (int i = 0; i < all; i++)
        if (is_clamped(m, i) && state[i].id) some[n++] = state[i];
    if (!n) return;
    const dra_value count = dra_clamp_states(g, n, some, limit);
    *clamped = clamped->id ? dra_add(g, *clamped, count) : count;
    for (int i = 0, k = 0; i < all; i++)
        if (is_clamped(m, i) && state[i].id) state[i] = some[k++];
}

/* A call that reads a source must not see that of the call before, which is still in the state. */
static void hide_context(const dra_module *m, dra_value *state)
{
    for (int i = 0; i < dra_specs_count(m->state); i++)
        if (dra_specs_at(m->state, i)->context) state[i] = (dra_value){0};
}

/* Writes the items (B, T, ...) of a source that was read into the rows of their states; if none was
 * read, the states stay. */
static void keep_context(dra_graph *g, const dra_module *m, const dra_module_shape *shape,
                         dra_value *next)
{
    if (!shape->context) hide_context(m, next);
    if (!shape->context || shape->fresh) return;
    for (int i = 0; i < dra_specs_count(m->state) && !dra_graph_failed(g); i++) {
        const dra_spec *p = dra_specs_at(m->state, i);
        if (!p->context) continue;
        const dra_shape found = next[i].id ? dra_shape_of(g, next[i]) : (dra_shape){0};
        const dra_shape read = state_shape(p, shape->B, shape->context->T);
        if (!dra_shape_equal(&found, &read))
            dra_build_fail(g, "module", DRA_ERR_SHAPE,
                           "the items of the context that %s holds are not put out", p->name);
        else if (read.dim[1] < shape->rows[i])
            next[i] = dra_pad(g, next[i], 1, 0, shape->rows[i] - read.dim[1], 0);
    }
}

void dra_module_graph(dra_graph *g, const dra_module *module, const dra_module_shape *shape,
                      dra_value *param, dra_value *state, dra_value *state_out)
{
    const int       n_param = dra_specs_count(module->params);
    const int       n_state = dra_specs_count(module->state);
    dra_value      *all = calloc((size_t)(n_param + 5 * n_state) + 1, sizeof *all);
    dra_value      *in = all ? all + n_param : NULL, *used = in ? in + n_state : NULL;
    dra_value      *next = used ? used + n_state : NULL, clamped = {0};
    dra_value      *some = next ? next + n_state : NULL;
    dra_module_call call = {.param = all, .state = used};
    dra_module_call text = {.param = all, .state = some ? some + n_state : NULL};
    if (!all) {
        dra_build_fail(g, "module", DRA_ERR_MEMORY, "out of memory");
        return;
    }
    declare_inputs(g, module, shape, all, in);
    if (n_state) memcpy(used, in, (size_t)n_state * sizeof *used);
    take_rows(g, module, shape, in, used);
    shift_states(g, module, all, false, used);
    if (shape->clamp) clamp_states(g, module, shape, used, some, &clamped);
    if (shape->context) hide_context(module, used);
    dra_tokens_declare(g, module, shape, &call.tokens);
    dra_context_declare(g, module, shape, &call, &text);
    module->build(g, module->self, &call, next);
    keep_context(g, module, shape, next);
    if (shape->clamp) clamp_states(g, module, shape, next, some, &clamped);
    shift_states(g, module, all, true, next);
    if (clamped.id) dra_output(g, "clamped", clamped);
    give_rows(g, module, shape, in, next);
    for (int i = 0; param && i < n_param; i++) param[i] = all[i];
    for (int i = 0; state && i < n_state; i++) state[i] = in[i];
    for (int i = 0; state_out && i < n_state; i++) state_out[i] = next[i];
    free(all);
}

void dra_module_count_clamped(dra_graph *g, const char *name)
{
    const dra_value count = dra_find_output(g, "clamped");
    if (!count.id) return;
    const dra_value sum = dra_state(g, name, DRA_I32, (dra_shape){0});
    dra_donate(g, "clamped.sum.next", dra_add(g, sum, count), sum);
}

static dra_value drop_values(dra_graph *g, const dra_module_call *call, const char *name, double p,
                             dra_value at, dra_value x)
{
    if (!call->random.id || !(p > 0)) return x;
    return dra_dropout(g, x, p, &(dra_random_config){.name = name, .key = call->random, .pos = at});
}

dra_value dra_module_dropout(dra_graph *g, const dra_module_call *call, const char *name, double p,
                             dra_value x)
{
    return drop_values(g, call, name, p, call->at, x);
}

dra_value dra_module_dropout_given(dra_graph *g, const dra_module_call *call, const char *name,
                                   double p, dra_value x)
{
    return drop_values(g, call, name, p, call->given_at, x);
}
