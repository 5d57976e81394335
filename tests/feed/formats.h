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
    char           text[256];
    const int      n = snprintf(text, sizeof text,
                                "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
    const uint16_t length = (uint16_t)(n + 1);
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

#endif
