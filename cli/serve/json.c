/* JSON of a request, as a tree: one pass by recursion as deep as the nesting, which is bounded. */
#include "json.h"

#include "dra/base.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 * 1024, WHY = 160 };

typedef struct block {
    struct block *next;
    size_t        used, room;
    max_align_t   data[];
} block;

struct serve_json_file {
    block *blocks;
};

typedef struct reader {
    const char      *start, *at, *end;
    serve_json_file *file;
    char            *why;
    size_t           values;
    bool             failed;
} reader;

static void *take(serve_json_file *f, size_t bytes)
{
    const size_t size = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t);
    block       *b = f->blocks;
    if (!b || b->room - b->used < size) {
        const size_t room = size > BLOCK / sizeof(max_align_t) ? size : BLOCK / sizeof(max_align_t);
        b = malloc(sizeof *b + room * sizeof(max_align_t));
        if (!b) return NULL;
        *b = (block){.next = f->blocks, .room = room};
        f->blocks = b;
    }
    void *data = b->data + b->used;
    b->used += size;
    memset(data, 0, bytes);
    return data;
}

void serve_json_free(serve_json_file *file)
{
    if (!file) return;
    for (block *b = file->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(file);
}

static void *wrong(reader *r, const char *what)
{
    if (!r->failed)
        snprintf(r->why, WHY, "%s at byte %zu of the body", what, (size_t)(r->at - r->start));
    r->failed = true;
    return NULL;
}

static void *no_memory(reader *r)
{
    r->why[0] = '\0';
    r->failed = true;
    return NULL;
}

static void blanks(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
        r->at++;
}

static bool next_is(reader *r, char c)
{
    if (r->at >= r->end || *r->at != c) return false;
    r->at++;
    return true;
}

/* ---- strings --------------------------------------------------------------------------------- */

static int hex4(reader *r)
{
    int v = 0;
    if (r->end - r->at < 4) return -1;
    for (int i = 0; i < 4; i++, r->at++) {
        const char c = *r->at;
        const int  d = c >= '0' && c <= '9'   ? c - '0'
                       : c >= 'a' && c <= 'f' ? c - 'a' + 10
                       : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                              : -1;
        if (d < 0) return -1;
        v = v << 4 | d;
    }
    return v;
}

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
    } else {
        if (c < 0x10000) {
            *to++ = (char)(0xe0 | c >> 12);
        } else {
            *to++ = (char)(0xf0 | c >> 18);
            *to++ = (char)(0x80 | (c >> 12 & 63));
        }
        *to++ = (char)(0x80 | (c >> 6 & 63));
    }
    *to++ = (char)(0x80 | (c & 63));
    return to;
}

/* After \u. NULL: it is none; halves of a pair stand together. */
static char *escaped_number(reader *r, char *to)
{
    const int high = hex4(r);
    if (high < 0 || (high >= 0xdc00 && high < 0xe000)) return NULL;
    if (high < 0xd800 || high >= 0xe000) return put_utf8(to, (uint32_t)high);
    if (!next_is(r, '\\') || !next_is(r, 'u')) return NULL;
    const int low = hex4(r);
    if (low < 0xdc00 || low >= 0xe000) return NULL;
    return put_utf8(to, 0x10000 + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
}

static char *escaped(reader *r, char *to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    if (r->at >= r->end) return NULL;
    const char  c = *r->at++;
    const char *at = c ? strchr(from, c) : NULL;
    if (c == 'u') return escaped_number(r, to);
    if (!at) return NULL;
    *to++ = into[at - from];
    return to;
}

/* After the first quote. What it becomes is never longer than what it is. */
static const char *string(reader *r, size_t *bytes)
{
    const char *close = r->at;
    while (close < r->end && *close != '"') close += *close == '\\' ? 2 : 1;
    if (close >= r->end) return wrong(r, "a string without its end");
    char *text = take(r->file, (size_t)(close - r->at) + 1), *to = text;
    if (!text) return no_memory(r);
    while (r->at < close) {
        size_t           used = 1;
        const dra_letter kind = dra_letter_of(r->at, (size_t)(close - r->at), &used);
        if (kind == DRA_LETTER_NONE || kind == DRA_LETTER_CUT)
            return wrong(r, "a string that is no UTF-8");
        if ((unsigned char)*r->at < 32) return wrong(r, "a control character in a string");
        if (*r->at == '\\') {
            r->at++;
            if (!(to = escaped(r, to))) return wrong(r, "an escape that is none");
        } else {
            memcpy(to, r->at, used);
            to += used;
            r->at += used;
        }
    }
    r->at = close + 1;
    *bytes = (size_t)(to - text);
    return text;
}

/* ---- values ---------------------------------------------------------------------------------- */

static serve_json *value(reader *r, int depth);

static size_t digits(reader *r)
{
    size_t n = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) n++;
    return n;
}

