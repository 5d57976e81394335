/* RWKV 5 to 7 in files of rwkv.cpp and GGUF whose weights are quantised: logits against those of
 * weights dequantised exactly, what goes from one to the other, what quantising does. */
#include "dra/text.h"
#include "formats/tensor_source.h"
#include "rwkv567.h"

#define GGUF_DATA "tests/data/gguf/"

static const char *const files[] = {"rwkv6-Q8_0.gguf", "rwkv7-F16.gguf", "rwkv7-Q4_0.gguf"};

/* ---- rwkv.cpp -------------------------------------------------------------------------------- */

static void quantised_rwkv_cpp(void **unused)
{
    static const char *const names[] = {"v5.2-Q4_0.bin", "v6.0-Q5_1.bin", "v7.0-Q8_0.bin"};
    static const char        expected[] = DATA "rwkv-cpp.expected.safetensors";
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[200];
        snprintf(path, sizeof path, DATA "%s", names[i]);
        expect_logits(path, expected, names[i], LOGITS_TOL);
    }
}

/* Published ones. */
static void tiny_rwkv_cpp(void **unused)
{
    static const char *const names[] = {"tiny-rwkv-5v2-730K-Q5_1.bin",
                                        "tiny-rwkv-6v0-cut-Q5_1.bin"};
    static const char        expected[] = DATA "rwkv-cpp.expected.safetensors";
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[600];
        snprintf(path, sizeof path, "rwkv567/%s", names[i]);
        FILE *f = shared_file(path);
        if (!f) skip();
        fclose(f);
        snprintf(path, sizeof path, "%s/rwkv567/%s", shared_data(), names[i]);
        expect_logits(path, expected, names[i], LOGITS_TOL);
    }
}

