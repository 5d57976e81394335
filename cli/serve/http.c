/* Connections of an HTTP server on libevent's buffers. */
#include "http.h"
#include "http_body.h"
#include "reserve.h"

#include "options/units.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    LINGER = 2,      /* seconds for a client to read why it is refused */
    BEYOND = 256,    /* connections over the limit that are told so; more are just closed */
    LISTENERS = 8,   /* addresses of a name */
    RETRY = 100,     /* milliseconds until the next try where the system has no descriptor left */
    SLOW = 1 << 20,  /* bytes a second, of the slowest line that may send files */
    SETTLE = 500,    /* milliseconds until free memory goes back to the system */
    UNREAD = 1 << 16 /* bytes of answers a client may leave unread before it is read again */
};

typedef enum http_state {
    READS_HEAD,
    READS_BODY,
    ANSWERS, /* the request is with the user */
    STREAMS, /* an answer has begun */
    LEAVES   /* the answer is complete; further input is discarded */
} http_state;

struct http_conn {
    http_server        *server;
    struct bufferevent *bev;
    struct event       *timer; /* of the whole request: a client cannot extend it byte by byte */
    http_state          state;
    http_head           head;
    char               *text; /* of the head */
    http_body           body;
    size_t              handling;   /* bytes of the memory of requests, while one is read */
    size_t              counted;    /* bytes that wait to be sent, in the memory of requests */
    bool                sends_file; /* part of what waits is a file, which needs no memory */
    void               *call;
    http_record         record;
    bool                in_read, broken;
    bool                behind; /* the client has not taken its answers yet */
    http_conn          *next, **link;
};

struct http_server {
    http_config            config;
    struct event_base     *base;
    int                    n_listeners; /* one for each address of a name */
    struct evconnlistener *listeners[LISTENERS];
    struct event          *retry, *settle; /* settle: memory is given back to the system */
    int                    settles;        /* that are to come */
    http_conn             *conns;
    int                    n;
};

void          http_set_call(http_conn *c, void *call) { c->call = call; }
void         *http_call(const http_conn *c) { return c->call; }
http_record  *http_record_of(http_conn *c) { return &c->record; }
serve_limits *http_limits(const http_conn *c) { return c->server->config.limits; }
const char   *http_file(const http_conn *c) { return c->body.wish.file; }
int           http_connections(const http_server *s) { return s->n; }
static void   go_on(http_conn *c);

bool http_take(http_conn *c, size_t bytes)
{
    if (!serve_memory_take(c->server->config.limits, bytes)) return false;
    c->handling += bytes;
    return true;
}

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
               {415, "Unsupported Media Type"},
               {417, "Expectation Failed"},
               {429, "Too Many Requests"},
               {431, "Request Header Fields Too Large"},
               {500, "Internal Server Error"},
               {501, "Not Implemented"},
               {503, "Service Unavailable"},
               {504, "Gateway Timeout"},
               {505, "HTTP Version Not Supported"},
               {507, "Insufficient Storage"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].status == status) return all[i].text;
    return "Status";
}

/* ---- life of a connection -------------------------------------------------------------------- */

/* Freed memory of requests is returned to the system soon, but not after each request. */
void http_settle(http_server *s)
{
    if (!serve_memory_is_slack(s->config.limits)) return;
    s->settles = 2; /* once more, since buffers are freed a little later than their requests */
    if (!evtimer_pending(s->settle, NULL))
        event_add(s->settle, &(struct timeval){0, SETTLE * 1000});
}

static void on_settle(evutil_socket_t fd, short what, void *user)
{
    http_server *s = user;
    (void)fd;
    (void)what;
    serve_memory_settle(s->config.limits);
    if (--s->settles > 0) event_add(s->settle, &(struct timeval){0, SETTLE * 1000});
}

/* Output that waits counts as memory of requests. */
static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *user)
{
    http_conn    *c = user;
    serve_limits *l = c->server->config.limits;
    const size_t  n = evbuffer_get_length(out), before = c->counted;
    (void)info;
    if (n == 0) c->sends_file = false;
    c->counted = c->sends_file && n > before ? before : n;
    if (c->counted < before) serve_memory_give(l, before - c->counted);
    if (c->counted <= before || serve_memory_add(l, c->counted - before)) return;
    if (c->counted <= UNREAD || c->broken) return; /* that much any connection may have */
    serve_limit_acts(l, SERVE_REQUEST_MEMORY);
    http_break(c);
}

static void conn_free(http_conn *c)
{
    http_server *s = c->server;
    *c->link = c->next;
    if (c->next) c->next->link = c->link;
    s->n--;
    if (c->timer) event_free(c->timer);
    if (c->bev) evbuffer_remove_cb(bufferevent_get_output(c->bev), on_output, c);
    if (c->bev) bufferevent_free(c->bev);
    serve_memory_give(s->config.limits, c->counted);
    http_body_end(&c->body);
    free(c->text);
    free(c);
    http_settle(s);
}

