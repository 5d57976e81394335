/* The caches: found or told; products are cut by them and keep their bits. Large arrays are written
 * by all threads and come out whole. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "device/caches.h"

static void tell(const char *text)
{
    if (text)
        setenv("DRA_CACHE", text, 1);
    else
        unsetenv("DRA_CACHE");
}

static void are_found_or_told(void **state)
{
    tell(NULL);
    const dra_caches found = dra_caches_find();
    assert_in_range(found.l1, 4 << 10, 1 << 20);
    assert_in_range(found.l2, 16 << 10, 1 << 30);
    assert_true(found.l3 >= 1 << 18);
    tell("48,2048,30720");
    const dra_caches told = dra_caches_find();
    assert_int_equal(told.l1, 48 << 10);
    assert_int_equal(told.l2, 2048 << 10);
    assert_int_equal(told.l3, 30720 << 10);
    static const char *const nonsense[] = {"", "x", "-3,0", ",,", "0", "99999999999999999999"};
    for (size_t i = 0; i < COUNT(nonsense); i++) {
        tell(nonsense[i]);
        const dra_caches c = dra_caches_find();
        assert_true(c.l1 == found.l1 && c.l2 == found.l2 && c.l3 == found.l3);
    }
    tell(NULL);
}

/* ---- products -------------------------------------------------------------------------------- */

enum { M = 530, N = 810, K = 300 };

/* a b, and both its gradients: operands with every layout, in both precisions. */
static dra_graph *products(void)
{
    dra_graph               *g = check_graph();
    const dra_value          x[] = {check_real(g, "a", DRA_SHAPE(M, K)),
                                    check_real(g, "b", DRA_SHAPE(N, K))};
    static const char *const names[2][3] = {{"y", "da", "db"}, {"y16", "da16", "db16"}};
    for (int half = 0; half < 2; half++) {
        dra_value dx[2];
        dra_set_precision(g, half ? DRA_PRECISION_BF16 : DRA_PRECISION_FULL);
        const dra_value y = dra_linear(g, x[0], x[1], (dra_value){0});
        const dra_value sum = dra_sum_all(g, dra_square(g, y));
        dra_gradient(g, 1, &sum, NULL, 2, x, dx);
        dra_output(g, names[half][0], y);
        dra_output(g, names[half][1], dx[0]);
        dra_output(g, names[half][2], dx[1]);
    }
    return g;
}

enum { ALL = 2 * (M * N + M * K + N * K) };

static void compute(const char *caches, int threads, const dra_real *a, const dra_real *b,
                    dra_real *out)
{
    static const char *const names[] = {"y", "da", "db", "y16", "da16", "db16"};
    static const size_t      sizes[] = {M * N, M * K, N * K, M * N, M * K, N * K};
    dra_device              *d = NULL;
    dra_program             *p = NULL;
    dra_buffers             *w = NULL;
    dra_graph               *g = products();
    tell(caches);
    assert_int_equal(check_cpu(&(dra_cpu_config){.threads = threads}, &d, NULL), DRA_OK);
    assert_int_equal(dra_compile(g, d, &p, NULL), DRA_OK);
    assert_int_equal(dra_buffers_create(p, &w, NULL), DRA_OK);
    assert_int_equal(dra_put(w, "a", a, M * K * sizeof *a, NULL), DRA_OK);
    assert_int_equal(dra_put(w, "b", b, N * K * sizeof *b, NULL), DRA_OK);
    assert_int_equal(dra_run(w, NULL), DRA_OK);
    for (size_t i = 0; i < COUNT(names); out += sizes[i++])
        assert_int_equal(dra_get(w, names[i], out, sizes[i] * sizeof *out, NULL), DRA_OK);
    dra_buffers_destroy(w);
    dra_program_destroy(p);
    dra_device_destroy(d);
    dra_graph_destroy(g);
    tell(NULL);
}

static void products_keep_their_bits(void **state)
{
    static const char *const caches[] = {"32,1024,32768", "48,2048,107520", "32,256,8192",
                                         "16,64,1024", "1,1,1"};
    static const int         threads[] = {1, 7};
    static dra_real          a[M * K], b[N * K], found[2][ALL];
    uint64_t                 seed = 11;
    for (int i = 0; i < M * K; i++) a[i] = (dra_real)(check_random(&seed) - 0.5);
    for (int i = 0; i < N * K; i++) b[i] = (dra_real)(check_random(&seed) - 0.5);
    for (size_t i = 0; i < COUNT(caches); i++) {
        for (size_t k = 0; k < COUNT(threads); k++) {
            compute(caches[i], threads[k], a, b, found[i + k > 0]);
            assert_memory_equal(found[i + k > 0], found[0], sizeof found[0]);
        }
    }
}

/* ---- large arrays ---------------------------------------------------------------------------- */

static void large_arrays_are_whole(void **state)
{
    enum { BYTES = (9 << 20) + 16 };
    dra_device    *d = check_device(7, "ref");
    dra_array     *x = NULL, *y = NULL;
    unsigned char *from = malloc(BYTES), *to = malloc(BYTES);
    assert_true(from && to);
    for (size_t i = 0; i < BYTES; i++) from[i] = (unsigned char)(i * 7 + i / 4096);
    assert_int_equal(dra_array_create(d, BYTES, &x, NULL), DRA_OK);
    assert_int_equal(dra_array_create(d, BYTES, &y, NULL), DRA_OK);
    assert_int_equal(dra_array_upload(dra_array_whole(x), from, NULL), DRA_OK);
    assert_int_equal(dra_array_copy(dra_array_whole(y), dra_array_whole(x), NULL), DRA_OK);
    assert_int_equal(dra_array_download(to, dra_array_whole(y), NULL), DRA_OK);
    assert_memory_equal(to, from, BYTES);
    const size_t   part = BYTES - 64; /* overlapping by all but a line */
    const dra_span low = dra_span_part(dra_array_whole(x), 0, part);
    const dra_span high = dra_span_part(dra_array_whole(x), 64, part);
    assert_int_equal(dra_array_copy(high, low, NULL), DRA_OK);
    assert_int_equal(dra_array_download(to, high, NULL), DRA_OK);
    assert_memory_equal(to, from, part);
    assert_int_equal(dra_array_fill(dra_array_whole(y), (dra_real)0.75, NULL), DRA_OK);
    assert_int_equal(dra_array_download(to, dra_array_whole(y), NULL), DRA_OK);
    for (size_t i = 0; i < BYTES / sizeof(dra_real); i++)
        assert_true(((const dra_real *)(const void *)to)[i] == (dra_real)0.75);
    dra_array_destroy(x);
    dra_array_destroy(y);
    free(from);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(are_found_or_told),
        cmocka_unit_test(products_keep_their_bits),
        cmocka_unit_test(large_arrays_are_whole),
    };
    return check_main("caches", NULL, 0, tests, COUNT(tests));
}
