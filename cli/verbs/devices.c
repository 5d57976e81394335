/* dra devices: what can compute here. */
#include "bench/bench.h"
#include "io/model.h"
#include "options/units.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct args {
    cli_source from; /* for its threads: every verb takes them */
    bool       limits, json;
};

static const struct args defaults = {0};

static const cli_option options[] = {
    {"limits", CLI_FLAG, offsetof(struct args, limits), 0, 0,
     "measure the speed of the arithmetic and the memory of each"},
    CLI_THREADS_OPTION(struct args),
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object", .brief = 'j'},
};

enum { DEVICES = 65, REPEATS = 3 }; /* the CPU and GPUs, at most; timings of each limit */

typedef struct row {
    char            device[24];
    dra_device_info info;
    dra_limits      limits;
} row;

typedef struct table {
    row row[DEVICES];
    int n;
} table;

/* ---- what is there --------------------------------------------------------------------------- */

static size_t memory_bytes(int which)
{
    const long n = sysconf(which), size = sysconf(_SC_PAGESIZE);
    return n > 0 && size > 0 ? (size_t)n * (size_t)size : 0;
}

static dra_status add_cpu(const struct args *a, table *t, dra_error *err)
{
    dra_device          *d = NULL;
    row                 *r = &t->row[t->n];
    const dra_cpu_config config = {.threads = (int)a->from.threads};
    dra_status           st = dra_device_create_cpu(&config, &d, err);
    if (st != DRA_OK) return st;
    snprintf(r->device, sizeof r->device, "cpu");
    snprintf(r->info.name, sizeof r->info.name, "%d threads", dra_device_threads(d));
    snprintf(r->info.level, sizeof r->info.level, "%s", dra_device_level(d));
    r->info.processors = dra_device_threads(d);
    r->info.bytes = memory_bytes(_SC_PHYS_PAGES);
    r->info.bytes_free = memory_bytes(_SC_AVPHYS_PAGES);
    if (a->limits) st = dra_limits_measure(d, REPEATS, &r->limits, err);
    dra_device_destroy(d);
    t->n++;
    return st;
}

static dra_status measure_limits(row *r, dra_error *err)
{
    dra_device *d = NULL;
    dra_status  st = dra_device_create(r->device, NULL, &d, err);
    if (st == DRA_OK) st = dra_limits_measure(d, REPEATS, &r->limits, err);
    dra_device_destroy(d);
    return st;
}

/* Adds GPUs if there is a plugin for them; else *why says what is missing. */
static dra_status add_gpus(const struct args *a, table *t, dra_error *why, dra_error *err)
{
    int        n = 0;
    dra_status st = DRA_OK;
    if (dra_device_count("cuda", &n, why) != DRA_OK) return DRA_OK;
    for (int i = 0; i < n && t->n < DEVICES && st == DRA_OK; i++) {
        row *r = &t->row[t->n];
        if (dra_device_describe("cuda", i, &r->info, why) != DRA_OK) return DRA_OK;
        snprintf(r->device, sizeof r->device, "cuda:%d", i);
        if (a->limits) st = measure_limits(r, err);
        t->n++;
    }
    return st;
}

/* ---- table ----------------------------------------------------------------------------------- */

static void write_row(const row *r)
{
    char all[24], rest[24];
    printf("%-8s  %-10s  %5d  %10s  %10s  %s\n", r->device, r->info.level, r->info.processors,
           cli_bytes_text(r->info.bytes, all), cli_bytes_text(r->info.bytes_free, rest),
           r->info.name);
}

static void write_number(int width, double x) /* in 10^9 */
{
    if (x > 0)
        printf("%*.1f", width, 1e-9 * x);
    else
        printf("%*s", width, "-");
}

static void write_limits(const row *r)
{
    const dra_limits *l = &r->limits;
    const double      flops[] = {l->flops, l->tf32_flops, l->bf16_flops};
    const double      bytes[] = {l->read, l->write, l->copy, l->upload, l->download};
    printf("%-8s", r->device);
    for (size_t i = 0; i < COUNT(flops); i++) write_number(10, flops[i]);
    for (size_t i = 0; i < COUNT(bytes); i++) write_number(8, bytes[i]);
    putchar('\n');
}

