/* sum, sum_squares, max and logsumexp over any set of axes, see reduce.cuh. */
#include "ops/reduce/reduce.cuh"
#include "device/cuda/stored.cuh"

struct dra_bf16_bits {
    uint16_t bits;
};

/* ---- sums ------------------------------------------------------------------------------------ */

/* Reals are added in double: the GPU waits for memory anyway. Integers wrap. */
template <typename T, typename Result> struct sum_of {
    struct state {
        T sum;
    };
    static __device__ state none() { return {0}; }
    static __device__ void  take(state &s, float x, int64_t) { s.sum += x; }
    static __device__ void  take(state &s, uint32_t x, int64_t) { s.sum += x; }
    static __device__ void  take(state &s, uint8_t x, int64_t) { s.sum += x != 0; }
    static __device__ void  take(state &s, dra_bf16_bits x, int64_t)
    {
        s.sum += (T)dra_widen_bf16(x.bits);
    }
    static __device__ void  take(state &s, state x, int64_t) { s.sum += x.sum; }
    static __device__ state join(state a, state b) { return {a.sum + b.sum}; }
    static __device__ void  give(state s, Result *y) { *y = (Result)s.sum; }
    static __device__ void  give(state s, state *y) { *y = s; }
};

typedef sum_of<double, float>      sum_reals;
typedef sum_of<uint32_t, uint32_t> sum_integers;

struct sum_squares : sum_reals {
    static __device__ void take(state &s, float x, int64_t) { s.sum += (double)x * x; }
    static __device__ void take(state &s, state x, int64_t) { s.sum += x.sum; }
};

static uint32_t axes_of(const dra_call *c)
{
    return static_cast<const dra_reduce_attr *>(c->attr)->axes;
}

/* ---- sums over rows, as the gradient of a bias ----------------------------------------------- */

/* (rows, columns) with adjacent columns, stored in f32 or bf16: a warp takes 16 bytes a thread of a
 * row, the warps of a block share the rows of a segment. Four rows are added in float, fours in
 * double. */
struct row_sums {
    const void *x;
    int64_t     rows, columns, line; /* line: from row to row */
    int64_t     blocks, segment, segments;
    double     *sums; /* (segments, columns) */
};

enum { WARPS = DRA_THREADS / 32, ROWS = 4, SEGMENT = 16 * WARPS };

/* columns 0: not such a sum. */
static row_sums row_sums_of(const dra_call *c)
{
    const dra_tensor   *x = &c->in[0];
    const dra_reduction r = dra_reduction_of(x, axes_of(c));
    const int64_t       some = 16 / (int64_t)dra_dtype_bytes(x->dtype);
    row_sums            s = {};
    if ((x->dtype != DRA_F32 && x->dtype != DRA_BF16) || r.outer.rank || r.kept.rank > 1 ||
        dra_inner_stride(&r.kept) != 1 || r.outputs < some || r.outputs % some || r.step % some ||
        r.step < r.outputs || r.elements < 2 * WARPS)
        return s;
    s.x = x->data;
    s.rows = r.elements, s.columns = r.outputs, s.line = r.step;
    s.blocks = dra_div_up(s.columns, 32 * some);
    const int64_t wanted = dra_div_up((int64_t)DRA_REDUCE_BLOCKS, s.blocks);
    s.segment = dra_imax(SEGMENT, dra_div_up(s.rows, wanted));
    s.segments = dra_div_up(s.rows, s.segment);
    s.sums = static_cast<double *>(c->scratch);
    return s;
}

static size_t row_sums_bytes(const row_sums *s)
{
    return (size_t)(s->segments * s->columns) * sizeof(double);
}

template <typename From>
__device__ static void load_row(const row_sums &s, int64_t row, int64_t column, float *v)
{
    From::widen_some(From::fetch(s.x, DRA_F32, row * s.line + column, 1, From::SOME, true), v);
}

/* Rows begin, begin + WARPS, ... before end, of SOME columns. */
template <typename From>
__device__ static void add_rows(const row_sums &s, int64_t begin, int64_t end, int64_t column,
                                double *sum)
{
    int64_t row = begin;
    for (; row + (ROWS - 1) * WARPS < end; row += ROWS * WARPS) {
        float v[ROWS][From::SOME];
        DRA_UNROLL
        for (int k = 0; k < ROWS; k++) load_row<From>(s, row + k * WARPS, column, v[k]);
        DRA_UNROLL
        for (int j = 0; j < From::SOME; j++)
            sum[j] += (double)((v[0][j] + v[1][j]) + (v[2][j] + v[3][j]));
    }
    for (; row < end; row += WARPS) {
        float v[From::SOME];
        load_row<From>(s, row, column, v);
        DRA_UNROLL
        for (int j = 0; j < From::SOME; j++) sum[j] += (double)v[j];
    }
}

template <typename From> __global__ static void sum_rows_kernel(const row_sums s)
{
    enum { WIDE = 32 * From::SOME }; /* columns of a block */
    __shared__ double part[WARPS][WIDE];
    const int         warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int64_t item = blockIdx.x; item < s.blocks * s.segments; item += gridDim.x) {
        const int64_t segment = item / s.blocks, first = (item - segment * s.blocks) * WIDE;
        const int64_t begin = segment * s.segment, end = dra_imin(s.rows, begin + s.segment);
        double        sum[From::SOME] = {};
        if (first + lane * From::SOME < s.columns)
            add_rows<From>(s, begin + warp, end, first + lane * From::SOME, sum);
        __syncthreads(); /* part may still be read from before */
        for (int j = 0; j < From::SOME; j++) part[warp][lane * From::SOME + j] = sum[j];
        __syncthreads();
        for (int i = (int)threadIdx.x; i < WIDE && first + i < s.columns; i += DRA_THREADS) {
            double all = 0;
            for (int k = 0; k < WARPS; k++) all += part[k][i];
            s.sums[segment * s.columns + first + i] = all;
        }
    }
}

