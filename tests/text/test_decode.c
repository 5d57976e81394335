/* Decoding: never half a letter, U+FFFD for what is broken, ids that are none. */
#include "small.h"

#define FFFD "\xef\xbf\xbd"

static dra_tokenizer *t; /* a token for each byte */

static int make(void **state) { return dra_tokenizer_bytes(&t, NULL) == DRA_OK ? 0 : -1; }
static int done(void **state)
{
    dra_tokenizer_destroy(t);
    return 0;
}

/* What comes after each byte, with a bar between, and after the flush. */
static void check_stream(const char *bytes, const char *expected)
{
    char         found[256] = "";
    const char  *text;
    size_t       n, used = 0;
    dra_decoder *d = NULL;
    assert_int_equal(dra_decoder_create(t, false, &d, NULL), DRA_OK);
    for (; *bytes; bytes++) {
        assert_int_equal(dra_decoder_push(d, (unsigned char)*bytes, &text, &n, NULL), DRA_OK);
        assert_int_equal(strlen(text), n);
        used += (size_t)snprintf(found + used, sizeof found - used, "%s|", text);
    }
    dra_decoder_flush(d, &text, &n);
    snprintf(found + used, sizeof found - used, "%s", text);
    assert_string_equal(found, expected);
    dra_decoder_destroy(d);
}

static void holds_back_half_letters(void **state)
{
    check_stream("", "");
    check_stream("ab", "a|b|");
    check_stream("\xc3\xa9", "|\xc3\xa9|");
    check_stream("\xe6\xb0\xb4!", "||\xe6\xb0\xb4|!|");
    check_stream("\xf0\x9f\x91\x8b", "|||\xf0\x9f\x91\x8b|");
}

static void replaces_what_is_broken(void **state)
{
    check_stream("\x80", FFFD "|");
    check_stream("\xff"
                 "a",
                 FFFD "|a|");
    check_stream("\xc3"
                 "a",
                 "|" FFFD "a|");
    check_stream("\xe6\xb0", "||" FFFD);
    check_stream("\xe6\xb0"
                 "a",
                 "||" FFFD "a|");
    check_stream("\xe6\xe6\xb0\xb4", "|" FFFD "||\xe6\xb0\xb4|");
    check_stream("\xed\xa0\x80", "|" FFFD FFFD "|" FFFD "|");
    check_stream("\xf0\x9f\x91\xf0", "|||" FFFD "|" FFFD);
}

static void starts_anew_after_a_flush(void **state)
{
    const char  *text;
    size_t       n;
    dra_decoder *d = NULL;
    assert_int_equal(dra_decoder_create(t, false, &d, NULL), DRA_OK);
    assert_int_equal(dra_decoder_push(d, 0xc3, &text, &n, NULL), DRA_OK);
    dra_decoder_flush(d, &text, &n);
    assert_string_equal(text, FFFD);
    assert_int_equal(dra_decoder_push(d, 0xa9, &text, &n, NULL), DRA_OK);
    assert_string_equal(text, FFFD);
    dra_decoder_flush(d, &text, &n);
    assert_int_equal(n, 0);
    dra_decoder_destroy(d);
}

static void refuses_ids_that_are_none(void **state)
{
    dra_tokenizer *holes = make_tiny((tiny){.vocab = "\"a\": 0, \"b\": 2", .merges = ""});
    const char    *text;
    size_t         n;
    dra_error      err = {0};
    dra_decoder   *d = NULL;
    assert_int_equal(dra_decoder_create(holes, false, &d, NULL), DRA_OK);
    assert_int_equal(dra_decoder_push(d, 3, &text, &n, &err), DRA_ERR_INDEX);
    assert_string_equal(err.text, "decode: id 3: the tokenizer has ids 0 to 2");
    assert_int_equal(dra_decoder_push(d, -1, &text, &n, &err), DRA_ERR_INDEX);
    assert_string_equal(err.text, "decode: id -1: the tokenizer has ids 0 to 2");
    assert_int_equal(dra_decoder_push(d, 1, &text, &n, &err), DRA_ERR_INDEX);
    assert_string_equal(err.text, "decode: id 1: the tokenizer has ids 0 to 2, but not this one");
    assert_string_equal(text, "");
    assert_int_equal(dra_decoder_push(d, 2, &text, &n, &err), DRA_OK);
    assert_string_equal(text, "b");
    dra_decoder_destroy(d);
    dra_tokenizer_destroy(holes);
}

static void leaves_special_tokens_out_if_asked(void **state)
{
    dra_tokenizer *small = small_tokenizer();
    const char    *text;
    size_t         n;
    for (int skip_them = 0; skip_them < 2; skip_them++) {
        dra_decoder *d = NULL;
        assert_int_equal(dra_decoder_create(small, skip_them, &d, NULL), DRA_OK);
        assert_int_equal(dra_decoder_push(d, dra_tokenizer_end(small), &text, &n, NULL), DRA_OK);
        assert_string_equal(text, skip_them ? "" : "<|endoftext|>");
        dra_decoder_destroy(d);
    }
    dra_tokenizer_destroy(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(holds_back_half_letters, make, done),
        cmocka_unit_test_setup_teardown(replaces_what_is_broken, make, done),
        cmocka_unit_test_setup_teardown(starts_anew_after_a_flush, make, done),
        cmocka_unit_test(refuses_ids_that_are_none),
        cmocka_unit_test(leaves_special_tokens_out_if_asked),
    };
    return check_main("decode", NULL, 0, tests, COUNT(tests));
}
