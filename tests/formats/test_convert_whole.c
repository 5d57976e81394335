/* What a conversion gives is true and whole, or there is nothing: heads tied and not, numbers that
 * do not fit, the dtype of a config, a check, a stop, what killed processes have left. */
#include "model/fixtures.h"

static void save(const char *name, bool rwkv, dra_dtype dtype, double large)
{
    fixture   f;
    double    numbers[13 * 8];
    dra_error err = {0};
    char      file[300];
    if (rwkv)
        fixture_make(&f, rwkv_rows, 3, "rwkv.", "head.weight");
    else
        fixture_make(&f, gpt2_rows, 2, "transformer.", "lm_head.weight");
    dra_real *first = (dra_real *)(uintptr_t)f.item[0].data;
    if (dtype == DRA_F64) {
        for (int i = 0; i < 13 * 8; i++) numbers[i] = (double)first[i];
        numbers[50] = large;
    } else if (large != 0) {
        first[50] = (dra_real)large;
    }
    const dra_tensor_item before = f.item[0];
    if (dtype == DRA_F64) f.item[0].dtype = DRA_F64, f.item[0].data = numbers;
    snprintf(file, sizeof file, "%s/model.safetensors", name);
    fixture_folder(name, rwkv ? rwkv_config : gpt2_config);
    expect_ok(dra_tensors_write(in_folder(file), f.item, (size_t)f.n, NULL, 0, &err), &err);
    f.item[0] = before;
    fixture_free(&f);
}

static dra_model_config *config_of(const char *name)
{
    dra_model_config *c;
    dra_error         err = {0};
    expect_ok(dra_folder_config(in_folder(name), &c, &err), &err);
    return c;
}

static bool is_there(const char *name) { return access(in_folder(name), F_OK) == 0; }

/* A new place for each, so that tests need not clean up. */
static void refused(const dra_convert_config *how, const char *text)
{
    dra_error err = {0};
    const int before = folder_files(false);
    assert_int_not_equal(dra_convert(how, &err), DRA_OK);
    if (!strstr(err.text, text)) fail_msg("found:    %s\nexpected: %s", err.text, text);
    assert_int_equal(folder_files(false), before);
}

/* ---- heads ----------------------------------------------------------------------------------- */

enum { NAME = 80 };

static void find_head(void *user, const dra_convert_row *r)
{
    if (strcmp(r->to, "lm_head.weight") == 0 && r->from) snprintf(user, NAME, "%s", r->from);
}

static void convert(const char *from, const char *to, dra_switch tied, char head[NAME])
{
    dra_error                     err = {0};
    CHECK_OWNED dra_model_config *c = config_of(from);
    c->tied = tied;
    const dra_convert_config how = {
        .from = in_folder(from), .to = in_folder(to), .config = c, .row = find_head, .user = head};
    expect_ok(dra_convert(&how, &err), &err);
}

/* A head that was tied is a copy of the embedding, and goes again where it still is one. */
static void heads_are_untied_and_tied(void **unused)
{
    static const char *const names[] = {"gpt2", "untied", "tied"};
    char                     from[NAME] = "", none[NAME] = "";
    loaded                   m[3];
    save("gpt2", false, DRA_REAL, 0);
    convert("gpt2", "untied", DRA_OFF, from);
    assert_string_equal(from, "transformer.wte.weight");
    /* The file has both, and a config that says so: only then are they read as two. */
    CHECK_OWNED dra_model_config *untied = config_of("untied");
    assert_int_equal(untied->tied, DRA_OFF);
    convert("untied", "tied", DRA_ON, none);
    assert_string_equal(none, "");
    for (int i = 0; i < 3; i++) {
        load_folder(&m[i], names[i]);
        load_read(&m[i], T);
        check_reals(m[i].logits, m[0].logits, sizeof m[0].logits);
    }
    assert_int_equal(dra_model_config_of(m[2].model)->tied, DRA_ON);
    for (int i = 0; i < 3; i++) load_free(&m[i]);
}

