/* slots: S slots for each head, drawn towards each token, and a softmax over them; formulas in
 * slots.c, runs over tokens in slots.cuh. A walk of keys and one of values, for the slots before
 * each chunk; then all chunks at once: logits, their softmax, what is read. */
#include "ops/chunked/slots.cuh"

enum { Y, P_LAST, Q_LAST, LSE, MEAN, P_BORDERS, Q_BORDERS, LOGITS };

/* ---- softmax --------------------------------------------------------------------------------- */

struct softmax_call {
    dra_slots_shape z;
    const int32_t  *mark;
    int64_t         mark_row;
    float          *s, *a; /* (tiles, readers, T, row): logits, times scale in the end; weights */
    float          *lse;   /* (B, T, readers, or 1), or NULL */
};

template <typename Team, int W, int HELD> __global__ static void softmax_kernel(softmax_call c)
{
    const dra_slots_shape &z = c.z;
    DRA_EACH_ROW(Team, number, z.tiles * z.readers * z.T)
    {
        const int64_t t = number % z.T, reader = number / z.T % z.readers;
        const int64_t tile = number / z.T / z.readers, heads = z.read == DRA_READ_OWN ? z.H : 1;
        const int64_t b = tile / heads, head = heads * z.readers;
        const bool    pad = c.mark && c.mark[b * c.mark_row + t] & DRA_MARK_PAD;
        float *const s = c.s + number * z.row, *const a = c.a + number * z.row;

        dra_team_row<Team, W, HELD> row;
        row.open(s, z.row);
        row.each([&](int64_t i, float *v) {
            for (int j = 0; j < W; j++) v[j] *= z.scale;
            dra_store_some<W>(s + i, v);
        });
        const dra_exp_sum e = dra_row_exp_sum(row);
        row.each([&](int64_t i, const float *v) {
            float to[W];
            for (int j = 0; j < W; j++) to[j] = pad ? 0 : expf(v[j] - e.max) / e.sum;
            dra_store_some<W>(a + i, to);
        });
        if (c.lse && Team::rank() == 0)
            c.lse[(b * z.T + t) * head + tile % heads + reader] = pad ? 0 : e.max + logf(e.sum);
    }
}

/* ---- the op ---------------------------------------------------------------------------------- */

struct room { /* of scratch memory: how many numbers of each */
    int64_t a, P, Q;
};

static room room_of(const dra_slots_shape &z)
{
    const int64_t borders = z.chunks > 1 ? z.B * z.H * z.chunks * z.S : 0;
    return {z.tiles * z.readers * z.T * z.row, borders * z.D, borders * z.E};
}

static size_t scratch(const dra_call *c)
{
    const room r = room_of(dra_slots_shape_of(c));
    return (size_t)(r.a + r.P + r.Q) * sizeof(float);
}

/* The walk of keys or values. */
static dra_slots_walk walk_of(const dra_call *c, const dra_slots_shape &z, int input, int start,
                              int last, int borders, float *spare)
{
    dra_slots_walk    w = {dra_slots_run_of(c, input, DRA_SLOTS_CHUNK)};
    const dra_tensor *kept = &c->out[borders];
    w.run.start = dra_slots_states_of(start ? &c->in[start] : nullptr);
    w.run.kept = dra_slots_borders_of(kept);
    if (!w.run.kept.at && z.chunks > 1)
        w.run.kept = dra_slots_states_in(z, spare, z.chunks, w.run.W);
    w.span = (int)dra_imax(1, z.chunks);
    w.from = w.run.start;
    w.last = dra_slots_states_of(&c->out[last]);
    w.end = dra_slots_place_of(dra_slots_borders_of(kept), z.chunks);
    return w;
}

static void softmax(const dra_call *c, const dra_slots_shape &z, const dra_slots_run &keys,
                    float *s, float *a)
{
    softmax_call  k = {z, keys.mark, keys.mark_row, s, a};
    const int64_t rows = z.tiles * z.readers * z.T;
    k.lse = static_cast<float *>(c->out[LSE].data);
    const bool by_four = z.row % 4 == 0 && (uintptr_t)s % 16 == 0 && (uintptr_t)a % 16 == 0;
    if (rows > 0) DRA_LAUNCH_ROWS(c, softmax_kernel, rows, z.row, by_four, k);
}

static void clear(const dra_call *c, const dra_tensor *x)
{
    const size_t bytes = (size_t)dra_shape_count(&x->shape) * sizeof(float);
    if (x->data && bytes) cudaMemsetAsync(x->data, 0, bytes, dra_cuda_of(c)->stream);
}

static void launch(const dra_call *c)
{
    const dra_slots_attr *attr = static_cast<const dra_slots_attr *>(c->attr);
    const dra_slots_shape z = dra_slots_shape_of(c);
    const room            r = room_of(z);
    const dra_tensor     *out = c->out;
    float                *a = static_cast<float *>(c->scratch);
    if (z.H == 0) { /* a softmax over nothing gives nothing */
        clear(c, &out[Y]);
        clear(c, &out[LSE]);
        return;
    }
    const dra_slots_walk P = walk_of(c, z, DRA_SLOTS_K, attr->keys, P_LAST, P_BORDERS, a + r.a);
    const dra_slots_walk Q = walk_of(c, z, DRA_SLOTS_V, attr->values, Q_LAST, Q_BORDERS,
                                     a + r.a + r.P);
    dra_slots_run        keys = P.run, values = Q.run;
    dra_slots_walk_launch<false>(c, P, Q);
    if (out[Y].data || out[LSE].data || out[LOGITS].data) {
        float *s = out[LOGITS].data ? static_cast<float *>(out[LOGITS].data) : a;
        keys.read = {dra_slots_logits(z, s), dra_slots_query(z, &c->in[DRA_SLOTS_Q]),
                     (int)z.readers};
        dra_slots_dots_launch<false>(c, keys);
        softmax(c, z, keys, s, a);
    }
    if (out[Y].data)
        values.read = {dra_slots_logits(z, a), dra_slots_target(z, &out[Y]), (int)z.readers};
    values.read_mean.x = dra_slots_owned(&out[MEAN]);
    values.add = values.whole = z.read != DRA_READ_OWN;
    dra_slots_mix_launch<false>(c, values);
}

const dra_cuda_kernel dra_cuda_slots = {
    {"slots", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, scratch, nullptr},
    launch,
    false};
