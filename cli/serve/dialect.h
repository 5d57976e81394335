/* Other ways to ask for a chat and to tell its answer: /v1/responses of OpenAI and /v1/messages of
 * Anthropic, text only. The request becomes that of /v1/chat/completions, which does the rest; its
 * one choice is written in another form. */
#ifndef DRA_CLI_SERVE_DIALECT_H
#define DRA_CLI_SERVE_DIALECT_H

#include "completion.h"

typedef struct serve_word { /* a field */
    const char *theirs;
    const char *ours; /* of chats; NULL: `read` takes it */
    const char *idle; /* or the values that ask for nothing, a list as JSON */
} serve_word;

struct serve_dialect {
    const char       *prefix; /* of ids */
    const char       *failed; /* what comes before an error in a stream; NULL: nothing */
    size_t            n_words;
    const serve_word *words;
    /* What the words do not say: adds to the members of the chat. */
    bool (*read)(json_t *from, serve_text *chat, serve_error *e);
    /* Events: at the beginning of a stream, for what was added to the text, and at its end. */
    void (*begin)(serve_completion *c);
    void (*part)(serve_completion *c);
    void (*last)(serve_completion *c);
    void (*whole)(serve_completion *c, serve_text *out);
};

extern const serve_dialect serve_responses_dialect, serve_messages_dialect;

/* The body as one of a chat; NULL: e says why. */
json_t *serve_dialect_read(const serve_dialect *d, json_t *body, serve_error *e);
/* Errors are about what the client sent. */
void serve_dialect_blame(const serve_dialect *d, serve_error *e);

/* ---- for dialects ---------------------------------------------------------------------------- */

/* A message at the end of a list without brackets; `content` may be a text or a list of parts,
 * texts whose type is one of `types`, NULL at the end. */
bool serve_dialect_say(serve_text *list, const char *role, const json_t *content,
                       const char *const *types, const char *param, serve_error *e);
/* The list becomes the messages of the chat, and is freed. */
void serve_dialect_end(serve_text *chat, serve_text *list);
/* A member of an object without its last brace; NULL: its value is put afterwards. */
void serve_dialect_put(serve_text *object, const char *name, const json_t *x);
/* "event: NAME" and its data, which are freed. */
void serve_dialect_event(serve_completion *c, const char *name, serve_text *data);

#endif
