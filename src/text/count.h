/* Counting the words of texts in threads. */
#ifndef DRA_SRC_TEXT_COUNT_H
#define DRA_SRC_TEXT_COUNT_H

#include "text/normal.h"
#include "text/tokenizer.h"
#include "text/words.h"

typedef struct dra_stretch { /* of text, counted by itself */
    const char *text;
    size_t      bytes;
} dra_stretch;

typedef struct dra_count_worker {
    dra_words           words;
    dra_normal          normal;
    struct dra_counter *counter;
} dra_count_worker;

/* The words are the pieces that the tokenizer merges in: added tokens are none, and its merges do
 * not matter. Which thread counts which stretch is left to chance: sums of whole numbers do not
 * depend on it. */
typedef struct dra_counter {
    const dra_tokenizer *t;
    int                  threads;
    dra_count_worker    *worker; /* one for each thread */
    dra_stretch         *stretch;
    size_t               n, room;
    char                *batch; /* short texts, gathered until it is worth starting threads */
    size_t               used;
    _Atomic size_t       next; /* stretch to be taken */
    _Atomic bool         failed;
} dra_counter;

/* `threads` 0: one per processor. The tokenizer is borrowed. Free it also after a failure. */
dra_status dra_counter_begin(dra_counter *c, const dra_tokenizer *t, int threads, dra_error *err);
/* A text that stands alone, or a part of one that dra_encode_cut() may cut there. */
dra_status dra_counter_read(dra_counter *c, const char *text, size_t bytes, dra_error *err);
/* The words of all texts, good until the counter is freed. */
dra_status dra_counter_end(dra_counter *c, const dra_words **out, dra_error *err);
void       dra_counter_free(dra_counter *c);

#endif
