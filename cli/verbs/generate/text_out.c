/* Text that a model wrote, on its way to people or files. */
#include "text_out.h"

#include "dra/base.h"
#include "options/term.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

void cli_text_out_begin(cli_text_out *x, FILE *to, bool raw)
{
    *x = (cli_text_out){.to = to, .shows = !raw && isatty(fileno(to))};
}

void cli_text_out_indent(cli_text_out *x, size_t indent)
{
    x->indent = x->at = indent;
    x->wide = isatty(fileno(x->to)) ? cli_width(x->to) : SIZE_MAX;
}

/* Makes room for a letter, on a new line if it has to be. Nothing stands on an empty line. */
static void place_letter(cli_text_out *x, dra_letter kind, const char *text, size_t n)
{
    enum { CONTROL = 8 }; /* columns, at most */
    char letter[5] = "";
    if (!x->indent) return;
    if (*text == '\n') {
        x->at = 0;
        return;
    }
    memcpy(letter, text, n);
    const size_t columns = kind == DRA_LETTER_PLAIN ? cli_columns(letter) : CONTROL;
    if (x->at && x->at + columns >= x->wide) fputc('\n', x->to), x->at = 0;
    if (!x->at) fprintf(x->to, "%*s", (int)x->indent, ""), x->at = x->indent;
    x->at += columns;
}

static void put_control(const char *text, size_t n, FILE *to)
{
    const unsigned char *p = (const unsigned char *)text;
    if (n == 1 && (*text == '\n' || *text == '\t'))
        fputc(*text, to);
    else if (n == 1)
        fprintf(to, "^%c", *text ^ 0x40); /* ESC is [ without a bit, DEL is ? with it */
    else if (n == 2)
        fprintf(to, "<U+%04X>", (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu));
    else
        fprintf(to, "<U+%04X>", (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu));
}

static void put_letter(dra_letter kind, const char *text, size_t n, FILE *to)
{
    switch (kind) {
    case DRA_LETTER_PLAIN: fwrite(text, 1, n, to); break;
    case DRA_LETTER_CONTROL:
    case DRA_LETTER_LAYOUT: put_control(text, n, to); break;
    case DRA_LETTER_NONE:
    case DRA_LETTER_CUT: fputs("\xef\xbf\xbd", to); break; /* U+FFFD */
    }
}

/* Shows letters that are whole; returns the bytes of the one at the end that is not. */
static size_t show_letters(cli_text_out *x, const char *text, size_t bytes)
{
    for (size_t n; bytes; text += n, bytes -= n) {
        const dra_letter kind = dra_letter_of(text, bytes, &n);
        if (kind == DRA_LETTER_CUT) break;
        place_letter(x, kind, text, n);
        put_letter(kind, text, n, x->to);
    }
    return bytes;
}

void cli_text_out_put(cli_text_out *x, const char *text, size_t bytes)
{
    if (!x->shows) {
        fwrite(text, 1, bytes, x->to);
        return;
    }
    while (x->n && bytes) { /* one byte more until the letter is whole, or is none */
        x->held[x->n++] = *text++, bytes--;
        const size_t left = show_letters(x, x->held, x->n);
        memmove(x->held, x->held + x->n - left, left);
        x->n = left;
    }
    const size_t left = show_letters(x, text, bytes);
    if (left) memcpy(x->held, text + bytes - left, x->n = left);
}

void cli_text_out_end(cli_text_out *x)
{
    if (x->n) put_letter(DRA_LETTER_CUT, x->held, x->n, x->to);
    x->n = 0;
}
