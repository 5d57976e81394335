/* A piece of a corpus: the tokens of one file, mapped. */
#ifndef DRA_SRC_DATA_PIECE_H
#define DRA_SRC_DATA_PIECE_H

#include "data/integers.h"
#include "dra/file.h"
#include "file/map.h"

typedef struct dra_piece {
    dra_map      map; /* holds the numbers, or */
    dra_tensors *tensors;
    dra_integers ids, starts; /* starts.data NULL: one document */
    int64_t      tokens, documents;
    int64_t      bytes; /* of text; -1: not known */
    /* Found by dra_piece_check: */
    int32_t  largest;
    uint64_t ids_hash, starts_hash;
    /* Place in the corpus: */
    int64_t first_token, first_document;
} dra_piece;

void    dra_piece_close(dra_piece *p);
int64_t dra_piece_start(const dra_piece *p, int64_t document); /* its first token, in the piece */

/* Reads all numbers once: ids from 0 to limit - 1, starts that begin with 0, grow and stay inside.
 * `path` is named in errors. */
dra_status dra_piece_check(dra_piece *p, const char *path, int64_t limit, dra_error *err);

/* A file with `ids` and perhaps `starts`, not yet checked. On failure *out is empty. */
dra_status dra_piece_tensors(const char *path, dra_piece *out, dra_error *err);

#endif
