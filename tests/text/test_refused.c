/* tokenizer.json that asks for what dra does not do, or is damaged: one line each. */
#include "small.h"

static char  *good; /* tests/data/bpe/tokenizer.json */
static size_t good_bytes;

static int load(void **state)
{
    return dra_file_read("tests/data/bpe/tokenizer.json", 1 << 24, &good, &good_bytes, NULL) ==
                   DRA_OK
               ? 0
               : -1;
}

static int unload(void **state)
{
    free(good);
    return 0;
}

static void check_refused_text(const char *text, const char *expected)
{
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    const size_t   n = strlen(text);
    assert_int_equal(dra_tokenizer_read_json("f", text, n, &t, &err), DRA_ERR_FORMAT);
    assert_null(t);
    assert_string_equal(err.text, expected);
}

/* Every row is the file with one place changed. */
static void refuses_what_it_does_not_do(void **state)
{
    static const char *const rows[][3] = {
        {"\"version\":\"1.0\"", "\"version\":\"2.0\"",
         "f: version: expected \"1.0\", found \"2.0\""},
        {"\"truncation\":null", "\"truncation\":{\"max_length\":5}",
         "f: truncation: expected null, found an object"},
        {"\"padding\":null", "\"padding\":3", "f: padding: expected null, found 3"},
        {"\"padding\":null", "\"extra\":null", "f: extra: no such key is known"},
        {"{\"type\":\"NFC\"}", "{\"type\":\"NFKC\"}",
         "f: normalizer.type: expected one of NFC, Prepend, Replace, found \"NFKC\""},
        {"{\"type\":\"NFC\"}", "\"NFC\"",
         "f: normalizer: expected null or an object, found \"NFC\""},
        {"\"pre_tokenizer\":{\"type\":\"ByteLevel\"", "\"pre_tokenizer\":{\"type\":\"Whitespace\"",
         "f: pre_tokenizer.type: expected one of ByteLevel, Split, Digits, Metaspace, found "
         "\"Whitespace\""},
        {"\"trim_offsets\":true,\"use_regex\":true", "\"trim_offsets\":true,\"use_regex\":false",
         "f: pre_tokenizer: expected ByteLevel, alone with use_regex or after Digits, or after "
         "Split without use_regex, or Metaspace"},
        {"\"pre_tokenizer\":", "\"pre_tokeniser\":",
         "f: pre_tokenizer: expected null or an object, found nothing"},
        {"\"post_processor\":null",
         "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[1,2]}",
         "f: post_processor.single: expected one text and special tokens"},
        {"\"post_processor\":null", "\"post_processor\":{\"type\":\"RobertaProcessing\"}",
         "f: post_processor.type: expected one of ByteLevel, TemplateProcessing, found "
         "\"RobertaProcessing\""},
        {"\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"WordPiece\"",
         "f: decoder.type: expected one of ByteLevel, Replace, ByteFallback, Fuse, Strip, "
         "Metaspace, found \"WordPiece\""},
        {"\"type\":\"BPE\"", "\"type\":\"Unigram\"",
         "f: model.type: expected \"BPE\", found \"Unigram\""},
        {"\"dropout\":null", "\"dropout\":0.1",
         "f: model.dropout: expected null or 0, found 0.10000000000000001"},
        {"\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\"",
         "f: model.continuing_subword_prefix: expected null or \"\", found \"##\""},
        {"\"ignore_merges\":false", "\"ignore_merges\":true", NULL},
        {"\"ignore_merges\":false", "\"ignore_merges\":1",
         "f: model.ignore_merges: expected false or true, found 1"},
        {"\"vocab\":{", "\"vocab\":[],\"v\":{", "f: model.vocab: expected an object, found a list"},
        {"\"single_word\":false", "\"single_word\":true",
         "f: added_tokens[0].single_word: expected false, found true"},
        {"{\"id\":900,", "{\"id\":-1,", "f: added_tokens[0].id: expected a whole number, found -1"},
        {"{\"id\":900,", "{\"id\":901,", "f: added token '  ' has id 901, as another one"},
        {"\"!\":0,", "\"!\":1,", "f: vocabulary: id 1 is given twice, to '\"', too"},
        {"\"!\":0,", "\"!\":-1,", "f: vocabulary: the id of '!' is not a number from 0 to 4194303"},
        {"\"!\":0,", "\"!\":4194304,",
         "f: vocabulary: the id of '!' is not a number from 0 to 4194303"},
        {"\"!\":0,", "\"!\":\"x\",",
         "f: vocabulary: the id of '!' is not a number from 0 to 4194303"},
        {"\"!\":0,", "\"\":0,", "f: vocabulary: id 0 is empty"},
        {"\"unk_token\":null", "\"unk_token\":\"?\"", NULL}, /* all bytes are there */
        {"\"byte_fallback\":false", "\"byte_fallback\":true", NULL},
        {"\"post_processor\":null",
         "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{}}]}",
         NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *at = strstr(good, rows[i][0]);
        assert_non_null(at);
        char        *text = calloc(good_bytes + 256, 1);
        const size_t n = (size_t)(at - good);
        assert_non_null(text);
        snprintf(text, good_bytes + 256, "%.*s%s%s", (int)n, good, rows[i][1],
                 at + strlen(rows[i][0]));
        if (rows[i][2]) {
            check_refused_text(text, rows[i][2]);
        } else {
            dra_tokenizer *t = NULL;
            assert_int_equal(dra_tokenizer_read_json("f", text, strlen(text), &t, NULL), DRA_OK);
            dra_tokenizer_destroy(t);
        }
        free(text);
    }
}

static void refuses_wrong_parts(void **state)
{
    static const struct {
        tiny        p;
        const char *text;
    } rows[] = {
        {{.merges = "\"ab\""}, "f: merge 0: expected two tokens"},
        {{.merges = "\"a b\", \"a  b\""}, "f: merge 1: expected two tokens"},
        {{.merges = "[\"a\"]"}, "f: merge 0: expected two tokens"},
        {{.merges = "[\"a\", 1]"}, "f: merge 0: expected two tokens"},
        {{.merges = "7"}, "f: merge 0: expected two tokens"},
        {{.merges = "\"a c\""}, "f: merge 0: 'c' is not in the vocabulary"},
        {{.merges = "\"b a\""}, "f: merge 0: 'ba' is not in the vocabulary"},
        {{.merges = "\"a b\", [\"a\", \"b\"]"}, "f: merge 1 is merge 0 again"},
        {{.added = "1"}, "f: added_tokens[0]: expected an object, found 1"},
        {{.added = "{}"}, "f: added_tokens[0].id: expected a whole number, found nothing"},
        {{.added = "{\"id\": 3, \"content\": \"x\", \"special\": true, \"normalized\": true}"},
         "f: added token 'x' has id 3, as another one"},
        {{.added = "{\"id\": 7, \"content\": \"ab\", \"special\": true, \"normalized\": true}"},
         "f: added token 'ab' has id 7, in the vocabulary 3"},
        {{.added = "{\"id\": 7, \"content\": \"\", \"special\": true, \"normalized\": true}"},
         "f: added token 7 is empty"},
        {{.added =
              "{\"id\": 2, \"content\": \"\\u0120\", \"special\": true, \"normalized\": true}"},
         "f: added token '\xc4\xa0' means other bytes in the vocabulary"},
        {{.normalizer = "{\"type\": \"NFC\"}",
          .added =
              "{\"id\": 9, \"content\": \"e\\u0301\", \"special\": true, \"normalized\": true}"},
         "f: added token 'e\xcc\x81' is not in NFC"},
        {{.added = ADDED(9, "x", true, "") ", " ADDED(8, "x", true, "")},
         "f: added token 'x' is there twice"},
        {{.pre_tokenizer = "\"trim_offsets\": true"},
         "f: pre_tokenizer.add_prefix_space: expected false or true, found nothing"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_tokenizer *t = NULL;
        dra_error      err = {0};
        assert_int_equal(read_tiny(rows[i].p, &t, &err), DRA_ERR_FORMAT);
        assert_null(t);
        assert_string_equal(err.text, rows[i].text);
    }
}

/* A part of another kind, and what the line says of it. */
static void refuses_parts_it_cannot_join(void **state)
{
#define SPLIT(pattern, more)                                                                       \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" pattern "\"}, \"behavior\": \"" more "\"}"
    static const char digits[] = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
                                 "\"Digits\", \"individual_digits\": false}]}";
    static const struct {
        const char *normalizer, *pre_tokenizer, *decoder, *post_processor, *words;
    } rows[] = {
        {.pre_tokenizer = SPLIT("\\\\w+|a\\n", "Isolated"), .words = "{\"Regex\":\"\\\\w+|a\\n\"}"},
        {.pre_tokenizer = digits, .words = "pretokenizers[0].individual_digits"},
        {.pre_tokenizer = "null", .words = "pre_tokenizer"},
        {.pre_tokenizer = "{\"type\": \"Metaspace\", \"replacement\": \"_\"}",
         .words = "pre_tokenizer.replacement"},
        {.pre_tokenizer = "{\"type\": \"Metaspace\", \"replacement\": \"\u2581\", "
                          "\"prepend_scheme\": \"last\"}",
         .words = "pre_tokenizer.prepend_scheme"},
        {.pre_tokenizer = "{\"type\": \"Metaspace\", \"replacement\": \"\u2581\"}",
         .words = "decoder"},
        {.normalizer = "{\"type\": \"Prepend\", \"prepend\": \"x\"}",
         .words = "normalizer.prepend"},
        {.normalizer = "{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}", .words = "normalizer"},
        {.decoder = "{\"type\": \"Fuse\"}", .words = "decoder"},
        {.pre_tokenizer = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\", "
                          "\"add_prefix_space\": false}, {\"type\": \"Digits\", "
                          "\"individual_digits\": true}]}",
         .words = "pretokenizers[1].type"},
        {.decoder = "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}",
         .words = "decoder.start"},
        {.post_processor = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
                           "{\"id\": \"a\"}}, {\"Sequence\": {}}], \"special_tokens\": {}}",
         .words = "post_processor.single"},
        {.post_processor =
             "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
             "\"a\"}}, {\"Sequence\": {}}], \"special_tokens\": {\"a\": {\"ids\": [7]}}}",
         .words = "post_processor.special_tokens"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char           text[1024];
        dra_tokenizer *t = NULL;
        dra_error      err = {0};
        const int      n = snprintf(
                 text, sizeof text,
                 "{\"normalizer\": %s, \"pre_tokenizer\": %s, \"decoder\": %s, "
                      "\"post_processor\": %s, "
                      "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}",
            rows[i].normalizer ? rows[i].normalizer : "null",
            rows[i].pre_tokenizer ? rows[i].pre_tokenizer
                                       : "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}",
            rows[i].decoder ? rows[i].decoder : "{\"type\": \"ByteLevel\"}",
            rows[i].post_processor ? rows[i].post_processor : "null");
        assert_int_equal(dra_tokenizer_read_json("f", text, (size_t)n, &t, &err), DRA_ERR_FORMAT);
        assert_null(t);
        assert_null(strchr(err.text, '\n'));
        if (!strstr(err.text, rows[i].words)) fail_msg("row %zu: %s", i, err.text);
    }
}

static void refuses_bytes_without_a_token_where_something_stands_for_them(void **state)
{
    check_refused_text(
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, "
        "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
        "\"unk_token\": \"?\", \"vocab\": {\"?\": 0}, \"merges\": []}}",
        "f: model.unk_token: expected none, because the vocabulary has no token for "
        "the byte 0x00");
}

static void refuses_what_is_no_object(void **state)
{
    check_refused_text("[]", "f: expected an object");
    check_refused_text("", "f: JSON, line 1, column 0: '[' or '{' expected near end of file");
    check_refused_text("[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]",
                       "f: JSON nests 17 deep, expected at most 16");
}

/* Cut anywhere it is refused, by one line. */
static void refuses_every_beginning(void **state)
{
    for (size_t n = 0; n < good_bytes; n += 1 + n / 50) {
        dra_tokenizer *t = NULL;
        dra_error      err = {0};
        assert_int_equal(dra_tokenizer_read_json("f", good, n, &t, &err), DRA_ERR_FORMAT);
        assert_null(t);
        assert_null(strchr(err.text, '\n'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(refuses_what_it_does_not_do, load, unload),
        cmocka_unit_test(refuses_wrong_parts),
        cmocka_unit_test(refuses_parts_it_cannot_join),
        cmocka_unit_test(refuses_bytes_without_a_token_where_something_stands_for_them),
        cmocka_unit_test(refuses_what_is_no_object),
        cmocka_unit_test_setup_teardown(refuses_every_beginning, load, unload),
    };
    return check_main("refused", NULL, 0, tests, COUNT(tests));
}
