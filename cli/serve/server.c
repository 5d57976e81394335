/* The event loop: mail from engines, signals, the clock, and an orderly end. */
#include "shelf.h"

#include "reserve.h"
#include "options/units.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { KEEP_ALIVE = 15 /* seconds of silence in a stream */, TRIES = 100 };

double serve_now(void) { return cli_now(); }

uint64_t serve_random(void)
{
    uint64_t x = 0;
    if (getrandom(&x, sizeof x, 0) != (ssize_t)sizeof x) x = (uint64_t)(serve_now() * 1e9);
    return x;
}

/* ---- mail ------------------------------------------------------------------------------------ */

void serve_mail_send(serve *s, serve_mail *mail)
{
    mail->next = NULL;
    pthread_mutex_lock(&s->lock);
    const bool first = !s->mail;
    *s->last_mail = mail;
    s->last_mail = &mail->next;
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; first && i < TRIES && write(s->pipe[1], "", 1) < 0; i++)
        if (errno == EAGAIN) return; /* it is full: the loop is awake anyway */
}

static void deliver_all(serve *s)
{
    pthread_mutex_lock(&s->lock);
    serve_mail *mail = s->mail;
    s->mail = NULL;
    s->last_mail = &s->mail;
    pthread_mutex_unlock(&s->lock);
    for (serve_mail *next; mail; mail = next) {
        next = mail->next;
        mail->deliver(mail);
    }
    if (s->http) http_settle(s->http);
}

static void on_mail(evutil_socket_t fd, short what, void *user)
{
    char some[64];
    (void)what;
    while (read(fd, some, sizeof some) > 0) {}
    deliver_all(user);
}

/* ---- the clock ------------------------------------------------------------------------------- */

/* Once a second while there are calls, more often at the end. */
void serve_tick_start(serve *s)
{
    if (s->draining)
        event_add(s->tick, &(struct timeval){0, 20000});
    else if (!evtimer_pending(s->tick, NULL))
        event_add(s->tick, &(struct timeval){1, 0});
}

