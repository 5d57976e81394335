/* Pages of the manual for man: roff with its man macros. */
#include "manual.h"

#include "dra/base.h"

#include <ctype.h>
#include <string.h>

/* Escapes for letters that mean something to roff, or that it would set as typographic ones. */
static const char *roff_escape(char letter)
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

/* Writes plain text; a dot at its start must not become a request. */
static void write_plain(const char *text, size_t length, FILE *out)
{
    if (length && text[0] == '.') fputs("\\&", out);
    for (size_t i = 0; i < length; i++) {
        const char *other = roff_escape(text[i]);
        if (other)
            fputs(other, out);
        else
            fputc(text[i], out);
    }
}

static void write_line(const char *text, FILE *out)
{
    write_plain(text, strlen(text), out);
    fputc('\n', out);
}

static void write_upper(const char *text, FILE *out)
{
    for (; *text; text++) fputc(*text == ' ' ? ' ' : toupper((unsigned char)*text), out);
}

static void write_heading(const char *text, FILE *out)
{
    fputs(".SH ", out);
    write_upper(text, out);
    fputc('\n', out);
}

/* The page of "dra train" is dra-train. */
static void begin_page(const char *name, const char *summary, const char *usage, FILE *out)
{
    char         title[64];
    const size_t command = strcspn(usage, "-["); /* the part that is typed as it is */
    snprintf(title, sizeof title, "%s", name);
    if (strchr(title, ' ')) *strchr(title, ' ') = '-';
    fputs(".TH ", out);
    write_upper(title, out);
    fprintf(out, " 1 \"\" \"dra %s\" \"dra manual\"\n.SH NAME\n", dra_version());
    write_plain(title, strlen(title), out);
    fputs(" \\- ", out);
    write_line(summary, out);
    fputs(".SH SYNOPSIS\n.B ", out);
    write_plain(usage, command - (usage[command - 1] == ' '), out);
    fputc('\n', out);
    write_line(usage + command, out);
    fputs(".SH DESCRIPTION\n", out);
    write_line(summary, out);
}

static void write_paragraph(const char *text, size_t length, FILE *out)
{
    fputs(".PP\n", out);
    write_plain(text, length, out);
    fputc('\n', out);
}

static void write_item(const char *term, const char *text, FILE *out)
{
    fputs(".TP\n.B ", out);
    write_line(term, out);
    write_line(text, out);
}

static void write_example(const char *command, const char *shows, FILE *out)
{
    fputs(".PP\n", out);
    write_line(shows, out);
    fputs(".PP\n.RS 4\n.nf\n$ ", out);
    write_line(command, out);
    fputs(".fi\n.RE\n", out);
}

const cli_format cli_as_man = {
    begin_page, write_heading, write_paragraph, write_item, write_example, "dra-", "(1)"};
