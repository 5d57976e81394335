/* Start vectors: the same as passing them by hand; whole = parts = resumed from a file or a fork,
 * bit for bit, with pads, resets and rows that start at different times; gradients. The module has
 * items of two limits, rotary, a shift and a recurrence; or it is an encoder. */
#include "base/shape.h"
#include "file/folder.h"
#include "reading.h"
#include "slopes.h"

enum { C = 4, B = 3, T = 24, M = 3, MOST = T * (1 + M) };
enum { START, W_Q, W_K, W_V, BETA, PARAMS };
enum { K, V, K_3, V_3, MEAN, LAST };

typedef struct prefix {
    dra_specs  *params, *state;
    dra_module  module;
    dra_reader *reader;
    dra_real   *param[PARAMS];
} prefix;

/* ---- the module ------------------------------------------------------------------------------ */

static dra_value one_head(dra_graph *g, dra_value x)
{
    const dra_shape s = dra_shape_of(g, x);
    return dra_reshape(g, x, DRA_SHAPE(s.dim[0], 1, s.dim[1], s.dim[2]));
}

/* Items of state i, those of this call included. */
static dra_value append(dra_graph *g, const dra_module_call *call, int i, int64_t limit,
                        dra_value items, dra_value *state_out)
{
    const dra_tokens *t = &call->tokens;
    if (t->whole || (t->fresh && !t->mark.id)) return items;
    const dra_value none = dra_broadcast(g, dra_number(g, 0), dra_shape_of(g, items));
    return state_out[i] = dra_write_rows(g, t->fresh ? none : call->state[i], items,
                                         dra_tokens_items(t, limit)->at);
}

static dra_value attend(dra_graph *g, const dra_module_call *call, int i, int64_t limit,
                        const dra_value qkv[3], dra_value *state_out)
{
    const dra_tokens      *t = &call->tokens;
    const dra_token_items *items = dra_tokens_items(t, limit);
    dra_attend_config      config = {.lo = t->whole ? t->lo : items->lo,
                                     .hi = t->whole ? t->hi : items->hi};
    const dra_value        keys = append(g, call, i, limit, qkv[1], state_out);
    const dra_value        values = append(g, call, i + 1, limit, qkv[2], state_out);
    if (t->seen.id) config.mask = dra_reshape(g, t->seen, DRA_SHAPE(t->B, 1, 1, t->T));
    return dra_reshape(
        g, dra_attend(g, one_head(g, qkv[0]), one_head(g, keys), one_head(g, values), &config),
        dra_shape_of(g, qkv[0]));
}

static dra_value rotate(dra_graph *g, const dra_tokens *t, dra_value x)
{
    return dra_reshape(g, dra_rotary(g, one_head(g, x), t->pos, NULL), dra_shape_of(g, x));
}

/* Everything that depends on where a token is. */
static dra_value layer(dra_graph *g, const dra_module_call *call, dra_value h, dra_value *state_out)
{
    const dra_tokens *t = &call->tokens;
    const dra_value   none = {0};
    dra_value         after, mean;
    const dra_value   shifted = dra_tokens_shift(g, t, h, t->fresh ? none : call->state[LAST],
                                                 &after);
    const dra_value   x = dra_add(g, h, dra_affine(g, shifted, 0.5, 0));
    const dra_value   qkv[] = {rotate(g, t, dra_linear(g, x, call->param[W_Q], none)),
                               rotate(g, t, dra_linear(g, x, call->param[W_K], none)),
                               dra_linear(g, x, call->param[W_V], none)};
    dra_value         y = dra_add(g, attend(g, call, K, 0, qkv, state_out), shifted);
    const dra_value m = dra_ema(g, h, call->param[BETA], none, t->fresh ? none : call->state[MEAN],
                                t->writes, &mean);
    y = dra_add(g, y, dra_reshape(g, m, dra_shape_of(g, h)));
    if (t->whole) return dra_tokens_zero_pads(g, t, y);
    y = dra_add(g, y, attend(g, call, K_3, 3, qkv, state_out));
    state_out[MEAN] = mean, state_out[LAST] = after;
    return dra_tokens_zero_pads(g, t, y);
}

