/* Files of other programs, made by the plainest means. */
#ifndef DRA_TESTS_FEED_FORMATS_H
#define DRA_TESTS_FEED_FORMATS_H

#include <zlib.h>
#include <zstd.h>

#include "corpora.h"

typedef struct file_bytes {
    unsigned char at[1 << 18];
    size_t        n;
} file_bytes;

static inline void add_bytes(file_bytes *f, const void *data, size_t n)
{
    assert_true(f->n + n <= sizeof f->at);
    memcpy(f->at + f->n, data, n);
    f->n += n;
}

static inline void add_ids(file_bytes *f, const int32_t *ids, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++) add_bytes(f, &ids[i], width); /* little-endian */
}

static inline void add_llmc(file_bytes *f, int32_t magic, int32_t version, const int32_t *ids,
                            size_t n, size_t width)
{
    int32_t header[256] = {magic, version, (int32_t)n};
    add_bytes(f, header, sizeof header);
    add_ids(f, ids, n, width);
}

static inline void add_array(file_bytes *f, const char *type, const char *shape)
{
    static const char format[] = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }";
    char              text[256];
    const int         n = snprintf(text, sizeof text, format, type, shape);
    const uint16_t    length = (uint16_t)(n + 1);
    add_bytes(f, "\x93NUMPY\x01\0", 8);
    add_bytes(f, &length, 2);
    add_bytes(f, text, (size_t)n);
    add_bytes(f, "\n", 1);
}

static inline void add_gzip(file_bytes *f, const void *data, size_t n)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)n};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = f->at + f->n;
    z.avail_out = (uInt)(sizeof f->at - f->n);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    f->n += z.total_out;
    deflateEnd(&z);
}

static inline void add_zstd(file_bytes *f, const void *data, size_t n)
{
    const size_t made = ZSTD_compress(f->at + f->n, sizeof f->at - f->n, data, n, 3);
    assert_false(ZSTD_isError(made));
    f->n += made;
}

static inline const char *put_made(const char *name, const file_bytes *f)
{
    return put_file(name, f->at, f->n);
}

static dra_tokenizer *bytes, *pairs; /* the end of text of pairs is 300 */
static file_bytes     made, inner;   /* a file, and what is inside */

static inline int make_all(void **state)
{
    if (folder_make(state) != 0) return -1;
    bytes = bytes_tokenizer();
    pairs = pairs_tokenizer(300);
    return 0;
}

static inline int remove_all(void **state)
{
    dra_tokenizer_destroy(bytes);
    dra_tokenizer_destroy(pairs);
    return folder_remove(state);
}

static inline int fresh(void **state)
{
    made.n = inner.n = 0;
    return clean(state);
}

static const int32_t ids[] = {7, 256, 300, 0, 299, 300, 12, 257};
static const int64_t cuts[] = {0, 3, 6};

enum { N_IDS = 8 };

static inline void check_about(const dra_corpus *c, const char *text)
{
    if (text)
        assert_string_equal(dra_corpus_about(c), text);
    else
        assert_null(dra_corpus_about(c));
}

/* The ids above, with their documents where the tokenizer tells them, or else as one. */
static inline void check_tokens(const char *path, const char *format, const char *about)
{
    dra_corpus_config config = {.n = 1, .paths = &path, .tokenizer = pairs, .format = format};
    assert_true(dra_corpus_is_tokens(1, &path, format));
    assert_true(dra_corpus_wants_end(1, &path, format));
    dra_corpus *c = opened(config);
    check_ids(c, ids, N_IDS);
    check_starts(c, cuts, 3);
    check_about(c, about);
    assert_int_equal(dra_corpus_bytes(c), -1);
    assert_int_equal(dra_corpus_largest(c), 300);
    dra_corpus_close(c);
    config.tokenizer = NULL;
    c = opened(config);
    check_ids(c, ids, N_IDS);
    check_starts(c, cuts, 1);
    dra_corpus_close(c);
}

static inline void check_no_file(const char *name, const char *format, const dra_tokenizer *t,
                                 dra_status code, const char *text)
{
    const char *path = in_folder(name);
    check_no_corpus((dra_corpus_config){.n = 1, .paths = &path, .tokenizer = t, .format = format},
                    code, name, text);
}

#endif
