/* Philox 4x32-10: random bits as a function of a counter and a key, without any state, so that a
 * number can be drawn again anywhere, also on a GPU. [Salmon, Moraes, Dror, Shaw 2011: Parallel
 * random numbers: as easy as 1, 2, 3] */
#ifndef DRA_SRC_PHILOX_H
#define DRA_SRC_PHILOX_H

#include "base/shape.h"

/* Ten rounds: out[0..3] from counter[0..3] and key (low word first). A round multiplies words 0 and
 * 2 to 64 bits; the high halves, mixed with the other words and the key, and the low halves change
 * places. The key grows every round. */
DRA_BOTH static inline void dra_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < 10; i++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const uint64_t x = (uint64_t)0xD2511F53u * a, y = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(y >> 32) ^ b ^ k0;
        b = (uint32_t)y;
        c = (uint32_t)(x >> 32) ^ d ^ k1;
        d = (uint32_t)x;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

/* A bijection in which every bit of x reaches every bit of the result (splitmix64's last steps). */
DRA_BOTH static inline uint64_t dra_philox_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

DRA_BOTH static inline uint64_t dra_philox_join(int32_t low, int32_t high)
{
    return (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
}

/* The key of all numbers of one place in one step: seed_step = {seed low, seed high, step low,
 * step high}, path = dra_scope_hash() of the place. */
DRA_BOTH static inline uint64_t dra_philox_key(const int32_t seed_step[4], uint64_t path)
{
    const uint64_t odd = 0x9E3779B97F4A7C15u; /* keeps zeros from staying zeros */
    uint64_t       h = dra_philox_mix(dra_philox_join(seed_step[0], seed_step[1]) + odd);
    h = dra_philox_mix((h ^ dra_philox_join(seed_step[2], seed_step[3])) + odd);
    return dra_philox_mix((h ^ path) + odd);
}

/* The path of a name, or of several one after the other (FNV-1a); h is DRA_NAME_START at first. All
 * random numbers of a place depend on it. */
#define DRA_NAME_START 0xcbf29ce484222325u
static inline uint64_t dra_name_key(uint64_t h, const char *name)
{
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

#endif