static void build_prefix(dra_graph *g, const void *self, const dra_module_call *call,
                         dra_value *state_out)
{
    const dra_tokens *t = &call->tokens;
    const dra_shape   column = DRA_SHAPE(t->B, t->given, 1);
    dra_value         x = dra_input(g, "x", DRA_REAL, DRA_SHAPE(t->B, t->given, C));
    const dra_value   place = dra_reshape(g, dra_cast(g, t->place, DRA_REAL), column);
    if (t->start) x = dra_add(g, x, dra_affine(g, place, 0.0625, 0)); /* a learned position */
    const dra_value y = layer(g, call, dra_tokens_insert_prefix(g, t, call->param[START], x),
                              state_out);
    dra_output(g, "y", dra_tokens_drop_prefix(g, t, y));
    if (t->take.id) dra_output(g, "inner", y);
}

static prefix open_prefix(bool whole, int64_t start)
{
    static const char *const names[] = {"start", "W_q", "W_k", "W_v", "beta"};
    static const char *const states[] = {"K", "V", "K_3", "V_3", "mean", "last"};
    prefix                   p = {0};
    dra_error                err = {0};
    expect_ok(dra_specs_create(&p.params, &err), &err);
    expect_ok(dra_specs_create(&p.state, &err), &err);
    for (int i = 0; i < PARAMS; i++) {
        const int64_t rows = i == START ? M : i == BETA ? 1 : C;
        dra_specs_add(p.params, NULL,
                      &(dra_spec){names[i], DRA_SHAPE(rows, C), DRA_FILL_NORMAL, 0.8});
    }
    for (int i = 0; i <= LAST && !whole; i++)
        dra_specs_add(p.state, NULL,
                      &(dra_spec){states[i], i == MEAN ? DRA_SHAPE(1, C) : DRA_SHAPE(C),
                                  .items = i < MEAN, .limit = i == K_3 || i == V_3 ? 3 : 0});
    p.module = (dra_module){p.params, p.state, build_prefix, NULL, whole, start};
    expect_ok(dra_reader_create(reading_device(), &p.module, &p.reader, &err), &err);
    expect_ok(dra_reader_start(p.reader, 1, &err), &err);
    for (int i = 0; i < PARAMS; i++) {
        p.param[i] = malloc((size_t)dra_shape_count(&dra_specs_at(p.params, i)->shape) *
                            sizeof *p.param[i]);
        assert_non_null(p.param[i]);
        dra_specs_fill(p.params, i, 1, p.param[i]);
    }
    return p;
}

static void close_prefix(prefix *p)
{
    dra_reader_destroy(p->reader);
    dra_specs_destroy(p->params);
    dra_specs_destroy(p->state);
    for (int i = 0; i < PARAMS; i++) free(p->param[i]);
}

static void read_part(const prefix *p, dra_states *s, int64_t n, const int32_t *mark,
                      const dra_real *x, dra_real *y)
{
    read_tokens(&(reading){NULL, &p->module, p->reader, C}, s, n, mark, x, y);
}

/* ---- marks and rows -------------------------------------------------------------------------- */

enum { PLAIN, RAGGED, PACKED, SKIPPED, KINDS }; /* of marks */

static const int32_t *make_marks(int kind, uint64_t *seed, int32_t *mark)
{
    for (int i = 0; i < B * T; i++) {
        const int b = i / T, t = i % T;
        mark[i] = kind == RAGGED && t >= T - 5 * b ? DRA_MARK_PAD : 0;
        if (kind < PACKED) continue;
        if (check_random(seed) < 0.25) mark[i] |= DRA_MARK_PAD;
        if (check_random(seed) < 0.15 * b) mark[i] |= DRA_MARK_RESET;
        if (kind == SKIPPED && check_random(seed) < 0.3) mark[i] |= DRA_MARK_SKIP;
    }
    return kind == PLAIN ? NULL : mark;
}

