/* Quantised blocks against ggml's bytes and numbers, tests/data/quant. */
#include "check.h"

#include <stdio.h>
#include <string.h>

#include "base/quant.h"
#include "dra/file.h"

static const struct {
    dra_dtype   dtype;
    const char *name;
} types[] = {
    {DRA_Q4_0, "Q4_0"}, {DRA_Q4_1, "Q4_1"}, {DRA_Q5_0, "Q5_0"}, {DRA_Q5_1, "Q5_1"},
    {DRA_Q8_0, "Q8_0"}, {DRA_Q4_K, "Q4_K"}, {DRA_Q5_K, "Q5_K"}, {DRA_Q6_K, "Q6_K"},
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

static void decodes_to_the_same_bits(void **state)
{
    for (size_t i = 0; i < COUNT(types); i++) {
        const dra_tensor_info *raw = part(types[i].name, ".raw");
        const dra_tensor_info *values = part(types[i].name, ".values");
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

static void encodes_to_the_same_bytes(void **state)
{
    const dra_tensor_info *source = part("source", "");
    const int64_t          n = (int64_t)(source->bytes / sizeof(float));
    for (size_t i = 0; i < COUNT(types); i++) {
        unsigned char blocks[1024];
        if (!dra_can_quantise(types[i].dtype)) continue;
        const dra_tensor_info *raw = part(types[i].name, ".raw");
        dra_quantise(types[i].dtype, source->data, n, blocks);
        for (size_t k = 0; k < raw->bytes; k++)
            if (blocks[k] != ((const unsigned char *)raw->data)[k])
                fail_msg("%s: byte %zu is %d", types[i].name, k, blocks[k]);
    }
    assert_false(dra_can_quantise(DRA_Q4_K) || dra_can_quantise(DRA_F32));
    assert_false(dra_can_quantise(DRA_DTYPE_COUNT));
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
        cmocka_unit_test(decodes_to_the_same_bits),
        cmocka_unit_test(encodes_to_the_same_bytes),
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
