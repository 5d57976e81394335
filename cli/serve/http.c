/* Connections of an HTTP server on libevent's buffers. */
#include "http.h"
#include "reserve.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    LINGER = 2,      /* seconds for a client to read why it is turned away */
    BEYOND = 256,    /* connections over the limit that are told so; more are just closed */
    RETRY = 100,     /* milliseconds until the next try where the system has no descriptor left */
    UNREAD = 1 << 16 /* bytes of answers a client may leave unread before it is read again */
};

typedef enum http_state {
    READS_HEAD,
    READS_BODY,
    ANSWERS, /* the request is with the user */
    STREAMS, /* an answer has begun */
    LEAVES   /* all is said; what still comes is thrown away */
} http_state;

struct http_conn {
    http_server        *server;
    struct bufferevent *bev;
    struct event       *timer; /* of the whole request: a client cannot win time byte by byte */
    http_state          state;
    http_head           head;
    char               *text; /* of the head */
    void               *call;
    bool                in_read, broken;
    bool                behind; /* the client has yet to take its answers */
    http_conn          *next, **link;
};

struct http_server {
    http_config            config;
    struct event_base     *base;
    struct evconnlistener *listener;
    struct event          *retry;
    http_conn             *conns;
    int                    n;
};

void        http_set_call(http_conn *c, void *call) { c->call = call; }
void       *http_call(const http_conn *c) { return c->call; }
int         http_connections(const http_server *s) { return s->n; }
static void go_on(http_conn *c);

bool http_flushed(const http_server *s)
{
    for (const http_conn *c = s->conns; c; c = c->next)
        if (evbuffer_get_length(bufferevent_get_output(c->bev))) return false;
    return true;
}

static const char *reason_of(int status)
{
    static const struct {
        int         status;
        const char *text;
    } all[] = {{200, "OK"},
               {201, "Created"},
               {204, "No Content"},
               {400, "Bad Request"},
               {401, "Unauthorized"},
               {403, "Forbidden"},
               {404, "Not Found"},
               {405, "Method Not Allowed"},
               {408, "Request Timeout"},
               {409, "Conflict"},
               {411, "Length Required"},
               {413, "Content Too Large"},
               {414, "URI Too Long"},
               {417, "Expectation Failed"},
               {429, "Too Many Requests"},
               {431, "Request Header Fields Too Large"},
               {500, "Internal Server Error"},
               {503, "Service Unavailable"},
               {504, "Gateway Timeout"},
               {505, "HTTP Version Not Supported"},
               {507, "Insufficient Storage"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].status == status) return all[i].text;
    return "Status";
}

/* ---- life of a connection -------------------------------------------------------------------- */

static void conn_free(http_conn *c)
{
    *c->link = c->next;
    if (c->next) c->next->link = c->link;
    c->server->n--;
    if (c->timer) event_free(c->timer);
    if (c->bev) bufferevent_free(c->bev);
    free(c->text);
    free(c);
}

static bool set_timer(http_conn *c, double seconds)
{
    const struct timeval tv = {(time_t)seconds, (suseconds_t)((seconds - (time_t)seconds) * 1e6)};
    return event_add(c->timer, &tv) == 0;
}

/* The client is gone, or nothing can be said to it any more. */
static void lose(http_conn *c)
{
    if (c->call && (c->state == ANSWERS || c->state == STREAMS))
        c->server->config.leave(c->server->config.user, c);
    conn_free(c);
}

static void on_event(struct bufferevent *bev, short what, void *user)
{
    (void)bev;
    (void)what;
    lose(user);
}

/* Turned away: the answer is sent and the sending side closed, so that the client reads it, which
 * it would not after a reset for what it still sends. */
static void begin_leaving(http_conn *c)
{
    c->state = LEAVES;
    set_timer(c, LINGER);
}

/* Reading stops at `bytes` that nobody has taken yet. */
static void bound_input(http_conn *c, size_t bytes)
{
    bufferevent_setwatermark(c->bev, EV_READ, 0, bytes + 1);
}

/* The next request is read when the client has taken its answers: else one that only sends would
 * make the server keep an answer for each. Until then the timeout of writing is its limit. */
static void await_request(http_conn *c)
{
    c->state = READS_HEAD;
    c->behind = evbuffer_get_length(bufferevent_get_output(c->bev)) > UNREAD;
    bound_input(c, c->server->config.head);
    if (c->behind)
        event_del(c->timer);
    else
        set_timer(c, c->server->config.seconds);
}

static void on_written(struct bufferevent *bev, void *user)
{
    http_conn *c = user;
    if (c->state == LEAVES) shutdown(bufferevent_getfd(bev), SHUT_WR);
    if (c->state != READS_HEAD || !c->behind) return;
    await_request(c);
    go_on(c);
}

/* ---- answers --------------------------------------------------------------------------------- */

void http_break(http_conn *c)
{
    c->broken = true;
    set_timer(c, 0);
}

