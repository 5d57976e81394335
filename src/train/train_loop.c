/* A run from step to step.
 *
 * A step depends only on its number, the seed, the data, weights, moments and carried states. A
 * checkpoint holds or names all of them, so a resumed run gives the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/shape.h"
#include "file/fail.h"
#include "train/gradients.h"
#include "train/ranks.h"
#include "train/train.h"

static double read_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- microbatches ---------------------------------------------------------------------------- */

bool dra_trainer_marked(const dra_trainer *t) { return dra_batches_marked(t->batches); }

int dra_trainer_chunks(dra_trainer *t, int64_t T)
{
    const int64_t length = t->at.train.chunk;
    int           n = 0;
    if (length == 0) return 0;
    for (int64_t at = 0; at < T; at += length) t->chunk[n++] = dra_imin(length, T - at);
    return n;
}

static void add_result(dra_event *e, double share, const dra_microbatch_result *r)
{
    e->loss += share * r->loss;
    e->clamped += r->clamped;
    for (int k = 0; k < DRA_AUX_COUNT; k++) e->aux[k] += share * r->aux[k];
    for (int k = 0; k < DRA_MEASURES_MOST; k++) e->measure[k] += share * r->measure[k];
}

/* Starts microbatch k of a step, which is added to its gradients. */
static dra_status start_microbatch(void *user, int64_t k, dra_error *err)
{
    dra_trainer            *t = user;
    const dra_train_config *c = &t->at.train;
    const int64_t           step = t->at.step + 1;
    const bool              early = step <= c->clamp_steps;
    dra_batch_part          room;
    dra_microbatch          q = {.chunks = dra_trainer_chunks(t, t->batch.T),
                                 .chunk = t->chunk,
                                 .clamp = (c->carry || c->chunk) && (c->clamp_states || early),
                                 .seed = (uint64_t)c->seed,
                                 .states = t->states[k],
                                 .share = t->share[k],
                                 /* each microbatch has its own dropout */
                                 .step = (uint64_t)(step * c->accumulate + k)};
    dra_batch_cut(&t->batch, k * t->rows, t->rows, &room, &q);
    return dra_gradients_add(t->gradients, &q, err);
}

/* The share of each microbatch in what counts of a step. */
static void share_targets(dra_trainer *t)
{
    const dra_batch *b = &t->batch;
    for (int64_t k = 0; k < t->at.train.accumulate; k++) {
        double counts = 0;
        for (int64_t r = k * t->rows; r < (k + 1) * t->rows; r++) counts += b->counts[r];
        t->share[k] = b->total > 0 ? counts / b->total : 0;
    }
}

/* Collects the mean loss over all targets of the step and the other results of its microbatches;
 * where there are several ranks these have told them already. */
