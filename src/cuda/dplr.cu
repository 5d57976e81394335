/* dplr: matrices that fade by channel and may be corrected by rank one; formulas in ops/dplr.h. A
 * thread has a column of the state and needs no other: a block has DRA_DPLR_FEW of them. */
#include "cuda/dplr.h"

enum { COLUMNS = DRA_DPLR_FEW };

struct forward_call {
    dra_dplr_call     x;
    dra_chunk_rows    y, p;
    dra_chunk_state   S, last;
    dra_chunk_borders borders;
    float            *columns, *rows; /* in memory, where they do not fit elsewhere */
};

struct column { /* the thread's, e of its head */
    dra_chunk_place k;
    int             e;
    bool            live;
};

/* One token of the run: y and p. rows: of this token. */
template <int HELD>
__device__ static inline float step(const forward_call &a, float v, const float *rows, int wide,
                                    dra_line<HELD> &s, float *p)
{
    const int    F = a.x.z.F;
    const float *q = rows + DRA_DPLR_ROW_Q * wide, *k = rows + DRA_DPLR_ROW_K * wide;
    const float *less = rows + DRA_DPLR_ROW_LESS * wide, *c = rows + DRA_DPLR_ROW_C * wide;
    const float *ra = rows + DRA_DPLR_ROW_A * wide; /* with u: q u k */
    float        y = 0, bonus = 0;
    *p = a.x.a.at ? dra_line_dot<HELD>(F, ra, s) : 0;
    if (a.x.u) {
        y = dra_line_dot<HELD>(F, q, s);
        DRA_EACH_HELD(f, HELD, F) bonus += ra[f];
    }
    DRA_EACH_HELD(f, HELD, F)
    s[f] = fmaf(less[f], s[f], s[f]) + fmaf(c[f], *p, k[f] * v);
    return a.x.u ? fmaf(bonus, v, y) : dra_line_dot<HELD>(F, q, s);
}

template <int HELD>
__device__ static inline void store_border(const forward_call &a, const column &at, int64_t t,
                                           dra_line<HELD> &s)
{
    if (!a.borders.at || t % DRA_CHUNK || !at.live) return;
    dra_chunk_place k = at.k;
    k.i = (int)(t / DRA_CHUNK);
    DRA_EACH_HELD(f, HELD, a.x.z.F)
    if (f < a.x.z.F) *dra_border_at(a.borders, k, f, at.e) = s[f];
}

template <int HELD>
__global__ static void __launch_bounds__(COLUMNS) forward_kernel(const forward_call a)
{
    DRA_SHARED(float, shared);
    __shared__ float  v[DRA_DPLR_RUN][COLUMNS]; /* of a run, all asked for at once */
    const dra_chunks &z = a.x.z;
    const int         tiles = (z.E + COLUMNS - 1) / COLUMNS, wide = HELD ? HELD : z.F;
    const int64_t     head = blockIdx.x / tiles;
    const int         e = (int)(blockIdx.x % tiles) * COLUMNS + (int)threadIdx.x;
    const column      at = {{head, head / z.H, head % z.H, 0, 0, 0}, e, e < z.E};
    const int64_t     room = DRA_DPLR_RUN * DRA_DPLR_ROWS * wide;
    float *const      rows = HELD ? shared : a.rows + blockIdx.x * room;
    dra_line<HELD>    s;
    s.open(a.columns + head * z.F * z.E + (at.live ? e : 0), z.E);
    dra_chunk_place k = at.k;
    if (at.live) DRA_EACH_HELD(f, HELD, z.F)
    s[f] = a.S.at && f < z.F ? a.S.at[k.b * a.S.b + k.h * a.S.h + f * a.S.f + e] : 0;
    for (; k.t < z.T; k.t += DRA_DPLR_RUN) {
        const int n = z.T - k.t < DRA_DPLR_RUN ? (int)(z.T - k.t) : DRA_DPLR_RUN;
        for (int i = 0; i < n && at.live; i++) v[i][threadIdx.x] = dra_chunk_row(a.x.v, k, i)[e];
        dra_dplr_load(a.x, k, n, DRA_DPLR_ROWS, wide, rows);
        for (int i = 0; i < n && at.live; i++) {
            const int mark = dra_chunk_mark(z, k, i);
            float     p = 0, y = 0;
            if (mark & DRA_MARK_RESET) dra_line_clear<HELD>(z.F, s);
            store_border<HELD>(a, at, k.t + i, s);
            if (!(mark & DRA_MARK_PAD))
                y = step<HELD>(a, v[i][threadIdx.x], rows + i * DRA_DPLR_ROWS * wide, wide, s, &p);
            if (a.y.at) dra_chunk_row(a.y, k, i)[e] = y;
            if (a.p.at) dra_chunk_row(a.p, k, i)[e] = p;
        }
    }
    if (!a.last.at || !at.live) return;
    DRA_EACH_HELD(f, HELD, z.F)
    if (f < z.F) a.last.at[k.b * a.last.b + k.h * a.last.h + f * a.last.f + e] = s[f];
}

