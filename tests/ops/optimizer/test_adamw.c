/* The optimizer against its formulas in double: single steps, five steps in place, two groups with
 * clipping. */
#include "check.h"

#include <math.h>
#include <string.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#define TOLERANCE 1e-12
#else
#define REAL "f32"
#define TOLERANCE 1e-5
#endif

static const dra_adamw_config usual = {0.9, 0.999, 1e-8, 0.1};
static const dra_adamw_config plain = {0.9, 0.95, 1e-8, 0};
static const dra_adamw_config no_memory = {0, 0, 1e-3, 0.01};

/* ---- norm and clipping ----------------------------------------------------------------------- */

static void build_norm(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    out[0] = dra_global_norm(g, *(const int *)args, in);
}

static void oracle_norm(const void *args, const check_tensor *in, check_tensor *out)
{
    double sum = 0;
    for (int i = 0; i < *(const int *)args; i++)
        for (int64_t k = 0; k < in[i].count; k++) sum += in[i].at[k] * in[i].at[k];
    out->at[0] = sqrt(sum);
}

static const int        numbers[] = {0, 1, 2, 3};
static const check_case norm_cases[] = {
    {"three values", 3, {{{2, {3, 5}}}, {{1, {7}}}, {{0}}}, &numbers[3], .no_grad = true},
    {"one value", 1, {{{1, {1}}}}, &numbers[1], .no_grad = true},
    {"nothing inside", 2, {{{2, {0, 8}}}, {{1, {3}}}}, &numbers[2], .no_grad = true},
    {"no values", 0, {{{0}}}, &numbers[0], .no_grad = true},
    {"several tiles", 1, {{{2, {130, 257}}}}, &numbers[1], .no_grad = true},
};

static void build_clip(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    out[0] = dra_clip_factor(g, in[0], *(const double *)args);
}

static void oracle_clip(const void *args, const check_tensor *in, check_tensor *out)
{
    const double ratio = *(const double *)args / (in[0].at[0] + 1e-6);
    out->at[0] = ratio >= 1 ? 1 : ratio; /* NaN stays: a broken gradient must not pass unseen */
}

static const double     limits[] = {1, 0.25};
static const check_case clip_cases[] = {
    {"above", 1, {{{0}, .values = (const double[]){8}}}, &limits[0], .no_grad = true},
    {"below", 1, {{{0}, .values = (const double[]){0.5}}}, &limits[0], .no_grad = true},
    {"other limit", 1, {{{0}, .values = (const double[]){0.5}}}, &limits[1], .no_grad = true},
    {"zero", 1, {{{0}, .values = (const double[]){0}}}, &limits[0], .no_grad = true},
    {"infinite", 1, {{{0}, .values = (const double[]){INFINITY}}}, &limits[0], .no_grad = true},
    {"not a number", 1, {{{0}, .values = (const double[]){NAN}}}, &limits[0], .no_grad = true},
};

/* ---- one step -------------------------------------------------------------------------------- */

/* p, m and v move on. */
static void step(const dra_adamw_config *a, int64_t n, double *p, double *m, double *v,
                 const double *dp, double rate, double s, double t)
{
    for (int64_t i = 0; i < n; i++) {
        const double d = s * dp[i];
        m[i] = a->beta1 * m[i] + (1 - a->beta1) * d;
        v[i] = a->beta2 * v[i] + (1 - a->beta2) * d * d;
        const double m_hat = m[i] / (1 - pow(a->beta1, t)), v_hat = v[i] / (1 - pow(a->beta2, t));
        p[i] -= rate * (a->decay * p[i] + m_hat / (sqrt(v_hat) + a->eps));
    }
}

static void build_step(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const dra_adamw_result r = dra_adamw(g, in[0], in[1], in[2], in[3], in[4], in[5], in[6], args);
    out[0] = r.p;
    out[1] = r.m;
    out[2] = r.v;
}

static void oracle_step(const void *args, const check_tensor *in, check_tensor *out)
{
    static const int from[] = {0, 2, 3};
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < out[i].count; k++) out[i].at[k] = in[from[i]].at[k];
    step(args, in[0].count, out[0].at, out[1].at, out[2].at, in[1].at, in[4].at[0], in[5].at[0],
         in[6].at[0]);
}

/* Inputs: p, dp, m, v >= 0, rate, s, t. */
#define STEP(...)                                                                                  \
    {                                                                                              \
        {{__VA_ARGS__}}, {{__VA_ARGS__}}, {{__VA_ARGS__}}, {{__VA_ARGS__}, .lo = 0.1, .hi = 1},    \
            {{0}, .lo = 0.01, .hi = 0.02}, {{0}, .lo = 0.5, .hi = 1},                              \
        {                                                                                          \
            {0}, CHECK_I32, .lo = 1, .hi = 9                                                       \
        }                                                                                          \
    }

