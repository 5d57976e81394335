/* dra bench scaling: cases on 1, 2, 4, ... threads, and the efficiency of each thread. */
#include "bench.h"
#include "io/model.h"
#include "options/options.h"
#include "options/term.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNTS = 12, NAME = 22 };

typedef struct scaling {
    int     counts[COUNTS]; /* of threads */
    int     n;
    double *seconds; /* (cases, n) */
    double  flops[COUNTS], read[COUNTS];
} scaling;

/* Powers of two, then `most`. */
static void choose_counts(scaling *s, int64_t threads)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const int  most = threads ? (int)threads : processors > 0 ? (int)processors : 1;
    for (int t = 1; t < most && s->n < COUNTS - 1; t *= 2) s->counts[s->n++] = t;
    s->counts[s->n++] = most;
}

static dra_status measure_threads(const bench_session *how, const bench_case *const *cases,
                                  size_t n, scaling *s, int k, dra_error *err)
{
    const dra_cpu_config config = {.threads = s->counts[k]};
    bench_session        session = *how;
    dra_status           st = dra_device_create_cpu(&config, &session.device, err);
    if (st != DRA_OK) return st;
    cli_line(stderr, "bench  %d threads: limits", s->counts[k]);
    st = dra_limits_measure(session.device, 3, &session.limits, err);
    s->flops[k] = session.limits.flops;
    s->read[k] = session.limits.read;
    for (size_t i = 0; i < n && st == DRA_OK; i++) {
        bench_row row = {0};
        cli_line(stderr, "bench  %d threads: %s (%zu of %zu)", s->counts[k], cases[i]->name, i + 1,
                 n);
        st = bench_measure(&session, cases[i], &row, err);
        s->seconds[i * (size_t)s->n + (size_t)k] = row.seconds;
    }
    dra_device_destroy(session.device);
    return st;
}

/* ---- table ----------------------------------------------------------------------------------- */

/* Writes the speed-up over one thread and the efficiency of each thread in percent. */
static void write_gain(double gain, int threads)
{
    char text[32];
    snprintf(text, sizeof text, "%.2f x %3.0f %%", gain, 100 * gain / threads);
    printf("%16s", text);
}

static void write_row(const char *name, const char *first, const scaling *s, const double *gain)
{
    printf("%-*s%12s", NAME, name, first);
    for (int k = 1; k < s->n; k++) write_gain(gain[k], s->counts[k]);
    putchar('\n');
}

static void write_table(const bench_case *const *cases, size_t n, const scaling *s)
{
    char   first[32], head[32];
    double gain[COUNTS];
    printf("%-*s%12s", NAME, "case", "1 thread");
    for (int k = 1; k < s->n; k++) {
        snprintf(head, sizeof head, "%d threads", s->counts[k]);
        printf("%16s", head);
    }
    putchar('\n');
    for (int k = 0; k < s->n; k++) gain[k] = s->flops[k] / s->flops[0];
    snprintf(first, sizeof first, "%.0f GFLOP/s", 1e-9 * s->flops[0]);
    write_row("peak", first, s, gain);
    for (int k = 0; k < s->n; k++) gain[k] = s->read[k] / s->read[0];
    snprintf(first, sizeof first, "%.1f GB/s", 1e-9 * s->read[0]);
    write_row("reading memory", first, s, gain);
    for (size_t i = 0; i < n; i++) {
        const double *seconds = s->seconds + i * (size_t)s->n;
        for (int k = 0; k < s->n; k++) gain[k] = seconds[0] / seconds[k];
        snprintf(first, sizeof first, "%.2f ms", 1e3 * seconds[0]);
        write_row(cases[i]->name, first, s, gain);
    }
}

static void write_numbers(const char *key, const double *x, int n)
{
    char room[CLI_NUMBER];
    printf("\"%s\": [", key);
    for (int k = 0; k < n; k++) printf("%s%s", k ? ", " : "", cli_json_number(x[k], 6, room));
    putchar(']');
}

static void write_json(const bench_case *const *cases, size_t n, const scaling *s)
{
    double counts[COUNTS];
    for (int k = 0; k < s->n; k++) counts[k] = s->counts[k];
    fputs("{", stdout);
    write_numbers("threads", counts, s->n);
    fputs(", ", stdout);
    write_numbers("flops", s->flops, s->n);
    fputs(", ", stdout);
    write_numbers("read", s->read, s->n);
    fputs(", \"cases\": [", stdout);
    for (size_t i = 0; i < n; i++) {
        printf("%s\n  {\"name\": \"%s\", ", i ? "," : "", cases[i]->name);
        write_numbers("seconds", s->seconds + i * (size_t)s->n, s->n);
        putchar('}');
    }
    fputs("]}\n", stdout);
}

dra_status bench_scaling(const bench_session *how, const bench_case *const *cases, size_t n,
                         int64_t threads, bool json, dra_error *err)
{
    scaling    s = {0};
    dra_status st = DRA_OK;
    choose_counts(&s, threads);
    s.seconds = calloc(n * (size_t)s.n + 1, sizeof *s.seconds);
    if (!s.seconds) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int k = 0; k < s.n && st == DRA_OK; k++) st = measure_threads(how, cases, n, &s, k, err);
    if (st == DRA_OK) (json ? write_json : write_table)(cases, n, &s);
    free(s.seconds);
    return st;
}
