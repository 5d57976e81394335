/* JSON schemas as grammars. What must hold: a schema as made is accepted; any other text as well,
 * and the grammar is sound (grammars.h), or it is refused by one line that names it. */
#include "grammars.h"

static void say_schema(fuzz_bytes *t, int depth);

static void say_object(fuzz_bytes *t, int depth)
{
    static const char *const names[] = {"a", "ab", "\xc3\xa9", "]^", "\\\"", "b", "", "\\u0001"};
    static const char *const others[] = {"", ",\"additionalProperties\":false",
                                         ",\"additionalProperties\":true"};
    const char              *comma = "";
    bool                     used = false;
    say(t, "\"type\":\"object\",\"properties\":{");
    for (uint32_t i = 0; i < COUNT(names); i++) {
        if (below(3)) continue;
        say(t, comma);
        say(t, "\"");
        say(t, names[i]);
        say(t, "\":");
        say_schema(t, depth + 1);
        comma = ",";
        used = used || i == 0;
    }
    say(t, used && below(2) ? "},\"required\":[\"a\"]" : "}");
    say(t, one_of(others, COUNT(others)));
}

static void say_schema(fuzz_bytes *t, int depth)
{
    static const char *const plain[] = {"\"type\":\"string\"",
                                        "\"type\":[\"integer\",\"null\"]",
                                        "\"type\":\"number\",\"title\":\"x\"",
                                        "\"enum\":[\"a\",1,null,{\"b\":[\"\\n\"]}]",
                                        "\"const\":\"\\\"\\\\\xc3\xa9\"",
                                        "\"type\":\"boolean\"",
                                        "\"type\":\"object\"",
                                        ""};
    const uint32_t           kind = depth > 3 || t->n > FUZZ_MOST / 2 ? 9 : below(6);
    say(t, "{");
    if (kind == 0) {
        say_object(t, depth);
    } else if (kind == 1) {
        say(t, "\"type\":\"array\",\"items\":");
        say_schema(t, depth + 1);
    } else {
        say(t, one_of(plain, COUNT(plain)));
    }
    say(t, "}");
}

static void make(fuzz_bytes *t) { say_schema(t, 0); }

int harness(const uint8_t *data, size_t bytes)
{
    return grammar_try(dra_grammar_schema, data, bytes);
}

static const char *const words[] = {FUZZ_JSON,
                                    "null",
                                    "true",
                                    "\"type\"",
                                    "\"enum\"",
                                    "\"const\"",
                                    "\"items\":",
                                    "\"required\":",
                                    "object",
                                    "array",
                                    "\"anyOf\"",
                                    "\"$ref\"",
                                    "\"#/$defs/a\"",
                                    "\"$defs\"",
                                    "\"minItems\":",
                                    "\"maxItems\":",
                                    "integer",
                                    "\"properties\":",
                                    "\"additionalProperties\":",
                                    "\\ud800",
                                    "\xff",
                                    "99999",
                                    "-",
                                    NULL};

const fuzz_subject fuzz_this = {.words = words, .make = make};
