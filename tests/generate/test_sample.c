/* Samplers on small distributions made by hand: which tokens are kept, how often each is drawn. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "dra/generate.h"
#include "generate/sample.h"

static dra_sampler *open_sampler(const dra_sampler_config *c, int64_t V)
{
    dra_sampler *s;
    dra_error    err = {0};
    if (dra_sampler_create(c, V, &s, &err) != DRA_OK) fail_msg("%s", err.text);
    return s;
}

static int32_t pick(const dra_sampler_config *c, int64_t V, const dra_real *x, const bool *seen)
{
    dra_sampler  *s = open_sampler(c, V);
    const int32_t id = dra_sampler_pick(s, x, seen, 0, 0);
    dra_sampler_destroy(s);
    return id;
}

/* What many draws bring up, as bits; hot, so that all that is kept comes up. */
static uint64_t kept(dra_sampler_config c, int64_t V, const dra_real *x, const bool *seen)
{
    dra_sampler *s = open_sampler(&c, V);
    uint64_t     found = 0;
    for (int64_t i = 0; i < 4000; i++) found |= (uint64_t)1 << dra_sampler_pick(s, x, seen, 0, i);
    dra_sampler_destroy(s);
    return found;
}

static uint64_t bits(int n, const int *ids)
{
    uint64_t all = 0;
    for (int i = 0; i < n; i++) all |= (uint64_t)1 << ids[i];
    return all;
}
#define BITS(...) bits(sizeof((int[]){__VA_ARGS__}) / sizeof(int), (const int[]){__VA_ARGS__})

static void greedy_takes_the_first_best(void **unused)
{
    const dra_real           x[] = {1, 3, 2, 3};
    const dra_sampler_config zero = {0};
    assert_int_equal(pick(&zero, 4, x, NULL), 1);
    assert_int_equal(pick(&zero, 1, x, NULL), 0);
}

static void penalty_is_for_what_was_seen(void **unused)
{
    const dra_sampler_config two = {.repetition_penalty = 2}, half = {.repetition_penalty = 0.5};
    const dra_real           x[] = {3, 2, -1}, y[] = {-1, -1.5, -3};
    const bool               first[] = {true, false, false}, others[] = {false, true, true};
    assert_int_equal(pick(&two, 3, x, NULL), 0);
    assert_int_equal(pick(&two, 3, x, first), 1);   /* 1.5, 2, -1 */
    assert_int_equal(pick(&two, 3, y, first), 1);   /* -2, -1.5, -3 */
    assert_int_equal(pick(&half, 3, y, others), 1); /* -1, -0.75, -1.5 */
}

/* x_t = 3 sin(1.7 t + 0.013 t^2), t < 20: the test vector of x-transformers' filters. */
static void filters_keep_what_they_should(void **unused)
{
    const dra_sampler_config hot = {.temperature = 100, .filter_first = true};
    dra_sampler_config       c;
    dra_real                 x[20];
    for (int t = 0; t < 20; t++) x[t] = (dra_real)(3 * sin(1.7 * t + 0.013 * t * t));
    c = hot, c.top_k = 2;
    assert_int_equal(kept(c, 20, x, NULL), BITS(1, 11));
    c = hot, c.top_k = 5;
    assert_int_equal(kept(c, 20, x, NULL), BITS(1, 8, 11, 14, 17));
    c = hot, c.top_p = 0.9;
    assert_int_equal(kept(c, 20, x, NULL), BITS(1, 4, 8, 11, 14, 17));
    c = hot, c.top_p = 0.5;
    assert_int_equal(kept(c, 20, x, NULL), BITS(1, 8, 11));
    c = hot, c.top_a = 0.02;
    assert_int_equal(kept(c, 20, x, NULL), ((1 << 20) - 1) & ~(1 << 6));
    c = hot, c.min_p = 0.1;
    assert_int_equal(kept(c, 20, x, NULL), BITS(1, 4, 5, 8, 11, 14, 17));
    assert_int_equal(kept(hot, 20, x, NULL), (1 << 20) - 1);
}

