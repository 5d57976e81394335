/* dra eval: how well a model predicts a text of any length, or examples. */
#include "io/corpus.h"
#include "io/memory.h"
#include "verbs/eval/choices.h"
#include "verbs/eval/examples.h"
#include "verbs/eval/tokens.h"
#include "verbs/eval/windows.h"
#include "options/status.h"
#include "options/units.h"
#include "verbs/generate/unmasking.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct args {
    cli_source  from;
    cli_list    data;
    const char *text_key, *separator;
    cli_pairs   pairs;
    int         format;
    int64_t     context, chunk; /* chunk 0: not given, of an encoder */
    int64_t     stride;         /* 0: no sliding windows */
    int         convention;
    const char *per_token, *per_question;
    bool        by_position, json;

    dra_objective_config objective;
};

enum { CARRIED, SLIDING, HALVES };
static const char *const conventions[] = {"carried", "hf", "llama.cpp", NULL};

static const struct args defaults = {.from = {.state_limit = DRA_STATE_LIMIT}, .chunk = 256};

static const cli_option options[] = {
    CLI_MODEL_OPTIONS(struct args),
    {"data", CLI_LIST, offsetof(struct args, data), 0, 0,
     "text, .jsonl, tokens (.safetensors with ids, .npy, .bin of nanoGPT or llm.c), plain or "
     "compressed by gzip or zstd, or a folder; or examples: .safetensors, .npz, .npy, or a folder "
     "of these",
     "FILE", .flags = CLI_REQUIRED, .group = "Data", .brief = 'd'},
    CLI_FORMAT_OPTION(struct args),
    CLI_TOKENIZER_OPTION(struct args),
    {"text-key", CLI_TEXT, offsetof(struct args, text_key), 0, 0,
     "key of the text in a line of "
     "JSON",
     "KEY", .unset = "text"},
    {"separator", CLI_TEXT, offsetof(struct args, separator), 0, 0,
     "a line that separates the documents of a text", "LINE"},
    CLI_PAIRS_OPTIONS(struct args),
    {"context", CLI_INT, offsetof(struct args, context), 1, INT32_MAX,
     "reset the state every N tokens; of an encoder, the length of a window",
     .unset = "only at the start of a document, or where learned positions end"},
    {"stride", CLI_INT, offsetof(struct args, stride), 1, INT32_MAX,
     "slide windows of --context tokens by N; of each, only the new tokens count",
     .unset = "no sliding windows"},
    {"convention", CLI_CHOICE, offsetof(struct args, convention), 0, 0,
     "which tokens count, with how much before them; hf: sliding windows, by default of 1024 "
     "tokens, stride 512; llama.cpp: the second halves of windows, by default of 512",
     .choices = conventions},
    {"per-token", CLI_TEXT, offsetof(struct args, per_token), 0, 0,
     "write document, position, id, text and log-probability of every counted token: lines of "
     "JSON, or .npy",
     "FILE", .flags = CLI_WRITES},
    {"by-position", CLI_FLAG, offsetof(struct args, by_position), 0, 0,
     "loss by how many tokens were read since the last reset, in powers of two"},
    {"per-question", CLI_TEXT, offsetof(struct args, per_question), 0, 0,
     "of questions: write a line of JSON for each, with the log-probability of every choice",
     "FILE", .flags = CLI_WRITES},
    {"chunk", CLI_INT, offsetof(struct args, chunk), 1, 1 << 20,
     "tokens to read at a time; not of an encoder"},
    {"mask-share", CLI_REAL, offsetof(struct args, objective.mask_share), 1e-6, 1,
     "encoder: share of tokens to mask and predict", .unset = "as trained, or 0.15"},
    {"mask-token", CLI_INT, offsetof(struct args, objective.mask_token), 0, INT32_MAX,
     "encoder: id of the mask token", .unset = "as trained, or the last of the vocabulary",
     .flags = CLI_ZERO},
    {"mask-schedule", CLI_CHOICE, offsetof(struct args, objective.mask_schedule), 0, 0,
     "encoder: share of each row that is masked; constant: --mask-share", "NAME",
     .choices = cli_mask_schedules, .unset = "as trained"},
    CLI_STATE_LIMIT_OPTION(struct args),
    CLI_DTYPE_OPTION(struct args),
    CLI_ACTIVATIONS_OPTION(struct args),
    CLI_CACHE_OPTION(struct args, "cache"),
    CLI_DEVICE_OPTIONS(struct args),
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object", .brief = 'j'},
};

