/* A client of HTTP/1.0, whose answers end where the connection does: events of a stream come as
 * lines "data: {...}". */
#include "remote.h"
#include "serve/json.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINE_MOST = 1 << 24 };

bool cli_remote_read(const char *url, cli_remote *out)
{
    static const char scheme[] = "http://";
    if (strncmp(url, scheme, sizeof scheme - 1) != 0) return false;
    const char  *host = url + sizeof scheme - 1;
    const bool   v6 = host[0] == '[';
    const size_t n = v6 ? strcspn(host + 1, "]") : strcspn(host, ":/");
    const char  *rest = host + n + (v6 ? 2 : 0);
    if (!n || n >= sizeof out->host || (v6 && host[n + 1] != ']')) return false;
    snprintf(out->host, sizeof out->host, "%.*s", (int)n, host + v6);
    snprintf(out->port, sizeof out->port, "80");
    if (*rest == ':') {
        const size_t digits = strspn(rest + 1, "0123456789");
        if (!digits || digits > 5) return false;
        snprintf(out->port, sizeof out->port, "%.*s", (int)digits, rest + 1);
        rest += 1 + digits;
    }
    out->key = getenv("DRA_API_KEY");
    return !*rest || strcmp(rest, "/") == 0;
}

void cli_remote_sampling(const cli_sampling *s, serve_text *body)
{
    serve_printf(body,
                 ", \"stream\": true, \"seed\": %lld, \"temperature\": %.17g, \"top_p\": %.17g, "
                 "\"top_k\": %lld, \"min_p\": %.17g, \"repetition_penalty\": %.17g",
                 (long long)s->seed, s->temperature, s->top_p, (long long)s->top_k, s->min_p,
                 s->penalty > 0 ? s->penalty : 1);
    if (s->tokens > 0) serve_printf(body, ", \"max_tokens\": %lld", (long long)s->tokens);
    for (size_t i = 0; i < s->stop.count; i++) {
        serve_puts(body, i ? ", " : ", \"stop\": [");
        serve_json_word(body, s->stop.text[i]);
    }
    if (s->stop.count) serve_puts(body, "]");
}

/* ---- the connection -------------------------------------------------------------------------- */

static dra_status fail(const cli_remote *r, const char *what, dra_error *err)
{
    return cli_error(err, DRA_ERR_FILE, "http://%s:%s: %s", r->host, r->port, what);
}

static dra_status no_memory(dra_error *err)
{
    return cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

static int connect_to(const cli_remote *r, dra_error *err)
{
    struct addrinfo *all = NULL, hints = {.ai_socktype = SOCK_STREAM};
    const int        failed = getaddrinfo(r->host, r->port, &hints, &all);
    int              fd = -1;
    for (struct addrinfo *a = all; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    if (fd < 0 && failed == EAI_MEMORY)
        no_memory(err);
    else if (fd < 0)
        fail(r, failed ? gai_strerror(failed) : cli_reason(errno), err);
    if (all) freeaddrinfo(all);
    return fd;
}

static bool send_all(int fd, const char *data, size_t bytes)
{
    while (bytes) {
        const ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) return false;
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        }
    }
    return true;
}

