/* Learning the state that texts start from: a model of which nothing else learns (model/start.c),
 * read by rows that start from it. Documents are read as one text: inside a row nothing starts. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/shape.h"
#include "model/model.h"
#include "train/batches.h"
#include "train/train.h"

typedef struct tuning {
    const dra_tune_config *c;
    dra_train_config       train; /* complete */
    dra_model             *model; /* with starts */
    dra_weights           *weights;
    dra_gradients         *gradients;
    dra_optimizer         *optimizer;
    dra_batches           *data, *held_out; /* NULL: nothing is held out */
    dra_states            *states;          /* of the rows of a step, kept without their starts */
} tuning;

/* ---- opening --------------------------------------------------------------------------------- */

static dra_status make_model(tuning *t, dra_error *err)
{
    dra_model_config         config = *dra_model_config_of(t->c->model);
    const dra_weights_config from = {t->c->weights, t->c->skip_hash, 0};
    config.tune_state = true;
    const dra_status st = dra_model_create(&config, &t->model, err);
    return st == DRA_OK ? dra_weights_load_with(t->model, &from, &t->weights, err) : st;
}

static dra_status open_batches(tuning *t, double from, double to, bool once, dra_batches **out,
                               dra_error *err)
{
    const dra_train_config  *c = &t->train;
    const dra_batches_config b = {.model = t->model,
                                  .objective = c->objective,
                                  .corpus = t->c->data,
                                  .B = c->batch,
                                  .T = c->stage[0].context,
                                  .seed = (uint64_t)c->seed,
                                  .from = from,
                                  .to = to,
                                  .cross = true,
                                  .once = once};
    return dra_batches_create(&b, out, err);
}

/* What attention keeps of a text would be lost: then a start has read nothing. */
static dra_status check_start(const dra_specs *specs, const dra_states *s, dra_error *err)
{
    const long long n = (long long)dra_states_items(s, 0);
    bool            items = false;
    if (dra_states_batch(s) != 1)
        return dra_fail(err, DRA_ERR_VALUE, "tune-state: %lld states to start from, expected 1",
                        (long long)dra_states_batch(s));
    for (int i = 0; i < dra_specs_count(specs); i++)
        items = items || dra_specs_at(specs, i)->items || dra_specs_at(specs, i)->table;
    if (!items || n == 0) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "tune-state: the state has read %lld tokens, which attention keeps, expected "
                    "one that was learned",
                    n);
}

/* Where the caller has a state to start from, it becomes what is learned further. */
static dra_status take_start(tuning *t, dra_error *err)
{
    const dra_specs *states = dra_model_state(t->model);
    dra_status       st = t->c->from ? check_start(states, t->c->from, err) : DRA_OK;
    for (int i = 0; t->c->from && i < dra_specs_count(states) && st == DRA_OK; i++) {
        const dra_spec *p = dra_specs_at(states, i);
        const int64_t   n = dra_shape_count(&p->shape);
        dra_real       *to = p->start ? dra_weights_edit(t->weights, p->start) : NULL;
        if (!p->start) continue;
        st = to ? dra_states_read(t->c->from, i, 0, to, (size_t)n, err)
                : dra_fail(err, DRA_ERR_MEMORY, "tune-state: out of memory");
        for (int64_t k = 0; k < n && st == DRA_OK; k++) to[k] -= (dra_real)p->number;
    }
    return st;
}

static dra_status make_tools(tuning *t, dra_error *err)
{
    const dra_train_config    *c = &t->train;
    const dra_gradients_config gradients = {.model = t->model,
                                            .device = t->c->device,
                                            .precision = c->precision,
                                            .recompute = c->recompute,
                                            .objective = c->objective.kind,
                                            .terms = c->objective};
    const dra_optimizer_config optimizer = dra_train_optimizer(c);
    dra_status                 st = dra_gradients_create(&gradients, &t->gradients, err);
    if (st == DRA_OK)
        st = dra_optimizer_create(&optimizer, t->model, t->c->device, &t->optimizer, err);
    if (st == DRA_OK) st = dra_gradients_bind(t->gradients, t->weights, err);
    return st == DRA_OK ? dra_states_create(t->c->device, dra_model_state(t->model), c->batch,
                                            &t->states, err)
                        : st;
}

static dra_status check_tokens(const tuning *t, dra_error *err)
{
    const int64_t V = dra_model_config_of(t->model)->vocab;
    if (dra_corpus_largest(t->c->data) < V) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "data: token %ld, but the model's vocab is %lld",
                    (long)dra_corpus_largest(t->c->data), (long long)V);
}

/* What is not said: few steps at a rate that is large for weights, and a part that is held out. */
static dra_train_config settings_of(const dra_train_config *given)
{
    dra_train_config c = *given;
    if (c.steps == 0) c.steps = 300;
    if (c.lr == 0) c.lr = 0.02;
    if (c.split == 0) c.split = 0.1;
    return c;
}

static dra_status open_tuning(tuning *t, dra_error *err)
{
    dra_status st = make_model(t, err);
    t->train = settings_of(t->c->train);
    if (st == DRA_OK) st = dra_train_config_complete(&t->train, t->model, err);
    if (st == DRA_OK) st = check_tokens(t, err);
    const double split = t->train.split;
    if (st == DRA_OK) st = open_batches(t, 0, 1 - split, false, &t->data, err);
    if (st == DRA_OK && split > 0) st = open_batches(t, 1 - split, 1, true, &t->held_out, err);
    if (st == DRA_OK) st = take_start(t, err);
    return st == DRA_OK ? make_tools(t, err) : st;
}

