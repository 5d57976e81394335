/* Words and how often each was seen. */
#ifndef DRA_SRC_TEXT_WORDS_H
#define DRA_SRC_TEXT_WORDS_H

#include "base/arena.h"
#include "dra/base.h"

typedef struct dra_counted {
    const char *text; /* NULL: a free slot */
    size_t      bytes;
    uint64_t    hash;
    int64_t     count;
} dra_counted;

typedef struct dra_words { /* {0} at first; a hash table, at most half full */
    dra_counted *slot;
    size_t       n, slots;
    dra_arena    arena; /* of the texts, which are copied there */
    char        *room;  /* for the next texts */
    size_t       left;
} dra_words;

/* The word was seen `count` more times; false: no memory. */
bool dra_words_add(dra_words *w, const char *text, size_t bytes, int64_t count);
bool dra_words_join(dra_words *w, const dra_words *more);
void dra_words_free(dra_words *w);

#endif
