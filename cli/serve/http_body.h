/* The body of a request as it comes: in memory, counted against the limit of requests before it is
 * there, or straight to a file. */
#ifndef DRA_CLI_SERVE_HTTP_BODY_H
#define DRA_CLI_SERVE_HTTP_BODY_H

#include "http_chunks.h"
#include "http_head.h"
#include "limits.h"

enum { HTTP_FILE = 640 };

typedef struct http_wish {       /* what becomes of a body */
    size_t      most;            /* bytes it may have */
    serve_limit limit;           /* which that is */
    char        file[HTTP_FILE]; /* to be made for it, and gone when the request has ended; "": it
                                    comes to memory */
} http_wish;

typedef struct http_body {
    serve_limits    *limits;
    http_wish        wish;
    uint64_t         announced, length; /* length: of what is not announced, so far */
    bool             chunked;
    http_chunks      chunks;
    struct evbuffer *buffer; /* of chunks so far, or on their way to the file */
    int              file;
    size_t           taken; /* of the memory of requests */
} http_body;                /* starts as {0} */

/* These return 0, or the status to answer with, *why, and the limit that acts, if one does. */
int http_body_begin(http_body *b, const http_wish *wish, const http_head *h, serve_limits *limits,
                    serve_limit *acts, const char **why);
/* Takes what has come; 200: it is whole. */
int http_body_read(http_body *b, struct evbuffer *in, serve_limit *acts, const char **why);
/* The bytes of a whole body in memory, with a 0 after them, to be freed; NULL: no memory. */
char *http_body_bytes(http_body *b, struct evbuffer *in);
/* Bytes of input that may wait until they are taken. */
size_t http_body_waits(const http_body *b);
/* Frees its memory; the file stays. */
void http_body_pass(http_body *b);
void http_body_end(http_body *b); /* the file goes, too */

#endif
