/* dra help: pages of the manual and completion for shells, on stdout or into their places. */
#include "options/complete.h"
#include "options/manual.h"
#include "io/model.h"
#include "options/value.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_TEXT = 4096 };

struct args {
    const char *verb, *part, *install;
    int         as;
};

enum { TEXT, MAN, MARKDOWN, BASH, ZSH };
static const char *const forms[] = {"text", "man", "markdown", "bash", "zsh", NULL};

static const struct args defaults = {0};

static const cli_option options[] = {
    {"verb", CLI_TEXT, offsetof(struct args, verb), 0, 0,
     "verb to explain; keys: the keys of a model's config; default: an overview of all verbs",
     "VERB|keys", .flags = CLI_POSITIONAL | CLI_A_VERB},
    {"part", CLI_TEXT, offsetof(struct args, part), 0, 0,
     "with keys: only those that have it in their name or explanation", "PATTERN",
     .flags = CLI_POSITIONAL},
    {"as", CLI_CHOICE, offsetof(struct args, as), 0, 0,
     "format of the page; bash and zsh: completion for that shell", .choices = forms},
    {"install", CLI_TEXT, offsetof(struct args, install), 0, 0,
     "install all man pages and completions under this folder, laid out like share", "DIR"},
};

static const cli_format *const formats[] = {&cli_as_text, &cli_as_man, &cli_as_markdown};

/* Writes a page (`verb` NULL: the overview) or a completion. */
static void write_form(const cli_verb *verb, int as, FILE *out)
{
    if (as == BASH)
        cli_complete_bash(out);
    else if (as == ZSH)
        cli_complete_zsh(out);
    else if (verb)
        cli_manual(verb, formats[as], out);
    else
        cli_manual_overview(formats[as], out);
}

/* ---- into their places ----------------------------------------------------------------------- */

static dra_status install_file(const char *folder, const char *name, const cli_verb *verb, int as,
                               dra_error *err)
{
    char       path[PATH_TEXT], *text = NULL;
    size_t     bytes = 0;
    dra_status st = DRA_OK;
    if (!cli_path(folder, name, path, sizeof path))
        return cli_error(err, DRA_ERR_FILE, "%.80s...: the path is too long", folder);
    FILE *out = dra_stream_memory(&text, &bytes);
    if (!out) return cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
    write_form(verb, as, out);
    const bool whole = !ferror(out);
    if (fclose(out) != 0 || !whole)
        st = cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
    if (st == DRA_OK) st = cli_make_folders(path, 0777, err);
    if (st == DRA_OK) st = dra_file_write(path, text, bytes, err);
    free(text);
    return st;
}

static dra_status install_all(const char *folder, dra_error *err)
{
    const cli_verb *verb;
    char            name[80];
    dra_status      st = install_file(folder, "man/man1/dra.1", NULL, MAN, err);
    for (size_t i = 0; st == DRA_OK && (verb = cli_verb_at(i)) != NULL; i++) {
        snprintf(name, sizeof name, "man/man1/dra-%s.1", verb->name);
        st = install_file(folder, name, verb, MAN, err);
    }
    if (st == DRA_OK) st = install_file(folder, "bash-completion/completions/dra", NULL, BASH, err);
    if (st == DRA_OK) st = install_file(folder, "zsh/site-functions/_dra", NULL, ZSH, err);
    return st;
}

static int run_help(const void *args)
{
    const struct args *a = args;
    const cli_verb    *verb = a->verb ? cli_verb_find(a->verb) : NULL;
    dra_error          err = {0};
    const bool         keys = a->verb && strcmp(a->verb, "keys") == 0;
    char               quoted[80];
    if (a->verb && !verb && !keys) return cli_verb_unknown(a->verb);
    if (a->verb && (a->install || a->as == BASH || a->as == ZSH))
        return cli_misused("help", "expected no verb: completion and --install are for all");
    if (a->part && !keys)
        return cli_misused("help", "expected no further argument after a verb, found %s",
                           cli_quote(a->part, quoted, sizeof quoted));
    if (a->part && !cli_has_keys(a->part)) {
        cli_line(stderr, "dra help: no key has %s in its name or text",
                 cli_quote(a->part, quoted, sizeof quoted));
        return CLI_FAILED;
    }
    if (a->install) return install_all(a->install, &err) == DRA_OK ? CLI_OK : cli_fail(&err);
    if (keys)
        cli_manual_keys(a->part, formats[a->as], stdout);
    else
        write_form(verb, a->as, stdout);
    return CLI_OK;
}

static const cli_note examples[] = {
    {"dra help train", "the same as dra train --help"},
    {"dra help keys", "all keys of a model's config, with their defaults"},
    {"dra help keys decay", "keys about decays"},
    {"dra help --as man train > dra-train.1", "its man page; read it with man -l dra-train.1"},
    {"dra help --as bash > dra.bash", "completion; '. ./dra.bash' turns it on in this shell"},
    {"dra help --install share", "man pages and completions for a program that was not installed"},
    {0},
};

static const cli_note files[] = {
    {"DIR/man/man1/dra.1", "the man page of dra; those of the verbs are dra-VERB.1"},
    {"DIR/bash-completion/completions/dra", "completion for bash"},
    {"DIR/zsh/site-functions/_dra", "completion for zsh"},
    {0},
};

const cli_verb cmd_help = {
    .name = "help",
    .summary = "explain a verb, as text, man page or completion",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_help,
    .group = "Look",
    .about =
        "Prints what --help prints, for one verb or for all of them; with 'keys', the keys of a "
        "config: each with its values, its default and an explanation. Help, man pages and "
        "completion are generated from the tables that also parse the options, so they agree.\n"
        "'make install' installs man pages, completion for bash and zsh, and, in share/doc/dra, "
        "the pages of docs and the examples.",
    .files = files,
    .examples = examples,
};
