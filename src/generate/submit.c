/* Jobs as they come, in the thread of whoever brings them: all that can be wrong with one is found
 * here, and all it needs besides a row is made here, so that a step has little to do and less to
 * fail at. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "generate/engine.h"
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

static dra_status check_ids(const char *what, size_t n, const int32_t *ids, int64_t V,
                            dra_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= V)
            return dra_fail(err, DRA_ERR_INDEX, "%stoken %zu is %d, the model has 0 to %lld", what,
                            i, ids[i], (long long)V - 1);
    return DRA_OK;
}

/* The input that a context is read as: a text, and all that the model reads besides its own. */
static bool find_source(const dra_engine *e, dra_model_input *out)
{
    dra_model_input in;
    int             texts = 0, others = e->lanes - 1;
    for (int i = 0; dra_model_input_at(e->config.model, i, &in); i++) {
        const bool text = in.kind == DRA_SOURCE_TOKENS && !in.numbers && !in.prepended;
        if (text && in.context) *out = in;
        texts += text && in.context;
        others += !text;
    }
    return texts == 1 && others == 0;
}

static dra_status check_source(const dra_engine *e, const dra_job_config *c, bool begins,
                               dra_error *err)
{
    const bool      reads = dra_model_context_stack(e->config.model) != NULL;
    dra_model_input in = {0};
    if (!reads && !c->n_source) return DRA_OK;
    if (!find_source(e, &in))
        return dra_fail(err, DRA_ERR_VALUE,
                        "source: expected a model that reads two texts, and no amateurs");
    const dra_model_config *m = dra_model_config_of(in.model);
    const int64_t most = m->positions == DRA_POSITIONS_LEARNED ? m->context : INT32_MAX / 2;
    if (begins && c->n_source == 0) return DRA_OK; /* it is in the state */
    if (begins || c->n_source < 1 || c->n_source > (size_t)most)
        return dra_fail(err, DRA_ERR_VALUE, "source: %zu tokens, expected 1 to %lld%s", c->n_source,
                        (long long)most, begins ? ", and no state to begin from" : "");
    return check_ids("source: ", c->n_source, c->source, in.vocab, err);
}

static dra_status check_prefix(const dra_engine *e, const dra_job_config *c, dra_error *err)
{
    if (!c->prefix || dra_model_config_of(e->config.model)->visible == DRA_VISIBLE_PREFIX)
        return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "prefix: the model has no prefixes: expected visible prefix");
}

static dra_status check_stop_tokens(const dra_engine *e, const dra_job_config *c, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < c->n_stop_tokens && st == DRA_OK; i++)
        st = c->stop_tokens[i].n > 0 ? check_ids("stop tokens: ", c->stop_tokens[i].n,
                                                 c->stop_tokens[i].data, e->V, err)
                                     : dra_fail(err, DRA_ERR_VALUE, "stop tokens: an empty list");
    return st;
}

dra_status dra_job_check_options(const dra_engine *e, const dra_job_config *c, dra_error *err)
{
    const dra_status st = check_prefix(e, c, err);
    if (st != DRA_OK) return st;
    if (c->logprobs > LOGPROBS_MOST || c->n_stop < 0 || c->n_stop > STOPS_MOST || c->n_ends < 0 ||
        c->n_stop_tokens < 0 || c->n_stop_tokens > STOPS_MOST)
        return dra_fail(err, DRA_ERR_VALUE,
                        "job: too many log-probabilities, stop strings or ends");
    if ((c->n_stop > 0 || c->grammar) && !e->config.tokenizer)
        return dra_fail(err, DRA_ERR_VALUE, "%s a tokenizer",
                        c->grammar ? "a grammar needs" : "stop strings need");
    return check_stop_tokens(e, c, err);
}

static dra_status check_text(const dra_engine *e, const dra_job_config *c, bool begins,
                             dra_error *err)
{
    dra_status st = check_ids("", c->n, c->ids, e->V, err);
    if (st == DRA_OK) st = check_source(e, c, begins, err);
    if (st != DRA_OK) return st;
    if (e->encoder && (c->kind != DRA_JOB_EMBED || c->pooling == DRA_EMBED_STATE || begins))
        return dra_fail(err, DRA_ERR_VALUE,
                        "the model is an encoder: expected one that reads and writes tokens from "
                        "left to right");
    if (c->n == 0 && (!begins || c->kind == DRA_JOB_EMBED))
        return dra_fail(err, DRA_ERR_VALUE, "no tokens, expected 1 or more to begin with");
    if (e->lanes > 1 && c->echo && c->logprobs >= 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "echo: no log-probabilities of a prompt beside amateurs");
    if (c->kind == DRA_JOB_EMBED && c->save)
        return dra_fail(err, DRA_ERR_VALUE, "save: a text that is embedded leaves no state");
    return dra_job_check_options(e, c, err);
}

