/* dra embed: a vector for every text, pooled from a model's last hidden states. */
#include "io/engine.h"
#include "io/line_read.h"
#include "io/npy.h"
#include "options/status.h"
#include "io/texts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const pools[] = {"mean", "last", "first", "cls", NULL};
static const dra_pooling poolings[] = {DRA_EMBED_MEAN, DRA_EMBED_LAST, DRA_EMBED_FIRST,
                                       DRA_EMBED_FIRST};

typedef struct args {
    cli_source  from;
    cli_list    text, texts;
    const char *text_key, *out;
    int         pool;
    int64_t     batch;
    bool        normalise;
} args;

static const args defaults = {.from = {.state_limit = DRA_STATE_LIMIT}, .batch = 8};

static const cli_option options[] = {
    CLI_MODEL_OPTIONS(args),
    {"text", CLI_LIST, offsetof(args, text), 0, 0, "a text; -: stdin", "TEXT",
     .flags = CLI_ALSO_PLACED | CLI_ONE_PLACE, .group = "Input"},
    {"texts", CLI_LIST, offsetof(args, texts), 0, 0,
     "a text in every line, of .jsonl in an object; -: lines of stdin", "FILE|-"},
    {"text-key", CLI_TEXT, offsetof(args, text_key), 0, 0,
     "key of the text in a line of JSON; with it, all lines are JSON", "KEY",
     .unset = "text, of .jsonl"},
    CLI_TOKENIZER_OPTION(args),
    {"pool", CLI_CHOICE, offsetof(args, pool), 0, 0,
     "which hidden states make the vector: the mean of all tokens, the last, the first (cls)",
     .choices = pools, .group = "Output"},
    {"normalise", CLI_FLAG, offsetof(args, normalise), 0, 0, "scale vectors to length 1"},
    {"out", CLI_TEXT, offsetof(args, out), 0, 0,
     ".safetensors or .npy to write; without it, lines of JSON on stdout", "FILE", .brief = 'o',
     .flags = CLI_WRITES},
    {"batch", CLI_INT, offsetof(args, batch), 1, 1024,
     "texts of similar length to read at a time; changes the speed, but no bit", .group = "Speed"},
    CLI_STATE_LIMIT_OPTION(args),
    CLI_DTYPE_OPTION(args),
    CLI_ACTIVATIONS_OPTION(args),
    CLI_CACHE_OPTION(args, "cache"),
    CLI_DEVICE_OPTIONS(args),
};

typedef struct work {
    const args      *a;
    cli_model        m;
    cli_texts        texts;
    dra_engine      *engine;
    int64_t          C;
    dra_real        *out; /* (n, C) */
    int32_t         *lengths;
    struct embedded *jobs; /* (n): by the lengths of texts */
    dra_error        error;
} work;

typedef struct embedded { /* a text that is read */
    work  *of;
    size_t text;
} embedded;

/* ---- opening --------------------------------------------------------------------------------- */

static dra_status read_texts(work *w, dra_error *err)
{
    const args *a = w->a;
    dra_status  st = cli_model_tokenizer(&a->from, &w->m, err);
    if (st == DRA_OK) st = cli_texts_list(&w->texts, w->m.tokenizer, &a->text, err);
    for (size_t i = 0; i < a->texts.count && st == DRA_OK; i++)
        st = cli_texts_file(&w->texts, w->m.tokenizer, a->texts.text[i], a->text_key, err);
    if (st == DRA_OK && !w->texts.n)
        st = cli_error(err, DRA_ERR_VALUE, "%.200s: no texts, expected 1 or more",
                       a->texts.text[0]);
    return st;
}

/* Shortest first, then as given: those that are as long with their pads are read together. */
static int by_length(const void *a, const void *b)
{
    const embedded *x = a, *y = b;
    const size_t    m = x->of->texts.ids[x->text].n, n = y->of->texts.ids[y->text].n;
    return m != n ? (m > n ? 1 : -1) : (x->text > y->text) - (x->text < y->text);
}

static dra_status make_room(work *w, dra_error *err)
{
    const size_t n = w->texts.n;
    w->out = calloc(n * (size_t)w->C, sizeof *w->out);
    w->lengths = calloc(n, sizeof *w->lengths);
    w->jobs = calloc(n, sizeof *w->jobs);
    if (!w->out || !w->lengths || !w->jobs) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        w->lengths[i] = (int32_t)w->texts.ids[i].n;
        w->jobs[i] = (embedded){w, i};
    }
    qsort(w->jobs, n, sizeof *w->jobs, by_length);
    return DRA_OK;
}

