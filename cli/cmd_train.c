/* dra train: a model from texts. */
#include "model.h"
#include "train_watch.h"
#include "value.h"

#include "dra/generate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct args {
    cli_source       from;
    const char      *out, *context, *log, *prompt;
    const char      *text_key, *separator, *cache;
    cli_list         data, eval_data, add;
    dra_train_config train;
    double           dropout;
    int64_t          sample_tokens;
    bool             resume, force, tensorboard;
};

static const struct args defaults = {.prompt = "", .sample_tokens = 100};

static const char *const schedules[] = {"cosine", "linear", "constant", "exponential", NULL};
static const char *const anneals[] = {"linear", "cosine", NULL};
static const char *const precisions[] = {"full", "bf16", NULL};

#define AT(f) offsetof(struct args, f)
#define TRAIN(f) offsetof(struct args, train.f)

/* Zero stands for the default here as in dra_train_config, so that a run that goes on knows what it
 * was told. */
static const cli_option options[] = {
    {"model", CLI_TEXT, AT(from.model), 0, 0, "a folder or file with a model, to train it further",
     "PATH", .group = "Model"},
    CLI_CONFIG_OPTIONS(struct args),
    {"data", CLI_LIST, AT(data), 0, 0, "texts, .jsonl, tokens as .safetensors, or folders of these",
     "FILE", .flags = CLI_REQUIRED, .group = "Data"},
    {"tokenizer", CLI_TEXT, AT(from.tokenizer), 0, 0,
     "file or folder of a tokenizer, bytes, or none for data that are tokens; default: that of "
     "the model, bytes if it has 256 tokens or is a preset",
     "PATH|bytes|none"},
    {"eval-data", CLI_LIST, AT(eval_data), 0, 0, "what to evaluate on", "FILE"},
    {"split", CLI_REAL, TRAIN(split), 0, 0.9, "or this last part of the data"},
    {"text-key", CLI_TEXT, AT(text_key), 0, 0, "of the text in a line of .jsonl; else text", "KEY"},
    {"separator", CLI_TEXT, AT(separator), 0, 0, "a line that stands between documents of a text",
     "LINE"},
    {"cache", CLI_TEXT, AT(cache), 0, 0, "folder that keeps the tokens for the next time", "DIR"},
    {"cross", CLI_FLAG, TRAIN(cross), 0, 0, "read over the ends of documents"},
    {"out", CLI_TEXT, AT(out), 0, 0, "folder of the run", "DIR", .flags = CLI_REQUIRED,
     .group = "Run"},
    {"resume", CLI_FLAG, AT(resume), 0, 0,
     "go on from the last checkpoint of --out; with a model given, begin where there is none"},
    {"force", CLI_FLAG, AT(force), 0, 0,
     "over another run or model; or on with other data or settings"},
    {"steps", CLI_INT, TRAIN(steps), 0, 1e12, "of the optimizer; 0: 1000"},
    {"seed", CLI_INT, TRAIN(seed), 0, 1e15, "of first weights, order and dropout"},
    {"save-every", CLI_INT, TRAIN(save_every), -1, 1e12, "steps; 0: 500; below 0: at the end"},
    {"keep", CLI_INT, TRAIN(keep), 0, 1 << 20, "checkpoints; 0: 2"},
    {"batch", CLI_INT, TRAIN(batch), 0, 1 << 20, "rows of a step; 0: 8", .group = "Batch"},
    {"context", CLI_TEXT, AT(context), 0, 0,
     "tokens of a row, or 128:0,256:1000: 256 once 1000 steps are done; else the model's", "T"},
    {"accumulate", CLI_INT, TRAIN(accumulate), 0, 1 << 20,
     "parts a batch is read in, for less memory; 0: 1"},
    {"recompute", CLI_FLAG, TRAIN(recompute), 0, 0, "inner values again instead of keeping them"},
    {"chunk", CLI_INT, TRAIN(chunk), 0, 1 << 20,
     "read rows in chunks, with gradients through them; 0: whole"},
    {"carry", CLI_FLAG, TRAIN(carry), 0, 0, "rows read on where they stopped, with their state"},
    {"precision", CLI_CHOICE, TRAIN(precision), 0, 0, "of products", .choices = precisions},
    {"lr", CLI_REAL, TRAIN(lr), 0, 100, "learning rate; 0: 0.001", .group = "Optimizer"},
    {"min-lr", CLI_REAL, TRAIN(min_lr), -1, 100, "at the last step; 0: lr / 10; below 0: none"},
    {"warmup", CLI_INT, TRAIN(warmup), 0, 1e12, "steps until lr is reached; 0: 4 % of them"},
    {"schedule", CLI_CHOICE, TRAIN(schedule), 0, 0, "of lr behind that", .choices = schedules},
    {"weight-decay", CLI_REAL, TRAIN(weight_decay), -1, 100,
     "of projections; 0: 0.01; below 0: none"},
    {"beta1", CLI_REAL, TRAIN(beta1), 0, 0.999999, "0: 0.9"},
    {"beta2", CLI_REAL, TRAIN(beta2), 0, 0.999999, "0: 0.95"},
    {"eps", CLI_REAL, TRAIN(eps), 0, 1, "0: 1e-8"},
    {"clip", CLI_REAL, TRAIN(clip), -1, 1e9, "of the gradients' norm; 0: 1; below 0: none"},
    {"rwkv-rates", CLI_FLAG, TRAIN(rwkv_rates), 0, 0,
     "RWKV-4's decays learn twice, its bonuses three times as fast, as in its own trainer"},
    {"rwkv-stage", CLI_INT, TRAIN(rwkv_stage), 0, 2,
     "with these, of its second stage: both and its mixes five times; 0: 1"},
    {"add", CLI_LIST, AT(add), 0, 0,
     "to the loss: drift, budget, diversity, size, entropy or spectral of the memories, weighted",
     "NAME=X", .group = "Loss and state"},
    {"guard", CLI_FLAG, TRAIN(guard), 0, 0, "hold carried states within bounds in all steps"},
    {"guard-steps", CLI_INT, TRAIN(guard_steps), -1, 1e12,
     "in the first so many; 0: 2000; below 0: none"},
    {"skip", CLI_REAL, TRAIN(skip), 0, 0.999, "share of tokens that are read, but not written"},
    {"smoothing", CLI_REAL, TRAIN(smoothing), 0, 0.999, "of targets"},
    {"logit-pull", CLI_REAL, TRAIN(logit_pull), 0, 1,
     "pulls largest logits to 0: adds X/2 of their square to what is minimised"},
    {"dropout", CLI_REAL, AT(dropout), -1, 0.999,
     "of what layers add; 0: as the config says; below 0: none at all"},
    {"blend-steps", CLI_INT, TRAIN(blend_steps), 0, 1e12,
     "until a blend by schedule is at 0; 0: half of them"},
    {"blend-anneal", CLI_CHOICE, TRAIN(blend_anneal), 0, 0, "its way there", .choices = anneals},
    {"eval-every", CLI_INT, TRAIN(eval_every), -1, 1e12, "steps; 0: as saved; below 0: never",
     .group = "Log"},
    {"log-every", CLI_INT, TRAIN(log_every), 0, 1e12, "steps; 0: 10"},
    {"log", CLI_TEXT, AT(log), 0, 0, "else log.jsonl in --out", "FILE"},
    {"tensorboard", CLI_FLAG, AT(tensorboard), 0, 0, "the log also as an event file in --out"},
    {"sample-every", CLI_INT, TRAIN(sample_every), 0, 1e12, "write some text; 0: never"},
    {"sample-prompt", CLI_TEXT, AT(prompt), 0, 0, "that it begins with", "TEXT"},
    {"sample-tokens", CLI_INT, AT(sample_tokens), 1, 1 << 20, "how many it has"},
    CLI_THREADS_OPTION(struct args),
};

