/* Gradients of microbatches: they are derivatives; whole = through chunks = two microbatches; a
 * step learns. */
#include "course.h"
#include "presets.h"

static void chunks_equal_whole(const char *preset)
{
    static const int64_t  some[] = {7, 1, 12, 10};
    course                c = {0};
    dra_error             err = {0};
    dra_microbatch_result whole, parts;
    open_course(&c, preset);
    dra_microbatch q = microbatch_of(&c);
    expect_ok(dra_gradients_run(c.gradients, &q, &whole, &err), &err);
    dra_real **all = take_gradients(&c);
    q.chunks = 4;
    q.chunk = some;
    expect_ok(dra_gradients_run(c.gradients, &q, &parts, &err), &err);
    assert_true(fabs(parts.loss - whole.loss) < EQUAL * whole.loss && parts.count == whole.count);
    expect_gradients(&c, all, preset);
    /* The same from states that are the first ones; they end where the microbatch does. */
    dra_states *s, *t;
    expect_ok(dra_states_create(c.device, dra_model_state(c.model), B, &s, &err), &err);
    expect_ok(dra_states_create(c.device, dra_model_state(c.model), B, &t, &err), &err);
    q.states = s;
    expect_ok(dra_gradients_run(c.gradients, &q, &parts, &err), &err);
    expect_gradients(&c, all, preset);
    q.states = t;
    q.chunks = 0;
    expect_ok(dra_gradients_run(c.gradients, &q, &parts, &err), &err);
    expect_gradients(&c, all, preset);
    dra_states_difference d;
    expect_ok(dra_states_compare(s, t, &d, &err), &err);
    if (!(d.worst <= EQUAL)) fail_msg("%s: state %s differs by %g", preset, d.name, d.worst);
    dra_states_destroy(s);
    dra_states_destroy(t);
    free_gradients(&c, all);
    close_course(&c);
}

static void gradients_run_through_chunks(void **unused)
{
    const dra_preset *p;
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++)
        if (preset_reads_in_parts(p->name)) chunks_equal_whole(p->name);
}

/* Computing the inside of layers again gives the same gradients with less memory. */
static void layers_are_computed_again(void **unused)
{
    static const char *const presets[] = {"gpt2-tiny", "dra-slots-tiny", "rwkv4-tiny",
                                          "hybrid-tiny"};
    for (int i = 0; i < 4; i++) {
        course                c = {0};
        dra_error             err = {0};
        dra_microbatch_result r;
        size_t                kept, again;
        const dra_microbatch  large = {.B = 8, .T = 256};
        open_course(&c, presets[i]);
        dra_microbatch q = microbatch_of(&c);
        expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
        expect_ok(dra_gradients_bytes(c.gradients, &large, false, &kept, &err), &err);
        dra_real **all = take_gradients(&c);
        dra_gradients_destroy(c.gradients);
        const dra_gradients_config lc = {.model = c.model, .device = c.device, .recompute = true};
        expect_ok(dra_gradients_create(&lc, &c.gradients, &err), &err);
        expect_ok(dra_gradients_bind(c.gradients, c.weights, &err), &err);
        expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
        expect_gradients(&c, all, presets[i]);
        expect_ok(dra_gradients_bytes(c.gradients, &large, false, &again, &err), &err);
        if (!(again < kept * 3 / 4)) fail_msg("%s: %zu bytes, then %zu", presets[i], kept, again);
        dra_states *s;
        expect_ok(dra_states_create(c.device, dra_model_state(c.model), B, &s, &err), &err);
        q.states = s;
        expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
        expect_gradients(&c, all, presets[i]);
        dra_states_destroy(s);
        free_gradients(&c, all);
        close_course(&c);
    }
}

/* What layers hand on besides their stream goes into regions and comes out of them; in chunks it is
 * the same. */
