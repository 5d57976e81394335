/* Readers run a module over the next tokens of its states, with a program for each shape, compiled
 * on first use. States are updated in place. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "device/array.h"
#include "graph/op.h"
#include "sequence/module.h"
#include "sequence/segments.h"
#include "session/session.h"

typedef struct fetched { /* a result that was asked for, downloaded */
    char        name[DRA_NAME_TEXT];
    const void *seen;
    void       *copy;
    size_t      room;
    int64_t     read; /* which read it is from */
} fetched;

struct dra_reader {
    dra_device         *device;
    dra_module          module;
    dra_session        *session;
    int                *param, *state; /* their numbers in the session */
    dra_token_names     tokens;
    dra_context_names   context;
    dra_param_layout   *layouts; /* of the parameters */
    dra_array         **own;     /* arrays of parameters that the reader owns */
    bool               *bound;
    struct read_key    *key; /* of the last read */
    dra_extents         extents;
    dra_context_extents context_extents;
    bool                unclamped, by_token;
    dra_precision       precision; /* of products */
    double              limit;     /* of the clamp, see dra_reader_clamp_limit() */
    dra_array          *clamped;   /* i32: numbers of states changed so far */
    int64_t             reads;
    bool                valid;  /* the last read succeeded */
    bool                defers; /* reads are not waited for */
    bool                begun;  /* reads were started since dra_reader_finish() */
    fetched            *results;
    size_t              n_results;
    dra_states         *pool;      /* of the current read; NULL: it reads all rows */
    const int64_t      *rows;      /* of the pool */
    int64_t             pool_size; /* of the last read of a pool */
    dra_states         *view;      /* of its rows */
    int32_t            *places;    /* (2, room): where they are read and written */
    int64_t             room;
    int                 from, to;
    dra_joins           joins;  /* of the last read, where it took several calls */
    bool                joined; /* it did */
};

/* ---- programs -------------------------------------------------------------------------------- */

enum { MARKED = 1, SKIPS = 2, CLAMP = 4, HOLES = 8, BY_TOKEN = 16 }; /* options of a key */

typedef struct key_rows { /* of a state that holds items */
    int64_t rows;         /* of all sequences, and of one sequence that is read */
    int64_t span;
} key_rows;

typedef struct read_key {        /* what a program is compiled for */
    int64_t         B, T, inner; /* tokens that are given, and those that layers see */
    int64_t         options, max_event;
    int64_t         pool;  /* its rows; 0: the states are none */
    double          limit; /* of the clamp */
    dra_context_key context;
    key_rows        state[];
} read_key;

static const char CLAMPED[] = "clamped.sum";

static void build_program(dra_graph *g, void *user, const void *at, size_t bytes)
{
    const dra_reader *r = user;
    const dra_module *m = &r->module;
    const read_key   *key = at;
    const int         n = dra_specs_count(m->state);
    int64_t   *rows = calloc(2 * (size_t)n + 1, sizeof *rows), *spans = rows ? rows + n : NULL;
    dra_value *state = calloc(2 * (size_t)n + 1, sizeof *state);
    char       name[DRA_NAME_TEXT];
    (void)bytes;
    if (rows && state) {
        for (int i = 0; i < n; i++) rows[i] = key->state[i].rows, spans[i] = key->state[i].span;
        const bool              reads = key->context.reads;
        const dra_context_shape context = dra_context_shape_of(&key->context);
        const dra_module_shape  shape = {.B = key->B,
                                         .T = key->T,
                                         .inner = key->inner,
                                         .marked = key->options & MARKED,
                                         .skips = key->options & SKIPS,
                                         .clamp = key->options & CLAMP,
                                         .holes = key->options & HOLES,
                                         .by_token = key->options & BY_TOKEN,
                                         .max_event = (int)key->max_event,
                                         .fresh = m->whole,
                                         .rows = rows,
                                         .layouts = r->layouts,
                                         .limit = key->limit,
                                         .pool = key->pool,
                                         .spans = spans,
                                         .context = reads ? &context : NULL};
        dra_set_precision(g, r->precision);
        dra_module_graph(g, m, &shape, NULL, state, state + n);
        for (int i = 0; i < n && !m->whole; i++)
            if (reads || !dra_specs_at(m->state, i)->context)
                dra_donate(g, dra_state_name(name, "next", dra_specs_at(m->state, i)->name),
                           state[n + i], state[i]);
        dra_module_count_clamped(g, CLAMPED);
    } else {
        dra_build_fail(g, "reader", DRA_ERR_MEMORY, "out of memory");
    }
    free(rows);
    free(state);
}

