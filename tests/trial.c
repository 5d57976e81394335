#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sequence/segments.h"

static void *need(void *p)
{
    if (!p) abort();
    return p;
}

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static bool has_skips(const trial *t) { return dra_marks_any_skip(t->mark, t->B * t->T); }

static bool has_holes(const trial *t)
{
    dra_extents e = {0};
    dra_extents_open(&e, t->module);
    dra_extents_plan(&e, NULL, t->B, t->T, t->mark);
    return e.holes;
}

static int params_of(const trial *t) { return dra_specs_count(t->module->params); }
static int states_of(const trial *t) { return dra_specs_count(t->module->state); }

size_t live_elements(const dra_states *s, int i)
{
    size_t n = 0;
    for (int64_t b = 0; b < s->B; b++) n += dra_states_size(s, i, b);
    return n;
}

/* ---- programs: a chunk of T tokens with its gradients ---------------------------------------- */

typedef struct segment {
    int64_t      T, inner;
    bool         marked;
    int          max_event;
    dra_program *program;
    dra_buffers *buffers;
} segment;

static const char *numbered(char text[32], const char *what, int i)
{
    snprintf(text, 32, "%s.%d", what, i);
    return text;
}

/* L and what it depends on: x, parameters, states. */
static dra_value build_loss(dra_graph *g, const trial *t, int64_t T, const dra_value *next)
{
    const dra_value y = dra_find_output(g, "y");
    const dra_value u = dra_input(g, "u", DRA_REAL, DRA_SHAPE(t->B, T, t->C));
    dra_value       L = dra_sum_all(g, dra_mul(g, y, u));
    char            name[32];
    for (int i = 0; i < states_of(t) && !t->fresh; i++) {
        const dra_value us = dra_input(g, numbered(name, "us", i), DRA_REAL,
                                       dra_shape_of(g, next[i]));
        L = dra_add(g, L, dra_sum_all(g, dra_mul(g, next[i], us)));
        dra_output(g, numbered(name, "next", i), next[i]);
    }
    return L;
}

static void build(dra_graph *g, const trial *t, const dra_states *s, const segment *p)
{
    const int  P = params_of(t), S = t->fresh ? 0 : states_of(t);
    dra_value *v = need(calloc((size_t)(1 + P + S), sizeof *v)); /* x, parameters, states */
    dra_value *next = need(calloc((size_t)states_of(t) + 1, sizeof *next));
    dra_value *dv = need(calloc((size_t)(P + S) + 1, sizeof *dv));
    int64_t   *rows = need(calloc((size_t)S + 1, sizeof *rows));
    char       name[32];
    for (int i = 0; i < S; i++) rows[i] = s->at[i].rows;
    const dra_module_shape shape = {.B = t->B,
                                    .T = p->T,
                                    .inner = p->inner,
                                    .marked = p->marked,
                                    .fresh = t->fresh,
                                    .rows = rows,
                                    .skips = has_skips(t),
                                    .holes = has_holes(t),
                                    .max_event = p->max_event};
    dra_module_graph(g, t->module, &shape, v + 1, S ? v + 1 + P : NULL, next);
    v[0] = dra_find_input(g, "x");
    const dra_value L = build_loss(g, t, p->T, next);
    dra_gradient(g, 1, &L, NULL, 1 + P + S, v, dv);
    dra_output(g, "dx", dv[0]);
    for (int i = 0; i < P; i++) dra_output(g, numbered(name, "dparam", i), dv[1 + i]);
    for (int i = 0; i < S; i++) dra_output(g, numbered(name, "dstate", i), dv[1 + P + i]);
    free(v);
    free(next);
    free(dv);
    free(rows);
}

static segment make_segment(const trial *t, const dra_states *s, segment p)
{
    dra_error  err = {0};
    dra_graph *g = check_graph();
    build(g, t, s, &p);
    expect_ok(dra_compile(g, t->device, &p.program, &err), &err);
    expect_ok(dra_buffers_create(p.program, &p.buffers, &err), &err);
    for (int i = 0; i < params_of(t); i++) {
        const dra_spec *spec = dra_specs_at(t->module->params, i);
        const size_t    bytes = (size_t)dra_shape_count(&spec->shape) * sizeof(dra_real);
        expect_ok(dra_put(p.buffers, spec->name, t->param[i], bytes, &err), &err);
    }
    dra_graph_destroy(g);
    return p;
}

