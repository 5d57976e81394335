/* Writing GGUF; gguf.h says what is in such a file. */
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "file/gguf.h"

typedef struct writer {
    dra_file_writer *file;
    size_t           at; /* bytes written */
    dra_error       *err;
} writer;

/* A writer keeps its first error, which the commit tells. */
static void put_bytes(writer *w, const void *data, size_t n)
{
    dra_file_writer_write(w->file, data, n, w->err);
    w->at += n;
}

static void put_u32(writer *w, uint32_t x) { put_bytes(w, &x, sizeof x); }
static void put_u64(writer *w, uint64_t x) { put_bytes(w, &x, sizeof x); }

static void put_text(writer *w, const char *text)
{
    put_u64(w, strlen(text));
    put_bytes(w, text, strlen(text));
}

static void put_padding(writer *w)
{
    static const char zeros[DRA_GGUF_ALIGNMENT] = {0};
    put_bytes(w, zeros, (DRA_GGUF_ALIGNMENT - w->at % DRA_GGUF_ALIGNMENT) % DRA_GGUF_ALIGNMENT);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static uint32_t type_of(const json_t *v, bool in_list)
{
    return json_is_array(v)     ? DRA_GGUF_LIST
           : json_is_string(v)  ? DRA_GGUF_TEXT
           : json_is_boolean(v) ? DRA_GGUF_BOOL
           : json_is_real(v)    ? DRA_GGUF_F32
           : in_list            ? DRA_GGUF_I32
                                : DRA_GGUF_U32;
}

static void put_value(writer *w, const json_t *v)
{
    const float         real = (float)json_number_value(v);
    const unsigned char yes = json_is_true(v);
    if (json_is_string(v))
        put_text(w, json_string_value(v));
    else if (json_is_boolean(v))
        put_bytes(w, &yes, 1);
    else if (json_is_real(v))
        put_bytes(w, &real, sizeof real);
    else
        put_u32(w, (uint32_t)json_integer_value(v));
}

static void put_pair(writer *w, const char *key, const json_t *v)
{
    const size_t n = json_array_size(v);
    put_text(w, key);
    put_u32(w, type_of(v, false));
    if (!json_is_array(v)) {
        put_value(w, v);
        return;
    }
    put_u32(w, n ? type_of(json_array_get(v, 0), true) : DRA_GGUF_I32);
    put_u64(w, n);
    for (size_t i = 0; i < n; i++) put_value(w, json_array_get(v, i));
}

/* ---- tensors --------------------------------------------------------------------------------- */

static size_t bytes_of(const dra_tensor_item *item)
{
    size_t bytes = 0;
    dra_type_bytes(item->dtype, &item->shape, &bytes);
    return bytes;
}

static size_t pad_size(size_t bytes)
{
    return (bytes + DRA_GGUF_ALIGNMENT - 1) / DRA_GGUF_ALIGNMENT * DRA_GGUF_ALIGNMENT;
}

static uint32_t number_of(dra_dtype dtype)
{
    const dra_gguf_type *t = dra_gguf_types;
    while (t->dtype != dtype && t->dtype != DRA_DTYPE_COUNT) t++;
    return t->number;
}

static void put_tensor(writer *w, const dra_tensor_item *item, size_t offset)
{
    put_text(w, item->name);
    put_u32(w, (uint32_t)item->shape.rank);
    for (int32_t i = item->shape.rank; i > 0; i--) put_u64(w, (uint64_t)item->shape.dim[i - 1]);
    put_u32(w, number_of(item->dtype));
    put_u64(w, offset);
}

static dra_status put_data(writer *w, const dra_tensor_item *item)
{
    dra_error   why = {0};
    const void *data = item->make ? item->make(item->user, &why) : item->data;
    if (!data && bytes_of(item))
        return dra_fail(w->err, why.code ? why.code : DRA_ERR_MEMORY, "%s", why.text);
    put_bytes(w, data, bytes_of(item));
    put_padding(w);
    return DRA_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

static dra_status put_all(writer *w, json_t *pairs, const dra_tensor_item *items, size_t n)
{
    const char *key;
    json_t     *value;
    size_t      offset = 0;
    dra_status  st = DRA_OK;
    put_u32(w, DRA_GGUF_MAGIC);
    put_u32(w, DRA_GGUF_VERSION);
    put_u64(w, n);
    put_u64(w, json_object_size(pairs));
    json_object_foreach(pairs, key, value) put_pair(w, key, value);
    for (size_t i = 0; i < n; i++) {
        put_tensor(w, &items[i], offset);
        offset += pad_size(bytes_of(&items[i]));
    }
    put_padding(w);
    for (size_t i = 0; i < n && st == DRA_OK; i++) st = put_data(w, &items[i]);
    return st;
}

dra_status dra_gguf_write(const char *path, const json_t *pairs, const dra_tensor_item *items,
                          size_t n, dra_error *err)
{
    writer     w = {.err = err};
    dra_status st = dra_file_writer_begin(path, &w.file, err);
    if (st == DRA_OK) st = put_all(&w, (json_t *)(uintptr_t)pairs, items, n);
    if (st == DRA_OK) return dra_file_writer_commit(w.file, err);
    dra_file_writer_abort(w.file);
    return st;
}
