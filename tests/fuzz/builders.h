/* One small function per builder of ops.h for the graph fuzzer: mostly right arguments from values
 * at hand. */
#ifndef DRA_TESTS_FUZZ_BUILDERS_H
#define DRA_TESTS_FUZZ_BUILDERS_H

#include "bench.h"

typedef dra_value (*one_input)(dra_graph *, dra_value);
typedef dra_value (*two_inputs)(dra_graph *, dra_value, dra_value);

/* ---- constants and views --------------------------------------------------------------------- */

static void t_number(bench *b) { keep(b, dra_number(b->g, number(b->f))); }
static void t_integer(bench *b) { keep(b, dra_integer(b->g, between(b->f, -5, 9))); }
static void t_arange(bench *b) { keep(b, dra_arange(b->g, slip(b) ? -1 : size(b->f))); }

static void t_input(bench *b)
{
    if (b->depth == 0 && b->f->inputs < INPUTS)
        new_input(b, slip(b) ? (dra_dtype)between(b->f, -1, 9) : DRA_REAL,
                  slip(b) ? wrong_shape(b->f) : any_shape(b->f));
}

static void t_reshape(bench *b)
{
    fuzz           *f = b->f;
    const dra_value x = any(b);
    const dra_shape from = shape(b, x);
    int64_t         count = dra_shape_count(&from);
    dra_shape       s = {0};
    for (int i = below(f, 5); i > 0 && count > 0; i--) {
        int64_t d = between(f, 1, 6);
        while (count % d) d--;
        s.dim[s.rank++] = d;
        count /= d;
    }
    s.dim[s.rank++] = chance(f, 30) ? -1 : count;
    keep(b, dra_reshape(b->g, x, slip(b) ? wrong_shape(f) : s));
}

static void t_permute(bench *b)
{
    const dra_value x = any(b);
    const int       rank = shape(b, x).rank;
    int             axes[DRA_MAX_RANK] = {0};
    for (int i = 0; i < rank; i++) axes[i] = i;
    for (int i = rank - 1; i > 0; i--) {
        const int k = below(b->f, i + 1), kept = axes[i];
        axes[i] = axes[k], axes[k] = kept;
    }
    for (int i = 0; i < rank; i++) axes[i] = slip(b) ? axis(b, x) : axes[i];
    keep(b, dra_permute(b->g, x, axes));
}

static void t_transpose(bench *b)
{
    const dra_value x = pick(b, (want){ANY, 1});
    const int       p = axis(b, x), q = axis(b, x);
    keep(b, dra_transpose(b->g, x, p, q));
}

static void t_slice(bench *b)
{
    const dra_value x = pick(b, (want){ANY, 1});
    const int       a = axis(b, x);
    const int64_t   n = shape(b, x).dim[positive_axis(b, x, a)];
    const int64_t   start = slip(b) ? -1 : upto(b->f, n);
    keep(b, dra_slice(b->g, x, a, start, slip(b) ? INT64_MAX : upto(b->f, n - start)));
}

static void t_flip(bench *b)
{
    const dra_value x = pick(b, (want){ANY, 1});
    keep(b, dra_flip(b->g, x, axis(b, x)));
}

static void t_broadcast(bench *b)
{
    const dra_value x = any(b);
    dra_shape       s = shape(b, x);
    for (int i = 0; i < s.rank; i++)
        if (s.dim[i] == 1) s.dim[i] = size(b->f);
    while (s.rank < DRA_MAX_RANK && chance(b->f, 30)) {
        memmove(s.dim + 1, s.dim, (DRA_MAX_RANK - 1) * sizeof *s.dim);
        s.dim[0] = between(b->f, 1, 3);
        s.rank++;
    }
    keep(b, dra_broadcast(b->g, x, slip(b) ? wrong_shape(b->f) : s));
}

static void t_huge(bench *b) /* planned, perhaps, but never run */
{
    const dra_shape s = {2, {(int64_t)1 << between(b->f, 46, 58), between(b->f, 1, 2)}};
    if (b->f->sloppy && chance(b->f, 10)) keep(b, dra_broadcast(b->g, dra_number(b->g, 1), s));
}

static void t_stop(bench *b) { keep(b, dra_stop_gradient(b->g, any(b))); }
static void t_copy(bench *b) { keep(b, dra_copy(b->g, any(b))); }

