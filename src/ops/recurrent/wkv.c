/* wkv of RWKV-4 [Peng et al. 2023], for every channel on its own. With a = e^p A, b = e^p B:
 *   y_t = (a + e^(u+k) v) / (b + e^(u+k)),   then   a = e^w a + e^k v,  b = e^w b + e^k
 * Nothing may overflow, so a step takes the largest exponent out of each sum, in this order:
 *   q = max(p, u+k):   y = (e1 A + e2 v) / (e1 B + e2),      e1 = e^(p-q),    e2 = e^(u+k-q)
 *   q = max(p+w, k):   A = f1 A + f2 v,  B = f1 B + f2,  p = q,  f1 = e^(p+w-q), f2 = e^(k-q)
 *
 * Gradient at fixed p and q, which cancel out, t = T-1..0, from dA, dB of the last state; c = dy /
 * (e1 B + e2):
 *   dv = c e2 + f2 dA                        dk = c e2 (v-y) + f2 (v dA + dB)
 *   du += c e2 (v-y)                         dw += f1 (A dA + B dB)
 *   dA = f1 dA + c e1                        dB = f1 dB - c e1 y
 * A pad has y = 0 and leaves the state; a reset before t gives the state 0, 0, -1e30. */
#include "ops/recurrent/wkv_loops.h"
#include "ops/recurrent/recur.h"

enum { BLOCK = DRA_RECUR_BLOCK, STATE = 3 }; /* A, B, p */

const dra_wkv_loops *dra_wkv_loops_of(const dra_simd *simd)
{
    static const dra_wkv_loops *const by_level[] = DRA_BY_LEVEL(dra_wkv_loops);
    return by_level[simd->level];
}

/* ---- forward: (k, v, w, u, A, B, p[, mark]) -> y, A, B, p, the states before each run -------- */

enum { K, V, W, U, START, MARK = START + STATE };
enum { Y, LAST, BORDERS = LAST + STATE };

static dra_status infer_wkv(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_shape *k = &dra_type_of(g, n->in[K])->shape;
    const int64_t    B = k->dim[0], C = k->dim[2], runs = dra_recur_runs(k->dim[1]);
    out[Y] = (dra_type){DRA_REAL, *k};
    for (int i = 0; i < STATE; i++) out[LAST + i] = (dra_type){DRA_REAL, DRA_SHAPE(B, C)};
    out[BORDERS] = (dra_type){DRA_REAL, DRA_SHAPE(B, runs, STATE, C)};
    return DRA_OK;
}

/* Tokens t..t+T-1 of the tile. */
static void run_wkv_tokens(const dra_call *c, const dra_recur_tile *at, int64_t t, int64_t T,
                           real *state)
{
    dra_wkv_loops_of(dra_simd_of(c))
        ->forward(&(dra_wkv_run){
            .n = at->n,
            .T = T,
            .k_row = c->in[K].stride[1],
            .v_row = c->in[V].stride[1],
            .y_row = c->out[Y].stride[1],
            .mark = dra_recur_marks(c->n_in > MARK ? &c->in[MARK] : NULL, at, t),
            .k = dra_recur_at(&c->in[K], at->b, t, at->first),
            .v = dra_recur_at(&c->in[V], at->b, t, at->first),
            .w = dra_recur_at(&c->in[W], at->first, 0, 0),
            .u = dra_recur_at(&c->in[U], at->first, 0, 0),
            .state = {state, state + BLOCK, state + 2 * BLOCK},
            .y = c->out[Y].data ? dra_recur_at(&c->out[Y], at->b, t, at->first) : NULL,
        });
}

static void run_wkv_tile(const dra_call *c, int64_t number)
{
    const dra_recur_tile at = dra_recur_tile_at(c, number);
    const int64_t        T = c->in[K].shape.dim[1];
    const dra_tensor    *borders = &c->out[BORDERS];
    real                 state[STATE * BLOCK];
    for (int i = 0; i < STATE; i++)
        dra_recur_copy(at.n, dra_recur_at(&c->in[START + i], at.b, at.first, 0), state + i * BLOCK);
    for (int64_t t = 0; t < T; t += DRA_RUN) {
        for (int i = 0; i < STATE && borders->data; i++)
            dra_recur_copy(at.n, state + i * BLOCK,
                           dra_recur_at(borders, at.b, t / DRA_RUN, i) + at.first);
        run_wkv_tokens(c, &at, t, dra_imin(DRA_RUN, T - t), state);
    }
    for (int i = 0; i < STATE; i++)
        if (c->out[LAST + i].data)
            dra_recur_copy(at.n, state + i * BLOCK,
                           dra_recur_at(&c->out[LAST + i], at.b, at.first, 0));
}

