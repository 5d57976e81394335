/* Reductions over any set of axes: sum, mean, m = max_i x_i and
 * logsumexp y = m + ln sum_i e^(x_i - m); the sum of all squares.
 *
 * The kernel sees x as (kept axes, reduced axes), whatever the strides, and works on patches: some
 * outputs next to each other times some reduced elements. The reduced elements are cut into
 * segments by shape alone; where there are several, stage 0 reduces segments and stage 1 joins
 * them in their order, so that large reductions run in parallel and always give the same bits.
 *
 * Gradients: of sum dy, of max dy shared by the elements equal to it, of logsumexp dy e^(x - y). */
#include <string.h>
#include <tgmath.h>

#include "ops/common.h"

enum {
    WIDTH = 1024,  /* outputs of a patch: rows of this length are read at full speed */
    ALONG = 32768, /* elements of a segment that runs along memory */
    LINE = 4096,   /* ... added up at a time */
    ACROSS = 128,  /* elements of a segment that steps across memory: sums run in one line */
    SHORT = 8,     /* fewer reduced elements in a line are not worth a call of their own */
    WORK = 32768   /* elements of x a tile is worth */
};

/* ---- shape rules ----------------------------------------------------------------------------- */

static dra_status infer_shape(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_reduce_attr *a = n->attr;
    const dra_type        *x = dra_type_of(g, n->in[0]);
    *out = (dra_type){x->dtype, {0}};
    for (int32_t i = 0; i < x->shape.rank; i++) {
        const bool reduced = a->axes >> i & 1;
        if (reduced && !a->keep) continue;
        out->shape.dim[out->shape.rank++] = reduced ? 1 : x->shape.dim[i];
    }
    return DRA_OK;
}

static dra_status sum_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_dtype t = dra_type_of(g, n->in[0])->dtype;
    if (t != DRA_REAL && t != DRA_I32 && t != DRA_BOOL)
        return dra_op_fail(g, n, DRA_ERR_DTYPE, "x is %s, expected %s, i32 or bool",
                           dra_type_text(g, n->in[0]), dra_dtype_get(DRA_REAL)->name);
    infer_shape(g, n, out);
    if (t == DRA_BOOL) out->dtype = DRA_I32;
    return DRA_OK;
}

static int64_t elements_of(const dra_shape *x, const dra_reduce_attr *a)
{
    dra_shape reduced = {0};
    for (int32_t i = 0; i < x->rank; i++)
        if (a->axes >> i & 1) reduced.dim[reduced.rank++] = x->dim[i];
    return dra_shape_count(&reduced);
}

static dra_status squares_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_status st = dra_expect_dtype(g, n, 0, "x", DRA_REAL);
    return st == DRA_OK ? infer_shape(g, n, out) : st;
}

/* For reductions without an identity element, which need at least one element. */
static dra_status infer_reduce(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_status st = dra_expect_dtype(g, n, 0, "x", DRA_REAL);
    if (st != DRA_OK) return st;
    if (elements_of(&dra_type_of(g, n->in[0])->shape, n->attr) == 0)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s has no element along the reduced axes",
                           dra_type_text(g, n->in[0]));
    return infer_shape(g, n, out);
}

/* ---- the plan of a call ---------------------------------------------------------------------- */

typedef struct plan {
    dra_tensor kept, reduced; /* axes of x, merged where memory runs on; at least one each */
    int64_t    outputs, elements;
    int64_t    segment, segments; /* reduced elements of one, how many */
    int64_t    width, blocks;     /* outputs of a tile, how many tiles of a segment */
    bool       across;            /* one element of all outputs at a time, since they are closer */
} plan;

static void push_axis(dra_tensor *t, int64_t dim, int64_t stride)
{
    int32_t *rank = &t->shape.rank;
    if (dim == 1) return;
    if (*rank > 0 && t->stride[*rank - 1] == dim * stride) {
        t->shape.dim[*rank - 1] *= dim;
        t->stride[*rank - 1] = stride;
        return;
    }
    t->shape.dim[*rank] = dim;
    t->stride[(*rank)++] = stride;
}