static bool set_timer(http_conn *c, double seconds)
{
    const struct timeval tv = {(time_t)seconds, (suseconds_t)((seconds - (time_t)seconds) * 1e6)};
    return event_add(c->timer, &tv) == 0;
}

/* Ids of clients are taken if they can be written anywhere as they are. */
static void begin_record(http_conn *c, const char *id)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789._-";
    const size_t      n = id ? strlen(id) : 0;
    uint64_t          random = 0;
    c->record = (http_record){.began = cli_now()};
    evutil_secure_rng_get_bytes(&random, sizeof random);
    if (n >= 1 && n <= HTTP_ID && strspn(id, letters) == n)
        memcpy(c->record.id, id, n);
    else
        snprintf(c->record.id, sizeof c->record.id, "%016llx", (unsigned long long)random);
}

static void end_record(http_conn *c)
{
    c->server->config.ended(c->server->config.user, &c->head, &c->record);
    c->record = (http_record){0};
}

/* The client is gone, or can no longer be answered. */
static void lose_client(http_conn *c)
{
    const bool waits = c->state == ANSWERS || c->state == STREAMS;
    if (c->call && waits) c->server->config.leave(c->server->config.user, c);
    c->record.left = true;
    if (waits) end_record(c);
    conn_free(c);
}

static void on_event(struct bufferevent *bev, short what, void *user)
{
    (void)bev;
    (void)what;
    lose_client(user);
}

/* Refused: the answer is sent and only the sending side closed. Closing both would reset the
 * connection while the client still sends, and it would not read the answer. */
static void begin_leaving(http_conn *c)
{
    c->state = LEAVES;
    set_timer(c, LINGER);
}

/* Reading pauses at this many bytes of unprocessed input. */
static void bound_input(http_conn *c, size_t bytes)
{
    bufferevent_setwatermark(c->bev, EV_READ, 0, bytes + 1);
}

/* The next request is read when the client has taken its answers: otherwise a client that only
 * sends would make the server keep an answer for each request. Until then the write timeout is
 * its limit. */
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

static void put_output(http_conn *c, const void *data, size_t bytes)
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
    const time_t now = time(NULL);
    struct tm    utc;
    char         date[40] = "";
    if (gmtime_r(&now, &utc))
        strftime(date, sizeof date, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &utc);
    c->record.status = status;
    put_text(c,
             "HTTP/1.1 %d %s\r\n%sX-Request-Id: %s\r\nContent-Type: %s\r\nConnection: %s\r\n%s%s",
             status, reason_of(status), date, c->record.id, type,
             c->head.keep ? "keep-alive" : "close", c->server->config.extra, extra ? extra : "");
    c->server->config.answered(c->server->config.user, &c->head, status);
}

/* The request has ended. */
static void finish_request(http_conn *c)
{
    c->call = NULL;
    http_body_end(&c->body);
    end_record(c);
    http_settle(c->server);
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
    if (bytes && !(c->head.method && strcmp(c->head.method, "HEAD") == 0))
        put_output(c, data, bytes);
    finish_request(c);
}

static void free_taken(const void *data, size_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    free((void *)(uintptr_t)data);
}

void http_reply_taken(http_conn *c, int status, const char *type, char *data, size_t bytes)
{
    if (bytes <= UNREAD || strcmp(c->head.method, "HEAD") == 0) {
        http_reply(c, status, type, NULL, data, bytes);
        free(data);
        return;
    }
    put_head(c, status, type, NULL);
    put_text(c, "Content-Length: %zu\r\n\r\n", bytes);
    if (c->broken || evbuffer_add_reference(bufferevent_get_output(c->bev), data, bytes, free_taken,
                                            NULL) != 0) {
        free(data);
        http_break(c);
    }
    finish_request(c);
}

bool http_reply_file(http_conn *c, const char *type, const char *path)
{
    struct stat how;
    const int   fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    if (fstat(fd, &how) != 0 || !S_ISREG(how.st_mode)) {
        close(fd);
        return false;
    }
    put_head(c, 200, type, NULL);
    put_text(c, "Content-Length: %lld\r\n\r\n", (long long)how.st_size);
    const bool head = strcmp(c->head.method, "HEAD") == 0;
    if (c->broken || head || how.st_size == 0) {
        close(fd);
    } else {
        c->sends_file = true;
        if (evbuffer_add_file(bufferevent_get_output(c->bev), fd, 0, how.st_size) != 0) {
            close(fd);
            http_break(c);
        }
    }
    finish_request(c);
    return true;
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
    put_output(c, data, bytes);
    if (c->head.minor) put_output(c, "\r\n", 2);
    if (c->broken ||
        evbuffer_get_length(bufferevent_get_output(c->bev)) <= c->server->config.unread)
        return;
    serve_limit_acts(c->server->config.limits, SERVE_MAX_ANSWER);
    http_break(c);
}

