/* wkv of RWKV-4; formulas as in wkv.c. */
#include "ops/recurrent/recur.cuh"

enum { STATE = 3 }; /* A, B, p */
enum { K, V, W, U, START, MARK = START + STATE };
enum { Y, LAST, BORDERS = LAST + STATE };
enum { BACK_BORDERS = U + 1, DY, DLAST, BACK_MARK = DLAST + 2 };
enum { DK, DV, DW, DU, DSTART };

struct states { /* (B, C) */
    float  *data;
    int64_t batch;

    __device__ float *at(dra_channel c) const { return data + c.b * batch + c.n; }
};

static states states_of(const dra_tensor *x)
{
    return {static_cast<float *>(x->data), x->stride[0]};
}

struct wkv_call {
    int64_t      B, T, C;
    dra_course   k, v, y; /* backward: y is dy */
    const float *w, *u;   /* (C) */
    states       start[STATE], last[STATE];
    float       *borders; /* (B, runs, STATE, C) */
    int64_t      border_batch, border_run, border_row;
    dra_marks    mark;
    float       *dk, *dv; /* dense, as all outputs */
    states       dlast[2], dstart[2];
    float       *part; /* dw, du: (2, B, C) */
};

static wkv_call call_of(const dra_call *c, const dra_tensor *y, const dra_tensor *borders, int mark)
{
    const dra_shape s = c->in[K].shape;
    wkv_call        a = {};
    a.B = s.dim[0], a.T = s.dim[1], a.C = s.dim[2];
    a.k = dra_course_of(&c->in[K]);
    a.v = dra_course_of(&c->in[V]);
    a.y = dra_course_of(y);
    a.w = static_cast<const float *>(c->in[W].data);
    a.u = static_cast<const float *>(c->in[U].data);
    a.borders = static_cast<float *>(borders->data);
    a.border_batch = borders->stride[0], a.border_run = borders->stride[1];
    a.border_row = borders->stride[2];
    a.mark = dra_marks_of(c->n_in > mark ? &c->in[mark] : nullptr);
    return a;
}

/* ---- a step ---------------------------------------------------------------------------------- */

struct wkv_state {
    float A, B, p;
};

struct weights {
    float old, token;

    __device__ float blend(float a, float x) const { return fmaf(old, a, token * x); }
};

/* e^(a - q) and e^(b - q), q = max(a, b): one of the two is 1, the other e^-|a - b|. */
__device__ static weights share_out(float d) /* a - b */
{
    const float e = expf(-fabsf(d));
    return d < 0 ? weights{e, 1} : weights{1, e};
}

__device__ static wkv_state wkv_next(wkv_state s, float k, float v, float w)
{
    const float   faded = s.p + w;
    const weights f = share_out(faded - k);
    return {f.blend(s.A, v), f.blend(s.B, 1), fmaxf(faded, k)};
}

/* Before a token: as the one before it left it, or empty after a reset. */
__device__ static wkv_state wkv_before(wkv_state s, bool reset)
{
    return reset ? wkv_state{0, 0, (float)DRA_WKV_EMPTY} : s;
}

__device__ static float *border_at(const wkv_call &a, dra_channel at, int64_t run)
{
    return a.borders + at.b * a.border_batch + run * a.border_run + at.n;
}

/* ---- forward: (k, v, w, u, A, B, p[, mark]) -> y, A, B, p, the states before each run -------- */

__device__ static void put_border(const wkv_call &a, dra_channel at, int64_t run, wkv_state s)
{
    float *to = border_at(a, at, run);
    to[0] = s.A, to[a.border_row] = s.B, to[2 * a.border_row] = s.p;
}

