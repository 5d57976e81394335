/* Tokens of a text as a file: to stay in a cache, or a temporary one.
 *   ids      U16, or I32 where they do not fit
 *   zeros    to a multiple of 8 bytes
 *   starts   I64: the first token of each document
 *   facts    72 bytes: what the above is, and fingerprints of it
 * The facts are last because they are known last; a file cut short has none. */
#ifndef DRA_SRC_DATA_STORE_H
#define DRA_SRC_DATA_STORE_H

#include <stdio.h>

#include "data/piece.h"

typedef struct dra_facts {
    char     magic[8];
    uint64_t key; /* of what the tokens were made from */
    uint64_t width, tokens, documents, bytes;
    uint64_t ids_hash, starts_hash;
    uint64_t check; /* of all before */
} dra_facts;

_Static_assert(sizeof(dra_facts) == 72, "written as it is");

typedef struct dra_store { /* being written */
    const char      *source;
    dra_file_writer *file; /* to stay, or */
    FILE            *temporary;
    FILE            *starts;
    dra_facts        facts;
    int64_t          document; /* first token of the one that is being written */
} dra_store;

/* `source` is named in errors where there is no path: NULL makes a temporary file, without a name.
 * `size` is how many ids there are. After a failure only dra_store_abort() is left to do. */
dra_status dra_store_begin(dra_store *s, const char *source, const char *path, uint64_t key,
                           int64_t size, dra_error *err);
dra_status dra_store_put(dra_store *s, const int32_t *ids, size_t n, dra_error *err);
/* What was put since the last one is a document of so many bytes; nothing is none. */
dra_status dra_store_document(dra_store *s, size_t bytes, dra_error *err);
/* Ends the store; a temporary file is mapped. */
dra_status dra_store_end(dra_store *s, dra_map *out, dra_error *err);
void       dra_store_abort(dra_store *s);

/* Takes the map over if it is a whole store with this key and ids below `size`, else closes it. */
bool dra_store_read(dra_map *map, uint64_t key, int64_t size, dra_piece *out);

#endif
