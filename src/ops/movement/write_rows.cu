/* write_rows: y = x, then y[b, at[b, t]] = rows[b, t]; at < 0 writes nothing.
 * read_rows: y[b, t] = x[b, at[b, t]], zeros for at < 0.
 * x (B, cap, ...)   rows (B, T, ...)   at i32 (B, T)
 *
 * Rows are checked before any is written, and none is where one is wrong, so a donated state stays
 * as it was. */
#include "ops/movement/move.cuh"

struct at_view {
    const int32_t *data;
    int64_t        B, T, row, step; /* strides of b and t */
};

static at_view at_of(const dra_tensor *at)
{
    return {static_cast<const int32_t *>(at->data), at->shape.dim[0], at->shape.dim[1],
            at->stride[0], at->stride[1]};
}

/* A tensor (B, cap, ...) as rows: where row (b, i) starts, and its elements. */
struct rows_view {
    int64_t  b, i;
    dra_view row;
};

static rows_view rows_of(const dra_tensor *x)
{
    dra_tensor row = {x->data, x->dtype, {x->shape.rank - 2, {}}, {}};
    for (int32_t d = 0; d < row.shape.rank; d++) {
        row.shape.dim[d] = x->shape.dim[d + 2];
        row.stride[d] = x->stride[d + 2];
    }
    return {x->stride[0], x->stride[1], dra_view_of(&row)};
}

static int64_t row_size(const dra_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 2; i < t->shape.rank; i++) n *= t->shape.dim[i];
    return n;
}

/* Wider elements for the rows of the op and the dense tensor y of rows of n elements. */
static int widen_rows(int bytes, rows_view *rows, const void *y, int64_t *n)
{
    dra_view        both = {rows->row.data, 3, {*n, 1, 1}, {1, rows->b, rows->i}};
    dra_view        dense = {const_cast<void *>(y), 2, {*n, 1}, {1, *n}};
    dra_view *const view[] = {&rows->row, &both, &dense};
    int64_t         counts[] = {*n, *n, *n};
    const int       wide = dra_cuda_widen(bytes, 3, view, counts);
    rows->b = both.stride[1], rows->i = both.stride[2];
    *n = counts[0];
    return wide;
}

/* ---- write_rows ------------------------------------------------------------------------------ */

/* Which entry of b first names a row, for each row of x; all ones but the highest: none. */
static size_t write_scratch(const dra_call *c)
{
    const dra_shape *x = &c->in[0].shape;
    return c->in[2].shape.dim[1] > 1 ? (size_t)(x->dim[0] * x->dim[1]) * sizeof(int32_t) : 0;
}

/* A block checks a row b of the batch: first whether all are inside, then, unless first is NULL,
 * whether one is named twice. */
__global__ static void check_kernel(dra_fault_place fault, const at_view at, int64_t cap,
                                    int32_t *first)
{
    const int64_t b = blockIdx.x;
    for (int64_t t = threadIdx.x; t < at.T; t += blockDim.x) {
        const int32_t row = at.data[b * at.row + t * at.step];
        if (row >= cap)
            dra_fault_raise(fault, 2 * b * at.T + t, DRA_FAULT_ROW, b, t, row, cap);
        else if (row >= 0 && first)
            atomicMin(&first[b * cap + row], (int32_t)t);
    }
    __threadfence();
    __syncthreads();
    for (int64_t t = threadIdx.x; first && t < at.T; t += blockDim.x) {
        const int32_t row = at.data[b * at.row + t * at.step];
        if (row >= 0 && row < cap && first[b * cap + row] != t)
            dra_fault_raise(fault, (2 * b + 1) * at.T + t, DRA_FAULT_TWICE, b, t, row);
    }
}

/* The same for one entry of each b, by every block for itself: the step of a cache is one
 * launch. */
__device__ static bool all_inside(dra_fault_place fault, const at_view &at, int64_t cap)
{
    float outside = 0;
    for (int64_t b = threadIdx.x; b < at.B; b += blockDim.x) {
        const int32_t row = at.data[b * at.row];
        if (row < cap) continue;
        dra_fault_raise(fault, b, DRA_FAULT_ROW, b, 0, row, cap);
        outside = 1;
    }
    return dra_block_sum(outside) == 0;
}

