/* Precision of products: set on a graph, inherited by bodies of regions, kept by gradients. A
 * factor of 1 + 2^-9 tells: in bf16 it is 1. */
#include "check.h"

static const dra_real near_one = 1 + (dra_real)0.001953125;

/* x (1, 1) times w (1, 1) */
static dra_value times(dra_graph *g, dra_value x, dra_value w) { return dra_matmul(g, x, w); }

static void run(check_program *p)
{
    static dra_real x[1], w[] = {1};
    static int32_t  on = 1;
    x[0] = near_one;
    check_bind(p, "x", x, sizeof x);
    check_bind(p, "w", w, sizeof w);
    if (check_has_input(p, "on")) check_bind(p, "on", &on, sizeof on);
    check_run(p);
}

typedef struct factors {
    dra_graph *g;
    dra_value  x, w;
} factors;

static factors make(dra_precision precision)
{
    factors f = {.g = check_graph()};
    f.x = check_real(f.g, "x", DRA_SHAPE(1, 1));
    f.w = check_real(f.g, "w", DRA_SHAPE(1, 1));
    dra_set_precision(f.g, precision);
    return f;
}

static void holds_from_where_it_is_set(void **state)
{
    factors f = make(DRA_PRECISION_FULL);
    dra_output(f.g, "before", times(f.g, f.x, f.w));
    dra_set_precision(f.g, DRA_PRECISION_BF16);
    dra_output(f.g, "between", times(f.g, f.x, f.w));
    dra_set_precision(f.g, DRA_PRECISION_TF32); /* which holds it, and on the CPU is full */
    dra_output(f.g, "tf32", times(f.g, f.x, f.w));
    dra_set_precision(f.g, DRA_PRECISION_FULL);
    dra_output(f.g, "after", times(f.g, f.x, f.w));
    check_program p = check_compile(f.g, 1);
    run(&p);
    assert_true(*check_result(&p, "before") == near_one);
    assert_true(*check_result(&p, "between") == 1);
    assert_true(*check_result(&p, "tf32") == near_one);
    assert_true(*check_result(&p, "after") == near_one);
    check_free(&p);
}

/* ---- regions --------------------------------------------------------------------------------- */

static void body(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    out[0] = times(g, in[0], in[1]);
}

static void step(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                 const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    carry_out[0] = times(g, carry[0], constant[0]);
}

typedef dra_value (*region)(const factors *f);

static dra_value in_recompute(const factors *f)
{
    const dra_value in[] = {f->x, f->w};
    dra_value       out;
    dra_recompute(f->g, body, NULL, 2, in, 1, &out);
    return out;
}

static dra_value in_cond(const factors *f)
{
    const dra_value in[] = {f->x, f->w};
    const dra_value on = dra_input(f->g, "on", DRA_I32, (dra_shape){0});
    dra_value       out;
    dra_cond(f->g, on, body, NULL, 2, in, 1, &f->w, &out);
    return out;
}

static dra_value in_scan(const factors *f)
{
    dra_value out;
    dra_scan(f->g,
             &(dra_scan_config){.length = 2,
                                .carries = 1,
                                .constants = 1,
                                .carry = &f->x,
                                .constant = &f->w,
                                .body = step},
             &out, NULL);
    return out;
}

/* The product of a region and its dw = x dy, built after the precision was set back. */
static void check_region(region make_region)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        factors         f = make(bf16 ? DRA_PRECISION_BF16 : DRA_PRECISION_FULL);
        const dra_value y = make_region(&f);
        dra_value       dw, dy = dra_broadcast(f.g, dra_number(f.g, 1), DRA_SHAPE(1, 1));
        dra_set_precision(f.g, bf16 ? DRA_PRECISION_FULL : DRA_PRECISION_BF16);
        dra_gradient(f.g, 1, &y, &dy, 1, &f.w, &dw);
        dra_output(f.g, "y", y);
        dra_output(f.g, "dw", dw);
        check_program p = check_compile(f.g, 1);
        run(&p);
        const dra_real want = bf16 ? 1 : near_one;
        const dra_real dw_want = make_region == in_scan ? 2 * want : want; /* two steps */
        assert_true(*check_result(&p, "y") == want);
        assert_true(*check_result(&p, "dw") == dw_want);
        check_free(&p);
    }
}

static void recompute_inherits(void **state) { check_region(in_recompute); }
static void cond_inherits(void **state) { check_region(in_cond); }
static void scan_inherits(void **state) { check_region(in_scan); }

static void refuses_other_numbers(void **state)
{
    dra_graph *g = check_graph();
    dra_set_precision(g, (dra_precision)7);
    check_refused(g, DRA_ERR_VALUE, "precision: no precision number 7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_from_where_it_is_set),
        cmocka_unit_test(recompute_inherits),
        cmocka_unit_test(cond_inherits),
        cmocka_unit_test(scan_inherits),
        cmocka_unit_test(refuses_other_numbers),
    };
    return check_main("precision", NULL, 0, tests, COUNT(tests));
}
