/* A pool of threads that share the tiles of one job at a time. */
#ifndef DRA_SRC_POOL_H
#define DRA_SRC_POOL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct dra_pool dra_pool;
typedef void (*dra_pool_tile)(void *user, int64_t i);

/* `threads` counts the caller's own. NULL when threads cannot be had. */
dra_pool *dra_pool_create(int threads);
void      dra_pool_destroy(dra_pool *p);
int       dra_pool_threads(const dra_pool *p);

/* Runs tile(user, 0..tiles-1) on at most `threads` threads (0: on all) and returns when all are
 * done. The same tiles of the same number of threads go to the same thread, as far as threads come
 * in time. Called from several threads at once, one gets the pool and the others run their tiles
 * alone. */
void dra_pool_run(dra_pool *p, int threads, int64_t tiles, dra_pool_tile tile, void *user);

#endif
