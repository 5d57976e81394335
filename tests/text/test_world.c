/* The vocabulary of RWKV World: ids of the original, its file read and written, bad files. */
#include "file/folder.h"
#include "small.h"
#include "text/literal.h"
#include "text/world.h"

#define FIXTURE "tests/data/world/" DRA_WORLD_FILE

static char  *good;
static size_t good_bytes;

static int load(void **state)
{
    return dra_file_read(FIXTURE, 1 << 20, &good, &good_bytes, NULL) == DRA_OK ? 0 : -1;
}

static int unload(void **state)
{
    free(good);
    return 0;
}

/* ---- ids ------------------------------------------------------------------------------------- */

static void gives_the_ids_of_the_original(void **state)
{
    dra_tokenizer *t = open_tokenizer("tests/data/world");
    check_ids(t, "I'll 'd test блабла 以下は、]) -> <|endoftext|><|padding|> int",
              "74 5229 274 101 32223 5092 27980 2795 27980 33 10399 10258 10139 10079 1682 3463 "
              "295 125 25258 7588 2318 125 790 125 49520 125 63 21888");
    check_ids(t, "", "");
    check_cases(t, "tests/data/world/cases.json");
    dra_tokenizer_destroy(t);
}

static void keeps_any_bytes(void **state)
{
    dra_tokenizer *t = open_tokenizer(FIXTURE);
    uint64_t       seed = 5;
    char           text[1000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(256 * check_random(&seed));
    dra_ids ids = encode_bytes(t, text, sizeof text);
    check_bytes(t, &ids, text, sizeof text);
    dra_ids_free(&ids);
    dra_tokenizer_destroy(t);
}

/* Nobody can write it into a text. */
static void ends_with_id_0(void **state)
{
    dra_tokenizer *t = open_tokenizer("tests/data/world");
    assert_int_equal(dra_tokenizer_end(t), 0);
    assert_true(dra_tokenizer_is_special(t, 0) && !dra_tokenizer_is_special(t, 33));
    assert_int_equal(dra_tokenizer_id(t, "<|endoftext|>"), 0);
    assert_int_equal(dra_tokenizer_id(t, " "), 33);
    dra_ids ids = encode_bytes(t, "<|endoftext|>", 13);
    assert_true(ids.n > 1);
    for (size_t i = 0; i < ids.n; i++) assert_int_not_equal(ids.data[i], 0);
    dra_ids_free(&ids);
    dra_tokenizer_destroy(t);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void writes_the_file_it_read(void **state)
{
    dra_tokenizer *t = open_tokenizer(FIXTURE), *again;
    char          *text = NULL;
    size_t         bytes;
    assert_string_equal(dra_tokenizer_file(t), DRA_WORLD_FILE);
    assert_false(dra_tokenizer_is_in(in_folder("")));
    assert_int_equal(dra_tokenizer_save(t, in_folder(DRA_WORLD_FILE), NULL), DRA_OK);
    assert_true(dra_tokenizer_is_in(in_folder("")));
    assert_int_equal(dra_file_read(in_folder(DRA_WORLD_FILE), 1 << 20, &text, &bytes, NULL),
                     DRA_OK);
    assert_int_equal(bytes, good_bytes);
    assert_memory_equal(text, good, bytes);
    again = open_tokenizer(in_folder(""));
    assert_true(dra_tokenizer_fingerprint(t) == dra_tokenizer_fingerprint(again));
    free(text);
    dra_tokenizer_destroy(again);
    dra_tokenizer_destroy(t);
}

static void reads_lines_that_end_otherwise(void **state)
{
    dra_tokenizer *a = open_tokenizer(FIXTURE), *b = NULL;
    char          *text = malloc(2 * good_bytes);
    size_t         n = 0;
    assert_non_null(text);
    for (size_t i = 0; i < good_bytes; i++) {
        if (good[i] == '\n') text[n++] = '\r';
        text[n++] = good[i];
    }
    assert_int_equal(dra_world_read("f", text, n - 2, &b, NULL), DRA_OK); /* none after the last */
    assert_true(dra_tokenizer_fingerprint(a) == dra_tokenizer_fingerprint(b));
    free(text);
    dra_tokenizer_destroy(a);
    dra_tokenizer_destroy(b);
}

static void understands_literals(void **state)
{
    static const struct {
        const char *literal, *bytes; /* NULL: refused */
        bool        same;            /* it is written like this */
    } rows[] = {
        {"'a'", "a", true},
        {"\"it's\"", "it's", true},
        {"'\"'", "\"", true},
        {"'\\'\"'", "'\"", true},
        {"\"\\'\"", "'", false},
        {"'\\\\'", "\\", true},
        {"'\\t\\n\\r'", "\t\n\r", true},
        {"'\\x7f'", "\x7f", true},
        {"'\\xa0'", "\xc2\xa0", true},
        {"'\\x41'", "A", false},
        {"'\\u200b'", "\xe2\x80\x8b", true},
        {"'\\u200B'", "\xe2\x80\x8b", false},
        {"'\\U000e0001'", "\xf3\xa0\x80\x81", true},
        {"'\xc3\xa9'", "\xc3\xa9", true},
        {"'\\xe9'", "\xc3\xa9", false},
        {"b'\\xff'", "\xff", true},
        {"b'\\xe9 \\'\"\\\\a'", "\xe9 '\"\\a", true},
        {"b\"\\xe9'\"", "\xe9'", true},
        {"b'a'", "a", false},
        {"''", "", true},
        {"", NULL, false},
        {"'", NULL, false},
        {"b", NULL, false},
        {"b'", NULL, false},
        {"a", NULL, false},
        {"'a\"", NULL, false},
        {"'a'b'", NULL, false},
        {"'a\\'", NULL, false},
        {"'\\q'", NULL, false},
        {"'\\x4'", NULL, false},
        {"'\\xg0'", NULL, false},
        {"'\\ud800'", NULL, false},
        {"'\\U00110000'", NULL, false},
        {"'\\Uffffffff'", NULL, false},
        {"b'\\u0041'", NULL, false},
        {"b'\xc3\xa9'", NULL, false},
        {"'\xff'", NULL, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char         out[64];
        const size_t n = dra_literal_read(rows[i].literal, strlen(rows[i].literal), out);
        assert_int_equal(n, rows[i].bytes ? strlen(rows[i].bytes) : SIZE_MAX);
        if (!rows[i].bytes) continue;
        assert_memory_equal(out, rows[i].bytes, n);
        char written[64];
        written[dra_literal_write(out, n, written)] = 0;
        assert_int_equal(strcmp(written, rows[i].literal) == 0, rows[i].same);
    }
}

/* ---- bad files ------------------------------------------------------------------------------- */

/* Every row is the file with one place changed. */
static void refuses_bad_entries(void **state)
{
    static const char *const rows[][3] = {
        {"1 '\\x00' 1\n", "", "f: no entry is the byte 0x00"},
        {"1 '\\x00' 1\n", "0 '\\x00' 1\n",
         "f: line 1: id 0, expected ids that grow from 1 to 4194303 at most"},
        {"2 '\\x01' 1\n", "1 '\\x01' 1\n",
         "f: line 2: id 1, expected ids that grow from 1 to 4194303 at most"},
        {"2 '\\x01' 1\n", "4194304 '\\x01' 1\n",
         "f: line 2: id 4194304, expected ids that grow from 1 to 4194303 at most"},
        {"3 '\\x02' 1\n", "3 '\\x02' 2\n", "f: line 3: id 3 has 1 bytes, expected 2 as it says"},
        {"3 '\\x02' 1\n", "3 '' 0\n",
         "f: line 3: id 3 has 0 bytes, expected some, and 0 as it says"},
        {"3 '\\x02' 1\n", "3 '\\x01' 1\n", "f: no entry is the byte 0x02"},
        {"4 '\\x03' 1\n", "4 '\\x03' 1\n\n",
         "f: line 5: expected an id, a literal and its bytes, found ''"},
        {"3 '\\x02' 1\n", "3 '\\q' 1\n",
         "f: line 3: expected an id, a literal and its bytes, found '3 '\\q' 1'"},
        {"3 '\\x02' 1\n", "3 1\n",
         "f: line 3: expected an id, a literal and its bytes, found '3 1'"},
        {"3 '\\x02' 1\n", "3\n", "f: line 3: expected an id, a literal and its bytes, found '3'"},
        {"3 '\\x02' 1\n", "-3 '\\x02' 1\n",
         "f: line 3: expected an id, a literal and its bytes, found '-3 '\\x02' 1'"},
        {"3 '\\x02' 1\n", "3 '\\x02' 1.\n",
         "f: line 3: expected an id, a literal and its bytes, found '3 '\\x02' 1.'"},
        {"3 '\\x02' 1\n", "99999999999999999999 '\\x02' 1\n",
         "f: line 3: expected an id, a literal and its bytes, found '99999999999999999999 "
         "'\\x02' 1'"},
        {"261 '\\n\\n' 2\n", "261 '\\n' 1\n", "f: ids 11 and 261 are the same bytes"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *at = strstr(good, rows[i][0]);
        assert_non_null(at);
        char *text = malloc(good_bytes + 256);
        assert_non_null(text);
        const int      n = snprintf(text, good_bytes + 256, "%.*s%s%s", (int)(at - good), good,
                                    rows[i][1], at + strlen(rows[i][0]));
        dra_tokenizer *t = NULL;
        dra_error      err = {0};
        assert_int_equal(dra_world_read("f", text, (size_t)n, &t, &err), DRA_ERR_FORMAT);
        assert_null(t);
        assert_string_equal(err.text, rows[i][2]);
        free(text);
    }
}

/* Cut anywhere it is refused by one line, or taken, at the end of an entry after the bytes. */
static void judges_every_beginning(void **state)
{
    for (size_t n = 1; n < good_bytes; n += 1 + n / 200) {
        dra_tokenizer   *t = NULL;
        dra_error        err = {0};
        const dra_status status = dra_world_read("f", good, n, &t, &err);
        assert_int_equal(status == DRA_OK, t != NULL);
        if (status == DRA_OK) assert_true(good[n] == '\n' || good[n - 1] == '\n');
        assert_null(strchr(err.text, '\n'));
        dra_tokenizer_destroy(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_ids_of_the_original),
        cmocka_unit_test(keeps_any_bytes),
        cmocka_unit_test(ends_with_id_0),
        cmocka_unit_test_setup_teardown(writes_the_file_it_read, folder_make, folder_remove),
        cmocka_unit_test(reads_lines_that_end_otherwise),
        cmocka_unit_test(understands_literals),
        cmocka_unit_test(refuses_bad_entries),
        cmocka_unit_test(judges_every_beginning),
    };
    if (load(NULL) != 0) return 1;
    const int failed = check_main("world", NULL, 0, tests, COUNT(tests));
    unload(NULL);
    return failed;
}
