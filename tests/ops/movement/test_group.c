/* Rows by group: where each goes, rows that go there, and their sums. */
#include "check.h"

#include <string.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const int64_t four = 4, many = 61;

/* ---- group_rows: (ids) ----------------------------------------------------------------------- */

static void build_rows(dra_graph *g, const void *n, const dra_value *in, dra_value *out)
{
    const dra_groups r = dra_group_rows(g, in[0], *(const int64_t *)n);
    out[0] = r.order, out[1] = r.source, out[2] = r.place, out[3] = r.ends;
}

static void oracle_rows(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t n = *(const int64_t *)args, k = check_last(in);
    int64_t       at = 0;
    for (int64_t e = 0; e < n; e++) {
        for (int64_t i = 0; i < in->count; i++) {
            if ((int64_t)in->at[i] != e) continue;
            out[2].at[i] = (double)at;
            out[0].at[at] = (double)i;
            out[1].at[at++] = (double)(i / k);
        }
        out[3].at[e] = (double)at;
    }
}

#define IDS(M, k, most)                                                                            \
    {                                                                                              \
        {2, {M, k}}, CHECK_I32, .lo = 0, .hi = most                                                \
    }

static const check_case row_cases[] = {
    {"some", 1, {IDS(7, 2, 3)}, &four},
    {"one", 1, {IDS(1, 1, 0)}, &four},
    {"all in the last", 1, {{{2, {5, 1}}, CHECK_I32, .lo = 3, .hi = 3}}, &four},
    {"no rows", 1, {IDS(0, 2, 3)}, &four},
    {"many", 1, {IDS(203, 8, 60)}, &many},
};

/* ---- group_take, group_sum ------------------------------------------------------------------- */

static void build_take(dra_graph *g, const void *n, const dra_value *in, dra_value *out)
{
    const dra_groups r = dra_group_rows(g, in[1], *(const int64_t *)n);
    out[0] = dra_group_take(g, in[0], r.source, r.place);
}

/* x (M k, C) by place, ids (M, k) */
static void build_sum(dra_graph *g, const void *n, const dra_value *in, dra_value *out)
{
    const dra_groups r = dra_group_rows(g, in[1], *(const int64_t *)n);
    out[0] = dra_group_sum(g, in[0], r.source, r.place);
}

/* f(place, where it goes) for all places in the order of groups. */
static void oracle_moved(const void *args, const check_tensor *in, check_tensor *out, bool sum)
{
    const int64_t n = *(const int64_t *)args, k = check_last(&in[1]), C = check_last(&in[0]);
    int64_t       at = 0;
    for (int64_t e = 0; e < n; e++)
        for (int64_t i = 0; i < in[1].count; i++) {
            if ((int64_t)in[1].at[i] != e) continue;
            const int64_t from = sum ? at : i / k, to = sum ? i / k : at;
            for (int64_t c = 0; c < C; c++) out->at[to * C + c] += in[0].at[from * C + c];
            at++;
        }
}

static void oracle_take(const void *args, const check_tensor *in, check_tensor *out)
{
    oracle_moved(args, in, out, false);
}

static void oracle_sum(const void *args, const check_tensor *in, check_tensor *out)
{
    oracle_moved(args, in, out, true);
}

static const check_case take_cases[] = {
    {"some", 2, {{{2, {7, 5}}}, IDS(7, 2, 3)}, &four},
    {"one", 2, {{{2, {1, 5}}}, IDS(1, 3, 3)}, &four},
    {"no rows", 2, {{{2, {0, 5}}}, IDS(0, 2, 3)}, &four},
    {"no columns", 2, {{{2, {7, 0}}}, IDS(7, 2, 3)}, &four},
    {"several tiles", 2, {{{2, {203, 301}}}, IDS(203, 8, 60)}, &many},
};

static const check_case sum_cases[] = {
    {"some", 2, {{{2, {14, 5}}}, IDS(7, 2, 3)}, &four},
    {"one", 2, {{{2, {3, 5}}}, IDS(1, 3, 3)}, &four},
    {"no rows", 2, {{{2, {0, 5}}}, IDS(0, 2, 3)}, &four},
    {"no columns", 2, {{{2, {14, 0}}}, IDS(7, 2, 3)}, &four},
    {"several tiles", 2, {{{2, {203 * 8, 301}}}, IDS(203, 8, 60)}, &many},
};

/* ---- refused --------------------------------------------------------------------------------- */

static void refuses_at_run_time(void **state)
{
    dra_graph *g = check_graph();
    int32_t    ids[] = {0, 1, 4};
    dra_error  err;
    dra_output(g, "place",
               dra_group_rows(g, dra_input(g, "ids", DRA_I32, DRA_SHAPE(3, 1)), 4).place);
    check_program p = check_compile(g, 1);
    check_bind(&p, "ids", ids, sizeof ids);
    assert_int_not_equal(check_try(&p, &err), DRA_OK);
    assert_non_null(strstr(err.text, "group_rows"));
    ids[2] = -1;
    check_bind(&p, "ids", ids, sizeof ids);
    assert_int_not_equal(check_try(&p, &err), DRA_OK);
    ids[2] = 3;
    check_bind(&p, "ids", ids, sizeof ids);
    check_run(&p);
    check_free(&p);
}

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    dra_group_rows(g, dra_input(g, "ids", DRA_I32, DRA_SHAPE(3)), 4);
    check_refused(g, DRA_ERR_SHAPE, "group_rows: ids i32 (3), expected (M, k), k at least 1");
    g = check_graph();
    dra_group_rows(g, dra_input(g, "ids", DRA_I32, DRA_SHAPE(3, 1)), 0);
    check_refused(g, DRA_ERR_VALUE, "group_rows: n = 0, expected 1 or more");
    g = check_graph();
    dra_group_rows(g, check_real(g, "ids", DRA_SHAPE(3, 1)), 2);
    check_refused(g, DRA_ERR_DTYPE, "group_rows: ids is " REAL ", expected i32");
    g = check_graph();
    dra_group_take(g, check_real(g, "x", DRA_SHAPE(3, 5)), dra_input(g, "s", DRA_I32, DRA_SHAPE(6)),
                   dra_input(g, "p", DRA_I32, DRA_SHAPE(2, 3)));
    check_refused(g, DRA_ERR_SHAPE,
                  "group_take: x " REAL " (3, 5), source i32 (6), place i32 (2, 3): expected "
                  "(M, C), (M k) and (M, k)");
    g = check_graph();
    dra_group_sum(g, check_real(g, "x", DRA_SHAPE(3, 5)), dra_input(g, "s", DRA_I32, DRA_SHAPE(6)),
                  dra_input(g, "p", DRA_I32, DRA_SHAPE(2, 3)));
    check_refused(g, DRA_ERR_SHAPE,
                  "group_sum: x " REAL " (3, 5), source i32 (6), place i32 (2, 3): expected "
                  "(M k, C), (M k) and (M, k)");
}

int main(void)
{
    const check_spec specs[] = {
        {"group_rows", 4, build_rows, oracle_rows, row_cases, COUNT(row_cases)},
        {"group_take", 1, build_take, oracle_take, take_cases, COUNT(take_cases)},
        {"group_sum", 1, build_sum, oracle_sum, sum_cases, COUNT(sum_cases)}};
    const struct CMUnitTest tests[] = {cmocka_unit_test(refuses_at_run_time),
                                       cmocka_unit_test(refuses)};
    return check_main("group", specs, COUNT(specs), tests, COUNT(tests));
}
