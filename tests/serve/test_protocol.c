/* The server's protocol over sockets, with an engine whose answers are known: the letters of the
 * prompt, see fake_engine.c. */
#include "started.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- routes ---------------------------------------------------------------------------------- */

static void tells_about_itself(void **state)
{
    answer a = get("/health");
    assert_int_equal(a.status, 200);
    assert_string_equal(answer_text(&a, "status"), "ok");
    assert_non_null(strstr(a.text, "Content-Security-Policy: default-src 'none'"));
    answer_free(&a);
    a = get("/v1/models");
    assert_string_equal(answer_text(&a, "data.0.id"), "tiny");
    assert_string_equal(answer_text(&a, "data.0.object"), "model");
    answer_free(&a);
    a = get("/v1/models/tiny");
    assert_true(answer_number(&a, "dra_facts.parameters") > 0);
    answer_free(&a);
    a = get("/v1/models/none");
    assert_int_equal(a.status, 404);
    assert_string_equal(answer_text(&a, "error.code"), "model_not_found");
    answer_free(&a);
}

static void serves_the_page(void **state)
{
    static const char *const pages[][2] = {
        {"/", "<!DOCTYPE html>"}, {"/page.css", ":root"}, {"/page.js", "use strict"}};
    for (size_t i = 0; i < COUNT(pages); i++) {
        answer a = get(pages[i][0]);
        assert_int_equal(a.status, 200);
        assert_non_null(strstr(a.body, pages[i][1]));
        assert_null(strstr(a.body, "http://") && i == 0 ? a.body : NULL);
        answer_free(&a);
    }
}

/* Every option that is listed is taken as a field, in its range and no further. */
static void lists_sampler_options(void **state)
{
    answer  list = get("/sampler");
    size_t  i;
    json_t *o;
    assert_true(json_array_size(answer_at(&list, "data")) > 5);
    json_array_foreach(answer_at(&list, "data"), i, o)
    {
        const char  *name = json_string_value(json_object_get(o, "name"));
        const double usual = json_number_value(json_object_get(o, "usual"));
        const double most = json_number_value(json_object_get(o, "most"));
        char         body[200];
        for (int k = 0; k < 2; k++) {
            snprintf(body, sizeof body, "{\"prompt\": \"a\", \"max_tokens\": 1, \"%s\": %.17g}",
                     name, k ? most + 1 : usual);
            answer a = post("/v1/completions", body);
            if (a.status != (k ? 400 : 200)) fail_msg("%s: %s", body, a.text);
            if (k) assert_string_equal(answer_text(&a, "error.param"), name);
            answer_free(&a);
        }
    }
    answer_free(&list);
}

