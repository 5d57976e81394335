/* Choosing the token of one row; its arithmetic is that of sample_math.h.
 *   filters  in the order of dra/sampler.def: what they drop has p = 0
 *   draw     the first i with w_1 + .. + w_i >= goal; top-k and top-p leave tokens in the order of
 *            z, the largest first, equal ones by id; else they are in the order of their ids
 * Few tokens are kept of many, so nothing sorts the vocabulary: a heap has the k best so far, and
 * top-p first finds out roughly, by sums over steps of z, how far down it has to look. Where it is
 * the only filter, two steps are put in order: the one it ends in, and that of the token. */
#include "ops/sampling/sample_row.h"

enum { BLOCK = 256 }; /* tokens at a time */

/* ---- logits ---------------------------------------------------------------------------------- */

void dra_sample_fetch(const dra_sample_row *how, const dra_sample_from *from, int64_t first,
                      int64_t n, double *x)
{
    const dra_real *logits = from->logits + first;
    const dra_real *bias = from->bias ? from->bias + first : NULL;
    const bool     *allowed = from->allowed ? from->allowed + first : NULL;
    if (bias || allowed)
        for (int64_t i = 0; i < n; i++)
            x[i] = (double)dra_sample_biased(logits[i], bias ? bias[i] : 0, !allowed || allowed[i]);
    else
        for (int64_t i = 0; i < n; i++) x[i] = (double)logits[i];
    if (!from->seen || how->repetition_penalty == 0) return;
    for (int64_t i = 0; i < n; i++)
        if (from->seen[first + i]) x[i] = dra_sample_penalised(x[i], how->repetition_penalty);
}

static double find_largest(const double *x, int64_t n, bool *broken)
{
    double max = -INFINITY;
    bool   bad = false;
    for (int64_t i = 0; i < n; i++) {
        bad |= !(x[i] < INFINITY);
        max = x[i] > max ? x[i] : max;
    }
    *broken = bad;
    return max;
}

int32_t dra_sample_best(const dra_sample_row *how, const dra_sample_from *from, double *max)
{
    double  x[BLOCK];
    int64_t best = -1;
    bool    broken;
    *max = -INFINITY;
    for (int64_t first = 0; first < from->V; first += BLOCK) {
        const int64_t n = dra_imin(BLOCK, from->V - first);
        dra_sample_fetch(how, from, first, n, x);
        const double most = find_largest(x, n, &broken);
        if (broken) return -1;
        if (!(most > *max)) continue;
        *max = most;
        for (best = 0; x[best] != most;) best++;
        best += first;
    }
    return (int32_t)best;
}

/* ---- order ----------------------------------------------------------------------------------- */

static bool comes_before(const dra_choice *a, const dra_choice *b)
{
    return a->z > b->z || (a->z == b->z && a->id < b->id);
}

/* A heap of n choices, but for its place i; on top is the first of them, or the last. */
static void sink_choice(dra_choice *at, int64_t n, int64_t i, bool last)
{
    const dra_choice moved = at[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && comes_before(&at[child + 1], &at[child]) != last) child++;
        if (comes_before(&at[child], &moved) == last) break;
        at[i] = at[child];
    }
    at[i] = moved;
}

static void make_heap(dra_choice *at, int64_t n, bool last)
{
    for (int64_t i = n / 2; i-- > 0;) sink_choice(at, n, i, last);
}

/* Takes the first choices out of a heap of n until there are `most` of them, or until they weigh
 * `share`: they line up from the end of the array. Returns how many. */
static int64_t take_likely(dra_choice *at, int64_t n, int64_t most, uint64_t share, double unit)
{
    int64_t  taken = 0;
    uint64_t got = 0;
    make_heap(at, n, false);
    while (taken < n && (most ? taken < most : got < share)) {
        const dra_choice best = at[0];
        at[0] = at[n - taken - 1];
        at[n - taken - 1] = best;
        if (!most) got += dra_sample_weight(best.p, unit);
        taken++;
        sink_choice(at, n - taken, 0, false);
    }
    return taken;
}

/* Moves the last `taken` of n to the front, in the order they were taken. */
static int64_t line_up(dra_choice *at, int64_t n, int64_t taken)
{
    for (int64_t i = 0, j = n - 1; i < j && i < taken; i++, j--) {
        const dra_choice swap = at[i];
        at[i] = at[j];
        at[j] = swap;
    }
    return taken;
}

