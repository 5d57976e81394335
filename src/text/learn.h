/* Merges learned from words. */
#ifndef DRA_SRC_TEXT_LEARN_H
#define DRA_SRC_TEXT_LEARN_H

#include "text/tokenizer.h"
#include "text/words.h"

/* A tokenizer of special tokens (ids 0 and on, in this order), the 256 bytes (in the order of the
 * letters they are written as) and n merges, which make the ids that follow. On failure *out is
 * NULL. */
dra_status dra_tokenizer_make(const char *const *special, int n_special, bool nfc,
                              const dra_merge_rule *merge, size_t n, dra_tokenizer **out,
                              dra_error *err);

typedef struct dra_learn_config {
    const dra_tokenizer *start;     /* has the bytes and no merges */
    size_t               merges;    /* at most */
    int64_t              min_count; /* >= 1: a pair that is seen less often is not merged */
    /* After each merge; may be NULL. */
    void (*made)(void *user, size_t merges);
    void *user;
} dra_learn_config;

/* The merges of these words, at most c->merges, the first of highest rank: *n of them in `rule`. */
dra_status dra_learn(const dra_learn_config *c, const dra_words *words, dra_merge_rule *rule,
                     size_t *n, dra_error *err);

#endif
