/* Where x-transformers is wrong, or refuses what its options promise, and dra must not follow. The
 * list is in docs/x-transformers.md; these are the points that no other test is about. */
#include "xt_recipe.h"

enum { D = RECIPE_D, T = RECIPE_T, V = RECIPE_V };

static void expect_near(const char *what, const dra_real *a, const dra_real *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)(a[i] - b[i])) <= 1e-5))
            fail_msg("%s: number %lld is %g, expected %g", what, (long long)i, (double)a[i],
                     (double)b[i]);
}

/* ---- one head -------------------------------------------------------------------------------- */

/* A single head as wide as the model has an output projection like any other. */
static void one_head_is_projected(void **state)
{
    static const char *const releases[] = {"", ", 'release': 'N'"};
    static const char        stack[] = "'type': 'Decoder', 'depth': 2, 'dim': 16, 'heads': 1, "
                                       "'attn_dim_head': 16";
    for (size_t i = 0; i < COUNT(releases); i++) {
        recipe        r = recipe_open(releases[i], stack, "");
        recipe_result x = recipe_read(&r, &recipe_plain, "add.0");
        recipe_affine(&r, "layers.0.mixer.W_o", -2, 0);
        recipe_result y = recipe_read(&r, &recipe_plain, "add.0");
        for (int64_t k = 0; k < y.n; k++) y.at[k] /= -2;
        expect_near("one head", y.at, x.at, x.n);
        free(x.at);
        free(y.at);
        recipe_close(&r);
    }
}

/* ---- forgotten tokens ------------------------------------------------------------------------ */

/* With memory tokens and pads, too, nobody sees a forgotten token, memory tokens are seen by all,
 * and the rest of the text is as it is without pads. */
static void forgetting_knows_memory_tokens_and_pads(void **state)
{
    static const int32_t mark[T] = {0, 0, DRA_MARK_SKIP, 0, 0, 0, DRA_MARK_PAD, DRA_MARK_PAD};
    int32_t              ids[T];
    recipe               r = recipe_open(", 'num_memory_tokens': 3", XT_DECODER, "");
    recipe_result x = recipe_read(&r, &(recipe_text){1, T, recipe_ids, .mark = mark}, "logits");
    recipe_result a = recipe_read(&r, &(recipe_text){1, 6, recipe_ids, .mark = mark}, "logits");
    memcpy(ids, recipe_ids, sizeof ids);
    ids[2] = 8, ids[6] = 6, ids[7] = 1;
    recipe_result y = recipe_read(&r, &(recipe_text){1, T, ids, .mark = mark}, "logits");
    expect_near("without pads", x.at, a.at, 6 * V);
    for (int t = 0; t < 6; t++)
        if (t != 2) expect_near("another forgotten token", y.at + t * V, x.at + t * V, V);
    recipe_affine(&r, "/memory_tokens", -1, 0);
    recipe_result z = recipe_read(&r, &(recipe_text){1, T, recipe_ids, .mark = mark}, "logits");
    for (int t = 0; t < 6; t++) assert_true(fabs((double)(z.at[t * V] - x.at[t * V])) > 1e-4);
    free(x.at);
    free(a.at);
    free(y.at);
    free(z.at);
    recipe_close(&r);
}

/* ---- Transformer-XL -------------------------------------------------------------------------- */

#define PIECES(more)                                                                               \
    "{'model_type': 'x-transformers', 'wrapper': 'TransformerWrapper', 'num_tokens': 10, "         \
    "'max_seq_len': 3" more ", 'attn_layers': {" XT_DECODER ", 'rel_pos_bias': true"
#define XL PIECES(", 'max_mem_len': 6")

/* Memories belong to their layers also where a layer is left out: as if it added nothing. */
static void dropped_layers_keep_memories_in_place(void **state)
{
    static const int32_t key[4] = {1, 2, 3, 4};
    recipe               r = recipe_open_text(XL ", 'layer_dropout': [0.999, 0, 0, 0]}}");
    recipe               other = recipe_open_text(XL "}}");
    dra_reader          *reader[2];
    dra_states          *states[2];
    const recipe_text    text = {1, T, recipe_ids, .key = key};
    recipe_affine(&other, "layers.0.mixer.W_o", 0, 0);
    recipe_result x = recipe_read_in(&r, &text, "logits", 3, &reader[0], &states[0]);
    recipe_result y = recipe_read_in(&other, &recipe_plain, "logits", 3, &reader[1], &states[1]);
    recipe_result z = recipe_read(&r, &recipe_plain, "logits");
    expect_near("a dropped layer", x.at, y.at, T * V);
    assert_true(fabs((double)(z.at[T * V - 1] - y.at[T * V - 1])) > 1e-4); /* it is there */
    for (int i = 0; i < 2; i++) {
        dra_reader_destroy(reader[i]);
        dra_states_destroy(states[i]);
    }
    free(x.at);
    free(y.at);
    free(z.at);
    recipe_close(&r);
    recipe_close(&other);
}

/* Memories of length 0 are none: the same model, and a text is a single piece. */
static void no_memory_is_no_memory(void **state)
{
    recipe none = recipe_open_text(PIECES("") "}}");
    recipe zero = recipe_open_text(PIECES(", 'max_mem_len': 0") "}}");
    assert_int_equal(dra_model_config_of(zero.model)->xl.memory, 0);
    assert_int_equal(dra_specs_count(dra_model_state(zero.model)),
                     dra_specs_count(dra_model_state(none.model)));
    recipe_result x = recipe_read(&none, &recipe_plain, "logits");
    recipe_result y = recipe_read(&zero, &recipe_plain, "logits");
    check_reals(x.at, y.at, (size_t)x.n * sizeof *x.at);
    free(x.at);
    free(y.at);
    recipe_close(&none);
    recipe_close(&zero);
}

/* ---- tokens that see nothing ----------------------------------------------------------------- */

/* The first token is hidden, so it sees nothing at all: attention adds 0, whichever way it is
 * computed; with keys that all see it does not. */
static void who_sees_nothing_reads_nothing(void **state)
{
    static const int32_t     mark[T] = {DRA_MARK_SKIP};
    static const char *const how[] = {
        "", ", 'attn_flash': true", ", 'attn_post_talking_heads': true", ", 'attn_sparse_topk': 2"};
    const recipe_text text = {1, T, recipe_ids, .mark = mark};
    for (size_t i = 0; i < COUNT(how); i++) {
        recipe        r = recipe_open("", XT_DECODER, how[i]);
        recipe_result x = recipe_read(&r, &text, "add.0");
        for (int c = 0; c < D; c++) assert_true(x.at[c] == 0);
        free(x.at);
        recipe_close(&r);
    }
    recipe        r = recipe_open("", XT_DECODER, ", 'attn_num_mem_kv': 2");
    recipe_result x = recipe_read(&r, &text, "add.0");
    assert_true(x.at[0] != 0);
    free(x.at);
    recipe_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_head_is_projected),
        cmocka_unit_test(forgetting_knows_memory_tokens_and_pads),
        cmocka_unit_test(dropped_layers_keep_memories_in_place),
        cmocka_unit_test(no_memory_is_no_memory),
        cmocka_unit_test(who_sees_nothing_reads_nothing),
    };
    return check_main("xt_defects", NULL, 0, tests, COUNT(tests));
}
