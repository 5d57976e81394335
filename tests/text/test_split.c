/* The pre-tokenisers of GPT-2, Llama 3 and Qwen, and single digits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "text/letters.h"
#include "text/split.h"

/* Texts and their pieces, with a bar between them. */
static void check_pieces(int splitter, const char *const rows[][2], size_t n_rows)
{
    for (size_t i = 0; i < n_rows; i++) {
        const char *text = rows[i][0];
        char        found[256];
        size_t      n = 0, k;
        for (size_t left = strlen(text); left; text += k, left -= k) {
            k = dra_split_piece(&dra_splitters[splitter], text, left);
            assert_in_range(k, 1, left);
            n += (size_t)snprintf(found + n, sizeof found - n, "%s%.*s", n ? "|" : "", (int)k,
                                  text);
        }
        assert_string_equal(found, rows[i][1]);
    }
}

static void splits_as_gpt2(void **state)
{
    static const char *const rows[][2] = {
        {"Hello world", "Hello| world"},
        {"a  b", "a| | b"},
        {"a   b", "a|  | b"},
        {"a \n b", "a| \n| b"},
        {"\n\nx", "\n|\n|x"},
        {"x\n\n", "x|\n\n"},
        {"x  ", "x|  "},
        {" ", " "},
        {"\t x", "\t| x"},
        {"it's don't we're I've I'm he'll she'd",
         "it|'s| don|'t| we|'re| I|'ve| I|'m| he|'ll| she|'d"},
        {"DON'T", "DON|'|T"},
        {" 's", " '|s"},
        {"''s", "''|s"},
        {"'sx", "'s|x"},
        {"'r 'v 'l", "'|r| '|v| '|l"},
        {"x1y22", "x|1|y|22"},
        {"foo_bar!?", "foo|_|bar|!?"},
        {" !a", " !|a"},
        {"caf\xc3\xa9s", "caf\xc3\xa9s"},
        {"e\xcc\x81", "e|\xcc\x81"},
        {"\xe6\xb0\xb4\xe6\xb0\xb4 \xe6\xb0\xb4", "\xe6\xb0\xb4\xe6\xb0\xb4| \xe6\xb0\xb4"},
        {"x\xc2\xa0y", "x|\xc2\xa0|y"},
        {"\xe3\x80\x80\xe3\x80\x80y", "\xe3\x80\x80|\xe3\x80\x80|y"},
        {"a\xff\xfe"
         "b",
         "a|\xff\xfe|b"},
        {"a \xe2\x82", "a| \xe2\x82"},
        {"\xc2\xbd\xd9\xa3", "\xc2\xbd\xd9\xa3"},
    };
    check_pieces(DRA_SPLITTER_GPT2, rows, COUNT(rows));
}

/* These pieces are those of Hugging Face's tokenizers for the patterns. */
static void splits_as_llama3(void **state)
{
    static const char *const rows[][2] = {
        {"  \n x", "  \n| x"},
        {"1234", "123|4"},
        {"12 345", "12| |345"},
        {"'S it'S 'RE", "'S| it|'S| '|RE"},
        {"'\xc5\xbf", "'\xc5\xbf"},
        {"a\r\n\r\nb", "a|\r\n\r\n|b"},
        {"a \r\n b", "a| \r\n| b"},
        {"\n\n\n", "\n\n\n"},
        {"!\n\nx", "!\n\n|x"},
        {"?!\r\n!", "?!\r\n|!"},
        {"e\xcc\x81x", "e|\xcc\x81x"},
        {"\xcc\x81x", "\xcc\x81x"},
        {" \xcc\x81x", " \xcc\x81|x"},
        {"!\xcc\x81!", "!\xcc\x81!"},
        {"\t\tx", "\t|\tx"},
        {"\xc2\xa0\xc2\xa0y", "\xc2\xa0|\xc2\xa0y"},
        {"x1y22z333", "x|1|y|22|z|333"},
        {"\xc2\xbd\xd9\xa3\xe2\x85\xa7", "\xc2\xbd\xd9\xa3\xe2\x85\xa7"},
        {"foo_bar(x)", "foo|_bar|(x|)"},
        {"  ", "  "},
        {"a  1", "a| | |1"},
        {"''s", "''|s"},
        {" 's", " '|s"},
        {"x!y", "x|!y"},
    };
    check_pieces(DRA_SPLITTER_LLAMA3, rows, COUNT(rows));
}