/* ---- one chunk ------------------------------------------------------------------------------- */

typedef struct chunk { /* tokens first .. first + T - 1, cut out of the trial */
    int64_t     first, T;
    dra_real   *x, *u;
    int32_t    *mark;
    dra_states *start; /* the state before it */
    dra_extents extents;
} chunk;

static void *cut(const trial *t, const void *from, size_t each, int64_t first, int64_t T)
{
    unsigned char *to = need(malloc((size_t)(t->B * T) * each + 1));
    for (int64_t b = 0; b < t->B; b++)
        memcpy(to + (size_t)(b * T) * each,
               (const unsigned char *)from + (size_t)(b * t->T + first) * each, (size_t)T * each);
    return to;
}

static void paste(const trial *t, dra_real *to, const dra_real *from, const chunk *c)
{
    for (int64_t b = 0; b < t->B; b++)
        memcpy(to + (b * t->T + c->first) * t->C, from + b * c->T * t->C,
               (size_t)(c->T * t->C) * sizeof *to);
}

/* By name: programs of trials have no session. */
static void put_tokens(dra_buffers *b, const char *what, int64_t limit, const int32_t *x, size_t n)
{
    dra_error err = {0};
    char      name[48];
    snprintf(name, sizeof name, limit < 0 ? "tokens.%s" : "tokens.%s.%lld", what, (long long)limit);
    expect_ok(dra_put(b, name, x, n * sizeof *x, &err), &err);
}

static void put_segments(dra_buffers *b, const dra_extents *e)
{
    const size_t n = (size_t)(e->B * e->T), B = (size_t)e->B;
    put_tokens(b, "segment.at", -1, e->segments.at, n);
    put_tokens(b, "segment.lo", -1, e->segments.lo, n);
    put_tokens(b, "segment.hi", -1, e->segments.hi, n);
    put_tokens(b, "segment.base", -1, e->segments.base, B);
    if (e->max_event) put_tokens(b, "segment.event", -1, e->segments.event, B);
}

void put_extents(dra_buffers *b, const dra_extents *e, bool marked)
{
    const size_t n = (size_t)(e->B * e->T), B = (size_t)e->B;
    if (marked) put_tokens(b, "mark", -1, e->mark, n);
    if (marked && e->skips) put_tokens(b, "writes", -1, e->writes, n);
    put_tokens(b, "pos", -1, e->pos, n);
    put_tokens(b, "prev", -1, e->prev, n);
    put_tokens(b, "last", -1, e->last, B);
    if (e->start > 0 || e->segment > 0)
        put_tokens(b, "place", -1, e->place, (size_t)(e->B * e->given));
    if (e->segment > 0) put_segments(b, e);
    if (e->T > e->given) put_tokens(b, "take", -1, e->take, n);
    if (e->T > e->given) put_tokens(b, "give", -1, e->give, (size_t)(e->B * e->given));
    if (e->whole) put_tokens(b, "lo", -1, e->lo, n);
    if (e->whole) put_tokens(b, "hi", -1, e->hi, n);
    for (int i = 0; i < e->n_items; i++) {
        put_tokens(b, "at", e->items[i].limit, e->items[i].at, n);
        put_tokens(b, "lo", e->items[i].limit, e->items[i].lo, n);
        put_tokens(b, "hi", e->items[i].limit, e->items[i].hi, n);
        put_tokens(b, "base", e->items[i].limit, e->items[i].base, B);
    }
}

/* A copy of a result; to be freed. */
static dra_real *copy_result(const dra_buffers *b, const char *name)
{
    dra_error      err = {0};
    const dra_span from = dra_result(b, name);
    dra_real      *to = need(malloc(from.bytes + 1));
    expect_ok(dra_array_download(to, from, &err), &err);
    return to;
}

static void paste_result(const trial *t, dra_real *to, const dra_buffers *b, const char *name,
                         const chunk *c)
{
    dra_real *from = copy_result(b, name);
    paste(t, to, from, c);
    free(from);
}