static void close_tuning(tuning *t)
{
    dra_states_destroy(t->states);
    dra_optimizer_destroy(t->optimizer);
    dra_gradients_destroy(t->gradients);
    dra_batches_destroy(t->held_out);
    dra_batches_destroy(t->data);
    dra_weights_destroy(t->weights);
    dra_model_destroy(t->model);
}

/* ---- learning -------------------------------------------------------------------------------- */

/* Batch i of some data, whose rows start where they are to. */
static dra_status run_batch(tuning *t, dra_batches *data, int64_t i, bool only_loss,
                            dra_microbatch_result *out, double *counts, dra_error *err)
{
    dra_microbatch q = {.states = t->states,
                        .only_loss = only_loss,
                        .add = only_loss,
                        .seed = (uint64_t)t->train.seed,
                        .step = (uint64_t)i};
    dra_batch_part room;
    dra_batch      batch;
    dra_status     st = dra_states_reset(t->states, -1, err);
    if (st == DRA_OK) st = dra_batches_read(data, i, only_loss ? 0 : i, &batch, err);
    if (st != DRA_OK) return st;
    *counts = dra_batch_cut(&batch, 0, batch.B, &room, &q);
    return dra_gradients_run(t->gradients, &q, out, err);
}

static dra_status evaluate_held_out(tuning *t, double *loss, dra_error *err)
{
    double     sum = 0, all = 0;
    dra_status st = DRA_OK;
    *loss = NAN;
    for (int64_t i = 0; t->held_out && i < dra_batches_steps(t->held_out) && st == DRA_OK; i++) {
        dra_microbatch_result r = {0};
        double                counts = 0;
        st = run_batch(t, t->held_out, i, true, &r, &counts, err);
        sum += counts * r.loss;
        all += counts;
    }
    if (all > 0) *loss = sum / all;
    return st;
}

static dra_status one_step(tuning *t, int64_t step, dra_tune_event *e, dra_error *err)
{
    dra_microbatch_result r = {0};
    double                counts = 0;
    e->rate = dra_train_rate(&t->train, step);
    dra_status st = run_batch(t, t->data, step - 1, false, &r, &counts, err);
    if (st == DRA_OK)
        st = dra_optimizer_step(t->optimizer, t->weights, t->gradients, e->rate, step, &e->norm,
                                err);
    e->loss = r.loss;
    if (st == DRA_OK && !isfinite(e->loss + e->norm))
        st = dra_fail(err, DRA_ERR_VALUE,
                      "tune-state: step %lld is not finite (a smaller rate may help)",
                      (long long)step);
    return st;
}

static dra_status learn_state(tuning *t, dra_error *err)
{
    const int64_t  every = t->train.eval_every, steps = t->train.steps;
    dra_tune_event e = {.steps = steps, .loss = NAN};
    dra_status     st = evaluate_held_out(t, &e.eval_loss, err);
    bool           more = st == DRA_OK && (!t->c->event || t->c->event(t->c->user, &e));
    for (e.step = 1; e.step <= steps && more && st == DRA_OK; e.step++) {
        e.eval_loss = NAN;
        st = one_step(t, e.step, &e, err);
        if (st == DRA_OK && (e.step == steps || (every > 0 && e.step % every == 0)))
            st = evaluate_held_out(t, &e.eval_loss, err);
        if (st == DRA_OK && t->c->event) more = t->c->event(t->c->user, &e);
    }
    return st;
}

/* The learned starts as a state of the model itself. */
static dra_status make_state(const tuning *t, dra_states **out, dra_error *err)
{
    const dra_specs *states = dra_model_state(t->model);
    dra_status st = dra_states_create(t->c->device, dra_model_state(t->c->model), 1, out, err);
    for (int i = 0; i < dra_specs_count(states) && st == DRA_OK; i++) {
        const dra_spec *p = dra_specs_at(states, i);
        const size_t    n = (size_t)dra_shape_count(&p->shape);
        if (!p->start) continue;
        const dra_real *from = dra_weights_at(t->weights, p->start);
        dra_real       *to = from ? malloc(n * sizeof *to + 1) : NULL;
        for (size_t k = 0; k < n && to; k++) to[k] = from[k] + (dra_real)p->number;
        st = to ? dra_states_write(*out, i, 0, to, n, err)
                : dra_fail(err, DRA_ERR_MEMORY, "tune-state: out of memory");
        free(to);
    }
    return st;
}

dra_status dra_tune_state(const dra_tune_config *c, dra_states **out, dra_error *err)
{
    tuning t = {.c = c};
    *out = NULL;
    if (!c->device || !c->model || !c->weights || !c->data || !c->train)
        return dra_fail(err, DRA_ERR_VALUE,
                        "tune-state: no device, model, weights, data or settings");
    dra_status st = open_tuning(&t, err);
    if (st == DRA_OK) st = learn_state(&t, err);
    if (st == DRA_OK) st = make_state(&t, out, err);
    close_tuning(&t);
    if (st == DRA_OK) return st;
    dra_states_destroy(*out);
    *out = NULL;
    return st;
}
