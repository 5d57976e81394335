/* JSON schemas as grammars: which texts belong to one, what is refused, and that whatever is
 * written at random is JSON of the schema. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "generate/grammar/grammar.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static dra_grammar *describe(const char *schema)
{
    dra_grammar *g = NULL;
    dra_error    err = {0};
    if (dra_grammar_schema("s.json", schema, strlen(schema), &g, &err) != DRA_OK)
        fail_msg("%s\n%s", err.text, schema);
    return g;
}

static bool belongs(const dra_grammar *g, const char *text)
{
    dra_grammar_fit f;
    dra_error       err = {0};
    if (dra_grammar_match(g, text, strlen(text), &f, &err) != DRA_OK) fail_msg("%s", err.text);
    return f == DRA_GRAMMAR_WHOLE;
}

static void knows_texts(void **state)
{
    static const struct {
        const char *schema, *yes[5], *no[5];
    } cases[] = {
        {"{}", {"{}", "[]", "-1.5e3"}, {"01", "+1"}},
        {"{\"type\": \"string\"}",
         {"\"\"", "\"\xc3\xa9\\n\\u00e9\""},
         {"\"\n\"", "\"\\x\"", "\"\\ud800\"", "1"}},
        {"{\"type\": \"integer\"}", {"0", "-12", "1234567890123456"}, {"1.0", "00", "-"}},
        {"{\"type\": \"number\"}", {"0", "-1.25", "1e9", "2E-3"}, {"1.", ".5", "1e"}},
        {"{\"type\": [\"boolean\", \"null\"]}", {"true", "false", "null"}, {"1", "nul"}},
        {"{\"enum\": [\"a\", 1, {\"b\": [2]}]}", {"\"a\"", "1", "{\"b\":[2]}"}, {"\"b\"", "2"}},
        {"{\"enum\": [\"a\", 1, 2.5], \"type\": \"integer\"}", {"1"}, {"\"a\"", "2.5"}},
        {"{\"const\": \"x\\\"y\\\\\"}", {"\"x\\\"y\\\\\""}, {"\"x\""}},
        {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}}",
         {"[]", "[1]", "[1,2, 3]"},
         {"[1,]", "[\"a\"]", "[1 ,2]"}},
        {"{\"type\": \"object\"}", {"{}", "{\"a\": 1, \"b\":{}}"}, {"{a: 1}", "[]"}},
        {"{\"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": true, \"c\": "
         "{\"type\": \"null\"}}, \"required\": [\"b\"]}",
         {"{\"b\":1}", "{\"a\": 1, \"b\": []}", "{\"b\": 0, \"c\": null}",
          "{\"a\":1,\"b\":2,\"c\":null}"},
         {"{}", "{\"a\": 1}", "{\"b\": 1, \"a\": 1}", "{\"b\": 1, \"d\": 1}", "{\"b\": 1,}"}},
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": "
         "{\"type\": \"integer\"}}, \"additionalProperties\": false}",
         {"{}", "{\"a\": 1}", "{\"b\": 1}", "{\"a\": 1, \"b\": 2}"},
         {"{\"c\": 1}", "{\"b\": 1, \"a\": 1}"}},
        {"{\"type\": \"object\", \"properties\": {\"ab\": {\"type\": \"integer\"}, \"\xc3\xa9\": "
         "{\"type\": \"integer\"}}, \"additionalProperties\": {\"type\": \"null\"}}",
         {"{}", "{\"a\": null, \"abc\": null}", "{\"ab\": 1, \"\": null}",
          "{\"\xc3\xa8\": null, \"ac\": null}", "{\"\xc3\xa9\": 3}"},
         {"{\"ab\": null}", "{\"\xc3\xa9\": null}", "{\"a\\u0062\": null}", "{\"x\": 1}",
          "{\"x\": null, \"ab\": 1}"}},
        {"{\"type\": \"object\", \"additionalProperties\": true, \"required\": [\"k\"]}",
         {"{\"k\": 1}", "{\"k\": [], \"j\": 2}"},
         {"{}", "{\"j\": 2}"}},
        {"{\"type\": \"object\", \"properties\": {\"]^-[\": true}, \"additionalProperties\": true}",
         {"{\"]^-[\": 1}", "{\"]^-\": 1}", "{\"]^-[x\": 1}"},
         {"{\"a\\nb\": 1}"}},
        {"{\"title\": \"t\", \"description\": \"d\", \"$schema\": \"x\", \"type\": \"null\"}",
         {"null"},
         {"0"}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_grammar *g = describe(cases[i].schema);
        for (int k = 0; k < 5; k++) {
            if (cases[i].yes[k] && !belongs(g, cases[i].yes[k]))
                fail_msg("%s: refuses %s", cases[i].schema, cases[i].yes[k]);
            if (cases[i].no[k] && belongs(g, cases[i].no[k]))
                fail_msg("%s: accepts %s", cases[i].schema, cases[i].no[k]);
        }
        dra_grammar_destroy(g);
    }
}

static void refuses(void **state)
{
    static const struct {
        const char *schema, *error;
    } cases[] = {
        {"{", "s.json: JSON, line 1, column 1"},
        {"{\"items\": 3}", "s.json: /items: expected a schema: an object, or true"},
        {"true", "s.json: JSON, line 1, column 4"},
        {"{\"type\": \"int\"}", "s.json: schema: there is no type 'int'"},
        {"{\"type\": []}", "s.json: schema: type: expected a name or a list of names"},
        {"{\"minimum\": 3}", "s.json: schema: keyword 'minimum' is not supported"},
        {"{\"properties\": {\"a\": {\"pattern\": \"x\"}}}",
         "s.json: /properties/a: keyword 'pattern' is not supported"},
        {"{\"items\": {\"anyOf\": []}}", "s.json: /items: keyword 'anyOf' is not supported"},
        {"{\"items\": [true]}", "s.json: /items: a list of schemas is not supported"},
        {"{\"enum\": [1], \"items\": true}",
         "s.json: schema: keyword 'items' is not supported next to enum or const"},
        {"{\"enum\": [\"a\"], \"type\": \"null\"}", "s.json: schema: enum: no value is left"},
        {"{\"enum\": [\"a\"], \"const\": 1}", "s.json: schema: const: no value is left"},
        {"{\"enum\": 1}", "s.json: schema: enum: expected a list of values"},
        {"{\"required\": \"a\"}", "s.json: schema: required: expected a list of names"},
        {"{\"required\": [\"b\"], \"properties\": {}, \"additionalProperties\": false}",
         "s.json: schema: required: 'b' is none of its properties"},
        {"{\"properties\": []}", "s.json: schema: properties: expected an object"},
        {"{\"additionalProperties\": 1}",
         "s.json: /additionalProperties: expected true, false or a schema"},
        {"{\"properties\": {\"a\": false}}",
         "s.json: /properties/a: expected a schema: an object, or true"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_grammar *g = NULL;
        dra_error    err = {0};
        if (dra_grammar_schema("s.json", cases[i].schema, strlen(cases[i].schema), &g, &err) ==
            DRA_OK)
            fail_msg("accepted: %s", cases[i].schema);
        assert_null(g);
        if (strncmp(err.text, cases[i].error, strlen(cases[i].error)) != 0)
            fail_msg("found '%s', expected '%s'", err.text, cases[i].error);
    }
}

/* ---- random texts ---------------------------------------------------------------------------- */

