/* Quantised blocks: a byte that says which, then blocks of any bits. What must hold:
 *   - any part of them decodes to the bits that the whole decodes to;
 *   - a product with them, of one row and of several, has the bits of that with their numbers;
 *   - the same bytes taken as numbers are quantised to blocks that are near them.
 */
#include <math.h>

#include "base/quant.h"
#include "device/array.h"
#include "dra/dra.h"
#include "harness.h"

enum { LINES = 3, K = 256, N = LINES * K, ROWS = 3, BLOCK = 32 };

static const dra_dtype dtypes[] = {
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv) DRA_##NAME,
#include "base/quant.def"
#undef DRA_QUANT
};

typedef struct product { /* y (rows, LINES) = x (rows, K) w^T */
    dra_program *program;
    dra_buffers *buffers;
    dra_array   *x, *w;
} product;

static dra_device   *device;
static dra_real      x[ROWS * K];
static dra_real      number[N];
static unsigned char blocks[N / BLOCK * 34];
static product       by_blocks[COUNT(dtypes)][2], by_numbers[2]; /* of one row, of ROWS */

/* ---- products -------------------------------------------------------------------------------- */

static void bind(product *p, const char *name, const void *data, size_t bytes, dra_array **a)
{
    dra_error err = {0};
    must(dra_array_borrow(device, data, bytes, a, &err), &err);
    must(dra_bind(p->buffers, name, dra_array_whole(*a), &err), &err);
}

static product compile(dra_dtype dtype, int64_t rows, const void *w)
{
    product    p = {0};
    dra_graph *g = NULL;
    dra_error  err = {0};
    must(dra_graph_create(&g, &err), &err);
    const dra_value in = dra_input(g, "x", DRA_REAL, DRA_SHAPE(rows, K));
    const dra_value weights = dra_input(g, "w", dtype, DRA_SHAPE(LINES, K));
    dra_output(g, "y", dra_matmul(g, in, dra_transpose(g, weights, 0, 1)));
    must(dra_compile(g, device, &p.program, &err), &err);
    must(dra_buffers_create(p.program, &p.buffers, &err), &err);
    bind(&p, "x", x, (size_t)(rows * K) * sizeof *x, &p.x);
    bind(&p, "w", w, (size_t)dra_elements_bytes(dtype, N), &p.w);
    dra_graph_destroy(g);
    return p;
}

static void destroy(product *p)
{
    dra_buffers_destroy(p->buffers);
    dra_program_destroy(p->program);
    dra_array_destroy(p->x);
    dra_array_destroy(p->w);
}

/* The same bits, or NaN: whose bits depend on which of two came first. */
static bool same_real(dra_real a, dra_real b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static const dra_real *run(product *p)
{
    dra_error err = {0};
    must(dra_run(p->buffers, &err), &err);
    return dra_span_on_host(dra_result(p->buffers, "y"));
}

static void check_products(size_t which)
{
    for (int k = 0; k < 2; k++) {
        dra_real        own[ROWS * LINES];
        const int       n = k ? ROWS * LINES : LINES;
        const dra_real *y = run(&by_numbers[k]);
        memcpy(own, y, (size_t)n * sizeof *own);
        y = run(&by_blocks[which][k]);
        for (int i = 0; i < n; i++)
            if (!same_real(y[i], own[i]))
                broken("a product with blocks is not that with their numbers");
    }
}

/* ---- decoding -------------------------------------------------------------------------------- */

static void check_parts(dra_dtype dtype, const void *from, int64_t n)
{
    float whole[N], part[N];
    dra_dequantise(dtype, from, 0, n, whole);
    for (int tries = 0; tries < 8; tries++) {
        const int64_t first = below((uint32_t)n), some = 1 + below((uint32_t)(n - first));
        dra_dequantise(dtype, from, first, some, part);
        for (int64_t i = 0; i < some; i++)
            if (!same_float(part[i], whole[first + i]))
                broken("a part decodes to other numbers than the whole");
        if (!same_float(dra_dequantised(dtype, from, first), whole[first]))
            broken("an element decodes to another number than the whole");
    }
}

/* ---- quantising ------------------------------------------------------------------------------ */

/* How far a number may be from what is stored of it, of the largest number of its block, where
 * scales are neither too large nor too small for f16. */
static double most_of(dra_dtype dtype)
{
    switch (dtype) {
    case DRA_Q8_0: return 0.006; /* half of 1/127, and what f16 leaves of d */
    case DRA_Q5_1: return 0.05;  /* half of 2/31 */
    case DRA_Q5_0: return 0.08;  /* 1/16: the end opposite to the farthest number is cut */
    case DRA_Q4_1: return 0.08;  /* half of 2/15 */
    default: return 0.14;        /* 1/8 */
    }
}

static void check_near(dra_dtype dtype, int64_t n, const float *from, const float *to)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)from[i]));
    if (most < 0.05 || most > 1e4) return;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)from[i] - (double)to[i]) <= most_of(dtype) * most))
            broken("a quantised number is far from what it was");
}

