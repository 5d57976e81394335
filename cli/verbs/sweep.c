/* dra sweep: training runs for all combinations of lists of settings. */
#include "report/page.h"
#include "io/memory.h"
#include "verbs/sweep/command.h"
#include "verbs/train/progress.h"
#include "options/value.h"

#include <stdlib.h>
#include <string.h>

extern const cli_verb cmd_train;

struct args {
    cli_source  from; /* for its threads */
    const char *out, *seeds;
    cli_list    set, rest; /* set: set: NAME=LIST of --set and --with; rest: words for dra train */
    bool        json;
};

static const struct args defaults = {0};

#define AT(f) offsetof(struct args, f)

static const cli_option options[] = {
    {"out", CLI_TEXT, AT(out), 0, 0, "folder of the sweep, in which every run has its own", "DIR",
     .flags = CLI_REQUIRED, .group = "Sweep", .brief = 'o'},
    {"set", CLI_LIST, AT(set), 0, 0,
     "values to try: of an option of dra train (lr=0.001,0.003) or of a key of the config "
     "(mixer.memory=gru,append)",
     "KEY=VALUE,...", .flags = CLI_A_KEY | CLI_BY_NAME},
    {"with", CLI_LIST, AT(set), 0, 0,
     "values paired one by one with those of the --set before it, instead of all combinations",
     "KEY=VALUE,...", .flags = CLI_A_KEY | CLI_BY_NAME},
    {"seeds", CLI_TEXT, AT(seeds), 0, 0, "seeds to train each of them with", "N,..."},
    CLI_THREADS_OPTION(struct args),
    {"json", CLI_FLAG, AT(json), 0, 0, "print one JSON object, as in sweep.json", .brief = 'j'},
};

/* ---- what was asked -------------------------------------------------------------------------- */

enum { KEYS = 4096 };

static int out_of_memory(void)
{
    fputs("dra sweep: out of memory\n", stderr);
    return CLI_FAILED;
}

static int add_axis(cli_sweep *s, const char *name, const char *list)
{
    char quoted[80];
    if (cli_sweep_add(s, name, !cli_sweep_option(name), list)) return CLI_OK;
    if (cli_memory_lacked()) return out_of_memory();
    return cli_misused("sweep", "%s: expected values between commas, found %s", name,
                       cli_quote(list, quoted, sizeof quoted));
}

/* The option of dra train that a key misspells; NULL: none, or a key of the model is as near. */
static const char *misspelt_option(const char *key)
{
    dra_guess      option = {.typed = key}, other = {.typed = key};
    dra_config_key of_model;
    if (strchr(key, '.') || cli_sweep_option(key)) return NULL;
    for (size_t i = 0; i < cmd_train.n_options; i++)
        dra_guess_try(&option, cmd_train.options[i].name);
    for (size_t i = 0; dra_config_key_at(i, &of_model); i++) dra_guess_try(&other, of_model.name);
    return option.best && (!other.best || option.wrong < other.wrong) ? option.best : NULL;
}

/* Refuses keys that the sweep sets itself, and those of neither a run nor a model. */
static int check_key(const cli_sweep *s, const char *key)
{
    static const char *const own[] = {"out", "set", "resume", "force", "threads", "json"};
    for (size_t i = 0; i < COUNT(own); i++)
        if (strcmp(own[i], key) == 0)
            return cli_misused("sweep", "--set: %s is not a setting of a run", key);
    const char *meant = misspelt_option(key);
    if (meant)
        return cli_misused("sweep", "--set: no such setting: '%s'; did you mean %s?", key, meant);
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->axis[i].name, key) == 0)
            return cli_misused("sweep", "--set: %s: given twice, expected once", key);
    return CLI_OK;
}

static int couple_settings(cli_sweep *s)
{
    if (s->n < 2) return cli_misused("sweep", "--with: expected a --set before it, found none");
    if (cli_sweep_couple(s)) return CLI_OK;
    const cli_axis *last = &s->axis[s->n - 1], *with = &s->axis[last->with];
    return cli_misused("sweep", "--with: %s: expected %lld values, one for each of %s, found %lld",
                       last->name, (long long)with->count, with->name, (long long)last->count);
}

