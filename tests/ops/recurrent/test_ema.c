/* Running means against their formula in double; parts of a sequence against the whole. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const dra_value none;

/* ---- the formula ----------------------------------------------------------------------------- */

typedef struct args { /* options by number of input; 0: none, since that is x */
    int w, start, mark;
} args;

static dra_value option(const dra_value *in, int i) { return i ? in[i] : none; }

static void build(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    const args *a = p;
    out[0] = dra_ema(g, in[0], in[1], option(in, a->w), option(in, a->start), option(in, a->mark),
                     &out[1]);
}

static void build_last(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    dra_value both[2];
    build(g, p, in, both);
    out[0] = both[1];
}

/* One row of the batch, one timescale, one channel; x and y step by `wide` and `out`. */
typedef struct line {
    const double *x, *mark;
    int64_t       T, wide, out;
    double        r, w, m;
} line;

static double walk(line l, double *y)
{
    for (int64_t t = 0; t < l.T; t++) {
        const int mark = l.mark ? (int)l.mark[t] : 0;
        if (mark & DRA_MARK_RESET) l.m = 0;
        if (!(mark & DRA_MARK_PAD)) l.m += l.r * (l.x[t * l.wide] - l.m);
        if (y) y[t * l.out] += l.w * l.m;
    }
    return l.m;
}

