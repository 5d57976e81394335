/* dra probe: models on small tasks with a right answer, alone or in sweeps. */
#include "io/model.h"
#include "io/memory.h"
#include "verbs/probe/show.h"
#include "verbs/probe/suite.h"
#include "verbs/train/optimizer.h"
#include "verbs/train/progress.h"
#include "verbs/train/read.h"
#include "options/value.h"

#include "dra/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct args {
    cli_source       from;
    cli_list         tasks;
    const char      *length, *vocab, *symbols, *pairs, *queries, *digits, *kinds, *depth;
    const char      *slots, *half_life, *only, *lr, *seeds, *test_length, *text, *out;
    cli_list         aux_loss, group;
    dra_train_config train;
    int64_t          tests;
    double           until, minutes;
    bool             suite, json;

    char   *text_read; /* what is in the file of --text */
    size_t  text_bytes;
    int     lengths; /* of --test-length */
    int64_t test_lengths[DRA_PROBE_TESTS];
};

static const struct args defaults = {
    .lr = "0.002", .train = {.steps = 2000, .batch = 32}, .tests = 256, .until = 0.99};

CLI_CHOICES(precisions, DRA_PRECISION_Q8, "full", "bf16", "tf32");

static const char *const task_names[] = {"copy",   "recall",  "addition", "parens",
                                         "needle", "mqar",    "update",   "select",
                                         "parity", "modular", "permute",  NULL};

#define AT(f) offsetof(struct args, f)
#define TRAIN(f) offsetof(struct args, train.f)
#define MANY "N,..."

