/* What must hold for a tokenizer, for harnesses: ids are those of plain loops, the same for a text
 * in parts, and give the text back; one that is saved and opened is the same. */
#ifndef DRA_TESTS_FUZZ_TOKENIZERS_H
#define DRA_TESTS_FUZZ_TOKENIZERS_H

#include "harness.h"
#include "text/letters.h"
#include "text/split.h"
#include "text/tokenizer.h"

enum { TEXT = 200 };

static inline size_t random_text(char *text)
{
    static const char *const parts[] = {
        "a",        "ab",           "st",           "'s", "'",
        " ",        "  ",           "\n",           "1",  ".",
        "\xc3\xa9", "\xcc\x81",     "\xe6\xb0\xb4", "<|", "<|endoftext|>",
        "\xff",     "\xe2\x80\x83", DRA_BLOCK,      "S",  "\r\n"};
    size_t n = 0;
    for (uint32_t k = below(40); k && n + 16 < TEXT; k--) {
        const char *part = one_of(parts, COUNT(parts));
        memcpy(text + n, part, strlen(part));
        n += strlen(part);
        if (below(12) == 0) text[n++] = (char)below(256);
    }
    return n;
}

/* The lowest rank, then the first place, until there is none: merging without a heap. */
static inline size_t slow_merge(const dra_tokenizer *t, const char *text, size_t n, int32_t *id)
{
    dra_symbol symbol[TEXT];
    size_t     at;
    id[0] = t->how.whole ? dra_word_find(t, text, n) : -1;
    if (id[0] >= 0) return 1;
    n = dra_symbols_make(t, symbol, text, n, &at);
    for (size_t i = 0; i < n; i++) id[i] = symbol[i].id;
    for (;;) {
        const dra_pair *best = NULL;
        size_t          place = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const dra_pair *p = dra_pairs_find(&t->pairs, id[i], id[i + 1]);
            if (p->id >= 0 && (!best || p->rank < best->rank)) best = p, place = i;
        }
        if (!best) return n;
        id[place] = best->id;
        memmove(id + place + 1, id + place + 2, (--n - place - 1) * sizeof *id);
    }
}

static inline void check_merges(const dra_tokenizer *t, const char *text, size_t n,
                                const dra_ids *ids)
{
    size_t made_ids = 0;
    for (size_t k; n; text += k, n -= k) {
        int32_t id[TEXT];
        k = dra_piece_next(t, text, n);
        const size_t some = slow_merge(t, text, k, id);
        if (made_ids + some > ids->n || memcmp(ids->data + made_ids, id, some * sizeof *id) != 0)
            broken("merged otherwise");
        made_ids += some;
    }
    if (made_ids != ids->n) broken("too many ids");
}

/* No token that matches the text at this place is longer than the one taken. */
static inline void check_longest(const dra_tokenizer *t, const char *text, size_t n,
                                 const dra_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        const uint32_t bytes = t->token[ids->data[i]].bytes;
        for (int32_t k = 1; k < t->size; k++) {
            const dra_token *other = &t->token[k];
            if (other->kind && other->bytes > bytes && other->bytes <= n &&
                memcmp(other->text, text, other->bytes) == 0)
                broken("a longer entry fits");
        }
        text += bytes;
        n -= bytes;
    }
}

static inline void check_back(const dra_tokenizer *t, const char *text, size_t n,
                              const dra_ids *ids)
{
    for (size_t i = 0, k; i < ids->n; i++, text += k, n -= k) {
        const char *piece = dra_tokenizer_piece(t, ids->data[i], &k);
        if (!piece || k > n || memcmp(piece, text, k) != 0) broken("the text does not come back");
    }
    if (n) broken("the text comes back short");
}

