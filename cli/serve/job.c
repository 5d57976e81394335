/* Jobs of an engine on behalf of calls. The engine's call-backs run in its thread: they copy what
 * they are told and send it to the loop, where the rest is. */
#include "serve.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_EVERY = 4 /* tokens */ };

/* ---- in the engine's thread ------------------------------------------------------------------ */

/* Norms of all tensors of the state as JSON, or NULL. */
static char *look(serve_job *job)
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
    serve_token *t = (serve_token *)mail;
    if (t->job->call) t->job->token(t->job, t);
    free(t->look);
    free(t);
}

/* The token, its most likely ones and its text in one piece of memory. */
static void on_token(void *user, const dra_job_token *from)
{
    serve_job   *job = user;
    const size_t most = (size_t)from->top * sizeof *from->most;
    serve_token *t = malloc(sizeof *t + most + from->bytes + 1);
    if (!t) {
        job->lost = true;
        return;
    }
    *t = (serve_token){.mail.deliver = deliver_token,
                       .job = job,
                       .id = from->id,
                       .prompt = from->prompt,
                       .ends = from->ends,
                       .logprob = from->logprob,
                       .top = from->top,
                       .bytes = from->bytes};
    t->most = (dra_logprob *)(t + 1);
    t->text = (char *)t->most + most;
    if (most) memcpy(t->most, from->most, most);
    if (from->bytes) memcpy(t->text, from->text, from->bytes);
    t->text[from->bytes] = '\0';
    t->look = from->prompt ? NULL : look(job);
    serve_mail_send(job->model->server, &t->mail);
}

static char *copy(const void *data, size_t bytes, bool *lost)
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
    free(job);
}

/* A call that ends in `end` finds the job gone from its list. */
static void deliver_end(serve_mail *mail)
{
    serve_job *job = (serve_job *)mail;
    if (job->link) *job->link = job->next;
    if (job->link && job->next) job->next->link = job->link;
    job->link = NULL;
    if (job->result.end == DRA_JOB_CANCELLED) job->model->server->cancelled++;
    if (job->call || job->alone) job->end(job, &job->result);
    job_free(job);
}

static void on_end(void *user, const dra_job_result *result)
{
    serve_job *job = user;
    job->result = *result;
    job->text = copy(result->text, result->bytes, &job->lost);
    job->vector = copy(result->vector, (size_t)result->width * sizeof(float), &job->lost);
    job->result.text = job->text;
    job->result.vector = (const float *)(const void *)job->vector;
    if (job->lost && result->end == DRA_JOB_DONE) {
        job->result.end = DRA_JOB_FAILED;
        cli_error(&job->result.error, DRA_ERR_MEMORY, "out of memory");
    }
    job->mail.deliver = deliver_end;
    serve_mail_send(job->model->server, &job->mail);
}

/* Work that is no job of the engine, between two of its steps. */
static void do_work(serve_mail *mail)
{
    enum { MOST = 1 << 30 };
    serve_job *job = (serve_job *)mail;
    dra_error *err = &job->result.error;
    serve_text t = {0};
    dra_status st = DRA_OK;
    switch (job->work) {
    case SERVE_WRITE: st = dra_file_write(job->name, job->data.data, job->data.n, err); break;
    case SERVE_READ:
        st = dra_file_read(job->name, MOST, &job->text, &job->result.bytes, err);
        break;
    case SERVE_LOOK:
        serve_look_text(job->model, 0, job->name, &t);
        if (t.failed) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
        job->text = t.data;
        job->result.bytes = t.n;
        break;
    }
    job->result.end = st == DRA_OK ? DRA_JOB_DONE : DRA_JOB_FAILED;
    job->result.text = job->text;
    job->mail.deliver = deliver_end;
    serve_mail_send(job->model->server, &job->mail);
}

/* ---- in the loop ----------------------------------------------------------------------------- */

static void nothing(serve_job *job, const dra_job_result *result)
{
    (void)job;
    (void)result;
}

static void join(serve_call *call, serve_job *job)
{
    if (!call) return;
    job->next = call->jobs;
    job->link = &call->jobs;
    if (job->next) job->next->link = &job->next;
    call->jobs = job;
}

bool serve_job_start(serve_call *call, serve_model *m, dra_job_config *config, int64_t index,
                     void (*token)(serve_job *, const serve_token *),
                     void (*end)(serve_job *, const dra_job_result *), serve_error *e)
{
    dra_error  err = {0};
    serve_job *job = calloc(1, sizeof *job);
    if (!job) return serve_wrong(e, 503, NULL, "out of memory");
    job->call = call;
    job->model = m;
    job->index = index;
    job->token = token;
    job->end = end ? end : nothing;
    job->alone = !call;
    job->looks = call && call->looks;
    config->token = token ? on_token : NULL;
    config->end = on_end;
    config->user = job;
    if (dra_engine_submit(m->engine, config, &job->id, &err) != DRA_OK) {
        free(job);
        return serve_wrong_status(e, &err);
    }
    join(call, job);
    return true;
}

bool serve_work_start(serve_call *call, serve_model *m, serve_work work, const char *name,
                      serve_text  *data, void (*end)(serve_job *, const dra_job_result *),
                      serve_error *e)
{
    serve_job *job = calloc(1, sizeof *job);
    if (job) job->name = strdup(name);
    if (!job || !job->name) {
        free(job);
        return serve_wrong(e, 503, NULL, "out of memory");
    }
    job->call = call;
    job->model = m;
    job->end = end;
    job->work = work;
    if (data) {
        job->data = *data;
        *data = (serve_text){0};
    }
    job->mail.deliver = do_work;
    join(call, job);
    serve_model_post(m, &job->mail);
    return true;
}

void serve_state_forget(serve_model *m, const char *name)
{
    serve_error    e;
    dra_job_config config = {.kind = DRA_JOB_DELETE, .state = name};
    serve_job_start(NULL, m, &config, 0, NULL, NULL, &e);
}