/* ---- backward: (k, v, w, u, borders, dy, dA, dB[, mark]) -> dk, dv, dw, du, dA, dB ----------- */

enum { BACK_BORDERS = U + 1, DY, DLAST, BACK_MARK = DLAST + 2 };
enum { DK, DV, DW, DU, DSTART };

static dra_status back_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    for (int i = 0; i < 4; i++) out[DK + i] = *dra_type_of(g, n->in[K + i]);
    for (int i = 0; i < 2; i++) out[DSTART + i] = *dra_type_of(g, n->in[DLAST + i]);
    return DRA_OK;
}

/* Scratch: dw, du, dA and dB of each row of the batch, (B, C) each. */
static int64_t part_size(const dra_call *c)
{
    return c->in[K].shape.dim[0] * c->in[K].shape.dim[2];
}

static real *find_part(const dra_call *c, int k, const dra_recur_tile *at)
{
    return (real *)c->scratch + k * part_size(c) + at->b * c->in[K].shape.dim[2] + at->first;
}

static size_t back_scratch(const dra_call *c) { return (size_t)(4 * part_size(c)) * sizeof(real); }

static int64_t back_stages(const dra_call *c) { return 2; }

static int64_t back_tiles(const dra_call *c) { return c->stage == 0 ? dra_recur_tiles(c) : 1; }

/* Row t of an output; NULL where nobody reads it. */
static real *row_of(const dra_call *c, int output, const dra_recur_tile *at, int64_t t)
{
    return c->out[output].data ? dra_recur_at(&c->out[output], at->b, t, at->first) : NULL;
}

static void back_run(const dra_call *c, const dra_recur_tile *at, int64_t run)
{
    const dra_tensor *borders = &c->in[BACK_BORDERS];
    const int64_t     t = run * DRA_RUN;
    dra_wkv_loops_of(dra_simd_of(c))
        ->back(&(dra_wkv_back_run){
            .n = at->n,
            .T = dra_imin(DRA_RUN, c->in[K].shape.dim[1] - t),
            .k_row = c->in[K].stride[1],
            .v_row = c->in[V].stride[1],
            .dy_row = c->in[DY].stride[1],
            .d_row = c->out[DK].stride[1],
            .mark = dra_recur_marks(c->n_in > BACK_MARK ? &c->in[BACK_MARK] : NULL, at, t),
            .k = dra_recur_at(&c->in[K], at->b, t, at->first),
            .v = dra_recur_at(&c->in[V], at->b, t, at->first),
            .w = dra_recur_at(&c->in[W], at->first, 0, 0),
            .u = dra_recur_at(&c->in[U], at->first, 0, 0),
            .state = {dra_recur_at(borders, at->b, run, 0) + at->first,
                      dra_recur_at(borders, at->b, run, 1) + at->first,
                      dra_recur_at(borders, at->b, run, 2) + at->first},
            .dy = dra_recur_at(&c->in[DY], at->b, t, at->first),
            .dk = row_of(c, DK, at, t),
            .dv = row_of(c, DV, at, t),
            .dw = find_part(c, 0, at),
            .du = find_part(c, 1, at),
            .dA = find_part(c, 2, at),
            .dB = find_part(c, 3, at),
        });
}

static void back_row(const dra_call *c, int64_t number)
{
    const dra_recur_tile at = dra_recur_tile_at(c, number);
    for (int i = 0; i < 2; i++) {
        dra_recur_clear(at.n, find_part(c, i, &at));
        dra_recur_copy(at.n, dra_recur_at(&c->in[DLAST + i], at.b, at.first, 0),
                       find_part(c, 2 + i, &at));
    }
    for (int64_t k = dra_recur_runs(c->in[K].shape.dim[1]) - 1; k >= 0; k--) back_run(c, &at, k);
    for (int i = 0; i < 2; i++)
        if (c->out[DSTART + i].data)
            dra_recur_copy(at.n, find_part(c, 2 + i, &at),
                           dra_recur_at(&c->out[DSTART + i], at.b, at.first, 0));
}

/* The rows of the batch are added up in their order. */
static void back_sum(const dra_call *c)
{
    const int64_t B = c->in[K].shape.dim[0], C = c->in[K].shape.dim[2];
    for (int i = 0; i < 2; i++)
        dra_recur_sum(c, B, C, (real *)c->scratch + i * part_size(c), c->out[DW + i].data);
}

static void back_tile(const dra_call *c, int64_t number)
{
    if (c->stage == 0)
        back_row(c, number);
    else
        back_sum(c);
}

/* ---- the ops --------------------------------------------------------------------------------- */

extern const dra_op dra_op_wkv, dra_op_wkv_back;

