/* RWKV 5 to 7 in files of rwkv.cpp and GGUF whose weights are quantised: logits against those of
 * weights dequantised exactly, what goes from one to the other, what quantising does. */
#include "dra/text.h"
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
    };
    return cmocka_run_group_tests_name("rwkv_quant", tests, folder_make, remove_all);
}
