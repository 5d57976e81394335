/* Picking the next tokens of all rows of a batch on the device, by one program:
 *   ids = sample(logits (B, V), rows, bias (B, V), seen (B, V))
 * It reads the logits where the model has left them, and the host waits once, for what was picked
 * and how likely it was.
 * Rows with a bias or a penalty, and those whose logits the host has made, are put there first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "device/device.h"
#include "generate/engine.h"
#include "generate/sample.h"
#include "sequence/module.h"
#include "session/session.h"

enum { BIAS = 1, SEEN = 2 }; /* options of a program */

struct dra_picker {
    int64_t         room; /* rows */
    int64_t         V;
    dra_session    *session;
    dra_made        made;
    dra_sample_row *how;    /* (room) */
    dra_real       *bias;   /* (room, V) */
    bool           *biased; /* (room): that row is not all 0 */
    bool           *seen;   /* (room, V) */
    int32_t        *ids;    /* (room) */
    dra_sequence  **wanted; /* (room): whose token is picked; NULL: nobody's */
};

/* ---- the program ----------------------------------------------------------------------------- */

typedef struct pick_key {
    int64_t B, V, options;
} pick_key;

static void build_sampler(dra_graph *g, void *user, const void *at, size_t bytes)
{
    const pick_key   *key = at;
    const int64_t     B = key->B, V = key->V, options = key->options;
    const dra_shape   all = DRA_SHAPE(B, V);
    const dra_value   logits = dra_state(g, "logits", DRA_REAL, all);
    const dra_value   rows = dra_input(g, "rows", DRA_I32, DRA_SHAPE(B, DRA_SAMPLE_WORDS));
    dra_sample_config c = {0};
    (void)user, (void)bytes;
    if (options & BIAS) c.bias = dra_input(g, "bias", DRA_REAL, all);
    if (options & SEEN) c.seen = dra_input(g, "seen", DRA_BOOL, all);
    dra_output(g, "ids", dra_sample_ids(g, logits, rows, &c));
}

/* ---- making one ------------------------------------------------------------------------------ */

dra_status dra_picker_create(dra_engine *e, dra_picker **out, dra_error *err)
{
    dra_picker *p = calloc(1, sizeof *p);
    *out = p;
    if (!p) return dra_engine_no_memory(err);
    p->V = e->V;
    for (p->room = 1; p->room < e->slots;) p->room *= 2;
    const size_t B = (size_t)p->room, all = B * (size_t)p->V;
    p->how = calloc(B, sizeof *p->how);
    p->bias = calloc(all, sizeof *p->bias);
    p->biased = calloc(B, sizeof *p->biased);
    p->seen = calloc(all, sizeof *p->seen);
    p->ids = calloc(B, sizeof *p->ids);
    p->wanted = calloc(B, sizeof *p->wanted);
    if (!p->how || !p->bias || !p->biased || !p->seen || !p->ids || !p->wanted)
        return dra_engine_no_memory(err);
    return dra_session_create(e->config.device, build_sampler, NULL, &p->session, err);
}

void dra_picker_destroy(dra_picker *p)
{
    if (!p) return;
    dra_session_destroy(p->session);
    dra_made_free(&p->made);
    void *const freed[] = {p->how, p->bias, p->biased, p->seen, p->ids, p->wanted};
    for (size_t i = 0; i < sizeof freed / sizeof *freed; i++) free(freed[i]);
    free(p);
}

/* ---- what each row asks ---------------------------------------------------------------------- */

static bool has_penalty(const dra_sample_row *how)
{
    return how->repetition_penalty != 0 && how->repetition_penalty != 1;
}

/* Rows that the batch does not have, and those that pick nothing. */
static void clear_row(dra_picker *p, int64_t b)
{
    p->how[b] = (dra_sample_row){.options = DRA_SAMPLE_NOTHING};
    p->wanted[b] = NULL;
    if (p->biased[b]) memset(p->bias + b * p->V, 0, (size_t)p->V * sizeof *p->bias);
    p->biased[b] = false;
}

/* With amateurs the host makes the logits, with all but what comes after the penalty. */
static dra_status contrast_row(dra_engine *e, dra_sequence *s, int64_t b, bool *ended,
                               dra_error *err)
{
    dra_picker *p = e->picker;
    dra_offer   offer;
    dra_status  st = dra_made_reserve(e, &p->made, p->room, err);
    if (st == DRA_OK) st = dra_sequence_offer(e, s, &offer, err);
    *ended = st == DRA_OK && offer.ended;
    if (st != DRA_OK || offer.ended) return st;
    memcpy(p->made.host + b * p->V, offer.logits, (size_t)p->V * sizeof *offer.logits);
    p->how[b].repetition_penalty = 0;
    return DRA_OK;
}

/* What sequence s asks of row b; its text may end here instead. */
static dra_status ask_row(dra_engine *e, dra_sequence *s, int64_t b, int *options, dra_error *err)
{
    dra_picker *p = e->picker;
    bool        any = false, ended = false;
    clear_row(p, b);
    p->how[b] = dra_sampler_row(s->job->sampler, 0, s->base + (int64_t)s->ids.n);
    dra_status st;
    if (e->lanes > 1) {
        st = contrast_row(e, s, b, &ended, err);
    } else {
        any = p->biased[b] = dra_sequence_is_biased(s);
        st = any ? dra_sequence_bias(e, s, p->bias + b * p->V, &ended, err) : DRA_OK;
    }
    if (st == DRA_OK && ended) st = dra_job_close(e, s->job, DRA_FINISH_END, err);
    if (st != DRA_OK || ended) {
        clear_row(p, b);
        return st;
    }
    p->wanted[b] = s;
    *options |= any ? BIAS : 0;
    if (!has_penalty(&p->how[b])) return DRA_OK;
    *options |= SEEN;
    memcpy(p->seen + b * p->V, s->seen, (size_t)p->V * sizeof *s->seen);
    return DRA_OK;
}

