/* Contexts: tokens that see a second text. The module reads it by attention in both directions, or
 * token by token; its own tokens attend to what that gives and have a recurrence besides. One call
 * = parts = resumed from a file, a fork or a gather, bit for bit; ragged contexts, start vectors,
 * a second context; gradients; what is refused. */
#include <fcntl.h>
#include <math.h>

#include "base/shape.h"
#include "file/folder.h"
#include "reading.h"
#include "sequence/module.h"

enum { C = 4, B = 3, T = 11, S = 9, M = 2, MOST = 80 };
enum { START, W_E, W_Q, W_K, W_V, BETA, PARAMS };
enum { K, V, MEAN, STATES };
enum { PAD = DRA_MARK_PAD, NEW = DRA_MARK_RESET, SKIP = DRA_MARK_SKIP };

static const uint64_t FINGER = 0x77;

typedef struct pair {  /* a module of two texts */
    bool        mixes; /* tokens of the context see each other */
    dra_specs  *params, *state;
    dra_module  module;
    dra_reader *reader;
    dra_real   *param[PARAMS];
} pair;

/* ---- the module ------------------------------------------------------------------------------ */

static dra_value one_head(dra_graph *g, dra_value x)
{
    const dra_shape s = dra_shape_of(g, x);
    return dra_reshape(g, x, DRA_SHAPE(s.dim[0], 1, s.dim[1], s.dim[2]));
}

static dra_value attend(dra_graph *g, dra_value q, dra_value k, dra_value v,
                        const dra_attend_config *config)
{
    const dra_value y = dra_attend(g, one_head(g, q), one_head(g, k), one_head(g, v), config);
    return dra_reshape(g, y, dra_shape_of(g, q));
}

/* e = h + softmax(h h^T / sqrt(C)) h, h = W_e x, start vectors first; pads are no items. */
static dra_value read_context(dra_graph *g, const pair *p, const dra_module_call *call)
{
    const dra_module_call *text = call->context;
    const dra_tokens      *t = &text->tokens;
    const dra_value        none = {0};
    const dra_value        in = dra_input(g, "source", DRA_REAL, DRA_SHAPE(t->B, t->given, C));
    const dra_value        h = dra_linear(g, dra_tokens_take(g, t, text->param[START], in),
                                          text->param[W_E], none);
    dra_attend_config      config = {.lo = t->lo, .hi = t->hi};
    if (t->seen.id) config.mask = dra_reshape(g, t->seen, DRA_SHAPE(t->B, 1, 1, t->T));
    const dra_value e = p->mixes ? dra_add(g, h, attend(g, h, h, h, &config)) : h;
    const dra_value given = dra_tokens_give(g, t, e);
    return call->context_take.id ? dra_read_rows(g, given, call->context_take) : given;
}

