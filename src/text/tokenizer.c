/* Tokenizers once their files are read: tables that follow from them, and questions about them. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "file/fail.h"
#include "text/letters.h"

/* ---- words: tokens that merging gives for their own bytes ------------------------------------ */

/* The slot of a word, or the free one it would have. */
static dra_word *find_word(const dra_tokenizer *t, uint64_t hash, const char *text, size_t bytes)
{
    const size_t mask = SIZE_MAX >> t->word_shift;
    size_t       i = (size_t)(hash >> t->word_shift);
    for (; t->word[i].id >= 0; i = (i + 1) & mask) {
        if (t->word[i].hash != (uint32_t)hash) continue;
        const dra_token *k = &t->token[t->word[i].id];
        if (k->bytes == bytes && memcmp(k->text, text, bytes) == 0) break;
    }
    return &t->word[i];
}

int32_t dra_word_find(const dra_tokenizer *t, const char *text, size_t bytes)
{
    return find_word(t, dra_hash_of(0, text, bytes), text, bytes)->id;
}

static bool merges_to_itself(const dra_tokenizer *t, dra_merger *m, int32_t id)
{
    const dra_token *k = &t->token[id];
    size_t           at;
    if (t->how.whole) return true;
    const size_t n = dra_symbols_make(t, m->symbol, k->text, k->bytes, &at);
    if (n == SIZE_MAX) return false;
    dra_merge(m, &t->pairs, n);
    return m->symbol[0].id == id && m->symbol[0].next == (uint32_t)DRA_NOWHERE;
}

static bool is_character(const dra_token *k)
{
    int32_t code;
    return dra_utf8(k->text, k->bytes, &code) == k->bytes && code >= 0;
}

/* Characters are words from the start: the others are merged from them. */
static void add_words(dra_tokenizer *t, dra_merger *m, bool characters)
{
    for (int32_t id = 0; id < t->size; id++) {
        const dra_token *k = &t->token[id];
        if (k->kind != DRA_TOKEN_BYTES) continue;
        if (!t->how.split && is_character(k) != characters) continue;
        if (!characters && !merges_to_itself(t, m, id)) continue;
        const uint64_t hash = dra_hash_of(0, k->text, k->bytes);
        *find_word(t, hash, k->text, k->bytes) = (dra_word){(uint32_t)hash, id};
    }
}

static bool make_words(dra_tokenizer *t)
{
    dra_merger m = {0};
    size_t     slots = 4;
    t->word_shift = 62;
    while (slots < 2 * (size_t)t->size) slots *= 2, t->word_shift--;
    t->word = dra_arena_alloc(&t->arena, slots * sizeof *t->word);
    if (!t->word || !dra_merger_reserve(&m, t->longest)) {
        dra_merger_free(&m);
        return false;
    }
    for (size_t i = 0; i < slots; i++) t->word[i].id = -1;
    if (!t->how.split) add_words(t, &m, true);
    add_words(t, &m, false);
    dra_merger_free(&m);
    return true;
}

/* ---- what else follows ----------------------------------------------------------------------- */

static void note_joins(dra_tokenizer *t)
{
    for (size_t k = 0; k < t->n_added; k++)
        for (size_t i = 1; i < t->added[k].bytes; i++) {
            const unsigned char a = (unsigned char)t->added[k].text[i - 1];
            const unsigned char b = (unsigned char)t->added[k].text[i];
            t->joins[a][b / 8] |= (uint8_t)(1u << b % 8);
        }
}

/* No merge crosses what ends with a byte and a space. */
static void note_breaks(dra_tokenizer *t)
{
    for (int i = 0; i < 256; i++) t->breaks[i] = !t->how.split;
    for (size_t i = 0; i < t->merges && !t->how.at_spaces; i++) {
        const dra_token *a = &t->token[t->merge[i].left], *b = &t->token[t->merge[i].right];
        if (b->text[0] == ' ') t->breaks[(unsigned char)a->text[a->bytes - 1]] = false;
    }
}

