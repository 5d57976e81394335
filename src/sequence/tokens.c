/* Inputs of a graph that describe the tokens of a call; extents.c fills in their numbers. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/philox.h"
#include "base/shape.h"
#include "graph/op.h"
#include "sequence/states.h"

/* ---- as values ------------------------------------------------------------------------------- */

int dra_token_limits(const dra_specs *state, int64_t limit[DRA_TOKEN_KINDS])
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

const char *dra_token_input(char text[DRA_TOKEN_TEXT], const char *what, int64_t limit)
{
    snprintf(text, DRA_TOKEN_TEXT, "tokens.%s.%lld", what, (long long)limit);
    return text;
}

static dra_value declare_input(dra_graph *g, const char *prefix, const char *what, dra_shape shape)
{
    char name[DRA_TOKEN_TEXT];
    snprintf(name, sizeof name, "%s.%s", prefix, what);
    return dra_input(g, name, DRA_I32, shape);
}

/* Declares what the tokens of a text that is read as a whole see. */
static void declare_whole(dra_graph *g, const char *prefix, bool holes, dra_tokens *out)
{
    const dra_shape each = DRA_SHAPE(out->B, out->T);
    out->lo = declare_input(g, prefix, "lo", each);
    out->hi = declare_input(g, prefix, "hi", each);
    if (!holes) return;
    const dra_value two = dra_integer(g, DRA_MARK_RESET), none = dra_integer(g, 0);
    out->seen = dra_equal(g, dra_mod(g, out->writes, two), none);
}

/* Declares start vectors, if the module has any. */
static void declare_start(dra_graph *g, const char *prefix, dra_tokens *out)
{
    const dra_shape own = DRA_SHAPE(out->B, out->given);
    out->place = out->start > 0 || out->segments.length > 0 ? declare_input(g, prefix, "place", own)
                                                            : out->pos;
    if (out->T == out->given) return;
    out->take = declare_input(g, prefix, "take", DRA_SHAPE(out->B, out->T));
    out->give = declare_input(g, prefix, "give", own);
}

void dra_tokens_declare_text(dra_graph *g, const char *prefix, bool marked, bool skips, bool holes,
                             dra_tokens *out)
{
    const dra_shape each = DRA_SHAPE(out->B, out->T);
    if (marked) out->mark = out->writes = declare_input(g, prefix, "mark", each);
    if (marked && skips) {
        out->writes = declare_input(g, prefix, "writes", each);
        out->skip = dra_greater_equal(g, out->mark, dra_integer(g, DRA_MARK_SKIP));
    }
    out->pos = declare_input(g, prefix, "pos", each);
    out->prev = declare_input(g, prefix, "prev", each);
    out->last = declare_input(g, prefix, "last", DRA_SHAPE(out->B, 1));
    declare_start(g, prefix, out);
    if (out->whole) declare_whole(g, prefix, holes, out);
}

/* Declares rows of tables, if the module reads in segments. */
static void declare_segments(dra_graph *g, const dra_module_shape *shape, dra_tokens *out)
{
    const dra_shape     each = DRA_SHAPE(out->B, out->T), rows = DRA_SHAPE(out->B, 1);
    dra_token_segments *p = &out->segments;
    if (!p->length) return;
    if (out->start > 0 || out->whole || out->skip.id) {
        dra_build_fail(g, "tokens", DRA_ERR_VALUE, "%s cannot be read in segments",
                       out->skip.id ? "skipped tokens"
                       : out->whole ? "whole texts"
                                    : "start vectors");
        return;
    }
    p->max_event = shape->max_event;
    if (p->max_event >= DRA_SEGMENT_SHIFTS)
        p->seen = dra_imin(p->memory, p->length << (p->max_event - DRA_SEGMENT_SHIFTS));
    p->rows = (dra_token_items){.at = dra_input(g, "tokens.segment.at", DRA_I32, each),
                                .lo = dra_input(g, "tokens.segment.lo", DRA_I32, each),
                                .hi = dra_input(g, "tokens.segment.hi", DRA_I32, each),
                                .base = dra_input(g, "tokens.segment.base", DRA_I32, rows)};
    p->rows.own = p->rows.at;
    if (p->max_event) p->event = dra_input(g, "tokens.segment.event", DRA_I32, rows);
}

/* Declares, for rows of a pool, where the items of this limit are. */
static dra_value declare_pages(dra_graph *g, const dra_specs *state, const dra_module_shape *shape,
                               int64_t limit)
{
    char name[DRA_TOKEN_TEXT];
    int  i = 0;
    if (!shape->pool) return (dra_value){0};
    while (!dra_specs_at(state, i)->items || dra_specs_at(state, i)->limit != limit) i++;
    return dra_input(g, dra_token_input(name, "pages", limit), DRA_I32,
                     DRA_SHAPE(shape->B, shape->spans[i] / DRA_ITEMS_STEP));
}