static dra_status open_work(work *w, dra_error *err)
{
    dra_status st = cli_model_open(&w->a->from, &w->m, err);
    if (st == DRA_OK) st = read_texts(w, err);
    if (st != DRA_OK) return st;
    w->C = dra_model_config_of(w->m.model)->dim;
    st = make_room(w, err);
    return st == DRA_OK ? cli_engine_open(&w->a->from, &w->m, w->a->batch, &w->engine, err) : st;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void take_vector(void *user, const dra_job_result *result)
{
    const embedded *job = user;
    work           *w = job->of;
    dra_real       *to = w->out + job->text * (size_t)w->C;
    double          square = 0;
    if (result->end == DRA_JOB_FAILED && w->error.code == DRA_OK)
        cli_error(&w->error, result->error.code, "text %zu: %s", job->text + 1, result->error.text);
    if (result->end != DRA_JOB_DONE) return;
    for (int64_t c = 0; c < w->C; c++)
        square += (double)result->vector[c] * (double)result->vector[c];
    const double scale = !w->a->normalise ? 1 : square > 0 ? 1 / sqrt(square) : 0;
    for (int64_t c = 0; c < w->C; c++) to[c] = (dra_real)((double)result->vector[c] * scale);
}

static dra_status submit(work *w, embedded *job, dra_error *err)
{
    const dra_ids       *ids = &w->texts.ids[job->text];
    const dra_job_config config = {.kind = DRA_JOB_EMBED,
                                   .n = ids->n,
                                   .ids = ids->data,
                                   .pooling = poolings[w->a->pool],
                                   .end = take_vector,
                                   .user = job};
    dra_error            why = {0};
    uint64_t             id;
    const dra_status     st = dra_engine_submit(w->engine, &config, &id, &why);
    return st == DRA_OK ? st : cli_error(err, st, "text %zu: %s", job->text + 1, why.text);
}

static dra_status read_all(work *w, dra_error *err)
{
    dra_status st = DRA_OK;
    cli_status status;
    cli_status_open(&status, stderr);
    for (size_t i = 0; i < w->texts.n && st == DRA_OK && w->error.code == DRA_OK; i++) {
        st = cli_engine_run(w->engine, w->a->batch, err);
        if (st == DRA_OK) st = submit(w, &w->jobs[i], err);
        cli_status_step(&status, "embedding", (double)i / (double)w->texts.n);
    }
    if (st == DRA_OK) st = cli_engine_run(w->engine, 0, err);
    cli_status_clear(&status);
    if (st == DRA_OK && w->error.code != DRA_OK) *err = w->error;
    return st == DRA_OK ? w->error.code : st;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void print_vectors(const work *w)
{
    const int digits = sizeof(dra_real) == 8 ? 17 : 9;
    char      room[CLI_NUMBER];
    for (size_t i = 0; i < w->texts.n; i++) {
        printf("{\"index\": %zu, \"tokens\": %d, \"embedding\": [", i, w->lengths[i]);
        for (int64_t c = 0; c < w->C; c++)
            printf("%s%s", c ? ", " : "",
                   cli_json_number((double)w->out[i * (size_t)w->C + (size_t)c], digits, room));
        puts("]}");
    }
}

static dra_status write_vectors(const work *w, dra_error *err)
{
    const int64_t         n = (int64_t)w->texts.n;
    const dra_tensor_item items[] = {
        {"embeddings", DRA_REAL, DRA_SHAPE(n, w->C), w->out},
        {"lengths", DRA_I32, DRA_SHAPE(n), w->lengths},
    };
    char shape[64];
    if (!w->a->out) {
        print_vectors(w);
        return DRA_OK;
    }
    if (!cli_ends_with(w->a->out, ".npy"))
        return dra_tensors_write(w->a->out, items, COUNT(items), NULL, 0, err);
    snprintf(shape, sizeof shape, "%lld, %lld", (long long)n, (long long)w->C);
    return cli_npy_write(w->a->out, CLI_NPY_REAL, shape, w->out,
                         (size_t)(n * w->C) * sizeof *w->out, err);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int check_args(const args *a)
{
    int status = cli_source_check("embed", &a->from);
    if (status == CLI_OK)
        status = cli_language_check("embed", &a->from, "; see 'dra forward --outputs hidden'");
    if (status != CLI_OK) return status;
    if (!a->text.count && !a->texts.count)
        return cli_misused("embed", "expected --text or --texts");
    if (a->text_key && !a->texts.count)
        return cli_misused("embed", "--text-key: expected --texts, whose lines have it");
    if (a->out && !cli_ends_with(a->out, ".npy") && !cli_ends_with(a->out, ".safetensors"))
        return cli_misused("embed",
                           "--out: expected a name that ends with .safetensors or .npy, "
                           "found %.200s",
                           a->out);
    return CLI_OK;
}

static int run_embed(const void *given)
{
    work      w = {.a = given};
    dra_error err = {0};
    const int status = check_args(w.a);
    if (status != CLI_OK) return status;
    dra_status st = open_work(&w, &err);
    if (st == DRA_OK) st = read_all(&w, &err);
    if (st == DRA_OK) st = write_vectors(&w, &err);
    if (w.engine) cli_clamp_report("embed", &w.a->from, dra_engine_clamped(w.engine));
    dra_engine_destroy(w.engine);
    free(w.out);
    free(w.lengths);
    free(w.jobs);
    cli_texts_free(&w.texts);
    cli_model_close(&w.m);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static const cli_note examples[] = {
    {"dra embed --model model --text \"Once upon a time\" --text \"The end\"",
     "a line of JSON for each text"},
    {"dra embed --model model --texts book.txt --normalise --out book.npy",
     "a row for each line of a file"},
    {0},
};

const cli_verb cmd_embed = {
    .name = "embed",
    .summary = "turn texts into vectors",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_embed,
    .group = "Use",
    .about =
        "Reads texts and writes one vector for each: the hidden states after the final norm, "
        "which are the input of the head, as a mean over all tokens, or that of the last or the "
        "first token. Any language model will do, encoders too.\n"
        "Results are lines of JSON with index, tokens and embedding; or with --out a tensor "
        "`embeddings` (texts, C) and `lengths` (texts) in safetensors, or an array of NumPy.\n"
        "A text gets the same bits whichever texts are read with it. Long texts are read in "
        "pieces with the state carried along, those of an encoder as a whole.",
    .examples = examples,
    .also = "forward eval",
};
