/* Model folders made by a formula, in the layout of Hugging Face: element i of tensor number n
 * (from 1, in the order of their table) is made of s = sin(1.7 n + 0.9 i + 0.05 i i), in double. */
#ifndef DRA_TESTS_MODEL_FIXTURES_H
#define DRA_TESTS_MODEL_FIXTURES_H

#include <math.h>

#include "file/folder.h"
#include "dra/model.h"
#include "dra/train.h"

typedef enum fixture_kind {
    MATRIX, /* 0.5 s     */
    GAIN,   /* 1 + 0.2 s */
    BIAS,   /* 0.1 s     */
    MIX,    /* 0.5 + 0.4 s */
    DECAY   /* -1 + s    */
} fixture_kind;

typedef struct fixture_row { /* "*": once for each layer, from the first such row to the last */
    const char  *name;
    fixture_kind kind;
    dra_shape    shape;
    bool         first; /* of layer 0 only */
} fixture_row;

enum { FIXTURE_MOST = 80, FIXTURE_NAME = 80 };

typedef struct fixture {
    int             n;
    char            name[FIXTURE_MOST][FIXTURE_NAME];
    dra_tensor_item item[FIXTURE_MOST];
} fixture;

static inline void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static inline double fixture_number(int n, int64_t i, fixture_kind kind)
{
    const double s = sin(1.7 * n + 0.9 * (double)i + 0.05 * (double)i * (double)i);
    switch (kind) {
    case GAIN: return 1 + 0.2 * s;
    case BIAS: return 0.1 * s;
    case MIX: return 0.5 + 0.4 * s;
    case DECAY: return -1 + s;
    default: return 0.5 * s;
    }
}

static inline void fixture_add(fixture *f, const char *prefix, const fixture_row *r, int layer)
{
    const int     k = f->n++;
    const char   *star = strchr(r->name, '*');
    const int64_t count = dra_shape_count(&r->shape);
    dra_real     *data = calloc((size_t)count, sizeof *data);
    char         *name = f->name[k];
    assert_true(k < FIXTURE_MOST);
    assert_non_null(data);
    if (star)
        snprintf(name, FIXTURE_NAME, "%s%.*s%d%s", prefix, (int)(star - r->name), r->name, layer,
                 star + 1);
    else
        snprintf(name, FIXTURE_NAME, "%s%s", prefix, r->name);
    for (int64_t i = 0; i < count; i++) data[i] = (dra_real)fixture_number(k + 1, i, r->kind);
    f->item[k] = (dra_tensor_item){name, DRA_REAL, r->shape, data};
}

/* The tensors of a table; `head` never has the prefix. */
static inline void fixture_make(fixture *f, const fixture_row *rows, int layers, const char *prefix,
                                const char *head)
{
    int from = 0;
    *f = (fixture){0};
    while (rows[from].name) {
        int to = from;
        while (rows[to].name && strchr(rows[to].name, '*')) to++;
        for (int l = 0; l < layers && to > from; l++)
            for (int i = from; i < to; i++)
                if (!rows[i].first || l == 0) fixture_add(f, prefix, &rows[i], l);
        if (to == from) {
            const bool bare = strcmp(rows[from].name, head) == 0;
            fixture_add(f, bare ? "" : prefix, &rows[from], 0);
            to++;
        }
        from = to;
    }
}

static inline void fixture_free(fixture *f)
{
    for (int i = 0; i < f->n; i++) free((void *)(uintptr_t)f->item[i].data);
}

/* A folder of its own inside that of the test. */
static inline const char *fixture_folder(const char *name, const char *config)
{
    const char *path = in_folder(name);
    char        file[300];
    if (mkdir(path, 0700) != 0) assert_int_equal(errno, EEXIST);
    snprintf(file, sizeof file, "%s/config.json", name);
    put_file(file, config, strlen(config));
    return path;
}

static inline void fixture_save(const fixture *f, const char *name, const char *config)
{
    dra_error   err = {0};
    const char *path = fixture_folder(name, config);
    char        file[640];
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    expect_ok(dra_tensors_write(file, f->item, (size_t)f->n, NULL, 0, &err), &err);
}

