/* Drawings: numbers, text, scales, ticks, and that thinning loses nothing that sticks out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "report/svg.h"

/* What a function writes; to be freed. */
static char *written(void (*fn)(FILE *out, const void *user), const void *user)
{
    char  *text = NULL;
    size_t n = 0;
    FILE  *out = open_memstream(&text, &n);
    assert_non_null(out);
    fn(out, user);
    fclose(out);
    return text;
}

static void expect_number(double x, const char *expected)
{
    char text[32];
    assert_string_equal(svg_number(x, text), expected);
}

static void numbers_are_short(void **state)
{
    expect_number(0, "0");
    expect_number(0.0003, "0.0003");
    expect_number(-2.5, "-2.5");
    expect_number(1234.4, "1234");
    expect_number(9999, "9999");
    expect_number(10000, "10k");
    expect_number(999960, "1M");
    expect_number(1.2345e9, "1.234G");
    expect_number(NAN, "\u2013");
    expect_number(INFINITY, "\u2013");
}

static void write_text(FILE *out, const void *user) { svg_text_cut(out, user, 12); }

static void text_does_no_harm(void **state)
{
    static const char *const pairs[][2] = {
        {"<a href='x'>&\"", "&lt;a href=&#39;x&#39;&gt;\u2026"},
        {"\u00e9\u20ac\U0001f600", "\u00e9\u20ac\U0001f600"},
        {"a\001\033\177b\n\t", "a\ufffd\ufffd\ufffdb\n\t"},
        {"\xff\xc3(\xe2\x82\xed\xa0\x80", "\ufffd\ufffd(\ufffd\ufffd\ufffd\ufffd\ufffd"},
        {"\xc0\x80\xf8", "\ufffd\ufffd\ufffd"}, /* no short way to write 0 */
        {"123456789012", "123456789012"},
    };
    for (size_t i = 0; i < COUNT(pairs); i++) {
        char *text = written(write_text, pairs[i][0]);
        assert_string_equal(text, pairs[i][1]);
        free(text);
    }
}

static void scales_have_ticks(void **state)
{
    static const double ranges[][2] = {{0, 1},       {3, 3},           {0, 0},     {-5, 1e9},
                                       {1, 1.00001}, {1e-300, 2e-300}, {NAN, NAN}, {-2e-7, -1e-7}};
    double              ticks[SVG_TICKS];
    for (size_t i = 0; i < COUNT(ranges); i++) {
        svg_scale s = {ranges[i][0], ranges[i][1], 0, 100, false};
        svg_scale_fit(&s, true);
        const int n = svg_ticks(&s, ticks);
        assert_true(s.hi > s.lo && n >= 2 && n <= 12);
        for (int k = 0; k < n; k++)
            assert_true(svg_at(&s, ticks[k]) >= -0.01 && svg_at(&s, ticks[k]) <= 100.01);
    }
    svg_scale decades = {0.5, 2e6, 0, 100, true};
    svg_scale_fit(&decades, true);
    const int n = svg_ticks(&decades, ticks);
    assert_true(n == 7 && ticks[0] == 1 && fabs(ticks[6] - 1e6) < 1);
    assert_true(fabs(svg_at(&decades, decades.lo)) < 1e-9);
}

static void write_chart(FILE *out, const void *user) { svg_lines(out, user); }

/* One point of a million stands out, one piece is a single point. */
/* Equal ratios are equally far apart, and the ends have some room. */
static void x_can_be_logarithmic(void **state)
{
    static const double x[] = {1, 10, 100}, y[] = {1, 2, 3}, zero[] = {0, 10, 100};
    svg_line            line = {.name = "a", .n = 3, .x = x, .y = y};
    svg_chart           chart = {.title = "t", .n = 1, .lines = &line, .x_log = true};
    svg_scale           across, up;
    svg_lines_fit(&chart, &across, &up);
    assert_true(across.log);
    assert_true(fabs(svg_at(&across, 10) - (SVG_LEFT + SVG_RIGHT) / 2.0) < 1e-6);
    assert_true(svg_at(&across, 1) > SVG_LEFT + 2 && svg_at(&across, 100) < SVG_RIGHT - 2);
    line.x = zero; /* has no logarithm */
    svg_lines_fit(&chart, &across, &up);
    assert_false(across.log);
}

static void thinning_keeps_what_sticks_out(void **state)
{
    enum { N = 1000000 };
    double *x = malloc(2 * N * sizeof *x), *y = x + N;
    assert_non_null(x);
    for (int i = 0; i < N; i++) {
        x[i] = i + 1;
        y[i] = i == 400001 ? 9 : i % 7 * 0.1;
    }
    y[700000] = y[700002] = NAN;
    const svg_line  line = {"a <run>", N, x, y, 9};
    const svg_chart chart = {"title", NULL, 1, &line, true};
    char           *text = written(write_chart, &chart);
    assert_true(strlen(text) < 60000);
    assert_non_null(strstr(text, "data-name=\"a &lt;run&gt;\""));
    assert_non_null(strstr(text, "class=\"c1 again\"")); /* the ninth colour is the first, dashed */
    assert_non_null(strstr(text, ",42.0"));              /* 9 of 0..10 at 204..24 */
    int pieces = 0;
    for (const char *p = text; (p = strstr(p, "<polyline")); p++) pieces++;
    assert_int_equal(pieces, 3);
    free(text);
    free(x);
}

