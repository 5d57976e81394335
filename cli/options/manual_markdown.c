/* Pages of the manual as Markdown. */
#include "manual.h"

#include <string.h>

/* Text with the signs escaped that would change it. */
static void plain(const char *text, size_t length, FILE *out)
{
    for (size_t i = 0; i < length; i++) {
        if (strchr("\\`*_[]<>|#", text[i])) fputc('\\', out);
        fputc(text[i], out);
    }
}

static void begin(const char *name, const char *summary, const char *usage, FILE *out)
{
    fprintf(out, "# %s\n\n    %s\n\n", name, usage);
    plain(summary, strlen(summary), out);
    fputc('\n', out);
}

static void heading(const char *text, FILE *out) { fprintf(out, "\n## %s\n", text); }

static void paragraph(const char *text, size_t length, FILE *out)
{
    fputc('\n', out);
    plain(text, length, out);
    fputc('\n', out);
}

static void item(const char *term, const char *text, FILE *out)
{
    fprintf(out, "* `%s` - ", term);
    plain(text, strlen(text), out);
    fputc('\n', out);
}

static void example(const char *command, const char *shows, FILE *out)
{
    fputc('\n', out);
    plain(shows, strlen(shows), out);
    fprintf(out, ":\n\n    $ %s\n", command);
}

const cli_format cli_as_markdown = {begin, heading, paragraph, item, example, "dra ", ""};