static size_t key_bytes(const dra_reader *r)
{
    return sizeof(read_key) + (size_t)dra_specs_count(r->module.state) * sizeof(key_rows);
}

static dra_status name_all(dra_reader *r, dra_error *err)
{
    char      name[DRA_NAME_TEXT];
    const int n_param = dra_specs_count(r->module.params),
              n_state = dra_specs_count(r->module.state);
    dra_status st = DRA_OK;
    for (int i = 0; i < n_param; i++) {
        r->param[i] = dra_session_name(r->session, dra_specs_at(r->module.params, i)->name);
        r->layouts[i].dtype = DRA_REAL;
    }
    for (int i = 0; i < n_state; i++)
        r->state[i] = dra_session_name(
            r->session, dra_state_name(name, "state", dra_specs_at(r->module.state, i)->name));
    dra_tokens_name(r->session, "tokens", r->module.state, &r->tokens);
    r->from = dra_session_name(r->session, DRA_POOL_FROM);
    r->to = dra_session_name(r->session, DRA_POOL_TO);
    if (r->module.context) dra_context_name(r->session, &r->context);
    st = dra_array_create(r->device, sizeof(dra_real), &r->clamped, err);
    if (st == DRA_OK) st = dra_array_fill(dra_array_whole(r->clamped), 0, err);
    if (st != DRA_OK) return st;
    const dra_span sum = dra_span_part(dra_array_whole(r->clamped), 0, sizeof(int32_t));
    return dra_session_bind(r->session, dra_session_name(r->session, CLAMPED), sum, err);
}

dra_status dra_reader_create(dra_device *device, const dra_module *module, dra_reader **out,
                             dra_error *err)
{
    const size_t n_param = (size_t)dra_specs_count(module->params);
    const size_t n_state = (size_t)dra_specs_count(module->state);
    dra_reader  *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
    r->device = device;
    r->module = *module;
    dra_extents_open(&r->extents, module);
    r->param = calloc(n_param + 1, sizeof *r->param);
    r->state = calloc(n_state + 1, sizeof *r->state);
    r->layouts = calloc(n_param + 1, sizeof *r->layouts);
    r->own = calloc(n_param + 1, sizeof *r->own);
    r->bound = calloc(n_param + 1, sizeof *r->bound);
    r->key = calloc(1, key_bytes(r));
    dra_status st = r->param && r->state && r->layouts && r->own && r->bound && r->key
                        ? dra_session_create(device, build_program, r, &r->session, err)
                        : dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
    if (st == DRA_OK) st = name_all(r, err);
    if (st == DRA_OK)
        *out = r;
    else
        dra_reader_destroy(r);
    return st;
}

void dra_reader_destroy(dra_reader *r)
{
    if (!r) return;
    dra_session_destroy(r->session);
    for (int i = 0; r->own && i < dra_specs_count(r->module.params); i++)
        dra_array_destroy(r->own[i]);
    for (size_t i = 0; i < r->n_results; i++) free(r->results[i].copy);
    dra_array_destroy(r->clamped);
    dra_joins_free(&r->joins);
    dra_pool_view_free(r->view);
    free(r->places);
    free(r->results);
    free(r->param);
    free(r->state);
    free(r->own);
    free(r->bound);
    free(r->layouts);
    free(r->key);
    dra_extents_free(&r->extents);
    dra_context_extents_free(&r->context_extents);
    free(r);
}

dra_device  *dra_reader_device(const dra_reader *r) { return r->device; }
dra_session *dra_reader_session(const dra_reader *r) { return r->session; }

size_t dra_reader_programs(const dra_reader *r) { return dra_session_programs(r->session); }

/* ---- parameters ------------------------------------------------------------------------------ */

static bool is_possible(const dra_param_layout *f, const dra_spec *p)
{
    const dra_dtype_info *t = dra_dtype_get(f->dtype);
    const bool part = f->parts ? f->parts > 0 && f->part >= 0 && f->part < f->parts : !f->part;
    return t && t->is_float && part && (f->parts == 0 || p->shape.rank > 0) &&
           (!f->transposed || p->shape.rank == 2);
}

