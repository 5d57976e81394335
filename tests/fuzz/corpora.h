/* What must hold for a corpus of bytes, for harnesses. */
#ifndef DRA_TESTS_FUZZ_CORPORA_H
#define DRA_TESTS_FUZZ_CORPORA_H

#include "dra/data.h"
#include "dra/sequence.h"
#include "file/fail.h"
#include "harness.h"

static dra_tokenizer *corpus_tokenizer; /* of bytes; a harness makes it by corpora_begin() */

static inline void corpora_begin(void)
{
    dra_error err = {0};
    must(dra_tokenizer_bytes(&corpus_tokenizer, &err), &err);
}

static inline void corpora_end(void) { dra_tokenizer_destroy(corpus_tokenizer); }

static inline void corpus_check_batch(const dra_feed_config *c, const int32_t *ids,
                                      const int32_t *targets, const int32_t *mark)
{
    const int32_t largest = dra_corpus_largest(c->corpus);
    for (int64_t i = 0; i < c->B * c->T; i++) {
        if (ids[i] < 0 || ids[i] > largest) broken("an id outside");
        if (targets[i] < -1 || targets[i] > largest) broken("a target outside");
        if (mark[i] < 0 || mark[i] > DRA_MARK_RESET) broken("a strange mark");
    }
}

static inline void corpus_check_feed(const dra_corpus *c)
{
    static int32_t  ids[64], targets[64], mark[64];
    dra_feed_config config = {.corpus = c, .B = 1 + below(4), .T = 1 + below(16), .seed = below(9)};
    dra_feed       *f = NULL;
    config.carry = below(2), config.cross = below(2), config.once = below(2);
    if (below(2)) config.to = 0.5;
    if (dra_feed_create(&config, &f, NULL) != DRA_OK) return;
    for (int64_t step = 0; step < 6; step++) {
        dra_feed_batch(f, step < 5 ? step : (int64_t)1 << 50, ids, targets, mark);
        corpus_check_batch(&config, ids, targets, mark);
    }
    dra_feed_destroy(f);
}

static inline void corpus_check(const dra_corpus *c)
{
    const int64_t n = dra_corpus_tokens(c), documents = dra_corpus_documents(c);
    int32_t      *ids = n > 0 ? malloc((size_t)n * sizeof *ids) : NULL;
    if (!ids || documents < 1) broken("a corpus without tokens or documents");
    dra_corpus_read(c, 0, n, ids);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] > 255) broken("a token outside");
    for (int64_t i = 0; i < documents; i++)
        if (dra_corpus_document(c, i) >= dra_corpus_document(c, i + 1)) broken("documents");
    free(ids);
    for (int i = 0; i < 3; i++) corpus_check_feed(c);
}

/* The corpus of a file, checked, or NULL where it is refused as it should be. */
static inline dra_corpus *corpus_try(const char *path, dra_corpus_config config)
{
    char        shown[DRA_BRIEF];
    const char *paths[] = {path};
    dra_corpus *c = (dra_corpus *)shown; /* must be cleared */
    dra_error   err = {0};
    config.n = 1, config.paths = paths, config.tokenizer = corpus_tokenizer;
    if (dra_corpus_open(&config, NULL, NULL, &c, &err) == DRA_OK) {
        corpus_check(c);
        return c;
    }
    if (c) broken("a refused file gave a corpus");
    expect_line(&err, dra_brief(path, shown));
    return NULL;
}

#endif
