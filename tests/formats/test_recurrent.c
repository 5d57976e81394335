/* Recurrent families: what their configs mean beyond the keys that test_llama covers, GGUF both
 * ways, and states in the layout of transformers. */
#include "formats/rwkv/rwkv567.h"
#include "formats/tensor_source.h"
#include "model/model.h"

/* ---- configs --------------------------------------------------------------------------------- */

/* Widths of feed-forwards as published, of which two thirds are meant; layers by their numbers. */
static void knows_the_sizes_of_LFM2(void **state)
{
    static const struct {
        const char *json;
        int64_t     inner;
    } rows[] = {
        {"\"block_ff_dim\": 6656, \"block_multiple_of\": 256", 4608},
        {"\"intermediate_size\": 12288", 8192},
        {"\"intermediate_size\": 12288, \"block_ff_dim\": 10240", 6912},
        {"\"intermediate_size\": 1000, \"block_ffn_dim_multiplier\": 1.5, \"block_multiple_of\": 4",
         1000},
        {"\"intermediate_size\": 1001, \"block_auto_adjust_ff_dim\": false", 1001}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        CHECK_CONFIG(c);
        CHECK_CONFIG(back);
        dra_error err = {0};
        char      json[400];
        snprintf(json, sizeof json,
                 "{\"model_type\": \"lfm2\", \"hidden_size\": 64, \"num_attention_heads\": 4, "
                 "\"num_hidden_layers\": 4, \"num_key_value_heads\": 2, \"full_attn_idxs\": [1, "
                 "3], \"tie_embedding\": %s, %s}",
                 i % 2 ? "false" : "true", rows[i].json);
        expect_ok(dra_model_config_parse("config.json", json, strlen(json), &c, &err), &err);
        assert_int_equal(c->ff.dim, rows[i].inner);
        assert_int_equal(c->tied, i % 2 ? DRA_OFF : DRA_ON);
        for (int l = 0; l < 4; l++)
            assert_int_equal(c->mixer[c->pattern[l]].a.memory != NULL, l % 2 == 0);
        const char *folder = in_folder("lfm2-sizes");
        mkdir(folder, 0700);
        expect_ok(dra_folder_save_config(folder, c, &err), &err);
        expect_ok(dra_folder_config(folder, &back, &err), &err);
        assert_int_equal(back->ff.dim, rows[i].inner);
    }
}

static int remove_all(void **state)
{
    fixture_remove();
    return 0;
}

#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_make, remove_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(knows_the_sizes_of_LFM2),
    };
    return check_main("recurrent families", NULL, 0, tests, COUNT(tests));
}
