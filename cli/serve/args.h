/* What `dra serve` was asked on the command line. */
#ifndef DRA_CLI_SERVE_ARGS_H
#define DRA_CLI_SERVE_ARGS_H

#include "io/model.h"

typedef struct serve_args {
    cli_source  from; /* of all models: device, threads, dtype, tokenizer */
    cli_list    models;
    const char *host, *state_dir, *memory_limit, *key_file, *cors, *template;
    int64_t     port, slots, queue, chunk, body, head, connections, tokens;
    double      request_seconds, client_seconds, drain_seconds;
} serve_args;

int serve_run(const serve_args *a); /* returns the exit status */

#endif
