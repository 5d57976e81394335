/* Sessions: one workspace of the largest program, inputs that must be there each time, errors that
 * lose nothing, one thread at a time. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "device/device.h"

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static void refused(dra_status found, dra_status code, const dra_error *err, const char *text)
{
    assert_int_equal(found, code);
    assert_string_equal(err->text, text);
}

/* key: (n, depth). y = w sin(sin(... x)), n numbers, and the sum of table rows i. */
static void build(dra_graph *g, void *user, const void *at, size_t bytes)
{
    const int64_t  *key = at;
    const dra_shape shape = DRA_SHAPE(key[0]);
    dra_value       y = dra_input(g, "x", DRA_REAL, shape), all[32];
    const dra_value w = dra_parameter(g, "w", DRA_REAL, (dra_shape){0});
    const dra_value i = dra_input(g, "i", DRA_I32, DRA_SHAPE(1));
    for (int64_t k = 0; k < key[1]; k++) all[k] = y = dra_sin(g, y);
    for (int64_t k = 0; k < key[1]; k++) y = dra_add(g, y, all[k]); /* all live at once */
    dra_output(g, "y", dra_mul(g, y, dra_exp(g, w)));
    dra_output(g, "row", dra_embedding(g, dra_parameter(g, "t", DRA_REAL, DRA_SHAPE(3, 1)), i));
}

typedef struct subject {
    dra_session *session;
    dra_array   *w, *t;
    int          x, i, w_name, t_name;
} subject;

static void open_subject(subject *s)
{
    const dra_real w = 0, t[3] = {10, 11, 12};
    dra_error      err = {0};
    dra_device    *d = check_device(2, "ref");
    expect_ok(dra_session_create(d, build, NULL, &s->session, &err), &err);
    expect_ok(dra_array_create(d, sizeof w, &s->w, &err), &err);
    expect_ok(dra_array_create(d, sizeof t, &s->t, &err), &err);
    expect_ok(dra_array_upload(dra_array_whole(s->w), &w, &err), &err);
    expect_ok(dra_array_upload(dra_array_whole(s->t), t, &err), &err);
    s->x = dra_session_name(s->session, "x");
    s->i = dra_session_name(s->session, "i");
    s->w_name = dra_session_name(s->session, "w");
    s->t_name = dra_session_name(s->session, "t");
    assert_int_equal(dra_session_name(s->session, "x"), s->x);
    expect_ok(dra_session_bind(s->session, s->w_name, dra_array_whole(s->w), &err), &err);
    expect_ok(dra_session_bind(s->session, s->t_name, dra_array_whole(s->t), &err), &err);
}

static void close_subject(subject *s)
{
    dra_session_destroy(s->session);
    dra_array_destroy(s->w);
    dra_array_destroy(s->t);
}

static dra_status run(subject *s, int64_t n, int64_t depth, int32_t i, dra_error *err)
{
    static const dra_real zeros[4096];
    dra_status st = dra_session_select(s->session, (int64_t[]){n, depth}, 2 * sizeof n, err);
    if (st == DRA_OK) st = dra_session_put(s->session, s->x, zeros, (size_t)n * sizeof *zeros, err);
    if (st == DRA_OK) st = dra_session_put(s->session, s->i, &i, sizeof i, err);
    if (st == DRA_OK) st = dra_session_start(s->session, err);
    return st == DRA_OK ? dra_session_finish(s->session, err) : st;
}

static double row_of(const subject *s)
{
    dra_real  x = -1;
    dra_error err = {0};
    expect_ok(dra_array_download(&x, dra_session_result(s->session, "row"), &err), &err);
    return (double)x;
}

static void one_workspace_for_all(void **state)
{
    subject   s;
    dra_error err = {0};
    open_subject(&s);
    expect_ok(run(&s, 4096, 20, 1, &err), &err);
    const size_t large = dra_session_workspace(s.session);
    for (int64_t n = 1; n <= 4096; n *= 2) expect_ok(run(&s, n, 3, 2, &err), &err);
    assert_int_equal(dra_session_workspace(s.session), large);
    assert_int_equal(dra_session_programs(s.session), 14);
    expect_ok(run(&s, 4096, 30, 0, &err), &err); /* grows, and the others move along */
    assert_true(dra_session_workspace(s.session) > large);
    expect_ok(run(&s, 7, 3, 2, &err), &err);
    assert_true(row_of(&s) == 12);
    dra_session_clear(s.session);
    assert_int_equal(dra_session_programs(s.session), 0);
    assert_null(dra_session_result(s.session, "row").array);
    expect_ok(run(&s, 7, 3, 1, &err), &err);
    assert_true(row_of(&s) == 11);
    close_subject(&s);
}

