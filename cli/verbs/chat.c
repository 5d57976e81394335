/* dra chat: a conversation at the terminal, or line by line through a pipe. */
#include "verbs/chat/chat.h"
#include "verbs/chat/history.h"
#include "verbs/chat/lines.h"

#include <string.h>
#include <unistd.h>

struct args {
    cli_source     from;
    cli_sampling   how;
    cli_chat_form  form;
    cli_draft_args draft;
    const char    *state_in, *state_out, *history;
    bool           no_history;
};

static const struct args defaults = {.from = {.state_limit = DRA_STATE_LIMIT},
                                     .how = {CLI_SAMPLING, .tokens = 256},
                                     .form = {.user = "User: ", .bot = "Bot:"}};

static const cli_option options[] = {
    CLI_MODEL_OPTIONS(struct args),
    CLI_TOKENIZER_OPTION(struct args),
    {"user", CLI_TEXT, offsetof(struct args, form.user), 0, 0,
     "text before each question; an answer ends where the model writes it",
     .group = "Conversation"},
    {"bot", CLI_TEXT, offsetof(struct args, form.bot), 0, 0, "text before each answer"},
    {"system", CLI_TEXT, offsetof(struct args, form.system), 0, 0,
     "text the model reads before the conversation"},
    {"plain", CLI_FLAG, offsetof(struct args, form.plain), 0, 0,
     "no names: the model continues what is typed"},
    {"chat-template", CLI_TEXT, offsetof(struct args, form.from), 0, 0,
     "how messages are written: a file, or one of chatml, gemma, llama2, llama3, mistral, plain, "
     "rwkv-world, zephyr; default: the template of the model's folder, if there is one",
     "FILE|NAME"},
    {"template-set", CLI_LIST, offsetof(struct args, form.set), 0, 0,
     "a variable of the chat template, such as enable_thinking=false", "KEY=JSON"},
    CLI_SAMPLING_OPTIONS(struct args),
    CLI_BIAS_OPTION(struct args),
    CLI_STOP_OPTIONS(struct args),
    CLI_DRAFT_OPTIONS(struct args),
    CLI_STATE_OPTIONS(struct args),
    {"history", CLI_TEXT, offsetof(struct args, history), 0, 0,
     "where lines typed at a terminal are kept; default: dra/history in $XDG_STATE_HOME or "
     "~/.local/state",
     "FILE", .group = "History"},
    {"no-history", CLI_FLAG, offsetof(struct args, no_history), 0, 0, "do not keep typed lines"},
    CLI_RAW_OPTION(struct args),
    CLI_DTYPE_OPTION(struct args),
    CLI_ACTIVATIONS_OPTION(struct args),
    CLI_CACHE_OPTION(struct args, "cache"),
    CLI_DEVICE_OPTIONS(struct args),
};

static int prepare_sampling(const void *args, void *own)
{
    cli_sampling *to = &((struct args *)own)->how;
    cli_sampling_draw(to);
    return cli_sampling_habits(((const struct args *)args)->from.model, to);
}

/* Names that were given, or none wanted: that is meant, whatever template the folder has. */
static bool has_own_form(const struct args *a)
{
    return a->form.plain || a->form.user != defaults.form.user || a->form.bot != defaults.form.bot;
}

static int check_args(const struct args *a)
{
    int status = cli_source_check("chat", &a->from);
    if (status == CLI_OK) status = cli_language_check("chat", &a->from, "");
    if (status == CLI_OK)
        status = cli_causal_check("chat", &a->from, "writes no text: its tokens see later ones");
    if (status != CLI_OK) return status;
    if (a->form.from && has_own_form(a))
        return cli_misused("chat", "--chat-template: found with --user, --bot or --plain, which "
                                   "say how messages are written, too");
    for (size_t i = 0; i < a->form.set.count; i++)
        if (!strchr(a->form.set.text[i], '=') || a->form.set.text[i][0] == '=')
            return cli_misused("chat", "--template-set %.100s: expected KEY=JSON",
                               a->form.set.text[i]);
    if (a->form.set.count && has_own_form(a))
        return cli_misused("chat", "--template-set: found with --user, --bot or --plain, which "
                                   "use no template");
    if (a->history && a->no_history)
        return cli_misused("chat", "expected one of --history and --no-history, found both");
    const int drafts = cli_draft_check("chat", &a->draft);
    return drafts == CLI_OK ? cli_sampling_check("chat", &a->how) : drafts;
}

/* The name in front of the line: on one line, whatever it is in the form. One that is too long is
 * replaced by that of the default form. */
static void prompt_name(const cli_chat_form *f, char *name, size_t size)
{
    size_t      n = 0;
    const char *user = f->plain ? "" : f->user;
    if (strlen(user) >= size) user = defaults.form.user;
    for (size_t used, left = strlen(user); left; user += used, left -= used) {
        const dra_letter kind = dra_letter_of(user, left, &used);
        const bool       blank = kind == DRA_LETTER_CONTROL || kind == DRA_LETTER_LAYOUT;
        for (size_t i = 0; i < used && (!blank || !i); i++) name[n++] = blank ? ' ' : user[i];
    }
    while (n > 0 && name[n - 1] == ' ') n--;
    name[n] = '\0';
    if (n == 0) snprintf(name, size, ">");
}

