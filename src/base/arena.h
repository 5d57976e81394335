/* An arena: things that die together live together. Memory comes zeroed and stays in place. */
#ifndef DRA_SRC_ARENA_H
#define DRA_SRC_ARENA_H

#include <stddef.h>

typedef struct dra_arena {
    struct dra_arena_block *last;
} dra_arena; /* all zero = empty */

/* Zeroed memory aligned for any type, or NULL when out of memory. Size 0 gives a valid pointer. */
void *dra_arena_alloc(dra_arena *a, size_t size);
void *dra_arena_copy(dra_arena *a, const void *data, size_t size);
char *dra_arena_text(dra_arena *a, const char *text);
void  dra_arena_free(dra_arena *a); /* frees everything; the arena is empty again */

#endif