__global__ static void __launch_bounds__(DRA_RECUR_THREADS) wkv_kernel(const wkv_call a)
{
    const dra_channel at = dra_channel_here(a.C);
    const float      *k = dra_course_at(a.k, at), *v = dra_course_at(a.v, at);
    const float       w = a.w[at.n], u = a.u[at.n];
    float            *y = dra_course_at(a.y, at), held_k[DRA_RUN], held_v[DRA_RUN];
    wkv_state         s = {*a.start[0].at(at), *a.start[1].at(at), *a.start[2].at(at)};
    dra_run_load(k, a.k.row, 0, a.T, held_k);
    dra_run_load(v, a.v.row, 0, a.T, held_v);
    for (int64_t t = 0; t < a.T; t += DRA_RUN) {
        const dra_run_marks run = dra_run_marks_at(a.mark, at.b, t, a.T);
        dra_ahead           next_k = dra_ahead_at(k, a.k.row, t + DRA_RUN, a.T);
        dra_ahead           next_v = dra_ahead_at(v, a.v.row, t + DRA_RUN, a.T);
        if (a.borders && at.live) put_border(a, at, t / DRA_RUN, s);
        DRA_UNROLL
        for (int i = 0; i < DRA_RUN; i++) {
            const float now_k = held_k[i], now_v = held_v[i];
            const bool  pad = run.is_pad(i);
            next_k.load(i, held_k + i);
            next_v.load(i, held_v + i);
            s = wkv_before(s, run.is_reset(i));
            const weights e = share_out(s.p - (u + now_k));
            if (y && at.live && i < run.n)
                y[(t + i) * a.y.row] = pad ? 0 : e.blend(s.A, now_v) / e.blend(s.B, 1);
            if (!pad) s = wkv_next(s, now_k, now_v, w);
        }
    }
    const float last[STATE] = {s.A, s.B, s.p};
    DRA_UNROLL
    for (int i = 0; i < STATE; i++)
        if (a.last[i].data && at.live) *a.last[i].at(at) = last[i];
}

static void wkv_launch(const dra_call *c)
{
    wkv_call a = call_of(c, &c->out[Y], &c->out[BORDERS], MARK);
    for (int i = 0; i < STATE; i++) {
        a.start[i] = states_of(&c->in[START + i]);
        a.last[i] = states_of(&c->out[LAST + i]);
    }
    DRA_LAUNCH(c, wkv_kernel, dra_channel_grid(a.B, a.C), DRA_RECUR_THREADS, 0, a);
}

/* A thread reads its part of the state first and writes it last. */
static uint32_t takes(const void *, int out)
{
    return out >= LAST && out < BORDERS ? 1u << (START + out - LAST) : 0;
}

const dra_cuda_kernel dra_cuda_wkv = {
    {"wkv", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, nullptr, takes},
    wkv_launch,
    false};

/* ---- backward: (k, v, w, u, borders, dy, dA, dB[, mark]) -> dk, dv, dw, du, dA, dB ----------- */

struct wkv_grads {
    float dA, dB, dw, du;
};

/* One token; s is the state before it. */
__device__ static void back_step(wkv_state s, float k, float v, float w, float u, float dy,
                                 wkv_grads &g, float *dk, float *dv)
{
    const weights e = share_out(s.p - (u + k)), f = share_out(s.p + w - k);
    const float   share = 1 / e.blend(s.B, 1), c = dy * share;
    const float   y = e.blend(s.A, v) * share, far = v - y;
    const float   own = c * e.token, kept = c * e.old;
    *dv = fmaf(f.token, g.dA, own);
    *dk = fmaf(f.token, fmaf(g.dA, v, g.dB), own * far);
    g.du = fmaf(own, far, g.du);
    g.dw = fmaf(f.old, fmaf(s.A, g.dA, s.B * g.dB), g.dw);
    g.dA = fmaf(f.old, g.dA, kept);
    g.dB = fmaf(-kept, y, f.old * g.dB);
}

__device__ static void put_state(volatile wkv_state *to, wkv_state s)
{
    to->A = s.A, to->B = s.B, to->p = s.p;
}

__device__ static wkv_state get_state(const volatile wkv_state *s) { return {s->A, s->B, s->p}; }

/* Where a gradient (B, T, C) of the channel goes; NULL: nowhere. */
__device__ static float *grad_at(const wkv_call &a, float *data, dra_channel at)
{
    return data && at.live ? data + at.b * a.T * a.C + at.n : nullptr;
}

