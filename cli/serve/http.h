/* HTTP/1.1 for a server on one event loop: connections with bounds on everything a client decides
 * about, one request of each at a time. libevent brings the loop, sockets and buffers; requests are
 * read here, because evhttp of libevent 2.1 does not listen for a client that leaves while it is
 * being answered, has no bound on connections, and answers bad requests in a form of its own.
 *
 * A request is answered by http_reply(), or by http_stream_begin(), any number of
 * http_stream_put() and http_stream_end(), at once or later. `leave` is called instead if the
 * client is gone before. */
#ifndef DRA_CLI_SERVE_HTTP_H
#define DRA_CLI_SERVE_HTTP_H

#include "http_head.h"

#include <event2/event.h>

typedef struct http_server http_server;
typedef struct http_conn   http_conn;

typedef struct http_config {
    size_t      head, body;  /* bytes of a request at most */
    int         connections; /* at a time; more are answered with 503 and closed */
    double      seconds;     /* in which a request must have arrived, and a client takes answers */
    const char *extra;       /* header lines of every answer, each with its end */
    /* Looks at a request before its body is read. false: it has been answered. */
    bool (*admit)(void *user, http_conn *c, const http_head *head);
    void (*request)(void *user, http_conn *c, const http_head *head, const char *body,
                    size_t bytes);
    /* The body of an error that is found here. Returns a text to be freed, NULL: no memory. */
    char *(*error)(void *user, int status, const char *why);
    void (*answered)(void *user, const http_head *head, int status); /* every answer, for counts */
    void (*leave)(void *user, http_conn *c);
    void *user;
} http_config;

/* config is copied. NULL: no memory. */
http_server *http_create(struct event_base *base, const http_config *config);
/* *port 0: any that is free; it is then told. false: `why` (160 bytes) says what is wrong. */
bool http_listen(http_server *s, const char *host, int *port, char *why);
void http_deaf(http_server *s);    /* takes no further connections */
void http_destroy(http_server *s); /* closes all connections without a word; NULL is allowed */
int  http_connections(const http_server *s);
bool http_flushed(const http_server *s); /* all answers have been sent */

/* What a request belongs to; NULL before it is set. */
void  http_set_call(http_conn *c, void *call);
void *http_call(const http_conn *c);

/* `extra` header lines or NULL. */
void http_reply(http_conn *c, int status, const char *type, const char *extra, const char *data,
                size_t bytes);
void http_stream_begin(http_conn *c, const char *type);
void http_stream_put(http_conn *c, const char *data, size_t bytes);
void http_stream_end(http_conn *c);
/* Nothing right can be said any more, for want of memory: the connection is closed in the middle of
 * the answer, and `leave` is called where a request waits. */
void http_break(http_conn *c);

#endif
