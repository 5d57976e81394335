/* One block of scores: up to 32 queries of a head against 64 keys, what the tiled ops of attention
 * are made of.
 *   s_tj = cap tanh(scale q_t.k_j / cap) + bias_tj + distance[q_pos_t - k_pos_j]
 *          - slope |q_pos_t - k_pos_j| + q_level_t - k_level_j, masked; a late cap is of all this
 * Blocks of keys start at multiples of 64 whatever the queries see, and sums over keys always run
 * over 64 of them, so the bits of a query's result depend neither on its neighbours nor on how
 * the queries are cut, nor on J beyond what it sees. */
#include <tgmath.h>

#include "ops/attention/attend.h"

enum { ROWS = DRA_ATTEND_ROWS, KEYS = DRA_ATTEND_KEYS };

int dra_attend_append(const dra_value *option, uint32_t bits, dra_value *in, int n,
                      dra_attend_attr *a)
{
    for (int i = 0; i < DRA_ATTEND_OPTIONS; i++) {
        const bool wanted = option[i].id != 0 && bits >> i & 1;
        a->at[i] = wanted ? n : -1;
        if (wanted) in[n++] = option[i];
    }
    return n;
}

dra_attend_sizes dra_attend_sizes_of(const dra_call *c)
{
    const int64_t *q = c->in[0].shape.dim, *v = c->in[2].shape.dim;
    const int64_t  J = ((const dra_attend_attr *)c->attr)->J;
    return (dra_attend_sizes){q[0], q[1], v[1], q[2], J, q[3], v[3]};
}

/* ---- what a block of queries sees ------------------------------------------------------------ */

/* The end of an interval from its (B, T) values, kept inside 0..J. */
static int64_t read_bound(const dra_tensor *x, int64_t b, int64_t t, int64_t J, int64_t otherwise)
{
    if (!x || !x->data) return otherwise;
    const int64_t at = ((const int32_t *)x->data)[b * x->stride[0] + t * x->stride[1]];
    return dra_imax(0, dra_imin(at, J));
}

static real read_slope(const dra_call *c, int64_t h)
{
    const dra_tensor *slopes = dra_attend_option(c, DRA_ATTEND_SLOPES);
    return slopes ? ((const real *)slopes->data)[h * slopes->stride[0]] : 0;
}

/* Where nothing is added to q.k scale, and masked logits stay far below. */
static bool leaves_scale(const dra_call *c, const dra_attend_attr *a)
{
    return a->scale >= 1e-6 && a->softcap == 0 && !dra_attend_option(c, DRA_ATTEND_BIAS) &&
           !dra_attend_option(c, DRA_ATTEND_DISTANCE) && !dra_attend_option(c, DRA_ATTEND_SLOPES) &&
           !dra_attend_option(c, DRA_ATTEND_Q_LEVEL);
}

void dra_attend_take_head(dra_attend_block *t, int64_t h)
{
    const int64_t heads = t->size.K;
    t->h = h;
    t->kv = t->a->heads == DRA_HEADS_DIV ? h / (t->size.H / heads) : h % heads;
    t->slope = read_slope(t->c, h);
    if (t->a->dropout > 0) t->drop = dra_attend_drop_open(t->c, t->b, h);
}

dra_attend_block dra_attend_open(const dra_call *c, int64_t b, int64_t h, int64_t t0)
{
    const dra_attend_attr *a = c->attr;
    const dra_tensor      *lo = dra_attend_option(c, DRA_ATTEND_LO);
    const dra_tensor      *hi = dra_attend_option(c, DRA_ATTEND_HI);
    dra_attend_block       t = {.c = c, .a = a, .size = dra_attend_sizes_of(c)};
    const int64_t          J = t.size.J;
    t.b = b, t.t0 = t0;
    t.rows = dra_imin(ROWS, t.size.T - t0);
    t.first = J;
    t.distance = dra_attend_option(c, DRA_ATTEND_DISTANCE);
    t.counted = !dra_attend_option(c, DRA_ATTEND_K_POS);
    t.factor = leaves_scale(c, a) ? (real)a->scale : 1;
    dra_attend_take_head(&t, h);
    for (int64_t r = 0; r < t.rows; r++) {
        t.lo[r] = read_bound(lo, b, t0 + r, J, 0);
        t.hi[r] = read_bound(hi, b, t0 + r, J, J);
        t.q_pos[r] = dra_attend_q_pos(c, b, t0 + r);
        if (t.lo[r] >= t.hi[r]) continue;
        t.first = dra_imin(t.first, t.lo[r]);
        t.end = dra_imax(t.end, t.hi[r]);
    }
    return t;
}

