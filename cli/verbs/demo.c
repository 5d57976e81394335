/* dra demo: two models learn made-up stories and show what their memories hold and cost. */
#include "demo/demo.h"
#include "report/page.h"
#include "verbs/train/progress.h"
#include "options/units.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct args {
    cli_source  from; /* for its threads */
    const char *out;
    int64_t     seed, steps, stream;
    bool        quick;
};

static const struct args defaults = {.out = "demo", .seed = 1, .steps = 1500, .stream = 100000};

static const cli_option options[] = {
    {"out", CLI_TEXT, offsetof(struct args, out), 0, 0,
     "folder for everything; an earlier demo in it is overwritten", "DIR", .brief = 'o'},
    {"seed", CLI_INT, offsetof(struct args, seed), 0, 1 << 28,
     "seed of stories and initial weights", .brief = 's'},
    {"steps", CLI_INT, offsetof(struct args, steps), 1, 1e6, "training steps for each model",
     .brief = 'n'},
    {"stream", CLI_INT, offsetof(struct args, stream), 1000, 1e7,
     "tokens of the long text; softmax takes time proportional to their square"},
    {"quick", CLI_FLAG, offsetof(struct args, quick), 0, 0,
     "a few steps and 2000 tokens, to see that it works; takes seconds"},
    CLI_DEVICE_OPTIONS(struct args),
};

