/* Attention by the plain path: a composition of small ops, which can show its scores, choose among
 * them (top-k, hard), mix those of the heads and add those of a layer before.
 *   s_h = scale q_h.k + previous_h,  s'_h = s_h + sum_g mix_before_hg s_g,  then biases and masks
 *   p_h = softmax(s'_h), chosen and dropped from,  y_h = (sum_g mix_after_hg p_g) v
 * [Shazeer et al. 2020: Talking-heads attention; He et al. 2020: RealFormer]
 * A sink is one more column of s', which p loses again.
 * Selective attention subtracts what the logits of queries before have summed up to.
 * It holds the scores (B, H, T, J) while it works. For the gradient it keeps p and masks: what is
 * made of p on the way to y, and s where they are mixed, is computed again (dra_recompute). */
#include "ops/attention/attend.h"

/* Heads as two axes, so that keys broadcast over the query heads that share them and nothing is
 * copied: (B, K, H/K, ...) where h reads h div (H/K), (B, H/K, K, ...) where it reads h mod K. */
static dra_value split_heads(dra_graph *g, const dra_attention *x, dra_value v)
{
    const dra_shape s = dra_shape_of(g, v);
    const int64_t   K = x->K, group = s.dim[1] == K ? 1 : s.dim[1] / K;
    if (x->a.H == K) return v;
    if (x->a.heads == DRA_HEADS_DIV)
        return dra_reshape(g, v, DRA_SHAPE(s.dim[0], K, group, s.dim[2], s.dim[3]));
    return dra_reshape(g, v, DRA_SHAPE(s.dim[0], group, K, s.dim[2], s.dim[3]));
}

static dra_value soften_scores(dra_graph *g, const dra_attend_attr *a, dra_value s, double scale)
{
    return dra_affine(g, dra_tanh(g, dra_affine(g, s, scale / a->softcap, 0)), a->softcap, 0);
}

static dra_value make_logits(dra_graph *g, const dra_attention *x)
{
    const dra_attend_attr *a = &x->a;
    const dra_value        k = dra_transpose(g, split_heads(g, x, x->k), -1, -2);
    dra_value              s = dra_matmul(g, split_heads(g, x, x->q), k);
    s = dra_reshape(g, s, DRA_SHAPE(a->B, a->H, a->T, a->J));
    if (a->softcap > 0 && !a->late) return soften_scores(g, a, s, a->scale);
    return dra_affine(g, s, a->scale, 0);
}

/* y_h = sum_g by_hg x_g for x (B, H, T, J) */
static dra_value mix_heads(dra_graph *g, const dra_attend_attr *a, dra_value by, dra_value x)
{
    const dra_value flat = dra_reshape(g, x, DRA_SHAPE(a->B, a->H, a->T * a->J));
    return dra_reshape(g, dra_matmul(g, by, flat), DRA_SHAPE(a->B, a->H, a->T, a->J));
}

/* Logits with those of the layer before, mixed. Any logit vanishes next to DRA_MASKED, so that what
 * was masked is DRA_MASKED still; a mixture must not see it: `seen` says where it was not. */
static dra_value mixed_logits(dra_graph *g, const dra_attention *x, dra_value seen)
{
    dra_value s = make_logits(g, x), previous = x->previous;
    if (seen.id) previous = dra_select(g, seen, previous, dra_number(g, 0));
    if (previous.id) s = dra_add(g, s, previous);
    if (!x->mix_before.id) return s;
    const dra_value unit = dra_one_hot(g, dra_arange(g, x->a.H), x->a.H);
    return mix_heads(g, &x->a, dra_add(g, x->mix_before, unit), s);
}

static void mixed_body(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    dra_attention x = *(const dra_attention *)user;
    x.q = in[0], x.k = in[1], x.mix_before = in[2];
    out[0] = mixed_logits(g, &x, (dra_value){0});
}

/* The same, keeping nothing where that is possible: with logits of a layer before one of the two
 * would have to be kept anyway. */
static dra_value first_logits(dra_graph *g, const dra_attention *x, dra_value seen)
{
    const dra_value in[] = {x->q, x->k, x->mix_before};
    dra_attention   own = *x;
    dra_value       s;
    if (!x->mix_before.id || x->previous.id) return mixed_logits(g, x, seen);
    dra_recompute(g, mixed_body, &own, 3, in, 1, &s);
    return s;
}

