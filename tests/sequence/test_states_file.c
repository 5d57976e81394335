/* State files: every kind of state there and back, and every way to be wrong: by name, by number,
 * cut short at every byte, changed at every byte of the header. A file that is refused gives one
 * line and no state; one that is accepted gives a state that can be used. */
#include "file/seal.h"
#include "reading.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "file/folder.h"
#include "sequence/states.h"

static const uint64_t FINGER = 0x1234;

/* ---- there and back -------------------------------------------------------------------------- */

#define SIZES .dim = 8, .heads = 2

static const dra_mixer_config kinds[] = {
    {SIZES},
    {SIZES, .shift = DRA_SHIFT_MIX, .a = {"wkv"}},
    {SIZES, .a = {.retrieval = "window", .window = 3}},
    {SIZES, .a = {"ema", .retrieval = "none", .ema.timescales = 3}},
    {SIZES, .rotary = true, .a = {"gru", .retrieval = "joint", .window = 70}},
    {SIZES, .a = {"gru", .joined = true, .dim = 3}},
    {SIZES, .blend = DRA_BLEND_LEARNED, .a = {.retrieval = "window", .window = 4}, .b = {"ema"}},
    {SIZES, .a = {.retrieval = "none"}}, /* no state at all */
};

/* Rows stand at different places: the second was reset, the third has read nothing. */
static void goes_there_and_back(void **state)
{
    for (size_t i = 0; i < COUNT(kinds); i++) {
        reading     r = open_reading(&kinds[i]);
        dra_states *s = new_states(r.module->state, 3), *back = NULL;
        uint64_t    seed = 9;
        dra_real   *x = random_reals(&seed, 3 * 80 * 8), y[2][3 * 2 * 8];
        int32_t     mark[3 * 80] = {[80 + 40] = DRA_MARK_RESET};
        dra_error   err = {0};
        for (int t = 0; t < 80; t++) mark[160 + t] = DRA_MARK_PAD;
        read_tokens(&r, s, 80, mark, x, NULL);
        expect_ok(dra_states_save(s, FINGER, in_folder("s"), &err), &err);
        expect_ok(
            dra_states_load(reading_device(), r.module->state, FINGER, in_folder("s"), &back, &err),
            &err);
        expect_same_states(back, s);
        assert_int_equal(dra_states_bytes(back), dra_states_bytes(s));
        read_tokens(&r, s, 2, NULL, x, y[0]);
        read_tokens(&r, back, 2, NULL, x, y[1]);
        check_reals(y[0], y[1], sizeof y[0]);
        expect_same_states(back, s);
        free(x);
        dra_states_destroy(s);
        dra_states_destroy(back);
        close_reading(&r);
    }
}

static void holds_no_sequence(void **state)
{
    reading     r = open_reading(&kinds[0]);
    dra_states *s = new_states(r.module->state, 0), *back = NULL;
    dra_error   err = {0};
    expect_ok(dra_states_save(s, FINGER, in_folder("s"), &err), &err);
    expect_ok(
        dra_states_load(reading_device(), r.module->state, FINGER, in_folder("s"), &back, &err),
        &err);
    assert_int_equal(dra_states_batch(back), 0);
    dra_states_destroy(s);
    dra_states_destroy(back);
    close_reading(&r);
}

/* ---- files made by hand ---------------------------------------------------------------------- */

/* h (2) and items K (), W () of a window of 2, for two sequences of 3 and 1 tokens. */
static dra_specs *specs;

static void open_specs(void)
{
    dra_error err = {0};
    expect_ok(dra_specs_create(&specs, &err), &err);
    dra_specs_add(specs, NULL, &(dra_spec){"h", DRA_SHAPE(2)});
    dra_specs_add(specs, NULL, &(dra_spec){"K", {0}, .items = true});
    dra_specs_add(specs, NULL, &(dra_spec){"W", {0}, .items = true, .limit = 2});
}

