/* Rows of the pool: of running jobs, of snapshots before a stop string, of names and of kept
 * prefixes. A row that is given back is reset, which releases its items. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "device/device.h"
#include "generate/engine.h"
#include "sequence/states.h"

enum { ROWS = 256, PART = 16, AHEAD = 4, LONG = 4096 /* tokens of a sequence */ };

/* ---- the pool -------------------------------------------------------------------------------- */

/* Room for the numbers of `rows` rows, those from `from` on free. */
static dra_status make_lists(dra_engine *e, int64_t from, int64_t rows, dra_error *err)
{
    int64_t *list = realloc(e->free_rows, (size_t)rows * sizeof *list);
    if (list) e->free_rows = list;
    if (!list) return dra_engine_no_memory(err);
    for (int64_t row = rows; row-- > from;) e->free_rows[e->n_free++] = row;
    e->pool_rows = rows;
    return DRA_OK;
}

static size_t page_bytes_of(const dra_spec *p)
{
    return p->items ? DRA_ITEMS_STEP * dra_spec_bytes(p) : 0;
}

/* A page of all tensors of this limit. */
static size_t page_of(const dra_specs *specs, int64_t limit)
{
    size_t bytes = 0;
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        if (p->limit == limit) bytes += page_bytes_of(p);
    }
    return bytes;
}

/* The pool never needs more pages than the memory limit has room for (promised_bytes()), so it ends
 * there rather than at the doubling after it. */
static void set_most(dra_engine *e, dra_lane *l)
{
    const dra_specs *specs = dra_model_state(l->model);
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        if (!p->items) continue;
        const size_t page = page_of(specs, p->limit), most = e->config.memory_limit / page;
        dra_pool_most(l->pool, p->limit, most < INT32_MAX ? (int64_t)most + 1 : INT32_MAX);
    }
}

/* Bytes that n tokens take in one lane. */
static size_t lane_need(const dra_lane *l, int64_t tokens)
{
    const dra_specs *specs = dra_model_state(l->model);
    size_t           bytes = 0;
    if (tokens > 0) tokens += dra_model_config_of(l->model)->memory_tokens;
    tokens = dra_div_up(tokens, DRA_ITEMS_STEP) * DRA_ITEMS_STEP; /* pages */
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        const int64_t   most = p->limit ? p->limit + 2 * DRA_ITEMS_STEP : tokens;
        const int64_t   n = p->items ? dra_imin(tokens, most) : 1;
        if (!p->context) bytes += (size_t)n * dra_spec_bytes(p);
    }
    return bytes;
}

/* Room for the items of `each` pages of every sequence up to a part of the memory; where it costs
 * nothing until it is used, for more and up to all of it, as a pool that grows stops who writes. */
static dra_status open_pages(dra_engine *e, dra_lane *l, dra_error *err)
{
    const bool    lazy = e->config.device->table->borrows;
    const size_t  part = e->config.memory_limit / (lazy ? 1 : PART);
    const size_t  page = lane_need(l, DRA_ITEMS_STEP) - lane_need(l, 0);
    const int64_t tokens = lazy ? dra_imin(e->positions, LONG) : DRA_ENGINE_KEPT;
    const int64_t each = dra_div_up(tokens, DRA_ITEMS_STEP);
    const int64_t usual = (lazy ? AHEAD : 1) * e->config.slots * each;
    int64_t       pages = page ? dra_imin(usual, (int64_t)(part / page) + lazy) : 0;
    dra_status    st = pages ? dra_pool_room(l->pool, pages, each, err) : DRA_OK;
    for (; st == DRA_ERR_MEMORY && pages > 1; pages /= 2)
        st = dra_pool_room(l->pool, pages / 2, each, err);
    return st;
}

/* A sequence that runs has a row, one before a stop string or one to keep, and one for drafts. */
static int64_t rows_each(const dra_engine *e) { return dra_engine_drafts(e) ? 3 : 2; }

/* Programs are compiled for the size of the pool, so it begins with room for what is usual: a row
 * of each sequence and ROWS others to keep, up to a part of the memory, and items. */
