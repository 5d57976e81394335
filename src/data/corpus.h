/* Inside a corpus. */
#ifndef DRA_SRC_DATA_CORPUS_H
#define DRA_SRC_DATA_CORPUS_H

#include "dra/data.h"

/* The document a token belongs to. */
int64_t dra_corpus_find(const dra_corpus *c, int64_t token);

/* Fingerprints as earlier releases made them, for checkpoints of theirs. They read all tokens. */
uint64_t dra_corpus_fingerprint_old(const dra_corpus *c);
uint64_t dra_feed_fingerprint_old(const dra_feed *f);

#endif
