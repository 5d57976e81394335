/* What a call knows about its tokens: as inputs of the graph, and the numbers they receive.
 * One pass over the marks of a row decides everything: where items are written, what a query sees,
 * which token came before. Nothing else in the library looks at pads and resets of items. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/philox.h"
#include "base/shape.h"
#include "graph/op.h"
#include "sequence/states.h"

/* ---- as values ------------------------------------------------------------------------------- */

/* The different limits of a module's items. */
static int limits(const dra_specs *state, int64_t *limit)
{
    int n = 0;
    for (int i = 0; i < dra_specs_count(state); i++) {
        const dra_spec *p = dra_specs_at(state, i);
        bool            known = !p->items;
        for (int k = 0; k < n && !known; k++) known = limit[k] == p->limit;
        if (!known && n == DRA_TOKEN_KINDS) return -1;
        if (!known) limit[n++] = p->limit;
    }
    return n;
}

static const char *name_of(char text[48], const char *what, int64_t limit)
{
    snprintf(text, 48, "tokens.%s.%lld", what, (long long)limit);
    return text;
}

void dra_tokens_declare(dra_graph *g, const dra_specs *state, const dra_module_shape *shape,
                        dra_tokens *out)
{
    const dra_shape each = DRA_SHAPE(shape->B, shape->T);
    int64_t         limit[DRA_TOKEN_KINDS];
    char            name[48];
    *out = (dra_tokens){.B = shape->B, .T = shape->T, .fresh = shape->fresh};
    out->n_items = limits(state, limit);
    if (out->n_items < 0) {
        dra_build_fail(g, "tokens", DRA_ERR_VALUE, "items with more than %d different limits",
                       DRA_TOKEN_KINDS);
        out->n_items = 0;
        return;
    }
    if (shape->marked) out->mark = out->writes = dra_input(g, "tokens.mark", DRA_I32, each);
    if (shape->marked && shape->skips) {
        out->writes = dra_input(g, "tokens.writes", DRA_I32, each);
        out->skip = dra_greater_equal(g, out->mark, dra_integer(g, DRA_MARK_SKIP));
    }
    out->pos = dra_input(g, "tokens.pos", DRA_I32, each);
    out->prev = dra_input(g, "tokens.prev", DRA_I32, each);
    out->last = dra_input(g, "tokens.last", DRA_I32, DRA_SHAPE(shape->B, 1));
    for (int i = 0; i < out->n_items; i++)
        out->items[i] = (dra_token_items){
            .limit = limit[i],
            .at = dra_input(g, name_of(name, "at", limit[i]), DRA_I32, each),
            .lo = dra_input(g, name_of(name, "lo", limit[i]), DRA_I32, each),
            .hi = dra_input(g, name_of(name, "hi", limit[i]), DRA_I32, each),
            .base = dra_input(g, name_of(name, "base", limit[i]), DRA_I32, DRA_SHAPE(shape->B, 1)),
        };
}

const dra_token_items *dra_tokens_items(const dra_tokens *tokens, int64_t limit)
{
    for (int i = 0; i < tokens->n_items; i++)
        if (tokens->items[i].limit == limit) return &tokens->items[i];
    return NULL;
}

dra_value dra_tokens_shift(dra_graph *g, const dra_tokens *tokens, dra_value x, dra_value before,
                           dra_value *after)
{
    const int64_t T = tokens->T;
    *after = (dra_value){0};
    if (!dra_check_values(g, "tokens_shift", 1, &x)) return (dra_value){0};
    dra_shape row = dra_shape_of(g, x);
    row.dim[1] = 1;
    const dra_value first = before.id ? dra_reshape(g, before, row)
                                      : dra_broadcast(g, dra_number(g, 0), row);
    const dra_value parts[] = {first, x}, all = dra_concat(g, 2, parts, 1); /* (B, 1 + T, ...) */
    dra_value       shifted, last;
    if (tokens->mark.id) {
        shifted = dra_read_rows(g, all, tokens->prev);
        last = dra_read_rows(g, all, tokens->last);
    } else {
        shifted = dra_slice(g, all, 1, 0, T);
        last = dra_slice(g, all, 1, T, 1);
    }
    for (int32_t i = 1; i + 1 < row.rank; i++) row.dim[i] = row.dim[i + 1];
    row.rank--;
    *after = dra_reshape(g, last, row);
    return shifted;
}

