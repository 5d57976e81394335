/* Mixtures of experts: the same bits alone, beside others, in parts and token by token; gradients,
 * also through layers computed again; what the router is told to balance; what is refused. */
#include "model/fixtures.h"

#include "model/model.h"

#define SMALL "{\"model_type\": \"dra\", \"vocab\": 13, \"dim\": 16, \"depth\": 2, \"heads\": 2, "
#define SHARED                                                                                     \
    SMALL "\"ff\": {\"kind\": \"swiglu\", \"dim\": 12, \"experts\": {\"count\": 6, \"top\": 2, "   \
          "\"normalise\": true, \"shared\": 10, \"shared_gate\": true}}}"
#define PLAIN                                                                                      \
    SMALL "\"ff\": {\"kind\": \"gelu\", \"dim\": 9, \"experts\": {\"count\": 5, \"top\": 3}}}"

static const char *const configs[] = {SHARED, PLAIN};

static dra_model *model_of(const char *json, uint32_t aux)
{
    dra_model_config *c;
    dra_model        *m;
    dra_error         err = {0};
    expect_ok(dra_model_config_parse("config", json, strlen(json), &c, &err), &err);
    c->aux = aux;
    expect_ok(dra_model_create(c, &m, &err), &err);
    dra_model_config_destroy(c);
    return m;
}

static loaded draw_model(const char *json, uint32_t aux)
{
    loaded    m = {.model = model_of(json, aux)};
    dra_error err = {0};
    expect_ok(dra_weights_draw(m.model, 3, &m.weights, &err), &err);
    return m;
}

/* ---- bits ------------------------------------------------------------------------------------ */

enum { ROWS = 3 };

/* Logits (B, T, V) of texts that are read in parts, each row one token on. */
static void read_texts(const loaded *m, int threads, int64_t B, int64_t first, int64_t part,
                       dra_real *logits)
{
    const dra_view   view = {.model = m->model, .logits = true};
    const dra_module module = dra_view_module(&view);
    dra_device      *device = check_device(threads, dra_device_level_at(0));
    dra_error        err = {0};
    dra_reader      *r = NULL;
    dra_states      *s = NULL;
    expect_ok(dra_states_create(device, dra_model_state(m->model), B, &s, &err), &err);
    expect_ok(dra_reader_create(device, &module, &r, &err), &err);
    expect_ok(dra_weights_bind(m->weights, r, &err), &err);
    for (int64_t t = 0; t < T; t += part) {
        const int64_t n = T - t < part ? T - t : part;
        int32_t       ids[ROWS * T];
        for (int64_t b = 0; b < B; b++)
            for (int64_t i = 0; i < n; i++)
                ids[b * n + i] = (fixture_ids[t + i] + (int32_t)(b + first)) % V;
        const dra_named in = {"ids", ids, (size_t)(B * n) * sizeof *ids};
        expect_ok(dra_reader_read(r, s, n, NULL, 1, &in, &err), &err);
        const dra_real *found = dra_reader_result(r, "logits");
        for (int64_t b = 0; b < B; b++)
            memcpy(logits + (b * T + t) * V, found + b * n * V, (size_t)(n * V) * sizeof *logits);
    }
    dra_reader_destroy(r);
    dra_states_destroy(s);
}

