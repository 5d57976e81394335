/* An engine of one file for tests of the server's protocol, linked in place of the library's: it
 * answers with the letters of the prompt, one in each step, so that a test knows what comes. A
 * prompt that begins with "slow" takes 20 ms a token, and one with "fail" fails. States are names
 * with the number of tokens they have read. */
#include "dra/engine.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { STATES = 64, STATE_NAME = 65, JOBS = 4096 };

typedef struct job {
    struct job    *next;
    uint64_t       id;
    dra_job_config c;
    int32_t       *ids;
    char           state[STATE_NAME], save[STATE_NAME], path[4096];
    int64_t        at;
    bool           told;
    atomic_bool    cancelled;
} job;

typedef struct named {
    char    name[STATE_NAME];
    int64_t tokens;
} named;

struct dra_engine {
    dra_engine_config config;
    pthread_mutex_t   lock;
    job              *jobs;
    uint64_t          ids;
    int64_t           n;
    bool              draining;
    named             states[STATES];
    int               n_states;
    dra_engine_stats  stats;
    void (*wake)(void *);
    void *user;
};

static dra_status fail(dra_error *err, dra_status code, const char *text, const char *name)
{
    if (err) {
        err->code = code;
        snprintf(err->text, sizeof err->text, "%s%s", text, name);
    }
    return code;
}

dra_status dra_engine_create(const dra_engine_config *config, dra_engine **out, dra_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return fail(err, DRA_ERR_MEMORY, "out of memory", "");
    (*out)->config = *config;
    pthread_mutex_init(&(*out)->lock, NULL);
    return DRA_OK;
}

static void job_free(job *j)
{
    free(j->ids);
    free(j);
}

static void count(dra_engine *e, int64_t *what, int64_t n)
{
    pthread_mutex_lock(&e->lock);
    *what += n;
    pthread_mutex_unlock(&e->lock);
}

static void end(dra_engine *e, job *j, dra_job_end how, dra_status code, const char *why)
{
    dra_job_result r = {.end = how,
                        .finish = j->cancelled ? DRA_FINISH_ASKED : DRA_FINISH_LENGTH,
                        .prompt_tokens = (int64_t)j->c.n,
                        .written_tokens = j->at};
    const dra_real vector[2] = {(dra_real)j->c.n, 0.5f};
    if (how == DRA_JOB_FAILED) fail(&r.error, code, why, "");
    if (j->c.kind == DRA_JOB_EMBED) {
        r.width = 2;
        r.vector = vector;
    }
    count(e, &e->stats.done, how == DRA_JOB_DONE);
    count(e, &e->stats.cancelled, how == DRA_JOB_CANCELLED);
    j->c.end(j->c.user, &r);
    job_free(j);
}

