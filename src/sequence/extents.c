/* The numbers that the inputs of dra_tokens receive.
 * One pass over the marks of a row decides everything: where start vectors are, where items are
 * written, what a query sees, which token came before. Nothing else in the library looks at pads
 * and resets of items. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/shape.h"
#include "sequence/segments.h"

void dra_extents_open(dra_extents *e, const dra_module *m)
{
    e->whole = m->whole;
    e->prefix = m->prefix;
    e->start = m->start;
    e->segment = m->segment;
    e->kept = m->memory;
}

static bool is_pad(const int32_t *mark, int64_t t) { return mark && mark[t] & DRA_MARK_PAD; }
static bool is_reset(const int32_t *mark, int64_t t) { return mark && mark[t] & DRA_MARK_RESET; }

/* The marks of batch row b. */
static const int32_t *row_of(const dra_extents *e, const int32_t *mark, int64_t b)
{
    return mark ? mark + b * e->given : NULL;
}

/* ---- the shape of a call --------------------------------------------------------------------- */

int64_t dra_marks_starts(const int32_t *mark, int64_t n, int64_t tokens)
{
    int64_t starts = 0;
    if (!mark) return tokens == 0 && n > 0;
    for (int64_t t = 0; t < n; t++) {
        if (is_reset(mark, t)) tokens = 0;
        if (is_pad(mark, t)) continue;
        starts += tokens == 0;
        tokens++;
    }
    return starts;
}

typedef struct text { /* tokens first .. end - 1 of a row; pads before `from` and from `to` on */
    int64_t first, end, from, to;
} text;

/* The text that starts at token `first`, up to the next reset. */
static text find_text(const int32_t *mark, int64_t first, int64_t T)
{
    text x = {first, first + 1, first, 0};
    while (x.end < T && !is_reset(mark, x.end)) x.end++;
    x.to = x.end;
    while (x.from < x.end && is_pad(mark, x.from)) x.from++;
    while (x.to > x.from && is_pad(mark, x.to - 1)) x.to--;
    if (x.from == x.to) x.from = x.to = first; /* all tokens are pads */
    return x;
}

/* How many texts a row has. */
static int64_t count_texts(const int32_t *mark, int64_t T)
{
    int64_t n = 0;
    for (int64_t first = 0; first < T; n++) first = find_text(mark, first, T).end;
    return n;
}

/* Whether some item inside the interval that a query sees must not be seen. Start vectors come
 * before leading pads. */
static bool has_holes(const dra_extents *e, const int32_t *mark)
{
    for (int64_t first = 0; mark && first < e->given;) {
        const text x = find_text(mark, first, e->given);
        for (int64_t t = e->start ? x.first : x.from; t < x.to; t++)
            if (mark[t] & (DRA_MARK_PAD | DRA_MARK_SKIP)) return true;
        first = x.end;
    }
    return false;
}

/* Room for this many starts in each row: powers of two, since every room is a program of its own */
static int64_t starts_room(int64_t starts)
{
    int64_t room = starts > 0;
    while (room < starts) room *= 2;
    return room;
}

void dra_extents_plan(dra_extents *e, const dra_states *s, int64_t B, int64_t T,
                      const int32_t *mark)
{
    int64_t most = 0, fewest = INT64_MAX;
    e->B = B, e->given = e->T = T;
    e->skips = dra_marks_any_skip(mark, B * T);
    e->holes = false;
    e->marked = mark != NULL;
    e->max_event = DRA_SEGMENT_CONTINUES;
    for (int64_t b = 0; e->segment > 0 && s && b < B; b++) {
        int event = dra_segment_next_event(e->segment, s->tokens[b], T, row_of(e, mark, b));
        if (event == DRA_SEGMENT_SHIFTS)
            event = dra_segment_shift(e->segment, e->kept, s->tokens[b]);
        if (event > e->max_event) e->max_event = event;
    }
    for (int64_t b = 0; e->whole && mark && b < B && !e->holes; b++)
        e->holes = has_holes(e, row_of(e, mark, b));
    for (int64_t b = 0; e->start > 0 && b < B; b++) {
        const int32_t *row = row_of(e, mark, b);
        const int64_t  n = e->whole ? count_texts(row, T)
                                    : dra_marks_starts(row, T, s ? s->tokens[b] : 0);
        most = dra_imax(most, n), fewest = dra_imin(fewest, n);
    }
    if (most == 0) return;
    e->T += e->start * starts_room(most);
    e->marked = e->marked || fewest < starts_room(most); /* shorter rows are padded */
}

