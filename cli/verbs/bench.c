/* dra bench: the hot kernels and whole steps, compared with the limits of the machine. */
#include "bench/bench.h"
#include "io/model.h"
#include "options/options.h"
#include "options/term.h"
#include "options/value.h"

#include <stdlib.h>
#include <string.h>

struct args {
    cli_source from; /* for its device */
    cli_list   names;
    bool       json, list, all, profile;
    int64_t    repeats;
};

static const struct args defaults = {.repeats = 9};

static const cli_option options[] = {
    {"name", CLI_LIST, offsetof(struct args, names), 0, 0,
     "cases or groups of cases (see --list); none: all except the slow ones", "NAME",
     .flags = CLI_POSITIONAL, .group = "Case"},
    {"all", CLI_FLAG, offsetof(struct args, all), 0, 0, "the slow cases too"},
    {"list", CLI_FLAG, offsetof(struct args, list), 0, 0, "list the cases and run none"},
    {"repeats", CLI_INT, offsetof(struct args, repeats), 1, 1000,
     "timings per case; the median "
     "counts",
     .group = "Timing"},
    {"profile", CLI_FLAG, offsetof(struct args, profile), 0, 0,
     "split the time of one run of each case by op, on stderr"},
    CLI_DEVICE_OPTIONS(struct args),
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object", .brief = 'j'},
};

static bool is_asked(const struct args *a, const bench_case *c)
{
    if (a->names.count == 0) return strcmp(c->group, BENCH_GPU) != 0 && (a->all || !c->slow);
    for (size_t i = 0; i < a->names.count; i++) {
        if (strcmp(a->names.text[i], c->name) == 0) return true;
        if (strcmp(a->names.text[i], c->group) == 0) return a->all || !c->slow;
    }
    return false;
}

/* `dra bench scaling [NAME...]` runs cases, else those of its group, on several numbers of
 * threads. */
static bool asks_scaling(const struct args *a)
{
    return a->names.count > 0 && strcmp(a->names.text[0], BENCH_SCALING) == 0;
}

static int run_scaling(const struct args *a)
{
    const bench_session how = {.repeats = (int)a->repeats};
    const struct args   others = {.names = {a->names.count - 1, a->names.text + 1}, .all = a->all};
    const bench_case  **cases = calloc(bench_case_count, sizeof *cases);
    size_t              n = 0;
    dra_error           err = {0};
    for (size_t i = 0; i < bench_case_count && cases; i++) {
        const bench_case *c = &bench_cases[i];
        const bool        own = others.names.count ? is_asked(&others, c)
                                                   : strcmp(c->group, BENCH_SCALING) == 0;
        if (c->build && own) cases[n++] = c;
    }
    const dra_status st = cases ? bench_scaling(&how, cases, n, a->from.threads, a->json, &err)
                                : cli_error(&err, DRA_ERR_MEMORY, "out of memory");
    free(cases);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < bench_case_count; i++)
        if (strcmp(name, bench_cases[i].name) == 0 || strcmp(name, bench_cases[i].group) == 0)
            return true;
    return false;
}

static int fail_unknown(const char *name)
{
    char      quoted[80];
    dra_guess guess = {.typed = name};
    for (size_t i = 0; i < bench_case_count; i++) {
        dra_guess_try(&guess, bench_cases[i].name);
        dra_guess_try(&guess, bench_cases[i].group);
    }
    cli_quote(name, quoted, sizeof quoted);
    if (guess.best)
        cli_line(stderr, "dra bench: no such case: %s; did you mean %s?", quoted, guess.best);
    else
        cli_line(stderr, "dra bench: no such case: %s; 'dra bench --list' lists them", quoted);
    return CLI_USAGE;
}

/* Shows on stderr what is being measured; stdout has results only. */
static void show_progress(const char *name, size_t done, size_t all)
{
    cli_line(stderr, "bench  %s (%zu of %zu)", name, done, all);
}

static size_t count_asked(const struct args *a)
{
    size_t n = 0;
    for (size_t i = 0; i < bench_case_count; i++)
        n += bench_cases[i].build && is_asked(a, &bench_cases[i]);
    return n;
}

