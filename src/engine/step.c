/* A step: who was cancelled leaves, who waits joins, prompts are read up to a chunk of tokens,
 * first come first served, then every sequence that writes reads one token, all at once, and
 * does so while a piece of a prompt pauses (pace.c). */
#include "base/error.h"
#include "base/shape.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

/* ---- leaving and joining --------------------------------------------------------------------- */

static void end_waiting(dra_engine *e, dra_job *job, dra_job_end end, const dra_error *why)
{
    dra_job_end_with(e, job, end, why);
    dra_job_free(e, job);
}

static void end_cancelled(dra_engine *e)
{
    for (dra_job *job; (job = dra_queue_take_cancelled(e));)
        end_waiting(e, job, DRA_JOB_CANCELLED, NULL);
    for (int64_t i = 0; i < e->n_active; i++)
        if (dra_job_is_cancelled(e, e->active[i]))
            dra_job_end_with(e, e->active[i], DRA_JOB_CANCELLED, NULL);
}

static void run_at_once(dra_engine *e)
{
    for (dra_job *job; (job = dra_queue_first(e, true));) {
        dra_error        why = {0};
        const dra_status st = dra_saved_run(e, job, &why);
        dra_queue_remove(e, job);
        end_waiting(e, job, st == DRA_OK ? DRA_JOB_DONE : DRA_JOB_FAILED, &why);
    }
}

static void leave(dra_engine *e)
{
    for (int64_t i = e->n_active; i-- > 0;) {
        dra_job *job = e->active[i];
        if (!job->over) continue;
        dra_queue_leave(e, job);
        dra_job_free(e, job);
    }
}

static void fail(dra_engine *e, dra_job *job, const dra_error *why)
{
    if (!job->over) dra_job_end_with(e, job, DRA_JOB_FAILED, why);
}

/* The row of a job: a copy of the state it begins from, of what is kept of its prompt, or a new
 * one. Not before its turn to read: jobs before it may have the same prompt. */
static dra_status begin(dra_engine *e, dra_job *job, dra_error *err)
{
    const bool        fresh = !job->begin && job->view == DRA_VIEW_LAST;
    const dra_prefix *p = fresh ? dra_prefix_find(e, job->prompt, job->ids.data) : NULL;
    const int64_t     from = job->begin ? job->begin->row : p ? p->row : -1;
    if (job->begin && job->logits)
        memcpy(job->logits, job->begin->logits, (size_t)e->V * sizeof *job->logits);
    if (job->begin && job->seen)
        memcpy(job->seen, job->begin->seen, (size_t)e->V * sizeof *job->seen);
    job->read = job->cached = p ? p->n : 0;
    for (size_t i = 0; job->seen && i < job->read; i++) job->seen[job->ids.data[i]] = true;
    return dra_rows_take(e, from, &job->row, err);
}

static void join(dra_engine *e)
{
    for (dra_job *job; e->n_active < e->config.slots && (job = dra_queue_first(e, false));) {
        dra_error why = {0};
        /* One that is alone may go beyond the limit by the copies it makes. */
        if (!dra_rows_fit(e, e->n_active > 0 ? dra_rows_later(e, job) : job->need)) {
            if (e->n_active > 0) return;
            dra_fail(&why, DRA_ERR_MEMORY,
                     "%zu bytes of state besides those with names, which are "
                     "%zu: the limit is %zu",
                     job->need, dra_rows_bytes(e), e->config.memory_limit);
            dra_queue_remove(e, job);
            end_waiting(e, job, DRA_JOB_FAILED, &why);
            continue;
        }
        job->at_join = dra_engine_clock();
        dra_queue_join(e, job);
    }
}

/* ---- reading and writing --------------------------------------------------------------------- */

static void count_tokens(dra_engine *e, int64_t read, int64_t reused, int64_t written)
{
    pthread_mutex_lock(&e->lock);
    e->stats.tokens_read += read;
    e->stats.tokens_reused += reused;
    e->stats.tokens_written += written;
    pthread_mutex_unlock(&e->lock);
}

