/* gather and scatter_add against loops over indices. */
#include "check.h"

#include <stdio.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

typedef struct args {
    int axis;
} args;

static void build_gather(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_gather(g, in[0], in[1], ((const args *)a)->axis);
}

static void build_scatter(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_scatter_add(g, in[0], in[1], in[2], ((const args *)a)->axis);
}

/* The element of x that element i of index names. */
static int64_t named(const check_tensor *x, const check_tensor *index, int axis, int64_t i)
{
    int64_t inner = 1;
    if (axis < 0) axis += x->shape.rank;
    for (int32_t d = x->shape.rank - 1; d > axis; d--) inner *= x->shape.dim[d];
    const int64_t outer = i / (inner * index->shape.dim[axis]);
    return (outer * x->shape.dim[axis] + (int64_t)index->at[i]) * inner + i % inner;
}

static void oracle_gather(const void *a, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++)
        out->at[i] = in[0].at[named(&in[0], &in[1], ((const args *)a)->axis, i)];
}

static void oracle_scatter(const void *a, const check_tensor *in, check_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++) out->at[i] = in[0].at[i];
    for (int64_t i = 0; i < in[1].count; i++)
        out->at[named(&in[0], &in[1], ((const args *)a)->axis, i)] += in[2].at[i];
}

static const args at[] = {{0}, {1}, {2}, {-1}, {4}};

static const double zeros[1500] = {0};

#define INDEX(top, ...)                                                                            \
    {                                                                                              \
        {__VA_ARGS__}, CHECK_I32, .lo = 0, .hi = top                                               \
    }

static const check_case gathers[] = {
    {"first axis", 2, {{{3, {4, 3, 5}}}, INDEX(3, 3, {7, 3, 5})}, &at[0]},
    {"middle axis", 2, {{{3, {2, 9, 5}}}, INDEX(8, 3, {2, 3, 5})}, &at[1]},
    {"last axis", 2, {{{3, {2, 3, 17}}}, INDEX(16, 3, {2, 3, 4})}, &at[3]},
    {"one value", 2, {{{1, {1}}}, {{1, {1}}, CHECK_I32, .values = zeros}}, &at[0]},
    {"no index", 2, {{{2, {3, 4}}}, INDEX(3, 2, {3, 0})}, &at[1]},
    {"nothing at all", 2, {{{2, {0, 4}}}, INDEX(3, 2, {0, 2})}, &at[1]},
    {"several tiles", 2, {{{2, {130, 257}}}, INDEX(129, 2, {201, 257})}, &at[0]},
    {"rank 6", 2, {{{6, {2, 1, 3, 2, 4, 2}}}, INDEX(3, 6, {2, 1, 3, 2, 3, 2})}, &at[4]},
    {"i32", 2, {{{2, {5, 4}}, CHECK_I32}, INDEX(3, 2, {5, 3})}, &at[1]},
    {"bool", 2, {{{2, {5, 4}}, CHECK_BOOL}, INDEX(3, 2, {5, 3})}, &at[1]},
    {"bf16", 2, {{{2, {5, 4}}, CHECK_BF16}, INDEX(4, 2, {9, 4})}, &at[0]},
};

