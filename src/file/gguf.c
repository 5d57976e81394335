/* Reading GGUF; gguf.h says what is in such a file. Each rule is checked before what it guards. */
#include "file/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "file/format.h"

enum {
    AXES = 4,
    NAME_MOST = 63,
    TEXT_MOST = 1 << 30,
    PAIR_LEAST = 13,
    TENSOR_LEAST = 25,
    LIST_SHORT = 1024
};

const dra_gguf_type dra_gguf_types[] = {
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    {ggml, DRA_##NAME},
#include "base/quant.def"
#undef DRA_QUANT
    {0, DRA_F32}, {1, DRA_F16}, {26, DRA_I32}, {28, DRA_F64}, {30, DRA_BF16}, {0, DRA_DTYPE_COUNT}};

/* "Q4_0, .., " */
static const char quants[] =
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv) #NAME ", "
#include "base/quant.def"
    ;
#undef DRA_QUANT

typedef struct reader {
    const char          *path;
    const unsigned char *file;
    size_t               bytes, at;
    dra_gguf            *out;
    dra_json             json;
    dra_error           *err;
} reader;

static dra_status fail_reading(const reader *r, const char *what, unsigned long long found,
                               const char *expected)
{
    return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "byte %zu: %s is %llu, expected %s", r->at,
                       what, found, expected);
}

static dra_status no_memory(const reader *r)
{
    return dra_fail_at(r->err, DRA_ERR_MEMORY, r->path, "out of memory for its header");
}

bool dra_gguf_is(const unsigned char *file, size_t bytes)
{
    return bytes >= 4 && memcmp(file, "GGUF", 4) == 0;
}

/* ---- numbers and texts ----------------------------------------------------------------------- */

static dra_status take_bytes(reader *r, size_t n, void *to)
{
    if (r->bytes - r->at < n)
        return fail_reading(r, "what is left", r->bytes - r->at, "more of a header");
    memcpy(to, r->file + r->at, n);
    r->at += n;
    return DRA_OK;
}

static dra_status take_u32(reader *r, uint32_t *to) { return take_bytes(r, sizeof *to, to); }
static dra_status take_u64(reader *r, uint64_t *to) { return take_bytes(r, sizeof *to, to); }

/* *text points into the file and has no 0 at its end. */
static dra_status take_text(reader *r, const char **text, size_t *bytes)
{
    uint64_t   n = 0;
    dra_status st = take_u64(r, &n);
    if (st != DRA_OK) return st;
    if (n > TEXT_MOST || n > r->bytes - r->at)
        return fail_reading(r, "the length of a text", n, "one that is in the file");
    *text = (const char *)r->file + r->at;
    *bytes = (size_t)n;
    r->at += (size_t)n;
    return DRA_OK;
}

/* A name as a text of ours. */
static dra_status take_name(reader *r, char **out)
{
    const char *text = NULL;
    size_t      n = 0;
    dra_status  st = take_text(r, &text, &n);
    if (st != DRA_OK) return st;
    if (n < 1 || n > 65535) return fail_reading(r, "the length of a name", n, "1 to 65535");
    *out = dra_arena_alloc(&r->out->header.arena, n + 1);
    if (!*out) return no_memory(r);
    memcpy(*out, text, n);
    (*out)[n] = 0;
    return dra_name_fits(*out, n)
               ? DRA_OK
               : fail_reading(r, "a letter of a name", 0, "UTF-8 without control characters");
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static const size_t sizes[DRA_GGUF_TYPES] = {
    [DRA_GGUF_U8] = 1,  [DRA_GGUF_I8] = 1,  [DRA_GGUF_U16] = 2, [DRA_GGUF_I16] = 2,
    [DRA_GGUF_U32] = 4, [DRA_GGUF_I32] = 4, [DRA_GGUF_F32] = 4, [DRA_GGUF_BOOL] = 1,
    [DRA_GGUF_U64] = 8, [DRA_GGUF_I64] = 8, [DRA_GGUF_F64] = 8};

/* A float as the shortest decimal that is the same float: 1e-5 stays 1e-5. */
static double shorten_float(float x)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)x);
    const double y = strtod(text, NULL);
    return (float)y == x ? y : (double)x;
}

