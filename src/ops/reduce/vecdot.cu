/* vecdot: y_r = sum_i a_ri b_ri, see vecdot.c. A row is the work of a power of two of lanes, each
 * of which takes up to four fours of it before there are more lanes, so that finding a row costs
 * little beside reading it. Fours are added in float, all else in double. Rows may be stored in
 * bf16. */
#include "device/cuda/rows.cuh"
#include "device/cuda/stored.cuh"

struct factor {
    dra_rows_view x;
    bool          bf16;
};

struct vecdot_call {
    factor  a, b;
    float  *y;
    int64_t rows, n;
    int     lanes; /* of a row: a power of two, up to 32 */
};

enum { SOME = 4, EACH = 16 }; /* elements at a time; of a lane */

template <int W> __device__ static void load_some(const factor &f, int64_t at, float *v)
{
    if (f.bf16)
        dra_load_some<W>(dra_data<const uint16_t>(f.x.rows) + at, v);
    else
        dra_load_some<W>(dra_data<const float>(f.x.rows) + at, v);
}

/* The first n of SOME products, of a from element `a` on and b from `b`. */
template <int W>
__device__ static float dot_some(const vecdot_call &c, int64_t a, int64_t b, int64_t n)
{
    float y = 0;
    DRA_UNROLL
    for (int k = 0; k < SOME; k += W) {
        float v[W], w[W];
        if (k >= n) break;
        load_some<W>(c.a, a + k, v);
        load_some<W>(c.b, b + k, w);
        DRA_UNROLL
        for (int j = 0; j < W; j++) y += v[j] * w[j];
    }
    return y;
}

template <int W> __global__ static void vecdot_kernel(const vecdot_call c)
{
    const int     lane = (int)threadIdx.x % c.lanes, teams = (int)blockDim.x / c.lanes;
    const int64_t first = (int64_t)blockIdx.x * teams, step = (int64_t)gridDim.x * teams;
    for (int64_t begin = first; begin < c.rows; begin += step) { /* the same for the whole warp */
        const int64_t row = begin + (int)threadIdx.x / c.lanes;
        const int64_t a = row < c.rows ? dra_offset(c.a.x.rows, row) : 0;
        const int64_t b = row < c.rows ? dra_offset(c.b.x.rows, row) : 0;
        double        sum = 0;
        for (int64_t i = lane * SOME; row < c.rows && i < c.n; i += c.lanes * SOME)
            sum += (double)dot_some<W>(c, a + i, b + i, c.n - i);
        for (int by = c.lanes / 2; by; by /= 2) sum += dra_shuffle_xor(sum, by);
        if (row < c.rows && lane == 0) c.y[row] = (float)sum;
    }
}

static bool takes_fours(const dra_tensor *t)
{
    bool fit = (uintptr_t)t->data % (SOME * dra_dtype_bytes(t->dtype)) == 0 &&
               dra_last(t) % SOME == 0;
    for (int32_t i = 0; i + 1 < t->shape.rank; i++) fit = fit && t->stride[i] % SOME == 0;
    return fit;
}

static int lanes_of(int64_t n)
{
    int lanes = 1;
    while (lanes < 32 && lanes * EACH < n) lanes *= 2;
    return lanes;
}

static void launch(const dra_call *c)
{
    vecdot_call v = {};
    v.a = {dra_rows_of(&c->in[0]), c->in[0].dtype == DRA_BF16};
    v.b = {dra_rows_of(&c->in[1]), c->in[1].dtype == DRA_BF16};
    v.y = static_cast<float *>(c->out[0].data);
    v.n = dra_last(&c->in[0]);
    v.rows = dra_shape_count(&c->out[0].shape);
    v.lanes = lanes_of(v.n);
    const unsigned grid = dra_grid(c, v.rows, DRA_THREADS / v.lanes);
    if (takes_fours(&c->in[0]) && takes_fours(&c->in[1]))
        DRA_LAUNCH(c, vecdot_kernel<SOME>, grid, DRA_THREADS, 0, v);
    else
        DRA_LAUNCH(c, vecdot_kernel<1>, grid, DRA_THREADS, 0, v);
}

static uint32_t widens(const dra_call *) { return ~0u; }

const dra_cuda_kernel dra_cuda_vecdot = {{"vecdot", DRA_REALS, DRA_LAYOUT_ROWS, 0, false, nullptr,
                                          nullptr, nullptr, nullptr, false, nullptr, widens},
                                         launch,
                                         false};
