/* RWKV-4 as Hugging Face's own tests want it: 14 sequences of 7 tokens, 99 of them, width 32, two
 * layers, inner width 37. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/model.h"
#include "dra/train.h"

enum { B = 14, T = 7, V = 99, C = 32, L = 2 };

static const char config_text[] =
    "{\"model_type\": \"rwkv\", \"vocab_size\": 99, \"hidden_size\": 32, \"num_hidden_layers\": 2, "
    "\"intermediate_size\": 37, \"bos_token_id\": 98, \"eos_token_id\": 98}";

typedef struct outputs {
    dra_real logits[B * T * V], hidden[B * T * C], stream[L + 1][B * T * C];
} outputs;

typedef struct trial {
    dra_model   *model;
    dra_weights *weights;
    int32_t      ids[B * T];
} trial;

static void must(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

/* factor: what keys are multiplied by. */
static void open_trial(trial *t, double factor)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    uint64_t  seed = 7;
    must(dra_model_config_parse("config", config_text, strlen(config_text), &c, &err), &err);
    must(dra_model_create(c, &t->model, &err), &err);
    must(dra_weights_draw(t->model, 1, &t->weights, &err), &err);
    for (int i = 0; i < B * T; i++) t->ids[i] = (int32_t)(check_random(&seed) * V);
    const int       at = dra_specs_find(dra_model_params(t->model), "layers.0.mixer.W_k");
    dra_real *const keys = dra_weights_edit(t->weights, at);
    for (int i = 0; i < C * C; i++) keys[i] *= (dra_real)factor;
}

static void close_trial(trial *t)
{
    dra_weights_destroy(t->weights);
    dra_model_destroy(t->model);
}

static void put(dra_reader *r, const char *name, int64_t rows, int64_t from, int64_t n,
                int64_t width, dra_real *to)
{
    const dra_real *x = dra_reader_result(r, name);
    assert_non_null(x);
    for (int64_t b = 0; b < rows; b++)
        memcpy(to + (b * T + from) * width, x + b * n * width, (size_t)(n * width) * sizeof *x);
}

/* Rows first..first+rows-1, the first `cut` tokens, then the rest. */
static void read_rows(const trial *t, int64_t first, int64_t rows, int64_t cut, outputs *o)
{
    const dra_view   view = {.model = t->model, .logits = true, .hidden = true, .streams = true};
    const dra_module module = dra_view_module(&view);
    dra_error        err = {0};
    dra_reader      *r;
    dra_states      *s;
    int32_t          ids[B * T];
    must(dra_reader_create(check_device(1, "ref"), &module, &r, &err), &err);
    must(dra_weights_bind(t->weights, r, &err), &err);
    must(dra_states_create(check_device(1, "ref"), dra_model_state(t->model), rows, &s, &err),
         &err);
    for (int64_t from = 0, n = cut; from < T; from += n, n = T - from) {
        for (int64_t b = 0; b < rows; b++)
            memcpy(ids + b * n, t->ids + (first + b) * T + from, (size_t)n * sizeof *ids);
        const dra_named in = {"ids", ids, (size_t)(rows * n) * sizeof *ids};
        must(dra_reader_read(r, s, n, NULL, 1, &in, &err), &err);
        put(r, "logits", rows, from, n, V, o->logits);
        put(r, "hidden", rows, from, n, C, o->hidden);
        put(r, "stream.0", rows, from, n, C, o->stream[0]);
        put(r, "stream.1", rows, from, n, C, o->stream[1]);
        put(r, "stream.2", rows, from, n, C, o->stream[2]);
        assert_null(dra_reader_result(r, "stream.3"));
    }
    dra_states_destroy(s);
    dra_reader_destroy(r);
}

static double worst(const dra_real *a, const dra_real *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= most)) most = d; /* NaN stays */
    }
    return most;
}

static outputs whole, parts;

