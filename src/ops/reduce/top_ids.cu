/* top_ids: the places of the k largest elements of each row, see top_ids.c. A warp has a row: it
 * looks k times for the largest element that comes after the one found before, larger ones first
 * and of equal ones the first, and then lists all down to the last one found. */
#include "device/cuda/rows.cuh"

struct top_call {
    dra_rows_view x;
    int32_t      *y;
    int64_t       rows, k;
};

struct join_largest {
    static __device__ uint64_t none() { return 0; }
    static __device__ uint64_t join(uint64_t a, uint64_t b) { return a > b ? a : b; }
};

/* Larger for what comes earlier: the number, NaN above all and -0 as 0, then the place. Neither 0
 * nor all bits. */
__device__ static uint64_t rank_of(float x, int64_t i)
{
    const uint32_t bits = __float_as_uint(x + 0.0f);
    const uint32_t order = x != x ? ~1u : bits >> 31 ? ~bits : bits | 1u << 31;
    return (uint64_t)order << 32 | (uint32_t)(~0u - (uint32_t)i);
}

__global__ static void top_kernel(const top_call a)
{
    const int lane = (int)threadIdx.x % 32;
    DRA_EACH_ROW(dra_warp_team, r, a.rows)
    {
        const float *x = dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r);
        uint64_t     last = ~(uint64_t)0;
        for (int64_t j = 0; j < a.k; j++) {
            uint64_t best = 0;
            for (int64_t i = lane; i < a.x.length; i += 32) {
                const uint64_t rank = rank_of(x[i * a.x.step], i);
                if (rank < last && rank > best) best = rank;
            }
            last = dra_warp_join_of<join_largest>(best);
        }
        int32_t *to = a.y + r * a.k;
        for (int64_t first = 0; first < a.x.length; first += 32) {
            const int64_t  i = first + lane;
            const bool     chosen = i < a.x.length && rank_of(x[i * a.x.step], i) >= last;
            const unsigned all = __ballot_sync(~0u, chosen);
            if (chosen) to[__popc(all & ((1u << lane) - 1))] = (int32_t)i;
            to += __popc(all);
        }
    }
}

static void launch(const dra_call *c)
{
    top_call a = {};
    a.x = dra_rows_of(&c->in[0]);
    a.y = static_cast<int32_t *>(c->out[0].data);
    a.k = static_cast<const dra_topk_attr *>(c->attr)->k;
    a.rows = dra_shape_count(&c->out[0].shape) / a.k;
    DRA_LAUNCH(c, top_kernel, dra_grid(c, a.rows, DRA_THREADS / 32), DRA_THREADS, 0, a);
}

const dra_cuda_kernel dra_cuda_top_ids = {
    {"top_ids", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ANY, 0, false, nullptr, nullptr},
    launch,
    false};
