/* POST /v1/completions and /v1/chat/completions: first a state that came with the request is
 * loaded, then jobs write the choices, then a state that the answer has to contain is saved. */
#include "dialect.h"
#include "shelf.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void start_choices(serve_completion *c);
static void load_state(serve_completion *c);
static void send_state(serve_completion *c);
static void send_answer(serve_completion *c);

/* ---- beginning and end of a call ------------------------------------------------------------- */

static void choice_free(serve_choice *x)
{
    serve_text_free(&x->text);
    serve_text_free(&x->ids);
    serve_text_free(&x->prompt);
    serve_text_free(&x->logprobs.tokens);
    serve_text_free(&x->logprobs.logprobs);
    serve_text_free(&x->logprobs.top);
    serve_text_free(&x->logprobs.offsets);
    dra_decoder_destroy(x->decoder);
}

static void record_tokens(const serve_completion *c)
{
    http_record      *r = c->call.conn ? http_record_of(c->call.conn) : NULL;
    const serve_usage u = serve_usage_of(c);
    if (!c->model || !r) return;
    snprintf(r->model, sizeof r->model, "%s", c->model->name);
    r->counted = true;
    r->prompt = u.prompt;
    r->cached = u.cached;
    r->written = u.written;
}

static void release_completion(serve_call *call)
{
    serve_completion *c = (serve_completion *)call;
    record_tokens(c);
    for (size_t i = 0; c->choices && i < c->n; i++) choice_free(&c->choices[i]);
    free(c->choices);
    serve_inputs_free(c->n_prompts, c->prompts);
    free(c->ask);
    serve_grammar_drop(c->grammar);
    serve_text_free(&c->state);
    if (c->temp_in[0]) serve_state_forget(c->model, c->temp_in);
    if (c->save[0]) serve_state_forget(c->model, c->save);
    if (c->path[0]) unlink(c->path);
}

static bool read_prompts(serve_completion *c, serve_error *e)
{
    const serve_ask *a = c->ask;
    if (!a->chat)
        return serve_inputs_read(c->model, a->prompt, "prompt", !a->state && !a->state_data,
                                 &c->n_prompts, &c->prompts, e);
    c->n_prompts = 1;
    c->prompts = calloc(1, sizeof *c->prompts);
    if (!c->prompts) return serve_wrong(e, 503, NULL, "out of memory");
    return serve_messages_read(c->model, a, c->prompts, &c->instruction, e);
}

/* Memory of prompts and choices besides states: ids, here and in each job, and what a sampler
 * keeps for every token. */
static bool hold_memory(serve_completion *c, serve_error *e)
{
    enum { EACH = 1 << 14 };
    const int64_t most = c->call.server->args->prompt;
    const size_t  V = (size_t)dra_model_config_of(c->model->m.model)->vocab;
    size_t        bytes = sizeof *c->ask + c->n * (EACH + V * (sizeof(dra_real) + 2));
    for (size_t i = 0; i < c->n_prompts; i++) {
        const size_t n = c->prompts[i].n;
        if ((int64_t)n > most)
            return serve_limited(e, SERVE_MAX_PROMPT, c->chat ? "messages" : "prompt",
                                 "the prompt has %zu tokens, expected at most %lld", n,
                                 (long long)most);
        bytes += n * sizeof(int32_t) * (2 + c->per_prompt);
    }
    return serve_call_hold(&c->call, bytes, e);
}

