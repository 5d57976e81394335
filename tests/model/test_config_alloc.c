/* Configs without memory: every allocation of reading and writing them fails once. Each time there
 * is one clear error, or the result is that of a run in which none fails; never less. */
#include "fixtures.h"

#include <stdlib.h>

#include "dra/file.h"
#include "failing.h"
#include "file/json.h"

typedef struct sample {
    const char *name, *text;
} sample;

static const sample samples[] = {
    {"dra", "{\"model_type\": \"dra\", \"vocab\": 16, \"context\": 8, \"dim\": 16, \"depth\": 2, "
            "\"heads\": 2, \"mixer\": [{\"memory\": \"gru\"}, {\"memory\": \"ema\", \"gamma\": "
            "{\"init\": \"const\", \"value\": 0.5}}]}"},
    {"stacks",
     "{\"model_type\": \"dra\", \"stacks\": {\"encoder\": {\"vocab\": 9, \"dim\": 16, "
     "\"depth\": 1, \"heads\": 2, \"context\": 8, \"visible\": \"bidirectional\", "
     "\"head\": {\"kind\": \"none\"}}, "
     "\"decoder\": {\"vocab\": 9, \"dim\": 16, \"depth\": 1, \"heads\": 2, \"max_seq_len\": 8, "
     "\"context\": \"encoder\"}}}"},
    {"gpt2", "{\"model_type\": \"gpt2\", \"vocab_size\": 16, \"n_positions\": 8, \"n_embd\": 16, "
             "\"n_layer\": 1, \"n_head\": 2, \"summary_type\": \"cls_index\"}"},
    {"xt", "{\"model_type\": \"x-transformers\", \"wrapper\": \"XTransformer\", \"dim\": 16, "
           "\"enc_num_tokens\": 9, \"enc_depth\": 1, \"enc_heads\": 2, \"enc_max_seq_len\": 8, "
           "\"dec_num_tokens\": 9, \"dec_depth\": 1, \"dec_heads\": 2, \"dec_max_seq_len\": 8, "
           "\"dec_cross_attn_dim_head\": 4}"},
};

static dra_error why;

static dra_status parse(const sample *s, dra_model_config **c, dra_error *err)
{
    return dra_model_config_parse(s->name, s->text, strlen(s->text), c, err);
}

static void expect_starved(const sample *s, long n, dra_status st, const dra_error *err)
{
    if (st != DRA_ERR_MEMORY || !strstr(err->text, "memory"))
        fail_msg("%s, allocation %ld: %s", s->name, n, err->text);
}

/* The allocation to fail after number n: each of the first, then samples of the many. */
static long next(long n) { return n + 1 + n / 64; }

/* Writing a folder over one that has other keys: all of them are there, or there is an error. */
static dra_status save(const dra_model_config *c, dra_error *err)
{
    return dra_folder_save_config(in_folder("to"), c, err);
}

static char *saved(size_t *bytes)
{
    char *text = NULL;
    assert_int_equal(dra_file_read(in_folder("to/config.json"), 1 << 20, &text, bytes, NULL),
                     DRA_OK);
    return text;
}

static void put_first(const sample *s)
{
    mkdir(in_folder("to"), 0777);
    FILE *f = fopen(in_folder("to/config.json"), "w"); /* without syncing it each time */
    assert_non_null(f);
    fputs(s->text, f);
    assert_int_equal(fclose(f), 0);
}

static void reading(void **state)
{
    for (size_t i = 0; i < COUNT(samples); i++) {
        long n = 0;
        for (;; n = next(n)) {
            CHECK_CONFIG(c);
            dra_error err = {0};
            allocations_left = n;
            const dra_status st = parse(&samples[i], &c, &err);
            allocations_left = -1;
            if (st == DRA_OK) break;
            expect_starved(&samples[i], n, st, &err);
        }
        assert_true(n > 20);
    }
}

static void telling(void **state)
{
    static char whole[20000], text[20000];
    for (size_t i = 0; i < COUNT(samples); i++) {
        CHECK_CONFIG(c);
        expect_ok(parse(&samples[i], &c, &why), &why);
        const size_t size = dra_model_config_text(c, whole, sizeof whole);
        size_t       found = 0;
        for (long n = 0; !found; n = next(n)) {
            allocations_left = n;
            found = dra_model_config_text(c, text, sizeof text);
            allocations_left = -1;
            assert_string_equal(text, found ? whole : "");
            assert_true(found == 0 || found == size);
        }
    }
}

static void saving(void **state)
{
    for (size_t i = 0; i < COUNT(samples); i++) {
        const sample *s = &samples[i];
        CHECK_CONFIG(c);
        size_t bytes, again;
        expect_ok(parse(s, &c, &why), &why);
        put_first(s);
        expect_ok(save(c, &why), &why);
        char *whole = saved(&bytes);
        for (long n = 0;; n = next(n)) {
            dra_error err = {0};
            put_first(s);
            allocations_left = n;
            const dra_status st = save(c, &err);
            allocations_left = -1;
            if (st == DRA_OK) {
                char *text = saved(&again);
                assert_int_equal(again, bytes);
                assert_memory_equal(text, whole, bytes);
                free(text);
                break;
            }
            expect_starved(s, n, st, &err);
        }
        free(whole);
    }
}

/* The fingerprint of a model is that of the whole config. */
static void marking(void **state)
{
    CHECK_CONFIG(c);
    dra_model *m = NULL;
    expect_ok(parse(&samples[0], &c, &why), &why);
    expect_ok(dra_model_create(c, &m, &why), &why);
    const uint64_t mark = dra_model_fingerprint(m);
    dra_model_destroy(m);
    for (long n = 0;; n++) {
        dra_error err = {0};
        allocations_left = n;
        const dra_status st = dra_model_create(c, &m, &err);
        allocations_left = -1;
        if (st == DRA_OK) break;
        expect_starved(&samples[0], n, st, &err);
    }
    assert_true(dra_model_fingerprint(m) == mark);
    dra_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading),
        cmocka_unit_test(telling),
        cmocka_unit_test(saving),
        cmocka_unit_test(marking),
    };
    json_set_alloc_funcs(__wrap_malloc, free);
    if (folder_make(NULL) != 0) return 1;
    const int failed = check_main("configs without memory", NULL, 0, tests, COUNT(tests));
    unlink(in_folder("to/config.json"));
    rmdir(in_folder("to"));
    return folder_remove(NULL) == 0 ? failed : 1;
}
