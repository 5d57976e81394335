/* Tokens become text. They are handed out when it is known that they are no part of a stop string;
 * a stop string takes the job back to before the token it began in. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "generate/engine.h"
#include "generate/sample.h"

/* ---- lists that grow ------------------------------------------------------------------------- */

dra_status dra_ids_add(dra_ids *ids, int32_t id, dra_error *err)
{
    if (ids->n == ids->room) {
        const size_t room = ids->room ? 2 * ids->room : 64;
        int32_t     *data = realloc(ids->data, room * sizeof *data);
        if (!data) return dra_engine_no_memory(err);
        ids->data = data;
        ids->room = room;
    }
    ids->data[ids->n++] = id;
    return DRA_OK;
}

/* Room for one more, or n; at is where the list is. */
static dra_status reserve_list(void **at, size_t *room, size_t need, size_t size, dra_error *err)
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
    const dra_status st = reserve_list(&out, &job->out_room, job->n_out + flow->bytes + 1, 1, err);
    job->out = out;
    if (st != DRA_OK) return st;
    if (flow->bytes) memcpy(job->out + job->n_out, flow->text, flow->bytes);
    job->n_out += flow->bytes;
    job->out[job->n_out] = 0;
    return DRA_OK;
}

/* A token waits to be told, with what was measured in the row it was picked in; -1: nothing was. */
static dra_status hold_token(dra_engine *e, dra_job *job, dra_untold token, int64_t row,
                             dra_error *err)
{
    const bool logged = row >= 0 && job->config.logprobs >= 0;
    void      *untold = job->untold, *most = job->most;
    token.logprob = NAN;
    token.most = job->n_most;
    token.top = logged ? job->config.logprobs : 0;
    dra_status st = reserve_list(&untold, &job->untold_room, job->n_untold + 1, sizeof token, err);
    job->untold = untold;
    if (st == DRA_OK)
        st = reserve_list(&most, &job->most_room, job->n_most + (size_t)token.top,
                          sizeof *job->most, err);
    job->most = most;
    if (st != DRA_OK) return st;
    if (logged)
        token.logprob = dra_measure_logprob(e->measure, row, token.top, job->most + job->n_most);
    job->n_most += (size_t)token.top;
    job->untold[job->n_untold++] = token;
    return DRA_OK;
}

/* ---- telling --------------------------------------------------------------------------------- */

void dra_job_tell(dra_engine *e, dra_job *job, const dra_job_token *token)
{
    if (job->config.token && !job->config.token(job->config.user, token)) job->asked = true;
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
    const size_t bytes = (size_t)(e->lanes * e->V) * sizeof *job->back.logits;
    drop_back(e, job);
    if (!job->back.logits) job->back.logits = malloc(bytes);
    if (!job->back.logits) return dra_engine_no_memory(err);
    dra_status st = DRA_OK;
    if (job->seq.ahead) /* the row is where its own logits are */
        memcpy(job->back.logits, job->seq.logits, bytes);
    else
        st = dra_sequence_keep_logits(e, &job->seq, job->back.logits, err);
    job->back.read = job->seq.read;
    return st == DRA_OK ? dra_rows_take(e, job->seq.row, &job->back.row, err) : st;
}

static void go_back(dra_engine *e, dra_job *job)
{
    dra_real *logits = job->seq.logits;
    dra_rows_give(e, &job->seq.row);
    job->seq.row = job->back.row;
    job->back.row = -1;
    job->seq.logits = job->back.logits;
    job->seq.view = DRA_VIEWS;
    job->back.logits = logits;
    job->seq.read = job->back.read;
}

/* While a stop string may have begun there is a copy from before the token it began in. */
static dra_status track_stop(dra_engine *e, dra_job *job, const dra_text_chunk *flow, size_t last,
                             dra_error *err)
{
    if (!flow->partial) drop_back(e, job);
    if (!flow->partial || (job->back.row >= 0 && flow->before < job->bytes - last)) return DRA_OK;
    return take_back(e, job, err);
}