static void t_straight(bench *b)
{
    const dra_value x = real_of(b, -1);
    keep(b, dra_straight_through(b->g, x, like(b, DRA_REAL, shape(b, x))));
}

static void t_cast(bench *b)
{
    const dra_dtype to[] = {DRA_REAL, DRA_REAL, DRA_REAL, DRA_BF16, DRA_F16, DRA_I32, DRA_BOOL};
    const dra_value x = any(b);
    keep(b, dra_cast(b->g, x, slip(b) ? (dra_dtype)between(b->f, -2, 8) : to[below(b->f, 7)]));
}

/* ---- pointwise ------------------------------------------------------------------------------- */

static void t_unary(bench *b)
{
    static const one_input ops[] = {
        dra_neg,   dra_abs,   dra_sign,  dra_exp,       dra_expm1,       dra_log,
        dra_log1p, dra_sqrt,  dra_rsqrt, dra_square,    dra_reciprocal,  dra_sin,
        dra_cos,   dra_tanh,  dra_erf,   dra_sigmoid,   dra_log_sigmoid, dra_softplus,
        dra_relu,  dra_relu2, dra_gelu,  dra_gelu_tanh, dra_silu,        dra_elu};
    const int k = below(b->f, COUNT(ops));
    keep(b,
         ops[k](b->g, k < 2 && chance(b->f, 30) ? pick(b, (want){DRA_I32, -1}) : real_of(b, -1)));
}

/* Two values of one dtype whose shapes broadcast. */
static void pair(bench *b, dra_dtype t, dra_value *v)
{
    v[0] = pick(b, (want){(int)t, -1});
    v[1] = like(b, t, narrower(b->f, shape(b, v[0])));
    if (chance(b->f, 30)) {
        const dra_value kept = v[0];
        v[0] = v[1], v[1] = kept;
    }
}

static void t_binary(bench *b)
{
    static const two_inputs ops[] = {dra_add, dra_sub,     dra_mul,     dra_div,
                                     dra_mod, dra_minimum, dra_maximum, dra_pow};
    const int               k = below(b->f, COUNT(ops));
    dra_value               v[2];
    pair(b, k < 7 && chance(b->f, 25) ? DRA_I32 : DRA_REAL, v);
    keep(b, ops[k](b->g, v[0], v[1]));
}

static void t_compare(bench *b)
{
    static const two_inputs ops[] = {dra_equal,      dra_not_equal, dra_less,
                                     dra_less_equal, dra_greater,   dra_greater_equal};
    dra_value               v[2];
    pair(b, chance(b->f, 30) ? DRA_I32 : DRA_REAL, v);
    keep(b, ops[below(b->f, COUNT(ops))](b->g, v[0], v[1]));
}

static void t_logic(bench *b)
{
    dra_value v[2];
    pair(b, DRA_BOOL, v);
    keep(b, chance(b->f, 30)   ? dra_not(b->g, v[0])
            : chance(b->f, 50) ? dra_and(b->g, v[0], v[1])
                               : dra_or(b->g, v[0], v[1]));
}

static void t_select(bench *b)
{
    const dra_value a = any(b);
    const dra_value c = like(b, dra_dtype_of(b->g, a), narrower(b->f, shape(b, a)));
    keep(b, dra_select(b->g, like(b, DRA_BOOL, narrower(b->f, shape(b, a))), a, c));
}

static void t_clamp(bench *b)
{
    const double lo = number(b->f);
    keep(b, dra_clamp(b->g, real_of(b, -1), lo, slip(b) ? lo - 1 : lo + 1));
}

static void t_affine(bench *b)
{
    const double s = number(b->f), t = number(b->f);
    keep(b, dra_affine(b->g, real_of(b, -1), s, t));
}

/* ---- reductions ------------------------------------------------------------------------------ */

static void t_reduce(bench *b)
{
    static dra_value (*const ops[])(dra_graph *, dra_value, dra_axes) = {dra_sum, dra_mean, dra_max,
                                                                         dra_logsumexp};
    const int       k = below(b->f, 4);
    const dra_value x = k == 0 && chance(b->f, 30) ? pick(b, (want){DRA_I32 + below(b->f, 2), -1})
                                                   : filled(b, -1);
    dra_axes        axes = {.keep = chance(b->f, 50)};
    for (int i = 0; i < shape(b, x).rank; i++)
        if (chance(b->f, 50)) axes.axis[axes.n++] = i;
    if (slip(b)) axes = (dra_axes){between(b->f, -1, 7), {0, 0, axis(b, x), 9}, false};
    keep(b, ops[k](b->g, x, axes));
}

