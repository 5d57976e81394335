/* rotary: pair c of x[b, h, t] is rotated by the angle a = pos[b, t] f_c, f_c = base^(-2c/width) /
 * stretch, or what a scaling makes of it (rotary.h), times gain; LongRoPE divides each f_c by its
 * own factor,
 *   y_i = f (x_i cos a - x_j sin a)     y_j = f (x_i sin a + x_j cos a)
 * (i, j) = (2c, 2c+1), or (c, c + pairs) with `halves`, for the pairs = ceil(width/2) that start
 * within the width: an odd one rotates one channel more. Others pass unchanged.
 * f = 1, or with xPos  zeta_c^((pos - center) / xpos_base), zeta_c = (2c + 0.4 width)/(1.4 width);
 * its reciprocal for keys, so that only the distance of query and key is left in their product.
 * Gradient: the same op with -a and the same f. [Su et al. 2021; Sun et al. 2022]
 * Angles are doubles: near position 100,000 a float is off by up to 0.004. */
#include <math.h>
#include <string.h>

#include "ops/attention/rotary.h"
#include "ops/common.h"

static dra_status infer_rotary(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_type *x = dra_type_of(g, n->in[0]), *pos = dra_type_of(g, n->in[1]);
    *out = *x;
    dra_status st = dra_expect_dtype(g, n, 0, "x", DRA_REAL);
    if (st == DRA_OK) st = dra_expect_dtype(g, n, 1, "pos", DRA_I32);
    if (st != DRA_OK) return st;
    if (x->shape.rank != 4)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x is %s, expected (B, H, T, D)",
                           dra_type_text(g, n->in[0]));
    const int64_t *dim = x->shape.dim;
    if (pos->shape.rank != 2 || pos->shape.dim[0] != dim[0] || pos->shape.dim[1] != dim[2])
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "x %s, pos %s: expected pos (%lld, %lld)",
                           dra_type_text(g, n->in[0]), dra_type_text(g, n->in[1]),
                           (long long)dim[0], (long long)dim[2]);
    const int64_t width = ((const dra_rotary_attr *)n->attr)->k.width;
    const int64_t widest = dim[3] - dim[3] % 2; /* in whole pairs */
    if (width < 0 || width > widest)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "width %lld, expected one up to %lld",
                           (long long)width, (long long)widest);
    return DRA_OK;
}

static int64_t pairs_of(const dra_rotary_attr *a) { return dra_div_up(a->k.width, 2); }

static void derive_rotary(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_value in[] = {dy[0], n->in[1]};
    dra_rotary_attr back = *(const dra_rotary_attr *)n->attr;
    back.sign = -back.sign;
    dx[0] = dra_add_op(g, n->op, 2, in, &back);
}

/* ---- kernel: all heads of a place (b, t) share the angles ------------------------------------ */

enum { PAIRS = 64 }; /* pairs whose angles are held at a time */

typedef struct turn { /* pairs first .. first+n-1 */
    int64_t first, n;
    double  speed[PAIRS];               /* radians a position */
    double  growth[PAIRS];              /* ln f a position from the center */
    real    cosine[PAIRS], sine[PAIRS]; /* at one position, times f */
} turn;

static void start_turn(turn *u, const dra_rotary_attr *a, int64_t first)
{
    const double width = (double)a->k.width;
    u->first = first;
    u->n = dra_imin(PAIRS, pairs_of(a) - first);
    for (int64_t i = 0; i < u->n; i++) {
        const double c2 = 2 * (double)(first + i), zeta = (c2 + 0.4 * width) / (1.4 * width);
        u->speed[i] = dra_rotary_attr_speed(a, first + i);
        u->growth[i] = a->k.xpos_base == 0 ? 0 : log(zeta) / a->k.xpos_base;
        if (a->k.xpos_invert) u->growth[i] = -u->growth[i];
    }
}

