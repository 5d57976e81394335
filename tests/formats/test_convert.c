/* Converting: tables, formats there and back, rwkv.cpp files, shards, grafts; and that what goes
 * wrong leaves nothing behind. */
#include <signal.h>
#include <sys/resource.h>

#include "model/fixtures.h"
#include "formats/tensor_source.h"
#include "shared.h"

/* ---- there and back -------------------------------------------------------------------------- */

typedef struct table {
    int  rows, drawn;
    bool seen; /* the row that is looked for */
} table;

static void count_row(void *user, const dra_convert_row *r)
{
    table *t = user;
    char   from[80], to[80];
    t->rows++;
    t->drawn += !r->from;
    if (!r->from || strcmp(r->to, "layers.1.mixer.W_k") != 0) return;
    dra_shape_text(&r->from_shape, from, sizeof from);
    dra_shape_text(&r->shape, to, sizeof to);
    t->seen = strcmp(r->from, "transformer.h.1.attn.c_attn.weight") == 0 &&
              strcmp(from, "(8, 24)") == 0 && strcmp(to, "(8, 8)") == 0;
}

static void convert(const char *from, const char *to, const dra_model_config *config, table *t)
{
    dra_error                err = {0};
    const dra_convert_config how = {.from = in_folder(from),
                                    .to = in_folder(to),
                                    .config = config,
                                    .row = count_row,
                                    .user = t};
    expect_ok(dra_convert(&how, &err), &err);
}

static dra_model_config *config_of(const char *name, dra_format_kind format)
{
    dra_model_config *c;
    dra_error         err = {0};
    expect_ok(dra_folder_config(in_folder(name), &c, &err), &err);
    c->format = format;
    return c;
}