/* The folder of the test and the folders in it. */
static inline void fixture_remove(void)
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    char           path[256];
    while (d && (e = readdir(d))) {
        DIR           *inner = e->d_name[0] == '.' ? NULL : opendir(in_folder(e->d_name));
        struct dirent *file;
        while (inner && (file = readdir(inner))) {
            snprintf(path, sizeof path, "%.100s/%.100s", e->d_name, file->d_name);
            if (file->d_name[0] != '.') unlink(in_folder(path));
        }
        if (inner) closedir(inner);
    }
    if (d) closedir(d);
    folder_remove(NULL);
}

/* ---- the two models -------------------------------------------------------------------------- */

static const fixture_row gpt2_rows[] = {{"wte.weight", MATRIX, {2, {13, 8}}},
                                        {"wpe.weight", MATRIX, {2, {16, 8}}},
                                        {"h.*.ln_1.weight", GAIN, {1, {8}}},
                                        {"h.*.ln_1.bias", BIAS, {1, {8}}},
                                        {"h.*.attn.c_attn.weight", MATRIX, {2, {8, 24}}},
                                        {"h.*.attn.c_attn.bias", BIAS, {1, {24}}},
                                        {"h.*.attn.c_proj.weight", MATRIX, {2, {8, 8}}},
                                        {"h.*.attn.c_proj.bias", BIAS, {1, {8}}},
                                        {"h.*.ln_2.weight", GAIN, {1, {8}}},
                                        {"h.*.ln_2.bias", BIAS, {1, {8}}},
                                        {"h.*.mlp.c_fc.weight", MATRIX, {2, {8, 32}}},
                                        {"h.*.mlp.c_fc.bias", BIAS, {1, {32}}},
                                        {"h.*.mlp.c_proj.weight", MATRIX, {2, {32, 8}}},
                                        {"h.*.mlp.c_proj.bias", BIAS, {1, {8}}},
                                        {"ln_f.weight", GAIN, {1, {8}}},
                                        {"ln_f.bias", BIAS, {1, {8}}},
                                        {0}};

static const char gpt2_config[] =
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"vocab_size\": 13, "
    "\"n_positions\": 16, \"n_ctx\": 16, \"n_embd\": 8.0, \"n_layer\": 2, \"n_head\": 2, "
    "\"n_inner\": null, \"resid_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"attn_pdrop\": 0.0, "
    "\"bos_token_id\": 12, "
    "\"summary_type\": \"cls_index\"}";

static const fixture_row rwkv_rows[] = {
    {"embeddings.weight", MATRIX, {2, {13, 8}}},
    {"blocks.*.pre_ln.weight", GAIN, {1, {8}}, true},
    {"blocks.*.pre_ln.bias", BIAS, {1, {8}}, true},
    {"blocks.*.ln1.weight", GAIN, {1, {8}}},
    {"blocks.*.ln1.bias", BIAS, {1, {8}}},
    {"blocks.*.ln2.weight", GAIN, {1, {8}}},
    {"blocks.*.ln2.bias", BIAS, {1, {8}}},
    {"blocks.*.attention.time_decay", DECAY, {1, {8}}},
    {"blocks.*.attention.time_first", MATRIX, {1, {8}}},
    {"blocks.*.attention.time_mix_key", MIX, {3, {1, 1, 8}}},
    {"blocks.*.attention.time_mix_value", MIX, {3, {1, 1, 8}}},
    {"blocks.*.attention.time_mix_receptance", MIX, {3, {1, 1, 8}}},
    {"blocks.*.attention.key.weight", MATRIX, {2, {8, 8}}},
    {"blocks.*.attention.value.weight", MATRIX, {2, {8, 8}}},
    {"blocks.*.attention.receptance.weight", MATRIX, {2, {8, 8}}},
    {"blocks.*.attention.output.weight", MATRIX, {2, {8, 8}}},
    {"blocks.*.feed_forward.time_mix_key", MIX, {3, {1, 1, 8}}},
    {"blocks.*.feed_forward.time_mix_receptance", MIX, {3, {1, 1, 8}}},
    {"blocks.*.feed_forward.key.weight", MATRIX, {2, {12, 8}}},
    {"blocks.*.feed_forward.receptance.weight", MATRIX, {2, {8, 8}}},
    {"blocks.*.feed_forward.value.weight", MATRIX, {2, {8, 12}}},
    {"ln_out.weight", GAIN, {1, {8}}},
    {"ln_out.bias", BIAS, {1, {8}}},
    {"head.weight", MATRIX, {2, {13, 8}}},
    {0}};