/* With the limits on how much one request may ask. */
static bool make_choices(serve_completion *c, serve_error *e)
{
    const serve_ask *a = c->ask;
    const int64_t    most = c->call.server->args->queue;
    c->per_prompt = (size_t)a->n;
    c->n = c->n_prompts * c->per_prompt;
    if ((a->save_state || a->return_state) && c->n_prompts > 1)
        return serve_wrong(e, 400, "prompt", "prompt: expected one, as one state is kept");
    if ((int64_t)c->n > most)
        return serve_wrong(e, 400, "prompt", "prompt: expected at most %lld answers, found %zu",
                           (long long)most, c->n);
    if (!hold_memory(c, e)) return false;
    c->choices = calloc(c->n, sizeof *c->choices);
    if (!c->choices) return serve_wrong(e, 503, NULL, "out of memory");
    for (size_t i = 0; i < c->n && c->model->m.tokenizer && (c->echo || c->logprobs); i++)
        if (dra_decoder_create(c->model->m.tokenizer, false, &c->choices[i].decoder, NULL) !=
            DRA_OK)
            return serve_wrong(e, 503, NULL, "out of memory");
    return true;
}

/* ---- tokens and ends ------------------------------------------------------------------------- */

static void send_part(serve_completion *c, size_t i, const char *look)
{
    serve_text event = {0};
    if (c->dialect) {
        c->dialect->part(c);
        c->choices[i].told = c->choices[i].text.n;
        return;
    }
    serve_answer_part(c, i, look, &event);
    serve_call_say(&c->call, &event);
    serve_text_free(&event);
}

static size_t bytes_of(const serve_choice *x)
{
    const serve_logprobs *l = &x->logprobs;
    return x->text.n + x->ids.n + x->prompt.n + l->tokens.n + l->logprobs.n + l->top.n +
           l->offsets.n;
}

/* How often a text is in memory at the end: as it is, and in what is sent. */
static size_t times_of(const serve_completion *c)
{
    enum { STREAM = 1, WHOLE = 2, EVENTS = 5 };
    return !c->stream ? WHOLE : c->dialect ? EVENTS : STREAM;
}

/* Whether the choice is still within the limits. */
static bool hold_answer(serve_completion *c, serve_choice *x, serve_error *e)
{
    const size_t now = bytes_of(x), times = times_of(c), most = c->call.server->max_answer;
    if (now < x->held) {
        serve_call_loose(&c->call, times * (x->held - now));
        c->bytes -= x->held - now;
    } else if (now > x->held) {
        if (!serve_call_hold(&c->call, times * (now - x->held), e)) return false;
        c->bytes += now - x->held;
    }
    x->held = now;
    if (c->bytes <= most) return true;
    return serve_limited(e, SERVE_MAX_ANSWER, NULL, "the answer has more than %zu bytes", most);
}

static void on_token(serve_job *job, const serve_token *t)
{
    serve_completion *c = (serve_completion *)job->call;
    serve_choice     *x = &c->choices[job->index];
    http_record      *r = http_record_of(c->call.conn);
    serve_error       e = {0};
    if (!t->prompt && !r->first) r->first = serve_now();
    x->written_tokens += !t->prompt; /* so far; a client may leave before the end */
    serve_choice_token(c, x, t);
    if (!hold_answer(c, x, &e)) {
        serve_call_fail(&c->call, &e);
        return;
    }
    if (c->stream && (serve_choice_content(c, x) || x->ids.n || x->logprobs.n || t->look))
        send_part(c, (size_t)job->index, t->look);
}

/* Calls of tools come before the event that says how a choice has ended. */
static void send_end(serve_completion *c, size_t i)
{
    serve_choice *x = &c->choices[i];
    x->over = true;
    if (c->tools && x->text.n) {
        const char *finish = x->finish;
        x->finish = NULL;
        send_part(c, i, NULL);
        x->finish = x->called && strcmp(finish, "stop") == 0 ? "tool_calls" : finish;
    }
    send_part(c, i, NULL);
}

