/* Seals: the hash of a file in the file. Every flipped bit and every cut is found, whatever the
 * parts the file was written in; files without a seal pass. */
#include "folder.h"

#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/hash.h"
#include "file/seal.h"

static const float             x[] = {1, 2, 3};
static const dra_tensor_item   items[] = {{"a", DRA_F32, {1, {3}}, x}, {"b", DRA_F32, {0}, x}};
static const dra_metadata_item meta[] = {{"k", "v"}};

/* Opens and checks; an error must name the file. */
static bool holds(void)
{
    dra_tensors *t = NULL;
    dra_error    err = {0};
    dra_status   st = dra_tensors_open(in_folder("f"), &t, &err);
    if (st == DRA_OK) st = dra_tensors_check(t, &err);
    dra_tensors_close(t);
    if (st != DRA_OK && !strstr(err.text, "/f: ")) fail_msg("%s", err.text);
    return st == DRA_OK;
}

static size_t read_image(char **data)
{
    size_t n = 0;
    assert_int_equal(dra_file_read(in_folder("f"), 1 << 28, data, &n, NULL), DRA_OK);
    return n;
}

static void seal_file(void)
{
    dra_error err = {0};
    if (dra_tensors_write_sealed(in_folder("f"), items, COUNT(items), meta, 1, &err) != DRA_OK)
        fail_msg("%s", err.text);
}

static void is_where_it_is_said_to_be(void **state)
{
    static const char begin[] = "{\"__metadata__\":{\"dra\":\"2\",\"hash\":\"";
    char             *data, digits[20];
    dra_tensors      *t = NULL;
    seal_file();
    const size_t n = read_image(&data), at = 8 + sizeof begin - 1;
    assert_memory_equal(data + 8, begin, sizeof begin - 1);
    assert_int_equal(dra_tensors_open(in_folder("f"), &t, NULL), DRA_OK);
    assert_memory_equal(dra_tensors_metadata(t, "hash"), data + at, 16);
    assert_string_equal(dra_tensors_metadata(t, "k"), "v");
    dra_tensors_close(t);
    memset(data + at, '0', 16);
    snprintf(digits, sizeof digits, "%016" PRIx64, dra_hash_of(0, data, n));
    free(data);
    read_image(&data);
    assert_memory_equal(data + at, digits, 16);
    free(data);
}

static void every_flipped_bit_is_found(void **state)
{
    char *data;
    seal_file();
    assert_true(holds());
    const size_t n = read_image(&data);
    const int    fd = open(in_folder("f"), O_WRONLY);
    assert_true(fd >= 0);
    for (size_t i = 0; i < 8 * n; i++) {
        const char bad = (char)(data[i / 8] ^ 1 << i % 8);
        assert_int_equal(pwrite(fd, &bad, 1, (off_t)(i / 8)), 1);
        if (holds()) fail_msg("bit %zu of byte %zu was not missed", i % 8, i / 8);
        assert_int_equal(pwrite(fd, &data[i / 8], 1, (off_t)(i / 8)), 1);
    }
    assert_true(holds());
    for (size_t i = n; i-- > 0;) {
        assert_int_equal(ftruncate(fd, (off_t)i), 0);
        assert_false(holds());
    }
    close(fd);
    free(data);
}

static const void *make(void *user, dra_error *err) { return user; }

/* Parts of a megabyte go around the writer's buffer, small ones through it. */
static void parts_do_not_matter(void **state)
{
    enum { LARGE = 1 << 18, PARTS = 5 };
    static float    all[PARTS * LARGE];
    dra_tensor_item many[PARTS + 1] = {{"tiny", DRA_F32, {1, {3}}, x}};
    char            name[PARTS][16], *data;
    for (size_t i = 0; i < COUNT(all); i++) all[i] = (float)i;
    for (int i = 0; i < PARTS; i++) {
        snprintf(name[i], sizeof name[i], "part%d", i);
        many[i + 1] = (dra_tensor_item){
            name[i], DRA_F32, {1, {LARGE - i}}, .make = make, .user = all + i * LARGE};
    }
    assert_int_equal(dra_tensors_write_sealed(in_folder("f"), many, PARTS + 1, meta, 1, NULL),
                     DRA_OK);
    assert_true(holds());
    const size_t n = read_image(&data);
    const int    fd = open(in_folder("f"), O_WRONLY);
    for (size_t at = 1000; at < n; at += n / 50) {
        const char bad = (char)(data[at] ^ 4);
        assert_int_equal(pwrite(fd, &bad, 1, (off_t)at), 1);
        assert_false(holds());
        assert_int_equal(pwrite(fd, &data[at], 1, (off_t)at), 1);
    }
    close(fd);
    assert_true(holds());
    free(data);
}

static void others_have_none(void **state)
{
    const dra_metadata_item theirs[] = {{"format", "pt"}, {"hash", "0123456789abcdef"}};
    const dra_metadata_item later[] = {{"dra", "2"}, {"k", "v"}};
    assert_int_equal(dra_tensors_write(in_folder("f"), items, 2, theirs, 2, NULL), DRA_OK);
    assert_true(holds());
    assert_int_equal(dra_tensors_write(in_folder("f"), items, 2, NULL, 0, NULL), DRA_OK);
    assert_true(holds());
    assert_int_equal(dra_tensors_write(in_folder("f"), items, 2, later, 2, NULL), DRA_OK);
    assert_false(holds()); /* says that it has one */
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static bool reads(const char *text, size_t n)
{
    json_t    *o = NULL;
    dra_error  err = {0};
    const bool ok = dra_json_parse_sealed("j.json", text, n, 8, &o, &err) == DRA_OK;
    if (!ok && strncmp(err.text, "j.json: ", 8) != 0) fail_msg("%s", err.text);
    const bool whole = ok && json_integer_value(json_object_get(o, "a")) == 7 &&
                       !json_object_get(o, "hash");
    json_decref(o);
    return whole;
}

static void json_is_sealed(void **state)
{
    dra_json  j = {0};
    json_t   *o = dra_json_object(&j), *inner = dra_json_object(&j);
    char     *text = NULL;
    size_t    n = 0;
    dra_error err = {0};
    dra_json_set(&j, inner, "x", dra_json_real(&j, 0.1));
    dra_json_set(&j, o, "a", dra_json_int(&j, 7));
    dra_json_set(&j, o, "inner", inner);
    assert_int_equal(dra_json_dump_sealed(&j, o, "j.json", &text, &n, &err), DRA_OK);
    assert_true(reads(text, n));
    for (size_t i = 0; i < 8 * n; i++) {
        text[i / 8] = (char)(text[i / 8] ^ 1 << i % 8);
        if (reads(text, n)) fail_msg("bit %zu of byte %zu was not missed", i % 8, i / 8);
        text[i / 8] = (char)(text[i / 8] ^ 1 << i % 8);
    }
    for (size_t i = 0; i < n; i++) assert_false(reads(text, i));
    json_decref(o);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_where_it_is_said_to_be), cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(parts_do_not_matter), cmocka_unit_test(others_have_none),
        cmocka_unit_test(json_is_sealed)};
    if (folder_make(NULL) != 0) return 1;
    const int failed = check_main("seal", NULL, 0, tests, COUNT(tests));
    return folder_remove(NULL) == 0 ? failed : 1;
}