/* Tokens first .. first + n - 1 of (B, T, each). */
static void *cut(const void *from, size_t each, int64_t first, int64_t n)
{
    unsigned char *to = malloc((size_t)(B * n) * each);
    assert_non_null(to);
    for (int64_t b = 0; b < B; b++)
        memcpy(to + (size_t)(b * n) * each,
               (const unsigned char *)from + (size_t)(b * T + first) * each, (size_t)n * each);
    return to;
}

typedef struct by_hand { /* all rows with start vectors as tokens */
    int64_t  n;
    int32_t  mark[B * MOST];
    dra_real x[B * MOST * C];
    int64_t  at[B * T]; /* where a given token is */
} by_hand;

/* One row of it; returns its length. */
static int64_t put_row(by_hand *h, const prefix *p, int b, const int32_t *mark, const dra_real *x)
{
    int64_t  n = 0, place = 0;
    int32_t *what = h->mark + b * MOST;
    bool     begun = false;
    for (int t = 0; t < T; t++) {
        const int32_t own = mark ? mark[b * T + t] : 0;
        const bool    pad = own & DRA_MARK_PAD, reset = own & DRA_MARK_RESET, all = p->module.whole;
        if (reset || (all && t == 0)) begun = false, place = 0;
        what[n] = own;
        if (!begun && (all || !pad)) {
            for (int m = 0; m < M; m++, n++) {
                what[n] = m ? 0 : own & DRA_MARK_RESET;
                memcpy(h->x + (b * MOST + n) * C, p->param[START] + m * C, C * sizeof(dra_real));
            }
            begun = true;
            what[n] = own & ~DRA_MARK_RESET;
        }
        for (int c = 0; c < C; c++)
            h->x[(b * MOST + n) * C + c] = x[(b * T + t) * C + c] +
                                           (dra_real)(pad && !all ? 0 : place) / 16;
        place += all || !pad;
        h->at[b * T + t] = n++;
    }
    return n;
}

/* Rows close together, of equal length: pads at their ends. */
static by_hand *put_by_hand(const prefix *p, const int32_t *mark, const dra_real *x)
{
    by_hand *h = calloc(1, sizeof *h);
    int64_t  n[B];
    assert_non_null(h);
    for (int b = 0; b < B; b++) {
        n[b] = put_row(h, p, b, mark, x);
        h->n = dra_imax(h->n, n[b]);
    }
    for (int b = 0; b < B; b++) {
        for (int64_t t = n[b]; t < h->n; t++) h->mark[b * MOST + t] = DRA_MARK_PAD;
        memmove(h->mark + b * h->n, h->mark + b * MOST, (size_t)h->n * sizeof *h->mark);
        memmove(h->x + b * h->n * C, h->x + b * MOST * C, (size_t)(h->n * C) * sizeof *h->x);
    }
    return h;
}

static void expect_same_tensors(const dra_states *a, const dra_states *b)
{
    for (int i = 0; i < dra_specs_count(a->specs); i++)
        for (int64_t r = 0; r < B; r++) {
            const size_t n = dra_states_size(a, i, r);
            dra_real     x[MOST * C], y[MOST * C];
            dra_error    err = {0};
            assert_int_equal(dra_states_size(b, i, r), n);
            expect_ok(dra_states_read(a, i, r, x, n, &err), &err);
            expect_ok(dra_states_read(b, i, r, y, n, &err), &err);
            check_reals(x, y, n * sizeof *x);
        }
}

/* ---- equalities ------------------------------------------------------------------------------ */

