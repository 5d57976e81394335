/* dra convert: a model from one format to another, and surgery on the way. */
#include "verbs/convert/check.h"
#include "verbs/convert/quant.h"
#include "io/line_read.h"
#include "verbs/train/progress.h"
#include "options/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct args {
    const char *from, *to, *memory, *shard_size, *tokenizer, *keep, *text;
    cli_list    set;
    int64_t     vocab, seed, threads;
    int         as, dtype, quantise;
    bool        dry_run, check, skip_hash, json;
};

enum { AS_HF = DRA_FORMAT_COUNT, AS_CPP }; /* after the formats */

static const struct args defaults = {0};

#define DRA_FORMAT_ROW(kind, table, name) name,
static const char *const formats[] = {
#include "dra/formats.def"
    "hf", "rwkv.cpp", NULL};
#undef DRA_FORMAT_ROW
static const char *const dtypes[] = {"f32", "f16", "bf16", NULL};
static const char *const quantised[] = {"no",   "q8_0", "q5_1",   "q5_0",   "q4_1",
                                        "q4_0", "q6_k", "q5_k_m", "q4_k_m", NULL};
static const dra_dtype   quantised_types[] = {DRA_F32,  DRA_Q8_0, DRA_Q5_1, DRA_Q5_0, DRA_Q4_1,
                                              DRA_Q4_0, DRA_Q6_K, DRA_Q5_K, DRA_Q4_K};

static const cli_option options[] = {
    {"from", CLI_TEXT, offsetof(struct args, from), 0, 0,
     "model folder of dra, Hugging Face or x-transformers, a GGUF file, or an RWKV file of "
     "rwkv.cpp or PyTorch, or nanoGPT's ckpt.pt",
     "PATH", .flags = CLI_REQUIRED, .group = "Model"},
    {"to", CLI_TEXT, offsetof(struct args, to), 0, 0, "what to write; must not exist yet", "PATH",
     .flags = CLI_REQUIRED},
    {"as", CLI_CHOICE, offsetof(struct args, as), 0, 0,
     "format to write; hf: that of Hugging Face for this kind of model; gguf, also where --to ends "
     "so",
     "FORMAT", .choices = formats},
    {"memory", CLI_TEXT, offsetof(struct args, memory), 0, 0,
     "blend a second memory into every layer, which training can let take over", "KIND",
     .group = "Change"},
    {"set", CLI_LIST, offsetof(struct args, set), 0, 0, "change the new config: mixer.b.slots=4",
     "KEY=VALUE"},
    {"resize-vocab", CLI_INT, offsetof(struct args, vocab), 0, 1 << 20,
     "size of the new vocabulary; weights of new tokens are initialised", "N", .unset = "as it is"},
    {"dtype", CLI_CHOICE, offsetof(struct args, dtype), 0, 0, "dtype of matrices; vectors stay f32",
     .choices = dtypes},
    {"quantise", CLI_CHOICE, offsetof(struct args, quantise), 0, 0,
     "store the weights of products in blocks of 8 to 4 bits, and show what that loses",
     .choices = quantised},
    {"keep", CLI_TEXT, offsetof(struct args, keep), 0, 0,
     "with --quantise: leave these in f32: head, emb, or both", "LIST"},
    {"text", CLI_TEXT, offsetof(struct args, text), 0, 0,
     "with --quantise: measure the perplexity on this text", "FILE", .unset = "a short one"},
    {"tokenizer", CLI_TEXT, offsetof(struct args, tokenizer), 0, 0,
     "file or folder of a tokenizer to copy to the new model", "PATH", .unset = "the model's"},
    {"shard-size", CLI_TEXT, offsetof(struct args, shard_size), 0, 0,
     "split the weights into files of at most this size: 2GB, 500MiB", "SIZE", .unset = "one file"},
    {"seed", CLI_INT, offsetof(struct args, seed), 0, 9e15,
     "seed of weights that are newly initialised", .brief = 's'},
    {"dry-run", CLI_FLAG, offsetof(struct args, dry_run), 0, 0,
     "print the table of tensors and write nothing", .group = "Check"},
    {"check", CLI_FLAG, offsetof(struct args, check), 0, 0,
     "compare the logits of both models on some tokens, or what else they put out; if they differ, "
     "nothing is written"},
    {"skip-hash", CLI_FLAG, offsetof(struct args, skip_hash), 0, 0,
     "do not read all weights first to check their hash"},
    {"threads", CLI_INT, offsetof(struct args, threads), 0, 1024, "threads of the check",
     .group = "General", .unset = "one per processor", .brief = 't'},
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object", .brief = 'j'},
};

