/* dra tokenize and dra detokenize: text to ids and back, files of any size in little memory. */
#include "io/line_read.h"
#include "io/model.h"
#include "verbs/generate/text_out.h"
#include "options/value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- what both verbs share ------------------------------------------------------------------- */

struct source {
    const char *model, *tokenizer, *file;
    cli_list    words; /* without words: the file, else stdin */
};

#define SOURCE(type, value, what)                                                                  \
    {"model",                                                                                      \
     CLI_TEXT,                                                                                     \
     offsetof(type, from.model),                                                                   \
     0,                                                                                            \
     0,                                                                                            \
     "use the tokenizer of this model folder",                                                     \
     "DIR",                                                                                        \
     .flags = CLI_A_MODEL | CLI_ALSO_PLACED,                                                       \
     .brief = 'm'},                                                                                \
        {"tokenizer",                                                                              \
         CLI_TEXT,                                                                                 \
         offsetof(type, from.tokenizer),                                                           \
         0,                                                                                        \
         0,                                                                                        \
         "tokenizer.json, rwkv_vocab_v20230424.txt, a folder with one, or bytes",                  \
         "PATH|bytes",                                                                             \
         .flags = CLI_A_MODEL},                                                                    \
        {"file", CLI_TEXT, offsetof(type, from.file), 0, 0, "read the " what " from a file",       \
         "FILE"},                                                                                  \
    {                                                                                              \
        "words", CLI_LIST, offsetof(type, from.words), 0, 0,                                       \
            what "; without it and --file: stdin", value, .flags = CLI_POSITIONAL                  \
    }

static int fail_usage(const char *verb, const char *why)
{
    cli_line(stderr, "dra %s: %s", verb, why);
    return CLI_USAGE;
}

static int check_source(const char *verb, const struct source *s)
{
    if (!s->model == !s->tokenizer)
        return fail_usage(verb, "expected one of --model and --tokenizer");
    if (s->file && s->words.count) return fail_usage(verb, "--file: expected no further argument");
    return CLI_OK;
}

static dra_status open_tokenizer(const struct source *s, dra_tokenizer **out, dra_error *err)
{
    dra_model_config *c = NULL; /* a model may read bytes, without a tokenizer in its folder */
    if (s->tokenizer && strcmp(s->tokenizer, "bytes") == 0) return dra_tokenizer_bytes(out, err);
    if (s->model && dra_folder_config(s->model, &c, NULL) == DRA_OK) {
        const int64_t vocab = c->vocab;
        dra_model_config_destroy(c);
        return dra_tokenizer_open_folder(s->model, vocab, out, err);
    }
    return dra_tokenizer_open(s->model ? s->model : s->tokenizer, out, err);
}

static int fail_system(const char *name, const char *what)
{
    cli_line(stderr, "dra: %s: cannot %s: %s", name, what, cli_reason(errno));
    return CLI_FAILED;
}

/* The arguments joined by blanks, to be freed; NULL: no memory. */
static char *join_words(const cli_list *words)
{
    size_t room = 1;
    for (size_t i = 0; i < words->count; i++) room += strlen(words->text[i]) + 1;
    char *text = calloc(room, 1), *to = text;
    for (size_t i = 0; text && i < words->count; i++) {
        const size_t n = strlen(words->text[i]);
        if (i) *to++ = ' ';
        memcpy(to, words->text[i], n);
        to += n;
    }
    return text;
}

static const char *stream_name(const struct source *s) { return s->file ? s->file : "stdin"; }

/* Opens the input; NULL after an error, which is printed. *joined is to be freed after the stream
 * is closed. */
static FILE *open_stream(const struct source *s, char **joined)
{
    *joined = NULL;
    FILE *in = NULL;
    if (s->file)
        in = dra_stream_open(s->file);
    else if (!s->words.count)
        in = cli_input_open("-");
    else if ((*joined = join_words(&s->words)))
        in = (*joined)[0] ? fmemopen(*joined, strlen(*joined), "rb") : dra_stream_open("/dev/null");
    if (!in) {
        fail_system(s->words.count ? "arguments" : stream_name(s), "open it");
        return NULL;
    }
    return in;
}

