/* The wkv of RWKV-4 against its formula in double; parts of a sequence against the whole; the step
 * against four exponentials. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/recurrent/wkv_loops.h"

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const dra_value none;

/* ---- the formula ----------------------------------------------------------------------------- */

enum { K, V, W, U, INPUTS }; /* then A, B, p and marks as far as they are there */

typedef struct args { /* numbers of inputs; 0: none */
    int start, mark;
} args;

/* y, e^p A and e^p B: things that do not depend on the choice of p, so that differences see what
 * the gradient at fixed p means. */
static void build(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    const args *a = p;
    dra_value   last[3];
    out[0] = dra_wkv(g, in[K], in[V], in[W], in[U], a->start ? in + a->start : NULL,
                     a->mark ? in[a->mark] : none, last);
    const dra_value scale = dra_exp(g, dra_stop_gradient(g, last[2]));
    for (int i = 0; i < 2; i++) out[1 + i] = dra_mul(g, last[i], scale);
}

/* One channel of one row of the batch. a and b are e^p A and e^p B: cases keep them in range. */
static void walk(const args *o, const check_tensor *in, int64_t row, int64_t c, check_tensor *out)
{
    const int64_t       T = in[K].shape.dim[1], C = in[K].shape.dim[2], state = row * C + c;
    const double        w = in[W].at[c], u = in[U].at[c];
    const check_tensor *start = o->start ? in + o->start : NULL;
    const double        p = start ? exp(start[2].at[state]) : 0;
    double a = start ? p * start[0].at[state] : 0, b = start ? p * start[1].at[state] : 0;
    for (int64_t t = 0; t < T; t++) {
        const int    mark = o->mark ? (int)in[o->mark].at[row * T + t] : 0;
        const double k = in[K].at[(row * T + t) * C + c], v = in[V].at[(row * T + t) * C + c];
        if (mark & DRA_MARK_RESET) a = b = 0;
        if (mark & DRA_MARK_PAD) continue;
        out[0].at[(row * T + t) * C + c] = (a + exp(u + k) * v) / (b + exp(u + k));
        a = exp(w) * a + exp(k) * v;
        b = exp(w) * b + exp(k);
    }
    out[1].at[state] = a;
    out[2].at[state] = b;
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    const int64_t C = in[K].shape.dim[2];
    for (int64_t i = 0; i < in[K].shape.dim[0] * C; i++) walk(a, in, i / C, i % C, out);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* clang-format off: it does not know that these are initialisers */
#define INPUT(B, T, C)                                                                             \
    {{3, {B, T, C}}, .lo = -2, .hi = 2}, {{3, {B, T, C}}}, {{1, {C}}, .lo = -1.5, .hi = -0.01},    \
    {                                                                                              \
        {                                                                                          \
            1, { C }                                                                               \
        }                                                                                          \
    }
#define START(B, C)                                                                                \
    {{2, {B, C}}}, {{2, {B, C}}, .lo = 0.5, .hi = 2}, { {2, {B, C}}, .constant = true }
#define MARKS(B, T)                                                                                \
    {                                                                                              \
        {2, {B, T}}, CHECK_I32, .lo = 0, .hi = 3                                                   \
    }
/* clang-format on */

static const args plain = {0}, from = {.start = INPUTS}, marked = {INPUTS, INPUTS + 3},
                  only_marks = {.mark = INPUTS};
static const double pads[] = {1, 1, 1, 1, 1, 1}, resets[] = {0, 2, 3, 1, 3, 2};

static const check_case cases[] = {
    {"one value", 4, {INPUT(1, 1, 1)}, &plain},
    {"few tokens", 4, {INPUT(2, 7, 5)}, &plain},
    {"from a state", 7, {INPUT(2, 7, 5), START(2, 5)}, &from},
    {"marks", 8, {INPUT(3, 17, 5), START(3, 5), MARKS(3, 17)}, &marked},
    {"marks, empty at first", 5, {INPUT(3, 17, 5), MARKS(3, 17)}, &only_marks},
    {"all pads",
     8,
     {INPUT(2, 3, 5), START(2, 5), {{2, {2, 3}}, CHECK_I32, .values = pads}},
     &marked},
    {"resets of pads",
     8,
     {INPUT(2, 3, 5), START(2, 5), {{2, {2, 3}}, CHECK_I32, .values = resets}},
     &marked},
    {"no tokens", 7, {INPUT(2, 0, 5), START(2, 5)}, &from},
    {"no channels", 7, {INPUT(2, 3, 0), START(2, 0)}, &from},
    {"no batch", 7, {INPUT(0, 3, 5), START(0, 5)}, &from},
    {"several tiles and segments", 8, {INPUT(2, 70, 521), START(2, 521), MARKS(2, 70)}, &marked},
    {"wide tiles", 7, {INPUT(4, 33, 521), START(4, 521)}, &from},
    {"whole segments", 7, {INPUT(2, 128, 33), START(2, 33)}, &from},
};

/* ---- parts of a sequence --------------------------------------------------------------------- */

enum { B = 3, T = 83, C = 37, STATE = B * C };

typedef struct data {
    dra_real k[B * T * C], v[B * T * C], w[C], u[C], start[3][STATE];
    int32_t  mark[B * T];
} data;

static void fill(int n, dra_real *x, double lo, double hi, uint64_t *seed)
{
    for (int i = 0; i < n; i++) x[i] = (dra_real)(lo + (hi - lo) * check_random(seed));
}

static data *make_data(void)
{
    static data d;
    uint64_t    seed = 4;
    fill(B * T * C, d.k, -30, 30, &seed);
    fill(B * T * C, d.v, -1, 1, &seed);
    fill(C, d.w, -2, -0.001, &seed);
    fill(C, d.u, -3, 3, &seed);
    for (int i = 0; i < 3; i++) fill(STATE, d.start[i], 1, 2, &seed);
    for (int i = 0; i < B * T; i++) {
        const int draw = (int)(16 * check_random(&seed)) - 12;
        d.mark[i] = draw < 0 ? 0 : draw;
    }
    return &d;
}

/* Rows b.. and tokens first.. of x (B, T, wide), dense. */
static void *cut(const void *x, size_t wide, int b, int rows, int first, int n)
{
    unsigned char *part = malloc((size_t)(rows * n) * wide + 1);
    for (int r = 0; r < rows; r++)
        memcpy(part + (size_t)(r * n) * wide,
               (const unsigned char *)x + (size_t)((b + r) * T + first) * wide, (size_t)n * wide);
    return part;
}

static check_program compile_part(const char *level, int rows, int n)
{
    static const char *const names[] = {"A", "B", "p"};
    dra_graph               *g = check_graph();
    dra_value                start[3], last[3], k = check_real(g, "k", DRA_SHAPE(rows, n, C));
    dra_value                v = check_real(g, "v", DRA_SHAPE(rows, n, C));
    dra_value     w = check_real(g, "w", DRA_SHAPE(C)), u = check_real(g, "u", DRA_SHAPE(C));
    dra_value     mark = dra_input(g, "mark", DRA_I32, DRA_SHAPE(rows, n));
    check_program p = {0};
    dra_error     err;
    for (int i = 0; i < 3; i++) start[i] = check_real(g, names[i], DRA_SHAPE(rows, C));
    dra_output(g, "y", dra_wkv(g, k, v, w, u, start, mark, last));
    for (int i = 0; i < 3; i++)
        dra_output(g, (const char *[]){"last A", "last B", "last p"}[i], last[i]);
    assert_int_equal(dra_compile(g, check_device(2, level), &p.program, &err), DRA_OK);
    assert_int_equal(dra_buffers_create(p.program, &p.buffers, &err), DRA_OK);
    dra_graph_destroy(g);
    return p;
}

/* Tokens first..first+n-1 of `rows` rows from row b on; the state of these is read and written. */
static void run_part(data *d, const char *level, int b, int rows, int first, int n,
                     dra_real (*state)[STATE], dra_real *y)
{
    static const char *const names[] = {"A", "B", "p"}, *const lasts[] = {"last A", "last B",
                                                                          "last p"};
    const size_t  tokens = (size_t)(rows * n), wide = C * sizeof(dra_real);
    check_program p = compile_part(level, rows, n);
    void         *k = cut(d->k, wide, b, rows, first, n), *v = cut(d->v, wide, b, rows, first, n);
    void         *mark = cut(d->mark, sizeof *d->mark, b, rows, first, n);
    check_bind(&p, "k", k, tokens * wide);
    check_bind(&p, "v", v, tokens * wide);
    check_bind(&p, "w", d->w, sizeof d->w);
    check_bind(&p, "u", d->u, sizeof d->u);
    check_bind(&p, "mark", mark, tokens * sizeof *d->mark);
    for (int i = 0; i < 3; i++) check_bind(&p, names[i], state[i] + b * C, (size_t)rows * wide);
    check_run(&p);
    for (int i = 0; i < 3; i++)
        memcpy(state[i] + b * C, check_result(&p, lasts[i]), (size_t)rows * wide);
    for (int r = 0; r < rows; r++)
        memcpy(y + ((b + r) * T + first) * C, check_result(&p, "y") + r * n * C, (size_t)n * wide);
    check_free(&p);
    free(k);
    free(v);
    free(mark);
}

/* In parts of `size` tokens, all rows at once or each alone, the same bits. */
static void compare_parts(data *d, const char *level, int size, bool alone)
{
    static dra_real whole[B * T * C], parts[B * T * C], state[3][STATE], other[3][STATE];
    memcpy(state, d->start, sizeof state);
    memcpy(other, d->start, sizeof other);
    run_part(d, level, 0, B, 0, T, state, whole);
    for (int first = 0; first < T; first += size) {
        const int n = T - first < size ? T - first : size;
        for (int b = 0; b < B; b += alone ? 1 : B)
            run_part(d, level, b, alone ? 1 : B, first, n, other, parts);
    }
    assert_memory_equal(whole, parts, sizeof whole);
    assert_memory_equal(state, other, sizeof state);
}

static void parts_give_the_same_bits(void **unused)
{
    static const int sizes[] = {1, 2, 17, T - 1, T};
    data            *d = make_data();
    for (size_t l = 0; dra_device_level_at(l); l++)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            compare_parts(d, dra_device_level_at(l), sizes[i], false);
            compare_parts(d, dra_device_level_at(l), sizes[i], true);
        }
}

