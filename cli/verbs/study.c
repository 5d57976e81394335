/* dra study: all runs of a study, its tables and its page. */
#include "verbs/study/process.h"
#include "options/status.h"
#include "options/units.h"
#include "verbs/train/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct args {
    cli_source  from; /* for its device and threads */
    const char *file, *scale, *out, *block, *corpus;
    double      minutes, speed;
    int64_t     jobs;
    bool        plan, report, retry, json;
};

static const struct args defaults = {.scale = "full", .corpus = "build/corpus", .jobs = 1};

#define AT(f) offsetof(struct args, f)

static const cli_option options[] = {
    {"file", CLI_TEXT, AT(file), 0, 0, "the study, as JSON", "FILE",
     .flags = CLI_POSITIONAL | CLI_REQUIRED, .group = "Study"},
    {"scale", CLI_TEXT, AT(scale), 0, 0, "a scale of the file, such as small", "NAME"},
    {"out", CLI_TEXT, AT(out), 0, 0, "folder of lines, models, runs and the page", "DIR",
     .unset = "the study's name and the scale", .brief = 'o'},
    {"corpus", CLI_TEXT, AT(corpus), 0, 0, "folder of the texts that make corpus writes", "DIR"},
    {"plan", CLI_FLAG, AT(plan), 0, 0, "print runs, parameters and estimated minutes; run nothing",
     .group = "What to do"},
    {"report", CLI_FLAG, AT(report), 0, 0, "write table and page of what is there; run nothing"},
    {"block", CLI_TEXT, AT(block), 0, 0, "only this block", "NAME"},
    {"minutes", CLI_REAL, AT(minutes), 0, 1e6, "stop after so many minutes", .unset = "when done"},
    {"retry", CLI_FLAG, AT(retry), 0, 0, "make runs that failed again"},
    {"jobs", CLI_INT, AT(jobs), 1, 64, "runs at the same time, which share the device"},
    {"speed", CLI_REAL, AT(speed), 0, 1e12,
     "--plan: tokens per second of training, of the model that all others are like",
     .unset = "measured by a few steps"},
    CLI_DEVICE_OPTIONS(struct args),
    {"json", CLI_FLAG, AT(json), 0, 0, "print one JSON object", .brief = 'j'},
};

typedef struct work {
    const struct args *a;
    cli_study          study;
    cli_study_lines    lines;
    cli_study_settings settings;
    char               folder[CLI_STUDY_PATH];
    cli_study_process *jobs; /* a->jobs of them */
    double             began;
    int64_t            done, failed; /* in this call */
    cli_status         status;
} work;

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_asked(const work *w, const cli_study_block *b)
{
    return !w->a->block || strcmp(w->a->block, b->name) == 0;
}

static int check_block(const work *w)
{
    dra_guess guess = {.typed = w->a->block ? w->a->block : ""};
    for (size_t i = 0; i < w->study.n_blocks; i++) {
        if (is_asked(w, &w->study.blocks[i])) return CLI_OK;
        dra_guess_try(&guess, w->study.blocks[i].name);
    }
    return cli_misused("study", "--block: no such block in scale %.60s: '%.60s'%s%s%s",
                       w->study.scale_name, w->a->block, guess.best ? "; did you mean " : "",
                       guess.best ? guess.best : "", guess.best ? "?" : "");
}

/* The words of every kind of run, before the first one starts. */
static int check_runs(const work *w)
{
    int status = CLI_OK;
    for (size_t i = 0; i < w->study.n_blocks && status == CLI_OK; i++)
        for (int64_t k = 0; k < cli_sweep_runs(&w->study.blocks[i].over) && status == CLI_OK; k++) {
            cli_study_run r;
            if (!cli_study_run_at(&w->study, i, k, &r))
                return cli_misused("study", "block %.60s: the name of a run is too long",
                                   w->study.blocks[i].name);
            status = cli_study_check(&r, &w->settings);
        }
    return status;
}

static dra_status write_models(const work *w, dra_error *err)
{
    char       path[CLI_STUDY_PATH], name[CLI_STUDY_NAME];
    dra_status st = DRA_OK;
    for (size_t i = 0; i < w->study.n_models && st == DRA_OK; i++) {
        const cli_study_model *m = &w->study.models[i];
        snprintf(name, sizeof name, "models/%s.json", m->name);
        if (!cli_path(w->folder, name, path, sizeof path))
            return cli_error(err, DRA_ERR_FILE, "--out: too long: %.60s...", w->folder);
        if (i == 0) st = cli_make_folders(path, 0777, err);
        if (st == DRA_OK) st = dra_file_write(path, m->text, strlen(m->text), err);
    }
    return st;
}