/* ---- tokenize -------------------------------------------------------------------------------- */

struct encode_args {
    struct source from;
    int           format;
    bool          plain, bare, json, count;
};

static const struct encode_args encode_defaults = {0};

static const cli_option encode_options[] = {
    SOURCE(struct encode_args, "TEXT", "text"),
    CLI_FORMAT_OPTION(struct encode_args),
    {"plain", CLI_FLAG, offsetof(struct encode_args, plain), 0, 0,
     "treat special tokens in the text as ordinary text"},
    {"bare", CLI_FLAG, offsetof(struct encode_args, bare), 0, 0,
     "without the tokens that the tokenizer puts around a text"},
    {"count", CLI_FLAG, offsetof(struct encode_args, count), 0, 0, "print only the number of ids"},
    {"json", CLI_FLAG, offsetof(struct encode_args, json), 0, 0, "print one JSON object",
     .brief = 'j'},
};

typedef struct encoding {
    const struct encode_args *a;
    const dra_tokenizer      *t;
    char                     *text; /* read, but not encoded */
    size_t                    bytes, room;
    dra_ids                   ids; /* of one part */
    size_t                    tokens, total;
    bool                      last; /* all is read */
    dra_error                 err;
} encoding;

/* Encodes, prints and removes the first bytes of the text. */
static dra_status encode_part(encoding *e, size_t bytes)
{
    const struct encode_args *a = e->a;
    const unsigned            around = a->bare ? 0
                                               : (e->total ? 0 : DRA_ENCODE_BEGIN) |
                                          (bytes == e->bytes && e->last ? DRA_ENCODE_END : 0);
    const unsigned   how = (a->plain ? DRA_ENCODE_PLAIN : 0) | (e->total ? DRA_ENCODE_REST : 0);
    const dra_status st = dra_encode_as(e->t, e->text, bytes, how | around, &e->ids, &e->err);
    for (size_t i = 0; i < e->ids.n && !a->count; i++)
        printf(e->tokens + i ? a->json ? ", %d" : " %d" : "%d", e->ids.data[i]);
    e->tokens += e->ids.n;
    e->total += bytes;
    e->ids.n = 0;
    memmove(e->text, e->text + bytes, e->bytes -= bytes);
    return st;
}

/* Reads and encodes to the end. If the text has no place to be cut, reads twice as much. */
static int encode_stream(encoding *e, FILE *in)
{
    enum { PART = 1 << 20 };
    for (bool more = true; more;) {
        if (e->room - e->bytes < PART) {
            char *text = realloc(e->text, e->room = 2 * e->room + PART);
            if (!text) return fail_system(stream_name(&e->a->from), "hold it in memory");
            e->text = text;
        }
        const size_t n = fread(e->text + e->bytes, 1, e->room - e->bytes, in);
        if (ferror(in)) return fail_system(stream_name(&e->a->from), "read it");
        more = n > 0;
        e->last = !more;
        e->bytes += n;
        const size_t cut = more ? dra_encode_cut(e->t, e->text, e->bytes) : e->bytes;
        if ((cut || !more) && encode_part(e, cut) != DRA_OK) return cli_fail(&e->err);
    }
    return CLI_OK;
}

static int encode_all(encoding *e, FILE *in)
{
    const bool json = e->a->json, count = e->a->count;
    if (json) fputs(count ? "{" : "{\"ids\": [", stdout);
    const int status = encode_stream(e, in);
    if (status != CLI_OK) return status;
    if (json)
        printf("%s\"tokens\": %zu, \"bytes\": %zu}", count ? "" : "], ", e->tokens, e->total);
    else if (count)
        printf("%zu", e->tokens);
    putchar('\n');
    return status;
}

