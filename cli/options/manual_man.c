/* Pages of the manual for man: roff with its man macros. */
#include "manual.h"

#include "dra/base.h"

#include <ctype.h>
#include <string.h>

/* Letters that roff would take as its own, or set as their typographic kin. */
static const char *escaped(char letter)
{
    switch (letter) {
    case '\\': return "\\e";
    case '-': return "\\-";
    case '\'': return "\\(aq";
    case '`': return "\\(ga";
    case '^': return "\\(ha";
    case '~': return "\\(ti";
    default: return NULL;
    }
}

/* Text as it is; a dot at its start is no request. */
static void plain(const char *text, size_t length, FILE *out)
{
    if (length && text[0] == '.') fputs("\\&", out);
    for (size_t i = 0; i < length; i++) {
        const char *other = escaped(text[i]);
        if (other)
            fputs(other, out);
        else
            fputc(text[i], out);
    }
}

static void line(const char *text, FILE *out)
{
    plain(text, strlen(text), out);
    fputc('\n', out);
}

static void upper(const char *text, FILE *out)
{
    for (; *text; text++) fputc(*text == ' ' ? ' ' : toupper((unsigned char)*text), out);
}

static void heading(const char *text, FILE *out)
{
    fputs(".SH ", out);
    upper(text, out);
    fputc('\n', out);
}

/* "dra train" is called dra-train. */
static void begin(const char *name, const char *summary, const char *usage, FILE *out)
{
    char         title[64];
    const size_t command = strcspn(usage, "-["); /* the part that is typed as it is */
    snprintf(title, sizeof title, "%s", name);
    if (strchr(title, ' ')) *strchr(title, ' ') = '-';
    fputs(".TH ", out);
    upper(title, out);
    fprintf(out, " 1 \"\" \"dra %s\" \"dra manual\"\n.SH NAME\n", dra_version());
    plain(title, strlen(title), out);
    fputs(" \\- ", out);
    line(summary, out);
    fputs(".SH SYNOPSIS\n.B ", out);
    plain(usage, command - (usage[command - 1] == ' '), out);
    fputc('\n', out);
    line(usage + command, out);
    fputs(".SH DESCRIPTION\n", out);
    line(summary, out);
}

static void paragraph(const char *text, size_t length, FILE *out)
{
    fputs(".PP\n", out);
    plain(text, length, out);
    fputc('\n', out);
}

static void item(const char *term, const char *text, FILE *out)
{
    fputs(".TP\n.B ", out);
    line(term, out);
    line(text, out);
}

static void example(const char *command, const char *shows, FILE *out)
{
    fputs(".PP\n", out);
    line(shows, out);
    fputs(".PP\n.RS 4\n.nf\n$ ", out);
    line(command, out);
    fputs(".fi\n.RE\n", out);
}

const cli_format cli_as_man = {begin, heading, paragraph, item, example, "dra-", "(1)"};
