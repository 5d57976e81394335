/* Attention that never holds the score matrix:
 *   y_t = sum_j p_tj v_j,  p_tj = e^(s_tj - lse_t),  lse_t = ln sum_j e^(s_tj)
 * with s as in attend_tile.c. A tile takes 32 queries of one head through the blocks of keys they
 * see and keeps, per query, the largest score so far m, the sum l = sum e^(s - m) and y in units of
 * e^m; when m grows, both shrink by e^(m_old - m_new). [Milakov, Gimelshein 2018: Online normalizer
 * calculation for softmax; Dao et al. 2022: FlashAttention]
 * Dropout acts on the weights after the sum. A query that sees nothing has y = 0. One query alone,
 * with many keys, has its stages in attend_one.c.
 * Gradient: attend_back.c computes p again from lse. An upstream of lse itself adds p_tj dlse_t to
 * ds_tj, so it joins delta_t there. */
#include <string.h>
#include <tgmath.h>

#include "ops/attention/attend.h"

enum { ROWS = DRA_ATTEND_ROWS, KEYS = DRA_ATTEND_KEYS };

static dra_status infer_attend_tiled(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_shape *q = &dra_type_of(g, n->in[0])->shape, *v = &dra_type_of(g, n->in[2])->shape;
    out[0] = (dra_type){DRA_REAL, DRA_SHAPE(q->dim[0], q->dim[1], q->dim[2], v->dim[3])};
    out[1] = (dra_type){DRA_REAL, DRA_SHAPE(q->dim[0], q->dim[1], q->dim[2])};
    return DRA_OK;
}

bool dra_attend_upstream(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *in)
{
    dra_value *more = in + n->n_in;
    if (!dy[0].id && !dy[1].id) return false;
    memcpy(in, n->in, (size_t)n->n_in * sizeof *in);
    more[0] = dy[0].id ? dy[0] : dra_zeros(g, dra_shape_of(g, n->out[0]));
    more[1] = n->out[1];
    more[2] = dra_vecdot(g, more[0], n->out[0]);
    if (dy[1].id) more[2] = dra_sub(g, more[2], dra_reshape(g, dy[1], dra_shape_of(g, more[2])));
    return true;
}

/* d (B, H, N), the gradient of every part of x (B, H, N, P) */
static dra_value all_parts(dra_graph *g, dra_value d, dra_value x)
{
    const dra_shape s = dra_shape_of(g, x);
    return dra_broadcast(g, dra_reshape(g, d, DRA_SHAPE(s.dim[0], s.dim[1], s.dim[2], 1)), s);
}

static void derive_attend_tiled(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_attend_attr *a = n->attr;
    dra_value              in[DRA_ATTEND_INPUTS + 3];
    if (a->at[DRA_ATTEND_PAGES] >= 0) {
        dra_build_fail(g, "attend", DRA_ERR_GRAD, "keys in pages have no gradient");
        return;
    }
    if (dra_dtype_of(g, n->in[1]) != DRA_REAL || dra_dtype_of(g, n->in[2]) != DRA_REAL) {
        dra_build_fail(g, "attend", DRA_ERR_GRAD, "keys and values in bf16 have no gradient");
        return;
    }
    if (!dra_attend_upstream(g, n, dy, in)) return;
    const dra_node *back = dra_node_add(g, &dra_op_attend_back, n->n_in + 3, in, a);
    if (!back) return;
    dx[0] = back->out[DRA_ATTEND_DQ];
    dx[1] = back->out[DRA_ATTEND_DK];
    dx[2] = back->out[DRA_ATTEND_DV];
    if (a->at[DRA_ATTEND_SLOPES] >= 0)
        dx[a->at[DRA_ATTEND_SLOPES]] = dra_sum(g, back->out[DRA_ATTEND_DSLOPES],
                                               (dra_axes){2, {0, 2}, false});
    if (a->at[DRA_ATTEND_BIAS] >= 0) dx[a->at[DRA_ATTEND_BIAS]] = back->out[DRA_ATTEND_DBIAS];
    for (int i = 0; i < 2 && a->at[DRA_ATTEND_Q_LEVEL] >= 0; i++) {
        const int at = a->at[DRA_ATTEND_Q_LEVEL + i];
        dx[at] = all_parts(g, back->out[DRA_ATTEND_DQ_LEVEL + i], n->in[at]);
    }
    if (a->at[DRA_ATTEND_DISTANCE] >= 0)
        dx[a->at[DRA_ATTEND_DISTANCE]] = dra_sum(g, back->out[DRA_ATTEND_DDISTANCE],
                                                 (dra_axes){1, {0}, false});
}

/* ---- kernel ---------------------------------------------------------------------------------- */

