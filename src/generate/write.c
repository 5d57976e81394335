/* Which token may follow a sequence, and when a text ends.
 *   bias     what is added to the logits: of the sampler, by the text so far (history.c), and
 *            -infinity for what the grammar forbids, and for ends that come too early
 * then repetition penalty, temperature, filters and draw, on the device (pick.c). */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "generate/engine.h"
#include "generate/sample.h"

/* ---- which tokens may follow ----------------------------------------------------------------- */

/* Whether it is the end of a text by itself. */
static bool is_end(const dra_engine *e, const dra_job *job, int32_t id)
{
    const dra_job_config *c = &job->config;
    if (c->ignore_end) return false;
    for (int i = 0; i < c->n_ends; i++)
        if (c->ends[i] == id) return true;
    return e->config.tokenizer && dra_tokenizer_end(e->config.tokenizer) == id;
}

static size_t written_by(const dra_sequence *s) { return s->ids.n - s->prompt; }

/* Whether the text comes to end in these tokens. */
static bool completes_stop(const dra_sequence *s, const dra_ids *stop, int32_t id)
{
    const size_t before = stop->n - 1;
    if (stop->data[before] != id || written_by(s) < before) return false;
    return before == 0 ||
           memcmp(s->ids.data + s->ids.n - before, stop->data, before * sizeof id) == 0;
}

bool dra_sequence_ends(const dra_engine *e, const dra_sequence *s, int32_t id, dra_finish *how)
{
    const dra_job_config *c = &s->job->config;
    *how = DRA_FINISH_STOP;
    for (int i = 0; i < c->n_stop_tokens; i++)
        if (completes_stop(s, &c->stop_tokens[i], id)) return true;
    *how = DRA_FINISH_END;
    return is_end(e, s->job, id);
}

static void allow_end(dra_engine *e, const dra_job *job, int32_t id, bool may)
{
    if (id >= 0 && id < e->V && is_end(e, job, id)) e->allowed[id] = may;
}

static int64_t position_of(const dra_sequence *s) { return s->base + (int64_t)s->ids.n; }

/* What the grammar allows; *ended: nothing, and the text may end here. */
static dra_status allow_tokens(dra_engine *e, const dra_sequence *s, bool *ended, dra_error *err)
{
    const dra_job  *job = s->job;
    dra_constraint *c = job->constraint;
    bool            may, must;
    size_t          n;
    memset(e->allowed, 0, (size_t)e->V * sizeof *e->allowed);
    dra_status st = dra_constraint_end(c, s->place, &may, &must, err);
    if (st == DRA_OK) st = dra_constraint_allow(c, s->place, e->allowed, &n, err);
    if (st != DRA_OK) return st;
    for (int i = 0; i < job->config.n_ends; i++) allow_end(e, job, job->config.ends[i], may);
    allow_end(e, job, dra_tokenizer_end(e->config.tokenizer), may);
    *ended = !memchr(e->allowed, 1, (size_t)e->V);
    if (!*ended || may) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "token %lld: the grammar leaves no token of the vocabulary",
                    (long long)position_of(s));
}

/* The text of a sequence with what the state that it began from had read; that of a beam begins
 * with what its job has read. */
static dra_history history_of(const dra_sequence *s)
{
    const dra_ids *before = s != &s->job->seq ? &s->job->seq.ids : &s->before;
    return (dra_history){.n_before = before->n,
                         .before = before->data,
                         .n = s->ids.n,
                         .ids = s->ids.data,
                         .prompt = s->prompt};
}

/* Whether it is too early for an end. */
static bool is_short(const dra_sequence *s)
{
    return (int64_t)written_by(s) < s->job->config.sampler.min_tokens;
}

static void forbid_token(const dra_engine *e, int32_t id, dra_real *bias)
{
    if (id >= 0 && id < e->V) bias[id] = -(dra_real)INFINITY;
}

static void forbid_ends(const dra_engine *e, const dra_sequence *s, dra_real *bias)
{
    const dra_job_config *c = &s->job->config;
    for (int i = 0; i < c->n_stop_tokens; i++) {
        const dra_ids *stop = &c->stop_tokens[i];
        if (completes_stop(s, stop, stop->data[stop->n - 1]))
            forbid_token(e, stop->data[stop->n - 1], bias);
    }
    if (c->ignore_end) return;
    for (int i = 0; i < c->n_ends; i++) forbid_token(e, c->ends[i], bias);
    if (e->config.tokenizer) forbid_token(e, dra_tokenizer_end(e->config.tokenizer), bias);
}

bool dra_sequence_is_biased(const dra_sequence *s)
{
    const dra_sampler *sampler = s->job->sampler;
    return dra_sampler_biases(sampler) || s->job->constraint || dra_sampler_has_history(sampler) ||
           is_short(s);
}