static serve_json *number(reader *r, serve_json *x)
{
    char        word[64];
    const char *from = r->at;
    next_is(r, '-');
    const char first = r->at < r->end ? *r->at : 0;
    size_t     n = digits(r);
    bool       well = n == 1 || (n > 1 && first != '0');
    x->whole = true;
    if (well && next_is(r, '.')) {
        x->whole = false;
        well = digits(r) > 0;
    }
    if (well && (next_is(r, 'e') || next_is(r, 'E'))) {
        x->whole = false;
        if (!next_is(r, '-')) next_is(r, '+');
        well = digits(r) > 0;
    }
    n = (size_t)(r->at - from);
    if (!well || n >= sizeof word) return wrong(r, "a number that is none, or too long");
    memcpy(word, from, n);
    word[n] = '\0';
    x->kind = SERVE_NUMBER;
    x->number = strtod(word, NULL);
    return isfinite(x->number) ? x : wrong(r, "a number beyond all that is finite");
}

static serve_json *word(reader *r, serve_json *x)
{
    static const struct {
        const char *text;
        serve_kind  kind;
        bool        truth;
    } words[] = {
        {"true", SERVE_BOOL, true}, {"false", SERVE_BOOL, false}, {"null", SERVE_NULL, false}};
    for (size_t i = 0; i < 3; i++) {
        const size_t n = strlen(words[i].text);
        if ((size_t)(r->end - r->at) < n || memcmp(r->at, words[i].text, n) != 0) continue;
        r->at += n;
        x->kind = words[i].kind;
        x->truth = words[i].truth;
        return x;
    }
    return wrong(r, "expected a value");
}

/* The key of the next member, and the colon. */
static const char *key(reader *r, const serve_json *object)
{
    size_t      bytes = 0;
    const char *text = next_is(r, '"') ? string(r, &bytes) : wrong(r, "expected a key");
    if (!text) return NULL;
    if (strlen(text) != bytes) return wrong(r, "a key with a zero in it");
    if (object->n >= SERVE_JSON_KEYS) return wrong(r, "an object with too many keys");
    if (serve_json_get(object, text)) return wrong(r, "a key that is there twice");
    blanks(r);
    return next_is(r, ':') ? text : wrong(r, "expected ':'");
}

static serve_json *members(reader *r, serve_json *x, int depth)
{
    const bool   object = x->kind == SERVE_OBJECT;
    const char   close = object ? '}' : ']';
    serve_json **last = &x->first;
    if (depth >= SERVE_JSON_DEPTH) return wrong(r, "nested too deep");
    blanks(r);
    if (next_is(r, close)) return x;
    do {
        blanks(r);
        const char *name = object ? key(r, x) : NULL;
        serve_json *member = object && !name ? NULL : value(r, depth + 1);
        if (!member) return NULL;
        member->key = name;
        *last = member;
        last = &member->next;
        x->n++;
        blanks(r);
    } while (next_is(r, ','));
    return next_is(r, close) ? x : wrong(r, object ? "expected ',' or '}'" : "expected ',' or ']'");
}

static serve_json *value(reader *r, int depth)
{
    if (++r->values > SERVE_JSON_VALUES) return wrong(r, "too many values");
    serve_json *x = take(r->file, sizeof *x);
    if (!x) return no_memory(r);
    blanks(r);
    if (r->at < r->end && (*r->at == '-' || (*r->at >= '0' && *r->at <= '9'))) return number(r, x);
    if (next_is(r, '"')) {
        x->kind = SERVE_TEXT;
        x->text = string(r, &x->bytes);
        return x->text ? x : NULL;
    }
    if (next_is(r, '{')) x->kind = SERVE_OBJECT;
    if (!x->kind && next_is(r, '[')) x->kind = SERVE_LIST;
    return x->kind ? members(r, x, depth) : word(r, x);
}

const serve_json *serve_json_read(const char *text, size_t bytes, serve_json_file **out, char *why)
{
    *out = calloc(1, sizeof **out);
    why[0] = '\0';
    if (!*out) return NULL;
    reader      r = {.start = text, .at = text, .end = text + bytes, .file = *out, .why = why};
    serve_json *x = value(&r, 0);
    blanks(&r);
    if (x && r.at < r.end) x = wrong(&r, "more than one value");
    if (!x) {
        serve_json_free(*out);
        *out = NULL;
    }
    return x;
}

const serve_json *serve_json_get(const serve_json *object, const char *key)
{
    for (const serve_json *x = object->first; x; x = x->next)
        if (x->key && strcmp(x->key, key) == 0) return x;
    return NULL;
}

const char *serve_kind_name(const serve_json *x)
{
    static const char *const names[] = {"null",   "a bool", "a number",
                                        "a text", "a list", "an object"};
    return names[x->kind];
}
