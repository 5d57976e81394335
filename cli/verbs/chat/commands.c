/* Commands to the chat itself, not to the model: lines that start with a slash. */
#include "chat.h"
#include "options/value.h"

#include <string.h>

typedef struct command {
    const char *name, *value, *help; /* value: what has to follow; NULL: nothing */
    dra_status (*run)(cli_chat *c, const char *value, dra_error *err);
} command;

static dra_status save_state(cli_chat *c, const char *path, dra_error *err)
{
    const dra_status st = cli_chat_save(c, path, err);
    if (st == DRA_OK)
        cli_chat_note(c, "saved %lld tokens", (long long)dra_generator_tokens(c->generator, 0));
    return st;
}

static dra_status load_state(cli_chat *c, const char *path, dra_error *err)
{
    const dra_status st = cli_chat_load(c, path, err);
    if (st == DRA_OK)
        cli_chat_note(c, "continuing after %lld tokens",
                      (long long)dra_generator_tokens(c->generator, 0));
    return st;
}

static dra_status reset_chat(cli_chat *c, const char *none, dra_error *err)
{
    const dra_status st = cli_chat_reset(c, err);
    (void)none;
    if (st == DRA_OK) cli_chat_note(c, "a new conversation; /undo goes back to the old one");
    return st;
}

static dra_status undo_change(cli_chat *c, const char *none, dra_error *err)
{
    const dra_status st = cli_chat_undo(c, err);
    (void)none;
    if (st == DRA_OK) cli_chat_note(c, "taken back");
    return st;
}

static dra_status write_more(cli_chat *c, const char *none, dra_error *err)
{
    (void)none;
    return cli_chat_more(c, err);
}

/* ---- settings -------------------------------------------------------------------------------- */

struct settings {
    cli_sampling how;
};

static const cli_option settings[] = {CLI_SAMPLING_OPTIONS(struct settings)};

static int show_setting(const cli_option *o, const void *field, char *text, size_t size)
{
    const bool on = o->kind == CLI_FLAG && *(const bool *)field;
    switch (o->kind) {
    case CLI_INT:
        return snprintf(text, size, "%s %lld", o->name, (long long)*(const int64_t *)field);
    case CLI_REAL: return snprintf(text, size, "%s %g", o->name, *(const double *)field);
    case CLI_CHOICE: return snprintf(text, size, "%s %s", o->name, o->choices[*(const int *)field]);
    default: return snprintf(text, size, "%s %s", o->name, on ? "on" : "off");
    }
}

static void show_settings(const cli_sampling *how)
{
    const struct settings s = {*how};
    char                  text[2048];
    size_t                n = 0;
    for (size_t i = 0; i < COUNT(settings) && n < sizeof text; i++) {
        const void *field = (const char *)&s + settings[i].offset;
        if (i) n += (size_t)snprintf(text + n, sizeof text - n, ", ");
        if (n < sizeof text)
            n += (size_t)show_setting(&settings[i], field, text + n, sizeof text - n);
    }
    cli_fold(0, stderr, "%s", text);
}

/* "temperature 0.7" is what "--temperature=0.7" is on the command line. */
static dra_status set_option(cli_chat *c, const char *value, dra_error *err)
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

static dra_status print_stats(cli_chat *c, const char *none, dra_error *err)
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

static dra_status quit_chat(cli_chat *c, const char *none, dra_error *err)
{
    (void)none;
    (void)err;
    c->done = true;
    return DRA_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static dra_status print_help(cli_chat *c, const char *none, dra_error *err);

static const command commands[] = {
    {"save", "FILE", "write the conversation to a state file", save_state},
    {"load", "FILE", "continue from a state file", load_state},
    {"reset", NULL, "start a new conversation", reset_chat},
    {"undo", NULL, "take back a turn, /more, /load or /reset; again: the one before it",
     undo_change},
    {"more", NULL, "continue the answer", write_more},
    {"set", "[NAME VALUE]", "change a sampling option: /set temperature 0.7", set_option},
    {"stats", NULL, "tokens, tokens per second, bytes of state", print_stats},
    {"help", NULL, "this text", print_help},
    {"quit", NULL, "leave, as Ctrl-D does", quit_chat},
};

static dra_status print_help(cli_chat *c, const char *none, dra_error *err)
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

static dra_status fail_unknown(const char *line, size_t n, dra_error *err)
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
    return fail_unknown(line, n, err);
}
