/* Routes of states: /states, /states/NAME, /states/NAME/fork, /states/NAME/look. */
#include "fields.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- listing --------------------------------------------------------------------------------- */

typedef struct list {
    serve_model *model;
    serve_text  *out;
    const char  *only; /* NULL: all */
    size_t       n;
} list;

static void put_state(void *user, const dra_state_info *x)
{
    list *l = user;
    if (!serve_state_name_ok(x->name) || (l->only && strcmp(l->only, x->name) != 0)) return;
    serve_printf(l->out, "%s{\"name\": \"%s\", \"model\": \"%s\", \"tokens\": %lld, ",
                 l->n++ ? ", " : "", x->name, l->model->name, (long long)x->tokens);
    serve_printf(l->out, "\"bytes\": %zu, \"created\": %.3f, \"last_used\": %.3f}", x->bytes,
                 x->created, x->used);
}

void serve_states_list(const serve_request *r)
{
    serve     *s = r->server;
    serve_text t = {0};
    list       l = {.out = &t};
    serve_puts(&t, "{\"object\": \"list\", \"data\": [");
    for (size_t i = 0; i < s->n_models; i++) {
        l.model = &s->models[i];
        if (l.model->phase == SERVE_READY) dra_engine_states(l.model->engine, put_state, &l);
    }
    serve_puts(&t, "]}");
    serve_reply(r->conn, 200, &t);
}

/* ---- which state a path means ---------------------------------------------------------------- */

static bool has_state(serve_model *m, const char *name)
{
    serve_text t = {0};
    list       l = {.model = m, .out = &t, .only = name};
    if (m->phase == SERVE_READY) dra_engine_states(m->engine, put_state, &l);
    serve_text_free(&t);
    return l.n > 0;
}

typedef struct place {
    serve_model *model;
    char         name[SERVE_NAME + 1];
    const char  *verb; /* what follows the name: "fork", "look", "" */
} place;

