/* The test harness on cmocka. A check_spec, run by check_main(), gives an op, for free:
 *   - its result against an oracle written in the test in double, for dense and strided inputs;
 *   - outputs pre-filled with NaN and fenced by guard bytes, inputs unchanged;
 *   - the same bits for 1, 2, 7 and 16 threads, for every level of micro-kernels, and on a second
 *     run;
 *   - in the double build, gradients by central differences under a random upstream, and in both
 *     builds the same bits of the gradients for 1, 2, 7 and 16 threads.
 * Refused inputs are spelled out by each test with check_refused(). */
#ifndef DRA_TESTS_CHECK_H
#define DRA_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dra/dra.h"
#include "own_config.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { CHECK_INPUTS = 14, CHECK_OUTPUTS = 8 };

typedef enum check_dtype { CHECK_REAL, CHECK_I32, CHECK_BOOL, CHECK_BF16, CHECK_F16 } check_dtype;

typedef struct check_input {
    dra_shape     shape;
    check_dtype   dtype;
    double        lo, hi; /* drawn from lo..hi (i32: both included); 0, 0 means -1..1 (i32: 0..3) */
    const double *values; /* or exactly these */
    bool          constant; /* no gradient is asked for it */
} check_input;

typedef struct check_case {
    const char *name;
    int         n_in;
    check_input in[CHECK_INPUTS];
    const void *args; /* for build and oracle */
    double      tol;  /* of the result, relative to its largest element; 0: 1e-5, double 1e-12 */
    double      grad_tol; /* of the gradient in the double build; 0: 1e-7 */
    bool        no_grad;
} check_case;

typedef struct check_tensor { /* what oracles work on: dense, in double whatever the dtype */
    dra_shape shape;
    int64_t   count;
    double   *at;
} check_tensor;

typedef struct check_spec {
    const char *name;
    int         n_out; /* 0: one */
    void (*build)(dra_graph *g, const void *args, const dra_value *in, dra_value *out);
    /* Fills out[i].at (zeroed, shaped by the graph). */
    void (*oracle)(const void *args, const check_tensor *in, check_tensor *out);
    const check_case *cases;
    size_t            n_cases;
} check_spec;

/* Runs every case of every spec as a test, then the other tests. Returns main's status. */
int check_main(const char *name, const check_spec *specs, size_t n_specs,
               const struct CMUnitTest *tests, size_t n_tests);

/* A device that lives as long as the test program; threads = 1, 2, 7 or 16, level "ref", ... */
dra_device *check_device(int threads, const char *level);
/* dra_device_create_cpu(), or where DRA_TEST_DEVICE says so the test device of apart.h, or that of
 * the plugin libdra-cuda.so. */
dra_status check_cpu(const dra_cpu_config *config, dra_device **out, dra_error *err);
bool       check_apart(void);
bool       check_cuda(void);
/* Reals of programs that read a text in another cut, batch or layout: the same bits on the CPU; on
 * CUDA, which does not promise them, equal within 5e-5 of the largest. */
void check_reals(const dra_real *a, const dra_real *b, size_t bytes);

dra_graph *check_graph(void); /* an empty graph, or the test fails */

/* The graph holds an error of this code and exactly this text; destroys the graph. */
void check_refused(dra_graph *g, dra_status code, const char *text);

/* A program with its buffers; every function fails the test with the error's text. */
typedef struct check_program {
    dra_program         *program;
    dra_buffers         *buffers;
    struct check_bound  *bound; /* memory of the test that is bound */
    struct check_result *seen;  /* results that were asked for */
} check_program;

check_program check_compile(dra_graph *g, int threads); /* destroys the graph */
void          check_bind(check_program *p, const char *name, void *data, size_t bytes);
void          check_run(check_program *p);
dra_status    check_try(check_program *p, dra_error *err); /* a run that may fail */
/* As the host sees it; a later run changes what is there. */
const dra_real *check_result(check_program *p, const char *name);
const void     *check_result_of(check_program *p, const char *name); /* NULL: there is none */
void            check_free(check_program *p);
bool            check_has_input(const check_program *p, const char *name);
/* A result is in the very memory that is bound to an input, parameter or state. */
bool check_in_place(const check_program *p, const char *result, const char *bound);

/* |a - b| <= tol max|b| for all n elements; NaN only where b is NaN. */
void check_close(const char *what, int64_t n, const dra_real *a, const double *b, double tol);

/* A row-major helper for oracles: the number of rows and the size of the last axis. */
static inline int64_t check_last(const check_tensor *t)
{
    return t->shape.rank ? t->shape.dim[t->shape.rank - 1] : 1;
}
static inline int64_t check_rows(const check_tensor *t)
{
    return check_last(t) ? t->count / check_last(t) : 0;
}

/* A repeatable stream of numbers in [0, 1). */
double check_random(uint64_t *seed);

/* Inputs for tests of graphs that are not about one op: real, named, with a shape. */
dra_value check_real(dra_graph *g, const char *name, dra_shape shape);

#endif
