/* running_sum and running_top, and the gradient of the sum; formulas as in running_sum.c and
 * running_top.c. */
#include "ops/recurrent/recur.cuh"

struct running_call {
    int64_t    B, T, N;
    dra_course x, l;  /* l: of running_top, or none */
    float     *start; /* (B, N) or (B, N, 2) */
    int64_t    start_batch, start_row;
    dra_marks  mark;
    float     *y, *shift, *last; /* dense; each may be NULL */
};

static running_call call_of(const dra_call *c, const dra_tensor *mark)
{
    const dra_tensor *x = &c->in[0], *start = &c->in[1];
    running_call      a = {};
    a.B = x->shape.dim[0], a.T = x->shape.dim[1], a.N = x->shape.dim[2];
    a.x = dra_course_of(x);
    a.start = static_cast<float *>(start->data);
    a.start_batch = start->stride[0], a.start_row = start->stride[1];
    a.mark = dra_marks_of(mark);
    a.y = static_cast<float *>(c->out[0].data);
    a.last = static_cast<float *>(c->out[c->n_out - 1].data);
    return a;
}

/* ---- running_sum: (x, start[, mark]) -> y, last ---------------------------------------------- */

struct alignas(8) two_floats { /* a number, and what it rounds off */
    float number, rest;
};

/* a + b, exactly [Knuth]. */
__device__ static two_floats exact_sum(float a, float b)
{
    const float sum = a + b, part = sum - a;
    return {sum, (a - (sum - part)) + (b - part)};
}

/* The CPU adds in double; here that would be the time a step takes, as its conversions wait for
 * each other. */
__device__ static two_floats add(two_floats s, float x)
{
    const two_floats sum = exact_sum(s.number, x);
    return exact_sum(sum.number, sum.rest + s.rest);
}

__global__ static void sum_kernel(const running_call a)
{
    const dra_channel at = dra_channel_here(a.N);
    const float      *x = dra_course_at(a.x, at);
    const float      *start = a.start + at.b * a.start_batch + at.n * a.start_row;
    two_floats       *y = reinterpret_cast<two_floats *>(a.y);
    two_floats        s = {start[0], start[1]};
    bool              given = true; /* pads leave its bits */
    float             held[DRA_RUN];
    dra_run_load(x, a.x.row, 0, a.T, held);
    for (int64_t t = 0; t < a.T; t += DRA_RUN) {
        const dra_run_marks run = dra_run_marks_at(a.mark, at.b, t, a.T);
        dra_ahead           next = dra_ahead_at(x, a.x.row, t + DRA_RUN, a.T);
        DRA_UNROLL
        for (int i = 0; i < DRA_RUN; i++) {
            if (run.is_reset(i)) s = {0, 0};
            if (!run.is_pad(i)) s = add(given ? exact_sum(s.number, s.rest) : s, held[i]);
            given = given && run.is_pad(i);
            next.load(i, held + i);
            if (y && at.live && i < run.n) y[(at.b * a.T + t + i) * a.N + at.n] = s;
        }
    }
    if (a.last && at.live) reinterpret_cast<two_floats *>(a.last)[at.b * a.N + at.n] = s;
}

static const dra_tensor *sum_mark(const dra_call *c)
{
    const bool marked = static_cast<const dra_running_sum_attr *>(c->attr)->marked;
    return marked ? &c->in[c->n_in - 1] : nullptr;
}

static void sum_launch(const dra_call *c)
{
    const running_call a = call_of(c, sum_mark(c));
    if (a.B > 0 && a.N > 0)
        DRA_LAUNCH(c, sum_kernel, dra_channel_grid(a.B, a.N), DRA_RECUR_THREADS, 0, a);
}

const dra_cuda_kernel dra_cuda_running_sum = {
    {"running_sum", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, nullptr, nullptr},
    sum_launch,
    false};

/* ---- (dy (B, T, N), dlast (B, N)[, mark]) -> dx, dstart (B, N) ------------------------------- */

