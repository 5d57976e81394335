/* copy: y = x, dense; and all other moves of elements, see move.cuh. A thread moves 16 bytes at a
 * time where the innermost axes of both sides allow it. */
#include "ops/movement/move.cuh"

#include <string.h>

/* ---- wider elements -------------------------------------------------------------------------- */

static bool widens(const dra_view *v, int64_t n, int64_t by, int bytes)
{
    const int64_t inner = v->rank ? v->dim[0] : n;
    bool fits = inner % by == 0 && reinterpret_cast<uintptr_t>(v->data) % (uintptr_t)bytes == 0;
    for (int32_t i = 0; i < v->rank; i++)
        fits = fits && (i ? v->stride[i] % by == 0 : v->stride[0] == 1);
    return fits;
}

static void widen(dra_view *v, int64_t by)
{
    for (int32_t i = 1; i < v->rank; i++) v->stride[i] /= by;
    if (v->rank) v->dim[0] /= by;
}

int dra_cuda_widen(int bytes, int views, dra_view *const *v, int64_t *n)
{
    for (int wide = 16; wide > bytes; wide /= 2) {
        const int64_t by = wide / bytes;
        bool          fits = true;
        for (int i = 0; i < views && fits; i++) fits = widens(v[i], n[i], by, wide);
        if (!fits) continue;
        for (int i = 0; i < views; i++) {
            widen(v[i], by);
            n[i] /= by;
        }
        return wide;
    }
    return bytes;
}

bool dra_cuda_by_four(dra_view *v, int64_t *n)
{
    if (!widens(v, *n, 4, 16)) return false;
    widen(v, 4);
    *n /= 4;
    return true;
}

/* ---- moves ----------------------------------------------------------------------------------- */

enum { PARTS = 8 }; /* of one launch: they are its arguments */

struct moves {
    int      parts;
    int64_t  n[PARTS];
    dra_view to[PARTS], from[PARTS];
};

template <typename T> __global__ static void move_kernel(const moves m, T fill)
{
    const int k = (int)blockIdx.y;
    T *const  to = dra_data<T>(m.to[k]);
    if (m.from[k].data) DRA_EACH(i, m.n[k])
    to[dra_offset(m.to[k], i)] = dra_data<const T>(m.from[k])[dra_offset(m.from[k], i)];
    else DRA_EACH(i, m.n[k]) to[dra_offset(m.to[k], i)] = fill;
}

struct number { /* one of any dtype, again and again */
    unsigned char byte[16];
};

template <typename T> static void start(const dra_call *c, const moves *m, const number *fill)
{
    int64_t most = 0;
    T       value;
    memcpy(&value, fill, sizeof value);
    for (int k = 0; k < m->parts; k++) most = dra_imax(most, m->n[k]);
    DRA_LAUNCH(c, move_kernel<T>, dim3(dra_grid(c, most, DRA_THREADS), (unsigned)m->parts),
               DRA_THREADS, 0, *m, value);
}

/* As wide as all parts allow. */
static void start_moves(const dra_call *c, moves *m, int bytes, const number *fill)
{
    dra_view *view[2 * PARTS];
    int64_t   n[2 * PARTS];
    int       views = 0;
    for (int k = 0; k < m->parts; k++) {
        view[views] = &m->to[k], n[views++] = m->n[k];
        if (m->from[k].data) view[views] = &m->from[k], n[views++] = m->n[k];
    }
    const int wide = dra_cuda_widen(bytes, views, view, n);
    for (int k = 0; k < m->parts; k++) m->n[k] /= wide / bytes;
    DRA_BY_BYTES(wide, start, c, m, fill);
}

/* ---- transposed ------------------------------------------------------------------------------ */

/* Elements next to each other in `from` are apart in `to`, and the other way around: squares of
 * them change their order in shared memory, so that both sides are touched in whole lines. */
struct across {
    dra_view from, to; /* once for each of the other indices */
    int64_t  outer, rows, columns, from_step, to_step;
};

enum { SIDE = 32, LEAST = 16 }; /* of a square; narrower ones are copied as anything else */

