/* The gradient of moment; formulas in moment_back.c. What dy is divided by, where normalised;
 * the gradients of states, from the last chunk to the first (moment.cuh); then all chunks at once:
 * dq and dk, dl (chunk_back.cuh), and dv. */
#include "ops/chunked/chunk_back.cuh"
#include "ops/chunked/moment.cuh"

enum { Q = DRA_MOMENT_Q, K = DRA_MOMENT_K, V = DRA_MOMENT_V };

static const dra_tensor *option(const dra_call *c, int at) { return at ? &c->in[at] : nullptr; }

/* ---- part = 1 / den, dden = -(dy.y) / den, or 0 where den is `least` ------------------------- */

struct divide_call {
    dra_chunks        z;
    dra_chunk_rows    q, k, y, dy;
    dra_chunk_borders sums;
    float             eps, least;
    float            *part, *dden; /* (heads, T) */
};

__global__ static void __launch_bounds__(DRA_TILE_THREADS, 2) divide_kernel(const divide_call a)
{
    DRA_SHARED(float, one);
    __shared__ dra_chunk_decay d;
    __shared__ float           den[DRA_CHUNK], dot[DRA_CHUNK];
    float *const               two = one + DRA_TILE_SIZE;
    const dra_chunks          &z = a.z;
    const dra_chunk_place      k = dra_chunk_block_at(z, 1).k;
    dra_tile_sums              A;
    A.clear();
    DRA_EACH_TOKEN(t) den[t] = dot[t] = 0;
    dra_decay_make(d, z, k);
    for (int e = 0; e < z.E; e += DRA_TILE) {
        dra_tile_load(one, dra_chunk_source(a.y, k, e), d.on);
        dra_tile_load(two, dra_chunk_source(a.dy, k, e), d.on);
        __syncthreads();
        dra_tile_dots(k.n, dra_tile_width(z.E, e), 1, one, two, DRA_TILE_ROW, dot);
        __syncthreads();
    }
    for (int f = 0; f < z.F; f += DRA_TILE) {
        const int F = dra_tile_width(z.F, f);
        dra_tile_load(one, dra_chunk_source(a.q, k, f), d.on);
        dra_tile_load(two, dra_chunk_source(a.k, k, f), d.on);
        __syncthreads();
        A.add<DRA_ABT>(k.n, k.n, F, one, two);
        dra_tile_dots(k.n, F, 1, one, dra_border_at(a.sums, k, f), 0, den);
        __syncthreads();
    }
    dra_chunk_fade(A, d, k.n, one);
    dra_moment_divisor(d, k.n, a.eps, a.least, one, den);
    for (int t = (int)threadIdx.x; t < k.n; t += DRA_TILE_THREADS) {
        const float part = 1 / den[t];
        const bool  least = a.least > 0 && den[t] <= a.least;
        a.part[k.head * z.T + k.t + t] = part;
        a.dden[k.head * z.T + k.t + t] = least ? 0 : -dot[t] * part;
    }
}

/* ---- dv = A^T dnum + last o (k dS) ----------------------------------------------------------- */

__global__ static void __launch_bounds__(DRA_TILE_THREADS, 2)
    values_kernel(const dra_back_call a, const dra_chunk_rows dv)
{
    DRA_SHARED(float, one);
    __shared__ dra_chunk_decay  d;
    __shared__ dra_back_factors by;
    float *const two = one + DRA_TILE_SIZE, *const three = two + DRA_TILE_SIZE;
    const dra_chunks     &z = a.z;
    const int64_t         number = blockIdx.x / dra_tiles(z.E); /* of the chunk */
    const int             e = (int)(blockIdx.x % dra_tiles(z.E)) * DRA_TILE;
    const dra_chunk_place k = dra_chunk_at(z, number / z.chunks, (int)(number % z.chunks));
    const int             E = dra_tile_width(z.E, e);
    dra_tile_sums         A, to;
    A.clear();
    to.clear();
    dra_decay_make(d, z, k);
    dra_back_factors_make(a, k, d, by);
    for (int f = 0; f < z.F; f += DRA_TILE) {
        const int F = dra_tile_width(z.F, f);
        dra_tile_load(one, dra_chunk_source(a.q, k, f), d.on);
        dra_tile_load(two, dra_chunk_source(a.k, k, f), d.on);
        dra_tile_load(three, dra_border_source(z, a.dS, k, f, e));
        __syncthreads();
        A.add<DRA_ABT>(k.n, k.n, F, one, two);
        to.add<DRA_AB>(k.n, E, F, two, three);
        __syncthreads();
    }
    to.each([&](int t, int, float &v) { v *= d.last[t]; });
    dra_tile_load(two, dra_chunk_source(a.g, k, e), by.g);
    dra_chunk_fade(A, d, k.n, one);
    to.add<DRA_ATB>(k.n, E, k.n, one, two);
    dra_back_store(to, dv, k, d, e);
}

