/* Philox 4x32-10: random bits as a function of a counter and a key, without any state, so that a
 * number can be drawn again anywhere. [Salmon, Moraes, Dror, Shaw 2011: Parallel random numbers:
 * as easy as 1, 2, 3] */
#ifndef DRA_SRC_PHILOX_H
#define DRA_SRC_PHILOX_H

#include <stdint.h>

/* Ten rounds: out[0..3] from counter[0..3] and key (low word first). */
void dra_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4]);

/* The key of all numbers of one place in one step: seed_step = {seed low, seed high, step low,
 * step high}, path = dra_scope_hash() of the place. */
uint64_t dra_philox_key(const int32_t seed_step[4], uint64_t path);

#endif
