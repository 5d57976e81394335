/* dra report: a page about training runs. */
#include "report/page.h"

#include <string.h>
#include <unistd.h>

struct args {
    cli_source  from; /* for its threads: every verb takes them */
    cli_list    runs;
    const char *out, *title;
    bool        json;
};

static const struct args defaults = {0};

static const cli_option options[] = {
    {"run", CLI_LIST, offsetof(struct args, runs), 0, 0,
     "folders of runs, or files of JSON lines: logs, probe results", "RUN",
     .flags = CLI_POSITIONAL | CLI_REQUIRED},
    {"out", CLI_TEXT, offsetof(struct args, out), 0, 0, "file to write", "FILE",
     .unset = "report.html in the run; of several, report-A-B.html next to the first", .brief = 'o',
     .flags = CLI_WRITES},
    {"title", CLI_TEXT, offsetof(struct args, title), 0, 0, "title of the page",
     .unset = "the runs' names"},
    CLI_THREADS_OPTION(struct args),
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object", .brief = 'j'},
};

enum { PATH_TEXT = 4096 };

/* The last part of a path, without slashes at its end. */
static size_t last_part(const char *path, const char **name)
{
    size_t end = strlen(path), begin;
    while (end > 1 && path[end - 1] == '/') end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';) begin--;
    *name = path + begin;
    return end - begin;
}

/* The path of a joint page: next to the first run, named after all of them, so that the page of
 * each run stays. */
static bool joint_path(const cli_list *runs, char path[PATH_TEXT])
{
    const char *name;
    last_part(runs->text[0], &name);
    int n = snprintf(path, PATH_TEXT, "%.*sreport", (int)(name - runs->text[0]), runs->text[0]);
    for (size_t i = 0; i < runs->count && n < PATH_TEXT; i++) {
        const int k = (int)last_part(runs->text[i], &name);
        n += snprintf(path + n, (size_t)(PATH_TEXT - n), "-%.*s", k, name);
    }
    if (n < PATH_TEXT) n += snprintf(path + n, (size_t)(PATH_TEXT - n), ".html");
    return n < PATH_TEXT;
}

/* The path of a run's page: report.html in the folder, or next to the file. */
static bool own_path(const char *first, char path[PATH_TEXT])
{
    struct stat  s;
    const char  *slash = strrchr(first, '/');
    const size_t n = slash ? (size_t)(slash - first) + 1 : 0;
    if (cli_stat(first, &s) == 0 && S_ISDIR(s.st_mode))
        return cli_path(first, "report.html", path, PATH_TEXT);
    return snprintf(path, PATH_TEXT, "%.*sreport.html", (int)n, first) < PATH_TEXT;
}

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_TEXT];
    return cli_path(folder, name, path, sizeof path) && cli_is_there(path);
}

/* A page that --out does not name goes into the folder of a run, not into any model's. What is
 * neither is refused when it is read. */
static dra_status check_is_run(const char *folder, dra_error *err)
{
    if (!has_file(folder, "config.json") || has_file(folder, "log.jsonl") ||
        has_file(folder, "probes.jsonl"))
        return DRA_OK;
    return cli_error(err, DRA_ERR_FILE,
                     "%.300s: expected a run, found no log.jsonl; --out FILE writes a page about a "
                     "model that was not trained here",
                     folder);
}

static void print_json(const struct args *a, const char *page)
{
    fputs("{\"page\": ", stdout);
    cli_json_text(page, stdout);
    fputs(", \"runs\": [", stdout);
    for (size_t i = 0; i < a->runs.count; i++) {
        if (i) fputs(", ", stdout);
        cli_json_text(a->runs.text[i], stdout);
    }
    puts("]}");
}

static int run_report(const void *args)
{
    const struct args *a = args;
    char               path[PATH_TEXT];
    const char        *page = a->out ? a->out : path;
    dra_error          err = {0};
    dra_status         st = DRA_OK;
    for (size_t i = 0; i < a->runs.count && !a->out && st == DRA_OK; i++)
        st = check_is_run(a->runs.text[i], &err);
    if (st == DRA_OK && !a->out &&
        !(a->runs.count > 1 ? joint_path(&a->runs, path) : own_path(a->runs.text[0], path)))
        st = cli_error(&err, DRA_ERR_FILE, "%.80s...: the path is too long; expected --out",
                       a->runs.text[0]);
    if (st == DRA_OK) st = page_report(a->runs.count, a->runs.text, page, a->title, NULL, &err);
    if (st != DRA_OK) return cli_fail(&err);
    if (a->json)
        print_json(a, page);
    else if (isatty(STDOUT_FILENO))
        cli_line(stdout, "%s", page);
    else
        printf("%s\n", page);
    return CLI_OK;
}

static const cli_note files[] = {
    {"RUN/report.html", "the page of one run, unless --out names another file"},
    {"report-A-B.html", "next to run A: the page of the runs A and B"},
    {0},
};

static const cli_note examples[] = {
    {"dra report run-a", "writes run-a/report.html"},
    {"dra report run-a run-b --out page.html --title \"Two memories\"", "two runs on one page"},
    {0},
};

const cli_verb cmd_report = {
    .name = "report",
    .summary = "write a page about training runs",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_report,
    .group = "Look",
    .about = "Writes one HTML page about runs: which ended best, curves of everything in their "
             "logs, bar charts of probes, half-lives of memories, what a sample attends to, "
             "samples, and all settings. The page is self-contained: no network, no other files. "
             "The same input gives the same bytes.\n"
             "A RUN is the folder of a run, even one still in progress, or a file of JSON lines: "
             "a log or the output of 'dra probe --json'.",
    .files = files,
    .examples = examples,
    .also = "train probe",
};