void dra_attend_absorb(const dra_attend_block *t, int64_t j0, real *s, real *m, real *l, real *fade)
{
    const dra_simd *simd = dra_simd_of(t->c);
    const int64_t   n = dra_imin(KEYS, t->size.J - j0);
    int32_t         k_pos[KEYS];
    real            factor[KEYS];
    if (t->a->dropout > 0) dra_attend_k_pos(t->c, t->b, j0, n, k_pos);
    for (int64_t r = 0; r < t->rows; r++, s += KEYS) {
        const real top = simd->max(KEYS, s);
        fade[r] = 1;
        if (top <= (real)(DRA_MASKED / 2)) { /* sees nothing here */
            memset(s, 0, KEYS * sizeof *s);
            continue;
        }
        const real high = top * t->factor, now = high > m[r] ? high : m[r];
        if (now > m[r]) fade[r] = exp(m[r] - now); /* 0 for the first block */
        l[r] = l[r] * fade[r] + simd->exp_scaled(KEYS, s, t->factor, now, s);
        m[r] = now;
        if (t->a->dropout > 0) {
            dra_attend_drop_row(&t->drop, t->q_pos[r], n, k_pos, factor);
            for (int64_t j = 0; j < n; j++) s[j] *= factor[j];
        }
    }
}

/* y shrinks by fade, then takes the values of a block in. */
static void read_values(const dra_attend_block *t, int64_t j0, const real *s, const real *fade,
                        real *y)
{
    const int64_t E = t->size.E;
    for (int64_t r = 0; r < t->rows; r++)
        if (fade[r] != 1) dra_simd_of(t->c)->scale(E, fade[r], y + r * E);
    dra_attend_times(t, s, &t->c->in[2], j0, true, y);
}

static void walk_keys(const dra_call *c, int64_t i)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const int64_t          blocks = dra_div_up(n.T, ROWS), row = i / blocks, t0 = i % blocks * ROWS;
    const dra_attend_block t = dra_attend_open(c, row / n.H, row % n.H, t0);
    real *y = c->out[0].data, *lse = c->out[1].data, s[ROWS * KEYS], m[ROWS], l[ROWS] = {0};
    real  fade[ROWS];
    if (y) y += (row * n.T + t0) * n.E;
    if (y) memset(y, 0, (size_t)(t.rows * n.E) * sizeof *y);
    for (int64_t r = 0; r < t.rows; r++) m[r] = -(real)INFINITY;
    for (int64_t j0 = dra_attend_begin(&t); j0 < dra_attend_end(&t); j0 += KEYS) {
        if (!dra_attend_sees(&t, j0)) continue;
        dra_attend_scores(&t, j0, s, NULL);
        dra_attend_absorb(&t, j0, s, m, l, fade);
        if (y) read_values(&t, j0, s, fade, y);
    }
    for (int64_t r = 0; r < t.rows; r++) { /* l = 0: saw nothing, y is 0 */
        if (y && l[r] != 0) dra_simd_of(c)->scale(n.E, 1 / l[r], y + r * n.E);
        if (lse) lse[row * n.T + t0 + r] = l[r] != 0 ? m[r] + log(l[r]) : 0;
    }
}

static int64_t count_attend_tiled_tiles(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return dra_attend_is_one(c) ? dra_attend_one_tiles(c) : n.B * n.H * dra_div_up(n.T, ROWS);
}

static void run_attend_tiled_tile(const dra_call *c, int64_t i)
{
    if (dra_attend_is_one(c))
        dra_attend_one_tile(c, i);
    else
        walk_keys(c, i);
}

static int64_t count_attend_tiled_stages(const dra_call *c)
{
    return dra_attend_is_one(c) ? dra_attend_one_stages(c) : 1;
}

static size_t size_attend_tiled_scratch(const dra_call *c)
{
    return dra_attend_is_one(c) ? dra_attend_one_scratch(c) : 0;
}

static dra_cost cost_attend_tiled(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return dra_attend_cost(c, 2 * (double)(n.D + n.E));
}

const dra_op dra_op_attend = {.name = "attend",
                              .n_in = DRA_MANY,
                              .n_out = 2,
                              .attr_size = sizeof(dra_attend_attr),
                              .infer = infer_attend_tiled,
                              .gradient = derive_attend_tiled,
                              .cost = cost_attend_tiled};

const dra_cpu_kernel dra_cpu_attend = {
    .base = {.op = "attend",
             .dtypes = DRA_REALS | DRA_BIT(DRA_BF16) | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL),
             .scratch = size_attend_tiled_scratch},
    .tiles = count_attend_tiled_tiles,
    .tile = run_attend_tiled_tile,
    .stages = count_attend_tiled_stages,
};

dra_value dra_attend_tiled(dra_graph *g, dra_value q, dra_value k, dra_value v,
                           const dra_value *option, const dra_attend_attr *a, dra_value *lse)
{
    dra_attend_attr own = *a;
    dra_value       in[DRA_ATTEND_INPUTS] = {q, k, v};
    uint32_t        bits = (1u << DRA_ATTEND_OPTIONS) - 1;
    if (!(a->dropout > 0)) bits &= ~(1u << DRA_ATTEND_KEY | 1u << DRA_ATTEND_ROW);
    const dra_node *node = dra_node_add(g, &dra_op_attend,
                                        dra_attend_append(option, bits, in, 3, &own), in, &own);
    if (lse) *lse = node ? node->out[1] : (dra_value){0};
    return node ? node->out[0] : (dra_value){0};
}
