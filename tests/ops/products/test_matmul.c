/* matmul against sums written out, in any strides, any broadcast, any precision. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "base/shape.h"

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

/* ---- matmul ---------------------------------------------------------------------------------- */

typedef enum mode { PLAIN, A_TRANSPOSED, B_TRANSPOSED, HEADS, SLICED, SPREAD, FLIPPED } mode;

static const mode modes[] = {PLAIN, A_TRANSPOSED, B_TRANSPOSED, HEADS, SLICED, SPREAD, FLIPPED};

static void build(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    dra_value a = in[0], b = in[1];
    switch (*(const mode *)args) {
    case PLAIN: break;
    case A_TRANSPOSED: a = dra_transpose(g, a, -1, -2); break;
    case B_TRANSPOSED: b = dra_transpose(g, b, -1, -2); break;
    case HEADS: /* (B, T, H, D) and (B, J, H, D) as (B, H, T, D) and (B, H, D, J) */
        a = dra_permute(g, a, (const int[]){0, 2, 1, 3});
        b = dra_permute(g, b, (const int[]){0, 2, 3, 1});
        break;
    case SLICED: /* without the first column of a and the first row of b */
        a = dra_slice(g, a, -1, 1, dra_shape_of(g, a).dim[1] - 1);
        b = dra_slice(g, b, 0, 1, dra_shape_of(g, b).dim[0] - 1);
        break;
    case SPREAD: /* (M, K, B) and (K, N, B) as (B, M, K) and (B, K, N) */
        a = dra_permute(g, a, (const int[]){2, 0, 1});
        b = dra_permute(g, b, (const int[]){2, 0, 1});
        break;
    case FLIPPED: /* columns of both */
        a = dra_flip(g, a, -1);
        b = dra_flip(g, b, -1);
        break;
    }
    out[0] = dra_matmul(g, a, b);
}

typedef struct view { /* an operand as the product sees it */
    const double *at;
    dra_shape     shape;
    int64_t       stride[DRA_MAX_RANK];
} view;

static view view_of(const check_tensor *x)
{
    view    v = {.at = x->at, .shape = x->shape};
    int64_t step = 1;
    for (int32_t i = x->shape.rank - 1; i >= 0; i--) {
        v.stride[i] = step;
        step *= x->shape.dim[i];
    }
    return v;
}

static void swap(view *v, int32_t i, int32_t j)
{
    const int64_t dim = v->shape.dim[i], stride = v->stride[i];
    v->shape.dim[i] = v->shape.dim[j];
    v->stride[i] = v->stride[j];
    v->shape.dim[j] = dim;
    v->stride[j] = stride;
}

static void flip(view *v, int32_t i)
{
    v->at += (v->shape.dim[i] - 1) * v->stride[i];
    v->stride[i] = -v->stride[i];
}

static int64_t matrix_at(const view *v, const dra_shape *y, int64_t batch)
{
    int64_t at = 0;
    for (int32_t i = y->rank - 3, k = v->shape.rank - 3; i >= 0; i--, k--) {
        if (k >= 0 && v->shape.dim[k] > 1) at += batch % y->dim[i] * v->stride[k];
        batch /= y->dim[i];
    }
    return at;
}

static void oracle(const void *args, const check_tensor *in, check_tensor *out)
{
    view a = view_of(&in[0]), b = view_of(&in[1]);
    switch (*(const mode *)args) {
    case PLAIN: break;
    case A_TRANSPOSED: swap(&a, a.shape.rank - 1, a.shape.rank - 2); break;
    case B_TRANSPOSED: swap(&b, b.shape.rank - 1, b.shape.rank - 2); break;
    case HEADS:
        swap(&a, 1, 2);
        swap(&b, 1, 2);
        swap(&b, 2, 3);
        break;
    case SLICED:
        a.at += a.stride[1];
        a.shape.dim[1]--;
        b.at += b.stride[0];
        b.shape.dim[0]--;
        break;
    case SPREAD:
        swap(&a, 1, 2);
        swap(&a, 0, 1);
        swap(&b, 1, 2);
        swap(&b, 0, 1);
        break;
    case FLIPPED:
        flip(&a, a.shape.rank - 1);
        flip(&b, b.shape.rank - 1);
        break;
    }
    const int32_t ra = a.shape.rank, rb = b.shape.rank, ry = out->shape.rank;
    const int64_t M = out->shape.dim[ry - 2], N = out->shape.dim[ry - 1], K = a.shape.dim[ra - 1];
    for (int64_t i = 0; i < out->count; i++) {
        const int64_t batch = i / (M * N), m = i / N % M, n = i % N;
        const double *row = a.at + matrix_at(&a, &out->shape, batch) + m * a.stride[ra - 2];
        const double *column = b.at + matrix_at(&b, &out->shape, batch) + n * b.stride[rb - 1];
        for (int64_t k = 0; k < K; k++)
            out->at[i] += row[k * a.stride[ra - 1]] * column[k * b.stride[rb - 2]];
    }
}