static void name_folder(work *w)
{
    if (w->a->out)
        snprintf(w->folder, sizeof w->folder, "%s", w->a->out);
    else
        snprintf(w->folder, sizeof w->folder, "%s-%s", w->study.name, w->study.scale_name);
}

/* Threads of a run, where nothing is said: jobs share the processors. */
static int64_t share_threads(const struct args *a)
{
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    if (a->from.threads || a->jobs == 1) return a->from.threads;
    return all / a->jobs > 1 ? all / a->jobs : 1;
}

static int open_work(work *w)
{
    dra_error err = {0};
    w->jobs = calloc((size_t)w->a->jobs, sizeof *w->jobs);
    dra_status st = w->jobs ? cli_study_read(w->a->file, w->a->scale, &w->study, &err)
                            : cli_error(&err, DRA_ERR_MEMORY, "out of memory");
    if (st == DRA_OK) st = cli_study_match(&w->study, &err);
    if (st != DRA_OK) return cli_fail(&err);
    const int status = check_block(w);
    if (status != CLI_OK) return status;
    name_folder(w);
    if (cli_study_lines_read(w->folder, &w->lines, &err) != DRA_OK) return cli_fail(&err);
    if (w->a->retry) cli_study_lines_forget(&w->lines);
    w->settings = (cli_study_settings){w->folder, w->a->corpus, w->a->from.device,
                                       share_threads(w->a)};
    return check_runs(w);
}

/* ---- which run is next ----------------------------------------------------------------------- */

static bool is_running(const work *w, const char *name)
{
    for (int64_t i = 0; i < w->a->jobs; i++)
        if (w->jobs[i].pid && strcmp(w->jobs[i].run.name, name) == 0) return true;
    return false;
}

static bool is_done(const work *w, const cli_study_run *r)
{
    cli_study_line line;
    return cli_study_line_of(&w->lines, r, &line);
}

static bool is_block_done(const work *w, size_t block)
{
    cli_study_run r;
    for (int64_t k = 0; k < cli_sweep_runs(&w->study.blocks[block].over); k++)
        if (cli_study_is_wanted(&w->study, block, &w->lines, k) &&
            !(cli_study_run_at(&w->study, block, k, &r) && is_done(w, &r)))
            return false;
    return true;
}

static bool can_begin(const work *w, const cli_study_block *b)
{
    for (size_t i = 0; b->needs && i < w->study.n_blocks; i++)
        if (strcmp(w->study.blocks[i].name, b->needs) == 0) return is_block_done(w, i);
    return true;
}

/* false: there is none now. */
static bool find_next(const work *w, size_t *block, cli_study_run *r)
{
    for (*block = 0; *block < w->study.n_blocks; ++*block) {
        const cli_study_block *b = &w->study.blocks[*block];
        if (!is_asked(w, b) || !can_begin(w, b)) continue;
        for (int64_t k = 0; k < cli_sweep_runs(&b->over); k++)
            if (cli_study_is_wanted(&w->study, *block, &w->lines, k) &&
                cli_study_run_at(&w->study, *block, k, r) && !is_done(w, r) &&
                !is_running(w, r->name))
                return true;
    }
    return false;
}

static int64_t count_runs(const work *w)
{
    int64_t n = 0;
    for (size_t i = 0; i < w->study.n_blocks; i++)
        n += is_asked(w, &w->study.blocks[i]) ? cli_study_count(&w->study.blocks[i]) : 0;
    return n;
}

static int64_t count_done(const work *w)
{
    int64_t       n = 0;
    cli_study_run r;
    for (size_t i = 0; i < w->study.n_blocks; i++)
        for (int64_t k = 0; k < cli_sweep_runs(&w->study.blocks[i].over); k++)
            n += is_asked(w, &w->study.blocks[i]) &&
                 cli_study_is_wanted(&w->study, i, &w->lines, k) &&
                 cli_study_run_at(&w->study, i, k, &r) && is_done(w, &r);
    return n;
}

