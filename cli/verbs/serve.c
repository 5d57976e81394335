/* dra serve: models behind HTTP. */
#include "serve/args.h"

static const serve_args defaults = {.from = {.state_limit = DRA_STATE_LIMIT},
                                    .host = "127.0.0.1",
                                    .port = 8080,
                                    .slots = 16,
                                    .queue = 256,
                                    .chunk = 512,
                                    .memory_limit = "4G",
                                    .request_memory = "1G",
                                    .max_answer = "64M",
                                    .max_state = "1G",
                                    .state_quota = "8G",
                                    .state_disk = "32G",
                                    .states = 1024,
                                    .prompt = 1 << 18,
                                    .body = 8 << 20,
                                    .head = 16 << 10,
                                    .connections = 1024,
                                    .tokens = 4096,
                                    .request_seconds = 600,
                                    .client_seconds = 30,
                                    .drain_seconds = 30};

static const cli_option options[] = {
    {"model", CLI_LIST, offsetof(serve_args, models), 0, 0,
     "folder of a model, under its own name or the one given", "[NAME=]DIR",
     .flags = CLI_REQUIRED | CLI_ALSO_PLACED, .group = "Models", .brief = 'm'},
    CLI_TOKENIZER_OPTION(serve_args),
    {"chat-template", CLI_TEXT, offsetof(serve_args, template), 0, 0,
     "how messages become text: a file, or chatml, gemma, llama2, llama3, mistral, plain",
     "FILE|NAME", .unset = "that of the model's folder, or plain"},
    CLI_PLUGIN_OPTION(serve_args),
    CLI_SKIP_HASH_OPTION(serve_args),
    {"host", CLI_TEXT, offsetof(serve_args, host), 0, 0,
     "address to listen on; one that others can reach needs --api-key-file", "ADDRESS",
     .group = "Server"},
    {"port", CLI_INT, offsetof(serve_args, port), 0, 65535, "port; 0: any that is free"},
    {"unix", CLI_TEXT, offsetof(serve_args, unix_path), 0, 0,
     "socket of this machine to listen on, instead of an address", "PATH"},
    {"api-key-file", CLI_TEXT, offsetof(serve_args, key_file), 0, 0,
     "keys that requests must have one of: lines KEY [NAME]; SIGHUP reads it again", "FILE"},
    {"cors", CLI_TEXT, offsetof(serve_args, cors), 0, 0,
     "origin whose pages may send requests, too; *: all", "ORIGIN"},
    {"state-dir", CLI_TEXT, offsetof(serve_args, state_dir), 0, 0,
     "where named states are kept; without it they end with the server", "DIR"},
    {"log", CLI_TEXT, offsetof(serve_args, log), 0, 0,
     "where a line of JSON is added for every request; -: standard output", "FILE|-"},
    {"slots", CLI_INT, offsetof(serve_args, slots), 1, 4096, "sequences that run at a time",
     .group = "Limits"},
    {"queue", CLI_INT, offsetof(serve_args, queue), 1, 65536,
     "requests that may wait; more are answered with 429"},
    {"chunk", CLI_INT, offsetof(serve_args, chunk), 64, 65536,
     "tokens of prompts in a step, a multiple of 64"},
    {"memory-limit", CLI_TEXT, offsetof(serve_args, memory_limit), 0, 0,
     "bytes of all states of a model: 512M, 4G", "SIZE"},
    {"request-memory", CLI_TEXT, offsetof(serve_args, request_memory), 0, 0,
     "bytes of all requests and answers on their way", "SIZE"},
    {"max-answer", CLI_TEXT, offsetof(serve_args, max_answer), 0, 0,
     "bytes of an answer, and of what a client leaves unread of a stream", "SIZE"},
    {"max-prompt", CLI_INT, offsetof(serve_args, prompt), 1, INT32_MAX,
     "tokens that a prompt may have"},
    {"max-tokens", CLI_INT, offsetof(serve_args, tokens), 1, INT32_MAX,
     "tokens that an answer may have"},
    {"max-body", CLI_INT, offsetof(serve_args, body), 1024, 1 << 30, "bytes of a request"},
    {"max-headers", CLI_INT, offsetof(serve_args, head), 1024, 1 << 20, "bytes of its headers"},
    {"max-state", CLI_TEXT, offsetof(serve_args, max_state), 0, 0,
     "bytes of a state that is uploaded", "SIZE"},
    {"key-requests", CLI_INT, offsetof(serve_args, key_requests), 1, INT32_MAX,
     "requests a minute that a key may have", .unset = "any number"},
    {"key-tokens", CLI_INT, offsetof(serve_args, key_tokens), 1, INT32_MAX,
     "tokens a minute that a key may have read and written", .unset = "any number"},
    {"max-states", CLI_INT, offsetof(serve_args, states), 1, 1 << 20,
     "names of states that a key may have"},
    {"state-quota", CLI_TEXT, offsetof(serve_args, state_quota), 0, 0,
     "bytes of states with names that a key may have", "SIZE"},
    {"state-disk", CLI_TEXT, offsetof(serve_args, state_disk), 0, 0, "bytes of all files of states",
     "SIZE"},
    {"state-days", CLI_REAL, offsetof(serve_args, state_days), 0, 1e5,
     "days after which a state that nobody used is deleted", "DAYS", .unset = "it stays"},
    {"connections", CLI_INT, offsetof(serve_args, connections), 1, 65536,
     "connections at a time; more are answered with 503"},
    {"request-seconds", CLI_REAL, offsetof(serve_args, request_seconds), 0.1, 1e6,
     "seconds that an answer may take"},
    {"client-seconds", CLI_REAL, offsetof(serve_args, client_seconds), 0.1, 1e6,
     "seconds in which a request must arrive, and an answer be taken"},
    {"drain-seconds", CLI_REAL, offsetof(serve_args, drain_seconds), 0, 1e6,
     "seconds that answers have left after SIGTERM"},
    CLI_DRAFT_OPTIONS(serve_args),
    CLI_STATE_LIMIT_OPTION(serve_args),
    CLI_DTYPE_OPTION(serve_args),
    CLI_ACTIVATIONS_OPTION(serve_args),
    CLI_CACHE_OPTION(serve_args, "cache"),
    CLI_DEVICE_OPTIONS(serve_args),
};

