/* Mixers against plain loops in double: outputs, and gradients by central differences of the loops;
 * then over many tokens with long half-lives. */
#include "plain.h"
#include "subject.h"

#ifdef DRA_REAL_DOUBLE
static const double BY_DIFFERENCES = 1e-7; /* what central differences in double are good for */
#else
static const double BY_DIFFERENCES = 1e-5;
#endif

enum { B = 2, T = 9, C = 8 };

#define SIZES .dim = C, .heads = 2

static plain open_plain(const subject *s, const dra_mixer_config *config)
{
    plain p = {.specs = s->t.module->params, .T = s->t.T, .C = s->t.C, .H = config->heads};
    p.D = p.C / p.H;
    p.window = config->a.window;
    for (int i = 0; i < params_of(s); i++) {
        const int64_t n = dra_shape_count(&param_spec(s, i)->shape);
        p.param[i] = plain_zeros(n);
        for (int64_t k = 0; k < n; k++) p.param[i][k] = (double)s->param[i][k];
    }
    return p;
}

static void close_plain(const subject *s, plain *p)
{
    for (int i = 0; i < params_of(s); i++) free(p->param[i]);
}

/* L = sum y u by the loops, over all rows. */
static double plain_loss(const subject *s, plain p, plain_mixer mixer, const double *x)
{
    const int64_t row = s->t.T * s->t.C;
    double        L = 0;
    p.y = plain_zeros(row);
    for (int64_t b = 0; b < s->t.B; b++) {
        p.x = x + b * row;
        mixer(&p);
        for (int64_t i = 0; i < row; i++) L += p.y[i] * (double)s->u[b * row + i];
    }
    free(p.y);
    return L;
}

/* dL of n numbers by central differences. */
static double *by_differences(const subject *s, const plain *p, plain_mixer mixer, const double *x,
                              int64_t n, double *at)
{
    double *d = plain_zeros(n);
    for (int64_t i = 0; i < n; i++) {
        const double now = at[i], by = 1e-5;
        at[i] = now + by;
        const double up = plain_loss(s, *p, mixer, x);
        at[i] = now - by;
        d[i] = (up - plain_loss(s, *p, mixer, x)) / (2 * by);
        at[i] = now;
    }
    return d;
}

static void expect_close(const char *what, int64_t n, const dra_real *found, const double *expected,
                         double least, double tol)
{
    double worst = 0, largest = least;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(expected[i]));
        const double d = fabs((double)found[i] - expected[i]);
        if (d > worst || isnan(d)) worst = d;
    }
    if (!(worst <= tol * largest)) fail_msg("%s differs by %g", what, worst / largest);
}

static void expect_outputs(const subject *s, plain p, plain_mixer mixer, const double *x,
                           const dra_real *y, double tol)
{
    const int64_t row = s->t.T * s->t.C;
    double       *all = plain_zeros(s->t.B * row);
    for (int64_t b = 0; b < s->t.B; b++) {
        p.x = x + b * row, p.y = all + b * row;
        mixer(&p);
    }
    expect_close("y", s->t.B * row, y, all, 0, tol);
    free(all);
}

static const double AS_DRAWN = -1;

static double logit(double gamma) { return gamma > 0 ? log(gamma / (1 - gamma)) : -1000; }

/* Outputs and the gradients of x and all parameters. */
static void expect_form(const dra_mixer_config *config, plain_mixer mixer, double gamma)
{
    subject       s = open_subject(config, B, T);
    const int64_t n = s.t.B * s.t.T * s.t.C;
    outcome       out;
    if (gamma != AS_DRAWN) set(&s, "beta", logit(gamma));
    plain   p = open_plain(&s, config);
    double *x = plain_zeros(n);
    for (int64_t i = 0; i < n; i++) x[i] = (double)s.x[i];
    run(&s, &out);
    expect_outputs(&s, p, mixer, x, out.y, EQUAL);
    const double least = least_gradient(&s, &out);
    double      *d = by_differences(&s, &p, mixer, x, n, x);
    expect_close("dx", n, out.dx, d, 0, BY_DIFFERENCES);
    free(d);
    for (int i = 0; i < params_of(&s); i++) {
        const int64_t count = dra_shape_count(&param_spec(&s, i)->shape);
        d = by_differences(&s, &p, mixer, x, count, p.param[i]);
        expect_close(param_spec(&s, i)->name, count, out.dparam[i], d, least, BY_DIFFERENCES);
        free(d);
    }
    free(x);
    close_plain(&s, &p);
    outcome_free(&s.t, &out);
    close_subject(&s);
}

/* Fused, and as a scan of the steps. */
static void expect_loops(const dra_mixer_config *config, plain_mixer mixer, double gamma)
{
    dra_mixer_config c = *config;
    for (int steps = 0; steps < 2; steps++) {
        c.a.steps = steps;
        expect_form(&c, mixer, gamma);
    }
}