static json_t *make_number(reader *r, uint32_t type, const unsigned char *raw)
{
    union {
        uint8_t  u8;
        int8_t   i8;
        uint16_t u16;
        int16_t  i16;
        uint32_t u32;
        int32_t  i32;
        float    f32;
        uint64_t u64;
        int64_t  i64;
        double   f64;
    } x = {0};
    memcpy(&x, raw, sizes[type]);
    switch (type) {
    case DRA_GGUF_U8: return dra_json_int(&r->json, x.u8);
    case DRA_GGUF_I8: return dra_json_int(&r->json, x.i8);
    case DRA_GGUF_U16: return dra_json_int(&r->json, x.u16);
    case DRA_GGUF_I16: return dra_json_int(&r->json, x.i16);
    case DRA_GGUF_U32: return dra_json_int(&r->json, x.u32);
    case DRA_GGUF_I32: return dra_json_int(&r->json, x.i32);
    case DRA_GGUF_F32: return dra_json_real(&r->json, shorten_float(x.f32));
    case DRA_GGUF_BOOL: return dra_json_bool(x.u8 != 0);
    case DRA_GGUF_I64: return dra_json_int(&r->json, x.i64);
    case DRA_GGUF_F64: return dra_json_real(&r->json, x.f64);
    default: return dra_json_int(&r->json, x.u64 > INT64_MAX ? INT64_MAX : (int64_t)x.u64);
    }
}

static dra_status read_value(reader *r, uint32_t type, json_t **out)
{
    const char   *text = NULL;
    size_t        n = 0;
    unsigned char raw[8];
    dra_status    st;
    if (type == DRA_GGUF_TEXT) {
        st = take_text(r, &text, &n);
        if (st == DRA_OK && memchr(text, 0, n))
            return fail_reading(r, "a letter of a text", 0, "none");
        if (st == DRA_OK && !(*out = dra_json_text_of(&r->json, text, n)))
            return r->json.no_text ? fail_reading(r, "a text before", n, "bytes of UTF-8")
                                   : no_memory(r);
        return st;
    }
    if (type >= DRA_GGUF_TYPES || type == DRA_GGUF_LIST)
        return fail_reading(r, "the type of a value", type, "0 to 12, and no list in a list");
    st = take_bytes(r, sizes[type], raw);
    if (st == DRA_OK && type == DRA_GGUF_BOOL && raw[0] > 1)
        return fail_reading(r, "a bool before", raw[0], "0 or 1");
    if (st == DRA_OK) *out = make_number(r, type, raw);
    return st == DRA_OK && !*out ? no_memory(r) : st;
}

/* Lists are long; only those of the tokenizer are wanted, and numbers of layers. */
static dra_status read_list(reader *r, bool wanted, json_t **out)
{
    uint32_t   type = 0;
    uint64_t   n = 0;
    dra_status st = take_u32(r, &type);
    if (st == DRA_OK) st = take_u64(r, &n);
    if (st != DRA_OK) return st;
    if (type >= DRA_GGUF_TYPES || type == DRA_GGUF_LIST)
        return fail_reading(r, "the type of a list", type, "0 to 12, but not 9");
    const size_t least = type == DRA_GGUF_TEXT ? 8 : sizes[type];
    if (n > (r->bytes - r->at) / least)
        return fail_reading(r, "the length of a list", n, "one that is in the file");
    *out = dra_json_array(&r->json);
    if (!*out) return no_memory(r);
    wanted = wanted || (type != DRA_GGUF_TEXT && n <= LIST_SHORT);
    if (!wanted && type != DRA_GGUF_TEXT) r->at += (size_t)n * least, n = 0;
    for (uint64_t i = 0; i < n && st == DRA_OK; i++) {
        json_t     *item = NULL;
        const char *text;
        size_t      bytes;
        st = wanted ? read_value(r, type, &item) : take_text(r, &text, &bytes);
        if (item) dra_json_append(&r->json, *out, item);
    }
    return st == DRA_OK && r->json.failed ? no_memory(r) : st;
}

