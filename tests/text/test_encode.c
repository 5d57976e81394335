/* Encoding: ids known from elsewhere, every byte kept, texts in pieces, added tokens. */
#include "small.h"

/* ---- known ids ------------------------------------------------------------------------------- */

static void gives_the_ids_of_the_fixture(void **state)
{
    dra_tokenizer *t = small_tokenizer();
    check_cases(t, "tests/data/bpe/cases.json");
    dra_tokenizer_destroy(t);
}

static void gives_the_ids_of_gpt2(void **state)
{
    dra_tokenizer *t = real_tokenizer("", "encoder.json");
    check_ids(t, "", "");
    check_ids(t, " ", "220");
    check_ids(t, "\t", "197");
    check_ids(t, "This is some text", "1212 318 617 2420");
    check_ids(t, "indivisible", "521 452 12843");
    check_ids(t, "hello \xf0\x9f\x91\x8b world \xf0\x9f\x8c\x8d",
              "31373 50169 233 995 12520 234 235");
    check_ids(t, "toString constructor hasOwnProperty valueOf",
              "1462 10100 23772 468 23858 21746 1988 5189");
    check_ids(t, "Hello world", "15496 995");
    check_ids(t, " Hello world", "18435 995");
    check_ids(t, "The future of artificial intelligence is", "464 2003 286 11666 4430 318");
    check_ids(t, "The capital of Italy is", "464 3139 286 8031 318");
    check_ids(t, "don't DON'T it's", "9099 470 23917 6 51 340 338");
    check_ids(t, "  two  spaces\n\n  x", "220 734 220 9029 628 220 2124");
    check_ids(t, "x\xc2\xa0y", "87 1849 88");
    check_ids(t, "\xc3\xa9 e\xcc\x81", "2634 304 136 223");
    check_ids(t, "a<|endoftext|>", "64 50256");
    assert_int_equal(dra_tokenizer_size(t), 50257);
    assert_int_equal(dra_tokenizer_end(t), 50256);
    dra_tokenizer_destroy(t);
}

static void gives_the_ids_of_neox(void **state)
{
    dra_tokenizer *t = real_tokenizer("20B_tokenizer.json", "20B_tokenizer.json");
    check_ids(t, "Hello my name is", "12092 619 1416 310");
    check_ids(t, "This is an example.", "1552 310 271 1650 15");
    check_ids(t, "\n\n", "535");
    check_ids(t, "\n\n\n", "2756");
    check_ids(t, "a\n\nb", "66 187 187 67");
    check_ids(t, " a", "247");
    check_ids(t, "  a", "50276 66");
    check_ids(t, "x                         y", "89 50254 340");
    check_ids(t, "<|endoftext|>hi", "0 5801");
    check_ids(t, "e\xcc\x81", "860");
    check_ids(t, "\r\n", "2379");
    assert_int_equal(dra_tokenizer_size(t), 50277);
    assert_int_equal(dra_tokenizer_end(t), 0);
    dra_tokenizer_destroy(t);
}

/* ---- every byte ------------------------------------------------------------------------------ */

static void keeps_every_byte(void **state)
{
    dra_tokenizer *t = small_tokenizer(), *all = NULL;
    uint64_t       seed = 7;
    assert_int_equal(dra_tokenizer_bytes(&all, NULL), DRA_OK);
    for (int i = 0; i < 3000; i++) {
        char         text[64];
        const size_t n = (size_t)(check_random(&seed) * 64);
        for (size_t k = 0; k < n; k++) text[k] = (char)(check_random(&seed) * 256);
        for (size_t k = 0; k < n; k++) /* NFC may change letters: keep to what it leaves alone */
            if ((unsigned char)text[k] >= 0xcc && (unsigned char)text[k] < 0xf5)
                text[k] = (char)0xff;
        dra_ids ids = encode_bytes(t, text, n);
        check_bytes(t, &ids, text, n);
        dra_ids_free(&ids);
        ids = encode_bytes(all, text, n);
        assert_int_equal(ids.n, n);
        check_bytes(all, &ids, text, n);
        dra_ids_free(&ids);
    }
    dra_tokenizer_destroy(all);
    dra_tokenizer_destroy(t);
}

