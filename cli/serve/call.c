/* Calls: requests that wait for jobs. However a call ends, its jobs are released and it is
 * freed. */
#include "fields.h"

#include <stdlib.h>
#include <string.h>

void serve_call_begin(serve *s, serve_call *call, http_conn *conn, void (*release)(serve_call *))
{
    call->server = s;
    call->conn = conn;
    call->free = release;
    call->spoke = serve_now();
    call->deadline = call->spoke + s->args->request_seconds;
    call->next = s->calls;
    call->link = &s->calls;
    if (call->next) call->next->link = &call->next;
    s->calls = call;
    http_set_call(conn, call);
    serve_tick_start(s);
}

bool serve_call_hold(serve_call *call, size_t bytes, serve_error *e)
{
    if (!serve_memory_take(&call->server->limits, bytes))
        return serve_limited(e, SERVE_REQUEST_MEMORY, NULL,
                             "the memory for requests (--request-memory) is used up");
    call->held += bytes;
    return true;
}

void serve_call_loose(serve_call *call, size_t bytes)
{
    serve_memory_give(&call->server->limits, bytes);
    call->held -= bytes;
}

/* ---- errands of the worker ------------------------------------------------------------------- */

enum { LARGE = 1 << 14 /* bytes of a body that takes milliseconds */ };

typedef struct waste { /* JSON that takes long to free */
    serve_mail mail;
    json_t    *body;
} waste;

static void free_waste(serve_mail *mail)
{
    waste *w = (waste *)mail;
    json_decref(w->body);
    free(w);
}

static void free_body(serve_call *call)
{
    waste *w = call->large && call->body ? malloc(sizeof *w) : NULL;
    if (w) *w = (waste){{.deliver = free_waste}, call->body};
    if (w && serve_worker_post(&call->server->worker, &w->mail, true)) return;
    free(w);
    json_decref(call->body);
}

static void free_call(serve_call *call)
{
    serve *s = call->server;
    call->free(call);
    free(call->text);
    free_body(call);
    serve_memory_give(&s->limits, call->held);
    free(call);
}

/* On the loop. */
static void come_back(serve_mail *mail)
{
    serve_call *call = (serve_call *)((char *)mail - offsetof(serve_call, mail));
    call->away = false;
    if (call->over)
        free_call(call);
    else
        call->back(call);
}

static void go_away(serve_mail *mail)
{
    serve_call *call = (serve_call *)((char *)mail - offsetof(serve_call, mail));
    call->work(call);
    mail->deliver = come_back;
    serve_mail_send(call->server, mail);
}

void serve_call_do(serve_call *call, void (*work)(serve_call *), void (*back)(serve_call *))
{
    call->work = work;
    call->back = back;
    if (!call->large) {
        work(call);
        back(call);
        return;
    }
    call->mail.deliver = go_away;
    call->away = serve_worker_post(&call->server->worker, &call->mail, false);
    if (call->away) return;
    serve_error e;
    serve_limited(&e, SERVE_QUEUE, NULL, "%lld large bodies wait, no more are taken",
                  (long long)call->server->worker.most);
    serve_call_fail(call, &e);
}

static void read_body(serve_call *call)
{
    call->body = serve_body_read(call->text, call->bytes, &call->error);
    free(call->text);
    call->text = NULL;
}

void serve_call_read(serve_call *call, const serve_request *r, void (*next)(serve_call *))
{
    const size_t cost = r->bytes + serve_body_cost(r->body, r->bytes);
    call->large = r->bytes > LARGE;
    call->bytes = r->bytes;
    if (!serve_call_hold(call, cost, &call->error)) {
        next(call);
        return;
    }
    call->cost = cost;
    call->text = malloc(r->bytes + 1);
    if (!call->text) {
        serve_wrong(&call->error, 503, NULL, "out of memory");
        next(call);
        return;
    }
    memcpy(call->text, r->body, r->bytes);
    serve_call_do(call, read_body, next);
}

void serve_call_stripped(serve_call *call)
{
    serve_call_loose(call, call->cost);
    call->cost = 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

void serve_call_end(serve_call *call)
{
    for (serve_job *job = call->jobs, *next; job; job = next) {
        next = job->next;
        job->call = NULL;
        job->link = NULL;
        if (job->id) dra_engine_cancel(job->model->engine, job->id);
    }
    *call->link = call->next;
    if (call->next) call->next->link = call->link;
    serve *s = call->server;
    if (call->away) {
        call->over = true;
        call->conn = NULL;
    } else {
        free_call(call);
    }
    serve_drained(s);
}

void serve_call_say(serve_call *call, const serve_text *event)
{
    serve_text t = {0};
    serve_puts(&t, "data: ");
    serve_put(&t, event->data, event->n);
    serve_puts(&t, "\n\n");
    call->spoke = serve_now();
    if (t.failed || event->failed)
        http_break(call->conn); /* an incomplete stream must not look finished */
    else
        http_stream_put(call->conn, t.data, t.n);
    serve_text_free(&t);
}

void serve_call_fail(serve_call *call, const serve_error *e)
{
    const serve_error why = *e; /* which may be the call's */
    http_conn        *conn = call->conn;
    if (call->streams) {
        serve_text t = {0};
        if (why.limit) serve_limit_acts(&call->server->limits, why.limit);
        serve_error_text(&why, &t);
        if (call->failed) http_stream_put(conn, call->failed, strlen(call->failed));
        serve_call_say(call, &t);
        serve_text_free(&t);
        serve_call_end(call);
        http_stream_end(conn);
    } else {
        serve_call_end(call);
        serve_fail(conn, &why);
    }
}

void serve_call_failed(serve_call *call, const dra_job_result *result)
{
    serve_error e = {0};
    if (result->end == DRA_JOB_CANCELLED)
        serve_wrong(&e, 503, NULL, "the server is shutting down");
    else
        serve_wrong_status(&e, &result->error);
    serve_call_fail(call, &e);
}

/* ---- answers without jobs -------------------------------------------------------------------- */

static void release_made(serve_call *call) { serve_text_free(&((serve_made *)call)->answer); }

static void send_made(serve_call *call)
{
    http_conn *conn = call->conn;
    serve_text t = ((serve_made *)call)->answer;
    if (call->error.status) {
        serve_call_fail(call, &call->error);
        return;
    }
    ((serve_made *)call)->answer = (serve_text){0};
    serve_call_end(call);
    serve_reply(conn, 200, &t);
}

void serve_made_start(const serve_request *r, size_t size, void (*next)(serve_call *))
{
    serve_error e = {0};
    serve_made *m = calloc(1, size);
    if (!m) {
        serve_wrong(&e, 503, NULL, "out of memory");
        serve_fail(r->conn, &e);
        return;
    }
    serve_call_begin(r->server, &m->call, r->conn, release_made);
    serve_call_read(&m->call, r, next);
}

void serve_made_do(serve_made *m, void (*work)(serve_call *))
{
    if (m->model)
        serve_call_do(&m->call, work, send_made);
    else
        serve_call_fail(&m->call, &m->call.error);
}