static void close_axes(dra_tensor *t)
{
    if (t->shape.rank) return;
    t->shape.dim[t->shape.rank++] = 1;
    t->stride[0] = 0;
}

static int64_t last_stride(const dra_tensor *t) { return t->stride[t->shape.rank - 1]; }

static int64_t last_dim(const dra_tensor *t) { return t->shape.dim[t->shape.rank - 1]; }

static plan make_plan(const dra_call *c)
{
    const dra_reduce_attr *a = c->attr;
    const dra_tensor      *x = &c->in[0];
    plan                   p = {0};
    for (int32_t i = 0; i < x->shape.rank; i++)
        push_axis(a->axes >> i & 1 ? &p.reduced : &p.kept, x->shape.dim[i], x->stride[i]);
    p.across = p.kept.shape.rank && p.reduced.shape.rank &&
               (last_stride(&p.kept) < last_stride(&p.reduced) || last_dim(&p.reduced) < SHORT);
    close_axes(&p.kept);
    close_axes(&p.reduced);
    p.outputs = dra_shape_count(&p.kept.shape);
    p.elements = dra_shape_count(&p.reduced.shape);
    p.segment = p.across ? ACROSS : ALONG;
    p.segments = dra_imax(1, dra_div_up(p.elements, p.segment));
    p.width = WORK / dra_imin(p.segment, dra_imax(1, p.elements));
    if (p.across) p.width = dra_imax(WIDTH, p.width);
    p.blocks = dra_div_up(p.outputs, p.width);
    return p;
}

static int64_t count_reduce_stages(const dra_call *c) { return make_plan(c).segments > 1 ? 2 : 1; }

static int64_t count_reduce_tiles(const dra_call *c)
{
    const plan p = make_plan(c);
    return c->stage == 0 ? p.blocks * p.segments : p.blocks;
}

/* ---- patches --------------------------------------------------------------------------------- */

typedef struct patch { /* x[k * k_step + e * e_step] for outputs k < width and elements e < n */
    const dra_call *c;
    const void     *x;
    int64_t         n, e_step, width, k_step;
    bool            across;
} patch;

/* Takes the elements of a patch into acc[k]. `shift`: of logsumexp, else NULL. */
typedef void (*fold)(const patch *p, const real *shift, void *acc);

static void fold_sum(const patch *p, const real *shift, void *acc)
{
    const real *x = p->x;
    real       *sum = acc;
    if (p->across && p->k_step == 1) {
        dra_simd_of(p->c)->add_rows(p->n, p->width, x, p->e_step, sum);
    } else if (p->across) {
        for (int64_t e = 0; e < p->n; e++)
            for (int64_t k = 0; k < p->width; k++) sum[k] += x[e * p->e_step + k * p->k_step];
    } else if (p->e_step == 1) {
        for (int64_t k = 0; k < p->width; k++)
            for (int64_t e = 0; e < p->n; e += LINE)
                sum[k] += dra_simd_of(p->c)->sum(dra_imin(LINE, p->n - e), x + k * p->k_step + e);
    } else {
        for (int64_t k = 0; k < p->width; k++) {
            double s = 0; /* one long line of additions */
            for (int64_t e = 0; e < p->n; e++) s += x[k * p->k_step + e * p->e_step];
            sum[k] += (real)s;
        }
    }
}

/* Sums all of x, so that there is one output. */
static void fold_squares(const patch *p, const real *shift, void *acc)
{
    const real *x = p->x;
    real       *sum = acc;
    if (p->e_step == 1) {
        for (int64_t e = 0; e < p->n; e += LINE)
            *sum += dra_simd_of(p->c)->dot(dra_imin(LINE, p->n - e), x + e, x + e);
    } else {
        double s = 0;
        for (int64_t e = 0; e < p->n; e++) s += (double)x[e * p->e_step] * x[e * p->e_step];
        *sum += (real)s;
    }
}

static void fold_int(const patch *p, const real *shift, void *acc)
{
    const uint32_t *x = p->x;
    uint32_t       *sum = acc; /* wraps */
    for (int64_t k = 0; k < p->width; k++)
        for (int64_t e = 0; e < p->n; e++) sum[k] += x[k * p->k_step + e * p->e_step];
}

