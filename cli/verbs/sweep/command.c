/* The command of a run in a sweep, and which runs are done. */
#include "command.h"
#include "io/append.h"
#include "report/jsonl.h"
#include "io/memory.h"
#include "options/term.h"
#include "options/value.h"
#include "verbs/train/read.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

extern const cli_verb cmd_train;

enum { WORDS_MORE = CLI_AXES + 8 };

/* The option of dra train that a key names, with dashes or underscores; NULL: none. */
const cli_option *cli_sweep_option(const char *key)
{
    char name[64];
    if (strlen(key) >= sizeof name) return NULL;
    memcpy(name, key, strlen(key) + 1);
    for (char *at = name; *at; at++)
        if (*at == '_') *at = '-';
    return cli_option_of(&cmd_train, name);
}

/* ---- one run --------------------------------------------------------------------------------- */

void cli_sweep_name(const cli_sweep *s, int64_t run, char name[CLI_SWEEP_NAME])
{
    size_t used = 0;
    snprintf(name, CLI_SWEEP_NAME, "run");
    for (int i = 0; i < s->n && used < CLI_SWEEP_NAME; i++)
        if (s->axis[i].count > 1)
            used += (size_t)snprintf(name + used, CLI_SWEEP_NAME - used, "%s%s=%s", used ? "_" : "",
                                     s->axis[i].name, cli_sweep_value(s, i, run));
    for (char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("=_.+-", *at)) *at = '-';
}

static bool add_word(cli_command *c, const char *format, const char *x, const char *y)
{
    const size_t size = strlen(format) + strlen(x) + strlen(y) + 1;
    char        *text = malloc(size);
    if (!text) return false;
    snprintf(text, size, format, x, y);
    c->word[c->n++] = text;
    return true;
}

static bool add_settings(const cli_sweep *s, int64_t run, cli_command *c)
{
    bool ok = true;
    for (int i = 0; i < s->n && ok; i++) {
        const char       *name = s->axis[i].name, *value = cli_sweep_value(s, i, run);
        const cli_option *o = cli_sweep_option(name);
        ok = add_word(c, o ? "--%s=%s" : "--set=%s=%s", o ? o->name : name, value);
    }
    return ok;
}

static char *join_words(const cli_command *c)
{
    char  *text = NULL;
    size_t bytes = 0;
    FILE  *out = dra_stream_memory(&text, &bytes);
    for (int i = 0; out && i < c->n; i++) fprintf(out, "%s%s", i ? " " : "", c->word[i]);
    if (out && fclose(out) == 0) return text;
    free(text);
    return NULL;
}

void cli_command_free(cli_command *c)
{
    for (int i = c->given; i < c->n; i++) free(c->word[i]);
    free(c->word);
    free(c->said);
    *c = (cli_command){0};
}

bool cli_command_make(const cli_command_words *a, const cli_sweep *s, int64_t run,
                      const char *folder, cli_command *c)
{
    char threads[32];
    *c = (cli_command){.word = calloc(a->rest->count + WORDS_MORE, sizeof *c->word)};
    if (!c->word) return false;
    for (; c->given < (int)a->rest->count; c->given++)
        c->word[c->n++] = (char *)(uintptr_t)a->rest->text[c->given];
    bool ok = add_settings(s, run, c);
    c->said = ok ? join_words(c) : NULL;
    snprintf(threads, sizeof threads, "%lld", (long long)a->threads);
    ok = c->said && add_word(c, "--out=%s%s", folder, "") && add_word(c, "%s%s", "--resume", "") &&
         add_word(c, "--threads=%s%s", threads, "");
    if (!ok) cli_command_free(c);
    return ok;
}

/* ---- what is known before ---------------------------------------------------------------------*/

/* The value of an option in a command from word *from on; NULL: there is none. */
static const char *value_in(const cli_command *c, const char *name, int *from)
{
    const size_t n = strlen(name);
    for (; *from < c->n; ++*from) {
        const char *word = c->word[*from];
        if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, n) != 0) continue;
        if (word[2 + n] == '=') return c->word[(*from)++] + 3 + n;
        if (word[2 + n] == '\0' && *from + 1 < c->n) return c->word[++*from];
    }
    return NULL;
}

static const char *only_value(const cli_command *c, const char *name)
{
    int from = 0;
    return value_in(c, name, &from);
}