static void expect_by_hand(bool whole, int kind)
{
    prefix         p = open_prefix(whole, M), plain = open_prefix(whole, 0);
    uint64_t       seed = 11;
    int32_t        room[B * T];
    const int32_t *mark = make_marks(kind, &seed, room);
    dra_real      *x = random_reals(&seed, B * T * C), y[B * T * C], *all;
    by_hand       *h = put_by_hand(&p, mark, x);
    dra_states    *s = new_states(p.state, B), *other = new_states(plain.state, B);
    all = random_reals(&seed, B * h->n * C);
    read_part(&p, s, T, mark, x, y);
    read_part(&plain, other, h->n, h->mark, h->x, all);
    for (int i = 0; i < B * T; i++)
        check_reals(y + i * C, all + (i / T * h->n + h->at[i]) * C, C * sizeof *y);
    if (!whole) expect_same_tensors(s, other);
    free(x);
    free(h);
    free(all);
    dra_states_destroy(s);
    dra_states_destroy(other);
    close_prefix(&p);
    close_prefix(&plain);
}

static void equal_tokens_passed_by_hand(void **state)
{
    for (int kind = 0; kind < KINDS; kind++) expect_by_hand(false, kind);
}

static void encoders_equal_tokens_passed_by_hand(void **state)
{
    for (int kind = 0; kind < KINDS; kind++) expect_by_hand(true, kind);
}

/* Through a file and back, or as a fork. */
static dra_states *resume(const prefix *p, dra_states *s, bool file)
{
    dra_states *other = NULL;
    dra_error   err = {0};
    const char *path = in_folder("start.state");
    if (file) {
        expect_ok(dra_states_save(s, 5, path, &err), &err);
        expect_ok(dra_states_load(reading_device(), p->state, 5, path, &other, &err), &err);
    } else {
        expect_ok(dra_states_fork(s, &other, &err), &err);
    }
    dra_states_destroy(s);
    return other;
}

/* Parts of random lengths, at most `most`. */
static void expect_parts(const prefix *p, const int32_t *mark, const dra_real *x, const dra_real *y,
                         const dra_states *whole, int64_t most, uint64_t *seed)
{
    dra_states *s = new_states(p->state, B);
    for (int64_t first = 0, n; first < T; first += n) {
        n = 1 + (int64_t)(check_random(seed) * (double)most);
        if (n > T - first) n = T - first;
        dra_real *part = cut(x, C * sizeof *x, first, n);
        dra_real *expected = cut(y, C * sizeof *y, first, n);
        int32_t  *m = mark ? cut(mark, sizeof *mark, first, n) : NULL;
        dra_real *found = random_reals(seed, B * n * C);
        read_part(p, s, n, m, part, found);
        check_reals(found, expected, (size_t)(B * n * C) * sizeof *y);
        if (check_random(seed) < 0.4) s = resume(p, s, check_random(seed) < 0.5);
        free(part);
        free(expected);
        free(m);
        free(found);
    }
    expect_same_states(s, whole);
    dra_states_destroy(s);
}

static void parts_are_the_whole(void **state)
{
    prefix   p = open_prefix(false, M);
    uint64_t seed = 21;
    for (int kind = 0; kind < KINDS; kind++)
        for (int64_t most = 1; most <= 9; most += 4) {
            int32_t        room[B * T];
            const int32_t *mark = make_marks(kind, &seed, room);
            dra_real      *x = random_reals(&seed, B * T * C), y[B * T * C];
            dra_states    *s = new_states(p.state, B);
            read_part(&p, s, T, mark, x, y);
            expect_parts(&p, mark, x, y, s, most, &seed);
            free(x);
            dra_states_destroy(s);
        }
    close_prefix(&p);
}