static void regions_hand_everything_on(void **unused)
{
    static const int64_t some[] = {7, 1, 12, 10};
    static const change  changes[][6] = {
         {{"mixer.value_residual", "learned"}, {"mixer.residual_scores", "true"}},
         {{"block.streams", "3"}, {"mixer.value_residual", "half"}, {"output_softcap", "3"}},
         {{"mixer.forget", "true"}, {"mixer.sink", "true"}, {"mixer.softcap", "4"}},
         {{"mixer.latent_kv", "5"}, {"bias", "false"}},
    };
    for (size_t i = 0; i < COUNT(changes); i++) {
        const dra_gradients_config plain = {0}, recompute = {.recompute = true};
        course                     c = {0}, again = {0};
        dra_error                  err = {0};
        dra_microbatch_result      r, other;
        open_changed(&c, "gpt2-tiny", changes[i], &plain, 0);
        open_changed(&again, "gpt2-tiny", changes[i], &recompute, 0);
        dra_microbatch q = microbatch_of(&c);
        expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
        dra_real **all = take_gradients(&c);
        expect_ok(dra_gradients_run(again.gradients, &q, &other, &err), &err);
        expect_gradients(&again, all, changes[i][0].name);
        q.chunks = 4;
        q.chunk = some;
        expect_ok(dra_gradients_run(again.gradients, &q, &other, &err), &err);
        expect_gradients(&again, all, changes[i][0].name);
        assert_true(fabs(other.loss - r.loss) < EQUAL * r.loss);
        free_gradients(&c, all);
        close_course(&c);
        close_course(&again);
    }
}

/* Two halves of a batch, each with its share, add up to the whole batch. */
static void microbatches_add_up(void **unused)
{
    course                c = {0};
    dra_error             err = {0};
    dra_microbatch_result r, r1, r2;
    open_course(&c, "dra-gru-tiny");
    dra_microbatch q = microbatch_of(&c);
    expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
    dra_real **all = take_gradients(&c);
    int64_t    first = 0;
    for (int i = 0; i < T; i++) first += c.targets[i] >= 0;
    q.B = 1;
    q.share = (double)first / (double)r.count;
    expect_ok(dra_gradients_run(c.gradients, &q, &r1, &err), &err);
    q = (dra_microbatch){.B = 1,
                         .T = T,
                         .ids = c.ids + T,
                         .targets = c.targets + T,
                         .mark = c.mark + T,
                         .add = true,
                         .share = 1 - (double)first / (double)r.count};
    expect_ok(dra_gradients_run(c.gradients, &q, &r2, &err), &err);
    assert_int_equal(r1.count + r2.count, r.count);
    expect_gradients(&c, all, "two microbatches");
    free_gradients(&c, all);
    close_course(&c);
}

/* What is dropped does not depend on chunks or on what is kept, but on seed and step. */
static void dropout_is_counted(void **unused)
{
    static const int64_t     some[] = {7, 1, 12, 10};
    static const char *const presets[] = {"gpt2-tiny", "dra-gru-tiny", "rwkv4-tiny",
                                          "gpt2-tiny", "gpt2-tiny",    "hybrid-tiny"};
    enum { ALL = DROPS_BRANCHES | DROPS_ATTENTION | DROPS_EMBEDDED };
    static const int drops[] = {DROPS_BRANCHES,  DROPS_BRANCHES, DROPS_BRANCHES,
                                DROPS_ATTENTION, DROPS_EMBEDDED, ALL};
    for (int i = 0; i < 6; i++) {
        course                c = {0}, again = {0};
        dra_error             err = {0};
        dra_microbatch_result r, other;
        open_course_with(&c, presets[i], &(dra_gradients_config){0}, drops[i]);
        open_course_with(&again, presets[i], &(dra_gradients_config){.recompute = true}, drops[i]);
        dra_microbatch q = microbatch_of(&c);
        q.seed = 9;
        q.step = 4;
        expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
        dra_real **all = take_gradients(&c);
        expect_ok(dra_gradients_run(again.gradients, &q, &other, &err), &err);
        expect_gradients(&again, all, presets[i]);
        q.chunks = 4;
        q.chunk = some;
        expect_ok(dra_gradients_run(c.gradients, &q, &other, &err), &err);
        expect_gradients(&c, all, presets[i]);
        assert_true(fabs(other.loss - r.loss) < EQUAL * r.loss);
        q.step = 5;
        expect_ok(dra_gradients_run(c.gradients, &q, &other, &err), &err);
        assert_true(other.loss != r.loss);
        q.no_dropout = true;
        expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
        q.step = 4;
        expect_ok(dra_gradients_run(c.gradients, &q, &other, &err), &err);
        assert_true(other.loss == r.loss);
        free_gradients(&c, all);
        close_course(&c);
        close_course(&again);
    }
}

