/* Caches in bf16: a text gives the same numbers whole, in chunks, token by token and from a file;
 * they are half as large, close to those in full precision, and neither is taken for the other. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "dra/model.h"
#include "dra/train.h"
#include "sequence/states.h"

enum { V = 31, T = 150, B = 2 };

#define MODEL(options)                                                                             \
    "{\"model_type\": \"dra\", \"vocab\": 31, \"dim\": 32, \"depth\": 3, \"heads\": 4, "           \
    "\"context\": 256, \"ff\": {\"dim\": 48}" options "}"
#define ROTARY ", \"positions\": \"none\", \"position\": {\"rotate\": \"rotary\"}"
#define MIXER(options) ", \"mixer\": {" options "}"

typedef struct row {
    const char *name, *json;
    double      half; /* how much of its state is items that become half as large */
} row;

static const row rows[] = {
    {"gpt2", MODEL(", \"norm\": \"layer\", \"positions\": \"learned\", \"bias\": true"), 1},
    {"llama, keys shared by heads", MODEL(ROTARY MIXER("\"kv_heads\": 2, \"qk_norm\": true")), 1},
    {"windows", MODEL(ROTARY MIXER("\"retrieval\": \"window\", \"window\": 70")), 1},
    {"windows in every other layer, sinks, soft cap",
     MODEL(ROTARY ", \"mixer\": [{\"retrieval\": \"window\", \"window\": 20, \"sink\": true}, "
                  "{\"softcap\": 3}]"),
     1},
    {"delta in every other layer", MODEL(", \"mixer\": [{}, {\"memory\": \"delta\"}]")},
    {"attention next to slots",
     MODEL(MIXER("\"blend\": \"learned\", \"b\": {\"memory\": \"slots\", \"slots\": 4, "
                 "\"retrieval\": \"slots-own\"}"))},
    {"items of a gru", MODEL(MIXER("\"memory\": \"gru\", \"retrieval\": \"time\""))},
    {"items that are key and value in one",
     MODEL(MIXER("\"memory\": \"gru\", \"retrieval\": \"time\", \"joined\": true, \"dim\": 6"))},
    {"learned keys besides", MODEL(MIXER("\"mem_kv\": 3")), 1},
    {"scores that are held", MODEL(MIXER("\"talk_before\": true, \"talk_after\": true")), 1},
    {"distances", MODEL(MIXER("\"l2\": true")), 1},
    {"forgetting attention, whose levels stay", MODEL(MIXER("\"forget\": true"))},
    {"latents", MODEL(MIXER("\"latent_kv\": 12")), 1},
    {"latents and rotary keys",
     MODEL(", \"position\": {\"rotate\": \"rotary\", \"heads\": 2}" MIXER(
         "\"latent_kv\": 12, \"latent_rope\": 2")),
     1},
    {"vectors before the text, values of the first layer",
     MODEL(", \"memory_tokens\": 2" MIXER("\"value_residual\": \"half\"")), 1},
};

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

typedef struct subject {
    dra_model   *model;
    dra_weights *weights;
    dra_device  *device;
    dra_view     view;
    dra_reader  *reader;
    dra_states  *states;
} subject;

static void open_subject(subject *s, const char *json, bool bf16)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_model_config_parse("test", json, strlen(json), &c, &err), &err);
    c->bf16_cache = bf16;
    expect_ok(dra_model_create(c, &s->model, &err), &err);
    expect_ok(dra_weights_draw(s->model, 5, &s->weights, &err), &err);
    expect_ok(check_cpu(&(dra_cpu_config){.threads = 2}, &s->device, &err), &err);
    s->view = (dra_view){.model = s->model, .logits = true};
    const dra_module module = dra_view_module(&s->view);
    expect_ok(dra_reader_create(s->device, &module, &s->reader, &err), &err);
    expect_ok(dra_weights_bind(s->weights, s->reader, &err), &err);
    expect_ok(dra_states_create(s->device, module.state, B, &s->states, &err), &err);
}

static void close_subject(subject *s)
{
    dra_states_destroy(s->states);
    dra_reader_destroy(s->reader);
    dra_weights_destroy(s->weights);
    dra_model_destroy(s->model);
    dra_device_destroy(s->device);
}

static int32_t id_of(int64_t b, int64_t t) { return (int32_t)((t * t + 7 * t + 13 * b) % V); }

