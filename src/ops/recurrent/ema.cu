/* ema: running means on M timescales; formulas as in ema.c. */
#include "ops/recurrent/recur.cuh"

enum { X, RATE, START, W };
enum { Y, LAST, BORDERS };
enum { BACK_BORDERS = 2, DY, DLAST, BACK_W };
enum { DX, DRATE, DW, DSTART };

struct ema_call {
    int64_t          B, T, M, N;
    dra_course       x, y;           /* backward: y is dy */
    bool             weighted;       /* y is the weighted sum of all timescales */
    int64_t          y_scale;        /* else, from one timescale to the next; of dy it may be 0 */
    dra_channel_rows rate, w, state; /* state: forward the first one, backward dlast */
    dra_channel_rows last;           /* backward dstart */
    float           *borders;        /* (B, runs, M, N) */
    int64_t          border_batch, border_row, border_scale;
    dra_marks        mark;
    dra_course       dx;
    float           *part; /* dm, dr, dw: (3, B, M, N) */
};

static ema_call call_of(const dra_call *c, const dra_tensor *y, const dra_tensor *borders, int w)
{
    const dra_ema_attr *attr = static_cast<const dra_ema_attr *>(c->attr);
    const dra_tensor   *x = &c->in[X];
    ema_call            a = {};
    a.B = x->shape.dim[0], a.T = x->shape.dim[1], a.N = x->shape.dim[2];
    a.M = c->in[RATE].shape.dim[0];
    a.x = dra_course_of(x);
    a.y = dra_course_of(y);
    a.weighted = attr->weighted;
    a.y_scale = attr->weighted ? 0 : y->stride[2];
    a.rate = dra_channel_rows_of(&c->in[RATE]);
    if (attr->weighted) a.w = dra_channel_rows_of(&c->in[w]);
    a.borders = static_cast<float *>(borders->data);
    a.border_batch = borders->stride[0], a.border_row = borders->stride[1];
    a.border_scale = borders->stride[2];
    a.mark = dra_marks_of(attr->marked ? &c->in[c->n_in - 1] : nullptr);
    return a;
}

__device__ static float *border_at(const ema_call &a, dra_channel at, int64_t run, int64_t i)
{
    return a.borders + at.b * a.border_batch + run * a.border_row + i * a.border_scale + at.n;
}

/* m + r (x - m) */
__device__ static float toward(float m, float r, float x) { return fmaf(r, x - m, m); }

/* ---- forward: (x, r, start[, w][, mark]) -> y, last, the states before each run -------------- */

/* Timescales first .. first+M-1, as far as there are so many. */
template <int M> struct ema_walk {
    int     n;
    float   m[M], r[M], w[M];
    float  *y;
    int64_t y_row, y_scale;
    bool    add, live;

    __device__ void open(const ema_call &a, dra_channel at, int64_t first)
    {
        n = (int)dra_imin(M, a.M - first);
        DRA_UNROLL
        for (int i = 0; i < M; i++) {
            const int64_t scale = first + (i < n ? i : 0);
            m[i] = *a.state.at(at, scale);
            r[i] = *a.rate.at(at, scale);
            w[i] = a.weighted ? *a.w.at(at, scale) : 1;
        }
        y = dra_course_at(a.y, at);
        if (y) y += first * a.y_scale;
        y_row = a.y.row, y_scale = a.y_scale;
        add = first > 0;
        live = at.live;
    }

    __device__ void step(const dra_run_marks &run, int t, int64_t at, float x)
    {
        float  sum = 0;
        float *to = y && live && t < run.n ? y + (at + t) * y_row : nullptr;
        if (to && !y_scale && add) sum = *to;
        DRA_UNROLL
        for (int i = 0; i < M; i++) {
            if (i >= n) continue;
            if (run.is_reset(t)) m[i] = 0;
            if (!run.is_pad(t)) m[i] = toward(m[i], r[i], x);
            sum = fmaf(w[i], m[i], sum);
            if (to && y_scale) to[i * y_scale] = m[i];
        }
        if (to && !y_scale) *to = sum;
    }
};

