/* Short stories from a small grammar: text to learn from, without a download. */
#ifndef DRA_EXAMPLES_STORY_H
#define DRA_EXAMPLES_STORY_H

#include <stddef.h>
#include <stdint.h>

/* A repeatable number in 0..n-1. */
unsigned story_random(uint64_t *seed, unsigned n);

/* Writes stories one after the other until `size` bytes are full; no terminator. */
void story_write(char *text, size_t size, uint64_t seed);

#endif
