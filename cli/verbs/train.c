/* dra train: a model from texts or examples. */
#include "io/corpus.h"
#include "io/examples.h"
#include "io/launch.h"
#include "report/started.h"
#include "verbs/train/disk.h"
#include "verbs/train/end.h"
#include "verbs/train/optimizer.h"
#include "verbs/train/read.h"
#include "verbs/train/sources.h"
#include "verbs/train/steps.h"
#include "verbs/generate/unmasking.h"
#include "options/value.h"

#include "dra/generate.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct args {
    cli_source       from;
    const char      *out, *context, *log, *prompt;
    const char      *text_key, *separator, *cache, *lora;
    cli_pairs        pairs;
    cli_list         data, eval_data, aux_loss, group;
    dra_train_config train;
    double           dropout, epochs, minutes;
    int64_t          sample_tokens, ranks;
    dra_comm        *comm; /* NULL: this is the only rank */
    int              format;
    bool             resume, force, tensorboard, yes, raw, json;
};

static const struct args defaults = {.prompt = "", .sample_tokens = 100};

CLI_CHOICES(objectives, DRA_OBJECTIVE_COUNT, "own", "next", "masked", "classes", "squared",
            "gaussian", "xval", "dpo"); /* their kinds */
CLI_CHOICES(precisions, DRA_PRECISION_Q8, "full", "bf16", "tf32");

#define AT(f) offsetof(struct args, f)
#define TRAIN(f) offsetof(struct args, train.f)

/* Settings that are not given are 0, as in dra_train_config, so that a resumed run knows which were
 * given; a given 0 is stored as -1. */