#ifndef DRA_LIBEVENT
int serve_run(const serve_args *a)
{
    (void)a;
    cli_line(stderr, "dra serve: this build has no server; it needs libevent, libevent-dev");
    return CLI_FAILED;
}
#endif

static int run_serve(const void *args)
{
    const serve_args *a = args;
    if (a->chunk % 64)
        return cli_misused("serve", "--chunk: expected a multiple of 64, found %lld",
                           (long long)a->chunk);
    if ((a->key_requests || a->key_tokens) && !a->key_file)
        return cli_misused("serve", "--key-requests, --key-tokens: expected --api-key-file");
    const int status = cli_draft_check("serve", &a->draft);
    return status == CLI_OK ? serve_run(a) : status;
}

static const cli_note files[] = {
    {"DIR/MODEL/NAME.state", "in the state directory: a named state of a model"},
    {"tokenizer_config.json", "in the model's folder: its chat template"},
    {0},
};

static const cli_note examples[] = {
    {"dra serve model --port 8080 &",
     "a model on this machine; http://127.0.0.1:8080 is a page to talk with it"},
    {"kill $!", "ends the server when running requests are answered"},
    {0},
};

static const cli_note status[] = {
    {"0", "ended by SIGTERM or Ctrl-C, all requests answered"},
    {"1", "failed; a model or the address could not be opened"},
    {"2", "wrong usage"},
    {0},
};

const cli_verb cmd_serve = {
    .name = "serve",
    .summary = "answer requests over HTTP, as OpenAI's interface has them",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_serve,
    .about =
        "Serves models over HTTP: /v1/completions, /v1/chat/completions, /v1/embeddings and "
        "/v1/models as OpenAI's interface has them, /tokenize, /detokenize, /health, /metrics, "
        "states of conversations as objects under /states, and a page to talk at /.\n"
        "All requests of a model run together, step by step, and on a CPU each gets the bits "
        "that it gets alone. States of prompts are kept, so that what begins alike is read "
        "once.\n"
        "The server listens on this machine only, unless it is told otherwise; an address that "
        "others can reach needs keys. SIGTERM lets running requests finish.",
    .files = files,
    .examples = examples,
    .status = status,
    .also = "chat generate embed",
};
