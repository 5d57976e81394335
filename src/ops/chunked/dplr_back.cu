/* The gradient of dplr, token by token from the last to the first; formulas in dplr.cuh. G is the
 * gradient of S_t, to which y_t adds q_t dy_t^T (with u: to that of S_{t-1}, at the end):
 *   dk = G v,  dc = G p,  dv = G^T k,  o = G^T c,  da = S_{t-1} o,  dq = S_t dy
 *   dl_f = e^(l_f) (G_f.S_{t-1,f}),   G = diag(e^l) G + a o^T
 * with u: dq = S_{t-1} dy + u k (v.dy), du = q k (v.dy), and so on for dk and dv.
 * First G after all chunks, by columns, which need no others; then all chunks at once, a block
 * each. There G is there twice: a thread has a row or a column of it, so that every sum is that of
 * one thread; only o passes from columns to rows. The states inside a chunk are made again from the
 * one before it, by rows: those before runs first, then those of a run. */
#include "ops/chunked/dplr.cuh"

enum { THREADS = DRA_THREADS }; /* where lines live in memory */

struct back_call {
    dra_dplr_call     x;
    dra_chunk_rows    p, dy;
    dra_chunk_borders borders;
    dra_chunk_state   S, dS;  /* the gradient of the last state, and that of the first */
    dra_chunk_borders after;  /* those of the states after all chunks */
    float            *memory; /* of columns that do not fit into registers */
    dra_chunk_rows    dq, dk, dv, dl, da, dc;
    dra_chunk_borders du;     /* (B, H, chunks, F) */
    float            *states; /* of a head: those before runs, before tokens; lines in memory */
};

enum { RUNS = DRA_DPLR_CHUNK / DRA_DPLR_RUN, STATES = RUNS + DRA_DPLR_RUN };
enum { LINES = 3 };                      /* in memory: rows of S, rows and columns of G */
enum { WIDE_V, WIDE_P, WIDE_DY, WIDES }; /* rows of width E of a token */

static __host__ __device__ int64_t room_of(int64_t F, int64_t E, int held)
{
    const int64_t rows = DRA_DPLR_RUN * (DRA_DPLR_BACK_ROWS * F + WIDES * E) + 2 * E;
    return STATES * F * E + (held ? 0 : LINES * F * E + rows);
}

/* What a block knows. HELD is the length of lines, rows and columns alike, or 0. */
template <int HELD> struct head_of {
    const back_call &a;
    dra_chunk_place  k; /* t: of the run */
    int              F, E, wide_F, wide_E;
    float           *rows, *wides, *o; /* of a run; o of two tokens */
    float           *states, *memory;
    dra_line<HELD>   S, G; /* S of a row; G of a row or a column */

    /* each(i) for the lines of this thread: rows (kind 0) or columns (1). */
    template <typename Each> __device__ void lines(bool columns, int n, Each each)
    {
        if constexpr (HELD > 0) {
            const int i = (int)threadIdx.x % HELD;
            if ((int)threadIdx.x / HELD == (int)columns && i < n) each(i);
        } else {
            for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
                const int64_t all = (int64_t)F * E;
                S.open(memory + i, F);
                G.open(memory + (columns ? 2 : 1) * all + i, columns ? E : F);
                each(i);
            }
        }
    }

    __device__ const float *row(int token, int which) const
    {
        return rows + (token * DRA_DPLR_BACK_ROWS + which) * wide_F;
    }
    __device__ const float *wide(int token, int which) const
    {
        return wides + (token * WIDES + which) * wide_E;
    }
    /* State number i of the head: element (f, e). */
    __device__ float &state(int i, int f, int e) { return states[((int64_t)i * E + e) * F + f]; }
};

