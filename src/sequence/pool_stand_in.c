/* STAND-IN until the pool is there. */
#include <stdlib.h>
#include "base/error.h"
#include "base/shape.h"
#include "sequence/states.h"

enum { ROWS = 600 };
dra_status dra_states_create_pool(dra_device *device, const dra_specs *specs, int64_t B,
                                  dra_states **out, dra_error *err)
{
    return dra_states_create(device, specs, ROWS, out, err);
}
dra_status dra_states_grow(dra_states *s, int64_t B, dra_error *err)
{
    return B <= ROWS ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "stand-in: too many rows");
}
size_t dra_states_row_bytes(const dra_states *s, int64_t row)
{
    size_t n = 0;
    for (int i = 0; i < dra_specs_count(s->specs); i++)
        n += dra_states_size(s, i, row) * sizeof(dra_real);
    return n;
}
dra_status dra_reader_read_rows(dra_reader *r, dra_states *pool, int64_t n, const int64_t *rows,
                                int64_t T, const int32_t *mark, int n_inputs,
                                const dra_named *inputs, dra_error *err)
{
    dra_states *some = NULL;
    int64_t     from[256];
    for (int64_t i = 0; i < n; i++) from[i] = dra_imax(rows[i], 0);
    dra_status st = dra_states_gather(pool, n, from, &some, err);
    for (int64_t i = 0; i < n && st == DRA_OK; i++)
        if (rows[i] < 0) st = dra_states_reset(some, i, err);
    if (st == DRA_OK) st = dra_reader_read(r, some, T, mark, n_inputs, inputs, err);
    for (int64_t i = 0; i < n && st == DRA_OK; i++)
        if (rows[i] >= 0) st = dra_states_copy(pool, rows[i], some, i, err);
    dra_states_destroy(some);
    return st;
}