/* ---- what was asked -------------------------------------------------------------------------- */

/* "256" or "128:0,256:1000". */
static bool read_stages(const char *text, dra_train_config *c)
{
    char        part[64];
    const char *at = text;
    for (c->stages = 0; *at && c->stages < DRA_STAGES_MOST; c->stages++) {
        const size_t n = strcspn(at, ",");
        if (n >= sizeof part) return false;
        snprintf(part, sizeof part, "%.*s", (int)n, at);
        dra_stage *s = &c->stage[c->stages];
        char      *colon = strchr(part, ':');
        if (colon) *colon++ = '\0';
        if (!cli_read_int(part, &s->context) || s->context < 1 || s->context > 1 << 20)
            return false;
        if (colon && (!cli_read_int(colon, &s->from) || s->from < 0)) return false;
        at += n + (at[n] == ',');
    }
    return c->stages > 0 && !*at && at[-1] != ',';
}

/* "drift=0.1" */
static int read_addition(const char *text, dra_train_config *c)
{
    char         quoted[80], name[32];
    const size_t n = strcspn(text, "=");
    dra_guess    guess = {.typed = name};
    snprintf(name, sizeof name, "%.*s", (int)n, text);
    for (int k = 0; k < DRA_WATCH_COUNT; k++) {
        const char *known = dra_watch_name((dra_watch_kind)k);
        if (strcmp(name, known) == 0 && text[n] && cli_read_real(text + n + 1, &c->add[k]))
            return CLI_OK;
        dra_guess_try(&guess, known);
    }
    return cli_misused("train", "--add: expected %s=X with a number X, found %s",
                       guess.best ? guess.best : "NAME", cli_quote(text, quoted, sizeof quoted));
}

