/* RWKV World in GGUF: tokens are bytes, spelled as Python prints them. */
#ifndef DRA_SRC_TEXT_GGUF_WORLD_H
#define DRA_SRC_TEXT_GGUF_WORLD_H

#include "text/world.h"

#define DRA_GGUF_TOKENIZER_KEY(name) "tokenizer.ggml." name

enum { /* types of tokens */
       DRA_GGUF_NORMAL = 1,
       DRA_GGUF_UNKNOWN = 2,
       DRA_GGUF_CONTROL = 3,
       DRA_GGUF_OWN = 4,
       DRA_GGUF_UNUSED = 5,
       DRA_GGUF_BYTE = 6
};

/* The entries of a file; dra_world_end makes the tokenizer. */
dra_status dra_gguf_world_fill(dra_vocabulary *v, const json_t *pairs);
/* Puts them into the pairs of a file of a model with so many tokens. */
dra_status dra_gguf_world_pairs(const dra_tokenizer *t, int64_t vocab, dra_json *j, json_t *pairs,
                                dra_error *err);

#endif
