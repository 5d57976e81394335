/* Reading safetensors: the open file, its tensors and metadata, copies of tensors. */
#include <stdlib.h>
#include <string.h>

#include "base/quant.h"
#include "file/fail.h"
#include "file/format.h"
#include "file/header.h"
#include "file/file_map.h"
#include "file/pth.h"
#include "file/seal.h"

struct dra_tensors {
    char        *path;
    dra_file_map map;
    dra_header   header;
};

static dra_status read_tensors(dra_tensors *t, bool any, dra_error *err)
{
    const dra_file_map *m = &t->map;
    return any && dra_pth_is(m->data, m->bytes)
               ? dra_pth_read(t->path, m->data, m->bytes, &t->header, err)
               : dra_header_read(t->path, m->data, m->bytes, &t->header, err);
}

static dra_status open_tensors(const char *path, bool any, dra_tensors **out, dra_error *err)
{
    if (out) *out = NULL;
    if (!path || !out) return dra_fail(err, DRA_ERR_VALUE, "tensors_open: no path or no out");
    dra_tensors *t = calloc(1, sizeof *t);
    if (t) t->path = strdup(path);
    dra_status status = t && t->path ? dra_file_map_open(path, &t->map, err)
                                     : dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory");
    if (status == DRA_OK) status = read_tensors(t, any, err);
    if (status == DRA_OK)
        *out = t;
    else
        dra_tensors_close(t);
    return status;
}

dra_status dra_tensors_open(const char *path, dra_tensors **out, dra_error *err)
{
    return open_tensors(path, false, out, err);
}

dra_status dra_tensors_open_any(const char *path, dra_tensors **out, dra_error *err)
{
    return open_tensors(path, true, out, err);
}

void                dra_tensors_rest(const dra_tensors *t) { dra_file_map_rest(&t->map); }
const dra_file_map *dra_tensors_map(const dra_tensors *t) { return &t->map; }

void dra_tensors_close(dra_tensors *t)
{
    if (!t) return;
    dra_header_free(&t->header);
    dra_file_map_close(&t->map);
    free(t->path);
    free(t);
}

/* ---- the seal -------------------------------------------------------------------------------- */

static const char SEAL_KEY[] = "\"hash\":\"";
enum { SEAL_KEY_AT = DRA_SEAL_AT - (int)sizeof SEAL_KEY + 1 };

bool dra_tensors_sealed(const dra_tensors *t)
{
    const dra_file_map *m = &t->map;
    return dra_tensors_metadata(t, DRA_SEAL_VERSION_KEY) ||
           (m->bytes > DRA_SEAL_AT &&
            memcmp(m->data + SEAL_KEY_AT, SEAL_KEY, sizeof SEAL_KEY - 1) == 0);
}

dra_status dra_tensors_check(const dra_tensors *t, dra_error *err)
{
    const char *version = dra_tensors_metadata(t, DRA_SEAL_VERSION_KEY);
    char        room[DRA_BRIEF];
    if (!dra_tensors_sealed(t) || dra_seal_holds(t->map.data, t->map.bytes, DRA_SEAL_AT))
        return version && strcmp(version, DRA_SEAL_VERSION) != 0
                   ? dra_fail_at(err, DRA_ERR_FORMAT, t->path,
                                 "is of version %s of dra's files, expected " DRA_SEAL_VERSION,
                                 dra_brief(version, room))
                   : DRA_OK;
    return dra_fail_damaged(err, t->path);
}

/* ---- what is there --------------------------------------------------------------------------- */

size_t dra_tensors_count(const dra_tensors *t) { return t ? t->header.count : 0; }

const dra_tensor_info *dra_tensors_at(const dra_tensors *t, size_t i)
{
    return i < dra_tensors_count(t) ? &t->header.tensor[i] : NULL;
}

static int compare_name(const void *name, const void *entry)
{
    const dra_tensor_info *const *info = entry;
    return strcmp(name, (*info)->name);
}

const dra_tensor_info *dra_tensors_find(const dra_tensors *t, const char *name)
{
    if (!name || !dra_tensors_count(t)) return NULL;
    const dra_tensor_info **found = bsearch(name, t->header.by_name, t->header.count,
                                            sizeof *t->header.by_name, compare_name);
    return found ? *found : NULL;
}

size_t dra_tensors_metadata_count(const dra_tensors *t) { return t ? t->header.n_metadata : 0; }

const dra_metadata_item *dra_tensors_metadata_at(const dra_tensors *t, size_t i)
{
    return i < dra_tensors_metadata_count(t) ? &t->header.metadata[i] : NULL;
}

