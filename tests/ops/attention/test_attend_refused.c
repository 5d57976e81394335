/* Attention: everything that is refused, by name. */
#include "check.h"

#include <math.h>
#include <string.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

typedef struct refusal {
    dra_shape   q, k, v;
    dra_status  code;
    const char *text;
} refusal;

static void refuses_shapes(void **state)
{
    const refusal list[] = {
        {{3, {4, 3, 5}},
         {4, {2, 4, 6, 5}},
         {4, {2, 4, 6, 7}},
         DRA_ERR_SHAPE,
         "attend: q is " REAL " (4, 3, 5), expected " REAL " (B, H, T, D)"},
        {{4, {2, 4, 3, 5}},
         {3, {4, 6, 5}},
         {4, {2, 4, 6, 7}},
         DRA_ERR_SHAPE,
         "attend: k is " REAL " (4, 6, 5), expected " REAL " or bf16 (B, K, J, D)"},
        {{4, {2, 4, 3, 5}},
         {4, {2, 4, 6, 5}},
         {2, {6, 7}},
         DRA_ERR_SHAPE,
         "attend: v is " REAL " (6, 7), expected " REAL " or bf16 (B, K, J, E)"},
        {{4, {2, 4, 3, 5}},
         {4, {2, 4, 6, 8}},
         {4, {2, 4, 6, 7}},
         DRA_ERR_SHAPE,
         "attend: q " REAL " (2, 4, 3, 5), k " REAL " (2, 4, 6, 8): B and D must agree"},
        {{4, {2, 4, 3, 5}},
         {4, {3, 4, 6, 5}},
         {4, {3, 4, 6, 7}},
         DRA_ERR_SHAPE,
         "attend: q " REAL " (2, 4, 3, 5), k " REAL " (3, 4, 6, 5): B and D must agree"},
        {{4, {2, 4, 3, 5}},
         {4, {2, 4, 6, 5}},
         {4, {2, 4, 9, 7}},
         DRA_ERR_SHAPE,
         "attend: k " REAL " (2, 4, 6, 5), v " REAL " (2, 4, 9, 7): B, K and J must agree"},
        {{4, {2, 4, 3, 5}},
         {4, {2, 3, 6, 5}},
         {4, {2, 3, 6, 7}},
         DRA_ERR_SHAPE,
         "attend: 4 heads of q, 3 of k: not a multiple"},
        {{4, {2, 4, 3, 5}},
         {4, {2, 0, 6, 5}},
         {4, {2, 0, 6, 7}},
         DRA_ERR_SHAPE,
         "attend: 4 heads of q, 0 of k: not a multiple"},
    };
    for (size_t i = 0; i < COUNT(list); i++) {
        dra_graph      *g = check_graph();
        const dra_value y = dra_attend(g, check_real(g, "q", list[i].q),
                                       check_real(g, "k", list[i].k), check_real(g, "v", list[i].v),
                                       NULL);
        assert_int_equal(y.id, 0);
        check_refused(g, list[i].code, list[i].text);
    }
}

static void refuses_dtypes_and_null(void **state)
{
    dra_graph      *g = check_graph();
    const dra_shape s = DRA_SHAPE(2, 4, 3, 5);
    dra_value       x = check_real(g, "x", s);
    assert_int_equal(dra_attend(g, dra_input(g, "i", DRA_I32, s), x, x, NULL).id, 0);
    check_refused(g, DRA_ERR_DTYPE,
                  "attend: q is i32 (2, 4, 3, 5), expected " REAL " (B, H, T, D)");
    g = check_graph();
    x = check_real(g, "x", s);
    assert_int_equal(dra_attend(g, x, x, (dra_value){0}, NULL).id, 0);
    check_refused(g, DRA_ERR_VALUE, "attend: input 2 is the null value");
}

/* Tries one option of q (2, 4, 3, 5) against k (2, 2, 6, 5), v (2, 2, 6, 7). */
static void try_option(dra_dtype dtype, dra_shape shape, size_t offset, dra_status code,
                       const char *text)
{
    dra_graph        *g = check_graph();
    dra_attend_config c = {0};
    const dra_value   q = check_real(g, "q", DRA_SHAPE(2, 4, 3, 5));
    const dra_value   k = check_real(g, "k", DRA_SHAPE(2, 2, 6, 5));
    const dra_value   v = check_real(g, "v", DRA_SHAPE(2, 2, 6, 7));
    const dra_value   option = dra_input(g, "option", dtype, shape);
    memcpy((char *)&c + offset, &option, sizeof option);
    assert_int_equal(dra_attend(g, q, k, v, &c).id, 0);
    check_refused(g, code, text);
}

#define TRY(option, dtype, shape, code, text)                                                      \
    try_option(dtype, shape, offsetof(dra_attend_config, option), code, text)