static bool read_place(const serve_request *r, place *p, serve_error *e)
{
    char         name[SERVE_NAME + 1];
    const char  *slash = strchr(r->rest, '/');
    const size_t n = slash ? (size_t)(slash - r->rest) : strlen(r->rest);
    if (n <= SERVE_NAME) snprintf(p->name, sizeof p->name, "%.*s", (int)n, r->rest);
    p->verb = slash ? slash + 1 : "";
    if (!serve_state_name_ok(p->name))
        return serve_wrong(e, 400, "name",
                           "expected a name of a state, 1 to %d of letters, digits and ._-",
                           SERVE_NAME);
    const bool named = http_query(r->head, "model", name, sizeof name);
    p->model = serve_model_find(r->server, named ? name : NULL, e);
    if (!p->model || named) return p->model != NULL;
    size_t found = 0;
    for (size_t i = 0; i < r->server->n_models; i++)
        if (has_state(&r->server->models[i], p->name)) {
            p->model = &r->server->models[i];
            found++;
        }
    return found < 2 ||
           serve_wrong(e, 400, "model", "several models have %s; expected ?model=", p->name);
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct change { /* one request about a state */
    serve_call   call;
    serve_model *model;
    char         name[SERVE_NAME + 1]; /* the state that the answer is about */
    char         path[640];            /* to be removed; "": none */
    int          status;
    bool         deleted;
    int64_t      tokens, cached;
} change;

static void release(serve_call *call)
{
    change *c = (change *)call;
    if (c->path[0]) unlink(c->path);
}

static change *begin(const serve_request *r, const place *p, serve_error *e)
{
    change *c = calloc(1, sizeof *c);
    if (!c) {
        serve_wrong(e, 503, NULL, "out of memory");
        return NULL;
    }
    serve_call_begin(r->server, &c->call, r->conn, release);
    c->model = p->model;
    memcpy(c->name, p->name, sizeof c->name);
    c->status = 200;
    return c;
}

/* What the state is now. */
static void answer(change *c)
{
    http_conn *conn = c->call.conn;
    const int  status = c->status;
    serve_text t = {0};
    list       l = {.model = c->model, .out = &t, .only = c->name};
    if (c->deleted)
        serve_printf(&t, "{\"name\": \"%s\", \"deleted\": true}", c->name);
    else
        dra_engine_states(c->model->engine, put_state, &l);
    if (!t.n) serve_puts(&t, "{}");
    serve_call_end(&c->call);
    serve_reply(conn, status, &t);
}

static void on_kept(serve_job *job, const dra_job_result *r)
{
    change *c = (change *)job->call;
    if (r->end == DRA_JOB_DONE)
        answer(c);
    else
        serve_call_failed(&c->call, r);
}

/* It has changed; with a state directory its file follows. */
static void on_changed(serve_job *job, const dra_job_result *r)
{
    change     *c = (change *)job->call;
    serve_error e = {0};
    if (r->end != DRA_JOB_DONE) {
        serve_call_failed(&c->call, r);
    } else if (c->deleted || !c->call.server->args->state_dir) {
        if (c->deleted) serve_state_remove(c->model, c->name);
        answer(c);
    } else if (!serve_state_keep(&c->call, c->model, c->name, on_kept, &e)) {
        serve_call_fail(&c->call, &e);
    }
}

static void submit(change *c, dra_job_config *config)
{
    serve_error e = {0};
    if (!serve_job_start(&c->call, c->model, config, 0, NULL, on_changed, &e))
        serve_call_fail(&c->call, &e);
}

/* ---- POST: reading a text into a state, forking ---------------------------------------------- */

typedef struct asked {
    const char *model, *to, *state;
    json_t     *prompt;
} asked;

static const serve_field post_fields[] = {
    {"prompt", SERVE_F_ANY, offsetof(asked, prompt)},
    {"model", SERVE_F_WORD, offsetof(asked, model)},
    {"dra_state", SERVE_F_WORD, offsetof(asked, state)},
};
static const serve_field fork_fields[] = {
    {"to", SERVE_F_WORD, offsetof(asked, to)},
    {"model", SERVE_F_WORD, offsetof(asked, model)},
};

static bool create(const serve_request *r, const place *p, const asked *a, serve_error *e)
{
    dra_ids *ids = NULL;
    size_t   n = 0;
    if (!a->prompt) return serve_wrong(e, 400, "prompt", "prompt: expected a text or ids");
    if (a->state && !serve_state_name_ok(a->state))
        return serve_wrong(e, 400, "dra_state", "dra_state: expected a name of a state");
    bool well = serve_inputs_read(p->model, a->prompt, "prompt", !a->state, &n, &ids, e);
    if (well && n != 1) well = serve_wrong(e, 400, "prompt", "prompt: expected one");
    change *c = well ? begin(r, p, e) : NULL;
    if (c) {
        dra_job_config config = {.kind = DRA_JOB_GENERATE,
                                 .n = ids[0].n,
                                 .ids = ids[0].data,
                                 .logprobs = -1,
                                 .state = a->state,
                                 .save = c->name};
        c->status = 201;
        submit(c, &config);
    }
    serve_inputs_free(n, ids);
    return c != NULL;
}

static bool fork_state(const serve_request *r, const place *p, const asked *a, serve_error *e)
{
    if (!a->to || !serve_state_name_ok(a->to))
        return serve_wrong(e, 400, "to", "to: expected a name of a state");
    change *c = begin(r, p, e);
    if (!c) return false;
    dra_job_config config = {.kind = DRA_JOB_FORK, .state = p->name, .save = c->name};
    snprintf(c->name, sizeof c->name, "%s", a->to);
    c->status = 201;
    submit(c, &config);
    return true;
}

void serve_states_post(const serve_request *r)
{
    serve_error e = {0};
    place       p = {0};
    asked       a = {0};
    json_t     *body = serve_body(r, &e);
    bool        well = body && read_place(r, &p, &e);
    const bool  fork = well && strcmp(p.verb, "fork") == 0;
    if (well && p.verb[0] && !fork) well = serve_wrong(&e, 404, NULL, "no %.40s here", p.verb);
    if (well)
        well = fork ? serve_fields_read(fork_fields, COUNT(fork_fields), body, &a, &e)
                    : serve_fields_read(post_fields, COUNT(post_fields), body, &a, &e);
    if (well && a.model) well = (p.model = serve_model_find(r->server, a.model, &e)) != NULL;
    if (well) well = (fork ? fork_state : create)(r, &p, &a, &e);
    if (!well) serve_fail(r->conn, &e);
    json_decref(body);
}

/* ---- DELETE, PUT, GET ------------------------------------------------------------------------ */

/* The state must be there, and nothing may follow its name. */
static bool known(const serve_request *r, place *p, const char *verb, serve_error *e)
{
    if (!read_place(r, p, e)) return false;
    if (p->verb[0] && (!verb || strcmp(p->verb, verb) != 0))
        return serve_wrong(e, 404, NULL, "no %.40s here", p->verb);
    if (has_state(p->model, p->name)) return true;
    serve_wrong(e, 404, "name", "there is no state %s", p->name);
    e->code = "state_not_found";
    return false;
}

void serve_states_delete(const serve_request *r)
{
    serve_error    e = {0};
    place          p = {0};
    change        *c = known(r, &p, NULL, &e) ? begin(r, &p, &e) : NULL;
    dra_job_config config = {.kind = DRA_JOB_DELETE, .state = p.name};
    if (!c) {
        serve_fail(r->conn, &e);
        return;
    }
    c->deleted = true;
    submit(c, &config);
}

static void temp_path(change *c)
{
    serve *s = c->call.server;
    snprintf(c->path, sizeof c->path, "%s/" SERVE_TEMP "%llu", s->temp,
             (unsigned long long)++s->temps);
}

static void on_received(serve_job *job, const dra_job_result *r)
{
    change        *c = (change *)job->call;
    dra_job_config config = {.kind = DRA_JOB_IMPORT, .save = c->name, .path = c->path};
    if (r->end == DRA_JOB_DONE)
        submit(c, &config);
    else
        serve_call_failed(&c->call, r);
}

void serve_states_put(const serve_request *r)
{
    serve_error e = {0};
    place       p = {0};
    serve_text  data = {0};
    bool        well = read_place(r, &p, &e);
    if (well && p.verb[0]) well = serve_wrong(&e, 404, NULL, "no %.40s here", p.verb);
    change *c = well ? begin(r, &p, &e) : NULL;
    if (!c) {
        serve_fail(r->conn, &e);
        return;
    }
    c->status = 201;
    temp_path(c);
    serve_put(&data, r->body, r->bytes);
    if (data.failed)
        serve_wrong(&e, 503, NULL, "out of memory");
    else
        well = serve_work_start(&c->call, c->model, SERVE_WRITE, c->path, &data, on_received, &e);
    if (!well || data.failed) serve_call_fail(&c->call, &e);
    serve_text_free(&data);
}

/* The text of a result is the answer. */
static void send_text(serve_job *job, const dra_job_result *r, const char *type)
{
    change    *c = (change *)job->call;
    http_conn *conn = c->call.conn;
    if (r->end != DRA_JOB_DONE) {
        serve_call_failed(&c->call, r);
        return;
    }
    serve_call_end(&c->call);
    http_reply(conn, 200, type, NULL, r->text, r->bytes);
}

static void on_read(serve_job *job, const dra_job_result *r)
{
    send_text(job, r, "application/octet-stream");
}

static void on_looked(serve_job *job, const dra_job_result *r)
{
    send_text(job, r, "application/json");
}

static void on_exported(serve_job *job, const dra_job_result *r)
{
    change     *c = (change *)job->call;
    serve_error e = {0};
    if (r->end != DRA_JOB_DONE)
        serve_call_failed(&c->call, r);
    else if (!serve_work_start(&c->call, c->model, SERVE_READ, c->path, NULL, on_read, &e))
        serve_call_fail(&c->call, &e);
}

void serve_states_get(const serve_request *r)
{
    serve_error e = {0};
    place       p = {0};
    change     *c = known(r, &p, "look", &e) ? begin(r, &p, &e) : NULL;
    if (!c) {
        serve_fail(r->conn, &e);
        return;
    }
    bool well;
    if (p.verb[0]) {
        well = serve_work_start(&c->call, c->model, SERVE_LOOK, c->name, NULL, on_looked, &e);
    } else {
        temp_path(c);
        dra_job_config config = {.kind = DRA_JOB_EXPORT, .state = c->name, .path = c->path};
        well = serve_job_start(&c->call, c->model, &config, 0, NULL, on_exported, &e);
    }
    if (!well) serve_call_fail(&c->call, &e);
}

/* ---- a look into the memory ------------------------------------------------------------------ */

void serve_look_text(serve_model *m, uint64_t job, const char *state, serve_text *out)
{
    dra_look x;
    serve_puts(out, "[");
    for (int i = 0; dra_engine_look_at(m->engine, job, state, i, &x); i++) {
        serve_puts(out, i ? ", {\"name\": " : "{\"name\": ");
        serve_json_word(out, x.name);
        serve_puts(out, ", \"norm\": [");
        for (int64_t h = 0; h < x.heads; h++) {
            if (h) serve_puts(out, ", ");
            serve_json_float(out, x.norm[h]);
        }
        serve_puts(out, "]}");
    }
    serve_puts(out, "]");
}
