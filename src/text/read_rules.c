#include "text/read_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/fail.h"

static const char *const words[] = {"null",   "false",          "true",   "\"\"",     "0",
                                    "a text", "a whole number", "a list", "an object"};

static unsigned kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL: return DRA_RULE_NULL;
    case JSON_FALSE: return DRA_RULE_OFF;
    case JSON_TRUE: return DRA_RULE_ON;
    case JSON_STRING: return DRA_RULE_TEXT | (json_string_length(value) ? 0 : DRA_RULE_EMPTY);
    case JSON_INTEGER: return DRA_RULE_NUMBER | (json_integer_value(value) ? 0 : DRA_RULE_ZERO);
    case JSON_REAL: return json_real_value(value) == 0 ? DRA_RULE_ZERO : 0;
    case JSON_ARRAY: return DRA_RULE_LIST;
    case JSON_OBJECT: return DRA_RULE_OBJECT;
    }
    return 0;
}

/* "BPE", or "null or a text". */
static void describe_rule(const dra_rule *r, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    if (r->text) {
        snprintf(text, size, "\"%s\"", r->text);
        return;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (r->takes >> i & 1 && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " or " : "",
                                     words[i]);
}

/* The kind of a value that is not shown itself. */
static const char *kind_words(const json_t *value)
{
    return json_is_array(value) ? words[7] : json_is_object(value) ? words[8] : "another value";
}

dra_status dra_rules_refuse(const dra_vocabulary *v, const char *place, const dra_rule *r,
                            const json_t *value)
{
    char  what[160], room[DRA_BRIEF];
    char *found = value && !json_is_array(value) && !json_is_object(value)
                      ? dra_json_words(value, JSON_ENCODE_ANY | JSON_COMPACT)
                      : NULL;
    describe_rule(r, what, sizeof what);
    const dra_status status = dra_vocabulary_fail(v, "%s%s: expected %s, found %s", place, r->key,
                                                  what,
                                                  found   ? dra_brief(found, room)
                                                  : value ? kind_words(value)
                                                          : "nothing");
    free(found);
    return status;
}

dra_status dra_rules_check(const dra_vocabulary *v, const char *place, const json_t *object,
                           const dra_rule *rules)
{
    const char *key;
    json_t     *value;
    char        room[DRA_BRIEF];
    for (const dra_rule *r = rules; r->key; r++) {
        const json_t *found = json_object_get(object, r->key);
        if (!found && !(r->takes & DRA_RULE_NEEDED)) continue;
        if (!found || !(kind_of(found) & r->takes) ||
            (r->text && strcmp(json_string_value(found), r->text) != 0))
            return dra_rules_refuse(v, place, r, found);
    }
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        const dra_rule *r = rules;
        while (r->key && strcmp(r->key, key) != 0) r++;
        if (!r->key)
            return dra_vocabulary_fail(v, "%s%s: no such key is known", place,
                                       dra_brief(key, room));
    }
    return DRA_OK;
}
