/* POST /v1/completions and /v1/chat/completions: jobs for choices, before them a state that came
 * with the request, after them one that goes with the answer. */
#include "completion.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void start_choices(serve_completion *c);
static void finish(serve_completion *c);

/* ---- beginning and end of a call ------------------------------------------------------------- */

static void choice_free(serve_choice *x)
{
    serve_text_free(&x->text);
    serve_text_free(&x->logprobs.tokens);
    serve_text_free(&x->logprobs.logprobs);
    serve_text_free(&x->logprobs.top);
    serve_text_free(&x->logprobs.offsets);
    dra_decoder_destroy(x->decoder);
}

static void release(serve_call *call)
{
    serve_completion *c = (serve_completion *)call;
    for (size_t i = 0; c->choices && i < c->n; i++) choice_free(&c->choices[i]);
    free(c->choices);
    serve_inputs_free(c->n_prompts, c->prompts);
    json_decref(c->body);
    free(c->ask);
    serve_text_free(&c->state);
    if (c->temp_in[0]) serve_state_forget(c->model, c->temp_in);
    if (c->temp_out[0]) serve_state_forget(c->model, c->temp_out);
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
    return serve_messages_read(c->model, a, c->prompts, e);
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
    c->choices = calloc(c->n, sizeof *c->choices);
    if (!c->choices) return serve_wrong(e, 503, NULL, "out of memory");
    for (size_t i = 0; i < c->n && c->model->m.tokenizer && (c->echo || c->logprobs); i++)
        if (dra_decoder_create(c->model->m.tokenizer, false, &c->choices[i].decoder, NULL) !=
            DRA_OK)
            return serve_wrong(e, 503, NULL, "out of memory");
    return true;
}

/* ---- tokens and ends ------------------------------------------------------------------------- */

static void say(serve_completion *c, size_t i, const char *look)
{
    serve_text event = {0};
    serve_answer_part(c, i, look, &event);
    serve_call_say(&c->call, &event);
    serve_text_free(&event);
}

static void on_token(serve_job *job, const serve_token *t)
{
    serve_completion *c = (serve_completion *)job->call;
    serve_choice     *x = &c->choices[job->index];
    serve_choice_token(c, x, t);
    if (c->stream && (x->text.n || x->logprobs.n || t->look)) say(c, (size_t)job->index, t->look);
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
    x->finish = r->finish == DRA_FINISH_END || r->finish == DRA_FINISH_STOP ? "stop" : "length";
    x->prompt_tokens = r->prompt_tokens;
    x->cached_tokens = r->cached_tokens;
    x->written_tokens = r->written_tokens;
    if (c->stream) say(c, (size_t)job->index, NULL);
    if (++c->done == c->n) finish(c);
}

/* ---- choices --------------------------------------------------------------------------------- */

static dra_job_config config_of(const serve_completion *c)
{
    const serve_ask *a = c->ask;
    /* 0 keeps nothing but the most likely token, which the sampler has as all of them. */
    const double top_p = a->top_p > 0 ? a->top_p : 1e-9;
    return (dra_job_config){.kind = DRA_JOB_GENERATE,
                            .tokens = a->max_tokens,
                            .sampler = {.n_bias = a->n_bias,
                                        .bias = a->bias,
                                        .repetition_penalty = a->repetition_penalty,
                                        .temperature = a->temperature,
                                        .top_k = a->top_k,
                                        .top_p = top_p,
                                        .min_p = a->min_p},
                            .presence_penalty = a->presence_penalty,
                            .frequency_penalty = a->frequency_penalty,
                            .n_stop = a->n_stop,
                            .stop = a->stops,
                            .n_ends = c->model->habits.ends,
                            .ends = c->model->habits.end,
                            .logprobs = a->logprobs,
                            .echo = a->echo,
                            .state = c->temp_in[0] ? c->temp_in : a->state,
                            .save = c->save[0] ? c->save : NULL};
}

static void start_choices(serve_completion *c)
{
    serve_ask  *a = c->ask;
    serve_error e = {0};
    if (c->chat && c->model->ending) a->stops[a->n_stop++] = c->model->ending;
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
    }
    c->call.streams = c->stream;
    if (c->stream) http_stream_begin(c->call.conn, "text/event-stream; charset=utf-8");
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