const char *dra_tensors_metadata(const dra_tensors *t, const char *key)
{
    for (size_t i = 0; key && i < dra_tensors_metadata_count(t); i++)
        if (strcmp(t->header.metadata[i].key, key) == 0) return t->header.metadata[i].value;
    return NULL;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static bool can_convert(dra_dtype from, dra_dtype to)
{
    const dra_dtype_info *info = dra_dtype_get(from);
    return info && (from == to || (info->is_float && (to == DRA_F32 || to == DRA_F64)));
}

/* Every float is exact in double. `from` needs no alignment. */
static void widen_numbers(dra_dtype dtype, size_t n, const unsigned char *from, double *to)
{
    for (size_t i = 0; i < n && dtype == DRA_F32; i++) {
        float x;
        memcpy(&x, from + sizeof x * i, sizeof x);
        to[i] = (double)x;
    }
    for (size_t i = 0; i < n && (dtype == DRA_BF16 || dtype == DRA_F16); i++) {
        uint16_t x;
        memcpy(&x, from + sizeof x * i, sizeof x);
        to[i] = (double)(dtype == DRA_BF16 ? dra_bf16_to_f32(x) : dra_f16_to_f32(x));
    }
    if (dtype == DRA_F64) memcpy(to, from, n * sizeof *to);
}

/* To F32 or F64, by blocks that stay in the first cache. */
static void convert_numbers(dra_dtype dtype, const unsigned char *from, size_t first, size_t count,
                            dra_dtype to, void *out)
{
    enum { BLOCK = 256 };
    double x[BLOCK];
    float  number[BLOCK];
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t n = count - at < BLOCK ? count - at : BLOCK;
        if (dra_is_quantised(dtype)) {
            dra_dequantise(dtype, from, (int64_t)(first + at), (int64_t)n, number);
            widen_numbers(DRA_F32, n, (const unsigned char *)number, x);
        } else {
            widen_numbers(dtype, n, from + (first + at) * dra_dtype_bytes(dtype), x);
        }
        if (to == DRA_F64) memcpy((double *)out + at, x, n * sizeof *x);
        for (size_t i = 0; i < n && to == DRA_F32; i++) ((float *)out)[at + i] = (float)x[i];
    }
}

bool dra_tensor_copy(const dra_tensor_info *t, size_t first, size_t n, dra_dtype dtype, void *to)
{
    if (!can_convert(t->dtype, dtype)) return false;
    const int64_t        skip = dra_elements_bytes(t->dtype, (int64_t)first);
    const unsigned char *from = t->data;
    if (n && dtype == t->dtype)
        memcpy(to, from + skip, (size_t)dra_elements_bytes(t->dtype, (int64_t)n));
    else if (n)
        convert_numbers(t->dtype, from, first, n, dtype, to);
    return true;
}

static dra_status check_read(const dra_tensors *t, const dra_tensor_info *info, dra_dtype dtype,
                             const dra_shape *shape, dra_error *err)
{
    char name[DRA_BRIEF], found[160], expected[160];
    dra_brief(info->name, name);
    if (!dra_shape_equal(&info->shape, shape))
        return dra_fail_at(err, DRA_ERR_SHAPE, t->path, "tensor '%s': shape %s, expected %s", name,
                           dra_shape_text(&info->shape, found, sizeof found),
                           dra_shape_text(shape, expected, sizeof expected));
    if (!can_convert(info->dtype, dtype))
        return dra_fail_at(err, DRA_ERR_DTYPE, t->path, "tensor '%s': dtype %s, expected %s", name,
                           info->dtype_name, dra_file_dtype_name(dtype));
    const size_t wrong = dtype == DRA_BOOL ? dra_bools_wrong(info->data, info->bytes) : info->bytes;
    if (wrong < info->bytes)
        return dra_fail_at(err, DRA_ERR_FORMAT, t->path,
                           "tensor '%s': element %zu is %d, expected 0 or 1", name, wrong,
                           ((const unsigned char *)info->data)[wrong]);
    return DRA_OK;
}

dra_status dra_tensors_read(const dra_tensors *t, const char *name, dra_dtype dtype,
                            dra_shape shape, void *to, dra_error *err)
{
    char room[DRA_BRIEF];
    if (!t || !name || !dra_dtype_get(dtype) || shape.rank < 0 || shape.rank > DRA_MAX_RANK)
        return dra_fail(err, DRA_ERR_VALUE, "tensors_read: no file, no name, or no such type");
    const dra_tensor_info *info = dra_tensors_find(t, name);
    if (!info)
        return dra_fail_at(err, DRA_ERR_NAME, t->path, "no tensor '%s'", dra_brief(name, room));
    const dra_status status = check_read(t, info, dtype, &shape, err);
    if (status != DRA_OK || info->bytes == 0) return status;
    if (!to) return dra_fail(err, DRA_ERR_VALUE, "tensors_read: nowhere to copy to");
    dra_tensor_copy(info, 0, (size_t)dra_shape_count(&info->shape), dtype, to);
    return DRA_OK;
}