/* Tokens from .. end - 1 of both texts; logits (B, T, V). */
static void read_part(subject *s, int64_t from, int64_t end, dra_real *logits)
{
    int32_t       ids[B * T];
    dra_error     err = {0};
    const int64_t n = end - from;
    for (int64_t i = 0; i < B * n; i++) ids[i] = id_of(i / n, from + i % n);
    const dra_named in = {"ids", ids, (size_t)(B * n) * sizeof *ids};
    expect_ok(dra_reader_read(s->reader, s->states, n, NULL, 1, &in, &err), &err);
    const dra_real *y = dra_reader_result(s->reader, "logits");
    assert_non_null(y);
    for (int64_t b = 0; b < B; b++)
        memcpy(logits + (b * T + from) * V, y + b * n * V, (size_t)(n * V) * sizeof *y);
}

/* Shorter on a GPU, which may be the emulated one. */
static int64_t text_length(void) { return check_cuda() ? 70 : T; }

/* The whole text in parts of `each` tokens; file: states are saved and loaded between them. */
static void read_text(subject *s, int64_t each, const char *file, dra_real *logits)
{
    const uint64_t number = dra_model_fingerprint(s->model);
    dra_error      err = {0};
    expect_ok(dra_states_reset(s->states, -1, &err), &err);
    const int64_t all = text_length();
    for (int64_t t = 0, n; t < all; t += n) {
        n = check_cuda() && t == 0 && each == 1 ? 64 : each;
        read_part(s, t, t + n < all ? t + n : all, logits);
        if (!file) continue;
        const dra_specs *specs = dra_model_state(s->model);
        expect_ok(dra_states_save(s->states, number, file, &err), &err);
        dra_states_destroy(s->states);
        expect_ok(dra_states_load(s->device, specs, number, file, &s->states, &err), &err);
    }
}

static double largest_difference(const dra_real *a, const dra_real *b)
{
    double worst = 0, most = 0;
    for (int64_t i = 0; i < B * T * V; i++) {
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
        most = fmax(most, fabs((double)b[i]));
    }
    return worst / most;
}

static const char *file_name(char path[200])
{
    const char *base = getenv("TMPDIR");
    snprintf(path, 200, "%s/dra-cache-%ld", base ? base : "/tmp", (long)getpid());
    return path;
}

/* Where sums are regrouped, a number next to the middle between two of bf16 may fall on either
 * side, and what follows differs by its rounding. */
static void expect_equal(const char *what, int64_t cut, const dra_real *a, const dra_real *b)
{
    const double d = largest_difference(a, b);
    if (!(check_cuda() || !cut ? d < 1e-2 : memcmp(a, b, B * T * V * sizeof *a) == 0))
        fail_msg("%s: differs by %g", what, d);
}

static void cut_anywhere(void **state)
{
    const row *r = *state;
    dra_real  *whole = calloc(2 * B * T * V, sizeof *whole), *parts = whole + B * T * V;
    char       path[200];
    subject    s;
    open_subject(&s, r->json, true);
    const int64_t cut = dra_model_cut(s.model), unit = cut > 1 ? cut : 1;
    read_text(&s, T, NULL, whole);
    read_text(&s, 64, NULL, parts);
    expect_equal("chunks", cut, parts, whole);
    read_text(&s, unit == 1 ? 37 : unit, file_name(path), parts);
    expect_equal("from files", cut, parts, whole);
    read_text(&s, 1, NULL, parts);
    expect_equal("token by token", unit == 1 ? cut : 0, parts, whole);
    unlink(path);
    close_subject(&s);
    free(whole);
}

/* Its size, and what rounding changes. */
static void half_as_large(void **state)
{
    const row *r = *state;
    dra_real  *full = calloc(2 * B * T * V, sizeof *full), *half = full + B * T * V;
    subject    a, b;
    open_subject(&a, r->json, false);
    open_subject(&b, r->json, true);
    read_text(&a, T, NULL, full);
    read_text(&b, T, NULL, half);
    const size_t all = dra_states_bytes(a.states), less = dra_states_bytes(b.states);
    const double d = largest_difference(half, full);
    print_message("# %s: %zu and %zu bytes, logits differ by %.2g\n", r->name, all, less, d);
    if (r->half > 0)
        assert_int_equal(less, all / sizeof(dra_real) * sizeof(uint16_t));
    else
        assert_in_range(less, 1, all - 1);
    assert_true(d > 0 && d < 2e-2);
    assert_true(dra_model_fingerprint(a.model) != dra_model_fingerprint(b.model));
    close_subject(&a);
    close_subject(&b);
    free(full);
}

/* ---- one kind is not taken for the other ----------------------------------------------------- */

