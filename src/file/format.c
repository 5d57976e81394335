/* The element types of safetensors, and rules for names and values. */
#include "file/format.h"

#include <string.h>

#include "base/shape.h"
#include "file/fail.h"

static const dra_file_dtype dtypes[] = {
    {"F32", 32, DRA_F32},
    {"F64", 64, DRA_F64},
    {"BF16", 16, DRA_BF16},
    {"F16", 16, DRA_F16},
    {"I32", 32, DRA_I32},
    {"BOOL", 8, DRA_BOOL},
    {"U8", 8, DRA_DTYPE_COUNT},
    {"I8", 8, DRA_DTYPE_COUNT},
    {"U16", 16, DRA_DTYPE_COUNT},
    {"I16", 16, DRA_DTYPE_COUNT},
    {"U32", 32, DRA_DTYPE_COUNT},
    {"U64", 64, DRA_DTYPE_COUNT},
    {"I64", 64, DRA_DTYPE_COUNT},
    {"C64", 64, DRA_DTYPE_COUNT},
    {"F8_E5M2", 8, DRA_DTYPE_COUNT},
    {"F8_E4M3", 8, DRA_DTYPE_COUNT},
    {"F8_E8M0", 8, DRA_DTYPE_COUNT},
    {"F8_E4M3FNUZ", 8, DRA_DTYPE_COUNT},
    {"F8_E5M2FNUZ", 8, DRA_DTYPE_COUNT},
    {"F6_E2M3", 6, DRA_DTYPE_COUNT},
    {"F6_E3M2", 6, DRA_DTYPE_COUNT},
    {"F4", 4, DRA_DTYPE_COUNT},
};

static const struct {
    const char *name;
    dra_dtype   dtype;
} quantised[] = {
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    {#NAME, DRA_##NAME},
#include "base/quant.def"
#undef DRA_QUANT
};

dra_dtype dra_file_quantised_find(const char *name)
{
    for (size_t i = 0; i < sizeof quantised / sizeof *quantised; i++)
        if (strcmp(quantised[i].name, name) == 0) return quantised[i].dtype;
    return DRA_DTYPE_COUNT;
}

const dra_file_dtype *dra_file_dtype_find(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0) return &dtypes[i];
    return NULL;
}

const char *dra_file_dtype_name(dra_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    for (size_t i = 0; i < sizeof quantised / sizeof *quantised; i++)
        if (quantised[i].dtype == dtype) return quantised[i].name;
    return NULL;
}

bool dra_bits_of(const dra_shape *s, size_t bits, size_t *out)
{
    bool   empty = false;
    size_t n = bits;
    for (int32_t i = 0; i < s->rank; i++) {
        empty = empty || s->dim[i] == 0;
        if (s->dim[i] < 0 || (s->dim[i] > 0 && !dra_mul_size(n, (size_t)s->dim[i], &n)))
            return false;
    }
    *out = empty ? 0 : n;
    return true;
}

size_t dra_bools_wrong(const void *data, size_t n)
{
    const unsigned char *p = data;
    size_t               i = 0;
    while (i < n && p[i] <= 1) i++;
    return i;
}

bool dra_name_has_control(const char *name)
{
    size_t used;
    for (size_t left = strlen(name); left; name += used, left -= used)
        if (dra_letter_of(name, left, &used) == DRA_LETTER_CONTROL) return true;
    return false;
}

bool dra_is_utf8(const char *text)
{
    for (size_t n = 0; *text; text += n)
        if (!(n = dra_utf8_letter(text))) return false;
    return true;
}

bool dra_name_fits(const char *name, size_t length)
{
    return strlen(name) == length && !dra_name_has_control(name) && dra_is_utf8(name);
}
