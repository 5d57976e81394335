/* moment: sums of outer products that fade, read by queries; formulas in moment.c. The states
 * first, from chunk to chunk (moment.cuh), then y of all chunks at once (chunk_read.cuh); a token
 * alone is one step. */
#include "ops/chunked/chunk_read.cuh"
#include "ops/chunked/moment.cuh"

enum { Q = DRA_MOMENT_Q, K = DRA_MOMENT_K, V = DRA_MOMENT_V };
enum { Y, S_LAST, Z_LAST, BORDERS, Z_BORDERS };

static const dra_tensor *option(const dra_call *c, int at) { return at ? &c->in[at] : nullptr; }

static dra_chunks chunks_of(const dra_call *c)
{
    const dra_moment_attr *a = static_cast<const dra_moment_attr *>(c->attr);
    return dra_chunks_of(c, &c->in[Q], &c->in[V], a->l, a->mark, a->jumps);
}

/* The states before chunks, for where nobody asked for them. */
static size_t scratch(const dra_call *c)
{
    const dra_moment_attr *a = static_cast<const dra_moment_attr *>(c->attr);
    const int64_t         *q = c->in[Q].shape.dim, E = dra_last(&c->in[V]);
    if (q[1] <= 1) return 0;
    const int64_t states = q[0] * q[2] * dra_div_up(q[1], DRA_CHUNK);
    return (size_t)(states * q[3] * (E + a->normalise)) * sizeof(float);
}

static void step(const dra_call *c)
{
    const dra_moment_attr *a = static_cast<const dra_moment_attr *>(c->attr);
    dra_step_call          s = {};
    s.z = chunks_of(c);
    s.q = dra_chunk_rows_of(&c->in[Q]);
    s.k = dra_chunk_rows_of(&c->in[K]);
    s.v = dra_chunk_rows_of(&c->in[V]);
    s.y = dra_chunk_rows_of(&c->out[Y]);
    s.S = dra_chunk_state_of(option(c, a->S));
    s.S_last = dra_chunk_state_of(&c->out[S_LAST]);
    s.borders = dra_chunk_borders_of(&c->out[BORDERS]);
    s.normalised = a->normalise;
    s.eps = (float)a->eps;
    s.least = (float)a->least;
    if (a->normalise) {
        s.sums = dra_chunk_state_of(option(c, a->z));
        s.sums_last = dra_chunk_state_of(&c->out[Z_LAST]);
        s.sums_borders = dra_chunk_borders_of(&c->out[Z_BORDERS]);
    }
    DRA_LAUNCH(c, dra_step_kernel<false>, (unsigned)s.z.heads, DRA_TILE_THREADS, 0, s);
}

static void chunks(const dra_call *c)
{
    const dra_moment_attr *a = static_cast<const dra_moment_attr *>(c->attr);
    dra_moment_walk        w = {};
    w.z = chunks_of(c);
    const int64_t states = w.z.heads * w.z.chunks * w.z.F;
    float        *spare = static_cast<float *>(c->scratch);
    const bool    read = c->out[Y].data;
    w.x = dra_chunk_rows_of(&c->in[K]);
    w.u = dra_chunk_rows_of(&c->in[V]);
    w.S = dra_chunk_state_of(option(c, a->S));
    w.S_last = dra_chunk_state_of(&c->out[S_LAST]);
    w.kept = dra_chunk_borders_of(&c->out[BORDERS]);
    if (!w.kept.at && read) w.kept = dra_chunk_borders_in(w.z, spare, w.z.E);
    w.normalised = a->normalise;
    if (a->normalise) {
        w.sums = dra_chunk_state_of(option(c, a->z));
        w.sums_last = dra_chunk_state_of(&c->out[Z_LAST]);
        w.sums_kept = dra_chunk_borders_of(&c->out[Z_BORDERS]);
        if (!w.sums_kept.at && read)
            w.sums_kept = dra_chunk_borders_in(w.z, spare + states * w.z.E, 1);
    }
    dra_moment_walk_launch<false>(c, w);
    dra_read_call r = {};
    r.z = w.z;
    r.q = dra_chunk_rows_of(&c->in[Q]);
    r.k = w.x;
    r.u = w.u;
    r.y = dra_chunk_rows_of(&c->out[Y]);
    r.S = w.kept;
    r.sums = w.sums_kept;
    r.normalised = a->normalise;
    r.eps = (float)a->eps;
    r.least = (float)a->least;
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
    const dra_moment_attr *a = static_cast<const dra_moment_attr *>(attr);
    const int              from = out == S_LAST ? a->S : out == Z_LAST ? a->z : 0;
    return from ? 1u << from : 0;
}

const dra_cuda_kernel dra_cuda_moment = {
    {"moment", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, scratch, takes},
    launch,
    false};