/* Items that moved down in their state keep their numbers, and with them what is dropped: a fork
 * has room for what is live, the 9 last of 240. */
static void dropout_knows_items_by_number(void **unused)
{
    enum { LONG = 240, MORE = 10 };
    course                c = {0};
    dra_error             err = {0};
    dra_microbatch_result here, there;
    CHECK_CONFIG(config);
    dra_states *s, *moved;
    int32_t     ids[LONG], targets[LONG];
    expect_ok(dra_preset_config("gpt2-tiny", &config, &err), &err);
    config->dim = 16, config->heads = 2, config->depth = 1, config->context = LONG + MORE;
    check_mixers(config)->a.retrieval = "window";
    check_mixers(config)->a.window = 9;
    config->attention_dropout = 0.3;
    for (int i = 0; i < LONG; i++) ids[i] = i * i % V, targets[i] = (i * 13 + 5) % V;
    expect_ok(dra_model_create(config, &c.model, &err), &err);
    expect_ok(dra_weights_draw(c.model, 5, &c.weights, &err), &err);
    expect_ok(check_cpu(NULL, &c.device, &err), &err);
    const dra_gradients_config lc = {.model = c.model, .device = c.device};
    expect_ok(dra_gradients_create(&lc, &c.gradients, &err), &err);
    expect_ok(dra_gradients_bind(c.gradients, c.weights, &err), &err);
    expect_ok(dra_states_create(c.device, dra_model_state(c.model), 1, &s, &err), &err);
    dra_microbatch q = {.B = 1, .T = LONG, .ids = ids, .targets = targets, .states = s, .step = 3};
    expect_ok(dra_gradients_run(c.gradients, &q, &here, &err), &err);
    expect_ok(dra_states_fork(s, &moved, &err), &err);
    q.T = MORE;
    expect_ok(dra_gradients_run(c.gradients, &q, &here, &err), &err);
    dra_real **all = take_gradients(&c);
    q.states = moved;
    expect_ok(dra_gradients_run(c.gradients, &q, &there, &err), &err);
    assert_true(dra_states_held(moved) < dra_states_held(s));
    assert_true(fabs(here.loss - there.loss) < EQUAL * here.loss);
    expect_gradients(&c, all, "moved");
    dra_states_destroy(s);
    dra_states_destroy(moved);
    free_gradients(&c, all);
    close_course(&c);
}

/* Add-ons reach the gradient with their weight, also through layers computed again; a clamp that
 * does not fire and skipped tokens of no row change nothing. */
