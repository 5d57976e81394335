/* Losses of rows of logits against -sum q log p in double, and their mean. */
#include "check.h"

#include <math.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

typedef struct args {
    bool                     mean, no_config;
    dra_cross_entropy_config config;
} args;

static void build(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    const args                     *k = a;
    const dra_cross_entropy_config *config = k->no_config ? NULL : &k->config;
    out[0] = k->mean ? dra_cross_entropy(g, in[0], in[1], config)
                     : dra_token_losses(g, in[0], in[1], config);
}

static double row_loss(const dra_cross_entropy_config *k, int64_t V, const double *x, int target)
{
    double m = x[0], sum = 0, loss = 0;
    if (k->use_ignore && target == k->ignore) return 0;
    for (int64_t v = 1; v < V; v++) m = fmax(m, x[v]);
    for (int64_t v = 0; v < V; v++) sum += exp(x[v] - m);
    for (int64_t v = 0; v < V; v++) {
        const double q = (v == target ? 1 - k->smoothing : 0) + k->smoothing / (double)V;
        loss -= q * (x[v] - m - log(sum));
    }
    return loss;
}

static void oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    const args   *k = a;
    const int64_t V = check_last(&in[0]);
    double        total = 0, count = 0;
    for (int64_t r = 0; r < in[1].count; r++) {
        const int    target = (int)in[1].at[r];
        const double loss = row_loss(&k->config, V, in[0].at + r * V, target);
        count += !(k->config.use_ignore && target == k->config.ignore);
        total += loss;
        if (!k->mean) out->at[r] = loss;
    }
    if (k->mean) out->at[0] = total / fmax(count, 1);
}

static const args losses = {.no_config = true};
static const args losses_ignoring = {.config = {.ignore = 2, .use_ignore = true}};
static const args losses_ignoring_far = {.config = {.ignore = -100, .use_ignore = true}};
static const args losses_smooth = {.config = {.smoothing = 0.1}};
static const args losses_both = {.config = {.ignore = 2, .use_ignore = true, .smoothing = 0.3}};
static const args losses_flat = {.config = {.smoothing = 1}};

/* `ignore` is not looked at without use_ignore. */
static const args losses_not_ignoring = {.config = {.ignore = 2}};

static const double all_ignored[] = {2, 2, 2, 2};
static const double mixed[] = {-100, 3, -100, 0, 4, -100};

/* Targets are 0..3 unless said otherwise. */
#define TARGET(...)                                                                                \
    {                                                                                              \
        {__VA_ARGS__}, CHECK_I32                                                                   \
    }

static const check_case cases[] = {
    {"odd width", 2, {{{3, {2, 3, 17}}}, TARGET(2, {2, 3})}, &losses},
    {"one row", 2, {{{1, {5}}}, TARGET(0)}, &losses},
    {"one class",
     2,
     {{{2, {3, 1}}}, {{1, {3}}, CHECK_I32, .values = (const double[]){0, 0, 0}}},
     &losses},
    {"no rows", 2, {{{2, {0, 8}}}, TARGET(1, {0})}, &losses},
    {"several tiles", 2, {{{2, {70, 1100}}}, {{1, {70}}, CHECK_I32, .lo = 1, .hi = 1099}}, &losses},
    {"saturated", 2, {{{2, {4, 33}}, .lo = -200, .hi = 200}, TARGET(1, {4})}, &losses},
    {"far out",
     2,
     {{{2, {4, 33}}, .lo = -1e30, .hi = 1e30}, TARGET(1, {4})},
     &losses,
     .no_grad = true},
    {"ignoring", 2, {{{2, {20, 7}}}, TARGET(1, {20})}, &losses_ignoring},
    {"ignoring all",
     2,
     {{{2, {4, 7}}}, {{1, {4}}, CHECK_I32, .values = all_ignored}},
     &losses_ignoring},
    {"ignoring outside",
     2,
     {{{2, {6, 7}}}, {{1, {6}}, CHECK_I32, .values = mixed}},
     &losses_ignoring_far},
    {"no class, all ignored",
     2,
     {{{2, {4, 0}}}, {{1, {4}}, CHECK_I32, .values = all_ignored}},
     &losses_ignoring},
    {"not ignoring", 2, {{{2, {20, 7}}}, TARGET(1, {20})}, &losses_not_ignoring},
    {"smooth", 2, {{{2, {20, 7}}, .lo = -5, .hi = 5}, TARGET(1, {20})}, &losses_smooth},
    {"smooth, saturated",
     2,
     {{{2, {20, 7}}, .lo = -200, .hi = 200}, TARGET(1, {20})},
     &losses_smooth},
    {"flat", 2, {{{2, {20, 7}}}, TARGET(1, {20})}, &losses_flat},
    {"smooth and ignoring", 2, {{{3, {5, 4, 9}}}, TARGET(2, {5, 4})}, &losses_both},
};