static const check_case step_cases[] = {
    {"odd width", 7, STEP(3, {2, 3, 17}), &usual, .no_grad = true},
    {"one value", 7, STEP(1, {1}), &usual, .no_grad = true},
    {"scalar", 7, STEP(0), &usual, .no_grad = true},
    {"nothing", 7, STEP(2, {0, 8}), &usual, .no_grad = true},
    {"several tiles", 7, STEP(2, {130, 257}), &usual, .no_grad = true},
    {"no decay", 7, STEP(2, {3, 5}), &plain, .no_grad = true},
    {"no memory", 7, STEP(2, {3, 5}), &no_memory, .no_grad = true},
    {"late",
     7,
     {{{1, {5}}},
      {{1, {5}}},
      {{1, {5}}},
      {{1, {5}}, .lo = 0.1, .hi = 1},
      {{0}, .lo = 0.01, .hi = 0.02},
      {{0}, .lo = 0.5, .hi = 1},
      {{0}, CHECK_I32, .values = (const double[]){2147483647}}},
     &usual,
     .no_grad = true},
};

/* ---- five steps of two groups, in place, clipped --------------------------------------------- */

enum { GROUPS = 2, SIZE = 35, STEPS = 5 };
static const double limit = 0.7;

typedef struct group { /* the caller's memory, and the same in double */
    dra_real p[SIZE], m[SIZE], v[SIZE], dp[SIZE];
    double   want_p[SIZE], want_m[SIZE], want_v[SIZE], want_dp[SIZE];
} group;

static const char *const names[GROUPS][4] = {{"p0", "m0", "v0", "dp0"}, {"p1", "m1", "v1", "dp1"}};

/* Matrices decay, vectors do not. */
static const dra_adamw_config configs[GROUPS] = {{0.9, 0.99, 1e-8, 0.1}, {0.9, 0.99, 1e-8, 0}};

static dra_graph *training_step(void)
{
    dra_graph      *g = check_graph();
    const dra_shape shapes[GROUPS] = {DRA_SHAPE(5, 7), DRA_SHAPE(SIZE)};
    dra_value       p[GROUPS], m[GROUPS], v[GROUPS], dp[GROUPS];
    dra_value       rate = check_real(g, "rate", (dra_shape){0});
    dra_value       t = dra_input(g, "t", DRA_I32, (dra_shape){0});
    for (int i = 0; i < GROUPS; i++) {
        p[i] = dra_parameter(g, names[i][0], DRA_REAL, shapes[i]);
        m[i] = dra_state(g, names[i][1], DRA_REAL, shapes[i]);
        v[i] = dra_state(g, names[i][2], DRA_REAL, shapes[i]);
        dp[i] = check_real(g, names[i][3], shapes[i]);
    }
    const dra_value norm = dra_global_norm(g, GROUPS, dp);
    const dra_value s = dra_clip_factor(g, norm, limit);
    dra_output(g, "norm", norm);
    for (int i = 0; i < GROUPS; i++) {
        const dra_adamw_result r = dra_adamw(g, p[i], dp[i], m[i], v[i], rate, s, t, &configs[i]);
        dra_donate(g, names[i][0], r.p, p[i]);
        dra_donate(g, names[i][1], r.m, m[i]);
        dra_donate(g, names[i][2], r.v, v[i]);
    }
    return g;
}

static void start_group(group *k, uint64_t *seed)
{
    memset(k, 0, sizeof *k);
    for (int i = 0; i < SIZE; i++) {
        k->p[i] = (dra_real)(2 * check_random(seed) - 1);
        k->want_p[i] = (double)k->p[i];
    }
}

/* Every second step is small enough not to be clipped. */
static double new_gradient(group *k, int t, uint64_t *seed)
{
    double sum = 0;
    for (int i = 0; i < SIZE; i++) {
        k->dp[i] = (dra_real)((t % 2 ? 1 : 0.02) * (2 * check_random(seed) - 1));
        k->want_dp[i] = (double)k->dp[i];
        sum += k->want_dp[i] * k->want_dp[i];
    }
    return sum;
}

static void bind_group(check_program *p, int i, group *k)
{
    check_bind(p, names[i][0], k->p, sizeof k->p);
    check_bind(p, names[i][1], k->m, sizeof k->m);
    check_bind(p, names[i][2], k->v, sizeof k->v);
    check_bind(p, names[i][3], k->dp, sizeof k->dp);
}

