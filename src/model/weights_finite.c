/* Numbers of weights that are NaN or infinite, as the file or memory stores them: every one is
 * looked at, at the speed of memory where they are no blocks. An exponent of ones is not finite. */
#include <math.h>
#include <string.h>

#include "base/quant.h"
#include "model/weights_finite.h"

enum { PIECE = 1024 }; /* numbers; short, so that a sum fits into 16 bits and loops are unrolled */

#define COUNT_BITS(name, type, exponent)                                                           \
    static int64_t name(const type *x)                                                             \
    {                                                                                              \
        type n = 0;                                                                                \
        for (int i = 0; i < PIECE; i++) n = (type)(n + ((x[i] & (exponent)) == (exponent)));       \
        return (int64_t)n;                                                                         \
    }

COUNT_BITS(count_64, uint64_t, UINT64_C(0x7ff0000000000000))
COUNT_BITS(count_32, uint32_t, 0x7f800000u)
COUNT_BITS(count_bf16, uint16_t, 0x7f80u)
COUNT_BITS(count_f16, uint16_t, 0x7c00u)

static int64_t count_blocks(dra_dtype dtype, const void *data, int64_t first, int64_t n)
{
    float   x[PIECE];
    int64_t found = 0;
    dra_dequantise(dtype, data, first, n, x);
    for (int64_t i = 0; i < n; i++) found += !isfinite(x[i]);
    return found;
}

static int64_t count_piece(dra_dtype dtype, const void *piece)
{
    switch (dtype) {
    case DRA_F64: return count_64(piece);
    case DRA_F32: return count_32(piece);
    case DRA_BF16: return count_bf16(piece);
    default: return count_f16(piece);
    }
}

static int64_t count_numbers(dra_dtype dtype, const char *data, int64_t n)
{
    union {
        uint64_t align;
        char     bytes[PIECE * sizeof(uint64_t)];
    } last = {0}; /* what is behind its numbers is 0 */
    const size_t each = dra_dtype_bytes(dtype);
    int64_t      found = 0, at = 0;
    for (; at + PIECE <= n; at += PIECE) found += count_piece(dtype, data + (size_t)at * each);
    memcpy(last.bytes, data + (size_t)at * each, (size_t)(n - at) * each);
    return n > at ? found + count_piece(dtype, last.bytes) : found;
}

int64_t dra_count_not_finite(const dra_param_layout *f, const void *data, int64_t n)
{
    int64_t found = 0;
    if (!data || f->dtype == DRA_I32 || f->part > 0) return 0; /* part 0 looks at all parts */
    if (f->parts > 1) n *= f->parts;
    if (!dra_is_quantised(f->dtype)) return count_numbers(f->dtype, data, n);
    for (int64_t at = 0; at < n; at += PIECE)
        found += count_blocks(f->dtype, data, at, dra_imin(PIECE, n - at));
    return found;
}
