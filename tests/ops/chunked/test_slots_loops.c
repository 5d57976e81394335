/* Slots over a run of tokens, back through their softmax and to their decay, on every level:
 * against loops in double, guard elements around what may be written; runs cut anywhere give the
 * same bits, and slots saved on the way are those of a run that ends there. */
#include "device/guarded.h"
#include "ops/chunked/slots_loops.h"

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
    row            saved, saved_dots;
    int64_t        every;
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
                                  .reads = s->reads,
                                  .every = s->every,
                                  .saved = s->saved.at,
                                  .saved_dots = s->saved_dots.at,
                                  .add_dots = s->add};
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

/* What is only read, guards, and what is between rows. */
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

/* Forwards: what is saved, against runs that end there. Backwards: its products with the slots. */
static void compare_saved(const dra_simd *simd, const subject *s, subject *cut)
{
    for (int64_t p = 0; (p + 1) * s->every < TOKENS; p++) {
        const int64_t   at = (p + 1) * s->every, size = s->S * s->W;
        const dra_real *saved = s->saved.at + p * size;
        prepare(cut);
        take(simd, cut, s->back ? at : 0, s->back ? TOKENS - at : at, cut->from.at);
        if (!s->back) assert_memory_equal(saved, cut->to.at, (size_t)size * sizeof *saved);
        for (int64_t i = 0; i < s->S && s->back; i++) {
            double sum = s->add ? (double)was(&s->saved_dots, p * s->S + i) : 0;
            for (int64_t d = i * s->W; d < (i + 1) * s->W; d++)
                sum += (double)saved[d] * (double)cut->to.at[d];
            near("saved dots", s->S * 1000 + s->W, (double)s->saved_dots.at[p * s->S + i], sum,
                 ERRORS * tiny);
        }
    }
}

