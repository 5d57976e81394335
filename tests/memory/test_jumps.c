/* moment with e^x or favor when one key raises the running maximum by J: what was written before is
 * kept relative to the new maximum, e^-J of it, and later queries that look past the large key read
 * it. Against sums in double, in the fused form and in steps, whole and in parts; gradients by
 * central differences in the double build. */
#include "subject.h"

enum { H = 2, D = 4, C = H * D, LEAD = 0 /* the feature of each head that jumps */ };

static const double JUMPS[] = {1, 17, 30, 80};

typedef struct setup {
    dra_phi_kind   phi;
    dra_decay_kind decay;
    bool           steps;
    double         jump;
    int64_t        T, at; /* the token with the large key */
} setup;

/* favor's omega_f is `reach` in direction f, so that a key of that length there raises feature f to
 * reach^2 / 2. */
static double reach(const setup *s) { return sqrt(2 * s->jump); }

/* x of the large key's channel, and of the queries': e^(q - k) there is about e^-jump, at least
 * e^-MOST_READ so that no sum comes near the least one, 1e-30. */
static const double MOST_READ = 60;

static double high(const setup *s)
{
    return s->phi == DRA_PHI_FAVOR ? reach(s) * pow(D, 0.25) : s->jump;
}

static double low(const setup *s)
{
    const double past = fmin(s->jump, MOST_READ);
    return s->phi == DRA_PHI_FAVOR ? -past / reach(s) * pow(D, 0.25) : -past;
}

static dra_real *param(const subject *s, const char *name)
{
    const int i = dra_specs_find(s->t.module->params, name);
    assert_true(i >= 0);
    return s->param[i];
}

/* Keys are x, queries and values too but for the channel that jumps: there queries are constant and
 * values are those of the next channel. */
static subject open_jump(const setup *s, int64_t rows)
{
    const dra_mixer_config c = {.dim = C,
                                .heads = H,
                                .bias = true,
                                .a = {"moment", .moment.phi = s->phi, .lambda.decay = s->decay,
                                      .moment.features = s->phi == DRA_PHI_FAVOR ? D : 0,
                                      .steps = s->steps}};
    subject                m = open_subject(&c, rows, s->T);
    for (int i = 0; i < params_of(&m); i++)
        if (strncmp(param_spec(&m, i)->name, "W_", 2) == 0 ||
            strncmp(param_spec(&m, i)->name, "b_", 2) == 0)
            set(&m, param_spec(&m, i)->name, 0);
    for (int i = 0; i < C; i++) {
        const bool lead = i % D == LEAD;
        param(&m, "W_k")[i * C + i] = param(&m, "W_o")[i * C + i] = 1;
        param(&m, "W_q")[i * C + i] = !lead;
        param(&m, "W_v")[i * C + i + lead] = 1;
        if (lead) param(&m, "b_q")[i] = (dra_real)low(s);
    }
    if (s->decay == DRA_DECAY_FIXED) set(&m, "beta", 3);
    if (s->phi == DRA_PHI_FAVOR) {
        set(&m, "omega", 0);
        for (int i = 0; i < C; i++) param(&m, "omega")[i * D + i % D] = (dra_real)reach(s);
    }
    for (int64_t i = 0; i < rows * s->T * C; i++) { /* no sum of values cancels */
        m.x[i] = (dra_real)(0.6 + 0.5 * (double)m.x[i]);
        if (i / C % s->T == s->at && i % D == LEAD) m.x[i] = (dra_real)high(s);
    }
    return m;
}

/* ---- the sums -------------------------------------------------------------------------------- */

/* a_f of one head */
static double exponent(const setup *s, const double *x, int f)
{
    double square = 0;
    if (s->phi == DRA_PHI_EXP) return x[f];
    for (int d = 0; d < D; d++) square += x[d] * x[d] / sqrt(D);
    return reach(s) * x[f] / pow(D, 0.25) - square / 2;
}

