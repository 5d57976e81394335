/* Making an engine, and what it tells about itself. */
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "base/shape.h"
#include "device/device.h"
#include "generate/engine.h"
#include "sequence/states.h"

enum { SLOTS_MOST = 1 << 16 };

dra_status dra_engine_no_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "engine: out of memory");
}

double dra_engine_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- making one ------------------------------------------------------------------------------ */

bool dra_engine_can_run(const dra_model *model)
{
    const dra_model_config *m = dra_model_config_of(model);
    const bool              writes = dra_model_config_is_language(m) ||
                        (dra_model_context_stack(model) && m->head.kind == DRA_HEAD_TOKENS);
    return writes && m->visible != DRA_VISIBLE_BIDIRECTIONAL;
}

static dra_status check_model(const dra_engine_config *c, dra_error *err)
{
    const dra_model_config *m = dra_model_config_of(c->model);
    const int32_t           size = c->tokenizer ? dra_tokenizer_size(c->tokenizer) : 0;
    if (!dra_engine_can_run(c->model) && !dra_model_config_is_language(m))
        return dra_fail(err, DRA_ERR_VALUE,
                        "engine: expected a model that reads tokens and writes them");
    if (size > m->vocab)
        return dra_fail(err, DRA_ERR_VALUE,
                        "engine: the tokenizer has ids 0 to %d, the model 0 to %lld", size - 1,
                        (long long)m->vocab - 1);
    return DRA_OK;
}

static dra_status check_slots(int64_t slots, dra_error *err)
{
    if (slots >= 1 && slots <= SLOTS_MOST) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "engine: %lld slots, expected 1 to %d", (long long)slots,
                    SLOTS_MOST);
}

bool dra_engine_drafts(const dra_engine *e)
{
    return e->config.draft.text || e->config.draft.model;
}

static dra_status check_draft(const dra_engine_config *c, dra_error *err)
{
    const dra_draft *d = &c->draft;
    const int64_t    V = dra_model_config_of(c->model)->vocab;
    if (!d->text && !d->model) return DRA_OK;
    if (c->n_amateurs > 0)
        return dra_fail(err, DRA_ERR_VALUE, "draft: not with an amateur, which reads every token");
    if (d->most < 0 || d->most > DRA_DRAFTS)
        return dra_fail(err, DRA_ERR_VALUE, "draft: %lld tokens at a time, expected 1 to %d",
                        (long long)d->most, DRA_DRAFTS);
    if (!d->model) return DRA_OK;
    if (d->text) return dra_fail(err, DRA_ERR_VALUE, "draft: by the text or by a model, not both");
    if (!dra_engine_can_run(d->model))
        return dra_fail(err, DRA_ERR_VALUE,
                        "draft: expected a model that reads and writes tokens from left to right");
    const int64_t own = dra_model_config_of(d->model)->vocab;
    if (own == V) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "draft: its model has a vocabulary of %lld tokens, the model of %lld",
                    (long long)own, (long long)V);
}

static dra_status check_config(const dra_engine_config *c, dra_error *err)
{
    dra_status st = check_slots(c->slots, err);
    if (st != DRA_OK) return st;
    if (c->queue < 1)
        return dra_fail(err, DRA_ERR_VALUE, "engine: a queue of %lld, expected 1 or more",
                        (long long)c->queue);
    if (c->chunk < DRA_ENGINE_CUT || c->chunk % DRA_ENGINE_CUT != 0)
        return dra_fail(err, DRA_ERR_VALUE, "engine: a chunk of %lld, expected a multiple of %d",
                        (long long)c->chunk, DRA_ENGINE_CUT);
    st = check_model(c, err);
    if (st == DRA_OK) st = dra_contrast_check(c, err);
    return st == DRA_OK ? check_draft(c, err) : st;
}

static void complete_config(dra_engine_config *c)
{
    if (!c->slots) c->slots = 16;
    if (!c->queue) c->queue = 256;
    if (!c->chunk) c->chunk = 512;
    if (!c->memory_limit) c->memory_limit = (size_t)4 << 30;
}

/* After an error the list is what it was. */
static bool resize_list(void *list, int64_t n, size_t each)
{
    void **at = list, *more = realloc(*at, (size_t)n * each);
    if (more) *at = more;
    return more;
}

dra_status dra_engine_reserve(dra_engine *e, int64_t n, dra_error *err)
{
    if (n <= e->room) return DRA_OK;
    if (!resize_list(&e->ids, n, sizeof *e->ids) || !resize_list(&e->mark, n, sizeof *e->mark))
        return dra_engine_no_memory(err);
    e->room = n;
    return DRA_OK;
}

