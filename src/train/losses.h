/* Losses of objectives as plain functions of graph values, without a model. All are means over what
 * counts, 0 where nothing does. */
#ifndef DRA_SRC_TRAIN_LOSSES_H
#define DRA_SRC_TRAIN_LOSSES_H

#include "dra/train.h"

enum { DRA_MEASURES = DRA_MEASURES_MOST };

typedef struct dra_loss {
    dra_value value; /* a scalar, to be made small */
    /* Scalars for people to read, also means over what counts; not differentiated. None: there is
     * no such measure, or it is the loss itself. */
    dra_value measure[DRA_MEASURES];
} dra_loss;

/* Cross entropy of labels i32 (B), -1: does not count; logits (B, K). measure[0]: the share that is
 * most likely. */
dra_loss dra_loss_classes(dra_graph *g, dra_value logits, dra_value labels,
                          const dra_cross_entropy_config *c);

/* sum w e / sum w with weights w (B, T) and e (B, T), the squared error of x (B, T, D) from y: the
 * mean over D or, with `sums`, the sum. measure[0]: the mean of squares, without `sums`. */
dra_loss dra_loss_squared(dra_graph *g, dra_value x, dra_value y, dra_value weight, bool sums);

/* The same with e = (ln v + (y - m)^2 / v) / 2, v = e^s >= 1e-6: x (B, T, 2 D) has m and s in
 * turns. Below the bound the gradient is that of the bound's value, as PyTorch has it. */
dra_loss dra_loss_gaussian(dra_graph *g, dra_value x, dra_value y, dra_value weight);

/* The mean over targets i32 (B, T), -1: does not count, of their losses (B, T) and, where the
 * target is `token`, weight (numbers - y)^2; y (B, T) is not looked at elsewhere. measure: the mean
 * loss of tokens, and the mean of squares. */
dra_loss dra_loss_numbers(dra_graph *g, dra_value losses, dra_value targets, dra_value numbers,
                          dra_value y, int32_t token, double weight);

/* Direct preference optimisation [Rafailov et al. 2023]: rows 2 i and 2 i + 1 are texts of which
 * the first is preferred; losses (B, T) of targets i32 (B, T), -1: does not count; reference (B):
 * the mean log probability of each text before training. With l the same now,
 *   -ln sigmoid(beta ((l_2i - l_2i+1) - (r_2i - r_2i+1)))
 * measure[0]: the share of pairs where that is less than ln 2. */
dra_loss dra_loss_preference(dra_graph *g, dra_value losses, dra_value targets, dra_value reference,
                             double beta);

#endif
