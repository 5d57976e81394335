/* The objective masked: hidden positions predict their own token.
 *   constant   every position is hidden with probability mask_share. Of these 80 % read the mask
 *              token, 10 % a random token, 10 % their own [Devlin et al. 2018]
 *   schedule   of every row with n tokens ceil(share n) are hidden, those with the smallest random
 *              numbers, and all of them read the mask token; share = 1 - u or cos(u pi / 2) for a
 *              uniform u of the row [Ghazvininejad et al. 2019; Chang et al. 2022, cosine] */
#include <math.h>

#include "base/error.h"
#include "base/philox.h"
#include "base/shape.h"
#include "train/objective.h"

/* ---- settings -------------------------------------------------------------------------------- */

/* A schedule decides how many are hidden, so mask_share must not be given. */
static dra_status complete_share(dra_objective_config *c, dra_error *err)
{
    if ((unsigned)c->mask_schedule > DRA_MASK_COSINE)
        return dra_fail(err, DRA_ERR_VALUE, "objective masked: mask_schedule %d is not known",
                        (int)c->mask_schedule);
    if (c->mask_schedule != DRA_MASK_CONSTANT && c->mask_share != 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "objective masked: expected one of mask_share and mask_schedule, found "
                        "both (mask_share %g)",
                        c->mask_share);
    if (c->mask_schedule != DRA_MASK_CONSTANT) return DRA_OK;
    if (c->mask_share == 0) c->mask_share = 0.15;
    if (c->mask_share > 0 && c->mask_share <= 1) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "objective masked: mask_share is %g, expected 0 to 1",
                    c->mask_share);
}

int64_t dra_mask_token(const dra_model_config *m, int64_t asked)
{
    if (asked != 0) return asked;
    if (m->xt.loss != DRA_XT_LOSS_MASKED) return m->vocab - 1;
    return m->xt.mask_id ? m->xt.mask_id : -1;
}

/* In a causal model, a token's logits predict the next token everywhere else, and could see only
 * what comes before. */
dra_status dra_masked_complete(dra_objective_config *c, const dra_model *m, dra_error *err)
{
    const int64_t V = dra_model_config_of(m)->vocab;
    if (dra_model_config_of(m)->visible != DRA_VISIBLE_BIDIRECTIONAL)
        return dra_fail(err, DRA_ERR_VALUE,
                        "objective masked: the model is causal, not an encoder, and its logits "
                        "predict the next token; expected next");
    const dra_status st = complete_share(c, err);
    if (st != DRA_OK) return st;
    c->mask_token = dra_mask_token(dra_model_config_of(m), c->mask_token);
    if (V < 2 || c->mask_token >= V)
        return dra_fail(err, DRA_ERR_VALUE,
                        "objective masked: mask_token is %lld, the model has 0 to %lld",
                        (long long)c->mask_token, (long long)V - 1);
    return DRA_OK;
}

/* ---- random numbers -------------------------------------------------------------------------- */

typedef struct draws {
    uint64_t tokens, rows; /* keys of what is drawn for each token and for each row */
} draws;

static draws draws_of(const dra_objective_rows *r)
{
    const int32_t words[4] = {(int32_t)r->seed, (int32_t)(r->seed >> 32), (int32_t)r->step,
                              (int32_t)(r->step >> 32)};
    /* "mask", "maskrows": independent of all other random numbers of this step */
    return (draws){dra_philox_key(words, 0x6d61736b), dra_philox_key(words, 0x6d61736b726f7773)};
}

static void draw_bits(uint64_t key, uint64_t row, uint64_t t, uint32_t bits[4])
{
    const uint32_t counter[4] = {(uint32_t)t, (uint32_t)(t >> 32), (uint32_t)row,
                                 (uint32_t)(row >> 32)};
    dra_philox(counter, key, bits);
}

static double unit_number(uint32_t bits) { return ((double)bits + 0.5) * 0x1p-32; }

/* ---- a constant share ------------------------------------------------------------------------ */

/* The token that is read in place of `id`, by three random numbers. A random token is any but the
 * mask token, all equally likely. */
