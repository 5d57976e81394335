/* Safetensors files made by hand, and what must hold for any bytes; for tests and fuzzers. */
#ifndef DRA_TESTS_FILE_SAMPLE_H
#define DRA_TESTS_FILE_SAMPLE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "refusal.h"

typedef struct sample {
    unsigned char *at;
    size_t         n;
} sample; /* the caller frees `at` */

/* N, the header, and `data` bytes 0, 1, 2, ... */
static inline sample sample_of(const char *header, size_t length, size_t data)
{
    sample         s = {malloc(8 + length + data), 8 + length + data};
    const uint64_t n = length;
    if (!s.at) return (sample){0};
    memcpy(s.at, &n, sizeof n);
    memcpy(s.at + 8, header, length);
    for (size_t i = 0; i < data; i++) s.at[8 + length + i] = (unsigned char)i;
    return s;
}

/* NULL, or what is wrong with a header that was accepted. Touches every byte of every tensor. */
static inline const char *sample_check(const dra_header *h, const unsigned char *file, size_t n)
{
    size_t            covered = 0;
    volatile unsigned sum = 0;
    for (size_t i = 0; i < h->count; i++) {
        const dra_tensor_info *t = &h->tensor[i];
        const unsigned char   *p = t->data;
        if (p < file || p > file + n || t->bytes > (size_t)(file + n - p))
            return "outside the file";
        if (strlen(t->name) > n || !t->dtype_name) return "no name or no dtype";
        if (t->shape.rank < 0 || t->shape.rank > DRA_MAX_RANK) return "rank";
        if (dra_shape_count(&t->shape) < 0) return "shape";
        for (size_t k = 0; k < t->bytes; k++) sum += p[k];
        covered += t->bytes;
        if (i && strcmp(h->by_name[i - 1]->name, h->by_name[i]->name) >= 0) return "names";
    }
    for (size_t i = 0; i < h->n_metadata; i++)
        sum += (unsigned)(strlen(h->metadata[i].key) + strlen(h->metadata[i].value));
    return covered <= n ? NULL : "tensors overlap";
}

/* Reads a copy of exactly these bytes, so that a sanitizer sees the first one beyond. They must be
 * accepted and stay inside, or be refused by one line that starts with the path. NULL, or what
 * broke. */
static inline const char *sample_try(const unsigned char *bytes, size_t n, bool *accepted)
{
    unsigned char *copy = malloc(n ? n : 1);
    dra_error      err = {0};
    dra_header     h;
    const char    *broken = NULL;
    if (!copy) return "no memory";
    if (n) memcpy(copy, bytes, n);
    *accepted = dra_header_read("f", copy, n, &h, &err) == DRA_OK;
    broken = *accepted ? sample_check(&h, copy, n) : refusal_check(&h, &err);
    dra_header_free(&h);
    free(copy);
    return broken;
}

#endif
