/* From spellings to a tokenizer's tables, with the rules that every file has to keep. */
#include "text/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/fail.h"
#include "text/letters.h"
#include "text/normal.h"

dra_status dra_vocabulary_fail(const dra_vocabulary *v, const char *format, ...)
{
    char    text[DRA_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return dra_fail_at(v->err, DRA_ERR_FORMAT, v->path, "%s", text);
}

dra_status dra_vocabulary_no_memory(const dra_vocabulary *v)
{
    return dra_fail_at(v->err, DRA_ERR_MEMORY, v->path, "out of memory for a tokenizer");
}

dra_status dra_vocabulary_begin(dra_vocabulary *v, const char *path, dra_error *err)
{
    *v = (dra_vocabulary){.t = calloc(1, sizeof *v->t), .path = path, .err = err};
    if (!v->t) return dra_vocabulary_no_memory(v);
    v->t->how = (dra_layout){.split = &dra_splitters[DRA_SPLITTER_GPT2], .unknown = -1};
    return DRA_OK;
}

dra_status dra_vocabulary_end(dra_vocabulary *v, dra_status status, dra_tokenizer **out)
{
    if (status == DRA_OK) status = dra_tokenizer_finish(v->t, v->path, v->err);
    if (status != DRA_OK) dra_tokenizer_destroy(v->t);
    *out = status == DRA_OK ? v->t : NULL;
    free(v->room);
    json_decref(v->seen);
    return status;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* The byte that a token of a tokenizer of characters stands for, "<0x0A>"; -1: it is none. */
static int byte_of(const char *spelling)
{
    static const char digits[] = "0123456789ABCDEF";
    if (strlen(spelling) != 6 || memcmp(spelling, "<0x", 3) != 0 || spelling[5] != '>') return -1;
    const char *high = strchr(digits, spelling[3]), *low = strchr(digits, spelling[4]);
    return high && low ? (int)(16 * (high - digits) + (low - digits)) : -1;
}

/* What a spelling means, its bytes written to *to. */
static dra_token read_spelling(const dra_tokenizer *t, const dra_alphabet *a, const char *spelling,
                               char *to)
{
    const int byte = t->how.has_bytes ? byte_of(spelling) : -1;
    uint8_t   kind = DRA_TOKEN_BYTES;
    size_t    n;
    if (byte >= 0) {
        *to = (char)byte;
        n = 1;
        kind = DRA_TOKEN_BYTE;
    } else if (!t->how.split) {
        n = dra_blocks_to_spaces(spelling, strlen(spelling), to);
        if (strchr(spelling, ' ')) kind = DRA_TOKEN_LITERAL;
    } else if ((n = dra_alphabet_read(a, spelling, to)) == SIZE_MAX) {
        memcpy(to, spelling, n = strlen(spelling));
        kind = DRA_TOKEN_LITERAL;
    }
    return (dra_token){.text = to, .bytes = (uint32_t)n, .kind = kind};
}

static dra_status add_token(dra_vocabulary *v, const dra_alphabet *a, const char *spelling,
                            const json_t *value, char **text)
{
    dra_tokenizer *t = v->t;
    char           room[DRA_BRIEF];
    const int64_t  id = json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
    if (id < 0 || id >= t->size)
        return dra_vocabulary_fail(v, "vocabulary: the id of '%s' is not a number from 0 to %d",
                                   dra_brief(spelling, room), DRA_MOST_IDS - 1);
    if (!spelling[0]) return dra_vocabulary_fail(v, "vocabulary: id %lld is empty", (long long)id);
    if (t->token[id].kind != DRA_TOKEN_NONE)
        return dra_vocabulary_fail(v, "vocabulary: id %lld is given twice, to '%s', too",
                                   (long long)id, dra_brief(spelling, room));
    t->token[id] = read_spelling(t, a, spelling, *text);
    *text += t->token[id].bytes;
    return DRA_OK;
}

dra_status dra_vocabulary_tokens(dra_vocabulary *v, int64_t size)
{
    dra_tokenizer *t = v->t;
    dra_alphabet   alphabet;
    dra_status     status = DRA_OK;
    const char    *spelling;
    json_t        *value, *vocab = (json_t *)(uintptr_t)v->vocab; /* the macro is not const */
    size_t         bytes = 0;
    json_object_foreach(vocab, spelling, value)
    {
        bytes += strlen(spelling);
        const int64_t id = json_is_integer(value) ? (int64_t)json_integer_value(value) : 0;
        if (id >= size && id < DRA_MOST_IDS) size = id + 1;
    }
    t->size = (int32_t)size;
    t->token = dra_arena_alloc(&t->arena, (size_t)size * sizeof *t->token);
    char *text = dra_arena_alloc(&t->arena, bytes);
    v->bytes = 2 * bytes + 3; /* no merge is longer than all tokens */
    v->room = malloc(v->bytes);
    if (!t->token || !text || !v->room) return dra_vocabulary_no_memory(v);
    dra_alphabet_make(&alphabet);
    json_object_foreach(vocab, spelling, value)
    {
        status = add_token(v, &alphabet, spelling, value, &text);
        if (status != DRA_OK) return status;
    }
    return DRA_OK;
}

/* ---- merges ---------------------------------------------------------------------------------- */

dra_status dra_vocabulary_merges(dra_vocabulary *v, size_t most)
{
    dra_tokenizer *t = v->t;
    t->merge = dra_arena_alloc(&t->arena, most * sizeof *t->merge);
    if (!t->merge || most >= INT32_MAX / 4 || !dra_pairs_make(&t->pairs, most, &t->arena))
        return dra_vocabulary_no_memory(v);
    return DRA_OK;
}

/* The id of a spelling made of two parts. */
static dra_status find_merged(const dra_vocabulary *v, const char *a, size_t n, const char *b,
                              size_t k, int32_t *id)
{
    char room[DRA_BRIEF];
    if (n > v->bytes - 1) n = v->bytes - 1; /* too long for any token, as will be found */
    if (k > v->bytes - 1 - n) k = v->bytes - 1 - n;
    memcpy(v->room, a, n);
    memcpy(v->room + n, b, k);
    v->room[n + k] = 0;
    const json_t *value = json_object_get(v->vocab, v->room);
    if (strlen(v->room) != n + k) value = NULL; /* a NUL in the file is no end of a token */
    *id = (int32_t)json_integer_value(value);
    if (value) return DRA_OK;
    return dra_vocabulary_fail(v, "merge %zu: '%s' is not in the vocabulary", v->t->merges,
                               dra_brief(v->room, room));
}

static bool is_byte(const dra_tokenizer *t, int32_t id)
{
    return t->token[id].kind == DRA_TOKEN_BYTE;
}

dra_status dra_vocabulary_merge(dra_vocabulary *v, const char *left, size_t n, const char *right,
                                size_t k)
{
    dra_tokenizer *t = v->t;
    dra_merge_rule m;
    dra_status     status = find_merged(v, left, n, "", 0, &m.left);
    if (status == DRA_OK) status = find_merged(v, right, k, "", 0, &m.right);
    if (status == DRA_OK) status = find_merged(v, left, n, right, k, &m.id);
    if (status != DRA_OK) return status;
    if (is_byte(t, m.left) || is_byte(t, m.right) || is_byte(t, m.id))
        return dra_vocabulary_fail(v, "merge %zu: a token of one byte is not merged", t->merges);
    dra_pair *slot = dra_pairs_find(&t->pairs, m.left, m.right);
    if (slot->id >= 0)
        return dra_vocabulary_fail(v, "merge %zu is merge %d again", t->merges, slot->rank);
    *slot = (dra_pair){m.left, m.right, (int32_t)t->merges, m.id};
    t->merge[t->merges++] = m;
    return DRA_OK;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

dra_status dra_vocabulary_added(dra_vocabulary *v, size_t most)
{
    v->t->added = dra_arena_alloc(&v->t->arena, most * sizeof *v->t->added);
    v->seen = dra_json_object(&v->json);
    return v->t->added && v->seen ? DRA_OK : dra_vocabulary_no_memory(v);
}

/* Normalised text is searched for it, so it has to be normalised itself. */
static dra_status check_normal(const dra_vocabulary *v, const dra_added *a)
{
    dra_normal  n = {0};
    const char *text;
    size_t      bytes;
    char        room[DRA_BRIEF];
    dra_status  status = DRA_OK;
    if (!v->t->how.nfc || !a->normalized) return DRA_OK;
    if (!dra_normal_make(&n, a->text, a->bytes, &text, &bytes))
        status = dra_vocabulary_no_memory(v);
    else if (bytes != a->bytes || memcmp(text, a->text, bytes) != 0)
        status = dra_vocabulary_fail(v, "added token '%s' is not in NFC", dra_brief(a->text, room));
    dra_normal_free(&n);
    return status;
}

static dra_status check_added(const dra_vocabulary *v, const dra_added *a)
{
    char             room[DRA_BRIEF];
    const char      *name = dra_brief(a->text, room);
    const dra_token *k = &v->t->token[a->id];
    const json_t    *known = json_object_get(v->vocab, a->text);
    if (!a->bytes) return dra_vocabulary_fail(v, "added token %d is empty", a->id);
    if (json_object_get(v->seen, a->text))
        return dra_vocabulary_fail(v, "added token '%s' is there twice", name);
    if (known && json_integer_value(known) != a->id)
        return dra_vocabulary_fail(v, "added token '%s' has id %d, in the vocabulary %lld", name,
                                   a->id, (long long)json_integer_value(known));
    if (!known && k->kind != DRA_TOKEN_NONE)
        return dra_vocabulary_fail(v, "added token '%s' has id %d, as another one", name, a->id);
    if (!v->t->how.split && v->t->how.early && a->normalized && (a->left || a->right))
        return dra_vocabulary_fail(v,
                                   "added token '%s': expected no lstrip or rstrip where it is "
                                   "normalized, and so are spaces",
                                   name);
    if (known && v->t->how.split &&
        (k->bytes != a->bytes || memcmp(k->text, a->text, a->bytes) != 0))
        return dra_vocabulary_fail(v, "added token '%s' means other bytes in the vocabulary", name);
    return check_normal(v, a);
}

/* The text that is looked for: normalised, where it is looked for in normalised text. */
static bool find_as(dra_tokenizer *t, dra_added *a)
{
    const bool early = t->how.early && a->normalized;
    const bool prefix = early && t->how.prefix == DRA_PREFIX_ALWAYS;
    char      *text = dra_arena_alloc(&t->arena, a->bytes + 1);
    if (!text) return false;
    text[0] = ' ';
    if (early)
        a->bytes = dra_blocks_to_spaces(a->text, a->bytes, text + prefix) + prefix;
    else
        memcpy(text, a->text, a->bytes);
    a->text = text;
    return true;
}

/* A token that the vocabulary does not have: what was found when it was looked for comes back. */
static bool name_token(dra_tokenizer *t, const dra_added *a, const char *content, size_t bytes)
{
    dra_token *k = &t->token[a->id];
    *k = (dra_token){a->text, (uint32_t)a->bytes, DRA_TOKEN_ADDED, false};
    if (t->how.split || (t->how.early && a->normalized)) return true;
    char *text = dra_arena_alloc(&t->arena, bytes);
    if (text) k->bytes = (uint32_t)dra_blocks_to_spaces(content, bytes, text);
    k->text = text;
    return text;
}

dra_status dra_vocabulary_add(dra_vocabulary *v, dra_added a)
{
    dra_tokenizer   *t = v->t;
    dra_token       *k = &t->token[a.id];
    const dra_status status = check_added(v, &a);
    if (status != DRA_OK) return status;
    dra_json_set(&v->json, v->seen, a.text, dra_json_bool(true));
    if (v->json.failed) return dra_vocabulary_no_memory(v);
    const char  *content = a.text;
    const size_t bytes = a.bytes;
    if (!find_as(t, &a)) return dra_vocabulary_no_memory(v);
    if (k->kind == DRA_TOKEN_NONE && !name_token(t, &a, content, bytes))
        return dra_vocabulary_no_memory(v);
    k->special = a.special;
    t->added[t->n_added++] = a;
    return DRA_OK;
}

static int by_id(const void *a, const void *b)
{
    const int32_t x = ((const dra_added *)a)->id, y = ((const dra_added *)b)->id;
    return (x > y) - (x < y);
}

void dra_vocabulary_sort_added(dra_vocabulary *v)
{
    qsort(v->t->added, v->t->n_added, sizeof *v->t->added, by_id);
}
