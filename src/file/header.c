/* Checks the header of a safetensors file. The rules, each before what it guards is used:
 *   8 <= bytes, N <= 10^8, 8 + N <= bytes
 *   the header is UTF-8, one JSON object from its first byte on, then only spaces
 *   no key twice; a tensor has dtype, shape, data_offsets and nothing else; numbers are natural
 *   end - begin = product of shape * bits / 8, without overflow
 *   sorted by begin, tensors cover the data: no hole, no overlap, nothing after the last */
#include "file/header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "file/format.h"
#include "file/json.h"

enum { NESTING = 3 }; /* header, tensor, shape */

typedef struct reader {
    const char          *path;
    const unsigned char *data; /* after the header */
    size_t               bytes;
    dra_header          *out;
    dra_error           *err;
} reader;

static dra_status refuse_tensor(const reader *r, const char *name, const char *format, ...)
    DRA_PRINTF(3, 4);

static dra_status refuse_tensor(const reader *r, const char *name, const char *format, ...)
{
    char    room[DRA_BRIEF], text[DRA_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "tensor '%s': %s", dra_brief(name, room),
                       text);
}

static dra_status no_memory(const reader *r)
{
    return dra_fail_at(r->err, DRA_ERR_MEMORY, r->path, "out of memory for its header");
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static dra_status read_shape(const reader *r, const char *name, const json_t *list, dra_shape *s)
{
    const size_t rank = json_array_size(list);
    if (!json_is_array(list)) return refuse_tensor(r, name, "shape is not a list");
    if (rank > DRA_MAX_RANK)
        return refuse_tensor(r, name, "has %zu axes, expected at most %d", rank, DRA_MAX_RANK);
    s->rank = (int32_t)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *size = json_array_get(list, i);
        if (!json_is_integer(size))
            return refuse_tensor(r, name, "axis %zu is not a natural number", i);
        s->dim[i] = json_integer_value(size);
    }
    return DRA_OK;
}

static dra_status read_place(const reader *r, const json_t *list, size_t bits, dra_tensor_info *t)
{
    const json_t *first = json_array_get(list, 0), *second = json_array_get(list, 1);
    if (json_array_size(list) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return refuse_tensor(r, t->name, "data_offsets are not two natural numbers");
    const size_t begin = (size_t)json_integer_value(first);
    const size_t end = (size_t)json_integer_value(second);
    char         shape[160];
    size_t       wanted;
    dra_shape_text(&t->shape, shape, sizeof shape);
    if (!dra_bits_of(&t->shape, bits, &wanted))
        return refuse_tensor(r, t->name, "shape %s is too large", shape);
    if (wanted % 8 != 0)
        return refuse_tensor(r, t->name, "%s %s does not fill whole bytes", t->dtype_name, shape);
    if (begin > end)
        return refuse_tensor(r, t->name, "data ends at %zu, before its begin %zu", end, begin);
    if (end > r->bytes)
        return refuse_tensor(r, t->name, "data ends at %zu, the file has %zu bytes of data", end,
                             r->bytes);
    if (end - begin != wanted / 8)
        return refuse_tensor(r, t->name, "has %zu bytes, expected %zu for %s %s", end - begin,
                             wanted / 8, t->dtype_name, shape);
    t->data = r->data + begin;
    t->bytes = end - begin;
    return DRA_OK;
}

static dra_status read_tensor(const reader *r, const char *name, const json_t *from,
                              dra_tensor_info *t)
{
    char          room[DRA_BRIEF];
    const json_t *dtype = json_object_get(from, "dtype"), *shape = json_object_get(from, "shape");
    const json_t *place = json_object_get(from, "data_offsets");
    if (dra_name_has_control(name))
        return refuse_tensor(r, name, "its name has a control character");
    if (!json_is_object(from)) return refuse_tensor(r, name, "is not an object");
    if (!dtype || !shape || !place || json_object_size(from) != 3)
        return refuse_tensor(r, name, "expected exactly dtype, shape and data_offsets");
    if (!json_is_string(dtype)) return refuse_tensor(r, name, "dtype is not a text");
    const dra_file_dtype *type = dra_file_dtype_find(json_string_value(dtype));
    if (!type)
        return refuse_tensor(r, name, "dtype '%s' is unknown",
                             dra_brief(json_string_value(dtype), room));
    *t = (dra_tensor_info){.name = dra_arena_text(&r->out->arena, name),
                           .dtype_name = type->name,
                           .dtype = type->dtype};
    if (!t->name) return no_memory(r);
    const dra_status status = read_shape(r, name, shape, &t->shape);
    return status == DRA_OK ? read_place(r, place, type->bits, t) : status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static dra_status read_metadata(const reader *r, json_t *from)
{
    dra_header *h = r->out;
    const char *key;
    json_t     *value;
    if (!json_is_object(from))
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, DRA_METADATA_KEY " is not an object");
    h->metadata = dra_arena_alloc(&h->arena, json_object_size(from) * sizeof *h->metadata);
    if (!h->metadata) return no_memory(r);
    json_object_foreach(from, key, value)
    {
        char room[DRA_BRIEF];
        if (!json_is_string(value))
            return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path,
                               DRA_METADATA_KEY " '%s' is not a text", dra_brief(key, room));
        dra_metadata_item *item = &h->metadata[h->n_metadata++];
        item->key = dra_arena_text(&h->arena, key);
        item->value = dra_arena_text(&h->arena, json_string_value(value));
        if (!item->key || !item->value) return no_memory(r);
    }
    return DRA_OK;
}

