/* A module of two texts, for tests of contexts. It reads the context by attention in both
 * directions, or token by token; its own tokens attend to what that gives and have a recurrence
 * besides. Plain loops say what it gives. */
#ifndef DRA_TESTS_SEQUENCE_PAIR_H
#define DRA_TESTS_SEQUENCE_PAIR_H

#include <math.h>

#include "base/shape.h"
#include "reading.h"
#include "sequence/module.h"

enum { C = 4, B = 3, T = 11, S = 9, M = 2, MOST = 80 };
enum { START, W_E, W_Q, W_K, W_V, BETA, PARAMS };
enum { K, V, MEAN, STATES };
enum { PAD = DRA_MARK_PAD, NEW = DRA_MARK_RESET, SKIP = DRA_MARK_SKIP };

typedef struct pair {  /* a module of two texts */
    bool        mixes; /* tokens of the context see each other */
    dra_specs  *params, *state;
    dra_module  module;
    dra_reader *reader;
    dra_real   *param[PARAMS];
} pair;

/* ---- the module ------------------------------------------------------------------------------ */

static inline dra_value one_head(dra_graph *g, dra_value x)
{
    const dra_shape s = dra_shape_of(g, x);
    return dra_reshape(g, x, DRA_SHAPE(s.dim[0], 1, s.dim[1], s.dim[2]));
}

static inline dra_value attend(dra_graph *g, dra_value q, dra_value k, dra_value v,
                               const dra_attend_config *config)
{
    const dra_value y = dra_attend(g, one_head(g, q), one_head(g, k), one_head(g, v), config);
    return dra_reshape(g, y, dra_shape_of(g, q));
}

/* e = h + softmax(h h^T / sqrt(C)) h, h = W_e x, start vectors first; pads are no items. */
static inline dra_value read_context(dra_graph *g, const pair *p, const dra_module_call *call)
{
    const dra_module_call *text = call->context;
    const dra_tokens      *t = &text->tokens;
    const dra_value        none = {0};
    const dra_value        in = dra_input(g, "source", DRA_REAL, DRA_SHAPE(t->B, t->given, C));
    const dra_value        h = dra_linear(g, dra_tokens_insert_prefix(g, t, text->param[START], in),
                                          text->param[W_E], none);
    dra_attend_config      config = {.lo = t->lo, .hi = t->hi};
    if (t->seen.id) config.mask = dra_reshape(g, t->seen, DRA_SHAPE(t->B, 1, 1, t->T));
    const dra_value e = p->mixes ? dra_add(g, h, attend(g, h, h, h, &config)) : h;
    const dra_value given = dra_tokens_drop_prefix(g, t, e);
    return call->context_take.id ? dra_read_rows(g, given, call->context_take) : given;
}

/* y_t = softmax(q_t K^T / sqrt(C)) V + m_t,  m_t a running mean of x */
static inline void build_pair(dra_graph *g, const void *self, const dra_module_call *call,
                              dra_value *state_out)
{
    const dra_tokens *t = &call->tokens;
    const dra_value   none = {0}, x = dra_input(g, "x", DRA_REAL, DRA_SHAPE(t->B, t->T, C));
    dra_value         keys = call->state[K], values = call->state[V];
    if (call->context) {
        const dra_value e = read_context(g, self, call);
        state_out[K] = keys = dra_linear(g, e, call->param[W_K], none);
        state_out[V] = values = dra_linear(g, e, call->param[W_V], none);
    }
    const dra_value hi = dra_broadcast(g, t->context_n, DRA_SHAPE(t->B, t->T));
    const dra_value y = attend(g, dra_linear(g, x, call->param[W_Q], none), keys, values,
                               &(dra_attend_config){.hi = hi, .lo = dra_sub(g, hi, hi)});
    const dra_value m = dra_ema(g, x, call->param[BETA], none, t->fresh ? none : call->state[MEAN],
                                t->writes, &state_out[MEAN]);
    const dra_value sum = dra_add(g, y, dra_reshape(g, m, dra_shape_of(g, x)));
    dra_output(g, "y", dra_tokens_zero_pads(g, t, sum));
}

