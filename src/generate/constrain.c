/* The next token of a row: it is offered the model's logits with the bias of the sampler, and
 * nothing that its grammar forbids; then contrasted, if there are amateurs. It is picked on the
 * device, but where the host makes what is offered. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "generate/generator.h"

static dra_status no_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "generator: out of memory");
}

/* ---- the grammar of a generator -------------------------------------------------------------- */

dra_status dra_generator_constrain(dra_generator *g, dra_error *err)
{
    g->offered = calloc((size_t)g->V, sizeof *g->offered);
    if (!g->offered) return no_memory(err);
    if (!g->config.grammar) return DRA_OK;
    if (!g->config.tokenizer)
        return dra_fail(err, DRA_ERR_VALUE, "generator: a grammar needs a tokenizer");
    g->allowed = calloc((size_t)(g->config.rows * g->V), sizeof *g->allowed);
    if (!g->allowed) return no_memory(err);
    return dra_constraint_open(g->config.grammar, g->config.tokenizer, &g->constraint, err);
}

void dra_generator_unconstrain(dra_generator *g)
{
    dra_constraint_destroy(g->constraint);
    free(g->allowed);
    free(g->offered);
}

void dra_row_begin_text(dra_row *r)
{
    free(r->place);
    r->place = NULL;
}

dra_status dra_row_set_place(dra_row *r, const dra_grammar_state *s, dra_error *err)
{
    dra_grammar_state *copy = NULL;
    const dra_status   st = dra_grammar_state_copy(s, &copy, err);
    if (st != DRA_OK) return st;
    free(r->place);
    r->place = copy;
    return DRA_OK;
}

dra_status dra_generator_advance(dra_generator *g, int64_t row, int32_t id, dra_error *err)
{
    size_t      n;
    const char *piece = dra_generator_piece(g, id, &n);
    if (!g->constraint || n == 0) return DRA_OK;
    return dra_constraint_advance(g->constraint, &g->row[row].place, piece, n, err);
}

dra_status dra_generator_must_end(dra_generator *g, int64_t row, bool *must, dra_error *err)
{
    bool may;
    *must = false;
    if (!g->constraint) return DRA_OK;
    return dra_constraint_end(g->constraint, g->row[row].place, &may, must, err);
}

/* ---- the next token -------------------------------------------------------------------------- */

static void allow_end(const dra_generator *g, const dra_generate_config *c, int32_t id, bool may,
                      bool *allowed)
{
    if (id >= 0 && id < g->V && dra_generate_ends(g, c, id)) allowed[id] = may;
}

dra_status dra_generator_allow(dra_generator *g, const dra_generate_config *c, int64_t row,
                               bool *ended, dra_error *err)
{
    const dra_grammar_state *place = g->row[row].place;
    bool                    *allowed = g->allowed + row * g->V;
    bool                     may, must;
    size_t                   n;
    *ended = false;
    memset(allowed, 0, (size_t)g->V * sizeof *allowed);
    dra_status st = dra_constraint_end(g->constraint, place, &may, &must, err);
    if (st == DRA_OK) st = dra_constraint_allow(g->constraint, place, allowed, &n, err);
    if (st != DRA_OK) return st;
    for (int i = 0; i < c->n_ends; i++) allow_end(g, c, c->ends[i], may, allowed);
    allow_end(g, c, dra_tokenizer_end(g->config.tokenizer), may, allowed);
    if (memchr(allowed, 1, (size_t)g->V)) return DRA_OK;
    *ended = may;
    if (may) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "generate: row %lld, token %lld: the grammar leaves no token of the vocabulary",
                    (long long)row, (long long)dra_generator_tokens(g, row));
}

dra_status dra_generator_offer(dra_generator *g, const dra_generate_config *c, int64_t row,
                               dra_offer *out, dra_error *err)
{
    const bool *allowed = g->constraint ? g->allowed + row * g->V : NULL;
    dra_real   *own;
    *out = (dra_offer){0};
    dra_status st = allowed ? dra_generator_allow(g, c, row, &out->ended, err) : DRA_OK;
    if (st != DRA_OK || out->ended) return st;
    st = dra_generator_see(g, row, &own, err);
    if (st != DRA_OK) return st;
    if (allowed || dra_sampler_biases(g->sampler)) {
        dra_sampler_bias(g->sampler, own, allowed, g->offered);
        own = g->offered;
    }
    out->logits = own;
    return dra_generator_view(g, row, &out->logits, &out->seen, err);
}