/* ---- far out --------------------------------------------------------------------------------- */

enum { LONG = 70 };

/* Values of the stable step in double, with all four exponentials. */
static void stable_steps(const dra_real *k, const dra_real *v, double w, double u, double *y)
{
    double A = 0, b = 0, p = -1e30;
    for (int t = 0; t < LONG; t++) {
        const double kt = (double)k[t], vt = (double)v[t], q = fmax(p, u + kt);
        y[t] = (exp(p - q) * A + exp(u + kt - q) * vt) / (exp(p - q) * b + exp(u + kt - q));
        const double m = fmax(p + w, kt);
        A = exp(p + w - m) * A + exp(kt - m) * vt;
        b = exp(p + w - m) * b + exp(kt - m);
        p = m;
    }
}

/* Keys of +-200 overflow e^k; nothing becomes NaN, forward or backward. */
static void keys_far_out(void **unused)
{
    static dra_real k[LONG], v[LONG], up[LONG], w[] = {-0.25}, u[] = {0.5};
    static double   want[LONG];
    dra_graph      *g = check_graph();
    const dra_shape tokens = DRA_SHAPE(1, LONG, 1), channel = DRA_SHAPE(1);
    dra_value       in[] = {check_real(g, "k", tokens), check_real(g, "v", tokens),
                            check_real(g, "w", channel), check_real(g, "u", channel)};
    dra_value       y = dra_wkv(g, in[0], in[1], in[2], in[3], NULL, none, NULL), dx[4];
    dra_value       dy = check_real(g, "dy", DRA_SHAPE(1, LONG, 1));
    dra_gradient(g, 1, &y, &dy, 4, in, dx);
    dra_output(g, "y", y);
    for (int i = 0; i < 4; i++) dra_output(g, (const char *[]){"dk", "dv", "dw", "du"}[i], dx[i]);
    check_program p = check_compile(g, 2);
    uint64_t      seed = 5;
    fill(LONG, k, -200, 200, &seed);
    fill(LONG, v, -1, 1, &seed);
    fill(LONG, up, -1, 1, &seed);
    check_bind(&p, "k", k, sizeof k);
    check_bind(&p, "v", v, sizeof v);
    check_bind(&p, "w", w, sizeof w);
    check_bind(&p, "u", u, sizeof u);
    check_bind(&p, "dy", up, sizeof up);
    check_run(&p);
    stable_steps(k, v, (double)w[0], (double)u[0], want);
    check_close("y", LONG, check_result(&p, "y"), want, sizeof(dra_real) == 4 ? 1e-5 : 1e-12);
    for (int t = 0; t < LONG; t++) {
        assert_true(isfinite(check_result(&p, "dk")[t]));
        assert_true(isfinite(check_result(&p, "dv")[t]));
    }
    assert_true(isfinite(*check_result(&p, "dw")) && isfinite(*check_result(&p, "du")));
    check_free(&p);
}