static void t_sums(bench *b)
{
    keep(b,
         chance(b->f, 50) ? dra_sum_all(b->g, real_of(b, -1)) : dra_sum_last(b->g, real_of(b, 1)));
}

static void t_argmax(bench *b) { keep(b, dra_argmax(b->g, filled(b, 1))); }

static void t_topk(bench *b)
{
    const dra_value x = filled(b, 1);
    const int64_t   n = dim(b, x, 1);
    keep(b, dra_topk_threshold(b->g, x, slip(b) ? INT64_MAX : 1 + upto(b->f, n - 1)));
}

static void t_cumulate(bench *b)
{
    const bool      sum = chance(b->f, 60);
    const dra_value x = pick(b, (want){sum && chance(b->f, 30) ? DRA_I32 : DRA_REAL, 1});
    const int       a = axis(b, x);
    keep(b,
         sum ? dra_cumsum(b->g, x, a, chance(b->f, 50)) : dra_cummax(b->g, x, a, chance(b->f, 50)));
}

/* ---- products -------------------------------------------------------------------------------- */

static void t_matmul(bench *b)
{
    dra_value a = real_of(b, 2);
    dra_shape s = shape(b, a), inner = {0};
    if (s.rank < 2) s = (dra_shape){2, {2, 3}};
    inner.rank = s.rank;
    for (int i = 0; i < s.rank; i++) inner.dim[i] = s.dim[i];
    inner.dim[s.rank - 2] = s.dim[s.rank - 1];
    inner.dim[s.rank - 1] = size(b->f);
    if (chance(b->f, 30)) inner = (dra_shape){2, {inner.dim[s.rank - 2], inner.dim[s.rank - 1]}};
    dra_value c = like(b, DRA_REAL, inner);
    if (chance(b->f, 30)) { /* (a c)^T = c^T a^T */
        const dra_value at = dra_transpose(b->g, a, -1, -2);
        a = dra_transpose(b->g, c, -1, -2), c = at;
    }
    keep(b, dra_matmul(b->g, a, c));
}

static void t_linear(bench *b)
{
    const dra_value x = real_of(b, 1);
    const int64_t   O = size(b->f);
    const dra_value w = like(b, DRA_REAL, (dra_shape){2, {O, dim(b, x, 1)}});
    keep(b, dra_linear(b->g, x, w,
                       chance(b->f, 50) ? like(b, DRA_REAL, (dra_shape){1, {O}}) : (dra_value){0}));
}

/* ---- moving elements ------------------------------------------------------------------------- */

static void t_concat(bench *b)
{
    const dra_value first = pick(b, (want){ANY, 1});
    const int       a = axis(b, first), at = positive_axis(b, first, a), n = between(b->f, 1, 4);
    dra_value       x[4] = {first};
    for (int i = 1; i < n; i++)
        x[i] = like(b, dra_dtype_of(b->g, first), with(shape(b, first), at, size(b->f)));
    keep(b, dra_concat(b->g, slip(b) ? 0 : n, x, a));
}

static void t_pad(bench *b)
{
    const dra_value x = pick(b, (want){ANY, 1});
    const int       a = axis(b, x), before = below(b->f, 3), after = below(b->f, 3);
    keep(b,
         dra_pad(b->g, x, a, slip(b) ? -1 : before, slip(b) ? INT64_MAX / 2 : after, number(b->f)));
}

static void t_shift(bench *b)
{
    const dra_value x = pick(b, (want){ANY, 1});
    const int       a = axis(b, x);
    keep(b, dra_shift(b->g, x, a, slip(b) ? INT64_MIN : between(b->f, -6, 6)));
}

static void t_repeat(bench *b)
{
    const dra_value x = pick(b, (want){ANY, 1});
    const int       a = axis(b, x);
    keep(b, dra_repeat(b->g, x, a, slip(b) ? INT64_MAX : below(b->f, 4)));
}

