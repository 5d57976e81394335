/* The cores that this process may run on. */
#ifndef DRA_SRC_CORES_H
#define DRA_SRC_CORES_H

#include <pthread.h>

/* As many as its affinity mask has, or else as there are; at least 1. */
int dra_cores_count(void);

/* Keeps a thread on core number `i` of them; where that cannot be had, it runs where it likes. */
void dra_cores_pin(pthread_t thread, int i);

#endif
