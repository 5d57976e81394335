/* Rotary positions: against the formula in double, and what they are for: products of rotated
 * queries and keys depend on the distance of their positions alone. */
#include "check.h"

#include <math.h>
#include <string.h>

static void build(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    out[0] = dra_rotary(g, in[0], in[1], args);
}

/* What a frequency is multiplied by, as the papers say it. */
static double scaled(const dra_rotary_config *k, int64_t c, double width, double base)
{
    const double f = pow(base, -2.0 * (double)c / width), pi = 3.14159265358979323846;
    const double wave = 2 * pi / f, low = k->low > 0 ? k->low : 1;
    if (k->scaling == DRA_SCALING_LONGROPE_SHORT) return 1 / k->short_factors[c];
    if (k->scaling == DRA_SCALING_LONGROPE_LONG) return 1 / k->long_factors[c];
    if (k->scaling == DRA_SCALING_LLAMA3) {
        const double high = k->high > 0 ? k->high : 4, L = (double)k->original;
        if (wave < L / high) return 1;
        if (wave > L / low) return 1 / k->factor;
        const double s = (L / wave - low) / (high - low);
        return (1 - s) / k->factor + s;
    }
    const double high = k->high > 0 ? k->high : 32;
    double       from = width * log((double)k->original / (high * 2 * pi)) / (2 * log(base));
    double       to = width * log((double)k->original / (low * 2 * pi)) / (2 * log(base));
    if (!k->exact) from = floor(from), to = ceil(to);
    if (from < 0) from = 0;
    if (to > width - 1) to = width - 1;
    if (from == to) to += 0.001;
    double t = ((double)c - from) / (to - from);
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return t / k->factor + 1 - t;
}

static void turn(const dra_rotary_config *k, int64_t D, double pos, const double *x, double *y)
{
    const double  base = k && k->base ? k->base : 10000, stretch = k && k->stretch ? k->stretch : 1;
    const int64_t width = k && k->width ? k->width : D;
    for (int64_t c = 0; c < D; c++) y[c] = x[c];
    const int64_t pairs = (width + 1) / 2;
    for (int64_t c = 0; c < pairs; c++) {
        const int64_t i = k && k->halves ? c : 2 * c, j = k && k->halves ? c + pairs : 2 * c + 1;
        const double  by = k && k->scaling ? scaled(k, c, (double)width, base) : 1;
        const double  angle = by * pos / stretch / pow(base, 2.0 * (double)c / (double)width);
        double        f = k && k->gain ? k->gain : 1;
        if (k && k->xpos_base) {
            const double zeta = (2.0 * (double)c + 0.4 * (double)width) / (1.4 * (double)width);
            f *= pow(zeta, (pos - k->xpos_center) / k->xpos_base * (k->xpos_invert ? -1 : 1));
        }
        y[i] = f * (x[i] * cos(angle) - x[j] * sin(angle));
        y[j] = f * (x[i] * sin(angle) + x[j] * cos(angle));
    }
}

static void oracle(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t H = in->shape.dim[1], T = in->shape.dim[2], D = in->shape.dim[3];
    for (int64_t row = 0; D && row < in->count / D; row++) {
        const int64_t b = row / (H * T), t = row % T;
        turn(args, D, in[1].at[b * T + t], in->at + row * D, out->at + row * D);
    }
}

static const dra_rotary_config
    plain = {0},
    halves = {.halves = true}, part = {.width = 6}, part_halves = {.width = 6, .halves = true},
    slow = {.base = 1e6}, stretched = {.stretch = 4}, query = {.xpos_base = 512, .xpos_center = 3},
    key = {.xpos_base = 512, .xpos_center = 3, .xpos_invert = true}, odd = {.width = 5},
    odd_all = {.width = 5, .halves = true, .xpos_base = 512, .xpos_center = 3},
    wide_odd = {.width = 129}, all = {500, 130, 2, true, 64, 10, true},
    louder = {.gain = 1.25, .halves = true},
    llama3 = {.base = 100,
              .scaling = DRA_SCALING_LLAMA3,
              .factor = 8,
              .low = 1.5,
              .high = 5,
              .original = 64},
    yarn = {.base = 1000, .scaling = DRA_SCALING_YARN, .factor = 4, .original = 300, .gain = 1.1},
    yarn_exact = {.base = 1000,
                  .scaling = DRA_SCALING_YARN,
                  .factor = 4,
                  .low = 2,
                  .high = 20,
                  .original = 300,
                  .exact = true,
                  .halves = true},
    yarn_steep = {.scaling = DRA_SCALING_YARN, .factor = 4, .original = 2},
    short_ones = {.scaling = DRA_SCALING_LONGROPE_SHORT,
                  .original = 51,
                  .short_factors = (const double[]){1, 1.5, 2, 9},
                  .n_short = 4,
                  .halves = true,
                  .gain = 1.1},
    long_ones = {.scaling = DRA_SCALING_LONGROPE_LONG,
                 .width = 6,
                 .original = 4,
                 .long_factors = (const double[]){3, 20, 7},
                 .n_long = 3};