static void t_gather(bench *b)
{
    const dra_value x = pick(b, (want){ANY, 1});
    const int       a = axis(b, x), at = positive_axis(b, x, a);
    const dra_shape s = shape(b, x);
    keep(b, dra_gather(b->g, x, indices(b, with(s, at, size(b->f)), s.dim[at]), a));
}

static void t_scatter(bench *b)
{
    const dra_value x = real_of(b, 1);
    const int       a = axis(b, x), at = positive_axis(b, x, a);
    const dra_shape s = shape(b, x), inner = with(s, at, size(b->f));
    const dra_value index = indices(b, inner, s.dim[at]);
    keep(b, dra_scatter_add(b->g, x, index, like(b, DRA_REAL, inner), a));
}

static void t_embedding(bench *b)
{
    const dra_value table = pick(b, (want){FLOATS, -1, shape_of_rank(b->f, 2), .exact = true});
    keep(b, dra_embedding(b->g, table,
                          indices(b, shape_of_rank(b->f, between(b->f, 0, slip(b) ? 6 : 4)),
                                  dim(b, table, 2))));
}

static void t_one_hot(bench *b)
{
    const dra_shape s = shape_of_rank(b->f, between(b->f, 0, slip(b) ? 6 : 4));
    keep(b, dra_one_hot(b->g, i32_of(b, s), slip(b) ? INT64_MAX : size(b->f)));
}

static void t_write_rows(bench *b)
{
    const dra_value x = pick(b, (want){ANY, 2});
    const dra_shape s = shape(b, x), rows = with(s, 1, size(b->f));
    const dra_value at = indices(b, (dra_shape){2, {rows.dim[0], rows.dim[1]}}, s.dim[1]);
    keep(b, dra_write_rows(b->g, x, like(b, dra_dtype_of(b->g, x), rows), at));
}

/* ---- norms, softmax, activations ------------------------------------------------------------- */

static dra_value weights(bench *b, dra_value x) /* (C) or none */
{
    if (chance(b->f, 30)) return (dra_value){0};
    return like(b, DRA_REAL, (dra_shape){1, {dim(b, x, 1)}});
}

static void t_norm(bench *b)
{
    dra_graph      *g = b->g;
    const dra_value x = filled(b, 1), w = weights(b, x), c = weights(b, x);
    const double    eps = slip(b) ? -1 : 1e-5;
    const int64_t   n = dim(b, x, 1), groups = n % 2 == 0 && chance(b->f, 50) ? 2 : 1;
    switch (below(b->f, 6)) {
    case 0: keep(b, dra_layer_norm(g, x, w, c, eps)); break;
    case 1: keep(b, dra_rms_norm(g, x, w, eps)); break;
    case 2: keep(b, dra_unit(g, x, eps)); break;
    case 3: keep(b, dra_unit_clamped(g, x, eps)); break;
    case 4: keep(b, dra_scale_norm(g, x, chance(b->f, 50) ? dra_number(g, 2) : w, eps)); break;
    default: keep(b, dra_group_norm(g, x, slip(b) ? -3 : groups, w, c, eps)); break;
    }
}

static void t_softmax(bench *b)
{
    keep(b, chance(b->f, 50) ? dra_softmax(b->g, real_of(b, 1))
                             : dra_log_softmax(b->g, real_of(b, 1)));
}

static void t_activate(bench *b)
{
    const dra_activation act = (dra_activation)(slip(b) ? 99 : below(b->f, DRA_ACT_COUNT));
    if (chance(b->f, 50)) {
        keep(b, dra_activate(b->g, real_of(b, -1), act));
        return;
    }
    const dra_shape s = with(shape_of_rank(b->f, 2), 1, 2 * between(b->f, 0, 5));
    keep(b, dra_glu(b->g, slip(b) ? real_of(b, -1) : like(b, DRA_REAL, s), act));
}

/* ---- random numbers, positions --------------------------------------------------------------- */

static dra_random_config random_config(bench *b, dra_shape s)
{
    static const char *const names[] = {"a", "b", "mask", "noise"};
    const dra_shape          rows = {1, {s.rank > 1 ? s.dim[0] : 1}};
    dra_random_config        c = {names[below(b->f, 4)], i32_of(b, (dra_shape){1, {4}}), {0}, {0}};
    if (chance(b->f, 40)) c.pos = i32_of(b, rows);
    if (chance(b->f, 40)) c.row = i32_of(b, rows);
    if (slip(b)) c.name = chance(b->f, 50) ? NULL : "a/b";
    return c;
}

