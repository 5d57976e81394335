/* shift and repeat against index arithmetic. */
#include "check.h"

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

typedef struct args {
    int     axis;
    int64_t n; /* by, or how often */
} args;

static int64_t inner_size(const dra_shape *s, int axis)
{
    int64_t n = 1;
    for (int32_t d = s->rank - 1; d > axis; d--) n *= s->dim[d];
    return n;
}

static void build_shift(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_shift(g, in[0], ((const args *)a)->axis, ((const args *)a)->n);
}

static void oracle_shift(const void *a, const check_tensor *in, check_tensor *out)
{
    const args   *k = a;
    const int     axis = k->axis < 0 ? k->axis + in->shape.rank : k->axis;
    const int64_t inner = inner_size(&in->shape, axis), size = in->shape.dim[axis];
    for (int64_t i = 0; i < out->count; i++) {
        const int64_t at = i / inner % size;
        if (k->n > at || k->n <= at - size) continue; /* at - n outside 0..size-1: zero */
        out->at[i] = in->at[i - k->n * inner];
    }
}

static void build_repeat(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_repeat(g, in[0], ((const args *)a)->axis, ((const args *)a)->n);
}

static void oracle_repeat(const void *a, const check_tensor *in, check_tensor *out)
{
    const args   *k = a;
    const int     axis = k->axis < 0 ? k->axis + in->shape.rank : k->axis;
    const int64_t inner = inner_size(&in->shape, axis), size = in->shape.dim[axis];
    for (int64_t i = 0; i < out->count; i++) {
        const int64_t outer = i / (inner * size * k->n), at = i / inner % (size * k->n);
        out->at[i] = in->at[(outer * size + at / k->n) * inner + i % inner];
    }
}

static const args by[] = {{1, 1}, {1, -2}, {0, 3},  {-1, 5},        {-1, -5},      {1, 0},
                          {0, 7}, {0, -9}, {-2, 1}, {0, INT64_MAX}, {0, INT64_MIN}};
static const args times[] = {{0, 2}, {1, 3}, {-1, 4}, {1, 1}, {0, 0}, {5, 2}, {2, 3}};

static const check_case shifts[] = {
    {"one later", 1, {{{3, {2, 5, 3}}}}, &by[0]},
    {"two earlier", 1, {{{3, {2, 5, 3}}}}, &by[1]},
    {"first axis", 1, {{{2, {7, 3}}}}, &by[2]},
    {"by its size", 1, {{{2, {3, 5}}}}, &by[3]},
    {"by its size, back", 1, {{{2, {3, 5}}}}, &by[4]},
    {"by nothing", 1, {{{2, {3, 5}}}}, &by[5]},
    {"far out", 1, {{{2, {3, 5}}}}, &by[6]},
    {"far out, back", 1, {{{2, {3, 5}}}}, &by[7]},
    {"as far as there is", 1, {{{1, {5}}}}, &by[9]},
    {"as far as there is, back", 1, {{{1, {5}}}}, &by[10]},
    {"one value", 1, {{{1, {1}}}}, &by[2]},
    {"nothing", 1, {{{2, {0, 4}}}}, &by[2]},
    {"several tiles", 1, {{{3, {2, 301, 65}}}}, &by[8]},
    {"i32", 1, {{{3, {2, 5, 3}}, CHECK_I32}}, &by[0]},
    {"bf16", 1, {{{3, {2, 5, 3}}, CHECK_BF16}}, &by[0]},
    {"bool", 1, {{{3, {2, 5, 3}}, CHECK_BOOL}}, &by[1]},
};

static const check_case repeats[] = {
    {"first axis", 1, {{{3, {2, 5, 3}}}}, &times[0]},
    {"middle axis", 1, {{{3, {2, 5, 3}}}}, &times[1]},
    {"last axis", 1, {{{3, {2, 5, 3}}}}, &times[2]},
    {"once", 1, {{{3, {2, 5, 3}}}}, &times[3]},
    {"never", 1, {{{3, {2, 5, 3}}}}, &times[4]},
    {"one value", 1, {{{1, {1}}}}, &times[0]},
    {"nothing", 1, {{{2, {0, 4}}}}, &times[0]},
    {"several tiles", 1, {{{2, {130, 257}}}}, &times[0]},
    {"rank 6, first", 1, {{{6, {2, 1, 3, 2, 1, 2}}}}, &times[0]},
    {"rank 6, inside", 1, {{{6, {2, 1, 3, 2, 1, 2}}}}, &times[6]},
    {"rank 6, last", 1, {{{6, {2, 1, 3, 2, 1, 2}}}}, &times[5]},
    {"i32", 1, {{{2, {5, 3}}, CHECK_I32}}, &times[0]},
    {"f16", 1, {{{2, {5, 3}}, CHECK_F16}}, &times[1]},
};

static void refuses(void **state)
{
    dra_graph *g = check_graph();
    assert_int_equal(dra_shift(g, check_real(g, "x", DRA_SHAPE(2, 3)), 2, 1).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "shift: x " REAL " (2, 3) has no axis 2");

    g = check_graph();
    dra_shift(g, (dra_value){0}, 0, 1);
    check_refused(g, DRA_ERR_VALUE, "shift: input 0 is the null value");

    g = check_graph();
    assert_int_equal(dra_repeat(g, check_real(g, "x", DRA_SHAPE(2, 3)), -3, 1).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "repeat: x " REAL " (2, 3) has no axis -3");

    g = check_graph();
    dra_repeat(g, check_real(g, "x", DRA_SHAPE(2, 3)), 1, -1);
    check_refused(g, DRA_ERR_VALUE, "repeat: x " REAL " (2, 3), axis 1, -1 times");

    g = check_graph();
    dra_repeat(g, check_real(g, "x", DRA_SHAPE(2, 3)), 1, INT64_MAX / 2);
    check_refused(g, DRA_ERR_VALUE, "repeat: x " REAL " (2, 3), axis 1, 4611686018427387903 times");

    g = check_graph();
    dra_repeat(g, (dra_value){0}, 0, 1);
    check_refused(g, DRA_ERR_VALUE, "repeat: input 0 is the null value");
}

int main(void)
{
    const check_spec specs[] = {
        {"shift", 1, build_shift, oracle_shift, shifts, COUNT(shifts)},
        {"repeat", 1, build_repeat, oracle_repeat, repeats, COUNT(repeats)},
    };
    const struct CMUnitTest tests[] = {cmocka_unit_test(refuses)};
    return check_main("shift", specs, COUNT(specs), tests, COUNT(tests));
}
