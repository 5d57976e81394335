/* All quantised dtypes, and blocks of them for tests. */
#ifndef DRA_TESTS_QUANTS_H
#define DRA_TESTS_QUANTS_H

#include <string.h>

#include "base/quant.h"
#include "check.h"

static const struct {
    dra_dtype   dtype;
    const char *name; /* in files */
    size_t      d;    /* the byte of a block where its scale is; a minimum follows one in front */
} check_quants[] = {
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    {DRA_##NAME, #NAME, d},
#include "base/quant.def"
#undef DRA_QUANT
};

/* n numbers in blocks, rounded from numbers of -1 to 1 and 1e-4 of those; of what cannot be written
 * random bits, with scales that are small and of both signs. */
static inline void check_quant_fill(dra_dtype t, int64_t n, uint64_t *seed, unsigned char *blocks)
{
    const size_t          quant = (size_t)(t - DRA_Q4_0);
    const dra_dtype_info *info = dra_dtype_get(t);
    const int64_t         each = (int64_t)info->block_elements;
    for (int64_t i = 0; i < n; i += each) {
        unsigned char *at = blocks + (size_t)dra_elements_bytes(t, i);
        if (dra_can_quantise(t)) {
            float x[DRA_QUANT_BLOCK_MOST];
            for (int64_t e = 0; e < each; e++)
                x[e] = (float)(2 * check_random(seed) - 1) * ((i + e) / 32 % 3 == 2 ? 1e-4f : 1);
            dra_quantise(t, x, each, at);
            continue;
        }
        const uint16_t d = dra_f32_to_f16((float)(check_random(seed) - 0.5) / 64), m = d >> 1;
        for (size_t k = 0; k < info->block_bytes; k++)
            at[k] = (unsigned char)(256 * check_random(seed));
        memcpy(at + check_quants[quant].d, &d, sizeof d);
        if (check_quants[quant].d == 0) memcpy(at + sizeof d, &m, sizeof m);
    }
}

#endif
