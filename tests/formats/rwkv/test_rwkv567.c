/* RWKV 5.0, 5.1, 5.2, 6 and 7 against numbers of a float64 implementation: logits, states, loss and
 * gradients of original checkpoints; files of rwkv.cpp and folders of flash-linear-attention; what
 * goes from one to the other. */
#include "formats/format.h"
#include "rwkv567.h"

/* ---- original checkpoints -------------------------------------------------------------------- */

typedef struct original {
    const char  *name;
    int          version;
    int64_t      depth;
    bool         ready;
    loaded       m;
    dra_tensors *expected;
} original;

static original open_original(const char *name, int version)
{
    original  o = {.name = name, .version = version};
    char      path[600];
    dra_error err = {0};
    FILE     *f;
    snprintf(path, sizeof path, "rwkv567/%s.pth", name);
    f = shared_file(path);
    if (!f) return o;
    fclose(f);
    snprintf(path, sizeof path, "%s/rwkv567/%s.pth", shared_data(), name);
    expect_ok(dra_folder_load(path, &o.m.model, &o.m.weights, &err), &err);
    snprintf(path, sizeof path, "%s/rwkv567/%s.expected.safetensors", shared_data(), name);
    expect_ok(dra_tensors_open(path, &o.expected, &err), &err);
    o.depth = dra_model_config_of(o.m.model)->depth;
    o.ready = true;
    assert_int_equal(dra_model_config_rwkv(dra_model_config_of(o.m.model)), version);
    return o;
}

static void close_original(original *o)
{
    dra_tensors_close(o->expected);
    load_free(&o->m);
}

/* State `name` of all layers, as the file has it: M of version 7 is (value, key). */
static void expect_state(const original *o, const dra_states *s, int64_t row, const char *file,
                         const char *name)
{
    size_t          n;
    char            text[64];
    dra_real       *all = numbers(o->expected, file, &n), one[2 * 16 * 16], transposed[2 * 16 * 16];
    const size_t    each = n / (size_t)(ROWS * o->depth);
    const dra_real *want = all + (size_t)(row * o->depth) * each;
    for (int64_t l = 0; l < o->depth; l++, want += each) {
        dra_error err = {0};
        snprintf(text, sizeof text, "layers.%d.%s", (int)l, name);
        const int at = dra_specs_find(dra_model_state(o->m.model), text);
        expect_ok(dra_states_read(s, at, row, one, each, &err), &err);
        const bool turn = o->version == 7 && each == sizeof one / sizeof *one;
        for (size_t i = 0; i < each; i++)
            transposed[turn ? i / 256 * 256 + i % 16 * 16 + i / 16 % 16 : i] = one[i];
        expect_near(text, each, transposed, want, LOGITS_TOL);
    }
    free(all);
}

static void expect_states(const original *o, const dra_states *s, const char *prefix)
{
    static const char *const names[][2] = {{"M", "mixer.S"}, {"att", "mixer.x"}, {"ffn", "ff.x"}};
    char                     file[32];
    for (int64_t row = 0; row < ROWS; row++)
        for (size_t i = 0; i < COUNT(names); i++) {
            snprintf(file, sizeof file, "%s.%s", prefix, names[i][0]);
            expect_state(o, s, row, file, names[i][1]);
        }
}

/* Whole, by 33 and 37 tokens, by all kinds of parts, token by token. */
static void logits_and_states(const original *o)
{
    static const int64_t parts[] = {LENGTH, 33, 1, 5, 16, 64};
    int32_t              ids[ROWS * LENGTH];
    size_t               n;
    dra_real            *want = numbers(o->expected, "logits", &n);
    dra_real            *logits = calloc(n, sizeof *logits);
    assert_non_null(logits);
    ids_of(o->expected, 0, LENGTH, ids);
    for (size_t i = 0; i < COUNT(parts); i++) {
        dra_states *s = open_states(&o->m, ROWS);
        read_rows(&o->m, s, ids, ROWS, LENGTH, parts[i], logits);
        expect_near(o->name, n, logits, want, LOGITS_TOL);
        expect_states(o, s, "state");
        dra_states_destroy(s);
    }
    dra_states *s = open_states(&o->m, ROWS);
    ids_of(o->expected, 0, 33, ids);
    read_rows(&o->m, s, ids, ROWS, 33, 33, logits);
    expect_states(o, s, "state33");
    dra_states_destroy(s);
    free(logits);
    free(want);
}

