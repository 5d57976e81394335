/* write_rows against loops; in place on a donated state. */
#include "check.h"

#include <string.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_write_rows(g, in[0], in[1], in[2]);
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    const int64_t cap = in[0].shape.dim[1], T = in[1].shape.dim[1];
    int64_t       R = 1;
    for (int32_t d = 2; d < in[0].shape.rank; d++) R *= in[0].shape.dim[d];
    for (int64_t i = 0; i < out->count; i++) out->at[i] = in[0].at[i];
    for (int64_t i = 0; i < in[2].count; i++) {
        const int64_t b = i / T, row = (int64_t)in[2].at[i];
        for (int64_t r = 0; row >= 0 && r < R; r++)
            out->at[(b * cap + row) * R + r] = in[1].at[i * R + r];
    }
}

static const double ordered[] = {0, 1, 2, 3, 4, 5}, wrapped[] = {5, 6, 0, 6, 0, 1},
                    padded[] = {-1, 3, -1, 2, -1, 0}, none[] = {-1, -5, -1, -2, -1, -1};
static double many[600]; /* every second row of (2, 601), backwards */

#define AT(values_, ...)                                                                           \
    {                                                                                              \
        {__VA_ARGS__}, CHECK_I32, .values = values_                                                \
    }

static const check_case cases[] = {
    {"in order", 3, {{{3, {2, 7, 5}}}, {{3, {2, 3, 5}}}, AT(ordered, 2, {2, 3})}},
    {"around the end", 3, {{{3, {2, 7, 5}}}, {{3, {2, 3, 5}}}, AT(wrapped, 2, {2, 3})}},
    {"with padding", 3, {{{3, {2, 7, 5}}}, {{3, {2, 3, 5}}}, AT(padded, 2, {2, 3})}},
    {"all padding", 3, {{{3, {2, 7, 5}}}, {{3, {2, 3, 5}}}, AT(none, 2, {2, 3})}},
    {"one row", 3, {{{3, {6, 7, 5}}}, {{3, {6, 1, 5}}}, AT(wrapped, 2, {6, 1})}},
    {"no rows", 3, {{{3, {2, 7, 5}}}, {{3, {2, 0, 5}}}, AT(none, 2, {2, 0})}},
    {"rows of nothing", 3, {{{3, {2, 7, 0}}}, {{3, {2, 3, 0}}}, AT(ordered, 2, {2, 3})}},
    {"no batch", 3, {{{3, {0, 7, 5}}}, {{3, {0, 3, 5}}}, AT(none, 2, {0, 3})}},
    {"pairs", 3, {{{3, {2, 7, 2}}}, {{3, {2, 3, 2}}}, AT(wrapped, 2, {2, 3})}},
    {"numbers", 3, {{{2, {2, 7}}}, {{2, {2, 3}}}, AT(wrapped, 2, {2, 3})}},
    {"one value", 3, {{{2, {1, 1}}}, {{2, {1, 1}}}, AT(ordered, 2, {1, 1})}},
    {"heads", 3, {{{4, {2, 7, 3, 4}}}, {{4, {2, 3, 3, 4}}}, AT(wrapped, 2, {2, 3})}},
    {"rank 6", 3, {{{6, {2, 7, 2, 1, 2, 3}}}, {{6, {2, 3, 2, 1, 2, 3}}}, AT(padded, 2, {2, 3})}},
    {"several tiles", 3, {{{3, {2, 601, 77}}}, {{3, {2, 300, 77}}}, AT(many, 2, {2, 300})}},
    {"bf16",
     3,
     {{{3, {2, 7, 5}}, CHECK_BF16}, {{3, {2, 3, 5}}, CHECK_BF16}, AT(padded, 2, {2, 3})}},
    {"i32", 3, {{{3, {2, 7, 5}}, CHECK_I32}, {{3, {2, 3, 5}}, CHECK_I32}, AT(padded, 2, {2, 3})}},
    {"bool",
     3,
     {{{3, {2, 7, 5}}, CHECK_BOOL}, {{3, {2, 3, 5}}, CHECK_BOOL}, AT(padded, 2, {2, 3})}},
};

