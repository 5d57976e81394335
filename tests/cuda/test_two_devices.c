/* A GPU and the CPU: models of all kinds put out equal logits, losses and gradients; states and
 * runs go from one to the other and back. Without a GPU, or the plugin compiled for the host,
 * nothing can be compared, which is said. */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>

#include "generate/fixture.h"
#include "presets.h"

/* As between levels of the CPU: of a whole model's logits, and of gradients of the loss. */
static const double LOGITS = 5e-5, GRADIENTS = 1e-4;

enum { MOST_B = 3, MOST_T = 70, V = 256 };

static dra_device *cpu, *gpu;
static bool        emulated; /* slow: fewer models */

/* ---- both ----------------------------------------------------------------------------------- */

typedef struct numbers {
    size_t    n;
    dra_real *x;
} numbers;

static void keep(numbers *to, const dra_real *x, size_t n)
{
    to->x = realloc(to->x, (to->n + n + 1) * sizeof *x);
    assert_non_null(to->x);
    memcpy(to->x + to->n, x, n * sizeof *x);
    to->n += n;
}

static double largest_of(size_t n, const dra_real *x)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

/* noise: what is lost in numbers that cancel, however small they are themselves. */
static void expect_equal(const char *what, size_t n, const dra_real *a, const dra_real *b,
                         double most, double noise)
{
    const double largest = largest_of(n, b);
    double       worst = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d; /* NaN stays */
    }
    if (!(worst <= most * largest + noise))
        fail_msg("%s: differ by %g, largest %g, noise %g", what, worst, largest, noise);
}

typedef struct trial {
    dra_model   *model;
    dra_weights *weights;
    int64_t      B, T;
    int32_t      ids[MOST_B * MOST_T], targets[MOST_B * MOST_T];
} trial;

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*seed >> 8) * below >> 24);
}

static void open_trial(trial *t, const dra_model_config *c, uint32_t seed)
{
    dra_error err = {0};
    *t = (trial){.B = 1 + draw(&seed, MOST_B), .T = 1 + draw(&seed, MOST_T)};
    expect_ok(dra_model_create(c, &t->model, &err), &err);
    expect_ok(dra_weights_draw(t->model, seed, &t->weights, &err), &err);
    for (int64_t i = 0; i < t->B * t->T; i++) {
        t->ids[i] = (int32_t)draw(&seed, V);
        t->targets[i] = draw(&seed, 8) ? (int32_t)draw(&seed, V) : -1;
    }
}

static void close_trial(trial *t)
{
    dra_weights_destroy(t->weights);
    dra_model_destroy(t->model);
}

static numbers read_logits(const trial *t, dra_device *d)
{
    numbers          out = {0};
    dra_error        err = {0};
    dra_reader      *r = NULL;
    dra_states      *s = NULL;
    const dra_view   view = {.model = t->model, .logits = true};
    const dra_module module = dra_view_module(&view);
    const dra_named  in = {"ids", t->ids, (size_t)(t->B * t->T) * sizeof *t->ids};
    expect_ok(dra_reader_create(d, &module, &r, &err), &err);
    expect_ok(dra_weights_bind(t->weights, r, &err), &err);
    expect_ok(dra_states_create(d, dra_model_state(t->model), t->B, &s, &err), &err);
    expect_ok(dra_reader_read(r, s, t->T, NULL, 1, &in, &err), &err);
    const dra_real *y = dra_reader_result(r, "logits");
    assert_non_null(y);
    keep(&out, y, (size_t)(t->B * t->T * V));
    dra_states_destroy(s);
    dra_reader_destroy(r);
    return out;
}

static double find_gradients(const trial *t, dra_device *d, numbers *out, int i)
{
    dra_error                  err = {0};
    dra_gradients             *g = NULL;
    dra_microbatch_result      r;
    const dra_gradients_config c = {.model = t->model, .device = d};
    const dra_microbatch       q = {
              .B = t->B, .T = t->T, .ids = t->ids, .targets = t->targets, .no_dropout = true};
    expect_ok(dra_gradients_create(&c, &g, &err), &err);
    expect_ok(dra_gradients_bind(g, t->weights, &err), &err);
    expect_ok(dra_gradients_run(g, &q, &r, &err), &err);
    for (int k = 0; k < i; k++) {
        const dra_spec *p = dra_specs_at(dra_model_params(t->model), k);
        keep(&out[k], dra_gradients_of(g, k), (size_t)dra_shape_count(&p->shape));
    }
    dra_gradients_destroy(g);
    return r.loss;
}