/* A row of a batch is the row alone. */
static void rows_alone(const original *o)
{
    int32_t   ids[ROWS * LENGTH];
    size_t    n;
    dra_real *want = numbers(o->expected, "logits", &n);
    dra_real *logits = calloc(n, sizeof *logits);
    assert_non_null(logits);
    ids_of(o->expected, 0, LENGTH, ids);
    for (int64_t r = 0; r < ROWS; r++) {
        dra_states *s = open_states(&o->m, 1);
        read_rows(&o->m, s, ids + r * LENGTH, 1, LENGTH, LENGTH, logits);
        expect_near(o->name, LENGTH * WORDS, logits, want + r * LENGTH * WORDS, LOGITS_TOL);
        dra_states_destroy(s);
    }
    free(logits);
    free(want);
}

/* The gradient of parameter i as the checkpoint's tensors have it. */
static void expect_gradient(const original *o, const dra_name_rules *rules, const dra_spec *p,
                            const dra_real *d)
{
    int64_t              l = 0;
    const dra_name_rule *r = dra_name_rules_find(rules, p->name, &l);
    char                 name[DRA_TENSOR_NAME + 8] = "grad.";
    dra_error            err = {0};
    assert_non_null(r);
    dra_pattern_fill("grad.", r->theirs, l, name);
    const dra_tensor_info *info = dra_tensors_find(o->expected, name);
    if (!info) fail_msg("%s: %s is not there", p->name, name);
    const dra_tensor_source_entry e = {info, "expected"};
    const size_t                  n = (size_t)dra_shape_count(&p->shape);
    dra_real                     *want = malloc(n * sizeof *want);
    assert_non_null(want);
    expect_ok(dra_name_rule_read(&e, r, p, want, &err), &err);
    expect_near(p->name, n, d, want, GRADS_TOL);
    free(want);
}

static void loss_and_gradients(const original *o)
{
    int32_t                    ids[ROWS * LENGTH], targets[ROWS * LENGTH];
    const dra_gradients_config config = {.model = o->m.model,
                                         .device = check_device(2, dra_device_level_at(0))};
    const dra_microbatch       batch = {.B = ROWS, .T = LENGTH, .ids = ids, .targets = targets};
    dra_microbatch_result      result;
    dra_gradients             *l = NULL;
    dra_name_rules             rules;
    dra_error                  err = {0};
    size_t                     n;
    dra_real                  *loss = numbers(o->expected, "loss", &n);
    ids_of(o->expected, 0, LENGTH, ids);
    ids_of(o->expected, 1, LENGTH, targets);
    expect_ok(dra_gradients_create(&config, &l, &err), &err);
    expect_ok(dra_gradients_bind(l, o->m.weights, &err), &err);
    expect_ok(dra_gradients_run(l, &batch, &result, &err), &err);
    assert_true(fabs(result.loss - (double)loss[0]) < LOGITS_TOL * (double)loss[0]);
    expect_ok(
        dra_name_rules_create(dra_model_config_of(o->m.model), DRA_DIALECT_ORIGINAL, &rules, &err),
        &err);
    for (int i = 0; i < dra_specs_count(dra_model_params(o->m.model)); i++)
        expect_gradient(o, &rules, dra_specs_at(dra_model_params(o->m.model), i),
                        dra_gradients_of(l, i));
    dra_name_rules_free(&rules);
    dra_gradients_destroy(l);
    free(loss);
}

typedef struct original_row {
    const char *name;
    int         version;
} original_row;

static void an_original(void **row)
{
    const original_row *r = *row;
    original            o = open_original(r->name, r->version);
    if (!o.ready) skip();
    logits_and_states(&o);
    rows_alone(&o);
    loss_and_gradients(&o);
    close_original(&o);
}

/* ---- rwkv.cpp and folders, which are part of the repository ---------------------------------- */

static void folders_of_fla(void **unused)
{
    expect_logits(DATA "fla-rwkv6", DATA "fla.expected.safetensors", "fla-rwkv6", LOGITS_TOL);
    expect_logits(DATA "fla-rwkv7", DATA "fla.expected.safetensors", "fla-rwkv7", LOGITS_TOL);
}

static void files_of_rwkv_cpp(void **unused)
{
    static const char expected[] = DATA "rwkv-cpp.expected.safetensors";
    expect_logits(DATA "v5.0-FP16.bin", expected, "v5.0-FP16.bin", LOGITS_TOL);
    expect_logits(DATA "v7.0-FP16.bin", expected, "v7.0-FP16.bin", LOGITS_TOL);
}

