/* Who has to wait for whom, where nodes (kernels, copies) share memory: a node waits for those
 * before it whose numbers it reads or overwrites, and for those that read what it overwrites. */
#ifndef DRA_SRC_DEVICE_HAZARDS_H
#define DRA_SRC_DEVICE_HAZARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dra_hazards dra_hazards; /* opaque */

dra_hazards *dra_hazards_open(void); /* NULL: no memory */
void         dra_hazards_close(dra_hazards *h);

/* Another node, unless it is dropped by beginning again. It touches some memory: true, it waits for
 * more nodes than before. */
void dra_hazards_begin(dra_hazards *h);
bool dra_hazards_touch(dra_hazards *h, uintptr_t begin, uintptr_t end, bool writes);
/* The numbers of nodes that it waits for so far, ascending, without those that another of them
 * waits for anyway. Good until the next call. */
size_t dra_hazards_waits(dra_hazards *h, const size_t **waits);
/* Nodes have the numbers 0, 1, 2, ... in the order in which they end. False: there was too little
 * memory for what was asked for so far, and waits may be missing. */
bool dra_hazards_end(dra_hazards *h);

#endif