/* All is done. The call ends first: what is said last lets the next request begin. */
static void answer(serve_completion *c)
{
    http_conn *conn = c->call.conn;
    serve_text t = {0};
    if (c->stream) {
        if (serve_answer_last(c, &t)) serve_call_say(&c->call, &t);
        serve_text_free(&t);
        http_stream_put(conn, "data: [DONE]\n\n", 14);
        serve_call_end(&c->call);
        http_stream_end(conn);
    } else {
        serve_answer_whole(c, &t);
        serve_call_end(&c->call);
        serve_reply(conn, 200, &t);
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
    answer(c);
}

static void on_exported(serve_job *job, const dra_job_result *r)
{
    serve_completion *c = (serve_completion *)job->call;
    serve_error       e = {0};
    if (r->end != DRA_JOB_DONE)
        serve_call_failed(&c->call, r);
    else if (!serve_work_start(&c->call, c->model, SERVE_READ, c->path, NULL, on_read_back, &e))
        serve_call_fail(&c->call, &e);
}

static void send_state(serve_completion *c)
{
    serve_error    e = {0};
    char           name[SERVE_NAME + 1];
    dra_job_config config = {.kind = DRA_JOB_EXPORT, .state = c->save, .path = c->path};
    if (!c->return_state) {
        answer(c);
        return;
    }
    temp_name(c, name);
    snprintf(c->path, sizeof c->path, "%s/%s", c->call.server->temp, name);
    if (!serve_job_start(&c->call, c->model, &config, 0, NULL, on_exported, &e))
        serve_call_fail(&c->call, &e);
}

static void on_kept(serve_job *job, const dra_job_result *r)
{
    serve_completion *c = (serve_completion *)job->call;
    if (r->end == DRA_JOB_DONE)
        send_state(c);
    else
        serve_call_failed(&c->call, r);
}

/* All choices are there. A state with a name is in its file before the answer says so. */
static void finish(serve_completion *c)
{
    serve_error e = {0};
    if (!c->ask->save_state || !c->call.server->args->state_dir) {
        send_state(c);
    } else if (!serve_state_keep(&c->call, c->model, c->save, on_kept, &e)) {
        serve_call_fail(&c->call, &e);
    }
}

/* ---- the routes ------------------------------------------------------------------------------ */

static void describe(serve_completion *c)
{
    const serve_ask *a = c->ask;
    c->chat = a->chat;
    c->stream = a->stream;
    c->usage = a->usage;
    c->echo = a->echo;
    c->logprobs = a->logprobs >= 0;
    c->return_state = a->return_state;
    c->call.looks = a->look;
    c->created = (int64_t)time(NULL);
    snprintf(c->id, sizeof c->id, "%s-%016llx", a->chat ? "chatcmpl" : "cmpl",
             (unsigned long long)serve_random());
    if (a->save_state) {
        snprintf(c->save, sizeof c->save, "%s", a->save_state);
    } else if (a->return_state) {
        temp_name(c, c->temp_out);
        snprintf(c->save, sizeof c->save, "%s", c->temp_out);
    }
}

static bool prepare(serve_completion *c, const serve_request *r, bool chat, serve_error *e)
{
    c->body = serve_body(r, e);
    c->ask = malloc(sizeof *c->ask);
    if (!c->ask) return serve_wrong(e, 503, NULL, "out of memory");
    if (!c->body || !serve_ask_read(r->server, c->body, chat, c->ask, e)) return false;
    c->model = serve_model_find(r->server, c->ask->model, e);
    if (!c->model) return false;
    describe(c);
    return read_prompts(c, e) && make_choices(c, e);
}

static void complete(const serve_request *r, bool chat)
{
    serve_error       e = {0};
    serve_completion *c = calloc(1, sizeof *c);
    if (!c) {
        serve_wrong(&e, 503, NULL, "out of memory");
        serve_fail(r->conn, &e);
        return;
    }
    serve_call_begin(r->server, &c->call, r->conn, release);
    if (!prepare(c, r, chat, &e))
        serve_call_fail(&c->call, &e);
    else if (c->ask->state_data)
        receive_state(c);
    else
        start_choices(c);
}

void serve_completions(const serve_request *r) { complete(r, false); }
void serve_chat(const serve_request *r) { complete(r, true); }
