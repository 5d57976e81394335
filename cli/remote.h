/* A server of OpenAI's interface, such as `dra serve`, as a client sees it. */
#ifndef DRA_CLI_REMOTE_H
#define DRA_CLI_REMOTE_H

#include "sampling.h"
#include "serve/text.h"

typedef struct cli_remote {
    char        host[256], port[8];
    const char *key; /* of DRA_API_KEY; NULL: none */
} cli_remote;

#define CLI_SERVER_OPTION(type)                                                                    \
    {                                                                                              \
        "server", CLI_TEXT, offsetof(type, server), 0, 0,                                          \
            "generate on a server, such as dra serve: http://HOST:PORT; DRA_API_KEY is its key",   \
            "URL", .flags = CLI_A_MODEL, .group = "Server"                                         \
    }

/* "http://HOST[:PORT]"; false: it is something else. */
bool cli_remote_read(const char *url, cli_remote *out);

/* What a sampler is asked, as fields of a body that go on after a comma. */
void cli_remote_sampling(const cli_sampling *s, serve_text *body);

/* Sends a body, which asks for a stream, and writes what comes to `out`; `all` keeps it, too, and
 * may be NULL. */
dra_status cli_remote_stream(const cli_remote *r, const char *path, const serve_text *body,
                             cli_text_out *out, serve_text *all, dra_error *err);

/* The two verbs that do this. Return the exit status. */
int cli_remote_generate(const char *url, const cli_sampling *how, const char *prompt, size_t bytes);
int cli_remote_chat(const char *url, const cli_sampling *how, const char *system);

#endif
