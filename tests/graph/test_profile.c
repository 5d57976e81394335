/* The profile: calls, time, FLOPs and bytes per op, inside regions too. */
#include "check.h"
#include "graph/program.h"

#include <string.h>

static const dra_profile_row *find(const dra_profile_row *rows, size_t n, const char *op)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].op, op) == 0) return &rows[i];
    return NULL;
}

static void counts_calls_and_work(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(64, 32)), w = check_real(g, "w", DRA_SHAPE(32, 16));
    dra_output(g, "y", dra_exp(g, dra_exp(g, dra_matmul(g, x, w))));
    check_program p = {0};
    assert_int_equal(dra_compile_plain(g, check_device(1, "ref"), 0, &p.program, NULL), DRA_OK);
    assert_int_equal(dra_buffers_create(p.program, &p.buffers, NULL), DRA_OK);
    dra_graph_destroy(g);
    static dra_real xv[64 * 32], wv[32 * 16];
    dra_profile_row rows[8];
    check_bind(&p, "x", xv, sizeof xv);
    check_bind(&p, "w", wv, sizeof wv);
    check_run(&p); /* before: not counted */
    dra_profile_enable(p.buffers, true);
    for (int i = 0; i < 3; i++) check_run(&p);
    dra_profile_enable(p.buffers, false); /* stops, keeps */
    check_run(&p);
    const size_t           n = dra_profile_read(p.buffers, rows, COUNT(rows));
    const dra_profile_row *mm = find(rows, n, "matmul"), *e = find(rows, n, "exp");
    assert_int_equal(n, 2);
    assert_int_equal(mm->calls, 3);
    assert_int_equal(e->calls, 6);
    assert_true(mm->flops == 3 * 2.0 * 64 * 32 * 16);
    assert_true(e->bytes == 6.0 * 2 * 64 * 16 * sizeof(dra_real));
    assert_true(mm->seconds > 0 && e->seconds > 0);
    assert_int_equal(dra_profile_read(p.buffers, rows, 0), 2);
    check_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_calls_and_work)};
    return check_main("profile", NULL, 0, tests, COUNT(tests));
}
