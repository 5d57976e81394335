/* Editing lines, by libedit. Without it this file says that they cannot be edited. */
#include "lines.h"

#ifdef DRA_LIBEDIT

#include "history.h"
#include "options/term.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

enum { REMEMBERED = 1000, PROMPT = 256 };

struct cli_editor {
    cli_lines_config config;
    EditLine        *edit;
    History         *history;
    HistEvent        event;
    char             prompt[PROMPT];
};

static cli_editor *editor_of(EditLine *edit)
{
    void *e = NULL;
    el_get(edit, EL_CLIENTDATA, &e);
    return e;
}

static char *editor_prompt(EditLine *edit) { return editor_of(edit)->prompt; }

static void remember_line(void *user, const char *line)
{
    cli_editor *e = user;
    history(e->history, &e->event, H_ENTER, line);
}

/* Lines are not lost by it, so an error is reported once and that is all. */
static void check_history(cli_editor *e, dra_status st, const dra_error *err)
{
    if (st == DRA_OK) return;
    cli_line(stderr, "dra %s: history: %s", e->config.verb, err->text);
    e->config.history = NULL;
}

/* Letters are those of UTF-8, whatever the locale is. */
static bool knows_letters(void)
{
    const char *const locales[] = {"", "C.UTF-8"};
    for (size_t i = 0; i < sizeof locales / sizeof *locales; i++)
        if (setlocale(LC_CTYPE, locales[i]) && strcmp(nl_langinfo(CODESET), "UTF-8") == 0)
            return true;
    return false;
}

static void set_up(cli_editor *e)
{
    dra_error err = {0};
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_SIGNAL, 1); /* a stopped or ended program leaves the terminal as it was */
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_PROMPT_ESC, editor_prompt, '\1');
    el_set(e->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(e->edit, NULL); /* ~/.editrc */
    history(e->history, &e->event, H_SETSIZE, REMEMBERED);
    history(e->history, &e->event, H_SETUNIQUE, 1);
    el_set(e->edit, EL_HIST, history, e->history);
    if (e->config.history)
        check_history(e, cli_history_read(e->config.history, remember_line, e, &err), &err);
}

cli_editor *cli_editor_open(const cli_lines_config *config)
{
    const char *term = getenv("TERM");
    if (!term || !*term || strcmp(term, "dumb") == 0 || !knows_letters()) return NULL;
    cli_editor *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->config = *config;
    e->edit = el_init("dra", stdin, stderr, stderr);
    e->history = history_init();
    if (e->edit && e->history) {
        set_up(e);
        return e;
    }
    cli_editor_close(e);
    return NULL;
}

void cli_editor_close(cli_editor *e)
{
    if (!e) return;
    if (e->edit) el_end(e->edit);
    if (e->history) history_end(e->history);
    free(e);
}

static void keep_line(cli_editor *e, const char *line, size_t bytes)
{
    dra_error err = {0};
    char     *copy = strndup(line, bytes - (line[bytes - 1] == '\n'));
    if (copy && *copy) {
        remember_line(e, copy);
        if (e->config.history)
            check_history(e, cli_history_add(e->config.history, copy, &err), &err);
    }
    free(copy);
}

/* Escape sequences stand between marks and before a letter, as libedit wants it. It does not
 * survive what is not text in this locale. */
static void set_prompt(cli_editor *e, const char *name)
{
    if (mbstowcs(NULL, name, 0) == (size_t)-1) name = ">";
    const char *colour = cli_green(stderr), *mark = *colour ? "\1" : "";
    snprintf(e->prompt, sizeof e->prompt, "%s%s%s%.200s%s%s%s ", mark, colour, mark, name, mark,
             cli_plain(stderr), mark);
}

/* Waiting for a key ends by a signal, such as that of Ctrl-C. */
cli_typed cli_editor_read(cli_editor *e, const char *name, const char **text, size_t *bytes)
{
    int n = 0;
    set_prompt(e, name);
    errno = 0;
    *text = el_gets(e->edit, &n);
    const bool stopped = n < 0 && errno == EINTR;
    *bytes = 0;
    if (*text && n > 0) {
        *bytes = (size_t)n;
        keep_line(e, *text, *bytes);
        return CLI_TYPED_LINE;
    }
    if (!stopped) return CLI_TYPED_END;
    const LineInfo *line = el_line(e->edit);
    *bytes = (size_t)(line->lastchar - line->buffer);
    return CLI_TYPED_STOP;
}

#else

cli_editor *cli_editor_open(const cli_lines_config *config)
{
    (void)config;
    return NULL;
}

void cli_editor_close(cli_editor *e) { (void)e; }

cli_typed cli_editor_read(cli_editor *e, const char *name, const char **text, size_t *bytes)
{
    (void)e, (void)name, (void)text, (void)bytes;
    return CLI_TYPED_END;
}

#endif