__global__ static void __launch_bounds__(DRA_RECUR_THREADS) back_kernel(const wkv_call a)
{
    __shared__ volatile wkv_state before[DRA_RUN][DRA_RECUR_THREADS]; /* else in registers */
    const dra_channel             at = dra_channel_here(a.C);
    const int64_t                 runs = dra_div_up(a.T, DRA_RUN);
    const float                  *k = dra_course_at(a.k, at), *v = dra_course_at(a.v, at);
    const float                  *dy = dra_course_at(a.y, at), w = a.w[at.n], u = a.u[at.n];
    float                        *dk = grad_at(a, a.dk, at), *dv = grad_at(a, a.dv, at);
    float                         held_k[DRA_RUN], held_v[DRA_RUN], held_dy[DRA_RUN];
    wkv_grads                     g = {*a.dlast[0].at(at), *a.dlast[1].at(at), 0, 0};
    dra_run_load(k, a.k.row, (runs - 1) * DRA_RUN, a.T, held_k);
    dra_run_load(v, a.v.row, (runs - 1) * DRA_RUN, a.T, held_v);
    dra_run_load(dy, a.y.row, (runs - 1) * DRA_RUN, a.T, held_dy);
    for (int64_t t = (runs - 1) * DRA_RUN; t >= 0; t -= DRA_RUN) {
        const dra_run_marks run = dra_run_marks_at(a.mark, at.b, t, a.T);
        dra_ahead           next_k = dra_behind_at(k, a.k.row, t - DRA_RUN, a.T);
        dra_ahead           next_v = dra_behind_at(v, a.v.row, t - DRA_RUN, a.T);
        dra_ahead           next_dy = dra_behind_at(dy, a.y.row, t - DRA_RUN, a.T);
        const float        *border = border_at(a, at, t / DRA_RUN);
        wkv_state           s = {border[0], border[a.border_row], border[2 * a.border_row]};
        DRA_UNROLL
        for (int i = 0; i < DRA_RUN; i++) {
            s = wkv_before(s, run.is_reset(i));
            put_state(&before[i][threadIdx.x], s);
            if (!run.is_pad(i)) s = wkv_next(s, held_k[i], held_v[i], w);
        }
        DRA_UNROLL
        for (int i = DRA_RUN - 1; i >= 0; i--) {
            float own_dk = 0, own_dv = 0;
            if (!run.is_pad(i))
                back_step(get_state(&before[i][threadIdx.x]), held_k[i], held_v[i], w, u,
                          held_dy[i], g, &own_dk, &own_dv);
            if (run.is_reset(i)) g.dA = g.dB = 0;
            if (dk && i < run.n) dk[(t + i) * a.C] = own_dk;
            if (dv && i < run.n) dv[(t + i) * a.C] = own_dv;
            next_k.load(i, held_k + i);
            next_v.load(i, held_v + i);
            next_dy.load(i, held_dy + i);
        }
    }
    if (!at.live) return;
    a.part[at.b * a.C + at.n] = g.dw;
    a.part[(a.B + at.b) * a.C + at.n] = g.du;
    if (a.dstart[0].data) *a.dstart[0].at(at) = g.dA;
    if (a.dstart[1].data) *a.dstart[1].at(at) = g.dB;
}

/* Scratch: dw and du of each row of the batch, then that of their sums. */
static dra_tensor part_of(const dra_call *c, int i)
{
    const int64_t B = c->in[K].shape.dim[0], C = c->in[K].shape.dim[2];
    const int64_t dim[] = {B, C}, stride[] = {C, 1};
    return dra_scratch_tensor(static_cast<float *>(c->scratch) + i * B * C, 2, dim, stride);
}

static size_t part_bytes(const dra_call *c)
{
    return 2 * (size_t)(c->in[K].shape.dim[0] * c->in[K].shape.dim[2]) * sizeof(float);
}

static size_t back_scratch(const dra_call *c)
{
    const dra_tensor part = part_of(c, 0);
    return part_bytes(c) + dra_recur_sum_scratch(&part, 0);
}

static void back_launch(const dra_call *c)
{
    wkv_call a = call_of(c, &c->in[DY], &c->in[BACK_BORDERS], BACK_MARK);
    a.dk = static_cast<float *>(c->out[DK].data);
    a.dv = static_cast<float *>(c->out[DV].data);
    for (int i = 0; i < 2; i++) {
        a.dlast[i] = states_of(&c->in[DLAST + i]);
        a.dstart[i] = states_of(&c->out[DSTART + i]);
    }
    a.part = static_cast<float *>(c->scratch);
    if (a.B > 0 && a.C > 0)
        DRA_LAUNCH(c, back_kernel, dra_channel_grid(a.B, a.C), DRA_RECUR_THREADS, 0, a);
    for (int i = 0; i < 2; i++) {
        const dra_tensor part = part_of(c, i);
        dra_recur_sum(c, &part, 0, static_cast<char *>(c->scratch) + part_bytes(c),
                      c->out[DW + i].data);
    }
}

const dra_cuda_kernel dra_cuda_wkv_back = {
    {"wkv_back", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, back_scratch, nullptr},
    back_launch,
    false};
