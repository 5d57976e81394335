/* Folders and files of models with experts: one tensor for each expert or one for all, GGUF, blocks
 * of few bits and llama.cpp's mixtures of them, and files with experts missing. */
#include "drawn.h"

#include "base/shape.h"

#ifdef DRA_REAL_DOUBLE
#define FILE_TOL 2e-6 /* GGUF has all numbers in f32 */
#else
#define FILE_TOL 0
#endif

#define MOE                                                                                        \
    "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 19, \"hidden_size\": 32, "                    \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "           \
    "\"head_dim\": 16, \"max_position_embeddings\": 64, \"moe_intermediate_size\": 32, "           \
    "\"num_experts\": 11, \"num_experts_per_tok\": 3, \"norm_topk_prob\": true}"
#define WIDE                                                                                       \
    "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 64, \"hidden_size\": 256, "                   \
    "\"num_hidden_layers\": 8, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "           \
    "\"head_dim\": 128, \"max_position_embeddings\": 64, \"moe_intermediate_size\": 32, "          \
    "\"num_experts\": 3, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true}"

static dra_tensor_source *open_source(const char *path)
{
    dra_tensor_source *s;
    dra_error          err = {0};
    expect_ok(dra_tensor_source_open(path, &s, &err), &err);
    return s;
}

/* ---- one by one, and all in one -------------------------------------------------------------- */

/* The tensors of a file as they are, not put together. */
static dra_tensors *open_file(const char *folder_path)
{
    char         path[400];
    dra_tensors *t;
    dra_error    err = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", folder_path);
    expect_ok(dra_tensors_open(path, &t, &err), &err);
    return t;
}

static void experts_are_written_one_by_one(void **state)
{
    const char  *path = draw("moe", MOE);
    dra_tensors *t = open_file(path);
    char         name[100];
    for (int e = 0; e < 11; e++) {
        snprintf(name, sizeof name, "model.layers.1.mlp.experts.%d.down_proj.weight", e);
        const dra_tensor_info *info = dra_tensors_find(t, name);
        assert_non_null(info);
        assert_true(dra_shape_equal(&info->shape, &DRA_SHAPE(32, 32)));
    }
    assert_null(dra_tensors_find(t, "model.layers.1.mlp.experts.11.down_proj.weight"));
    dra_tensors_close(t);
    dra_tensor_source             *s = open_source(path); /* and found as one */
    const dra_tensor_source_entry *e = dra_tensor_source_find(
        s, "model.layers.0.mlp.experts.#.up_proj.weight");
    assert_non_null(e);
    assert_true(dra_shape_equal(&e->info->shape, &DRA_SHAPE(11 * 32, 32)));
    dra_tensor_source_close(s);
}

enum { LAYERS = 2, EXPERTS = 11, F = 32, C = 32 };

/* The file of `from` with all experts of a layer in two tensors, as published models have them. */
static const char *pack_experts(const char *from, const char *name)
{
    static dra_real          gate_up[LAYERS][EXPERTS * 2 * F * C], down[LAYERS][EXPERTS * C * F];
    static char              names[2 * LAYERS][100];
    static const char *const kinds[] = {"gate_proj", "up_proj", "down_proj"};
    const char              *path = in_folder(name);
    char                     one[400];
    dra_tensors             *t = open_file(from);
    const size_t             count = dra_tensors_count(t);
    dra_tensor_item         *items = calloc(count + 2 * LAYERS, sizeof *items);
    size_t                   n = 0;
    dra_error                err = {0};
    assert_non_null(items);
    for (size_t i = 0; i < count; i++) {
        const dra_tensor_info *info = dra_tensors_at(t, i);
        if (strstr(info->name, ".experts.")) continue;
        items[n++] = (dra_tensor_item){info->name, info->dtype, info->shape, info->data};
    }
    for (int l = 0; l < LAYERS; l++) {
        for (int e = 0; e < EXPERTS; e++)
            for (int k = 0; k < 3; k++) {
                snprintf(one, sizeof one, "model.layers.%d.mlp.experts.%d.%s.weight", l, e,
                         kinds[k]);
                dra_real *to = k < 2 ? gate_up[l] + (2 * e + k) * F * C : down[l] + e * C * F;
                memcpy(to, dra_tensors_find(t, one)->data, F * C * sizeof *to);
            }
        for (int k = 0; k < 2; k++) {
            char *to = names[2 * l + k];
            snprintf(to, sizeof names[0], "model.layers.%d.mlp.experts.%s", l,
                     k ? "down_proj" : "gate_up_proj");
            items[n++] = (dra_tensor_item){
                to, DRA_REAL, k ? DRA_SHAPE(EXPERTS, C, F) : DRA_SHAPE(EXPERTS, 2 * F, C),
                k ? down[l] : gate_up[l]};
        }
    }
    fixture_folder(name, MOE);
    snprintf(one, sizeof one, "%s/model.safetensors", path);
    expect_ok(dra_tensors_write(one, items, n, NULL, 0, &err), &err);
    free(items);
    dra_tensors_close(t);
    return path;
}

