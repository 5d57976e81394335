/* Calls of tools: what is learned from templates, the grammar of answers, what is read of them,
 * and requests that offer tools, with the library's engine. */
#include "client.h"

#undef COUNT
#include "serve/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- templates ------------------------------------------------------------------------------- */

#define HEAD                                                                                       \
    "{%- for t in tools or [] %}[{{ t | tojson }}]{% endfor %}"                                    \
    "{%- for m in messages %}<{{ m.role }}>{{ m.content }}"
#define TAIL "|end|{% endfor %}{%- if add_generation_prompt %}<assistant>{% endif %}"

typedef struct written {
    const char *name, *template, *begin, *middle, *between, *end;
    size_t      trigger;
} written;

static const written forms[] = {
    {"tagged",
     HEAD "{%- for c in m.tool_calls or [] %}{{ '\\n<call>\\n' }}{\"name\": \"{{ "
          "c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}"
          "{{ '\\n</call>' }}{% endfor %}" TAIL,
     "\n<call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</call>\n<call>\n{\"name\": \"",
     "}\n</call>", 6},
    {"a list",
     HEAD "{%- for c in m.tool_calls or [] %}{{ '[CALLS] [' if loop.first else ', ' }}"
          "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}"
          "}{{ ']' if loop.last else '' }}{% endfor %}" TAIL,
     "[CALLS] [{\"name\": \"", "\", \"arguments\": ", "}, {\"name\": \"", "}]", 7},
    {"one call alone",
     HEAD "{%- if m.tool_calls %}{%- if m.tool_calls | length > 1 %}"
          "{{ raise_exception('one call only') }}{% endif %}"
          "{\"name\": \"{{ m.tool_calls[0].function.name }}\", "
          "\"parameters\": {{ m.tool_calls[0].function.arguments | tojson }}}{% endif %}" TAIL,
     "{\"name\": \"", "\", \"parameters\": ", NULL, "}", 10},
    {"in other letters",
     HEAD "{%- for c in m.tool_calls or [] %}«ruf» {{ c.function.name }} "
          "{{ c.function.arguments | tojson }};{% endfor %}" TAIL,
     "«ruf» ", " ", ";«ruf» ", ";", 7},
    {"none", HEAD TAIL, NULL, NULL, NULL, NULL, 0},
    {"arguments before the name",
     HEAD "{%- for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}"
          "{{ c.function.name }}{% endfor %}" TAIL,
     NULL, NULL, NULL, NULL, 0},
    {"no assistant",
     "{% for m in messages %}{% if m.role == 'assistant' %}"
     "{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}",
     NULL, NULL, NULL, NULL, 0},
};

static serve_model open_template(const char *text)
{
    serve_model m = {0};
    dra_error   err = {0};
    assert_int_equal(dra_tokenizer_bytes(&m.m.tokenizer, &err), DRA_OK);
    if (dra_template_create(text, strlen(text), "t", &m.template, &err) != DRA_OK)
        fail_msg("%s", err.text);
    m.form = serve_form_learn(&m);
    return m;
}

static void close_template(serve_model *m)
{
    serve_form_free(m->form);
    dra_template_destroy(m->template);
    dra_tokenizer_destroy(m->m.tokenizer);
}

static void forms_are_learned(void **state)
{
    for (size_t i = 0; i < COUNT(forms); i++) {
        const written *w = &forms[i];
        serve_model    m = open_template(w->template);
        if (!m.form != !w->begin) fail_msg("%s: %s", w->name, m.form ? "a form" : "no form");
        if (m.form) {
            assert_string_equal(m.form->begin, w->begin);
            assert_string_equal(m.form->middle, w->middle);
            assert_string_equal(m.form->end, w->end);
            assert_int_equal(!m.form->between, !w->between);
            if (w->between) assert_string_equal(m.form->between, w->between);
            assert_int_equal(m.form->trigger, w->trigger);
        }
        close_template(&m);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"properties\": "
    "{\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"]}, \"strict\": true}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"add_all\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"a\": {\"minimum\": 3}}}}}]";

typedef struct offer {
    json_t        *list, *choice;
    serve_ask      ask;
    serve_grammar *grammar;
} offer;