static void tokenizes(void **state)
{
    answer a = post("/tokenize", "{\"prompt\": \"h\\u00e9\", \"add_special_tokens\": false}");
    assert_int_equal(answer_number(&a, "count"), 3);
    assert_int_equal(answer_number(&a, "tokens.1"), 0xc3);
    answer_free(&a);
    a = post("/tokenize", "{\"content\": \"ab\"}");
    assert_int_equal(answer_number(&a, "tokens.0"), 'a');
    answer_free(&a);
    a = post("/detokenize", "{\"tokens\": [104, 195, 169]}");
    assert_string_equal(answer_text(&a, "prompt"), "h\xc3\xa9");
    assert_string_equal(answer_text(&a, "content"), "h\xc3\xa9");
    answer_free(&a);
    a = post("/detokenize", "{\"tokens\": [300]}");
    assert_int_equal(a.status, 400);
    answer_free(&a);
    a = get("/tokenizer_info");
    assert_true(strlen(answer_text(&a, "chat_template")) > 0);
    assert_non_null(answer_at(&a, "eos_token"));
    assert_non_null(answer_at(&a, "bos_token"));
    assert_non_null(answer_at(&a, "pad_token"));
    answer_free(&a);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void completes(void **state)
{
    answer a = post("/v1/completions", "{\"prompt\": \"abc\", \"max_tokens\": 5}");
    assert_int_equal(a.status, 200);
    assert_string_equal(answer_text(&a, "object"), "text_completion");
    assert_string_equal(answer_text(&a, "choices.0.text"), "abcab");
    assert_string_equal(answer_text(&a, "choices.0.finish_reason"), "length");
    assert_int_equal(answer_number(&a, "usage.prompt_tokens"), 3);
    assert_int_equal(answer_number(&a, "usage.completion_tokens"), 5);
    assert_int_equal(answer_number(&a, "usage.total_tokens"), 8);
    assert_int_equal(answer_number(&a, "usage.prompt_tokens_details.cached_tokens"), 0);
    answer_free(&a);
    a = post("/v1/completions",
             "{\"prompt\": [[97], [98, 99]], \"n\": 2, \"max_tokens\": 2, \"model\": \"tiny\"}");
    assert_string_equal(answer_text(&a, "choices.1.text"), "aa");
    assert_string_equal(answer_text(&a, "choices.3.text"), "bc");
    assert_int_equal(answer_number(&a, "choices.3.index"), 3);
    assert_int_equal(answer_number(&a, "usage.prompt_tokens"), 3); /* not once for each choice */
    answer_free(&a);
}

/* What evaluation harnesses read: lists as long as prompt and answer, the first without a value,
 * and maps with the very number of the token. */
static void tells_logprobs_with_echo(void **state)
{
    answer a = post("/v1/completions", "{\"prompt\": [[97, 98, 99]], \"max_tokens\": 1, "
                                       "\"logprobs\": 1, \"echo\": true, \"temperature\": 0, "
                                       "\"seed\": 1234}");
    assert_string_equal(answer_text(&a, "choices.0.text"), "abca");
    assert_int_equal(json_array_size(answer_at(&a, "choices.0.logprobs.tokens")), 4);
    assert_int_equal(json_array_size(answer_at(&a, "choices.0.logprobs.token_logprobs")), 4);
    assert_true(json_is_null(answer_at(&a, "choices.0.logprobs.token_logprobs.0")));
    assert_true(json_is_null(answer_at(&a, "choices.0.logprobs.top_logprobs.0")));
    assert_true(answer_number(&a, "choices.0.logprobs.token_logprobs.1") == -0.25);
    assert_true(answer_number(&a, "choices.0.logprobs.top_logprobs.1.b") == -0.25);
    assert_int_equal(answer_number(&a, "choices.0.logprobs.text_offset.3"), 3);
    answer_free(&a);
    a = post("/v1/completions", "{\"prompt\": \"ab\", \"max_tokens\": 0, \"echo\": true}");
    assert_string_equal(answer_text(&a, "choices.0.text"), "ab");
    answer_free(&a);
    a = post("/v1/completions", "{\"prompt\": \"ab\", \"max_tokens\": 0}");
    assert_int_equal(a.status, 400);
    answer_free(&a);
}

static void chats(void **state)
{
    answer a = post("/v1/chat/completions",
                    "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
                    "\"text\": \"hi\"}]}], \"max_completion_tokens\": 4, \"logprobs\": true, "
                    "\"top_logprobs\": 2, \"response_format\": {\"type\": \"text\"}}");
    assert_int_equal(a.status, 200);
    assert_string_equal(answer_text(&a, "object"), "chat.completion");
    assert_string_equal(answer_text(&a, "choices.0.message.role"), "assistant");
    assert_string_equal(answer_text(&a, "choices.0.message.content"), "User"); /* the template's */
    assert_string_equal(answer_text(&a, "choices.0.logprobs.content.1.token"), "s");
    assert_int_equal(answer_number(&a, "choices.0.logprobs.content.1.bytes.0"), 's');
    assert_int_equal(json_array_size(answer_at(&a, "choices.0.logprobs.content.1.top_logprobs")),
                     2);
    answer_free(&a);
}

static void streams(void **state)
{
    answer a = post(
        "/v1/chat/completions",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"max_tokens\": 6, "
        "\"stream\": true, \"stream_options\": {\"include_usage\": true}, "
        "\"dra_look\": true}");
    char *text = answer_stream(&a, true);
    assert_int_equal(a.status, 200);
    assert_string_equal(text, "User: ");
    assert_non_null(strstr(a.text, "Content-Type: text/event-stream"));
    assert_non_null(strstr(a.text, "\"role\": \"assistant\""));
    assert_non_null(strstr(a.text, "\"prompt_tokens_details\""));
    assert_non_null(strstr(a.text, "\"dra_look\": [{\"name\": \"layers.0.memory\""));
    assert_non_null(strstr(a.text, "data: [DONE]\n\n"));
    free(text);
    answer_free(&a);
    a = post("/v1/completions", "{\"prompt\": \"xyz\", \"max_tokens\": 6, \"stream\": true}");
    text = answer_stream(&a, false);
    assert_string_equal(text, "xyzxyz");
    free(text);
    answer_free(&a);
}

static void embeds(void **state)
{
    answer a = post("/v1/embeddings", "{\"input\": [\"abc\", \"d\"]}");
    assert_true(answer_number(&a, "data.0.embedding.0") == 3);
    assert_true(answer_number(&a, "data.1.embedding.1") == 0.5);
    assert_int_equal(answer_number(&a, "usage.prompt_tokens"), 4);
    answer_free(&a);
    a = post("/v1/embeddings", "{\"input\": \"abc\", \"encoding_format\": \"base64\"}");
    assert_string_equal(answer_text(&a, "data.0.embedding"), "AABAQAAAAD8=");
    answer_free(&a);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuses_fields(void **state)
{
    static const struct {
        const char *path, *body, *param;
    } all[] = {
        {"/v1/completions", "{\"prompt\": \"a\", \"wrong\": 1}", "wrong"},
        {"/v1/completions", "{\"prompt\": \"a\", \"user\": 1}", "user"},
        {"/v1/completions", "{\"prompt\": \"a\", \"store\": true}", "store"},
        {"/v1/completions", "{\"prompt\": \"a\", \"service_tier\": \"flex\"}", "service_tier"},
        {"/v1/completions", "{\"prompt\": \"a\", \"skip_special_tokens\": false}",
         "skip_special_tokens"},
        {"/v1/completions", "{\"prompt\": \"a\", \"grammar\": \"root ::= x\"}", "grammar"},
        {"/v1/completions", "{\"prompt\": \"a\", \"grammar\": 1}", "grammar"},
        {"/v1/completions",
         "{\"prompt\": \"a\", \"grammar\": \"root ::= \\\"a\\\"\", "
         "\"response_format\": {\"type\": \"json_object\"}}",
         "grammar"},
        {"/v1/completions", "{\"prompt\": \"a\", \"response_format\": {\"type\": \"xml\"}}",
         "response_format"},
        {"/v1/completions", "{\"prompt\": \"a\", \"response_format\": \"json_object\"}",
         "response_format"},
        {"/v1/completions", "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_schema\"}}",
         "response_format"},
        {"/v1/completions",
         "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_schema\", "
         "\"json_schema\": {\"schema\": {\"minimum\": 1}}}}",
         "response_format"},
        {"/v1/completions", "{\"prompt\": \"a\", \"suffix\": \"b\"}", "suffix"},
        {"/v1/completions", "{\"prompt\": \"a\", \"best_of\": 2}", "best_of"},
        {"/v1/completions", "{\"prompt\": \"a\", \"n\": 0}", "n"},
        {"/v1/completions", "{\"prompt\": \"a\", \"n\": 1.5}", "n"},
        {"/v1/completions", "{\"prompt\": \"a\", \"n\": \"1\"}", "n"},
        {"/v1/completions", "{\"prompt\": \"a\", \"temperature\": -1}", "temperature"},
        {"/v1/completions", "{\"prompt\": \"a\", \"top_p\": 1.1}", "top_p"},
        {"/v1/completions", "{\"prompt\": \"a\", \"logprobs\": 21}", "logprobs"},
        {"/v1/completions", "{\"prompt\": \"a\", \"logprobs\": true}", "logprobs"},
        {"/v1/completions", "{\"prompt\": \"a\", \"stop\": \"\"}", "stop"},
        {"/v1/completions", "{\"prompt\": \"a\", \"stop\": [1]}", "stop"},
        {"/v1/completions", "{\"prompt\": \"a\", \"stop_token_ids\": 1}", "stop_token_ids"},
        {"/v1/completions", "{\"prompt\": \"a\", \"stop_token_ids\": [\"a\"]}", "stop_token_ids"},
        {"/v1/completions", "{\"prompt\": \"a\", \"stop_token_ids\": [[]]}", "stop_token_ids"},
        {"/v1/completions", "{\"prompt\": \"a\", \"stop_token_ids\": [[1, -1]]}", "stop_token_ids"},
        {"/v1/completions", "{\"prompt\": \"a\", \"logit_bias\": {\"x\": 1}}", "logit_bias"},
        {"/v1/completions", "{\"prompt\": \"a\", \"logit_bias\": {\"1\": 101}}", "logit_bias"},
        {"/v1/completions", "{\"prompt\": \"a\", \"logit_bias\": {\"99999\": 1}}", "logit_bias"},
        {"/v1/completions", "{\"prompt\": \"a\", \"stop_token_ids\": [1, [99999]]}",
         "stop_token_ids"},
        {"/v1/completions", "{\"prompt\": \"a\", \"prompt_logprobs\": 21}", "prompt_logprobs"},
        {"/v1/completions", "{\"prompt\": \"a\", \"prompt_logprobs\": 1, \"stream\": true}",
         "prompt_logprobs"},
        {"/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 1000000}", "max_tokens"},
        {"/v1/completions", "{\"prompt\": \"a\", \"stream_options\": {}}", "stream_options"},
        {"/v1/completions", "{\"prompt\": \"a\", \"seed\": 0.5}", "seed"},
        {"/v1/completions", "{\"prompt\": \"a\", \"dra_look\": true}", "dra_look"},
        {"/v1/completions", "{\"prompt\": \"a\", \"dra_state\": \"../x\"}", "dra_state"},
        {"/v1/completions", "{\"prompt\": \"a\", \"dra_save_state\": \"..temp.1\"}",
         "dra_save_state"},
        {"/v1/completions", "{\"prompt\": \"a\", \"dra_state_data\": \"?\"}", "dra_state_data"},
        {"/v1/completions", "{\"prompt\": 7}", "prompt"},
        {"/v1/completions", "{\"prompt\": []}", "prompt"},
        {"/v1/completions", "{\"prompt\": [1, 999]}", "prompt"},
        {"/v1/completions", "{\"prompt\": [1, \"a\"]}", "prompt"},
        {"/v1/completions", "{}", "prompt"},
        {"/v1/chat/completions", "{}", "messages"},
        {"/v1/chat/completions", "{\"messages\": []}", "messages"},
        {"/v1/chat/completions", "{\"messages\": [{\"role\": \"x\", \"content\": \"\"}]}",
         "messages"},
        {"/v1/chat/completions",
         "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{}]}", "tools"},
        {"/v1/chat/completions",
         "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
         "\"tool_choice\": \"required\"}",
         "tool_choice"},
        {"/v1/chat/completions",
         "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"name\": \"b\"}]}", "name"},
        {"/v1/chat/completions",
         "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"top_logprobs\": 2}",
         "top_logprobs"},
        {"/v1/embeddings", "{\"input\": \"a\", \"dimensions\": 2}", "dimensions"},
        {"/v1/embeddings", "{\"input\": \"a\", \"dra_pool\": \"max\"}", "dra_pool"},
        {"/tokenize", "{\"prompt\": \"a\", \"content\": \"a\"}", "prompt"},
        {"/states/a", "{\"text\": \"a\"}", "text"},
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        answer a = post(all[i].path, all[i].body);
        if (a.status != 400 || strcmp(answer_text(&a, "error.param"), all[i].param) != 0 ||
            strcmp(answer_text(&a, "error.type"), "invalid_request_error") != 0)
            fail_msg("%s %s: %s", all[i].path, all[i].body, a.text);
        answer_free(&a);
    }
}

/* A field that is not there, and the one that was meant. */
static void suggests_fields(void **state)
{
    static const char *const all[][2] = {
        {"{\"promt\": \"a\"}", "promt: this server has no such field; did you mean prompt?"},
        {"{\"prompt\": \"a\", \"max_new_tokens\": 3}",
         "max_new_tokens: this server has no such field; did you mean max_tokens?"},
        {"{\"prompt\": \"a\", \"greedy\": true}",
         "greedy: this server has no such field; did you mean temperature?"},
        {"{\"prompt\": \"a\", \"elephant\": 3}", "elephant: this server has no such field"},
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        answer a = post("/v1/completions", all[i][0]);
        assert_int_equal(a.status, 400);
        assert_string_equal(answer_text(&a, "error.message"), all[i][1]);
        answer_free(&a);
    }
}

/* Defaults that clients send along, and words about the request. */
static void takes_what_asks_for_nothing(void **state)
{
    static const char *const both =
        "\"max_tokens\": 2, \"n\": 1, \"logit_bias\": {}, \"user\": \"me\", \"store\": false, "
        "\"metadata\": {\"a\": \"b\"}, \"service_tier\": \"auto\", \"safety_identifier\": \"x\", "
        "\"prompt_cache_key\": \"y\", \"skip_special_tokens\": true, \"reasoning_effort\": null, "
        "\"ignore_eos\": false, \"stop_token_ids\": [], \"stop\": [], \"min_tokens\": 0, "
        "\"logprobs\": false, \"response_format\": {\"type\": \"text\"}, \"grammar\": null}";
    static const char *const begins[][2] = {
        {"/v1/completions", "{\"prompt\": \"a\", \"best_of\": 1, \"suffix\": \"\", "},
        {"/v1/chat/completions",
         "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": []}], "
         "\"tools\": [], \"tool_choice\": \"none\", \"parallel_tool_calls\": true, "
         "\"top_logprobs\": 0, \"modalities\": [\"text\"], "}};
    for (size_t i = 0; i < COUNT(begins); i++) {
        char body[1500];
        snprintf(body, sizeof body, "%s%s", begins[i][1], both);
        answer a = post(begins[i][0], body);
        if (a.status != 200) fail_msg("%s: %s", body, a.text);
        answer_free(&a);
    }
}