static const cli_option options[] = {
    {"model", CLI_TEXT, AT(from.model), 0, 0, "a folder or file with a model to train further",
     "PATH", .flags = CLI_A_MODEL, .group = "Model", .brief = 'm'},
    CLI_CONFIG_OPTIONS(struct args),
    CLI_SKIP_HASH_OPTION(struct args),
    {"data", CLI_LIST, AT(data), 0, 0,
     "texts, .jsonl, tokens (.safetensors, .npy, .bin of nanoGPT or llm.c), plain or compressed by "
     "gzip or zstd, or folders of these; or examples: .safetensors, .npz, .npy, or a folder of "
     "these",
     "FILE", .group = "Data", .unset = "for a resumed run: the data it was trained on",
     .brief = 'd'},
    CLI_FORMAT_OPTION(struct args),
    {"tokenizer", CLI_TEXT, AT(from.tokenizer), 0, 0,
     "file or folder of a tokenizer, bytes, or none if the data is tokens; default: the model's, "
     "or bytes if it has 256 tokens or is a preset",
     "PATH|bytes|none"},
    {"eval-data", CLI_LIST, AT(eval_data), 0, 0, "what to evaluate on", "FILE"},
    {"split", CLI_REAL, TRAIN(split), 0, 0.9,
     "or evaluate on this last part of the data, such as 0.1", .unset = "none", .flags = CLI_ZERO},
    {"text-key", CLI_TEXT, AT(text_key), 0, 0, "key of the text in a line of .jsonl", "KEY",
     .unset = "text"},
    {"separator", CLI_TEXT, AT(separator), 0, 0, "a line that separates the documents of a text",
     "LINE"},
    CLI_PAIRS_OPTIONS(struct args),
    {"cache", CLI_TEXT, AT(cache), 0, 0, "folder that keeps the encoded tokens for the next run",
     "DIR"},
    {"cross", CLI_FLAG, TRAIN(cross), 0, 0, "read across the ends of documents"},
    {"out", CLI_TEXT, AT(out), 0, 0, "folder of the run", "DIR", .flags = CLI_REQUIRED,
     .group = "Run", .brief = 'o'},
    {"resume", CLI_FLAG, AT(resume), 0, 0,
     "continue from the last checkpoint in --out; with a model given, start if there is none"},
    {"force", CLI_FLAG, AT(force), 0, 0,
     "replace another run or model; or continue with other data or settings"},
    {"yes", CLI_FLAG, AT(yes), 0, 0,
     "do not ask; at a terminal, a run of more than an hour asks whether to go on"},
    {"steps", CLI_INT, TRAIN(steps), 1, 1e12,
     "optimizer steps; with --resume a run can be made longer", .unset = "1000", .brief = 'n'},
    {"epochs", CLI_REAL, AT(epochs), 1e-6, 1e9, "passes over the data, instead of --steps",
     .unset = "as many as the steps make"},
    {"minutes", CLI_REAL, AT(minutes), 0, 1e6, "save and stop after so many minutes of work",
     .unset = "at the last step"},
    {"early-stop", CLI_INT, TRAIN(early_stop), 0, 1e12,
     "end after N evaluations without a better one; 0: do not", .unset = "do not",
     .flags = CLI_ZERO},
    {"seed", CLI_INT, TRAIN(seed), 0, 1e15, "seed of initial weights, data order and dropout",
     .brief = 's', .flags = CLI_ZERO},
    {"save-every", CLI_INT, TRAIN(save_every), 0, 1e12,
     "steps between checkpoints; 0: only at the end", .unset = "500", .flags = CLI_ZERO},
    {"keep", CLI_INT, TRAIN(keep), 1, 1 << 20, "checkpoints to keep", .unset = "2"},
    {"batch", CLI_INT, TRAIN(batch), 1, 1 << 20, "rows per step", .group = "Batch", .unset = "8"},
    {"context", CLI_TEXT, AT(context), 0, 0,
     "tokens per row, or stages 128:0,256:1000: 256 after the first 1000 steps", "T",
     .unset = "the model's"},
    {"accumulate", CLI_INT, TRAIN(accumulate), 1, 1 << 20,
     "microbatches a batch is read in, for less memory", .unset = "1"},
    {"recompute", CLI_FLAG, TRAIN(recompute), 0, 0,
     "recompute activations for the gradient instead of keeping them"},
    {"chunk", CLI_INT, TRAIN(chunk), 0, 1 << 20,
     "read rows in chunks of N tokens, with gradients through them", .unset = "whole rows",
     .flags = CLI_ZERO},
    {"carry", CLI_FLAG, TRAIN(carry), 0, 0,
     "rows continue where the previous ones stopped, with their state"},
    {"precision", CLI_CHOICE, TRAIN(precision), 0, 0, "precision of products",
     .choices = precisions},
    {"lr", CLI_REAL, TRAIN(lr), 0, 100, "learning rate", .group = "Optimizer", .unset = "0.001",
     .flags = CLI_ZERO},
    {"min-lr", CLI_REAL, TRAIN(min_lr), 0, 100, "learning rate at the last step",
     .unset = "lr / 10", .flags = CLI_ZERO},
    {"warmup", CLI_INT, TRAIN(warmup), 0, 1e12, "steps until lr is reached",
     .unset = "4 % of the steps", .flags = CLI_ZERO},
    CLI_SCHEDULE_OPTIONS(TRAIN),
    {"weight-decay", CLI_REAL, TRAIN(weight_decay), 0, 100,
     "weight decay of matrices (see --group)", .unset = "0.01", .flags = CLI_ZERO},
    {"group", CLI_LIST, AT(group), 0, 0,
     "learning rate, as a multiple of lr, and weight decay of a group of parameters, as in "
     "decay:lr=2x,wd=0 (dra info lists the groups of a model)",
     "NAME:lr=Nx,wd=X"},
    CLI_MOMENT_OPTIONS(TRAIN),
    {"lora", CLI_TEXT, AT(lora), 0, 0,
     "learn only products of rank r that are added to these matrices of --model, whose weights "
     "stay: --out becomes an adapter as PEFT has them; alpha/r scales them; targets are the names of "
     "matrices without W_, or all",
     "r=N,alpha=X,targets=q,k,v,o", .unset = "everything learns"},
    {"clip", CLI_REAL, TRAIN(clip), 0, 1e9, "largest norm of all gradients; 0: no clipping",
     .unset = "1", .flags = CLI_ZERO},
    {"rwkv-rates", CLI_FLAG, TRAIN(rwkv_rates), 0, 0,
     "RWKV's time_decay learns twice as fast, its time_first three times, as in its own trainers"},
    {"rwkv-stage", CLI_INT, TRAIN(rwkv_stage), 1, 2,
     "with --rwkv-rates; stage 2: both and its token mixes learn five times as fast", .unset = "1"},
    {"objective", CLI_CHOICE, TRAIN(objective.kind), 0, 0,
     "next: the next token (causal models); masked: hidden tokens (encoders); classes: the label "
     "of each example; squared, gaussian: the next vector; xval: tokens and numbers; dpo: prefer "
     "one of two texts; own: the one that fits the model's output",
     "NAME", .choices = objectives, .group = "Loss and state"},
    {"mask-share", CLI_REAL, TRAIN(objective.mask_share), 1e-6, 1,
     "masked: share of tokens to predict; 80 % of them read the mask token instead, 10 % a random "
     "one",
     .unset = "0.15"},
    {"mask-token", CLI_INT, TRAIN(objective.mask_token), 0, INT32_MAX,
     "masked: id of the mask token", .unset = "the last of the vocabulary", .flags = CLI_ZERO},
    {"mask-schedule", CLI_CHOICE, TRAIN(objective.mask_schedule), 0, 0,
     "masked: instead of --mask-share, hide a random share of each row, distributed as in generate "
     "--unmask",
     "NAME", .choices = cli_mask_schedules},
    {"equal-rows", CLI_FLAG, TRAIN(objective.equal_rows), 0, 0,
     "squared: all rows count equally, whatever their length"},
    {"number-weight", CLI_REAL, TRAIN(objective.number_weight), 0, 1e9,
     "xval: weight of squared errors of numbers", .unset = "1", .flags = CLI_ZERO},
    {"beta", CLI_REAL, TRAIN(objective.beta), 0, 1e9,
     "dpo: beta; larger values keep the model closer to its start", .unset = "0.1",
     .flags = CLI_ZERO},
    {"aux-loss", CLI_LIST, AT(aux_loss), 0, 0,
     "add to the loss, with weight X, a measure of the memories: drift, budget, diversity, size, "
     "entropy, z_loss (of attention), spectral, or balance (of experts)",
     "NAME=X"},
    {"clamp-states", CLI_FLAG, TRAIN(clamp_states), 0, 0,
     "clamp carried states to bounds in all steps"},
    {"clamp-steps", CLI_INT, TRAIN(clamp_steps), 0, 1e12,
     "clamp them in the first N steps only; 0: never", .unset = "2000", .flags = CLI_ZERO},
    {"state-dropout", CLI_REAL, TRAIN(state_dropout), 0, 0.999,
     "state dropout: share of tokens that are read but not written", .unset = "none",
     .flags = CLI_ZERO},
    {"forgetful-mask", CLI_REAL, TRAIN(forgetful_mask), 0, 0.999,
     "forgetful causal mask: like state dropout, with an exact count in each row and never the "
     "first token",
     .unset = "none", .flags = CLI_ZERO},
    {"smoothing", CLI_REAL, TRAIN(smoothing), 0, 0.999, "label smoothing", .unset = "none",
     .flags = CLI_ZERO},
    {"l2wrap", CLI_REAL, TRAIN(l2wrap), 0, 1,
     "RWKV's L2Wrap: adds the gradient of X/2 times the largest logit squared", .unset = "off",
     .flags = CLI_ZERO},
    {"dropout", CLI_REAL, AT(dropout), 0, 0.999, "dropout of what layers add; 0: no dropout at all",
     .unset = "the config's", .flags = CLI_ZERO},
    CLI_BLEND_OPTIONS(TRAIN),
    {"eval-every", CLI_INT, TRAIN(eval_every), 0, 1e12, "steps between evaluations; 0: never",
     .group = "Log", .unset = "a tenth of the steps", .flags = CLI_ZERO},
    {"log-every", CLI_INT, TRAIN(log_every), 1, 1e12, "steps between lines of the log",
     .unset = "10"},
    {"log", CLI_TEXT, AT(log), 0, 0, "file of the log", "FILE", .unset = "log.jsonl in --out",
     .flags = CLI_WRITES},
    {"tensorboard", CLI_FLAG, AT(tensorboard), 0, 0,
     "also write the log as an event file in --out"},
    {"sample-every", CLI_INT, TRAIN(sample_every), 0, 1e12,
     "steps between samples of text; 0: never",
     .unset = "a quarter of the steps, where the model writes text", .flags = CLI_ZERO},
    {"sample-prompt", CLI_TEXT, AT(prompt), 0, 0, "prompt for samples", "TEXT"},
    {"sample-tokens", CLI_INT, AT(sample_tokens), 1, 1 << 20, "tokens per sample"},
    {"raw", CLI_FLAG, AT(raw), 0, 0, "samples: " CLI_RAW_HELP},
    CLI_DEVICE_OPTIONS(struct args),
    {"ranks", CLI_INT, AT(ranks), 2, 1024,
     "train by N processes of this machine together, by mpirun (docs/ranks.md)",
     .unset = "one process"},
    {"json", CLI_FLAG, AT(json), 0, 0, "print one JSON object at the end", .brief = 'j'},
};

