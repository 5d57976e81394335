/* Added tokens: texts that are tokens as a whole, found before anything else is done. */
#ifndef DRA_SRC_TEXT_ADDED_H
#define DRA_SRC_TEXT_ADDED_H

#include "text/merge.h"

typedef struct dra_added {
    int32_t     id;
    const char *text;
    size_t      bytes;
    bool        special, normalized;
    bool        left, right; /* takes the white space on that side along */
} dra_added;

typedef struct dra_matcher { /* a tree of bytes; node 0 is its root */
    dra_pairs edge;          /* node and byte to node */
    int32_t  *ends;          /* per node: the added token that ends there, -1 */
    int32_t   nodes;
    bool      first[256]; /* bytes a token starts with */
} dra_matcher;

typedef struct dra_match {
    size_t           start, stop;
    const dra_added *token;
} dra_match;

/* A matcher for those of the n tokens that have `normalized`; false: no memory. */
bool dra_matcher_make(dra_matcher *m, const dra_added *added, size_t n, bool normalized,
                      dra_arena *arena);

/* The first match from `from` on, the longest that starts there. */
bool dra_matcher_find(const dra_matcher *m, const dra_added *added, const char *text, size_t bytes,
                      size_t from, dra_match *out);

#endif