/* Checkpoints as rwkv.cpp's own converter and quantiser write them, byte for byte. */
static void as_their_quantiser(void **unused)
{
    static const struct {
        const char     *from, *same;
        dra_format_kind format;
        dra_dtype       dtype;
    } rows[] = {{"v6.0.pth", "v6.0-Q5_1.bin", DRA_FORMAT_RWKV6, DRA_Q5_1},
                {"v7.0.pth", "v7.0-Q8_0.bin", DRA_FORMAT_RWKV7, DRA_Q8_0}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char      from[600], same[600];
        dra_error err = {0};
        snprintf(from, sizeof from, "rwkv567/%s", rows[i].from);
        FILE *f = shared_file(from);
        if (!f) skip();
        fclose(f);
        snprintf(from, sizeof from, "%s/rwkv567/%s", shared_data(), rows[i].from);
        snprintf(same, sizeof same, DATA "%s", rows[i].same);
        expect_ok(
            convert_as(from, in_folder(rows[i].same), rows[i].format, 0, rows[i].dtype, true, &err),
            &err);
        expect_same_file(in_folder(rows[i].same), same);
    }
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

static void gguf_files(void **unused)
{
    for (size_t i = 0; i < COUNT(files); i++) {
        char path[200];
        snprintf(path, sizeof path, GGUF_DATA "%s", files[i]);
        expect_logits(path, GGUF_DATA "expected.safetensors", files[i], LOGITS_TOL);
    }
}

/* From rwkv.cpp to GGUF: the same logits, and the same bytes once more from there. */
static void to_gguf(void **unused)
{
    static const struct {
        const char *from;
        dra_dtype   dtype;
    } rows[] = {{"v6.0-Q5_1.bin", DRA_F32}, {"v7.0-FP16.bin", DRA_F32}, {"v7.0-Q8_0.bin", DRA_F32}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char      from[200], once[32], twice[32];
        dra_error err = {0};
        snprintf(from, sizeof from, DATA "%s", rows[i].from);
        snprintf(once, sizeof once, "once%zu.gguf", i);
        snprintf(twice, sizeof twice, "twice%zu.gguf", i);
        expect_ok(convert_as(from, in_folder(once), DRA_FORMAT_GGUF, 0, rows[i].dtype, false, &err),
                  &err);
        expect_logits(in_folder(once), DATA "rwkv-cpp.expected.safetensors", rows[i].from,
                      LOGITS_TOL);
        expect_ok(convert_as(in_folder(once), in_folder(twice), DRA_FORMAT_GGUF, 0, rows[i].dtype,
                             false, &err),
                  &err);
        expect_same_file(in_folder(once), in_folder(twice));
    }
}

static dra_status rescaled(const char *from, const char *to, dra_format_kind format, dra_error *err)
{
    CHECK_CONFIG(c);
    expect_ok(dra_folder_config(from, &c, err), err);
    c->format = format;
    c->rescale_every = 1;
    const dra_convert_config how = {.from = from, .to = to, .config = c, .dtype = DRA_F32};
    return dra_convert(&how, err);
}

/* Number 0 of a tensor of a file. */
static double first_of(const char *path, const char *name)
{
    dra_tensor_source *s;
    dra_error          err = {0};
    double             x = 0;
    expect_ok(dra_tensor_source_open(path, &s, &err), &err);
    const dra_tensor_source_entry *e = dra_tensor_source_find(s, name);
    assert_non_null(e);
    assert_true(dra_tensor_copy(e->info, 0, 1, DRA_F64, &x));
    dra_tensor_source_close(s);
    return x;
}

/* Where the stream is halved, matrices that write into it are stored divided, and read whole. */
static void divided_matrices(void **unused)
{
    static const char *const names[] = {"time_mix_output", "channel_mix_value", "time_mix_key"};
    dra_error                err = {0};
    char                     own[300], back[300];
    expect_ok(convert_as(DATA "v6.0-Q5_1.bin", in_folder("whole.gguf"), DRA_FORMAT_GGUF, 0, DRA_F32,
                         false, &err),
              &err);
    expect_ok(rescaled(DATA "v6.0-Q5_1.bin", in_folder("half.gguf"), DRA_FORMAT_GGUF, &err), &err);
    expect_ok(rescaled(DATA "v6.0-Q5_1.bin", in_folder("own"), DRA_FORMAT_DRA, &err), &err);
    expect_ok(convert_as(in_folder("half.gguf"), in_folder("back"), DRA_FORMAT_DRA, 0, DRA_F32,
                         false, &err),
              &err);
    for (int i = 0; i < 6; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", i / 3, names[i % 3]);
        const double whole = first_of(in_folder("whole.gguf"), name);
        assert_true(first_of(in_folder("half.gguf"), name) == whole / (i / 3 && i % 3 < 2 ? 2 : 1));
    }
    snprintf(own, sizeof own, "%s/model.safetensors", in_folder("own"));
    snprintf(back, sizeof back, "%s/model.safetensors", in_folder("back"));
    expect_same_file(own, back);
    snprintf(own, sizeof own, "%s/config.json", in_folder("own"));
    snprintf(back, sizeof back, "%s/config.json", in_folder("back"));
    expect_same_file(own, back);
}

/* A World vocabulary goes into a file and comes back the same. */
static void world_tokenizer(void **unused)
{
    static const char vocabulary[] = "tests/data/world/rwkv_vocab_v20230424.txt";
    static const char text[] = "it's \"one\"\n\n\t\\ \x01\xff caf\xc3\xa9";
    dra_tokenizer    *t, *again;
    dra_ids           a = {0}, b = {0};
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_tokenizer_open(vocabulary, &t, &err), &err);
    expect_ok(dra_folder_config(DATA "v7.0-FP16.bin", &c, &err), &err);
    c->format = DRA_FORMAT_GGUF;
    c->vocab = dra_tokenizer_size(t) + 3;
    const dra_convert_config how = {.from = DATA "v7.0-FP16.bin",
                                    .to = in_folder("world.gguf"),
                                    .config = c,
                                    .tokenizer = NULL};
    dra_convert_config       with = how;
    with.tokenizer = t;
    expect_ok(dra_convert(&with, &err), &err);
    expect_ok(dra_tokenizer_open(in_folder("world.gguf"), &again, &err), &err);
    assert_int_equal(dra_tokenizer_size(again), dra_tokenizer_size(t));
    for (int32_t id = 1; id < dra_tokenizer_size(t); id++) {
        size_t      n, m;
        const char *x = dra_tokenizer_piece(t, id, &n), *y = dra_tokenizer_piece(again, id, &m);
        assert_int_equal(n, m);
        if (n) assert_memory_equal(x, y, n);
    }
    expect_ok(dra_encode(t, text, sizeof text - 1, &a, &err), &err);
    expect_ok(dra_encode(again, text, sizeof text - 1, &b, &err), &err);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.data, b.data, a.n * sizeof *a.data);
    assert_int_equal(dra_tokenizer_end(again), 0);
    dra_ids_free(&a);
    dra_ids_free(&b);
    dra_tokenizer_destroy(t);
    dra_tokenizer_destroy(again);
    assert_int_not_equal(dra_tokenizer_open(GGUF_DATA "rwkv7-F16.gguf", &t, &err), DRA_OK);
    assert_non_null(strstr(err.text, "no entry is the byte 0x00"));
}