static void same_bytes(const char *a, const char *b)
{
    char     *x, *y;
    size_t    n, m;
    dra_error err = {0};
    expect_ok(dra_file_read(in_folder(a), 1 << 20, &x, &n, &err), &err);
    expect_ok(dra_file_read(in_folder(b), 1 << 20, &y, &m, &err), &err);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void save_both(void)
{
    fixture f;
    fixture_make(&f, gpt2_rows, 2, "transformer.", "lm_head.weight");
    fixture_save(&f, "gpt2", gpt2_config);
    fixture_free(&f);
    fixture_make(&f, rwkv_rows, 3, "rwkv.", "head.weight");
    fixture_save(&f, "rwkv", rwkv_config);
    fixture_free(&f);
    put_file("gpt2/generation_config.json", "{}", 2);
}

/* A format's own file, dra's, and the first again. */
static void there_and_back(const char *name, dra_format_kind format)
{
    table                         t = {0};
    CHECK_OWNED dra_model_config *own = config_of(name, DRA_FORMAT_DRA);
    CHECK_OWNED dra_model_config *same = config_of(name, format);
    fixture_remove();
    assert_int_equal(folder_make(NULL), 0);
    save_both();
    convert(name, "own", own, &t);
    convert("own", "back", same, &t);
    convert(name, "again", NULL, &t);
    same_bytes("back/model.safetensors", "again/model.safetensors");
    assert_int_equal(t.drawn, 0);
}

static void formats_there_and_back(void **unused)
{
    save_both();
    there_and_back("rwkv", DRA_FORMAT_RWKV);
    there_and_back("gpt2", DRA_FORMAT_GPT2);
    same_bytes("gpt2/generation_config.json", "own/generation_config.json");
}

static void formats_have_names(void **unused)
{
    assert_string_equal(dra_format_name(DRA_FORMAT_DRA), "dra");
    assert_string_equal(dra_format_name(DRA_FORMAT_GRANITE_HYBRID), "granitemoehybrid");
    assert_null(dra_format_name(DRA_FORMAT_COUNT));
}

static void a_dry_run_writes_nothing(void **unused)
{
    table     t = {0};
    dra_error err = {0};
    save_both();
    CHECK_OWNED dra_model_config *own = config_of("gpt2", DRA_FORMAT_DRA);
    const dra_convert_config      how = {.from = in_folder("gpt2"),
                                         .to = in_folder("dry"),
                                         .config = own,
                                         .dry_run = true,
                                         .row = count_row,
                                         .user = &t};
    expect_ok(dra_convert(&how, &err), &err);
    assert_int_equal(t.rows, 2 + 2 * 16 + 2);
    assert_true(t.seen);
    assert_int_not_equal(access(in_folder("dry"), F_OK), 0);
}

/* ---- rwkv.cpp -------------------------------------------------------------------------------- */

static dra_status to_cpp(const char *from, const char *to, dra_dtype dtype, dra_error *err)
{
    CHECK_OWNED dra_model_config *c = config_of(from, DRA_FORMAT_RWKV);
    dra_convert_config            how = {.from = in_folder(from), .to = in_folder(to)};
    how.config = c;
    how.cpp = true;
    how.dtype = dtype;
    return dra_convert(&how, err);
}

static double worst(const dra_real *a, const dra_real *b, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* What is stored as -exp(p) comes back by a logarithm, to rounding. */
static void rwkv_cpp_there_and_back(void **unused)
{
    loaded    a, b;
    dra_error err = {0};
    save_both();
    unlink(in_folder("f32.bin"));
    unlink(in_folder("f16.bin"));
    expect_ok(to_cpp("rwkv", "f32.bin", DRA_F32, &err), &err);
    expect_ok(to_cpp("rwkv", "f16.bin", DRA_F16, &err), &err);
    load_folder(&a, "rwkv");
    load_read(&a, T);
    load_folder(&b, "f32.bin");
    assert_int_equal(dra_model_config_of(b.model)->rescale_every, 0); /* so only eps differs */
    load_read(&b, T);
    assert_true(worst(a.logits, b.logits, T * V) < 1e-4);
    load_free(&b);
    load_folder(&b, "f16.bin");
    load_read(&b, 3);
    assert_true(worst(a.logits, b.logits, T * V) < 2e-2);
    load_free(&b);
    load_free(&a);
    assert_int_equal(to_cpp("gpt2", "gpt2.bin", DRA_F32, &err), DRA_ERR_VALUE);
    assert_int_not_equal(access(in_folder("gpt2.bin"), F_OK), 0);
}

/* The published model and its logits after the bytes 22 69 6e. */
static void the_tiny_model(const char *name, const char *expected, double tol)
{
    static const int32_t ids[] = {34, 105, 110};
    char                 path[600];
    float                should[256];
    dra_model           *model;
    dra_weights         *weights;
    dra_reader          *r;
    dra_states          *s;
    dra_error            err = {0};
    FILE                *f = shared_file(expected);
    if (!f) skip();
    assert_int_equal(fread(should, sizeof *should, 256, f), 256);
    fclose(f);
    snprintf(path, sizeof path, "%s/%s", shared_data(), name);
    expect_ok(dra_folder_load(path, &model, &weights, &err), &err);
    const dra_view   view = {.model = model, .logits = true, .keep = 1};
    const dra_module module = dra_view_module(&view);
    expect_ok(dra_reader_create(check_device(1, "ref"), &module, &r, &err), &err);
    expect_ok(dra_weights_bind(weights, r, &err), &err);
    for (int64_t chunk = 1; chunk <= 3; chunk += 2) {
        expect_ok(dra_states_create(check_device(1, "ref"), dra_model_state(model), 1, &s, &err),
                  &err);
        for (int64_t t = 0; t < 3; t += chunk) {
            const dra_named in = {"ids", ids + t, (size_t)chunk * sizeof *ids};
            expect_ok(dra_reader_read(r, s, chunk, NULL, 1, &in, &err), &err);
        }
        const dra_real *y = dra_reader_result(r, "logits");
        for (int i = 0; i < 256; i++) assert_true(fabs((double)y[i] - (double)should[i]) <= tol);
        dra_states_destroy(s);
    }
    dra_reader_destroy(r);
    dra_weights_destroy(weights);
    dra_model_destroy(model);
}

static void the_tiny_model_in_fp32(void **unused)
{
    the_tiny_model("tiny-rwkv-4v0-660K-FP32.bin", "expected-logits-4v0-660K.bin", 1e-5);
    the_tiny_model("tiny-rwkv-5v2-730K-FP32.bin", "expected-logits-5v2-730K.bin", 1e-5);
}

static void the_tiny_model_in_fp16(void **unused)
{
    the_tiny_model("tiny-rwkv-4v0-660K-FP16.bin", "expected-logits-4v0-660K.bin", 2e-3);
}

typedef struct damage {
    size_t      at; /* a u32 of the file */
    uint32_t    value;
    const char *text;
} damage;

static void damaged_rwkv_cpp_files(void **unused)
{
    static const damage rows[] = {
        {4, 99, ": byte 0: the version is 99, expected 100 or 101"},
        {12, 0, ": byte 0: a size is 0, expected 1 to 1048576"},
        {20, 5,
         ": byte 0: the dtype is 5, expected 0 (FP32), 1 (FP16), 2 (Q4_0), 3 (Q4_1), 7 (Q5_0), "
         "8 (Q5_1) or 9 (Q8_0)"},
        {24, 4, ": byte 24: the number of axes is 4, expected 1 to 3"},
        {28, 0, ": byte 24: the length of a name is 0, expected 1 to 256"},
        {32, 10,
         ": byte 24: the dtype is 10, expected 0 (FP32), 1 (FP16), 2 (Q4_0), 3 (Q4_1), 7 (Q5_0), "
         "8 (Q5_1) or 9 (Q8_0)"},
        {32, 2, ": byte 55: the last axis of a quantised tensor is 8, expected a multiple of 32"},
        {36, 0, ": byte 36: a size is 0, expected 1 to 1048576"},
    };
    dra_error          err = {0};
    char              *file, text[DRA_ERROR_TEXT];
    size_t             bytes;
    dra_tensor_source *o;
    save_both();
    unlink(in_folder("good.bin"));
    expect_ok(to_cpp("rwkv", "good.bin", DRA_F32, &err), &err);
    expect_ok(dra_file_read(in_folder("good.bin"), 1 << 20, &file, &bytes, &err), &err);
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint32_t before;
        memcpy(&before, file + rows[i].at, sizeof before);
        memcpy(file + rows[i].at, &rows[i].value, sizeof before);
        put_file("bad.bin", file, bytes);
        assert_int_equal(dra_tensor_source_open(in_folder("bad.bin"), &o, &err), DRA_ERR_FORMAT);
        check_error(&err, DRA_ERR_FORMAT, "bad.bin", rows[i].text);
        memcpy(file + rows[i].at, &before, sizeof before);
    }
    const uint32_t layers = 1 << 20; /* which must not take the time of a million layers */
    memcpy(file + 16, &layers, sizeof layers);
    put_file("bad.bin", file, bytes);
    CHECK_CONFIG(c);
    assert_int_equal(dra_folder_config(in_folder("bad.bin"), &c, &err), DRA_ERR_VALUE);
    check_error(&err, DRA_ERR_VALUE, "bad.bin", ": 60 tensors, expected those of 1048576 layers");
    memcpy(file + 16, &(uint32_t){3}, sizeof layers);
    for (size_t n = 4; n < bytes; n += n < 200 ? 1 : 97) { /* cut anywhere */
        put_file("bad.bin", file, n);
        dra_model   *m;
        dra_weights *w;
        assert_int_not_equal(dra_folder_load(in_folder("bad.bin"), &m, &w, &err), DRA_OK);
        snprintf(text, sizeof text, "%s", in_folder("bad.bin"));
        assert_memory_equal(err.text, text, strlen(text));
    }
    free(file);
}

/* ---- shards ---------------------------------------------------------------------------------- */

static void save_shards(const char *name, const char *index)
{
    fixture   f;
    dra_error err = {0};
    char      file[64];
    fixture_make(&f, gpt2_rows, 2, "transformer.", "lm_head.weight");
    fixture_folder(name, gpt2_config);
    snprintf(file, sizeof file, "%s/a.safetensors", name);
    expect_ok(dra_tensors_write(in_folder(file), f.item, 10, NULL, 0, &err), &err);
    snprintf(file, sizeof file, "%s/b.safetensors", name);
    expect_ok(dra_tensors_write(in_folder(file), f.item + 10, (size_t)f.n - 10, NULL, 0, &err),
              &err);
    char  *text = calloc(1, 1 << 14);
    size_t n = 0;
    for (int i = 0; i < f.n; i++)
        n += (size_t)snprintf(text + n, (1 << 14) - n, "%s\"%s\": \"%s.safetensors\"",
                              i ? ", " : "{\"metadata\": {}, \"weight_map\": {", f.item[i].name,
                              i < 10 ? "a" : "b");
    snprintf(text + n, (1 << 14) - n, "}}");
    snprintf(file, sizeof file, "%s/model.safetensors.index.json", name);
    put_file(file, index ? index : text, strlen(index ? index : text));
    free(text);
    fixture_free(&f);
}

static void shards_are_one(void **unused)
{
    loaded a, b;
    save_both();
    save_shards("shards", NULL);
    load_folder(&a, "gpt2");
    load_folder(&b, "shards");
    load_read(&a, T);
    load_read(&b, T);
    check_reals(a.logits, b.logits, sizeof a.logits);
    load_free(&a);
    load_free(&b);
}

/* In shards of at most 1000 bytes, but for tensors that are larger themselves. */
static void shards_are_written(void **unused)
{
    static const int64_t sizes[] = {1000 * sizeof(dra_real) / 4, 1, 1 << 20};
    loaded               a, b;
    dra_error            err = {0};
    save_both();
    load_folder(&a, "gpt2");
    load_read(&a, T);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char                          name[64], *text;
        size_t                        bytes;
        const dra_format_kind         format = i ? DRA_FORMAT_GPT2 : DRA_FORMAT_DRA;
        CHECK_OWNED dra_model_config *own = config_of("gpt2", format);
        snprintf(name, sizeof name, "written%zu", i);
        const dra_convert_config how = {.from = in_folder("gpt2"),
                                        .to = in_folder(name),
                                        .config = own,
                                        .shard_bytes = (size_t)sizes[i]};
        expect_ok(dra_convert(&how, &err), &err);
        load_folder(&b, name);
        load_read(&b, T);
        check_reals(a.logits, b.logits, sizeof a.logits);
        load_free(&b);
        snprintf(name, sizeof name, "written%zu/model.safetensors", i);
        assert_int_equal(access(in_folder(name), F_OK) == 0, i == 2); /* all in one: no index */
        snprintf(name, sizeof name, "written%zu/model.safetensors.index.json", i);
        assert_int_equal(access(in_folder(name), F_OK) == 0, i != 2);
        if (i != 1) continue;
        const size_t all = sizeof(dra_real) * (size_t)dra_model_param_count(a.model);
        char         total[64];
        snprintf(total, sizeof total, "\"total_size\": %zu", all);
        expect_ok(dra_file_read(in_folder(name), 1 << 16, &text, &bytes, &err), &err);
        assert_non_null(strstr(text, total));
        assert_non_null(strstr(text, "\"transformer.ln_f.bias\": "
                                     "\"model-00028-of-00028.safetensors\""));
        free(text);
    }
    load_free(&a);
}