static void ties_and_edges(void **unused)
{
    const dra_real           same[] = {1, 1, 1, 1}, step[] = {2, 1, 1, 0};
    const dra_sampler_config one = {.temperature = 1};
    dra_sampler_config       c;
    c = one, c.top_k = 2; /* tokens as likely as the last kept stay */
    assert_int_equal(kept(c, 4, step, NULL), BITS(0, 1, 2));
    c = one, c.top_k = 9;
    assert_int_equal(kept(c, 4, same, NULL), BITS(0, 1, 2, 3));
    c = one, c.top_p = 0.5; /* a sum of exactly p is enough; equal ones by id */
    assert_int_equal(kept(c, 4, same, NULL), BITS(0, 1));
    c = one, c.top_p = 0.51;
    assert_int_equal(kept(c, 4, same, NULL), BITS(0, 1, 2));
    c = one, c.top_p = 1e-9; /* at least one */
    assert_int_equal(kept(c, 4, step, NULL), BITS(0));
    c = one, c.top_p = 1;
    assert_int_equal(kept(c, 4, step, NULL), BITS(0, 1, 2, 3));
    c = one, c.top_a = 1; /* p >= (max p)^2 */
    assert_int_equal(kept(c, 4, same, NULL), BITS(0, 1, 2, 3));
    assert_int_equal(kept(c, 4, step, NULL), BITS(0)); /* 0.53^2 = 0.28; 0.20 is less */
    c.top_a = 0.5;
    assert_int_equal(kept(c, 4, step, NULL), BITS(0, 1, 2));
    c = one, c.min_p = 1; /* as likely as the most likely */
    assert_int_equal(kept(c, 4, same, NULL), BITS(0, 1, 2, 3));
    assert_int_equal(kept(c, 4, step, NULL), BITS(0));
}

/* The distributions of a test of Hugging Face's: of a peaked one the peak, of a flat one with a
 * little peak all but the peak. */
static void typical_tokens_are_as_surprising_as_expected(void **unused)
{
    const double       p[2][4] = {{0.97, 0.01, 0.01, 0.01}, {0.4, 0.2, 0.2, 0.2}};
    dra_sampler_config c = {.temperature = 1, .typical_p = 0.5};
    dra_real           x[2][4];
    for (int i = 0; i < 8; i++) x[i / 4][i % 4] = (dra_real)(log(p[i / 4][i % 4]) + 3);
    assert_int_equal(kept(c, 4, x[0], NULL), BITS(0));
    assert_int_equal(kept(c, 4, x[1], NULL), BITS(1, 2, 3));
    c.top_p = 0.5; /* comes before, and leaves 0.4 and 0.2 */
    assert_int_equal(kept(c, 4, x[1], NULL), BITS(0));
    c.typical_p = 0.7;
    assert_int_equal(kept(c, 4, x[1], NULL), BITS(0, 1));
}

/* A probability of all that is left, and the most likely one whatever it is. */
static void unlikely_tokens_are_cut_off(void **unused)
{
    const double       p[] = {0.5, 0.25, 0.15, 0.1};
    dra_sampler_config c = {.temperature = 1, .epsilon_cutoff = 0.14};
    dra_real           x[4];
    for (int i = 0; i < 4; i++) x[i] = (dra_real)log(p[i]);
    assert_int_equal(kept(c, 4, x, NULL), BITS(0, 1, 2));
    c.top_k = 3; /* 0.15 of 0.9 is more */
    c.epsilon_cutoff = 0.16;
    assert_int_equal(kept(c, 4, x, NULL), BITS(0, 1, 2));
    c.epsilon_cutoff = 0.99;
    assert_int_equal(kept(c, 4, x, NULL), BITS(0));
}