static const args mean = {.mean = true, .no_config = true};
static const args mean_ignoring = {.mean = true, .config = {.ignore = 2, .use_ignore = true}};
static const args mean_smooth = {.mean = true, .config = {.smoothing = 0.1}};
static const args mean_both = {.mean = true,
                               .config = {.ignore = 2, .use_ignore = true, .smoothing = 0.3}};

static const check_case mean_cases[] = {
    {"odd width", 2, {{{3, {2, 3, 17}}}, TARGET(2, {2, 3})}, &mean},
    {"one row", 2, {{{1, {5}}}, TARGET(0)}, &mean},
    {"no rows", 2, {{{2, {0, 8}}}, TARGET(1, {0})}, &mean},
    {"no rows, ignoring", 2, {{{2, {0, 8}}}, TARGET(1, {0})}, &mean_ignoring},
    {"several tiles", 2, {{{2, {70, 40}}}, {{1, {70}}, CHECK_I32, .lo = 1, .hi = 39}}, &mean},
    {"ignoring", 2, {{{2, {20, 7}}}, TARGET(1, {20})}, &mean_ignoring},
    {"ignoring all",
     2,
     {{{2, {4, 7}}}, {{1, {4}}, CHECK_I32, .values = all_ignored}},
     &mean_ignoring},
    {"smooth", 2, {{{2, {20, 7}}}, TARGET(1, {20})}, &mean_smooth},
    {"smooth and ignoring", 2, {{{3, {5, 4, 9}}}, TARGET(2, {5, 4})}, &mean_both},
};

/* ---- the gradient as a graph of its own, and its gradient ------------------------------------ */

static void build_twice(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    dra_value losses_made;
    build(g, a, in, &losses_made);
    dra_gradient(g, 1, &losses_made, &in[2], 1, &in[0], out);
}

static void oracle_twice(const void *a, const check_tensor *in, check_tensor *out)
{
    const dra_cross_entropy_config *k = &((const args *)a)->config;
    const int64_t                   V = check_last(&in[0]);
    for (int64_t r = 0; r < in[1].count; r++) {
        const double *x = in[0].at + r * V;
        const int     target = (int)in[1].at[r];
        double        m = x[0], sum = 0;
        for (int64_t v = 1; v < V; v++) m = fmax(m, x[v]);
        for (int64_t v = 0; v < V; v++) sum += exp(x[v] - m);
        for (int64_t v = 0; v < V; v++) {
            const double q = (v == target ? 1 - k->smoothing : 0) + k->smoothing / (double)V;
            const bool   ignored = k->use_ignore && target == k->ignore;
            out->at[r * V + v] = ignored ? 0 : in[2].at[r] * (exp(x[v] - m) / sum - q);
        }
    }
}

static const check_case twice_cases[] = {
    {"plain", 3, {{{3, {2, 3, 7}}}, TARGET(2, {2, 3}), {{2, {2, 3}}}}, &losses},
    {"no rows", 3, {{{2, {0, 7}}}, TARGET(1, {0}), {{1, {0}}}}, &losses},
    {"several tiles", 3, {{{2, {40, 5}}}, TARGET(1, {40}), {{1, {40}}}}, &losses},
    {"smooth and ignoring", 3, {{{2, {9, 5}}}, TARGET(1, {9}), {{1, {9}}}}, &losses_both},
};

/* ---- faults and refusals --------------------------------------------------------------------- */

static void check_fault(int32_t wrong, const dra_cross_entropy_config *config, const char *text)
{
    enum { N = 40, V = 5 };
    static dra_real logits[N * V];
    int32_t         target[N] = {0};
    dra_error       err = {0};
    dra_graph      *g = check_graph();
    dra_output(g, "y",
               dra_token_losses(g, check_real(g, "x", DRA_SHAPE(N, V)),
                                dra_input(g, "t", DRA_I32, DRA_SHAPE(N)), config));
    check_program p = check_compile(g, 2);
    target[17] = target[33] = wrong; /* two tiles are wrong; the first is named */
    check_bind(&p, "x", logits, sizeof logits);
    check_bind(&p, "t", target, sizeof target);
    assert_int_equal(check_try(&p, &err), DRA_ERR_INDEX);
    assert_string_equal(err.text, text);
    target[17] = target[33] = V - 1;
    check_run(&p);
    check_free(&p);
}