static void turn_to(turn *u, const dra_rotary_attr *a, int32_t pos)
{
    const double from_center = (double)pos - a->k.xpos_center;
    for (int64_t i = 0; i < u->n; i++) {
        const double angle = (double)pos * u->speed[i];
        const double f = a->k.gain * (u->growth[i] == 0 ? 1 : exp(from_center * u->growth[i]));
        u->cosine[i] = (real)(f * cos(angle));
        u->sine[i] = (real)(f * sin(angle));
    }
}

static void turn_row(const turn *u, const dra_rotary_attr *a, const real *x, real *y)
{
    const int64_t apart = a->k.halves ? pairs_of(a) : 1, step = a->k.halves ? 1 : 2;
    for (int64_t i = 0; i < u->n; i++) {
        const int64_t at = (u->first + i) * step;
        const real    p = x[at], q = x[at + apart]; /* both read before: y may be x */
        y[at] = p * u->cosine[i] - q * u->sine[i];
        y[at + apart] = p * u->sine[i] + q * u->cosine[i];
    }
}

/* A tile is a range of places, of the B T there are. */
static int64_t place_count(const dra_call *c)
{
    return c->in[0].shape.dim[0] * c->in[0].shape.dim[2];
}

static int64_t places_a_tile(const dra_call *c)
{
    const int64_t *dim = c->in[0].shape.dim;
    return dra_imax(1, 16384 / dra_imax(1, dim[1] * dim[3])); /* elements, fixed by shape */
}

static int64_t count_rotary_tiles(const dra_call *c)
{
    return dra_div_up(place_count(c), places_a_tile(c));
}

static real *row_at(const dra_tensor *x, int64_t b, int64_t h, int64_t t)
{
    return (real *)x->data + b * x->stride[0] + h * x->stride[1] + t * x->stride[2];
}

/* The factors of the first pair grow fastest: beyond e^80 floats would soon be infinite. */
static bool too_far(const turn *u, const dra_rotary_attr *a, int32_t pos)
{
    return u->first == 0 && fabs(((double)pos - a->k.xpos_center) * u->growth[0]) > 80;
}

static void turn_place(const dra_call *c, int64_t tile, turn *u, int64_t b, int64_t t)
{
    const dra_rotary_attr *a = c->attr;
    const dra_tensor      *x = &c->in[0], *pos = &c->in[1];
    const int32_t at = ((const int32_t *)pos->data)[b * pos->stride[0] + t * pos->stride[1]];
    if (too_far(u, a, at))
        DRA_FAULT(c, tile, DRA_FAULT_FAR, at,
                  (int64_t)(a->k.xpos_center + 80 / fabs(u->growth[0])));
    if (a->k.limit && at >= a->k.limit) DRA_FAULT(c, tile, DRA_FAULT_PAST, at, a->k.limit - 1);
    turn_to(u, a, at);
    for (int64_t h = 0; h < x->shape.dim[1]; h++)
        turn_row(u, a, row_at(x, b, h, t), row_at(&c->out[0], b, h, t));
}

static void pass_rest(const dra_call *c, int64_t b, int64_t t)
{
    const dra_tensor *x = &c->in[0], *y = &c->out[0];
    const int64_t     from = 2 * pairs_of(c->attr), rest = dra_last(x) - from;
    for (int64_t h = 0; rest > 0 && h < x->shape.dim[1]; h++)
        memmove(row_at(y, b, h, t) + from, row_at(x, b, h, t) + from,
                (size_t)rest * sizeof(real)); /* y may be x */
}

static void run_rotary_tile(const dra_call *c, int64_t i)
{
    const dra_rotary_attr *a = c->attr;
    const int64_t          T = c->in[0].shape.dim[2], begin = i * places_a_tile(c);
    const int64_t          end = dra_imin(place_count(c), begin + places_a_tile(c));
    turn                   u;
    for (int64_t first = 0; first < pairs_of(a); first += PAIRS) {
        start_turn(&u, a, first);
        for (int64_t p = begin; p < end; p++) turn_place(c, i, &u, p / T, p % T);
    }
    for (int64_t p = begin; p < end; p++) pass_rest(c, p / T, p % T);
}

