/* Integers of files. */
#include "data/integers.h"

#include <string.h>

size_t dra_integer_width(const char *dtype_name)
{
    static const struct {
        const char *name;
        size_t      width;
    } types[] = {{"U8", 1}, {"BOOL", 1}, {"U16", 2}, {"I32", 4}, {"I64", 8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, dtype_name) == 0) return types[i].width;
    return 0;
}

int64_t dra_integer_at(dra_integers x, int64_t i)
{
    const unsigned char *p = x.data + (size_t)i * x.width;
    uint16_t             u16;
    int32_t              i32;
    int64_t              i64;
    switch (x.width) {
    case 1: return x.other ? (int8_t)*p : *p;
    case 2: return memcpy(&u16, p, sizeof u16), x.other ? (int16_t)u16 : u16;
    case 4: return memcpy(&i32, p, sizeof i32), x.other ? (int64_t)(uint32_t)i32 : i32;
    default: return memcpy(&i64, p, sizeof i64), i64;
    }
}

/* What is below 0, or would be above 2^31 - 1. */
static void copy_signed(dra_integers x, int64_t from, int64_t n, int32_t *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = (int32_t)dra_integer_at(x, from + i);
}

/* The width is tested outside of the loops, so that those for 1 and 2 bytes are vector code. */
void dra_integers_copy(dra_integers x, int64_t from, int64_t n, int32_t *to)
{
    const unsigned char *p = x.data + (size_t)from * x.width;
    if (x.other && x.width < 4) {
        copy_signed(x, from, n, to);
        return;
    }
    if (x.width == 1)
        for (int64_t i = 0; i < n; i++) to[i] = p[i];
    if (x.width == 2)
        for (int64_t i = 0; i < n; i++) {
            uint16_t u;
            memcpy(&u, p + 2 * i, sizeof u);
            to[i] = u;
        }
    if (x.width == 4) memcpy(to, p, (size_t)n * sizeof *to);
    if (x.width == 8)
        for (int64_t i = 0; i < n; i++) {
            const int64_t v = dra_integer_at(x, from + i);
            to[i] = v == (int32_t)v ? (int32_t)v : -1;
        }
}