/* One line: a command, or something to say. */
static dra_status take_line(cli_chat *c, const char *line, size_t bytes, dra_error *err)
{
    const bool text = line[0] != '/' || line[1] == '/';
    if (!text) return cli_chat_command(c, line, err);
    if (line[0] == '/') line++, bytes--;
    if (bytes > 0) return cli_chat_say(c, line, bytes, err);
    return c->form.plain ? cli_chat_more(c, err) : DRA_OK;
}

/* Returns whether everything went well. */
static bool run_talk(cli_chat *c, cli_lines *lines)
{
    const char *line = NULL;
    char        name[128];
    size_t      bytes = 0;
    bool        well = true;
    prompt_name(&c->form, name, sizeof name);
    while (!c->done && !ferror(stdout) && !cli_chat_stopped(c)) {
        dra_error err = {0};
        cli_chat_signals(true);
        const cli_typed typed = cli_lines_read(lines, name, &line, &bytes);
        cli_chat_signals(false);
        if (typed == CLI_TYPED_LOST) well = false;
        if (typed == CLI_TYPED_LOST || typed == CLI_TYPED_END) break;
        if (typed == CLI_TYPED_STOP) {
            if (bytes == 0) cli_chat_note(c, "Ctrl-D or /quit leaves, /help says more");
        } else if (take_line(c, line, bytes, &err) != DRA_OK) {
            cli_line(stderr, "dra chat: %s", err.text);
            well = false;
        }
    }
    return well;
}

static cli_lines *open_lines(const struct args *a, bool terminal, char *path, size_t size)
{
    const bool own = !a->no_history && (a->history || cli_history_path(path, size));
    return cli_lines_open(&(cli_lines_config){.verb = "chat",
                                              .terminal = terminal,
                                              .history = !own         ? NULL
                                                         : a->history ? a->history
                                                                      : path});
}

/* At a terminal an error was seen and answered; in a script it is the exit status. */
static int run_chat(const void *args)
{
    const struct args *a = args;
    char               path[4096];
    dra_error          err = {0};
    const int          status = check_args(a);
    if (status != CLI_OK) return status;
    cli_chat c = {.form = a->form,
                  .how = a->how,
                  .terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO),
                  .screen = isatty(STDOUT_FILENO)};
    c.form.own = has_own_form(a);
    cli_lines *lines = open_lines(a, c.terminal, path, sizeof path);
    dra_status st = lines ? cli_chat_open(&c, &a->from, &a->draft, a->state_in, &err)
                          : cli_error(&err, DRA_ERR_MEMORY, "out of memory");
    bool       well = true;
    if (st == DRA_OK) {
        cli_chat_signals(false);
        cli_sampling_tell(&a->how);
        cli_chat_note(&c, "/help lists commands, Ctrl-D leaves");
        well = run_talk(&c, lines) || c.terminal;
        if (a->state_out && cli_output_arrived()) st = cli_chat_save(&c, a->state_out, &err);
    }
    const bool stopped = cli_chat_stopped(&c);
    if (c.generator) cli_clamp_report("chat", &a->from, dra_generator_clamped(c.generator));
    cli_lines_close(lines);
    cli_chat_close(&c);
    if (st != DRA_OK) return cli_fail(&err);
    if (stopped) return CLI_INTERRUPTED;
    return well ? CLI_OK : CLI_FAILED;
}

static const cli_note files[] = {
    {"generation_config.json", "in the model's folder: other defaults for the sampler"},
    {"tokenizer_config.json, chat_template.jinja, chat_template.json",
     "in the model's folder: how messages are written, and what ends an answer"},
    {"~/.local/state/dra/history", "lines typed at a terminal, readable by their owner only"},
    {0},
};

static const cli_note examples[] = {
    {"printf 'Hello\\n' | dra chat --model model --tokens 20", "one turn, through a pipe"},
    {"printf 'Hello\\n/save hello.state\\n' | dra chat --model model --tokens 20",
     "save a conversation to a file"},
    {"printf 'And then?\\n' | dra chat --model model --tokens 20 --state-in hello.state",
     "and continue from it"},
    {"printf 'Once upon a time\\n' | dra chat --model model --plain --tokens 20",
     "a story instead of a conversation"},
    {0},
};

static const cli_note status[] = {
    {"0", "left"},
    {"1", "failed; in a pipe also if any command or turn failed"},
    {"2", "wrong usage"},
    {"130", "ended by Ctrl-C in a pipe; --state-out is written"},
    {0},
};

const cli_verb cmd_chat = {
    .name = "chat",
    .prepare = prepare_sampling,
    .summary = "talk with a model at the terminal",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_chat,
    .group = "Use",
    .about = "Talks with a model at the terminal. The conversation lives in the model's state: a "
             "turn costs only its new tokens, and from a state file it continues in another "
             "process as if it had never stopped.\n"
             "Lines that start with a slash are commands: /save FILE, /load FILE, /reset, /undo, "
             "/more, /set NAME VALUE, /stats, /help, /quit. Ctrl-C only ends the answer, Ctrl-D "
             "leaves. A line that ends in \\ continues on the next one.\n"
             "In a pipe every line is a turn, and only answers go to stdout.",
    .files = files,
    .examples = examples,
    .status = status,
    .also = "generate train",
};