/* ---- what it shall be ------------------------------------------------------------------------ */

/* The format of Hugging Face for a model; GPT-2's where it has none, whose words say why. */
static dra_format_kind class_of(const dra_model_config *c)
{
    const dra_format_kind kind = dra_model_config_class(c);
    return kind ? kind : DRA_FORMAT_GPT2;
}

static dra_format_kind format_of(int as, const dra_model_config *c)
{
    if (as == AS_CPP) return dra_model_config_rwkv(c) ? class_of(c) : DRA_FORMAT_RWKV;
    return as == AS_HF ? class_of(c) : (dra_format_kind)as;
}

/* A name that ends with .gguf says it, too. */
static int as_of(const struct args *a)
{
    return !a->as && cli_ends_with(a->to, ".gguf") ? DRA_FORMAT_GGUF : a->as;
}

static dra_status target_config(const struct args *a, dra_model_config **c, dra_error *err)
{
    dra_status st = cli_model_is_there(a->from, err);
    if (st == DRA_OK) st = dra_folder_config(a->from, c, err);
    if (st == DRA_OK && a->memory) st = dra_model_config_graft(*c, a->memory, err);
    if (st == DRA_OK) st = cli_settings(&a->set, NULL, *c, err);
    if (st != DRA_OK) return st;
    if (a->vocab) (*c)->vocab = a->vocab;
    (*c)->format = format_of(as_of(a), *c);
    return st;
}

/* Why no class of Hugging Face is this model, in words; "": it may be one. */
static const char *no_class(const dra_model_config *c, char *text, size_t size)
{
    const bool rwkv = dra_model_config_rwkv(c) != 0;
    text[0] = '\0';
    if (!dra_model_config_is_language(c))
        snprintf(text, size, "it is no language model");
    else if (c->visible == DRA_VISIBLE_BIDIRECTIONAL)
        snprintf(text, size, "it is an encoder");
    else if (!rwkv && c->ff.kind > DRA_FF_RELU2)
        snprintf(text, size, "its feed-forward layers are not those of GPT-2");
    for (int i = 0; i < c->mixers && !text[0]; i++) {
        const char *memory = c->mixer[i].a.memory ? c->mixer[i].a.memory : "append";
        if (c->mixer[i].blend != DRA_BLEND_NONE)
            snprintf(text, size, "its layers blend two memories");
        else if (!rwkv && strcmp(memory, "append") != 0)
            snprintf(text, size, "its layers have a %s memory", memory);
    }
    return text;
}

/* Hugging Face has classes for some models, and dra's own format takes everything. */
static dra_status check_class(const struct args *a, const dra_model_config *c, dra_error *err)
{
    char why[80];
    if (a->as != AS_HF || dra_model_config_class(c) || !*no_class(c, why, sizeof why))
        return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE,
                     "%.200s: Hugging Face has no class for this model: %s; expected GPT-2, "
                     "RWKV or one of Llama's family, or --as dra",
                     a->from, why);
}

