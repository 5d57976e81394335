/* Matrices of small models in the layout in which one row is multiplied fastest: (in, out), whose
 * columns are read side by side and added up in whole vectors. As they are stored, (out, in), each
 * block has to be transposed in registers first, with the same sums in the same order. That costs
 * nothing where weights come from memory, but a model that fits into the caches writes 1.6 times as
 * fast. So up to MOST bytes are copied, once for all readers of a lane. */
#include <stdlib.h>

#include "base/error.h"
#include "base/shape.h"
#include "device/device.h"
#include "generate/engine.h"

enum { MOST = 32 << 20 };

/* Whether weight i is a matrix that products alone read, stored as it was drawn. */
static bool is_plain_matrix(const dra_lane *l, int i)
{
    const dra_spec  *p = dra_specs_at(dra_model_params(l->model), i);
    dra_param_layout form;
    if (!p->product || p->shape.rank != 2 || p->group == DRA_PARAM_EMBEDDING) return false;
    dra_weights_stored(l->weights, i, &form);
    return form.dtype == DRA_REAL && !form.transposed && form.parts == 0;
}

static size_t bytes_of(const dra_spec *p)
{
    return (size_t)dra_shape_count(&p->shape) * sizeof(dra_real);
}

static size_t count_bytes(const dra_lane *l)
{
    const dra_specs *specs = dra_model_params(l->model);
    size_t           bytes = 0;
    for (int i = 0; i < dra_specs_count(specs); i++)
        if (is_plain_matrix(l, i)) bytes += bytes_of(dra_specs_at(specs, i));
    return bytes;
}

/* x (rows, columns) by blocks that stay in the first cache. */
static void transpose_columns(int64_t rows, int64_t columns, const dra_real *x, dra_real *to)
{
    enum { BLOCK = 32 };
    for (int64_t r = 0; r < rows; r += BLOCK)
        for (int64_t c = 0; c < columns; c += BLOCK)
            for (int64_t i = r; i < dra_imin(r + BLOCK, rows); i++)
                for (int64_t j = c; j < dra_imin(c + BLOCK, columns); j++)
                    to[j * rows + i] = x[i * columns + j];
}

static dra_status copy_matrix(const dra_engine *e, dra_lane *l, int i, dra_error *err)
{
    const dra_spec *p = dra_specs_at(dra_model_params(l->model), i);
    const dra_real *x = dra_weights_at(l->weights, i);
    dra_real       *to = malloc(bytes_of(p) + 1);
    dra_status      st = x && to ? DRA_OK : dra_engine_no_memory(err);
    if (st == DRA_OK) transpose_columns(p->shape.dim[0], p->shape.dim[1], x, to);
    if (st == DRA_OK) st = dra_array_create(e->config.device, bytes_of(p), &l->columns[i], err);
    if (st == DRA_OK) st = dra_array_upload(dra_array_whole(l->columns[i]), to, err);
    free(to);
    return st;
}

dra_status dra_columns_create(const dra_engine *e, dra_lane *l, dra_error *err)
{
    const int  n = dra_specs_count(dra_model_params(l->model));
    dra_status st = DRA_OK;
    if (!e->config.device->table->borrows || count_bytes(l) > MOST) return DRA_OK;
    l->columns = calloc((size_t)n + 1, sizeof(dra_array *));
    if (!l->columns) return dra_engine_no_memory(err);
    for (int i = 0; i < n && st == DRA_OK; i++)
        if (is_plain_matrix(l, i)) st = copy_matrix(e, l, i, err);
    return st;
}

dra_status dra_columns_bind(const dra_lane *l, dra_reader *r, dra_error *err)
{
    const dra_specs       *specs = dra_model_params(l->model);
    const dra_param_layout form = {.dtype = DRA_REAL, .transposed = true};
    dra_status             st = DRA_OK;
    for (int i = 0; i < dra_specs_count(specs) && l->columns && st == DRA_OK; i++)
        if (l->columns[i])
            st = dra_reader_bind_as(r, dra_specs_at(specs, i)->name, form,
                                    dra_array_whole(l->columns[i]), err);
    return st;
}

void dra_columns_destroy(dra_lane *l)
{
    for (int i = 0; l->columns && i < dra_specs_count(dra_model_params(l->model)); i++)
        dra_array_destroy(l->columns[i]);
    free(l->columns);
}