static const dra_real numbers[] = {1, 2, 3, 4, 5, 6, 7, 8};

static const dra_metadata_item good_metadata[] = {
    {"format", "dra-state"}, {"version", "2"}, {"fingerprint", "0000000000001234"},
    {"tokens", "3 1"},       {"begin", "0 5"}, {"end", "3 6"},
};
static const dra_tensor_item good_tensors[] = {
    {"h", DRA_REAL, {2, {2, 2}}, numbers},
    {"K", DRA_REAL, {2, {2, 3}}, numbers},
    {"W", DRA_REAL, {2, {2, 2}}, numbers},
};

static dra_status load(dra_error *err)
{
    dra_states      *s = (dra_states *)specs;
    const dra_status st = dra_states_load(reading_device(), specs, FINGER, in_folder("s"), &s, err);
    assert_true((st == DRA_OK) == (s != NULL));
    dra_states_destroy(s);
    return st;
}

static void expect_file(const dra_metadata_item *meta, size_t n_meta, const dra_tensor_item *items,
                        size_t n, dra_status code, const char *text)
{
    dra_error err = {0};
    expect_ok(dra_tensors_write_sealed(in_folder("s"), items, n, meta, n_meta, &err), &err);
    const dra_status st = load(&err);
    if (code == DRA_OK)
        expect_ok(st, &err);
    else
        check_error(&err, code, "s", text);
}

static void reads_what_is_live(void **state)
{
    dra_states *s = NULL;
    dra_error   err = {0};
    dra_real    v[3];
    expect_file(good_metadata, COUNT(good_metadata), good_tensors, COUNT(good_tensors), DRA_OK, "");
    expect_ok(dra_states_load(reading_device(), specs, FINGER, in_folder("s"), &s, &err), &err);
    assert_int_equal(dra_states_tokens(s, 0), 3);
    assert_int_equal(dra_states_items(s, 1), 1);
    expect_ok(dra_states_read(s, 1, 0, v, 3, &err), &err);
    assert_true(v[0] == 1 && v[1] == 2 && v[2] == 3);
    expect_ok(dra_states_read(s, 2, 1, v, 1, &err), &err);
    assert_true(v[0] == 3);
    dra_states_destroy(s);
}

static const struct {
    const char *key, *value; /* NULL: without it */
    const char *text;
} wrong_metadata[] = {
    {"format", NULL, ": is not a state file: format is missing, expected dra-state"},
    {"format", "other\nlines", ": is not a state file: format is other?lines, expected dra-state"},
    {"version", NULL, ": version is missing, expected 2"},
    {"version", "3", ": version is 3, expected 2"},
    {"version", "1", ": version is 1, expected 2"},
    {"fingerprint", NULL,
     ": fingerprint is missing, expected 0000000000001234: it is of another model"},
    {"fingerprint", "0000000000001235",
     ": fingerprint is 0000000000001235, expected 0000000000001234: it is of another model"},
    {"tokens", NULL, ": tokens is missing, expected numbers"},
    {"tokens", "3 x", ": tokens is 3 x, expected numbers"},
    {"tokens", "3 -1", ": tokens is 3 -1, expected numbers"},
    {"tokens", "3  1", ": tokens is 3  1, expected numbers"},
    {"tokens", "3 1 ", ": tokens is 3 1 , expected numbers"},
    {"tokens", " 3 1", ": tokens is  3 1, expected numbers"},
    {"tokens", "3 1.5", ": tokens is 3 1.5, expected numbers"},
    {"tokens", "3 +1", ": tokens is 3 +1, expected numbers"},
    {"tokens", "3 4611686018427387904",
     ": tokens is 3 4611686018427387904, expected numbers"}, /* 2^62 */
    {"tokens", "3 99999999999999999999", ": tokens is 3 99999999999999999999, expected numbers"},
    {"tokens", "3", ": tensor h: shape (2, 2), expected (1, 2)"},
    {"tokens", "", ": tensor h: shape (2, 2), expected (0, 2)"},
    {"tokens", "3 1 1", ": tensor h: shape (2, 2), expected (3, 2)"},
    {"begin", NULL, ": begin is missing, expected 2 numbers"},
    {"begin", "0", ": begin is 0, expected 2 numbers"},
    {"begin", "0 5 5", ": begin is 0 5 5, expected 2 numbers"},
    {"begin", "0 7", ": sequence 1 begins at 7, ends at 6"},
    {"end", "3 five", ": end is 3 five, expected 2 numbers"},
    {"end", "3 9", ": K holds fewer than 4 items"},
    {"end", "3 4611686018427387903", ": K holds fewer than 4611686018427387898 items"},
};

