/* All verbs. A new one is a file cmd_<verb>.c, a line in each of these two, and a page of its own,
 * docs/verbs/<verb>.md. */
#include "verbs.h"
#include "options/term.h"
#include "options/value.h"

#include "dra/base.h"

#include <string.h>

extern const cli_verb cmd_bench, cmd_chat, cmd_convert, cmd_demo, cmd_detokenize, cmd_devices,
    cmd_embed, cmd_eval, cmd_forward, cmd_generate, cmd_grad, cmd_help, cmd_info, cmd_init, cmd_ops,
    cmd_perplexity, cmd_presets, cmd_probe, cmd_report, cmd_serve, cmd_sweep, cmd_tokenize,
    cmd_tokenizer, cmd_train;

/* In the order of the overview; verbs of a group stand together. */
static const cli_verb *const verbs[] = {
    &cmd_demo,   &cmd_presets,  &cmd_init,    &cmd_tokenizer, &cmd_train,      &cmd_sweep,
    &cmd_probe,  &cmd_generate, &cmd_chat,    &cmd_serve,     &cmd_eval,       &cmd_perplexity,
    &cmd_embed,  &cmd_forward,  &cmd_grad,    &cmd_tokenize,  &cmd_detokenize, &cmd_info,
    &cmd_report, &cmd_bench,    &cmd_devices, &cmd_ops,       &cmd_help,       &cmd_convert,
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
    cli_quote(name, quoted, sizeof quoted);
    quoted[strlen(quoted) - 1] = '\0'; /* as typed, but on one line */
    const char *kind = name[0] == '-' ? "option" : "verb";
    if (guess.best)
        cli_line(stderr, "dra %s: no such %s; did you mean %s?", quoted + 1, kind, guess.best);
    else
        cli_line(stderr, "dra %s: no such %s; 'dra --help' lists them", quoted + 1, kind);
    return CLI_USAGE;
}