/* Row 1 starts over between calls, row 2 waits for its first token: rows alone say the same. */
static void rows_start_at_different_times(void **state)
{
    prefix        p = open_prefix(false, M);
    uint64_t      seed = 31;
    const int32_t mark[] = {0, 0, 0, 0, DRA_MARK_PAD, DRA_MARK_PAD};
    dra_real     *x = random_reals(&seed, B * 4 * C), y[B * 2 * C], one[4 * C];
    dra_states   *s = new_states(p.state, B), *alone = new_states(p.state, 1);
    dra_error     err = {0};
    read_part(&p, s, 2, mark, x, NULL);
    assert_int_equal(dra_states_items(s, 2), 0);
    expect_ok(dra_states_reset(s, 1, &err), &err);
    read_part(&p, s, 2, NULL, x + B * 2 * C, y); /* no marks, but rows of 2 and of 2 + M tokens */
    for (int b = 0; b < B; b++) {
        const dra_real *now = x + (B * 2 + b * 2) * C;
        expect_ok(dra_states_reset(alone, -1, &err), &err);
        if (b == 0) read_part(&p, alone, 2, NULL, x, NULL);
        read_part(&p, alone, 2, NULL, now, one);
        check_reals(one, y + b * 2 * C, 2 * C * sizeof *y);
        assert_int_equal(dra_states_tokens(s, b), b == 0 ? 4 : 2);
        assert_int_equal(dra_states_items(s, b), M + (b == 0 ? 4 : 2));
    }
    free(x);
    dra_states_destroy(s);
    dra_states_destroy(alone);
    close_prefix(&p);
}

/* A token at a time: one program with the start, one without, until items need more room. */
static void later_calls_have_no_start(void **state)
{
    prefix      p = open_prefix(false, M);
    uint64_t    seed = 41;
    dra_real   *x = random_reals(&seed, C);
    dra_states *s = new_states(p.state, 1);
    dra_shape   shape;
    for (int t = 0; t < 16 - M; t++) {
        read_part(&p, s, 1, NULL, x, NULL);
        assert_int_equal(dra_reader_result_shape(p.reader, "inner", &shape), t == 0);
    }
    assert_int_equal(dra_reader_programs(p.reader), 2);
    free(x);
    dra_states_destroy(s);
    close_prefix(&p);
}

