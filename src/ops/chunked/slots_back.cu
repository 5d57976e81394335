/* Gradients of slots; formulas in slots_back.c, runs over tokens in slots.cuh. The slots at every
 * PART-th token, from the borders of chunks, all at once; da = dy.Q and back through the softmax;
 * dq; walks of dP and dQ from the last token to the first, kept at the same tokens; from there du,
 * dk and dv of all parts at once. dl is known where slots and their gradients are, by products of
 * both, and is summed up in between. */
#include "ops/chunked/slots.cuh"

enum { PART = 32 /* tokens; half a chunk */ };
enum { OUT_Q, OUT_K, OUT_V, OUT_L, OUT_U, OUT_P_START, OUT_Q_START };

/* ---- back through the softmax ---------------------------------------------------------------- */

struct softmax_call {
    dra_slots_shape z;
    const int32_t  *mark;
    int64_t         mark_row;
    const float    *s;          /* (tiles, readers, T, row): logits */
    float          *a, *d;      /* the same: weights; da, then scale ds */
    float          *dlog_scale; /* (tiles, T, row): sum over readers of ds s + a da */
    const float    *dmean_dots; /* the same: dmean.Q, or NULL */
    dra_slots_array dlse;       /* by head in the place of the reader, or none */
};

/* a of a row of logits; the same for all lanes of the warp. */
__device__ static inline void weigh(const softmax_call &c, const float *s, bool pad, float *a)
{
    const int64_t n = c.z.row;
    float         top = -INFINITY, sum = 0;
    for (int64_t i = dra_warp_team::rank(); i < n; i += 32) top = dra_join_max::join(top, s[i]);
    top = dra_team_max<dra_warp_team>(top);
    for (int64_t i = dra_warp_team::rank(); i < n; i += 32) sum += expf(s[i] - top);
    sum = dra_team_sum<dra_warp_team>(sum);
    for (int64_t i = dra_warp_team::rank(); i < n; i += 32) a[i] = pad ? 0 : expf(s[i] - top) / sum;
}

/* A warp has a token of a tile. */
__global__ static void softmax_back_kernel(const softmax_call c)
{
    const dra_slots_shape &z = c.z;
    DRA_EACH_ROW(dra_warp_team, number, z.tiles * z.T)
    {
        const int64_t t = number % z.T, tile = number / z.T;
        const int64_t heads = z.read == DRA_READ_OWN ? z.H : 1, b = tile / heads;
        const bool    pad = c.mark && c.mark[b * c.mark_row + t] & DRA_MARK_PAD;
        float *const  own = c.dlog_scale + number * z.row;
        for (int64_t r = 0; r < z.readers; r++) {
            const int64_t at = ((tile * z.readers + r) * z.T + t) * z.row;
            const float  *s = c.s + at;
            float *const a = c.a + at, *const d = c.d + at;
            float mean = 0;
            weigh(c, s, pad, a);
            for (int64_t i = dra_warp_team::rank(); i < z.row; i += 32) mean += a[i] * d[i];
            mean = dra_team_sum<dra_warp_team>(mean);
            if (c.dlse.at && !pad) mean -= *dra_slots_at(c.dlse, b, t, 0, tile % heads + r);
            for (int64_t i = dra_warp_team::rank(); i < z.row; i += 32) {
                const float ds = a[i] * (d[i] - mean), log_scale = ds * s[i] + a[i] * d[i];
                own[i] = r > 0 ? own[i] + log_scale : log_scale;
                d[i] = z.scale * ds;
            }
        }
        for (int64_t i = dra_warp_team::rank(); i < z.row && c.dmean_dots; i += 32)
            own[i] += 1 / (float)z.S * c.dmean_dots[number * z.row + i];
    }
}

/* ---- dl -------------------------------------------------------------------------------------- */

struct decay_call {
    dra_slots_run    keys, values; /* S, l, mark, pieces; start and kept: of dP and dQ */
    dra_slots_states P, Q;         /* at the same places; */
    dra_slots_states P_end, Q_end; /* and after the last token */
    float           *exact;        /* (B H, pieces + 1, S): dl of the first token of each piece */
    dra_slots_array  own, u, du, dl;
};

__device__ static inline float slot_dot(const float *a, const float *b, int n)
{
    float sum = 0;
    for (int i = dra_warp_team::rank(); i < n; i += 32) sum += a[i] * b[i];
    return dra_team_sum<dra_warp_team>(sum);
}