void dra_choices_sort(dra_choice *at, int64_t n, int64_t most)
{
    if (most > 0) line_up(at, n, take_likely(at, n, most, 0, 1));
}

/* ---- likeliest ------------------------------------------------------------------------------- */

void dra_sample_top(const dra_sample_from *from, double max, int64_t most, dra_choice *at)
{
    for (int64_t i = 0; i < most; i++)
        at[i] = (dra_choice){(double)from->logits[i] - max, 0, (int32_t)i, 0};
    make_heap(at, most, true);
    for (int64_t i = most; i < from->V && most > 0; i++) {
        const double z = (double)from->logits[i] - max;
        if (z <= at[0].z) continue; /* of equal ones those before stay */
        at[0] = (dra_choice){z, 0, (int32_t)i, 0};
        sink_choice(at, most, 0, true);
    }
    dra_choices_sort(at, most, most);
}

/* ---- filters --------------------------------------------------------------------------------- */

typedef struct weighing {
    const dra_sample_row  *how;
    const dra_sample_from *from;
    double                 max, first; /* first: the temperature that filters see */
    double                 unit;
} weighing;

static void fetch_z(const weighing *w, int64_t first, int64_t n, double *z)
{
    dra_sample_fetch(w->how, w->from, first, n, z);
    for (int64_t i = 0; i < n; i++) z[i] -= w->max;
}

/* All tokens that can be drawn at all. */
static int64_t take_all(const weighing *w, dra_choice *at)
{
    double  z[BLOCK], y[BLOCK], p[BLOCK];
    int64_t kept = 0;
    for (int64_t first = 0; first < w->from->V; first += BLOCK) {
        const int64_t n = dra_imin(BLOCK, w->from->V - first);
        fetch_z(w, first, n, z);
        for (int64_t i = 0; i < n; i++) y[i] = z[i] / w->first;
        for (int64_t i = 0; i < n; i++) p[i] = dra_sample_clamp(y[i]);
        for (int64_t i = 0; i < n; i++) p[i] = dra_sample_exp_near(p[i]);
        for (int64_t i = 0; i < n; i++) {
            at[kept] = (dra_choice){z[i], p[i], (int32_t)(first + i), 0};
            kept += y[i] >= DRA_SAMPLE_LEAST;
        }
    }
    return kept;
}

/* The k best of those; *more: there are others, and the k are in a heap with the last on top. */
static int64_t take_best(const weighing *w, int64_t k, dra_choice *at, bool *more)
{
    double  z[BLOCK];
    int64_t kept = 0;
    *more = false;
    for (int64_t first = 0; first < w->from->V; first += BLOCK) {
        const int64_t n = dra_imin(BLOCK, w->from->V - first);
        fetch_z(w, first, n, z);
        for (int64_t i = 0; i < n; i++) {
            if (*more ? z[i] <= at[0].z : z[i] / w->first < DRA_SAMPLE_LEAST) continue;
            const dra_choice c = {z[i], 0, (int32_t)(first + i)};
            if (kept < k) {
                at[kept++] = c;
                continue;
            }
            if (!*more) make_heap(at, k, true);
            *more = true;
            if (comes_before(&at[0], &c)) continue;
            at[0] = c;
            sink_choice(at, k, 0, true);
        }
    }
    return kept;
}

/* Tokens as likely as the last of the k best, which come after it, are kept too. */
static int64_t take_ties(const weighing *w, int64_t k, dra_choice *at)
{
    const double last = at[0].z;
    double       z[BLOCK];
    int64_t      kept = k;
    for (int64_t first = at[0].id + 1; first < w->from->V; first += BLOCK) {
        const int64_t n = dra_imin(BLOCK, w->from->V - first);
        fetch_z(w, first, n, z);
        for (int64_t i = 0; i < n; i++)
            if (z[i] == last) at[kept++] = (dra_choice){last, 0, (int32_t)(first + i)};
    }
    return kept;
}

static int64_t keep_top_k(const weighing *w, dra_choice *at)
{
    bool    more;
    int64_t n = take_best(w, w->how->top_k, at, &more);
    if (more) n = take_ties(w, n, at);
    for (int64_t i = 0; i < n; i++) at[i].p = dra_sample_exp(at[i].z / w->first);
    if (more) dra_choices_sort(at, n, n);
    return n;
}

