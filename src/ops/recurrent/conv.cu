/* conv: a causal convolution of every channel on its own; formulas as in conv.c. */
#include "ops/recurrent/recur.cuh"

enum { X, W, START, BIAS };
enum { Y, LAST };
enum { DY = 3, DLAST };
enum { DX, DW, DBIAS, DSTART };

struct conv_call {
    int64_t          B, T, N;
    int              taps;
    dra_course       x, y; /* backward: y is dy */
    dra_channel_rows w, start, last;
    dra_channel_rows before; /* backward: the inputs before the first token; start is dlast */
    const float     *bias;
    dra_marks        mark;
    dra_course       dx;
    float           *part; /* dw and dbias of each row of the batch: (B, W + 1, N) */
};

static conv_call call_of(const dra_call *c, const dra_tensor *y)
{
    const dra_conv_attr *attr = static_cast<const dra_conv_attr *>(c->attr);
    const dra_tensor    *x = &c->in[X];
    conv_call            a = {};
    a.B = x->shape.dim[0], a.T = x->shape.dim[1], a.N = x->shape.dim[2];
    a.taps = (int)c->in[W].shape.dim[0];
    a.x = dra_course_of(x);
    a.y = dra_course_of(y);
    a.w = dra_channel_rows_of(&c->in[W]);
    a.mark = dra_marks_of(attr->marked ? &c->in[c->n_in - 1] : nullptr);
    return a;
}

/* Up to M taps in registers, those that there are at the end. */
template <int M> struct conv_window {
    int   skip;
    float w[M], h[M]; /* h[M - 1] is the present input */

    __device__ void open(const conv_call &a, const dra_channel_rows &from, dra_channel at)
    {
        skip = M - a.taps;
        DRA_UNROLL
        for (int k = 0; k < M; k++) {
            w[k] = k < skip ? 0 : *a.w.at(at, k - skip);
            h[k] = k < skip || k == M - 1 ? 0 : *from.at(at, k - skip);
        }
    }

    __device__ void clear()
    {
        DRA_UNROLL
        for (int k = 0; k < M; k++) h[k] = 0;
    }

    __device__ float sum(float from) const
    {
        DRA_UNROLL
        for (int k = 0; k < M; k++)
            if (k >= skip) from = fmaf(w[k], h[k], from);
        return from;
    }

    __device__ void shift()
    {
        DRA_UNROLL
        for (int k = 0; k + 1 < M; k++)
            if (k >= skip) h[k] = h[k + 1];
    }

    __device__ void close(const dra_channel_rows &to, dra_channel at) const
    {
        DRA_UNROLL
        for (int k = 0; k + 1 < M; k++)
            if (k >= skip && to.data && at.live) *to.at(at, k - skip) = h[k];
    }
};

/* ---- forward: (x, w, start[, bias][, mark]) -> y, last --------------------------------------- */

template <int M> __global__ static void conv_kernel(const conv_call a)
{
    const dra_channel at = dra_channel_here(a.N);
    const float      *x = dra_course_at(a.x, at);
    const float       bias = a.bias ? a.bias[at.n] : 0;
    float            *y = dra_course_at(a.y, at);
    float             held[DRA_RUN];
    conv_window<M>    window;
    window.open(a, a.start, at);
    dra_run_load(x, a.x.row, 0, a.T, held);
    for (int64_t t = 0; t < a.T; t += DRA_RUN) {
        const dra_run_marks run = dra_run_marks_at(a.mark, at.b, t, a.T);
        dra_ahead           next = dra_ahead_at(x, a.x.row, t + DRA_RUN, a.T);
        DRA_UNROLL
        for (int k = 0; k < DRA_RUN; k++) {
            float sum = 0;
            window.h[M - 1] = held[k];
            next.load(k, held + k);
            if (run.is_reset(k)) {
                const float now = window.h[M - 1];
                window.clear();
                window.h[M - 1] = now;
            }
            if (!run.is_pad(k)) {
                sum = window.sum(bias);
                window.shift();
            }
            if (y && at.live && k < run.n) y[(t + k) * a.y.row] = sum;
        }
    }
    window.close(a.last, at);
}

