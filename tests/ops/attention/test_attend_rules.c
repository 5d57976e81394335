/* Attention, rules beyond the formula: queries that see nothing, keys that nobody sees, gradients
 * that go straight through, dropout, causal intervals. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a small attention ----------------------------------------------------------------------- */

enum {
    B1 = 1,
    H1 = 2,
    T1 = 5,
    J1 = 70, /* more than a block of keys */
    D1 = 4,
    E1 = 3,
    Q1 = H1 * T1 * D1,
    K1 = H1 * J1 * D1,
    V1 = H1 * J1 * E1,
    Y1 = H1 * T1 * E1
};

static void fill(uint64_t seed, int64_t n, dra_real *x)
{
    for (int64_t i = 0; i < n; i++) x[i] = (dra_real)(2 * check_random(&seed) - 1);
}

typedef struct small { /* one small attention, its inputs and its results */
    dra_real        q[Q1], k[K1], v[V1], u[Y1];
    int32_t         lo[T1], hi[T1];
    check_program   p;
    const dra_real *y, *dq, *dk, *dv;
} small;

static void run_small(small *s, dra_attend_config c)
{
    dra_graph      *g = check_graph();
    const dra_value x[] = {check_real(g, "q", DRA_SHAPE(B1, H1, T1, D1)),
                           check_real(g, "k", DRA_SHAPE(B1, H1, J1, D1)),
                           check_real(g, "v", DRA_SHAPE(B1, H1, J1, E1))};
    const dra_value u = check_real(g, "u", DRA_SHAPE(B1, H1, T1, E1));
    c.lo = dra_input(g, "lo", DRA_I32, DRA_SHAPE(B1, T1));
    c.hi = dra_input(g, "hi", DRA_I32, DRA_SHAPE(B1, T1));
    const dra_value y = dra_attend(g, x[0], x[1], x[2], &c);
    dra_value       dx[3];
    dra_gradient(g, 1, &y, &u, 3, x, dx);
    dra_output(g, "y", y);
    dra_output(g, "dq", dx[0]);
    dra_output(g, "dk", dx[1]);
    dra_output(g, "dv", dx[2]);
    s->p = check_compile(g, 2);
    check_bind(&s->p, "q", s->q, sizeof s->q);
    check_bind(&s->p, "k", s->k, sizeof s->k);
    check_bind(&s->p, "v", s->v, sizeof s->v);
    check_bind(&s->p, "u", s->u, sizeof s->u);
    check_bind(&s->p, "lo", s->lo, sizeof s->lo);
    check_bind(&s->p, "hi", s->hi, sizeof s->hi);
    check_run(&s->p);
    s->y = check_result(&s->p, "y");
    s->dq = check_result(&s->p, "dq");
    s->dk = check_result(&s->p, "dk");
    s->dv = check_result(&s->p, "dv");
}

static void fill_small(small *s)
{
    *s = (small){{0}};
    fill(1, Q1, s->q);
    fill(2, K1, s->k);
    fill(3, V1, s->v);
    fill(4, Y1, s->u);
    for (int t = 0; t < T1; t++) s->hi[t] = J1;
}

static void assert_zero(int64_t n, const dra_real *x)
{
    for (int64_t i = 0; i < n; i++) assert_true(x[i] == 0);
}

static void assert_finite(int64_t n, const dra_real *x)
{
    for (int64_t i = 0; i < n; i++) assert_true(isfinite(x[i]));
}

/* Queries 1 and 3 see nothing; in all that concerns them there is 0, never NaN. */
static void query_that_sees_nothing(void **state)
{
    for (dra_attend_path path = DRA_ATTEND_PLAIN; path <= DRA_ATTEND_TILED; path++) {
        small s;
        fill_small(&s);
        s.hi[1] = -4;
        s.lo[3] = 5, s.hi[3] = 5;
        run_small(&s, (dra_attend_config){.path = path});
        for (int h = 0; h < H1; h++) {
            assert_zero(E1, s.y + (h * T1 + 1) * E1);
            assert_zero(E1, s.y + (h * T1 + 3) * E1);
            assert_zero(D1, s.dq + (h * T1 + 1) * D1);
            assert_zero(D1, s.dq + (h * T1 + 3) * D1);
        }
        assert_finite(Y1, s.y);
        assert_finite(Q1, s.dq);
        assert_finite(K1, s.dk);
        assert_finite(V1, s.dv);
        check_free(&s.p);
    }
}