static const check_case scatters[] = {
    {"first axis", 3, {{{3, {4, 3, 5}}}, INDEX(3, 3, {7, 3, 5}), {{3, {7, 3, 5}}}}, &at[0]},
    {"middle axis", 3, {{{3, {2, 9, 5}}}, INDEX(8, 3, {2, 3, 5}), {{3, {2, 3, 5}}}}, &at[1]},
    {"last axis", 3, {{{3, {2, 3, 4}}}, INDEX(3, 3, {2, 3, 17}), {{3, {2, 3, 17}}}}, &at[2]},
    {"one value", 3, {{{1, {1}}}, {{1, {1}}, CHECK_I32, .values = zeros}, {{1, {1}}}}, &at[0]},
    {"no index", 3, {{{2, {3, 4}}}, INDEX(3, 2, {3, 0}), {{2, {3, 0}}}}, &at[1]},
    {"nothing at all", 3, {{{2, {0, 4}}}, INDEX(3, 2, {0, 2}), {{2, {0, 2}}}}, &at[1]},
    {"several tiles", 3, {{{2, {257, 300}}}, INDEX(256, 2, {41, 300}), {{2, {41, 300}}}}, &at[0]},
    {"all onto one",
     3,
     {{{2, {3, 1}}}, {{2, {3, 500}}, CHECK_I32, .values = zeros}, {{2, {3, 500}}}},
     &at[1]},
    {"i32", 3, {{{2, {5, 4}}, CHECK_I32}, INDEX(3, 2, {5, 9}), {{2, {5, 9}}, CHECK_I32}}, &at[1]},
};

/* x and src are the same memory, and x dies here: adding in place would read its own sums. */
static void adds_to_itself(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = dra_affine(g, check_real(g, "x", DRA_SHAPE(3)), 1, 0);
    dra_output(g, "y", dra_scatter_add(g, x, dra_input(g, "i", DRA_I32, DRA_SHAPE(3)), x, 0));
    check_program p = check_compile(g, 1);
    dra_real      in[] = {1, 10, 100};
    int32_t       index[] = {1, 2, 2};
    const double  want[] = {1, 11, 210};
    check_bind(&p, "x", in, sizeof in);
    check_bind(&p, "i", index, sizeof index);
    check_run(&p);
    check_close("y", 3, check_result(&p, "y"), want, 0);
    check_free(&p);
}

