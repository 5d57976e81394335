/* Lines at the end of a file. */
#ifndef DRA_CLI_IO_APPEND_H
#define DRA_CLI_IO_APPEND_H

#include "dra/base.h"

/* Appends a text by one write, so that those of several processes do not mix; a file that is not
 * there is made with `mode`. What was written of it when it fails is cut off again. */
dra_status cli_append(const char *path, unsigned mode, const char *text, size_t bytes,
                      dra_error *err);

#endif
