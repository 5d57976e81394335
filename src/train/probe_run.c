/* Probes: training on one split, testing on the other.
 *
 * Step s reads rows (s-1) B .. s B - 1 of the train split; a test reads rows 0 .. tests - 1 of the
 * test split. Tests read right answers before the next one is asked for. If an answer is one run of
 * tokens, the same rows are right as if the model generated them: up to its first mistake both read
 * the same tokens. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/shape.h"
#include "train/probe.h"
#include "train/train.h"

enum { TEST_TOKENS = 1024 }; /* read at a time by tests, which keep logits of all of them */

typedef struct work {
    const dra_probe_config *c;
    const dra_probe        *p;
    dra_train_config        train; /* complete */
    dra_gradients          *gradients;
    dra_optimizer          *optimizer;
    int                     blend;      /* the parameter of a blend by schedule; -1: none */
    double                  blend_from; /* where it started */
    int64_t                *chunk;      /* lengths of chunks */
    int                     chunks;

    dra_view         view;
    dra_reader      *reader;
    dra_states      *states;
    int64_t          rows, tests;           /* of a test: at a time, in total */
    int32_t         *ids, *targets, *found; /* (batch, T), or (rows, T) in tests */
    int32_t         *part;                  /* (rows, TEST_TOKENS) of ids */
    int64_t         *from;                  /* (rows, T) in tests: see dra_probe_line */
    dra_probe_result r;
} work;

static double read_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- opening --------------------------------------------------------------------------------- */

static dra_status complete_work(work *w, dra_error *err)
{
    const dra_model_config *m = dra_model_config_of(w->c->model);
    dra_train_config       *t = &w->train;
    *t = *w->c->train;
    t->stages = 1;
    t->stage[0] = (dra_stage){.context = w->p->length};
    if (m->vocab < w->p->vocab)
        return dra_fail(err, DRA_ERR_VALUE, "probe %s: needs %lld tokens, the model has %lld",
                        w->p->task, (long long)w->p->vocab, (long long)m->vocab);
    if (m->visible == DRA_VISIBLE_BIDIRECTIONAL)
        return dra_fail(err, DRA_ERR_VALUE,
                        "probe %s: the model is an encoder, whose tokens would see the answers",
                        w->p->task);
    if (w->c->tests < 0 || !(w->c->until >= 0 && w->c->until <= 1))
        return dra_fail(err, DRA_ERR_VALUE,
                        "probe: %lld tests until %g, expected 0 or more, 0 to 1",
                        (long long)w->c->tests, w->c->until);
    return dra_train_config_complete(t, w->c->model, err);
}

static dra_status open_learner(work *w, dra_error *err)
{
    const dra_probe_config    *c = w->c;
    const dra_train_config    *t = &w->train;
    dra_gradients_config       l = {.model = c->model,
                                    .device = c->device,
                                    .precision = t->precision,
                                    .recompute = t->recompute,
                                    .smoothing = t->smoothing};
    const dra_optimizer_config o = dra_train_optimizer(t);
    memcpy(l.aux_loss, t->aux_loss, sizeof l.aux_loss);
    dra_status st = dra_gradients_create(&l, &w->gradients, err);
    if (st == DRA_OK) st = dra_gradients_bind(w->gradients, c->weights, err);
    if (st == DRA_OK) st = dra_optimizer_create(&o, c->model, c->device, &w->optimizer, err);
    w->blend = dra_specs_find(dra_model_params(c->model), "blend");
    if (w->blend >= 0) w->blend_from = (double)dra_weights_at(c->weights, w->blend)[0];
    return st;
}

static dra_status open_reader(work *w, dra_error *err)
{
    w->view = (dra_view){.model = w->c->model, .logits = true};
    const dra_module module = dra_view_module(&w->view);
    const dra_status st = dra_reader_create(w->c->device, &module, &w->reader, err);
    return st == DRA_OK ? dra_states_create(w->c->device, module.state, w->rows, &w->states, err)
                        : st;
}

