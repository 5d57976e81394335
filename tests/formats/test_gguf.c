/* GGUF files and quantised folders as models: logits against those of weights dequantised exactly
 * (tests/data/gguf), conversions to and fro, what is refused. */
#include "model/fixtures.h"

#include <sys/stat.h>

#include "base/shape.h"
#include "device/device.h"
#include "device/simd.h"
#include "dra/text.h"
#include "model/model.h"
#include "shared.h"

enum { TOKENS = 20, WORDS = 300, FILES = 3 };

static const char *const names[FILES] = {"gpt2-BF16.gguf", "gpt2-Q5_1.gguf", "gpt2-Q4_0.gguf"};

static const char *data_of(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "tests/data/gguf/%s", name);
    return path;
}

static const int32_t *ids(void)
{
    static int32_t x[TOKENS];
    dra_tensors   *t;
    dra_error      err = {0};
    expect_ok(dra_tensors_open(data_of("expected.safetensors"), &t, &err), &err);
    for (int i = 0; i < TOKENS; i++) {
        int64_t id;
        memcpy(&id, (const char *)dra_tensors_find(t, "gpt2.ids")->data + 8 * i, 8);
        x[i] = (int32_t)id;
    }
    dra_tensors_close(t);
    return x;
}

/* The logits of a model on the ids, read by chunks of this length. */
static void logits_of(const char *path, const char *level, int64_t chunk, dra_real *to)
{
    dra_model   *m;
    dra_weights *w;
    dra_states  *s;
    dra_reader  *r;
    dra_error    err = {0};
    expect_ok(dra_folder_load(path, &m, &w, &err), &err);
    const dra_view   view = {.model = m, .logits = true};
    const dra_module module = dra_view_module(&view);
    dra_device      *device = check_device(2, level ? level : dra_simd_levels()[0]->name);
    expect_ok(dra_states_create(device, dra_model_state(m), 1, &s, &err), &err);
    expect_ok(dra_reader_create(device, &module, &r, &err), &err);
    expect_ok(dra_weights_bind(w, r, &err), &err);
    for (int64_t t = 0; t < TOKENS; t += chunk) {
        const int64_t   n = dra_imin(chunk, TOKENS - t);
        const dra_named in = {"ids", ids() + t, (size_t)n * sizeof(int32_t)};
        expect_ok(dra_reader_read(r, s, n, NULL, 1, &in, &err), &err);
        memcpy(to + t * WORDS, dra_reader_result(r, "logits"), (size_t)(n * WORDS) * sizeof *to);
    }
    dra_reader_destroy(r);
    dra_states_destroy(s);
    dra_weights_destroy(w);
    dra_model_destroy(m);
}

/* The largest difference, relative to the largest number. */
static double difference(const dra_real *a, const dra_real *b)
{
    double most = 0, size = 0;
    for (int i = 0; i < TOKENS * WORDS; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        size = fmax(size, fabs((double)b[i]));
    }
    return most / size;
}

static dra_real found[TOKENS * WORDS], expected[TOKENS * WORDS];

static void logits_are_those_of_exact_weights(void **state)
{
    static const int64_t chunks[] = {TOKENS, 1, 7};
    dra_tensors         *t;
    dra_error            err = {0};
    expect_ok(dra_tensors_open(data_of("expected.safetensors"), &t, &err), &err);
    for (int i = 0; i < FILES; i++) {
        expect_ok(dra_tensors_read(t, names[i], DRA_REAL, DRA_SHAPE(TOKENS, WORDS), expected, &err),
                  &err);
        for (size_t k = 0; k < COUNT(chunks); k++)
            for (int best = 0; best < 2; best++) {
                logits_of(data_of(names[i]), best ? NULL : "ref", chunks[k], found);
                if (!(difference(found, expected) <= 5e-6)) /* sums in float */
                    fail_msg("%s by %d: %g", names[i], (int)chunks[k], difference(found, expected));
            }
    }
    dra_tensors_close(t);
}

