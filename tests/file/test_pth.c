/* Checkpoints of PyTorch: files it wrote (tests/parity/pth.py), files made by hand, and damage. */
#include "folder.h"

#include "archive.h"
#include "file/format.h"
#include "file/pickle.h"

static char *fixture_read(const char *name, size_t *n)
{
    char      path[256], *data = NULL;
    dra_error err = {0};
    snprintf(path, sizeof path, "tests/data/pth/%s", name);
    if (dra_file_read(path, 1 << 20, &data, n, &err) != DRA_OK) fail_msg("%s", err.text);
    return data;
}

static dra_tensors *fixture_open(const char *name)
{
    char         path[256];
    dra_error    err = {0};
    dra_tensors *t = NULL;
    snprintf(path, sizeof path, "tests/data/pth/%s", name);
    if (dra_tensors_open_any(path, &t, &err) != DRA_OK) fail_msg("%s", err.text);
    return t;
}

static void check_numbers(const dra_tensors *t, const char *name, dra_shape shape,
                          const double *numbers)
{
    double    found[64] = {0};
    dra_error err = {0};
    if (dra_tensors_read(t, name, DRA_F64, shape, found, &err) != DRA_OK) fail_msg("%s", err.text);
    for (int64_t i = 0; i < dra_shape_count(&shape); i++)
        if (found[i] != numbers[i])
            fail_msg("%s[%d] is %g, not %g", name, (int)i, found[i], numbers[i]);
}

/* ---- what PyTorch wrote ---------------------------------------------------------------------- */

static void reads_each_dtype(void **state)
{
    static const struct {
        const char *name, *dtype;
    } rows[] = {{"float32", "F32"}, {"float16", "F16"}, {"bfloat16", "BF16"}, {"float64", "F64"},
                {"int64", "I64"},   {"int32", "I32"},   {"int16", "I16"},     {"int8", "I8"},
                {"uint8", "U8"},    {"bool", "BOOL"}};
    static const double numbers[] = {0.5, 1, 2, 3, 4, 5.5}, signs[] = {0.5, -1, 2, 3, 4, -5.5};
    dra_tensors        *t = fixture_open("plain.pth");
    assert_int_equal(dra_tensors_count(t), COUNT(rows) + 3);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const dra_tensor_info *info = dra_tensors_find(t, rows[i].name);
        assert_non_null(info);
        assert_string_equal(info->dtype_name, rows[i].dtype);
        assert_int_equal(info->bytes, 6 * dra_file_dtype_find(rows[i].dtype)->bits / 8);
        if (strstr(rows[i].name, "float")) check_numbers(t, rows[i].name, DRA_SHAPE(2, 3), numbers);
    }
    check_numbers(t, "n\xc3\xa4me", DRA_SHAPE(2, 3), signs);
    check_numbers(t, "scalar", (dra_shape){0}, (double[]){7.25});
    check_numbers(t, "nothing", DRA_SHAPE(0, 3), NULL);
    const int64_t *wide = dra_tensors_find(t, "int64")->data;
    assert_true((uintptr_t)wide % 8 == 0 && wide[5] == 5);
    dra_tensors_close(t);
}

/* whole (4, 6) holds 0, 1, 2, ... */
static void check_views(const char *file)
{
    double       numbers[24], transposed[24];
    dra_tensors *t = fixture_open(file);
    assert_int_equal(dra_tensors_count(t), 7);
    for (int i = 0; i < 24; i++) numbers[i] = i;
    for (int i = 0; i < 24; i++) transposed[i] = i % 4 * 6 + i / 4;
    check_numbers(t, "whole", DRA_SHAPE(4, 6), numbers);
    check_numbers(t, "tied", DRA_SHAPE(4, 6), numbers);
    check_numbers(t, "rows", DRA_SHAPE(2, 6), numbers + 6);
    check_numbers(t, "turned", DRA_SHAPE(6, 4), transposed);
    check_numbers(t, "cut", DRA_SHAPE(4, 3), (double[]){1, 2, 3, 7, 8, 9, 13, 14, 15, 19, 20, 21});
    check_numbers(t, "steps", DRA_SHAPE(2, 2), (double[]){0, 3, 12, 15});
    for (int i = 0; i < 24; i++)
        transposed[i] = i / 6 + i % 6 * 4; /* of (2, 3, 4) the last axis first */
    check_numbers(t, "axes", DRA_SHAPE(4, 2, 3), transposed);
    assert_ptr_equal(dra_tensors_find(t, "whole")->data, dra_tensors_find(t, "tied")->data);
    dra_tensors_close(t);
}