/* A cache beyond its length may hold anything: the tiled path never lets it in. */
static void keys_that_nobody_sees(void **state)
{
    small s;
    fill_small(&s);
    for (int t = 0; t < T1; t++) s.lo[t] = 1, s.hi[t] = J1 - 2;
    for (int h = 0; h < H1; h++)
        for (int j = 0; j < J1; j++) {
            if (j >= 1 && j < J1 - 2) continue;
            for (int i = 0; i < D1; i++) s.k[(h * J1 + j) * D1 + i] = (dra_real)NAN;
            for (int i = 0; i < E1; i++) s.v[(h * J1 + j) * E1 + i] = (dra_real)INFINITY;
        }
    run_small(&s, (dra_attend_config){.path = DRA_ATTEND_TILED, .softcap = 3});
    assert_finite(Y1, s.y);
    assert_finite(Q1, s.dq);
    assert_finite(K1, s.dk);
    assert_finite(V1, s.dv);
    for (int h = 0; h < H1; h++)
        for (int j = 0; j < J1; j++) {
            if (j >= 1 && j < J1 - 2) continue;
            assert_zero(D1, s.dk + (h * J1 + j) * D1);
            assert_zero(E1, s.dv + (h * J1 + j) * E1);
        }
    check_free(&s.p);
}

/* A bias at or below DRA_MASKED / 2 masks, on both paths. */
static void bias_that_masks(void **state)
{
    for (dra_attend_path path = DRA_ATTEND_PLAIN; path <= DRA_ATTEND_TILED; path++) {
        dra_graph      *g = check_graph();
        const dra_value q = check_real(g, "q", DRA_SHAPE(1, 1, 2, 1));
        const dra_value k = check_real(g, "k", DRA_SHAPE(1, 1, 3, 1));
        const dra_value v = check_real(g, "v", DRA_SHAPE(1, 1, 3, 1));
        const dra_value bias = check_real(g, "bias", DRA_SHAPE(2, 3));
        dra_output(g, "y",
                   dra_attend(g, q, k, v, &(dra_attend_config){.bias = bias, .path = path}));
        check_program p = check_compile(g, 1);
        dra_real      qs[] = {1, 2}, ks[] = {3, 4, 5}, vs[] = {7, 8, 9};
        dra_real      low = (dra_real)DRA_MASKED, bs[] = {low, 0, low, low, low, low};
        check_bind(&p, "q", qs, sizeof qs);
        check_bind(&p, "k", ks, sizeof ks);
        check_bind(&p, "v", vs, sizeof vs);
        check_bind(&p, "bias", bs, sizeof bs);
        check_run(&p);
        check_close("y", 2, check_result(&p, "y"), (const double[]){8, 0}, 1e-6);
        check_free(&p);
    }
}

/* The gradient of hard and straight-through attention to the logits is that of the softmax; the
 * values get the weights that were used. */
