/* Losses other than the cross entropy of tokens. */
#include "train/losses.h"

#define LEAST 1e-30 /* of what is divided by: then the sum above is 0 as well */

static dra_value safe_ratio(dra_graph *g, dra_value a, dra_value b)
{
    return dra_div(g, a, dra_maximum(g, b, dra_number(g, LEAST)));
}

/* sum w e / sum w */
static dra_value weighted_mean(dra_graph *g, dra_value e, dra_value w)
{
    return safe_ratio(g, dra_sum_all(g, dra_mul(g, e, w)), dra_sum_all(g, w));
}

static dra_value as_real(dra_graph *g, dra_value where)
{
    return dra_select(g, where, dra_number(g, 1), dra_number(g, 0));
}

/* 1 where a target counts */
static dra_value count_mask(dra_graph *g, dra_value targets)
{
    return as_real(g, dra_greater_equal(g, targets, dra_integer(g, 0)));
}

static dra_value mean_last(dra_graph *g, dra_value x)
{
    const dra_shape s = dra_shape_of(g, x);
    return dra_mean(g, x, (dra_axes){.n = 1, .axis = {s.rank - 1}});
}

dra_loss dra_loss_classes(dra_graph *g, dra_value logits, dra_value labels,
                          const dra_cross_entropy_config *c)
{
    const dra_value hit = as_real(g, dra_equal(g, dra_argmax(g, logits), labels));
    return (dra_loss){dra_cross_entropy(g, logits, labels, c),
                      {weighted_mean(g, hit, count_mask(g, labels))}};
}

dra_loss dra_loss_squared(dra_graph *g, dra_value x, dra_value y, dra_value weight, bool sums)
{
    const dra_shape s = dra_shape_of(g, x);
    const dra_value each = mean_last(g, dra_square(g, dra_sub(g, x, y)));
    const dra_value mean = weighted_mean(g, each, weight);
    if (!sums) return (dra_loss){mean, {mean}};
    return (dra_loss){dra_affine(g, mean, (double)s.dim[s.rank - 1], 0), {mean}};
}

dra_loss dra_loss_gaussian(dra_graph *g, dra_value x, dra_value y, dra_value weight)
{
    dra_shape s = dra_shape_of(g, x), one = dra_shape_of(g, y);
    s.dim[s.rank - 1] /= 2;
    s.dim[s.rank++] = 2;
    const dra_value pair = dra_reshape(g, x, s);
    const dra_value m = dra_reshape(g, dra_slice(g, pair, s.rank - 1, 0, 1), one);
    const dra_value v = dra_exp(g, dra_reshape(g, dra_slice(g, pair, s.rank - 1, 1, 1), one));
    const dra_value bound = dra_straight_through(g, dra_maximum(g, v, dra_number(g, 1e-6)), v);
    const dra_value square = dra_square(g, dra_sub(g, y, m));
    const dra_value each = dra_add(g, dra_log(g, bound), dra_div(g, square, bound));
    return (dra_loss){dra_affine(g, weighted_mean(g, mean_last(g, each), weight), 0.5, 0),
                      {weighted_mean(g, mean_last(g, square), weight)}};
}

dra_loss dra_loss_numbers(dra_graph *g, dra_value losses, dra_value targets, dra_value numbers,
                          dra_value y, int32_t token, double weight)
{
    const dra_value zero = dra_number(g, 0), counts = count_mask(g, targets);
    const dra_value is = dra_equal(g, targets, dra_integer(g, token));
    /* Elsewhere both sides are 0, so that a NaN there has no effect. */
    const dra_value there = dra_select(g, is, y, zero), here = dra_select(g, is, numbers, zero);
    const dra_value square = dra_square(g, dra_sub(g, here, there));
    const dra_value all = dra_add(g, losses, dra_affine(g, square, weight, 0));
    return (dra_loss){weighted_mean(g, all, counts),
                      {weighted_mean(g, losses, counts), weighted_mean(g, square, as_real(g, is))}};
}

/* r_2i - r_2i+1 of (B) */
static dra_value pair_margin(dra_graph *g, dra_value rows)
{
    const int64_t   B = dra_shape_of(g, rows).dim[0];
    const dra_value pairs = dra_reshape(g, rows, DRA_SHAPE(B / 2, 2));
    return dra_sub(g, dra_slice(g, pairs, 1, 0, 1), dra_slice(g, pairs, 1, 1, 1)); /* (B / 2, 1) */
}

dra_loss dra_loss_preference(dra_graph *g, dra_value losses, dra_value targets, dra_value reference,
                             double beta)
{
    const dra_axes  time = {.n = 1, .axis = {1}};
    const dra_value counts = count_mask(g, targets), n = dra_sum(g, counts, time);
    const dra_value l = dra_neg(g, safe_ratio(g, dra_sum(g, dra_mul(g, losses, counts), time), n));
    const int64_t   B = dra_shape_of(g, n).dim[0];
    const dra_value any = dra_max(g, dra_reshape(g, n, DRA_SHAPE(B / 2, 2)),
                                  (dra_axes){.n = 1, .axis = {1}, .keep = true});
    const dra_value weight = dra_minimum(g, any, dra_number(g, 1)); /* 0: both rows are pads */
    const dra_value gain = dra_sub(g, pair_margin(g, l), pair_margin(g, reference));
    const dra_value loss = dra_neg(g, dra_log_sigmoid(g, dra_affine(g, gain, beta, 0)));
    const dra_value won = as_real(g, dra_greater(g, gain, dra_number(g, 0)));
    return (dra_loss){weighted_mean(g, loss, weight), {weighted_mean(g, won, weight)}};
}
