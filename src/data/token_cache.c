/* Files of tokens: written in one pass, read after a check of everything. */
#include "data/token_cache.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"

static const char MAGIC[8] = "dratok2\n";

/* ---- writing --------------------------------------------------------------------------------- */

static dra_status fail_temporary(const dra_token_cache *s, const char *what, dra_error *err)
{
    char text[64];
    snprintf(text, sizeof text, "%s a temporary file for its tokens", what);
    return dra_fail_system(err, s->source, text, errno);
}

dra_status dra_token_cache_begin(dra_token_cache *s, const char *source, const char *path,
                                 uint64_t key, int64_t size, dra_error *err)
{
    *s = (dra_token_cache){.source = source};
    dra_hash_begin(&s->hash, 0);
    s->facts.key = key;
    s->facts.width = size <= 1 << 16 ? 2 : 4;
    memcpy(s->facts.magic, MAGIC, sizeof MAGIC);
    s->starts = dra_temporary_open();
    if (!path) s->temporary = dra_temporary_open();
    if (!s->starts || (!path && !s->temporary)) return fail_temporary(s, "make", err);
    return path ? dra_file_writer_begin(path, &s->file, err) : DRA_OK;
}

static dra_status put_bytes(dra_token_cache *s, const void *data, size_t bytes, dra_error *err)
{
    dra_hash_add(&s->hash, data, bytes);
    if (s->file) return dra_file_writer_write(s->file, data, bytes, err);
    if (dra_temporary_write(s->temporary, data, bytes)) return DRA_OK;
    return fail_temporary(s, "write", err);
}

dra_status dra_token_cache_put(dra_token_cache *s, const int32_t *ids, size_t n, dra_error *err)
{
    enum { BLOCK = 2048 };
    uint16_t   narrow[BLOCK];
    dra_status status = DRA_OK;
    s->facts.tokens += n;
    if (s->facts.width == 4) return put_bytes(s, ids, n * sizeof *ids, err);
    for (size_t at = 0; at < n && status == DRA_OK; at += BLOCK) {
        const size_t some = n - at < BLOCK ? n - at : BLOCK;
        for (size_t i = 0; i < some; i++) narrow[i] = (uint16_t)ids[at + i];
        status = put_bytes(s, narrow, some * sizeof *narrow, err);
    }
    return status;
}

dra_status dra_token_cache_document(dra_token_cache *s, size_t bytes, dra_error *err)
{
    const uint64_t start = (uint64_t)s->document;
    if (s->facts.tokens == start) return DRA_OK;
    s->facts.documents++;
    s->facts.bytes += bytes;
    s->document = (int64_t)s->facts.tokens;
    return dra_temporary_write(s->starts, &start, sizeof start) ? DRA_OK
                                                                : fail_temporary(s, "write", err);
}

/* The starts come after the ids; until all ids are written they are in a file of their own. */
static dra_status put_starts(dra_token_cache *s, dra_error *err)
{
    dra_file_map map;
    if (!dra_temporary_map(s->starts, &map)) return fail_temporary(s, "write", err);
    const dra_status status = put_bytes(s, map.data, map.bytes, err);
    dra_file_map_close(&map);
    return status;
}

static dra_status put_facts(dra_token_cache *s, dra_error *err)
{
    dra_status status = put_bytes(s, &s->facts, offsetof(dra_facts, hash), err);
    s->facts.hash = dra_hash_end(&s->hash);
    if (status == DRA_OK) status = put_bytes(s, &s->facts.hash, sizeof s->facts.hash, err);
    return status;
}

dra_status dra_token_cache_end(dra_token_cache *s, dra_file_map *out, dra_error *err)
{
    const char zeros[8] = {0};
    *out = (dra_file_map){0};
    dra_status status = put_bytes(s, zeros, -(s->facts.tokens * s->facts.width) % 8, err);
    if (status == DRA_OK) status = put_starts(s, err);
    if (status == DRA_OK) status = put_facts(s, err);
    if (status == DRA_OK && s->temporary && !dra_temporary_map(s->temporary, out))
        status = fail_temporary(s, "map", err);
    if (status == DRA_OK && s->file) {
        status = dra_file_writer_commit(s->file, err);
        s->file = NULL;
    }
    dra_token_cache_abort(s);
    return status;
}

void dra_token_cache_abort(dra_token_cache *s)
{
    dra_file_writer_abort(s->file);
    dra_temporary_close(s->temporary);
    dra_temporary_close(s->starts);
    *s = (dra_token_cache){0};
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Each size is compared with what is left, so no sum can overflow. */
static bool sizes_fit(const dra_facts *f, size_t bytes)
{
    const uint64_t left = bytes - sizeof *f;
    if ((f->width != 2 && f->width != 4) || f->tokens > left / f->width) return false;
    const uint64_t ids = f->tokens * f->width + -(f->tokens * f->width) % 8;
    return ids <= left && f->documents <= f->tokens && f->documents == (left - ids) / 8 &&
           (left - ids) % 8 == 0 && f->bytes <= INT64_MAX;
}

static bool take_cached(const dra_file_map *map, uint64_t key, int64_t size, dra_hash *hash,
                        dra_token_file *out)
{
    dra_facts f;
    if (map->bytes < sizeof f) return false;
    memcpy(&f, map->data + map->bytes - sizeof f, sizeof f);
    if (memcmp(f.magic, MAGIC, sizeof MAGIC) != 0 || f.key != key || !sizes_fit(&f, map->bytes) ||
        f.hash != dra_hash_of(0, map->data, map->bytes - sizeof f.hash))
        return false;
    out->ids = (dra_integers){map->data, f.width};
    out->starts = (dra_integers){map->data + map->bytes - sizeof f - 8 * f.documents, 8};
    out->tokens = (int64_t)f.tokens;
    out->documents = (int64_t)f.documents;
    out->bytes = (int64_t)f.bytes;
    return (f.tokens == 0 || f.documents > 0) &&
           dra_token_file_check(out, "", size, hash, NULL) == DRA_OK;
}

bool dra_token_cache_read(dra_file_map *map, uint64_t key, int64_t size, dra_hash *hash,
                          dra_token_file *out)
{
    dra_hash after = *hash;
    *out = (dra_token_file){0};
    const bool whole = take_cached(map, key, size, &after, out);
    if (whole)
        out->map = *map, *hash = after;
    else
        dra_file_map_close(map), *out = (dra_token_file){0};
    *map = (dra_file_map){0};
    return whole;
}