/* Gradients of the gradient: through read_rows and write_rows again. */
static void build_twice(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    dra_value y = dra_write_rows(g, in[0], in[1], in[2]), dy = dra_square(g, y), dx[2] = {{0}};
    dra_gradient(g, 1, &y, &dy, 2, in, dx);
    out[0] = dx[0];
    out[1] = dx[1];
}

static void oracle_twice(const void *a, const check_tensor *in, check_tensor *out)
{
    check_tensor  y = out[0];
    const int64_t cap = in[0].shape.dim[1], T = in[1].shape.dim[1], R = in[0].shape.dim[2];
    oracle(a, in, &y);
    for (int64_t i = 0; i < y.count; i++) y.at[i] *= y.at[i];
    for (int64_t i = 0; i < in[2].count; i++) {
        const int64_t b = i / T, row = (int64_t)in[2].at[i];
        for (int64_t r = 0; row >= 0 && r < R; r++) {
            double *at = &y.at[(b * cap + row) * R + r];
            out[1].at[i * R + r] = *at;
            *at = 0;
        }
    }
}

static const check_case twice[] = {
    {"with padding", 3, {{{3, {2, 7, 5}}}, {{3, {2, 3, 5}}}, AT(padded, 2, {2, 3})}}};

/* ---- in place -------------------------------------------------------------------------------- */

enum { B = 2, CAP = 64, T = 3, C = 16 };

typedef struct cache {
    dra_real x[B * CAP * C], rows[B * T * C];
    int32_t  at[B * T];
} cache;

/* The step of a cache: rows go in, the sum of all that is there goes out. */
static check_program make_cache(cache *c)
{
    dra_graph *g = check_graph();
    dra_value  x = dra_state(g, "cache", DRA_REAL, DRA_SHAPE(B, CAP, C));
    dra_value  rows = check_real(g, "rows", DRA_SHAPE(B, T, C));
    dra_value  y = dra_write_rows(g, x, rows, dra_input(g, "at", DRA_I32, DRA_SHAPE(B, T)));
    dra_donate(g, "new cache", y, x);
    dra_output(g, "sum", dra_sum_all(g, y));
    check_program p = check_compile(g, 7);
    memset(c, 0, sizeof *c);
    check_bind(&p, "cache", c->x, sizeof c->x);
    check_bind(&p, "rows", c->rows, sizeof c->rows);
    check_bind(&p, "at", c->at, sizeof c->at);
    return p;
}

static void writes_a_donated_state_in_place(void **state)
{
    static cache  c;
    check_program p = make_cache(&c);
    assert_true(dra_program_memory(p.program).activations < sizeof c.x);
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < B * T; i++) c.at[i] = step * T + i % T;
        for (int i = 0; i < B * T * C; i++) c.rows[i] = (dra_real)(step + 1);
        check_run(&p);
        assert_true(check_in_place(&p, "new cache", "cache"));
    }
    for (int b = 0; b < B; b++)
        for (int i = 0; i < CAP * C; i++)
            assert_true(c.x[b * CAP * C + i] == (i < 5 * T * C ? i / (T * C) + 1 : 0));
    assert_true(*check_result(&p, "sum") == B * T * C * (1 + 2 + 3 + 4 + 5));
    check_free(&p);
}