/* ---- conversions ----------------------------------------------------------------------------- */

static dra_status convert(const char *from, const char *to, dra_format_kind format, dra_dtype dtype,
                          dra_error *err)
{
    CHECK_CONFIG(c);
    expect_ok(dra_folder_config(from, &c, err), err);
    c->format = format;
    const dra_convert_config how = {.from = from, .to = to, .config = c, .dtype = dtype};
    return dra_convert(&how, err);
}

/* What is quantised means its numbers: as f32 they give the same. */
static void f32_of_it_gives_the_same(void **state)
{
    dra_error err = {0};
    for (int i = 0; i < FILES; i++) {
        static const struct {
            dra_format_kind format;
            const char     *name;
        } ways[] = {{DRA_FORMAT_DRA, "own"}, {DRA_FORMAT_GGUF, "f.gguf"}, {DRA_FORMAT_GPT2, "hf"}};
        logits_of(data_of(names[i]), NULL, TOKENS, expected);
        for (size_t k = 0; k < COUNT(ways); k++) {
            char name[32];
            snprintf(name, sizeof name, "%d%s", i, ways[k].name);
            const char *to = in_folder(name);
            expect_ok(convert(data_of(names[i]), to, ways[k].format, DRA_F32, &err), &err);
            logits_of(to, NULL, TOKENS, found);
            check_reals(found, expected, sizeof found);
        }
    }
}

static size_t arrays_of(const dra_device *d)
{
    size_t all = 0;
    for (const dra_array *a = d->arrays.live; a; a = a->next) all += a->bytes;
    return all;
}

/* On every device blocks stay blocks: about the bytes of the file, where reals would be four times
 * as many. Only what is no factor, here positions, becomes real. */
static void weights_take_the_bytes_of_the_file(void **state)
{
    for (int i = 1; i < FILES; i++) {
        dra_model   *m;
        dra_weights *w;
        dra_reader  *r;
        dra_error    err = {0};
        struct stat  file;
        dra_device  *device = check_device(1, "ref");
        expect_ok(dra_folder_load(data_of(names[i]), &m, &w, &err), &err);
        const dra_view   view = {.model = m, .logits = true};
        const dra_module module = dra_view_module(&view);
        expect_ok(dra_reader_create(device, &module, &r, &err), &err);
        const size_t before = arrays_of(device);
        expect_ok(dra_weights_bind(w, r, &err), &err);
        const size_t bytes = arrays_of(device) - before;
        assert_int_equal(stat(data_of(names[i]), &file), 0);
        const size_t most = (size_t)file.st_size * 5 / 4 * sizeof(dra_real) / sizeof(float);
        if (bytes > most || 2 * bytes < (size_t)file.st_size)
            fail_msg("%s: %zu bytes of %zu", names[i], bytes, (size_t)file.st_size);
        dra_reader_destroy(r);
        dra_weights_destroy(w);
        dra_model_destroy(m);
    }
}

/* Own folders and GGUF hold the same blocks; their loss is that of the type. */
static void quantises(void **state)
{
    static const struct {
        dra_dtype dtype;
        double    most; /* of the largest logit: random weights make small errors large, as those
                           of the fixtures themselves, 0.36 for Q4_0 and 0.34 for Q5_1 */
    } types[] = {{DRA_Q8_0, 0.1}, {DRA_Q5_1, 0.7}, {DRA_Q5_0, 0.7}, {DRA_Q4_1, 1}, {DRA_Q4_0, 1}};
    dra_error err = {0};
    logits_of(data_of(names[0]), NULL, TOKENS, expected);
    for (size_t i = 0; i < COUNT(types); i++) {
        static dra_real own[TOKENS * WORDS];
        char            name[32];
        snprintf(name, sizeof name, "own%zu", i);
        char folder_of[300];
        snprintf(folder_of, sizeof folder_of, "%s", in_folder(name));
        expect_ok(convert(data_of(names[0]), folder_of, DRA_FORMAT_DRA, types[i].dtype, &err),
                  &err);
        logits_of(folder_of, NULL, 3, own);
        if (!(difference(own, expected) <= types[i].most) || difference(own, expected) == 0)
            fail_msg("%s: %g", dra_dtype_get(types[i].dtype)->name, difference(own, expected));
        snprintf(name, sizeof name, "q%zu.gguf", i);
        expect_ok(
            convert(data_of(names[0]), in_folder(name), DRA_FORMAT_GGUF, types[i].dtype, &err),
            &err);
        logits_of(in_folder(name), NULL, TOKENS, found);
        logits_of(folder_of, NULL, TOKENS, own);
        assert_memory_equal(own, found, sizeof own);
    }
}

