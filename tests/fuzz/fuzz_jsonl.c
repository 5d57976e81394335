/* Lines of JSON as training data: a corpus of them, and examples of two texts. What must hold:
 *   - a file as made is accepted, with all its tokens and documents;
 *   - any other is refused by one line that names it, or accepted and fit to be fed. */
#include "corpora.h"

enum { DOCUMENTS = 12 };

static char    path[FUZZ_PATH + 8];
static int64_t tokens, documents; /* of the file that was made */

static void say_text(fuzz_bytes *b)
{
    static const char *const letters[] = {"a",       " ",       "\\n",         "\\\"",
                                          "\\u00e9", "\\u0000", "\xe6\xb0\xb4"};
    const int64_t            length[] = {1, 1, 1, 1, 2, 1, 3};
    const uint32_t           n = below(9);
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t letter = below(COUNT(letters));
        say(b, letters[letter]);
        tokens += length[letter];
    }
    documents += n > 0;
}

static void make(fuzz_bytes *b)
{
    tokens = 1, documents = 1;
    say(b, "{\"text\":\"a\",\"src\":\"b\"}\n");
    for (uint32_t i = below(DOCUMENTS); i; i--) {
        say(b, (const char *[]){"{\"text\":\"", " {\"n\": [1,-2e3,{}], \"text\" : \"",
                                "\n\r\n{\"src\":\"x\",\"text\": \""}[below(3)]);
        say_text(b);
        say(b, (const char *[]){"\"}\n", "\" , \"b\":null}\r\n"}[below(2)]);
    }
}

static void read_rows(const dra_examples *e)
{
    static int32_t to[1 << 14];
    const int64_t  rows[] = {dra_examples_count(e) - 1, 0, -1};
    for (int i = 0; i < dra_examples_inputs(e); i++) {
        const dra_example_input *in = dra_examples_at(e, i);
        if (in->shape.rank != 1) broken("ids that are no list");
        dra_examples_check_integers(e, in->name, 0, 255, true, NULL);
        if (3 * in->shape.dim[0] <= (int64_t)COUNT(to))
            must(dra_examples_read(e, in->name, 3, rows, DRA_I32, to, NULL), &(dra_error){0});
    }
    dra_examples_fingerprint(e);
}

static void try_examples(void)
{
    const dra_example_text texts[] = {{.name = "tgt", .key = "text", .tokenizer = corpus_tokenizer},
                                      {.name = "src", .tokenizer = corpus_tokenizer}};
    char                   shown[DRA_BRIEF];
    dra_examples          *e = NULL;
    dra_error              err = {0};
    dra_examples_config    c = {.path = path, .B = 2, .texts = texts};
    c.n_texts = 1 + (int)below(2);
    if (dra_examples_open(&c, &e, &err) == DRA_OK)
        read_rows(e);
    else
        expect_line(&err, dra_brief(path, shown));
    dra_examples_close(e);
}

int harness(const uint8_t *data, size_t bytes)
{
    put_file(path, data, bytes);
    dra_corpus *c = corpus_try(path, (dra_corpus_config){0});
    dra_corpus_close(c);
    try_examples();
    return c != NULL;
}

static void made(const fuzz_bytes *b)
{
    put_file(path, b->at, b->n);
    dra_corpus *c = corpus_try(path, (dra_corpus_config){0});
    if (!c || dra_corpus_tokens(c) != tokens || dra_corpus_documents(c) != documents)
        broken("the tokens or documents of a file as made");
    dra_corpus_close(c);
}

static void begin(void)
{
    char name[FUZZ_PATH];
    corpora_begin();
    fuzz_path(name);
    snprintf(path, sizeof path, "%s.jsonl", name);
}

static void end(void)
{
    corpora_end();
    unlink(path);
}

static const char *const words[] = {"\"",
                                    "}",
                                    "{",
                                    "\n",
                                    "-\n",
                                    "\\",
                                    "\\ud800",
                                    "\xff",
                                    "null",
                                    "-1",
                                    "9223372036854775807",
                                    "[",
                                    "]",
                                    ",",
                                    ":",
                                    "1e400",
                                    "\"text\"",
                                    "\"src\"",
                                    "\\u0000",
                                    "\r\n",
                                    NULL};

const fuzz_subject fuzz_this = {
    .words = words, .begin = begin, .end = end, .make = make, .made = made};