static bool reserve_inputs(dra_extents *e)
{
    const size_t each = (size_t)(e->B * e->T), own = (size_t)(e->B * e->given), B = (size_t)e->B;
    const size_t n = (size_t)e->n_items;
    const size_t need = each * (7 + 3 * (n + 1)) + 2 * own + B * (1 + n + 2);
    if (need > e->room) {
        int32_t *memory = realloc(e->memory, need * sizeof *memory);
        if (!memory) return false;
        e->memory = memory;
        e->room = need;
    }
    int32_t *next = e->memory;
    e->mark = next, e->pos = next + each, e->prev = next + 2 * each;
    e->writes = next + 3 * each;
    e->lo = next + 4 * each, e->hi = next + 5 * each;
    e->take = next + 6 * each;
    next += 7 * each;
    e->give = next, e->place = next + own;
    next += 2 * own;
    for (int i = 0; i < e->n_items; i++, next += 3 * each)
        e->items[i].at = next, e->items[i].lo = next + each, e->items[i].hi = next + 2 * each;
    e->segments.at = next, e->segments.lo = next + each, e->segments.hi = next + 2 * each;
    next += 3 * each;
    for (int i = 0; i < e->n_items; i++, next += B) e->items[i].base = next;
    e->last = next, e->segments.base = next + B, e->segments.event = next + 2 * B;
    return true;
}

/* ---- sequences in parts ---------------------------------------------------------------------- */

typedef struct walk {          /* along a row, token by token, including start vectors */
    int64_t        b, t;       /* the next token */
    int64_t        pos;        /* its position since the last reset */
    int64_t        begin, end; /* numbers of the items since then */
    int64_t        until;      /* the end of its prefix, whose tokens all see each other */
    int32_t        prev;
    const int64_t *base; /* by kind of items */
} walk;

/* Puts the next token of a row. A skipped one sees what was written before it. */
static void put_token(dra_extents *e, walk *w, int32_t what, int64_t take)
{
    const int64_t i = w->b * e->T + w->t;
    const bool    pad = what & DRA_MARK_PAD, write = !pad && !(what & DRA_MARK_SKIP);
    if (what & DRA_MARK_RESET) w->begin = w->end, w->pos = 0, w->prev = -1;
    if (e->segment > 0 && !pad && w->pos % e->segment == 0) w->prev = -1;
    e->mark[i] = pad ? what & ~DRA_MARK_SKIP : what;
    e->writes[i] = (what & DRA_MARK_RESET) | (write ? 0 : DRA_MARK_PAD);
    e->pos[i] = pad ? 0 : (int32_t)w->pos; /* there may be no further one */
    e->prev[i] = pad ? -1 : w->prev;
    e->take[i] = (int32_t)take;
    for (int k = 0; k < e->n_items; k++) {
        const int64_t hi = dra_imax(w->end + write, w->until), limit = e->items[k].limit;
        const int64_t lo = limit ? dra_imax(w->begin, hi - limit) : w->begin;
        e->items[k].at[i] = write ? (int32_t)(w->end - w->base[k]) : -1;
        e->items[k].lo[i] = pad ? 0 : (int32_t)(lo - w->base[k]);
        e->items[k].hi[i] = pad ? 0 : (int32_t)(hi - w->base[k]);
    }
    w->t++;
    if (pad) return;
    w->prev = (int32_t)w->t;
    w->pos++;
    w->end += write;
}

