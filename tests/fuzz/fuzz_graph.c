/* fuzz_graph SECONDS [SEED]: random graphs over all builders, with regions, gradients, outputs and
 * donations; then verified, dumped, compiled, bound and run. What must hold:
 *   - no crash, no leak, nothing a sanitizer finds;
 *   - a graph with an error: every builder returns null, the error stays, and verifying and
 *     compiling say the same;
 *   - a graph without: runs, or stops with an error that has a text;
 *   - 1 and 3 threads, a second run, memory fenced and pre-filled with NaN, and a plan in which
 *     nothing shares memory: all give the same results, or the same error;
 *   - inputs stay as they are.
 * Graph number n of a run has seed SEED + n; SECONDS 0 runs that one graph. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "graph/program.h"
#include "regions.h"

/* ---- looking at it --------------------------------------------------------------------------- */

typedef size_t (*writer)(const dra_graph *g, char *text, size_t size);

/* As snprintf: the length does not depend on the room, and the room is kept to. */
static void check_dump(fuzz *f, const dra_graph *g, writer write)
{
    const size_t n = write(g, NULL, 0), room = n / 2 + 1;
    char        *text = malloc(n + 1), *part = malloc(room);
    if (!text || !part) broken(f, "no memory");
    f->last = "dump";
    if (write(g, text, n + 1) != n || strlen(text) != n) broken(f, "a dump of another length");
    if (write(g, part, room) != n || strlen(part) != room - 1 || strncmp(part, text, room - 1) != 0)
        broken(f, "half a dump is not half of it");
    free(text);
    free(part);
}