static const cli_option options[] = {
    {"task", CLI_LIST, AT(tasks), 0, 0, "a task, see docs/probes.md", "TASK", .choices = task_names,
     .flags = CLI_POSITIONAL | CLI_REQUIRED, .group = "Task"},
    {"length", CLI_TEXT, AT(length), 0, 0, "tokens per row", MANY},
    {"vocab", CLI_TEXT, AT(vocab), 0, 0, "size of the vocabulary", MANY},
    {"symbols", CLI_TEXT, AT(symbols), 0, 0,
     "copy, select: symbols to copy; needle: tokens of the fact", MANY},
    {"pairs", CLI_TEXT, AT(pairs), 0, 0, "recall, mqar, update: pairs of key and value", MANY,
     .unset = "16"},
    {"queries", CLI_TEXT, AT(queries), 0, 0, "recall, update: keys that are asked for", MANY,
     .unset = "all"},
    {"digits", CLI_TEXT, AT(digits), 0, 0, "addition: digits of each number", MANY, .unset = "3"},
    {"kinds", CLI_TEXT, AT(kinds), 0, 0,
     "parens: kinds of brackets; modular: the modulus; permute: what is permuted, at most 6; "
     "update: how often a key is written",
     MANY, .unset = "2; modular, permute: 5"},
    {"depth", CLI_TEXT, AT(depth), 0, 0, "needle: position of the fact, 0 first, 1 last", "X,...",
     .unset = "anywhere"},
    {"text", CLI_TEXT, AT(text), 0, 0, "needle: a text to hide the fact in", "FILE",
     .unset = "filler"},
    {"model", CLI_TEXT, AT(from.model), 0, 0, "a folder with a model to train further", "DIR",
     .group = "Model", .brief = 'm'},
    CLI_SKIP_HASH_OPTION(struct args),
    {"preset", CLI_TEXT, AT(from.preset), 0, 0, "presets; 'dra presets' lists them", "NAME,...",
     .flags = CLI_A_PRESET, .brief = 'P'},
    {"config", CLI_TEXT, AT(from.config), 0, 0, "configs as JSON", "FILE,...", .brief = 'c'},
    {"suite", CLI_FLAG, AT(suite), 0, 0,
     "small models with each kind of memory: append, gru, moment, delta, slots-16, slots-32, "
     "slots-1"},
    {"only", CLI_TEXT, AT(only), 0, 0, "only these of the suite", "NAME,..."},
    {"set", CLI_LIST, AT(from.set), 0, 0, "change the config: mixer.memory=gru,ema", "KEY=VALUE",
     .flags = CLI_A_KEY},
    CLI_PLUGIN_OPTION(struct args),
    {"slots", CLI_TEXT, AT(slots), 0, 0, "the same as --set mixer.slots=N,...", MANY},
    {"half-life", CLI_TEXT, AT(half_life), 0, 0, "initial half-life of all decays, in tokens",
     "X,..."},
    {"steps", CLI_INT, TRAIN(steps), 1, 1e12, "optimizer steps", .group = "Training", .brief = 'n'},
    {"batch", CLI_INT, TRAIN(batch), 1, 1 << 20, "rows per step"},
    {"chunk", CLI_INT, TRAIN(chunk), 0, 1 << 20,
     "read rows in chunks of N tokens, with gradients through them", .unset = "whole rows",
     .flags = CLI_ZERO},
    {"recompute", CLI_FLAG, TRAIN(recompute), 0, 0,
     "recompute activations for the gradient instead of keeping them"},
    {"precision", CLI_CHOICE, TRAIN(precision), 0, 0, "precision of products",
     .choices = precisions},
    {"lr", CLI_TEXT, AT(lr), 0, 0, "learning rate", "X,..."},
    {"min-lr", CLI_REAL, TRAIN(min_lr), 0, 100, "learning rate at the last step",
     .unset = "lr / 10", .flags = CLI_ZERO},
    {"warmup", CLI_INT, TRAIN(warmup), 0, 1e12, "steps until lr is reached",
     .unset = "4 % of the steps", .flags = CLI_ZERO},
    CLI_SCHEDULE_OPTIONS(TRAIN),
    {"weight-decay", CLI_REAL, TRAIN(weight_decay), 0, 100, "weight decay of matrices",
     .unset = "0.01", .flags = CLI_ZERO},
    CLI_MOMENT_OPTIONS(TRAIN),
    {"group", CLI_LIST, AT(group), 0, 0,
     "learning rate, as a multiple of lr, and weight decay of a group of parameters",
     "NAME:lr=Nx,wd=X"},
    {"aux-loss", CLI_LIST, AT(aux_loss), 0, 0, "add a measure of the memories to the loss",
     "NAME=X"},
    CLI_BLEND_OPTIONS(TRAIN),
    {"clip", CLI_REAL, TRAIN(clip), 0, 1e9, "largest norm of all gradients; 0: no clipping",
     .unset = "1", .flags = CLI_ZERO},
    {"seed", CLI_INT, TRAIN(seed), 0, 1e15, "seed of initial weights and examples", .brief = 's'},
    {"seeds", CLI_TEXT, AT(seeds), 0, 0, "or several of them", MANY},
    {"tests", CLI_INT, AT(tests), 1, 1e9, "rows to score, rounded up to whole batches",
     .group = "Test"},
    {"eval-every", CLI_INT, TRAIN(eval_every), 0, 1e12, "steps between tests; 0: only at the end",
     .unset = "a tenth of the steps", .flags = CLI_ZERO},
    {"test-length", CLI_TEXT, AT(test_length), 0, 0,
     "test with rows of these lengths, too, once trained", MANY},
    {"minutes", CLI_REAL, AT(minutes), 0, 1e6, "end training after so many minutes of each run",
     .unset = "at the last step"},
    {"out", CLI_TEXT, AT(out), 0, 0, "keep the trained model of a single run in this folder", "DIR",
     .brief = 'o'},
    {"until", CLI_REAL, AT(until), 0, 1, "stop once this share of the answers is right; 0: never"},
    CLI_DEVICE_OPTIONS(struct args),
    {"json", CLI_FLAG, AT(json), 0, 0, "print a JSON object for each run", .brief = 'j'},
};

/* ---- what was asked -------------------------------------------------------------------------- */

enum { MODEL = 1 }; /* the axis of models; tasks are the first */

/* The field of dra_probe that an option sets; NULL: none. */
static int64_t *probe_option(dra_probe *p, const char *name)
{
    const struct {
        const char *name;
        int64_t    *at;
    } all[] = {{"length", &p->length}, {"vocab", &p->vocab},     {"symbols", &p->symbols},
               {"pairs", &p->pairs},   {"queries", &p->queries}, {"digits", &p->digits},
               {"kinds", &p->kinds}};
    for (size_t i = 0; i < COUNT(all); i++)
        if (strcmp(all[i].name, name) == 0) return all[i].at;
    return NULL;
}

