/* Lists of named tensors: what is refused, what makes a fingerprint, how parameters start. */
#include "reading.h"

#include <math.h>
#include <stdio.h>

static dra_specs *new_specs(void)
{
    dra_specs *s = NULL;
    dra_error  err = {0};
    expect_ok(dra_specs_create(&s, &err), &err);
    return s;
}

static void expect_error(dra_specs *s, dra_status code, const char *text)
{
    dra_error err = {0};
    expect_refused(dra_specs_error(s, &err), &err, code, text);
    assert_int_equal(dra_specs_error(s, NULL), code);
    dra_specs_destroy(s);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuses_a_name_twice(void **state)
{
    dra_specs *s = new_specs();
    dra_specs_add(s, NULL, &(dra_spec){.name = "a.w"});
    dra_specs_add(s, "b.", &(dra_spec){.name = "w"});
    assert_int_equal(dra_specs_error(s, NULL), DRA_OK);
    dra_specs_add(s, "a.", &(dra_spec){.name = "w"});
    dra_specs_add(s, NULL, &(dra_spec){.name = "too late"});
    dra_specs_add(s, NULL, &(dra_spec){.name = "b.w"});
    assert_int_equal(dra_specs_count(s), 2);
    expect_error(s, DRA_ERR_NAME, "tensor a.w: the name is used twice");
}

static void refuses_wrong_sizes(void **state)
{
    const dra_shape shapes[] = {{2, {INT64_C(1) << 40, INT64_C(1) << 40}}, {2, {3, -1}}};
    for (size_t i = 0; i < COUNT(shapes); i++) {
        dra_specs *s = new_specs();
        dra_specs_add(s, "x.", &(dra_spec){.name = "w", .shape = shapes[i]});
        assert_int_equal(dra_specs_count(s), 0);
        expect_error(s, DRA_ERR_MEMORY, "tensor w: its size is negative or overflows");
    }
}

/* Names become those of a graph's inputs, which are cut at a length. */
static void refuses_long_names(void **state)
{
    char       name[200], text[260];
    dra_specs *s = new_specs();
    memset(name, 'n', sizeof name);
    name[152] = 0;
    dra_specs_add(s, NULL, &(dra_spec){.name = name});
    assert_int_equal(dra_specs_error(s, NULL), DRA_OK);
    dra_specs_add(s, "p", &(dra_spec){.name = name});
    snprintf(text, sizeof text, "tensor %s: its name is too long", name);
    expect_error(s, DRA_ERR_NAME, text);
}

static void refuses_missing_values(void **state)
{
    dra_specs *s = new_specs();
    dra_specs_add(s, NULL, &(dra_spec){"w", DRA_SHAPE(2), DRA_FILL_VALUES, .values = NULL});
    expect_error(s, DRA_ERR_MEMORY, "tensor w: out of memory");
}

static void states_pass_the_error_on(void **state)
{
    dra_specs  *s = new_specs();
    dra_states *states = (dra_states *)s;
    dra_error   err = {0};
    dra_specs_add(s, NULL, &(dra_spec){.name = "a"});
    dra_specs_add(s, NULL, &(dra_spec){.name = "a"});
    expect_refused(dra_states_create(reading_device(), s, 1, &states, &err), &err, DRA_ERR_NAME,
                   "tensor a: the name is used twice");
    assert_null(states);
    dra_specs_destroy(s);
    dra_specs_destroy(NULL);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void keeps_copies(void **state)
{
    dra_specs *s = new_specs();
    char       name[] = "w";
    double     values[] = {1, 2, 3};
    for (int i = 0; i < 100; i++) { /* many, so that the list moves */
        char prefix[16];
        snprintf(prefix, sizeof prefix, "%d.", i);
        dra_specs_add(s, prefix,
                      &(dra_spec){name, DRA_SHAPE(3), DRA_FILL_VALUES, .values = values,
                                  .frozen = i % 2 == 0});
    }
    name[0] = '?';
    values[1] = 0;
    assert_int_equal(dra_specs_count(s), 100);
    assert_int_equal(dra_specs_find(s, "57.w"), 57);
    assert_int_equal(dra_specs_find(s, "57."), -1);
    assert_string_equal(dra_specs_at(s, 99)->name, "99.w");
    assert_true(dra_specs_at(s, 57)->values[1] == 2);
    assert_true(dra_specs_at(s, 56)->frozen && !dra_specs_at(s, 57)->frozen);
    dra_specs_destroy(s);
}

/* ---- fingerprints ---------------------------------------------------------------------------- */

static uint64_t fingerprint(size_t n, const dra_spec *p)
{
    dra_specs *s = new_specs();
    for (size_t i = 0; i < n; i++) dra_specs_add(s, NULL, &p[i]);
    const uint64_t h = dra_specs_fingerprint(s);
    dra_specs_destroy(s);
    return h;
}

static void fingerprints_differ(void **state)
{
    const dra_spec lists[][2] = {
        {{.name = "a", .shape = DRA_SHAPE(2, 3)}, {.name = "b"}},
        {{.name = "a", .shape = DRA_SHAPE(2, 3)}, {.name = "c"}},
        {{.name = "b"}, {.name = "a", .shape = DRA_SHAPE(2, 3)}},
        {{.name = "a", .shape = DRA_SHAPE(3, 2)}, {.name = "b"}},
        {{.name = "a", .shape = DRA_SHAPE(6)}, {.name = "b"}},
        {{.name = "a", .shape = DRA_SHAPE(2, 3, 1)}, {.name = "b"}},
        {{.name = "a", .shape = DRA_SHAPE(2, 3), .items = true}, {.name = "b"}},
        {{.name = "a", .shape = DRA_SHAPE(2, 3), .items = true, .limit = 4}, {.name = "b"}},
        {{.name = "a", .shape = DRA_SHAPE(2, 3), .items = true, .limit = 5}, {.name = "b"}},
        {{.name = "ab", .shape = DRA_SHAPE(2, 3)}, {.name = ""}},
    };
    for (size_t i = 0; i < COUNT(lists); i++)
        for (size_t k = 0; k < i; k++)
            assert_true(fingerprint(2, lists[i]) != fingerprint(2, lists[k]));
    assert_true(fingerprint(1, lists[0]) != fingerprint(2, lists[0]));
    assert_true(fingerprint(0, lists[0]) != fingerprint(1, lists[0]));
}

static void fingerprints_agree(void **state)
{
    const double   values[6] = {0};
    const dra_spec a = {.name = "a", .shape = DRA_SHAPE(2, 3)};
    const dra_spec b = {"a", DRA_SHAPE(2, 3), DRA_FILL_VALUES, 7, values, .frozen = true};
    assert_true(fingerprint(1, &a) == fingerprint(1, &b)); /* how it starts is no part of it */
}

/* ---- first values ---------------------------------------------------------------------------- */

enum { N = 40000 };

static dra_specs *drawn_specs(void)
{
    static const double values[] = {3, 1, 4};
    const dra_spec      list[] = {
             {"normal", DRA_SHAPE(N), DRA_FILL_NORMAL, 0.5},
             {"uniform", DRA_SHAPE(N / 2, 2), DRA_FILL_UNIFORM, 2},
             {"other", DRA_SHAPE(N), DRA_FILL_NORMAL, 0.5},
             {"const", DRA_SHAPE(5), DRA_FILL_CONST, -1.5},
             {"values", DRA_SHAPE(3), DRA_FILL_VALUES, .values = values},
             {"scalar", {0}, DRA_FILL_CONST, 2},
    };
    dra_specs *s = new_specs();
    for (size_t i = 0; i < COUNT(list); i++) dra_specs_add(s, NULL, &list[i]);
    return s;
}

static const dra_real *fill(const dra_specs *s, const char *name, uint64_t seed)
{
    static dra_real room[4][N];
    static int      next;
    dra_real       *to = room[next++ % 4];
    dra_specs_fill(s, dra_specs_find(s, name), seed, to);
    return to;
}

/* Mean, variance and fourth moment over variance^2 of N draws; standard errors are 1/sqrt(N) of
 * the deviation, sqrt(2/N) of the variance (sqrt(0.8/N) for uniform), about 0.05 and 0.01. */
static void expect_moments(const dra_real *x, double variance, double kurtosis)
{
    double m = 0, v = 0, k = 0;
    for (int i = 0; i < N; i++) m += (double)x[i] / N;
    for (int i = 0; i < N; i++) v += pow((double)x[i] - m, 2) / N;
    for (int i = 0; i < N; i++) k += pow((double)x[i] - m, 4) / N;
    assert_true(fabs(m) < 4 * sqrt(variance / N));
    assert_true(fabs(v / variance - 1) < 4 * sqrt(2.0 / N));
    assert_true(fabs(k / (v * v) - kurtosis) < 0.2);
}

static double correlation(const dra_real *x, const dra_real *y, int shift)
{
    double xy = 0, xx = 0, yy = 0;
    for (int i = 0; i + shift < N; i++) {
        xy += (double)x[i] * (double)y[i + shift];
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i + shift] * (double)y[i + shift];
    }
    return fabs(xy) / sqrt(xx * yy);
}

static void draws_the_distribution(void **state)
{
    dra_specs      *s = drawn_specs();
    const dra_real *x = fill(s, "normal", 1), *u = fill(s, "uniform", 1);
    int             inside = 0;
    expect_moments(x, 0.25, 3);
    expect_moments(u, 4.0 / 3, 1.8);
    for (int i = 0; i < N; i++) {
        assert_true(fabs((double)u[i]) <= 2);
        inside += fabs((double)x[i]) < 0.5;
    }
    assert_true(fabs(inside / (double)N - 0.6827) < 0.01);
    assert_true(correlation(x, x, 1) < 4 / sqrt(N)); /* the two of a pair */
    assert_true(correlation(u, u, 1) < 4 / sqrt(N));
    assert_true(correlation(x, fill(s, "other", 1), 0) < 4 / sqrt(N));
    assert_true(correlation(x, fill(s, "normal", 2), 0) < 4 / sqrt(N));
    dra_specs_destroy(s);
}

static void fills_what_is_given(void **state)
{
    dra_specs      *s = drawn_specs();
    const dra_real *v = fill(s, "values", 1), *c = fill(s, "const", 1), *one = fill(s, "scalar", 1);
    assert_true(v[0] == 3 && v[1] == 1 && v[2] == 4);
    for (int i = 0; i < 5; i++) assert_true(c[i] == (dra_real)-1.5);
    assert_true(one[0] == 2);
    dra_specs_destroy(s);
}

static void repeats_whatever_stands_around(void **state)
{
    dra_specs     *s = drawn_specs(), *t = new_specs();
    const dra_spec half = {"normal", DRA_SHAPE(N / 2 + 1), DRA_FILL_NORMAL, 0.5};
    const uint64_t large = UINT64_C(0x123456789abcdef0);
    dra_specs_add(t, NULL, &(dra_spec){"other", DRA_SHAPE(N), DRA_FILL_NORMAL, 0.5});
    dra_specs_add(t, NULL, &half);
    const dra_real *a = fill(s, "normal", large), *b = fill(t, "normal", large);
    assert_memory_equal(a, b, (N / 2 + 1) * sizeof *a); /* nor how long the tensor is */
    assert_memory_equal(a, fill(s, "normal", large), N * sizeof *a);
    b = fill(s, "normal", large & UINT32_MAX); /* all bits of the seed matter */
    assert_true(memcmp(a, b, N * sizeof *a) != 0);
    dra_specs_destroy(s);
    dra_specs_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_a_name_twice),
        cmocka_unit_test(refuses_wrong_sizes),
        cmocka_unit_test(refuses_long_names),
        cmocka_unit_test(refuses_missing_values),
        cmocka_unit_test(states_pass_the_error_on),
        cmocka_unit_test(keeps_copies),
        cmocka_unit_test(fingerprints_differ),
        cmocka_unit_test(fingerprints_agree),
        cmocka_unit_test(draws_the_distribution),
        cmocka_unit_test(fills_what_is_given),
        cmocka_unit_test(repeats_whatever_stands_around),
    };
    return check_main("specs", NULL, 0, tests, COUNT(tests));
}