/* A tensor of bytes that the metadata says to be quantised becomes what it is. */
static dra_status name_quantised(const reader *r, const dra_metadata_item *item)
{
    const char      *name = item->key + sizeof DRA_QUANTISED_KEY - 1;
    const dra_dtype  dtype = dra_file_quantised_find(item->value);
    dra_tensor_info *t = NULL;
    char             room[DRA_BRIEF];
    for (size_t i = 0; i < r->out->count; i++)
        if (strcmp(r->out->tensor[i].name, name) == 0) t = &r->out->tensor[i];
    if (!t || dtype == DRA_DTYPE_COUNT)
        return refuse_tensor(r, name, "is quantised as '%s', %s", dra_brief(item->value, room),
                             t ? "which is unknown" : "but there is no such tensor");
    const dra_dtype_info *info = dra_dtype_get(dtype);
    int64_t              *last = &t->shape.dim[t->shape.rank ? t->shape.rank - 1 : 0];
    if (strcmp(t->dtype_name, "U8") != 0 || !t->shape.rank || *last % (int64_t)info->block_bytes)
        return refuse_tensor(r, name,
                             "%s, expected U8 with a multiple of %zu bytes along its last axis: %s",
                             t->dtype_name, info->block_bytes, item->value);
    *last = *last / (int64_t)info->block_bytes * (int64_t)info->block_elements;
    t->dtype = dtype;
    t->dtype_name = dra_file_dtype_name(dtype);
    return DRA_OK;
}

static dra_status name_all_quantised(const reader *r)
{
    const size_t n = sizeof DRA_QUANTISED_KEY - 1;
    dra_status   st = DRA_OK;
    for (size_t i = 0; i < r->out->n_metadata && st == DRA_OK; i++)
        if (strncmp(r->out->metadata[i].key, DRA_QUANTISED_KEY, n) == 0)
            st = name_quantised(r, &r->out->metadata[i]);
    return st;
}

static int by_place(const void *a, const void *b)
{
    const dra_tensor_info *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; /* empty ones come first */
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const dra_tensor_info *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

void dra_header_sort(dra_header *h)
{
    for (size_t i = 0; i < h->count; i++) h->by_name[i] = &h->tensor[i];
    qsort(h->by_name, h->count, sizeof *h->by_name, by_name);
}

/* Holes could hide something, overlaps make a small file ask for much memory. */
static dra_status check_cover(const reader *r)
{
    const dra_header *h = r->out;
    size_t            at = 0;
    for (size_t i = 0; i < h->count; i++) {
        const size_t begin = (size_t)((const unsigned char *)h->tensor[i].data - r->data);
        if (begin != at)
            return refuse_tensor(r, h->tensor[i].name,
                                 "data begins at %zu, expected %zu, where the last ends", begin,
                                 at);
        at += h->tensor[i].bytes;
    }
    if (at == r->bytes) return DRA_OK;
    return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path,
                       "has %zu bytes of data, its tensors only %zu", r->bytes, at);
}

