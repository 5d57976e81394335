/* gather: y[.., i, ..] = x[.., index[.., i, ..], ..] along an axis.
 * scatter_add: y = x, then y[.., index[.., i, ..], ..] += src[.., i, ..], in the order of i, so
 * that sums are the same on every run. */
#include "ops/movement/move.cuh"

static int axis_of(const dra_call *c)
{
    return static_cast<const dra_gather_attr *>(c->attr)->axis;
}

/* The same tensor, seen once for each of the other indices: where lines along the axis start. */
static dra_tensor starts_of(const dra_tensor *t, int axis)
{
    dra_tensor line = *t;
    line.shape.dim[axis] = 1;
    return line;
}

struct along { /* lines of a tensor */
    dra_view starts;
    int64_t  step, size;
};

static along along_of(const dra_tensor *t, int axis)
{
    const dra_tensor line = starts_of(t, axis);
    return {dra_view_of(&line), t->stride[axis], t->shape.dim[axis]};
}

/* ---- gather ---------------------------------------------------------------------------------- */

struct gather_call {
    dra_fault_place fault;
    int64_t         n, size, step; /* of y; of the axis of x */
    int             axis;
    dra_view        x, index; /* x stands still along the axis */
};

template <typename T> __global__ static void gather_kernel(const gather_call g, T *y)
{
    DRA_EACH(i, g.n)
    {
        const int32_t at = dra_data<const int32_t>(g.index)[dra_offset(g.index, i)];
        if (at < 0 || at >= g.size)
            dra_fault_raise(g.fault, i, DRA_FAULT_INDEX, at, g.axis, g.size);
        else
            y[i] = dra_data<const T>(g.x)[dra_offset(g.x, i) + at * g.step];
    }
}

template <typename T> static void gather_as(const dra_call *c, const gather_call *g)
{
    DRA_LAUNCH(c, gather_kernel<T>, dra_grid(c, g->n, DRA_THREADS), DRA_THREADS, 0, *g,
               static_cast<T *>(c->out[0].data));
}

static void gather_launch(const dra_call *c)
{
    const int   axis = axis_of(c);
    dra_tensor  x = c->in[0];
    gather_call g = {dra_fault_of(c),
                     dra_shape_count(&c->out[0].shape),
                     x.shape.dim[axis],
                     x.stride[axis],
                     axis,
                     {},
                     dra_view_of(&c->in[1])};
    x.shape = c->in[1].shape;
    x.stride[axis] = 0;
    g.x = dra_view_of(&x);
    DRA_BY_BYTES(dra_dtype_bytes(x.dtype), gather_as, c, &g);
}

const dra_cuda_kernel dra_cuda_gather = {
    {"gather", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 0, false, nullptr, nullptr}, gather_launch, false};

/* ---- scatter_add ----------------------------------------------------------------------------- */

struct scatter_call {
    dra_fault_place fault;
    int             axis;
    int64_t         lines;
    along           y, index, src;
};

__device__ static bool is_inside(const scatter_call &s, int64_t line, int64_t i, int32_t to)
{
    if (to >= 0 && to < s.y.size) return true;
    dra_fault_raise(s.fault, line * s.index.size + i, DRA_FAULT_INDEX, to, s.axis, s.y.size);
    return false;
}

/* Many lines: each has a thread, which goes along it. T: float, or uint32_t, whose sums wrap. */
template <typename T> __global__ static void scatter_lines(const scatter_call s)
{
    DRA_EACH(line, s.lines)
    {
        T             *y = dra_data<T>(s.y.starts) + dra_offset(s.y.starts, line);
        const T       *src = dra_data<const T>(s.src.starts) + dra_offset(s.src.starts, line);
        const int32_t *index = dra_data<const int32_t>(s.index.starts) +
                               dra_offset(s.index.starts, line);
        for (int64_t i = 0; i < s.index.size; i++) {
            const int32_t to = index[i * s.index.step];
            if (is_inside(s, line, i, to)) y[to * s.y.step] += src[i * s.src.step];
        }
    }
}