static void reads_shared_and_transposed_tensors(void **state) { check_views("views.pth"); }

static void reads_the_older_form(void **state) { check_views("old-views.pth"); }

static void reads_state_dicts_and_parameters(void **state)
{
    dra_tensors *t = fixture_open("module.pth");
    assert_int_equal(dra_tensors_count(t), 4);
    check_numbers(t, "0.weight", DRA_SHAPE(2, 3), (double[]){0, 1, 2, 3, 4, 5});
    check_numbers(t, "1.bias", DRA_SHAPE(2), (double[]){30, 31});
    dra_tensors_close(t);
    t = fixture_open("parameters.pth");
    check_numbers(t, "w", DRA_SHAPE(2), (double[]){1, 1});
    check_numbers(t, "frozen", DRA_SHAPE(2), (double[]){1, 1});
    dra_tensors_close(t);
}

static void refuses_what_is_no_dict_of_tensors(void **state)
{
    static const struct {
        const char *file, *says;
    } rows[] = {
        {"evil.pth", "f: global 'posix.system' is not part of a state dict "
                     "(of a whole module save its state_dict())"},
        {"nested.pth",
         "f: tensor 'model': is a dict, expected a tensor (save the dict of tensors alone)"},
        {"list.pth", "f: holds a list, expected a dict of tensors"},
        {"expanded.pth", "f: tensor 'w': is a view of more than is stored; save a copy of it"},
        {"packed.pth", "f: entry 'plain/data.pkl' of the archive is packed, not stored"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t      n;
        bool        accepted;
        dra_error   err;
        char       *data = fixture_read(rows[i].file, &n);
        const char *broken = archive_try((unsigned char *)data, n, &accepted, &err);
        if (broken) fail_msg("%s: %s", rows[i].file, broken);
        assert_string_equal(err.text, rows[i].says);
        free(data);
    }
    size_t    n;
    bool      accepted;
    dra_error err;
    char     *data = fixture_read("protocol.pth", &n);
    assert_null(archive_try((unsigned char *)data, n, &accepted, &err));
    assert_non_null(strstr(err.text, ": a pickle of another protocol, expected 2"));
    free(data);
}

/* Only those who ask for it get anything but safetensors. */
static void is_no_safetensors_file(void **state)
{
    dra_tensors *t;
    dra_error    err = {0};
    assert_int_equal(dra_tensors_open("tests/data/pth/plain.pth", &t, &err), DRA_ERR_FORMAT);
    assert_null(t);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static const char *const damaged[] = {"views.pth", "module.pth", "parameters.pth", "old-views.pth",
                                      "evil.pth"};

static void survives_every_cut(void **state)
{
    for (size_t i = 0; i < COUNT(damaged); i++) {
        size_t n;
        char  *data = fixture_read(damaged[i], &n);
        for (size_t cut = 0; cut < n; cut++) {
            bool        accepted;
            dra_error   err;
            const char *broken = archive_try((unsigned char *)data, cut, &accepted, &err);
            if (broken || accepted)
                fail_msg("%s, %zu bytes: %s", damaged[i], cut, broken ? broken : "accepted");
        }
        free(data);
    }
}

static void survives_every_changed_byte(void **state)
{
    static const unsigned char bits[] = {0x01, 0x20, 0x80, 0xff};
    for (size_t i = 0; i < COUNT(damaged); i++) {
        size_t n;
        char  *data = fixture_read(damaged[i], &n);
        for (size_t k = 0; k < n * COUNT(bits); k++) {
            bool       accepted;
            dra_error  err;
            char      *at = &data[k / COUNT(bits)];
            const char was = *at;
            *at = (char)(was ^ bits[k % COUNT(bits)]);
            const char *broken = archive_try((unsigned char *)data, n, &accepted, &err);
            if (broken) fail_msg("%s, byte %zu: %s", damaged[i], k / COUNT(bits), broken);
            *at = was;
        }
        free(data);
    }
}

/* ---- made by hand ---------------------------------------------------------------------------- */

static archive made;

static void expect_refused(const char *says)
{
    bool        accepted;
    dra_error   err;
    const char *broken = archive_try(made.at, made.n, &accepted, &err);
    if (broken) fail_msg("%s", broken);
    assert_string_equal(accepted ? "accepted" : err.text, says);
}

/* One tensor of floats over a storage of `held`, of which `stored` are there. */
static void make_one(bool wide, int64_t held, size_t stored, int64_t offset, int rank,
                     const int64_t *sizes, const int64_t *strides)
{
    static const float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    made = (archive){.wide = wide};
    archive_open(&made, "r/data.pkl");
    archive_text(&made, "\x80\x02}");
    pickle_tensor(&made, "w", "FloatStorage", "k", held, offset, rank, sizes, strides);
    archive_text(&made, ".");
    archive_close(&made);
    archive_entry(&made, "r/byteorder", "little", 6);
    archive_entry(&made, "r/data/k", data, stored * sizeof *data);
    archive_end(&made);
}

static void reads_archives_of_both_widths(void **state)
{
    for (int wide = 0; wide < 2; wide++) {
        dra_header h;
        dra_error  err = {0};
        make_one(wide, 8, 8, 1, 3, (int64_t[]){2, 1, 3}, (int64_t[]){1, INT64_MAX, 2});
        if (dra_pth_read("f", made.at, made.n, &h, &err) != DRA_OK) fail_msg("%s", err.text);
        const float found[] = {1, 3, 5, 2, 4, 6};
        assert_int_equal(h.count, 1);
        assert_memory_equal(h.tensor[0].data, found, sizeof found);
        dra_header_free(&h);
    }
}

/* A dict of a trainer: one tensor in its model, args of each kind, and an optimizer. */
static void make_trainer(const char *args)
{
    static const float data[2] = {1, 2};
    made = (archive){0};
    archive_open(&made, "r/data.pkl");
    archive_text(&made, "\x80\x02}");
    pickle_text(&made, "optimizer");
    archive_text(&made, "}");
    pickle_tensor(&made, "m", "FloatStorage", "gone", 9, 0, 1, (int64_t[]){9}, (int64_t[]){1});
    archive_text(&made, "s");
    pickle_text(&made, "model");
    archive_text(&made, "}");
    pickle_tensor(&made, "_orig_mod.w", "FloatStorage", "k", 2, 0, 1, (int64_t[]){2},
                  (int64_t[]){1});
    archive_text(&made, "s");
    pickle_text(&made, "model_args");
    archive_text(&made, "}");
    archive_text(&made, args);
    pickle_text(&made, "dropout");
    archive_put(&made, "G\x3f\xb9\x99\x99\x99\x99\x99\x9a", 9);
    archive_text(&made, "ss.");
    archive_close(&made);
    archive_entry(&made, "r/data/k", data, sizeof data);
    archive_end(&made);
}

static void reads_the_model_of_a_trainer(void **state)
{
    dra_header h;
    dra_error  err = {0};
    bool       accepted;
    make_trainer("");
    if (dra_pth_read("f", made.at, made.n, &h, &err) != DRA_OK) fail_msg("%s", err.text);
    assert_int_equal(h.count, 1);
    assert_string_equal(h.tensor[0].name, "w");
    assert_memory_equal(h.tensor[0].data, ((float[]){1, 2}), 8);
    assert_int_equal(h.n_metadata, 1);
    assert_string_equal(h.metadata[0].key, "model_args");
    assert_string_equal(h.metadata[0].value, "{\"dropout\":0.10000000000000001}");
    dra_header_free(&h);
    make_trainer("K\1K\2s");
    expect_refused("f: model_args: a key is not a name");
    make_trainer("");
    for (size_t i = 0; i < made.n; i++)
        for (unsigned bit = 1; bit < 256; bit *= 2) {
            made.at[i] ^= (unsigned char)bit;
            const char *broken = archive_try(made.at, made.n, &accepted, &err);
            if (broken) fail_msg("byte %zu: %s", i, broken);
            made.at[i] ^= (unsigned char)bit;
        }
}

static void refuses_what_lies_outside(void **state)
{
    const int64_t most = INT64_MAX, one[] = {1, 1};
    make_one(false, 8, 8, 3, 2, (int64_t[]){2, 3}, (int64_t[]){3, 1});
    expect_refused("f: tensor 'w': reaches beyond its storage");
    make_one(false, 8, 7, 0, 1, (int64_t[]){8}, one);
    expect_refused("f: tensor 'w': its storage is cut short");
    make_one(false, most, 8, 0, 1, (int64_t[]){8}, one);
    expect_refused("f: tensor 'w': its storage is cut short");
    make_one(false, 8, 8, most, 1, (int64_t[]){1}, one);
    expect_refused("f: tensor 'w': reaches beyond its storage");
    make_one(false, 8, 8, 0, 2, (int64_t[]){2, 2}, (int64_t[]){most, most});
    expect_refused("f: tensor 'w': reaches beyond its storage");
    make_one(false, 8, 8, 0, 2, (int64_t[]){most, most}, one);
    expect_refused("f: tensor 'w': is too large");
    make_one(false, 8, 8, 0, 1, (int64_t[]){-1}, one);
    expect_refused("f: tensor 'w': a size or stride is not a natural number");
    make_one(false, 8, 8, -1, 1, (int64_t[]){1}, one);
    expect_refused("f: tensor 'w': its offset is not a natural number");
    make_one(false, 8, 8, 0, 7, (int64_t[]){1, 1, 1, 1, 1, 1, 1}, (int64_t[7]){0});
    expect_refused("f: tensor 'w': expected sizes and strides of at most 6 axes");
    make_one(false, 8, 8, 0, 1, (int64_t[]){4000}, (int64_t[]){0});
    expect_refused("f: tensor 'w': is a view of more than is stored; save a copy of it");
}

static void refuses_archives_that_mislead(void **state)
{
    made = (archive){0};
    archive_entry(&made, "r/x", "", 0);
    archive_end(&made);
    expect_refused("f: a ZIP archive without data.pkl: not of PyTorch?");
    made = (archive){0};
    archive_entry(&made, "r/data.pkl", "\x80\x02}.", 4);
    archive_entry(&made, "r/byteorder", "big", 3);
    archive_end(&made);
    expect_refused("f: byteorder is not 'little'");
    made = (archive){0};
    archive_entry(&made, "r/data.pkl", "\x80\x02}.", 4);
    archive_entry(&made, "r/data.pkl", "\x80\x02}.", 4);
    archive_end(&made);
    expect_refused("f: entry 'r/data.pkl' of the archive is there twice");
    for (size_t n = 256; n < 258; n++) {
        char name[258] = "";
        memset(name, 'n', n);
        made = (archive){0};
        archive_open(&made, "r/data.pkl");
        archive_text(&made, "\x80\x02}");
        pickle_tensor(&made, name, "FloatStorage", "k", 0, 0, 1, (int64_t[]){0}, (int64_t[]){1});
        archive_text(&made, ".");
        archive_close(&made);
        archive_end(&made);
        bool      accepted;
        dra_error err;
        assert_null(archive_try(made.at, made.n, &accepted, &err));
        assert_int_equal(accepted, n == 256);
    }
    made = (archive){0};
    archive_open(&made, "r/data.pkl");
    archive_text(&made, "\x80\x02}");
    for (int i = 0; i < 2; i++)
        pickle_tensor(&made, "w", "FloatStorage", "k", 0, 0, 1, (int64_t[]){0}, (int64_t[]){1});
    archive_text(&made, ".");
    archive_close(&made);
    archive_end(&made);
    expect_refused("f: tensor 'w': is there twice");
}

/* ---- pickles --------------------------------------------------------------------------------- */

static const char *const few[] = {"a.b", "collections.OrderedDict", NULL};

static const dra_pickled *unpickle(dra_arena *arena, const char *text, size_t n, dra_error *err)
{
    const dra_pickle   p = {"f", (const unsigned char *)text, 0, n, few, arena};
    const dra_pickled *v;
    size_t             end;
    dra_pickle_read(&p, &v, &end, err);
    return v;
}

static void reads_numbers_of_every_width(void **state)
{
    static const struct {
        const char *text;
        size_t      n;
        int64_t     number;
    } rows[] = {{"K\xff.", 3, 255},
                {"M\xff\xff.", 4, 65535},
                {"J\xff\xff\xff\xff.", 6, -1},
                {"\x8a\x00.", 3, 0},
                {"\x8a\x01\xff.", 4, -1},
                {"\x8a\x02\xff\x00.", 5, 255},
                {"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.", 11, INT64_MIN}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_arena          arena = {0};
        dra_error          err = {0};
        const dra_pickled *v = unpickle(&arena, rows[i].text, rows[i].n, &err);
        if (!v) fail_msg("%s", err.text);
        assert_int_equal(v->kind, DRA_PICKLE_INT);
        assert_true(v->number == rows[i].number);
        dra_arena_free(&arena);
    }
}

/* Lists are filled in place, so one may hold itself; calls are only noted. */
static void makes_values_and_runs_nothing(void **state)
{
    dra_arena          arena = {0};
    dra_error          err = {0};
    static const char  text[] = "]q\x01(K\x01h\x01"
                                "eca\nb\nK\x02\x85R\x86.";
    const dra_pickled *v = unpickle(&arena, text, sizeof text - 1, &err);
    if (!v) fail_msg("%s", err.text);
    assert_int_equal(v->kind, DRA_PICKLE_TUPLE);
    assert_int_equal(v->count, 2);
    assert_int_equal(v->item[0]->count, 2);
    assert_ptr_equal(v->item[0]->item[1], v->item[0]);
    assert_int_equal(v->item[1]->kind, DRA_PICKLE_CALL);
    assert_string_equal(v->item[1]->text, "a.b");
    assert_int_equal(v->item[1]->item[0]->number, 2);
    dra_arena_free(&arena);
}

static void refuses_pickles(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "f: byte 0: the pickle is cut short"},
        {"K", "f: byte 1: the pickle is cut short"},
        {"X\xff\xff\xff\xff", "f: byte 5: the pickle is cut short"},
        {"cos\nsystem", "f: byte 4: the pickle is cut short"},
        {"cos\nsystem\n.", "f: global 'os.system' is not part of a state dict "
                           "(of a whole module save its state_dict())"},
        {"cbuiltins\neval\n.", "f: global 'builtins.eval' is not part of a state dict "
                               "(of a whole module save its state_dict())"},
        {"\x80\x05", "f: byte 2: a pickle of another protocol, expected 2"},
        {".", "f: byte 1: the pickle ends with more or less than one value"},
        {"NN.", "f: byte 3: the pickle ends with more or less than one value"},
        {"(.", "f: byte 2: the pickle ends with more or less than one value"},
        {"N\x86", "f: byte 2: the pickle pops more than is on its stack"},
        {"(N\x86", "f: byte 3: the pickle pops more than is on its stack"},
        {"Nt", "f: byte 2: the pickle pops more than is on its stack"},
        {"(q\x01", "f: byte 3: the pickle pops more than is on its stack"},
        {"h\x01", "f: byte 2: the pickle reads an empty place of its memo"},
        {"Nr\xff\xff\xff\xff", "f: byte 6: more than 1048576 things in the pickle's memo"},
        {"NNa", "f: byte 3: the pickle adds items to something that is not a list or dict"},
        {"}(Nu", "f: byte 4: the pickle adds items to something that is not a list or dict"},
        {"(NNu", "f: byte 4: the pickle adds items to something that is not a list or dict"},
        {"N)R", "f: byte 3: the pickle calls what is not a global"},
        {"ca\nb\nNR", "f: byte 7: the pickle calls what is not a global"},
        {"NQ", "f: byte 2: a persistent id of the pickle is not a tuple"},
        {"\x8a\x09", "f: byte 2: a number of more than 8 bytes"},
        {"i", "f: byte 1: opcode 0x69 is not part of a state dict's pickle"},
        {"\x81", "f: byte 1: opcode 0x81 is not part of a state dict's pickle"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_arena arena = {0};
        dra_error err = {0};
        assert_null(unpickle(&arena, rows[i].text, strlen(rows[i].text), &err));
        assert_string_equal(err.text, rows[i].says);
        dra_arena_free(&arena);
    }
}

static void refuses_endless_pickles(void **state)
{
    enum { N = 1 << 22 };
    char     *text = malloc(N);
    dra_arena arena = {0};
    dra_error err = {0};
    assert_non_null(text);
    memset(text, 'N', N);
    assert_null(unpickle(&arena, text, N, &err));
    assert_string_equal(err.text, "f: byte 4097: more than 4096 things on the pickle's stack");
    for (int i = 0; i < N; i += 2) memcpy(text + i, i ? "Na" : "]]", 2); /* a list fills a list */
    assert_null(unpickle(&arena, text, N, &err));
    assert_string_equal(err.text, "f: byte 2097151: more than 1048576 things in the pickle");
    dra_arena_free(&arena);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_each_dtype),
        cmocka_unit_test(reads_shared_and_transposed_tensors),
        cmocka_unit_test(reads_the_older_form),
        cmocka_unit_test(reads_state_dicts_and_parameters),
        cmocka_unit_test(refuses_what_is_no_dict_of_tensors),
        cmocka_unit_test(is_no_safetensors_file),
        cmocka_unit_test(survives_every_cut),
        cmocka_unit_test(survives_every_changed_byte),
        cmocka_unit_test(reads_archives_of_both_widths),
        cmocka_unit_test(reads_the_model_of_a_trainer),
        cmocka_unit_test(refuses_what_lies_outside),
        cmocka_unit_test(refuses_archives_that_mislead),
        cmocka_unit_test(reads_numbers_of_every_width),
        cmocka_unit_test(makes_values_and_runs_nothing),
        cmocka_unit_test(refuses_pickles),
        cmocka_unit_test(refuses_endless_pickles),
    };
    return cmocka_run_group_tests_name("pth", tests, NULL, NULL);
}