static int add_axis(cli_sweep *s, const char *name, bool key, const char *list)
{
    char quoted[80];
    if (!list || cli_sweep_add(s, name, key, list)) return CLI_OK;
    if (cli_memory_lacked()) {
        fputs("dra probe: out of memory\n", stderr);
        return CLI_FAILED;
    }
    return cli_misused("probe", "%s%s: expected values between commas, found %s", key ? "" : "--",
                       name, cli_quote(list, quoted, sizeof quoted));
}

static int add_tasks(const struct args *a, cli_sweep *s)
{
    char   text[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < a->tasks.count && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? "," : "",
                                 a->tasks.text[i]);
    return add_axis(s, "task", false, text);
}

static int add_models(const struct args *a, cli_sweep *s)
{
    char      names[256];
    const int n = !!a->from.model + !!a->from.preset + !!a->from.config + a->suite;
    cli_suite_names(names, sizeof names);
    if (n != 1)
        return cli_misused("probe",
                           "expected one of --model, --preset, --config and --suite, found %s",
                           n ? "several" : "none");
    if (a->only && !a->suite) return cli_misused("probe", "--only needs --suite");
    return add_axis(s, "model", false,
                    a->from.model    ? a->from.model
                    : a->from.preset ? a->from.preset
                    : a->from.config ? a->from.config
                    : a->only        ? a->only
                                     : names);
}

/* The keys of --set are stored in `keys`, one after the other. */
static int add_settings(const cli_list *set, cli_sweep *s, char *keys, size_t size)
{
    char quoted[80];
    for (size_t i = 0; i < set->count; i++) {
        const char  *setting = set->text[i];
        const size_t n = strcspn(setting, "=");
        if (n == 0 || !setting[n] || n >= size)
            return cli_misused("probe", "--set: expected KEY=VALUE, found %s",
                               cli_quote(setting, quoted, sizeof quoted));
        memcpy(keys, setting, n);
        keys[n] = '\0';
        const int status = add_axis(s, keys, true, setting + n + 1);
        if (status != CLI_OK) return status;
        keys += n + 1;
        size -= n + 1;
    }
    return CLI_OK;
}

static int add_axes(const struct args *a, cli_sweep *s, char *keys, size_t size)
{
    const char *const own[][2] = {
        {"length", a->length}, {"vocab", a->vocab},     {"symbols", a->symbols},
        {"pairs", a->pairs},   {"queries", a->queries}, {"digits", a->digits},
        {"kinds", a->kinds},   {"depth", a->depth},     {"half-life", a->half_life}};
    int status = add_tasks(a, s);
    if (status == CLI_OK) status = add_models(a, s);
    for (size_t i = 0; i < COUNT(own) && status == CLI_OK; i++)
        status = add_axis(s, own[i][0], false, own[i][1]);
    if (status == CLI_OK) status = add_axis(s, "mixer.slots", true, a->slots);
    if (status == CLI_OK) status = add_settings(&a->from.set, s, keys, size);
    if (status == CLI_OK) status = add_axis(s, "lr", false, a->lr);
    if (status == CLI_OK && a->seeds && a->train.seed)
        return cli_misused("probe", "expected one of --seed and --seeds, found both");
    return status == CLI_OK ? add_axis(s, "seed", false, a->seeds) : status;
}

/* ---- one run --------------------------------------------------------------------------------- */