static void fold_bool(const patch *p, const real *shift, void *acc)
{
    const uint8_t *x = p->x;
    uint32_t      *sum = acc;
    for (int64_t k = 0; k < p->width; k++)
        for (int64_t e = 0; e < p->n; e++) sum[k] += x[k * p->k_step + e * p->e_step] != 0;
}

/* The larger one; NaN once there was one. */
static real pick_larger(real a, real b) { return b > a || isnan(b) ? b : a; }

static void fold_max(const patch *p, const real *shift, void *acc)
{
    const real *x = p->x;
    real       *m = acc;
    if (p->across) {
        for (int64_t e = 0; e < p->n; e++)
            for (int64_t k = 0; k < p->width; k++)
                m[k] = pick_larger(m[k], x[e * p->e_step + k * p->k_step]);
    } else if (p->e_step == 1) {
        for (int64_t k = 0; k < p->width; k++)
            m[k] = pick_larger(m[k], dra_simd_of(p->c)->max(p->n, x + k * p->k_step));
    } else {
        for (int64_t k = 0; k < p->width; k++)
            for (int64_t e = 0; e < p->n; e++)
                m[k] = pick_larger(m[k], x[k * p->k_step + e * p->e_step]);
    }
}

static void fold_exp(const patch *p, const real *shift, void *acc)
{
    enum { CHUNK = 256 };
    const real *x = p->x;
    real       *sum = acc, e_x[CHUNK];
    if (p->across) {
        for (int64_t e = 0; e < p->n; e++)
            for (int64_t k = 0; k < p->width; k++)
                sum[k] += exp(x[e * p->e_step + k * p->k_step] - shift[k]);
        return;
    }
    for (int64_t k = 0; k < p->width; k++) {
        const real *row = x + k * p->k_step;
        for (int64_t e = 0; p->e_step == 1 && e < p->n; e += CHUNK)
            sum[k] += dra_simd_of(p->c)->exp_sum(dra_imin(CHUNK, p->n - e), row + e, shift[k], e_x);
        for (int64_t e = 0; p->e_step != 1 && e < p->n; e++)
            sum[k] += exp(row[e * p->e_step] - shift[k]);
    }
}

/* Some outputs next to each other and some of the elements reduced into each of them. */
typedef struct area {
    const dra_call *c;
    const plan     *p;
    int64_t         output, width, from, to;
} area;

static void fold_area(const area *a, fold f, const real *shift, void *acc)
{
    const dra_tensor    *r = &a->p->reduced, *x = &a->c->in[0];
    const int64_t        inner = last_dim(r);
    const int64_t        start = dra_offset_of(&a->p->kept, a->output);
    const unsigned char *data = x->data;
    patch                at = {.c = a->c,
                               .e_step = last_stride(r),
                               .width = a->width,
                               .k_step = last_stride(&a->p->kept),
                               .across = a->p->across};
    for (int64_t e = a->from; e < a->to; e += at.n) {
        at.n = dra_imin(a->to - e, inner - e % inner);
        at.x = data + (start + dra_offset_of(r, e)) * (int64_t)dra_dtype_bytes(x->dtype);
        f(&at, shift, acc);
    }
}

/* ---- segments and how they are joined -------------------------------------------------------- */

typedef struct partial { /* what a segment gives for outputs next to each other */
    void *value;         /* of y's type */
    real *max;           /* of max and logsumexp */
} partial;

typedef struct reducer {
    void (*segment)(const area *a, partial to);
    /* Joins `n` segments, from the first one on, into y, which is the first one's value where it is
     * alone. Those that follow are as many elements apart as there are outputs. */
    void (*join)(const area *a, int64_t n, partial first, void *y);
} reducer;

/* Scratch: values (segments, outputs), then as many maxima. */
static size_t size_reduce_scratch(const dra_call *c)
{
    const plan p = make_plan(c);
    return p.segments > 1 ? (size_t)(2 * p.outputs * p.segments) * sizeof(real) : 0;
}

static void *find_element(const dra_tensor *t, void *data, int64_t i)
{
    return (unsigned char *)data + i * (int64_t)dra_dtype_bytes(t->dtype);
}

