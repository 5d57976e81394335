/* The demo's text: stories in a file, a vocabulary made for them, their tokens. */
#include "io/corpus.h"
#include "demo.h"
#include "story.h"
#include "options/units.h"

enum { VOCAB = 1024 };

uint64_t demo_seed(const demo *d, demo_shelf shelf, uint64_t number)
{
    return (d->seed * 4 + (uint64_t)shelf) << 32 | number;
}

story_config demo_story(const demo *d, demo_shelf shelf, uint64_t number)
{
    return (story_config){.seed = demo_seed(d, shelf, number),
                          .facts = 4 + (int)(number % 2),
                          .gap = (int)(number % 30),
                          .sentences = 24};
}

/* Stories with an empty line between them: what a run of `steps` reads, about once. */
static dra_status write_stories(const demo *d, const char *path, int64_t *stories, size_t *bytes,
                                dra_error *err)
{
    enum { BYTES = 5, LEAST = 100000 }; /* of a token; so that a short run has a vocabulary, too */
    const size_t     need = (size_t)d->steps * DEMO_BATCH * DEMO_CONTEXT * BYTES + LEAST;
    story            s = {0};
    dra_file_writer *w = NULL;
    dra_status       st = dra_file_writer_begin(path, &w, err);
    *bytes = 0;
    for (*stories = 0; st == DRA_OK && *bytes < need; ++*stories) {
        const story_config c = demo_story(d, DEMO_LEARNED, (uint64_t)*stories);
        story_write(&s, &c);
        if (s.failed) st = cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
        if (st == DRA_OK && *stories) st = dra_file_writer_write(w, "\n", 1, err);
        if (st == DRA_OK) st = dra_file_writer_write(w, s.text, s.bytes, err);
        if (st == DRA_OK) st = dra_file_writer_write(w, "\n", 1, err);
        *bytes += s.bytes;
    }
    story_free(&s);
    if (st == DRA_OK) return dra_file_writer_commit(w, err);
    dra_file_writer_abort(w);
    return st;
}

static dra_status train_tokenizer(demo *d, const char *stories, dra_error *err)
{
    static const char *const   special[] = {"<|endoftext|>"};
    char                       path[DEMO_PATH];
    const dra_tokenizer_config c = {.n = 1,
                                    .paths = &stories,
                                    .separator = "",
                                    .size = VOCAB,
                                    .n_special = 1,
                                    .special = special};
    dra_status                 st = demo_path(d, "tokenizer.json", path, err);
    if (st == DRA_OK) st = dra_tokenizer_train(&c, NULL, NULL, &d->tokenizer, err);
    return st == DRA_OK ? dra_tokenizer_save(d->tokenizer, path, err) : st;
}

static dra_status open_corpus(demo *d, const char *stories, dra_error *err)
{
    const dra_corpus_config c = {
        .n = 1, .paths = &stories, .tokenizer = d->tokenizer, .separator = ""};
    return cli_corpus_open(&c, "  reading stories", &d->corpus, err);
}

/* The first sentences of a text. */
static void show_begin(FILE *out, const char *text, size_t bytes)
{
    enum { SHOWN = 560 };
    demo_wrap w = {.out = out, .margin = "  | "};
    size_t    n = bytes < SHOWN ? bytes : SHOWN;
    while (n && text[n - 1] != '.') n--;
    demo_wrap_text(&w, text, n);
    demo_wrap_text(&w, " ...", n < bytes ? 4 : 0);
    demo_wrap_end(&w);
}

dra_status demo_text(demo *d, dra_error *err)
{
    const double began = cli_now();
    char         path[DEMO_PATH], a[24], b[24];
    story        s = {0};
    int64_t      stories = 0;
    size_t       bytes = 0;
    demo_heading(d, "Stories: what is told early returns later");
    dra_status st = demo_path(d, "stories.txt", path, err);
    if (st == DRA_OK) st = write_stories(d, path, &stories, &bytes, err);
    if (st == DRA_OK) st = train_tokenizer(d, path, err);
    if (st == DRA_OK) st = open_corpus(d, path, err);
    if (st != DRA_OK) return st;
    const story_config c = demo_story(d, DEMO_LEARNED, 0);
    story_write(&s, &c);
    show_begin(demo_out(d), s.text, s.bytes);
    story_free(&s);
    fprintf(demo_out(d), "  %lld stories, %s, %s tokens of a vocabulary of %d\n",
            (long long)stories, cli_bytes_text(bytes, a),
            cli_count_text((double)dra_corpus_tokens(d->corpus), b),
            dra_tokenizer_size(d->tokenizer));
    demo_took(d, began);
    return DRA_OK;
}