void dra_engine_destroy(dra_engine *e)
{
    if (!e) return;
    for (job *j = e->jobs, *next; j; j = next) {
        next = j->next;
        j->cancelled = true;
        end(e, j, DRA_JOB_CANCELLED, DRA_OK, "");
    }
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/* ---- states ---------------------------------------------------------------------------------- */

static named *find(dra_engine *e, const char *name)
{
    for (int i = 0; i < e->n_states; i++)
        if (strcmp(e->states[i].name, name) == 0) return &e->states[i];
    return NULL;
}

static bool keep(dra_engine *e, const char *name, int64_t tokens)
{
    named *x = find(e, name);
    if (!x && e->n_states == STATES) return false;
    if (!x) x = &e->states[e->n_states++];
    snprintf(x->name, sizeof x->name, "%s", name);
    x->tokens = tokens;
    return true;
}

static bool write_state(const named *x, const char *path)
{
    char text[64];
    snprintf(text, sizeof text, "fake %lld\n", (long long)x->tokens);
    return dra_file_write(path, text, strlen(text), NULL) == DRA_OK;
}

static bool read_state(const char *path, int64_t *tokens)
{
    char  *text = NULL, *stop;
    size_t bytes = 0;
    bool   well = dra_file_read(path, 64, &text, &bytes, NULL) == DRA_OK;
    well = well && strncmp(text, "fake ", 5) == 0;
    if (well) *tokens = strtoll(text + 5, &stop, 10);
    free(text);
    return well;
}

static bool run_state_job(dra_engine *e, job *j)
{
    named  *x = j->state[0] ? find(e, j->state) : NULL;
    int64_t tokens = 0;
    switch (j->c.kind) {
    case DRA_JOB_FORK: return x && keep(e, j->save, x->tokens);
    case DRA_JOB_DELETE:
        if (x) *x = e->states[--e->n_states];
        return x != NULL;
    case DRA_JOB_EXPORT: return x && write_state(x, j->path);
    case DRA_JOB_IMPORT: return read_state(j->path, &tokens) && keep(e, j->save, tokens);
    default: return false;
    }
}

void dra_engine_states(dra_engine *e, void (*each)(void *user, const dra_state_info *state),
                       void       *user)
{
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->n_states; i++) {
        const dra_state_info x = {.name = e->states[i].name,
                                  .tokens = e->states[i].tokens,
                                  .bytes = 100,
                                  .held = 100,
                                  .created = 1,
                                  .used = 2};
        each(user, &x);
    }
    pthread_mutex_unlock(&e->lock);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

dra_status dra_engine_submit(dra_engine *e, const dra_job_config *c, uint64_t *id, dra_error *err)
{
    dra_status    st = DRA_OK;
    const int64_t V = dra_model_config_of(e->config.model)->vocab;
    for (size_t i = 0; i < c->n; i++)
        if (c->ids[i] < 0 || c->ids[i] >= V)
            return fail(err, DRA_ERR_INDEX, "a token outside of the vocabulary", "");
    job *j = calloc(1, sizeof *j);
    if (!j) return fail(err, DRA_ERR_MEMORY, "out of memory", "");
    j->c = *c;
    j->ids = malloc((c->n + 1) * sizeof *j->ids);
    if (c->n) memcpy(j->ids, c->ids, c->n * sizeof *j->ids);
    if (c->state) snprintf(j->state, sizeof j->state, "%s", c->state);
    if (c->save) snprintf(j->save, sizeof j->save, "%s", c->save);
    if (c->path) snprintf(j->path, sizeof j->path, "%s", c->path);
    pthread_mutex_lock(&e->lock);
    const bool text = c->kind == DRA_JOB_GENERATE || c->kind == DRA_JOB_EMBED;
    if (e->draining || (e->n >= e->config.queue && text))
        st = fail(err, DRA_ERR_BUSY, "the queue is full", "");
    if (st == DRA_OK && c->state && !find(e, c->state))
        st = fail(err, DRA_ERR_NAME, "there is no state ", c->state);
    if (st == DRA_OK) {
        job **last = &e->jobs;
        while (*last) last = &(*last)->next;
        *last = j;
        *id = j->id = ++e->ids;
        e->n++;
    }
    pthread_mutex_unlock(&e->lock);
    if (st != DRA_OK)
        job_free(j);
    else if (e->wake)
        e->wake(e->user);
    return st;
}

void dra_engine_cancel(dra_engine *e, uint64_t id)
{
    pthread_mutex_lock(&e->lock);
    for (job *j = e->jobs; j; j = j->next)
        if (j->id == id) j->cancelled = true;
    pthread_mutex_unlock(&e->lock);
    if (e->wake) e->wake(e->user);
}

static void tell(dra_engine *e, const job *j, int32_t id, bool prompt, int64_t place)
{
    size_t            bytes = 0;
    const char       *text = dra_tokenizer_piece(e->config.tokenizer, id, &bytes);
    const dra_logprob most[2] = {{id, -0.25}, {(id + 1) % 256, -1.5}};
    dra_job_token     t = {.id = id, .prompt = prompt, .logprob = NAN, .text = "", .most = most};
    if (j->c.logprobs >= 0 && (place || !prompt)) {
        t.logprob = -0.25;
        t.top = j->c.logprobs < 2 ? j->c.logprobs : 2;
    }
    if (!prompt) {
        t.text = text;
        t.bytes = bytes;
    }
    if (j->c.token) j->c.token(j->c.user, &t);
}

static bool begins(const job *j, const char *word)
{
    const size_t n = strlen(word);
    for (size_t i = 0; i < n; i++)
        if (i >= j->c.n || j->ids[i] != word[i]) return false;
    return true;
}

/* One more token of a text. Returns whether the job goes on. */
static bool write_token(dra_engine *e, job *j)
{
    if (j->c.echo && !j->told)
        for (size_t i = 0; i < j->c.n; i++) tell(e, j, j->ids[i], true, (int64_t)i);
    if (!j->told) count(e, &e->stats.tokens_read, (int64_t)j->c.n);
    j->told = true;
    if (j->c.kind == DRA_JOB_EMBED || j->at >= j->c.tokens) return false;
    if (begins(j, "slow")) nanosleep(&(struct timespec){0, 20000000}, NULL);
    tell(e, j, j->c.n ? j->ids[(size_t)j->at % j->c.n] : 'x', false, j->at);
    count(e, &e->stats.tokens_written, 1);
    j->at++;
    return true;
}

/* Returns whether the job goes on. */
static bool step_job(dra_engine *e, job *j)
{
    const bool text = j->c.kind == DRA_JOB_GENERATE || j->c.kind == DRA_JOB_EMBED;
    if (!j->cancelled && text && !begins(j, "fail") && write_token(e, j)) return true;
    pthread_mutex_lock(&e->lock);
    const named  *from = j->state[0] ? find(e, j->state) : NULL;
    const int64_t before = from ? from->tokens : 0;
    bool          well = !begins(j, "fail");
    if (!text && !j->cancelled) well = run_state_job(e, j);
    if (text && well && !j->cancelled && j->save[0])
        keep(e, j->save, before + (int64_t)j->c.n + j->at);
    job **link = &e->jobs;
    while (*link != j) link = &(*link)->next;
    *link = j->next;
    e->n--;
    pthread_mutex_unlock(&e->lock);
    end(e, j,
        j->cancelled ? DRA_JOB_CANCELLED
        : well       ? DRA_JOB_DONE
                     : DRA_JOB_FAILED,
        DRA_ERR_VALUE, "it failed");
    return false;
}

dra_status dra_engine_step(dra_engine *e, bool *idle, dra_error *err)
{
    job *now[JOBS];
    int  n = 0;
    (void)err;
    pthread_mutex_lock(&e->lock);
    for (job *j = e->jobs; j && n < e->config.slots && n < JOBS; j = j->next) now[n++] = j;
    pthread_mutex_unlock(&e->lock);
    *idle = n == 0;
    for (int i = 0; i < n; i++) step_job(e, now[i]);
    return DRA_OK;
}

void dra_engine_on_wake(dra_engine *e, void (*wake)(void *user), void *user)
{
    e->wake = wake;
    e->user = user;
}

void dra_engine_drain(dra_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->draining = true;
    pthread_mutex_unlock(&e->lock);
}

dra_engine_stats dra_engine_stats_of(dra_engine *e)
{
    pthread_mutex_lock(&e->lock);
    dra_engine_stats x = e->stats;
    x.waiting = e->n > e->config.slots ? e->n - e->config.slots : 0;
    x.active = e->n - x.waiting;
    x.states = e->n_states;
    pthread_mutex_unlock(&e->lock);
    return x;
}

bool dra_engine_look_at(dra_engine *e, uint64_t id, const char *state, int i, dra_look *out)
{
    static const float norms[2] = {1, 2.5f};
    (void)e;
    (void)id;
    (void)state;
    *out = (dra_look){.name = "layers.0.memory", .heads = 2, .norm = norms};
    return i < 1;
}