static void wrong_indices_are_named(void **unused)
{
    static const char *const rows[][2] = {
        {"{}", ": weight_map is no object"},
        {"{\"weight_map\": {\"x\": \"../a.safetensors\"}}",
         ": tensor 'x': its shard is '../a.safetensors', expected the name of a file next to the "
         "index"},
        {"{\"weight_map\": {\"x\": 3}}",
         ": tensor 'x': its shard is 'no text', expected the name of a file next to the index"},
        {"{\"weight_map\": {\"x\": \"a.safetensors\"}}",
         ": tensor 'x' is not in shard a.safetensors"},
    };
    dra_tensor_source *o;
    dra_error          err = {0};
    for (size_t i = 0; i < COUNT(rows); i++) {
        save_shards("index", rows[i][0]);
        assert_int_not_equal(dra_tensor_source_open(in_folder("index"), &o, &err), DRA_OK);
        check_error(&err, err.code, "index/model.safetensors.index.json", rows[i][1]);
    }
    save_shards("index", "{\"weight_map\": {\"x\": \"c.safetensors\"}}");
    assert_int_equal(dra_tensor_source_open(in_folder("index"), &o, &err), DRA_ERR_FILE);
    assert_non_null(strstr(err.text, "index/c.safetensors: cannot open it"));
}

