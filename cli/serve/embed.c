/* POST /v1/embeddings: a vector for each text. */
#include "fields.h"

#include <stdlib.h>
#include <string.h>

typedef struct asked {
    const char *model, *format, *pool;
    json_t     *input;
} asked;

static const serve_field fields[] = {
    {"model", SERVE_F_WORD, offsetof(asked, model)},
    {"input", SERVE_F_ANY, offsetof(asked, input)},
    {"encoding_format", SERVE_F_WORD, offsetof(asked, format)},
    {"dra_pool", SERVE_F_WORD, offsetof(asked, pool)},
    {"dimensions", SERVE_F_REFUSED, .why = "vectors are as wide as the model has them"},
};

typedef struct embedding {
    serve_call   call;
    serve_model *model;
    bool         base64;
    dra_pooling  pooling;
    size_t       n, done, bytes; /* bytes: of vectors so far */
    uint64_t     owner;
    json_t      *input;
    dra_ids     *inputs;
    serve_text  *vectors; /* (n), as JSON */
    int64_t      tokens, cached;
} embedding;

static void release_embedding(serve_call *call)
{
    embedding *x = (embedding *)call;
    for (size_t i = 0; x->vectors && i < x->n; i++) serve_text_free(&x->vectors[i]);
    free(x->vectors);
    serve_inputs_free(x->n, x->inputs);
}

/* Numbers of 32 bits, which is what clients take. */
static void put_floats(serve_text *out, const dra_job_result *r)
{
    const size_t n = (size_t)r->width;
    float       *x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; x && i < n; i++) x[i] = (float)r->vector[i];
    if (x)
        serve_base64(out, x, n * sizeof *x);
    else
        out->failed = true;
    free(x);
}

static void put_vector(const embedding *x, const dra_job_result *r, serve_text *out)
{
    if (x->base64) {
        serve_puts(out, "\"");
        put_floats(out, r);
        serve_puts(out, "\"");
        return;
    }
    for (int64_t i = 0; i < r->width; i++) {
        serve_puts(out, i ? ", " : "[");
        serve_json_float(out, (float)r->vector[i]);
    }
    serve_puts(out, "]");
}

static void record_tokens(const embedding *x)
{
    http_record *r = http_record_of(x->call.conn);
    snprintf(r->model, sizeof r->model, "%s", x->model->name);
    r->counted = true;
    r->prompt = x->tokens;
    r->cached = x->cached;
}

static void send_vectors(embedding *x)
{
    http_conn *conn = x->call.conn;
    serve_text t = {0};
    serve_puts(&t, "{\"object\": \"list\", \"data\": [");
    for (size_t i = 0; i < x->n; i++) {
        serve_printf(
            &t, "%s{\"object\": \"embedding\", \"index\": %zu, \"embedding\": ", i ? ", " : "", i);
        serve_put(&t, x->vectors[i].data, x->vectors[i].n);
        serve_puts(&t, "}");
        t.failed |= x->vectors[i].failed;
    }
    serve_puts(&t, "], \"model\": ");
    serve_json_word(&t, x->model->name);
    record_tokens(x);
    serve_printf(&t,
                 ", \"usage\": {\"prompt_tokens\": %lld, \"total_tokens\": %lld, "
                 "\"prompt_tokens_details\": {\"cached_tokens\": %lld}}}",
                 (long long)x->tokens, (long long)x->tokens, (long long)x->cached);
    serve_call_end(&x->call);
    serve_reply(conn, 200, &t);
}

static void on_end(serve_job *job, const dra_job_result *r)
{
    embedding *x = (embedding *)job->call;
    if (r->end != DRA_JOB_DONE) {
        serve_call_failed(&x->call, r);
        return;
    }
    serve_text *vector = &x->vectors[job->index];
    serve_error e = {0};
    put_vector(x, r, vector);
    x->bytes += vector->n;
    if (x->bytes > x->call.server->max_answer)
        serve_limited(&e, SERVE_MAX_ANSWER, NULL, "the answer has more than %zu bytes",
                      x->call.server->max_answer);
    if (e.limit || !serve_call_hold(&x->call, 2 * vector->n, &e)) {
        serve_call_fail(&x->call, &e);
        return;
    }
    x->tokens += r->prompt_tokens;
    x->cached += r->cached_tokens;
    if (++x->done == x->n) send_vectors(x);
}