enum { POSITIONS = 40 };

typedef struct position_bin { /* tokens predicted from 2^i to 2^(i+1) - 1 tokens before them */
    int64_t count;
    double  sum, squares; /* of losses */
} position_bin;

typedef struct work {
    const struct args *a;
    cli_model          m;
    dra_corpus        *corpus;
    dra_feed          *feed;
    dra_view           view;
    dra_reader        *reader;
    dra_states        *states;
    bool               encoder;
    bool               carried;              /* a row continues the one before it */
    int64_t            B, T, chunk;          /* of a batch; read `chunk` columns at a time */
    int32_t           *ids, *targets, *mark; /* (B, T) */
    int32_t           *part[3];              /* (B, chunk) of each of them */
    double             loss, seconds;        /* sum */
    int64_t            count, bytes;         /* of targets, and what they are as text */
    int64_t            bad;                  /* of them, without a finite loss */
    cli_windows        windows;              /* with --stride, in place of the feed */
    int64_t           *starts; /* (B): tokens of the corpus that rows of the batch start with */
    cli_token_scores   scores; /* with --per-token */
    int64_t           *since;  /* (B): tokens that each row has read since its last reset */
    position_bin       bins[POSITIONS];

    dra_objective_config objective;
} work;

/* ---- how the model was trained --------------------------------------------------------------- */

static int prepare_args(const void *args, void *own)
{
    const struct args *a = args;
    struct args       *to = own;
    dra_error          err = {0};
    const bool         encoder = cli_is_encoder(&a->from);
    if (!encoder && (a->format || !dra_examples_are((int)a->data.count, a->data.text)))
        return CLI_OK;
    if (encoder) to->chunk = 0;
    if (a->from.model && dra_run_objective(a->from.model, &to->objective, &err) != DRA_OK)
        return cli_fail(&err);
    return CLI_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Predicts what the model was made to predict. */
static dra_status open_objective(work *w, dra_error *err)
{
    w->objective = w->a->objective;
    w->encoder = dra_model_config_of(w->m.model)->visible == DRA_VISIBLE_BIDIRECTIONAL;
    return dra_objective_complete(&w->objective, w->m.model, err);
}

/* Tokens need none, unless it is the model's own and says where their documents end. */
static bool needs_tokenizer(const struct args *a)
{
    return a->from.tokenizer || !cli_all_tokens(&a->data, a->format) ||
           (dra_tokenizer_is_in(a->from.model) &&
            dra_corpus_wants_end((int)a->data.count, a->data.text, cli_data_format(a->format)));
}

static dra_status open_corpus(work *w, dra_error *err)
{
    const struct args *a = w->a;
    const int64_t      V = dra_model_config_of(w->m.model)->vocab;
    const char        *format = cli_data_format(a->format);
    dra_status         st = dra_corpus_look((int)a->data.count, a->data.text, format, err);
    if (st == DRA_OK)
        st = cli_documents_check(&a->data, NULL, a->format, a->text_key, a->separator, err);
    if (st == DRA_OK && needs_tokenizer(a)) st = cli_model_tokenizer(&a->from, &w->m, err);
    if (st != DRA_OK) return st;
    const dra_corpus_config c = {.n = (int)a->data.count,
                                 .paths = a->data.text,
                                 .tokenizer = w->m.tokenizer,
                                 .text_key = a->text_key,
                                 .separator = a->separator,
                                 .format = format};
    st = cli_corpus_open(&c, "reading data", &w->corpus, err);
    if (st == DRA_OK && dra_corpus_largest(w->corpus) >= V)
        st = cli_error(err, DRA_ERR_INDEX, "%.200s: token %d, the model has 0 to %lld",
                       a->data.text[0], dra_corpus_largest(w->corpus), (long long)V - 1);
    return st;
}

/* Windows of a fixed length that are no feed. */
static bool has_windows(const struct args *a) { return a->stride || a->convention != CARRIED; }

static int64_t stride_of(const work *w, int64_t context)
{
    enum { USUAL = 512 };
    if (w->a->convention == HALVES) return context;
    return w->a->stride ? w->a->stride : context < USUAL ? (context + 1) / 2 : USUAL;
}

/* The length of windows that others take where none is said. */
static int64_t usual_context(const work *w, int64_t most)
{
    const int64_t usual = w->a->convention == HALVES ? 512 : 1024;
    return most && most < usual ? most : usual;
}

static dra_status open_windows(work *w, int64_t context, dra_error *err)
{
    const bool halves = w->a->convention == HALVES;
    w->windows = (cli_windows){w->corpus, context, stride_of(w, context), 0, 0, halves};
    if (halves) return DRA_OK;
    if (!context)
        return cli_error(
            err, DRA_ERR_VALUE,
            "--stride: expected --context as well: it says how many tokens a window has, "
            "which this model itself does not limit");
    if (context >= w->a->stride) return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE, "--stride %lld: expected at most --context, %lld",
                     (long long)w->a->stride, (long long)context);
}

