/* Groups of parameters: which one each is in, what optimizers do with it, and how a program
 * changes that. */
#include "course.h"

/* ---- which is in which ----------------------------------------------------------------------- */

static dra_model *make_preset(const char *name)
{
    CHECK_CONFIG(config);
    dra_model *m = NULL;
    dra_error  err = {0};
    expect_ok(dra_preset_config(name, &config, &err), &err);
    expect_ok(dra_model_create(config, &m, &err), &err);
    return m;
}

static dra_param_group group_of(const dra_model *m, const char *name)
{
    const int i = dra_specs_find(dra_model_params(m), name);
    if (i < 0) fail_msg("there is no %s", name);
    return dra_specs_at(dra_model_params(m), i)->group;
}

static void parameters_are_in_groups(void **state)
{
    static const struct {
        const char     *preset, *name;
        dra_param_group group;
    } rows[] = {
        {"gpt2-tiny", "embedding", DRA_PARAM_EMBEDDING},
        {"gpt2-tiny", "positions", DRA_PARAM_POSITION},
        {"gpt2-tiny", "layers.0.mixer.W_q", DRA_PARAM_MATRIX},
        {"gpt2-tiny", "layers.1.ff.W_down", DRA_PARAM_MATRIX},
        {"gpt2-tiny", "layers.1.ff.b_up", DRA_PARAM_BIAS},
        {"gpt2-tiny", "norm_g", DRA_PARAM_NORM},
        {"dra-ema-tiny", "layers.0.mixer.beta_k", DRA_PARAM_DECAY},
        {"dra-gru-tiny", "layers.0.mixer.k_W_hh", DRA_PARAM_MATRIX},
        {"dra-gru-tiny", "layers.0.mixer.k_b_hh", DRA_PARAM_BIAS},
        {"rwkv4-tiny", "layers.0.mixer.time_first", DRA_PARAM_TIME_FIRST},
        {"rwkv6-tiny", "layers.0.mixer.bonus", DRA_PARAM_BONUS},
        {"rwkv6-tiny", "layers.0.mixer.mu_k", DRA_PARAM_SHIFT},
        {"rwkv6-tiny", "layers.0.mixer.mu_k_2", DRA_PARAM_SHIFT_RANK},
        {"rwkv7-tiny", "head", DRA_PARAM_HEAD},
        {"rwkv7-tiny", "layers.0.mixer.time_decay", DRA_PARAM_TIME_DECAY},
        {"rwkv7-tiny", "layers.0.mixer.W_rate_1", DRA_PARAM_LOW_RANK},
        {"rwkv7-tiny", "layers.0.mixer.b_rate", DRA_PARAM_BIAS},
        {"rwkv7-tiny", "layers.0.mixer.k_a", DRA_PARAM_OTHER},
        {"rwkv7-tiny", "layers.1.mixer.hn_g", DRA_PARAM_NORM},
        {"vit-tiny", "patch_w", DRA_PARAM_INPUT},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_model *m = make_preset(rows[i].preset);
        if (group_of(m, rows[i].name) != rows[i].group)
            fail_msg("%s: %s is in %s", rows[i].preset, rows[i].name,
                     dra_param_group_name(group_of(m, rows[i].name)));
        dra_model_destroy(m);
    }
    assert_null(dra_param_group_name(DRA_PARAM_AUTO));
    assert_null(dra_param_group_name(DRA_PARAM_GROUPS));
}

/* What is trained of a model is in one group each. */
static void groups_add_up(void **state)
{
    for (size_t i = 0; dra_preset_at(i); i++) {
        const char *name = dra_preset_at(i)->name;
        int64_t     count[DRA_PARAM_GROUPS], sum = 0, all = 0;
        if (!strstr(name, "-tiny")) continue;
        dra_model       *m = make_preset(name);
        const dra_specs *params = dra_model_params(m);
        for (int k = 0; k < dra_specs_count(params); k++)
            if (!dra_specs_at(params, k)->frozen)
                all += dra_shape_count(&dra_specs_at(params, k)->shape);
        dra_model_groups(m, count);
        for (int k = 0; k < DRA_PARAM_GROUPS; k++) sum += count[k];
        if (sum != all || count[DRA_PARAM_AUTO]) fail_msg("%s: %lld of %lld", name, sum, all);
        dra_model_destroy(m);
    }
}

/* ---- rules ----------------------------------------------------------------------------------- */