/* Leaves out cases that fail, for example for lack of memory. Returns how many failed. */
static size_t measure_cases(const struct args *a, const bench_session *s, bench_row *rows,
                            size_t *n)
{
    const size_t all = count_asked(a) + 1; /* with the limits */
    size_t       failed = 0;
    for (size_t i = 0; i < bench_case_count; i++) {
        const bench_case *c = &bench_cases[i];
        dra_error         err = {0};
        if (!c->build || !is_asked(a, c)) continue;
        show_progress(c->name, *n + failed + 2, all);
        if (bench_measure(s, c, &rows[*n], &err) == DRA_OK) {
            (*n)++;
            continue;
        }
        cli_line(stderr, "dra: %s: %s", c->name, err.text);
        failed++;
    }
    return failed;
}

static int measure_asked(const struct args *a, bench_session *s)
{
    bench_row *rows = calloc(bench_case_count, sizeof *rows);
    size_t     n = 0;
    dra_error  err = {0};
    show_progress("limits", 1, count_asked(a) + 1);
    const dra_status st = rows ? dra_limits_measure(s->device, s->repeats, &s->limits, &err)
                               : cli_error(&err, DRA_ERR_MEMORY, "out of memory");
    const size_t     failed = st == DRA_OK ? measure_cases(a, s, rows, &n) : 0;
    if (st == DRA_OK) (a->json ? bench_write_json : bench_write_table)(s, rows, n);
    free(rows);
    return st != DRA_OK ? cli_fail(&err) : failed ? CLI_FAILED : CLI_OK;
}

/* The first group asked for that has only slow cases; NULL: all have something to run. */
static const char *slow_group(const struct args *a)
{
    for (size_t i = 0; i < a->names.count && !a->all; i++) {
        const char *name = a->names.text[i];
        bool        runs = false;
        for (size_t k = 0; k < bench_case_count; k++) {
            const bench_case *c = &bench_cases[k];
            runs = runs || strcmp(name, c->name) == 0 || (strcmp(name, c->group) == 0 && !c->slow);
        }
        if (!runs) return name;
    }
    return NULL;
}

/* Runs the cases on the device that was asked for. */
static int run_cases(const struct args *a)
{
    bench_session s = {.repeats = (int)a->repeats, .profile = a->profile};
    dra_error     err = {0};
    if (cli_device_open(&a->from, NULL, &s.device, &err) != DRA_OK) return cli_fail(&err);
    s.gpu = bench_on_gpu(s.device);
    int status;
    if (!asks_scaling(a))
        status = measure_asked(a, &s);
    else if (s.gpu)
        status = cli_misused("bench",
                             "scaling varies the number of CPU threads, and '%s' is not a CPU; add "
                             "--device cpu",
                             dra_device_level(s.device));
    else
        status = run_scaling(a);
    dra_device_destroy(s.device);
    return status;
}

static int run_bench(const void *args)
{
    const struct args *a = args;
    for (size_t i = 0; i < a->names.count; i++)
        if (!is_known(a->names.text[i])) return fail_unknown(a->names.text[i]);
    if (a->list) {
        bench_write_list();
        return CLI_OK;
    }
    if (!asks_scaling(a) && slow_group(a))
        return cli_misused("bench", "all cases of %s are slow; name one of them, or add --all",
                           slow_group(a));
    return run_cases(a);
}

static const cli_note examples[] = {
    {"dra bench --list", "the cases, in groups"},
    {"dra bench executor-tiny softmax --repeats 3", "two of them, quickly"},
    {"dra bench executor-tiny --threads 1 --json", "as JSON"},
    {"dra bench scaling softmax --threads 2 --repeats 3",
     "on 1 and 2 threads: the speed-up, and the efficiency of each thread"},
    {"dra bench limits --device cpu", "what a device reaches; with --device cuda that of a GPU"},
    {0},
};

const cli_verb cmd_bench = {
    .name = "bench",
    .summary = "time kernels and whole steps against the limits of the machine",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_bench,
    .group = "Look",
    .about =
        "Times kernels, mixers and whole training steps and compares each with the best the "
        "machine can do, measured in the same run: its arithmetic, its memory, or another "
        "library, if there is one. The bar of a case says what it should reach.\n"
        "With 'scaling' as the first name, the cases named after it, else those of that group, "
        "are timed on 1, 2, 4, ... threads, up to --threads.\n"
        "On a GPU (--device cuda) limits are measured once, by large products and passes over its "
        "memory; there are no bars, and the cases of the group 'gpu' have sizes that fill one.\n"
        "Progress goes to stderr, the table to stdout. Stop other programs first: the limits are "
        "only right when each thread has a core of its own.",
    .examples = examples,
    .also = "ops info",
};