/* ---- the step with four exponentials --------------------------------------------------------- */

/* The exponential as a level takes it: an element depends on its argument alone. */
static dra_real power(const dra_simd *simd, dra_real x)
{
    dra_real y;
    simd->exp_sum(1, &x, 0, &y);
    return y;
}

/* One of each pair of exponentials is e^0 = 1 exactly, so leaving it out changes no bit. */
static void two_exponentials_are_four(void **unused)
{
    enum { N = 200 };
    uint64_t seed = 6;
    dra_real p[N], k[N];
    fill(N, p, -40, 40, &seed);
    fill(N, k, -40, 40, &seed);
    p[0] = (dra_real)-1e30;
    p[1] = k[1];
    for (size_t l = 0; dra_simd_levels()[l]; l++) {
        const dra_simd *simd = dra_simd_levels()[l];
        for (int i = 0; i < N; i++) {
            const dra_real zero = 0, one = 1, q = p[i] > k[i] ? p[i] : k[i];
            dra_real       next[] = {1, 0, p[i]}; /* A, B, p */
            dra_wkv_loops_of(simd)->forward(
                &(dra_wkv_run){.n = 1,
                               .T = 1,
                               .k = &k[i],
                               .v = &zero,
                               .w = &zero,
                               .u = &one,
                               .state = {&next[0], &next[1], &next[2]}});
            const dra_real old = power(simd, p[i] - q), token = power(simd, k[i] - q);
            assert_memory_equal(&next[0], &old, sizeof old);     /* e1 1 + e2 0 */
            assert_memory_equal(&next[1], &token, sizeof token); /* e1 0 + e2 */
            assert_memory_equal(&next[2], &q, sizeof q);
        }
    }
}

