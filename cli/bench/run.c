/* Times a case: builds, compiles, binds, warms up, then measures it, a peer if there is one, and
 * the limit that bounds it, in turns, so that all meet the same moments of a busy machine. */
#include "bench.h"
#include "options/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MOST_ROWS = 64, HUGE_PAGE = 2 << 20 };

/* A shorter timing measures the clock and the moment rather than the work, and on a GPU launching
 * and waiting; a run that takes longer is repeated three times at most. */
static const double shortest = 5e-3, shortest_gpu = 50e-3, longest = 2;

/* A difference of two times is small compared with both, so many short pairs, most of them
 * undisturbed, are more precise than a few long ones. */
enum { PAIRS = 11 };

/* After this time, the threads that computed last have stopped spinning. */
static const struct timespec breath = {.tv_nsec = 10 * 1000 * 1000};

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static dra_status fail_bench(dra_error *err, dra_status code, const char *text)
{
    err->code = code;
    snprintf(err->text, sizeof err->text, "bench: %s", text);
    return code;
}

bool bench_on_gpu(const dra_device *device)
{
    for (size_t i = 0; dra_device_level_at(i); i++) /* levels of the CPU */
        if (strcmp(dra_device_level_at(i), dra_device_level(device)) == 0) return false;
    return true;
}

/* ---- what a program is bound to -------------------------------------------------------------- */

size_t bench_bytes(dra_dtype dtype, size_t count)
{
    const dra_dtype_info *t = dra_dtype_get(dtype);
    return count / t->block_elements * t->block_bytes;
}

dra_value bench_value(bench_work *w, bench_declare declare, const char *name, dra_dtype dtype,
                      dra_shape shape, double lo, double hi)
{
    if (w->tensors == w->room) {
        const size_t  room = w->room ? 2 * w->room : 8;
        bench_tensor *more = realloc(w->tensor, room * sizeof *more);
        if (!more) return (dra_value){0}; /* the graph keeps the error */
        w->tensor = more;
        w->room = room;
    }
    bench_tensor *t = &w->tensor[w->tensors++];
    *t = (bench_tensor){.dtype = dtype, .lo = lo, .hi = hi};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->count = (size_t)dra_shape_count(&shape);
    t->bytes = bench_bytes(dtype, t->count);
    return declare(w->graph, t->name, dtype, shape);
}

dra_value bench_declared(dra_graph *g, const char *name, dra_dtype dtype, dra_shape shape)
{
    (void)dtype;
    (void)shape;
    return dra_find_input(g, name);
}

void bench_precision(bench_work *w, dra_precision precision)
{
    dra_set_precision(w->graph, precision);
    w->precision = precision;
}

void bench_integers(bench_work *w, const char *name, int64_t rows, int64_t columns, double value)
{
    if (dra_find_input(w->graph, name).id)
        bench_value(w, bench_declared, name, DRA_I32, DRA_SHAPE(rows, columns), value, value);
}

static size_t align_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Large arrays are on huge pages, like the device's own. */
static void *get_memory(size_t bytes)
{
    const size_t align = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : 64;
    const size_t whole = (bytes + align) / align * align;
    void        *data = aligned_alloc(align, whole);
#ifdef MADV_HUGEPAGE
    if (data && align == HUGE_PAGE) madvise(data, whole, MADV_HUGEPAGE);
#endif
    return data;
}

/* Stores x as element i; bf16 is the upper half of a float, and f16 is similar. */
static void put_number(bench_tensor *t, size_t i, double x)
{
    const float real = (float)x;
    uint32_t    bits;
    memcpy(&bits, &real, sizeof bits);
    const uint32_t exponent = bits >> 23 & 0xff; /* too small for f16: 0 */
    const uint32_t half = exponent < 113 ? 0 : (bits - (112u << 23)) >> 13 & 0x7fff;
    if (t->dtype == DRA_I32)
        ((int32_t *)t->data)[i] = (int32_t)x;
    else if (t->dtype == DRA_BF16)
        ((uint16_t *)t->data)[i] = (uint16_t)(bits >> 16);
    else if (t->dtype == DRA_F16)
        ((uint16_t *)t->data)[i] = (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)half;
    else
        ((dra_real *)t->data)[i] = (dra_real)x;
}

