/* dra tokenizer train: a tokenizer.json learned from texts. */
#include "io/model.h"
#include "options/status.h"
#include "options/term.h"
#include "options/units.h"

#include "dra/data.h"
#include "dra/file.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const char end_of_text[] = "<|endoftext|>";

struct args {
    int         action, format;
    cli_list    data, special;
    const char *out, *text_key, *separator;
    int64_t     vocab, min_count, threads;
    bool        end, nfc, json;
};

static const struct args defaults = {.min_count = 2, .end = true};

static const char *const actions[] = {"train", NULL};

static const cli_option options[] = {
    {"action", CLI_CHOICE, offsetof(struct args, action), 0, 0, "learn merges from texts",
     .choices = actions, .flags = CLI_POSITIONAL | CLI_REQUIRED},
    {"data", CLI_LIST, offsetof(struct args, data), 0, 0,
     "text or .jsonl, plain or compressed by gzip or zstd, or a folder of them", "FILE",
     .flags = CLI_REQUIRED, .group = "Data", .brief = 'd'},
    CLI_FORMAT_OPTION(struct args),
    {"text-key", CLI_TEXT, offsetof(struct args, text_key), 0, 0,
     "key of the text in a line of "
     "JSON",
     "KEY", .unset = "text"},
    {"separator", CLI_TEXT, offsetof(struct args, separator), 0, 0,
     "a line that separates the documents of a text", "LINE"},
    {"vocab", CLI_INT, offsetof(struct args, vocab), 256, 1 << 22,
     "tokens in all: bytes, special tokens, merges", .flags = CLI_REQUIRED, .group = "Tokenizer"},
    {"out", CLI_TEXT, offsetof(struct args, out), 0, 0,
     "where to write it: NAME.json, or a folder, as its tokenizer.json", "PATH",
     .flags = CLI_REQUIRED, .brief = 'o'},
    {"special", CLI_LIST, offsetof(struct args, special), 0, 0, "one more special token", "TEXT"},
    {"end", CLI_FLAG, offsetof(struct args, end), 0, 0,
     "make <|endoftext|> the first special token"},
    {"min-count", CLI_INT, offsetof(struct args, min_count), 1, 1e15,
     "merge only pairs seen at least this often"},
    {"nfc", CLI_FLAG, offsetof(struct args, nfc), 0, 0, "normalise text to Unicode's form C (NFC)"},
    {"threads", CLI_INT, offsetof(struct args, threads), 0, 1024, "threads", .group = "General",
     .unset = "one per processor", .brief = 't'},
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object", .brief = 'j'},
};

/* ---- progress -------------------------------------------------------------------------------- */

typedef struct watch {
    cli_status status;
    bool       merging;
} watch;

static void show_progress(void *user, bool merging, int64_t done, int64_t total)
{
    watch       *w = user;
    const double share = total > 0 ? (double)done / (double)total : 1;
    if (merging != w->merging) w->merging = merging, cli_status_restart(&w->status);
    /* Later merges are of rarer pairs, so they take less time. */
    if (!cli_status_at(&w->status, merging ? sqrt(share) : share)) return;
    if (merging)
        cli_status_field(&w->status, 0, "%lld of %lld tokens", (long long)done, (long long)total);
    else
        cli_status_field(&w->status, 0, "%.0f of %.0f MB read", 1e-6 * (double)done,
                         1e-6 * (double)total);
    cli_status_bar(&w->status, 1);
    cli_status_left(&w->status, 0);
    cli_status_show(&w->status);
}

/* ---- the file -------------------------------------------------------------------------------- */

enum { PATH_ROOM = 4096 };

/* The path of the file. Checks that it can be written now, not after hours. */
static int find_place(const char *out, char path[PATH_ROOM])
{
    dra_file_writer *w = NULL;
    dra_error        err = {0};
    const size_t     n = strlen(out);
    const bool       is_file = n > 5 && strcmp(out + n - 5, ".json") == 0;
    if (snprintf(path, PATH_ROOM, is_file ? "%s" : "%s/tokenizer.json", out) >= PATH_ROOM)
        errno = ENAMETOOLONG;
    else if (is_file || cli_mkdir(out, 0777) == 0 || errno == EEXIST)
        errno = 0;
    if (errno) {
        cli_line(stderr, "dra: %s: cannot create it: %s", out, cli_reason(errno));
        return CLI_FAILED;
    }
    if (!is_file) cli_folder_keep(out);
    if (dra_file_writer_begin(path, &w, &err) != DRA_OK) return cli_fail(&err);
    dra_file_writer_abort(w);
    return CLI_OK;
}