static dra_status read_pair(reader *r)
{
    char       room[DRA_BRIEF], *key = NULL;
    uint32_t   type = 0;
    json_t    *value = NULL;
    dra_status st = take_name(r, &key);
    if (st == DRA_OK) st = take_u32(r, &type);
    if (st == DRA_OK && json_object_get(r->out->pairs, key))
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "the key '%s' is there twice",
                           dra_brief(key, room));
    if (st == DRA_OK)
        st = type == DRA_GGUF_LIST ? read_list(r, strncmp(key, "tokenizer.", 10) == 0, &value)
                                   : read_value(r, type, &value);
    if (st != DRA_OK) {
        json_decref(value);
        return st;
    }
    dra_json_set(&r->json, r->out->pairs, key, value);
    return r->json.failed ? no_memory(r) : DRA_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static dra_dtype dtype_of(uint32_t number)
{
    const dra_gguf_type *t = dra_gguf_types;
    while (t->dtype != DRA_DTYPE_COUNT && t->number != number) t++;
    return t->dtype;
}

static dra_status read_shape(reader *r, dra_shape *shape)
{
    uint32_t   axes = 0;
    dra_status st = take_u32(r, &axes);
    if (st == DRA_OK && (axes < 1 || axes > AXES))
        return fail_reading(r, "the number of axes", axes, "1 to 4");
    shape->rank = (int32_t)axes;
    for (uint32_t i = 0; i < axes && st == DRA_OK; i++) { /* stored fastest first */
        uint64_t n = 0;
        st = take_u64(r, &n);
        if (st == DRA_OK && (n < 1 || n > INT64_MAX))
            return fail_reading(r, "a size", n, "1 or more");
        shape->dim[axes - 1 - i] = (int64_t)n;
    }
    return st;
}

/* data: for now, the offset. */
static dra_status read_tensor(reader *r, dra_tensor_info *t)
{
    char       brief[DRA_BRIEF], shape[160], *name = NULL;
    uint32_t   number = 0;
    uint64_t   offset = 0;
    dra_status st = take_name(r, &name);
    if (st == DRA_OK && strlen(name) > NAME_MOST)
        return fail_reading(r, "the length of a tensor's name", strlen(name), "1 to 63");
    if (st == DRA_OK) st = read_shape(r, &t->shape);
    if (st == DRA_OK) st = take_u32(r, &number);
    if (st == DRA_OK) st = take_u64(r, &offset);
    if (st != DRA_OK) return st;
    t->name = name;
    t->dtype = dtype_of(number);
    if (t->dtype == DRA_DTYPE_COUNT)
        return dra_fail_at(r->err, DRA_ERR_DTYPE, r->path,
                           "tensor '%s': its type is ggml's number %u, expected %sF32, F16, "
                           "BF16 or F64",
                           dra_brief(name, brief), number, quants);
    t->dtype_name = dra_file_dtype_name(t->dtype);
    if (!dra_type_bytes(t->dtype, &t->shape, &t->bytes))
        return dra_fail_at(r->err, DRA_ERR_SHAPE, r->path,
                           "tensor '%s': %s %s is too large or cuts a block of %zu",
                           dra_brief(name, brief), t->dtype_name,
                           dra_shape_text(&t->shape, shape, sizeof shape),
                           dra_dtype_get(t->dtype)->block_elements);
    t->data = (const void *)(uintptr_t)offset;
    return DRA_OK;
}

static int by_place(const void *a, const void *b)
{
    const dra_tensor_info *x = a, *y = b;
    return x->data != y->data ? (x->data < y->data ? -1 : 1) : strcmp(x->name, y->name);
}