static void other_files_are_refused(void **state)
{
    dra_real *logits = calloc(B * T * V, sizeof *logits);
    char      path[200], expected[400];
    for (int bf16 = 0; bf16 < 2; bf16++) {
        subject     s, other;
        dra_error   err = {0};
        dra_states *none = NULL;
        const char *real = dra_dtype_get(DRA_REAL)->name;
        open_subject(&s, rows[0].json, bf16);
        open_subject(&other, rows[0].json, !bf16);
        read_text(&s, T, NULL, logits);
        file_name(path);
        expect_ok(dra_states_save(s.states, dra_model_fingerprint(s.model), path, &err), &err);
        assert_int_equal(dra_states_load(other.device, dra_model_state(other.model),
                                         dra_model_fingerprint(other.model), path, &none, &err),
                         DRA_ERR_VALUE);
        snprintf(
            expected, sizeof expected,
            "%s: keeps layers.0.mixer.K in %s, but the model's cache is %s; --cache says which",
            path, bf16 ? "bf16" : real, bf16 ? real : "bf16");
        assert_string_equal(err.text, expected);
        assert_null(none);
        assert_int_equal(dra_states_copy(other.states, 0, s.states, 0, &err), DRA_ERR_VALUE);
        close_subject(&s);
        close_subject(&other);
    }
    unlink(path);
    free(logits);
}

/* What comes from outside is rounded as the model rounds. */
static void numbers_are_rounded(void **state)
{
    subject   s;
    dra_error err = {0};
    dra_real  x[32], y[32];
    open_subject(&s, rows[0].json, true);
    expect_ok(dra_states_place(s.states, 1, 1, 1, &err), &err);
    expect_ok(dra_states_read(s.states, 0, 1, y, 32, &err), &err);
    for (int i = 0; i < 32; i++) assert_true(y[i] == 0);
    for (int i = 0; i < 32; i++) x[i] = (dra_real)(1 + i / 1024.0);
    expect_ok(dra_states_write(s.states, 0, 1, x, 32, &err), &err);
    expect_ok(dra_states_read(s.states, 0, 1, y, 32, &err), &err);
    for (int i = 0; i < 32; i++) /* to 2^-7, ties to even */
        assert_true((double)y[i] == nearbyint((1 + i / 1024.0) * 128) / 128);
    close_subject(&s);
}

/* Not for learning: neither a model nor attention itself. */
static void gradients_are_refused(void **state)
{
    subject        s;
    dra_error      err = {0};
    dra_gradients *l = NULL;
    open_subject(&s, rows[0].json, true);
    assert_int_equal(dra_gradients_create(
                         &(dra_gradients_config){.model = s.model, .device = s.device}, &l, &err),
                     DRA_ERR_VALUE);
    assert_string_equal(err.text, "gradients: the model's cache is in bf16, which is for reading "
                                  "alone");
    assert_null(l);
    close_subject(&s);
    dra_graph      *g = check_graph();
    const dra_shape shape = DRA_SHAPE(1, 2, 3, 4);
    const dra_value q = dra_parameter(g, "q", DRA_REAL, shape);
    const dra_value k = dra_input(g, "k", DRA_BF16, shape);
    const dra_value y = dra_sum_all(g, dra_attend(g, q, k, k, NULL));
    dra_value       dq;
    dra_gradient(g, 1, &y, NULL, 1, &q, &dq);
    check_refused(g, DRA_ERR_GRAD, "attend: keys and values in bf16 have no gradient");
}

static void models_without_a_cache(void **state)
{
    static const char *const none[] = {
        MODEL(MIXER("\"memory\": \"delta\"")),
        MODEL(", \"visible\": \"bidirectional\""),
        MODEL(", \"xl\": {\"memory\": 64}"),
    };
    for (size_t i = 0; i < COUNT(none); i++) {
        CHECK_CONFIG(c);
        dra_model *m = NULL;
        dra_error  err = {0};
        expect_ok(dra_model_config_parse("test", none[i], strlen(none[i]), &c, &err), &err);
        c->bf16_cache = true;
        assert_int_equal(dra_model_create(c, &m, &err), DRA_ERR_VALUE);
        assert_string_equal(err.text, "model: a cache in bf16, but the model has no cache that "
                                      "grows with the text");
        assert_null(m);
    }
}

int main(void)
{
    enum { OTHERS = 4 };
    struct CMUnitTest tests[2 * COUNT(rows) + OTHERS] = {
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(gradients_are_refused),
        cmocka_unit_test(numbers_are_rounded),
        cmocka_unit_test(models_without_a_cache),
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        void *const r = (void *)(uintptr_t)&rows[i];
        tests[OTHERS + 2 * i] = (struct CMUnitTest){rows[i].name, cut_anywhere, NULL, NULL, r};
        tests[OTHERS + 1 + 2 * i] = (struct CMUnitTest){rows[i].name, half_as_large, NULL, NULL, r};
    }
    return _cmocka_run_group_tests("cache", tests, COUNT(tests), NULL, NULL);
}