template <int HELD> __device__ static void load_run(head_of<HELD> &h, int64_t t, int n)
{
    const back_call &a = h.a;
    h.k.t = t;
    dra_dplr_load(a.x, h.k, n, DRA_DPLR_BACK_ROWS, h.wide_F, h.rows);
    for (int i = (int)threadIdx.x; i < n * WIDES * h.wide_E; i += (int)blockDim.x) {
        const int  e = i % h.wide_E, which = i / h.wide_E % WIDES, token = i / h.wide_E / WIDES;
        const bool pad = dra_chunk_mark(a.x.z, h.k, token) & DRA_MARK_PAD;
        const dra_chunk_rows &of = which == WIDE_V ? a.x.v : which == WIDE_P ? a.p : a.dy;
        h.wides[i] = e < h.E && !pad ? dra_dplr_given(of, h.k, token, e) : 0;
    }
    __syncthreads();
}

/* S of row f over a token. */
template <int HELD> __device__ static inline void advance(head_of<HELD> &h, int token, int f)
{
    const float  less = h.row(token, DRA_DPLR_ROW_LESS)[f], c = h.row(token, DRA_DPLR_ROW_C)[f];
    const float  k = h.row(token, DRA_DPLR_ROW_K)[f];
    const float *v = h.wide(token, WIDE_V), *p = h.wide(token, WIDE_P);
    DRA_EACH_HELD(e, HELD, h.E) h.S[e] = fmaf(less, h.S[e], h.S[e]) + fmaf(c, p[e], k * v[e]);
}

template <int HELD> __device__ static inline bool resets(const head_of<HELD> &h, int token)
{
    return dra_chunk_mark(h.a.x.z, h.k, token) & DRA_MARK_RESET;
}

/* The states before all runs of the chunk, from the one before it. */
template <int HELD> __device__ static void states_of_runs(head_of<HELD> &h, int64_t t, int n)
{
    h.lines(false, h.F, [&](int f) {
        DRA_EACH_HELD(e, HELD, h.E) h.S[e] = e < h.E ? *dra_border_at(h.a.borders, h.k, f, e) : 0;
    });
    for (int run = 0; run * DRA_DPLR_RUN < n; run++) {
        h.lines(false, h.F, [&](int f) {
            DRA_EACH_HELD(e, HELD, h.E)
            if (e < h.E) h.state(run, f, e) = h.S[e];
        });
        if ((run + 1) * DRA_DPLR_RUN >= n) break;
        load_run<HELD>(h, t + run * DRA_DPLR_RUN, DRA_DPLR_RUN);
        h.lines(false, h.F, [&](int f) {
            for (int i = 0; i < DRA_DPLR_RUN; i++) {
                if (resets<HELD>(h, i)) dra_line_clear<HELD>(h.E, h.S);
                advance<HELD>(h, i, f);
            }
        });
    }
}

static __device__ inline void put(const dra_chunk_rows &to, const dra_chunk_place &k, int t, int i,
                                  float x)
{
    if (to.at) dra_chunk_row(to, k, t)[i] = x;
}

/* The states before all tokens of a run, and dq. */
template <int HELD> __device__ static void states_of_run(head_of<HELD> &h, int run, int n)
{
    const back_call &a = h.a;
    h.lines(false, h.F, [&](int f) {
        DRA_EACH_HELD(e, HELD, h.E) h.S[e] = e < h.E ? h.state(run, f, e) : 0;
        for (int i = 0; i < n; i++) {
            const float *dy = h.wide(i, WIDE_DY), *v = h.wide(i, WIDE_V);
            float        dq = 0;
            if (resets<HELD>(h, i)) dra_line_clear<HELD>(h.E, h.S);
            DRA_EACH_HELD(e, HELD, h.E)
            if (e < h.E) h.state(RUNS + i, f, e) = h.S[e];
            if (a.x.u)
                dq = fmaf(a.x.u[h.k.h * a.x.u_row + f] * h.row(i, DRA_DPLR_ROW_K)[f],
                          dra_line_dot<HELD>(h.E, v, dy), dra_line_dot<HELD>(h.E, h.S, dy));
            advance<HELD>(h, i, f);
            if (!a.x.u) dq = dra_line_dot<HELD>(h.E, h.S, dy);
            put(a.dq, h.k, i, f, dq);
        }
    });
}

