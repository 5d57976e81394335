/* Commands to the chat itself, not to the model: lines that start with a slash. */
#include "chat.h"
#include "options/value.h"

#include <string.h>

typedef struct command {
    const char *name, *value, *help; /* value: what has to follow; NULL: nothing */
    dra_status (*run)(cli_chat *c, const char *value, dra_error *err);
} command;

static dra_status save(cli_chat *c, const char *path, dra_error *err)
{
    const dra_status st = cli_chat_save(c, path, err);
    if (st == DRA_OK)
        cli_chat_note(c, "saved %lld tokens", (long long)dra_generator_tokens(c->generator, 0));
    return st;
}

static dra_status load(cli_chat *c, const char *path, dra_error *err)
{
    const dra_status st = cli_chat_load(c, path, err);
    if (st == DRA_OK)
        cli_chat_note(c, "continuing after %lld tokens",
                      (long long)dra_generator_tokens(c->generator, 0));
    return st;
}

static dra_status reset(cli_chat *c, const char *none, dra_error *err)
{
    const dra_status st = cli_chat_reset(c, err);
    (void)none;
    if (st == DRA_OK) cli_chat_note(c, "a new conversation; /undo goes back to the old one");
    return st;
}

static dra_status undo(cli_chat *c, const char *none, dra_error *err)
{
    const dra_status st = cli_chat_undo(c, err);
    (void)none;
    if (st == DRA_OK) cli_chat_note(c, "taken back");
    return st;
}

static dra_status more(cli_chat *c, const char *none, dra_error *err)
{
    (void)none;
    return cli_chat_more(c, err);
}

/* ---- settings -------------------------------------------------------------------------------- */

struct settings {
    cli_sampling how;
};

static const cli_option settings[] = {CLI_SAMPLING_OPTIONS(struct settings)};

static void show_settings(const cli_sampling *s)
{
    cli_fold(0, stderr,
             "tokens %lld, temperature %g, top-k %lld, top-p %g, top-a %g, min-p %g, "
             "repetition-penalty %g, sampler %s, seed %lld, ignore-end %s",
             (long long)s->tokens, s->temperature, (long long)s->top_k, s->top_p, s->top_a,
             s->min_p, s->penalty, cli_samplers[s->sampler], (long long)s->seed,
             s->ignore_end ? "on" : "off");
}

/* "temperature 0.7" is what "--temperature=0.7" is on the command line. */
static dra_status set(cli_chat *c, const char *value, dra_error *err)
{
    const int       name = (int)strcspn(value, " ="), gap = (int)strspn(value + name, " =");
    struct settings now = {c->how}, next;
    const cli_verb  verb = {.name = "chat",
                            .options = settings,
                            .n_options = COUNT(settings),
                            .defaults = &now,
                            .args_size = sizeof now};
    char            argument[256], why[CLI_WHY];
    if (!*value) {
        show_settings(&c->how);
        return DRA_OK;
    }
    snprintf(argument, sizeof argument, "--%.*s%s%.128s", name < 64 ? name : 64, value,
             gap ? "=" : "", value + name + gap);
    char *const argv[] = {argument};
    if (cli_parse(&verb, 1, argv, &next, why) != CLI_PARSED)
        return cli_error(err, DRA_ERR_VALUE, "/set: %s",
                         *why ? why + strlen("dra chat: ") : "expected a name and a value");
    const dra_sampler_config sampler = cli_sampler_config(&next.how, &c->biases);
    const dra_status         st = dra_generator_set_sampler(c->generator, &sampler, err);
    if (st == DRA_OK) c->how = next.how;
    return st;
}

static double per_second(int64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

static dra_status stats(cli_chat *c, const char *none, dra_error *err)
{
    (void)none;
    (void)err;
    cli_line(stderr,
             "%lld tokens in a state of %zu bytes; read %lld at %.1f per second, wrote %lld at "
             "%.1f per second",
             (long long)dra_generator_tokens(c->generator, 0),
             dra_generator_state_bytes(c->generator), (long long)c->read,
             per_second(c->read, c->reading), (long long)c->written,
             per_second(c->written, c->writing));
    return DRA_OK;
}

static dra_status quit(cli_chat *c, const char *none, dra_error *err)
{
    (void)none;
    (void)err;
    c->done = true;
    return DRA_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static dra_status help(cli_chat *c, const char *none, dra_error *err);

static const command commands[] = {
    {"save", "FILE", "write the conversation to a state file", save},
    {"load", "FILE", "continue from a state file", load},
    {"reset", NULL, "start a new conversation", reset},
    {"undo", NULL, "take back the last question and its answer, /more, /load or /reset", undo},
    {"more", NULL, "continue the answer", more},
    {"set", "[NAME VALUE]", "change a sampling option: /set temperature 0.7", set},
    {"stats", NULL, "tokens, tokens per second, bytes of state", stats},
    {"help", NULL, "this text", help},
    {"quit", NULL, "leave, as Ctrl-D does", quit},
};

static dra_status help(cli_chat *c, const char *none, dra_error *err)
{
    (void)none;
    (void)err;
    for (size_t i = 0; i < COUNT(commands); i++) {
        char      form[40];
        const int n = snprintf(form, sizeof form, "/%s", commands[i].name);
        if (commands[i].value)
            snprintf(form + n, sizeof form - (size_t)n, " %s", commands[i].value);
        cli_fold(22, stderr, "  %-18s  %s", form, commands[i].help);
    }
    fprintf(stderr,
            "A line that ends in \\ continues on the next one.\n"
            "A line that starts with // is text with one slash.\n"
            "Ctrl-C ends an answer.%s\n",
            c->form.plain ? " An empty line lets the model continue." : "");
    return DRA_OK;
}

static dra_status unknown(const char *line, size_t n, dra_error *err)
{
    char      name[32], quoted[80];
    dra_guess guess = {.typed = name + 1};
    snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : (int)sizeof name - 1, line);
    for (size_t i = 0; i < COUNT(commands); i++) dra_guess_try(&guess, commands[i].name);
    cli_quote(name, quoted, sizeof quoted);
    if (guess.best)
        return cli_error(err, DRA_ERR_VALUE, "no such command: %s; did you mean /%s?", quoted,
                         guess.best);
    return cli_error(err, DRA_ERR_VALUE, "no such command: %s; /help lists them", quoted);
}

static dra_status check_value(const command *k, const char *value, dra_error *err)
{
    char quoted[80];
    if (k->value && k->value[0] != '[' && !*value)
        return cli_error(err, DRA_ERR_VALUE, "/%s: expected %s, found nothing", k->name, k->value);
    if (!k->value && *value)
        return cli_error(err, DRA_ERR_VALUE, "/%s: expected nothing, found %s", k->name,
                         cli_quote(value, quoted, sizeof quoted));
    return DRA_OK;
}

dra_status cli_chat_command(cli_chat *c, const char *line, dra_error *err)
{
    const size_t n = strcspn(line, " \t");
    const char  *value = line + n + strspn(line + n, " \t");
    for (size_t i = 0; i < COUNT(commands); i++) {
        const command *k = &commands[i];
        if (strlen(k->name) != n - 1 || strncmp(k->name, line + 1, n - 1) != 0) continue;
        const dra_status st = check_value(k, value, err);
        return st == DRA_OK ? k->run(c, value, err) : st;
    }
    return unknown(line, n, err);
}