/* 7 tokens at once, and 2 then 5 with the state: all hidden states; and row by row. */
static void states_and_rows_are_equal(void **unused)
{
    trial t;
    open_trial(&t, 1);
    read_rows(&t, 0, B, T, &whole);
    read_rows(&t, 0, B, 2, &parts);
    for (int l = 0; l <= L; l++)
        assert_true(worst(whole.stream[l], parts.stream[l], B * T * C) < 1e-5);
    assert_true(worst(whole.hidden, parts.hidden, B * T * C) < 1e-5);
    assert_true(worst(whole.logits, parts.logits, B * T * V) < 1e-5);
    for (int64_t b = 0; b < B; b++) {
        read_rows(&t, b, 1, 1, &parts);
        assert_true(worst(whole.logits + b * T * V, parts.logits, T * V) < 1e-5);
    }
    close_trial(&t);
}

static void the_last_logits_alone(void **unused)
{
    trial       t;
    dra_error   err = {0};
    dra_reader *r;
    dra_states *s;
    open_trial(&t, 1);
    read_rows(&t, 0, B, T, &whole);
    const dra_view   view = {.model = t.model, .logits = true, .keep = 1};
    const dra_module module = dra_view_module(&view);
    const dra_named  in = {"ids", t.ids, sizeof t.ids};
    must(dra_reader_create(check_device(1, "ref"), &module, &r, &err), &err);
    must(dra_weights_bind(t.weights, r, &err), &err);
    must(dra_states_create(check_device(1, "ref"), dra_model_state(t.model), B, &s, &err), &err);
    must(dra_reader_read(r, s, T, NULL, 1, &in, &err), &err);
    const dra_real *y = dra_reader_result(r, "logits");
    for (int b = 0; b < B; b++)
        assert_true(worst(y + b * V, whole.logits + (b * T + T - 1) * V, V) < 1e-5);
    dra_states_destroy(s);
    dra_reader_destroy(r);
    close_trial(&t);
}

/* Keys around +-80, whose e^k a float cannot add to others. */
static void large_keys_do_no_harm(void **unused)
{
    trial t;
    open_trial(&t, 60);
    read_rows(&t, 0, B, T, &whole);
    read_rows(&t, 0, B, 3, &parts);
    for (int i = 0; i < B * T * V; i++) assert_true(isfinite((double)whole.logits[i]));
    assert_true(worst(whole.logits, parts.logits, B * T * V) < 1e-4);
    close_trial(&t);
}

/* Every parameter learns, the same with layers computed again; -1 targets do not count. */
static void every_parameter_learns(void **unused)
{
    trial                 t;
    dra_error             err = {0};
    dra_microbatch_result result;
    dra_gradients        *l[2];
    int32_t               targets[B * T];
    open_trial(&t, 1);
    for (int i = 0; i < B * T; i++) targets[i] = (i + 1) % T ? t.ids[i + 1] : -1;
    const dra_microbatch batch = {.B = B, .T = T, .ids = t.ids, .targets = targets};
    for (int again = 0; again < 2; again++) {
        const dra_gradients_config config = {
            .model = t.model, .device = check_device(1, "ref"), .recompute = again};
        must(dra_gradients_create(&config, &l[again], &err), &err);
        must(dra_gradients_bind(l[again], t.weights, &err), &err);
        must(dra_gradients_run(l[again], &batch, &result, &err), &err);
        assert_int_equal(result.count, B * (T - 1));
    }
    for (int i = 0; i < dra_specs_count(dra_model_params(t.model)); i++) {
        const int64_t n = dra_shape_count(&dra_specs_at(dra_model_params(t.model), i)->shape);
        double        most = 0;
        for (int64_t k = 0; k < n; k++)
            most = fmax(most, fabs((double)dra_gradients_of(l[0], i)[k]));
        assert_true(most > 0);
        assert_true(worst(dra_gradients_of(l[0], i), dra_gradients_of(l[1], i), n) <
                    1e-5 * fmax(1, most));
    }
    dra_gradients_destroy(l[0]);
    dra_gradients_destroy(l[1]);
    close_trial(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_and_rows_are_equal),
        cmocka_unit_test(the_last_logits_alone),
        cmocka_unit_test(large_keys_do_no_harm),
        cmocka_unit_test(every_parameter_learns),
    };
    return cmocka_run_group_tests_name("rwkv", tests, NULL, NULL);
}
