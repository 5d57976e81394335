/* Tokens become text. They are handed out when it is known that they are no part of a stop string;
 * a stop string takes the job back to before the token it began in. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/engine.h"
#include "generate/generator.h"

/* ---- lists that grow ------------------------------------------------------------------------- */

/* Room for one more, or n; at is where the list is. */
static dra_status reserve(void **at, size_t *room, size_t need, size_t size, dra_error *err)
{
    if (need <= *room) return DRA_OK;
    void *more = realloc(*at, 2 * need * size);
    if (!more) return dra_engine_no_memory(err);
    *at = more;
    *room = 2 * need;
    return DRA_OK;
}

static dra_status add_text(dra_job *job, const dra_text_chunk *flow, dra_error *err)
{
    void            *out = job->out;
    const dra_status st = reserve(&out, &job->out_room, job->n_out + flow->bytes + 1, 1, err);
    job->out = out;
    if (st != DRA_OK) return st;
    if (flow->bytes) memcpy(job->out + job->n_out, flow->text, flow->bytes);
    job->n_out += flow->bytes;
    job->out[job->n_out] = 0;
    return DRA_OK;
}

/* A token waits to be told; its log-probabilities are known where it was picked. */
static dra_status hold(const dra_engine *e, dra_job *job, dra_untold token, bool picked,
                       dra_error *err)
{
    const bool logged = picked && job->config.logprobs >= 0;
    void      *untold = job->untold, *most = job->most;
    token.logprob = NAN;
    token.most = job->n_most;
    token.top = logged ? job->config.logprobs : 0;
    dra_status st = reserve(&untold, &job->untold_room, job->n_untold + 1, sizeof token, err);
    job->untold = untold;
    if (st == DRA_OK)
        st = reserve(&most, &job->most_room, job->n_most + (size_t)token.top, sizeof *job->most,
                     err);
    job->most = most;
    if (st != DRA_OK) return st;
    if (logged)
        token.logprob = dra_logprobs(e->V, job->logits, token.id, token.top,
                                     token.top ? job->most + job->n_most : NULL);
    job->n_most += (size_t)token.top;
    job->untold[job->n_untold++] = token;
    return DRA_OK;
}

/* ---- telling --------------------------------------------------------------------------------- */

void dra_job_tell(dra_engine *e, dra_job *job, const dra_job_token *token)
{
    if (job->config.token) job->config.token(job->config.user, token);
}

/* Several that are told at once: the last of them has their text. */
void dra_job_tell_until(dra_engine *e, dra_job *job, size_t end)
{
    size_t n = 0;
    while (n < job->n_untold && job->untold[n].end <= end) n++;
    for (size_t i = 0; i < n; i++) {
        const dra_untold *u = &job->untold[i];
        const bool        text = i + 1 == n && job->n_out;
        dra_job_tell(e, job,
                     &(dra_job_token){.id = u->id,
                                      .ends = u->ends,
                                      .logprob = u->logprob,
                                      .top = u->top,
                                      .most = u->top ? job->most + u->most : NULL,
                                      .text = text ? job->out : "",
                                      .bytes = text ? job->n_out : 0});
    }
    if (n == 0) return;
    job->n_out = 0;
    job->n_untold -= n;
    memmove(job->untold, job->untold + n, job->n_untold * sizeof *job->untold);
    if (job->n_untold == 0) job->n_most = 0;
}

/* ---- stop strings ---------------------------------------------------------------------------- */

static void drop_back(dra_engine *e, dra_job *job) { dra_rows_give(e, &job->back.row); }

/* A copy from before the token that was picked last, which is not read yet. */
static dra_status take_back(dra_engine *e, dra_job *job, dra_error *err)
{
    const size_t bytes = (size_t)e->V * sizeof *job->logits;
    drop_back(e, job);
    if (!job->back.logits) job->back.logits = malloc(bytes);
    if (!job->back.logits) return dra_engine_no_memory(err);
    memcpy(job->back.logits, job->logits, bytes);
    job->back.read = job->read;
    return dra_rows_take(e, job->row, &job->back.row, err);
}