/* The learning rate and the seed of a run. */
static dra_status read_train(const cli_sweep *s, int64_t run, dra_train_config *train,
                             dra_error *err)
{
    char quoted[80];
    for (int i = MODEL + 1; i < s->n; i++) {
        const char *name = s->axis[i].name, *value = cli_sweep_value(s, i, run);
        if (s->axis[i].key) continue;
        if (strcmp(name, "lr") == 0 &&
            (!cli_read_real(value, &train->lr) || train->lr < 0 || train->lr > 100))
            return cli_error(err, DRA_ERR_VALUE, "--lr: expected a number from 0 to 100, found %s",
                             cli_quote(value, quoted, sizeof quoted));
        if (strcmp(name, "seed") == 0 &&
            (!cli_read_int(value, &train->seed) || train->seed < 0 || train->seed > (int64_t)1e15))
            return cli_error(err, DRA_ERR_VALUE,
                             "--seeds: expected whole numbers from 0 to 1e15, found %s",
                             cli_quote(value, quoted, sizeof quoted));
    }
    return DRA_OK;
}

static dra_status read_probe(const struct args *a, const dra_train_config *train,
                             const cli_sweep *s, int64_t run, dra_probe *p, dra_error *err)
{
    char quoted[80];
    *p = (dra_probe){.task = cli_sweep_value(s, 0, run),
                     .seed = (uint64_t)train->seed,
                     .text = a->text_read,
                     .bytes = (int64_t)a->text_bytes};
    if (strcmp(p->task, "needle") == 0) p->depth = -1;
    for (int i = MODEL + 1; i < s->n; i++) {
        const char *name = s->axis[i].name, *value = cli_sweep_value(s, i, run);
        int64_t    *at = s->axis[i].key ? NULL : probe_option(p, name);
        if (at && (!cli_read_int(value, at) || *at < 1))
            return cli_error(err, DRA_ERR_VALUE, "--%s: expected a number from 1 on, found %s",
                             name, cli_quote(value, quoted, sizeof quoted));
        if (strcmp(name, "depth") == 0 && !s->axis[i].key &&
            (!cli_read_real(value, &p->depth) || p->depth > 1))
            return cli_error(err, DRA_ERR_VALUE, "--depth: expected a number up to 1, found %s",
                             cli_quote(value, quoted, sizeof quoted));
    }
    return dra_probe_complete(p, err);
}

/* Sets the half-life of all units to 2^x tokens: the range from x to x. */
static dra_status set_half_life(dra_model_config *c, const char *value, dra_error *err)
{
    char   range[80], quoted[80];
    double tokens = 0;
    if (!cli_read_real(value, &tokens) || !(tokens > 0))
        return cli_error(err, DRA_ERR_VALUE, "--half-life: expected a number above 0, found %s",
                         cli_quote(value, quoted, sizeof quoted));
    snprintf(range, sizeof range, "[%.9g,%.9g]", log2(tokens), log2(tokens));
    return dra_model_config_set(c, "mixer.gamma.range", range, err);
}

/* The vocabulary is the probe's and there are positions for all tokens, unless a folder or --set
 * says otherwise. */
static dra_status read_config(const struct args *a, const cli_sweep *s, int64_t run,
                              const dra_probe *p, dra_model_config **c, dra_error *err)
{
    const char       *name = cli_sweep_value(s, MODEL, run);
    cli_source        from = {.model = a->from.model ? name : NULL,
                              .preset = a->from.preset ? name : NULL,
                              .config = a->from.config ? name : NULL,
                              .plugins = a->from.plugins};
    const dra_memory *own[DRA_MEMORIES_MOST + 1];
    dra_status        st = dra_memories_load(from.plugins.count, from.plugins.text, own, err);
    if (st != DRA_OK) return st;
    st = a->suite ? cli_suite_config(name, c, err) : cli_source_config(&from, c, err);
    if (st == DRA_OK && !a->from.model) {
        (*c)->vocab = p->vocab;
        if ((*c)->context < p->length) (*c)->context = p->length;
        for (int i = 0; i < a->lengths; i++)
            if ((*c)->context < a->test_lengths[i]) (*c)->context = a->test_lengths[i];
    }
    for (int i = MODEL + 1; i < s->n && st == DRA_OK; i++) {
        const char *value = cli_sweep_value(s, i, run);
        if (s->axis[i].key)
            st = dra_model_config_set_own(*c, own, s->axis[i].name, value, err);
        else if (strcmp(s->axis[i].name, "half-life") == 0)
            st = set_half_life(*c, value, err);
    }
    return st;
}

