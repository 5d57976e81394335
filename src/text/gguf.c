/* Tokenizers of GGUF files: those of bytes, model "gpt2", tokens and merges spelled as in GPT-2's
 * files, those of characters, "llama" (text/gguf_scores.h), and RWKV World (text/gguf_world.h). */
#include "text/gguf.h"
#include "text/gguf_scores.h"
#include "text/gguf_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/file_map.h"
#include "file/gguf.h"
#include "text/spell.h"
#include "text/vocabulary.h"

#define KEY(name) DRA_GGUF_TOKENIZER_KEY(name)

/* ---- reading --------------------------------------------------------------------------------- */

/* How text becomes pieces, by its name; of several names for one thing the first is written. */
static const struct pre {
    const char *name;
    uint8_t     splitter;
    bool        nfc, whole, begin; /* `begin`: texts start with bos unless the file says no */
} pres[] = {{"gpt-2", DRA_SPLITTER_GPT2, 0, 0, 0},      {"llama-bpe", DRA_SPLITTER_LLAMA3, 0, 1, 1},
            {"llama3", DRA_SPLITTER_LLAMA3, 0, 1, 1},   {"llama-v3", DRA_SPLITTER_LLAMA3, 0, 1, 1},
            {"lfm2", DRA_SPLITTER_LLAMA3, 0, 1, 1},     {"falcon-h1", DRA_SPLITTER_LLAMA3, 0, 1, 1},
            {"dbrx", DRA_SPLITTER_LLAMA3, 0, 0, 0},     {"qwen2", DRA_SPLITTER_QWEN2, 1, 0, 0},
            {"qwen35", DRA_SPLITTER_QWEN35, 1, 0, 0},   {"smollm", DRA_SPLITTER_DIGITS, 0, 0, 0},
            {"starcoder", DRA_SPLITTER_DIGITS, 0, 0, 0}};
enum { PRES = sizeof pres / sizeof *pres };

static const char *text_of(const json_t *pairs, const char *key, const char *usual)
{
    const char *text = json_string_value(json_object_get(pairs, key));
    return text ? text : usual;
}

static dra_status read_pre(dra_vocabulary *v, const json_t *pairs, const struct pre **out)
{
    const char *name = text_of(pairs, KEY("pre"), "gpt-2");
    char        room[DRA_BRIEF], names[DRA_ERROR_TEXT / 2] = "";
    size_t      n = 0;
    for (int i = 0; i < PRES; i++) {
        if (strcmp(pres[i].name, name) == 0) {
            *out = &pres[i];
            v->t->how.split = &dra_splitters[pres[i].splitter];
            v->t->how.nfc = pres[i].nfc;
            v->t->how.whole = pres[i].whole;
            return DRA_OK;
        }
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", pres[i].name);
    }
    return dra_vocabulary_fail(v, KEY("pre") " is %s, expected one of %s", dra_brief(name, room),
                               names);
}

/* A yes or no, 1 or 0; `usual` where it is not said. */
static bool is_on(const json_t *pairs, const char *key, bool usual)
{
    const json_t *x = json_object_get(pairs, key);
    return json_is_boolean(x) ? json_is_true(x) : usual;
}

/* The id of a token that there is; -1: the file names none. */
static dra_status read_id(const dra_vocabulary *v, const json_t *pairs, const char *key,
                          int32_t usual, int32_t *out)
{
    const json_t *x = json_object_get(pairs, key);
    const int64_t id = json_is_integer(x) ? (int64_t)json_integer_value(x) : usual;
    *out = (int32_t)id;
    if (id == -1 || (id >= 0 && id < v->t->size && v->t->token[id].kind != DRA_TOKEN_NONE))
        return DRA_OK;
    *out = -1;
    return x ? dra_vocabulary_fail(v, "%s is %lld, which is no token", key, (long long)id) : DRA_OK;
}

/* The tokens around texts, and the one that ends them. */
static dra_status read_around(dra_vocabulary *v, const json_t *pairs, bool characters, bool begin)
{
    dra_layout *how = &v->t->how;
    int32_t     bos, eos;
    dra_status  st = read_id(v, pairs, KEY("bos_token_id"), characters ? 1 : -1, &bos);
    if (st == DRA_OK) st = read_id(v, pairs, KEY("eos_token_id"), characters ? 2 : -1, &eos);
    if (st != DRA_OK) return st;
    if (is_on(pairs, KEY("add_bos_token"), begin) && bos >= 0) how->before = (dra_around){{bos}, 1};
    if (is_on(pairs, KEY("add_eos_token"), false) && eos >= 0) how->behind = (dra_around){{eos}, 1};
    v->t->has_end = eos >= 0;
    v->t->end = eos;
    return DRA_OK;
}