/* ---- grafts ---------------------------------------------------------------------------------- */

/* With a second memory of any kind that has no say yet, logits are those of before, to the bit. */
static void surgery_changes_nothing_yet(void **unused)
{
    static const char *const kinds[] = {"gru", "ema", "ssm", "lstm", "moment", "delta", "slots"};
    loaded                   a, b;
    dra_error                err = {0};
    save_both();
    load_folder(&a, "gpt2");
    load_read(&a, T);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        table                         t = {0};
        CHECK_OWNED dra_model_config *c = config_of("gpt2", DRA_FORMAT_GPT2);
        expect_ok(dra_model_config_graft(c, kinds[i], &err), &err);
        convert("gpt2", kinds[i], c, &t);
        load_folder(&b, kinds[i]);
        const int blend = dra_specs_find(dra_model_params(b.model), "blend");
        assert_true(blend >= 0 && dra_weights_at(b.weights, blend)[0] == 1);
        assert_true(t.drawn > 0);
        for (int64_t chunk = 1; chunk <= T; chunk += T - 1) {
            load_read(&b, chunk);
            check_reals(a.logits, b.logits, sizeof a.logits);
        }
        load_free(&b);
    }
    load_free(&a);
    CHECK_OWNED dra_model_config *c = config_of("gpt2", DRA_FORMAT_GPT2);
    assert_int_equal(dra_model_config_graft(c, "grv", &err), DRA_ERR_NAME);
    assert_string_equal(err.text, "no memory is called grv; did you mean gru?");
}

