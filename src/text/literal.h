/* Literals as Python writes them, which the vocabulary of RWKV World consists of:
 *   'a\n'  "it's"  '\xa0'   a text; \xHH, \uHHHH and \UHHHHHHHH are letters
 *   b'\xff'                 bytes; \xHH is a byte */
#ifndef DRA_SRC_TEXT_LITERAL_H
#define DRA_SRC_TEXT_LITERAL_H

#include <stddef.h>

/* The bytes that a literal of n bytes stands for, fewer than n; SIZE_MAX: it is none. */
size_t dra_literal_read(const char *literal, size_t n, char *out);

/* The literal of n bytes as repr() writes it, at most 4 n + 3; what is UTF-8 is a text. Returns its
 * bytes. */
size_t dra_literal_write(const char *bytes, size_t n, char *out);

#endif