static void check_refusal(fuzz *f, const dra_graph *g, dra_device *device)
{
    dra_error        err[2] = {{0}};
    dra_program     *p = NULL;
    const dra_status st[] = {dra_graph_verify(g, &err[0]), dra_compile(g, device, &p, &err[1])};
    f->last = "refusal";
    for (int i = 0; i < 2; i++)
        if (st[i] != f->first.code || err[i].code != f->first.code ||
            strcmp(err[i].text, f->first.text) != 0)
            broken(f, "refused with '%s', the graph's error is '%s'", err[i].text, f->first.text);
    if (p) broken(f, "a program of a graph with an error");
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct memory { /* what inputs are bound to, and how it was at first */
    void  *data[INPUTS], *first[INPUTS];
    size_t bytes[INPUTS];
} memory;

static void fill(fuzz *f, const input *in, int64_t count, void *data, bool wild)
{
    const double odd[] = {NAN, INFINITY, -INFINITY, 1e30, -0.0, 1e-40};
    for (int64_t i = 0; i < count; i++) {
        const double x = wild && chance(f, 10) ? odd[below(f, COUNT(odd))]
                                               : (double)between(f, -200, 200) / 100;
        const int    n = chance(f, 90) ? below(f, 4) : between(f, -9, 99);
        switch (in->dtype) {
        case DRA_F32: ((float *)data)[i] = (float)x; break;
        case DRA_F64: ((double *)data)[i] = x; break;
        case DRA_BF16: ((uint16_t *)data)[i] = dra_f32_to_bf16((float)x); break;
        case DRA_F16: ((uint16_t *)data)[i] = dra_f32_to_f16((float)x); break;
        case DRA_I32: ((int32_t *)data)[i] = wild && chance(f, 2) ? INT32_MIN : n; break;
        case DRA_BOOL: ((uint8_t *)data)[i] = n & 1; break;
        default: break; /* quantised: only parameters are */
        }
    }
}

static memory *new_memory(fuzz *f)
{
    memory    *m = calloc(1, sizeof *m);
    const bool wild = chance(f, 40);
    if (!m) broken(f, "no memory");
    for (int i = 0; i < f->inputs && !f->huge; i++) {
        const int64_t n = dra_shape_count(&f->input[i].shape);
        m->bytes[i] = (size_t)n * dra_dtype_bytes(f->input[i].dtype);
        m->data[i] = malloc(m->bytes[i] ? m->bytes[i] : 1);
        m->first[i] = malloc(m->bytes[i] ? m->bytes[i] : 1);
        if (!m->data[i] || !m->first[i]) broken(f, "no memory");
        fill(f, &f->input[i], n, m->first[i], wild);
    }
    return m;
}

static void free_memory(memory *m)
{
    for (int i = 0; i < INPUTS; i++) {
        free(m->data[i]);
        free(m->first[i]);
    }
    free(m);
}

typedef struct outcome { /* of one run */
    dra_error      err;
    unsigned char *bytes; /* all outputs o0, o1, .. one after the other */
    size_t         n, end[INPUTS + 8];
} outcome;

static double as_number(dra_dtype t, const unsigned char *p)
{
    switch (t) {
    case DRA_F32: {
        float x;
        memcpy(&x, p, sizeof x);
        return (double)x;
    }
    case DRA_F64: {
        double x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    default: {
        uint16_t x;
        memcpy(&x, p, sizeof x);
        return (double)(t == DRA_BF16 ? dra_bf16_to_f32(x) : dra_f16_to_f32(x));
    }
    }
}

/* One NaN is as good as another: which of two it hands on is up to the processor. */
static void same_nans(dra_dtype t, unsigned char *p, int64_t n)
{
    const size_t size = dra_dtype_bytes(t);
    for (int64_t i = 0; dra_dtype_get(t)->is_float && i < n; i++, p += size)
        if (isnan(as_number(t, p))) memset(p, 0xff, size);
}

static void take_results(fuzz *f, const dra_program *p, const dra_buffers *b, outcome *o)
{
    for (int i = 0;; i++) {
        char      name[24];
        dra_dtype t;
        dra_shape s;
        snprintf(name, sizeof name, "o%d", i);
        if (dra_result_type(p, name, &t, &s, NULL) != DRA_OK) return;
        const int64_t  n = dra_shape_count(&s);
        const size_t   bytes = (size_t)n * dra_dtype_bytes(t);
        unsigned char *grown = realloc(o->bytes, o->n + bytes + 1);
        if (!grown) broken(f, "no memory");
        o->bytes = grown;
        if (dra_get(b, name, grown + o->n, bytes, NULL) != DRA_OK)
            broken(f, "no result '%s'", name);
        same_nans(t, grown + o->n, n);
        o->n += bytes;
        o->end[i] = o->n;
    }
}

static void check_inputs(const fuzz *f, const dra_program *p, const dra_buffers *b, const memory *m)
{
    for (int i = 0; i < f->inputs; i++) {
        if (dra_array_download(m->data[i], dra_slot_memory(b, dra_slot_find(p, f->input[i].name)),
                               NULL) != DRA_OK)
            broken(f, "input '%s' is gone", f->input[i].name);
        if (!f->input[i].donated && memcmp(m->data[i], m->first[i], m->bytes[i]) != 0)
            broken(f, "input '%s' was written to", f->input[i].name);
    }
}

static void put_all(fuzz *f, dra_buffers *b, const memory *m)
{
    dra_error err = {0};
    for (int i = 0; i < f->inputs; i++) {
        if (dra_put(b, f->input[i].name, m->first[i], m->bytes[i] + 1, NULL) == DRA_OK)
            broken(f, "bound the wrong size");
        if (dra_put(b, f->input[i].name, m->first[i], m->bytes[i], &err) != DRA_OK)
            broken(f, "bind: %s", err.text);
    }
}

static outcome run_once(fuzz *f, const dra_program *p, dra_buffers *b, memory *m)
{
    outcome o = {.err = {0}};
    put_all(f, b, m);
    if (dra_touch(b, NULL, NULL) != DRA_OK) broken(f, "touch");
    const dra_status st = dra_run(b, &o.err);
    if (st != o.err.code || (st && !o.err.text[0])) broken(f, "an error of the run without a text");
    if (st == DRA_OK) take_results(f, p, b, &o);
    check_inputs(f, p, b, m);
    return o;
}

typedef struct counts {
    long graphs, refused, unplanned, run, faults;
} counts;

typedef struct devices {
    dra_device *one, *three;
} devices;

static void compare(fuzz *f, const char *what, const outcome *a, const outcome *b)
{
    f->last = what;
    if (a->err.code != b->err.code || strcmp(a->err.text, b->err.text) != 0)
        broken(f, "'%s' here, '%s' there", a->err.text, b->err.text);
    if (a->n != b->n) broken(f, "%zu bytes here, %zu there", a->n, b->n);
    for (size_t i = 0, name = 0; i < a->n; i++) {
        while (i >= a->end[name]) name++;
        if (a->bytes[i] != b->bytes[i])
            broken(f, "byte %zu of output 'o%zu' differs", name ? i - a->end[name - 1] : i, name);
    }
}

typedef struct job {
    dra_buffers *b;
    dra_error    err;
} job;

static void *run_job(void *user)
{
    job *j = user;
    dra_run(j->b, &j->err);
    return NULL;
}

/* Two threads run one program at once; only where no state is written. */
static void run_together(fuzz *f, const dra_program *p, memory *m, const outcome *expected)
{
    job       j[2] = {{.b = NULL}};
    pthread_t thread;
    for (int i = 0; i < f->inputs; i++)
        if (f->input[i].donated) return;
    for (int i = 0; i < 2; i++) {
        if (dra_buffers_create(p, &j[i].b, NULL) != DRA_OK) broken(f, "no second buffers");
        put_all(f, j[i].b, m);
    }
    if (pthread_create(&thread, NULL, run_job, &j[0]) != 0) broken(f, "no thread");
    run_job(&j[1]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) {
        outcome o = {.err = j[i].err};
        if (!o.err.code) take_results(f, p, j[i].b, &o);
        compare(f, "two at once", expected, &o);
        free(o.bytes);
        dra_buffers_destroy(j[i].b);
    }
}

/* Memory that could perhaps be had is left alone; what is far too much must be refused. */
static bool may_allocate(const fuzz *f, const dra_program *p)
{
    const dra_memory_report r = dra_program_memory(p);
    const size_t            part[] = {r.activations, r.prepared};
    bool                    fits = true;
    for (int i = 0; i < 2; i++)
        fits = fits && (part[i] < (size_t)1 << 22 || part[i] > (size_t)1 << 46);
    return fits || !f->huge;
}

/* Compiles and runs twice; false when the plan was refused. */
static bool run_on(fuzz *f, const dra_graph *g, dra_device *d, size_t guard, memory *m, outcome *o)
{
    dra_program *p = NULL;
    dra_buffers *b = NULL;
    dra_error    err = {0};
    char         text[512];
    dra_status   st = dra_compile_fenced(g, d, guard, &p, &err);
    if (st == DRA_OK && may_allocate(f, p)) st = dra_buffers_create(p, &b, &err);
    if (st != DRA_OK) {
        if (!err.text[0] || err.code != st) broken(f, "refused to compile without a text");
        dra_program_destroy(p);
        return false;
    }
    dra_program_text(p, text, sizeof text);
    if (!f->huge) {
        if (f->inputs && dra_run(b, &err) == DRA_ERR_BIND && !err.text[0]) broken(f, "bind text");
        *o = run_once(f, p, b, m);
        dra_profile_enable(b, guard != 0);
        outcome again = run_once(f, p, b, m);
        compare(f, "a second run", o, &again);
        free(again.bytes);
        if (dra_device_threads(d) > 1 && f->seed % 4 == 0) run_together(f, p, m, o);
        dra_profile_row profile[8];
        dra_profile_read(b, profile, COUNT(profile));
    }
    dra_buffers_destroy(b);
    dra_program_destroy(p);
    return true;
}

/* The same graph once more, every value an output: nothing shares memory. */
static void run_apart(uint64_t seed, const devices *d, memory *m, const outcome *shared)
{
    fuzz       f;
    outcome    o = {.err = {0}};
    dra_graph *g = build(&f, seed, true);
    f.last = "a plan apart";
    for (int i = 0; i < f.inputs; i++) f.input[i].donated = false;
    if (!f.first.code && run_on(&f, g, d->one, 0, m, &o)) {
        if (shared->err.code && !o.err.code)
            broken(&f, "only the shared plan fails: %s", shared->err.text);
        if (!shared->err.code && !o.err.code) compare(&f, "a plan apart", shared, &o);
    }
    free(o.bytes);
    dra_graph_destroy(g);
}

static void run_all(fuzz *f, const dra_graph *g, const devices *d, counts *n)
{
    memory *m = new_memory(f);
    outcome o[3] = {{.err = {0}}};
    f->last = "compiling";
    const bool planned = run_on(f, g, d->one, 0, m, &o[0]);
    const bool also[] = {run_on(f, g, d->three, 0, m, &o[1]), run_on(f, g, d->one, 64, m, &o[2])};
    if (!f->huge && (also[0] != planned || also[1] != planned))
        broken(f, "one device plans it, another does not");
    compare(f, "three threads", &o[0], &o[1]);
    compare(f, "fences", &o[0], &o[2]);
    if (planned && !f->huge) run_apart(f->seed, d, m, &o[0]);
    n->unplanned += !planned;
    n->run += planned && !f->huge && !o[0].err.code;
    n->faults += o[0].err.code != DRA_OK;
    for (int i = 0; i < 3; i++) free(o[i].bytes);
    free_memory(m);
}

static void one_graph(uint64_t seed, const devices *d, counts *n, bool show)
{
    fuzz f;
    current_seed = seed;
    dra_graph *g = build(&f, seed, false);
    bool       large = f.huge;
    for (int i = 0; i < f.inputs; i++)
        large = large || dra_shape_count(&f.input[i].shape) > 1 << 20;
    f.huge = large;
    check_dump(&f, g, dra_graph_text);
    check_dump(&f, g, dra_graph_dot);
    if (show) {
        const size_t size = dra_graph_text(g, NULL, 0) + 1;
        char        *text = malloc(size);
        if (text) dra_graph_text(g, text, size);
        printf("%s%s\n", text ? text : "", f.first.text);
        free(text);
    }
    n->graphs++;
    n->refused += f.first.code != DRA_OK;
    if (f.first.code)
        check_refusal(&f, g, d->one);
    else
        run_all(&f, g, d, n);
    dra_graph_destroy(g);
}

/* ---- the program ----------------------------------------------------------------------------- */

/* Sanitizers, where there are any: a huge allocation fails instead of ending the program, and the
 * seed is told before one of them ends it. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1:halt_on_error=1:second_deadlock_stack=1";
}
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) { return "print_stacktrace=1:abort_on_error=1"; }
void        __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));
int         __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static void tell_seed(void)
{
    printf("FAILED, seed %" PRIu64 "\nreproduce: fuzz_graph 0 %" PRIu64 "\n", current_seed,
           current_seed);
    fflush(stdout);
}

static void on_abort(int number)
{
    tell_seed();
    signal(number, SIG_DFL);
    raise(number);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void report(const counts *n, double seconds)
{
    printf("%5.0f s  %ld graphs, %ld refused, %ld not planned, %ld run, %ld faults\n", seconds,
           n->graphs, n->refused, n->unplanned, n->run, n->faults);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const double   seconds = argc > 1 ? strtod(argv[1], NULL) : 10, start = now();
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL) * 1000003;
    devices        d = {0};
    counts         n = {0};
    double         told = start, slowest = 0;
    uint64_t       slow_seed = first, checked = first;
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGABRT, on_abort);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(tell_seed);
    if (dra_device_create_cpu(&(dra_cpu_config){1, NULL}, &d.one, NULL) != DRA_OK ||
        dra_device_create_cpu(&(dra_cpu_config){3, NULL}, &d.three, NULL) != DRA_OK)
        return 1;
    printf("first seed %" PRIu64 "\n", first);
    for (uint64_t seed = first; n.graphs == 0 || now() - start < seconds; seed++) {
        const double before = now();
        one_graph(seed, &d, &n, seconds == 0);
        if (now() - before > slowest) slowest = now() - before, slow_seed = seed;
        if (now() - told < 5 && seconds != 0) continue;
        told = now();
        report(&n, told - start);
        if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check()) {
            printf("FAILED: a leak among the seeds %" PRIu64 " to %" PRIu64 "\n", checked, seed);
            return 1;
        }
        checked = seed + 1;
    }
    report(&n, now() - start);
    printf("slowest: %.0f ms, seed %" PRIu64 "\n", 1e3 * slowest, slow_seed);
    for (size_t i = 0; i < COUNT(rows); i++)
        printf("%s %ld/%ld%s", rows[i].name, built_well[i], built[i], i % 6 == 5 ? "\n" : "  ");
    printf("\n");
    dra_device_destroy(d.one);
    dra_device_destroy(d.three);
    return 0;
}