static void bind_chunk(const trial *t, const segment *p, chunk *c, dra_real *const *us)
{
    const size_t bytes = (size_t)(t->B * c->T * t->C) * sizeof(dra_real);
    dra_error    err = {0};
    char         name[32];
    expect_ok(dra_put(p->buffers, "x", c->x, bytes, &err), &err);
    expect_ok(dra_put(p->buffers, "u", c->u, bytes, &err), &err);
    dra_extents_open(&c->extents, t->module);
    expect_ok(dra_extents_fill(&c->extents, t->module->state, t->fresh ? NULL : c->start, t->B,
                               c->T, c->mark, &err),
              &err);
    c->extents.skips = has_skips(t); /* programs are made for the trial as a whole */
    put_extents(p->buffers, &c->extents, p->marked);
    for (int i = 0; i < states_of(t) && !t->fresh; i++) {
        const dra_span from = dra_states_span(c->start, i);
        char           state[200];
        snprintf(state, sizeof state, "state.%s", dra_specs_at(t->module->state, i)->name);
        expect_ok(dra_bind(p->buffers, state, from, &err), &err);
        expect_ok(dra_put(p->buffers, numbered(name, "us", i), us[i], from.bytes, &err), &err);
    }
    expect_ok(dra_run(p->buffers, &err), &err);
}

static dra_states *clone(const trial *t, const dra_states *s)
{
    dra_error   err = {0};
    dra_states *copy = NULL;
    expect_ok(dra_states_clone(s, t->device, &copy, &err), &err);
    return copy;
}

/* ---- a trial --------------------------------------------------------------------------------- */

static size_t held(const dra_states *s, int i)
{
    return (size_t)(s->B * s->at[i].rows * s->at[i].size);
}

static dra_real *live_of(const dra_states *s, int i, int64_t b, dra_real *data)
{
    const dra_held *h = &s->at[i];
    const int64_t first = dra_specs_at(s->specs, i)->items ? dra_states_first(s, i, b) - h->base[b]
                                                           : 0;
    return data + (b * h->rows + first) * h->size;
}

/* Upstream of the final state, laid out as the state is. */
static dra_real **final_upstream(const trial *t, const dra_states *s)
{
    dra_real **us = need(calloc((size_t)states_of(t) + 1, sizeof *us));
    for (int i = 0; i < states_of(t); i++) {
        us[i] = need(calloc(held(s, i) + 1, sizeof *us[i]));
        for (int64_t b = 0; b < t->B && t->us; b++)
            for (size_t k = 0; k < dra_states_size(s, i, b); k++)
                live_of(s, i, b, us[i])[k] = (dra_real)t->us(t->user, i, b, (int64_t)k);
    }
    return us;
}

static double loss(const trial *t, const outcome *out)
{
    double L = 0;
    for (int64_t i = 0; i < t->B * t->T * t->C; i++) L += (double)out->y[i] * (double)t->u[i];
    for (int i = 0; i < states_of(t) && t->us && out->final; i++)
        for (int64_t b = 0; b < t->B; b++) {
            const size_t n = dra_states_size(out->final, i, b);
            dra_real    *s = need(malloc(n * sizeof *s + 1));
            dra_error    err = {0};
            expect_ok(dra_states_read(out->final, i, b, s, n, &err), &err);
            for (size_t k = 0; k < n; k++) L += (double)s[k] * t->us(t->user, i, b, (int64_t)k);
            free(s);
        }
    return L;
}

static void start_outcome(const trial *t, outcome *out)
{
    const size_t n = (size_t)(t->B * t->T * t->C) + 1;
    *out = (outcome){.y = need(calloc(n, sizeof(dra_real))),
                     .dx = need(calloc(n, sizeof(dra_real)))};
    out->dparam = need(calloc((size_t)params_of(t) + 1, sizeof *out->dparam));
    out->dstart = need(calloc((size_t)states_of(t) + 1, sizeof *out->dstart));
    for (int i = 0; i < params_of(t); i++) {
        const int64_t count = dra_shape_count(&dra_specs_at(t->module->params, i)->shape);
        out->dparam[i] = need(calloc((size_t)count + 1, sizeof(dra_real)));
    }
}

/* The start state with room for all tokens. */
static dra_states *roomy_states(const trial *t)
{
    dra_error   err = {0};
    dra_extents e = {0};
    dra_states *s = clone(t, t->start);
    dra_extents_open(&e, t->module);
    dra_extents_plan(&e, s, t->B, t->T, t->mark);
    expect_ok(dra_states_reserve(s, e.T, &err), &err);
    return s;
}