void dra_tokens_declare(dra_graph *g, const dra_module *module, const dra_module_shape *shape,
                        dra_tokens *out)
{
    const int64_t   inner = shape->inner ? shape->inner : shape->T;
    const dra_shape each = DRA_SHAPE(shape->B, inner);
    int64_t         limit[DRA_TOKEN_KINDS];
    char            name[DRA_TOKEN_TEXT];
    *out = (dra_tokens){.B = shape->B, .T = inner, .fresh = shape->fresh};
    out->whole = module->whole;
    out->prefix = module->prefix;
    out->start = module->start;
    out->given = shape->T;
    out->segments = (dra_token_segments){.length = module->segment, .memory = module->memory};
    out->n_items = dra_token_limits(module->state, limit);
    if (out->n_items < 0 || (out->whole && out->n_items)) {
        if (out->n_items < 0)
            dra_build_fail(g, "tokens", DRA_ERR_VALUE, "items with more than %d different limits",
                           DRA_TOKEN_KINDS);
        else
            dra_build_fail(g, "tokens", DRA_ERR_VALUE, "a module that reads whole texts has items");
        out->n_items = 0;
        return;
    }
    out->by_token = shape->by_token;
    dra_tokens_declare_text(g, "tokens", shape->marked, shape->skips, shape->holes, out);
    declare_segments(g, shape, out);
    for (int i = 0; i < out->n_items; i++)
        out->items[i] = (dra_token_items){
            .limit = limit[i],
            .at = dra_input(g, dra_token_input(name, "at", limit[i]), DRA_I32, each),
            .lo = dra_input(g, dra_token_input(name, "lo", limit[i]), DRA_I32, each),
            .hi = dra_input(g, dra_token_input(name, "hi", limit[i]), DRA_I32, each),
            .base = dra_input(g, dra_token_input(name, "base", limit[i]), DRA_I32,
                              DRA_SHAPE(shape->B, 1)),
            .pages = declare_pages(g, module->state, shape, limit[i]),
        };
    for (int i = 0; i < out->n_items; i++)
        out->items[i].own = shape->pool && module->prefix
                                ? dra_input(g, dra_token_input(name, "own", limit[i]), DRA_I32,
                                            each)
                                : out->items[i].at;
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
    if (tokens->mark.id || tokens->segments.max_event) {
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

dra_value dra_tokens_apply_event(dra_graph *g, const dra_tokens *tokens, dra_value table,
                                 dra_value memory)
{
    const dra_token_segments *p = &tokens->segments;
    if (!p->max_event || dra_graph_failed(g)) return table;
    dra_shape one = dra_shape_of(g, table);
    for (int32_t i = 1; i < one.rank; i++) one.dim[i] = 1;
    const dra_value event = dra_reshape(g, p->event, one);
    if (p->seen) {
        const int64_t   none = p->memory - dra_shape_of(g, memory).dim[1];
        const dra_value shifts = dra_equal(g, event, dra_integer(g, DRA_SEGMENT_SHIFTS));
        table = dra_select(g, shifts, dra_pad(g, memory, 1, none, p->length, 0), table);
    }
    const dra_value clears = dra_equal(g, event, dra_integer(g, DRA_SEGMENT_CLEARS));
    return dra_select(g, clears, dra_number(g, 0), table);
}

/* Two reads: with gradients, a row of tokens may be read only once, but every sequence reads the
 * start vectors, and the gradient of an embedding sums over its reads. */
dra_value dra_tokens_insert_prefix(dra_graph *g, const dra_tokens *tokens, dra_value start,
                                   dra_value x)
{
    if (!tokens->take.id || dra_graph_failed(g)) return x;
    const int32_t   n = (int32_t)tokens->start;
    const dra_value take = tokens->take, M = dra_integer(g, n), zero = dra_integer(g, 0);
    const dra_value own = dra_read_rows(g, x, dra_sub(g, take, M)); /* below 0: zeros */
    const dra_value id = dra_maximum(g, dra_minimum(g, take, dra_integer(g, n - 1)), zero);
    const dra_value is_start = dra_and(g, dra_less(g, take, M), dra_greater_equal(g, take, zero));
    dra_value       first = dra_embedding(g, start, id);
    if (dra_graph_failed(g)) return (dra_value){0};
    if (dra_dtype_of(g, first) != DRA_REAL) first = dra_cast(g, first, DRA_REAL);
    const dra_value where = dra_reshape(g, is_start, DRA_SHAPE(tokens->B, tokens->T, 1));
    return dra_select(g, where, first, own);
}

dra_value dra_tokens_drop_prefix(dra_graph *g, const dra_tokens *tokens, dra_value y)
{
    return tokens->give.id ? dra_read_rows(g, y, tokens->give) : y;
}

dra_value dra_context_take(dra_graph *g, const dra_module_call *call, dra_value x)
{
    return call->context_take.id ? dra_read_rows(g, x, call->context_take) : x;
}

dra_value dra_tokens_zero_pads(dra_graph *g, const dra_tokens *tokens, dra_value y)
{
    return dra_tokens_fill_pads(g, tokens, y, 0);
}

dra_value dra_tokens_fill_pads(dra_graph *g, const dra_tokens *tokens, dra_value y, double number)
{
    if (!tokens->mark.id || dra_graph_failed(g)) return y;
    dra_shape column = dra_shape_of(g, y);
    for (int32_t i = 2; i < column.rank; i++) column.dim[i] = 1;
    const dra_value two = dra_integer(g, DRA_MARK_RESET);
    const dra_value pad = dra_equal(g, dra_mod(g, tokens->mark, two), dra_integer(g, DRA_MARK_PAD));
    return dra_select(g, dra_reshape(g, pad, column), dra_number(g, number), y);
}

/* ---- state dropout --------------------------------------------------------------------------- */

bool dra_marks_any_skip(const int32_t *mark, int64_t n)
{
    for (int64_t i = 0; mark && i < n; i++)
        if (mark[i] & DRA_MARK_SKIP) return true;
    return false;
}

/* A random number for position t of row r. */
static uint32_t draw_bits(uint64_t key, uint64_t r, uint64_t t)
{
    const uint32_t counter[4] = {(uint32_t)t, (uint32_t)(t >> 32), (uint32_t)r,
                                 (uint32_t)(r >> 32)};
    uint32_t       bits[4];
    dra_philox(counter, key, bits);
    return bits[0];
}

/* `path` makes them independent of all other random numbers of a step. */
static uint64_t draw_key(uint64_t seed, int64_t step, uint64_t path)
{
    const int32_t words[4] = {(int32_t)seed, (int32_t)(seed >> 32), (int32_t)step,
                              (int32_t)(step >> 32)};
    return dra_philox_key(words, path);
}

void dra_marks_skip(int32_t *mark, int64_t B, int64_t T, double p, uint64_t seed, int64_t step,
                    int64_t row, const int64_t *pos)
{
    const uint64_t key = draw_key(seed, step, 0x736b6970 /* "skip" */);
    for (int64_t i = 0; i < B * T; i++) {
        const uint64_t r = (uint64_t)(row + i / T), t = (uint64_t)((pos ? pos[i / T] : 0) + i % T);
        if (mark[i] & DRA_MARK_PAD) continue;
        if (((double)draw_bits(key, r, t) + 0.5) * 0x1p-32 < p) mark[i] |= DRA_MARK_SKIP;
    }
}

static int largest_first(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Forgets the tokens of row r with the largest random numbers, the later ones among equals; `room`
 * (T). */
static void forget_row(int32_t *mark, const int32_t *targets, int64_t T, double p, uint64_t key,
                       uint64_t r, uint64_t *room)
{
    int64_t N = 0, last = -1, n = 0;
    for (int64_t t = 0; t < T; t++) {
        if (mark[t] & DRA_MARK_PAD) continue;
        N++, last = t;
        if (mark[t] & DRA_MARK_RESET) continue;
        room[n++] = (uint64_t)draw_bits(key, r, (uint64_t)t) << 32 | (uint64_t)t;
    }
    if (targets && last >= 0 && targets[last] >= 0) N++;
    const int64_t wanted = dra_imin((int64_t)((double)N * p), N - 1);
    qsort(room, (size_t)n, sizeof *room, largest_first);
    for (int64_t i = 0; i < dra_imin(wanted, n); i++) mark[room[i] & UINT32_MAX] |= DRA_MARK_SKIP;
}

dra_status dra_marks_forget(int32_t *mark, const int32_t *targets, int64_t B, int64_t T, double p,
                            uint64_t seed, int64_t step, int64_t row, dra_error *err)
{
    const uint64_t key = draw_key(seed, step, 0x666f7267 /* "forg" */);
    uint64_t      *room = malloc((size_t)T * sizeof *room + 1);
    if (!room) return dra_fail(err, DRA_ERR_MEMORY, "tokens: out of memory");
    for (int64_t b = 0; b < B; b++)
        forget_row(mark + b * T, targets ? targets + b * T : NULL, T, p, key, (uint64_t)(row + b),
                   room);
    free(room);
    return DRA_OK;
}