/* From rwkv.cpp into a folder and back: the same bytes, in the order of dra's own lists. */
static void through_folders(void **unused)
{
    static const struct {
        const char     *from, *file;
        dra_format_kind folder, cpp;
        double          eps, cpp_eps;
        dra_dtype       dtype;
    } rows[] = {
        {"v7.0-FP16.bin", "7.bin", DRA_FORMAT_RWKV7, DRA_FORMAT_RWKV7, 16e-5, 64e-5, DRA_F16},
        {"v5.0-FP16.bin", "5.bin", DRA_FORMAT_DRA, DRA_FORMAT_RWKV5, 0, 1e-5, DRA_F16},
        {"fla-rwkv6", "6.bin", DRA_FORMAT_FLA6, DRA_FORMAT_RWKV6, 1e-5, 64e-5, DRA_F32}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char      path[300], there[32], again[32], a[600], b[600];
        dra_error err = {0};
        snprintf(path, sizeof path, DATA "%s", rows[i].from);
        snprintf(there, sizeof there, "there%zu", i);
        snprintf(again, sizeof again, "again%zu", i);
        expect_ok(
            convert_as(path, in_folder(there), rows[i].folder, rows[i].eps, DRA_F32, false, &err),
            &err);
        expect_ok(convert_as(in_folder(there), in_folder(rows[i].file), rows[i].cpp,
                             rows[i].cpp_eps, rows[i].dtype, true, &err),
                  &err);
        expect_ok(convert_as(in_folder(rows[i].file), in_folder(again), rows[i].folder, rows[i].eps,
                             DRA_F32, false, &err),
                  &err);
        snprintf(a, sizeof a, "%s/model.safetensors", in_folder(there));
        snprintf(b, sizeof b, "%s/model.safetensors", in_folder(again));
        expect_same_file(a, b);
    }
}

/* Checkpoints as rwkv.cpp's own converter writes them, byte for byte. */
static void as_their_converter(void **unused)
{
    static const struct {
        const char     *from, *same;
        dra_format_kind format;
        double          eps;
        dra_dtype       dtype;
    } rows[] = {{"v5.0.pth", "v5.0-FP16.bin", DRA_FORMAT_RWKV5, 1e-5, DRA_F16},
                {"v6.0.pth", "v6.0-FP32.bin", DRA_FORMAT_RWKV6, 0, DRA_F32},
                {"v7.0.pth", "v7.0-FP16.bin", DRA_FORMAT_RWKV7, 0, DRA_F16}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char      from[600], same[600];
        dra_error err = {0};
        snprintf(same, sizeof same, "rwkv567/%s", rows[i].same);
        FILE *f = shared_file(same);
        if (!f) skip();
        fclose(f);
        snprintf(from, sizeof from, "%s/rwkv567/%s", shared_data(), rows[i].from);
        snprintf(same, sizeof same, "%s/rwkv567/%s", shared_data(), rows[i].same);
        expect_ok(convert_as(from, in_folder(rows[i].same), rows[i].format, rows[i].eps,
                             rows[i].dtype, true, &err),
                  &err);
        expect_same_file(in_folder(rows[i].same), same);
    }
}