/* Like open_stream(), but a file may be compressed and must be text. A pipe, or anything else that
 * is not a regular file, is read as it is. */
static FILE *open_text(encoding *e, char **joined)
{
    const char *file = e->a->from.file;
    struct stat found;
    int         fd = -1;
    *joined = NULL;
    if (file && cli_stat(file, &found) != 0) {
        fail_system(file, "open it");
        return NULL;
    }
    if (!file || !S_ISREG(found.st_mode)) return open_stream(&e->a->from, joined);
    if (dra_data_text(file, cli_data_format(e->a->format), &fd, &e->err) != DRA_OK) {
        cli_fail(&e->err);
        return NULL;
    }
    FILE *in = fd < 0 ? dra_stream_open(file) : dra_stream_from(fd);
    if (!in) fail_system(file, "open it");
    return in;
}

static int run_tokenize(const void *args)
{
    encoding       e = {.a = args};
    dra_tokenizer *t = NULL;
    char          *joined;
    int            status = check_source("tokenize", &e.a->from);
    if (status != CLI_OK) return status;
    if (open_tokenizer(&e.a->from, &t, &e.err) != DRA_OK) return cli_fail(&e.err);
    e.t = t;
    FILE *in = open_text(&e, &joined);
    status = in ? encode_all(&e, in) : CLI_FAILED;
    if (in) fclose(in);
    free(joined);
    free(e.text);
    dra_ids_free(&e.ids);
    dra_tokenizer_destroy(t);
    return status;
}

static const cli_note encode_examples[] = {
    {"dra tokenize --tokenizer bytes \"Hello\"", "the byte tokenizer"},
    {"dra tokenize --tokenizer words --file book.txt --count", "the number of tokens in a file"},
    {"dra tokenize --tokenizer words --file book.txt > book.ids", "all ids"},
    {0},
};

const cli_verb cmd_tokenize = {
    .name = "tokenize",
    .summary = "turn text into token ids",
    .options = encode_options,
    .n_options = COUNT(encode_options),
    .defaults = &encode_defaults,
    .args_size = sizeof encode_defaults,
    .run = run_tokenize,
    .group = "Use",
    .about = "Prints the ids of a text, separated by spaces. The text comes from the command "
             "line, a file, or stdin; files of any size need little memory and may be "
             "compressed by gzip or zstd. Special tokens in the "
             "text are encoded as such unless --plain is given, which is right for untrusted text.",
    .examples = encode_examples,
    .also = "detokenize tokenizer",
};

/* ---- detokenize ------------------------------------------------------------------------------ */

struct decode_args {
    struct source from;
    bool          json, valid, skip_special, raw;
};

static const struct decode_args decode_defaults = {0};

static const cli_option decode_options[] = {
    SOURCE(struct decode_args, "ID", "ids"),
    {"skip-special", CLI_FLAG, offsetof(struct decode_args, skip_special), 0, 0,
     "leave special tokens out"},
    {"valid", CLI_FLAG, offsetof(struct decode_args, valid), 0, 0,
     "print U+FFFD instead of bytes that are not UTF-8"},
    {"raw", CLI_FLAG, offsetof(struct decode_args, raw), 0, 0, CLI_RAW_HELP},
    {"json", CLI_FLAG, offsetof(struct decode_args, json), 0, 0,
     "print one JSON object; implies --valid", .brief = 'j'},
};

/* Reads the next id of a stream, between blanks, commas or brackets: 1: found, 0: the end, -1: not
 * a number. */
static int next_id(FILE *in, char *word, size_t size, int64_t *id)
{
    static const char between[] = " \t\r\n,[]";
    size_t            n = 0;
    int               c = getc(in);
    while (c != EOF && strchr(between, c) && c) c = getc(in);
    if (c == EOF) return 0;
    for (; c != EOF && !(c && strchr(between, c)) && n + 1 < size; c = getc(in))
        word[n++] = (char)c;
    word[n] = '\0';
    return cli_read_int(word, id) && *id >= INT32_MIN && *id <= INT32_MAX ? 1 : -1;
}