/* With the state it begins from known. */
static dra_status check_room(const dra_engine *e, dra_job *job, dra_error *err)
{
    const int64_t n = (int64_t)dra_job_goal(job), room = e->positions - job->base;
    dra_status    st = dra_model_check_positions(e->shortest, job->base, n, err);
    if (st != DRA_OK) return st;
    const int64_t written = job->config.kind == DRA_JOB_EMBED ? 0 : job->config.tokens;
    const int64_t most = written < 0 ? dra_imin(room - n, DRA_ENGINE_KEPT)
                                     : dra_imin(room - n, written);
    job->need = (size_t)dra_job_width(job) * dra_rows_need(e, job->base + n + most);
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
    c->source = dra_arena_copy(a, c->source, c->n_source * sizeof *c->source);
    for (int i = 0; i < c->n_stop && room; i++)
        room = (stop[i] = dra_arena_text(a, from[i])) != NULL;
    c->stop = stop;
    if (c->state) room = (c->state = dra_arena_text(a, c->state)) != NULL && room;
    if (c->save) room = (c->save = dra_arena_text(a, c->save)) != NULL && room;
    if (c->path) room = (c->path = dra_arena_text(a, c->path)) != NULL && room;
    return room && c->sampler.bias && c->ends && c->source;
}

static bool copy_stop_tokens(dra_job *job)
{
    dra_job_config *c = &job->config;
    const size_t    n = (size_t)c->n_stop_tokens;
    dra_ids        *list = dra_arena_copy(&job->arena, c->stop_tokens, n * sizeof *list);
    bool            room = list != NULL;
    for (size_t i = 0; i < n && room; i++) {
        list[i].data = dra_arena_copy(&job->arena, list[i].data, list[i].n * sizeof *list[i].data);
        room = list[i].data != NULL;
    }
    c->stop_tokens = list;
    return room;
}

static bool copy_ids(dra_job *job)
{
    const size_t n = job->config.n;
    job->seq.ids.room = n + 64;
    job->seq.ids.data = malloc(job->seq.ids.room * sizeof *job->seq.ids.data);
    if (!job->seq.ids.data) return false;
    if (n) memcpy(job->seq.ids.data, job->config.ids, n * sizeof *job->seq.ids.data);
    job->seq.ids.n = job->seq.prompt = n;
    job->config.ids = NULL;
    return true;
}

static bool make_arrays(dra_engine *e, dra_job *job)
{
    const dra_job_config *c = &job->config;
    dra_sequence         *q = &job->seq;
    const size_t          V = (size_t)e->V, each = (size_t)e->lanes * V * sizeof *q->logits;
    bool                  room = true;
    if (c->kind == DRA_JOB_EMBED)
        return (job->sum = dra_arena_alloc(&job->arena, (size_t)e->C * sizeof *job->sum)) != NULL;
    if (c->state || job->inside.from) room &= (q->logits = malloc(each)) != NULL;
    if (c->sampler.repetition_penalty != 0 || c->save || job->inside.keep)
        room &= (q->seen = calloc(V, sizeof *q->seen)) != NULL;
    return room;
}

/* ---- a job ----------------------------------------------------------------------------------- */

bool dra_job_takes_slot(const dra_job *job)
{
    return job->config.kind == DRA_JOB_GENERATE || job->config.kind == DRA_JOB_EMBED;
}

int64_t dra_job_width(const dra_job *job)
{
    return job->config.beam.beams > 1 ? job->config.beam.beams : 1;
}

static dra_status check_slots(const dra_engine *e, const dra_job *job, dra_error *err)
{
    if (dra_job_width(job) <= e->slots) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "beam search: %lld beams, the engine has %lld slots",
                    (long long)job->config.beam.beams, (long long)e->slots);
}