static void refuses_wrong_metadata(void **state)
{
    for (size_t i = 0; i < COUNT(wrong_metadata); i++) {
        dra_metadata_item meta[COUNT(good_metadata)];
        size_t            n = 0;
        for (size_t k = 0; k < COUNT(good_metadata); k++) {
            const bool here = strcmp(good_metadata[k].key, wrong_metadata[i].key) == 0;
            if (here && !wrong_metadata[i].value) continue;
            meta[n] = good_metadata[k];
            if (here) meta[n].value = wrong_metadata[i].value;
            n++;
        }
        expect_file(meta, n, good_tensors, COUNT(good_tensors), DRA_ERR_FORMAT,
                    wrong_metadata[i].text);
    }
}

/* Numbers of items far up are no mistake: a long text has them. */
static void refuses_a_file_without_a_hash(void **state)
{
    dra_error err = {0};
    expect_ok(dra_tensors_write(in_folder("s"), good_tensors, COUNT(good_tensors), good_metadata,
                                COUNT(good_metadata), &err),
              &err);
    load(&err);
    check_error(&err, DRA_ERR_FORMAT, "s",
                ": is damaged: its bytes are not those that were written");
}

static void accepts_large_numbers(void **state)
{
    dra_metadata_item meta[COUNT(good_metadata)];
    memcpy(meta, good_metadata, sizeof meta);
    meta[4].value = "4611686018427387900 5";
    meta[5].value = "4611686018427387903 6";
    expect_file(meta, COUNT(meta), good_tensors, COUNT(good_tensors), DRA_OK, "");
}

static const struct {
    size_t          at; /* of good_tensors; beyond: one more */
    dra_tensor_item item;
    dra_status      code;
    const char     *text;
} wrong_tensors[] = {
    {0, {"g", DRA_REAL, {2, {2, 2}}, numbers}, DRA_ERR_FORMAT, ": tensor h is missing"},
    {3, {"g", DRA_REAL, {2, {2, 2}}, numbers}, DRA_ERR_FORMAT, ": no state is called g"},
    {0,
     {"h", DRA_REAL, {2, {2, 3}}, numbers},
     DRA_ERR_FORMAT,
     ": tensor h: shape (2, 3), expected (2, 2)"},
    {0,
     {"h", DRA_REAL, {2, {1, 2}}, numbers},
     DRA_ERR_FORMAT,
     ": tensor h: shape (1, 2), expected (2, 2)"},
    {0, {"h", DRA_REAL, {0}, numbers}, DRA_ERR_FORMAT, ": tensor h: shape (), expected (2, 2)"},
    {0,
     {"h", DRA_I32, {2, {2, 2}}, numbers},
     DRA_ERR_DTYPE,
#ifdef DRA_REAL_DOUBLE
     ": tensor 'h': dtype I32, expected F64"},
#else
     ": tensor 'h': dtype I32, expected F32"},
