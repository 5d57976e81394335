/* sample against samplers on the host, which is the promise that every device picks the same
 * tokens, and these against the formula in long double: a draw may differ from it only where it is
 * as near to a border as rounding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "ops/sampling/sample_row.h"
#include "generate/sample.h"

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

enum { B = 24, MOST = 50257 };

/* ---- what is drawn from ---------------------------------------------------------------------- */

typedef struct trial { /* a batch, and the same for samplers */
    int64_t            V;
    bool               has_bias, shared, has_allowed, has_seen; /* shared: bias is (V) */
    dra_sampler_config how[B];
    dra_sample_row     rows[B];
    dra_token_bias    *biases; /* (V): as a sampler has them, of one row */
    dra_real          *logits, *bias;
    bool              *allowed, *seen;
} trial;

static uint64_t seed = 20;

static int64_t pick_of(int64_t n) { return (int64_t)(check_random(&seed) * (double)n); }
static bool    chance(double p) { return check_random(&seed) < p; }

static double normal(void)
{
    return sqrt(-2 * log1p(-check_random(&seed))) * cos(6.283185307179586 * check_random(&seed));
}

/* Rows of all kinds: peaked, flat, with ties, equal, with tokens that never come, broken. */
static void draw_logits(dra_real *x, int64_t V)
{
    static const double spreads[] = {0.01, 1, 3, 12, 1000};
    const double        spread = spreads[pick_of(COUNT(spreads))];
    const bool          ties = chance(0.3), equal = chance(0.05), holes = chance(0.3);
    for (int64_t i = 0; i < V; i++) {
        const double at = equal ? 1.5 : spread * normal();
        x[i] = (dra_real)(ties ? round(at * 2) / 2 : at);
        if (holes && chance(0.4)) x[i] = (dra_real)-INFINITY;
    }
    if (chance(0.03)) x[pick_of(V)] = (dra_real)(chance(0.5) ? NAN : INFINITY);
    const bool none = chance(0.02);
    for (int64_t i = 0; i < V && none; i++) x[i] = (dra_real)-INFINITY;
}

static dra_sampler_config draw_settings(int64_t V)
{
    static const double taus[] = {0, 0.05, 0.7, 1, 1.7, 100, 1e6};
    static const double shares[] = {1e-9, 0.1, 0.5, 0.9, 0.999, 1};
    static const double penalties[] = {0, 1, 1.2, 0.7, 30};
    dra_sampler_config  c = {.temperature = taus[pick_of(COUNT(taus))],
                             .seed = (uint64_t)pick_of(9)};
    if (chance(0.5)) c.top_k = chance(0.7) ? 1 + pick_of(60) : 1 + pick_of(2 * V);
    if (chance(0.5)) c.top_p = shares[pick_of(COUNT(shares))];
    if (chance(0.2)) c.top_a = chance(0.8) ? check_random(&seed) : 1;
    if (chance(0.3)) c.min_p = chance(0.8) ? check_random(&seed) * 0.2 : 1;
    if (chance(0.3)) c.epsilon_cutoff = chance(0.8) ? check_random(&seed) * 0.1 : 1;
    if (chance(0.3)) c.typical_p = shares[pick_of(COUNT(shares))];
    c.repetition_penalty = penalties[pick_of(COUNT(penalties))];
    c.filter_first = chance(0.3);
    return c;
}

static double draw_bias(void) { return chance(0.8) ? 0 : chance(0.2) ? -INFINITY : 3 * normal(); }

static void draw_trial(trial *t, int64_t V)
{
    t->V = V;
    t->has_bias = chance(0.4);
    t->shared = chance(0.5);
    t->has_allowed = chance(0.3);
    t->has_seen = chance(0.5);
    for (int64_t b = 0; b < B; b++) {
        t->how[b] = draw_settings(V);
        draw_logits(t->logits + b * V, V);
    }
    for (int64_t i = 0; i < B * V; i++) {
        t->bias[i] = (dra_real)draw_bias();
        t->allowed[i] = chance(0.6);
        t->seen[i] = chance(0.3);
    }
}

