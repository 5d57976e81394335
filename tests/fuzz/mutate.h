/* Damage to an input: bytes changed, cut out, doubled, moved, or replaced by words that mean
 * something to its reader. */
#ifndef DRA_TESTS_FUZZ_MUTATE_H
#define DRA_TESTS_FUZZ_MUTATE_H

#include "harness.h"

/* Puts n bytes in the place of those from..to. */
static inline void mutate_replace(fuzz_bytes *b, size_t from, size_t to, const void *with, size_t n)
{
    if (b->n - (to - from) + n > FUZZ_MOST) return;
    memmove(b->at + from + n, b->at + to, b->n - to);
    if (n) memcpy(b->at + from, with, n);
    b->n += n - (to - from);
}

static inline const char *mutate_word(const char *const *words)
{
    uint32_t n = 0;
    while (words && words[n]) n++;
    return n ? words[below(n)] : "\xff";
}

/* Formats say most at their start or at their end. */
static inline size_t mutate_place(const fuzz_bytes *b)
{
    const uint32_t n = (uint32_t)b->n + 1, near = n < 300 ? n : 300;
    switch (below(4)) {
    case 0: return below(near);
    case 1: return b->n - below(near);
    default: return below(n);
    }
}

static inline void mutate_byte(fuzz_bytes *b, size_t at)
{
    if (at >= b->n) return;
    switch (below(3)) {
    case 0: b->at[at] = (uint8_t)below(256); break;
    case 1: b->at[at] ^= (uint8_t)(1u << below(8)); break;
    default: b->at[at] = (uint8_t)('0' + below(10));
    }
}

static inline void mutate_once(fuzz_bytes *b, const char *const *words)
{
    const size_t a = mutate_place(b), rest = b->n - a;
    const size_t z = a + below((uint32_t)(rest < 32 ? rest : 32) + 1), other = mutate_place(b);
    const char  *word = mutate_word(words);
    const size_t n = strlen(word);
    uint8_t      copy[32];
    memcpy(copy, b->at + a, z - a);
    switch (below(10)) {
    case 0:
    case 1:
    case 2: mutate_byte(b, a); break;
    case 3: mutate_replace(b, a, a, word, n); break;
    case 4: mutate_replace(b, a, a + (n < rest ? n : rest), word, n); break;
    case 5: mutate_replace(b, 0, n < b->n ? n : b->n, word, n); break; /* another kind of file */
    case 6: mutate_replace(b, a, z, NULL, 0); break;
    case 7: mutate_replace(b, other, other, copy, z - a); break; /* the same once more */
    case 8: mutate_replace(b, a, a, copy, z - a); break;
    default: b->n = below(6) ? b->n : a;
    }
}

static inline void mutate(fuzz_bytes *b, const fuzz_subject *s)
{
    for (uint32_t k = 1 + below(4); k; k--) mutate_once(b, s->words);
    if (s->repair && below(2)) s->repair(b);
}

#endif