/* Keys are stored in `keys`, one after the other. */
static int add_axes(const struct args *a, cli_sweep *s, char *keys, size_t room)
{
    char quoted[80];
    for (size_t i = 0; i + 1 < a->set.count; i += 2) {
        const char  *option = a->set.text[i], *setting = a->set.text[i + 1];
        const size_t n = strcspn(setting, "=");
        if (n == 0 || !setting[n] || n >= room)
            return cli_misused("sweep", "--%s: expected KEY=VALUE,..., found %s", option,
                               cli_quote(setting, quoted, sizeof quoted));
        memcpy(keys, setting, n);
        keys[n] = '\0';
        int status = check_key(s, keys);
        if (status == CLI_OK) status = add_axis(s, keys, setting + n + 1);
        if (status == CLI_OK && strcmp(option, "with") == 0) status = couple_settings(s);
        if (status != CLI_OK) return status;
        keys += n + 1;
        room -= n + 1;
    }
    if (!a->seeds) return CLI_OK;
    return check_key(s, "seed") == CLI_OK ? add_axis(s, "seed", a->seeds) : CLI_USAGE;
}

/* A sweep resumes runs and never replaces them. */
static int check_words(const cli_list *words)
{
    for (size_t i = 0; i < words->count; i++)
        if (strncmp(words->text[i], "--resume", 8) == 0 || strcmp(words->text[i], "--force") == 0)
            return cli_misused("sweep", "%s: a sweep resumes what is there by itself",
                               words->text[i]);
    return CLI_OK;
}

