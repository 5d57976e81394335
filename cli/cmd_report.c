/* dra report: a page about training runs. */
#include "page.h"

#include <stdlib.h>
#include <string.h>

struct args {
    cli_source  from; /* for its threads: every verb takes them */
    cli_list    runs;
    const char *out, *title;
};

static const struct args defaults = {0};

static const cli_option options[] = {
    {"run", CLI_LIST, offsetof(struct args, runs), 0, 0,
     "folders of runs; or files of JSON lines: logs, rows of probes", "RUN",
     .flags = CLI_POSITIONAL | CLI_REQUIRED},
    {"out", CLI_TEXT, offsetof(struct args, out), 0, 0, "else report.html in the first run",
     "FILE"},
    {"title", CLI_TEXT, offsetof(struct args, title), 0, 0, "of the page; else the runs' names"},
    CLI_THREADS_OPTION(struct args),
};

enum { PATH_TEXT = 4096 };

/* report.html in the folder, or beside the file. */
static bool default_path(const cli_record *first, char path[PATH_TEXT])
{
    const char  *slash = strrchr(first->path, '/');
    const size_t n = slash ? (size_t)(slash - first->path) + 1 : 0;
    if (first->folder) return cli_path(first->path, "report.html", path, PATH_TEXT);
    return snprintf(path, PATH_TEXT, "%.*sreport.html", (int)n, first->path) < PATH_TEXT;
}

static void default_title(const cli_record *records, size_t n, char title[256])
{
    enum { NAMED = 4 };
    size_t used = 0;
    if (n > NAMED) {
        snprintf(title, 256, "%zu runs", n);
        return;
    }
    for (size_t i = 0; i < n && used < 256; i++)
        used += (size_t)snprintf(title + used, 256 - used, "%s%s", i ? ", " : "", records[i].name);
}

/* Where two runs share a name, all are called by the ends of their paths. */
static void name_apart(cli_record *records, size_t n)
{
    bool twice = false;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            twice = twice || strcmp(records[i].name, records[k].name) == 0;
    for (size_t i = 0; twice && i < n; i++) {
        const size_t length = strlen(records[i].path), room = sizeof records[i].name - 1;
        snprintf(records[i].name, room + 1, "%s",
                 records[i].path + (length > room ? length - room : 0));
    }
}

static dra_status write_page(const struct args *a, const cli_record *records, const char *path,
                             dra_error *err)
{
    char       title[256], *text = NULL;
    size_t     bytes = 0;
    dra_status st = cli_error(err, DRA_ERR_MEMORY, "%.200s: no memory for the page", path);
    default_title(records, a->runs.count, title);
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return st;
    page_write(&(cli_page){out, a->title ? a->title : title, a->runs.count, records});
    const bool whole = !ferror(out);
    if (fclose(out) == 0 && whole) st = dra_file_write(path, text, bytes, err);
    free(text);
    return st;
}

static int run(const void *args)
{
    const struct args *a = args;
    const size_t       n = a->runs.count;
    char               path[PATH_TEXT];
    dra_error          err = {0};
    dra_status         st = DRA_OK;
    cli_record        *records = calloc(n, sizeof *records);
    if (!records) st = cli_error(&err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n && st == DRA_OK; i++)
        st = cli_record_read(a->runs.text[i], &records[i], &err);
    if (st == DRA_OK && !a->out && !default_path(&records[0], path))
        st = cli_error(&err, DRA_ERR_FILE, "%.80s...: the path is too long", records[0].path);
    if (st == DRA_OK) {
        name_apart(records, n);
        st = write_page(a, records, a->out ? a->out : path, &err);
    }
    if (st == DRA_OK) printf("%s\n", a->out ? a->out : path);
    for (size_t i = 0; i < n && records; i++) cli_record_free(&records[i]);
    free(records);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static const cli_note files[] = {
    {"RUN/report.html", "the page, if --out says nothing else"},
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
    .run = run,
    .group = "Look",
    .about = "Writes one page of HTML about runs: curves of everything in their logs, half-lives "
             "of memories, what a sample attends to, samples, and bars of probes. The page needs "
             "nothing else: no network, no files beside it. The same input gives the same "
             "bytes.\n"
             "A RUN is the folder of a run, also of one that is still going; or a file of JSON "
             "lines, a log or what 'dra probe --json' printed.",
    .files = files,
    .examples = examples,
    .also = "train probe",
};