static void append_is_softmax_attention(void **state)
{
    expect_loops(&(dra_mixer_config){SIZES}, plain_softmax, AS_DRAWN);
    expect_loops(&(dra_mixer_config){SIZES, .bias = true}, plain_softmax, AS_DRAWN);
}

static void a_window_is_the_last_items(void **state)
{
    const dra_mixer_config c = {SIZES, .a = {.retrieval = "window", .window = 4}};
    expect_loops(&c, plain_softmax, AS_DRAWN);
}

static void gru_over_time_is_recurrent_attention(void **state)
{
    const double gammas[] = {0.9, 0.5, 0};
    for (size_t i = 0; i < COUNT(gammas); i++)
        expect_loops(&(dra_mixer_config){SIZES, .bias = true, .a = {"gru"}}, plain_dra, gammas[i]);
}

static void gru_joint_is_ADR(void **state)
{
    const dra_mixer_config c = {
        .dim = C, .heads = 1, .bias = true, .a = {"gru", .retrieval = "joint"}};
    expect_loops(&c, plain_adr, 0.97);
}

/* With one state per head also for several. */
static void gru_joint_is_ADR_for_heads(void **state)
{
    const dra_mixer_config c = {SIZES, .bias = true, .a = {"gru", .retrieval = "joint"}};
    expect_loops(&c, plain_adr, 0.97);
}

static void ema_is_a_running_mean(void **state)
{
    expect_loops(&(dra_mixer_config){SIZES, .a = {"ema", .retrieval = "none"}}, plain_ema, 0.8);
}

static void wkv_is_its_sums(void **state)
{
    expect_loops(&(dra_mixer_config){SIZES, .a = {"wkv"}}, plain_wkv, AS_DRAWN);
}

static void shortconv_is_its_sums(void **state)
{
    expect_loops(&(dra_mixer_config){SIZES, .a = {"shortconv"}}, plain_shortconv, AS_DRAWN);
}

/* ---- slots, and sums over all pairs ---------------------------------------------------------- */

static void slots_are_DRA_Slot(void **state)
{
    dra_mixer_config c = {SIZES, .bias = true, .a = {"slots", .retrieval = "slots-all"}};
    expect_loops(&c, plain_dra_slot, 0.9);
    c.a.slots.candidate = DRA_CANDIDATE_GRU;
    expect_loops(&c, plain_dra_slot, 0.9);
}

static void pooled_slots_are_pooled_DRA(void **state)
{
    dra_mixer_config c = {SIZES, .bias = true, .a = {"slots", .retrieval = "pooled"}};
    expect_loops(&c, plain_dra_pooled, 0.9);
    c.a.slots.candidate = DRA_CANDIDATE_GRU;
    expect_loops(&c, plain_dra_pooled, 0.9);
}

static void moment_is_linear_attention(void **state)
{
    expect_loops(&(dra_mixer_config){SIZES, .a = {"moment"}}, plain_linear_attention, AS_DRAWN);
}

static void moment_is_retention(void **state)
{
    const dra_mixer_config c = {SIZES,
                                .a = {"moment", .moment.phi = DRA_PHI_IDENTITY,
                                      .head_norm = DRA_OFF, .lambda.decay = DRA_DECAY_FIXED}};
    expect_loops(&c, plain_retention, AS_DRAWN);
    expect_loops(&c, plain_retention, 0.5);
}

/* ---- wkv's states ---------------------------------------------------------------------------- */

/* One channel by its recurrence: a' = e^w a + e^k v, b' = e^w b + e^k, held as A e^p and B e^p. */
static void rwkv_states(const double *k, const double *v, double w, int64_t step, double *A,
                        double *B_, double *p)
{
    *A = *B_ = 0, *p = -1e30;
    for (int64_t t = 0; t < T; t++) {
        const double q = fmax(*p + w, k[t * step]), e1 = exp(*p + w - q), e2 = exp(k[t * step] - q);
        *A = e1 * *A + e2 * v[t * step];
        *B_ = e1 * *B_ + e2;
        *p = q;
    }
}

static void wkv_holds_what_RWKV_holds(void **state)
{
    static const char *const names[] = {"A", "B", "p"};
    const dra_mixer_config   c = {SIZES, .a = {"wkv"}};
    subject                  s = open_subject(&c, B, T);
    plain                    p = open_plain(&s, &c);
    outcome                  out;
    dra_error                err = {0};
    double                   x[T * C], expected[3][C];
    run(&s, &out);
    for (int64_t b = 0; b < B; b++) {
        for (int i = 0; i < T * C; i++) x[i] = (double)s.x[b * T * C + i];
        p.x = x;
        double *k = plain_project(&p, "W_k", "b_k"), *v = plain_project(&p, "W_v", "b_v");
        for (int i = 0; i < C; i++)
            rwkv_states(k + i, v + i, -exp(plain_param(&p, "time_decay")[i]), C, &expected[0][i],
                        &expected[1][i], &expected[2][i]);
        for (int i = 0; i < 3; i++) {
            dra_real  found[C];
            const int at = dra_specs_find(s.t.module->state, names[i]);
            expect_ok(dra_states_read(out.final, at, b, found, C, &err), &err);
            expect_close(names[i], C, found, expected[i], 0, EQUAL);
        }
        free(k), free(v);
    }
    close_plain(&s, &p);
    outcome_free(&s.t, &out);
    close_subject(&s);
}

