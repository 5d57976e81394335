/* Tokenizers of GGUF files: those of GPT-2's kind, tokens and merges spelled as in its files, and
 * RWKV World (text/gguf_world.h). */
#include "text/gguf.h"
#include "text/gguf_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/file_map.h"
#include "file/gguf.h"
#include "text/letters.h"
#include "text/vocabulary.h"

#define KEY(name) DRA_GGUF_TOKENIZER_KEY(name)

/* ---- reading --------------------------------------------------------------------------------- */

static dra_status expect(const dra_vocabulary *v, const json_t *pairs, const char *key,
                         const char *right, const char *expected)
{
    const char *found = json_string_value(json_object_get(pairs, key));
    char        room[DRA_BRIEF];
    if (!found || strcmp(found, right) == 0) return DRA_OK;
    return dra_vocabulary_fail(v, "%s is %s, expected %s", key, dra_brief(found, room), expected);
}

static bool is_world(const json_t *pairs)
{
    const char *model = json_string_value(json_object_get(pairs, KEY("model")));
    return model && strcmp(model, "rwkv") == 0;
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
        if (type != DRA_GGUF_CONTROL && type != DRA_GGUF_OWN) continue;
        st = dra_vocabulary_add(v, (dra_added){.id = (int32_t)i,
                                               .text = text,
                                               .bytes = strlen(text),
                                               .special = type == DRA_GGUF_CONTROL});
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

static dra_status fill(dra_vocabulary *v, const json_t *pairs)
{
    const json_t *tokens = json_object_get(pairs, KEY("tokens"));
    const size_t  n = json_array_size(tokens);
    dra_status    st = expect(v, pairs, KEY("model"), "gpt2", "gpt2 or rwkv");
    if (st == DRA_OK) st = expect(v, pairs, KEY("pre"), "gpt-2", "gpt-2");
    if (st != DRA_OK) return st;
    if (n < 1 || n >= DRA_MOST_IDS)
        return dra_vocabulary_fail(v, "%zu " KEY("tokens") ", expected 1 to %d", n, DRA_MOST_IDS);
    v->vocab = vocab_of(v, tokens);
    if (v->json.failed) return dra_vocabulary_no_memory(v);
    st = dra_vocabulary_tokens(v, (int64_t)n);
    if (st == DRA_OK) st = add_tokens(v, tokens, json_object_get(pairs, KEY("token_type")));
    if (st == DRA_OK) st = add_merges(v, json_object_get(pairs, KEY("merges")));
    return st;
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
    const bool world = st == DRA_OK && is_world(g.pairs);
    if (st == DRA_OK) st = world ? dra_gguf_world_fill(&v, g.pairs) : fill(&v, g.pairs);
    json_t *vocab = (json_t *)(uintptr_t)v.vocab;
    st = (world ? dra_world_end : dra_vocabulary_end)(&v, st, out);
    json_decref(vocab);
    dra_gguf_free(&g);
    if (map.data) dra_file_map_close(&map);
    return st;
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct speller {
    const dra_tokenizer *t;
    dra_json            *j;
    dra_alphabet         alphabet;
    char                *room; /* for two tokens in the alphabet and a space */
} speller;

static size_t spell(const speller *s, int32_t id, char *out)
{
    const dra_token *k = &s->t->token[id];
    if (k->kind == DRA_TOKEN_BYTES) return dra_alphabet_write(&s->alphabet, k->text, k->bytes, out);
    memcpy(out, k->text, k->bytes);
    out[k->bytes] = 0;
    return k->bytes;
}

static bool is_added(const dra_tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id) return true;
    return false;
}

static void put_tokens(const speller *s, int64_t vocab, json_t *pairs)
{
    json_t *tokens = dra_json_array(s->j), *types = dra_json_array(s->j);
    for (int32_t id = 0; id < vocab && !s->j->failed; id++) {
        const bool there = id < s->t->size && s->t->token[id].kind != DRA_TOKEN_NONE;
        int        type = !there                    ? DRA_GGUF_UNUSED
                          : s->t->token[id].special ? DRA_GGUF_CONTROL
                          : is_added(s->t, id)      ? DRA_GGUF_OWN
                                                    : DRA_GGUF_NORMAL;
        if (there)
            spell(s, id, s->room);
        else
            snprintf(s->room, 16, "[PAD%d]", (int)id);
        dra_json_append(s->j, tokens, dra_json_text(s->j, s->room));
        dra_json_append(s->j, types, dra_json_int(s->j, type));
    }
    dra_json_set(s->j, pairs, KEY("tokens"), tokens);
    dra_json_set(s->j, pairs, KEY("token_type"), types);
}

static void put_merges(const speller *s, json_t *pairs)
{
    json_t *list = dra_json_array(s->j);
    for (size_t i = 0; i < s->t->merges && !s->j->failed; i++) {
        size_t n = spell(s, s->t->merge[i].left, s->room);
        s->room[n++] = ' ';
        n += spell(s, s->t->merge[i].right, s->room + n);
        dra_json_append(s->j, list, dra_json_text_of(s->j, s->room, n));
    }
    dra_json_set(s->j, pairs, KEY("merges"), list);
}

dra_status dra_tokenizer_gguf_pairs(const dra_tokenizer *t, int64_t vocab, dra_json *j,
                                    json_t *pairs, dra_error *err)
{
    if (t->is_bytes) return DRA_OK; /* GGUF has no such kind */
    if (t->longest_first) return dra_gguf_world_pairs(t, vocab, j, pairs, err);
    if (t->nfc || t->prefix_space)
        return dra_fail(err, DRA_ERR_VALUE,
                        "gguf: the tokenizer is not of GPT-2's kind, expected bytes and merges "
                        "without NFC");
    speller s = {.t = t, .j = j, .room = malloc(4 * (size_t)t->longest + 32)};
    if (!s.room) return dra_fail(err, DRA_ERR_MEMORY, "gguf: out of memory");
    dra_alphabet_make(&s.alphabet);
    dra_json_set(j, pairs, KEY("model"), dra_json_text(j, "gpt2"));
    dra_json_set(j, pairs, KEY("pre"), dra_json_text(j, "gpt-2"));
    put_tokens(&s, vocab, pairs);
    put_merges(&s, pairs);
    const int32_t end = dra_tokenizer_end(t);
    if (end >= 0) dra_json_set(j, pairs, KEY("bos_token_id"), dra_json_int(j, end));
    if (end >= 0) dra_json_set(j, pairs, KEY("eos_token_id"), dra_json_int(j, end));
    free(s.room);
    return DRA_OK;
}