enum { PATH_TEXT = 4096 };

static bool names_model(const cli_source *s) { return s->model || s->preset || s->config; }

static bool is_same(const char *a, const char *b)
{
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

/* Whether a file is one of the data, or in a folder of them. */
static bool is_of(const char *path, const cli_list *data)
{
    char        folder[PATH_TEXT];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 1,
             slash ? path : ".");
    for (size_t i = 0; i < data->count; i++)
        if (is_same(path, data->text[i]) || is_same(folder, data->text[i])) return true;
    return false;
}

/* What is written is never what is read. */
static int check_log(const struct args *a)
{
    char path[PATH_TEXT], quoted[80];
    if (a->log)
        snprintf(path, sizeof path, "%s", a->log);
    else if (!cli_path(a->out, "log.jsonl", path, sizeof path))
        return CLI_OK; /* refused later */
    if (access(path, F_OK) != 0 || !(is_of(path, &a->data) || is_of(path, &a->eval_data)))
        return CLI_OK;
    return cli_misused("train", "--log: expected a file that is none of the data, found %s",
                       cli_quote(path, quoted, sizeof quoted));
}

static int check(const struct args *a, dra_train_config *train)
{
    const cli_source *s = &a->from;
    char              quoted[80];
    *train = a->train;
    if (!a->resume || names_model(s)) {
        const int status = cli_source_check("train", s);
        if (status != CLI_OK) return status;
    }
    if (a->train.sample_every && s->tokenizer && strcmp(s->tokenizer, "none") == 0)
        return cli_misused("train", "--sample-every: expected a tokenizer, found none");
    if (check_log(a) != CLI_OK) return CLI_USAGE;
    for (size_t i = 0; i < a->add.count; i++)
        if (read_addition(a->add.text[i], train) != CLI_OK) return CLI_USAGE;
    if (!a->context || read_stages(a->context, train)) return CLI_OK;
    return cli_misused("train", "--context: expected T or T:STEP,T:STEP,..., found %s",
                       cli_quote(a->context, quoted, sizeof quoted));
}

/* ---- the model ------------------------------------------------------------------------------- */