static void rules_are_rows(void **state)
{
    static const struct {
        dra_param_group group;
        double          wd;      /* of 0.5 */
        double          lr[3];   /* without RWKV's rates, in its first and its second stage */
        double          rwkv_wd; /* with them */
    } rows[] = {{DRA_PARAM_MATRIX, 0.5, {1, 1, 1}, 0.5},  {DRA_PARAM_MAP, 0.5, {1, 1, 1}, 0.5},
                {DRA_PARAM_HEAD, 0.5, {1, 1, 1}, 0.5},    {DRA_PARAM_LOW_RANK, 0, {1, 1, 1}, 0},
                {DRA_PARAM_EMBEDDING, 0, {1, 1, 1}, 0.5}, {DRA_PARAM_NORM, 0, {1, 1, 1}, 0},
                {DRA_PARAM_TIME_DECAY, 0, {1, 2, 5}, 0},  {DRA_PARAM_TIME_FIRST, 0, {1, 3, 5}, 0},
                {DRA_PARAM_BONUS, 0, {1, 1, 5}, 0},       {DRA_PARAM_SHIFT, 0, {1, 1, 5}, 0},
                {DRA_PARAM_SHIFT_RANK, 0, {1, 1, 1}, 0},  {DRA_PARAM_DECAY, 0, {1, 1, 1}, 0},
                {DRA_PARAM_OTHER, 0, {1, 1, 1}, 0}};
    dra_model *seven = make_preset("rwkv7-tiny"), *four = make_preset("rwkv4-tiny");
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int stage = 0; stage < 3; stage++) {
            const dra_optimizer_config c = {
                .decay = 0.5, .rwkv_rates = stage > 0, .rwkv_stage = stage};
            const dra_group_config g = dra_optimizer_group(&c, seven, rows[i].group);
            const double           wd = stage ? rows[i].rwkv_wd : rows[i].wd;
            if (g.lr != rows[i].lr[stage] || g.wd != wd)
                fail_msg("%s in stage %d: lr %g, wd %g", dra_param_group_name(rows[i].group), stage,
                         g.lr, g.wd);
        }
    }
    /* RWKV-4 norms no heads, and its trainer leaves the embedding. */
    const dra_optimizer_config c = {.decay = 0.5, .rwkv_rates = true};
    assert_true(dra_optimizer_group(&c, four, DRA_PARAM_EMBEDDING).wd == 0);
    dra_model_destroy(seven);
    dra_model_destroy(four);
}