static dra_status check_memory(const dra_spec *p, const dra_param_layout *f, size_t bytes,
                               dra_error *err)
{
    if (!is_possible(f, p) ||
        (!p->product && !dra_param_layout_equal(f, &(dra_param_layout){DRA_REAL})))
        return dra_fail(err, DRA_ERR_DTYPE, "reader: parameter %s cannot be %s%s%s", p->name,
                        dra_dtype_get(f->dtype) ? dra_dtype_get(f->dtype)->name : "that",
                        f->transposed ? ", transposed" : "", f->parts ? ", part of a tensor" : "");
    const size_t expected = dra_param_layout_bytes(f, &p->shape);
    if (bytes == expected) return DRA_OK;
    return dra_fail(err, DRA_ERR_SHAPE, "reader: parameter %s has %zu bytes, expected %zu", p->name,
                    bytes, expected);
}

static dra_status find_param(const dra_reader *r, const char *name, int *i, dra_error *err)
{
    *i = dra_specs_find(r->module.params, name);
    if (*i >= 0) return DRA_OK;
    return dra_fail(err, DRA_ERR_NAME, "reader: no parameter is called %s", name);
}

dra_status dra_reader_bind_as(dra_reader *r, const char *name, dra_param_layout form,
                              dra_span memory, dra_error *err)
{
    int        i;
    dra_status st = find_param(r, name, &i, err);
    if (st == DRA_OK)
        st = check_memory(dra_specs_at(r->module.params, i), &form, memory.bytes, err);
    if (st == DRA_OK) st = dra_session_bind(r->session, r->param[i], memory, err);
    if (st != DRA_OK) return st;
    if (!dra_param_layout_equal(&r->layouts[i], &form)) /* compiled programs read the old layout */
        dra_session_clear(r->session), r->valid = false;
    r->layouts[i] = form;
    r->bound[i] = true;
    return DRA_OK;
}

/* Binds parameter i to an array that the reader owns from now on. */
static dra_status take_array(dra_reader *r, int i, dra_param_layout form, dra_array *a,
                             dra_error *err)
{
    const dra_status st = dra_reader_bind_as(r, dra_specs_at(r->module.params, i)->name, form,
                                             dra_array_whole(a), err);
    dra_array_destroy(st == DRA_OK ? r->own[i] : a);
    if (st == DRA_OK) r->own[i] = a;
    return st;
}

dra_status dra_reader_bind(dra_reader *r, const char *name, const void *data, size_t bytes,
                           dra_error *err)
{
    return dra_reader_borrow(r, name, (dra_param_layout){DRA_REAL}, data, bytes, err);
}

/* Borrows a part of a list by one upload. Old arrays are freed only after it, so a list is uploaded
 * in parts. */
static const size_t PART = (size_t)1 << 28; /* bytes of a part, unless a parameter is larger */

static dra_status check_lent(const dra_reader *r, const dra_lend *l, int *i, dra_error *err)
{
    dra_status st = find_param(r, l->name, i, err);
    if (st == DRA_OK)
        st = check_memory(dra_specs_at(r->module.params, *i), &l->form, l->bytes, err);
    if (st == DRA_OK && !l->data && l->bytes)
        st = dra_fail(err, DRA_ERR_VALUE, "reader: parameter %s gets no memory", l->name);
    return st;
}

static dra_status borrow_part(dra_reader *r, const dra_lend *list, size_t n, dra_loan *loans,
                              dra_error *err)
{
    int        number;
    dra_status st = dra_arrays_borrow(r->device, loans, n, err);
    for (size_t i = 0; i < n && loans[i].array; i++) {
        if (st == DRA_OK) st = find_param(r, list[i].name, &number, err);
        if (st == DRA_OK)
            st = take_array(r, number, list[i].form, loans[i].array, err);
        else
            dra_array_destroy(loans[i].array);
    }
    return st;
}

dra_status dra_reader_borrow_all(dra_reader *r, const dra_lend *list, size_t n, dra_error *err)
{
    dra_loan  *loans = calloc(n + 1, sizeof *loans);
    dra_status st = loans ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
    int        number;
    for (size_t i = 0; i < n && st == DRA_OK; i++) st = check_lent(r, &list[i], &number, err);
    for (size_t i = 0; i < n && st == DRA_OK;) {
        size_t parts = 0;
        for (size_t bytes = 0; i + parts < n && bytes < PART; parts++) {
            loans[parts] = (dra_loan){list[i + parts].data, list[i + parts].bytes, NULL};
            bytes += loans[parts].bytes;
        }
        st = borrow_part(r, list + i, parts, loans, err);
        i += parts;
    }
    free(loans);
    return st;
}

dra_status dra_reader_borrow(dra_reader *r, const char *name, dra_param_layout form,
                             const void *data, size_t bytes, dra_error *err)
{
    return dra_reader_borrow_all(r, &(dra_lend){name, form, data, bytes}, 1, err);
}