static void on_end(serve_job *job, const dra_job_result *r)
{
    serve_completion *c = (serve_completion *)job->call;
    serve_choice     *x = &c->choices[job->index];
    if (r->end != DRA_JOB_DONE) {
        serve_call_failed(&c->call, r);
        return;
    }
    serve_put(&x->text, r->text, r->bytes);
    x->stopped = r->finish == DRA_FINISH_STOP;
    x->finish = r->finish == DRA_FINISH_END || r->finish == DRA_FINISH_STOP ? "stop" : "length";
    x->prompt_tokens = r->prompt_tokens;
    x->cached_tokens = r->cached_tokens;
    x->written_tokens = r->written_tokens;
    x->drafted_tokens = r->drafted_tokens;
    x->accepted_tokens = r->accepted_tokens;
    if (c->stream) send_end(c, (size_t)job->index);
    if (++c->done == c->n) send_state(c);
}

/* ---- choices --------------------------------------------------------------------------------- */

static dra_job_config config_of(const serve_completion *c)
{
    const serve_ask *a = c->ask;
    return (dra_job_config){.kind = DRA_JOB_GENERATE,
                            .marks = {c->instruction},
                            .tokens = a->max_tokens,
                            .sampler = a->sampler,
                            .n_stop = a->n_stop,
                            .stop = a->stops,
                            .n_ends = c->model->habits.ends,
                            .ends = c->model->habits.end,
                            .n_stop_tokens = a->n_stop_tokens,
                            .stop_tokens = a->stop_tokens,
                            .logprobs = a->logprobs > a->prompt_logprobs ? a->logprobs
                                                                         : a->prompt_logprobs,
                            .echo = a->echo || a->prompt_logprobs >= 0,
                            .ignore_end = a->ignore_end,
                            .grammar = serve_grammar_of(c->grammar),
                            .owner = c->owner,
                            .state = c->temp_in[0] ? c->temp_in
                                     : c->from[0]  ? c->from
                                                   : NULL,
                            .save = c->save[0] ? c->save : NULL};
}

static void start_choices(serve_completion *c)
{
    serve_ask  *a = c->ask;
    serve_error e = {0};
    if (c->chat && c->model->ending && !a->ignore_end) a->stops[a->n_stop++] = c->model->ending;
    for (size_t i = 0; i < c->n; i++) {
        const dra_ids *p = &c->prompts[i / c->per_prompt];
        dra_job_config config = config_of(c);
        config.n = p->n;
        config.ids = p->data;
        config.sampler.seed = a->seed + i % c->per_prompt;
        if (!serve_job_start(&c->call, c->model, &config, (int64_t)i, on_token, on_end, &e)) {
            if (e.status == 400) snprintf(e.param, sizeof e.param, "prompt");
            serve_call_fail(&c->call, &e);
            return;
        }
        c->call.jobs->grammar = serve_grammar_hold(c->grammar); /* the one that has begun */
    }
    c->call.streams = c->stream;
    if (!c->stream) return;
    http_stream_begin(c->call.conn, "text/event-stream; charset=utf-8");
    if (c->dialect) c->dialect->begin(c);
}

/* ---- a state that comes with the request ----------------------------------------------------- */

static void temp_name(const serve_completion *c, char *name)
{
    serve *s = c->call.server;
    snprintf(name, SERVE_NAME + 1, SERVE_TEMP "%llu", (unsigned long long)++s->temps);
}

static void on_imported(serve_job *job, const dra_job_result *r)
{
    serve_completion *c = (serve_completion *)job->call;
    if (r->end == DRA_JOB_DONE)
        start_choices(c);
    else
        serve_call_failed(&c->call, r);
}

static void on_received(serve_job *job, const dra_job_result *r)
{
    serve_completion *c = (serve_completion *)job->call;
    serve_error       e = {0};
    dra_job_config    config = {.kind = DRA_JOB_IMPORT, .save = c->temp_in, .path = c->path};
    if (r->end != DRA_JOB_DONE)
        serve_call_failed(&c->call, r);
    else if (!serve_job_start(&c->call, c->model, &config, 0, NULL, on_imported, &e))
        serve_call_fail(&c->call, &e);
}