static void open_offer(const serve_model *m, const char *choice, bool single, offer *o)
{
    char        why[160];
    serve_error e = {0};
    *o = (offer){.list = serve_json_read(tools_text, strlen(tools_text), why),
                 .choice = serve_json_read(choice, strlen(choice), why)};
    assert_true(o->list && o->choice);
    if (!serve_tools_read(o->list, o->choice, &o->ask.tools, &e)) fail_msg("%s", e.text);
    o->ask.tools.single = single;
    if (!serve_grammar_open(m, &o->ask, &o->grammar, &e)) fail_msg("%s", e.text);
}

static void close_offer(offer *o)
{
    serve_grammar_drop(o->grammar);
    json_decref(o->list);
    json_decref(o->choice);
}

#define NAMED "{\"type\": \"function\", \"function\": {\"name\": \"add\"}}"

/* Of the form "tagged". */
static const struct said {
    const char     *choice;
    bool            single;
    const char     *text;
    dra_grammar_fit fit;
    const char     *content, *calls; /* names and arguments */
} answers[] = {
    {"\"auto\"", false, "Hello <b>", DRA_GRAMMAR_WHOLE, "Hello <b>", ""},
    {"\"auto\"", false, "", DRA_GRAMMAR_WHOLE, "", ""},
    {"\"auto\"", false, "a <c<ca<cal", DRA_GRAMMAR_WHOLE, "a <c<ca<cal", ""},
    {"\"auto\"", false, "Wait.<call>\n{\"name\": \"add\", \"arguments\": {\"a\": 3}}\n</call>",
     DRA_GRAMMAR_WHOLE, "Wait.", "add {\"a\": 3};"},
    {"\"auto\"", false, "<c<call>\n{\"name\": \"add\", \"arguments\": {\"a\":30}}\n</call>",
     DRA_GRAMMAR_WHOLE, "<c", "add {\"a\":30};"},
    {"\"auto\"", false,
     "<call>\n{\"name\": \"add_all\", \"arguments\": {\"b\": \"}\\\"{\"}}\n</call>",
     DRA_GRAMMAR_WHOLE, "", "add_all {\"b\": \"}\\\"{\"};"},
    {"\"auto\"", false,
     "<call>\n{\"name\": \"add\", \"arguments\": {\"a\": 3}}\n</call>\n<call>\n{\"name\": \"add\", "
     "\"arguments\": {\"a\": 4}}\n</call>",
     DRA_GRAMMAR_WHOLE, "", "add {\"a\": 3};add {\"a\": 4};"},
    {"\"auto\"", true,
     "<call>\n{\"name\": \"add\", \"arguments\": {\"a\": 3}}\n</call>\n<call>\n{\"name\": \"add\", "
     "\"arguments\": {\"a\": 4}}\n</call>",
     DRA_GRAMMAR_NOT, NULL, NULL},
    {"\"auto\"", false, "<call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"3", DRA_GRAMMAR_NOT,
     NULL, NULL},
    {"\"auto\"", false, "<call>\n{\"name\": \"sub", DRA_GRAMMAR_NOT, NULL, NULL},
    {"\"auto\"", false, "<call> ", DRA_GRAMMAR_NOT, NULL, NULL},
    {"\"auto\"", false, "x<call>\n{\"name\": \"ad", DRA_GRAMMAR_PART, "x", ""},
    {"\"auto\"", false, "x<call>\n{\"name\": \"add\", \"arguments\": {\"a\": 3", DRA_GRAMMAR_PART,
     "x", "add {\"a\": 3;"},
    {"\"required\"", false, "add\", \"arguments\": {\"a\": 3}}\n</call>", DRA_GRAMMAR_WHOLE, "",
     "add {\"a\": 3};"},
    {"\"required\"", false, "Hello", DRA_GRAMMAR_NOT, NULL, NULL},
    {NAMED, false, "{\"a\": 12}}\n</call>", DRA_GRAMMAR_WHOLE, "", "add {\"a\": 12};"},
    {NAMED, false, "{\"b\": 12}}\n</call>", DRA_GRAMMAR_NOT, NULL, NULL},
};