/* Windows of a length, several at a time, each read from its start, as encoders read all texts; or,
 * in one row, a document after the other, each from its start to its end. */
static dra_status open_feed(work *w, dra_error *err)
{
    const dra_model_config *c = dra_model_config_of(w->m.model);
    const bool              learned = c->positions == DRA_POSITIONS_LEARNED && !c->xl.memory;
    const bool              windows = learned || w->encoder;
    const int64_t           most = windows ? c->context : 0;
    const int64_t           context = w->a->context      ? w->a->context
                                      : w->a->convention ? usual_context(w, most)
                                                         : most;
    if (learned && context > c->context)
        return cli_error(err, DRA_ERR_VALUE,
                         "--context %lld: the model has no more than %lld positions",
                         (long long)context, (long long)c->context);
    w->chunk = context && (w->encoder || context < w->a->chunk) ? context : w->a->chunk;
    w->T = context ? context : w->chunk;
    w->B = context && context < 1024 ? 1 + 1024 / context : 1;
    if (w->B > 16) w->B = 16;
    w->starts = calloc((size_t)w->B, sizeof *w->starts);
    w->since = calloc((size_t)w->B, sizeof *w->since);
    if (!w->starts || !w->since) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (has_windows(w->a)) return open_windows(w, context, err);
    w->carried = !context;
    const dra_feed_config f = {
        .corpus = w->corpus, .B = w->B, .T = w->T, .carry = !context, .once = true};
    return dra_feed_create(&f, &w->feed, err);
}