static void receive_state(serve_completion *c)
{
    json_t     *x = c->ask->state_data;
    serve_error e = {0};
    serve_text  data = {0};
    char       *bytes = NULL;
    bool well = serve_base64_read(json_string_value(x), json_string_length(x), &bytes, &data.n);
    data.data = bytes;
    if (!well) serve_wrong(&e, 400, "dra_state_data", "dra_state_data: expected base64");
    temp_name(c, c->temp_in);
    snprintf(c->path, sizeof c->path, "%s/%s", c->call.server->temp, c->temp_in);
    if (well)
        well = serve_work_start(&c->call, c->model, SERVE_WRITE, c->path, &data, on_received, &e);
    serve_text_free(&data);
    if (!well) serve_call_fail(&c->call, &e);
}

/* ---- a state that is kept, or goes with the answer ------------------------------------------- */

/* The answer is sent although its state could not be written. */
static void on_kept(serve_job *job, const dra_job_result *r)
{
    serve_completion *c = (serve_completion *)job->call;
    if (r->end != DRA_JOB_DONE) serve_wrong_status(&c->unsaved, &r->error);
    send_answer(c);
}

/* A state with a name is in its file before the answer says so. */
static void keep_state(serve_completion *c)
{
    serve_error e = {0};
    char        handle[SERVE_NAME + 1];
    if (!c->ask->save_state) {
        send_answer(c);
        return;
    }
    memcpy(handle, c->save, sizeof handle);
    c->save[0] = '\0';
    if (serve_shelf_put(&c->call, c->model, c->owner, c->ask->save_state, handle, on_kept, &e))
        return;
    c->unsaved = e;
    send_answer(c);
}

/* All is done. The call ends first, since the last write lets the next request begin. */
static void send_answer(serve_completion *c)
{
    http_conn *conn = c->call.conn;
    const int  status = c->unsaved.status ? c->unsaved.status : 200;
    serve_text t = {0};
    if (c->unsaved.limit) serve_limit_acts(&c->call.server->limits, c->unsaved.limit);
    if (c->stream) {
        if (c->dialect)
            c->dialect->last(c);
        else if (serve_answer_last(c, &t))
            serve_call_say(&c->call, &t);
        serve_text_free(&t);
        if (!c->dialect) http_stream_put(conn, "data: [DONE]\n\n", 14);
        serve_call_end(&c->call);
        http_stream_end(conn);
    } else {
        (c->dialect ? c->dialect->whole : serve_answer_whole)(c, &t);
        serve_call_end(&c->call);
        serve_reply(conn, status, &t);
    }
}

static void on_read_back(serve_job *job, const dra_job_result *r)
{
    serve_completion *c = (serve_completion *)job->call;
    if (r->end != DRA_JOB_DONE) {
        serve_call_failed(&c->call, r);
        return;
    }
    serve_base64(&c->state, r->text, r->bytes);
    keep_state(c);
}

/* The file, its base64 and the answer that contains it are in memory at the same time. */
static bool hold_state(serve_completion *c, serve_error *e)
{
    struct stat  how;
    const size_t most = c->call.server->max_answer;
    if (stat(c->path, &how) != 0) return true; /* reading it says why */
    const size_t bytes = (size_t)how.st_size;
    if (bytes / 3 * 4 > most)
        return serve_limited(e, SERVE_MAX_ANSWER, "dra_return_state",
                             "dra_return_state: the state has %zu bytes; see GET /states/NAME",
                             bytes);
    return serve_call_hold(&c->call, 4 * bytes, e);
}

static void on_exported(serve_job *job, const dra_job_result *r)
{
    serve_completion *c = (serve_completion *)job->call;
    serve_error       e = {0};
    if (r->end != DRA_JOB_DONE)
        serve_call_failed(&c->call, r);
    else if (!hold_state(c, &e) ||
             !serve_work_start(&c->call, c->model, SERVE_READ, c->path, NULL, on_read_back, &e))
        serve_call_fail(&c->call, &e);
}