static dra_status open_rows(work *w, dra_error *err)
{
    const int64_t most = dra_imax(w->train.batch, w->rows), length = w->train.chunk;
    int64_t       T = w->p->length;
    for (int i = 0; i < w->c->lengths; i++) T = dra_imax(T, w->c->length[i]);
    w->ids = calloc((size_t)(3 * most * T), sizeof *w->ids);
    w->from = calloc((size_t)(w->rows * T), sizeof *w->from);
    w->part = calloc((size_t)(w->rows * dra_imin(T, TEST_TOKENS)), sizeof *w->part);
    w->chunk = calloc((size_t)(length ? dra_div_up(T, length) : 1), sizeof *w->chunk);
    if (!w->ids || !w->part || !w->chunk || !w->from)
        return dra_fail(err, DRA_ERR_MEMORY, "probe: out of memory");
    w->targets = w->ids + most * T;
    w->found = w->targets + most * T;
    for (int64_t at = 0; length && at < w->p->length; at += length)
        w->chunk[w->chunks++] = dra_imin(length, w->p->length - at);
    return DRA_OK;
}

static dra_status open_work(work *w, dra_error *err)
{
    dra_status st = complete_work(w, err);
    if (st != DRA_OK) return st;
    w->tests = w->c->tests ? w->c->tests : 256;
    w->rows = dra_imin(w->tests, w->train.batch);
    w->r = (dra_probe_result){
        .steps = w->train.steps, .accuracy = NAN, .test_loss = NAN, .loss = NAN};
    st = open_rows(w, err);
    if (st == DRA_OK) st = open_learner(w, err);
    return st == DRA_OK ? open_reader(w, err) : st;
}

static void close_work(work *w)
{
    dra_states_destroy(w->states);
    dra_reader_destroy(w->reader);
    dra_optimizer_destroy(w->optimizer);
    dra_gradients_destroy(w->gradients);
    free(w->chunk);
    free(w->from);
    free(w->part);
    free(w->ids);
}

/* Makes n rows of a split from `first` on. */
static dra_status make_rows(work *w, dra_split split, int64_t first, int64_t n, dra_error *err)
{
    const int64_t T = w->p->length;
    dra_status    st = DRA_OK;
    for (int64_t b = 0; b < n && st == DRA_OK; b++)
        st = dra_probe_row_from(w->p, split, first + b, w->ids + b * T, w->targets + b * T,
                                split == DRA_SPLIT_TEST ? w->from + b * T : NULL, err);
    return st;
}

/* ---- training -------------------------------------------------------------------------------- */

static dra_status set_blend(work *w, int64_t step, dra_error *err)
{
    if (w->blend < 0) return DRA_OK;
    dra_real *a = dra_weights_edit(w->c->weights, w->blend);
    if (!a) return dra_fail(err, DRA_ERR_MEMORY, "probe: out of memory");
    a[0] = (dra_real)dra_train_blend(&w->train, w->blend_from, step);
    return dra_gradients_bind(w->gradients, w->c->weights, err);
}

static dra_status train_step(work *w, dra_error *err)
{
    const dra_train_config *t = &w->train;
    const int64_t           step = w->r.step + 1;
    const double            began = read_clock();
    const dra_microbatch    microbatch = {.B = t->batch,
                                          .T = w->p->length,
                                          .ids = w->ids,
                                          .targets = w->targets,
                                          .chunks = w->chunks,
                                          .chunk = w->chunk,
                                          .seed = (uint64_t)t->seed,
                                          .step = (uint64_t)step,
                                          .clamp = t->clamp_states};
    dra_microbatch_result   r = {0};
    double                  norm = NAN;
    dra_status st = make_rows(w, DRA_SPLIT_TRAIN, (step - 1) * t->batch, t->batch, err);
    if (st == DRA_OK) st = set_blend(w, step, err);
    if (st == DRA_OK) st = dra_gradients_run(w->gradients, &microbatch, &r, err);
    w->r.rate = dra_train_rate(t, step);
    if (st == DRA_OK)
        st = dra_optimizer_step(w->optimizer, w->c->weights, w->gradients, w->r.rate, step, &norm,
                                err);
    if (st == DRA_OK && !(isfinite(r.loss) && isfinite(norm)))
        st = dra_fail(
            err, DRA_ERR_VALUE,
            "probe %s: step %lld: loss %g, gradient norm %g: not finite (a smaller lr may "
            "help)",
            w->p->task, (long long)step, r.loss, norm);
    w->r.step = step;
    w->r.loss = r.loss;
    w->r.tokens += t->batch * w->p->length;
    w->r.seconds += read_clock() - began;
    return st;
}