/* Of a row before o is known: dk, dc, dl and with u du. */
template <int HELD> __device__ static inline void back_row(head_of<HELD> &h, int i, int f)
{
    const back_call &a = h.a;
    const float     *v = h.wide(i, WIDE_V), *dy = h.wide(i, WIDE_DY);
    const float      q = h.row(i, DRA_DPLR_ROW_Q)[f];
    const bool       pad = dra_chunk_mark(a.x.z, h.k, i) & DRA_MARK_PAD;
    if (!a.x.u) DRA_EACH_HELD(e, HELD, h.E) h.G[e] = fmaf(q, dy[e], h.G[e]);
    float dk = dra_line_dot<HELD>(h.E, h.G, v), dl = 0;
    if (a.x.u) {
        const float own = dra_line_dot<HELD>(h.E, v, dy) * q;
        dk = fmaf(a.x.u[h.k.h * a.x.u_row + f], own, dk);
        if (a.du.at)
            a.du.at[h.k.b * a.du.b + h.k.h * a.du.h + h.k.i * a.du.i + f] += own *
                                                                             h.row(
                                                                                 i,
                                                                                 DRA_DPLR_ROW_K)[f];
    }
    if (a.dl.at && !pad) {
        DRA_EACH_HELD(e, HELD, h.E)
        if (e < h.E) dl = fmaf(h.G[e], h.state(RUNS + i, f, e), dl);
        dl *= h.row(i, DRA_DPLR_ROW_D)[f];
    }
    put(a.dk, h.k, i, f, pad ? 0 : dk);
    put(a.dl, h.k, i, f, dl);
    put(a.dc, h.k, i, f, a.x.a.at ? dra_line_dot<HELD>(h.E, h.G, h.wide(i, WIDE_P)) : 0);
}

/* Of a column: dv and o. */
template <int HELD> __device__ static inline void back_column(head_of<HELD> &h, int i, int e)
{
    const back_call &a = h.a;
    const float     *q = h.row(i, DRA_DPLR_ROW_Q), *k = h.row(i, DRA_DPLR_ROW_K);
    const float     *ra = h.row(i, DRA_DPLR_ROW_A); /* with u: q u k */
    const float      dy = h.wide(i, WIDE_DY)[e];
    float            bonus = 0;
    if (!a.x.u) DRA_EACH_HELD(f, HELD, h.F) h.G[f] = fmaf(q[f], dy, h.G[f]);
    if (a.x.u) DRA_EACH_HELD(f, HELD, h.F) bonus += ra[f];
    put(a.dv, h.k, i, e, fmaf(bonus, dy, dra_line_dot<HELD>(h.F, h.G, k)));
    if (a.x.a.at)
        h.o[i % 2 * h.wide_E + e] = dra_line_dot<HELD>(h.F, h.G, h.row(i, DRA_DPLR_ROW_C));
}

/* da of a row, and G from after the token to before it, of rows and columns. */
template <int HELD> __device__ static inline void pass_row(head_of<HELD> &h, int i, int f)
{
    const back_call &a = h.a;
    const float     *o = h.o + i % 2 * h.wide_E, *dy = h.wide(i, WIDE_DY);
    const float      less = h.row(i, DRA_DPLR_ROW_LESS)[f], q = h.row(i, DRA_DPLR_ROW_Q)[f];
    const float      ra = h.row(i, DRA_DPLR_ROW_A)[f];
    float            da = 0;
    DRA_EACH_HELD(e, HELD, h.E)
    if (e < h.E && a.da.at) da = fmaf(o[e], h.state(RUNS + i, f, e), da);
    put(a.da, h.k, i, f, da);
    DRA_EACH_HELD(e, HELD, h.E)
    h.G[e] = fmaf(less, h.G[e], h.G[e]) + (a.x.a.at ? ra * o[e] : a.x.u ? q * dy[e] : 0);
    if (resets<HELD>(h, i)) dra_line_clear<HELD>(h.E, h.G);
}

