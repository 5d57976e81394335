/* attend by tensor cores, in bf16 precision: q, k, v and the weights are rounded to bf16, sums and
 * the softmax are f32. Formulas in attend_tiled.c.
 *
 * A warp has 16 M queries, whose q, y, m and l stay in its registers; a block of warps goes through
 * the blocks of keys that its queries see. Scores come out of the product as lanes need them for
 * the next one. [Dao 2023: FlashAttention-2] Blocks of keys start at multiples of their size, so
 * the bits of a query's result do not depend on its neighbours. */
#include "ops/attention/attend_mma.cuh"

enum { WARPS = DRA_ATTEND_WARPS, THREADS = 32 * WARPS, KEYS = DRA_ATTEND_KEYS };

/* Queries of a warp in units of 16: as many as there are registers for. */
template <int W> struct shape {
    enum { M = W == 64 ? 2 : 1, ROWS = 16 * M * WARPS };
};

struct outputs {
    float *y, *lse;
};

/* s of keys that a query does not see becomes -inf; q: the queries of the warp, key: of n = 0. */
template <int M>
__device__ static void hide(const dra_attend_query *q, int key, float (&s)[M][KEYS / 8][4])
{
    DRA_UNROLL
    for (int m = 0; m < M; m++) {
        DRA_UNROLL
        for (int i = 0; i < 4; i++) {
            const dra_attend_query own = q[16 * m + dra_mma_g() + i / 2 * 8];
            const int              j = key + 2 * dra_mma_t() + i % 2;
            DRA_UNROLL
            for (int n = 0; n < KEYS / 8; n++)
                s[m][n][i] = (own.lo <= j + 8 * n) & (j + 8 * n < own.hi) ? s[m][n][i] : -INFINITY;
        }
    }
}

/* The largest score so far m, the lane's part of the sum l of 2^(c (s - m)), and y in units of 2^(c
 * m), of rows g and g+8 of each unit; c = scale / ln 2. */
