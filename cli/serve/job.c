/* Jobs of an engine on behalf of calls. The engine's call-backs run in its thread: they copy
 * what they get and send it to the loop, which does the rest. */
#include "ask.h"
#include "pieces.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_EVERY = 4 /* tokens */ };

/* ---- in the engine's thread ------------------------------------------------------------------ */

/* Norms of all tensors of the state as JSON, or NULL. */
static char *look_at_state(serve_job *job)
{
    serve_text t = {0};
    if (!job->looks || job->looked++ % LOOK_EVERY) return NULL;
    serve_look_text(job->model, job->id, NULL, &t);
    if (!t.failed) return t.data;
    serve_text_free(&t);
    return NULL;
}

static void deliver_token(serve_mail *mail)
{
    serve_token  *t = (serve_token *)mail;
    serve_limits *l = &t->job->model->server->limits;
    if (t->job->call) t->job->token(t->job, t);
    serve_memory_give(l, t->counted);
    free(t->look);
    free(t);
}

/* The token, its most likely ones and its text in one piece of memory. */
static bool on_token(void *user, const dra_job_token *from)
{
    serve_job    *job = user;
    serve_limits *l = &job->model->server->limits;
    const size_t  most = (size_t)from->top * sizeof *from->most;
    const size_t  all = sizeof(serve_token) + most + from->bytes + 1;
    const bool    room = serve_memory_take(l, all);
    serve_token  *t = room ? malloc(all) : NULL;
    if (!t) {
        if (room) serve_memory_give(l, all);
        job->crowded |= !room;
        job->lost = true;
        return false;
    }
    *t = (serve_token){.mail.deliver = deliver_token,
                       .job = job,
                       .id = from->id,
                       .prompt = from->prompt,
                       .ends = from->ends,
                       .logprob = from->logprob,
                       .top = from->top,
                       .bytes = from->bytes,
                       .counted = all};
    t->most = (dra_logprob *)(t + 1);
    t->text = (char *)t->most + most;
    if (most) memcpy(t->most, from->most, most);
    if (from->bytes) memcpy(t->text, from->text, from->bytes);
    t->text[from->bytes] = '\0';
    t->look = from->prompt ? NULL : look_at_state(job);
    serve_mail_send(job->model->server, &t->mail);
    return true;
}

static char *copy_bytes(const void *data, size_t bytes, bool *lost)
{
    char *to = bytes ? malloc(bytes) : NULL;
    if (to) memcpy(to, data, bytes);
    *lost |= bytes && !to;
    return to;
}

static void job_free(serve_job *job)
{
    free(job->text);
    free(job->vector);
    free(job->name);
    serve_text_free(&job->data);
    serve_grammar_drop(job->grammar);
    free(job);
}

static void leave_call(serve_job *job)
{
    if (job->link) *job->link = job->next;
    if (job->link && job->next) job->next->link = job->link;
    job->link = NULL;
}

static void fail_crowded(serve_job *job)
{
    serve_error e;
    serve_limited(&e, SERVE_REQUEST_MEMORY, NULL,
                  "the memory for requests (--request-memory) is used up");
    serve_call_fail(job->call, &e);
}

/* A call that ends in `end` finds the job gone from its list. */
static void deliver_end(serve_mail *mail)
{
    serve_job *job = (serve_job *)mail;
    leave_call(job);
    if (job->result.end == DRA_JOB_CANCELLED) job->model->server->cancelled++;
    if (job->id) serve_tally_job(job->model->server, &job->result);
    if (job->crowded && job->call)
        fail_crowded(job);
    else if (job->call || job->alone)
        job->end(job, &job->result);
    else if (job->work == SERVE_RESTORE && job->name)
        unlink(job->name); /* whoever wanted the file has left */
    job_free(job);
}

static void on_end(void *user, const dra_job_result *result)
{
    serve_job *job = user;
    job->result = *result;
    job->text = copy_bytes(result->text, result->bytes, &job->lost);
    job->vector = copy_bytes(result->vector, (size_t)result->width * sizeof(dra_real), &job->lost);
    job->result.text = job->text;
    job->result.vector = (const dra_real *)(const void *)job->vector;
    if (job->lost && result->end == DRA_JOB_DONE) {
        job->result.end = DRA_JOB_FAILED;
        cli_error(&job->result.error, DRA_ERR_MEMORY, "out of memory");
    }
    job->mail.deliver = deliver_end;
    serve_mail_send(job->model->server, &job->mail);
}

/* Work other than jobs: in the engine's thread, between two steps, or in the worker's. */
static void do_work(serve_mail *mail)
{
    serve_job    *job = (serve_job *)mail;
    dra_error    *err = &job->result.error;
    serve_text    t = {0};
    dra_status    st = DRA_OK;
    serve_pieces *p = job->model->pieces;
    switch (job->work) {
    case SERVE_WRITE: st = dra_file_write(job->name, job->data.data, job->data.n, err); break;
    case SERVE_READ:
        st = dra_file_read(job->name, job->most, &job->text, &job->result.bytes, err);
        break;
    case SERVE_LOOK:
        serve_look_text(job->model, 0, job->name, &t);
        if (t.failed) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
        job->text = t.data;
        job->result.bytes = t.n;
        break;
    case SERVE_LINK:
        st = serve_pieces_change(p, job->data.data, job->name, serve_file_link, err);
        break;
    case SERVE_UNLINK: st = serve_pieces_change(p, NULL, job->name, serve_file_remove, err); break;
    case SERVE_PLACE:
        st = serve_pieces_place(p, job->data.data, job->name, &job->filed, &job->pieces, err);
        break;
    case SERVE_RESTORE: st = serve_pieces_restore(job->data.data, job->name, err); break;
    }
    job->result.end = st == DRA_OK ? DRA_JOB_DONE : DRA_JOB_FAILED;
    job->result.text = job->text;
    job->mail.deliver = deliver_end;
    serve_mail_send(job->model->server, &job->mail);
}

