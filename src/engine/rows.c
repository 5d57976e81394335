/* Rows of the pool: of running jobs, of snapshots before a stop string, of names and of kept
 * prefixes. A row that is given back is reset, which releases its items. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "engine/engine.h"

/* ---- the pool -------------------------------------------------------------------------------- */

/* Room for the numbers of `rows` rows, those from `from` on free. */
static dra_status make_lists(dra_engine *e, int64_t from, int64_t rows, dra_error *err)
{
    int64_t *list = realloc(e->free_rows, (size_t)rows * sizeof *list);
    if (list) e->free_rows = list;
    bool *used = realloc(e->row_used, (size_t)rows * sizeof *used);
    if (used) e->row_used = used;
    if (!list || !used) return dra_engine_no_memory(err);
    for (int64_t row = rows; row-- > from;) {
        e->free_rows[e->n_free++] = row;
        e->row_used[row] = false;
    }
    e->pool_rows = rows;
    return DRA_OK;
}

dra_status dra_rows_create(dra_engine *e, dra_error *err)
{
    const int64_t    rows = 2 * e->config.slots;
    const dra_status st = dra_states_create_pool(e->config.device, dra_model_state(e->config.model),
                                                 rows, &e->pool, err);
    return st == DRA_OK ? make_lists(e, 0, rows, err) : st;
}

void dra_rows_destroy(dra_engine *e)
{
    dra_states_destroy(e->pool);
    free(e->free_rows);
    free(e->row_used);
}

static dra_status grow(dra_engine *e, dra_error *err)
{
    const int64_t    rows = 2 * e->pool_rows;
    const dra_status st = dra_states_grow(e->pool, rows, err);
    return st == DRA_OK ? make_lists(e, e->pool_rows, rows, err) : st;
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
    e->row_used[to] = true;
    *row = to;
    return DRA_OK;
}

void dra_rows_give(dra_engine *e, int64_t *row)
{
    if (*row < 0) return;
    e->row_used[*row] = false;
    /* A row that cannot be reset is not used again. */
    if (dra_states_reset(e->pool, *row, NULL) == DRA_OK) e->free_rows[e->n_free++] = *row;
    *row = -1;
}

/* ---- memory ---------------------------------------------------------------------------------- */

size_t dra_rows_need(const dra_engine *e, int64_t tokens)
{
    const dra_specs *specs = dra_model_state(e->config.model);
    size_t           bytes = 0;
    tokens += dra_model_config_of(e->config.model)->memory_tokens;
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        const int64_t   n = !p->items ? 1 : p->limit ? dra_imin(tokens, p->limit) : tokens;
        bytes += (size_t)(n * dra_shape_count(&p->shape)) * sizeof(dra_real);
    }
    return bytes;
}

size_t dra_rows_bytes(const dra_engine *e)
{
    size_t bytes = e->prefixes.ids * sizeof(int32_t);
    for (int64_t row = 0; row < e->pool_rows; row++)
        if (e->row_used[row]) bytes += dra_states_row_bytes(e->pool, row);
    for (size_t i = 0; i < e->n_names; i++) /* only this thread changes names */
        bytes += (size_t)e->V * (sizeof(dra_real) + sizeof(bool));
    return bytes;
}

/* What running jobs may come to hold besides what they do. */
static size_t promised(const dra_engine *e)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < e->n_active; i++) {
        const dra_job *job = e->active[i];
        const size_t   own = job->row < 0 ? 0 : dra_states_row_bytes(e->pool, job->row);
        if (!job->over && job->need > own) bytes += job->need - own;
    }
    return bytes;
}

bool dra_rows_fit(dra_engine *e, size_t more)
{
    const size_t limit = e->config.memory_limit, later = promised(e) + more;
    while (dra_rows_bytes(e) + later > limit)
        if (!dra_prefix_drop_oldest(e)) return false;
    return true;
}