static void splits_as_qwen2(void **state)
{
    static const char *const rows[][2] = {
        {"  \n x", "  \n| x"},
        {"1234", "1|2|3|4"},
        {"12 345", "1|2| |3|4|5"},
        {"'S it'S 'RE", "'S| it|'S| '|RE"},
        {"'\xc5\xbf", "'\xc5\xbf"},
        {"a\r\n\r\nb", "a|\r\n\r\n|b"},
        {"a \r\n b", "a| \r\n| b"},
        {"\n\n\n", "\n\n\n"},
        {"!\n\nx", "!\n\n|x"},
        {"?!\r\n!", "?!\r\n|!"},
        {"e\xcc\x81x", "e|\xcc\x81x"},
        {"\xcc\x81x", "\xcc\x81x"},
        {" \xcc\x81x", " \xcc\x81|x"},
        {"!\xcc\x81!", "!\xcc\x81!"},
        {"\t\tx", "\t|\tx"},
        {"\xc2\xa0\xc2\xa0y", "\xc2\xa0|\xc2\xa0y"},
        {"x1y22z333", "x|1|y|2|2|z|3|3|3"},
        {"\xc2\xbd\xd9\xa3\xe2\x85\xa7", "\xc2\xbd|\xd9\xa3|\xe2\x85\xa7"},
        {"foo_bar(x)", "foo|_bar|(x|)"},
        {"  ", "  "},
        {"a  1", "a| | |1"},
        {"''s", "''|s"},
        {" 's", " '|s"},
        {"x!y", "x|!y"},
    };
    check_pieces(DRA_SPLITTER_QWEN2, rows, COUNT(rows));
}

static void splits_as_qwen35(void **state)
{
    static const char *const rows[][2] = {
        {"  \n x", "  \n| x"},
        {"1234", "1|2|3|4"},
        {"12 345", "1|2| |3|4|5"},
        {"'S it'S 'RE", "'S| it|'S| '|RE"},
        {"'\xc5\xbf", "'\xc5\xbf"},
        {"a\r\n\r\nb", "a|\r\n\r\n|b"},
        {"a \r\n b", "a| \r\n| b"},
        {"\n\n\n", "\n\n\n"},
        {"!\n\nx", "!\n\n|x"},
        {"?!\r\n!", "?!\r\n|!"},
        {"e\xcc\x81x", "e\xcc\x81x"},
        {"\xcc\x81x", "\xcc\x81x"},
        {" \xcc\x81x", " \xcc\x81x"},
        {"!\xcc\x81!", "!\xcc\x81|!"},
        {"\t\tx", "\t|\tx"},
        {"\xc2\xa0\xc2\xa0y", "\xc2\xa0|\xc2\xa0y"},
        {"x1y22z333", "x|1|y|2|2|z|3|3|3"},
        {"\xc2\xbd\xd9\xa3\xe2\x85\xa7", "\xc2\xbd|\xd9\xa3|\xe2\x85\xa7"},
        {"foo_bar(x)", "foo|_bar|(x|)"},
        {"  ", "  "},
        {"a  1", "a| | |1"},
        {"''s", "''|s"},
        {" 's", " '|s"},
        {"x!y", "x|!y"},
    };
    check_pieces(DRA_SPLITTER_QWEN35, rows, COUNT(rows));
}