static uint64_t sum_of(const dra_choice *at, int64_t n, double unit)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += dra_sample_weight(at[i].p, unit);
    return sum;
}

enum { STEPS = 1024, STEP_PARTS = 32 }; /* of y = z / tau, below 1024 / 32 is one more */

static int64_t step_of(const weighing *w, const dra_choice *c)
{
    const double step = -c->z / w->first * STEP_PARTS;
    return step < STEPS ? (int64_t)step : STEPS;
}

/* Drops what comes after the step of y in which the share is reached. */
static int64_t keep_near(const weighing *w, dra_choice *at, int64_t n, uint64_t share)
{
    uint64_t sum[STEPS + 1] = {0}, got = 0;
    int64_t  last = 0, kept = 0;
    for (int64_t i = 0; i < n; i++) sum[step_of(w, &at[i])] += dra_sample_weight(at[i].p, w->unit);
    while (last < STEPS && (got += sum[last]) < share) last++;
    for (int64_t i = 0; i < n; i++)
        if (step_of(w, &at[i]) <= last) at[kept++] = at[i];
    return kept;
}

static int64_t keep_top_p(const weighing *w, dra_choice *at, int64_t n)
{
    const uint64_t share = dra_sample_share(w->how->top_p, sum_of(at, n, w->unit));
    if (n > STEPS) n = keep_near(w, at, n, share);
    return line_up(at, n, take_likely(at, n, 0, share, w->unit));
}

static int64_t keep_likely(dra_choice *at, int64_t n, double least)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (at[i].p >= least) at[kept++] = at[i];
    return kept;
}

/* p / S >= epsilon, or the largest there is. */
static int64_t keep_above(const weighing *w, dra_choice *at, int64_t n, double epsilon)
{
    const double least = dra_sample_mul(epsilon, (double)sum_of(at, n, w->unit) / w->unit);
    double       largest = 0;
    for (int64_t i = 0; i < n; i++) largest = at[i].p > largest ? at[i].p : largest;
    return keep_likely(at, n, least < largest ? least : largest);
}

/* ---- locally typical: -ln p near the entropy [Meister et al. 2022] --------------------------- */

typedef struct typical {
    const weighing *w;
    uint64_t        surprise, total;
} typical;

static uint64_t distance_of(const typical *t, const dra_choice *c)
{
    return dra_sample_distance(c->z / t->w->first, t->surprise, t->total);
}

/* The distance at which the sum of weights, the nearest first, reaches the share: byte by byte. */
static uint64_t find_distance(const typical *t, const dra_choice *at, int64_t n, uint64_t share)
{
    uint64_t found = 0, got = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
        uint64_t sum[256] = {0}, byte = 0;
        for (int64_t i = 0; i < n; i++) {
            const uint64_t far = distance_of(t, &at[i]);
            if (shift == 56 || (far ^ found) >> (shift + 8) == 0)
                sum[far >> shift & 255] += dra_sample_weight(at[i].p, t->w->unit);
        }
        while (got + sum[byte] < share) got += sum[byte++];
        found |= byte << shift;
    }
    return found;
}

static int64_t keep_typical(const weighing *w, dra_choice *at, int64_t n)
{
    typical t = {w, 0, sum_of(at, n, w->unit)};
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        t.surprise += dra_sample_weight(dra_sample_surprise(at[i].p, at[i].z / w->first), w->unit);
    const uint64_t far = find_distance(&t, at, n, dra_sample_share(w->how->typical_p, t.total));
    for (int64_t i = 0; i < n; i++)
        if (distance_of(&t, &at[i]) <= far) at[kept++] = at[i];
    return kept;
}

/* ---- all filters ----------------------------------------------------------------------------- */

