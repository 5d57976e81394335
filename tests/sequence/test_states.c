/* The state of B sequences without any graph: items are written here by hand, and a plain list of
 * what must be live says what is right. */
#include "reading.h"

#include <math.h>

#include "sequence/states.h"

enum { H, K, W, LIMIT = 5 }; /* a fixed state, items, items in a window */

static dra_specs *specs; /* H (3), starts as 0.5; K (2); W () */

static void open_specs(void)
{
    dra_error err = {0};
    expect_ok(dra_specs_create(&specs, &err), &err);
    dra_specs_add(specs, NULL, &(dra_spec){"h", DRA_SHAPE(3), .number = 0.5});
    dra_specs_add(specs, NULL, &(dra_spec){"K", DRA_SHAPE(2), .items = true});
    dra_specs_add(specs, NULL, &(dra_spec){"W", {0}, .items = true, .limit = LIMIT});
}

/* ---- items by hand --------------------------------------------------------------------------- */

/* What element e of token number n of a row is: unlike all others. */
static dra_real token_value(int64_t row, int64_t n, int64_t e)
{
    return (dra_real)((double)(1000 * n + 10 * row + e) / 16);
}

typedef struct story { /* of one row: the tokens that are live */
    int64_t first, next;
} story;

enum { MOST_SIZE = 64 }; /* numbers of an item */

/* One call of T tokens as a reader makes it: room, items, counts. */
static void call(dra_states *s, int64_t T, const int32_t *mark, story *told)
{
    dra_error err = {0};
    expect_ok(dra_states_reserve(s, T, &err), &err);
    for (int64_t b = 0; b < s->B; b++) {
        int64_t end = s->end[b];
        for (int64_t t = 0; t < T; t++) {
            const int32_t what = mark ? mark[b * T + t] : 0;
            if (what & DRA_MARK_RESET) told[b].first = told[b].next;
            if (what & DRA_MARK_PAD) continue;
            for (int i = K; i <= W; i++) {
                const dra_held *h = &s->at[i];
                assert_in_range(end - h->base[b], 0, h->rows - 1);
                const int64_t row = b * h->rows + end - h->base[b];
                dra_real      item[MOST_SIZE];
                const size_t  bytes = (size_t)h->size * sizeof *item;
                assert_in_range(h->size, 0, MOST_SIZE);
                for (int64_t e = 0; e < h->size; e++) item[e] = token_value(b, told[b].next, e);
                expect_ok(dra_array_upload(
                              dra_span_part(dra_states_span(s, i), (size_t)row * bytes, bytes),
                              item, &err),
                          &err);
            }
            told[b].next++;
            end++;
        }
    }
    dra_states_advance(s, 0, T, mark);
}

/* Row `at` of s is that of row `row` in the story. */
static void expect_row(const dra_states *s, int64_t at, int64_t row, const story *told)
{
    const int64_t n = told->next - told->first, kept = n < LIMIT ? n : LIMIT;
    dra_real     *v = malloc((size_t)(2 * n + 1) * sizeof *v);
    dra_error     err = {0};
    assert_non_null(v);
    assert_int_equal(dra_states_items(s, at), n);
    assert_int_equal(dra_states_tokens(s, at), n);
    assert_int_equal(dra_states_size(s, K, at), 2 * n);
    assert_int_equal(dra_states_size(s, W, at), kept);
    expect_ok(dra_states_read(s, K, at, v, (size_t)(2 * n), &err), &err);
    for (int64_t k = 0; k < 2 * n; k++)
        assert_true(v[k] == token_value(row, told->first + k / 2, k % 2));
    expect_ok(dra_states_read(s, W, at, v, (size_t)kept, &err), &err);
    for (int64_t k = 0; k < kept; k++)
        assert_true(v[k] == token_value(row, told->next - kept + k, 0));
    free(v);
}

/* Two rows: 70 tokens, and 70 of which the last 3 came after a reset; h is set by row. */
static dra_states *two_rows(story told[2])
{
    dra_states *s = new_states(specs, 2);
    dra_error   err = {0};
    told[0] = told[1] = (story){0};
    call(s, 67, NULL, told);
    call(s, 3, (int32_t[]){0, 0, 0, DRA_MARK_RESET, 0, 0}, told);
    for (int64_t b = 0; b < 2; b++) {
        const dra_real h[3] = {(dra_real)b, 2, 3};
        expect_ok(dra_states_write(s, H, b, h, 3, &err), &err);
    }
    return s;
}

/* ---- making ---------------------------------------------------------------------------------- */

