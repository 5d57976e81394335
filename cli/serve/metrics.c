/* GET /metrics: Prometheus' text format, version 0.0.4. */
#include "serve.h"

#include <string.h>

typedef double (*value_of)(const dra_engine_stats *stats);

static double waiting(const dra_engine_stats *x) { return (double)x->waiting; }
static double active(const dra_engine_stats *x) { return (double)x->active; }
static double tokens_read(const dra_engine_stats *x)
{
    return (double)(x->tokens_read + x->tokens_reused);
}
static double computed(const dra_engine_stats *x) { return (double)x->tokens_read; }
static double reused(const dra_engine_stats *x) { return (double)x->tokens_reused; }
static double written(const dra_engine_stats *x) { return (double)x->tokens_written; }
static double bytes(const dra_engine_stats *x) { return (double)x->state_bytes; }
static double states(const dra_engine_stats *x) { return (double)x->states; }
static double kept(const dra_engine_stats *x) { return (double)x->kept; }
static double programs(const dra_engine_stats *x) { return (double)x->programs; }

static const struct {
    const char *name, *type, *help;
    value_of    of;
} figures[] = {
    {"dra_queue_length", "gauge", "Jobs that wait.", waiting},
    {"dra_active_sequences", "gauge", "Sequences that run.", active},
    {"dra_tokens_read_total", "counter", "Tokens of prompts.", tokens_read},
    {"dra_tokens_written_total", "counter", "Tokens written.", written},
    {"dra_prompt_tokens_computed_total", "counter", "Tokens of prompts that were computed.",
     computed},
    {"dra_prompt_tokens_reused_total", "counter", "Tokens of prompts whose state was kept.",
     reused},
    {"dra_state_bytes", "gauge", "Bytes of all states.", bytes},
    {"dra_states", "gauge", "States that have a name.", states},
    {"dra_states_kept", "gauge", "States kept to begin prompts with.", kept},
    {"dra_programs", "gauge", "Programs compiled for the engine.", programs},
};

static void head(serve_text *t, const char *name, const char *type, const char *help)
{
    serve_printf(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_requests(const serve *s, serve_text *t)
{
    head(t, "dra_requests_total", "counter", "Requests by route and status.");
    for (size_t i = 0; i < SERVE_ROUTES; i++)
        for (int status = 0; status < SERVE_STATUS; status++)
            if (s->counts[i][status]) {
                const serve_route *r = i < serve_n_routes ? &serve_routes[i] : NULL;
                serve_printf(t,
                             "dra_requests_total{method=\"%s\",route=\"%s\",status=\"%d\"} %lld\n",
                             r ? r->method : "", r ? r->name : "other", status,
                             (long long)s->counts[i][status]);
            }
    head(t, "dra_cancelled_total", "counter", "Jobs whose client left.");
    serve_printf(t, "dra_cancelled_total %lld\n", (long long)s->cancelled);
    head(t, "dra_connections", "gauge", "Open connections.");
    serve_printf(t, "dra_connections %d\n", http_connections(s->http));
}

static void put_steps(serve_model *m, serve_text *t)
{
    pthread_mutex_lock(&m->lock);
    const serve_steps x = m->steps;
    pthread_mutex_unlock(&m->lock);
    int64_t sum = 0;
    for (int i = 0; i < SERVE_BUCKETS; i++) {
        sum += x.bucket[i];
        serve_printf(t, "dra_step_seconds_bucket{model=\"%s\",le=\"%g\"} %lld\n", m->name,
                     serve_bounds[i], (long long)sum);
    }
    serve_printf(t, "dra_step_seconds_bucket{model=\"%s\",le=\"+Inf\"} %lld\n", m->name,
                 (long long)x.count);
    serve_printf(t, "dra_step_seconds_sum{model=\"%s\"} %.9g\n", m->name, x.sum);
    serve_printf(t, "dra_step_seconds_count{model=\"%s\"} %lld\n", m->name, (long long)x.count);
}

void serve_metrics(const serve_request *r)
{
    serve      *s = r->server;
    serve_text  t = {0};
    serve_error e;
    put_requests(s, &t);
    for (size_t i = 0; i < COUNT(figures); i++) {
        head(&t, figures[i].name, figures[i].type, figures[i].help);
        for (size_t j = 0; j < s->n_models; j++) {
            if (s->models[j].phase != SERVE_READY) continue;
            const dra_engine_stats x = dra_engine_stats_of(s->models[j].engine);
            serve_printf(&t, "%s{model=\"%s\"} %.17g\n", figures[i].name, s->models[j].name,
                         figures[i].of(&x));
        }
    }
    head(&t, "dra_step_seconds", "histogram", "Seconds of steps of the engine.");
    for (size_t j = 0; j < s->n_models; j++) put_steps(&s->models[j], &t);
    if (t.failed) {
        serve_wrong(&e, 503, NULL, "out of memory");
        serve_fail(r->conn, &e);
    } else {
        http_reply(r->conn, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, t.data, t.n);
    }
    serve_text_free(&t);
}