/* ---- running --------------------------------------------------------------------------------- */

static int64_t count_running(const work *w)
{
    int64_t n = 0;
    for (int64_t i = 0; i < w->a->jobs; i++) n += w->jobs[i].pid != 0;
    return n;
}

static bool is_over(const work *w)
{
    return cli_progress_stopped() ||
           (w->a->minutes > 0 && cli_now() - w->began >= 60 * w->a->minutes);
}

static dra_status fill_jobs(work *w, dra_error *err)
{
    dra_status    st = DRA_OK;
    size_t        block;
    cli_study_run r;
    for (int64_t i = 0; i < w->a->jobs && st == DRA_OK; i++)
        if (!w->jobs[i].pid && find_next(w, &block, &r))
            st = cli_study_start(&r, block, &w->settings, &w->jobs[i], err);
    return st;
}

static void say_done(work *w, const cli_study_run *r, const cli_study_outcome *o)
{
    cli_study_line line;
    char           score[32] = "";
    if (cli_study_line_of(&w->lines, r, &line) && isfinite(line.score))
        snprintf(score, sizeof score, ", %s %.5g", r->block->score, line.score);
    cli_line(stderr, "study    %lld of %lld: %s: %s%.200s%s, %.1f s", (long long)count_done(w),
             (long long)count_runs(w), r->name, o->failed ? "failed: " : "done",
             o->failed ? o->failed : "", score, o->seconds);
}

/* Takes what has ended. */
static dra_status look_at_jobs(work *w, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int64_t i = 0; i < w->a->jobs && st == DRA_OK; i++) {
        cli_study_outcome o;
        char              why[DRA_ERROR_TEXT];
        bool              stopped;
        if (!w->jobs[i].pid || !cli_study_ended(&w->jobs[i], &w->settings, &stopped, &o, why))
            continue;
        if (!stopped) {
            st = cli_study_lines_add(&w->lines, &w->jobs[i].run, &o, err);
            w->done++;
            w->failed += o.failed != NULL;
            if (st == DRA_OK) say_done(w, &w->jobs[i].run, &o);
        } else if (!is_over(w)) {
            st = cli_error(err, DRA_ERR_VALUE, "%.200s: its process was ended by something else",
                           w->jobs[i].run.name);
        }
        json_decref(o.results);
    }
    return st;
}

static void wait_a_little(void) { nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); }

static void stop_jobs(work *w)
{
    for (int64_t i = 0; i < w->a->jobs; i++) cli_study_stop(&w->jobs[i]);
}

static dra_status make_runs(work *w, dra_error *err)
{
    bool       told = false;
    dra_status st = DRA_OK;
    for (;;) {
        if (!is_over(w) && st == DRA_OK) st = fill_jobs(w, err);
        if (!count_running(w)) return st;
        if ((is_over(w) || st != DRA_OK) && !told) {
            stop_jobs(w);
            told = true;
        }
        wait_a_little();
        dra_error        own = {0};
        const dra_status now = look_at_jobs(w, st == DRA_OK ? err : &own);
        if (st == DRA_OK) st = now;
    }
}

/* ---- the plan -------------------------------------------------------------------------------- */

static const cli_study_model *like_model(const cli_study *s)
{
    for (size_t i = 0; i < s->n_models; i++)
        if (s->like && strcmp(s->models[i].name, s->like) == 0) return &s->models[i];
    return &s->models[0];
}

/* A few steps of a probe with the model that all others are like: tokens per second, NaN. */
static dra_status measure_speed(work *w, double *speed, dra_error *err)
{
    cli_study       small = w->study;
    cli_study_model model = *like_model(&w->study);
    json_t         *commands = json_pack(
                "[s]", "probe copy --config $config --length 256 --steps 6 --batch 8 --tests 8 "
                               "--eval-every 0 --until 0");
    cli_study_block b = {
        .name = "speed", .model = -1, .seed = -1, .tune = -1, .commands = commands};
    cli_study_run     r = {.study = &small, .block = &b, .model = &model, .name = "speed"};
    cli_study_outcome o = {0};
    char              why[DRA_ERROR_TEXT];
    bool              stopped = false;
    dra_status        st = write_models(w, err);
    *speed = NAN;
    if (st == DRA_OK) st = cli_study_start(&r, 0, &w->settings, &w->jobs[0], err);
    while (st == DRA_OK && !cli_study_ended(&w->jobs[0], &w->settings, &stopped, &o, why))
        wait_a_little();
    if (st == DRA_OK && o.failed)
        st = cli_error(err, DRA_ERR_VALUE, "the speed cannot be measured: %.300s", o.failed);
    const json_t *x = json_object_get(json_array_get(o.results, 0), "tokens_per_second");
    if (st == DRA_OK && json_is_number(x)) *speed = json_number_value(x);
    json_decref(o.results);
    json_decref(commands);
    return st;
}

