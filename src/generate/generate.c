/* Text from a generator: tokens become bytes, bytes become text, and a stop string takes the row
 * back to where it began.
 *
 * A stop string may be spread over several tokens, which must be read before it is known. So when
 * its first part shows, the row is copied (a snapshot) before that token is read. If it becomes
 * one, the row goes back to the snapshot and reads again what comes before it; if not, the copy
 * goes. */
#include <stdlib.h>

#include "generate/generator.h"

#include "base/error.h"

const char *dra_finish_name(dra_finish finish)
{
    static const char *const names[] = {"length", "end", "stop", "context", "asked"};
    return (unsigned)finish < sizeof names / sizeof *names ? names[finish] : "unknown";
}

dra_status dra_ids_add(dra_ids *ids, int32_t id, dra_error *err)
{
    if (ids->n == ids->room) {
        const size_t room = ids->room ? 2 * ids->room : 64;
        int32_t     *data = realloc(ids->data, room * sizeof *data);
        if (!data) return dra_fail(err, DRA_ERR_MEMORY, "generate: out of memory");
        ids->data = data;
        ids->room = room;
    }
    ids->data[ids->n++] = id;
    return DRA_OK;
}

static void finish(dra_row *r, dra_finish why)
{
    r->live = false;
    r->finish = why;
}

const char *dra_generator_piece(const dra_generator *g, int32_t id, size_t *bytes)
{
    return dra_token_piece(g->config.tokenizer, id, bytes);
}

/* ---- stop strings ---------------------------------------------------------------------------- */

/* The grammar of a row gets to where its text now ends. */
static dra_status replay(dra_generator *g, int64_t row, dra_error *err)
{
    dra_row   *r = &g->row[row];
    dra_status st = dra_row_set_place(r, r->origin, err);
    for (size_t i = 0; i < r->ids.n && st == DRA_OK; i++)
        st = dra_generator_advance(g, row, r->ids.data[i], err);
    return st;
}

/* The row has read what comes before its byte number `cut` and nothing else. */
static dra_status cut(dra_generator *g, int64_t row, size_t at, dra_error *err)
{
    dra_row   *r = &g->row[row];
    size_t     end = r->bytes, n = r->ids.n, bytes = 0;
    dra_ids    part = {0};
    dra_status st = DRA_OK;
    while (n > 0 && end > at) { /* tokens that reach over the cut go; n is the first of them */
        dra_generator_piece(g, r->ids.data[--n], &bytes);
        end -= bytes;
    }
    const char *piece = n < r->ids.n ? dra_generator_piece(g, r->ids.data[n], &bytes) : "";
    if (end < at) st = dra_encode_plain(g->config.tokenizer, piece, at - end, &part, err);
    if (st == DRA_OK && n + 1 < r->ids.n) { /* more than the last one, which is not read yet */
        const size_t from = r->back.ids;
        st = dra_snapshot_restore(g, row, err);
        if (st == DRA_OK) st = dra_generator_feed(g, row, n - from, r->ids.data + from, err);
    }
    r->next = -1;
    r->ids.n = n;
    r->bytes = at;
    for (size_t i = 0; i < part.n && st == DRA_OK; i++) {
        st = dra_ids_add(&r->ids, part.data[i], err);
        if (st == DRA_OK) st = dra_generator_log(g, row, r->top, false, err);
    }
    if (st == DRA_OK) st = dra_generator_feed(g, row, part.n, part.data, err);
    if (st == DRA_OK) st = replay(g, row, err);
    dra_ids_free(&part);
    return st;
}

/* Keeps a copy of the row while a stop string may have begun, from before the token it began in. */
static dra_status track_stop(dra_generator *g, int64_t row, const dra_text_chunk *flow, size_t last,
                             dra_error *err)
{
    dra_snapshot *back = &g->row[row].back;
    if (!flow->partial) dra_snapshot_drop(back);
    if (!flow->partial || (back->kept.states && flow->before < g->row[row].bytes - last))
        return DRA_OK;
    return dra_snapshot_take(g, row, err);
}

/* ---- a token at a time ----------------------------------------------------------------------- */

static void hand_out(const dra_generate_config *c, int64_t row, dra_row *r,
                     const dra_text_chunk *flow)
{
    if (c->write && !c->write(c->user, row, flow->text, flow->bytes) && r->live)
        finish(r, DRA_FINISH_ASKED);
}

bool dra_generate_ends(const dra_generator *g, const dra_generate_config *c, int32_t id)
{
    if (c->ignore_end) return false;
    for (int i = 0; i < c->n_ends; i++)
        if (c->ends[i] == id) return true;
    return g->config.tokenizer && dra_tokenizer_end(g->config.tokenizer) == id;
}

/* The token a row has picked becomes text; the row may finish by it. */
static dra_status accept(dra_generator *g, const dra_generate_config *c, int64_t row,
                         dra_error *err)
{
    dra_row       *r = &g->row[row];
    const int32_t  id = r->next;
    dra_text_chunk flow;
    size_t         bytes;
    if (dra_generate_ends(g, c, id)) {
        r->next = -1;
        finish(r, DRA_FINISH_END);
        return DRA_OK;
    }
    const char *piece = dra_generator_piece(g, id, &bytes);
    dra_status  st = dra_ids_add(&r->ids, id, err);
    if (st == DRA_OK) st = dra_generator_log(g, row, r->top, true, err);
    if (st == DRA_OK) st = dra_generator_advance(g, row, id, err);
    if (st == DRA_OK) st = dra_text_stream_push(&r->outlet, piece, bytes, &flow, err);
    if (st != DRA_OK) return st;
    r->bytes += bytes;
    if (flow.stopped) finish(r, DRA_FINISH_STOP);
    st = flow.stopped ? cut(g, row, flow.before, err) : track_stop(g, row, &flow, bytes, err);
    if (st == DRA_OK) hand_out(c, row, r, &flow);
    return st;
}

