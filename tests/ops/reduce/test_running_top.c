/* The running maximum against its steps in double. */
#include "check.h"

#include <math.h>
#include <string.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const dra_value none;

/* ---- inputs top, then what `has` names, in the order l, s(tart), m(ark) ---------------------- */

static int place(const char *has, char letter) /* 0: none */
{
    const char *at = strchr(has, letter);
    return at ? 1 + (int)(at - has) : 0;
}

static void build(dra_graph *g, const void *has, const dra_value *in, dra_value *out)
{
    const int l = place(has, 'l'), s = place(has, 's'), m = place(has, 'm');
    out[0] = dra_running_top(g, in[0], l ? in[l] : none, s ? in[s] : none, m ? in[m] : none,
                             &out[1], &out[2]);
}

static void oracle(const void *has, const check_tensor *in, check_tensor *out)
{
    const int64_t B = in[0].shape.dim[0], T = in[0].shape.dim[1], H = in[0].shape.dim[2];
    const int     l = place(has, 'l'), s = place(has, 's'), m = place(has, 'm');
    for (int64_t i = 0; i < B * H; i++) {
        double mu = s ? in[s].at[i] : -1e30;
        for (int64_t t = 0; t < T; t++) {
            const int64_t at = (i / H * T + t) * H + i % H;
            const int     mark = m ? (int)in[m].at[i / H * T + t] : 0;
            const double  by = !l ? 0 : in[l].at[in[l].shape.rank == 1 ? i % H : at];
            const double  old = mark & DRA_MARK_RESET ? -1e30 : mu;
            mu = mark & DRA_MARK_PAD ? old : fmax(old + by, in[0].at[at]);
            out[0].at[at] = mu;
            out[1].at[at] = mark & DRA_MARK_PAD ? 0 : old - mu + by;
        }
        out[2].at[i] = mu;
    }
}

/* clang-format off */
#define TOPS(B, T, H)   {{3, {B, T, H}}, .lo = -2, .hi = 2}
#define DECAYS(B, T, H) {{3, {B, T, H}}, .lo = -1, .hi = 0}
#define EACH(H)         {{1, {H}}, .lo = -1, .hi = 0}
#define START(B, H)     {{2, {B, H}}, .lo = -2, .hi = 2}
#define MARKS(B, T)     {{2, {B, T}}, CHECK_I32, .lo = 0, .hi = 3}
/* clang-format on */

/* Differences would see the choice of mu, which is a constant to the gradient. */
static const check_case cases[] = {
    {"plain", 1, {TOPS(2, 5, 3)}, "", .no_grad = true},
    {"decays", 3, {TOPS(2, 9, 3), DECAYS(2, 9, 3), START(2, 3)}, "ls", .no_grad = true},
    {"a decay for each head", 3, {TOPS(2, 9, 3), EACH(3), START(2, 3)}, "ls", .no_grad = true},
    {"marks",
     4,
     {TOPS(2, 9, 3), DECAYS(2, 9, 3), START(2, 3), MARKS(2, 9)},
     "lsm",
     .no_grad = true},
    {"no tokens", 3, {TOPS(2, 0, 3), DECAYS(2, 0, 3), START(2, 3)}, "ls", .no_grad = true},
};

/* dl = dshift, but not at pads; top and start have none. */
static void only_decays_have_a_gradient(void **unused)
{
    enum { T = 4 };
    dra_real   top[T] = {1, 0, 3, 2}, l[T] = {-1, -2, -3, -4}, up[T] = {5, 6, 7, 8}, start[] = {2};
    int32_t    mark[T] = {0, 1, 2, 3};
    dra_graph *g = check_graph();
    dra_value  x[] = {check_real(g, "top", DRA_SHAPE(1, T, 1)),
                      check_real(g, "l", DRA_SHAPE(1, T, 1)),
                      check_real(g, "start", DRA_SHAPE(1, 1))};
    dra_value  marks = dra_input(g, "mark", DRA_I32, DRA_SHAPE(1, T)), y[2], dx[3], dy[2];
    y[0] = dra_running_top(g, x[0], x[1], x[2], marks, &y[1], NULL);
    for (int i = 0; i < 2; i++) dy[i] = check_real(g, i ? "up1" : "up0", DRA_SHAPE(1, T, 1));
    dra_gradient(g, 2, y, dy, 3, x, dx);
    for (int i = 0; i < 3; i++) dra_output(g, ((const char *[]){"dtop", "dl", "dstart"})[i], dx[i]);
    check_program p = check_compile(g, 1);
    check_bind(&p, "top", top, sizeof top);
    check_bind(&p, "l", l, sizeof l);
    check_bind(&p, "start", start, sizeof start);
    check_bind(&p, "mark", mark, sizeof mark);
    check_bind(&p, "up0", up, sizeof up);
    check_bind(&p, "up1", up, sizeof up);
    check_run(&p);
    for (int t = 0; t < T; t++) {
        assert_true(check_result(&p, "dtop")[t] == 0);
        assert_true(check_result(&p, "dl")[t] == (mark[t] & DRA_MARK_PAD ? 0 : up[t]));
    }
    assert_true(check_result(&p, "dstart")[0] == 0);
    check_free(&p);
}

/* Where mu only decays, what its rounding takes from l comes back in shift: sums under e^mu fade by
 * l, not by what is left of it when added to a large mu. */
static void shift_undoes_the_rounding(void **unused)
{
    enum { T = 1000 };
    static dra_real top[T], l[1] = {(dra_real)-1e-6};
    dra_graph      *g = check_graph();
    const dra_value in[] = {check_real(g, "top", DRA_SHAPE(1, T, 1)),
                            check_real(g, "l", DRA_SHAPE(1))};
    dra_value       shift, mu = dra_running_top(g, in[0], in[1], none, none, &shift, NULL);
    dra_output(g, "mu", mu);
    dra_output(g, "shift", shift);
    check_program p = check_compile(g, 1);
    double        sum = 0;
    top[0] = 50;
    check_bind(&p, "top", top, sizeof top);
    check_bind(&p, "l", l, sizeof l);
    check_run(&p);
    for (int t = 1; t < T; t++) sum += (double)check_result(&p, "shift")[t];
    sum += (double)check_result(&p, "mu")[T - 1] - (double)top[0]; /* by which it faded in truth */
    assert_true(fabs(sum - (T - 1) * (double)l[0]) < 1e-9);
    check_free(&p);
}

static void refuses_shapes(void **unused)
{
    dra_graph *g = check_graph();
    dra_value  shift = {1}, last = {1};
    dra_running_top(g, check_real(g, "top", DRA_SHAPE(2, 3)), none, none, none, &shift, &last);
    assert_true(!shift.id && !last.id);
    check_refused(g, DRA_ERR_SHAPE, "running_top: top is " REAL " (2, 3), expected (B, T, H)");
    g = check_graph();
    dra_running_top(g, check_real(g, "top", DRA_SHAPE(2, 3, 4)), none,
                    check_real(g, "start", DRA_SHAPE(4, 2)), none, NULL, NULL);
    check_refused(g, DRA_ERR_SHAPE,
                  "running_top: start is " REAL " (4, 2), expected " REAL " (2, 4)");
}

int main(void)
{
    const check_spec        specs[] = {{"running top", 3, build, oracle, cases, COUNT(cases)}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_decays_have_a_gradient),
        cmocka_unit_test(shift_undoes_the_rounding),
        cmocka_unit_test(refuses_shapes),
    };
    return check_main("running_top", specs, COUNT(specs), tests, COUNT(tests));
}