static void send_state(serve_completion *c)
{
    serve_error    e = {0};
    char           name[SERVE_NAME + 1];
    dra_job_config config = {.kind = DRA_JOB_EXPORT, .state = c->save, .path = c->path};
    if (!c->return_state) {
        keep_state(c);
        return;
    }
    temp_name(c, name);
    snprintf(c->path, sizeof c->path, "%s/%s", c->call.server->temp, name);
    if (!serve_job_start(&c->call, c->model, &config, 0, NULL, on_exported, &e))
        serve_call_fail(&c->call, &e);
}

/* ---- the routes ------------------------------------------------------------------------------ */

static void copy_settings(serve_completion *c)
{
    const serve_ask *a = c->ask;
    c->stream = a->stream;
    c->usage = a->usage;
    c->echo = a->echo;
    c->logprobs = a->logprobs >= 0;
    c->return_state = a->return_state;
    c->return_ids = a->return_ids;
    c->tools = a->tools.list != NULL;
    c->call.looks = a->look;
    c->created = (int64_t)time(NULL);
    snprintf(c->id, sizeof c->id, "%s-%016llx",
             c->dialect ? c->dialect->prefix
             : a->chat  ? "chatcmpl"
                        : "cmpl",
             (unsigned long long)serve_random());
    if (a->save_state || a->return_state) serve_shelf_handle(c->model, c->save);
}

static bool no_state(const char *name, serve_error *e)
{
    serve_wrong(e, 404, "dra_state", "there is no state %s", name);
    e->code = "state_not_found";
    return false;
}

/* Names of states, before anything is done. */
static bool check_states(const serve_completion *c, serve_error *e)
{
    const serve_ask *a = c->ask;
    if (a->state && !serve_shelf_find(c->model, c->owner, a->state)) return no_state(a->state, e);
    if (!a->save_state) return true;
    if (http_record_of(c->call.conn)->reads) {
        serve_wrong(e, 403, "dra_save_state", "the key is [read-only]: it changes no states");
        e->code = "read_only_key";
        return false;
    }
    return serve_shelf_has_room(c->model, c->owner, a->save_state, e);
}

/* Ids are those of the model. */
static bool check_ids(const serve_completion *c, serve_error *e)
{
    const serve_ask *a = c->ask;
    const int64_t    V = dra_model_config_of(c->model->m.model)->vocab;
    for (int64_t i = 0; i < a->n_bias; i++)
        if (a->bias[i].id >= V)
            return serve_wrong(e, 400, "logit_bias",
                               "logit_bias: expected ids below %lld, found %d", (long long)V,
                               a->bias[i].id);
    for (int i = 0; i < a->n_stop_tokens; i++)
        for (size_t k = 0; k < a->stop_tokens[i].n; k++)
            if (a->stop_tokens[i].data[k] >= V)
                return serve_wrong(e, 400, "stop_token_ids",
                                   "stop_token_ids: expected ids below %lld, found %d",
                                   (long long)V, a->stop_tokens[i].data[k]);
    return true;
}

/* All fields but texts. */
static bool read_ask(serve_completion *c, serve_error *e)
{
    serve *s = c->call.server;
    c->ask = c->call.body ? malloc(sizeof *c->ask) : NULL;
    if (!c->call.body) return false;
    if (!c->ask) return serve_wrong(e, 503, NULL, "out of memory");
    if (!serve_ask_read(s, c->call.body, c->chat, c->ask, e)) return false;
    c->model = serve_model_find(s, c->ask->model, e);
    if (!c->model || !check_states(c, e) || !check_ids(c, e)) return false;
    copy_settings(c);
    return true;
}

