/* Which text can be shown: the one place that knows control characters. */
#include "base/error.h"

#include <string.h>

/* The lead byte says how many follow, 10xxxxxx each. The first of them is bounded further where the
 * letter would also fit into fewer bytes, be half a surrogate pair, or be beyond U+10FFFF.
 * [Unicode, table 3-7] Returns the bytes of the letter; 0: none, or, with *cut, not all of it. */
static size_t whole_letter(const unsigned char *p, size_t bytes, bool *cut)
{
    const unsigned lead = bytes ? p[0] : 0;
    const unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    const size_t   n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    *cut = false;
    if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4) return 0;
    for (size_t i = 1; i < n && i < bytes; i++)
        if (p[i] < (i == 1 ? low : 0x80) || p[i] > (i == 1 ? high : 0xbf)) return 0;
    *cut = n > bytes;
    return *cut ? 0 : n;
}

/* The letter's number; sizes are right already. */
static uint32_t code_of(const unsigned char *p, size_t n)
{
    uint32_t code = n == 1 ? p[0] : p[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) code = code << 6 | (p[i] & 0x3fu);
    return code;
}

dra_letter dra_letter_of(const char *text, size_t bytes, size_t *used)
{
    const unsigned char *p = (const unsigned char *)text;
    bool                 cut;
    const size_t         n = whole_letter(p, bytes, &cut);
    *used = n ? n : cut ? bytes : 1;
    if (!n) return cut ? DRA_LETTER_CUT : DRA_LETTER_NONE;
    const uint32_t code = code_of(p, n);
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return DRA_LETTER_CONTROL;
    const bool layout = (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    return layout ? DRA_LETTER_LAYOUT : DRA_LETTER_PLAIN;
}

size_t dra_utf8_letter(const char *text)
{
    bool cut;
    return *text ? whole_letter((const unsigned char *)text, strnlen(text, 4), &cut) : 0;
}

void dra_make_shown(char *text)
{
    size_t used;
    for (size_t left = strlen(text); left; text += used, left -= used)
        if (dra_letter_of(text, left, &used) != DRA_LETTER_PLAIN) memset(text, '?', used);
}