/* ---- wkv's first maximum --------------------------------------------------------------------- */

/* Anything far below every key means nothing: the first token leaves no trace of it. */
static void wkv_starts_from_nothing(void **state)
{
    const dra_real nothing[] = {(dra_real)-1e30, (dra_real)-1e38};
    subject        s = open_subject(&(dra_mixer_config){SIZES, .a = {"wkv"}}, B, T);
    const int      at = dra_specs_find(s.t.module->state, "p");
    outcome        out[2];
    dra_error      err = {0};
    for (int i = 0; i < 2; i++) {
        dra_real p[C];
        for (int k = 0; k < C; k++) p[k] = nothing[i];
        for (int64_t b = 0; b < B; b++)
            expect_ok(dra_states_write(s.start, at, b, p, C, &err), &err);
        run(&s, &out[i]);
    }
    const outcome_difference d = outcome_compare(&s.t, &out[0], &out[1]);
    assert_true(d.same && d.gradient == 0);
    for (int i = 0; i < 2; i++) outcome_free(&s.t, &out[i]);
    close_subject(&s);
}

/* ---- long half-lives ------------------------------------------------------------------------- */

enum { LONG = 4096 };

static void set_decay(const subject *s)
{
    const double rate = log(2) / 16384, beta = -rate - log(-expm1(-rate));
    for (int i = 0; i < params_of(s); i++) {
        const char *name = param_spec(s, i)->name;
        if (strncmp(name, "beta", 4) == 0) set(s, name, beta);
        if (strcmp(name, "time_decay") == 0) set(s, name, log(rate));
    }
}

static void expect_long(const dra_memory_config *memory, plain_mixer mixer)
{
    const dra_mixer_config c = {.dim = 4, .heads = 2, .a = *memory};
    subject                s = open_subject(&c, 1, LONG);
    dra_error              err = {0};
    const size_t           bytes = LONG * 4 * sizeof(dra_real);
    double                *x = plain_zeros(LONG * 4);
    set_decay(&s);
    for (int i = 0; i < LONG * 4; i++) {
        s.x[i] = (dra_real)((double)s.x[i] + 0.3); /* a mean, so that the memory fills */
        x[i] = (double)s.x[i];
    }
    plain       p = open_plain(&s, &c);
    dra_reader *r = open_reader(&s);
    expect_ok(dra_reader_read(r, s.start, LONG, NULL, 1, &(dra_named){"x", s.x, bytes}, &err),
              &err);
    expect_outputs(&s, p, mixer, x, dra_reader_result(r, "y"), EQUAL);
    free(x);
    dra_reader_destroy(r);
    close_plain(&s, &p);
    close_subject(&s);
}

static void ema_remembers_for_long(void **state)
{
    expect_long(&(dra_memory_config){"ema", .retrieval = "none"}, plain_ema);
}

static void gru_remembers_for_long(void **state)
{
    expect_long(&(dra_memory_config){"gru", .retrieval = "none"}, plain_gru);
}

static void wkv_remembers_for_long(void **state)
{
    expect_long(&(dra_memory_config){"wkv"}, plain_wkv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(append_is_softmax_attention),
        cmocka_unit_test(a_window_is_the_last_items),
        cmocka_unit_test(gru_over_time_is_recurrent_attention),
        cmocka_unit_test(gru_joint_is_ADR),
        cmocka_unit_test(gru_joint_is_ADR_for_heads),
        cmocka_unit_test(ema_is_a_running_mean),
        cmocka_unit_test(wkv_is_its_sums),
        cmocka_unit_test(shortconv_is_its_sums),
        cmocka_unit_test(slots_are_DRA_Slot),
        cmocka_unit_test(pooled_slots_are_pooled_DRA),
        cmocka_unit_test(moment_is_linear_attention),
        cmocka_unit_test(moment_is_retention),
        cmocka_unit_test(wkv_holds_what_RWKV_holds),
        cmocka_unit_test(wkv_starts_from_nothing),
        cmocka_unit_test(ema_remembers_for_long),
        cmocka_unit_test(gru_remembers_for_long),
        cmocka_unit_test(wkv_remembers_for_long),
    };
    return check_main("loops", NULL, 0, tests, COUNT(tests));
}