static dra_status open_reader(work *w, dra_error *err)
{
    w->view = (dra_view){.model = w->m.model, .losses = true};
    dra_status st = cli_reader_open(&w->a->from, &w->m, &w->view, w->B, &w->reader, &w->states,
                                    err);
    int32_t  **all[] = {&w->ids, &w->targets, &w->mark, &w->part[0], &w->part[1], &w->part[2]};
    for (size_t i = 0; i < COUNT(all) && st == DRA_OK; i++) {
        *all[i] = calloc((size_t)(w->B * w->T), sizeof **all[i]);
        if (!*all[i]) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    }
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef enum need { SKIP, PLAIN, FRESH, MARKED } need;

/* What n columns ask for: nothing but pads; no marks, as pads come last and have no targets; all
 * rows reset at the first; or marks. */
static need look_at_marks(const work *w, int64_t n)
{
    const int32_t *mark = w->part[2];
    int64_t        pads = 0, first = 0, later = 0;
    for (int64_t i = 0; i < w->B * n; i++) {
        pads += (mark[i] & DRA_MARK_PAD) != 0;
        *(i % n ? &later : &first) += (mark[i] & DRA_MARK_RESET) != 0;
    }
    if (pads == w->B * n) return SKIP;
    if (w->encoder) return MARKED; /* it would see the pads */
    if (later || (first && first < w->B)) return MARKED;
    return first ? FRESH : PLAIN;
}

/* Special tokens are no text. */
static int64_t bytes_of(const work *w, int32_t id)
{
    size_t bytes = 0;
    if (w->m.tokenizer && !dra_tokenizer_is_special(w->m.tokenizer, id))
        dra_tokenizer_piece(w->m.tokenizer, id, &bytes);
    return (int64_t)bytes;
}

/* An encoder predicts tokens in their own places, all others the next one. */
static dra_status keep_scores(work *w, int64_t from, int64_t n, const dra_real *losses,
                              dra_error *err)
{
    dra_status st = DRA_OK;
    for (int64_t i = 0; i < w->B * n && st == DRA_OK; i++) {
        const int64_t at = w->starts[i / n] + from + i % n + !w->encoder;
        if (w->part[1][i] >= 0)
            st = cli_token_scores_add(&w->scores, at, w->part[1][i], -(double)losses[i], err);
    }
    return st;
}

/* The tokens that were read count from the last reset on: a mark, or the start of a row that does
 * not continue the one before. */
static void keep_positions(work *w, int64_t from, int64_t n, const dra_real *losses)
{
    const bool rows = !w->carried;
    for (int64_t i = 0; i < w->B * n; i++) {
        int64_t   *since = &w->since[i / n];
        const bool fresh = w->part[2][i] & DRA_MARK_RESET || (rows && from + i % n == 0);
        int        bin = 0;
        *since = fresh ? 1 : *since + 1;
        if (w->part[1][i] < 0) continue;
        while (*since >> (bin + 1) && bin < POSITIONS - 1) bin++;
        w->bins[bin].count++;
        w->bins[bin].sum += (double)losses[i];
        w->bins[bin].squares += (double)losses[i] * (double)losses[i];
    }
}

static dra_status read_part(work *w, int64_t from, int64_t n, dra_error *err)
{
    const int32_t *whole[] = {w->ids, w->targets, w->mark};
    const size_t   bytes = (size_t)(w->B * n) * sizeof(int32_t);
    for (int k = 0; k < 3; k++)
        for (int64_t b = 0; b < w->B; b++)
            memcpy(w->part[k] + b * n, whole[k] + b * w->T + from, (size_t)n * sizeof(int32_t));
    const need      what = look_at_marks(w, n);
    const dra_named in[] = {{"ids", w->part[0], bytes}, {"targets", w->part[1], bytes}};
    if (what == SKIP) return DRA_OK;
    dra_status st = what == FRESH ? dra_states_reset(w->states, -1, err) : DRA_OK;
    if (st == DRA_OK)
        st = dra_reader_read(w->reader, w->states, n, what == MARKED ? w->part[2] : NULL, 2, in,
                             err);
    if (st != DRA_OK) return st;
    const dra_real *losses = dra_reader_result(w->reader, "losses");
    if (!losses) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < w->B * n; i++) {
        if (w->part[1][i] < 0) continue;
        w->loss += (double)losses[i];
        w->bad += !isfinite(losses[i]);
        w->bytes += bytes_of(w, w->part[1][i]);
        w->count++;
    }
    if (w->a->by_position) keep_positions(w, from, n, losses);
    return w->a->per_token ? keep_scores(w, from, n, losses, err) : DRA_OK;
}

static void show_loss(const work *w, cli_status *s, double share)
{
    if (!cli_status_at(s, share)) return;
    cli_status_field(s, 1, "evaluating");
    cli_status_bar(s, 0);
    if (w->count) cli_status_field(s, 0, "loss %.4f", w->loss / (double)w->count);
    cli_status_left(s, 0);
    cli_status_show(s);
}

static void next_batch(work *w, int64_t step)
{
    if (has_windows(w->a)) {
        cli_windows_batch(&w->windows, w->B, w->ids, w->targets, w->mark, w->starts);
        return;
    }
    dra_feed_batch(w->feed, step, w->ids, w->targets, w->mark);
    for (int64_t b = 0; b < w->B; b++) w->starts[b] = dra_feed_start(w->feed, step, b);
}

