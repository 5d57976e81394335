/* The limits of the machine: plausible numbers, refused arguments. */
#include "check.h"

#include <string.h>

#include "apart.h"
#include "device/simd_peak.h"

static dra_device *best(int threads) { return check_device(threads, dra_device_level_at(0)); }

static void measures_every_limit(void **state)
{
    for (int threads = 1; threads <= 2; threads++) {
        dra_limits  l = {0};
        dra_error   err = {0};
        dra_device *d = best(threads);
        assert_int_equal(dra_limits_measure(d, 1, &l, &err), DRA_OK);
        /* Between a toy and a machine no one has; sanitizers are slow. */
        assert_true(l.flops > 1e6 && l.flops < 1e15);
        assert_true(l.bf16_flops >= 0);
        assert_true(l.tf32_flops == 0 && l.upload == 0 && l.download == 0 && l.mapped == 0 &&
                    l.touched == 0);
        const double bytes[] = {l.read, l.write, l.copy, l.streaming_write, l.streaming_copy};
        for (size_t i = 0; i < COUNT(bytes); i++) assert_true(bytes[i] > 1e6 && bytes[i] < 1e14);
    }
}

static void has_a_peak_for_every_level(void **state)
{
    dra_limits l = {0};
    dra_error  err = {0};
    for (size_t i = 0; dra_device_level_at(i); i++) {
        dra_device *d = check_device(1, dra_device_level_at(i));
        assert_int_equal(dra_limits_measure(d, 1, &l, &err), DRA_OK);
        assert_true(l.flops > 0);
        const char *level = dra_device_level_at(i);
        assert_int_equal(l.bf16_flops > 0,
                         strcmp(level, "avx512bf16") == 0 || strcmp(level, "avx512amx") == 0);
    }
}

/* 12 chains of x/2 + 1, all of whose lanes go to 2. */
static void computes_what_it_counts(void **state)
{
    const dra_peak *p = dra_peak_ref();
    assert_true(p->flops == 2 * 12 * (int64_t)(16 / sizeof(dra_real)));
    const double sum = (double)p->run(100), lanes = (double)p->flops / 2;
    assert_true(sum > 1.999 * lanes && sum < 2.001 * lanes);
}

static void bursts(void **state)
{
    for (int threads = 1; threads <= 2; threads++) {
        const double flops = dra_flops_measure(best(threads));
        assert_true(flops > 1e6 && flops < 1e15);
    }
}

static void counts_bytes(void **state)
{
    const dra_bandwidth_config c = {.reads = 1, .writes = 2, .updates = 3, .bytes = 100};
    assert_true(dra_bandwidth_bytes(&c) == 900);
}

static void streams_odd_sizes(void **state)
{
    const size_t sizes[] = {1, 63, 512, 513, 4096, (256 << 10) - 1, (256 << 10) + 64, 3 << 20};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int how = 1; how < 8; how++) {
            const dra_bandwidth_config c = {.reads = how & 1,
                                            .writes = how >> 1 & 1,
                                            .updates = how >> 2 & 1,
                                            .bytes = sizes[i]};
            dra_bandwidth             *s;
            dra_error                  err = {0};
            assert_int_equal(dra_bandwidth_create(best(2), &c, &s, &err), DRA_OK);
            for (int pass = 0; pass < 4; pass++) {
                const double seconds = dra_bandwidth_pass(s, pass % 2 == 1);
                assert_true(seconds >= 0 && seconds < 60);
            }
            dra_bandwidth_destroy(s);
        }
    dra_bandwidth_destroy(NULL);
}

static void refused(dra_bandwidth_config c, const char *text)
{
    dra_bandwidth *s = (dra_bandwidth *)&c;
    dra_error      err = {0};
    assert_int_equal(dra_bandwidth_create(best(1), &c, &s, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, text);
    assert_null(s);
    assert_int_equal(dra_bandwidth_create(best(1), &c, &s, NULL), DRA_ERR_VALUE);
}

static void refuses_what_makes_no_sense(void **state)
{
    dra_limits l = {.flops = 1};
    dra_error  err = {0};
    refused((dra_bandwidth_config){.bytes = 64},
            "stream: 0 reads, 0 writes, 0 updates, expected 1 to 16 together");
    refused((dra_bandwidth_config){.reads = 17, .bytes = 64},
            "stream: 17 reads, 0 writes, 0 updates, expected 1 to 16 together");
    refused((dra_bandwidth_config){.reads = 2, .writes = -1, .bytes = 64},
            "stream: 2 reads, -1 writes, 0 updates, expected 1 to 16 together");
    refused((dra_bandwidth_config){.reads = 1}, "stream: arrays of 0 bytes");
    assert_int_equal(dra_limits_measure(best(1), 0, &l, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "limits: 0 repeats, expected 1 to 1000");
    assert_int_equal(dra_limits_measure(best(1), 1001, &l, NULL), DRA_ERR_VALUE);
    assert_true(l.flops == 0);
}

/* A device with memory of its own and no way to measure it. */
static void refuses_other_devices(void **state)
{
    const dra_bandwidth_config c = {.reads = 1, .bytes = 64};
    dra_device                *d;
    dra_bandwidth             *s = (dra_bandwidth *)&d;
    dra_limits                 l = {.flops = 1};
    dra_error                  err = {0};
    const dra_cpu_config       config = {1, "ref"};
    assert_int_equal(apart_create(&config, &d, &err), DRA_OK);
    assert_int_equal(dra_limits_measure(d, 1, &l, &err), DRA_ERR_DEVICE);
    assert_string_equal(err.text, "limits: the device 'ref' does not measure its own");
    assert_true(l.flops == 0);
    assert_int_equal(dra_bandwidth_create(d, &c, &s, &err), DRA_ERR_DEVICE);
    assert_string_equal(err.text, "stream: on the CPU only, this is 'ref'");
    assert_null(s);
    assert_true(dra_flops_measure(d) == 0 && dra_bf16_flops_measure(d) == 0);
    dra_device_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_every_limit),
        cmocka_unit_test(has_a_peak_for_every_level),
        cmocka_unit_test(computes_what_it_counts),
        cmocka_unit_test(bursts),
        cmocka_unit_test(counts_bytes),
        cmocka_unit_test(streams_odd_sizes),
        cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(refuses_other_devices),
    };
    return check_main("limits", NULL, 0, tests, COUNT(tests));
}
