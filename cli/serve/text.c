/* A text that grows, and JSON written into one. */
#include "text.h"

#include "dra/base.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void serve_text_free(serve_text *t)
{
    free(t->data);
    *t = (serve_text){0};
}

static bool make_room(serve_text *t, size_t more)
{
    if (t->failed) return false;
    if (t->room - t->n > more) return true;
    const size_t room = 2 * (t->n + more) + 64;
    char        *data = more < SIZE_MAX / 4 ? realloc(t->data, room) : NULL;
    t->failed = !data;
    if (!data) return false;
    t->data = data;
    t->room = room;
    return true;
}

void serve_put(serve_text *t, const char *data, size_t bytes)
{
    if (!make_room(t, bytes)) return;
    if (bytes) memcpy(t->data + t->n, data, bytes);
    t->n += bytes;
    t->data[t->n] = '\0';
}

void serve_puts(serve_text *t, const char *text) { serve_put(t, text, strlen(text)); }

void serve_printf(serve_text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !make_room(t, (size_t)n)) return;
    va_start(args, format);
    vsnprintf(t->data + t->n, (size_t)n + 1, format, args);
    va_end(args);
    t->n += (size_t)n;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

void serve_json_text(serve_text *t, const char *text, size_t bytes)
{
    serve_puts(t, "\"");
    for (size_t used; bytes; text += used, bytes -= used) {
        const dra_letter kind = dra_letter_of(text, bytes, &used);
        if (kind == DRA_LETTER_CUT) used = bytes;
        if (kind == DRA_LETTER_NONE || kind == DRA_LETTER_CUT)
            serve_puts(t, "\xef\xbf\xbd");
        else if (used == 1 && (*text == '"' || *text == '\\'))
            serve_put(t, (char[]){'\\', *text}, 2);
        else if (used == 1 && *text == '\n')
            serve_puts(t, "\\n");
        else if (used == 1 && ((unsigned char)*text < 32 || *text == 127))
            serve_printf(t, "\\u%04x", (unsigned)(unsigned char)*text);
        else
            serve_put(t, text, used);
    }
    serve_puts(t, "\"");
}

void serve_json_word(serve_text *t, const char *text)
{
    if (text)
        serve_json_text(t, text, strlen(text));
    else
        serve_puts(t, "null");
}

void serve_json_real(serve_text *t, double x)
{
    if (isfinite(x))
        serve_printf(t, "%.17g", x);
    else
        serve_puts(t, "null");
}

void serve_json_float(serve_text *t, float x)
{
    if (isfinite(x))
        serve_printf(t, "%.9g", (double)x);
    else
        serve_puts(t, "null");
}

void serve_json_int(serve_text *t, int64_t x) { serve_printf(t, "%lld", (long long)x); }

/* ---- base64 ---------------------------------------------------------------------------------- */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void serve_base64(serve_text *t, const void *data, size_t bytes)
{
    const unsigned char *x = data;
    if (!make_room(t, bytes / 3 * 4 + 8)) return;
    for (size_t i = 0; i < bytes; i += 3) {
        const size_t   left = bytes - i;
        const uint32_t v = (uint32_t)x[i] << 16 | (left > 1 ? (uint32_t)x[i + 1] << 8 : 0) |
                           (left > 2 ? x[i + 2] : 0);
        t->data[t->n++] = letters[v >> 18];
        t->data[t->n++] = letters[v >> 12 & 63];
        t->data[t->n++] = '=';
        t->data[t->n++] = '=';
        if (left > 1) t->data[t->n - 2] = letters[v >> 6 & 63];
        if (left > 2) t->data[t->n - 1] = letters[v & 63];
    }
    t->data[t->n] = '\0';
}

static int value_of(char c)
{
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? (int)(at - letters) : -1;
}

bool serve_base64_read(const char *text, size_t n, char **data, size_t *bytes)
{
    size_t   out = 0, pad = 0;
    uint32_t v = 0;
    *bytes = 0;
    *data = n % 4 ? NULL : malloc(n / 4 * 3 + 1);
    if (!*data) return false;
    while (pad < 2 && pad < n && text[n - 1 - pad] == '=') pad++;
    for (size_t i = 0; i < n - pad; i++) {
        const int x = value_of(text[i]);
        if (x < 0) {
            free(*data);
            *data = NULL;
            return false;
        }
        v = v << 6 | (uint32_t)x;
        if (i % 4 > 0) (*data)[out++] = (char)(v >> (6 - 2 * (i % 4)) & 255);
    }
    *bytes = out;
    return true;
}