static dra_status read_all(work *w, dra_error *err)
{
    const double  start = cli_now();
    const int64_t steps = has_windows(w->a) ? (cli_windows_count(&w->windows) + w->B - 1) / w->B
                                            : dra_feed_steps(w->feed);
    cli_status    status;
    dra_status    st = DRA_OK;

    dra_objective_rows rows = {w->B, w->T, w->ids, w->targets, w->mark, .seed = DRA_EVAL_SEED};
    cli_status_open(&status, stderr);
    for (int64_t step = 0; step < steps && st == DRA_OK; step++) {
        next_batch(w, step);
        rows.row = step * w->B;
        dra_objective_make(&w->objective, w->m.model, &rows);
        for (int64_t from = 0; from < w->T && st == DRA_OK; from += w->chunk) {
            const int64_t left = w->T - from;
            st = read_part(w, from, left < w->chunk ? left : w->chunk, err);
        }
        show_loss(w, &status, (double)(step + 1) / (double)steps);
    }
    cli_status_clear(&status);
    w->seconds = cli_now() - start;
    if (st == DRA_OK && w->count == 0)
        st = cli_error(err, DRA_ERR_VALUE,
                       w->encoder ? "%.200s: no token was masked, expected more of them"
                                  : "%.200s: no document has two tokens",
                       w->a->data.text[0]);
    return st;
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* The standard error of a mean loss; NaN for one token. */
static double error_of(const position_bin *b)
{
    const double n = (double)b->count, mean = b->sum / n;
    return n > 1 ? sqrt(fmax(0, b->squares / n - mean * mean) / (n - 1)) : NAN;
}

static void print_positions(const work *w)
{
    if (!w->a->by_position) return;
    printf("\n%12s  %10s  %10s  %10s\n", "tokens read", "predicted", "loss", "+-");
    for (int i = 0; i < POSITIONS; i++) {
        const position_bin *b = &w->bins[i];
        char                error[32] = "-";
        if (!b->count) continue;
        if (b->count > 1) snprintf(error, sizeof error, "%.4f", error_of(b));
        printf("%12lld  %10lld  %10.4f  %10s\n", 1LL << i, (long long)b->count,
               b->sum / (double)b->count, error);
    }
}

static void print_positions_json(const work *w)
{
    const char *between = "";
    char        room[2][CLI_NUMBER];
    if (!w->a->by_position) return;
    fputs(", \"by_position\": [", stdout);
    for (int i = 0; i < POSITIONS; i++) {
        const position_bin *b = &w->bins[i];
        if (!b->count) continue;
        printf("%s{\"position\": %lld, \"tokens\": %lld, \"loss\": %s, \"error\": %s}", between,
               1LL << i, (long long)b->count,
               cli_json_number(b->sum / (double)b->count, 9, room[0]),
               cli_json_number(error_of(b), 4, room[1]));
        between = ", ";
    }
    putchar(']');
}

/* Counted are tokens; where all have a loss, a perplexity that is too large for a number. */
static void print_json(const work *w, double loss, double bits, double rate)
{
    const int64_t bad = w->bad ? w->bad : !isfinite(exp(loss));
    char          room[4][CLI_NUMBER];
    printf("{\"tokens\": %lld, \"loss\": %s, \"perplexity\": %s, \"bits_per_byte\": %s, "
           "\"tokens_per_second\": %s",
           (long long)w->count, cli_json_number(loss, 9, room[0]),
           cli_json_number(exp(loss), 9, room[1]), cli_json_number(bits, 9, room[2]),
           cli_json_number(rate, 6, room[3]));
    if (has_windows(w->a))
        printf(", \"convention\": \"%s\", \"context\": %lld, \"stride\": %lld",
               w->windows.halves ? "second halves" : "sliding windows",
               (long long)w->windows.context, (long long)w->windows.stride);
    printf(", \"clamped\": %lld", (long long)dra_reader_clamped(w->reader));
    if (bad) printf(", \"not_finite\": %lld", (long long)bad);
    print_positions_json(w);
    printf(", \"state_bytes\": %zu, \"peak_bytes\": %lld}\n",
           dra_states_bytes(w->states) / (size_t)w->B, (long long)cli_peak_bytes());
}

/* A perplexity may be too large for a number; without a loss there is no result. */
static dra_status print_result(const work *w, dra_error *err)
{
    const double loss = w->loss / (double)w->count;
    const double rate = (double)w->count / fmax(w->seconds, 1e-9);
    const double bits = w->bytes ? w->loss / log(2) / (double)w->bytes : NAN;
    char         room[CLI_NUMBER];
    snprintf(room, sizeof room, w->bytes ? "%.9g" : "-", bits);
    if (w->a->json)
        print_json(w, loss, bits, rate);
    else
        printf("tokens             %lld\nloss               %.6f\nperplexity         %.6g\n"
               "bits per byte      %s\ntokens per second  %.4g\n",
               (long long)w->count, loss, exp(loss), room, rate);
    if (!w->a->json && w->windows.halves)
        printf("convention         second halves of windows of %lld tokens (llama.cpp)\n",
               (long long)w->windows.context);
    else if (!w->a->json && has_windows(w->a))
        printf("convention         sliding windows of %lld tokens, stride %lld (Hugging Face)\n",
               (long long)w->windows.context, (long long)w->windows.stride);
    if (!w->a->json) print_positions(w);
    if (!w->bad) return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE, "the losses of %lld of %lld tokens are not finite",
                     (long long)w->bad, (long long)w->count);
}

