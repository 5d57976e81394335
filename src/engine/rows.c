/* Rows of the pool: of running jobs, of snapshots before a stop string, of names and of kept
 * prefixes. A row that is given back is reset, which releases its items. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "device/device.h"
#include "engine/engine.h"
#include "sequence/states.h"

enum { ROWS = 256, PART = 16, LONG = 4096 /* tokens of a sequence */ };

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
    return p->items ? (size_t)(DRA_ITEMS_STEP * dra_shape_count(&p->shape)) * sizeof(dra_real) : 0;
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

/* The pool never needs more pages than the memory limit has room for (promised()), so it ends there
 * rather than at the doubling after it. */
static void set_most(dra_engine *e)
{
    const dra_specs *specs = dra_model_state(e->config.model);
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        if (!p->items) continue;
        const size_t page = page_of(specs, p->limit);
        dra_pool_most(e->pool, p->limit, (int64_t)(e->config.memory_limit / page + 1));
    }
}

/* Room for the items of `each` pages of every sequence, up to half of the memory where it costs
 * nothing until it is used, and less where there is not as much. */
static dra_status open_pages(dra_engine *e, dra_error *err)
{
    const bool    lazy = e->config.device->table->borrows;
    const size_t  part = e->config.memory_limit / (lazy ? 2 : PART);
    const size_t  page = dra_rows_need(e, DRA_ITEMS_STEP) - dra_rows_need(e, 0);
    const int64_t tokens = lazy ? dra_imin(e->positions, LONG) : DRA_ENGINE_KEPT;
    const int64_t each = dra_div_up(tokens, DRA_ITEMS_STEP);
    int64_t       pages = page ? dra_imin(e->config.slots * each, (int64_t)(part / page)) : 0;
    dra_status    st = pages ? dra_pool_room(e->pool, pages, each, err) : DRA_OK;
    for (; st == DRA_ERR_MEMORY && pages > 1; pages /= 2)
        st = dra_pool_room(e->pool, pages / 2, each, err);
    return st;
}

/* Programs are compiled for the size of the pool, so it begins with room for what is usual: a row
 * of each sequence and ROWS others, up to a part of the memory, and items. */
dra_status dra_rows_create(dra_engine *e, dra_error *err)
{
    const size_t  part = e->config.memory_limit / PART, fixed = dra_rows_need(e, 0);
    const int64_t others = fixed ? (int64_t)(part / fixed) : ROWS;
    const int64_t rows = 2 * e->config.slots + dra_imin(ROWS, others);
    dra_status st = dra_states_create_pool(e->config.device, dra_model_state(e->config.model), rows,
                                           &e->pool, err);
    if (st == DRA_OK) set_most(e);
    if (st == DRA_OK) st = open_pages(e, err);
    return st == DRA_OK ? make_lists(e, 0, rows, err) : st;
}

void dra_rows_destroy(dra_engine *e)
{
    dra_states_destroy(e->pool);
    free(e->free_rows);
}

static dra_status grow(dra_engine *e, dra_error *err)
{
    const size_t     fixed = dra_rows_need(e, 0);
    const int64_t    most = fixed ? (int64_t)(e->config.memory_limit / fixed) + 1 : INT64_MAX;
    const bool       last = e->pool_rows < most && most < 2 * e->pool_rows;
    const int64_t    rows = last ? most : 2 * e->pool_rows;
    const dra_status st = dra_states_grow(e->pool, rows, err);
    return st == DRA_OK ? make_lists(e, e->pool_rows, rows, err) : st;
}

/* A job takes a row before a stop string and one to keep, a page and a copy of a shared one. *full:
 * pages are missing, and the pool has all that it is to have. */
static bool has_free(const dra_engine *e, int64_t n, bool *full)
{
    const dra_specs *specs = dra_model_state(e->config.model);
    bool             ready = e->n_free >= 2 * n;
    *full = false;
    for (int i = 0; i < dra_specs_count(specs) && ready; i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        if (!p->items) continue;
        const dra_pages *pages = dra_pool_pages(e->pool, p->limit);
        ready = pages->n_free >= 2 * n;
        *full = !ready && pages->count >= pages->most;
    }
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
    dra_status st = e->n_free ? DRA_OK : grow(e, err);
    *row = -1;
    if (st != DRA_OK) return st;
    const int64_t to = e->free_rows[e->n_free - 1];
    if (from >= 0) st = dra_states_copy(e->pool, to, e->pool, from, err);
    if (st != DRA_OK) return st;
    e->n_free--;
    e->used++;
    *row = to;
    return DRA_OK;
}