static partial partial_at(const area *a, int64_t segment)
{
    const plan   *p = a->p;
    real         *all = a->c->scratch, *maxima = all + p->outputs * p->segments;
    const int64_t at = segment * p->outputs + a->output;
    return (partial){find_element(&a->c->out[0], all, at), maxima + at};
}

/* Where one segment is all, it is the output. */
static partial only_partial(void *y, real *max) { return (partial){y, max}; }

static void run_tile(const dra_call *c, int64_t i, reducer r)
{
    const plan    p = make_plan(c);
    const int64_t block = i % p.blocks, segment = i / p.blocks;
    const int64_t last = last_dim(&p.kept);
    const int64_t end = dra_imin(p.outputs, (block + 1) * p.width);
    real          max[WIDTH];
    area          a = {c,
                       &p,
                       block * p.width,
                       0,
                       segment * p.segment,
                       dra_imin(p.elements, (segment + 1) * p.segment)};
    /* outputs that share all kept axes but the last */
    for (; a.output < end; a.output += a.width) {
        void *y = find_element(&c->out[0], c->out[0].data, a.output);
        a.width = dra_imin(dra_imin(WIDTH, end - a.output), last - a.output % last);
        const partial own = p.segments > 1 ? partial_at(&a, segment) : only_partial(y, max);
        if (c->stage == 0) r.segment(&a, own);
        if (c->stage == 1 || p.segments == 1) r.join(&a, p.segments, own, y);
    }
}

/* ---- sum ------------------------------------------------------------------------------------- */

static void sum_segment(const area *a, partial to)
{
    memset(to.value, 0, (size_t)a->width * sizeof(real));
    fold_area(a, fold_sum, NULL, to.value);
}

static void sum_join(const area *a, int64_t n, partial first, void *y)
{
    const real *part = first.value;
    real       *sum = y;
    if (sum != part) memcpy(sum, part, (size_t)a->width * sizeof *sum);
    dra_simd_of(a->c)->add_rows(n - 1, a->width, part + a->p->outputs, a->p->outputs, sum);
}

static void count_segment(const area *a, partial to)
{
    memset(to.value, 0, (size_t)a->width * sizeof(uint32_t));
    fold_area(a, a->c->in[0].dtype == DRA_BOOL ? fold_bool : fold_int, NULL, to.value);
}

static void count_join(const area *a, int64_t n, partial first, void *y)
{
    const uint32_t *part = first.value;
    uint32_t       *sum = y;
    if (sum != part) memcpy(sum, part, (size_t)a->width * sizeof *sum);
    for (int64_t i = 1; i < n; i++)
        for (int64_t k = 0; k < a->width; k++) sum[k] += part[i * a->p->outputs + k];
}

static void sum_tile(const dra_call *c, int64_t i)
{
    const reducer reals = {sum_segment, sum_join}, integers = {count_segment, count_join};
    run_tile(c, i, c->in[0].dtype == DRA_REAL ? reals : integers);
}

static void squares_segment(const area *a, partial to)
{
    *(real *)to.value = 0;
    fold_area(a, fold_squares, NULL, to.value);
}

static void sum_squares_tile(const dra_call *c, int64_t i)
{
    run_tile(c, i, (reducer){squares_segment, sum_join});
}

/* v, of y's type, with the reduced axes back as size 1, seen with x's shape. */
static dra_value spread_gradient(dra_graph *g, const dra_node *n, dra_value v)
{
    const dra_reduce_attr *a = n->attr;
    const dra_shape        x = dra_type_of(g, n->in[0])->shape;
    dra_shape              kept = x;
    for (int32_t i = 0; i < x.rank; i++)
        if (a->axes >> i & 1) kept.dim[i] = 1;
    return dra_broadcast(g, dra_reshape(g, v, kept), x);
}

static void sum_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[0] = spread_gradient(g, n, dy[0]);
}

/* ---- max ------------------------------------------------------------------------------------- */

static void max_segment(const area *a, partial to)
{
    for (int64_t k = 0; k < a->width; k++) to.max[k] = -(real)INFINITY;
    fold_area(a, fold_max, NULL, to.max);
}

