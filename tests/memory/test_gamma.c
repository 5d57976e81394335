/* Decay: where half-lives start, by kind, retrieval and depth; what gamma = 0 does; what is
 * learned. */
#include "sequence/reading.h"

#include <math.h>

/* The parameter `name` of a mixer: its spec is good until the mixer is closed. */
static const dra_spec *param_of(const dra_mixer *m, const char *name)
{
    const dra_specs *specs = dra_mixer_module(m)->params;
    const int        i = dra_specs_find(specs, name);
    if (i < 0) fail_msg("no parameter is called %s", name);
    return dra_specs_at(specs, i);
}

static dra_mixer *open_mixer(int64_t heads, const dra_memory_config *memory)
{
    dra_mixer *m = NULL;
    dra_error  err = {0};
    expect_ok(
        dra_mixer_create(&(dra_mixer_config){.dim = 12, .heads = heads, .a = *memory}, &m, &err),
        &err);
    return m;
}

/* log2 of the steps after which gamma = sigmoid(beta) leaves 1/2, or 1/e. */
static double log_steps(double beta, bool efold)
{
    const double rate = log1p(exp(-beta)); /* -ln(gamma) */
    return log2((efold ? 1 : log(2)) / rate);
}

/* Number j of n of them goes evenly from lo to hi, one of them is the middle. */
static double spaced(double lo, double hi, int64_t j, int64_t n)
{
    return n > 1 ? lo + (hi - lo) * (double)j / (double)(n - 1) : (lo + hi) / 2;
}

/* All values of `name`, (H, units, each): unit i of head h is number i H + h. */
static void expect_spread(const dra_mixer *m, const char *name, int64_t H, int64_t units,
                          int64_t each, double lo, double hi, bool efold)
{
    const dra_spec *p = param_of(m, name);
    assert_int_equal(dra_shape_count(&p->shape), H * units * each);
    for (int64_t i = 0; i < H * units * each; i++) {
        const int64_t h = i / each / units, unit = i / each % units;
        const double  found = log_steps(p->values[i], efold);
        const double  expected = spaced(lo, hi, unit * H + h, H * units);
        if (!(fabs(found - expected) < 1e-9))
            fail_msg("%s %lld: 2^%.12g steps, expected 2^%.12g", name, (long long)i, found,
                     expected);
    }
}

/* ---- where they start ------------------------------------------------------------------------ */

static void ranges_follow_the_retrieval(void **state)
{
    static const struct {
        const char *memory, *retrieval;
        double      lo, hi;
    } cases[] = {
        {"ema", "time", -1, 4},  {"ema", "window", -1, 4}, {"ema", "none", 2, 14},
        {"ema", "joint", 2, 14}, {"gru", "time", -1, 4},   {"gru", "window", -1, 4},
        {"gru", "none", 2, 14},  {"gru", "joint", 2, 14},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_memory_config c = {cases[i].memory, .retrieval = cases[i].retrieval};
        const bool        gru = strcmp(c.memory, "gru") == 0;
        c.window = strcmp(c.retrieval, "window") == 0;
        for (int64_t H = 1; H <= 4; H++) {
            dra_mixer *m = open_mixer(H, &c);
            expect_spread(m, gru ? "beta" : "beta_k", H, 1, 1, cases[i].lo, cases[i].hi, false);
            if (!gru) expect_spread(m, "beta_v", H, 1, 1, cases[i].lo, cases[i].hi, false);
            dra_mixer_destroy(m);
        }
        c.gamma.start = DRA_GAMMA_EFOLD; /* one range for all */
        dra_mixer *m = open_mixer(3, &c);
        expect_spread(m, gru ? "beta" : "beta_v", 3, 1, 1, 0, 14, true);
        dra_mixer_destroy(m);
        c.gamma = (dra_gamma_config){.ranged = true, .range = {1, 5}}; /* a given one wins */
        m = open_mixer(3, &c);
        expect_spread(m, gru ? "beta" : "beta_v", 3, 1, 1, 1, 5, false);
        dra_mixer_destroy(m);
    }
}

