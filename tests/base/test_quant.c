/* Quantised blocks against ggml's bytes and numbers, tests/data/quant. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/quant.h"
#include "base/shape.h"
#include "dra/file.h"
#include "file/format.h"

static const struct {
    dra_dtype   dtype;
    const char *name, *in_files;
    size_t      elements, bytes; /* of a block */
} types[] = {
    {DRA_Q4_0, "q4_0", "Q4_0", 32, 18},   {DRA_Q4_1, "q4_1", "Q4_1", 32, 20},
    {DRA_Q5_0, "q5_0", "Q5_0", 32, 22},   {DRA_Q5_1, "q5_1", "Q5_1", 32, 24},
    {DRA_Q8_0, "q8_0", "Q8_0", 32, 34},   {DRA_Q4_K, "q4_k", "Q4_K", 256, 144},
    {DRA_Q5_K, "q5_k", "Q5_K", 256, 176}, {DRA_Q6_K, "q6_k", "Q6_K", 256, 210},
    {DRA_Q3_K, "q3_k", "Q3_K", 256, 110},
};

static dra_tensors *golden;

static const dra_tensor_info *part(const char *type, const char *end)
{
    char name[32];
    snprintf(name, sizeof name, "%s%s", type, end);
    const dra_tensor_info *t = dra_tensors_find(golden, name);
    if (!t) fail_msg("no %s", name);
    return t;
}

static void knows_blocks(void **state)
{
    assert_int_equal(COUNT(types), DRA_DTYPE_COUNT - DRA_Q4_0);
    for (size_t i = 0; i < COUNT(types); i++) {
        const dra_dtype_info *info = dra_dtype_get(types[i].dtype);
        assert_non_null(info);
        assert_string_equal(info->name, types[i].name);
        assert_int_equal(info->block_elements, types[i].elements);
        assert_int_equal(info->block_bytes, types[i].bytes);
        assert_true(info->is_float);
        assert_int_equal(dra_dtype_bytes(types[i].dtype), types[i].bytes);
        assert_string_equal(dra_file_dtype_name(types[i].dtype), types[i].in_files);
        assert_int_equal(dra_file_quantised_find(types[i].in_files), types[i].dtype);
    }
}

static void decodes_to_the_same_bits(void **state)
{
    for (size_t i = 0; i < COUNT(types); i++) {
        if (types[i].dtype == DRA_Q3_K) continue; /* in double, below */
        const dra_tensor_info *raw = part(types[i].in_files, ".raw");
        const dra_tensor_info *values = part(types[i].in_files, ".values");
        const int64_t          n = (int64_t)(values->bytes / sizeof(float));
        float                  x[1024];
        assert_int_equal(dra_elements_bytes(types[i].dtype, n), (int64_t)raw->bytes);
        dra_dequantise(types[i].dtype, raw->data, 0, n, x);
        for (int64_t e = 0; e < n; e++)
            if (memcmp(&x[e], (const float *)values->data + e, sizeof *x) != 0)
                fail_msg("%s: element %d is %a", types[i].name, (int)e, (double)x[e]);
        dra_dequantise(types[i].dtype, raw->data, 37, 300, x); /* any first one */
        assert_memory_equal(x, (const float *)values->data + 37, 300 * sizeof *x);
    }
}

/* Q3_K in double, as llama.cpp walks a block: the upper bits h, two bits of each number, 16 scales
 * of 6 bits that are 32 too large, their scale. */
static void decode_q3_k(const unsigned char *b, double *y)
{
    const unsigned char *h = b, *u = b + 32, *s = b + 96;
    uint16_t             d;
    int                  scale[16];
    memcpy(&d, b + 108, sizeof d);
    for (int i = 0; i < 4; i++) {
        scale[i] = (s[i] & 15) + 16 * (s[i + 8] & 3);
        scale[i + 4] = (s[i + 4] & 15) + 16 * (s[i + 8] / 4 % 4);
        scale[i + 8] = s[i] / 16 + 16 * (s[i + 8] / 16 % 4);
        scale[i + 12] = s[i + 4] / 16 + 16 * (s[i + 8] / 64);
    }
    int bit = 1, run = 0;
    for (int half = 0; half < 2; half++, u += 32)
        for (int shift = 0; shift < 8; shift += 2, bit *= 2)
            for (int side = 0; side < 2; side++, run++)
                for (int e = 16 * side; e < 16 * side + 16; e++) {
                    const int number = (u[e] >> shift & 3) - (h[e] & bit ? 0 : 4);
                    *y++ = (double)dra_f16_to_f32(d) * (scale[run] - 32) * number;
                }
}

static void decodes_q3_k(void **state)
{
    enum { BLOCKS = 200, N = 256 };
    static unsigned char blocks[BLOCKS * 110];
    uint64_t             seed = 3;
    for (size_t i = 0; i < sizeof blocks; i++)
        blocks[i] = (unsigned char)(256 * check_random(&seed));
    for (int k = 0; k < BLOCKS; k++) {
        double expected[N];
        float  found[N];
        blocks[k * 110 + 109] &= 0xbf; /* d is below 2, and finite */
        decode_q3_k(blocks + k * 110, expected);
        dra_dequantise(DRA_Q3_K, blocks, (int64_t)k * N, N, found);
        for (int e = 0; e < N; e++)
            if ((double)found[e] != expected[e])
                fail_msg("block %d, element %d: %.9g, expected %.9g", k, e, (double)found[e],
                         expected[e]);
    }
}