/* ---- in the loop ----------------------------------------------------------------------------- */

static void ignore_result(serve_job *job, const dra_job_result *result)
{
    (void)job;
    (void)result;
}

static void join_call(serve_call *call, serve_job *job)
{
    if (!call) return;
    job->next = call->jobs;
    job->link = &call->jobs;
    if (job->next) job->next->link = &job->next;
    call->jobs = job;
}

static serve_job *start_job(serve_call *call, serve_model *m, dra_job_config *config, int64_t index,
                            void (*token)(serve_job *, const serve_token *),
                            void (*end)(serve_job *, const dra_job_result *), serve_error *e)
{
    dra_error  err = {0};
    serve_job *job = calloc(1, sizeof *job);
    if (!job) {
        serve_wrong(e, 503, NULL, "out of memory");
        return NULL;
    }
    job->call = call;
    job->model = m;
    job->index = index;
    job->token = token;
    job->end = end ? end : ignore_result;
    job->alone = !call;
    job->looks = call && call->looks;
    config->token = token ? on_token : NULL;
    config->end = on_end;
    config->user = job;
    if (dra_engine_submit(m->engine, config, &job->id, &err) != DRA_OK) {
        free(job);
        serve_wrong_status(e, &err);
        return NULL;
    }
    join_call(call, job);
    return job;
}

bool serve_job_start(serve_call *call, serve_model *m, dra_job_config *config, int64_t index,
                     void (*token)(serve_job *, const serve_token *),
                     void (*end)(serve_job *, const dra_job_result *), serve_error *e)
{
    return start_job(call, m, config, index, token, end, e) != NULL;
}

bool serve_job_alone(serve_model *m, dra_job_config *config, void *subject,
                     void (*end)(serve_job *, const dra_job_result *), serve_error *e)
{
    serve_job *job = start_job(NULL, m, config, 0, NULL, end, e);
    if (job) job->subject = subject;
    return job != NULL;
}

/* NULL: no memory. */
static serve_job *begin_work(serve_call *call, serve_model *m, serve_work work, const char *name,
                             serve_text *data, void (*end)(serve_job *, const dra_job_result *))
{
    serve_job *job = data && data->failed ? NULL : calloc(1, sizeof *job);
    if (job) job->name = strdup(name);
    if (!job || !job->name) {
        free(job);
        return NULL;
    }
    job->call = call;
    job->model = m;
    job->end = end;
    job->work = work;
    job->most = m->server->max_answer;
    if (data) {
        job->data = *data;
        *data = (serve_text){0};
    }
    job->mail.deliver = do_work;
    join_call(call, job);
    return job;
}

static bool post_work(serve_job *job)
{
    const bool looks = job->work == SERVE_LOOK;
    if (looks) serve_model_post(job->model, &job->mail);
    return looks || serve_worker_post(&job->model->server->worker, &job->mail, true);
}

bool serve_work_start(serve_call *call, serve_model *m, serve_work work, const char *name,
                      serve_text  *data, void (*end)(serve_job *, const dra_job_result *),
                      serve_error *e)
{
    serve_job *job = begin_work(call, m, work, name, data, end);
    if (!job) return serve_wrong(e, 503, NULL, "out of memory");
    if (post_work(job)) return true;
    leave_call(job);
    job_free(job);
    return serve_wrong(e, 503, NULL, "the server is shutting down");
}

bool serve_work_alone(serve_model *m, serve_work work, const char *name, serve_text *data,
                      void *subject, void (*end)(serve_job *, const dra_job_result *))
{
    serve_job *job = begin_work(NULL, m, work, name, data, end);
    if (!job) return false;
    job->alone = true;
    job->subject = subject;
    if (post_work(job)) return true;
    job_free(job);
    return false;
}

serve_job *serve_job_wait(serve_call *call, serve_model *m,
                          void (*end)(serve_job *, const dra_job_result *))
{
    serve_job *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    job->call = call;
    job->model = m;
    job->end = end;
    join_call(call, job);
    return job;
}

void serve_job_tell(serve_job *job, const dra_error *error)
{
    job->result.end = error ? DRA_JOB_FAILED : DRA_JOB_DONE;
    if (error) job->result.error = *error;
    deliver_end(&job->mail);
}

void serve_state_forget(serve_model *m, const char *name)
{
    serve_error e;
    if (!m->engine) return;
    dra_job_config config = {.kind = DRA_JOB_DELETE, .state = name};
    serve_job_start(NULL, m, &config, 0, NULL, NULL, &e);
}
