/* Without memory: every allocation of making, opening, saving, encoding, decoding and training
 * fails once; each time there is one clear error and nothing leaks. */
#include <jansson.h>

#include "dra/data.h"
#include "file/gguf.h"
#include "file/folder.h"
#include "small.h"
#include "failing.h"
#include "text/gguf.h"

static dra_tokenizer *t, *world, *characters;

static dra_status close_at_once(dra_status status, dra_tokenizer *made)
{
    assert_int_equal(status == DRA_OK, made != NULL);
    dra_tokenizer_destroy(made);
    return status;
}

static dra_status make_bytes(dra_error *err)
{
    dra_tokenizer   *made = t;
    const dra_status status = dra_tokenizer_bytes(&made, err);
    return close_at_once(status, made);
}

static dra_status open_json(dra_error *err)
{
    dra_tokenizer   *made = t;
    const dra_status status = dra_tokenizer_open(in_folder("tokenizer.json"), &made, err);
    return close_at_once(status, made);
}

static dra_status open_world(dra_error *err)
{
    dra_tokenizer   *made = t;
    const dra_status status = dra_tokenizer_open("tests/data/world", &made, err);
    return close_at_once(status, made);
}

static dra_status save_world(dra_error *err)
{
    return dra_tokenizer_save(world, in_folder("world.txt"), err);
}

