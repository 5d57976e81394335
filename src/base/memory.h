/* Memory for large arrays. */
#ifndef DRA_SRC_MEMORY_H
#define DRA_SRC_MEMORY_H

#include <stddef.h>

/* On 64 bytes; large blocks start on a huge page and ask for more of them: fewer faults, fewer TLB
 * misses. Released by free(). NULL: there is none. */
void *dra_alloc(size_t bytes);

/* The same for memory that comes and goes: large blocks are pages of their own, which the system
 * has back at once. Released by dra_pages_free(), with the bytes that were asked for. */
void *dra_pages_alloc(size_t bytes);
void  dra_pages_free(void *data, size_t bytes);

#endif
