/* Files that are ids already: of nanoGPT, llm.c and NumPy. */
#ifndef DRA_SRC_DATA_RAW_TOKENS_H
#define DRA_SRC_DATA_RAW_TOKENS_H

#include "data/sources.h"

/* The ids as they are, not yet checked. `end` is the tokenizer's end of text, or -1: a document
 * ends with it. On failure *out is empty. */
dra_status dra_raw_tokens_open(const dra_source *s, int32_t end, dra_token_file *out,
                               dra_error *err);

#endif
