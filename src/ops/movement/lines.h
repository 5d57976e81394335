/* Lines: all elements along one axis of a tensor, the other indices fixed. Lines are numbered in
 * row-major order of the other axes. Kernels that run along an axis take several lines at a time,
 * step by step, so that memory is read in order whichever the axis. */
#ifndef DRA_SRC_OPS_MOVEMENT_LINES_H
#define DRA_SRC_OPS_MOVEMENT_LINES_H

#include "ops/common.h"

enum { DRA_LINES = 64 }; /* the most lines of a tile */

typedef struct dra_lines { /* the lines of one tile */
    int64_t first, n;
} dra_lines;

int64_t   dra_line_tiles(const dra_shape *s, int axis);
dra_lines dra_lines_of(const dra_shape *s, int axis, int64_t tile);

/* Where each of the lines starts. True when they are next to each other: at[k] = at[0] + k. */
bool dra_line_starts(const dra_tensor *t, int axis, dra_lines lines, int64_t *at);

/* Checks x and turns the axis into 0..rank-1; -1, with the graph's error set, if it is outside. */
int dra_axis_find(dra_graph *g, const char *op, dra_value x, int axis);

#endif