/* What moves the bytes of ranks that train together; else why there is nothing. */
static bool find_mpi(char text[DRA_ERROR_TEXT])
{
    dra_error  err = {0};
    const bool found = dra_comm_describe("mpi", text, DRA_ERROR_TEXT, &err) == DRA_OK;
    if (!found) snprintf(text, DRA_ERROR_TEXT, "%s", err.text);
    return found;
}

static void write_mpi(void)
{
    char       text[DRA_ERROR_TEXT];
    const bool found = find_mpi(text);
    cli_line(stdout, found ? "ranks: %s" : "no ranks: %s", text);
}

static void write_table(const struct args *a, const table *t, const char *why)
{
    printf("%s%-8s  %-10s  %5s  %10s  %10s  %s%s\n", cli_bold(stdout), "device", "level", "units",
           "memory", "free", "what it is", cli_plain(stdout));
    for (int i = 0; i < t->n; i++) write_row(&t->row[i]);
    if (*why) cli_line(stdout, "no GPU: %s", why);
    write_mpi();
    if (!a->limits) return;
    printf("\n%s%-8s%10s%10s%10s%8s%8s%8s%8s%8s%s\n", cli_bold(stdout), "reaches", "f32", "tf32",
           "bf16", "read", "write", "copy", "up", "down", cli_plain(stdout));
    for (int i = 0; i < t->n; i++) write_limits(&t->row[i]);
    puts("GFLOP/s of f32, tf32, bf16; GB/s of its memory, and from and to the host's");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_json_row(const struct args *a, const row *r)
{
    printf("\n  {\"device\": \"%s\", \"level\": \"%s\", \"units\": %d, \"bytes\": %zu, "
           "\"bytes_free\": %zu, \"name\": ",
           r->device, r->info.level, r->info.processors, r->info.bytes, r->info.bytes_free);
    cli_json_text(r->info.name, stdout);
    if (a->limits) {
        fputs(", \"limits\": {", stdout);
        bench_write_json_limits(&r->limits);
        putchar('}');
    }
    putchar('}');
}

static void write_json_mpi(void)
{
    char       text[DRA_ERROR_TEXT];
    const bool found = find_mpi(text);
    printf(", \"%s\": ", found ? "ranks" : "no_ranks");
    cli_json_text(text, stdout);
}

static void write_json(const struct args *a, const table *t, const char *why)
{
    fputs("{\"devices\": [", stdout);
    for (int i = 0; i < t->n; i++) {
        if (i) putchar(',');
        write_json_row(a, &t->row[i]);
    }
    fputs("\n], \"no_gpu\": ", stdout);
    if (*why)
        cli_json_text(why, stdout);
    else
        fputs("null", stdout);
    write_json_mpi();
    puts("}");
}

static int run_devices(const void *args)
{
    const struct args *a = args;
    table              t = {0};
    dra_error          err = {0}, why = {0};
    dra_status         st = add_cpu(a, &t, &err);
    if (st == DRA_OK) st = add_gpus(a, &t, &why, &err);
    if (st != DRA_OK) return cli_fail(&err);
    (a->json ? write_json : write_table)(a, &t, why.text);
    return CLI_OK;
}

static const cli_note examples[] = {
    {"dra devices", "the CPU, and GPUs if their plugin is there"},
    {"dra devices --limits", "and their speed, which takes some seconds"},
    {"dra devices --json", "as JSON"},
    {0},
};

const cli_verb cmd_devices = {
    .name = "devices",
    .summary = "list what can compute here: the CPU, and GPUs",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_devices,
    .group = "Look",
    .about =
        "Verbs that compute take --device NAME, with a name from the first column; without it "
        "they use the device that the environment variable DRA_DEVICE names, or the CPU.\n"
        "GPUs need the plugin libdra-cuda.so: in a folder of DRA_PLUGIN_PATH, next to libdra, or "
        "where it is installed. If it is missing, or cannot be used, the last line says why. "
        "Units are threads of the CPU and multiprocessors of a GPU.\n"
        "The line on ranks names the MPI that 'dra train --ranks' uses, by the plugin "
        "libdra-mpi.so, which is looked for in the same places; docs/ranks.md says more.\n"
        "With --limits each is measured: multiply-adds in registers on the CPU, large products of "
        "matrices on a GPU, counted as two operations each; passes over arrays larger than any "
        "cache, of which a copy counts both directions; copies from and to the host. 'dra bench "
        "limits' measures one device, in the same way.",
    .examples = examples,
    .also = "bench train",
};