#endif
    {1,
     {"K", DRA_REAL, {2, {2, 4}}, numbers},
     DRA_ERR_SHAPE,
     ": tensor 'K': shape (2, 4), expected (2, 3)"},
    {1, {"K", DRA_REAL, {2, {2, 2}}, numbers}, DRA_ERR_FORMAT, ": K holds fewer than 3 items"},
    {1,
     {"K", DRA_REAL, {3, {2, 3, 1}}, numbers},
     DRA_ERR_FORMAT,
     ": tensor K: shape (2, 3, 1), expected (2, 3)"},
    {1,
     {"K", DRA_REAL, {1, {2}}, numbers},
     DRA_ERR_FORMAT,
     ": tensor K: shape (2), expected (2, 0)"},
    {2, {"W", DRA_REAL, {2, {2, 1}}, numbers}, DRA_ERR_FORMAT, ": W holds fewer than 2 items"},
    {2,
     {"W", DRA_REAL, {2, {2, 3}}, numbers},
     DRA_ERR_SHAPE,
     ": tensor 'W': shape (2, 3), expected (2, 2)"},
};

static void refuses_wrong_tensors(void **state)
{
    for (size_t i = 0; i < COUNT(wrong_tensors); i++) {
        dra_tensor_item items[COUNT(good_tensors) + 1];
        memcpy(items, good_tensors, sizeof good_tensors);
        items[wrong_tensors[i].at] = wrong_tensors[i].item;
        const size_t n = COUNT(good_tensors) + (wrong_tensors[i].at == COUNT(good_tensors));
        expect_file(good_metadata, COUNT(good_metadata), items, n, wrong_tensors[i].code,
                    wrong_tensors[i].text);
    }
    expect_file(good_metadata, COUNT(good_metadata), good_tensors, 2, DRA_ERR_FORMAT,
                ": tensor W is missing");
}

static void refuses_no_file(void **state)
{
    dra_error err = {0};
    unlink(in_folder("s"));
    assert_int_equal(load(&err), DRA_ERR_FILE);
    check_error(&err, DRA_ERR_FILE, "s", ": cannot open it: No such file or directory");
    dra_states *s = new_states(specs, 1);
    assert_int_equal(dra_states_save(s, FINGER, in_folder("none/s"), &err), DRA_ERR_FILE);
    dra_states_destroy(s);
}

/* ---- damaged files --------------------------------------------------------------------------- */

/* Refused by one line that starts with the path, or accepted and fit for use. */
static bool survives(void)
{
    dra_states *s = (dra_states *)specs, *copy = NULL;
    dra_error   err = {0};
    if (dra_states_load(reading_device(), specs, FINGER, in_folder("s"), &s, &err) != DRA_OK) {
        assert_null(s);
        assert_true(strncmp(err.text, folder, strlen(folder)) == 0);
        assert_null(strpbrk(err.text, "\n\r\t\033"));
        return false;
    }
    expect_ok(dra_states_fork(s, &copy, &err), &err);
    expect_ok(dra_states_reserve(copy, 3, &err), &err);
    dra_states_advance(copy, 0, 3, NULL);
    dra_states_destroy(s);
    dra_states_destroy(copy);
    return true;
}

typedef struct image {
    unsigned char at[4096];
    size_t        n, header;
} image;

static image image_of_file(void);

static image good_image(void)
{
    dra_error err = {0};
    expect_ok(dra_tensors_write_sealed(in_folder("s"), good_tensors, COUNT(good_tensors),
                                       good_metadata, COUNT(good_metadata), &err),
              &err);
    return image_of_file();
}

static image image_of_file(void)
{
    image    m = {0};
    uint64_t length;
    FILE    *f = fopen(in_folder("s"), "rb");
    assert_non_null(f);
    m.n = fread(m.at, 1, sizeof m.at, f);
    fclose(f);
    memcpy(&length, m.at, sizeof length);
    m.header = 8 + (size_t)length;
    assert_true(m.header < m.n && m.n < sizeof m.at);
    return m;
}

/* Files are changed in place: replacing thousands of them waits for the disk each time. */
static int open_image(void)
{
    const int fd = open(in_folder("s"), O_WRONLY);
    assert_true(fd >= 0);
    return fd;
}