int64_t dra_attend_begin(const dra_attend_block *t)
{
    return t->a->always > 0 ? 0 : t->first / KEYS * KEYS;
}

int64_t dra_attend_end(const dra_attend_block *t) { return dra_imax(t->a->always, t->end); }

bool dra_attend_sees(const dra_attend_block *t, int64_t j0)
{
    if (j0 < t->a->always) return true;
    for (int64_t r = 0; r < t->rows; r++)
        if (dra_imax(t->lo[r], j0) < dra_imin(t->hi[r], j0 + KEYS)) return true;
    return false;
}

dra_attend_keys dra_attend_seen(const dra_attend_block *t, int64_t j0)
{
    const int64_t from = j0 < t->a->always ? j0 : dra_imax(t->first, j0);
    const int64_t end = t->first < j0 + KEYS ? dra_attend_end(t) : t->a->always;
    const int64_t to = dra_imin(end, j0 + KEYS);
    return (dra_attend_keys){from - j0, to - from};
}

/* ---- scores ---------------------------------------------------------------------------------- */

static int64_t offset_of(const dra_tensor *x, int64_t b, int64_t h, int64_t t)
{
    return b * x->stride[0] + h * x->stride[1] + t * x->stride[2];
}

const void *dra_attend_key(const dra_call *c, const dra_tensor *x, int64_t b, int64_t h, int64_t j)
{
    const dra_tensor *pages = dra_attend_option(c, DRA_ATTEND_PAGES);
    const int64_t     size = (int64_t)dra_dtype_bytes(x->dtype);
    if (!pages) return (const char *)x->data + offset_of(x, b, h, j) * size;
    const int32_t *page = (const int32_t *)pages->data + b * pages->stride[0];
    const int64_t  first = dra_imin(page[j / KEYS * pages->stride[1]], x->shape.dim[2] - KEYS);
    return (const char *)x->data + offset_of(x, 0, h, dra_imax(0, first) + j % KEYS) * size;
}

static void soften_scores(int64_t n, real cap, real *s, real *dcap)
{
    for (int64_t j = 0; j < n; j++) {
        const real y = tanh(s[j] / cap);
        s[j] = cap * y;
        if (dcap) dcap[j] = 1 - y * y;
    }
}

static void add_bias(const dra_tensor *bias, int64_t at, int64_t n, real *s)
{
    const real *x = (const real *)bias->data + at;
    for (int64_t j = 0; j < n; j++) s[j] += x[j * bias->stride[3]];
}

static void add_distance(const dra_attend_block *t, int32_t q_pos, int64_t n, const int32_t *k_pos,
                         real *s)
{
    const dra_tensor *table = t->distance;
    const real       *row = (const real *)table->data + t->h * table->stride[0];
    if (t->counted && table->stride[1] == 1) { /* the same, but the compiler sees rows */
        const dra_attend_columns at = dra_attend_columns_of(t->a, table, q_pos, k_pos[0], n);
        const real              *last = row + table->shape.dim[1] - 1;
        for (int64_t j = 0; j < at.far; j++) s[j] += *last;
        for (int64_t j = at.far; j < at.near; j++) s[j] += row[at.first - j];
        for (int64_t j = at.near; j < n; j++) s[j] += *row;
        return;
    }
    for (int64_t j = 0; j < n; j++)
        s[j] += row[dra_attend_column(t->a, table, q_pos, k_pos[j]) * table->stride[1]];
}