static void key_of(const subject *m, int64_t row, int h, double *k)
{
    for (int d = 0; d < D; d++) k[d] = (double)m->x[row * C + h * D + d];
}

static void query_of(const setup *s, const subject *m, int64_t row, int h, double *q)
{
    key_of(m, row, h, q);
    q[LEAD] = (double)(dra_real)low(s);
}

static double value_of(const subject *m, int64_t row, int h, int e)
{
    return (double)m->x[row * C + h * D + (e == LEAD ? LEAD + 1 : e)];
}

static double decay_of(const setup *s) /* ln lambda */
{
    return s->decay == DRA_DECAY_FIXED ? -log1p(exp(-3)) : 0;
}

/* Feature f of S (e < D) or of z (e = D) after token t, relative to e^mu. */
static double sum_of(const setup *s, const subject *m, int64_t b, int64_t t, int h, int f, int e,
                     double mu)
{
    double sum = 0, k[D];
    for (int64_t r = 0; r <= t; r++) {
        key_of(m, b * s->T + r, h, k);
        const double by = exp(exponent(s, k, f) + decay_of(s) * (double)(t - r) - mu);
        sum += by * (e < D ? value_of(m, b * s->T + r, h, e) : 1);
    }
    return sum;
}

static double output_of(const setup *s, const subject *m, int64_t b, int64_t t, int h, int e)
{
    double q[D], num = 0, den = 0;
    query_of(s, m, b * s->T + t, h, q);
    for (int f = 0; f < D; f++) {
        const double weight = exp(exponent(s, q, f));
        num += weight * sum_of(s, m, b, t, h, f, e, 0);
        den += weight * sum_of(s, m, b, t, h, f, D, 0);
    }
    return num / den;
}

static double worse(double worst, double found, double expected)
{
    const double d = fabs(found / expected - 1);
    return d > worst || isnan(d) ? d : worst;
}

static double worst_output(const setup *s, const subject *m, const outcome *out)
{
    double worst = 0;
    for (int64_t b = 0; b < m->t.B; b++)
        for (int64_t t = 0; t < s->T; t++)
            for (int i = 0; i < C; i++)
                worst = worse(worst, (double)out->y[(b * s->T + t) * C + i],
                              output_of(s, m, b, t, i / D, i % D));
    return worst;
}

static double worst_state(const setup *s, const subject *m, const outcome *out)
{
    dra_real     S[H * D * D], z[H * D], mu[H];
    dra_error    err = {0};
    double       worst = 0;
    dra_real    *to[] = {S, z, mu};
    const size_t n[] = {H * D * D, H * D, H};
    for (int64_t b = 0; b < m->t.B; b++) {
        for (int i = 0; i < 3; i++)
            expect_ok(dra_states_read(out->final, i, b, to[i], n[i], &err), &err);
        for (int i = 0; i < H * D; i++)
            for (int e = 0; e <= D; e++)
                worst = worse(worst, (double)(e < D ? S[i * D + e] : z[i]),
                              sum_of(s, m, b, s->T - 1, i / D, i % D, e, (double)mu[i / D]));
    }
    return worst;
}

/* ---- outputs and states ---------------------------------------------------------------------- */

typedef void (*setup_check)(const setup *s);

static void for_each_setup(int64_t T, int64_t at, setup_check check)
{
    for (int phi = 0; phi < 2; phi++)
        for (int steps = 0; steps < 2; steps++)
            for (int decay = DRA_DECAY_NONE; decay <= DRA_DECAY_FIXED; decay++)
                for (size_t i = 0; i < COUNT(JUMPS); i++)
                    check(&(setup){phi ? DRA_PHI_FAVOR : DRA_PHI_EXP, (dra_decay_kind)decay, steps,
                                   JUMPS[i], T, at});
}

static void fail_setup(const setup *s, const char *what, double by)
{
    fail_msg("phi %s, decay %d, %s, jump %g: %s differs by %g",
             s->phi == DRA_PHI_EXP ? "exp" : "favor", (int)s->decay, s->steps ? "steps" : "fused",
             s->jump, what, by);
}

