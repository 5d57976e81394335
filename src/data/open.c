/* One source as a piece: mapped as it is where its bytes are its tokens, else a file of tokens,
 * whose key tells whether one in the cache was made from the same text in the same way. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/documents.h"
#include "data/encode.h"
#include "data/raw_tokens.h"
#include "file/fail.h"
#include "file/system.h"

static int32_t end_of(const dra_corpus_config *c)
{
    return c->no_end ? -1 : dra_tokenizer_end(c->tokenizer);
}

/* What was compressed is kept as tokens, if anything is. */
static bool is_its_own_tokens(const dra_source *s, const dra_corpus_config *c)
{
    return s->kind == DRA_DATA_TEXT && !(s->packing && c->cache) &&
           dra_tokenizer_is_bytes(c->tokenizer) && !c->separator && end_of(c) < 0;
}

static dra_status open_bytes(const dra_source *s, dra_token_file *out, dra_error *err)
{
    *out = (dra_token_file){0};
    const dra_status status = dra_source_map(s, &out->map, err);
    if (status != DRA_OK) return status;
    out->ids = (dra_integers){out->map.data, 1};
    out->tokens = out->bytes = (int64_t)out->map.bytes;
    out->documents = out->tokens > 0;
    return DRA_OK;
}

/* ---- files of tokens ------------------------------------------------------------------------- */

/* The path is part of it: files unpacked together often share their time, and perhaps their
 * size. */
static uint64_t key_of(const dra_source *s, const dra_corpus_config *c)
{
    const uint64_t words[] = {dra_tokenizer_fingerprint(c->tokenizer),
                              (uint64_t)end_of(c),
                              s->kind,
                              s->packing,
                              (uint64_t)s->bytes,
                              (uint64_t)s->changed[0],
                              (uint64_t)s->changed[1]};
    char          *whole = dra_sys_realpath(s->path);
    dra_hash       h;
    dra_hash_begin(&h, 0);
    dra_hash_add(&h, words, sizeof words);
    dra_hash_add_text(&h, whole ? whole : s->path);
    dra_hash_add_text(&h, s->kind != DRA_DATA_LINES ? c->separator
                          : c->text_key             ? c->text_key
                                                    : "text");
    free(whole);
    return dra_hash_end(&h);
}

static dra_status encode_source(const dra_source *s, const dra_corpus_config *c,
                                const dra_meter *meter, dra_token_cache *cache, dra_error *err)
{
    dra_file_map     text;
    const dra_status status = dra_source_map(s, &text, err);
    if (status != DRA_OK) return status;
    const dra_meter     inside = dra_meter_inside(meter, s, &text);
    dra_encoder         e = {c->tokenizer, end_of(c), cache, &inside, {0}};
    const dra_documents d = {c->text_key, c->separator, &inside, dra_encode_document, &e};
    const dra_status    read = dra_documents_read(&d, s, &text, err);
    dra_ids_free(&e.ids);
    dra_file_map_close(&text);
    return read;
}

/* `path` of the file of tokens, or NULL. *out is its map. */
static dra_status make_tokens(const dra_source *s, const dra_corpus_config *c,
                              const dra_meter *meter, const char *path, uint64_t key,
                              dra_file_map *out, dra_error *err)
{
    dra_token_cache cache;
    dra_status      status = dra_token_cache_begin(&cache, s->path, path, key,
                                                   dra_tokenizer_size(c->tokenizer), err);
    if (status == DRA_OK) status = encode_source(s, c, meter, &cache, err);
    if (status == DRA_OK) status = dra_token_cache_end(&cache, out, err);
    if (status == DRA_OK) return path ? dra_file_map_open(path, out, err) : DRA_OK;
    dra_token_cache_abort(&cache);
    return status;
}

static dra_status open_tokens(const dra_source *s, const dra_corpus_config *c,
                              const dra_meter *meter, dra_hash *hash, dra_token_file *out,
                              dra_error *err)
{
    const uint64_t key = key_of(s, c);
    const int64_t  size = dra_tokenizer_size(c->tokenizer);
    const size_t   room = c->cache ? strlen(c->cache) + 32 : 0;
    char          *path = room ? malloc(room) : NULL;
    dra_file_map   map = {0};
    dra_status     status = DRA_OK;
    if (room && !path)
        return dra_fail_at(err, DRA_ERR_MEMORY, s->path, "out of memory, cannot open it");
    if (path) snprintf(path, room, "%s/%016llx.tokens", c->cache, (unsigned long long)key);
    const bool kept = path && dra_file_map_open(path, &map, NULL) == DRA_OK &&
                      dra_token_cache_read(&map, key, size, hash, out);
    if (!kept) status = make_tokens(s, c, meter, path, key, &map, err);
    if (!kept && status == DRA_OK && !dra_token_cache_read(&map, key, size, hash, out))
        status = dra_fail_at(err, DRA_ERR_FILE, path ? path : s->path,
                             "its tokens are not what was just written");
    free(path);
    return status;
}

/* Numbers without a header were guessed by their file's name, which an error should say. */
static dra_status check_numbers(const dra_source *s, const dra_corpus_config *c, dra_hash *hash,
                                dra_token_file *p, dra_error *err)
{
    const int64_t limit = c->tokenizer ? dra_tokenizer_size(c->tokenizer) : (int64_t)1 << 31;
    dra_error     why = {0};
    const bool    guessed = s->kind == DRA_DATA_U16 && !c->format;
    if (!guessed) return dra_token_file_check(p, s->path, limit, hash, err);
    const dra_status st = dra_token_file_check(p, s->path, limit, hash, &why);
    if (st == DRA_OK) return DRA_OK;
    return dra_fail(err, st, "%s; it was taken for %s: if it is not, see --data-format", why.text,
                    dra_data_kind_text(s->kind));
}

/* ---- all of them ----------------------------------------------------------------------------- */

static dra_status open_any(const dra_source *s, const dra_corpus_config *c, const dra_meter *meter,
                           dra_hash *hash, dra_token_file *out, dra_error *err)
{
    const int32_t end = c->tokenizer ? dra_tokenizer_end(c->tokenizer) : -1;
    dra_status    status;
    if (!dra_data_kind_is_tokens(s->kind) && !c->tokenizer)
        return dra_fail_at(err, DRA_ERR_VALUE, s->path, "is text, which needs a tokenizer");
    if (s->kind == DRA_DATA_IDS)
        status = dra_token_file_tensors(s->path, out, err);
    else if (dra_data_kind_is_tokens(s->kind))
        status = dra_raw_tokens_open(s, end, out, err);
    else if (is_its_own_tokens(s, c))
        status = open_bytes(s, out, err);
    else
        return open_tokens(s, c, meter, hash, out, err); /* which checks it */
    return status == DRA_OK ? check_numbers(s, c, hash, out, err) : status;
}

dra_status dra_source_open(const dra_source *s, const dra_corpus_config *c, const dra_meter *meter,
                           dra_hash *hash, dra_token_file *out, dra_error *err)
{
    *out = (dra_token_file){0};
    const dra_status status = open_any(s, c, meter, hash, out, err);
    if (status != DRA_OK) dra_token_file_close(out);
    if (status == DRA_OK) dra_meter_tell(meter, s->bytes);
    return status;
}