static void walk_all(const args *a, const check_tensor *in, double *y, double *last)
{
    const int64_t *x = in[0].shape.dim, T = x[1], N = x[2], M = in[1].shape.dim[0];
    for (int64_t i = 0; i < x[0] * M * N; i++) {
        const int64_t b = i / N / M, s = i / N % M, n = i % N;
        const int64_t from = a->w ? b * T * N + n : (b * T * M + s) * N + n;
        const line    l = {.x = in[0].at + b * T * N + n,
                           .mark = a->mark ? in[a->mark].at + b * T : NULL,
                           .T = T,
                           .wide = N,
                           .out = a->w ? N : M * N,
                           .r = 1 / (1 + exp(in[1].at[s * N + n])),
                           .w = a->w ? in[a->w].at[s * N + n] : 1,
                           .m = a->start ? in[a->start].at[i] : 0};
        last[i] = walk(l, y ? y + from : NULL);
    }
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
#define SCALES(M, N)                                                                               \
    {                                                                                              \
        {2, {M, N}}, .lo = -3, .hi = 3                                                             \
    }
#define WEIGHTS(M, N)                                                                              \
    {                                                                                              \
        {                                                                                          \
            2, { M, N }                                                                            \
        }                                                                                          \
    }
#define START(B, M, N)                                                                             \
    {                                                                                              \
        {                                                                                          \
            3, { B, M, N }                                                                         \
        }                                                                                          \
    }
#define MARKS(B, T)                                                                                \
    {                                                                                              \
        {2, {B, T}}, CHECK_I32, .lo = 0, .hi = 3                                                   \
    }
/* clang-format on */

static const args plain = {0}, weighted = {.w = 2}, from = {.w = 2, .start = 3},
                  marked = {.w = 2, .start = 3, .mark = 4}, every = {.start = 2, .mark = 3},
                  all_pads = {.start = 2, .mark = 3};
static const double pads[] = {1, 1, 1, 1, 1, 1}, odd_bits[] = {4, 8, -4, 5, 6, 7};
static const double far_out[] = {-1000, 1000, -90, 90, 0};

static const check_case cases[] = {
    {"one value", 2, {X(1, 1, 1), SCALES(1, 1)}, &plain},
    {"every state", 2, {X(2, 3, 5), SCALES(2, 5)}, &plain},
    {"one timescale", 3, {X(2, 7, 5), SCALES(1, 5), WEIGHTS(1, 5)}, &weighted},
    {"three timescales", 3, {X(2, 7, 5), SCALES(3, 5), WEIGHTS(3, 5)}, &weighted},
    {"six timescales", 3, {X(2, 40, 5), SCALES(6, 5), WEIGHTS(6, 5)}, &weighted},
    {"every state of five", 2, {X(2, 40, 5), SCALES(5, 5)}, &plain},
    {"from a state", 4, {X(2, 7, 5), SCALES(2, 5), WEIGHTS(2, 5), START(2, 2, 5)}, &from},
    {"marks", 5, {X(3, 17, 5), SCALES(2, 5), WEIGHTS(2, 5), START(3, 2, 5), MARKS(3, 17)}, &marked},
    {"marks, every state", 4, {X(3, 17, 5), SCALES(3, 5), START(3, 3, 5), MARKS(3, 17)}, &every},
    {"all pads",
     4,
     {X(2, 3, 5), SCALES(2, 5), START(2, 2, 5), {{2, {2, 3}}, CHECK_I32, .values = pads}},
     &all_pads},
    {"bits nobody knows",
     4,
     {X(2, 3, 5), SCALES(2, 5), START(2, 2, 5), {{2, {2, 3}}, CHECK_I32, .values = odd_bits}},
     &every},
    {"no tokens", 4, {X(2, 0, 5), SCALES(2, 5), WEIGHTS(2, 5), START(2, 2, 5)}, &from},
    {"no channels", 4, {X(2, 3, 0), SCALES(2, 0), WEIGHTS(2, 0), START(2, 2, 0)}, &from},
    {"no batch", 4, {X(0, 3, 5), SCALES(2, 5), WEIGHTS(2, 5), START(0, 2, 5)}, &from},
    {"several tiles and segments",
     5,
     {X(2, 70, 521), SCALES(2, 521), WEIGHTS(2, 521), START(2, 2, 521), MARKS(2, 70)},
     &marked},
    {"wide tiles", 3, {X(4, 33, 521), SCALES(2, 521), WEIGHTS(2, 521)}, &weighted},
    {"whole segments", 4, {X(2, 128, 33), SCALES(1, 33), START(2, 1, 33), MARKS(2, 128)}, &every},
    {"decays far out",
     2,
     {X(2, 9, 5), {{2, {1, 5}}, .values = far_out}},
     &plain,
     .no_grad = true}, /* differences see nothing there; see below */
};

/* Only the last state is read, so y costs nothing and dy is missing. */
static const check_case last_cases[] = {
    {"weighted", 3, {X(2, 70, 5), SCALES(2, 5), WEIGHTS(2, 5)}, &weighted},
    {"marks", 5, {X(3, 17, 5), SCALES(2, 5), WEIGHTS(2, 5), START(3, 2, 5), MARKS(3, 17)}, &marked},
};

/* ---- parts of a sequence --------------------------------------------------------------------- */

enum { B = 3, T = 83, M = 2, N = 37, ROW = M * N };

typedef struct data {
    dra_real x[B * T * N], beta[M * N], w[M * N], start[B * ROW];
    int32_t  mark[B * T];
} data;

static data *make_data(void)
{
    static data d;
    uint64_t    seed = 3;
    for (int i = 0; i < B * T * N; i++) d.x[i] = (dra_real)(2 * check_random(&seed) - 1);
    for (int i = 0; i < ROW; i++) d.beta[i] = (dra_real)(8 * check_random(&seed) - 4);
    for (int i = 0; i < ROW; i++) d.w[i] = (dra_real)check_random(&seed);
    for (int i = 0; i < B * ROW; i++) d.start[i] = (dra_real)check_random(&seed);
    for (int i = 0; i < B * T; i++) d.mark[i] = (int32_t)(16 * check_random(&seed)) - 12;
    for (int i = 0; i < B * T; i++) d.mark[i] = d.mark[i] < 0 ? 0 : d.mark[i];
    return &d;
}

/* Tokens first..first+n-1 of `rows` rows from row b on; state is read and written. */
static void run_part(const data *d, const char *level, int b, int rows, int first, int n,
                     dra_real *state, dra_real *y)
{
    dra_graph *g = check_graph();
    dra_value  last, x = check_real(g, "x", DRA_SHAPE(rows, n, N));
    dra_value  beta = check_real(g, "beta", DRA_SHAPE(M, N));
    dra_value  w = check_real(g, "w", DRA_SHAPE(M, N));
    dra_value  start = check_real(g, "start", DRA_SHAPE(rows, M, N));
    dra_value  mark = dra_input(g, "mark", DRA_I32, DRA_SHAPE(rows, n));
    dra_output(g, "y", dra_ema(g, x, beta, w, start, mark, &last));
    dra_output(g, "last", last);
    dra_program *program;
    dra_buffers *buffers;
    dra_error    err;
    assert_int_equal(dra_compile(g, check_device(2, level), &program, &err), DRA_OK);
    assert_int_equal(dra_buffers_create(program, &buffers, &err), DRA_OK);
    check_program p = {program, buffers};
    dra_real     *part = malloc((size_t)(rows * n * N) * sizeof *part);
    int32_t      *marks = malloc((size_t)(rows * n) * sizeof *marks);
    for (int r = 0; r < rows; r++) {
        const int at = (b + r) * T + first;
        memcpy(part + r * n * N, d->x + at * N, (size_t)(n * N) * sizeof *part);
        memcpy(marks + r * n, d->mark + at, (size_t)n * sizeof *marks);
    }
    check_bind(&p, "x", part, (size_t)(rows * n * N) * sizeof *part);
    check_bind(&p, "beta", (void *)d->beta, sizeof d->beta);
    check_bind(&p, "w", (void *)d->w, sizeof d->w);
    check_bind(&p, "start", state, (size_t)(rows * ROW) * sizeof *state);
    check_bind(&p, "mark", marks, (size_t)(rows * n) * sizeof *marks);
    check_run(&p);
    memcpy(state, check_result(&p, "last"), (size_t)(rows * ROW) * sizeof *state);
    for (int r = 0; r < rows; r++)
        memcpy(y + ((b + r) * T + first) * N, check_result(&p, "y") + r * n * N,
               (size_t)(n * N) * sizeof *y);
    check_free(&p);
    dra_graph_destroy(g);
    free(part);
    free(marks);
}

/* In parts of `size` tokens, all rows at once or each alone, the same bits. */
static void compare_parts(const data *d, const char *level, int size, bool alone)
{
    static dra_real whole[B * T * N], parts[B * T * N], state[B * ROW], other[B * ROW];
    memcpy(state, d->start, sizeof state);
    memcpy(other, d->start, sizeof other);
    run_part(d, level, 0, B, 0, T, state, whole);
    for (int first = 0; first < T; first += size) {
        const int n = T - first < size ? T - first : size;
        for (int b = 0; b < B; b += alone ? 1 : B)
            run_part(d, level, b, alone ? 1 : B, first, n, other + b * ROW, parts);
    }
    assert_memory_equal(whole, parts, sizeof whole);
    assert_memory_equal(state, other, sizeof state);
}

static void parts_give_the_same_bits(void **unused)
{
    static const int sizes[] = {1, 2, 17, T - 1, T};
    const data      *d = make_data();
    for (size_t l = 0; dra_device_level_at(l); l++)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            compare_parts(d, dra_device_level_at(l), sizes[i], false);
            compare_parts(d, dra_device_level_at(l), sizes[i], true);
        }
}

