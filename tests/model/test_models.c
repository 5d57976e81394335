/* Models: every tiny preset reads whole = in chunks = token by token = resumed, its logits and its
 * state; and what its config says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/model.h"
#include "presets.h"

/* A whole model's logits in fp32; docs/memories.md says where bits are the same. */
#ifdef DRA_REAL_DOUBLE
#define EQUAL 1e-12
#else
#define EQUAL 5e-5
#endif

enum { B = 2, T = 40, V = 256 };

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

typedef struct reading {
    dra_model   *model;
    dra_weights *weights;
    dra_device  *device;
    dra_view     view;
    dra_reader  *reader;
    int32_t      ids[B * T];
} reading;

/* A preset made small enough for many reads. */
static void open_preset(reading *r, const char *name)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_preset_config(name, &c, &err), &err);
    c->dim = 24;
    c->heads = 2;
    c->depth = 2;
    c->context = T;
    expect_ok(dra_model_create(c, &r->model, &err), &err);
    expect_ok(dra_weights_draw(r->model, 3, &r->weights, &err), &err);
    expect_ok(check_cpu(NULL, &r->device, &err), &err);
    r->view = (dra_view){.model = r->model, .logits = true};
    const dra_module module = dra_view_module(&r->view);
    expect_ok(dra_reader_create(r->device, &module, &r->reader, &err), &err);
    expect_ok(dra_weights_bind(r->weights, r->reader, &err), &err);
    for (int i = 0; i < B * T; i++) r->ids[i] = (i * 37 + i * i * 11) % V;
}

static void close_preset(reading *r)
{
    dra_reader_destroy(r->reader);
    dra_weights_destroy(r->weights);
    dra_model_destroy(r->model);
    dra_device_destroy(r->device);
}

/* Reads tokens from..from+n-1 of both rows and puts their logits in place. */
static void read_part(reading *r, dra_states *s, int64_t from, int64_t n, dra_real *logits)
{
    int32_t   ids[B * T];
    dra_error err = {0};
    for (int64_t b = 0; b < B; b++)
        memcpy(ids + b * n, r->ids + b * T + from, (size_t)n * sizeof *ids);
    const dra_named in = {"ids", ids, (size_t)(B * n) * sizeof *ids};
    expect_ok(dra_reader_read(r->reader, s, n, NULL, 1, &in, &err), &err);
    const dra_real *y = dra_reader_result(r->reader, "logits");
    for (int64_t b = 0; b < B; b++)
        memcpy(logits + (b * T + from) * V, y + b * n * V, (size_t)(n * V) * sizeof *y);
}

static double difference(int64_t n, const dra_real *a, const dra_real *b)
{
    double most = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d; /* NaN stays */
        if (fabs((double)b[i]) > most) most = fabs((double)b[i]);
    }
    return worst / most;
}

static void read_all(reading *r, int n, const int64_t *chunk, dra_states **s, dra_real *logits)
{
    dra_error err = {0};
    int64_t   at = 0;
    expect_ok(dra_states_create(r->device, dra_model_state(r->model), B, s, &err), &err);
    for (int i = 0; at < T; i++) {
        const int64_t take = n ? chunk[i % n] : T;
        const int64_t most = take < T - at ? take : T - at;
        read_part(r, *s, at, most, logits);
        at += most;
    }
}

static void chunks_equal_whole(const char *name)
{
    static const int64_t cuts[][3] = {{1}, {17, 2, 5}, {T - 1, 1}};
    static const int     n_cuts[] = {1, 3, 2};
    reading              r = {0};
    dra_error            err = {0};
    dra_states          *whole, *parts;
    dra_real            *a = calloc((size_t)(B * T * V), sizeof *a);
    dra_real            *b = calloc((size_t)(B * T * V), sizeof *b);
    assert_non_null(a);
    assert_non_null(b);
    open_preset(&r, name);
    read_all(&r, 0, NULL, &whole, a);
    for (int i = 0; i < 3; i++) {
        dra_states_difference d;
        read_all(&r, n_cuts[i], cuts[i], &parts, b);
        expect_ok(dra_states_compare(parts, whole, &d, &err), &err);
        const double y = difference((int64_t)B * T * V, b, a);
        if (!(y <= EQUAL)) fail_msg("%s, cut %d: logits differ by %g", name, i, y);
        if (!(d.worst <= EQUAL)) fail_msg("%s, cut %d: %s differs by %g", name, i, d.name, d.worst);
        dra_states_destroy(parts);
    }
    dra_states_destroy(whole);
    close_preset(&r);
    free(a);
    free(b);
}

