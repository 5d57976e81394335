/* The vocabulary of RWKV World as a tokenizer. */
#ifndef DRA_SRC_TEXT_WORLD_H
#define DRA_SRC_TEXT_WORLD_H

#include "text/vocabulary.h"

#define DRA_WORLD_FILE "rwkv_vocab_v20230424.txt" /* its name in folders */

/* Looks like one: it starts with an id. */
bool dra_world_is(const char *text, size_t bytes);

dra_status dra_world_read(const char *path, const char *text, size_t bytes, dra_tokenizer **out,
                          dra_error *err);
/* The end of one whose entries are added tokens, by growing ids: as dra_vocabulary_end. */
dra_status dra_world_end(dra_vocabulary *v, dra_status status, dra_tokenizer **out);
dra_status dra_world_write(const dra_tokenizer *t, const char *path, dra_error *err);

#endif