static void encodes_to_the_same_bytes(void **state)
{
    const dra_tensor_info *source = part("source", "");
    const int64_t          n = (int64_t)(source->bytes / sizeof(float));
    for (size_t i = 0; i < COUNT(types); i++) {
        unsigned char blocks[1024];
        if (!dra_can_quantise(types[i].dtype) || types[i].elements > 32) continue;
        const dra_tensor_info *raw = part(types[i].in_files, ".raw");
        dra_quantise(types[i].dtype, source->data, n, blocks);
        for (size_t k = 0; k < raw->bytes; k++)
            if (blocks[k] != ((const unsigned char *)raw->data)[k])
                fail_msg("%s: byte %zu is %d", types[i].name, k, blocks[k]);
    }
    assert_false(dra_can_quantise(DRA_Q3_K) || dra_can_quantise(DRA_F32));
    assert_false(dra_can_quantise(DRA_DTYPE_COUNT));
}

/* ---- blocks of 256 --------------------------------------------------------------------------- */

enum { ALL = 256, SOME = 64 * ALL };

static float source[SOME], back[SOME];

static double draw_normal(uint64_t *seed)
{
    const double u = check_random(seed), v = check_random(seed);
    return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
}

/* The root of the mean square of what is lost, relative to that of the numbers. */
static double loss_of(dra_dtype t)
{
    static unsigned char blocks[SOME];
    double               lost = 0, all = 0;
    dra_quantise(t, source, SOME, blocks);
    dra_dequantise(t, blocks, 0, SOME, back);
    for (int i = 0; i < SOME; i++) {
        const double d = (double)source[i] - (double)back[i];
        lost += d * d, all += (double)source[i] * (double)source[i];
    }
    return sqrt(lost / (all > 0 ? all : 1));
}

/* Normal numbers lose as much as 4.5, 5.5 and 6.6 bits allow; those of one sign less, since a
 * minimum is stored, but of Q6_K, which has none. */
static void blocks_of_256_lose_little(void **state)
{
    static const struct {
        dra_dtype type;
        double    both, one;
    } most[] = {{DRA_Q4_K, 0.073, 0.045}, {DRA_Q5_K, 0.037, 0.023}, {DRA_Q6_K, 0.0175, 0.016}};
    for (size_t k = 0; k < COUNT(most); k++) {
        uint64_t seed = 11;
        for (int i = 0; i < SOME; i++) source[i] = (float)(0.02 * draw_normal(&seed));
        const double both = loss_of(most[k].type);
        for (int i = 0; i < SOME; i++) source[i] = -(float)check_random(&seed);
        const double one = loss_of(most[k].type);
        if (!(both <= most[k].both && one <= most[k].one))
            fail_msg("%s: %.5f and %.5f", dra_dtype_get(most[k].type)->name, both, one);
    }
}

/* Zeros, one number among zeros, equal ones, numbers that are hardly any, the largest. */
static void blocks_of_256_of_odd_numbers(void **state)
{
    static const dra_dtype kinds[] = {DRA_Q4_K, DRA_Q5_K, DRA_Q6_K};
    for (size_t k = 0; k < COUNT(kinds); k++) {
        memset(source, 0, sizeof source);
        assert_true(loss_of(kinds[k]) == 0);
        for (int i = 0; i < SOME; i += ALL) source[i + i / ALL] = i % (2 * ALL) ? -3.0f : 65504.0f;
        assert_true(loss_of(kinds[k]) < 1e-3);
        for (int i = 0; i < SOME; i++) source[i] = i / ALL % 2 ? 0.75f : -0.75f;
        assert_true(loss_of(kinds[k]) < 0.04);
        for (int i = 0; i < SOME; i++) source[i] = i % 2 ? 1e-42f : -1e-42f;
        assert_true(loss_of(kinds[k]) <= 1);
        for (int i = 0; i < SOME; i++) source[i] = i % 3 ? 65504.0f : -65504.0f;
        assert_true(loss_of(kinds[k]) < 0.04);
        for (int i = 0; i < SOME; i++) assert_true(isfinite(back[i]));
    }
}

static void blocks_fill_the_last_axis(void **state)
{
    size_t bytes = 0;
    assert_true(dra_type_bytes(DRA_Q4_0, &DRA_SHAPE(3, 64), &bytes));
    assert_int_equal(bytes, 3 * 2 * 18);
    assert_true(dra_type_bytes(DRA_Q6_K, &DRA_SHAPE(5, 512), &bytes));
    assert_int_equal(bytes, 5 * 2 * 210);
    assert_true(dra_type_bytes(DRA_Q8_0, &DRA_SHAPE(0, 32), &bytes));
    assert_int_equal(bytes, 0);
    assert_false(dra_type_bytes(DRA_Q4_0, &DRA_SHAPE(64, 3), &bytes));
    assert_false(dra_type_bytes(DRA_Q4_K, &DRA_SHAPE(1, 128), &bytes));
    assert_false(dra_type_bytes(DRA_Q8_0, &(dra_shape){0}, &bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_blocks),
        cmocka_unit_test(decodes_to_the_same_bits),
        cmocka_unit_test(decodes_q3_k),
        cmocka_unit_test(encodes_to_the_same_bytes),
        cmocka_unit_test(blocks_of_256_lose_little),
        cmocka_unit_test(blocks_of_256_of_odd_numbers),
        cmocka_unit_test(blocks_fill_the_last_axis),
    };
    dra_error err = {0};
    if (dra_tensors_open("tests/data/quant/blocks.safetensors", &golden, &err) != DRA_OK) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    const int failed = check_main("quant", NULL, 0, tests, COUNT(tests));
    dra_tensors_close(golden);
    return failed;
}