/* q_pos - k_pos, i32 (B, 1, T, J); (1, 1, T, J) where both are counted. */
static dra_value make_distances(dra_graph *g, const dra_attention *x)
{
    const dra_attend_attr *a = &x->a;
    dra_value              q = x->option[DRA_ATTEND_Q_POS], k = x->option[DRA_ATTEND_K_POS];
    if (!q.id) q = dra_add(g, dra_arange(g, a->T), dra_integer(g, (int32_t)(a->J - a->T)));
    if (!k.id) k = dra_arange(g, a->J);
    q = dra_reshape(g, q, DRA_SHAPE(x->option[DRA_ATTEND_Q_POS].id ? a->B : 1, 1, a->T, 1));
    k = dra_reshape(g, k, DRA_SHAPE(x->option[DRA_ATTEND_K_POS].id ? a->B : 1, 1, 1, a->J));
    return dra_sub(g, q, k);
}

/* The biases by distance, real (B, H, T, J) or (1, H, T, J). */
static dra_value distance_bias(dra_graph *g, const dra_attention *x)
{
    const dra_value table = dra_transpose(g, x->option[DRA_ATTEND_DISTANCE], 0, 1);
    const dra_value last = dra_integer(g, (int32_t)(dra_shape_of(g, table).dim[0] - 1));
    const dra_value zero = dra_integer(g, (int32_t)x->a.distance_zero);
    dra_value       at = dra_add(g, make_distances(g, x), zero);
    at = dra_maximum(g, dra_minimum(g, at, last), dra_integer(g, 0));
    const dra_shape s = dra_shape_of(g, at);
    at = dra_reshape(g, at, DRA_SHAPE(s.dim[0], s.dim[2], s.dim[3]));
    return dra_permute(g, dra_embedding(g, table, at), (const int[]){0, 3, 1, 2});
}

/* The keys that all see, bool (J). */
static dra_value first_keys(dra_graph *g, const dra_attention *x)
{
    return dra_less(g, dra_arange(g, x->a.J), dra_integer(g, (int32_t)x->a.always));
}

/* The mask of visible keys, bool, broadcastable to (B, H, T, J); the null value: all are
 * visible. */
static dra_value find_visible(dra_graph *g, const dra_attention *x)
{
    const dra_attend_attr *a = &x->a;
    const dra_shape        column = DRA_SHAPE(a->B, 1, a->T, 1);
    const dra_value        lo = x->option[DRA_ATTEND_LO], hi = x->option[DRA_ATTEND_HI];
    const dra_value        mask = x->option[DRA_ATTEND_MASK], key = dra_arange(g, a->J);
    dra_value              sees = mask;
    if (lo.id) {
        const dra_value after = dra_greater_equal(g, key, dra_reshape(g, lo, column));
        sees = sees.id ? dra_and(g, sees, after) : after;
    }
    if (hi.id) {
        const dra_value before = dra_less(g, key, dra_reshape(g, hi, column));
        sees = sees.id ? dra_and(g, sees, before) : before;
    }
    return sees.id && a->always > 0 ? dra_or(g, sees, first_keys(g, x)) : sees;
}

/* q_level_t - k_level_j, part by part. */
static dra_value level_bias(dra_graph *g, const dra_attention *x)
{
    const dra_value q = x->option[DRA_ATTEND_Q_LEVEL], k = x->option[DRA_ATTEND_K_LEVEL];
    dra_value       all = {0};
    for (int64_t p = 0; p < dra_shape_of(g, q).dim[3]; p++) {
        const dra_value keys = dra_transpose(g, dra_slice(g, k, 3, p, 1), 2, 3);
        const dra_value each = dra_sub(g, dra_slice(g, q, 3, p, 1), keys);
        all = p ? dra_add(g, all, each) : each;
    }
    return all;
}

