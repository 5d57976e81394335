/* Opening texts, with a status line while they are encoded. */
#ifndef DRA_CLI_IO_CORPUS_H
#define DRA_CLI_IO_CORPUS_H

#include "dra/data.h"

/* dra_corpus_open(); `what` is what the line says, such as "reading data". */
dra_status cli_corpus_open(const dra_corpus_config *c, const char *what, dra_corpus **out,
                           dra_error *err);

#endif
