/* Slots over a run of tokens and back through their softmax, on every level: against loops in
 * double, guard elements around what may be written; runs cut anywhere give the same bits. */
#include "device/guarded.h"
#include "ops/slots_loops.h"

/* Tokens, slots, columns and parts at most; rows of weights and of tokens lie GAP further apart
 * than they are long. Gates keep the sums small, so that errors count in roundings of 1. */
enum { TOKENS = 6, SLOTS = 19, WIDTH = 35, PARTS = 2, GAP = 3 };
enum { ERRORS = 60 }; /* roundings: up to 35 products a sum, over 6 tokens; found: 10 */

static const int32_t marks[TOKENS + 1] = {0, DRA_MARK_PAD, 0, DRA_MARK_RESET, 3, 0, 0};

typedef struct subject {
    int64_t        n, S, W;
    bool           dots, back, marked, add;
    int            writes, reads;
    row            fade, from, to, w[2 * PARTS], x[2 * PARTS]; /* of writes, then of reads */
    dra_slots_part part[2 * PARTS];
} subject;

static int64_t w_row(const subject *s) { return s->S + GAP; }
static int64_t x_row(const subject *s) { return s->W + GAP; }

static void prepare(subject *s)
{
    uint64_t seed = 3 + (uint64_t)(s->S * 64 + s->W);
    fill(&s->fade, (TOKENS + 1) * s->S, 1, -1, 0, &seed);
    fill(&s->from, s->S * s->W, 2, -1, 1, &seed);
    fill(&s->to, s->S * s->W, 3, -1, 1, &seed);
    for (int i = 0; i < 2 * PARTS; i++) {
        fill(&s->w[i], TOKENS * w_row(s) - GAP, i % OFFSETS, -0.5, 0.5, &seed);
        fill(&s->x[i], TOKENS * x_row(s) - GAP, (i + 1) % OFFSETS, -0.5, 0.5, &seed);
        s->part[i] = (dra_slots_part){s->w[i].at, w_row(s), s->x[i].at, x_row(s), s->add};
    }
}

/* Tokens first..first+n-1 of the run, in the order of time. */
static void take(const dra_simd *simd, const subject *s, int64_t first, int64_t n, dra_real *from)
{
    dra_slots_part part[2 * PARTS];
    for (int i = 0; i < 2 * PARTS; i++) {
        part[i] = s->part[i];
        part[i].w += first * w_row(s);
        part[i].x += first * x_row(s);
    }
    const dra_slots_run    run = {.n = n,
                                  .S = s->S,
                                  .W = s->W,
                                  .ahead = n,
                                  .back = s->back,
                                  .mark = s->marked ? marks + first : NULL,
                                  .fade = s->fade.at + first * s->S,
                                  .from = from,
                                  .to = s->to.at,
                                  .write = part,
                                  .writes = s->writes,
                                  .read = part + PARTS,
                                  .reads = s->reads};
    const dra_slots_loops *loops = dra_slots_loops_of(simd);
    (s->dots ? loops->dots : loops->mix)(&run);
}

/* ---- the formula in double ------------------------------------------------------------------- */

static void fade_and_write(const subject *s, int64_t t, bool pad, double *m)
{
    const int64_t before = t + s->back;
    const bool    reset = s->marked && marks[before] & DRA_MARK_RESET;
    for (int64_t i = 0; i < s->S * s->W; i++) {
        const int64_t slot = i / s->W, d = i % s->W;
        m[i] *= reset ? 0 : 1 + (double)s->fade.at[before * s->S + slot];
        for (int p = 0; p < s->writes && !pad; p++)
            m[i] += (double)was(&s->w[p], t * w_row(s) + slot) *
                    (double)was(&s->x[p], t * x_row(s) + d);
    }
}

/* What a read gives: weight i of token t, or column i of its row. */
static double expected(const subject *s, const double *m, int p, int64_t t, int64_t i, bool pad)
{
    const row    *to = s->dots ? &s->w[p] : &s->x[p];
    const int64_t at = t * (s->dots ? w_row(s) : x_row(s)) + i;
    double        sum = s->add ? (double)was(to, at) : 0;
    for (int64_t k = 0; k < (s->dots ? s->W : s->S) && !pad; k++)
        sum += s->dots ? m[i * s->W + k] * (double)was(&s->x[p], t * x_row(s) + k)
                       : m[k * s->W + i] * (double)was(&s->w[p], t * w_row(s) + k);
    return sum;
}

static void compare(const subject *s)
{
    double m[SLOTS * WIDTH];
    for (int64_t i = 0; i < s->S * s->W; i++) m[i] = (double)s->from.at[i];
    for (int64_t k = 0; k < s->n; k++) {
        const int64_t t = s->back ? s->n - 1 - k : k, wide = s->dots ? s->S : s->W;
        const bool    pad = s->marked && marks[t] & DRA_MARK_PAD;
        fade_and_write(s, t, pad, m);
        for (int p = PARTS; p < PARTS + s->reads; p++)
            for (int64_t i = 0; i < wide; i++) {
                const row *r = s->dots ? &s->w[p] : &s->x[p];
                near(s->dots ? "dots" : "mix", s->S * 1000 + s->W,
                     (double)r->at[t * (wide + GAP) + i], expected(s, m, p, t, i, pad),
                     ERRORS * tiny);
            }
    }
    for (int64_t i = 0; i < s->S * s->W; i++)
        near("slot", i, (double)s->to.at[i], m[i], ERRORS * tiny);
}

