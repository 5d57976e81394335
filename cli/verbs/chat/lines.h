/* Lines that somebody types or that come through a pipe. At a terminal they can be edited and
 * lines from before be found again, if libedit was there when dra was built. */
#ifndef DRA_CLI_VERBS_CHAT_LINES_H
#define DRA_CLI_VERBS_CHAT_LINES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cli_lines cli_lines;

typedef struct cli_lines_config {
    const char *verb;     /* whose errors these are */
    bool        terminal; /* prompts are written, on stderr */
    const char *history;  /* file of lines from before; NULL: none */
} cli_lines_config;

/* NULL: no memory. */
cli_lines *cli_lines_open(const cli_lines_config *config);
void       cli_lines_close(cli_lines *l); /* NULL is allowed */

typedef enum cli_typed {
    CLI_TYPED_LINE,
    CLI_TYPED_STOP, /* Ctrl-C; bytes: how many were typed before */
    CLI_TYPED_END,  /* Ctrl-D, the end of the file */
    CLI_TYPED_LOST  /* there is no memory for it, which was said */
} cli_typed;

/* One line without its newline, or several of which all but the last end in a backslash, with
 * newlines instead of those. A 0 byte follows it; it is valid until the next call. `name` is the
 * prompt, without the space after it. */
cli_typed cli_lines_read(cli_lines *l, const char *name, const char **text, size_t *bytes);

/* ---- editing, for lines.c -------------------------------------------------------------------- */

typedef struct cli_editor cli_editor;

/* NULL: lines cannot be edited here. */
cli_editor *cli_editor_open(const cli_lines_config *config);
void        cli_editor_close(cli_editor *e); /* NULL is allowed */
/* As cli_lines_read(), one line at a time, with its newline if it has one. */
cli_typed cli_editor_read(cli_editor *e, const char *name, const char **text, size_t *bytes);

#endif
