/* attend_small and its gradient: attention over few keys, all of which are seen; formulas in
 * attend_small.c. A warp has one query, or for dk and dv one key, and goes through the rows on
 * the other side one after the other. A lane has every 32nd number of a row, MOST of them at a
 * time; wider results are made in chunks, with the weights computed again. */
#include "ops/attention/attend.cuh"

enum { MOST = 8, CHUNK = 32 * MOST };

/* The sum of x_i y_i over n numbers, for all lanes. */
__device__ static float dot(const float *x, const float *y, int n)
{
    float sum = 0;
    for (int i = dra_warp_team::rank(); i < n; i += 32) sum = fmaf(x[i], y[i], sum);
    return dra_team_sum<dra_warp_team>(sum);
}

struct chunk { /* a lane's part of a row: numbers first + lane + 32 k, of n */
    int   first, n;
    float v[MOST];

    __device__ int  at(int k) const { return first + dra_warp_team::rank() + 32 * k; }
    __device__ void clear()
    {
        for (int k = 0; k < MOST; k++) v[k] = 0;
    }
    __device__ void scale(float by)
    {
        for (int k = 0; k < MOST; k++) v[k] *= by;
    }
    __device__ void add(float by, const float *x) /* += by x */
    {
        DRA_UNROLL
        for (int k = 0; k < MOST; k++)
            if (at(k) < n) v[k] = fmaf(by, x[at(k)], v[k]);
    }
    __device__ void store(float by, float *x) const
    {
        DRA_UNROLL
        for (int k = 0; k < MOST; k++)
            if (at(k) < n) x[at(k)] = by * v[k];
    }
};

struct query {
    int b, h, t, kv;
};

__device__ static query query_at(const dra_attend_call &a, int64_t row) /* of (B, H, T) */
{
    const int h = (int)(row / a.T % a.H);
    return {(int)(row / a.T / a.H), h, (int)(row % a.T), dra_attend_key_head(a, h)};
}

/* ---- (q, k, v) -> y, lse --------------------------------------------------------------------- */

__global__ static void small_kernel(const dra_attend_call a, int64_t rows, float *y, float *lse)
{
    DRA_EACH_ROW(dra_warp_team, row, rows)
    {
        const query  at = query_at(a, row);
        const float *q = dra_attend_at<float>(a.q, at.b, at.h, at.t);
        chunk        sum = {0, y ? a.E : 0, {0}};
        do { /* e^(s - m), m the largest so far */
            float m = -INFINITY, l = 0;
            sum.clear();
            for (int j = 0; j < a.J; j++) {
                const float s = a.scale * dot(q, dra_attend_at<float>(a.k, at.b, at.kv, j), a.D);
                const float top = dra_join_max::join(m, s), fade = expf(m - top), p = expf(s - top);
                l = fmaf(l, fade, p);
                sum.scale(fade);
                sum.add(p, dra_attend_at<float>(a.v, at.b, at.kv, j));
                m = top;
            }
            if (y) sum.store(1 / l, y + row * a.E);
            if (lse && sum.first == 0 && dra_warp_team::rank() == 0) lse[row] = m + logf(l);
            sum.first += CHUNK;
        } while (sum.first < sum.n);
    }
}

static void launch(const dra_call *c)
{
    const dra_attend_call a = dra_attend_call_of(c);
    const int64_t         rows = (int64_t)a.B * a.H * a.T;
    DRA_LAUNCH(c, small_kernel, dra_grid(c, rows, DRA_THREADS / 32), DRA_THREADS, 0, a, rows,
               static_cast<float *>(c->out[0].data), static_cast<float *>(c->out[1].data));
}

const dra_cuda_kernel dra_cuda_attend_small = {
    {"attend_small", DRA_REALS, DRA_LAYOUT_ROWS, 0, false, nullptr, nullptr}, launch, false};

/* ---- (q, k, v, dy, lse, delta) -> dq, dk, dv ------------------------------------------------- */

enum { DY = 3, LSE, DELTA };
enum { DQ, DK, DV };

