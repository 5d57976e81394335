/* Products of small bf16 tiles by a warp, with f32 sums: the tensor cores' mma.sync, compute
 * capability 8.0 and up. On the host the lanes of a warp show each other their fragments, so that
 * tests meet the same layout.
 *
 * With g = lane / 4 and t = lane % 4, a lane holds, two numbers to a word, low half first,
 *   a (16, 16): rows g and g+8, columns 2t, 2t+1: a[0], a[1]; the same columns + 8: a[2], a[3]
 *   b (16, 8):  column g, rows 2t, 2t+1: b[0]; the same rows + 8: b[1]
 *   c (16, 8):  row g, columns 2t, 2t+1: c[0], c[1]; row g+8: c[2], c[3], all f32 */
#ifndef DRA_SRC_OPS_ATTENTION_MMA_CUH
#define DRA_SRC_OPS_ATTENTION_MMA_CUH

#include "device/cuda/rows.cuh"

__device__ static inline int dra_mma_g(void) { return (int)threadIdx.x % 32 / 4; }
__device__ static inline int dra_mma_t(void) { return (int)threadIdx.x % 4; }

#ifdef __CUDACC__

__device__ static inline uint32_t dra_pack_bf16(float low, float high)
{
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

/* c += a b */
__device__ static inline void dra_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8 x 8 matrices from shared memory: `row` of lane i is row i % 8 of matrix i / 8, on 16
 * bytes. Word m of a lane is columns 2t, 2t+1 of row g of matrix m. */
__device__ static inline void dra_mma_load(uint32_t r[4], const uint16_t *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row)));
}

/* The same transposed: rows 2t, 2t+1 of column g. */
__device__ static inline void dra_mma_load_turned(uint32_t r[4], const uint16_t *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row)));
}

/* Copies 16 bytes to shared memory, or zeros; the thread goes on meanwhile, see dra_mma_wait(). */
__device__ static inline void dra_mma_copy(uint16_t *to, const uint16_t *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

/* All copies that this thread began are done. */
__device__ static inline void dra_mma_wait(void)
{
    asm volatile("cp.async.wait_all;" : : : "memory");
}

#else

static inline void dra_mma_copy(uint16_t *to, const uint16_t *from, bool there)
{
    there ? memcpy(to, from, 16) : memset(to, 0, 16);
}
static inline void dra_mma_wait(void) {}

static inline uint32_t dra_pack_bf16(float low, float high)
{
    return (uint32_t)dra_round_bf16(high) << 16 | dra_round_bf16(low);
}

struct dra_mma_lane { /* what a lane shows the others */
    uint32_t        a[4], b[2];
    const uint16_t *row;
};

static inline dra_mma_lane *dra_mma_warp(void)
{
    static dra_mma_lane lanes[1024];
    return lanes + threadIdx.x / 32 * 32;
}

static inline float dra_mma_part(uint32_t word, int high)
{
    return dra_widen_bf16((uint16_t)(high ? word >> 16 : word));
}

static inline void dra_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    dra_mma_lane *w = dra_mma_warp(), *own = w + threadIdx.x % 32;
    memcpy(own->a, a, sizeof own->a);
    memcpy(own->b, b, sizeof own->b);
    __syncwarp();
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++) {
            const dra_mma_lane *row = w + dra_mma_g() * 4 + k % 8 / 2;
            const dra_mma_lane *column = w + (2 * dra_mma_t() + i % 2) * 4 + k % 8 / 2;
            c[i] += dra_mma_part(row->a[i / 2 + k / 8 * 2], k % 2) *
                    dra_mma_part(column->b[k / 8], k % 2);
        }
    __syncwarp();
}

