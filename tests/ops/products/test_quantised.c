/* Products and lookups straight from quantised weights, on every device: what blocks mean is what
 * base/quant.c reads. One row, few and many, weights along the sum and across it, with what is
 * fused to a product; rows of a table bit for bit. */
#include <math.h>
#include <string.h>

#include "quants.h"

enum { N = 37, K = 512, ROWS = 40, WIDE = 256 };

static unsigned char blocks[K * WIDE / 32 * 34];
static double        number[K * WIDE]; /* what they mean */
static dra_real      x[ROWS * K];
static double        expected[ROWS * WIDE];

static size_t bytes_of(dra_dtype t, int64_t n) { return (size_t)dra_elements_bytes(t, n); }

static void fill(dra_dtype t, int64_t n)
{
    uint64_t seed = 5;
    check_quant_fill(t, n, &seed, blocks);
    for (int64_t i = 0; i < n; i++) number[i] = (double)dra_dequantised(t, blocks, i);
    for (int64_t i = 0; i < ROWS * K; i++) x[i] = (dra_real)(2 * check_random(&seed) - 1);
}

static double rounded(double v, bool bf16)
{
    return bf16 ? (double)dra_bf16_to_f32(dra_f32_to_bf16((float)v)) : v;
}

/* x w^T, the weights (n, K), or x w, those (K, n). */
static void multiply(int64_t m, int64_t n, bool along, bool bf16)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += rounded((double)x[i * K + k], bf16) *
                       rounded(number[along ? j * K + k : k * n + j], bf16);
            expected[i * n + j] = sum;
        }
}

/* ---- products -------------------------------------------------------------------------------- */

static void try_product(dra_dtype t, int64_t m, bool along, bool bf16)
{
    const int64_t n = along ? N : WIDE;
    char          what[80];
    snprintf(what, sizeof what, "%s, %d rows%s%s", dra_dtype_get(t)->name, (int)m,
             along ? "" : ", across", bf16 ? ", bf16" : "");
    dra_graph *g = check_graph();
    if (bf16) dra_set_precision(g, DRA_PRECISION_BF16);
    const dra_value in = check_real(g, "x", DRA_SHAPE(m, K));
    const dra_value w = dra_input(g, "w", t, along ? DRA_SHAPE(n, K) : DRA_SHAPE(K, n));
    dra_output(g, "y", dra_matmul(g, in, along ? dra_transpose(g, w, 0, 1) : w));
    check_program p = check_compile(g, 2);
    check_bind(&p, "x", x, (size_t)(m * K) * sizeof *x);
    check_bind(&p, "w", blocks, bytes_of(t, n * K));
    check_run(&p);
    multiply(m, n, along, bf16);
    check_close(what, m * n, check_result(&p, "y"), expected, 1e-5);
    check_free(&p);
}

static void products(void **state)
{
    static const int64_t rows[] = {1, 2, 4, 5, 8, 9, ROWS};
    for (size_t i = 0; i < COUNT(check_quants); i++) {
        fill(check_quants[i].dtype, (int64_t)WIDE * K);
        for (size_t k = 0; k < COUNT(rows); k++) {
            try_product(check_quants[i].dtype, rows[k], true, false);
            if (sizeof(dra_real) == 4) try_product(check_quants[i].dtype, rows[k], true, true);
        }
        try_product(check_quants[i].dtype, 1, false, false);
        try_product(check_quants[i].dtype, ROWS, false, false);
    }
}

/* Three products of one x, and a function of what a product with its bias gives. */
static void fused_products(void **state)
{
    static const int64_t rows[] = {1, 3, ROWS};
    static dra_real      bias[N];
    static const char   *names[] = {"a", "b", "c"};
    for (int j = 0; j < N; j++) bias[j] = (dra_real)(j % 5 - 2);
    for (size_t i = 0; i < COUNT(check_quants) * COUNT(rows); i++) {
        const dra_dtype t = check_quants[i / COUNT(rows)].dtype;
        const int64_t   m = rows[i % COUNT(rows)];
        fill(t, (int64_t)N * K);
        dra_graph      *g = check_graph();
        const dra_value in = check_real(g, "x", DRA_SHAPE(m, K));
        const dra_value b = check_real(g, "bias", DRA_SHAPE(N));
        for (int k = 0; k < 3; k++) {
            const dra_value w = dra_input(g, names[k], t, DRA_SHAPE(N, K));
            const dra_value y = dra_linear(g, in, w, b);
            dra_output(g, (const char *[]){"y0", "y1", "y2"}[k], k == 2 ? dra_relu(g, y) : y);
        }
        check_program p = check_compile(g, 2);
        check_bind(&p, "x", x, (size_t)(m * K) * sizeof *x);
        check_bind(&p, "bias", bias, sizeof bias);
        for (int k = 0; k < 3; k++) check_bind(&p, names[k], blocks, bytes_of(t, N * K));
        check_run(&p);
        multiply(m, N, true, false);
        for (int64_t e = 0; e < m * N; e++) expected[e] += (double)bias[e % N];
        check_close("first", m * N, check_result(&p, "y0"), expected, 1e-5);
        check_close("second", m * N, check_result(&p, "y1"), expected, 1e-5);
        for (int64_t e = 0; e < m * N; e++) expected[e] = fmax(0, expected[e]);
        check_close("relu", m * N, check_result(&p, "y2"), expected, 1e-5);
        check_free(&p);
    }
}