/* ---- what is read again when a run is resumed ------------------------------------------------ */

static cli_train_sources sources_of(const struct args *a)
{
    return (cli_train_sources){.data = a->data,
                               .eval_data = a->eval_data,
                               .tokenizer = a->from.tokenizer,
                               .text_key = a->text_key,
                               .separator = a->separator,
                               .format = cli_data_format(a->format),
                               .cache = a->cache,
                               .log = a->log,
                               .pairs = a->pairs};
}

static void take_sources(struct args *a, const cli_train_sources *s)
{
    a->data = s->data;
    a->eval_data = s->eval_data;
    a->from.tokenizer = s->tokenizer;
    a->text_key = s->text_key;
    a->separator = s->separator;
    a->format = cli_data_format_number(s->format);
    a->cache = s->cache;
    a->log = s->log;
    a->pairs = s->pairs;
}

static dra_status note_sources(const struct args *a, dra_error *err)
{
    const cli_train_sources s = sources_of(a);
    return cli_sources_note(a->out, &s, err);
}

/* ---- what was asked -------------------------------------------------------------------------- */

enum { PATH_TEXT = 4096 };

static bool names_model(const cli_source *s) { return s->model || s->preset || s->config; }

static bool is_same(const char *a, const char *b)
{
    struct stat s, t;
    return cli_stat(a, &s) == 0 && cli_stat(b, &t) == 0 && s.st_dev == t.st_dev &&
           s.st_ino == t.st_ino;
}

/* Without --model, the run must have a model. Before its first checkpoint it has only the
 * command. */
static dra_status check_resumable(const struct args *a, dra_error *err)
{
    char             command[300];
    dra_error        why = {0};
    const dra_status st = names_model(&a->from) ? DRA_OK : dra_run_resumable(a->out, &why);
    if (st == DRA_OK) return DRA_OK;
    const bool known = cli_started_command(a->out, command, sizeof command);
    return cli_error(err, st, "%s%s%s", why.text, known ? ": " : "", known ? command : "");
}

/* Whether a file is part of the data, or in a folder of it. */
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

/* The log must not be one of the files that are read. */
static int check_log(const struct args *a, const char *verb)
{
    char path[PATH_TEXT], quoted[80];
    if (a->log)
        snprintf(path, sizeof path, "%s", a->log);
    else if (!cli_path(a->out, "log.jsonl", path, sizeof path))
        return CLI_OK; /* refused later */
    if (!cli_is_there(path) || !(is_of(path, &a->data) || is_of(path, &a->eval_data)))
        return CLI_OK;
    return cli_misused(verb, "--log: expected a file that is not part of the data, found %s",
                       cli_quote(path, quoted, sizeof quoted));
}

/* A sweep may set a split of its own, and a run that is resumed has one. */
static int check_evaluates(const struct args *a, const char *verb)
{
    if (a->train.eval_every <= 0 || a->eval_data.count || a->train.split > 0) return CLI_OK;
    if (a->resume || strcmp(verb, "train") != 0) return CLI_OK;
    return cli_misused(verb, "--eval-every: there is nothing to evaluate on; expected --split or "
                             "--eval-data");
}