template <int HELD> __device__ static inline void pass_column(head_of<HELD> &h, int i, int e)
{
    const back_call &a = h.a;
    const float     *less = h.row(i, DRA_DPLR_ROW_LESS), *q = h.row(i, DRA_DPLR_ROW_Q);
    const float     *ra = h.row(i, DRA_DPLR_ROW_A);
    const float      o = a.x.a.at ? h.o[i % 2 * h.wide_E + e] : 0, dy = h.wide(i, WIDE_DY)[e];
    DRA_EACH_HELD(f, HELD, h.F)
    h.G[f] = fmaf(less[f], h.G[f], h.G[f]) + (a.x.a.at ? ra[f] * o : a.x.u ? q[f] * dy : 0);
    if (resets<HELD>(h, i)) dra_line_clear<HELD>(h.F, h.G);
}

template <int HELD> __device__ static void back_run(head_of<HELD> &h, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        h.lines(true, h.E, [&](int e) { back_column<HELD>(h, i, e); });
        h.lines(false, h.F, [&](int f) { back_row<HELD>(h, i, f); });
        if (h.a.x.a.at) __syncthreads(); /* o is there */
        h.lines(true, h.E, [&](int e) { pass_column<HELD>(h, i, e); });
        h.lines(false, h.F, [&](int f) { pass_row<HELD>(h, i, f); });
    }
}

/* G of the state after the chunk. */
template <int HELD> __device__ static void open_gradients(head_of<HELD> &h)
{
    h.lines(false, h.F, [&](int f) {
        DRA_EACH_HELD(e, HELD, h.E) h.G[e] = e < h.E ? *dra_border_at(h.a.after, h.k, f, e) : 0;
    });
    h.lines(true, h.E, [&](int e) {
        DRA_EACH_HELD(f, HELD, h.F) h.G[f] = f < h.F ? *dra_border_at(h.a.after, h.k, f, e) : 0;
    });
}

template <int HELD> __device__ static void back_chunk(head_of<HELD> &h, int i)
{
    const back_call &a = h.a;
    h.k.i = i;
    const int64_t t = (int64_t)i * DRA_DPLR_CHUNK, left = a.x.z.T - t;
    const int     n = left < DRA_DPLR_CHUNK ? (int)left : DRA_DPLR_CHUNK;
    h.lines(false, h.F, [&](int f) {
        if (a.du.at) a.du.at[h.k.b * a.du.b + h.k.h * a.du.h + i * a.du.i + f] = 0;
    });
    open_gradients<HELD>(h);
    states_of_runs<HELD>(h, t, n);
    for (int run = (n - 1) / DRA_DPLR_RUN; run >= 0; run--) {
        const int rest = n - run * DRA_DPLR_RUN, many = rest < DRA_DPLR_RUN ? rest : DRA_DPLR_RUN;
        load_run<HELD>(h, t + run * DRA_DPLR_RUN, many);
        states_of_run<HELD>(h, run, many);
        back_run<HELD>(h, many);
    }
}

