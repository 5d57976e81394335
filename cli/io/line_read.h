/* Lines of a file or of stdin, one at a time, numbered for errors: PATH:LINE: what is wrong. */
#ifndef DRA_CLI_IO_LINE_READ_H
#define DRA_CLI_IO_LINE_READ_H

#include "model.h"

typedef struct cli_input_lines {
    const char *name; /* in errors: the path, or stdin */
    FILE       *in;
    char       *line; /* the last one that was read, without its newline */
    size_t      bytes, room;
    int64_t     number; /* of it, from 1 on */
} cli_input_lines;      /* starts as {0} */

/* A stream that reads a file, "-": stdin; NULL: errno says why. Interrupted reads are repeated. */
FILE *cli_input_open(const char *path);

dra_status cli_input_lines_open(const char *path, cli_input_lines *l,
                                dra_error *err); /* "-": stdin */
/* The next line that is not blank; *more false: there is none. Bytes of value 0 and what is not
 * UTF-8 are errors. */
dra_status cli_input_lines_next(cli_input_lines *l, bool *more, dra_error *err);
/* An error of the last line. */
dra_status cli_input_lines_bad(const cli_input_lines *l, dra_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void cli_input_lines_close(cli_input_lines *l);

bool cli_is_utf8(const char *text); /* no broken, overlong or surrogate characters */
bool cli_ends_with(const char *text, const char *end);

#endif
