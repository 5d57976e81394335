/* Shapes, the table of element types, sizes checked for overflow, half-width floats. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "base/shape.h"

/* ---- counts ---------------------------------------------------------------------------------- */

static void counts_elements(void **state)
{
    const struct {
        dra_shape shape;
        int64_t   count;
    } cases[] = {
        {{0}, 1},
        {{1, {0}}, 0},
        {{1, {7}}, 7},
        {{3, {2, 3, 4}}, 24},
        {{6, {1, 2, 3, 4, 5, 6}}, 720},
        {{1, {INT64_MAX}}, INT64_MAX},
        {{2, {INT64_MAX, 1}}, INT64_MAX},
        {{2, {INT64_MAX, 2}}, -1},
        {{2, {(int64_t)1 << 32, (int64_t)1 << 31}}, -1},
        {{2, {(int64_t)1 << 31, (int64_t)1 << 31}}, (int64_t)1 << 62},
        {{6, {1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20}}, -1},
        {{3, {INT64_MAX, INT64_MAX, 0}}, 0}, /* nothing, however large the rest */
        {{3, {0, INT64_MAX, INT64_MAX}}, 0},
        {{1, {-1}}, -1},
        {{2, {0, -1}}, -1},
        {{2, {INT64_MIN, 0}}, -1},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(dra_shape_count(&cases[i].shape), cases[i].count);
}

static void compares_shapes(void **state)
{
    const dra_shape a = {2, {3, 4, 99}}, b = {2, {3, 4, 7}}, c = {2, {3, 5}}, d = {1, {3}};
    const dra_shape scalar = {0}, other = {0, {5}};
    assert_true(dra_shape_equal(&a, &b)); /* sizes beyond the rank do not count */
    assert_true(dra_shape_equal(&scalar, &other));
    assert_false(dra_shape_equal(&a, &c));
    assert_false(dra_shape_equal(&a, &d));
    assert_false(dra_shape_equal(&scalar, &d));
}

static void makes_shapes_from_sizes(void **state)
{
    assert_int_equal(DRA_SHAPE(5).rank, 1);
    assert_int_equal(DRA_SHAPE(2, 3).rank, 2);
    assert_int_equal(DRA_SHAPE(1, 2, 3, 4, 5, 6).rank, 6);
    assert_int_equal(DRA_SHAPE(1, 2, 3, 4, 5, 6).dim[5], 6);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void writes_texts(void **state)
{
    char text[160];
    assert_string_equal(dra_shape_text(&(dra_shape){0}, text, sizeof text), "()");
    assert_string_equal(dra_shape_text(&DRA_SHAPE(7), text, sizeof text), "(7)");
    assert_string_equal(dra_shape_text(&DRA_SHAPE(4, 8), text, sizeof text), "(4, 8)");
    assert_string_equal(dra_shape_text(&DRA_SHAPE(0, -1), text, sizeof text), "(0, -1)");
    const int64_t   most = INT64_MIN;
    const dra_shape long_one = {6, {most, most, most, most, most, most}};
    assert_int_equal(strlen(dra_shape_text(&long_one, text, sizeof text)), 6 * 20 + 5 * 2 + 2);
}

static void cuts_texts(void **state) /* every size: terminated, nothing written beyond it */
{
    const dra_shape shape = DRA_SHAPE(123, 45, 6);
    const char      whole[] = "(123, 45, 6)";
    for (size_t size = 0; size < sizeof whole + 4; size++) {
        char text[32];
        memset(text, '#', sizeof text);
        assert_ptr_equal(dra_shape_text(&shape, text, size), text);
        const size_t written = size < sizeof whole ? size : sizeof whole;
        if (written) assert_memory_equal(text, whole, written - 1);
        if (written) assert_int_equal(text[written - 1], 0);
        for (size_t i = size; i < sizeof text; i++) assert_int_equal(text[i], '#');
    }
}

/* ---- element types --------------------------------------------------------------------------- */

static void knows_element_types(void **state)
{
    const struct {
        dra_dtype   dtype;
        const char *name;
        size_t      elements, bytes; /* of a block */
        bool        is_float;
    } rows[] = {
        {DRA_F32, "f32", 1, 4, true},   {DRA_F64, "f64", 1, 8, true},
        {DRA_BF16, "bf16", 1, 2, true}, {DRA_F16, "f16", 1, 2, true},
        {DRA_I32, "i32", 1, 4, false},  {DRA_BOOL, "bool", 1, 1, false},
    };
    assert_int_equal(COUNT(rows), DRA_Q4_0); /* the rest: test_quant.c */
    for (size_t i = 0; i < COUNT(rows); i++) {
        const dra_dtype_info *info = dra_dtype_get(rows[i].dtype);
        assert_non_null(info);
        assert_string_equal(info->name, rows[i].name);
        assert_int_equal(info->block_elements, rows[i].elements);
        assert_int_equal(info->block_bytes, rows[i].bytes);
        assert_int_equal(info->is_float, rows[i].is_float);
        assert_int_equal(dra_dtype_bytes(rows[i].dtype), rows[i].bytes);
    }
    assert_null(dra_dtype_get(DRA_DTYPE_COUNT));
    assert_null(dra_dtype_get((dra_dtype)-1));
    assert_int_equal(dra_dtype_bytes(DRA_REAL), sizeof(dra_real));
}

static void checks_sizes(void **state)
{
    size_t n = 99;
    assert_true(dra_mul_size(0, SIZE_MAX, &n) && n == 0);
    assert_true(dra_mul_size(SIZE_MAX, 0, &n) && n == 0);
    assert_true(dra_mul_size(SIZE_MAX, 1, &n) && n == SIZE_MAX);
    assert_true(dra_mul_size(SIZE_MAX / 3, 3, &n) && n == SIZE_MAX / 3 * 3);
    assert_false(dra_mul_size(SIZE_MAX / 3 + 1, 3, &n));
    assert_false(dra_mul_size(SIZE_MAX, 2, &n));
    assert_false(dra_mul_size((size_t)1 << 32, (size_t)1 << 32, &n));
    assert_true(dra_type_bytes(DRA_F32, &DRA_SHAPE(3, 5), &n) && n == 60);
    assert_true(dra_type_bytes(DRA_BOOL, &(dra_shape){0}, &n) && n == 1);
    assert_true(dra_type_bytes(DRA_F64, &DRA_SHAPE(3, 0), &n) && n == 0);
    assert_false(dra_type_bytes(DRA_BOOL, &DRA_SHAPE(INT64_MAX), &n));
    assert_false(dra_type_bytes(DRA_F32, &DRA_SHAPE(INT64_MAX, 2), &n));
    assert_false(dra_type_bytes(DRA_F32, &DRA_SHAPE(-1), &n));
    assert_false(dra_type_bytes(DRA_DTYPE_COUNT, &DRA_SHAPE(1), &n));
    assert_int_equal(dra_div_up(0, 4), 0);
    assert_int_equal(dra_div_up(1, 4), 1);
    assert_int_equal(dra_div_up(4, 4), 1);
    assert_int_equal(dra_div_up(5, 4), 2);
    assert_int_equal(dra_imin(-3, 2), -3);
    assert_int_equal(dra_imax(-3, 2), 2);
}

/* ---- half-width floats ----------------------------------------------------------------------- */

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The value of a pattern by its definition: (-1)^s 2^(e - bias) 1.m, subnormal for e = 0. */
static double value_of(unsigned bits, int exponent_bits, int mantissa_bits)
{
    const int    bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
    const int    e = (int)(bits >> mantissa_bits) & top;
    const double m = (double)(bits & ((1u << mantissa_bits) - 1)) / (1 << mantissa_bits);
    const double size = e == top ? (m != 0 ? NAN : INFINITY)
                        : e == 0 ? ldexp(m, 1 - bias)
                                 : ldexp(1 + m, e - bias);
    return bits >> 15 ? -size : size;
}

static void widens_every_pattern(void **state)
{
    for (unsigned i = 0; i < 65536; i++) {
        const double f16 = value_of(i, 5, 10), bf16 = value_of(i, 8, 7);
        const float  a = dra_f16_to_f32((uint16_t)i), b = dra_bf16_to_f32((uint16_t)i);
        if (isnan(f16) ? !isnan(a) : (double)a != f16 || bits_of(a) >> 31 != i >> 15)
            fail_msg("f16 %04x is %a, expected %a", i, (double)a, f16);
        if (isnan(bf16) ? !isnan(b) : (double)b != bf16 || bits_of(b) >> 31 != i >> 15)
            fail_msg("bf16 %04x is %a, expected %a", i, (double)b, bf16);
    }
}

static void every_pattern_comes_back(void **state) /* NaN as a quiet NaN of the same sign */
{
    for (unsigned i = 0; i < 65536; i++) {
        const uint16_t a = dra_f32_to_f16(dra_f16_to_f32((uint16_t)i));
        const uint16_t b = dra_f32_to_bf16(dra_bf16_to_f32((uint16_t)i));
        if ((i & 0x7fff) <= 0x7c00 ? a != i : (a & 0xfe00) != ((i & 0x8000) | 0x7e00))
            fail_msg("f16 %04x comes back as %04x", i, a);
        if ((i & 0x7fff) <= 0x7f80 ? b != i : b != (i | 0x40))
            fail_msg("bf16 %04x comes back as %04x", i, b);
    }
}

/* Nearest by search: no other finite pattern is nearer, and at a tie the even one is taken. */
static void narrows_to_the_nearest(void **state)
{
    uint64_t seed = 3;
    for (int i = 0; i < 400000; i++) {
        uint32_t bits = (uint32_t)(check_random(&seed) * 0x1p32);
        if (i % 4 == 0) bits &= 0xffffe000u | (1u << 12);          /* ties and exact ones of f16 */
        if (i % 4 == 1) bits &= 0xffff8000u;                       /* of bf16 */
        if (i % 4 == 2) bits = (bits & 0x8fffffffu) | 0x30000000u; /* where f16 is subnormal */
        const float x = float_of(bits);
        if (isnan(x)) continue;
        const uint16_t y[] = {dra_f32_to_f16(x), dra_f32_to_bf16(x)};
        for (int k = 0; k < 2; k++) {
            const unsigned top = k ? 0x7f80 : 0x7c00, size = y[k] & 0x7fffu;
            const double   beyond = k ? 0x1p128 : 65536, a = fabs((double)x);
            const double   here = size == top ? beyond : value_of(size, k ? 8 : 5, k ? 7 : 10);
            const double up = size + 1 >= top ? beyond : value_of(size + 1, k ? 8 : 5, k ? 7 : 10);
            const double down = size ? value_of(size - 1, k ? 8 : 5, k ? 7 : 10) : -1;
            if (isinf(x)) {
                assert_int_equal(size, top);
                continue;
            }
            const bool even = !(size & 1);
            const bool fits = (size == top || a - here < up - a || (a - here == up - a && even)) &&
                              (here - a < a - down || (here - a == a - down && even));
            if (!fits || y[k] >> 15 != bits >> 31)
                fail_msg("%a becomes %04x (%s)", (double)x, y[k], k ? "bf16" : "f16");
        }
    }
}

static void narrows_the_edges(void **state)
{
    const struct {
        float    x;
        uint16_t f16, bf16;
    } cases[] = {
        {0.0f, 0x0000, 0x0000},
        {-0.0f, 0x8000, 0x8000},
        {1.0f, 0x3c00, 0x3f80},
        {65504.0f, 0x7bff, 0x4780},
        {65519.996f, 0x7bff, 0x4780}, /* the last below the tie with 65536 */
        {65520.0f, 0x7c00, 0x4780},
        {INFINITY, 0x7c00, 0x7f80},
        {-INFINITY, 0xfc00, 0xff80},
        {0x1p-24f, 0x0001, 0x3380},
        {0x1p-25f, 0x0000, 0x3300}, /* a tie between 0 and the smallest: even is 0 */
        {0x1.000002p-25f, 0x0001, 0x3300},
        {0x1.8p-24f, 0x0002, 0x33c0},
        {0x1.ff8p-15f, 0x03ff, 0x3880}, /* the largest subnormal f16 */
        {0x1.ffbffep-15f, 0x03ff, 0x3880},
        {0x1.ffcp-15f, 0x0400, 0x3880},
        {0x1p-14f, 0x0400, 0x3880},
        {0x1.fffffep127f, 0x7c00, 0x7f80},
        {0x1.fep127f, 0x7c00, 0x7f7f},
        {0x1p-133f, 0x0000, 0x0001}, /* the smallest subnormal bf16 */
        {0x1p-134f, 0x0000, 0x0000},
        {0x1p-149f, 0x0000, 0x0000},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (dra_f32_to_f16(cases[i].x) != cases[i].f16 ||
            dra_f32_to_bf16(cases[i].x) != cases[i].bf16)
            fail_msg("%a becomes f16 %04x, bf16 %04x", (double)cases[i].x,
                     dra_f32_to_f16(cases[i].x), dra_f32_to_bf16(cases[i].x));
    }
    for (uint32_t nan = 0x7f800001u; nan < 0x80000000u && nan; nan += 0x10001u) {
        assert_true(isnan(dra_f16_to_f32(dra_f32_to_f16(float_of(nan)))));
        assert_true(isnan(dra_bf16_to_f32(dra_f32_to_bf16(float_of(nan | 0x80000000u)))));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_elements),
        cmocka_unit_test(compares_shapes),
        cmocka_unit_test(makes_shapes_from_sizes),
        cmocka_unit_test(writes_texts),
        cmocka_unit_test(cuts_texts),
        cmocka_unit_test(knows_element_types),
        cmocka_unit_test(checks_sizes),
        cmocka_unit_test(widens_every_pattern),
        cmocka_unit_test(every_pattern_comes_back),
        cmocka_unit_test(narrows_to_the_nearest),
        cmocka_unit_test(narrows_the_edges),
    };
    return check_main("shape", NULL, 0, tests, COUNT(tests));
}
