/* token_logprobs against the formula in long double: rows of all kinds, with ties, tokens that
 * never come, and broken ones. */
#include <math.h>
#include <stdlib.h>

#include "check.h"

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#define CLOSE 1e-14
#else
#define REAL "f32"
#define CLOSE 1e-6
#endif

enum { B = 21, MOST = 50257 };

static uint64_t seed = 36;

static int64_t pick_of(int64_t n) { return (int64_t)(check_random(&seed) * (double)n); }
static bool    chance(double p) { return check_random(&seed) < p; }

static void draw_row(dra_real *x, int64_t V)
{
    static const double spreads[] = {0.01, 1, 30, 2000};
    const double        spread = spreads[pick_of(COUNT(spreads))];
    const bool          ties = chance(0.4), holes = chance(0.3);
    for (int64_t i = 0; i < V; i++) {
        const double at = spread * (check_random(&seed) - 0.5);
        x[i] = (dra_real)(ties ? round(at) : at);
        if (holes && chance(0.4)) x[i] = (dra_real)-INFINITY;
    }
    if (chance(0.05)) x[pick_of(V)] = (dra_real)(chance(0.5) ? NAN : INFINITY);
    const bool none = chance(0.05);
    for (int64_t i = 0; i < V && none; i++) x[i] = (dra_real)-INFINITY;
}

/* ---- the formula ----------------------------------------------------------------------------- */

typedef struct token {
    double  z;
    int32_t id;
} token;

static int by_order(const void *a, const void *b)
{
    const token *x = a, *y = b;
    return x->z != y->z ? (x->z < y->z ? 1 : -1) : x->id - y->id;
}

/* All tokens in order, z their log-probabilities; false: there are none. */
static bool rank(const dra_real *x, int64_t V, token *at)
{
    double      max = -INFINITY;
    long double sum = 0;
    for (int64_t i = 0; i < V; i++) {
        if (!(x[i] < (dra_real)INFINITY)) return false;
        max = (double)x[i] > max ? (double)x[i] : max;
    }
    for (int64_t i = 0; i < V && max > -INFINITY; i++) {
        at[i] = (token){(double)x[i] - max, (int32_t)i};
        sum += expl(at[i].z);
    }
    if (!(max > -INFINITY)) return false;
    qsort(at, (size_t)V, sizeof *at, by_order);
    for (int64_t i = 0; i < V; i++) at[i].z = (double)(at[i].z - logl(sum));
    return true;
}

static void assert_near(double found, double expected)
{
    if (isnan(expected)
            ? !isnan(found)
            : !(found == expected || fabs(found - expected) <= CLOSE * (1 + fabs(expected))))
        fail_msg("log-probability %.9g, expected %.9g", found, expected);
}

/* ---- the op ---------------------------------------------------------------------------------- */

static check_program compile(int64_t V, int64_t most, int threads, bool top)
{
    dra_graph *g = check_graph();
    dra_value  ids;
    dra_output(g, "logprobs",
               dra_token_logprobs(g, check_real(g, "logits", DRA_SHAPE(B, V)),
                                  dra_input(g, "ids", DRA_I32, DRA_SHAPE(B)), most, &ids));
    if (top) dra_output(g, "top", ids);
    return check_compile(g, threads);
}

static void compare_row(const dra_real *x, int64_t V, int32_t id, int64_t most,
                        const dra_real *logprobs, const int32_t *top, token *at)
{
    const bool there = rank(x, V, at);
    double     own = NAN;
    for (int64_t i = 0; i < V && there; i++)
        if (at[i].id == id) own = at[i].z;
    assert_near((double)logprobs[0], own);
    if (top) assert_int_equal(top[0], id);
    for (int64_t i = 0; i < most; i++) {
        assert_near((double)logprobs[1 + i], there ? at[i].z : NAN);
        if (top && top[1 + i] != (there ? at[i].id : -1))
            fail_msg("V %d, likeliest %d: token %d, expected %d", (int)V, (int)i, top[1 + i],
                     there ? at[i].id : -1);
    }
}

static void compare(int64_t V, int64_t most, int threads, bool top)
{
    dra_real *x = malloc((size_t)(B * V) * sizeof *x);
    token    *at = malloc((size_t)V * sizeof *at);
    int32_t   ids[B];
    assert_true(x && at);
    for (int64_t b = 0; b < B; b++) {
        draw_row(x + b * V, V);
        ids[b] = (int32_t)(pick_of(V + 2) - 1); /* -1 and V are none */
    }
    check_program p = compile(V, most, threads, top);
    check_bind(&p, "logits", x, (size_t)(B * V) * sizeof *x);
    check_bind(&p, "ids", ids, sizeof ids);
    check_run(&p);
    const dra_real *logprobs = check_result(&p, "logprobs");
    const int32_t  *found = top ? check_result_of(&p, "top") : NULL;
    for (int64_t b = 0; b < B; b++)
        compare_row(x + b * V, V, ids[b], most, logprobs + b * (1 + most),
                    found ? found + b * (1 + most) : NULL, at);
    check_free(&p);
    free(x);
    free(at);
}

static void rows_follow_the_formula(void **unused)
{
    static const int64_t widths[] = {1, 2, 3, 5, 31, 32, 33, 255, 257, 1000, 1025, 5003};
    for (size_t i = 0; i < COUNT(widths); i++) {
        const int64_t V = widths[i];
        compare(V, 0, 1, true);
        compare(V, 1, 3, false);
        compare(V, 1 + pick_of(V), 7, true);
        if (V < 300) compare(V, V, 2, true);
    }
}

static void so_do_those_of_a_large_vocabulary(void **unused)
{
    compare(MOST, 20, 2, true);
    compare(32768, 1000, 1, true);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuse(dra_shape logits, dra_shape ids, int64_t most, const char *text)
{
    dra_graph *g = check_graph();
    dra_token_logprobs(g, check_real(g, "x", logits), dra_input(g, "i", DRA_I32, ids), most, NULL);
    check_refused(g, most > 9 || most < 0 ? DRA_ERR_VALUE : DRA_ERR_SHAPE, text);
}

static void refuses(void **unused)
{
    refuse(DRA_SHAPE(3), DRA_SHAPE(3), 1,
           "token_logprobs: logits " REAL " (3), expected (B, V), V 1 to 2147483647");
    refuse(DRA_SHAPE(3, 9), DRA_SHAPE(2), 1,
           "token_logprobs: ids i32 (2) of logits " REAL " (3, 9), expected (B)");
    refuse(DRA_SHAPE(3, 9), DRA_SHAPE(3), 10, "token_logprobs: the 10 most likely of 9 tokens");
    refuse(DRA_SHAPE(3, 9), DRA_SHAPE(3), -1, "token_logprobs: the -1 most likely of 9 tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_follow_the_formula),
        cmocka_unit_test(so_do_those_of_a_large_vocabulary),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