static void starts_at_the_beginning(void **state)
{
    dra_states *s = new_states(specs, 2);
    dra_error   err = {0};
    dra_real    h[3];
    assert_int_equal(dra_states_batch(s), 2);
    for (int64_t b = 0; b < 2; b++) {
        expect_row(s, b, b, &(story){0});
        expect_ok(dra_states_read(s, H, b, h, 3, &err), &err);
        for (int i = 0; i < 3; i++) assert_true(h[i] == (dra_real)0.5);
    }
    assert_int_equal(dra_states_bytes(s), 2 * 3 * sizeof(dra_real));
    assert_int_equal(dra_states_held(s), 2 * 3 * sizeof(dra_real));
    dra_states_destroy(s);
    dra_states_destroy(NULL);
}

static void refuses_impossible_batches(void **state)
{
    dra_error   err = {0};
    dra_states *s = (dra_states *)specs;
    expect_refused(dra_states_create(reading_device(), specs, -1, &s, &err), &err, DRA_ERR_VALUE,
                   "states: -1 sequences, expected 0 or more");
    assert_null(s);
    expect_refused(dra_states_create(reading_device(), specs, INT64_MAX, &s, &err), &err,
                   DRA_ERR_MEMORY, "states: out of memory");
    assert_null(s);
    assert_int_equal(dra_states_create(reading_device(), specs, INT64_MAX / 8, &s, NULL),
                     DRA_ERR_MEMORY);
}

/* A graph's tensors have B as their first axis, items a number of rows as the second. */
static void refuses_too_many_axes(void **state)
{
    for (int items = 0; items < 2; items++) {
        dra_specs  *list = NULL;
        dra_states *s = NULL;
        dra_error   err = {0};
        expect_ok(dra_specs_create(&list, &err), &err);
        dra_specs_add(list, NULL, &(dra_spec){"q", DRA_SHAPE(1, 1, 1, 1), .items = items});
        expect_ok(dra_states_create(reading_device(), list, 1, &s, &err), &err);
        dra_states_destroy(s);
        dra_specs_add(list, NULL,
                      &(dra_spec){"w",
                                  items ? DRA_SHAPE(1, 1, 1, 1, 1) : DRA_SHAPE(1, 1, 1, 1, 1, 1),
                                  .items = items});
        expect_refused(dra_states_create(reading_device(), list, 1, &s, &err), &err, DRA_ERR_SHAPE,
                       items ? "states: w has 5 axes, expected at most 4"
                             : "states: w has 6 axes, expected at most 5");
        assert_null(s);
        dra_specs_destroy(list);
    }
}

static void holds_no_sequence(void **state)
{
    story       none[1];
    dra_states *s = new_states(specs, 0), *t = NULL;
    dra_error   err = {0};
    call(s, 3, NULL, none);
    expect_ok(dra_states_reset(s, -1, &err), &err);
    expect_ok(dra_states_fork(s, &t, &err), &err);
    expect_same_states(s, t);
    assert_int_equal(dra_states_bytes(s), 0);
    expect_refused(dra_states_reset(s, 0, &err), &err, DRA_ERR_INDEX, "states: row is 0 of 0");
    dra_states_destroy(s);
    dra_states_destroy(t);
}