static void splits_as_digits(void **state)
{
    static const char *const rows[][2] = {
        {"  \n x", "  \n| x"},
        {"1234", "1|2|3|4"},
        {"12 345", "1|2| |3|4|5"},
        {"'S it'S 'RE", "'|S| it|'|S| '|RE"},
        {"'\xc5\xbf", "'|\xc5\xbf"},
        {"a\r\n\r\nb", "a|\r\n\r|\n|b"},
        {"a \r\n b", "a| \r\n| b"},
        {"\n\n\n", "\n\n\n"},
        {"!\n\nx", "!|\n|\n|x"},
        {"?!\r\n!", "?!|\r|\n|!"},
        {"e\xcc\x81x", "e|\xcc\x81|x"},
        {"\xcc\x81x", "\xcc\x81|x"},
        {" \xcc\x81x", " \xcc\x81|x"},
        {"!\xcc\x81!", "!\xcc\x81!"},
        {"\t\tx", "\t|\t|x"},
        {"\xc2\xa0\xc2\xa0y", "\xc2\xa0|\xc2\xa0|y"},
        {"x1y22z333", "x|1|y|2|2|z|3|3|3"},
        {"\xc2\xbd\xd9\xa3\xe2\x85\xa7", "\xc2\xbd|\xd9\xa3|\xe2\x85\xa7"},
        {"foo_bar(x)", "foo|_|bar|(|x|)"},
        {"  ", "  "},
        {"a  1", "a|  |1"},
        {"''s", "''|s"},
        {" 's", " '|s"},
        {"x!y", "x|!|y"},
    };
    check_pieces(DRA_SPLITTER_DIGITS, rows, COUNT(rows));
}

static void knows_patterns_by_their_text(void **state)
{
    for (int i = DRA_SPLITTER_LLAMA3; i <= DRA_SPLITTER_QWEN35; i++)
        assert_ptr_equal(dra_splitter_of(dra_splitters[i].pattern), &dra_splitters[i]);
    assert_null(dra_splitter_of("\\s+|\\w+"));
}

/* The pattern read literally, letter by letter: what the scanner has to agree with. */
static size_t count_kind(const char *kinds, size_t at, char kind)
{
    size_t n = 0;
    while (kinds[at + n] == kind) n++;
    return n;
}

static size_t slow_split(const char *text, const char *kinds)
{
    static const char *const ends[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < COUNT(ends); i++)
        if (strncmp(text, ends[i], strlen(ends[i])) == 0) return strlen(ends[i]);
    for (const char *kind = "LNO"; *kind; kind++)
        for (int space = text[0] == ' '; space >= 0; space--) {
            const size_t n = count_kind(kinds, (size_t)space, *kind);
            if (n) return (size_t)space + n;
        }
    size_t n = count_kind(kinds, 0, 'S'); /* greedy, then one back until nothing else follows */
    const size_t all = n;
    while (n && kinds[n] && kinds[n] != 'S') n--;
    return n ? n : all;
}

static void agrees_with_the_pattern(void **state)
{
    static const char letters[] = "  \n\ta1s'tre.vm";
    uint64_t          seed = 1;
    for (int i = 0; i < 20000; i++) {
        char         text[16], kinds[16];
        const size_t n = (size_t)(check_random(&seed) * 15);
        for (size_t k = 0; k < n; k++)
            text[k] = letters[(size_t)(check_random(&seed) * (double)(sizeof letters - 1))];
        text[n] = kinds[n] = 0;
        for (size_t k = 0; k < n; k++) kinds[k] = (char)dra_kind_of(text[k]);
        for (size_t at = 0, k; at < n; at += k) {
            k = dra_split_piece(&dra_splitters[DRA_SPLITTER_GPT2], text + at, n - at);
            assert_int_equal(k, slow_split(text + at, kinds + at));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_as_gpt2),          cmocka_unit_test(splits_as_llama3),
        cmocka_unit_test(splits_as_qwen2),         cmocka_unit_test(splits_as_qwen35),
        cmocka_unit_test(splits_as_digits),        cmocka_unit_test(knows_patterns_by_their_text),
        cmocka_unit_test(agrees_with_the_pattern),
    };
    return check_main("split", NULL, 0, tests, COUNT(tests));
}