template <typename T> __global__ static void across_kernel(const __grid_constant__ across a)
{
    __shared__ T  square[SIDE][SIDE + 1]; /* one more: a column is in all banks */
    const int     lane = (int)threadIdx.x % SIDE, warp = (int)threadIdx.x / SIDE;
    const int64_t down = dra_div_up(a.rows, SIDE), wide = dra_div_up(a.columns, SIDE);
    for (int64_t k = blockIdx.x; k < a.outer * down * wide; k += gridDim.x) {
        const int64_t outer = k / (down * wide), place = k - outer * down * wide;
        const int64_t r0 = place / wide * SIDE, c0 = place % wide * SIDE;
        const T      *from = dra_data<const T>(a.from) + dra_offset(a.from, outer);
        T            *to = dra_data<T>(a.to) + dra_offset(a.to, outer);
        for (int j = warp; j < SIDE; j += DRA_THREADS / SIDE)
            if (r0 + lane < a.rows && c0 + j < a.columns)
                square[j][lane] = from[r0 + lane + (c0 + j) * a.from_step];
        __syncthreads();
        for (int j = warp; j < SIDE; j += DRA_THREADS / SIDE)
            if (r0 + j < a.rows && c0 + lane < a.columns)
                to[(r0 + j) * a.to_step + c0 + lane] = square[lane][j];
        __syncthreads();
    }
}

/* Whether a part is such a move. */
static bool is_across(const dra_cuda_part *p, across *a)
{
    dra_tensor to = p->to, from = p->from;
    const int  last = to.shape.rank - 1;
    int        fast = 0;
    if (!from.data || last < 1 || to.stride[last] != 1 || from.stride[last] <= 1) return false;
    while (fast < last && (from.stride[fast] != 1 || from.shape.dim[fast] < LEAST)) fast++;
    if (fast == last || to.shape.dim[last] < LEAST) return false;
    a->rows = to.shape.dim[fast], a->to_step = to.stride[fast];
    a->columns = to.shape.dim[last], a->from_step = from.stride[last];
    to.shape.dim[fast] = to.shape.dim[last] = from.shape.dim[fast] = from.shape.dim[last] = 1;
    a->outer = dra_shape_count(&to.shape);
    a->to = dra_view_of(&to);
    a->from = dra_view_of(&from);
    return a->outer > 0;
}

template <typename T> static void start_across(const dra_call *c, const across *a)
{
    const int64_t squares = a->outer * dra_div_up(a->rows, SIDE) * dra_div_up(a->columns, SIDE);
    DRA_LAUNCH(c, across_kernel<T>, dra_grid(c, squares, 1), DRA_THREADS, 0, *a);
}

/* ---- parts ----------------------------------------------------------------------------------- */

void dra_cuda_move(const dra_call *c, int n, const dra_cuda_part *part, const void *fill)
{
    const int bytes = (int)dra_dtype_bytes(part[0].to.dtype);
    moves     m = {};
    number    all = {};
    for (int i = 0; fill && i < 16; i++)
        all.byte[i] = static_cast<const unsigned char *>(fill)[i % bytes];
    for (int k = 0; k < n; k++) {
        const int64_t count = dra_shape_count(&part[k].to.shape);
        across        a;
        if (is_across(&part[k], &a)) {
            DRA_BY_BYTES(bytes, start_across, c, &a);
        } else if (count) {
            m.n[m.parts] = count;
            m.to[m.parts] = dra_view_of(&part[k].to);
            m.from[m.parts++] = dra_view_of(&part[k].from);
        }
        if (m.parts == PARTS || (m.parts && k == n - 1)) {
            start_moves(c, &m, bytes, &all);
            m.parts = 0;
        }
    }
}

/* Where others have made its output narrow, it rounds; rounded before, it is a copy again. */
static void launch(const dra_call *c)
{
    if (c->in[0].dtype != c->out[0].dtype) {
        dra_cuda_cast.launch(c);
        return;
    }
    if (c->in[0].data == c->out[0].data && dra_tensor_is_dense(&c->in[0])) return; /* donated */
    const dra_cuda_part part = {c->out[0], c->in[0]};
    dra_cuda_move(c, 1, &part, nullptr);
}

static uint32_t rounds(const dra_call *c) { return c->out[0].dtype == DRA_BF16; }

static uint32_t narrows(const dra_call *) { return 1; }

const dra_cuda_kernel dra_cuda_copy = {
    {"copy", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 0, false, nullptr, nullptr, rounds, narrows, true},
    launch,
    false};