static inline void check_parts(const dra_tokenizer *t, const char *text, size_t n,
                               const dra_ids *whole)
{
    dra_ids ids = {0};
    size_t  done = 0, here = 0;
    while (here < n) {
        here += 1 + below(20);
        if (here > n) here = n;
        const size_t   cut = dra_encode_cut(t, text + done, here - done);
        const unsigned how = done ? DRA_ENCODE_REST : 0;
        if (dra_encode_as(t, text + done, cut, how, &ids, NULL) != DRA_OK)
            broken("a part is refused");
        done += cut;
    }
    const unsigned how = done ? DRA_ENCODE_REST : 0;
    if (dra_encode_as(t, text + done, n - done, how, &ids, NULL) != DRA_OK)
        broken("the rest is refused");
    if (ids.n != whole->n ||
        (ids.n && memcmp(ids.data, whole->data, ids.n * sizeof *ids.data) != 0))
        broken("other ids in parts");
    dra_ids_free(&ids);
}

static inline void check_decoded(const dra_tokenizer *t, const dra_ids *ids)
{
    dra_decoder *d = NULL;
    const char  *text;
    size_t       n;
    int32_t      code;
    if (dra_decoder_create(t, below(2), &d, NULL) != DRA_OK) broken("no decoder");
    for (size_t i = 0; i <= ids->n; i++) {
        if (i == ids->n)
            dra_decoder_flush(d, &text, &n);
        else if (dra_decoder_push(d, ids->data[i], &text, &n, NULL) != DRA_OK)
            broken("an id is refused");
        for (size_t at = 0; at < n;) {
            at += dra_utf8(text + at, n - at, &code);
            if (code < 0) broken("half a letter");
        }
    }
    dra_decoder_destroy(d);
}

/* The bytes of the tokens are those of the text. */
static inline bool keeps_text(const dra_tokenizer *t, const char *text, size_t n)
{
    bool keeps = !t->how.nfc && !t->how.prefix && (t->how.split || t->how.fallback);
    for (size_t i = 0; i < t->n_added; i++)
        keeps = keeps && !t->added[i].left && !t->added[i].right;
    for (int i = 0; i < 256; i++) keeps = keeps && (t->how.split || t->byte_id[i] >= 0);
    for (size_t i = 0; i + 3 <= n; i++)
        keeps = keeps && (t->how.split || memcmp(text + i, DRA_BLOCK, 3) != 0);
    return keeps;
}

static inline void text_use(const dra_tokenizer *t)
{
    char             text[TEXT];
    const size_t     n = random_text(text);
    dra_ids          ids = {0};
    dra_error        err = {0};
    const bool       plain = keeps_text(t, text, n);
    const dra_status status = dra_encode(t, text, n, &ids, &err);
    if (status == DRA_OK) {
        if (plain) check_back(t, text, n, &ids);
        if (plain && !t->n_added) check_merges(t, text, n, &ids);
        if (t->longest_first) check_longest(t, text, n, &ids);
        check_parts(t, text, n, &ids);
        check_decoded(t, &ids);
    } else if (!strstr(err.text, "has no token for the byte") || ids.n) {
        broken(err.text);
    }
    dra_ids_free(&ids);
}

static inline void text_save(const dra_tokenizer *t, const char *path)
{
    dra_tokenizer *again = NULL;
    dra_error      err = {0};
    must(dra_tokenizer_save(t, path, &err), &err);
    must(dra_tokenizer_open(path, &again, &err), &err);
    if (dra_tokenizer_fingerprint(t) != dra_tokenizer_fingerprint(again)) broken("saved otherwise");
    dra_tokenizer_destroy(again);
}

/* Uses a tokenizer that was read and saves it as `path`, or looks at why it was refused; frees it.
 */
static inline int text_judge(dra_status status, dra_tokenizer *t, const dra_error *err,
                             const char *place, const char *path)
{
    if (status == DRA_OK) {
        for (int i = 0; i < 4; i++) text_use(t);
        if (below(8) == 0) text_save(t, path);
    } else {
        if (t || status != DRA_ERR_FORMAT) broken(err->text);
        expect_line(err, place);
    }
    dra_tokenizer_destroy(t);
    return status == DRA_OK;
}

#endif
