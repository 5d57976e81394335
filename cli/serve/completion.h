/* A request for text while it is answered: choices that jobs write, and their two forms in
 * OpenAI's interface. */
#ifndef DRA_CLI_SERVE_COMPLETION_H
#define DRA_CLI_SERVE_COMPLETION_H

#include "ask.h"

typedef struct serve_logprobs { /* lists of JSON without their brackets */
    serve_text tokens, logprobs, top, offsets;
    int64_t    n;
} serve_logprobs;

typedef struct serve_choice {
    serve_text     text;
    serve_logprobs logprobs;
    dra_decoder   *decoder;     /* of what is echoed, and for offsets; NULL: not needed */
    int64_t        letters;     /* of the text so far, for offsets */
    size_t         held;        /* bytes of these, as they are counted */
    serve_text     ids;         /* of its tokens, as a list without brackets */
    serve_text     prompt;      /* log-probabilities of the prompt, the same */
    bool           began, over; /* over: no text follows */
    bool           called;      /* it calls tools */
    bool           stopped;     /* by a stop string */
    size_t         told;        /* bytes of the text that events have told, in a dialect */
    const char    *finish;      /* NULL: goes on */
    int64_t        prompt_tokens, cached_tokens, written_tokens, drafted_tokens, accepted_tokens;
} serve_choice;

typedef struct serve_dialect serve_dialect;

typedef struct serve_usage { /* of all choices; a prompt is counted once, however many it has */
    int64_t prompt, cached, written, drafted, accepted;
} serve_usage;

typedef struct serve_completion {
    serve_call           call;
    serve_model         *model;
    bool                 chat, stream, usage, echo, return_state, return_ids;
    const serve_dialect *dialect; /* NULL: it is told as OpenAI's completions are */
    int64_t              events;  /* told so far, in a dialect */
    bool                 logprobs;
    bool                 tools; /* answers are read for calls */
    char                 id[40];
    int64_t              created;
    size_t               bytes;         /* of the choices so far */
    size_t         n, per_prompt, done; /* choices, those of one prompt, those that have ended */
    serve_choice  *choices;
    serve_ask     *ask; /* points into the body */
    serve_grammar *grammar;
    size_t         n_prompts;
    dra_ids       *prompts;
    int64_t        instruction; /* tokens at the beginning that other requests share */
    uint64_t       owner;
    serve_error    unsaved; /* why the state could not be named or written; status 0: it was */
    /* States of the engine: what it begins from, and, to be forgotten, what comes with the request
     * and what is left. "": none. */
    char       from[SERVE_NAME + 1], temp_in[SERVE_NAME + 1], save[SERVE_NAME + 1];
    char       path[640]; /* to be removed */
    serve_text state;     /* as base64 */
} serve_completion;

/* A token of a choice: adds to its text and log-probabilities. */
void serve_choice_token(serve_completion *c, serve_choice *x, const serve_token *t);

/* How much of its text is content, not tool calls. */
size_t serve_choice_content(const serve_completion *c, const serve_choice *x);

serve_usage serve_usage_of(const serve_completion *c);

/* The whole answer. */
void serve_answer_whole(serve_completion *c, serve_text *out);
/* An event of a stream: what choice i has added, which is then forgotten; look: JSON or NULL. */
void serve_answer_part(serve_completion *c, size_t i, const char *look, serve_text *out);
/* The last event, with usage and state; false: it would be empty. */
bool serve_answer_last(const serve_completion *c, serve_text *out);

#endif