static void put(http_conn *c, const void *data, size_t bytes)
{
    if (!c->broken && evbuffer_add(bufferevent_get_output(c->bev), data, bytes) != 0) http_break(c);
}

static void put_text(http_conn *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put_text(http_conn *c, const char *format, ...)
{
    va_list list;
    if (c->broken) return;
    va_start(list, format);
    if (evbuffer_add_vprintf(bufferevent_get_output(c->bev), format, list) < 0) http_break(c);
    va_end(list);
}

static void put_head(http_conn *c, int status, const char *type, const char *extra)
{
    put_text(c, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nConnection: %s\r\n%s%s", status,
             reason_of(status), type, c->head.keep ? "keep-alive" : "close",
             c->server->config.extra, extra ? extra : "");
    c->server->config.answered(c->server->config.user, &c->head, status);
}

/* The request is done with. */
static void finish(http_conn *c)
{
    c->call = NULL;
    if (c->broken) {
        c->state = LEAVES;
        return;
    }
    if (!c->head.keep) {
        begin_leaving(c);
        return;
    }
    await_request(c);
    if (!c->in_read) go_on(c);
}

void http_reply(http_conn *c, int status, const char *type, const char *extra, const char *data,
                size_t bytes)
{
    put_head(c, status, type, extra);
    put_text(c, "Content-Length: %zu\r\n\r\n", bytes);
    if (bytes && !(c->head.method && strcmp(c->head.method, "HEAD") == 0)) put(c, data, bytes);
    finish(c);
}

void http_stream_begin(http_conn *c, const char *type)
{
    if (!c->head.minor) c->head.keep = false; /* the end of the answer is that of the connection */
    put_head(c, 200, type, "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n");
    put_text(c, "%s\r\n", c->head.minor ? "Transfer-Encoding: chunked\r\n" : "");
    c->state = STREAMS;
}

void http_stream_put(http_conn *c, const char *data, size_t bytes)
{
    if (!bytes) return; /* an empty chunk is the end */
    if (c->head.minor) put_text(c, "%zx\r\n", bytes);
    put(c, data, bytes);
    if (c->head.minor) put(c, "\r\n", 2);
}

void http_stream_end(http_conn *c)
{
    if (c->head.minor) put(c, "0\r\n\r\n", 5);
    finish(c);
}

/* An error of the request itself, after which nothing is known about what follows. */
static void turn_away(http_conn *c, int status, const char *why)
{
    const http_config *config = &c->server->config;
    char              *text = config->error(config->user, status, why);
    c->head.keep = false;
    http_reply(c, status, "application/json", status == 503 ? "Retry-After: 1\r\n" : NULL,
               text ? text : "{}", text ? strlen(text) : 2);
    free(text);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Whether the body of a request is wanted; if not, it has been answered. A body that is not read
 * ends the connection. */
static bool admit_request(http_conn *c)
{
    const http_config *config = &c->server->config;
    const bool         keep = c->head.keep;
    c->head.keep = keep && !c->head.length;
    c->state = ANSWERS;
    if (!config->admit(config->user, c, &c->head)) return false;
    c->head.keep = keep;
    c->state = READS_BODY;
    return true;
}

/* Returns whether there is something to go on with. */
static bool read_head(http_conn *c)
{
    struct evbuffer          *in = bufferevent_get_input(c->bev);
    const struct evbuffer_ptr found = evbuffer_search(in, "\r\n\r\n", 4, NULL);
    const http_config        *config = &c->server->config;
    const char               *why = "";
    const size_t have = evbuffer_get_length(in), n = found.pos < 0 ? have : (size_t)found.pos + 4;
    if (n > config->head) {
        turn_away(c, 431, "the headers are too long");
        return false;
    }
    if (found.pos < 0) return false;
    free(c->text);
    c->text = malloc(n + 1);
    if (!c->text) {
        turn_away(c, 503, "out of memory");
        return false;
    }
    if (evbuffer_remove(in, c->text, n) != (int)n) {
        http_break(c);
        c->state = LEAVES;
        return false;
    }
    int status = http_head_read(c->text, n, &c->head, &why);
    if (!status && c->head.length > config->body) {
        status = 413;
        why = "the body is too long";
    }
    if (status) {
        turn_away(c, status, why);
        return false;
    }
    if (!admit_request(c)) return true;
    if (c->head.expect && evbuffer_get_length(in) < c->head.length)
        put(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    bound_input(c, config->head + (size_t)c->head.length);
    return true;
}

static bool read_body(http_conn *c)
{
    struct evbuffer   *in = bufferevent_get_input(c->bev);
    const http_config *config = &c->server->config;
    const size_t       n = (size_t)c->head.length;
    if (evbuffer_get_length(in) < n) return false;
    char *body = malloc(n + 1);
    if (!body) {
        turn_away(c, 503, "out of memory");
        return false;
    }
    evbuffer_remove(in, body, n);
    body[n] = '\0';
    bound_input(c, config->head);
    event_del(c->timer);
    c->state = ANSWERS;
    config->request(config->user, c, &c->head, body, n);
    free(body);
    return true;
}

static void go_on(http_conn *c)
{
    bool more = true;
    c->in_read = true;
    while (more)
        more = c->state == READS_HEAD   ? !c->behind && read_head(c)
               : c->state == READS_BODY ? read_body(c)
                                        : false;
    c->in_read = false;
    if (c->state == LEAVES)
        evbuffer_drain(bufferevent_get_input(c->bev),
                       evbuffer_get_length(bufferevent_get_input(c->bev)));
}

static void on_read(struct bufferevent *bev, void *user)
{
    (void)bev;
    go_on(user);
}

/* A request that takes too long to arrive; one that never began is let go without a word. */
static void on_timer(evutil_socket_t fd, short what, void *user)
{
    http_conn *c = user;
    (void)fd;
    (void)what;
    if (c->broken) {
        lose(c);
        return;
    }
    const bool began = c->state == READS_BODY ||
                       (c->state == READS_HEAD &&
                        evbuffer_get_length(bufferevent_get_input(c->bev)) > 0);
    if (began)
        turn_away(c, 408, "the request took too long to arrive");
    else
        conn_free(c);
}

/* ---- listening ------------------------------------------------------------------------------- */

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *peer, int size,
                      void *user)
{
    http_server *s = user;
    const bool   room = s->n < s->config.connections + BEYOND && !http_reserve_low();
    http_conn   *c = room ? calloc(1, sizeof *c) : NULL;
    (void)l;
    (void)peer;
    (void)size;
    if (!c) {
        evutil_closesocket(fd);
        return;
    }
    c->server = s;
    c->link = &s->conns;
    c->next = s->conns;
    if (c->next) c->next->link = &c->next;
    s->conns = c;
    s->n++;
    c->bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
    c->timer = evtimer_new(s->base, on_timer, c);
    if (!c->bev) evutil_closesocket(fd);
    if (!c->bev || !c->timer) {
        conn_free(c);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
    bound_input(c, s->config.head);
    const struct timeval write = {(time_t)s->config.seconds, 0};
    bufferevent_set_timeouts(c->bev, NULL, &write);
    if (bufferevent_enable(c->bev, EV_READ | EV_WRITE) != 0 || !set_timer(c, s->config.seconds)) {
        conn_free(c);
        return;
    }
    if (s->n > s->config.connections) turn_away(c, 503, "too many connections");
}

/* Out of descriptors, most likely: connections wait a moment instead of keeping the loop busy. */
static void on_accept_error(struct evconnlistener *l, void *user)
{
    http_server *s = user;
    evconnlistener_disable(l);
    event_add(s->retry, &(struct timeval){0, RETRY * 1000});
}

static void on_retry(evutil_socket_t fd, short what, void *user)
{
    http_server *s = user;
    (void)fd;
    (void)what;
    if (s->listener) evconnlistener_enable(s->listener);
}

http_server *http_create(struct event_base *base, const http_config *config)
{
    http_server *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->config = *config;
    s->base = base;
    s->retry = evtimer_new(base, on_retry, s);
    if (s->retry) return s;
    free(s);
    return NULL;
}

static int port_of(evutil_socket_t fd)
{
    struct sockaddr_storage a = {0};
    socklen_t               size = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &size) != 0) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

bool http_listen(http_server *s, const char *host, int *port, char *why)
{
    struct addrinfo *found = NULL, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char             service[16];
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    snprintf(service, sizeof service, "%d", *port);
    const int failed = getaddrinfo(host, service, &hints, &found);
    if (failed) {
        snprintf(why, 160, "%.80s: %s", host, gai_strerror(failed));
        return false;
    }
    const unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC |
                           LEV_OPT_DISABLED;
    s->listener = evconnlistener_new_bind(s->base, on_accept, s, flags, 1024, found->ai_addr,
                                          (int)found->ai_addrlen);
    freeaddrinfo(found);
    if (!s->listener) {
        snprintf(why, 160, "%.80s port %d: cannot listen: %s", host, *port,
                 evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
        return false;
    }
    if (evconnlistener_enable(s->listener) != 0) { /* which libevent itself would not look at */
        snprintf(why, 160, "out of memory");
        return false;
    }
    evconnlistener_set_error_cb(s->listener, on_accept_error);
    *port = port_of(evconnlistener_get_fd(s->listener));
    return true;
}

void http_deaf(http_server *s)
{
    if (s->listener) evconnlistener_free(s->listener);
    s->listener = NULL;
}

void http_destroy(http_server *s)
{
    if (!s) return;
    http_deaf(s);
    while (s->conns) conn_free(s->conns);
    event_free(s->retry);
    free(s);
}
