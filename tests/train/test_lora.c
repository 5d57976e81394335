/* LoRA: factors of low rank learn beside matrices that stay. What they do to a model is what their
 * product does when it is added to the matrix; reading in chunks or token by token changes nothing;
 * only they have gradients and what an optimizer keeps. */
#include "course.h"

#include "dra/sequence.h"

/* W' = W + scale B A of every matrix with factors, in a model without them. */
static void merge_into(const course *c, course *plain)
{
    const dra_specs *params = dra_model_params(c->model);
    for (int i = 0; i < dra_specs_count(dra_model_params(plain->model)); i++) {
        const dra_spec *p = dra_specs_at(params, i);
        dra_real       *w = dra_weights_edit(plain->weights, i);
        memcpy(w, dra_weights_at(c->weights, i), (size_t)size_of(c, i) * sizeof *w);
        if (!p->factors) continue;
        const dra_real *A = dra_weights_at(c->weights, p->factors);
        const dra_real *factor = dra_weights_at(c->weights, p->factors + 1);
        const int64_t   I = p->shape.dim[1], r = dra_specs_at(params, p->factors)->shape.dim[0];
        for (int64_t k = 0; k < size_of(c, i); k++)
            for (int64_t n = 0; n < r; n++)
                w[k] += (dra_real)p->factor_scale * factor[k / I * r + n] * A[n * I + k % I];
    }
}

static void open_sized(course *c, const char *preset, const char *targets, int64_t dim)
{
    CHECK_CONFIG(config);
    dra_lora_config lora = {.rank = 3, .alpha = 1.5};
    dra_error       err = {0};
    expect_ok(dra_preset_config(preset, &config, &err), &err);
    config->dropout = config->attention_dropout = config->embed_dropout = 0;
    config->dim = dim;
    config->heads = 2;
    config->depth = 2;
    config->context = T;
    if (targets) {
        snprintf(lora.targets, sizeof lora.targets, "%s", targets);
        config->lora = &lora;
    }
    open_model(c, config, &(dra_gradients_config){0});
}

static void open_lora(course *c, const char *preset, const char *targets)
{
    open_sized(c, preset, targets, 16);
}

/* Bs that are not 0, as after some steps. */
static void fill_factors(course *c)
{
    dra_error err = {0};
    for (int i = 0; i < dra_specs_count(dra_model_params(c->model)); i++) {
        if (!dra_specs_at(dra_model_params(c->model), i)->added) continue;
        dra_real *x = dra_weights_edit(c->weights, i);
        for (int64_t k = 0; k < size_of(c, i); k++) x[k] = (dra_real)(0.1 * sin((double)(k + i)));
    }
    expect_ok(dra_gradients_bind(c->gradients, c->weights, &err), &err);
}

static dra_microbatch_result run_course(course *c, const dra_microbatch *q)
{
    dra_microbatch_result r;
    dra_error             err = {0};
    expect_ok(dra_gradients_run(c->gradients, q, &r, &err), &err);
    return r;
}

static const char *const presets[] = {"gpt2-tiny", "dra-delta-tiny", "rwkv7-tiny",
                                      "xt-modern-tiny"};

/* dL/dA = s B^T dL/dW', dL/dB = s dL/dW' A^T. */
static void expect_factor_gradients(const course *c, const course *plain, int i)
{
    const dra_spec *p = dra_specs_at(dra_model_params(c->model), i);
    const int64_t   O = p->shape.dim[0], I = p->shape.dim[1], r = 3;
    const dra_real *dW = dra_gradients_of(plain->gradients, i);
    const dra_real *dA = dra_gradients_of(c->gradients, p->factors);
    const dra_real *dB = dra_gradients_of(c->gradients, p->factors + 1);
    const dra_real *A = dra_weights_at(c->weights, p->factors);
    const dra_real *factor = dra_weights_at(c->weights, p->factors + 1);
    double          most = 0, worst = 0;
    for (int64_t k = 0; k < r; k++)
        for (int64_t j = 0; j < I; j++) {
            double sum = 0;
            for (int64_t o = 0; o < O; o++)
                sum += p->factor_scale * (double)factor[o * r + k] * (double)dW[o * I + j];
            worst = fmax(worst, fabs(sum - (double)dA[k * I + j]));
            most = fmax(most, fabs(sum));
        }
    for (int64_t o = 0; o < O; o++)
        for (int64_t k = 0; k < r; k++) {
            double sum = 0;
            for (int64_t j = 0; j < I; j++)
                sum += p->factor_scale * (double)dW[o * I + j] * (double)A[k * I + j];
            worst = fmax(worst, fabs(sum - (double)dB[o * r + k]));
            most = fmax(most, fabs(sum));
        }
    if (!(worst <= 2 * EQUAL * most) || most == 0)
        fail_msg("%s: its factors' gradients differ by %g of %g", p->name, worst, most);
}