static uint64_t chances;

static unsigned below(unsigned n)
{
    chances = chances * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(chances >> 33) % n;
}

/* A text, byte by byte, that ends as soon as it may; NULL: it got too long. */
static char *write_random(const dra_grammar *g, char *text, size_t most)
{
    dra_matcher *m = NULL;
    dra_error    err = {0};
    size_t       n = 0;
    assert_int_equal(dra_matcher_create(g, &m, &err), DRA_OK);
    int32_t state = dra_matcher_enter(m, NULL);
    while (!dra_matcher_may_end(m, state) && n < most) {
        /* Bytes that close something are tried first now and then, so that it comes to an end. */
        static const char closing[] = "\"]}0";
        const unsigned    first = below(2) ? (unsigned char)closing[below(4)] : below(256);
        int32_t           to = DRA_MATCH_NOT;
        for (unsigned k = 0; k < 256 && to < 0; k++) {
            text[n] = (char)(unsigned char)((first + k) % 256);
            to = dra_matcher_step(m, state, (unsigned char)text[n]);
        }
        assert_true(to >= 0); /* something always follows */
        state = to;
        n++;
    }
    text[n] = '\0';
    dra_matcher_destroy(m);
    return n < most ? text : NULL;
}

static void check_person(const json_t *x)
{
    static const char *const keys[] = {"name", "age", "tags", "kind", "more"};
    const char              *key;
    json_t                  *each;
    size_t                   i;
    assert_true(json_is_object(x));
    assert_true(json_is_string(json_object_get(x, "name")));
    assert_true(json_is_integer(json_object_get(x, "age")) ||
                json_is_null(json_object_get(x, "age")));
    json_array_foreach(json_object_get(x, "tags"), i, each) assert_true(json_is_boolean(each));
    json_object_foreach((json_t *)x, key, each)
    {
        bool known = false;
        for (size_t k = 0; k < COUNT(keys); k++) known = known || strcmp(keys[k], key) == 0;
        assert_true(known);
    }
    const char *kind = json_string_value(json_object_get(x, "kind"));
    assert_true(!kind || strcmp(kind, "a") == 0 || strcmp(kind, "b") == 0);
    if (json_object_get(x, "more")) assert_true(json_is_object(json_object_get(x, "more")));
}

