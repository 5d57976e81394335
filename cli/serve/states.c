/* Routes of states: /states, /states/NAME, /states/NAME/fork, /states/NAME/look. */
#include "fields.h"
#include "shelf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- listing --------------------------------------------------------------------------------- */

static void put_state(const serve_state *x, bool owned, serve_text *out)
{
    const serve_kept *b = x->body;
    char              owner[HTTP_ID + 1];
    serve_printf(out, "{\"name\": \"%s\", \"model\": \"%s\", \"tokens\": ", x->name,
                 x->model->name);
    if (b->tokens < 0)
        serve_puts(out, "null");
    else
        serve_json_int(out, b->tokens);
    serve_printf(out, ", \"bytes\": %zu, \"created\": %.3f, \"last_used\": %.3f, \"in_memory\": %s",
                 b->bytes, x->created, b->used, b->held ? "true" : "false");
    serve_owner_name(x->model->server, x->owner, owner, sizeof owner);
    if (owned) serve_puts(out, ", \"owner\": ");
    if (owned) serve_json_word(out, owner);
    serve_puts(out, "}");
}

static void put_states(const serve_model *m, const serve_request *r, const char **comma,
                       serve_text *t)
{
    bool more = true;
    for (size_t i = 0; more; i++) {
        const serve_state *x = r->all ? serve_shelf_any(m, i, &more)
                                      : serve_shelf_at(m, r->owner, i);
        more = r->all ? more : x != NULL;
        if (!x) continue;
        serve_puts(t, *comma);
        put_state(x, r->all, t);
        *comma = ", ";
    }
}

void serve_states_list(const serve_request *r)
{
    serve      *s = r->server;
    serve_text  t = {0};
    const char *comma = "";
    serve_puts(&t, "{\"object\": \"list\", \"data\": [");
    for (size_t i = 0; i < s->n_models; i++)
        if (s->models[i].phase == SERVE_READY) put_states(&s->models[i], r, &comma, &t);
    serve_puts(&t, "]}");
    serve_reply(r->conn, 200, &t);
}

/* ---- which state a path means ---------------------------------------------------------------- */

typedef struct place {
    serve_model *model;
    serve_state *state;                                       /* NULL: there is none of this name */
    char         name[SERVE_NAME + 1], query[SERVE_NAME + 1]; /* query: of the model; "": none */
    char         verb[8]; /* what follows the name: "fork", "look", "" */
} place;

/* The model of a state that only one has. */
static bool guess_model(serve *s, uint64_t owner, place *p, serve_error *e)
{
    size_t found = 0;
    for (size_t i = 0; i < s->n_models; i++) {
        serve_model *m = &s->models[i];
        serve_state *x = m->phase == SERVE_READY ? serve_shelf_find(m, owner, p->name) : NULL;
        if (!x) continue;
        p->model = m;
        found++;
    }
    return found < 2 ||
           serve_wrong(e, 400, "model", "several models have %s; expected ?model=", p->name);
}

/* Name, verb and query; `verb`: the one that may follow, or NULL. */
static bool read_path(const serve_request *r, const char *verb, place *p, serve_error *e)
{
    const char  *slash = strchr(r->rest, '/');
    const size_t n = slash ? (size_t)(slash - r->rest) : strlen(r->rest);
    if (n <= SERVE_NAME) snprintf(p->name, sizeof p->name, "%.*s", (int)n, r->rest);
    if (!serve_state_name_ok(p->name))
        return serve_wrong(e, 400, "name",
                           "expected a name of a state, 1 to %d of letters, digits and ._-",
                           SERVE_NAME);
    if (slash && slash[1] && (!verb || strcmp(slash + 1, verb) != 0))
        return serve_wrong(e, 404, NULL, "a state has no %.40s", slash + 1);
    if (slash) snprintf(p->verb, sizeof p->verb, "%s", slash + 1);
    http_query(r->head, "model", p->query, sizeof p->query);
    return true;
}

/* `model`: the name that the body has, or NULL. */
static bool find_place(serve *s, uint64_t owner, const char *model, place *p, serve_error *e)
{
    if (p->query[0]) model = p->query;
    p->model = serve_model_find(s, model, e);
    if (!p->model || (!model && !guess_model(s, owner, p, e))) return false;
    p->state = serve_shelf_find(p->model, owner, p->name);
    return true;
}