static const char rwkv_config[] =
    "{\"model_type\": \"rwkv\", \"vocab_size\": 13, \"hidden_size\": 8, \"num_hidden_layers\": 3, "
    "\"attention_hidden_size\": null, \"intermediate_size\": 12, \"rescale_every\": 2, "
    "\"layer_norm_epsilon\": 1e-05, \"use_cache\": true, \"bos_token_id\": 0}";

/* ---- a loaded model -------------------------------------------------------------------------- */

enum { T = 8, V = 13 };

static const int32_t fixture_ids[T] = {3, 1, 4, 1, 5, 9, 2, 6};

typedef struct loaded {
    dra_model   *model;
    dra_weights *weights;
    dra_states  *states;
    dra_real     logits[T * V];
} loaded;

static inline void load_folder(loaded *m, const char *name)
{
    dra_error err = {0};
    *m = (loaded){0};
    expect_ok(dra_folder_load(in_folder(name), &m->model, &m->weights, &err), &err);
}

static inline void load_free(loaded *m)
{
    dra_states_destroy(m->states);
    dra_weights_destroy(m->weights);
    dra_model_destroy(m->model);
}

/* Reads the fixture's tokens in chunks of this length. */
static inline void load_read(loaded *m, int64_t chunk)
{
    const dra_view   view = {.model = m->model, .logits = true};
    const dra_module module = dra_view_module(&view);
    dra_error        err = {0};
    dra_reader      *r = NULL;
    dra_states_destroy(m->states);
    expect_ok(
        dra_states_create(check_device(1, "ref"), dra_model_state(m->model), 1, &m->states, &err),
        &err);
    expect_ok(dra_reader_create(check_device(1, "ref"), &module, &r, &err), &err);
    expect_ok(dra_weights_bind(m->weights, r, &err), &err);
    for (int64_t t = 0; t < T; t += chunk) {
        const int64_t   n = T - t < chunk ? T - t : chunk;
        const dra_named in = {"ids", fixture_ids + t, (size_t)n * sizeof *fixture_ids};
        expect_ok(dra_reader_read(r, m->states, n, NULL, 1, &in, &err), &err);
        memcpy(m->logits + t * V, dra_reader_result(r, "logits"),
               (size_t)(n * V) * sizeof *m->logits);
    }
    dra_reader_destroy(r);
}

/* Gradients of the fixture's tokens as a microbatch, each the target of the one before. */
static inline dra_gradients *load_learn(const loaded *m, double *loss)
{
    int32_t                    targets[T];
    const dra_gradients_config config = {.model = m->model, .device = check_device(1, "ref")};
    const dra_microbatch       batch = {.B = 1, .T = T, .ids = fixture_ids, .targets = targets};
    dra_microbatch_result      result;
    dra_gradients             *l = NULL;
    dra_error                  err = {0};
    for (int t = 0; t < T; t++) targets[t] = t + 1 < T ? fixture_ids[t + 1] : -1;
    expect_ok(dra_gradients_create(&config, &l, &err), &err);
    expect_ok(dra_gradients_bind(l, m->weights, &err), &err);
    expect_ok(dra_gradients_run(l, &batch, &result, &err), &err);
    *loss = result.loss;
    return l;
}

#ifdef DRA_REAL_DOUBLE
#define LOADED_TOL 1e-8 /* digits the references have */
#else
#define LOADED_TOL 3e-6
#endif

#endif
