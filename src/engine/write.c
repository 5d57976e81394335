/* The next token of a job, by settings of its own: the model's logits,
 *   - presence_penalty - frequency_penalty count    where a token was written before
 *   + bias, and nothing that a grammar forbids
 * then repetition penalty, temperature, filters and draw as every sampler does them. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "engine/engine.h"
#include "generate/sample.h"

/* ---- which tokens may follow ----------------------------------------------------------------- */

static bool ends_text(const dra_engine *e, const dra_job *job, int32_t id)
{
    const dra_job_config *c = &job->config;
    if (c->ignore_end) return false;
    for (int i = 0; i < c->n_ends; i++)
        if (c->ends[i] == id) return true;
    return e->config.tokenizer && dra_tokenizer_end(e->config.tokenizer) == id;
}

static void allow_end(dra_engine *e, const dra_job *job, int32_t id, bool may)
{
    if (id >= 0 && id < e->V && ends_text(e, job, id)) e->allowed[id] = may;
}

/* What the grammar allows; *ended: nothing, and the text may end here. */
static dra_status allow(dra_engine *e, dra_job *job, bool *ended, dra_error *err)
{
    bool   may, must;
    size_t n;
    memset(e->allowed, 0, (size_t)e->V * sizeof *e->allowed);
    dra_status st = dra_constraint_end(job->constraint, job->place, &may, &must, err);
    if (st == DRA_OK) st = dra_constraint_allow(job->constraint, job->place, e->allowed, &n, err);
    if (st != DRA_OK) return st;
    for (int i = 0; i < job->config.n_ends; i++) allow_end(e, job, job->config.ends[i], may);
    allow_end(e, job, dra_tokenizer_end(e->config.tokenizer), may);
    *ended = !memchr(e->allowed, 1, (size_t)e->V);
    if (!*ended || may) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "token %lld: the grammar leaves none of the vocabulary",
                    (long long)job->base + (long long)job->read);
}

/* The logits as the sampler gets them. */
static const dra_real *offer(dra_engine *e, const dra_job *job)
{
    const bool     *allowed = job->constraint ? e->allowed : NULL;
    const dra_real *x = job->logits;
    const double    presence = job->config.presence_penalty;
    const double    frequency = job->config.frequency_penalty;
    if (job->count) {
        memcpy(e->offered, x, (size_t)e->V * sizeof *x);
        for (int64_t i = 0; i < e->V; i++)
            if (job->count[i])
                e->offered[i] = (dra_real)((double)x[i] - presence -
                                           frequency * (double)job->count[i]);
        x = e->offered;
    }
    if (!allowed && !dra_sampler_biases(job->sampler)) return x;
    dra_sampler_bias(job->sampler, x, allowed, e->offered);
    return e->offered;
}

static dra_status refuse(const dra_engine *e, const dra_job *job, dra_error *err)
{
    bool finite = true;
    for (int64_t i = 0; i < e->V; i++) finite = finite && (double)job->logits[i] < INFINITY;
    return dra_fail(
        err, DRA_ERR_VALUE, "token %lld: %s", (long long)job->base + (long long)job->read,
        finite ? "no token is left that bias and grammar allow" : "logits are not finite");
}

/* ---- what ends a text before its next token -------------------------------------------------- */

/* Whether the state may grow by another token. */
static bool has_room(dra_engine *e, dra_job *job)
{
    const int64_t tokens = job->base + (int64_t)job->ids.n + 1;
    if (tokens > e->positions) return false;
    if (dra_rows_need(e, tokens) <= job->need) return true;
    const size_t need = dra_rows_need(e, dra_imin(tokens + DRA_ENGINE_KEPT, e->positions));
    if (!dra_rows_fit(e, need - job->need)) return false;
    job->need = need;
    return true;
}

static dra_status look_ahead(dra_engine *e, dra_job *job, dra_error *err)
{
    const size_t  written = job->ids.n - job->prompt;
    const int64_t most = job->config.tokens;
    bool          may, must = false;
    dra_status    st = DRA_OK;
    if (job->constraint) st = dra_constraint_end(job->constraint, job->place, &may, &must, err);
    if (st != DRA_OK) return st;
    if (must) return dra_job_close(e, job, DRA_FINISH_END, err);
    if (most >= 0 && written >= (size_t)most) return dra_job_close(e, job, DRA_FINISH_LENGTH, err);
    return has_room(e, job) ? DRA_OK : dra_job_close(e, job, DRA_FINISH_CONTEXT, err);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void start(dra_engine *e, dra_job *job)
{
    job->started = true;
    job->at_start = dra_engine_clock();
    if (!job->config.echo || job->view == DRA_VIEW_ALL) return;
    for (size_t i = 0; i < job->prompt; i++)
        dra_job_tell(
            e, job,
            &(dra_job_token){.id = job->ids.data[i], .prompt = true, .logprob = NAN, .text = ""});
}

static dra_status pick(dra_engine *e, dra_job *job, dra_error *err)
{
    const int64_t position = job->base + (int64_t)job->read;
    bool          ended = false;
    dra_status    st = job->constraint ? allow(e, job, &ended, err) : DRA_OK;
    if (st != DRA_OK) return st;
    if (ended) return dra_job_close(e, job, DRA_FINISH_END, err);
    const int32_t id = dra_sampler_choose(job->sampler, offer(e, job), job->seen, 0, position);
    if (id < 0) return refuse(e, job, err);
    if (job->count) job->count[id]++;
    return ends_text(e, job, id) ? dra_job_finish(e, job, id, err)
                                 : dra_job_accept(e, job, id, err);
}

dra_status dra_job_go_on(dra_engine *e, dra_job *job, dra_error *err)
{
    if (job->closing) {
        dra_job_end_with(e, job, DRA_JOB_DONE, NULL);
        return DRA_OK;
    }
    const bool first = !job->started;
    if (first) start(e, job);
    dra_status st = first ? look_ahead(e, job, err) : DRA_OK;
    if (st == DRA_OK && !job->closing) st = pick(e, job, err);
    if (st == DRA_OK && !job->closing) st = look_ahead(e, job, err);
    return st;
}
