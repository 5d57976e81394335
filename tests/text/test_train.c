/* Training a tokenizer: merges known by hand and from a slow trainer, special tokens, normalised
 * text, files of all kinds, any number of threads. */
#include "dra/data.h"
#include "file/folder.h"
#include "small.h"
#include "text/split.h"

static const char *const no_special[] = {""};

static dra_tokenizer_config config(const char *const *paths, int n, int32_t size)
{
    return (dra_tokenizer_config){.n = n, .paths = paths, .size = size, .special = no_special};
}

static dra_tokenizer *train(const dra_tokenizer_config *c)
{
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    if (dra_tokenizer_train(c, NULL, NULL, &t, &err) != DRA_OK) fail_msg("%s", err.text);
    return t;
}

static dra_tokenizer *train_on(const char *text, int32_t size, int64_t min_count)
{
    const char          *path = put_file("text", text, strlen(text));
    dra_tokenizer_config c = config(&path, 1, size);
    c.min_count = min_count;
    return train(&c);
}

/* The tokens from id `from` on, with '|' between them, are all there are. */
static void check_tokens(const dra_tokenizer *t, int32_t from, const char *expected)
{
    char   found[512] = "";
    size_t n = 0, bytes;
    for (int32_t id = from; id < dra_tokenizer_size(t); id++) {
        const char *text = dra_tokenizer_piece(t, id, &bytes);
        n += (size_t)snprintf(found + n, sizeof found - n, "%s%.*s", n ? "|" : "", (int)bytes,
                              text);
    }
    assert_string_equal(found, expected);
}

/* ---- merges ---------------------------------------------------------------------------------- */

/* aaabdaaabac: aa stands 4 times; then ab and aa-a twice each, a is before aa; then aa-ab. */
static void learns_known_merges(void **state)
{
    dra_tokenizer *t = train_on("aaabdaaabac", 300, 0);
    check_tokens(t, 256, "aa|ab|aaab");
    check_ids(t, "aaabdaaabac", "258 67 258 64 66");
    dra_tokenizer_destroy(t);
    t = train_on("aaabdaaabac", 258, 0);
    check_tokens(t, 256, "aa|ab");
    dra_tokenizer_destroy(t);
}

static void takes_the_smaller_ids_first(void **state)
{
    dra_tokenizer *t = train_on("ab ba", 300, 1); /* a blank is written as a late letter */
    check_tokens(t, 256, "ab|ba| ba");
    dra_tokenizer_destroy(t);
}

static void counts_words_not_across_them(void **state)
{
    dra_tokenizer *t = train_on("x1 x1 x1", 300, 2); /* x, 1, blank x: letters and numbers apart */
    check_tokens(t, 256, " x");
    dra_tokenizer_destroy(t);
}

static void stops_at_rare_pairs(void **state)
{
    dra_tokenizer *t = train_on("ab ab ab cd cd", 300, 3);
    check_tokens(t, 256, "ab");
    dra_tokenizer_destroy(t);
}

/* ---- a slow trainer -------------------------------------------------------------------------- */

enum { LETTERS = 600, MERGES = 60, IDS = 256 + MERGES };

typedef struct slow {
    int32_t id[LETTERS];
    bool    starts[LETTERS]; /* a word */
    size_t  n;
    int     count[IDS][IDS];
} slow;

static void slow_count(slow *s)
{
    memset(s->count, 0, sizeof s->count);
    for (size_t i = 1; i < s->n; i++)
        if (!s->starts[i]) s->count[s->id[i - 1]][s->id[i]]++;
}

static void slow_merge(slow *s, int32_t left, int32_t right, int32_t made)
{
    size_t to = 0;
    for (size_t i = 0; i < s->n; i++, to++) {
        const bool both = i + 1 < s->n && !s->starts[i + 1] && s->id[i] == left &&
                          s->id[i + 1] == right;
        s->starts[to] = s->starts[i];
        s->id[to] = both ? made : s->id[i];
        i += both;
    }
    s->n = to;
}