static void compare(const char *name, const dra_model_config *c, uint32_t seed)
{
    trial t;
    char  what[200];
    open_trial(&t, c, seed);
    numbers y[2] = {read_logits(&t, gpu), read_logits(&t, cpu)};
    snprintf(what, sizeof what, "%s, model %u, logits", name, seed);
    expect_equal(what, y[0].n, y[0].x, y[1].x, LOGITS, 0);
    const int n = dra_specs_count(dra_model_params(t.model));
    numbers  *dw = calloc(2 * (size_t)n, sizeof *dw);
    assert_non_null(dw);
    const double a = find_gradients(&t, gpu, dw, n), b = find_gradients(&t, cpu, dw + n, n);
    if (!(fabs(a - b) <= LOGITS * fabs(b)))
        fail_msg("%s, model %u: losses %.9g, %.9g", name, seed, a, b);
    /* The gradient of a bias of keys is 0 but for rounding: a softmax does not see it. */
    double noise = 0;
    for (int i = 0; i < n; i++) noise = fmax(noise, 1e-6 * largest_of(dw[n + i].n, dw[n + i].x));
    for (int i = 0; i < n; i++) {
        snprintf(what, sizeof what, "%s, model %u, gradient of %s", name, seed,
                 dra_specs_at(dra_model_params(t.model), i)->name);
        expect_equal(what, dw[i].n, dw[i].x, dw[n + i].x, GRADIENTS, noise);
        free(dw[i].x);
        free(dw[n + i].x);
    }
    free(dw);
    free(y[0].x);
    free(y[1].x);
    close_trial(&t);
}

/* ---- models --------------------------------------------------------------------------------- */

static void parse(const char *json, dra_model_config **c)
{
    dra_error err = {0};
    if (dra_model_config_parse("made up", json, strlen(json), c, &err) != DRA_OK)
        fail_msg("%s: %s", err.text, json);
}

static void make_gpt2(uint32_t *seed, char *json, size_t room)
{
    const unsigned heads = 1 + draw(seed, 4);
    snprintf(json, room,
             "{\"model_type\": \"gpt2\", \"n_embd\": %u, \"n_head\": %u, \"n_layer\": %u, "
             "\"vocab_size\": %d, \"n_positions\": 128}",
             heads * (4 + 4 * draw(seed, 8)), heads, 1 + draw(seed, 3), V);
}

static void make_rwkv(uint32_t *seed, char *json, size_t room)
{
    snprintf(json, room,
             "{\"model_type\": \"rwkv\", \"hidden_size\": %u, \"attention_hidden_size\": %u, "
             "\"num_hidden_layers\": %u, \"vocab_size\": %d, \"context_length\": 128}",
             16 + 8 * draw(seed, 12), 16 + 8 * draw(seed, 12), 1 + draw(seed, 3), V);
}

static void make_xt(uint32_t *seed, char *json, size_t room)
{
    static const char *const positions[] = {"\"rotary_pos_emb\": true", "\"alibi_pos_bias\": true",
                                            "\"rel_pos_bias\": true", "\"pre_norm\": true"};
    static const char *const options[] = {
        "\"use_rmsnorm\": true",   "\"ff_glu\": true",        "\"attn_qk_norm\": true",
        "\"sandwich_norm\": true", "\"macaron\": true",       "\"shift_tokens\": 1",
        "\"ff_no_bias\": true",    "\"attn_kv_heads\": 1",    "\"attn_num_mem_kv\": 3",
        "\"gate_residual\": true", "\"scale_residual\": true"};
    const unsigned heads = 1 + draw(seed, 4);
    int            n;
    n = snprintf(json, room,
                 "{\"model_type\": \"x-transformers\", \"wrapper\": \"TransformerWrapper\", "
                 "\"num_tokens\": %d, \"max_seq_len\": 128, \"attn_layers\": "
                 "{\"type\": \"Decoder\", \"dim\": %u, \"depth\": %u, \"heads\": %u, "
                 "\"attn_dim_head\": %u, %s",
                 V, 16 + 8 * draw(seed, 8), 1 + draw(seed, 3), heads, 8 + 4 * draw(seed, 6),
                 positions[draw(seed, COUNT(positions))]);
    for (size_t i = 0; i < COUNT(options); i++)
        if (draw(seed, 3) == 0) n += snprintf(json + n, room - (size_t)n, ", %s", options[i]);
    snprintf(json + n, room - (size_t)n, "}}");
}

static const struct family {
    const char *name;
    void (*make)(uint32_t *seed, char *json, size_t room);
} families[] = {{"gpt2", make_gpt2}, {"rwkv", make_rwkv}, {"x-transformers", make_xt}};