static void all_in_one_is_the_same(void **state)
{
    expect_same_logits(in_folder("moe"), pack_experts(in_folder("moe"), "packed"), 0);
}

/* A file may have nothing else, as a shard does; and tensors of such names that are no experts. */
static void packed_tensors_alone(void **state)
{
    static const float numbers[2 * 2 * 8 * 4];
    const dra_shape    whole = DRA_SHAPE(2, 8, 4), none = DRA_SHAPE(0, 8, 4);
    dra_tensor_item    items[6];
    static char        names[6][64];
    const char        *path = in_folder("alone.safetensors");
    dra_tensor_source *s = NULL;
    dra_error          err = {0};
    for (int i = 0; i < 6; i++) {
        snprintf(names[i], sizeof names[i], "model.layers.%d.mlp.experts.gate_up_proj", i);
        items[i] = (dra_tensor_item){names[i], DRA_F32, i < 5 ? whole : none, numbers};
    }
    expect_ok(dra_tensors_write(path, items, 6, NULL, 0, &err), &err);
    s = open_source(path);
    for (int i = 0; i < 5; i++) {
        snprintf(names[i], sizeof names[i], "model.layers.%d.mlp.experts.#.up_proj.weight", i);
        const dra_tensor_source_entry *e = dra_tensor_source_find(s, names[i]);
        assert_non_null(e);
        assert_true(dra_shape_equal(&e->info->shape, &DRA_SHAPE(2 * 4, 4)));
    }
    assert_non_null(dra_tensor_source_find(s, names[5])); /* as it is */
    dra_tensor_source_close(s);
}

/* A list with a hole is no list. */
static void a_missing_expert_is_named(void **state)
{
    const char      *path = in_folder("hole");
    dra_tensors     *t = open_file(in_folder("moe"));
    dra_tensor_item *items = calloc(dra_tensors_count(t) + 1, sizeof *items);
    size_t           n = 0;
    loaded           m = {0};
    char             file[400];
    dra_error        err = {0};
    assert_non_null(items);
    for (size_t i = 0; i < dra_tensors_count(t); i++) {
        const dra_tensor_info *info = dra_tensors_at(t, i);
        if (strcmp(info->name, "model.layers.1.mlp.experts.4.up_proj.weight") == 0) continue;
        items[n++] = (dra_tensor_item){info->name, info->dtype, info->shape, info->data};
    }
    fixture_folder("hole", MOE);
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    expect_ok(dra_tensors_write(file, items, n, NULL, 0, &err), &err);
    assert_int_not_equal(dra_folder_load(path, &m.model, &m.weights, &err), DRA_OK);
    assert_non_null(strstr(err.text, "layers.1.mlp.experts.#.up_proj.weight is missing"));
    free(items);
    dra_tensors_close(t);
}

/* ---- other forms ----------------------------------------------------------------------------- */