/* Puts start vectors before the first token of a sequence that is not a pad; they take over its
 * reset. */
static int32_t put_start(dra_extents *e, walk *w, int32_t what)
{
    if (what & DRA_MARK_PAD || (w->pos > 0 && !(what & DRA_MARK_RESET))) return what;
    for (int64_t m = 0; m < e->start; m++) put_token(e, w, m ? 0 : what & DRA_MARK_RESET, m);
    return what & ~DRA_MARK_RESET;
}

/* The end of the items of the prefix that starts at the first of n tokens. */
static int64_t find_until(const dra_extents *e, const walk *w, const int32_t *mark, int64_t n)
{
    return mark[0] & DRA_MARK_PREFIX ? w->end + e->start + dra_prefix_items(mark, n) : 0;
}

static void fill_row(dra_extents *e, walk *w, const int32_t *mark)
{
    for (int64_t t = 0; t < e->given; t++) {
        const int64_t i = w->b * e->given + t;
        int32_t       what = mark ? mark[t] & ~DRA_MARK_PREFIX : 0;
        if (e->prefix && mark && !is_pad(mark, t) && (w->pos == 0 || is_reset(mark, t)))
            w->until = find_until(e, w, mark + t, e->given - t);
        if (e->start > 0) what = put_start(e, w, what);
        e->give[i] = (int32_t)w->t;
        put_token(e, w, what, e->start + t);
        e->place[i] = what & DRA_MARK_PAD ? 0 : (int32_t)(w->pos - 1 - e->start);
        if (e->segment > 0) e->place[i] %= (int32_t)e->segment;
    }
    while (w->t < e->T) put_token(e, w, DRA_MARK_PAD, -1);
    e->last[w->b] = w->prev;
}

/* ---- whole texts ----------------------------------------------------------------------------- */

/* Puts token number `at` of row b, at `pos` of its text. The first token, and one after a pad, have
 * no previous token. */
static void put_whole(dra_extents *e, int64_t b, int64_t at, int32_t what, int64_t pos,
                      bool after_pad, int64_t take)
{
    const int64_t i = b * e->T + at;
    const bool    pad = what & DRA_MARK_PAD, write = !pad && !(what & DRA_MARK_SKIP);
    e->mark[i] = pad ? what & ~DRA_MARK_SKIP : what;
    e->writes[i] = (what & DRA_MARK_RESET) | (write ? 0 : DRA_MARK_PAD);
    e->pos[i] = (int32_t)pos;
    e->prev[i] = pos == 0 || after_pad ? -1 : (int32_t)at;
    e->take[i] = (int32_t)take;
}

/* Puts a text, its start vectors first, from token `at` of row b on; returns where it ends. */
static int64_t fill_text(dra_extents *e, int64_t b, const int32_t *mark, const text *x, int64_t at)
{
    const int64_t first = at + e->start, end = first + x->end - x->first;
    const int64_t lo = e->start ? at : first + x->from - x->first;
    for (int64_t m = 0; m < e->start; m++)
        put_whole(e, b, at + m, m || !is_reset(mark, x->first) ? 0 : DRA_MARK_RESET, m, false, m);
    for (int64_t t = x->first; t < x->end; t++) {
        const int64_t pos = e->start + t - x->first;
        const int32_t own = e->start ? ~DRA_MARK_RESET : ~0;
        put_whole(e, b, at + pos, mark ? mark[t] & own : 0, pos,
                  t > x->first && is_pad(mark, t - 1), e->start + t);
        e->give[b * e->given + t] = (int32_t)(at + pos);
        e->place[b * e->given + t] = (int32_t)(t - x->first);
    }
    for (int64_t i = b * e->T + at; i < b * e->T + end; i++) {
        e->lo[i] = (int32_t)lo;
        e->hi[i] = (int32_t)(first + x->to - x->first);
    }
    return end;
}