dra_status dra_generator_refuse(dra_generator *g, const char *what, int64_t row, dra_error *err)
{
    dra_real        *own;
    bool             finite = true;
    const dra_status st = dra_generator_see(g, row, &own, err);
    if (st != DRA_OK) return st;
    for (int64_t i = 0; i < g->V; i++) finite = finite && (double)own[i] < INFINITY;
    return dra_fail(err, DRA_ERR_VALUE, "%s: row %lld, token %lld: %s", what, (long long)row,
                    (long long)dra_generator_tokens(g, row),
                    finite && (g->constraint || dra_sampler_biases(g->sampler))
                        ? "no token is left that bias and grammar allow"
                        : "logits are not finite");
}

/* ---- picking --------------------------------------------------------------------------------- */

static void finish_text(dra_row *r)
{
    r->live = false;
    r->finish = DRA_FINISH_END;
}

/* What the row wants: nothing where it is not live, or where its grammar ends. */
static dra_status prepare(dra_generator *g, const dra_generate_config *c, int64_t row,
                          dra_error *err)
{
    dra_row   *r = &g->row[row];
    bool       ended = false;
    dra_status st = r->live && g->constraint ? dra_generator_allow(g, c, row, &ended, err) : DRA_OK;
    if (ended) finish_text(r);
    g->how[row] = r->live ? dra_sampler_row(g->sampler, dra_generator_stream(g, row),
                                            dra_generator_tokens(g, row))
                          : (dra_sample_row){.options = DRA_SAMPLE_NOTHING};
    return st;
}

/* On the device. */
static dra_status pick_there(dra_generator *g, const dra_generate_config *c, dra_error *err)
{
    dra_status st = DRA_OK;
    bool       any = false;
    for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++) {
        st = prepare(g, c, b, err);
        any = any || g->row[b].live;
    }
    if (st != DRA_OK || !any) return st;
    st = dra_picker_pick(g->picker, g->how, g->constraint ? g->allowed : NULL, g->reader, g->ids,
                         err);
    for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++) {
        if (!g->row[b].live) continue;
        g->row[b].next = g->ids[b];
        if (g->ids[b] < 0) st = dra_generator_refuse(g, "generate", b, err);
    }
    return st;
}

/* Of logits that the host makes. */
static dra_status pick_here(dra_generator *g, const dra_generate_config *c, int64_t row,
                            dra_error *err)
{
    dra_row         *r = &g->row[row];
    dra_offer        offer;
    const dra_status st = dra_generator_offer(g, c, row, &offer, err);
    if (st != DRA_OK) return st;
    if (offer.ended) {
        finish_text(r);
        return DRA_OK;
    }
    r->next = dra_sampler_choose(g->sampler, offer.logits, offer.seen, dra_generator_stream(g, row),
                                 dra_generator_tokens(g, row));
    return r->next < 0 ? dra_generator_refuse(g, "generate", row, err) : DRA_OK;
}

dra_status dra_generator_pick(dra_generator *g, const dra_generate_config *c, dra_error *err)
{
    dra_status st = DRA_OK;
    if (g->config.n_amateurs == 0) return pick_there(g, c, err);
    for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++)
        if (g->row[b].live) st = pick_here(g, c, b, err);
    return st;
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

/* Room for those of all tokens of a row. */
static dra_status reserve(dra_row *r, size_t each, dra_error *err)
{
    if (r->ids.n * each <= r->logprob_room) return DRA_OK;
    const size_t room = 2 * r->ids.n * each;
    dra_logprob *more = realloc(r->logprobs, room * sizeof *more);
    if (!more) return no_memory(err);
    r->logprobs = more;
    r->logprob_room = room;
    return DRA_OK;
}

dra_status dra_generator_log(dra_generator *g, int64_t row, int64_t top, bool picked,
                             dra_error *err)
{
    dra_row     *r = &g->row[row];
    const size_t each = (size_t)top + 1;
    dra_status   st = top > 0 ? reserve(r, each, err) : DRA_OK;
    if (top == 0 || st != DRA_OK) return st;
    dra_logprob  *at = r->logprobs + (r->ids.n - 1) * each;
    const int32_t id = r->ids.data[r->ids.n - 1];
    for (size_t i = 0; i < each; i++) at[i] = (dra_logprob){-1, NAN};
    at[0].id = id;
    if (!picked) return DRA_OK;
    dra_real *own;
    st = dra_generator_see(g, row, &own, err);
    if (st != DRA_OK) return st;
    dra_ranked *best = malloc((size_t)top * sizeof *best);
    if (!best) return no_memory(err);
    const int64_t n = dra_sampler_rank(g->sampler, own, NULL, NULL, top, best);
    for (int64_t i = 0; i < n; i++) at[i + 1] = (dra_logprob){best[i].id, best[i].log_prob};
    at[0].logprob = dra_sampler_logprob(g->sampler, own, id);
    free(best);
    return DRA_OK;
}