dra_value dra_tokens_zero_pads(dra_graph *g, const dra_tokens *tokens, dra_value y)
{
    if (!tokens->mark.id || dra_graph_failed(g)) return y;
    dra_shape column = dra_shape_of(g, y);
    for (int32_t i = 2; i < column.rank; i++) column.dim[i] = 1;
    const dra_value two = dra_integer(g, DRA_MARK_RESET);
    const dra_value pad = dra_equal(g, dra_mod(g, tokens->mark, two), dra_integer(g, DRA_MARK_PAD));
    return dra_select(g, dra_reshape(g, pad, column), dra_number(g, 0), y);
}

/* ---- as numbers ------------------------------------------------------------------------------ */

static bool reserve(dra_extents *e, int64_t B, int64_t T)
{
    const size_t each = (size_t)(B * T);
    const size_t need = each * (4 + 3 * (size_t)e->n_items) + (size_t)B * (1 + (size_t)e->n_items);
    if (need > e->room) {
        int32_t *memory = realloc(e->memory, need * sizeof *memory);
        if (!memory) return false;
        e->memory = memory;
        e->room = need;
    }
    int32_t *next = e->memory;
    e->B = B, e->T = T;
    e->mark = next, e->pos = next + each, e->prev = next + 2 * each;
    e->writes = next + 3 * each;
    next += 4 * each;
    for (int i = 0; i < e->n_items; i++, next += 3 * each)
        e->items[i].at = next, e->items[i].lo = next + each, e->items[i].hi = next + 2 * each;
    for (int i = 0; i < e->n_items; i++, next += B) e->items[i].base = next;
    e->last = next;
    return true;
}

/* Tokens of one row: `base` by kind of items. A skipped one sees what was written before it. */
static void fill_row(dra_extents *e, int64_t b, const int32_t *mark, int64_t tokens, int64_t begin,
                     int64_t end, const int64_t *base)
{
    int32_t prev = 0;
    for (int64_t t = 0, i = b * e->T; t < e->T; t++, i++) {
        const int32_t what = mark ? mark[i] : 0;
        const bool    pad = what & DRA_MARK_PAD, write = !pad && !(what & DRA_MARK_SKIP);
        if (what & DRA_MARK_RESET) begin = end, tokens = 0, prev = -1;
        e->mark[i] = pad ? what & ~DRA_MARK_SKIP : what;
        e->writes[i] = (what & DRA_MARK_RESET) | (write ? 0 : DRA_MARK_PAD);
        e->pos[i] = pad ? 0 : (int32_t)tokens; /* there may be no further one */
        e->prev[i] = pad ? -1 : prev;
        for (int k = 0; k < e->n_items; k++) {
            const int64_t hi = end + write, limit = e->items[k].limit;
            const int64_t lo = limit ? dra_imax(begin, hi - limit) : begin;
            e->items[k].at[i] = write ? (int32_t)(end - base[k]) : -1;
            e->items[k].lo[i] = pad ? 0 : (int32_t)(lo - base[k]);
            e->items[k].hi[i] = pad ? 0 : (int32_t)(hi - base[k]);
        }
        if (pad) continue;
        prev = (int32_t)t + 1;
        tokens++;
        end += write;
    }
    e->last[b] = prev;
}

/* The state that holds items of a kind; its base is that of all of them. */
static const dra_held *held_of(const dra_states *s, int64_t limit)
{
    for (int i = 0; i < dra_specs_count(s->specs); i++) {
        const dra_spec *p = dra_specs_at(s->specs, i);
        if (p->items && p->limit == limit) return &s->at[i];
    }
    return NULL;
}

dra_status dra_extents_fill(dra_extents *e, const dra_specs *specs, const dra_states *s, int64_t B,
                            int64_t T, const int32_t *mark, dra_error *err)
{
    int64_t limit[DRA_TOKEN_KINDS], base[DRA_TOKEN_KINDS];
    e->n_items = limits(specs, limit);
    e->skips = dra_marks_any_skip(mark, B * T);
    for (int k = 0; k < e->n_items; k++) e->items[k].limit = limit[k];
    if (e->n_items < 0 || !reserve(e, B, T))
        return dra_fail(err, DRA_ERR_MEMORY, "tokens: out of memory for B %lld, T %lld",
                        (long long)B, (long long)T);
    for (int64_t b = 0; b < B; b++) {
        for (int k = 0; k < e->n_items; k++) {
            base[k] = s ? held_of(s, limit[k])->base[b] : 0;
            e->items[k].base[b] = (int32_t)base[k];
        }
        fill_row(e, b, mark, s ? s->tokens[b] : 0, s ? s->begin[b] : 0, s ? s->end[b] : 0, base);
    }
    return DRA_OK;
}