/* Rooms for starts are powers of two. */
static void few_programs_for_many_starts(void **state)
{
    prefix      p = open_prefix(false, M);
    uint64_t    seed = 51;
    dra_real   *x = random_reals(&seed, B * T * C);
    dra_states *s = new_states(p.state, B);
    dra_error   err = {0};
    dra_shape   shape;
    for (int n = 1; n <= T; n++) {
        int32_t mark[B * T] = {0};
        for (int t = 0; t < n; t++) mark[T + t] = DRA_MARK_RESET;
        expect_ok(dra_states_reset(s, -1, &err), &err);
        expect_ok(dra_states_reserve(s, 8 * T, &err), &err);
        read_part(&p, s, T, mark, x, NULL);
        assert_true(dra_reader_result_shape(p.reader, "inner", &shape));
        if (n == 3) assert_int_equal(shape.dim[1], T + 4 * M);
        assert_int_equal(dra_states_tokens(s, 1), T - n + 1);
    }
    assert_int_equal(dra_reader_programs(p.reader), 6); /* 1, 2, 4, 8, 16, 32 */
    free(x);
    dra_states_destroy(s);
    close_prefix(&p);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static double upstream(const void *user, int i, int64_t b, int64_t k)
{
    uint64_t seed = (uint64_t)(1 + i * 7919 + b * 104729 + k * 31);
    return 2 * check_random(&seed) - 1;
}

static trial make_trial(const prefix *p, const int32_t *mark, const dra_real *x, const dra_real *u,
                        const dra_states *s)
{
    return (trial){.module = &p->module,
                   .device = reading_device(),
                   .B = B,
                   .T = T,
                   .C = C,
                   .mark = mark,
                   .x = x,
                   .u = u,
                   .param = p->param,
                   .start = s,
                   .us = upstream};
}

/* Chunks against the whole: y and state bit for bit, gradients up to the order of sums. */
static void gradients_through_chunks(void **state)
{
    static const int64_t chunks[][6] = {{1, 4, 2, 9, 1, 7}, {5, 5, 5, 5, 3, 1}};
    prefix               p = open_prefix(false, M);
    uint64_t             seed = 61;
    for (int kind = 0; kind < KINDS; kind++) {
        int32_t        room[B * T];
        const int32_t *mark = make_marks(kind, &seed, room);
        dra_real      *x = random_reals(&seed, B * T * C), *u = random_reals(&seed, B * T * C);
        dra_states    *s = new_states(p.state, B);
        const trial    t = make_trial(&p, mark, x, u, s);
        outcome        whole, parts;
        trial_run(&t, 0, NULL, &whole);
        for (size_t i = 0; i < COUNT(chunks); i++) {
            trial_run(&t, 6, chunks[i], &parts);
            const outcome_difference d = outcome_compare(&t, &parts, &whole);
            assert_true(check_cuda() ? d.value <= 1e-5 : d.same);
            if (!(d.gradient <= (sizeof(dra_real) == 4 ? 1e-5 : 1e-12)))
                fail_msg("kind %d: %s differs by %g", kind, d.where, d.gradient);
            outcome_free(&t, &parts);
        }
        outcome_free(&t, &whole);
        free(x);
        free(u);
        dra_states_destroy(s);
    }
    close_prefix(&p);
}

static void expect_derivatives(bool whole, bool fresh)
{
    prefix   p = open_prefix(whole, M);
    uint64_t seed = 71;
    for (int kind = 0; kind < KINDS; kind++) {
        int32_t        room[B * T];
        const int32_t *mark = make_marks(kind, &seed, room);
        dra_real      *x = random_reals(&seed, B * T * C), *u = random_reals(&seed, B * T * C);
        dra_states    *s = new_states(p.state, B);
        trial          t = make_trial(&p, mark, x, u, s);
        t.fresh = fresh;
        expect_slopes(&t);
        free(x);
        free(u);
        dra_states_destroy(s);
    }
    close_prefix(&p);
}

static void gradients_are_derivatives(void **state)
{
    expect_derivatives(false, false);
    expect_derivatives(false, true);
    expect_derivatives(true, true);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void refuses_too_many_tokens(void **state)
{
    prefix          p = open_prefix(false, M);
    dra_states     *s = new_states(p.state, 1);
    const dra_real  x[2 * C] = {0};
    const dra_named in = {"x", x, C * sizeof *x}, two = {"x", x, sizeof x};
    dra_error       err = {0};
    expect_ok(dra_states_place(s, 0, INT32_MAX - 1 - M, 5, &err), &err);
    expect_refused(dra_reader_read(p.reader, s, 2, NULL, 1, &two, &err), &err, DRA_ERR_VALUE,
                   "reader: row 0 has read 2147483643 tokens: too many");
    expect_ok(dra_reader_read(p.reader, s, 1, NULL, 1, &in, &err), &err);
    assert_int_equal(dra_states_items(s, 0), 6);
    expect_refused(dra_reader_read(p.reader, s, 1, NULL, 1, &in, &err), &err, DRA_ERR_VALUE,
                   "reader: row 0 has read 2147483644 tokens: too many");
    dra_states_destroy(s);
    close_prefix(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_tokens_passed_by_hand),
        cmocka_unit_test(encoders_equal_tokens_passed_by_hand),
        cmocka_unit_test(parts_are_the_whole),
        cmocka_unit_test(rows_start_at_different_times),
        cmocka_unit_test(later_calls_have_no_start),
        cmocka_unit_test(few_programs_for_many_starts),
        cmocka_unit_test(gradients_through_chunks),
        cmocka_unit_test(gradients_are_derivatives),
        cmocka_unit_test(refuses_too_many_tokens),
    };
    return cmocka_run_group_tests_name("start", tests, folder_make, folder_remove);
}
