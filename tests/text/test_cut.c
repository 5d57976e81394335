/* Cuts: a text encoded in pieces has the ids it has as a whole. */
#include "small.h"

/* Encodes what comes before every cut while the text arrives in parts of random length. */
static dra_ids in_parts(const dra_tokenizer *t, const char *text, size_t bytes, uint64_t *seed)
{
    dra_ids   ids = {0};
    dra_error err = {0};
    size_t    done = 0, here = 0;
    while (here < bytes) {
        here += 1 + (size_t)(check_random(seed) * 12);
        if (here > bytes) here = bytes;
        /* a copy of its own: a look beyond what has arrived is found by sanitizers */
        char *arrived = malloc(here - done + 1);
        assert_non_null(arrived);
        memcpy(arrived, text + done, here - done);
        const size_t cut = dra_encode_cut(t, arrived, here - done);
        assert_in_range(cut, 0, here - done);
        assert_int_equal(dra_encode(t, arrived, cut, &ids, &err), DRA_OK);
        done += cut;
        free(arrived);
    }
    assert_int_equal(dra_encode(t, text + done, bytes - done, &ids, &err), DRA_OK);
    return ids;
}

static void check_texts(const dra_tokenizer *t, const char *const *parts, size_t n, int texts)
{
    uint64_t seed = 11;
    for (int i = 0; i < texts; i++) {
        char   text[512];
        size_t bytes = 0;
        for (int k = (int)(check_random(&seed) * 30); k; k--) {
            const char *part = parts[(size_t)(check_random(&seed) * (double)n)];
            memcpy(text + bytes, part, strlen(part));
            bytes += strlen(part);
        }
        dra_ids whole = encode_bytes(t, text, bytes), ids = in_parts(t, text, bytes, &seed);
        if (whole.n != ids.n || (ids.n && memcmp(whole.data, ids.data, ids.n * sizeof *ids.data)))
            fail_msg("cut wrongly: '%.*s'", (int)bytes, text);
        dra_ids_free(&whole);
        dra_ids_free(&ids);
    }
}

static const char *const parts[] = {"the ",
                                    "word",
                                    "it's",
                                    " '",
                                    "'",
                                    "s",
                                    "re",
                                    "12",
                                    "!",
                                    "?<",
                                    "<|endoftext|>",
                                    "<|endof",
                                    "|>",
                                    " ",
                                    "  ",
                                    "   ",
                                    "                             ",
                                    "\n",
                                    "\n\n",
                                    "\t",
                                    "\r\n",
                                    "e",
                                    "\xcc\x81",
                                    "\xcc\xa3",
                                    "\xc3\xa9",
                                    "\xe6\xb0\xb4",
                                    "\xe1\x84\x92",
                                    "\xe1\x85\xa1",
                                    "\xc2\xa0",
                                    "\xe3\x80\x80",
                                    "\xff",
                                    "\xe2\x82",
                                    "\x80",
                                    "=\xcc\xb8",
                                    "\xe2\x84\xaa"};

static void keeps_the_ids_of_the_small_one(void **state)
{
    dra_tokenizer *t = small_tokenizer();
    check_texts(t, parts, COUNT(parts), 5000);
    dra_tokenizer_destroy(t);
}

static const char vocab[] =
    "\"a\": 0, \"b\": 1, \"\\u0120\": 2, \"1\": 3, \"'\": 4, \"s\": 5, \"\\u010a\": 6, "
    "\"\\u00c3\": 7, \"\\u00a9\": 8, \"\\u00cc\": 9, \"\\u0123\": 10, "
    "\"e\": 11, \"'s\": 12, \"\\u0120a\": 13, \"1e\": 14, \"\\u010a\\u010a\": 15";
static const char merges[] = "\"' s\", \"\\u0120 a\", \"1 e\", \"\\u010a \\u010a\"";

static void check_tiny(tiny p, const char *const *some, size_t n)
{
    p.vocab = vocab;
    p.merges = merges;
    dra_tokenizer *t = make_tiny(p);
    check_texts(t, some, n, 5000);
    dra_tokenizer_destroy(t);
}

static void keeps_the_ids_beside_added_tokens(void **state)
{
    static const char *const some[] = {"a", "b", " ", "\n",        "1",
                                       "'", "s", "e", "e\xcc\x81", "\xc3\xa9"};
    /* clang-format off */
    static const char added[] =
        ADDED(20, "1 ", false, "") ", "
        ADDED(21, "b\\n", false, ", \"rstrip\": true") ", "
        ADDED(22, "1\xc3\xa9", true, "") ", "
        ADDED(23, "'a'", true, ", \"lstrip\": true");
    /* clang-format on */
    check_tiny((tiny){0}, some, COUNT(some));
    check_tiny((tiny){.normalizer = "{\"type\": \"NFC\"}", .added = added}, some, COUNT(some));
    check_tiny((tiny){.pre_tokenizer = "\"add_prefix_space\": true", .added = added}, some,
               COUNT(some));
}

static void keeps_the_ids_of_entries(void **state)
{
    static const char *const more[] = {"блабла", "以下は", "、]) -> ", "<|endoftext|>", "\xe4\xbb"};
    dra_tokenizer           *t = open_tokenizer("tests/data/world");
    check_texts(t, parts, COUNT(parts), 500);
    check_texts(t, more, COUNT(more), 500);
    dra_tokenizer_destroy(t);
}

static void cuts_bytes_anywhere(void **state)
{
    dra_tokenizer *t = NULL;
    assert_int_equal(dra_tokenizer_bytes(&t, NULL), DRA_OK);
    assert_int_equal(dra_encode_cut(t, "abc", 3), 3);
    dra_tokenizer_destroy(t);
}

static void cuts_plain_text_late(void **state)
{
    dra_tokenizer *t = small_tokenizer();
    assert_int_equal(dra_encode_cut(t, "One word. Another one", 21), 17);
    assert_int_equal(dra_encode_cut(t, "line\nline\nli", 12), 9);
    assert_int_equal(dra_encode_cut(t, "word", 4), 0);
    assert_int_equal(dra_encode_cut(t, "", 0), 0);
    dra_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_ids_of_the_small_one),
        cmocka_unit_test(keeps_the_ids_beside_added_tokens),
        cmocka_unit_test(keeps_the_ids_of_entries),
        cmocka_unit_test(cuts_bytes_anywhere),
        cmocka_unit_test(cuts_plain_text_late),
    };
    return check_main("cut", NULL, 0, tests, COUNT(tests));
}