static void addons_have_weights(void **unused)
{
    dra_gradients_config  with = {.aux_loss = {[DRA_AUX_DRIFT] = 0.3, [DRA_AUX_BUDGET] = 0.2}};
    course                plain = {0}, more = {0}, again = {0};
    dra_error             err = {0};
    dra_microbatch_result r, s;
    open_course(&plain, "dra-gru-tiny");
    open_course_with(&more, "dra-gru-tiny", &with, 0);
    with.recompute = true;
    open_course_with(&again, "dra-gru-tiny", &with, 0);
    dra_microbatch q = microbatch_of(&plain);
    expect_ok(dra_gradients_run(plain.gradients, &q, &r, &err), &err);
    assert_true(isnan(r.aux[DRA_AUX_DRIFT]));
    dra_real **alone = take_gradients(&plain);
    expect_ok(dra_gradients_run(more.gradients, &q, &s, &err), &err);
    assert_true(s.loss == r.loss && s.aux[DRA_AUX_DRIFT] > 0 && s.aux[DRA_AUX_BUDGET] > 0);
    dra_real **all = take_gradients(&more);
    expect_ok(dra_gradients_run(again.gradients, &q, &s, &err), &err);
    expect_gradients(&again, all, "add-ons");
    double moved = 0;
    for (int i = 0; i < dra_specs_count(dra_model_params(plain.model)); i++)
        for (int64_t k = 0; k < size_of(&plain, i); k++)
            moved = fmax(moved, fabs((double)(all[i][k] - alone[i][k])));
    assert_true(moved > 1e-4);
    int32_t nothing[B * T];
    for (int i = 0; i < B * T; i++) nothing[i] = -1;
    q.targets = nothing; /* no targets: no gradient, not even of what is added */
    expect_ok(dra_gradients_run(more.gradients, &q, &s, &err), &err);
    for (int i = 0; i < dra_specs_count(dra_model_params(more.model)); i++)
        for (int64_t k = 0; k < size_of(&more, i); k++)
            assert_true(dra_gradients_of(more.gradients, i)[k] == 0);
    q.targets = plain.targets;
    dra_states *states;
    expect_ok(dra_states_create(plain.device, dra_model_state(plain.model), B, &states, &err),
              &err);
    q.clamp = true;
    q.states = states;
    expect_ok(dra_gradients_run(plain.gradients, &q, &s, &err), &err);
    assert_int_equal(s.clamped, 0);
    expect_gradients(&plain, alone, "clamp");
    for (int i = 0; i < dra_specs_count(dra_model_state(plain.model)); i++) {
        const dra_spec *p = dra_specs_at(dra_model_state(plain.model), i);
        const size_t    n = dra_states_size(states, i, 0);
        dra_real       *x = calloc(n + 1, sizeof *x);
        if (!p->items && n) x[0] = (dra_real)1e9;
        if (!p->items) expect_ok(dra_states_write(states, i, 0, x, n, &err), &err);
        free(x);
    }
    expect_ok(dra_gradients_run(plain.gradients, &q, &s, &err), &err);
    assert_true(s.clamped > 0);
    q.clamp = false; /* nothing is left of that count */
    q.states = NULL;
    expect_ok(dra_gradients_run(plain.gradients, &q, &s, &err), &err);
    assert_int_equal(s.clamped, 0);
    dra_states_destroy(states);
    free_gradients(&plain, alone);
    free_gradients(&plain, all);
    close_course(&plain);
    close_course(&more);
    close_course(&again);
    with = (dra_gradients_config){.model = NULL};
    CHECK_CONFIG(c);
    dra_model *m;
    expect_ok(dra_preset_config("gpt2-tiny", &c, &err), &err);
    c->aux = 1u << DRA_AUX_ENTROPY;
    assert_int_not_equal(dra_model_create(c, &m, &err), DRA_OK);
    assert_string_equal(err.text, "model: no layer has entropy");
}

#ifdef DRA_REAL_DOUBLE
static void check_derivatives(const char *preset, int drops)
{
    course                c = {0};
    dra_error             err = {0};
    dra_microbatch_result r, up, down;
    open_course_with(&c, preset, &(dra_gradients_config){0}, drops);
    dra_microbatch q = microbatch_of(&c);
    q.seed = 3;
    expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
    dra_real **all = take_gradients(&c);
    for (int i = 0; i < dra_specs_count(dra_model_params(c.model)); i++) {
        dra_real     *w = dra_weights_edit(c.weights, i);
        const int64_t k = size_of(&c, i) / 2;
        const double  old = w[k], h = 1e-5;
        w[k] = old + h;
        expect_ok(dra_gradients_bind(c.gradients, c.weights, &err), &err);
        expect_ok(dra_gradients_run(c.gradients, &q, &up, &err), &err);
        w[k] = old - h;
        expect_ok(dra_gradients_bind(c.gradients, c.weights, &err), &err);
        expect_ok(dra_gradients_run(c.gradients, &q, &down, &err), &err);
        w[k] = old;
        const double slope = (up.loss - down.loss) / (2 * h);
        if (!(fabs(slope - all[i][k]) < 1e-7 + 1e-6 * fabs(slope)))
            fail_msg("%s: %g, found %g", dra_specs_at(dra_model_params(c.model), i)->name, slope,
                     all[i][k]);
    }
    free_gradients(&c, all);
    close_course(&c);
}

