/* generation_config.json: what it says, its defaults, and what is refused. */
#include <string.h>

#include "file/folder.h"
#include "dra/generate.h"

static dra_status read_habits(const char *config, const char *generation, dra_generation_config *h,
                              dra_error *err)
{
    clean(NULL);
    if (config) put_file("config.json", config, strlen(config));
    if (generation) put_file("generation_config.json", generation, strlen(generation));
    return dra_generation_config_read(folder, h, err);
}

static void greedy_unless_it_says_otherwise(void **unused)
{
    dra_generation_config h;
    dra_error             err = {0};
    assert_int_equal(read_habits(NULL, NULL, &h, &err), DRA_OK);
    assert_true(!h.given && h.ends == 0);
    assert_int_equal(read_habits("{\"eos_token_id\": 5}", NULL, &h, &err), DRA_OK);
    assert_true(!h.given && h.ends == 1 && h.end[0] == 5);
    assert_int_equal(read_habits("{\"model_type\": \"dra\", \"hugging_face\": {\"model_type\": "
                                 "\"rwkv\", \"eos_token_id\": [5, 6]}}",
                                 NULL, &h, &err),
                     DRA_OK);
    assert_true(!h.given && h.ends == 2 && h.end[1] == 6);
    assert_int_equal(read_habits(NULL, "{\"temperature\": 0.5, \"top_k\": 7}", &h, &err), DRA_OK);
    assert_true(h.given && h.sampler.temperature == 0 && h.sampler.top_k == 0);
    assert_true(h.tokens == 0 && h.length == 0);
}

static void samples_from_the_likely(void **unused)
{
    dra_generation_config h;
    dra_error             err = {0};
    assert_int_equal(
        read_habits("{\"eos_token_id\": 5}",
                    "{\"do_sample\": true, \"max_length\": 20, \"eos_token_id\": [1, 2]}", &h,
                    &err),
        DRA_OK);
    assert_true(h.sampler.temperature == 1 && h.sampler.top_k == 50 && h.sampler.top_p == 1);
    assert_true(h.length == 20 && h.ends == 2 && h.end[0] == 1 && h.end[1] == 2);
    assert_int_equal(read_habits(NULL,
                                 "{\"do_sample\": true, \"temperature\": 0.8, \"top_k\": 0, "
                                 "\"top_p\": 0.9, \"max_new_tokens\": 9, \"max_length\": 20, "
                                 "\"repetition_penalty\": 1.2, \"min_p\": null}",
                                 &h, &err),
                     DRA_OK);
    assert_true(h.sampler.temperature == 0.8 && h.sampler.top_k == 0 && h.sampler.top_p == 0.9);
    assert_true(h.tokens == 9 && h.length == 0 && h.sampler.repetition_penalty == 1.2);
}

/* What holds for greedy texts, too, and what is only for drawing. */
static void follows_the_table(void **unused)
{
    static const char keys[] = "\"no_repeat_ngram_size\": 3, \"min_new_tokens\": 5, \"min_p\": 0.1";
    char              text[200];
    dra_generation_config h;
    dra_error             err = {0};
    for (int samples = 0; samples < 2; samples++) {
        snprintf(text, sizeof text, "{\"do_sample\": %s, %s}", samples ? "true" : "false", keys);
        assert_int_equal(read_habits(NULL, text, &h, &err), DRA_OK);
        assert_true(h.sampler.no_repeat_ngram == 3 && h.sampler.min_tokens == 5);
        assert_true(h.sampler.min_p == (samples ? 0.1 : 0) && h.sampler.dry_base == 1.75);
        assert_string_equal(h.other, "");
    }
}

/* What would change the text and is not done is named, so that it can be said. */
static void names_what_it_does_not_do(void **unused)
{
    dra_generation_config h;
    dra_error             err = {0};
    assert_int_equal(
        read_habits(
            NULL,
            "{\"num_beams\": 4, \"typical_p\": 1.0, \"min_length\": 0, "
            "\"suppress_tokens\": [5], \"begin_suppress_tokens\": [], \"forced_eos_token_id\": 0, "
            "\"bad_words_ids\": null, \"temperature\": 0}",
            &h, &err),
        DRA_OK);
    assert_string_equal(h.other, "num_beams, suppress_tokens, forced_eos_token_id");
    assert_int_equal(read_habits(NULL, "{\"num_beams\": 1, \"do_sample\": false}", &h, &err),
                     DRA_OK);
    assert_string_equal(h.other, "");
}

static void refuses(void **unused)
{
    static const char *const rows[][2] = {
        {"[]", ": JSON is no object"},
        {"{\"do_sample\": true, \"temperature\": -1}",
         ": temperature is -1, expected a number from 0 to 1e+06"},
        {"{\"do_sample\": true, \"top_p\": 1.5}",
         ": top_p is 1.5, expected a number above 0, up to 1"},
        {"{\"do_sample\": true, \"top_k\": -3}",
         ": top_k is -3, expected a whole number from 0 to 2^31 - 1"},
        {"{\"max_new_tokens\": -5}",
         ": max_new_tokens is -5, expected a whole number from 0 to 2^31 - 1"},
        {"{\"max_new_tokens\": 1.5}",
         ": max_new_tokens is 1.5, expected a whole number from 0 to 2^31 - 1"},
        {"{\"max_length\": -5}", ": max_length is -5, expected a whole number from 0 to 2^31 - 1"},
        {"{\"repetition_penalty\": 0}",
         ": repetition_penalty is 0, expected a number above 0, up to 1e+06"},
        {"{\"eos_token_id\": \"x\"}",
         ": eos_token_id is \"x\", expected a token or a list of up to 8"},
    };
    dra_generation_config h;
    dra_error             err = {0};
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_not_equal(read_habits(NULL, rows[i][0], &h, &err), DRA_OK);
        check_error(&err, err.code, "generation_config.json", rows[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_unless_it_says_otherwise),
        cmocka_unit_test(samples_from_the_likely),
        cmocka_unit_test(follows_the_table),
        cmocka_unit_test(names_what_it_does_not_do),
        cmocka_unit_test(refuses),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = cmocka_run_group_tests_name("habits", tests, NULL, NULL);
    return folder_remove(NULL) == 0 ? failed : 1;
}