/* ---- a table and a head ---------------------------------------------------------------------- */

static void lookups(void **state)
{
    static int32_t ids[] = {3, 0, N - 1, 3, 17};
    for (size_t i = 0; i < COUNT(check_quants); i++) {
        fill(check_quants[i].dtype, (int64_t)N * K);
        dra_graph      *g = check_graph();
        const dra_value table = dra_input(g, "table", check_quants[i].dtype, DRA_SHAPE(N, K));
        dra_output(g, "y",
                   dra_embedding(g, table, dra_input(g, "ids", DRA_I32, DRA_SHAPE(COUNT(ids)))));
        check_program p = check_compile(g, 2);
        check_bind(&p, "table", blocks, bytes_of(check_quants[i].dtype, N * K));
        check_bind(&p, "ids", ids, sizeof ids);
        check_run(&p);
        const dra_real *y = check_result(&p, "y");
        for (size_t r = 0; r < COUNT(ids); r++)
            for (int64_t k = 0; k < K; k++)
                if (!((double)y[(int64_t)r * K + k] == number[ids[r] * K + k]))
                    fail_msg("%s, id %d, %d: %.9g, expected %.9g",
                             dra_dtype_get(check_quants[i].dtype)->name, (int)ids[r], (int)k,
                             (double)y[(int64_t)r * K + k], number[ids[r] * K + k]);
        check_free(&p);
    }
}

/* An id outside is a fault, as of any table. */
static void refuses_other_ids(void **state)
{
    int32_t   ids[] = {1, N};
    dra_error err = {0};
    fill(DRA_Q8_0, (int64_t)N * K);
    dra_graph      *g = check_graph();
    const dra_value table = dra_input(g, "table", DRA_Q8_0, DRA_SHAPE(N, K));
    dra_output(g, "y", dra_embedding(g, table, dra_input(g, "ids", DRA_I32, DRA_SHAPE(2))));
    check_program p = check_compile(g, 1);
    check_bind(&p, "table", blocks, bytes_of(DRA_Q8_0, N * K));
    check_bind(&p, "ids", ids, sizeof ids);
    assert_int_equal(check_try(&p, &err), DRA_ERR_INDEX);
    check_free(&p);
}

static double loss_of(int64_t m, const int32_t *target)
{
    double all = 0;
    for (int64_t i = 0; i < m; i++) {
        const double *z = expected + i * N;
        double        most = z[0], sum = 0;
        for (int64_t j = 1; j < N; j++) most = fmax(most, z[j]);
        for (int64_t j = 0; j < N; j++) sum += exp(z[j] - most);
        all += most + log(sum) - z[target[i]];
    }
    return all / (double)m;
}

static void losses(void **state)
{
    static int32_t target[ROWS];
    for (int i = 0; i < ROWS; i++) target[i] = 7 * i % N;
    for (size_t i = 0; i < COUNT(check_quants); i++) {
        fill(check_quants[i].dtype, (int64_t)N * K);
        dra_graph      *g = check_graph();
        const dra_value in = check_real(g, "x", DRA_SHAPE(ROWS, K));
        const dra_value w = dra_input(g, "w", check_quants[i].dtype, DRA_SHAPE(N, K));
        const dra_value t = dra_input(g, "t", DRA_I32, DRA_SHAPE(ROWS));
        dra_output(g, "loss", dra_linear_cross_entropy(g, in, w, t, NULL));
        check_program p = check_compile(g, 2);
        check_bind(&p, "x", x, sizeof x);
        check_bind(&p, "w", blocks, bytes_of(check_quants[i].dtype, N * K));
        check_bind(&p, "t", target, sizeof target);
        check_run(&p);
        multiply(ROWS, N, true, false);
        const double own = loss_of(ROWS, target);
        check_close("loss", 1, check_result(&p, "loss"), &own, 1e-5);
        check_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products), cmocka_unit_test(fused_products),
        cmocka_unit_test(lookups),  cmocka_unit_test(refuses_other_ids),
        cmocka_unit_test(losses),
    };
    return cmocka_run_group_tests_name("quantised", tests, NULL, NULL);
}