static void names_a_byte_without_a_token(void **state)
{
    dra_tokenizer *t = make_tiny((tiny){0});
    dra_ids        ids = {0};
    dra_error      err = {0};
    assert_int_equal(dra_encode(t, "ab", 2, &ids, &err), DRA_OK);
    assert_int_equal(dra_encode(t, "ab abc", 6, &ids, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "encode: the vocabulary has no token for the byte 0x63");
    assert_int_equal(ids.n, 1); /* as before */
    dra_ids_free(&ids);
    dra_tokenizer_destroy(t);
}

/* ---- merges ---------------------------------------------------------------------------------- */

static void merges_by_rank_then_place(void **state)
{
    dra_tokenizer *t = make_tiny((tiny){.vocab = "\"a\": 0, \"b\": 1, \"c\": 2, \"bc\": 3, \"ab\": "
                                                 "4, \"aa\": 5, \"aab\": 6",
                                        .merges = "\"b c\", [\"a\", \"b\"], \"a a\", \"aa b\""});
    check_ids(t, "abc", "0 3");
    check_ids(t, "ab", "4");
    check_ids(t, "aaaa", "5 5");
    check_ids(t, "aaa", "5 0");
    check_ids(t, "aab", "0 4"); /* a token that no merging of its bytes gives */
    dra_tokenizer_destroy(t);
}

/* A piece as long as the text, twice as long for twice the bytes. */
static void merges_long_pieces(void **state)
{
    enum { BYTES = 1 << 20 };
    dra_tokenizer *t = small_tokenizer();
    char          *text = malloc(BYTES);
    assert_non_null(text);
    for (size_t i = 0; i < BYTES; i++) text[i] = "abcdefghijklmnopqrstuvwxyz"[i * i % 26];
    dra_ids ids = encode_bytes(t, text, BYTES);
    check_bytes(t, &ids, text, BYTES);
    dra_ids_free(&ids);
    free(text);
    dra_tokenizer_destroy(t);
}

/* ---- added tokens ---------------------------------------------------------------------------- */

static void finds_the_first_and_longest(void **state)
{
    dra_tokenizer *t = make_tiny((tiny){.added = ADDED(5, "<b", false, "") ", " ADDED(
                                            6, "<b>", false, "") ", " ADDED(7, "b>a", false, "")});
    check_ids(t, "a<b>a", "0 6 0");
    check_ids(t, "<bab>a", "5 0 7");
    check_ids(t, "a<b", "0 5");
    dra_tokenizer_destroy(t);
}

static void takes_white_space_along(void **state)
{
    dra_tokenizer *t = make_tiny(
        (tiny){.added = ADDED(5, "<l>", false, ", \"lstrip\": true") ", " ADDED(
                   6, "<r>", false, ", \"rstrip\": true")});
    check_ids(t, "a <l> a", "0 5 2 0");
    check_ids(t, "a <r> a", "0 2 6 0");
    check_ids(t, "  <l><r>  ", "5 6");
    dra_tokenizer_destroy(t);
}

static void puts_a_space_in_front(void **state)
{
    dra_tokenizer *t = make_tiny(
        (tiny){.pre_tokenizer = "\"add_prefix_space\": true", .added = ADDED(5, "<b>", false, "")});
    check_ids(t, "", "");
    check_ids(t, "a", "2 0");
    check_ids(t, " a", "2 0");
    check_ids(t, "a<b>a<b> a", "2 0 5 2 0 5 2 0");
    dra_tokenizer_destroy(t);
}

static void takes_special_tokens_as_text_if_asked(void **state)
{
    dra_tokenizer *t = small_tokenizer();
    const char    *text = "a<|endoftext|>  b";
    dra_ids        ids = {0};
    dra_error      err = {0};
    assert_int_equal(dra_encode_plain(t, text, strlen(text), &ids, &err), DRA_OK);
    check_bytes(t, &ids, text, strlen(text));
    for (size_t i = 0; i < ids.n; i++) assert_int_not_equal(ids.data[i], dra_tokenizer_end(t));
    dra_ids_free(&ids);
    ids = encode_bytes(t, text, strlen(text));
    assert_int_equal(ids.data[1], dra_tokenizer_end(t));
    dra_ids_free(&ids);
    dra_tokenizer_destroy(t);
}

static void refuses_nothing_to_work_on(void **state)
{
    dra_ids   ids = {0};
    dra_error err = {0};
    assert_int_equal(dra_encode(NULL, "", 0, &ids, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "encode: no tokenizer, text or list of ids");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_ids_of_the_fixture),
        cmocka_unit_test(gives_the_ids_of_gpt2),
        cmocka_unit_test(gives_the_ids_of_neox),
        cmocka_unit_test(keeps_every_byte),
        cmocka_unit_test(names_a_byte_without_a_token),
        cmocka_unit_test(merges_by_rank_then_place),
        cmocka_unit_test(merges_long_pieces),
        cmocka_unit_test(finds_the_first_and_longest),
        cmocka_unit_test(takes_white_space_along),
        cmocka_unit_test(puts_a_space_in_front),
        cmocka_unit_test(takes_special_tokens_as_text_if_asked),
        cmocka_unit_test(refuses_nothing_to_work_on),
    };
    return check_main("encode", NULL, 0, tests, COUNT(tests));
}
