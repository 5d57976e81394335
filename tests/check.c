/* The test harness, see check.h. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apart.h"
#include "base/shape.h"
#include "device/device.h"
#include "graph/program.h"

enum { GUARD = 128, SAMPLES = 48 }; /* SAMPLES: elements of an input whose gradient is checked */

static const int thread_counts[] = {1, 2, 7, 16};

/* ---- small things ---------------------------------------------------------------------------- */

double check_random(uint64_t *seed) /* splitmix64 */
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static void *must(void *p)
{
    if (!p) fail_msg("out of memory");
    return p;
}

dra_graph *check_graph(void)
{
    dra_graph *g = NULL;
    assert_int_equal(dra_graph_create(&g, NULL), DRA_OK);
    return g;
}

void check_refused(dra_graph *g, dra_status code, const char *text)
{
    const dra_error found = *dra_graph_error(g);
    dra_graph_destroy(g);
    assert_string_equal(found.text, text);
    assert_int_equal(found.code, code);
}

dra_value check_real(dra_graph *g, const char *name, dra_shape shape)
{
    return dra_input(g, name, DRA_REAL, shape);
}

/* DRA_TEST_CASE=PATTERN, with * and ?, picks tests of a program by their names: under tools that
 * make it slow, all of them take too long. */
__attribute__((constructor)) static void pick_cases(void)
{
    const char *pattern = getenv("DRA_TEST_CASE");
    if (pattern) cmocka_set_test_filter(pattern);
}

static bool asked_for(const char *device)
{
    const char *asked = getenv("DRA_TEST_DEVICE");
    return asked && strcmp(asked, device) == 0;
}

bool check_apart(void) { return asked_for("apart"); }
bool check_cuda(void) { return asked_for("cuda"); }

/* 5e-5: what docs/testing.md allows the logits of a whole model that was read in another cut. */
void check_reals(const dra_real *a, const dra_real *b, size_t bytes)
{
    const size_t n = bytes / sizeof *a;
    double       most = 0;
    if (!check_cuda()) {
        assert_memory_equal(a, b, bytes);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (isfinite(b[i])) most = fmax(most, fabs((double)b[i]));
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i] && !(fabs((double)a[i] - (double)b[i]) <= 5e-5 * most))
            fail_msg("element %zu: %.9g, %.9g", i, (double)a[i], (double)b[i]);
}

dra_status check_cpu(const dra_cpu_config *config, dra_device **out, dra_error *err)
{
    return check_apart()  ? apart_create(config, out, err)
           : check_cuda() ? dra_device_create("cuda", NULL, out, err)
                          : dra_device_create_cpu(config, out, err);
}

dra_device *check_device(int threads, const char *level)
{
    static struct {
        int         threads;
        const char *level;
        dra_device *device;
    } kept[32];
    if (check_cuda()) threads = 1, level = "cuda"; /* one will do */
    for (size_t i = 0; i < COUNT(kept); i++) {
        if (!kept[i].device) {
            dra_error err = {0};
            kept[i].threads = threads;
            kept[i].level = level;
            if (check_cpu(&(dra_cpu_config){threads, level}, &kept[i].device, &err))
                fail_msg("%s", err.text);
        }
        if (kept[i].threads == threads && strcmp(kept[i].level, level) == 0) return kept[i].device;
    }
    fail_msg("too many devices");
    return NULL;
}

check_program check_compile(dra_graph *g, int threads)
{
    check_program p = {0};
    dra_error     err = {0};
    const char   *asked = getenv("DRA_CPU"); /* as the library does: else the best */
    dra_device   *d = check_device(threads, asked ? asked : dra_device_level_at(0));
    dra_status    st = dra_compile_fenced(g, d, GUARD, &p.program, &err);
    dra_graph_destroy(g);
    if (st == DRA_OK) st = dra_buffers_create(p.program, &p.buffers, &err);
    if (st != DRA_OK) fail_msg("compile: %s", err.text);
    return p;
}

