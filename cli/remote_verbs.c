/* dra generate and dra chat with a server. */
#include "lines.h"
#include "remote.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int misused_url(const char *verb, const char *url)
{
    return cli_misused(verb, "--server: expected http://HOST:PORT, found %.100s", url);
}

/* What a server has no field for. */
static int check_sampling(const char *verb, const cli_sampling *s)
{
    const struct {
        bool        given;
        const char *name;
    } refused[] = {{s->top_a > 0, "--top-a"},
                   {s->sampler != 0, "--sampler"},
                   {s->ignore_end, "--ignore-end"},
                   {s->bias.count > 0, "--logit-bias"}};
    for (size_t i = 0; i < COUNT(refused); i++)
        if (refused[i].given) return cli_misused(verb, "%s: not with --server", refused[i].name);
    return cli_sampling_check(verb, s);
}

int cli_remote_generate(const char *url, const cli_sampling *how, const char *prompt, size_t bytes)
{
    cli_remote   r;
    cli_text_out out;
    serve_text   body = {0};
    dra_error    err = {0};
    if (!cli_remote_read(url, &r)) return misused_url("generate", url);
    const int status = check_sampling("generate", how);
    if (status != CLI_OK) return status;
    serve_puts(&body, "{\"prompt\": ");
    serve_json_text(&body, prompt, bytes);
    cli_remote_sampling(how, &body);
    serve_puts(&body, "}");
    cli_text_out_begin(&out, stdout, how->raw);
    const dra_status st = cli_remote_stream(&r, "/v1/completions", &body, &out, NULL, &err);
    cli_text_out_end(&out);
    if (st == DRA_OK) putchar('\n');
    serve_text_free(&body);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

/* ---- chat ------------------------------------------------------------------------------------ */

static void put_message(serve_text *messages, const char *role, const char *text, size_t bytes)
{
    if (messages->n) serve_puts(messages, ", ");
    serve_printf(messages, "{\"role\": \"%s\", \"content\": ", role);
    serve_json_text(messages, text, bytes);
    serve_puts(messages, "}");
}

/* What was said, and again what was said before it; a failure there is the turn's. */
static dra_status keep(serve_text *messages, size_t before, dra_status st, dra_error *err)
{
    if (st == DRA_OK && messages->failed) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (st != DRA_OK) messages->n = before;
    messages->failed = false;
    return st;
}

/* One turn; after an error nothing was said. */
static dra_status turn(const cli_remote *r, const cli_sampling *how, serve_text *messages,
                       const char *line, size_t bytes, dra_error *err)
{
    cli_text_out out;
    const size_t before = messages->n;
    serve_text   body = {0}, answer = {0};
    put_message(messages, "user", line, bytes);
    serve_puts(&body, "{\"messages\": [");
    serve_put(&body, messages->data, messages->n);
    serve_puts(&body, "]");
    cli_remote_sampling(how, &body);
    serve_puts(&body, "}");
    cli_text_out_begin(&out, stdout, how->raw);
    dra_status st = messages->failed ? cli_error(err, DRA_ERR_MEMORY, "out of memory") : DRA_OK;
    if (st == DRA_OK) st = cli_remote_stream(r, "/v1/chat/completions", &body, &out, &answer, err);
    cli_text_out_end(&out);
    if (st == DRA_OK) {
        putchar('\n');
        put_message(messages, "assistant", answer.n ? answer.data : "", answer.n);
    }
    serve_text_free(&body);
    serve_text_free(&answer);
    return keep(messages, before, st, err);
}

static void begin(serve_text *messages, const char *system)
{
    messages->n = 0;
    if (system) put_message(messages, "system", system, strlen(system));
}

int cli_remote_chat(const char *url, const cli_sampling *how, const char *system)
{
    const bool  terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    cli_remote  r;
    serve_text  messages = {0};
    const char *line = NULL;
    size_t      bytes = 0;
    cli_typed   typed = CLI_TYPED_LOST;
    bool        well = true;
    if (!cli_remote_read(url, &r)) return misused_url("chat", url);
    const int status = check_sampling("chat", how);
    if (status != CLI_OK) return status;
    cli_lines *lines = cli_lines_open(&(cli_lines_config){.verb = "chat", .terminal = terminal});
    begin(&messages, system);
    if (!lines) cli_line(stderr, "dra chat: out of memory");
    while (lines && (typed = cli_lines_read(lines, "User:", &line, &bytes)) == CLI_TYPED_LINE) {
        dra_error err = {0};
        if (strcmp(line, "/quit") == 0) break;
        if (strcmp(line, "/reset") == 0) {
            begin(&messages, system);
        } else if (line[0] == '/' && line[1] != '/') {
            cli_line(stderr, "dra chat: with --server there are /reset and /quit");
            well = false;
        } else if (bytes > 0) {
            const int skip = line[0] == '/';
            if (turn(&r, how, &messages, line + skip, bytes - (size_t)skip, &err) != DRA_OK) {
                cli_line(stderr, "dra chat: %s", err.text);
                well = false;
            }
        }
    }
    well &= typed != CLI_TYPED_LOST;
    cli_lines_close(lines);
    serve_text_free(&messages);
    return well || terminal ? CLI_OK : CLI_FAILED;
}