static dra_status open_run(const struct args *a, const cli_sweep *s, int64_t run, cli_probe_run *r,
                           dra_model **model, dra_error *err)
{
    dra_model_config *c = NULL;
    *r = (cli_probe_run){.train = a->train};
    *model = NULL;
    dra_status st = read_train(s, run, &r->train, err);
    if (st == DRA_OK) st = read_probe(a, &r->train, s, run, &r->probe, err);
    if (st == DRA_OK) st = read_config(a, s, run, &r->probe, &c, err);
    if (st == DRA_OK && c->visible == DRA_VISIBLE_BIDIRECTIONAL)
        st = cli_error(err, DRA_ERR_VALUE,
                       "probe %s: %.200s is an encoder, whose tokens would see the answers",
                       r->probe.task, cli_sweep_value(s, MODEL, run));
    if (st == DRA_OK && !dra_model_config_is_language(c))
        st = cli_error(err, DRA_ERR_VALUE, "probe %s: %.200s is not a language model",
                       r->probe.task, cli_sweep_value(s, MODEL, run));
    for (int k = 0; k < DRA_AUX_COUNT && st == DRA_OK; k++)
        if (r->train.aux_loss[k] != 0) c->aux |= 1u << k; /* it measures them */
    if (st == DRA_OK) st = dra_model_create(c, model, err);
    dra_model_config_destroy(c);
    if (st == DRA_OK) r->parameters = dra_model_param_count(*model);
    return st;
}

/* Checks all runs before the first one starts. */
static dra_status check_runs(const struct args *a, const cli_sweep *s, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int64_t run = 0; run < cli_sweep_runs(s) && st == DRA_OK; run++) {
        cli_probe_run r;
        dra_model    *model;
        st = open_run(a, s, run, &r, &model, err);
        dra_model_destroy(model);
    }
    return st;
}

static dra_status keep_model(const struct args *a, const dra_model *m, const dra_weights *w,
                             dra_error *err)
{
    char path[4096];
    if (!cli_path(a->out, "model.safetensors", path, sizeof path))
        return cli_error(err, DRA_ERR_FILE, "--out: too long: %.60s...", a->out);
    dra_status st = cli_make_folders(path, 0777, err);
    if (st == DRA_OK) st = dra_folder_save_config(a->out, dra_model_config_of(m), err);
    return st == DRA_OK ? dra_weights_save(w, path, err) : st;
}