static void refuses_options(void **state)
{
    TRY(lo, DRA_REAL, DRA_SHAPE(2, 3), DRA_ERR_DTYPE,
        "attend: lo is " REAL " (2, 3), expected i32 (2, 3)");
    TRY(hi, DRA_I32, DRA_SHAPE(2, 6), DRA_ERR_SHAPE,
        "attend: hi is i32 (2, 6), expected i32 (2, 3)");
    TRY(mask, DRA_I32, DRA_SHAPE(6), DRA_ERR_DTYPE,
        "attend: mask is i32 (6), expected bool that broadcasts to (2, 4, 3, 6)");
    TRY(mask, DRA_BOOL, DRA_SHAPE(2, 6), DRA_ERR_SHAPE,
        "attend: mask is bool (2, 6), expected bool that broadcasts to (2, 4, 3, 6)");
    TRY(bias, DRA_REAL, DRA_SHAPE(1, 2, 4, 3, 6), DRA_ERR_SHAPE,
        "attend: bias is " REAL " (1, 2, 4, 3, 6), expected " REAL
        " that broadcasts to (2, 4, 3, 6)");
    TRY(slopes, DRA_REAL, DRA_SHAPE(2), DRA_ERR_SHAPE,
        "attend: slopes is " REAL " (2), expected " REAL " (4)");
    TRY(distance, DRA_REAL, DRA_SHAPE(2, 7), DRA_ERR_SHAPE,
        "attend: distance is " REAL " (2, 7), expected " REAL " (4, N) or (1, N), N > 0");
    TRY(distance, DRA_REAL, DRA_SHAPE(4, 0), DRA_ERR_SHAPE,
        "attend: distance is " REAL " (4, 0), expected " REAL " (4, N) or (1, N), N > 0");
    TRY(distance, DRA_REAL, DRA_SHAPE(4), DRA_ERR_SHAPE,
        "attend: distance is " REAL " (4), expected " REAL " (4, N) or (1, N), N > 0");
    TRY(distance, DRA_I32, DRA_SHAPE(4, 7), DRA_ERR_DTYPE,
        "attend: distance is i32 (4, 7), expected " REAL " (4, N) or (1, N), N > 0");
    TRY(q_pos, DRA_I32, DRA_SHAPE(3), DRA_ERR_SHAPE,
        "attend: q_pos is i32 (3), expected i32 (2, 3)");
    TRY(k_pos, DRA_I32, DRA_SHAPE(2, 3), DRA_ERR_SHAPE,
        "attend: k_pos is i32 (2, 3), expected i32 (2, 6)");
}

static void try_config(const dra_attend_config *c, const char *text)
{
    dra_graph      *g = check_graph();
    const dra_value x = check_real(g, "x", DRA_SHAPE(2, 4, 3, 5));
    assert_int_equal(dra_attend(g, x, x, x, c).id, 0);
    check_refused(g, DRA_ERR_VALUE, text);
}

static void refuses_numbers(void **state)
{
    dra_value               scores;
    const dra_random_config unnamed = {0}, keyless = {.name = "weights"};
    try_config(&(dra_attend_config){.heads = (dra_head_map)2},
               "attend: heads is 2, expected DRA_HEADS_DIV or _MOD");
    try_config(&(dra_attend_config){.path = (dra_attend_path)4},
               "attend: path is 4, expected DRA_ATTEND_AUTO, _PLAIN, _TILED or _FEW");
    try_config(&(dra_attend_config){.path = (dra_attend_path)-1},
               "attend: path is -1, expected DRA_ATTEND_AUTO, _PLAIN, _TILED or _FEW");
    try_config(&(dra_attend_config){.scale = INFINITY}, "attend: scale is inf, expected a number");
    try_config(&(dra_attend_config){.softcap = -1}, "attend: softcap is -1, expected 0 or more");
    try_config(&(dra_attend_config){.dropout = 1}, "attend: dropout is 1, expected 0 <= p < 1");
    try_config(&(dra_attend_config){.dropout = 0.5},
               "attend: dropout 0.5 needs random with a name and a key");
    try_config(&(dra_attend_config){.dropout = 0.5, .random = &unnamed},
               "attend: dropout 0.5 needs random with a name and a key");
    try_config(&(dra_attend_config){.dropout = 0.5, .random = &keyless},
               "attend: dropout 0.5 needs random with a name and a key");
    try_config(&(dra_attend_config){.topk = -1}, "attend: topk is -1, expected 0 or more");
    try_config(&(dra_attend_config){.topk_straight = true}, "attend: topk_straight without topk");
    try_config(&(dra_attend_config){.topk = 1, .hard = true},
               "attend: hard and topk exclude each other");
    try_config(&(dra_attend_config){.topk = 1, .path = DRA_ATTEND_TILED},
               "attend: the tiled path has no topk");
    try_config(&(dra_attend_config){.hard = true, .path = DRA_ATTEND_TILED},
               "attend: the tiled path has no hard");
    try_config(&(dra_attend_config){.scores = &scores, .path = DRA_ATTEND_TILED},
               "attend: the tiled path has no scores");
    try_config(&(dra_attend_config){.hard = true, .path = DRA_ATTEND_FEW},
               "attend: the few path has no hard");
    try_config(&(dra_attend_config){.softcap = 1, .path = DRA_ATTEND_FEW},
               "attend: the few path has no softcap");
    try_config(&(dra_attend_config){.always = -1}, "attend: always is -1, expected 0 to 3");
    try_config(&(dra_attend_config){.always = 4}, "attend: always is 4, expected 0 to 3");
    try_config(&(dra_attend_config){.always = 1, .path = DRA_ATTEND_FEW},
               "attend: the few path has no always");
    try_config(&(dra_attend_config){.dropout = 0.5, .path = DRA_ATTEND_FEW},
               "attend: the few path has no dropout");
}

