/* Jobs as they come, in the thread of whoever brings them: all that can be wrong with one is found
 * here, and all it needs besides a row is made here, so that a step has little to do and less to
 * fail at. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "engine/engine.h"
#include "generate/generator.h"
#include "generate/sample.h"

enum { LOGPROBS_MOST = 1 << 16, STOPS_MOST = 1 << 10 };

/* ---- checks ---------------------------------------------------------------------------------- */

static dra_status check_name(const char *what, const char *name, bool wanted, dra_error *err)
{
    if (!name && wanted)
        return dra_fail(err, DRA_ERR_NAME, "%s: no name, expected one of a state", what);
    if (!name || dra_state_name_ok(name)) return DRA_OK;
    return dra_fail(err, DRA_ERR_NAME, "%s: '%.100s', expected 1 to %d of A-Z a-z 0-9 . _ -", what,
                    name, DRA_STATE_NAME);
}

/* Which names each kind of job has, and whether it needs them. */
static dra_status check_names(const dra_job_config *c, dra_error *err)
{
    static const struct needs {
        bool state, save, path;
    } needs[] = {[DRA_JOB_GENERATE] = {0},
                 [DRA_JOB_EMBED] = {0},
                 [DRA_JOB_FORK] = {true, true},
                 [DRA_JOB_DELETE] = {true},
                 [DRA_JOB_EXPORT] = {true, .path = true},
                 [DRA_JOB_IMPORT] = {.save = true, .path = true}};
    if ((size_t)c->kind >= sizeof needs / sizeof *needs)
        return dra_fail(err, DRA_ERR_VALUE, "job: kind %d is none", (int)c->kind);
    const struct needs *n = &needs[c->kind];
    dra_status          st = check_name("state", c->state, n->state, err);
    if (st == DRA_OK) st = check_name("save", c->save, n->save, err);
    if (st == DRA_OK && n->path && !c->path)
        st = dra_fail(err, DRA_ERR_VALUE, "job: no path, expected that of a file");
    return st;
}

static dra_status check_text(const dra_engine *e, const dra_job_config *c, dra_error *err)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->ids[i] < 0 || c->ids[i] >= e->V)
            return dra_fail(err, DRA_ERR_INDEX, "token %zu is %d, the model has 0 to %lld", i,
                            c->ids[i], (long long)e->V - 1);
    if (c->n == 0 && (!c->state || c->kind == DRA_JOB_EMBED))
        return dra_fail(err, DRA_ERR_VALUE, "no tokens, expected 1 or more to begin with");
    if (c->kind == DRA_JOB_EMBED && c->save)
        return dra_fail(err, DRA_ERR_VALUE, "save: a text that is embedded leaves no state");
    if (c->logprobs > LOGPROBS_MOST || c->n_stop < 0 || c->n_stop > STOPS_MOST || c->n_ends < 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "job: too many log-probabilities, stop strings or ends");
    if ((c->n_stop > 0 || c->grammar) && !e->config.tokenizer)
        return dra_fail(err, DRA_ERR_VALUE, "stop strings and grammars need a tokenizer");
    return DRA_OK;
}

static bool is_penalty(double x) { return x >= -100 && x <= 100; }

static dra_status check_penalties(const dra_job_config *c, dra_error *err)
{
    if (is_penalty(c->presence_penalty) && is_penalty(c->frequency_penalty)) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "penalties are %g and %g, expected -100 to 100",
                    c->presence_penalty, c->frequency_penalty);
}

