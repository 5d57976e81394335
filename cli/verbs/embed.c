/* dra embed: a vector for every text, pooled from a model's last hidden states. */
#include "io/line_read.h"
#include "io/npy.h"
#include "options/status.h"
#include "io/texts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum pool { POOL_MEAN, POOL_LAST, POOL_FIRST } pool;

static const char *const pools[] = {"mean", "last", "first", "cls", NULL}; /* cls is first */

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
     .flags = CLI_ALSO_PLACED, .group = "Input"},
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
    CLI_DEVICE_OPTIONS(args),
};

typedef struct work {
    const args *a;
    cli_model   m;
    cli_texts   texts;
    dra_view    view;
    dra_reader *reader;
    dra_states *states;
    bool        whole; /* an encoder: a text is one read */
    pool        pool;
    int64_t     C, B;
    size_t     *order; /* (n): texts by their padded length */
    double     *sums;  /* (n, C) */
    dra_real   *out;   /* (n, C) */
    int32_t    *lengths;
    int32_t    *ids, *mark; /* (B, tokens of a read) */
} work;

/* ---- opening --------------------------------------------------------------------------------- */

/* Tokens and pads of a text in all its reads. It follows from the text alone, so that its reads are
 * of the same lengths whichever texts are read with it: that keeps its bits. */
static int64_t padded(const work *w, size_t text)
{
    const dra_model_config *c = dra_model_config_of(w->m.model);
    const int64_t           most = cli_padded((int64_t)w->texts.ids[text].n);
    return w->whole && c->positions == DRA_POSITIONS_LEARNED && most > c->context ? c->context
                                                                                  : most;
}

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
    for (size_t i = 0; i < w->texts.n && st == DRA_OK; i++) {
        dra_error why = {0};
        if (cli_positions_check(w->m.model, 0, (int64_t)w->texts.ids[i].n, &why) != DRA_OK)
            st = cli_error(err, why.code, "text %zu: %s", i + 1, why.text);
    }
    return st;
}

/* By padded length, shortest first, then as given. */
static void sort_texts(work *w)
{
    size_t n = 0, done = 0;
    for (int64_t length = 0; done < w->texts.n;) {
        int64_t next = INT64_MAX;
        for (size_t i = 0; i < w->texts.n; i++) {
            const int64_t own = padded(w, i);
            if (own == length) w->order[n++] = i;
            if (own > length && own < next) next = own;
        }
        done = n;
        length = next;
    }
}