static dra_status send_request(int fd, const cli_remote *r, const char *path,
                               const serve_text *body, dra_error *err)
{
    serve_text head = {0};
    serve_printf(&head,
                 "POST %s HTTP/1.0\r\nHost: %s:%s\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n",
                 path, r->host, r->port, body->n);
    if (r->key) serve_printf(&head, "Authorization: Bearer %s\r\n", r->key);
    serve_puts(&head, "\r\n");
    dra_status st = DRA_OK;
    if (head.failed || body->failed)
        st = no_memory(err);
    else if (!send_all(fd, head.data, head.n) || !send_all(fd, body->data, body->n))
        st = fail(r, "it does not listen", err);
    serve_text_free(&head);
    return st;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* A text inside of JSON: error.message, or that of the first choice. */
static const serve_json *text_in(const serve_json *top, bool error)
{
    const serve_json *x = serve_json_get(top, error ? "error" : "choices");
    if (error) return x && x->kind == SERVE_OBJECT ? serve_json_get(x, "message") : NULL;
    x = x && x->kind == SERVE_LIST ? x->first : NULL;
    if (!x || x->kind != SERVE_OBJECT) return NULL;
    const serve_json *delta = serve_json_get(x, "delta");
    if (delta && delta->kind == SERVE_OBJECT) return serve_json_get(delta, "content");
    return serve_json_get(x, "text");
}

/* An object: more of the text, or an error. */
static dra_status take(const cli_remote *r, const char *json, size_t bytes, cli_text_out *out,
                       serve_text *all, dra_error *err)
{
    char              why[160];
    serve_json_file  *file = NULL;
    const serve_json *top = serve_json_read(json, bytes, &file, why);
    const bool        object = top && top->kind == SERVE_OBJECT;
    const serve_json *error = object ? text_in(top, true) : NULL;
    const serve_json *text = object ? text_in(top, false) : NULL;
    dra_status        st = DRA_OK;
    if (!top && !why[0]) {
        st = no_memory(err);
    } else if (!object || (error && error->kind == SERVE_TEXT)) {
        st = fail(r, error ? error->text : "its answer is no JSON", err);
    } else if (text && text->kind == SERVE_TEXT) {
        cli_text_out_put(out, text->text, text->bytes);
        fflush(out->to);
        if (all) serve_put(all, text->text, text->bytes);
        if (all && all->failed) st = no_memory(err);
    }
    serve_json_free(file);
    return st;
}

/* What has come so far: its whole lines are taken and cut off. *done: the last of all was there. */
static dra_status take_lines(const cli_remote *r, serve_text *held, cli_text_out *out,
                             serve_text *all, bool *done, dra_error *err)
{
    dra_status st = DRA_OK;
    char      *at = held->data, *end;
    while (st == DRA_OK && (end = memchr(at, '\n', held->n - (size_t)(at - held->data)))) {
        const size_t n = (size_t)(end - at);
        *done |= n >= 12 && memcmp(at, "data: [DONE]", 12) == 0;
        if (n > 6 && memcmp(at, "data: {", 7) == 0) st = take(r, at + 6, n - 6, out, all, err);
        at = end + 1;
    }
    const size_t left = held->n - (size_t)(at - held->data);
    memmove(held->data, at, left);
    held->n = left;
    return st;
}

static dra_status receive(int fd, const cli_remote *r, cli_text_out *out, serve_text *all,
                          dra_error *err)
{
    char       some[4096];
    serve_text held = {0};
    dra_status st = DRA_OK;
    bool       head = true, stream = false, done = false;
    ssize_t    n;
    while (st == DRA_OK && (n = read(fd, some, sizeof some)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        serve_put(&held, some, (size_t)n);
        if (held.failed)
            st = no_memory(err);
        else if (held.n > LINE_MOST)
            st = fail(r, "its answer is too long", err);
        const char *body = head && held.n ? strstr(held.data, "\r\n\r\n") : NULL;
        if (st == DRA_OK && body) {
            stream = strncmp(held.data, "HTTP/1.", 7) == 0 &&
                     strncmp(held.data + 8, " 200", 4) == 0;
            const size_t skip = (size_t)(body - held.data) + 4;
            memmove(held.data, body + 4, held.n - skip);
            held.n -= skip;
            head = false;
        }
        if (st == DRA_OK && stream) st = take_lines(r, &held, out, all, &done, err);
    }
    if (st == DRA_OK && head) st = fail(r, "it does not answer in HTTP", err);
    if (st == DRA_OK && stream && !done) st = fail(r, "its answer breaks off", err);
    if (st == DRA_OK && !stream) st = take(r, held.n ? held.data : "", held.n, out, all, err);
    serve_text_free(&held);
    return st;
}

dra_status cli_remote_stream(const cli_remote *r, const char *path, const serve_text *body,
                             cli_text_out *out, serve_text *all, dra_error *err)
{
    const int  fd = connect_to(r, err);
    dra_status st = fd < 0 ? err->code : DRA_OK;
    if (st == DRA_OK) st = send_request(fd, r, path, body, err);
    if (st == DRA_OK) st = receive(fd, r, out, all, err);
    if (fd >= 0) close(fd);
    return st;
}