/* Each element by itself: those of features that the large key leaves small are small. In float the
 * exponents of the state are up to about 90, rounded by up to 4e-6 each. */
static void expect_sums(const setup *s, const subject *m, const outcome *out)
{
    const double y = worst_output(s, m, out), state = worst_state(s, m, out);
    if (!(y <= EQUAL)) fail_setup(s, "y", y);
    if (!(state <= 2 * EQUAL)) fail_setup(s, "state", state);
}

static void expect_whole(const setup *s)
{
    subject m = open_jump(s, 1);
    outcome out;
    run(&m, &out);
    expect_sums(s, &m, &out);
    outcome_free(&m.t, &out);
    close_subject(&m);
}

/* The jump is in the second of three chunks of the fused form. */
static void jumps_keep_what_was_before(void **state) { for_each_setup(140, 70, expect_whole); }

/* Beyond MOST_READ queries see the large key alone: their gradients are 0 but for rounding.
 * tests/ops/test_moment has the state's gradient under any decay. */
static void expect_parts(const setup *s)
{
    static const int64_t parts[][9] = {{1, 1, 1, 1, 1, 1, 1, 1, 1}, {4, 5}, {3, 1, 5}, {8, 1}};
    static const int     counts[] = {9, 2, 3, 2};
    subject              m = open_jump(s, 2);
    outcome              whole, out;
    run(&m, &whole);
    expect_sums(s, &m, &whole);
    for (size_t i = 0; i < COUNT(counts); i++) {
        trial_run(&m.t, counts[i], parts[i], &out);
        expect_sums(s, &m, &out);
        const outcome_difference d = outcome_compare(&m.t, &out, &whole);
        if (!(d.value <= EQUAL)) fail_setup(s, d.where, d.value);
        if (s->jump <= MOST_READ && !(d.gradient <= equal_gradients(EQUAL)))
            fail_setup(s, d.where, d.gradient);
        outcome_free(&m.t, &out);
    }
    outcome_free(&m.t, &whole);
    close_subject(&m);
}

static void jumps_in_parts_are_the_whole(void **state) { for_each_setup(9, 3, expect_parts); }

/* ---- gradients ------------------------------------------------------------------------------- */

#ifdef DRA_REAL_DOUBLE
static double difference_at(subject *m, const int64_t *parts, dra_real *at)
{
    const dra_real now = *at, by = 1e-5;
    double         L[2];
    for (int i = 0; i < 2; i++) {
        outcome out;
        *at = i ? now - by : now + by;
        m->t.param = m->param;
        trial_run(&m->t, 2, parts, &out);
        L[i] = out.L;
        outcome_free(&m->t, &out);
    }
    *at = now;
    return (L[0] - L[1]) / (2 * by);
}

static void expect_slopes(const setup *s)
{
    static const int64_t parts[] = {3, 3};
    subject              m = open_jump(s, 1);
    outcome              out;
    double               largest = 0, worst = 0;
    m.t.param = m.param;
    trial_run(&m.t, 2, parts, &out);
    for (int64_t i = 0; i < s->T * C; i++) {
        const double d = difference_at(&m, parts, &m.x[i]);
        largest = fmax(largest, fabs(d));
        worst = fmax(worst, fabs(d - out.dx[i]));
    }
    if (!(worst <= 1e-7 * largest)) fail_setup(s, "dx", worst / largest);
    outcome_free(&m.t, &out);
    close_subject(&m);
}

/* In two parts, so that the gradient passes through the state; the jump begins the second. */
static void gradients_pass_a_jump(void **state) { for_each_setup(6, 3, expect_slopes); }
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jumps_keep_what_was_before),
        cmocka_unit_test(jumps_in_parts_are_the_whole),
#ifdef DRA_REAL_DOUBLE
        cmocka_unit_test(gradients_pass_a_jump),
#endif
    };
    return check_main("jumps", NULL, 0, tests, COUNT(tests));
}
