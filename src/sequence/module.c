/* A module as a graph: its parameters, states and tokens declared by name, then its own nodes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/op.h"
#include "sequence/module.h"

const char *dra_state_name(char text[DRA_NAME_TEXT], const char *kind, const char *name)
{
    snprintf(text, DRA_NAME_TEXT, "%s.%s", kind, name);
    return text;
}

static dra_shape state_shape(const dra_spec *p, int64_t B, int64_t rows)
{
    dra_shape s = {1, {B}};
    if (p->items) s.dim[s.rank++] = rows;
    for (int32_t i = 0; i < p->shape.rank && s.rank < DRA_MAX_RANK; i++)
        s.dim[s.rank++] = p->shape.dim[i];
    return s;
}

static void declare(dra_graph *g, const dra_module *m, const dra_module_shape *shape,
                    dra_value *param, dra_value *state)
{
    char name[DRA_NAME_TEXT];
    for (int i = 0; i < dra_specs_count(m->params); i++) {
        const dra_spec *p = dra_specs_at(m->params, i);
        param[i] = dra_parameter(g, p->name, shape->dtypes ? shape->dtypes[i] : DRA_REAL, p->shape);
    }
    for (int i = 0; i < dra_specs_count(m->state) && !shape->fresh; i++) {
        const dra_spec *p = dra_specs_at(m->state, i);
        state[i] = dra_state(g, dra_state_name(name, "state", p->name), DRA_REAL,
                             state_shape(p, shape->B, p->items ? shape->rows[i] : 0));
    }
}

/* What comes in or goes out of a call, within bounds. Items would cost a pass over the whole past,
 * and a maximum is no size. */
static void guard(dra_graph *g, const dra_module *m, dra_value *state, dra_value *guarded)
{
    for (int i = 0; i < dra_specs_count(m->state); i++) {
        const dra_spec *p = dra_specs_at(m->state, i);
        dra_value       count;
        if (p->items || p->maximum || !state[i].id) continue;
        state[i] = dra_bounded(g, state[i], DRA_STATE_LIMIT, &count);
        *guarded = guarded->id ? dra_add(g, *guarded, count) : count;
    }
}

void dra_module_graph(dra_graph *g, const dra_module *module, const dra_module_shape *shape,
                      dra_value *param, dra_value *state, dra_value *state_out)
{
    const int       n_param = dra_specs_count(module->params);
    const int       n_state = dra_specs_count(module->state);
    dra_value      *all = calloc((size_t)(n_param + 3 * n_state) + 1, sizeof *all);
    dra_value      *in = all ? all + n_param : NULL, *used = in ? in + n_state : NULL;
    dra_value      *next = used ? used + n_state : NULL, guarded = {0};
    dra_module_call call = {.param = all, .state = used};
    if (!all) {
        dra_build_fail(g, "module", DRA_ERR_MEMORY, "out of memory");
        return;
    }
    declare(g, module, shape, all, in);
    if (n_state) memcpy(used, in, (size_t)n_state * sizeof *used);
    if (shape->guard) guard(g, module, used, &guarded);
    dra_tokens_declare(g, module->state, shape, &call.tokens);
    module->build(g, module->self, &call, next);
    if (shape->guard) guard(g, module, next, &guarded);
    if (guarded.id) dra_output(g, "guarded", guarded);
    for (int i = 0; param && i < n_param; i++) param[i] = all[i];
    for (int i = 0; state && i < n_state; i++) state[i] = in[i];
    for (int i = 0; state_out && i < n_state; i++) state_out[i] = next[i];
    free(all);
}

dra_value dra_module_dropout(dra_graph *g, const dra_module_call *call, const char *name, double p,
                             dra_value x)
{
    if (!call->random.id || !(p > 0)) return x;
    return dra_dropout(g, x, p,
                       &(dra_random_config){.name = name, .key = call->random, .pos = call->at});
}
