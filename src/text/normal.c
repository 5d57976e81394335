/* NFC [Unicode standard annex 15]. Letters below U+0300 are in NFC, and only letters from U+0300 on
 * that follow one can change it: so runs of those are normalised, each with the letter in front of
 * it, and all else is copied. utf8proc has the tables; marks are sorted here, because its own
 * sorting takes time quadratic in the marks after one letter. */
#include "text/normal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/letters.h"

enum { FIRST = 0x300, LEAD = 0xcc, LONGEST = 32 }; /* code points one letter decomposes to */

void dra_normal_free(dra_normal *n)
{
    free(n->text);
    free(n->code);
    free(n->sorted);
    *n = (dra_normal){0};
}

static bool append_bytes(dra_normal *n, const char *text, size_t bytes)
{
    if (n->room - n->bytes < bytes) {
        const size_t room = 2 * n->room + bytes;
        char        *grown = realloc(n->text, room);
        if (!grown) return false;
        n->text = grown;
        n->room = room;
    }
    if (bytes) memcpy(n->text + n->bytes, text, bytes);
    n->bytes += bytes;
    return true;
}

static bool reserve_codes(dra_normal *n, size_t codes)
{
    if (codes <= n->codes) return true;
    const size_t room = codes + n->codes;
    int32_t     *code = realloc(n->code, room * sizeof *code);
    if (code) n->code = code;
    int32_t *sorted = realloc(n->sorted, room * sizeof *sorted);
    if (sorted) n->sorted = sorted;
    if (code && sorted) n->codes = room;
    return code && sorted;
}

static unsigned class_of(int32_t code)
{
    return (unsigned)utf8proc_get_property(code)->combining_class & 0xff;
}

/* Sorts marks (class > 0) by their class, those of one class as they stand. */
static void sort_marks(int32_t *code, int32_t *sorted, size_t n)
{
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++) start[class_of(code[i]) + 1]++;
    for (size_t c = 0; c < 256; c++) start[c + 1] += start[c];
    for (size_t i = 0; i < n; i++) sorted[start[class_of(code[i])]++] = code[i];
    memcpy(code, sorted, n * sizeof *code);
}

static void sort_all_marks(dra_normal *n, size_t codes)
{
    for (size_t i = 0, end; i < codes; i = end + 1) {
        for (end = i; end < codes && class_of(n->code[end]) > 0;) end++;
        if (end - i > 1) sort_marks(n->code + i, n->sorted, end - i);
    }
}

/* Decomposes, sorts, composes: only letters, no broken bytes. */
static bool compose_text(dra_normal *n, const char *text, size_t bytes)
{
    size_t codes = 0;
    for (size_t at = 0; at < bytes;) {
        int32_t code;
        int     boundary = 0;
        if (!reserve_codes(n, codes + LONGEST)) return false;
        at += dra_utf8(text + at, bytes - at, &code);
        codes += (size_t)utf8proc_decompose_char(code, n->code + codes, LONGEST,
                                                 UTF8PROC_STABLE | UTF8PROC_COMPOSE, &boundary);
    }
    sort_all_marks(n, codes);
    const ptrdiff_t left = utf8proc_normalize_utf32(n->code, (utf8proc_ssize_t)codes,
                                                    UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (ptrdiff_t i = 0; i < left; i++) {
        char letter[4] = {0};
        if (!append_bytes(n, letter, dra_utf8_write(n->code[i], letter))) return false;
    }
    return true;
}

static size_t find_high(const char *text, size_t at, size_t bytes)
{
    while (at < bytes && (unsigned char)text[at] < LEAD) at++;
    return at;
}

bool dra_normal_make(dra_normal *n, const char *text, size_t bytes, const char **out,
                     size_t *out_bytes)
{
    size_t high = find_high(text, 0, bytes), done = 0;
    *out = text;
    *out_bytes = bytes;
    if (high == bytes) return true;
    for (n->bytes = 0; high < bytes; high = find_high(text, done, bytes)) {
        int32_t code;
        size_t  base = high > done ? dra_utf8_before(text, high, &code) : high, end = high;
        if (high > done && code < 0) base = high;
        for (size_t k = 0; end < bytes; end += k) {
            k = dra_utf8(text + end, bytes - end, &code);
            if (code < FIRST) break;
        }
        if (!append_bytes(n, text + done, base - done)) return false;
        if (end > high && !compose_text(n, text + base, end - base)) return false;
        if (end == high && !append_bytes(n, text + base, ++end - base)) return false; /* broken */
        done = end;
    }
    *out_bytes = n->bytes + bytes - done;
    if (!append_bytes(n, text + done, bytes - done)) return false;
    *out = n->text;
    return true;
}
