/* Values from text, and the nearest name to a misspelt one. */
#include "value.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool cli_read_int(const char *text, int64_t *out)
{
    char *end;
    if (!*text || strspn(text, "+-0123456789") != strlen(text)) return false;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (*end || end == text || errno || n < INT64_MIN || n > INT64_MAX) return false;
    *out = n;
    return true;
}

bool cli_read_real(const char *text, double *out)
{
    char *end;
    if (!*text || strspn(text, "+-.eE0123456789") != strlen(text)) return false;
    errno = 0;
    const double x = strtod(text, &end);
    if (*end || end == text || !isfinite(x)) return false;
    if (errno == ERANGE && x == 0) return false; /* not zero, but too small to hold */
    *out = x;
    return true;
}

bool cli_read_bool(const char *text, bool *out)
{
    static const char *const words[] = {"off", "on", "false", "true", "no", "yes", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return true;
        }
    return false;
}

const char *cli_quote(const char *text, char *out, size_t size)
{
    size_t n = 0;
    out[n++] = '\'';
    for (; *text && n + 5 < size; text++) {
        const unsigned char c = (unsigned char)*text;
        out[n++] = c < 0x20 || c == 0x7f ? '?' : *text;
    }
    if (*text) {
        memcpy(out + n, "...", 3);
        n += 3;
    }
    out[n++] = '\'';
    out[n] = '\0';
    return out;
}

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

void cli_guess_try(cli_guess *guess, const char *name)
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