dra_status dra_rows_create(dra_engine *e, dra_error *err)
{
    const size_t  part = e->config.memory_limit / PART, fixed = dra_rows_need(e, 0);
    const int64_t others = fixed ? (int64_t)(part / fixed) : ROWS;
    const int64_t more = e->config.forget ? 2 : dra_imin(ROWS, others);
    const int64_t rows = rows_each(e) * e->config.slots + more;
    dra_status    st = DRA_OK;
    for (int i = 0; i < e->pools && st == DRA_OK; i++) {
        dra_lane *l = &e->lane[i];
        st = dra_states_create_pool(e->config.device, dra_model_state(l->model), rows, &l->pool,
                                    err);
        if (st == DRA_OK) set_most(e, l);
        if (st == DRA_OK) st = open_pages(e, l, err);
    }
    return st == DRA_OK ? make_lists(e, 0, rows, err) : st;
}

void dra_rows_destroy(dra_engine *e)
{
    for (int i = 0; i < e->pools; i++) dra_states_destroy(e->lane[i].pool);
    free(e->free_rows);
}

static dra_status grow_pools(dra_engine *e, dra_error *err)
{
    const size_t  fixed = dra_rows_need(e, 0);
    const int64_t most = fixed ? (int64_t)(e->config.memory_limit / fixed) + 1 : INT64_MAX;
    const bool    last = e->pool_rows < most && most < 2 * e->pool_rows;
    const int64_t rows = last ? most : 2 * e->pool_rows;
    dra_status    st = DRA_OK;
    for (int i = 0; i < e->pools && st == DRA_OK; i++)
        st = dra_states_grow(e->lane[i].pool, dra_imax(rows, dra_states_batch(e->lane[i].pool)),
                             err);
    return st == DRA_OK ? make_lists(e, e->pool_rows, rows, err) : st;
}

/* A job takes a row before a stop string and one to keep, a page and a copy of a shared one. *full:
 * pages are missing, and the pool has all that it is to have. */
static bool lane_has_free(const dra_lane *l, int64_t n, bool *full)
{
    const dra_specs *specs = dra_model_state(l->model);
    bool             ready = true;
    for (int i = 0; i < dra_specs_count(specs) && ready; i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        if (!p->items) continue;
        const dra_pages *pages = dra_pool_pages(l->pool, p->limit);
        ready = pages->n_free >= n;
        *full = !ready && pages->count >= pages->most;
    }
    return ready;
}

static bool has_free(const dra_engine *e, int64_t n, bool *full)
{
    n *= rows_each(e);
    bool ready = e->n_free >= n;
    *full = false;
    for (int i = 0; i < e->pools && ready; i++) ready = lane_has_free(&e->lane[i], n, full);
    return ready;
}

bool dra_rows_ready(dra_engine *e, int64_t n)
{
    bool full;
    while (!has_free(e, n, &full))
        if (!full || !dra_prefix_drop_oldest(e)) return false;
    return true;
}

dra_status dra_rows_take(dra_engine *e, int64_t from, int64_t *row, dra_error *err)
{
    dra_status st = e->n_free ? DRA_OK : grow_pools(e, err);
    *row = -1;
    if (st != DRA_OK) return st;
    const int64_t to = e->free_rows[e->n_free - 1];
    for (int i = 0; i < e->pools && from >= 0 && st == DRA_OK; i++)
        st = dra_states_copy(e->lane[i].pool, to, e->lane[i].pool, from, err);
    if (st != DRA_OK) return st;
    e->n_free--;
    e->used++;
    *row = to;
    return DRA_OK;
}

void dra_rows_give(dra_engine *e, int64_t *row)
{
    dra_status st = DRA_OK;
    if (*row < 0) return;
    e->used--;
    for (int i = 0; i < e->pools && st == DRA_OK; i++)
        st = dra_states_reset(e->lane[i].pool, *row, NULL);
    /* A row that cannot be reset is not used again. */
    if (st == DRA_OK) e->free_rows[e->n_free++] = *row;
    *row = -1;
}

/* ---- memory ---------------------------------------------------------------------------------- */