static dra_status make_room(work *w, dra_error *err)
{
    const size_t  n = w->texts.n, each = (size_t)w->C;
    const int64_t most = w->whole ? padded(w, w->order[n - 1]) : CLI_PIECE;
    w->B = w->a->batch < (int64_t)n ? w->a->batch : (int64_t)n;
    w->sums = calloc(n * each, sizeof *w->sums);
    w->out = calloc(n * each, sizeof *w->out);
    w->lengths = calloc(n, sizeof *w->lengths);
    w->ids = calloc((size_t)(w->B * most), sizeof *w->ids);
    w->mark = calloc((size_t)(w->B * most), sizeof *w->mark);
    for (size_t i = 0; w->lengths && i < n; i++) w->lengths[i] = (int32_t)w->texts.ids[i].n;
    return w->sums && w->out && w->lengths && w->ids && w->mark
               ? DRA_OK
               : cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

static dra_status open_reader(work *w, dra_error *err)
{
    w->view = (dra_view){.model = w->m.model, .hidden = true};
    return cli_reader_open(&w->a->from, &w->m, &w->view, w->B, &w->reader, &w->states, err);
}

static dra_status open(work *w, dra_error *err)
{
    dra_status st = cli_model_open(&w->a->from, &w->m, err);
    if (st != DRA_OK) return st;
    const dra_model_config *c = dra_model_config_of(w->m.model);
    w->C = c->dim;
    w->whole = c->visible == DRA_VISIBLE_BIDIRECTIONAL;
    w->pool = w->a->pool > POOL_FIRST ? POOL_FIRST : (pool)w->a->pool;
    st = read_texts(w, err);
    if (st != DRA_OK) return st;
    w->order = calloc(w->texts.n, sizeof *w->order);
    if (!w->order) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    sort_texts(w);
    st = make_room(w, err);
    return st == DRA_OK ? open_reader(w, err) : st;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Adds the hidden states x (n, C) of tokens from..from+n-1 of a text that count, in order and
 * one after another: the sum is the same however the text is cut. */
static void add_hidden(work *w, size_t text, int64_t from, int64_t n, const dra_real *x)
{
    const int64_t length = w->lengths[text], last = from + n < length ? from + n : length;
    double       *sum = w->sums + text * (size_t)w->C;
    for (int64_t t = from; t < last; t++, x += w->C) {
        const bool counts = w->pool == POOL_MEAN || (w->pool == POOL_FIRST && t == 0) ||
                            (w->pool == POOL_LAST && t == length - 1);
        for (int64_t c = 0; counts && c < w->C; c++) sum[c] += (double)x[c];
    }
}

/* Tokens from..from+n-1 of `rows` texts; other rows, and what is after the end of one, are pads. */
static dra_status read_piece(work *w, const size_t *text, int64_t rows, int64_t from, int64_t n,
                             dra_error *err)
{
    for (int64_t i = 0; i < w->B * n; i++) {
        const int64_t b = i / n, t = from + i % n;
        const bool    pad = b >= rows || t >= w->lengths[text[b]];
        w->ids[i] = pad ? 0 : w->texts.ids[text[b]].data[t];
        w->mark[i] = pad ? DRA_MARK_PAD : 0;
    }
    const dra_named  in = {"ids", w->ids, (size_t)(w->B * n) * sizeof *w->ids};
    const dra_status st = dra_reader_read(w->reader, w->states, n, w->mark, 1, &in, err);
    if (st != DRA_OK) return st;
    const dra_real *hidden = dra_reader_result(w->reader, "hidden");
    if (!hidden) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int64_t b = 0; b < rows; b++) add_hidden(w, text[b], from, n, hidden + b * n * w->C);
    return DRA_OK;
}

static dra_status read_batch(work *w, const size_t *text, int64_t rows, dra_error *err)
{
    const int64_t T = padded(w, text[0]);
    dra_status    st = dra_states_reset(w->states, -1, err);
    for (int64_t from = 0; from < T && st == DRA_OK;) {
        const int64_t n = w->whole || T - from < CLI_PIECE ? T - from : CLI_PIECE;
        st = read_piece(w, text, rows, from, n, err);
        from += n;
    }
    return st;
}

static void finish(const work *w, size_t text)
{
    const double *sum = w->sums + text * (size_t)w->C;
    dra_real     *to = w->out + text * (size_t)w->C;
    double        scale = w->pool == POOL_MEAN ? 1.0 / (double)w->lengths[text] : 1, square = 0;
    for (int64_t c = 0; c < w->C; c++) square += sum[c] * sum[c];
    if (w->a->normalise) scale = square > 0 ? 1 / sqrt(square) : 0;
    for (int64_t c = 0; c < w->C; c++) to[c] = (dra_real)(sum[c] * scale);
}

static dra_status read_all(work *w, dra_error *err)
{
    dra_status st = DRA_OK;
    cli_status status;
    cli_status_open(&status, stderr);
    for (size_t i = 0; i < w->texts.n && st == DRA_OK;) {
        int64_t rows = 1;
        while (rows < w->B && i + (size_t)rows < w->texts.n &&
               padded(w, w->order[i + (size_t)rows]) == padded(w, w->order[i]))
            rows++;
        st = read_batch(w, w->order + i, rows, err);
        i += (size_t)rows;
        cli_status_step(&status, "embedding", (double)i / (double)w->texts.n);
    }
    cli_status_clear(&status);
    for (size_t i = 0; i < w->texts.n && st == DRA_OK; i++) {
        bool finite = true;
        finish(w, i);
        for (int64_t c = 0; c < w->C; c++) finite &= isfinite(w->out[i * (size_t)w->C + (size_t)c]);
        if (!finite)
            st = cli_error(err, DRA_ERR_VALUE, "text %zu: its hidden states are not finite", i + 1);
    }
    return st;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void print(const work *w)
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

static dra_status write(const work *w, dra_error *err)
{
    const int64_t         n = (int64_t)w->texts.n;
    const dra_tensor_item items[] = {
        {"embeddings", DRA_REAL, DRA_SHAPE(n, w->C), w->out},
        {"lengths", DRA_I32, DRA_SHAPE(n), w->lengths},
    };
    char shape[64];
    if (!w->a->out) {
        print(w);
        return DRA_OK;
    }
    if (!cli_ends_with(w->a->out, ".npy"))
        return dra_tensors_write(w->a->out, items, COUNT(items), NULL, 0, err);
    snprintf(shape, sizeof shape, "%lld, %lld", (long long)n, (long long)w->C);
    return cli_npy_write(w->a->out, CLI_NPY_REAL, shape, w->out,
                         (size_t)(n * w->C) * sizeof *w->out, err);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int check(const args *a)
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

static int run(const void *given)
{
    work      w = {.a = given};
    dra_error err = {0};
    const int status = check(w.a);
    if (status != CLI_OK) return status;
    dra_status st = open(&w, &err);
    if (st == DRA_OK) st = read_all(&w, &err);
    if (st == DRA_OK) st = write(&w, &err);
    if (w.reader) cli_clamp_report("embed", &w.a->from, dra_reader_clamped(w.reader));
    free(w.order);
    free(w.sums);
    free(w.out);
    free(w.lengths);
    free(w.ids);
    free(w.mark);
    dra_reader_destroy(w.reader);
    dra_states_destroy(w.states);
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
    .run = run,
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
