/* Writing safetensors. Data starts at a multiple of 64 bytes and wide types come first, so that
 * every tensor is aligned for its type. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "file/format.h"
#include "file/seal.h"
#include "file/writer.h"

enum { ALIGNMENT = 64 };

typedef struct job {
    const char             *path;
    const dra_tensor_item **sorted;
    size_t                  n;
    dra_error              *err;
    bool                    sealed;
    dra_json                json;
} job;

/* Blocks need no alignment. */
static size_t width_of(dra_dtype t) { return dra_is_quantised(t) ? 1 : dra_dtype_bytes(t); }

static int by_width_and_name(const void *a, const void *b)
{
    const dra_tensor_item *const *x = a, *const *y = b;
    const size_t                  wx = width_of((*x)->dtype), wy = width_of((*y)->dtype);
    return wx != wy ? (wx > wy ? -1 : 1) : strcmp((*x)->name, (*y)->name);
}

/* As the file says it: of what is quantised, the last axis in bytes. */
static dra_shape shape_of(const dra_tensor_item *item)
{
    dra_shape s = item->shape;
    if (dra_is_quantised(item->dtype) && s.rank)
        s.dim[s.rank - 1] = dra_elements_bytes(item->dtype, s.dim[s.rank - 1]);
    return s;
}

static bool bits_of(const dra_tensor_item *item, size_t *out)
{
    const dra_shape s = shape_of(item);
    return dra_bits_of(&s, 8 * width_of(item->dtype), out);
}

static bool is_whole(const dra_tensor_item *item) /* its blocks fill the last axis */
{
    const int64_t last = item->shape.rank ? item->shape.dim[item->shape.rank - 1] : 1;
    return last % (int64_t)dra_dtype_get(item->dtype)->block_elements == 0;
}

static size_t bytes_of(const dra_tensor_item *item) /* of one that was checked */
{
    size_t bits = 0;
    bits_of(item, &bits);
    return bits / 8;
}

static dra_status check_type(const job *j, const dra_tensor_item *item, const char *name)
{
    char   shape[160];
    size_t bits;
    if (item->shape.rank < 0 || item->shape.rank > DRA_MAX_RANK)
        return dra_fail_at(j->err, DRA_ERR_SHAPE, j->path,
                           "tensor '%s': has %d axes, expected 0 to %d", name,
                           (int)item->shape.rank, DRA_MAX_RANK);
    if (!dra_dtype_get(item->dtype))
        return dra_fail_at(j->err, DRA_ERR_DTYPE, j->path, "tensor '%s': no dtype has number %d",
                           name, (int)item->dtype);
    if (!is_whole(item))
        return dra_fail_at(j->err, DRA_ERR_SHAPE, j->path,
                           "tensor '%s': last axis of %s, expected a multiple of %zu: %s", name,
                           dra_shape_text(&item->shape, shape, sizeof shape),
                           dra_dtype_get(item->dtype)->block_elements,
                           dra_dtype_get(item->dtype)->name);
    if (!bits_of(item, &bits))
        return dra_fail_at(j->err, DRA_ERR_SHAPE, j->path,
                           "tensor '%s': shape %s is negative or too large", name,
                           dra_shape_text(&item->shape, shape, sizeof shape));
    return DRA_OK;
}

static dra_status check_item(const job *j, const dra_tensor_item *item)
{
    char name[DRA_BRIEF];
    if (!item->name) return dra_fail_at(j->err, DRA_ERR_NAME, j->path, "a tensor without a name");
    dra_brief(item->name, name);
    if (strcmp(item->name, DRA_METADATA_KEY) == 0 || dra_name_has_control(item->name))
        return dra_fail_at(j->err, DRA_ERR_NAME, j->path, "'%s' cannot be a tensor's name", name);
    const dra_status status = check_type(j, item, name);
    if (status != DRA_OK) return status;
    const size_t bytes = bytes_of(item);
    if (item->make) return DRA_OK;
    if (bytes && !item->data)
        return dra_fail_at(j->err, DRA_ERR_VALUE, j->path, "tensor '%s': has no data", name);
    const size_t wrong = item->dtype == DRA_BOOL ? dra_bools_wrong(item->data, bytes) : bytes;
    if (wrong < bytes)
        return dra_fail_at(j->err, DRA_ERR_VALUE, j->path,
                           "tensor '%s': element %zu is %d, expected 0 or 1", name, wrong,
                           ((const unsigned char *)item->data)[wrong]);
    return DRA_OK;
}

/* ---- the header ------------------------------------------------------------------------------ */