static void names_a_wrong_target(void **state)
{
    check_fault(5, NULL, "token_losses: target 5 of row 17, expected 0 to 4");
    check_fault(-1, NULL, "token_losses: target -1 of row 17, expected 0 to 4");
    check_fault(-1, &(dra_cross_entropy_config){.ignore = -100, .use_ignore = true},
                "token_losses: target -1 of row 17, expected 0 to 4");
    check_fault(-100, &(dra_cross_entropy_config){.ignore = -100},
                "token_losses: target -100 of row 17, expected 0 to 4");
}

/* The logits die with the backward op, which then works in their memory. */
static void gradient_takes_the_memory_of_the_logits(void **state)
{
    enum { N = 512, V = 128 };
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(N, V)), dx;
    dra_value  z = dra_tanh(g, x);
    dra_value  y = dra_cross_entropy(g, z, dra_input(g, "t", DRA_I32, DRA_SHAPE(N)), NULL);
    dra_gradient(g, 1, &y, NULL, 1, &z, &dx);
    dra_output(g, "dx", dx);
    dra_program *p = NULL;
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &p, NULL), DRA_OK);
    assert_true(dra_program_memory(p).activations < 3 * N * V * sizeof(dra_real) / 2);
    dra_program_destroy(p);
    dra_graph_destroy(g);
}

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    dra_token_losses(g, check_real(g, "x", DRA_SHAPE(4, 8)),
                     dra_input(g, "t", DRA_I32, DRA_SHAPE(3)), NULL);
    check_refused(g, DRA_ERR_SHAPE,
                  "token_losses: logits " REAL
                  " (4, 8), target i32 (3): expected logits (..., V), target (...)");
    g = check_graph();
    dra_token_losses(g, check_real(g, "x", (dra_shape){0}),
                     dra_input(g, "t", DRA_I32, (dra_shape){0}), NULL);
    check_refused(g, DRA_ERR_SHAPE,
                  "token_losses: logits " REAL
                  " (), target i32 (): expected logits (..., V), target (...)");
    g = check_graph();
    dra_cross_entropy(g, check_real(g, "x", DRA_SHAPE(4, 8)), check_real(g, "t", DRA_SHAPE(4)),
                      NULL);
    check_refused(g, DRA_ERR_DTYPE, "token_losses: target is " REAL ", expected i32");
    g = check_graph();
    dra_token_losses(g, check_real(g, "x", DRA_SHAPE(4, 8)), (dra_value){0}, NULL);
    check_refused(g, DRA_ERR_VALUE, "token_losses: input 1 is the null value");
    g = check_graph();
    dra_token_losses(g, check_real(g, "x", DRA_SHAPE(4, 8)),
                     dra_input(g, "t", DRA_I32, DRA_SHAPE(4)),
                     &(dra_cross_entropy_config){.smoothing = 1.5});
    check_refused(g, DRA_ERR_VALUE, "token_losses: smoothing 1.5, expected 0 to 1");
    const dra_cross_entropy_config pulls[] = {{.l2wrap = -1}, {.l2wrap = 0.5}};
    g = check_graph();
    dra_value x = check_real(g, "x", DRA_SHAPE(4, 8)), t = dra_input(g, "t", DRA_I32, DRA_SHAPE(4));
    dra_token_losses(g, x, t, &pulls[0]);
    check_refused(g, DRA_ERR_VALUE, "token_losses: l2wrap -1, expected 0 or more");
    g = check_graph();
    x = check_real(g, "x", DRA_SHAPE(4, 8)), t = dra_input(g, "t", DRA_I32, DRA_SHAPE(4));
    dra_value y = dra_cross_entropy(g, x, t, &pulls[1]), dx, again;
    dra_gradient(g, 1, &y, NULL, 1, &x, &dx);
    y = dra_sum_all(g, dx);
    dra_gradient(g, 1, &y, NULL, 1, &x, &again);
    check_refused(g, DRA_ERR_GRAD, "token_losses_back: has no second derivative with l2wrap");
}

int main(void)
{
    const check_spec specs[] = {
        {"token losses", 1, build, oracle, cases, COUNT(cases)},
        {"cross entropy", 1, build, oracle, mean_cases, COUNT(mean_cases)},
        {"gradient", 1, build_twice, oracle_twice, twice_cases, COUNT(twice_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_a_wrong_target),
        cmocka_unit_test(gradient_takes_the_memory_of_the_logits),
        cmocka_unit_test(refuses),
    };
    return check_main("cross_entropy", specs, COUNT(specs), tests, COUNT(tests));
}