static void heads_that_differ_stay(void **unused)
{
    save("rwkv", true, DRA_REAL, 0);
    CHECK_OWNED dra_model_config *c = config_of("rwkv");
    c->tied = DRA_ON;
    const dra_convert_config how = {
        .from = in_folder("rwkv"), .to = in_folder("never"), .config = c};
    refused(&how, "/rwkv: head and embedding differ, expected the same where tied is true");
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void numbers_beyond_a_dtype_are_refused(void **unused)
{
    dra_error          err = {0};
    dra_convert_config how = {
        .from = in_folder("large"), .to = in_folder("narrow"), .dtype = DRA_F16};
    save("large", false, DRA_REAL, -65520);
    refused(&how, "/narrow: tensor transformer.wte.weight: -65520 is beyond f16; nothing written");
    save("large", false, DRA_REAL, 65519); /* rounds to 65504 */
    expect_ok(dra_convert(&how, &err), &err);
    save("large", false, DRA_REAL, 3.4e38);
    how.to = in_folder("wide");
    how.dtype = DRA_BF16;
    refused(&how, "/wide: tensor transformer.wte.weight: 3.4e+38 is beyond bf16; nothing written");
    save("large", false, DRA_REAL, 1e38);
    expect_ok(dra_convert(&how, &err), &err);
    how = (dra_convert_config){.from = in_folder("infinite"), .to = in_folder("still")};
    how.dtype = DRA_F16;
    save("infinite", false, DRA_REAL, INFINITY); /* it was so before */
    expect_ok(dra_convert(&how, &err), &err);
}

static void doubles_beyond_real_numbers_are_refused(void **unused)
{
    dra_model               *m;
    dra_weights             *w;
    dra_error                err = {0};
    const dra_convert_config how = {.from = in_folder("doubles"), .to = in_folder("never")};
    save("doubles", false, DRA_F64, 1e300);
    if (DRA_REAL == DRA_F64) {
        expect_ok(dra_folder_load(in_folder("doubles"), &m, &w, &err), &err);
        dra_weights_destroy(w);
        dra_model_destroy(m);
        return;
    }
    refused(&how, "model.safetensors: tensor 'transformer.wte.weight': 1e+300 is beyond f32");
    assert_int_equal(dra_folder_load(in_folder("doubles"), &m, &w, &err), DRA_ERR_VALUE);
    assert_null(m);
}

/* ---- the dtype of a config ------------------------------------------------------------------- */

static void expect_keys(const char *name, const char *now, const char *old)
{
    char     *text, file[300];
    size_t    bytes;
    dra_error err = {0};
    snprintf(file, sizeof file, "%s/config.json", name);
    expect_ok(dra_file_read(in_folder(file), 1 << 16, &text, &bytes, &err), &err);
    if (now && !strstr(text, now)) fail_msg("%s: no %s", name, now);
    if (!now && strstr(text, "\"dtype\"")) fail_msg("%s: a dtype", name);
    if (old && !strstr(text, old)) fail_msg("%s: no %s", name, old);
    if (!old && strstr(text, "\"torch_dtype\"")) fail_msg("%s: a torch_dtype", name);
    free(text);
}

#ifdef DRA_REAL_DOUBLE
#define FULL "float64"
#else
#define FULL "float32"
#endif

static void configs_name_the_dtype_of_the_file(void **unused)
{
    static const struct {
        const char *key, *to;
        dra_dtype   dtype;
        const char *now, *old;
    } rows[] = {
        {"\"dtype\": \"float16\", ", "d32", DRA_F32, "\"dtype\": \"" FULL "\"", NULL},
        {"\"torch_dtype\": \"float16\", ", "d16", DRA_BF16, NULL, "\"torch_dtype\": \"bfloat16\""},
        {"\"torch_dtype\": \"float32\", \"dtype\": \"float32\", ", "both", DRA_F16,
         "\"dtype\": \"float16\"", "\"torch_dtype\": \"float16\""},
        {"", "none", DRA_F16, NULL, "\"torch_dtype\": \"float16\""},
    };
    char config[1000];
    save("said", false, DRA_REAL, 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_error                err = {0};
        const dra_convert_config how = {
            .from = in_folder("said"), .to = in_folder(rows[i].to), .dtype = rows[i].dtype};
        snprintf(config, sizeof config, "{%s%s", rows[i].key, gpt2_config + 1);
        fixture_folder("said", config);
        expect_ok(dra_convert(&how, &err), &err);
        expect_keys(rows[i].to, rows[i].now, rows[i].old);
        /* What has learned is real numbers again. */
        CHECK_OWNED dra_model_config *c = config_of(rows[i].to);
        expect_ok(dra_folder_save_config(in_folder(rows[i].to), c, &err), &err);
        expect_keys(rows[i].to, rows[i].now ? "\"dtype\": \"" FULL "\"" : NULL,
                    rows[i].old ? "\"torch_dtype\": \"" FULL "\"" : NULL);
    }
}

/* ---- nothing is left ------------------------------------------------------------------------- */

typedef struct watching {
    int  tensors; /* that are still let through */
    bool seen;    /* what is checked is whole, and has not its name yet */
} watching;

static bool stop(void *user) { return ((watching *)user)->tensors-- <= 0; }

static dra_status check(void *user, const char *path, dra_error *err)
{
    watching    *w = user;
    dra_model   *m;
    dra_weights *weights;
    expect_ok(dra_folder_load(path, &m, &weights, err), err);
    w->seen = !is_there("checked");
    dra_weights_destroy(weights);
    dra_model_destroy(m);
    snprintf(err->text, sizeof err->text, "not what it should be");
    return err->code = DRA_ERR_VALUE;
}

static void a_stop_leaves_nothing(void **unused)
{
    save("rwkv", true, DRA_REAL, 0);
    for (int i = 0; i < 60; i++) {
        watching                 w = {.tensors = i};
        const dra_convert_config how = {.from = in_folder("rwkv"),
                                        .to = in_folder("stopped"),
                                        .cpp = i % 2,
                                        .shard_bytes = i % 3 ? 0 : 500,
                                        .stop = stop,
                                        .user = &w};
        refused(&how, "/stopped: stopped; nothing written");
    }
}

static void a_failed_check_leaves_nothing(void **unused)
{
    save("rwkv", true, DRA_REAL, 0);
    for (int i = 0; i < 4; i++) {
        watching                 w = {0};
        const dra_convert_config how = {.from = in_folder("rwkv"),
                                        .to = in_folder("checked"),
                                        .cpp = i % 2,
                                        .check = check,
                                        .user = &w};
        refused(&how, "not what it should be");
        assert_true(w.seen);
    }
}

/* Only what belongs to this name, and to no process that lives. */
static void leftovers_are_swept(void **unused)
{
    static const char *const names[] = {".swept.dra-99999999.tmp",  ".swept.dra-1.tmp",
                                        ".swept.dra-old.tmp",       ".swept2.dra-99999999.tmp",
                                        ".swept.dra-99999999.tmpx", "swept.99999999.tmp"};
    dra_error                err = {0};
    char                     own[40];
    save("gpt2", false, DRA_REAL, 0);
    snprintf(own, sizeof own, ".swept.dra-%ld.tmp", (long)getpid());
    for (size_t i = 0; i < COUNT(names); i++) fixture_folder(names[i], "{}");
    fixture_folder(own, "{}");
    const dra_convert_config how = {.from = in_folder("gpt2"), .to = in_folder("swept/")};
    expect_ok(dra_convert(&how, &err), &err);
    assert_true(is_there("swept/model.safetensors"));
    assert_false(is_there(own));
    for (size_t i = 0; i < COUNT(names); i++) assert_int_equal(is_there(names[i]), i > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_untied_and_tied),
        cmocka_unit_test(heads_that_differ_stay),
        cmocka_unit_test(numbers_beyond_a_dtype_are_refused),
        cmocka_unit_test(doubles_beyond_real_numbers_are_refused),
        cmocka_unit_test(configs_name_the_dtype_of_the_file),
        cmocka_unit_test(a_stop_leaves_nothing),
        cmocka_unit_test(a_failed_check_leaves_nothing),
        cmocka_unit_test(leftovers_are_swept),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = cmocka_run_group_tests_name("convert_whole", tests, NULL, NULL);
    fixture_remove();
    return failed;
}