#define POS(b, t)                                                                                  \
    {                                                                                              \
        {2, {b, t}}, CHECK_I32, .lo = 0, .hi = 50                                                  \
    }
static const check_case cases[] = {
    {"no config", 2, {{{4, {2, 3, 5, 8}}}, POS(2, 5)}, NULL},
    {"zeros are defaults", 2, {{{4, {2, 3, 5, 8}}}, POS(2, 5)}, &plain},
    {"halves", 2, {{{4, {2, 3, 5, 8}}}, POS(2, 5)}, &halves},
    {"part of the width", 2, {{{4, {2, 3, 5, 9}}}, POS(2, 5)}, &part},
    {"part of the width, halves", 2, {{{4, {2, 3, 5, 9}}}, POS(2, 5)}, &part_halves},
    {"other base", 2, {{{4, {2, 3, 5, 8}}}, POS(2, 5)}, &slow},
    {"stretched", 2, {{{4, {2, 3, 5, 8}}}, POS(2, 5)}, &stretched},
    {"xPos, queries", 2, {{{4, {2, 3, 5, 8}}}, POS(2, 5)}, &query},
    {"xPos, keys", 2, {{{4, {2, 3, 5, 8}}}, POS(2, 5)}, &key},
    {"all at once, wide", 2, {{{4, {2, 3, 5, 133}}}, POS(2, 5)}, &all},
    {"odd width", 2, {{{4, {2, 3, 5, 10}}}, POS(2, 5)}, &odd},
    {"odd width, all there is", 2, {{{4, {2, 3, 5, 6}}}, POS(2, 5)}, &odd},
    {"odd width, halves, xPos", 2, {{{4, {2, 3, 5, 10}}}, POS(2, 5)}, &odd_all},
    {"odd width, wide", 2, {{{4, {2, 3, 5, 133}}}, POS(2, 5)}, &wide_odd},
    {"gain", 2, {{{4, {2, 3, 5, 8}}}, POS(2, 5)}, &louder},
    {"scaled as Llama 3.1", 2, {{{4, {2, 3, 5, 16}}}, POS(2, 5)}, &llama3},
    {"scaled by YaRN", 2, {{{4, {2, 3, 5, 16}}}, POS(2, 5)}, &yarn},
    {"scaled by YaRN, pairs not rounded", 2, {{{4, {2, 3, 5, 16}}}, POS(2, 5)}, &yarn_exact},
    {"scaled by YaRN, all pairs slow", 2, {{{4, {2, 3, 5, 4}}}, POS(2, 5)}, &yarn_steep},
    {"short factors of LongRoPE", 2, {{{4, {2, 3, 5, 8}}}, POS(2, 5)}, &short_ones},
    {"long factors of LongRoPE", 2, {{{4, {2, 3, 5, 8}}}, POS(2, 5)}, &long_ones},
    {"one channel of a pair",
     2,
     {{{4, {2, 3, 5, 3}}}, POS(2, 5)},
     &(dra_rotary_config){.width = 1}},
    {"one pair", 2, {{{4, {1, 1, 1, 2}}}, POS(1, 1)}, NULL},
    {"several tiles", 2, {{{4, {2, 3, 67, 130}}}, POS(2, 67)}, NULL},
    {"no batch", 2, {{{4, {0, 3, 5, 8}}}, POS(0, 5)}, NULL},
    {"no heads", 2, {{{4, {2, 0, 5, 8}}}, POS(2, 5)}, NULL},
    {"no time", 2, {{{4, {2, 3, 0, 8}}}, POS(2, 0)}, NULL},
    {"no width", 2, {{{4, {2, 3, 5, 0}}}, POS(2, 5)}, NULL},
    {"negative positions",
     2,
     {{{4, {1, 2, 5, 8}}}, {{2, {1, 5}}, CHECK_I32, .lo = -50, .hi = -1}},
     NULL},
    /* the largest positions: an angle in float would be off by up to 64 radians */
    {
        "far out",
        2,
        {{{4, {1, 2, 5, 8}}}, {{2, {1, 5}}, CHECK_I32, .lo = 2147480000, .hi = 2147483647}},
        NULL,
#ifdef DRA_REAL_DOUBLE
        .tol = 1e-6 /* 2e9 radians in double have 2e-7 of room */
#endif
    },
};

