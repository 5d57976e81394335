/* A step: who was cancelled leaves, who waits joins, prompts are read up to a chunk of tokens or
 * for a slice of time (pace.c), one job after another in turns, then every sequence that writes
 * reads one token, all at once. While a chunk is read in slices the pool does not grow, as its
 * program has the pool's addresses: only what needs no more memory is done in between. */
#include "base/error.h"
#include "base/shape.h"
#include "generate/engine.h"
#include "sequence/states.h"

#include <math.h>
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
    dra_filing_step(e);
    for (dra_job *job; (job = dra_queue_at_once(e));) {
        dra_error  why = {0};
        const bool files = job->config.kind == DRA_JOB_EXPORT || job->config.kind == DRA_JOB_IMPORT;
        if (files && dra_filing_begin(e, job)) {
            dra_queue_remove(e, job);
            continue;
        }
        const dra_status st = dra_saved_run(e, job, &why);
        dra_queue_remove(e, job);
        end_waiting(e, job, st == DRA_OK ? DRA_JOB_DONE : DRA_JOB_FAILED, &why);
    }
}

static void remove_finished(dra_engine *e)
{
    for (int64_t i = e->n_active; i-- > 0;) {
        dra_job *job = e->active[i];
        if (!job->over) continue;
        dra_queue_leave(e, job);
        dra_job_free(e, job);
    }
}

/* Whether a job may begin with what others have read. */
static bool shares_prompt(const dra_job *job)
{
    return !job->begin && job->view == DRA_VIEW_LAST && !job->config.prefix &&
           !job->config.n_source;
}

/* The kept state that a job may begin with, and how many tokens of it; NULL: none. */
static dra_prefix *find_prefix(dra_engine *e, const dra_job *job, size_t *tokens)
{
    *tokens = 0;
    return shares_prompt(job) ? dra_prefix_find(e, job, tokens) : NULL;
}

/* The row of a job becomes a copy of what is kept of its prompt. */
static dra_status take_prefix(dra_engine *e, dra_job *job, dra_prefix *p, size_t tokens,
                              dra_error *err)
{
    dra_sequence *s = &job->seq;
    dra_rows_give(e, &s->row);
    const dra_status st = dra_rows_take(e, p->row, &s->row, err);
    if (st != DRA_OK) return st;
    for (int i = 0; i < e->pools && tokens < p->n; i++)
        dra_pool_cut(e->lane[i].pool, s->row, (int64_t)tokens);
    if (tokens == p->n) dra_prefix_stay(e, job, p);
    s->read = job->cached = tokens;
    for (size_t i = 0; s->seen && i < s->read; i++) s->seen[s->ids.data[i]] = true;
    return DRA_OK;
}

/* Its row becomes a copy of the state that it begins from. */
static dra_status take_state(dra_engine *e, dra_job *job, dra_error *err)
{
    const size_t     V = (size_t)e->V;
    dra_sequence    *s = &job->seq;
    const dra_saved *from = job->begin;
    if (s->logits) memcpy(s->logits, from->logits, (size_t)e->lanes * V * sizeof *s->logits);
    if (s->seen) memcpy(s->seen, from->seen, V * sizeof *s->seen);
    return dra_rows_take(e, from->row, &s->row, err);
}

/* Its turn to read has come: others may have read more of its prompt. */
static dra_status begin_reading(dra_engine *e, dra_job *job, dra_error *err)
{
    size_t      tokens;
    dra_prefix *p = find_prefix(e, job, &tokens);
    job->begun = true;
    if (shares_prompt(job)) dra_prefix_mark(e, job);
    if (p && tokens > job->seq.read) return take_prefix(e, job, p, tokens, err);
    return job->seq.row < 0 ? dra_rows_take(e, -1, &job->seq.row, err) : DRA_OK;
}

/* Sequences that run, or come to. */
static int64_t count_sequences(const dra_engine *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_active; i++) n += dra_job_width(e->active[i]);
    return n;
}

/* Memory for a job besides what it shares with what it begins with, *n tokens of *from: a kept
 * state gives way last of all to the job that asks for it. One that is alone may go beyond the
 * limit by the copies it makes. */
static bool make_room(dra_engine *e, dra_job *job, dra_prefix **from, size_t *n)
{
    const size_t need = e->n_active > 0 ? dra_rows_later(e, job) : job->need;
    do {
        dra_prefix   *p = *from = find_prefix(e, job, n);
        const int64_t tokens = job->begin ? job->begin->tokens : p ? (int64_t)*n : 0;
        const size_t  shared = dra_rows_shared(e, tokens);
        if (dra_rows_fit(e, need > shared ? need - shared : 0, p)) return true;
    } while (*from && dra_prefix_drop_oldest(e));
    return false;
}