static void put_bytes(int fd, size_t at, const unsigned char *bytes, size_t n)
{
    assert_int_equal(pwrite(fd, bytes, n, (off_t)at), n);
}

/* With a hash that fits, so that what it says is looked at. */
static void put_image(int fd, image *m)
{
    dra_seal_text digits;
    if (m->n >= DRA_SEAL_AT + DRA_SEAL_DIGITS) {
        dra_seal_of(m->at, m->n, DRA_SEAL_AT, digits);
        memcpy(m->at + DRA_SEAL_AT, digits, DRA_SEAL_DIGITS);
    }
    put_bytes(fd, 0, m->at, m->n);
}

static void finds_every_flipped_bit_and_cut(void **state)
{
    const image m = good_image();
    const int   fd = open_image();
    assert_true(survives());
    for (size_t i = 0; i < 8 * m.n; i++) {
        put_bytes(fd, i / 8, &(unsigned char){(unsigned char)(m.at[i / 8] ^ 1 << i % 8)}, 1);
        if (survives()) fail_msg("bit %zu of byte %zu was not missed", i % 8, i / 8);
        put_bytes(fd, i / 8, &m.at[i / 8], 1);
    }
    assert_true(survives());
    for (size_t n = m.n; n-- > 0;) {
        assert_int_equal(ftruncate(fd, (off_t)n), 0);
        assert_false(survives());
    }
    close(fd);
}

static void survives_being_cut_short(void **state)
{
    image     m = good_image();
    const int fd = open_image();
    assert_true(survives());
    while (m.n-- > 0) {
        assert_int_equal(ftruncate(fd, (off_t)m.n), 0);
        put_image(fd, &m);
        assert_false(survives());
    }
    close(fd);
}

/* Every other value of every byte of the header, one at a time. */
static void survives_every_changed_byte(void **state)
{
    image     m = good_image();
    const int fd = open_image();
    int       accepted = 0;
    for (size_t i = 0; i < m.header; i++) {
        if (i >= DRA_SEAL_AT && i < DRA_SEAL_AT + DRA_SEAL_DIGITS) continue;
        const unsigned char was = m.at[i];
        for (int byte = 0; byte < 256; byte++) {
            if (byte == was) continue;
            m.at[i] = (unsigned char)byte;
            put_image(fd, &m);
            accepted += survives();
        }
        m.at[i] = was;
    }
    put_image(fd, &m);
    close(fd);
    assert_in_range(accepted, 1, 255 * 16); /* numbers that fit as well */
    assert_true(survives());
}

static void survives_random_changes(void **state)
{
    const image m = good_image();
    const int   fd = open_image();
    uint64_t    seed = 11;
    for (int n = 0; n < 4000; n++) {
        image bad = m;
        for (int k = 1 + (int)(4 * check_random(&seed)); k; k--) {
            const size_t at = (size_t)(check_random(&seed) * (double)m.n);
            bad.at[at] = (unsigned char)(256 * check_random(&seed));
        }
        put_image(fd, &bad);
        survives();
    }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_there_and_back),
        cmocka_unit_test(holds_no_sequence),
        cmocka_unit_test(reads_what_is_live),
        cmocka_unit_test(refuses_wrong_metadata),
        cmocka_unit_test(refuses_a_file_without_a_hash),
        cmocka_unit_test(accepts_large_numbers),
        cmocka_unit_test(refuses_wrong_tensors),
        cmocka_unit_test(refuses_no_file),
        cmocka_unit_test(finds_every_flipped_bit_and_cut),
        cmocka_unit_test(survives_being_cut_short),
        cmocka_unit_test(survives_every_changed_byte),
        cmocka_unit_test(survives_random_changes),
    };
    open_specs();
    const int failed = cmocka_run_group_tests_name("states_file", tests, folder_make,
                                                   folder_remove);
    dra_specs_destroy(specs);
    return failed;
}
