/* Reductions on the GPU: x seen as (kept axes, reduced axes), whatever the strides.
 *
 * Threads are laid out by how memory runs. Where outputs are neighbours in memory (a sum over
 * rows), a block has `width` of them and its threads share the elements of each, so that a warp
 * reads one line of neighbours. Where the reduced elements are neighbours, an output has the block
 * for itself (width 1), or, where it has few elements, `share` threads of a warp.
 * Few outputs of many elements are cut into segments, whose states go to scratch and are joined by
 * the same kernel. All of it follows from shapes and strides, and so do the bits of the result.
 *
 * An op is a struct of functions on its state: none(), take(state, x, number of the element),
 * join(a, b), where elements of a come first or in between, give(state, where to). */
#ifndef DRA_SRC_OPS_REDUCE_REDUCE_CUH
#define DRA_SRC_OPS_REDUCE_REDUCE_CUH

#include "device/cuda/rows.cuh"

struct dra_reduction {
    const void *x;
    dra_view    kept, outer; /* outer: the reduced axes without the innermost one */
    int64_t     outputs, elements;
    int64_t     inner, step; /* the innermost reduced axis: its size, and its stride */
    int64_t     width, blocks, segment, segments;
    int         share; /* 0: the block shares `width` outputs */
};

enum {
    DRA_REDUCE_FEW = 1024,   /* elements that a warp takes on its own */
    DRA_REDUCE_EACH = 16,    /* elements of a thread that are worth a segment */
    DRA_REDUCE_BLOCKS = 2048 /* as many make the whole GPU busy */
};

static inline void dra_split_axes(const dra_tensor *x, uint32_t axes, dra_tensor *kept,
                                  dra_tensor *reduced)
{
    *kept = *reduced = {};
    for (int32_t i = 0; i < x->shape.rank; i++) {
        dra_tensor *t = axes >> i & 1 ? reduced : kept;
        t->shape.dim[t->shape.rank] = x->shape.dim[i];
        t->stride[t->shape.rank++] = x->stride[i];
    }
}

static inline int64_t dra_power_above(int64_t n, int64_t most) /* the first power of 2 >= n */
{
    int64_t p = 1;
    while (p < n && p < most) p *= 2;
    return p;
}

static inline int64_t dra_inner_stride(const dra_view *v)
{
    return v->rank == 0 ? 1 : v->stride[0] < 0 ? -v->stride[0] : v->stride[0];
}

static inline void dra_reduction_cut(dra_reduction *r, bool across)
{
    const bool many = r->outputs >= DRA_REDUCE_FEW;
    if (!across && r->elements <= (many ? DRA_REDUCE_FEW : DRA_REDUCE_FEW / 4)) {
        r->share = (int)dra_power_above(r->elements, 32);
        r->width = DRA_THREADS / r->share;
    } else {
        r->width = across ? dra_power_above(r->outputs, 32) : 1;
    }
    r->blocks = dra_div_up(r->outputs, r->width);
    const int64_t worth = DRA_REDUCE_EACH * (r->share ? r->share : DRA_THREADS / r->width);
    const int64_t most = dra_div_up(r->elements, r->share ? r->elements + 1 : worth);
    const int64_t wanted = dra_div_up(DRA_REDUCE_BLOCKS, dra_imax(1, r->blocks));
    r->segment = dra_div_up(r->elements, dra_imax(1, dra_imin(most, wanted)));
    r->segments = r->elements ? dra_div_up(r->elements, r->segment) : 1;
}

static inline dra_reduction dra_reduction_of(const dra_tensor *x, uint32_t axes)
{
    dra_tensor kept, reduced;
    dra_split_axes(x, axes, &kept, &reduced);
    dra_reduction  r = {};
    const dra_view v = dra_view_of(&reduced);
    r.x = x->data;
    r.kept = dra_view_of(&kept);
    r.outputs = dra_shape_count(&kept.shape);
    r.elements = dra_shape_count(&reduced.shape);
    r.inner = v.rank ? v.dim[0] : dra_imax(1, r.elements);
    r.step = v.rank ? v.stride[0] : 1;
    r.outer.rank = 0;
    for (int32_t i = 1; i < v.rank; i++) {
        r.outer.dim[i - 1] = v.dim[i];
        r.outer.stride[i - 1] = v.stride[i];
        r.outer.rank = i;
    }
    dra_reduction_cut(&r, r.outputs > 1 && r.elements > 1 &&
                              dra_inner_stride(&r.kept) < dra_inner_stride(&v));
    return r;
}

/* The states of the segments, (segments, outputs), to outputs. */
static inline dra_reduction dra_reduction_join(const dra_reduction *first, void *scratch)
{
    dra_reduction r = {};
    r.x = scratch;
    r.outputs = first->outputs;
    r.elements = r.inner = r.segment = first->segments;
    r.step = first->outputs;
    r.width = dra_power_above(r.outputs, 32);
    r.blocks = dra_div_up(r.outputs, r.width);
    r.segments = 1;
    return r;
}

