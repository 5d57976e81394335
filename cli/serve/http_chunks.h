/* Bodies that come in chunks [RFC 9112, 7.1], from one buffer into another. */
#ifndef DRA_CLI_SERVE_HTTP_CHUNKS_H
#define DRA_CLI_SERVE_HTTP_CHUNKS_H

#include <event2/buffer.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct http_chunks {
    enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_END, CHUNK_TRAILERS } at;
    uint64_t left;     /* of the chunk */
    size_t   trailers; /* bytes of trailer lines, which are ignored */
} http_chunks;         /* starts as {0} */

/* Takes what there is. Returns 0: more must come; 200: the body is whole; or the status to answer
 * with and *why, where it is broken or has more than `most` bytes. */
int http_chunks_read(http_chunks *k, struct evbuffer *in, struct evbuffer *body, size_t most,
                     const char **why);

#endif