static void open_trial(trial *t, int64_t most)
{
    const size_t n = (size_t)(B * most);
    t->biases = malloc((size_t)most * sizeof *t->biases);
    t->logits = malloc(n * sizeof *t->logits);
    t->bias = malloc(n * sizeof *t->bias);
    t->allowed = malloc(n * sizeof *t->allowed);
    t->seen = malloc(n * sizeof *t->seen);
    assert_true(t->biases && t->logits && t->bias && t->allowed && t->seen);
}

static void close_trial(trial *t)
{
    free(t->biases);
    free(t->logits);
    free(t->bias);
    free(t->allowed);
    free(t->seen);
}

/* ---- on the host ----------------------------------------------------------------------------- */

static const dra_real *bias_of(const trial *t, int64_t b)
{
    return t->has_bias ? t->bias + (t->shared ? 0 : b * t->V) : NULL;
}

/* What a sampler picks in row b; *row: the same for the op. */
static int32_t sampled(trial *t, int64_t b, dra_sample_row *row)
{
    const dra_real *x = t->logits + b * t->V, *bias = bias_of(t, b);
    dra_real       *own = malloc((size_t)t->V * sizeof *own);
    dra_sampler    *s;
    dra_error       err = {0};
    assert_non_null(own);
    for (int64_t i = 0; bias && i < t->V; i++)
        t->biases[i] = (dra_token_bias){(int32_t)i, (double)bias[i]};
    t->how[b].bias = t->biases;
    t->how[b].n_bias = bias ? t->V : 0;
    if (dra_sampler_create(&t->how[b], t->V, &s, &err) != DRA_OK) fail_msg("%s", err.text);
    *row = dra_sampler_row(s, 5, 1000 + b);
    for (int64_t i = 0; i < t->V; i++)
        own[i] = t->has_allowed && !t->allowed[b * t->V + i] && !isnan(x[i]) ? -(dra_real)INFINITY
                                                                             : x[i];
    const int32_t id = dra_sampler_pick(s, own, t->has_seen ? t->seen + b * t->V : NULL, 5,
                                        1000 + b);
    dra_sampler_destroy(s);
    free(own);
    return id;
}

/* ---- the op ---------------------------------------------------------------------------------- */

static check_program compile(const trial *t, int threads)
{
    dra_graph        *g = check_graph();
    const dra_shape   all = DRA_SHAPE(B, t->V);
    dra_sample_config c = {0};
    if (t->has_bias) c.bias = check_real(g, "bias", t->shared ? DRA_SHAPE(t->V) : all);
    if (t->has_allowed) c.allowed = dra_input(g, "allowed", DRA_BOOL, all);
    if (t->has_seen) c.seen = dra_input(g, "seen", DRA_BOOL, all);
    dra_output(g, "ids",
               dra_sample_ids(g, check_real(g, "logits", all),
                              dra_input(g, "rows", DRA_I32, DRA_SHAPE(B, DRA_SAMPLE_WORDS)), &c));
    return check_compile(g, threads);
}

static void bind(check_program *p, trial *t)
{
    const size_t n = (size_t)(B * t->V);
    check_bind(p, "logits", t->logits, n * sizeof *t->logits);
    check_bind(p, "rows", t->rows, sizeof t->rows);
    if (t->has_bias) check_bind(p, "bias", t->bias, (t->shared ? n / B : n) * sizeof *t->bias);
    if (t->has_allowed) check_bind(p, "allowed", t->allowed, n * sizeof *t->allowed);
    if (t->has_seen) check_bind(p, "seen", t->seen, n * sizeof *t->seen);
}

static void compare(trial *t, int threads)
{
    int32_t ids[B];
    for (int64_t b = 0; b < B; b++) ids[b] = sampled(t, b, &t->rows[b]);
    check_program p = compile(t, threads);
    bind(&p, t);
    check_run(&p);
    const int32_t *found = check_result_of(&p, "ids");
    for (int64_t b = 0; b < B; b++)
        if (found[b] != ids[b])
            fail_msg("V %d, row %d: token %d, expected %d", (int)t->V, (int)b, found[b], ids[b]);
    check_free(&p);
}

