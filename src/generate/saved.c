/* States by name. What a name stands for never changes: jobs hold it while they need it, a fork is
 * a second name for it, and saving puts another in its place. So nobody waits for anybody. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "generate/engine.h"

bool dra_state_name_ok(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "._-";
    const size_t      n = strspn(name, letters);
    return n >= 1 && n <= DRA_STATE_NAME && !name[n];
}

/* ---- what names stand for -------------------------------------------------------------------- */

static void free_saved(dra_engine *e, dra_saved *s)
{
    if (!s) return;
    dra_rows_give(e, &s->row);
    free(s->logits);
    free(s->seen);
    dra_ids_free(&s->text);
    free(s);
}

static dra_status make_saved(dra_engine *e, dra_saved **out, dra_error *err)
{
    dra_saved *s = calloc(1, sizeof *s);
    *out = s;
    if (!s) return dra_engine_no_memory(err);
    *s = (dra_saved){.refs = 1,
                     .row = -1,
                     .logits = malloc((size_t)(e->lanes * e->V) * sizeof *s->logits),
                     .seen = calloc((size_t)e->V, sizeof *s->seen)};
    return s->logits && s->seen ? DRA_OK : dra_engine_no_memory(err);
}

static void measure_saved(const dra_engine *e, dra_saved *s)
{
    s->tokens = dra_states_tokens(e->lane[0].pool, s->row);
    s->bytes = (size_t)e->V * ((size_t)e->lanes * sizeof *s->logits + sizeof *s->seen);
    s->held = s->bytes + dra_rows_need(e, s->tokens);
    for (int i = 0; i < e->pools; i++) s->bytes += dra_states_row_bytes(e->lane[i].pool, s->row);
}

dra_saved *dra_saved_again(dra_engine *e, dra_saved *s)
{
    if (!s) return NULL;
    pthread_mutex_lock(&e->lock);
    s->refs++;
    pthread_mutex_unlock(&e->lock);
    return s;
}

/* Rows are given back by the thread that steps. */
void dra_saved_drop(dra_engine *e, dra_saved *s)
{
    if (!s) return;
    pthread_mutex_lock(&e->lock);
    if (--s->refs == 0) {
        s->next = e->dead;
        e->dead = s;
    }
    pthread_mutex_unlock(&e->lock);
}