static bool read_place(const serve_request *r, const char *verb, place *p, serve_error *e)
{
    return read_path(r, verb, p, e) && find_place(r->server, r->owner, NULL, p, e);
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct asked {
    const char *model, *to, *state;
    json_t     *prompt;
} asked;

typedef struct change { /* one request about a state */
    serve_call   call;
    place        place;
    asked        asked;
    serve_model *model;
    uint64_t     owner;
    char         name[SERVE_NAME + 1];   /* the state that the answer is about */
    char         from[SERVE_NAME + 1];   /* the one it begins from; "": none */
    char         handle[SERVE_NAME + 1]; /* of the engine, to be forgotten; "": none */
    char         path[640];              /* to be removed; "": none */
    size_t       n;
    dra_ids     *prompt; /* (n) */
    int          status;
    bool         deleted, looks;
} change;

static void release_change(serve_call *call)
{
    change *c = (change *)call;
    if (c->path[0]) unlink(c->path);
    if (c->handle[0]) serve_state_forget(c->model, c->handle);
    serve_inputs_free(c->n, c->prompt);
}

static change *begin_change(const serve_request *r, const place *p, serve_error *e)
{
    change *c = calloc(1, sizeof *c);
    if (!c) {
        serve_wrong(e, 503, NULL, "out of memory");
        return NULL;
    }
    serve_call_begin(r->server, &c->call, r->conn, release_change);
    c->place = *p;
    c->model = p->model;
    c->owner = r->owner;
    memcpy(c->name, p->name, sizeof c->name);
    c->status = 200;
    return c;
}

static bool not_found(const char *name, serve_error *e)
{
    serve_wrong(e, 404, "name", "there is no state %s", name);
    e->code = "state_not_found";
    return false;
}

/* What the state is now. */
static void send_state(change *c)
{
    http_conn         *conn = c->call.conn;
    const int          status = c->status;
    const serve_state *x = serve_shelf_find(c->model, c->owner, c->name);
    serve_text         t = {0};
    if (c->deleted)
        serve_printf(&t, "{\"name\": \"%s\", \"deleted\": true}", c->name);
    else if (x)
        put_state(x, false, &t);
    else
        serve_puts(&t, "{}");
    serve_call_end(&c->call);
    serve_reply(conn, status, &t);
}

static void on_kept(serve_job *job, const dra_job_result *r)
{
    change *c = (change *)job->call;
    if (r->end == DRA_JOB_DONE)
        send_state(c);
    else
        serve_call_failed(&c->call, r);
}

/* The state is in the engine: its name stands for it, and its file follows. */
static void on_made(serve_job *job, const dra_job_result *r)
{
    change     *c = (change *)job->call;
    serve_error e = {0};
    char        handle[SERVE_NAME + 1];
    if (r->end != DRA_JOB_DONE) {
        serve_call_failed(&c->call, r);
        return;
    }
    memcpy(handle, c->handle, sizeof handle);
    c->handle[0] = '\0';
    if (!serve_shelf_put(&c->call, c->model, c->owner, c->name, handle, on_kept, &e))
        serve_call_fail(&c->call, &e);
}

static void submit_change(change *c, dra_job_config *config)
{
    serve_error e = {0};
    config->save = c->handle;
    config->owner = c->owner;
    serve_shelf_handle(c->model, c->handle);
    if (!serve_job_start(&c->call, c->model, config, 0, NULL, on_made, &e)) {
        c->handle[0] = '\0';
        serve_call_fail(&c->call, &e);
    }
}

/* ---- POST: reading a text into a state, forking ---------------------------------------------- */

static const serve_field post_fields[] = {
    {"prompt", SERVE_F_ANY, offsetof(asked, prompt)},
    {"model", SERVE_F_WORD, offsetof(asked, model)},
    {"dra_state", SERVE_F_WORD, offsetof(asked, state)},
};
static const serve_field fork_fields[] = {
    {"to", SERVE_F_WORD, offsetof(asked, to)},
    {"model", SERVE_F_WORD, offsetof(asked, model)},
};

static void read_text(change *c)
{
    const serve_state *from = c->from[0] ? serve_shelf_find(c->model, c->owner, c->from) : NULL;
    dra_job_config     config = {.kind = DRA_JOB_GENERATE,
                                 .n = c->prompt[0].n,
                                 .ids = c->prompt[0].data,
                                 .logprobs = -1,
                                 .state = from ? from->body->handle : NULL};
    serve_error        e = {0};
    if (c->from[0] && !from) {
        not_found(c->from, &e);
        serve_call_fail(&c->call, &e);
        return;
    }
    submit_change(c, &config);
}

static void on_begin(serve_job *job, const dra_job_result *r)
{
    change *c = (change *)job->call;
    if (r->end == DRA_JOB_DONE)
        read_text(c);
    else
        serve_call_failed(&c->call, r);
}

static bool check_prompt(const change *c, serve_error *e)
{
    const int64_t most = c->call.server->args->prompt;
    if (c->n != 1) return serve_wrong(e, 400, "prompt", "prompt: expected one");
    return (int64_t)c->prompt->n <= most ||
           serve_limited(e, SERVE_MAX_PROMPT, "prompt",
                         "the prompt has %zu tokens, expected at most %lld", c->prompt->n,
                         (long long)most);
}

static void encode_prompt(serve_call *call)
{
    change *c = (change *)call;
    serve_inputs_read(c->model, c->asked.prompt, "prompt", !c->asked.state, &c->n, &c->prompt,
                      &call->error);
}

static void on_prompt(serve_call *call)
{
    change      *c = (change *)call;
    serve_error *e = &call->error;
    if (e->status || !check_prompt(c, e) ||
        !serve_call_hold(call, 2 * c->prompt->n * sizeof(int32_t), e)) {
        serve_call_fail(call, e);
        return;
    }
    serve_state *from = c->from[0] ? serve_shelf_find(c->model, c->owner, c->from) : NULL;
    if (!from) /* or it was deleted meanwhile, which is reported there */
        read_text(c);
    else if (!serve_shelf_load(call, from, on_begin, e))
        serve_call_fail(call, e);
}

static bool create_state(change *c, serve_error *e)
{
    const asked *a = &c->asked;
    if (!a->prompt) return serve_wrong(e, 400, "prompt", "prompt: expected a text or ids");
    if (a->state && !serve_shelf_find(c->model, c->owner, a->state)) return not_found(a->state, e);
    if (!serve_shelf_has_room(c->model, c->owner, c->name, e)) return false;
    if (a->state) snprintf(c->from, sizeof c->from, "%s", a->state);
    c->status = 201;
    serve_call_do(&c->call, encode_prompt, on_prompt);
    return true;
}

static bool fork_state(change *c, serve_error *e)
{
    const char *to = c->asked.to;
    if (!to || !serve_state_name_ok(to))
        return serve_wrong(e, 400, "to", "to: expected a name of a state");
    if (!c->place.state) return not_found(c->name, e);
    snprintf(c->name, sizeof c->name, "%s", to);
    c->status = 201;
    return serve_shelf_fork(&c->call, c->place.state, to, on_kept, e);
}

/* Keys that are [read-only] change no states. */
static bool may_change(const serve_request *r, serve_error *e)
{
    if (!http_record_of(r->conn)->reads) return true;
    serve_wrong(e, 403, NULL, "the key is [read-only]: it changes no states");
    e->code = "read_only_key";
    return false;
}

static void on_body(serve_call *call)
{
    change      *c = (change *)call;
    serve_error *e = &call->error;
    const char  *model = json_string_value(json_object_get(call->body, "model"));
    const bool   fork = c->place.verb[0] != '\0';
    bool         well = call->body && find_place(call->server, c->owner, model, &c->place, e);
    c->model = c->place.model;
    if (well)
        well = fork ? serve_fields_read(fork_fields, COUNT(fork_fields), call->body, &c->asked, e)
                    : serve_fields_read(post_fields, COUNT(post_fields), call->body, &c->asked, e);
    if (!well || !(fork ? fork_state : create_state)(c, e)) serve_call_fail(call, e);
}

void serve_states_post(const serve_request *r)
{
    serve_error e = {0};
    place       p = {0};
    change *c = may_change(r, &e) && read_path(r, "fork", &p, &e) ? begin_change(r, &p, &e) : NULL;
    if (c)
        serve_call_read(&c->call, r, on_body);
    else
        serve_fail(r->conn, &e);
}

/* ---- DELETE, PUT, GET ------------------------------------------------------------------------ */

/* The state must be there, and nothing but `verb` may follow its name. */
static bool find_state(const serve_request *r, place *p, const char *verb, serve_error *e)
{
    return read_place(r, verb, p, e) && (p->state || not_found(p->name, e));
}

void serve_states_delete(const serve_request *r)
{
    serve_error e = {0};
    place       p = {0};
    change *c = may_change(r, &e) && find_state(r, &p, NULL, &e) ? begin_change(r, &p, &e) : NULL;
    if (!c) {
        serve_fail(r->conn, &e);
        return;
    }
    c->deleted = true;
    if (!serve_shelf_delete(&c->call, p.state, on_kept, &e)) serve_call_fail(&c->call, &e);
}

/* Its file is there until the request has ended. */
void serve_states_put(const serve_request *r)
{
    serve_error e = {0};
    place       p = {0};
    bool        well = may_change(r, &e) && read_place(r, NULL, &p, &e);
    if (well) well = serve_shelf_has_room(p.model, r->owner, p.name, &e);
    change *c = well ? begin_change(r, &p, &e) : NULL;
    if (!c) {
        serve_fail(r->conn, &e);
        return;
    }
    c->status = 201;
    dra_job_config config = {.kind = DRA_JOB_IMPORT, .path = http_file(r->conn)};
    submit_change(c, &config);
}

static void send_file(change *c)
{
    http_conn  *conn = c->call.conn;
    char        path[sizeof c->path];
    serve_error e = {0};
    memcpy(path, c->path, sizeof path);
    c->path[0] = '\0'; /* removed once it is open */
    serve_call_end(&c->call);
    const bool well = http_reply_file(conn, "application/octet-stream", path);
    unlink(path);
    if (well) return;
    serve_wrong(&e, 500, NULL, "the file of the state is gone");
    serve_fail(conn, &e);
}

static void on_exported(serve_job *job, const dra_job_result *r)
{
    change *c = (change *)job->call;
    if (r->end == DRA_JOB_DONE)
        send_file(c);
    else
        serve_call_failed(&c->call, r);
}

static void on_looked(serve_job *job, const dra_job_result *r)
{
    change    *c = (change *)job->call;
    http_conn *conn = c->call.conn;
    if (r->end != DRA_JOB_DONE) {
        serve_call_failed(&c->call, r);
        return;
    }
    serve_call_end(&c->call);
    http_reply(conn, 200, "application/json", NULL, r->text, r->bytes);
}

/* The state is in memory: it is looked at, or written to a file to be sent. */
static void on_ready(serve_job *job, const dra_job_result *r)
{
    change            *c = (change *)job->call;
    const serve_state *x = serve_shelf_find(c->model, c->owner, c->name);
    serve_error        e = {0};
    bool               well = true;
    if (r->end != DRA_JOB_DONE) {
        serve_call_failed(&c->call, r);
        return;
    }
    if (!x) {
        well = not_found(c->name, &e);
    } else if (c->looks) {
        well = serve_work_start(&c->call, c->model, SERVE_LOOK, x->body->handle, NULL, on_looked,
                                &e);
    } else {
        serve_temp_path(c->call.server, c->path, sizeof c->path);
        dra_job_config config = {.kind = DRA_JOB_EXPORT, .state = x->body->handle, .path = c->path};
        well = serve_job_start(&c->call, c->model, &config, 0, NULL, on_exported, &e);
    }
    if (!well) serve_call_fail(&c->call, &e);
}

/* The file, which is in pieces, is sent as one. */
static void send_restored(change *c, const char *path)
{
    serve_error e = {0};
    serve_text  from = {0};
    serve_puts(&from, path);
    serve_temp_path(c->call.server, c->path, sizeof c->path);
    if (!serve_work_start(&c->call, c->model, SERVE_RESTORE, c->path, &from, on_exported, &e))
        serve_call_fail(&c->call, &e);
    serve_text_free(&from);
}

void serve_states_get(const serve_request *r)
{
    serve_error e = {0};
    place       p = {0};
    char        path[4096];
    bool        well = find_state(r, &p, "look", &e);
    /* A state that is in its file needs no memory. */
    const bool filed = well && !p.verb[0] && p.state->filed == p.state->body &&
                       serve_shelf_path(p.state, path, sizeof path);
    if (filed && !p.state->body->pieces &&
        http_reply_file(r->conn, "application/octet-stream", path))
        return;
    change *c = well ? begin_change(r, &p, &e) : NULL;
    if (!c) {
        serve_fail(r->conn, &e);
        return;
    }
    c->looks = p.verb[0] != '\0';
    if (filed && p.state->body->pieces) {
        send_restored(c, path);
        return;
    }
    if (!serve_shelf_load(&c->call, p.state, on_ready, &e)) serve_call_fail(&c->call, &e);
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