static void check_quantise(dra_dtype dtype, const uint8_t *data, size_t bytes)
{
    const int64_t each = (int64_t)dra_dtype_get(dtype)->block_elements;
    const int64_t n = dra_imin(N, (int64_t)(bytes / sizeof(float))) / each * each;
    float         from[N], to[N];
    if (!dra_can_quantise(dtype) || n == 0) return;
    memcpy(from, data, (size_t)n * sizeof *from);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(from[i])) from[i] = 0;
    unsigned char *made = malloc((size_t)dra_elements_bytes(dtype, n)); /* watched by sanitizers */
    if (!made) broken("no memory");
    dra_quantise(dtype, from, n, made);
    dra_dequantise(dtype, made, 0, n, to);
    for (int64_t i = 0; i < n; i += each) check_near(dtype, each, from + i, to + i);
    free(made);
}

/* ---- the harness ----------------------------------------------------------------------------- */

int harness(const uint8_t *data, size_t bytes)
{
    if (bytes < 2) return 0;
    const size_t    which = data[0] % COUNT(dtypes);
    const dra_dtype dtype = dtypes[which];
    const int64_t   all = dra_elements_bytes(dtype, N);
    const int64_t   each = (int64_t)dra_dtype_get(dtype)->block_elements;
    const int64_t   n = dra_imin(N, (int64_t)((bytes - 1) / dra_dtype_bytes(dtype)) * each);
    if (n > 0) {
        void *exact = exact_copy(data + 1, (size_t)dra_elements_bytes(dtype, n));
        check_parts(dtype, exact, n);
        free(exact);
    }
    memset(blocks, 0, sizeof blocks);
    memcpy(blocks, data + 1, (size_t)dra_imin(all, (int64_t)bytes - 1));
    for (int64_t i = 0; i < N; i++) number[i] = (dra_real)dra_dequantised(dtype, blocks, i);
    check_products(which);
    check_quantise(dtype, data + 1, bytes - 1);
    return 1;
}

static void make(fuzz_bytes *b)
{
    const uint32_t n = 1 + below(700);
    for (uint32_t i = 0; i <= n; i++) put(b, &(uint8_t){(uint8_t)below(256)}, 1);
}

static void begin(void)
{
    dra_error err = {0};
    must(dra_device_create_cpu(&(dra_cpu_config){.threads = 1}, &device, &err), &err);
    for (int i = 0; i < ROWS * K; i++) x[i] = (dra_real)((i * 37 % 101) - 50) / 32;
    for (int k = 0; k < 2; k++) {
        by_numbers[k] = compile(DRA_REAL, k ? ROWS : 1, number);
        for (size_t i = 0; i < COUNT(dtypes); i++)
            by_blocks[i][k] = compile(dtypes[i], k ? ROWS : 1, blocks);
    }
}

static void end(void)
{
    for (int k = 0; k < 2; k++) {
        destroy(&by_numbers[k]);
        for (size_t i = 0; i < COUNT(dtypes); i++) destroy(&by_blocks[i][k]);
    }
    dra_device_destroy(device);
}

static const char *const words[] = {"\xff\x7f\xff\x7f", "\x01\x7c\x01\x7c", "\x01\x80\x01\x80",
                                    "\xff\xff\x7f\x7f", "\x01\xff\xff\x80", NULL};

const fuzz_subject fuzz_this = {.words = words, .begin = begin, .end = end, .make = make};
