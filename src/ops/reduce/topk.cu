/* topk_threshold: the k-th largest value of each row, see topk.c.
 *
 * Floats are compared as unsigned numbers in the same order, and the bits of the result are found
 * from the highest down: the largest number that at least k elements reach. Of a short row, which a
 * warp holds in registers, a bit at a time; of a long one, which a block reads again from the
 * cache, DIGIT bits at a time by counting how many elements have each digit. */
#include "device/cuda/rows.cuh"

enum { DIGIT = 11, DIGITS = 1 << DIGIT };

#ifdef __CUDACC__
enum { BLOCK = 1024, HELD = 16, AHEAD = 8 };
#else
enum { BLOCK = 64, HELD = 4, AHEAD = 2 };
#endif

struct topk_call {
    dra_rows_view x;
    float        *y;
    int64_t       rows, k;
};

/* NaN above all; -0 is 0. */
__device__ static uint32_t ordered(float x)
{
    const uint32_t bits = __float_as_uint(x + 0.0f);
    if (x != x) return ~0u;
    return bits >> 31 ? ~bits : bits | 1u << 31;
}

__device__ static float value_of(uint32_t order)
{
    return __uint_as_float(order >> 31 ? order & ~(1u << 31) : ~order);
}

/* ---- a warp for each row of at most 32 HELD elements ----------------------------------------- */

__global__ static void short_kernel(const topk_call a)
{
    const int lane = (int)threadIdx.x % 32;
    DRA_EACH_ROW(dra_warp_team, r, a.rows)
    {
        const float *x = dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r);
        uint32_t     held[HELD], found = 0;
        DRA_UNROLL
        for (int i = 0; i < HELD; i++) {
            const int64_t at = lane + 32 * i;
            held[i] = at < a.x.length ? ordered(x[at * a.x.step]) : 0; /* no number is below */
        }
        for (int bit = 31; bit >= 0; bit--) {
            const uint32_t next = found | 1u << bit;
            int            reach = 0;
            DRA_UNROLL
            for (int i = 0; i < HELD; i++) reach += __popc(__ballot_sync(~0u, held[i] >= next));
            if (reach >= a.k) found = next;
        }
        if (lane == 0) a.y[r] = value_of(found);
    }
}

/* ---- a block for each longer row ------------------------------------------------------------- */

/* Of a row's elements that begin with the bits of `found` above `from`, how many have each digit:
 * the `bits` below. */
__device__ static void count_digits(const topk_call &a, const float *x, uint32_t found, int from,
                                    int bits, int *count)
{
    for (int i = (int)threadIdx.x; i < DIGITS; i += BLOCK) count[i] = 0;
    __syncthreads();
    for (int64_t first = threadIdx.x; first < a.x.length; first += AHEAD * BLOCK) {
        float held[AHEAD]; /* all are on their way before the first is waited for */
        DRA_UNROLL
        for (int i = 0; i < AHEAD; i++)
            held[i] = x[dra_imin(first + i * BLOCK, a.x.length - 1) * a.x.step];
        DRA_UNROLL
        for (int i = 0; i < AHEAD; i++) {
            const uint32_t order = ordered(held[i]);
            const bool     chosen = from == 32 || order >> from == found >> from;
            if (chosen && first + i * BLOCK < a.x.length)
                atomicAdd(&count[order >> (from - bits) & ((1u << bits) - 1)], 1);
        }
    }
    __syncthreads();
}

/* The largest digit that, with all above it, at least *k elements have; *k becomes how many are
 * still wanted among those with just this digit. Every thread of the block gets both. */
__device__ static uint32_t choose_digit(const int *count, int64_t *k)
{
    __shared__ uint32_t digit;
    __shared__ int64_t  left;
    enum { EACH = DIGITS / 32 };
    if (threadIdx.x < 32) {
        const int lane = (int)threadIdx.x, top = DIGITS - 1 - lane * EACH;
        int64_t   own = 0;
        for (int i = 0; i < EACH; i++) own += count[top - i];
        int64_t above = own; /* digits of this lane and of those before it, which are larger */
        DRA_UNROLL
        for (int by = 1; by < 32; by *= 2) {
            const int64_t before = __shfl_up_sync(~0u, above, by);
            if (lane >= by) above += before;
        }
        above -= own;
        for (int i = 0; i < EACH; i++) {
            if (above < *k && above + count[top - i] >= *k) digit = top - i, left = *k - above;
            above += count[top - i];
        }
    }
    __syncthreads();
    *k = left;
    return digit;
}

__global__ static void long_kernel(const topk_call a)
{
    __shared__ int count[DIGITS];
    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const float *x = dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r);
        uint32_t     found = 0;
        int64_t      k = a.k;
        for (int from = 32; from > 0;) {
            const int bits = from < DIGIT ? from : DIGIT;
            count_digits(a, x, found, from, bits, count);
            found |= choose_digit(count, &k) << (from - bits);
            from -= bits;
            __syncthreads(); /* all have read what was chosen */
        }
        if (threadIdx.x == 0) a.y[r] = value_of(found);
    }
}

static void launch(const dra_call *c)
{
    topk_call a = {};
    a.x = dra_rows_of(&c->in[0]);
    a.y = static_cast<float *>(c->out[0].data);
    a.rows = dra_shape_count(&c->out[0].shape);
    a.k = static_cast<const dra_topk_attr *>(c->attr)->k;
    if (a.x.length <= 32 * HELD)
        DRA_LAUNCH(c, short_kernel, dra_grid(c, a.rows, DRA_THREADS / 32), DRA_THREADS, 0, a);
    else
        DRA_LAUNCH(c, long_kernel, dra_grid(c, a.rows, 1), BLOCK, 0, a);
}

const dra_cuda_kernel dra_cuda_topk_threshold = {
    {"topk_threshold", DRA_REALS, DRA_LAYOUT_ANY, 0, false, nullptr, nullptr}, launch, false};
