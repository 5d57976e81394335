/* Text from a generator: tokens become bytes, bytes become text, and a stop string takes the row
 * back to where it began.
 *
 * A stop string may be spread over several tokens, which must be read before it is known. So when
 * its first part shows, the row is copied (a snapshot) before that token is read. If it becomes
 * one, the row goes back to the snapshot and reads again what comes before it; if not, the copy
 * goes. */
#include <stdlib.h>

#include "run/generator.h"

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
    const dra_tokenizer *t = g->config.tokenizer;
    const char          *piece = t ? dra_tokenizer_piece(t, id, bytes) : NULL;
    if (piece && !dra_tokenizer_is_special(t, id)) return piece;
    *bytes = 0;
    return "";
}

/* ---- stop strings ---------------------------------------------------------------------------- */

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
    for (size_t i = 0; i < part.n && st == DRA_OK; i++)
        st = dra_ids_add(&r->ids, part.data[i], err);
    if (st == DRA_OK) st = dra_generator_feed(g, row, part.n, part.data, err);
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
    if (st == DRA_OK) st = dra_text_stream_push(&r->outlet, piece, bytes, &flow, err);
    if (st != DRA_OK) return st;
    r->bytes += bytes;
    if (flow.stopped) finish(r, DRA_FINISH_STOP);
    st = flow.stopped ? cut(g, row, flow.before, err) : track_stop(g, row, &flow, bytes, err);
    if (st == DRA_OK) hand_out(c, row, r, &flow);
    return st;
}

/* What ends a row before the next token. */
static void look_ahead(dra_generator *g, const dra_generate_config *c, int64_t row)
{
    dra_row *r = &g->row[row];
    if (!r->live) return;
    if (c->tokens > 0 && r->ids.n >= (size_t)c->tokens)
        finish(r, DRA_FINISH_LENGTH);
    else if (!dra_generator_fits(g, row, 1))
        finish(r, DRA_FINISH_CONTEXT);
}

static bool any_live(dra_generator *g, const dra_generate_config *c)
{
    bool any = false;
    for (int64_t b = 0; b < g->config.rows; b++) {
        look_ahead(g, c, b);
        any = any || g->row[b].live;
    }
    return any;
}

/* ---- all of it ------------------------------------------------------------------------------- */

dra_status dra_generator_begun(const dra_generator *g, dra_error *err)
{
    for (int64_t b = 0; b < g->config.rows; b++)
        if (!g->row[b].begun && g->row[b].next < 0)
            return dra_fail(err, DRA_ERR_VALUE,
                            "generate: row %lld has read nothing to continue from", (long long)b);
    return DRA_OK;
}

static dra_status start(dra_generator *g, const dra_generate_config *c, dra_error *err)
{
    if (c->n_stop > 0 && !g->config.tokenizer)
        return dra_fail(err, DRA_ERR_VALUE, "generate: stop strings need a tokenizer");
    const dra_status st = dra_generator_begun(g, err);
    if (st != DRA_OK) return st;
    for (int64_t b = 0; b < g->config.rows; b++) {
        dra_row *r = &g->row[b];
        r->live = true;
        r->ids.n = r->bytes = 0;
        dra_text_stream_free(&r->outlet);
        r->outlet = (dra_text_stream){.n_stop = c->n_stop, .stop = c->stop};
    }
    return DRA_OK;
}

static dra_status end(dra_generator *g, const dra_generate_config *c, dra_generated *out,
                      dra_error *err)
{
    for (int64_t b = 0; b < g->config.rows; b++) {
        dra_row         *r = &g->row[b];
        dra_text_chunk   flow;
        const dra_status st = dra_text_stream_flush(&r->outlet, &flow, err);
        if (st != DRA_OK) return st;
        if (flow.bytes > 0) hand_out(c, b, r, &flow);
        out[b] = (dra_generated){r->finish, r->ids.n, r->ids.data};
    }
    return DRA_OK;
}

dra_status dra_generate(dra_generator *g, const dra_generate_config *config, dra_generated *out,
                        dra_error *err)
{
    dra_status st = start(g, config, err);
    while (st == DRA_OK && any_live(g, config)) {
        st = dra_generator_flush_pending(g, err);
        if (st == DRA_OK) st = dra_generator_pick(g, err);
        for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++)
            if (g->row[b].live) st = accept(g, config, b, err);
    }
    for (int64_t b = 0; b < g->config.rows; b++) {
        g->row[b].live = false;
        dra_snapshot_drop(&g->row[b].back);
    }
    return st == DRA_OK ? end(g, config, out, err) : st;
}