/* GPT-2 with attention over the states of GRU cells, one for keys and one for values in each layer,
 * gamma = 0.9: the numbers of a reference. The cells are further tensors of the formula. */
static const double demo_last[V] = {-0.04666123, -0.43720508, -0.22993145, -0.35699089, -1.06103537,
                                    -0.61567481, 0.07951433,  -0.69247655, -1.89638381, -0.80187911,
                                    -0.09350999, 0.35052120,  1.76578898};

static const struct {
    const char *name;
    double      value[8];
} demo_memory[] = {
    {"layers.1.mixer.h_k",
     {-0.19385363, -0.13223930, 0.02675144, 0.09922353, 0.00885999, 0.01033441, 0.04733165,
      -0.09676212}},
    {"layers.1.mixer.h_v",
     {0.19092972, 0.14564599, 0.17498590, 0.05111712, 0.04268195, -0.17366906, 0.05671788,
      0.23028573}},
};

static void set_cells(loaded *m)
{
    static const char *const names[] = {"k_W_ih", "k_W_hh", "k_b_ih", "k_b_hh",
                                        "v_W_ih", "v_W_hh", "v_b_ih", "v_b_hh"};
    const dra_specs         *params = dra_model_params(m->model);
    char                     name[64];
    for (int k = 0; k < 16; k++) {
        snprintf(name, sizeof name, "layers.%d.mixer.%s", k / 8, names[k % 8]);
        const int     i = dra_specs_find(params, name);
        const int64_t n = dra_shape_count(&dra_specs_at(params, i)->shape);
        dra_real     *w = dra_weights_edit(m->weights, i);
        for (int64_t e = 0; e < n; e++)
            w[e] = (dra_real)fixture_number(29 + k, e, k % 4 < 2 ? MATRIX : BIAS);
    }
}

