/* The files vocab.json and merges.txt of GPT-2; an input has both, with a NUL between them. What
 * must hold:
 *   - files as made are accepted;
 *   - any others as well, and the tokenizer is sound (tokenizers.h), or they are refused by one
 *     line that names one of them. */
#include "tokenizers.h"
#include "vocabularies.h"

static char path[FUZZ_PATH], vocab[FUZZ_PATH + 8], merges[FUZZ_PATH + 8];

static void make(fuzz_bytes *b)
{
    static fuzz_bytes lines;
    made              m = {0};
    lines.n = 0;
    make_bytes(&m);
    if (below(2)) say(&lines, "#version: 0.2\n");
    say_merges(&lines, &m, true);
    say_vocabulary(b, &m);
    put(b, "", 1);
    put(b, lines.at, lines.n);
}

int harness(const uint8_t *data, size_t bytes)
{
    const uint8_t *cut = bytes ? memchr(data, 0, bytes) : NULL;
    const size_t   n = cut ? (size_t)(cut - data) : bytes;
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    put_file(vocab, data, n);
    put_file(merges, cut ? cut + 1 : data, cut ? bytes - n - 1 : 0);
    const dra_status status = dra_tokenizer_read_pair(vocab, merges, &t, &err);
    return text_judge(status, t, &err, path, vocab);
}

static void begin(void)
{
    fuzz_path(path);
    snprintf(vocab, sizeof vocab, "%s.json", path);
    snprintf(merges, sizeof merges, "%s.txt", path);
}

static void end(void)
{
    unlink(vocab);
    unlink(merges);
}

static const char *const words[] = {"{",    "}",        "\"",   ",",       ":",       "\\",
                                    "-1",   "0",        "null", "\\u0000", " ",       "\n",
                                    "\r\n", "#version", "\xff", "4194304", "\\u0120", NULL};

const fuzz_subject fuzz_this = {.words = words, .begin = begin, .end = end, .make = make};