static dra_status draw_param(dra_reader *r, int i, uint64_t seed, dra_error *err)
{
    const dra_spec *p = dra_specs_at(r->module.params, i);
    const size_t    bytes = (size_t)dra_shape_count(&p->shape) * sizeof(dra_real);
    dra_real       *first = malloc(bytes + 1);
    dra_array      *a = NULL;
    if (!first) return dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
    dra_specs_fill(r->module.params, i, seed, first);
    dra_status st = dra_array_create(r->device, bytes, &a, err);
    if (st == DRA_OK) st = dra_array_upload(dra_array_whole(a), first, err);
    if (st == DRA_OK)
        st = take_array(r, i, (dra_param_layout){DRA_REAL}, a, err);
    else
        dra_array_destroy(a);
    free(first);
    return st;
}

dra_status dra_reader_start(dra_reader *r, uint64_t seed, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < dra_specs_count(r->module.params) && st == DRA_OK; i++)
        if (!r->bound[i]) st = draw_param(r, i, seed, err);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Checks that positions of n more tokens, as layers count them, are in range. */
static dra_status check_length(const dra_reader *r, const dra_states *s, int64_t n, dra_error *err)
{
    for (int64_t b = 0; b < s->B; b++)
        if ((r->module.whole ? 0 : dra_states_position(s, r->module.start, b)) > INT32_MAX - n)
            return dra_fail(err, DRA_ERR_VALUE, "reader: row %lld has read %lld tokens: too many",
                            (long long)b, (long long)s->tokens[b]);
    return DRA_OK;
}

static dra_status check_call(const dra_reader *r, const dra_states *s, int64_t T,
                             const int32_t *mark, dra_error *err)
{
    if (s->specs != r->module.state &&
        dra_specs_fingerprint(s->specs) != dra_specs_fingerprint(r->module.state))
        return dra_fail(err, DRA_ERR_VALUE, "reader: the states belong to another module");
    for (int i = 0; i < dra_specs_count(r->module.params); i++)
        if (!r->bound[i])
            return dra_fail(err, DRA_ERR_BIND, "reader: parameter %s is not bound",
                            dra_specs_at(r->module.params, i)->name);
    if (T < 1)
        return dra_fail(err, DRA_ERR_VALUE, "reader: %lld tokens, expected 1 or more",
                        (long long)T);
    const int32_t most = r->module.prefix ? 2 * DRA_MARK_PREFIX - 1 : 2 * DRA_MARK_SKIP - 1;
    for (int64_t i = 0; mark && i < s->B * T; i++)
        if (mark[i] < 0 || mark[i] > most)
            return dra_fail(err, DRA_ERR_VALUE,
                            "reader: mark of row %lld, token %lld is %d, expected 0 to %d",
                            (long long)(i / T), (long long)(i % T), (int)mark[i], (int)most);
    const dra_status st = dra_prefix_check("reader", &r->module, s, s->B, T, mark, err);
    if (st != DRA_OK) return st;
    return check_length(r, s, T, err);
}

/* Checks the source that a call reads; NULL: none, or the one that every row has read. */
static dra_status check_context(const dra_reader *r, const dra_states *s,
                                const dra_context_text *context, dra_error *err)
{
    if (context) return dra_context_check("reader", &r->module, context, s->B, err);
    if (r->module.context && r->module.whole)
        return dra_fail(err, DRA_ERR_VALUE,
                        "reader: no context, which the module reads in every call");
    for (int64_t b = 0; r->module.context && b < s->B; b++)
        if (s->context[b] < 0)
            return dra_fail(err, DRA_ERR_VALUE, "reader: row %lld has no context", (long long)b);
    return DRA_OK;
}

static key_rows rows_of(const dra_reader *r, const dra_states *s, int i)
{
    const dra_spec *p = dra_specs_at(r->module.state, i);
    if (!r->pool) return (key_rows){.rows = s->at[i].rows};
    if (!p->items) return (key_rows){p->context ? r->pool->at[i].rows : 1, 1};
    return (key_rows){r->pool->at[i].rows,
                      dra_pool_span(r->pool, p->limit, r->extents.B, r->rows, r->extents.T)};
}

/* The key of the program that reads the tokens of r->extents after s, and first r->context_extents
 * if it `reads` a context. */