static void random_models_are_equal(void **state)
{
    const struct family *f = *state;
    char                 json[2000];
    CHECK_CONFIG(c);
    for (uint32_t k = 0; k < (emulated ? 2 : 20); k++) {
        uint32_t seed = 1000 + k;
        f->make(&seed, json, sizeof json);
        check_drop_config(&c);
        parse(json, &c);
        compare(f->name, c, 1000 + k);
    }
}

static void presets_are_equal(void **state)
{
    const dra_preset *p;
    CHECK_CONFIG(c);
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++) {
        if (!strstr(p->name, "-tiny") || !preset_is_language(p->name)) continue;
        check_drop_config(&c);
        expect_ok(dra_preset_config(p->name, &c, NULL), &(dra_error){0});
        c->dim = 32;
        c->heads = 2;
        c->depth = emulated ? 1 : 2;
        c->context = 128;
        compare(p->name, c, 7 + (uint32_t)i);
    }
}

/* ---- states --------------------------------------------------------------------------------- */

/* Reads half of a text on one device, saves, and reads the rest on the other. */
static numbers read_in_halves(const trial *t, dra_device *first, dra_device *second)
{
    dra_device *const on[2] = {first, second};
    const int64_t     half = t->T / 2, n[2] = {half, t->T - half};
    const dra_view    view = {.model = t->model, .logits = true};
    const dra_module  module = dra_view_module(&view);
    const uint64_t    fingerprint = dra_model_fingerprint(t->model);
    const char       *path = in_scratch("half.state");
    dra_states       *s = NULL;
    numbers           out = {0};
    dra_error         err = {0};
    expect_ok(dra_states_create(first, dra_model_state(t->model), 1, &s, &err), &err);
    for (int k = 0; k < 2; k++) {
        dra_reader     *r = NULL;
        const dra_named in = {"ids", t->ids + k * half, (size_t)n[k] * sizeof *t->ids};
        expect_ok(dra_reader_create(on[k], &module, &r, &err), &err);
        expect_ok(dra_weights_bind(t->weights, r, &err), &err);
        expect_ok(dra_reader_read(r, s, n[k], NULL, 1, &in, &err), &err);
        keep(&out, dra_reader_result(r, "logits"), (size_t)(n[k] * V));
        dra_reader_destroy(r);
        if (k) continue;
        expect_ok(dra_states_save(s, fingerprint, path, &err), &err);
        dra_states_destroy(s);
        expect_ok(dra_states_load(second, dra_model_state(t->model), fingerprint, path, &s, &err),
                  &err);
    }
    dra_states_destroy(s);
    return out;
}

static void states_go_to_and_fro(void **state)
{
    const dra_preset *p;
    CHECK_CONFIG(c);
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++) {
        trial t;
        if (!preset_reads_in_parts(p->name)) continue;
        check_drop_config(&c);
        expect_ok(dra_preset_config(p->name, &c, NULL), &(dra_error){0});
        c->dim = 24, c->heads = 2, c->depth = 1, c->context = 128;
        open_trial(&t, c, 3);
        t.B = 1, t.T = 21;
        const numbers whole = read_in_halves(&t, cpu, cpu), up = read_in_halves(&t, cpu, gpu),
                      down = read_in_halves(&t, gpu, cpu);
        expect_equal(p->name, whole.n, up.x, whole.x, LOGITS, 0);
        expect_equal(p->name, whole.n, down.x, whole.x, LOGITS, 0);
        free(whole.x), free(up.x), free(down.x);
        close_trial(&t);
    }
}

/* ---- runs ----------------------------------------------------------------------------------- */

enum { STEPS = 150 };

typedef struct losses {
    int64_t stop;
    double  at[STEPS + 1];
} losses;

static bool note(void *user, const dra_event *e)
{
    losses *l = user;
    if (e->kind == DRA_EVENT_STEP) l->at[e->step] = e->loss;
    return l->stop == 0 || e->step < l->stop;
}

static void train_on(fixture *f, dra_device *d, const char *folder, int64_t stop, losses *l)
{
    const dra_train_config train = {
        .steps = STEPS, .batch = 4, .lr = 0.003, .accumulate = 2, .seed = 5, .log_every = 1};
    dra_trainer *t = NULL;
    dra_error    err = {0};
    f->device = d;
    dra_trainer_config c = trainer_config(f, folder, &train);
    c.resume = true;
    l->stop = stop;
    expect_ok(dra_trainer_create(&c, &t, &err), &err);
    expect_ok(dra_trainer_run(t, note, l, &err), &err);
    dra_trainer_destroy(t);
}

