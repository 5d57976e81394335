/* Merges: which two tokens become one, and how a piece is merged. */
#ifndef DRA_SRC_TEXT_MERGE_H
#define DRA_SRC_TEXT_MERGE_H

#include "base/arena.h"
#include "base/hash.h"
#include "dra/base.h"

/* ---- pairs of numbers that stand for another one --------------------------------------------- */

typedef struct dra_pair {
    int32_t left, right, rank, id; /* id < 0: a free slot */
} dra_pair;

typedef struct dra_pairs { /* a hash table, at most half full */
    dra_pair *slot;
    unsigned  shift; /* 64 - log2 of the slots */
} dra_pairs;

/* Room for `most` pairs; false: no memory. */
bool dra_pairs_make(dra_pairs *p, size_t most, dra_arena *arena);

/* The slot of a pair, or the free one it would have. */
static inline dra_pair *dra_pairs_find(const dra_pairs *p, int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const size_t   mask = SIZE_MAX >> p->shift;
    size_t         i = (size_t)(dra_hash_number(key) >> p->shift);
    while (p->slot[i].id >= 0 && (p->slot[i].left != left || p->slot[i].right != right))
        i = (i + 1) & mask;
    return &p->slot[i];
}

/* ---- merging --------------------------------------------------------------------------------- */

typedef struct dra_symbol { /* a token of the piece, in a list */
    int32_t  id;            /* < 0: gone, part of the one before */
    uint32_t previous, next;
} dra_symbol;

typedef struct dra_candidate { /* a pair that may be merged */
    uint64_t order;            /* rank, then place of the left one */
    int32_t  id;               /* that it becomes */
} dra_candidate;

enum { DRA_NOWHERE = -1 }; /* as uint32_t: no such symbol */

typedef struct dra_merger { /* {0} at first; room for the longest piece so far */
    dra_symbol    *symbol;
    dra_candidate *heap;
    size_t         room, waiting;
} dra_merger;

bool dra_merger_reserve(dra_merger *m, size_t symbols); /* false: no memory */
void dra_merger_free(dra_merger *m);

/* Merges the n > 0 symbols whose ids are set. What is left is a list from symbol[0] on. */
void dra_merge(dra_merger *m, const dra_pairs *pairs, size_t n);

#endif