static int check_samples(const struct args *a, const char *verb)
{
    const char *given = *a->prompt                                   ? "sample-prompt"
                        : a->sample_tokens != defaults.sample_tokens ? "sample-tokens"
                        : a->raw                                     ? "raw"
                                                                     : NULL;
    if (!given || a->train.sample_every >= 0) return CLI_OK;
    return cli_misused(verb, "--%s: no samples are written, by --sample-every 0", given);
}

static int check_args(const struct args *a, const char *verb, dra_train_config *train)
{
    const cli_source *s = &a->from;
    char              quoted[80];
    *train = a->train;
    if (!a->resume && a->data.count == 0)
        return cli_misused(verb,
                           "--data FILE is required, as in: dra %s --preset "
                           "dra-slots-tiny --data book.txt --out run",
                           verb);
    if (!a->resume || names_model(s)) {
        const int status = cli_source_check(verb, s);
        if (status != CLI_OK) return status;
    }
    if (a->train.sample_every > 0 && s->tokenizer && strcmp(s->tokenizer, "none") == 0)
        return cli_misused(verb, "--sample-every: expected a tokenizer, found none");
    if (a->epochs > 0 && a->train.steps)
        return cli_misused(verb, "expected one of --steps and --epochs, found both");
    if (a->eval_data.count && a->train.split > 0)
        return cli_misused(verb, "expected one of --eval-data and --split, found both");
    if (a->epochs > 0 && a->resume && !names_model(s))
        return cli_misused(verb, "--epochs: a run that is resumed is made longer by --steps");
    if (check_log(a, verb) != CLI_OK || check_evaluates(a, verb) != CLI_OK) return CLI_USAGE;
    if (check_samples(a, verb) != CLI_OK) return CLI_USAGE;
    for (size_t i = 0; i < a->aux_loss.count; i++)
        if (cli_read_aux_loss(verb, a->aux_loss.text[i], train) != CLI_OK) return CLI_USAGE;
    for (size_t i = 0; i < a->group.count; i++)
        if (cli_read_group(verb, a->group.text[i], train) != CLI_OK) return CLI_USAGE;
    if (a->lora && cli_read_lora(verb, a->lora, train) != CLI_OK) return CLI_USAGE;
    if (a->lora && !a->resume && !s->model)
        return cli_misused(verb, "--lora: expected --model, the model that is adapted");
    if (!a->context || cli_read_stages(a->context, train)) return CLI_OK;
    return cli_misused(verb,
                       "--context: expected T or T:STEP,T:STEP,..., T from 1 to 1048576, "
                       "found %s",
                       cli_quote(a->context, quoted, sizeof quoted));
}