static bool is_there(const char *folder, const char *name)
{
    char path[PATH_TEXT];
    return cli_path(folder, name, path, sizeof path) && access(path, F_OK) == 0;
}

static bool goes_on(const struct args *a)
{
    return a->resume && is_there(a->out, "config.json") && is_there(a->out, "train");
}

/* A run is told by its checkpoint what it is; before its first, only by its command. */
static dra_status check_checkpoint(const struct args *a, dra_error *err)
{
    if (names_model(&a->from) || dra_trainer_saved(a->out) >= 0) return DRA_OK;
    return cli_error(err, DRA_ERR_FILE, "%.200s %s", a->out,
                     is_there(a->out, "train")
                         ? "has no checkpoint yet; give the command that started it again"
                         : "is no run to go on with; a new one needs --model, --preset or "
                           "--config");
}

/* Then there is nothing to encode. */
static bool is_all_tokens(const struct args *a)
{
    return cli_all_tokens(&a->data) && cli_all_tokens(&a->eval_data) && !a->train.sample_every;
}

static bool sets_vocab(const cli_source *s)
{
    for (size_t i = 0; i < s->set.count; i++)
        if (strncmp(s->set.text[i], "vocab=", 6) == 0) return true;
    return false;
}

/* What the memories are watched for follows from what is added to the loss, now or when the run
 * began. */
static dra_status watched(const struct args *a, const dra_train_config *train, uint32_t *bits,
                          dra_error *err)
{
    dra_train_config before = {0};
    char             path[PATH_TEXT], *text = NULL;
    size_t           bytes = 0;
    dra_status       st = DRA_OK;
    if (goes_on(a) && is_there(a->out, "train/config.json") &&
        cli_path(a->out, "train/config.json", path, sizeof path))
        st = dra_file_read(path, 1 << 20, &text, &bytes, err);
    if (st == DRA_OK && text) st = dra_train_config_parse(path, text, bytes, &before, err);
    free(text);
    for (int k = 0; k < DRA_WATCH_COUNT; k++)
        if (train->add[k] != 0 || before.add[k] != 0) *bits |= 1u << k;
    return st;
}

/* The model that was asked for; if none, that of the run. */
static dra_status asked_config(const struct args *a, dra_model_config *c, dra_error *err)
{
    cli_source s = a->from;
    if (!names_model(&s)) s.model = a->out;
    const dra_status st = cli_source_config(&s, c, err);
    if (a->dropout > 0) c->dropout = a->dropout;
    if (a->dropout < 0) c->dropout = c->attention_dropout = c->embed_dropout = 0;
    return st;
}

/* The one that was named, perhaps none; else that of the run or model. Before its first checkpoint
 * a run may have been killed without its tokenizer. A preset takes the vocabulary of any. */
static dra_status open_tokenizer(const struct args *a, dra_model_config *c, dra_tokenizer **out,
                                 dra_error *err)
{
    cli_source    s = a->from;
    const bool    takes_any = s.preset && !sets_vocab(&s);
    const int64_t V = takes_any ? 0 : c->vocab;
    if (!names_model(&s) || (goes_on(a) && dra_trainer_saved(a->out) >= 0)) s.model = a->out;
    if (s.tokenizer && strcmp(s.tokenizer, "none") == 0) return DRA_OK;
    if (!s.tokenizer && V && V != 256 && !dra_tokenizer_is_in(s.model) && is_all_tokens(a))
        return DRA_OK;
    const dra_status st = cli_tokenizer_open(&s, V, out, err);
    if (st == DRA_OK && takes_any) c->vocab = dra_tokenizer_size(*out);
    return st;
}