/* ---- far out --------------------------------------------------------------------------------- */

/* beta = -1000 forgets all, 1000 forgets nothing and learns nothing; no gradient is NaN. */
static void decays_far_out(void **unused)
{
    enum { LONG = 70 };
    static dra_real x[LONG * 2], up[LONG * 2], beta[] = {-1000, 1000}, start[] = {5, 5};
    dra_graph      *g = check_graph();
    dra_value       in[] = {check_real(g, "x", DRA_SHAPE(1, LONG, 2)),
                            check_real(g, "beta", DRA_SHAPE(1, 2)),
                            check_real(g, "start", DRA_SHAPE(1, 1, 2))};
    dra_value       y = dra_reshape(g, dra_ema(g, in[0], in[1], none, in[2], none, NULL),
                                    DRA_SHAPE(1, LONG, 2));
    dra_value       dy = check_real(g, "dy", DRA_SHAPE(1, LONG, 2)), dx[3];
    dra_gradient(g, 1, &y, &dy, 3, in, dx);
    dra_output(g, "y", y);
    dra_output(g, "dx", dx[0]);
    dra_output(g, "dbeta", dx[1]);
    dra_output(g, "dstart", dx[2]);
    check_program p = check_compile(g, 2);
    for (int i = 0; i < 2 * LONG; i++) x[i] = (dra_real)(i % 7), up[i] = 1;
    check_bind(&p, "x", x, sizeof x);
    check_bind(&p, "beta", beta, sizeof beta);
    check_bind(&p, "start", start, sizeof start);
    check_bind(&p, "dy", up, sizeof up);
    check_run(&p);
    for (int t = 0; t < LONG; t++) {
        assert_true(check_result(&p, "y")[2 * t] == x[2 * t]);
        assert_true(check_result(&p, "y")[2 * t + 1] == 5);
        assert_true(check_result(&p, "dx")[2 * t] == 1);
        assert_true(check_result(&p, "dx")[2 * t + 1] == 0);
    }
    for (int i = 0; i < 2; i++) assert_true(check_result(&p, "dbeta")[i] == 0);
    assert_true(check_result(&p, "dstart")[0] == 0);
    assert_true(check_result(&p, "dstart")[1] == LONG);
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

static dra_value reals(dra_graph *g, dra_shape shape) { return check_real(g, "real", shape); }

static void refuses_wrong_shapes(void **unused)
{
    dra_graph *g = check_graph();
    dra_value  flat = reals(g, DRA_SHAPE(3, 4)), beta = check_real(g, "beta", DRA_SHAPE(2, 4));
    assert_int_equal(dra_ema(g, flat, beta, none, none, none, NULL).id, 0);
    check_refused(g, DRA_ERR_SHAPE,
                  "ema: x is " REAL " (3, 4), beta " REAL
                  " (2, 4), expected (B, T, N) and (M, N), M > 0");

    g = check_graph();
    dra_ema(g, reals(g, DRA_SHAPE(2, 3, 4)), check_real(g, "beta", DRA_SHAPE(0, 4)), none, none,
            none, NULL);
    check_refused(g, DRA_ERR_SHAPE,
                  "ema: x is " REAL " (2, 3, 4), beta " REAL
                  " (0, 4), expected (B, T, N) and (M, N), M > 0");

    g = check_graph();
    dra_ema(g, reals(g, DRA_SHAPE(2, 3, 4)), check_real(g, "beta", DRA_SHAPE(2, 5)), none, none,
            none, NULL);
    check_refused(g, DRA_ERR_SHAPE, "ema: beta is " REAL " (2, 5), expected " REAL " (2, 4)");

    g = check_graph();
    beta = check_real(g, "beta", DRA_SHAPE(2, 4));
    dra_ema(g, reals(g, DRA_SHAPE(2, 3, 4)), beta, check_real(g, "w", DRA_SHAPE(4)), none, none,
            NULL);
    check_refused(g, DRA_ERR_SHAPE, "ema: w is " REAL " (4), expected " REAL " (2, 4)");

    g = check_graph();
    beta = check_real(g, "beta", DRA_SHAPE(2, 4));
    dra_ema(g, reals(g, DRA_SHAPE(5, 3, 4)), beta, none, beta, none, NULL);
    check_refused(g, DRA_ERR_SHAPE, "ema: start is " REAL " (2, 4), expected " REAL " (5, 2, 4)");
}

static void refuses_wrong_types(void **unused)
{
    dra_graph *g = check_graph();
    dra_value  x = reals(g, DRA_SHAPE(2, 3, 4)), last = x;
    dra_value  beta = check_real(g, "beta", DRA_SHAPE(2, 4));
    dra_value  mark = check_real(g, "mark", DRA_SHAPE(2, 3));
    assert_int_equal(dra_ema(g, x, beta, none, none, mark, &last).id, 0);
    assert_int_equal(last.id, 0);
    check_refused(g, DRA_ERR_DTYPE, "ema: mark is " REAL " (2, 3), expected i32 (2, 3)");

    g = check_graph();
    dra_ema(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(2, 3, 4)),
            check_real(g, "beta", DRA_SHAPE(2, 4)), none, none, none, NULL);
    check_refused(g, DRA_ERR_DTYPE, "ema: x is i32 (2, 3, 4), expected " REAL " (2, 3, 4)");
}

int main(void)
{
    const check_spec specs[] = {
        {"ema", 2, build, oracle, cases, COUNT(cases)},
        {"ema, last alone", 1, build_last, oracle_last, last_cases, COUNT(last_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_give_the_same_bits), cmocka_unit_test(decays_far_out),
        cmocka_unit_test(refuses_wrong_shapes), cmocka_unit_test(refuses_wrong_types)};
    return check_main("ema", specs, COUNT(specs), tests, COUNT(tests));
}
