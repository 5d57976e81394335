/* /v1/responses and /v1/messages: requests become those of chats, answers and events are theirs,
 * and what is not done is refused by its name. The engine of fake_engine.c answers with the letters
 * of the prompt. */
#include "started.h"

#include <stdlib.h>
#include <string.h>

enum { EVENTS = 2000 };

static char word[160], jinja[160], keys[160];

static int open_model(void **state)
{
    static const char text[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                               "{% if add_generation_prompt %}<assistant>{% endif %}";
    tiny = server_model("dra-ema-tiny");
    snprintf(word, sizeof word, "tiny=%s", tiny);
    snprintf(jinja, sizeof jinja, "%s/chat.jinja", tiny);
    snprintf(keys, sizeof keys, "%s/keys", tiny);
    assert_int_equal(dra_file_write(jinja, text, sizeof text - 1, NULL), DRA_OK);
    assert_int_equal(dra_file_write(keys, "sk-one Ann\n", 11, NULL), DRA_OK);
    it = server_start(
        (const char *const[]){"--model", word, "--port", "0", "--chat-template", jinja, NULL});
    return it.port ? 0 : -1;
}

#define RESPONSES "/v1/responses"
#define MESSAGES "/v1/messages"
#define HI "{\"role\": \"user\", \"content\": \"Hi\"}"

static void expect(const char *path, const char *body, int status, const char *at, const char *text)
{
    answer a = post(path, body);
    if (a.status != status || strcmp(answer_text(&a, at), text) != 0)
        fail_msg("%s %s: %s", path, body, a.text);
    answer_free(&a);
}

static void answers_are_those_of_chats(void **state)
{
    static const struct {
        const char *path, *body, *at, *text;
    } all[] = {
        {RESPONSES, "{\"input\": \"Hi\", \"max_output_tokens\": 19}", "output.0.content.0.text",
         "<user>Hi<assistant>"},
        {RESPONSES, "{\"input\": [" HI "], \"max_output_tokens\": 8}", "output.0.content.0.text",
         "<user>Hi"},
        {RESPONSES,
         "{\"instructions\": \"Go\", \"input\": [{\"type\": \"message\", \"role\": \"user\", "
         "\"content\": [{\"type\": \"input_text\", \"text\": \"A\"}, {\"type\": \"input_text\", "
         "\"text\": \"B\"}]}], \"max_output_tokens\": 18, \"tools\": [], \"store\": false, "
         "\"user\": \"u\", \"reasoning\": null}",
         "output.0.content.0.text", "<system>Go<user>AB"},
        {RESPONSES,
         "{\"input\": [" HI ", {\"id\": \"x\", \"type\": \"message\", \"status\": \"completed\", "
         "\"role\": \"assistant\", \"content\": [{\"type\": \"output_text\", \"text\": \"Ho\", "
         "\"annotations\": []}]}, " HI "], \"max_output_tokens\": 29}",
         "output.0.content.0.text", "<user>Hi<assistant>Ho<user>Hi"},
        {RESPONSES, "{\"input\": \"Hi\", \"max_output_tokens\": 4}", "status", "incomplete"},
        {RESPONSES, "{\"input\": \"Hi\", \"max_output_tokens\": 4}", "incomplete_details.reason",
         "max_output_tokens"},
        {RESPONSES, "{\"input\": \"Hi\", \"max_output_tokens\": 4}", "output.0.role", "assistant"},
        {MESSAGES, "{\"messages\": [" HI "], \"max_tokens\": 19}", "content.0.text",
         "<user>Hi<assistant>"},
        {MESSAGES,
         "{\"system\": [{\"type\": \"text\", \"text\": \"Go\"}], \"messages\": [{\"role\": "
         "\"user\", \"content\": [{\"type\": \"text\", \"text\": \"A\"}]}], \"max_tokens\": 17, "
         "\"thinking\": {\"type\": \"disabled\"}, \"metadata\": {\"user_id\": \"u\"}}",
         "content.0.text", "<system>Go<user>A"},
        {MESSAGES,
         "{\"messages\": [" HI ", {\"role\": \"assistant\", \"content\": \"We\"}], "
         "\"max_tokens\": 21}",
         "content.0.text", "<user>Hi<assistant>We"},
        {MESSAGES, "{\"messages\": [" HI "], \"max_tokens\": 3}", "stop_reason", "max_tokens"},
        {MESSAGES, "{\"messages\": [" HI "], \"max_tokens\": 3}", "type", "message"},
    };
    for (size_t i = 0; i < COUNT(all); i++)
        expect(all[i].path, all[i].body, 200, all[i].at, all[i].text);
}

static void figures_are_told(void **state)
{
    answer a = post(RESPONSES, "{\"input\": \"Hi\", \"max_output_tokens\": 5}");
    assert_int_equal(answer_number(&a, "usage.input_tokens"), 19);
    assert_int_equal(answer_number(&a, "usage.output_tokens"), 5);
    assert_int_equal(answer_number(&a, "usage.total_tokens"), 24);
    answer_free(&a);
    a = post(MESSAGES, "{\"messages\": [" HI "], \"max_tokens\": 5}");
    assert_int_equal(answer_number(&a, "usage.input_tokens"), 19);
    assert_int_equal(answer_number(&a, "usage.output_tokens"), 5);
    answer_free(&a);
}

static void what_is_not_done_is_refused(void **state)
{
    static const struct {
        const char *path, *body, *name;
    } all[] = {
        {RESPONSES, "{\"input\": \"a\", \"store\": true}", "store"},
        {RESPONSES, "{\"input\": \"a\", \"background\": true}", "background"},
        {RESPONSES, "{\"input\": \"a\", \"text\": 3}", "text"},
        {RESPONSES, "{\"input\": \"a\", \"text\": {\"verbosity\": \"low\"}}", "text"},
        {RESPONSES, "{\"input\": \"a\", \"tools\": [{\"type\": \"function\"}]}", "tools"},
        {RESPONSES, "{\"input\": \"a\", \"previous_response_id\": \"x\"}", "previous_response_id"},
        {RESPONSES, "{\"input\": \"a\", \"n\": 2}", "n"},
        {RESPONSES, "{\"input\": \"a\", \"messages\": [" HI "]}", "messages"},
        {RESPONSES, "{\"input\": \"a\", \"max_tokens\": 3}", "max_tokens"},
        {RESPONSES, "{\"input\": \"a\", \"max_output_tokens\": -3}", "max_output_tokens"},
        {RESPONSES, "{\"input\": \"a\", \"instructions\": 3}", "instructions"},
        {RESPONSES, "{}", "input"},
        {RESPONSES, "{\"input\": 7}", "input"},
        {RESPONSES, "{\"input\": []}", "input"},
        {RESPONSES, "{\"input\": [7]}", "input"},
        {RESPONSES, "{\"input\": [{\"type\": \"reasoning\", \"role\": \"user\"}]}", "input"},
        {RESPONSES, "{\"input\": [{\"role\": \"user\", \"content\": \"a\", \"x\": 1}]}", "input"},
        {RESPONSES,
         "{\"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_image\"}]}]}",
         "input"},
        {RESPONSES, "{\"input\": \"a\", \"temperature\": -1}", "temperature"},
        {RESPONSES, "{\"input\": \"a\", \"model\": \"other\"}", "model"},
        {MESSAGES, "{\"messages\": [" HI "]}", "max_tokens"},
        {MESSAGES, "{\"messages\": [], \"max_tokens\": 3}", "messages"},
        {MESSAGES, "{\"max_tokens\": 3}", "messages"},
        {MESSAGES, "{\"messages\": [3], \"max_tokens\": 3}", "messages"},
        {MESSAGES,
         "{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}], \"max_tokens\": 3}",
         "messages"},
        {MESSAGES, "{\"messages\": [" HI "], \"max_tokens\": 3, \"tools\": [{\"name\": \"f\"}]}",
         "tools"},
        {MESSAGES, "{\"messages\": [" HI "], \"max_tokens\": 3, \"stop_sequences\": 3}",
         "stop_sequences"},
        {MESSAGES, "{\"messages\": [" HI "], \"max_tokens\": 3, \"dra_save_state\": \"a\"}",
         "dra_save_state"},
        {MESSAGES, "{\"messages\": [" HI "], \"max_tokens\": 3, \"input\": \"a\"}", "input"},
    };
    for (size_t i = 0; i < COUNT(all); i++)
        expect(all[i].path, all[i].body, strcmp(all[i].name, "model") ? 400 : 404, "error.param",
               all[i].name);
}

/* Names of all events, joined by blanks, and the texts of their deltas. */
static void add_text(char *to, const char *text)
{
    const size_t n = strlen(to);
    snprintf(to + n, EVENTS - n, "%s", text);
}

static void read_events(const answer *a, char *names, char *text)
{
    names[0] = text[0] = '\0';
    for (const char *at = a->text; (at = strstr(at, "event: ")); at++) {
        char        why[160];
        const char *data = strstr(at, "\ndata: ");
        json_t     *x = serve_json_read(data + 7, strcspn(data + 7, "\n"), why);
        json_t     *type = json_object_get(x, "type"), *delta = json_object_get(x, "delta");
        assert_true(json_is_string(type));
        assert_int_equal(strncmp(at + 7, json_string_value(type), json_string_length(type)), 0);
        if (names[0]) add_text(names, " ");
        add_text(names, json_string_value(type));
        if (json_is_object(delta)) delta = json_object_get(delta, "text");
        if (json_is_string(delta)) add_text(text, json_string_value(delta));
        json_decref(x);
    }
}

static void streams_are_events(void **state)
{
    char   names[EVENTS], text[EVENTS];
    answer a = post(RESPONSES, "{\"input\": \"Hi\", \"max_output_tokens\": 3, \"stream\": true}");
    read_events(&a, names, text);
    assert_string_equal(
        names, "response.created response.in_progress response.output_item.added "
               "response.content_part.added response.output_text.delta response.output_text.delta "
               "response.output_text.delta response.output_text.done response.content_part.done "
               "response.output_item.done response.incomplete");
    assert_string_equal(text, "<us");
    assert_non_null(strstr(a.text, "\"sequence_number\": 10"));
    assert_null(strstr(a.text, "[DONE]"));
    answer_free(&a);
    a = post(MESSAGES, "{\"messages\": [" HI "], \"max_tokens\": 3, \"stream\": true}");
    read_events(&a, names, text);
    assert_string_equal(names, "message_start content_block_start content_block_delta "
                               "content_block_delta content_block_delta content_block_stop "
                               "message_delta message_stop");
    assert_string_equal(text, "<us");
    answer_free(&a);
}

/* An error in a stream is an event, too, which clients know; prompts that begin with "fail" do. */
static void errors_are_events(void **state)
{
    static const char plain[] = "{{ messages[0].content }}";
    char              path[200];
    snprintf(path, sizeof path, "%s/plain.jinja", tiny);
    assert_int_equal(dra_file_write(path, plain, sizeof plain - 1, NULL), DRA_OK);
    server own = server_start(
        (const char *const[]){"--model", word, "--port", "0", "--chat-template", path, NULL});
    for (int i = 0; i < 2; i++) {
        answer a = client_ask(own.port, "POST", i ? MESSAGES : RESPONSES,
                              i ? "{\"messages\": [{\"role\": \"user\", \"content\": \"fail\"}], "
                                  "\"max_tokens\": 4, \"stream\": true}"
                                : "{\"input\": \"fail\", \"stream\": true}");
        if (!strstr(a.text, i ? "event: error\n" : "data: {\"error\"") ||
            !strstr(a.text, "data: {\"error\": {\"message\": \"it failed\""))
            fail_msg("%s", a.text);
        assert_null(strstr(a.text, "message_stop"));
        assert_null(strstr(a.text, "response.completed"));
        answer_free(&a);
    }
    assert_int_equal(server_stop(&own), 0);
}

static void keys_come_as_they_send_them(void **state)
{
    static const char body[] = "{\"messages\": [" HI "], \"max_tokens\": 3}";
    const char *const words[] = {"--model", word, "--port", "0", "--api-key-file", keys, NULL};
    server            own = server_start(words);
    answer            a = client_ask(own.port, "POST", MESSAGES, body);
    assert_int_equal(a.status, 401);
    answer_free(&a);
    a = client_ask_with(own.port, "POST", MESSAGES, "X-Api-Key: sk-two\r\n", body, strlen(body));
    assert_int_equal(a.status, 401);
    answer_free(&a);
    a = client_ask_with(own.port, "POST", MESSAGES, "X-Api-Key: sk-one\r\n", body, strlen(body));
    assert_int_equal(a.status, 200);
    answer_free(&a);
    assert_int_equal(server_stop(&own), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(answers_are_those_of_chats, open_model),
        cmocka_unit_test(figures_are_told),
        cmocka_unit_test(what_is_not_done_is_refused),
        cmocka_unit_test(streams_are_events),
        cmocka_unit_test(errors_are_events),
        cmocka_unit_test(keys_come_as_they_send_them),
        cmocka_unit_test(ends_well),
    };
    return check_main("dialects", NULL, 0, tests, COUNT(tests));
}