/* Texts, from opening them to the answer. */
static dra_status eval_texts(work *w, dra_error *err)
{
    dra_status st = open_corpus(w, err);
    if (st == DRA_OK) st = open_feed(w, err);
    if (st == DRA_OK) st = open_reader(w, err);
    if (st == DRA_OK) st = read_all(w, err);
    if (st == DRA_OK && w->a->per_token)
        st = cli_token_scores_write(&w->scores, w->a->per_token, w->corpus, w->m.tokenizer, err);
    if (st == DRA_OK) st = print_result(w, err);
    if (st == DRA_OK) cli_clamp_report("eval", &w->a->from, dra_reader_clamped(w->reader));
    return st;
}

static dra_status eval_questions(work *w, dra_error *err)
{
    const struct args         *a = w->a;
    const cli_eval_choices_job job = {&a->from, &a->data, &w->m, a->per_question, a->json};
    const dra_model_config    *c = dra_model_config_of(w->m.model);
    if (dra_model_config_is_language(c) && !w->encoder) return cli_eval_choices(&job, err);
    return cli_error(err, DRA_ERR_VALUE,
                     "%.200s: questions with choices are for language models that read from left "
                     "to right, found %s",
                     a->data.text[0], w->encoder ? "an encoder" : "another kind of model");
}

static dra_status eval_any(work *w, dra_error *err)
{
    const struct args          *a = w->a;
    const cli_eval_examples_job job = {&a->from, &a->data,      &a->pairs,
                                       &w->m,    &w->objective, a->json};
    const dra_model_config     *c = dra_model_config_of(w->m.model);
    const bool questions = !a->format && !a->text_key && !cli_are_pairs(&a->data, &a->pairs, c) &&
                           cli_are_choices(&a->data);
    const bool       texts = !questions && !cli_are_examples(&a->data, &a->pairs, c, a->format);
    const dra_status st = cli_pairs_check(&a->data, &a->pairs, c, err);
    if (st != DRA_OK) return st;
    if (texts && !dra_model_config_is_language(c))
        return cli_error(err, DRA_ERR_VALUE,
                         "--data: the model is not a language model: it learns from examples, "
                         "found texts");
    if (!questions && a->per_question)
        return cli_error(err, DRA_ERR_VALUE,
                         "--per-question: expected lines of context, choices and answer in %.200s",
                         a->data.text[0]);
    if (texts) return eval_texts(w, err);
    const char *texts_only = a->context       ? "--context"
                             : a->stride      ? "--stride"
                             : a->convention  ? "--convention"
                             : a->per_token   ? "--per-token"
                             : a->by_position ? "--by-position"
                                              : NULL;
    if (texts_only)
        return cli_error(err, DRA_ERR_VALUE, "%s: the data are %s, expected texts", texts_only,
                         questions ? "questions" : "examples");
    if (questions) return eval_questions(w, err);
    return cli_eval_examples(&job, err);
}

static int check_args(const struct args *a)
{
    const int status = cli_source_check("eval", &a->from);
    if (status == CLI_OK && a->stride && a->convention == HALVES)
        return cli_misused("eval", "--stride: llama.cpp's windows follow each other");
    if (status != CLI_OK || !cli_is_encoder(&a->from)) return status;
    if (a->by_position)
        return cli_misused("eval", "--by-position: the model is an encoder, which reads all tokens "
                                   "at once");
    if (a->convention)
        return cli_misused("eval", "--convention: the model is an encoder, which others do not "
                                   "measure like this");
    if (a->stride)
        return cli_misused("eval", "--stride: the model is an encoder, which sees both sides of a "
                                   "token; see --context");
    if (!a->chunk) return CLI_OK;
    return cli_misused("eval", "--chunk: the model is an encoder, which reads a text as a whole; "
                               "see --context");
}