/* What is only read, guards, and what lies between rows. */
static void compare_rest(const subject *s)
{
    check_untouched(&s->fade, true);
    check_untouched(&s->from, true);
    check_untouched(&s->to, false);
    for (int p = 0; p < 2 * PARTS; p++) {
        const bool made = p >= PARTS && p < PARTS + s->reads;
        check_untouched(&s->w[p], !(made && s->dots));
        check_untouched(&s->x[p], !(made && !s->dots));
        for (int64_t i = 0; i < s->w[p].n; i++)
            if (i % w_row(s) >= s->S) assert_true(s->w[p].at[i] == was(&s->w[p], i));
        for (int64_t i = 0; i < s->x[p].n; i++)
            if (i % x_row(s) >= s->W) assert_true(s->x[p].at[i] == was(&s->x[p], i));
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void try_run(const dra_simd *simd, subject *s)
{
    static subject cut;
    s->n = TOKENS;
    prepare(s);
    take(simd, s, 0, TOKENS, s->from.at);
    compare(s);
    compare_rest(s);
    cut = *s;
    prepare(&cut);
    const int64_t half = 2, parts[2][2] = {{0, half}, {half, TOKENS - half}};
    for (int k = 0; k < 2; k++) {
        const int64_t *part = parts[s->back ? 1 - k : k];
        take(simd, &cut, part[0], part[1], k ? cut.to.at : cut.from.at);
    }
    assert_memory_equal(cut.to.memory, s->to.memory, sizeof s->to.memory);
    for (int p = PARTS; p < 2 * PARTS; p++) {
        assert_memory_equal(cut.w[p].memory, s->w[p].memory, sizeof s->w[p].memory);
        assert_memory_equal(cut.x[p].memory, s->x[p].memory, sizeof s->x[p].memory);
    }
}

static void walks(const dra_simd *simd)
{
    static const int64_t slots[] = {1, 2, 3, 4, 7, 8, 12, 15, 16, 17, SLOTS};
    static const int64_t widths[] = {1, 3, 8, 15, 16, 17, 32, WIDTH};
    static subject       s;
    for (size_t i = 0; i < COUNT(slots); i++)
        for (size_t j = 0; j < COUNT(widths); j++)
            for (int bits = 0; bits < 16; bits++) {
                s = (subject){.S = slots[i], .W = widths[j]};
                s.dots = bits & 1, s.back = bits & 2, s.marked = bits & 4, s.add = bits & 8;
                s.writes = 1 + (int)(i + j) % 2;
                s.reads = (int)(i + 2 * j) % 3;
                try_run(simd, &s);
            }
}

/* ---- back through a softmax ------------------------------------------------------------------ */

enum { ROWS = 5, LONG = 67 };

static void try_softmax(const dra_simd *simd, int64_t n, bool add)
{
    static row s, a, d, dlog_scale, dlse;
    uint64_t   seed = 9 + (uint64_t)n;
    fill(&s, ROWS * n, 1, -5, 5, &seed);
    fill(&a, ROWS * n, 2, 0, 1, &seed);
    fill(&d, ROWS * n, 3, -1, 1, &seed);
    fill(&dlog_scale, ROWS * n, 0, -1, 1, &seed);
    fill(&dlse, ROWS, 2, -1, 1, &seed);
    simd->softmax_rows(ROWS, n, s.at, a.at, NULL);
    const dra_softmax_backward terms = {
        ROWS, n, s.at, a.at, add ? dlse.at : NULL, (dra_real)0.5, d.at, dlog_scale.at, add};
    dra_slots_loops_of(simd)->softmax_backward(&terms);
    for (int64_t r = 0; r < ROWS; r++) {
        double mean = add ? -(double)dlse.at[r] : 0;
        for (int64_t k = r * n; k < (r + 1) * n; k++) mean += (double)a.at[k] * (double)was(&d, k);
        for (int64_t k = r * n; k < (r + 1) * n; k++) {
            const double w = (double)a.at[k], dw = (double)was(&d, k), ds = w * (dw - mean);
            const double want = ds * (double)s.at[k] + w * dw;
            near("ds", n, (double)d.at[k], ds / 2, 8 * tiny);
            near("dlog_scale", n, (double)dlog_scale.at[k],
                 want + (add ? (double)was(&dlog_scale, k) : 0),
                 30 * tiny); /* ds times a logit of up to 5 */
        }
    }
    check_untouched(&s, true);
    check_untouched(&dlse, true);
    check_untouched(&d, false);
    check_untouched(&dlog_scale, false);
}

static void softmax_of(const dra_simd *simd)
{
    for (int64_t n = 1; n <= LONG; n++) {
        try_softmax(simd, n, false);
        try_softmax(simd, n, true);
    }
}

static void slots(void **state) { for_each_level(walks); }
static void softmax_backward(void **state) { for_each_level(softmax_of); }

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slots), cmocka_unit_test(softmax_backward)};
    return check_main("slots_loops", NULL, 0, tests, COUNT(tests));
}
