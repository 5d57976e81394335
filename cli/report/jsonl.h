/* Lines of JSON objects, as logs have them: the members of one line, nested ones passed over. */
#ifndef DRA_CLI_REPORT_JSONL_H
#define DRA_CLI_REPORT_JSONL_H

#include <stddef.h>

typedef enum cli_member_kind {
    CLI_MEMBER_NUMBER,
    CLI_MEMBER_TEXT,
    CLI_MEMBER_OTHER
} cli_member_kind;

typedef struct cli_member {
    const char     *key;
    cli_member_kind kind;
    double          number; /* null is NaN, as are numbers beyond all measure */
    const char     *text;
    const char     *at; /* where the value begins in the line: brackets of a nested one */
} cli_member;

enum { CLI_MEMBERS = 64 };
#define CLI_NUMBER_MOST 1e300 /* differences of smaller ones are finite */

/* Takes a line apart in place: keys and texts point into it from then on. Returns how many members
 * are written (later ones than CLI_MEMBERS are passed over); -1: it is no JSON object. */
int cli_line_read(char *line, cli_member members[CLI_MEMBERS]);

/* The same for a list of texts, which begins with a bracket; what follows it is not looked at.
 * Returns how many there are, of which the first `most` are written; -1: it is something else. */
int cli_list_read(char *list, const char **texts, int most);

#endif