static void presets_read_in_chunks(void **unused)
{
    const dra_preset *p;
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++)
        if (preset_reads_in_parts(p->name)) chunks_equal_whole(p->name);
}

static void presets_have_their_size(void **unused)
{
    const dra_preset *p;
    CHECK_CONFIG(c);
    dra_error  err = {0};
    dra_model *m;
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++) {
        check_drop_config(&c);
        expect_ok(dra_preset_config(p->name, &c, &err), &err);
        expect_ok(dra_model_create(c, &m, &err), &err);
        const int64_t n = dra_model_param_count(m);
        const int64_t least = preset_is_language(p->name) ? 1000000 : 100000;
        if (strstr(p->name, "-tiny") && !(n >= least && n <= 3000000))
            fail_msg("%s has %lld parameters", p->name, (long long)n);
        dra_model_destroy(m);
    }
}

static void presets_survive_json(void **unused)
{
    const dra_preset *p;
    static char       text[8192];
    CHECK_CONFIG(a);
    CHECK_CONFIG(b);
    dra_error err = {0};
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++) {
        check_drop_config(&a);
        expect_ok(dra_preset_config(p->name, &a, &err), &err);
        const size_t n = dra_model_config_text(a, text, sizeof text);
        assert_true(n > 0 && n < sizeof text);
        check_drop_config(&b);
        expect_ok(dra_model_config_parse("again", text, n, &b, &err), &err);
        assert_memory_equal(a, b, sizeof a);
    }
}

/* What help and completion show: every key can be set, and says what it is. */
static void keys_tell_themselves(void **unused)
{
    dra_config_key k;
    size_t         n = 0;
    for (; dra_config_key_at(n, &k); n++) {
        CHECK_CONFIG(c);
        dra_error err = {0};
        if (!k.about || !*k.about) fail_msg("%s says nothing", k.name);
        if (!k.value[0]) {
            assert_null(k.unset);
            continue;
        }
        assert_non_null(k.unset);
        k.value[strcspn(k.value, "|")] = '\0'; /* the first choice */
        expect_ok(dra_model_config_copy(&(dra_model_config){0}, &c, &err), &err);
        if (dra_model_config_set(c, k.name, k.value, &err) == DRA_OK) continue;
        if (strstr(err.text, "not a key")) fail_msg("%s: %s", k.name, err.text);
    }
    assert_true(n > 150);
    assert_string_equal(k.name, "");
}

/* Both words are read, one is written. */
static void attention_is_append(void **unused)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    char      text[512];
    expect_ok(dra_model_config_copy(&(dra_model_config){0}, &c, &err), &err);
    expect_ok(dra_model_config_set(c, "mixer.memory", "attention", &err), &err);
    assert_string_equal(c->mixer[0].a.memory, "append");
    assert_true(dra_model_config_text(c, text, sizeof text) > 0);
    assert_non_null(strstr(text, "\"memory\": \"append\""));
}

