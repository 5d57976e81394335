/* Python's literals, read and written. */
#include "text/literal.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "text/letters.h"

/* What may follow a backslash for one letter, and that letter. */
static const char short_names[] = "ntr\\'\"";
static const char short_codes[] = "\n\t\r\\'\"";

/* ---- reading --------------------------------------------------------------------------------- */

static int32_t hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c | 0x20) : NULL;
    return !at || (c < '0') ? -1 : (int32_t)(at - digits);
}

/* `digits` digits in front of `end`; < 0: there are none such. */
static int64_t read_hex(const char *at, const char *end, int digits)
{
    int64_t value = 0;
    if (end - at < digits) return -1;
    for (int i = 0; i < digits; i++) {
        const int32_t digit = hex_digit(at[i]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* The code after a backslash, and how many bytes it takes; 0: none that is known. */
static size_t read_escape(const char *at, const char *end, bool is_text, int64_t *code)
{
    const char *name = at < end && *at ? strchr(short_names, *at) : NULL;
    if (name) {
        *code = short_codes[name - short_names];
        return 1;
    }
    const int digits = at == end               ? 0
                       : *at == 'x'            ? 2
                       : is_text && *at == 'u' ? 4
                       : is_text && *at == 'U' ? 8
                                               : 0;
    *code = digits ? read_hex(at + 1, end, digits) : -1;
    const bool half = *code >= 0xd800 && *code < 0xe000; /* of a surrogate pair */
    return *code < 0 || *code > 0x10ffff || half ? 0 : (size_t)digits + 1;
}

/* One letter or byte. Returns how many bytes of the literal it takes, 0: it may not stand there. */
static size_t read_letter(const char *at, const char *end, bool is_text, char **to)
{
    int64_t code;
    int32_t letter;
    size_t  bytes;
    if (*at == '\\') {
        bytes = read_escape(at + 1, end, is_text, &code);
        if (bytes && is_text) *to += dra_utf8_write((int32_t)code, *to);
        if (bytes && !is_text) *(*to)++ = (char)code;
        return bytes ? 1 + bytes : 0;
    }
    bytes = dra_utf8(at, (size_t)(end - at), &letter);
    if (letter < 0 || (bytes > 1 && !is_text)) return 0;
    memcpy(*to, at, bytes);
    *to += bytes;
    return bytes;
}

size_t dra_literal_read(const char *literal, size_t n, char *out)
{
    const bool is_text = n && literal[0] != 'b';
    if (n < (is_text ? 2 : 3)) return SIZE_MAX;
    const char *at = literal + !is_text, *end = literal + n - 1;
    const char  quote = *at++;
    char       *to = out;
    if ((quote != '\'' && quote != '"') || *end != quote) return SIZE_MAX;
    for (size_t taken; at < end; at += taken) {
        taken = *at == quote ? 0 : read_letter(at, end, is_text, &to);
        if (!taken) return SIZE_MAX;
    }
    return (size_t)(to - out);
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool is_utf8(const char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        int32_t code;
        at += dra_utf8(bytes + at, n - at, &code);
        if (code < 0) return false;
    }
    return true;
}

/* Marks, signs, letters and numbers; of white space the plain one. */
static bool is_printable(int32_t code)
{
    const utf8proc_category_t c = utf8proc_category(code);
    return code == ' ' || (c != UTF8PROC_CATEGORY_CN && c < UTF8PROC_CATEGORY_ZS);
}

static size_t write_escape(int32_t code, char *out)
{
    enum { ESCAPE = 12 };
    char        room[ESCAPE];
    const char *name = code && code < 0x80 ? strchr(short_codes, code) : NULL;
    const char *format = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
    const int   n = name ? snprintf(room, ESCAPE, "\\%c", short_names[name - short_codes])
                         : snprintf(room, ESCAPE, format, (unsigned)code);
    memcpy(out, room, (size_t)n);
    return (size_t)n;
}

size_t dra_literal_write(const char *bytes, size_t n, char *out)
{
    const bool is_text = is_utf8(bytes, n);
    const char quote = memchr(bytes, '\'', n) && !memchr(bytes, '"', n) ? '"' : '\'';
    char      *to = out;
    if (!is_text) *to++ = 'b';
    *to++ = quote;
    for (size_t at = 0, k = 1; at < n; at += k) {
        int32_t code = (unsigned char)bytes[at];
        if (is_text) k = dra_utf8(bytes + at, n - at, &code);
        const bool plain = is_text ? is_printable(code) : code >= ' ' && code < 0x7f;
        if (!plain || code == quote || code == '\\') {
            to += write_escape(code, to);
        } else {
            memcpy(to, bytes + at, k);
            to += k;
        }
    }
    *to++ = quote;
    return (size_t)(to - out);
}