/* Signals wait until the file is written. */
static dra_status save_tokenizer(const dra_tokenizer *t, const char *path, dra_error *err)
{
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, &before);
    const dra_status st = dra_tokenizer_save(t, path, err);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return st;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static void report_result(const struct args *a, const dra_tokenizer_config *c,
                          const dra_tokenizer *t, const char *path, double seconds)
{
    const int size = dra_tokenizer_size(t), merges = size - 256 - c->n_special;
    if (a->json) {
        fputs("{\"path\": ", stdout);
        cli_json_text(path, stdout);
        printf(", \"tokens\": %d, \"special\": %d, \"merges\": %d, \"seconds\": %.3f}\n", size,
               c->n_special, merges, seconds);
        return;
    }
    cli_fold(2, stdout, "%s: %d tokens: %d special, 256 bytes, %d merges", path, size, c->n_special,
             merges);
    if (size < c->size)
        cli_fold(2, stdout, "fewer than %d: no pair is left that is seen %lld times", c->size,
                 (long long)c->min_count);
}

static int train_tokenizer(const struct args *a, const char **special, const char *path)
{
    size_t         n = 0;
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    const double   start = cli_now();
    watch          w = {0};
    cli_status_open(&w.status, stderr);
    if (a->end) special[n++] = end_of_text;
    for (size_t i = 0; i < a->special.count; i++) special[n++] = a->special.text[i];
    const dra_tokenizer_config c = {
        .n = (int)a->data.count,
        .paths = a->data.text,
        .format = cli_data_format(a->format),
        .text_key = a->text_key,
        .separator = a->separator,
        .size = (int32_t)a->vocab,
        .min_count = a->min_count,
        .n_special = (int)n,
        .special = special,
        .nfc = a->nfc,
        .threads = (int)a->threads,
    };
    dra_status st = cli_documents_check(&a->data, NULL, a->format, a->text_key, a->separator, &err);
    if (st == DRA_OK) st = dra_tokenizer_train(&c, show_progress, &w, &t, &err);
    cli_status_clear(&w.status);
    if (st == DRA_OK) st = save_tokenizer(t, path, &err);
    if (st == DRA_OK) report_result(a, &c, t, path, cli_now() - start);
    dra_tokenizer_destroy(t);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static int run_tokenizer(const void *args)
{
    const struct args *a = args;
    char               path[PATH_ROOM];
    const char       **special = calloc(a->special.count + 1, sizeof *special);
    if (!special) {
        fputs("dra: out of memory\n", stderr);
        return CLI_FAILED;
    }
    int status = find_place(a->out, path);
    if (status == CLI_OK) status = train_tokenizer(a, special, path);
    free(special);
    return status;
}

static const cli_note files[] = {
    {"PATH", "NAME.json, or a folder in which tokenizer.json is written"},
    {0},
};

static const cli_note examples[] = {
    {"dra tokenizer train --data book.txt --vocab 1000 --out words", "learn a vocabulary of a "
                                                                     "thousand tokens"},
    {"dra tokenizer train --data book.txt --vocab 512 --special \"<|user|>\" --out chat.json",
     "with a special token of your own"},
    {0},
};

const cli_verb cmd_tokenizer = {
    .name = "tokenizer",
    .summary = "train a tokenizer on texts",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_tokenizer,
    .group = "Make",
    .about = "Learns a byte-level BPE vocabulary from texts: special tokens come first, then the "
             "256 bytes, then merges of the pairs seen most often. The result is the same as that "
             "of Hugging Face's trainer, in every id and tie, on any number of threads.\n"
             "If no pair is left that is seen --min-count times, the vocabulary is smaller than "
             "asked for, and a line says so. The file is written at the end, whole or not at all.",
    .files = files,
    .examples = examples,
    .also = "tokenize train",
};