static bool differs(double a, double b, double allowed)
{
    if (isnan(b)) return !isnan(a);
    if (isinf(b)) return a != b;
    return !(fabs(a - b) <= allowed);
}

static void compare(const char *what, int64_t n, const double *a, const double *b, double tol)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(b[i]) && fabs(b[i]) > largest) largest = fabs(b[i]);
    for (int64_t i = 0; i < n; i++)
        if (differs(a[i], b[i], tol * largest))
            fail_msg("%s: element %lld is %.17g, expected %.17g (largest %.3g, tolerance %.1g)",
                     what, (long long)i, a[i], b[i], largest, tol);
}

void check_close(const char *what, int64_t n, const dra_real *a, const double *b, double tol)
{
    double *wide = must(malloc(((size_t)n + 1) * sizeof *wide));
    for (int64_t i = 0; i < n; i++) wide[i] = (double)a[i];
    compare(what, n, wide, b, tol);
    free(wide);
}

/* ---- one case -------------------------------------------------------------------------------- */

typedef struct job {
    const check_spec *spec;
    const check_case *c;
    bool              strided; /* inputs come through transposed memory */
    int               n_out;
    check_tensor      in[CHECK_INPUTS];     /* in the op's own order */
    void             *memory[CHECK_INPUTS]; /* as bound */
    size_t            bytes[CHECK_INPUTS];
    check_tensor      up[CHECK_OUTPUTS]; /* random upstreams */
    dra_dtype         out_dtype[CHECK_OUTPUTS];
} job;

static dra_dtype real_dtype(check_dtype d)
{
    switch (d) {
    case CHECK_REAL: return DRA_REAL;
    case CHECK_I32: return DRA_I32;
    case CHECK_BOOL: return DRA_BOOL;
    case CHECK_BF16: return DRA_BF16;
    case CHECK_F16: return DRA_F16;
    }
    return DRA_REAL;
}

static double load(dra_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case DRA_F32: return (double)((const float *)p)[i];
    case DRA_F64: return ((const double *)p)[i];
    case DRA_BF16: return (double)dra_bf16_to_f32(((const uint16_t *)p)[i]);
    case DRA_F16: return (double)dra_f16_to_f32(((const uint16_t *)p)[i]);
    case DRA_I32: return ((const int32_t *)p)[i];
    case DRA_BOOL: return ((const uint8_t *)p)[i];
    default: break;
    }
    return 0;
}

static void store(dra_dtype t, void *p, int64_t i, double x)
{
    switch (t) {
    case DRA_F32: ((float *)p)[i] = (float)x; break;
    case DRA_F64: ((double *)p)[i] = x; break;
    case DRA_BF16: ((uint16_t *)p)[i] = dra_f32_to_bf16((float)x); break;
    case DRA_F16: ((uint16_t *)p)[i] = dra_f32_to_f16((float)x); break;
    case DRA_I32: ((int32_t *)p)[i] = (int32_t)x; break;
    case DRA_BOOL: ((uint8_t *)p)[i] = x != 0; break;
    default: break;
    }
}

static double draw(const check_input *in, uint64_t *seed)
{
    const double r = check_random(seed);
    double       lo = in->lo, hi = in->hi;
    const bool   given = lo != 0 || hi != 0;
    if (in->dtype == CHECK_BOOL) return r < 0.6;
    if (in->dtype == CHECK_I32) return floor((given ? lo : 0) + r * ((given ? hi - lo : 3) + 1));
    if (!given) lo = -1, hi = 1;
    return lo + r * (hi - lo);
}

static bool transposed(const job *j, int i) { return j->strided && j->in[i].shape.rank >= 2; }

