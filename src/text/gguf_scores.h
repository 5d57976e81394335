/* Tokenizers of characters in GGUF, model "llama": a token with a score is merged from any two that
 * spell it, the highest score first. */
#ifndef DRA_SRC_TEXT_GGUF_SCORES_H
#define DRA_SRC_TEXT_GGUF_SCORES_H

#include "text/vocabulary.h"

/* The merges of tokens that are there already, of normal type. */
dra_status dra_gguf_scores_read(dra_vocabulary *v, const json_t *tokens, const json_t *types,
                                const json_t *scores);
/* Scores that give a tokenizer's merges; fails where none do. `why` goes into the error. */
dra_status dra_gguf_scores_put(const dra_tokenizer *t, int64_t vocab, dra_json *j, json_t *pairs,
                               dra_error *err);

#endif
