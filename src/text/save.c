/* A tokenizer as a file: tokenizer.json, or the text file of RWKV World. */
#include <stdlib.h>
#include <string.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/json_make.h"
#include "text/spell.h"
#include "text/world.h"

typedef struct writer {
    const dra_tokenizer *t;
    dra_json             json;
    dra_speller          speller;
} writer;

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

static json_t *make_vocabulary(writer *w)
{
    json_t *vocab = dra_json_object(&w->json);
    for (int32_t id = 0; id < w->t->size && !w->json.failed; id++) {
        const uint8_t kind = w->t->token[id].kind;
        if (kind == DRA_TOKEN_NONE || kind == DRA_TOKEN_ADDED) continue;
        dra_spell_token(&w->speller, id, w->speller.room);
        dra_json_set(&w->json, vocab, w->speller.room, dra_json_int(&w->json, id));
    }
    return vocab;
}

static json_t *make_merges(writer *w)
{
    json_t *list = dra_json_array(&w->json);
    for (size_t i = 0; i < w->t->merges && !w->json.failed; i++) {
        const size_t n = dra_spell_merge(&w->speller, i);
        dra_json_append(&w->json, list, dra_json_text_of(&w->json, w->speller.room, n));
    }
    return list;
}

static json_t *added_token(writer *w, const dra_added *a)
{
    json_t     *o = dra_json_object(&w->json);
    const bool  early = w->t->how.early && a->normalized; /* what is looked for is normalised */
    const bool  own = w->t->token[a->id].kind == DRA_TOKEN_ADDED;
    const char *text = early ? w->speller.room : a->text;
    size_t      n = a->bytes;
    if (early && own)
        text = dra_added_name(w->t, a, &n);
    else if (early)
        n = dra_spell_token(&w->speller, a->id, w->speller.room);
    dra_json_set(&w->json, o, "id", dra_json_int(&w->json, a->id));
    dra_json_set(&w->json, o, "content", dra_json_text_of(&w->json, text, n));
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

/* {"type": TYPE} */
static json_t *make_part(writer *w, const char *type)
{
    json_t *o = dra_json_object(&w->json);
    put_text(w, o, "type", type);
    return o;
}

/* The members of a sequence are appended to *list. */
static json_t *make_sequence(writer *w, const char *members, json_t **list)
{
    json_t *o = make_part(w, "Sequence");
    *list = dra_json_array(&w->json);
    dra_json_set(&w->json, o, members, *list);
    return o;
}

static json_t *byte_level(writer *w, bool prefix_space, bool pattern)
{
    json_t *o = make_part(w, "ByteLevel");
    put_bool(w, o, "add_prefix_space", prefix_space);
    put_bool(w, o, "trim_offsets", true);
    put_bool(w, o, "use_regex", pattern);
    return o;
}

static json_t *make_replace(writer *w, const char *from, const char *to)
{
    json_t *o = make_part(w, "Replace"), *pattern = dra_json_object(&w->json);
    put_text(w, pattern, "String", from);
    dra_json_set(&w->json, o, "pattern", pattern);
    put_text(w, o, "content", to);
    return o;
}

static json_t *make_normalizer(writer *w)
{
    json_t *list;
    if (w->t->how.nfc) return make_part(w, "NFC");
    if (!w->t->how.early) return json_null();
    if (w->t->how.prefix != DRA_PREFIX_ALWAYS) return make_replace(w, " ", DRA_BLOCK);
    json_t *o = make_sequence(w, "normalizers", &list), *prepend = make_part(w, "Prepend");
    put_text(w, prepend, "prepend", DRA_BLOCK);
    dra_json_append(&w->json, list, prepend);
    dra_json_append(&w->json, list, make_replace(w, " ", DRA_BLOCK));
    return o;
}

static json_t *make_metaspace(writer *w)
{
    static const char *const schemes[] = {"never", "always", "first"};
    json_t                  *o = make_part(w, "Metaspace");
    put_text(w, o, "replacement", DRA_BLOCK);
    put_text(w, o, "prepend_scheme", schemes[w->t->how.prefix]);
    put_bool(w, o, "split", w->t->how.at_spaces);
    return o;
}

static json_t *split_digits(writer *w)
{
    json_t *o = make_part(w, "Digits");
    put_bool(w, o, "individual_digits", true);
    return o;
}

static json_t *split_by(writer *w, const char *pattern)
{
    json_t *o = make_part(w, "Split"), *is = dra_json_object(&w->json);
    put_text(w, is, "Regex", pattern);
    dra_json_set(&w->json, o, "pattern", is);
    put_text(w, o, "behavior", "Isolated");
    put_bool(w, o, "invert", false);
    return o;
}

static json_t *make_pre_tokenizer(writer *w)
{
    const dra_splitter *s = w->t->how.split;
    json_t             *list;
    if (!s) return w->t->how.early ? json_null() : make_metaspace(w);
    if (!s->pattern && !s->digits) return byte_level(w, w->t->how.prefix, true);
    json_t *o = make_sequence(w, "pretokenizers", &list);
    dra_json_append(&w->json, list, s->digits ? split_digits(w) : split_by(w, s->pattern));
    dra_json_append(&w->json, list, byte_level(w, false, s->digits));
    return o;
}

static json_t *make_decoder(writer *w)
{
    const dra_layout *how = &w->t->how;
    json_t           *list;
    if (how->split) return byte_level(w, false, true);
    json_t *o = make_sequence(w, "decoders", &list);
    if (how->strip != DRA_STRIP_TOKEN)
        dra_json_append(&w->json, list, make_replace(w, DRA_BLOCK, " "));
    if (how->has_bytes) dra_json_append(&w->json, list, make_part(w, "ByteFallback"));
    if (how->strip == DRA_STRIP_TOKEN) {
        json_t *space = make_part(w, "Metaspace");
        put_text(w, space, "replacement", DRA_BLOCK);
        put_text(w, space, "prepend_scheme", "always");
        put_bool(w, space, "split", true);
        dra_json_append(&w->json, list, space);
        return o;
    }
    dra_json_append(&w->json, list, make_part(w, "Fuse"));
    if (how->strip) {
        json_t *strip = make_part(w, "Strip");
        put_text(w, strip, "content", " ");
        dra_json_set(&w->json, strip, "start", dra_json_int(&w->json, 1));
        dra_json_set(&w->json, strip, "stop", dra_json_int(&w->json, 0));
        dra_json_append(&w->json, list, strip);
    }
    return o;
}

static json_t *make_model(writer *w)
{
    const dra_layout *how = &w->t->how;
    json_t           *o = make_part(w, "BPE");
    put_null(w, o, "dropout");
    put_null(w, o, "unk_token");
    if (!how->split && how->unknown >= 0) {
        dra_spell_token(&w->speller, how->unknown, w->speller.room);
        put_text(w, o, "unk_token", w->speller.room);
    }
    put_null(w, o, "continuing_subword_prefix");
    put_null(w, o, "end_of_word_suffix");
    put_bool(w, o, "fuse_unk", how->fuse && !how->split);
    put_bool(w, o, "byte_fallback", how->fallback && !how->split);
    put_bool(w, o, "ignore_merges", how->whole);
    dra_json_set(&w->json, o, "vocab", make_vocabulary(w));
    dra_json_set(&w->json, o, "merges", make_merges(w));
    return o;
}

static json_t *template_item(writer *w, const char *kind, const char *id, int type)
{
    json_t *o = dra_json_object(&w->json), *is = dra_json_object(&w->json);
    put_text(w, is, "id", id);
    dra_json_set(&w->json, is, "type_id", dra_json_int(&w->json, type));
    dra_json_set(&w->json, o, kind, is);
    return o;
}

/* Appends tokens to a template and tells their ids. */
static void put_around(writer *w, const dra_around *a, json_t *list, json_t *known)
{
    for (int i = 0; i < a->n; i++) {
        json_t *token = dra_json_object(&w->json), *ids = dra_json_array(&w->json);
        json_t *names = dra_json_array(&w->json);
        char   *name = w->speller.room;
        dra_spell_token(&w->speller, a->id[i], name);
        dra_json_append(&w->json, list, template_item(w, "SpecialToken", name, 0));
        put_text(w, token, "id", name);
        dra_json_append(&w->json, ids, dra_json_int(&w->json, a->id[i]));
        dra_json_append(&w->json, names, dra_json_text(&w->json, name));
        dra_json_set(&w->json, token, "ids", ids);
        dra_json_set(&w->json, token, "tokens", names);
        dra_json_set(&w->json, known, name, token);
    }
}

static json_t *make_post_processor(writer *w)
{
    const dra_layout *how = &w->t->how;
    if (!how->before.n && !how->behind.n) return json_null();
    json_t *o = make_part(w, "TemplateProcessing"), *known = dra_json_object(&w->json);
    for (int pair = 0; pair < 2; pair++) {
        json_t *list = dra_json_array(&w->json);
        put_around(w, &how->before, list, known);
        dra_json_append(&w->json, list, template_item(w, "Sequence", "A", 0));
        if (pair) dra_json_append(&w->json, list, template_item(w, "Sequence", "B", 1));
        put_around(w, &how->behind, list, known);
        dra_json_set(&w->json, o, pair ? "pair" : "single", list);
    }
    dra_json_set(&w->json, o, "special_tokens", known);
    return o;
}

static json_t *make_tokenizer(writer *w)
{
    json_t *o = dra_json_object(&w->json);
    put_text(w, o, "version", "1.0");
    put_null(w, o, "truncation");
    put_null(w, o, "padding");
    dra_json_set(&w->json, o, "added_tokens", added_tokens(w));
    dra_json_set(&w->json, o, "normalizer", make_normalizer(w));
    dra_json_set(&w->json, o, "pre_tokenizer", make_pre_tokenizer(w));
    dra_json_set(&w->json, o, "post_processor", make_post_processor(w));
    dra_json_set(&w->json, o, "decoder", make_decoder(w));
    dra_json_set(&w->json, o, "model", make_model(w));
    return o;
}

dra_status dra_tokenizer_save(const dra_tokenizer *t, const char *path, dra_error *err)
{
    if (!t || !path) return dra_fail(err, DRA_ERR_VALUE, "tokenizer_save: no tokenizer or path");
    if (t->longest_first) return dra_world_write(t, path, err);
    writer     w = {.t = t};
    char      *text = NULL;
    size_t     bytes = 0;
    const bool room = dra_speller_make(&w.speller, t);
    w.json.failed = !room;
    json_t    *json = room ? make_tokenizer(&w) : NULL;
    dra_status status = dra_json_dump(&w.json, json, JSON_INDENT(2), path, &text, &bytes, err);
    if (status == DRA_OK) status = dra_file_write(path, text, bytes, err);
    free(text);
    dra_speller_free(&w.speller);
    json_decref(json);
    return status;
}