static void refuses_columns(void **state)
{
    static const int64_t wrong[] = {-1, 7};
    try_config(&(dra_attend_config){.distance_zero = 3}, "attend: distance_zero without distance");
    for (size_t i = 0; i < COUNT(wrong); i++) {
        dra_graph        *g = check_graph();
        const dra_value   x = check_real(g, "x", DRA_SHAPE(2, 4, 3, 5));
        dra_attend_config c = {.distance_zero = wrong[i]};
        c.distance = check_real(g, "distance", DRA_SHAPE(1, 7));
        assert_int_equal(dra_attend(g, x, x, x, &c).id, 0);
        check_refused(g, DRA_ERR_VALUE,
                      i == 0 ? "attend: distance_zero is -1, expected 0 to 6"
                             : "attend: distance_zero is 7, expected 0 to 6");
    }
}

static void few_keys_are_all_seen(void **state)
{
    dra_graph        *g = check_graph();
    dra_value         x = check_real(g, "x", DRA_SHAPE(2, 4, 3, 5));
    dra_attend_config c = {.path = DRA_ATTEND_FEW};
    c.hi = dra_input(g, "hi", DRA_I32, DRA_SHAPE(2, 3));
    assert_int_equal(dra_attend(g, x, x, x, &c).id, 0);
    check_refused(g, DRA_ERR_VALUE, "attend: the few path has no hi");
    g = check_graph();
    x = check_real(g, "x", DRA_SHAPE(2, 4, 3, 5));
    c = (dra_attend_config){.path = DRA_ATTEND_FEW};
    c.distance = check_real(g, "distance", DRA_SHAPE(1, 7));
    assert_int_equal(dra_attend(g, x, x, x, &c).id, 0);
    check_refused(g, DRA_ERR_VALUE, "attend: the few path has no distance");
    g = check_graph();
    x = check_real(g, "x", DRA_SHAPE(2, 4, 0, 5));
    c.distance = (dra_value){0};
    assert_int_equal(dra_attend(g, x, x, x, &c).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "attend: T is 0, J 0, the few path expects 1 and more");
}

static void refuses_random(void **state)
{
    for (int i = 0; i < 3; i++) {
        dra_graph        *g = check_graph();
        const dra_value   x = check_real(g, "x", DRA_SHAPE(2, 4, 3, 5));
        const dra_value   pos = dra_input(g, "pos", DRA_I32, DRA_SHAPE(2));
        const dra_value   key = dra_input(g, "key", DRA_I32, DRA_SHAPE(4));
        dra_random_config random = {.name = "weights", .key = i == 0 ? pos : key};
        if (i == 1) random.row = key;
        if (i == 2) random.pos = pos;
        const dra_attend_config c = {.dropout = 0.5, .random = &random};
        assert_int_equal(dra_attend(g, x, x, x, &c).id, 0);
        check_refused(g, i == 2 ? DRA_ERR_VALUE : DRA_ERR_SHAPE,
                      i == 0   ? "attend: random.key is i32 (2), expected i32 (4)"
                      : i == 1 ? "attend: random.row is i32 (4), expected i32 (2)"
                               : "attend: random.pos without q_pos: queries are placed by q_pos");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_shapes),        cmocka_unit_test(refuses_dtypes_and_null),
        cmocka_unit_test(refuses_options),       cmocka_unit_test(refuses_numbers),
        cmocka_unit_test(refuses_random),        cmocka_unit_test(refuses_columns),
        cmocka_unit_test(few_keys_are_all_seen),
    };
    return check_main("attend refused", NULL, 0, tests, COUNT(tests));
}