void dra_extents_free(dra_extents *e)
{
    free(e->memory);
    *e = (dra_extents){0};
}

void dra_tokens_name(dra_session *session, const dra_specs *state, dra_token_names *out)
{
    int64_t limit[DRA_TOKEN_KINDS];
    char    name[48];
    *out = (dra_token_names){.mark = dra_session_name(session, "tokens.mark"),
                             .writes = dra_session_name(session, "tokens.writes"),
                             .pos = dra_session_name(session, "tokens.pos"),
                             .prev = dra_session_name(session, "tokens.prev"),
                             .last = dra_session_name(session, "tokens.last")};
    for (int i = 0; i < limits(state, limit); i++) {
        out->items[i].at = dra_session_name(session, name_of(name, "at", limit[i]));
        out->items[i].lo = dra_session_name(session, name_of(name, "lo", limit[i]));
        out->items[i].hi = dra_session_name(session, name_of(name, "hi", limit[i]));
        out->items[i].base = dra_session_name(session, name_of(name, "base", limit[i]));
    }
}

dra_status dra_extents_put(const dra_extents *e, dra_session *session, const dra_token_names *names,
                           bool marked, dra_error *err)
{
    const size_t bytes = (size_t)(e->B * e->T) * sizeof(int32_t);
    const size_t rows = (size_t)e->B * sizeof(int32_t);
    dra_status   st = DRA_OK;
    if (marked) st = dra_session_put(session, names->mark, e->mark, bytes, err);
    if (marked && e->skips && st == DRA_OK)
        st = dra_session_put(session, names->writes, e->writes, bytes, err);
    if (st == DRA_OK) st = dra_session_put(session, names->pos, e->pos, bytes, err);
    if (st == DRA_OK) st = dra_session_put(session, names->prev, e->prev, bytes, err);
    if (st == DRA_OK) st = dra_session_put(session, names->last, e->last, rows, err);
    for (int i = 0; i < e->n_items && st == DRA_OK; i++) {
        st = dra_session_put(session, names->items[i].at, e->items[i].at, bytes, err);
        if (st == DRA_OK)
            st = dra_session_put(session, names->items[i].lo, e->items[i].lo, bytes, err);
        if (st == DRA_OK)
            st = dra_session_put(session, names->items[i].hi, e->items[i].hi, bytes, err);
        if (st == DRA_OK)
            st = dra_session_put(session, names->items[i].base, e->items[i].base, rows, err);
    }
    return st;
}

/* ---- state dropout --------------------------------------------------------------------------- */

bool dra_marks_any_skip(const int32_t *mark, int64_t n)
{
    for (int64_t i = 0; mark && i < n; i++)
        if (mark[i] & DRA_MARK_SKIP) return true;
    return false;
}

void dra_marks_skip(int32_t *mark, int64_t B, int64_t T, double p, uint64_t seed, int64_t step,
                    int64_t row, const int64_t *pos)
{
    const uint64_t path = 0x736b6970; /* "skip": apart from all other numbers of this step */
    const int32_t  words[4] = {(int32_t)seed, (int32_t)(seed >> 32), (int32_t)step,
                               (int32_t)(step >> 32)};
    const uint64_t key = dra_philox_key(words, path);
    for (int64_t i = 0; i < B * T; i++) {
        const uint64_t r = (uint64_t)(row + i / T), t = (uint64_t)((pos ? pos[i / T] : 0) + i % T);
        const uint32_t counter[4] = {(uint32_t)t, (uint32_t)(t >> 32), (uint32_t)r,
                                     (uint32_t)(r >> 32)};
        uint32_t       bits[4];
        if (mark[i] & DRA_MARK_PAD) continue;
        dra_philox(counter, key, bits);
        if (((double)bits[0] + 0.5) * 0x1p-32 < p) mark[i] |= DRA_MARK_SKIP;
    }
}