static void trains_in_place(void **state)
{
    static group  groups[GROUPS];
    uint64_t      seed = 4;
    int32_t       t = 0;
    dra_real      rate = 0;
    check_program p = check_compile(training_step(), 2);
    for (int i = 0; i < GROUPS; i++) {
        start_group(&groups[i], &seed);
        bind_group(&p, i, &groups[i]);
    }
    check_bind(&p, "rate", &rate, sizeof rate);
    check_bind(&p, "t", &t, sizeof t);
    for (t = 1; t <= STEPS; t++) {
        double sum = 0;
        rate = (dra_real)(0.1 / t);
        for (int i = 0; i < GROUPS; i++) sum += new_gradient(&groups[i], t, &seed);
        const double norm = sqrt(sum), s = fmin(1, limit / (norm + 1e-6));
        assert_true(t % 2 ? s < 1 : s == 1);
        check_run(&p);
        check_close("norm", 1, check_result(&p, "norm"), &norm, TOLERANCE);
        for (int i = 0; i < GROUPS; i++) {
            group *k = &groups[i];
            step(&configs[i], SIZE, k->want_p, k->want_m, k->want_v, k->want_dp, (double)rate, s,
                 t);
            check_close(names[i][0], SIZE, k->p, k->want_p, TOLERANCE);
            check_close(names[i][1], SIZE, k->m, k->want_m, TOLERANCE);
            check_close(names[i][2], SIZE, k->v, k->want_v, TOLERANCE);
            assert_true(check_in_place(&p, names[i][0], names[i][0]));
        }
    }
    check_free(&p);
}

/* Nothing but the op itself: p, m and v are written in place. */
static void takes_no_memory(void **state)
{
    const dra_shape  shape = DRA_SHAPE(64, 64), one = {0};
    dra_graph       *g = check_graph();
    dra_value        p = dra_parameter(g, "p", DRA_REAL, shape);
    dra_value        m = dra_state(g, "m", DRA_REAL, shape), v = dra_state(g, "v", DRA_REAL, shape);
    dra_adamw_result r = dra_adamw(g, p, check_real(g, "dp", shape), m, v, check_real(g, "r", one),
                                   check_real(g, "s", one), dra_input(g, "t", DRA_I32, one),
                                   &usual);
    dra_donate(g, "p", r.p, p);
    dra_donate(g, "m", r.m, m);
    dra_donate(g, "v", r.v, v);
    dra_program *program = NULL;
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &program, NULL), DRA_OK);
    assert_int_equal(dra_program_memory(program).steps, 1);
    assert_int_equal(dra_program_memory(program).activations, 0);
    dra_program_destroy(program);
    dra_graph_destroy(g);
}

/* Only p' is read; m' and v' have no memory. */
static void skips_what_nobody_reads(void **state)
{
    const dra_shape shape = DRA_SHAPE(3), one = {0};
    dra_graph      *g = check_graph();
    dra_value       p = check_real(g, "p", shape), m = check_real(g, "m", shape);
    dra_value       v = check_real(g, "v", shape), rate = dra_number(g, 0.5), s = dra_number(g, 1);
    dra_output(g, "new",
               dra_adamw(g, p, check_real(g, "dp", shape), m, v, rate, s,
                         dra_input(g, "t", DRA_I32, one), &plain)
                   .p);
    dra_real      data[4][3] = {{1, 2, 3}, {0}, {0}, {1, 1, -1}};
    double        want[3] = {0.5, 1.5, 3.5}; /* the first step is rate times the sign */
    int32_t       t = 1;
    check_program q = check_compile(g, 1);
    check_bind(&q, "p", data[0], sizeof data[0]);
    check_bind(&q, "m", data[1], sizeof data[1]);
    check_bind(&q, "v", data[2], sizeof data[2]);
    check_bind(&q, "dp", data[3], sizeof data[3]);
    check_bind(&q, "t", &t, sizeof t);
    check_run(&q);
    check_close("p", 3, check_result(&q, "new"), want, 1e-5); /* eps is 1e-8 of the way */
    check_free(&q);
}

/* No gradient passes: of y = norm + clip + p' nothing reaches x. */
static void norm_and_clip_stop_gradients(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(3)), norm = dra_global_norm(g, 1, &x), dx;
    dra_value  y = dra_add(g, norm, dra_clip_factor(g, norm, 1));
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
    dra_output(g, "dx", dx);
    dra_real      data[] = {1, 2, 3};
    double        want[3] = {0};
    check_program p = check_compile(g, 1);
    check_bind(&p, "x", data, sizeof data);
    check_run(&p);
    check_close("dx", 3, check_result(&p, "dx"), want, 0);
    check_free(&p);
}

/* ---- refusals -------------------------------------------------------------------------------- */

typedef struct changes { /* of a call that is right */
    dra_shape               dp, rate, t;
    dra_dtype               t_dtype;
    bool                    no_m;
    const dra_adamw_config *config;
} changes;

