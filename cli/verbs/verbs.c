/* All verbs. A new one is a file cmd_<verb>.c, a line in each of these two, and a page of its own,
 * docs/verbs/<verb>.md. */
#include "verbs.h"
#include "io/launch.h"
#include "io/outputs.h"
#include "options/manual.h"
#include "options/term.h"
#include "options/value.h"

#include "dra/base.h"

#include <stdlib.h>
#include <string.h>

extern const cli_verb cmd_bench, cmd_chat, cmd_convert, cmd_demo, cmd_detokenize, cmd_devices,
    cmd_embed, cmd_eval, cmd_extend, cmd_forward, cmd_generate, cmd_grad, cmd_help, cmd_info,
    cmd_init, cmd_ops, cmd_perplexity, cmd_presets, cmd_probe, cmd_report, cmd_serve, cmd_study,
    cmd_sweep, cmd_tokenize, cmd_tokenizer, cmd_train, cmd_tune_state;

/* In the order of the overview; verbs of a group stand together. */
static const cli_verb *const verbs[] = {
    &cmd_demo,       &cmd_presets,    &cmd_init,       &cmd_tokenizer, &cmd_train,    &cmd_extend,
    &cmd_tune_state, &cmd_sweep,      &cmd_probe,      &cmd_study,     &cmd_generate, &cmd_chat,
    &cmd_serve,      &cmd_eval,       &cmd_perplexity, &cmd_embed,     &cmd_forward,  &cmd_grad,
    &cmd_tokenize,   &cmd_detokenize, &cmd_info,       &cmd_report,    &cmd_bench,    &cmd_devices,
    &cmd_ops,        &cmd_help,       &cmd_convert,
};

const cli_verb *cli_verb_at(size_t i) { return i < COUNT(verbs) ? verbs[i] : NULL; }

const cli_verb *cli_verb_find(const char *name)
{
    for (size_t i = 0; i < COUNT(verbs); i++)
        if (strcmp(verbs[i]->name, name) == 0) return verbs[i];
    return NULL;
}

int cli_verb_unknown(const char *name)
{
    char      quoted[80];
    dra_guess guess = {.typed = name};
    for (size_t i = 0; i < COUNT(verbs); i++) dra_guess_try(&guess, verbs[i]->name);
    dra_guess_try(&guess, "--version");
    dra_guess_try(&guess, "--help");
    cli_quote(name, quoted, sizeof quoted);
    quoted[strlen(quoted) - 1] = '\0'; /* as typed, but on one line */
    const char *kind = name[0] == '-' ? "option" : "verb";
    if (guess.best)
        cli_line(stderr, "dra %s: no such %s; did you mean %s?", quoted + 1, kind, guess.best);
    else
        cli_line(stderr, "dra %s: no such %s; 'dra --help' lists them", quoted + 1, kind);
    return CLI_USAGE;
}

/* Parses once more, over start values that the verb has made of the first parse. */
static int run_prepared(const cli_verb *verb, int argc, char *const *argv, void *args)
{
    char  why[CLI_WHY];
    void *own = calloc(1, verb->args_size + 1);
    int   status = CLI_FAILED;
    if (!own) {
        fputs("dra: out of memory\n", stderr);
        return status;
    }
    memcpy(own, verb->defaults, verb->args_size);
    status = verb->prepare(args, own);
    if (status == CLI_OK) {
        cli_verb prepared = *verb;
        prepared.defaults = own;
        cli_release(verb, args);
        status = cli_outcome_status(cli_parse(&prepared, argc, argv, args, why));
        if (status == CLI_OK)
            status = verb->run(args);
        else
            fprintf(stderr, "%s\n", why);
    }
    free(own);
    return status;
}

int cli_verb_run(const cli_verb *verb, int argc, char *const *argv)
{
    char  why[CLI_WHY];
    int   status = CLI_FAILED;
    void *args = calloc(1, verb->args_size + 1);
    if (!args) {
        fputs("dra: out of memory\n", stderr);
        return status;
    }
    dra_error         err = {0};
    const cli_outcome outcome = cli_parse(verb, argc, argv, args, why);
    status = cli_outcome_status(outcome);
    switch (outcome) {
    case CLI_PARSED:
        if (cli_outputs_try(verb, args, &err) != DRA_OK)
            status = cli_fail(&err);
        else
            status = verb->prepare ? run_prepared(verb, argc, argv, args) : verb->run(args);
        break;
    case CLI_ASKED_HELP: cli_manual(verb, &cli_as_text, stdout); break;
    case CLI_MISUSED:
    case CLI_NO_MEMORY:
        if (cli_launched_rank() == 0) cli_line(stderr, "%s", why); /* all ranks are asked alike */
        break;
    }
    cli_release(verb, args);
    free(args);
    return status;
}
