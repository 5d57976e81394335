/* Pieces of a corpus: checks, and those that are safetensors. */
#include "data/token_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"

enum { BLOCK = 2048 }; /* numbers at a time, in the first cache */

void dra_token_file_close(dra_token_file *p)
{
    dra_file_map_close(&p->map);
    dra_tensors_close(p->tensors);
    free(p->own_starts);
    *p = (dra_token_file){0};
}

int64_t dra_token_file_start(const dra_token_file *p, int64_t document)
{
    return p->starts.data ? dra_integer_at(p->starts, document) : 0;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static dra_status check_block(const dra_token_file *p, const int32_t *id, int64_t n, int64_t at,
                              const char *path, int64_t limit, dra_error *err)
{
    for (int64_t i = 0; i < n; i++)
        if (id[i] < 0 || id[i] >= limit)
            return dra_fail_at(err, DRA_ERR_INDEX, path,
                               "token %lld is %lld, expected an id from 0 to %lld",
                               (long long)(at + i), (long long)dra_integer_at(p->ids, at + i),
                               (long long)(limit - 1));
    return DRA_OK;
}

static dra_status check_ids(dra_token_file *p, const char *path, int64_t limit, dra_hash *hash,
                            dra_error *err)
{
    int32_t    id[BLOCK];
    dra_status status = DRA_OK;
    p->largest = -1;
    for (int64_t at = 0; at < p->tokens && status == DRA_OK; at += BLOCK) {
        const int64_t n = dra_imin(BLOCK, p->tokens - at);
        uint32_t      largest = 0; /* unsigned: what is below 0 is beyond every limit */
        dra_integers_copy(p->ids, at, n, id);
        for (int64_t i = 0; i < n; i++)
            largest = (uint32_t)id[i] > largest ? (uint32_t)id[i] : largest;
        if (largest >= limit) status = check_block(p, id, n, at, path, limit, err);
        if (status == DRA_OK && (int64_t)largest > p->largest) p->largest = (int32_t)largest;
        dra_hash_add(hash, id, (size_t)n * sizeof *id);
    }
    return status;
}

static dra_status check_starts(dra_token_file *p, const char *path, dra_error *err)
{
    int64_t before = -1;
    for (int64_t i = 0; i < p->documents; i++) {
        const int64_t start = dra_token_file_start(p, i);
        if (i == 0 && start != 0)
            return dra_fail_at(err, DRA_ERR_FORMAT, path,
                               "document 0 starts at token %lld, expected 0", (long long)start);
        if (start <= before || start >= p->tokens)
            return dra_fail_at(err, DRA_ERR_FORMAT, path,
                               "document %lld starts at token %lld, expected %lld to %lld",
                               (long long)i, (long long)start, (long long)before + 1,
                               (long long)p->tokens - 1);
        before = start;
    }
    return DRA_OK;
}

dra_status dra_token_file_check(dra_token_file *p, const char *path, int64_t limit, dra_hash *hash,
                                dra_error *err)
{
    const dra_status status = check_starts(p, path, err);
    return status == DRA_OK ? check_ids(p, path, limit, hash, err) : status;
}

/* ---- safetensors ----------------------------------------------------------------------------- */

/* Integers of at least this width. */
static dra_status find_numbers(const dra_tensors *t, const char *path, const char *name,
                               size_t least, const char *expected, dra_integers *out, int64_t *n,
                               dra_error *err)
{
    char                   text[160];
    const dra_tensor_info *info = dra_tensors_find(t, name);
    const size_t           width = dra_integer_width(info->dtype_name);
    if (info->shape.rank != 1)
        return dra_fail_at(err, DRA_ERR_SHAPE, path, "tensor '%s': shape %s, expected (N)", name,
                           dra_shape_text(&info->shape, text, sizeof text));
    if (width < least || strcmp(info->dtype_name, "BOOL") == 0)
        return dra_fail_at(err, DRA_ERR_DTYPE, path, "tensor '%s': dtype %s, expected %s", name,
                           info->dtype_name, expected);
    *out = (dra_integers){info->data, width};
    *n = info->shape.dim[0];
    return DRA_OK;
}

static dra_status take_tensors(dra_token_file *p, const char *path, dra_error *err)
{
    if (!dra_tensors_find(p->tensors, "ids"))
        return dra_fail_at(err, DRA_ERR_NAME, path, "no tensor 'ids'");
    dra_status status = find_numbers(p->tensors, path, "ids", 1, "U8, U16, I32 or I64", &p->ids,
                                     &p->tokens, err);
    p->documents = p->tokens > 0;
    if (status != DRA_OK || !dra_tensors_find(p->tensors, "starts")) return status;
    status = find_numbers(p->tensors, path, "starts", 4, "I32 or I64", &p->starts, &p->documents,
                          err);
    if (status == DRA_OK && p->documents == 0 && p->tokens > 0)
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "%lld tokens but no documents in 'starts'",
                           (long long)p->tokens);
    if (status == DRA_OK && p->documents > p->tokens)
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "%lld documents but %lld tokens",
                           (long long)p->documents, (long long)p->tokens);
    return status;
}

dra_status dra_token_file_tensors(const char *path, dra_token_file *out, dra_error *err)
{
    *out = (dra_token_file){.bytes = -1};
    dra_status status = dra_tensors_open(path, &out->tensors, err);
    if (status == DRA_OK) status = take_tensors(out, path, err);
    if (status != DRA_OK) dra_token_file_close(out);
    return status;
}
