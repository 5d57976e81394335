/* A permutation of 0 .. n - 1 without a table: a Feistel network, keyed by seed and epoch, permutes
 * 0 .. 4^h - 1, the smallest such range that holds n, and is applied again until the result is
 * below n.
 *   x = (l, r), h bits each;   round j: (l, r) <- (r, l xor F_j(r)),   F_j: Philox
 * Each round can be undone, so it is a permutation; to walk on along its cycles until one is back
 * among the n is one too, takes 4^h / n < 4 walks on average, and always ends, at the latest where
 * it began. [Luby, Rackoff 1988; Black, Rogaway 2002: Ciphers with arbitrary finite domains] */
#include "data/shuffle.h"

#include "base/error.h"
#include "base/philox.h"

enum { ROUNDS = 8 }; /* four are enough for most uses */

static uint64_t walk_cycle(uint64_t key, int h, uint64_t x)
{
    const uint32_t mask = (uint32_t)(((uint64_t)1 << h) - 1);
    uint32_t       l = (uint32_t)(x >> h) & mask, r = (uint32_t)x & mask, bits[4];
    for (uint32_t j = 0; j < ROUNDS; j++) {
        dra_philox((uint32_t[]){r, j, 0, 0}, key, bits);
        const uint32_t mixed = l ^ (bits[0] & mask);
        l = r;
        r = mixed;
    }
    return (uint64_t)l << h | r;
}

int64_t dra_shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    const uint64_t place = 0x6f72646572u; /* what this seed is for: "order" */
    const int32_t  words[4] = {(int32_t)(uint32_t)seed, (int32_t)(uint32_t)(seed >> 32),
                               (int32_t)(uint32_t)epoch, (int32_t)(uint32_t)(epoch >> 32)};
    const uint64_t key = dra_philox_key(words, place);
    uint64_t       x = (uint64_t)i;
    int            h = 1;
    while (h < 32 && (uint64_t)1 << 2 * h < (uint64_t)n) h++;
    do x = walk_cycle(key, h, x);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}

int64_t dra_order(uint64_t seed, int64_t n, bool once, int64_t g)
{
    return once && g >= n ? -1 : dra_shuffle(seed, g / n, n, g % n);
}

dra_status dra_part_check(const char *what, double from, double *to, dra_error *err)
{
    if (*to == 0) *to = 1;
    if (from >= 0 && from < *to && *to <= 1) return DRA_OK; /* false for NaN */
    return dra_fail(err, DRA_ERR_VALUE, "%s: part from %g to %g, expected 0 <= from < to <= 1",
                    what, from, *to);
}
