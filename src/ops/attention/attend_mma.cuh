/* What attention by tensor cores shares, forward and backward. */
#ifndef DRA_SRC_OPS_ATTENTION_ATTEND_MMA_CUH
#define DRA_SRC_OPS_ATTENTION_ATTEND_MMA_CUH

#include "ops/attention/attend.cuh"
#include "ops/attention/mma.cuh"

/* Warps of a block, and keys or queries that it goes through at a time. On the host few, so that
 * the small tensors of tests have several tiles. */
#ifdef __CUDACC__
enum { DRA_ATTEND_WARPS = 4, DRA_ATTEND_KEYS = 64 };
#else
enum { DRA_ATTEND_WARPS = 1, DRA_ATTEND_KEYS = 32 };
#endif

#define DRA_LN2 0.693147180559945309f

/* Rows of a tensor as a source of fragments (mma.cuh): stored in bf16, in floats that can be read
 * four at a time, or in any floats. */
struct dra_attend_source {
    dra_attend_rows rows;
    bool            bf16, by_four;
    int64_t         step; /* between neighbours of a row */

    __device__ bool there(int r) const
    {
        const int i = rows.first + r;
        return rows.from <= i && i < rows.to;
    }
    __device__ const uint16_t *halves(int r) const
    {
        return static_cast<const uint16_t *>(rows.start) + rows.offset(r);
    }
    __device__ const float *floats(int r) const
    {
        return static_cast<const float *>(rows.start) + rows.offset(r);
    }
};

__device__ static inline dra_attend_source
dra_attend_source_of(const dra_attend_tensor &x, bool by_four, int b, int h, int to, int from = 0)
{
    return {dra_attend_rows_of(x, b, h, to, from), x.bf16, by_four, x.stride[3]};
}

/* The same of keys and values, which may be in pages. */
__device__ static inline dra_attend_source dra_attend_key_source(const dra_attend_call   &a,
                                                                 const dra_attend_tensor &x,
                                                                 bool by_four, int b, int h, int to,
                                                                 int from)
{
    return {dra_attend_keys_of(a, x, b, h, to, from, 0), x.bf16, by_four, x.stride[3]};
}

/* Queries t0 .. t0 + N-1 of a head. */
template <int N>
__device__ static inline void dra_attend_open_queries(const dra_attend_call &a, int b, int h,
                                                      int t0, dra_attend_query *q)
{
    for (int r = (int)threadIdx.x; r < N; r += 32 * DRA_ATTEND_WARPS)
        q[r] = dra_attend_query_at(a, b, h, t0 + r < a.T ? t0 + r : -1);
}

#endif
