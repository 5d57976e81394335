/* Looking inside mixers: gammas and half-lives, kernels by formula and as measured. */
#include "subject.h"

#include <stdio.h>

#define main example_main /* the table of the example is compared with that of its page */
#include "../../examples/06_power_law.c"
#undef main

#ifdef DRA_REAL_DOUBLE
static const double AGREE = 1e-9, BY_DIFFERENCES = 1e-7, STEP = 1e-5;
#else
static const double AGREE = 1e-4, BY_DIFFERENCES = 1e-3, STEP = 1e-2;
#endif

enum { T = 40, C = 12, H = 3, LAGS = 32 };

#define SIZES .dim = C, .heads = H

static const dra_real *const *values(const subject *s) { return (const dra_real *const *)s->param; }

/* Parameters as they start, not as subjects draw them. */
static subject open_first(const dra_mixer_config *config)
{
    subject s = open_subject(config, 1, T);
    for (int i = 0; i < params_of(&s); i++) dra_specs_fill(s.t.module->params, i, 1, s.param[i]);
    return s;
}

/* ---- gammas ---------------------------------------------------------------------------------- */

enum { ROWS = 256 };

static size_t list(const dra_mixer_config *config, const subject *s, dra_gamma_row rows[ROWS])
{
    size_t    n = 0;
    dra_error err = {0};
    expect_ok(dra_mixer_gammas(config, values(s), ROWS, rows, &n, &err), &err);
    assert_true(n <= ROWS);
    return n;
}

static void expect_half_life(const dra_gamma_row *r, double expected)
{
    if (!(fabs(r->half_life - expected) <= 1e-6 * expected))
        fail_msg("%s %s: half-life %.9g, expected %.9g", r->memory, r->param, r->half_life,
                 expected);
    assert_true(fabs(r->gamma - exp2(-1 / expected)) <= 1e-6);
}

/* Of unit i of head h: number i H + h of all, spaced evenly in log2. */
static double spaced(double lo, double hi, int64_t n, const dra_gamma_row *r)
{
    return exp2(lo + (hi - lo) * (double)(r->unit * H + r->head) / (double)(n - 1));
}