static int check_lists(const struct args *a)
{
    if (a->set.count || a->seeds) return CLI_OK;
    return cli_misused("sweep", "--set KEY=VALUE,... or --seeds N,... is required, as in: --set "
                                "lr=0.001,0.003; a single run is dra train");
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Other runs go on after one that fails. */
static int one_run(const struct args *a, const cli_sweep_results *all, int64_t i)
{
    const cli_command_words words = {&a->rest, a->from.threads};
    cli_sweep_run          *r = &all->runs[i];
    cli_command             c;
    int                     status = CLI_OK;
    r->failed = !cli_command_make(&words, all->sweep, i, r->folder, &c);
    if (r->failed) return out_of_memory();
    const bool done = cli_sweep_is_done(a->out, r, &c);
    cli_line(stderr, "sweep    %lld of %lld: %s%s", (long long)i + 1, (long long)all->n, r->name,
             done ? ", done before" : "");
    if (!done) {
        status = cli_command_run(&c);
        r->failed = status != CLI_OK;
        if (!r->failed && !cli_progress_stopped()) status = cli_sweep_done(a->out, r, &c);
    }
    cli_command_free(&c);
    cli_sweep_run_read(r);
    return status;
}

/* Checks all runs before the first one starts. */
static int check_runs(const struct args *a, const cli_sweep_results *all)
{
    const cli_command_words words = {&a->rest, a->from.threads};
    int                     status = CLI_OK;
    for (int64_t i = 0; i < all->n && status == CLI_OK; i++) {
        cli_sweep_run *r = &all->runs[i];
        cli_command    c;
        dra_error      err = {0};
        cli_sweep_name(all->sweep, i, r->name);
        for (int64_t k = 0; k < i; k++)
            if (strcmp(all->runs[k].name, r->name) == 0)
                return cli_misused("sweep", "--set: two runs would be called %.200s", r->name);
        if (strlen(r->name) > CLI_SWEEP_NAME - 2 ||
            !cli_path(a->out, r->name, r->folder, sizeof r->folder))
            return cli_misused("sweep", "--set: the name of a run is too long: %.60s...", r->name);
        if (!cli_command_make(&words, all->sweep, i, r->folder, &c)) return out_of_memory();
        status = cli_command_check(&c);
        if (status == CLI_OK && cli_command_model(&c, &err) != DRA_OK) status = cli_fail(&err);
        cli_command_free(&c);
    }
    return status;
}

static dra_status write_results(const struct args *a, const cli_sweep_results *all, dra_error *err)
{
    char         path[CLI_SWEEP_PATH], title[300];
    size_t       n = 0;
    const char **folders = calloc((size_t)all->n + 1, sizeof *folders);
    if (!folders || !cli_path(a->out, "sweep.json", path, sizeof path)) {
        free(folders);
        return cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", a->out);
    }
    dra_status st = cli_sweep_json(all, path, err);
    for (int64_t i = 0; i < all->n; i++)
        if (dra_trainer_saved(all->runs[i].folder) >= 0) folders[n++] = all->runs[i].folder;
    snprintf(title, sizeof title, "sweep %.200s", a->out);
    if (st == DRA_OK && n && cli_path(a->out, "report.html", path, sizeof path))
        st = page_report(n, folders, path, title, NULL, err);
    free(folders);
    return st;
}

static int all_runs(const struct args *a, const cli_sweep_results *all)
{
    dra_error err = {0};
    char      path[CLI_SWEEP_PATH];
    int       status = check_runs(a, all), failed = CLI_OK;
    if (status != CLI_OK) return status;
    if (!cli_path(a->out, "done.jsonl", path, sizeof path))
        return cli_misused("sweep", "--out: too long: %.60s...", a->out);
    if (cli_make_folders(path, 0777, &err) != DRA_OK) return cli_fail(&err);
    if (all->n == 1)
        cli_line(stderr, "sweep    nothing to compare: --set and --seeds name one run");
    for (int64_t i = 0; i < all->n && !cli_progress_stopped(); i++)
        if (one_run(a, all, i) != CLI_OK) failed = CLI_FAILED;
    if (cli_progress_stopped()) {
        cli_line(stderr, "the sweep is not done; the same command continues it");
        return failed;
    }
    if (!a->json)
        cli_sweep_table(all, stdout);
    else if (!cli_sweep_print_json(all, stdout))
        return out_of_memory();
    if (write_results(a, all, &err) != DRA_OK) return cli_fail(&err);
    cli_line(stderr, "done: sweep.json and report.html are in %s", a->out);
    return failed;
}

static int run_sweep(const void *args)
{
    const struct args *a = args;
    cli_sweep          s = {0};
    char               keys[KEYS];
    int                status = check_words(&a->rest);
    if (status == CLI_OK) status = check_lists(a);
    if (status == CLI_OK) status = add_axes(a, &s, keys, sizeof keys);
    if (status == CLI_OK) {
        cli_sweep_results all = {&s, a->seeds ? s.n - 1 : -1, cli_sweep_runs(&s), NULL};
        all.runs = calloc((size_t)all.n + 1, sizeof *all.runs);
        status = all.runs ? all_runs(a, &all) : out_of_memory();
        free(all.runs);
    }
    cli_sweep_free(&s);
    return status;
}

static const cli_note files[] = {
    {"DIR/KEY=VALUE_.../", "a run for each combination, named by what differs between them"},
    {"DIR/sweep.json", "settings and losses of all runs, and the table"},
    {"DIR/report.html", "the page of dra report about all runs"},
    {"DIR/done.jsonl", "which runs are done, and by what command"},
    {0},
};

static const cli_note examples[] = {
    {"dra sweep --preset dra-gru-tiny --data book.txt --split 0.1 --steps 200 --set "
     "lr=0.001,0.003 --seeds 1,2 --out rates",
     "two learning rates with two seeds each"},
    {"dra sweep --preset dra-gru-tiny --data book.txt --split 0.1 --steps 200 --set "
     "mixer.memory=gru,append --set optimizer=adamw,muon --out memories",
     "every memory with every optimizer"},
    {0},
};

static const cli_note status[] = {
    {"0", "done, or stopped by a signal and saved"},
    {"1", "a run failed, or something could not be written; the other runs are done all the same"},
    {"2", "wrong usage: nothing was trained"},
    {0},
};

const cli_verb cmd_sweep = {
    .name = "sweep",
    .summary = "train a model with several settings and compare",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_sweep,
    .over = &cmd_train,
    .rest = AT(rest),
    .about =
        "Trains one run for each combination of the values given by --set, with each of --seeds, "
        "and ends with a table sorted by the lowest evaluation loss: its mean over the seeds, its "
        "spread (the standard deviation) and the best run. Where nothing is evaluated, the last "
        "training loss counts instead.\n"
        "All options of dra train are taken as well and are the same for all runs; 'dra train "
        "--help' lists them. A key of --set that is the name of such an option is tried as that "
        "option (lr, optimizer, batch, preset, ...), any other as a key of the model's config. "
        "Values are separated by commas; commas in brackets or quotes are part of one value. "
        "--set a=1,2 --with b=3,4 tries a 1 with b 3, and a 2 with b 4. If a preset's memory is "
        "replaced (mixer.memory=delta,append), settings that the new memory does not have are "
        "dropped, and a line names them.\n"
        "The same command continues a sweep that was stopped or killed: runs that are done are "
        "skipped, the one that was interrupted is resumed bit for bit. More values, seeds or "
        "steps add to what is there. Settings are checked before the first run. A run that fails "
        "is marked in the table, and the others go on.",
    .files = files,
    .examples = examples,
    .status = status,
    .also = "train report probe",
};
