/* Maps of a model's layers: weights that sum to 1, of the past only; slots that fill up; and that
 * they are those of the model. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "report/layer_maps.h"

enum { T = 13 };

static const int32_t ids[T] = {72, 101, 108, 108, 111, 44, 32, 119, 111, 114, 108, 100, 10};

typedef struct subject {
    dra_model   *model;
    dra_weights *weights;
} subject;

static subject open_subject(const char *preset, const char *key, const char *value)
{
    CHECK_CONFIG(c);
    subject   s = {0};
    dra_error err = {0};
    if (dra_preset_config(preset, &c, &err) != DRA_OK) fail_msg("%s", err.text);
    c->dim = 32;
    c->heads = 2;
    c->depth = 3;
    c->vocab = 256;
    if (key && dra_model_config_set(c, key, value, &err) != DRA_OK) fail_msg("%s", err.text);
    if (dra_model_create(c, &s.model, &err) != DRA_OK) fail_msg("%s", err.text);
    if (dra_weights_draw(s.model, 7, &s.weights, &err) != DRA_OK) fail_msg("%s", err.text);
    return s;
}

static void close_subject(subject *s)
{
    dra_weights_destroy(s->weights);
    dra_model_destroy(s->model);
}

static cli_layer_maps read_maps(const subject *s, int64_t layer, int64_t tokens)
{
    cli_layer_maps maps = {0};
    dra_error      err = {0};
    if (cli_layer_maps_read(s->model, s->weights, layer, ids, tokens, &maps, &err) != DRA_OK)
        fail_msg("%s", err.text);
    return maps;
}

/* Rows (1, H, T, n) of a softmax; of a pooled one all heads together. */
static void expect_weights(const cli_shown *s, bool pooled, bool causal)
{
    const int64_t H = s->shape.dim[1], n = s->shape.dim[3];
    assert_int_equal(s->shape.dim[2], T);
    for (int64_t t = 0; t < T; t++) {
        double all = 0;
        for (int64_t h = 0; h < H; h++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++) {
                const double a = s->at[(h * T + t) * n + j];
                assert_true(a >= 0 && !(causal && j > t && a != 0));
                sum += a;
            }
            all += sum;
            if (!pooled) assert_true(fabs(sum - 1) < 1e-5);
        }
        if (pooled) assert_true(fabs(all - 1) < 1e-5);
    }
}

static void weights_sum_to_one(void **state)
{
    static const struct {
        const char *preset;
        bool        pooled, causal;
    } rows[] = {{"gpt2-tiny", false, true},
                {"dra-gru-tiny", false, true},
                {"dra-ema-tiny", false, true},
                {"dra-slots-tiny", false, false},
                {"dra-pooled-tiny", true, false}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        subject s = open_subject(rows[i].preset, NULL, NULL);
        for (int64_t l = 0; l < 3; l++) {
            cli_layer_maps maps = read_maps(&s, l, T);
            assert_non_null(maps.map[0][DRA_SHOW_ATTENTION].at);
            expect_weights(&maps.map[0][DRA_SHOW_ATTENTION], rows[i].pooled, rows[i].causal);
            cli_layer_maps_free(&maps);
        }
        close_subject(&s);
    }
}

static void slots_fill_up(void **state)
{
    subject          s = open_subject("dra-slots-tiny", NULL, NULL);
    cli_layer_maps   maps = read_maps(&s, 2, T);
    const cli_shown *full = &maps.map[0][DRA_SHOW_OCCUPANCY];
    const int64_t    n = full->shape.dim[2] * full->shape.dim[3];
    assert_true(full->at && full->shape.dim[1] == T && n > 1);
    for (int64_t i = 0; i < n; i++)
        for (int64_t t = 1; t < T; t++)
            assert_true(full->at[t * n + i] >= full->at[(t - 1) * n + i] - 1e-6 &&
                        full->at[t * n + i] <= 1 + 1e-6);
    cli_layer_maps_free(&maps);
    close_subject(&s);
}

static void blends_have_maps_of_both(void **state)
{
    subject        s = open_subject("hybrid-tiny", NULL, NULL);
    cli_layer_maps maps = read_maps(&s, 1, T);
    assert_non_null(maps.map[0][DRA_SHOW_ATTENTION].at);
    assert_non_null(maps.map[1][DRA_SHOW_OCCUPANCY].at);
    cli_layer_maps_free(&maps);
    close_subject(&s);
}

/* The model itself, made to show maps, shows the same. */
static void models_show_the_same(void **state)
{
    subject          s = open_subject("dra-gru-tiny", NULL, NULL);
    dra_model_config c = *dra_model_config_of(s.model);
    dra_model       *shown = NULL;
    dra_reader      *r = NULL;
    dra_states      *states = NULL;
    dra_error        err = {0};
    const dra_named  in = {"ids", ids, sizeof ids};
    char             name[32];
    c.maps = true;
    dra_status       st = dra_model_create(&c, &shown, &err);
    const dra_view   view = {.model = shown, .maps = true};
    const dra_module module = dra_view_module(&view);
    if (st == DRA_OK) st = dra_reader_create(check_device(1, "ref"), &module, &r, &err);
    if (st == DRA_OK) st = dra_weights_bind(s.weights, r, &err);
    if (st == DRA_OK)
        st = dra_states_create(check_device(1, "ref"), dra_model_state(shown), 1, &states, &err);
    if (st == DRA_OK) st = dra_reader_read(r, states, T, NULL, 1, &in, &err);
    if (st != DRA_OK) fail_msg("%s", err.text);
    for (int64_t l = 0; l < 3; l++) {
        cli_layer_maps   maps = read_maps(&s, l, T);
        const cli_shown *found = &maps.map[0][DRA_SHOW_ATTENTION];
        snprintf(name, sizeof name, "layers.%d.attention", (int)l);
        const dra_real *a = dra_reader_result(r, name);
        assert_non_null(a);
        for (int64_t i = 0; i < dra_shape_count(&found->shape); i++)
            if (!(fabs(found->at[i] - (double)a[i]) < 1e-5))
                fail_msg("layer %d: %g, expected %g", (int)l, found->at[i], (double)a[i]);
        cli_layer_maps_free(&maps);
    }
    dra_states_destroy(states);
    dra_reader_destroy(r);
    dra_model_destroy(shown);
    close_subject(&s);
}

static void refuses_memories_without_maps(void **state)
{
    subject        s = open_subject("rwkv4-tiny", NULL, NULL);
    cli_layer_maps maps = {0};
    dra_error      err = {0};
    assert_int_equal(cli_layer_maps_read(s.model, s.weights, 1, ids, T, &maps, &err),
                     DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "maps"));
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_sum_to_one),
        cmocka_unit_test(slots_fill_up),
        cmocka_unit_test(blends_have_maps_of_both),
        cmocka_unit_test(models_show_the_same),
        cmocka_unit_test(refuses_memories_without_maps),
    };
    return check_main("layer_maps", NULL, 0, tests, COUNT(tests));
}
