/* The head of an HTTP request: its line and its headers. */
#ifndef DRA_CLI_SERVE_HTTP_HEAD_H
#define DRA_CLI_SERVE_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_HEADERS = 64, HTTP_PATH = 512 };

typedef struct http_head {
    const char *method;
    char        path[HTTP_PATH]; /* decoded, without the query */
    const char *query;           /* as it came; "": none */
    int         minor;           /* of HTTP/1. */
    int         n;
    struct {
        const char *name, *value; /* names in small letters */
    } header[HTTP_HEADERS];
    uint64_t length;  /* of the body */
    bool     chunked; /* its length is said with each part */
    bool     keep;    /* the connection is used again */
    bool     expect;  /* Expect: 100-continue: the client waits before it sends the body */
} http_head;

/* Reads `bytes` of text, the empty line at the end included; the text is changed and kept in use.
 * Returns 0, or the status to answer with and *why. */
int http_head_read(char *text, size_t bytes, http_head *out, const char **why);

const char *http_header(const http_head *h, const char *name); /* NULL: there is none */
/* The value of a key of the query, decoded; false: it is not there, broken, or too long. */
bool http_query(const http_head *h, const char *key, char *value, size_t size);
/* Undoes %41 in place; false: something else, or a zero. */
bool http_decode(char *text);

#endif
