/* Corpora for tests: files in the test's folder, tokenizers, and what must come out. */
#ifndef DRA_TESTS_FEED_CORPORA_H
#define DRA_TESTS_FEED_CORPORA_H

#include "file/folder.h"

#include "dra/data.h"

static inline const char *put_text(const char *name, const char *text)
{
    return put_file(name, text, strlen(text));
}

static inline dra_tokenizer *bytes_tokenizer(void)
{
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    if (dra_tokenizer_bytes(&t, &err) != DRA_OK) fail_msg("%s", err.text);
    return t;
}

/* A letter of GPT-2's for a byte, as UTF-8 in JSON: printable bytes are themselves, the others are
 * U+0100 and on, in order. */
static inline int put_letter(char *to, size_t room, int byte)
{
    int letter = byte, others = 0;
    for (int b = 0; b <= byte; b++) {
        const bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
        if (!printable)
            letter = 256 + others++;
        else
            letter = b;
    }
    return snprintf(to, room, "\"\\u%04x\": %d, ", (unsigned)letter, byte);
}

/* GPT-2's two files: a byte is its own id, "th" is 256, "the" 257, the end of text `end`; there is
 * no token for the byte `missing`. */
static inline dra_tokenizer *pairs_without(int missing, int end)
{
    static char    vocab[8192];
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    int            n = snprintf(vocab, sizeof vocab, "{");
    for (int b = 0; b < 256; b++)
        if (b != missing) n += put_letter(vocab + n, sizeof vocab - (size_t)n, b);
    snprintf(vocab + n, sizeof vocab - (size_t)n,
             "\"th\": 256, \"the\": 257, \"<|endoftext|>\": %d}", end);
    mkdir(in_folder(".pairs"), 0700);
    put_text(".pairs/vocab.json", vocab);
    put_text(".pairs/merges.txt", "#version: 0.2\nt h\nth e\n");
    if (dra_tokenizer_open(in_folder(".pairs"), &t, &err) != DRA_OK) fail_msg("%s", err.text);
    unlink(in_folder(".pairs/vocab.json"));
    unlink(in_folder(".pairs/merges.txt"));
    rmdir(in_folder(".pairs"));
    return t;
}

static inline dra_tokenizer *pairs_tokenizer(int end) { return pairs_without(-1, end); }

static inline dra_corpus *opened(dra_corpus_config c)
{
    dra_corpus *corpus = NULL;
    dra_error   err = {0};
    if (dra_corpus_open(&c, NULL, NULL, &corpus, &err) != DRA_OK) fail_msg("%s", err.text);
    assert_non_null(corpus);
    return corpus;
}

/* Of one path. */
static inline dra_corpus *opened_path(const dra_tokenizer *t, const char *path)
{
    return opened((dra_corpus_config){.n = 1, .paths = &path, .tokenizer = t});
}

/* Of one file of any bytes. */
static inline dra_corpus *opened_bytes(const dra_tokenizer *t, const char *path)
{
    return opened((dra_corpus_config){.n = 1, .paths = &path, .tokenizer = t, .format = "bytes"});
}

static inline void check_ids(const dra_corpus *c, const int32_t *ids, int64_t n)
{
    int32_t *found = malloc(((size_t)n + 1) * sizeof *found);
    assert_int_equal(dra_corpus_tokens(c), n);
    assert_non_null(found);
    found[n] = -7;
    dra_corpus_read(c, 0, n, found);
    assert_memory_equal(found, ids, (size_t)n * sizeof *ids);
    assert_int_equal(found[n], -7);
    for (int64_t at = 0; at < n; at += n / 50 + 1) { /* in pieces */
        const int64_t some = n - at < 3 ? n - at : 3;
        dra_corpus_read(c, at, some, found);
        assert_memory_equal(found, ids + at, (size_t)some * sizeof *ids);
    }
    free(found);
}

/* Tokens that are bytes. */
static inline void check_bytes(const dra_corpus *c, const char *text, size_t n)
{
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < n; i++) ids[i] = (unsigned char)text[i];
    check_ids(c, ids, (int64_t)n);
    free(ids);
}

static inline void check_starts(const dra_corpus *c, const int64_t *starts, int64_t n)
{
    assert_int_equal(dra_corpus_documents(c), n);
    for (int64_t i = 0; i < n; i++) assert_int_equal(dra_corpus_document(c, i), starts[i]);
    assert_int_equal(dra_corpus_document(c, n), dra_corpus_tokens(c));
}

/* The corpus is refused by this code and line; `name` is a file in the folder or NULL. */
static inline void check_no_corpus(dra_corpus_config c, dra_status code, const char *name,
                                   const char *text)
{
    dra_corpus *corpus = (dra_corpus *)&c;
    dra_error   err = {0};
    char        whole[DRA_ERROR_TEXT + 64];
    assert_int_equal(dra_corpus_open(&c, NULL, NULL, &corpus, &err), code);
    assert_null(corpus);
    snprintf(whole, sizeof whole, "%s%s", name ? in_folder(name) : "", text);
    assert_string_equal(err.text, whole);
    assert_int_equal(err.code, code);
}

#endif