static void programs_choose(void **state)
{
    dra_model           *m = make_preset("rwkv7-tiny");
    dra_optimizer_config c = {.decay = 0.5, .rwkv_rates = true};
    c.group[DRA_PARAM_TIME_DECAY] = (dra_group_config){.lr = 7, .wd = 0.25};
    c.group[DRA_PARAM_MATRIX] = (dra_group_config){.lr = -1, .wd = -1};
    const dra_group_config decay = dra_optimizer_group(&c, m, DRA_PARAM_TIME_DECAY);
    const dra_group_config matrix = dra_optimizer_group(&c, m, DRA_PARAM_MATRIX);
    assert_true(decay.lr == 7 && decay.wd == 0.25);
    assert_true(matrix.lr == 0 && matrix.wd == 0);
    dra_model_destroy(m);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* What a first step of AdamW with this config does to one number of a parameter. */
static double moved(course *c, const dra_optimizer_config *config, const char *name)
{
    dra_error             err = {0};
    dra_optimizer        *o;
    dra_microbatch_result r;
    double                norm;
    const dra_microbatch  q = {.B = B, .T = T, .ids = c->ids, .targets = c->targets};
    const int             at = dra_specs_find(dra_model_params(c->model), name);
    expect_ok(dra_optimizer_create(config, c->model, c->device, &o, &err), &err);
    expect_ok(dra_gradients_run(c->gradients, &q, &r, &err), &err);
    const double was = (double)dra_weights_at(c->weights, at)[0];
    expect_ok(dra_optimizer_step(o, c->weights, c->gradients, 1e-3, 1, &norm, &err), &err);
    dra_optimizer_destroy(o);
    return (double)dra_weights_at(c->weights, at)[0] - was;
}

static void groups_learn_at_their_rates(void **state)
{
    course               c = {0};
    dra_optimizer_config config = {.eps = 1e-30};
    config.group[DRA_PARAM_NORM].lr = 3;
    config.group[DRA_PARAM_DECAY].lr = -1;
    open_course(&c, "dra-gru-tiny");
    const double norm = moved(&c, &config, "layers.0.mixer.norm_g");
    const double decay = moved(&c, &config, "layers.0.mixer.beta");
    if (!(fabs(fabs(norm) - 3e-3) < 2e-6)) fail_msg("norm_g moved by %g", norm);
    if (decay != 0) fail_msg("beta moved by %g", decay);
    close_course(&c);
}

/* ---- a memory of one's own ------------------------------------------------------------------- */

/* m' = tanh(A m) + B v, a state of each head; B is spared. */
static void own_declare(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                        dra_specs *state)
{
    dra_specs_add(params, prefix,
                  &(dra_spec){"A", DRA_SHAPE(s->E, s->E), DRA_FILL_NORMAL, .number = 0.5});
    dra_specs_add(params, prefix,
                  &(dra_spec){"B", DRA_SHAPE(s->E, s->E), DRA_FILL_NORMAL, .number = 0.5,
                              .group = DRA_PARAM_OTHER});
    dra_specs_add(params, prefix, &(dra_spec){"c", DRA_SHAPE(s->E)});
    dra_specs_add(state, prefix, &(dra_spec){"m", DRA_SHAPE(s->H, s->E)});
}

static void own_step(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_value was = dra_tanh(g, dra_linear(g, c->state[0], c->param[0], c->param[2]));
    const dra_value now = dra_add(g, was, dra_linear(g, c->x[1], c->param[1], (dra_value){0}));
    r->state[0] = now;
    r->item[1] = dra_memory_keep(g, c, c->state[0], now);
}

/* A rate and a decay that halve what decays; the step itself is small beside that. */
static void own_matrices_decay(void **state)
{
    static const char *const retrievals[] = {"formula", NULL};
    static const dra_memory  own = {
         .name = "mine", .retrievals = retrievals, .declare = own_declare, .step = own_step};
    const dra_optimizer_config config = {.decay = 500};
    course                     c = {0};
    const dra_mixer_config     mixer = {.a.own = &own};
    const dra_model_config     m = {
            .vocab = V, .dim = 16, .heads = 2, .depth = 1, .context = T, .mixer = &mixer};
    dra_error err = {0};
    open_model(&c, &m, &(dra_gradients_config){0});
    assert_int_equal(group_of(c.model, "layers.0.mixer.A"), DRA_PARAM_MATRIX);
    assert_int_equal(group_of(c.model, "layers.0.mixer.B"), DRA_PARAM_OTHER);
    assert_int_equal(group_of(c.model, "layers.0.mixer.c"), DRA_PARAM_OTHER);
    for (int i = 0; i < 2; i++) {
        const char  *name = i ? "layers.0.mixer.B" : "layers.0.mixer.A";
        const int    at = dra_specs_find(dra_model_params(c.model), name);
        const double was = (double)dra_weights_at(c.weights, at)[0];
        const double by = moved(&c, &config, name), expected = i ? 0 : -was / 2;
        assert_true(fabs(was) > 0.01);
        if (!(fabs(by - expected) < 1.1e-3)) fail_msg("%s: %g moved by %g", name, was, by);
        expect_ok(dra_gradients_bind(c.gradients, c.weights, &err), &err);
    }
    close_course(&c);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void what_has_no_effect_is_refused(void **state)
{
    course               c = {0};
    dra_error            err = {0};
    dra_optimizer       *o;
    dra_optimizer_config config = {.decay = 0.5};
    open_course(&c, "dra-gru-tiny");
    config.group[DRA_PARAM_POSITION].wd = 0.1;
    assert_int_equal(dra_optimizer_create(&config, c.model, c.device, &o, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "optimizer: group position is set, but has no trained parameter "
                                  "of the model");
    config.group[DRA_PARAM_POSITION].wd = 0;
    config.group[DRA_PARAM_NORM].lr = NAN;
    assert_int_equal(dra_optimizer_create(&config, c.model, c.device, &o, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "optimizer: group norm: lr nan, wd 0, expected numbers");
    close_course(&c);
}

static void unknown_groups_are_refused(void **state)
{
    dra_specs *s;
    dra_error  err = {0};
    expect_ok(dra_specs_create(&s, &err), &err);
    dra_specs_add(s, NULL, &(dra_spec){.name = "w", .group = DRA_PARAM_GROUPS});
    assert_int_equal(dra_specs_error(s, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "tensor w: there is no such group of parameters");
    dra_specs_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_in_groups),
        cmocka_unit_test(groups_add_up),
        cmocka_unit_test(rules_are_rows),
        cmocka_unit_test(programs_choose),
        cmocka_unit_test(groups_learn_at_their_rates),
        cmocka_unit_test(own_matrices_decay),
        cmocka_unit_test(what_has_no_effect_is_refused),
        cmocka_unit_test(unknown_groups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
