/* A conversation as messages, written down by a chat template. The model has read the text of all
 * turns so far; a turn reads what the template adds to it. */
#ifndef DRA_CLI_VERBS_CHAT_TALK_H
#define DRA_CLI_VERBS_CHAT_TALK_H

#include "dra/template.h"
#include "dra/text.h"

typedef struct cli_talk {
    dra_message *at; /* contents are owned */
    size_t       n, room;
    char        *seen; /* what the model has read and written; not known before a state file */
    size_t       n_seen;
    bool         loaded; /* it began with a state file */
} cli_talk;              /* starts as {0} */

void       cli_talk_free(cli_talk *t); /* leaves an empty one */
dra_status cli_talk_copy(const cli_talk *from, cli_talk *to, dra_error *err);

/* Adds a message, or to the last one, which the model goes on with. `role` is borrowed. */
dra_status cli_talk_say(cli_talk *t, const char *role, const char *text, size_t bytes,
                        dra_error *err);
dra_status cli_talk_write(cli_talk *t, const char *text, size_t bytes, dra_error *err);

/* Begins after a state file, whose messages are not known. `variables` of the template, here and
 * below: dra_template_chat_with(). */
dra_status cli_talk_begin_loaded(cli_talk *t, const dra_template *template, const char *variables,
                                 dra_error *err);

/* What the model reads next: the text that the template adds before the next answer, from *from on,
 * or, where the template writes what was said before in another way, all of it, from 0. t->seen is
 * then the text with it. */
dra_status cli_talk_next(cli_talk *t, const dra_template *template, const char *variables,
                         size_t *from, dra_error *err);

#endif