static void gradients_are_derivatives(void **unused)
{
    check_derivatives("rwkv4-tiny", 0);
    check_derivatives("gpt2-tiny", DROPS_BRANCHES | DROPS_ATTENTION | DROPS_EMBEDDED);
}
#endif

static void steps_learn(void **unused)
{
    course                     c = {0};
    dra_error                  err = {0};
    dra_optimizer             *o;
    dra_microbatch_result      r = {0};
    double                     first = 0, norm;
    const dra_optimizer_config oc = {.clip = 1, .decay = 0.01};
    open_course(&c, "dra-slots-tiny");
    expect_ok(dra_optimizer_create(&oc, c.model, c.device, &o, &err), &err);
    dra_microbatch q = microbatch_of(&c);
    for (int step = 1; step <= 30; step++) {
        expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
        expect_ok(dra_optimizer_step(o, c.weights, c.gradients, 3e-3, step, &norm, &err), &err);
        if (step == 1) first = r.loss;
    }
    if (!(r.loss < first - 0.5)) fail_msg("loss went from %g to %g", first, r.loss);
    dra_optimizer_destroy(o);
    close_course(&c);
}

typedef struct rate_row {
    const char *name;
    double      times[3]; /* without, first stage, second */
} rate_row;

/* What a step of Adam moves is its rate at first: groups learn as many times as fast. */
static void check_rates(const char *preset, size_t n, const rate_row *rows)
{
    for (int stage = 0; stage < 3; stage++) {
        course                     c = {0};
        dra_error                  err = {0};
        dra_optimizer             *o;
        dra_microbatch_result      r;
        double                     norm, was[8];
        const dra_optimizer_config oc = {
            .rwkv_rates = stage > 0, .rwkv_stage = stage, .eps = 1e-30};
        assert_true(n <= COUNT(was));
        open_course(&c, preset);
        expect_ok(dra_optimizer_create(&oc, c.model, c.device, &o, &err), &err);
        dra_microbatch q = microbatch_of(&c);
        expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
        for (size_t i = 0; i < n; i++) {
            const int at = dra_specs_find(dra_model_params(c.model), rows[i].name);
            was[i] = (double)dra_weights_at(c.weights, at)[3];
        }
        expect_ok(dra_optimizer_step(o, c.weights, c.gradients, 1e-3, 1, &norm, &err), &err);
        for (size_t i = 0; i < n; i++) {
            const int    at = dra_specs_find(dra_model_params(c.model), rows[i].name);
            const double moved = fabs((double)dra_weights_at(c.weights, at)[3] - was[i]);
            if (!(fabs(moved - 1e-3 * rows[i].times[stage]) < 2e-6))
                fail_msg("stage %d: %s moved by %g", stage, rows[i].name, moved);
        }
        dra_optimizer_destroy(o);
        close_course(&c);
    }
}