/* ---- promises -------------------------------------------------------------------------------- */

/* <rot_t q, rot_s k> for t, s < N, as (t, s); q and k alike at every position. */
enum { N = 6, D = 8 };

static void products(const dra_rotary_config *for_q, const dra_rotary_config *for_k, int32_t from,
                     double *out)
{
    dra_graph      *g = check_graph();
    const dra_shape shape = DRA_SHAPE(1, 1, N, D);
    dra_value       pos = dra_input(g, "pos", DRA_I32, DRA_SHAPE(1, N));
    dra_value       q = dra_broadcast(g, check_real(g, "q", DRA_SHAPE(D)), shape);
    dra_value       k = dra_broadcast(g, check_real(g, "k", DRA_SHAPE(D)), shape);
    dra_output(g, "q'", dra_rotary(g, q, pos, for_q));
    dra_output(g, "k'", dra_rotary(g, k, pos, for_k));
    check_program p = check_compile(g, 1);
    dra_real      q_in[D], k_in[D];
    int32_t       pos_in[N];
    uint64_t      seed = 3;
    for (int i = 0; i < N; i++) pos_in[i] = from + i;
    for (int i = 0; i < D; i++) q_in[i] = (dra_real)check_random(&seed);
    for (int i = 0; i < D; i++) k_in[i] = (dra_real)check_random(&seed);
    check_bind(&p, "q", q_in, sizeof q_in);
    check_bind(&p, "k", k_in, sizeof k_in);
    check_bind(&p, "pos", pos_in, sizeof pos_in);
    check_run(&p);
    const dra_real *a = check_result(&p, "q'"), *b = check_result(&p, "k'");
    for (int i = 0; i < N * N; i++) {
        out[i] = 0;
        for (int c = 0; c < D; c++) out[i] += (double)a[i / N * D + c] * (double)b[i % N * D + c];
    }
    check_free(&p);
}

static void depends_on_distance_alone(void **state)
{
    static const dra_rotary_config *const pairs[][2] = {
        {&plain, &plain}, {&halves, &halves}, {&stretched, &stretched}, {&query, &key}};
    for (size_t i = 0; i < COUNT(pairs); i++) {
        double near[N * N], far[N * N];
        products(pairs[i][0], pairs[i][1], 0, near);
        products(pairs[i][0], pairs[i][1], 1000, far);
        for (int t = 0; t < N; t++)
            for (int s = 0; s < N; s++) {
                const double first = t > s ? near[(t - s) * N] : near[s - t];
                assert_true(fabs(near[t * N + s] - first) < 1e-5);
                assert_true(fabs(far[t * N + s] - first) < 1e-5);
            }
        assert_true(fabs(near[0] - near[1]) > 1e-3); /* and does depend on it */
    }
}

/* Positions 0..5, width 4, center 3, base 512: the factor of pair 0 is the length of (1, 0). */
static void has_the_factors_of_xpos(void **state)
{
    static const double want[] = {1.0073674, 1.0049056, 1.0024498, 1, 0.9975562, 0.9951183};
    for (int invert = 0; invert < 2; invert++) {
        const dra_rotary_config k = {
            .xpos_base = 512, .xpos_center = 3, .xpos_invert = invert != 0};
        dra_graph *g = check_graph();
        dra_value  x = check_real(g, "x", DRA_SHAPE(1, 1, 6, 4));
        dra_output(g, "y", dra_rotary(g, x, dra_reshape(g, dra_arange(g, 6), DRA_SHAPE(1, 6)), &k));
        check_program p = check_compile(g, 1);
        dra_real      at[6][4] = {{1}, {1}, {1}, {1}, {1}, {1}};
        check_bind(&p, "x", at, sizeof at);
        check_run(&p);
        const dra_real *y = check_result(&p, "y");
        for (int t = 0; t < 6; t++) {
            const double f = hypot((double)y[t * 4], (double)y[t * 4 + 1]);
            assert_true(fabs(f - (invert ? 1 / want[t] : want[t])) < 2e-7);
        }
        check_free(&p);
    }
}

