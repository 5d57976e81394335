/* Causal convolutions against their formula in double; parts of a sequence against the whole. */
#include "check.h"

#include <string.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const dra_value none;

/* ---- the formula ----------------------------------------------------------------------------- */

typedef struct args { /* options by number of input; 0: none, since that is x */
    int bias, start, mark;
} args;

static dra_value option_of(const dra_value *in, int i) { return i ? in[i] : none; }

static void build(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    const args *a = p;
    out[0] = dra_conv(g, in[0], in[1], option_of(in, a->bias), option_of(in, a->start),
                      option_of(in, a->mark), &out[1]);
}

static void build_last(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    dra_value both[2];
    build(g, p, in, both);
    out[0] = both[1];
}

/* One channel of one row: all its inputs in a list, before which there are zeros. */
typedef struct line {
    double  input[256];
    int64_t n;
} line;

static double input_before(const line *l, int64_t back)
{
    return back < l->n ? l->input[l->n - 1 - back] : 0;
}

static void walk_line(const args *a, const check_tensor *in, int64_t b, int64_t n, double *y,
                      double *last)
{
    const int64_t T = in[0].shape.dim[1], N = in[0].shape.dim[2], taps = in[1].shape.dim[1];
    line          l = {.n = 0};
    for (int64_t j = 0; a->start && j + 1 < taps; j++)
        l.input[l.n++] = in[a->start].at[(b * (taps - 1) + j) * N + n];
    for (int64_t t = 0; t < T; t++) {
        const int mark = a->mark ? (int)in[a->mark].at[b * T + t] : 0;
        if (mark & DRA_MARK_RESET) l.n = 0;
        if (mark & DRA_MARK_PAD) continue;
        l.input[l.n++] = in[0].at[(b * T + t) * N + n];
        double sum = a->bias ? in[a->bias].at[n] : 0;
        for (int64_t j = 0; j < taps; j++)
            sum += in[1].at[n * taps + j] * input_before(&l, taps - 1 - j);
        if (y) y[(b * T + t) * N + n] = sum;
    }
    for (int64_t j = 0; j + 1 < taps; j++)
        last[(b * (taps - 1) + j) * N + n] = input_before(&l, taps - 2 - j);
}

static void walk_all(const args *a, const check_tensor *in, double *y, double *last)
{
    for (int64_t b = 0; b < in[0].shape.dim[0]; b++)
        for (int64_t n = 0; n < in[0].shape.dim[2]; n++) walk_line(a, in, b, n, y, last);
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    walk_all(a, in, out[0].at, out[1].at);
}

