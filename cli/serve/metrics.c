/* GET /metrics: Prometheus' text format, version 0.0.4. */
#include "shelf.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef double (*value_of)(const dra_engine_stats *stats);

static double jobs_waiting(const dra_engine_stats *x) { return (double)x->waiting; }
static double jobs_active(const dra_engine_stats *x) { return (double)x->active; }
static double tokens_read(const dra_engine_stats *x)
{
    return (double)(x->tokens_read + x->tokens_reused);
}
static double tokens_computed(const dra_engine_stats *x) { return (double)x->tokens_read; }
static double tokens_reused(const dra_engine_stats *x) { return (double)x->tokens_reused; }
static double tokens_written(const dra_engine_stats *x) { return (double)x->tokens_written; }
static double tokens_drafted(const dra_engine_stats *x) { return (double)x->tokens_drafted; }
static double tokens_accepted(const dra_engine_stats *x) { return (double)x->tokens_accepted; }
static double state_bytes(const dra_engine_stats *x) { return (double)x->state_bytes; }
static double named_states(const dra_engine_stats *x) { return (double)x->states; }
static double kept_prefixes(const dra_engine_stats *x) { return (double)x->kept; }
static double compiled_programs(const dra_engine_stats *x) { return (double)x->programs; }

static const struct {
    const char *name, *type, *help;
    value_of    of;
} figures[] = {
    {"dra_queue_length", "gauge", "Jobs that wait.", jobs_waiting},
    {"dra_active_sequences", "gauge", "Sequences that run.", jobs_active},
    {"dra_tokens_read_total", "counter", "Tokens of prompts.", tokens_read},
    {"dra_tokens_written_total", "counter", "Tokens written.", tokens_written},
    {"dra_tokens_drafted_total", "counter", "Tokens that were guessed, see --draft.",
     tokens_drafted},
    {"dra_tokens_accepted_total", "counter", "Guessed tokens that were right.", tokens_accepted},
    {"dra_prompt_tokens_computed_total", "counter", "Tokens of prompts that were computed.",
     tokens_computed},
    {"dra_prompt_tokens_reused_total", "counter", "Tokens of prompts whose state was kept.",
     tokens_reused},
    {"dra_state_bytes", "gauge", "Bytes of all states.", state_bytes},
    {"dra_states", "gauge", "States that have a name.", named_states},
    {"dra_states_kept", "gauge", "States kept to begin prompts with.", kept_prefixes},
    {"dra_programs", "gauge", "Programs compiled for the engine.", compiled_programs},
};

