/* What attention by tensor cores shares, forward and backward. */
#ifndef DRA_SRC_CUDA_ATTEND_MMA_H
#define DRA_SRC_CUDA_ATTEND_MMA_H

#include "cuda/attend.h"
#include "cuda/mma.h"

/* Warps of a block, and keys or queries that it goes through at a time. On the host few, so that
 * the small tensors of tests have several tiles. */
#ifdef __CUDACC__
enum { DRA_ATTEND_WARPS = 4, DRA_ATTEND_KEYS = 64 };
#else
enum { DRA_ATTEND_WARPS = 1, DRA_ATTEND_KEYS = 32 };
#endif

#define DRA_LN2 0.693147180559945309f

/* Queries t0 .. t0 + N-1 of a head. */
template <int N>
__device__ static inline void dra_attend_open_queries(const dra_attend_call &a, int b, int h,
                                                      int t0, dra_attend_query *q)
{
    for (int r = (int)threadIdx.x; r < N; r += 32 * DRA_ATTEND_WARPS)
        q[r] = dra_attend_query_at(a, b, h, t0 + r < a.T ? t0 + r : -1);
}

#endif