static void bounds_grammars(void **state)
{
    enum { LETTERS = 70000 };
    static char body[LETTERS + 100];
    const int   n = snprintf(body, sizeof body, "{\"prompt\": \"a\", \"grammar\": \"");
    memset(body + n, '#', LETTERS);
    memcpy(body + n + LETTERS, "\"}", 3);
    answer a = post("/v1/completions", body);
    assert_int_equal(a.status, 400);
    assert_string_equal(answer_text(&a, "error.message"),
                        "grammar: expected at most 65536 bytes, found 70000");
    answer_free(&a);
}

/* Clients append the message of an answer to the conversation, with all that stands in it. */
static void takes_its_own_message_back(void **state)
{
    answer      a = post("/v1/chat/completions",
                         "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
                              "\"max_tokens\": 2}");
    char        body[1024];
    const char *from = strstr(a.text, "\"message\": {"), *to = from ? strchr(from, '}') : NULL;
    assert_non_null(to);
    assert_non_null(strstr(from, "\"refusal\": null"));
    snprintf(body, sizeof body,
             "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, %.*s, "
             "{\"role\": \"user\", \"content\": \"b\", \"tool_calls\": null}], "
             "\"prediction\": null}",
             (int)(to + 1 - from - 11), from + 11);
    answer_free(&a);
    a = post("/v1/chat/completions", body);
    if (a.status != 200) fail_msg("%s: %s", body, a.text);
    answer_free(&a);
}