static void every_head_spans_the_range(void **state)
{
    const dra_memory_config c = {"ema", .retrieval = "none", .ema.timescales = 5};
    dra_mixer              *m = open_mixer(3, &c);
    expect_spread(m, "beta_k", 3, 5, 1, 2, 14, false);
    const dra_spec *p = param_of(m, "beta_k");
    for (int64_t h = 0; h < 3; h++) {
        assert_true(log_steps(p->values[h * 5], false) < 4);
        assert_true(log_steps(p->values[h * 5 + 4], false) > 12);
    }
    dra_mixer_destroy(m);
}

static void channels_of_a_head_start_alike(void **state)
{
    const dra_memory_config ema = {"ema", .ema.timescales = 2,
                                   .gamma = {DRA_PER_CHANNEL, .share = true}};
    const dra_memory_config gru = {"gru", .gamma = {DRA_PER_CHANNEL}};
    const dra_memory_config joined = {"gru", .joined = true, .dim = 5, .gamma = {DRA_PER_CHANNEL}};
    dra_mixer              *m = open_mixer(3, &ema);
    expect_spread(m, "beta", 3, 2, 4, -1, 4, false);
    dra_mixer_destroy(m);
    m = open_mixer(3, &gru);
    expect_spread(m, "beta", 3, 1, 4, -1, 4, false);
    dra_mixer_destroy(m);
    m = open_mixer(3, &joined);
    expect_spread(m, "beta", 3, 1, 5, -1, 4, false);
    dra_mixer_destroy(m);
}

static void a_constant_is_that_gamma(void **state)
{
    const double gammas[] = {1e-12, 0.03, 0.5, 0.97, 1 - 1e-9};
    for (size_t i = 0; i < COUNT(gammas); i++) {
        const dra_memory_config c = {"gru",
                                     .gamma = {.start = DRA_GAMMA_CONST, .value = gammas[i]}};
        dra_mixer              *m = open_mixer(3, &c);
        const dra_spec         *p = param_of(m, "beta");
        for (int k = 0; k < 3; k++) {
            const double g = 1 / (1 + exp(-p->values[k])), rest = 1 / (1 + exp(p->values[k]));
            assert_true(fabs(g - gammas[i]) <= 1e-12 * gammas[i]);
            assert_true(fabs(rest - (1 - gammas[i])) <= 1e-7 * (1 - gammas[i]));
        }
        dra_mixer_destroy(m);
    }
}

/* Layer l of L: half-lives 2^(lo + (hi-lo) l/(L-1)) longer, whatever they start from. */
static void deeper_layers_remember_longer(void **state)
{
    for (int layer = 0; layer < 4; layer++) {
        dra_memory_config c = {"gru", .gamma = {.depth = {-1, 5}, .layer = layer, .layers = 4}};
        const double      longer = -1 + 2 * layer;
        dra_mixer        *m = open_mixer(3, &c);
        expect_spread(m, "beta", 3, 1, 1, -1 + longer, 4 + longer, false);
        dra_mixer_destroy(m);
        c.gamma.start = DRA_GAMMA_EFOLD;
        m = open_mixer(3, &c);
        expect_spread(m, "beta", 3, 1, 1, longer, 14 + longer, true);
        dra_mixer_destroy(m);
        c.gamma.start = DRA_GAMMA_CONST, c.gamma.value = 0.5; /* a half-life of one step */
        m = open_mixer(3, &c);
        expect_spread(m, "beta", 3, 1, 1, longer, longer, false);
        dra_mixer_destroy(m);
    }
    dra_mixer *one = open_mixer(
        3, &(dra_memory_config){"gru", .gamma = {.depth = {2, 9}, .layers = 1}});
    expect_spread(one, "beta", 3, 1, 1, 1, 6, false); /* the first of one is the first */
    dra_mixer_destroy(one);
    dra_mixer *none = open_mixer(3, &(dra_memory_config){"gru", .gamma.depth = {2, 9}});
    expect_spread(none, "beta", 3, 1, 1, -1, 4, false); /* no layers, no schedule */
    dra_mixer_destroy(none);
}

