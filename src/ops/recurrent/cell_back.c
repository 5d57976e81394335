/* Recurrent cells over time, backward: see cell.h. A token gives du, the gradient of w h + b,
 * of each row; then, with h_{t-1} the state it found,
 *   dh_{t-1} += w^T du,   db += du,   dw += du^T h_{t-1}
 * The first is a product for every token, the last one for every segment of tokens. Sums over rows
 * and tokens are those of a tile; the tiles of a set are added in order at the end. Where tiles are
 * too few for the threads, dw is a stage of its own, by rows of it, of the same segments. With
 * slots dx_t is the sum over the rows of a part, and the number that mixes in c - h_{t-1} gets the
 * product of that with all that comes to h_t. */
#include "ops/recurrent/cell.h"

enum { SEGMENT = 128 }; /* rows of du and h_{t-1} before they go into dw: they stay in the cache */

typedef struct room { /* a tile's scratch, G the gates */
    real *dw;         /* (G D, D) */
    real *db;         /* (G D) */
    real *swing;      /* (rows, D) */
    real *d;          /* (states, rows, D) */
    real *zeros;      /* (D) */
    real *du, *h;     /* (n, G D), (n, D): of a segment, or in stages of all time */
    real *dx, *mix;   /* with slots: (rows, G D), (rows, D) */
    real *all, *step; /* and (D) each: d + dh, c - h */
} room;

typedef struct stages {
    bool    apart;  /* dw is a stage of its own */
    int64_t tiles;  /* that walk */
    int64_t rows;   /* of du and h of each: a segment, or apart all time */
    int64_t blocks; /* of rows of the dw of each, apart */
} stages;

typedef struct walk {
    const dra_call      *c;
    const dra_cell_attr *a;
    stages               stages;
    dra_cell_place       at;
    room                 room;
    int64_t              filled; /* rows of the segment */
} walk;

enum {
    WALK = 60, /* of a tile's time, in percent; the rest is dw */
    MORE = 5,  /* for what goes through memory, apart */
    FEW_THREADS = 2,
    ENOUGH = 4,  /* tiles for each thread */
    DW_ROWS = 16 /* of a block at least */
};

static stages stages_of(const dra_call *c)
{
    const int     inputs = dra_cell_back_inputs(c->attr);
    const int64_t T = c->in[0].shape.dim[1], rows = dra_cell_most_rows(c, inputs);
    const int64_t threads = c->threads, tiles = dra_cell_all_groups(c, inputs);
    stages        s = {.tiles = tiles, .rows = SEGMENT};
    if (threads <= FEW_THREADS || tiles >= ENOUGH * threads || T * rows <= SEGMENT) return s;
    const double walks = (double)dra_div_up(tiles, threads);
    const double dw = (double)tiles / (double)threads;
    s.apart = 1.1 * (WALK * walks + (100 - WALK) * dw + MORE) < 100 * walks;
    if (!s.apart) return s;
    s.rows = T * rows;
    s.blocks = dra_div_up(ENOUGH * threads, tiles);
    return s;
}

static int64_t room_size(const dra_call *c, const stages *s)
{
    const dra_cell_attr *a = c->attr;
    const int64_t        D = dra_cell_widest(c, dra_cell_back_inputs(a)), G = a->gates;
    const int64_t        slots = a->slots ? DRA_CELL_ROWS * (G + 1) + 2 : 0;
    return D * (G * D + G + (1 + a->states) * DRA_CELL_ROWS + 1 + s->rows * (G + 1) + slots);
}

static room room_of(const dra_call *c, const stages *s, int64_t D, int64_t i)
{
    const dra_cell_attr *a = c->attr;
    const int64_t        G = a->gates;
    room                 m;
    m.dw = (real *)c->scratch + i * room_size(c, s);
    m.db = m.dw + G * D * D;
    m.swing = m.db + G * D;
    m.d = m.swing + DRA_CELL_ROWS * D;
    m.zeros = m.d + a->states * DRA_CELL_ROWS * D;
    m.du = m.zeros + D;
    m.h = m.du + s->rows * G * D;
    m.dx = m.mix = m.all = m.step = NULL;
    if (!a->slots) return m;
    m.dx = m.h + s->rows * D;
    m.mix = m.dx + DRA_CELL_ROWS * G * D;
    m.all = m.mix + DRA_CELL_ROWS * D;
    m.step = m.all + D;
    return m;
}

/* The gradient that comes to state k of row r. */
static real *d_of(const room *m, int64_t D, int k, int64_t r)
{
    return m->d + (k * DRA_CELL_ROWS + r) * D;
}