/* Of output k. */
static real max_of(const area *a, int64_t n, const real *max, int64_t k)
{
    real m = max[k];
    for (int64_t i = 1; i < n; i++) m = pick_larger(m, max[i * a->p->outputs + k]);
    return m;
}

static void max_join(const area *a, int64_t n, partial first, void *y)
{
    for (int64_t k = 0; k < a->width; k++) ((real *)y)[k] = max_of(a, n, first.max, k);
}

static void max_tile(const dra_call *c, int64_t i)
{
    run_tile(c, i, (reducer){max_segment, max_join});
}

extern const dra_op dra_op_sum; /* counts the ties, see below */

static void max_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_value equal = dra_equal(g, n->in[0], spread_gradient(g, n, n->out[0]));
    const dra_value ties = dra_add_op(g, &dra_op_sum, 1, &equal, n->attr);
    const dra_value share = dra_div(g, dy[0], dra_cast(g, ties, DRA_REAL));
    dx[0] = dra_select(g, equal, spread_gradient(g, n, share), dra_number(g, 0));
}

/* ---- logsumexp ------------------------------------------------------------------------------- */

/* What is subtracted before e^: the maximum keeps e^ finite; an infinite one would only make
 * NaN. */
static real shift_of(real max) { return isinf(max) ? 0 : max; }

static void exp_segment(const area *a, partial to)
{
    real shift[WIDTH];
    max_segment(a, to);
    for (int64_t k = 0; k < a->width; k++) shift[k] = shift_of(to.max[k]);
    memset(to.value, 0, (size_t)a->width * sizeof(real));
    fold_area(a, fold_exp, shift, to.value);
}

static void exp_join(const area *a, int64_t n, partial first, void *y)
{
    const real *value = first.value;
    for (int64_t k = 0; k < a->width; k++) {
        const real shift = shift_of(max_of(a, n, first.max, k));
        real       sum = 0;
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = i * a->p->outputs + k;
            if (value[at] != 0) /* 0: all were -inf */
                sum += value[at] * exp(shift_of(first.max[at]) - shift);
        }
        ((real *)y)[k] = shift + log(sum);
    }
}

static void logsumexp_tile(const dra_call *c, int64_t i)
{
    run_tile(c, i, (reducer){exp_segment, exp_join});
}

/* Where all x are -inf, so is y: e^(x - 0) is the 0 that is wanted there, x - y would be NaN. */
static void logsumexp_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_value y = n->out[0];
    const dra_value none = dra_equal(g, y, dra_number(g, -(double)INFINITY));
    const dra_value shift = dra_select(g, none, dra_number(g, 0), y);
    const dra_value share = dra_exp(g, dra_sub(g, n->in[0], spread_gradient(g, n, shift)));
    dx[0] = dra_mul(g, spread_gradient(g, n, dy[0]), share);
}

/* ---- the ops --------------------------------------------------------------------------------- */

static dra_cost cost_reduce(const dra_call *c)
{
    const double x = (double)dra_shape_count(&c->in[0].shape);
    const double y = (double)dra_shape_count(&c->out[0].shape);
    return (dra_cost){x, x * (double)dra_dtype_bytes(c->in[0].dtype) +
                             y * (double)dra_dtype_bytes(c->out[0].dtype)};
}

#define ROW(op_name, rule, op_dtypes)                                                              \
    const dra_op dra_op_##op_name = {                                                              \
        .name = #op_name,                                                                          \
        .n_in = 1,                                                                                 \
        .n_out = 1,                                                                                \
        .attr_size = sizeof(dra_reduce_attr),                                                      \
        .infer = rule,                                                                             \
        .gradient = op_name##_gradient,                                                            \
        .cost = cost_reduce,                                                                       \
    };                                                                                             \
    const dra_cpu_kernel dra_cpu_##op_name = {                                                     \
        .base = {.op = #op_name, .dtypes = op_dtypes, .scratch = size_reduce_scratch},             \
        .tiles = count_reduce_tiles,                                                               \
        .tile = op_name##_tile,                                                                    \
        .stages = count_reduce_stages,                                                             \
    };

ROW(sum, sum_infer, DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL))
ROW(max, infer_reduce, DRA_REALS)
ROW(logsumexp, infer_reduce, DRA_REALS)

