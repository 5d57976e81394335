/* Documents encoded into a file of tokens. */
#ifndef DRA_SRC_DATA_ENCODE_H
#define DRA_SRC_DATA_ENCODE_H

#include "data/sources.h"
#include "data/token_cache.h"

typedef struct dra_encoder {
    const dra_tokenizer *tokenizer;
    int32_t              end; /* id after each document; -1: none */
    dra_token_cache     *cache;
    const dra_meter     *meter;
    dra_ids              ids; /* of the last piece */
} dra_encoder;

/* A dra_document, for a dra_encoder. */
dra_status dra_encode_document(void *encoder, const char *text, size_t bytes, int64_t at,
                               dra_error *err);

#endif