/* Spelling to id; what is spelled twice keeps its first id. */
static json_t *vocab_of(dra_vocabulary *v, const json_t *tokens)
{
    json_t *vocab = dra_json_object(&v->json);
    for (size_t i = 0; i < json_array_size(tokens) && !v->json.failed; i++) {
        const char *text = json_string_value(json_array_get(tokens, i));
        if (text && !json_object_get(vocab, text))
            dra_json_set(&v->json, vocab, text, dra_json_int(&v->json, (int64_t)i));
    }
    return vocab;
}

static dra_status add_tokens(dra_vocabulary *v, const json_t *tokens, const json_t *types)
{
    const size_t n = json_array_size(tokens);
    dra_status   st = dra_vocabulary_added(v, n);
    for (size_t i = 0; i < n && st == DRA_OK; i++) {
        const int64_t type = (int64_t)json_integer_value(json_array_get(types, i));
        const char   *text = json_string_value(json_array_get(tokens, i));
        if (!text) return dra_vocabulary_fail(v, KEY("tokens") " %zu is no text", i);
        const bool special = type == DRA_GGUF_CONTROL || type == DRA_GGUF_UNKNOWN;
        if (!special && type != DRA_GGUF_OWN) continue;
        st = dra_vocabulary_add(
            v,
            (dra_added){.id = (int32_t)i, .text = text, .bytes = strlen(text), .special = special});
    }
    return st;
}

static dra_status add_merges(dra_vocabulary *v, const json_t *merges)
{
    const size_t n = json_array_size(merges);
    dra_status   st = dra_vocabulary_merges(v, n);
    for (size_t i = 0; i < n && st == DRA_OK; i++) {
        const char *text = json_string_value(json_array_get(merges, i));
        const char *space = text ? strchr(text + (*text == ' '), ' ') : NULL;
        if (!space) return dra_vocabulary_fail(v, KEY("merges") " %zu: expected two tokens", i);
        st = dra_vocabulary_merge(v, text, (size_t)(space - text), space + 1, strlen(space + 1));
    }
    return st;
}

/* The tokens, their kinds, and how a text of characters is made of them. */
static dra_status fill_tokens(dra_vocabulary *v, const json_t *pairs)
{
    const json_t *tokens = json_object_get(pairs, KEY("tokens"));
    const size_t  n = json_array_size(tokens);
    if (n < 1 || n >= DRA_MOST_IDS)
        return dra_vocabulary_fail(v, "%zu " KEY("tokens") ", expected 1 to %d", n, DRA_MOST_IDS);
    v->vocab = vocab_of(v, tokens);
    if (v->json.failed) return dra_vocabulary_no_memory(v);
    dra_status st = dra_vocabulary_tokens(v, (int64_t)n);
    if (st == DRA_OK) st = add_tokens(v, tokens, json_object_get(pairs, KEY("token_type")));
    return st;
}

static dra_status fill_bytes(dra_vocabulary *v, const json_t *pairs)
{
    const struct pre *pre = NULL;
    dra_status        st = read_pre(v, pairs, &pre);
    if (st == DRA_OK) st = fill_tokens(v, pairs);
    if (st == DRA_OK) st = read_around(v, pairs, false, pre->begin);
    return st == DRA_OK ? add_merges(v, json_object_get(pairs, KEY("merges"))) : st;
}

static dra_status fill_characters(dra_vocabulary *v, const json_t *pairs)
{
    const bool  front = is_on(pairs, KEY("add_space_prefix"), true);
    dra_layout *how = &v->t->how;
    *how = (dra_layout){.early = true, .fallback = true, .has_bytes = true};
    how->prefix = front ? DRA_PREFIX_ALWAYS : DRA_PREFIX_NONE;
    how->strip = front ? DRA_STRIP_ONE : DRA_STRIP_NONE;
    dra_status st = fill_tokens(v, pairs);
    if (st == DRA_OK) st = read_id(v, pairs, KEY("unknown_token_id"), 0, &how->unknown);
    if (st == DRA_OK) st = read_around(v, pairs, true, true);
    if (st != DRA_OK) return st;
    return dra_gguf_scores_read(v, json_object_get(pairs, KEY("tokens")),
                                json_object_get(pairs, KEY("token_type")),
                                json_object_get(pairs, KEY("scores")));
}

static const struct model {
    const char *name;
    dra_status (*fill)(dra_vocabulary *v, const json_t *pairs);
    dra_status (*end)(dra_vocabulary *v, dra_status status, dra_tokenizer **out);
} models[] = {{"gpt2", fill_bytes, dra_vocabulary_end},
              {"llama", fill_characters, dra_vocabulary_end},
              {"rwkv", dra_gguf_world_fill, dra_world_end}};
enum { MODELS = sizeof models / sizeof *models };