/* Fills blocks with random bits, after scales (f16) of a usual size. */
static void fill_blocks(bench_tensor *t, uint64_t *seed)
{
    const uint16_t scale = 0x1800; /* 2^-9 */
    const size_t   each = dra_dtype_get(t->dtype)->block_bytes;
    for (size_t i = 0; i < t->bytes; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)t->data)[i] = (unsigned char)(*seed >> 40);
        if (i % each == 3) memcpy((char *)t->data + i - 3, (const uint16_t[]){scale, scale}, 4);
    }
}

static void fill_tensor(bench_tensor *t, uint64_t *seed)
{
    if (dra_dtype_get(t->dtype)->block_elements > 1) {
        fill_blocks(t, seed);
        return;
    }
    for (size_t i = 0; i < t->count; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        put_number(t, i, t->lo + (t->hi - t->lo) * (double)(*seed >> 40) / (double)(1 << 24));
    }
}

/* ---- a program ready to run ------------------------------------------------------------------ */

typedef struct instance {
    bench_work   w;
    dra_array   *memory; /* of all its tensors, contiguous like weights */
    dra_program *program;
    dra_buffers *buffers;
} instance;

static void release_instance(instance *p)
{
    dra_buffers_destroy(p->buffers);
    dra_program_destroy(p->program);
    dra_graph_destroy(p->w.graph);
    dra_array_destroy(p->memory);
    for (size_t i = 0; i < p->w.tensors; i++) free(p->w.tensor[i].data);
    free(p->w.tensor);
}

/* Fills a tensor in its part of the device's memory; tensors of a product stay on the host, too,
 * for a peer. */
static dra_status make_tensor(instance *p, bench_tensor *t, size_t at, uint64_t *seed,
                              dra_error *err)
{
    t->data = get_memory(t->bytes);
    if (!t->data) return fail_bench(err, DRA_ERR_MEMORY, "out of memory");
    t->at = at;
    fill_tensor(t, seed);
    const dra_status st = dra_array_upload((dra_span){p->memory, at, t->bytes}, t->data, err);
    if (p->w.product[0]) return st;
    free(t->data);
    t->data = NULL;
    return st;
}

static dra_status bind_all(instance *p, dra_device *device, dra_error *err)
{
    uint64_t seed = 1;
    size_t   at = 0;
    for (size_t i = 0; i < p->w.tensors; i++)
        if (!p->w.tensor[i].with) at += align_bytes(p->w.tensor[i].bytes);
    dra_status st = dra_array_create(device, at, &p->memory, err);
    at = 0;
    for (size_t i = 0; i < p->w.tensors && st == DRA_OK; i++) {
        bench_tensor *t = &p->w.tensor[i];
        if (t->with)
            t->at = p->w.tensor[t->with - 1].at;
        else
            st = make_tensor(p, t, at, &seed, err);
        if (!t->with) at += align_bytes(t->bytes);
        if (st == DRA_OK)
            st = dra_bind(p->buffers, t->name, (dra_span){p->memory, t->at, t->bytes}, err);
    }
    return st;
}

