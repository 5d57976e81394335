/* Integers as files store them: little-endian, without alignment, 1 (U8, BOOL), 2 (U16), 4 (I32) or
 * 8 (I64) bytes wide; and a fingerprint of them.
 *   H(x_0 .. x_{n-1}) = sum_i (x_i + 1) P^(n-1-i)  mod 2^64,  P odd
 * so that H(ab) = H(a) P^|b| + H(b): a stream has one fingerprint, wherever it is cut, and one
 * number changed always changes it. */
#ifndef DRA_SRC_DATA_INTEGERS_H
#define DRA_SRC_DATA_INTEGERS_H

#include "dra/base.h"

typedef struct dra_integers {
    const unsigned char *data;
    size_t               width;
    bool                 other; /* signed where 1 or 2 bytes wide, unsigned where 4 */
} dra_integers;

size_t  dra_integer_width(const char *dtype_name); /* 0: none of these */
int64_t dra_integer_at(dra_integers x, int64_t i);

/* n of them from number `from` on; what an int32_t cannot hold becomes -1. */
void dra_integers_copy(dra_integers x, int64_t from, int64_t n, int32_t *to);

uint64_t dra_hash_ids(uint64_t h, const int32_t *x, int64_t n);
uint64_t dra_hash_words(uint64_t h, const uint64_t *x, size_t n);
uint64_t dra_hash_text(uint64_t h, const char *text); /* with its end; NULL is a text of its own */
uint64_t dra_hash_join(uint64_t a, uint64_t b, int64_t n_b); /* H(ab) from H(a) and H(b) */

#endif