/* Where element k of the op's input is in the memory that is bound. */
static int64_t memory_index(const job *j, int i, int64_t k)
{
    if (!transposed(j, i)) return k;
    const dra_shape *s = &j->in[i].shape;
    const int64_t    C = s->dim[s->rank - 1], R = s->dim[s->rank - 2];
    return k / (R * C) * (R * C) + k % C * R + k / C % R; /* last two axes swapped */
}

static void write_input(const job *j, int i)
{
    for (int64_t k = 0; k < j->in[i].count; k++)
        store(real_dtype(j->c->in[i].dtype), j->memory[i], memory_index(j, i, k), j->in[i].at[k]);
}

static void make_inputs(job *j)
{
    uint64_t seed = 1;
    for (const char *p = j->c->name; *p; p++) seed = seed * 31 + (unsigned char)*p;
    for (int i = 0; i < j->c->n_in; i++) {
        const check_input *in = &j->c->in[i];
        const dra_dtype    t = real_dtype(in->dtype);
        check_tensor      *x = &j->in[i];
        *x = (check_tensor){in->shape, dra_shape_count(&in->shape), NULL};
        x->at = must(calloc((size_t)x->count + 1, sizeof *x->at));
        j->bytes[i] = (size_t)x->count * dra_dtype_bytes(t);
        j->memory[i] = must(malloc(j->bytes[i] + 1)); /* exact: sanitizers see any overrun */
        for (int64_t k = 0; k < x->count; k++) {
            store(t, j->memory[i], k, in->values ? in->values[k] : draw(in, &seed));
            x->at[k] = load(t, j->memory[i], k);
        }
        write_input(j, i);
    }
}

static bool wants_gradient(const job *j, int i)
{
    return !j->c->no_grad && !j->c->in[i].constant && j->c->in[i].dtype == CHECK_REAL;
}

static const char *label(char kind, int i)
{
    static char names[8][16];
    static int  next;
    char       *name = names[next++ % 8];
    snprintf(name, sizeof names[0], "%c%d", kind, i);
    return name;
}

/* The graph of a case: outputs y0.., and with gradients dx0.. under upstream inputs u0.. */
static dra_graph *build(job *j, bool gradients)
{
    dra_graph *g = check_graph();
    dra_value  in[CHECK_INPUTS] = {{0}}, out[CHECK_OUTPUTS] = {{0}};
    for (int i = 0; i < j->c->n_in; i++) {
        dra_shape s = j->c->in[i].shape;
        if (transposed(j, i)) {
            const int64_t last = s.dim[s.rank - 1];
            s.dim[s.rank - 1] = s.dim[s.rank - 2];
            s.dim[s.rank - 2] = last;
        }
        in[i] = dra_input(g, label('x', i), real_dtype(j->c->in[i].dtype), s);
        if (transposed(j, i)) in[i] = dra_transpose(g, in[i], -1, -2);
    }
    j->spec->build(g, j->c->args, in, out);
    if (dra_graph_error(g)->code != DRA_OK) fail_msg("build: %s", dra_graph_error(g)->text);
    dra_value y[CHECK_OUTPUTS], u[CHECK_OUTPUTS], x[CHECK_INPUTS], dx[CHECK_INPUTS];
    int       n_y = 0, n_x = 0, which[CHECK_INPUTS];
    for (int i = 0; i < j->n_out; i++) {
        dra_output(g, label('y', i), out[i]);
        j->out_dtype[i] = dra_dtype_of(g, out[i]);
        j->up[i].shape = dra_shape_of(g, out[i]);
        j->up[i].count = dra_shape_count(&j->up[i].shape);
        if (!gradients || j->out_dtype[i] != DRA_REAL) continue;
        u[n_y] = dra_input(g, label('u', i), DRA_REAL, j->up[i].shape);
        y[n_y++] = out[i];
    }
    for (int i = 0; i < j->c->n_in && gradients; i++)
        if (wants_gradient(j, i)) which[n_x] = i, x[n_x++] = in[i];
    if (gradients) dra_gradient(g, n_y, y, u, n_x, x, dx);
    for (int i = 0; i < n_x; i++) dra_output(g, label('d', which[i]), dx[i]);
    if (dra_graph_error(g)->code != DRA_OK) fail_msg("gradient: %s", dra_graph_error(g)->text);
    return g;
}