/* Has no gradient: it is for norms of gradients. */
const dra_op dra_op_sum_squares = {.name = "sum_squares",
                                   .n_in = 1,
                                   .n_out = 1,
                                   .attr_size = sizeof(dra_reduce_attr),
                                   .infer = squares_infer,
                                   .cost = cost_reduce};

const dra_cpu_kernel dra_cpu_sum_squares = {
    .base = {.op = "sum_squares", .dtypes = DRA_REALS, .scratch = size_reduce_scratch},
    .tiles = count_reduce_tiles,
    .tile = sum_squares_tile,
    .stages = count_reduce_stages,
};

/* ---- builders -------------------------------------------------------------------------------- */

/* Axes as bits; false, with the error set, for an axis outside or named twice. */
static bool axes_of(dra_graph *g, const char *op, dra_value x, dra_axes axes, dra_reduce_attr *out)
{
    if (!dra_check_values(g, op, 1, &x)) return false;
    const int32_t rank = dra_type_of(g, x)->shape.rank;
    *out = (dra_reduce_attr){0, axes.keep};
    if (axes.n < 0 || axes.n > rank) {
        dra_build_fail(g, op, DRA_ERR_SHAPE, "x %s: %d axes, expected 0 to %d", dra_type_text(g, x),
                       axes.n, (int)rank);
        return false;
    }
    for (int i = 0; i < axes.n; i++) {
        const int at = dra_axis_of(axes.axis[i], rank);
        if (at < 0 || out->axes >> at & 1) {
            dra_build_fail(g, op, DRA_ERR_SHAPE, "x %s: axis %d is outside or named twice",
                           dra_type_text(g, x), axes.axis[i]);
            return false;
        }
        out->axes |= 1u << at;
    }
    return true;
}

static dra_value build_reduce(dra_graph *g, const dra_op *op, dra_value x, dra_axes axes)
{
    dra_reduce_attr a;
    if (!axes_of(g, op->name, x, axes, &a)) return (dra_value){0};
    return dra_add_op(g, op, 1, &x, &a);
}

dra_value dra_sum(dra_graph *g, dra_value x, dra_axes axes)
{
    return build_reduce(g, &dra_op_sum, x, axes);
}
dra_value dra_max(dra_graph *g, dra_value x, dra_axes axes)
{
    return build_reduce(g, &dra_op_max, x, axes);
}

dra_value dra_logsumexp(dra_graph *g, dra_value x, dra_axes axes)
{
    return build_reduce(g, &dra_op_logsumexp, x, axes);
}

dra_value dra_mean(dra_graph *g, dra_value x, dra_axes axes)
{
    dra_reduce_attr a;
    if (!axes_of(g, "mean", x, axes, &a)) return (dra_value){0};
    const dra_type *t = dra_type_of(g, x);
    const int64_t   n = elements_of(&t->shape, &a);
    if (t->dtype != DRA_REAL)
        dra_build_fail(g, "mean", DRA_ERR_DTYPE, "x is %s, expected %s",
                       dra_dtype_get(t->dtype)->name, dra_dtype_get(DRA_REAL)->name);
    else if (n == 0)
        dra_build_fail(g, "mean", DRA_ERR_SHAPE, "x %s has no element along the reduced axes",
                       dra_type_text(g, x));
    return dra_affine(g, dra_add_op(g, &dra_op_sum, 1, &x, &a), 1 / (double)n, 0);
}

dra_value dra_sum_last(dra_graph *g, dra_value x)
{
    return dra_sum(g, x, (dra_axes){1, {-1}, true});
}

static dra_value over_all(dra_graph *g, const dra_op *op, dra_value x)
{
    if (!dra_check_values(g, op->name, 1, &x)) return (dra_value){0};
    const int32_t rank = dra_type_of(g, x)->shape.rank;
    return dra_add_op(g, op, 1, &x, &(dra_reduce_attr){(1u << rank) - 1, false});
}

dra_value dra_sum_all(dra_graph *g, dra_value x) { return over_all(g, &dra_op_sum, x); }

dra_value dra_sum_squares(dra_graph *g, dra_value x) { return over_all(g, &dra_op_sum_squares, x); }
