/* The command line `dra`: picks the verb, parses its options, runs it.
 * Exit status: 0 done, 1 failed, 2 misused. Results on stdout, everything else on stderr. */
#include "options.h"
#include "term.h"
#include "value.h"

#include "dra/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A new verb is a file cmd_<verb>.c and a line in each of these two. */
extern const cli_verb cmd_bench, cmd_chat, cmd_convert, cmd_detokenize, cmd_eval, cmd_forward,
    cmd_generate, cmd_grad, cmd_info, cmd_init, cmd_ops, cmd_presets, cmd_probe, cmd_report,
    cmd_tokenize, cmd_tokenizer, cmd_train;
static const cli_verb *const verbs[] = {
    &cmd_bench,    &cmd_chat,   &cmd_convert,  &cmd_detokenize, &cmd_eval, &cmd_forward,
    &cmd_generate, &cmd_grad,   &cmd_info,     &cmd_init,       &cmd_ops,  &cmd_presets,
    &cmd_probe,    &cmd_report, &cmd_tokenize, &cmd_tokenizer,  &cmd_train};

static void write_overview(FILE *out)
{
    fprintf(out, "%susage:%s dra VERB [options]\n\n", cli_bold(out), cli_plain(out));
    fputs("Differentiable recurrent attention: sequence models with a trainable memory.\n\n", out);
    for (size_t i = 0; i < COUNT(verbs); i++)
        fprintf(out, "  %-12s  %s\n", verbs[i]->name, verbs[i]->summary);
    fputs("\n'dra VERB --help' explains one verb, 'dra --version' prints the version.\n", out);
}

static const cli_verb *find(const char *name)
{
    for (size_t i = 0; i < COUNT(verbs); i++)
        if (strcmp(verbs[i]->name, name) == 0) return verbs[i];
    return NULL;
}

static int unknown_verb(const char *name)
{
    char      quoted[80];
    dra_guess guess = {.typed = name};
    for (size_t i = 0; i < COUNT(verbs); i++) dra_guess_try(&guess, verbs[i]->name);
    cli_quote(name, quoted, sizeof quoted);
    quoted[strlen(quoted) - 1] = '\0'; /* as typed, but on one line */
    fprintf(stderr, "dra %s: no such %s; ", quoted + 1, name[0] == '-' ? "option" : "verb");
    if (guess.best)
        fprintf(stderr, "did you mean %s?\n", guess.best);
    else
        fputs("'dra --help' lists them\n", stderr);
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
        cli_parse(&prepared, argc, argv, args, why);
        status = verb->run(args);
    }
    free(own);
    return status;
}

static int run_verb(const cli_verb *verb, int argc, char *const *argv)
{
    char  why[CLI_WHY];
    int   status = CLI_USAGE;
    void *args = calloc(1, verb->args_size + 1);
    if (!args) {
        fputs("dra: out of memory\n", stderr);
        return CLI_FAILED;
    }
    switch (cli_parse(verb, argc, argv, args, why)) {
    case CLI_PARSED:
        status = verb->prepare ? run_prepared(verb, argc, argv, args) : verb->run(args);
        break;
    case CLI_ASKED_HELP:
        cli_help(verb, stdout);
        status = CLI_OK;
        break;
    case CLI_MISUSED: fprintf(stderr, "%s\n", why); break;
    }
    cli_release(verb, args);
    free(args);
    return status;
}

static int run(int argc, char *const *argv)
{
    if (argc < 2) {
        write_overview(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("dra %s\n", dra_version());
        return CLI_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        write_overview(stdout);
        return CLI_OK;
    }
    const cli_verb *verb = find(argv[1]);
    return verb ? run_verb(verb, argc - 2, argv + 2) : unknown_verb(argv[1]);
}

int main(int argc, char **argv)
{
    int status = run(argc, argv);
    /* Results that did not arrive are a failure, however well the verb did. */
    const bool lost = ferror(stdout) != 0;
    errno = 0;
    if (fclose(stdout) != 0 || lost) {
        fprintf(stderr, "dra: stdout: cannot write: %s\n", errno ? strerror(errno) : "output lost");
        if (status == CLI_OK) status = CLI_FAILED;
    }
    return status;
}
