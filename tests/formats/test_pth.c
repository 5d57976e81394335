/* Models whose weights are checkpoints of PyTorch (tests/parity/pth.py): one file, shards, files
 * without a config. Each has a twin with the same tensors as safetensors. */
#include "model/fixtures.h"

#include "formats/tensor_source.h"

static const char rwkv_small[] =
    "{\"model_type\": \"rwkv\", \"vocab_size\": 13, \"hidden_size\": 8, \"num_hidden_layers\": 2, "
    "\"intermediate_size\": 12, \"rescale_every\": 0}";

/* A file of tests/data/pth under another name in the folder of the test. */
static void take_file(const char *from, const char *to)
{
    char      path[256], *data;
    size_t    n;
    dra_error err = {0};
    snprintf(path, sizeof path, "tests/data/pth/%s", from);
    expect_ok(dra_file_read(path, 1 << 20, &data, &n, &err), &err);
    put_file(to, data, n);
    free(data);
}

/* All tensors of `from` but one as a safetensors file. */
static void write_without(const char *from, const char *without, const char *to)
{
    dra_tensor_source *s;
    dra_error          err = {0};
    dra_tensor_item    item[FIXTURE_MOST];
    size_t             n = 0;
    expect_ok(dra_tensor_source_open(in_folder(from), &s, &err), &err);
    assert_true(s->count > 0 && s->count <= FIXTURE_MOST);
    for (size_t i = 0; i < s->count; i++) {
        const dra_tensor_info *t = s->entry[i].info;
        if (strcmp(t->name, without) != 0)
            item[n++] = (dra_tensor_item){t->name, t->dtype, t->shape, t->data};
    }
    expect_ok(dra_tensors_write(in_folder(to), item, n, NULL, 0, &err), &err);
    dra_tensor_source_close(s);
}

/* The same tensors in the folder `to`. */
static void make_twin(const char *from, const char *to, const char *config)
{
    char file[300];
    fixture_folder(to, config);
    snprintf(file, sizeof file, "%s/model.safetensors", to);
    write_without(from, "", file);
}

static void expect_same_logits(const char *a, const char *b, dra_real logits[T * V])
{
    loaded x, y;
    load_folder(&x, a);
    load_folder(&y, b);
    load_read(&x, 3);
    load_read(&y, 3);
    check_reals(x.logits, y.logits, sizeof x.logits);
    memcpy(logits, x.logits, sizeof x.logits);
    load_free(&x);
    load_free(&y);
}

/* The reference numbers of test_format.c; its weights have the digits of a float here. */
static void check_gpt2(const dra_real *logits)
{
    static const double last[] = {1.33606101, -1.60652995, 0.60875973, -0.33944507};
    check_close("last", 4, logits + (T - 1) * V, last, 3e-6);
}

static void gpt2_of_one_old_file(void **unused)
{
    dra_real logits[T * V];
    fixture_folder("one", gpt2_config);
    take_file("old-gpt2.bin", "one/pytorch_model.bin");
    make_twin("one", "one-twin", gpt2_config);
    expect_same_logits("one", "one-twin", logits);
    check_gpt2(logits);
}

static void gpt2_of_shards(void **unused)
{
    dra_real logits[T * V];
    fixture_folder("shards", gpt2_config);
    take_file("gpt2.bin.index.json", "shards/pytorch_model.bin.index.json");
    take_file("gpt2-00001-of-00002.bin", "shards/gpt2-00001-of-00002.bin");
    take_file("gpt2-00002-of-00002.bin", "shards/gpt2-00002-of-00002.bin");
    make_twin("shards", "shards-twin", gpt2_config);
    expect_same_logits("shards", "shards-twin", logits);
    check_gpt2(logits);
}

/* Half precision, by the names of the original checkpoints: in a folder, and as a file alone, whose
 * config follows from its tensors. */
static void rwkv_with_and_without_a_config(void **unused)
{
    dra_real logits[T * V];
    CHECK_CONFIG(c);
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    fixture_folder("rwkv", rwkv_small);
    take_file("rwkv.pth", "rwkv/pytorch_model.bin");
    take_file("rwkv.pth", "alone.pth");
    make_twin("rwkv", "rwkv-twin", rwkv_small);
    expect_same_logits("rwkv", "rwkv-twin", logits);
    expect_same_logits("alone.pth", "rwkv-twin", logits);
    fixture_folder("short", rwkv_small);
    take_file("rwkv.pth", "short/model.pth");
    expect_same_logits("short", "rwkv-twin", logits);
    take_file("plain.pth", "short/model.pt"); /* comes first */
    assert_int_equal(dra_folder_load(in_folder("short"), &m, &w, &err), DRA_ERR_NAME);
    expect_ok(dra_folder_config(in_folder("alone.pth"), &c, &err), &err);
    assert_true(c->vocab == 13 && c->dim == 8 && c->depth == 2 && c->ff.dim == 12);
    assert_int_equal(c->format, DRA_FORMAT_RWKV);
    assert_int_equal(c->tied, DRA_OFF);
}

