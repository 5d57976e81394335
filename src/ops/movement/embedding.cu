/* embedding: y[.., c] = table[ids[..], c], rows of a table. one_hot: y[.., j] = (ids[..] == j). */
#include "ops/movement/move.cuh"
#include "ops/products/quant.cuh"

/* ---- embedding ------------------------------------------------------------------------------- */

struct lookup {
    dra_fault_place fault;
    int64_t         V, C, n;     /* n: elements of y */
    int64_t         row, column; /* strides of the table */
    dra_view        ids;
};

template <typename T> __global__ static void embedding_kernel(const lookup e, const T *table, T *y)
{
    DRA_EACH(i, e.n)
    {
        const int64_t r = i / e.C, k = i - r * e.C;
        const int32_t id = dra_data<const int32_t>(e.ids)[dra_offset(e.ids, r)];
        if (id >= 0 && id < e.V)
            y[i] = table[id * e.row + k * e.column];
        else if (k == 0)
            dra_fault_raise(e.fault, r, DRA_FAULT_ID, id, e.V);
    }
}

template <typename T> static void embedding_as(const dra_call *c, const lookup *e)
{
    DRA_LAUNCH(c, embedding_kernel<T>, dra_grid(c, e->n, DRA_THREADS), DRA_THREADS, 0, *e,
               static_cast<const T *>(c->in[0].data), static_cast<T *>(c->out[0].data));
}

/* Of quantised rows 8 numbers at a time; e.n counts those. */
__global__ static void quantised_kernel(const lookup e, const void *table, dra_dtype dtype,
                                        float *y)
{
    enum { SOME = dra_stored_any_quant::SOME };
    const int64_t parts = (e.C + SOME - 1) / SOME;
    const bool    whole = e.column == 1 && e.row % SOME == 0;
    DRA_EACH(i, e.n)
    {
        const int64_t r = i / parts, k = (i - r * parts) * SOME, left = e.C - k;
        const int32_t id = dra_data<const int32_t>(e.ids)[dra_offset(e.ids, r)];
        if (id >= 0 && id < e.V) {
            const auto x = dra_stored_any_quant::fetch(table, dtype, id * e.row + k * e.column,
                                                       e.column, left, whole && left >= SOME);
            for (int j = 0; j < SOME && j < left; j++) y[r * e.C + k + j] = x.at[j];
        } else if (k == 0) {
            dra_fault_raise(e.fault, r, DRA_FAULT_ID, id, e.V);
        }
    }
}

static void quantised_launch(const dra_call *c)
{
    const dra_tensor *table = &c->in[0], *y = &c->out[0];
    const int64_t     C = table->shape.dim[1];
    const int64_t     n = dra_rows(y) * dra_div_up(C, (int64_t)DRA_QUANT_SOME);
    const lookup      e = {dra_fault_of(c),  table->shape.dim[0],   C, n, table->stride[0],
                           table->stride[1], dra_view_of(&c->in[1])};
    DRA_LAUNCH(c, quantised_kernel, dra_grid(c, n, DRA_THREADS), DRA_THREADS, 0, e, table->data,
               table->dtype, static_cast<float *>(y->data));
}

static void embedding_launch(const dra_call *c)
{
    if (dra_is_quantised(c->in[0].dtype)) {
        quantised_launch(c);
        return;
    }
    const dra_tensor *table = &c->in[0], *y = &c->out[0];
    const int         bytes = (int)dra_dtype_bytes(table->dtype);
    const int64_t     C = table->shape.dim[1], N = dra_rows(y);
    dra_view          from = {
                 table->data, 2, {C, table->shape.dim[0]}, {table->stride[1], table->stride[0]}};
    dra_view        to = {y->data, 2, {C, N}, {1, C}};
    dra_view *const both[] = {&from, &to};
    int64_t         n[] = {C * table->shape.dim[0], C * N};
    const int       wide = dra_cuda_widen(bytes, 2, both, n);
    const lookup    e = {dra_fault_of(c), table->shape.dim[0],   to.dim[0], n[1], from.stride[1],
                         from.stride[0],  dra_view_of(&c->in[1])};
    DRA_BY_BYTES(wide, embedding_as, c, &e);
}

const dra_cuda_kernel dra_cuda_embedding = {
    {"embedding",
     DRA_REALS | DRA_BIT(DRA_BF16) | DRA_BIT(DRA_F16) | DRA_BIT(DRA_I32) | DRA_QUANTISED,
     DRA_LAYOUT_ANY, 0, false, nullptr, nullptr},
    embedding_launch,
    false};

/* ---- one_hot --------------------------------------------------------------------------------- */

__global__ static void one_hot_kernel(const __grid_constant__ dra_view ids, int64_t rows, int64_t n,
                                      float *y)
{
    DRA_EACH(r, rows)
    {
        const int32_t id = dra_data<const int32_t>(ids)[dra_offset(ids, r)];
        if (id >= 0 && id < n) y[r * n + id] = 1;
    }
}

/* Zeros, then the ones. */
static void one_hot_launch(const dra_call *c)
{
    const dra_tensor *y = &c->out[0];
    const int64_t     n = dra_last(y), rows = dra_rows(y);
    cudaMemsetAsync(y->data, 0, (size_t)(n * rows) * sizeof(float), dra_cuda_of(c)->stream);
    DRA_LAUNCH(c, one_hot_kernel, dra_grid(c, rows, DRA_THREADS), DRA_THREADS, 0,
               dra_view_of(&c->in[0]), rows, n, static_cast<float *>(y->data));
}

const dra_cuda_kernel dra_cuda_one_hot = {
    {"one_hot", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ANY, 0, false, nullptr, nullptr},
    one_hot_launch,
    false};