dra_status dra_engine_widen(dra_engine *e, int64_t slots, dra_error *err)
{
    const int64_t each = dra_engine_drafts(e) ? 2 * DRA_VERIFIED : 2, rows = 2 * slots;
    dra_status    st = check_slots(slots, err);
    if (st == DRA_OK) st = dra_engine_reserve(e, dra_imax(each * slots, DRA_ENGINE_KEPT), err);
    if (st != DRA_OK || slots <= e->slots) return st;
    if (!resize_list(&e->active, slots, sizeof *e->active) ||
        !resize_list(&e->batch, slots, sizeof *e->batch) ||
        !resize_list(&e->part, slots, sizeof *e->part) ||
        !resize_list(&e->picks, rows, sizeof *e->picks) ||
        !resize_list(&e->rows, rows, sizeof *e->rows))
        return dra_engine_no_memory(err);
    e->config.slots = e->slots = slots;
    dra_picker_destroy(e->picker);
    return dra_picker_create(e, &e->picker, err);
}

static void set_views(dra_lane *l)
{
    l->view[DRA_VIEW_LAST] = (dra_view){.model = l->model, .logits = true, .picks = 1};
    l->view[DRA_VIEW_BATCH] = l->view[DRA_VIEW_LAST];
    l->view[DRA_VIEW_STATES] = (dra_view){.model = l->model};
    l->view[DRA_VIEW_VERIFY] = (dra_view){.model = l->model, .logits = true};
    l->view[DRA_VIEW_ALL] = (dra_view){.model = l->model, .logits = true};
    l->view[DRA_VIEW_HIDDEN] = (dra_view){.model = l->model, .hidden = true};
}

static dra_status open_lanes(dra_engine *e, dra_error *err)
{
    const dra_engine_config *c = &e->config;
    const int                lanes = 1 + c->n_amateurs, pools = lanes + (c->draft.model != NULL);
    e->lane = calloc((size_t)pools, sizeof *e->lane);
    if (!e->lane) return dra_engine_no_memory(err);
    e->lanes = lanes;
    e->pools = pools;
    e->positions = INT32_MAX;
    e->shortest = c->model;
    e->cuts = e->cut == 1;
    for (int i = 0; i < e->pools; i++) {
        dra_lane *l = &e->lane[i];
        l->model = i == e->lanes ? c->draft.model : i ? c->amateurs[i - 1].model : c->model;
        l->weights = i == e->lanes ? c->draft.weights : i ? c->amateurs[i - 1].weights : c->weights;
        if (dra_model_positions(l->model) < e->positions) {
            e->positions = dra_model_positions(l->model);
            e->shortest = l->model;
        }
        set_views(l);
        e->cuts = e->cuts && dra_pool_can_cut(dra_model_state(l->model));
        const dra_status st = dra_columns_create(e, l, err);
        if (st != DRA_OK) return st;
    }
    return DRA_OK;
}

static dra_status open_engine(dra_engine *e, dra_error *err)
{
    const dra_model_config *c = dra_model_config_of(e->config.model);
    dra_reader             *r;
    e->V = c->vocab;
    e->C = c->dim;
    e->cut = dra_model_cut(e->config.model);
    e->encoder = !dra_engine_can_run(e->config.model);
    e->pace.slices = e->config.device->table->borrows; /* others run a program as a whole */
    e->pace.most = e->config.chunk;
    e->offered = calloc((size_t)e->V, sizeof *e->offered);
    e->allowed = calloc((size_t)e->V, sizeof *e->allowed);
    dra_status st = e->offered && e->allowed ? open_lanes(e, err) : dra_engine_no_memory(err);
    if (st == DRA_OK) st = dra_engine_widen(e, e->config.slots, err);
    if (st == DRA_OK) st = dra_measure_create(e, &e->measure, err);
    if (st == DRA_OK) st = dra_rows_create(e, err);
    for (int i = 0; i < e->lanes && st == DRA_OK; i++)
        st = dra_engine_reader(e, i, e->encoder ? DRA_VIEW_HIDDEN : DRA_VIEW_LAST, &r, err);
    return st;
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
    complete_config(&e->config);
    dra_status st = check_config(&e->config, err);
    if (st == DRA_OK) st = open_engine(e, err);
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
    dra_filing_finish(e);
    dra_prefixes_free(e);
    dra_saved_free(e);
    dra_picker_destroy(e->picker);
    dra_measure_destroy(e->measure);
    for (int i = 0; i < e->pools; i++)
        for (int v = 0; v < DRA_VIEWS; v++) dra_reader_destroy(e->lane[i].reader[v]);
    dra_rows_destroy(e);
    for (int i = 0; i < e->pools; i++) dra_columns_destroy(&e->lane[i]);
    free(e->lane);
    free(e->active);
    free(e->batch);
    free(e->part);
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

int64_t dra_engine_clamped(const dra_engine *e)
{
    int64_t n = 0;
    for (int i = 0; i < e->lanes; i++)
        for (int v = 0; v < DRA_VIEWS; v++)
            if (e->lane[i].reader[v]) n += dra_reader_clamped(e->lane[i].reader[v]);
    return n;
}