static inline void dra_mma_load(uint32_t r[4], const uint16_t *row)
{
    dra_mma_lane *w = dra_mma_warp();
    w[threadIdx.x % 32].row = row;
    __syncwarp();
    for (int m = 0; m < 4; m++) {
        const uint16_t *at = w[8 * m + dra_mma_g()].row + 2 * dra_mma_t();
        r[m] = at[0] | (uint32_t)at[1] << 16;
    }
    __syncwarp();
}

static inline void dra_mma_load_turned(uint32_t r[4], const uint16_t *row)
{
    dra_mma_lane *w = dra_mma_warp();
    w[threadIdx.x % 32].row = row;
    __syncwarp();
    for (int m = 0; m < 4; m++) {
        const dra_mma_lane *two = w + 8 * m + 2 * dra_mma_t();
        r[m] = two[0].row[dra_mma_g()] | (uint32_t)two[1].row[dra_mma_g()] << 16;
    }
    __syncwarp();
}

#endif

/* ---- tiles made of these --------------------------------------------------------------------- */

/* Rows of W numbers in shared memory have 8 more, so that 8 neighbours fall into all banks. */
template <int W> struct dra_mma_row {
    enum { STEP = W + 8 };
};

/* Where rows of W numbers come from: there(r) or zeros; halves(r), if they are stored in bf16, on
 * 16 bytes; floats(r), `step` apart, or adjacent and on 16 bytes: by_four. */

/* Numbers c and c+1 of row r, two to a word. */
template <typename Source>
__device__ static inline uint32_t dra_mma_pair(const Source &s, int r, int c)
{
    if (!s.there(r)) return 0;
    if (s.bf16) return *reinterpret_cast<const uint32_t *>(s.halves(r) + c);
    const float *x = s.floats(r);
    if (!s.by_four) return dra_pack_bf16(x[c * s.step], x[(c + 1) * s.step]);
    const float2 two = *reinterpret_cast<const float2 *>(x + c);
    return dra_pack_bf16(two.x, two.y);
}

/* Fragments a of 16 rows of the warp: 16 x W. */
template <int W, typename Source>
__device__ static inline void dra_mma_rows(uint32_t (&a)[W / 16][4], const Source &s)
{
    DRA_UNROLL
    for (int k = 0; k < W / 16; k++) {
        DRA_UNROLL
        for (int i = 0; i < 4; i++)
            a[k][i] = dra_mma_pair(s, dra_mma_g() + i % 2 * 8,
                                   16 * k + i / 2 * 8 + 2 * dra_mma_t());
    }
}

/* Columns that a thread moves at a time: 16 bytes of bf16. */
enum { DRA_MMA_SOME = 8 };

/* to (N, W) = N rows that are stored in bf16. A thread keeps its columns. */
template <int N, int W, int THREADS, typename Source>
__device__ static inline void dra_mma_copy_rows(uint16_t *to, const Source &s)
{
    enum { LINE = W / DRA_MMA_SOME, ROWS = THREADS / LINE }; /* threads of a row, rows at a time */
    const int r0 = (int)threadIdx.x / LINE, c = (int)threadIdx.x % LINE * DRA_MMA_SOME;
    to += r0 * dra_mma_row<W>::STEP + c;
    DRA_UNROLL
    for (int r = 0; r < N; r += ROWS) {
        const bool there = s.there(r0 + r);
        dra_mma_copy(to + r * dra_mma_row<W>::STEP, s.halves(there ? r0 + r : 0) + c, there);
    }
}