/* What is known of dl: a warp has a slot at a place, or after the last token, where nothing fades
 * any more. */
__global__ static void exact_kernel(const decay_call c)
{
    const dra_slots_run &a = c.keys;
    const int64_t        places = a.pieces + 1;
    DRA_EACH_ROW(dra_warp_team, number, a.B * a.H * places * a.S)
    {
        const int     i = (int)(number % a.S);
        const int64_t g = number / a.S % places, head = number / a.S / places;
        const int64_t b = head / a.H, h = head % a.H, t = g * a.piece;
        const bool    ends = g == a.pieces;
        const float  *P = ends ? dra_slots_state(c.P_end, b, h, 0, i)
                               : dra_slots_state(c.P, b, h, g, i);
        const float  *Q = ends ? dra_slots_state(c.Q_end, b, h, 0, i)
                               : dra_slots_state(c.Q, b, h, g, i);
        const float  *dP = ends ? dra_slots_state(a.start, b, h, 0, i)
                                : dra_slots_state(a.kept, b, h, g, i);
        const float  *dQ = ends ? dra_slots_state(c.values.start, b, h, 0, i)
                                : dra_slots_state(c.values.kept, b, h, g, i);
        float         dot = slot_dot(P, dP, a.W) + slot_dot(Q, dQ, c.values.W);
        const float   fade = ends ? 0 : dra_slots_fade(a, b, h, t, i);
        const bool    reset = !ends && dra_slots_mark(a, b, t) & DRA_MARK_RESET;
        dot = reset || fade == -1 ? 0 : dot + fade * dot;
        if (dra_warp_team::rank() == 0) c.exact[number] = dot;
    }
}

struct decay_slot { /* of a thread: slot i of a head over a piece of tokens */
    const decay_call &c;
    int64_t           b, h;
    int               i;

    __device__ float *at(const dra_slots_array &x, int64_t t) const
    {
        return dra_slots_at(x, b, t, h, 0) + i;
    }
    __device__ int mark(int64_t t) const { return dra_slots_mark(c.keys, b, t); }

    /* dl of token t was off by so much: it grew by a step a token. */
    __device__ void settle(int64_t t, int64_t known, float off) const
    {
        const float step = off / (float)(known - t);
        for (int64_t j = t; j < known; j++)
            if (!(mark(j) & DRA_MARK_PAD)) *at(c.dl, j) -= step * (float)(known - j);
    }

    __device__ void run(int64_t first, int64_t known, float start, float sum) const
    {
        for (int64_t t = known - 1; t >= first; t--) {
            const bool pad = mark(t) & DRA_MARK_PAD, reset = mark(t) & DRA_MARK_RESET;
            const bool gone = reset || dra_slots_fade(c.keys, b, h, t, i) == -1;
            if (!pad) sum += fmaf(-*at(c.u, t), *at(c.du, t), *at(c.own, t));
            *at(c.dl, t) = pad ? 0 : sum;
            if (!gone && t > first) continue;
            const float exact = gone ? 0 : start; /* nothing comes through */
            settle(t, known, sum - exact);
            if (!pad) *at(c.dl, t) = exact;
            known = t;
            sum = exact;
        }
    }
};