static void inputs_must_be_there_each_time(void **state)
{
    subject   s;
    dra_error err = {0};
    int32_t   i = 0;
    open_subject(&s);
    refused(dra_session_start(s.session, &err), DRA_ERR_VALUE, &err,
            "session: no program is selected");
    expect_ok(run(&s, 2, 1, 0, &err), &err);
    expect_ok(dra_session_put(s.session, s.i, &i, sizeof i, &err), &err);
    refused(dra_session_start(s.session, &err), DRA_ERR_BIND, &err, "run: 'x' is not bound");
    refused(dra_session_put(s.session, s.i, &i, 3, &err), DRA_ERR_SHAPE, &err,
            "bind: 'i' has 3 bytes, expected 4");
    refused(dra_session_put(s.session, s.w_name, &i, sizeof i, &err), DRA_ERR_NAME, &err,
            "bind: no input is called 'w'");
    refused(dra_session_bind(s.session, 99, dra_array_whole(s.w), &err), DRA_ERR_INDEX, &err,
            "session: name 99 of 4");
    dra_array_destroy(s.w); /* while it is bound */
    s.w = NULL;
    refused(run(&s, 2, 1, 0, &err), DRA_ERR_BIND, &err, "run: the array of 'w' is gone");
    close_subject(&s);
}

/* The error comes when the host waits, and the next run knows nothing of it. */
static void faults_are_told_once(void **state)
{
    subject   s;
    dra_error err = {0};
    open_subject(&s);
    refused(run(&s, 2, 1, 5, &err), DRA_ERR_INDEX, &err, "embedding: id 5, the table has 3 rows");
    expect_ok(run(&s, 2, 1, 2, &err), &err);
    assert_true(row_of(&s) == 12);
    close_subject(&s);
}

/* ---- memory that runs out -------------------------------------------------------------------- */

static const dra_device_table *plain;
static bool                    full;

static void *alloc_or_not(dra_device *d, size_t bytes)
{
    return full && bytes > 1024 ? NULL : plain->alloc(d, bytes);
}

static void memory_that_runs_out_loses_nothing(void **state)
{
    subject          s;
    dra_error        err = {0};
    dra_device      *d = check_device(2, "ref");
    dra_device_table scarce = *d->table;
    plain = d->table;
    scarce.alloc = alloc_or_not;
    d->table = &scarce;
    open_subject(&s);
    expect_ok(run(&s, 2, 1, 1, &err), &err);
    full = true;
    assert_int_equal(run(&s, 4096, 20, 1, &err), DRA_ERR_MEMORY);
    assert_non_null(strstr(err.text, "array: out of memory for "));
    expect_ok(run(&s, 2, 1, 2, &err), &err); /* small programs still run */
    assert_true(row_of(&s) == 12);
    full = false;
    expect_ok(run(&s, 4096, 20, 0, &err), &err);
    assert_true(row_of(&s) == 10);
    close_subject(&s);
    d->table = plain;
}

/* ---- threads --------------------------------------------------------------------------------- */

static atomic_int waiting, go_on;

static void build_slowly(dra_graph *g, void *user, const void *key, size_t bytes)
{
    atomic_store(&waiting, 1);
    while (!atomic_load(&go_on)) {}
    dra_output(g, "y", dra_exp(g, dra_input(g, "x", DRA_REAL, DRA_SHAPE(1))));
}

static void *select_it(void *session)
{
    dra_session_select(session, "key", 3, NULL);
    return NULL;
}

static void a_second_thread_is_refused(void **state)
{
    dra_session *s = NULL;
    dra_error    err = {0};
    pthread_t    thread;
    expect_ok(dra_session_create(check_device(1, "ref"), build_slowly, NULL, &s, &err), &err);
    assert_int_equal(pthread_create(&thread, NULL, select_it, s), 0);
    while (!atomic_load(&waiting)) {}
    refused(dra_session_start(s, &err), DRA_ERR_VALUE, &err, "session: another thread is using it");
    atomic_store(&go_on, 1);
    pthread_join(thread, NULL);
    expect_ok(dra_session_finish(s, &err), &err);
    dra_session_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_workspace_for_all),
        cmocka_unit_test(inputs_must_be_there_each_time),
        cmocka_unit_test(faults_are_told_once),
        cmocka_unit_test(memory_that_runs_out_loses_nothing),
        cmocka_unit_test(a_second_thread_is_refused),
    };
    return check_main("session", NULL, 0, tests, COUNT(tests));
}