static check_program compile_on(dra_graph *g, dra_device *d)
{
    check_program p = {0};
    dra_error     err = {0};
    if (dra_compile_fenced(g, d, GUARD, &p.program, &err) != DRA_OK ||
        dra_buffers_create(p.program, &p.buffers, &err) != DRA_OK)
        fail_msg("compile: %s", err.text);
    return p;
}

static check_program compile(dra_graph *g, int threads, const char *level)
{
    return compile_on(g, check_device(threads, level));
}

static void bind_all(job *j, check_program *p, bool gradients, dra_real *const *upstream)
{
    for (int i = 0; i < j->c->n_in; i++) check_bind(p, label('x', i), j->memory[i], j->bytes[i]);
    for (int i = 0; i < j->n_out && gradients; i++)
        if (j->out_dtype[i] == DRA_REAL)
            check_bind(p, label('u', i), upstream[i], (size_t)j->up[i].count * sizeof(dra_real));
}

static dra_real *random_upstream(const job *j, int i)
{
    uint64_t  seed = 77u + (uint64_t)i;
    dra_real *u = must(malloc(((size_t)j->up[i].count + 1) * sizeof *u));
    for (int64_t k = 0; k < j->up[i].count; k++) u[k] = (dra_real)(2 * check_random(&seed) - 1);
    return u;
}

static void compare_with_oracle(job *j, check_program *p)
{
#ifdef DRA_REAL_DOUBLE
    const double usual = 1e-12;
#else
    const double usual = 1e-5;
#endif
    check_tensor want[CHECK_OUTPUTS];
    for (int i = 0; i < j->n_out; i++) {
        want[i] = j->up[i];
        want[i].at = must(calloc((size_t)want[i].count + 1, sizeof(double)));
    }
    j->spec->oracle(j->c->args, j->in, want);
    for (int i = 0; i < j->n_out; i++) {
        const void *y = check_result_of(p, label('y', i));
        double     *found = must(calloc((size_t)want[i].count + 1, sizeof *found));
        for (int64_t k = 0; k < want[i].count; k++) found[k] = load(j->out_dtype[i], y, k);
        compare(label('y', i), want[i].count, found, want[i].at, j->c->tol ? j->c->tol : usual);
        free(found);
        free(want[i].at);
    }
}

/* All results of a run as one piece of memory, to compare bits. */
static unsigned char *snapshot(const job *j, check_program *p, bool gradients, size_t *size)
{
    size_t         n = 0;
    unsigned char *all = NULL;
    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0;
        for (int i = 0; i < j->n_out + j->c->n_in; i++) {
            const bool   is_y = i < j->n_out;
            const int    k = is_y ? i : i - j->n_out;
            const size_t bytes = is_y ? (size_t)j->up[k].count * dra_dtype_bytes(j->out_dtype[k])
                                      : (size_t)j->in[k].count * sizeof(dra_real);
            if (!is_y && (!gradients || !wants_gradient(j, k))) continue;
            const void *from = check_result_of(p, label(is_y ? 'y' : 'd', k));
            if (all && bytes) memcpy(all + at, from, bytes);
            at += bytes;
        }
        n = at;
        if (!all) all = must(malloc(n + 1));
    }
    *size = n;
    return all;
}

static void check_inputs_unchanged(const job *j)
{
    for (int i = 0; i < j->c->n_in; i++)
        for (int64_t k = 0; k < j->in[i].count; k++) {
            const double now = load(real_dtype(j->c->in[i].dtype), j->memory[i],
                                    memory_index(j, i, k));
            if (now != j->in[i].at[k] && !isnan(now)) fail_msg("input %d was written to", i);
        }
}

