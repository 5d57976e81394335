/* Hashes of earlier releases, for what depends on their values: random numbers are drawn from some
 * of them, and files of earlier releases hold fingerprints made of them. Whatever is new uses
 * base/hash.h. */
#ifndef DRA_SRC_BASE_HASH_OLD_H
#define DRA_SRC_BASE_HASH_OLD_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a; h is DRA_OLD_START at first. */
#define DRA_OLD_START 0xcbf29ce484222325u
uint64_t dra_old_bytes(uint64_t h, const void *data, size_t bytes);

/* H(x_0 .. x_{n-1}) = sum_i (x_i + 1) P^(n-1-i)  mod 2^64, P odd; h is 0 at first. */
uint64_t dra_old_ids(uint64_t h, const int32_t *x, size_t n);
uint64_t dra_old_words(uint64_t h, const uint64_t *x, size_t n);
uint64_t dra_old_text(uint64_t h, const char *text); /* with its end; NULL is a text of its own */

#endif
