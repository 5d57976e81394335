/* Lines as they are typed, put together. */
#include "lines.h"
#include "options/term.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

struct cli_lines {
    cli_lines_config config;
    cli_editor      *editor; /* NULL: lines come as they are */
    char            *line;   /* of getline() */
    size_t           room;
    char            *text; /* lines put together */
    size_t           n, text_room;
};

cli_lines *cli_lines_open(const cli_lines_config *config)
{
    cli_lines *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->config = *config;
    if (config->terminal) l->editor = cli_editor_open(config);
    return l;
}

void cli_lines_close(cli_lines *l)
{
    if (!l) return;
    cli_editor_close(l->editor);
    free(l->line);
    free(l->text);
    free(l);
}

static cli_typed fail_memory(const cli_lines *l)
{
    fprintf(stderr, "dra %s: out of memory\n", l->config.verb);
    return CLI_TYPED_LOST;
}

static cli_typed read_plainly(cli_lines *l, const char *name, const char **text, size_t *bytes)
{
    char room[CLI_CLEAN];
    *bytes = 0;
    if (l->config.terminal)
        fprintf(stderr, "%s%s%s ", cli_green(stderr), cli_clean(name, room), cli_plain(stderr));
    errno = 0;
    const ssize_t n = getline(&l->line, &l->room, stdin);
    *text = l->line;
    if (n > 0) {
        *bytes = (size_t)n;
        return CLI_TYPED_LINE;
    }
    if (errno == ENOMEM) return fail_memory(l);
    if (errno != EINTR) return CLI_TYPED_END;
    clearerr(stdin);
    return CLI_TYPED_STOP;
}

static bool add_text(cli_lines *l, const char *text, size_t bytes)
{
    if (l->n + bytes + 1 > l->text_room) {
        const size_t room = 2 * (l->n + bytes + 1);
        char        *more = realloc(l->text, room);
        if (!more) return false;
        l->text = more;
        l->text_room = room;
    }
    memcpy(l->text + l->n, text, bytes);
    l->n += bytes;
    l->text[l->n] = '\0';
    return true;
}

cli_typed cli_lines_read(cli_lines *l, const char *name, const char **text, size_t *bytes)
{
    cli_typed   typed = CLI_TYPED_LINE;
    const char *line;
    size_t      n;
    bool        more = true;
    l->n = 0;
    for (bool first = true; more; first = false, name = "...") {
        typed = l->editor ? cli_editor_read(l->editor, name, &line, &n)
                          : read_plainly(l, name, &line, &n);
        if (typed == CLI_TYPED_END && !first) typed = CLI_TYPED_LINE; /* what came before it */
        if (typed != CLI_TYPED_LINE) {
            if (l->config.terminal) fputc('\n', stderr); /* the prompt is on that line */
            *bytes = n + l->n;
            return typed;
        }
        if (n > 0 && line[n - 1] == '\n') n--;
        more = n > 0 && line[n - 1] == '\\';
        if (!add_text(l, line, more ? n - 1 : n) || (more && !add_text(l, "\n", 1)))
            return fail_memory(l);
    }
    *text = l->text;
    *bytes = l->n;
    return typed;
}