static void conv_launch(const dra_call *c)
{
    const dra_conv_attr *attr = static_cast<const dra_conv_attr *>(c->attr);
    conv_call            a = call_of(c, &c->out[Y]);
    const unsigned       grid = dra_channel_grid(a.B, a.N);
    a.start = dra_channel_rows_of(&c->in[START]);
    a.last = dra_channel_rows_of(&c->out[LAST]);
    if (attr->biased) a.bias = static_cast<const float *>(c->in[BIAS].data);
    if (a.B == 0 || a.N == 0) return;
    if (a.taps <= 4)
        DRA_LAUNCH(c, (conv_kernel<4>), grid, DRA_RECUR_THREADS, 0, a);
    else
        DRA_LAUNCH(c, (conv_kernel<DRA_CONV_TAPS>), grid, DRA_RECUR_THREADS, 0, a);
}

const dra_cuda_kernel dra_cuda_conv = {
    {"conv", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, nullptr, nullptr},
    conv_launch,
    false};

/* ---- backward: (x, w, start, dy, dlast[, mark]) -> dx, dw, dbias, dstart --------------------- */

/* The walk back of a thread. */
template <int M> struct conv_back {
    conv_window<M> window;  /* its h: of the inputs that a token sees, through taps 1, 2, .. */
    float          next[M]; /* dy of a token and of those after it */
    float          dw[M], db;

    __device__ void open(const conv_call &a, dra_channel at)
    {
        window.open(a, a.start, at);
        db = 0;
        DRA_UNROLL
        for (int k = 0; k < M; k++) next[k] = dw[k] = 0;
    }

    /* What an input x was seen by: itself with d, and the tokens after it. */
    __device__ void see(float x, float d)
    {
        DRA_UNROLL
        for (int k = M - 1; k > 0; k--) next[k] = next[k - 1];
        next[0] = d;
        DRA_UNROLL
        for (int k = 0; k < M; k++) dw[M - 1 - k] = fmaf(x, next[k], dw[M - 1 - k]);
        db += d;
    }

    /* dx of a token with d. */
    __device__ float step(float d)
    {
        float now = fmaf(window.w[M - 1], d, window.skip < M - 1 ? window.h[M - 2] : 0);
        DRA_UNROLL
        for (int j = M - 2; j >= 0; j--)
            if (j >= window.skip)
                window.h[j] = fmaf(window.w[j], d,
                                   j > window.skip ? window.h[j > 0 ? j - 1 : 0] : 0);
        return now;
    }

    __device__ void clear()
    {
        window.clear();
        DRA_UNROLL
        for (int k = 0; k < M; k++) next[k] = 0;
    }

    /* Whether a token has seen inputs before the first one, which may be NaN after a reset. */
    __device__ bool sees_start() const
    {
        bool sees = false;
        DRA_UNROLL
        for (int k = 0; k < M; k++) sees = sees || next[k] != 0;
        return sees;
    }

    __device__ void close(const conv_call &a, dra_channel at) const
    {
        float *part = a.part + at.b * (a.taps + 1) * a.N + at.n;
        if (!at.live) return;
        DRA_UNROLL
        for (int j = 0; j < M; j++)
            if (j >= window.skip) part[(j - window.skip) * a.N] = dw[j];
        part[a.taps * a.N] = db;
    }
};