static void t_random(bench *b)
{
    const dra_shape s = slip(b) ? wrong_shape(b->f) : shape_of_rank(b->f, between(b->f, 1, 4));
    const dra_shape safe = s.rank >= 0 && s.rank <= DRA_MAX_RANK ? s : (dra_shape){1, {1}};
    const dra_random_config c = random_config(b, slip(b) ? (dra_shape){2, {7, 7}} : safe);
    keep(b, chance(b->f, 50) ? dra_random_uniform(b->g, s, &c) : dra_random_normal(b->g, s, &c));
}

static void t_dropout(bench *b)
{
    const dra_value         x = real_of(b, 1);
    const dra_random_config c = random_config(b, shape(b, x));
    keep(b, dra_dropout(b->g, x, slip(b) ? 1 : (double)below(b->f, 10) / 10, &c));
}

static void t_rotary(bench *b)
{
    dra_shape s = shape_of_rank(b->f, 4);
    s.dim[3] = 2 * between(b->f, 1, 4);
    const dra_value         x = like(b, DRA_REAL, s);
    const dra_rotary_config c = {.width = chance(b->f, 40) ? between(b->f, 1, 2) : 0,
                                 .stretch = chance(b->f, 30) ? 2 : 0,
                                 .halves = chance(b->f, 50),
                                 .xpos_base = chance(b->f, 30) ? 512 : 0,
                                 .xpos_center = chance(b->f, 50) ? 3 : 0,
                                 .xpos_invert = chance(b->f, 50),
                                 .base = slip(b) ? -1 : 0};
    const dra_value         pos = i32_of(b, (dra_shape){2, {s.dim[0], s.dim[2]}});
    keep(b, dra_rotary(b->g, x, pos, chance(b->f, 20) ? NULL : &c));
}

/* ---- losses ---------------------------------------------------------------------------------- */

static void t_losses(bench *b)
{
    const dra_value                 x = filled(b, 1);
    dra_shape                       s = shape(b, x);
    const int64_t                   C = dim(b, x, 1), V = 1 + below(b->f, 5);
    const dra_cross_entropy_config  c = {between(b->f, -1, 2), chance(b->f, 50),
                                        slip(b)            ? 2
                                         : chance(b->f, 50) ? 0.1
                                                            : 0};
    const dra_cross_entropy_config *config = chance(b->f, 30) ? NULL : &c;
    if (s.rank) s.rank--;
    if (chance(b->f, 35)) {
        const dra_value w = like(b, DRA_REAL, (dra_shape){2, {V, C}}), target = indices(b, s, V);
        keep(b, dra_linear_cross_entropy(b->g, x, w, target, config));
        return;
    }
    const dra_value target = indices(b, s, C);
    keep(b, chance(b->f, 50) ? dra_token_losses(b->g, x, target, config)
                             : dra_cross_entropy(b->g, x, target, config));
}

/* ---- attention ------------------------------------------------------------------------------- */

static void t_interval(bench *b)
{
    const int64_t B = size(b->f), T = size(b->f);
    dra_value     lo = {0}, hi = {0};
    dra_causal_interval(b->g, chance(b->f, 50) ? i32_of(b, (dra_shape){1, {B}}) : (dra_value){0}, B,
                        T, slip(b) ? -1 : below(b->f, 3), &lo, &hi);
    keep(b, lo);
    keep(b, hi);
}

/* Biases by distance, keys that all see, heads mixed, scores of a layer before. */
static void attend_more(bench *b, const dra_shape *scores, bool plain, dra_attend_config *c)
{
    fuzz           *f = b->f;
    const int64_t   H = scores->dim[1], N = between(f, 1, 6);
    const dra_shape heads = {2, {H, H}};
    if (chance(f, 20)) {
        c->distance = like(b, DRA_REAL, (dra_shape){2, {chance(f, 50) ? 1 : H, N}});
        c->distance_zero = slip(b) ? N : below(f, (int)N);
    }
    if (chance(f, 20)) c->always = slip(b) ? -1 : upto(f, scores->dim[3]);
    if (plain && chance(f, 15)) c->previous = like(b, DRA_REAL, *scores);
    if (plain && chance(f, 15)) c->mix_before = like(b, DRA_REAL, heads);
    if (plain && chance(f, 15)) c->mix_after = like(b, DRA_REAL, heads);
}