/* A job has read some of its tokens. */
static dra_status go_on(dra_engine *e, dra_job *job, int64_t T, dra_error *err)
{
    const size_t before = job->ids.n;
    if (!job->started) {
        count_tokens(e, T, job->read == job->cached + (size_t)T ? (int64_t)job->cached : 0, 0);
        dra_prefix_passed(e, job);
    }
    if (job->read < job->ids.n) return DRA_OK;
    if (job->config.kind == DRA_JOB_EMBED) return dra_job_pool(e, job, err);
    const dra_status st = dra_job_go_on(e, job, err);
    if (job->ids.n > before) count_tokens(e, 0, 0, 1);
    return st;
}

/* The first error is the step's, too. */
static void note(dra_status st, const dra_error *why, dra_status *first, dra_error *err)
{
    if (st == DRA_OK || *first != DRA_OK) return;
    *first = st;
    if (err) *err = *why;
}

/* What of a job's prompt fits into the budget, which ends with the first piece that does not. */
static dra_status read_prompt(dra_engine *e, dra_job *job, int64_t *budget, dra_error *err)
{
    dra_status st = DRA_OK;
    if (job->row < 0 && (*budget > 0 || dra_piece_next(e, job) == 0)) st = begin(e, job, err);
    if (st == DRA_OK && !job->started && job->ids.n == 0) st = go_on(e, job, 0, err);
    while (st == DRA_OK && !job->over && job->row >= 0) {
        const int64_t T = dra_piece_next(e, job);
        if (T > *budget) *budget = 0;
        if (T == 0 || *budget == 0) break;
        *budget -= T;
        st = dra_piece_read(e, job, T, err);
        if (st == DRA_OK) st = go_on(e, job, T, err);
        if (dra_pace_is_over(e)) *budget = 0;
    }
    return st;
}

static dra_status read_prompts(dra_engine *e, dra_error *err)
{
    int64_t    budget = dra_pace_step(e);
    dra_status first = DRA_OK;
    for (int64_t i = 0; i < e->n_active; i++) {
        dra_error        why = {0};
        const dra_status st = read_prompt(e, e->active[i], &budget, &why);
        if (st == DRA_ERR_DEVICE) note(st, &why, &first, err);
        if (st != DRA_OK) fail(e, e->active[i], &why);
    }
    note(e->pace.status, &e->pace.error, &first, err);
    return first;
}

dra_status dra_engine_write(dra_engine *e, dra_error *err)
{
    const double began = dra_engine_clock();
    int64_t      n = 0;
    dra_error    why = {0};
    for (int64_t i = 0; i < e->n_active; i++) {
        dra_job *job = e->active[i];
        if (!job->over && job->row >= 0 && job->ids.n == job->read + 1 &&
            dra_piece_next(e, job) == 0)
            e->batch[n++] = job;
    }
    if (n == 0) return DRA_OK;
    const dra_status st = dra_batch_read(e, n, e->batch, &why);
    for (int64_t i = 0; i < n; i++) {
        dra_error own = {0};
        if (st != DRA_OK)
            fail(e, e->batch[i], &why);
        else if (go_on(e, e->batch[i], 1, &own) != DRA_OK)
            fail(e, e->batch[i], &own);
    }
    dra_pace_wrote(e, began);
    if (st == DRA_ERR_DEVICE && err) *err = why;
    return st == DRA_ERR_DEVICE ? st : DRA_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void figure(dra_engine *e, double began, bool *idle)
{
    const size_t bytes = dra_rows_bytes(e);
    pthread_mutex_lock(&e->lock);
    dra_engine_stats *s = &e->stats;
    *idle = e->n_active == 0 && !e->first;
    s->active = e->n_active;
    s->states = (int64_t)e->n_names;
    s->kept = e->prefixes.n;
    s->state_bytes = bytes;
    s->programs = 0;
    for (int i = 0; i < DRA_VIEWS; i++)
        if (e->reader[i]) s->programs += (int64_t)dra_reader_programs(e->reader[i]);
    s->steps++;
    s->step_seconds += dra_engine_clock() - began;
    pthread_mutex_unlock(&e->lock);
}

dra_status dra_engine_step(dra_engine *e, bool *idle, dra_error *err)
{
    const double began = dra_engine_clock();
    dra_error    why = {0};
    dra_saved_bury(e);
    end_cancelled(e);
    leave(e);
    run_at_once(e);
    join(e);
    dra_status       first = read_prompts(e, err);
    const dra_status st = dra_engine_write(e, &why);
    note(st, &why, &first, err);
    leave(e);
    dra_saved_bury(e);
    dra_rows_fit(e, 0);
    figure(e, began, idle);
    return first;
}