/* ---- quantising ------------------------------------------------------------------------------ */

/* Own folders and GGUF: what is quantised there gives the logits of its numbers. */
static void quantises(void **unused)
{
    static const dra_format_kind formats[] = {DRA_FORMAT_DRA, DRA_FORMAT_GGUF};
    for (size_t i = 0; i < COUNT(formats); i++) {
        char      small[32], wide[32];
        dra_real  logits[2][SOME * WORDS];
        dra_error err = {0};
        snprintf(small, sizeof small, "small%zu", i);
        snprintf(wide, sizeof wide, "wide%zu", i);
        expect_ok(convert_as(DATA "v7.0-FP16.bin", in_folder(small), formats[i], 0, DRA_Q8_0, false,
                             &err),
                  &err);
        expect_ok(
            convert_as(in_folder(small), in_folder(wide), formats[i], 0, DRA_F32, false, &err),
            &err);
        for (int k = 0; k < 2; k++) {
            loaded m = {0};
            expect_ok(dra_folder_load(in_folder(k ? wide : small), &m.model, &m.weights, &err),
                      &err);
            dra_states *s = open_states(&m, 1);
            read_rows(&m, s, ids_7, 1, SOME, k ? SOME : 1, logits[k]);
            dra_states_destroy(s);
            load_free(&m);
        }
        expect_near("quantised", SOME * WORDS, logits[0], logits[1], LOGITS_TOL);
        expect_logits(in_folder(small), DATA "rwkv-cpp.expected.safetensors", "v7.0-FP16.bin", 0.1);
    }
}

static void what_gguf_cannot_hold(void **unused)
{
    dra_error err = {0};
    assert_int_not_equal(
        convert_as(DATA "fla-rwkv7", in_folder("never"), DRA_FORMAT_GGUF, 0, DRA_F32, false, &err),
        DRA_OK);
    assert_non_null(strstr(err.text, "cannot hold mixer.head_norm_eps"));
    assert_int_not_equal(convert_as(DATA "v5.0-FP16.bin", in_folder("never"), DRA_FORMAT_GGUF, 0,
                                    DRA_F32, false, &err),
                         DRA_OK);
    assert_non_null(strstr(err.text, "has no GGUF form"));
}

static int remove_all(void **unused)
{
    fixture_remove();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_rwkv_cpp),
        cmocka_unit_test(tiny_rwkv_cpp),
        cmocka_unit_test(as_their_quantiser),
        cmocka_unit_test(gguf_files),
        cmocka_unit_test(to_gguf),
        cmocka_unit_test(divided_matrices),
        cmocka_unit_test(world_tokenizer),
        cmocka_unit_test(quantises),
        cmocka_unit_test(what_gguf_cannot_hold),
    };
    return cmocka_run_group_tests_name("rwkv_quant", tests, folder_make, remove_all);
}
