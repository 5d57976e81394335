/* Help, written from the same table that parses. */
#include "options.h"
#include "term.h"

#include <string.h>

enum { COLUMN = 28 }; /* where the explanations start */

static const void *default_of(const cli_verb *verb, const cli_option *o)
{
    return (const char *)verb->defaults + o->offset;
}

const char *cli_value_name(const cli_option *o, char *text, size_t size)
{
    static const char *const by_kind[] = {"on|off", "N", "X", "TEXT", "", "TEXT"};
    size_t                   used = 0;
    if (o->value || o->kind != CLI_CHOICE) {
        snprintf(text, size, "%s", o->value ? o->value : by_kind[o->kind]);
        return text;
    }
    text[0] = '\0';
    for (size_t i = 0; o->choices[i] && used + 1 < size; i++) {
        snprintf(text + used, size - used, "%s%s", i ? "|" : "", o->choices[i]);
        used += strlen(text + used);
    }
    return text;
}

const char *cli_range(const cli_option *o, char *text, size_t size)
{
    const bool number = o->kind == CLI_INT || o->kind == CLI_REAL;
    text[0] = '\0';
    if (number && o->min < o->max) snprintf(text, size, " from %.15g to %.15g", o->min, o->max);
    return text;
}

/* The default as text, or "" where there is none worth a word. */
static const char *default_text(const cli_verb *verb, const cli_option *o, char *text, size_t size)
{
    const void *field = default_of(verb, o);
    const char *words = o->kind == CLI_TEXT ? *(const char *const *)field : NULL;
    text[0] = '\0';
    if (o->flags & CLI_REQUIRED) return text;
    switch (o->kind) {
    case CLI_FLAG: snprintf(text, size, "%s", *(const bool *)field ? "on" : ""); break;
    case CLI_INT: snprintf(text, size, "%lld", (long long)*(const int64_t *)field); break;
    case CLI_REAL: snprintf(text, size, "%g", *(const double *)field); break;
    case CLI_CHOICE: snprintf(text, size, "%s", o->choices[*(const int *)field]); break;
    case CLI_TEXT: snprintf(text, size, "%s", words ? words : ""); break;
    case CLI_LIST: break;
    }
    return text;
}

/* "from 1 to 8, default 4" in brackets, as far as there is something to say. */
static void write_limits(const cli_verb *verb, const cli_option *o, FILE *out)
{
    char        range[64], start[128];
    const char *comma = " (";
    if (cli_range(o, range, sizeof range)[0]) {
        fprintf(out, "%s%s", comma, range + 1);
        comma = ", ";
    }
    if (o->flags & CLI_REQUIRED) {
        fprintf(out, "%srequired", comma);
        comma = ", ";
    } else if (default_text(verb, o, start, sizeof start)[0]) {
        fprintf(out, "%sdefault %s", comma, start);
        comma = ", ";
    }
    if (o->kind == CLI_LIST && !(o->flags & CLI_POSITIONAL)) {
        fprintf(out, "%smay be repeated", comma);
        comma = ", ";
    }
    if (comma[0] == ',') fputc(')', out);
}

/* How an option is written: "--out DIR", "FILE...", "--[no-]check". */
static void form(const cli_verb *verb, const cli_option *o, char *text, size_t size)
{
    char value[256];
    cli_value_name(o, value, sizeof value);
    if (o->flags & CLI_POSITIONAL)
        snprintf(text, size, "%s%s", value, o->kind == CLI_LIST ? "..." : "");
    else if (o->kind == CLI_FLAG)
        snprintf(text, size, "--%s%s", *(const bool *)default_of(verb, o) ? "[no-]" : "", o->name);
    else
        snprintf(text, size, "--%s %s", o->name, value);
}

static void write_row(const char *left, FILE *out)
{
    fprintf(out, "  %-*s", COLUMN - 4, left);
    if (strlen(left) > COLUMN - 4) fprintf(out, "\n%*s", COLUMN - 2, "");
    fputs("  ", out);
}

static void write_usage(const cli_verb *verb, FILE *out)
{
    char text[320];
    fprintf(out, "%susage:%s dra %s", cli_bold(out), cli_plain(out), verb->name);
    for (size_t i = 0; i < verb->n_options; i++) { /* what must be named, then the places */
        const cli_option *o = &verb->options[i];
        if (o->flags != CLI_REQUIRED) continue;
        form(verb, o, text, sizeof text);
        fprintf(out, " %s", text);
    }
    fputs(" [options]", out);
    for (size_t i = 0; i < verb->n_options; i++) {
        const cli_option *o = &verb->options[i];
        if (!(o->flags & CLI_POSITIONAL)) continue;
        form(verb, o, text, sizeof text);
        fprintf(out, o->flags & CLI_REQUIRED ? " %s" : " [%s]", text);
    }
    fputc('\n', out);
}

void cli_help(const cli_verb *verb, FILE *out)
{
    char text[320];
    write_usage(verb, out);
    fprintf(out, "\n%s\n\n", verb->summary);
    for (size_t i = 0; i < verb->n_options; i++) {
        form(verb, &verb->options[i], text, sizeof text);
        write_row(text, out);
        fputs(verb->options[i].help, out);
        write_limits(verb, &verb->options[i], out);
        fputc('\n', out);
    }
    write_row("--help", out);
    fputs("this text\n", out);
}
