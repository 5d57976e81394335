/* Without memory: every allocation of opening, writing and reading fails once; each time there is
 * one clear error, nothing leaks, and the old file stays. */
#include "folder.h"

#include "file/header.h"
#include "file/json.h"
#include "failing.h"

static const float             x[] = {1, 2};
static const dra_tensor_item   items[] = {{"a", DRA_F32, {1, {2}}, x}, {"b", DRA_F32, {0}, x}};
static const dra_metadata_item meta[] = {{"k", "v"}};

static dra_status write_tensors(dra_error *err)
{
    return dra_tensors_write(in_folder("f"), items, COUNT(items), meta, COUNT(meta), err);
}

static dra_status open_tensors(dra_error *err)
{
    dra_tensors     *t = NULL;
    const dra_status status = dra_tensors_open(in_folder("f"), &t, err);
    assert_int_equal(status == DRA_OK, t != NULL);
    dra_tensors_close(t);
    return status;
}

static dra_status read_whole(dra_error *err)
{
    char            *data = NULL;
    size_t           n = 0;
    const dra_status status = dra_file_read(in_folder("f"), 1 << 20, &data, &n, err);
    assert_int_equal(status == DRA_OK, data != NULL);
    free(data);
    return status;
}

static void fails_each_allocation(dra_status (*function)(dra_error *))
{
    long n = 0;
    for (;; n++) {
        dra_error err = {0};
        allocations_left = n;
        const dra_status status = function(&err);
        allocations_left = -1;
        if (status == DRA_OK) break;
        if (status != DRA_ERR_MEMORY ||
            !(strstr(err.text, "/f: no memory") || strstr(err.text, "/f: out of memory")))
            fail_msg("allocation %ld: '%s'", n, err.text);
        assert_int_equal(open_tensors(NULL), DRA_OK);
        assert_int_equal(folder_files(false), 1);
    }
    assert_true(n > 0);
}

/* A checkpoint has JSON nowhere, so that every failure is one of memory. */
static void opening_checkpoints(void **state)
{
    static const char *const paths[] = {"tests/data/pth/views.pth", "tests/data/pth/old-views.pth"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        dra_tensors *t = NULL;
        long         n = 0;
        for (;; n++) {
            dra_error err = {0};
            allocations_left = n;
            const dra_status status = dra_tensors_open_any(paths[i], &t, &err);
            allocations_left = -1;
            if (status == DRA_OK) break;
            assert_null(t);
            assert_int_equal(status, DRA_ERR_MEMORY);
            if (!strstr(err.text, ".pth: out of memory"))
                fail_msg("allocation %ld: %s", n, err.text);
        }
        assert_true(n > 3);
        dra_tensors_close(t);
    }
}

static void opening(void **state) { fails_each_allocation(open_tensors); }
static void writing(void **state) { fails_each_allocation(write_tensors); }
static void reading(void **state) { fails_each_allocation(read_whole); }

static int write_first(void **state) { return write_tensors(NULL) == DRA_OK ? 0 : -1; }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(opening, write_first),
        cmocka_unit_test_setup(writing, write_first),
        cmocka_unit_test_setup(reading, write_first),
        cmocka_unit_test(opening_checkpoints),
    };
    json_set_alloc_funcs(__wrap_malloc, free);
    if (folder_make(NULL) != 0) return 1;
    const int failed = check_main("without memory", NULL, 0, tests, COUNT(tests));
    return folder_remove(NULL) == 0 ? failed : 1;
}