/* zeta of the first pair is 2/7: e^80 is reached after 80 * 512 / ln 3.5 positions. */
static void xpos_ends_where_factors_do(void **state)
{
    static const int32_t last = 32695;
    for (int32_t past = 0; past < 2; past++) {
        const dra_rotary_config k = {.xpos_base = 512};
        dra_graph              *g = check_graph();
        dra_value               x = check_real(g, "x", DRA_SHAPE(1, 1, 1, 4));
        dra_output(g, "y", dra_rotary(g, x, dra_input(g, "pos", DRA_I32, DRA_SHAPE(1, 1)), &k));
        check_program p = check_compile(g, 1);
        dra_real      at[4] = {1, 1, 1, 1};
        int32_t       pos = last + past;
        dra_error     err = {0};
        check_bind(&p, "x", at, sizeof at);
        check_bind(&p, "pos", &pos, sizeof pos);
        assert_int_equal(check_try(&p, &err), past ? DRA_ERR_VALUE : DRA_OK);
        if (past)
            assert_string_equal(err.text, "rotary: position 32696, but with xPos factors stay "
                                          "finite only up to 32695");
        check_free(&p);
    }
}

/* The numbers that Llama 3.2 1B has: what its 32 frequencies are divided by. */
static void divides_frequencies_as_llama_3_does(void **state)
{
    static const double want[] = {1, 1.6513, 3.2923, 9.6667, 32, 32}; /* of pairs 14 to 19 */
    for (int64_t pair = 14; pair < 20; pair++) {
        const dra_rotary_config k = {.base = 5e5,
                                     .halves = true,
                                     .scaling = DRA_SCALING_LLAMA3,
                                     .factor = 32,
                                     .low = 1,
                                     .high = 4,
                                     .original = 8192};
        dra_graph              *g = check_graph();
        dra_value               x = check_real(g, "x", DRA_SHAPE(1, 1, 1, 64));
        dra_output(g, "y", dra_rotary(g, x, dra_input(g, "pos", DRA_I32, DRA_SHAPE(1, 1)), &k));
        check_program p = check_compile(g, 1);
        dra_real      at[64] = {0};
        const double  f = pow(5e5, -2.0 * (double)pair / 64);
        int32_t       pos = (int32_t)(1 / f); /* about a radian without scaling */
        at[pair] = 1;
        check_bind(&p, "x", at, sizeof at);
        check_bind(&p, "pos", &pos, sizeof pos);
        check_run(&p);
        const dra_real *y = check_result(&p, "y");
        const double    angle = atan2((double)y[pair + 32], (double)y[pair]);
        assert_true(fabs(pos * f / angle - want[pair - 14]) < 1e-4 * want[pair - 14]);
        check_free(&p);
    }
}

static void a_limit_is_an_error_of_the_run(void **state)
{
    for (int32_t past = 0; past < 2; past++) {
        const dra_rotary_config k = {.limit = 8};
        dra_graph              *g = check_graph();
        dra_value               x = check_real(g, "x", DRA_SHAPE(1, 1, 1, 4));
        dra_output(g, "y", dra_rotary(g, x, dra_input(g, "pos", DRA_I32, DRA_SHAPE(1, 1)), &k));
        check_program p = check_compile(g, 1);
        dra_real      at[4] = {1, 1, 1, 1};
        int32_t       pos = 7 + past;
        dra_error     err = {0};
        check_bind(&p, "x", at, sizeof at);
        check_bind(&p, "pos", &pos, sizeof pos);
        assert_int_equal(check_try(&p, &err), past ? DRA_ERR_VALUE : DRA_OK);
        if (past) assert_non_null(strstr(err.text, "position 8"));
        check_free(&p);
    }
}

/* Width 5 of 10: 3 pairs of 6 channels turn by t 10000^(-2c/5), the others pass. */
static void rotates_one_more_than_an_odd_width(void **state)
{
    enum { WIDTH = 5, CHANNELS = 10, PAIRS = 3 };
    dra_graph      *g = check_graph();
    const dra_value x = check_real(g, "x", DRA_SHAPE(1, 1, N, CHANNELS));
    const dra_value pos = dra_reshape(g, dra_arange(g, N), DRA_SHAPE(1, N));
    dra_output(g, "y", dra_rotary(g, x, pos, &odd));
    check_program p = check_compile(g, 1);
    dra_real      in[N * CHANNELS];
    for (int i = 0; i < N * CHANNELS; i++) in[i] = i % 2 == 0; /* pairs (1, 0) */
    check_bind(&p, "x", in, sizeof in);
    check_run(&p);
    const dra_real *y = check_result(&p, "y");
    for (int i = 0; i < N * CHANNELS / 2; i++) {
        const int    t = i / (CHANNELS / 2), c = i % (CHANNELS / 2);
        const double angle = c < PAIRS ? t * pow(10000, -2.0 * c / WIDTH) : 0;
        assert_true(fabs((double)y[2 * i] - cos(angle)) < 1e-6);
        assert_true(fabs((double)y[2 * i + 1] - sin(angle)) < 1e-6);
    }
    check_free(&p);
}