static void gpt2_with_recurrent_attention(void **unused)
{
    loaded    m;
    table     t = {0};
    dra_real  h[8];
    dra_error err = {0};
    save_both();
    CHECK_OWNED dra_model_config *c = config_of("gpt2", DRA_FORMAT_DRA);
    check_mixers(c)->a = (dra_memory_config){
        .memory = "gru", .gamma = {.start = DRA_GAMMA_CONST, .value = 0.9, .learn = DRA_OFF}};
    convert("gpt2", "demo", c, &t);
    load_folder(&m, "demo");
    set_cells(&m);
    for (int64_t chunk = 1; chunk <= T; chunk += T - 1) {
        load_read(&m, chunk);
        check_close("last", V, m.logits + (T - 1) * V, demo_last, LOADED_TOL);
        for (int i = 0; i < 2; i++) {
            const int at = dra_specs_find(dra_model_state(m.model), demo_memory[i].name);
            expect_ok(dra_states_read(m.states, at, 0, h, 8, &err), &err);
            check_close(demo_memory[i].name, 8, h, demo_memory[i].value, 10 * LOADED_TOL);
        }
    }
    load_free(&m);
}

static void other_vocabularies_keep_their_tokens(void **unused)
{
    loaded        a, b;
    const int64_t sizes[] = {23, 11};
    save_both();
    load_folder(&a, "rwkv");
    for (int i = 0; i < 2; i++) {
        table                         t = {0};
        CHECK_OWNED dra_model_config *c = config_of("rwkv", DRA_FORMAT_RWKV);
        c->vocab = sizes[i];
        convert("rwkv", i ? "less" : "more", c, &t);
        load_folder(&b, i ? "less" : "more");
        for (int k = 0; k < 2; k++) {
            const char *name = k ? "head" : "embedding";
            const int   x = dra_specs_find(dra_model_params(a.model), name);
            const int   y = dra_specs_find(dra_model_params(b.model), name);
            assert_memory_equal(dra_weights_at(a.weights, x), dra_weights_at(b.weights, y),
                                (size_t)(i ? 11 : 13) * 8 * sizeof(dra_real));
        }
        load_free(&b);
    }
    load_free(&a);
}

/* ---- nothing is left ------------------------------------------------------------------------- */

static int entries(void)
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    int            n = 0;
    while ((e = readdir(d))) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void a_full_disk_leaves_no_folder(void **unused)
{
    struct rlimit old, small;
    dra_error     err = {0};
    save_both();
    const dra_convert_config how = {.from = in_folder("gpt2"), .to = in_folder("never")};
    const dra_convert_config shards = {.from = how.from, .to = how.to, .shard_bytes = 1};
    const int                before = entries();
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 1500; /* the config and some tensors fit, the weights do not */
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const dra_status st = dra_convert(&how, &err), other = dra_convert(&shards, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_int_equal(st, DRA_ERR_FILE);
    assert_int_equal(other, DRA_ERR_FILE);
    assert_int_equal(entries(), before);
}

static void what_is_there_stays(void **unused)
{
    dra_error err = {0};
    save_both();
    const dra_convert_config how = {.from = in_folder("gpt2"), .to = in_folder("rwkv")};
    assert_int_equal(dra_convert(&how, &err), DRA_ERR_FILE);
    check_error(&err, DRA_ERR_FILE, "rwkv", ": is there already, expected a new name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_there_and_back),
        cmocka_unit_test(formats_have_names),
        cmocka_unit_test(a_dry_run_writes_nothing),
        cmocka_unit_test(rwkv_cpp_there_and_back),
        cmocka_unit_test(the_tiny_model_in_fp32),
        cmocka_unit_test(the_tiny_model_in_fp16),
        cmocka_unit_test(damaged_rwkv_cpp_files),
        cmocka_unit_test(shards_are_one),
        cmocka_unit_test(shards_are_written),
        cmocka_unit_test(wrong_indices_are_named),
        cmocka_unit_test(surgery_changes_nothing_yet),
        cmocka_unit_test(gpt2_with_recurrent_attention),
        cmocka_unit_test(other_vocabularies_keep_their_tokens),
        cmocka_unit_test(a_full_disk_leaves_no_folder),
        cmocka_unit_test(what_is_there_stays),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = cmocka_run_group_tests_name("convert", tests, NULL, NULL);
    fixture_remove();
    return failed;
}