/* A mistake is found before anything is written. */
static void leaves_a_state_alone_on_errors(void **state)
{
    static cache         c;
    static const int32_t bad[][B * T] = {
        {0, 1, 2, 3, CAP, 4}, {0, 1, 2, 9, 4, 9}, {7, 7, 2, 3, 4, 5}, {17, 1, 17, 3, 4, 5}};
    static const char *text[] = {"write_rows: at[1, 1] = 64, x has 64 rows",
                                 "write_rows: at[1, 2] = 9 names a row a second time",
                                 "write_rows: at[0, 1] = 7 names a row a second time",
                                 "write_rows: at[0, 2] = 17 names a row a second time"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        check_program p = make_cache(&c);
        dra_error     err = {0};
        memcpy(c.at, bad[i], sizeof c.at);
        for (int k = 0; k < B * T * C; k++) c.rows[k] = 1;
        assert_int_equal(check_try(&p, &err), DRA_ERR_INDEX);
        assert_string_equal(err.text, text[i]);
        for (int k = 0; k < B * CAP * C; k++) assert_true(c.x[k] == 0);
        check_free(&p);
    }
}

/* Rows of padding may come any number of times. */
static void padding_is_not_a_row(void **state)
{
    static cache  c;
    check_program p = make_cache(&c);
    for (int i = 0; i < B * T; i++) c.at[i] = -1;
    for (int k = 0; k < B * T * C; k++) c.rows[k] = 1;
    check_run(&p);
    assert_true(*check_result(&p, "sum") == 0);
    check_free(&p);
}

/* rows and x are the same memory, and x dies here. */
static void writes_its_own_rows(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = dra_affine(g, check_real(g, "x", DRA_SHAPE(1, 3)), 1, 0);
    dra_output(g, "y", dra_write_rows(g, x, x, dra_input(g, "at", DRA_I32, DRA_SHAPE(1, 3))));
    check_program p = check_compile(g, 1);
    dra_real      in[] = {1, 2, 3};
    int32_t       at[] = {1, 2, 0};
    const double  want[] = {3, 1, 2};
    check_bind(&p, "x", in, sizeof in);
    check_bind(&p, "at", at, sizeof at);
    check_run(&p);
    check_close("y", 3, check_result(&p, "y"), want, 0);
    check_free(&p);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refuse(dra_shape x, dra_shape rows, dra_shape at, const char *text)
{
    dra_graph *g = check_graph();
    dra_value  i = dra_input(g, "at", DRA_I32, at);
    assert_int_equal(dra_write_rows(g, check_real(g, "x", x), check_real(g, "r", rows), i).id, 0);
    check_refused(g, DRA_ERR_SHAPE, text);
}

#define EXPECTED ": expected (B, cap, ...), (B, T, ...), (B, T)"

static void refuses(void **state)
{
    refuse(DRA_SHAPE(2, 7, 5), DRA_SHAPE(3, 3, 5), DRA_SHAPE(2, 3),
           "write_rows: x " REAL " (2, 7, 5), rows " REAL " (3, 3, 5), at i32 (2, 3)" EXPECTED);
    refuse(DRA_SHAPE(2, 7, 5), DRA_SHAPE(2, 3, 4), DRA_SHAPE(2, 3),
           "write_rows: x " REAL " (2, 7, 5), rows " REAL " (2, 3, 4), at i32 (2, 3)" EXPECTED);
    refuse(DRA_SHAPE(2, 7, 5), DRA_SHAPE(2, 3, 5), DRA_SHAPE(2, 4),
           "write_rows: x " REAL " (2, 7, 5), rows " REAL " (2, 3, 5), at i32 (2, 4)" EXPECTED);
    refuse(DRA_SHAPE(2, 7, 5), DRA_SHAPE(2, 3, 5), DRA_SHAPE(6),
           "write_rows: x " REAL " (2, 7, 5), rows " REAL " (2, 3, 5), at i32 (6)" EXPECTED);
    refuse(DRA_SHAPE(7), DRA_SHAPE(3), DRA_SHAPE(2, 3),
           "write_rows: x " REAL " (7), rows " REAL " (3), at i32 (2, 3)" EXPECTED);
}

static void refuses_dtypes(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2, 7, 5)),
              at = dra_input(g, "at", DRA_I32, DRA_SHAPE(2, 3));
    dra_write_rows(g, x, dra_input(g, "r", DRA_BF16, DRA_SHAPE(2, 3, 5)), at);
    check_refused(g, DRA_ERR_DTYPE,
                  "write_rows: x " REAL " (2, 7, 5) and rows bf16 (2, 3, 5) are of two dtypes");

    g = check_graph();
    x = check_real(g, "x", DRA_SHAPE(2, 7, 5));
    dra_write_rows(g, x, check_real(g, "r", DRA_SHAPE(2, 3, 5)),
                   check_real(g, "at", DRA_SHAPE(2, 3)));
    check_refused(g, DRA_ERR_DTYPE, "write_rows: at is " REAL ", expected i32");

    g = check_graph();
    dra_write_rows(g, (dra_value){0}, (dra_value){0}, (dra_value){0});
    check_refused(g, DRA_ERR_VALUE, "write_rows: input 0 is the null value");
}

