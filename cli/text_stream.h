/* A stream that writes to memory. */
#ifndef DRA_CLI_TEXT_STREAM_H
#define DRA_CLI_TEXT_STREAM_H

#include <stdio.h>

/* As open_memstream(), which may lose a part of the text without a word: where this one gets no
 * memory, ferror() and fclose() say so. *text (to be freed, also then) and *bytes hold what was
 * flushed; rewind() starts over. NULL: no memory. */
FILE *cli_text_stream(char **text, size_t *bytes);

#endif
