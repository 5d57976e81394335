/* embedding and one_hot against loops over ids. */
#include "check.h"

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_embedding(g, in[0], in[1]);
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    const int64_t C = in[0].shape.dim[1];
    for (int64_t i = 0; i < in[1].count; i++)
        for (int64_t c = 0; c < C; c++) out->at[i * C + c] = in[0].at[(int64_t)in[1].at[i] * C + c];
}

static const double zeros[64] = {0};
static double       common[700]; /* half of the ids are one, as in texts */

static const check_case rows[] = {
    {"odd width", 2, {{{2, {7, 5}}}, {{2, {2, 9}}, CHECK_I32, .lo = 0, .hi = 6}}},
    {"one id", 2, {{{2, {7, 5}}}, {{0}, CHECK_I32, .lo = 6, .hi = 6}}},
    {"one row", 2, {{{2, {1, 5}}}, {{1, {3}}, CHECK_I32, .values = zeros}}},
    {"width 1", 2, {{{2, {7, 1}}}, {{1, {3}}, CHECK_I32, .lo = 0, .hi = 6}}},
    {"no width", 2, {{{2, {7, 0}}}, {{1, {3}}, CHECK_I32, .lo = 0, .hi = 6}}},
    {"no ids", 2, {{{2, {7, 5}}}, {{2, {0, 3}}, CHECK_I32}}},
    {"nothing", 2, {{{2, {0, 5}}}, {{1, {0}}, CHECK_I32}}},
    {"all the same", 2, {{{2, {9, 5}}}, {{2, {3, 50}}, CHECK_I32, .lo = 4, .hi = 4}}},
    {"several tiles", 2, {{{2, {301, 130}}}, {{2, {2, 170}}, CHECK_I32, .lo = 0, .hi = 300}}},
    {"a common id", 2, {{{2, {60, 8}}}, {{2, {2, 350}}, CHECK_I32, .values = common}}},
    {"few rows", 2, {{{2, {3, 132}}}, {{2, {2, 350}}, CHECK_I32, .lo = 0, .hi = 2}}},
    {"rank 5", 2, {{{2, {7, 3}}}, {{5, {2, 1, 2, 3, 2}}, CHECK_I32, .lo = 0, .hi = 6}}},
    {"bf16", 2, {{{2, {7, 5}}, CHECK_BF16}, {{2, {2, 9}}, CHECK_I32, .lo = 0, .hi = 6}}},
    {"f16", 2, {{{2, {7, 5}}, CHECK_F16}, {{2, {2, 9}}, CHECK_I32, .lo = 0, .hi = 6}}},
};

/* The gradient of a bf16 table is real, and adds up over equal ids. */
static void bf16_table_has_a_real_gradient(void **state)
{
    dra_graph *g = check_graph();
    dra_value  table = dra_parameter(g, "table", DRA_BF16, DRA_SHAPE(3, 2)), dtable = {0};
    dra_value  y = dra_embedding(g, table, dra_input(g, "ids", DRA_I32, DRA_SHAPE(4)));
    dra_value  up = check_real(g, "dy", DRA_SHAPE(4, 2));
    dra_gradient(g, 1, &y, &up, 1, &table, &dtable);
    assert_int_equal(dra_dtype_of(g, dtable), DRA_REAL);
    dra_output(g, "dtable", dtable);
    check_program p = check_compile(g, 2);
    int32_t       ids[] = {2, 0, 2, 2};
    dra_real      dy[] = {1, 2, 30, 40, 500, 600, 7000, 8000};
    uint16_t      memory[6] = {0};
    const double  want[] = {30, 40, 0, 0, 7501, 8602};
    check_bind(&p, "table", memory, sizeof memory);
    check_bind(&p, "ids", ids, sizeof ids);
    check_bind(&p, "dy", dy, sizeof dy);
    check_run(&p);
    check_close("dtable", 6, check_result(&p, "dtable"), want, 0);
    check_free(&p);
}

/* d/d(dy) of the table's gradient: the rows of what comes back to it. */
static void build_twice(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    dra_value table = dra_broadcast(g, dra_number(g, 1), DRA_SHAPE(5, 3)), dtable = {0};
    table = dra_copy(g, table);
    dra_value y = dra_embedding(g, table, in[1]);
    dra_gradient(g, 1, &y, &in[0], 1, &table, &dtable);
    out[0] = dra_square(g, dtable);
}

static void oracle_twice(const void *a, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < in[1].count; i++)
        for (int64_t c = 0; c < 3; c++)
            out->at[(int64_t)in[1].at[i] * 3 + c] += in[0].at[i * 3 + c];
    for (int64_t i = 0; i < out->count; i++) out->at[i] *= out->at[i];
}

static const check_case twice[] = {
    {"dy", 2, {{{3, {2, 4, 3}}}, {{2, {2, 4}}, CHECK_I32, .lo = 0, .hi = 4}}}};

/* ---- one_hot --------------------------------------------------------------------------------- */

static void build_hot(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_one_hot(g, in[0], *(const int64_t *)a);
}

static void oracle_hot(const void *a, const check_tensor *in, check_tensor *out)
{
    const int64_t n = *(const int64_t *)a;
    for (int64_t i = 0; i < in->count; i++)
        if (in->at[i] >= 0 && in->at[i] < (double)n) out->at[i * n + (int64_t)in->at[i]] = 1;
}