/* Few lines: a block has as many elements of a line as threads, and looks for what is added to
 * them among some of the index at a time. Each thread then adds what is its own, in order. */
template <typename T> __global__ static void scatter_ranges(const scatter_call s, int64_t ranges)
{
    __shared__ int32_t  to[DRA_THREADS];
    __shared__ T        value[DRA_THREADS];
    __shared__ unsigned count[DRA_THREADS / 32];
    const int           lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int64_t k = blockIdx.x; k < s.lines * ranges; k += gridDim.x) {
        const int64_t  line = k / ranges, first = (k - line * ranges) * DRA_THREADS;
        const int64_t  mine = first + threadIdx.x;
        T             *y = dra_data<T>(s.y.starts) + dra_offset(s.y.starts, line);
        const T       *src = dra_data<const T>(s.src.starts) + dra_offset(s.src.starts, line);
        const int32_t *index = dra_data<const int32_t>(s.index.starts) +
                               dra_offset(s.index.starts, line);
        T sum = mine < s.y.size ? y[mine * s.y.step] : T(0);
        for (int64_t base = 0; base < s.index.size; base += DRA_THREADS) {
            const int64_t i = base + threadIdx.x;
            const int32_t at = i < s.index.size ? index[i * s.index.step] : -1;
            if (i < s.index.size && first == 0) is_inside(s, line, i, at);
            const bool     wanted = at >= first && at < dra_imin(first + DRA_THREADS, s.y.size);
            const unsigned all = __ballot_sync(~0u, wanted);
            if (lane == 0) count[warp] = (unsigned)__popc(all);
            __syncthreads();
            int place = __popc(all & ((1u << lane) - 1)), n = 0;
            for (int w = 0; w < DRA_THREADS / 32; w++) {
                place += w < warp ? (int)count[w] : 0;
                n += (int)count[w];
            }
            if (wanted) to[place] = at, value[place] = src[i * s.src.step];
            __syncthreads();
            for (int j = 0; j < n; j++)
                if (to[j] == mine) sum += value[j];
            __syncthreads();
        }
        if (mine < s.y.size) y[mine * s.y.step] = sum;
    }
}

template <typename T> static void scatter_as(const dra_call *c, const scatter_call *s)
{
    const int64_t ranges = dra_div_up(s->y.size, DRA_THREADS), blocks = s->lines * ranges;
    /* About what each takes, in ns: a thread waits for memory at every step; a block looks at the
     * whole index, and 8 blocks of a processor work at a time. */
    const double at_once = 8.0 * dra_cuda_of(c)->processors;
    const double threads = 700.0 * (double)s->index.size *
                           (double)dra_div_up(s->lines, 256 * (int64_t)at_once);
    const double searches = (1000 + 6 * (double)s->index.size) *
                            (double)dra_div_up(blocks, (int64_t)at_once);
    if (threads <= searches)
        DRA_LAUNCH(c, scatter_lines<T>, dra_grid(c, s->lines, DRA_THREADS), DRA_THREADS, 0, *s);
    else
        DRA_LAUNCH(c, scatter_ranges<T>, dra_grid(c, blocks, 1), DRA_THREADS, 0, *s, ranges);
}

static void scatter_launch(const dra_call *c)
{
    const dra_tensor   *x = &c->in[0], *y = &c->out[0];
    const int           axis = axis_of(c);
    const dra_tensor    line = starts_of(y, axis);
    const dra_cuda_part part = {*y, *x};
    const scatter_call  s = {dra_fault_of(c),
                             axis,
                             dra_shape_count(&line.shape),
                             along_of(y, axis),
                             along_of(&c->in[1], axis),
                             along_of(&c->in[2], axis)};
    if (y->data != x->data) dra_cuda_move(c, 1, &part, nullptr);
    if (s.index.size == 0) return;
    if (y->dtype == DRA_I32)
        scatter_as<uint32_t>(c, &s);
    else
        scatter_as<float>(c, &s);
}

const dra_cuda_kernel dra_cuda_scatter_add = {
    {"scatter_add", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ANY, 1, false, nullptr, nullptr},
    scatter_launch,
    false};