static void tokens_have_the_bits_they_have_alone(void **state)
{
    static const int     threads[] = {1, 2, 7};
    static const int64_t parts[] = {1, 3, T};
    dra_real             all[ROWS * T * V], one[ROWS * T * V];
    for (size_t c = 0; c < COUNT(configs); c++) {
        loaded m = draw_model(configs[c], 0);
        read_texts(&m, 2, ROWS, 0, T, all);
        for (size_t i = 0; i < COUNT(threads); i++)
            for (size_t k = 0; k < COUNT(parts); k++) {
                read_texts(&m, threads[i], ROWS, 0, parts[k], one);
                check_reals(one, all, sizeof all);
                for (int64_t b = 0; b < ROWS; b++) {
                    read_texts(&m, threads[i], 1, b, parts[k], one);
                    check_reals(one, all + b * T * V, sizeof all / ROWS);
                }
            }
        load_free(&m);
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

static dra_gradients *gradients_of(const loaded *m, dra_gradients_config how,
                                   dra_microbatch_result *r)
{
    int32_t              targets[T];
    const dra_microbatch batch = {.B = 1, .T = T, .ids = fixture_ids, .targets = targets};
    dra_gradients       *g = NULL;
    dra_error            err = {0};
    how.model = m->model;
    how.device = check_device(2, dra_device_level_at(0));
    for (int t = 0; t < T; t++) targets[t] = t + 1 < T ? fixture_ids[t + 1] : -1;
    expect_ok(dra_gradients_create(&how, &g, &err), &err);
    expect_ok(dra_gradients_bind(g, m->weights, &err), &err);
    expect_ok(dra_gradients_run(g, &batch, r, &err), &err);
    return g;
}

static int64_t size_of(const loaded *m, int i)
{
    return dra_shape_count(&dra_specs_at(dra_model_params(m->model), i)->shape);
}

static void layers_computed_again_have_the_same(void **state)
{
    const dra_gradients_config once = {.aux_loss = {[DRA_AUX_BALANCE] = 0.1}},
                               again = {.recompute = true, .aux_loss = {[DRA_AUX_BALANCE] = 0.1}};
    dra_microbatch_result r, s;
    loaded                m = draw_model(SHARED, 1u << DRA_AUX_BALANCE);
    dra_gradients        *a = gradients_of(&m, once, &r), *b = gradients_of(&m, again, &s);
    assert_true(r.loss == s.loss && r.aux[DRA_AUX_BALANCE] == s.aux[DRA_AUX_BALANCE]);
    for (int i = 0; i < dra_specs_count(dra_model_params(m.model)); i++)
        check_reals(dra_gradients_of(a, i), dra_gradients_of(b, i),
                    (size_t)size_of(&m, i) * sizeof(dra_real));
    dra_gradients_destroy(a);
    dra_gradients_destroy(b);
    load_free(&m);
}

#ifdef DRA_REAL_DOUBLE
/* The loss with its balance, where number k of parameter i is larger by `by`. */
static double loss_with(loaded *m, int i, int64_t k, double by)
{
    const dra_gradients_config how = {.aux_loss = {[DRA_AUX_BALANCE] = 0.1}};
    dra_microbatch_result      r;
    dra_real                  *w = dra_weights_edit(m->weights, i);
    const dra_real             was = w[k];
    w[k] += (dra_real)by;
    dra_gradients_destroy(gradients_of(m, how, &r));
    dra_weights_edit(m->weights, i)[k] = was;
    return r.loss + 0.1 * r.aux[DRA_AUX_BALANCE];
}

static void gradients_are_differences(void **state)
{
    const dra_gradients_config how = {.aux_loss = {[DRA_AUX_BALANCE] = 0.1}};
    const double               h = 1e-5;
    for (size_t c = 0; c < COUNT(configs); c++) {
        dra_microbatch_result r;
        loaded                m = draw_model(configs[c], 1u << DRA_AUX_BALANCE);
        dra_gradients        *g = gradients_of(&m, how, &r);
        for (int i = 0; i < dra_specs_count(dra_model_params(m.model)); i++) {
            const dra_spec *p = dra_specs_at(dra_model_params(m.model), i);
            if (!strstr(p->name, "layers.0.ff.W_")) continue;
            for (int64_t k = 0; k < size_of(&m, i); k += 7) {
                const double is = (double)dra_gradients_of(g, i)[k];
                const double should = (loss_with(&m, i, k, h) - loss_with(&m, i, k, -h)) / (2 * h);
                if (!(fabs(is - should) <= 1e-7))
                    fail_msg("%s %d: %.9g, expected %.9g", p->name, (int)k, is, should);
            }
        }
        dra_gradients_destroy(g);
        load_free(&m);
    }
}
#endif

/* ---- balance --------------------------------------------------------------------------------- */

/* A router of zeros: every p is 1 / n, and the first `top` experts have all tokens. */
static void balance_of_equal_chances_is_top(void **state)
{
    const dra_gradients_config how = {.aux_loss = {[DRA_AUX_BALANCE] = 1e-9}};
    dra_microbatch_result      r;
    loaded                     m = draw_model(PLAIN, 1u << DRA_AUX_BALANCE);
    for (int i = 0; i < dra_specs_count(dra_model_params(m.model)); i++)
        if (strstr(dra_specs_at(dra_model_params(m.model), i)->name, "W_router"))
            memset(dra_weights_edit(m.weights, i), 0, (size_t)size_of(&m, i) * sizeof(dra_real));
    dra_gradients_destroy(gradients_of(&m, how, &r));
    assert_true(fabs(r.aux[DRA_AUX_BALANCE] - 3) < 1e-5);
    load_free(&m);
}

static void others_have_no_balance(void **state)
{
    dra_model_config *c;
    dra_model        *m;
    dra_error         err = {0};
    const char        json[] = SMALL "\"ff\": {\"dim\": 12}}";
    expect_ok(dra_model_config_parse("config", json, strlen(json), &c, &err), &err);
    c->aux = 1u << DRA_AUX_BALANCE;
    assert_int_not_equal(dra_model_create(c, &m, &err), DRA_OK);
    assert_non_null(strstr(err.text, "no layer has balance"));
    dra_model_config_destroy(c);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void counts_what_a_token_meets(void **state)
{
    dra_model    *m = model_of(SHARED, 0);
    const int64_t expert = 3 * 16 * 12;
    assert_int_equal(dra_model_param_count(m) - dra_model_active_count(m), 2 * 4 * expert);
    dra_model_destroy(m);
    m = model_of(SMALL "\"ff\": {\"dim\": 12}}", 0);
    assert_int_equal(dra_model_param_count(m), dra_model_active_count(m));
    dra_model_destroy(m);
}

static void refuses(void **state)
{
    static const struct {
        const char *ff, *says;
    } rows[] = {
        {"\"experts\": {\"top\": 2}", "top is set, but no count"},
        {"\"experts\": {\"normalise\": true}", "normalise is set, but no count"},
        {"\"experts\": {\"count\": 4}", "top is 0, expected 1 to count 4"},
        {"\"experts\": {\"count\": 4, \"top\": 5}", "top is 5, expected 1 to count 4"},
        {"\"experts\": {\"count\": 5000, \"top\": 5}", "count is 5000"},
        {"\"experts\": {\"count\": 4, \"top\": 2, \"shared_gate\": true}", "shared_gate is set"},
        {"\"act_norm\": true, \"experts\": {\"count\": 4, \"top\": 2}", "no act_norm"},
        {"\"bias\": \"all\", \"experts\": {\"count\": 4, \"top\": 2}", "no biases"},
        {"\"dropout\": 0.1, \"experts\": {\"count\": 4, \"top\": 2}", "no dropout"},
        {"\"kind\": \"mix\", \"experts\": {\"count\": 4, \"top\": 2}", "no kind mix"},
        {"\"experts\": {\"counts\": 4}", "counts"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char              json[400];
        dra_model_config *c = NULL;
        dra_model        *m = NULL;
        dra_error         err = {0};
        snprintf(json, sizeof json, SMALL "\"ff\": {%s}}", rows[i].ff);
        dra_status st = dra_model_config_parse("config", json, strlen(json), &c, &err);
        if (st == DRA_OK) st = dra_model_create(c, &m, &err);
        if (st == DRA_OK || !strstr(err.text, rows[i].says))
            fail_msg("%s: %s", rows[i].ff, err.text);
        dra_model_config_destroy(c);
    }
}

static void adapters_leave_experts(void **state)
{
    dra_model_config *c;
    dra_model        *m;
    dra_error         err = {0};
    expect_ok(dra_model_config_parse("config", SHARED, strlen(SHARED), &c, &err), &err);
    const dra_lora_config lora = {.rank = 2, .targets = "up"};
    c->lora = &lora;
    assert_int_not_equal(dra_model_create(c, &m, &err), DRA_OK);
    assert_non_null(strstr(err.text, "targets has up"));
    c->lora = NULL;
    dra_model_config_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_have_the_bits_they_have_alone),
        cmocka_unit_test(layers_computed_again_have_the_same),
#ifdef DRA_REAL_DOUBLE
        cmocka_unit_test(gradients_are_differences),
#endif
        cmocka_unit_test(balance_of_equal_chances_is_top),
        cmocka_unit_test(others_have_no_balance),
        cmocka_unit_test(counts_what_a_token_meets),
        cmocka_unit_test(refuses),
        cmocka_unit_test(adapters_leave_experts),
    };
    return check_main("experts", NULL, 0, tests, COUNT(tests));
}