static size_t count_common(const dra_sequence *a, const dra_sequence *b)
{
    const size_t most = a->prompt < b->prompt ? a->prompt : b->prompt;
    size_t       n = 0;
    while (n < most && a->ids.data[n] == b->ids.data[n]) n++;
    return n;
}

/* After how many tokens of a prompt a state will be kept that has its first n, or most of them. */
static size_t kept_after(const dra_engine *e, const dra_job *job, size_t n)
{
    const size_t last = job->seq.prompt - 1, rest = n % DRA_ENGINE_KEPT;
    if (!e->cuts) return n >= last ? last : n - rest;
    if (n < DRA_ENGINE_CUT) return 0;
    const size_t next = rest ? n - rest + DRA_ENGINE_KEPT : n;
    return next < last ? next : last;
}

/* The running job that reads what this one begins with, too, and how far it has to come. */
static void find_leader(const dra_engine *e, dra_job *job)
{
    size_t best = 0;
    for (int64_t i = 0; i < e->n_active && !e->config.forget && shares_prompt(job); i++) {
        const dra_job *other = e->active[i];
        if (other == job || other->started || !shares_prompt(other) ||
            other->config.owner != job->config.owner)
            continue;
        const size_t n = count_common(&job->seq, &other->seq), until = kept_after(e, other, n);
        if (until == 0 || n <= best) continue;
        best = n;
        job->leader = other->id;
        job->until = until;
    }
}

static bool waits_for_leader(const dra_engine *e, const dra_job *job)
{
    for (int64_t i = 0; i < e->n_active && job->leader; i++) {
        const dra_job *other = e->active[i];
        if (other->id == job->leader)
            return !other->over && !other->started && other->seq.read < job->until;
    }
    return false;
}

static dra_status join_job(dra_engine *e, dra_job *job, dra_prefix *from, size_t tokens,
                           dra_error *err)
{
    job->at_join = dra_clock();
    dra_queue_join(e, job);
    find_leader(e, job);
    if (job->begin) return take_state(e, job, err);
    return from ? take_prefix(e, job, from, tokens, err) : DRA_OK;
}