static void tokens_are_those_of_samplers(void **unused)
{
    static const int64_t widths[] = {1, 2, 3, 5, 31, 32, 33, 64, 255, 257, 1000, 1025, 5003};
    trial                t = {0};
    open_trial(&t, 5003);
    for (size_t i = 0; i < COUNT(widths); i++)
        for (int k = 0; k < (widths[i] < 300 ? 12 : 5); k++) {
            draw_trial(&t, widths[i]);
            compare(&t, k % 2 ? 1 : 7);
        }
    close_trial(&t);
}

static void so_are_those_of_a_large_vocabulary(void **unused)
{
    trial t = {0};
    open_trial(&t, MOST);
    for (int k = 0; k < 3; k++) {
        draw_trial(&t, k == 2 ? 32768 : MOST);
        compare(&t, 2);
    }
    close_trial(&t);
}

/* A row that wants none, and one that would fail: neither disturbs the others. */
static void rows_are_alone(void **unused)
{
    trial t = {0};
    open_trial(&t, 300);
    draw_trial(&t, 300);
    t.has_bias = t.has_allowed = t.has_seen = false;
    for (int64_t i = 0; i < B * t.V; i++) t.logits[i] = (dra_real)normal();
    t.logits[3 * t.V] = (dra_real)NAN;
    int32_t ids[B];
    for (int64_t b = 0; b < B; b++) ids[b] = sampled(&t, b, &t.rows[b]);
    t.rows[7].options |= DRA_SAMPLE_NOTHING;
    check_program p = compile(&t, 2);
    bind(&p, &t);
    check_run(&p);
    const int32_t *found = check_result_of(&p, "ids");
    for (int b = 0; b < B; b++) assert_int_equal(found[b], b == 3 || b == 7 ? -1 : ids[b]);
    check_free(&p);
    close_trial(&t);
}

/* ---- the formula ----------------------------------------------------------------------------- */

typedef struct token {
    long double z, p;
    int32_t     id;
} token;

static int by_order(const void *a, const void *b)
{
    const token *x = a, *y = b;
    return x->z != y->z ? (x->z < y->z ? 1 : -1) : x->id - y->id;
}

static long double total(const token *at, int64_t n)
{
    long double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += at[i].p;
    return sum;
}

static int64_t keep_from(token *at, int64_t n, long double least)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (at[i].p >= least) at[kept++] = at[i];
    return kept;
}

/* Filters that put tokens in order. */
static int64_t keep_first(const dra_sampler_config *c, token *at, int64_t n)
{
    if (c->top_k > 0 && c->top_k < n) {
        int64_t kept = c->top_k;
        qsort(at, (size_t)n, sizeof *at, by_order);
        while (kept < n && at[kept].z == at[kept - 1].z) kept++;
        n = kept;
    }
    if (c->top_p > 0 && c->top_p < 1) {
        const long double share = c->top_p * total(at, n) * (1 - 1e-13L);
        long double       got = 0;
        int64_t           kept = 0;
        qsort(at, (size_t)n, sizeof *at, by_order);
        while (kept < n && (kept == 0 || got < share)) got += at[kept++].p;
        n = kept;
    }
    return n;
}

/* The nearest to the entropy, in the order they have; *near: others are as near but for rounding.
 */
static int64_t keep_typical(const dra_sampler_config *c, token *at, int64_t n, bool *near)
{
    const long double sum = total(at, n);
    long double       entropy = 0, got = 0, far = -1;
    int64_t           kept = 0;
    for (int64_t i = 0; i < n; i++) entropy -= at[i].p / sum * logl(at[i].p / sum);
    while (got < c->typical_p * sum * (1 - 1e-13L)) {
        long double next = INFINITY;
        for (int64_t i = 0; i < n; i++) {
            const long double d = fabsl(entropy + logl(at[i].p / sum));
            if (d > far && d < next) next = d;
        }
        far = next;
        for (int64_t i = 0; i < n; i++)
            if (fabsl(entropy + logl(at[i].p / sum)) == far) got += at[i].p;
    }
    for (int64_t i = 0; i < n; i++) {
        const long double d = fabsl(entropy + logl(at[i].p / sum));
        *near = *near || (d != far && fabsl(d - far) < 1e-13L);
        if (d <= far) at[kept++] = at[i];
    }
    return kept;
}