static void straight_through(void **state)
{
    const dra_attend_config how[] = {{.hard = true}, {.topk = 2, .topk_straight = true}};
    small                   soft, s;
    fill_small(&soft);
    soft.hi[0] = 0;
    run_small(&soft, (dra_attend_config){.path = DRA_ATTEND_PLAIN});
    for (size_t i = 0; i < COUNT(how); i++) {
        double dq[Q1], dk[K1];
        fill_small(&s);
        s.hi[0] = 0;
        run_small(&s, how[i]);
        for (int k = 0; k < Q1; k++) dq[k] = (double)soft.dq[k];
        for (int k = 0; k < K1; k++) dk[k] = (double)soft.dk[k];
        check_close("dq", Q1, s.dq, dq, 1e-12);
        check_close("dk", K1, s.dk, dk, 1e-12);
        double used = 0; /* every other query spreads a weight of 1 over the values */
        for (int k = 0; k < V1; k++) used += (double)s.dv[k];
        double given = 0;
        for (int h = 0; h < H1; h++)
            for (int k = E1; k < T1 * E1; k++) given += (double)s.u[h * T1 * E1 + k];
        assert_true(fabs(used - given) < 1e-5);
        assert_true(memcmp(s.dv, soft.dv, V1 * sizeof *s.dv) != 0);
        check_free(&s.p);
    }
    check_free(&soft.p);
}

/* About one weight in ten is dropped, others are scaled up, and another step draws again. */
static void dropout_rate(void **state)
{
    enum { T = 64, J = 200 };
    dra_graph        *g = check_graph();
    dra_random_config random = {"weights", dra_input(g, "key", DRA_I32, DRA_SHAPE(4)), {0}, {0}};
    const dra_value   q = check_real(g, "q", DRA_SHAPE(1, 1, T, 1));
    const dra_value   k = check_real(g, "k", DRA_SHAPE(1, 1, J, 1));
    const dra_value   v = dra_broadcast(g, dra_number(g, 1), DRA_SHAPE(1, 1, J, 1));
    dra_output(g, "y",
               dra_attend(g, q, k, v, &(dra_attend_config){.dropout = 0.1, .random = &random}));
    check_program   p = check_compile(g, 1);
    static dra_real zeros[J];
    dra_real        first[T];
    int32_t         key[4] = {5, 0, 1, 0};
    check_bind(&p, "q", zeros, T * sizeof *zeros);
    check_bind(&p, "k", zeros, J * sizeof *zeros);
    check_bind(&p, "key", key, sizeof key);
    check_run(&p);
    double kept = 0; /* a row holds (how many are kept) / J / 0.9 */
    for (int t = 0; t < T; t++) kept += (double)check_result(&p, "y")[t] * 0.9 / T;
    assert_true(fabs(kept - 0.9) < 0.01); /* 4 standard deviations: 4 sqrt(0.09 / 12800) */
    memcpy(first, check_result(&p, "y"), sizeof first);
    key[2] = 2;
    check_run(&p);
    assert_true(memcmp(first, check_result(&p, "y"), sizeof first) != 0);
    check_free(&p);
}

/* ---- intervals ------------------------------------------------------------------------------- */

static void expect_interval(const int32_t *pos, int64_t B, int64_t T, int64_t window,
                            const int32_t *lo, const int32_t *hi)
{
    dra_graph *g = check_graph();
    dra_value  from, to, at = {0};
    if (pos) at = dra_input(g, "pos", DRA_I32, DRA_SHAPE(B));
    dra_causal_interval(g, at, B, T, window, &from, &to);
    dra_output(g, "lo", from);
    dra_output(g, "hi", to);
    check_program p = check_compile(g, 1);
    int32_t       bound[8];
    if (pos) {
        memcpy(bound, pos, (size_t)B * sizeof *pos);
        check_bind(&p, "pos", bound, (size_t)B * sizeof *pos);
    }
    check_run(&p);
    const size_t bytes = (size_t)(B * T) * sizeof *lo;
    assert_int_equal(memcmp(check_result_of(&p, "lo"), lo, bytes), 0);
    assert_int_equal(memcmp(check_result_of(&p, "hi"), hi, bytes), 0);
    check_free(&p);
}

static void causal_intervals(void **state)
{
    expect_interval(NULL, 2, 3, 0, (const int32_t[]){0, 0, 0, 0, 0, 0},
                    (const int32_t[]){1, 2, 3, 1, 2, 3});
    expect_interval((const int32_t[]){4, 0}, 2, 3, 0, (const int32_t[]){0, 0, 0, 0, 0, 0},
                    (const int32_t[]){5, 6, 7, 1, 2, 3});
    expect_interval((const int32_t[]){4, 0}, 2, 3, 2, (const int32_t[]){3, 4, 5, 0, 0, 1},
                    (const int32_t[]){5, 6, 7, 1, 2, 3});
    expect_interval((const int32_t[]){4}, 1, 2, (int64_t)1 << 40, (const int32_t[]){0, 0},
                    (const int32_t[]){5, 6});
}

