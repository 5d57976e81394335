/* States by name. What a name stands for never changes: jobs hold it while they need it, a fork is
 * a second name for it, and saving puts another in its place. So nobody waits for anybody. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/engine.h"

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
    free(s);
}

static dra_status make_saved(dra_engine *e, dra_saved **out, dra_error *err)
{
    dra_saved *s = calloc(1, sizeof *s);
    *out = s;
    if (!s) return dra_engine_no_memory(err);
    *s = (dra_saved){.refs = 1,
                     .row = -1,
                     .logits = malloc((size_t)e->V * sizeof *s->logits),
                     .seen = calloc((size_t)e->V, sizeof *s->seen)};
    return s->logits && s->seen ? DRA_OK : dra_engine_no_memory(err);
}

static void measure(const dra_engine *e, dra_saved *s)
{
    s->tokens = dra_states_tokens(e->pool, s->row);
    s->bytes = dra_states_row_bytes(e->pool, s->row) +
               (size_t)e->V * (sizeof *s->logits + sizeof *s->seen);
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

/* Room for another name, so that put() cannot fail. */
static dra_status reserve(dra_engine *e, dra_error *err)
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
static dra_saved *put(dra_engine *e, const char *name, dra_saved *s)
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

dra_status dra_saved_put(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_saved *s = NULL;
    dra_status st = reserve(e, err);
    if (st == DRA_OK) st = make_saved(e, &s, err);
    if (st != DRA_OK) {
        free_saved(e, s);
        return st;
    }
    memcpy(s->logits, job->logits, (size_t)e->V * sizeof *s->logits);
    if (job->begin) memcpy(s->seen, job->begin->seen, (size_t)e->V * sizeof *s->seen);
    for (size_t i = 0; i < job->read; i++) s->seen[job->ids.data[i]] = true;
    s->row = job->row;
    job->row = -1;
    measure(e, s);
    dra_saved_drop(e, put(e, job->config.save, s));
    return DRA_OK;
}

/* ---- jobs that need no slot ------------------------------------------------------------------ */

static dra_status fork_state(dra_engine *e, dra_job *job, dra_error *err)
{
    const dra_status st = reserve(e, err);
    if (st != DRA_OK) return st;
    dra_saved_drop(e, put(e, job->config.save, job->begin));
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

static dra_status export_state(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_context c = {.logits = job->begin->logits, .seen = job->begin->seen};
    dra_status  st = dra_states_create(e->config.device, dra_model_state(e->config.model), 1,
                                       &c.states, err);
    if (st == DRA_OK) st = dra_states_copy(c.states, 0, e->pool, job->begin->row, err);
    if (st == DRA_OK)
        st = dra_context_save(e->config.model, e->config.weights, &c, job->config.path, err);
    dra_states_destroy(c.states);
    return st;
}

static dra_status adopt(dra_engine *e, dra_job *job, const dra_context *c, dra_saved *s,
                        dra_error *err)
{
    const size_t  V = (size_t)e->V;
    const int64_t B = dra_states_batch(c->states);
    if (B != 1)
        return dra_fail(err, DRA_ERR_VALUE, "%.200s: %lld sequences, expected 1", job->config.path,
                        (long long)B);
    if (!dra_rows_fit(e, dra_rows_need(e, dra_states_tokens(c->states, 0))))
        return dra_fail(err, DRA_ERR_MEMORY, "%.200s: the limit of memory for states is reached",
                        job->config.path);
    dra_status st = dra_rows_take(e, -1, &s->row, err);
    if (st == DRA_OK) st = dra_states_copy(e->pool, s->row, c->states, 0, err);
    if (st != DRA_OK) return st;
    memcpy(s->logits, c->logits, V * sizeof *s->logits);
    memcpy(s->seen, c->seen, V * sizeof *s->seen);
    measure(e, s);
    return DRA_OK;
}

static dra_status import_state(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_context c = {0};
    dra_saved  *s = NULL;
    dra_status  st = reserve(e, err);
    if (st == DRA_OK)
        st = dra_context_load(e->config.device, e->config.model, e->config.weights,
                              job->config.path, &c, err);
    if (st == DRA_OK) st = make_saved(e, &s, err);
    if (st == DRA_OK) st = adopt(e, job, &c, s, err);
    dra_context_free(&c);
    if (st == DRA_OK)
        dra_saved_drop(e, put(e, job->config.save, s));
    else
        free_saved(e, s);
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
    pthread_mutex_lock(&e->lock);
    size_t low = 0, high = e->n_names;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (strcmp(e->names[mid].name, name->name) > 0)
            high = mid;
        else
            low = mid + 1;
    }
    const bool found = low < e->n_names;
    if (found) *name = e->names[low], *state = *name->state;
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
        each(user, &(dra_state_info){name.name, s.tokens, s.bytes, name.created, name.used});
}
