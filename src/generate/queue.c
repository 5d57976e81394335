/* Jobs that wait: of each owner first come first served, and owners in turns, by what each has
 * running. What needs no slot does not wait for one. */
#include "generate/engine.h"

enum { SHARE = 8 /* one of so many slots is left to other owners */ };

static int64_t count_running(const dra_engine *e, uint64_t owner)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_active; i++)
        if (e->active[i]->config.owner == owner) n += dra_job_width(e->active[i]);
    return n;
}

/* An owner leaves some slots to others, who may come; nobody's jobs leave none. */
static int64_t slots_of(const dra_engine *e, uint64_t owner)
{
    const int64_t left = e->slots / SHARE > 1 ? e->slots / SHARE : 1;
    return owner && e->slots > 1 ? e->slots - left : e->slots;
}

dra_job *dra_queue_next(dra_engine *e)
{
    dra_job *best = NULL;
    int64_t  fewest = INT64_MAX;
    uint64_t before = 0;
    bool     any = false;
    pthread_mutex_lock(&e->lock);
    for (dra_job *job = e->first; job && fewest > 0; job = job->next) {
        const uint64_t owner = job->config.owner;
        if (!dra_job_takes_slot(job) || (any && owner == before)) continue;
        const int64_t n = count_running(e, owner), width = dra_job_width(job);
        any = true;
        before = owner;
        if (n >= fewest || (n > 0 && n + width > slots_of(e, owner))) continue;
        best = job;
        fewest = n;
    }
    pthread_mutex_unlock(&e->lock);
    return best;
}

static bool needs_file(const dra_job *job)
{
    return job->config.kind == DRA_JOB_EXPORT || job->config.kind == DRA_JOB_IMPORT;
}

dra_job *dra_queue_at_once(dra_engine *e)
{
    pthread_mutex_lock(&e->lock);
    dra_job *job = e->first;
    while (job && (dra_job_takes_slot(job) || (e->filing && needs_file(job)))) job = job->next;
    pthread_mutex_unlock(&e->lock);
    return job;
}

static void take_out(dra_engine *e, dra_job *job)
{
    dra_job *before = NULL;
    for (dra_job *at = e->first; at != job; at = at->next) before = at;
    *(before ? &before->next : &e->first) = job->next;
    if (e->last == job) e->last = before;
    job->next = NULL;
    e->stats.waiting--;
}

void dra_queue_remove(dra_engine *e, dra_job *job)
{
    pthread_mutex_lock(&e->lock);
    take_out(e, job);
    pthread_mutex_unlock(&e->lock);
}

void dra_queue_join(dra_engine *e, dra_job *job)
{
    pthread_mutex_lock(&e->lock);
    take_out(e, job);
    e->active[e->n_active++] = job;
    pthread_mutex_unlock(&e->lock);
}

void dra_queue_leave(dra_engine *e, dra_job *job)
{
    pthread_mutex_lock(&e->lock);
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_active; i++)
        if (e->active[i] != job) e->active[n++] = e->active[i];
    e->n_active = n;
    pthread_mutex_unlock(&e->lock);
}

dra_job *dra_queue_take_cancelled(dra_engine *e)
{
    pthread_mutex_lock(&e->lock);
    dra_job *job = e->first;
    while (job && !job->cancelled) job = job->next;
    if (job) take_out(e, job);
    pthread_mutex_unlock(&e->lock);
    return job;
}

bool dra_job_is_cancelled(dra_engine *e, const dra_job *job)
{
    pthread_mutex_lock(&e->lock);
    const bool cancelled = job->cancelled;
    pthread_mutex_unlock(&e->lock);
    return cancelled;
}

void dra_engine_cancel(dra_engine *e, uint64_t id)
{
    pthread_mutex_lock(&e->lock);
    dra_job *job = e->first;
    while (job && job->id != id) job = job->next;
    for (int64_t i = 0; i < e->n_active && !job; i++)
        if (e->active[i]->id == id) job = e->active[i];
    if (job) job->cancelled = true;
    void (*wake)(void *) = e->wake;
    void *user = e->wake_user;
    pthread_mutex_unlock(&e->lock);
    if (job && wake) wake(user);
}

void dra_engine_drain(dra_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->draining = true;
    pthread_mutex_unlock(&e->lock);
}

void dra_engine_on_wake(dra_engine *e, void (*wake)(void *user), void *user)
{
    pthread_mutex_lock(&e->lock);
    e->wake = wake;
    e->wake_user = user;
    pthread_mutex_unlock(&e->lock);
}