static void add_slope(real slope, int32_t q_pos, int64_t n, const int32_t *k_pos, real *s)
{
    for (int64_t j = 0; j < n; j++)
        s[j] -= slope * (real)dra_imax((int64_t)q_pos - k_pos[j], (int64_t)k_pos[j] - q_pos);
}

/* Parts are subtracted before they are added up: large ones may agree in most of their digits. */
static void add_levels(const dra_attend_block *t, int64_t query, int64_t key, int64_t n, real *s)
{
    const dra_tensor *q = dra_attend_option(t->c, DRA_ATTEND_Q_LEVEL);
    const dra_tensor *k = dra_attend_option(t->c, DRA_ATTEND_K_LEVEL);
    const real       *from = (const real *)q->data + offset_of(q, t->b, t->h, query);
    const real       *to = (const real *)k->data + offset_of(k, t->b, t->h, key);
    for (int64_t j = 0; j < n; j++) {
        real far = from[0] - to[j * k->stride[2]];
        for (int64_t p = 1; p < q->shape.dim[3]; p++)
            far += from[p * q->stride[3]] - to[j * k->stride[2] + p * k->stride[3]];
        s[j] += far;
    }
}

static void hide_masked(const dra_tensor *mask, int64_t at, int64_t n, real *s)
{
    const uint8_t *sees = (const uint8_t *)mask->data + at;
    for (int64_t j = 0; j < n; j++)
        if (!sees[j * mask->stride[3]]) s[j] = (real)DRA_MASKED;
}

/* From q.k to its part of the logits, n of them; of keys without biases that is all. */
static void finish_products(const dra_attend_block *t, bool all, int64_t n, real *s, real *dcap)
{
    if (t->factor == 1) dra_simd_of(t->c)->scale(n, (real)t->a->scale, s);
    if (t->a->softcap > 0 && (all || !t->a->late)) soften_scores(n, (real)t->a->softcap, s, dcap);
}

/* From q.k to the masked logits of one query, in place. */
static void finish_row(const dra_attend_block *t, int64_t r, int64_t j0, const int32_t *k_pos,
                       real *s, real *dcap)
{
    const dra_tensor *bias = dra_attend_option(t->c, DRA_ATTEND_BIAS);
    const dra_tensor *mask = dra_attend_option(t->c, DRA_ATTEND_MASK);
    const int64_t     always = dra_imax(0, dra_imin(t->a->always - j0, KEYS));
    const int64_t     from = dra_imax(always, dra_imin(t->lo[r] - j0, KEYS));
    const int64_t     to = dra_imax(from, dra_imin(t->hi[r] - j0, KEYS)), n = to - from;
    const int64_t     key = j0 + from, query = t->t0 + r;
    for (int64_t j = always; j < from; j++) s[j] = (real)DRA_MASKED;
    for (int64_t j = to; j < KEYS; j++) s[j] = (real)DRA_MASKED;
    if (always > 0) finish_products(t, true, always, s, dcap);
    if (n == 0) return;
    s += from;
    finish_products(t, false, n, s, dcap ? dcap + from : NULL);
    if (bias) add_bias(bias, offset_of(bias, t->b, t->h, query) + key * bias->stride[3], n, s);
    if (t->distance) add_distance(t, t->q_pos[r], n, k_pos + from, s);
    if (dra_attend_option(t->c, DRA_ATTEND_SLOPES))
        add_slope(t->slope, t->q_pos[r], n, k_pos + from, s);
    if (dra_attend_option(t->c, DRA_ATTEND_Q_LEVEL)) add_levels(t, query, key, n, s);
    if (t->a->late) soften_scores(n, (real)t->a->softcap, s, dcap ? dcap + from : NULL);
    if (mask) hide_masked(mask, offset_of(mask, t->b, t->h, query) + key * mask->stride[3], n, s);
}

