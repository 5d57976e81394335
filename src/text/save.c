/* A tokenizer as a file: tokenizer.json, or the text file of RWKV World. */
#include <stdlib.h>
#include <string.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/json_make.h"
#include "text/letters.h"
#include "text/tokenizer.h"
#include "text/world.h"

typedef struct writer {
    const dra_tokenizer *t;
    dra_json             json;
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

static void put_text(writer *w, json_t *to, const char *key, const char *text)
{
    dra_json_set(&w->json, to, key, dra_json_text(&w->json, text));
}

static void put_bool(writer *w, json_t *to, const char *key, bool x)
{
    dra_json_set(&w->json, to, key, dra_json_bool(x));
}

static void put_null(writer *w, json_t *to, const char *key)
{
    dra_json_set(&w->json, to, key, json_null());
}

static json_t *vocabulary(writer *w)
{
    json_t *vocab = dra_json_object(&w->json);
    for (int32_t id = 0; id < w->t->size && !w->json.failed; id++) {
        const uint8_t kind = w->t->token[id].kind;
        if (kind == DRA_TOKEN_NONE || kind == DRA_TOKEN_ADDED) continue;
        spell(w, id, w->room);
        dra_json_set(&w->json, vocab, w->room, dra_json_int(&w->json, id));
    }
    return vocab;
}

static json_t *merges(writer *w)
{
    json_t *list = dra_json_array(&w->json);
    for (size_t i = 0; i < w->t->merges && !w->json.failed; i++) {
        size_t n = spell(w, w->t->merge[i].left, w->room);
        w->room[n++] = ' ';
        n += spell(w, w->t->merge[i].right, w->room + n);
        dra_json_append(&w->json, list, dra_json_text_of(&w->json, w->room, n));
    }
    return list;
}

static json_t *added_token(writer *w, const dra_added *a)
{
    json_t *o = dra_json_object(&w->json);
    dra_json_set(&w->json, o, "id", dra_json_int(&w->json, a->id));
    dra_json_set(&w->json, o, "content", dra_json_text_of(&w->json, a->text, a->bytes));
    put_bool(w, o, "single_word", false);
    put_bool(w, o, "lstrip", a->left);
    put_bool(w, o, "rstrip", a->right);
    put_bool(w, o, "normalized", a->normalized);
    put_bool(w, o, "special", a->special);
    return o;
}

static json_t *added_tokens(writer *w)
{
    json_t *list = dra_json_array(&w->json);
    for (size_t i = 0; i < w->t->n_added && !w->json.failed; i++)
        dra_json_append(&w->json, list, added_token(w, &w->t->added[i]));
    return list;
}

static json_t *byte_level(writer *w, bool prefix_space)
{
    json_t *o = dra_json_object(&w->json);
    put_text(w, o, "type", "ByteLevel");
    put_bool(w, o, "add_prefix_space", prefix_space);
    put_bool(w, o, "trim_offsets", true);
    put_bool(w, o, "use_regex", true);
    return o;
}

static json_t *normalizer(writer *w)
{
    if (!w->t->nfc) return json_null();
    json_t *o = dra_json_object(&w->json);
    put_text(w, o, "type", "NFC");
    return o;
}

static json_t *model(writer *w)
{
    json_t *o = dra_json_object(&w->json);
    put_text(w, o, "type", "BPE");
    put_null(w, o, "dropout");
    put_null(w, o, "unk_token");
    put_null(w, o, "continuing_subword_prefix");
    put_null(w, o, "end_of_word_suffix");
    put_bool(w, o, "fuse_unk", false);
    put_bool(w, o, "byte_fallback", false);
    put_bool(w, o, "ignore_merges", false);
    dra_json_set(&w->json, o, "vocab", vocabulary(w));
    dra_json_set(&w->json, o, "merges", merges(w));
    return o;
}

static json_t *everything(writer *w)
{
    json_t *o = dra_json_object(&w->json);
    put_text(w, o, "version", "1.0");
    put_null(w, o, "truncation");
    put_null(w, o, "padding");
    dra_json_set(&w->json, o, "added_tokens", added_tokens(w));
    dra_json_set(&w->json, o, "normalizer", normalizer(w));
    dra_json_set(&w->json, o, "pre_tokenizer", byte_level(w, w->t->prefix_space));
    put_null(w, o, "post_processor");
    dra_json_set(&w->json, o, "decoder", byte_level(w, false));
    dra_json_set(&w->json, o, "model", model(w));
    return o;
}

dra_status dra_tokenizer_save(const dra_tokenizer *t, const char *path, dra_error *err)
{
    if (!t || !path) return dra_fail(err, DRA_ERR_VALUE, "tokenizer_save: no tokenizer or path");
    if (t->longest_first) return dra_world_write(t, path, err);
    writer w = {.t = t, .room = malloc(4 * (size_t)t->longest + 3)};
    char  *text = NULL;
    size_t bytes = 0;
    w.json.failed = !w.room;
    dra_alphabet_make(&w.alphabet);
    json_t    *json = w.room ? everything(&w) : NULL;
    dra_status status = dra_json_dump(&w.json, json, JSON_INDENT(2), path, &text, &bytes, err);
    if (status == DRA_OK) status = dra_file_write(path, text, bytes, err);
    free(text);
    free(w.room);
    json_decref(json);
    return status;
}