static void derive_wkv(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dra_value in[BACK_MARK + 1] = {n->in[K], n->in[V], n->in[W], n->in[U], n->out[BORDERS]};
    if (!dy[Y].id && !dy[LAST].id && !dy[LAST + 1].id) return; /* p is a constant */
    for (int i = 0; i < 3; i++) in[DY + i] = dra_recur_upstream(g, dy[Y + i], n->out[Y + i]);
    if (n->n_in > MARK) in[BACK_MARK] = n->in[MARK];
    const dra_node *back = dra_node_add(g, &dra_op_wkv_back, BACK_MARK + n->n_in - MARK, in, NULL);
    for (int i = 0; back && i < START + 2; i++) dx[i] = back->out[i]; /* k, v, w, u, A, B */
}

/* For each token and channel, exponentials and quotients counted as one. */
static dra_cost cost_wkv(const dra_call *c)
{
    const double steps = (double)dra_rows(&c->in[K]) * (double)dra_last(&c->in[K]);
    return (dra_cost){steps * (c->n_out == BORDERS + 1 ? 17 : 42), dra_call_bytes(c)};
}

/* A tile copies its part of the state first and writes it back last. */
static uint32_t take_wkv_inputs(const void *attr, int out)
{
    return out >= LAST && out < BORDERS ? 1u << (START + out - LAST) : 0;
}

const dra_op dra_op_wkv = {.name = "wkv",
                           .n_in = DRA_MANY,
                           .n_out = BORDERS + 1,
                           .infer = infer_wkv,
                           .gradient = derive_wkv,
                           .cost = cost_wkv};

const dra_cpu_kernel dra_cpu_wkv = {
    .base = {.op = "wkv",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .takes = take_wkv_inputs},
    .tiles = dra_recur_tiles,
    .tile = run_wkv_tile,
};

const dra_op dra_op_wkv_back = {.name = "wkv_back",
                                .n_in = DRA_MANY,
                                .n_out = DSTART + 2,
                                .infer = back_infer,
                                .cost = cost_wkv};

const dra_cpu_kernel dra_cpu_wkv_back = {
    .base = {.op = "wkv_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = back_scratch},
    .tiles = back_tiles,
    .tile = back_tile,
    .stages = back_stages,
};

static bool check_wkv(dra_graph *g, const dra_value *in, dra_value mark)
{
    static const char *const names[] = {"k", "v", "w", "u", "start A", "start B", "start p"};
    const dra_shape          k = dra_type_of(g, in[K])->shape;
    if (k.rank != 3) {
        dra_build_fail(g, "wkv", DRA_ERR_SHAPE, "k is %s, expected (B, T, C)",
                       dra_type_text(g, in[K]));
        return false;
    }
    const dra_shape C = DRA_SHAPE(k.dim[2]), state = DRA_SHAPE(k.dim[0], k.dim[2]);
    for (int i = 0; i < MARK; i++)
        if (!dra_recur_expect(g, "wkv", names[i], in[i], DRA_REAL,
                              i < W       ? k
                              : i < START ? C
                                          : state))
            return false;
    return !mark.id ||
           dra_recur_expect(g, "wkv", "mark", mark, DRA_I32, DRA_SHAPE(k.dim[0], k.dim[1]));
}

/* start[i] of an empty state, for k of any shape: shapes are checked later. */
static dra_value make_empty(dra_graph *g, dra_value k, int i)
{
    const dra_shape s = dra_type_of(g, k)->shape;
    return dra_broadcast(g, dra_number(g, i == 2 ? (double)DRA_WKV_EMPTY : 0),
                         DRA_SHAPE(s.dim[0], s.dim[2]));
}

dra_value dra_wkv(dra_graph *g, dra_value k, dra_value v, dra_value w, dra_value u,
                  const dra_value *start, dra_value mark, dra_value *last)
{
    dra_value in[MARK + 1] = {k, v, w, u};
    for (int i = 0; i < STATE && last; i++) last[i] = (dra_value){0};
    if (!dra_check_values(g, "wkv", START, in)) return (dra_value){0};
    for (int i = 0; i < STATE; i++) in[START + i] = start ? start[i] : make_empty(g, k, i);
    in[MARK] = mark;
    const int n = mark.id ? MARK + 1 : MARK;
    if (!dra_check_values(g, "wkv", n, in) || !check_wkv(g, in, mark)) return (dra_value){0};
    const dra_node *wkv = dra_node_add(g, &dra_op_wkv, n, in, NULL);
    for (int i = 0; i < STATE && wkv && last; i++) last[i] = wkv->out[LAST + i];
    return wkv ? wkv->out[Y] : (dra_value){0};
}
