/* dra devices: what can compute here. */
#include "model.h"
#include "units.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct args {
    cli_source from; /* for its threads: every verb takes them */
    bool       json;
};

static const struct args defaults = {0};

static const cli_option options[] = {
    CLI_THREADS_OPTION(struct args),
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object", .brief = 'j'},
};

typedef struct row {
    char            device[24];
    dra_device_info info;
} row;

static void write_row(const row *r)
{
    char all[24], rest[24];
    printf("%-8s  %-10s  %5d  %10s  %10s  %s\n", r->device, r->info.level, r->info.processors,
           cli_bytes_text(r->info.bytes, all), cli_bytes_text(r->info.bytes_free, rest),
           r->info.name);
}

static void write_json(const row *r)
{
    printf("\n  {\"device\": \"%s\", \"level\": \"%s\", \"units\": %d, \"bytes\": %zu, "
           "\"bytes_free\": %zu, \"name\": ",
           r->device, r->info.level, r->info.processors, r->info.bytes, r->info.bytes_free);
    cli_json_text(r->info.name, stdout);
    putchar('}');
}

static size_t pages(int which)
{
    const long n = sysconf(which), size = sysconf(_SC_PAGESIZE);
    return n > 0 && size > 0 ? (size_t)n * (size_t)size : 0;
}

static dra_status show_cpu(const struct args *a, void (*write)(const row *), dra_error *err)
{
    dra_device          *d = NULL;
    row                  r = {.device = "cpu"};
    const dra_cpu_config config = {.threads = (int)a->from.threads};
    const dra_status     st = dra_device_create_cpu(&config, &d, err);
    if (st != DRA_OK) return st;
    snprintf(r.info.name, sizeof r.info.name, "%d threads", dra_device_threads(d));
    snprintf(r.info.level, sizeof r.info.level, "%s", dra_device_level(d));
    r.info.processors = dra_device_threads(d);
    r.info.bytes = pages(_SC_PHYS_PAGES);
    r.info.bytes_free = pages(_SC_AVPHYS_PAGES);
    write(&r);
    dra_device_destroy(d);
    return DRA_OK;
}

/* GPUs, where their plugin is; else *why says what is missing. */
static void show_gpus(const struct args *a, void (*write)(const row *), dra_error *why)
{
    int n = 0;
    if (dra_device_count("cuda", &n, why) != DRA_OK) return;
    for (int i = 0; i < n; i++) {
        row r = {0};
        if (dra_device_describe("cuda", i, &r.info, why) != DRA_OK) return;
        snprintf(r.device, sizeof r.device, "cuda:%d", i);
        if (a->json) putchar(',');
        write(&r);
    }
}

static int run(const void *args)
{
    const struct args *a = args;
    dra_error          err = {0}, why = {0};
    if (a->json)
        fputs("{\"devices\": [", stdout);
    else
        printf("%s%-8s  %-10s  %5s  %10s  %10s  %s%s\n", cli_bold(stdout), "device", "level",
               "units", "memory", "free", "what it is", cli_plain(stdout));
    if (show_cpu(a, a->json ? write_json : write_row, &err) != DRA_OK) return cli_fail(&err);
    show_gpus(a, a->json ? write_json : write_row, &why);
    if (!a->json && why.text[0]) cli_line(stdout, "no GPU: %s", why.text);
    if (!a->json) return CLI_OK;
    fputs("\n], \"no_gpu\": ", stdout);
    if (why.text[0])
        cli_json_text(why.text, stdout);
    else
        fputs("null", stdout);
    puts("}");
    return CLI_OK;
}

static const cli_note examples[] = {
    {"dra devices", "the CPU, and GPUs if their plugin is there"},
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
    .run = run,
    .group = "Look",
    .about = "Verbs that compute take --device NAME, with a name from the first column; without "
             "it they take what the environment variable DRA_DEVICE says, or the CPU.\n"
             "GPUs need the plugin libdra-cuda.so: in a folder of DRA_PLUGIN_PATH, next to libdra, "
             "or where it is installed. If it is missing, or cannot be used, the last line says "
             "why. Units are threads of the CPU and multiprocessors of a GPU.",
    .examples = examples,
    .also = "bench train",
};
