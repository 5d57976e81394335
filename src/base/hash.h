/* The hash of everything that is compared by it: files, weights, caches, fingerprints, tables. */
#ifndef DRA_SRC_BASE_HASH_H
#define DRA_SRC_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { DRA_HASH_STRIPE = 32 };

/* Bytes in any number of parts: the parts do not matter, only their bytes one after the other. */
typedef struct dra_hash {
    uint64_t      seed, lane[4], total;
    unsigned char rest[DRA_HASH_STRIPE]; /* bytes that do not fill a stripe yet */
} dra_hash;

void     dra_hash_begin(dra_hash *h, uint64_t seed);
void     dra_hash_add(dra_hash *h, const void *data, size_t bytes);
uint64_t dra_hash_end(const dra_hash *h); /* of all so far; more may be added afterwards */

/* The same of one piece. */
uint64_t dra_hash_of(uint64_t seed, const void *data, size_t bytes);

#endif