static void refuses_intervals(void **state)
{
    dra_value  lo, hi;
    dra_graph *g = check_graph();
    dra_causal_interval(g, (dra_value){0}, 2, 3, -1, &lo, &hi);
    assert_int_equal(lo.id | hi.id, 0);
    check_refused(g, DRA_ERR_VALUE, "causal_interval: B 2, T 3, window -1: below 0");
    g = check_graph();
    dra_causal_interval(g, dra_input(g, "pos", DRA_I32, DRA_SHAPE(3)), 2, 3, 0, &lo, &hi);
    check_refused(g, DRA_ERR_SHAPE, "causal_interval: pos is i32 (3), expected i32 (2)");
    g = check_graph();
    dra_causal_interval(g, dra_input(g, "pos", DRA_BOOL, DRA_SHAPE(2)), 2, 3, 0, &lo, &hi);
    check_refused(g, DRA_ERR_DTYPE, "causal_interval: pos is bool (2), expected i32 (2)");
}

/* ---- keys and values side by side ------------------------------------------------------------ */

/* One query over rows [k | v] of each head, whose last value is the last number of its memory: the
 * answer is that of keys and values apart, and nothing past the end is read. */
static void side_by_side(void **state)
{
    enum { H = 2, J = 512, W = 8 };
    const size_t n = (size_t)J * H * W;
    dra_real    *q = malloc(H * W * sizeof *q), *k = malloc(n * sizeof *k);
    dra_real    *v = malloc(n * sizeof *v), *both = malloc(2 * n * sizeof *both);
    fill(1, H * W, q);
    fill(2, 2 * J * H * W, both);
    for (size_t i = 0; i < n; i++) {
        k[i] = both[i / W * 2 * W + i % W];
        v[i] = both[i / W * 2 * W + W + i % W];
    }
    dra_graph      *g = check_graph();
    const dra_value in_q = check_real(g, "q", DRA_SHAPE(1, H, 1, W));
    const dra_value in_k = check_real(g, "k", DRA_SHAPE(1, J, H, W));
    const dra_value in_v = check_real(g, "v", DRA_SHAPE(1, J, H, W));
    const dra_value rows = dra_transpose(g, check_real(g, "both", DRA_SHAPE(1, J, H, 2 * W)), 1, 2);
    dra_output(
        g, "apart",
        dra_attend(g, in_q, dra_transpose(g, in_k, 1, 2), dra_transpose(g, in_v, 1, 2), NULL));
    dra_output(g, "joined",
               dra_attend(g, in_q, dra_slice(g, rows, 3, 0, W), dra_slice(g, rows, 3, W, W), NULL));
    check_program p = check_compile(g, 2);
    check_bind(&p, "q", q, H * W * sizeof *q);
    check_bind(&p, "k", k, n * sizeof *k);
    check_bind(&p, "v", v, n * sizeof *v);
    check_bind(&p, "both", both, 2 * n * sizeof *both);
    check_run(&p);
    assert_memory_equal(check_result(&p, "joined"), check_result(&p, "apart"), H * W * sizeof *q);
    check_free(&p);
    free(q);
    free(k);
    free(v);
    free(both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(query_that_sees_nothing),
        cmocka_unit_test(keys_that_nobody_sees),
        cmocka_unit_test(bias_that_masks),
        cmocka_unit_test(straight_through),
        cmocka_unit_test(dropout_rate),
        cmocka_unit_test(causal_intervals),
        cmocka_unit_test(refuses_intervals),
        cmocka_unit_test(side_by_side),
    };
    return check_main("attend rules", NULL, 0, tests, COUNT(tests));
}