/* ---- testing --------------------------------------------------------------------------------- */

/* The most likely token, the first among equals; *loss: the loss of `target`. */
static int32_t judge_logits(const dra_real *x, int64_t V, int32_t target, double *loss)
{
    int32_t best = 0;
    double  sum = 0;
    for (int64_t v = 1; v < V; v++)
        if (x[v] > x[best]) best = (int32_t)v;
    for (int64_t v = 0; v < V; v++) sum += exp((double)(x[v] - x[best]));
    *loss = log(sum) - (double)(x[target] - x[best]);
    return best;
}

/* Reads n columns of all rows from `from` on, and finds the answers asked for there. */
static dra_status read_part(work *w, int64_t from, int64_t n, double *loss, dra_error *err)
{
    const int64_t T = w->p->length, V = dra_model_config_of(w->c->model)->vocab;
    for (int64_t b = 0; b < w->rows; b++)
        memcpy(w->part + b * n, w->ids + b * T + from, (size_t)n * sizeof *w->part);
    const dra_named in = {"ids", w->part, (size_t)(w->rows * n) * sizeof *w->part};
    dra_status      st = dra_reader_read(w->reader, w->states, n, NULL, 1, &in, err);
    const dra_real *logits = st == DRA_OK ? dra_reader_result(w->reader, "logits") : NULL;
    if (st == DRA_OK && !logits) st = dra_fail(err, DRA_ERR_MEMORY, "probe: out of memory");
    for (int64_t i = 0; i < w->rows * n && st == DRA_OK; i++) {
        const int64_t at = i / n * T + from + i % n;
        double        one = 0;
        if (w->targets[at] < 0) continue;
        w->found[at] = judge_logits(logits + i * V, V, w->targets[at], &one);
        *loss += one;
    }
    return st;
}

static int64_t count_asked(const int32_t *targets, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += targets[i] >= 0;
    return count;
}

static int log2_of(int64_t x)
{
    int n = 0;
    while (x > 1 && n < DRA_PROBE_AGES - 1) x /= 2, n++;
    return n;
}

static void count_target(dra_probe_counts *c, bool right)
{
    c->asked++;
    c->right += right;
}

static void count_parts(const work *w, dra_probe_parts *out)
{
    const int64_t T = w->p->length;
    for (int64_t b = 0; b < w->rows; b++)
        for (int64_t t = 0, place = 0; t < T; t++) {
            const int64_t i = b * T + t, from = w->from[i];
            const bool    right = w->found[i] == w->targets[i];
            if (w->targets[i] < 0) continue;
            count_target(&out->place[dra_imin(place++, DRA_PROBE_PLACES - 1)], right);
            if (from < 0) continue;
            count_target(&out->age[log2_of(t - from + 1)], right);
            count_target(&out->depth[from * DRA_PROBE_DEPTHS / T], right);
        }
}

