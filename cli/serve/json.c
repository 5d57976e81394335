/* JSON of a request: first what jansson does not check. */
#include "json.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHY = 160 };

/* ---- memory ---------------------------------------------------------------------------------- */

/* Out of memory, jansson reports an error in the text, or skips a letter. */
static _Thread_local bool refused;

static void *allocate_noted(size_t bytes)
{
    void *data = malloc(bytes);
    if (!data) refused = true;
    return data;
}

void serve_json_begin(void) { json_set_alloc_funcs(allocate_noted, free); }

/* ---- reading --------------------------------------------------------------------------------- */

/* What is too large about a text; NULL: nothing. Of values there are at most one more than commas
 * and opening brackets. */
static const char *find_excess(const char *text, size_t bytes, size_t *at)
{
    size_t values = 1, depth = 0;
    bool   quoted = false;
    for (*at = 0; *at < bytes; ++*at) {
        const char c = text[*at];
        const bool opens = !quoted && (c == '{' || c == '[');
        if (c == '"') quoted = !quoted;
        if (quoted && c == '\\') ++*at; /* the next byte is escaped, perhaps a quote */
        if (opens && ++depth > SERVE_JSON_DEPTH) return "nested too deep";
        if (!quoted && (c == '}' || c == ']') && depth) depth--;
        if ((opens || (!quoted && c == ',')) && ++values > SERVE_JSON_VALUES)
            return "too many values";
    }
    return NULL;
}

json_t *serve_json_read(const char *text, size_t bytes, char *why)
{
    json_error_t found;
    size_t       at;
    const char  *excess = find_excess(text, bytes, &at);
    why[0] = '\0';
    if (excess) {
        snprintf(why, WHY, "%s at byte %zu of the body", excess, at);
        return NULL;
    }
    refused = false;
    json_t *x = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL,
                           &found);
    if (refused) {
        json_decref(x);
        return NULL;
    }
    if (!x) snprintf(why, WHY, "%.100s at byte %d of the body", found.text, found.position);
    return x;
}

const char *serve_kind_name(const json_t *x)
{
    switch (json_typeof(x)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a text";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a bool";
    case JSON_NULL: break;
    }
    return "null";
}

char *serve_json_words(const json_t *x) { return json_dumps(x, JSON_COMPACT | JSON_ENCODE_ANY); }

void serve_json_keep(json_t *object, const char *const *names, size_t n)
{
    const char *key;
    json_t     *x;
    void       *next;
    json_object_foreach_safe(object, next, key, x)
    {
        bool keep = false;
        for (size_t i = 0; i < n; i++) keep |= strcmp(names[i], key) == 0;
        if (!keep) json_object_del(object, key);
    }
}