static void refuses_bodies(void **state)
{
    static const char *const bodies[] = {"",
                                         "{",
                                         "[]",
                                         "{\"a\":}",
                                         "{\"prompt\": \"a\"} x",
                                         "{\"prompt\": \"a\", \"prompt\": \"b\"}",
                                         "{\"prompt\": \"\\ud800\"}",
                                         "{\"prompt\": \"\xff\"}",
                                         "{\"prompt\": 1e999}",
                                         "{\"prompt\": 01}",
                                         "{\"prompt\": \"a\n\"}",
                                         "nul"};
    for (size_t i = 0; i < COUNT(bodies); i++) {
        answer a = post("/v1/completions", bodies[i]);
        if (a.status != 400) fail_msg("%s: %s", bodies[i], a.text);
        answer_free(&a);
    }
    char deep[4096];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    answer a = post("/v1/completions", deep);
    assert_int_equal(a.status, 400);
    assert_non_null(strstr(answer_text(&a, "error.message"), "nested too deep"));
    answer_free(&a);
}

static void refuses_malformed_http(void **state)
{
    static const struct {
        const char *text;
        int         status;
    } all[] = {
        {"GET\r\n\r\n", 400},
        {"GET / HTTP/2.0\r\n\r\n", 505},
        {"GET /health HTTP/1.1\r\n\r\n", 400}, /* no host */
        {"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n", 400},
        {"GET health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
        {"GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
        {"GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\nHost: localhost\n\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n", 400},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
         "Content-Length: 2\r\n\r\n",
         400},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
         "Content-Length: 1\r\n\r\n",
         400},
        {"POST /tokenize HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n"
         "Content-Length: 1\r\n\r\nx",
         415},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", 413},
        {"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404},
        {"POST /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405},
        {"GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 403},
        {"GET /health HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n"
         "Connection: close\r\n\r\n",
         403},
        {"GET /health HTTP/1.0\r\n\r\n", 200},
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        const int fd = client_open(it.port);
        client_send(fd, all[i].text, strlen(all[i].text));
        answer a = client_read(fd);
        if (a.status != all[i].status) fail_msg("%s: %s", all[i].text, a.text);
        if (a.status >= 400 && !answer_text(&a, "error.message")[0]) fail_msg("%s", a.text);
        answer_free(&a);
    }
}

static void bounds_headers(void **state)
{
    char *long_one = malloc(64 << 10);
    memset(long_one, 'a', 64 << 10);
    memcpy(long_one, "GET / HTTP/1.1\r\nx: ", 19);
    const int fd = client_open(it.port);
    client_send(fd, long_one, 64 << 10);
    answer a = client_read(fd);
    assert_int_equal(a.status, 431);
    answer_free(&a);
    free(long_one);
}

/* A body that stops half way: the client is told when its time is over, or is just let go. */
static void gives_up_on_half_bodies(void **state)
{
    static const char half[] = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Length: 100\r\n\r\n{\"prompt";
    int               fd = client_open(it.port);
    client_send(fd, half, sizeof half - 1);
    close(fd);
    fd = client_open(it.port);
    client_send(fd, half, sizeof half - 1);
    answer a = client_read(fd);
    assert_int_equal(a.status, 408);
    answer_free(&a);
}

/* Requests one after another on a connection, also sent before the answers are read. */
#define CHUNKED(body)                                                                              \
    "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"                 \
    "Connection: close\r\n\r\n" body

static void refuses_broken_chunks(void **state)
{
    static const struct {
        const char *text;
        int         status;
    } all[] = {{CHUNKED("x\r\n"), 400},
               {CHUNKED("\r\n"), 400},
               {CHUNKED("-1\r\n"), 400},
               {CHUNKED("0x2\r\n{}"), 400},
               {CHUNKED("1 \r\n"), 400},
               {CHUNKED("2\r\n{}x\r\n0\r\n\r\n"), 400},
               {CHUNKED("ffffffffffffffff\r\n"), 400},
               {CHUNKED("7fffffffffffff\r\n"), 413},
               {CHUNKED("800001\r\n"), 413},
               {CHUNKED("2\r\n{}\r\n800000\r\n"), 413},
               {CHUNKED("2\r\n{}"), 408},
               {CHUNKED("0\r\n\r\n"), 400}}; /* whole, and no JSON */
    for (size_t i = 0; i < COUNT(all); i++) {
        const int fd = client_open(it.port);
        client_send(fd, all[i].text, strlen(all[i].text));
        answer a = client_read(fd);
        if (a.status != all[i].status) fail_msg("%s: %s", all[i].text, a.text);
        answer_free(&a);
    }
}

/* However the chunks are cut and arrive; what follows is the next request. */
static void reads_chunks(void **state)
{
    static const char request[] = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
                                  "Transfer-Encoding: Chunked\r\n\r\n"
                                  "4\r\n{\"pr\r\n00b;a=b\r\nompt\": \"abc\r\nA\r\nde\"       \r\n"
                                  "1\r\n}\r\n0\r\nTrailer: x\r\n\r\n"
                                  "GET /health HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\n\r\n";
    for (size_t step = 1; step < sizeof request; step = step < 8 ? step + 6 : sizeof request) {
        const int fd = client_open(it.port);
        for (size_t i = 0; i < sizeof request - 1; i += step) {
            const size_t left = sizeof request - 1 - i;
            client_send(fd, request + i, left < step ? left : step);
        }
        answer a = client_read(fd);
        if (!strstr(a.text, "\"count\": 5") || !strstr(a.text, "\"ok\"")) fail_msg("%s", a.text);
        answer_free(&a);
    }
}

static void answers_head(void **state)
{
    static const char *const paths[] = {"/", "/health", "/v1/models", "/metrics"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        answer a = client_ask(it.port, "HEAD", paths[i], NULL);
        if (a.status != 200 || a.body[0] || !strstr(a.text, "\r\nDate: ") ||
            strstr(a.text, "Content-Length: 0\r"))
            fail_msg("%s: %s", paths[i], a.text);
        answer_free(&a);
    }
    answer a = client_ask(it.port, "PUT", "/health", "");
    assert_int_equal(a.status, 405);
    assert_non_null(strstr(a.text, "\r\nAllow: GET, HEAD\r\n"));
    answer_free(&a);
    a = client_ask(it.port, "PATCH", "/states/a", "");
    assert_non_null(strstr(a.text, "\r\nAllow: GET, HEAD, POST, PUT, DELETE\r\n"));
    answer_free(&a);
    a = client_ask(it.port, "GET", "/v1/completions", NULL);
    assert_int_equal(a.status, 405);
    assert_non_null(strstr(a.text, "\r\nAllow: POST\r\n"));
    assert_string_equal(answer_text(&a, "error.message"), "GET: /v1/completions takes POST");
    answer_free(&a);
}

static void keeps_connections(void **state)
{
    static const char two[] =
        "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Length: 34\r\n\r\n{\"prompt\": \"abc\", \"max_tokens\": 3}"
        "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const int fd = client_open(it.port);
    client_send(fd, two, sizeof two - 1);
    answer      a = client_read(fd);
    const char *second = strstr(a.text + 1, "HTTP/1.1 200"), *third = NULL;
    if (second) third = strstr(second + 1, "HTTP/1.1 200");
    if (!third || !strstr(second, "\"text\": \"abc\"")) fail_msg("%s", a.text);
    answer_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(tells_about_itself, start),
        cmocka_unit_test(serves_the_page),
        cmocka_unit_test(lists_sampler_options),
        cmocka_unit_test(tokenizes),
        cmocka_unit_test(completes),
        cmocka_unit_test(tells_logprobs_with_echo),
        cmocka_unit_test(chats),
        cmocka_unit_test(streams),
        cmocka_unit_test(embeds),
        cmocka_unit_test(refuses_fields),
        cmocka_unit_test(suggests_fields),
        cmocka_unit_test(takes_what_asks_for_nothing),
        cmocka_unit_test(bounds_grammars),
        cmocka_unit_test(takes_its_own_message_back),
        cmocka_unit_test(refuses_bodies),
        cmocka_unit_test(refuses_malformed_http),
        cmocka_unit_test(bounds_headers),
        cmocka_unit_test(gives_up_on_half_bodies),
        cmocka_unit_test(reads_chunks),
        cmocka_unit_test(refuses_broken_chunks),
        cmocka_unit_test(answers_head),
        cmocka_unit_test(keeps_connections),
        cmocka_unit_test(ends_well),
    };
    return check_main("protocol", NULL, 0, tests, COUNT(tests));
}