void dra_attend_products(const dra_attend_block *t, int64_t j0, int64_t n, int64_t step, real *s,
                         int64_t s_row)
{
    const dra_tensor     *q = &t->c->in[0], *k = &t->c->in[1];
    const dra_attend_keys seen = dra_attend_seen(t, j0);
    dra_simd_of(t->c)->gemm(&(dra_gemm){
        .M = n,
        .N = seen.n,
        .K = t->size.D,
        .a = (const real *)q->data + offset_of(q, t->b, t->h, t->t0),
        .a_row = step,
        .a_col = q->stride[3],
        .b = dra_attend_key(t->c, k, t->b, t->kv, j0 + seen.first),
        .b_row = k->stride[3],
        .b_col = k->stride[2],
        .b_type = k->dtype,
        .c = s + seen.first,
        .c_row = s_row,
    });
}

void dra_attend_finish(const dra_attend_block *t, int64_t j0, real *s, real *dcap)
{
    const int64_t n = dra_imin(KEYS, t->size.J - j0);
    int32_t       k_pos[KEYS];
    dra_attend_k_pos(t->c, t->b, j0, n, k_pos);
    for (int64_t r = 0; r < t->rows; r++)
        finish_row(t, r, j0, k_pos, s + r * KEYS, dcap ? dcap + r * KEYS : NULL);
}

void dra_attend_scores(const dra_attend_block *t, int64_t j0, real *s, real *dcap)
{
    dra_attend_products(t, j0, t->rows, t->c->in[0].stride[2], s, KEYS);
    dra_attend_finish(t, j0, s, dcap);
}

/* ---- weights times rows ---------------------------------------------------------------------- */

/* Only keys that some query of the block sees take part: others may hold anything, also NaN, which
 * a weight of 0 does not hide. A weight of 0 adds nothing, so the bits are those of all 64. */
void dra_attend_times_rows(const dra_attend_block *t, int64_t n, const real *p, int64_t p_row,
                           const dra_tensor *x, int64_t j0, bool add, real *out, int64_t out_row)
{
    const dra_attend_keys k = dra_attend_seen(t, j0);
    dra_simd_of(t->c)->gemm(&(dra_gemm){
        .M = n,
        .N = x->shape.dim[3],
        .K = k.n,
        .a = p + k.first,
        .a_row = p_row,
        .a_col = 1,
        .b = dra_attend_key(t->c, x, t->b, t->kv, j0 + k.first),
        .b_row = x->stride[2],
        .b_col = x->stride[3],
        .b_type = x->dtype,
        .c = out,
        .c_row = out_row,
        .accumulate = add,
    });
}

void dra_attend_times(const dra_attend_block *t, const real *p, const dra_tensor *x, int64_t j0,
                      bool add, real *out)
{
    dra_attend_times_rows(t, t->rows, p, KEYS, x, j0, add, out, x->shape.dim[3]);
}

/* ---- cost ------------------------------------------------------------------------------------ */

static double visible_pairs(const dra_call *c) /* of one head; masks are not counted */
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const dra_tensor      *lo = dra_attend_option(c, DRA_ATTEND_LO);
    const dra_tensor      *hi = dra_attend_option(c, DRA_ATTEND_HI);
    const int64_t          always = ((const dra_attend_attr *)c->attr)->always;
    double                 pairs = (double)(n.B * n.T * always);
    for (int64_t i = 0; i < n.B * n.T; i++)
        pairs += (double)dra_imax(0,
                                  read_bound(hi, i / n.T, i % n.T, n.J, n.J) -
                                      dra_imax(always, read_bound(lo, i / n.T, i % n.T, n.J, 0)));
    return pairs;
}

dra_cost dra_attend_cost(const dra_call *c, double per_pair)
{
    return (dra_cost){.flops = per_pair * visible_pairs(c) * (double)c->in[0].shape.dim[1],
                      .bytes = dra_call_bytes(c)};
}