static void runs_go_to_and_fro(void **state)
{
    static const char *const settings[] = {"dropout=0.1", NULL};
    fixture                  f;
    losses                   one = {0}, two = {0};
    open_fixture(&f, *state, settings,
                 put_text("text", "a text that is learned on two devices, by turns;\n", 60));
    dra_device *own = f.device;
    train_on(&f, cpu, in_scratch("cpu"), 0, &one);
    train_on(&f, cpu, in_scratch("both"), 50, &two);
    train_on(&f, gpu, in_scratch("both"), 100, &two);
    train_on(&f, cpu, in_scratch("both"), 0, &two);
    double worst = 0;
    for (int i = 1; i <= STEPS; i++) worst = fmax(worst, fabs(one.at[i] - two.at[i]));
    print_message("%s: losses differ by at most %.2g\n", (const char *)*state, worst);
    assert_true(worst <= 1e-4);
    assert_true(one.at[STEPS] < 0.8 * one.at[1]);
    shell("rm -rf '%s' '%s'", in_scratch("cpu"), in_scratch("both"));
    f.device = own;
    close_fixture(&f);
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Small ones and ones of several pieces, many at once, from memory that is then overwritten. */
static void uploads_of_any_size_arrive(void **state)
{
    static const size_t sizes[] = {1, 4097, 1 << 20, (1 << 20) + 1, (9 << 20) + 3, (37 << 20) + 5};
    enum { ROUNDS = 3 };
    unsigned char *from = malloc(38 << 20), *back = malloc(38 << 20);
    dra_array     *a[ROUNDS][COUNT(sizes)];
    dra_error      err = {0};
    assert_true(from && back);
    for (size_t k = 0; k < ROUNDS * COUNT(sizes); k++) {
        dra_array  **to = &a[k / COUNT(sizes)][k % COUNT(sizes)];
        const size_t n = sizes[k % COUNT(sizes)];
        for (size_t i = 0; i < n; i++) from[i] = (unsigned char)(i * 7 + (i >> 12) + k);
        expect_ok(dra_array_create(gpu, n, to, &err), &err);
        expect_ok(dra_array_upload(dra_array_whole(*to), from, &err), &err);
    }
    for (size_t k = 0; k < ROUNDS * COUNT(sizes); k++) {
        dra_array   *to = a[k / COUNT(sizes)][k % COUNT(sizes)];
        const size_t n = sizes[k % COUNT(sizes)];
        expect_ok(dra_array_download(back, dra_array_whole(to), &err), &err);
        size_t wrong = 0;
        for (size_t i = 0; i < n; i++) wrong += back[i] != (unsigned char)(i * 7 + (i >> 12) + k);
        assert_int_equal(wrong, 0);
        dra_array_destroy(to);
    }
    free(from);
    free(back);
}

static void nothing_to_compare_with(void **state) { skip(); }

/* The plugin for the host stands next to this program's folder, if no other is named. */
static bool open_devices(const char *program)
{
    char        path[4000];
    dra_error   err = {0};
    const char *slash = strrchr(program, '/');
    snprintf(path, sizeof path, "%.*s/../cuda_host", slash ? (int)(slash - program) : 1,
             slash ? program : ".");
    setenv("DRA_PLUGIN_PATH", path, 0);
    if (dra_device_create("cuda", NULL, &gpu, &err) != DRA_OK) {
        print_message("%s\n", err.text);
        return false;
    }
    emulated = strcmp(dra_device_level(gpu), "cuda sm_00") == 0;
    return dra_device_create_cpu(&(dra_cpu_config){.threads = 2}, &cpu, &err) == DRA_OK;
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest none[] = {cmocka_unit_test(nothing_to_compare_with)};
    const struct CMUnitTest        tests[] = {
               {"random models of gpt2", random_models_are_equal, NULL, NULL, (void *)&families[0]},
               {"random models of rwkv", random_models_are_equal, NULL, NULL, (void *)&families[1]},
               {"random models of x-transformers", random_models_are_equal, NULL, NULL,
                (void *)&families[2]},
               cmocka_unit_test(uploads_of_any_size_arrive),
               cmocka_unit_test(presets_are_equal),
               cmocka_unit_test(states_go_to_and_fro),
               {"runs of gpt2", runs_go_to_and_fro, NULL, NULL, (void *)"gpt2-tiny"},
               {"runs of delta", runs_go_to_and_fro, NULL, NULL, (void *)"dra-delta-tiny"},
    };
    if (!open_devices(argv[0])) return check_main("two devices", NULL, 0, none, 1);
    scratch_make(NULL);
    const int failed = check_main("two devices", NULL, 0, tests, COUNT(tests));
    scratch_remove(NULL);
    dra_device_destroy(gpu);
    dra_device_destroy(cpu);
    return failed;
}
