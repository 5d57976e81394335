/* Pages of the manual as Markdown. */
#include "manual.h"

#include <string.h>

/* Writes text with the signs escaped that mean something to Markdown. */
static void write_plain(const char *text, size_t length, FILE *out)
{
    for (size_t i = 0; i < length; i++) {
        if (strchr("\\`*_[]<>|#", text[i])) fputc('\\', out);
        fputc(text[i], out);
    }
}

static void begin_page(const char *name, const char *summary, const char *usage, FILE *out)
{
    fprintf(out, "# %s\n\n    %s\n\n", name, usage);
    write_plain(summary, strlen(summary), out);
    fputc('\n', out);
}

static void write_heading(const char *text, FILE *out) { fprintf(out, "\n## %s\n", text); }

static void write_paragraph(const char *text, size_t length, FILE *out)
{
    fputc('\n', out);
    write_plain(text, length, out);
    fputc('\n', out);
}

static void write_item(const char *term, const char *text, FILE *out)
{
    fprintf(out, "* `%s` - ", term);
    write_plain(text, strlen(text), out);
    fputc('\n', out);
}

static void write_example(const char *command, const char *shows, FILE *out)
{
    fputc('\n', out);
    write_plain(shows, strlen(shows), out);
    fprintf(out, ":\n\n    $ %s\n", command);
}

const cli_format cli_as_markdown = {
    begin_page, write_heading, write_paragraph, write_item, write_example, "dra ", ""};
