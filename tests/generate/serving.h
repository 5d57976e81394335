/* Engines in tests: a small model, jobs, and what came of them. */
#ifndef DRA_TESTS_ENGINE_SERVING_H
#define DRA_TESTS_ENGINE_SERVING_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/engine.h"

/* One of every memory; and caches in bf16. */
static const char *const served[] = {"gpt2-tiny",      "dra-gru-tiny",     "dra-ema-tiny",
                                     "dra-slots-tiny", "dra-moment-tiny",  "dra-delta-tiny",
                                     "retention-tiny", "rwkv4-tiny",       "hybrid-tiny",
                                     "gpt2-tiny bf16", "hybrid-tiny bf16", "xt-modern-tiny bf16"};
enum { SERVED = sizeof served / sizeof *served, ANSWER = 64, TOPS = 4 };

/* How far a log-probability may be from that of another cut. On a GPU a number that differs in its
 * last bit may be rounded to another one of a cache in bf16. */
static inline double near_of(const char *preset)
{
    return check_cuda() && strstr(preset, " bf16") ? 1e-3 : 1e-5;
}

static inline void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

/* ---- a model --------------------------------------------------------------------------------- */

typedef struct subject {
    dra_model     *model;
    dra_weights   *weights;
    dra_tokenizer *tokenizer;
    dra_device    *device;
    int64_t        V;
} subject;

static inline void open_visible(subject *s, const char *preset, dra_visible_kind visible)
{
    CHECK_CONFIG(c);
    dra_error   err = {0};
    const char *cache = strstr(preset, " bf16");
    char        name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(preset, " "), preset);
    expect_ok(dra_tokenizer_bytes(&s->tokenizer, &err), &err);
    expect_ok(dra_preset_config(name, &c, &err), &err);
    c->bf16_cache = cache != NULL;
    c->dim = 24, c->heads = 2, c->depth = 2, c->context = 2048;
    if (visible != DRA_VISIBLE_CAUSAL) c->visible = visible;
    s->V = c->vocab = dra_tokenizer_size(s->tokenizer);
    expect_ok(dra_model_create(c, &s->model, &err), &err);
    expect_ok(dra_weights_draw(s->model, 7, &s->weights, &err), &err);
    /* A larger embedding makes likely tokens likelier, so that rounding does not decide. */
    const int i = dra_specs_find(dra_model_params(s->model), "embedding");
    dra_real *e = dra_weights_edit(s->weights, i);
    for (int64_t k = 0; k < c->vocab * c->dim; k++) e[k] *= 2;
    expect_ok(check_cpu(NULL, &s->device, &err), &err);
}

static inline void open_subject(subject *s, const char *preset)
{
    open_visible(s, preset, DRA_VISIBLE_CAUSAL);
}

static inline void close_subject(subject *s)
{
    dra_weights_destroy(s->weights);
    dra_model_destroy(s->model);
    dra_tokenizer_destroy(s->tokenizer);
    dra_device_destroy(s->device);
}

static inline dra_engine *open_engine(const subject *s, const dra_engine_config *settings)
{
    dra_engine_config c = settings ? *settings : (dra_engine_config){0};
    dra_engine       *e;
    dra_error         err = {0};
    c.model = s->model;
    c.weights = s->weights;
    c.device = s->device;
    c.tokenizer = s->tokenizer;
    expect_ok(dra_engine_create(&c, &e, &err), &err);
    return e;
}

static inline void make_prompt(int32_t *ids, size_t n, int which)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * 37 + i * i * 11 + (size_t)which * 5) % 256);
}

/* ---- what came of a job ---------------------------------------------------------------------- */

typedef struct answer {
    int32_t        ids[ANSWER];
    double         logprob[ANSWER], most[ANSWER];
    size_t         n;
    int32_t        end;                  /* the token that ended it; -1: none */
    double        *prompt, *prompt_most; /* log-probabilities, if there is room for them */
    size_t         n_prompt;
    char           text[4096];
    size_t         bytes;
    int            ends; /* calls of end */
    dra_job_result result;
    dra_real      *vector;
} answer;

static inline void take_text(answer *a, const char *text, size_t bytes)
{
    assert_true(a->bytes + bytes < sizeof a->text);
    memcpy(a->text + a->bytes, text, bytes);
    a->bytes += bytes;
    a->text[a->bytes] = 0;
}

static inline bool take_token(void *user, const dra_job_token *t)
{
    answer *a = user;
    assert_int_equal(a->ends, 0);
    if (t->prompt) {
        if (a->prompt) a->prompt[a->n_prompt] = t->logprob;
        if (a->prompt_most) a->prompt_most[a->n_prompt] = t->top ? t->most[0].logprob : NAN;
        a->n_prompt++;
        return true;
    }
    if (t->ends) {
        a->end = t->id;
    } else {
        assert_true(a->n < ANSWER);
        a->ids[a->n] = t->id;
        a->logprob[a->n] = t->logprob;
        a->most[a->n] = t->top ? t->most[0].logprob : NAN;
        a->n++;
    }
    take_text(a, t->text, t->bytes);
    return true;
}

static inline void take_end(void *user, const dra_job_result *r)
{
    answer *a = user;
    a->ends++;
    a->result = *r;
    take_text(a, r->text, r->bytes);
    if (!r->width) return;
    a->vector = malloc((size_t)r->width * sizeof *a->vector);
    assert_non_null(a->vector);
    memcpy(a->vector, r->vector, (size_t)r->width * sizeof *a->vector);
}

static inline uint64_t submit(dra_engine *e, dra_job_config c, answer *a)
{
    uint64_t  id = 0;
    dra_error err = {0};
    *a = (answer){.end = -1, .prompt = a->prompt, .prompt_most = a->prompt_most};
    c.token = take_token;
    c.end = take_end;
    c.user = a;
    expect_ok(dra_engine_submit(e, &c, &id, &err), &err);
    return id;
}

static inline void step(dra_engine *e)
{
    bool      idle;
    dra_error err = {0};
    expect_ok(dra_engine_step(e, &idle, &err), &err);
}

static inline void run(dra_engine *e)
{
    bool      idle = false;
    dra_error err = {0};
    while (!idle) expect_ok(dra_engine_step(e, &idle, &err), &err);
}

static inline void run_one(dra_engine *e, dra_job_config c, answer *a)
{
    submit(e, c, a);
    run(e);
    assert_int_equal(a->ends, 1);
    if (a->result.end != DRA_JOB_DONE) fail_msg("%s", a->result.error.text);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* To the bit; on a GPU within rounding. */
static inline bool same_logprob(double a, double b)
{
    return check_cuda() ? fabs(a - b) < 1e-3 : memcmp(&a, &b, sizeof a) == 0;
}

static inline void expect_answer(const char *what, const answer *a, const answer *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (a->ids[i] != b->ids[i] || !same_logprob(a->logprob[i], b->logprob[i]))
            fail_msg("%s: token %zu is %d (%.17g), expected %d (%.17g)", what, i, a->ids[i],
                     a->logprob[i], b->ids[i], b->logprob[i]);
    if (a->n != b->n || a->bytes != b->bytes || memcmp(a->text, b->text, a->bytes) != 0 ||
        a->result.end != b->result.end || a->result.finish != b->result.finish)
        fail_msg("%s: %zu tokens, end %d, finish %d, expected %zu, %d, %d", what, a->n,
                 (int)a->result.end, (int)a->result.finish, b->n, (int)b->result.end,
                 (int)b->result.finish);
}

#endif