/* The program of a chunk after s: one of the k before it, or a new one. */
static segment find_segment(const trial *t, const dra_states *s, const chunk *c, int k,
                            const segment *p)
{
    dra_extents e = {0};
    dra_extents_open(&e, t->module);
    dra_extents_plan(&e, t->fresh ? NULL : s, t->B, c->T, c->mark);
    for (int i = 0; i < k; i++)
        if (p[i].T == c->T && p[i].inner == e.T && p[i].marked == e.marked &&
            p[i].max_event == e.max_event)
            return p[i];
    return make_segment(
        t, s, (segment){.T = c->T, .inner = e.T, .marked = e.marked, .max_event = e.max_event});
}

/* Forwards through the chunks; each keeps the state it starts from. Returns the last state. */
static dra_states *run_forward(const trial *t, int n, chunk *c, const segment *p, outcome *out)
{
    dra_error   err = {0};
    char        name[32];
    dra_states *s = roomy_states(t);
    dra_real  **none = need(calloc((size_t)states_of(t) + 1, sizeof *none));
    for (int i = 0; i < states_of(t); i++) none[i] = need(calloc(held(s, i) + 1, sizeof *none[i]));
    for (int k = 0; k < n; k++) {
        c[k].start = clone(t, s);
        bind_chunk(t, &p[k], &c[k], none);
        paste_result(t, out->y, p[k].buffers, "y", &c[k]);
        for (int i = 0; i < states_of(t) && !t->fresh; i++)
            expect_ok(dra_array_copy(dra_states_span(s, i),
                                     dra_result(p[k].buffers, numbered(name, "next", i)), &err),
                      &err);
        dra_states_advance(s, t->module->start, c[k].T, c[k].mark);
    }
    for (int i = 0; i < states_of(t); i++) free(none[i]);
    free(none);
    return s;
}

static void run_backward(const trial *t, int n, chunk *c, const segment *p, dra_real **us,
                         outcome *out)
{
    dra_error err = {0};
    char      name[32];
    for (int k = n - 1; k >= 0; k--) {
        bind_chunk(t, &p[k], &c[k], us);
        paste_result(t, out->dx, p[k].buffers, "dx", &c[k]);
        for (int i = 0; i < params_of(t); i++) {
            dra_real     *d = copy_result(p[k].buffers, numbered(name, "dparam", i));
            const int64_t count = dra_shape_count(&dra_specs_at(t->module->params, i)->shape);
            for (int64_t e = 0; e < count; e++) out->dparam[i][e] += d[e];
            free(d);
        }
        for (int i = 0; i < states_of(t) && !t->fresh; i++)
            expect_ok(dra_array_download(
                          us[i], dra_result(p[k].buffers, numbered(name, "dstate", i)), &err),
                      &err);
    }
    for (int i = 0; i < states_of(t) && !t->fresh; i++) {
        size_t at = 0;
        out->dstart[i] = need(calloc(live_elements(t->start, i) + 1, sizeof(dra_real)));
        for (int64_t b = 0; b < t->B; b++) {
            const size_t size = dra_states_size(c[0].start, i, b);
            memcpy(out->dstart[i] + at, live_of(c[0].start, i, b, us[i]), size * sizeof(dra_real));
            at += size;
        }
    }
}

static chunk cut_chunk(const trial *t, int64_t first, int64_t T)
{
    const size_t row = (size_t)t->C * sizeof(dra_real);
    return (chunk){.first = first,
                   .T = T,
                   .x = cut(t, t->x, row, first, T),
                   .u = cut(t, t->u, row, first, T),
                   .mark = t->mark ? cut(t, t->mark, sizeof *t->mark, first, T) : NULL};
}

/* A module that reads in segments: chunks that cross no border. `room` has place for T of them,
 * then for the tokens of all rows. */
static int cut_segments(const trial *t, int n, const int64_t **length, int64_t *room)
{
    int64_t *tokens = room + t->T, end = (*length)[0];
    int      count = 0, k = 0;
    for (int64_t b = 0; b < t->B; b++) tokens[b] = t->fresh ? 0 : t->start->tokens[b];
    for (int64_t first = 0; first < t->T; first += room[count++]) {
        if (first == end && k + 1 < n) end += (*length)[++k];
        room[count] = dra_segment_cut(t->module->segment, t->B, t->T, t->mark, first, end, tokens);
    }
    *length = room;
    return count;
}

