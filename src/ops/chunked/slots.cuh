/* What slots and their gradient share: runs of slots over tokens, see slots.cuh. For each token
 * slots m_i fade and are written, m_i += f_i m_i + w_i x, f = e^l - 1, and are read:
 *   dots  m_i.x' for each slot     mix  sum_i w'_i m_i
 * A walk takes the slots over all tokens and keeps them every DRA_SLOTS_CHUNK tokens, each number
 * of a slot on its own; then all pieces in between are read at once, each from what was kept. Every
 * token does the same sums in the same order wherever a text is cut. Tokens, slots, heads and
 * widths are limited by memory alone. */
#ifndef DRA_SRC_OPS_CHUNKED_SLOTS_CUH
#define DRA_SRC_OPS_CHUNKED_SLOTS_CUH

#include "device/cuda/rows.cuh"

/* ---- what a run reads and writes ------------------------------------------------------------- */

/* Numbers of each token, slots of an owner or a row: by row of the batch, token, the head that owns
 * the slots, and the reader. */
struct dra_slots_array {
    float  *at; /* NULL: there is none */
    int64_t b, t, h, r;
};

struct dra_slots_part {   /* weights (S) and a row (W) of each token and reader, one of them made */
    dra_slots_array w, x; /* w.at NULL: 1 / S */
    int             count; /* of readers */
};

/* Slots (S, W): by row of the batch, head, number of the place in time. */
struct dra_slots_states {
    float  *at; /* NULL: zeros, or nobody reads them */
    int64_t b, h, i;
    int64_t row; /* from slot to slot */
};

struct dra_slots_run {
    int64_t          B, T, H;
    int              S, W;
    const int32_t   *mark; /* (B, T), or NULL */
    int64_t          mark_row;
    dra_slots_array  l;
    dra_slots_part   write, write_mean; /* the second one is of the owner, or none */
    dra_slots_part   read, read_mean;
    bool             add;    /* dots: to what is there; mix: over owners */
    bool             whole;  /* mix: a block has all owners */
    int              piece;  /* tokens from one place in time to the next */
    int              pieces; /* in all */
    dra_slots_states start;  /* before the first token, BACK after the last one */
    dra_slots_states kept;   /* before each piece; BACK after it, but for its fading */
};

/* ---- calls ----------------------------------------------------------------------------------- */

struct dra_slots_shape { /* see dra_slots_sizes in slots.cuh */
    int64_t        B, T, H, D, E, S, chunks;
    int64_t        tiles, readers, row; /* tokens of tiles and readers have rows of logits */
    dra_slots_read read;
    float          scale; /* of logits */
};

static inline dra_slots_shape dra_slots_shape_of(const dra_call *c)
{
    const dra_slots_attr *a = static_cast<const dra_slots_attr *>(c->attr);
    const int64_t        *q = c->in[DRA_SLOTS_Q].shape.dim;
    const bool            own = a->read == DRA_READ_OWN;
    dra_slots_shape       z = {q[0], q[1], q[2], q[3]};
    z.E = dra_last(&c->in[DRA_SLOTS_V]);
    z.S = dra_last(&c->in[DRA_SLOTS_L]);
    z.chunks = dra_div_up(z.T, DRA_SLOTS_CHUNK);
    z.read = a->read;
    z.tiles = own ? z.B * z.H : z.B;
    z.readers = a->read == DRA_READ_ALL ? z.H : 1;
    z.row = own ? z.S : z.H * z.S;
    z.scale = (float)(z.D > 0 ? 1 / sqrt((double)z.D) : 0);
    return z;
}

/* x (B, T, H, W): the rows of the owner of slots, of the query that a reader has for them, of where
 * the read goes. */
static inline dra_slots_array dra_slots_owned(const dra_tensor *x)
{
    if (!x || !x->data) return {};
    return {static_cast<float *>(x->data), x->stride[0], x->stride[1], x->stride[2], 0};
}

static inline dra_slots_array dra_slots_query(const dra_slots_shape &z, const dra_tensor *x)
{
    dra_slots_array a = dra_slots_owned(x);
    if (z.read == DRA_READ_ALL) a.r = a.h, a.h = 0;
    return a;
}

static inline dra_slots_array dra_slots_target(const dra_slots_shape &z, const dra_tensor *x)
{
    dra_slots_array a = dra_slots_query(z, x);
    if (z.read == DRA_READ_POOLED) a.h = 0;
    return a;
}

