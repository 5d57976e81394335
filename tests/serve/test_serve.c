/* The server with the library's engine: answers in company are those of lonely runs, states carry
 * conversations exactly, prompts that begin alike are read once. */
#include "mixed.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static server      it;
static const char *tiny;

static answer post(const char *path, const char *body)
{
    return client_ask(it.port, "POST", path, body);
}

static int start(void **state)
{
    static char word[160], folder[160];
    tiny = server_model("dra-delta-tiny");
    snprintf(word, sizeof word, "tiny=%s", tiny);
    snprintf(folder, sizeof folder, "%s/states", tiny);
    it = server_start((const char *const[]){"--model", word, "--port", "0", "--slots", "4",
                                            "--state-dir", folder, NULL});
    return it.port ? 0 : -1;
}

/* A text of this many letters between quotes. */
static char *long_text(size_t letters)
{
    char *t = calloc(1, letters + 1);
    for (size_t i = 0; i < letters; i++) t[i] = (char)('a' + (i * i + i / 7) % 26);
    return t;
}

static char *body_of(const char *format, const char *text)
{
    const size_t n = strlen(format) + strlen(text) + 1;
    char        *body = malloc(n);
    snprintf(body, n, format, text);
    return body;
}

static double first_number(json_t *object)
{
    return json_number_value(json_object_iter_value(json_object_iter(object)));
}

/* ---- the same as alone ----------------------------------------------------------------------- */

static void answers_in_company_are_the_same(void **state)
{
    mixed             *m = mixed_open(it.port, NULL);
    const mixed_report r = mixed_run(m, 400, 8, 5);
    mixed_close(m);
    if (r.wrong) fail_msg("%ld answers differ; %s", r.wrong, r.first);
    assert_true(r.good > 100 && r.cancelled > 20 && r.bad > 20 && r.states > 10);
}

static void streams_what_it_answers(void **state)
{
    static const char body[] = "{\"prompt\": \"once upon\", \"max_tokens\": 40, \"seed\": 3%s}";
    char              whole[160], part[160];
    snprintf(whole, sizeof whole, body, "");
    snprintf(part, sizeof part, body, ", \"stream\": true");
    answer a = post("/v1/completions", whole), b = post("/v1/completions", part);
    char  *text = answer_stream(&b, false);
    assert_string_equal(answer_text(&a, "choices.0.text"), text);
    free(text);
    answer_free(&a);
    answer_free(&b);
}

/* The same text from the cache, and fewer tokens computed. */
static void reads_beginnings_once(void **state)
{
    char  *text = long_text(1500);
    char  *body = body_of("{\"prompt\": \"%s\", \"max_tokens\": 8, \"temperature\": 0}", text);
    answer a = post("/v1/completions", body), b = post("/v1/completions", body);
    assert_string_equal(answer_text(&a, "choices.0.text"), answer_text(&b, "choices.0.text"));
    assert_int_equal(answer_number(&a, "usage.prompt_tokens_details.cached_tokens"), 0);
    assert_true(answer_number(&b, "usage.prompt_tokens_details.cached_tokens") >= 1024);
    answer_free(&a);
    answer_free(&b);
    free(body);
    free(text);
}

/* ---- probabilities --------------------------------------------------------------------------- */

/* Of a prompt with echo: those of the tokens one after another, each with its own map; the greedy
 * token has the number of the map's maximum. */
static void echoes_probabilities(void **state)
{
    answer a = post("/v1/completions",
                    "{\"prompt\": [[104, 101, 108, 108, 111]], \"max_tokens\": 1,"
                    " \"logprobs\": 1, \"echo\": true, \"temperature\": 0}");
    answer b = post("/v1/completions", "{\"prompt\": [104, 101, 108, 108], \"max_tokens\": 1, "
                                       "\"logprobs\": 1, \"temperature\": 0}");
    assert_int_equal(json_array_size(answer_at(&a, "choices.0.logprobs.token_logprobs")), 6);
    json_t     *map = answer_at(&a, "choices.0.logprobs.top_logprobs.4");
    json_t     *own = answer_at(&b, "choices.0.logprobs.top_logprobs.0"), *x;
    double      most = -INFINITY;
    const char *key;
    json_object_foreach(map, key, x) most = fmax(most, json_number_value(x));
    assert_true(fabs(most - first_number(own)) < 1e-6);
    const double picked = answer_number(&a, "choices.0.logprobs.token_logprobs.5");
    map = answer_at(&a, "choices.0.logprobs.top_logprobs.5");
    assert_true(first_number(map) == picked); /* greedy: exactly */
    answer_free(&a);
    answer_free(&b);
}