void dra_rows_give(dra_engine *e, int64_t *row)
{
    if (*row < 0) return;
    e->used--;
    /* A row that cannot be reset is not used again. */
    if (dra_states_reset(e->pool, *row, NULL) == DRA_OK) e->free_rows[e->n_free++] = *row;
    *row = -1;
}

/* ---- memory ---------------------------------------------------------------------------------- */

size_t dra_rows_need(const dra_engine *e, int64_t tokens)
{
    const dra_specs *specs = dra_model_state(e->config.model);
    size_t           bytes = 0;
    if (tokens > 0) tokens += dra_model_config_of(e->config.model)->memory_tokens;
    tokens = dra_div_up(tokens, DRA_ITEMS_STEP) * DRA_ITEMS_STEP; /* pages */
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        const int64_t   most = p->limit ? p->limit + 2 * DRA_ITEMS_STEP : tokens;
        const int64_t   n = p->items ? dra_imin(tokens, most) : 1;
        bytes += (size_t)(n * dra_shape_count(&p->shape)) * sizeof(dra_real);
    }
    return bytes;
}

/* Pages that rows share are held once. */
static size_t page_bytes(const dra_engine *e)
{
    const dra_specs *specs = dra_model_state(e->config.model);
    size_t           bytes = 0;
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        if (!p->items) continue;
        const dra_pages *pages = dra_pool_pages(e->pool, p->limit);
        bytes += (size_t)(pages->count - pages->n_free) * page_bytes_of(p);
    }
    return bytes;
}

size_t dra_rows_bytes(const dra_engine *e)
{
    const size_t rows = (size_t)e->used;
    size_t       bytes = e->prefixes.ids * sizeof(int32_t) + page_bytes(e);
    bytes += rows * dra_rows_need(e, 0);
    for (size_t i = 0; i < e->n_names; i++) /* only this thread changes names */
        bytes += (size_t)e->V * (sizeof(dra_real) + sizeof(bool));
    return bytes;
}

/* The copies of pages that a row writes next although others have them: of its last ones. */
static size_t copied(const dra_engine *e, int64_t row)
{
    const dra_specs *specs = dra_model_state(e->config.model);
    size_t           bytes = 0;
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        if (p->items && dra_pool_shares_last(e->pool, p->limit, row)) bytes += page_bytes_of(p);
    }
    return bytes;
}

size_t dra_rows_copy(const dra_engine *e)
{
    const dra_specs *specs = dra_model_state(e->config.model);
    size_t           bytes = dra_rows_need(e, 0);
    for (int i = 0; i < dra_specs_count(specs); i++) bytes += page_bytes_of(dra_specs_at(specs, i));
    return bytes;
}

size_t dra_rows_later(const dra_engine *e, const dra_job *job)
{
    const int64_t tokens = job->row < 0 ? 0 : dra_states_tokens(e->pool, job->row);
    const size_t  own = job->row < 0 ? 0 : dra_rows_need(e, tokens);
    size_t        bytes = job->need > own ? job->need - own : 0;
    if (job->over) return 0;
    if (job->row >= 0) bytes += copied(e, job->row);
    if (job->config.n_stop > 0 && job->back.row < 0) bytes += dra_rows_copy(e);
    return bytes;
}

/* What running jobs may come to hold besides what they do: all of it, as the pool has no page more
 * than the limit says. */
static size_t promised(const dra_engine *e)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < e->n_active; i++) bytes += dra_rows_later(e, e->active[i]);
    return bytes;
}

bool dra_rows_fit(dra_engine *e, size_t more)
{
    const size_t limit = e->config.memory_limit, later = promised(e) + more;
    while (dra_rows_bytes(e) + later > limit)
        if (!dra_prefix_drop_oldest(e)) return false;
    return true;
}