static int prepare_args(const void *args, void *own)
{
    const struct args *a = args;
    struct args       *start = own;
    if (a->quick) start->steps = 6, start->stream = 2000;
    return CLI_OK;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static const char mark[] = "demo.json"; /* says that the folder is ours */

static bool is_there(const demo *d, const char *name)
{
    char path[DEMO_PATH];
    return demo_path(d, name, path, NULL) == DRA_OK && access(path, F_OK) == 0;
}

/* Whether the folder has anything in it. */
static bool is_used(const char *folder)
{
    struct dirent *e;
    bool           used = false;
    DIR           *dir = opendir(folder);
    while (dir && !used && (e = readdir(dir)))
        used = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (dir) closedir(dir);
    return used;
}

/* Removes the results of an earlier demo; its other files are overwritten later. */
static void remove_old(const demo *d)
{
    static const char *const names[] = {"report.html", "dra/probes.jsonl", "softmax/probes.jsonl"};
    char                     path[DEMO_PATH];
    for (size_t i = 0; i < COUNT(names); i++)
        if (demo_path(d, names[i], path, NULL) == DRA_OK) unlink(path);
}

static dra_status open_folder(const demo *d, dra_error *err)
{
    char path[DEMO_PATH], text[160];
    if (cli_mkdir(d->out, 0777) != 0 && errno != EEXIST)
        return cli_error(err, DRA_ERR_FILE, "%.200s: cannot create it: %s", d->out,
                         cli_reason(errno));
    if (is_used(d->out) && !is_there(d, mark))
        return cli_error(err, DRA_ERR_FILE,
                         "%.200s: expected no folder, an empty one or that of an earlier demo, "
                         "found other files",
                         d->out);
    remove_old(d);
    const int  n = snprintf(text, sizeof text,
                            "{\"seed\": %llu, \"steps\": %lld, \"stream\": %lld}\n",
                            (unsigned long long)d->seed, (long long)d->steps, (long long)d->stream);
    dra_status st = demo_path(d, mark, path, err);
    return st == DRA_OK ? dra_file_write(path, text, (size_t)n, err) : st;
}

/* ---- the report ------------------------------------------------------------------------------ */

static dra_status write_report(demo *d, const char *const *lead, dra_error *err)
{
    char        path[DEMO_PATH];
    const char *runs[DEMO_MODELS];
    dra_status  st = DRA_OK;
    for (int i = 0; i < DEMO_MODELS && st == DRA_OK; i++) {
        demo_model *m = &d->model[i];
        runs[i] = m->folder;
        if (fflush(m->lines) != 0) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
        if (st == DRA_OK && !cli_path(m->folder, "probes.jsonl", path, sizeof path))
            st = cli_error(err, DRA_ERR_FILE, "%.80s...: the path is too long", m->folder);
        if (st == DRA_OK) st = dra_file_write(path, m->line_text, m->line_bytes, err);
    }
    if (st == DRA_OK) st = demo_path(d, "report.html", path, err);
    if (st == DRA_OK) st = page_report(DEMO_MODELS, runs, path, "dra demo", lead, err);
    if (st == DRA_OK) cli_line(demo_out(d), "  Everything on one page: %s", path);
    return st;
}

/* Writes the end, one screen: the claims, commands to try, where the report is. */
static dra_status write_end(demo *d, dra_error *err)
{
    char        claims[DEMO_CLAIMS][DEMO_CLAIM];
    const char *lead[DEMO_CLAIMS + 1] = {NULL};
    demo_wrap   w = {.out = demo_out(d), .margin = "  "};
    demo_heading(d, "In short");
    demo_claims(d, claims);
    for (int i = 0; i < DEMO_CLAIMS; i++) {
        lead[i] = claims[i];
        demo_wrap_text(&w, claims[i], strlen(claims[i]));
        demo_wrap_end(&w);
        fputs("\n", demo_out(d));
    }
    demo_next(d);
    return write_report(d, lead, err);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static dra_status all_parts(demo *d, dra_error *err)
{
    static dra_status (*const parts[])(demo *, dra_error *) = {
        demo_text, demo_train, demo_samples, demo_facts, demo_stream, demo_exact};
    dra_status st = open_folder(d, err);
    for (size_t i = 0; i < COUNT(parts) && st == DRA_OK && !cli_progress_stopped(); i++)
        st = parts[i](d, err);
    if (st != DRA_OK || cli_progress_stopped()) return st;
    return write_end(d, err);
}

static void close_all(demo *d)
{
    for (int i = 0; i < DEMO_MODELS; i++) {
        demo_model *m = &d->model[i];
        if (m->lines) fclose(m->lines);
        free(m->line_text);
        dra_weights_destroy(m->weights);
        dra_model_destroy(m->model);
    }
    dra_corpus_close(d->corpus);
    dra_tokenizer_destroy(d->tokenizer);
    dra_device_destroy(d->device);
}

static int run_demo(const void *args)
{
    const struct args *a = args;
    const double       began = cli_now();
    char               took[24];
    dra_error          err = {0};
    demo               d = {.out = a->out,
                            .seed = (uint64_t)a->seed,
                            .steps = a->steps,
                            .stream = a->stream,
                            .stories = a->quick ? 1 : 220};
    cli_progress_signals();
    cli_status_open(&d.status, stdout);
    dra_status st = cli_device_open(&a->from, NULL, &d.device, &err);
    if (st == DRA_OK) st = all_parts(&d, &err);
    close_all(&d);
    if (st != DRA_OK) return cli_fail(&err);
    if (cli_progress_stopped()) {
        cli_status_leave(&d.status);
        fflush(stdout);
        fputs("dra: stopped; the demo is not complete\n", stderr);
        return CLI_INTERRUPTED;
    }
    printf("  The whole demo took %s.\n", cli_time_text(cli_now() - began, took));
    return CLI_OK;
}

static const cli_note files[] = {
    {"stories.txt, tokenizer.json", "the training text, and a vocabulary made for it"},
    {"dra/, softmax/", "two runs, as dra train writes them"},
    {"report.html", "everything on one page"},
    {0},
};

static const cli_note examples[] = {
    {"dra demo", "the whole demo, in two to three minutes"},
    {"dra demo --quick --out another", "a few seconds, to see that it works"},
    {0},
};

static const cli_note status[] = {
    {"0", "done"},
    {"1", "failed: one line on stderr says why"},
    {"2", "wrong usage"},
    {"130", "ended by Ctrl-C"},
    {0},
};

const cli_verb cmd_demo = {
    .name = "demo",
    .prepare = prepare_args,
    .summary = "train two small models on made-up stories and compare their memories",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_demo,
    .group = "Make",
    .about =
        "Two models of the same size learn stories that the program makes up: one with a "
        "memory of constant size, and a Transformer. They learn the same batches side by "
        "side, continue a story, are asked for facts told recently and long ago, and read "
        "100,000 tokens each, with a chart of the time per token and of the bytes of state. The "
        "conclusions that are printed are computed from the numbers.",
    .files = files,
    .examples = examples,
    .status = status,
    .also = "train report probe",
};
