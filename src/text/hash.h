/* A hash of bytes, for tables of words. */
#ifndef DRA_SRC_TEXT_HASH_H
#define DRA_SRC_TEXT_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t dra_hash_bytes(const char *text, size_t bytes)
{
    uint64_t h = bytes * 0x9e3779b97f4a7c15u, part;
    for (; bytes > 8; text += 8, bytes -= 8) {
        memcpy(&part, text, 8);
        h = (h ^ part) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
    }
    part = 0;
    memcpy(&part, text, bytes);
    h = (h ^ part) * 0xd6e8feb86659fd93u;
    return (h ^ h >> 32) * 0x9e3779b97f4a7c15u;
}

#endif