/* ---- running it ------------------------------------------------------------------------------ */

static dra_status put_input(dra_picker *p, const char *name, const void *data, size_t bytes,
                            dra_error *err)
{
    return dra_session_put(p->session, dra_session_name(p->session, name), data, bytes, err);
}

static dra_status run_program(dra_engine *e, int64_t B, int options, dra_span logits,
                              dra_error *err)
{
    dra_picker    *p = e->picker;
    const size_t   all = (size_t)(B * p->V);
    const pick_key key = {B, p->V, options};
    dra_status     st = dra_session_bind(p->session, dra_session_name(p->session, "logits"), logits,
                                         err);
    if (st == DRA_OK) st = dra_session_select(p->session, &key, sizeof key, err);
    if (st == DRA_OK) st = put_input(p, "rows", p->how, (size_t)B * sizeof *p->how, err);
    if (st == DRA_OK && options & BIAS)
        st = put_input(p, "bias", p->bias, all * sizeof *p->bias, err);
    if (st == DRA_OK && options & SEEN)
        st = put_input(p, "seen", p->seen, all * sizeof *p->seen, err);
    return st == DRA_OK ? dra_session_start(p->session, err) : st;
}

/* How many most likely tokens are asked for at most; -1: no log-probabilities. */
static int64_t count_logprobs(const dra_picker *p, int64_t n)
{
    int64_t top = -1;
    for (int64_t b = 0; b < n; b++)
        if (p->wanted[b]) top = dra_imax(top, p->wanted[b]->job->config.logprobs);
    return top;
}

/* Picks and measures in B rows, and waits. */
static dra_status run_programs(dra_engine *e, int64_t n, const dra_sequence *first, int64_t B,
                               int options, dra_error *err)
{
    dra_picker   *p = e->picker;
    dra_made     *room = dra_measure_made(e->measure);
    const int64_t top = count_logprobs(p, n);
    const bool    made = e->lanes > 1;
    size_t        results = 1;
    dra_fetch     fetch[3];
    dra_span      logits, own;
    dra_status    st = DRA_OK;
    if (made) st = dra_made_put(e, &p->made, B, &logits, err);
    if (st == DRA_OK && (!made || top >= 0)) st = dra_batch_logits(e, first, B, room, &own, err);
    if (st == DRA_OK) st = run_program(e, B, options, made ? logits : own, err);
    if (st != DRA_OK) return st;
    fetch[0] = (dra_fetch){p->ids, dra_session_result(p->session, "ids")};
    if (top >= 0) {
        st = dra_measure_start(e->measure, B, own, fetch[0].from, top, fetch + 1, err);
        results = 3;
    }
    if (st != DRA_OK) return st;
    if (first->view == DRA_VIEWS) return dra_session_fetch(p->session, fetch, results, err);
    return dra_reader_fetch(e->lane[0].reader[first->view], fetch, results, err);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static dra_status take_token(dra_engine *e, dra_sequence *s, int64_t row, dra_error *err)
{
    const int32_t id = e->picker->ids[row];
    dra_job      *job = s->job;
    dra_finish    how;
    if (id < 0) return dra_sequence_refuse(e, s, err);
    if (dra_sequence_ends(e, s, id, &how)) return dra_job_finish(e, job, id, row, how, err);
    const dra_status st = dra_job_accept(e, job, id, row, err);
    return st == DRA_OK ? dra_job_look_ahead(e, job, err) : st;
}

/* All its tokens are read, and it is to write another one. */
static bool is_whole(const dra_sequence *s)
{
    const dra_job *job = s->job;
    return job->started && !job->over && !job->closing && !job->search &&
           job->config.kind == DRA_JOB_GENERATE && s->read + s->ahead == s->ids.n;
}

dra_status dra_pick(dra_engine *e, int64_t n, dra_sequence *const *of, dra_error *err)
{
    dra_picker           *p = e->picker;
    const dra_engine_view view = of[0]->view;
    int64_t               B = 1, wanted = 0;
    int                   options = 0;
    while (B < n) B *= 2;
    for (int64_t b = 0; b < B; b++) {
        dra_error why = {0};
        if (b >= n || !is_whole(of[b]))
            clear_row(p, b);
        else if (ask_row(e, of[b], b, &options, &why) != DRA_OK)
            dra_job_fail(e, of[b]->job, &why);
        wanted += p->wanted[b] != NULL;
    }
    if (wanted == 0) return view == DRA_VIEWS ? DRA_OK : dra_engine_finish(e, view, err);
    dra_status st = run_programs(e, n, of[0], B, options, err);
    for (int64_t b = 0; b < n && st == DRA_OK; b++) {
        dra_error why = {0};
        if (p->wanted[b] && take_token(e, of[b], b, &why) != DRA_OK)
            dra_job_fail(e, of[b]->job, &why);
    }
    return st;
}