/* With the state it begins from known. */
static dra_status check_room(const dra_engine *e, dra_job *job, dra_error *err)
{
    const int64_t n = (int64_t)job->prompt, room = e->positions - job->base;
    if (n > room) return dra_fail_positions(n, job->base, e->positions, err);
    const int64_t written = job->config.kind == DRA_JOB_EMBED ? 0 : job->config.tokens;
    const int64_t most = written < 0 ? dra_imin(room - n, DRA_ENGINE_KEPT)
                                     : dra_imin(room - n, written);
    job->need = dra_rows_need(e, job->base + n + most);
    if (job->need <= e->config.memory_limit) return DRA_OK;
    return dra_fail(err, DRA_ERR_MEMORY, "%zu bytes of state, the limit is %zu", job->need,
                    e->config.memory_limit);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* All that the config points to; user and grammar stay the caller's. */
static bool copy_lists(dra_job *job)
{
    dra_job_config    *c = &job->config;
    dra_arena         *a = &job->arena;
    const size_t       bias = c->sampler.n_bias > 0 ? (size_t)c->sampler.n_bias : 0;
    const char       **stop = dra_arena_alloc(a, (size_t)c->n_stop * sizeof *stop);
    const char *const *from = c->stop;
    bool               room = stop != NULL;
    c->sampler.bias = dra_arena_copy(a, c->sampler.bias, bias * sizeof *c->sampler.bias);
    c->ends = dra_arena_copy(a, c->ends, (size_t)c->n_ends * sizeof *c->ends);
    for (int i = 0; i < c->n_stop && room; i++)
        room = (stop[i] = dra_arena_text(a, from[i])) != NULL;
    c->stop = stop;
    if (c->state) room = (c->state = dra_arena_text(a, c->state)) != NULL && room;
    if (c->save) room = (c->save = dra_arena_text(a, c->save)) != NULL && room;
    if (c->path) room = (c->path = dra_arena_text(a, c->path)) != NULL && room;
    return room && c->sampler.bias && c->ends;
}

static bool copy_ids(dra_job *job)
{
    const size_t n = job->config.n;
    job->ids.room = n + 64;
    job->ids.data = malloc(job->ids.room * sizeof *job->ids.data);
    if (!job->ids.data) return false;
    if (n) memcpy(job->ids.data, job->config.ids, n * sizeof *job->ids.data);
    job->ids.n = job->prompt = n;
    job->config.ids = NULL;
    return true;
}

static bool make_arrays(dra_engine *e, dra_job *job)
{
    const dra_job_config *c = &job->config;
    const size_t          V = (size_t)e->V;
    const bool            counts = c->presence_penalty != 0 || c->frequency_penalty != 0;
    bool                  room = true;
    if (c->kind == DRA_JOB_EMBED)
        return (job->sum = dra_arena_alloc(&job->arena, (size_t)e->C * sizeof *job->sum)) != NULL;
    room &= (job->logits = malloc(V * sizeof *job->logits)) != NULL;
    if (c->sampler.repetition_penalty != 0 || c->save)
        room &= (job->seen = calloc(V, sizeof *job->seen)) != NULL;
    if (counts) room &= (job->count = calloc(V, sizeof *job->count)) != NULL;
    return room;
}

/* ---- a job ----------------------------------------------------------------------------------- */

bool dra_job_takes_slot(const dra_job *job)
{
    return job->config.kind == DRA_JOB_GENERATE || job->config.kind == DRA_JOB_EMBED;
}

static dra_status prepare(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_job_config *c = &job->config;
    const bool      all = c->echo && c->logprobs >= 0;
    if (!copy_lists(job)) return dra_engine_no_memory(err);
    if (!dra_job_takes_slot(job)) return DRA_OK;
    c->logprobs = dra_imin(c->logprobs, e->V);
    job->view = c->kind == DRA_JOB_EMBED ? DRA_VIEW_HIDDEN : all ? DRA_VIEW_ALL : DRA_VIEW_LAST;
    job->outlet = (dra_text_stream){.n_stop = c->n_stop, .stop = c->stop};
    if (!copy_ids(job) || !make_arrays(e, job)) return dra_engine_no_memory(err);
    dra_status st = dra_sampler_create(&c->sampler, e->V, &job->sampler, err);
    if (st == DRA_OK && c->grammar)
        st = dra_constraint_open(c->grammar, e->config.tokenizer, &job->constraint, err);
    return st;
}

static dra_status find_state(dra_engine *e, dra_job *job, dra_error *err)
{
    if (!job->config.state) return DRA_OK;
    job->begin = dra_saved_hold(e, job->config.state);
    if (!job->begin)
        return dra_fail(err, DRA_ERR_NAME, "state: there is no '%s'", job->config.state);
    job->base = job->begin->tokens;
    return DRA_OK;
}

static dra_status enqueue(dra_engine *e, dra_job *job, uint64_t *id, dra_error *err)
{
    pthread_mutex_lock(&e->lock);
    const bool full = e->stats.waiting >= e->config.queue, closed = e->draining;
    if (!full && !closed) {
        *id = job->id = ++e->jobs;
        *(e->last ? &e->last->next : &e->first) = job;
        e->last = job;
        e->stats.waiting++;
    }
    void (*wake)(void *) = e->wake;
    void *user = e->wake_user;
    pthread_mutex_unlock(&e->lock);
    if (closed) return dra_fail(err, DRA_ERR_BUSY, "engine: it takes no further jobs");
    if (full)
        return dra_fail(err, DRA_ERR_BUSY, "engine: %lld jobs wait, no more are taken",
                        (long long)e->config.queue);
    if (wake) wake(user);
    return DRA_OK;
}

dra_status dra_engine_submit(dra_engine *e, const dra_job_config *config, uint64_t *id,
                             dra_error *err)
{
    dra_job   *job = calloc(1, sizeof *job);
    dra_status st = job ? check_names(config, err) : dra_engine_no_memory(err);
    *id = 0;
    if (!job) return st;
    job->config = *config;
    job->row = job->back.row = -1;
    job->at_submit = dra_engine_clock();
    if (st == DRA_OK && dra_job_takes_slot(job)) st = check_text(e, config, err);
    if (st == DRA_OK) st = check_penalties(config, err);
    if (st == DRA_OK) st = prepare(e, job, err);
    if (st == DRA_OK) st = find_state(e, job, err);
    if (st == DRA_OK && dra_job_takes_slot(job)) st = check_room(e, job, err);
    if (st == DRA_OK) st = enqueue(e, job, id, err);
    if (st != DRA_OK) dra_job_free(e, job);
    return st;
}

void dra_job_free(dra_engine *e, dra_job *job)
{
    dra_saved_drop(e, job->begin);
    dra_sampler_destroy(job->sampler);
    dra_constraint_destroy(job->constraint);
    dra_text_stream_free(&job->outlet);
    dra_ids_free(&job->ids);
    free(job->logits);
    free(job->seen);
    free(job->count);
    free(job->vector);
    free(job->place);
    free(job->back.logits);
    free(job->untold);
    free(job->most);
    free(job->out);
    dra_arena_free(&job->arena);
    free(job);
}