/* Puts all texts of a row, in one call. */
static void fill_texts(dra_extents *e, int64_t b, const int32_t *mark)
{
    int64_t at = 0;
    for (int64_t first = 0; first < e->given;) {
        const text x = find_text(mark, first, e->given);
        at = fill_text(e, b, mark, &x, at);
        first = x.end;
    }
    for (; at < e->T; at++) {
        put_whole(e, b, at, DRA_MARK_PAD, 0, false, -1);
        e->lo[b * e->T + at] = e->hi[b * e->T + at] = 0;
    }
    e->last[b] = -1; /* nothing is carried */
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* The state that holds items of a kind; all states of the kind have the same bases. */
static const dra_held *held_of(const dra_states *s, int64_t limit)
{
    for (int i = 0; i < dra_specs_count(s->specs); i++) {
        const dra_spec *p = dra_specs_at(s->specs, i);
        if (p->items && p->limit == limit) return &s->at[i];
    }
    return NULL;
}

/* A walk that starts where row b of s stands. */
static walk start_walk(dra_extents *e, const dra_states *s, int64_t b, int64_t *base)
{
    for (int k = 0; k < e->n_items; k++) {
        base[k] = s ? held_of(s, e->items[k].limit)->base[b] : 0;
        e->items[k].base[b] = (int32_t)base[k];
    }
    if (!s) return (walk){.b = b, .base = base};
    return (walk){.b = b,
                  .pos = dra_states_position(s, e->start, b),
                  .begin = s->begin[b],
                  .end = s->end[b],
                  .base = base};
}

dra_status dra_extents_fill(dra_extents *e, const dra_specs *specs, const dra_states *s, int64_t B,
                            int64_t T, const int32_t *mark, dra_error *err)
{
    int64_t limit[DRA_TOKEN_KINDS], base[DRA_TOKEN_KINDS];
    e->n_items = specs ? dra_token_limits(specs, limit) : 0;
    dra_extents_plan(e, s, B, T, mark);
    for (int k = 0; k < e->n_items; k++) {
        e->items[k].limit = limit[k];
        e->items[k].pages = NULL;
    }
    if (e->n_items < 0 || !reserve_inputs(e))
        return dra_fail(err, DRA_ERR_MEMORY, "tokens: out of memory for B %lld, T %lld",
                        (long long)B, (long long)T);
    for (int64_t b = 0; b < B; b++) {
        walk w = start_walk(e, s, b, base);
        if (e->whole)
            fill_texts(e, b, row_of(e, mark, b));
        else
            fill_row(e, &w, row_of(e, mark, b));
        if (e->segment > 0) dra_segments_fill(e, s, b, row_of(e, mark, b));
    }
    return DRA_OK;
}

/* ---- rows of a pool -------------------------------------------------------------------------- */

int64_t dra_pool_span(const dra_states *s, int64_t limit, int64_t n, const int64_t *rows, int64_t T)
{
    int64_t most = DRA_ITEMS_STEP;
    for (int64_t b = 0; b < n; b++)
        if (rows[b] >= 0)
            most = dra_imax(most, s->end[rows[b]] + T - held_of(s, limit)->base[rows[b]]);
    return dra_capacity(most);
}

static bool pages_room(dra_extents *e, const dra_states *pool, const int64_t *rows)
{
    size_t need = 0;
    for (int k = 0; k < e->n_items; k++) {
        e->items[k].span = dra_pool_span(pool, e->items[k].limit, e->B, rows, e->T);
        need += (size_t)(e->B * (e->items[k].span / DRA_ITEMS_STEP + e->T));
    }
    if (need > e->pages_room) {
        int32_t *memory = realloc(e->pages_memory, need * sizeof *memory);
        if (!memory) return false;
        e->pages_memory = memory;
        e->pages_room = need;
    }
    int32_t *next = e->pages_memory;
    for (int k = 0; k < e->n_items; k++) {
        e->items[k].pages = next;
        next += e->B * e->items[k].span / DRA_ITEMS_STEP;
        e->items[k].own = next;
        next += e->B * e->T;
    }
    return true;
}

static void to_pages(dra_extents *e, int k, const dra_pages *p, int64_t b, int64_t row)
{
    const int64_t        n = e->items[k].span / DRA_ITEMS_STEP;
    const dra_page_list *l = row >= 0 ? &p->of[row] : NULL;
    for (int64_t i = 0; i < n; i++)
        e->items[k].pages[b * n + i] = l && i < l->n ? l->at[i] * DRA_ITEMS_STEP : 0;
    for (int64_t i = b * e->T; i < (b + 1) * e->T; i++) {
        int32_t *at = &e->items[k].at[i];
        e->items[k].own[i] = *at;
        if (!l)
            *at = -1, e->items[k].lo[i] = e->items[k].hi[i] = 0;
        else if (*at >= 0)
            *at = l->at[*at / DRA_ITEMS_STEP] * DRA_ITEMS_STEP + *at % DRA_ITEMS_STEP;
    }
}

dra_status dra_extents_to_pool(dra_extents *e, const dra_states *pool, const int64_t *rows,
                               dra_error *err)
{
    if (!pages_room(e, pool, rows)) return dra_fail(err, DRA_ERR_MEMORY, "tokens: out of memory");
    for (int k = 0; k < e->n_items; k++)
        for (int64_t b = 0; b < e->B; b++)
            to_pages(e, k, dra_pool_pages(pool, e->items[k].limit), b, rows[b]);
    return DRA_OK;
}

void dra_extents_free(dra_extents *e)
{
    free(e->pages_memory);
    free(e->memory);
    *e = (dra_extents){0};
}

/* ---- as inputs of a session ------------------------------------------------------------------ */

static int name_of(dra_session *session, const char *prefix, const char *what)
{
    char name[DRA_TOKEN_TEXT];
    snprintf(name, sizeof name, "%s.%s", prefix, what);
    return dra_session_name(session, name);
}

void dra_tokens_name(dra_session *session, const char *prefix, const dra_specs *state,
                     dra_token_names *out)
{
    int64_t   limit[DRA_TOKEN_KINDS];
    char      name[DRA_TOKEN_TEXT];
    const int n = state ? dra_token_limits(state, limit) : 0;
    *out = (dra_token_names){.mark = name_of(session, prefix, "mark"),
                             .writes = name_of(session, prefix, "writes"),
                             .pos = name_of(session, prefix, "pos"),
                             .prev = name_of(session, prefix, "prev"),
                             .last = name_of(session, prefix, "last"),
                             .lo = name_of(session, prefix, "lo"),
                             .hi = name_of(session, prefix, "hi"),
                             .take = name_of(session, prefix, "take"),
                             .give = name_of(session, prefix, "give"),
                             .place = name_of(session, prefix, "place"),
                             .segments = {.at = name_of(session, prefix, "segment.at"),
                                          .lo = name_of(session, prefix, "segment.lo"),
                                          .hi = name_of(session, prefix, "segment.hi"),
                                          .base = name_of(session, prefix, "segment.base"),
                                          .event = name_of(session, prefix, "segment.event")}};
    for (int i = 0; i < n; i++) {
        out->items[i].at = dra_session_name(session, dra_token_input(name, "at", limit[i]));
        out->items[i].lo = dra_session_name(session, dra_token_input(name, "lo", limit[i]));
        out->items[i].hi = dra_session_name(session, dra_token_input(name, "hi", limit[i]));
        out->items[i].base = dra_session_name(session, dra_token_input(name, "base", limit[i]));
        out->items[i].pages = dra_session_name(session, dra_token_input(name, "pages", limit[i]));
        out->items[i].own = dra_session_name(session, dra_token_input(name, "own", limit[i]));
    }
}

/* Puts start vectors, if there are any. */
static dra_status put_starts(const dra_extents *e, dra_session *session,
                             const dra_token_names *names, dra_error *err)
{
    const size_t own = (size_t)(e->B * e->given) * sizeof(int32_t);
    const size_t each = (size_t)(e->B * e->T) * sizeof(int32_t);
    dra_status   st = DRA_OK;
    if (e->start > 0 || e->segment > 0)
        st = dra_session_put(session, names->place, e->place, own, err);
    if (e->T == e->given || st != DRA_OK) return st;
    st = dra_session_put(session, names->take, e->take, each, err);
    return st == DRA_OK ? dra_session_put(session, names->give, e->give, own, err) : st;
}

static dra_status put_segments(const dra_extents *e, dra_session *session,
                               const dra_token_names *names, dra_error *err)
{
    const size_t each = (size_t)(e->B * e->T) * sizeof(int32_t);
    const size_t rows = (size_t)e->B * sizeof(int32_t);
    dra_status   st = dra_session_put(session, names->segments.at, e->segments.at, each, err);
    if (st == DRA_OK) st = dra_session_put(session, names->segments.lo, e->segments.lo, each, err);
    if (st == DRA_OK) st = dra_session_put(session, names->segments.hi, e->segments.hi, each, err);
    if (st == DRA_OK)
        st = dra_session_put(session, names->segments.base, e->segments.base, rows, err);
    if (st != DRA_OK || !e->max_event) return st;
    return dra_session_put(session, names->segments.event, e->segments.event, rows, err);
}

static dra_status put_items(const dra_extents *e, int i, dra_session *session,
                            const dra_token_names *names, dra_error *err)
{
    const size_t each = (size_t)(e->B * e->T) * sizeof(int32_t);
    const size_t rows = (size_t)e->B * sizeof(int32_t);
    dra_status   st = dra_session_put(session, names->items[i].at, e->items[i].at, each, err);
    if (st == DRA_OK) st = dra_session_put(session, names->items[i].lo, e->items[i].lo, each, err);
    if (st == DRA_OK) st = dra_session_put(session, names->items[i].hi, e->items[i].hi, each, err);
    if (st == DRA_OK)
        st = dra_session_put(session, names->items[i].base, e->items[i].base, rows, err);
    if (st != DRA_OK || !e->items[i].pages) return st;
    if (e->prefix) st = dra_session_put(session, names->items[i].own, e->items[i].own, each, err);
    if (st != DRA_OK) return st;
    return dra_session_put(session, names->items[i].pages, e->items[i].pages,
                           rows * (size_t)(e->items[i].span / DRA_ITEMS_STEP), err);
}

dra_status dra_extents_put(const dra_extents *e, dra_session *session, const dra_token_names *names,
                           dra_error *err)
{
    const size_t bytes = (size_t)(e->B * e->T) * sizeof(int32_t);
    const size_t rows = (size_t)e->B * sizeof(int32_t);
    dra_status   st = DRA_OK;
    if (e->marked) st = dra_session_put(session, names->mark, e->mark, bytes, err);
    if (e->marked && e->skips && st == DRA_OK)
        st = dra_session_put(session, names->writes, e->writes, bytes, err);
    if (st == DRA_OK) st = dra_session_put(session, names->pos, e->pos, bytes, err);
    if (st == DRA_OK) st = dra_session_put(session, names->prev, e->prev, bytes, err);
    if (st == DRA_OK) st = dra_session_put(session, names->last, e->last, rows, err);
    if (st == DRA_OK && e->whole) st = dra_session_put(session, names->lo, e->lo, bytes, err);
    if (st == DRA_OK && e->whole) st = dra_session_put(session, names->hi, e->hi, bytes, err);
    if (st == DRA_OK) st = put_starts(e, session, names, err);
    if (st == DRA_OK && e->segment > 0) st = put_segments(e, session, names, err);
    for (int i = 0; i < e->n_items && st == DRA_OK; i++) st = put_items(e, i, session, names, err);
    return st;
}
