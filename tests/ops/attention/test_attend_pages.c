/* Attention over keys in pages: what it is over the same keys in a row, to the bit; and over keys
 * and values in bf16, in pages or not: what it is over the same numbers in full precision. */
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "check.h"

enum { B = 3, PAGES = 5, ALL = 19, J = PAGES * DRA_ATTEND_PAGE };

typedef struct sizes {
    int64_t     T, H, K, D, E;
    bool        slopes;
    const char *name;
} sizes;

static const sizes cases[] = {
    {1, 4, 4, 64, 64, false, "one query"},   {1, 6, 2, 20, 33, true, "one query, slopes"},
    {9, 4, 1, 24, 24, true, "some queries"}, {70, 2, 2, 64, 64, false, "many queries"},
    {40, 2, 1, 130, 5, false, "wide keys"},  {3, 8, 2, 128, 128, false, "groups of heads"},
};

enum { IN_PAGES = 1, IN_BF16 = 2 }; /* how keys and values are stored */

static dra_real number(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (dra_real)(*seed >> 8) / (dra_real)(1 << 23) - 1;
}

/* Numbers that bf16 has. */
static dra_real *rounded(dra_real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = dra_bf16_to_f32(dra_f32_to_bf16((float)x[i]));
    return x;
}

/* n numbers in bf16, behind a guard of one, so that their memory is aligned for nothing more. */
static uint16_t *narrow(const dra_real *x, int64_t n)
{
    uint16_t *y = malloc((size_t)(n + 1) * sizeof *y);
    y[0] = 0x7fc0; /* NaN */
    for (int64_t i = 0; i < n; i++) y[i + 1] = dra_f32_to_bf16((float)x[i]);
    return y;
}

typedef struct memory {
    dra_real *q, *k, *v, *all_k, *all_v, *slopes;
    int32_t   lo[B * 70], hi[B * 70], pages[B * PAGES];
} memory;

static dra_real *numbers(int64_t n, uint32_t *seed)
{
    dra_real *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = number(seed);
    return x;
}

/* Page i of row b of x (B, J, K W) is page pages[b, i] / 64 of all (ALL 64, K W). */
static void spread(const memory *m, const dra_real *x, dra_real *all, int64_t width)
{
    const size_t page = (size_t)(DRA_ATTEND_PAGE * width);
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0; i < PAGES; i++)
            memcpy(all + m->pages[b * PAGES + i] * width, x + (size_t)(b * PAGES + i) * page,
                   page * sizeof *x);
}

static memory open_memory(const sizes *z)
{
    uint32_t seed = 5;
    memory   m = {.q = numbers(B * z->T * z->H * z->D, &seed),
                  .k = rounded(numbers(B * J * z->K * z->D, &seed), B * J * z->K * z->D),
                  .v = rounded(numbers(B * J * z->K * z->E, &seed), B * J * z->K * z->E),
                  .all_k = numbers(ALL * DRA_ATTEND_PAGE * z->K * z->D, &seed),
                  .all_v = numbers(ALL * DRA_ATTEND_PAGE * z->K * z->E, &seed),
                  .slopes = numbers(z->H, &seed)};
    for (int i = 0; i < B * PAGES; i++) m.pages[i] = (i * 7 + 3) % ALL * DRA_ATTEND_PAGE;
    for (int64_t i = 0; i < B * z->T; i++) {
        m.lo[i] = (int32_t)(i / z->T * 50);
        m.hi[i] = (int32_t)(m.lo[i] + 1 + (i * 31) % (J - m.lo[i]));
    }
    spread(&m, m.k, m.all_k, z->K * z->D);
    spread(&m, m.v, m.all_v, z->K * z->E);
    return m;
}

static void close_memory(memory *m)
{
    free(m->q);
    free(m->k);
    free(m->v);
    free(m->all_k);
    free(m->all_v);
    free(m->slopes);
}

static void bind_items(check_program *p, const char *name, dra_real *x, uint16_t *narrow, int64_t n)
{
    if (narrow)
        check_bind(p, name, narrow + 1, (size_t)n * sizeof *narrow);
    else
        check_bind(p, name, x, (size_t)n * sizeof *x);
}