/* The same of floats. */
template <int N, int W, int THREADS, typename Source>
__device__ static inline void dra_mma_round_rows(uint16_t *to, const Source &s)
{
    DRA_UNROLL_BY(1)
    for (int i = (int)threadIdx.x; i < N * (W / DRA_MMA_SOME); i += THREADS) {
        const int r = i / (W / DRA_MMA_SOME), c = i % (W / DRA_MMA_SOME) * DRA_MMA_SOME;
        uint16_t *at = to + r * dra_mma_row<W>::STEP + c;
        DRA_UNROLL
        for (int k = 0; k < DRA_MMA_SOME; k += 4) {
            uint2 x = make_uint2(0, 0);
            if (s.there(r) && s.by_four) {
                const float4 v = *reinterpret_cast<const float4 *>(s.floats(r) + c + k);
                x = make_uint2(dra_pack_bf16(v.x, v.y), dra_pack_bf16(v.z, v.w));
            } else if (s.there(r)) {
                x = make_uint2(dra_mma_pair(s, r, c + k), dra_mma_pair(s, r, c + k + 2));
            }
            *reinterpret_cast<uint2 *>(at + k) = x;
        }
    }
}

/* Either. What is stored in bf16 is copied while the threads go on, until dra_mma_wait() and a
 * __syncthreads(); the rest is there after the latter. A block of THREADS. */
template <int N, int W, int THREADS, typename Source>
__device__ static inline void dra_mma_fill(uint16_t *to, const Source &s)
{
    if (s.bf16)
        dra_mma_copy_rows<N, W, THREADS>(to, s);
    else
        dra_mma_round_rows<N, W, THREADS>(to, s);
}

/* s (16, 8 N) += a (16, W) x^T, x: 8 N rows of W in shared memory. */
template <int M, int N, int W>
__device__ static inline void dra_mma_dots(float (&s)[M][N][4], const uint32_t (&a)[M][W / 16][4],
                                           const uint16_t *x)
{
    const int lane = (int)threadIdx.x % 32;
    x += (lane / 16 * 8 + lane % 8) * dra_mma_row<W>::STEP + lane / 8 % 2 * 8;
    DRA_UNROLL
    for (int k = 0; k < W / 16; k++) {
        DRA_UNROLL
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            dra_mma_load(b, x + n * 8 * dra_mma_row<W>::STEP + k * 16);
            DRA_UNROLL
            for (int m = 0; m < M; m++) {
                dra_mma_bf16(s[m][n], a[m][k], b);
                dra_mma_bf16(s[m][n + 1], a[m][k], b + 2);
            }
        }
    }
}

/* y (16, W) += a (16, 16 K) x, x: 16 K rows of W in shared memory. */
template <int M, int K, int W>
__device__ static inline void dra_mma_times(float (&y)[M][W / 8][4], const uint32_t (&a)[M][K][4],
                                            const uint16_t *x)
{
    const int lane = (int)threadIdx.x % 32;
    x += lane % 16 * dra_mma_row<W>::STEP + lane / 16 * 8;
    DRA_UNROLL
    for (int k = 0; k < K; k++) {
        DRA_UNROLL
        for (int n = 0; n < W / 8; n += 2) {
            uint32_t b[4];
            dra_mma_load_turned(b, x + k * 16 * dra_mma_row<W>::STEP + n * 8);
            DRA_UNROLL
            for (int m = 0; m < M; m++) {
                dra_mma_bf16(y[m][n], a[m][k], b);
                dra_mma_bf16(y[m][n + 1], a[m][k], b + 2);
            }
        }
    }
}

/* Fragments a of what is held as c: the lanes have the right numbers already. */
template <int M, int K>
__device__ static inline void dra_mma_turn(uint32_t (&a)[M][K][4], const float (&c)[M][2 * K][4])
{
    DRA_UNROLL
    for (int m = 0; m < M; m++) {
        DRA_UNROLL
        for (int k = 0; k < K; k++) {
            a[m][k][0] = dra_pack_bf16(c[m][2 * k][0], c[m][2 * k][1]);
            a[m][k][1] = dra_pack_bf16(c[m][2 * k][2], c[m][2 * k][3]);
            a[m][k][2] = dra_pack_bf16(c[m][2 * k + 1][0], c[m][2 * k + 1][1]);
            a[m][k][3] = dra_pack_bf16(c[m][2 * k + 1][2], c[m][2 * k + 1][3]);
        }
    }
}

#endif