/* Log-probabilities of a prompt are those that an echo has, of a chat's, too. */
static void tells_probabilities_of_prompts(void **state)
{
    answer a = post("/v1/completions", "{\"prompt\": \"hello\", \"max_tokens\": 1, \"seed\": 1, "
                                       "\"logprobs\": 3, \"echo\": true}");
    answer b = post("/v1/completions", "{\"prompt\": \"hello\", \"max_tokens\": 1, \"seed\": 1, "
                                       "\"prompt_logprobs\": 2}");
    answer c = post("/v1/chat/completions",
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], "
                    "\"max_tokens\": 2, \"prompt_logprobs\": 0, \"logprobs\": true, "
                    "\"top_logprobs\": 1}");
    const json_t *of = answer_at(&b, "choices.0.prompt_logprobs");
    const json_t *lists = answer_at(&a, "choices.0.logprobs.token_logprobs");
    assert_int_equal(json_array_size(of), 5);
    assert_true(json_is_null(json_array_get(of, 0)));
    assert_true(json_is_null(answer_at(&b, "choices.0.logprobs")));
    assert_string_equal(answer_text(&a, "choices.0.text") + 5, answer_text(&b, "choices.0.text"));
    for (size_t i = 1; i < 5; i++) {
        char          id[8];
        const json_t *x = json_array_get(of, i), *y;
        snprintf(id, sizeof id, "%d", "hello"[i]);
        y = json_object_get(x, id);
        assert_true(json_object_size(x) == 2 || json_object_size(x) == 3);
        assert_true(fabs(json_number_value(json_object_get(y, "logprob")) -
                         json_number_value(json_array_get(lists, i))) < 1e-6);
        assert_int_equal(json_string_length(json_object_get(y, "decoded_token")), 1);
    }
    assert_int_equal(json_array_size(answer_at(&c, "choices.0.prompt_logprobs")),
                     (size_t)answer_number(&c, "usage.prompt_tokens"));
    assert_int_equal(json_object_size(answer_at(&c, "choices.0.prompt_logprobs.3")), 1);
    assert_int_equal(json_array_size(answer_at(&c, "choices.0.logprobs.content.0.top_logprobs")),
                     1);
    answer_free(&a);
    answer_free(&b);
    answer_free(&c);
}

/* A model that would write a, then b, then c for ever. */
static void samplers_act(void **state)
{
    static const struct {
        const char *fields, *text, *finish;
    } all[] = {
        {"\"max_tokens\": 4", "aaaa", "length"},
        {"\"max_tokens\": 4, \"presence_penalty\": 15", "abaa", "length"},
        {"\"max_tokens\": 4, \"frequency_penalty\": 15", "abac", "length"},
        {"\"max_tokens\": 4, \"no_repeat_ngram_size\": 2", "aaba", "length"},
        {"\"max_tokens\": 4, \"dry_multiplier\": 15, \"dry_allowed_length\": 1", "aaba", "length"},
        {"\"max_tokens\": 4, \"stop_token_ids\": [97]", "", "stop"},
        {"\"max_tokens\": 4, \"stop_token_ids\": [98, [97, 97, 97]]", "aa", "stop"},
        {"\"max_tokens\": 4, \"stop_token_ids\": [97], \"min_tokens\": 2", "bb", "stop"},
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        char body[300];
        snprintf(
            body, sizeof body,
            "{\"prompt\": \"x\", \"temperature\": 0, \"logit_bias\": {\"97\": 100, \"98\": 90, "
            "\"99\": 80}, %s}",
            all[i].fields);
        answer a = post("/v1/completions", body);
        if (a.status != 200 || strcmp(answer_text(&a, "choices.0.text"), all[i].text) != 0 ||
            strcmp(answer_text(&a, "choices.0.finish_reason"), all[i].finish) != 0)
            fail_msg("%s: expected \"%s\", found %s", all[i].fields, all[i].text, a.text);
        answer_free(&a);
    }
}