/* As Llama 2's: spaces, bytes, a token in front. */
static const char characters_file[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": true, \"normalized\": "
    "false}, {\"id\": 9, \"content\": \"<u>\", \"special\": false, \"normalized\": true}], "
    "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
    "\"prepend\": \"\u2581\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
    "\"content\": \"\u2581\"}]}, \"pre_tokenizer\": null, \"post_processor\": {\"type\": "
    "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, "
    "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"special_tokens\": {\"<s>\": {\"id\": "
    "\"<s>\", \"ids\": [0], \"tokens\": [\"<s>\"]}}}, \"decoder\": {\"type\": \"Sequence\", "
    "\"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"\u2581\"}, \"content\": "
    "\" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}, \"model\": {\"type\": "
    "\"BPE\", \"byte_fallback\": true, \"vocab\": {\"<s>\": 0, \"\u2581\": 1, \"a\": 2, "
    "\"\u2581a\": 3, \"<0x62>\": 4}, \"merges\": [\"\u2581 a\"]}}";

static dra_status open_characters(dra_error *err)
{
    dra_tokenizer   *made = t;
    const dra_status status = dra_tokenizer_open(in_folder("characters.json"), &made, err);
    return close_at_once(status, made);
}

static dra_status save_characters(dra_error *err)
{
    return dra_tokenizer_save(characters, in_folder("characters.json"), err);
}

static dra_status encode_characters(dra_error *err)
{
    static const char text[] = "a aab <u>a";
    dra_ids           ids = {0};
    const dra_status  status = dra_encode_as(characters, text, sizeof text - 1, DRA_ENCODE_BEGIN,
                                             &ids, err);
    assert_int_equal(ids.n != 0, status == DRA_OK);
    dra_ids_free(&ids);
    return status;
}

/* Puts it into a GGUF file and reads that. */
static dra_status pass_through_gguf(dra_error *err)
{
    dra_json       j = {0};
    dra_tokenizer *made = t;
    json_t        *pairs = dra_json_object(&j);
    dra_status     status = dra_json_check(&j, "f", err);
    if (status == DRA_OK) status = dra_tokenizer_gguf_pairs(characters, 12, &j, pairs, err);
    if (status == DRA_OK) status = dra_json_check(&j, "f", err);
    if (status == DRA_OK) status = dra_gguf_write(in_folder("f.gguf"), pairs, NULL, 0, err);
    json_decref(pairs);
    if (status != DRA_OK) return status;
    status = dra_tokenizer_read_gguf(in_folder("f.gguf"), &made, err);
    return close_at_once(status, made);
}

static dra_status save(dra_error *err)
{
    return dra_tokenizer_save(t, in_folder("tokenizer.json"), err);
}

static dra_status encode(dra_error *err)
{
    static const char text[] = "ab e\xcc\x81 <|> aaab";
    dra_ids           ids = {0};
    const dra_status  status = dra_encode(t, text, sizeof text - 1, &ids, err);
    assert_int_equal(ids.n != 0, status == DRA_OK);
    dra_ids_free(&ids);
    return status;
}

static dra_status decode(dra_error *err)
{
    dra_decoder     *d = NULL;
    const dra_status status = dra_decoder_create(t, false, &d, err);
    assert_int_equal(status == DRA_OK, d != NULL);
    dra_decoder_destroy(d);
    return status;
}

static dra_status train(dra_error *err)
{
    static const char          text[] = "ab<|>ab e\xcc\x81 ab e\xcc\x81";
    static const char *const   special[] = {"<|>"};
    const char                *path = put_file("text", text, sizeof text - 1);
    const dra_tokenizer_config c = {.n = 1,
                                    .paths = &path,
                                    .size = 300,
                                    .n_special = 1,
                                    .special = special,
                                    .nfc = true,
                                    .threads = 1};
    dra_tokenizer             *made = t;
    const dra_status           status = dra_tokenizer_train(&c, NULL, NULL, &made, err);
    return close_at_once(status, made);
}

static void fails_each_allocation(dra_status (*function)(dra_error *))
{
    long n = 0;
    for (;; n++) {
        dra_error err = {0};
        allocations_left = n;
        const dra_status status = function(&err);
        allocations_left = -1;
        if (status == DRA_OK) break;
        if (status != DRA_ERR_MEMORY ||
            !(strstr(err.text, "no memory") || strstr(err.text, "out of memory")))
            fail_msg("allocation %ld: '%s'", n, err.text);
        assert_int_equal(open_json(NULL), DRA_OK); /* what is saved is whole */
    }
    assert_true(n > 0);
}

static void making(void **state) { fails_each_allocation(make_bytes); }
static void opening(void **state) { fails_each_allocation(open_json); }
static void opening_world(void **state) { fails_each_allocation(open_world); }
static void saving(void **state) { fails_each_allocation(save); }
static void saving_world(void **state) { fails_each_allocation(save_world); }
static void encoding(void **state) { fails_each_allocation(encode); }
static void decoding(void **state) { fails_each_allocation(decode); }
static void opening_characters(void **state) { fails_each_allocation(open_characters); }
static void saving_characters(void **state) { fails_each_allocation(save_characters); }
static void encoding_characters(void **state) { fails_each_allocation(encode_characters); }
static void passing_through_gguf(void **state) { fails_each_allocation(pass_through_gguf); }
static void training(void **state) { fails_each_allocation(train); }

static int set_up(void **state)
{
    t = make_tiny((tiny){
        .normalizer = "{\"type\": \"NFC\"}",
        .pre_tokenizer = "\"add_prefix_space\": true",
        .vocab = "\"a\": 0, \"b\": 1, \"\\u0120\": 2, \"ab\": 3, \"\\u00c3\": 4, \"\\u00a9\": 5",
        .added = "{\"id\": 9, \"content\": \"<|>\", \"special\": true, \"normalized\": false}"});
    world = open_tokenizer("tests/data/world");
    put_file("characters.json", characters_file, sizeof characters_file - 1);
    characters = open_tokenizer(in_folder("characters.json"));
    return save(NULL) == DRA_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    dra_tokenizer_destroy(t);
    dra_tokenizer_destroy(world);
    dra_tokenizer_destroy(characters);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_world),
        cmocka_unit_test(saving_world),
        cmocka_unit_test(making),
        cmocka_unit_test(opening),
        cmocka_unit_test(saving),
        cmocka_unit_test(encoding),
        cmocka_unit_test(decoding),
        cmocka_unit_test(training),
        cmocka_unit_test(opening_characters),
        cmocka_unit_test(saving_characters),
        cmocka_unit_test(encoding_characters),
        cmocka_unit_test(passing_through_gguf),
    };
    json_set_alloc_funcs(__wrap_malloc, free);
    if (folder_make(NULL) != 0 || set_up(NULL) != 0) return 1;
    const int failed = check_main("text without memory", NULL, 0, tests, COUNT(tests));
    tear_down(NULL);
    return folder_remove(NULL) == 0 ? failed : 1;
}