static const check_case cases[] = {
    {"odd sizes", 2, {{{2, {3, 5}}}, {{2, {5, 7}}}}, &modes[PLAIN]},
    {"one value", 2, {{{2, {1, 1}}}, {{2, {1, 1}}}}, &modes[PLAIN]},
    {"batched", 2, {{{4, {2, 3, 4, 5}}}, {{4, {2, 3, 5, 3}}}}, &modes[PLAIN]},
    {"b for all", 2, {{{3, {4, 3, 5}}}, {{2, {5, 6}}}}, &modes[PLAIN]},
    {"b for all, with axes of 1", 2, {{{3, {4, 3, 5}}}, {{4, {1, 1, 5, 6}}}}, &modes[PLAIN]},
    {"a for all", 2, {{{2, {3, 5}}}, {{3, {4, 5, 6}}}}, &modes[PLAIN]},
    {"both repeated", 2, {{{4, {2, 1, 3, 5}}}, {{4, {1, 4, 5, 2}}}}, &modes[PLAIN]},
    {"several tiles", 2, {{{3, {2, 70, 131}}}, {{3, {2, 131, 140}}}}, &modes[PLAIN]},
    {"no depth", 2, {{{2, {3, 0}}}, {{2, {0, 150}}}}, &modes[PLAIN]},
    {"no rows", 2, {{{2, {0, 3}}}, {{2, {3, 4}}}}, &modes[PLAIN]},
    {"no columns", 2, {{{2, {2, 3}}}, {{2, {3, 0}}}}, &modes[PLAIN]},
    {"no matrices", 2, {{{3, {0, 2, 3}}}, {{3, {0, 3, 4}}}}, &modes[PLAIN]},
    {"no matrices, b for all", 2, {{{3, {0, 2, 3}}}, {{2, {3, 4}}}}, &modes[PLAIN]},
    {"a transposed", 2, {{{3, {2, 9, 4}}}, {{3, {2, 9, 5}}}}, &modes[A_TRANSPOSED]},
    {"b transposed", 2, {{{3, {2, 4, 9}}}, {{3, {2, 5, 9}}}}, &modes[B_TRANSPOSED]},
    {"heads", 2, {{{4, {2, 5, 3, 4}}}, {{4, {2, 7, 3, 4}}}}, &modes[HEADS]},
    {"sliced", 2, {{{2, {4, 7}}}, {{2, {7, 5}}}}, &modes[SLICED]},
    {"spread", 2, {{{3, {4, 7, 3}}}, {{3, {7, 5, 3}}}}, &modes[SPREAD]},
    {"spread, more rows", 2, {{{3, {11, 7, 3}}}, {{3, {7, 5, 3}}}}, &modes[SPREAD]},
    {"flipped", 2, {{{2, {4, 7}}}, {{2, {7, 5}}}}, &modes[FLIPPED]},
    {"flipped, more rows", 2, {{{3, {3, 11, 7}}}, {{3, {3, 7, 5}}}}, &modes[FLIPPED]},
    {"heads, more rows", 2, {{{4, {2, 12, 3, 4}}}, {{4, {2, 9, 3, 4}}}}, &modes[HEADS]},
    {"few columns", 2, {{{2, {21, 40}}}, {{2, {40, 3}}}}, &modes[PLAIN]},
    {"few columns, b transposed", 2, {{{2, {21, 40}}}, {{2, {2, 40}}}}, &modes[B_TRANSPOSED]},
    {"eight rows", 2, {{{2, {8, 272}}}, {{2, {272, 36}}}}, &modes[PLAIN]},
    {"eight rows, b transposed", 2, {{{2, {8, 272}}}, {{2, {37, 272}}}}, &modes[B_TRANSPOSED]},
    {"one row, b transposed", 2, {{{2, {1, 300}}}, {{2, {9, 300}}}}, &modes[B_TRANSPOSED]},
    {"few rows, by chains",
     2,
     {{{2, {3, 270}}}, {{2, {270, 251}}}},
     &modes[PLAIN],
     .no_grad = true},
    {"the same, sliced", 2, {{{2, {8, 271}}}, {{2, {271, 251}}}}, &modes[SLICED], .no_grad = true},
    {"large values",
     2,
     {{{2, {4, 17}}, .lo = -1e15, .hi = 1e15}, {{2, {17, 5}}, .lo = -1e15, .hi = 1e15}},
     &modes[PLAIN],
     .no_grad = true},
};