/* Seconds of a run: as its line has them, else tokens x parameters over the speed. */
static double estimate_run(const work *w, size_t block, int64_t number, double rate)
{
    cli_study_run  r;
    cli_study_line line;
    if (!cli_study_run_at(&w->study, block, number, &r)) return NAN;
    if (cli_study_line_of(&w->lines, &r, &line)) return line.seconds;
    const cli_study_model *m = r.model ? r.model : like_model(&w->study);
    return cli_study_product(&r, r.block->tokens) * (double)m->parameters / rate;
}

/* Minutes of a block: the mean of all its combinations for each run that will be made. */
static double estimate_block(const work *w, size_t block, double rate)
{
    const cli_study_block *b = &w->study.blocks[block];
    const int64_t          n = cli_sweep_runs(&b->over);
    double                 sum = 0;
    for (int64_t k = 0; k < n; k++) sum += estimate_run(w, block, k, rate);
    return sum / (double)n * (double)cli_study_count(b) / 60;
}

static void print_plan(const work *w, double speed, FILE *out)
{
    const double rate = speed * (double)like_model(&w->study)->parameters;
    double       all = 0;
    fprintf(out, "%-24s  %8s  %5s  %5s  %8s  %8s\n", "block", "priority", "runs", "done", "minutes",
            "budget");
    for (size_t i = 0; i < w->study.n_blocks; i++) {
        const cli_study_block *b = &w->study.blocks[i];
        int64_t                done = 0;
        cli_study_run          r;
        if (!is_asked(w, b)) continue;
        for (int64_t k = 0; k < cli_sweep_runs(&b->over); k++)
            done += cli_study_is_wanted(&w->study, i, &w->lines, k) &&
                    cli_study_run_at(&w->study, i, k, &r) && is_done(w, &r);
        const double minutes = estimate_block(w, i, rate) / (double)w->a->jobs;
        fprintf(out, "%-24s  %8lld  %5lld  %5lld  %8.2f  ", b->name, (long long)b->priority,
                (long long)cli_study_count(b), (long long)done, minutes);
        if (isfinite(b->minutes))
            fprintf(out, "%8.2f\n", b->minutes);
        else
            fprintf(out, "%8s\n", "-");
        if (isfinite(minutes)) all += minutes;
    }
    fprintf(out, "%-24s  %8s  %5lld  %5lld  %8.2f\n\n%-24s  %12s\n", "all", "",
            (long long)count_runs(w), (long long)count_done(w), all, "model", "parameters");
    for (size_t i = 0; i < w->study.n_models; i++)
        fprintf(out, "%-24s  %12lld\n", w->study.models[i].name,
                (long long)w->study.models[i].parameters);
    fprintf(out, "\nat %.4g tokens/s of %s, %lld at once\n", speed, like_model(&w->study)->name,
            (long long)w->a->jobs);
}

static void print_plan_json(const work *w, double speed, FILE *out)
{
    const double rate = speed * (double)like_model(&w->study)->parameters;
    char         room[CLI_NUMBER];
    fputs("{\"study\": ", out);
    cli_json_text(w->study.name, out);
    fprintf(out, ", \"tokens_per_second\": %s, \"blocks\": [", cli_json_number(speed, 6, room));
    const char *between = "";
    for (size_t i = 0; i < w->study.n_blocks; i++) {
        if (!is_asked(w, &w->study.blocks[i])) continue;
        fprintf(out, "%s{\"name\": ", between);
        between = ", ";
        cli_json_text(w->study.blocks[i].name, out);
        fprintf(out, ", \"runs\": %lld, \"minutes\": %s}",
                (long long)cli_study_count(&w->study.blocks[i]),
                cli_json_number(estimate_block(w, i, rate) / (double)w->a->jobs, 4, room));
    }
    fputs("], \"parameters\": {", out);
    for (size_t i = 0; i < w->study.n_models; i++) {
        fputs(i ? ", " : "", out);
        cli_json_text(w->study.models[i].name, out);
        fprintf(out, ": %lld", (long long)w->study.models[i].parameters);
    }
    fprintf(out, "}, \"runs\": %lld, \"done\": %lld}\n", (long long)count_runs(w),
            (long long)count_done(w));
}