/* The first line of two configs in which they differ. */
static dra_status compare(const struct args *a, const dra_model *asked, const dra_model *found,
                          dra_error *err)
{
    static char x[1 << 16], y[1 << 16];
    size_t      i = 0, line = 0;
    dra_model_config_text(dra_model_config_of(found), x, sizeof x);
    dra_model_config_text(dra_model_config_of(asked), y, sizeof y);
    if (strcmp(x, y) == 0) return DRA_OK;
    for (; x[i] == y[i]; i++)
        if (x[i] == '\n') line = i + 1;
    const char *p = x + line + strspn(x + line, " "), *q = y + line + strspn(y + line, " ");
    return cli_error(err, DRA_ERR_VALUE,
                     "%.100s: is a run of another model: config.json says %.*s where %.*s is asked "
                     "for; --force goes on",
                     a->out, (int)strcspn(p, ",\n"), p, (int)strcspn(q, ",\n"), q);
}

/* A run that is there is one of this model. */
static dra_status check_run(const struct args *a, const dra_model *asked, dra_error *err)
{
    dra_model_config c;
    dra_model       *found = NULL;
    dra_status       st = dra_folder_config(a->out, &c, err);
    if (st == DRA_OK) st = dra_model_create(&c, &found, err);
    if (st == DRA_OK) st = compare(a, asked, found, err);
    dra_model_destroy(found);
    return st;
}

