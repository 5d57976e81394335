/* The numbers that the inputs of dra_tokens receive.
 * One pass over the marks of a row decides everything: where items are written, what a query sees,
 * which token came before. Nothing else in the library looks at pads and resets of items. */
#include <stdlib.h>

#include "base/error.h"
#include "base/shape.h"
#include "sequence/states.h"

static bool reserve(dra_extents *e, int64_t B, int64_t T)
{
    const size_t each = (size_t)(B * T);
    const size_t need = each * (6 + 3 * (size_t)e->n_items) + (size_t)B * (1 + (size_t)e->n_items);
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
    e->lo = next + 4 * each, e->hi = next + 5 * each;
    next += 6 * each;
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

/* ---- whole texts ----------------------------------------------------------------------------- */

typedef struct text { /* tokens first .. end - 1 of a row; pads before `from` and from `to` on */
    int64_t first, end, from, to;
} text;

static bool is_pad(const int32_t *mark, int64_t t) { return mark && mark[t] & DRA_MARK_PAD; }

/* The text that starts at token `first`, up to the next reset. */
static text find_text(const int32_t *mark, int64_t first, int64_t T)
{
    text x = {first, first + 1, first, 0};
    while (x.end < T && !(mark && mark[x.end] & DRA_MARK_RESET)) x.end++;
    x.to = x.end;
    while (x.from < x.end && is_pad(mark, x.from)) x.from++;
    while (x.to > x.from && is_pad(mark, x.to - 1)) x.to--;
    return x;
}

static void fill_text(dra_extents *e, int64_t b, const int32_t *mark, const text *x)
{
    for (int64_t t = x->first, i = b * e->T + t; t < x->end; t++, i++) {
        const int32_t what = mark ? mark[t] : 0;
        const bool    pad = what & DRA_MARK_PAD, write = !pad && !(what & DRA_MARK_SKIP);
        e->mark[i] = pad ? what & ~DRA_MARK_SKIP : what;
        e->writes[i] = (what & DRA_MARK_RESET) | (write ? 0 : DRA_MARK_PAD);
        e->pos[i] = (int32_t)(t - x->first);
        e->prev[i] = t == x->first || is_pad(mark, t - 1) ? -1 : (int32_t)t;
        e->lo[i] = (int32_t)x->from;
        e->hi[i] = (int32_t)x->to;
    }
}

/* Texts of one row, all of them in this call. */
static void fill_texts(dra_extents *e, int64_t b, const int32_t *mark)
{
    for (int64_t first = 0; first < e->T;) {
        const text x = find_text(mark, first, e->T);
        fill_text(e, b, mark, &x);
        first = x.end;
    }
    e->last[b] = -1; /* nothing follows */
}

/* Is a token within a text not seen? */
static bool has_holes(const int32_t *mark, int64_t T)
{
    for (int64_t first = 0; mark && first < T;) {
        const text x = find_text(mark, first, T);
        for (int64_t t = x.from; t < x.to; t++)
            if (mark[t] & (DRA_MARK_PAD | DRA_MARK_SKIP)) return true;
        first = x.end;
    }
    return false;
}

/* ---- all of it ------------------------------------------------------------------------------- */

void dra_extents_plan(dra_extents *e, int64_t B, int64_t T, const int32_t *mark)
{
    e->skips = dra_marks_any_skip(mark, B * T);
    e->holes = false;
    for (int64_t b = 0; e->whole && mark && b < B && !e->holes; b++)
        e->holes = has_holes(mark + b * T, T);
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
    e->n_items = dra_token_limits(specs, limit);
    dra_extents_plan(e, B, T, mark);
    for (int k = 0; k < e->n_items; k++) e->items[k].limit = limit[k];
    if (e->n_items < 0 || !reserve(e, B, T))
        return dra_fail(err, DRA_ERR_MEMORY, "tokens: out of memory for B %lld, T %lld",
                        (long long)B, (long long)T);
    for (int64_t b = 0; b < B; b++) {
        if (e->whole) {
            fill_texts(e, b, mark ? mark + b * T : NULL);
            continue;
        }
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
    char    name[DRA_TOKEN_TEXT];
    *out = (dra_token_names){.mark = dra_session_name(session, "tokens.mark"),
                             .writes = dra_session_name(session, "tokens.writes"),
                             .pos = dra_session_name(session, "tokens.pos"),
                             .prev = dra_session_name(session, "tokens.prev"),
                             .last = dra_session_name(session, "tokens.last"),
                             .lo = dra_session_name(session, "tokens.lo"),
                             .hi = dra_session_name(session, "tokens.hi")};
    for (int i = 0; i < dra_token_limits(state, limit); i++) {
        out->items[i].at = dra_session_name(session, dra_token_input(name, "at", limit[i]));
        out->items[i].lo = dra_session_name(session, dra_token_input(name, "lo", limit[i]));
        out->items[i].hi = dra_session_name(session, dra_token_input(name, "hi", limit[i]));
        out->items[i].base = dra_session_name(session, dra_token_input(name, "base", limit[i]));
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
    if (st == DRA_OK && e->whole) st = dra_session_put(session, names->lo, e->lo, bytes, err);
    if (st == DRA_OK && e->whole) st = dra_session_put(session, names->hi, e->hi, bytes, err);
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