template <int M> __global__ static void back_kernel(const conv_call a)
{
    const dra_channel at = dra_channel_here(a.N);
    const int64_t     runs = dra_div_up(a.T, DRA_RUN);
    const float      *x = dra_course_at(a.x, at), *dy = dra_course_at(a.y, at);
    float            *dx = dra_course_at(a.dx, at);
    float             held_x[DRA_RUN], held_dy[DRA_RUN];
    conv_back<M>      walk;
    walk.open(a, at);
    dra_run_load(x, a.x.row, (runs - 1) * DRA_RUN, a.T, held_x);
    dra_run_load(dy, a.y.row, (runs - 1) * DRA_RUN, a.T, held_dy);
    for (int64_t i = runs - 1; i >= 0; i--) {
        const int64_t       t = i * DRA_RUN;
        const dra_run_marks run = dra_run_marks_at(a.mark, at.b, t, a.T);
        dra_ahead           next_x = dra_behind_at(x, a.x.row, t - DRA_RUN, a.T);
        dra_ahead           next_dy = dra_behind_at(dy, a.y.row, t - DRA_RUN, a.T);
        DRA_UNROLL
        for (int k = DRA_RUN - 1; k >= 0; k--) {
            const float d = held_dy[k];
            float       now = 0;
            if (!run.is_pad(k)) {
                walk.see(held_x[k], d);
                now = walk.step(d);
            }
            if (run.is_reset(k)) walk.clear();
            next_x.load(k, held_x + k);
            next_dy.load(k, held_dy + k);
            if (dx && at.live && k < run.n) dx[(t + k) * a.dx.row] = now;
        }
    }
    walk.window.close(a.last, at);
    const bool sees = walk.sees_start();
    for (int j = a.taps - 2; j >= 0 && sees; j--) walk.see(*a.before.at(at, j), 0);
    walk.close(a, at);
}

/* Parts of all rows, rows `first` to `first + n` of each: (B, n N). */
static dra_tensor part_of(const dra_call *c, int64_t first, int64_t n)
{
    const int64_t *x = c->in[X].shape.dim, N = x[2];
    const int64_t  row = (c->in[W].shape.dim[0] + 1) * N, dim[] = {x[0], n * N};
    const int64_t  stride[] = {row, 1};
    return dra_scratch_tensor(static_cast<float *>(c->scratch) + first * N, 2, dim, stride);
}

static size_t part_bytes(const dra_call *c)
{
    const int64_t *x = c->in[X].shape.dim;
    return (size_t)(x[0] * (c->in[W].shape.dim[0] + 1) * x[2]) * sizeof(float);
}

static size_t back_scratch(const dra_call *c)
{
    const dra_tensor part = part_of(c, 0, c->in[W].shape.dim[0]);
    return part_bytes(c) + dra_recur_sum_scratch(&part, 0);
}

static void back_launch(const dra_call *c)
{
    conv_call a = call_of(c, &c->in[DY]);
    a.start = dra_channel_rows_of(&c->in[DLAST]);
    a.last = dra_channel_rows_of(&c->out[DSTART]);
    a.dx = dra_course_of(&c->out[DX]);
    a.part = static_cast<float *>(c->scratch);
    a.before = dra_channel_rows_of(&c->in[START]);
    const unsigned grid = dra_channel_grid(a.B, a.N);
    if (a.B > 0 && a.N > 0 && a.taps <= 4)
        DRA_LAUNCH(c, (back_kernel<4>), grid, DRA_RECUR_THREADS, 0, a);
    else if (a.B > 0 && a.N > 0)
        DRA_LAUNCH(c, (back_kernel<DRA_CONV_TAPS>), grid, DRA_RECUR_THREADS, 0, a);
    char            *more = static_cast<char *>(c->scratch) + part_bytes(c);
    const dra_tensor dw = part_of(c, 0, a.taps), db = part_of(c, a.taps, 1);
    dra_recur_sum(c, &dw, 0, more, c->out[DW].data);
    dra_recur_sum(c, &db, 0, more, c->out[DBIAS].data);
}

const dra_cuda_kernel dra_cuda_conv_back = {
    {"conv_back", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, back_scratch, nullptr},
    back_launch,
    false};
