/* The pieces of GPT-2 [Radford et al. 2019], alternatives in this order:
 *
 *     's | 't | 're | 've | 'm | 'll | 'd
 *     | one space or none, then letters, or numbers, or others
 *     | white space that no other letter follows | white space
 *
 * The first of the last two makes a run of white space leave its last letter to what follows it.
 * One pass does it: every alternative is decided by the letters it takes and one more. */
#include "text/split.h"

#include <string.h>

#include "text/letters.h"

static size_t contraction(const char *text, size_t bytes)
{
    static const char *const ends[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);
        if (bytes > n && memcmp(text + 1, ends[i], n) == 0) return 1 + n;
    }
    return 0;
}

static size_t white_space(const char *text, size_t bytes)
{
    size_t last = 0, at = 0, n;
    for (; at < bytes && dra_kind_at(text + at, bytes - at, &n) == DRA_SPACE; at += n) last = at;
    return at < bytes && last > 0 ? last : at;
}

size_t dra_split_piece(const char *text, size_t bytes)
{
    const size_t first = text[0] == ' ';
    size_t       n = text[0] == '\'' ? contraction(text, bytes) : 0, at;
    if (n) return n;
    if (first == bytes) return first;
    const dra_kind kind = dra_kind_at(text + first, bytes - first, &n);
    if (kind == DRA_SPACE) return white_space(text, bytes);
    for (at = first + n; at < bytes; at += n)
        if (dra_kind_at(text + at, bytes - at, &n) != kind) break;
    return at;
}