void dra_saved_bury(dra_engine *e)
{
    pthread_mutex_lock(&e->lock);
    dra_saved *s = e->dead;
    e->dead = NULL;
    pthread_mutex_unlock(&e->lock);
    while (s) {
        dra_saved *next = s->next;
        free_saved(e, s);
        s = next;
    }
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Where a name is or belongs. */
static size_t place_of(const dra_engine *e, const char *name, bool *there)
{
    size_t lo = 0, hi = e->n_names;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (strcmp(e->names[mid].name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *there = lo < e->n_names && strcmp(e->names[lo].name, name) == 0;
    return lo;
}

dra_saved *dra_saved_hold(dra_engine *e, const char *name)
{
    bool there;
    pthread_mutex_lock(&e->lock);
    const size_t at = place_of(e, name, &there);
    dra_saved   *s = there ? e->names[at].state : NULL;
    if (s) s->refs++;
    if (s) e->names[at].used = dra_engine_now();
    pthread_mutex_unlock(&e->lock);
    return s;
}

/* Room for another name, so that put_name() cannot fail. */
static dra_status reserve_name(dra_engine *e, dra_error *err)
{
    if (e->n_names < e->names_room) return DRA_OK;
    const size_t room = e->names_room ? 2 * e->names_room : 16;
    pthread_mutex_lock(&e->lock);
    dra_saved_name *more = realloc(e->names, room * sizeof *more);
    if (more) e->names = more;
    if (more) e->names_room = room;
    pthread_mutex_unlock(&e->lock);
    return more ? DRA_OK : dra_engine_no_memory(err);
}

/* The name stands for s from now on, which is held once more by it. Returns what it stood for. */
static dra_saved *put_name(dra_engine *e, const char *name, dra_saved *s)
{
    bool       there;
    dra_saved *before = NULL;
    pthread_mutex_lock(&e->lock);
    const size_t    at = place_of(e, name, &there);
    dra_saved_name *n = &e->names[at];
    if (there) before = n->state;
    if (!there) memmove(n + 1, n, (e->n_names++ - at) * sizeof *n);
    *n = (dra_saved_name){.state = s, .created = dra_engine_now()};
    n->used = n->created;
    snprintf(n->name, sizeof n->name, "%s", name);
    pthread_mutex_unlock(&e->lock);
    return before;
}

/* For drafts, and penalties on what the text repeats: without memory they know less. */
static void note_text(const dra_sequence *q, dra_saved *s)
{
    const size_t n = q->before.n + q->read;
    if (n == 0 || !(s->text.data = malloc(n * sizeof *s->text.data))) return;
    if (q->before.n) memcpy(s->text.data, q->before.data, q->before.n * sizeof *s->text.data);
    memcpy(s->text.data + q->before.n, q->ids.data, q->read * sizeof *s->text.data);
    s->text.n = s->text.room = n;
}

dra_status dra_saved_make(dra_engine *e, dra_job *job, dra_saved **out, dra_error *err)
{
    dra_sequence *q = &job->seq;
    dra_saved    *s = NULL;
    dra_status    st = make_saved(e, &s, err);
    *out = NULL;
    if (st == DRA_OK) st = dra_sequence_keep_logits(e, q, s->logits, err);
    if (st != DRA_OK) {
        free_saved(e, s);
        return st;
    }
    note_text(q, s);
    if (job->begin) memcpy(s->seen, job->begin->seen, (size_t)e->V * sizeof *s->seen);
    for (size_t i = 0; i < q->read; i++) s->seen[q->ids.data[i]] = true;
    s->row = q->row;
    q->row = -1;
    measure_saved(e, s);
    *out = s;
    return DRA_OK;
}

dra_status dra_saved_put(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_saved *s = NULL;
    dra_status st = reserve_name(e, err);
    if (st == DRA_OK) st = dra_saved_make(e, job, &s, err);
    if (st == DRA_OK) dra_saved_drop(e, put_name(e, job->config.save, s));
    return st;
}

/* ---- jobs that need no slot ------------------------------------------------------------------ */

static dra_status fork_state(dra_engine *e, dra_job *job, dra_error *err)
{
    const dra_status st = reserve_name(e, err);
    if (st != DRA_OK) return st;
    dra_saved_drop(e, put_name(e, job->config.save, job->begin));
    job->begin = NULL; /* the name holds it now */
    return DRA_OK;
}

static dra_status delete_state(dra_engine *e, dra_job *job, dra_error *err)
{
    bool       there;
    dra_saved *s = NULL;
    pthread_mutex_lock(&e->lock);
    const size_t at = place_of(e, job->config.state, &there);
    if (there) {
        s = e->names[at].state;
        memmove(&e->names[at], &e->names[at + 1], (--e->n_names - at) * sizeof *e->names);
    }
    pthread_mutex_unlock(&e->lock);
    dra_saved_drop(e, s);
    return DRA_OK;
}

/* One lane of n states. */
static dra_status export_lane(dra_engine *e, int lane, int64_t n, dra_saved *const *of,
                              dra_context *out, dra_error *err)
{
    const size_t V = (size_t)e->V, all = (size_t)n * V;
    int64_t     *rows = malloc((size_t)n * sizeof *rows);
    *out = (dra_context){.logits = malloc(all * sizeof *out->logits),
                         .seen = malloc(all * sizeof *out->seen)};
    dra_status st = rows && out->logits && out->seen ? DRA_OK : dra_engine_no_memory(err);
    for (int64_t b = 0; b < n && st == DRA_OK; b++) {
        rows[b] = of[b]->row;
        memcpy(out->logits + (size_t)b * V, of[b]->logits + (size_t)lane * V,
               V * sizeof *out->logits);
        memcpy(out->seen + (size_t)b * V, of[b]->seen, V * sizeof *out->seen);
    }
    if (st == DRA_OK) st = dra_states_gather(e->lane[lane].pool, n, rows, &out->states, err);
    free(rows);
    return st;
}

dra_status dra_saved_export(dra_engine *e, int64_t n, dra_saved *const *of, dra_context *out,
                            dra_error *err)
{
    const int  amateurs = e->lanes - 1;
    dra_status st = export_lane(e, 0, n, of, out, err);
    if (st == DRA_OK && amateurs > 0) {
        out->amateur = calloc((size_t)amateurs, sizeof *out->amateur);
        if (out->amateur)
            out->amateurs = amateurs;
        else
            st = dra_engine_no_memory(err);
    }
    for (int i = 0; i < amateurs && st == DRA_OK; i++)
        st = export_lane(e, i + 1, n, of, &out->amateur[i], err);
    if (st != DRA_OK) dra_context_free(out);
    return st;
}

static void import_logits(dra_engine *e, dra_saved *s, int lane, const dra_context *c, int64_t from)
{
    const size_t V = (size_t)e->V, at = (size_t)from * V;
    memcpy(s->logits + (size_t)lane * V, c->logits + at, V * sizeof *s->logits);
    if (lane == 0) memcpy(s->seen, c->seen + at, V * sizeof *s->seen);
}

static const dra_context *lane_of(const dra_context *c, int lane)
{
    return lane ? &c->amateur[lane - 1] : c;
}

dra_status dra_saved_begin(dra_engine *e, const dra_context *c, int64_t from, dra_saved **out,
                           dra_error *err)
{
    dra_saved *s = NULL;
    dra_status st = make_saved(e, &s, err);
    *out = NULL;
    if (st == DRA_OK) st = dra_rows_take(e, -1, &s->row, err);
    if (st != DRA_OK) {
        free_saved(e, s);
        return st;
    }
    for (int i = 0; i < e->lanes; i++) import_logits(e, s, i, lane_of(c, i), from);
    *out = s;
    return DRA_OK;
}

dra_status dra_saved_import(dra_engine *e, const dra_context *c, int64_t from, dra_saved **out,
                            dra_error *err)
{
    dra_saved *s = NULL;
    dra_status st = dra_saved_begin(e, c, from, &s, err);
    *out = NULL;
    for (int i = 0; i < e->lanes && st == DRA_OK; i++)
        st = dra_states_copy(e->lane[i].pool, s->row, lane_of(c, i)->states, from, err);
    if (st != DRA_OK) {
        free_saved(e, s);
        return st;
    }
    measure_saved(e, s);
    *out = s;
    return DRA_OK;
}

static dra_status export_state(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_context c = {0};
    dra_status  st = dra_saved_export(e, 1, &job->begin, &c, err);
    if (st == DRA_OK)
        st = dra_context_save(e->config.model, e->config.weights, &c, job->config.path, err);
    dra_context_free(&c);
    return st;
}

dra_status dra_saved_check(dra_engine *e, const dra_job *job, const dra_context *c, dra_error *err)
{
    const int64_t B = dra_states_batch(c->states);
    if (B != 1)
        return dra_fail(err, DRA_ERR_VALUE, "%.200s: %lld sequences, expected 1", job->config.path,
                        (long long)B);
    if (e->lanes > 1 + c->amateurs)
        return dra_fail(err, DRA_ERR_VALUE, "%.200s: no states of amateurs, expected %d",
                        job->config.path, e->lanes - 1);
    if (!dra_rows_fit(e, dra_rows_need(e, dra_states_tokens(c->states, 0)), NULL))
        return dra_fail(err, DRA_ERR_MEMORY, "%.200s: the limit of memory for states is reached",
                        job->config.path);
    return DRA_OK;
}

dra_status dra_saved_adopt(dra_engine *e, const dra_job *job, dra_saved *s, dra_error *err)
{
    const dra_status st = reserve_name(e, err);
    measure_saved(e, s);
    dra_saved_drop(e, st == DRA_OK ? put_name(e, job->config.save, s) : s);
    return st;
}

static dra_status import_state(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_context c = {0};
    dra_status  st = dra_context_load(e->config.device, e->config.model, e->config.weights,
                                      job->config.path, &c, err);
    dra_saved  *s = NULL;
    if (st == DRA_OK) st = dra_saved_check(e, job, &c, err);
    if (st == DRA_OK) st = dra_saved_import(e, &c, 0, &s, err);
    if (st == DRA_OK) st = dra_saved_adopt(e, job, s, err);
    dra_context_free(&c);
    return st;
}

dra_status dra_saved_run(dra_engine *e, dra_job *job, dra_error *err)
{
    switch (job->config.kind) {
    case DRA_JOB_FORK: return fork_state(e, job, err);
    case DRA_JOB_DELETE: return delete_state(e, job, err);
    case DRA_JOB_EXPORT: return export_state(e, job, err);
    case DRA_JOB_IMPORT: return import_state(e, job, err);
    default: return DRA_OK;
    }
}

void dra_saved_free(dra_engine *e)
{
    for (size_t i = 0; i < e->n_names; i++) dra_saved_drop(e, e->names[i].state);
    dra_saved_bury(e);
    free(e->names);
}

/* ---- looking at them ------------------------------------------------------------------------- */

/* The first name after this one; *state is what it stands for. */
static bool next_name(dra_engine *e, dra_saved_name *name, dra_saved *state)
{
    bool there;
    pthread_mutex_lock(&e->lock);
    const size_t at = place_of(e, name->name, &there) + there;
    const bool   found = at < e->n_names;
    if (found) *name = e->names[at], *state = *name->state;
    pthread_mutex_unlock(&e->lock);
    return found;
}

/* One after another, as `each` may call the engine, and a list of them might find no memory. */
void dra_engine_states(dra_engine *e, void (*each)(void *user, const dra_state_info *state),
                       void       *user)
{
    dra_saved_name name = {.name = ""};
    dra_saved      s;
    while (next_name(e, &name, &s))
        each(user,
             &(dra_state_info){name.name, s.tokens, s.bytes, name.created, name.used, s.held});
}