/* Tensor for tensor what flash-linear-attention has. */
static void as_fla_has_it(void **unused)
{
    static const struct {
        const char     *from, *same;
        dra_format_kind format;
        double          eps;
    } rows[] = {{"v6.0.pth", "fla-rwkv6", DRA_FORMAT_FLA6, 1e-5},
                {"v7.0.pth", "fla-rwkv7", DRA_FORMAT_RWKV7, 16e-5}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char         path[600], file[64];
        dra_error    err = {0};
        dra_tensors *a, *b;
        snprintf(path, sizeof path, "rwkv567/%s", rows[i].from);
        FILE *f = shared_file(path);
        if (!f) skip();
        fclose(f);
        snprintf(path, sizeof path, "%s/rwkv567/%s", shared_data(), rows[i].from);
        expect_ok(convert_as(path, in_folder(rows[i].same), rows[i].format, rows[i].eps, DRA_F32,
                             false, &err),
                  &err);
        snprintf(file, sizeof file, "%s/model.safetensors", rows[i].same);
        expect_ok(dra_tensors_open(in_folder(file), &a, &err), &err);
        snprintf(path, sizeof path, DATA "%s/model.safetensors", rows[i].same);
        expect_ok(dra_tensors_open(path, &b, &err), &err);
        assert_int_equal(dra_tensors_count(a), dra_tensors_count(b));
        for (size_t k = 0; k < dra_tensors_count(b); k++) {
            const char *name = dra_tensors_at(b, k)->name;
            size_t      n, m;
            dra_real   *y = numbers(b, name, &m), *x = numbers(a, name, &n);
            assert_int_equal(n, m);
            assert_true(
                dra_shape_equal(&dra_tensors_find(a, name)->shape, &dra_tensors_at(b, k)->shape));
            expect_near(name, n, x, y, 0);
            free(x);
            free(y);
        }
        dra_tensors_close(a);
        dra_tensors_close(b);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void what_files_cannot_hold(void **unused)
{
    dra_error err = {0};
    assert_int_not_equal(convert_as(DATA "v7.0-FP16.bin", in_folder("never"), DRA_FORMAT_RWKV7, 0,
                                    DRA_F32, false, &err),
                         DRA_OK);
    assert_non_null(strstr(err.text, "a rwkv7 folder cannot hold mixer.head_norm_eps"));
    assert_int_not_equal(convert_as(DATA "v5.0-FP16.bin", in_folder("never"), DRA_FORMAT_RWKV5, 0,
                                    DRA_F32, false, &err),
                         DRA_OK);
    assert_non_null(strstr(err.text, "a rwkv5 folder cannot hold mixer."));
    assert_int_not_equal(
        convert_as(DATA "fla-rwkv7", in_folder("never"), DRA_FORMAT_RWKV7, 0, DRA_F32, true, &err),
        DRA_OK);
    assert_non_null(strstr(err.text, "a file of rwkv.cpp cannot hold mixer.head_norm_eps"));
    assert_int_not_equal(
        convert_as(DATA "fla-rwkv7", in_folder("never"), DRA_FORMAT_RWKV6, 0, DRA_F32, true, &err),
        DRA_OK);
    assert_non_null(strstr(err.text, "files of rwkv.cpp hold RWKV only"));
}

/* A tensor of a file under another name, or with one row less, is named. */
static void renamed_and_cut_tensors(void **unused)
{
    static const char *const parts[] = {"att.r_k",         "att.w1",       "ffn.key.weight",
                                        "att.ln_x.weight", "att.x_rwkvag", "ln_out.weight"};
    char                    *file;
    size_t                   bytes;
    for (size_t i = 0; i < COUNT(parts); i++) {
        dra_error    err = {0};
        dra_model   *m;
        dra_weights *w;
        CHECK_CONFIG(c);
        expect_ok(dra_file_read(DATA "v7.0-FP16.bin", 1 << 24, &file, &bytes, &err), &err);
        char *last = NULL; /* of layer 2 or of the model */
        for (size_t k = 0; k + strlen(parts[i]) < bytes; k++)
            if (memcmp(file + k, parts[i], strlen(parts[i])) == 0) last = file + k;
        assert_non_null(last);
        last[strlen(parts[i]) - 1] = '?';
        put_file("renamed.bin", file, bytes);
        free(file);
        dra_status st = dra_folder_config(in_folder("renamed.bin"), &c, &err);
        if (st == DRA_OK) st = dra_folder_load(in_folder("renamed.bin"), &m, &w, &err);
        assert_int_equal(st, DRA_ERR_NAME);
        assert_non_null(strstr(err.text, parts[i]));
        assert_non_null(strstr(err.text, " is missing"));
    }
}

/* Experiments of the trainers. */
static void variants_are_named(void **unused)
{
    static const char *const rows[][2] = {{"blocks.0.att.gate_w1", "6a"},
                                          {"blocks.0.att.time_maa_rkvw_w1", "6b"},
                                          {"blocks.0.ffn.s_emb.weight", "7a"},
                                          {"blocks.0.ffn.s0", "7b"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        const dra_real        x[4] = {0};
        const dra_tensor_item items[] = {{"emb.weight", DRA_REAL, DRA_SHAPE(2, 2), x},
                                         {rows[i][0], DRA_REAL, DRA_SHAPE(2, 2), x}};
        dra_error             err = {0};
        CHECK_CONFIG(c);
        char text[160];
        expect_ok(dra_tensors_write(in_folder("variant.safetensors"), items, 2, NULL, 0, &err),
                  &err);
        assert_int_equal(dra_folder_config(in_folder("variant.safetensors"), &c, &err),
                         DRA_ERR_VALUE);
        snprintf(text, sizeof text, "tensor '%s' is of RWKV %s, which is not supported", rows[i][0],
                 rows[i][1]);
        if (!strstr(err.text, text)) fail_msg("%s", err.text);
    }
}

static void configs_that_are_refused(void **unused)
{
    static const struct {
        const char *json, *text;
    } rows[] = {
        {"\"rwkv6\", \"architectures\": [\"RWKV6ForCausalLM\"], \"attn\": {\"layers\": [1]}",
         "c: attn is {\"layers\":[1]}, expected null: no layers of attention"},
        {"\"rwkv6\", \"norm_first\": true, \"expand_k\": 0.3",
         "c: expand_k is 0.29999999999999999, expected a factor"},
        {"\"rwkv6\", \"norm_first\": true, \"hidden_act\": \"relu\"",
         "c: hidden_act is \"relu\", expected sqrelu"},
        {"\"rwkv7\", \"value_dim\": [2048, 1024]", "c: value_dim is [2048,1024], expected"},
        {"\"rwkv7\", \"head_dim\": 60", "c: head_dim is 60, expected a divisor of hidden_size"},
        {"\"rwkv5\", \"head_size\": 0", "c: head_size is 0, expected a divisor"},
        {"\"rwkv5\", \"head_size_divisor\": -1", "c: head_size_divisor is -1, expected a number"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[300];
        CHECK_CONFIG(c);
        dra_error err = {0};
        snprintf(text, sizeof text, "{\"model_type\": %s}", rows[i].json);
        assert_int_equal(dra_model_config_parse("c", text, strlen(text), &c, &err), DRA_ERR_VALUE);
        if (!strstr(err.text, rows[i].text)) fail_msg("%s", err.text);
    }
}

/* Two classes of one name: the keys of each, and what they are by default. */
static void two_kinds_of_rwkv6(void **unused)
{
    static const char *const texts[] = {
        "{\"model_type\": \"rwkv6\", \"architectures\": [\"Rwkv6ForCausalLM\"]}",
        "{\"model_type\": \"rwkv6\"}",
        "{\"model_type\": \"rwkv6\", \"architectures\": [\"RWKV6ForCausalLM\"]}",
        "{\"model_type\": \"rwkv6\", \"proj_low_rank_dim\": 32}"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        CHECK_CONFIG(c);
        dra_error err = {0};
        expect_ok(dra_model_config_parse("c", texts[i], strlen(texts[i]), &c, &err), &err);
        assert_int_equal(c->format, i < 2 ? DRA_FORMAT_RWKV6 : DRA_FORMAT_FLA6);
        assert_int_equal(c->dim, i < 2 ? 768 : 2048);
        assert_int_equal(c->heads, i < 2 ? 12 : 4);
        assert_int_equal(c->key_dim, i < 2 ? 64 : 256);
        assert_int_equal(c->ff.dim, i < 2 ? 2688 : 7168);
    }
}

/* One tensor for all mixes, as older folders have it. */
static void older_folders_of_fla(void **unused)
{
    enum { MOST = 120 };
    static dra_tensor_item items[MOST];
    static dra_real        mixes[3][6 * WIDTH];
    static char            names[3][48];
    dra_tensors           *t;
    dra_error              err = {0};
    char                  *config;
    size_t                 bytes;
    int                    n = 0;
    expect_ok(dra_tensors_open(DATA "fla-rwkv7/model.safetensors", &t, &err), &err);
    for (size_t i = 0; i < dra_tensors_count(t); i++) {
        const dra_tensor_info *info = dra_tensors_at(t, i);
        const char            *at = strstr(info->name, ".attn.x_"), *order = "rwkvag";
        const int              l = at ? info->name[strlen("model.layers.")] - '0' : 0;
        if (at)
            assert_true(dra_tensor_copy(info, 0, WIDTH, DRA_REAL,
                                        mixes[l] + (strchr(order, at[8]) - order) * WIDTH));
        else
            items[n++] = (dra_tensor_item){info->name, info->dtype, info->shape, info->data};
    }
    for (int l = 0; l < 3; l++) {
        snprintf(names[l], sizeof names[l], "model.layers.%d.attn.x_x", l);
        items[n++] = (dra_tensor_item){names[l], DRA_REAL, DRA_SHAPE(6, WIDTH), mixes[l]};
    }
    expect_ok(dra_file_read(DATA "fla-rwkv7/config.json", 1 << 16, &config, &bytes, &err), &err);
    fixture_folder("older", config);
    expect_ok(
        dra_tensors_write(in_folder("older/model.safetensors"), items, (size_t)n, NULL, 0, &err),
        &err);
    free(config);
    dra_tensors_close(t);
    expect_logits(in_folder("older"), DATA "fla.expected.safetensors", "fla-rwkv7", LOGITS_TOL);
}

/* Version 5.0 and 5.1 have a decay for each head: as many as channels are heads of one channel. */
static void heads_of_one_channel(void **unused)
{
    enum { WIDE = 4, TOKENS = 5 };
    static const char *const vectors[] = {
        "ln0.weight", "ln0.bias",        "ln1.weight",    "ln1.bias",       "ln2.weight",
        "ln2.bias",   "att.ln_x.weight", "att.ln_x.bias", "att.time_decay", "att.time_first"};
    static const char *const mixes[] = {"att.time_mix_k", "att.time_mix_v", "att.time_mix_r",
                                        "ffn.time_mix_k", "ffn.time_mix_r"};
    static const char *const squares[] = {"att.key",    "att.value", "att.receptance",
                                          "att.output", "ffn.key",   "ffn.receptance",
                                          "ffn.value"};
    static const dra_real    numbers[TOKENS * WIDE] = {1, 0.5, -1, 2, 0, 1};
    char                     name[30][40];
    dra_tensor_item          item[30];
    dra_model               *m;
    dra_weights             *w;
    dra_error                err = {0};
    int                      n = 0;
#define ADD(shape, ...)                                                                            \
    snprintf(name[n], sizeof name[n], __VA_ARGS__);                                                \
    item[n] = (dra_tensor_item){name[n], DRA_REAL, shape, numbers};                                \
    n++
    for (size_t i = 0; i < COUNT(vectors); i++) {
        ADD(DRA_SHAPE(WIDE), "blocks.0.%s", vectors[i]);
    }
    for (size_t i = 0; i < COUNT(mixes); i++) {
        ADD(DRA_SHAPE(1, 1, WIDE), "blocks.0.%s", mixes[i]);
    }
    for (size_t i = 0; i < COUNT(squares); i++) {
        ADD(DRA_SHAPE(WIDE, WIDE), "blocks.0.%s.weight", squares[i]);
    }
    ADD(DRA_SHAPE(WIDE), "ln_out.weight");
    ADD(DRA_SHAPE(WIDE), "ln_out.bias");
    ADD(DRA_SHAPE(TOKENS, WIDE), "emb.weight");
    ADD(DRA_SHAPE(TOKENS, WIDE), "head.weight");
#undef ADD
    expect_ok(dra_tensors_write(in_folder("scalars.pth"), item, (size_t)n, NULL, 0, &err), &err);
    expect_ok(dra_folder_load(in_folder("scalars.pth"), &m, &w, &err), &err);
    assert_int_equal(dra_model_config_of(m)->heads, WIDE);
    assert_int_equal(dra_model_config_of(m)->key_dim, 1);
    dra_weights_destroy(w);
    dra_model_destroy(m);
}

static int remove_all(void **unused)
{
    fixture_remove();
    return 0;
}

int main(void)
{
    static const original_row rows[] = {
        {"v5.0", 5}, {"v5.1", 5}, {"v5.2", 5}, {"v6.0", 6}, {"v7.0", 7}};
#define ORIGINAL(i)                                                                                \
    {                                                                                              \
        "original " #i, an_original, NULL, NULL, (void *)(uintptr_t)&rows[i]                       \
    }
    const struct CMUnitTest tests[] = {
        ORIGINAL(0),
        ORIGINAL(1),
        ORIGINAL(2),
        ORIGINAL(3),
        ORIGINAL(4),
        cmocka_unit_test(folders_of_fla),
        cmocka_unit_test(files_of_rwkv_cpp),
        cmocka_unit_test(through_folders),
        cmocka_unit_test(as_their_converter),
        cmocka_unit_test(as_fla_has_it),
        cmocka_unit_test(what_files_cannot_hold),
        cmocka_unit_test(renamed_and_cut_tensors),
        cmocka_unit_test(variants_are_named),
        cmocka_unit_test(configs_that_are_refused),
        cmocka_unit_test(two_kinds_of_rwkv6),
        cmocka_unit_test(older_folders_of_fla),
        cmocka_unit_test(heads_of_one_channel),
    };
    return cmocka_run_group_tests_name("rwkv567", tests, folder_make, remove_all);
}
