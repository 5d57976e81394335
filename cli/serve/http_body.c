#include "http_body.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 16, WAITS = 1 << 15 };

static int refuse_body(int status, serve_limit which, serve_limit *acts, const char **why,
                       const char *text)
{
    *acts = which;
    *why = text;
    return status;
}

static int fail_memory(serve_limit which, serve_limit *acts, const char **why)
{
    return refuse_body(503, which, acts, why,
                       which ? "requests of others take all the memory for them" : "out of memory");
}

static int open_file(http_body *b, const char **why)
{
    b->file = open(b->wish.file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (b->file >= 0) return 0;
    b->wish.file[0] = '\0';
    *why = "no file can be made for the body";
    return 507;
}

int http_body_begin(http_body *b, const http_wish *wish, const http_head *h, serve_limits *limits,
                    serve_limit *acts, const char **why)
{
    const bool filed = wish->file[0] != '\0';
    *b = (http_body){.limits = limits,
                     .wish = *wish,
                     .announced = h->length,
                     .length = h->length,
                     .chunked = h->chunked,
                     .file = -1};
    if (h->length > wish->most) {
        b->wish.file[0] = '\0';
        return refuse_body(413, wish->limit, acts, why, "the body is too long");
    }
    if (h->chunked || filed) b->buffer = evbuffer_new();
    if ((h->chunked || filed) && !b->buffer) {
        b->wish.file[0] = '\0';
        return fail_memory(SERVE_NO_LIMIT, acts, why);
    }
    if (filed) {
        b->length = 0;
        return open_file(b, why);
    }
    if (!serve_memory_take(limits, (size_t)h->length))
        return fail_memory(SERVE_REQUEST_MEMORY, acts, why);
    b->taken = (size_t)h->length;
    return 0;
}

/* Moves the buffer to the file. */
static int write_file(http_body *b, const char **why)
{
    while (evbuffer_get_length(b->buffer) > 0) {
        const int n = evbuffer_write(b->buffer, b->file);
        if (n < 0 && errno == EINTR) continue;
        *why = "the body cannot be written to a file";
        if (n <= 0) return 507;
        b->length += (uint64_t)n;
    }
    return 0;
}

static int read_chunks(http_body *b, struct evbuffer *in, serve_limit *acts, const char **why)
{
    const size_t done = b->file >= 0 ? (size_t)b->length : 0;
    int          status = http_chunks_read(&b->chunks, in, b->buffer, b->wish.most - done, why);
    if (status == 413) *acts = b->wish.limit;
    if (b->file >= 0) return status;
    b->length = evbuffer_get_length(b->buffer);
    if (b->length <= b->taken || (status && status != 200)) return status;
    const size_t more = (size_t)b->length - b->taken;
    if (!serve_memory_take(b->limits, more)) return fail_memory(SERVE_REQUEST_MEMORY, acts, why);
    b->taken += more;
    return status;
}

/* Of a body whose length is known and that goes to a file. */
static int read_plain(http_body *b, struct evbuffer *in, const char **why)
{
    const uint64_t length = b->announced;
    const int      moved = evbuffer_remove_buffer(in, b->buffer, (size_t)(length - b->length));
    if (moved >= 0) return b->length + (uint64_t)moved == length ? 200 : 0;
    *why = "out of memory";
    return 503;
}

int http_body_read(http_body *b, struct evbuffer *in, serve_limit *acts, const char **why)
{
    if (!b->chunked && b->file < 0) return evbuffer_get_length(in) < b->length ? 0 : 200;
    int status = b->chunked ? read_chunks(b, in, acts, why) : read_plain(b, in, why);
    if (b->file < 0 || (status && status != 200)) return status;
    const int written = write_file(b, why);
    return written ? written : status;
}

char *http_body_bytes(http_body *b, struct evbuffer *in)
{
    struct evbuffer *from = b->buffer ? b->buffer : in;
    const size_t     n = b->file >= 0 ? 0 : (size_t)b->length;
    char            *data = malloc(n + 1);
    if (!data) return NULL;
    /* In pieces, so that each is freed when it is copied. */
    for (size_t at = 0; at < n;) {
        const int got = evbuffer_remove(from, data + at, n - at < PIECE ? n - at : PIECE);
        if (got <= 0) break;
        at += (size_t)got;
    }
    data[n] = '\0';
    return data;
}

size_t http_body_waits(const http_body *b)
{
    return b->file >= 0 || b->chunked ? WAITS : (size_t)b->length;
}

void http_body_pass(http_body *b)
{
    if (b->taken) serve_memory_give(b->limits, b->taken);
    b->taken = 0;
    if (b->buffer) evbuffer_free(b->buffer);
    b->buffer = NULL;
    if (b->file >= 0) close(b->file);
    b->file = -1;
}

void http_body_end(http_body *b)
{
    if (b->limits) http_body_pass(b);
    if (b->wish.file[0]) unlink(b->wish.file);
    *b = (http_body){.file = -1};
}