static void make_key(dra_reader *r, const dra_states *s, bool reads)
{
    const dra_extents *e = &r->extents;
    const bool         clamp = !r->unclamped && !r->module.whole;
    read_key          *k = r->key;
    *k = (read_key){.B = s->B,
                    .T = e->given,
                    .inner = e->T,
                    .options = (e->marked ? MARKED : 0) | (e->skips ? SKIPS : 0) |
                               (e->holes ? HOLES : 0) | (clamp ? CLAMP : 0) |
                               (r->by_token ? BY_TOKEN : 0),
                    .max_event = e->max_event,
                    .pool = r->pool ? r->pool->B : 0,
                    .limit = clamp ? r->limit : 0};
    if (reads) k->context = dra_context_key_of(&r->context_extents);
    for (int i = 0; i < dra_specs_count(s->specs); i++) k->state[i] = rows_of(r, s, i);
}

static dra_status select_program(dra_reader *r, const dra_states *s, bool reads, dra_error *err)
{
    make_key(r, s, reads);
    return dra_session_select(r->session, r->key, key_bytes(r), err);
}

/* Makes room for a source that is read, or takes the counts of the one that was. */
static dra_status take_context(dra_reader *r, dra_states *s, const dra_context_text *context,
                               dra_error *err)
{
    if (!context)
        return r->module.context ? dra_context_extents_recall(&r->context_extents, s, err) : DRA_OK;
    const dra_status st = dra_context_extents_fill(&r->context_extents, &r->module, s->B, context,
                                                   err);
    if (st != DRA_OK || r->module.whole) return st;
    return dra_states_reserve_context(r->pool ? r->pool : s, context->T, err);
}

dra_status dra_reader_measure(dra_reader *r, int64_t B, int64_t T, bool marked, size_t *states,
                              dra_error *err)
{
    const bool    reads = r->module.context;
    const int64_t M = r->module.memory;
    const int     max_event = r->module.segment > 0 ? dra_segment_shift(r->module.segment, M, M)
                                                    : DRA_SEGMENT_CONTINUES;
    dra_states   *s = NULL;
    dra_status    st = dra_states_create(r->device, r->module.state, B, &s, err);
    if (r->module.segment > 0) T = dra_imin(T, r->module.segment);
    if (st == DRA_OK) dra_extents_plan(&r->extents, s, B, T, NULL);
    if (st == DRA_OK) st = dra_states_reserve(s, r->extents.T, err);
    if (st == DRA_OK && reads) st = take_context(r, s, &(dra_context_text){T, NULL}, err);
    if (reads) r->context_extents.text.marked = marked;
    if (st == DRA_OK) {
        r->extents.marked = marked;
        r->extents.max_event = max_event;
        make_key(r, s, reads);
        st = dra_session_measure(r->session, r->key, key_bytes(r), err);
    }
    *states = st == DRA_OK ? dra_states_held(s) : 0;
    dra_states_destroy(s);
    return st;
}

/* Puts an input of the selected program, or the part of it that belongs to this part of a call. */
static dra_status put_input(dra_reader *r, const dra_named *input, const dra_join_part *part,
                            dra_error *err)
{
    const int    name = dra_session_name(r->session, input->name);
    const size_t own = dra_session_input_bytes(r->session, input->name);
    const size_t tokens = (size_t)(part->B * part->n);
    const bool   picks = part->picks > 0 && strcmp(input->name, "picks") == 0;
    const bool   cuts = own / (size_t)part->n * (size_t)part->T == input->bytes;
    if (part->n == part->T || (!cuts && !picks))
        return dra_session_put(r->session, name, input->data, input->bytes, err);
    unsigned char *data = malloc(own + 1);
    if (!data) return dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
    if (picks)
        dra_picks_cut((int32_t *)(void *)data, part);
    else
        dra_tokens_cut(data, input->data, part->B, part->T, part->first, part->n, own / tokens);
    const dra_status st = dra_session_put(r->session, name, data, own, err);
    free(data);
    return st;
}

static dra_status make_places(dra_reader *r, int64_t n, dra_error *err)
{
    if (n <= r->room) return DRA_OK;
    int32_t *more = realloc(r->places, 2 * (size_t)n * sizeof *more);
    if (!more) return dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
    r->places = more;
    r->room = n;
    return DRA_OK;
}

/* Puts the numbers of the rows of a pool. Padding reads row 0 and never writes it. */
static dra_status put_rows(dra_reader *r, int64_t n, dra_error *err)
{
    dra_status st = make_places(r, n, err);
    if (st == DRA_OK) st = dra_extents_to_pool(&r->extents, r->pool, r->rows, err);
    int32_t *from = r->places, *to = from ? from + n : NULL;
    for (int64_t b = 0; b < n && st == DRA_OK; b++) {
        to[b] = (int32_t)r->rows[b];
        from[b] = to[b] < 0 ? 0 : to[b];
    }
    const size_t bytes = (size_t)n * sizeof *from;
    if (st == DRA_OK && dra_session_input_bytes(r->session, DRA_POOL_FROM))
        st = dra_session_put(r->session, r->from, from, bytes, err);
    if (st == DRA_OK && dra_session_input_bytes(r->session, DRA_POOL_TO))
        st = dra_session_put(r->session, r->to, to, bytes, err);
    return st;
}

