/* UTF-8 by table 3-7 of the Unicode standard, kinds by utf8proc. */
#include "text/letters.h"

#include <string.h>
#include <utf8proc.h>

static bool continues_letter(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

/* The lead byte says how many follow. The first of them is bounded further where the letter would
 * also fit into fewer bytes, be half a surrogate pair, or be beyond U+10FFFF. */
size_t dra_utf8(const char *text, size_t n, int32_t *code)
{
    const unsigned char *p = (const unsigned char *)text;
    const unsigned       lead = p[0];
    const unsigned       low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned       high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    const size_t         bytes = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    *code = DRA_BROKEN;
    if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4) return 1;
    int32_t value = (int32_t)(bytes == 1 ? lead : lead & (0x7fu >> bytes));
    for (size_t i = 1; i < bytes; i++) {
        if (i == n) {
            *code = DRA_OPEN;
            return n;
        }
        if (i == 1 ? p[1] < low || p[1] > high : !continues_letter(text[i])) return i;
        value = value << 6 | (p[i] & 0x3f);
    }
    *code = value;
    return bytes;
}

size_t dra_utf8_before(const char *text, size_t at, int32_t *code)
{
    const size_t most = at < 4 ? at : 4;
    for (size_t back = 1; back <= most; back++) {
        if (continues_letter(text[at - back])) continue;
        if (dra_utf8(text + at - back, back, code) == back && *code >= 0) return at - back;
        break;
    }
    *code = DRA_BROKEN;
    return at - 1;
}

size_t dra_utf8_write(int32_t code, char *out)
{
    return (size_t)utf8proc_encode_char(code, (utf8proc_uint8_t *)out);
}

size_t dra_blocks_to_spaces(const char *text, size_t n, char *out)
{
    char *to = out;
    for (size_t i = 0; i < n;) {
        const bool block = n - i >= 3 && memcmp(text + i, DRA_BLOCK, 3) == 0;
        *to++ = block ? ' ' : text[i];
        i += block ? 3 : 1;
    }
    return (size_t)(to - out);
}

size_t dra_spaces_to_blocks(const char *text, size_t n, char *out)
{
    char *to = out;
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = text[i] == ' ' ? 3 : 1;
        memcpy(to, bytes == 3 ? DRA_BLOCK : text + i, bytes);
        to += bytes;
    }
    return (size_t)(to - out);
}

const char dra_ascii_kinds[] = "OOOOOOOOOSSSSSOOOOOOOOOOOOOOOOOO"  /* controls, tab to CR      */
                               "SOOOOOOOOOOOOOOONNNNNNNNNNOOOOOO"  /* space, signs, digits     */
                               "OLLLLLLLLLLLLLLLLLLLLLLLLLLOOOOO"  /* capital letters          */
                               "OLLLLLLLLLLLLLLLLLLLLLLLLLLOOOOO"; /* small letters, signs, DEL */

static bool is_space(int32_t c)
{
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

dra_kind dra_kind_of(int32_t code)
{
    if (code < 0) return DRA_OTHER;
    if (code < 0x80) return (dra_kind)dra_ascii_kinds[code];
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return DRA_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return DRA_NUMBER;
    default: return is_space(code) ? DRA_SPACE : DRA_OTHER;
    }
}

bool dra_is_mark(const char *text, size_t n)
{
    int32_t code;
    dra_utf8(text, n, &code);
    const utf8proc_category_t c = code < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(code);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

/* ---- the byte alphabet ----------------------------------------------------------------------- */

void dra_alphabet_make(dra_alphabet *a)
{
    int32_t other = 0x100;
    for (int i = 0; i < DRA_ALPHABET; i++) a->byte[i] = -1;
    for (int i = 0; i < 256; i++) {
        const bool printable = (i > 0x20 && i < 0x7f) || (i > 0xa0 && i != 0xad);
        a->letter[i] = printable ? i : other++;
        a->byte[a->letter[i]] = (int16_t)i;
    }
}

size_t dra_alphabet_read(const dra_alphabet *a, const char *text, char *out)
{
    size_t n = 0;
    for (size_t left = strlen(text), bytes; left; text += bytes, left -= bytes) {
        int32_t code;
        bytes = dra_utf8(text, left, &code);
        if (code < 0 || code >= DRA_ALPHABET || a->byte[code] < 0) return SIZE_MAX;
        out[n++] = (char)a->byte[code];
    }
    return n;
}

size_t dra_alphabet_write(const dra_alphabet *a, const char *bytes, size_t n, char *out)
{
    char *to = out;
    for (size_t i = 0; i < n; i++) to += dra_utf8_write(a->letter[(unsigned char)bytes[i]], to);
    *to = 0;
    return (size_t)(to - out);
}