/* Makes the tokenizer of a file's pairs; *v has begun. */
static dra_status end_pairs(dra_vocabulary *v, const json_t *pairs, dra_tokenizer **out)
{
    const char *name = text_of(pairs, KEY("model"), "gpt2");
    char        room[DRA_BRIEF];
    int         i = 0;
    while (i < MODELS && strcmp(models[i].name, name) != 0) i++;
    const dra_status st = i < MODELS ? models[i].fill(v, pairs)
                                     : dra_vocabulary_fail(v,
                                                           KEY("model") " is %s, expected "
                                                                        "gpt2, llama or rwkv",
                                                           dra_brief(name, room));
    json_t          *vocab = (json_t *)(uintptr_t)v->vocab;
    const dra_status made = (i < MODELS ? models[i].end : dra_vocabulary_end)(v, st, out);
    json_decref(vocab);
    return made;
}

static dra_status open_pairs(const char *path, dra_gguf *out, dra_file_map *map, dra_error *err)
{
    dra_status st = dra_file_map_open(path, map, err);
    if (st != DRA_OK) return st;
    st = dra_gguf_is(map->data, map->bytes)
             ? dra_gguf_read(path, map->data, map->bytes, out, err)
             : dra_fail_at(err, DRA_ERR_FORMAT, path, "is no GGUF file");
    if (st != DRA_OK) dra_file_map_close(map);
    return st;
}

bool dra_tokenizer_in_gguf(const char *path)
{
    unsigned char first[4] = {0};
    FILE         *f = dra_stream_open(path);
    const bool    is = f && fread(first, 1, sizeof first, f) == sizeof first &&
                    dra_gguf_is(first, sizeof first);
    dra_gguf     g;
    dra_file_map map;
    if (f) fclose(f);
    if (!is || open_pairs(path, &g, &map, NULL) != DRA_OK) return false;
    const bool has = json_object_get(g.pairs, KEY("model"));
    dra_gguf_free(&g);
    dra_file_map_close(&map);
    return has;
}

dra_status dra_tokenizer_read_gguf(const char *path, dra_tokenizer **out, dra_error *err)
{
    dra_vocabulary v;
    dra_gguf       g = {0};
    dra_file_map   map = {0};
    dra_status     st = dra_vocabulary_begin(&v, path, err);
    if (st == DRA_OK) st = open_pairs(path, &g, &map, err);
    st = st == DRA_OK ? end_pairs(&v, g.pairs, out) : dra_vocabulary_end(&v, st, out);
    dra_gguf_free(&g);
    if (map.data) dra_file_map_close(&map);
    return st;
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct writer {
    const dra_tokenizer *t;
    dra_json            *j;
    dra_speller          speller;
} writer;

static bool is_added(const dra_tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id) return true;
    return false;
}

static void put_tokens(const writer *w, int64_t vocab, json_t *pairs)
{
    json_t *tokens = dra_json_array(w->j), *types = dra_json_array(w->j);
    char   *room = w->speller.room;
    for (int32_t id = 0; id < vocab && !w->j->failed; id++) {
        const bool there = id < w->t->size && w->t->token[id].kind != DRA_TOKEN_NONE;
        int        type = !there                                   ? DRA_GGUF_UNUSED
                          : w->t->token[id].kind == DRA_TOKEN_BYTE ? DRA_GGUF_BYTE
                          : w->t->token[id].special                ? DRA_GGUF_CONTROL
                          : is_added(w->t, id)                     ? DRA_GGUF_OWN
                                                                   : DRA_GGUF_NORMAL;
        if (there)
            dra_spell_token(&w->speller, id, room);
        else
            snprintf(room, 16, "[PAD%d]", (int)id);
        dra_json_append(w->j, tokens, dra_json_text(w->j, room));
        dra_json_append(w->j, types, dra_json_int(w->j, type));
    }
    dra_json_set(w->j, pairs, KEY("tokens"), tokens);
    dra_json_set(w->j, pairs, KEY("token_type"), types);
}

static void put_merges(const writer *w, json_t *pairs)
{
    json_t *list = dra_json_array(w->j);
    for (size_t i = 0; i < w->t->merges && !w->j->failed; i++) {
        const size_t n = dra_spell_merge(&w->speller, i);
        dra_json_append(w->j, list, dra_json_text_of(w->j, w->speller.room, n));
    }
    dra_json_set(w->j, pairs, KEY("merges"), list);
}

static void put_id(const writer *w, json_t *pairs, const char *key, int32_t id)
{
    if (id >= 0) dra_json_set(w->j, pairs, key, dra_json_int(w->j, id));
}

static void put_bool(const writer *w, json_t *pairs, const char *key, bool x)
{
    dra_json_set(w->j, pairs, key, dra_json_bool(x));
}