/* Logits and weights, (tiles, readers, T, row). */
static inline dra_slots_array dra_slots_logits(const dra_slots_shape &z, float *at)
{
    const int64_t reader = z.T * z.row, tile = z.readers * reader;
    if (z.read == DRA_READ_OWN) return {at, z.H * tile, z.row, tile, 0};
    return {at, tile, z.row, z.S, reader};
}

/* (B, H, S, W), and (B, H, places, S, W). */
static inline dra_slots_states dra_slots_states_of(const dra_tensor *x)
{
    if (!x || !x->data) return {};
    return {static_cast<float *>(x->data), x->stride[0], x->stride[1], 0, x->stride[2]};
}

static inline dra_slots_states dra_slots_borders_of(const dra_tensor *x)
{
    if (!x->data) return {};
    return {static_cast<float *>(x->data), x->stride[0], x->stride[1], x->stride[2], x->stride[3]};
}

static inline dra_slots_states dra_slots_states_in(const dra_slots_shape &z, float *at,
                                                   int64_t places, int64_t W)
{
    const int64_t one = z.S * W, head = places * one;
    return {at, z.H * head, head, one, W};
}

/* The one of a place in time, as states without it. */
static inline dra_slots_states dra_slots_place_of(dra_slots_states x, int64_t i)
{
    if (x.at) x.at += i * x.i;
    x.i = 0;
    return x;
}

/* A run over keys or values, whose pieces have that many tokens; what is written comes from u and
 * that input. */
