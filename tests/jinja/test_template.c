/* Templates against Jinja: tests/data/chat-templates.json holds what Jinja makes of every construct
 * and of whole templates in the formats of many models, by tests/parity/templates.py. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/template.h"

static json_t *cases;

static int load(void **state)
{
    cases = json_load_file("tests/data/chat-templates.json", 0, NULL);
    return cases ? 0 : -1;
}

static int unload(void **state)
{
    json_decref(cases);
    return 0;
}

static dra_status render(const char *text, const char *variables, char **out, dra_error *err)
{
    dra_template *t = NULL;
    size_t        bytes = 0;
    *out = NULL;
    dra_status st = dra_template_create(text, strlen(text), "t", &t, err);
    assert_int_equal(st == DRA_OK, t != NULL);
    if (st == DRA_OK) st = dra_template_render(t, variables, out, &bytes, err);
    assert_int_equal(st == DRA_OK, *out != NULL);
    if (*out) assert_int_equal(bytes, strlen(*out));
    dra_template_destroy(t);
    return st;
}

/* Whether a case is as Jinja has it; prints what is not. */
static bool agrees(const json_t *c)
{
    const size_t at = (size_t)json_integer_value(json_object_get(c, "template"));
    const size_t given = (size_t)json_integer_value(json_object_get(c, "variables"));
    const char  *text = json_string_value(json_array_get(json_object_get(cases, "templates"), at));
    const char  *expected = json_string_value(json_object_get(c, "expected"));
    char     *variables = json_dumps(json_array_get(json_object_get(cases, "variables"), given), 0);
    char     *out = NULL;
    dra_error err = {0};
    const dra_status st = render(text, variables, &out, &err);
    const bool       same = expected ? out && strcmp(out, expected) == 0 : st != DRA_OK;
    if (!same)
        print_error("%s\nexpected: %s\nfound:    %s\n", text, expected ? expected : "an error",
                    out ? out : err.text);
    free(out);
    free(variables);
    return same;
}