int cli_train_check(const void *args, const char *verb)
{
    struct args      a = *(const struct args *)args;
    dra_train_config train;
    if (a.ranks || cli_is_launched())
        return cli_misused(verb, "it trains by one process, expected no --ranks and no mpirun");
    a.resume = false;
    return check_args(&a, verb, &train);
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Whether all data are token files, so that there is nothing to encode. */
static bool is_all_tokens(const struct args *a)
{
    return cli_all_tokens(&a->data, a->format) && cli_all_tokens(&a->eval_data, a->format) &&
           a->train.sample_every <= 0;
}

static bool sets_vocab(const cli_source *s)
{
    for (size_t i = 0; i < s->set.count; i++)
        if (strncmp(s->set.text[i], "vocab=", 6) == 0) return true;
    return false;
}

/* The config that was asked for, else that of the run. */
static dra_status asked_config(const struct args *a, dra_model_config **c, dra_error *err)
{
    cli_source s = a->from;
    if (!names_model(&s)) s.model = a->out;
    const dra_status st = cli_source_config(&s, c, err);
    if (st != DRA_OK) return st;
    if (a->dropout > 0) (*c)->dropout = a->dropout;
    if (a->dropout < 0) (*c)->dropout = (*c)->attention_dropout = (*c)->embed_dropout = 0;
    return st;
}

static bool is_encoder(const dra_model_config *c)
{
    return c->visible == DRA_VISIBLE_BIDIRECTIONAL;
}

/* Whether all data are tensors, which need no tokenizer. */
static bool is_all_examples(const struct args *a, const dra_model_config *c)
{
    return cli_are_examples(&a->data, &a->pairs, c, a->format) &&
           !cli_are_pairs(&a->data, &a->pairs, c);
}

/* Opens the tokenizer that was named, else that of the run or model. A run that was killed before
 * its first checkpoint may have none. A preset takes the vocabulary of any tokenizer. */
static dra_status open_tokenizer(const struct args *a, dra_model_config *c, dra_tokenizer **out,
                                 dra_error *err)
{
    cli_source    s = a->from;
    const bool    takes_any = s.preset && !sets_vocab(&s);
    const int64_t V = takes_any ? 0 : c->vocab;
    const bool    none = c->source.kind && c->head.kind && !c->context_stack; /* images, vectors */
    if (none && !s.tokenizer) return DRA_OK;
    if (!names_model(&s) || (a->resume && dra_trainer_saved(a->out) >= 0)) s.model = a->out;
    if (s.tokenizer && strcmp(s.tokenizer, "none") == 0) return DRA_OK;
    if (!s.tokenizer && V && V != 256 && !dra_tokenizer_is_in(s.model) &&
        (is_all_tokens(a) || is_all_examples(a, c)))
        return DRA_OK;
    const dra_status st = cli_tokenizer_open(&s, V, out, err);
    return st == DRA_OK && takes_any ? cli_take_vocab(&a->pairs, *out, c, err) : st;
}

/* Checks the data first, so that a wrong file is not reported as a missing tokenizer. */
static dra_status look_at_data(const struct args *a, const dra_model_config *c, dra_error *err)
{
    const cli_list *lists[] = {&a->data, &a->eval_data};
    dra_status      st = DRA_OK;
    if (cli_are_examples(&a->data, &a->pairs, c, a->format)) return DRA_OK;
    for (size_t i = 0; i < COUNT(lists) && st == DRA_OK; i++)
        st = dra_corpus_look((int)lists[i]->count, lists[i]->text, cli_data_format(a->format), err);
    return st;
}

/* *vocab: the vocabulary a full-size preset is made for, if it gets another one; else 0. */
static dra_status open_model(const struct args *a, const dra_train_config *train, int64_t *vocab,
                             dra_tokenizer **tokenizer, dra_model **out, dra_error *err)
{
    enum { SMALL = 1024 }; /* tiny presets are made for bytes and a few more */
    dra_model_config *c = NULL;
    dra_status        st = asked_config(a, &c, err);
    *vocab = st == DRA_OK && c->vocab > SMALL && !a->from.tokenizer ? c->vocab : 0;
    if (st == DRA_OK && train->sample_every > 0 && is_encoder(c))
        st = cli_error(err, DRA_ERR_VALUE,
                       "--sample-every: the model is an encoder, which writes no text");
    if (st == DRA_OK) st = look_at_data(a, c, err);
    if (st == DRA_OK) st = open_tokenizer(a, c, tokenizer, err);
    if (st != DRA_OK || c->vocab == *vocab) *vocab = 0;
    const dra_run_model_config run = {a->out, c, train, a->resume, a->force, a->from.model};
    if (st == DRA_OK) st = dra_run_model(&run, out, err);
    dra_model_config_destroy(c);
    const bool draws = !a->resume && !a->from.model;
    return st == DRA_OK && draws ? cli_draw_check(&a->from, *out, err) : st;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static dra_status open_corpus(const struct args *a, const cli_list *files, const dra_tokenizer *t,
                              const char *what, dra_corpus **out, dra_error *err)
{
    const dra_corpus_config c = {.n = (int)files->count,
                                 .paths = files->text,
                                 .tokenizer = t,
                                 .text_key = a->text_key,
                                 .separator = a->separator,
                                 .cache = a->cache,
                                 .format = cli_data_format(a->format)};
    return files->count ? cli_corpus_open(&c, what, out, err) : DRA_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

typedef struct parts { /* all that a run borrows */
    dra_device      *device;
    dra_tokenizer   *tokenizer;
    dra_model       *model;
    dra_corpus      *data, *eval_data;
    dra_examples    *examples, *eval_examples;
    dra_trainer     *trainer;
    dra_train_config train;
    int64_t          vocab; /* the preset's own; 0: the model has it */
} parts;

/* Options that change nothing of this model and its data. */
static dra_status check_options_of_model(const struct args *a, const dra_model *m, dra_error *err)
{
    const bool blends = dra_specs_find(dra_model_params(m), "blend") >= 0;
    if (!blends && (a->train.blend_steps > 0 || a->train.blend_anneal))
        return cli_error(err, DRA_ERR_VALUE,
                         "--blend-%s: the model has no blend that a schedule changes",
                         a->train.blend_steps > 0 ? "steps" : "anneal");
    return a->resume ? DRA_OK : cli_pairs_check(&a->data, &a->pairs, dra_model_config_of(m), err);
}

static dra_status open_data(const struct args *a, parts *p, dra_error *err)
{
    const dra_model_config *c = dra_model_config_of(p->model);
    dra_status              st = check_options_of_model(a, p->model, err);
    if (st != DRA_OK) return st;
    if (cli_are_examples(&a->data, &a->pairs, c, a->format)) {
        st = cli_examples_open(&a->data, &a->pairs, c, p->tokenizer, &p->examples, err);
        if (st == DRA_OK)
            st = cli_examples_open(&a->eval_data, &a->pairs, c, p->tokenizer, &p->eval_examples,
                                   err);
        return st;
    }
    if (!a->resume) /* a run that goes on keeps the options that it began with */
        st = cli_documents_check(&a->data, &a->eval_data, a->format, a->text_key, a->separator,
                                 err);
    if (st == DRA_OK) st = open_corpus(a, &a->data, p->tokenizer, "reading data", &p->data, err);
    if (st == DRA_OK)
        st = open_corpus(a, &a->eval_data, p->tokenizer, "reading evaluation data", &p->eval_data,
                         err);
    return st;
}

static bool has_level(const char *level)
{
    for (size_t i = 0; dra_device_level_at(i); i++)
        if (strcmp(dra_device_level_at(i), level) == 0) return true;
    return false;
}

/* Of several ranks on one machine each takes its share of the cores and one GPU. A launcher that
 * has bound them to cores has shared these already. */
static cli_source share_machine(const struct args *a, char device[32])
{
    cli_source s = a->from;
    int        which;
    const int  here = cli_launched_here(&which), cores = cli_cores_unbound();
    if (!a->comm || here < 2) return s;
    if (!s.threads && cores) s.threads = cores / here > 1 ? cores / here : 1;
    if (s.device && strcmp(s.device, "cuda") == 0) {
        snprintf(device, 32, "cuda:%d", which);
        s.device = device;
    }
    return s;
}

/* A resumed run keeps its level of kernels, unless DRA_CPU says otherwise; a GPU has no levels. */
static dra_status open_device(const struct args *a, dra_device **out, dra_error *err)
{
    char             level[DRA_DEVICE_LEVEL], device[32];
    const cli_source from = share_machine(a, device);
    const bool       known = a->resume && !getenv("DRA_CPU") &&
                       dra_run_level(a->out, level, sizeof level);
    const bool       here = known && has_level(level);
    const dra_status st = cli_device_open(&from, here ? level : NULL, out, err);
    if (st == DRA_OK && known && strcmp(dra_device_level(*out), level) != 0)
        cli_line(stderr,
                 "train    the run was computed at level %s, from now on it is %s: its last bits "
                 "may differ",
                 level, dra_device_level(*out));
    return st;
}

/* Sets the steps from --epochs and when to write samples; a run that has begun keeps the latter. */
static dra_status settle_steps(const struct args *a, parts *p, dra_error *err)
{
    char                 path[PATH_TEXT];
    const cli_train_data d = {.model = p->model,
                              .data = p->data,
                              .examples = p->examples,
                              .evaluated = p->eval_data || p->eval_examples,
                              .tokenizer = p->tokenizer};
    const bool begun = a->resume && cli_path(a->out, "train/config.json", path, sizeof path) &&
                       cli_is_there(path);
    dra_status st = DRA_OK;
    if (a->epochs > 0) st = cli_train_epochs(&d, a->epochs, &p->train, err);
    if (!begun) cli_train_samples(&d, &p->train);
    return st;
}

static dra_status open_parts(const struct args *a, parts *p, dra_error *err)
{
    dra_status st = open_device(a, &p->device, err);
    if (st == DRA_OK) st = check_resumable(a, err);
    if (st == DRA_OK) st = open_model(a, &p->train, &p->vocab, &p->tokenizer, &p->model, err);
    if (st == DRA_OK) st = open_data(a, p, err);
    if (st == DRA_OK) st = settle_steps(a, p, err);
    if (st == DRA_OK) st = cli_disk_check(a->out, p->model, &p->train, a->yes, err);
    const dra_trainer_config c = {.folder = a->out,
                                  .train = &p->train,
                                  .device = p->device,
                                  .model = p->model,
                                  .weights = a->from.model,
                                  .skip_hash = a->from.skip_hash,
                                  .data = p->data,
                                  .eval_data = p->eval_data,
                                  .tokenizer = p->tokenizer,
                                  .log = a->log,
                                  .tensorboard = a->tensorboard,
                                  .resume = a->resume,
                                  .force = a->force,
                                  .examples = p->examples,
                                  .eval_examples = p->eval_examples,
                                  .comm = a->comm};
    st = dra_comm_agree(a->comm, st, err);
    if (st == DRA_OK) st = dra_trainer_create(&c, &p->trainer, err);
    const bool loaded = a->from.model || dra_trainer_saved(a->out) >= 0;
    if (st == DRA_OK && loaded && !a->from.skip_hash)
        cli_weights_look(a->from.model ? a->from.model : a->out, dra_trainer_weights(p->trainer));
    return st;
}

static void close_parts(parts *p)
{
    dra_trainer_destroy(p->trainer);
    dra_corpus_close(p->eval_data);
    dra_corpus_close(p->data);
    dra_examples_close(p->eval_examples);
    dra_examples_close(p->examples);
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
    int64_t            seed;
    cli_text_out       out;
    dra_error          ruined; /* what the last sample met, if that was the model */
} sampling;

static bool write_piece(void *user, int64_t row, const char *text, size_t bytes)
{
    sampling *s = user;
    cli_text_out_put(&s->out, text, bytes);
    if (bytes < sizeof s->text - s->used) {
        memcpy(s->text + s->used, text, bytes);
        s->used += bytes;
    }
    return !cli_progress_stopped();
}

/* Without a prompt, a text begins with the tokens that texts begin with, else after the end of
 * another text, else on a new line. */
static dra_status read_prompt(const sampling *s, dra_generator *g, dra_error *err)
{
    const dra_tokenizer *t = s->p->tokenizer;
    const int32_t        end = dra_tokenizer_end(t);
    const bool           begins = dra_tokenizer_begin(t) >= 0;
    const char          *prompt = *s->a->prompt || begins ? s->a->prompt : "\n";
    dra_ids              ids = {0};
    if (!*s->a->prompt && !begins && end >= 0) return dra_generator_read(g, 0, 1, &end, err);
    dra_status st = dra_encode_as(t, prompt, strlen(prompt), DRA_ENCODE_BEGIN, &ids, err);
    if (st == DRA_OK) st = dra_generator_read(g, 0, ids.n, ids.data, err);
    dra_ids_free(&ids);
    return st;
}

/* Uses a new generator each time, because the weights have changed. */
static dra_status write_sample(sampling *s, dra_error *err)
{
    const dra_generator_config c = {.model = s->p->model,
                                    .weights = dra_trainer_weights(s->p->trainer),
                                    .device = s->p->device,
                                    .tokenizer = s->p->tokenizer,
                                    .sampler = {.temperature = 0.8, .seed = (uint64_t)s->seed}};
    const dra_generate_config  how = {
         .tokens = s->a->sample_tokens, .write = write_piece, .user = s};
    dra_generator *g = NULL;
    dra_generated  out;
    dra_status     st = dra_generator_create(&c, &g, err);
    if (st == DRA_OK) st = read_prompt(s, g, err);
    if (st == DRA_OK) st = dra_generate(g, &how, &out, err);
    dra_generator_destroy(g);
    return st;
}

/* A sample that fails does not end the run, whose next steps may mend it; after the last step the
 * model itself is at fault where it has no logits. */
static void show_sample(void *user, const dra_event *e)
{
    sampling *s = user;
    dra_error err = {0};
    if (!s->p->tokenizer) return; /* the run had one when it started */
    if (dra_trainer_here(s->p->trainer, NULL) != DRA_OK)
        return; /* the next line of the log ends the run */
    s->used = (size_t)snprintf(s->text, sizeof s->text, "%s", s->a->prompt);
    if (s->used >= sizeof s->text) s->used = 0;
    fputs("sample   ", stderr);
    cli_text_out_begin(&s->out, stderr, s->a->raw);
    s->out.shows = !s->a->raw; /* also in a file, since people read it */
    cli_text_out_indent(&s->out, CLI_TRAIN_LABEL);
    cli_text_out_put(&s->out, s->a->prompt, strlen(s->a->prompt));
    dra_status st = write_sample(s, &err);
    cli_text_out_end(&s->out);
    fputc('\n', stderr);
    s->text[s->used] = '\0';
    if (st == DRA_OK) st = dra_trainer_note(s->p->trainer, "sample", s->text, &err);
    if (st != DRA_OK) cli_line(stderr, "dra: sample: %s", err.text);
    s->ruined = (dra_error){0};
    if (st == DRA_ERR_VALUE) cli_error(&s->ruined, st, "sample failed: %.200s", err.text);
}

static void plan_ranks(const struct args *a, const dra_trainer_plan *plan, FILE *out)
{
    if (!a->comm) return;
    cli_line(out, "ranks    %d, for %lld microbatches; memory is that of one rank",
             dra_comm_size(a->comm), (long long)plan->train.accumulate);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Writes what the data was recognised as, if its name does not tell. */
static void write_about(const parts *p, FILE *out)
{
    const dra_corpus *all[] = {p->data, p->eval_data};
    for (size_t i = 0; i < COUNT(all); i++)
        if (all[i] && dra_corpus_about(all[i]))
            cli_line(out, "read     %s", dra_corpus_about(all[i]));
}

static void show_past(const struct args *a, const dra_trainer_plan *plan, cli_train_progress *w)
{
    char path[PATH_TEXT];
    if (!plan->first || (!a->log && !cli_path(a->out, "log.jsonl", path, sizeof path))) return;
    cli_progress_past(w, a->log ? a->log : path, plan->first);
}

/* The model is saved, but a run whose last evaluation or sample was not finite has failed. */
static dra_status check_not_ruined(const sampling *s, const cli_train_progress *w, dra_error *err)
{
    const bool sample = s->ruined.code != DRA_OK;
    if (!sample && !w->eval_ruined) return DRA_OK;
    return cli_error(
        err, DRA_ERR_VALUE,
        "%.200s: the run diverged, its last %s; the model is saved as it is (a smaller "
        "--lr or --clip may help)",
        s->a->out, sample ? s->ruined.text : "evaluation loss is not finite");
}

/* Notes where the data are and when the run was started, in its folder. */
static dra_status note_start(const struct args *a, const parts *p, const dra_trainer_plan *plan,
                             bool note, dra_error *err)
{
    dra_status st = dra_trainer_here(p->trainer, err);
    if (st == DRA_OK && note) st = note_sources(a, err);
    if (st == DRA_OK) st = dra_trainer_here(p->trainer, err);
    return st == DRA_OK && plan->first < plan->train.steps
               ? cli_started_note(a->out, p->device, plan->first > 0, err)
               : st;
}

/* What is wrong with the arguments was said by the rank that found it, and rank 0 says which it
 * was. */
static int agree_on_args(const struct args *a, int status)
{
    dra_error  err = {0};
    dra_status st = status == CLI_OK ? DRA_OK
                                     : cli_error(&err, DRA_ERR_VALUE, "its options are refused");
    st = dra_comm_agree(a->comm, st, &err);
    return st == DRA_OK || status != CLI_OK ? status : cli_ranks_fail(a->comm, &err);
}

static int run_training(const struct args *a, bool note)
{
    parts              p = {0};
    dra_error          err = {0};
    dra_trainer_plan   plan;
    sampling           samples = {.a = a, .p = &p};
    cli_train_progress w = {.sample = show_sample, .user = &samples};
    const int          status = agree_on_args(a, check_args(a, "train", &p.train));
    if (status != CLI_OK) return status;
    cli_progress_signals();
    cli_progress_answer();
    cli_progress_open(&w, stderr);
    dra_status st = open_parts(a, &p, &err);
    if (st == DRA_OK) st = dra_trainer_look(p.trainer, &plan, &err);
    if (st == DRA_OK && dra_comm_rank(a->comm) == 0) st = note_start(a, &p, &plan, note, &err);
    if (p.trainer) st = dra_comm_agree(a->comm, st, &err);
    if (st == DRA_OK) {
        if (p.vocab && !plan.first) cli_progress_bytes(a->from.preset, p.vocab, stderr);
        write_about(&p, stderr);
        cli_progress_plan(&plan, stderr);
        plan_ranks(a, &plan, stderr);
        cli_disk_plan(a->out, &plan, stderr);
        cli_train_changes(&plan, stderr);
        samples.seed = plan.train.seed;
        w.log_every = plan.train.log_every;
        w.minutes = a->minutes;
        show_past(a, &plan, &w);
        w.asks = w.status.terminal && isatty(STDIN_FILENO) && !a->yes && !plan.first;
        if (plan.first < plan.train.steps) cli_progress_first(&w, plan.first + 1, plan.train.steps);
        st = dra_trainer_run(p.trainer, cli_progress_event, &w, &err);
        cli_progress_close(&w);
        const cli_trained end = {a->out, p.model, p.tokenizer != NULL};
        if (st == DRA_OK) st = check_not_ruined(&samples, &w, &err);
        if (st == DRA_OK) cli_train_end(&end, &w, &plan);
        if (st == DRA_OK && a->json) cli_train_json(&end, &w, &plan, stdout);
    }
    close_parts(&p);
    return st == DRA_OK ? CLI_OK : cli_ranks_fail(a->comm, &err);
}

/* A resumed run finds its data again. */
static int find_and_train(struct args a)
{
    cli_train_sources s = sources_of(&a);
    cli_recalled      r = {0};
    dra_error         err = {0};
    int               status = CLI_OK;
    if (a.resume && a.data.count == 0) {
        dra_status st = check_resumable(&a, &err);
        if (st == DRA_OK) st = cli_sources_recall(a.out, &s, &r, &err);
        st = dra_comm_agree(a.comm, st, &err);
        if (st == DRA_OK)
            take_sources(&a, &s);
        else
            status = cli_ranks_fail(a.comm, &err);
    }
    if (status == CLI_OK) status = run_training(&a, !r.text);
    cli_recalled_free(&r);
    return status;
}

static dra_status check_ranks(const struct args *a, dra_error *err)
{
    const int n = dra_comm_size(a->comm);
    if (!a->ranks || n == a->ranks) return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE, "--ranks %lld: a launcher has started %d ranks",
                     (long long)a->ranks, n);
}

static int run_train(const void *args)
{
    struct args a = *(const struct args *)args;
    dra_error   err = {0};
    if (a.ranks && !cli_is_launched()) return cli_ranks_start(a.ranks);
    if (cli_is_launched()) cli_progress_signals(); /* the launcher may pass one on at any time */
    dra_status st = cli_ranks_join(&a.comm, &err);
    if (st == DRA_OK) st = dra_comm_agree(a.comm, check_ranks(&a, &err), &err);
    const int status = st == DRA_OK ? find_and_train(a) : cli_ranks_fail(a.comm, &err);
    cli_ranks_leave(a.comm);
    return status;
}

static const cli_note files[] = {
    {"DIR/config.json, model.safetensors", "the model, as of the last checkpoint"},
    {"DIR/adapter_config.json, adapter_model.safetensors", "instead of these, with --lora"},
    {"DIR/best", "the same, at the lowest evaluation loss"},
    {"DIR/log.jsonl", "a line for each logged step"},
    {"DIR/train", "checkpoints, settings, and where the data are"},
    {0},
};

static const cli_note examples[] = {
    {"dra train --preset dra-slots-tiny --data book.txt --out run --steps 2000", "train on a text"},
    {"dra train --resume --out run", "continue after a kill, Ctrl-C or a full disk"},
    {"dra train --resume --out run --steps 3000", "make it longer"},
    {"dra train --preset dra-gru-tiny --data book.txt --split 0.05 --out run-2",
     "evaluate on the last twentieth of the text"},
    {"dra train --preset dra-slots-tiny --data book.txt --carry --chunk 64 --out long",
     "rows continue where the previous ones stopped, with their state"},
    {"dra train --model run --data other.txt --out further --tensorboard",
     "train it further on another text, with a log for TensorBoard"},
    {"dra train --model run --lora r=16,alpha=32 --data other.txt --out adapter",
     "the same by factors of low rank: a small folder that stands for the model"},
    {0},
};

static const cli_note status[] = {
    {"0", "done, or stopped by a signal and saved"},
    {"1",
     "failed: one line on stderr says why; also when three steps in a row, or the last one, are "
     "not finite: what was learned before them is saved"},
    {"2", "wrong usage"},
    {0},
};

const cli_verb cmd_train = {
    .name = "train",
    .summary = "train a model on texts",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_train,
    .group = "Train",
    .about =
        "Trains a model on texts and writes a run: a model folder with checkpoints and a log. "
        "Weights are initialised at random (--preset, --config) or taken from a model (--model). "
        "The tokenizer is the one given, else the model's, else bytes; a model whose vocabulary "
        "is not 256 needs a tokenizer.\n"
        "--resume continues bit for bit from the last checkpoint, even after kill -9. It takes "
        "the settings from the checkpoint and finds the data by their paths; repeated options "
        "must match the original run, but --steps may be more: the schedule of the learning rate "
        "is stretched, unless --schedule-end says where it ends. Before the first checkpoint, "
        "repeat the command that started the run instead. Ctrl-C, SIGTERM and SIGHUP finish the "
        "step, save and stop; a second signal ends the process at once.\n"
        "A causal model learns to predict the next token, an encoder tokens that are masked: see "
        "--objective. The loss is the mean over those that are predicted; evaluations mask the "
        "same ones every time. From a preset an encoder has one token more than the tokenizer, "
        "the mask token.\n"
        "Examples are tensors with the same first size: ids (N, T) of tokens, x (N, T, D) of "
        "vectors, img of images, labels, nums, mask, by the names that the model and its objective "
        "need; docs/data.md says more. Where --src-key or --tgt-key is given, lines of JSON are "
        "pairs of texts. The log then has the objective's measure: accuracy, error or "
        "perplexity.\n"
        "Before the first step it prints what it will read and how "
        "much memory it needs; at a terminal a curve of the loss follows. If a run takes more than "
        "an hour, it asks whether to go on, where somebody can answer.",
    .files = files,
    .examples = examples,
    .status = status,
    .also = "init sweep eval generate report",
};
