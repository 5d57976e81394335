/* Products of rows by group: against sums written out; the bits of a row alone and among others;
 * matrices that no row asks for. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "quants.h"

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const int64_t four = 4, many = 61;

#define IDS(M, k, most)                                                                            \
    {                                                                                              \
        {2, {M, k}}, CHECK_I32, .lo = 0, .hi = most                                                \
    }

/* ---- grouped_linear: x (M, I), w (n O, I), ids (M, k) -> (M k, O) by place ------------------- */

static void build_linear(dra_graph *g, const void *n, const dra_value *in, dra_value *out)
{
    const dra_groups r = dra_group_rows(g, in[2], *(const int64_t *)n);
    const dra_value  x = dra_group_take(g, in[0], r.source, r.place);
    out[0] = dra_grouped_linear(g, x, in[1], r.ends);
}

static void oracle_linear(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t n = *(const int64_t *)args, k = check_last(&in[2]), I = check_last(&in[0]);
    const int64_t O = in[1].shape.dim[0] / n;
    int64_t       at = 0;
    for (int64_t e = 0; e < n; e++)
        for (int64_t i = 0; i < in[2].count; i++) {
            if ((int64_t)in[2].at[i] != e) continue;
            for (int64_t o = 0; o < O; o++)
                for (int64_t c = 0; c < I; c++)
                    out->at[at * O + o] += in[0].at[i / k * I + c] * in[1].at[(e * O + o) * I + c];
            at++;
        }
}

static const check_case linear_cases[] = {
    {"some", 3, {{{2, {7, 5}}}, {{2, {12, 5}}}, IDS(7, 2, 3)}, &four},
    {"one row", 3, {{{2, {1, 33}}}, {{2, {4 * 70, 33}}}, IDS(1, 2, 3)}, &four},
    {"one group has all", 3, {{{2, {9, 5}}}, {{2, {12, 5}}}, IDS(9, 1, 0)}, &four},
    {"no rows", 3, {{{2, {0, 5}}}, {{2, {12, 5}}}, IDS(0, 1, 3)}, &four},
    {"no input", 3, {{{2, {7, 0}}}, {{2, {12, 0}}}, IDS(7, 2, 3)}, &four},
    {"no output", 3, {{{2, {7, 5}}}, {{2, {0, 5}}}, IDS(7, 2, 3)}, &four},
    {"several columns", 3, {{{2, {40, 130}}}, {{2, {4 * 270, 130}}}, IDS(40, 1, 3)}, &four},
    {"blocks of rows", 3, {{{2, {700, 9}}}, {{2, {12, 9}}}, IDS(700, 1, 1)}, &four},
    {"many groups", 3, {{{2, {50, 20}}}, {{2, {61 * 7, 20}}}, IDS(50, 8, 60)}, &many},
};

/* ---- grouped_outer: dy (M, O), x (M, I), ids (M, 1) -> (n O, I) ------------------------------ */

static void build_outer(dra_graph *g, const void *n, const dra_value *in, dra_value *out)
{
    const dra_groups r = dra_group_rows(g, in[2], *(const int64_t *)n);
    out[0] = dra_grouped_outer(g, dra_group_take(g, in[0], r.source, r.place),
                               dra_group_take(g, in[1], r.source, r.place), r.ends);
}

static void oracle_outer(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t O = check_last(&in[0]), I = check_last(&in[1]);
    for (int64_t i = 0; i < in[2].count; i++)
        for (int64_t o = 0; o < O; o++)
            for (int64_t c = 0; c < I; c++)
                out->at[((int64_t)in[2].at[i] * O + o) * I + c] += in[0].at[i * O + o] *
                                                                   in[1].at[i * I + c];
}

static const check_case outer_cases[] = {
    {"some", 3, {{{2, {7, 3}}}, {{2, {7, 5}}}, IDS(7, 1, 3)}, &four},
    {"one row", 3, {{{2, {1, 3}}}, {{2, {1, 5}}}, IDS(1, 1, 3)}, &four},
    {"no rows", 3, {{{2, {0, 3}}}, {{2, {0, 5}}}, IDS(0, 1, 3)}, &four},
    {"no output", 3, {{{2, {7, 0}}}, {{2, {7, 5}}}, IDS(7, 1, 3)}, &four},
    {"several tiles", 3, {{{2, {90, 270}}}, {{2, {90, 260}}}, IDS(90, 1, 3)}, &four},
    {"many groups", 3, {{{2, {150, 9}}}, {{2, {150, 20}}}, IDS(150, 1, 60)}, &many},
};

/* ---- promises -------------------------------------------------------------------------------- */

enum { GROUPS = 5, O = 96, I = 512, MOST = 600, K = 2 };

static dra_real      x[MOST * I], y[MOST * K * O];
static int32_t       ids[MOST * K];
static unsigned char w[GROUPS * O * I * sizeof(dra_real)];

/* y by rows: (m, K, O). */
static void products_of(int threads, int64_t first, int64_t m, dra_dtype t, size_t bytes, void *to)
{
    dra_graph       *g = check_graph();
    const dra_value  v = dra_parameter(g, "w", t, DRA_SHAPE(GROUPS * O, I));
    const dra_groups r = dra_group_rows(g, dra_input(g, "ids", DRA_I32, DRA_SHAPE(m, K)), GROUPS);
    const dra_value  in = dra_group_take(g, check_real(g, "x", DRA_SHAPE(m, I)), r.source, r.place);
    const dra_value  out = dra_grouped_linear(g, in, v, r.ends);
    dra_output(g, "y", dra_embedding(g, out, r.place));
    check_program p = check_compile(g, threads);
    check_bind(&p, "x", x + first * I, (size_t)(m * I) * sizeof *x);
    check_bind(&p, "ids", ids + first * K, (size_t)(m * K) * sizeof *ids);
    check_bind(&p, "w", w, bytes);
    check_run(&p);
    memcpy(to, check_result(&p, "y"), (size_t)(m * K * O) * sizeof *y);
    check_free(&p);
}