/* The token, and how far the draw is from the next border; far is 0 where nothing is drawn. */
static int32_t by_formula(const dra_sampler_config *c, int64_t V, const dra_real *x, token *at,
                          double *far)
{
    const long double first = c->filter_first ? 1 : c->temperature;
    int64_t           n = 0;
    bool              near = false;
    dra_real          max = x[0];
    for (int64_t i = 1; i < V; i++) max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < V; i++) {
        const long double z = (long double)((double)x[i] - (double)max);
        at[n] = (token){z, expl(z / first), (int32_t)i};
        n += z / first > -745;
    }
    n = keep_first(c, at, n);
    if (c->top_a > 0) n = keep_from(at, n, c->top_a / total(at, n) * (1 - 1e-13L));
    if (c->min_p > 0) n = keep_from(at, n, c->min_p * (1 - 1e-13L));
    if (c->typical_p > 0 && c->typical_p < 1) n = keep_typical(c, at, n, &near);
    if (c->epsilon_cutoff > 0) {
        long double least = c->epsilon_cutoff * total(at, n) * (1 - 1e-13L), most = 0;
        for (int64_t i = 0; i < n; i++) most = fmaxl(most, at[i].p);
        n = keep_from(at, n, fminl(least, most));
    }
    for (int64_t i = 0; i < n; i++) at[i].p = expl(at[i].z / c->temperature);
    const long double sum = total(at, n), u = dra_sample_uniform(c->seed, 17, 0, 0);
    long double       got = 0;
    int64_t           i = 0;
    while (i < n - 1 && (got += at[i].p) <= u * sum) i++;
    if (i == n - 1) got = sum;
    *far = near ? 0 : (double)(fminl(got - u * sum, at[i].p - (got - u * sum)) / sum);
    return at[i].id;
}

static void samplers_follow_the_formula(void **unused)
{
    enum { WIDEST = 400, TRIALS = 6000 };
    dra_real x[WIDEST];
    token    at[WIDEST];
    int      near = 0;
    for (int k = 0; k < TRIALS; k++) {
        const int64_t      V = 1 + pick_of(WIDEST) / (k % 3 ? 40 : 1);
        dra_sampler_config c = draw_settings(V);
        dra_sampler       *s;
        dra_error          err = {0};
        double             far;
        if (c.temperature == 0) c.temperature = 0.9;
        draw_logits(x, V);
        if (dra_sampler_create(&c, V, &s, &err) != DRA_OK) fail_msg("%s", err.text);
        const int32_t id = dra_sampler_pick(s, x, NULL, 0, 17);
        dra_sampler_destroy(s);
        if (id < 0) continue;
        const int32_t expected = by_formula(&c, V, x, at, &far);
        near += far < 1e-11;
        if (id != expected && !(far < 1e-11))
            fail_msg("trial %d: token %d, expected %d, %g from the border", k, id, expected, far);
    }
    assert_true(near < 10);
}

/* The own e^y against the library's. */
/* Where top-p is the only filter not all that is kept is put in order; a min-p that drops nothing
 * lets it be. */
static void top_p_alone_draws_as_among_others(void **unused)
{
    enum { WIDEST = 20011 };
    static const int64_t widths[] = {1, 2, 33, 1000, 1025, 5003, WIDEST};
    static dra_real      x[WIDEST];
    static dra_choice    at[WIDEST];
    for (int k = 0; k < 700; k++) {
        const int64_t         V = widths[k % 7];
        const dra_sample_from from = {V, x, NULL, NULL, NULL};
        dra_sample_row        how = {.temperature = k % 3 ? 1 : 0.3,
                                     .top_p = k % 5 ? check_random(&seed) : 0.9999999,
                                     .seed = (uint64_t)k,
                                     .position = k % 11};
        draw_logits(x, V);
        if (k % 4 == 0) /* many alike */
            for (int64_t i = 0; i < V; i++) x[i] = (dra_real)(double)(int64_t)x[i];
        const int32_t alone = dra_sample_choose(&how, &from, at);
        how.min_p = 1e-320;
        const int32_t other = dra_sample_choose(&how, &from, at);
        if (alone != other)
            fail_msg("V %d, top_p %g: token %d, expected %d", (int)V, how.top_p, alone, other);
    }
}