/* Top-p sums over what top-k has left; temperature comes before both, or after. */
static void the_order_counts(void **unused)
{
    const dra_real     x[] = {2, 1, 0, -1}; /* p 0.64, 0.24, 0.09, 0.03 */
    dra_sampler_config c = {.temperature = 1, .top_k = 2, .top_p = 0.7};
    assert_int_equal(kept(c, 4, x, NULL), BITS(0)); /* 0.73 of two */
    c.top_k = 0;
    assert_int_equal(kept(c, 4, x, NULL), BITS(0, 1));
    c.temperature = 1000; /* all alike */
    assert_int_equal(kept(c, 4, x, NULL), BITS(0, 1, 2));
    c.filter_first = true;
    assert_int_equal(kept(c, 4, x, NULL), BITS(0, 1));
}

static void expect_shares(const dra_sampler_config *c, int n, const double *p)
{
    enum { DRAWS = 200000 };
    dra_real x[8];
    double   count[8] = {0};
    for (int i = 0; i < n; i++) x[i] = (dra_real)log(p[i]);
    dra_sampler *s = open_sampler(c, n);
    for (int64_t i = 0; i < DRAWS; i++) count[dra_sampler_pick(s, x, NULL, 3, i)]++;
    dra_sampler_destroy(s);
    double sum = 0, share[8];
    for (int i = 0; i < n; i++) sum += share[i] = pow(p[i], 1 / c->temperature);
    for (int i = 0; i < n; i++) { /* within five deviations */
        const double e = share[i] / sum, d = sqrt(e * (1 - e) / DRAWS);
        if (!(fabs(count[i] / DRAWS - e) <= 5 * d))
            fail_msg("token %d: %g, expected %g", i, count[i] / DRAWS, e);
    }
}

static void draws_have_the_right_shares(void **unused)
{
    const double             p[] = {0.1, 0.2, 0.3, 0.35, 0.05};
    const dra_sampler_config one = {.temperature = 1, .seed = 5}, cold = {.temperature = 0.5};
    const dra_sampler_config hot = {.temperature = 3, .filter_first = true, .top_p = 1};
    expect_shares(&one, 5, p);
    expect_shares(&cold, 5, p);
    expect_shares(&hot, 5, p);
}

static void seed_and_position_decide(void **unused)
{
    const dra_sampler_config c = {.temperature = 1, .seed = 7}, d = {.temperature = 1, .seed = 9};
    const dra_real           x[8] = {0};
    dra_sampler             *a = open_sampler(&c, 8), *b = open_sampler(&c, 8);
    dra_sampler             *other = open_sampler(&d, 8);
    int                      same = 0;
    for (int64_t i = 99; i >= 0; i--) { /* in any order */
        const int32_t id = dra_sampler_pick(a, x, NULL, 2, i);
        assert_int_equal(id, dra_sampler_pick(b, x, NULL, 2, i));
        assert_int_equal(id, dra_sampler_pick(other, x, NULL, 0, i)); /* 7 + 2 = 9 + 0 */
        same += id == dra_sampler_pick(a, x, NULL, 3, i);
    }
    assert_true(same < 40); /* 12.5 on average */
    dra_sampler_destroy(a);
    dra_sampler_destroy(b);
    dra_sampler_destroy(other);
}

static void broken_logits_pick_nothing(void **unused)
{
    const dra_real           inf = (dra_real)INFINITY, nan = (dra_real)NAN;
    const dra_real           x[] = {0, nan, 1}, y[] = {0, inf, 1}, none[] = {-inf, -inf, -inf};
    const dra_real           masked[] = {-inf, 0, -inf};
    const dra_sampler_config one = {.temperature = 1}, zero = {0};
    assert_int_equal(pick(&one, 3, x, NULL), -1);
    assert_int_equal(pick(&zero, 3, x, NULL), -1);
    assert_int_equal(pick(&one, 3, y, NULL), -1);
    assert_int_equal(pick(&one, 3, none, NULL), -1);
    assert_int_equal(pick(&zero, 3, none, NULL), -1);
    assert_int_equal(kept(one, 3, masked, NULL), BITS(1));
}