dra_status dra_sequence_bias(dra_engine *e, const dra_sequence *s, dra_real *bias, bool *ended,
                             dra_error *err)
{
    const dra_real *own = dra_sampler_biases(s->job->sampler);
    *ended = false;
    if (own)
        memcpy(bias, own, (size_t)e->V * sizeof *bias);
    else
        memset(bias, 0, (size_t)e->V * sizeof *bias);
    if (dra_sampler_has_history(s->job->sampler)) {
        const dra_history text = history_of(s);
        dra_sampler_add_history(s->job->sampler, &text, bias);
    }
    if (is_short(s)) forbid_ends(e, s, bias);
    if (!s->job->constraint) return DRA_OK;
    const dra_status st = allow_tokens(e, s, ended, err);
    for (int64_t i = 0; i < e->V && st == DRA_OK; i++)
        if (!e->allowed[i]) bias[i] = -(dra_real)INFINITY;
    return st;
}

dra_status dra_sequence_offer(dra_engine *e, const dra_sequence *s, dra_offer *out, dra_error *err)
{
    const dra_real *x;
    *out = (dra_offer){.seen = s->seen};
    dra_status st = dra_sequence_bias(e, s, e->offered, &out->ended, err);
    if (st != DRA_OK || out->ended) return st;
    st = dra_sequence_logits(e, s, 0, &x, err);
    if (st != DRA_OK) return st;
    for (int64_t i = 0; i < e->V; i++) e->offered[i] += x[i];
    out->logits = e->offered;
    if (e->lanes == 1) return DRA_OK;
    out->seen = NULL;
    return dra_contrast_with(e, s, e->offered, e->offered, err);
}

dra_status dra_sequence_refuse(dra_engine *e, const dra_sequence *s, dra_error *err)
{
    const dra_real *x;
    bool            finite = true;
    dra_status      st = dra_sequence_logits(e, s, 0, &x, err);
    if (st != DRA_OK) return st;
    for (int64_t i = 0; i < e->V; i++) finite = finite && (double)x[i] < INFINITY;
    return dra_fail(err, DRA_ERR_VALUE, "token %lld: %s", (long long)position_of(s),
                    finite && dra_sequence_is_biased(s)
                        ? "no token is left that bias and grammar allow"
                        : "logits are not finite");
}

dra_status dra_sequence_advance(dra_engine *e, dra_sequence *s, int32_t id, dra_error *err)
{
    size_t      n;
    const char *piece = dra_token_piece(e->config.tokenizer, id, &n);
    if (!s->job->constraint || n == 0) return DRA_OK;
    return dra_constraint_advance(s->job->constraint, &s->place, piece, n, err);
}

/* ---- what ends a text before its next token -------------------------------------------------- */

bool dra_job_has_room(dra_engine *e, dra_job *job, int64_t tokens)
{
    const size_t width = (size_t)dra_job_width(job);
    if (tokens > e->positions) return false;
    if (width * dra_rows_need(e, tokens) <= job->need) return true;
    const size_t need = width * dra_rows_need(e, dra_imin(tokens + DRA_ENGINE_KEPT, e->positions));
    if (!dra_rows_fit(e, need - job->need, NULL)) return false;
    job->need = need;
    return true;
}

dra_status dra_job_look_ahead(dra_engine *e, dra_job *job, dra_error *err)
{
    const size_t  written = job->seq.ids.n - job->seq.prompt;
    const int64_t most = job->config.tokens;
    bool          may, must = false;
    dra_status    st = DRA_OK;
    if (job->closing) return DRA_OK;
    if (job->constraint) st = dra_constraint_end(job->constraint, job->seq.place, &may, &must, err);
    if (st != DRA_OK) return st;
    if (must) return dra_job_close(e, job, DRA_FINISH_END, err);
    if (most >= 0 && written >= (size_t)most) return dra_job_close(e, job, DRA_FINISH_LENGTH, err);
    const int64_t tokens = job->base + (int64_t)job->seq.ids.n + 1;
    return dra_job_has_room(e, job, tokens) ? DRA_OK
                                            : dra_job_close(e, job, DRA_FINISH_CONTEXT, err);
}

/* ---- a prompt is read ------------------------------------------------------------------------ */

static dra_status start_writing(dra_engine *e, dra_job *job, dra_error *err)
{
    const bool told = job->view == DRA_VIEW_ALL;
    job->started = true;
    job->at_start = dra_clock();
    if (told && job->seq.read == 0 && job->seq.ids.n > 0) return dra_job_tell_first(e, job, err);
    if (!job->config.echo || told) return DRA_OK;
    for (size_t i = 0; i < job->seq.prompt; i++)
        dra_job_tell(e, job,
                     &(dra_job_token){
                         .id = job->seq.ids.data[i], .prompt = true, .logprob = NAN, .text = ""});
    return DRA_OK;
}

dra_status dra_job_ready(dra_engine *e, dra_job *job, dra_error *err)
{
    if (job->closing) {
        dra_job_end_with(e, job, DRA_JOB_DONE, NULL);
        return DRA_OK;
    }
    if (job->started) return DRA_OK;
    dra_status st = start_writing(e, job, err);
    if (st == DRA_OK) st = dra_job_look_ahead(e, job, err);
    return st == DRA_OK && !job->closing && job->config.beam.beams > 0
               ? dra_search_begin(e, job, err)
               : st;
}
