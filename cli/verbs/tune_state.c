/* dra tune-state: learns the state that a model starts from, and nothing else. */
#include "io/corpus.h"
#include "io/model.h"
#include "options/value.h"
#include "verbs/train/progress.h"

#include "dra/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct args {
    cli_source       from;
    cli_list         data;
    const char      *start, *out, *text_key, *separator, *cache;
    dra_train_config train;
    int64_t          context;
    int              format;
    bool             json;
};

static const struct args defaults = {0};

CLI_CHOICES(precisions, DRA_PRECISION_Q8, "full", "bf16", "tf32");

#define AT(f) offsetof(struct args, f)
#define TRAIN(f) offsetof(struct args, train.f)

static const cli_option options[] = {
    {"model", CLI_TEXT, AT(from.model), 0, 0, "folder or file of the model, which stays as it is",
     "PATH", .flags = CLI_A_MODEL | CLI_REQUIRED, .group = "Model", .brief = 'm'},
    CLI_PLUGIN_OPTION(struct args),
    CLI_SKIP_HASH_OPTION(struct args),
    {"from", CLI_TEXT, AT(start), 0, 0,
     "a state to start from: a state file of this model, or time_state of RWKV's trainers (.pth, "
     ".safetensors)",
     "FILE", .unset = "the model's own initial state"},
    {"data", CLI_LIST, AT(data), 0, 0, "texts, as of dra train; none with --steps 0", "FILE",
     .group = "Data", .brief = 'd'},
    CLI_FORMAT_OPTION(struct args),
    CLI_TOKENIZER_OPTION(struct args),
    {"split", CLI_REAL, TRAIN(split), 0, 0.9, "hold out this last part of the data and measure it",
     .unset = "0.1", .flags = CLI_ZERO},
    {"text-key", CLI_TEXT, AT(text_key), 0, 0, "key of the text in a line of .jsonl", "KEY",
     .unset = "text"},
    {"separator", CLI_TEXT, AT(separator), 0, 0, "a line that separates the documents of a text",
     "LINE"},
    {"cache", CLI_TEXT, AT(cache), 0, 0, "folder that keeps the encoded tokens for the next run",
     "DIR"},
    {"out", CLI_TEXT, AT(out), 0, 0, "the state file to write", "FILE",
     .flags = CLI_REQUIRED | CLI_WRITES | CLI_TENSORS, .group = "State", .brief = 'o'},
    {"steps", CLI_INT, TRAIN(steps), 0, 1e9, "optimizer steps; 0: write what --from has",
     .unset = "300", .brief = 'n', .flags = CLI_ZERO},
    {"batch", CLI_INT, TRAIN(batch), 1, 1 << 20, "rows per step, each from the state on",
     .unset = "8"},
    {"context", CLI_INT, AT(context), 1, 1 << 20, "tokens per row", "T", .unset = "the model's"},
    {"lr", CLI_REAL, TRAIN(lr), 0, 100, "learning rate; larger than one of weights",
     .unset = "0.02", .flags = CLI_ZERO},
    {"min-lr", CLI_REAL, TRAIN(min_lr), 0, 100, "learning rate at the last step",
     .unset = "lr / 10", .flags = CLI_ZERO},
    {"warmup", CLI_INT, TRAIN(warmup), 0, 1e12, "steps until lr is reached",
     .unset = "4 % of the steps", .flags = CLI_ZERO},
    {"clip", CLI_REAL, TRAIN(clip), 0, 1e9, "largest norm of the gradient; 0: no clipping",
     .unset = "1", .flags = CLI_ZERO},
    {"seed", CLI_INT, TRAIN(seed), 0, 1e15, "seed of the data order", .brief = 's',
     .flags = CLI_ZERO},
    {"eval-every", CLI_INT, TRAIN(eval_every), 0, 1e12,
     "steps between measurements of what is held out; 0: before and after", .unset = "a tenth",
     .flags = CLI_ZERO},
    {"recompute", CLI_FLAG, TRAIN(recompute), 0, 0,
     "recompute activations for the gradient instead of keeping them"},
    {"precision", CLI_CHOICE, TRAIN(precision), 0, 0, "precision of products",
     .choices = precisions},
    CLI_DEVICE_OPTIONS(struct args),
    {"json", CLI_FLAG, AT(json), 0, 0, "print one JSON object at the end", .brief = 'j'},
};

