/* Routes that tell about the server: health, models, the page. */
#include "serve.h"

#include "report/decays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool serve_is_ready(const serve *s, const char **word)
{
    *word = s->draining ? "draining" : "ok";
    for (size_t i = 0; i < s->n_models; i++)
        if (s->models[i].phase != SERVE_READY && !s->draining) *word = "loading";
    return strcmp(*word, "ok") == 0;
}

static void put_status(const serve_request *r, bool well, const char *word)
{
    serve_text t = {0};
    serve_printf(&t, "{\"status\": \"%s\"}", word);
    serve_reply(r->conn, well ? 200 : 503, &t);
}

void serve_health(const serve_request *r)
{
    const char *word;
    const bool  well = serve_is_ready(r->server, &word);
    put_status(r, well, word);
}

/* Whether a request would be accepted now: ready, and no queue is full. */
void serve_ready(const serve_request *r)
{
    const serve *s = r->server;
    const char  *word;
    bool         well = serve_is_ready(s, &word);
    for (size_t i = 0; i < s->n_models && well; i++)
        if (dra_engine_stats_of(s->models[i].engine).waiting >= s->args->queue) {
            well = false;
            word = "busy";
        }
    put_status(r, well, word);
}

/* ---- models ---------------------------------------------------------------------------------- */

static void put_half_lives(const serve_model *m, serve_text *t)
{
    cli_decays d = {0};
    dra_error  err = {0};
    serve_puts(t, ", \"half_lives\": [");
    if (cli_decays_find(m->m.model, m->m.weights, &d, &err) != DRA_OK) d.n = 0;
    for (size_t i = 0; i < d.n && i < 4096; i++) {
        serve_printf(t, "%s{\"layer\": %d, \"head\": %lld, \"memory\": ", i ? ", " : "",
                     d.rows[i].layer, (long long)d.rows[i].head);
        serve_json_word(t, d.rows[i].memory);
        serve_puts(t, ", \"tokens\": ");
        serve_json_real(t, d.rows[i].half_life);
        serve_puts(t, "}");
    }
    serve_puts(t, "]");
    free(d.rows);
}

static void put_facts(const serve_model *m, serve_text *t)
{
    const dra_model_config *c = dra_model_config_of(m->m.model);
    serve_printf(t,
                 ", \"dra_facts\": {\"parameters\": %lld, \"layers\": %lld, \"dim\": %lld, "
                 "\"vocab\": %lld, \"memory\": ",
                 (long long)dra_model_param_count(m->m.model),
                 (long long)dra_model_attentions(m->m.model), (long long)c->dim,
                 (long long)c->vocab);
    const bool  mixes = dra_model_attentions(m->m.model) > 0;
    const char *memory = mixes ? dra_mixer_config_of(dra_model_mixer(m->m.model, 0))->a.memory
                               : "none";
    serve_json_word(t, memory ? memory : "append");
    serve_printf(t, ", \"context\": %lld", (long long)c->context);
    put_half_lives(m, t);
    serve_puts(t, "}");
}

static void put_model(const serve_model *m, bool facts, serve_text *t)
{
    serve_puts(t, "{\"id\": ");
    serve_json_word(t, m->name);
    serve_printf(t, ", \"object\": \"model\", \"created\": %lld, \"owned_by\": \"dra\"",
                 (long long)m->created);
    if (facts && m->phase == SERVE_READY) put_facts(m, t);
    serve_puts(t, "}");
}

void serve_models_list(const serve_request *r)
{
    const serve *s = r->server;
    serve_text   t = {0};
    serve_puts(&t, "{\"object\": \"list\", \"data\": [");
    for (size_t i = 0; i < s->n_models; i++) {
        if (i) serve_puts(&t, ", ");
        put_model(&s->models[i], false, &t);
    }
    serve_puts(&t, "]}");
    serve_reply(r->conn, 200, &t);
}

void serve_models_one(const serve_request *r)
{
    const serve *s = r->server;
    serve_error  e = {0};
    serve_text   t = {0};
    for (size_t i = 0; i < s->n_models; i++) {
        if (strcmp(s->models[i].name, r->rest) != 0) continue;
        put_model(&s->models[i], true, &t);
        serve_reply(r->conn, 200, &t);
        return;
    }
    serve_wrong(&e, 404, "model", "model: no model is called %.64s; GET /v1/models lists them",
                r->rest);
    e.code = "model_not_found";
    serve_fail(r->conn, &e);
}

/* ---- options of samplers --------------------------------------------------------------------- */

static void put_option(const dra_sampler_option *o, serve_text *t)
{
    serve_printf(t, "{\"name\": \"%s\", \"whole\": %s, \"least\": ", o->json,
                 o->whole ? "true" : "false");
    serve_json_real(t, o->least);
    serve_puts(t, ", \"most\": ");
    serve_json_real(t, o->most);
    serve_puts(t, ", \"usual\": ");
    serve_json_real(t, o->usual);
    serve_puts(t, ", \"help\": ");
    serve_json_word(t, o->help);
    serve_puts(t, "}");
}

void serve_sampler(const serve_request *r)
{
    serve_text                t = {0};
    size_t                    n;
    const dra_sampler_option *o = dra_sampler_options(&n);
    serve_puts(&t, "{\"object\": \"list\", \"data\": [");
    for (size_t i = 0; i < n; i++) {
        if (i) serve_puts(&t, ", ");
        put_option(&o[i], &t);
    }
    serve_puts(&t, "]}");
    serve_reply(r->conn, 200, &t);
}

/* ---- the page -------------------------------------------------------------------------------- */

void serve_page(const serve_request *r)
{
    const char        *path = r->head->path;
    const bool         css = strcmp(path, "/page.css") == 0, js = strcmp(path, "/page.js") == 0;
    const char *const *lines = css ? serve_page_css : js ? serve_page_js : serve_page_html;
    const char        *type = css  ? "text/css; charset=utf-8"
                              : js ? "text/javascript; charset=utf-8"
                                   : "text/html; charset=utf-8";
    serve_text         t = {0};
    serve_error        e;
    for (; *lines; lines++) serve_puts(&t, *lines);
    if (t.failed) {
        serve_wrong(&e, 503, NULL, "out of memory");
        serve_fail(r->conn, &e);
    } else {
        http_reply(r->conn, 200, type, "Cache-Control: no-cache\r\n", t.data, t.n);
    }
    serve_text_free(&t);
}