/* On CUDA: gradients as on the CPU, whose own are checked by central differences. One that is zero,
 * a sum of terms that cancel, is rounding errors on both: so it is not measured by its own size. */
static void compare_with_cpu(job *j, check_program *found, dra_graph *g, dra_real *const *up)
{
    static dra_device *cpu;
    dra_error          err = {0};
    if (!cpu && dra_device_create_cpu(NULL, &cpu, &err)) fail_msg("%s", err.text);
    check_program p = compile_on(g, cpu);
    bind_all(j, &p, true, up);
    check_run(&p);
    for (int i = 0; i < j->c->n_in; i++) {
        if (!wants_gradient(j, i)) continue;
        const dra_real *a = check_result(found, label('d', i)),
                       *b = check_result(&p, label('d', i));
        double most = 0;
        for (int64_t k = 0; k < j->in[i].count; k++)
            if (isfinite(b[k])) most = fmax(most, fabs((double)b[k]));
        const double tol = 10 * (j->c->tol != 0 ? j->c->tol : 1e-5);
        for (int64_t k = 0; k < j->in[i].count; k++)
            if (differs(a[k], b[k], tol * fmax(most, 1e-2)))
                fail_msg("gradient of input %d, element %lld: %.9g, on the CPU %.9g", i,
                         (long long)k, (double)a[k], (double)b[k]);
    }
    check_free(&p);
}

/* Every level and number of threads: the oracle's values, the same bits. */
static void check_runs(job *j, bool gradients)
{
    dra_graph *g = build(j, gradients);
    dra_real  *up[CHECK_OUTPUTS] = {0};
    for (int i = 0; i < j->n_out; i++) up[i] = random_upstream(j, i);
    for (size_t l = 0; dra_device_level_at(l) && (l == 0 || !check_cuda()); l++) {
        unsigned char *first = NULL;
        size_t         size = 0;
        for (size_t t = 0; t < (check_cuda() ? 1 : COUNT(thread_counts)); t++) {
            check_program p = compile(g, thread_counts[t], dra_device_level_at(l));
            bind_all(j, &p, gradients, up);
            for (int rerun = 0; rerun < 2; rerun++) {
                check_run(&p);
                unsigned char *now = snapshot(j, &p, gradients, &size);
                if (first && memcmp(first, now, size) != 0)
                    fail_msg("other bits with %d threads, run %d, level %s", thread_counts[t],
                             rerun, dra_device_level_at(l));
                if (first)
                    free(now);
                else
                    first = now;
            }
            if (t == 0) compare_with_oracle(j, &p);
            if (gradients && check_cuda()) compare_with_cpu(j, &p, g, up);
            check_inputs_unchanged(j);
            check_free(&p);
        }
        free(first);
    }
    for (int i = 0; i < j->n_out; i++) free(up[i]);
    dra_graph_destroy(g);
}

/* ---- gradients by central differences, double build ------------------------------------------ */

#ifdef DRA_REAL_DOUBLE
static double weighted_sum(const job *j, check_program *p, dra_real *const *up)
{
    double sum = 0;
    check_run(p);
    for (int i = 0; i < j->n_out; i++) {
        if (j->out_dtype[i] != DRA_REAL) continue;
        const dra_real *y = check_result(p, label('y', i));
        for (int64_t k = 0; k < j->up[i].count; k++) sum += (double)y[k] * (double)up[i][k];
    }
    return sum;
}

static double difference(job *j, check_program *p, dra_real *const *up, int i, int64_t k)
{
    const double x = j->in[i].at[k], h = 1e-5 * fmax(1, fabs(x));
    double       f[2];
    for (int s = 0; s < 2; s++) {
        store(DRA_REAL, j->memory[i], memory_index(j, i, k), s ? x + h : x - h);
        f[s] = weighted_sum(j, p, up);
    }
    store(DRA_REAL, j->memory[i], memory_index(j, i, k), x);
    return (f[1] - f[0]) / (2 * h);
}