template <int M> __global__ static void ema_kernel(const ema_call a)
{
    const dra_channel at = dra_channel_here(a.N);
    const float      *x = dra_course_at(a.x, at);
    for (int64_t first = 0; first < a.M; first += M) {
        ema_walk<M> walk;
        float       held[DRA_RUN];
        walk.open(a, at, first);
        dra_run_load(x, a.x.row, 0, a.T, held);
        for (int64_t t = 0; t < a.T; t += DRA_RUN) {
            const dra_run_marks run = dra_run_marks_at(a.mark, at.b, t, a.T);
            dra_ahead           next = dra_ahead_at(x, a.x.row, t + DRA_RUN, a.T);
            DRA_UNROLL
            for (int i = 0; i < M; i++)
                if (i < walk.n && a.borders && at.live)
                    *border_at(a, at, t / DRA_RUN, first + i) = walk.m[i];
            DRA_UNROLL
            for (int k = 0; k < DRA_RUN; k++) {
                const float now = held[k];
                next.load(k, held + k);
                walk.step(run, k, t, now);
            }
        }
        DRA_UNROLL
        for (int i = 0; i < M; i++)
            if (i < walk.n && a.last.data && at.live) *a.last.at(at, first + i) = walk.m[i];
    }
}

static void ema_launch(const dra_call *c)
{
    ema_call       a = call_of(c, &c->out[Y], &c->out[BORDERS], W);
    const unsigned grid = dra_channel_grid(a.B, a.N);
    a.state = dra_channel_rows_of(&c->in[START]);
    a.last = dra_channel_rows_of(&c->out[LAST]);
    if (a.M == 1)
        DRA_LAUNCH(c, (ema_kernel<1>), grid, DRA_RECUR_THREADS, 0, a);
    else if (a.M == 2)
        DRA_LAUNCH(c, (ema_kernel<2>), grid, DRA_RECUR_THREADS, 0, a);
    else
        DRA_LAUNCH(c, (ema_kernel<4>), grid, DRA_RECUR_THREADS, 0, a);
}

const dra_cuda_kernel dra_cuda_ema = {
    {"ema", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, nullptr, nullptr},
    ema_launch,
    false};

/* ---- backward: (x, r, borders, dy, dlast[, w][, mark]) -> dx, dr, dw, dstart ----------------- */

/* dm, dr or dw of a row of the batch, one after the other. */
__device__ static float *part_at(const ema_call &a, int k, dra_channel at, int64_t i)
{
    return a.part + ((k * a.B + at.b) * a.M + i) * a.N + at.n;
}

/* The states of a run on one timescale from the one before it, then the way back; x and dy are
 * those of the run and become those of `next`, where there is such a run. */
__device__ static void back_scale(const ema_call &a, dra_channel at, int64_t i,
                                  const dra_run_marks &run, float m0, float *x, dra_ahead next_x,
                                  float *dy, dra_ahead next_dy, float *dx)
{
    const float r = *a.rate.at(at, i), w = a.weighted ? *a.w.at(at, i) : 1;
    float       dm = *part_at(a, 0, at, i), dr = 0, dw = 0;
    float       m[DRA_RUN + 1]; /* before each token, and after the last */
    m[0] = m0;
    DRA_UNROLL
    for (int t = 0; t < DRA_RUN; t++) {
        const float old = run.is_reset(t) ? 0 : m[t];
        m[t + 1] = run.is_pad(t) ? old : toward(old, r, x[t]);
    }
    DRA_UNROLL
    for (int t = DRA_RUN - 1; t >= 0; t--) {
        dm = fmaf(w, dy[t], dm);
        dw = fmaf(dy[t], m[t + 1], dw);
        if (!run.is_pad(t)) {
            const float own = r * dm;
            dr = fmaf(dm, x[t] - (run.is_reset(t) ? 0 : m[t]), dr);
            dx[t] += own;
            dm -= own;
        }
        if (run.is_reset(t)) dm = 0;
        if (next_x.n) next_x.load(t, x + t);
        if (next_dy.n) next_dy.load(t, dy + t);
    }
    if (!at.live) return;
    *part_at(a, 0, at, i) = dm;
    *part_at(a, 1, at, i) += dr;
    *part_at(a, 2, at, i) += dw;
}

