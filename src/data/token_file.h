/* A piece of a corpus: the tokens of one file, mapped. */
#ifndef DRA_SRC_DATA_TOKEN_FILE_H
#define DRA_SRC_DATA_TOKEN_FILE_H

#include "base/hash.h"
#include "data/integers.h"
#include "dra/file.h"
#include "file/file_map.h"

typedef struct dra_token_file {
    dra_file_map map; /* holds the numbers, or */
    dra_tensors *tensors;
    dra_integers ids, starts; /* starts.data NULL: one document */
    int64_t     *own_starts;  /* NULL, or what starts.data is */
    int64_t      tokens, documents;
    int64_t      bytes; /* of text; -1: not known */
    /* Found by dra_token_file_check: */
    int32_t largest;
    /* Place in the corpus: */
    int64_t first_token, first_document;
} dra_token_file;

void    dra_token_file_close(dra_token_file *p);
int64_t dra_token_file_start(const dra_token_file *p,
                             int64_t               document); /* its first token, in the piece */

/* Reads all numbers once: ids from 0 to limit - 1, starts that begin with 0, grow and stay inside.
 * The ids are added to `hash` as int32_t, which has taken some of them after a failure, too. `path`
 * is named in errors. */
dra_status dra_token_file_check(dra_token_file *p, const char *path, int64_t limit, dra_hash *hash,
                                dra_error *err);

/* A file with `ids` and perhaps `starts`, not yet checked. On failure *out is empty. */
dra_status dra_token_file_tensors(const char *path, dra_token_file *out, dra_error *err);

#endif
