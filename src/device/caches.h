/* The data caches of the processor. They decide how products are cut into blocks of rows and
 * columns, never the order of a sum: bits do not depend on them. */
#ifndef DRA_SRC_CACHES_H
#define DRA_SRC_CACHES_H

#include <stdint.h>

typedef struct dra_caches {
    int64_t l1, l2, l3; /* bytes; of the first two what is left to each core that shares it */
} dra_caches;

/* As Linux describes the first core, or else as sysconf() says, or else small ones. DRA_CACHE in
 * the environment, "48,2048,30720" in KiB, overrides it. */
dra_caches dra_caches_find(void);

#endif