struct backward {
    dra_attend_tensor dy, lse, delta;
    float            *dq, *dk, *dv;
    int64_t           rows;
};

struct weights { /* of a query for a key */
    float p, ds; /* ds with scale */
};

__device__ static weights weights_of(const dra_attend_call &a, const backward &g, const query &at,
                                     int j)
{
    const float *q = dra_attend_at<float>(a.q, at.b, at.h, at.t);
    const float *dy = dra_attend_at<float>(g.dy, at.b, at.h, at.t);
    const float  s = a.scale * dot(q, dra_attend_at<float>(a.k, at.b, at.kv, j), a.D);
    const float  dp = dot(dy, dra_attend_at<float>(a.v, at.b, at.kv, j), a.E);
    const float  p = expf(s - *dra_attend_at<float>(g.lse, at.b, at.h, at.t));
    return {p, a.scale * (p * (dp - *dra_attend_at<float>(g.delta, at.b, at.h, at.t)))};
}

__global__ static void query_kernel(const dra_attend_call a, const backward g)
{
    DRA_EACH_ROW(dra_warp_team, row, g.rows)
    {
        const query at = query_at(a, row);
        for (chunk dq = {0, a.D, {0}}; dq.first < a.D; dq.first += CHUNK) {
            dq.clear();
            for (int j = 0; j < a.J; j++)
                dq.add(weights_of(a, g, at, j).ds, dra_attend_at<float>(a.k, at.b, at.kv, j));
            dq.store(1, g.dq + row * a.D);
        }
    }
}

/* Row `row` of (B, K, J): all queries that read it, heads outside, in order. */
__global__ static void key_kernel(const dra_attend_call a, const backward g)
{
    const int width = a.D > a.E ? a.D : a.E;
    DRA_EACH_ROW(dra_warp_team, row, g.rows)
    {
        const int j = (int)(row % a.J), kv = (int)(row / a.J % a.K), b = (int)(row / a.J / a.K);
        chunk     dk = {0, g.dk ? a.D : 0, {0}}, dv = {0, g.dv ? a.E : 0, {0}};
        for (; dk.first < width; dk.first += CHUNK, dv.first += CHUNK) {
            dk.clear();
            dv.clear();
            for (int i = 0; i < a.G * a.T; i++) {
                const query   at = {b, dra_attend_head(a, kv, i / a.T), i % a.T, kv};
                const weights w = weights_of(a, g, at, j);
                dk.add(w.ds, dra_attend_at<float>(a.q, b, at.h, at.t));
                dv.add(w.p, dra_attend_at<float>(g.dy, b, at.h, at.t));
            }
            if (g.dk) dk.store(1, g.dk + row * a.D);
            if (g.dv) dv.store(1, g.dv + row * a.E);
        }
    }
}

static void back_launch(const dra_call *c)
{
    const dra_attend_call a = dra_attend_call_of(c);
    backward              g = {};
    g.dy = dra_attend_tensor_of(&c->in[DY]);
    g.lse = dra_attend_tensor_of(&c->in[LSE]);
    g.delta = dra_attend_tensor_of(&c->in[DELTA]);
    g.dq = static_cast<float *>(c->out[DQ].data);
    g.dk = static_cast<float *>(c->out[DK].data);
    g.dv = static_cast<float *>(c->out[DV].data);
    g.rows = (int64_t)a.B * a.H * a.T;
    if (g.dq && g.rows)
        DRA_LAUNCH(c, query_kernel, dra_grid(c, g.rows, DRA_THREADS / 32), DRA_THREADS, 0, a, g);
    g.rows = (int64_t)a.B * a.K * a.J;
    if ((g.dk || g.dv) && g.rows)
        DRA_LAUNCH(c, key_kernel, dra_grid(c, g.rows, DRA_THREADS / 32), DRA_THREADS, 0, a, g);
}

const dra_cuda_kernel dra_cuda_attend_small_back = {
    {"attend_small_back", DRA_REALS, DRA_LAYOUT_ROWS, 0, false, nullptr, nullptr},
    back_launch,
    false};