/* Random weights write only what a grammar or a schema allows, also where the call ends first. */
static void writes_what_fits(void **state)
{
    answer a = post("/v1/completions",
                    "{\"prompt\": \"1 = \", \"max_tokens\": 20, \"seed\": 1, \"n\": 3, "
                    "\"grammar\": \"root ::= (\\\"a\\\" | \\\"b\\\"){4}\"}");
    for (int i = 0; i < 3; i++) {
        char path[40];
        snprintf(path, sizeof path, "choices.%d.text", i);
        assert_int_equal(strspn(answer_text(&a, path), "ab"), 4);
        assert_int_equal(strlen(answer_text(&a, path)), 4);
        snprintf(path, sizeof path, "choices.%d.finish_reason", i);
        assert_string_equal(answer_text(&a, path), "stop");
    }
    answer_free(&a);
    a = post("/v1/chat/completions",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Who?\"}], \"seed\": 1, "
             "\"max_tokens\": 200, \"response_format\": {\"type\": \"json_schema\", "
             "\"json_schema\": {\"name\": \"person\", \"strict\": true, \"schema\": "
             "{\"type\": \"object\", \"required\": [\"mood\"], \"properties\": "
             "{\"mood\": {\"enum\": [\"good\", \"bad\"]}}}}}}");
    assert_int_equal(a.status, 200);
    const char *text = answer_text(&a, "choices.0.message.content");
    json_t     *x = json_loads(text, 0, NULL);
    const char *mood = json_string_value(json_object_get(x, "mood"));
    if (!mood || (strcmp(mood, "good") != 0 && strcmp(mood, "bad") != 0)) fail_msg("%s", text);
    json_decref(x);
    answer_free(&a);
    a = post("/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 9, \"seed\": 2, "
                                "\"response_format\": {\"type\": \"json_object\"}}");
    assert_int_equal(answer_text(&a, "choices.0.text")[0], '{');
    answer_free(&a);
}

