/* Output to a terminal: colour if there is one, its width, errors, JSON text. */
#include "term.h"
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool cli_moves(FILE *out)
{
    const char *term = getenv("TERM");
    return isatty(fileno(out)) && term && strcmp(term, "dumb") != 0;
}

static bool has_colour(FILE *out)
{
    const char *off = getenv("NO_COLOR");
    return cli_moves(out) && !(off && *off);
}

const char *cli_bold(FILE *out) { return has_colour(out) ? "\033[1m" : ""; }
const char *cli_green(FILE *out) { return has_colour(out) ? "\033[1;32m" : ""; }
const char *cli_blue(FILE *out) { return has_colour(out) ? "\033[1;34m" : ""; }
const char *cli_plain(FILE *out) { return has_colour(out) ? "\033[0m" : ""; }

size_t cli_width(FILE *out)
{
    struct winsize size = {0};
    const int      file = fileno(out);
    if (file < 0 || ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

size_t cli_height(FILE *out)
{
    struct winsize size = {0};
    const int      file = fileno(out);
    if (file < 0 || ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return 24;
    return size.ws_row;
}

/* ---- columns --------------------------------------------------------------------------------- */

/* The bytes of the next letter of UTF-8, and its width in *columns. Bytes that are not UTF-8 are
 * letters of their own. */
static size_t next_letter(const char *text, size_t *columns)
{
    static const uint32_t wide[][2] = {{0x1100, 0x115f},   {0x2e80, 0xa4cf},  {0xac00, 0xd7a3},
                                       {0xf900, 0xfaff},   {0xfe30, 0xfe6f},  {0xff00, 0xff60},
                                       {0x1f300, 0x1faff}, {0x20000, 0x3fffd}};
    const unsigned char   c = (unsigned char)text[0];
    const size_t          n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    uint32_t              code = n == 1 ? c : c & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80) return *columns = 1;
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    }
    *columns = 1;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (code >= wide[i][0] && code <= wide[i][1]) *columns = 2;
    return n;
}

size_t cli_columns(const char *text)
{
    size_t all = 0, columns;
    for (; *text; all += columns) text += next_letter(text, &columns);
    return all;
}

size_t cli_put(const char *text, size_t width, FILE *out)
{
    size_t all = 0, columns, n, used;
    for (; *text; text += n, all += columns) {
        n = next_letter(text, &columns);
        if (all + columns > width) break;
        if (dra_letter_of(text, n, &used) == DRA_LETTER_PLAIN && used == n)
            fwrite(text, 1, n, out);
        else
            fputc('?', out);
    }
    return all;
}

void cli_wrap(const char *text, size_t length, size_t at, size_t indent, FILE *out)
{
    enum { LEAST = 20 }; /* columns for the text, however narrow the terminal is */
    const char  *end = text + length;
    const size_t columns = cli_width(out);
    const size_t width = columns < indent + LEAST ? indent + LEAST : columns;
    for (bool first = true; text < end; first = false) {
        const char  *space = memchr(text, ' ', (size_t)(end - text));
        const size_t word = (size_t)((space ? space : end) - text);
        if (!first && at + 1 + word > width) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
        } else if (!first) {
            fputc(' ', out);
            at++;
        }
        fwrite(text, 1, word, out);
        at += word;
        text += word + (space != NULL);
    }
    fputc('\n', out);
}

void cli_line_v(FILE *out, const char *format, va_list values)
{
    char    brief[1024], *text = brief;
    va_list again;
    va_copy(again, values);
    const int n = vsnprintf(brief, sizeof brief, format, values);
    if (n >= (int)sizeof brief && (text = calloc((size_t)n + 1, 1)))
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    if (!text) text = brief; /* out of memory: a text that may be cut */
    dra_make_shown(text);
    fprintf(out, "%s\n", text);
    if (text != brief) free(text);
}

void cli_line(FILE *out, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    cli_line_v(out, format, values);
    va_end(values);
}

const char *cli_clean(const char *text, char room[CLI_CLEAN])
{
    snprintf(room, CLI_CLEAN, "%s", text);
    dra_make_shown(room);
    return room;
}

void cli_fold(size_t indent, FILE *out, const char *format, ...)
{
    char    text[2048];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    dra_make_shown(text);
    if (isatty(fileno(out)))
        cli_wrap(text, strlen(text), 0, indent, out);
    else
        fprintf(out, "%s\n", text);
}

const char *cli_reason(int number) { return number == ENOMEM ? "out of memory" : strerror(number); }

int cli_fail(const dra_error *err)
{
    cli_line(stderr, "dra: %s", err->text);
    return CLI_FAILED;
}

/* The code of a letter of one to three bytes; longer ones can all be shown. */
static unsigned number_of(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    if (n == 1) return p[0];
    return n == 2 ? (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu)
                  : (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
}

void cli_json_part(const char *text, size_t bytes, FILE *out)
{
    for (size_t n; bytes; text += n, bytes -= n) {
        const dra_letter kind = dra_letter_of(text, bytes, &n);
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if (kind == DRA_LETTER_CONTROL || kind == DRA_LETTER_LAYOUT)
            fprintf(out, "\\u%04x", number_of(text, n));
        else
            fwrite(text, 1, n, out);
    }
}

const char *cli_json_number(double x, int digits, char room[CLI_NUMBER])
{
    if (isfinite(x))
        snprintf(room, CLI_NUMBER, "%.*g", digits, x);
    else
        snprintf(room, CLI_NUMBER, "null");
    return room;
}

const char *cli_json_shortest(double x, char room[CLI_NUMBER])
{
    int digits = 1;
    while (digits < 17 && strtod(cli_json_number(x, digits, room), NULL) != x) digits++;
    return cli_json_number(x, digits, room);
}

void cli_json_text(const char *text, FILE *out)
{
    fputc('"', out);
    cli_json_part(text, strlen(text), out);
    fputc('"', out);
}