static inline dra_slots_run dra_slots_run_of(const dra_call *c, int input, int piece)
{
    const dra_slots_attr *a = static_cast<const dra_slots_attr *>(c->attr);
    const dra_tensor     *x = &c->in[input];
    dra_slots_run         r = {};
    r.B = x->shape.dim[0], r.T = x->shape.dim[1], r.H = x->shape.dim[2];
    r.W = (int)dra_last(x);
    r.S = (int)dra_last(&c->in[DRA_SLOTS_L]);
    r.mark = a->mark ? static_cast<const int32_t *>(c->in[a->mark].data) : nullptr;
    r.mark_row = a->mark ? c->in[a->mark].stride[0] : 0;
    r.l = dra_slots_owned(&c->in[DRA_SLOTS_L]);
    r.write = {dra_slots_owned(&c->in[DRA_SLOTS_U]), dra_slots_owned(x), 1};
    r.piece = piece;
    r.pieces = (int)dra_div_up(r.T, piece);
    return r;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

struct dra_slots_token { /* token t, and the one whose fading comes before it */
    int64_t t, fades;
    bool    reset, pad;
};

/* 0 where there is no token: those that are fetched ahead may be before the first or after the
 * last. */
__device__ static inline int dra_slots_mark(const dra_slots_run &a, int64_t b, int64_t t)
{
    return a.mark && t >= 0 && t < a.T ? a.mark[b * a.mark_row + t] : 0;
}

/* The i-th of n tokens from `first` on, in the order of the run. */
template <bool BACK>
__device__ static inline dra_slots_token dra_slots_token_at(const dra_slots_run &a, int64_t b,
                                                            int64_t first, int n, int i)
{
    const int64_t t = first + (BACK ? n - 1 - i : i), fades = t + BACK;
    return {t, fades, (dra_slots_mark(a, b, fades) & DRA_MARK_RESET) != 0,
            (dra_slots_mark(a, b, t) & DRA_MARK_PAD) != 0};
}

__device__ static inline float *dra_slots_at(const dra_slots_array &x, int64_t b, int64_t t,
                                             int64_t h, int64_t r)
{
    return x.at + b * x.b + t * x.t + h * x.h + r * x.r;
}

/* e^l - 1 of slot i: gates near 1 are told apart by their distance to it. 0 at pads and after the
 * last token. */
__device__ static inline float dra_slots_fade(const dra_slots_run &a, int64_t b, int64_t h,
                                              int64_t t, int i)
{
    if (t >= a.T || dra_slots_mark(a, b, t) & DRA_MARK_PAD) return 0;
    return expm1f(dra_slots_at(a.l, b, t, h, 0)[i]);
}

__device__ static inline float dra_slots_weight(const dra_slots_run &a, const dra_slots_part &p,
                                                int64_t b, int64_t t, int64_t h, int r, int i)
{
    return p.w.at ? __ldg(dra_slots_at(p.w, b, t, h, r) + i) : 1 / (float)a.S;
}

__device__ static inline float *dra_slots_state(const dra_slots_states &x, int64_t b, int64_t h,
                                                int64_t i, int slot)
{
    return x.at + b * x.b + h * x.h + i * x.i + slot * x.row;
}

/* Where the slots of a piece begin; at NULL: zeros. */
template <bool BACK>
__device__ static inline const float *dra_slots_from(const dra_slots_run &a, int64_t b, int64_t h,
                                                     int piece, int64_t *row)
{
    const bool              first = piece == (BACK ? a.pieces - 1 : 0);
    const dra_slots_states &x = first ? a.start : a.kept;
    *row = x.row;
    if (!x.at) return nullptr;
    return dra_slots_state(x, b, h, first ? 0 : BACK ? piece + 1 : piece, 0);
}

__device__ static inline int dra_slots_tokens(const dra_slots_run &a, int64_t first, int most)
{
    return a.T - first < most ? (int)(a.T - first) : most;
}

/* ---- columns: a thread has one, and HELD slots ----------------------------------------------- */

enum { DRA_SLOTS_COLUMNS = 64, DRA_SLOTS_STAGE = DRA_SLOTS_CHUNK, DRA_SLOTS_AHEAD = 8 };

/* Of a piece, in shared memory: fading and the weights of the first write. */
template <int HELD> struct dra_slots_stage {
    float fade[DRA_SLOTS_STAGE][HELD], w[DRA_SLOTS_STAGE][HELD];

    template <bool BACK>
    __device__ void load(const dra_slots_run &a, int64_t b, int64_t h, int64_t first, int n,
                         int slot)
    {
        __syncthreads(); /* it may still be read from before */
        for (int k = (int)threadIdx.x; k < n * HELD; k += (int)blockDim.x) {
            const int s = k / HELD, i = k % HELD;
            if (slot + i >= a.S) continue;
            const dra_slots_token at = dra_slots_token_at<BACK>(a, b, first, n, s);
            fade[s][i] = dra_slots_fade(a, b, h, at.fades, slot + i);
            w[s][i] = at.pad ? 0 : dra_slots_weight(a, a.write, b, at.t, h, 0, slot + i);
        }
        __syncthreads();
    }
};

template <int HELD> struct dra_slots_column {
    float m[HELD];
    int   column, slot, slots; /* slots: that are there, from `slot` on */

    __device__ void open(const dra_slots_run &a, int first)
    {
        slot = first;
        slots = column >= a.W ? 0 : a.S - first < HELD ? a.S - first : HELD;
        DRA_UNROLL
        for (int i = 0; i < HELD; i++) m[i] = 0;
    }

    __device__ void load(const float *from, int64_t row)
    {
        DRA_UNROLL
        for (int i = 0; i < HELD; i++)
            m[i] = from && i < slots ? from[(slot + i) * row + column] : 0;
    }

    __device__ void store(float *to, int64_t row) const
    {
        DRA_UNROLL
        for (int i = 0; i < HELD; i++)
            if (i < slots) to[(slot + i) * row + column] = m[i];
    }

    /* One more write: that of reader r, or of the mean. */
    __device__ void write(const dra_slots_run &a, const dra_slots_part &p, int64_t b, int64_t t,
                          int64_t h, int r)
    {
        if (slots == 0) return;
        const float x = __ldg(dra_slots_at(p.x, b, t, h, r) + column);
        DRA_UNROLL
        for (int i = 0; i < HELD; i++)
            if (i < slots) m[i] = fmaf(dra_slots_weight(a, p, b, t, h, r, slot + i), x, m[i]);
    }

    /* Fading and writes of a token, whose first row has x here. */
    __device__ void take(const dra_slots_run &a, const dra_slots_token &at, int64_t b, int64_t h,
                         const float *fade, const float *w, float x)
    {
        DRA_UNROLL
        for (int i = 0; i < HELD; i++) {
            if (i >= slots) continue;
            m[i] = at.reset ? 0 : fmaf(fade[i], m[i], m[i]);
            if (!at.pad) m[i] = fmaf(w[i], x, m[i]);
        }
        for (int r = 1; r < a.write.count && !at.pad; r++) write(a, a.write, b, at.t, h, r);
        if (a.write_mean.x.at && !at.pad) write(a, a.write_mean, b, at.t, h, 0);
    }

    /* to (+)= the sum of the slots; 0 at pads. */
    __device__ void mix(const dra_slots_run &a, const dra_slots_part &p, const dra_slots_token &at,
                        int64_t b, int64_t h, int r, bool add) const
    {
        if (slots == 0) return;
        float *to = dra_slots_at(p.x, b, at.t, h, r) + column, sum = 0;
        DRA_UNROLL
        for (int i = 0; i < HELD; i++)
            if (i < slots && !at.pad)
                sum = fmaf(dra_slots_weight(a, p, b, at.t, h, r, slot + i), m[i], sum);
        *to = add ? *to + sum : sum;
    }

    /* A piece of n tokens from `first` on; then() after each. Rows of the next tokens are on their
     * way while these are taken. */
    template <bool BACK, typename F>
    __device__ void run(const dra_slots_run &a, const dra_slots_stage<HELD> &stage, int64_t b,
                        int64_t h, int64_t first, int n, F then)
    {
        for (int s = 0; s < n; s += DRA_SLOTS_AHEAD) {
            float x[DRA_SLOTS_AHEAD];
            DRA_UNROLL
            for (int k = 0; k < DRA_SLOTS_AHEAD; k++) {
                const dra_slots_token at = dra_slots_token_at<BACK>(a, b, first, n, s + k);
                const bool            there = s + k < n && slots > 0 && !at.pad;
                x[k] = there ? __ldg(dra_slots_at(a.write.x, b, at.t, h, 0) + column) : 0;
            }
            DRA_UNROLL
            for (int k = 0; k < DRA_SLOTS_AHEAD; k++) {
                if (s + k >= n) break;
                const dra_slots_token at = dra_slots_token_at<BACK>(a, b, first, n, s + k);
                take(a, at, b, h, stage.fade[s + k], stage.w[s + k], x[k]);
                then(at);
            }
        }
    }
};

/* ---- walk ------------------------------------------------------------------------------------ */

/* How a walk goes: over all pieces or, from slots that were kept every `span` pieces before, over
 * each span of its own. */
struct dra_slots_walk {
    dra_slots_run    run;
    int              span; /* pieces of a walk */
    dra_slots_states from; /* before each span */
    dra_slots_states last,
        end; /* after the last token, twice; BACK: last is before the first one */
};

enum { DRA_WALK_HELD = 4 };

struct dra_slots_place { /* of a block, which has DRA_SLOTS_COLUMNS columns of a few slots */
    int64_t b, h;
    int     span, slot, column;
};

static inline int64_t dra_slots_walk_blocks(const dra_slots_walk &w)
{
    const int64_t spans = dra_div_up(dra_imax(1, w.run.pieces), w.span);
    return w.run.B * w.run.H * spans * dra_div_up(w.run.S, DRA_WALK_HELD) *
           dra_div_up(w.run.W, DRA_SLOTS_COLUMNS);
}

__device__ static inline dra_slots_place dra_slots_walk_place(const dra_slots_walk &w,
                                                              int64_t               block)
{
    const dra_slots_run &a = w.run;
    const int            columns = (a.W + DRA_SLOTS_COLUMNS - 1) / DRA_SLOTS_COLUMNS;
    const int            groups = (a.S + DRA_WALK_HELD - 1) / DRA_WALK_HELD;
    const int            spans = a.pieces > 0 ? (a.pieces + w.span - 1) / w.span : 1;
    const int64_t        rest = block / columns / groups, head = rest / spans;
    return {head / a.H, head % a.H, (int)(rest % spans),
            (int)(block / columns % groups) * DRA_WALK_HELD,
            (int)(block % columns) * DRA_SLOTS_COLUMNS + (int)threadIdx.x};
}

/* What is left of m before the first token, by its own fading; nothing of NaN. */
__device__ static inline float dra_slots_first(const dra_slots_run &a, int64_t b, int64_t h, int i,
                                               float m)
{
    if (a.T == 0) return m;
    const float fade = dra_slots_fade(a, b, h, 0, i);
    return dra_slots_mark(a, b, 0) & DRA_MARK_RESET || fade == -1 ? 0 : fmaf(fade, m, m);
}

template <bool BACK>
__device__ static inline void dra_slots_walk_block(const dra_slots_walk &w, int64_t block,
                                                   dra_slots_stage<DRA_WALK_HELD> &stage)
{
    const dra_slots_run            &a = w.run;
    const dra_slots_place           p = dra_slots_walk_place(w, block);
    const int64_t                   b = p.b, h = p.h;
    dra_slots_column<DRA_WALK_HELD> c;
    c.column = p.column;
    c.open(a, p.slot);
    c.load(w.from.at ? dra_slots_state(w.from, b, h, p.span, 0) : nullptr, w.from.row);
    const int begin = p.span * w.span, stop = begin + w.span < a.pieces ? begin + w.span : a.pieces;
    for (int k = begin; k < stop; k++) {
        const int     piece = BACK ? stop - 1 - (k - begin) : k;
        const int64_t first = (int64_t)piece * a.piece;
        const int     n = dra_slots_tokens(a, first, a.piece);
        float *const  kept = a.kept.at ? dra_slots_state(a.kept, b, h, piece, 0) : nullptr;
        if (!BACK && kept) c.store(kept, a.kept.row);
        stage.template load<BACK>(a, b, h, first, n, c.slot);
        c.template run<BACK>(a, stage, b, h, first, n, [](const dra_slots_token &) {});
        if (BACK && kept) c.store(kept, a.kept.row);
    }
    if (stop < a.pieces) return;
    if (w.end.at) c.store(dra_slots_state(w.end, b, h, 0, 0), w.end.row);
    for (int i = 0; i < DRA_WALK_HELD && BACK; i++)
        if (i < c.slots) c.m[i] = dra_slots_first(a, b, h, c.slot + i, c.m[i]);
    if (w.last.at) c.store(dra_slots_state(w.last, b, h, 0, 0), w.last.row);
}

/* Keys and values at once: they do not see each other. */
template <bool BACK>
__global__ static void dra_slots_walk_kernel(const dra_slots_walk keys, const dra_slots_walk values,
                                             int64_t blocks)
{
    __shared__ dra_slots_stage<DRA_WALK_HELD> stage;
    if (blockIdx.x < blocks)
        dra_slots_walk_block<BACK>(keys, blockIdx.x, stage);
    else
        dra_slots_walk_block<BACK>(values, blockIdx.x - blocks, stage);
}

template <bool BACK>
static void dra_slots_walk_launch(const dra_call *c, const dra_slots_walk &keys,
                                  const dra_slots_walk &values)
{
    const int64_t first = dra_slots_walk_blocks(keys),
                  blocks = first + dra_slots_walk_blocks(values);
    if (blocks > 0)
        DRA_LAUNCH(c, dra_slots_walk_kernel<BACK>, (unsigned)blocks, DRA_SLOTS_COLUMNS, 0, keys,
                   values, first);
}

/* ---- mix: a block has a piece and DRA_SLOTS_COLUMNS columns ---------------------------------- */

enum { DRA_MIX_HELD = 16 };

template <bool BACK>
__device__ static inline void dra_slots_mix_owner(const dra_slots_run           &a,
                                                  dra_slots_stage<DRA_MIX_HELD> &stage, int64_t b,
                                                  int64_t h, int piece, bool add)
{
    const int                      columns = (a.W + DRA_SLOTS_COLUMNS - 1) / DRA_SLOTS_COLUMNS;
    const int64_t                  first = (int64_t)piece * a.piece;
    const int                      n = dra_slots_tokens(a, first, a.piece);
    int64_t                        row;
    const float                   *from = dra_slots_from<BACK>(a, b, h, piece, &row);
    dra_slots_column<DRA_MIX_HELD> c;
    c.column = (int)(blockIdx.x % columns) * DRA_SLOTS_COLUMNS + (int)threadIdx.x;
    for (int slot = 0; slot < a.S; slot += DRA_MIX_HELD) {
        c.open(a, slot);
        c.load(from, row);
        stage.template load<BACK>(a, b, h, first, n, slot);
        c.template run<BACK>(a, stage, b, h, first, n, [&](const dra_slots_token &at) {
            for (int r = 0; r < a.read.count; r++) c.mix(a, a.read, at, b, h, r, add || slot > 0);
            if (a.read_mean.x.at) c.mix(a, a.read_mean, at, b, h, 0, slot > 0);
        });
    }
}

template <bool BACK> __global__ static void dra_slots_mix_kernel(const dra_slots_run a)
{
    __shared__ dra_slots_stage<DRA_MIX_HELD> stage;
    const int64_t rest = blockIdx.x / ((a.W + DRA_SLOTS_COLUMNS - 1) / DRA_SLOTS_COLUMNS);
    const int     piece = (int)(rest % a.pieces);
    const int64_t number = rest / a.pieces, owners = a.whole ? a.H : 1;
    for (int64_t h = 0; h < owners; h++)
        dra_slots_mix_owner<BACK>(a, stage, a.whole ? number : number / a.H,
                                  a.whole ? h : number % a.H, piece, a.add && h > 0);
}

template <bool BACK> static void dra_slots_mix_launch(const dra_call *c, const dra_slots_run &a)
{
    const int64_t blocks = a.B * (a.whole ? 1 : a.H) * a.pieces *
                           dra_div_up(a.W, DRA_SLOTS_COLUMNS);
    const bool read = a.read.count > 0 || a.read_mean.x.at;
    if (blocks > 0 && a.H > 0 && read)
        DRA_LAUNCH(c, dra_slots_mix_kernel<BACK>, (unsigned)blocks, DRA_SLOTS_COLUMNS, 0, a);
}

/* ---- dots: a thread has columns of a slot, LANES of them all --------------------------------- */

enum { DRA_DOTS_HELD = 16, DRA_DOTS_THREADS = 128 };

/* Columns 4 (k LANES + lane) .. + 3 of a row from `first` on, k < 4; 0 after its end. */
template <int LANES>
__device__ static inline void dra_dots_load(const float *row, int first, int W, bool by_four,
                                            float *v)
{
    const int lane = (int)threadIdx.x % LANES;
    DRA_UNROLL
    for (int k = 0; k < DRA_DOTS_HELD / 4; k++) {
        const int column = first + 4 * (k * LANES + lane);
        if (by_four && column < W)
            dra_load_some<4>(row + column, v + 4 * k);
        else
            for (int j = 0; j < 4; j++) v[4 * k + j] = column + j < W ? row[column + j] : 0;
    }
}

struct dra_dots_call {
    dra_slots_run run;
    bool          by_four; /* rows and slots */
};

template <int LANES> struct dra_dots_slot {
    float m[DRA_DOTS_HELD];
    int   slot, first; /* column */

    __device__ void write(const dra_dots_call &w, const dra_slots_part &p, int64_t b, int64_t t,
                          int64_t h, int r)
    {
        const dra_slots_run &a = w.run;
        const float          weight = slot < a.S ? dra_slots_weight(a, p, b, t, h, r, slot) : 0;
        float                x[DRA_DOTS_HELD];
        dra_dots_load<LANES>(dra_slots_at(p.x, b, t, h, r), first, a.W, w.by_four, x);
        DRA_UNROLL
        for (int i = 0; i < DRA_DOTS_HELD; i++) m[i] = fmaf(weight, x[i], m[i]);
    }

    /* to (+)= m.x; 0 at pads. All lanes come. */
    __device__ void read(const dra_dots_call &w, const dra_slots_part &p, const dra_slots_token &at,
                         int64_t b, int64_t h, int r, bool add) const
    {
        float x[DRA_DOTS_HELD], sum = 0;
        if (!at.pad) {
            dra_dots_load<LANES>(dra_slots_at(p.x, b, at.t, h, r), first, w.run.W, w.by_four, x);
            DRA_UNROLL
            for (int i = 0; i < DRA_DOTS_HELD; i++) sum = fmaf(m[i], x[i], sum);
        }
        for (int by = 1; by < LANES; by *= 2) sum += __shfl_xor_sync(~0u, sum, by);
        if (threadIdx.x % LANES != 0 || slot >= w.run.S) return;
        float *to = dra_slots_at(p.w, b, at.t, h, r) + slot;
        *to = add ? *to + sum : sum;
    }

    template <bool BACK>
    __device__ void run(const dra_dots_call &w, const float *fade, int64_t b, int64_t h, int piece)
    {
        const dra_slots_run &a = w.run;
        const int64_t        begin = (int64_t)piece * a.piece;
        const int            n = dra_slots_tokens(a, begin, a.piece), slots = blockDim.x / LANES;
        int64_t              row;
        const float         *from = dra_slots_from<BACK>(a, b, h, piece, &row);
        const bool           there = from && slot < a.S;
        dra_dots_load<LANES>(there ? from + slot * row : nullptr, first, there ? a.W : 0, w.by_four,
                             m);
        for (int s = 0; s < n; s++) {
            const dra_slots_token at = dra_slots_token_at<BACK>(a, b, begin, n, s);
            const float           f = fade[s * slots + (int)threadIdx.x / LANES];
            DRA_UNROLL
            for (int i = 0; i < DRA_DOTS_HELD; i++) m[i] = at.reset ? 0 : fmaf(f, m[i], m[i]);
            for (int r = 0; r < a.write.count && !at.pad; r++) write(w, a.write, b, at.t, h, r);
            if (a.write_mean.x.at && !at.pad) write(w, a.write_mean, b, at.t, h, 0);
            for (int r = 0; r < a.read.count; r++) read(w, a.read, at, b, h, r, a.add || first > 0);
            if (a.read_mean.x.at) read(w, a.read_mean, at, b, h, 0, first > 0);
        }
    }
};

template <bool BACK, int LANES> __global__ static void dra_slots_dots_kernel(const dra_dots_call w)
{
    DRA_SHARED(float, fade); /* (piece, slots of the block) */
    const dra_slots_run &a = w.run;
    const int            slots = blockDim.x / LANES, groups = (a.S + slots - 1) / slots;
    const int            group = (int)(blockIdx.x % groups);
    const int64_t        rest = blockIdx.x / groups, head = rest / a.pieces;
    const int            piece = (int)(rest % a.pieces);
    const int64_t        b = head / a.H, h = head % a.H, begin = (int64_t)piece * a.piece;
    const int            n = dra_slots_tokens(a, begin, a.piece);
    for (int k = (int)threadIdx.x; k < n * slots; k += (int)blockDim.x) {
        const int             slot = group * slots + k % slots;
        const dra_slots_token at = dra_slots_token_at<BACK>(a, b, begin, n, k / slots);
        fade[k] = slot < a.S ? dra_slots_fade(a, b, h, at.fades, slot) : 0;
    }
    __syncthreads();
    dra_dots_slot<LANES> x;
    x.slot = group * slots + (int)threadIdx.x / LANES;
    for (x.first = 0; x.first < a.W || x.first == 0; x.first += DRA_DOTS_HELD * LANES)
        x.template run<BACK>(w, fade, b, h, piece);
}

template <bool BACK, int LANES>
static void dra_slots_dots_by(const dra_call *c, const dra_dots_call &w)
{
    const dra_slots_run &a = w.run;
    const int64_t        threads = dra_imin(DRA_DOTS_THREADS, dra_div_up(a.S * LANES, 32) * 32);
    const int64_t slots = threads / LANES, blocks = a.B * a.H * a.pieces * dra_div_up(a.S, slots);
    if (blocks > 0)
        DRA_LAUNCH(c, (dra_slots_dots_kernel<BACK, LANES>), (unsigned)blocks, (unsigned)threads,
                   (size_t)(a.piece * slots) * sizeof(float), w);
}

static inline bool dra_slots_by_four(const dra_slots_array &x)
{
    return !x.at || ((uintptr_t)x.at % 16 == 0 && x.b % 4 == 0 && x.t % 4 == 0 && x.h % 4 == 0 &&
                     x.r % 4 == 0);
}

static inline bool dra_states_by_four(const dra_slots_states &x)
{
    return !x.at || ((uintptr_t)x.at % 16 == 0 && x.b % 4 == 0 && x.h % 4 == 0 && x.i % 4 == 0 &&
                     x.row % 4 == 0);
}

template <bool BACK> static void dra_slots_dots_launch(const dra_call *c, const dra_slots_run &a)
{
    dra_dots_call w = {a};
    w.by_four = a.W % 4 == 0 && dra_slots_by_four(a.write.x) && dra_slots_by_four(a.write_mean.x) &&
                dra_slots_by_four(a.read.x) && dra_slots_by_four(a.read_mean.x) &&
                dra_states_by_four(a.start) && dra_states_by_four(a.kept);
    if (a.W <= 2 * DRA_DOTS_HELD)
        dra_slots_dots_by<BACK, 2>(c, w);
    else if (a.W <= 4 * DRA_DOTS_HELD)
        dra_slots_dots_by<BACK, 4>(c, w);
    else
        dra_slots_dots_by<BACK, 8>(c, w);
}

#endif