__device__ static void back_open(const ema_call &a, dra_channel at)
{
    for (int64_t i = 0; i < a.M && at.live; i++) {
        *part_at(a, 0, at, i) = *a.state.at(at, i);
        *part_at(a, 1, at, i) = *part_at(a, 2, at, i) = 0;
    }
}

__global__ static void back_kernel(const ema_call a)
{
    const dra_channel at = dra_channel_here(a.N);
    const int64_t     runs = dra_div_up(a.T, DRA_RUN);
    const float      *x = dra_course_at(a.x, at), *dy = dra_course_at(a.y, at);
    float            *to = dra_course_at(a.dx, at);
    const dra_ahead   none = {};
    float             held_x[DRA_RUN], held_dy[DRA_RUN];
    back_open(a, at);
    dra_run_load(x, a.x.row, (runs - 1) * DRA_RUN, a.T, held_x);
    dra_run_load(dy, a.y.row, (runs - 1) * DRA_RUN, a.T, held_dy);
    for (int64_t k = runs - 1; k >= 0; k--) {
        const int64_t       t = k * DRA_RUN;
        const dra_run_marks run = dra_run_marks_at(a.mark, at.b, t, a.T);
        float               dx[DRA_RUN] = {};
        for (int64_t i = 0; i < a.M; i++) {
            const bool last = i + 1 == a.M;
            dra_ahead  next_x = last ? dra_behind_at(x, a.x.row, t - DRA_RUN, a.T) : none;
            dra_ahead  next_dy = last ? dra_behind_at(dy, a.y.row, t - DRA_RUN, a.T)
                                 : a.weighted
                                     ? none
                                     : dra_behind_at(dy + (i + 1) * a.y_scale, a.y.row, t, a.T);
            back_scale(a, at, i, run, *border_at(a, at, k, i), held_x, next_x, held_dy, next_dy,
                       dx);
        }
        DRA_UNROLL
        for (int s = 0; s < DRA_RUN; s++)
            if (to && at.live && s < run.n) to[(t + s) * a.dx.row] = dx[s];
    }
    for (int64_t i = 0; i < a.M && a.last.data && at.live; i++)
        *a.last.at(at, i) = *part_at(a, 0, at, i);
}

/* Scratch: the parts, then that of their sums over the batch. */
static dra_tensor part_of(const dra_call *c, int k)
{
    const dra_shape s = c->in[DLAST].shape;
    const int64_t   n = s.dim[1] * s.dim[2], dim[] = {s.dim[0], n}, stride[] = {n, 1};
    return dra_scratch_tensor(static_cast<float *>(c->scratch) + k * s.dim[0] * n, 2, dim, stride);
}

static size_t part_bytes(const dra_call *c)
{
    return 3 * (size_t)dra_shape_count(&c->in[DLAST].shape) * sizeof(float);
}

static size_t back_scratch(const dra_call *c)
{
    const dra_tensor part = part_of(c, 0);
    return part_bytes(c) + dra_recur_sum_scratch(&part, 0);
}

static void back_launch(const dra_call *c)
{
    ema_call a = call_of(c, &c->in[DY], &c->in[BACK_BORDERS], BACK_W);
    a.state = dra_channel_rows_of(&c->in[DLAST]);
    a.last = dra_channel_rows_of(&c->out[DSTART]);
    a.dx = dra_course_of(&c->out[DX]);
    a.part = static_cast<float *>(c->scratch);
    if (a.B > 0 && a.N > 0)
        DRA_LAUNCH(c, back_kernel, dra_channel_grid(a.B, a.N), DRA_RECUR_THREADS, 0, a);
    for (int k = 1; k < 3; k++) {
        const dra_tensor part = part_of(c, k);
        dra_recur_sum(c, &part, 0, static_cast<char *>(c->scratch) + part_bytes(c),
                      c->out[DRATE + k - 1].data);
    }
}

const dra_cuda_kernel dra_cuda_ema_back = {
    {"ema_back", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, back_scratch, nullptr},
    back_launch,
    false};