/* A run that starts far above where it stays: the axis shows where it stays. */
static void robust_ranges_show_most(void **state)
{
    enum { N = 1000 };
    double x[N], y[N];
    for (int i = 0; i < N; i++) {
        x[i] = i + 1;
        y[i] = i < 50 ? 8 : 2 + 0.1 * (i % 3);
    }
    const svg_line line = {"run", N, x, y, 0};
    svg_chart      chart = {.title = "loss", .n = 1, .lines = &line, .robust = true};
    svg_scale      sx, sy;
    assert_true(svg_lines_fit(&chart, &sx, &sy));
    assert_true(sy.lo <= 2 && sy.hi >= 2.2 && sy.hi < 3 && !sy.log);
    char *text = written(write_chart, &chart);
    assert_non_null(strstr(text, "top cut off"));
    assert_non_null(strstr(text, "run: 8 at step 1, 2 at 1000, lowest 2 at 52"));
    assert_non_null(strstr(text, "data-kind=\"line\""));
    assert_non_null(strstr(text, "data-hi=\"8 8 "));
    free(text);
    chart.robust = false;
    assert_false(svg_lines_fit(&chart, &sx, &sy));
    assert_true(sy.hi >= 8);
    for (int i = 0; i < N; i++) y[i] = i; /* evenly spread: nothing is cut */
    chart.robust = true;
    assert_false(svg_lines_fit(&chart, &sx, &sy));
    assert_true(sy.hi >= N - 1);
    for (int i = 0; i < N; i++) y[i] = NAN;
    assert_false(svg_lines_fit(&chart, &sx, &sy));
}

static void write_bars(FILE *out, const void *user) { svg_bars(out, user); }

static void bars_have_groups_and_intervals(void **state)
{
    const svg_bar bars[] = {
        {"gru", "length 64", "gru, length 64", 0.5, 100, 0.4, 0.6, 0},
        {"<b>", "length 64", "<b>, length 64", 0.25, 100, 0.2, 0.3, 1},
        {"gru", "length 128", "gru, length 128", 0.125, NAN, NAN, NAN, 0},
    };
    const svg_bar_chart chart = {"recall", NULL, COUNT(bars), bars, 0.1, true, "accuracy"};
    char               *text = written(write_bars, &chart);
    int                 groups = 0, whiskers = 0;
    for (const char *p = text; (p = strstr(p, "strong bold")); p++) groups++;
    for (const char *p = text; (p = strstr(p, "\"whisker\"")); p++) whiskers++;
    assert_int_equal(groups, 2);
    assert_int_equal(whiskers, 2);
    assert_non_null(
        strstr(text, "gru, length 64: 50.0 %, 95 % interval 40.0 % to 60.0 %, n = 100"));
    assert_non_null(strstr(text, "chance: 10.0 %"));
    assert_null(strstr(text, "<b>,"));
    free(text);
}

static double half(const void *user, int64_t row, int64_t column)
{
    (void)user;
    return row == column ? 0.5 : 0;
}

static const char *long_label(const void *user, int64_t row, char text[32])
{
    static const char *const labels[] = {"abcdef", "\u65e5\u672c\u8a9e"};
    (void)user, (void)text;
    return labels[row];
}

static void write_map(FILE *out, const void *user) { svg_heat(out, user); }

/* What rows are stands above their labels, which have four columns, of whatever letters. */
static void names_of_maps_are_clear_of_labels(void **state)
{
    const svg_map map = {.title = "map",
                         .rows_name = "token that reads",
                         .columns_name = "token",
                         .rows = 2,
                         .columns = 2,
                         .value = half,
                         .row_label = long_label,
                         .bar_name = "weight"};
    char         *text = written(write_map, &map);
    assert_non_null(strstr(text, "<text x=\"2\" y=\"14\">token that reads</text>"));
    assert_non_null(strstr(text, "<rect class=\"frame\" x=\"46\" y=\"24\""));
    assert_non_null(strstr(text, ">abcd\u2026</text>"));
    assert_non_null(strstr(text, ">\u65e5\u672c\u2026</text>"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_short),
        cmocka_unit_test(text_does_no_harm),
        cmocka_unit_test(scales_have_ticks),
        cmocka_unit_test(x_can_be_logarithmic),
        cmocka_unit_test(thinning_keeps_what_sticks_out),
        cmocka_unit_test(robust_ranges_show_most),
        cmocka_unit_test(bars_have_groups_and_intervals),
        cmocka_unit_test(names_of_maps_are_clear_of_labels),
    };
    return check_main("svg", NULL, 0, tests, COUNT(tests));
}