/* Prints the text of one id: its bytes, or as much as is valid UTF-8 so far. */
static dra_status print_id(const struct decode_args *a, dra_decoder *d, int32_t id,
                           cli_text_out *to, dra_error *err)
{
    const char *text;
    size_t      n;
    const bool  valid = a->json || a->valid;
    dra_status  st = (valid ? dra_decoder_push : dra_decoder_bytes)(d, id, &text, &n, err);
    if (st != DRA_OK) return st;
    if (a->json)
        cli_json_part(text, n, stdout);
    else
        cli_text_out_put(to, text, n);
    return DRA_OK;
}

static int decode_all(const struct decode_args *a, const dra_tokenizer *t, dra_decoder *d, FILE *in)
{
    char         word[32], quoted[80];
    const char  *text;
    size_t       tokens = 0, n;
    int64_t      id;
    int          found;
    dra_error    err = {0};
    cli_text_out to;
    cli_text_out_begin(&to, stdout, a->raw);
    if (a->json) fputs("{\"text\": \"", stdout);
    for (; (found = next_id(in, word, sizeof word, &id)) > 0; tokens++)
        if (print_id(a, d, (int32_t)id, &to, &err) != DRA_OK) return cli_fail(&err);
    if (ferror(in)) return fail_system(stream_name(&a->from), "read it");
    if (found < 0) {
        cli_line(stderr, "dra detokenize: id %zu: expected a whole number from 0 to %d, found %s",
                 tokens, dra_tokenizer_size(t) - 1, cli_quote(word, quoted, sizeof quoted));
        return a->from.words.count ? CLI_USAGE : CLI_FAILED;
    }
    dra_decoder_flush(d, &text, &n);
    if (a->json) {
        cli_json_part(text, n, stdout);
        printf("\", \"tokens\": %zu}\n", tokens);
    } else if (a->valid) {
        cli_text_out_put(&to, text, n);
    }
    cli_text_out_end(&to);
    return CLI_OK;
}

static int run_detokenize(const void *args)
{
    const struct decode_args *a = args;
    dra_tokenizer            *t = NULL;
    dra_decoder              *d = NULL;
    char                     *joined = NULL;
    FILE                     *in = NULL;
    dra_error                 err = {0};
    int                       status = check_source("detokenize", &a->from);
    if (status != CLI_OK) return status;
    dra_status st = open_tokenizer(&a->from, &t, &err);
    if (st == DRA_OK) st = dra_decoder_create(t, a->skip_special, &d, &err);
    if (d) dra_decoder_start(d);
    if (st == DRA_OK) in = open_stream(&a->from, &joined);
    status = st != DRA_OK ? cli_fail(&err) : in ? decode_all(a, t, d, in) : CLI_FAILED;
    if (in) fclose(in);
    free(joined);
    dra_decoder_destroy(d);
    dra_tokenizer_destroy(t);
    return status;
}

static const cli_note decode_examples[] = {
    {"dra detokenize --tokenizer bytes 72 101 108 108 111", "Hello"},
    {"dra tokenize --tokenizer words --file book.txt | dra detokenize --tokenizer words",
     "there and back"},
    {0},
};

const cli_verb cmd_detokenize = {
    .name = "detokenize",
    .summary = "turn token ids into the text they stand for",
    .options = decode_options,
    .n_options = COUNT(decode_options),
    .defaults = &decode_defaults,
    .args_size = sizeof decode_defaults,
    .run = run_detokenize,
    .group = "Use",
    .about = "Prints the text that ids stand for; the ids come from the command line, a file, or "
             "stdin. The output of 'dra tokenize' gives back the same bytes, or normalised text "
             "if the tokenizer normalises.",
    .examples = decode_examples,
    .also = "tokenize",
};