/* Logits s with their biases, by pair and by distance. */
static dra_value add_bias(dra_graph *g, const dra_attention *x, dra_value s)
{
    const dra_value bias = x->option[DRA_ATTEND_BIAS], slopes = x->option[DRA_ATTEND_SLOPES];
    if (bias.id) s = dra_add(g, s, bias);
    if (x->option[DRA_ATTEND_DISTANCE].id) s = dra_add(g, s, distance_bias(g, x));
    if (slopes.id) {
        const dra_value slope = dra_reshape(g, slopes, DRA_SHAPE(x->a.H, 1, 1));
        const dra_value far = dra_cast(g, dra_abs(g, make_distances(g, x)), DRA_REAL);
        s = dra_sub(g, s, dra_mul(g, slope, far));
    }
    if (x->option[DRA_ATTEND_Q_LEVEL].id) s = dra_add(g, s, level_bias(g, x));
    return s;
}

static dra_value masked_logits(dra_graph *g, const dra_attention *x)
{
    const dra_value masked = dra_number(g, DRA_MASKED), sees = find_visible(g, x);
    dra_value       seen = {0}; /* by the layer before, where that must be known */
    if (x->previous.id && (x->mix_before.id || x->a.late))
        seen = dra_greater(g, x->previous, dra_number(g, DRA_MASKED / 2));
    const dra_value s0 = first_logits(g, x, seen);
    dra_value       s = add_bias(g, x, s0);
    if (x->a.always > 0 && s.id != s0.id) s = dra_select(g, first_keys(g, x), s0, s);
    if (x->a.late) s = soften_scores(g, &x->a, s, 1);
    if (seen.id) s = dra_select(g, seen, s, masked);
    return sees.id ? dra_select(g, sees, s, masked) : s;
}

/* Sums of x (B, H, T, J) over the keys from j on. */
static dra_value sum_later_keys(dra_graph *g, const dra_attend_attr *a, dra_value x)
{
    const dra_value none = {0};
    const dra_value keys = dra_transpose(g, dra_reshape(g, x, DRA_SHAPE(a->B, a->H * a->T, a->J)),
                                         1, 2);
    const dra_value sums = dra_running_sum(g, keys, none, none, NULL);
    dra_value       upto = dra_add(g, dra_slice(g, sums, 3, 0, 1), dra_slice(g, sums, 3, 1, 1));
    upto = dra_transpose(g, dra_reshape(g, upto, DRA_SHAPE(a->B, a->J, a->H * a->T)), 1, 2);
    upto = dra_reshape(g, upto, DRA_SHAPE(a->B, a->H, a->T, a->J));
    return dra_add(g, dra_sub(g, dra_sum_last(g, x), upto), x);
}

/* Logits with contextual positions: what q.cope is between the whole positions next to one. */
static dra_value add_cope(dra_graph *g, const dra_attention *x, dra_value s)
{
    const dra_value cope = x->config->cope;
    if (!cope.id || dra_graph_failed(g)) return s;
    const int64_t   last = dra_shape_of(g, cope).dim[0] - 1;
    const dra_value end = dra_number(g, (double)last), start = dra_number(g, 0);
    const dra_value each = dra_matmul(g, x->q, dra_transpose(g, cope, 0, 1)); /* (B, H, T, P) */
    dra_value       at = sum_later_keys(g, &x->a, dra_sigmoid(g, s));
    at = dra_maximum(g, dra_minimum(g, at, end), start);
    const dra_value below = dra_cast(g, at, DRA_I32);
    const dra_value above = dra_minimum(g, dra_add(g, below, dra_integer(g, 1)),
                                        dra_integer(g, (int32_t)last));
    const dra_value low = dra_gather(g, each, below, 3), high = dra_gather(g, each, above, 3);
    const dra_value share = dra_sub(g, at, dra_cast(g, below, DRA_REAL));
    return dra_add(g, s, dra_add(g, low, dra_mul(g, share, dra_sub(g, high, low))));
}

/* x (B, T, n) at i32 (B, T, m), 0 where `has` is not. */
static dra_value gather_where(dra_graph *g, dra_value has, dra_value x, dra_value at)
{
    const dra_value zero = dra_integer(g, 0);
    return dra_select(g, has, dra_gather(g, x, dra_select(g, has, at, zero), 2), dra_number(g, 0));
}