static void gguf_there_and_back(void **state)
{
    const char *path = in_folder("moe"), *file = in_folder("moe.gguf"), *back = in_folder("back");
    dra_error   err = {0};
    expect_ok(convert(path, file, DRA_FORMAT_GGUF, &err), &err);
    expect_same_logits(path, file, FILE_TOL);
    dra_tensor_source             *s = open_source(file);
    const dra_tensor_source_entry *e = dra_tensor_source_find(s, "blk.0.ffn_down_exps.weight");
    assert_non_null(e);
    assert_true(dra_shape_equal(&e->info->shape, &DRA_SHAPE(EXPERTS, C, F)));
    dra_tensor_source_close(s);
    expect_ok(convert(file, back, DRA_FORMAT_QWEN3_MOE, &err), &err);
    expect_same_logits(path, back, FILE_TOL);
}

static dra_status convert_to_blocks(const char *from, const char *to, dra_format_kind format,
                                    dra_dtype t, dra_error *err)
{
    CHECK_CONFIG(c);
    expect_ok(dra_folder_config(from, &c, err), err);
    c->format = format;
    const dra_convert_config how = {.from = from, .to = to, .config = c, .dtype = t};
    return dra_convert(&how, err);
}

static void expect_type(const dra_tensor_source *s, const char *name, dra_dtype type)
{
    const dra_tensor_source_entry *e = dra_tensor_source_find(s, name);
    if (!e || e->info->dtype != type)
        fail_msg("%s is %s, expected %s", name, e ? e->info->dtype_name : "missing",
                 dra_dtype_get(type)->name);
}

static void blocks_are_read_in_place(void **state)
{
    const char *path = in_folder("moe"), *own = in_folder("moe.q8"),
               *file = in_folder("moe.q8.gguf");
    dra_error err = {0};
    expect_ok(convert_to_blocks(path, own, DRA_FORMAT_DRA, DRA_Q8_0, &err), &err);
    expect_ok(convert_to_blocks(path, file, DRA_FORMAT_GGUF, DRA_Q8_0, &err), &err);
    expect_same_logits(own, file, FILE_TOL);
    expect_same_logits(path, own, 0.1);
    dra_tensor_source *s = open_source(file);
    expect_type(s, "blk.1.ffn_gate_exps.weight", DRA_Q8_0);
    expect_type(s, "blk.1.ffn_gate_inp.weight", DRA_F32);
    dra_tensor_source_close(s);
}

/* 8 layers: more for the first, every third from it on, and the last. */
static void mixtures_are_those_of_llama_cpp(void **state)
{
    const char *path = draw("wide", WIDE), *file = in_folder("wide.gguf"),
               *own = in_folder("wide.own");
    dra_error err = {0};
    char      name[60];
    expect_ok(convert_to_blocks(path, file, DRA_FORMAT_GGUF, DRA_Q4_K, &err), &err);
    dra_tensor_source *s = open_source(file);
    for (int l = 0; l < 8; l++) {
        const bool more = l == 0 || l == 7 || (l - 1) % 3 == 2;
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", l);
        expect_type(s, name, more ? DRA_Q6_K : DRA_Q4_K);
        snprintf(name, sizeof name, "blk.%d.attn_q.weight", l);
        expect_type(s, name, DRA_Q4_K);
        snprintf(name, sizeof name, "blk.%d.ffn_up_exps.weight", l);
        expect_type(s, name, DRA_Q4_K);
        snprintf(name, sizeof name, "blk.%d.ffn_down_exps.weight", l); /* rows of 32 */
        expect_type(s, name, more ? DRA_Q8_0 : DRA_Q5_0);
    }
    expect_type(s, "output.weight", DRA_Q6_K);
    expect_type(s, "token_embd.weight", DRA_Q4_K);
    dra_tensor_source_close(s);
    expect_ok(convert_to_blocks(path, own, DRA_FORMAT_DRA, DRA_Q4_K, &err), &err);
    expect_same_logits(own, file, FILE_TOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_are_written_one_by_one),
        cmocka_unit_test(all_in_one_is_the_same),
        cmocka_unit_test(packed_tensors_alone),
        cmocka_unit_test(a_missing_expert_is_named),
        cmocka_unit_test(gguf_there_and_back),
        cmocka_unit_test(blocks_are_read_in_place),
        cmocka_unit_test(mixtures_are_those_of_llama_cpp),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = cmocka_run_group_tests_name("experts", tests, NULL, NULL);
    fixture_remove();
    return failed;
}
