/* How a tokenizer.json makes pieces of text, and text of tokens. */
#ifndef DRA_SRC_TEXT_READ_LAYOUT_H
#define DRA_SRC_TEXT_READ_LAYOUT_H

#include "text/read_rules.h"

/* Of normalizer, pre_tokenizer and decoder. */
dra_status dra_layout_read(dra_vocabulary *v, const json_t *top);
/* The tokens around a text, of post_processor, once tokens are known. */
dra_status dra_layout_read_around(dra_vocabulary *v, const json_t *top);

#endif