static void expect_calls(const struct said *s, const char *list)
{
    char    why[160], found[200] = "";
    size_t  i;
    json_t *x, *all = serve_json_read(list, strlen(list), why);
    json_array_foreach(all, i, x)
    {
        const json_t *f = json_object_get(x, "function");
        const size_t  n = strlen(found);
        assert_true(strncmp(json_string_value(json_object_get(x, "id")), "call_", 5) == 0);
        snprintf(found + n, sizeof found - n, "%s %s;",
                 json_string_value(json_object_get(f, "name")),
                 json_string_value(json_object_get(f, "arguments")));
    }
    json_decref(all);
    assert_string_equal(found, s->calls);
}

static void expect_answer(const serve_model *m, const struct said *s)
{
    offer           o;
    dra_grammar_fit fit;
    dra_error       err = {0};
    serve_text      list = {0};
    const size_t    n = strlen(s->text);
    open_offer(m, s->choice, s->single, &o);
    assert_int_equal(dra_grammar_match(serve_grammar_of(o.grammar), s->text, n, &fit, &err),
                     DRA_OK);
    if (fit != s->fit) fail_msg("%s: fits %d, expected %d", s->text, (int)fit, (int)s->fit);
    if (s->content) {
        const size_t at = serve_calls_after(m->form, &o.ask.tools, s->text, n, true);
        assert_int_equal(at, strlen(s->content));
        serve_puts(&list, "[");
        serve_calls_put(m->form, &o.ask.tools, s->text + at, n - at, false, &list);
        serve_puts(&list, "]");
        expect_calls(s, list.data);
        /* What a stream has sent of it at any place is a beginning of the content. */
        for (size_t k = 0, sent = 0; k <= n; k++) {
            const size_t now = serve_calls_after(m->form, &o.ask.tools, s->text, k, false);
            assert_true(now >= sent && now <= at);
            sent = now;
        }
        serve_text_free(&list);
    }
    close_offer(&o);
}

static void answers_follow_the_grammar_and_are_read(void **state)
{
    serve_model m = open_template(forms[0].template);
    for (size_t i = 0; i < COUNT(answers); i++) expect_answer(&m, &answers[i]);
    close_template(&m);
}