static dra_status open_model(const struct args *a, const dra_train_config *train,
                             dra_tokenizer **tokenizer, dra_model **out, dra_error *err)
{
    dra_model_config c;
    dra_status       st = asked_config(a, &c, err);
    if (st == DRA_OK) st = open_tokenizer(a, &c, tokenizer, err);
    if (st == DRA_OK) st = watched(a, train, &c.watch, err);
    if (st == DRA_OK) st = dra_model_create(&c, out, err);
    return st == DRA_OK && goes_on(a) && !a->force ? check_run(a, *out, err) : st;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void show_reading(void *user, int64_t done, int64_t total)
{
    if (!isatty(STDERR_FILENO) || total <= 0) return;
    fprintf(stderr, "\rreading %s: %.0f %%\033[K%s", (const char *)user,
            100 * (double)done / (double)total, done >= total ? "\r\033[K" : "");
}

static dra_status open_corpus(const struct args *a, const cli_list *files, const dra_tokenizer *t,
                              const char *what, dra_corpus **out, dra_error *err)
{
    const dra_corpus_config c = {.n = (int)files->count,
                                 .paths = files->text,
                                 .tokenizer = t,
                                 .text_key = a->text_key,
                                 .separator = a->separator,
                                 .cache = a->cache};
    return files->count ? dra_corpus_open(&c, show_reading, (void *)(uintptr_t)what, out, err)
                        : DRA_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

typedef struct parts { /* all that a run borrows */
    dra_device      *device;
    dra_tokenizer   *tokenizer;
    dra_model       *model;
    dra_corpus      *data, *eval_data;
    dra_trainer     *trainer;
    dra_train_config train;
} parts;

static dra_status open_parts(const struct args *a, parts *p, dra_error *err)
{
    const dra_cpu_config cpu = {.threads = (int)a->from.threads};
    dra_status           st = dra_device_create_cpu(&cpu, &p->device, err);
    if (st == DRA_OK) st = check_checkpoint(a, err);
    if (st == DRA_OK) st = open_model(a, &p->train, &p->tokenizer, &p->model, err);
    if (st == DRA_OK) st = open_corpus(a, &a->data, p->tokenizer, "data", &p->data, err);
    if (st == DRA_OK)
        st = open_corpus(a, &a->eval_data, p->tokenizer, "evaluation", &p->eval_data, err);
    const dra_trainer_config c = {.folder = a->out,
                                  .train = &p->train,
                                  .device = p->device,
                                  .model = p->model,
                                  .weights = a->from.model,
                                  .data = p->data,
                                  .eval_data = p->eval_data,
                                  .tokenizer = p->tokenizer,
                                  .log = a->log,
                                  .tensorboard = a->tensorboard,
                                  .resume = a->resume,
                                  .force = a->force};
    return st == DRA_OK ? dra_trainer_create(&c, &p->trainer, err) : st;
}

static void close_parts(parts *p)
{
    dra_trainer_destroy(p->trainer);
    dra_corpus_close(p->eval_data);
    dra_corpus_close(p->data);
    dra_model_destroy(p->model);
    dra_tokenizer_destroy(p->tokenizer);
    dra_device_destroy(p->device);
}

/* ---- samples --------------------------------------------------------------------------------- */

typedef struct sampling {
    const struct args *a;
    const parts       *p;
    char               text[1 << 14]; /* for the log */
    size_t             used;
} sampling;

static bool write_piece(void *user, int64_t row, const char *text, size_t bytes)
{
    sampling *s = user;
    fwrite(text, 1, bytes, stderr);
    if (bytes < sizeof s->text - s->used) {
        memcpy(s->text + s->used, text, bytes);
        s->used += bytes;
    }
    return !cli_watch_stopped();
}

/* Where there is no prompt, a text begins behind the end of another, or on a new line. */
static dra_status read_prompt(const sampling *s, dra_generator *g, dra_error *err)
{
    const dra_tokenizer *t = s->p->tokenizer;
    const int32_t        end = dra_tokenizer_end(t);
    const char          *prompt = *s->a->prompt ? s->a->prompt : "\n";
    dra_ids              ids = {0};
    if (!*s->a->prompt && end >= 0) return dra_generator_read(g, 0, 1, &end, err);
    dra_status st = dra_encode(t, prompt, strlen(prompt), &ids, err);
    if (st == DRA_OK) st = dra_generator_read(g, 0, ids.n, ids.data, err);
    dra_ids_free(&ids);
    return st;
}

/* A generator of its own each time, because the weights have changed. */
static dra_status write_sample(sampling *s, dra_error *err)
{
    const dra_generator_config c = {
        .model = s->p->model,
        .weights = dra_trainer_weights(s->p->trainer),
        .device = s->p->device,
        .tokenizer = s->p->tokenizer,
        .sampler = {.temperature = 0.8, .seed = (uint64_t)s->a->train.seed}};
    const dra_generate_config how = {
        .tokens = s->a->sample_tokens, .write = write_piece, .user = s};
    dra_generator *g = NULL;
    dra_generated  out;
    dra_status     st = dra_generator_create(&c, &g, err);
    if (st == DRA_OK) st = read_prompt(s, g, err);
    if (st == DRA_OK) st = dra_generate(g, &how, &out, err);
    dra_generator_destroy(g);
    return st;
}

/* A sample that fails does not end the run. */
static void show_sample(void *user, const dra_event *e)
{
    sampling *s = user;
    dra_error err = {0};
    if (!s->p->tokenizer) return; /* the run had one when it began */
    s->used = (size_t)snprintf(s->text, sizeof s->text, "%s", s->a->prompt);
    if (s->used >= sizeof s->text) s->used = 0;
    fprintf(stderr, "sample   %s", s->a->prompt);
    dra_status st = write_sample(s, &err);
    fputc('\n', stderr);
    s->text[s->used] = '\0';
    if (st == DRA_OK) st = dra_trainer_note(s->p->trainer, "sample", s->text, &err);
    if (st != DRA_OK) fprintf(stderr, "dra: sample: %s\n", err.text);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* How the data were read must be said again; the run knows the rest. */
static void write_command(const struct args *a, FILE *out)
{
    const char *const given[][2] = {{"text-key", a->text_key},
                                    {"separator", a->separator},
                                    {"cache", a->cache},
                                    {"tokenizer", a->from.tokenizer},
                                    {"log", a->log}};
    fprintf(out, "dra train --resume --out %s", a->out);
    for (size_t i = 0; i < a->data.count; i++) fprintf(out, " --data %s", a->data.text[i]);
    for (size_t i = 0; i < a->eval_data.count; i++)
        fprintf(out, " --eval-data %s", a->eval_data.text[i]);
    for (size_t i = 0; i < COUNT(given); i++)
        if (given[i][1]) fprintf(out, " --%s='%s'", given[i][0], given[i][1]);
    fputc('\n', out);
}

static void write_end(const struct args *a, const cli_watch *w, const dra_trainer_plan *plan)
{
    const int64_t steps = plan->train.steps;
    if (plan->first >= steps) {
        fprintf(stderr, "%s has all its %lld steps\n", a->out, (long long)steps);
    } else if (w->last.step < steps) {
        fprintf(stderr, "stopped and saved at step %lld; go on with: ", (long long)w->last.step);
        write_command(a, stderr);
    } else {
        fprintf(stderr, "done: the model is in %s%s\n", a->out,
                w->last.best_loss == w->last.best_loss ? ", the best one in its folder best" : "");
    }
}

static int run(const void *args)
{
    const struct args *a = args;
    parts              p = {0};
    dra_error          err = {0};
    dra_trainer_plan   plan;
    sampling           samples = {.a = a, .p = &p};
    cli_watch          w = {stderr, isatty(STDERR_FILENO), .sample = show_sample, .user = &samples};
    const int          status = check(a, &p.train);
    if (status != CLI_OK) return status;
    cli_watch_signals();
    dra_status st = open_parts(a, &p, &err);
    if (st == DRA_OK) st = dra_trainer_look(p.trainer, &plan, &err);
    if (st == DRA_OK) {
        cli_watch_plan(&plan, stderr);
        w.log_every = plan.train.log_every;
        st = dra_trainer_run(p.trainer, cli_watch_event, &w, &err);
        cli_watch_break(&w);
        if (st == DRA_OK) write_end(a, &w, &plan);
    }
    close_parts(&p);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static const cli_note files[] = {
    {"DIR/config.json, model.safetensors", "the model, as of the last checkpoint"},
    {"DIR/best", "the same, of the least evaluation loss"},
    {"DIR/log.jsonl", "a line for each logged step"},
    {"DIR/train", "checkpoints and settings"},
    {0},
};

static const cli_note examples[] = {
    {"dra train --preset dra-slots-tiny --data book.txt --out run --steps 2000", "train on a text"},
    {"dra train --resume --data book.txt --out run", "go on after a kill, Ctrl-C or a full disk"},
    {"dra train --preset dra-gru-tiny --data book.txt --split 0.05 --out run-2",
     "measure on the last twentieth of the text"},
    {"dra train --preset dra-slots-tiny --data book.txt --carry --chunk 64 --out long",
     "rows read on where they stopped, with their state"},
    {"dra train --model run --data other.txt --out further --tensorboard",
     "train it further on another text, with a log for TensorBoard"},
    {0},
};

static const cli_note status[] = {
    {"0", "done, or stopped by a signal and saved"},
    {"1",
     "failed, as one line on stderr says; also when three steps in a row, or the last one, are "
     "not finite: what was learned before them is saved"},
    {"2", "misused"},
    {0},
};

const cli_verb cmd_train = {
    .name = "train",
    .summary = "train a model on texts",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run,
    .group = "Train",
    .about =
        "Trains a model on texts and writes a run: a model folder with checkpoints and a "
        "log. Weights are drawn (--preset, --config) or taken from a model (--model). "
        "Tokens are those of the tokenizer that is given, else of the model's, else bytes; a "
        "model whose vocabulary is not 256 needs a tokenizer.\n"
        "--resume goes on from the last checkpoint, to the same bits as if nothing had "
        "happened; the settings are those of the checkpoint and need not be said again. Before "
        "the first checkpoint, the command that started the run does so. "
        "Ctrl-C, SIGTERM and SIGHUP finish the step, save and end; a second one ends at once.\n"
        "Where an option says 0: something, that is what 0, the default, stands for. Before "
        "the first step it says what it will read and need.",
    .files = files,
    .examples = examples,
    .status = status,
    .also = "init eval generate report",
};