static void draw_inputs(uint64_t seed)
{
    for (int64_t i = 0; i < MOST * I; i++) x[i] = (dra_real)(2 * check_random(&seed) - 1);
    for (int64_t i = 0; i < MOST; i++) {
        ids[i * K] = (int32_t)(check_random(&seed) * 4);
        ids[i * K + 1] = 4;
    }
}

/* Bytes of the weights, drawn. */
static size_t draw_weights(dra_dtype t, uint64_t seed)
{
    const int64_t n = GROUPS * O * I;
    if (dra_is_quantised(t)) {
        check_quant_fill(t, n, &seed, w);
        return (size_t)dra_elements_bytes(t, n);
    }
    for (int64_t i = 0; i < n; i++) {
        const double   v = 2 * check_random(&seed) - 1;
        const uint16_t half = dra_f32_to_bf16((float)v);
        const dra_real real = (dra_real)v;
        memcpy(w + (size_t)i * dra_dtype_bytes(t), t == DRA_BF16 ? (const void *)&half : &real,
               dra_dtype_bytes(t));
    }
    return (size_t)n * dra_dtype_bytes(t);
}

static void rows_have_the_bits_they_have_alone(void **state)
{
    static const dra_dtype types[] = {DRA_REAL, DRA_BF16, DRA_Q8_0, DRA_Q4_K};
    static const int       threads[] = {1, 2, 7};
    static const int64_t   some[] = {1, 2, 17};
    static dra_real        alone[17 * K * O];
    draw_inputs(3);
    for (size_t t = 0; t < COUNT(types); t++) {
        const size_t bytes = draw_weights(types[t], 5 + t);
        products_of(2, 0, MOST, types[t], bytes, y);
        for (size_t i = 0; i < COUNT(some); i++)
            for (size_t k = 0; k < COUNT(threads); k++)
                for (int64_t at = 0; at < MOST; at += 149) {
                    const int64_t m = some[i] < MOST - at ? some[i] : MOST - at;
                    products_of(threads[k], at, m, types[t], bytes, alone);
                    check_reals(alone, y + at * K * O, (size_t)(m * K * O) * sizeof *y);
                }
    }
}

/* Poison in a matrix without rows is not seen, and of a product with 0 it would be. */
static void matrices_without_rows_are_not_read(void **state)
{
    const size_t bytes = draw_weights(DRA_REAL, 9);
    draw_inputs(4);
    dra_real *poison = (dra_real *)w + 2 * O * I;
    for (int64_t i = 0; i < O * I; i++) poison[i] = (dra_real)NAN;
    for (int64_t i = 0; i < MOST * K; i++)
        if (ids[i] == 2) ids[i] = 1;
    products_of(2, 0, MOST, DRA_REAL, bytes, y);
    for (int64_t i = 0; i < MOST * K * O; i++) assert_true(isfinite(y[i]));
}

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    dra_value  ends = dra_input(g, "ends", DRA_I32, DRA_SHAPE(4));
    dra_grouped_linear(g, check_real(g, "x", DRA_SHAPE(7, 5)), check_real(g, "w", DRA_SHAPE(13, 5)),
                       ends);
    check_refused(g, DRA_ERR_SHAPE,
                  "grouped_linear: x " REAL " (7, 5), w " REAL " (13, 5), ends i32 (4): expected x "
                  "(S, I), w (n O, I), ends (n)");
    g = check_graph();
    ends = dra_input(g, "ends", DRA_I32, DRA_SHAPE(4));
    dra_grouped_linear(g, check_real(g, "x", DRA_SHAPE(7, 6)), check_real(g, "w", DRA_SHAPE(12, 5)),
                       ends);
    check_refused(g, DRA_ERR_SHAPE,
                  "grouped_linear: x " REAL " (7, 6), w " REAL " (12, 5), ends i32 (4): expected x "
                  "(S, I), w (n O, I), ends (n)");
    g = check_graph();
    ends = dra_input(g, "ends", DRA_I32, DRA_SHAPE(4));
    dra_grouped_outer(g, check_real(g, "dy", DRA_SHAPE(7, 6)), check_real(g, "x", DRA_SHAPE(8, 5)),
                      ends);
    check_refused(g, DRA_ERR_SHAPE,
                  "grouped_outer: dy " REAL " (7, 6), x " REAL " (8, 5), ends i32 (4): expected "
                  "(S, O), (S, I), (n)");
}

int main(void)
{
    const check_spec specs[] = {
        {"grouped_linear", 1, build_linear, oracle_linear, linear_cases, COUNT(linear_cases)},
        {"grouped_outer", 1, build_outer, oracle_outer, outer_cases, COUNT(outer_cases)}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_bits_they_have_alone),
        cmocka_unit_test(matrices_without_rows_are_not_read),
        cmocka_unit_test(refuses),
    };
    return check_main("grouped", specs, COUNT(specs), tests, COUNT(tests));
}