/* What queries take from items, by their number in the text, (B, T, selective). */
static dra_value take_from_items(dra_graph *g, const dra_attention *x, dra_value s, dra_value lo)
{
    const dra_attend_attr *a = &x->a;
    const dra_shape        column = DRA_SHAPE(a->B, a->T, 1), rows = DRA_SHAPE(a->B, a->T, a->J);
    const dra_value        item = dra_arange(g, x->config->selective), zero = dra_integer(g, 0);
    const dra_value        hi = dra_reshape(g, x->option[DRA_ATTEND_HI], column);
    const dra_value        row = dra_add(g, lo, item), own = dra_sub(g, hi, dra_integer(g, 1));
    const dra_value        takes = dra_and(g, dra_greater(g, item, zero), dra_less(g, row, own));
    const dra_value        first = dra_reshape(g, dra_slice(g, s, 1, 0, 1), rows);
    return gather_where(g, takes, dra_maximum(g, first, dra_number(g, 0)), row);
}

/* Where a text starts, bool (B, T, 1). */
static dra_value find_resets(dra_graph *g, const dra_attention *x)
{
    const dra_value reset = dra_integer(g, DRA_MARK_RESET);
    const dra_value mark = dra_mod(g, x->config->taken_mark, dra_integer(g, 2 * DRA_MARK_RESET));
    return dra_reshape(g, dra_greater_equal(g, mark, reset), DRA_SHAPE(x->a.B, x->a.T, 1));
}

/* Logits less what the first head's were above 0 in queries before. */
static dra_value select_logits(dra_graph *g, const dra_attention *x, dra_value s)
{
    const dra_attend_config *f = x->config;
    const dra_attend_attr   *a = &x->a;
    if (!f->selective || dra_graph_failed(g) || a->T == 0 || a->J == 0) return s;
    const dra_value zero = dra_number(g, 0), most = dra_integer(g, (int32_t)f->selective);
    const dra_value lo = dra_reshape(g, x->option[DRA_ATTEND_LO], DRA_SHAPE(a->B, a->T, 1));
    const dra_value gate = take_from_items(g, x, s, lo), item = dra_sub(g, dra_arange(g, a->J), lo);
    const dra_shape start = DRA_SHAPE(a->B, 1, f->selective);
    const dra_axes  parts = {1, {-1}, false}; /* of the start before its memory is given away */
    dra_value       taken = f->taken.id ? dra_reshape(g, dra_sum(g, f->taken, parts), start)
                                        : dra_broadcast(g, zero, start);
    const dra_value sums = dra_running_sum(g, gate, f->taken, f->taken_mark, f->taken_last);
    if (dra_graph_failed(g)) return s;
    if (a->T > 1) {
        const dra_value both[] = {taken, dra_slice(g, dra_sum(g, sums, parts), 1, 0, a->T - 1)};
        taken = dra_concat(g, 2, both, 1);
    }
    if (f->taken_mark.id) taken = dra_select(g, find_resets(g, x), zero, taken);
    const dra_value has = dra_and(g, dra_greater(g, item, dra_integer(g, 0)),
                                  dra_less(g, item, most));
    const dra_value less = gather_where(g, has, taken, item);
    return dra_sub(g, s, dra_reshape(g, less, DRA_SHAPE(a->B, 1, a->T, a->J)));
}

/* The softmax over the logits at or above the k-th largest of a row: ties all count, and a row
 * that sees fewer than k keys keeps them all, since then the k-th largest is a masked one. */
static dra_value topk_weights(dra_graph *g, const dra_attend_config *f, dra_value s)
{
    const dra_value keep = dra_greater_equal(g, s, dra_topk_threshold(g, s, f->topk));
    const dra_value p = dra_softmax(g, dra_select(g, keep, s, dra_number(g, DRA_MASKED)));
    return f->topk_straight ? dra_straight_through(g, p, dra_softmax(g, s)) : p;
}

static dra_value hard_weights(dra_graph *g, dra_value s, int64_t J)
{
    const dra_value one = dra_one_hot(g, dra_argmax(g, s), J);
    const dra_value takes_part = dra_greater(g, s, dra_number(g, DRA_MASKED / 2));
    const dra_value p = dra_select(g, takes_part, one, dra_number(g, 0)); /* 0 if nothing is seen */
    return dra_straight_through(g, p, dra_softmax(g, s));
}