template <int M, int W> struct sums {
    float m[M][2], l[M][2], y[M][W / 8][4];

    __device__ void clear()
    {
        DRA_UNROLL
        for (int i = 0; i < M; i++) {
            m[i][0] = m[i][1] = -INFINITY;
            l[i][0] = l[i][1] = 0;
            DRA_UNROLL
            for (int n = 0; n < W / 8; n++) {
                DRA_UNROLL
                for (int k = 0; k < 4; k++) y[i][n][k] = 0;
            }
        }
    }

    /* s becomes the weights of row `half` of unit i. */
    __device__ void take(float c, int i, int half, float (&s)[M][KEYS / 8][4])
    {
        float top = m[i][half];
        DRA_UNROLL
        for (int n = 0; n < KEYS / 8; n++)
            top = fmaxf(top, fmaxf(s[i][n][2 * half], s[i][n][2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        const float shift = top == -INFINITY ? 0 : c * top; /* -inf: nothing is seen yet */
        const float fade = dra_fast_exp2(fmaf(c, m[i][half], -shift));
        float       sum = 0;
        DRA_UNROLL
        for (int n = 0; n < KEYS / 8; n++) {
            DRA_UNROLL
            for (int k = 2 * half; k < 2 * half + 2; k++)
                sum += s[i][n][k] = dra_fast_exp2(fmaf(c, s[i][n][k], -shift));
        }
        DRA_UNROLL
        for (int n = 0; n < W / 8; n++) {
            y[i][n][2 * half] *= fade;
            y[i][n][2 * half + 1] *= fade;
        }
        l[i][half] = fmaf(l[i][half], fade, sum);
        m[i][half] = top;
    }

    __device__ void store(const dra_attend_call &a, const outputs &out, int64_t first,
                          const dra_attend_query *q, float c)
    {
        DRA_UNROLL
        for (int i = 0; i < 2 * M; i++) {
            const int r = 16 * (i / 2) + i % 2 * 8 + dra_mma_g();
            float     all = l[i / 2][i % 2];
            all += __shfl_xor_sync(~0u, all, 1);
            all += __shfl_xor_sync(~0u, all, 2);
            if (q[r].t < 0) continue;
            const int64_t row = first + q[r].t;
            const float   by = all != 0 ? 1 / all : 0; /* 0: saw nothing */
            if (out.lse && dra_mma_t() == 0)
                out.lse[row] = all != 0 ? (c * m[i / 2][i % 2] + log2f(all)) * DRA_LN2 : 0;
            DRA_UNROLL
            for (int n = 0; out.y && n < W / 8; n++)
                *reinterpret_cast<float2 *>(out.y + row * W + 8 * n + 2 * dra_mma_t()) =
                    make_float2(y[i / 2][n][i % 2 * 2] * by, y[i / 2][n][i % 2 * 2 + 1] * by);
        }
    }
};

template <int W>
__global__ static void __launch_bounds__(THREADS, 2)
    mma_kernel(const dra_attend_call a, const outputs out)
{
    enum { M = shape<W>::M, ROWS = shape<W>::ROWS };
    const int   tiles = (a.T + ROWS - 1) / ROWS, tile = tiles - 1 - (int)(blockIdx.x % tiles);
    const int   h = (int)(blockIdx.x / tiles) % a.H, b = (int)(blockIdx.x / tiles) / a.H;
    const int   kv = dra_attend_key_head(a, h), own = (int)threadIdx.x / 32 * 16 * M;
    const float c = a.scale / DRA_LN2;
    __shared__ dra_attend_query q[ROWS];
    DRA_SHARED(uint16_t, room); /* two, in turns: keys, then values */
    dra_attend_open_queries<ROWS>(a, b, h, tile * ROWS, q);
    __syncthreads();
    const dra_attend_seen seen = dra_attend_seen_of<ROWS>(a, q);
    dra_attend_source     query = dra_attend_source_of(a.q, a.q_by_four, b, h, a.T);
    dra_attend_source key = dra_attend_key_source(a, a.k, a.k_by_four, b, kv, seen.end, seen.first);
    dra_attend_source value = dra_attend_key_source(a, a.v, a.v_by_four, b, kv, seen.end,
                                                    seen.first);
    uint32_t          held[M][W / 16][4];
    sums<M, W>        sum;
    sum.clear();
    DRA_UNROLL
    for (int m = 0; m < M; m++) {
        query.rows.first = tile * ROWS + own + 16 * m;
        dra_mma_rows<W>(held[m], query);
    }
    const auto fill =
        [&](int j) { /* keys j .. j + KEYS-1 */
                     uint16_t *const to = room + j / KEYS % 2 * 2 * KEYS * dra_mma_row<W>::STEP;
                     key.rows.first = value.rows.first = j;
                     if (j < seen.end) dra_mma_fill<KEYS, W, THREADS>(to, key);
                     if (j < seen.end)
                         dra_mma_fill<KEYS, W, THREADS>(to + KEYS * dra_mma_row<W>::STEP, value);
        };
    fill(seen.first / KEYS * KEYS);
    for (int j0 = seen.first / KEYS * KEYS; j0 < seen.end; j0 += KEYS) {
        float                 s[M][KEYS / 8][4] = {};
        uint32_t              p[M][KEYS / 16][4];
        const uint16_t *const room_k = room + j0 / KEYS % 2 * 2 * KEYS * dra_mma_row<W>::STEP;
        const uint16_t *const room_v = room_k + KEYS * dra_mma_row<W>::STEP;
        dra_mma_wait();
        __syncthreads(); /* these are there, and all are through with the others */
        fill(j0 + KEYS);
        dra_mma_dots<M, KEYS / 8, W>(s, held, room_k);
        if (j0 < seen.most_lo || j0 + KEYS > seen.least_hi) hide<M>(q + own, j0, s);
        DRA_UNROLL
        for (int i = 0; i < 2 * M; i++) sum.take(c, i / 2, i % 2, s);
        dra_mma_turn<M, KEYS / 16>(p, s);
        dra_mma_times<M, KEYS / 16, W>(sum.y, p, room_v);
    }
    sum.store(a, out, ((int64_t)b * a.H + h) * a.T, q + own, c);
}

/* ---- launch ---------------------------------------------------------------------------------- */

/* Copies are of 16 bytes. */
static bool can_copy(const dra_tensor *t)
{
    bool even = t->stride[3] == 1;
    for (int k = 0; k < 3; k++) even = even && t->stride[k] % 8 == 0;
    return even;
}

bool dra_attend_mma_fits(const dra_call *c, const dra_attend_call &a)
{
    const dra_attend_attr *k = static_cast<const dra_attend_attr *>(c->attr);
    for (int i = 1; i < 3; i++) /* of a cache */
        if (c->in[i].dtype == DRA_BF16 && !can_copy(&c->in[i])) return false;
    return k->precision == DRA_PRECISION_BF16 && a.plain && !dra_attend_is_few(a) && a.D == a.E &&
           (a.D == 64 || a.D == 128) && a.scale > 0;
}

bool dra_attend_mma_rounds_input(const dra_call *c, int i)
{
    const dra_tensor *t = &c->in[i];
    return t->dtype == DRA_F32 && can_copy(t) && dra_attend_mma_fits(c, dra_attend_call_of(c));
}

uint32_t dra_attend_mma_rounds(const dra_call *c)
{
    const dra_attend_attr *k = static_cast<const dra_attend_attr *>(c->attr);
    const int n = k->at[DRA_ATTEND_PAGES] >= 0 ? 1 : 3; /* what is in pages is floats */
    uint32_t  bits = 0;
    for (int i = 0; i < n; i++) bits |= dra_attend_mma_rounds_input(c, i) ? 1u << i : 0;
    return bits;
}

template <int W> static void start(const dra_call *c, const dra_attend_call &a)
{
    const outputs  out = {static_cast<float *>(c->out[0].data),
                          static_cast<float *>(c->out[1].data)};
    const int64_t  tiles = dra_div_up(a.T, shape<W>::ROWS);
    const size_t   bytes = 4 * KEYS * dra_mma_row<W>::STEP * sizeof(uint16_t);
    const unsigned grid = (unsigned)(tiles * a.B * a.H);
    cudaFuncSetAttribute(mma_kernel<W>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    DRA_LAUNCH(c, mma_kernel<W>, grid, THREADS, bytes, a, out);
}

void dra_attend_mma(const dra_call *c, const dra_attend_call &a)
{
    a.D == 64 ? start<64>(c, a) : start<128>(c, a);
}