static void tokenizers_come_along(void **state)
{
    dra_tokenizer *t, *again;
    dra_error      err = {0};
    expect_ok(dra_tokenizer_open_folder(data_of(names[0]), WORDS, &t, &err), &err);
    expect_ok(convert(data_of(names[0]), in_folder("own"), DRA_FORMAT_DRA, DRA_F32, &err), &err);
    expect_ok(convert(in_folder("own"), in_folder("back.gguf"), DRA_FORMAT_GGUF, DRA_F16, &err),
              &err);
    expect_ok(dra_tokenizer_open(in_folder("back.gguf"), &again, &err), &err);
    dra_ids a = {0}, b = {0};
    expect_ok(dra_encode(t, "in the an<|endoftext|> x", 24, &a, &err), &err);
    expect_ok(dra_encode(again, "in the an<|endoftext|> x", 24, &b, &err), &err);
    assert_true(a.n > 0 && a.n < 24);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.data, b.data, a.n * sizeof *a.data);
    assert_int_equal(dra_tokenizer_end(again), dra_tokenizer_end(t));
    dra_ids_free(&a);
    dra_ids_free(&b);
    dra_tokenizer_destroy(t);
    dra_tokenizer_destroy(again);
}

/* The reason is the architecture, not the first of its settings that GPT-2 has not. */
static void refuses_preset(const char *preset, const char *why)
{
    CHECK_CONFIG(c);
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    char         from[300], file[340];
    snprintf(from, sizeof from, "%s", in_folder(preset));
    snprintf(file, sizeof file, "%s/model.safetensors", from);
    assert_int_equal(mkdir(from, 0700), 0);
    expect_ok(dra_preset_config(preset, &c, &err), &err);
    expect_ok(dra_model_create(c, &m, &err), &err);
    expect_ok(dra_weights_draw(m, 7, &w, &err), &err);
    expect_ok(dra_folder_save_config(from, c, &err), &err);
    expect_ok(dra_weights_save(w, file, &err), &err);
    dra_weights_destroy(w);
    dra_model_destroy(m);
    assert_int_equal(convert(from, in_folder("none.gguf"), DRA_FORMAT_GGUF, DRA_F32, &err),
                     DRA_ERR_VALUE);
    if (!strstr(err.text, why)) fail_msg("%s: %s", preset, err.text);
}

static void refuses(void **state)
{
    dra_error    err = {0};
    dra_model   *m;
    dra_weights *w;
    assert_int_equal(convert(data_of(names[0]), in_folder("hf"), DRA_FORMAT_GPT2, DRA_Q8_0, &err),
                     DRA_ERR_DTYPE);
    assert_non_null(strstr(err.text, "folders of gpt2 cannot hold q8_0"));
    assert_int_equal(convert(data_of(names[0]), in_folder("k"), DRA_FORMAT_DRA, DRA_Q3_K, &err),
                     DRA_ERR_DTYPE);
    assert_non_null(strstr(err.text, "cannot be written as q3_k"));
    refuses_preset("rwkv4-tiny", "architecture rwkv4 has no GGUF form, only gpt2, rwkv6 and rwkv7");
    refuses_preset("rwkv5-tiny", "architecture rwkv5 has no GGUF form");
    refuses_preset("dra-ema-tiny", "a model whose memory is ema has no GGUF form");
    expect_ok(dra_folder_load(data_of(names[2]), &m, &w, &err), &err);
    assert_int_equal(dra_weights_train(w, check_device(1, "ref"), &err), DRA_ERR_DTYPE);
    assert_non_null(strstr(err.text, "is q4_0, expected f32, f16 or bf16 to train"));
    dra_weights_destroy(w);
    dra_model_destroy(m);
}