static void adds_in_place(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = dra_state(g, "x", DRA_REAL, DRA_SHAPE(3));
    dra_value  i = dra_input(g, "i", DRA_I32, DRA_SHAPE(2)), src = check_real(g, "s", DRA_SHAPE(2));
    dra_donate(g, "y", dra_scatter_add(g, x, i, src, 0), x);
    check_program p = check_compile(g, 1);
    dra_real      in[] = {1, 2, 3}, more[] = {10, 20};
    int32_t       index[] = {2, 2};
    const double  want[] = {1, 2, 33};
    check_bind(&p, "x", in, sizeof in);
    check_bind(&p, "i", index, sizeof index);
    check_bind(&p, "s", more, sizeof more);
    check_run(&p);
    check_close("x", 3, in, want, 0);
    assert_int_equal(dra_program_memory(p.program).activations, 0);
    check_free(&p);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

static void index_faults(void **state)
{
    static const int32_t bad[] = {4, -1};
    static const char   *text[] = {"index 4, axis 1 of x has size 4",
                                   "index -1, axis 1 of x has size 4"};
    for (int i = 0; i < 4; i++) {
        const bool scatter = i >= 2;
        dra_graph *g = check_graph();
        dra_value  x = check_real(g, "x", DRA_SHAPE(2, 4));
        dra_value  index = dra_input(g, "i", DRA_I32, DRA_SHAPE(2, 2));
        dra_value  src = check_real(g, "s", DRA_SHAPE(2, 2));
        dra_output(g, "y",
                   scatter ? dra_scatter_add(g, x, index, src, 1) : dra_gather(g, x, index, 1));
        check_program p = check_compile(g, 2);
        dra_real      in[8] = {0}, more[4] = {0};
        int32_t       where[] = {0, 3, 1, bad[i % 2]};
        dra_error     err = {0};
        char          want[64];
        check_bind(&p, "x", in, sizeof in);
        check_bind(&p, "i", where, sizeof where);
        check_bind(&p, "s", more, sizeof more);
        snprintf(want, sizeof want, "%s: %s", scatter ? "scatter_add" : "gather", text[i % 2]);
        assert_int_equal(check_try(&p, &err), DRA_ERR_INDEX);
        assert_string_equal(err.text, want);
        where[3] = 0; /* and the program still works */
        assert_int_equal(check_try(&p, &err), DRA_OK);
        check_free(&p);
    }
}

static void refuses_gather(void **state)
{
    dra_graph *g = check_graph();
    dra_value  i = dra_input(g, "i", DRA_I32, DRA_SHAPE(2, 3));
    assert_int_equal(dra_gather(g, check_real(g, "x", DRA_SHAPE(2, 3)), i, 2).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "gather: x " REAL " (2, 3) has no axis 2");

    g = check_graph();
    i = dra_input(g, "i", DRA_I32, DRA_SHAPE(3, 3));
    dra_gather(g, check_real(g, "x", DRA_SHAPE(2, 3)), i, 1);
    check_refused(g, DRA_ERR_SHAPE,
                  "gather: x " REAL " (2, 3) and index i32 (3, 3) differ outside axis 1");

    g = check_graph();
    i = dra_input(g, "i", DRA_I32, DRA_SHAPE(3));
    dra_gather(g, check_real(g, "x", DRA_SHAPE(2, 3)), i, 1);
    check_refused(g, DRA_ERR_SHAPE,
                  "gather: x " REAL " (2, 3) and index i32 (3) differ outside axis 1");

    g = check_graph();
    i = check_real(g, "i", DRA_SHAPE(2, 3));
    dra_gather(g, check_real(g, "x", DRA_SHAPE(2, 3)), i, 1);
    check_refused(g, DRA_ERR_DTYPE, "gather: index is " REAL ", expected i32");

    g = check_graph();
    dra_gather(g, check_real(g, "x", DRA_SHAPE(2, 3)), (dra_value){0}, 1);
    check_refused(g, DRA_ERR_VALUE, "gather: input 1 is the null value");
}

static void refuses_scatter(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2, 3));
    dra_value  i = dra_input(g, "i", DRA_I32, DRA_SHAPE(2, 4));
    dra_scatter_add(g, x, i, check_real(g, "s", DRA_SHAPE(2, 5)), 1);
    check_refused(g, DRA_ERR_SHAPE, "scatter_add: index i32 (2, 4) and src " REAL " (2, 5) differ");

    g = check_graph();
    x = check_real(g, "x", DRA_SHAPE(2, 3));
    i = dra_input(g, "i", DRA_I32, DRA_SHAPE(2, 4));
    dra_scatter_add(g, x, i, dra_input(g, "s", DRA_I32, DRA_SHAPE(2, 4)), 1);
    check_refused(g, DRA_ERR_DTYPE,
                  "scatter_add: x " REAL " (2, 3) and src i32 (2, 4), expected two of " REAL
                  " or i32");

    g = check_graph();
    x = check_real(g, "x", DRA_SHAPE(2, 3));
    i = dra_input(g, "i", DRA_I32, DRA_SHAPE(4, 3));
    dra_scatter_add(g, x, i, check_real(g, "s", DRA_SHAPE(4, 3)), 1);
    check_refused(g, DRA_ERR_SHAPE,
                  "scatter_add: x " REAL " (2, 3) and index i32 (4, 3) differ outside axis 1");

    g = check_graph();
    dra_scatter_add(g, (dra_value){0}, (dra_value){0}, (dra_value){0}, 0);
    check_refused(g, DRA_ERR_VALUE, "scatter_add: input 0 is the null value");
}

int main(void)
{
    const check_spec specs[] = {
        {"gather", 1, build_gather, oracle_gather, gathers, COUNT(gathers)},
        {"scatter_add", 1, build_scatter, oracle_scatter, scatters, COUNT(scatters)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_to_itself),  cmocka_unit_test(adds_in_place),
        cmocka_unit_test(index_faults),    cmocka_unit_test(refuses_gather),
        cmocka_unit_test(refuses_scatter),
    };
    return check_main("gather", specs, COUNT(specs), tests, COUNT(tests));
}
