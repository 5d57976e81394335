/* The tokenizer inside of a GGUF file (file/gguf.h). */
#ifndef DRA_SRC_TEXT_GGUF_H
#define DRA_SRC_TEXT_GGUF_H

#include "file/json_make.h"
#include "text/tokenizer.h"

/* Whether a path is such a file, and it has one. */
bool       dra_tokenizer_in_gguf(const char *path);
dra_status dra_tokenizer_read_gguf(const char *path, dra_tokenizer **out, dra_error *err);

/* Puts it into the pairs of a file of a model with so many tokens. */
dra_status dra_tokenizer_gguf_pairs(const dra_tokenizer *t, int64_t vocab, dra_json *j,
                                    json_t *pairs, dra_error *err);

#endif