static dra_status collect_results(dra_trainer *t, bool any, dra_error *err)
{
    const int        n = (int)t->at.train.accumulate;
    const dra_status st = dra_gradients_collect(t->gradients, t->c.comm ? 0 : n, t->results,
                                                any ? t->optimizer : NULL, &t->event.norm, err);
    t->event.loss = 0;
    t->event.clamped = 0;
    memset(t->event.aux, 0, sizeof t->event.aux);
    memset(t->event.measure, 0, sizeof t->event.measure);
    for (int k = 0; k < n && st == DRA_OK; k++) add_result(&t->event, t->share[k], &t->results[k]);
    dra_objective_show(t->at.train.objective.kind, t->c.model, t->event.loss, t->event.measure);
    return st;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static dra_status set_blend(dra_trainer *t, int64_t step, dra_error *err)
{
    t->event.blend = NAN;
    if (t->blend < 0) return DRA_OK;
    t->event.blend = dra_train_blend(&t->at.train, t->at.blend, step);
    dra_real *a = dra_weights_edit(t->weights, t->blend);
    if (!a) return dra_fail(err, DRA_ERR_MEMORY, "train: out of memory");
    a[0] = (dra_real)t->event.blend;
    return dra_gradients_bind(t->gradients, t->weights, err);
}

/* Adds up the gradients of a step, updates the weights by them, and reads the results. If loss or
 * gradients are not finite, the weights stay as they are; only carried states start again, because
 * they may not be finite either. Nothing else waits for the device. */
static dra_status update_weights(dra_trainer *t, int64_t step, bool any, dra_error *err)
{
    dra_event *e = &t->event;
    dra_status st = dra_sums_run(t->sums, start_microbatch, t, err);
    if (t->c.comm) st = dra_ranks_join(t, st, err);
    if (st == DRA_OK && any) /* else all tokens are pads */
        st = dra_optimizer_start(t->optimizer, t->weights, t->gradients, e->rate,
                                 step - t->at.skipped, err);
    if (st == DRA_OK) st = collect_results(t, any, err);
    if (st != DRA_OK || !any) return st;
    if (isfinite(e->loss) && isfinite(e->norm)) {
        t->at.in_a_row = 0;
        return st;
    }
    if (!isfinite(e->loss)) e->norm = NAN;
    t->at.skipped++;
    t->at.in_a_row++;
    for (int64_t k = 0; k < t->at.train.accumulate && st == DRA_OK; k++)
        if (t->states[k]) st = dra_states_reset(t->states[k], -1, err);
    return st;
}

/* Adds the time since `began`: a run's time is that of its steps and of what follows them. */
static double count_time(dra_trainer *t, double began)
{
    const double took = read_clock() - began;
    t->at.seconds += took;
    t->event.seconds = t->at.seconds;
    return took;
}

static dra_status one_step(dra_trainer *t, dra_error *err)
{
    const dra_train_config *c = &t->at.train;
    const int64_t           step = t->at.step + 1;
    const int               stage = dra_train_stage(c, step);
    const double            began = read_clock();
    dra_event              *e = &t->event;
    dra_status              st = dra_trainer_open_stage(t, stage, err);
    if (st == DRA_OK) st = set_blend(t, step, err);
    if (st == DRA_OK)
        st = dra_batches_read(t->batches, step - 1 - c->stage[stage].from, step, &t->batch, err);
    st = dra_ranks_count(t, st, err);
    if (st != DRA_OK) return st;
    share_targets(t);
    e->rate = dra_train_rate(c, step);
    st = update_weights(t, step, t->batch.total > 0, err);
    if (st != DRA_OK) return st;
    const int64_t tokens = t->batch.tokens;
    const double  took = count_time(t, began);
    t->at.step = e->step = step;
    t->at.tokens += tokens;
    e->steps = c->steps;
    e->tokens = t->at.tokens;
    e->skipped = t->at.skipped;
    e->tokens_per_second = (double)tokens / fmax(took, 1e-9);
    return DRA_OK;
}

/* ---- the log --------------------------------------------------------------------------------- */

typedef struct log_line {
    dra_json json;
    json_t  *object;
} log_line;

static log_line begin_line(const dra_trainer *t)
{
    log_line l = {0};
    l.object = dra_json_object(&l.json);
    dra_json_set(&l.json, l.object, "step", dra_json_int(&l.json, t->at.step));
    return l;
}

static void put_count(log_line *l, const char *key, int64_t n)
{
    dra_json_set(&l->json, l->object, key, dra_json_int(&l->json, n));
}

static void put_real(log_line *l, const char *key, double x)
{
    dra_json_set(&l->json, l->object, key, dra_json_real(&l->json, x));
}

static dra_status log_step(dra_trainer *t, dra_error *err)
{
    const dra_event *e = &t->event;
    log_line         l = begin_line(t);
    put_real(&l, "loss", e->loss);
    put_real(&l, "lr", e->rate);
    put_real(&l, "grad_norm", e->norm);
    put_count(&l, "tokens", e->tokens);
    put_real(&l, "tokens_per_second", e->tokens_per_second);
    put_real(&l, "seconds", e->seconds);
    put_count(&l, "skipped", e->skipped);
    if (t->blend >= 0) put_real(&l, "blend", e->blend);
    for (int k = 0; k < DRA_MEASURES_MOST && e->measure_name[k]; k++)
        put_real(&l, e->measure_name[k], e->measure[k]);
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (t->at.train.aux_loss[k] != 0) put_real(&l, dra_aux_name((dra_aux_kind)k), e->aux[k]);
    if (t->at.train.clamp_states || e->clamped) put_count(&l, "clamped", e->clamped);
    return dra_runlog_write(&t->log, &l.json, l.object, err);
}

static dra_status log_eval(dra_trainer *t, dra_error *err)
{
    log_line l = begin_line(t);
    put_count(&l, "tokens", t->at.tokens);
    put_real(&l, "seconds", t->at.seconds);
    put_real(&l, "eval_loss", t->event.eval_loss);
    put_real(&l, "best_loss", t->at.best_loss);
    for (int k = 0; k < DRA_MEASURES_MOST && t->event.measure_name[k]; k++) {
        char key[40];
        snprintf(key, sizeof key, "eval_%s", t->event.measure_name[k]);
        put_real(&l, key, t->event.eval_measure[k]);
    }
    return dra_runlog_write(&t->log, &l.json, l.object, err);
}

dra_status dra_trainer_note(dra_trainer *t, const char *key, const char *text, dra_error *err)
{
    if (!dra_trainer_writes(t)) return DRA_OK;
    log_line l = begin_line(t);
    dra_json_set(&l.json, l.object, key, dra_json_text(&l.json, text));
    return dra_runlog_write(&t->log, &l.json, l.object, err);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

typedef struct mean {
    double  sum;
    int64_t n;
} mean;

static void add_losses(mean *m, const dra_real *losses, const int32_t *targets, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (targets[i] < 0) continue;
        m->sum += (double)losses[i];
        m->n++;
    }
}

/* Texts: the losses of all tokens. */
static dra_status read_texts(dra_trainer *t, dra_states *s, mean *m, dra_error *err)
{
    const int64_t steps = dra_batches_steps(t->eval);
    dra_batch     b;
    dra_status    st = DRA_OK;
    for (int64_t i = 0; i < steps && st == DRA_OK; i++) {
        st = dra_batches_read(t->eval, i, 0, &b, err);
        if (st != DRA_OK) break;
        const int64_t   n = b.B * b.T;
        const size_t    bytes = (size_t)n * sizeof *b.ids;
        const dra_named in[] = {{"ids", b.ids, bytes}, {"targets", b.targets, bytes}};
        if (!t->at.train.carry) st = dra_states_reset(s, -1, err);
        if (st == DRA_OK) st = dra_reader_read(t->reader, s, b.T, b.mark, 2, in, err);
        const dra_real *losses = st == DRA_OK ? dra_reader_result(t->reader, "losses") : NULL;
        if (st == DRA_OK && !losses) st = dra_fail(err, DRA_ERR_MEMORY, "train: out of memory");
        if (st == DRA_OK) add_losses(m, losses, b.targets, n);
    }
    return st;
}

static dra_status evaluate_examples(dra_trainer *t, double *loss, dra_error *err)
{
    dra_evaluation out;
    dra_status     st = dra_gradients_bind(t->gradients, t->weights, err);
    if (st == DRA_OK) st = dra_batches_evaluate(t->eval, t->gradients, &out, err);
    *loss = st == DRA_OK ? out.loss : NAN;
    if (st == DRA_OK) memcpy(t->event.eval_measure, out.measure, sizeof out.measure);
    return st;
}

static dra_status evaluate_texts(dra_trainer *t, double *loss, dra_error *err)
{
    mean        m = {0};
    dra_states *s = NULL;
    dra_status  st = dra_states_create(t->c.device, dra_model_state(t->c.model), t->rows, &s, err);
    if (st == DRA_OK) st = dra_weights_bind(t->weights, t->reader, err);
    if (st == DRA_OK) st = read_texts(t, s, &m, err);
    if (st == DRA_OK && m.n == 0)
        st = dra_fail(err, DRA_ERR_VALUE,
                      "train: the data for evaluation have fewer than two "
                      "tokens in a row");
    *loss = m.n ? m.sum / (double)m.n : NAN;
    dra_states_destroy(s);
    return st;
}

dra_status dra_trainer_evaluate(dra_trainer *t, double *loss, dra_error *err)
{
    if (!t->eval) return dra_fail(err, DRA_ERR_VALUE, "train: there is nothing to evaluate on");
    return t->reader ? evaluate_texts(t, loss, err) : evaluate_examples(t, loss, err);
}

/* Keeps the best model in a folder of its own. Its weights are replaced atomically; its other files
 * do not change. */
static dra_status keep_best(dra_trainer *t, dra_error *err)
{
    char       folder[DRA_PATH], path[DRA_PATH];
    dra_status st = dra_path(folder, err, "%s/best", t->c.folder);
    if (st == DRA_OK) st = dra_trainer_describe(t, folder, err);
    if (st == DRA_OK) st = dra_trainer_here(t, err);
    if (st == DRA_OK) st = dra_path(path, err, "%s/%s", folder, dra_trainer_weights_file(t));
    return st == DRA_OK ? dra_weights_save(t->weights, path, err) : st;
}

bool dra_trainer_stopped_early(const dra_trainer *t)
{
    const int64_t most = t->at.train.early_stop;
    return most > 0 && t->at.since_best >= most && t->at.step < t->at.train.steps;
}

static dra_status log_early_stop(dra_trainer *t, dra_error *err)
{
    char text[80];
    snprintf(text, sizeof text, "%lld evaluations without a better one",
             (long long)t->at.since_best);
    return dra_trainer_note(t, "stopped_early", text, err);
}

static dra_status evaluate_model(dra_trainer *t, dra_error *err)
{
    const double began = read_clock();
    dra_status   st = dra_trainer_evaluate(t, &t->event.eval_loss, err);
    if (st != DRA_OK) return st;
    /* Also the first, where there is no best one yet: NaN. */
    t->at.since_best++;
    if (isfinite(t->event.eval_loss) && !(t->event.eval_loss >= t->at.best_loss)) {
        t->at.best_loss = t->event.eval_loss;
        t->at.since_best = 0;
        st = keep_best(t, err);
    }
    t->event.best_loss = t->at.best_loss;
    t->event.stopped_early = dra_trainer_stopped_early(t);
    count_time(t, began);
    if (st == DRA_OK) st = log_eval(t, err);
    return st == DRA_OK && t->event.stopped_early ? log_early_stop(t, err) : st;
}

/* ---- saving ---------------------------------------------------------------------------------- */

dra_status dra_trainer_publish(dra_trainer *t, dra_error *err)
{
    char       from[DRA_PATH], to[DRA_PATH];
    dra_status st = dra_checkpoint_path(t->c.folder, t->saved, "/model.safetensors", from, err);
    if (st == DRA_OK) st = dra_path(to, err, "%s/%s", t->c.folder, dra_trainer_weights_file(t));
    if (st == DRA_OK) st = dra_trainer_here(t, err);
    if (st == DRA_OK) st = dra_file_share(from, to, err);
    if (st == DRA_OK) st = dra_folder_sync(t->c.folder, err);
    if (st == DRA_OK) st = dra_trainer_here(t, err);
    return st == DRA_OK ? dra_checkpoint_prune(t->c.folder, t->at.train.keep, err) : st;
}

/* The states of all microbatches as one, on the rank that writes. */
static dra_status join_states(const dra_trainer *t, dra_states **out, dra_error *err)
{
    const dra_train_config *c = &t->at.train;
    dra_status              st = DRA_OK;
    *out = NULL;
    if (!c->carry) return DRA_OK;
    if (dra_trainer_writes(t))
        st = dra_states_create(t->c.device, dra_model_state(t->c.model), c->batch, out, err);
    for (int64_t b = 0; *out && b < c->batch && st == DRA_OK; b++)
        if (t->states[b / t->rows])
            st = dra_states_copy(*out, b, t->states[b / t->rows], b % t->rows, err);
    st = dra_comm_agree(t->c.comm, st, err);
    return st == DRA_OK ? dra_ranks_gather_states(t, *out, err) : st;
}

static dra_status write_checkpoint(dra_trainer *t, dra_error *err)
{
    dra_saved  s = {t->c.device, t->c.model, t->weights, t->optimizer, NULL, t};
    dra_status st = join_states(t, &s.states, err);
    t->at.carried = s.states != NULL;
    if (!dra_trainer_writes(t)) {
        t->saved = t->at.step;
        return st;
    }
    t->at.data = dra_batches_fingerprint(t->batches);
    snprintf(t->at.level, sizeof t->at.level, "%s", dra_device_level(t->c.device));
    if (st == DRA_OK) st = dra_runlog_sync(&t->log, err);
    if (st == DRA_OK) st = dra_checkpoint_save(t->c.folder, &t->at, &s, err);
    dra_states_destroy(s.states);
    if (st != DRA_OK) return st;
    t->saved = t->at.step;
    return dra_trainer_publish(t, err);
}

dra_status dra_trainer_save(dra_trainer *t, dra_error *err)
{
    dra_status st = dra_ranks_check_weights(t, DRA_OK, err);
    if (st == DRA_OK) st = write_checkpoint(t, err);
    return dra_comm_agree(t->c.comm, st, err);
}

/* ---- the run --------------------------------------------------------------------------------- */

typedef struct listener {
    dra_on_event fn;
    void        *user;
    bool         stop;
} listener;

static void tell_listener(dra_trainer *t, listener *w, dra_event_kind kind)
{
    t->event.kind = kind;
    if (w->fn && !w->fn(w->user, &t->event)) w->stop = true;
}

static void write_sample(dra_trainer *t, listener *w)
{
    const double began = read_clock();
    tell_listener(t, w, DRA_EVENT_SAMPLE);
    count_time(t, began);
}

static dra_status save_run(dra_trainer *t, listener *w, dra_error *err)
{
    const double     began = read_clock();
    const dra_status st = dra_trainer_save(t, err);
    count_time(t, began);
    if (st == DRA_OK) tell_listener(t, w, DRA_EVENT_SAVE);
    return st;
}

static bool is_due(const dra_trainer *t, int64_t every)
{
    return every > 0 && t->at.step % every == 0;
}

/* What the rank that writes does after a step: it logs, evaluates and samples. */
static dra_status tell_step(dra_trainer *t, listener *w, bool last, dra_error *err)
{
    const dra_train_config *c = &t->at.train;
    dra_status              st = DRA_OK;
    if (last || is_due(t, c->log_every) || t->at.in_a_row > 0) st = log_step(t, err);
    if (st == DRA_OK && t->eval && c->eval_every > 0 && (last || is_due(t, c->eval_every))) {
        st = evaluate_model(t, err);
        if (st == DRA_OK) tell_listener(t, w, DRA_EVENT_EVAL);
        if (t->event.stopped_early) w->stop = true;
    }
    if (st == DRA_OK && is_due(t, c->sample_every)) write_sample(t, w);
    return st;
}

/* After a step: logs, evaluates, samples and saves. */
static dra_status finish_step(dra_trainer *t, listener *w, dra_error *err)
{
    const dra_train_config *c = &t->at.train;
    const bool              last = t->at.step == c->steps;
    dra_status              st = DRA_OK;
    tell_listener(t, w, DRA_EVENT_STEP);
    if (dra_trainer_writes(t)) st = tell_step(t, w, last, err);
    st = dra_ranks_finish(t, &w->stop, st, err);
    if (t->at.in_a_row >= DRA_SKIPPED_MOST) w->stop = true;
    if (st != DRA_OK || !(last || w->stop || is_due(t, c->save_every))) return st;
    return save_run(t, w, err);
}

/* NaN without a sign, which says nothing. */
static double plain_number(double x) { return isnan(x) ? fabs(x) : x; }

/* A run fails if its last step, or too many in a row, changed nothing because numbers were not
 * finite. */
static dra_status check_end(const dra_trainer *t, dra_error *err)
{
    const long long n = (long long)t->at.in_a_row;
    const bool      last = t->at.step == t->at.train.steps;
    char            which[60] = "the last step";
    if (n == 0 || (n < DRA_SKIPPED_MOST && !last)) return DRA_OK;
    if (n > 1)
        snprintf(which, sizeof which, last ? "the last %lld steps" : "%lld steps in a row", n);
    return dra_fail(
        err, DRA_ERR_VALUE,
        "step %lld: loss %g, gradient norm %g: not finite in %s; saved as it was before "
        "%s (a smaller lr may help)",
        (long long)t->at.step, plain_number(t->event.loss), plain_number(t->event.norm), which,
        n > 1 ? "them" : "it");
}

dra_status dra_trainer_step(dra_trainer *t, dra_on_event fn, void *user, bool *more, dra_error *err)
{
    listener   w = {fn, user, false};
    dra_status st = DRA_OK;
    t->event.best_loss = t->at.best_loss;
    if (t->at.step < t->at.train.steps && !dra_trainer_stopped_early(t)) {
        st = one_step(t, err);
        if (st != DRA_OK) st = dra_comm_agree(t->c.comm, st, err); /* others may be well */
        if (st == DRA_OK) st = finish_step(t, &w, err);
        if (st == DRA_OK) st = check_end(t, err);
        /* If the folder has gone away in between, that is the reason. */
        if (st != DRA_OK && dra_trainer_here(t, err) != DRA_OK) st = DRA_ERR_FILE;
    }
    *more = st == DRA_OK && !w.stop && t->at.step < t->at.train.steps &&
            !dra_trainer_stopped_early(t);
    return st;
}

dra_status dra_trainer_run(dra_trainer *t, dra_on_event fn, void *user, dra_error *err)
{
    dra_status st = DRA_OK;
    for (bool more = true; more && st == DRA_OK;) st = dra_trainer_step(t, fn, user, &more, err);
    return st;
}
