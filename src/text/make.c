/* A tokenizer of bytes, special tokens and merges, as training makes it. */
#include <stdlib.h>
#include <string.h>

#include "file/fail.h"
#include "file/format.h"
#include "text/learn.h"
#include "text/letters.h"

typedef struct maker {
    dra_tokenizer     *t;
    dra_alphabet       alphabet;
    const char *const *special;
    int                n_special;
    dra_error         *err;
} maker;

static dra_status no_memory(const maker *m)
{
    return dra_fail(m->err, DRA_ERR_MEMORY, "tokenizer_train: out of memory for a tokenizer");
}

/* A special token is written as it is, the others in the byte alphabet: no spelling may mean two
 * tokens. `room` is as long as the text. */
static dra_status check_special(const maker *m, int i, char *room)
{
    const char  *text = m->special[i], *wrong = NULL;
    char         brief[DRA_BRIEF];
    const size_t bytes = dra_alphabet_read(&m->alphabet, text, room);
    if (!text[0]) wrong = "is empty";
    if (!wrong && !dra_is_utf8(text)) wrong = "is not UTF-8";
    if (!wrong && bytes == 1) wrong = "is a byte, which has a token of its own";
    if (!wrong && bytes != SIZE_MAX && (bytes != strlen(text) || memcmp(room, text, bytes) != 0))
        wrong = "is how files write other bytes";
    for (int k = 0; k < i && !wrong; k++)
        if (strcmp(m->special[k], text) == 0) wrong = "is there twice";
    if (!wrong) return DRA_OK;
    return dra_fail(m->err, DRA_ERR_VALUE, "tokenizer_train: special token %d, '%s': %s", i,
                    dra_brief(text, brief), wrong);
}

static dra_status add_special(maker *m, int i)
{
    dra_tokenizer *t = m->t;
    const size_t   bytes = strlen(m->special[i]);
    char          *text = dra_arena_text(&t->arena, m->special[i]);
    char          *room = dra_arena_alloc(&t->arena, bytes + 1);
    if (!text || !room) return no_memory(m);
    const dra_status status = check_special(m, i, room);
    if (status != DRA_OK) return status;
    const bool literal = dra_alphabet_read(&m->alphabet, text, room) == SIZE_MAX;
    t->token[i] = (dra_token){text, (uint32_t)bytes, literal ? DRA_TOKEN_LITERAL : DRA_TOKEN_BYTES,
                              .special = true};
    t->added[i] = (dra_added){.id = i, .text = text, .bytes = bytes, .special = true};
    return DRA_OK;
}

static dra_status add_bytes(maker *m)
{
    char   *text = dra_arena_alloc(&m->t->arena, 256);
    int32_t id = m->n_special;
    if (!text) return no_memory(m);
    for (int letter = 0; letter < DRA_ALPHABET; letter++) {
        if (m->alphabet.byte[letter] < 0) continue;
        *text = (char)m->alphabet.byte[letter];
        m->t->token[id++] = (dra_token){.text = text, .bytes = 1, .kind = DRA_TOKEN_BYTES};
        text++;
    }
    return DRA_OK;
}

/* Special tokens are cut out of the text, but NFC may make the same letters of others. */
static dra_status check_apart(const maker *m, int32_t id)
{
    const dra_token *k = &m->t->token[id];
    char             brief[DRA_BRIEF];
    for (int i = 0; i < m->n_special; i++)
        if (m->t->token[i].bytes == k->bytes && memcmp(m->t->token[i].text, k->text, k->bytes) == 0)
            return dra_fail(m->err, DRA_ERR_VALUE,
                            "tokenizer_train: special token %d, '%s': NFC makes it of other text",
                            i, dra_brief(m->special[i], brief));
    return DRA_OK;
}

static dra_status add_merge(maker *m, size_t rank, dra_merge_rule rule)
{
    dra_tokenizer   *t = m->t;
    const dra_token *a = &t->token[rule.left], *b = &t->token[rule.right];
    char            *text = dra_arena_alloc(&t->arena, (size_t)a->bytes + b->bytes);
    if (!text) return no_memory(m);
    memcpy(text, a->text, a->bytes);
    memcpy(text + a->bytes, b->text, b->bytes);
    t->token[rule.id] = (dra_token){
        .text = text, .bytes = a->bytes + b->bytes, .kind = DRA_TOKEN_BYTES};
    t->merge[rank] = rule;
    *dra_pairs_find(&t->pairs, rule.left, rule.right) = (dra_pair){rule.left, rule.right,
                                                                   (int32_t)rank, rule.id};
    return check_apart(m, rule.id);
}

static dra_status fill_tokenizer(maker *m, const dra_merge_rule *merge, size_t n)
{
    dra_tokenizer *t = m->t;
    const size_t   specials = (size_t)m->n_special;
    t->size = (int32_t)(specials + 256 + n);
    t->token = dra_arena_alloc(&t->arena, (size_t)t->size * sizeof *t->token);
    t->added = dra_arena_alloc(&t->arena, specials * sizeof *t->added);
    t->merge = dra_arena_alloc(&t->arena, n * sizeof *t->merge);
    if (!t->token || !t->added || !t->merge || !dra_pairs_make(&t->pairs, n, &t->arena))
        return no_memory(m);
    dra_status status = DRA_OK;
    for (int i = 0; i < m->n_special && status == DRA_OK; i++) status = add_special(m, i);
    if (status == DRA_OK) status = add_bytes(m);
    for (size_t i = 0; i < n && status == DRA_OK; i++) status = add_merge(m, i, merge[i]);
    t->n_added = specials;
    t->merges = n;
    return status == DRA_OK ? dra_tokenizer_finish(t, "tokenizer_train", m->err) : status;
}

dra_status dra_tokenizer_make(const char *const *special, int n_special, bool nfc,
                              const dra_merge_rule *merge, size_t n, dra_tokenizer **out,
                              dra_error *err)
{
    maker m = {calloc(1, sizeof *m.t), .special = special, .n_special = n_special, .err = err};
    *out = NULL;
    if (!m.t) return no_memory(&m);
    dra_alphabet_make(&m.alphabet);
    m.t->how.nfc = nfc;
    m.t->how.split = &dra_splitters[DRA_SPLITTER_GPT2];
    const dra_status status = fill_tokenizer(&m, merge, n);
    if (status == DRA_OK)
        *out = m.t;
    else
        dra_tokenizer_destroy(m.t);
    return status;
}