/* Bytes of "2GB", "500MiB" or a plain number; 0: none of these. */
static size_t read_size(const char *text)
{
    static const struct {
        const char *name;
        double      bytes;
    } units[] = {{"", 1},         {"KB", 1e3},     {"MB", 1e6},    {"GB", 1e9},
                 {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
    char        *end;
    const double n = strtod(text, &end);
    for (size_t i = 0; i < COUNT(units) && end > text; i++)
        if (strcmp(end, units[i].name) == 0 && n > 0 && n * units[i].bytes < 9e15)
            return (size_t)(n * units[i].bytes);
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct job { /* what is seen of a conversion */
    const struct args *a;
    cli_status         status;
    int64_t            rows, drawn, done; /* tensors */
    double             difference;
    bool               checked; /* the difference is known */
    cli_quant_report   report;  /* of what was quantised */
} job;

static void print_row(void *user, const dra_convert_row *r)
{
    job *t = user;
    char shape[80], from[80];
    t->drawn += !r->from;
    dra_shape_text(&r->shape, shape, sizeof shape);
    dra_shape_text(&r->from_shape, from, sizeof from);
    if (t->a->json) {
        fputs(t->rows ? ", {\"to\": " : "{\"to\": ", stdout);
        cli_json_text(r->to, stdout);
        printf(", \"shape\": \"%s\", \"dtype\": \"%s\"", shape, r->dtype);
        if (r->from) fputs(", \"from\": ", stdout);
        if (r->from) cli_json_text(r->from, stdout);
        if (r->from) printf(", \"from_dtype\": \"%s\"", r->from_dtype);
        putchar('}');
    } else {
        cli_line(stdout, "%-44s %-14s %-5s <- %s %s %s", r->to, shape, r->dtype,
                 r->from ? r->from : "new", r->from ? from : "", r->from ? r->from_dtype : "");
    }
    t->rows++;
}

/* ---- the check ------------------------------------------------------------------------------- */

/* Half precision rounds every weight to 11 or 8 bits. */
static double allowed_error(const struct args *a)
{
    static const double most[] = {5e-5, 2e-2, 1e-1};
    return a->quantise ? INFINITY : most[a->dtype]; /* a report says what quantising loses */
}

/* Of what was made, at `path`, which does not have its name yet. */
static dra_status check_result(void *user, const char *path, dra_error *err)
{
    job                   *j = user;
    const struct args     *a = j->a;
    const cli_check_config c = {a->from, path, a->vocab, a->threads};
    const cli_quant_config q = {a->from, path, a->tokenizer, a->text, a->threads};
    dra_status             st = DRA_OK;
    cli_status_clear(&j->status);
    if (a->quantise) st = cli_quant_measure(&q, &j->report, err);
    if (st != DRA_OK || !a->check) return st;
    st = cli_check(&c, &j->difference, err);
    j->checked = st == DRA_OK;
    if (st != DRA_OK || j->difference <= allowed_error(a)) return st;
    return cli_error(err, DRA_ERR_VALUE,
                     "%.200s: the largest relative difference of logits is %.3g, expected at most "
                     "%g; nothing written",
                     a->to, j->difference, allowed_error(a));
}

/* ---- the verb -------------------------------------------------------------------------------- */

/* Whether a list "head,emb" of nothing but these two names one. */
static bool list_has(const char *list, const char *name)
{
    static const char *const all[] = {"head", "emb", "head,emb", "emb,head"};
    for (size_t i = 0; list && i < COUNT(all); i++)
        if (strcmp(list, all[i]) == 0) return strstr(list, name) != NULL;
    return false;
}

/* What cannot be meant. Otherwise *shard is the size of shards. */
static int check_args(const struct args *a, size_t *shard)
{
    char quoted[80];
    *shard = a->shard_size ? read_size(a->shard_size) : 0;
    if (!*a->to) return cli_misused("convert", "--to: expected a new name, found none");
    if (a->dry_run && a->check)
        return cli_misused("convert", "--check needs the files that --dry-run does not write");
    if (a->shard_size && !*shard)
        return cli_misused("convert", "--shard-size: expected a size such as 2GB, found %s",
                           cli_quote(a->shard_size, quoted, sizeof quoted));
    if (a->as == AS_CPP && (a->shard_size || a->tokenizer))
        return cli_misused("convert", "--%s: an rwkv.cpp model is a single file",
                           a->shard_size ? "shard-size" : "tokenizer");
    if (as_of(a) == DRA_FORMAT_GGUF && a->shard_size)
        return cli_misused("convert", "--shard-size: a GGUF model is a single file");
    if ((a->keep || a->text) && !a->quantise)
        return cli_misused("convert", "--%s: expected --quantise", a->keep ? "keep" : "text");
    if (a->quantise && a->dtype)
        return cli_misused("convert", "--dtype: --quantise has one of its own");
    if (a->keep && !list_has(a->keep, "head") && !list_has(a->keep, "emb"))
        return cli_misused("convert", "--keep: expected head, emb or head,emb, found %s",
                           cli_quote(a->keep, quoted, sizeof quoted));
    return CLI_OK;
}

/* Asked before every tensor. */
static bool show_and_stop(void *user)
{
    job *j = user;
    if (j->rows) cli_status_step(&j->status, "converting", (double)j->done++ / (double)j->rows);
    return cli_progress_stopped();
}

static dra_status convert_model(job *j, size_t shard, dra_error *err)
{
    static const dra_dtype dtype[] = {DRA_F32, DRA_F16, DRA_BF16};
    const struct args     *a = j->a;
    dra_model_config      *c = NULL;
    dra_tokenizer         *tokenizer = NULL;
    dra_status             st = target_config(a, &c, err);
    if (st == DRA_OK) st = check_class(a, c, err);
    if (st == DRA_OK && a->tokenizer) st = dra_tokenizer_open(a->tokenizer, &tokenizer, err);
    const dra_convert_config how = {.from = a->from,
                                    .to = a->to,
                                    .config = c,
                                    .seed = (uint64_t)a->seed,
                                    .cpp = a->as == AS_CPP,
                                    .shard_bytes = shard,
                                    .dtype = a->quantise ? quantised_types[a->quantise]
                                                         : dtype[a->dtype],
                                    .keep_head = list_has(a->keep, "head"),
                                    .keep_embedding = list_has(a->keep, "emb"),
                                    .dry_run = a->dry_run,
                                    .skip_hash = a->skip_hash,
                                    .tokenizer = tokenizer,
                                    .row = print_row,
                                    .stop = show_and_stop,
                                    .check = a->check || a->quantise ? check_result : NULL,
                                    .user = j};
    cli_status_open(&j->status, stderr);
    if (st == DRA_OK) st = dra_convert(&how, err);
    cli_status_clear(&j->status);
    dra_tokenizer_destroy(tokenizer);
    dra_model_config_destroy(c);
    return st;
}

/* A file has no place for what a folder says of sampling. */
static void tell_habits(const struct args *a)
{
    char path[4096];
    if ((a->as == AS_CPP || as_of(a) == DRA_FORMAT_GGUF) &&
        cli_path(a->from, "generation_config.json", path, sizeof path) && cli_is_there(path))
        cli_line(stderr,
                 "%s: without the generation_config.json of its folder, so generate samples at "
                 "temperature 1 unless told otherwise",
                 a->to);
}

static int run_convert(const void *args)
{
    const struct args *a = args;
    dra_error          err = {0};
    job                j = {.a = a};
    char               room[CLI_NUMBER], fresh[24];
    size_t             shard;
    const int          wrong = check_args(a, &shard);
    if (wrong) return wrong;
    cli_progress_signals();
    if (a->json) printf("{\"tensors\": [");
    const dra_status st = convert_model(&j, shard, &err);
    if (a->json) printf("]%s", st == DRA_OK ? "" : ", \"failed\": true");
    if (a->json && j.checked)
        printf(", \"difference\": %s%s", cli_json_number(j.difference, 9, room),
               isfinite(j.difference) ? "" : ", \"not_finite\": 1");
    if (a->json && st == DRA_OK && a->quantise && !a->dry_run) cli_quant_json(&j.report);
    if (a->json) puts("}");
    if (st != DRA_OK) {
        const int failed = cli_fail(&err);
        return cli_progress_stopped() ? cli_progress_status() : failed;
    }
    snprintf(fresh, sizeof fresh, "%lld", (long long)j.drawn);
    if (!a->json)
        cli_line(stderr, "%s: %lld tensors, %s newly initialised%s", a->to, (long long)j.rows,
                 j.drawn ? fresh : "none", a->dry_run ? "; nothing written" : "");
    if (!a->json) tell_habits(a);
    if (!a->json && a->quantise && !a->dry_run) cli_quant_print(&j.report);
    if (!a->json && a->check)
        printf("largest difference of logits: %.3g (relative)\n", j.difference);
    return CLI_OK;
}

static const cli_note examples[] = {
    {"dra convert --from gpt2-folder --to mine --check",
     "convert to dra's own format and compare the logits"},
    {"dra convert --from gpt2-folder --to grafted --memory gru",
     "add a recurrent memory to every layer"},
    {"dra convert --from rwkv.pth --to rwkv --resize-vocab 300 --tokenizer words",
     "add a tokenizer, which the file does not have, and room for its tokens"},
    {"dra convert --from xt-folder --to xt-own --check", "a model of x-transformers as dra's own"},
    {"dra convert --from gpt2-folder --to small.gguf --quantise q8_0 --keep emb",
     "a file for llama.cpp, with 8 bits a weight, and what that loses"},
    {"dra convert --from gpt2-folder --to never --dry-run", "only look, write nothing"},
    {0},
};

const cli_verb cmd_convert = {
    .name = "convert",
    .summary = "convert a model to another format, or give it a second memory",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_convert,
    .group = "Convert",
    .about =
        "Reads a model in one format and writes it in another: dra's own folders, Hugging Face "
        "folders of GPT-2, RWKV and the Llama family, folders of x-transformers, GGUF and rwkv.cpp "
        "files. It prints a row for every tensor: name, shape, dtype, and where it comes from.\n"
        "--quantise stores the weights of products in blocks of few bits (ggml's; q4_k_m, q5_k_m "
        "and q6_k are the mixtures of llama.cpp); norms, biases, "
        "positions and other small tensors stay f32. It prints the perplexity before and after, "
        "and for each layer what its weights lose when they alone are quantised.\n"
        "The new model may get another vocabulary, another dtype, or a second memory next to its "
        "own (--memory), which at first leaves the logits unchanged and which training then "
        "lets take over.\nThe target must not exist. It appears under its name only when it is "
        "complete and, with --check, when its logits are right; if anything fails or is stopped, "
        "nothing is left. Tokenizer files are copied, unless --tokenizer names another.",
    .examples = examples,
    .also = "train info",
};
