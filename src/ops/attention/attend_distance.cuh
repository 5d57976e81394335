/* The gradient of biases by distance: where the gradients ds of a tile of logits go.
 *   ddistance_hn = sum of ds_tj at distance n
 * A block of threads has a sum (N) of its own in memory, in double: a column at the end of the
 * table may take in millions. */
#ifndef DRA_SRC_OPS_ATTENTION_ATTEND_DISTANCE_CUH
#define DRA_SRC_OPS_ATTENTION_ATTEND_DISTANCE_CUH

#include "ops/attention/attend_tile.cuh"

/* True where positions count up by one, so that a diagonal of the tile is one distance. */
template <int ROWS>
__device__ static inline bool
dra_attend_counts_up(const dra_attend_call &a, const dra_attend_query *q, const int *k_pos, int j0)
{
    bool up = true;
    for (int r = 0; r < ROWS; r++) up = up && (q[r].t < 0 || q[r].q_pos == (int64_t)q[0].q_pos + r);
    for (int c = 0; c < DRA_ATTEND_COLS; c++)
        up = up && (j0 + c >= a.J || k_pos[c] == (int64_t)k_pos[0] + c);
    return up;
}

/* sum (N) += ds (ROWS, COLS) by diagonals, of which several may share the first and last column. */
template <int ROWS>
__device__ static inline void dra_attend_add_diagonals(const dra_attend_call &a, int64_t distance,
                                                       const float *ds, double *sum)
{
    enum { LAST = ROWS + DRA_ATTEND_COLS - 2 };
    __shared__ float diagonal[LAST + 1];
    for (int i = (int)threadIdx.x; i <= LAST; i += DRA_ATTEND_THREADS) {
        diagonal[i] = 0;
        for (int r = 0; r < ROWS; r++) {
            const int c = r - i + DRA_ATTEND_COLS - 1;
            if (c >= 0 && c < DRA_ATTEND_COLS) diagonal[i] += ds[r * DRA_ATTEND_P_STEP + c];
        }
    }
    __syncthreads();
    const int64_t first = distance + a.zero - (DRA_ATTEND_COLS - 1),
                  N = a.N; /* column of diagonal 0 */
    const int64_t lo = dra_imax(0, dra_imin(first, N - 1));
    const int64_t hi = dra_imax(0, dra_imin(first + LAST, N - 1));
    for (int64_t n = lo + threadIdx.x; n <= hi; n += DRA_ATTEND_THREADS) {
        const int64_t from = n == 0 ? 0 : dra_imax(0, n - first);
        const int64_t to = n == N - 1 ? (int64_t)LAST : dra_imin(LAST, n - first);
        for (int64_t i = from; i <= to; i++) sum[n] += diagonal[i];
    }
}

/* The same for positions of any kind: a thread has every THREADS-th column. */
template <int ROWS>
__device__ static inline void dra_attend_add_columns(const dra_attend_call  &a,
                                                     const dra_attend_query *q, const int *k_pos,
                                                     const float *ds, double *sum)
{
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < DRA_ATTEND_COLS; c++) {
            const int n = dra_attend_column(a, q[r].q_pos, k_pos[c]);
            if (n % DRA_ATTEND_THREADS == (int)threadIdx.x) sum[n] += ds[r * DRA_ATTEND_P_STEP + c];
        }
}

template <int ROWS>
__device__ static inline void dra_attend_add_distances(const dra_attend_call  &a,
                                                       const dra_attend_query *q, const int *k_pos,
                                                       int j0, const float *ds, double *sum)
{
    __syncthreads(); /* ds is there */
    if (dra_attend_counts_up<ROWS>(a, q, k_pos, j0))
        dra_attend_add_diagonals<ROWS>(a, (int64_t)q[0].q_pos - k_pos[0], ds, sum);
    else
        dra_attend_add_columns<ROWS>(a, q, k_pos, ds, sum);
    __syncthreads();
}

#endif