static void as_jinja(void **state)
{
    const json_t *all = json_object_get(cases, "cases");
    int           wrong = 0;
    assert_true(json_array_size(all) > 0);
    for (size_t i = 0; i < json_array_size(all); i++) wrong += !agrees(json_array_get(all, i));
    if (wrong) fail_msg("%d of %zu cases", wrong, json_array_size(all));
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void check_error(const char *text, const char *variables, dra_status code,
                        const char *expected)
{
    char     *out;
    dra_error err = {0};
    assert_int_equal(render(text, variables, &out, &err), code);
    assert_string_equal(err.text, expected);
}

static void refuses_when_made(void **state)
{
    static const char *const rows[][2] = {
        {"{% if x %}", "t: line 1: expected {% endif %}, found the end"},
        {"a\n{% for x in y %}\n", "t: line 2: expected {% endfor %}, found the end"},
        {"\n\n{{ x", "t: line 3: expected }}, found the end of the template"},
        {"{# x", "t: line 1: expected #} after {#, found the end"},
        {"{{ x y }}", "t: line 1: expected }}, found 'y'"},
        {"{{ 'x }}", "t: line 1: expected ' at the end of a string, found the end"},
        {"{% if %}{% endif %}", "t: line 1: expected a value, found '%}'"},
        {"{{ (1 }}", "t: line 1: expected ), found }"},
        {"{{ 1) }}", "t: line 1: found ) without its beginning"},
        {"{{ $ }}", "t: line 1: no sign of the language: '$'"},
        {"{{ 12345678901234567890 }}",
         "t: line 1: expected an integer of 64 bits, found 12345678901234567890"},
        {"{{ 1x }}", "t: line 1: expected a number, found '1x'"},
        {"{{ '\\ud800' }}", "t: line 1: expected an escape of a letter, found \\u"},
        {"\n{{ x|nope }}", "t: line 2: no such filter is known: 'nope'"},
        {"\n{{ x is nope }}", "t: line 2: no such test is known: 'nope'"},
        {"\n{{ x.nope() }}", "t: line 2: no such method is known: 'nope'"},
        {"\n\n{{ nope(1) }}", "t: line 3: no such function or macro is known: 'nope'"},
        {"{{ x|map('nope') }}", "t: line 1: map: no such filter is known: 'nope'"},
        {"{{ x|selectattr('a', 'nope') }}", "t: line 1: selectattr: no such test is known: 'nope'"},
        {"{{ x|trim(1, 2) }}", "t: line 1: trim: expected 0 to 1 arguments, found 2"},
        {"{{ x|trim(what=2) }}", "t: line 1: trim: no such argument is known: 'what'"},
        {"{{ x is divisibleby }}", "t: line 1: divisibleby: expected 1 to 1 arguments, found 0"},
        {"{% include 'x' %}", "t: line 1: expected if, for, set, macro, generation, break or "
                              "continue, found 'include'"},
        {"{% endif %}", "t: line 1: expected if, for, set, macro, generation, break or continue, "
                        "found 'endif'"},
        {"{% break %}", "t: line 1: break outside of a loop"},
        {"{% for x in y %}{% macro f() %}{% continue %}{% endmacro %}{% endfor %}",
         "t: line 1: continue outside of a loop"},
        {"{% for 1 in y %}{% endfor %}", "t: line 1: expected a name, found '1'"},
        {"{% for x of y %}{% endfor %}", "t: line 1: expected in, found 'of'"},
        {"{% set true = 1 %}", "t: line 1: expected a name to set, found 'true'"},
        {"{% set x 1 %}", "t: line 1: expected = or %}, found '1'"},
        {"{% macro f(a=1, b) %}{% endmacro %}",
         "t: line 1: expected a default for 'b', as of those before it"},
        {"{{ f(a=1, 2) }}", "t: line 1: expected NAME= after an argument with a name, found '2'"},
        {"{{ x[] }}", "t: line 1: expected an index, found ']'"},
        {"{{ (1)(2) }}", "t: line 1: only functions, macros and methods can be called"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        check_error(rows[i][0], "{}", DRA_ERR_FORMAT, rows[i][1]);
}

static void refuses_when_rendered(void **state)
{
    static const char *const rows[][2] = {
        {"\n{{ raise_exception('Only ' ~ 1) }}", "t: line 2: Only 1"},
        {"\n{{ a.b }}", "t: line 2: 'a' is undefined, so it has no 'b'"},
        {"{{ a.strip() }}", "t: line 1: 'a' is undefined, so it has no 'strip'"},
        {"{{ 'x' + a }}", "t: line 1: 'a' is undefined, found next to +"},
        {"{{ 'x' + 1 }}", "t: line 1: a str + an int cannot be computed"},
        {"{{ 1 < 'x' }}", "t: line 1: an int and a str have no order"},
        {"{% for x in 1 %}{% endfor %}", "t: line 1: an int has no members to go through"},
        {"{{ 9223372036854775807 + 1 }}", "t: line 1: an int of more than 64 bits"},
        {"{{ 'x' % 1 }}", "t: line 1: a str % an int cannot be computed"},
        {"{% macro f() %}{% endmacro %}{{ f }}", "t: line 1: a macro cannot be written"},
        {"{% macro f() %}{{ f() }}{% endmacro %}\n{{ f() }}",
         "t: line 1: macros and values nest more than 500 deep"},
        {"{{ range(100001) }}", "t: line 1: range: more than 100000 members"},
        {"{% set x = 1 %}{% set x.y = 2 %}",
         "t: line 1: expected a namespace to set 'y' in, found an int"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        check_error(rows[i][0], "{}", DRA_ERR_VALUE, rows[i][1]);
    check_error("x", "[]", DRA_ERR_FORMAT, "variables of a template: expected an object");
    check_error("x", "{", DRA_ERR_FORMAT,
                "variables of a template: JSON, line 1, column 1: string or '}' expected near end "
                "of file");
}

/* Short templates that would take forever, or all memory. */
static void ends_soon(void **state)
{
    static const char *const rows[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}"
        "{% endfor %}",
        "{% set n = namespace(s=[1]) %}{% for a in range(99) %}{% set n.s = n.s + n.s %}"
        "{% endfor %}",
        "{{ 'x' * 9223372036854775807 }}",
        "{{ ['x'] * 99999999 }}",
        "{{ 'x'|indent(99999999999) }}",
        "{% set n = namespace(s=[]) %}{% for a in range(9999) %}{% set n.s = [n.s] %}{% endfor %}"
        "{{ n.s }}",
        "{% set n = namespace(s=[]) %}{% for a in range(9999) %}{% set n.s = [n.s] %}{% endfor %}"
        "{{ n.s|tojson }}{{ n.s == n.s }}",
        "{% set n = namespace(s=[]) %}{% for a in range(999) %}{% set n.s = [n.s] %}{% endfor %}"
        "{{ n.s == n.s }}",
        "{% set s = 'ab' * 1000000 %}{% for a in range(99999) %}{% set x = 'zz' in s %}"
        "{% endfor %}",
        "{% set s = range(99999)|list %}{{ s|sort(reverse=true) }}",
        "{{ (range(99999)|list * 99)|tojson(indent=99999) }}",
        "{% macro f(n) %}{{ f(n) ~ f(n) }}{% endmacro %}{{ f(1) }}",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char     *out;
        dra_error err = {0};
        if (render(rows[i], "{}", &out, &err) != DRA_ERR_VALUE) fail_msg("%s", rows[i]);
        assert_memory_equal(err.text, "t: line 1: ", 11);
    }
}

static void nests_so_deep(void **state)
{
    static const char *const parts[] = {"(", "[", "{'a':", "- ", "not ", "x.y[", "1 if ", "f("};
    for (size_t k = 0; k < COUNT(parts); k++) {
        char     *text = calloc(1, 100000), *out;
        dra_error err = {0};
        assert_non_null(text);
        snprintf(text, 8, "{{ ");
        for (int i = 0; i < 5000; i++) {
            const size_t n = strlen(text);
            snprintf(text + n, 100000 - n, "%s", parts[k]);
        }
        assert_int_equal(render(text, "{}", &out, &err), DRA_ERR_FORMAT);
        free(text);
    }
    char *text = calloc(1, 100000), *out;
    assert_non_null(text);
    for (int i = 0; i < 5000; i++) memcpy(text + i * 10, "{% if x %}", 10);
    dra_error err = {0};
    assert_int_equal(render(text, "{}", &out, &err), DRA_ERR_FORMAT);
    assert_string_equal(err.text, "t: line 1: nests more than 100 deep");
    free(text);
}

/* ---- formats that are built in --------------------------------------------------------------- */

static void check_named(const char *name, const char *expected)
{
    static const dra_message talk[] = {
        {"system", "S", 1}, {"user", "Q", 1}, {"assistant", " A", 2}, {"user", "R", 1}};
    const char   *text = dra_template_named(name);
    dra_template *t = NULL;
    dra_error     err = {0};
    char         *out = NULL;
    size_t        bytes = 0;
    assert_non_null(text);
    assert_int_equal(dra_template_create(text, strlen(text), name, &t, &err), DRA_OK);
    if (dra_template_chat(t, talk, COUNT(talk), true, &out, &bytes, &err) != DRA_OK)
        fail_msg("%s", err.text);
    assert_string_equal(out, expected);
    free(out);
    dra_template_destroy(t);
}

static void has_formats(void **state)
{
    check_named("plain", "System: S\n\nUser: Q\n\nAssistant: A\n\nUser: R\n\nAssistant:");
    check_named("rwkv-world", "System: S\n\nUser: Q\n\nAssistant: A\n\nUser: R\n\nAssistant:");
    check_named("chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n"
                          "<|im_start|>assistant\n A<|im_end|>\n<|im_start|>user\nR<|im_end|>\n"
                          "<|im_start|>assistant\n");
    check_named("llama2", "[INST] <<SYS>>\nS\n<</SYS>>\n\nQ [/INST] A [INST] R [/INST]");
    check_named("llama3", "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
                          "<|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>"
                          "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
                          "<|start_header_id|>user<|end_header_id|>\n\nR<|eot_id|>"
                          "<|start_header_id|>assistant<|end_header_id|>\n\n");
    check_named("zephyr",
                "<|system|>\nS\n<|user|>\nQ\n<|assistant|>\n A\n<|user|>\nR\n<|assistant|>\n");
    check_named("gemma", "<start_of_turn>user\nS\n\nQ<end_of_turn>\n<start_of_turn>model\n"
                         "A<end_of_turn>\n<start_of_turn>user\nR<end_of_turn>\n"
                         "<start_of_turn>model\n");
    check_named("mistral", "[INST] S\n\nQ [/INST] A[INST] R [/INST]");
    assert_null(dra_template_named("nope"));
    for (size_t i = 0; dra_template_name(i); i++)
        assert_non_null(dra_template_named(dra_template_name(i)));
}

/* How answers end by a template, where tokens are bytes. */
static void check_ending(const char *text, dra_status status, const char *expected)
{
    dra_template  *t = NULL;
    dra_tokenizer *bytes = NULL;
    dra_error      err = {0};
    int32_t        id = 5;
    char          *out = (char *)(uintptr_t)text;
    assert_int_equal(dra_template_create(text, strlen(text), "t", &t, &err), DRA_OK);
    assert_int_equal(dra_tokenizer_bytes(&bytes, &err), DRA_OK);
    assert_int_equal(dra_template_ending(t, bytes, &id, &out, &err), status);
    assert_int_equal(id, -1);
    if (expected)
        assert_string_equal(out, expected);
    else
        assert_null(out);
    free(out);
    dra_tokenizer_destroy(bytes);
    dra_template_destroy(t);
}

static void says_endings(void **state)
{
    check_ending(dra_template_named("plain"), DRA_OK, "\n\nUser:");
    check_ending(dra_template_named("chatml"), DRA_OK, "<|im_end|>\n<|im_start|>user");
    check_ending("{{ messages|map(attribute='content')|join(' \n') }}", DRA_OK, NULL);
    check_ending("{{ messages[0].content }}", DRA_OK, NULL);
    check_ending("{{ raise_exception('no') }}", DRA_ERR_VALUE, NULL);
}

/* The time now, and bytes that are no UTF-8. */
static void takes_the_rest(void **state)
{
    char         *out = NULL;
    dra_error     err = {0};
    dra_template *t = NULL;
    size_t        bytes = 0;
    assert_int_equal(
        render("{{ strftime_now('%Y')|length }}{{ strftime_now is defined }}", "{}", &out, &err),
        DRA_OK);
    assert_string_equal(out, "4True");
    free(out);
    static const char odd[] =
        "{{ messages[0].content|upper|trim }}\xff{{ messages[0].content|length }}";
    assert_int_equal(dra_template_create(odd, sizeof odd - 1, "t", &t, &err), DRA_OK);
    const dra_message m = {"user", "\xffz\0\xe2\x82 ", 6};
    assert_int_equal(dra_template_chat(t, &m, 1, false, &out, &bytes, &err), DRA_OK);
    assert_int_equal(bytes, 7);
    assert_memory_equal(out,
                        "\xffZ\0\xe2\x82\xff"
                        "5",
                        7);
    free(out);
    dra_template_destroy(t);
    dra_template_destroy(NULL);
}

/* Variables that a conversation takes along; its own stay its own. */
static void takes_further_variables(void **state)
{
    static const char text[] =
        "{{ messages[0].content }} {{ enable_thinking|default(true) }} "
        "{{ (tools|default([]))|map(attribute='name')|join(',') }}{{ add_generation_prompt }}";
    static const struct {
        const char *variables, *expected; /* NULL: refused */
        const char *words;
    } rows[] = {
        {NULL, "Q True True", NULL},
        {"{}", "Q True True", NULL},
        {"{\"enable_thinking\": false}", "Q False True", NULL},
        {"{\"tools\": [{\"name\": \"a\"}, {\"name\": \"b\"}], \"x\": 1}", "Q True a,bTrue", NULL},
        {"{\"messages\": []}", NULL, "messages"},
        {"{\"add_generation_prompt\": false}", NULL, "add_generation_prompt"},
        {"[1]", NULL, "object"},
        {"{\"x\": }", NULL, "JSON"},
    };
    const dra_message question = {"user", "Q", 1};
    dra_template     *t = NULL;
    assert_int_equal(dra_template_create(text, sizeof text - 1, "t", &t, NULL), DRA_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        char            *out = NULL;
        size_t           bytes = 0;
        dra_error        err = {0};
        const dra_status st = dra_template_chat_with(t, &question, 1, true, rows[i].variables, &out,
                                                     &bytes, &err);
        assert_int_equal(st == DRA_OK, rows[i].expected != NULL);
        if (rows[i].expected) assert_string_equal(out, rows[i].expected);
        if (rows[i].words) assert_non_null(strstr(err.text, rows[i].words));
        free(out);
    }
    dra_template_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_jinja),
        cmocka_unit_test(refuses_when_made),
        cmocka_unit_test(ends_soon),
        cmocka_unit_test(refuses_when_rendered),
        cmocka_unit_test(says_endings),
        cmocka_unit_test(nests_so_deep),
        cmocka_unit_test(has_formats),
        cmocka_unit_test(takes_the_rest),
        cmocka_unit_test(takes_further_variables),
    };
    if (load(NULL) != 0) return 1;
    const int failed = check_main("templates", NULL, 0, tests, COUNT(tests));
    unload(NULL);
    return failed;
}