static inline pair *open_pair(bool mixes, int64_t start, bool whole)
{
    static const char *const names[] = {"start", "W_e", "W_q", "W_k", "W_v", "beta"};
    static const char *const states[] = {"K", "V", "mean"};
    pair                    *p = calloc(1, sizeof *p);
    dra_error                err = {0};
    assert_non_null(p);
    p->mixes = mixes;
    expect_ok(dra_specs_create(&p->params, &err), &err);
    expect_ok(dra_specs_create(&p->state, &err), &err);
    for (int i = 0; i < PARAMS; i++) {
        const int64_t rows = i == START ? M : i == BETA ? 1 : C;
        dra_specs_add(p->params, NULL,
                      &(dra_spec){names[i], DRA_SHAPE(rows, C), DRA_FILL_NORMAL, 0.8});
    }
    for (int i = 0; i < STATES; i++)
        dra_specs_add(p->state, NULL,
                      &(dra_spec){states[i], i == MEAN ? DRA_SHAPE(1, C) : DRA_SHAPE(C),
                                  .context = i != MEAN});
    p->module = (dra_module){
        p->params, p->state, build_pair, p, whole, .context = true, .context_start = start};
    expect_ok(dra_reader_create(reading_device(), &p->module, &p->reader, &err), &err);
    expect_ok(dra_reader_start(p->reader, 1, &err), &err);
    for (int i = 0; i < PARAMS; i++) {
        p->param[i] = malloc((size_t)dra_shape_count(&dra_specs_at(p->params, i)->shape) *
                             sizeof *p->param[i]);
        assert_non_null(p->param[i]);
        dra_specs_fill(p->params, i, 1, p->param[i]);
    }
    return p;
}

