/* Making an engine, and what it tells about itself. */
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "base/shape.h"
#include "device/device.h"
#include "engine/engine.h"

enum { SLOTS_MOST = 1 << 12 };

dra_status dra_engine_no_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "engine: out of memory");
}

static double read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double dra_engine_clock(void) { return read_clock(CLOCK_MONOTONIC); }
double dra_engine_now(void) { return read_clock(CLOCK_REALTIME); }

/* ---- making one ------------------------------------------------------------------------------ */

static dra_status check_model(const dra_engine_config *c, dra_error *err)
{
    const dra_model_config *m = dra_model_config_of(c->model);
    const int32_t           size = c->tokenizer ? dra_tokenizer_size(c->tokenizer) : 0;
    if (!dra_model_config_is_language(m) || m->visible == DRA_VISIBLE_BIDIRECTIONAL)
        return dra_fail(err, DRA_ERR_VALUE,
                        "engine: expected a model that reads and writes tokens from left to right");
    if (size > m->vocab)
        return dra_fail(err, DRA_ERR_VALUE,
                        "engine: the tokenizer has ids 0 to %d, the model 0 to %lld", size - 1,
                        (long long)m->vocab - 1);
    return DRA_OK;
}

static dra_status check(const dra_engine_config *c, dra_error *err)
{
    if (c->slots < 1 || c->slots > SLOTS_MOST)
        return dra_fail(err, DRA_ERR_VALUE, "engine: %lld slots, expected 1 to %d",
                        (long long)c->slots, SLOTS_MOST);
    if (c->queue < 1)
        return dra_fail(err, DRA_ERR_VALUE, "engine: a queue of %lld, expected 1 or more",
                        (long long)c->queue);
    if (c->chunk < DRA_ENGINE_CUT || c->chunk % DRA_ENGINE_CUT != 0)
        return dra_fail(err, DRA_ERR_VALUE, "engine: a chunk of %lld, expected a multiple of %d",
                        (long long)c->chunk, DRA_ENGINE_CUT);
    return check_model(c, err);
}

static void complete(dra_engine_config *c)
{
    if (!c->slots) c->slots = 16;
    if (!c->queue) c->queue = 256;
    if (!c->chunk) c->chunk = 512;
    if (!c->memory_limit) c->memory_limit = (size_t)4 << 30;
}

static dra_status make_room(dra_engine *e, dra_error *err)
{
    const size_t n = (size_t)dra_imax(2 * e->config.slots, DRA_ENGINE_KEPT), V = (size_t)e->V;
    e->active = calloc((size_t)e->config.slots, sizeof *e->active);
    e->batch = calloc((size_t)e->config.slots, sizeof *e->batch);
    e->ids = calloc(n, sizeof *e->ids);
    e->mark = calloc(n, sizeof *e->mark);
    e->picks = calloc(n, sizeof *e->picks);
    e->rows = calloc(n, sizeof *e->rows);
    e->offered = calloc(V, sizeof *e->offered);
    e->allowed = calloc(V, sizeof *e->allowed);
    return e->active && e->batch && e->ids && e->mark && e->picks && e->rows && e->offered &&
                   e->allowed
               ? DRA_OK
               : dra_engine_no_memory(err);
}

static dra_status open(dra_engine *e, dra_error *err)
{
    const dra_model        *m = e->config.model;
    const dra_model_config *c = dra_model_config_of(m);
    dra_reader             *r;
    e->V = c->vocab;
    e->C = c->dim;
    e->cut = dra_model_cut(m);
    e->pace.pauses = e->config.device->table->borrows; /* others run a program as a whole */
    e->pace.most = e->config.chunk;
    e->positions = c->positions == DRA_POSITIONS_LEARNED && !c->xl.memory ? c->context : INT32_MAX;
    e->view[DRA_VIEW_LAST] = (dra_view){.model = m, .logits = true, .picks = 1};
    e->view[DRA_VIEW_BATCH] = e->view[DRA_VIEW_LAST];
    e->view[DRA_VIEW_STATES] = (dra_view){.model = m};
    e->view[DRA_VIEW_ALL] = (dra_view){.model = m, .logits = true};
    e->view[DRA_VIEW_HIDDEN] = (dra_view){.model = m, .hidden = true};
    dra_status st = make_room(e, err);
    if (st == DRA_OK) st = dra_rows_create(e, err);
    return st == DRA_OK ? dra_engine_reader(e, DRA_VIEW_LAST, &r, err) : st;
}

dra_status dra_engine_create(const dra_engine_config *config, dra_engine **out, dra_error *err)
{
    dra_engine *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e || pthread_mutex_init(&e->lock, NULL) != 0) {
        free(e);
        return dra_engine_no_memory(err);
    }
    e->config = *config;
    complete(&e->config);
    dra_status st = check(&e->config, err);
    if (st == DRA_OK) st = open(e, err);
    if (st == DRA_OK)
        *out = e;
    else
        dra_engine_destroy(e);
    return st;
}

void dra_engine_destroy(dra_engine *e)
{
    if (!e) return;
    dra_engine_drain(e);
    while (e->n_active > 0) {
        dra_job *job = e->active[0];
        dra_job_end_with(e, job, DRA_JOB_CANCELLED, NULL);
        dra_queue_leave(e, job);
        dra_job_free(e, job);
    }
    for (dra_job *job; (job = e->first);) {
        dra_queue_remove(e, job);
        dra_job_end_with(e, job, DRA_JOB_CANCELLED, NULL);
        dra_job_free(e, job);
    }
    dra_prefixes_free(e);
    dra_saved_free(e);
    for (int i = 0; i < DRA_VIEWS; i++) dra_reader_destroy(e->reader[i]);
    dra_rows_destroy(e);
    free(e->active);
    free(e->batch);
    free(e->ids);
    free(e->mark);
    free(e->picks);
    free(e->rows);
    free(e->offered);
    free(e->allowed);
    free(e->norms);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

dra_engine_stats dra_engine_stats_of(dra_engine *e)
{
    pthread_mutex_lock(&e->lock);
    const dra_engine_stats stats = e->stats;
    pthread_mutex_unlock(&e->lock);
    return stats;
}