static void refuses_what_makes_no_sense(void **unused)
{
    static const struct {
        dra_sampler_config c;
        const char        *text;
    } rows[] = {
        {{.temperature = -1}, "sampler: temperature is -1, expected 0 to 1e+06"},
        {{.top_p = 1.5}, "sampler: top_p is 1.5, expected 0 to 1"},
        {{.top_a = 2}, "sampler: top_a is 2, expected 0 to 1"},
        {{.min_p = -0.1}, "sampler: min_p is -0.1, expected 0 to 1"},
        {{.top_k = -2}, "sampler: top_k is -2, expected 0 to 2.14748e+09"},
        {{.repetition_penalty = -1}, "sampler: repetition_penalty is -1, expected 0 to 1e+06"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_sampler *s;
        dra_error    err = {0};
        assert_int_equal(dra_sampler_create(&rows[i].c, 4, &s, &err), DRA_ERR_VALUE);
        assert_string_equal(err.text, rows[i].text);
        assert_null(s);
    }
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static void ranks_are_log_probabilities(void **unused)
{
    const dra_real x[] = {1, 3, (dra_real)-INFINITY, 3, 2}; /* filters do not matter */
    dra_sampler   *s = open_sampler(&(dra_sampler_config){.temperature = 7, .top_k = 1}, 5);
    const int32_t  order[] = {1, 3, 4, 0};
    dra_ranked     out[5];
    const double   sum = log(exp(1) + 2 * exp(3) + exp(2));
    assert_int_equal(dra_sampler_rank(s, x, NULL, NULL, 5, out), 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(out[i].id, order[i]);
        assert_true(fabs(out[i].log_prob - ((double)x[order[i]] - sum)) < 1e-12);
    }
    assert_int_equal(dra_sampler_rank(s, x, NULL, NULL, 1, out), 1); /* of two that are equal */
    assert_int_equal(out[0].id, 1);
    dra_sampler_destroy(s);
}

/* With noise the first is a draw, and the second a draw from the others. */
static void noisy_ranks_are_draws(void **unused)
{
    const double p[] = {0.5, 0.3, 0.15, 0.05};
    enum { DRAWS = 40000 };
    dra_real           x[4];
    int                found[4][4] = {0};
    dra_sampler_config c = {.temperature = 1, .seed = 9};
    for (int i = 0; i < 4; i++) x[i] = (dra_real)log(p[i]);
    dra_sampler *s = open_sampler(&c, 4);
    for (int64_t at = 0; at < DRAWS; at++) {
        dra_ranked out[2];
        assert_int_equal(dra_sampler_rank(s, x, NULL, &(dra_gumbel){1, at, 2}, 2, out), 2);
        assert_true(fabs(out[0].log_prob - log(p[out[0].id])) < 1e-6);
        found[out[0].id][out[1].id]++;
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            const double share = i == k ? 0 : p[i] * p[k] / (1 - p[i]);
            const double deviation = sqrt(share * (1 - share) / DRAWS);
            assert_true(fabs((double)found[i][k] / DRAWS - share) <= 4 * deviation);
        }
    dra_sampler_destroy(s);
    c.top_k = 2; /* what filters drop does not come */
    s = open_sampler(&c, 4);
    dra_ranked out[4];
    for (int64_t at = 0; at < 50; at++) {
        assert_int_equal(dra_sampler_rank(s, x, NULL, &(dra_gumbel){0, at, 0}, 4, out), 2);
        assert_true(out[0].id + out[1].id == 1);
    }
    dra_sampler_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_first_best),
        cmocka_unit_test(penalty_is_for_what_was_seen),
        cmocka_unit_test(filters_keep_what_they_should),
        cmocka_unit_test(ties_and_edges),
        cmocka_unit_test(typical_tokens_are_as_surprising_as_expected),
        cmocka_unit_test(unlikely_tokens_are_cut_off),
        cmocka_unit_test(the_order_counts),
        cmocka_unit_test(draws_have_the_right_shares),
        cmocka_unit_test(seed_and_position_decide),
        cmocka_unit_test(broken_logits_pick_nothing),
        cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(ranks_are_log_probabilities),
        cmocka_unit_test(noisy_ranks_are_draws),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