static int32_t hide_token(int32_t id, int32_t mask, int64_t V, const uint32_t *bits)
{
    const double  how = unit_number(bits[1]);
    const int32_t other = (int32_t)((uint64_t)bits[2] * (uint64_t)(V - 1) >> 32);
    if (how < 0.8) return mask;
    return how < 0.9 ? other + (other >= mask) : id;
}

static void make_constant(const dra_objective_config *c, int32_t mask, int64_t V, const draws *d,
                          const dra_objective_rows *r)
{
    for (int64_t i = 0; i < r->B * r->T; i++) {
        uint32_t bits[4];
        r->targets[i] = -1;
        if (r->mark[i] & DRA_MARK_PAD) continue;
        draw_bits(d->tokens, (uint64_t)(r->row + i / r->T), (uint64_t)(i % r->T), bits);
        if (!(unit_number(bits[0]) < c->mask_share)) continue;
        r->targets[i] = r->ids[i];
        r->ids[i] = hide_token(r->ids[i], mask, V, bits);
    }
}

/* ---- a share for each row -------------------------------------------------------------------- */

typedef struct row { /* one of dra_objective_rows */
    int64_t        T;
    int32_t       *ids, *targets;
    const int32_t *mark;
} row;

static bool is_pad(const row *r, int64_t t) { return r->mark[t] & DRA_MARK_PAD; }

/* While a row is being made, its targets hold its random numbers, so no memory is needed. */
static uint32_t random_number(const row *r, int64_t t) { return (uint32_t)r->targets[t]; }

static int64_t count_up_to(const row *r, uint32_t most)
{
    int64_t n = 0;
    for (int64_t t = 0; t < r->T; t++) n += !is_pad(r, t) && random_number(r, t) <= most;
    return n;
}

/* The kth smallest number, k from 1 on: the least x that k of them do not exceed. */
static uint32_t find_kth(const row *r, int64_t k)
{
    uint32_t low = 0, high = UINT32_MAX;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (count_up_to(r, middle) >= k)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Hides the k tokens with the smallest numbers; the first among equals. */
static void hide_smallest(const row *r, int64_t k, int32_t mask)
{
    const uint32_t last = find_kth(r, k);
    int64_t        equal = k - (last ? count_up_to(r, last - 1) : 0);
    for (int64_t t = 0; t < r->T; t++) {
        const uint32_t x = random_number(r, t);
        const bool     hidden = !is_pad(r, t) && (x < last || (x == last && equal-- > 0));
        r->targets[t] = hidden ? r->ids[t] : -1;
        if (hidden) r->ids[t] = mask;
    }
}

double dra_mask_share(dra_mask_schedule schedule, double u)
{
    return schedule == DRA_MASK_COSINE ? cos(u * 1.57079632679489661923) : 1 - u;
}

static void make_row(const row *r, dra_mask_schedule schedule, uint64_t b, const draws *d,
                     int32_t mask)
{
    uint32_t bits[4];
    int64_t  n = 0;
    for (int64_t t = 0; t < r->T; t++) {
        draw_bits(d->tokens, b, (uint64_t)t, bits);
        r->targets[t] = (int32_t)bits[0];
        n += !is_pad(r, t);
    }
    draw_bits(d->rows, b, 0, bits);
    const int64_t k = (int64_t)ceil(dra_mask_share(schedule, unit_number(bits[0])) * (double)n);
    hide_smallest(r, dra_imax(1, dra_imin(k, n)), mask);
}

void dra_masked_make(const dra_objective_config *c, const dra_model *m, const dra_objective_rows *r)
{
    const int64_t V = dra_model_config_of(m)->vocab;
    const int32_t mask = c->mask_token < 0 ? 0 : (int32_t)c->mask_token;
    const draws   d = draws_of(r);
    if (c->mask_schedule == DRA_MASK_CONSTANT) {
        make_constant(c, mask, V, &d, r);
        return;
    }
    for (int64_t b = 0; b < r->B; b++) {
        const int64_t at = b * r->T;
        const row     one = {r->T, r->ids + at, r->targets + at, r->mark + at};
        make_row(&one, c->mask_schedule, (uint64_t)(r->row + b), &d, mask);
    }
}