static void read_list(const cli_command *c, const char *name, const char *text[CLI_AXES],
                      cli_list *out)
{
    const char *value;
    int         at = 0;
    *out = (cli_list){.text = text};
    while (out->count < CLI_AXES && (value = value_in(c, name, &at)) != NULL)
        text[out->count++] = value;
}

/* Checks that the model of a run can be created. */
dra_status cli_command_model(const cli_command *c, dra_error *err)
{
    cli_source  from = {.model = only_value(c, "model"),
                        .preset = only_value(c, "preset"),
                        .config = only_value(c, "config"),
                        .quiet = true}; /* dra train reports it */
    const char *set[CLI_AXES], *plugin[CLI_AXES];
    read_list(c, "set", set, &from.set);
    read_list(c, "memory-plugin", plugin, &from.plugins);
    if (!from.model && !from.preset && !from.config) return DRA_OK; /* dra train reports it */
    dra_model_config *config = NULL;
    dra_model        *model = NULL;
    dra_status        st = cli_source_config(&from, &config, err);
    if (st == DRA_OK) st = dra_model_create(config, &model, err);
    dra_model_destroy(model);
    dra_model_config_destroy(config);
    return st;
}

/* Checks the options of a run. */
int cli_command_check(const cli_command *c)
{
    char     why[CLI_WHY] = "dra: out of memory";
    cli_verb verb = cmd_train; /* its options, in errors of dra sweep */
    void    *args = calloc(1, verb.args_size + 1);
    int      status = CLI_FAILED;
    verb.name = "sweep";
    if (args) status = cli_outcome_status(cli_parse(&verb, c->n, c->word, args, why));
    if (status != CLI_OK)
        cli_line(stderr, "%s", why);
    else
        status = cli_train_check(args, verb.name);
    if (args) cli_release(&verb, args);
    free(args);
    return status;
}

/* ---- runs that are done ---------------------------------------------------------------------- */

static bool is_noted(char *line, const char *name, const char *said)
{
    cli_member m[CLI_MEMBERS];
    const int  n = cli_line_read(line, m);
    return n == 2 && m[0].kind == CLI_MEMBER_TEXT && m[1].kind == CLI_MEMBER_TEXT &&
           strcmp(m[0].text, name) == 0 && strcmp(m[1].text, said) == 0;
}

/* DIR/done.jsonl has a line for each run that is done: its name and its command. */
bool cli_sweep_is_done(const char *sweep, const cli_sweep_run *r, const cli_command *c)
{
    enum { DONE_MOST = 1 << 26 };
    char   path[CLI_SWEEP_PATH], *text = NULL;
    size_t bytes = 0;
    bool   found = false;
    if (!cli_path(sweep, "done.jsonl", path, sizeof path)) return false;
    if (dra_trainer_saved(r->folder) < 0) return false;
    cli_memory_note(dra_file_read(path, DONE_MOST, &text, &bytes, NULL));
    if (!text) return false;
    for (char *at = text, *end = text + bytes; at < end && !found;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end; /* the final 0 */
        *stop = '\0';
        found = is_noted(at, r->name, c->said);
        at = stop + 1;
    }
    free(text);
    return found;
}

int cli_sweep_done(const char *sweep, const cli_sweep_run *r, const cli_command *c)
{
    char       path[CLI_SWEEP_PATH], *line = NULL;
    size_t     bytes = 0;
    dra_error  err = {0};
    dra_status st = cli_error(&err, DRA_ERR_MEMORY, "%.200s: out of memory", r->name);
    FILE      *out = dra_stream_memory(&line, &bytes);
    if (out) {
        fputs("{\"name\": ", out);
        cli_json_text(r->name, out);
        fputs(", \"command\": ", out);
        cli_json_text(c->said, out);
        fputs("}\n", out);
        if (fclose(out) == 0 && cli_path(sweep, "done.jsonl", path, sizeof path))
            st = cli_append(path, 0666, line, bytes, &err);
    }
    free(line);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

int cli_command_run(const cli_command *c)
{
    char  why[CLI_WHY] = "dra: out of memory";
    void *args = calloc(1, cmd_train.args_size + 1);
    int   status = CLI_FAILED;
    bool  parsed = false;
    if (args) {
        parsed = cli_parse(&cmd_train, c->n, c->word, args, why) == CLI_PARSED;
        if (parsed) status = cmd_train.run(args);
        cli_release(&cmd_train, args);
    }
    if (!parsed) fprintf(stderr, "%s\n", why);
    free(args);
    return status;
}
