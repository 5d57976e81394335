/* The pre-tokeniser of GPT-2: a text is cut into pieces that are encoded one by one. */
#ifndef DRA_SRC_TEXT_SPLIT_H
#define DRA_SRC_TEXT_SPLIT_H

#include <stddef.h>

/* The bytes of the piece that a text of `bytes` > 0 starts with. */
size_t dra_split_piece(const char *text, size_t bytes);

#endif