static dra_status one_run(const struct args *a, cli_progress *p, dra_device *device, dra_error *err)
{
    const cli_sweep         *s = p->sweep;
    cli_probe_run            r;
    dra_probe_result         x;
    dra_model               *model;
    dra_weights             *weights = NULL;
    const dra_weights_config file = {a->from.model, a->from.skip_hash};
    dra_status               st = open_run(a, s, p->run, &r, &model, err);
    if (st == DRA_OK)
        st = a->from.model ? dra_weights_load_with(model, &file, &weights, err)
                           : dra_weights_draw(model, (uint64_t)r.train.seed, &weights, err);
    if (st == DRA_OK && a->from.model && p->run == 0 && !a->from.skip_hash)
        cli_weights_look(a->from.model, weights);
    const dra_probe_config c = {.probe = &r.probe,
                                .train = &r.train,
                                .device = device,
                                .model = model,
                                .weights = weights,
                                .tests = a->tests,
                                .until = a->until,
                                .lengths = a->lengths,
                                .length = a->test_lengths};
    p->minutes = a->minutes;
    if (st == DRA_OK) st = dra_probe_run(&c, cli_progress_step, p, &x, err);
    if (st == DRA_OK && a->out) st = keep_model(a, model, weights, err);
    cli_progress_end(p);
    if (st == DRA_OK) (a->json ? cli_probe_json : cli_probe_row)(s, p->run, &r, &x, stdout);
    if (st == DRA_OK && !isfinite(x.test_loss))
        st = cli_error(err, DRA_ERR_VALUE, "the loss of the tests is %g", x.test_loss);
    dra_weights_destroy(weights);
    dra_model_destroy(model);
    return st;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static dra_status all_runs(const struct args *a, const cli_sweep *s, dra_error *err)
{
    dra_device  *device = NULL;
    cli_progress p = {.sweep = s, .runs = cli_sweep_runs(s)};
    cli_status_open(&p.status, stderr);
    dra_status st = check_runs(a, s, err);
    if (st == DRA_OK) st = cli_device_open(&a->from, NULL, &device, err);
    if (st == DRA_OK && !a->json) cli_probe_head(s, stdout);
    for (int64_t run = 0; run < p.runs && st == DRA_OK && !cli_progress_stopped(); run++) {
        cli_progress_start(&p, run);
        st = one_run(a, &p, device, err);
    }
    dra_device_destroy(device);
    return st;
}

/* Numbers between commas. */
static int read_lengths(struct args *a)
{
    char        quoted[80], part[32];
    const char *at = a->test_length;
    while (at) {
        const size_t n = strcspn(at, ",");
        snprintf(part, sizeof part, "%.*s", (int)(n < 31 ? n : 31), at);
        if (a->lengths == DRA_PROBE_TESTS || !cli_read_int(part, &a->test_lengths[a->lengths]) ||
            a->test_lengths[a->lengths++] < 1)
            return cli_misused("probe",
                               "--test-length: expected up to %d numbers from 1 on between commas, "
                               "found %s",
                               DRA_PROBE_TESTS, cli_quote(a->test_length, quoted, sizeof quoted));
        at = at[n] ? at + n + 1 : NULL;
    }
    return CLI_OK;
}

/* What is not an axis: lengths, the text, and what train reads in parts. */
static int read_rest(struct args *a)
{
    enum { MOST = 1 << 30 };
    dra_error err = {0};
    int       status = read_lengths(a);
    for (size_t i = 0; i < a->aux_loss.count && status == CLI_OK; i++)
        status = cli_read_aux_loss("probe", a->aux_loss.text[i], &a->train);
    for (size_t i = 0; i < a->group.count && status == CLI_OK; i++)
        status = cli_read_group("probe", a->group.text[i], &a->train);
    if (status == CLI_OK && a->text &&
        dra_file_read(a->text, MOST, &a->text_read, &a->text_bytes, &err) != DRA_OK)
        status = cli_fail(&err);
    return status;
}

static int run_probe(const void *args)
{
    struct args own = *(const struct args *)args, *a = &own;
    cli_sweep   s = {0};
    dra_error   err = {0};
    char        keys[1024];
    int         status = read_rest(a);
    if (status == CLI_OK) status = add_axes(a, &s, keys, sizeof keys);
    if (status == CLI_OK && a->out && cli_sweep_runs(&s) > 1)
        status = cli_misused("probe", "--out: expected a single run, found %lld",
                             (long long)cli_sweep_runs(&s));
    if (status == CLI_OK) {
        cli_progress_signals();
        if (all_runs(a, &s, &err) != DRA_OK) status = cli_fail(&err);
    }
    if (status == CLI_OK && cli_progress_stopped()) {
        fputs("dra: stopped; the last row is of a run that was cut short\n", stderr);
        status = CLI_INTERRUPTED;
    }
    cli_sweep_free(&s);
    free(a->text_read);
    return status;
}

static const cli_note examples[] = {
    {"dra probe recall --preset dra-delta-tiny --pairs 8 --length 128", "one model, one task"},
    {"dra probe copy needle --preset gpt2-tiny,dra-gru-tiny --length 64,256",
     "eight runs, one table"},
    {"dra probe recall --suite --json > recall.jsonl",
     "models that differ only in their memory, as lines for 'dra report'"},
    {0},
};

const cli_verb cmd_probe = {
    .name = "probe",
    .summary = "train models on small tasks and score their answers",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_probe,
    .group = "Train",
    .about =
        "Trains models on small tasks with a right answer and scores them on examples they were "
        "not trained on. Each task tests one ability of a memory: copy, select, recall, mqar, "
        "update, addition, parens, needle, parity, modular, permute.\n"
        "Options that take lists make a run for every combination; all of them are "
        "checked before the first one trains. A run ends after --steps, or once --until of the "
        "answers are right. Ctrl-C ends the current run with a test.",
    .examples = examples,
    .also = "train report",
};