static bool has_byte_ids(const dra_tokenizer *t) /* and nothing else */
{
    bool plain = t->size == 256 && !t->merges && !t->n_added && !t->how.nfc && !t->how.prefix &&
                 t->how.split == &dra_splitters[DRA_SPLITTER_GPT2] && !t->how.before.n &&
                 !t->how.behind.n;
    for (int i = 0; i < 256 && plain; i++) plain = t->byte_id[i] == i;
    return plain;
}

static void mix_number(dra_hash *h, int64_t n) { dra_hash_add(h, &n, sizeof n); }

static void mix_around(dra_hash *h, const dra_around *a)
{
    mix_number(h, a->n);
    for (int i = 0; i < a->n; i++) mix_number(h, a->id[i]);
}

/* Of what GPT-2's kind does not have. */
static void mix_layout(dra_hash *h, const dra_tokenizer *t)
{
    const dra_layout *how = &t->how;
    const bool        own = how->split == &dra_splitters[DRA_SPLITTER_GPT2] && !how->whole;
    if (own && !how->before.n && !how->behind.n) return;
    const char *name = how->split ? how->split->name : "characters";
    dra_hash_add(h, name, strlen(name));
    mix_number(h, how->whole + 2 * how->early + 4 * how->at_spaces + 8 * how->fallback +
                      16 * how->fuse + 32 * how->has_bytes + 64 * how->by_score);
    mix_number(h, how->prefix + 8 * (int64_t)(how->split ? -1 : how->unknown));
    mix_around(h, &how->before);
    mix_around(h, &how->behind);
}

/* Of all that decides about ids. */
static uint64_t make_fingerprint(const dra_tokenizer *t)
{
    dra_hash h;
    dra_hash_begin(&h, 0);
    mix_number(&h, t->size);
    mix_number(&h, t->how.nfc + 2 * (t->how.prefix == DRA_PREFIX_EACH));
    for (int32_t i = 0; i < t->size; i++) {
        mix_number(&h, t->token[i].kind + 4 * (int64_t)t->token[i].bytes);
        dra_hash_add(&h, t->token[i].text, t->token[i].bytes);
    }
    for (size_t i = 0; i < t->merges; i++) {
        mix_number(&h, t->merge[i].left);
        mix_number(&h, t->merge[i].right);
        mix_number(&h, t->merge[i].id);
    }
    for (size_t i = 0; i < t->n_added; i++) {
        const dra_added *a = &t->added[i];
        mix_number(&h, a->id);
        mix_number(&h, a->special + 2 * (a->normalized && (t->how.nfc || t->how.early)) +
                           4 * a->left + 8 * a->right);
    }
    mix_layout(&h, t);
    return dra_hash_end(&h);
}

/* The first of these that is a token ends a text, where its files do not say which. */
static int32_t find_end(const dra_tokenizer *t)
{
    static const char *const names[] = {DRA_END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>"};
    int32_t                  end = -1;
    for (size_t i = 0; i < sizeof names / sizeof *names && end < 0; i++)
        if (i == 0 || dra_tokenizer_is_special(t, dra_tokenizer_id(t, names[i])))
            end = dra_tokenizer_id(t, names[i]);
    return end;
}

dra_status dra_tokenizer_finish(dra_tokenizer *t, const char *path, dra_error *err)
{
    for (int i = 0; i < 256; i++) t->byte_id[i] = -1;
    for (int32_t id = 0; id < t->size; id++) {
        const dra_token *k = &t->token[id];
        if (k->bytes > t->longest) t->longest = k->bytes;
        if (k->kind == (t->how.split ? DRA_TOKEN_BYTES : DRA_TOKEN_BYTE) && k->bytes == 1)
            t->byte_id[(unsigned char)k->text[0]] = id;
    }
    note_joins(t);
    note_breaks(t);
    if (!make_words(t) || !dra_matcher_make(&t->raw, t->added, t->n_added, false, &t->arena) ||
        !dra_matcher_make(&t->normal, t->added, t->n_added, true, &t->arena))
        return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory for its %zu merges",
                           t->merges);
    t->is_bytes = has_byte_ids(t);
    if (!t->has_end) t->end = t->longest_first ? 0 : find_end(t);
    t->fingerprint = make_fingerprint(t);
    return DRA_OK;
}