__global__ static void sum_back_kernel(const running_call a)
{
    const dra_channel at = dra_channel_here(a.N);
    const int64_t     last = (dra_div_up(a.T, DRA_RUN) - 1) * DRA_RUN;
    const float      *dy = dra_course_at(a.x, at);
    double            sum = a.start[at.b * a.start_batch + at.n * a.start_row];
    float             held[DRA_RUN];
    dra_run_load(dy, a.x.row, last, a.T, held);
    for (int64_t t = last; t >= 0; t -= DRA_RUN) {
        const dra_run_marks run = dra_run_marks_at(a.mark, at.b, t, a.T);
        dra_ahead           next = dra_behind_at(dy, a.x.row, t - DRA_RUN, a.T);
        DRA_UNROLL
        for (int i = DRA_RUN - 1; i >= 0; i--) {
            sum += held[i];
            next.load(i, held + i);
            if (a.y && at.live && i < run.n)
                a.y[(at.b * a.T + t + i) * a.N + at.n] = run.is_pad(i) ? 0 : (float)sum;
            if (run.is_reset(i)) sum = 0;
        }
    }
    if (a.last && at.live) a.last[at.b * a.N + at.n] = (float)sum;
}

static void sum_back_launch(const dra_call *c)
{
    const running_call a = call_of(c, sum_mark(c));
    if (a.B > 0 && a.N > 0)
        DRA_LAUNCH(c, sum_back_kernel, dra_channel_grid(a.B, a.N), DRA_RECUR_THREADS, 0, a);
}

const dra_cuda_kernel dra_cuda_running_sum_back = {
    {"running_sum_back", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, nullptr, nullptr},
    sum_back_launch,
    false};

/* ---- running_top: (top, start[, l][, mark]) -> mu, shift, last ------------------------------- */

__global__ static void top_kernel(const running_call a)
{
    const dra_channel at = dra_channel_here(a.N);
    const float      *top = dra_course_at(a.x, at), *l = dra_course_at(a.l, at);
    float             mu = a.start[at.b * a.start_batch + at.n * a.start_row];
    float             held_top[DRA_RUN], held_l[DRA_RUN];
    dra_run_load(top, a.x.row, 0, a.T, held_top);
    dra_run_load(l, a.l.row, 0, l ? a.T : 0, held_l);
    for (int64_t t = 0; t < a.T; t += DRA_RUN) {
        const dra_run_marks run = dra_run_marks_at(a.mark, at.b, t, a.T);
        dra_ahead           next_top = dra_ahead_at(top, a.x.row, t + DRA_RUN, a.T);
        dra_ahead           next_l = dra_ahead_at(l, a.l.row, t + DRA_RUN, l ? a.T : 0);
        int64_t             to = (at.b * a.T + t) * a.N + at.n;
        DRA_UNROLL
        for (int i = 0; i < DRA_RUN; i++) {
            const float old = run.is_reset(i) ? (float)DRA_WKV_EMPTY : mu;
            const float by = held_l[i], faded = old + by, now = held_top[i];
            const bool  pad = run.is_pad(i);
            mu = pad ? old : faded > now ? faded : now;
            next_top.load(i, held_top + i);
            next_l.load(i, held_l + i);
            if (a.y && at.live && i < run.n) a.y[to] = mu;
            if (a.shift && at.live && i < run.n) a.shift[to] = pad ? 0 : old - mu + by;
            to += a.N;
        }
    }
    if (a.last && at.live) a.last[at.b * a.N + at.n] = mu;
}

static void top_launch(const dra_call *c)
{
    const dra_running_top_attr *attr = static_cast<const dra_running_top_attr *>(c->attr);
    running_call                a = call_of(c, attr->mark ? &c->in[attr->mark] : nullptr);
    if (attr->l) a.l = dra_course_of(&c->in[attr->l]);
    a.shift = static_cast<float *>(c->out[1].data);
    if (a.B > 0 && a.N > 0)
        DRA_LAUNCH(c, top_kernel, dra_channel_grid(a.B, a.N), DRA_RECUR_THREADS, 0, a);
}

const dra_cuda_kernel dra_cuda_running_top = {
    {"running_top", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, nullptr, nullptr},
    top_launch,
    false};