static inline size_t dra_reduction_scratch(const dra_reduction *r, size_t state)
{
    return r->segments > 1 ? (size_t)(r->segments * r->outputs) * state : 0;
}

/* ---- kernel ---------------------------------------------------------------------------------- */

/* Elements begin + part, begin + part + parts, .. of one output. */
template <typename Op, typename From>
__device__ static typename Op::state dra_take_flat(const From *x, int64_t step, int64_t i,
                                                   int64_t end, int64_t parts)
{
    typename Op::state s = Op::none();
    DRA_UNROLL_BY(8)
    for (; i < end; i += parts) Op::take(s, x[i * step], i);
    return s;
}

/* The same where reduced axes do not run on: no division but the first. */
template <typename Op, typename From>
__device__ static typename Op::state dra_take_axes(const From *x, const dra_reduction &r, int64_t i,
                                                   int64_t end, int64_t parts)
{
    typename Op::state s = Op::none();
    if (i >= end) return s;
    const int64_t by_outer = parts / r.inner, by_inner = parts - by_outer * r.inner;
    int64_t       outer = i / r.inner, inner = i - outer * r.inner;
    for (; i < end; i += parts) {
        const int64_t at = r.outer.rank == 1 ? outer * r.outer.stride[0]
                                             : dra_offset(r.outer, outer);
        Op::take(s, x[at + inner * r.step], i);
        outer += by_outer;
        inner += by_inner;
        if (inner >= r.inner) inner -= r.inner, outer++;
    }
    return s;
}

/* For the first of the threads that share an output; all threads of the block must come. */
template <typename Op>
__device__ static typename Op::state dra_join_parts(const dra_reduction &r, typename Op::state s)
{
    __shared__ typename Op::state part[DRA_THREADS];
    const unsigned                lane = threadIdx.x % 32;
    const int                     from = r.share ? 1 : (int)r.width, to = r.share ? r.share : 32;
    for (int by = from; by < to; by *= 2) s = Op::join(s, dra_shuffle_xor(s, by));
    if (r.share) return s;
    __syncthreads(); /* it may still be read from before */
    part[threadIdx.x] = s;
    __syncthreads();
    for (unsigned i = lane + 32; threadIdx.x < 32 && i < blockDim.x; i += 32)
        s = Op::join(s, part[i]);
    return s;
}

template <typename Op, typename From, typename To, bool FLAT>
__global__ static void dra_reduce_kernel(const dra_reduction r, To *y)
{
    const int     thread = (int)threadIdx.x;
    const int     column = r.share ? thread / r.share : thread % (int)r.width;
    const int     part = r.share ? thread % r.share : thread / (int)r.width;
    const int     parts = r.share ? r.share : DRA_THREADS / (int)r.width;
    const int64_t items = r.blocks * r.segments;
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int64_t      segment = item / r.blocks;
        const int64_t      k = (item - segment * r.blocks) * r.width + column;
        const int64_t      begin = segment * r.segment + part;
        const int64_t      end = dra_imin(r.elements, (segment + 1) * r.segment);
        typename Op::state s = Op::none();
        if (k < r.outputs) {
            const From *x = static_cast<const From *>(r.x) + dra_offset(r.kept, k);
            s = FLAT ? dra_take_flat<Op>(x, r.step, begin, end, parts)
                     : dra_take_axes<Op>(x, r, begin, end, parts);
        }
        s = dra_join_parts<Op>(r, s);
        if (part == 0 && k < r.outputs) Op::give(s, y + segment * r.outputs + k);
    }
}

template <typename Op, typename From, typename To>
static void dra_reduce_launch(const dra_call *c, const dra_reduction &r, To *y)
{
    const unsigned grid = dra_grid(c, r.blocks * r.segments, 1);
    if (r.outer.rank == 0)
        DRA_LAUNCH(c, (dra_reduce_kernel<Op, From, To, true>), grid, DRA_THREADS, 0, r, y);
    else
        DRA_LAUNCH(c, (dra_reduce_kernel<Op, From, To, false>), grid, DRA_THREADS, 0, r, y);
}

/* Reduces x over these axes into y, dense. */
template <typename Op, typename From, typename To>
static void dra_reduce_tensor(const dra_call *c, const dra_tensor *x, uint32_t axes, void *scratch,
                              To *y)
{
    typedef typename Op::state state;
    const dra_reduction        r = dra_reduction_of(x, axes);
    if (r.segments == 1) {
        dra_reduce_launch<Op, From, To>(c, r, y);
        return;
    }
    dra_reduce_launch<Op, From, state>(c, r, static_cast<state *>(scratch));
    const dra_reduction last = dra_reduction_join(&r, scratch);
    DRA_LAUNCH(c, (dra_reduce_kernel<Op, state, To, true>), dra_grid(c, last.blocks, 1),
               DRA_THREADS, 0, last, y);
}

/* Reduces input 0 over these axes into output 0. */
template <typename Op, typename From, typename To>
static void dra_reduce(const dra_call *c, uint32_t axes)
{
    dra_reduce_tensor<Op, From, To>(c, &c->in[0], axes, c->scratch,
                                    static_cast<To *>(c->out[0].data));
}

#endif
