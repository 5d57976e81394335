/* How jobs end: vectors, states that are kept or get a name, and the last word to whoever asked. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "generate/engine.h"

/* ---- vectors --------------------------------------------------------------------------------- */

static bool is_fixed(const dra_engine *e, int i)
{
    const dra_spec *p = dra_specs_at(dra_model_state(e->config.model), i);
    return !p->items && !p->context;
}

/* All numbers of the state that do not grow with the text, in order. */
static dra_status read_state(dra_engine *e, dra_job *job, dra_error *err)
{
    const int n = dra_specs_count(dra_model_state(e->config.model));
    size_t    width = 0, at = 0;
    for (int i = 0; i < n; i++)
        if (is_fixed(e, i)) width += dra_states_size(e->lane[0].pool, i, job->seq.row);
    if (width == 0)
        return dra_fail(err, DRA_ERR_VALUE, "embed: the model has no state of a fixed size");
    dra_real  *x = malloc(width * sizeof *x);
    dra_status st = x ? DRA_OK : dra_engine_no_memory(err);
    job->vector = malloc(width * sizeof *job->vector);
    if (!job->vector) st = dra_engine_no_memory(err);
    for (int i = 0; i < n && st == DRA_OK; i++) {
        const size_t size = is_fixed(e, i) ? dra_states_size(e->lane[0].pool, i, job->seq.row) : 0;
        if (size) st = dra_states_read(e->lane[0].pool, i, job->seq.row, x + at, size, err);
        at += size;
    }
    for (size_t k = 0; k < width && st == DRA_OK; k++) job->vector[k] = x[k];
    job->width = (int64_t)width;
    free(x);
    return st;
}

static dra_status read_hidden(dra_engine *e, dra_job *job, dra_error *err)
{
    const double scale = job->config.pooling == DRA_EMBED_MEAN ? 1 / (double)job->seq.prompt : 1;
    job->vector = malloc((size_t)e->C * sizeof *job->vector);
    if (!job->vector) return dra_engine_no_memory(err);
    for (int64_t c = 0; c < e->C; c++) job->vector[c] = (dra_real)(job->sum[c] * scale);
    job->width = e->C;
    return DRA_OK;
}

dra_status dra_job_pool(dra_engine *e, dra_job *job, dra_error *err)
{
    const bool state = job->config.pooling == DRA_EMBED_STATE;
    dra_status st = state ? read_state(e, job, err) : read_hidden(e, job, err);
    for (int64_t k = 0; k < job->width && st == DRA_OK; k++)
        if (!isfinite(job->vector[k]))
            st = dra_fail(err, DRA_ERR_VALUE, "embed: %s not finite",
                          state ? "the state is" : "its hidden states are");
    job->started = true;
    job->at_start = dra_clock();
    if (st == DRA_OK) dra_job_end_with(e, job, DRA_JOB_DONE, NULL);
    return st;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void count_job(dra_engine *e, const dra_job *job, dra_job_end end)
{
    pthread_mutex_lock(&e->lock);
    e->stats.tokens_drafted += job->drafted;
    e->stats.tokens_accepted += job->accepted;
    e->stats.done += end == DRA_JOB_DONE;
    e->stats.cancelled += end == DRA_JOB_CANCELLED;
    e->stats.failed += end == DRA_JOB_FAILED;
    pthread_mutex_unlock(&e->lock);
}

static dra_job_result result_of(const dra_job *job, dra_job_end end, const dra_error *error)
{
    const dra_beam *beams = NULL;
    const int64_t   n_beams = job->search ? dra_search_result(job->search, &beams) : 0;
    const double    now = dra_clock(), joined = job->at_join > 0 ? job->at_join : now;
    const double    started = job->started ? job->at_start : now;
    return (dra_job_result){.end = end,
                            .finish = job->finish,
                            .error = error ? *error : (dra_error){0},
                            .prompt_tokens = (int64_t)job->seq.prompt,
                            .cached_tokens = (int64_t)job->cached,
                            .written_tokens = (int64_t)(job->seq.ids.n - job->seq.prompt),
                            .drafted_tokens = job->drafted,
                            .accepted_tokens = job->accepted,
                            .width = job->width,
                            .vector = job->vector,
                            .text = job->n_out ? job->out : "",
                            .bytes = job->n_out,
                            .n_beams = n_beams,
                            .beams = beams,
                            .seconds_waited = joined - job->at_submit,
                            .seconds_read = job->at_join > 0 ? started - joined : 0,
                            .seconds_written = job->started ? now - started : 0};
}

/* A state without a name, and how far the text has come in its grammar, to whoever wants them. */
static dra_status hand_over(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_saved       *state = NULL;
    const dra_status st = dra_saved_make(e, job, &state, err);
    if (st == DRA_OK) job->inside.kept(job->config.user, state, &job->seq.place);
    return st;
}

/* The state of a text that was written is kept and gets its name. */
static dra_status keep_state(dra_engine *e, dra_job *job, dra_error *err)
{
    if (job->config.kind != DRA_JOB_GENERATE) return DRA_OK;
    if (e->cut == 1 && !job->search) dra_prefix_keep(e, job);
    if (job->inside.keep) return hand_over(e, job, err);
    return job->config.save ? dra_saved_put(e, job, err) : DRA_OK;
}

void dra_job_end_with(dra_engine *e, dra_job *job, dra_job_end end, const dra_error *error)
{
    dra_error why = {0};
    if (end == DRA_JOB_DONE && dra_job_is_cancelled(e, job)) end = DRA_JOB_CANCELLED;
    if (end == DRA_JOB_DONE && keep_state(e, job, &why) != DRA_OK) {
        end = DRA_JOB_FAILED;
        error = &why;
    }
    const dra_job_result result = result_of(job, end, error);
    count_job(e, job, end);
    job->over = true;
    if (e->chunk.job == job) e->chunk.job = NULL; /* what is left of it does not run */
    dra_constraint_destroy(job->constraint);      /* its grammar is borrowed until the end */
    job->constraint = NULL;
    if (job->config.end) job->config.end(job->config.user, &result);
    dra_prefix_leave(e, job);
    dra_rows_give(e, &job->seq.row);
    dra_rows_give(e, &job->seq.copy);
    dra_rows_give(e, &job->back.row);
    dra_search_release(e, job->search);
}

void dra_job_fail(dra_engine *e, dra_job *job, const dra_error *why)
{
    if (!job->over) dra_job_end_with(e, job, DRA_JOB_FAILED, why);
}