__global__ static void decay_kernel(const decay_call c)
{
    const dra_slots_run &a = c.keys;
    DRA_EACH(number, a.B * a.H * a.pieces * a.S)
    {
        const int        i = (int)(number % a.S), g = (int)(number / a.S % a.pieces);
        const int64_t    head = number / a.S / a.pieces, first = (int64_t)g * a.piece;
        const float     *exact = c.exact + (head * (a.pieces + 1) + g) * a.S + i;
        const decay_slot slot = {c, head / a.H, head % a.H, i};
        slot.run(first, first + dra_slots_tokens(a, first, a.piece), exact[0], exact[a.S]);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

struct room { /* scratch memory: where each begins, in numbers */
    int64_t a, d, dlog_scale, dmean_dots, du, P, Q, dP, dQ, exact, all;
};

static room room_of(const dra_call *c)
{
    const dra_slots_attr *attr = static_cast<const dra_slots_attr *>(c->attr);
    const dra_slots_shape z = dra_slots_shape_of(c);
    const int64_t         heads = z.B * z.H, parts = dra_div_up(z.T, PART);
    const int64_t         logits = z.tiles * z.readers * z.T * z.row, gates = heads * z.T * z.S;
    room                  r = {};
    int64_t               next = 0;
    const auto            take = [&](int64_t n) {
        return next += dra_div_up(n, 4) * 4, next - dra_div_up(n, 4) * 4;
    };
    r.a = take(logits);
    r.d = take(logits);
    r.dlog_scale = take(gates);
    r.dmean_dots = take(attr->dmean ? gates : 0);
    r.du = take(gates);
    r.P = take(heads * parts * z.S * z.D);
    r.Q = take(heads * parts * z.S * z.E);
    r.dP = take(heads * parts * z.S * z.D);
    r.dQ = take(heads * parts * z.S * z.E);
    r.exact = take(heads * (parts + 1) * z.S);
    r.all = next;
    return r;
}

static size_t scratch(const dra_call *c) { return (size_t)room_of(c).all * sizeof(float); }

struct walks { /* of one call */
    const dra_call *c;
    dra_slots_shape z;
    room            r;
    float          *spare;

    float          *at(int64_t i) const { return spare + i; }
    dra_slots_array weights(int64_t i) const { return dra_slots_logits(z, at(i)); }

    /* (tiles, T, row) */
    dra_slots_array rows(int64_t i) const
    {
        if (z.read == DRA_READ_OWN) return {at(i), z.H * z.T * z.S, z.S, z.T * z.S, 0};
        return {at(i), z.T * z.row, z.row, z.S, 0};
    }
};

/* Slots forwards, of keys or values: at every PART-th token from the borders. */
static dra_slots_walk forwards(const walks &w, int input, int borders, int64_t place)
{
    dra_slots_walk k = {dra_slots_run_of(w.c, input, PART)};
    k.span = DRA_SLOTS_CHUNK / PART;
    k.from = dra_slots_borders_of(&w.c->in[borders]);
    k.run.start = dra_slots_place_of(k.from, 0);
    k.run.kept = dra_slots_states_in(w.z, w.at(place), k.run.pieces, k.run.W);
    return k;
}

/* Their gradients backwards, with what readers write into them. */
static dra_slots_walk backwards(const walks &w, int input, int upstream, int64_t weights,
                                const dra_slots_array &rows, int64_t place, int start)
{
    const dra_slots_attr *attr = static_cast<const dra_slots_attr *>(w.c->attr);
    dra_slots_walk        k = {dra_slots_run_of(w.c, input, PART)};
    k.span = (int)dra_imax(1, k.run.pieces);
    k.run.write = {w.weights(weights), rows, (int)w.z.readers};
    if (attr->dmean && input == DRA_SLOTS_V)
        k.run.write_mean.x = dra_slots_owned(&w.c->in[attr->dmean]);
    k.from = k.run.start = dra_slots_states_of(&w.c->in[upstream]);
    k.run.kept = dra_slots_states_in(w.z, w.at(place), k.run.pieces, k.run.W);
    k.last = dra_slots_states_of(&w.c->out[start]);
    return k;
}

/* a, and z in the place of da. */
static void softmax(const walks &w, dra_slots_run values)
{
    const dra_slots_attr *attr = static_cast<const dra_slots_attr *>(w.c->attr);
    const dra_tensor     *dlse = attr->dlse ? &w.c->in[attr->dlse] : nullptr;
    softmax_call          s = {w.z, values.mark, values.mark_row};
    values.read = {w.weights(w.r.d), dra_slots_target(w.z, &w.c->in[DRA_SLOTS_DY]),
                   (int)w.z.readers};
    if (attr->dmean)
        values.read_mean = {w.rows(w.r.dmean_dots), dra_slots_owned(&w.c->in[attr->dmean]), 1};
    dra_slots_dots_launch<false>(w.c, values);
    s.s = static_cast<const float *>(w.c->in[DRA_SLOTS_LOGITS].data);
    s.a = w.at(w.r.a);
    s.d = w.at(w.r.d);
    s.dlog_scale = w.at(w.r.dlog_scale);
    s.dmean_dots = attr->dmean ? w.at(w.r.dmean_dots) : nullptr;
    if (dlse)
        s.dlse = {static_cast<float *>(dlse->data), dlse->stride[0], dlse->stride[1], 0,
                  dlse->stride[2]};
    DRA_LAUNCH(w.c, softmax_back_kernel, dra_grid(w.c, w.z.tiles * w.z.T, DRA_THREADS / 32),
               DRA_THREADS, 0, s);
}

/* Through slots to what was written there: du, and dk or dv. */
static void return_writes(const walks &w, dra_slots_run run, int input, const dra_slots_array &du,
                          bool add)
{
    run.read = {du, dra_slots_owned(&w.c->in[input]), 1};
    run.add = add;
    if (w.c->out[OUT_U].data || w.c->out[OUT_L].data) dra_slots_dots_launch<true>(w.c, run);
    run.read = {dra_slots_owned(&w.c->in[DRA_SLOTS_U]), dra_slots_owned(&w.c->out[input]), 1};
    run.add = false;
    if (run.read.x.at) dra_slots_mix_launch<true>(w.c, run);
}

static void return_decay(const walks &w, const dra_slots_run &P, const dra_slots_run &Q,
                         const dra_slots_run &dP, const dra_slots_run &dQ,
                         const dra_slots_array &du)
{
    const int64_t slots = w.z.B * w.z.H * w.z.S;
    decay_call    d = {dP, dQ, P.kept, Q.kept};
    d.P_end = dra_slots_place_of(dra_slots_borders_of(&w.c->in[DRA_SLOTS_P_BORDERS]), w.z.chunks);
    d.Q_end = dra_slots_place_of(dra_slots_borders_of(&w.c->in[DRA_SLOTS_Q_BORDERS]), w.z.chunks);
    d.exact = w.at(w.r.exact);
    d.own = w.rows(w.r.dlog_scale);
    d.u = dra_slots_owned(&w.c->in[DRA_SLOTS_U]);
    d.du = du;
    d.dl = dra_slots_owned(&w.c->out[OUT_L]);
    if (!d.dl.at) return;
    DRA_LAUNCH(w.c, exact_kernel, dra_grid(w.c, slots * (dP.pieces + 1), DRA_THREADS / 32),
               DRA_THREADS, 0, d);
    DRA_LAUNCH(w.c, decay_kernel, dra_grid(w.c, slots * dP.pieces, DRA_THREADS), DRA_THREADS, 0, d);
}

static void return_queries(const walks &w, dra_slots_run keys)
{
    const dra_tensor *dq = &w.c->out[OUT_Q];
    keys.read = {w.weights(w.r.d), dra_slots_query(w.z, dq), (int)w.z.readers};
    keys.add = keys.whole = w.z.read == DRA_READ_ALL;
    if (dq->data) dra_slots_mix_launch<false>(w.c, keys);
}

static void launch(const dra_call *c)
{
    const walks w = {c, dra_slots_shape_of(c), room_of(c), static_cast<float *>(c->scratch)};
    const dra_slots_shape &z = w.z;
    const dra_slots_walk   P = forwards(w, DRA_SLOTS_K, DRA_SLOTS_P_BORDERS, w.r.P);
    const dra_slots_walk   Q = forwards(w, DRA_SLOTS_V, DRA_SLOTS_Q_BORDERS, w.r.Q);
    const dra_slots_walk   dP = backwards(w, DRA_SLOTS_K, DRA_SLOTS_DP, w.r.d,
                                          dra_slots_query(z, &c->in[DRA_SLOTS_Q]), w.r.dP,
                                          OUT_P_START);
    const dra_slots_walk   dQ = backwards(w, DRA_SLOTS_V, DRA_SLOTS_DQ, w.r.a,
                                          dra_slots_target(z, &c->in[DRA_SLOTS_DY]), w.r.dQ,
                                          OUT_Q_START);
    const dra_slots_array  kept = dra_slots_owned(&c->out[OUT_U]);
    const dra_slots_array  own = {w.at(w.r.du), z.T * z.H * z.S, z.H * z.S, z.S, 0};
    const dra_slots_array  du = kept.at ? kept : own;
    if (z.B * z.H == 0) return;
    if (z.T > 0) {
        dra_slots_walk_launch<false>(c, P, Q);
        softmax(w, Q.run);
        return_queries(w, P.run);
    }
    dra_slots_walk_launch<true>(c, dP, dQ);
    if (z.T == 0) return;
    return_writes(w, dP.run, DRA_SLOTS_K, du, false);
    return_writes(w, dQ.run, DRA_SLOTS_V, du, true);
    return_decay(w, P.run, Q.run, dP.run, dQ.run, du);
}

const dra_cuda_kernel dra_cuda_slots_back = {
    {"slots_back", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, scratch, nullptr},
    launch,
    false};