/* The grammar gets to where the text now ends. */
static dra_status replay_grammar(dra_engine *e, dra_job *job, dra_error *err)
{
    dra_sequence *s = &job->seq;
    dra_status    st = DRA_OK;
    free(s->place);
    s->place = NULL;
    if (job->constraint) st = dra_grammar_state_copy(job->inside.place, &s->place, err);
    for (size_t i = job->seq.prompt; i < s->ids.n && st == DRA_OK; i++)
        st = dra_sequence_advance(e, s, s->ids.data[i], err);
    return st;
}

/* The text ends before its byte number `at`: tokens that reach over it go, and where the first of
 * them began before it, tokens of that part take its place. */
static dra_status cut_text(dra_engine *e, dra_job *job, size_t at, dra_error *err)
{
    size_t      n = job->seq.ids.n, end = job->bytes, bytes = 0;
    const char *piece = "";
    dra_ids     part = {0};
    dra_status  st = DRA_OK;
    while (n > job->seq.prompt && end > at) {
        piece = dra_token_piece(e->config.tokenizer, job->seq.ids.data[--n], &bytes);
        end -= bytes;
    }
    if (end < at)
        st = dra_encode_as(e->config.tokenizer, piece, at - end, DRA_ENCODE_PLAIN | DRA_ENCODE_REST,
                           &part, err);
    if (n < job->seq.read) go_back(e, job);
    if (job->seq.ahead && n == job->seq.read) job->seq.view = DRA_VIEWS;
    job->n_untold -= job->seq.ids.n - n;
    job->seq.ids.n = n;
    job->bytes = at;
    for (size_t i = 0; i < part.n && st == DRA_OK; i++) {
        st = dra_ids_add(&job->seq.ids, part.data[i], err);
        if (st == DRA_OK)
            st = hold_token(e, job, (dra_untold){.id = part.data[i], .end = at}, -1, err);
    }
    dra_ids_free(&part);
    return st == DRA_OK ? replay_grammar(e, job, err) : st;
}

/* ---- a token --------------------------------------------------------------------------------- */

dra_status dra_job_accept(dra_engine *e, dra_job *job, int32_t id, int64_t row, dra_error *err)
{
    dra_text_chunk flow;
    size_t         bytes;
    const char    *piece = dra_token_piece(e->config.tokenizer, id, &bytes);
    dra_status     st = dra_ids_add(&job->seq.ids, id, err);
    job->bytes += bytes;
    if (st == DRA_OK) st = hold_token(e, job, (dra_untold){.id = id, .end = job->bytes}, row, err);
    if (st == DRA_OK) st = dra_sequence_advance(e, &job->seq, id, err);
    if (st == DRA_OK) st = dra_text_stream_push(&job->outlet, piece, bytes, &flow, err);
    if (st == DRA_OK) st = add_text(job, &flow, err);
    if (st == DRA_OK)
        st = flow.stopped ? cut_text(e, job, flow.before, err)
                          : track_stop(e, job, &flow, bytes, err);
    if (st != DRA_OK) return st;
    if (flow.stopped) return dra_job_close(e, job, DRA_FINISH_STOP, err);
    dra_job_tell_until(e, job, flow.partial ? flow.before : SIZE_MAX);
    return job->asked ? dra_job_close(e, job, DRA_FINISH_ASKED, err) : DRA_OK;
}

dra_status dra_job_finish(dra_engine *e, dra_job *job, int32_t id, int64_t row, dra_finish how,
                          dra_error *err)
{
    const dra_untold end = {.id = id, .ends = true, .end = job->bytes};
    const dra_status st = hold_token(e, job, end, row, err);
    return st == DRA_OK ? dra_job_close(e, job, how, err) : st;
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
    const bool keeps = job->config.save || job->inside.keep;
    if (!keeps || job->seq.read == job->seq.ids.n) dra_job_end_with(e, job, DRA_JOB_DONE, NULL);
    return DRA_OK;
}