size_t dra_rows_shared(const dra_engine *e, int64_t tokens)
{
    size_t bytes = 0;
    for (int k = 0; k < e->pools && tokens > 0; k++) {
        const dra_lane  *l = &e->lane[k];
        const dra_specs *specs = dra_model_state(l->model);
        const int64_t    items = tokens + dra_model_config_of(l->model)->memory_tokens;
        for (int i = 0; i < dra_specs_count(specs); i++) {
            const dra_spec *p = dra_specs_at(specs, i);
            const int64_t   n = p->limit ? dra_imin(items, p->limit) : items;
            bytes += (size_t)(n / DRA_ITEMS_STEP) * page_bytes_of(p);
        }
    }
    return bytes;
}

size_t dra_rows_need(const dra_engine *e, int64_t tokens)
{
    size_t bytes = 0;
    for (int i = 0; i < e->pools; i++) bytes += lane_need(&e->lane[i], tokens);
    return bytes;
}

/* Pages that rows share are held once. */
static size_t page_bytes(const dra_lane *l)
{
    const dra_specs *specs = dra_model_state(l->model);
    size_t           bytes = 0;
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        if (!p->items) continue;
        const dra_pages *pages = dra_pool_pages(l->pool, p->limit);
        bytes += (size_t)(pages->count - pages->n_free) * page_bytes_of(p);
    }
    return bytes;
}

size_t dra_rows_bytes(const dra_engine *e)
{
    const size_t rows = (size_t)e->used;
    size_t       bytes = e->prefixes.ids * sizeof(int32_t);
    for (int i = 0; i < e->pools; i++) bytes += page_bytes(&e->lane[i]);
    bytes += rows * dra_rows_need(e, 0);
    for (size_t i = 0; i < e->n_names; i++) /* only this thread changes names */
        bytes += (size_t)e->V * (sizeof(dra_real) + sizeof(bool));
    return bytes;
}

/* The copies of pages that a row writes next although others have them: of its last ones. */
static size_t copied_bytes(const dra_lane *l, int64_t row)
{
    const dra_specs *specs = dra_model_state(l->model);
    size_t           bytes = 0;
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        if (p->items && dra_pool_shares_last(l->pool, p->limit, row)) bytes += page_bytes_of(p);
    }
    return bytes;
}

size_t dra_rows_copy(const dra_engine *e)
{
    size_t bytes = dra_rows_need(e, 0);
    for (int k = 0; k < e->pools; k++) {
        const dra_specs *specs = dra_model_state(e->lane[k].model);
        for (int i = 0; i < dra_specs_count(specs); i++)
            bytes += page_bytes_of(dra_specs_at(specs, i));
    }
    return bytes;
}

size_t dra_rows_later(const dra_engine *e, const dra_job *job)
{
    const int64_t row = job->seq.row;
    const int64_t tokens = row < 0 ? 0 : dra_states_tokens(e->lane[0].pool, row);
    const size_t  own = row < 0 ? 0 : dra_rows_need(e, tokens);
    size_t        bytes = job->need > own ? job->need - own : 0;
    if (job->over) return 0;
    for (int i = 0; i < e->pools && row >= 0; i++) bytes += copied_bytes(&e->lane[i], row);
    if (job->config.n_stop > 0 && job->back.row < 0) bytes += dra_rows_copy(e);
    if (job->seq.drafts && job->seq.copy < 0) bytes += dra_rows_copy(e);
    return bytes;
}

/* What running jobs may come to hold besides what they do: all of it, as the pool has no page more
 * than the limit says. */
static size_t promised_bytes(const dra_engine *e)
{
    size_t bytes = dra_filing_later(e);
    for (int64_t i = 0; i < e->n_active; i++) bytes += dra_rows_later(e, e->active[i]);
    return bytes;
}

bool dra_rows_fit(dra_engine *e, size_t more, const dra_prefix *but)
{
    const size_t limit = e->config.memory_limit, later = promised_bytes(e) + more;
    while (dra_rows_bytes(e) + later > limit)
        if (e->prefixes.oldest == but || !dra_prefix_drop_oldest(e)) return false;
    return true;
}