/* ---- all of it ------------------------------------------------------------------------------- */

struct room { /* of scratch memory: how many numbers of each */
    int64_t tokens, states, sums, dL, through;
};

static room room_of(const dra_call *c)
{
    const dra_moment_attr *a = static_cast<const dra_moment_attr *>(c->attr);
    const int64_t         *q = c->in[Q].shape.dim, heads = q[0] * q[2], E = dra_last(&c->in[V]);
    const int64_t          chunks = dra_div_up(q[1], DRA_CHUNK), tiles = dra_tiles((int)q[3]);
    room                   r = {};
    r.states = heads * chunks * q[3] * E;
    if (a->normalise) r.tokens = heads * q[1], r.sums = heads * chunks * q[3];
    if (a->l) r.dL = tiles * heads * q[1], r.through = tiles * heads * chunks;
    return r;
}

static size_t scratch(const dra_call *c)
{
    const room r = room_of(c);
    return (size_t)(r.states + 2 * r.tokens + r.sums + r.dL + r.through) * sizeof(float);
}

static dra_back_call call_of(const dra_call *c)
{
    const dra_moment_attr *a = static_cast<const dra_moment_attr *>(c->attr);
    const room             r = room_of(c);
    dra_back_call          b = {};
    float                 *states = static_cast<float *>(c->scratch);
    float                 *tokens = states + r.states, *sums = tokens + 2 * r.tokens;
    b.z = dra_chunks_of(c, &c->in[Q], &c->in[V], a->l, a->mark, a->jumps);
    b.q = dra_chunk_rows_of(&c->in[Q]);
    b.k = dra_chunk_rows_of(&c->in[K]);
    b.u = dra_chunk_rows_of(&c->in[V]);
    b.g = dra_chunk_rows_of(&c->in[a->dy]);
    b.S = dra_chunk_borders_of(&c->in[a->borders]);
    b.dS = dra_chunk_borders_in(b.z, states, b.z.E);
    b.dq = dra_chunk_rows_of(&c->out[DRA_MOMENT_DQ]);
    b.dk = dra_chunk_rows_of(&c->out[DRA_MOMENT_DK]);
    if (a->normalise) {
        b.part = tokens;
        b.dden = tokens + r.tokens;
        b.sums = dra_chunk_borders_of(&c->in[a->z_borders]);
        b.dsums = dra_chunk_borders_in(b.z, sums, 1);
    }
    if (a->l && c->out[DRA_MOMENT_DL].data) {
        b.dL = sums + r.sums;
        b.through = b.dL + r.dL;
    }
    return b;
}

static void divide(const dra_call *c, const dra_back_call &b)
{
    const dra_moment_attr *a = static_cast<const dra_moment_attr *>(c->attr);
    const int64_t          blocks = b.z.heads * b.z.chunks;
    divide_call            d = {b.z, b.q, b.k, dra_chunk_rows_of(&c->in[a->y]), b.g, b.sums};
    d.eps = (float)a->eps;
    d.least = (float)a->least;
    d.part = const_cast<float *>(b.part);
    d.dden = const_cast<float *>(b.dden);
    if (blocks > 0) DRA_LAUNCH_TILES(c, divide_kernel, blocks, 2, d);
}

static void walk(const dra_call *c, const dra_back_call &b)
{
    const dra_moment_attr *a = static_cast<const dra_moment_attr *>(c->attr);
    dra_moment_walk        w = {};
    w.z = b.z;
    w.x = b.q;
    w.u = b.g;
    w.part = b.part;
    w.dden = b.dden;
    w.S = dra_chunk_state_of(option(c, a->S));
    w.S_last = dra_chunk_state_of(&c->out[DRA_MOMENT_DS]);
    w.kept = b.dS;
    w.normalised = a->normalise;
    if (a->normalise) {
        w.sums = dra_chunk_state_of(option(c, a->z));
        w.sums_last = dra_chunk_state_of(&c->out[DRA_MOMENT_DZ]);
        w.sums_kept = b.dsums;
    }
    dra_moment_walk_launch<true>(c, w);
}

static void launch(const dra_call *c)
{
    const dra_moment_attr *a = static_cast<const dra_moment_attr *>(c->attr);
    const dra_back_call    b = call_of(c);
    const dra_chunk_rows   dv = dra_chunk_rows_of(&c->out[DRA_MOMENT_DV]);
    const int64_t          blocks = b.z.heads * b.z.chunks * dra_tiles(b.z.E);
    if (a->normalise) divide(c, b);
    walk(c, b);
    dra_back_launch<false>(c, b);
    if (dv.at && blocks > 0) DRA_LAUNCH_TILES(c, values_kernel, blocks, 3, b, dv);
    if (a->l) dra_decay_back_launch(c, b, dra_chunk_rows_of(&c->out[DRA_MOMENT_DL]));
}

const dra_cuda_kernel dra_cuda_moment_back = {
    {"moment_back", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, scratch, nullptr},
    launch,
    false};