void http_stream_end(http_conn *c)
{
    if (c->head.minor) put_output(c, "0\r\n\r\n", 5);
    finish_request(c);
}

/* An error of the request itself: where the next one would begin is not known. */
static void turn_away(http_conn *c, int status, serve_limit acts, const char *why)
{
    const http_config *config = &c->server->config;
    char              *text = config->error(config->user, status, acts, why);
    if (acts) serve_limit_acts(config->limits, acts);
    c->head.keep = false;
    if (!c->record.id[0]) begin_record(c, NULL);
    http_reply(c, status, "application/json", status == 503 ? "Retry-After: 1\r\n" : NULL,
               text ? text : "{}", text ? strlen(text) : 2);
    free(text);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Whether the body of a request is to be read; if not, the request has been answered. A body
 * that is not read ends the connection. */
static bool admit_request(http_conn *c, http_wish *wish)
{
    const http_config *config = &c->server->config;
    const bool         keep = c->head.keep;
    *wish = (http_wish){.most = config->body, .limit = SERVE_MAX_BODY};
    c->head.keep = keep && !c->head.length && !c->head.chunked;
    c->state = ANSWERS;
    if (!config->admit(config->user, c, &c->head, wish)) return false;
    c->head.keep = keep;
    c->state = READS_BODY;
    return true;
}

/* Takes the head out of what has come. false: it is not all there, or the request has been
 * answered. */
static bool take_head(http_conn *c)
{
    struct evbuffer          *in = bufferevent_get_input(c->bev);
    const struct evbuffer_ptr found = evbuffer_search(in, "\r\n\r\n", 4, NULL);
    const char               *why = "";
    const size_t have = evbuffer_get_length(in), n = found.pos < 0 ? have : (size_t)found.pos + 4;
    c->head.method = NULL; /* that of the request before */
    if (n > c->server->config.head) {
        turn_away(c, 431, SERVE_MAX_HEADERS, "the headers are too long");
        return false;
    }
    if (found.pos < 0) return false;
    free(c->text);
    c->text = malloc(n + 1);
    if (!c->text) {
        turn_away(c, 503, SERVE_NO_LIMIT, "out of memory");
        return false;
    }
    if (evbuffer_remove(in, c->text, n) != (int)n) {
        http_break(c);
        c->state = LEAVES;
        return false;
    }
    const int status = http_head_read(c->text, n, &c->head, &why);
    begin_record(c, http_header(&c->head, "x-request-id"));
    if (status) turn_away(c, status, SERVE_NO_LIMIT, why);
    return !status;
}

/* Returns whether there is something to go on with. */
static bool read_head(http_conn *c)
{
    const http_config *config = &c->server->config;
    struct evbuffer   *in = bufferevent_get_input(c->bev);
    const char        *why = "";
    serve_limit        acts = SERVE_NO_LIMIT;
    http_wish          wish;
    if (!take_head(c)) return false;
    if (!admit_request(c, &wish)) return true;
    const int status = http_body_begin(&c->body, &wish, &c->head, config->limits, &acts, &why);
    if (status) {
        turn_away(c, status, acts, why);
        return false;
    }
    const size_t wants = c->head.chunked ? 1 : (size_t)c->head.length;
    if (c->head.expect && evbuffer_get_length(in) < wants)
        put_output(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    bound_input(c, config->head + http_body_waits(&c->body));
    /* A large file gets the time that a slow line needs. */
    if (wish.file[0]) set_timer(c, config->seconds + (double)c->head.length / SLOW);
    return true;
}

static bool read_body(http_conn *c)
{
    struct evbuffer   *in = bufferevent_get_input(c->bev);
    const http_config *config = &c->server->config;
    const char        *why = "";
    serve_limit        acts = SERVE_NO_LIMIT;
    const int          status = http_body_read(&c->body, in, &acts, &why);
    if (status && status != 200) turn_away(c, status, acts, why);
    if (status != 200) return false;
    const size_t n = c->body.wish.file[0] ? 0 : (size_t)c->body.length;
    char        *body = http_body_bytes(&c->body, in);
    if (!body) {
        turn_away(c, 503, SERVE_NO_LIMIT, "out of memory");
        return false;
    }
    bound_input(c, config->head);
    event_del(c->timer);
    c->state = ANSWERS;
    http_body taken = c->body; /* counted until the request was read */
    if (taken.wish.file[0])
        http_body_pass(&c->body);
    else
        c->body = (http_body){.file = -1};
    config->request(config->user, c, &c->head, body, n);
    free(body);
    serve_memory_give(config->limits, c->handling);
    c->handling = 0;
    if (!taken.wish.file[0]) http_body_end(&taken);
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

/* A request that takes too long to arrive; a connection on which none began is closed silently. */
static void on_timer(evutil_socket_t fd, short what, void *user)
{
    http_conn *c = user;
    (void)fd;
    (void)what;
    if (c->broken) {
        lose_client(c);
        return;
    }
    const bool began = c->state == READS_BODY ||
                       (c->state == READS_HEAD &&
                        evbuffer_get_length(bufferevent_get_input(c->bev)) > 0);
    if (began)
        turn_away(c, 408, SERVE_CLIENT_SECONDS, "the request took too long to arrive");
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
    c->body.file = -1;
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
    if (!evbuffer_add_cb(bufferevent_get_output(c->bev), on_output, c)) {
        conn_free(c);
        return;
    }
    bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
    bound_input(c, s->config.head);
    const struct timeval write = {(time_t)s->config.seconds, 0};
    bufferevent_set_timeouts(c->bev, NULL, &write);
    if (bufferevent_enable(c->bev, EV_READ | EV_WRITE) != 0 || !set_timer(c, s->config.seconds)) {
        conn_free(c);
        return;
    }
    if (s->n > s->config.connections) turn_away(c, 503, SERVE_CONNECTIONS, "too many connections");
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
    for (int i = 0; i < s->n_listeners; i++) evconnlistener_enable(s->listeners[i]);
}

http_server *http_create(struct event_base *base, const http_config *config)
{
    http_server *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->config = *config;
    s->base = base;
    s->retry = evtimer_new(base, on_retry, s);
    s->settle = evtimer_new(base, on_settle, s);
    if (s->retry && s->settle) return s;
    http_destroy(s);
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

static void set_port(struct sockaddr *a, int port)
{
    const in_port_t number = htons((uint16_t)port);
    if (a->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)a)->sin6_port = number;
    else
        ((struct sockaddr_in *)a)->sin_port = number;
}

static bool listen_on(http_server *s, const struct sockaddr *at, socklen_t size, const char *name,
                      char *why)
{
    const unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_EXEC |
                           LEV_OPT_DISABLED;
    struct evconnlistener *l = evconnlistener_new_bind(s->base, on_accept, s, flags, 1024, at,
                                                       (int)size);
    if (!l) {
        snprintf(why, 160, "%.100s: cannot listen: %s", name,
                 evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
        return false;
    }
    if (evconnlistener_enable(l) != 0) { /* which libevent itself would not look at */
        evconnlistener_free(l);
        snprintf(why, 160, "out of memory");
        return false;
    }
    evconnlistener_set_error_cb(l, on_accept_error);
    s->listeners[s->n_listeners++] = l;
    return true;
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
    char name[100], ignored[160];
    snprintf(name, sizeof name, "%.80s port %d", host, *port);
    for (struct addrinfo *a = found; a && s->n_listeners < LISTENERS; a = a->ai_next) {
        if (s->n_listeners) set_port(a->ai_addr, *port); /* that of the first one */
        if (!listen_on(s, a->ai_addr, a->ai_addrlen, name, s->n_listeners ? ignored : why))
            continue;
        if (s->n_listeners == 1) *port = port_of(evconnlistener_get_fd(s->listeners[0]));
    }
    freeaddrinfo(found);
    return s->n_listeners > 0;
}

/* A socket that a server has left behind goes; one that is listened on stays. */
static void remove_stale(const struct sockaddr_un *at)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    if (connect(fd, (const struct sockaddr *)at, sizeof *at) != 0 && errno == ECONNREFUSED)
        unlink(at->sun_path);
    close(fd);
}

bool http_listen_unix(http_server *s, const char *path, char *why)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path) {
        snprintf(why, 160, "%.80s: the path of a socket has at most %zu bytes", path,
                 sizeof at.sun_path - 1);
        return false;
    }
    memcpy(at.sun_path, path, strlen(path));
    remove_stale(&at);
    if (!listen_on(s, (struct sockaddr *)&at, sizeof at, path, why)) return false;
    if (chmod(path, 0660) == 0) return true;
    snprintf(why, 160, "%.80s: %s", path, strerror(errno));
    return false;
}

void http_deaf(http_server *s)
{
    while (s->n_listeners > 0) evconnlistener_free(s->listeners[--s->n_listeners]);
}

void http_destroy(http_server *s)
{
    if (!s) return;
    http_deaf(s);
    while (s->conns) conn_free(s->conns);
    if (s->retry) event_free(s->retry);
    if (s->settle) event_free(s->settle);
    free(s);
}