/* Everything is counted again before each merge; all merges of t have to come out, and no more. */
static void check_slowly(const dra_tokenizer *t, const char *text, int64_t min_count)
{
    static slow s;
    s.n = strlen(text);
    for (size_t at = 0, n; at < s.n; at += n) {
        n = dra_piece_next(t, text + at, s.n - at);
        for (size_t i = at; i < at + n; i++) {
            s.id[i] = t->byte_id[(unsigned char)text[i]];
            s.starts[i] = i == at;
        }
    }
    for (size_t rank = 0; rank <= t->merges && rank < MERGES; rank++) {
        int32_t left = 0, right = 0;
        slow_count(&s);
        for (int32_t a = 0; a < IDS; a++)
            for (int32_t b = 0; b < IDS; b++)
                if (s.count[a][b] > s.count[left][right]) left = a, right = b;
        if (rank == t->merges) {
            assert_true(s.count[left][right] < min_count);
            break;
        }
        assert_true(s.count[left][right] >= min_count);
        assert_int_equal(t->merge[rank].left, left);
        assert_int_equal(t->merge[rank].right, right);
        slow_merge(&s, left, right, t->merge[rank].id);
    }
}

static void learns_what_a_slow_trainer_learns(void **state)
{
    static const char letters[] = "aaaabbc  '\n1";
    uint64_t          seed = 1;
    for (int k = 0; k < 40; k++) {
        char text[LETTERS + 1] = "";
        for (int i = 0; i < LETTERS - k; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[i] = letters[(seed >> 33) % (sizeof letters - 1)];
        }
        dra_tokenizer *t = train_on(text, IDS, 1 + k % 4);
        check_slowly(t, text, 1 + k % 4);
        dra_tokenizer_destroy(t);
    }
}

/* ---- special tokens, normal form ------------------------------------------------------------- */

static void keeps_special_tokens_apart(void **state)
{
    static const char        text[] = "ab<|x|>ab<|x|>ab<|\xe6\xb0\xb4|>";
    static const char *const special[] = {"<|x|>", "<|\xe6\xb0\xb4|>"};
    const char              *path = put_file("text", text, sizeof text - 1);
    dra_tokenizer_config     c = config(&path, 1, 300);
    c.special = special;
    c.n_special = 2;
    dra_tokenizer *t = train(&c);
    check_tokens(t, 258, "ab");
    check_ids(t, "ab<|\xe6\xb0\xb4|>a<|x|>", "258 1 66 0");
    assert_true(dra_tokenizer_is_special(t, 0) && dra_tokenizer_is_special(t, 1));
    assert_int_equal(dra_tokenizer_save(t, in_folder("t.json"), NULL), DRA_OK);
    dra_tokenizer *again = open_tokenizer(in_folder("t.json"));
    assert_true(dra_tokenizer_fingerprint(t) == dra_tokenizer_fingerprint(again));
    dra_tokenizer_destroy(again);
    dra_tokenizer_destroy(t);
}

static void normalises(void **state)
{
    static const char    text[] = "e\xcc\x81 \xc3\xa9"; /* the same letter in two ways */
    const char          *path = put_file("text", text, sizeof text - 1);
    dra_tokenizer_config c = config(&path, 1, 300);
    c.nfc = true;
    dra_tokenizer *t = train(&c);
    check_tokens(t, 256, "\xc3\xa9");
    check_ids(t, "e\xcc\x81", "256");
    dra_tokenizer_destroy(t);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Documents in lines of JSON, between separators and as files: the same words. */
static void reads_all_kinds_of_files(void **state)
{
    static const char lines[] = "{\"text\": \"abc ab\\n\"}\n\n{\"text\": \"\", \"n\": 1}\n"
                                "{\"text\": \"ab\\u0000 bc\\n\"}\n";
    static const char text[] = "abc ab\n--\nab\0 bc\n--\n";
    const char       *json = put_file("a.jsonl", lines, sizeof lines - 1);
    const char       *cut = put_file("b.txt", text, sizeof text - 1);
    const char *const files[] = {put_file("c", text, 7), put_file("d", text + 10, 7)};

    dra_tokenizer_config rows[] = {config(&json, 1, 300), config(&cut, 1, 300),
                                   config(files, 2, 300)};
    uint64_t             print[COUNT(rows)];
    for (size_t i = 0; i < COUNT(rows); i++) {
        rows[i].separator = i == 1 ? "--" : NULL;
        rows[i].min_count = 1;
        dra_tokenizer *t = train(&rows[i]);
        check_tokens(t, 256, "ab|bc| ab| bc|abc");
        print[i] = dra_tokenizer_fingerprint(t);
        assert_true(print[i] == print[0]);
        dra_tokenizer_destroy(t);
    }
}

/* A text of about n bytes: words of one to four letters, frequent and rare ones. */
static char *long_text(size_t n)
{
    char    *text = malloc(n + 8), *to = text;
    uint64_t seed = 7;
    assert_non_null(text);
    while (to < text + n) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t word = (seed >> 40) % 97 * ((seed >> 50) % 89);
        for (; word; word /= 11) *to++ = "etaoinshrdu"[word % 11];
        *to++ = seed >> 60 ? ' ' : '\n';
    }
    *to = 0;
    return text;
}

