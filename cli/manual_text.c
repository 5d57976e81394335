/* Pages of the manual for a terminal: lines broken at its width. */
#include "manual.h"
#include "term.h"

#include <string.h>

enum { COLUMN = 28, NARROWEST = 48 }; /* where explanations start; below it lines do not fit */

/* Writes words into lines. The first line continues at column `at`, others start at `indent`. */
static void wrap(const char *text, size_t length, size_t at, size_t indent, FILE *out)
{
    const char  *end = text + length;
    const size_t columns = cli_width(out), width = columns < NARROWEST ? NARROWEST : columns;
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

static void begin(const char *name, const char *summary, const char *usage, FILE *out)
{
    (void)name;
    fprintf(out, "%susage:%s ", cli_bold(out), cli_plain(out));
    wrap(usage, strlen(usage), 7, 11, out);
    fputc('\n', out);
    wrap(summary, strlen(summary), 0, 0, out);
}

static void heading(const char *text, FILE *out)
{
    fprintf(out, "\n%s%s%s\n", cli_bold(out), text, cli_plain(out));
}

static void paragraph(const char *text, size_t length, FILE *out)
{
    fputs("\n", out);
    wrap(text, length, 0, 0, out);
}

static void item(const char *term, const char *text, FILE *out)
{
    fprintf(out, "  %-*s", COLUMN - 4, term);
    if (strlen(term) > COLUMN - 4) fprintf(out, "\n%*s", COLUMN - 2, "");
    fputs("  ", out);
    wrap(text, strlen(text), COLUMN, COLUMN, out);
}

static void example(const char *command, const char *shows, FILE *out)
{
    fprintf(out, "  $ %s\n      ", command);
    wrap(shows, strlen(shows), 6, 6, out);
}

const cli_format cli_as_text = {begin, heading, paragraph, item, example, "dra ", ""};
