/* Text that a model wrote, on its way to people or files. */
#ifndef DRA_CLI_VERBS_GENERATE_TEXT_OUT_H
#define DRA_CLI_VERBS_GENERATE_TEXT_OUT_H

#include <stdbool.h>
#include <stdio.h>

/* At a terminal, what it would obey is made visible, newline and tab excepted: ^[ is ESC and ^? is
 * DEL, as `cat -v` writes them, <U+009B> another control character, as `less` does; bytes that are
 * no UTF-8 become U+FFFD. With `raw`, and in files and pipes, all bytes stay as they are. */
typedef struct cli_text_out {
    FILE  *to;
    bool   shows;   /* at a terminal and not raw */
    char   held[4]; /* the start of a letter whose rest has not come yet */
    size_t n;
    /* Of text that is shown below something else: columns that all lines but the first leave free,
     * of how many, and where the next letter stands. indent 0: as it comes. */
    size_t indent, wide, at;
} cli_text_out;

void cli_text_out_begin(cli_text_out *x, FILE *to, bool raw);
/* The rest of the lines stands below column `indent`, where the first letter comes. */
void cli_text_out_indent(cli_text_out *x, size_t indent);
void cli_text_out_put(cli_text_out *x, const char *text,
                      size_t bytes);    /* may end inside a letter */
void cli_text_out_end(cli_text_out *x); /* shows what is held */

/* The help of --raw. */
#define CLI_RAW_HELP                                                                               \
    "write control characters to a terminal as they are; otherwise they are shown as ^[ or <U+009B>"

#endif
