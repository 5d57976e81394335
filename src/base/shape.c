/* Shapes, the table of element types, conversions of half-width floats. */
#include "base/shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const dra_dtype_info dtypes[DRA_DTYPE_COUNT] = {
    [DRA_F32] = {"f32", 1, 4, true},   [DRA_F64] = {"f64", 1, 8, true},
    [DRA_BF16] = {"bf16", 1, 2, true}, [DRA_F16] = {"f16", 1, 2, true},
    [DRA_I32] = {"i32", 1, 4, false},  [DRA_BOOL] = {"bool", 1, 1, false},
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    [DRA_##NAME] = {#name, elements, bytes, true},
#include "base/quant.def"
#undef DRA_QUANT
};

enum {
    BEFORE_QUANTS = DRA_Q4_0 - 1,
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    PLACE_OF_##NAME,
#include "base/quant.def"
#undef DRA_QUANT
    QUANTS_END
};
_Static_assert((int)QUANTS_END == (int)DRA_DTYPE_COUNT, "quant.def has every quantised dtype");
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    _Static_assert((int)PLACE_OF_##NAME == (int)DRA_##NAME, "quant.def goes by dra_dtype");
#include "base/quant.def"
#undef DRA_QUANT

const dra_dtype_info *dra_dtype_get(dra_dtype dtype)
{
    return (unsigned)dtype < DRA_DTYPE_COUNT ? &dtypes[dtype] : NULL;
}

size_t dra_dtype_bytes(dra_dtype dtype) { return dtypes[dtype].block_bytes; }

int64_t dra_elements_bytes(dra_dtype dtype, int64_t n)
{
    return n / (int64_t)dtypes[dtype].block_elements * (int64_t)dtypes[dtype].block_bytes;
}

bool dra_mul_size(size_t a, size_t b, size_t *out)
{
    if (b && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}

int64_t dra_shape_count(const dra_shape *s)
{
    int64_t n = 1;
    bool    empty = false;
    for (int32_t i = 0; i < s->rank; i++) {
        if (s->dim[i] < 0) return -1;
        empty = empty || s->dim[i] == 0;
    }
    for (int32_t i = 0; i < s->rank && !empty; i++) {
        if (n > INT64_MAX / s->dim[i]) return -1;
        n *= s->dim[i];
    }
    return empty ? 0 : n;
}

bool dra_type_bytes(dra_dtype dtype, const dra_shape *s, size_t *out)
{
    const dra_dtype_info *info = dra_dtype_get(dtype);
    const int64_t         n = dra_shape_count(s);
    const int64_t         last = s->rank ? s->dim[s->rank - 1] : 1;
    if (!info || n < 0 || n > INT64_MAX / 16 || last % (int64_t)info->block_elements) return false;
    return dra_mul_size((size_t)n / info->block_elements, info->block_bytes, out);
}

bool dra_shape_equal(const dra_shape *a, const dra_shape *b)
{
    if (a->rank != b->rank) return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

const char *dra_shape_text(const dra_shape *s, char *text, size_t size)
{
    size_t used = 0;
    if (!size) return text;
    text[0] = 0;
    for (int32_t i = 0; i < s->rank && used < size; i++) {
        const int n = snprintf(text + used, size - used, "%s%lld", i ? ", " : "(",
                               (long long)s->dim[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used < size) snprintf(text + used, size - used, s->rank ? ")" : "()");
    return text;
}

float dra_f16_to_f32(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    uint32_t       exponent = x >> 10 & 0x1fu, mantissa = x & 0x3ffu, bits;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent == 0 && mantissa == 0) {
        bits = sign;
    } else {
        if (exponent == 0) { /* subnormal: shift until the leading one falls out */
            exponent = 1;
            while (!(mantissa & 0x400u)) mantissa <<= 1, exponent--;
            mantissa &= 0x3ffu;
        }
        bits = sign | (exponent + 112u) << 23 | mantissa << 13;
    }
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float dra_round_to_odd(double x)
{
    float    f = (float)x;
    uint32_t bits;
    if (isnan(x) || (double)f == x) return f;
    memcpy(&bits, &f, sizeof bits);
    if (fabs((double)f) > fabs(x)) bits--; /* towards zero */
    bits |= 1u;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* v / 2^shift, rounded to nearest, ties to even. */
static uint32_t shift_round(uint32_t v, uint32_t shift)
{
    const uint32_t half = 1u << (shift - 1), rest = v & ((1u << shift) - 1), y = v >> shift;
    return y + (rest > half || (rest == half && (y & 1u)));
}

uint16_t dra_f32_to_f16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    const uint32_t a = bits & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 65520 or more */
    if (a >= 0x38800000u) return (uint16_t)(sign | shift_round(a - 0x38000000u, 13));
    if (a < 0x33000000u) return sign; /* below half of the smallest subnormal */
    const uint32_t mantissa = (a & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | shift_round(mantissa, 126u - (a >> 23)));
}
