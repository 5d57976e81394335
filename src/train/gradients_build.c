/* The graphs of microbatches: a model with its loss, and sums of gradients. */
#include <stdlib.h>

#include "graph/op.h"
#include "train/gradients.h"

/* The loss of the objective, which has inputs of its own, and its measures. */
static void build_loss(dra_graph *g, const dra_gradients *l, dra_shape each,
                       const dra_model_result *r)
{
    const bool            only = l->options & ONLY;
    const dra_loss_config c = {.model = dra_model_config_of(l->config.model),
                               .objective = &l->config.terms,
                               .entropy = {.ignore = -1,
                                           .use_ignore = true,
                                           .smoothing = only ? 0 : l->config.smoothing,
                                           .l2wrap = only ? 0 : l->config.l2wrap}};
    dra_value             in[DRA_OBJECTIVE_INPUTS];
    char                  name[DRA_NAME_TEXT];
    for (int i = 0; l->objective->inputs[i].name; i++) {
        const dra_objective_input *input = &l->objective->inputs[i];
        in[i] = dra_input(g, input->name, input->dtype,
                          dra_objective_shape(input, l->config.model, each.dim[0], each.dim[1]));
    }
    const dra_loss loss = l->objective->loss(g, r, in, &c);
    dra_output(g, "loss", loss.value);
    for (int k = 0; k < DRA_MEASURES; k++)
        if (loss.measure[k].id) dra_output(g, dra_measure_name(name, k), loss.measure[k]);
}

/* A source starts with the microbatch, so its dropout counts from 0. */
void dra_gradients_learning(dra_graph *g, const dra_gradients *l, const dra_module_call *call,
                            dra_learning *out)
{
    const dra_shape rows = DRA_SHAPE(call->tokens.B);
    *out = (dra_learning){.call = *call};
    out->call.learning = !(l->options & ONLY);
    if (l->options & DROPOUT) {
        out->call.random = dra_input(g, "random", DRA_I32, DRA_SHAPE(4));
        out->call.at = out->call.given_at = dra_input(g, "at", DRA_I32, rows);
        if (call->tokens.start > 0) out->call.given_at = dra_input(g, "given_at", DRA_I32, rows);
    }
    if (!call->context) return;
    out->context = *call->context;
    out->context.learning = out->call.learning;
    out->context.random = out->call.random;
    if (l->options & DROPOUT)
        out->context.at = out->context.given_at = dra_broadcast(g, dra_integer(g, 0), rows);
    out->call.context = &out->context;
}

void dra_gradients_microbatch(dra_graph *g, const void *self, const dra_module_call *call,
                              dra_value *state_out)
{
    const dra_gradients *l = self;
    const dra_shape      each = DRA_SHAPE(call->tokens.B, call->tokens.given);
    dra_learning         learning;
    dra_gradients_learning(g, l, call, &learning);
    const dra_model_result r = dra_model_build(g, l->config.model, &learning.call, (dra_value){0},
                                               l->config.recompute, state_out);
    if (!(l->options & LOSS)) return;
    build_loss(g, l, each, &r);
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (r.aux[k].id) dra_output(g, dra_aux_name(k), r.aux[k]);
}

/* share * loss + part * (auxiliary losses) */
static dra_value build_total(dra_graph *g, const dra_gradients *l)
{
    const dra_value share = dra_input(g, "share", DRA_REAL, (dra_shape){0});
    const dra_value part = dra_input(g, "part", DRA_REAL, (dra_shape){0});
    dra_value       total = dra_mul(g, dra_find_output(g, "loss"), share);
    for (int k = 0; k < DRA_AUX_COUNT; k++) {
        if (l->config.aux_loss[k] == 0) continue;
        const dra_value more = dra_affine(g, dra_find_output(g, dra_aux_name(k)),
                                          l->config.aux_loss[k], 0);
        total = dra_add(g, total, dra_mul(g, more, part));
    }
    return total;
}

/* Numbers for the host go into a row of metrics that is read when all is done. */
static void put_metric(dra_graph *g, const char *name, int metric)
{
    const dra_value x = dra_find_output(g, name);
    char            text[DRA_NAME_TEXT];
    if (!x.id) return;
    const dra_value to = dra_state(g, dra_metric_name(text, metric), dra_dtype_of(g, x),
                                   (dra_shape){0});
    dra_donate(g, dra_state_name(text, "put", name), x, to);
}

static void put_metrics(dra_graph *g)
{
    char name[DRA_NAME_TEXT];
    put_metric(g, "loss", DRA_METRIC_LOSS);
    put_metric(g, "clamped", DRA_METRIC_CLAMPED);
    for (int k = 0; k < DRA_MEASURES; k++)
        put_metric(g, dra_measure_name(name, k), DRA_METRIC_MEASURE + k);
    for (int k = 0; k < DRA_AUX_COUNT; k++) put_metric(g, dra_aux_name(k), DRA_METRIC_AUX + k);
}

