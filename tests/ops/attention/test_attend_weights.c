/* Attention that shows its weights: what multiplies the values, after top-k, a hard choice and the
 * mixing of heads, as if nothing were dropped out. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the formula ----------------------------------------------------------------------------- */

typedef struct args { /* options by number of input; 0: none, since that is q */
    int     after, hi;
    int64_t topk, always;
} args;

static dra_value pick(const dra_value *in, int i) { return i ? in[i] : (dra_value){0}; }

/* y and the weights. */
static void build(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    const args             *a = p;
    const dra_attend_config c = {.mix_after = pick(in, a->after),
                                 .hi = pick(in, a->hi),
                                 .topk = a->topk,
                                 .always = a->always,
                                 .weights = &out[1]};
    out[0] = dra_attend(g, in[0], in[1], in[2], &c);
}

typedef struct sizes {
    int64_t B, H, K, T, J, D, E;
} sizes;

static sizes sizes_of(const check_tensor *in)
{
    const int64_t *q = in[0].shape.dim, *v = in[2].shape.dim;
    return (sizes){q[0], q[1], v[1], q[2], v[2], q[3], v[3]};
}

/* Of n numbers, how many are larger. */
static int64_t rank_of(int64_t n, const double *s, double x)
{
    int64_t larger = 0;
    for (int64_t j = 0; j < n; j++) larger += s[j] > x;
    return larger;
}

/* The weights p (J) of one query of one head, before heads are mixed. */
static void weigh(const args *a, const check_tensor *in, int64_t b, int64_t h, int64_t t, double *p)
{
    const sizes n = sizes_of(in);
    double     *s = calloc((size_t)n.J + 1, sizeof *s), sum = 0;
    for (int64_t j = 0; j < n.J; j++) {
        const double *q = in[0].at + ((b * n.H + h) * n.T + t) * n.D;
        const double *k = in[1].at + ((b * n.K + h / (n.H / n.K)) * n.J + j) * n.D;
        for (int64_t c = 0; c < n.D; c++) s[j] += q[c] * k[c] / sqrt((double)n.D);
        if (a->hi && j >= a->always && j >= in[a->hi].at[b * n.T + t]) s[j] = -INFINITY;
    }
    for (int64_t j = 0; j < n.J; j++) {
        const bool left_out = a->topk && rank_of(n.J, s, s[j]) >= a->topk;
        sum += p[j] = left_out ? 0 : exp(s[j]);
    }
    for (int64_t j = 0; j < n.J; j++) p[j] = sum > 0 ? p[j] / sum : 0;
    free(s);
}

static void oracle(const void *user, const check_tensor *in, check_tensor *out)
{
    const args   *a = user;
    const sizes   n = sizes_of(in);
    const int64_t rows = n.B * n.H * n.T, pairs = n.T * n.J;
    double       *p = calloc((size_t)(rows * n.J) + 1, sizeof *p);
    for (int64_t r = 0; r < rows; r++)
        weigh(a, in, r / n.T / n.H, r / n.T % n.H, r % n.T, p + r * n.J);
    for (int64_t i = 0; i < rows * n.J; i++) {
        const int64_t b = i / pairs / n.H, h = i / pairs % n.H, at = i % pairs;
        double       *w = &out[1].at[i];
        for (int64_t g = 0; g < n.H && a->after; g++)
            *w += in[a->after].at[h * n.H + g] * p[(b * n.H + g) * pairs + at];
        if (!a->after) *w = p[i];
        const double *v = in[2].at + ((b * n.K + h / (n.H / n.K)) * n.J + i % n.J) * n.E;
        for (int64_t c = 0; c < n.E; c++) out[0].at[i / n.J * n.E + c] += *w * v[c];
    }
    free(p);
}

/* clang-format off: it does not know that these are initialisers */
#define QKV(B, H, K, T, J, D, E)                                                                   \
    {{4, {B, H, T, D}}}, {{4, {B, K, J, D}}},                                                      \
    {                                                                                              \
        {                                                                                          \
            4, { B, K, J, E }                                                                      \
        }                                                                                          \
    }
#define HEADS(H)                                                                                   \
    {                                                                                              \
        {                                                                                          \
            2, { H, H }                                                                            \
        }                                                                                          \
    }
#define ENDS(B, T, J)                                                                              \
    {                                                                                              \
        {2, {B, T}}, CHECK_I32, .lo = 0, .hi = J, .constant = true                                 \
    }
/* clang-format on */