/* Words of a list by number; -1: it is none of them. */
static int word_of(const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(words[i], word) == 0) return i;
    return -1;
}

static bool read_asked(embedding *x, serve_error *e)
{
    static const char *const formats[] = {"float", "base64"}, *const pools[] = {"mean", "last",
                                                                                "state"};
    asked a = {.format = "float", .pool = "mean"};
    if (!x->call.body || !serve_fields_read(fields, COUNT(fields), x->call.body, &a, e))
        return false;
    const int format = word_of(a.format, formats, 2), pool = word_of(a.pool, pools, 3);
    if (format < 0)
        return serve_wrong(e, 400, "encoding_format", "encoding_format: expected float or base64");
    if (pool < 0) return serve_wrong(e, 400, "dra_pool", "dra_pool: expected mean, last or state");
    if (!a.input) return serve_wrong(e, 400, "input", "input: expected a text, ids, or lists");
    x->model = serve_model_find(x->call.server, a.model, e);
    x->base64 = format == 1;
    x->pooling = (dra_pooling)pool;
    x->input = a.input;
    return x->model != NULL;
}

static bool hold_inputs(embedding *x, serve_error *e)
{
    enum { EACH = 1 << 14 };
    const int64_t most = x->call.server->args->prompt;
    size_t        bytes = x->n * EACH;
    for (size_t i = 0; i < x->n; i++) {
        if ((int64_t)x->inputs[i].n > most)
            return serve_limited(e, SERVE_MAX_PROMPT, "input",
                                 "input: a text has %zu tokens, expected at most %lld",
                                 x->inputs[i].n, (long long)most);
        bytes += x->inputs[i].n * sizeof(int32_t) * 3;
    }
    return serve_call_hold(&x->call, bytes, e);
}

static bool start_jobs(embedding *x, serve_error *e)
{
    const int64_t most = x->call.server->args->queue;
    if ((int64_t)x->n > most)
        return serve_wrong(e, 400, "input", "input: expected at most %lld, found %zu",
                           (long long)most, x->n);
    if (!hold_inputs(x, e)) return false;
    x->vectors = calloc(x->n, sizeof *x->vectors);
    if (!x->vectors) return serve_wrong(e, 503, NULL, "out of memory");
    for (size_t i = 0; i < x->n; i++) {
        dra_job_config config = {.kind = DRA_JOB_EMBED,
                                 .n = x->inputs[i].n,
                                 .ids = x->inputs[i].data,
                                 .logprobs = -1,
                                 .owner = x->owner,
                                 .pooling = x->pooling};
        if (!serve_job_start(&x->call, x->model, &config, (int64_t)i, NULL, on_end, e))
            return false;
    }
    return true;
}

static void read_texts(serve_call *call)
{
    embedding *x = (embedding *)call;
    if (serve_inputs_read(x->model, x->input, "input", true, &x->n, &x->inputs, &call->error))
        json_object_clear(call->body);
}

static void on_texts(serve_call *call)
{
    if (call->error.status == 0) serve_call_stripped(call);
    if (call->error.status || !start_jobs((embedding *)call, &call->error))
        serve_call_fail(call, &call->error);
}

static void on_body(serve_call *call)
{
    if (read_asked((embedding *)call, &call->error))
        serve_call_do(call, read_texts, on_texts);
    else
        serve_call_fail(call, &call->error);
}

void serve_embeddings(const serve_request *r)
{
    serve_error e = {0};
    embedding  *x = calloc(1, sizeof *x);
    if (!x) {
        serve_wrong(&e, 503, NULL, "out of memory");
        serve_fail(r->conn, &e);
        return;
    }
    serve_call_begin(r->server, &x->call, r->conn, release_embedding);
    x->owner = r->owner;
    serve_call_read(&x->call, r, on_body);
}