/* Here the weights stand for their gradients: tensors of the file, in their shapes. */
static void expect_like(const char *model)
{
    static const dra_real *values[FIXTURE_MOST];
    dra_model             *m;
    dra_weights           *w;
    dra_tensor_source     *file;
    dra_tensors           *like;
    dra_error              err = {0};
    expect_ok(dra_folder_load(in_folder(model), &m, &w, &err), &err);
    for (int i = 0; i < dra_specs_count(dra_model_params(m)); i++) values[i] = dra_weights_at(w, i);
    expect_ok(dra_weights_save_like(w, values, 0, NULL, in_folder("like.safetensors"), &err), &err);
    expect_ok(dra_tensors_open(in_folder("like.safetensors"), &like, &err), &err);
    expect_ok(dra_tensor_source_open(in_folder(model), &file, &err), &err);
    assert_true(dra_tensors_count(like) > 20);
    for (size_t i = 0; i < dra_tensors_count(like); i++) {
        const dra_tensor_info         *is = dra_tensors_at(like, i);
        const dra_tensor_source_entry *e = dra_tensor_source_find(file, is->name);
        if (!e) fail_msg("%s is not in the file", is->name);
        assert_true(dra_shape_equal(&is->shape, &e->info->shape));
    }
    dra_tensor_source_close(file);
    dra_tensors_close(like);
    dra_weights_destroy(w);
    dra_model_destroy(m);
}

static void gradients_are_named_as_in_the_file(void **unused)
{
    take_file("rwkv.pth", "alone.pth");
    expect_like("alone.pth");
    fixture_folder("rwkv", rwkv_small);
    take_file("rwkv.pth", "rwkv/pytorch_model.bin");
    expect_like("rwkv");
    fixture_folder("gpt2", gpt2_config);
    take_file("old-gpt2.bin", "gpt2/pytorch_model.bin");
    expect_like("gpt2");
}

/* safetensors first, then PyTorch's. */
static void safetensors_come_first(void **unused)
{
    dra_tensor_source *s;
    dra_error          err = {0};
    expect_ok(dra_tensor_source_open(in_folder("one"), &s, &err), &err);
    assert_non_null(strstr(s->path, "/pytorch_model.bin"));
    dra_tensor_source_close(s);
    put_file("one/model.safetensors", "", 0);
    assert_int_equal(dra_tensor_source_open(in_folder("one"), &s, &err), DRA_ERR_FORMAT);
    assert_non_null(strstr(err.text, "model.safetensors: is none of these: safetensors, a "));
    assert_int_equal(unlink(in_folder("one/model.safetensors")), 0);
}

static void refuses_by_name(void **unused)
{
    CHECK_CONFIG(c);
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    take_file("plain.pth", "plain.pth");
    assert_int_equal(dra_folder_config(in_folder("plain.pth"), &c, &err), DRA_ERR_FORMAT);
    check_error(
        &err, DRA_ERR_FORMAT, "plain.pth",
        ": expected a model's folder, GGUF, a file of rwkv.cpp, or a checkpoint of RWKV or "
        "nanoGPT; put a state dict of another model as model.pt next to its config.json, and "
        "give that folder");
    fixture_folder("evil", gpt2_config);
    take_file("evil.pth", "evil/pytorch_model.bin");
    assert_int_equal(dra_folder_load(in_folder("evil"), &m, &w, &err), DRA_ERR_FORMAT);
    assert_null(m);
    check_error(&err, DRA_ERR_FORMAT, "evil/pytorch_model.bin",
                ": global 'posix.system' is not part of a state dict (of a whole module save its "
                "state_dict())");
    fixture_folder("none", gpt2_config);
    assert_int_equal(dra_folder_load(in_folder("none"), &m, &w, &err), DRA_ERR_FILE);
    assert_non_null(strstr(err.text, "none/model.safetensors: cannot open it"));
}

static void files_of_no_format_are_named(void **unused)
{
    static const char *const texts[] = {"Once upon a time there was", "Once up", "", "{\"a\": 1}"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        dra_model   *m;
        dra_weights *w;
        dra_error    err = {0};
        put_file("book.txt", texts[i], strlen(texts[i]));
        assert_int_equal(dra_folder_load(in_folder("book.txt"), &m, &w, &err), DRA_ERR_FORMAT);
        check_error(
            &err, DRA_ERR_FORMAT, "book.txt",
            ": is none of these: safetensors, a checkpoint of PyTorch, GGUF, a file of rwkv.cpp");
    }
}

/* By the name it would have in such a file, also the one that layers were once counted by. */
static void a_missing_tensor_is_named(void **unused)
{
    static const char *const names[] = {"blocks.1.att.key.weight", "blocks.1.ln1.weight",
                                        "blocks.0.ffn.time_mix_k", "ln_out.bias"};
    take_file("rwkv.pth", "whole.pth");
    for (size_t i = 0; i < COUNT(names); i++) {
        dra_model   *m;
        dra_weights *w;
        dra_error    err = {0};
        char         text[100];
        write_without("whole.pth", names[i], "cut.safetensors");
        assert_int_equal(dra_folder_load(in_folder("cut.safetensors"), &m, &w, &err), DRA_ERR_NAME);
        snprintf(text, sizeof text, ": tensor %s is missing", names[i]);
        check_error(&err, DRA_ERR_NAME, "cut.safetensors", text);
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
        cmocka_unit_test(gpt2_of_one_old_file),
        cmocka_unit_test(gpt2_of_shards),
        cmocka_unit_test(rwkv_with_and_without_a_config),
        cmocka_unit_test(gradients_are_named_as_in_the_file),
        cmocka_unit_test(a_missing_tensor_is_named),
        cmocka_unit_test(files_of_no_format_are_named),
        cmocka_unit_test(safetensors_come_first),
        cmocka_unit_test(refuses_by_name),
    };
    return cmocka_run_group_tests_name("pth", tests, folder_make, remove_all);
}
