/* State files with a context: every way to be wrong about it, cut short at every byte, changed at
 * every byte of the header. Refused, or fit for use. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "file/folder.h"
#include "file/seal.h"
#include "reading.h"
#include "sequence/states.h"

static const uint64_t FINGER = 0x77;

static const dra_real file_numbers[24] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

/* For rows with two items, one and none. */
static void write_file(const char *context, int64_t items)
{
    const dra_metadata_item meta[] = {
        {"format", "dra-state"}, {"version", "2"},   {"fingerprint", "0000000000000077"},
        {"tokens", "1 1 0"},     {"begin", "0 0 0"}, {"end", "0 0 0"},
        {"context", context},
    };
    const dra_tensor_item tensors[] = {
        {"K", DRA_REAL, DRA_SHAPE(3, items), file_numbers},
        {"h", DRA_REAL, DRA_SHAPE(3, 2), file_numbers},
    };
    dra_error err = {0};
    expect_ok(
        dra_tensors_write_sealed(in_folder("s"), tensors, 2, meta, COUNT(meta) - !context, &err),
        &err);
}

static dra_specs *file_specs(void)
{
    dra_specs *specs = NULL;
    dra_error  err = {0};
    expect_ok(dra_specs_create(&specs, &err), &err);
    dra_specs_add(specs, NULL, &(dra_spec){"K", {0}, .context = true});
    dra_specs_add(specs, NULL, &(dra_spec){"h", DRA_SHAPE(2)});
    return specs;
}

/* Refused by one line that starts with the path, or accepted and fit for use. */
static bool survives(const dra_specs *specs)
{
    dra_states *s = NULL, *copy = NULL;
    dra_error   err = {0};
    if (dra_states_load(reading_device(), specs, FINGER, in_folder("s"), &s, &err) != DRA_OK) {
        assert_null(s);
        assert_true(strncmp(err.text, folder, strlen(folder)) == 0);
        assert_null(strpbrk(err.text, "\n\r\t\033"));
        return false;
    }
    expect_ok(dra_states_fork(s, &copy, &err), &err);
    expect_ok(dra_states_reserve_context(copy, 70, &err), &err);
    expect_same_states(copy, s);
    dra_states_destroy(s);
    dra_states_destroy(copy);
    return true;
}

static void refuses_wrong_files(void **state)
{
    static const struct {
        const char *context;
        int64_t     items;
        dra_status  code;
        const char *text;
    } wrong[] = {
        {NULL, 2, DRA_ERR_FORMAT, ": context is missing, expected 3 numbers"},
        {"2 1", 2, DRA_ERR_FORMAT, ": context is 2 1, expected 3 numbers"},
        {"2 1 -1 0", 2, DRA_ERR_FORMAT, ": context is 2 1 -1 0, expected 3 numbers"},
        {"2 1 -2", 2, DRA_ERR_FORMAT, ": context is 2 1 -2, expected 3 numbers"},
        {"2 1 -10", 2, DRA_ERR_FORMAT, ": context is 2 1 -10, expected 3 numbers"},
        {"2 1 -", 2, DRA_ERR_FORMAT, ": context is 2 1 -, expected 3 numbers"},
        {"2 1 x", 2, DRA_ERR_FORMAT, ": context is 2 1 x, expected 3 numbers"},
        {"2 1 3", 2, DRA_ERR_FORMAT, ": K holds fewer than 3 items"},
        {"2 1 4611686018427387903", 2, DRA_ERR_FORMAT,
         ": K holds fewer than 4611686018427387903 items"},
        {"1 1 -1", 2, DRA_ERR_SHAPE, ": tensor 'K': shape (3, 2), expected (3, 1)"},
        {"-1 -1 -1", 2, DRA_ERR_SHAPE, ": tensor 'K': shape (3, 2), expected (3, 0)"},
    };
    dra_specs  *specs = file_specs();
    dra_states *s = NULL;
    dra_error   err = {0};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        write_file(wrong[i].context, wrong[i].items);
        dra_states_load(reading_device(), specs, FINGER, in_folder("s"), &s, &err);
        check_error(&err, wrong[i].code, "s", wrong[i].text);
        assert_null(s);
    }
    write_file("2 0 -1", 2);
    expect_ok(dra_states_load(reading_device(), specs, FINGER, in_folder("s"), &s, &err), &err);
    assert_int_equal(dra_states_context(s, 0), 2);
    assert_int_equal(dra_states_context(s, 1), 0);
    assert_int_equal(dra_states_context(s, 2), -1);
    dra_states_destroy(s);
    dra_specs_destroy(specs);
}

typedef struct image {
    unsigned char at[2048];
    size_t        n, header;
} image;

static image good_image(void)
{
    image    m = {0};
    uint64_t length;
    write_file("2 1 -1", 2);
    FILE *f = fopen(in_folder("s"), "rb");
    assert_non_null(f);
    m.n = fread(m.at, 1, sizeof m.at, f);
    fclose(f);
    memcpy(&length, m.at, sizeof length);
    m.header = 8 + (size_t)length;
    assert_true(m.header < m.n && m.n < sizeof m.at);
    return m;
}

/* With a hash that fits, so that what it says is looked at. */
static void put_image(int fd, image *m)
{
    dra_seal_text digits;
    dra_seal_of(m->at, m->n, DRA_SEAL_AT, digits);
    memcpy(m->at + DRA_SEAL_AT, digits, DRA_SEAL_DIGITS);
    assert_int_equal(pwrite(fd, m->at, m->n, 0), m->n);
}

static void survives_damaged_files(void **state)
{
    dra_specs *specs = file_specs();
    image      m = good_image();
    const int  fd = open(in_folder("s"), O_WRONLY);
    int        accepted = 0;
    assert_true(fd >= 0);
    for (size_t i = 0; i < m.header; i++) {
        if (i >= DRA_SEAL_AT && i < DRA_SEAL_AT + DRA_SEAL_DIGITS) continue;
        const unsigned char was = m.at[i];
        for (int k = 0; k < 20; k++) { /* every bit, then what numbers are made of */
            const int flipped = was ^ 1 << k % 8, digit = "0123456789- "[k % 12];
            m.at[i] = (unsigned char)(k < 8 ? flipped : digit);
            put_image(fd, &m);
            accepted += survives(specs) && m.at[i] != was;
        }
        m.at[i] = was;
    }
    put_image(fd, &m);
    assert_in_range(accepted, 1, 20 * 16); /* numbers that fit as well */
    assert_true(survives(specs));
    for (size_t n = m.n; n-- > 0;) {
        assert_int_equal(ftruncate(fd, (off_t)n), 0);
        assert_false(survives(specs));
    }
    close(fd);
    dra_specs_destroy(specs);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_wrong_files),
        cmocka_unit_test(survives_damaged_files),
    };
    return cmocka_run_group_tests_name("context_file", tests, folder_make, folder_remove);
}