/* Tests rows of w->p. */
static dra_status test_rows(work *w, dra_probe_test *out, dra_error *err)
{
    const int64_t   T = w->p->length;
    dra_probe_score score = {0};
    double          loss = 0;
    int64_t         asked = 0;
    *out = (dra_probe_test){.length = T, .chance = dra_probe_chance(w->p)};
    dra_status st = dra_weights_bind(w->c->weights, w->reader, err);
    for (; out->tests < w->tests && st == DRA_OK; out->tests += w->rows) {
        st = make_rows(w, DRA_SPLIT_TEST, out->tests, w->rows, err);
        if (st == DRA_OK) st = dra_states_reset(w->states, -1, err);
        for (int64_t at = 0; at < T && st == DRA_OK; at += TEST_TOKENS)
            st = read_part(w, at, dra_imin(TEST_TOKENS, T - at), &loss, err);
        if (st != DRA_OK) break;
        dra_probe_score_add(w->p, w->rows, w->targets, w->found, &score);
        count_parts(w, &out->parts);
        asked += count_asked(w->targets, w->rows * T);
    }
    out->answers = score.answers;
    out->accuracy = (double)score.right / (double)score.answers;
    out->loss = loss / (double)asked;
    return st;
}

static dra_status run_test(work *w, dra_error *err)
{
    dra_probe_test   t;
    const dra_status st = test_rows(w, &t, err);
    if (st != DRA_OK) return st;
    w->r.tested = true;
    w->r.tests = t.tests;
    w->r.answers = t.answers;
    w->r.accuracy = t.accuracy;
    w->r.test_loss = t.loss;
    w->r.parts = t.parts;
    w->r.reached = w->c->until > 0 && w->r.accuracy >= w->c->until;
    w->r.state_bytes = dra_states_bytes(w->states) / (size_t)w->rows;
    return DRA_OK;
}

/* The same probe with longer or shorter rows. */
static dra_status check_lengths(const work *w, dra_error *err)
{
    dra_status st = DRA_OK;
    if (w->c->lengths > DRA_PROBE_TESTS)
        return dra_fail(err, DRA_ERR_VALUE, "probe: %d lengths to test, expected at most %d",
                        w->c->lengths, DRA_PROBE_TESTS);
    for (int i = 0; i < w->c->lengths && st == DRA_OK; i++) {
        dra_probe p = *w->p;
        p.length = w->c->length[i];
        st = dra_probe_complete(&p, err);
        if (st == DRA_OK) st = dra_model_check_positions(w->c->model, 0, p.length, err);
    }
    return st;
}

static dra_status test_lengths(work *w, dra_error *err)
{
    const dra_probe *own = w->p;
    dra_probe        p = *own;
    dra_status       st = DRA_OK;
    for (int i = 0; i < w->c->lengths && st == DRA_OK; i++) {
        p.length = w->c->length[i];
        w->p = &p;
        st = test_rows(w, &w->r.test[i], err);
        w->r.lengths = i + 1;
    }
    w->p = own;
    return st;
}

/* ---- the run --------------------------------------------------------------------------------- */

dra_status dra_probe_run(const dra_probe_config *c, dra_on_probe fn, void *user,
                         dra_probe_result *out, dra_error *err)
{
    dra_probe  p = *c->probe;
    work       w = {.c = c, .p = &p};
    bool       stop = false;
    dra_status st = dra_probe_complete(&p, err);
    if (st == DRA_OK) st = check_lengths(&w, err);
    if (st == DRA_OK) st = open_work(&w, err);
    while (st == DRA_OK && w.r.step < w.r.steps && !stop && !w.r.reached) {
        const int64_t every = w.train.eval_every, next = w.r.step + 1;
        st = train_step(&w, err);
        w.r.tested = false;
        if (st == DRA_OK && (next == w.r.steps || (every > 0 && next % every == 0)))
            st = run_test(&w, err);
        if (st == DRA_OK && fn) stop = !fn(user, &w.r);
    }
    if (st == DRA_OK && !w.r.tested) st = run_test(&w, err);
    if (st == DRA_OK) st = test_lengths(&w, err);
    close_work(&w);
    *out = w.r;
    return st;
}
