/* Contexts: tokens that see a second text. One call = parts = resumed from a file, a fork or a
 * gather, bit for bit; ragged contexts, start vectors, a second context, whole modules; what is
 * refused. */
#include "file/folder.h"
#include "pair.h"

static const uint64_t FINGER = 0x77;

/* ---- what is read ---------------------------------------------------------------------------- */

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
                check_reals(y, parts, sizeof y);
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
            check_reals(one, y + b * T * C, sizeof one);
            assert_int_equal(dra_states_context(s, b), n);
            expect_ok(dra_states_reset(single, 0, &err), &err);
            read_part(p[kind], single, &(source){n, NULL, dense}, T, 0, T, NULL, x + b * T * C,
                      one);
            if (kind == 0) check_reals(one, y + b * T * C, sizeof one);
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
        check_reals(found + (i * T + at) * C, y + (rows[i] * T + at) * C,
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
    check_reals(items, read, sizeof items);
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
    check_reals(items, read, sizeof items);
    expect_ok(dra_states_copy(loaded, 0, loaded, 1, &err), &err); /* none over one */
    assert_int_equal(dra_states_context(loaded, 0), -1);
    dra_states_difference d = {.same = true};
    expect_refused(dra_states_compare(loaded, s, &d, &err), &err, DRA_ERR_VALUE,
                   "states: row 0 has read 0 tokens and 1, written 0 items and 1");
    assert_false(d.same);
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
    check_reals(y, again, sizeof y);
    expect_ok(dra_states_place(s, 1, 0, 0, &err), &err); /* starts over, with its context */
    assert_int_equal(dra_states_context(s, 1), S);
    first[T] = 0;
    read_part(p, s, NULL, T, 0, T, first, x, again);
    check_reals(y, again, sizeof y);
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
    dra_real   *x = random_reals(&seed, B * T * C), *e = random_reals(&seed, B * MOST * C + 7);
    dra_real    y[B * T * C], second[B * T * C];
    dra_states *s = new_states(p->state, B);
    dra_error   err = {0};
    for (size_t i = 0; i + 1 < COUNT(lengths); i++) {
        dra_states  *alone = new_states(p->state, B);
        const source a = {lengths[i], NULL, e}, b = {lengths[i + 1], NULL, e + 7};
        expect_ok(dra_states_reset(s, -1, &err), &err);
        read_part(p, alone, &b, T, 0, T, NULL, x, y);
        read_part(p, s, &a, T, 0, 5, NULL, x, second);
        read_part(p, s, &b, T, 5, 2, NULL, x, second);
        read_part(p, s, NULL, T, 7, 4, NULL, x, second);
        for (int r = 0; r < B; r++)
            check_reals(second + (r * T + 5) * C, y + (r * T + 5) * C, (T - 5) * C * sizeof *y);
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
        check_reals(y[0], y[1], sizeof y[0]);
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
        cmocka_unit_test(refuses_contexts),
        cmocka_unit_test(refuses_modules),
        cmocka_unit_test(measures_a_context),
    };
    return cmocka_run_group_tests_name("context", tests, folder_make, folder_remove);
}
