/* RWKV World in GGUF. Id 0 is the end of a text, "<s>" there; ids beyond the vocabulary are
 * "[PADn]". Only tokens of the normal type are found in texts. */
#include "text/gguf_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) DRA_GGUF_TOKENIZER_KEY(name)

/* ---- reading --------------------------------------------------------------------------------- */

static int read_hex(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char       *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* What stands for a letter after a backslash: \t \n \r \xNN, else the letter itself. Returns how
 * many letters that takes; 0: there is no byte of this. */
static size_t unescape_letter(const char *at, char *to)
{
    static const char names[] = "tnr", codes[] = "\t\n\r";
    const char       *name = *at ? strchr(names, *at) : NULL;
    if (*at == 'x') {
        const int high = read_hex(at[1]), low = high < 0 ? -1 : read_hex(at[2]);
        *to = (char)(16 * high + low);
        return low < 0 ? 0 : 3;
    }
    *to = name ? codes[name - names] : *at;
    return *at ? 1 : 0;
}

/* The bytes of a spelling, no more than its letters; 0: it is none. */
static size_t read_token(const char *text, char *to)
{
    size_t n = 0;
    for (const char *at = text; *at; n++) {
        const size_t taken = *at == '\\' ? unescape_letter(at + 1, to + n) : 0;
        if (*at == '\\' && !taken) return 0;
        if (!taken) to[n] = *at;
        at += taken + 1;
    }
    return n;
}

dra_status dra_gguf_world_fill(dra_vocabulary *v, const json_t *pairs)
{
    const json_t  *tokens = json_object_get(pairs, KEY("tokens"));
    const json_t  *types = json_object_get(pairs, KEY("token_type"));
    const size_t   n = json_array_size(tokens);
    dra_tokenizer *t = v->t;
    size_t         bytes = 1;
    if (n < 1 || n >= DRA_MOST_IDS)
        return dra_vocabulary_fail(v, "%zu " KEY("tokens") ", expected 1 to %d", n, DRA_MOST_IDS);
    for (size_t i = 0; i < n; i++) bytes += json_string_length(json_array_get(tokens, i));
    char *to = dra_arena_alloc(&t->arena, bytes);
    t->added = dra_arena_alloc(&t->arena, n * sizeof *t->added);
    if (!to || !t->added) return dra_vocabulary_no_memory(v);
    t->longest_first = true;
    for (size_t i = 1; i < n; i++) {
        const json_t *type = json_array_get(types, i);
        const char   *text = json_string_value(json_array_get(tokens, i));
        if (type && json_integer_value(type) != DRA_GGUF_NORMAL) continue;
        const size_t is = text ? read_token(text, to) : 0;
        if (!is) return dra_vocabulary_fail(v, KEY("tokens") " %zu: expected escaped bytes", i);
        t->added[t->n_added++] = (dra_added){.id = (int32_t)i, .text = to, .bytes = is};
        to += is;
    }
    return DRA_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* As Python prints bytes, without the quotes: ' is escaped where " is there as well. */
static void spell_token(const char *text, size_t n, char *out)
{
    static const char names[] = "tnr\\", codes[] = "\t\n\r\\";
    const bool        both = memchr(text, '\'', n) && memchr(text, '"', n);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        const char         *code = c ? strchr(codes, c) : NULL;
        const bool          escaped = code || (c == '\'' && both);
        if (escaped) *out++ = '\\';
        if (escaped || (c >= ' ' && c < 0x7f))
            *out++ = code ? names[code - codes] : (char)c;
        else
            out += snprintf(out, sizeof "\\xff", "\\x%02x", c);
    }
    *out = 0;
}

static void put_number(dra_json *j, json_t *pairs, const char *key, int64_t n)
{
    dra_json_set(j, pairs, key, dra_json_int(j, n));
}

dra_status dra_gguf_world_pairs(const dra_tokenizer *t, int64_t vocab, dra_json *j, json_t *pairs,
                                dra_error *err)
{
    json_t *tokens = dra_json_array(j), *types = dra_json_array(j);
    char   *room = malloc(4 * (size_t)t->longest + 32);
    for (int32_t id = 0; id < vocab && room && !j->failed; id++) {
        const bool there = id < t->size && t->token[id].kind == DRA_TOKEN_BYTES;
        if (id)
            snprintf(room, 32, "[PAD%d]", (int)id);
        else
            memcpy(room, "<s>", 4);
        if (there) spell_token(t->token[id].text, t->token[id].bytes, room);
        dra_json_append(j, tokens, dra_json_text(j, room));
        dra_json_append(j, types,
                        dra_json_int(j, there ? DRA_GGUF_NORMAL
                                        : id  ? DRA_GGUF_UNUSED
                                              : DRA_GGUF_CONTROL));
    }
    const bool has_room = room != NULL;
    free(room);
    dra_json_set(j, pairs, KEY("model"), dra_json_text(j, "rwkv"));
    dra_json_set(j, pairs, KEY("tokens"), tokens);
    dra_json_set(j, pairs, KEY("token_type"), types);
    put_number(j, pairs, KEY("bos_token_id"), 0);
    put_number(j, pairs, KEY("eos_token_id"), 0);
    const int32_t turn = dra_tokenizer_id(t, "\n\n");
    if (turn >= 0) put_number(j, pairs, KEY("eot_token_id"), turn);
    return has_room ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "gguf: out of memory");
}
