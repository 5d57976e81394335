/* A tokenizer as a file: tokenizer.json, or the text file of RWKV World. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "dra/file.h"
#include "file/fail.h"
#include "text/letters.h"
#include "text/tokenizer.h"
#include "text/world.h"

typedef struct writer {
    const dra_tokenizer *t;
    dra_alphabet         alphabet;
    char                *room; /* for two tokens in the alphabet and a space */
} writer;

/* A token as vocabularies write it; returns its bytes. */
static size_t spell(const writer *w, int32_t id, char *out)
{
    const dra_token *k = &w->t->token[id];
    if (k->kind == DRA_TOKEN_BYTES) return dra_alphabet_write(&w->alphabet, k->text, k->bytes, out);
    memcpy(out, k->text, k->bytes);
    out[k->bytes] = 0;
    return k->bytes;
}

/* `whole`: nothing got lost for want of memory. What is NULL makes all that holds it NULL. */
static json_t *keep(json_t *made, bool whole)
{
    if (whole) return made;
    json_decref(made);
    return NULL;
}

static json_t *vocabulary(const writer *w)
{
    json_t *vocab = json_object();
    bool    whole = true;
    for (int32_t id = 0; id < w->t->size && whole; id++) {
        const uint8_t kind = w->t->token[id].kind;
        if (kind == DRA_TOKEN_NONE || kind == DRA_TOKEN_ADDED) continue;
        spell(w, id, w->room);
        whole = json_object_set_new(vocab, w->room, json_integer(id)) == 0;
    }
    return keep(vocab, whole);
}

static json_t *merges(const writer *w)
{
    json_t *list = json_array();
    bool    whole = true;
    for (size_t i = 0; i < w->t->merges && whole; i++) {
        size_t n = spell(w, w->t->merge[i].left, w->room);
        w->room[n++] = ' ';
        n += spell(w, w->t->merge[i].right, w->room + n);
        whole = json_array_append_new(list, json_stringn(w->room, n)) == 0;
    }
    return keep(list, whole);
}

static json_t *added_tokens(const dra_tokenizer *t)
{
    json_t *list = json_array();
    bool    whole = true;
    for (size_t i = 0; i < t->n_added && whole; i++) {
        const dra_added *a = &t->added[i];
        whole = json_array_append_new(list,
                                      json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", a->id,
                                                "content", a->text, a->bytes, "single_word", 0,
                                                "lstrip", a->left, "rstrip", a->right, "normalized",
                                                a->normalized, "special", a->special)) == 0;
    }
    return keep(list, whole);
}

static json_t *byte_level(bool prefix_space)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", prefix_space,
                     "trim_offsets", 1, "use_regex", 1);
}

static json_t *model(const writer *w)
{
    return json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                     "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                     "byte_fallback", 0, "ignore_merges", 0, "vocab", vocabulary(w), "merges",
                     merges(w));
}

static json_t *everything(const writer *w)
{
    const dra_tokenizer *t = w->t;
    return json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:n, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", added_tokens(t), "normalizer",
                     t->nfc ? json_pack("{s:s}", "type", "NFC") : json_null(), "pre_tokenizer",
                     byte_level(t->prefix_space), "post_processor", "decoder", byte_level(false),
                     "model", model(w));
}

dra_status dra_tokenizer_save(const dra_tokenizer *t, const char *path, dra_error *err)
{
    if (!t || !path) return dra_fail(err, DRA_ERR_VALUE, "tokenizer_save: no tokenizer or path");
    if (t->longest_first) return dra_world_write(t, path, err);
    writer     w = {.t = t, .room = malloc(4 * (size_t)t->longest + 3)};
    dra_status status = DRA_ERR_MEMORY;
    dra_alphabet_make(&w.alphabet);
    json_t *json = w.room ? everything(&w) : NULL;
    char   *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
    if (text)
        status = dra_file_write(path, text, strlen(text), err);
    else
        dra_fail_at(err, DRA_ERR_MEMORY, path, "no memory to write a tokenizer");
    free(text);
    free(w.room);
    json_decref(json);
    return status;
}