typedef struct work {
    const struct args *a;
    cli_model          m;
    dra_corpus        *corpus;
    dra_states        *start, *state;
    double             before, after; /* losses of what is held out */
    int64_t            steps;         /* that were made */
} work;

/* ---- the state to start from ----------------------------------------------------------------- */

static bool is_state_file(const char *path)
{
    dra_tensors *file = NULL;
    bool         is = dra_tensors_open(path, &file, NULL) == DRA_OK;
    const char  *format = is ? dra_tensors_metadata(file, "format") : NULL;
    is = format && strcmp(format, "dra-state") == 0;
    dra_tensors_close(file);
    return is;
}

static dra_status open_start(work *w, dra_error *err)
{
    const char *path = w->a->start;
    dra_context c = {0};
    dra_status  st = DRA_OK;
    if (path && is_state_file(path)) {
        st = dra_context_load(w->m.device, w->m.model, w->m.weights, path, &c, err);
        w->start = c.states;
        c.states = NULL;
        dra_context_free(&c);
        if (st == DRA_OK && dra_states_batch(w->start) != 1)
            st = cli_error(err, DRA_ERR_VALUE, "%.200s: has %lld sequences, expected 1", path,
                           (long long)dra_states_batch(w->start));
        return st;
    }
    st = dra_states_create(w->m.device, dra_model_state(w->m.model), 1, &w->start, err);
    return st == DRA_OK && path ? dra_rwkv_time_state(w->m.model, path, w->start, err) : st;
}

/* ---- learning -------------------------------------------------------------------------------- */

static bool show_step(void *user, const dra_tune_event *e)
{
    work      *w = user;
    const bool measured = !isnan(e->eval_loss);
    if (measured && e->step == 0) w->before = e->eval_loss;
    if (measured) w->after = e->eval_loss;
    w->steps = e->step;
    if (measured && e->step == 0) cli_line(stderr, "start    held-out loss %.4f", e->eval_loss);
    if (measured && e->step > 0)
        cli_line(stderr, "step %lld/%lld  loss %.4f  lr %.2e  norm %.2f  held-out loss %.4f",
                 (long long)e->step, (long long)e->steps, e->loss, e->rate, e->norm, e->eval_loss);
    if (!measured && e->step > 0 && e->step % 10 == 0)
        cli_line(stderr, "step %lld/%lld  loss %.4f  lr %.2e  norm %.2f", (long long)e->step,
                 (long long)e->steps, e->loss, e->rate, e->norm);
    return !cli_progress_stopped();
}

static dra_train_config settings_of(const struct args *a)
{
    dra_train_config c = a->train;
    if (a->context) c.stages = 1, c.stage[0] = (dra_stage){.context = a->context};
    return c;
}

static dra_status learn_state(work *w, dra_error *err)
{
    const struct args      *a = w->a;
    const dra_train_config  train = settings_of(a);
    const dra_corpus_config data = {.n = (int)a->data.count,
                                    .paths = a->data.text,
                                    .tokenizer = w->m.tokenizer,
                                    .text_key = a->text_key,
                                    .separator = a->separator,
                                    .cache = a->cache,
                                    .format = cli_data_format(a->format)};
    dra_status              st = cli_corpus_open(&data, "reading data", &w->corpus, err);
    const dra_tune_config   c = {.device = w->m.device,
                                 .model = w->m.model,
                                 .weights = a->from.model,
                                 .skip_hash = true, /* it was checked when the model was opened */
                                 .data = w->corpus,
                                 .train = &train,
                                 .from = w->start,
                                 .event = show_step,
                                 .user = w};
    return st == DRA_OK ? dra_tune_state(&c, &w->state, err) : st;
}

