/* JSON schemas as grammars, without memory: each allocation fails once, and no grammar is made of
 * the part of a text that there was room for. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "failing.h"
#include "generate/grammar/grammar.h"

static const char schema[] =
    "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"kinds\": "
    "{\"type\": \"array\", \"items\": {\"enum\": [\"first\", \"second\", 3, null]}}, \"inner\": "
    "{\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"number\"}, \"y\": {\"const\": "
    "[1, {\"z\": true}]}}, \"required\": [\"x\"], \"additionalProperties\": true}}, \"required\": "
    "[\"name\", \"more\"]}";

static void expect_whole(const dra_grammar *g)
{
    static const char text[] = "{\"name\":\"a\",\"kinds\":[\"first\",3],\"inner\":{\"x\":1.5,\"y\":"
                               "[1,{\"z\":true}],\"other\":{}},\"more\":null}";
    dra_grammar_fit   fit;
    dra_error         err = {0};
    if (dra_grammar_match(g, text, strlen(text), &fit, &err) != DRA_OK) fail_msg("%s", err.text);
    assert_int_equal(fit, DRA_GRAMMAR_WHOLE);
}

static void without_memory(void **state)
{
    long         n = 0;
    dra_grammar *g = NULL;
    for (; !g; n++) {
        dra_error err = {0};
        allocations_left = n;
        const dra_status st = dra_grammar_schema("s.json", schema, strlen(schema), &g, &err);
        allocations_left = -1;
        assert_int_equal(st == DRA_OK, g != NULL);
        if (!g && (st != DRA_ERR_MEMORY || !strstr(err.text, "out of memory")))
            fail_msg("allocation %ld: %s", n, err.text);
    }
    assert_true(n > 20);
    expect_whole(g);
    dra_grammar_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory),
    };
    return check_main("schemas without memory", NULL, 0, tests, 1);
}