static void rwkv_has_rates(void **unused)
{
    static const rate_row four[] = {
        {"layers.0.mixer.time_decay", {1, 2, 5}}, {"layers.1.mixer.time_first", {1, 3, 5}},
        {"layers.0.mixer.mu_k", {1, 1, 5}},       {"layers.1.ff.mu_r", {1, 1, 5}},
        {"layers.1.mixer.W_k", {1, 1, 1}},        {"layers.0.ff.norm_g", {1, 1, 1}}};
    static const rate_row six[] = {
        {"layers.0.mixer.time_decay", {1, 2, 5}}, {"layers.1.mixer.bonus", {1, 1, 5}},
        {"layers.0.mixer.mu_v", {1, 1, 5}},       {"layers.1.mixer.mu_k_1", {1, 1, 1}},
        {"layers.1.mixer.W_decay_1", {1, 1, 1}},  {"layers.0.ff.mu_k", {1, 1, 5}}};
    static const rate_row seven[] = {{"layers.0.mixer.time_decay", {1, 2, 5}},
                                     {"layers.1.mixer.W_rate_1", {1, 1, 1}},
                                     {"layers.1.mixer.k_k", {1, 1, 1}},
                                     {"layers.1.mixer.W_g_2", {1, 1, 1}}};
    check_rates("rwkv4-tiny", COUNT(four), four);
    check_rates("rwkv6-tiny", COUNT(six), six);
    check_rates("rwkv7-tiny", COUNT(seven), seven);
}

/* One step with a rate that halves what decays, but for the step of the gradient (1e-3, twice that
 * for some). The largest number of a tensor has to show which of the two it was. */
static void check_decay(const char *name, bool decays, int64_t n, const dra_real *was,
                        const dra_real *is)
{
    const double step = 2.1e-3;
    double       largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double expected = (double)was[i] * (decays ? 0.5 : 1);
        largest = fmax(largest, fabs((double)was[i]));
        if (!(fabs((double)is[i] - expected) < step))
            fail_msg("%s[%lld]: %g became %g", name, (long long)i, (double)was[i], (double)is[i]);
    }
    if (!(largest / 2 > 2 * step)) fail_msg("%s: %g is too small to tell", name, largest);
}

static void decay_spares_low_ranks(void **unused)
{
    static const struct {
        const char *name;
        bool        decays;
    } rows[] = {{"embedding", true},
                {"head", true},
                {"layers.1.mixer.W_q", true},
                {"layers.1.mixer.W_decay_2", false},
                {"layers.1.mixer.W_g_2", false},
                {"layers.1.mixer.k_k", false}};
    course                     c = {0};
    dra_error                  err = {0};
    dra_optimizer             *o;
    dra_microbatch_result      r;
    double                     norm;
    dra_real                  *was[COUNT(rows)];
    int                        at[COUNT(rows)];
    int64_t                    n[COUNT(rows)];
    const dra_optimizer_config oc = {.rwkv_rates = true, .decay = 500};
    open_course(&c, "rwkv7-tiny");
    expect_ok(dra_optimizer_create(&oc, c.model, c.device, &o, &err), &err);
    dra_microbatch q = microbatch_of(&c);
    expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
    for (size_t i = 0; i < COUNT(rows); i++) {
        at[i] = dra_specs_find(dra_model_params(c.model), rows[i].name);
        n[i] = dra_shape_count(&dra_specs_at(dra_model_params(c.model), at[i])->shape);
        was[i] = malloc((size_t)n[i] * sizeof(dra_real));
        assert_non_null(was[i]);
        memcpy(was[i], dra_weights_at(c.weights, at[i]), (size_t)n[i] * sizeof(dra_real));
    }
    expect_ok(dra_optimizer_step(o, c.weights, c.gradients, 1e-3, 1, &norm, &err), &err);
    for (size_t i = 0; i < COUNT(rows); i++) {
        check_decay(rows[i].name, rows[i].decays, n[i], was[i], dra_weights_at(c.weights, at[i]));
        free(was[i]);
    }
    dra_optimizer_destroy(o);
    close_course(&c);
}

