/* What must come out equal: mixers that are special cases of one another, outputs and gradients. */
#include "subject.h"

enum { B = 2, T = 19, C = 8 };

#define SIZES .dim = C, .heads = 2

/* ---- two mixers ------------------------------------------------------------------------------ */

static void expect_near(const char *what, int64_t n, const dra_real *a, const dra_real *b,
                        double least)
{
    const double d = relative_difference(n, a, b, least);
    for (int64_t i = 0; i < n; i++) assert_false(isnan((double)a[i]) || isnan((double)b[i]));
    if (!(d <= EQUAL)) fail_msg("%s differs by %g", what, d);
}

/* y (the same bits if asked for), dx, and the gradients of all parameters that both have. */
static void expect_equal(subject *a, subject *b, bool same)
{
    outcome       of_a, of_b;
    const int64_t n = a->t.B * a->t.T * a->t.C;
    run(a, &of_a);
    run(b, &of_b);
    const double least = least_gradient(b, &of_b);
    expect_near("y", n, of_a.y, of_b.y, 0);
    if (same) assert_memory_equal(of_a.y, of_b.y, (size_t)n * sizeof *of_a.y);
    expect_near("dx", n, of_a.dx, of_b.dx, 0);
    int common = 0;
    for (int i = 0; i < params_of(a); i++)
        for (int k = 0; k < params_of(b); k++) {
            const dra_spec *p = param_spec(a, i), *q = param_spec(b, k);
            if (strcmp(plain_name(p->name), plain_name(q->name)) != 0) continue;
            expect_near(p->name, dra_shape_count(&p->shape), of_a.dparam[i], of_b.dparam[k], least);
            common++;
        }
    assert_true(common >= 4);
    outcome_free(&a->t, &of_a);
    outcome_free(&b->t, &of_b);
}

static void expect_equal_mixers(const dra_mixer_config *a, const dra_mixer_config *b, bool same)
{
    subject of_a = open_subject(a, B, T), of_b = open_subject(b, B, T);
    expect_equal(&of_a, &of_b, same);
    close_subject(&of_a);
    close_subject(&of_b);
}

static void ema_without_decay_is_append(void **state)
{
    const dra_mixer_config append = {SIZES, .bias = true};
    for (int64_t M = 1; M <= 3; M++)
        for (int per = DRA_PER_HEAD; per <= DRA_PER_CHANNEL; per++) {
            dra_mixer_config c = append;
            c.a = (dra_memory_config){"ema", .timescales = M, .gamma.per = (dra_gamma_per)per};
            subject a = open_subject(&c, B, T), b = open_subject(&append, B, T);
            set(&a, "beta", -1000);
            expect_equal(&a, &b, false);
            close_subject(&a);
            close_subject(&b);
        }
}

static void wide_windows_are_time(void **state)
{
    static const char *const memories[] = {"append", "ema", "gru"};
    const int64_t            wide[] = {T, T + 1, 1000};
    for (size_t i = 0; i < COUNT(memories); i++)
        for (size_t k = 0; k < COUNT(wide); k++) {
            const dra_mixer_config time = {SIZES, .rotary = true, .a = {memories[i]}};
            dra_mixer_config       window = time;
            window.a.retrieval = "window";
            window.a.window = wide[k];
            expect_equal_mixers(&window, &time, true);
        }
}

static void joined_ema_is_ema(void **state)
{
    for (int64_t M = 1; M <= 2; M++) {
        const dra_mixer_config joined = {SIZES, .a = {"ema", .joined = true, .timescales = M}};
        const dra_mixer_config apart = {SIZES, .a = {"ema", .timescales = M, .gamma.share = true}};
        subject                a = open_subject(&joined, B, T), b = open_subject(&apart, B, T);
        if (M > 1) set(&a, "mix", 0.5), set(&b, "mix", 0.5); /* one for both, or one each */
        expect_equal(&a, &b, false);
        close_subject(&a);
        close_subject(&b);
    }
}

/* ---- blends ---------------------------------------------------------------------------------- */

/* Fresh, so that the state of the part left out is in no loss: 0 times NaN would be NaN. */
static void ends_of_a_blend_are_its_parts(void **state)
{
    for (int a = 0; a < 2; a++)
        for (int poisoned = 0; poisoned < 2; poisoned++) {
            const dra_mixer_config c = {SIZES, .blend = DRA_BLEND_NUMBER, .blend_value = a,
                                        .a = {"wkv"}, .b = {"gru"}};
            const dra_mixer_config part = {SIZES, .a = a ? c.a : c.b};
            subject blend = open_subject(&c, B, T), alone = open_subject(&part, B, T);
            blend.t.fresh = alone.t.fresh = true;
            if (poisoned) set(&blend, a ? "b." : "a.", NAN);
            expect_equal(&blend, &alone, true);
            close_subject(&blend);
            close_subject(&alone);
        }
}

/* The weight as an input of the graph, through a reader; the other part holds NaN. */
static void ends_of_a_blend_by_input(void **state)
{
    const dra_mixer_config c = {SIZES, .blend = DRA_BLEND_INPUT, .a = {"wkv"}, .b = {"gru"}};
    for (int a = 0; a < 2; a++) {
        const dra_mixer_config part = {SIZES, .a = a ? c.a : c.b};
        subject                blend = open_subject(&c, B, T), alone = open_subject(&part, B, T);
        dra_error              err = {0};
        outcome                out;
        const dra_real         weight = (dra_real)a;
        const size_t           bytes = B * T * C * sizeof(dra_real);
        const dra_named        in[] = {{"x", blend.x, bytes}, {"blend", &weight, sizeof weight}};
        set(&blend, a ? "b." : "a.", NAN);
        run(&alone, &out);
        dra_reader *r = open_reader(&blend);
        expect_ok(dra_reader_read(r, blend.start, T, NULL, 2, in, &err), &err);
        assert_memory_equal(dra_reader_result(r, "y"), out.y, bytes);
        dra_reader_destroy(r);
        outcome_free(&alone.t, &out);
        close_subject(&blend);
        close_subject(&alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ema_without_decay_is_append),
        cmocka_unit_test(wide_windows_are_time),
        cmocka_unit_test(joined_ema_is_ema),
        cmocka_unit_test(ends_of_a_blend_are_its_parts),
        cmocka_unit_test(ends_of_a_blend_by_input),
    };
    return check_main("equalities", NULL, 0, tests, COUNT(tests));
}