static void admit_waiting(dra_engine *e)
{
    for (dra_job *job; (job = dra_queue_next(e));) {
        dra_error   why = {0};
        dra_prefix *from;
        size_t      tokens;
        if (count_sequences(e) + dra_job_width(job) > e->slots) return;
        if (make_room(e, job, &from, &tokens)) {
            if (join_job(e, job, from, tokens, &why) != DRA_OK) dra_job_fail(e, job, &why);
            continue;
        }
        if (e->n_active > 0) return;
        dra_fail(&why, DRA_ERR_MEMORY,
                 "%zu bytes of state besides those with names, which are %zu: the limit is %zu",
                 job->need, dra_rows_bytes(e), e->config.memory_limit);
        dra_queue_remove(e, job);
        end_waiting(e, job, DRA_JOB_FAILED, &why);
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

dra_status dra_job_note_read(dra_engine *e, dra_job *job, dra_error *err)
{
    const dra_sequence *s = &job->seq;
    if (job->search && !job->closing) return DRA_OK;
    if (!job->started) {
        const bool first = s->read == job->cached + s->fresh;
        count_tokens(e, (int64_t)s->fresh, first ? (int64_t)job->cached : 0, 0);
        dra_prefix_passed(e, job);
    }
    if (s->read < dra_job_goal(job)) return DRA_OK;
    return job->config.kind == DRA_JOB_EMBED ? dra_job_pool(e, job, err)
                                             : dra_job_ready(e, job, err);
}

/* Sequences have read tokens, all in one call: those with none left get their next one. Returns
 * what went wrong with the device. */
static dra_status go_on(dra_engine *e, int64_t n, dra_sequence **of, dra_error *err)
{
    int64_t before = 0, after = 0;
    for (int64_t i = 0; i < n; i++) {
        dra_error why = {0};
        if (!of[i]->job->over && dra_job_note_read(e, of[i]->job, &why) != DRA_OK)
            dra_job_fail(e, of[i]->job, &why);
    }
    for (int64_t i = 0; i < n; i++) before += (int64_t)of[i]->ids.n;
    dra_status st = dra_pick(e, n, of, err);
    for (int64_t i = 0; i < n && st == DRA_OK; i++) {
        dra_job   *job = of[i]->job;
        dra_error  why = {0};
        const bool last = i + 1 == n || of[i + 1]->job != job;
        if (job->search && last && !job->over && !job->closing &&
            dra_search_step(e, job, &why) != DRA_OK)
            dra_job_fail(e, job, &why);
    }
    for (int64_t i = 0; i < n; i++) after += (int64_t)of[i]->ids.n;
    if (after > before) count_tokens(e, 0, 0, after - before);
    return st;
}

/* The first error is the step's, too. */
static void note_error(dra_status st, const dra_error *why, dra_status *first, dra_error *err)
{
    if (st == DRA_OK || *first != DRA_OK) return;
    *first = st;
    if (err) *err = *why;
}

/* A chunk was begun or went on; if it is read, its jobs go on. */
static dra_status take_chunk(dra_engine *e, dra_error *err)
{
    const int64_t n = e->chunk.n;
    dra_status    st = DRA_OK;
    if (e->chunk.job) return DRA_OK;
    for (int64_t b = 0; b < n; b++) e->batch[b] = &e->part[b].job->seq;
    if (e->chunk.view != DRA_VIEW_ALL) return go_on(e, n, e->batch, err);
    for (int64_t b = 0; b < n && st == DRA_OK; b++) st = go_on(e, 1, e->batch + b, err);
    return st;
}

/* What went wrong with the chunk of several jobs ends all of them. */
static dra_status read_chunk(dra_engine *e, int64_t n, dra_error *err)
{
    dra_status st = dra_chunk_read(e, n, err);
    if (st == DRA_OK) st = take_chunk(e, err);
    for (int64_t b = 1; b < n && st != DRA_OK; b++) dra_job_fail(e, e->part[b].job, err);
    return st;
}

static dra_status continue_chunk(dra_engine *e, dra_error *err)
{
    const dra_status st = dra_chunk_continue(e, err);
    return st == DRA_OK ? take_chunk(e, err) : st;
}

/* Whether a job has a chunk to read, and has begun. */
static bool is_at_chunk(dra_engine *e, dra_job *job)
{
    dra_error why = {0};
    if (job->over || job->search || dra_chunk_next(e, job) == 0) return false;
    if (job->begun) return true;
    if (waits_for_leader(e, job)) return false;
    if (begin_reading(e, job, &why) != DRA_OK) dra_job_fail(e, job, &why);
    return !job->over && dra_chunk_next(e, job) > 0;
}

/* The job and those whose chunks are read with its own: while nobody writes, who would have to wait
 * for all of it, as many as the budget allows. */
static int64_t find_parts(dra_engine *e, dra_job *job, int64_t budget)
{
    const int64_t P = dra_chunk_padded(e, job);
    int64_t       n = 1;
    e->part[0].job = job;
    for (int64_t i = 0; i < e->n_active && dra_pace_is_alone(e); i++) {
        dra_job *other = e->active[i];
        if ((n + 1) * P > budget) break;
        if (other == job || !dra_chunk_joins(e, job, other) || !is_at_chunk(e, other)) continue;
        if (dra_chunk_joins(e, job, other)) e->part[n++].job = other; /* begun, it may be shorter */
    }
    return n;
}

/* What of a job's prompt fits into the budget, which ends with the first chunk that does not, and
 * with the time of this slice. */
static dra_status read_prompt(dra_engine *e, dra_job *job, int64_t *budget, dra_error *err)
{
    dra_sequence *s = &job->seq;
    dra_status    st = DRA_OK;
    if (job->search || (!job->begun && waits_for_leader(e, job))) return DRA_OK;
    if (!job->begun && (*budget > 0 || dra_chunk_next(e, job) == 0))
        st = begin_reading(e, job, err);
    if (st == DRA_OK && !job->started && dra_job_goal(job) == 0) st = go_on(e, 1, &s, err);
    while (st == DRA_OK && !job->over && !job->search && job->begun) {
        const int64_t T = dra_chunk_next(e, job);
        if (T > *budget && *budget < e->pace.most) *budget = 0; /* else it is one that is longer */
        if (T == 0 || *budget == 0) break;
        const int64_t n = find_parts(e, job, *budget), P = dra_chunk_padded(e, job);
        *budget -= dra_imin(n > 1 ? n * P : T, *budget);
        e->turn = job->id;
        e->turn_owner = job->config.owner;
        st = read_chunk(e, n, err);
        if (e->chunk.job || dra_pace_is_over(e)) *budget = 0;
    }
    return st;
}

/* What went wrong ends the job; what went wrong with the device is the step's error, too. */
static void note_failure(dra_engine *e, dra_job *job, dra_status st, const dra_error *why,
                         dra_status *first, dra_error *err)
{
    if (st == DRA_ERR_DEVICE) note_error(st, why, first, err);
    if (st != DRA_OK) dra_job_fail(e, job, why);
}

static dra_status read_prompts(dra_engine *e, dra_error *err)
{
    int64_t    budget = dra_pace_step(e);
    dra_status first = DRA_OK;
    dra_job   *job = e->chunk.job;
    if (job) {
        dra_error why = {0};
        budget = dra_imax(budget - e->part[0].T, 0);
        dra_pace_slice(e);
        note_failure(e, job, continue_chunk(e, &why), &why, &first, err);
    }
    int64_t first_turn = 0;
    while (first_turn < e->n_active && e->active[first_turn]->id <= e->turn) first_turn++;
    const uint64_t last = e->turn_owner;
    for (int64_t i = 0; i < 2 * e->n_active && !e->chunk.job; i++) {
        dra_error why = {0};
        job = e->active[(first_turn + i) % e->n_active];
        if ((job->config.owner == last) != (i >= e->n_active)) continue;
        note_failure(e, job, read_prompt(e, job, &budget, &why), &why, &first, err);
    }
    return first;
}

/* The chunk that is read in slices is read to its end, as what comes next may need more memory. */
static dra_status end_chunk(dra_engine *e, dra_error *err)
{
    dra_status first = DRA_OK;
    while (e->chunk.job) {
        dra_job  *job = e->chunk.job;
        dra_error why = {0};
        e->pace.slice.until = INFINITY;
        note_failure(e, job, continue_chunk(e, &why), &why, &first, err);
    }
    return first;
}

/* One token is to be read; while a text is written, drafts may have left more. */
static bool is_due(const dra_engine *e, const dra_sequence *s)
{
    const dra_job *job = s->job;
    const size_t   unread = s->ids.n - s->read;
    return job->begun && dra_chunk_next(e, job) == 0 &&
           (unread == 1 || (unread > 1 && job->started && !job->closing));
}

/* Sequences that read a token each; returns how many. */
static int64_t find_batch(dra_engine *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_active; i++) {
        dra_job      *job = e->active[i];
        dra_sequence *s = &job->seq;
        if (job->over || job == e->chunk.job) continue;
        if (job->search && !job->closing)
            n += dra_search_unread(job->search, e->batch + n);
        else if (is_due(e, s))
            e->batch[n++] = s;
    }
    return n;
}

static dra_status write_batch(dra_engine *e, dra_error *err)
{
    const double  began = dra_clock();
    const int64_t n = find_batch(e);
    dra_error     why = {0};
    if (n == 0) return DRA_OK;
    dra_status st = DRA_OK;
    bool       search = false;
    for (int64_t i = 0; i < n; i++) search = search || e->batch[i]->job->search;
    for (int64_t i = 0; i < n && !search && st == DRA_OK; i++)
        st = dra_drafts_make(e, e->batch[i], &why);
    if (st == DRA_OK && !search && dra_verify_length(n, e->batch) > 1) {
        int64_t written = 0;
        st = dra_verify(e, n, e->batch, &written, &why);
        count_tokens(e, 0, 0, written);
    } else if (st == DRA_OK) {
        st = dra_batch_read(e, n, e->batch, &why);
        if (st == DRA_OK) st = go_on(e, n, e->batch, &why);
    }
    for (int64_t i = 0; i < n && st != DRA_OK; i++) dra_job_fail(e, e->batch[i]->job, &why);
    dra_pace_wrote(e, began);
    if (st == DRA_ERR_DEVICE && err) *err = why;
    return st == DRA_ERR_DEVICE ? st : DRA_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void update_stats(dra_engine *e, double began, bool *idle)
{
    const size_t bytes = dra_rows_bytes(e);
    pthread_mutex_lock(&e->lock);
    dra_engine_stats *s = &e->stats;
    *idle = e->n_active == 0 && (!e->first || e->filing) && !dra_filing_copies(e);
    s->active = e->n_active;
    s->states = (int64_t)e->n_names;
    s->kept = e->prefixes.n;
    s->state_bytes = bytes;
    s->programs = 0;
    for (int i = 0; i < e->pools; i++)
        for (int v = 0; v < DRA_VIEWS; v++)
            if (e->lane[i].reader[v])
                s->programs += (int64_t)dra_reader_programs(e->lane[i].reader[v]);
    s->steps++;
    s->step_seconds += dra_clock() - began;
    pthread_mutex_unlock(&e->lock);
}

dra_status dra_engine_step(dra_engine *e, bool *idle, dra_error *err)
{
    const double began = dra_clock();
    dra_error    why = {0};
    dra_saved_bury(e);
    end_cancelled(e);
    remove_finished(e);
    if (!e->chunk.job) run_at_once(e);
    if (!e->chunk.job) admit_waiting(e);
    dra_status first = read_prompts(e, err);
    if (e->chunk.job && !dra_rows_ready(e, count_sequences(e)))
        note_error(end_chunk(e, &why), &why, &first, err);
    const dra_status st = write_batch(e, &why);
    note_error(st, &why, &first, err);
    remove_finished(e);
    dra_saved_bury(e);
    if (!e->chunk.job) dra_rows_fit(e, 0, NULL);
    update_stats(e, began, idle);
    return first;
}
