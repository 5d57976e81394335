/* XXH64 [Collet, xxHash fast digest algorithm, specification 0.1.1]: four lanes over stripes of 32
 * bytes, merged, the rest mixed in by 8, 4 and 1, then an avalanche. Numbers are read as
 * little-endian ones on every machine. */
#include "base/hash.h"

#include <string.h>

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u,
                      P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;

static uint64_t rotate_left(uint64_t x, int by) { return x << by | x >> (64 - by); }

static uint64_t read_u64(const unsigned char *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    return x;
}

static uint64_t read_u32(const unsigned char *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap32(x);
#endif
    return x;
}

static uint64_t round_of(uint64_t lane, uint64_t input)
{
    return rotate_left(lane + input * P2, 31) * P1;
}

/* Whole stripes; returns how many bytes they have. */
static size_t take_stripes(uint64_t lane[4], const unsigned char *p, size_t bytes)
{
    const size_t n = bytes / DRA_HASH_STRIPE;
    uint64_t     a = lane[0], b = lane[1], c = lane[2], d = lane[3];
    for (size_t i = 0; i < n; i++, p += DRA_HASH_STRIPE) {
        a = round_of(a, read_u64(p));
        b = round_of(b, read_u64(p + 8));
        c = round_of(c, read_u64(p + 16));
        d = round_of(d, read_u64(p + 24));
    }
    lane[0] = a, lane[1] = b, lane[2] = c, lane[3] = d;
    return n * DRA_HASH_STRIPE;
}

void dra_hash_begin(dra_hash *h, uint64_t seed)
{
    *h = (dra_hash){.seed = seed, .lane = {seed + P1 + P2, seed + P2, seed, seed - P1}};
}

void dra_hash_add(dra_hash *h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    const size_t         held = h->total % DRA_HASH_STRIPE, room = DRA_HASH_STRIPE - held;
    if (!bytes) return;
    h->total += bytes;
    if (held) {
        const size_t n = bytes < room ? bytes : room;
        memcpy(h->rest + held, p, n);
        if (n < room) return;
        take_stripes(h->lane, h->rest, DRA_HASH_STRIPE);
        p += n, bytes -= n;
    }
    const size_t taken = take_stripes(h->lane, p, bytes);
    memcpy(h->rest, p + taken, bytes - taken);
}

static uint64_t merge_lanes(const uint64_t lane[4])
{
    uint64_t x = rotate_left(lane[0], 1) + rotate_left(lane[1], 7) + rotate_left(lane[2], 12) +
                 rotate_left(lane[3], 18);
    for (int i = 0; i < 4; i++) x = (x ^ round_of(0, lane[i])) * P1 + P4;
    return x;
}

static uint64_t take_rest(uint64_t x, const unsigned char *p, size_t bytes)
{
    for (; bytes >= 8; p += 8, bytes -= 8)
        x = rotate_left(x ^ round_of(0, read_u64(p)), 27) * P1 + P4;
    for (; bytes >= 4; p += 4, bytes -= 4) x = rotate_left(x ^ read_u32(p) * P1, 23) * P2 + P3;
    for (; bytes; p++, bytes--) x = rotate_left(x ^ *p * P5, 11) * P1;
    return x;
}

static uint64_t mix_last(uint64_t x)
{
    x = (x ^ x >> 33) * P2;
    x = (x ^ x >> 29) * P3;
    return x ^ x >> 32;
}

uint64_t dra_hash_end(const dra_hash *h)
{
    const uint64_t x = h->total < DRA_HASH_STRIPE ? h->seed + P5 : merge_lanes(h->lane);
    return mix_last(take_rest(x + h->total, h->rest, h->total % DRA_HASH_STRIPE));
}

uint64_t dra_hash_of(uint64_t seed, const void *data, size_t bytes)
{
    if (bytes < DRA_HASH_STRIPE) return mix_last(take_rest(seed + P5 + bytes, data, bytes));
    dra_hash h;
    dra_hash_begin(&h, seed);
    dra_hash_add(&h, data, bytes);
    return dra_hash_end(&h);
}

void dra_hash_add_text(dra_hash *h, const char *text)
{
    const unsigned char none = text == NULL;
    dra_hash_add(h, &none, 1);
    if (text) dra_hash_add(h, text, strlen(text) + 1);
}