static void writes_what_conforms(void **state)
{
    static const char schema[] =
        "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"age\": "
        "{\"type\": [\"integer\", \"null\"]}, \"tags\": {\"type\": \"array\", \"items\": "
        "{\"type\": \"boolean\"}}, \"kind\": {\"enum\": [\"a\", \"b\"]}, \"more\": {\"type\": "
        "\"object\"}}, \"required\": [\"name\", \"age\"], \"additionalProperties\": false}";
    static char  text[4000];
    dra_grammar *g = describe(schema);
    int          made = 0;
    for (int i = 0; i < 300; i++) {
        json_error_t why;
        chances = 77 + (uint64_t)i;
        if (!write_random(g, text, sizeof text - 1)) continue;
        /* A key may come twice in an object of any kind, and a text may hold \u0000. */
        json_t *x = json_loads(text, JSON_ALLOW_NUL, &why);
        if (!x) fail_msg("%s: %s", why.text, text);
        check_person(x);
        json_decref(x);
        made++;
    }
    assert_true(made > 250);
    dra_grammar_destroy(g);
}

/* Schemas as rules of a grammar. */
static void schemas_are_rules(void **state)
{
    static const char     rules[] = "root ::= \"a\" schema0 | the-b\nthe-b ::= \"b\" schema1\n";
    const dra_schema_text s[] = {{"{\"type\": \"object\", \"properties\": {\"x\": {}}}", 43},
                                 {"{\"type\": \"boolean\"}", 19}};
    dra_grammar          *g = NULL;
    dra_error             err = {0};
    assert_int_equal(dra_grammar_schemas("s", rules, 2, s, &g, &err), DRA_OK);
    assert_true(belongs(g, "a{\"x\":[1]}") && belongs(g, "btrue"));
    assert_false(belongs(g, "b{}") || belongs(g, "atrue") || belongs(g, "true"));
    dra_grammar_destroy(g);
    assert_int_equal(dra_grammar_schemas("s", rules, 1, s, &g, &err), DRA_ERR_FORMAT);
    assert_null(g);
    assert_int_equal(dra_grammar_schemas("s", "root ::= nothing", 2, s, &g, &err), DRA_ERR_FORMAT);
    assert_null(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_texts),
        cmocka_unit_test(refuses),
        cmocka_unit_test(writes_what_conforms),
        cmocka_unit_test(schemas_are_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