/* One text that is cut into stretches, and many short ones. */
static void learns_the_same_with_any_threads(void **state)
{
    enum { BYTES = 5 << 19 };
    char                *text = long_text(BYTES);
    const char *const    paths[] = {put_file("a", text, strlen(text)),
                                    put_file("b", text + 1000, 100000)};
    dra_tokenizer_config c = config(paths, 2, 2000);
    uint64_t             print[4];
    for (int i = 0; i < 4; i++) {
        c.threads = (int[]){1, 2, 7, 0}[i];
        c.separator = "et"; /* is a line now and then */
        dra_tokenizer *t = train(&c);
        assert_in_range(dra_tokenizer_size(t), 600, 2000);
        print[i] = dra_tokenizer_fingerprint(t);
        assert_true(print[i] == print[0]);
        dra_tokenizer_destroy(t);
    }
    free(text);
}

static void gives_text_back(void **state)
{
    static const char strange[] = "never seen: \xff\xfe\0 \xe6\xb0\xb4 <|endoftext|>";
    char             *text = long_text(50000);
    dra_tokenizer    *t = train_on(text, 700, 0);
    dra_ids           ids = encode_bytes(t, text, strlen(text));
    assert_true(2 * ids.n < strlen(text)); /* it has learned something */
    check_bytes(t, &ids, text, strlen(text));
    dra_ids_free(&ids);
    ids = encode_bytes(t, strange, sizeof strange - 1);
    check_bytes(t, &ids, strange, sizeof strange - 1);
    dra_ids_free(&ids);
    dra_tokenizer_destroy(t);
    free(text);
}

/* ---- progress -------------------------------------------------------------------------------- */

typedef struct seen {
    int64_t done[2], total[2];
} seen;

static void note(void *user, bool merging, int64_t done, int64_t total)
{
    seen *s = user;
    assert_true(done >= s->done[merging] && done <= total);
    assert_true(merging || s->done[1] == 0);
    s->done[merging] = done;
    s->total[merging] = total;
}