template <int HELD>
__global__ static void __launch_bounds__(HELD ? 2 * HELD : THREADS) back_kernel(const back_call a)
{
    DRA_SHARED(float, shared);
    const dra_chunks &z = a.x.z;
    const int64_t     all = (int64_t)z.F * z.E;
    const int         wide_F = HELD ? HELD : z.F, wide_E = HELD ? HELD : z.E;
    float *const      states = a.states + blockIdx.x * room_of(z.F, z.E, HELD);
    float *const      memory = states + STATES * all; /* lines */
    float *const      rows = HELD ? shared : memory + LINES * all;
    float *const      wides = rows + DRA_DPLR_RUN * DRA_DPLR_BACK_ROWS * wide_F;
    float *const      o = wides + DRA_DPLR_RUN * WIDES * wide_E;
    for (int e = (int)threadIdx.x; e < 2 * wide_E; e += (int)blockDim.x) o[e] = 0;
    for (int64_t i = blockIdx.x; i < z.heads * z.chunks; i += gridDim.x) {
        const int64_t         head = i / z.chunks;
        const dra_chunk_place k = {head, head / z.H, head % z.H, 0, 0, 0};
        head_of<HELD>         h = {a, k, z.F, z.E, wide_F, wide_E, rows, wides, o, states, memory};
        back_chunk<HELD>(h, (int)(i % z.chunks));
    }
}

/* ---- G after all chunks ---------------------------------------------------------------------- */

/* n tokens of a run, from the last to the first. */
template <int HELD>
__device__ static inline void pass_run(const back_call &a, dra_dplr_column<HELD> &at, int n,
                                       const float (*dy)[DRA_DPLR_COLUMNS])
{
    const int F = a.x.z.F;
    for (int i = n - 1; i >= 0; i--) {
        const int    mark = dra_chunk_mark(a.x.z, at.k, i);
        const float  g = mark & DRA_MARK_PAD ? 0 : dy[i][threadIdx.x];
        const float *q = at.row(i, DRA_DPLR_ROW_Q), *less = at.row(i, DRA_DPLR_ROW_LESS);
        const float *ra = a.x.u ? q : at.row(i, DRA_DPLR_ROW_A);
        if (!a.x.u) DRA_EACH_HELD(f, HELD, F) at.s[f] = fmaf(q[f], g, at.s[f]);
        const float o = a.x.u      ? g
                        : a.x.a.at ? dra_line_dot<HELD>(F, at.s, at.row(i, DRA_DPLR_ROW_C))
                                   : 0;
        DRA_EACH_HELD(f, HELD, F) at.s[f] = fmaf(ra[f], o, fmaf(less[f], at.s[f], at.s[f]));
        if (mark & DRA_MARK_RESET) dra_line_clear<HELD>(F, at.s);
    }
}

template <int HELD>
__global__ static void __launch_bounds__(DRA_DPLR_COLUMNS) pass_kernel(const back_call a)
{
    DRA_SHARED(float, shared);
    __shared__ float      dy[DRA_DPLR_RUN][DRA_DPLR_COLUMNS];
    const dra_chunks     &z = a.x.z;
    dra_dplr_column<HELD> at;
    at.open(z, a.memory, shared, a.S);
    for (int64_t run = dra_div_up(z.T, DRA_DPLR_RUN) - 1; run >= 0; run--) {
        const int64_t left = z.T - run * DRA_DPLR_RUN;
        const int     n = left < DRA_DPLR_RUN ? (int)left : (int)DRA_DPLR_RUN;
        at.k.t = run * DRA_DPLR_RUN, at.k.i = (int)(at.k.t / DRA_DPLR_CHUNK);
        const bool last = at.k.t + n == z.T || (at.k.t + n) % DRA_DPLR_CHUNK == 0; /* of a chunk */
        if (last && at.live) at.store(z, dra_border_at(a.after, at.k, 0, at.e), a.after.f);
        if (at.k.i == 0 && !a.dS.at) return;
        for (int i = 0; i < n && at.live; i++)
            dy[i][threadIdx.x] = dra_chunk_row(a.dy, at.k, i)[at.e];
        dra_dplr_load(a.x, at.k, n, DRA_DPLR_ROWS, at.wide, at.rows);
        if (at.live) pass_run<HELD>(a, at, n, dy);
    }
    if (a.dS.at && at.live) at.store(z, at.in(a.dS), a.dS.f);
}

