/* Ids from files: where they are, then where documents start among them. */
#include "data/raw_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "data/llmc.h"
#include "file/fail.h"
#include "file/npy.h"

enum { BLOCK = 2048 };

/* Ids that separate documents: the last of one, or the first; -1: none. */
typedef struct separators {
    int32_t end, begin;
} separators;

/* ---- documents ------------------------------------------------------------------------------- */

static dra_status make_starts(dra_token_file *p, int64_t n, const char *path, dra_error *err)
{
    p->own_starts = malloc((size_t)n * sizeof *p->own_starts);
    if (!p->own_starts)
        return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory for %lld documents",
                           (long long)n);
    p->starts = (dra_integers){(const unsigned char *)p->own_starts, sizeof *p->own_starts};
    p->documents = n;
    return DRA_OK;
}

/* Whether token i > 0 starts a document. A separator at the very start belongs to the first one. */
static bool starts_at(const separators *by, int64_t i, int32_t before, int32_t id)
{
    return (by->end >= 0 && before == by->end && i > 1) || (by->begin >= 0 && id == by->begin);
}

/* How many documents there are; where each starts, if there is room for that. */
static int64_t find_starts(const dra_token_file *p, const separators *by, int64_t *starts)
{
    int32_t id[BLOCK], before = -1;
    int64_t found = p->tokens > 0;
    if (starts && found) starts[0] = 0;
    for (int64_t at = 0; at < p->tokens; at += BLOCK) {
        const int64_t n = dra_imin(BLOCK, p->tokens - at);
        dra_integers_copy(p->ids, at, n, id);
        for (int64_t i = 0; i < n; before = id[i++]) {
            if (at + i == 0 || !starts_at(by, at + i, before, id[i])) continue;
            if (starts) starts[found] = at + i;
            found++;
        }
    }
    return found;
}

static dra_status cut_documents(dra_token_file *p, const separators *by, const char *path,
                                dra_error *err)
{
    p->documents = find_starts(p, by, NULL);
    if (p->documents < 2) return DRA_OK;
    const dra_status st = make_starts(p, p->documents, path, err);
    if (st == DRA_OK) find_starts(p, by, p->own_starts);
    return st;
}

/* ---- files ----------------------------------------------------------------------------------- */

static dra_status take_plain(dra_token_file *p, size_t width, const char *path, dra_error *err)
{
    if (p->map.bytes % width)
        return dra_fail_at(err, DRA_ERR_FORMAT, path,
                           "has %zu bytes, which are not ids of %zu bytes each; say what it is: "
                           "--data-format bytes, tokens-u16, ...",
                           p->map.bytes, width);
    p->ids = (dra_integers){p->map.data, width, width == 4};
    p->tokens = (int64_t)(p->map.bytes / width);
    return DRA_OK;
}

static dra_status take_llmc(dra_token_file *p, separators *by, const char *path, dra_error *err)
{
    dra_llmc         found;
    const dra_status st = dra_llmc_read(path, p->map.data, p->map.bytes, &found, err);
    if (st != DRA_OK) return st;
    p->ids = (dra_integers){found.ids, (size_t)found.width, found.width == 4};
    p->tokens = found.tokens;
    if (by->end < 0 || found.begin >= 0) by->end = found.end;
    by->begin = found.begin;
    return DRA_OK;
}

/* Rows are documents. */
static dra_status take_rows(dra_token_file *p, const dra_shape *s, const char *path, dra_error *err)
{
    const int64_t rows = s->dim[0], T = s->dim[1];
    p->tokens = rows * T;
    if (p->tokens == 0) return DRA_OK;
    const dra_status st = make_starts(p, rows, path, err);
    for (int64_t i = 0; i < rows && st == DRA_OK; i++) p->own_starts[i] = i * T;
    return st;
}

static dra_status take_array(dra_token_file *p, const separators *by, const char *path,
                             dra_error *err)
{
    static const struct {
        const char *name;
        size_t      width;
        bool        other;
    } types[] = {{"U8", 1},        {"I8", 1, true}, {"U16", 2}, {"I16", 2, true},
                 {"U32", 4, true}, {"I32", 4},      {"I64", 8}, {"U64", 8}};
    char             text[160];
    dra_tensor_info  info;
    const dra_status st = dra_npy_read(path, "ids", p->map.data, p->map.bytes, &info, err);
    if (st != DRA_OK) return st;
    if (info.shape.rank != 1 && info.shape.rank != 2)
        return dra_fail_at(err, DRA_ERR_SHAPE, path, "shape %s, expected (N) or (documents, N)",
                           dra_shape_text(&info.shape, text, sizeof text));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, info.dtype_name) == 0)
            p->ids = (dra_integers){info.data, types[i].width, types[i].other};
    if (!p->ids.width)
        return dra_fail_at(err, DRA_ERR_DTYPE, path, "dtype %s, expected integers",
                           info.dtype_name);
    if (info.shape.rank == 2) return take_rows(p, &info.shape, path, err);
    p->tokens = info.shape.dim[0];
    return cut_documents(p, by, path, err);
}

static dra_status take_tokens(dra_token_file *p, const dra_source *s, int32_t end, dra_error *err)
{
    separators by = {end, -1};
    dra_status st = DRA_OK;
    switch (s->kind) {
    case DRA_DATA_NPY: return take_array(p, &by, s->path, err);
    case DRA_DATA_U16: st = take_plain(p, 2, s->path, err); break;
    case DRA_DATA_U32: st = take_plain(p, 4, s->path, err); break;
    default: st = take_llmc(p, &by, s->path, err);
    }
    return st == DRA_OK ? cut_documents(p, &by, s->path, err) : st;
}

dra_status dra_raw_tokens_open(const dra_source *s, int32_t end, dra_token_file *out,
                               dra_error *err)
{
    *out = (dra_token_file){.bytes = -1};
    dra_status st = dra_source_map(s, &out->map, err);
    if (st == DRA_OK) st = take_tokens(out, s, end, err);
    if (st != DRA_OK) dra_token_file_close(out);
    return st;
}
