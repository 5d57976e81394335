/* Places storages in their block: each at the lowest offset where it overlaps none that is alive at
 * the same time. */
#ifndef DRA_SRC_GRAPH_PLACE_H
#define DRA_SRC_GRAPH_PLACE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct dra_extent { /* bytes from start to end */
    size_t start, end;
} dra_extent;

typedef struct dra_cover { /* sorted extents that do not touch each other */
    dra_extent *at;
    size_t      n, room;
} dra_cover;

/* A segment tree over the moments of a block. A node stands for an interval of moments, its
 * children for its halves; the extent of a storage is noted at the few nodes whose intervals make
 * up its lifetime. */
typedef struct dra_placing {
    dra_cover *whole;  /* (2 leaves): taken during all of the node's interval */
    dra_cover *within; /* (2 leaves): taken at some moment of it, noted at the node or below */
    size_t     leaves; /* a power of two */
} dra_placing;

/* Moments are 0 to n - 1. false: out of memory; close it all the same. */
bool dra_placing_open(dra_placing *x, size_t n);
void dra_placing_close(dra_placing *x);
/* Places a storage that is alive from `first` to `last`. false: out of memory. */
bool dra_placing_put(dra_placing *x, size_t first, size_t last, size_t bytes, size_t *offset);

#endif