static int run_eval(const void *args)
{
    work      w = {.a = args};
    dra_error err = {0};
    const int status = check_args(w.a);
    if (status != CLI_OK) return status;
    dra_status st = cli_model_open(&w.a->from, &w.m, &err);
    if (st == DRA_OK) st = open_objective(&w, &err);
    if (st == DRA_OK) st = eval_any(&w, &err);
    free(w.ids);
    free(w.targets);
    free(w.mark);
    free(w.starts);
    free(w.since);
    cli_token_scores_free(&w.scores);
    for (int k = 0; k < 3; k++) free(w.part[k]);
    dra_reader_destroy(w.reader);
    dra_states_destroy(w.states);
    dra_feed_destroy(w.feed);
    dra_corpus_close(w.corpus);
    cli_model_close(&w.m);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static const cli_note examples[] = {
    {"dra eval --model model --data other.txt", "print the numbers as a table"},
    {"dra eval --model model --data other.txt --context 128 --json",
     "with a short context, as JSON"},
    {"dra eval --model model --data other.txt --context 64 --stride 16 --per-token tokens.jsonl",
     "sliding windows, and the score of every token"},
    {"dra eval --model model --data other.txt --convention llama.cpp --context 128",
     "count as llama.cpp's perplexity does"},
    {"dra eval --model model --data questions.jsonl --per-question answers.jsonl",
     "questions with several answers"},
    {0},
};

static const cli_note same_examples[] = {
    {"dra perplexity --model model --data other.txt --convention llama.cpp --context 128",
     "as llama.cpp's perplexity with -c 128"},
    {"dra perplexity --model model --data other.txt --convention hf --context 128 --stride 64",
     "as Hugging Face's page"},
    {0},
};

const cli_verb cmd_eval = {
    .name = "eval",
    .prepare = prepare_args,
    .summary = "measure how well a model predicts a text or answers questions",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_eval,
    .group = "Use",
    .about =
        "Reads a text and prints how many tokens it has, their mean loss in nats, "
        "perplexity, bits per byte and tokens per second. The first token of a document is "
        "not predicted and does not count.\n"
        "The state is carried through a document. --chunk affects speed and memory, not the "
        "loss; --context resets the state every N tokens. The memory needed does not grow "
        "with the file, unless the state grows with the text.\n"
        "--stride slides windows of --context tokens over each document and counts only the "
        "tokens that are new in each, as Hugging Face's perplexity does. --convention names "
        "it, with its usual numbers, or llama.cpp's: windows that follow each other, of which "
        "the second halves count, and no rest. --per-token writes every counted token with "
        "its log-probability. --by-position adds the loss by how much was read before, with its "
        "standard error.\n"
        "Lines of JSON with context, choices and answer are questions: accuracy (headline) is "
        "how often the answer has the largest sum of log-probabilities, lm-eval's acc; "
        "accuracy per byte divides by the bytes of each choice, as acc_norm does by its "
        "characters.\n"
        "An encoder reads windows of --context tokens (by default the model's context). A "
        "share of their tokens is masked, always the same ones, and predicted from all "
        "others of the window; the numbers are of these alone. Its perplexity, e to the mean "
        "loss, is how many tokens it hesitates between where it sees both sides: not to be "
        "compared with that of a causal model.\n"
        "For examples it prints the loss and the objective's measure: accuracy, error or "
        "perplexity.",
    .examples = examples,
    .also = "train generate",
};

/* The same under the name that others have for it. */
const cli_verb cmd_perplexity = {
    .name = "perplexity",
    .prepare = prepare_args,
    .summary = "dra eval, by the name of other programs; see --convention",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_eval,
    .group = "Use",
    .about = "The same as dra eval. Perplexities of programs can only be compared where they count "
             "the same tokens after as much text: --convention names what Hugging Face's page and "
             "llama.cpp's perplexity do, and the answer says which one it was.",
    .examples = same_examples,
    .also = "eval convert",
};
