#include "http_chunks.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_MOST = 256, TRAILERS_MOST = 4096, DIGITS = 15, PIECE = 16384 };

/* The next line, to be freed, and its bytes; NULL: it has not come yet. */
static char *next_line(struct evbuffer *in, size_t *n, int *status, const char **why)
{
    char *line = evbuffer_readln(in, n, EVBUFFER_EOL_CRLF_STRICT);
    if (!line && evbuffer_get_length(in) < LINE_MOST) return NULL;
    if (line && *n < LINE_MOST && strlen(line) == *n) return line;
    *status = 400;
    *why = "a line of a chunk that is none";
    free(line);
    return NULL;
}

/* "1a" or "1a;name=value", of which only the size matters. */
static bool read_size(const char *line, uint64_t *out)
{
    const size_t n = strspn(line, "0123456789abcdefABCDEF");
    if (n < 1 || n > DIGITS || (line[n] && line[n] != ';')) return false;
    *out = strtoull(line, NULL, 16);
    return true;
}

/* The size of a chunk, the end of its data, or a trailer. Returns as http_chunks_read() does;
 * 1: go on. */
static int read_line(http_chunks *k, struct evbuffer *in, const char **why)
{
    size_t n = 0;
    int    status = 0;
    char  *line = next_line(in, &n, &status, why);
    if (!line) return status;
    status = 1;
    if (k->at == CHUNK_TRAILERS) {
        k->trailers += n;
        if (n == 0) status = 200;
    } else if (k->at == CHUNK_END && n == 0) {
        k->at = CHUNK_SIZE;
    } else if (k->at == CHUNK_SIZE && read_size(line, &k->left)) {
        k->at = k->left ? CHUNK_DATA : CHUNK_TRAILERS;
    } else {
        status = 400;
        *why = "a chunk that is none";
    }
    if (k->trailers > TRAILERS_MOST) {
        status = 431;
        *why = "the trailers are too long";
    }
    free(line);
    return status;
}

/* Copied, since the buffer's pieces may be half empty. */
static bool copy_data(http_chunks *k, struct evbuffer *in, struct evbuffer *body)
{
    char piece[PIECE];
    while (k->left > 0 && evbuffer_get_length(in) > 0) {
        const int n = evbuffer_remove(in, piece, k->left < PIECE ? (size_t)k->left : PIECE);
        if (n <= 0 || evbuffer_add(body, piece, (size_t)n) != 0) return false;
        k->left -= (uint64_t)n;
    }
    return true;
}

int http_chunks_read(http_chunks *k, struct evbuffer *in, struct evbuffer *body, size_t most,
                     const char **why)
{
    int status = 1;
    while (status == 1) {
        if (k->at != CHUNK_DATA) {
            status = read_line(k, in, why);
            continue;
        }
        if (k->left > most - evbuffer_get_length(body)) {
            *why = "the body is too long";
            return 413;
        }
        if (!copy_data(k, in, body)) {
            *why = "out of memory";
            return 503;
        }
        if (k->left) return 0;
        k->at = CHUNK_END;
    }
    return status;
}