static void try_saving(const dra_simd *simd, subject *s, int64_t every)
{
    static subject plain;
    uint64_t       seed = 11;
    const int64_t  saved = (TOKENS - 1) / every;
    s->n = TOKENS;
    s->every = 0;
    plain = *s;
    prepare(&plain);
    take(simd, &plain, 0, TOKENS, plain.from.at);
    s->every = every;
    prepare(s);
    fill(&s->saved, saved * s->S * s->W, 1, -0.5, 0.5, &seed);
    fill(&s->saved_dots, saved * s->S, 2, -0.5, 0.5, &seed);
    take(simd, s, 0, TOKENS, s->from.at);
    assert_memory_equal(plain.to.memory, s->to.memory, sizeof s->to.memory);
    for (int p = PARTS; p < 2 * PARTS; p++) {
        assert_memory_equal(plain.w[p].memory, s->w[p].memory, sizeof s->w[p].memory);
        assert_memory_equal(plain.x[p].memory, s->x[p].memory, sizeof s->x[p].memory);
    }
    compare_rest(s);
    check_untouched(&s->saved, s->back);
    check_untouched(&s->saved_dots, !s->back);
    compare_saved(simd, s, &plain);
    s->every = 0;
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
                if (s.dots || !s.back) try_saving(simd, &s, 2 + (int)(i + j) % 3);
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

/* ---- decay ----------------------------------------------------------------------------------- */

enum { FIRST = 2, LENGTH = 9, DECAY_ROWS = FIRST + LENGTH + 1 };

static const int32_t decay_marks[][DECAY_ROWS] = {
    {0},
    {0, 0, 0, 0, DRA_MARK_PAD, 0, 0, 0, DRA_MARK_PAD},
    {0, 0, 3, 0, 0, DRA_MARK_RESET, 0, DRA_MARK_PAD, 3, 0, DRA_MARK_RESET},
    {0, 0, DRA_MARK_PAD, DRA_MARK_PAD, 0, 0, 0, 0, 0, DRA_MARK_PAD, DRA_MARK_PAD},
};

typedef struct decay {
    row            fade, own, u, du, dl, start, end;
    int64_t        S;
    const int32_t *mark;
} decay;

/* Between two tokens whose dl is known the sum is off by as much more at each. */
static void expect_decay(const decay *k, int64_t i)
{
    const int64_t S = k->S, wide = S + GAP;
    double        sum[DECAY_ROWS], dl[DECAY_ROWS], last = (double)k->end.at[i];
    int64_t       known = FIRST + LENGTH;
    for (int64_t t = known - 1; t >= FIRST; t--) {
        const bool   gone = k->mark[t] & DRA_MARK_RESET || k->fade.at[t * S + i] == -1;
        const double term = (double)k->own.at[t * wide + i] -
                            (double)k->u.at[t * wide + i] * (double)k->du.at[t * wide + i];
        sum[t] = last += k->mark[t] & DRA_MARK_PAD ? 0 : term;
        if (!gone && t > FIRST) continue;
        last = gone ? 0 : (double)k->start.at[i];
        for (int64_t j = t; j < known; j++)
            dl[j] = sum[j] - (sum[t] - last) * (double)(known - j) / (double)(known - t);
        known = t;
    }
    for (int64_t t = FIRST; t < FIRST + LENGTH; t++)
        near("dl", S, (double)k->dl.at[t * wide + i], k->mark[t] & DRA_MARK_PAD ? 0 : dl[t],
             40 * tiny); /* sums of 9 terms of up to 1.25 */
}

static void try_decay(const dra_simd *simd, int64_t S, const int32_t *mark)
{
    static decay  k;
    const int64_t wide = S + GAP;
    uint64_t      seed = 4 + (uint64_t)S;
    k.S = S, k.mark = mark;
    fill(&k.fade, DECAY_ROWS * S, 1, -1, 0, &seed);
    for (int64_t i = 0; i < S; i += 3) k.fade.at[(FIRST + i % LENGTH) * S + i] = -1;
    memcpy(k.fade.before, k.fade.memory, sizeof k.fade.memory);
    row *const tokens[] = {&k.own, &k.u, &k.du, &k.dl};
    for (int j = 0; j < 4; j++) fill(tokens[j], DECAY_ROWS * wide, j, -0.5, 1, &seed);
    fill(&k.start, S, 1, -1, 1, &seed);
    fill(&k.end, S, 3, -1, 1, &seed);
    dra_slots_loops_of(simd)->decay_backward(&(dra_decay_backward){.first = FIRST,
                                                                   .n = LENGTH,
                                                                   .S = S,
                                                                   .mark = mark,
                                                                   .fade = k.fade.at,
                                                                   .own = k.own.at,
                                                                   .own_row = wide,
                                                                   .u = k.u.at,
                                                                   .u_row = wide,
                                                                   .du = k.du.at,
                                                                   .du_row = wide,
                                                                   .dl = k.dl.at,
                                                                   .dl_row = wide,
                                                                   .start = k.start.at,
                                                                   .end = k.end.at});
    for (int64_t i = 0; i < S; i++) expect_decay(&k, i);
    for (int64_t i = 0; i < k.dl.n; i++)
        if (i % wide >= S || i / wide < FIRST || i / wide >= FIRST + LENGTH)
            assert_true(k.dl.at[i] == was(&k.dl, i));
    check_untouched(&k.dl, false);
    row *const read[] = {&k.fade, &k.own, &k.u, &k.du, &k.start, &k.end};
    for (int j = 0; j < 6; j++) check_untouched(read[j], true);
}

static void decays(const dra_simd *simd)
{
    for (int64_t S = 1; S <= 2 * SLOTS; S++)
        for (size_t m = 0; m < COUNT(decay_marks); m++) try_decay(simd, S, decay_marks[m]);
}

static void slots(void **state) { for_each_level(walks); }
static void softmax_backward(void **state) { for_each_level(softmax_of); }
static void decay_backward(void **state) { for_each_level(decays); }

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slots), cmocka_unit_test(softmax_backward),
                                       cmocka_unit_test(decay_backward)};
    return check_main("slots_loops", NULL, 0, tests, COUNT(tests));
}
