/* The gradient of delta; formulas in delta_back.c. U and W of all chunks (delta.cuh) and what
 * their queries add to the gradients of states; these from the last chunk to the first, with x;
 * then all chunks at once: dq and dk, dl (chunk_back.cuh), dv and db. */
#include "ops/chunked/chunk_back.cuh"
#include "ops/chunked/delta.cuh"

enum {
    Q = DRA_DELTA_BACK_Q,
    K = DRA_DELTA_BACK_K,
    B = DRA_DELTA_BACK_B,
    MISS = DRA_DELTA_BACK_MISS,
    BORDERS = DRA_DELTA_BACK_BORDERS,
    DY = DRA_DELTA_BACK_DY
};

/* ---- q^T (p o dy), where dS before the chunk will be ----------------------------------------- */

__global__ static void __launch_bounds__(DRA_TILE_THREADS, 2)
    queries_kernel(const dra_delta_walk a, const dra_chunk_rows q, const dra_chunk_rows dy)
{
    DRA_SHARED(float, one);
    __shared__ dra_chunk_decay d;
    __shared__ float           p[DRA_CHUNK];
    float *const               two = one + DRA_TILE_SIZE;
    const dra_chunks          &z = a.z;
    const int                  across = dra_tiles(z.E), down = dra_tiles(z.F);
    const int                  e = (int)(blockIdx.x % across) * DRA_TILE;
    const int                  f = (int)(blockIdx.x / across % down) * DRA_TILE;
    const int64_t              number = blockIdx.x / across / down; /* of the chunk */
    const int                  F = dra_tile_width(z.F, f), E = dra_tile_width(z.E, e);
    const dra_chunk_place      k = dra_chunk_at(z, number / z.chunks, (int)(number % z.chunks));
    const dra_delta_place      to = dra_delta_at<true>(a, k.head, z.chunks - k.i, e);
    dra_tile_sums              sum;
    if (!to.at) return;
    sum.clear();
    dra_decay_make(d, z, k);
    DRA_EACH_TOKEN(t) p[t] = d.on[t] * d.p[t];
    __syncthreads();
    dra_tile_load(one, dra_chunk_source(q, k, f), d.on);
    dra_tile_load(two, dra_chunk_source(dy, k, e), p);
    __syncthreads();
    sum.add<DRA_ATB>(F, E, k.n, one, two);
    sum.each([&](int i, int j, float v) {
        if (i < F && j < E) to.at[(f + i) * to.f + j] = v;
    });
}

/* ---- dv = b o x, db = x.w: a warp for each token --------------------------------------------- */

struct values_call {
    dra_chunks     z;
    dra_chunk_rows x, w, b, dv, db;
    int64_t        tokens; /* of all heads */
};

