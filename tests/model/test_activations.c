/* Activations rounded to blocks of 8 bits: models read as one piece, in parts, token by token and
 * side by side with others have the same bits; they are near the logits of full activations; what
 * has nothing to round is refused. */
#include "formats/rwkv/rwkv567.h"

#define GGUF_DATA "tests/data/gguf/"

static const char *const files[] = {GGUF_DATA "gpt2-Q4_0.gguf", GGUF_DATA "gpt2-Q5_1.gguf",
                                    GGUF_DATA "rwkv6-Q8_0.gguf", GGUF_DATA "rwkv7-Q4_0.gguf",
                                    DATA "v5.2-Q4_0.bin"};

enum { TOKENS = 12, BATCH = 3 };

static bool elsewhere(void) { return check_cuda() || check_apart(); }

static loaded load(const char *path, bool rounds)
{
    loaded    m = {0};
    dra_error err = {0};
    expect_ok(dra_folder_load(path, &m.model, &m.weights, &err), &err);
    if (rounds) expect_ok(dra_weights_round_activations(m.weights, &err), &err);
    return m;
}

static size_t words_of(const loaded *m) { return (size_t)dra_model_config_of(m->model)->vocab; }

/* Logits (B, TOKENS, V), read in parts; to be freed. */
static dra_real *logits_of(const loaded *m, int64_t B, int64_t part)
{
    const int64_t words = (int64_t)words_of(m);
    int32_t       ids[BATCH * TOKENS];
    dra_real     *logits = calloc((size_t)(B * TOKENS * words), sizeof *logits);
    assert_non_null(logits);
    for (int64_t i = 0; i < B * TOKENS; i++) ids[i] = (int32_t)((i * 7 + i / TOKENS * 5) % words);
    dra_states *s = open_states(m, B);
    read_rows(m, s, ids, B, TOKENS, part, logits);
    dra_states_destroy(s);
    return logits;
}

static void expect_same(const char *what, const loaded *m, int64_t B, int64_t part,
                        const dra_real *want)
{
    dra_real *found = logits_of(m, B, part);
    if (memcmp(found, want, TOKENS * words_of(m) * sizeof *want) != 0)
        fail_msg("%s: %d rows in parts of %d tokens", what, (int)B, (int)part);
    free(found);
}

/* Cut in the same way, since chunks of later versions of RWKV are sums of their own. */
static void rows_have_the_bits_of_one(void **unused)
{
    if (elsewhere()) skip();
    static const int64_t parts[] = {TOKENS, 5, 1};
    for (size_t i = 0; i < COUNT(files); i++) {
        loaded m = load(files[i], true);
        for (size_t k = 0; k < COUNT(parts); k++) {
            dra_real *one = logits_of(&m, 1, parts[k]);
            expect_same(files[i], &m, BATCH, parts[k], one);
            free(one);
        }
        load_free(&m);
    }
}

static void expect_any_cut(const char *path)
{
    loaded    m = load(path, true);
    dra_real *whole = logits_of(&m, 1, TOKENS);
    expect_same(path, &m, 1, 5, whole);
    expect_same(path, &m, 1, 1, whole);
    expect_same(path, &m, BATCH, 4, whole);
    free(whole);
    load_free(&m);
}

static void parts_have_the_bits_of_the_whole(void **unused)
{
    if (elsewhere()) skip();
    char      from[600];
    dra_error err = {0};
    expect_any_cut(GGUF_DATA "gpt2-Q4_0.gguf");
    expect_any_cut(GGUF_DATA "gpt2-Q5_1.gguf");
    FILE *f = shared_file("tiny-rwkv-4v0-660K-FP32.bin");
    if (!f) skip();
    fclose(f);
    snprintf(from, sizeof from, "%s/tiny-rwkv-4v0-660K-FP32.bin", shared_data());
    expect_ok(convert_as(from, in_folder("rwkv4"), DRA_FORMAT_DRA, 0, DRA_Q8_0, false, &err), &err);
    expect_any_cut(in_folder("rwkv4"));
}

static void near_full_activations(void **unused)
{
    if (elsewhere()) skip();
    for (size_t i = 0; i < COUNT(files); i++) {
        loaded       full = load(files[i], false), rounded = load(files[i], true);
        const size_t n = TOKENS * words_of(&full);
        dra_real    *x = logits_of(&rounded, 1, TOKENS), *y = logits_of(&full, 1, TOKENS);
        expect_near(files[i], n, x, y, 0.05);
        assert_memory_not_equal(x, y, n * sizeof *x);
        free(x);
        free(y);
        load_free(&full);
        load_free(&rounded);
    }
}

static void nothing_to_round(void **unused)
{
    loaded    m = load(GGUF_DATA "gpt2-BF16.gguf", false);
    dra_error err = {0};
    assert_int_equal(dra_weights_round_activations(m.weights, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "none of the"));
    load_free(&m);
}

/* Binding says so, before anything is read. */
static void only_on_the_cpu(void **unused)
{
    loaded           m = load(files[0], true);
    const dra_view   view = {.model = m.model, .logits = true};
    const dra_module module = dra_view_module(&view);
    dra_reader      *r = NULL;
    dra_error        err = {0};
    dra_device      *device = check_device(2, dra_device_level_at(0));
    expect_ok(dra_reader_create(device, &module, &r, &err), &err);
    if (elsewhere()) {
        assert_int_equal(dra_weights_bind(m.weights, r, &err), DRA_ERR_VALUE);
        assert_non_null(strstr(err.text, "on the CPU alone"));
    } else {
        expect_ok(dra_weights_bind(m.weights, r, &err), &err);
    }
    dra_reader_destroy(r);
    load_free(&m);
}

static int remove_all(void **unused)
{
    fixture_remove();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_bits_of_one),
        cmocka_unit_test(parts_have_the_bits_of_the_whole),
        cmocka_unit_test(near_full_activations),
        cmocka_unit_test(nothing_to_round),
        cmocka_unit_test(only_on_the_cpu),
    };
    return cmocka_run_group_tests_name("activations", tests, folder_make, remove_all);
}
