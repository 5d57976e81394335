/* A conversation with a model. It lives in the model's state: what was said is never read twice. */
#ifndef DRA_CLI_VERBS_CHAT_CHAT_H
#define DRA_CLI_VERBS_CHAT_CHAT_H

#include "verbs/generate/drafting.h"
#include "talk.h"

typedef struct cli_chat_form { /* how a conversation is written down */
    const char *user, *bot;    /* stand before what each of them says */
    const char *system;        /* read before everything; NULL: none */
    bool        plain;         /* no names: what is typed is continued */
    bool        own;           /* of the options: not the template of the model's folder */
    const char *from;          /* a chat template, a file or a name; NULL: that of the folder */
    cli_list    set;           /* variables of the template, KEY=JSON */
} cli_chat_form;

typedef struct cli_chat_kept { /* what a change may go back to */
    dra_context context;
    cli_talk    talk;
    size_t      bytes; /* of the state */
} cli_chat_kept;

enum { CLI_CHAT_KEPT = 32 };

typedef struct cli_chat {
    cli_model      m;
    cli_chat_form  form;
    cli_sampling   how; /* as it is set now */
    cli_biases     biases;
    cli_stops      stops;
    cli_drafting   drafting;
    dra_generator *generator;
    cli_chat_kept  before[CLI_CHAT_KEPT]; /* what /undo goes back to, the newest last */
    int            kept;
    dra_template *template; /* writes down messages; NULL: the form does */
    char        *variables; /* further ones it has, an object of JSON; NULL: none */
    cli_talk     talk;
    bool         told;             /* that the template writes earlier turns in another way */
    FILE        *answer;           /* that is being written, for the template */
    char        *ending;           /* the stop string of the form: "\n\nUser:"; NULL: none */
    const char **stop;             /* that one and those of the options */
    bool         terminal;         /* somebody sits there */
    bool         screen;           /* answers go to a terminal, not to a file */
    bool         done;             /* /quit */
    cli_text_out text;             /* the answer, being written */
    bool         shown;            /* something of it */
    char         last;             /* character of it */
    int64_t      read, written;    /* tokens, of all turns */
    double       reading, writing; /* seconds */
} cli_chat;                        /* starts as {0} */

/* Opens the model and, unless it is NULL, continues from a state file. cli_chat_close() releases
 * what there is, whatever happened. */
dra_status cli_chat_open(cli_chat *c, const cli_source *from, const cli_draft_args *draft,
                         const char *state, dra_error *err);
void       cli_chat_close(cli_chat *c);

/* Ctrl-C ends an answer, and where nobody sits at a terminal the chat with it. While a line is
 * waited for it ends the wait, too. */
void cli_chat_signals(bool waiting);
bool cli_chat_stopped(const cli_chat *c); /* the latter has happened */

/* Reads what was said and writes the answer to stdout. After an error nothing was said. */
dra_status cli_chat_say(cli_chat *c, const char *text, size_t bytes, dra_error *err);
dra_status cli_chat_more(cli_chat *c, dra_error *err); /* continues the answer */

dra_status cli_chat_save(cli_chat *c, const char *path, dra_error *err);
dra_status cli_chat_load(cli_chat *c, const char *path, dra_error *err);
dra_status cli_chat_reset(cli_chat *c, dra_error *err);
/* Takes back the last of all of these but saving. */
dra_status cli_chat_undo(cli_chat *c, dra_error *err);

/* Says something on stderr, if somebody sits there. */
void cli_chat_note(const cli_chat *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Runs a line that starts with a slash. */
dra_status cli_chat_command(cli_chat *c, const char *line, dra_error *err);

#endif