static dra_status put_all(dra_reader *r, const dra_states *s, bool reads, const dra_join_part *part,
                          const int32_t *mark, int n, const dra_named *inputs, dra_error *err)
{
    dra_status st = dra_extents_fill(&r->extents, s->specs, s, s->B, part->n, mark, err);
    if (st == DRA_OK && r->pool) st = put_rows(r, s->B, err);
    if (st == DRA_OK) st = dra_extents_put(&r->extents, r->session, &r->tokens, err);
    if (r->module.context && st == DRA_OK)
        st = dra_context_extents_put(&r->context_extents, s->B, reads, r->session, &r->context,
                                     err);
    for (int i = 0; i < dra_specs_count(s->specs) && !r->module.whole && st == DRA_OK; i++)
        st = dra_session_bind(r->session, r->state[i], dra_states_span(r->pool ? r->pool : s, i),
                              err);
    for (int i = 0; i < n && st == DRA_OK; i++) st = put_input(r, &inputs[i], part, err);
    return st;
}

/* Advances the counts of the states after a call. */
static void advance_states(const dra_reader *r, dra_states *s, bool reads, int64_t T,
                           const int32_t *mark)
{
    if (r->module.whole) {
        dra_states_count(s, T, mark);
        return;
    }
    dra_states_advance(s, r->module.start, T, mark);
    for (int64_t b = 0; reads && b < s->B; b++) s->context[b] = r->context_extents.n[b];
}

static bool make_room(fetched *f, size_t bytes)
{
    if (f->copy && f->room >= bytes) return true;
    free(f->copy);
    f->copy = malloc(bytes + 1);
    f->room = f->copy ? bytes : 0;
    return f->copy;
}

/* Downloads with the same wait the results that were asked for after the last read: they will be
 * asked for again. */
static dra_status fetch_all(dra_reader *r, const dra_fetch *more, size_t n_more, dra_error *err)
{
    dra_fetch list[DRA_FETCHES] = {{0}};
    fetched  *of[DRA_FETCHES];
    size_t    n = 0;
    if (n_more) memcpy(list, more, n_more * sizeof *more);
    for (size_t i = 0; i < r->n_results && n_more + n < DRA_FETCHES; i++) {
        fetched       *f = &r->results[i];
        const dra_span from = dra_session_result(r->session, f->name);
        if (f->read != r->reads - 1 || !from.array || dra_span_on_host(from)) continue;
        if (!make_room(f, from.bytes)) continue;
        list[n_more + n] = (dra_fetch){f->copy, from};
        of[n++] = f;
    }
    const dra_status st = dra_session_fetch(r->session, list, n_more + n, err);
    for (size_t i = 0; i < n && st == DRA_OK; i++) {
        of[i]->seen = of[i]->copy;
        of[i]->read = r->reads;
    }
    return st;
}

/* Makes room for the items of the tokens in r->extents. */
static dra_status make_room_for(dra_reader *r, dra_states *states, dra_error *err)
{
    dra_status st = DRA_OK;
    if (!r->pool) return dra_states_reserve(states, r->extents.T, err);
    for (int64_t b = 0; b < states->B && st == DRA_OK; b++)
        if (r->rows[b] >= 0) st = dra_pool_reserve(r->pool, r->rows[b], r->extents.T, err);
    dra_pool_look(r->pool, states->B, r->rows, states);
    return st;
}

/* Forgets programs for a smaller pool: pools never shrink. */
static void forget_smaller(dra_reader *r)
{
    const int64_t size = r->pool ? dra_pool_size(r->pool) : r->pool_size;
    if (r->pool_size && size > r->pool_size && !r->begun) dra_session_clear(r->session);
    r->pool_size = size;
}