static void go_back(dra_engine *e, dra_job *job)
{
    dra_real *logits = job->logits;
    dra_rows_give(e, &job->row);
    job->row = job->back.row;
    job->back.row = -1;
    job->logits = job->back.logits;
    job->back.logits = logits;
    job->read = job->back.read;
}

/* While a stop string may have begun there is a copy from before the token it began in. */
static dra_status track_stop(dra_engine *e, dra_job *job, const dra_text_chunk *flow, size_t last,
                             dra_error *err)
{
    if (!flow->partial) drop_back(e, job);
    if (!flow->partial || (job->back.row >= 0 && flow->before < job->bytes - last)) return DRA_OK;
    return take_back(e, job, err);
}

/* The text ends before its byte number `at`: tokens that reach over it go, and where the first of
 * them began before it, tokens of that part take its place. */
static dra_status cut(dra_engine *e, dra_job *job, size_t at, dra_error *err)
{
    size_t      n = job->ids.n, end = job->bytes, bytes = 0;
    const char *piece = "";
    dra_ids     part = {0};
    dra_status  st = DRA_OK;
    while (n > job->prompt && end > at) {
        piece = dra_token_piece(e->config.tokenizer, job->ids.data[--n], &bytes);
        end -= bytes;
    }
    if (end < at) st = dra_encode_plain(e->config.tokenizer, piece, at - end, &part, err);
    if (n < job->read) go_back(e, job);
    job->n_untold -= job->ids.n - n;
    job->ids.n = n;
    job->bytes = at;
    for (size_t i = 0; i < part.n && st == DRA_OK; i++) {
        st = dra_ids_add(&job->ids, part.data[i], err);
        if (st == DRA_OK)
            st = hold(e, job, (dra_untold){.id = part.data[i], .end = at}, false, err);
    }
    dra_ids_free(&part);
    return st;
}

/* ---- a token --------------------------------------------------------------------------------- */

dra_status dra_job_accept(dra_engine *e, dra_job *job, int32_t id, dra_error *err)
{
    dra_text_chunk flow;
    size_t         bytes;
    const char    *piece = dra_token_piece(e->config.tokenizer, id, &bytes);
    dra_status     st = dra_ids_add(&job->ids, id, err);
    job->bytes += bytes;
    if (st == DRA_OK) st = hold(e, job, (dra_untold){.id = id, .end = job->bytes}, true, err);
    if (st == DRA_OK && job->constraint && bytes)
        st = dra_constraint_advance(job->constraint, &job->place, piece, bytes, err);
    if (st == DRA_OK) st = dra_text_stream_push(&job->outlet, piece, bytes, &flow, err);
    if (st == DRA_OK) st = add_text(job, &flow, err);
    if (st == DRA_OK)
        st = flow.stopped ? cut(e, job, flow.before, err) : track_stop(e, job, &flow, bytes, err);
    if (st != DRA_OK) return st;
    if (flow.stopped) return dra_job_close(e, job, DRA_FINISH_STOP, err);
    dra_job_tell_until(e, job, flow.partial ? flow.before : SIZE_MAX);
    return DRA_OK;
}

dra_status dra_job_finish(dra_engine *e, dra_job *job, int32_t id, dra_error *err)
{
    const dra_untold end = {.id = id, .ends = true, .end = job->bytes};
    const dra_status st = hold(e, job, end, true, err);
    return st == DRA_OK ? dra_job_close(e, job, DRA_FINISH_END, err) : st;
}

dra_status dra_job_close(dra_engine *e, dra_job *job, dra_finish finish, dra_error *err)
{
    dra_text_chunk flow;
    dra_status     st = dra_text_stream_flush(&job->outlet, &flow, err);
    if (st == DRA_OK) st = add_text(job, &flow, err);
    if (st != DRA_OK) return st;
    job->closing = true;
    job->finish = finish;
    dra_job_tell_until(e, job, SIZE_MAX);
    if (!job->config.save || job->read == job->ids.n) dra_job_end_with(e, job, DRA_JOB_DONE, NULL);
    return DRA_OK;
}