static void tells_how_far_it_is(void **state)
{
    const char                *path = put_file("text", "ab ab ab", 8);
    const dra_tokenizer_config c = config(&path, 1, 257);
    dra_tokenizer             *t = NULL;
    seen                       s = {0};
    assert_int_equal(dra_tokenizer_train(&c, note, &s, &t, NULL), DRA_OK);
    assert_int_equal(s.done[0], 8);
    assert_int_equal(s.total[0], 8);
    assert_int_equal(s.done[1], 257);
    assert_int_equal(s.total[1], 257);
    dra_tokenizer_destroy(t);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refused(const dra_tokenizer_config *c, dra_status code, const char *text)
{
    dra_tokenizer *t = (dra_tokenizer *)(uintptr_t)c;
    dra_error      err = {0};
    assert_int_equal(dra_tokenizer_train(c, NULL, NULL, &t, &err), code);
    assert_null(t);
    assert_string_equal(err.text, text);
}

static void refused_file(const char *name, const char *text, dra_status code, const char *why)
{
    char                       whole[DRA_ERROR_TEXT];
    const char                *path = in_folder(name);
    const dra_tokenizer_config c = config(&path, 1, 300);
    if (text) put_file(name, text, strlen(text));
    snprintf(whole, sizeof whole, "%s%s", path, why);
    refused(&c, code, whole);
}

static void refuses_files(void **state)
{
    clean(state);
    refused_file("none", NULL, DRA_ERR_FILE, ": cannot open it: No such file or directory");
    refused_file("empty", "", DRA_ERR_VALUE, ": no text in it");
    refused_file("a.gz", "x", DRA_ERR_FORMAT,
                 ": is named as if compressed by gzip, but does not start so; if it is plain, "
                 "rename it "
                 "or say --data-format");
    refused_file("a.safetensors", "x", DRA_ERR_FORMAT, ": holds tensors, expected text or .jsonl");
    refused_file("a.jsonl", "{\"text\": \"a\"}\n{}\n", DRA_ERR_FORMAT,
                 ":2: no 'text', expected a text");
    refused_file("b.jsonl", "\n\n", DRA_ERR_VALUE, ": no text in it");
}

static void refuses_sizes(void **state)
{
    const char              *path = put_file("text", "ab", 2);
    static const char *const special[] = {"<|x|>"};
    dra_tokenizer_config     c = config(&path, 1, 256);
    dra_tokenizer_destroy(train(&c)); /* just the bytes */
    c.special = special;
    c.n_special = 1;
    refused(&c, DRA_ERR_VALUE,
            "tokenizer_train: size 256 with 1 special tokens, expected from 257 (all bytes and "
            "those) to 4194304");
    c.size = 300;
    c.min_count = -1;
    refused(&c, DRA_ERR_VALUE, "tokenizer_train: min_count -1, expected 0 or more");
    c.n = 0;
    refused(&c, DRA_ERR_VALUE, "tokenizer_train: no paths, expected at least one");
    refused(NULL, DRA_ERR_VALUE, "tokenizer_train: no paths, expected at least one");
}

static void refuses_special_tokens(void **state)
{
    static const struct {
        const char *special[2], *text;
    } rows[] = {
        {{"", "<"}, "0, '': is empty"},
        {{"<x>", "a"}, "1, 'a': is a byte, which has a token of its own"},
        {{"<x>", "<x>"}, "1, '<x>': is there twice"},
        {{"<x>", "\xc4\xa0the"}, "1, '\xc4\xa0the': is how files write other bytes"},
        {{"<x>", "\xff"}, "1, '?': is not UTF-8"},
        {{"<x>", "OK"}, "1, 'OK': NFC makes it of other text"},
    };
    static const char    text[] = "O\xe2\x84\xaa O\xe2\x84\xaa"; /* KELVIN SIGN */
    const char          *path = put_file("text", text, sizeof text - 1);
    dra_tokenizer_config c = config(&path, 1, 300);
    c.n_special = 2;
    c.nfc = true;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char whole[DRA_ERROR_TEXT];
        c.special = rows[i].special;
        snprintf(whole, sizeof whole, "tokenizer_train: special token %s", rows[i].text);
        refused(&c, DRA_ERR_VALUE, whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_known_merges),
        cmocka_unit_test(takes_the_smaller_ids_first),
        cmocka_unit_test(counts_words_not_across_them),
        cmocka_unit_test(stops_at_rare_pairs),
        cmocka_unit_test(learns_what_a_slow_trainer_learns),
        cmocka_unit_test(keeps_special_tokens_apart),
        cmocka_unit_test(normalises),
        cmocka_unit_test(reads_all_kinds_of_files),
        cmocka_unit_test(learns_the_same_with_any_threads),
        cmocka_unit_test(gives_text_back),
        cmocka_unit_test(tells_how_far_it_is),
        cmocka_unit_test(refuses_files),
        cmocka_unit_test(refuses_sizes),
        cmocka_unit_test(refuses_special_tokens),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = check_main("training a tokenizer", NULL, 0, tests, COUNT(tests));
    return folder_remove(NULL) == 0 ? failed : 1;
}
