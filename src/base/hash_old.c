/* Hashes of earlier releases; see hash_old.h. */
#include "base/hash_old.h"

static const uint64_t P = 0x9E3779B97F4A7C15u;

uint64_t dra_old_bytes(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ at[i]) * 0x100000001b3u;
    return h;
}

uint64_t dra_old_ids(uint64_t h, const int32_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++) h = h * P + (uint32_t)x[i] + 1;
    return h;
}

uint64_t dra_old_words(uint64_t h, const uint64_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++) h = h * P + x[i] + 1;
    return h;
}

uint64_t dra_old_text(uint64_t h, const char *text)
{
    for (; text && *text; text++) h = h * P + (unsigned char)*text + 1;
    return h * P + (text ? 0 : 1000);
}
