/* Checkpoints of nanoGPT (tests/parity/nanogpt.py): the sizes, the layout and the names that differ
 * from Hugging Face's, and what is not theirs. */
#include "model/fixtures.h"

#include "file/archive.h"
#include "formats/tensor_source.h"

static const char config_of_bias[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 13, \"n_positions\": 16, \"n_embd\": 8, "
    "\"n_layer\": 2, \"n_head\": 2, \"activation_function\": \"gelu\"}";

/* With biases, and without and with the prefix of torch.compile(). Logits are PyTorch's. */
static const struct {
    const char *file;
    bool        bias;
    int         params;
    double      last[V];
} rows[] = {{"bias.pt",
             true,
             1992,
             {0.08870723, -0.04439642, -0.42207486, -1.84149659, 0.66317814, -1.1953403, 1.03772564,
              0.46287347, 0.31005986, -0.51773554, 0.35003855, -2.67014796, 0.72719493}},
            {"plain.pt",
             false,
             1808,
             {0.5385275, -0.70430146, -1.31268832, 0.73329869, 0.67590448, -0.22612704, 1.29804907,
              -0.69487742, 1.60051012, -0.02614175, 1.81639153, -1.06738507, 0.47198327}}};

static void take(const char *file)
{
    char      path[64], *data;
    size_t    n;
    dra_error err = {0};
    snprintf(path, sizeof path, "tests/data/nanogpt/%s", file);
    expect_ok(dra_file_read(path, 1 << 20, &data, &n, &err), &err);
    put_file(file, data, n);
    free(data);
}

static void reads_both(void **unused)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        loaded m;
        take(rows[i].file);
        load_folder(&m, rows[i].file);
        const dra_model_config *c = dra_model_config_of(m.model);
        assert_true(c->vocab == 13 && c->context == 16 && c->ff.kind == DRA_FF_ERF);
        assert_true(c->bias == rows[i].bias && c->tied == DRA_ON && c->dropout == 0.1);
        assert_int_equal(dra_model_param_count(m.model), rows[i].params);
        load_read(&m, 3);
        check_close(rows[i].file, V, m.logits + (T - 1) * V, rows[i].last, 3e-6);
        load_free(&m);
    }
}

/* The same bits from the same tensors next to a config, and from a folder of Hugging Face's. */
static void layouts_agree(void **unused)
{
    loaded             nano, linear, saved;
    dra_tensor_source *s;
    dra_tensor_item    item[FIXTURE_MOST];
    dra_error          err = {0};
    take("bias.pt");
    load_folder(&nano, "bias.pt");
    load_read(&nano, T);
    expect_ok(dra_tensor_source_open(in_folder("bias.pt"), &s, &err), &err);
    assert_true(s->count == 29);
    for (size_t i = 0; i < s->count; i++) {
        const dra_tensor_info *t = s->entry[i].info;
        item[i] = (dra_tensor_item){t->name, t->dtype, t->shape, t->data};
    }
    fixture_folder("linear", config_of_bias);
    expect_ok(
        dra_tensors_write(in_folder("linear/model.safetensors"), item, s->count, NULL, 0, &err),
        &err);
    fixture_folder("saved", config_of_bias);
    expect_ok(dra_weights_save(nano.weights, in_folder("saved/model.safetensors"), &err), &err);
    load_folder(&linear, "linear");
    load_folder(&saved, "saved");
    load_read(&linear, T);
    load_read(&saved, T);
    check_reals(linear.logits, nano.logits, sizeof nano.logits);
    check_reals(saved.logits, nano.logits, sizeof nano.logits);
    dra_tensor_source_close(s);
    load_free(&saved);
    load_free(&linear);
    load_free(&nano);
}

/* A checkpoint with one tensor, that by which its kind is known, and these model_args. */
static void put_checkpoint(const char *args)
{
    static const float data[12] = {0};
    static archive     a;
    a = (archive){0};
    archive_open(&a, "r/data.pkl");
    archive_text(&a, "\x80\x02}");
    pickle_text(&a, "model");
    archive_text(&a, "}");
    pickle_tensor(&a, "_orig_mod.transformer.h.0.attn.c_attn.weight", "FloatStorage", "k", 12, 0, 2,
                  (int64_t[]){6, 2}, (int64_t[]){2, 1});
    archive_text(&a, "s");
    pickle_text(&a, "model_args");
    archive_text(&a, "}");
    for (; *args; args += strlen(args) + 1) {
        pickle_text(&a, args);
        args += strlen(args) + 1;
        archive_text(&a, args);
        archive_text(&a, "s");
    }
    archive_text(&a, "s.");
    archive_close(&a);
    archive_entry(&a, "r/data/k", data, sizeof data);
    archive_end(&a);
    put_file("made.pt", a.at, a.n);
}

#define SIZES "n_layer\0K\1\0n_head\0K\1\0n_embd\0K\2\0block_size\0K\4\0"

static void refuses_other_args(void **unused)
{
    static const struct {
        const char *args, *says;
        dra_status  code;
    } cases[] = {
        {SIZES "rope\0\x88\0",
         ": model_args: 'rope' is unknown, expected those of nanoGPT: n_layer, n_head, n_embd, "
         "block_size, vocab_size, dropout, bias",
         DRA_ERR_NAME},
        {SIZES "bias\0K\1\0", ": bias is 1, expected true or false", DRA_ERR_VALUE},
        {SIZES "dropout\0]\0", ": dropout is \"a list\", expected a number from 0 to 1",
         DRA_ERR_VALUE},
        {SIZES "vocab_size\0N\0",
         ": model_args: n_layer 1, n_head 1, n_embd 2, block_size 4, vocab_size 0, expected 1 or "
         "more of each",
         DRA_ERR_VALUE},
        {SIZES "vocab_size\0K\5\0",
         ": 15 tensors are missing: transformer.wte.weight, transformer.wpe.weight, ",
         DRA_ERR_NAME},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_model   *m;
        dra_weights *w;
        dra_error    err = {0};
        char         text[DRA_ERROR_TEXT + 64];
        put_checkpoint(cases[i].args);
        const dra_status st = dra_folder_load(in_folder("made.pt"), &m, &w, &err);
        snprintf(text, sizeof text, "%s%s", in_folder("made.pt"), cases[i].says);
        const char *more = strstr(cases[i].says, "missing") ? ", and 7 more" : "";
        const char *end = err.text + strlen(err.text) - strlen(more);
        if (strncmp(err.text, text, strlen(text)) != 0 || strcmp(end, more) != 0)
            fail_msg("%s\nnot %s", err.text, text);
        assert_int_equal(st, cases[i].code);
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
        cmocka_unit_test(reads_both),
        cmocka_unit_test(layouts_agree),
        cmocka_unit_test(refuses_other_args),
    };
    return cmocka_run_group_tests_name("nanogpt", tests, folder_make, remove_all);
}