static void factors_learn_what_their_product_does(void **state)
{
    for (size_t k = 0; k < COUNT(presets); k++) {
        course c, plain;
        open_lora(&c, presets[k], "all");
        open_lora(&plain, presets[k], NULL);
        fill_factors(&c);
        merge_into(&c, &plain);
        dra_error err = {0};
        expect_ok(dra_gradients_bind(plain.gradients, plain.weights, &err), &err);
        const dra_microbatch q = microbatch_of(&c);
        const double         a = run_course(&c, &q).loss, b = run_course(&plain, &q).loss;
        if (!(fabs(a - b) <= EQUAL * b)) fail_msg("%s: loss %.9g, %.9g", presets[k], a, b);
        for (int i = 0; i < dra_specs_count(dra_model_params(plain.model)); i++)
            if (dra_specs_at(dra_model_params(c.model), i)->factors)
                expect_factor_gradients(&c, &plain, i);
        close_course(&c);
        close_course(&plain);
    }
}

static void nothing_else_learns(void **state)
{
    for (size_t k = 0; k < COUNT(presets); k++) {
        course  c;
        int64_t group[DRA_PARAM_GROUPS], factors = 0, trained = 0;
        open_lora(&c, presets[k], "q,v");
        for (int i = 0; i < dra_specs_count(dra_model_params(c.model)); i++) {
            const dra_spec *p = dra_specs_at(dra_model_params(c.model), i);
            if (p->frozen == p->added) fail_msg("%s: %s", presets[k], p->name);
            if (p->added) factors += size_of(&c, i);
        }
        dra_model_groups(c.model, group);
        for (int g = 0; g < DRA_PARAM_GROUPS; g++) trained += group[g];
        assert_int_equal(trained, factors);
        close_course(&c);
    }
}

/* B is 0 at first: not a bit differs. */
static void step_0_is_the_model(void **state)
{
    for (size_t k = 0; k < COUNT(presets); k++) {
        course c, plain;
        open_lora(&c, presets[k], "q,k,v,o");
        open_lora(&plain, presets[k], NULL);
        const dra_microbatch q = microbatch_of(&c);
        const double         a = run_course(&c, &q).loss, b = run_course(&plain, &q).loss;
        if (a != b) fail_msg("%s: loss %.17g, %.17g", presets[k], a, b);
        close_course(&c);
        close_course(&plain);
    }
}

static void chunks_have_the_gradients_of_the_whole(void **state)
{
    static const int64_t cuts[] = {7, 1, 15, 7};
    for (size_t k = 0; k < COUNT(presets); k++) {
        course c;
        open_lora(&c, presets[k], "all");
        fill_factors(&c);
        dra_microbatch q = microbatch_of(&c);
        const double   a = run_course(&c, &q).loss;
        dra_real     **all = take_gradients(&c);
        q.chunks = COUNT(cuts), q.chunk = cuts;
        const double b = run_course(&c, &q).loss;
        if (!(fabs(a - b) <= EQUAL * b)) fail_msg("%s: loss %.9g, %.9g", presets[k], a, b);
        expect_gradients(&c, all, presets[k]);
        free_gradients(&c, all);
        close_course(&c);
    }
}

/* Of short rows programs would hold little but the sums, which the gradient reads again: more than
 * without factors. */
static void matrices_are_never_made(void **state)
{
    const dra_microbatch q = {.B = 1, .T = 8};
    size_t               bytes[2];
    for (int k = 0; k < 2; k++) {
        course    c;
        dra_error err = {0};
        open_sized(&c, "dra-delta-tiny", k ? "all" : NULL, 64);
        expect_ok(dra_gradients_bytes(c.gradients, &q, false, &bytes[k], &err), &err);
        close_course(&c);
    }
    if (bytes[1] > bytes[0]) fail_msg("%zu bytes, without factors %zu", bytes[1], bytes[0]);
}

static void targets_that_are_none_are_named(void **state)
{
    static const struct {
        const char *targets, *text;
    } rows[] = {{"q,qkv", "lora: targets has qkv, expected some of the model's matrices: q,k,v,o"},
                {"q,,v", "lora: targets has an empty name"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        CHECK_CONFIG(config);
        dra_lora_config lora = {.rank = 2};
        dra_model      *m = NULL;
        dra_error       err = {0};
        expect_ok(dra_preset_config("gpt2-tiny", &config, &err), &err);
        snprintf(lora.targets, sizeof lora.targets, "%s", rows[i].targets);
        config->lora = &lora;
        assert_int_equal(dra_model_create(config, &m, &err), DRA_ERR_VALUE);
        assert_null(m);
        if (!strstr(err.text, rows[i].text)) fail_msg("%s: expected %s", err.text, rows[i].text);
        if (i == 0 && strstr(err.text, "lora_A")) fail_msg("%s", err.text);
        dra_model_config_destroy(config);
        config = NULL;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_learn_what_their_product_does),
        cmocka_unit_test(nothing_else_learns),
        cmocka_unit_test(step_0_is_the_model),
        cmocka_unit_test(chunks_have_the_gradients_of_the_whole),
        cmocka_unit_test(matrices_are_never_made),
        cmocka_unit_test(targets_that_are_none_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