/* how: IN_PAGES, IN_BF16. */
static void run(const sizes *z, memory *m, int how, int threads, dra_real *y)
{
    const bool        pages = how & IN_PAGES;
    const dra_dtype   dtype = how & IN_BF16 ? DRA_BF16 : DRA_REAL;
    dra_graph        *g = check_graph();
    const int64_t     batch = pages ? 1 : B, rows = pages ? ALL * DRA_ATTEND_PAGE : J;
    const int64_t     keys = batch * rows * z->K * z->D, values = batch * rows * z->K * z->E;
    const dra_value   q = dra_input(g, "q", DRA_REAL, DRA_SHAPE(B, z->T, z->H, z->D));
    const dra_value   k = dra_input(g, "k", dtype, DRA_SHAPE(batch, rows, z->K, z->D));
    const dra_value   v = dra_input(g, "v", dtype, DRA_SHAPE(batch, rows, z->K, z->E));
    uint16_t         *narrow_k = NULL, *narrow_v = NULL;
    dra_attend_config c = {.path = DRA_ATTEND_TILED,
                           .lo = dra_input(g, "lo", DRA_I32, DRA_SHAPE(B, z->T)),
                           .hi = dra_input(g, "hi", DRA_I32, DRA_SHAPE(B, z->T))};
    if (pages) c.pages = dra_input(g, "pages", DRA_I32, DRA_SHAPE(B, PAGES));
    if (z->slopes) c.slopes = dra_input(g, "slopes", DRA_REAL, DRA_SHAPE(z->H));
    dra_output(g, "y",
               dra_attend(g, dra_transpose(g, q, 1, 2), dra_transpose(g, k, 1, 2),
                          dra_transpose(g, v, 1, 2), &c));
    check_program p = check_compile(g, threads);
    const size_t  real = sizeof *m->q, ints = (size_t)(B * z->T) * sizeof *m->lo;
    check_bind(&p, "q", m->q, (size_t)(B * z->T * z->H * z->D) * real);
    if (how & IN_BF16) narrow_k = narrow(pages ? m->all_k : m->k, keys);
    if (how & IN_BF16) narrow_v = narrow(pages ? m->all_v : m->v, values);
    bind_items(&p, "k", pages ? m->all_k : m->k, narrow_k, keys);
    bind_items(&p, "v", pages ? m->all_v : m->v, narrow_v, values);
    check_bind(&p, "lo", m->lo, ints);
    check_bind(&p, "hi", m->hi, ints);
    if (pages) check_bind(&p, "pages", m->pages, sizeof m->pages);
    if (z->slopes) check_bind(&p, "slopes", m->slopes, (size_t)z->H * real);
    check_run(&p);
    memcpy(y, check_result(&p, "y"), (size_t)(B * z->H * z->T * z->E) * real);
    check_free(&p);
    free(narrow_k);
    free(narrow_v);
}

static void pages_are_the_same_keys(void **state)
{
    const sizes *z = *state;
    const size_t n = (size_t)(B * z->H * z->T * z->E);
    memory       m = open_memory(z);
    dra_real    *y = malloc(2 * n * sizeof *y);
    run(z, &m, 0, 2, y);
    run(z, &m, IN_PAGES, 2, y + n);
    assert_memory_equal(y, y + n, n * sizeof *y);
    for (int i = 0; i < 6; i++) {
        run(z, &m, IN_BF16 | (i % 2 ? IN_PAGES : 0), (int[]){1, 2, 7}[i / 2], y + n);
        assert_memory_equal(y, y + n, n * sizeof *y);
    }
    free(y);
    close_memory(&m);
}

static void bad_pages_are_refused(void **state)
{
    dra_graph      *g = check_graph();
    const dra_value q = dra_input(g, "q", DRA_REAL, DRA_SHAPE(2, 1, 3, 4));
    const dra_value k = dra_input(g, "k", DRA_REAL, DRA_SHAPE(1, 1, 128, 4));
    dra_attend(g, q, k, k,
               &(dra_attend_config){.pages = dra_input(g, "pages", DRA_I32, DRA_SHAPE(3, 2))});
    check_refused(g, DRA_ERR_SHAPE, "attend: pages is i32 (3, 2), expected i32 (2, 2)");
    g = check_graph();
    const dra_value x = dra_input(g, "q", DRA_REAL, DRA_SHAPE(1, 1, 3, 4));
    dra_attend(
        g, x, x, x,
        &(dra_attend_config){.pages = dra_input(g, "pages", DRA_I32, DRA_SHAPE(1, 1)), .topk = 2});
    check_refused(g, DRA_ERR_VALUE, "attend: pages without the tiled path, or with always");
}

int main(void)
{
    struct CMUnitTest tests[COUNT(cases) + 1];
    for (size_t i = 0; i < COUNT(cases); i++)
        tests[i] = (struct CMUnitTest){cases[i].name, pages_are_the_same_keys, NULL, NULL,
                                       (void *)(uintptr_t)&cases[i]};
    tests[COUNT(cases)] = (struct CMUnitTest)cmocka_unit_test(bad_pages_are_refused);
    return _cmocka_run_group_tests("attend_pages", tests, COUNT(tests), NULL, NULL);
}