static dra_status no_memory(const job *j)
{
    return dra_fail_at(j->err, DRA_ERR_MEMORY, j->path, "out of memory for its header");
}

static dra_status check_utf8(const job *j, const char *text)
{
    char room[DRA_BRIEF];
    if (dra_is_utf8(text)) return DRA_OK;
    return dra_fail_at(j->err, DRA_ERR_NAME, j->path, "'%s' is not UTF-8", dra_brief(text, room));
}

/* Puts `value`, which it takes over, under a new key. */
static dra_status put_member(job *j, json_t *object, const char *key, json_t *value)
{
    char             room[DRA_BRIEF];
    const dra_status status = check_utf8(j, key);
    if (status == DRA_OK && !json_object_get(object, key)) {
        dra_json_set(&j->json, object, key, value);
        return DRA_OK;
    }
    json_decref(value);
    if (status != DRA_OK) return status;
    return dra_fail_at(j->err, DRA_ERR_NAME, j->path, "'%s' is there twice", dra_brief(key, room));
}

/* A tensor's member of the header. */
static json_t *describe_tensor(job *j, const dra_tensor_item *item, size_t begin)
{
    dra_json *make = &j->json;
    json_t   *o = dra_json_object(make), *shape = dra_json_array(make),
           *offsets = dra_json_array(make);
    const dra_shape s = shape_of(item);
    const bool      quantised = dra_is_quantised(item->dtype);
    for (int32_t i = 0; i < s.rank; i++) dra_json_append(make, shape, dra_json_int(make, s.dim[i]));
    dra_json_append(make, offsets, dra_json_int(make, (int64_t)begin));
    dra_json_append(make, offsets, dra_json_int(make, (int64_t)(begin + bytes_of(item))));
    dra_json_set(make, o, "dtype",
                 dra_json_text(make, quantised ? "U8" : dra_file_dtype_name(item->dtype)));
    dra_json_set(make, o, "shape", shape);
    dra_json_set(make, o, "data_offsets", offsets);
    return o;
}

/* Which tensors are quantised, and how. */
static dra_status put_quantised(job *j, json_t *metadata)
{
    dra_status status = DRA_OK;
    for (size_t i = 0; i < j->n && status == DRA_OK; i++) {
        const dra_tensor_item *item = j->sorted[i];
        char                   key[512];
        if (!dra_is_quantised(item->dtype)) continue;
        const int n = snprintf(key, sizeof key, DRA_QUANTISED_KEY "%s", item->name);
        if (n < 0 || (size_t)n >= sizeof key)
            return dra_fail_at(j->err, DRA_ERR_NAME, j->path, "the name of a tensor is too long");
        status = put_member(j, metadata, key,
                            dra_json_text(&j->json, dra_file_dtype_name(item->dtype)));
    }
    return status;
}

static dra_status put_metadata(job *j, const dra_metadata_item *items, size_t n, json_t *root)
{
    json_t    *metadata = dra_json_object(&j->json);
    dra_status status = put_member(j, root, DRA_METADATA_KEY, metadata);
    for (size_t i = 0; i < n && status == DRA_OK; i++) {
        if (!items[i].key || !items[i].value)
            return dra_fail_at(j->err, DRA_ERR_VALUE, j->path,
                               "metadata %zu has no key or no value", i);
        status = check_utf8(j, items[i].value);
        if (status == DRA_OK)
            status = put_member(j, metadata, items[i].key, dra_json_text(&j->json, items[i].value));
    }
    return status == DRA_OK ? put_quantised(j, metadata) : status;
}

static dra_status put_tensors(job *j, json_t *root)
{
    size_t     at = 0;
    dra_status status = DRA_OK;
    for (size_t i = 0; i < j->n && status == DRA_OK; i++) {
        const dra_tensor_item *item = j->sorted[i];
        const size_t           bytes = bytes_of(item);
        if (bytes > (size_t)INT64_MAX - at)
            return dra_fail_at(j->err, DRA_ERR_MEMORY, j->path,
                               "its tensors are too large together");
        status = put_member(j, root, item->name, describe_tensor(j, item, at));
        at += bytes;
    }
    return status;
}