/* Grammar and ids. Then all of the body goes but names, which may be texts of a few letters. */
static void read_texts(serve_call *call)
{
    static const char *const kept[] = {"model",          "stop",           "dra_state",
                                       "dra_save_state", "dra_state_data", "tools"};
    serve_completion        *c = (serve_completion *)call;
    if (serve_grammar_open(c->model, c->ask, &c->grammar, &call->error) &&
        read_prompts(c, &call->error))
        serve_json_keep(call->body, kept, COUNT(kept));
}

static void on_texts(serve_call *call)
{
    serve_completion *c = (serve_completion *)call;
    serve_error      *e = &call->error;
    const size_t      bytes = json_string_length(c->ask->state_data);
    serve_dialect_blame(c->dialect, e);
    if (e->status == 0) serve_call_stripped(call);
    if (e->status || !make_choices(c, e) || !serve_call_hold(call, 3 * bytes, e))
        serve_call_fail(call, e);
    else if (c->ask->state_data)
        receive_state(c);
    else if (c->ask->state)
        load_state(c);
    else
        start_choices(c);
}

static void ask_chat(serve_call *call)
{
    serve_completion *c = (serve_completion *)call;
    const bool        well = call->body && call->error.status == 0;
    const bool        all = well && read_ask(c, &call->error);
    if (well && !all) serve_dialect_blame(c->dialect, &call->error);
    if (all)
        serve_call_do(call, read_texts, on_texts);
    else
        serve_call_fail(call, &call->error);
}

/* The body becomes that of a chat. */
static void translate_body(serve_call *call)
{
    const serve_completion *c = (const serve_completion *)call;
    json_t                 *body = call->body;
    call->body = serve_dialect_read(c->dialect, body, &call->error);
    json_decref(body);
}

/* Both bodies, and a text between them, are in memory at a time. */
static void on_body(serve_call *call)
{
    const serve_completion *c = (const serve_completion *)call;
    const size_t            more = call->cost + call->bytes;
    if (!c->dialect || !call->body) {
        ask_chat(call);
    } else if (serve_call_hold(call, more, &call->error)) {
        call->cost += more;
        serve_call_do(call, translate_body, ask_chat);
    } else {
        serve_call_fail(call, &call->error);
    }
}

static void on_state_ready(serve_job *job, const dra_job_result *r)
{
    serve_completion  *c = (serve_completion *)job->call;
    const serve_state *x = serve_shelf_find(c->model, c->owner, c->ask->state);
    serve_error        e = {0};
    if (r->end != DRA_JOB_DONE) {
        serve_call_failed(&c->call, r);
    } else if (!x) {
        no_state(c->ask->state, &e);
        serve_call_fail(&c->call, &e);
    } else {
        memcpy(c->from, x->body->handle, sizeof c->from);
        start_choices(c);
    }
}

static void load_state(serve_completion *c)
{
    serve_error  e = {0};
    serve_state *x = serve_shelf_find(c->model, c->owner, c->ask->state);
    if (!x ? !no_state(c->ask->state, &e) : !serve_shelf_load(&c->call, x, on_state_ready, &e))
        serve_call_fail(&c->call, &e);
}

static void start_completion(const serve_request *r, bool chat, const serve_dialect *dialect)
{
    serve_error       e = {0};
    serve_completion *c = calloc(1, sizeof *c);
    if (!c) {
        serve_wrong(&e, 503, NULL, "out of memory");
        serve_fail(r->conn, &e);
        return;
    }
    serve_call_begin(r->server, &c->call, r->conn, release_completion);
    c->chat = chat;
    c->dialect = dialect;
    if (dialect) c->call.failed = dialect->failed;
    c->owner = r->owner;
    serve_call_read(&c->call, r, on_body);
}

void serve_completions(const serve_request *r) { start_completion(r, false, NULL); }
void serve_chat(const serve_request *r) { start_completion(r, true, NULL); }
void serve_responses(const serve_request *r)
{
    start_completion(r, true, &serve_responses_dialect);
}
void serve_messages(const serve_request *r) { start_completion(r, true, &serve_messages_dialect); }
