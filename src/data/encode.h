/* Documents of a mapped text, encoded into a store. */
#ifndef DRA_SRC_DATA_ENCODE_H
#define DRA_SRC_DATA_ENCODE_H

#include "data/sources.h"
#include "data/store.h"

typedef struct dra_encoder {
    const dra_tokenizer *tokenizer;
    int32_t              end; /* id behind each document; -1: none */
    dra_store           *store;
    const dra_meter     *meter;
    dra_ids              ids; /* of the last piece */
} dra_encoder;

/* A text is cut by lines that are `separator`; NULL: it is one document. */
dra_status dra_encode_text(dra_encoder *e, const dra_map *text, const char *separator,
                           dra_error *err);
/* Lines of JSON; `key` names the text. */
dra_status dra_encode_lines(dra_encoder *e, const dra_map *text, const char *path, const char *key,
                            dra_error *err);

#endif
