/* Chat templates. What must hold: a template as made is accepted; any other text as well, or it is
 * refused by one line that names it. Rendering gives a text or one such line, within its budgets,
 * and the same a second time. */
#include "dra/template.h"
#include "harness.h"

#define NAME "any.jinja: line "

static const char variables[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be \\u2713.\"}, {\"role\": \"user\", "
    "\"content\": \" a b\\nc \"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
    "[{\"name\": \"f\", \"arguments\": {\"x\": [1, 2.5, true]}}]}], \"tools\": [], \"bos_token\": "
    "\"<s>\", \"add_generation_prompt\": true, \"x\": 3, \"y\": \"abc\"}";

/* ---- templates that are right ---------------------------------------------------------------- */

static void say_value(fuzz_bytes *t, int depth)
{
    static const char *const plain[] = {"x",       "y",       "messages",  "1",
                                        "-2.5",    "'a\\n'",  "none",      "messages[0].role",
                                        "missing", "[1, x,]", "()",        "{'a': {}}",
                                        "y[::-1]", "true",    "bos_token", "messages[1:]"};
    static const char *const between[] = {" + ", " ~ ", " == ", " in ",     " and ", " or ",
                                          " < ", " * ", " - ",  " not in ", " // ",  " ** "};
    static const char *const after[] = {"|trim",
                                        "|tojson(indent=2)",
                                        "|length",
                                        "|default('z', true)",
                                        "|upper",
                                        ".strip('a')",
                                        "|join(', ')",
                                        " is defined",
                                        " is not none",
                                        "|list",
                                        "|sort",
                                        "|map('string')",
                                        "[0]",
                                        "|select('odd')",
                                        "|int",
                                        ".split('b')",
                                        "|replace('a', x)",
                                        "|string",
                                        "|title",
                                        "|indent(2)",
                                        "|unique",
                                        "|dictsort",
                                        ".get('role')",
                                        "|round(1)",
                                        "|first"};
    const uint32_t           kind = depth > 4 || t->n > FUZZ_MOST / 2 ? 9 : below(8);
    if (kind < 2) {
        say(t, "(");
        say_value(t, depth + 1);
        say(t, one_of(between, COUNT(between)));
        say_value(t, depth + 1);
        say(t, ")");
    } else if (kind < 5) {
        say(t, "((");
        say_value(t, depth + 1);
        say(t, ")");
        say(t, one_of(after, COUNT(after)));
        say(t, ")");
    } else if (kind == 5) {
        say(t, "(");
        say_value(t, depth + 1);
        say(t, " if ");
        say_value(t, depth + 1);
        say(t, ")");
    } else {
        say(t, one_of(plain, COUNT(plain)));
    }
}

static void say_body(fuzz_bytes *t, int depth);

static void say_statement(fuzz_bytes *t, int depth)
{
    static const char *const words[] = {"\n", "  ", "text", "{# note -#}", "\xe2\x9c\x93"};
    static const char *const blocks[][2] = {
        {"{%- if ", "{% endif -%}"},
        {"{% for i, j in ", "{% else %}none{%- endfor %}"},
        {"{% for m in messages if ", "{{ loop.index }}{% break %}{% endfor +%}"},
        {"{% macro f(a, b=1) %}{{ a }}{% endmacro %}{{ f(x) }}{% if ", "{% endif %}"}};
    const uint32_t kind = depth > 3 || t->n > FUZZ_MOST / 2 ? below(2) : below(5);
    if (kind == 0) {
        say(t, one_of(words, COUNT(words)));
    } else if (kind == 1) {
        say(t, below(2) ? "{{- " : "{{ ");
        say_value(t, 0);
        say(t, below(2) ? " -}}" : "}}");
    } else if (kind == 2) {
        say(t, "{% set n = namespace(a=1) %}{% set n.a = ");
        say_value(t, 0);
        say(t, " %}{% set z | trim %}{{ n.a }}{% endset %}");
    } else {
        const char *const *block = blocks[below(COUNT(blocks))];
        say(t, block[0]);
        say_value(t, 0);
        say(t, " %}");
        say_body(t, depth + 1);
        say(t, block[1]);
    }
}

static void say_body(fuzz_bytes *t, int depth)
{
    for (uint32_t i = below(4) + 1; i > 0; i--) say_statement(t, depth);
}

static void make(fuzz_bytes *t) { say_body(t, 0); }

/* ---- any text -------------------------------------------------------------------------------- */

static dra_status render(const dra_template *t, char **text, size_t *bytes)
{
    dra_error        err = {0};
    const dra_status st = dra_template_render(t, variables, text, bytes, &err);
    if ((st == DRA_OK) != (*text != NULL)) broken("a text that is not there, or too many");
    if (st != DRA_OK) expect_line(&err, NAME);
    return st;
}

static bool has(const uint8_t *data, size_t bytes, const char *text)
{
    const size_t n = strlen(text);
    for (size_t i = 0; i + n <= bytes; i++)
        if (memcmp(data + i, text, n) == 0) return true;
    return false;
}

int harness(const uint8_t *data, size_t bytes)
{
    char            *copy = exact_copy(data, bytes), *once = NULL, *again = NULL;
    dra_template    *t = NULL;
    dra_error        err = {0};
    size_t           n, m;
    const dra_status st = dra_template_create(copy, bytes, "any.jinja", &t, &err);
    free(copy);
    if (st != DRA_OK) {
        expect_line(&err, NAME);
        return 0;
    }
    if (render(t, &once, &n) == DRA_OK && /* the time of day may change in between */
        (render(t, &again, &m) != DRA_OK ||
         ((n != m || memcmp(once, again, n) != 0) && !has(data, bytes, "strftime_now"))))
        broken("rendered twice, not the same");
    free(once);
    free(again);
    dra_template_destroy(t);
    return 1;
}

static const char *const words[] = {"{{",
                                    "}}",
                                    "{%",
                                    "%}",
                                    "{#",
                                    "#}",
                                    "-",
                                    "+",
                                    "if ",
                                    "elif ",
                                    "else",
                                    "endif",
                                    "for ",
                                    "in ",
                                    "endfor",
                                    "set ",
                                    "endset",
                                    "macro ",
                                    "endmacro",
                                    "break",
                                    "continue",
                                    "not ",
                                    "and ",
                                    "or ",
                                    "is ",
                                    "loop.",
                                    "messages",
                                    "[::-1]",
                                    "|tojson",
                                    "|trim",
                                    "|map(",
                                    "|select(",
                                    "|sort",
                                    "range(",
                                    "namespace(",
                                    "dict(",
                                    "raise_exception(",
                                    ".items()",
                                    ".split(",
                                    "**",
                                    "//",
                                    "~",
                                    "'",
                                    "\"",
                                    "\\x41",
                                    "\\u2713",
                                    "(",
                                    ")",
                                    "[",
                                    "]",
                                    "{",
                                    "}",
                                    ",",
                                    ":",
                                    "9223372036854775807",
                                    "1e308",
                                    "true",
                                    "none",
                                    "x",
                                    "\n",
                                    "|indent(",
                                    "|round(",
                                    "generation",
                                    "endgeneration",
                                    "attribute=",
                                    NULL};

const fuzz_subject fuzz_this = {.words = words, .make = make};