/* Stored in 16 bits: widened, so only they are rounded, and their gradient is real. */
static const check_case stored_cases[] = {
    {"b in bf16",
     2,
     {{{2, {3, 40}}}, {{2, {40, 70}}, CHECK_BF16, .constant = true}},
     &modes[PLAIN]},
    {"b in f16", 2, {{{2, {3, 40}}}, {{2, {40, 70}}, CHECK_F16, .constant = true}}, &modes[PLAIN]},
    {"b in bf16, transposed",
     2,
     {{{3, {2, 1, 70}}}, {{3, {2, 40, 70}}, CHECK_BF16, .constant = true}},
     &modes[B_TRANSPOSED]},
    {"b in f16, transposed",
     2,
     {{{3, {2, 2, 70}}}, {{3, {2, 40, 70}}, CHECK_F16, .constant = true}},
     &modes[B_TRANSPOSED]},
    {"a in bf16", 2, {{{2, {9, 7}}, CHECK_BF16, .constant = true}, {{2, {7, 5}}}}, &modes[PLAIN]},
    {"a in f16, sliced",
     2,
     {{{2, {9, 7}}, CHECK_F16, .constant = true}, {{2, {7, 5}}}},
     &modes[SLICED]},
    {"few rows, b in bf16, by chains",
     2,
     {{{2, {2, 270}}}, {{2, {270, 251}}, CHECK_BF16}},
     &modes[PLAIN],
     .no_grad = true},
    {"one row, b in f16, by chains",
     2,
     {{{2, {1, 270}}}, {{2, {270, 251}}, CHECK_F16}},
     &modes[PLAIN],
     .no_grad = true},
    {"both, heads",
     2,
     {{{4, {2, 5, 3, 4}}, CHECK_F16}, {{4, {2, 7, 3, 4}}, CHECK_BF16}},
     &modes[HEADS],
     .no_grad = true},
    {"both, more rows",
     2,
     {{{3, {2, 24, 40}}, CHECK_BF16}, {{3, {2, 40, 16}}, CHECK_F16}},
     &modes[PLAIN],
     .no_grad = true},
    {"eight rows, b in bf16, wide",
     2,
     {{{2, {8, 72}}}, {{2, {72, 200}}, CHECK_BF16, .constant = true}},
     &modes[PLAIN]},
    {"eight rows, b in f16, long",
     2,
     {{{2, {7, 640}}}, {{2, {13, 640}}, CHECK_F16, .constant = true}},
     &modes[B_TRANSPOSED]},
    {"more rows, b in bf16, transposed",
     2,
     {{{2, {17, 48}}}, {{2, {24, 48}}, CHECK_BF16, .constant = true}},
     &modes[B_TRANSPOSED]},
};

/* ---- matmul in bf16 -------------------------------------------------------------------------- */

static void build_bf16(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    dra_set_precision(g, DRA_PRECISION_BF16);
    build(g, args, in, out);
}

static double in_bf16(double x)
{
    return (double)dra_bf16_to_f32(dra_f32_to_bf16(dra_round_to_odd(x)));
}

static void oracle_bf16(const void *args, const check_tensor *in, check_tensor *out)
{
    check_tensor copy[] = {in[0], in[1]};
    for (int i = 0; i < 2; i++) {
        copy[i].at = calloc((size_t)in[i].count + 1, sizeof *copy[i].at);
        assert_non_null(copy[i].at);
        for (int64_t j = 0; j < in[i].count; j++) copy[i].at[j] = in_bf16(in[i].at[j]);
    }
    oracle(args, copy, out);
    free(copy[0].at);
    free(copy[1].at);
}