static const int64_t    widths[] = {5, 1, 0, 700};
static const check_case hots[] = {
    {"some outside", 1, {{{2, {3, 17}}, CHECK_I32, .lo = -3, .hi = 8}}, &widths[0]},
    {"one id", 1, {{{0}, CHECK_I32, .lo = 2, .hi = 2}}, &widths[0]},
    {"width 1", 1, {{{2, {3, 5}}, CHECK_I32, .lo = -1, .hi = 1}}, &widths[1]},
    {"no width", 1, {{{2, {3, 5}}, CHECK_I32}}, &widths[2]},
    {"no ids", 1, {{{2, {0, 5}}, CHECK_I32}}, &widths[0]},
    {"several tiles", 1, {{{2, {7, 13}}, CHECK_I32, .lo = 0, .hi = 699}}, &widths[3]},
};

/* ---- mistakes -------------------------------------------------------------------------------- */

static void id_faults(void **state)
{
    static const int32_t bad[] = {3, -1, INT32_MIN};
    static const char   *text[] = {"embedding: id 3, the table has 3 rows",
                                   "embedding: id -1, the table has 3 rows",
                                   "embedding: id -2147483648, the table has 3 rows"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        dra_graph *g = check_graph();
        dra_value  table = check_real(g, "table", DRA_SHAPE(3, 2));
        dra_output(g, "y", dra_embedding(g, table, dra_input(g, "ids", DRA_I32, DRA_SHAPE(2))));
        check_program p = check_compile(g, 2);
        dra_real      memory[6] = {0};
        int32_t       ids[] = {2, bad[i]};
        dra_error     err = {0};
        check_bind(&p, "table", memory, sizeof memory);
        check_bind(&p, "ids", ids, sizeof ids);
        assert_int_equal(check_try(&p, &err), DRA_ERR_INDEX);
        assert_string_equal(err.text, text[i]);
        check_free(&p);
    }
}

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    dra_value  ids = dra_input(g, "ids", DRA_I32, DRA_SHAPE(3));
    assert_int_equal(dra_embedding(g, check_real(g, "t", DRA_SHAPE(2, 3, 4)), ids).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "embedding: table " REAL " (2, 3, 4), expected (V, C)");

    g = check_graph();
    ids = dra_input(g, "ids", DRA_I32, DRA_SHAPE(3));
    dra_embedding(g, dra_input(g, "t", DRA_I32, DRA_SHAPE(2, 3)), ids);
    check_refused(g, DRA_ERR_DTYPE, "embedding: table is i32 (2, 3), expected a float");

    g = check_graph();
    dra_embedding(g, check_real(g, "t", DRA_SHAPE(2, 3)), check_real(g, "ids", DRA_SHAPE(3)));
    check_refused(g, DRA_ERR_DTYPE, "embedding: ids is " REAL ", expected i32");

    g = check_graph();
    ids = dra_input(g, "ids", DRA_I32, DRA_SHAPE(1, 1, 1, 1, 1, 2));
    dra_embedding(g, check_real(g, "t", DRA_SHAPE(2, 3)), ids);
    check_refused(g, DRA_ERR_SHAPE,
                  "embedding: ids i32 (1, 1, 1, 1, 1, 2), expected at most rank 5");

    g = check_graph();
    dra_embedding(g, check_real(g, "t", DRA_SHAPE(2, 3)), (dra_value){0});
    check_refused(g, DRA_ERR_VALUE, "embedding: input 1 is the null value");
}

static void refuses_one_hot(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_one_hot(g, check_real(g, "ids", DRA_SHAPE(3)), 4).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "one_hot: ids is " REAL ", expected i32");

    g = check_graph();
    dra_one_hot(g, dra_input(g, "ids", DRA_I32, DRA_SHAPE(3)), -4);
    check_refused(g, DRA_ERR_VALUE, "one_hot: n = -4, expected 0 or more");

    g = check_graph();
    dra_one_hot(g, dra_input(g, "ids", DRA_I32, DRA_SHAPE(1, 1, 1, 1, 1, 2)), 4);
    check_refused(g, DRA_ERR_SHAPE, "one_hot: ids i32 (1, 1, 1, 1, 1, 2), expected at most rank 5");

    g = check_graph();
    dra_one_hot(g, (dra_value){0}, 4);
    check_refused(g, DRA_ERR_VALUE, "one_hot: input 0 is the null value");
}

int main(void)
{
    for (int i = 0; i < 700; i++) common[i] = i % 2 ? 17 : i * 37 % 60;
    const check_spec specs[] = {
        {"embedding", 1, build, oracle, rows, COUNT(rows)},
        {"gradient of the gradient", 1, build_twice, oracle_twice, twice, COUNT(twice)},
        {"one_hot", 1, build_hot, oracle_hot, hots, COUNT(hots)},
    };
    const struct CMUnitTest tests[] = {cmocka_unit_test(bf16_table_has_a_real_gradient),
                                       cmocka_unit_test(id_faults), cmocka_unit_test(refuses),
                                       cmocka_unit_test(refuses_one_hot)};
    return check_main("embedding", specs, COUNT(specs), tests, COUNT(tests));
}
