/* Status names, error texts, the version. */
#include "base/error.h"

#include <stdio.h>

const char *dra_version(void) { return DRA_VERSION_TEXT; }

const char *dra_status_name(dra_status status)
{
    static const char *const names[] = {
        [DRA_OK] = "ok",
        [DRA_ERR_SHAPE] = "shape",
        [DRA_ERR_DTYPE] = "dtype",
        [DRA_ERR_VALUE] = "value",
        [DRA_ERR_NAME] = "name",
        [DRA_ERR_INDEX] = "index",
        [DRA_ERR_GRAD] = "gradient",
        [DRA_ERR_DEVICE] = "device",
        [DRA_ERR_MEMORY] = "memory",
        [DRA_ERR_BIND] = "bind",
        [DRA_ERR_FILE] = "file",
        [DRA_ERR_FORMAT] = "format",
    };
    const size_t n = sizeof names / sizeof *names;
    return (size_t)status < n ? names[status] : "unknown";
}

/* The lead byte says how many follow, 10xxxxxx each. The first of them is bounded further where the
 * letter would also fit into fewer bytes, be half a surrogate pair, or be beyond U+10FFFF.
 * [Unicode, table 3-7] */
size_t dra_utf8_letter(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    const unsigned       lead = p[0];
    const unsigned       low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned       high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    const size_t         n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (!lead || (lead >= 0x80 && lead < 0xc2) || lead > 0xf4) return 0;
    if (n > 1 && (p[1] < low || p[1] > high)) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0; /* also stops at the end of the text */
    return n;
}

void dra_make_utf8(char *text)
{
    while (*text) {
        const size_t n = dra_utf8_letter(text);
        if (!n) *text = '?';
        text += n ? n : 1;
    }
}

dra_status dra_fail_v(dra_error *err, dra_status code, const char *format, va_list args)
{
    if (err) {
        err->code = code;
        vsnprintf(err->text, sizeof err->text, format, args);
        dra_make_utf8(err->text);
    }
    return code;
}

dra_status dra_fail(dra_error *err, dra_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    dra_fail_v(err, code, format, args);
    va_end(args);
    return code;
}
