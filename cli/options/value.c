/* Values from text, and the nearest name to a misspelt one. */
#include "value.h"

#include "dra/base.h"

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
    for (; *text && n + 5 < size; text++) out[n++] = *text;
    if (*text) {
        memcpy(out + n, "...", 3);
        n += 3;
    }
    out[n++] = '\'';
    out[n] = '\0';
    dra_make_shown(out);
    return out;
}