static void wrong_configs_are_named(void **unused)
{
    static const struct {
        const char *json, *text;
    } rows[] = {
        {"[]", "c.json: JSON is no object"},
        {"{}", "c.json: model_type is missing, expected one of dra, gpt2, "},
        {"{\"model_type\":\"bert\"}", "c.json: model_type is bert, expected one of dra, gpt2, "},
        {"{\"model_type\":\"dra\",\"dimm\":3}", "c.json: dimm is not a key; did you mean dim?"},
        {"{\"model_type\":\"dra\",\"dim\":\"3\"}",
         "c.json: dim is \"3\", expected a whole number from 0 to 1048576"},
        {"{\"model_type\":\"dra\",\"dim\":-1}",
         "c.json: dim is -1, expected a whole number from 0 to 1048576"},
        {"{\"model_type\":\"dra\",\"mixer\":{\"memory\":\"gruu\"}}",
         "c.json: mixer.memory is \"gruu\", expected one of append, ema, ssm, gru, lstm, moment, "
         "delta, wkv, slots, shortconv; did you mean gru?"},
        {"{\"model_type\":\"dra\",\"mixer\":{\"gamma\":{\"rnge\":[1,2]}}}",
         "c.json: mixer.gamma.rnge is not a key; did you mean range?"},
        {"{\"model_type\":\"dra\",\"mixer\":[{},{\"gamma\":{\"range\":[1]}}]}",
         "c.json: mixer.1.gamma.range is [1], expected a list of two numbers"},
        {"{\"model_type\":\"dra\",\"mixer\":[]}",
         "c.json: mixer is [], expected an object or a list of 1 to 16"},
        {"{\"model_type\":\"dra\",\"hugging_face\":3}", "c.json: hugging_face is no object"},
        {"{\"model_type\":\"dra\",\"bias\":1}", "c.json: bias is 1, expected true or false"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_CONFIG(c);
        dra_error err = {0};
        assert_int_not_equal(
            dra_model_config_parse("c.json", rows[i].json, strlen(rows[i].json), &c, &err), DRA_OK);
        if (strstr(rows[i].text, "expected one of ")) /* and of those that were added */
            assert_memory_equal(err.text, rows[i].text, strlen(rows[i].text));
        else
            assert_string_equal(err.text, rows[i].text);
    }
}

static void fields_are_set_by_name(void **unused)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_preset_config("dra-gru-tiny", &c, &err), &err);
    expect_ok(dra_model_config_set(c, "mixer.gamma.range", "[1, 5]", &err), &err);
    expect_ok(dra_model_config_set(c, "mixer.memory", "lstm", &err), &err);
    expect_ok(dra_model_config_set(c, "dim", "64", &err), &err);
    assert_string_equal(c->mixer[0].a.memory, "lstm");
    assert_true(c->mixer[0].a.gamma.ranged);
    assert_true(c->mixer[0].a.gamma.range[1] == 5 && c->dim == 64);
    expect_ok(dra_model_config_set(c, "mixer", "[{}, {\"memory\": \"gru\"}]", &err), &err);
    expect_ok(dra_model_config_set(c, "mixer.1.memory", "ema", &err), &err);
    assert_true(c->mixers == 2 && c->mixer[0].a.memory == NULL);
    assert_string_equal(c->mixer[1].a.memory, "ema");
    assert_int_not_equal(dra_model_config_set(c, "mixer.gamma.hugh", "1", &err), DRA_OK);
    assert_string_equal(err.text, "setting: mixer.gamma.hugh is not a key");
    check_drop_config(&c);
    assert_int_not_equal(dra_preset_config("dra-gro", &c, &err), DRA_OK);
    assert_string_equal(err.text, "no preset is called dra-gro; did you mean dra-gru?");
}

/* What the parameter "blend" of the mixer's keys starts with; NAN: there is none. The config must
 * say the same again after a way through its text. */
static double blend_of(const char *keys, bool written)
{
    static char text[8192];
    CHECK_CONFIG(c);
    CHECK_CONFIG(again);
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    expect_ok(dra_preset_config("hybrid-tiny", &c, &err), &err);
    c->dim = 16, c->depth = 1, c->heads = 2, c->ff.dim = 16, c->mixers = 0;
    expect_ok(dra_model_config_set(c, "mixer", keys, &err), &err);
    const size_t n = dra_model_config_text(c, text, sizeof text);
    assert_true((strstr(text, "blend_value") != NULL) == written);
    expect_ok(dra_model_config_parse("again", text, n, &again, &err), &err);
    expect_ok(dra_model_create(again, &m, &err), &err);
    expect_ok(dra_weights_draw(m, 0, &w, &err), &err);
    const int    at = dra_specs_find(dra_model_params(m), "blend");
    const double a = at < 0 ? NAN : (double)dra_weights_at(w, at)[0];
    dra_weights_destroy(w);
    dra_model_destroy(m);
    return a;
}

#define TWO "\"memory\": \"append\", \"b\": {\"memory\": \"gru\"}, \"blend\": "

static void schedules_start_where_it_is_said(void **unused)
{
    assert_true(fabs(blend_of("[{" TWO "\"schedule\"}]", false) - 0.7) < 1e-7);
    assert_true(blend_of("[{" TWO "\"schedule\", \"blend_value\": 0}]", true) == 0);
    assert_true(blend_of("[{\"blend_value\": 0.0, " TWO "\"schedule\"}]", true) == 0);
    assert_true(blend_of("[{" TWO "\"schedule\", \"blend_value\": 0.25}]", true) == 0.25);
    /* A number is 0 by default: its text is what it always was. */
    assert_true(isnan(blend_of("[{" TWO "\"number\", \"blend_value\": 0}]", false)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_read_in_chunks),
        cmocka_unit_test(presets_have_their_size),
        cmocka_unit_test(presets_survive_json),
        cmocka_unit_test(keys_tell_themselves),
        cmocka_unit_test(attention_is_append),
        cmocka_unit_test(wrong_configs_are_named),
        cmocka_unit_test(fields_are_set_by_name),
        cmocka_unit_test(schedules_start_where_it_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
