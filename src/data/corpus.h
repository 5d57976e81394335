/* Inside a corpus. */
#ifndef DRA_SRC_DATA_CORPUS_H
#define DRA_SRC_DATA_CORPUS_H

#include "dra/data.h"

/* The document a token belongs to. */
int64_t dra_corpus_find(const dra_corpus *c, int64_t token);

/* What errors call it: "a.txt and 2 more". */
const char *dra_corpus_name(const dra_corpus *c);

#endif