int64_t dra_sample_weigh(const dra_sample_row *how, const dra_sample_from *from, double max,
                         dra_choice *at)
{
    const bool     early = how->options & DRA_SAMPLE_FILTER_FIRST;
    const weighing w = {how, from, max, early ? 1 : how->temperature, dra_sample_unit(from->V)};
    int64_t n = how->top_k > 0 && how->top_k < from->V ? keep_top_k(&w, at) : take_all(&w, at);
    if (how->top_p > 0 && how->top_p < 1) n = keep_top_p(&w, at, n);
    if (how->top_a > 0)
        n = keep_likely(at, n, dra_sample_least(how->top_a, sum_of(at, n, w.unit), w.unit));
    if (how->min_p > 0) n = keep_likely(at, n, how->min_p);
    if (how->typical_p > 0 && how->typical_p < 1) n = keep_typical(&w, at, n);
    if (how->epsilon_cutoff > 0) n = keep_above(&w, at, n, how->epsilon_cutoff);
    for (int64_t i = 0; i < n && early; i++) at[i].p = dra_sample_exp(at[i].z / how->temperature);
    return n;
}

/* ---- the token ------------------------------------------------------------------------------- */

static int32_t draw_choice(const dra_choice *at, int64_t n, double u, double unit)
{
    const uint64_t goal = dra_sample_goal(u, sum_of(at, n, unit));
    uint64_t       got = 0;
    int64_t        i = 0;
    while ((got += dra_sample_weight(at[i].p, unit)) < goal) i++;
    return at[i].id;
}

/* The tokens of one step come first, in order; returns how many. */
static int64_t bring_forward(dra_choice *at, int64_t n, int64_t step)
{
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++) {
        if (at[i].step != step) continue;
        const dra_choice found = at[i];
        at[i] = at[k];
        at[k++] = found;
    }
    dra_choices_sort(at, k, k);
    return k;
}

/* Advances to the step in which `goal` is reached, at most `last`; *got: the sum before it. */
static int64_t reach_goal(const uint64_t *sum, int64_t last, uint64_t goal, uint64_t *got)
{
    int64_t step = 0;
    for (*got = 0; step < last && *got + sum[step] < goal; step++) *got += sum[step];
    return step;
}

/* As draw_choice() on what keep_top_p() leaves. Sums of whole numbers are the same in any order. */
static int32_t draw_top_p(const weighing *w, dra_choice *at, double u)
{
    const int64_t n = take_all(w, at);
    uint64_t      sum[STEPS + 1] = {0}, total = 0, got;
    for (int64_t i = 0; i < n; i++) {
        at[i].step = (int32_t)step_of(w, &at[i]);
        sum[at[i].step] += dra_sample_weight(at[i].p, w->unit);
    }
    for (int64_t i = 0; i <= STEPS; i++) total += sum[i];
    const uint64_t share = dra_sample_share(w->how->top_p, total);
    const int64_t  last = reach_goal(sum, STEPS, share, &got), k = bring_forward(at, n, last);
    for (int64_t i = 0; i < k && got < share; i++) got += dra_sample_weight(at[i].p, w->unit);
    const uint64_t goal = dra_sample_goal(u, got);
    const int64_t  step = reach_goal(sum, last, goal, &got);
    if (step != last) bring_forward(at, n, step);
    int64_t i = 0;
    while ((got += dra_sample_weight(at[i].p, w->unit)) < goal) i++;
    return at[i].id;
}

#define IS_PENALTY false
#define IS_TEMPERATURE false
#define IS_FILTER true
#define COUNT_FILTER(with, kind, type, name, option, json, hf, least, most, usual, help)           \
    +(IS_##kind && how->name != 0 && how->name != (usual))

static int count_filters(const dra_sample_row *how)
{
    return 0 DRA_SAMPLER_ROW_OPTIONS(COUNT_FILTER, );
}

static bool only_top_p(const dra_sample_row *how)
{
    return how->top_p > 0 && how->top_p < 1 && count_filters(how) == 1 &&
           !(how->options & DRA_SAMPLE_FILTER_FIRST);
}

int32_t dra_sample_choose(const dra_sample_row *how, const dra_sample_from *from, dra_choice *at)
{
    double max;
    if (how->options & DRA_SAMPLE_NOTHING) return -1;
    const int32_t best = dra_sample_best(how, from, &max);
    if (best < 0 || how->temperature == 0) return best;
    const double   u = dra_sample_uniform(how->seed, how->position, 0, 0);
    const weighing w = {how, from, max, how->temperature, dra_sample_unit(from->V)};
    if (only_top_p(how)) return draw_top_p(&w, at, u);
    return draw_choice(at, dra_sample_weigh(how, from, max, at), u, w.unit);
}
