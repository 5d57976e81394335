/* Files of rwkv.cpp with RWKV 4 to 7. All numbers little-endian, u32, unaligned:
 *   header   magic 0x67676d66, version 100 or 101, vocabulary, width, layers, dtype
 *   records  axes, bytes of the name, dtype, sizes (fastest axis first), name, data
 * until the end of the file. names.c says how parameters are stored there.
 * [https://github.com/RWKV/rwkv.cpp, docs/FILE_FORMAT.md] */
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "file/format.h"
#include "formats/rwkv/rwkv.h"
#include "formats/tensor_source.h"

enum {
    MAGIC = 0x67676d66,
    OLD = 100,
    NEW = 101,
    HEADER = 24,
    RECORD = 12,
    AXES = 3,
    NAME_MOST = 256,
    SIZE_MOST = 1 << 20
};

/* From 4 on they are not those of ggml; 4 to 6 were removed. */
const uint32_t dra_rwkv_cpp_numbers[DRA_DTYPE_COUNT] = {
    [DRA_F16] = 1,
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    [DRA_##NAME] = rwkv,
#include "base/quant.def"
#undef DRA_QUANT
};
#define TYPES "0 (FP32), 1 (FP16), 2 (Q4_0), 3 (Q4_1), 7 (Q5_0), 8 (Q5_1) or 9 (Q8_0)"

static dra_dtype type_of(uint32_t number)
{
    if (number == 0) return DRA_F32;
    for (int i = 0; i < DRA_DTYPE_COUNT; i++)
        if (dra_rwkv_cpp_numbers[i] == number) return (dra_dtype)i;
    return DRA_DTYPE_COUNT;
}

typedef struct cutting {
    dra_tensor_source   *s;
    const unsigned char *at;
    size_t               left, room; /* room: tensors the table has room for */
    bool                 old;        /* blocks had another layout */
    dra_error           *err;
} cutting;

static uint32_t read_u32(const unsigned char *at, int i)
{
    uint32_t n;
    memcpy(&n, at + 4 * i, sizeof n);
    return n;
}

bool dra_rwkv_cpp_is(const unsigned char *file, size_t bytes)
{
    return bytes >= 4 && read_u32(file, 0) == MAGIC;
}

static dra_status fail_number(const cutting *c, const char *what, unsigned long long found,
                              const char *expected)
{
    const size_t place = c->s->map.bytes - c->left;
    return dra_fail_at(c->err, DRA_ERR_FORMAT, c->s->path, "byte %zu: %s is %llu, expected %s",
                       place, what, found, expected);
}

static dra_status read_header(cutting *c)
{
    dra_tensor_source *s = c->s;
    if (c->left < HEADER) return fail_number(c, "what is left", c->left, "a header of 24 bytes");
    const uint32_t version = read_u32(c->at, 1), dtype = read_u32(c->at, 5);
    if (version != OLD && version != NEW)
        return fail_number(c, "the version", version, "100 or 101");
    if (type_of(dtype) == DRA_DTYPE_COUNT) return fail_number(c, "the dtype", dtype, TYPES);
    c->old = version == OLD;
    for (int i = 2; i < 5; i++)
        if (read_u32(c->at, i) < 1 || read_u32(c->at, i) > SIZE_MOST)
            return fail_number(c, "a size", read_u32(c->at, i), "1 to 1048576");
    s->vocab = read_u32(c->at, 2);
    s->dim = read_u32(c->at, 3);
    s->depth = read_u32(c->at, 4);
    c->at += HEADER;
    c->left -= HEADER;
    return DRA_OK;
}

/* Sizes are stored fastest first; here the slowest comes first. */
static dra_status read_shape(cutting *c, uint32_t axes, dra_shape *shape)
{
    shape->rank = (int32_t)axes;
    for (uint32_t i = 0; i < axes; i++) {
        const uint32_t n = read_u32(c->at, (int)i);
        if (n < 1 || n > SIZE_MOST) return fail_number(c, "a size", n, "1 to 1048576");
        shape->dim[axes - 1 - i] = n;
    }
    return DRA_OK;
}

static dra_status add_tensor(cutting *c, const char *name, uint32_t dtype, const dra_shape *shape)
{
    dra_header     *h = &c->s->header;
    size_t          bytes;
    const dra_dtype type = type_of(dtype);
    if (h->count == c->room) {
        c->room = 2 * c->room + 64;
        dra_tensor_info *more = dra_arena_alloc(&h->arena, c->room * sizeof *more);
        if (!more) return dra_fail_at(c->err, DRA_ERR_MEMORY, c->s->path, "out of memory");
        if (h->count) memcpy(more, h->tensor, h->count * sizeof *more);
        h->tensor = more;
    }
    if (shape->dim[shape->rank - 1] % (int64_t)dra_dtype_get(type)->block_elements)
        return fail_number(c, "the last axis of a quantised tensor",
                           (unsigned long long)shape->dim[shape->rank - 1], "a multiple of 32");
    if (!dra_type_bytes(type, shape, &bytes) || bytes > c->left)
        return fail_number(c, "what is left", c->left, "the data of a tensor");
    h->tensor[h->count++] = (dra_tensor_info){.name = name,
                                              .dtype_name = dra_file_dtype_name(type),
                                              .dtype = type,
                                              .shape = *shape,
                                              .data = c->at,
                                              .bytes = bytes};
    c->at += bytes;
    c->left -= bytes;
    return DRA_OK;
}

static dra_status read_record(cutting *c)
{
    dra_shape shape = {0};
    if (c->left < RECORD) return fail_number(c, "what is left", c->left, "a tensor");
    const uint32_t axes = read_u32(c->at, 0), length = read_u32(c->at, 1),
                   dtype = read_u32(c->at, 2);
    if (axes < 1 || axes > AXES) return fail_number(c, "the number of axes", axes, "1 to 3");
    if (length < 1 || length > NAME_MOST)
        return fail_number(c, "the length of a name", length, "1 to 256");
    if (type_of(dtype) == DRA_DTYPE_COUNT) return fail_number(c, "the dtype", dtype, TYPES);
    if (c->old && dra_is_quantised(type_of(dtype)))
        return fail_number(c, "the version of quantised numbers", OLD,
                           "101: convert the file again");
    if (c->left - RECORD < 4 * (size_t)axes + length)
        return fail_number(c, "what is left", c->left, "sizes and a name");
    c->at += RECORD;
    c->left -= RECORD;
    const dra_status st = read_shape(c, axes, &shape);
    if (st != DRA_OK) return st;
    c->at += 4 * axes;
    c->left -= 4 * axes;
    char *name = dra_arena_alloc(&c->s->header.arena, (size_t)length + 1);
    if (!name) return dra_fail_at(c->err, DRA_ERR_MEMORY, c->s->path, "out of memory");
    memcpy(name, c->at, length);
    if (!dra_name_fits(name, length))
        return fail_number(c, "a letter of a name", 0, "UTF-8 without control characters");
    c->at += length;
    c->left -= length;
    return add_tensor(c, name, dtype, &shape);
}

dra_status dra_rwkv_cpp_read(dra_tensor_source *s, dra_error *err)
{
    cutting    c = {.s = s, .at = s->map.data, .left = s->map.bytes, .err = err};
    dra_status st = read_header(&c);
    while (st == DRA_OK && c.left) st = read_record(&c);
    return st;
}