static void check_gradient(job *j)
{
    dra_graph    *with = build(j, true), *without = build(j, false);
    check_program p = compile(with, 1, "ref"), q = compile(without, 1, "ref");
    dra_real     *up[CHECK_OUTPUTS] = {0};
    uint64_t      seed = 5;
    dra_graph_destroy(with);
    dra_graph_destroy(without);
    for (int i = 0; i < j->n_out; i++) up[i] = random_upstream(j, i);
    bind_all(j, &p, true, up);
    bind_all(j, &q, false, up);
    check_run(&p);
    for (int i = 0; i < j->c->n_in; i++) {
        if (!wants_gradient(j, i)) continue;
        const int64_t   n = j->in[i].count;
        const dra_real *dx = check_result(&p, label('d', i));
        double          largest = 0;
        for (int64_t k = 0; k < n; k++) largest = fmax(largest, fabs((double)dx[k]));
        for (int s = 0; s < SAMPLES && s < n; s++) {
            const int64_t k = n <= SAMPLES ? s : (int64_t)(check_random(&seed) * (double)n);
            const double  want = difference(j, &q, up, i, k);
            const double  tol = (j->c->grad_tol ? j->c->grad_tol : 1e-7) * fmax(largest, 1e-3);
            if (differs((double)dx[k], want, tol))
                fail_msg("gradient of input %d, element %lld is %.12g, by differences %.12g", i,
                         (long long)k, (double)dx[k], want);
        }
    }
    for (int i = 0; i < j->n_out; i++) free(up[i]);
    check_free(&p);
    check_free(&q);
}
#else
static void check_gradient(job *j) { (void)j; }
#endif

static bool any_gradient(const job *j)
{
    for (int i = 0; i < j->c->n_in; i++)
        if (wants_gradient(j, i)) return true;
    return false;
}

typedef struct entry {
    const check_spec *spec;
    const check_case *c;
} entry;

static void run_case(void **state)
{
    const entry *e = *state;
    for (int strided = 0; strided < 2; strided++) {
        job j = {.spec = e->spec,
                 .c = e->c,
                 .strided = strided != 0,
                 .n_out = e->spec->n_out ? e->spec->n_out : 1};
        make_inputs(&j);
        check_runs(&j, false);
        if (any_gradient(&j)) {
            check_runs(&j, true);
            check_gradient(&j);
        }
        for (int i = 0; i < j.c->n_in; i++) {
            free(j.in[i].at);
            free(j.memory[i]);
        }
    }
}

/* ---- the runner ------------------------------------------------------------------------------ */

int check_main(const char *name, const check_spec *specs, size_t n_specs,
               const struct CMUnitTest *tests, size_t n_tests)
{
    size_t n = n_tests, at = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < n_specs; i++) n += specs[i].n_cases;
    struct CMUnitTest *all = calloc(n + 1, sizeof *all);
    entry             *entries = calloc(n + 1, sizeof *entries);
    char(*names)[96] = calloc(n + 1, sizeof *names);
    if (!all || !entries || !names) return 1;
    for (size_t i = 0; i < n_specs; i++) {
        for (size_t k = 0; k < specs[i].n_cases; k++, at++) {
            entries[at] = (entry){&specs[i], &specs[i].cases[k]};
            snprintf(names[at], sizeof names[at], "%s: %s", specs[i].name, specs[i].cases[k].name);
            all[at] = (struct CMUnitTest){names[at], run_case, NULL, NULL, &entries[at]};
        }
    }
    for (size_t i = 0; i < n_tests; i++) all[at++] = tests[i];
    const int failed = _cmocka_run_group_tests(name, all, n, NULL, NULL);
    free(all);
    free(entries);
    free(names);
    return failed;
}
