/* Files of states beside the steps: a thread reads or writes the file, so that nobody who writes
 * waits for a disk. What is copied out of the pool or into it is copied by the thread that steps.
 * One file at a time, in the order in which they were asked for. */
#include <stdlib.h>

#include "base/error.h"
#include "generate/engine.h"

struct dra_filing {
    dra_engine *e;
    dra_job    *job;
    pthread_t   thread;
    dra_context context;
    dra_status  status;
    dra_error   error;
    bool        done; /* guarded by the lock of the engine */
};

static bool is_export(const dra_filing *f) { return f->job->config.kind == DRA_JOB_EXPORT; }

static void *run_filing(void *user)
{
    dra_filing              *f = user;
    dra_engine              *e = f->e;
    const dra_engine_config *c = &e->config;
    const char              *path = f->job->config.path;
    f->status = is_export(f) ? dra_context_save(c->model, c->weights, &f->context, path, &f->error)
                             : dra_context_load(c->device, c->model, c->weights, path, &f->context,
                                                &f->error);
    pthread_mutex_lock(&e->lock);
    f->done = true;
    void (*wake)(void *) = e->wake;
    void *wake_user = e->wake_user;
    pthread_mutex_unlock(&e->lock);
    if (wake) wake(wake_user);
    return NULL;
}

/* Without anybody to wake up it is done at once. */
bool dra_filing_begin(dra_engine *e, dra_job *job)
{
    dra_filing *f = calloc(1, sizeof *f);
    if (!f) return false;
    *f = (dra_filing){.e = e, .job = job};
    const bool copied = !is_export(f) ||
                        dra_saved_export(e, 1, &job->begin, &f->context, &f->error) == DRA_OK;
    if (!e->wake || !copied || pthread_create(&f->thread, NULL, run_filing, f) != 0) {
        dra_context_free(&f->context);
        free(f);
        return false;
    }
    e->filing = f;
    return true;
}

static void end_filing(dra_engine *e)
{
    dra_filing *f = e->filing;
    pthread_join(f->thread, NULL);
    e->filing = NULL;
    if (f->status == DRA_OK && !is_export(f))
        f->status = dra_saved_adopt(e, f->job, &f->context, &f->error);
    dra_context_free(&f->context);
    dra_job_end_with(e, f->job, f->status == DRA_OK ? DRA_JOB_DONE : DRA_JOB_FAILED, &f->error);
    dra_job_free(e, f->job);
    free(f);
}

void dra_filing_step(dra_engine *e)
{
    if (!e->filing) return;
    pthread_mutex_lock(&e->lock);
    const bool done = e->filing->done;
    pthread_mutex_unlock(&e->lock);
    if (done) end_filing(e);
}

void dra_filing_finish(dra_engine *e)
{
    if (e->filing) end_filing(e);
}