/* Rounding has no slope to compare a gradient with; see gradients_are_products_in_bf16(). */
static const check_case bf16_cases[] = {
    {"odd sizes", 2, {{{2, {3, 5}}}, {{2, {5, 7}}}}, &modes[PLAIN], .no_grad = true},
    {"batched", 2, {{{4, {2, 3, 4, 5}}}, {{4, {2, 3, 5, 3}}}}, &modes[PLAIN], .no_grad = true},
    {"several tiles",
     2,
     {{{3, {2, 70, 131}}}, {{3, {2, 131, 140}}}},
     &modes[PLAIN],
     .no_grad = true},
    {"no depth", 2, {{{2, {3, 0}}}, {{2, {0, 150}}}}, &modes[PLAIN], .no_grad = true},
    {"a transposed",
     2,
     {{{3, {2, 9, 4}}}, {{3, {2, 9, 5}}}},
     &modes[A_TRANSPOSED],
     .no_grad = true},
    {"b transposed",
     2,
     {{{3, {2, 4, 290}}}, {{3, {2, 45, 290}}}},
     &modes[B_TRANSPOSED],
     .no_grad = true},
    {"heads", 2, {{{4, {2, 5, 3, 4}}}, {{4, {2, 7, 3, 4}}}}, &modes[HEADS], .no_grad = true},
    {"sliced", 2, {{{2, {4, 7}}}, {{2, {7, 5}}}}, &modes[SLICED], .no_grad = true},
    {"heads, more rows",
     2,
     {{{4, {2, 12, 3, 8}}}, {{4, {2, 9, 3, 8}}}},
     &modes[HEADS],
     .no_grad = true},
    {"spread", 2, {{{3, {11, 7, 3}}}, {{3, {7, 5, 3}}}}, &modes[SPREAD], .no_grad = true},
    {"flipped", 2, {{{3, {3, 11, 7}}}, {{3, {3, 7, 5}}}}, &modes[FLIPPED], .no_grad = true},
    {"a transposed, more rows",
     2,
     {{{3, {2, 40, 24}}}, {{3, {2, 40, 16}}}},
     &modes[A_TRANSPOSED],
     .no_grad = true},
    {"both stored, more rows",
     2,
     {{{2, {24, 40}}, CHECK_BF16}, {{2, {40, 16}}, CHECK_F16}},
     &modes[PLAIN],
     .no_grad = true},
    {"eight rows, b transposed",
     2,
     {{{2, {8, 272}}}, {{2, {37, 272}}}},
     &modes[B_TRANSPOSED],
     .no_grad = true},
    {"few columns", 2, {{{2, {21, 40}}}, {{2, {40, 3}}}}, &modes[PLAIN], .no_grad = true},
    {"b stored in f16",
     2,
     {{{2, {1, 70}}}, {{2, {33, 70}}, CHECK_F16}},
     &modes[B_TRANSPOSED],
     .no_grad = true},
    {"b stored in bf16",
     2,
     {{{2, {2, 70}}}, {{2, {33, 70}}, CHECK_BF16}},
     &modes[B_TRANSPOSED],
     .no_grad = true},
};

/* ---- promises -------------------------------------------------------------------------------- */

enum { K = 300, N = 250, MOST = 200 }; /* b is large enough to be cut along k */

static void fill(dra_real *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) x[i] = (dra_real)(2 * check_random(&seed) - 1);
}

static void multiply(dra_precision precision, int64_t M, dra_real *a, dra_real *b, dra_real *y)
{
    dra_graph *g = check_graph();
    dra_set_precision(g, precision);
    dra_output(
        g, "y",
        dra_matmul(g, check_real(g, "a", DRA_SHAPE(M, K)), check_real(g, "b", DRA_SHAPE(K, N))));
    check_program p = check_compile(g, 2);
    check_bind(&p, "a", a, (size_t)M * K * sizeof *a);
    check_bind(&p, "b", b, (size_t)K * N * sizeof *b);
    check_run(&p);
    memcpy(y, check_result(&p, "y"), (size_t)M * N * sizeof *y);
    check_free(&p);
}

static void keep_rows(dra_precision precision)
{
    static const int64_t counts[] = {1, 2, 7, 64, 65};
    static dra_real      a[MOST * K], b[K * N], all[MOST * N], some[MOST * N];
    fill(a, MOST * K, 1);
    fill(b, K * N, 2);
    multiply(precision, MOST, a, b, all);
    for (size_t i = 0; i < COUNT(counts); i++) {
        const int64_t M = counts[i], starts[] = {0, MOST - M};
        for (size_t k = 0; k < COUNT(starts); k++) {
            multiply(precision, M, a + starts[k] * K, b, some);
            check_reals(some, all + starts[k] * N, (size_t)(M * N) * sizeof *some);
        }
    }
}

static void rows_do_not_depend_on_their_number(void **state)
{
    keep_rows(DRA_PRECISION_FULL);
    keep_rows(DRA_PRECISION_BF16);
}

static dra_value rounded(dra_graph *g, dra_value x)
{
    return dra_cast(g, dra_cast(g, x, DRA_BF16), DRA_REAL);
}