static void check_wrong(changes k, dra_status code, const char *text)
{
    dra_graph             *g = check_graph();
    const dra_shape        shape = DRA_SHAPE(2, 3);
    dra_value              p = check_real(g, "p", shape), v = check_real(g, "v", shape);
    dra_value              m = k.no_m ? (dra_value){0} : check_real(g, "m", shape);
    const dra_adamw_result r = dra_adamw(
        g, p, check_real(g, "dp", k.dp.rank ? k.dp : shape), m, v, check_real(g, "rate", k.rate),
        check_real(g, "s", (dra_shape){0}), dra_input(g, "t", k.t_dtype, k.t), k.config);
    assert_int_equal(r.p.id | r.m.id | r.v.id, 0);
    check_refused(g, code, text);
}

static void refuses(void **state)
{
    const dra_dtype i32 = DRA_I32;
    check_wrong((changes){.dp = DRA_SHAPE(3, 2), .t_dtype = i32, .config = &usual}, DRA_ERR_SHAPE,
                "adamw: p " REAL " (2, 3) and dp " REAL " (3, 2) differ");
    check_wrong((changes){.rate = DRA_SHAPE(1), .t_dtype = i32, .config = &usual}, DRA_ERR_SHAPE,
                "adamw: rate " REAL " (1), expected a scalar");
    check_wrong((changes){.t_dtype = DRA_REAL, .config = &usual}, DRA_ERR_DTYPE,
                "adamw: t is " REAL ", expected i32");
    check_wrong((changes){.no_m = true, .t_dtype = i32, .config = &usual}, DRA_ERR_VALUE,
                "adamw: input 1 is the null value");
    check_wrong((changes){.t_dtype = i32}, DRA_ERR_VALUE, "adamw: needs a config");
    check_wrong((changes){.t_dtype = i32, .config = &(dra_adamw_config){0.9, 1, 1e-8, 0}},
                DRA_ERR_VALUE, "adamw: betas 0.9 and 1, expected 0 <= beta < 1");
    check_wrong((changes){.t_dtype = i32, .config = &(dra_adamw_config){0.9, 0.9, 1e-8, -1}},
                DRA_ERR_VALUE, "adamw: eps 1e-08, decay -1: expected 0 or more");
}

static void norm_and_clip_refuse(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x[] = {check_real(g, "x", DRA_SHAPE(3)), {0}};
    dra_global_norm(g, 2, x);
    check_refused(g, DRA_ERR_VALUE, "global_norm: input 1 is the null value");
    g = check_graph();
    x[0] = dra_input(g, "x", DRA_I32, DRA_SHAPE(3));
    dra_global_norm(g, 1, x);
    check_refused(g, DRA_ERR_DTYPE, "sum_squares: x is i32, expected " REAL);
    g = check_graph();
    dra_clip_factor(g, check_real(g, "norm", (dra_shape){0}), 0);
    check_refused(g, DRA_ERR_VALUE, "clip_factor: limit 0, expected more than 0");
    g = check_graph();
    dra_clip_factor(g, (dra_value){0}, 1);
    check_refused(g, DRA_ERR_VALUE, "clip_factor: input 0 is the null value");
}

static void names_a_wrong_step(void **state)
{
    const dra_shape shape = DRA_SHAPE(2), one = {0};
    dra_graph      *g = check_graph();
    dra_value       p = check_real(g, "p", shape);
    dra_output(g, "new",
               dra_adamw(g, p, p, p, p, dra_number(g, 1), dra_number(g, 1),
                         dra_input(g, "t", DRA_I32, one), &usual)
                   .p);
    dra_real      data[2] = {1, 1};
    int32_t       t = 0;
    dra_error     err = {0};
    check_program q = check_compile(g, 1);
    check_bind(&q, "p", data, sizeof data);
    check_bind(&q, "t", &t, sizeof t);
    assert_int_equal(check_try(&q, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "adamw: t is 0, expected 1 for the first step");
    t = 1;
    check_run(&q);
    check_free(&q);
}

int main(void)
{
    const check_spec specs[] = {
        {"global norm", 1, build_norm, oracle_norm, norm_cases, COUNT(norm_cases)},
        {"clip factor", 1, build_clip, oracle_clip, clip_cases, COUNT(clip_cases)},
        {"adamw", 3, build_step, oracle_step, step_cases, COUNT(step_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trains_in_place),
        cmocka_unit_test(takes_no_memory),
        cmocka_unit_test(skips_what_nobody_reads),
        cmocka_unit_test(norm_and_clip_stop_gradients),
        cmocka_unit_test(refuses),
        cmocka_unit_test(norm_and_clip_refuse),
        cmocka_unit_test(names_a_wrong_step),
    };
    return check_main("adamw", specs, COUNT(specs), tests, COUNT(tests));
}
