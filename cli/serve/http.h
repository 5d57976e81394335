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

#include "http_body.h"

#include <event2/event.h>

typedef struct http_server http_server;
typedef struct http_conn   http_conn;

enum { HTTP_ID = 64 };

/* What is known of a request when it has ended. */
typedef struct http_record {
    char id[HTTP_ID + 1]; /* the client's, or one that was made; answers have it as X-Request-Id */
    int  status;          /* 0: the client left before there was an answer */
    bool left;            /* the client did not wait for the end */
    double began;         /* seconds of cli_now(), when the head had come */
    /* For who answers to fill in. */
    double   first; /* when the first token was written; 0: none was */
    char     key[HTTP_ID + 1], model[HTTP_ID + 1];
    uint64_t owner;   /* the key's */
    bool     reads;   /* the key may change nothing */
    bool     rules;   /* it sees what is others' */
    bool     counted; /* there are tokens to tell: */
    int64_t  prompt, cached, written;
} http_record;

typedef struct http_config {
    size_t        head, body; /* bytes of a request at most */
    size_t        unread;     /* of a stream that a client leaves unread */
    serve_limits *limits;
    int           connections; /* at a time; more are answered with 503 and closed */
    double        seconds; /* in which a request must have arrived, and a client takes answers */
    const char   *extra;   /* header lines of every answer, each with its end */
    /* Looks at a request before its body is read, and may wish where that goes. false: it has been
     * answered. */
    bool (*admit)(void *user, http_conn *c, const http_head *head, http_wish *wish);
    void (*request)(void *user, http_conn *c, const http_head *head, const char *body,
                    size_t bytes);
    /* The body of an error that is found here. Returns a text to be freed, NULL: no memory. */
    char *(*error)(void *user, int status, serve_limit acts, const char *why);
    void (*answered)(void *user, const http_head *head, int status); /* every answer, for counts */
    void (*leave)(void *user, http_conn *c);
    /* The end of every request, however it ended; head->method is NULL where none was
     * understood. */
    void (*ended)(void *user, const http_head *head, const http_record *record);
    void *user;
} http_config;

/* config is copied. NULL: no memory. */
http_server *http_create(struct event_base *base, const http_config *config);
/* *port 0: any that is free; it is then told. false: `why` (160 bytes) says what is wrong. */
bool http_listen(http_server *s, const char *host, int *port, char *why);
/* A socket in the file system, for this user and group. */
bool http_listen_unix(http_server *s, const char *path, char *why);
void http_deaf(http_server *s);    /* takes no further connections */
void http_destroy(http_server *s); /* closes all connections at once; NULL is allowed */
int  http_connections(const http_server *s);
/* Freed memory is returned to the system in a moment, if it is much. */
void http_settle(http_server *s);
bool http_flushed(const http_server *s); /* all answers have been sent */

/* What a request belongs to; NULL before it is set. */
void  http_set_call(http_conn *c, void *call);
void *http_call(const http_conn *c);

http_record *http_record_of(http_conn *c);
/* Takes bytes of the memory of requests until this one's `request` has returned. */
bool          http_take(http_conn *c, size_t bytes);
serve_limits *http_limits(const http_conn *c);
/* The file that the body of a request went to, while the request is answered; "": none. */
const char *http_file(const http_conn *c);

/* `extra` header lines or NULL. */
void http_reply(http_conn *c, int status, const char *type, const char *extra, const char *data,
                size_t bytes);
/* The same; `data`, which malloc gave, is taken. */
void http_reply_taken(http_conn *c, int status, const char *type, char *data, size_t bytes);
/* A file as it is now, even if it is renamed or removed later; it is not read into memory.
 * false: there is no such file, and nothing was sent. */
bool http_reply_file(http_conn *c, const char *type, const char *path);
void http_stream_begin(http_conn *c, const char *type);
void http_stream_put(http_conn *c, const char *data, size_t bytes);
void http_stream_end(http_conn *c);
/* Out of memory in the middle of an answer: the connection is closed, and `leave` is called
 * where a request waits. */
void http_break(http_conn *c);

#endif