/* Tensors are inside the data, aligned, and do not overlap; no name is there twice. */
static dra_status place_tensors(reader *r, uint64_t alignment)
{
    dra_header  *h = &r->out->header;
    const size_t start = (r->at + (size_t)alignment - 1) / (size_t)alignment * (size_t)alignment;
    const size_t room = start < r->bytes ? r->bytes - start : 0;
    size_t       end = 0;
    char         brief[DRA_BRIEF];
    if (h->count) qsort(h->tensor, h->count, sizeof *h->tensor, by_place);
    for (size_t i = 0; i < h->count; i++) {
        dra_tensor_info *t = &h->tensor[i];
        const size_t     offset = (size_t)(uintptr_t)t->data;
        if (offset % alignment || offset < end || offset > room || t->bytes > room - offset)
            return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path,
                               "tensor '%s': %zu bytes at %zu of %zu, the last one ends at %zu; "
                               "expected a multiple of %llu, inside the file and after it",
                               dra_brief(t->name, brief), t->bytes, offset, room, end,
                               (unsigned long long)alignment);
        end = offset + t->bytes;
        t->data = r->file + start + offset;
    }
    dra_header_sort(h);
    for (size_t i = 1; i < h->count; i++)
        if (strcmp(h->by_name[i - 1]->name, h->by_name[i]->name) == 0)
            return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "tensor '%s' is there twice",
                               dra_brief(h->by_name[i]->name, brief));
    return DRA_OK;
}

static dra_status read_tensors(reader *r, uint64_t n)
{
    dra_header   *h = &r->out->header;
    const json_t *said = json_object_get(r->out->pairs, DRA_GGUF_ALIGNMENT_KEY);
    const int64_t alignment = said ? (int64_t)json_integer_value(said) : DRA_GGUF_ALIGNMENT;
    dra_status    st = DRA_OK;
    if (alignment < 1 || alignment > 1 << 20 || (alignment & (alignment - 1)))
        return fail_reading(r, DRA_GGUF_ALIGNMENT_KEY, (unsigned long long)alignment,
                            "a power of two");
    h->tensor = dra_arena_alloc(&h->arena, (size_t)n * sizeof *h->tensor + 1);
    h->by_name = dra_arena_alloc(&h->arena, (size_t)n * sizeof(void *) + 1);
    if (!h->tensor || !h->by_name) return no_memory(r);
    for (; h->count < n && st == DRA_OK; h->count += st == DRA_OK) {
        h->tensor[h->count] = (dra_tensor_info){0};
        st = read_tensor(r, &h->tensor[h->count]);
    }
    return st == DRA_OK ? place_tensors(r, (uint64_t)alignment) : st;
}

/* ---- the file -------------------------------------------------------------------------------- */

static dra_status read_file(reader *r)
{
    uint32_t   magic = 0, version = 0;
    uint64_t   tensors = 0, pairs = 0;
    dra_status st = take_u32(r, &magic);
    if (st == DRA_OK) st = take_u32(r, &version);
    if (st == DRA_OK && (magic != DRA_GGUF_MAGIC || version < 2 || version > DRA_GGUF_VERSION))
        return fail_reading(r, "the version of GGUF", version,
                            version == 0x03000000 ? "3 in little-endian order" : "2 or 3");
    if (st == DRA_OK) st = take_u64(r, &tensors);
    if (st == DRA_OK) st = take_u64(r, &pairs);
    if (st != DRA_OK) return st;
    if (pairs > r->bytes / PAIR_LEAST)
        return fail_reading(r, "the number of pairs", pairs, "no more than the file has room for");
    if (tensors > r->bytes / TENSOR_LEAST)
        return fail_reading(r, "the number of tensors", tensors,
                            "no more than the file has room for");
    r->out->pairs = dra_json_object(&r->json);
    if (!r->out->pairs) return no_memory(r);
    for (uint64_t i = 0; i < pairs && st == DRA_OK; i++) st = read_pair(r);
    if (st == DRA_OK && json_integer_value(json_object_get(r->out->pairs, "split.count")) > 1)
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path,
                           "is one of several parts, expected a whole model");
    return st == DRA_OK ? read_tensors(r, tensors) : st;
}

dra_status dra_gguf_read(const char *path, const unsigned char *file, size_t bytes, dra_gguf *out,
                         dra_error *err)
{
    reader r = {.path = path, .file = file, .bytes = bytes, .out = out, .err = err};
    *out = (dra_gguf){0};
    const dra_status st = read_file(&r);
    if (st != DRA_OK) dra_gguf_free(out);
    return st;
}

void dra_gguf_free(dra_gguf *g)
{
    dra_header_free(&g->header);
    json_decref(g->pairs);
    *g = (dra_gguf){0};
}