/* Wherever an answer is cut, what is read of it is within its bounds. */
static void cut_answers_are_read(void **state)
{
    for (size_t f = 0; f < COUNT(forms); f++) {
        serve_model m = open_template(forms[f].template);
        offer       o;
        serve_text  all = {0};
        if (!m.form) {
            close_template(&m);
            continue;
        }
        open_offer(&m, "\"auto\"", false, &o);
        serve_printf(&all, "Hm. %sadd%s{\"a\": 3}%s", m.form->begin + m.form->unseen,
                     m.form->middle, m.form->end);
        for (size_t n = 0; n <= all.n; n++) {
            char        *text = malloc(n + 1); /* guarded by the address sanitizer */
            serve_text   list = {0};
            const size_t at = serve_calls_after(m.form, &o.ask.tools, all.data, n, true);
            assert_non_null(text);
            memcpy(text, all.data, n);
            const size_t calls = serve_calls_put(m.form, &o.ask.tools, text + at, n - at, true,
                                                 &list);
            assert_int_equal(calls, n >= strlen("Hm. ") + strlen(forms[f].begin) - m.form->unseen +
                                             3 + strlen(forms[f].middle));
            serve_text_free(&list);
            free(text);
        }
        serve_text_free(&all);
        close_offer(&o);
        close_template(&m);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static server it;

static int start(void **state)
{
    static char word[160], jinja[160];
    const char *tiny = server_model("dra-delta-tiny"), *text = forms[0].template;
    snprintf(word, sizeof word, "tiny=%s", tiny);
    snprintf(jinja, sizeof jinja, "%s/chat.jinja", tiny);
    assert_int_equal(dra_file_write(jinja, text, strlen(text), NULL), DRA_OK);
    it = server_start((const char *const[]){"--model", word, "--port", "0", "--max-tokens", "400",
                                            "--chat-template", jinja, NULL});
    return it.port ? 0 : -1;
}

#define USER "{\"role\": \"user\", \"content\": \"Hi\"}"

static answer chat(const char *messages, const char *rest)
{
    char body[2000];
    snprintf(body, sizeof body, "{\"messages\": [%s], \"seed\": 3, \"tools\": %s%s}", messages,
             tools_text, rest);
    return client_ask(it.port, "POST", "/v1/chat/completions", body);
}

/* Whatever the model writes, what it calls is there and has the arguments of the schema; the
 * message goes back with what came of it. */
static void tools_are_called(void **state)
{
    static const char *const choices[] = {"\"required\", \"parallel_tool_calls\": false", NAMED};
    for (size_t i = 0; i < 2 * COUNT(choices); i++) {
        char         rest[300], again[1200], why[160];
        const size_t k = i / 2;
        snprintf(rest, sizeof rest, ", \"tool_choice\": %s, \"temperature\": %s", choices[k],
                 i % 2 ? "0" : "1");
        answer a = chat(USER, rest);
        if (a.status != 200) fail_msg("%s", a.text);
        const char *name = answer_text(&a, "choices.0.message.tool_calls.0.function.name");
        const char *text = answer_text(&a, "choices.0.message.tool_calls.0.function.arguments");
        const char *finish = answer_text(&a, "choices.0.finish_reason");
        assert_true(json_is_null(answer_at(&a, "choices.0.message.content")));
        assert_null(answer_at(&a, "choices.0.message.tool_calls.1"));
        assert_true(strcmp(name, "add") == 0 || (!k && strcmp(name, "add_all") == 0));
        if (strcmp(finish, "length") != 0) {
            json_t *arguments = serve_json_read(text, strlen(text), why);
            assert_string_equal(finish, "tool_calls");
            assert_true(json_is_object(arguments));
            if (strcmp(name, "add") == 0)
                assert_true(json_is_integer(json_object_get(arguments, "a")));
            json_decref(arguments);
        }
        char *message = json_dumps(answer_at(&a, "choices.0.message"), 0);
        snprintf(again, sizeof again,
                 USER ", %s, {\"role\": \"tool\", \"tool_call_id\": \"%s\", \"content\": \"7\"}",
                 message, answer_text(&a, "choices.0.message.tool_calls.0.id"));
        answer b = chat(again, ", \"max_tokens\": 3");
        if (b.status != 200) fail_msg("%s\n%s", again, b.text);
        free(message);
        answer_free(&b);
        answer_free(&a);
    }
}

/* A stream says what the whole answer does: its calls come at once, before the end. */
static void streams_call_tools(void **state)
{
    static const char rest[] = ", \"tool_choice\": " NAMED ", \"temperature\": 0";
    char              part[300];
    snprintf(part, sizeof part, "%s, \"stream\": true", rest);
    answer      a = chat(USER, rest), b = chat(USER, part);
    const char *text = answer_text(&a, "choices.0.message.tool_calls.0.function.arguments");
    serve_text  quoted = {0};
    assert_int_equal(b.status, 200);
    serve_json_word(&quoted, text);
    const char *calls = strstr(b.body, "\"tool_calls\": [{\"index\": 0, ");
    const char *end = strstr(b.body, "\"finish_reason\": \"");
    assert_true(calls && end && calls < end);
    assert_null(strstr(calls + 1, "\"tool_calls\": ["));
    assert_non_null(strstr(calls, quoted.data));
    assert_non_null(strstr(b.body, answer_text(&a, "choices.0.finish_reason")));
    serve_text_free(&quoted);
    answer_free(&a);
    answer_free(&b);
}

/* Without a call an answer is what it is: none shows no tools to the model. */
static void answers_without_calls(void **state)
{
    answer a = chat(USER, ", \"tool_choice\": \"none\", \"max_tokens\": 9");
    answer b = client_ask(it.port, "POST", "/v1/chat/completions",
                          "{\"messages\": [" USER "], \"seed\": 3, \"max_tokens\": 9}");
    answer c = chat(USER, ", \"tool_choice\": \"auto\", \"max_tokens\": 9");
    assert_true(a.status == 200 && b.status == 200 && c.status == 200);
    assert_string_equal(answer_text(&a, "choices.0.message.content"),
                        answer_text(&b, "choices.0.message.content"));
    assert_true(answer_number(&c, "usage.prompt_tokens") >
                answer_number(&b, "usage.prompt_tokens"));
    assert_string_equal(answer_text(&c, "choices.0.finish_reason"), "length");
    answer_free(&a);
    answer_free(&b);
    answer_free(&c);
}

static void wrong_tools_are_refused(void **state)
{
    static const char *const all[][2] = {
        {"\"tools\": 3", "tools"},
        {"\"tools\": [3]", "tools"},
        {"\"tools\": [{\"type\": \"web_search\"}]", "tools"},
        {"\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a b\"}}]", "tools"},
        {"\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a\", \"strict\": true, "
         "\"parameters\": {\"minimum\": 3}}}]",
         "tools"},
        {"\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a\", \"parameters\": "
         "{\"type\": \"string\"}}}]",
         "tools"},
        {"\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a\"}}, "
         "{\"type\": \"function\", \"function\": {\"name\": \"a\"}}]",
         "tools"},
        {"\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a\"}}], "
         "\"grammar\": \"root ::= \\\"a\\\"\"",
         "tools"},
        {"\"tool_choice\": \"required\"", "tool_choice"},
        {"\"tool_choice\": " NAMED
         ", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": "
         "\"a\"}}]",
         "tool_choice"},
        {"\"tool_choice\": \"any\", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": "
         "\"a\"}}]",
         "tool_choice"},
        {"\"functions\": [{}]", "functions"},
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        char body[600];
        snprintf(body, sizeof body, "{\"messages\": [" USER "], %s}", all[i][0]);
        answer a = client_ask(it.port, "POST", "/v1/chat/completions", body);
        if (a.status != 400 || strcmp(answer_text(&a, "error.param"), all[i][1]) != 0)
            fail_msg("%s: %s", body, a.text);
        answer_free(&a);
    }
    static const char *const messages[][2] = {
        {"{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": [{}]}", "messages"},
        {"{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"a\"}}]}",
         "messages"},
        {"{\"role\": \"user\", \"content\": \"a\", \"tool_call_id\": \"x\"}", "tool_call_id"},
        {"{\"role\": \"tool\"}", "messages"},
    };
    for (size_t i = 0; i < COUNT(messages); i++) {
        answer a = chat(messages[i][0], "");
        if (a.status != 400 || strcmp(answer_text(&a, "error.param"), messages[i][1]) != 0)
            fail_msg("%s: %s", messages[i][0], a.text);
        answer_free(&a);
    }
}

static void ends_well(void **state) { assert_int_equal(server_stop(&it), 0); }

/* A template that knows no calls. */
static void templates_without_calls_refuse(void **state)
{
    char        word[160];
    const char *tiny = server_model("dra-ema-tiny");
    snprintf(word, sizeof word, "tiny=%s", tiny);
    it = server_start((const char *const[]){"--model", word, "--port", "0", NULL});
    assert_true(it.port > 0);
    answer a = chat(USER, "");
    assert_int_equal(a.status, 400);
    assert_string_equal(answer_text(&a, "error.param"), "tools");
    answer_free(&a);
    a = client_ask(it.port, "POST", "/v1/chat/completions",
                   "{\"messages\": [{\"role\": \"tool\", \"content\": \"7\"}]}");
    assert_int_equal(a.status, 400);
    assert_string_equal(answer_text(&a, "error.param"), "messages");
    answer_free(&a);
    assert_int_equal(server_stop(&it), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_are_learned),
        cmocka_unit_test(answers_follow_the_grammar_and_are_read),
        cmocka_unit_test(cut_answers_are_read),
        cmocka_unit_test_setup(tools_are_called, start),
        cmocka_unit_test(streams_call_tools),
        cmocka_unit_test(answers_without_calls),
        cmocka_unit_test(wrong_tools_are_refused),
        cmocka_unit_test(ends_well),
        cmocka_unit_test(templates_without_calls_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