static dra_status make_instance(instance      *p, void (*build)(bench_work *, const int64_t *),
                                const int64_t *size, dra_device *device, dra_error *err)
{
    *p = (instance){0};
    dra_status st = dra_graph_create(&p->w.graph, err);
    if (st != DRA_OK) return st;
    build(&p->w, size);
    st = dra_compile(p->w.graph, device, &p->program, err);
    if (st == DRA_OK) st = dra_buffers_create(p->program, &p->buffers, err);
    if (st == DRA_OK) st = bind_all(p, device, err);
    return st;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Seconds by the profile, without the op that does not count. */
static dra_status read_profile(instance *p, double *seconds, dra_error *err)
{
    dra_profile_row rows[MOST_ROWS];
    bool            found = false;
    const size_t    n = dra_profile_read(p->buffers, rows, MOST_ROWS);
    *seconds = 0;
    for (size_t i = 0; i < n && i < MOST_ROWS; i++) {
        if (strcmp(rows[i].op, p->w.forward) == 0)
            found = true;
        else
            *seconds += rows[i].seconds;
    }
    return found && n <= MOST_ROWS ? DRA_OK
                                   : fail_bench(err, DRA_ERR_NAME, "the forward op is not there");
}

/* Seconds of one run: the mean of `runs` that are started one after the other; the host waits for
 * the last. */
static dra_status time_runs(instance *p, int64_t runs, double *seconds, dra_error *err)
{
    dra_status st = DRA_OK;
    if (p->w.forward) dra_profile_enable(p->buffers, true);
    const double start = cli_now();
    for (int64_t i = 0; i < runs && st == DRA_OK; i++) st = dra_run_start(p->buffers, err);
    if (st == DRA_OK) st = dra_run_finish(p->buffers, err);
    *seconds = cli_now() - start;
    if (st == DRA_OK && p->w.forward) st = read_profile(p, seconds, err);
    *seconds /= (double)runs;
    return st;
}

static dra_status time_pair(instance *p, instance *without, int64_t runs, double *seconds,
                            dra_error *err)
{
    double     rest = 0;
    dra_status st = time_runs(p, runs, seconds, err);
    if (st == DRA_OK && without->buffers) st = time_runs(without, runs, &rest, err);
    *seconds -= rest;
    return st;
}

/* The first run includes first touch and the prepare block, on a GPU the second one captures its
 * launches; the last one shows how long a run takes. Long runs are not repeated. */
static dra_status warm_up(const bench_session *s, instance *p, double *seconds, dra_error *err)
{
    dra_status st = time_runs(p, 1, seconds, err);
    for (int i = s->gpu ? 0 : 1; i < 2 && st == DRA_OK && *seconds < longest; i++)
        st = time_runs(p, 1, seconds, err);
    return st;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

typedef struct samples { /* n of each */
    double *seconds, *percent, *streaming, *peer;
} samples;

static double sample_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, compare_doubles);
    return x[n / 2];
}

/* What a case is measured with; any of them may be missing. */
typedef struct others {
    instance    without; /* its time is subtracted */
    instance    rival;   /* the same work done by us in another way */
    bench_peer *peer;
} others;

/* Times as many runs as ours had, after one that wakes the threads. */
static double time_peer(bench_peer *peer, int64_t runs)
{
    nanosleep(&breath, NULL);
    bench_peer_run(peer);
    const double start = cli_now();
    for (int64_t i = 0; i < runs; i++) bench_peer_run(peer);
    const double seconds = (cli_now() - start) / (double)runs;
    nanosleep(&breath, NULL);
    return seconds;
}

/* Times the case and its opponents, one after the other. */
static dra_status time_match(instance *p, others *o, int64_t runs, const samples *x, int i,
                             dra_error *err)
{
    double     wake, theirs = 0;
    dra_status st = o->peer ? time_runs(p, 1, &wake, err) : DRA_OK;
    if (st == DRA_OK) st = time_pair(p, &o->without, runs, &x->seconds[i], err);
    if (st == DRA_OK && o->rival.buffers) st = time_runs(&o->rival, runs, &theirs, err);
    if (st == DRA_OK && o->peer) theirs = time_peer(o->peer, runs);
    x->peer[i] = 100 * theirs / x->seconds[i];
    return st;
}

static void fill_row(const samples *x, int n, bench_row *row)
{
    row->repeats = n;
    row->seconds = sample_median(x->seconds, n);
    row->least = x->seconds[0];
    row->most = x->seconds[n - 1];
    row->percent = sample_median(x->percent, n);
    row->streaming_percent = sample_median(x->streaming, n);
    row->peer = sample_median(x->peer, n);
}