static void exponentials_are_right(void **unused)
{
    double worst = 0;
    assert_true(dra_sample_exp(0) == 1);
    for (double y = -708; y < 0; y += 0.0137) {
        const double e = fabs(dra_sample_exp(y) / exp(y) - 1);
        worst = e > worst ? e : worst;
        assert_true(dra_sample_exp(y) <= dra_sample_exp(y + 0.0137));
    }
    assert_true(worst < 5e-16);
    assert_true(dra_sample_exp(-1e300) > 0);
}

/* ---- refused --------------------------------------------------------------------------------- */

static dra_graph *g;

static dra_value real_of(const char *name, dra_shape s) { return check_real(g, name, s); }

static void build(dra_shape logits, dra_shape rows, const dra_sample_config *c)
{
    dra_sample_ids(g, real_of("x", logits), dra_input(g, "rows", DRA_I32, rows), c);
}

static void refuses(void **unused)
{
    g = check_graph();
    build(DRA_SHAPE(3), DRA_SHAPE(3, DRA_SAMPLE_WORDS), NULL);
    check_refused(g, DRA_ERR_SHAPE,
                  "sample: logits " REAL " (3), expected (B, V), V 1 to 2147483647");
    g = check_graph();
    build(DRA_SHAPE(3, 0), DRA_SHAPE(3, DRA_SAMPLE_WORDS), NULL);
    check_refused(g, DRA_ERR_SHAPE,
                  "sample: logits " REAL " (3, 0), expected (B, V), V 1 to 2147483647");
    g = check_graph();
    build(DRA_SHAPE(3, 9), DRA_SHAPE(3, DRA_SAMPLE_WORDS - 1), NULL);
    char text[120];
    snprintf(text, sizeof text,
             "sample: rows i32 (3, %d) of logits " REAL " (3, 9), expected (B, %d)",
             DRA_SAMPLE_WORDS - 1, DRA_SAMPLE_WORDS);
    check_refused(g, DRA_ERR_SHAPE, text);
    g = check_graph();
    build(DRA_SHAPE(3, 9), DRA_SHAPE(3, DRA_SAMPLE_WORDS),
          &(dra_sample_config){.bias = real_of("b", DRA_SHAPE(3))});
    check_refused(g, DRA_ERR_SHAPE,
                  "sample: bias " REAL " (3) of logits " REAL " (3, 9), expected (B, V) or (V)");
    g = check_graph();
    build(DRA_SHAPE(3, 9), DRA_SHAPE(3, DRA_SAMPLE_WORDS),
          &(dra_sample_config){.seen = dra_input(g, "s", DRA_BOOL, DRA_SHAPE(9))});
    check_refused(g, DRA_ERR_SHAPE,
                  "sample: seen bool (9) of logits " REAL " (3, 9), expected (B, V)");
    g = check_graph();
    build(DRA_SHAPE(3, 9), DRA_SHAPE(3, DRA_SAMPLE_WORDS),
          &(dra_sample_config){.allowed = real_of("a", DRA_SHAPE(3, 9))});
    check_refused(g, DRA_ERR_DTYPE, "sample: allowed is " REAL ", expected bool");
}

static void takes_no_rows(void **unused)
{
    g = check_graph();
    dra_output(g, "ids",
               dra_sample_ids(g, real_of("x", DRA_SHAPE(0, 9)),
                              dra_input(g, "rows", DRA_I32, DRA_SHAPE(0, DRA_SAMPLE_WORDS)), NULL));
    check_program p = check_compile(g, 1);
    dra_real      none = 0;
    check_bind(&p, "x", &none, 0);
    check_bind(&p, "rows", &none, 0);
    check_run(&p);
    check_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_of_samplers),
        cmocka_unit_test(so_are_those_of_a_large_vocabulary),
        cmocka_unit_test(rows_are_alone),
        cmocka_unit_test(samplers_follow_the_formula),
        cmocka_unit_test(top_p_alone_draws_as_among_others),
        cmocka_unit_test(exponentials_are_right),
        cmocka_unit_test(refuses),
        cmocka_unit_test(takes_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