/* ---- p is a constant to the gradient --------------------------------------------------------- */

static void p_has_no_gradient(void **unused)
{
    dra_graph *g = check_graph();
    dra_value  k = check_real(g, "k", DRA_SHAPE(1, 2, 3)), w = check_real(g, "w", DRA_SHAPE(3));
    dra_value  start[3], last[3], dk, dp[2];
    for (int i = 0; i < 3; i++)
        start[i] = check_real(g, (const char *[]){"A", "B", "p"}[i], DRA_SHAPE(1, 3));
    dra_value y = dra_wkv(g, k, k, w, w, start, none, last);
    dra_value dlast = check_real(g, "dlast", DRA_SHAPE(1, 3));
    dra_value dy = check_real(g, "dy", DRA_SHAPE(1, 2, 3));
    dra_gradient(g, 1, &last[2], &dlast, 1, &k, &dk);
    dra_gradient(g, 1, &y, &dy, 1, &start[2], dp);
    dra_output(g, "dk", dk);
    dra_output(g, "dp", dp[0]);
    check_program p = check_compile(g, 1);
    dra_real      numbers[6] = {1, 2, 3, 4, 5, 6};
    for (int i = 0; i < 7; i++)
        check_bind(&p, (const char *[]){"k", "w", "A", "B", "p", "dlast", "dy"}[i], numbers,
                   (i == 0 || i == 6 ? 6 : 3) * sizeof *numbers);
    check_run(&p);
    for (int i = 0; i < 6; i++) assert_true(check_result(&p, "dk")[i] == 0);
    for (int i = 0; i < 3; i++) assert_true(check_result(&p, "dp")[i] == 0);
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

typedef struct refusal {
    dra_shape   k, v, w, u, start, mark;
    dra_dtype   mark_dtype;
    dra_status  code;
    const char *text;
} refusal;

static void refuses(void **unused)
{
    static const refusal list[] = {
        {{2, {3, 4}},
         {2, {3, 4}},
         {1, {4}},
         {1, {4}},
         {2, {2, 4}},
         {2, {2, 3}},
         DRA_I32,
         DRA_ERR_SHAPE,
         "wkv: k is " REAL " (3, 4), expected (B, T, C)"},
        {{3, {2, 3, 4}},
         {3, {2, 3, 5}},
         {1, {4}},
         {1, {4}},
         {2, {2, 4}},
         {2, {2, 3}},
         DRA_I32,
         DRA_ERR_SHAPE,
         "wkv: v is " REAL " (2, 3, 5), expected " REAL " (2, 3, 4)"},
        {{3, {2, 3, 4}},
         {3, {2, 3, 4}},
         {1, {1}},
         {1, {4}},
         {2, {2, 4}},
         {2, {2, 3}},
         DRA_I32,
         DRA_ERR_SHAPE,
         "wkv: w is " REAL " (1), expected " REAL " (4)"},
        {{3, {2, 3, 4}},
         {3, {2, 3, 4}},
         {1, {4}},
         {2, {1, 4}},
         {2, {2, 4}},
         {2, {2, 3}},
         DRA_I32,
         DRA_ERR_SHAPE,
         "wkv: u is " REAL " (1, 4), expected " REAL " (4)"},
        {{3, {2, 3, 4}},
         {3, {2, 3, 4}},
         {1, {4}},
         {1, {4}},
         {2, {1, 4}},
         {2, {2, 3}},
         DRA_I32,
         DRA_ERR_SHAPE,
         "wkv: start A is " REAL " (1, 4), expected " REAL " (2, 4)"},
        {{3, {2, 3, 4}},
         {3, {2, 3, 4}},
         {1, {4}},
         {1, {4}},
         {2, {2, 4}},
         {2, {3, 2}},
         DRA_I32,
         DRA_ERR_SHAPE,
         "wkv: mark is i32 (3, 2), expected i32 (2, 3)"},
        {{3, {2, 3, 4}},
         {3, {2, 3, 4}},
         {1, {4}},
         {1, {4}},
         {2, {2, 4}},
         {2, {2, 3}},
         DRA_BOOL,
         DRA_ERR_DTYPE,
         "wkv: mark is bool (2, 3), expected i32 (2, 3)"},
    };
    for (size_t i = 0; i < COUNT(list); i++) {
        const refusal  *r = &list[i];
        dra_graph      *g = check_graph();
        const dra_value s = check_real(g, "start", r->start), start[] = {s, s, s};
        dra_value       last[] = {s, s, s};
        assert_int_equal(dra_wkv(g, check_real(g, "k", r->k), check_real(g, "v", r->v),
                                 check_real(g, "w", r->w), check_real(g, "u", r->u), start,
                                 dra_input(g, "mark", r->mark_dtype, r->mark), last)
                             .id,
                         0);
        assert_int_equal(last[0].id + last[1].id + last[2].id, 0);
        check_refused(g, r->code, r->text);
    }
}

int main(void)
{
    const check_spec        specs[] = {{"wkv", 3, build, oracle, cases, COUNT(cases)}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_give_the_same_bits), cmocka_unit_test(keys_far_out),
        cmocka_unit_test(two_exponentials_are_four), cmocka_unit_test(p_has_no_gradient),
        cmocka_unit_test(refuses)};
    return check_main("wkv", specs, COUNT(specs), tests, COUNT(tests));
}