static void oracle_last(const void *a, const check_tensor *in, check_tensor *out)
{
    walk_all(a, in, NULL, out->at);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* clang-format off: it does not know that these are initialisers */
#define X(B, T, N)                                                                                 \
    {                                                                                              \
        {                                                                                          \
            3, { B, T, N }                                                                         \
        }                                                                                          \
    }
#define TAPS(N, W)                                                                                 \
    {                                                                                              \
        {                                                                                          \
            2, { N, W }                                                                            \
        }                                                                                          \
    }
#define BIAS(N)                                                                                    \
    {                                                                                              \
        {                                                                                          \
            1, { N }                                                                               \
        }                                                                                          \
    }
#define START(B, W, N)                                                                             \
    {                                                                                              \
        {                                                                                          \
            3, { B, (W)-1, N }                                                                     \
        }                                                                                          \
    }
#define MARKS(B, T)                                                                                \
    {                                                                                              \
        {2, {B, T}}, CHECK_I32, .lo = 0, .hi = 3                                                   \
    }
/* clang-format on */

static const args plain = {0}, biased = {.bias = 2}, from = {.start = 2},
                  marked = {.bias = 2, .start = 3, .mark = 4}, bare = {.mark = 2};
static const double pads[] = {1, 1, 1, 1, 1, 1}, odd_bits[] = {4, 8, -4, 5, 6, 7};

static const check_case cases[] = {
    {"one value", 2, {X(1, 1, 1), TAPS(1, 1)}, &plain},
    {"one tap",
     4,
     {X(2, 7, 5), TAPS(5, 1), BIAS(5), START(2, 1, 5)},
     &(args){.bias = 2, .start = 3}},
    {"two taps", 2, {X(2, 7, 5), TAPS(5, 2)}, &plain},
    {"three taps", 3, {X(2, 7, 5), TAPS(5, 3), BIAS(5)}, &biased},
    {"four taps", 3, {X(2, 40, 5), TAPS(5, 4), BIAS(5)}, &biased},
    {"seven taps", 3, {X(2, 40, 5), TAPS(5, 7), BIAS(5)}, &biased},
    {"eight taps", 3, {X(2, 9, 5), TAPS(5, 8), START(2, 8, 5)}, &from},
    {"fewer tokens than taps", 3, {X(2, 2, 5), TAPS(5, 4), START(2, 4, 5)}, &from},
    {"marks", 5, {X(3, 17, 5), TAPS(5, 4), BIAS(5), START(3, 4, 5), MARKS(3, 17)}, &marked},
    {"marks, two taps",
     5,
     {X(3, 17, 5), TAPS(5, 2), BIAS(5), START(3, 2, 5), MARKS(3, 17)},
     &marked},
    {"marks, no state", 3, {X(3, 17, 5), TAPS(5, 3), MARKS(3, 17)}, &bare},
    {"all pads",
     5,
     {X(2, 3, 5), TAPS(5, 4), BIAS(5), START(2, 4, 5), {{2, {2, 3}}, CHECK_I32, .values = pads}},
     &marked},
    {"bits nobody knows",
     3,
     {X(2, 3, 5), TAPS(5, 4), {{2, {2, 3}}, CHECK_I32, .values = odd_bits}},
     &bare},
    {"no tokens", 3, {X(2, 0, 5), TAPS(5, 4), START(2, 4, 5)}, &from},
    {"no channels", 3, {X(2, 3, 0), TAPS(0, 4), START(2, 4, 0)}, &from},
    {"no batch", 3, {X(0, 3, 5), TAPS(5, 4), START(0, 4, 5)}, &from},
    {"several tiles and runs",
     5,
     {X(2, 70, 521), TAPS(521, 4), BIAS(521), START(2, 4, 521), MARKS(2, 70)},
     &marked},
    {"wide tiles", 3, {X(4, 33, 521), TAPS(521, 4), BIAS(521)}, &biased},
    {"wide tiles, six taps", 3, {X(4, 33, 521), TAPS(521, 6), BIAS(521)}, &biased},
    {"whole runs", 3, {X(2, 128, 33), TAPS(33, 3), MARKS(2, 128)}, &bare},
};

/* Only the last inputs are read, so y costs nothing and dy is missing. */
static const check_case last_cases[] = {
    {"plain", 2, {X(2, 70, 5), TAPS(5, 4)}, &plain},
    {"marks", 5, {X(3, 17, 5), TAPS(5, 4), BIAS(5), START(3, 4, 5), MARKS(3, 17)}, &marked},
};

/* ---- parts of a sequence --------------------------------------------------------------------- */

enum { B = 3, T = 83, N = 37 };

/* In parts of `size` tokens, each from the last inputs of the one before. */
static dra_value in_parts(dra_graph *g, const dra_value *in, int size, dra_value *last)
{
    dra_value part[T];
    int       n = 0;
    *last = in[3];
    for (int t = 0; t < T; t += size) {
        const int       tokens = T - t < size ? T - t : size;
        const dra_value x = dra_slice(g, in[0], 1, t, tokens);
        const dra_value mark = dra_slice(g, in[4], 1, t, tokens);
        part[n++] = dra_conv(g, x, in[1], in[2], *last, mark, last);
    }
    return dra_concat(g, n, part, 1);
}

static void compare_parts(int taps, int size, const char *level)
{
    static dra_real x[B * T * N], w[N * 8], bias[N], start[B * 7 * N];
    static int32_t  mark[B * T];
    uint64_t        seed = 5;
    dra_graph      *g = check_graph();
    dra_value       last, other;
    const dra_value in[] = {
        check_real(g, "x", DRA_SHAPE(B, T, N)), check_real(g, "w", DRA_SHAPE(N, taps)),
        check_real(g, "bias", DRA_SHAPE(N)), check_real(g, "start", DRA_SHAPE(B, taps - 1, N)),
        dra_input(g, "mark", DRA_I32, DRA_SHAPE(B, T))};
    for (int i = 0; i < B * T * N; i++) x[i] = (dra_real)(2 * check_random(&seed) - 1);
    for (int i = 0; i < N * 8; i++) w[i] = (dra_real)(2 * check_random(&seed) - 1);
    for (int i = 0; i < N; i++) bias[i] = (dra_real)check_random(&seed);
    for (int i = 0; i < B * 7 * N; i++) start[i] = (dra_real)check_random(&seed);
    for (int i = 0; i < B * T; i++) {
        const int drawn = (int)(16 * check_random(&seed)) - 12;
        mark[i] = drawn < 0 ? 0 : drawn;
    }
    dra_output(g, "whole", dra_conv(g, in[0], in[1], in[2], in[3], in[4], &last));
    dra_output(g, "parts", in_parts(g, in, size, &other));
    dra_output(g, "last", last);
    dra_output(g, "other", other);
    dra_program *program;
    dra_buffers *buffers;
    dra_error    err;
    assert_int_equal(dra_compile(g, check_device(2, level), &program, &err), DRA_OK);
    assert_int_equal(dra_buffers_create(program, &buffers, &err), DRA_OK);
    check_program p = {program, buffers};
    check_bind(&p, "x", x, sizeof x);
    check_bind(&p, "w", w, sizeof *w * (size_t)(N * taps));
    check_bind(&p, "bias", bias, sizeof bias);
    check_bind(&p, "start", start, sizeof *start * (size_t)(B * (taps - 1) * N));
    check_bind(&p, "mark", mark, sizeof mark);
    check_run(&p);
    assert_memory_equal(check_result(&p, "whole"), check_result(&p, "parts"), sizeof x);
    assert_memory_equal(check_result(&p, "last"), check_result(&p, "other"),
                        sizeof *start * (size_t)(B * (taps - 1) * N));
    check_free(&p);
    dra_graph_destroy(g);
}

static void parts_give_the_same_bits(void **unused)
{
    static const int sizes[] = {1, 2, 3, 17, T - 1}, taps[] = {2, 3, 4, 7};
    for (size_t l = 0; dra_device_level_at(l); l++)
        for (size_t i = 0; i < COUNT(sizes); i++)
            for (size_t k = 0; k < COUNT(taps); k++)
                compare_parts(taps[k], sizes[i], dra_device_level_at(l));
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuses_wrong_shapes(void **unused)
{
    static const dra_shape wrong[] = {{2, {5, 4}}, {2, {4, 0}}, {2, {4, 9}}, {1, {4}}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        dra_graph *g = check_graph();
        dra_value  x = check_real(g, "x", DRA_SHAPE(2, 3, 4));
        assert_int_equal(dra_conv(g, x, check_real(g, "w", wrong[i]), none, none, none, NULL).id,
                         0);
        assert_int_equal(dra_graph_error(g)->code, DRA_ERR_SHAPE);
        assert_non_null(strstr(dra_graph_error(g)->text, "conv: "));
        dra_graph_destroy(g);
    }
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2, 3, 4)), w = check_real(g, "w", DRA_SHAPE(4, 4));
    dra_conv(g, x, w, none, w, none, NULL);
    check_refused(g, DRA_ERR_SHAPE, "conv: start is " REAL " (4, 4), expected " REAL " (2, 3, 4)");
}

static void refuses_wrong_types(void **unused)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2, 3, 4)), last = x;
    dra_value  w = check_real(g, "w", DRA_SHAPE(4, 2));
    dra_value  mark = check_real(g, "mark", DRA_SHAPE(2, 3));
    assert_int_equal(dra_conv(g, x, w, none, none, mark, &last).id, 0);
    assert_int_equal(last.id, 0);
    check_refused(g, DRA_ERR_DTYPE, "conv: mark is " REAL " (2, 3), expected i32 (2, 3)");
}

int main(void)
{
    const check_spec specs[] = {
        {"conv", 2, build, oracle, cases, COUNT(cases)},
        {"conv, last alone", 1, build_last, oracle_last, last_cases, COUNT(last_cases)},
    };
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_give_the_same_bits),
                                       cmocka_unit_test(refuses_wrong_shapes),
                                       cmocka_unit_test(refuses_wrong_types)};
    return check_main("conv", specs, COUNT(specs), tests, COUNT(tests));
}