/* ---- the interface --------------------------------------------------------------------------- */

dra_status dra_tokenizer_bytes(dra_tokenizer **out, dra_error *err)
{
    if (!out) return dra_fail(err, DRA_ERR_VALUE, "tokenizer_bytes: no place for the result");
    dra_tokenizer *t = *out = calloc(1, sizeof *t);
    char          *text = t ? dra_arena_alloc(&t->arena, 256) : NULL;
    if (text) t->token = dra_arena_alloc(&t->arena, 256 * sizeof *t->token);
    dra_status status = DRA_ERR_MEMORY;
    if (text && t->token) {
        t->size = 256;
        t->how.split = &dra_splitters[DRA_SPLITTER_GPT2];
        for (int i = 0; i < 256; i++) {
            text[i] = (char)i;
            t->token[i] = (dra_token){.text = text + i, .bytes = 1, .kind = DRA_TOKEN_BYTES};
        }
        if (dra_pairs_make(&t->pairs, 0, &t->arena)) status = dra_tokenizer_finish(t, "bytes", err);
    }
    if (status == DRA_OK) return DRA_OK;
    dra_tokenizer_destroy(t);
    *out = NULL;
    return dra_fail(err, DRA_ERR_MEMORY, "tokenizer_bytes: out of memory");
}

void dra_tokenizer_destroy(dra_tokenizer *t)
{
    if (!t) return;
    dra_arena arena = t->arena;
    dra_arena_free(&arena);
    free(t);
}

int32_t dra_tokenizer_size(const dra_tokenizer *t) { return t->size; }
int32_t dra_tokenizer_end(const dra_tokenizer *t) { return t->end; }
int32_t dra_tokenizer_begin(const dra_tokenizer *t)
{
    return t->how.before.n ? t->how.before.id[0] : -1;
}
bool     dra_tokenizer_is_bytes(const dra_tokenizer *t) { return t->is_bytes; }
uint64_t dra_tokenizer_fingerprint(const dra_tokenizer *t) { return t->fingerprint; }

const char *dra_added_name(const dra_tokenizer *t, const dra_added *a, size_t *bytes)
{
    const dra_token *k = &t->token[a->id];
    const bool       prefix = k->kind == DRA_TOKEN_ADDED && t->how.early && a->normalized &&
                        t->how.prefix == DRA_PREFIX_ALWAYS;
    *bytes = k->bytes - prefix;
    return k->text + prefix;
}

int32_t dra_tokenizer_id(const dra_tokenizer *t, const char *text)
{
    const size_t n = strlen(text);
    for (size_t i = 0; i < t->n_added; i++) {
        size_t      bytes;
        const char *name = dra_added_name(t, &t->added[i], &bytes);
        if (bytes == n && memcmp(name, text, n) == 0) return t->added[i].id;
    }
    const int32_t word = n ? dra_word_find(t, text, n) : -1;
    for (int32_t id = 0; word < 0 && id < t->size; id++)
        if (t->token[id].kind && t->token[id].bytes == n && memcmp(t->token[id].text, text, n) == 0)
            return id;
    return word;
}

const char *dra_tokenizer_piece(const dra_tokenizer *t, int32_t id, size_t *bytes)
{
    const bool there = id >= 0 && id < t->size && t->token[id].kind != DRA_TOKEN_NONE;
    *bytes = there ? t->token[id].bytes : 0;
    return there ? t->token[id].text : NULL;
}

bool dra_tokenizer_is_special(const dra_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->size && t->token[id].special;
}