size_t dra_cell_back_scratch(const dra_call *c)
{
    const stages s = stages_of(c);
    return (size_t)(s.tiles * room_size(c, &s)) * sizeof(real);
}

static dra_cell_place place_at(const dra_call *c, int64_t i)
{
    return dra_cell_place_at(c, dra_cell_back_inputs(c->attr), dra_cell_back_outputs(c->attr), 1,
                             i);
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* The state row r had before token t. */
static const real *state_before(const walk *w, int32_t bits, int64_t t, int64_t r)
{
    const int64_t b = w->at.b[r], h = w->at.h[r];
    if (bits & DRA_MARK_RESET) return w->room.zeros;
    if (t == 0) return dra_recur_at(&w->at.in[DRA_CELL_BACK_START], b, h, 0);
    return dra_recur_at(&w->at.in[DRA_CELL_BACK_H], b, t - 1, h);
}

static int32_t bits_of(const walk *w, int64_t t, int64_t r)
{
    return dra_recur_mark(&w->c->in[w->c->n_in - 1], w->at.b[r], t);
}

/* A pad: the gradient of its states is that of the ones before, which are equal. */
static void pass_pad(const walk *w, const real *dh, real *d, real *dx, real *du)
{
    const int64_t D = w->at.size.D, G = w->a->gates;
    dra_simd_of(w->c)->add(D, d, dh, d);
    dra_recur_clear(G * D, dx);
    dra_recur_clear(G * D, du);
}

/* The destination of dx of row r; without one `other`, which the cell fills afterwards. */
static real *dx_of_row(const walk *w, int64_t t, int64_t r, real *other)
{
    const dra_tensor *dx = &w->at.out[DRA_CELL_DX];
    if (!dx->data) return other;
    if (w->at.size.S == 1) return dra_recur_at(dx, w->at.b[r], t, w->at.h[r]);
    return w->room.dx + r * w->a->gates * w->at.size.D; /* see add_slots() */
}

/* c - h = (1-z) (n - h), from r, 1-z, n and m as gru keeps them. */
static void gru_change(const dra_simd *simd, int64_t D, const real *kept, const real *h, real *to)
{
    simd->sub(D, kept + 2 * D, h, to);
    simd->mul(D, kept + D, to, to);
}

/* Slots, which are of a gru: the gradient of the number that mixed row r of token t; none at a pad.
 * */
static void grad_of_mix(const walk *w, int64_t t, int64_t r, bool pad, const real *h,
                        const real *dh)
{
    const dra_simd   *simd = dra_simd_of(w->c);
    const dra_tensor *to = &w->at.out[DRA_CELL_DSWING], *kept = &w->at.in[DRA_CELL_BACK_KEPT];
    const int64_t     D = w->at.size.D, b = w->at.b[r], state = w->at.h[r];
    if (!w->a->slots || !to->data) return;
    real *grad = dra_recur_at(to, b, t, state);
    *grad = 0;
    if (pad) return;
    simd->add(D, d_of(&w->room, D, 0, r), dh, w->room.all);
    gru_change(simd, D, dra_recur_at(kept, b, t, state), h, w->room.step);
    *grad = simd->dot(D, w->room.all, w->room.step);
}

/* Fills the segment's rows of h; rows of du that are pads, the others are for the cell. */
static dra_cell_back open_token(const walk *w, int64_t t)
{
    const dra_tensor *in = w->at.in;
    const int64_t     D = w->at.size.D, G = w->a->gates;
    dra_cell_back     s = {.D = D, .ahead = -w->at.size.H * w->at.size.S, .db = w->room.db};
    s.w_row = in[DRA_CELL_BACK_W].stride[in[DRA_CELL_BACK_W].shape.rank - 2];
    s.w = (const real *)in[DRA_CELL_BACK_W].data;
    if (w->at.size.sets > 1) s.w += w->at.set * in[DRA_CELL_BACK_W].stride[0];
    for (int64_t r = 0; r < w->at.rows; r++) {
        const int64_t row = w->at.b[r], state = w->at.h[r];
        const int32_t bits = bits_of(w, t, r);
        const real   *h = state_before(w, bits, t, r);
        const real   *dh = dra_recur_at(&in[DRA_CELL_BACK_DH], row, t, state);
        real         *du = w->room.du + (w->filled + r) * G * D;
        real         *to = dx_of_row(w, t, r, du);
        dra_recur_copy(D, h, w->room.h + (w->filled + r) * D);
        grad_of_mix(w, t, r, bits & DRA_MARK_PAD, h, dh);
        if (bits & DRA_MARK_PAD) {
            pass_pad(w, dh, d_of(&w->room, D, 0, r), to, du);
            continue;
        }
        s.kept[s.rows] = dra_recur_at(&in[DRA_CELL_BACK_KEPT], row, t, state);
        s.h[s.rows] = h;
        s.mix[s.rows] = dra_cell_mix_of(&w->at, &in[DRA_CELL_BACK_MIX], t, r, w->room.mix);
        s.dy[s.rows] = dh;
        s.d[s.rows] = d_of(&w->room, D, 0, r);
        s.dc[s.rows] = w->a->states > 1 ? d_of(&w->room, D, 1, r) : NULL;
        s.dx[s.rows] = to;
        s.du[s.rows] = du;
        s.swing[s.rows] = w->room.swing + r * D;
        s.rows++;
    }
    return s;
}

/* dx of each part: the sum of its rows, which follow each other. */
static void add_slots(const walk *w, int64_t t)
{
    const dra_cell_place *at = &w->at;
    const dra_tensor     *dx = &at->out[DRA_CELL_DX];
    const int64_t         n = w->a->gates * at->size.D;
    for (int64_t r = 0; r < at->rows; r++) {
        const real *from = w->room.dx + r * n;
        real       *to = dra_recur_at(dx, at->b[r], t, at->part[r]);
        if (r > 0 && at->b[r] == at->b[r - 1] && at->part[r] == at->part[r - 1])
            dra_simd_of(w->c)->add(n, to, from, to);
        else
            dra_recur_copy(n, from, to);
    }
}

/* Nothing goes through a reset. */
static void close_token(walk *w, int64_t t)
{
    const int64_t D = w->at.size.D;
    if (w->at.size.S > 1 && w->at.out[DRA_CELL_DX].data) add_slots(w, t);
    for (int64_t r = 0; r < w->at.rows; r++)
        for (int k = 0; k < w->a->states && bits_of(w, t, r) & DRA_MARK_RESET; k++)
            dra_recur_clear(D, d_of(&w->room, D, k, r));
    w->filled += w->at.rows;
}

/* Rows first..end-1 of dw += du^T h over n rows of these from `from` on. */
static void add_segment(const walk *w, int64_t from, int64_t n, int64_t first, int64_t end)
{
    const int64_t D = w->at.size.D, G = w->a->gates;
    if (w->at.out[DRA_CELL_DW].data)
        dra_simd_of(w->c)->gemm(&(dra_gemm){
            .M = end - first,
            .N = D,
            .K = n,
            .a = w->room.du + from * G * D + first,
            .a_row = 1,
            .a_col = G * D,
            .b = w->room.h + from * D,
            .b_row = D,
            .b_col = 1,
            .c = w->room.dw + first * D,
            .c_row = D,
            .accumulate = true,
        });
}

/* Copies between the gradients of the tile's states and tensors (B, H, D), one for each state. */
static void copy_states(const walk *w, const dra_tensor *x, bool in)
{
    const int64_t D = w->at.size.D;
    for (int k = 0; k < w->a->states; k++)
        for (int64_t r = 0; r < w->at.rows && x[k].data; r++) {
            real *d = d_of(&w->room, D, k, r);
            real *there = dra_recur_at(&x[k], w->at.b[r], w->at.h[r], 0);
            dra_recur_copy(D, in ? there : d, in ? d : there);
        }
}

static walk walk_of(const dra_call *c, int64_t i)
{
    walk w = {.c = c, .a = c->attr, .stages = stages_of(c), .at = place_at(c, i)};
    w.room = room_of(c, &w.stages, w.at.size.D, i);
    return w;
}

static void walk_back(const dra_call *c, int64_t i)
{
    const dra_cell_loops *loops = dra_cell_loops_of(dra_simd_of(c));
    walk                  w = walk_of(c, i);
    dra_recur_clear(w.room.d - w.room.dw, w.room.dw); /* dw, db, swing */
    dra_recur_clear(w.at.size.D, w.room.zeros);
    copy_states(&w, &w.at.in[DRA_CELL_BACK_DLAST], true);
    for (int64_t t = w.at.size.T - 1; t >= 0; t--) {
        const dra_cell_back s = open_token(&w, t);
        (w.a->formula == DRA_CELL_LSTM ? loops->lstm_back : loops->gru_back)(&s);
        close_token(&w, t);
        if (w.stages.apart || (t > 0 && w.filled + w.at.rows <= SEGMENT)) continue;
        add_segment(&w, 0, w.filled, 0, w.a->gates * w.at.size.D);
        w.filled = 0;
    }
    copy_states(&w, &w.at.out[DRA_CELL_DSTART], false);
}

/* Some rows of dw of a tile that has walked. */
static void add_products(const dra_call *c, int64_t i)
{
    const int64_t blocks = stages_of(c).blocks, block = i % blocks;
    const walk    w = walk_of(c, i / blocks);
    const int64_t all = w.a->gates * w.at.size.D, units = dra_div_up(all, DW_ROWS);
    const int64_t first = block * units / blocks * DW_ROWS;
    const int64_t end = dra_imin((block + 1) * units / blocks * DW_ROWS, all);
    const int64_t rows = w.at.size.T * w.at.rows, each = SEGMENT / w.at.rows * w.at.rows;
    for (int64_t from = 0; from < rows && first < end; from += each)
        add_segment(&w, from, dra_imin(each, rows - from), first, end);
}

/* ---- the sums of a set's tiles --------------------------------------------------------------- */

static real *set_of(const dra_tensor *x, int64_t set, int64_t size)
{
    return x->data ? (real *)x->data + set * size : NULL;
}

static void add_tile(const dra_call *c, int64_t i, real *dw, real *db, real *swing)
{
    const dra_cell_attr *a = c->attr;
    const dra_cell_place at = place_at(c, i);
    const stages         s = stages_of(c);
    const int64_t        D = at.size.D, G = a->gates;
    const room           m = room_of(c, &s, D, i);
    if (dw) dra_simd_of(c)->add(G * D * D, dw, m.dw, dw);
    if (db) dra_simd_of(c)->add(G * D, db, m.db, db);
    for (int64_t r = 0; r < at.rows && swing; r++)
        dra_simd_of(c)->add(D, swing + at.h[r] * D, m.swing + r * D, swing + at.h[r] * D);
}

/* Set `set` of all cells, one cell after the other. */
static void add_set(const dra_call *c, int64_t set)
{
    const dra_cell_attr *a = c->attr;
    const dra_tensor    *in = c->in, *out = c->out;
    dra_cell_sizes       n = dra_cell_sizes_of(a, in);
    int64_t              tile = 0;
    for (; set >= n.sets; n = dra_cell_sizes_of(a, in)) {
        set -= n.sets;
        tile += n.sets * n.groups;
        in += dra_cell_back_inputs(a);
        out += dra_cell_back_outputs(a);
    }
    const int64_t D = n.D, G = a->gates, heads = n.H / n.sets;
    real         *dw = set_of(&out[DRA_CELL_DW], set, G * D * D);
    real         *db = set_of(&out[DRA_CELL_DB], set, G * D);
    real         *swing = a->slots ? NULL : out[DRA_CELL_DSWING].data;
    if (dw) dra_recur_clear(G * D * D, dw);
    if (db) dra_recur_clear(G * D, db);
    if (swing) dra_recur_clear(heads * D, swing + set * heads * D);
    for (int64_t k = 0; k < n.groups; k++) add_tile(c, tile + set * n.groups + k, dw, db, swing);
}

/* ---- kernel ---------------------------------------------------------------------------------- */

enum { WALKS, PRODUCTS, SETS };

static int64_t stage_of(const dra_call *c)
{
    return c->stage > 0 && !stages_of(c).apart ? SETS : c->stage;
}

int64_t dra_cell_back_stages(const dra_call *c) { return stages_of(c).apart ? SETS + 1 : SETS; }

int64_t dra_cell_back_tiles(const dra_call *c)
{
    const int     inputs = dra_cell_back_inputs(c->attr);
    const stages  s = stages_of(c);
    const int64_t stage = stage_of(c);
    int64_t       sets = 0;
    if (stage != SETS) return s.tiles * (stage == PRODUCTS ? s.blocks : 1);
    for (int k = 0; k < dra_cell_count(c, inputs); k++)
        sets += dra_cell_sizes_of(c->attr, c->in + k * inputs).sets;
    return sets;
}

void dra_cell_back_tile(const dra_call *c, int64_t i)
{
    static void (*const by_stage[])(const dra_call *, int64_t) = {walk_back, add_products, add_set};
    by_stage[stage_of(c)](c, i);
}

dra_cost dra_cell_back_cost(const dra_call *c)
{
    const int inputs = dra_cell_back_inputs(c->attr);
    return (dra_cost){2 * dra_cell_product_flops(c, inputs), dra_call_bytes(c)};
}