/* The same through chunks and in two microbatches; the loss does not show it. */
static void logits_are_pulled(void **unused)
{
    static const int64_t  some[] = {7, 1, 12, 10};
    course                plain = {0}, c = {0};
    dra_error             err = {0};
    dra_microbatch_result r, s;
    double                moved = 0;
    open_course(&plain, "rwkv4-tiny");
    open_course_with(&c, "rwkv4-tiny", &(dra_gradients_config){.l2wrap = 0.1}, 0);
    dra_microbatch q = microbatch_of(&c);
    expect_ok(dra_gradients_run(plain.gradients, &q, &r, &err), &err);
    expect_ok(dra_gradients_run(c.gradients, &q, &s, &err), &err);
    assert_true(r.loss == s.loss);
    dra_real **all = take_gradients(&c);
    for (int64_t k = 0; k < size_of(&c, 0); k++)
        moved = fmax(moved, fabs((double)(all[0][k] - dra_gradients_of(plain.gradients, 0)[k])));
    assert_true(moved > 1e-5);
    q.chunks = 4;
    q.chunk = some;
    expect_ok(dra_gradients_run(c.gradients, &q, &s, &err), &err);
    expect_gradients(&c, all, "chunks");
    free_gradients(&c, all);
    close_course(&c);
    close_course(&plain);
}

/* A gradient that is not finite changes nothing. */
static void bad_gradients_are_left(void **unused)
{
    course                     c = {0};
    dra_error                  err = {0};
    dra_optimizer             *o;
    dra_microbatch_result      r;
    double                     norm;
    const dra_optimizer_config oc = {.clip = 1};
    open_course(&c, "gpt2-tiny");
    expect_ok(dra_optimizer_create(&oc, c.model, c.device, &o, &err), &err);
    dra_microbatch q = microbatch_of(&c);
    dra_real      *w = dra_weights_edit(c.weights, 0);
    w[3] = (dra_real)NAN;
    expect_ok(dra_gradients_bind(c.gradients, c.weights, &err), &err);
    c.ids[0] = 0;
    expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
    const dra_real before = dra_weights_at(c.weights, 1)[2];
    expect_ok(dra_optimizer_step(o, c.weights, c.gradients, 1, 1, &norm, &err), &err);
    assert_int_equal(isfinite(norm), 0);
    assert_true(dra_weights_at(c.weights, 1)[2] == before);
    dra_real       moment = 1;
    const dra_span all = dra_optimizer_moment(o, 1, 0);
    expect_ok(
        dra_array_download(&moment, dra_span_part(all, 2 * sizeof moment, sizeof moment), &err),
        &err);
    assert_true(moment == 0);
    dra_optimizer_destroy(o);
    close_course(&c);
}

static void wrong_microbatches_are_named(void **unused)
{
    static const int64_t  chunk[] = {7, 7};
    course                c = {0};
    dra_error             err = {0};
    dra_microbatch_result r;
    open_course(&c, "dra-ema-tiny");
    dra_microbatch q = microbatch_of(&c);
    q.chunks = 2;
    q.chunk = chunk;
    assert_int_not_equal(dra_gradients_run(c.gradients, &q, &r, &err), DRA_OK);
    assert_string_equal(err.text, "gradients: chunks of 14 tokens for a microbatch of 30");
    q.T = 0;
    assert_int_not_equal(dra_gradients_run(c.gradients, &q, &r, &err), DRA_OK);
    assert_string_equal(err.text, "gradients: B 2, T 0, expected 1 or more");
    close_course(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_run_through_chunks),
        cmocka_unit_test(layers_are_computed_again),
        cmocka_unit_test(microbatches_add_up),
        cmocka_unit_test(regions_hand_everything_on),
        cmocka_unit_test(dropout_is_counted),
        cmocka_unit_test(dropout_knows_items_by_number),
        cmocka_unit_test(addons_have_weights),
#ifdef DRA_REAL_DOUBLE
        cmocka_unit_test(gradients_are_derivatives),
#endif
        cmocka_unit_test(steps_learn),
        cmocka_unit_test(rwkv_has_rates),
        cmocka_unit_test(decay_spares_low_ranks),
        cmocka_unit_test(logits_are_pulled),
        cmocka_unit_test(bad_gradients_are_left),
        cmocka_unit_test(wrong_microbatches_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