void trial_run(const trial *t, int n, const int64_t *length, outcome *out)
{
    const int64_t whole[] = {t->T};
    int64_t      *room = need(calloc((size_t)(t->T + t->B), sizeof *room));
    if (n == 0) n = 1, length = whole;
    if (t->module->segment > 0) n = cut_segments(t, n, &length, room);
    chunk      *c = need(calloc((size_t)n, sizeof *c));
    segment    *p = need(calloc((size_t)n, sizeof *p));
    int64_t     first = 0;
    dra_states *roomy = roomy_states(t);
    start_outcome(t, out);
    for (int k = 0; k < n; first += length[k++]) {
        c[k] = cut_chunk(t, first, length[k]);
        p[k] = find_segment(t, roomy, &c[k], k, p);
        dra_states_advance(roomy, t->module->start, c[k].T, c[k].mark);
    }
    assert_int_equal(first, t->T);
    dra_states *last = run_forward(t, n, c, p, out);
    dra_real  **us = final_upstream(t, last);
    if (!t->fresh) out->final = last;
    out->L = loss(t, out);
    run_backward(t, n, c, p, us, out);
    if (t->fresh) dra_states_destroy(last);
    for (int i = 0; i < states_of(t); i++) free(us[i]);
    free(us);
    dra_states_destroy(roomy);
    for (int k = 0; k < n; k++) {
        bool shared = false;
        for (int i = 0; i < k; i++) shared = shared || p[i].program == p[k].program;
        if (!shared) dra_buffers_destroy(p[k].buffers);
        if (!shared) dra_program_destroy(p[k].program);
        free(c[k].x);
        free(c[k].u);
        free(c[k].mark);
        dra_states_destroy(c[k].start);
        dra_extents_free(&c[k].extents);
    }
    free(c);
    free(p);
    free(room);
}

void outcome_free(const trial *t, outcome *out)
{
    free(out->y);
    free(out->dx);
    for (int i = 0; i < params_of(t); i++) free(out->dparam[i]);
    for (int i = 0; i < states_of(t); i++) free(out->dstart[i]);
    free(out->dparam);
    free(out->dstart);
    dra_states_destroy(out->final);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static double largest_of(int64_t n, const dra_real *x)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

double relative_difference(int64_t n, const dra_real *a, const dra_real *b, double least)
{
    double worst = 0, largest = fmax(least, largest_of(n, b));
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (d > worst || isnan(d)) worst = d;
    }
    return worst == 0 ? 0 : worst / largest;
}

static void take(double *worst, double d, char where[80], const char *kind, const char *name)
{
    if (d <= *worst || isnan(*worst)) return;
    *worst = d;
    snprintf(where, 80, "%s%s", kind, name);
}

outcome_difference outcome_compare(const trial *t, const outcome *a, const outcome *b)
{
    const int64_t         n = t->B * t->T * t->C;
    outcome_difference    d = {.same = memcmp(a->y, b->y, (size_t)n * sizeof(dra_real)) == 0};
    dra_states_difference s = {.same = true};
    dra_error             err = {0};
    take(&d.value, relative_difference(n, a->y, b->y, 0), d.where, "y", "");
    if (a->final && b->final) {
        expect_ok(dra_states_compare(a->final, b->final, &s, &err), &err);
        take(&d.value, s.worst, d.where, "state ", s.name ? s.name : "");
        d.same = d.same && s.same;
    }
    /* Some gradients are 0 but for rounding: they are measured by the others. */
    const double least = 0.01 * largest_of(n, b->dx);
    take(&d.gradient, relative_difference(n, a->dx, b->dx, 0), d.where, "dx", "");
    for (int i = 0; i < params_of(t); i++) {
        const dra_spec *p = dra_specs_at(t->module->params, i);
        take(&d.gradient,
             relative_difference(dra_shape_count(&p->shape), a->dparam[i], b->dparam[i], least),
             d.where, "d", p->name);
    }
    for (int i = 0; i < states_of(t); i++)
        if (a->dstart[i] && b->dstart[i])
            take(&d.gradient,
                 relative_difference((int64_t)live_elements(t->start, i), a->dstart[i],
                                     b->dstart[i], least),
                 d.where, "dstart ", dra_specs_at(t->module->state, i)->name);
    return d;
}