/* Adds the gradients of parameters to the block of all of them. */
static void put_gradients(dra_graph *g, const dra_gradients *l, const dra_value *d)
{
    char name[DRA_NAME_TEXT];
    for (int i = 0; i < dra_specs_count(l->params); i++) {
        const dra_spec *p = dra_specs_at(l->params, i);
        if (p->frozen) continue;
        const dra_value sum = dra_state(g, dra_state_name(name, "sum", p->name), DRA_REAL,
                                        p->shape);
        dra_donate(g, dra_state_name(name, "gradient", p->name), dra_add(g, sum, d[i]), sum);
    }
}

/* y: the loss and, for THROUGH, the final states. Their gradients are inputs, which the gradients
 * of the initial states replace. */
static void build_gradients(dra_graph *g, const dra_gradients *l, int kind, dra_value *v,
                            const dra_value *state_out)
{
    const int  P = dra_specs_count(l->params), S = dra_specs_count(l->state);
    const int  most = kind == THROUGH ? S : 0;
    dra_value *work = calloc((size_t)(2 * (1 + most) + 2 * (P + most)), sizeof *work);
    dra_value *y, *dy, *x, *d;
    char       name[DRA_NAME_TEXT];
    int        n = 0;
    if (!work) {
        dra_build_fail(g, "gradients", DRA_ERR_MEMORY, "out of memory");
        return;
    }
    y = work, dy = y + 1 + most, x = dy + 1 + most, d = x + P + most;
    y[0] = build_total(g, l);
    for (int i = 0; i < P; i++) x[i] = v[i];
    for (int i = 0; i < most; i++) {
        const dra_spec *s = dra_specs_at(l->state, i);
        if (s->detached) continue;
        x[P + n] = v[P + i];
        y[1 + n] = state_out[i];
        dy[1 + n++] = dra_state(g, dra_state_name(name, "up", s->name), DRA_REAL,
                                dra_shape_of(g, v[P + i]));
    }
    dra_gradient(g, 1 + n, y, dy, P + n, x, d);
    put_gradients(g, l, d);
    for (int i = 0, k = 0; i < most; i++) {
        const dra_spec *s = dra_specs_at(l->state, i);
        if (s->detached) continue;
        dra_donate(g, dra_state_name(name, "down", s->name), dra_copy(g, d[P + k]), dy[1 + k]);
        k++;
    }
    free(work);
}

/* Copied at the end where the gradient still reads the initial state. */
static void put_states(dra_graph *g, const dra_gradients *l, int kind, const dra_value *in,
                       const dra_value *out)
{
    char name[DRA_NAME_TEXT];
    for (int i = 0; i < dra_specs_count(l->state); i++)
        dra_donate(g, dra_state_name(name, "next", dra_specs_at(l->state, i)->name),
                   kind == FORWARD ? out[i] : dra_copy(g, out[i]), in[i]);
}

void dra_gradients_build(dra_graph *g, void *user, const void *at, size_t bytes)
{
    const dra_gradients_key *key = at;
    dra_gradients           *l = user;
    const int                P = dra_specs_count(l->params), S = dra_specs_count(l->state);
    const int                kind = (int)key->kind;
    dra_value               *v = calloc((size_t)(P + 2 * S) + 1, sizeof *v);
    (void)bytes;
    if (v) {
        l->options = (int)key->options;
        const dra_context_shape context = dra_context_shape_of(&key->context);
        const dra_module_shape  shape = {.B = key->B,
                                         .T = key->T,
                                         .inner = key->inner,
                                         .marked = key->marks & MARKED,
                                         .skips = key->marks & SKIPS,
                                         .holes = key->marks & HOLES,
                                         .max_event = (int)key->max_event,
                                         .fresh = kind == FRESH,
                                         .clamp = l->options & CLAMP,
                                         .rows = key->rows,
                                         .context = key->context.reads ? &context : NULL};
        dra_set_precision(g, l->config.precision);
        dra_module_graph(g, &l->module, &shape, v, v + P, v + P + S);
        if (kind != FORWARD && !(l->options & ONLY)) build_gradients(g, l, kind, v, v + P + S);
        if (kind != FORWARD) put_metrics(g);
        if (kind == FORWARD || kind == CARRIED) put_states(g, l, kind, v + P, v + P + S);
    } else {
        dra_build_fail(g, "gradients", DRA_ERR_MEMORY, "out of memory");
    }
    free(v);
}