static void launch_row_sums(const dra_call *c, const row_sums &s)
{
    const unsigned grid = dra_grid(c, s.blocks * s.segments, 1);
    dra_reduction  first = {};
    if (c->in[0].dtype == DRA_BF16)
        DRA_LAUNCH(c, sum_rows_kernel<dra_stored_bf16>, grid, DRA_THREADS, 0, s);
    else
        DRA_LAUNCH(c, sum_rows_kernel<dra_stored_f32>, grid, DRA_THREADS, 0, s);
    first.outputs = s.columns, first.segments = s.segments;
    const dra_reduction last = dra_reduction_join(&first, s.sums);
    dra_reduce_launch<sum_reals, sum_reals::state, float>(c, last,
                                                          static_cast<float *>(c->out[0].data));
}

static size_t sum_scratch(const dra_call *c)
{
    const row_sums      s = row_sums_of(c);
    const dra_reduction r = dra_reduction_of(&c->in[0], axes_of(c));
    const size_t        own = row_sums_bytes(&s), other = dra_reduction_scratch(&r, 8);
    return own > other ? own : other;
}

static uint32_t accepts_rows(const dra_call *c)
{
    const int64_t columns = row_sums_of(c).columns;
    return columns && columns % 8 == 0;
}

static void sum_launch(const dra_call *c)
{
    const dra_dtype dtype = c->in[0].dtype;
    const row_sums  rows = row_sums_of(c);
    if (rows.columns && (uintptr_t)rows.x % 16 == 0)
        launch_row_sums(c, rows);
    else if (dtype == DRA_BF16)
        dra_reduce<sum_reals, dra_bf16_bits, float>(c, axes_of(c));
    else if (dtype == DRA_F32)
        dra_reduce<sum_reals, float, float>(c, axes_of(c));
    else if (dtype == DRA_I32)
        dra_reduce<sum_integers, uint32_t, uint32_t>(c, axes_of(c));
    else
        dra_reduce<sum_integers, uint8_t, uint32_t>(c, axes_of(c));
}

static void sum_squares_launch(const dra_call *c)
{
    dra_reduce<sum_squares, float, float>(c, axes_of(c));
}

/* ---- max and logsumexp ----------------------------------------------------------------------- */

struct max_of {
    struct state {
        float max;
    };
    static __device__ state none() { return {-INFINITY}; }
    static __device__ void  take(state &s, float x, int64_t)
    {
        s.max = dra_join_max::join(s.max, x);
    }
    static __device__ void  take(state &s, state x, int64_t) { s = join(s, x); }
    static __device__ state join(state a, state b) { return {dra_join_max::join(a.max, b.max)}; }
    static __device__ void  give(state s, float *y) { *y = s.max; }
    static __device__ void  give(state s, state *y) { *y = s; }
};

static void max_launch(const dra_call *c) { dra_reduce<max_of, float, float>(c, axes_of(c)); }

/* sum = sum e^(x - max), in one pass. Where max is infinite or NaN it is the result, whatever the
 * sum is. */
struct logsumexp_of {
    struct state {
        float max, sum;
    };
    static __device__ state none() { return {-INFINITY, 0}; }
    static __device__ void  take(state &s, float x, int64_t)
    {
        if (x == -INFINITY) return;
        const float e = expf(-fabsf(x - s.max));
        s.sum = x > s.max ? s.sum * e + 1 : s.sum + e;
        s.max = dra_join_max::join(s.max, x);
    }
    static __device__ void  take(state &s, state x, int64_t) { s = join(s, x); }
    static __device__ state join(state a, state b)
    {
        const float max = dra_join_max::join(a.max, b.max);
        if (fabsf(max) == INFINITY) return {max, 0};
        return {max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
    }
    static __device__ void give(state s, float *y)
    {
        *y = fabsf(s.max) == INFINITY ? s.max : s.max + logf(s.sum);
    }
    static __device__ void give(state s, state *y) { *y = s; }
};

static void logsumexp_launch(const dra_call *c)
{
    dra_reduce<logsumexp_of, float, float>(c, axes_of(c));
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static size_t scratch(const dra_call *c) /* states have up to 8 bytes */
{
    const dra_reduction r = dra_reduction_of(&c->in[0], axes_of(c));
    return dra_reduction_scratch(&r, 8);
}

const dra_cuda_kernel dra_cuda_sum = {
    {"sum", DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL) | DRA_BIT(DRA_BF16), DRA_LAYOUT_ANY, 0,
     false, sum_scratch, nullptr, nullptr, nullptr, false, accepts_rows},
    sum_launch,
    false};

const dra_cuda_kernel dra_cuda_sum_squares = {
    {"sum_squares", DRA_REALS, DRA_LAYOUT_ANY, 0, false, scratch, nullptr},
    sum_squares_launch,
    false};

const dra_cuda_kernel dra_cuda_max = {
    {"max", DRA_REALS, DRA_LAYOUT_ANY, 0, false, scratch, nullptr}, max_launch, false};

const dra_cuda_kernel dra_cuda_logsumexp = {
    {"logsumexp", DRA_REALS, DRA_LAYOUT_ANY, 0, false, scratch, nullptr}, logsumexp_launch, false};