template <typename T, bool Checks>
__global__ static void write_kernel(dra_fault_place fault, const at_view at, int64_t cap, int64_t n,
                                    const __grid_constant__ rows_view rows, T *y)
{
    if (Checks && !all_inside(fault, at, cap)) return;
    if (fault.record->kind != DRA_FAULT_NONE) return; /* of the check, or of what ran before */
    DRA_EACH(k, at.B * at.T * n)
    {
        const int64_t r = k / n, i = k - r * n, b = r / at.T, t = r - b * at.T;
        const int32_t to = at.data[b * at.row + t * at.step];
        if (to < 0 || to >= cap) continue;
        y[(b * cap + to) * n + i] = dra_data<const T>(
            rows.row)[b * rows.b + t * rows.i + dra_offset(rows.row, i)];
    }
}

static bool checks_itself(const at_view *at) { return at->T == 1 && at->B <= 1024; }

template <typename T>
static void write_as(const dra_call *c, const at_view *at, int64_t n, const rows_view *rows)
{
    const int64_t  cap = c->out[0].shape.dim[1];
    const unsigned grid = dra_grid(c, at->B * at->T * n, DRA_THREADS);
    T             *y = static_cast<T *>(c->out[0].data);
    if (checks_itself(at))
        DRA_LAUNCH(c, (write_kernel<T, true>), grid, DRA_THREADS, 0, dra_fault_of(c), *at, cap, n,
                   *rows, y);
    else
        DRA_LAUNCH(c, (write_kernel<T, false>), grid, DRA_THREADS, 0, dra_fault_of(c), *at, cap, n,
                   *rows, y);
}

static void write_launch(const dra_call *c)
{
    const dra_tensor *x = &c->in[0], *y = &c->out[0];
    const at_view     at = at_of(&c->in[2]);
    const size_t      marks = write_scratch(c);
    rows_view         rows = rows_of(&c->in[1]);
    int64_t           n = row_size(y);
    if (y->data != x->data) {
        const dra_cuda_part part = {*y, *x};
        dra_cuda_move(c, 1, &part, nullptr);
    }
    if (at.T == 0) return;
    if (marks) cudaMemsetAsync(c->scratch, 0x7F, marks, dra_cuda_of(c)->stream);
    if (!checks_itself(&at))
        DRA_LAUNCH(c, check_kernel, (unsigned)at.B, DRA_THREADS, 0, dra_fault_of(c), at,
                   x->shape.dim[1], marks ? static_cast<int32_t *>(c->scratch) : nullptr);
    const int wide = widen_rows((int)dra_dtype_bytes(y->dtype), &rows, y->data, &n);
    DRA_BY_BYTES(wide, write_as, c, &at, n, &rows);
}

const dra_cuda_kernel dra_cuda_write_rows = {
    {"write_rows", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 1, false, write_scratch, nullptr},
    write_launch,
    false};

/* ---- read_rows ------------------------------------------------------------------------------- */

template <typename T>
__global__ static void read_kernel(dra_fault_place fault, const at_view at, int64_t cap, int64_t n,
                                   const __grid_constant__ rows_view x, T *y)
{
    DRA_EACH(k, at.B * at.T * n)
    {
        const int64_t r = k / n, i = k - r * n, b = r / at.T, t = r - b * at.T;
        const int32_t from = at.data[b * at.row + t * at.step];
        if (from >= cap && i == 0) dra_fault_raise(fault, r, DRA_FAULT_ROW, b, t, from, cap);
        y[k] = from < 0 || from >= cap
                   ? T{} /* 0 is all bits 0 in every dtype */
                   : dra_data<const T>(x.row)[b * x.b + from * x.i + dra_offset(x.row, i)];
    }
}

template <typename T>
static void read_as(const dra_call *c, const at_view *at, int64_t n, const rows_view *x)
{
    DRA_LAUNCH(c, read_kernel<T>, dra_grid(c, at->B * at->T * n, DRA_THREADS), DRA_THREADS, 0,
               dra_fault_of(c), *at, c->in[0].shape.dim[1], n, *x,
               static_cast<T *>(c->out[0].data));
}

static void read_launch(const dra_call *c)
{
    const dra_tensor *y = &c->out[0];
    const at_view     at = at_of(&c->in[1]);
    rows_view         x = rows_of(&c->in[0]);
    int64_t           n = row_size(y);
    const int         wide = widen_rows((int)dra_dtype_bytes(y->dtype), &x, y->data, &n);
    DRA_BY_BYTES(wide, read_as, c, &at, n, &x);
}

const dra_cuda_kernel dra_cuda_read_rows = {
    {"read_rows", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 0, false, nullptr, nullptr}, read_launch, false};
