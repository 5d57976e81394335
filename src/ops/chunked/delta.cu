/* delta: writes only what the key does not recall yet; formulas in delta.c. U and W of all
 * chunks (delta.cuh), the states from chunk to chunk with what each token misses, then y of all
 * chunks at once (chunk_read.cuh); a token alone is one step. */
#include "ops/chunked/chunk_read.cuh"
#include "ops/chunked/delta.cuh"

enum { Q, K, V, B };
enum { Y, LAST, MISS, BORDERS };

struct room { /* of scratch memory: how many numbers of each */
    int64_t states, U, W;
};

static room room_of(const dra_call *c)
{
    const int64_t *q = c->in[Q].shape.dim, E = dra_last(&c->in[V]), tokens = q[0] * q[1] * q[2];
    if (q[1] <= 1) return {};
    return {q[0] * q[2] * dra_div_up(q[1], DRA_CHUNK) * q[3] * E, tokens * E, tokens * q[3]};
}

static size_t scratch(const dra_call *c)
{
    const room r = room_of(c);
    return (size_t)(r.states + r.U + r.W) * sizeof(float);
}

static dra_chunks chunks_of(const dra_call *c)
{
    const dra_delta_attr *a = static_cast<const dra_delta_attr *>(c->attr);
    return dra_chunks_of(c, &c->in[Q], &c->in[V], a->l, a->mark, false);
}

static dra_chunk_state first_of(const dra_call *c)
{
    const dra_delta_attr *a = static_cast<const dra_delta_attr *>(c->attr);
    return dra_chunk_state_of(a->S ? &c->in[a->S] : nullptr);
}

static void step(const dra_call *c)
{
    dra_step_call s = {};
    s.z = chunks_of(c);
    s.q = dra_chunk_rows_of(&c->in[Q]);
    s.k = dra_chunk_rows_of(&c->in[K]);
    s.v = dra_chunk_rows_of(&c->in[V]);
    s.b = dra_chunk_rows_of(&c->in[B]);
    s.y = dra_chunk_rows_of(&c->out[Y]);
    s.miss = dra_chunk_rows_of(&c->out[MISS]);
    s.S = first_of(c);
    s.S_last = dra_chunk_state_of(&c->out[LAST]);
    s.borders = dra_chunk_borders_of(&c->out[BORDERS]);
    DRA_LAUNCH(c, dra_step_kernel<true>, (unsigned)s.z.heads, DRA_TILE_THREADS, 0, s);
}

static dra_delta_system system_of(const dra_call *c)
{
    const room       r = room_of(c);
    float           *spare = static_cast<float *>(c->scratch);
    dra_delta_system a = {};
    a.z = chunks_of(c);
    a.k = dra_chunk_rows_of(&c->in[K]);
    a.b = dra_chunk_rows_of(&c->in[B]);
    a.v = dra_chunk_rows_of(&c->in[V]);
    a.U = dra_chunk_rows_in(a.z, spare + r.states, a.z.E);
    a.W = dra_chunk_rows_in(a.z, spare + r.states + r.U, a.z.F);
    return a;
}

static void chunks(const dra_call *c)
{
    const dra_delta_system s = system_of(c);
    dra_delta_walk         w = {s.z, s.k, s.b, s.U, s.W};
    w.out = dra_chunk_rows_of(&c->out[MISS]);
    if (!w.out.at) w.out = s.U;
    w.S = first_of(c);
    w.S_last = dra_chunk_state_of(&c->out[LAST]);
    w.kept = dra_chunk_borders_of(&c->out[BORDERS]);
    if (!w.kept.at) w.kept = dra_chunk_borders_in(s.z, static_cast<float *>(c->scratch), s.z.E);
    dra_delta_solve_launch<false>(c, s);
    dra_delta_walk_launch<false>(c, w);
    dra_read_call r = {};
    r.z = s.z;
    r.q = dra_chunk_rows_of(&c->in[Q]);
    r.k = s.k;
    r.u = w.out;
    r.b = s.b;
    r.y = dra_chunk_rows_of(&c->out[Y]);
    r.S = w.kept;
    dra_read_launch(c, r);
}

static void launch(const dra_call *c)
{
    const int64_t *q = c->in[Q].shape.dim;
    if (q[0] * q[2] == 0) return;
    if (q[1] == 1)
        step(c);
    else
        chunks(c);
}

/* A block reads its part of the first state before it writes there. */
static uint32_t takes(const void *attr, int out)
{
    const dra_delta_attr *a = static_cast<const dra_delta_attr *>(attr);
    return out == LAST && a->S ? 1u << a->S : 0;
}

const dra_cuda_kernel dra_cuda_delta = {
    {"delta", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, scratch, takes},
    launch,
    false};