/* rwkv.cpp's published tiny model, quantised by us: the differences to its expected logits that an
 * implementation has which dequantises exactly, largest and in all. */
static void quantised_rwkv_cpp_files(void **state)
{
    static const struct {
        dra_dtype dtype;
        double    most, sum;
    } rows[] = {{DRA_Q5_0, 0.1230, -0.16844}, {DRA_Q5_1, 0.0961, 0.22323}};
    static const int32_t prompt[] = {34, 105, 110};
    const dra_named      in = {"ids", prompt, sizeof prompt};
    float                should[256];
    char                 from[300];
    dra_error            err = {0};
    FILE                *f = shared_file("expected-logits-4v0-660K.bin");
    if (!f) skip();
    assert_int_equal(fread(should, sizeof *should, 256, f), 256);
    fclose(f);
    snprintf(from, sizeof from, "%s/tiny-rwkv-4v0-660K-FP32.bin", shared_data());
    for (size_t i = 0; i < COUNT(rows); i++) {
        const dra_convert_config how = {
            .from = from, .to = in_folder("q.bin"), .cpp = true, .dtype = rows[i].dtype};
        dra_model   *m;
        dra_weights *w;
        dra_states  *s;
        dra_reader  *r;
        double       most = 0, sum = 0;
        unlink(in_folder("q.bin"));
        expect_ok(dra_convert(&how, &err), &err);
        expect_ok(dra_folder_load(in_folder("q.bin"), &m, &w, &err), &err);
        const dra_view   view = {.model = m, .logits = true, .keep = 1};
        const dra_module module = dra_view_module(&view);
        expect_ok(dra_states_create(check_device(1, "ref"), dra_model_state(m), 1, &s, &err), &err);
        expect_ok(dra_reader_create(check_device(1, "ref"), &module, &r, &err), &err);
        expect_ok(dra_weights_bind(w, r, &err), &err);
        expect_ok(dra_reader_read(r, s, 3, NULL, 1, &in, &err), &err);
        const dra_real *logits = dra_reader_result(r, "logits");
        for (int k = 0; k < 256; k++) {
            most = fmax(most, fabs((double)logits[k] - (double)should[k]));
            sum += (double)logits[k] - (double)should[k];
        }
        if (fabs(most - rows[i].most) > 1e-4 || fabs(sum - rows[i].sum) > 1e-4)
            fail_msg("%s: %g, %g", dra_dtype_get(rows[i].dtype)->name, most, sum);
        dra_reader_destroy(r);
        dra_states_destroy(s);
        dra_weights_destroy(w);
        dra_model_destroy(m);
    }
}

static int remove_all(void **state)
{
    fixture_remove();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_exact_weights),
        cmocka_unit_test_setup_teardown(f32_of_it_gives_the_same, folder_make, remove_all),
        cmocka_unit_test(weights_take_the_bytes_of_the_file),
        cmocka_unit_test_setup_teardown(quantises, folder_make, remove_all),
        cmocka_unit_test_setup_teardown(tokenizers_come_along, folder_make, remove_all),
        cmocka_unit_test_setup_teardown(refuses, folder_make, remove_all),
        cmocka_unit_test_setup_teardown(quantised_rwkv_cpp_files, folder_make, remove_all),
    };
    return check_main("gguf", NULL, 0, tests, COUNT(tests));
}