static void t_attend(bench *b)
{
    fuzz             *f = b->f;
    const int64_t     B = between(f, 1, 2), K = between(f, 1, 2), H = K * between(f, 1, 2);
    const int64_t     T = size(f), J = size(f), D = between(f, 1, 4), E = between(f, 1, 4);
    const dra_shape   scores = {4, {B, H, T, J}}, bt = {2, {B, T}}, bj = {2, {B, J}};
    const dra_value   q = like(b, DRA_REAL, (dra_shape){4, {B, H, T, D}});
    const dra_value   k = like(b, DRA_REAL, (dra_shape){4, {B, K, J, D}});
    const dra_value   v = like(b, DRA_REAL, (dra_shape){4, {B, K, J, E}});
    dra_random_config random = random_config(b, (dra_shape){2, {B, T}});
    dra_value         out = {0};
    dra_attend_config c = {.heads = (dra_head_map)below(f, 2),
                           .path = (dra_attend_path)(slip(b) ? 9 : below(f, 3)),
                           .scale = chance(f, 30) ? 0.5 : 0,
                           .softcap = chance(f, 20) ? 5 : 0};
    if (chance(f, 40)) c.lo = i32_of(b, bt);
    if (chance(f, 40)) c.hi = i32_of(b, bt);
    if (chance(f, 30)) c.mask = like(b, DRA_BOOL, narrower(f, scores));
    if (chance(f, 30)) c.bias = like(b, DRA_REAL, narrower(f, scores));
    if (chance(f, 30)) c.slopes = like(b, DRA_REAL, (dra_shape){1, {H}});
    if (chance(f, 30)) c.q_pos = i32_of(b, bt);
    if (chance(f, 30)) c.k_pos = i32_of(b, bj);
    if (chance(f, 20)) c.dropout = 0.5, c.random = &random;
    const bool plain = c.path != DRA_ATTEND_TILED || slip(b);
    if (plain && chance(f, 20)) c.topk = slip(b) ? INT64_MAX : 1 + upto(f, J);
    if (c.topk > J && !slip(b)) c.topk = J;
    if (c.topk) c.topk_straight = chance(f, 50);
    if (c.random && c.random->pos.id && !c.q_pos.id) c.q_pos = i32_of(b, bt);
    if (plain && chance(f, 15) && (!c.topk || slip(b))) c.hard = true;
    if (plain && chance(f, 15)) c.scores = &out;
    attend_more(b, &scores, plain, &c);
    if (chance(f, 15) && T > 0 && J > 0) /* has no options */
        c = (dra_attend_config){.heads = c.heads, .path = DRA_ATTEND_FEW, .scale = c.scale};
    keep(b, dra_attend(b->g, q, k, v, chance(f, 15) ? NULL : &c));
    if (out.id) keep(b, out);
}

/* ---- optimizer ------------------------------------------------------------------------------- */

static void t_norms(bench *b)
{
    const dra_value x[] = {real_of(b, -1), real_of(b, -1)};
    const dra_value n = keep(b, dra_global_norm(b->g, slip(b) ? 0 : between(b->f, 1, 2), x));
    keep(b, dra_clip_factor(b->g, in(b, n), slip(b) ? -1 : 1));
}

static void t_adamw(bench *b)
{
    const dra_value        p = real_of(b, -1), rate = like(b, DRA_REAL, (dra_shape){0});
    const dra_shape        s = shape(b, p);
    const dra_value        dp = like(b, DRA_REAL, s), m = like(b, DRA_REAL, s);
    const dra_value        v = like(b, DRA_REAL, s), t = i32_of(b, (dra_shape){0});
    const dra_adamw_config c = {0.9, slip(b) ? 7 : 0.99, 1e-8, 0.01};
    const dra_adamw_result r = dra_adamw(b->g, p, dp, m, v, rate, rate, t, slip(b) ? NULL : &c);
    keep(b, r.p);
    keep(b, r.m);
    keep(b, r.v);
}

#endif