static dra_status prepare_job(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_job_config *c = &job->config;
    const bool      all = c->echo && c->logprobs >= 0;
    if (!copy_lists(job) || !copy_stop_tokens(job)) return dra_engine_no_memory(err);
    if (!dra_job_takes_slot(job)) return DRA_OK;
    c->logprobs = dra_imin(c->logprobs, e->V);
    job->view = c->kind == DRA_JOB_EMBED ? DRA_VIEW_HIDDEN : all ? DRA_VIEW_ALL : DRA_VIEW_LAST;
    job->outlet = (dra_text_stream){.n_stop = c->n_stop, .stop = c->stop};
    if (!copy_ids(job) || !make_arrays(e, job)) return dra_engine_no_memory(err);
    if (c->kind == DRA_JOB_EMBED) return DRA_OK;
    dra_status st = dra_sampler_create(&c->sampler, e->V, &job->sampler, err);
    if (st == DRA_OK) st = dra_sampler_find_breaks(job->sampler, e->config.tokenizer, err);
    if (st == DRA_OK) st = dra_contrast_check_sampler(e, &c->sampler, err);
    if (st == DRA_OK && c->beam.beams) st = dra_search_check(c, err);
    if (st == DRA_OK) st = check_slots(e, job, err);
    if (st == DRA_OK && !c->beam.beams && dra_engine_drafts(e))
        st = dra_drafts_create(&job->seq.drafts, err);
    if (st == DRA_OK && c->grammar)
        st = dra_constraint_open(c->grammar, e->config.tokenizer, &job->constraint, err);
    if (st == DRA_OK && job->constraint)
        st = dra_grammar_state_copy(job->inside.place, &job->seq.place, err);
    return st;
}

static dra_status find_state(dra_engine *e, dra_job *job, dra_error *err)
{
    if (job->inside.from)
        job->begin = dra_saved_again(e, job->inside.from);
    else if (job->config.state)
        job->begin = dra_saved_hold(e, job->config.state);
    else
        return DRA_OK;
    if (!job->begin)
        return dra_fail(err, DRA_ERR_NAME, "state: there is no '%s'", job->config.state);
    job->base = job->seq.base = job->begin->tokens;
    job->seq.before = job->begin->text;
    return DRA_OK;
}

/* An owner leaves a part of the queue to others. */
static bool is_full(const dra_engine *e, uint64_t owner)
{
    const int64_t most = e->config.queue, left = most / 8 > 1 ? most / 8 : 1;
    int64_t       n = 0;
    if (e->stats.waiting >= most) return true;
    for (const dra_job *job = e->first; job && owner; job = job->next)
        n += job->config.owner == owner;
    return owner && most > 1 && n >= most - left;
}

static dra_status enqueue_job(dra_engine *e, dra_job *job, uint64_t *id, dra_error *err)
{
    pthread_mutex_lock(&e->lock);
    const bool closed = e->draining;
    const bool full = dra_job_takes_slot(job) && is_full(e, job->config.owner);
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
    return dra_job_submit(e, config, NULL, id, err);
}

dra_status dra_job_submit(dra_engine *e, const dra_job_config *config, const dra_job_inside *inside,
                          uint64_t *id, dra_error *err)
{
    dra_job   *job = calloc(1, sizeof *job);
    dra_status st = job ? check_names(config, err) : dra_engine_no_memory(err);
    *id = 0;
    if (!job) return st;
    job->config = *config;
    if (inside) job->inside = *inside;
    job->seq = (dra_sequence){.job = job, .row = -1, .copy = -1, .view = DRA_VIEWS};
    job->back.row = -1;
    job->at_submit = dra_clock();
    const bool begins = job->inside.from || config->state;
    if (st == DRA_OK && dra_job_takes_slot(job)) st = check_text(e, config, begins, err);
    if (st == DRA_OK) st = prepare_job(e, job, err);
    if (st == DRA_OK) st = find_state(e, job, err);
    if (st == DRA_OK && dra_job_takes_slot(job)) st = check_room(e, job, err);
    if (st == DRA_OK) st = enqueue_job(e, job, id, err);
    if (st != DRA_OK) dra_job_free(e, job);
    return st;
}

void dra_job_free(dra_engine *e, dra_job *job)
{
    dra_saved_drop(e, job->begin);
    dra_sampler_destroy(job->sampler);
    dra_constraint_destroy(job->constraint);
    dra_text_stream_free(&job->outlet);
    dra_search_free(e, job->search);
    dra_drafts_free(job->seq.drafts);
    dra_ids_free(&job->seq.ids);
    free(job->seq.logits);
    free(job->seq.seen);
    free(job->vector);
    free(job->seq.place);
    free(job->back.logits);
    free(job->untold);
    free(job->most);
    free(job->out);
    dra_arena_free(&job->arena);
    free(job);
}