/* Calls that took too long, and streams that are silent. */
static void on_tick(evutil_socket_t fd, short what, void *user)
{
    serve       *s = user;
    const double now = serve_now();
    serve_error  e = {0};
    (void)fd;
    (void)what;
    deliver_all(s); /* where the pipe could not say so */
    if (s->draining)
        serve_wrong(&e, 503, NULL, "the server ends before the answer");
    else
        serve_limited(&e, SERVE_REQUEST_SECONDS, NULL, "the answer took longer than %g seconds",
                      s->args->request_seconds);
    for (serve_call *c = s->calls, *next; c; c = next) {
        next = c->next;
        if (now > c->deadline || (s->draining && now > s->drain_until)) {
            serve_call_fail(c, &e);
        } else if (c->streams && now - c->spoke >= KEEP_ALIVE) {
            http_stream_put(c->conn, ": still here\n\n", 14);
            c->spoke = now;
        }
    }
    if (s->draining && !s->calls && (http_flushed(s->http) || now > s->drain_until))
        event_base_loopbreak(s->base);
    else if (s->calls || s->draining)
        serve_tick_start(s);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Not at once: whoever ends a call has still to send the answer. */
void serve_drained(serve *s)
{
    if (s->draining) serve_tick_start(s);
}

/* The first signal lets requests finish, a second one does not. New ones are refused here and not
 * by the engines, which still have to write states that are to be kept. */
static void on_signal(evutil_socket_t number, short what, void *user)
{
    serve *s = user;
    (void)number;
    (void)what;
    if (s->draining) {
        event_base_loopbreak(s->base);
        return;
    }
    s->draining = true;
    serve_notify("STOPPING=1");
    s->drain_until = serve_now() + s->args->drain_seconds;
    http_deaf(s->http);
    serve_tick_start(s);
    serve_drained(s);
}

/* Without files there is nothing to open again, and a terminal that closes ends the server as
 * SIGTERM does. */
static void on_hangup(evutil_socket_t number, short what, void *user)
{
    serve      *s = user;
    const char *path = s->args->key_file;
    dra_error   err = {0};
    if (!path && !s->args->log) on_signal(number, what, user);
    if (!serve_log_open(s, &err)) cli_line(stderr, "dra serve: %s", err.text);
    if (!path) return;
    if (serve_keys_read(&s->keys, path, &err))
        cli_line(stderr, "dra serve: keys read again: %zu", s->keys.n);
    else
        cli_line(stderr, "dra serve: the old keys stay: %s", err.text);
}

static void on_leave(void *user, http_conn *c)
{
    (void)user;
    serve_call_end(http_call(c));
}

/* What may be used is said where the machine has not got it: limits that cannot hold. */
static void warn_of_memory(const serve *s)
{
    const double gib = 1 << 30;
    const double has = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    const double may = (double)s->memory_limit * (double)s->n_models + (double)s->limits.memory;
    if (may > has)
        cli_line(stderr,
                 "dra serve: warning: --memory-limit of %zu models and --request-memory are %.1f "
                 "GiB, this machine has %.1f",
                 s->n_models, may / gib, has / gib);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static char *error_of(void *user, int status, serve_limit acts, const char *why)
{
    serve_error e = {0};
    serve_text  t = {0};
    (void)user;
    serve_wrong(&e, status, NULL, "%s", why);
    e.code = serve_limit_code(acts);
    serve_error_text(&e, &t);
    if (t.failed) serve_text_free(&t);
    return t.data;
}

/* Raises the limit of file descriptors, which connections need, as far as the system allows. */
static void raise_limits(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

static bool open_loop(serve *s)
{
    if (pipe(s->pipe) != 0) return false;
    for (int i = 0; i < 2; i++) {
        fcntl(s->pipe[i], F_SETFL, O_NONBLOCK);
        fcntl(s->pipe[i], F_SETFD, FD_CLOEXEC);
    }
    http_reserve_open();
    s->base = event_base_new();
    if (!s->base) return false;
    s->mail_event = event_new(s->base, s->pipe[0], EV_READ | EV_PERSIST, on_mail, s);
    s->tick = evtimer_new(s->base, on_tick, s);
    s->signals[0] = evsignal_new(s->base, SIGTERM, on_signal, s);
    s->signals[1] = evsignal_new(s->base, SIGINT, on_signal, s);
    s->signals[2] = evsignal_new(s->base, SIGHUP, on_hangup, s);
    for (size_t i = 0; i < COUNT(s->signals); i++)
        if (!s->signals[i] || event_add(s->signals[i], NULL) != 0) return false;
    return s->mail_event && s->tick && event_add(s->mail_event, NULL) == 0;
}

static bool open_http(serve *s, dra_error *err)
{
    const serve_args *a = s->args;
    char              why[160];
    const http_config config = {.head = (size_t)a->head,
                                .body = (size_t)a->body,
                                .unread = s->max_answer,
                                .limits = &s->limits,
                                .connections = (int)a->connections,
                                .seconds = a->client_seconds,
                                .extra = s->extra,
                                .admit = serve_admit,
                                .request = serve_dispatch,
                                .error = error_of,
                                .answered = serve_answered,
                                .leave = on_leave,
                                .ended = serve_ended,
                                .user = s};
    s->http = http_create(s->base, &config);
    s->port = (int)a->port;
    if (!s->http) return cli_error(err, DRA_ERR_MEMORY, "out of memory") == DRA_OK;
    if (a->unix_path ? http_listen_unix(s->http, a->unix_path, why)
                     : http_listen(s->http, a->host, &s->port, why))
        return true;
    return cli_error(err, DRA_ERR_VALUE, "%s", why) == DRA_OK;
}

static bool open_models(serve *s, dra_error *err)
{
    const cli_list *list = &s->args->models;
    s->models = calloc(list->count, sizeof *s->models);
    if (!s->models) return cli_error(err, DRA_ERR_MEMORY, "out of memory") == DRA_OK;
    for (size_t i = 0; i < list->count; i++) {
        s->n_models = i + 1;
        if (!serve_model_open(s, &s->models[i], list->text[i], err)) return false;
        for (size_t j = 0; j < i; j++)
            if (strcmp(s->models[i].name, s->models[j].name) == 0)
                return cli_error(err, DRA_ERR_NAME, "--model: two models are called %s",
                                 s->models[i].name) == DRA_OK;
    }
    return true;
}

static void close_all(serve *s)
{
    if (s->http && s->args->unix_path) unlink(s->args->unix_path);
    while (s->calls) serve_call_end(s->calls);
    serve_worker_stop(&s->worker);
    for (size_t i = 0; i < s->n_models; i++) serve_model_close(&s->models[i]);
    if (s->last_mail) deliver_all(s); /* the end of a job frees its call */
    for (size_t i = 0; i < s->n_models; i++) serve_shelf_close(&s->models[i]);
    serve_files_close(s);
    http_destroy(s->http);
    for (size_t i = 0; i < COUNT(s->signals); i++)
        if (s->signals[i]) event_free(s->signals[i]);
    if (s->tick) event_free(s->tick);
    if (s->mail_event) event_free(s->mail_event);
    if (s->base) event_base_free(s->base);
    for (int i = 0; i < 2; i++)
        if (s->pipe[i] > 0) close(s->pipe[i]);
    free(s->models);
    serve_keys_free(&s->keys);
    serve_log_close(s);
    free(s->tallies);
    free(s);
}

static bool start_server(serve *s, dra_error *err)
{
    if (!open_loop(s)) return cli_error(err, DRA_ERR_MEMORY, "cannot make an event loop") == DRA_OK;
    if (!serve_log_open(s, err) || !open_models(s, err) || !serve_files_open(s, err) ||
        !open_http(s, err))
        return false;
    const bool v6 = strchr(s->args->host, ':') != NULL;
    if (s->args->unix_path)
        cli_line(stderr, "dra serve: listens on unix:%s", s->args->unix_path);
    else
        cli_line(stderr, "dra serve: listens on http://%s%s%s:%d", v6 ? "[" : "", s->args->host,
                 v6 ? "]" : "", s->port);
    warn_of_memory(s);
    if (!serve_worker_start(&s->worker, s->args->queue))
        return cli_error(err, DRA_ERR_MEMORY, "cannot make a thread") == DRA_OK;
    for (size_t i = 0; i < s->n_models; i++)
        if (!serve_model_start(&s->models[i]))
            return cli_error(err, DRA_ERR_MEMORY, "cannot make a thread") == DRA_OK;
    http_reserve_arm();
    return true;
}

int serve_run(const serve_args *a)
{
    dra_error err = {0};
    serve    *s = calloc(1, sizeof *s);
    if (!s) {
        cli_error(&err, DRA_ERR_MEMORY, "out of memory");
        return cli_fail(&err);
    }
    s->args = a;
    s->last_mail = &s->mail;
    s->log = -1;
    pthread_mutex_init(&s->lock, NULL);
    serve_json_begin();
    serve_memory_open();
    signal(SIGPIPE, SIG_IGN);
    raise_limits();
    int status = serve_safety(s);
    if (status == CLI_OK) {
        if (!start_server(s, &err))
            status = cli_fail(&err);
        else if (event_base_dispatch(s->base) < 0 || s->failed)
            status = CLI_FAILED;
    }
    close_all(s);
    return status;
}
