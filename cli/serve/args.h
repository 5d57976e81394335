/* What `dra serve` was asked on the command line. */
#ifndef DRA_CLI_SERVE_ARGS_H
#define DRA_CLI_SERVE_ARGS_H

#include "io/model.h"
#include "verbs/generate/drafting.h"

typedef struct serve_args {
    cli_draft_args draft;
    cli_source     from; /* of all models: device, threads, dtype, tokenizer */
    cli_list       models;
    const char    *host, *unix_path, *state_dir, *key_file, *cors, *template, *log;
    const char *memory_limit, *request_memory, *max_answer, *max_state, *state_quota, *state_disk;
    int64_t     port, slots, queue, chunk, body, head, connections, tokens, prompt, states,
        key_requests, key_tokens; /* a minute; 0: any number */
    double request_seconds, client_seconds, drain_seconds, state_days;
} serve_args;

int serve_run(const serve_args *a); /* returns the exit status */

#endif