static void lists_what_was_configured(void **state)
{
    dra_gamma_row rows[ROWS];
    const struct {
        dra_memory_config a;
        const char       *param;
        size_t            n;
        int64_t           units, channels;
    } cases[] = {
        {{"ema", .retrieval = "none", .ema.timescales = 2}, "beta_k", 4 * H, 2, 0},
        {{"ema", .retrieval = "slots-own", .gamma = {DRA_PER_CHANNEL, .share = true}},
         "beta",
         C,
         1,
         C / H},
        {{"gru", .retrieval = "none", .gamma.per = DRA_PER_CHANNEL}, "beta", C, 1, C / H},
        {{"lstm", .retrieval = "pooled"}, "beta", H, 1, 0},
        {{"moment", .lambda.decay = DRA_DECAY_FIXED}, "beta", H, 1, 0},
        {{"delta", .lambda.decay = DRA_DECAY_DATA}, "b_decay", H, 1, 0},
        {{"slots", .slots.count = 4, .slots.gate = DRA_GATE_FIXED}, "beta", 4 * H, 4, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const dra_mixer_config c = {SIZES, .a = cases[i].a};
        subject                s = open_first(&c);
        assert_int_equal(list(&c, &s, rows), cases[i].n);
        assert_string_equal(rows[0].memory, c.a.memory);
        assert_string_equal(rows[0].param, cases[i].param);
        for (size_t k = 0; k < cases[i].n; k++) {
            assert_true(rows[k].head < H && rows[k].unit < cases[i].units);
            assert_true(cases[i].channels ? rows[k].channel < cases[i].channels
                                          : rows[k].channel == -1);
            assert_int_equal(rows[k].by_data, c.a.lambda.decay == DRA_DECAY_DATA);
            expect_half_life(&rows[k], spaced(2, 14, H * cases[i].units, &rows[k]));
        }
        close_subject(&s);
    }
}

static void lists_modes_and_channels(void **state)
{
    dra_gamma_row          rows[ROWS];
    const dra_mixer_config ssm = {SIZES, .a = {"ssm", .retrieval = "none", .ssm.modes = 2}};
    const dra_mixer_config wkv = {SIZES, .a = {"wkv", .gamma = {.layer = 3, .layers = 4}}};
    subject                s = open_first(&ssm);
    assert_int_equal(list(&ssm, &s, rows), 4 * C);
    for (int i = 0; i < 4 * C; i++) expect_half_life(&rows[i], rows[i].unit ? 16384 : 4);
    close_subject(&s);
    s = open_first(&wkv);
    set(&s, "time_decay", log(log(2) / 8));
    assert_int_equal(list(&wkv, &s, rows), C);
    assert_true(rows[5].head == -1 && rows[5].channel == 5 && rows[5].layer == 3);
    expect_half_life(&rows[5], 8);
    close_subject(&s);
}

/* A blend lists both memories; what does not fit is counted. Nothing decays in append. */
static void lists_blends_and_counts(void **state)
{
    const dra_mixer_config blend = {SIZES, .a = {"append"}, .blend = DRA_BLEND_NUMBER,
                                    .b = {"gru"}};
    const dra_mixer_config append = {SIZES}, wrong = {SIZES, .a = {"emma"}};
    dra_gamma_row          rows[ROWS] = {0};
    size_t                 n = 0;
    dra_error              err = {0};
    subject                s = open_first(&blend);
    expect_ok(dra_mixer_gammas(&blend, values(&s), 1, rows, &n, &err), &err);
    assert_int_equal(n, H);
    assert_true(rows[0].memory && strcmp(rows[0].memory, "gru") == 0 && !rows[1].memory);
    close_subject(&s);
    s = open_first(&append);
    assert_int_equal(list(&append, &s, rows), 0);
    expect_refused(dra_mixer_gammas(&wrong, values(&s), 1, rows, &n, &err), &err, DRA_ERR_NAME,
                   "memory is emma, expected one of append, ema, ssm, gru, lstm, moment, delta, "
                   "wkv, slots, shortconv");
    close_subject(&s);
}

/* 1 - gamma is 2^-24 and less here: in a float gamma is 1. */
static void knows_very_long_half_lives(void **state)
{
    const dra_mixer_config c = {SIZES, .a = {"gru"}};
    subject                s = open_first(&c);
    dra_gamma_row          rows[ROWS];
    set(&s, "beta", 30);
    list(&c, &s, rows);
    assert_true(fabs(rows[0].half_life / (log(2) * exp(30)) - 1) < 1e-9);
    set(&s, "beta", -1000);
    list(&c, &s, rows);
    assert_true(rows[0].gamma == 0 && fabs(rows[0].half_life - log(2) / 1000) < 1e-12);
    close_subject(&s);
}

static void prints_a_table(void **state)
{
    const dra_gamma_row rows[] = {
        {0, "ema", "beta_v", 0, 1, -1, 0.840896415, 4, false},
        {0, "delta", "b_decay", 2, 0, -1, 0.5, 1, true},
        {1, "wkv", "time_decay", -1, -1, 0, 0.5, 1, false},
        {1, "wkv", "time_decay", -1, -1, 1, 0.917004043, 8, false},
        {1, "wkv", "time_decay", -1, -1, 2, 0.840896415, 4, false},
    };
    const char *expected =
        "layer  memory   decay      head  unit  gamma                    half-life\n"
        "    0  ema      beta_v        0     1  0.840896                 4\n"
        "    0  delta    b_decay       2     0  0.500000                 1 *\n"
        "    1  wkv      time_decay    -     -  0.5000 / 0.8409 / 0.9170 1 / 4 / 8\n"
        "* by data; this is its value at x = 0\n";
    char         text[1024], cut[20];
    const size_t n = dra_gammas_text(rows, COUNT(rows), text, sizeof text);
    assert_string_equal(text, expected);
    assert_int_equal(n, strlen(expected));
    assert_int_equal(dra_gammas_text(rows, COUNT(rows), cut, sizeof cut), n);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    assert_int_equal(dra_gammas_text(rows, COUNT(rows), NULL, 0), n);
}

/* ---- kernels: by formula and as measured ----------------------------------------------------- */

static void measure(const dra_mixer_config *config, const subject *s, const dra_kernel_input *in,
                    double out[H * LAGS])
{
    dra_error err = {0};
    expect_ok(dra_mixer_kernel_measured(s->t.device, config, values(s), in, LAGS, out, &err), &err);
}

static void expect_kernel(const char *what, const double *found, const double *expected, double tol)
{
    double largest = 0;
    for (int i = 0; i < H * LAGS; i++) largest = fmax(largest, fabs(expected[i]));
    for (int i = 0; i < H * LAGS; i++)
        if (!(fabs(found[i] - expected[i]) <= tol * largest))
            fail_msg("%s: head %d, lag %d is %g, expected %g", what, i / LAGS, i % LAGS, found[i],
                     expected[i]);
}

/* Around random inputs where the kernel does not depend on them, else with one key for all. */
static void expect_formula(const char *name, const dra_mixer_config *config, bool any_input)
{
    subject          s = open_subject(config, 1, T);
    double           formula[H * LAGS], measured[H * LAGS];
    dra_error        err = {0};
    uint64_t         seed = 8;
    const int64_t    E = config->value_dim ? config->value_dim : C / H;
    dra_real        *k = random_reals(&seed, T * C), *v = random_reals(&seed, T * H * E);
    dra_kernel_input in = {.T = T};
    if (any_input) in = (dra_kernel_input){T, s.x, k, v};
    expect_ok(dra_mixer_kernel(config, values(&s), LAGS, formula, &err), &err);
    measure(config, &s, &in, measured);
    expect_kernel(name, measured, formula, AGREE);
    free(k), free(v);
    close_subject(&s);
}

#define NONE .retrieval = "none"

static void measured_is_the_formula(void **state)
{
    const struct {
        const char       *name;
        dra_memory_config a;
        bool              any_input;
        int64_t           E;
    } cases[] = {
        {"append", {"append"}, true, 0},
        {"append none, wide", {"append", NONE}, true, 5},
        {"ema", {"ema"}, true, 5},
        {"ema, 3 timescales", {"ema", NONE, .ema.timescales = 3}, true, 0},
        {"ema, 3 timescales as slots",
         {"ema", .retrieval = "slots-own", .ema.timescales = 3},
         true,
         5},
        {"ema, per channel", {"ema", .ema.timescales = 2, .gamma.per = DRA_PER_CHANNEL}, true, 5},
        {"ema, shared", {"ema", .gamma = {DRA_PER_CHANNEL, .share = true}}, true, 0},
        {"ema joined", {"ema", NONE, .joined = true, .ema.timescales = 2}, true, 5},
        {"ema joined, per channel",
         {"ema", NONE, .joined = true, .gamma.per = DRA_PER_CHANNEL},
         true,
         5},
        {"ema joined, narrow, per channel",
         {"ema", NONE, .joined = true, .dim = 3, .gamma.per = DRA_PER_CHANNEL},
         true,
         5},
        {"ema joint", {"ema", .retrieval = "joint", .ema.timescales = 2}, true, 0},
        {"append none, mapped", {"append", NONE, .maps = true}, true, 5},
        {"ema, mapped", {"ema", .ema.timescales = 2, .maps = true}, true, 5},
        {"ema joined, mapped", {"ema", NONE, .joined = true, .maps = true}, true, 5},
        {"ssm", {"ssm"}, true, 5},
        {"ssm joined, pooled",
         {"ssm", .retrieval = "pooled", .joined = true, .ssm.modes = 2},
         true,
         0},
        {"ssm joined, narrow", {"ssm", NONE, .joined = true, .dim = 3}, true, 0},
        {"slots, one", {"slots"}, true, 5},
        {"slots, one, mapped", {"slots", .maps = true}, true, 5},
        {"slots, fixed, all",
         {"slots", .retrieval = "slots-all", .slots.count = 4, .slots.gate = DRA_GATE_FIXED},
         true,
         0},
        {"moment", {"moment"}, false, 0},
        {"moment, fixed decay", {"moment", .lambda.decay = DRA_DECAY_FIXED}, false, 5},
        {"retention",
         {"moment", .moment.phi = DRA_PHI_IDENTITY, .lambda.decay = DRA_DECAY_FIXED},
         false,
         0},
        {"moment exp, fixed decay",
         {"moment", .moment.phi = DRA_PHI_EXP, .lambda.decay = DRA_DECAY_FIXED},
         false,
         0},
        {"wkv", {"wkv"}, false, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_mixer_config c = {SIZES, .value_dim = cases[i].E, .a = cases[i].a};
        expect_formula(cases[i].name, &c, cases[i].any_input);
        c.a = (dra_memory_config){"append"}; /* a kernel of a blend is that of its second memory */
        c.b = cases[i].a, c.blend = DRA_BLEND_NUMBER;
        if (strcmp(cases[i].name, "ssm joined, pooled") != 0)
            expect_formula(cases[i].name, &c, cases[i].any_input);
    }
}

/* Weights of a mean add up to what it has seen; a single one is (1 - gamma) gamma^n. */
static void an_ema_is_its_formula(void **state)
{
    const dra_mixer_config c = {SIZES, .a = {"ema", NONE}};
    subject                s = open_first(&c);
    double                 k[H * LAGS];
    dra_error              err = {0};
    set(&s, "beta", 0); /* gamma = 1/2 */
    expect_ok(dra_mixer_kernel(&c, values(&s), LAGS, k, &err), &err);
    for (int i = 0; i < H * LAGS; i++) assert_true(fabs(k[i] * exp2(1 + i % LAGS) - 1) < 1e-13);
    set(&s, "beta", -1000); /* 0: the memory is the token itself */
    expect_ok(dra_mixer_kernel(&c, values(&s), LAGS, k, &err), &err);
    for (int i = 0; i < H * LAGS; i++) assert_true(k[i] == (i % LAGS == 0));
    close_subject(&s);
}

/* ---- kernels of memories without a formula --------------------------------------------------- */

/* A mixer that is fed what dra_mixer_kernel_measured is fed: x = [values, rest], W_v takes the
 * first half as it is, all else sees the second; W_o gives the heads back as they are. */
static void wire(const subject *s, int64_t half)
{
    for (int i = 0; i < params_of(s); i++) {
        const dra_spec *p = param_spec(s, i);
        const int64_t   in = p->shape.dim[p->shape.rank - 1];
        const bool      takes = strcmp(p->name, "W_v") == 0, gives = strcmp(p->name, "W_o") == 0;
        if (p->shape.rank < 2) continue;
        for (int64_t k = 0; k < dra_shape_count(&p->shape); k++) {
            if (takes || gives)
                s->param[i][k] = k / in == k % in;
            else if (in == 2 * half && k % in < half)
                s->param[i][k] = 0;
        }
    }
    const int q = dra_specs_find(s->t.module->params, "W_q");
    const int k = dra_specs_find(s->t.module->params, "W_k");
    memcpy(s->param[q], s->param[k], (size_t)(2 * half * half) * sizeof(dra_real));
}

/* What head h holds after the last token, the mean over its channels. */
static double held(const subject *s, dra_reader *r, int64_t n, const dra_real *x, bool formula,
                   int64_t h)
{
    const int64_t E = C / H, width = formula ? 2 * C : C;
    dra_error     err = {0};
    dra_states   *states = new_states(s->t.module->state, 1);
    const size_t  bytes = (size_t)(n * 2 * C) * sizeof *x;
    expect_ok(dra_reader_read(r, states, n, NULL, 1, &(dra_named){"x", x, bytes}, &err), &err);
    const dra_real *y = dra_reader_result(r, formula ? "y" : "memory");
    double          sum = 0;
    for (int64_t e = 0; e < E; e++) sum += (double)y[(n - 1) * width + h * E + e];
    dra_states_destroy(states);
    return sum / (double)E;
}

/* Bumps the values of head h, n steps back, up and down through a reader. */
static double by_bump(const subject *s, dra_reader *r, dra_real *x, int64_t n, bool formula,
                      int64_t h)
{
    double difference = 0;
    for (int way = 1; way >= -1; way -= 2) {
        dra_real *at = x + (T - 1 - n) * 2 * C + h * (C / H), before[C / H];
        memcpy(before, at, sizeof before);
        for (int e = 0; e < C / H; e++) at[e] = (dra_real)((double)at[e] + way * STEP);
        difference += way * held(s, r, T + formula, x, formula, h);
        memcpy(at, before, sizeof before);
    }
    return difference / (2 * STEP);
}

/* Halves of the rows of x: the values, and what all else sees. */
static void split(const subject *s, const dra_real *x, dra_real *k, dra_real *v)
{
    const int at = dra_specs_find(s->t.module->params, "W_k");
    for (int t = 0; t < T; t++)
        for (int c = 0; c < C; c++) {
            double sum = 0;
            for (int i = 0; i < 2 * C; i++)
                sum += (double)s->param[at][c * 2 * C + i] * (double)x[t * 2 * C + i];
            k[t * C + c] = (dra_real)sum;
            v[t * C + c] = x[t * 2 * C + c];
        }
}

static void expect_differences(const char *name, const dra_memory_config *memory)
{
    const bool       formula = strcmp(memory->memory, "delta") == 0;
    dra_mixer_config c = {.dim = 2 * C, .heads = H, .key_dim = C / H, .a = *memory};
    c.gives_memory = !formula;
    subject     s = open_subject(&c, 1, T + 1);
    double      measured[H * LAGS], expected[H * LAGS];
    dra_real    k[T * C], v[T * C];
    dra_reader *r;
    wire(&s, C);
    for (int i = T * 2 * C; i < (T + 1) * 2 * C; i++) s.x[i] = s.x[i - 2 * C]; /* it reads */
    split(&s, s.x, k, v);
    r = open_reader(&s);
    measure(&c, &s, &(dra_kernel_input){T, s.x, k, v}, measured);
    for (int64_t h = 0; h < H; h++) {
        for (int64_t n = 0; n < LAGS; n++)
            expected[h * LAGS + n] = by_bump(&s, r, s.x, n, formula, h);
        for (int64_t n = LAGS - 1; n >= 0 && formula; n--)
            expected[h * LAGS + n] /= expected[h * LAGS];
    }
    expect_kernel(name, measured, expected, BY_DIFFERENCES);
    dra_reader_destroy(r);
    close_subject(&s);
}

static void measured_is_the_difference(void **state)
{
    const struct {
        const char       *name;
        dra_memory_config a;
    } cases[] = {
        {"ema", {"ema", NONE, .ema.timescales = 2}},
        {"gru", {"gru", NONE}},
        {"gru joined", {"gru", NONE, .joined = true}},
        {"lstm", {"lstm", .retrieval = "slots-all"}},
        {"delta", {"delta"}},
        {"delta, data decay", {"delta", .lambda.decay = DRA_DECAY_DATA}},
        {"slots routed", {"slots", .slots.count = 3}},
        {"slots gated", {"slots", .slots.count = 3, .slots.gate = DRA_GATE_GATED}},
        {"slots gru", {"slots", .slots.candidate = DRA_CANDIDATE_GRU}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) expect_differences(cases[i].name, &cases[i].a);
}

/* A memory from outside: m' = gamma m + x. */
static void declare_sum(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                        dra_specs *state)
{
    static const char *const names[] = {"sum_0", "sum_1"};
    dra_gamma_declare(s, prefix, "beta", 0, s->stream[0].width, params);
    for (int i = 0; i < s->streams; i++)
        dra_specs_add(state, prefix,
                      &(dra_spec){.name = names[i], .shape = DRA_SHAPE(s->H, s->stream[i].width)});
}

static void step_sum(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_value gamma = dra_sigmoid(g, dra_reshape(g, c->param[0], DRA_SHAPE(-1, 1)));
    for (int i = 0; i < c->sizes->streams; i++)
        r->item[i] = r->state[i] = dra_add(g, dra_mul(g, gamma, c->state[i]), c->x[i]);
}

static void sees_memories_from_outside(void **state)
{
    static const char *const retrievals[] = {"none", NULL};
    const dra_memory         sum = {
                .name = "sum", .retrievals = retrievals, .declare = declare_sum, .step = step_sum};
    const dra_mixer_config c = {SIZES, .a = {.own = &sum}};
    subject                s = open_first(&c);
    dra_gamma_row          rows[ROWS];
    double                 k[H * LAGS], expected[H * LAGS];
    dra_error              err = {0};
    assert_int_equal(list(&c, &s, rows), H);
    assert_string_equal(rows[0].memory, "sum");
    for (int i = 0; i < H * LAGS; i++) expected[i] = pow(rows[i / LAGS].gamma, i % LAGS);
    measure(&c, &s, &(dra_kernel_input){.T = T}, k);
    expect_kernel("sum", k, expected, AGREE);
    expect_refused(dra_mixer_kernel(&c, values(&s), LAGS, k, &err), &err, DRA_ERR_VALUE,
                   "kernel: sum, as configured, has no formula; measure it");
    close_subject(&s);
}

static void refuses_what_has_no_formula(void **state)
{
    const dra_memory_config none[] = {{"gru"},
                                      {"lstm"},
                                      {"delta"},
                                      {"moment", .lambda.decay = DRA_DECAY_DATA},
                                      {"slots", .slots.count = 2},
                                      {"slots", .slots.candidate = DRA_CANDIDATE_GRU}};
    double                  k[H * LAGS];
    dra_error               err = {0};
    char                    text[120];
    for (size_t i = 0; i < COUNT(none); i++) {
        const dra_mixer_config c = {SIZES, .a = none[i]};
        subject                s = open_first(&c);
        snprintf(text, sizeof text, "kernel: %s, as configured, has no formula; measure it",
                 none[i].memory);
        expect_refused(dra_mixer_kernel(&c, values(&s), LAGS, k, &err), &err, DRA_ERR_VALUE, text);
        close_subject(&s);
    }
}

static void refuses_wrong_lags(void **state)
{
    const dra_mixer_config c = {SIZES, .a = {"moment", .moment.phi = DRA_PHI_RELU}};
    subject                s = open_first(&c);
    double                 k[H * LAGS];
    dra_error              err = {0};
    dra_real               below[T * C];
    for (int i = 0; i < T * C; i++) below[i] = -1; /* keys that relu silences */
    expect_refused(dra_mixer_kernel(&c, values(&s), 0, k, &err), &err, DRA_ERR_VALUE,
                   "kernel: lags is 0, expected 1 to 2147483648");
    expect_refused(
        dra_mixer_kernel_measured(s.t.device, &c, values(&s), &(dra_kernel_input){7}, 8, k, &err),
        &err, DRA_ERR_VALUE, "kernel: lags is 8, expected 1 to 7");
    assert_int_equal(dra_mixer_kernel_measured(s.t.device, &c, values(&s),
                                               &(dra_kernel_input){T, .k = below}, 8, k, &err),
                     DRA_ERR_VALUE);
    close_subject(&s);
}

/* ---- the power law --------------------------------------------------------------------------- */

/* Two digits are printed. */
static void expect_printed(const char *what, double printed, double found)
{
    if (!(fabs(printed - found) <= 0.051 * found))
        fail_msg("docs/power-law.md: %s is %g, found %g", what, printed, found);
}

/* Tests run in the root of the project. */
static void the_page_has_the_numbers_of_the_example(void **state)
{
    enum { ROWS_COMPARED = 6 }; /* beyond, errors are so small that the order of sums shows */
    FILE *page = fopen("docs/power-law.md", "r");
    char  line[512] = "";
    assert_non_null(page);
    print_table(0, 1, ROWS_COMPARED);
    while (fgets(line, sizeof line, page) && !strstr(line, "T = 1024, weights not negative")) {}
    for (int i = 0; i < 3; i++) assert_non_null(fgets(line, sizeof line, page));
    for (int m = 0; m < ROWS_COMPARED; m++) {
        char *at = fgets(line, sizeof line, page);
        assert_non_null(at);
        assert_int_equal(strtol(at + 1, &at, 10), counts[m]);
        for (int k = 0; k < POWERS; k++) {
            expect_printed("largest", strtod(strchr(at, '|') + 1, &at), fits[0][1][m][k].worst);
            expect_printed("rms", strtod(strchr(at, '/') + 1, &at), fits[0][1][m][k].rms);
        }
    }
    fclose(page);
}

/* Fitted weights w_i gamma_i^t, t = n + 1, as those of an ema, softmax(mix)_i (1 - gamma_i)
 * gamma_i^n: mix_i = ln(w_i gamma_i / (1 - gamma_i)). What is left is a common factor. */
static void an_ema_follows_a_power_law(void **state)
{
    enum { M = 8, FAR = 1024 };
    const fit              f = fit_power(1, FAR, M, 1);
    const dra_mixer_config c = {SIZES, .a = {"ema", NONE, .ema.timescales = M}};
    subject                s = open_first(&c);
    dra_error              err = {0};
    static double          k[H * FAR];
    double                 factor = 0;
    for (int i = 0; i < H * M; i++) {
        const double l = fit_rate(&f, i % M), odds = exp(l) / -expm1(l);
        factor += f.w[i % M] * odds / H;
        s.param[dra_specs_find(s.t.module->params, "beta_v")][i] = (dra_real)log(odds);
        s.param[dra_specs_find(s.t.module->params, "mix_v")][i] = (dra_real)log(f.w[i % M] * odds);
    }
    expect_ok(dra_mixer_kernel(&c, values(&s), FAR, k, &err), &err);
    for (int i = 0; i < H * FAR; i++) /* a lag between those fitted may be a little further off */
        assert_true(fabs(k[i] * factor * (1 + i % FAR) - 1) < 1.02 * f.worst + AGREE);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_what_was_configured),
        cmocka_unit_test(lists_modes_and_channels),
        cmocka_unit_test(lists_blends_and_counts),
        cmocka_unit_test(knows_very_long_half_lives),
        cmocka_unit_test(prints_a_table),
        cmocka_unit_test(measured_is_the_formula),
        cmocka_unit_test(an_ema_is_its_formula),
        cmocka_unit_test(measured_is_the_difference),
        cmocka_unit_test(sees_memories_from_outside),
        cmocka_unit_test(refuses_what_has_no_formula),
        cmocka_unit_test(refuses_wrong_lags),
        cmocka_unit_test(the_page_has_the_numbers_of_the_example),
        cmocka_unit_test(an_ema_follows_a_power_law),
    };
    return check_main("inspect", NULL, 0, tests, COUNT(tests));
}