static int64_t blocks_of(const dra_call *c)
{
    const int64_t *q = c->in[DRA_DPLR_Q].shape.dim;
    return q[0] * q[2] * dra_div_up(dra_last(&c->in[DRA_DPLR_V]), COLUMNS);
}

/* Columns of the states, then rows of runs. */
static size_t scratch(const dra_call *c)
{
    const int64_t *q = c->in[DRA_DPLR_Q].shape.dim, F = q[3], E = dra_last(&c->in[DRA_DPLR_V]);
    if (dra_dplr_held((int)F)) return 0;
    const int64_t rows = blocks_of(c) * DRA_DPLR_RUN * DRA_DPLR_ROWS * F;
    return (size_t)(q[0] * q[2] * F * E + rows) * sizeof(float);
}

template <int HELD> static void launch_held(const dra_call *c, const forward_call &a)
{
    const int shared = DRA_DPLR_RUN * DRA_DPLR_ROWS * HELD * (int)sizeof(float);
    DRA_LAUNCH(c, forward_kernel<HELD>, (unsigned)blocks_of(c), COLUMNS, shared, a);
}

static void launch(const dra_call *c)
{
    const dra_dplr_attr *at = static_cast<const dra_dplr_attr *>(c->attr);
    forward_call         a = {};
    if (blocks_of(c) == 0) return;
    a.x = dra_dplr_call_of(c);
    a.y = dra_chunk_rows_of(&c->out[DRA_DPLR_Y]);
    if (at->a) a.p = dra_chunk_rows_of(&c->out[DRA_DPLR_RECALLED]);
    a.S = dra_chunk_state_of(at->S ? &c->in[at->S] : nullptr);
    a.last = dra_chunk_state_of(&c->out[DRA_DPLR_LAST]);
    a.borders = dra_chunk_borders_of(&c->out[DRA_DPLR_BORDERS]);
    a.columns = static_cast<float *>(c->scratch);
    a.rows = a.columns + a.x.z.heads * a.x.z.F * a.x.z.E;
    switch (dra_dplr_held(a.x.z.F)) {
    case DRA_DPLR_FEW: launch_held<DRA_DPLR_FEW>(c, a); break;
    case DRA_DPLR_MOST: launch_held<DRA_DPLR_MOST>(c, a); break;
    default: launch_held<0>(c, a);
    }
}

/* A thread reads its column of the first state before it writes there. */
static uint32_t takes(const void *attr, int out)
{
    const dra_dplr_attr *a = static_cast<const dra_dplr_attr *>(attr);
    return out == DRA_DPLR_LAST && a->S ? 1u << a->S : 0;
}

const dra_cuda_kernel dra_cuda_dplr = {
    {"dplr", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, scratch, takes},
    launch,
    false};
