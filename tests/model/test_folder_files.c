/* What a model's folder holds by name: all of it goes, nothing else does. */
#include "file/folder.h"
#include "model/folder_files.h"

static const char *const model[] = {"config.json",
                                    "model.safetensors",
                                    "model.safetensors.index.json",
                                    "model-00001-of-00002.safetensors",
                                    "model-00002-of-00002.safetensors",
                                    "pytorch_model.bin",
                                    "pytorch_model.bin.index.json",
                                    "pytorch_model-00001-of-00001.bin",
                                    "tokenizer.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "encoder.json",
                                    "vocab.bpe",
                                    "rwkv_vocab_v20230424.txt",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "generation_config.json"};
static const char *const others[] = {"notes.txt",
                                     "config.json.old",
                                     "my-config.json",
                                     "model.safetensors.bak",
                                     "model-1-of-2.safetensors",
                                     "model-00001-of-00002-mine.safetensors",
                                     "model-best.safetensors",
                                     "log.jsonl"};

static void put(const char *name) { put_file(name, name, strlen(name)); }

static bool is_there(const char *name) { return access(in_folder(name), F_OK) == 0; }

static void clears_a_model_and_nothing_else(void **state)
{
    dra_error err = {0};
    for (size_t i = 0; i < COUNT(model); i++) put(model[i]);
    for (size_t i = 0; i < COUNT(others); i++) put(others[i]);
    if (dra_folder_clear(in_folder("."), &err) != DRA_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < COUNT(model); i++)
        if (is_there(model[i])) fail_msg("%s is there", model[i]);
    for (size_t i = 0; i < COUNT(others); i++)
        if (!is_there(others[i])) fail_msg("%s is gone", others[i]);
    assert_int_equal(dra_folder_clear(in_folder("nowhere"), &err), DRA_OK);
}

static void finds_a_model(void **state)
{
    dra_error err = {0};
    assert_int_equal(dra_folder_clear(in_folder("."), &err), DRA_OK);
    put("tokenizer.json");
    assert_null(dra_folder_model(in_folder(".")));
    put("pytorch_model.bin");
    assert_string_equal(dra_folder_model(in_folder(".")), "pytorch_model.bin");
    put("config.json");
    assert_string_equal(dra_folder_model(in_folder(".")), "config.json");
}

static void copies_what_is_asked_for(void **state)
{
    dra_error err = {0};
    assert_int_equal(mkdir(in_folder("to"), 0777), 0);
    for (size_t i = 0; i < COUNT(model); i++) put(model[i]);
    assert_int_equal(dra_folder_copy(in_folder("."), in_folder("to"),
                                     DRA_FOLDER_NOTES | DRA_FOLDER_HABITS, &err),
                     DRA_OK);
    assert_true(is_there("to/tokenizer_config.json"));
    assert_true(is_there("to/special_tokens_map.json"));
    assert_true(is_there("to/generation_config.json"));
    assert_false(is_there("to/tokenizer.json"));
    assert_false(is_there("to/config.json"));
    assert_int_equal(dra_folder_clear(in_folder("to"), &err), DRA_OK);
}

static void weights_have_a_folder_or_stand_alone(void **state)
{
    char found[300];
    assert_true(dra_weights_folder(in_folder("."), found, sizeof found));
    assert_string_equal(found, in_folder("."));
    assert_true(dra_weights_folder("a/b/pytorch_model.bin.index.json", found, sizeof found));
    assert_string_equal(found, "a/b/");
    assert_true(dra_weights_folder("model-00001-of-00002.safetensors", found, sizeof found));
    assert_string_equal(found, ".");
    assert_false(dra_weights_folder("a/b/rwkv.pth", found, sizeof found));
    assert_false(dra_weights_folder("a/config.json", found, sizeof found));
    assert_false(dra_weights_folder("a/b/model.safetensors", found, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clears_a_model_and_nothing_else),
        cmocka_unit_test(finds_a_model),
        cmocka_unit_test(copies_what_is_asked_for),
        cmocka_unit_test(weights_have_a_folder_or_stand_alone),
    };
    return cmocka_run_group_tests_name("folder_files", tests, folder_make, folder_remove);
}