static int show_plan(work *w)
{
    dra_error err = {0};
    double    speed = w->a->speed;
    if (!(speed > 0) && measure_speed(w, &speed, &err) != DRA_OK) return cli_fail(&err);
    (w->a->json ? print_plan_json : print_plan)(w, speed, stdout);
    return CLI_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int write_results(const work *w)
{
    char      path[CLI_STUDY_PATH];
    dra_error err = {0};
    (w->a->json ? cli_study_print_json : cli_study_table)(&w->study, &w->lines, stdout);
    if (!cli_path(w->folder, "report.html", path, sizeof path)) return CLI_FAILED;
    if (cli_make_folders(path, 0777, &err) != DRA_OK ||
        cli_study_page(&w->study, &w->lines, path, &err) != DRA_OK)
        return cli_fail(&err);
    return CLI_OK;
}

static int run_all(work *w)
{
    dra_error err = {0};
    if (w->a->plan) return show_plan(w);
    if (w->a->report) return write_results(w);
    cli_progress_signals();
    w->began = cli_now();
    dra_status st = write_models(w, &err);
    if (st == DRA_OK) st = make_runs(w, &err);
    if (st != DRA_OK) return cli_fail(&err);
    const int status = write_results(w);
    if (status != CLI_OK) return status;
    if (count_done(w) < count_runs(w))
        cli_line(stderr, "%lld of %lld runs are done; the same command continues the study",
                 (long long)count_done(w), (long long)count_runs(w));
    else
        cli_line(stderr, "done: lines.jsonl and report.html are in %s", w->folder);
    if (cli_progress_stopped()) return CLI_INTERRUPTED;
    return w->failed ? CLI_FAILED : CLI_OK;
}

static int run_study(const void *args)
{
    work w = {.a = args};
    int  status = CLI_OK;
    if (w.a->plan && w.a->report)
        status = cli_misused("study", "expected one of --plan and --report, found both");
    if (status == CLI_OK) status = open_work(&w);
    if (status == CLI_OK) status = run_all(&w);
    cli_study_lines_free(&w.lines);
    cli_study_free(&w.study);
    free(w.jobs);
    return status;
}

static const cli_note files[] = {
    {"DIR/lines.jsonl", "a line for each run that is done"},
    {"DIR/report.html", "tables and figures about them"},
    {"DIR/models/NAME.json", "the configs, matched in parameters"},
    {"DIR/runs/BLOCK/...", "what each run printed and keeps"},
    {0},
};

static const cli_note examples[] = {
    {"dra study studies/synthetic.json --scale small --plan --speed 20000",
     "what it would run, and how long"},
    {"dra study studies/synthetic.json --scale small --minutes 0.05 --out small",
     "go on for some time; the same command continues"},
    {"dra study studies/synthetic.json --scale small --report --out small",
     "table and page of what is there"},
    {0},
};

static const cli_note status[] = {
    {"0", "done, or the time was over"},
    {"1", "a run failed, which its line says; the other runs are done all the same"},
    {"2", "wrong usage: nothing was run"},
    {0},
};

const cli_verb cmd_study = {
    .name = "study",
    .summary = "make all runs of a study, with its tables and verdicts",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_study,
    .about =
        "A study is a file of JSON: models matched in parameters, blocks of runs with several "
        "learning rates and seeds, and claims with the rule that decides them; docs/study.md "
        "describes it. Each run executes commands such as dra probe or dra train in a process of "
        "its own and leaves one line.\n"
        "What is done is skipped. A study that was stopped or killed continues by the same "
        "command and loses at most the runs that were running. Blocks run by priority.\n"
        "The learning rate is tuned for each model: the first seed tries all of them, further "
        "seeds the best one. Tables give the mean over the seeds, their spread, a 95 % interval "
        "and the range of rates that are nearly as good.",
    .files = files,
    .examples = examples,
    .status = status,
    .also = "sweep probe train report",
};
