/* Calls: requests that wait for jobs. Whatever ends one, its jobs are let go and it is freed. */
#include "serve.h"

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
                             "requests have all the memory that they may have");
    call->held += bytes;
    return true;
}

void serve_call_loose(serve_call *call, size_t bytes)
{
    serve_memory_give(&call->server->limits, bytes);
    call->held -= bytes;
}

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
    call->free(call);
    serve_memory_give(&s->limits, call->held);
    free(call);
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
        http_break(call->conn); /* a stream that lacks something must not end well */
    else
        http_stream_put(call->conn, t.data, t.n);
    serve_text_free(&t);
}

void serve_call_fail(serve_call *call, const serve_error *e)
{
    http_conn *conn = call->conn;
    if (call->streams) {
        serve_text t = {0};
        if (e->limit) serve_limit_acts(&call->server->limits, e->limit);
        serve_error_text(e, &t);
        serve_call_say(call, &t);
        serve_text_free(&t);
        serve_call_end(call);
        http_stream_end(conn);
    } else {
        serve_call_end(call);
        serve_fail(conn, e);
    }
}

void serve_call_failed(serve_call *call, const dra_job_result *result)
{
    serve_error e = {0};
    if (result->end == DRA_JOB_CANCELLED)
        serve_wrong(&e, 503, NULL, "the server is about to end");
    else
        serve_wrong_status(&e, &result->error);
    serve_call_fail(call, &e);
}
