/* Pages of the manual for a terminal: lines broken at its width. */
#include "manual.h"
#include "term.h"

#include <string.h>

enum { COLUMN = 30, LETTER = 4 }; /* where explanations start; room of "-n, " */

static void begin_page(const char *name, const char *summary, const char *usage, FILE *out)
{
    (void)name;
    fprintf(out, "%susage:%s ", cli_bold(out), cli_plain(out));
    cli_wrap(usage, strlen(usage), 7, 11, out);
    fputc('\n', out);
    cli_wrap(summary, strlen(summary), 0, 0, out);
}

static void write_heading(const char *text, FILE *out)
{
    fprintf(out, "\n%s%s%s\n", cli_bold(out), text, cli_plain(out));
}

static void write_paragraph(const char *text, size_t length, FILE *out)
{
    fputs("\n", out);
    cli_wrap(text, length, 0, 0, out);
}

static void write_item(const char *term, const char *text, FILE *out)
{
    const int indent = strncmp(term, "--", 2) == 0 ? 2 + LETTER : 2, room = COLUMN - 2 - indent;
    fprintf(out, "%*s%-*s", indent, "", room, term);
    if ((int)strlen(term) > room) fprintf(out, "\n%*s", COLUMN - 2, "");
    fputs("  ", out);
    cli_wrap(text, strlen(text), COLUMN, COLUMN, out);
}

static void write_example(const char *command, const char *shows, FILE *out)
{
    fprintf(out, "  $ %s\n      ", command);
    cli_wrap(shows, strlen(shows), 6, 6, out);
}

const cli_format cli_as_text = {
    begin_page, write_heading, write_paragraph, write_item, write_example, "dra ", ""};
