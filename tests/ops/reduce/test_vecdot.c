/* vecdot against sums in double; its gradient's gradient too, which is another vecdot. */
#include "check.h"

static void build(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    out[0] = dra_vecdot(g, in[0], in[1]);
}

static void oracle(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t C = check_last(in);
    for (int64_t r = 0; r < check_rows(in); r++) {
        double sum = 0;
        for (int64_t i = 0; i < C; i++) sum += in[0].at[r * C + i] * in[1].at[r * C + i];
        out->at[r] = sum;
    }
}

static const check_case cases[] = {
    {"one product", 2, {{{1, {1}}}, {{1, {1}}}}},
    {"no rows", 2, {{{2, {0, 8}}}, {{2, {0, 8}}}}},
    {"no width", 2, {{{2, {8, 0}}}, {{2, {8, 0}}}}},
    {"three wide", 2, {{{3, {2, 3, 3}}}, {{3, {2, 3, 3}}}}},
    {"seven wide", 2, {{{2, {5, 7}}}, {{2, {5, 7}}}}},
    {"a head", 2, {{{4, {2, 3, 5, 64}}}, {{4, {2, 3, 5, 64}}}}},
    {"100 wide", 2, {{{2, {37, 100}}}, {{2, {37, 100}}}}},
    {"101 wide", 2, {{{2, {37, 101}}}, {{2, {37, 101}}}}},
    {"several tiles", 2, {{{2, {700, 65}}}, {{2, {700, 65}}}}},
    {"several lines", 2, {{{2, {3, 9001}}}, {{2, {3, 9001}}}}, .no_grad = true},
};

/* Heads that lie apart in memory: (T, H, D) read as (H, T, D). */
static void build_turned(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    out[0] = dra_vecdot(g, dra_transpose(g, in[0], 0, 1), in[1]);
}

static void oracle_turned(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t H = in[1].shape.dim[0], T = in[1].shape.dim[1], C = in[1].shape.dim[2];
    for (int64_t h = 0; h < H; h++)
        for (int64_t t = 0; t < T; t++) {
            double sum = 0;
            for (int64_t i = 0; i < C; i++)
                sum += in[0].at[(t * H + h) * C + i] * in[1].at[(h * T + t) * C + i];
            out->at[h * T + t] = sum;
        }
}

static const check_case turned_cases[] = {
    {"heads", 2, {{{3, {9, 4, 64}}}, {{3, {4, 9, 64}}}}},
    {"odd heads", 2, {{{3, {9, 4, 5}}}, {{3, {4, 9, 5}}}}},
};

/* One row for all others. */
static void oracle_spread(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t C = check_last(in);
    for (int64_t r = 0; r < check_rows(in); r++) {
        double sum = 0;
        for (int64_t i = 0; i < C; i++) sum += in[0].at[r * C + i] * in[1].at[i];
        out->at[r] = sum;
    }
}

static const check_case spread_cases[] = {{"a vector", 2, {{{2, {6, 12}}}, {{1, {12}}}}}};

static void build_twice(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const dra_value sum = dra_sum_all(g, dra_square(g, dra_vecdot(g, in[0], in[1])));
    dra_gradient(g, 1, &sum, NULL, 2, in, out);
}

static void oracle_twice(const void *args, const check_tensor *in, check_tensor *out)
{
    const int64_t C = check_last(in);
    for (int64_t r = 0; r < check_rows(in); r++) {
        const double *a = in[0].at + r * C, *b = in[1].at + r * C;
        double        sum = 0;
        for (int64_t i = 0; i < C; i++) sum += a[i] * b[i];
        for (int64_t i = 0; i < C; i++) {
            out[0].at[r * C + i] = 2 * sum * b[i];
            out[1].at[r * C + i] = 2 * sum * a[i];
        }
    }
}

static const check_case twice_cases[] = {{"rows", 2, {{{2, {3, 9}}}, {{2, {3, 9}}}}}};

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    dra_vecdot(g, check_real(g, "a", (dra_shape){0}), check_real(g, "b", (dra_shape){0}));
    check_refused(g, DRA_ERR_SHAPE, "vecdot: a and b have no axis");
    g = check_graph();
    dra_vecdot(g, check_real(g, "a", DRA_SHAPE(3)), (dra_value){0});
    check_refused(g, DRA_ERR_VALUE, "vecdot: input 1 is the null value");
}

int main(void)
{
    const check_spec specs[] = {
        {"vecdot", 1, build, oracle, cases, COUNT(cases)},
        {"vecdot of other strides", 1, build_turned, oracle_turned, turned_cases,
         COUNT(turned_cases)},
        {"vecdot that broadcasts", 1, build, oracle_spread, spread_cases, COUNT(spread_cases)},
        {"vecdot gradient's gradient", 2, build_twice, oracle_twice, twice_cases,
         COUNT(twice_cases)},
    };
    const struct CMUnitTest tests[] = {cmocka_unit_test(refuses)};
    return check_main("vecdot", specs, COUNT(specs), tests, COUNT(tests));
}
