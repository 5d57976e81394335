/* dplr: matrices that fade by channel and may be corrected by rank one; formulas in dplr.cuh. A
 * thread has a column of the state and needs no other. */
#include "ops/chunked/dplr.cuh"

struct forward_call {
    dra_dplr_call     x;
    dra_chunk_rows    y, p;
    dra_chunk_state   S, last;
    dra_chunk_borders borders;
    float            *memory; /* of columns that do not fit into registers */
};

/* Token i of the run: y and p. */
template <int HELD>
__device__ static inline float step(const forward_call &a, dra_dplr_column<HELD> &at, int i,
                                    float v, float *p)
{
    const int    F = a.x.z.F;
    const float *q = at.row(i, DRA_DPLR_ROW_Q), *k = at.row(i, DRA_DPLR_ROW_K);
    const float *less = at.row(i, DRA_DPLR_ROW_LESS), *c = at.row(i, DRA_DPLR_ROW_C);
    const float *ra = at.row(i, DRA_DPLR_ROW_A); /* with u: q u k */
    float        y = 0, bonus = 0;
    *p = a.x.a.at ? dra_line_dot<HELD>(F, ra, at.s) : 0;
    if (a.x.u) {
        y = dra_line_dot<HELD>(F, q, at.s);
        DRA_EACH_HELD(f, HELD, F) bonus += ra[f];
    }
    DRA_EACH_HELD(f, HELD, F)
    {
        at.s[f] = fmaf(less[f], at.s[f], at.s[f]) + fmaf(c[f], *p, k[f] * v);
    }
    return a.x.u ? fmaf(bonus, v, y) : dra_line_dot<HELD>(F, q, at.s);
}

/* n tokens. */
template <int HELD>
__device__ static inline void run(const forward_call &a, dra_dplr_column<HELD> &at, int n,
                                  const float (*v)[DRA_DPLR_COLUMNS])
{
    const dra_chunks &z = a.x.z;
    for (int i = 0; i < n; i++) {
        const int mark = dra_chunk_mark(z, at.k, i);
        float     p = 0, y = 0;
        if (mark & DRA_MARK_RESET) dra_line_clear<HELD>(z.F, at.s);
        if (a.borders.at && (at.k.t + i) % DRA_DPLR_CHUNK == 0) {
            at.k.i = (int)(at.k.t / DRA_DPLR_CHUNK);
            at.store(z, dra_border_at(a.borders, at.k, 0, at.e), a.borders.f);
        }
        if (!(mark & DRA_MARK_PAD)) y = step<HELD>(a, at, i, v[i][threadIdx.x], &p);
        if (a.y.at) dra_chunk_row(a.y, at.k, i)[at.e] = y;
        if (a.p.at) dra_chunk_row(a.p, at.k, i)[at.e] = p;
    }
}

template <int HELD>
__global__ static void __launch_bounds__(DRA_DPLR_COLUMNS) forward_kernel(const forward_call a)
{
    DRA_SHARED(float, shared);
    __shared__ float      v[DRA_DPLR_RUN][DRA_DPLR_COLUMNS]; /* of a run, all asked for at once */
    const dra_chunks     &z = a.x.z;
    dra_dplr_column<HELD> at;
    at.open(z, a.memory, shared, a.S);
    for (; at.k.t < z.T; at.k.t += DRA_DPLR_RUN) {
        const int n = z.T - at.k.t < DRA_DPLR_RUN ? (int)(z.T - at.k.t) : (int)DRA_DPLR_RUN;
        for (int i = 0; i < n && at.live; i++)
            v[i][threadIdx.x] = dra_chunk_row(a.x.v, at.k, i)[at.e];
        dra_dplr_load(a.x, at.k, n, DRA_DPLR_ROWS, at.wide, at.rows);
        if (at.live) run<HELD>(a, at, n, v);
    }
    if (a.last.at && at.live) at.store(z, at.in(a.last), a.last.f);
}

static size_t scratch(const dra_call *c) { return (size_t)dra_dplr_column_room(c) * sizeof(float); }

static void launch(const dra_call *c)
{
    const dra_dplr_attr *at = static_cast<const dra_dplr_attr *>(c->attr);
    forward_call         a = {};
    if (dra_dplr_column_blocks(c) == 0) return;
    a.x = dra_dplr_call_of(c);
    a.y = dra_chunk_rows_of(&c->out[DRA_DPLR_Y]);
    if (at->a) a.p = dra_chunk_rows_of(&c->out[DRA_DPLR_RECALLED]);
    a.S = dra_chunk_state_of(at->S ? &c->in[at->S] : nullptr);
    a.last = dra_chunk_state_of(&c->out[DRA_DPLR_LAST]);
    a.borders = dra_chunk_borders_of(&c->out[DRA_DPLR_BORDERS]);
    a.memory = static_cast<float *>(c->scratch);
    DRA_LAUNCH_COLUMNS(c, forward_kernel, a.x.z.F, a);
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