/* What ends a row before the next token. */
static dra_status look_ahead(dra_generator *g, int64_t row, dra_error *err)
{
    dra_row *r = &g->row[row];
    bool     must;
    if (!r->live) return DRA_OK;
    const dra_status st = dra_generator_must_end(g, row, &must, err);
    if (st != DRA_OK) return st;
    if (must)
        finish(r, DRA_FINISH_END);
    else if (r->most > 0 && r->ids.n >= (size_t)r->most)
        finish(r, DRA_FINISH_LENGTH);
    else if (!dra_generator_fits(g, row, 1))
        finish(r, DRA_FINISH_CONTEXT);
    return DRA_OK;
}

/* ---- a text of a row ------------------------------------------------------------------------- */

static bool has_begun(const dra_row *r) { return r->begun || r->next >= 0; }

dra_status dra_generator_begun(const dra_generator *g, dra_error *err)
{
    for (int64_t b = 0; b < g->config.rows; b++)
        if (!has_begun(&g->row[b]))
            return dra_fail(err, DRA_ERR_VALUE,
                            "generate: row %lld has read nothing to continue from", (long long)b);
    return DRA_OK;
}

static dra_status begin(dra_generator *g, const dra_generate_config *c, int64_t row, int64_t tokens,
                        dra_error *err)
{
    dra_row *r = &g->row[row];
    r->live = r->open = true;
    r->most = tokens;
    r->top = c->logprobs < g->V ? c->logprobs : g->V;
    r->ids.n = r->bytes = 0;
    dra_text_stream_free(&r->outlet);
    r->outlet = (dra_text_stream){.n_stop = c->n_stop, .stop = c->stop};
    free(r->origin);
    return dra_grammar_state_copy(r->place, &r->origin, err);
}

/* Another text for a row that has none, if there is one. */
static dra_status ask_next(dra_generator *g, const dra_generate_config *c, int64_t row,
                           const dra_generated *done, dra_error *err)
{
    int64_t    tokens = -1;
    dra_status st = c->next ? c->next(c->user, row, done, &tokens, err) : DRA_OK;
    if (st != DRA_OK || tokens < 0) return st;
    if (!has_begun(&g->row[row]))
        return dra_fail(err, DRA_ERR_VALUE, "generate: row %lld has read nothing to continue from",
                        (long long)row);
    return begin(g, c, row, tokens, err);
}

/* Hands out what a finished row has written. */
static dra_status conclude(dra_generator *g, const dra_generate_config *c, int64_t row,
                           dra_generated *out, dra_error *err)
{
    dra_row         *r = &g->row[row];
    dra_text_chunk   flow;
    const dra_status st = dra_text_stream_flush(&r->outlet, &flow, err);
    if (st != DRA_OK) return st;
    if (flow.bytes > 0) hand_out(c, row, r, &flow);
    dra_snapshot_drop(&r->back);
    r->open = false;
    const dra_generated done = {r->finish, r->ids.n, r->ids.data, r->top ? r->logprobs : NULL,
                                r->top};
    if (out) out[row] = done;
    return ask_next(g, c, row, &done, err);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static dra_status start(dra_generator *g, const dra_generate_config *c, dra_error *err)
{
    if (c->n_stop > 0 && !g->config.tokenizer)
        return dra_fail(err, DRA_ERR_VALUE, "generate: stop strings need a tokenizer");
    dra_status st = c->next ? DRA_OK : dra_generator_begun(g, err);
    for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++)
        st = has_begun(&g->row[b]) ? begin(g, c, b, c->tokens, err) : ask_next(g, c, b, NULL, err);
    return st;
}

/* Rows that have finished hand out what they have, and may begin another text. */
static dra_status any_live(dra_generator *g, const dra_generate_config *c, dra_generated *out,
                           bool *any, dra_error *err)
{
    dra_status st = DRA_OK;
    *any = false;
    for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++) {
        dra_row *r = &g->row[b];
        st = look_ahead(g, b, err);
        while (st == DRA_OK && r->open && !r->live) {
            st = conclude(g, c, b, out, err);
            if (st == DRA_OK) st = look_ahead(g, b, err);
        }
        *any = *any || r->live;
    }
    return st;
}

dra_status dra_generate(dra_generator *g, const dra_generate_config *config, dra_generated *out,
                        dra_error *err)
{
    bool       any = false;
    dra_status st = start(g, config, err);
    if (st == DRA_OK) st = any_live(g, config, out, &any, err);
    while (st == DRA_OK && any) {
        st = dra_generator_flush_pending(g, err);
        if (st == DRA_OK) st = dra_generator_pick(g, config, err);
        for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++)
            if (g->row[b].live) st = accept(g, config, b, err);
        if (st == DRA_OK) st = any_live(g, config, out, &any, err);
    }
    for (int64_t b = 0; b < g->config.rows; b++) {
        g->row[b].live = g->row[b].open = false;
        dra_snapshot_drop(&g->row[b].back);
    }
    return st;
}