/* ---- refusals -------------------------------------------------------------------------------- */

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static void refuse(dra_shape x, dra_shape pos, dra_rotary_config k, dra_status code,
                   const char *text)
{
    dra_graph *g = check_graph();
    dra_value  in = check_real(g, "x", x);
    assert_int_equal(dra_rotary(g, in, dra_input(g, "pos", DRA_I32, pos), &k).id, 0);
    check_refused(g, code, text);
}

static void refuses_shapes(void **state)
{
    const dra_shape x = DRA_SHAPE(2, 3, 5, 8), seven = DRA_SHAPE(2, 3, 5, 7), pos = DRA_SHAPE(2, 5);
    refuse(x, pos, (dra_rotary_config){.width = 9}, DRA_ERR_SHAPE,
           "rotary: width 9, expected one up to 8");
    refuse(x, pos, (dra_rotary_config){.width = 10}, DRA_ERR_SHAPE,
           "rotary: width 10, expected one up to 8");
    refuse(x, pos, (dra_rotary_config){.width = -2}, DRA_ERR_SHAPE,
           "rotary: width -2, expected one up to 8");
    refuse(x, pos, (dra_rotary_config){.width = -1}, DRA_ERR_SHAPE,
           "rotary: width -1, expected one up to 8");
    refuse(seven, pos, plain, DRA_ERR_SHAPE, "rotary: width 7, expected one up to 6");
    refuse(DRA_SHAPE(3, 5, 8), pos, plain, DRA_ERR_SHAPE,
           "rotary: x is " REAL " (3, 5, 8), expected (B, H, T, D)");
    refuse((dra_shape){0}, pos, plain, DRA_ERR_SHAPE,
           "rotary: x is " REAL " (), expected (B, H, T, D)");
    refuse(x, DRA_SHAPE(5), plain, DRA_ERR_SHAPE,
           "rotary: x " REAL " (2, 3, 5, 8), pos i32 (5): expected pos (2, 5)");
    refuse(x, DRA_SHAPE(5, 2), plain, DRA_ERR_SHAPE,
           "rotary: x " REAL " (2, 3, 5, 8), pos i32 (5, 2): expected pos (2, 5)");
}

static void refuses_values(void **state)
{
    const dra_shape x = DRA_SHAPE(2, 3, 5, 8), pos = DRA_SHAPE(2, 5);
    refuse(x, pos, (dra_rotary_config){.base = -1}, DRA_ERR_VALUE,
           "rotary: base -1, expected more than 0");
    refuse(x, pos, (dra_rotary_config){.stretch = -2}, DRA_ERR_VALUE,
           "rotary: stretch -2, expected more than 0");
    refuse(x, pos, (dra_rotary_config){.xpos_base = -512}, DRA_ERR_VALUE,
           "rotary: xpos_base -512, expected more than 0");
    dra_graph *g = check_graph();
    dra_value  p = dra_input(g, "pos", DRA_I32, pos);
    assert_int_equal(dra_rotary(g, (dra_value){0}, p, NULL).id, 0);
    check_refused(g, DRA_ERR_VALUE, "rotary: input 0 is the null value");
    g = check_graph();
    p = check_real(g, "pos", pos);
    assert_int_equal(dra_rotary(g, check_real(g, "x", x), p, NULL).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "rotary: pos is " REAL ", expected i32");
    g = check_graph();
    p = dra_input(g, "pos", DRA_I32, pos);
    assert_int_equal(dra_rotary(g, dra_input(g, "x", DRA_BF16, x), p, NULL).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "rotary: x is bf16, expected " REAL);
}

int main(void)
{
    const check_spec        specs[] = {{"rotary", 1, build, oracle, cases, COUNT(cases)}};
    const struct CMUnitTest tests[] = {cmocka_unit_test(depends_on_distance_alone),
                                       cmocka_unit_test(has_the_factors_of_xpos),
                                       cmocka_unit_test(xpos_ends_where_factors_do),
                                       cmocka_unit_test(divides_frequencies_as_llama_3_does),
                                       cmocka_unit_test(a_limit_is_an_error_of_the_run),
                                       cmocka_unit_test(rotates_one_more_than_an_odd_width),
                                       cmocka_unit_test(refuses_shapes),
                                       cmocka_unit_test(refuses_values)};
    return check_main("rotary", specs, COUNT(specs), tests, COUNT(tests));
}
