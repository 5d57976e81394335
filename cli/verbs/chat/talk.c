/* Conversations as messages: what a template adds with each turn. */
#include "talk.h"
#include "io/model.h"

#include <stdlib.h>
#include <string.h>

/* Stand for what is not known, in templates that may trim but not change it. */
static const char answered[] = "(what was answered)", asked[] = "(what is asked)";

static dra_status no_memory(dra_error *err)
{
    return cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

void cli_talk_free(cli_talk *t)
{
    for (size_t i = 0; i < t->n; i++) free((char *)t->at[i].content);
    free(t->at);
    free(t->seen);
    *t = (cli_talk){0};
}

/* n + more bytes with a 0 after them, for free(). */
static char *join_texts(const char *text, size_t n, const char *more, size_t bytes)
{
    char *both = malloc(n + bytes + 1);
    if (!both) return NULL;
    if (n) memcpy(both, text, n);
    if (bytes) memcpy(both + n, more, bytes);
    both[n + bytes] = '\0';
    return both;
}

dra_status cli_talk_say(cli_talk *t, const char *role, const char *text, size_t bytes,
                        dra_error *err)
{
    if (t->n == t->room) {
        const size_t room = t->room ? 2 * t->room : 8;
        dra_message *more = realloc(t->at, room * sizeof *more);
        if (!more) return no_memory(err);
        t->at = more;
        t->room = room;
    }
    char *content = join_texts("", 0, text, bytes);
    if (!content) return no_memory(err);
    t->at[t->n++] = (dra_message){role, content, bytes};
    return DRA_OK;
}

dra_status cli_talk_copy(const cli_talk *from, cli_talk *to, dra_error *err)
{
    dra_status st = DRA_OK;
    *to = (cli_talk){.loaded = from->loaded};
    for (size_t i = 0; i < from->n && st == DRA_OK; i++)
        st = cli_talk_say(to, from->at[i].role, from->at[i].content, from->at[i].bytes, err);
    if (st == DRA_OK && !(to->seen = join_texts(from->seen, from->n_seen, "", 0)))
        st = no_memory(err);
    to->n_seen = from->n_seen;
    if (st != DRA_OK) cli_talk_free(to);
    return st;
}

dra_status cli_talk_write(cli_talk *t, const char *text, size_t bytes, dra_error *err)
{
    const bool goes_on = t->n && strcmp(t->at[t->n - 1].role, "assistant") == 0;
    char      *seen = join_texts(t->seen, t->n_seen, text, bytes);
    dra_status st = seen ? DRA_OK : no_memory(err);
    if (st == DRA_OK && !goes_on) st = cli_talk_say(t, "assistant", text, bytes, err);
    if (st == DRA_OK && goes_on) {
        dra_message *last = &t->at[t->n - 1];
        char        *content = join_texts(last->content, last->bytes, text, bytes);
        if (!content) st = no_memory(err);
        if (content) {
            free((char *)last->content);
            *last = (dra_message){last->role, content, last->bytes + bytes};
        }
    }
    if (st != DRA_OK) {
        free(seen);
        return st;
    }
    free(t->seen);
    t->seen = seen;
    t->n_seen += bytes;
    return DRA_OK;
}

/* ---- templates ------------------------------------------------------------------------------- */

dra_status cli_talk_begin_loaded(cli_talk *t, const dra_template *template, const char *variables,
                                 dra_error *err)
{
    cli_talk   next = {.loaded = true};
    size_t     bytes;
    dra_status st = cli_talk_say(&next, "user", asked, sizeof asked - 1, err);
    if (st == DRA_OK) st = cli_talk_say(&next, "assistant", answered, sizeof answered - 1, err);
    if (st == DRA_OK)
        st = dra_template_chat_with(template, next.at, next.n, false, variables, &next.seen, &bytes,
                                    err);
    const char *end = st == DRA_OK ? strstr(next.seen, answered) : NULL;
    if (st == DRA_OK && !end)
        st = cli_error(err, DRA_ERR_VALUE,
                       "the chat template leaves out what was answered, so a "
                       "state file cannot be continued with it");
    if (st != DRA_OK) {
        cli_talk_free(&next);
        return st;
    }
    next.n_seen = (size_t)(end - next.seen) + sizeof answered - 1;
    cli_talk_free(t);
    *t = next;
    return DRA_OK;
}

dra_status cli_talk_next(cli_talk *t, const dra_template *template, const char *variables,
                         size_t *from, dra_error *err)
{
    char            *text;
    size_t           bytes;
    const dra_status st = dra_template_chat_with(template, t->at, t->n, true, variables, &text,
                                                 &bytes, err);
    if (st != DRA_OK) return st;
    const bool same = bytes >= t->n_seen && (!t->n_seen || memcmp(text, t->seen, t->n_seen) == 0);
    if (!same && t->loaded) {
        free(text);
        return cli_error(err, DRA_ERR_VALUE,
                         "the chat template writes earlier turns in another way now, and what was "
                         "said before the state file is not known; /reset starts over");
    }
    *from = same ? t->n_seen : 0;
    free(t->seen);
    t->seen = text;
    t->n_seen = bytes;
    return DRA_OK;
}