static void counts_seeds_from_the_first_choice(void **state)
{
    answer a = post("/v1/completions", "{\"prompt\": \"abc\", \"n\": 3, \"seed\": 7}");
    answer b = post("/v1/completions", "{\"prompt\": \"abc\", \"seed\": 9}");
    assert_string_equal(answer_text(&a, "choices.2.text"), answer_text(&b, "choices.0.text"));
    answer_free(&a);
    answer_free(&b);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* A conversation cut at 64 tokens goes on with the bits of one that was not, through a name, a
 * fork, a file and a body. */
static void states_continue_exactly(void **state)
{
    static const char rest[] =
        "{\"prompt\": \" and then\", \"max_tokens\": 12, \"temperature\": 0, "
        "\"logprobs\": 2, %s}";
    char  *text = long_text(64), *body = body_of("{\"prompt\": \"%s\"}", text), again[1024];
    char  *all = body_of("{\"prompt\": \"%s and then\", \"max_tokens\": 12, \"temperature\": 0, "
                          "\"logprobs\": 2}",
                         text);
    answer whole = post("/v1/completions", all), a = post("/states/first", body);
    assert_int_equal(a.status, 201);
    answer_free(&a);
    a = post("/states/first/fork", "{\"to\": \"second\"}");
    assert_int_equal(a.status, 201);
    answer_free(&a);
    a = client_ask(it.port, "GET", "/states/second", NULL);
    const size_t bytes = a.bytes - (size_t)(a.body - a.text);
    answer       b = client_ask_with(it.port, "PUT", "/states/third", "", a.body, bytes);
    assert_int_equal(b.status, 201);
    answer_free(&a);
    answer_free(&b);
    static const char *const names[] = {"first", "second", "third"};
    for (size_t i = 0; i < COUNT(names); i++) {
        char from[64];
        snprintf(from, sizeof from, "\"dra_state\": \"%s\"", names[i]);
        snprintf(again, sizeof again, rest, from);
        a = post("/v1/completions", again);
        assert_string_equal(answer_text(&a, "choices.0.text"),
                            answer_text(&whole, "choices.0.text"));
        assert_true(json_equal(answer_at(&a, "choices.0.logprobs.token_logprobs"),
                               answer_at(&whole, "choices.0.logprobs.token_logprobs")));
        answer_free(&a);
    }
    answer_free(&whole);
    free(body);
    free(all);
    free(text);
}

static void states_travel_in_bodies(void **state)
{
    answer a = post("/v1/completions", "{\"prompt\": \"abc\", \"max_tokens\": 5, \"seed\": 1, "
                                       "\"dra_return_state\": true, \"dra_save_state\": \"here\"}");
    char  *body = body_of("{\"prompt\": \"d\", \"max_tokens\": 9, \"seed\": 2, "
                           "\"dra_state_data\": \"%s\"}",
                          answer_text(&a, "dra_state_data"));
    answer b = post("/v1/completions", body);
    answer c = post("/v1/completions", "{\"prompt\": \"d\", \"max_tokens\": 9, \"seed\": 2, "
                                       "\"dra_state\": \"here\"}");
    assert_int_equal(b.status, 200);
    assert_string_equal(answer_text(&b, "choices.0.text"), answer_text(&c, "choices.0.text"));
    free(body);
    answer_free(&a);
    answer_free(&b);
    answer_free(&c);
}

/* A chat by its states, of which each turn sends what is new, has the text of the whole one. */
static void chats_go_on_from_states(void **state)
{
    answer a = post(
        "/v1/chat/completions",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"abc\"}], "
        "\"max_tokens\": 6, \"temperature\": 0, \"grammar\": \"root ::= \\\" hhhhh\\\"\", "
        "\"dra_save_state\": \"chat\"}");
    const char *said = answer_text(&a, "choices.0.message.content");
    assert_string_equal(said, " hhhhh");
    answer            b = post("/v1/chat/completions",
                               "{\"messages\": [{\"role\": \"user\", \"content\": \"abc\"}, "
                                          "{\"role\": \"assistant\", \"content\": \" hhhhh\"}, "
                                          "{\"role\": \"user\", \"content\": \"xyz\"}], "
                                          "\"max_tokens\": 9, \"temperature\": 0}");
    static const char more[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"xyz\"}], "
                               "\"max_tokens\": 9, \"temperature\": 0, "
                               "\"dra_state\": \"chat\", \"dra_after_answer\": true}";
    answer            c = post("/v1/chat/completions", more);
    assert_int_equal(c.status, 200);
    assert_int_equal(answer_number(&a, "usage.total_tokens") +
                         answer_number(&c, "usage.prompt_tokens"),
                     answer_number(&b, "usage.prompt_tokens"));
    assert_string_equal(answer_text(&b, "choices.0.message.content"),
                        answer_text(&c, "choices.0.message.content"));
    answer_free(&a);
    answer_free(&b);
    answer_free(&c);
    a = post("/v1/chat/completions", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], "
                                     "\"dra_after_answer\": true}");
    assert_int_equal(a.status, 400);
    assert_string_equal(answer_text(&a, "error.param"), "dra_after_answer");
    answer_free(&a);
}

/* What another key has read before is read again: `cached_tokens` tells nothing about it. */
static void keys_share_no_prefixes(void **state)
{
    static const char        text[] = "one Ann\ntwo Bob\n";
    static const char *const keys[] = {"one", "two", "two", "one"};
    char                     word[160], path[160], headers[60], *say = long_text(600);
    snprintf(word, sizeof word, "tiny=%s", tiny);
    snprintf(path, sizeof path, "%s/keys", tiny);
    assert_int_equal(dra_file_write(path, text, sizeof text - 1, NULL), DRA_OK);
    server own = server_start(
        (const char *const[]){"--model", word, "--port", "0", "--api-key-file", path, NULL});
    char *body = body_of("{\"prompt\": \"%s\", \"max_tokens\": 1}", say);
    for (size_t i = 0; i < COUNT(keys); i++) {
        snprintf(headers, sizeof headers, "Authorization: Bearer %s\r\n", keys[i]);
        answer       a = client_ask_with(own.port, "POST", "/v1/completions", headers, body,
                                         strlen(body));
        const double cached = answer_number(&a, "usage.prompt_tokens_details.cached_tokens");
        if (a.status != 200 || (i < 2) != (cached == 0)) fail_msg("%zu: %s", i, a.text);
        answer_free(&a);
    }
    assert_int_equal(server_stop(&own), 0);
    free(body);
    free(say);
}

/* A file of another model, a damaged one: refused, and what had the name stays. */
static void refuses_other_files(void **state)
{
    answer a = client_ask(it.port, "GET", "/states/first", NULL);
    char  *file = malloc(a.bytes);
    size_t bytes = a.bytes - (size_t)(a.body - a.text);
    memcpy(file, a.body, bytes);
    answer_free(&a);
    file[bytes / 2] ^= 1;
    a = client_ask_with(it.port, "PUT", "/states/first", "", file, bytes);
    assert_int_equal(a.status, 400);
    answer_free(&a);
    a = client_ask_with(it.port, "PUT", "/states/first", "", file, bytes / 2);
    assert_int_equal(a.status, 400);
    answer_free(&a);
    free(file);
    a = client_ask(it.port, "GET", "/states/first/look", NULL);
    assert_int_equal(a.status, 200);
    answer_free(&a);
}

/* Guesses change no text; what they were worth is told. */
static void drafts_change_nothing(void **state)
{
    static const char body[] = "{\"prompt\": \"abcabcabcabcabcabc\", \"max_tokens\": 60, "
                               "\"temperature\": 0}";
    char              word[160];
    snprintf(word, sizeof word, "tiny=%s", tiny);
    const char *const drafts[] = {"ngram", tiny};
    answer            alone = post("/v1/completions", body);
    assert_null(answer_at(&alone, "usage.completion_tokens_details"));
    for (size_t i = 0; i < COUNT(drafts); i++) {
        server own = server_start(
            (const char *const[]){"--model", word, "--port", "0", "--draft", drafts[i], NULL});
        answer a = client_ask(own.port, "POST", "/v1/completions", body);
        assert_int_equal(a.status, 200);
        assert_string_equal(answer_text(&a, "choices.0.text"),
                            answer_text(&alone, "choices.0.text"));
        const double made = answer_number(&a, "usage.completion_tokens_details.drafted_tokens");
        const double right = answer_number(&a, "usage.completion_tokens_details.accepted_tokens");
        if (!(made > 0 && right <= made && (i == 0 || right > 0))) fail_msg("%s", a.text);
        answer_free(&a);
        char line[80];
        a = client_ask(own.port, "GET", "/metrics", NULL);
        snprintf(line, sizeof line, "dra_tokens_drafted_total{model=\"tiny\"} %g\n", made);
        if (!strstr(a.text, line)) fail_msg("%s", a.text);
        snprintf(line, sizeof line, "dra_tokens_accepted_total{model=\"tiny\"} %g\n", right);
        if (!strstr(a.text, line)) fail_msg("%s", a.text);
        answer_free(&a);
        assert_int_equal(server_stop(&own), 0);
    }
    answer_free(&alone);
}

static void ends_well(void **state) { assert_int_equal(server_stop(&it), 0); }

/* Killed while it saves, again and again: a server that starts then finds old or new, whole. */
static void survives_being_killed(void **state)
{
    char word[160], folder[160];
    snprintf(word, sizeof word, "tiny=%s", tiny);
    snprintf(folder, sizeof folder, "%s/killed", tiny);
    const char *const words[] = {"--model", word, "--port", "0", "--state-dir", folder, NULL};
    for (int i = 0; i < 4; i++) {
        server    own = server_start(words);
        const int fd = client_open(own.port);
        answer    a = client_ask(own.port, "GET", "/states", NULL);
        assert_true(own.port && a.json);
        if (i > 0) assert_true(answer_number(&a, "data.0.tokens") >= 3);
        answer_free(&a);
        a = client_ask(own.port, "POST", "/states/kept", "{\"prompt\": \"abc\"}");
        answer_free(&a);
        static const char more[] = "POST /states/kept HTTP/1.1\r\nHost: localhost\r\n"
                                   "Content-Length: 18\r\n\r\n{\"prompt\": \"abcd\"}";
        client_send(fd, more, sizeof more - 1);
        nanosleep(&(struct timespec){0, 1000000L * i}, NULL);
        kill(own.pid, SIGKILL);
        waitpid(own.pid, NULL, 0);
        close(own.log);
        close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(answers_in_company_are_the_same, start),
        cmocka_unit_test(streams_what_it_answers),
        cmocka_unit_test(reads_beginnings_once),
        cmocka_unit_test(echoes_probabilities),
        cmocka_unit_test(tells_probabilities_of_prompts),
        cmocka_unit_test(samplers_act),
        cmocka_unit_test(writes_what_fits),
        cmocka_unit_test(counts_seeds_from_the_first_choice),
        cmocka_unit_test(states_continue_exactly),
        cmocka_unit_test(states_travel_in_bodies),
        cmocka_unit_test(chats_go_on_from_states),
        cmocka_unit_test(keys_share_no_prefixes),
        cmocka_unit_test(refuses_other_files),
        cmocka_unit_test(drafts_change_nothing),
        cmocka_unit_test(ends_well),
        cmocka_unit_test(survives_being_killed),
    };
    return check_main("serve", NULL, 0, tests, COUNT(tests));
}
