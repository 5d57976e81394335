/* Named inputs, in parts: names and shapes (named.c), reading (named_read.c). */
#ifndef DRA_CLI_IO_NAMED_H
#define DRA_CLI_IO_NAMED_H

#include "inputs.h"

/* The source of a text that is not prepended: what its mask is about. Name "": there is none. */
dra_model_input named_main(const dra_model *m, bool context);
/* The tokens of a decoder, which are called tgt, too. */
bool named_is_target(const dra_model *m, const dra_model_input *in);
/* Of a row; -1: as many as the text has tokens. */
dra_shape named_shape(const dra_model_input *in);
/* With the axis B; `any` stands for -1. Returns `text`. */
const char *named_shape_text(const dra_shape *s, const char *any, char *text, size_t size);

#endif