/* da = dy b^T, db = a^T dy with all factors rounded, also where the graph has another precision by
 * the time its gradient is asked for. */
static void gradients_are_products_in_bf16(void **state)
{
    enum { M = 19, D = 37, O = 43 };
    static dra_real a_data[M * D], b_data[D * O], up_data[M * O];
    dra_graph      *g = check_graph();
    dra_value x[] = {check_real(g, "a", DRA_SHAPE(M, D)), check_real(g, "b", DRA_SHAPE(D, O))};
    dra_value up = check_real(g, "up", DRA_SHAPE(M, O)), dx[2];
    dra_set_precision(g, DRA_PRECISION_BF16);
    const dra_value y = dra_matmul(g, x[0], x[1]);
    dra_set_precision(g, DRA_PRECISION_FULL);
    dra_gradient(g, 1, &y, &up, 2, x, dx);
    const dra_value dy = rounded(g, up), a = rounded(g, x[0]), b = rounded(g, x[1]);
    dra_output(g, "da", dx[0]);
    dra_output(g, "db", dx[1]);
    dra_output(g, "da spelled out", dra_matmul(g, dy, dra_transpose(g, b, 0, 1)));
    dra_output(g, "db spelled out", dra_matmul(g, dra_transpose(g, a, 0, 1), dy));
    check_program p = check_compile(g, 2);
    fill(a_data, M * D, 3);
    fill(b_data, D * O, 4);
    fill(up_data, M * O, 5);
    check_bind(&p, "a", a_data, sizeof a_data);
    check_bind(&p, "b", b_data, sizeof b_data);
    check_bind(&p, "up", up_data, sizeof up_data);
    check_run(&p);
    static double want[D * O];
    for (int i = 0; i < M * D; i++) want[i] = (double)check_result(&p, "da spelled out")[i];
    check_close("da", M * D, check_result(&p, "da"), want, 1e-5);
    for (int i = 0; i < D * O; i++) want[i] = (double)check_result(&p, "db spelled out")[i];
    check_close("db", D * O, check_result(&p, "db"), want, 1e-5);
    check_free(&p);
}

static void refuses_shapes(void **state)
{
    dra_graph *g = check_graph();
    dra_matmul(g, check_real(g, "a", DRA_SHAPE(4, 8)), check_real(g, "b", DRA_SHAPE(7, 16)));
    check_refused(g, DRA_ERR_SHAPE,
                  "matmul: a " REAL " (4, 8), b " REAL " (7, 16): inner sizes 8 and 7 differ");
    g = check_graph();
    dra_matmul(g, check_real(g, "a", DRA_SHAPE(8)), check_real(g, "b", DRA_SHAPE(8, 16)));
    check_refused(g, DRA_ERR_SHAPE,
                  "matmul: a " REAL " (8), b " REAL " (8, 16): expected two axes or more");
    g = check_graph();
    dra_matmul(g, check_real(g, "a", DRA_SHAPE(2, 4, 8)), check_real(g, "b", DRA_SHAPE(3, 8, 6)));
    check_refused(g, DRA_ERR_SHAPE,
                  "matmul: a " REAL " (2, 4, 8), b " REAL
                  " (3, 8, 6): leading axes do not broadcast");
}

static void refuses_other_values(void **state)
{
    dra_graph *g = check_graph();
    dra_matmul(g, check_real(g, "a", DRA_SHAPE(4, 8)), dra_input(g, "b", DRA_I32, DRA_SHAPE(8, 2)));
    check_refused(g, DRA_ERR_DTYPE, "matmul: b is i32, expected " REAL ", bf16 or f16");
    g = check_graph();
    assert_int_equal(dra_matmul(g, check_real(g, "a", DRA_SHAPE(4, 8)), (dra_value){0}).id, 0);
    check_refused(g, DRA_ERR_VALUE, "matmul: input 1 is the null value");
}

int main(void)
{
    const check_spec specs[] = {
        {"matmul", 1, build, oracle, cases, COUNT(cases)},
        {"matmul, stored", 1, build, oracle, stored_cases, COUNT(stored_cases)},
        {"matmul, bf16", 1, build_bf16, oracle_bf16, bf16_cases, COUNT(bf16_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_do_not_depend_on_their_number),
        cmocka_unit_test(gradients_are_products_in_bf16),
        cmocka_unit_test(refuses_shapes),
        cmocka_unit_test(refuses_other_values),
    };
    return check_main("matmul", specs, COUNT(specs), tests, COUNT(tests));
}
