/* What a request for text asks, of both OpenAI routes. */
#ifndef DRA_CLI_SERVE_ASK_H
#define DRA_CLI_SERVE_ASK_H

#include "fields.h"

typedef struct serve_ask {
    bool        chat;
    const char *model;
    json_t     *prompt, *messages, *stop, *logit_bias, *logprobs_json, *stream_options;
    json_t     *response_format, *max_completion, *seed_json, *state_data;
    int64_t     max_tokens, n, top_k, top_logprobs;
    double      temperature, top_p, min_p;
    double      presence_penalty, frequency_penalty, repetition_penalty;
    bool        echo, stream, return_state, look;
    const char *state, *save_state;
    /* What follows from these. */
    bool           usage;    /* of a stream */
    int64_t        logprobs; /* most likely tokens; -1: none */
    uint64_t       seed;
    int            n_stop;
    const char    *stops[SERVE_STOPS + 1]; /* one more is that of the chat template */
    int64_t        n_bias;
    dra_token_bias bias[SERVE_BIASES];
} serve_ask;

/* Reads and checks the body; false: e says why. `a` points into the body. */
bool serve_ask_read(const serve *s, json_t *body, bool chat, serve_ask *a, serve_error *e);
/* The text of messages by the model's template, as ids. */
bool serve_messages_read(const serve_model *m, const serve_ask *a, dra_ids *out, serve_error *e);

/* Reads the template, what ends answers by it, and its text. */
dra_status serve_template_open(serve_model *m, dra_error *err);

#endif