static dra_cost cost_rotary(const dra_call *c)
{
    dra_cost k = dra_pointwise_cost(c);
    k.flops *= 3; /* two products and a sum an element; the angles are shared by the heads */
    return k;
}

const dra_op dra_op_rotary = {.name = "rotary",
                              .n_in = 2,
                              .n_out = 1,
                              .attr_size = sizeof(dra_rotary_attr),
                              .infer = infer_rotary,
                              .gradient = derive_rotary,
                              .cost = cost_rotary};

const dra_cpu_kernel dra_cpu_rotary = {
    .base = {.op = "rotary",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .in_place = 1},
    .tiles = count_rotary_tiles,
    .tile = run_rotary_tile,
};

/* ---- builder --------------------------------------------------------------------------------- */

static bool is_positive(dra_graph *g, const char *what, double x)
{
    if (x > 0 && isfinite(x)) return true;
    dra_build_fail(g, "rotary", DRA_ERR_VALUE, "%s %g, expected more than 0", what, x);
    return false;
}

/* A factor above 0 for every pair; short ones hold up to the original length. */
static bool fill_longrope(dra_graph *g, dra_rotary_attr *a)
{
    const int64_t pairs = pairs_of(a);
    int           n;
    const double *factor = dra_rotary_factors(&a->k, &n);
    if (a->k.scaling == DRA_SCALING_LONGROPE_SHORT) a->k.limit = a->k.original;
    if (n != pairs || n > DRA_ROTARY_FACTORS) {
        dra_build_fail(g, "rotary", DRA_ERR_VALUE,
                       "%d factors of LongRoPE, expected %lld, one for each pair, and at most %d",
                       n, (long long)pairs, DRA_ROTARY_FACTORS);
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (!is_positive(g, "factor of LongRoPE", factor[i])) return false;
        a->divide[i] = factor[i];
    }
    return true;
}

/* Its defaults; low < high, an original length. */
static bool fill_scaling(dra_graph *g, dra_rotary_config *k)
{
    if (k->factor == 0) k->factor = 1;
    if (k->low == 0) k->low = 1;
    if (k->high == 0) k->high = k->scaling == DRA_SCALING_YARN ? 32 : 4;
    if (!k->scaling || dra_rotary_is_longrope(k)) return true;
    if (!is_positive(g, "factor", k->factor) || !is_positive(g, "low", k->low) ||
        !is_positive(g, "high - low", k->high - k->low) ||
        !is_positive(g, "original", (double)k->original) ||
        !is_positive(g, "base - 1", k->base - 1))
        return false;
    return true;
}

dra_value dra_rotary(dra_graph *g, dra_value x, dra_value pos, const dra_rotary_config *config)
{
    const dra_value in[] = {x, pos};
    dra_rotary_attr a = {.sign = 1};
    if (!dra_check_values(g, "rotary", 2, in)) return (dra_value){0};
    if (config) a.k = *config;
    if (a.k.base == 0) a.k.base = 10000;
    if (a.k.stretch == 0) a.k.stretch = 1;
    if (a.k.gain == 0) a.k.gain = 1;
    if (!is_positive(g, "base", a.k.base) || !is_positive(g, "stretch", a.k.stretch) ||
        !is_positive(g, "gain", a.k.gain) || !fill_scaling(g, &a.k) ||
        (a.k.xpos_base != 0 && !is_positive(g, "xpos_base", a.k.xpos_base)))
        return (dra_value){0};
    const dra_shape *s = &dra_type_of(g, x)->shape;
    if (a.k.width == 0 && s->rank > 0) a.k.width = s->dim[s->rank - 1];
    if (dra_rotary_is_longrope(&a.k) && !fill_longrope(g, &a)) return (dra_value){0};
    a.k.short_factors = a.k.long_factors = NULL;
    return dra_add_op(g, &dra_op_rotary, 2, in, &a);
}
