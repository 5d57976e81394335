/* The fields of a request for text, of both OpenAI routes. */
#ifndef DRA_CLI_SERVE_ASK_H
#define DRA_CLI_SERVE_ASK_H

#include "tools.h"

typedef struct serve_turns {      /* a conversation, and how it is written down */
    json_t *messages, *variables; /* variables of the template, or NULL */
    json_t *tools;                /* which the template shows, or NULL */
    bool    answer;               /* it ends where an answer begins */
    bool    go_on;                /* the last message is the beginning of the answer */
    bool    after;                /* it follows an answer that a state has read */
} serve_turns;

typedef struct serve_ask {
    bool               chat;
    const char        *model;
    serve_turns        how;
    json_t            *prompt, *stop, *stop_token_ids, *logit_bias, *logprobs_json, *stream_options;
    json_t            *tool_list, *tool_choice;
    json_t            *response_format, *max_completion, *seed_json, *state_data;
    int64_t            max_tokens, n, top_logprobs, prompt_logprobs; /* the last -1: none */
    dra_sampler_config sampler;                                      /* without biases and seed */
    bool               echo, stream, return_state, look, ignore_end, return_ids, parallel;
    const char        *state, *save_state, *grammar;
    /* What follows from these. */
    serve_tools    tools;
    bool           usage;    /* of a stream */
    int64_t        logprobs; /* most likely tokens; -1: none */
    uint64_t       seed;
    int            n_stop;
    const char    *stops[SERVE_STOPS + 1]; /* one more is that of the chat template */
    int            n_stop_tokens;
    dra_ids        stop_tokens[SERVE_STOPS]; /* parts of stop_ids */
    int32_t        stop_ids[SERVE_STOP_IDS];
    int64_t        n_bias;
    dra_token_bias bias[SERVE_BIASES];
} serve_ask;

/* Reads and checks the body; false: e says why. `a` points into the body. */
bool serve_ask_read(const serve *s, json_t *body, bool chat, serve_ask *a, serve_error *e);
/* The grammar that texts have to follow; *out is NULL where there is none. The caller drops it,
 * on failure, too. */
bool           serve_grammar_open(const serve_model *m, const serve_ask *a, serve_grammar **out,
                                  serve_error *e);
serve_grammar *serve_grammar_hold(serve_grammar *g); /* returns it; NULL is allowed, here, too: */
void           serve_grammar_drop(serve_grammar *g);
const dra_grammar *serve_grammar_of(const serve_grammar *g);
/* The text of messages by the model's template, as ids; *instruction of them are a system's message
 * at the beginning. */
bool serve_messages_read(const serve_model *m, const serve_ask *a, dra_ids *out,
                         int64_t *instruction, serve_error *e);

/* Opens the template, finds how answers end by it, and keeps its text. */
dra_status serve_template_open(serve_model *m, dra_error *err);

#endif
