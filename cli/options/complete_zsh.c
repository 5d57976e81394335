/* Completion for zsh: a list of _arguments for each verb. */
#include "complete.h"
#include "manual.h"
#include "verbs/verbs.h"

#include <string.h>

static const char head[] = "#compdef dra\n"
                           "# Completion of dra for zsh.\n"
                           "_dra() {\n"
                           "    local context state state_descr line\n"
                           "    typeset -A opt_args\n"
                           "    local -a keys verbs\n"
                           "    keys=(";

static const char after_keys[] = ")\n"
                                 "    verbs=(\n";

static const char middle[] = "    )\n"
                             "    _arguments -C '(- *)--help[the verbs]' \\\n"
                             "        '(- *)--version[print the version]' \\\n"
                             "        '1:verb:->verb' '*::argument:->rest'\n"
                             "    case $state in\n"
                             "    verb) _describe verb verbs ;;\n"
                             "    rest)\n"
                             "        case $words[1] in\n";

static const char tail[] = "        esac\n"
                           "        ;;\n"
                           "    esac\n"
                           "}\n"
                           "_dra \"$@\"\n";

/* Writes text inside single quotes; signs that end a part of a spec are escaped. */
static void write_quoted(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fprintf(out, "%s%c", strchr("[]:\\", *text) ? "\\" : "", *text);
    }
}

static void write_action(const cli_option *o, FILE *out)
{
    const bool words = cli_write_words(o, NULL) > 0;
    if (o->flags & CLI_A_KEY) {
        fputs("{compadd -S \"\" -- $keys}", out);
        return;
    }
    const char *files = cli_takes_files(o) ? "_files" : cli_takes_folders(o) ? "_files -/" : NULL;
    if (files && words)
        fprintf(out, "{%s; compadd ", files);
    else if (words)
        fputc('(', out);
    else
        fputs(files ? files : " ", out);
    if (words) cli_write_words(o, out);
    if (words) fputc(files ? '}' : ')', out);
}

/* Writes both names of an option and the opening quote after them: '(-n
 * --steps)'{-n+,--steps=}'. */
static void write_names(const cli_verb *verb, const cli_option *o, FILE *out)
{
    const char *no = cli_starts_on(verb, o) ? "no-" : "", *value = o->kind == CLI_FLAG ? "" : "=";
    if (!o->brief)
        fprintf(out, "--%s%s%s", no, o->name, value);
    else if (o->kind == CLI_LIST)
        fprintf(out, "'{-%c+,--%s=}'", o->brief, o->name);
    else
        fprintf(out, "(-%c --%s)'{-%c%s,--%s%s}'", o->brief, o->name, o->brief, *value ? "+" : "",
                o->name, value);
}

static void write_option(const cli_verb *verb, const cli_option *o, bool place, FILE *out)
{
    char       value[256];
    const bool needed = (o->flags & CLI_REQUIRED) && (o->flags & CLI_POSITIONAL);
    fprintf(out, " \\\n            '%s", o->kind == CLI_LIST ? "*" : "");
    if (place)
        fputs(o->kind == CLI_LIST || needed ? ":" : "::", out);
    else {
        write_names(verb, o, out);
        fputc('[', out);
        write_quoted(o->help, out);
        fputs(o->kind == CLI_FLAG ? "]" : "]:", out);
    }
    if (o->kind != CLI_FLAG) {
        write_quoted(cli_value_name(o, value, sizeof value), out);
        fputc(':', out);
        write_action(o, out);
    }
    fputc('\'', out);
}

static void write_verb(const cli_verb *verb, FILE *out)
{
    fprintf(out, "        %s)\n            _arguments '(- *)--help[explain the verb]'", verb->name);
    for (const cli_verb *v = verb; v; v = v->over)
        for (size_t i = 0; i < v->n_options; i++)
            if (v == verb || !cli_option_of(verb, v->options[i].name))
                write_option(v, &v->options[i], v->options[i].flags & CLI_POSITIONAL, out);
    for (size_t i = 0; i < verb->n_options; i++)
        if (verb->options[i].flags & CLI_ALSO_PLACED)
            write_option(verb, &verb->options[i], true, out);
    fputs("\n            ;;\n", out);
}

void cli_complete_zsh(FILE *out)
{
    const cli_verb *verb;
    fputs(head, out);
    cli_write_keys(out);
    fputs(after_keys, out);
    for (size_t i = 0; (verb = cli_verb_at(i)) != NULL; i++) {
        fprintf(out, "        '%s:", verb->name);
        write_quoted(verb->summary, out);
        fputs("'\n", out);
    }
    fputs(middle, out);
    for (size_t i = 0; (verb = cli_verb_at(i)) != NULL; i++) write_verb(verb, out);
    fputs(tail, out);
}
