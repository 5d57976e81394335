/* A model that is served, and the thread that loads it and steps its engine. */
#include "ask.h"
#include "shelf.h"
#include "tools.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

bool serve_name_ok(const char *name)
{
    const size_t n = strlen(name);
    return n >= 1 && n <= SERVE_NAME &&
           n == strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
}

bool serve_state_name_ok(const char *name)
{
    return serve_name_ok(name) && strncmp(name, SERVE_TEMP, strlen(SERVE_TEMP)) != 0 &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* "NAME=DIR", or DIR, whose last part is the name. */
static bool split_word(serve_model *m, const char *word, dra_error *err)
{
    const char *equals = strchr(word, '='), *slash = strchr(word, '/');
    const bool  named = equals && (!slash || equals < slash);
    const char *folder = named ? equals + 1 : word;
    size_t      end = named ? (size_t)(equals - word) : strlen(word), begin = 0;
    while (!named && end > 1 && word[end - 1] == '/') end--;
    for (size_t i = 0; !named && i < end; i++)
        if (word[i] == '/') begin = i + 1;
    if (end - begin <= SERVE_NAME)
        snprintf(m->name, sizeof m->name, "%.*s", (int)(end - begin), word + begin);
    if (serve_name_ok(m->name) && strcmp(m->name, ".") != 0 && strcmp(m->name, "..") != 0) {
        m->from.model = folder;
        return true;
    }
    cli_error(err, DRA_ERR_VALUE,
              "--model %.200s: expected NAME=DIR, with a name of letters, digits and ._-, at most "
              "64 of them",
              word);
    return false;
}

bool serve_model_open(serve *s, serve_model *m, const char *word, dra_error *err)
{
    m->server = s;
    m->from = s->args->from;
    m->created = (int64_t)time(NULL);
    m->last_post = &m->posts;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->wake, NULL);
    dra_model_config *config =
        NULL; /* paths that are no model are reported before the server listens */
    const bool is = split_word(m, word, err) && cli_source_config(&m->from, &config, err) == DRA_OK;
    dra_model_config_destroy(config);
    return is;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void wake_loop(void *user)
{
    serve_model *m = user;
    pthread_mutex_lock(&m->lock);
    m->woken = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

static dra_status load_model(serve_model *m, dra_error *err)
{
    const serve_args *a = m->server->args;
    dra_status        st = cli_model_open(&m->from, &m->m, err);
    if (st == DRA_OK) st = cli_model_tokenizer_if(&m->from, &m->m, err);
    if (st == DRA_OK) st = cli_draft_open(&a->draft, &m->from, m->m.tokenizer, &m->drafting, err);
    if (st == DRA_OK) st = dra_generation_config_read(m->from.model, &m->habits, err);
    if (st == DRA_OK) st = serve_template_open(m, err);
    if (st == DRA_OK) st = serve_shelf_open(m, err);
    if (st != DRA_OK) return st;
    const dra_engine_config config = {.model = m->m.model,
                                      .weights = m->m.weights,
                                      .device = m->m.device,
                                      .tokenizer = m->m.tokenizer,
                                      .slots = a->slots,
                                      .queue = a->queue,
                                      .chunk = a->chunk,
                                      .memory_limit = m->server->memory_limit,
                                      .state_limit = cli_clamp_limit(&m->from),
                                      .draft = m->drafting.draft};
    return dra_engine_create(&config, &m->engine, err);
}

static void deliver_loaded(serve_mail *mail)
{
    serve_model *m = (serve_model *)((char *)mail - offsetof(serve_model, loaded));
    if (m->error.code == DRA_OK && !serve_shelf_start(m))
        cli_error(&m->error, DRA_ERR_MEMORY, "out of memory");
    if (m->error.code == DRA_OK) {
        const char *word;
        m->phase = SERVE_READY;
        if (serve_is_ready(m->server, &word)) serve_notify("READY=1");
        return;
    }
    m->phase = SERVE_FAILED;
    cli_line(stderr, "dra serve: %s: %s", m->name, m->error.text);
    m->server->failed = true;
    event_base_loopbreak(m->server->base);
}

/* Mail is delivered between two steps. Returns false when the thread shall end. */
static bool run_posts(serve_model *m)
{
    pthread_mutex_lock(&m->lock);
    serve_mail *mail = m->posts;
    const bool  stop = m->stop;
    m->posts = NULL;
    m->last_post = &m->posts;
    pthread_mutex_unlock(&m->lock);
    for (serve_mail *next; mail; mail = next) {
        next = mail->next;
        mail->deliver(mail);
    }
    return !stop;
}

static void count_step(serve_model *m, double seconds)
{
    pthread_mutex_lock(&m->lock);
    serve_seconds_add(&m->steps, seconds);
    pthread_mutex_unlock(&m->lock);
}

static void sleep_until_woken(serve_model *m)
{
    pthread_mutex_lock(&m->lock);
    while (!m->woken && !m->posts && !m->stop) pthread_cond_wait(&m->wake, &m->lock);
    m->woken = false;
    pthread_mutex_unlock(&m->lock);
}

static void *run_model(void *user)
{
    serve_model *m = user;
    const bool   loaded = load_model(m, &m->error) == DRA_OK;
    if (loaded) dra_engine_on_wake(m->engine, wake_loop, m);
    m->loaded.deliver = deliver_loaded;
    serve_mail_send(m->server, &m->loaded);
    while (loaded && run_posts(m)) {
        bool         idle = false;
        dra_error    err = {0};
        const double began = serve_now();
        if (dra_engine_step(m->engine, &idle, &err) != DRA_OK)
            cli_line(stderr, "dra serve: %s: %s", m->name, err.text);
        if (idle)
            sleep_until_woken(m);
        else
            count_step(m, serve_now() - began);
    }
    return NULL;
}

bool serve_model_start(serve_model *m)
{
    m->started = pthread_create(&m->thread, NULL, run_model, m) == 0;
    return m->started;
}

void serve_model_post(serve_model *m, serve_mail *mail)
{
    mail->next = NULL;
    pthread_mutex_lock(&m->lock);
    *m->last_post = mail;
    m->last_post = &mail->next;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

void serve_model_close(serve_model *m)
{
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    if (m->started) pthread_join(m->thread, NULL);
    dra_engine_destroy(m->engine); /* jobs that are left end as cancelled */
    m->engine = NULL;
    dra_template_destroy(m->template);
    serve_form_free(m->form);
    free(m->template_text);
    free(m->ending);
    cli_draft_close(&m->drafting);
    cli_model_close(&m->m);
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->lock);
}

serve_model *serve_model_find(serve *s, const char *name, serve_error *e)
{
    serve_model *found = name ? NULL : &s->models[0];
    for (size_t i = 0; i < s->n_models && name; i++)
        if (strcmp(s->models[i].name, name) == 0) found = &s->models[i];
    if (!found) {
        serve_wrong(e, 404, "model", "model: no model is called %.64s; GET /v1/models lists them",
                    name);
        e->code = "model_not_found";
    } else if (found->phase != SERVE_READY || s->draining) {
        serve_wrong(e, 503, NULL,
                    s->draining ? "the server is shutting down" : "%s is being loaded",
                    found->name);
        found = NULL;
    }
    return found;
}