static dra_value make_weights(dra_graph *g, const dra_attention *x, dra_value s)
{
    const dra_attend_config *f = x->config;
    if (f->topk > 0 && f->topk < x->a.J) return topk_weights(g, f, s);
    if (f->sigmoid) return dra_sigmoid(g, s);
    if (f->hard && x->a.J > 0) return hard_weights(g, s, x->a.J);
    return dra_softmax(g, s);
}

/* The same with the sink as the first column, which the result leaves out. */
static dra_value weights_and_sink(dra_graph *g, const dra_attention *x, dra_value s)
{
    const dra_attend_attr *a = &x->a;
    dra_attention          more = *x;
    if (!x->config->sink.id || dra_graph_failed(g)) return make_weights(g, x, s);
    const dra_value sink = dra_reshape(g, x->config->sink, DRA_SHAPE(1, a->H, 1, 1));
    const dra_value both[] = {dra_broadcast(g, sink, DRA_SHAPE(a->B, a->H, a->T, 1)), s};
    more.a.J++;
    return dra_slice(g, make_weights(g, &more, dra_concat(g, 2, both, 3)), 3, 1, a->J);
}

/* What multiplies the values, but for dropout. */
static dra_value mixed_weights(dra_graph *g, const dra_attention *x, dra_value p)
{
    return x->mix_after.id ? mix_heads(g, &x->a, x->mix_after, p) : p;
}

static dra_value read_values(dra_graph *g, const dra_attention *x, dra_value p)
{
    const dra_attend_attr *a = &x->a;
    if (a->dropout > 0) p = dra_mul(g, p, dra_attend_factors(g, x->option, a));
    p = mixed_weights(g, x, p);
    return dra_matmul(g, split_heads(g, x, p), split_heads(g, x, x->v));
}

/* What a region passes on: p, v, mix_after and the options of dropout. */
enum { REGION_INPUTS = 3 + DRA_ATTEND_OPTIONS };

static const dra_attend_input of_dropout[] = {DRA_ATTEND_Q_POS, DRA_ATTEND_K_POS, DRA_ATTEND_KEY,
                                              DRA_ATTEND_ROW};
enum { OF_DROPOUT = sizeof of_dropout / sizeof *of_dropout };

static void values_body(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    dra_attention x = *(const dra_attention *)user;
    int           n = 2;
    x.v = in[1];
    if (x.mix_after.id) x.mix_after = in[n++];
    for (int i = 0; i < OF_DROPOUT; i++)
        if (x.option[of_dropout[i]].id) x.option[of_dropout[i]] = in[n++];
    out[0] = read_values(g, &x, in[0]);
}

/* y of the weights, keeping p alone. */
static dra_value read_again(dra_graph *g, const dra_attention *x, dra_value p)
{
    dra_attention own = *x;
    dra_value     in[REGION_INPUTS] = {p, x->v}, y;
    int           n = 2;
    if (!(x->a.dropout > 0) && !x->mix_after.id) return read_values(g, x, p);
    if (x->mix_after.id) in[n++] = x->mix_after;
    for (int i = 0; i < OF_DROPOUT; i++)
        if (x->option[of_dropout[i]].id) in[n++] = x->option[of_dropout[i]];
    dra_recompute(g, values_body, &own, n, in, 1, &y);
    return y;
}

dra_value dra_attend_plain(dra_graph *g, const dra_attention *x)
{
    const dra_attend_config *f = x->config;
    const dra_attend_attr   *a = &x->a;
    const dra_value          s = select_logits(g, x, add_cope(g, x, masked_logits(g, x)));
    const dra_value          p = weights_and_sink(g, x, s);
    const dra_value          y = read_again(g, x, p);
    if (f->scores) *f->scores = s;
    if (f->weights) *f->weights = mixed_weights(g, x, p);
    if (dra_graph_failed(g)) {
        if (f->scores) *f->scores = (dra_value){0};
        if (f->weights) *f->weights = (dra_value){0};
        return (dra_value){0};
    }
    const int64_t E = dra_type_of(g, x->v)->shape.dim[3];
    return dra_reshape(g, y, DRA_SHAPE(a->B, a->H, a->T, E));
}
