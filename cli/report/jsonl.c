/* A reader of JSON lines. Texts are unescaped in place: an escape is never shorter than its
 * text. */
#include "jsonl.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64 }; /* of nested values */

static char *skip_blanks(char *p) { return p + strspn(p, " \t\r\n"); }

/* ---- texts ----------------------------------------------------------------------------------- */

/* The number of four hex digits at p; -1: they are not hex digits. */
static int32_t read_hex4(const char *p)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    int32_t           x = 0;
    for (int i = 0; i < 4; i++) {
        const char *d = p[i] ? strchr(digits, p[i]) : NULL;
        if (!d) return -1;
        const int32_t n = (int32_t)(d - digits);
        x = 16 * x + (n < 16 ? n : n - 6);
    }
    return x;
}

static char *put_utf8(char *to, int32_t c)
{
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    const int                  n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (n == 1) *to = (char)c;
    for (int i = n - 1; n > 1 && i >= 0; i--, c >>= 6)
        to[i] = (char)(unsigned char)(i ? 0x80 | (c & 0x3f) : first[n] | c);
    return to + n;
}

/* Reads the character after \u, given by one or two surrogates. Moves *p past it. */
static int32_t read_escape(char **p)
{
    int32_t c = read_hex4(*p);
    if (c < 0) return -1;
    *p += 4;
    if (c >= 0xd800 && c < 0xdc00 && (*p)[0] == '\\' && (*p)[1] == 'u') {
        const int32_t low = read_hex4(*p + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            *p += 6;
            return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    return c == 0 || (c >= 0xd800 && c < 0xe000) ? 0xfffd : c;
}

/* Reads the text whose opening quote is at p; returns its end, NULL if it has none. */
static char *read_text(char *p, const char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char             *w = ++p;
    *out = w;
    while (*p && *p != '"') {
        if (*p != '\\') {
            *w++ = *p++;
            continue;
        }
        const char *plain = p[1] ? strchr(from, p[1]) : NULL;
        p += 2;
        if (plain) {
            *w++ = to[plain - from];
        } else {
            if (p[-1] != 'u') return NULL;
            const int32_t c = read_escape(&p);
            if (c < 0) return NULL;
            w = put_utf8(w, c);
        }
    }
    if (!*p) return NULL;
    *w = '\0';
    return p + 1;
}

/* ---- values ---------------------------------------------------------------------------------- */

static char *read_value(char *p, cli_member *m, int depth);

static char *read_number(char *p, double *out)
{
    const size_t n = strspn(p, "+-.0123456789eE");
    char        *end = p;
    if (!(*p == '-' || (*p >= '0' && *p <= '9'))) return NULL;
    *out = strtod(p, &end);
    if (!(fabs(*out) < CLI_NUMBER_MOST)) *out = NAN;
    return end == p + n ? end : NULL;
}

static char *read_word(char *p, cli_member *m)
{
    static const char *const words[] = {"null", "true", "false"};
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(words[i]);
        if (strncmp(p, words[i], n) != 0) continue;
        m->kind = i ? CLI_MEMBER_OTHER : CLI_MEMBER_NUMBER;
        m->number = NAN;
        return p + n;
    }
    return NULL;
}

/* Reads a key and its value; returns their end. */
static char *read_member(char *p, cli_member *m, int depth)
{
    *m = (cli_member){.kind = CLI_MEMBER_OTHER};
    if (*p != '"') return NULL;
    p = read_text(p, &m->key);
    if (!p || *(p = skip_blanks(p)) != ':') return NULL;
    return read_value(skip_blanks(p + 1), m, depth);
}

/* Skips a nested object or array. */
static char *skip_nested(char *p, int depth)
{
    const bool object = *p == '{';
    cli_member m;
    if (depth >= DEPTH) return NULL;
    p = skip_blanks(p + 1);
    if (*p == (object ? '}' : ']')) return p + 1;
    for (;;) {
        p = object ? read_member(p, &m, depth + 1) : read_value(p, &m, depth + 1);
        if (!p) return NULL;
        p = skip_blanks(p);
        if (*p == (object ? '}' : ']')) return p + 1;
        if (*p != ',') return NULL;
        p = skip_blanks(p + 1);
    }
}

static char *read_value(char *p, cli_member *m, int depth)
{
    m->at = p;
    if (*p == '"') {
        m->kind = CLI_MEMBER_TEXT;
        return read_text(p, &m->text);
    }
    m->kind = CLI_MEMBER_OTHER;
    if (*p == '{' || *p == '[') return skip_nested(p, depth);
    char *end = read_word(p, m);
    if (end) return end;
    m->kind = CLI_MEMBER_NUMBER;
    return read_number(p, &m->number);
}

int cli_line_read(char *line, cli_member members[CLI_MEMBERS])
{
    cli_member beyond;
    int        n = 0;
    char      *p = skip_blanks(line);
    if (*p != '{') return -1;
    p = skip_blanks(p + 1);
    if (*p == '}') return *skip_blanks(p + 1) ? -1 : 0;
    for (;;) {
        p = read_member(p, n < CLI_MEMBERS ? &members[n] : &beyond, 0);
        if (!p) return -1;
        if (n < CLI_MEMBERS) n++;
        p = skip_blanks(p);
        if (*p == '}') return *skip_blanks(p + 1) ? -1 : n;
        if (*p != ',') return -1;
        p = skip_blanks(p + 1);
    }
}

int cli_list_read(char *list, const char **texts, int most)
{
    const char *beyond;
    int         n = 0;
    if (*list != '[') return -1;
    char *p = skip_blanks(list + 1);
    if (*p == ']') return 0;
    for (;;) {
        if (*p != '"') return -1;
        p = read_text(p, n < most ? &texts[n] : &beyond);
        if (!p) return -1;
        n++;
        p = skip_blanks(p);
        if (*p == ']') return n;
        if (*p != ',') return -1;
        p = skip_blanks(p + 1);
    }
}