__global__ static void values_kernel(const values_call a)
{
    const dra_chunks &z = a.z;
    DRA_EACH_ROW(dra_warp_team, number, a.tokens)
    {
        dra_chunk_place k = dra_chunk_at(z, number / z.T, 0);
        float           sum = 0;
        k.t = number % z.T;
        const bool  pad = dra_chunk_mark(z, k, 0) & DRA_MARK_PAD;
        const float b = pad ? 0 : *dra_chunk_row(a.b, k, 0);
        for (int e = dra_warp_team::rank(); e < z.E; e += 32) {
            const float x = *dra_chunk_row(a.x, k, 0, e);
            if (!pad) sum += x * *dra_chunk_row(a.w, k, 0, e);
            if (a.dv.at) *dra_chunk_row(a.dv, k, 0, e) = b * x;
        }
        sum = dra_team_sum<dra_warp_team>(sum);
        if (a.db.at && dra_warp_team::rank() == 0) *dra_chunk_row(a.db, k, 0) = sum;
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

struct room { /* of scratch memory: how many numbers of each */
    int64_t states, U, W, dL, through;
};

static room room_of(const dra_call *c)
{
    const dra_delta_attr *a = static_cast<const dra_delta_attr *>(c->attr);
    const int64_t        *q = c->in[Q].shape.dim, E = dra_last(&c->in[MISS]);
    const int64_t         chunks = dra_div_up(q[1], DRA_CHUNK), heads = q[0] * q[2];
    const int64_t         tiles = a->l ? dra_tiles((int)q[3]) : 0;
    return {heads * chunks * q[3] * E, heads * q[1] * E, heads * q[1] * q[3], tiles * heads * q[1],
            tiles * heads * chunks};
}

static size_t scratch(const dra_call *c)
{
    const room r = room_of(c);
    return (size_t)(r.states + r.U + r.W + r.dL + r.through) * sizeof(float);
}

static dra_back_call call_of(const dra_call *c)
{
    const dra_delta_attr *a = static_cast<const dra_delta_attr *>(c->attr);
    const room            r = room_of(c);
    dra_back_call         b = {};
    float                *states = static_cast<float *>(c->scratch), *U = states + r.states;
    b.z = dra_chunks_of(c, &c->in[Q], &c->in[MISS], a->l, a->mark, false);
    b.q = dra_chunk_rows_of(&c->in[Q]);
    b.k = dra_chunk_rows_of(&c->in[K]);
    b.u = dra_chunk_rows_of(&c->in[MISS]);
    b.g = dra_chunk_rows_of(&c->in[DY]);
    b.x = dra_chunk_rows_in(b.z, U, b.z.E);
    b.b = dra_chunk_rows_of(&c->in[B]);
    b.S = dra_chunk_borders_of(&c->in[BORDERS]);
    b.dS = dra_chunk_borders_in(b.z, states, b.z.E);
    b.dq = dra_chunk_rows_of(&c->out[DRA_DELTA_DQ]);
    b.dk = dra_chunk_rows_of(&c->out[DRA_DELTA_DK]);
    if (a->l && c->out[DRA_DELTA_DL].data) {
        b.dL = U + r.U + r.W;
        b.through = b.dL + r.dL;
    }
    return b;
}

static void walk(const dra_call *c, const dra_back_call &b)
{
    const dra_delta_attr  *a = static_cast<const dra_delta_attr *>(c->attr);
    const dra_chunk_rows   W = dra_chunk_rows_in(b.z, b.x.at + room_of(c).U, b.z.F);
    const dra_delta_system s = {b.z, b.k, b.b, b.g, b.q, b.x, W};
    dra_delta_walk         w = {b.z, b.k, b.b, b.x, W, b.x};
    w.S = dra_chunk_state_of(a->S ? &c->in[a->S] : nullptr);
    w.S_last = dra_chunk_state_of(&c->out[DRA_DELTA_DS]);
    w.kept = b.dS;
    const int64_t blocks = b.z.heads * b.z.chunks * dra_tiles(b.z.F) * dra_tiles(b.z.E);
    dra_delta_solve_launch<true>(c, s);
    if (blocks > 0) DRA_LAUNCH_TILES(c, queries_kernel, blocks, 2, w, b.q, b.g);
    dra_delta_walk_launch<true>(c, w);
}

static void launch(const dra_call *c)
{
    const dra_delta_attr *a = static_cast<const dra_delta_attr *>(c->attr);
    const dra_back_call   b = call_of(c);
    values_call           v = {b.z, b.x, b.u, b.b};
    v.dv = dra_chunk_rows_of(&c->out[DRA_DELTA_DV]);
    v.db = dra_chunk_rows_of(&c->out[DRA_DELTA_DB]);
    v.tokens = b.z.heads * b.z.T;
    walk(c, b);
    dra_back_launch<true>(c, b);
    if ((v.dv.at || v.db.at) && v.tokens > 0)
        DRA_LAUNCH(c, values_kernel, dra_grid(c, v.tokens, DRA_THREADS / 32), DRA_THREADS, 0, v);
    if (a->l) dra_decay_back_launch(c, b, dra_chunk_rows_of(&c->out[DRA_DELTA_DL]));
}

const dra_cuda_kernel dra_cuda_delta_back = {
    {"delta_back", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, scratch, nullptr},
    launch,
    false};
