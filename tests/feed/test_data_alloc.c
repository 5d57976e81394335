/* Without memory: every allocation of opening fails once; each time there is one clear error,
 * nothing leaks, and nothing is left in the folder. */
#include "corpora.h"
#include "failing.h"

static dra_tokenizer *pairs;

static int make_all(void **state)
{
    if (folder_make(state) != 0) return -1;
    pairs = pairs_tokenizer(300);
    return 0;
}

static int remove_all(void **state)
{
    dra_tokenizer_destroy(pairs);
    return folder_remove(state);
}

static dra_status open_corpus(dra_corpus_config config, dra_error *err)
{
    dra_corpus *c = NULL;
    const char *path = folder;
    config.n = 1, config.paths = &path, config.tokenizer = pairs;
    const dra_status status = dra_corpus_open(&config, NULL, NULL, &c, err);
    assert_int_equal(status == DRA_OK, c != NULL);
    dra_corpus_close(c);
    return status;
}

static dra_status open_temporary(dra_error *err)
{
    return open_corpus((dra_corpus_config){.separator = "-"}, err);
}

static dra_status open_kept(dra_error *err)
{
    return open_corpus((dra_corpus_config){.cache = folder}, err);
}

static dra_status open_examples(dra_error *err)
{
    dra_examples             *e = NULL;
    const dra_examples_config c = {.path = in_folder("c.safetensors"), .B = 1};
    const dra_status          status = dra_examples_open(&c, &e, err);
    assert_int_equal(status == DRA_OK, e != NULL);
    dra_examples_close(e);
    return status;
}

/* "the packed", by gzip. */
static const unsigned char packed[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03,
                                       0x2b, 0xc9, 0x48, 0x55, 0x28, 0x48, 0x4c, 0xce, 0x4e, 0x4d,
                                       0x01, 0x00, 0xd8, 0xec, 0x11, 0x3c, 0x0a, 0x00, 0x00, 0x00};

static void fails_each_allocation(dra_status (*function)(dra_error *))
{
    const int32_t         ids[] = {1, 2};
    const uint16_t        nano[] = {256, 300, 257, 300};
    const dra_tensor_item item = {"ids", DRA_I32, DRA_SHAPE(2), ids};
    long                  n = 0;
    folder_files(true);
    put_text("a.txt", "the text\n-\nanother");
    put_text("b.jsonl", "{\"text\": \"the lines\"}\n");
    put_file("d.txt.gz", packed, sizeof packed);
    put_file("e.bin", nano, sizeof nano);
    assert_int_equal(dra_tensors_write(in_folder("c.safetensors"), &item, 1, NULL, 0, NULL),
                     DRA_OK);
    for (;; n++) {
        dra_error err = {0};
        allocations_left = n;
        const dra_status status = function(&err);
        allocations_left = -1;
        if (status == DRA_OK) break;
        if (status != DRA_ERR_MEMORY || !strstr(err.text, "memory"))
            fail_msg("allocation %ld: '%s'", n, err.text);
    }
    assert_true(n > 2);
}

static void temporary_tokens(void **state)
{
    fails_each_allocation(open_temporary);
    assert_int_equal(folder_files(false), 5);
}

static void kept_tokens(void **state)
{
    fails_each_allocation(open_kept);
    assert_int_equal(folder_files(false), 8); /* three of them kept */
}

static void examples(void **state) { fails_each_allocation(open_examples); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temporary_tokens),
        cmocka_unit_test(kept_tokens),
        cmocka_unit_test(examples),
    };
    return cmocka_run_group_tests_name("data_alloc", tests, make_all, remove_all);
}