static void counts_bytes(void **state)
{
    story        told[2];
    dra_states  *s = two_rows(told);
    const size_t live = 2 * 3 + 2 * (70 + 3) + LIMIT + 3;
    assert_int_equal(dra_states_bytes(s), live * sizeof(dra_real));
    size_t held = 0;
    for (int i = 0; i <= W; i++) held += (size_t)(2 * s->at[i].rows * s->at[i].size);
    assert_int_equal(dra_states_held(s), held * sizeof(dra_real));
    assert_true(held >= live);
    dra_states_destroy(s);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void resets_rows(void **state)
{
    story       told[2];
    dra_states *s = two_rows(told), *fresh = new_states(specs, 2);
    dra_error   err = {0};
    expect_ok(dra_states_reset(s, 0, &err), &err);
    expect_row(s, 0, 0, &(story){0});
    expect_row(s, 1, 1, &told[1]);
    told[0] = (story){0};
    call(s, 2, NULL, told); /* continues from there */
    expect_row(s, 0, 0, &told[0]);
    expect_row(s, 1, 1, &told[1]);
    expect_ok(dra_states_reset(s, -1, &err), &err);
    expect_same_states(s, fresh);
    expect_refused(dra_states_reset(s, 2, &err), &err, DRA_ERR_INDEX, "states: row is 2 of 2");
    expect_refused(dra_states_reset(s, -2, &err), &err, DRA_ERR_INDEX, "states: row is -2 of 2");
    dra_states_destroy(s);
    dra_states_destroy(fresh);
}

static void copies_rows(void **state)
{
    story       told[2], other[1] = {{0}};
    dra_states *s = two_rows(told), *t = new_states(specs, 1);
    dra_error   err = {0};
    call(t, 200, NULL, other);
    expect_ok(dra_states_copy(t, 0, s, 1, &err), &err); /* a short row over a long one */
    expect_row(t, 0, 1, &told[1]);
    expect_ok(dra_states_copy(t, 0, s, 0, &err), &err);
    expect_row(t, 0, 0, &told[0]);
    expect_ok(dra_states_copy(s, 1, s, 0, &err), &err); /* within one state */
    expect_ok(dra_states_copy(s, 0, s, 0, &err), &err); /* onto itself */
    expect_row(s, 1, 0, &told[0]);
    expect_row(s, 0, 0, &told[0]);
    expect_refused(dra_states_copy(s, 2, t, 0, &err), &err, DRA_ERR_INDEX, "states: row is 2 of 2");
    expect_refused(dra_states_copy(s, 0, t, 1, &err), &err, DRA_ERR_INDEX, "states: row is 1 of 1");
    dra_states_destroy(s);
    dra_states_destroy(t);
}

static void refuses_other_kinds(void **state)
{
    dra_specs            *list = NULL;
    dra_error             err = {0};
    dra_states_difference d;
    expect_ok(dra_specs_create(&list, &err), &err);
    dra_specs_add(list, NULL, &(dra_spec){"h", DRA_SHAPE(3)});
    dra_states *s = new_states(list, 2), *t = new_states(specs, 2), *one = new_states(specs, 1);
    expect_refused(dra_states_copy(t, 0, s, 0, &err), &err, DRA_ERR_VALUE,
                   "states: copy between states of different kinds");
    d.same = true;
    expect_refused(dra_states_compare(t, s, &d, &err), &err, DRA_ERR_VALUE,
                   "states: of different kinds or batches (2, 2)");
    assert_false(d.same);
    d.same = true;
    expect_refused(dra_states_compare(t, one, &d, &err), &err, DRA_ERR_VALUE,
                   "states: of different kinds or batches (2, 1)");
    assert_false(d.same);
    dra_states_destroy(s);
    dra_states_destroy(t);
    dra_states_destroy(one);
    dra_specs_destroy(list);
}

static void forks_and_gathers(void **state)
{
    story       told[2];
    dra_states *s = two_rows(told), *fork = NULL, *beams = NULL;
    dra_error   err = {0};
    expect_ok(dra_states_fork(s, &fork, &err), &err);
    expect_same_states(s, fork);
    expect_ok(dra_states_gather(s, 4, (int64_t[]){1, 0, 1, 1}, &beams, &err), &err);
    const int64_t from[] = {1, 0, 1, 1};
    story         each[4];
    for (int b = 0; b < 4; b++) expect_row(beams, b, from[b], &told[from[b]]);
    call(s, 9, NULL, told); /* what happens in one is not seen in another */
    expect_row(fork, 0, 0, &(story){0, 70});
    expect_row(beams, 0, 1, &(story){67, 70});
    for (int b = 0; b < 4; b++) each[b] = (story){70, 70};
    int32_t reset[4] = {2, 2, 2, 2};
    call(beams, 1, reset, each);
    for (int b = 0; b < 4; b++) expect_row(beams, b, b, &each[b]);
    expect_row(s, 0, 0, &told[0]);
    dra_states_destroy(s);
    dra_states_destroy(fork);
    dra_states_destroy(beams);
}

static void refuses_wrong_gathers(void **state)
{
    dra_states *s = new_states(specs, 2), *out = s;
    dra_error   err = {0};
    expect_refused(dra_states_gather(s, 3, (int64_t[]){0, 1, 2}, &out, &err), &err, DRA_ERR_INDEX,
                   "states: row is 2 of 2");
    assert_null(out);
    expect_refused(dra_states_gather(s, -3, NULL, &out, &err), &err, DRA_ERR_VALUE,
                   "states: -3 sequences, expected 0 or more");
    expect_ok(dra_states_gather(s, 0, NULL, &out, &err), &err);
    assert_int_equal(dra_states_batch(out), 0);
    dra_states_destroy(out);
    dra_states_destroy(s);
}

/* ---- contents -------------------------------------------------------------------------------- */

static void places_reads_and_writes(void **state)
{
    dra_states    *s = new_states(specs, 2);
    dra_error      err = {0};
    dra_real       v[14];
    const dra_real in[] = {1, 2, 3, 4, 5};
    expect_ok(dra_states_place(s, 1, 9, 7, &err), &err);
    assert_int_equal(dra_states_tokens(s, 1), 9);
    assert_int_equal(dra_states_items(s, 1), 7);
    expect_ok(dra_states_read(s, K, 1, v, 14, &err), &err);
    for (int i = 0; i < 14; i++) assert_true(v[i] == 0);
    expect_ok(dra_states_write(s, W, 1, in, 5, &err), &err);
    expect_ok(dra_states_read(s, W, 1, v, 5, &err), &err);
    assert_memory_equal(v, in, sizeof in);
    expect_ok(dra_states_read(s, W, 0, NULL, 0, &err), &err);
    expect_ok(dra_states_place(s, 1, 2, 2, &err), &err); /* zeros again */
    expect_ok(dra_states_read(s, W, 1, v, 2, &err), &err);
    assert_true(v[0] == 0 && v[1] == 0);
    dra_states_destroy(s);
}

static void shows_states_in_place(void **state)
{
    dra_states    *s = new_states(specs, 2);
    const dra_real in[] = {4, 5, 6};
    dra_error      err = {0};
    dra_real       v[3];
    dra_real      *at = dra_states_at(s, H, 1);
    assert_null(dra_states_at(s, K, 1)); /* items move */
    assert_null(dra_states_at(s, H, 2));
    assert_null(dra_states_at(s, 3, 0));
    assert_null(dra_states_at(s, -1, 0));
    /* The host sees no other device's memory. */
    assert_int_equal(at != NULL, !check_apart() && !check_cuda());
    if (at) {
        expect_ok(dra_states_write(s, H, 1, in, 3, &err), &err);
        assert_memory_equal(at, in, sizeof in);
        at[1] = 7;
        expect_ok(dra_states_read(s, H, 1, v, 3, &err), &err);
        assert_true(v[0] == 4 && v[1] == 7 && v[2] == 6);
        assert_ptr_equal(dra_states_at(s, H, 0) + 3, at);
    }
    dra_states_destroy(s);
}

static void refuses_wrong_parts(void **state)
{
    dra_states *s = new_states(specs, 2);
    dra_error   err = {0};
    dra_real    v[8] = {0};
    expect_ok(dra_states_place(s, 1, 2, 2, &err), &err);
    expect_refused(dra_states_read(s, H, 1, v, 2, &err), &err, DRA_ERR_SHAPE,
                   "states: h of row 1 has 3 numbers, found 2");
    expect_refused(dra_states_write(s, K, 1, v, 6, &err), &err, DRA_ERR_SHAPE,
                   "states: K of row 1 has 4 numbers, found 6");
    expect_refused(dra_states_read(s, 3, 0, v, 3, &err), &err, DRA_ERR_INDEX,
                   "states: tensor is 3 of 3");
    expect_refused(dra_states_write(s, -1, 0, v, 3, &err), &err, DRA_ERR_INDEX,
                   "states: tensor is -1 of 3");
    expect_refused(dra_states_write(s, H, 2, v, 3, &err), &err, DRA_ERR_INDEX,
                   "states: row is 2 of 2");
    expect_refused(dra_states_place(s, -1, 0, 0, &err), &err, DRA_ERR_INDEX,
                   "states: row is -1 of 2");
    expect_refused(dra_states_place(s, 0, -1, 0, &err), &err, DRA_ERR_VALUE,
                   "states: -1 tokens, 0 items, expected 0 to 2^61");
    expect_refused(dra_states_place(s, 0, 0, INT64_MAX, &err), &err, DRA_ERR_VALUE,
                   "states: 0 tokens, 9223372036854775807 items, expected 0 to 2^61");
    expect_refused(dra_states_place(s, 0, 0, INT64_C(1) << 40, &err), &err, DRA_ERR_MEMORY,
                   "states: 1099511627776 items of K overflow");
    assert_int_equal(dra_states_items(s, 1), 2); /* the other row is as it was */
    dra_states_destroy(s);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static dra_states_difference compare_after(int i, int64_t row, size_t n, const dra_real *v)
{
    story                 told[2];
    dra_states           *s = two_rows(told), *t = NULL;
    dra_states_difference d;
    dra_error             err = {0};
    expect_ok(dra_states_fork(s, &t, &err), &err);
    expect_ok(dra_states_write(t, i, row, v, n, &err), &err);
    expect_ok(dra_states_compare(t, s, &d, &err), &err);
    dra_states_destroy(s);
    dra_states_destroy(t);
    return d;
}

static void compares_numbers(void **state)
{
    dra_states_difference d = compare_after(H, 1, 3, (dra_real[]){1, 2, 3});
    assert_true(d.same && d.worst == 0);
    d = compare_after(H, 1, 3, (dra_real[]){1, 2, 6});
    assert_true(!d.same && fabs(d.worst - 1) < 1e-6); /* over the largest of all rows, 3 */
    assert_string_equal(d.name, "h");
    d = compare_after(H, 0, 3, (dra_real[]){(dra_real)-0.0, 2, 3});
    assert_true(!d.same && d.worst == 0); /* another bit, the same number */
}

static void a_NaN_is_never_lost(void **state)
{
    for (int at = 0; at < 3; at++) {
        dra_real v[3] = {7, 8, 9};
        v[at] = (dra_real)NAN;
        const dra_states_difference d = compare_after(H, 0, 3, v);
        assert_true(!d.same && isnan(d.worst));
        assert_string_equal(d.name, "h");
    }
    dra_real w[3] = {(dra_real)INFINITY, 0, 0}; /* in another tensor than the first */
    const dra_states_difference d = compare_after(W, 1, 3, w);
    assert_true(!d.same && isinf(d.worst));
    assert_string_equal(d.name, "W");
}

static void refuses_other_counts(void **state)
{
    dra_states           *s = new_states(specs, 2), *t = new_states(specs, 2);
    dra_states_difference d;
    dra_error             err = {0};
    expect_ok(dra_states_place(t, 1, 4, 3, &err), &err);
    expect_refused(dra_states_compare(s, t, &d, &err), &err, DRA_ERR_VALUE,
                   "states: row 1 has read 0 tokens and 4, written 0 items and 3");
    assert_false(d.same);
    dra_states_destroy(s);
    dra_states_destroy(t);
}

/* ---- many calls ------------------------------------------------------------------------------ */

/* Chunks of any length, far longer than the window, pads and resets: what is live is what the
 * story says, and what is held stays flat for the window. */
static void items_move(void **state)
{
    static const int64_t lengths[] = {1, 2, 1, 7, 64, 3, 1, 130, 1, 1, 5, 63, 65, 1};
    story                told[2] = {{0}};
    dra_states          *s = new_states(specs, 2);
    uint64_t             seed = 3;
    int32_t              mark[2 * 130];
    int64_t              most = 0;
    dra_error            err = {0};
    for (int n = 0; n < 1000; n++) {
        const int64_t T = lengths[n % (int)COUNT(lengths)];
        for (int64_t i = 0; i < 2 * T; i++) {
            mark[i] = check_random(&seed) < 0.1 ? DRA_MARK_PAD : 0;
            if (check_random(&seed) < 0.003) mark[i] |= DRA_MARK_RESET;
        }
        call(s, T, n % 3 ? mark : NULL, told);
        for (int64_t b = 0; b < 2; b++) expect_row(s, b, b, &told[b]);
        if (n == 100) most = s->at[W].rows;
        if (n > 100) assert_int_equal(s->at[W].rows, most);
        if (n % 97 != 0) continue;
        expect_ok(dra_states_reset(s, n % 2, &err), &err);
        told[n % 2].first = told[n % 2].next;
    }
    assert_true(most <= 1024);
    dra_states_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_at_the_beginning),
        cmocka_unit_test(refuses_impossible_batches),
        cmocka_unit_test(refuses_too_many_axes),
        cmocka_unit_test(holds_no_sequence),
        cmocka_unit_test(counts_bytes),
        cmocka_unit_test(resets_rows),
        cmocka_unit_test(copies_rows),
        cmocka_unit_test(refuses_other_kinds),
        cmocka_unit_test(forks_and_gathers),
        cmocka_unit_test(refuses_wrong_gathers),
        cmocka_unit_test(places_reads_and_writes),
        cmocka_unit_test(shows_states_in_place),
        cmocka_unit_test(refuses_wrong_parts),
        cmocka_unit_test(compares_numbers),
        cmocka_unit_test(a_NaN_is_never_lost),
        cmocka_unit_test(refuses_other_counts),
        cmocka_unit_test(items_move),
    };
    open_specs();
    const int failed = check_main("states", NULL, 0, tests, COUNT(tests));
    dra_specs_destroy(specs);
    return failed;
}
