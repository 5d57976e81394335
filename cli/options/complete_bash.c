/* Completion for bash: one function with a case for each verb. */
#include "complete.h"
#include "manual.h"
#include "verbs/verbs.h"

/* A value is offered for the option before the cursor; else places and, after a dash, options. */
static const char head[] =
    "# Completion of dra for bash.\n"
    "_dra() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} name=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local kind= words= options= keys='";

static const char after_keys[] = "'\n"
                                 "    # bash cuts --name=value at the sign.\n"
                                 "    if [[ $word == '=' ]]; then\n"
                                 "        word=\n"
                                 "    elif [[ $name == '=' ]]; then\n"
                                 "        name=${COMP_WORDS[COMP_CWORD - 2]}\n"
                                 "    fi\n"
                                 "    case ${COMP_CWORD}:${COMP_WORDS[1]} in\n";

static const char tail[] = "    esac\n"
                           "    [[ -n $options && $word == -* ]] && kind= words=$options\n"
                           "    mapfile -t COMPREPLY < <(\n"
                           "        compgen -W \"$words\" -- \"$word\"\n"
                           "        case $kind in\n"
                           "        files) compgen -f -- \"$word\" ;;\n"
                           "        folders) compgen -d -- \"$word\" ;;\n"
                           "        esac\n"
                           "    )\n"
                           "    [[ -z $kind ]] || compopt -o filenames 2>/dev/null\n"
                           "    [[ ${COMPREPLY[0]-} != *[=.] ]] || compopt -o nospace 2>/dev/null\n"
                           "}\n"
                           "complete -F _dra dra\n";

static void write_verbs(FILE *out)
{
    const cli_option any_verb = {.flags = CLI_A_VERB};
    fputs("    1:*) words='", out);
    cli_write_words(&any_verb, out);
    fputs(" --help --version' ;;\n", out);
}

static void write_offer(const cli_option *o, FILE *out)
{
    if (o->flags & CLI_A_KEY) {
        fputs("words=$keys", out);
        return;
    }
    fprintf(out, "kind=%s words='",
            cli_takes_files(o)     ? "files"
            : cli_takes_folders(o) ? "folders"
                                   : "");
    cli_write_words(o, out);
    fputc('\'', out);
}

static void write_names(const cli_verb *verb, FILE *out)
{
    for (const cli_verb *v = verb; v; v = v->over)
        for (size_t i = 0; i < v->n_options; i++) {
            const cli_option *o = &v->options[i];
            if ((o->flags & CLI_POSITIONAL) || (v != verb && cli_option_of(verb, o->name)))
                continue;
            if (o->brief) fprintf(out, "-%c ", o->brief);
            fprintf(out, "--%s%s ", cli_starts_on(v, o) ? "no-" : "", o->name);
        }
    fputs("--help", out);
}

static bool has_offer(const cli_option *o)
{
    return cli_takes_files(o) || cli_takes_folders(o) || cli_write_words(o, NULL) > 0;
}

/* The last place of a verb for which there is something to offer: where there are several, the
 * others have few words. Else the first option that has one besides its name. */
static void write_place(const cli_verb *verb, FILE *out)
{
    const cli_option *place = NULL;
    for (size_t i = 0; i < verb->n_options; i++)
        if ((verb->options[i].flags & CLI_POSITIONAL) && has_offer(&verb->options[i]))
            place = &verb->options[i];
    for (size_t i = 0; i < verb->n_options && !place; i++)
        if (verb->options[i].flags & CLI_ALSO_PLACED) place = &verb->options[i];
    fputs("        *) options='", out);
    write_names(verb, out);
    fputs("' ", out);
    if (place)
        write_offer(place, out);
    else
        fputs("words=$options", out);
    fputs(" ;;\n", out);
}

static void write_verb(const cli_verb *verb, FILE *out)
{
    fprintf(out, "    *:%s)\n        case $name in\n", verb->name);
    for (const cli_verb *v = verb; v; v = v->over)
        for (size_t i = 0; i < v->n_options; i++) {
            const cli_option *o = &v->options[i];
            if (o->kind == CLI_FLAG || (o->flags & CLI_POSITIONAL)) continue;
            if (v != verb && cli_option_of(verb, o->name)) continue;
            fputs("        ", out);
            if (o->brief) fprintf(out, "-%c|", o->brief);
            fprintf(out, "--%s) ", o->name);
            write_offer(o, out);
            fputs(" ;;\n", out);
        }
    write_place(verb, out);
    fputs("        esac\n        ;;\n", out);
}

void cli_complete_bash(FILE *out)
{
    const cli_verb *verb;
    fputs(head, out);
    cli_write_keys(out);
    fputs(after_keys, out);
    write_verbs(out);
    for (size_t i = 0; (verb = cli_verb_at(i)) != NULL; i++) write_verb(verb, out);
    fputs(tail, out);
}