/* Reads a part of a call, or all of it; mark: of the part; context: NULL unless it is read now. */
static dra_status read_part(dra_reader *r, dra_states *states, const dra_context_text *context,
                            const dra_join_part *part, const int32_t *mark, int n,
                            const dra_named *inputs, dra_error *err)
{
    const bool reads = context != NULL;
    dra_extents_plan(&r->extents, states, states->B, part->n, mark);
    dra_status st = check_length(r, states, r->extents.T, err);
    if (st == DRA_OK) st = make_room_for(r, states, err);
    if (st == DRA_OK) st = take_context(r, states, context, err);
    forget_smaller(r);
    if (st == DRA_OK) st = select_program(r, states, reads, err);
    if (st == DRA_OK) st = put_all(r, states, reads, part, mark, n, inputs, err);
    if (st == DRA_OK) st = dra_session_start(r->session, err);
    if (st == DRA_OK) r->begun = true;
    if (st == DRA_OK && !r->defers) st = dra_reader_finish(r, err);
    if (st == DRA_OK) advance_states(r, states, reads, part->n, mark);
    if (st == DRA_OK && r->pool) dra_pool_advance(r->pool, states->B, r->rows, states);
    return st;
}

/* Reads a call part by part, none of which crosses the border of a segment in any row. room: for
 * marks (B, T), then the tokens that rows have read (B). */
static dra_status read_segments(dra_reader *r, dra_states *states, const dra_context_text *context,
                                dra_join_part *part, const int32_t *mark, int n,
                                const dra_named *inputs, int64_t *room, dra_error *err)
{
    const int64_t B = part->B, T = part->T;
    int64_t      *tokens = room;
    int32_t      *own = (int32_t *)(void *)(room + B);
    dra_status    st = DRA_OK;
    memcpy(tokens, states->tokens, (size_t)B * sizeof *tokens);
    for (part->first = 0; part->first < T && st == DRA_OK; part->first += part->n) {
        part->n = dra_segment_cut(r->module.segment, B, T, mark, part->first, T, tokens);
        if (mark) dra_tokens_cut(own, mark, B, T, part->first, part->n, sizeof *own);
        st = read_part(r, states, part->first ? NULL : context, part, mark ? own : NULL, n, inputs,
                       err);
        r->joined = part->n < T;
        if (st == DRA_OK && r->joined) st = dra_joins_add(&r->joins, r->session, part, err);
    }
    return st;
}

static const int32_t *find_picks(const dra_reader *r, int64_t B, int n, const dra_named *inputs)
{
    for (int i = 0; i < n && r->module.picks > 0; i++)
        if (strcmp(inputs[i].name, "picks") == 0 &&
            inputs[i].bytes == (size_t)(B * r->module.picks) * sizeof(int32_t))
            return inputs[i].data;
    return NULL;
}

/* Refuses a pool, whose rows are read by dra_reader_read_rows(). */
static dra_status check_plain(const dra_states *s, dra_error *err)
{
    if (!s->pool) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "reader: a pool is read by rows: dra_reader_read_rows()");
}

dra_status dra_reader_read(dra_reader *r, dra_states *states, int64_t T, const int32_t *mark, int n,
                           const dra_named *inputs, dra_error *err)
{
    return dra_reader_read_context(r, states, NULL, T, mark, n, inputs, err);
}

static dra_status check_rows(const dra_states *pool, int64_t n, const int64_t *rows, dra_error *err)
{
    if (!pool->pool) return dra_fail(err, DRA_ERR_VALUE, "reader: the states are not a pool");
    if (n < 1)
        return dra_fail(err, DRA_ERR_VALUE, "reader: %lld rows, expected 1 or more", (long long)n);
    for (int64_t b = 0; b < n; b++) {
        if (rows[b] < -1 || rows[b] >= pool->B)
            return dra_fail(err, DRA_ERR_INDEX, "reader: row is %lld of %lld", (long long)rows[b],
                            (long long)pool->B);
        for (int64_t a = 0; a < b; a++)
            if (rows[a] == rows[b] && rows[b] >= 0)
                return dra_fail(err, DRA_ERR_VALUE, "reader: row %lld is read twice",
                                (long long)rows[b]);
    }
    return DRA_OK;
}

dra_status dra_reader_read_rows(dra_reader *r, dra_states *pool, int64_t n, const int64_t *rows,
                                int64_t T, const int32_t *mark, int n_inputs,
                                const dra_named *inputs, dra_error *err)
{
    return dra_reader_read_rows_context(r, pool, NULL, n, rows, T, mark, n_inputs, inputs, err);
}