/* Nothing was read, so nothing is known of what follows: all tokens alike. */
static dra_status save_state(work *w, dra_error *err)
{
    const size_t V = (size_t)dra_model_config_of(w->m.model)->vocab;
    dra_context  c = {.states = w->state ? w->state : w->start,
                      .logits = calloc(V + 1, sizeof *c.logits),
                      .seen = calloc(V + 1, sizeof *c.seen)};
    dra_status   st = c.logits && c.seen ? DRA_OK : cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (st == DRA_OK) st = dra_context_save(w->m.model, w->m.weights, &c, w->a->out, err);
    free(c.logits);
    free(c.seen);
    return st;
}

static void put_loss(const char *name, double loss)
{
    if (isnan(loss))
        printf(", \"%s\": null", name);
    else
        printf(", \"%s\": %.9g", name, loss);
}

static void tell_end(const work *w)
{
    if (w->a->json) {
        printf("{\"state\": ");
        cli_json_text(w->a->out, stdout);
        printf(", \"steps\": %lld", (long long)w->steps);
        put_loss("before", w->before);
        put_loss("after", w->after);
        puts("}");
        return;
    }
    if (!isnan(w->after))
        cli_line(stderr, "held-out loss %.4f before, %.4f after", w->before, w->after);
    cli_line(stderr, "done: the state is in %.400s", w->a->out);
}

static int check_args(const struct args *a)
{
    const bool none = a->train.steps < 0;
    if (none && (!a->start || a->data.count))
        return cli_misused("tune-state", "--steps 0: expected --from and no --data");
    if (!none && !a->data.count)
        return cli_misused("tune-state", "expected --data, the texts to learn from");
    return cli_causal_check("tune-state", &a->from, "has no state to start from");
}

static int run_tune_state(const void *args)
{
    work      w = {.a = args, .before = NAN, .after = NAN};
    dra_error err = {0};
    const int status = check_args(w.a);
    if (status != CLI_OK) return status;
    cli_progress_signals();
    dra_status st = cli_model_open(&w.a->from, &w.m, &err);
    if (st == DRA_OK) st = open_start(&w, &err);
    const bool learns = w.a->train.steps >= 0;
    if (st == DRA_OK && learns) st = cli_model_tokenizer_if(&w.a->from, &w.m, &err);
    if (st == DRA_OK && learns) st = learn_state(&w, &err);
    if (st == DRA_OK) st = save_state(&w, &err);
    if (st == DRA_OK) tell_end(&w);
    dra_states_destroy(w.start);
    dra_states_destroy(w.state);
    dra_corpus_close(w.corpus);
    cli_model_close(&w.m);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static const cli_note examples[] = {
    {"dra tune-state --model model --data other.txt --out manner.state --steps 20",
     "learn a state from a text"},
    {"dra generate --model model --state-in manner.state --prompt \"Once\"", "and start from it"},
    {"dra tune-state --model model --from manner.state --data book.txt --out more.state --steps 20",
     "learn it further"},
    {0},
};

const cli_verb cmd_tune_state = {
    .name = "tune-state",
    .summary = "learn the state that texts start from",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_tune_state,
    .group = "Train",
    .about =
        "Learns the initial state of a model's memories from texts, by AdamW, and writes it as a "
        "state file; the model stays as it is. Whatever starts from that file (generate "
        "--state-in, /load in a chat, a server) behaves as if the model had read something before "
        "that makes such texts likely.\n"
        "Every row starts from the state and reads across the ends of documents. The last part of "
        "the data (--split) is held out and measured before, meanwhile and after. Memories of "
        "fixed size have such a state; attention, which keeps an item for each token, has none, "
        "and a model of nothing else is refused. So is RWKV-4, whose state is relative to a "
        "maximum. After Ctrl-C the state as it is then is written.",
    .examples = examples,
    .also = "train generate chat serve",
};