/* ---- read_rows ------------------------------------------------------------------------------- */

static void build_read(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_read_rows(g, in[0], in[1]);
}

static void oracle_read(const void *a, const check_tensor *in, check_tensor *out)
{
    const int64_t rows = in[0].shape.dim[1], each = in[1].shape.dim[1];
    int64_t       R = 1;
    for (int32_t d = 2; d < in[0].shape.rank; d++) R *= in[0].shape.dim[d];
    for (int64_t i = 0; i < in[1].count; i++) {
        const int64_t row = (int64_t)in[1].at[i];
        for (int64_t r = 0; r < R; r++)
            out->at[i * R + r] = row < 0 ? 0 : in[0].at[(i / each * rows + row) * R + r];
    }
}

static const check_case read_cases[] = {
    {"in order", 2, {{{3, {2, 7, 5}}}, AT(ordered, 2, {2, 3})}},
    {"with none", 2, {{{3, {2, 7, 5}}}, AT(padded, 2, {2, 3})}},
    {"none at all", 2, {{{3, {2, 7, 5}}}, AT(none, 2, {2, 3})}},
    {"no rows", 2, {{{3, {2, 7, 5}}}, AT(none, 2, {2, 0})}},
    {"numbers", 2, {{{2, {2, 7}}}, AT(wrapped, 2, {2, 3})}},
    {"several tiles", 2, {{{3, {2, 601, 77}}}, AT(many, 2, {2, 300})}},
    {"i32", 2, {{{3, {2, 7, 5}}, CHECK_I32}, AT(padded, 2, {2, 3})}},
};

static void read_refuses(void **state)
{
    dra_graph *g = check_graph();
    dra_read_rows(g, check_real(g, "x", DRA_SHAPE(2, 7, 5)),
                  dra_input(g, "at", DRA_I32, DRA_SHAPE(3, 3)));
    check_refused(g, DRA_ERR_SHAPE,
                  "read_rows: x " REAL " (2, 7, 5), at i32 (3, 3): expected (B, cap, ...), (B, T)");
    g = check_graph();
    dra_read_rows(g, check_real(g, "x", DRA_SHAPE(2, 7)), check_real(g, "at", DRA_SHAPE(2, 3)));
    check_refused(g, DRA_ERR_DTYPE, "read_rows: at is " REAL ", expected i32");
}

int main(void)
{
    for (int i = 0; i < 600; i++) many[i] = 600 - 2 * (i % 300);
    const check_spec specs[] = {
        {"write_rows", 1, build, oracle, cases, COUNT(cases)},
        {"read_rows", 1, build_read, oracle_read, read_cases, COUNT(read_cases)},
        {"gradient of the gradient", 2, build_twice, oracle_twice, twice, COUNT(twice)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_a_donated_state_in_place),
        cmocka_unit_test(leaves_a_state_alone_on_errors),
        cmocka_unit_test(padding_is_not_a_row),
        cmocka_unit_test(writes_its_own_rows),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_dtypes),
        cmocka_unit_test(read_refuses),
    };
    return check_main("write_rows", specs, COUNT(specs), tests, COUNT(tests));
}