/* Warms up the case and its opponents; *once: seconds of a run of the case. */
static dra_status warm_all(const bench_session *s, instance *p, others *o, double *once,
                           dra_error *err)
{
    double     unused;
    dra_status st = warm_up(s, p, once, err);
    if (st == DRA_OK && o->without.buffers) st = warm_up(s, &o->without, &unused, err);
    if (st == DRA_OK && o->rival.buffers) st = warm_up(s, &o->rival, &unused, err);
    return st;
}

static dra_status time_case(const bench_session *s, instance *p, others *o, const bench_limit *l,
                            bench_row *row, dra_error *err)
{
    const double least = s->gpu ? shortest_gpu : shortest;
    double       once = 0;
    dra_status   st = warm_all(s, p, o, &once, err);
    if (st != DRA_OK) return st;
    const bool    alone = !o->without.buffers, brief = alone && once > 0 && once < least;
    const int64_t runs = brief ? 1 + (int64_t)(least / once) : 1;
    const int n = !alone ? PAIRS * s->repeats : once > longest && s->repeats > 3 ? 3 : s->repeats;
    double   *memory = calloc(4 * (size_t)n, sizeof *memory);
    if (!memory) return fail_bench(err, DRA_ERR_MEMORY, "out of memory");
    const samples x = {memory, memory + n, memory + 2 * (size_t)n, memory + 3 * (size_t)n};
    for (int i = 0; i < n && st == DRA_OK; i++) {
        st = time_match(p, o, runs, &x, i, err);
        if (st == DRA_OK) x.percent[i] = bench_limit_percent(l, x.seconds[i], &x.streaming[i]);
    }
    if (st == DRA_OK) fill_row(&x, n, row);
    free(memory);
    return st;
}

static void describe_case(const instance *p, const bench_limit *l, bench_row *row)
{
    const dra_memory_report memory = dra_program_memory(p->program);
    row->memory = memory.activations + memory.prepared + memory.bound;
    row->units = p->w.units;
    row->unit = p->w.unit;
    row->flops = p->w.flops;
    row->bytes = p->w.stream.bytes ? dra_bandwidth_bytes(&p->w.stream) : 0;
    row->bound = l->bound;
}

static dra_status show_profile(instance *p, const char *name, dra_error *err)
{
    dra_profile_row rows[MOST_ROWS];
    dra_profile_enable(p->buffers, true);
    const dra_status st = dra_run(p->buffers, err);
    const size_t     n = dra_profile_read(p->buffers, rows, MOST_ROWS);
    if (st == DRA_OK) bench_write_profile(name, rows, n < MOST_ROWS ? n : MOST_ROWS);
    return st;
}

dra_status bench_measure(const bench_session *s, const bench_case *c, bench_row *row,
                         dra_error *err)
{
    instance    p = {0};
    others      o = {0};
    bench_limit l = {0};
    *row = (bench_row){.c = c};
    if (!s->gpu) row->bar = c->bar;
    dra_status st = make_instance(&p, c->build, c->size, s->device, err);
    if (st == DRA_OK && c->without)
        st = make_instance(&o.without, c->without, c->size, s->device, err);
    if (st == DRA_OK && c->rival) st = make_instance(&o.rival, c->rival, c->size, s->device, err);
    if (st == DRA_OK) st = bench_limit_open(s, &p.w, &l, err);
    if (st == DRA_OK && !s->gpu) o.peer = bench_peer_create(&p.w, dra_device_threads(s->device));
    if (st == DRA_OK) st = time_case(s, &p, &o, &l, row, err);
    if (st == DRA_OK) describe_case(&p, &l, row);
    if (st == DRA_OK && s->profile) st = show_profile(&p, c->name, err);
    bench_peer_destroy(o.peer);
    bench_limit_close(&l);
    release_instance(&p);
    release_instance(&o.without);
    release_instance(&o.rival);
    return st;
}
