/* Contexts: the source that the tokens of a module see, as inputs of its graph and as the numbers
 * they receive. Its tokens that are not pads are its items, contiguous, so one count for each row
 * says how many are seen. */
#include <stdlib.h>

#include "base/error.h"
#include "base/shape.h"
#include "graph/op.h"
#include "sequence/states.h"

static const char ITEMS[] = "context.items", COUNT[] = "context.n";

/* ---- as values ------------------------------------------------------------------------------- */

/* Rows of the states that hold the items of the source. */
static int64_t rows_of(const dra_module *m, const dra_module_shape *shape)
{
    for (int i = 0; i < dra_specs_count(m->state); i++)
        if (dra_specs_at(m->state, i)->context) return shape->rows[i];
    return 0;
}

void dra_context_declare(dra_graph *g, const dra_module *m, const dra_module_shape *shape,
                         dra_module_call *call, dra_module_call *text)
{
    const dra_context_shape *c = shape->context;
    if (!m->context && !c) return;
    if (!m->context || (!c && shape->fresh)) {
        dra_build_fail(g, "module", DRA_ERR_VALUE,
                       m->context ? "it has a context, which nothing reads"
                                  : "it has no context to read");
        return;
    }
    call->tokens.context = c ? c->T : rows_of(m, shape);
    call->tokens.context_n = dra_input(g, COUNT, DRA_I32, DRA_SHAPE(shape->B, 1));
    if (!c) return;
    text->tokens = (dra_tokens){.B = shape->B,
                                .T = c->inner ? c->inner : c->T,
                                .given = c->T,
                                .start = m->context_start,
                                .fresh = true,
                                .whole = true};
    dra_tokens_declare_text(g, "context", c->marked, false, c->holes, &text->tokens);
    if (c->marked) call->context_take = dra_input(g, ITEMS, DRA_I32, DRA_SHAPE(shape->B, c->T));
    call->context = text;
}

/* ---- as numbers ------------------------------------------------------------------------------ */

dra_status dra_context_check(const char *who, const dra_module *m, const dra_context_text *text,
                             int64_t B, dra_error *err)
{
    if (!m->context) return dra_fail(err, DRA_ERR_VALUE, "%s: the module has no context", who);
    if (text->T < 1 || text->T > INT32_MAX - m->context_start)
        return dra_fail(err, DRA_ERR_VALUE, "%s: a context of %lld tokens, expected 1 to %lld", who,
                        (long long)text->T, (long long)(INT32_MAX - m->context_start));
    for (int64_t i = 0; text->mark && i < B * text->T; i++)
        if (text->mark[i] & ~DRA_MARK_PAD)
            return dra_fail(err, DRA_ERR_VALUE,
                            "%s: mark of row %lld of the context, token %lld is %d, expected 0 or "
                            "%d, a pad",
                            who, (long long)(i / text->T), (long long)(i % text->T),
                            (int)text->mark[i], (int)DRA_MARK_PAD);
    return DRA_OK;
}

static dra_status reserve_items(dra_context_extents *e, int64_t B, int64_t T, dra_error *err)
{
    const size_t need = (size_t)B * (size_t)(T + 1);
    if (need > e->room || !e->n) {
        int32_t *memory = realloc(e->n, (need + 1) * sizeof *memory);
        if (!memory) return dra_fail(err, DRA_ERR_MEMORY, "tokens: out of memory");
        e->n = memory;
        e->room = need;
    }
    e->items = e->n + B;
    return DRA_OK;
}

dra_status dra_context_extents_fill(dra_context_extents *e, const dra_module *m, int64_t B,
                                    const dra_context_text *text, dra_error *err)
{
    const int64_t T = text->T;
    e->text.whole = true;
    e->text.start = m->context_start;
    dra_status st = dra_extents_fill(&e->text, NULL, NULL, B, T, text->mark, err);
    if (st == DRA_OK) st = reserve_items(e, B, T, err);
    for (int64_t b = 0; b < B && st == DRA_OK; b++) {
        int32_t *items = e->items + b * T, n = 0;
        for (int64_t t = 0; t < T; t++)
            if (!text->mark || !(text->mark[b * T + t] & DRA_MARK_PAD)) items[n++] = (int32_t)t;
        e->n[b] = n;
        for (int64_t t = n; t < T; t++) items[t] = -1;
    }
    return st;
}

dra_status dra_context_extents_recall(dra_context_extents *e, const dra_states *s, dra_error *err)
{
    const dra_status st = reserve_items(e, s->B, 0, err);
    for (int64_t b = 0; b < s->B && st == DRA_OK; b++) e->n[b] = (int32_t)s->context[b];
    return st;
}

void dra_context_extents_free(dra_context_extents *e)
{
    dra_extents_free(&e->text);
    free(e->n);
    *e = (dra_context_extents){0};
}

/* ---- as a part of the key of a program ------------------------------------------------------- */

enum { MARKED = 1, HOLES = 2 };

dra_context_key dra_context_key_of(const dra_context_extents *e)
{
    const dra_extents *x = &e->text;
    return (dra_context_key){true, x->given, x->T,
                             (x->marked ? MARKED : 0) | (x->holes ? HOLES : 0)};
}

dra_context_shape dra_context_shape_of(const dra_context_key *key)
{
    return (dra_context_shape){.T = key->T,
                               .inner = key->inner,
                               .marked = key->options & MARKED,
                               .holes = key->options & HOLES};
}

/* ---- as inputs of a session ------------------------------------------------------------------ */

void dra_context_name(dra_session *session, dra_context_names *out)
{
    dra_tokens_name(session, "context", NULL, &out->text);
    out->items = dra_session_name(session, ITEMS);
    out->n = dra_session_name(session, COUNT);
}

dra_status dra_context_extents_put(const dra_context_extents *e, int64_t B, bool read,
                                   dra_session *session, const dra_context_names *names,
                                   dra_error *err)
{
    const dra_extents *x = &e->text;
    const size_t       items = (size_t)(B * x->given) * sizeof *e->items;
    dra_status         st = dra_session_put(session, names->n, e->n, (size_t)B * sizeof *e->n, err);
    if (!read || st != DRA_OK) return st;
    st = dra_extents_put(x, session, &names->text, err);
    return st == DRA_OK && x->marked ? dra_session_put(session, names->items, e->items, items, err)
                                     : st;
}