static dra_status read_members(const reader *r, json_t *root)
{
    dra_header *h = r->out;
    const char *key;
    json_t     *value;
    dra_status  status = DRA_OK;
    h->tensor = dra_arena_alloc(&h->arena, json_object_size(root) * sizeof *h->tensor);
    h->by_name = dra_arena_alloc(&h->arena, json_object_size(root) * sizeof(void *));
    if (!h->tensor || !h->by_name) return no_memory(r);
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, DRA_METADATA_KEY) == 0)
            status = read_metadata(r, value);
        else
            status = read_tensor(r, key, value, &h->tensor[h->count++]);
        if (status != DRA_OK) return status;
    }
    qsort(h->tensor, h->count, sizeof *h->tensor, by_place);
    dra_header_sort(h);
    status = name_all_quantised(r);
    return status == DRA_OK ? check_cover(r) : status;
}

/* ---- the header ------------------------------------------------------------------------------ */

static dra_status find_header(const char *path, const unsigned char *file, size_t bytes,
                              size_t *length, dra_error *err)
{
    uint64_t n;
    if (bytes < DRA_HEADER_LENGTH)
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "has %zu bytes, safetensors have 8 or more",
                           bytes);
    memcpy(&n, file, sizeof n);
    if (n > DRA_HEADER_LIMIT)
        return dra_fail_at(err, DRA_ERR_FORMAT, path,
                           "header of %llu bytes, expected at most %d: not safetensors?",
                           (unsigned long long)n, DRA_HEADER_LIMIT);
    if (n > bytes - DRA_HEADER_LENGTH)
        return dra_fail_at(err, DRA_ERR_FORMAT, path,
                           "header of %llu bytes, but only %zu follow: cut short?",
                           (unsigned long long)n, bytes - DRA_HEADER_LENGTH);
    *length = (size_t)n;
    return DRA_OK;
}

bool dra_header_is(const unsigned char *file, size_t bytes)
{
    uint64_t n;
    if (bytes < DRA_HEADER_LENGTH) return false;
    memcpy(&n, file, sizeof n);
    return n <= DRA_HEADER_LIMIT && (bytes == DRA_HEADER_LENGTH || file[DRA_HEADER_LENGTH] == '{');
}

dra_status dra_header_read(const char *path, const unsigned char *file, size_t bytes,
                           dra_header *out, dra_error *err)
{
    size_t     length = 0;
    json_t    *root = NULL;
    dra_status status = find_header(path, file, bytes, &length, err);
    *out = (dra_header){0};
    if (status != DRA_OK) return status;
    const char *text = (const char *)file + DRA_HEADER_LENGTH;
    size_t      end = length;
    while (end && text[end - 1] == ' ') end--;
    if (end < 2 || text[0] != '{' || text[end - 1] != '}')
        return dra_fail_at(err, DRA_ERR_FORMAT, path,
                           "header is not '{' to '}' with nothing but spaces after it");
    status = dra_json_parse(path, text, end, (dra_json_rules){NESTING, true}, &root, err);
    if (status == DRA_OK) {
        const unsigned char *data = file + DRA_HEADER_LENGTH + length;
        const reader         r = {path, data, bytes - DRA_HEADER_LENGTH - length, out, err};
        status = read_members(&r, root);
    }
    json_decref(root);
    if (status != DRA_OK) dra_header_free(out);
    return status;
}

void dra_header_free(dra_header *h)
{
    dra_arena_free(&h->arena);
    *h = (dra_header){0};
}