static void write_head(serve_text *t, const char *name, const char *type, const char *help)
{
    serve_printf(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_requests(const serve *s, serve_text *t)
{
    write_head(t, "dra_requests_total", "counter", "Requests by route and status.");
    for (size_t i = 0; i < SERVE_ROUTES; i++)
        for (int status = 0; status < SERVE_STATUS; status++)
            if (s->counts[i][status]) {
                const serve_route *r = i < serve_n_routes ? &serve_routes[i] : NULL;
                serve_printf(t,
                             "dra_requests_total{method=\"%s\",route=\"%s\",status=\"%d\"} %lld\n",
                             r ? r->method : "", r ? r->name : "other", status,
                             (long long)s->counts[i][status]);
            }
    write_head(t, "dra_cancelled_total", "counter", "Jobs whose client left.");
    serve_printf(t, "dra_cancelled_total %lld\n", (long long)s->cancelled);
    write_head(t, "dra_connections", "gauge", "Open connections.");
    serve_printf(t, "dra_connections %d\n", http_connections(s->http));
    write_head(t, "dra_request_bytes", "gauge",
               "Bytes of requests and answers, see --request-memory.");
    serve_printf(t, "dra_request_bytes %zu\n", atomic_load(&s->limits.used));
    write_head(t, "dra_limits_total", "counter", "How often limits have acted.");
    for (int i = SERVE_NO_LIMIT + 1; i < SERVE_LIMITS; i++)
        serve_printf(t, "dra_limits_total{limit=\"%s\"} %lld\n", serve_limit_name((serve_limit)i),
                     (long long)s->limits.acted[i]);
}

/* labels: "" or with a comma at its end. */
static void put_seconds(const char *name, const char *labels, const serve_seconds *x, serve_text *t)
{
    const int n = (int)strlen(labels) - (labels[0] != '\0');
    int64_t   sum = 0;
    for (int i = 0; i < SERVE_BUCKETS; i++) {
        sum += x->bucket[i];
        serve_printf(t, "%s_bucket{%sle=\"%g\"} %lld\n", name, labels, serve_bounds[i],
                     (long long)sum);
    }
    serve_printf(t, "%s_bucket{%sle=\"+Inf\"} %lld\n", name, labels, (long long)x->count);
    serve_printf(t, "%s_sum{%.*s} %.9g\n", name, n, labels, x->sum);
    serve_printf(t, "%s_count{%.*s} %lld\n", name, n, labels, (long long)x->count);
}

static void put_steps(serve_model *m, serve_text *t)
{
    char labels[SERVE_NAME + 20];
    pthread_mutex_lock(&m->lock);
    const serve_seconds x = m->steps;
    pthread_mutex_unlock(&m->lock);
    snprintf(labels, sizeof labels, "model=\"%s\",", m->name);
    put_seconds("dra_step_seconds", labels, &x, t);
}

static void put_times(const serve *s, serve_text *t)
{
    static const struct {
        const char *name, *help;
    } all[SERVE_TIMES] = {
        [SERVE_FIRST_TOKEN] = {"dra_first_token_seconds", "From a request to its first token."},
        [SERVE_TOKEN] = {"dra_token_seconds", "Between tokens of a text, on average."},
        [SERVE_WAITING] = {"dra_queue_seconds", "That jobs have waited."},
        [SERVE_REQUEST] = {"dra_request_seconds", "From a request to the end of its answer."},
    };
    for (int i = 0; i < SERVE_TIMES; i++) {
        write_head(t, all[i].name, "histogram", all[i].help);
        put_seconds(all[i].name, "", &s->seconds[i], t);
    }
}

static void put_label(const char *text, serve_text *t)
{
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            serve_printf(t, "\\%c", *text);
        else
            serve_put(t, text, 1);
}

static void put_keys(const serve *s, serve_text *t)
{
    static const struct {
        const char *name, *help;
        size_t      at;
    } all[] = {
        {"dra_key_requests_total", "Requests by key.", offsetof(serve_tally, requests)},
        {"dra_key_tokens_read_total", "Tokens of prompts by key.", offsetof(serve_tally, read)},
        {"dra_key_tokens_cached_total", "Of these, whose state was kept.",
         offsetof(serve_tally, cached)},
        {"dra_key_tokens_written_total", "Tokens written by key.", offsetof(serve_tally, written)},
    };
    for (size_t i = 0; i < COUNT(all) && s->n_tallies; i++) {
        write_head(t, all[i].name, "counter", all[i].help);
        for (size_t k = 0; k < s->n_tallies; k++) {
            const serve_tally *x = &s->tallies[k];
            serve_printf(t, "%s{key=\"", all[i].name);
            put_label(x->name, t);
            serve_printf(t, "\",owner=\"%016llx\"} %lld\n", (unsigned long long)x->owner,
                         (long long)*(const int64_t *)(const void *)((const char *)x + all[i].at));
        }
    }
}

static void put_shelves(const serve *s, serve_text *t)
{
    static const char *const names[] = {"dra_named_states", "dra_named_state_bytes"};
    for (int bytes = 0; bytes < 2; bytes++) {
        write_head(t, names[bytes], "gauge",
                   bytes ? "Bytes of states with names." : "Their number.");
        for (size_t i = 0; i < s->n_models; i++) {
            const serve_model *m = &s->models[i];
            if (m->phase != SERVE_READY) continue;
            const serve_shelf_figures f = serve_shelf_count(m);
            serve_printf(t, "%s{model=\"%s\",place=\"memory\"} %zu\n", names[bytes], m->name,
                         bytes ? f.held_bytes : (size_t)f.held);
            serve_printf(t, "%s{model=\"%s\",place=\"disk\"} %zu\n", names[bytes], m->name,
                         bytes ? f.file_bytes : (size_t)f.files);
        }
    }
}

static void put_process(serve_text *t)
{
    dra_error err;
    char     *text = NULL, *rest;
    size_t    bytes = 0;
    if (dra_file_read("/proc/self/statm", 4096, &text, &bytes, &err) != DRA_OK) return;
    strtoull(text, &rest, 10);
    write_head(t, "process_resident_memory_bytes", "gauge", "Memory of the process.");
    serve_printf(t, "process_resident_memory_bytes %llu\n",
                 strtoull(rest, NULL, 10) * (unsigned long long)sysconf(_SC_PAGESIZE));
    free(text);
}

void serve_metrics(const serve_request *r)
{
    serve      *s = r->server;
    serve_text  t = {0};
    serve_error e;
    put_requests(s, &t);
    for (size_t i = 0; i < COUNT(figures); i++) {
        write_head(&t, figures[i].name, figures[i].type, figures[i].help);
        for (size_t j = 0; j < s->n_models; j++) {
            if (s->models[j].phase != SERVE_READY) continue;
            const dra_engine_stats x = dra_engine_stats_of(s->models[j].engine);
            serve_printf(&t, "%s{model=\"%s\"} %.17g\n", figures[i].name, s->models[j].name,
                         figures[i].of(&x));
        }
    }
    write_head(&t, "dra_step_seconds", "histogram", "Seconds of steps of the engine.");
    for (size_t j = 0; j < s->n_models; j++) put_steps(&s->models[j], &t);
    put_times(s, &t);
    put_keys(s, &t);
    put_shelves(s, &t);
    put_process(&t);
    if (t.failed) {
        serve_wrong(&e, 503, NULL, "out of memory");
        serve_fail(r->conn, &e);
    } else {
        http_reply(r->conn, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, t.data, t.n);
    }
    serve_text_free(&t);
}