static const check_case cases[] = {
    {"plain", 3, {QKV(2, 3, 3, 5, 9, 7, 4)}, &(args){0}},
    {"one key", 3, {QKV(1, 1, 1, 3, 1, 2, 2)}, &(args){0}},
    {"no keys", 3, {QKV(2, 3, 3, 5, 0, 7, 4)}, &(args){0}},
    {"intervals, some empty", 4, {QKV(2, 3, 3, 5, 9, 7, 4), ENDS(2, 5, 9)}, &(args){.hi = 3}},
    {"learned keys first",
     4,
     {QKV(2, 2, 2, 5, 9, 7, 4), ENDS(2, 5, 9)},
     &(args){.hi = 3, .always = 2}},
    {"shared keys", 4, {QKV(2, 6, 2, 5, 9, 4, 3), ENDS(2, 5, 9)}, &(args){.hi = 3}},
    {"top 3", 4, {QKV(2, 3, 3, 5, 9, 7, 4), ENDS(2, 5, 9)}, &(args){.hi = 3, .topk = 3}},
    {"mixed", 4, {QKV(2, 3, 3, 5, 9, 7, 4), HEADS(3)}, &(args){.after = 3}},
    {"mixed, top 2, intervals",
     5,
     {QKV(2, 4, 2, 5, 9, 7, 4), HEADS(4), ENDS(2, 5, 9)},
     &(args){.after = 3, .hi = 4, .topk = 2}},
};

/* ---- a hard choice, dropout ------------------------------------------------------------------ */

enum { H = 2, T = 3, J = 4, D = 2 };

static void draw(uint64_t seed, int64_t n, dra_real *x)
{
    for (int64_t i = 0; i < n; i++) x[i] = (dra_real)(2 * check_random(&seed) - 1);
}

/* Those of an option with dropout, of the same without, and y of the unit matrix as values. */
static void compare(dra_attend_config c, double dropout, bool mixed)
{
    dra_graph        *g = check_graph();
    dra_random_config random = {"weights", dra_input(g, "key", DRA_I32, DRA_SHAPE(4)), {0}, {0}};
    const dra_value   q = check_real(g, "q", DRA_SHAPE(1, H, T, D));
    const dra_value   k = check_real(g, "k", DRA_SHAPE(1, H, J, D));
    const dra_value   unit = dra_broadcast(g, dra_one_hot(g, dra_arange(g, J), J),
                                           DRA_SHAPE(1, H, J, J));
    dra_value         weights;
    if (mixed) c.mix_after = check_real(g, "heads", DRA_SHAPE(H, H));
    c.path = DRA_ATTEND_PLAIN;
    dra_output(g, "y", dra_attend(g, q, k, unit, &c));
    c.weights = &weights;
    c.dropout = dropout;
    if (dropout > 0) c.random = &random;
    dra_output(g, "dropped", dra_attend(g, q, k, unit, &c));
    dra_output(g, "weights", weights);
    check_program p = check_compile(g, 2);
    dra_real      qs[H * T * D], ks[H * J * D], heads[H * H];
    int32_t       key[] = {1, 2, 3, 4};
    draw(1, H * T * D, qs);
    draw(2, H * J * D, ks);
    draw(3, H * H, heads);
    check_bind(&p, "q", qs, sizeof qs);
    check_bind(&p, "k", ks, sizeof ks);
    if (check_has_input(&p, "key")) check_bind(&p, "key", key, sizeof key);
    if (mixed) check_bind(&p, "heads", heads, sizeof heads);
    check_run(&p);
    const size_t    bytes = H * T * J * sizeof *qs;
    const dra_real *y = check_result(&p, "y");
    assert_memory_equal(check_result(&p, "weights"), y, bytes);
    assert_int_equal(memcmp(check_result(&p, "dropped"), y, bytes) != 0, dropout > 0);
    for (int i = 0; i < H * T && c.hard && !mixed; i++) {
        dra_real sum = 0;
        for (int j = 0; j < J; j++) {
            assert_true(y[i * J + j] == 0 || y[i * J + j] == 1);
            sum += y[i * J + j];
        }
        assert_true(sum == 1);
    }
    check_free(&p);
}

static void are_what_multiplies_values(void **state)
{
    const dra_attend_config options[] = {{.topk = 0}, {.hard = true}, {.topk = 2}};
    for (size_t i = 0; i < COUNT(options); i++)
        for (int mixed = 0; mixed < 2; mixed++) {
            compare(options[i], 0, mixed);
            compare(options[i], 0.5, mixed);
        }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void need_the_plain_path(void **state)
{
    const struct {
        dra_attend_path path;
        const char     *text;
    } list[] = {{DRA_ATTEND_TILED, "attend: the tiled path has no weights"},
                {DRA_ATTEND_FEW, "attend: the few path has no weights"}};
    for (size_t i = 0; i < COUNT(list); i++) {
        dra_graph      *g = check_graph();
        const dra_value x = check_real(g, "x", DRA_SHAPE(2, 4, 3, 5));
        dra_value       weights = x;
        dra_attend(g, x, x, x, &(dra_attend_config){.path = list[i].path, .weights = &weights});
        assert_int_equal(weights.id, 0);
        check_refused(g, DRA_ERR_VALUE, list[i].text);
    }
}

int main(void)
{
    const check_spec        specs[] = {{"weights", 2, build, oracle, cases, COUNT(cases)}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(are_what_multiplies_values),
        cmocka_unit_test(need_the_plain_path),
    };
    return check_main("attend weights", specs, COUNT(specs), tests, COUNT(tests));
}