/* The longest and the shortest that are allowed are finite in float, too. */
static void extremes_are_finite(void **state)
{
    const double ends[][2] = {{64, 64}, {-64, -64}};
    for (size_t i = 0; i < COUNT(ends); i++) {
        const dra_memory_config c = {"gru", .gamma = {.ranged = true,
                                                      .range = {ends[i][0], ends[i][1]},
                                                      .depth = {ends[i][0], ends[i][1]},
                                                      .layers = 1}};
        dra_mixer              *m = open_mixer(3, &c);
        dra_real                beta[3];
        const dra_specs        *specs = dra_mixer_module(m)->params;
        dra_specs_fill(specs, dra_specs_find(specs, "beta"), 1, beta);
        for (int k = 0; k < 3; k++) assert_true(isfinite((double)beta[k]));
        dra_mixer_destroy(m);
    }
}

/* ---- what they do ---------------------------------------------------------------------------- */

/* gamma is 0 and 1 - gamma is 1, both exactly: from 0 the first item is its input, bit for bit. */
static void beta_of_minus_1000_is_gamma_0(void **state)
{
    dra_graph *g = check_graph();
    dra_value  beta = dra_number(g, -1000);
    dra_real   y[2][4], x[4] = {(dra_real)0.1, -3, 1e-7f, 7}, minus[2] = {-1000, -1000};
    dra_error  err = {0};
    dra_output(g, "gamma", dra_sigmoid(g, beta));
    dra_output(g, "rate", dra_sigmoid(g, dra_neg(g, beta)));
    check_program p = check_compile(g, 1);
    check_run(&p);
    assert_true(*check_result(&p, "gamma") == 0);
    assert_true(*check_result(&p, "rate") == 1);
    check_free(&p);
    for (int i = 0; i < 2; i++) {
        reading     r = open_reading(&(dra_mixer_config){
                .dim = 4, .heads = 2, .a = {i ? "append" : "ema", .retrieval = "none"}});
        dra_states *s = new_states(r.module->state, 1);
        if (!i) {
            expect_ok(dra_reader_bind(r.reader, "beta_k", minus, sizeof minus, &err), &err);
            expect_ok(dra_reader_bind(r.reader, "beta_v", minus, sizeof minus, &err), &err);
        }
        read_tokens(&r, s, 1, NULL, x, y[i]);
        dra_states_destroy(s);
        close_reading(&r);
    }
    check_reals(y[0], y[1], sizeof y[0]);
}

static void what_is_not_learned_is_frozen(void **state)
{
    const struct {
        dra_switch learn;
        bool       frozen;
    } cases[] = {{DRA_DEFAULT, false}, {DRA_ON, false}, {DRA_OFF, true}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const dra_memory_config c = {"ema", .gamma.learn = cases[i].learn};
        dra_mixer              *m = open_mixer(3, &c);
        assert_int_equal(param_of(m, "beta_k")->frozen, cases[i].frozen);
        assert_int_equal(param_of(m, "beta_v")->frozen, cases[i].frozen);
        assert_false(param_of(m, "W_q")->frozen);
        dra_mixer_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_follow_the_retrieval),
        cmocka_unit_test(every_head_spans_the_range),
        cmocka_unit_test(channels_of_a_head_start_alike),
        cmocka_unit_test(a_constant_is_that_gamma),
        cmocka_unit_test(deeper_layers_remember_longer),
        cmocka_unit_test(extremes_are_finite),
        cmocka_unit_test(beta_of_minus_1000_is_gamma_0),
        cmocka_unit_test(what_is_not_learned_is_frozen),
    };
    return check_main("gamma", NULL, 0, tests, COUNT(tests));
}
