/* A corpus: pieces, one for each file that has tokens, in order. */
#include "data/corpus.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/shape.h"
#include "data/sources.h"
#include "file/fail.h"
#include "file/sweep.h"
#include "file/system.h"

struct dra_corpus {
    dra_token_file *piece;
    size_t          n;
    int64_t         tokens, documents, bytes;
    int32_t         largest;
    uint64_t        fingerprint;
    char            about[256], name[160];
};

/* ---- open ------------------------------------------------------------------------------------ */

static void add_piece(dra_corpus *c, dra_token_file *p)
{
    if (p->tokens == 0) {
        dra_token_file_close(p);
        return;
    }
    p->first_token = c->tokens;
    p->first_document = c->documents;
    c->tokens += p->tokens;
    c->documents += p->documents;
    c->bytes = p->bytes < 0 || c->bytes < 0 ? -1 : c->bytes + p->bytes;
    if (p->largest > c->largest) c->largest = p->largest;
    c->piece[c->n++] = *p;
}

/* What was recognised where names do not say it: a kind after the other. */
static void add_about(dra_corpus *c, const dra_source *s, int64_t tokens)
{
    const size_t n = strlen(c->about), room = sizeof c->about - n;
    const char  *kind = dra_data_kind_text(s->kind), *packing = dra_packing_name(s->packing);
    if (s->kind <= DRA_DATA_IDS && !packing) return;
    if (dra_data_kind_is_tokens(s->kind))
        snprintf(c->about + n, room, "%s%s%s%s, %lld of them", n ? "; " : "", kind,
                 packing ? ", " : "", packing ? packing : "", (long long)tokens);
    else
        snprintf(c->about + n, room, "%s%s, %s", n ? "; " : "", kind, packing);
}

/* Of the files: the first, and how many there are beside it. */
static void put_name(dra_corpus *c, const dra_sources *s)
{
    char room[DRA_BRIEF], more[32] = "";
    if (s->n > 1) snprintf(more, sizeof more, " and %zu more", s->n - 1);
    if (s->n) snprintf(c->name, sizeof c->name, "%s%s", dra_brief(s->at[0].path, room), more);
}

/* Of all ids one after the other, wherever files cut them, and then where documents start. */
static uint64_t finish_fingerprint(const dra_corpus *c, dra_hash *ids)
{
    for (int64_t i = 0; i <= c->documents; i++) { /* the last one is the number of tokens */
        const int64_t start = dra_corpus_document(c, i);
        dra_hash_add(ids, &start, sizeof start);
    }
    return dra_hash_end(ids);
}

static dra_status open_sources(dra_corpus *c, const dra_sources *s, const dra_corpus_config *config,
                               dra_meter meter, dra_error *err)
{
    dra_hash ids;
    dra_hash_begin(&ids, 0);
    meter.total = s->bytes;
    put_name(c, s);
    c->piece = calloc(s->n, sizeof *c->piece);
    if (!c->piece) return dra_fail(err, DRA_ERR_MEMORY, "corpus_open: out of memory");
    for (size_t i = 0; i < s->n; i++) {
        dra_token_file   p;
        const dra_status status = dra_source_open(&s->at[i], config, &meter, &ids, &p, err);
        if (status != DRA_OK) return status;
        add_about(c, &s->at[i], p.tokens);
        add_piece(c, &p);
        meter.before += s->at[i].bytes;
    }
    if (c->tokens == 0)
        return dra_fail_at(err, DRA_ERR_VALUE, s->at[0].path,
                           "no tokens in it%s, expected at least one",
                           s->n > 1 ? " and the files after it" : "");
    c->fingerprint = finish_fingerprint(c, &ids);
    return DRA_OK;
}

static dra_status check_config(const dra_corpus_config *c, dra_error *err)
{
    if (!c || c->n < 1 || !c->paths)
        return dra_fail(err, DRA_ERR_VALUE, "corpus_open: no paths, expected at least one");
    if (c->cache && dra_sys_mkdir(c->cache) != 0 && errno != EEXIST)
        return dra_fail_system(err, c->cache, "make it as a cache", errno);
    if (c->cache) dra_sweep_unlocked(c->cache);
    return DRA_OK;
}

dra_status dra_corpus_open(const dra_corpus_config *config, dra_progress fn, void *user,
                           dra_corpus **out, dra_error *err)
{
    dra_sources sources = {0};
    if (!out) return dra_fail(err, DRA_ERR_VALUE, "corpus_open: no out");
    *out = NULL;
    dra_status status = check_config(config, err);
    if (status != DRA_OK) return status;
    dra_corpus *c = calloc(1, sizeof *c);
    if (!c) return dra_fail(err, DRA_ERR_MEMORY, "corpus_open: out of memory");
    status = dra_sources_list(config->n, config->paths, config->format, &sources, err);
    if (status == DRA_OK)
        status = open_sources(c, &sources, config, (dra_meter){.fn = fn, .user = user}, err);
    dra_sources_free(&sources);
    if (status == DRA_OK)
        *out = c;
    else
        dra_corpus_close(c);
    return status;
}

void dra_corpus_close(dra_corpus *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n; i++) dra_token_file_close(&c->piece[i]);
    free(c->piece);
    free(c);
}

/* ---- read ------------------------------------------------------------------------------------ */

int64_t  dra_corpus_tokens(const dra_corpus *c) { return c->tokens; }
int64_t  dra_corpus_documents(const dra_corpus *c) { return c->documents; }
int64_t  dra_corpus_bytes(const dra_corpus *c) { return c->bytes; }
int32_t  dra_corpus_largest(const dra_corpus *c) { return c->largest; }
uint64_t dra_corpus_fingerprint(const dra_corpus *c) { return c->fingerprint; }

const char *dra_corpus_name(const dra_corpus *c) { return c->name; }

const char *dra_corpus_about(const dra_corpus *c) { return c->about[0] ? c->about : NULL; }

static int64_t first_token(const dra_token_file *p) { return p->first_token; }
static int64_t first_document(const dra_token_file *p) { return p->first_document; }

/* The last piece that starts at or before token or document i. */
static const dra_token_file *piece_of(const dra_corpus *c, int64_t (*first)(const dra_token_file *),
                                      int64_t           i)
{
    size_t low = 0, high = c->n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(first(&c->piece[middle]) <= i ? &low : &high) = middle;
    }
    return &c->piece[low];
}

int64_t dra_corpus_document(const dra_corpus *c, int64_t i)
{
    assert(i >= 0 && i <= c->documents);
    if (i == c->documents) return c->tokens;
    const dra_token_file *p = piece_of(c, first_document, i);
    return p->first_token + dra_token_file_start(p, i - p->first_document);
}

int64_t dra_corpus_find(const dra_corpus *c, int64_t token)
{
    const dra_token_file *p = piece_of(c, first_token, token);
    int64_t               low = 0, high = p->documents;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        *(p->first_token + dra_token_file_start(p, middle) <= token ? &low : &high) = middle;
    }
    return p->first_document + low;
}

void dra_corpus_read(const dra_corpus *c, int64_t from, int64_t n, int32_t *ids)
{
    assert(from >= 0 && n >= 0 && n <= c->tokens - from);
    while (n > 0) {
        const dra_token_file *p = piece_of(c, first_token, from);
        const int64_t         at = from - p->first_token, some = dra_imin(n, p->tokens - at);
        dra_integers_copy(p->ids, at, some, ids);
        from += some, ids += some, n -= some;
    }
}