/* y_t = softmax(q_t K^T / sqrt(C)) V + m_t,  m_t a running mean of x */
static void build_pair(dra_graph *g, const void *self, const dra_module_call *call,
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

static pair *open_pair(bool mixes, int64_t start, bool whole)
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

static void close_pair(pair *p)
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

static dra_status try_read(const pair *p, dra_states *s, const source *from, int64_t n,
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
static void read_part(const pair *p, dra_states *s, const source *from, int64_t all, int64_t first,
                      int64_t n, const int32_t *mark, const dra_real *x, dra_real *y)
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

static void multiply(const dra_real *w, const double *x, double *y)
{
    for (int o = 0; o < C; o++) {
        y[o] = 0;
        for (int i = 0; i < C; i++) y[o] += (double)w[o * C + i] * x[i];
    }
}

/* y += softmax(q k^T / sqrt(C)) v over n keys. */
static void attend_plainly(const double *q, int n, double k[][C], double v[][C], double *y)
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
static int plain_items(const pair *p, int64_t n, const int32_t *mark, const dra_real *x,
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
static void plain_row(const pair *p, const source *from, int64_t n, const int32_t *mark,
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

static void expect_plain(const char *name, const pair *p, const source *from, int64_t n,
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

/* ---- what is read ---------------------------------------------------------------------------- */

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

static int64_t items_of(const int32_t *mark)
{
    int64_t n = 0;
    for (int t = 0; t < S; t++) n += !(mark[t] & PAD);
    return n;
}

static void tokens_see_the_context(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        pair     *p = open_pair(kind & 1, kind & 2 ? M : 0, false);
        uint64_t  seed = 3;
        dra_real *x = random_reals(&seed, B * T * C), *e = random_reals(&seed, B * S * C);
        dra_real  y[B * T * C];
        for (size_t i = 0; i < COUNT(cases); i++) {
            const source from = {S, i ? cases[i].mark : NULL, e};
            dra_states  *s = new_states(p->state, B);
            for (int64_t b = 0; b < B; b++) assert_int_equal(dra_states_context(s, b), -1);
            read_part(p, s, &from, T, 0, T, token_marks, x, y);
            expect_plain(cases[i].name, p, &from, T, token_marks, x, y);
            for (int64_t b = 0; b < B; b++)
                assert_int_equal(dra_states_context(s, b), items_of(cases[i].mark + b * S));
            dra_states_destroy(s);
        }
        free(x);
        free(e);
        close_pair(p);
    }
}

/* A context with a text, one that comes with its first token, chunks. */
static void one_call_equals_parts(void **state)
{
    static const int64_t chunks[][T + 1] = {
        {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {3, 1, 5, 2}, {1, 10}};
    for (int kind = 0; kind < 8; kind++) {
        pair          *p = open_pair(kind & 1, kind & 2 ? M : 0, false);
        const int32_t *mark = kind & 4 ? token_marks : NULL;
        uint64_t       seed = 4;
        dra_real      *x = random_reals(&seed, B * T * C), *e = random_reals(&seed, B * S * C);
        dra_real       y[B * T * C], parts[B * T * C];
        for (size_t i = 0; i < COUNT(cases); i++) {
            const source from = {S, i ? cases[i].mark : NULL, e};
            dra_states  *whole = new_states(p->state, B);
            read_part(p, whole, &from, T, 0, T, mark, x, y);
            for (size_t k = 0; k < COUNT(chunks); k++) {
                dra_states *s = new_states(p->state, B);
                for (int64_t at = 0, n = 0; at < T; at += chunks[k][n++])
                    read_part(p, s, at ? NULL : &from, T, at, chunks[k][n], mark, x, parts);
                assert_memory_equal(y, parts, sizeof y);
                expect_same_states(s, whole);
                dra_states_destroy(s);
            }
            dra_states_destroy(whole);
        }
        free(x);
        free(e);
        close_pair(p);
    }
}

/* A row gives the same bits in any batch, whatever is in its pads; without its pads too, where the
 * context's own tokens do not see each other. More than one block of keys. */
static void rows_are_alone(void **state)
{
    enum { N = 70 };
    static int32_t mark[B * N];
    pair          *p[] = {open_pair(false, 0, false), open_pair(true, M, false)};
    uint64_t       seed = 5;
    dra_real      *x = random_reals(&seed, B * T * C), *e = random_reals(&seed, B * N * C);
    dra_real       y[B * T * C], one[T * C], dense[N * C];
    dra_error      err = {0};
    for (int i = 0; i < B * N; i++) mark[i] = check_random(&seed) < 0.3 * (i / N) ? PAD : 0;
    for (int kind = 0; kind < 2; kind++) {
        dra_states *s = new_states(p[kind]->state, B);
        read_part(p[kind], s, &(source){N, mark, e}, T, 0, T, NULL, x, y);
        for (int b = 0; b < B; b++) {
            dra_states *single = new_states(p[kind]->state, 1);
            int64_t     n = 0;
            for (int t = 0; t < N; t++) {
                if (!mark[b * N + t]) memcpy(dense + n++ * C, e + (b * N + t) * C, C * sizeof *e);
                for (int c = 0; c < C && mark[b * N + t]; c++) e[(b * N + t) * C + c] = 1000;
            }
            read_part(p[kind], single, &(source){N, mark + b * N, e + b * N * C}, T, 0, T, NULL,
                      x + b * T * C, one);
            assert_memory_equal(one, y + b * T * C, sizeof one);
            assert_int_equal(dra_states_context(s, b), n);
            expect_ok(dra_states_reset(single, 0, &err), &err);
            read_part(p[kind], single, &(source){n, NULL, dense}, T, 0, T, NULL, x + b * T * C,
                      one);
            if (kind == 0) assert_memory_equal(one, y + b * T * C, sizeof one);
            dra_states_destroy(single);
        }
        dra_states_destroy(s);
        close_pair(p[kind]);
    }
    free(x);
    free(e);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Reads the rest of the rows rows[i] after token `at`: y as that of the whole. */
static void expect_rest(const pair *p, dra_states *s, const int64_t *rows, int64_t at,
                        const dra_real *x, const dra_real *y)
{
    const int64_t n = dra_states_batch(s);
    dra_real      own[B * T * C], found[B * T * C];
    for (int64_t i = 0; i < n; i++)
        memcpy(own + i * T * C, x + rows[i] * T * C, (size_t)(T * C) * sizeof *x);
    read_part(p, s, NULL, T, at, T - at, NULL, own, found);
    for (int64_t i = 0; i < n; i++)
        assert_memory_equal(found + (i * T + at) * C, y + (rows[i] * T + at) * C,
                            (size_t)((T - at) * C) * sizeof *y);
    dra_states_destroy(s);
}

static void continues_from_copies_and_files(void **state)
{
    static const int64_t in_order[] = {0, 1, 2}, other[] = {2, 0, 0}, last[] = {2};
    pair                *p = open_pair(true, M, false);
    const source         from = {S, cases[3].mark, NULL};
    uint64_t             seed = 6;
    dra_real            *x = random_reals(&seed, B * T * C), *e = random_reals(&seed, B * S * C);
    dra_real             y[B * T * C];
    for (int64_t at = 1; at < T; at += 4) {
        const source own = {from.n, from.mark, e};
        dra_states  *s = new_states(p->state, B), *t = NULL, *one = new_states(p->state, 1);
        dra_error    err = {0};
        read_part(p, s, &own, T, 0, T, NULL, x, y);
        dra_states_destroy(s);
        s = new_states(p->state, B);
        read_part(p, s, &own, T, 0, at, NULL, x, NULL);
        expect_ok(dra_states_fork(s, &t, &err), &err);
        expect_same_states(t, s);
        expect_rest(p, t, in_order, at, x, y);
        expect_ok(dra_states_gather(s, B, other, &t, &err), &err);
        assert_int_equal(dra_states_context(t, 0), dra_states_context(s, 2));
        expect_rest(p, t, other, at, x, y);
        expect_ok(dra_states_clone(s, reading_device(), &t, &err), &err);
        expect_same_states(t, s);
        expect_rest(p, t, in_order, at, x, y);
        expect_ok(dra_states_copy(one, 0, s, 2, &err), &err);
        expect_rest(p, one, last, at, x, y);
        expect_ok(dra_states_save(s, FINGER, in_folder("s"), &err), &err);
        expect_ok(dra_states_load(reading_device(), p->state, FINGER, in_folder("s"), &t, &err),
                  &err);
        expect_same_states(t, s);
        assert_int_equal(dra_states_bytes(t), dra_states_bytes(s));
        expect_rest(p, t, in_order, at, x, y);
        dra_states_destroy(s);
    }
    free(x);
    free(e);
    close_pair(p);
}

/* Rows with contexts of other sizes, and with none, in one state; copies make room. */
static void rows_have_contexts_of_their_own(void **state)
{
    pair        *p = open_pair(false, 0, false);
    uint64_t     seed = 7;
    dra_real    *x = random_reals(&seed, 2 * C), *e = random_reals(&seed, 2 * MOST * C);
    dra_states  *s = new_states(p->state, B), *a = new_states(p->state, 1), *loaded = NULL;
    dra_states  *b = new_states(p->state, 1);
    dra_error    err = {0};
    dra_real     y[C], items[MOST * C], read[MOST * C];
    const size_t n = MOST * C;
    read_part(p, a, &(source){2, NULL, e}, 1, 0, 1, NULL, x, NULL);
    read_part(p, b, &(source){MOST, NULL, e}, 1, 0, 1, NULL, x, y);
    assert_int_equal(dra_states_held(a), (2 * 64 + 1) * C * sizeof(dra_real));
    assert_int_equal(dra_states_held(b), (2 * 128 + 1) * C * sizeof(dra_real));
    assert_int_equal(dra_states_bytes(b), (2 * MOST + 1) * C * sizeof(dra_real));
    expect_ok(dra_states_copy(s, 0, a, 0, &err), &err);
    expect_ok(dra_states_copy(s, 2, b, 0, &err), &err);
    assert_int_equal(dra_states_context(s, 0), 2);
    assert_int_equal(dra_states_context(s, 1), -1);
    assert_int_equal(dra_states_context(s, 2), MOST);
    assert_int_equal(dra_states_size(s, K, 0), 2 * C);
    assert_int_equal(dra_states_size(s, V, 1), 0);
    expect_ok(dra_states_read(b, V, 0, items, n, &err), &err);
    expect_ok(dra_states_read(s, V, 2, read, n, &err), &err);
    assert_memory_equal(items, read, sizeof items);
    expect_refused(try_read(p, s, NULL, 1, NULL, x, &err), &err, DRA_ERR_VALUE,
                   "reader: row 1 has no context");
    expect_ok(dra_states_save(s, FINGER, in_folder("s"), &err), &err);
    expect_ok(dra_states_load(reading_device(), p->state, FINGER, in_folder("s"), &loaded, &err),
              &err);
    expect_same_states(loaded, s);
    assert_int_equal(dra_states_context(loaded, 1), -1);
    items[5] = 9;
    expect_ok(dra_states_write(loaded, V, 2, items, n, &err), &err);
    expect_ok(dra_states_read(loaded, V, 2, read, n, &err), &err);
    assert_memory_equal(items, read, sizeof items);
    expect_ok(dra_states_copy(loaded, 0, loaded, 1, &err), &err); /* none over one */
    assert_int_equal(dra_states_context(loaded, 0), -1);
    dra_states_difference d;
    expect_refused(dra_states_compare(loaded, s, &d, &err), &err, DRA_ERR_VALUE,
                   "states: row 0 has read 0 tokens and 1, written 0 items and 1");
    expect_ok(dra_states_place(loaded, 0, 1, 1, &err), &err);
    expect_refused(dra_states_compare(loaded, s, &d, &err), &err, DRA_ERR_VALUE,
                   "states: row 0 has a context of -1 items and of 2 (-1: none)");
    dra_states_destroy(loaded);
    dra_states_destroy(s);
    dra_states_destroy(a);
    dra_states_destroy(b);
    free(x);
    free(e);
    close_pair(p);
}

/* What starts over and what stays. */
static void a_reset_drops_it_and_a_mark_does_not(void **state)
{
    pair       *p = open_pair(true, 0, false);
    uint64_t    seed = 8;
    dra_real   *x = random_reals(&seed, B * T * C), *e = random_reals(&seed, B * S * C);
    dra_real    y[B * T * C], again[B * T * C];
    dra_states *s = new_states(p->state, B);
    int32_t     first[B * T] = {0};
    dra_error   err = {0};
    for (int b = 0; b < B; b++) first[b * T] = NEW;
    read_part(p, s, &(source){S, NULL, e}, T, 0, T, NULL, x, y);
    read_part(p, s, NULL, T, 0, T, first, x, again);
    assert_memory_equal(y, again, sizeof y);
    expect_ok(dra_states_place(s, 1, 0, 0, &err), &err); /* starts over, with its context */
    assert_int_equal(dra_states_context(s, 1), S);
    first[T] = 0;
    read_part(p, s, NULL, T, 0, T, first, x, again);
    assert_memory_equal(y, again, sizeof y);
    expect_ok(dra_states_reset(s, 1, &err), &err);
    assert_int_equal(dra_states_context(s, 1), -1);
    assert_int_equal(dra_states_context(s, 0), S);
    expect_refused(try_read(p, s, NULL, 1, NULL, x, &err), &err, DRA_ERR_VALUE,
                   "reader: row 1 has no context");
    expect_ok(dra_states_reset(s, -1, &err), &err);
    assert_int_equal(dra_states_context(s, 0), -1);
    dra_states_destroy(s);
    free(x);
    free(e);
    close_pair(p);
}

/* Larger or smaller than the first; the recurrence continues. */
static void a_second_context_replaces_the_first(void **state)
{
    static const int64_t lengths[] = {3, 80, 66, 1};
    pair                *p = open_pair(true, M, false);
    uint64_t             seed = 9;
    dra_real            *x = random_reals(&seed, B * T * C), *e = random_reals(&seed, B * MOST * C);
    dra_real             y[B * T * C], second[B * T * C];
    dra_states          *s = new_states(p->state, B);
    dra_error            err = {0};
    for (size_t i = 0; i + 1 < COUNT(lengths); i++) {
        dra_states  *alone = new_states(p->state, B);
        const source a = {lengths[i], NULL, e}, b = {lengths[i + 1], NULL, e + 7};
        expect_ok(dra_states_reset(s, -1, &err), &err);
        read_part(p, alone, &b, T, 0, T, NULL, x, y);
        read_part(p, s, &a, T, 0, 5, NULL, x, second);
        read_part(p, s, &b, T, 5, 2, NULL, x, second);
        read_part(p, s, NULL, T, 7, 4, NULL, x, second);
        for (int r = 0; r < B; r++)
            assert_memory_equal(second + (r * T + 5) * C, y + (r * T + 5) * C,
                                (T - 5) * C * sizeof *y);
        assert_true(memcmp(second, y, C * sizeof *y) != 0);
        expect_same_states(s, alone);
        dra_states_destroy(alone);
    }
    dra_states_destroy(s);
    free(x);
    free(e);
    close_pair(p);
}

/* One program reads tokens after contexts of many lengths. */
static void lengths_share_programs(void **state)
{
    pair     *p = open_pair(true, 0, false);
    uint64_t  seed = 10;
    dra_real *x = random_reals(&seed, T * C), *e = random_reals(&seed, MOST * C);
    for (int64_t n = 1; n <= 64; n *= 2) {
        dra_states *s = new_states(p->state, 1);
        read_part(p, s, &(source){n, NULL, e}, T, 0, 1, NULL, x, NULL);
        for (int64_t t = 1; t < T; t++) read_part(p, s, NULL, T, t, 1, NULL, x, NULL);
        dra_states_destroy(s);
    }
    assert_int_equal(dra_reader_programs(p->reader), 7 + 1);
    free(x);
    free(e);
    close_pair(p);
}

/* ---- a whole module -------------------------------------------------------------------------- */

static void a_whole_module_reads_it_in_every_call(void **state)
{
    pair       *p = open_pair(true, M, true);
    uint64_t    seed = 11;
    dra_real   *x = random_reals(&seed, B * T * C), *e = random_reals(&seed, B * S * C);
    dra_real    y[2][B * T * C];
    dra_states *s = new_states(p->state, B);
    dra_error   err = {0};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const source from = {S, cases[i].mark, e};
        for (int k = 0; k < 2; k++) read_part(p, s, &from, T, 0, T, NULL, x, y[k]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        expect_plain(cases[i].name, p, &from, T, NULL, x, y[0]);
        assert_int_equal(dra_states_context(s, 0), -1);
    }
    assert_int_equal(dra_states_bytes(s), B * C * sizeof(dra_real));
    expect_refused(try_read(p, s, NULL, T, NULL, x, &err), &err, DRA_ERR_VALUE,
                   "reader: no context, which the module reads in every call");
    dra_states_destroy(s);
    free(x);
    free(e);
    close_pair(p);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Sum of y u, and its gradients of x, the context and the parameters. */
static void build_slopes(dra_graph *g, void *user, const dra_shape *key, size_t n_key)
{
    const pair             *p = user;
    const dra_context_shape context = dra_context_of_key(&key[1]);
    const dra_module_shape  shape = {
         .B = B, .T = T, .marked = true, .skips = true, .fresh = true, .context = &context};
    dra_value v[PARAMS + 2], dv[PARAMS + 2];
    char      name[DRA_NAME_TEXT];
    dra_module_graph(g, &p->module, &shape, v, NULL, NULL);
    v[PARAMS] = dra_find_input(g, "x"), v[PARAMS + 1] = dra_find_input(g, "source");
    const dra_value u = dra_input(g, "u", DRA_REAL, DRA_SHAPE(B, T, C));
    const dra_value L = dra_sum_all(g, dra_mul(g, dra_find_output(g, "y"), u));
    dra_gradient(g, 1, &L, NULL, PARAMS + 2, v, dv);
    dra_output(g, "L", L);
    for (int i = 0; i < PARAMS + 2; i++) {
        snprintf(name, sizeof name, "d.%d", i);
        if (dv[i].id) dra_output(g, name, dv[i]);
    }
}

typedef struct slopes {
    const pair         *p;
    dra_session        *session;
    dra_extents         tokens;
    dra_context_extents context;
    dra_real           *u, *v[PARAMS + 2]; /* parameters, x, source */
    int64_t             n[PARAMS + 2];
    dra_array          *held[PARAMS];
} slopes;

static void put_reals(const slopes *s, const char *name, const dra_real *x, int64_t n)
{
    dra_error err = {0};
    expect_ok(dra_session_put(s->session, dra_session_name(s->session, name), x,
                              (size_t)n * sizeof *x, &err),
              &err);
}

static dra_real result(const slopes *s, const char *name, int64_t n, dra_real *to)
{
    dra_error      err = {0};
    const dra_span from = dra_session_result(s->session, name);
    dra_real       first;
    assert_int_equal(from.bytes, (size_t)n * sizeof *to);
    expect_ok(dra_array_download(n > 1 ? to : &first, from, &err), &err);
    return n > 1 ? to[0] : first;
}

static double run_slopes(const slopes *s)
{
    const dra_shape   key[] = {DRA_SHAPE(B, T), dra_context_key(&s->context)};
    dra_token_names   names;
    dra_context_names context_names;
    dra_error         err = {0};
    dra_tokens_name(s->session, "tokens", s->p->state, &names);
    dra_context_name(s->session, &context_names);
    expect_ok(dra_session_select(s->session, key, 2, &err), &err);
    expect_ok(dra_extents_put(&s->tokens, s->session, &names, &err), &err);
    expect_ok(dra_context_extents_put(&s->context, B, true, s->session, &context_names, &err),
              &err);
    for (int i = 0; i < PARAMS; i++) {
        const int name = dra_session_name(s->session, dra_specs_at(s->p->params, i)->name);
        expect_ok(dra_array_upload(dra_array_whole(s->held[i]), s->v[i], &err), &err);
        expect_ok(dra_session_bind(s->session, name, dra_array_whole(s->held[i]), &err), &err);
    }
    put_reals(s, "x", s->v[PARAMS], s->n[PARAMS]);
    put_reals(s, "source", s->v[PARAMS + 1], s->n[PARAMS + 1]);
    put_reals(s, "u", s->u, B * T * C);
    expect_ok(dra_session_start(s->session, &err), &err);
    expect_ok(dra_session_finish(s->session, &err), &err);
    return (double)result(s, "L", 1, NULL);
}

/* L with everything moved along a random direction. */
static double moved(const slopes *s, double by, uint64_t seed)
{
    double L = 0;
    for (int back = 0; back < 2; back++) {
        uint64_t own = seed;
        for (int i = 0; i < PARAMS + 2; i++)
            for (int64_t k = 0; k < s->n[i]; k++)
                s->v[i][k] += (dra_real)((back ? -by : by) * (2 * check_random(&own) - 1));
        if (!back) L = run_slopes(s);
    }
    return L;
}

/* The derivative along that direction. */
static double slope(const slopes *s, uint64_t seed)
{
    dra_real d[B * MOST * C];
    char     name[DRA_NAME_TEXT];
    double   sum = 0;
    for (int i = 0; i < PARAMS + 2; i++) {
        snprintf(name, sizeof name, "d.%d", i);
        result(s, name, s->n[i], d);
        for (int64_t k = 0; k < s->n[i]; k++) sum += (double)d[k] * (2 * check_random(&seed) - 1);
    }
    return sum;
}

static slopes open_slopes(pair *p, const int32_t *mark)
{
    slopes    s = {.p = p, .tokens = {.skips = true}};
    uint64_t  seed = 12;
    dra_error err = {0};
    expect_ok(dra_session_create(reading_device(), build_slopes, p, &s.session, &err), &err);
    expect_ok(dra_extents_fill(&s.tokens, p->state, NULL, B, T, token_marks, &err), &err);
    expect_ok(
        dra_context_extents_fill(&s.context, &p->module, B, &(dra_context_text){S, mark}, &err),
        &err);
    for (int i = 0; i < PARAMS; i++) {
        s.n[i] = dra_shape_count(&dra_specs_at(p->params, i)->shape);
        s.v[i] = p->param[i];
        expect_ok(
            dra_array_create(reading_device(), (size_t)s.n[i] * sizeof(dra_real), &s.held[i], &err),
            &err);
    }
    s.n[PARAMS] = B * T * C, s.n[PARAMS + 1] = B * S * C;
    s.v[PARAMS] = random_reals(&seed, s.n[PARAMS]);
    s.v[PARAMS + 1] = random_reals(&seed, s.n[PARAMS + 1]);
    s.u = random_reals(&seed, B * T * C);
    return s;
}

static void close_slopes(slopes *s)
{
    dra_session_destroy(s->session);
    dra_extents_free(&s->tokens);
    dra_context_extents_free(&s->context);
    for (int i = 0; i < PARAMS; i++) dra_array_destroy(s->held[i]);
    free(s->v[PARAMS]);
    free(s->v[PARAMS + 1]);
    free(s->u);
}

static void gradients_are_derivatives(void **state)
{
    const double h = sizeof(dra_real) == 4 ? 1e-2 : 1e-5;
    const double bound = sizeof(dra_real) == 4 ? 1e-2 : 1e-7;
    for (size_t i = 0; i < COUNT(cases); i++) {
        pair  *p = open_pair(true, M, false);
        slopes s = open_slopes(p, i ? cases[i].mark : NULL);
        for (uint64_t seed = 1; seed <= 3; seed++) {
            const double L = run_slopes(&s), expected = slope(&s, seed);
            const double near = moved(&s, h, seed) - moved(&s, -h, seed);
            const double far = moved(&s, 2 * h, seed) - moved(&s, -2 * h, seed);
            const double found = (8 * near - far) / (12 * h);
            if (!(fabs(found - expected) <= bound * (fabs(expected) + fabs(L) + 1)))
                fail_msg("%s: slope is %.10g, gradients say %.10g", cases[i].name, found, expected);
        }
        close_slopes(&s);
        close_pair(p);
    }
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuses_contexts(void **state)
{
    pair       *p = open_pair(true, M, false);
    uint64_t    seed = 13;
    dra_real   *x = random_reals(&seed, B * T * C), *e = random_reals(&seed, B * S * C);
    dra_states *s = new_states(p->state, B), *kept = NULL;
    int32_t     mark[B * S] = {0};
    dra_error   err = {0};
    expect_refused(try_read(p, s, NULL, 1, NULL, x, &err), &err, DRA_ERR_VALUE,
                   "reader: row 0 has no context");
    assert_null(dra_reader_result(p->reader, "y"));
    expect_refused(try_read(p, s, &(source){0, NULL, e}, 1, NULL, x, &err), &err, DRA_ERR_VALUE,
                   "reader: a context of 0 tokens, expected 1 to 2147483645");
    expect_refused(try_read(p, s, &(source){-1, NULL, e}, 1, NULL, x, &err), &err, DRA_ERR_VALUE,
                   "reader: a context of -1 tokens, expected 1 to 2147483645");
    expect_refused(try_read(p, s, &(source){INT32_MAX, NULL, e}, 1, NULL, x, &err), &err,
                   DRA_ERR_VALUE,
                   "reader: a context of 2147483647 tokens, expected 1 to 2147483645");
    for (int32_t what = NEW; what <= 8; what *= 2) {
        char text[128];
        mark[S + 3] = what | PAD;
        snprintf(text, sizeof text,
                 "reader: mark of row 1 of the context, token 3 is %d, expected 0 or 1, a pad",
                 (int)mark[S + 3]);
        expect_refused(try_read(p, s, &(source){S, mark, e}, 1, NULL, x, &err), &err, DRA_ERR_VALUE,
                       text);
    }
    expect_refused(try_read(p, s, &(source){S, NULL, e}, 0, NULL, x, &err), &err, DRA_ERR_VALUE,
                   "reader: 0 tokens, expected 1 or more");
    assert_int_equal(dra_states_context(s, 1), -1);
    read_part(p, s, &(source){S, NULL, e}, T, 0, T, NULL, x, NULL); /* errors leave it as it is */
    expect_ok(dra_states_fork(s, &kept, &err), &err);
    assert_int_equal(try_read(p, s, &(source){MOST, NULL, NULL}, 1, NULL, x, &err), DRA_ERR_VALUE);
    expect_same_states(s, kept);
    dra_states_destroy(kept);
    dra_states_destroy(s);
    free(x);
    free(e);
    close_pair(p);
}

static void build_nothing(dra_graph *g, const void *self, const dra_module_call *call,
                          dra_value *state_out)
{
    const dra_tokens *t = &call->tokens;
    dra_output(g, "y", dra_input(g, "x", DRA_REAL, DRA_SHAPE(t->B, t->T, C)));
    for (int i = 0; i < STATES; i++) state_out[i] = call->state[i];
}

static void refuses_modules(void **state)
{
    pair       *p = open_pair(true, 0, false);
    uint64_t    seed = 14;
    dra_real   *x = random_reals(&seed, C), *e = random_reals(&seed, S * C);
    dra_states *s = new_states(p->state, 1);
    dra_error   err = {0};
    dra_specs_add(p->params, NULL,
                  &(dra_spec){"both", DRA_SHAPE(1), .items = true, .context = true});
    expect_refused(dra_specs_error(p->params, &err), &err, DRA_ERR_VALUE,
                   "tensor both: its items are those of a context or of its own text");
    dra_reader_destroy(p->reader);
    p->module.build = build_nothing;
    expect_ok(dra_reader_create(reading_device(), &p->module, &p->reader, &err), &err);
    expect_ok(dra_reader_start(p->reader, 1, &err), &err);
    expect_refused(try_read(p, s, &(source){S, NULL, e}, 1, NULL, x, &err), &err, DRA_ERR_SHAPE,
                   "module: the items of the context that K holds are not put out");
    dra_reader_destroy(p->reader);
    p->module.context = false;
    expect_ok(dra_reader_create(reading_device(), &p->module, &p->reader, &err), &err);
    expect_ok(dra_reader_start(p->reader, 1, &err), &err);
    expect_refused(try_read(p, s, &(source){S, NULL, e}, 1, NULL, x, &err), &err, DRA_ERR_VALUE,
                   "reader: the module has no context");
    for (int has = 0; has < 2; has++) {
        const dra_context_shape context = {S, S};
        dra_graph              *g = check_graph();
        p->module.context = has;
        dra_module_graph(
            g, &p->module,
            &(dra_module_shape){.B = 1, .T = 1, .fresh = true, .context = has ? NULL : &context},
            NULL, NULL, NULL);
        assert_string_equal(dra_graph_error(g)->text,
                            has ? "module: it has a context, which nothing reads"
                                : "module: it has no context to read");
        dra_graph_destroy(g);
    }
    dra_states_destroy(s);
    free(x);
    free(e);
    close_pair(p);
}

/* ---- damaged files --------------------------------------------------------------------------- */

static const dra_real file_numbers[24] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

/* For rows with two items, one and none. */
static void write_file(const char *context, int64_t items)
{
    const dra_metadata_item meta[] = {
        {"format", "dra-state"}, {"version", "1"},   {"fingerprint", "0000000000000077"},
        {"tokens", "1 1 0"},     {"begin", "0 0 0"}, {"end", "0 0 0"},
        {"context", context},
    };
    const dra_tensor_item tensors[] = {
        {"K", DRA_REAL, DRA_SHAPE(3, items), file_numbers},
        {"h", DRA_REAL, DRA_SHAPE(3, 2), file_numbers},
    };
    dra_error err = {0};
    expect_ok(dra_tensors_write(in_folder("s"), tensors, 2, meta, COUNT(meta) - !context, &err),
              &err);
}

static dra_specs *file_specs(void)
{
    dra_specs *specs = NULL;
    dra_error  err = {0};
    expect_ok(dra_specs_create(&specs, &err), &err);
    dra_specs_add(specs, NULL, &(dra_spec){"K", {0}, .context = true});
    dra_specs_add(specs, NULL, &(dra_spec){"h", DRA_SHAPE(2)});
    return specs;
}

/* Refused by one line that starts with the path, or accepted and fit for use. */
static bool survives(const dra_specs *specs)
{
    dra_states *s = NULL, *copy = NULL;
    dra_error   err = {0};
    if (dra_states_load(reading_device(), specs, FINGER, in_folder("s"), &s, &err) != DRA_OK) {
        assert_null(s);
        assert_true(strncmp(err.text, folder, strlen(folder)) == 0);
        assert_null(strpbrk(err.text, "\n\r\t\033"));
        return false;
    }
    expect_ok(dra_states_fork(s, &copy, &err), &err);
    expect_ok(dra_states_reserve_context(copy, 70, &err), &err);
    expect_same_states(copy, s);
    dra_states_destroy(s);
    dra_states_destroy(copy);
    return true;
}

static void refuses_wrong_files(void **state)
{
    static const struct {
        const char *context;
        int64_t     items;
        dra_status  code;
        const char *text;
    } wrong[] = {
        {NULL, 2, DRA_ERR_FORMAT, ": context is missing, expected 3 numbers"},
        {"2 1", 2, DRA_ERR_FORMAT, ": context is 2 1, expected 3 numbers"},
        {"2 1 -1 0", 2, DRA_ERR_FORMAT, ": context is 2 1 -1 0, expected 3 numbers"},
        {"2 1 -2", 2, DRA_ERR_FORMAT, ": context is 2 1 -2, expected 3 numbers"},
        {"2 1 -10", 2, DRA_ERR_FORMAT, ": context is 2 1 -10, expected 3 numbers"},
        {"2 1 -", 2, DRA_ERR_FORMAT, ": context is 2 1 -, expected 3 numbers"},
        {"2 1 x", 2, DRA_ERR_FORMAT, ": context is 2 1 x, expected 3 numbers"},
        {"2 1 3", 2, DRA_ERR_FORMAT, ": K holds fewer than 3 items"},
        {"2 1 4611686018427387903", 2, DRA_ERR_FORMAT,
         ": K holds fewer than 4611686018427387903 items"},
        {"1 1 -1", 2, DRA_ERR_SHAPE, ": tensor 'K': shape (3, 2), expected (3, 1)"},
        {"-1 -1 -1", 2, DRA_ERR_SHAPE, ": tensor 'K': shape (3, 2), expected (3, 0)"},
    };
    dra_specs  *specs = file_specs();
    dra_states *s = NULL;
    dra_error   err = {0};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        write_file(wrong[i].context, wrong[i].items);
        dra_states_load(reading_device(), specs, FINGER, in_folder("s"), &s, &err);
        check_error(&err, wrong[i].code, "s", wrong[i].text);
        assert_null(s);
    }
    write_file("2 0 -1", 2);
    expect_ok(dra_states_load(reading_device(), specs, FINGER, in_folder("s"), &s, &err), &err);
    assert_int_equal(dra_states_context(s, 0), 2);
    assert_int_equal(dra_states_context(s, 1), 0);
    assert_int_equal(dra_states_context(s, 2), -1);
    dra_states_destroy(s);
    dra_specs_destroy(specs);
}

typedef struct image {
    unsigned char at[2048];
    size_t        n, header;
} image;

static image good_image(void)
{
    image    m = {0};
    uint64_t length;
    write_file("2 1 -1", 2);
    FILE *f = fopen(in_folder("s"), "rb");
    assert_non_null(f);
    m.n = fread(m.at, 1, sizeof m.at, f);
    fclose(f);
    memcpy(&length, m.at, sizeof length);
    m.header = 8 + (size_t)length;
    assert_true(m.header < m.n && m.n < sizeof m.at);
    return m;
}

static void survives_damaged_files(void **state)
{
    dra_specs  *specs = file_specs();
    const image m = good_image();
    const int   fd = open(in_folder("s"), O_WRONLY);
    int         accepted = 0;
    assert_true(fd >= 0);
    for (size_t i = 0; i < m.header; i++) {
        for (int byte = 0; byte < 256; byte += byte < 128 ? 1 : 17) {
            const unsigned char other = (unsigned char)byte;
            assert_int_equal(pwrite(fd, &other, 1, (off_t)i), 1);
            accepted += survives(specs) && other != m.at[i];
        }
        assert_int_equal(pwrite(fd, &m.at[i], 1, (off_t)i), 1);
    }
    assert_in_range(accepted, 1, 128 * 16); /* numbers that fit as well */
    assert_true(survives(specs));
    for (size_t n = m.n; n-- > 0;) {
        assert_int_equal(ftruncate(fd, (off_t)n), 0);
        assert_false(survives(specs));
    }
    close(fd);
    dra_specs_destroy(specs);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void measures_a_context(void **state)
{
    pair       *p = open_pair(true, M, false);
    uint64_t    seed = 15;
    dra_real   *x = random_reals(&seed, B * T * C);
    dra_states *s = new_states(p->state, B);
    size_t      bytes = 0;
    dra_error   err = {0};
    expect_ok(dra_reader_measure(p->reader, B, T, true, &bytes, &err), &err);
    assert_int_equal(bytes, B * (2 * 64 + 1) * C * sizeof(dra_real));
    assert_int_equal(dra_reader_programs(p->reader), 1);
    read_part(p, s, &(source){T, (int32_t[B * T]){0}, x}, T, 0, T, (int32_t[B * T]){0}, x, NULL);
    assert_int_equal(dra_reader_programs(p->reader), 1);
    assert_int_equal(dra_states_held(s), bytes);
    dra_states_destroy(s);
    free(x);
    close_pair(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_see_the_context),
        cmocka_unit_test(one_call_equals_parts),
        cmocka_unit_test(rows_are_alone),
        cmocka_unit_test(continues_from_copies_and_files),
        cmocka_unit_test(rows_have_contexts_of_their_own),
        cmocka_unit_test(a_reset_drops_it_and_a_mark_does_not),
        cmocka_unit_test(a_second_context_replaces_the_first),
        cmocka_unit_test(lengths_share_programs),
        cmocka_unit_test(a_whole_module_reads_it_in_every_call),
        cmocka_unit_test(gradients_are_derivatives),
        cmocka_unit_test(refuses_contexts),
        cmocka_unit_test(refuses_modules),
        cmocka_unit_test(refuses_wrong_files),
        cmocka_unit_test(survives_damaged_files),
        cmocka_unit_test(measures_a_context),
    };
    return cmocka_run_group_tests_name("context", tests, folder_make, folder_remove);
}
