/* Fingerprints of weights between processes: a small file in the user's cache folder,
 * $XDG_CACHE_HOME/dra or ~/.cache/dra. Where there is none, nothing is kept. */
#ifndef DRA_SRC_MODEL_WEIGHTS_CACHE_H
#define DRA_SRC_MODEL_WEIGHTS_CACHE_H

#include <stdbool.h>
#include <stdint.h>

/* `key` is made of what decides about the weights; false: it is not there. */
bool dra_weights_cache_find(uint64_t key, uint64_t *fingerprint);
void dra_weights_cache_note(uint64_t key, uint64_t fingerprint);

#endif
