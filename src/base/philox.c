/* Philox 4x32-10. A round multiplies words 0 and 2 to 64 bits; the high halves, mixed with the
 * other words and the key, and the low halves change places. The key grows every round. */
#include "base/philox.h"

enum { ROUNDS = 10 };

void dra_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < ROUNDS; i++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
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
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint64_t join(int32_t low, int32_t high)
{
    return (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
}

uint64_t dra_philox_key(const int32_t seed_step[4], uint64_t path)
{
    const uint64_t odd = 0x9E3779B97F4A7C15u; /* keeps zeros from staying zeros */
    uint64_t       h = mix(join(seed_step[0], seed_step[1]) + odd);
    h = mix((h ^ join(seed_step[2], seed_step[3])) + odd);
    return mix((h ^ path) + odd);
}
