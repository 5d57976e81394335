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

/* With its end, so that two texts are not one; NULL is a text of its own. */
void dra_hash_add_text(dra_hash *h, const char *text);

/* Of the eight bytes of x, the lowest first, with seed 0: for tables, where it is inlined. */
static inline uint64_t dra_hash_number(uint64_t x)
{
    x *= 0xC2B2AE3D27D4EB4Fu;
    x = (x << 31 | x >> 33) * 0x9E3779B185EBCA87u;
    x ^= 0x27D4EB2F165667C5u + sizeof x;
    x = (x << 27 | x >> 37) * 0x9E3779B185EBCA87u + 0x85EBCA77C2B2AE63u;
    x = (x ^ x >> 33) * 0xC2B2AE3D27D4EB4Fu;
    x = (x ^ x >> 29) * 0x165667B19E3779F9u;
    return x ^ x >> 32;
}

#endif