/* ---- launches -------------------------------------------------------------------------------- */

enum { BLOCKS = 512 }; /* at most, of chunks: each has memory of its own */

static int held_of(const dra_call *c)
{
    const int64_t F = dra_last(&c->in[DRA_DPLR_Q]), E = dra_last(&c->in[DRA_DPLR_V]);
    return dra_imax(F, E) <= DRA_DPLR_FEW ? DRA_DPLR_FEW : 0; /* two longer ones do not fit */
}

static int64_t chunks_of(const dra_call *c)
{
    const int64_t *q = c->in[DRA_DPLR_Q].shape.dim;
    return q[0] * q[2] * dra_div_up(q[1], DRA_DPLR_CHUNK);
}

/* G after all chunks, columns, then what blocks of chunks have. */
static size_t scratch(const dra_call *c)
{
    const int64_t F = dra_last(&c->in[DRA_DPLR_Q]), E = dra_last(&c->in[DRA_DPLR_V]);
    const int64_t all = chunks_of(c), blocks = dra_imin(all, BLOCKS);
    const int64_t each = room_of(F, E, held_of(c));
    return (size_t)(all * F * E + dra_dplr_column_room(c) + blocks * each) * sizeof(float);
}

template <int HELD> static void launch_chunks(const dra_call *c, const back_call &a)
{
    const int      rows = DRA_DPLR_RUN * (DRA_DPLR_BACK_ROWS + WIDES) + 2;
    const unsigned blocks = (unsigned)dra_imin(chunks_of(c), BLOCKS);
    DRA_LAUNCH(c, back_kernel<HELD>, blocks, HELD ? 2 * HELD : THREADS,
               rows * HELD * (int)sizeof(float), a);
}

static void launch(const dra_call *c)
{
    const dra_dplr_attr *at = static_cast<const dra_dplr_attr *>(c->attr);
    back_call            a = {};
    a.x = dra_dplr_call_of(c);
    if (a.x.z.heads == 0) return;
    a.dy = dra_chunk_rows_of(&c->in[at->dy]);
    a.p = dra_chunk_rows_of(at->recalled ? &c->in[at->recalled] : nullptr);
    a.borders = dra_chunk_borders_of(&c->in[at->borders]);
    a.S = dra_chunk_state_of(at->S ? &c->in[at->S] : nullptr);
    a.dS = dra_chunk_state_of(&c->out[DRA_DPLR_DS]);
    a.dq = dra_chunk_rows_of(&c->out[DRA_DPLR_DQ]);
    a.dk = dra_chunk_rows_of(&c->out[DRA_DPLR_DK]);
    a.dv = dra_chunk_rows_of(&c->out[DRA_DPLR_DV]);
    if (at->l) a.dl = dra_chunk_rows_of(&c->out[DRA_DPLR_DL]);
    if (at->u) a.du = dra_chunk_borders_of(&c->out[DRA_DPLR_DU]);
    if (at->a) a.da = dra_chunk_rows_of(&c->out[DRA_DPLR_DA]);
    if (at->a) a.dc = dra_chunk_rows_of(&c->out[DRA_DPLR_DC]);
    float *memory = static_cast<float *>(c->scratch);
    a.after = dra_chunk_borders_in(a.x.z, memory, a.x.z.E);
    a.memory = memory + chunks_of(c) * a.x.z.F * a.x.z.E;
    a.states = a.memory + dra_dplr_column_room(c);
    if (a.x.z.E > 0) DRA_LAUNCH_COLUMNS(c, pass_kernel, a.x.z.F, a);
    if (a.x.z.T == 0) return;
    if (held_of(c))
        launch_chunks<DRA_DPLR_FEW>(c, a);
    else
        launch_chunks<0>(c, a);
}

const dra_cuda_kernel dra_cuda_dplr_back = {
    {"dplr_back", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, scratch, nullptr},
    launch,
    false};