dra_status dra_reader_read_rows_context(dra_reader *r, dra_states *pool,
                                        const dra_context_text *context, int64_t n,
                                        const int64_t *rows, int64_t T, const int32_t *mark,
                                        int n_inputs, const dra_named *inputs, dra_error *err)
{
    dra_status st = check_rows(pool, n, rows, err);
    if (st == DRA_OK) st = dra_pool_view(pool, n, rows, &r->view, err);
    if (st != DRA_OK) {
        r->valid = false;
        return st;
    }
    r->pool = pool;
    r->rows = rows;
    st = dra_reader_read_context(r, r->view, context, T, mark, n_inputs, inputs, err);
    r->pool = NULL;
    r->rows = NULL;
    return st;
}

dra_status dra_reader_read_context(dra_reader *r, dra_states *states,
                                   const dra_context_text *context, int64_t T, const int32_t *mark,
                                   int n, const dra_named *inputs, dra_error *err)
{
    dra_join_part part = {.B = states->B, .T = T, .n = T, .keep = r->module.keep};
    r->reads++;
    r->valid = r->joined = false;
    dra_status st = check_plain(states, err);
    if (st == DRA_OK) st = check_call(r, states, T, mark, err);
    if (st == DRA_OK) st = check_context(r, states, context, err);
    if (st != DRA_OK) return st;
    if (r->module.segment > 0) {
        const size_t B = (size_t)states->B, marks = B * (size_t)T * sizeof *mark;
        int64_t     *room = malloc(B * sizeof *room + marks + 1);
        part.pick = find_picks(r, part.B, n, inputs);
        part.picks = part.pick ? r->module.picks : 0;
        st = room ? read_segments(r, states, context, &part, mark, n, inputs, room, err)
                  : dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
        free(room);
    } else {
        st = read_part(r, states, context, &part, mark, n, inputs, err);
    }
    r->valid = st == DRA_OK;
    return st;
}

void dra_reader_defer(dra_reader *r, bool on) { r->defers = on; }

dra_status dra_reader_fetch(dra_reader *r, const dra_fetch *more, size_t n, dra_error *err)
{
    if (!r->begun) return dra_arrays_fetch(more, n, err);
    const dra_status st = fetch_all(r, more, n, err);
    r->begun = false;
    if (st != DRA_OK) r->valid = false;
    return st;
}

dra_status dra_reader_finish(dra_reader *r, dra_error *err)
{
    return dra_reader_fetch(r, NULL, 0, err);
}

void dra_reader_precision(dra_reader *r, dra_precision precision) { r->precision = precision; }
void dra_reader_clamp(dra_reader *r, bool on) { r->unclamped = !on; }
void dra_reader_by_token(dra_reader *r, bool on) { r->by_token = on; }
void dra_reader_clamp_limit(dra_reader *r, double limit) { r->limit = isfinite(limit) ? limit : 0; }

int64_t dra_reader_clamped(dra_reader *r)
{
    int32_t n = 0;
    dra_array_download(&n, dra_span_part(dra_array_whole(r->clamped), 0, sizeof n), NULL);
    return n;
}

/* ---- results --------------------------------------------------------------------------------- */

static fetched *find_fetched(dra_reader *r, const char *name)
{
    for (size_t i = 0; i < r->n_results; i++)
        if (strcmp(r->results[i].name, name) == 0) return &r->results[i];
    fetched *grown = realloc(r->results, (r->n_results + 1) * sizeof *grown);
    if (!grown) return NULL;
    r->results = grown;
    fetched *f = &grown[r->n_results++];
    *f = (fetched){.read = -1};
    snprintf(f->name, sizeof f->name, "%s", name);
    return f;
}

dra_span dra_reader_result_span(const dra_reader *r, const char *name)
{
    return r->valid && !r->joined ? dra_session_result(r->session, name) : (dra_span){0};
}

const void *dra_reader_result(dra_reader *r, const char *name)
{
    if (dra_reader_finish(r, NULL) != DRA_OK) return NULL;
    if (r->valid && r->joined) {
        const dra_joined *j = dra_joins_find(&r->joins, name);
        return j ? j->data : NULL;
    }
    const dra_span from = r->valid ? dra_session_result(r->session, name) : (dra_span){0};
    fetched       *f = from.array && strlen(name) < DRA_NAME_TEXT ? find_fetched(r, name) : NULL;
    if (!f) return NULL;
    if (f->read != r->reads) f->seen = dra_span_see(from, &f->copy, &f->room, NULL);
    f->read = f->seen ? r->reads : -1;
    return f->seen;
}

bool dra_reader_result_shape(const dra_reader *r, const char *name, dra_shape *shape)
{
    if (!r->valid || !r->joined)
        return r->valid && dra_session_result_shape(r->session, name, shape);
    const dra_joined *j = dra_joins_find(&r->joins, name);
    if (j) *shape = j->shape;
    return j != NULL;
}