/* What stands around texts; said only where readers would think otherwise. */
static void put_around(const writer *w, json_t *pairs, bool begin)
{
    const dra_around *before = &w->t->how.before, *behind = &w->t->how.behind;
    const int32_t     end = behind->n ? behind->id[0] : dra_tokenizer_end(w->t);
    put_id(w, pairs, KEY("bos_token_id"), before->n ? before->id[0] : end);
    put_id(w, pairs, KEY("eos_token_id"), end);
    if (before->n || begin) put_bool(w, pairs, KEY("add_bos_token"), before->n);
    if (behind->n) put_bool(w, pairs, KEY("add_eos_token"), true);
}

static dra_status put_bytes(const writer *w, int64_t vocab, json_t *pairs, dra_error *err)
{
    const dra_layout *how = &w->t->how;
    int               i = 0;
    while (i < PRES && (how->split != &dra_splitters[pres[i].splitter] || how->nfc != pres[i].nfc ||
                        how->whole != pres[i].whole))
        i++;
    if (i == PRES || how->prefix)
        return dra_fail(err, DRA_ERR_VALUE,
                        "gguf: no " KEY("pre") " names the tokenizer's kind: pattern of %s%s%s%s",
                        how->split->name, how->nfc ? ", NFC" : "",
                        how->whole ? ", ignore_merges" : "",
                        how->prefix ? ", add_prefix_space" : "");
    dra_json_set(w->j, pairs, KEY("model"), dra_json_text(w->j, "gpt2"));
    dra_json_set(w->j, pairs, KEY("pre"), dra_json_text(w->j, pres[i].name));
    put_tokens(w, vocab, pairs);
    put_merges(w, pairs);
    put_around(w, pairs, pres[i].begin);
    return DRA_OK;
}

/* Readers of scores merge whatever gives a token, so nothing else may be merged here. */
static dra_status check_scores(const dra_tokenizer *t, const json_t *pairs, dra_error *err)
{
    dra_vocabulary v;
    dra_tokenizer *read = NULL;
    dra_status     st = dra_vocabulary_begin(&v, "gguf", err);
    if (st == DRA_OK) st = end_pairs(&v, pairs, &read);
    if (st != DRA_OK) return st;
    bool same = read->merges == t->merges;
    for (size_t i = 0; i < t->merges && same; i++) {
        const dra_merge_rule m = t->merge[i];
        same = dra_pairs_find(&read->pairs, m.left, m.right)->id == m.id;
    }
    if (!same)
        st = dra_fail(err, DRA_ERR_VALUE,
                      "gguf: scores would give %zu merges, the tokenizer has %zu, expected all "
                      "that make its tokens",
                      read->merges, t->merges);
    dra_tokenizer_destroy(read);
    return st;
}

static dra_status put_characters(const writer *w, int64_t vocab, json_t *pairs, dra_error *err)
{
    const dra_layout *how = &w->t->how;
    if (!how->early || !how->fallback)
        return dra_fail(err, DRA_ERR_VALUE,
                        "gguf: the tokenizer is of characters, expected "
                        "byte_fallback and a normalizer that replaces spaces");
    dra_json_set(w->j, pairs, KEY("model"), dra_json_text(w->j, "llama"));
    dra_json_set(w->j, pairs, KEY("pre"), dra_json_text(w->j, "default"));
    put_tokens(w, vocab, pairs);
    put_around(w, pairs, true);
    put_id(w, pairs, KEY("unknown_token_id"), how->unknown);
    put_bool(w, pairs, KEY("add_space_prefix"), how->prefix == DRA_PREFIX_ALWAYS);
    const dra_status st = dra_gguf_scores_put(w->t, vocab, w->j, pairs, err);
    return st == DRA_OK ? check_scores(w->t, pairs, err) : st;
}

dra_status dra_tokenizer_gguf_pairs(const dra_tokenizer *t, int64_t vocab, dra_json *j,
                                    json_t *pairs, dra_error *err)
{
    if (t->is_bytes) return DRA_OK; /* GGUF has no such kind */
    if (t->longest_first) return dra_gguf_world_pairs(t, vocab, j, pairs, err);
    if (t->how.before.n > 1 || t->how.behind.n > 1)
        return dra_fail(err, DRA_ERR_VALUE,
                        "gguf: expected one token at most on each side of a "
                        "text, the tokenizer puts more there");
    writer w = {.t = t, .j = j};
    if (!dra_speller_make(&w.speller, t))
        return dra_fail(err, DRA_ERR_MEMORY, "gguf: out of memory");
    const dra_status st = (t->how.split ? put_bytes : put_characters)(&w, vocab, pairs, err);
    dra_speller_free(&w.speller);
    return st;
}
