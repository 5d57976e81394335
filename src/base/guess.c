/* The nearest of some names to what was typed. */
#include <string.h>

#include "dra/base.h"

enum { LONGEST = 63 }; /* longer names are not compared; none of ours is */

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Optimal string alignment: how many letters to add, drop, change or swap with a neighbour.
 * d[i][j] compares the first i letters of a with the first j of b; three rows are enough. */
static size_t distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    size_t       d[3][LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return SIZE_MAX;
    for (size_t j = 0; j <= m; j++) d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        const size_t *before = d[(i + 1) % 3], *above = d[(i - 1) % 3];
        size_t       *row = d[i % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = least(above[j] + 1, row[j - 1] + 1);
            row[j] = least(row[j], above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return d[n % 3][m];
}

void dra_guess_try(dra_guess *guess, const char *name)
{
    const size_t n = strlen(guess->typed);
    if (n == 0) return;
    const bool   begins = strncmp(name, guess->typed, n) == 0;
    const size_t wrong = begins ? 0 : distance(guess->typed, name);
    if (wrong > n / 3 + 1 || wrong >= n) return;
    if (guess->best && wrong >= guess->wrong) return;
    guess->best = name;
    guess->wrong = wrong;
}
