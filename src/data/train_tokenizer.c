/* Training a tokenizer: the words of all documents are counted, merges are learned from them. */
#include <stdlib.h>

#include "data/documents.h"
#include "file/fail.h"
#include "text/count.h"
#include "text/learn.h"

enum { SLICE = 1 << 25 }; /* bytes of a document between two calls of the meter */

typedef struct training {
    const dra_tokenizer_config *c;
    dra_tokenizer_progress      fn;
    void                       *user;
    dra_counter                 counter;
    dra_meter                   meter;
} training;

static void tell_read(void *user, int64_t done, int64_t total)
{
    const training *t = user;
    if (t->fn) t->fn(t->user, false, done, total);
}

/* ---- words ----------------------------------------------------------------------------------- */

static dra_status read_document(void *user, const char *text, size_t bytes, int64_t at,
                                dra_error *err)
{
    training  *t = user;
    dra_status status = DRA_OK;
    for (size_t done = 0, n = 0; done < bytes && status == DRA_OK; done += n) {
        n = dra_cut_next(t->counter.t, text + done, bytes - done, SLICE);
        status = dra_counter_read(&t->counter, text + done, n, err);
        if (n >= SLICE / 2) dra_meter_tell(&t->meter, at + (int64_t)(done + n));
    }
    return status;
}

static dra_status read_source(training *t, const dra_source *s, dra_error *err)
{
    const dra_meter whole = t->meter;
    dra_file_map    text;
    if (dra_data_kind_is_tokens(s->kind))
        return dra_fail_at(err, DRA_ERR_FORMAT, s->path, "holds %s, expected text or .jsonl",
                           s->kind == DRA_DATA_IDS ? "tensors" : dra_data_kind_text(s->kind));
    dra_status status = dra_source_map(s, &text, err);
    if (status != DRA_OK) return status;
    t->meter = dra_meter_inside(&whole, s, &text);
    const dra_documents d = {t->c->text_key, t->c->separator, &t->meter, read_document, t};
    status = dra_documents_read(&d, s, &text, err);
    dra_file_map_close(&text);
    t->meter = whole;
    t->meter.before += s->bytes;
    dra_meter_tell(&t->meter, 0);
    return status;
}

static dra_status read_all(training *t, const dra_words **words, dra_error *err)
{
    dra_sources sources = {0};
    dra_status  status = dra_sources_list(t->c->n, t->c->paths, t->c->format, &sources, err);
    t->meter = (dra_meter){.fn = tell_read, .user = t, .total = sources.bytes};
    for (size_t i = 0; i < sources.n && status == DRA_OK; i++)
        status = read_source(t, &sources.at[i], err);
    if (status == DRA_OK) status = dra_counter_end(&t->counter, words, err);
    if (status == DRA_OK && (*words)->n == 0)
        status = dra_fail_at(err, DRA_ERR_VALUE, sources.at[0].path, "no text in it%s",
                             sources.n > 1 ? " and the files after it" : "");
    dra_sources_free(&sources);
    return status;
}

/* ---- merges ---------------------------------------------------------------------------------- */

static void tell_made(void *user, size_t merges)
{
    const training *t = user;
    const int64_t   before = t->counter.t->size;
    if (t->fn) t->fn(t->user, true, before + (int64_t)merges, t->c->size);
}

static dra_status learn_merges(training *t, const dra_words *words, dra_tokenizer **out,
                               dra_error *err)
{
    const dra_tokenizer_config *c = t->c;
    const dra_learn_config      how = {.start = t->counter.t,
                                       .merges = (size_t)(c->size - t->counter.t->size),
                                       .min_count = c->min_count ? c->min_count : 2,
                                       .made = tell_made,
                                       .user = t};
    size_t                      n;
    dra_merge_rule             *merge = malloc((how.merges + 1) * sizeof *merge);
    if (!merge)
        return dra_fail(err, DRA_ERR_MEMORY, "tokenizer_train: out of memory for %zu merges",
                        how.merges);
    dra_status status = dra_learn(&how, words, merge, &n, err);
    if (status == DRA_OK)
        status = dra_tokenizer_make(c->special, c->n_special, c->nfc, merge, n, out, err);
    free(merge);
    return status;
}

/* ---- the interface --------------------------------------------------------------------------- */

static dra_status check_config(const dra_tokenizer_config *c, dra_error *err)
{
    if (!c || c->n < 1 || !c->paths)
        return dra_fail(err, DRA_ERR_VALUE, "tokenizer_train: no paths, expected at least one");
    for (int i = 0; i < c->n_special; i++)
        if (!c->special || !c->special[i])
            return dra_fail(err, DRA_ERR_VALUE, "tokenizer_train: special token %d is NULL", i);
    if (c->n_special < 0 || c->size < 256 + (int64_t)c->n_special || c->size > DRA_MOST_IDS)
        return dra_fail(err, DRA_ERR_VALUE,
                        "tokenizer_train: size %d with %d special tokens, expected from %lld (all "
                        "bytes and those) to %d",
                        c->size, c->n_special, 256 + (long long)c->n_special, DRA_MOST_IDS);
    if (c->min_count < 0)
        return dra_fail(err, DRA_ERR_VALUE, "tokenizer_train: min_count %lld, expected 0 or more",
                        (long long)c->min_count);
    return DRA_OK;
}

dra_status dra_tokenizer_train(const dra_tokenizer_config *c, dra_tokenizer_progress fn, void *user,
                               dra_tokenizer **out, dra_error *err)
{
    training         t = {.c = c, .fn = fn, .user = user};
    dra_tokenizer   *start = NULL;
    const dra_words *words = NULL;
    if (!out) return dra_fail(err, DRA_ERR_VALUE, "tokenizer_train: no out");
    *out = NULL;
    dra_status status = check_config(c, err);
    if (status == DRA_OK)
        status = dra_tokenizer_make(c->special, c->n_special, c->nfc, NULL, 0, &start, err);
    if (status == DRA_OK) status = dra_counter_begin(&t.counter, start, c->threads, err);
    if (status == DRA_OK) status = read_all(&t, &words, err);
    if (status == DRA_OK) status = learn_merges(&t, words, out, err);
    dra_counter_free(&t.counter);
    dra_tokenizer_destroy(start);
    return status;
}
