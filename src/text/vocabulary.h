/* Tokens, merges and added tokens on their way from a file into a tokenizer. */
#ifndef DRA_SRC_TEXT_VOCABULARY_H
#define DRA_SRC_TEXT_VOCABULARY_H

#include "file/json_make.h"
#include "text/tokenizer.h"

typedef struct dra_vocabulary {
    dra_tokenizer *t;
    const char    *path;  /* named in errors */
    const json_t  *vocab; /* spelling to id */
    json_t        *seen;  /* added tokens */
    dra_json       json;  /* makes `seen` */
    char          *room;  /* for the spelling of a merge */
    size_t         bytes;
    dra_error     *err;
} dra_vocabulary;

/* An empty tokenizer to fill, and the end: *out is the tokenizer, finished, or NULL where `status`
 * or that fails. */
dra_status dra_vocabulary_begin(dra_vocabulary *v, const char *path, dra_error *err);
dra_status dra_vocabulary_end(dra_vocabulary *v, dra_status status, dra_tokenizer **out);

/* The tokens of `vocab`, with room for ids below `size`. */
dra_status dra_vocabulary_tokens(dra_vocabulary *v, int64_t size);

/* Room for `most` merges, then each in the order of ranks, as two spellings. */
dra_status dra_vocabulary_merges(dra_vocabulary *v, size_t most);
dra_status dra_vocabulary_merge(dra_vocabulary *v, const char *left, size_t left_bytes,
                                const char *right, size_t right_bytes);

/* Room for `most` added tokens, then each, in any order, then once all are there. */
dra_status dra_vocabulary_added(dra_vocabulary *v, size_t most);
dra_status dra_vocabulary_add(dra_vocabulary *v, dra_added token);
void       dra_vocabulary_sort_added(dra_vocabulary *v);

/* Says where, then what. */
dra_status dra_vocabulary_fail(const dra_vocabulary *v, const char *format, ...) DRA_PRINTF(2, 3);
dra_status dra_vocabulary_no_memory(const dra_vocabulary *v);

#endif
