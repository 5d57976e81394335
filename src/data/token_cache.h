/* Tokens of a text as a file: to stay in a cache, or a temporary one.
 *   ids      U16, or I32 where they do not fit
 *   zeros    to a multiple of 8 bytes
 *   starts   I64: the first token of each document
 *   facts    56 bytes: what the above is, and the hash of all bytes before the hash
 * The facts are last because they are known last; a file cut short has none. */
#ifndef DRA_SRC_DATA_TOKEN_CACHE_H
#define DRA_SRC_DATA_TOKEN_CACHE_H

#include "data/token_file.h"
#include "file/temporary.h"

typedef struct dra_facts {
    char     magic[8];
    uint64_t key; /* of what the tokens were made from */
    uint64_t width, tokens, documents, bytes;
    uint64_t hash; /* XXH64 of all before it */
} dra_facts;

_Static_assert(sizeof(dra_facts) == 56, "written as it is");

typedef struct dra_token_cache { /* being written */
    const char      *source;
    dra_file_writer *file; /* to stay, or */
    dra_temporary   *temporary;
    dra_temporary   *starts;
    dra_hash         hash; /* of what was written */
    dra_facts        facts;
    int64_t          document; /* first token of the one that is being written */
} dra_token_cache;

/* `source` is named in errors where there is no path: NULL makes a temporary file, without a name.
 * `size` is how many ids there are. After a failure only dra_token_cache_abort() is left to do. */
dra_status dra_token_cache_begin(dra_token_cache *s, const char *source, const char *path,
                                 uint64_t key, int64_t size, dra_error *err);
dra_status dra_token_cache_put(dra_token_cache *s, const int32_t *ids, size_t n, dra_error *err);
/* Ends a document, a text of `bytes`: what was put since the last one. If nothing was, there is
 * none. */
dra_status dra_token_cache_document(dra_token_cache *s, size_t bytes, dra_error *err);
/* Ends the file; a temporary one is mapped. */
dra_status dra_token_cache_end(dra_token_cache *s, dra_file_map *out, dra_error *err);
void       dra_token_cache_abort(dra_token_cache *s);

/* Takes the map over if it is a whole file with this key and ids below `size`, which are then added
 * to `hash`, else closes it. */
bool dra_token_cache_read(dra_file_map *map, uint64_t key, int64_t size, dra_hash *hash,
                          dra_token_file *out);

#endif
