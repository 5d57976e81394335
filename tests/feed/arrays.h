/* Files of NumPy, made by hand. */
#ifndef DRA_TESTS_FEED_ARRAYS_H
#define DRA_TESTS_FEED_ARRAYS_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { ARRAY_ROOM = 4096 };

typedef struct array_bytes {
    unsigned char at[ARRAY_ROOM];
    size_t        n;
} array_bytes;

static inline void array_put(array_bytes *b, const void *data, size_t n)
{
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

/* A .npy of version `major`.0: a header as NumPy writes it, then the numbers. */
static inline void array_make(array_bytes *b, int major, const char *descr, const char *shape,
                              const void *data, size_t bytes)
{
    char           text[256];
    const size_t   before = 8 + (major == 1 ? 2 : 4);
    const uint32_t n = (uint32_t)snprintf(
        text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    const uint32_t length = (uint32_t)(63 & (64 - (before + n + 1) % 64)) + n + 1;
    memset(text + n, ' ', length - n);
    text[length - 1] = '\n';
    array_put(b, "\x93NUMPY", 6);
    array_put(b, (unsigned char[]){(unsigned char)major, 0}, 2);
    array_put(b, &length, before - 8);
    array_put(b, text, length);
    array_put(b, data, bytes);
}

static inline void array_number(array_bytes *b, uint32_t x, int bytes)
{
    array_put(b, &x, (size_t)bytes);
}

/* Name, sizes and texts as both headers of an entry of an archive have them. */
static inline void archive_head(array_bytes *b, const char *name, size_t bytes)
{
    const uint16_t fixed[5] = {20, 0, 0, 0, 0}; /* version, flags, stored, time, date */
    array_put(b, fixed, sizeof fixed);
    array_number(b, 0, 4); /* the checksum, which is not looked at */
    array_number(b, (uint32_t)bytes, 4);
    array_number(b, (uint32_t)bytes, 4);
    array_number(b, (uint32_t)strlen(name), 2);
    array_number(b, 0, 2);
}

/* A .npz of two arrays. */
static inline void archive_make(array_bytes *b, const char *const name[2],
                                const array_bytes *const entry[2])
{
    size_t at[3] = {b->n, 0, 0};
    for (int i = 0; i < 2; i++) {
        array_put(b, "PK\3\4", 4);
        archive_head(b, name[i], entry[i]->n);
        array_put(b, name[i], strlen(name[i]));
        array_put(b, entry[i]->at, entry[i]->n);
        at[i + 1] = b->n;
    }
    for (int i = 0; i < 2; i++) {
        array_put(b, "PK\1\2\24\0", 6);
        archive_head(b, name[i], entry[i]->n);
        array_put(b, (unsigned char[10]){0}, 10); /* comment, disk, attributes */
        array_number(b, (uint32_t)at[i], 4);
        array_put(b, name[i], strlen(name[i]));
    }
    const uint32_t directory = (uint32_t)(b->n - at[2]);
    array_put(b, "PK\5\6\0\0\0\0\2\0\2\0", 12);
    array_number(b, directory, 4);
    array_number(b, (uint32_t)at[2], 4);
    array_number(b, 0, 2);
}

#endif