static inline void close_pair(pair *p)
{
    dra_reader_destroy(p->reader);
    dra_specs_destroy(p->params);
    dra_specs_destroy(p->state);
    for (int i = 0; i < PARAMS; i++) free(p->param[i]);
    free(p);
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct source { /* a context of n tokens in each row, (rows, n, C) */
    int64_t         n;
    const int32_t  *mark;
    const dra_real *x;
} source;

static inline dra_status try_read(const pair *p, dra_states *s, const source *from, int64_t n,
                                  const int32_t *mark, const dra_real *x, dra_error *err)
{
    const int64_t   rows = dra_states_batch(s);
    const dra_named in[] = {
        {"x", x, (size_t)(rows * n * C) * sizeof *x},
        {"source", from ? from->x : NULL, from ? (size_t)(rows * from->n * C) * sizeof *x : 0}};
    if (!from) return dra_reader_read(p->reader, s, n, mark, 1, in, err);
    return dra_reader_read_context(p->reader, s, &(dra_context_text){from->n, from->mark}, n, mark,
                                   2, in, err);
}

/* Tokens first .. first + n - 1 of `all` in x, mark and y, (rows, all, C) each; from: a context
 * that is read first, or NULL. */
static inline void read_part(const pair *p, dra_states *s, const source *from, int64_t all,
                             int64_t first, int64_t n, const int32_t *mark, const dra_real *x,
                             dra_real *y)
{
    const int64_t rows = dra_states_batch(s);
    dra_error     err = {0};
    int32_t       part_mark[B * MOST];
    dra_real      part[B * MOST * C];
    for (int64_t b = 0; b < rows; b++) {
        memcpy(part + b * n * C, x + (b * all + first) * C, (size_t)(n * C) * sizeof *x);
        for (int64_t t = 0; t < n && mark; t++) part_mark[b * n + t] = mark[b * all + first + t];
    }
    expect_ok(try_read(p, s, from, n, mark ? part_mark : NULL, part, &err), &err);
    const dra_real *found = dra_reader_result(p->reader, "y");
    assert_non_null(found);
    for (int64_t b = 0; b < rows && y; b++)
        memcpy(y + (b * all + first) * C, found + b * n * C, (size_t)(n * C) * sizeof *y);
}

/* ---- plain loops ----------------------------------------------------------------------------- */

static inline void multiply(const dra_real *w, const double *x, double *y)
{
    for (int o = 0; o < C; o++) {
        y[o] = 0;
        for (int i = 0; i < C; i++) y[o] += (double)w[o * C + i] * x[i];
    }
}

/* y += softmax(q k^T / sqrt(C)) v over n keys. */
static inline void attend_plainly(const double *q, int n, double k[][C], double v[][C], double *y)
{
    double sum = 0, o[C] = {0};
    for (int j = 0; j < n; j++) {
        double s = 0;
        for (int c = 0; c < C; c++) s += q[c] * k[j][c];
        s = exp(s / sqrt((double)C));
        sum += s;
        for (int c = 0; c < C; c++) o[c] += s * v[j][c];
    }
    for (int c = 0; c < C; c++) y[c] += n ? o[c] / sum : 0;
}

/* The items of a row's context; returns how many. */
static inline int plain_items(const pair *p, int64_t n, const int32_t *mark, const dra_real *x,
                              double k[][C], double v[][C])
{
    const int start = (int)p->module.context_start;
    double    h[MOST + M][C], in[C], e[C];
    int       all = 0;
    for (int64_t t = -start; t < n; t++) {
        if (t >= 0 && mark && mark[t] & PAD) continue;
        const dra_real *from = t < 0 ? p->param[START] + (t + start) * C : x + t * C;
        for (int c = 0; c < C; c++) in[c] = (double)from[c];
        multiply(p->param[W_E], in, h[all++]);
    }
    for (int j = start; j < all; j++) {
        memcpy(e, h[j], sizeof e);
        if (p->mixes) attend_plainly(h[j], all, h, h, e);
        multiply(p->param[W_K], e, k[j - start]);
        multiply(p->param[W_V], e, v[j - start]);
    }
    return all - start;
}

/* y (n, C) of one row. */
static inline void plain_row(const pair *p, const source *from, int64_t n, const int32_t *mark,
                             const dra_real *x, double *y)
{
    double    k[MOST][C], v[MOST][C], mean[C] = {0}, in[C], q[C];
    const int items = plain_items(p, from->n, from->mark, from->x, k, v);
    for (int64_t t = 0; t < n; t++, y += C, x += C) {
        const int32_t what = mark ? mark[t] : 0;
        if (what & NEW) memset(mean, 0, sizeof mean);
        memset(y, 0, C * sizeof *y);
        if (what & PAD) continue;
        for (int c = 0; c < C; c++) {
            const double keep = 1 / (1 + exp(-(double)p->param[BETA][c]));
            in[c] = (double)x[c];
            if (!(what & SKIP)) mean[c] += (1 - keep) * (in[c] - mean[c]);
            y[c] = mean[c];
        }
        multiply(p->param[W_Q], in, q);
        attend_plainly(q, items, k, v, y);
    }
}

static inline void expect_plain(const char *name, const pair *p, const source *from, int64_t n,
                                const int32_t *mark, const dra_real *x, const dra_real *y)
{
    double expected[B * T * C];
    assert_true(n <= T);
    for (int64_t b = 0; b < B; b++)
        plain_row(p,
                  &(source){from->n, from->mark ? from->mark + b * from->n : NULL,
                            from->x + b * from->n * C},
                  n, mark ? mark + b * n : NULL, x + b * n * C, expected + b * n * C);
    check_close(name, B * n * C, y, expected, sizeof(dra_real) == 4 ? 1e-5 : 1e-12);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static const int32_t token_marks[B * T] = {0, 0,   0,   NEW, 0,   0,    0, PAD, PAD, 0, 0,
                                           0, 0,   PAD, NEW, 0,   SKIP, 0, 0,   0,   0, 0,
                                           0, PAD, PAD, 0,   PAD, 0,    0, NEW, PAD, 0, 0};

static const struct {
    const char *name;
    int32_t     mark[B * S];
} cases[] = {
    {"no pads", {0}},
    {"pads at the end", {0,   0,   0,   0,   0, 0,   0,   0,   0,   0,   0,   0,   0,  PAD,
                         PAD, PAD, PAD, PAD, 0, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD}},
    {"pads in front", {PAD, PAD, PAD, 0, 0,   0,   0,   0,   0,   0,   0,   0, 0, 0,
                       0,   0,   0,   0, PAD, PAD, PAD, PAD, PAD, PAD, PAD, 0, 0}},
    {"pads between", {0, PAD, 0,   0,   PAD, PAD, 0, 0, 0,   PAD, 0, 0, PAD, 0,
                      0, 0,   PAD, PAD, 0,   0,   0, 0, PAD, 0,   0, 0, PAD}},
    {"a row of pads", {0,   0,   0,   0,   0, 0, 0, 0, 0, PAD, PAD, PAD, PAD, PAD,
                       PAD, PAD, PAD, PAD, 0, 0, 0, 0, 0, 0,   PAD, PAD, 0}},
};

#endif