/* N and the header: its text and spaces up to the alignment. The caller frees *out. */
static dra_status make_text(job *j, const json_t *root, char **out, size_t *bytes)
{
    char      *dump = NULL;
    size_t     length = 0;
    dra_status status = DRA_OK;
    if (dra_json_dump(&j->json, root, JSON_COMPACT, j->path, &dump, &length, NULL) != DRA_OK)
        return no_memory(j); /* texts were checked before */
    const size_t size = (DRA_HEADER_LENGTH + length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const size_t padded = size - DRA_HEADER_LENGTH;
    char        *text = padded > DRA_HEADER_LIMIT ? NULL : malloc(size);
    if (padded > DRA_HEADER_LIMIT)
        status = dra_fail_at(j->err, DRA_ERR_VALUE, j->path,
                             "header of %zu bytes, at most %d allowed", padded, DRA_HEADER_LIMIT);
    else if (!text)
        status = no_memory(j);
    if (status == DRA_OK) {
        memset(text, ' ', size);
        memcpy(text, &(uint64_t){padded}, DRA_HEADER_LENGTH);
        memcpy(text + DRA_HEADER_LENGTH, dump, length);
        *bytes = size;
    }
    *out = text;
    free(dump);
    return status;
}

static dra_status make_header(job *j, const dra_metadata_item *metadata, size_t n_metadata,
                              char **out, size_t *bytes)
{
    json_t    *root = dra_json_object(&j->json);
    dra_status status = DRA_OK;
    bool       quantised = false;
    for (size_t i = 0; i < j->n; i++) quantised |= dra_is_quantised(j->sorted[i]->dtype);
    if (n_metadata || quantised) status = put_metadata(j, metadata, n_metadata, root);
    if (status == DRA_OK) status = put_tensors(j, root);
    if (status == DRA_OK) status = make_text(j, root, out, bytes);
    json_decref(root);
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

static dra_status write_file(const job *j, const char *header, size_t bytes)
{
    dra_file_writer *w = NULL;
    dra_status       status = dra_file_writer_begin(j->path, &w, j->err);
    if (status == DRA_OK && j->sealed) dra_file_writer_seal(w, DRA_SEAL_AT);
    if (status == DRA_OK) status = dra_file_writer_write(w, header, bytes, j->err);
    for (size_t i = 0; i < j->n && status == DRA_OK; i++) {
        const dra_tensor_item *item = j->sorted[i];
        dra_error              why = {0};
        const void            *data = item->make ? item->make(item->user, &why) : item->data;
        status = data || !bytes_of(item)
                     ? dra_file_writer_write(w, data, bytes_of(item), j->err)
                     : dra_fail(j->err, why.code ? why.code : DRA_ERR_MEMORY, "%s", why.text);
    }
    if (status == DRA_OK) return dra_file_writer_commit(w, j->err);
    dra_file_writer_abort(w);
    return status;
}

static dra_status write_tensors(const char *path, const dra_tensor_item *items, size_t n,
                                const dra_metadata_item *metadata, size_t n_metadata, bool sealed,
                                dra_error *err)
{
    job        j = {path, calloc(n ? n : 1, sizeof *j.sorted), n, err, sealed};
    char      *header = NULL;
    size_t     bytes = 0;
    dra_status status = j.sorted ? DRA_OK : no_memory(&j);
    for (size_t i = 0; i < n && status == DRA_OK; i++) {
        j.sorted[i] = &items[i];
        status = check_item(&j, &items[i]);
    }
    if (status == DRA_OK) {
        qsort(j.sorted, n, sizeof *j.sorted, by_width_and_name);
        status = make_header(&j, metadata, n_metadata, &header, &bytes);
    }
    if (status == DRA_OK) status = write_file(&j, header, bytes);
    free(header);
    free(j.sorted);
    return status;
}

dra_status dra_tensors_write(const char *path, const dra_tensor_item *items, size_t n,
                             const dra_metadata_item *metadata, size_t n_metadata, dra_error *err)
{
    if (!path || (n && !items) || (n_metadata && !metadata))
        return dra_fail(err, DRA_ERR_VALUE, "tensors_write: no path, items or metadata");
    return write_tensors(path, items, n, metadata, n_metadata, false, err);
}

dra_status dra_tensors_write_sealed(const char *path, const dra_tensor_item *items, size_t n,
                                    const dra_metadata_item *metadata, size_t n_metadata,
                                    dra_error *err)
{
    dra_metadata_item *all = calloc(n_metadata + 2, sizeof *all);
    if (!all) return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory for its header");
    all[0] = (dra_metadata_item){DRA_SEAL_VERSION_KEY, DRA_SEAL_VERSION};
    all[1] = (dra_metadata_item){"hash", "0000000000000000"};
    for (size_t i = 0; i < n_metadata; i++) all[2 + i] = metadata[i];
    const dra_status status = write_tensors(path, items, n, all, n_metadata + 2, true, err);
    free(all);
    return status;
}
