/* What clients and service managers ask besides text: templates, beginnings of answers, ids of
 * tokens, whether the server is ready, figures. With the engine of fake_engine.c, which answers
 * with the letters of the prompt. */
#include "started.h"

#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char word[160], jinja[160];

static int open_model(void **state)
{
    static const char text[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                               "{% if add_generation_prompt %}<assistant>{% endif %}"
                               "{% if mood %}{{ mood }}{% endif %}";
    tiny = server_model("dra-ema-tiny");
    snprintf(word, sizeof word, "tiny=%s", tiny);
    snprintf(jinja, sizeof jinja, "%s/chat.jinja", tiny);
    assert_int_equal(dra_file_write(jinja, text, sizeof text - 1, NULL), DRA_OK);
    it = server_start(
        (const char *const[]){"--model", word, "--port", "0", "--chat-template", jinja, NULL});
    return it.port ? 0 : -1;
}

#define HI "{\"role\": \"user\", \"content\": \"Hi\"}"
#define WELL "{\"role\": \"assistant\", \"content\": \"Well\"}"

static void templates_are_applied(void **state)
{
    static const struct {
        const char *fields, *text;
        int         status;
    } all[] = {
        {"\"messages\": [" HI "]", "<user>Hi<assistant>", 200},
        {"\"messages\": [" HI "], \"add_generation_prompt\": false", "<user>Hi", 200},
        {"\"messages\": [" HI ", " WELL "]", "<user>Hi<assistant>Well<assistant>", 200},
        {"\"messages\": [" HI ", " WELL "], \"continue_final_message\": true",
         "<user>Hi<assistant>Well", 200},
        {"\"messages\": [" HI "], \"chat_template_kwargs\": {\"mood\": \"calm \\\"x\\\"\"}",
         "<user>Hi<assistant>calm \"x\"", 200},
        {"\"messages\": [" HI ", " WELL "], \"continue_final_message\": true, "
         "\"chat_template_kwargs\": {\"mood\": \"!\"}",
         "<user>Hi<assistant>!Well", 200},
        {"\"messages\": [" HI "], \"chat_template_kwargs\": {}", "<user>Hi<assistant>", 200},
        {"\"messages\": [" HI "], \"continue_final_message\": true", "", 400},
        {"\"messages\": [" HI "], \"chat_template_kwargs\": 3", "", 400},
        {"\"messages\": [" HI "], \"chat_template_kwargs\": {\"messages\": []}", "", 400},
        {"\"messages\": []", "", 400},
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        char body[400];
        snprintf(body, sizeof body, "{%s}", all[i].fields);
        answer a = post("/apply-template", body);
        if (a.status != all[i].status || strcmp(answer_text(&a, "prompt"), all[i].text) != 0)
            fail_msg("%s: %s", body, a.text);
        answer_free(&a);
        if (all[i].status != 200) continue;
        /* The same is what is answered: the engine repeats its prompt. */
        snprintf(body, sizeof body, "{%s, \"max_tokens\": %zu}", all[i].fields,
                 strlen(all[i].text));
        a = post("/v1/chat/completions", body);
        assert_string_equal(answer_text(&a, "choices.0.message.content"), all[i].text);
        answer_free(&a);
    }
}

static void ids_of_tokens(void **state)
{
    static const char body[] = "{\"prompt\": \"ab\", \"max_tokens\": 3, \"return_token_ids\": true";
    char              text[200];
    snprintf(text, sizeof text, "%s}", body);
    answer a = post("/v1/completions", text);
    assert_int_equal(json_array_size(answer_at(&a, "choices.0.token_ids")), 3);
    assert_int_equal(answer_number(&a, "choices.0.token_ids.2"), 'a');
    assert_int_equal(answer_number(&a, "prompt_token_ids.0.1"), 'b');
    answer_free(&a);
    snprintf(text, sizeof text, "%s, \"stream\": true}", body);
    a = post("/v1/completions", text);
    assert_non_null(strstr(a.body, "\"token_ids\": [98]"));
    answer_free(&a);
    a = post("/v1/completions", "{\"prompt\": \"ab\", \"max_tokens\": 3}");
    assert_null(strstr(a.body, "token_ids"));
    answer_free(&a);
}

static double figure(const char *name)
{
    answer      a = get("/metrics");
    char        line[100];
    const int   n = snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(a.body, line);
    if (!at) fail_msg("%s is not there", name);
    const double x = strtod(at + n, NULL);
    answer_free(&a);
    return x;
}

static void figures_of_requests(void **state)
{
    const double before = figure("dra_first_token_seconds_count{}");
    answer       a = post("/v1/completions", "{\"prompt\": \"slow\", \"max_tokens\": 3}");
    answer_free(&a);
    a = post("/states/one", "{\"prompt\": \"abc\"}");
    answer_free(&a);
    assert_true(figure("dra_first_token_seconds_count{}") == before + 1);
    assert_true(figure("dra_first_token_seconds_sum{}") >= 0.02);
    assert_true(figure("dra_request_seconds_sum{}") >= 0.06);
    assert_true(figure("dra_queue_seconds_count{}") >= 2);
    assert_true(figure("dra_token_seconds_count{}") >= 1);
    assert_true(figure("dra_named_states{model=\"tiny\",place=\"memory\"}") == 1);
    assert_true(figure("dra_named_states{model=\"tiny\",place=\"disk\"}") == 0);
    assert_true(figure("process_resident_memory_bytes") > 1 << 20);
}

static void says_whether_it_is_ready(void **state)
{
    answer a = get("/ready");
    assert_int_equal(a.status, 200);
    assert_string_equal(answer_text(&a, "status"), "ok");
    answer_free(&a);
}

/* ---- sockets of this machine ----------------------------------------------------------------- */

static int open_unix(const char *path, int kind)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int          fd = socket(AF_UNIX, kind, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    const int failed = kind == SOCK_DGRAM ? bind(fd, (struct sockaddr *)&at, sizeof at)
                                          : connect(fd, (struct sockaddr *)&at, sizeof at);
    if (!failed) return fd;
    close(fd);
    return -1;
}

static void expect_word(int fd, const char *expected)
{
    char          said[64] = "";
    const ssize_t n = recv(fd, said, sizeof said - 1, 0);
    assert_int_equal(n, strlen(expected));
    assert_string_equal(said, expected);
}

/* It tells the service manager when it is ready and when it ends. */
static void listens_on_a_socket(void **state)
{
    static const char ask[] = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
                              "Connection: close\r\n\r\n";
    char              path[128], manager[128];
    snprintf(path, sizeof path, "%s/socket", tiny);
    snprintf(manager, sizeof manager, "%s/manager", tiny);
    const int words = open_unix(manager, SOCK_DGRAM);
    assert_true(words >= 0);
    for (int again = 0; again < 2; again++) {
        setenv("NOTIFY_SOCKET", manager, 1);
        server own = server_start((const char *const[]){"--model", word, "--unix", path, NULL});
        unsetenv("NOTIFY_SOCKET");
        expect_word(words, "READY=1");
        const int fd = open_unix(path, SOCK_STREAM);
        assert_true(fd >= 0);
        client_send(fd, ask, sizeof ask - 1);
        answer a = client_read(fd);
        assert_int_equal(a.status, 200);
        answer_free(&a);
        if (again) {
            assert_int_equal(server_stop(&own), 0);
            expect_word(words, "STOPPING=1");
            assert_int_not_equal(access(path, F_OK), 0);
        } else { /* what is left behind is in nobody's way */
            kill(own.pid, SIGKILL);
            waitpid(own.pid, NULL, 0);
            close(own.log);
            assert_int_equal(access(path, F_OK), 0);
        }
    }
    close(words);
}

/* A process that was killed leaves a folder; the next one removes it. */
static void cleans_up_after_the_killed(void **state)
{
    char folder[128], path[200];
    snprintf(folder, sizeof folder, "%s/tmp", tiny);
    snprintf(path, sizeof path, "ls %s | grep -c dra-serve > %s/left", folder, tiny);
    assert_int_equal(mkdir(folder, 0700), 0);
    setenv("TMPDIR", folder, 1);
    for (int again = 0; again < 3; again++) {
        server own = server_start((const char *const[]){"--model", word, "--port", "0", NULL});
        kill(own.pid, SIGKILL);
        waitpid(own.pid, NULL, 0);
        close(own.log);
    }
    unsetenv("TMPDIR");
    char  *text = NULL;
    size_t bytes;
    if (system(path) != 0) fail_msg("%s", path);
    snprintf(path, sizeof path, "%s/left", tiny);
    assert_int_equal(dra_file_read(path, 100, &text, &bytes, NULL), DRA_OK);
    assert_string_equal(text, "1\n");
    free(text);
}

/* A tokenizer that puts <s> before a text and </s> after it. */
static const char around[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": true, \"normalized\": "
    "false}, {\"id\": 1, \"content\": \"</s>\", \"special\": true, \"normalized\": false}], "
    "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
    "\"prepend\": \"\u2581\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
    "\"content\": \"\u2581\"}]}, \"pre_tokenizer\": null, \"post_processor\": {\"type\": "
    "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, "
    "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": {\"id\": \"</s>\", "
    "\"type_id\": 0}}], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [0], "
    "\"tokens\": [\"<s>\"]}, \"</s>\": {\"id\": \"</s>\", \"ids\": [1], \"tokens\": [\"</s>\"]}}}, "
    "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
    "{\"String\": \"\u2581\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": "
    "\"Fuse\"}]}, \"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": "
    "{\"<s>\": 0, \"</s>\": 1, \"\u2581\": 2, \"a\": 3, \"\u2581a\": 4}, "
    "\"merges\": [\"\u2581 a\"]}}";

/* /tokenize adds what belongs around a text unless it is asked not to; a prompt gets what belongs
 * in front of it, and a text of a template nothing. */
static void tokens_around_texts(void **state)
{
    static const struct {
        const char *path, *body, *at;
        int         n, first, last;
    } all[] = {
        {"/tokenize", "{\"prompt\": \"a\"}", "tokens", 3, 0, 1},
        {"/tokenize", "{\"prompt\": \"a\", \"add_special_tokens\": true}", "tokens", 3, 0, 1},
        {"/tokenize", "{\"prompt\": \"a\", \"add_special_tokens\": false}", "tokens", 1, 4, 4},
        {"/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 1, \"return_token_ids\": true}",
         "prompt_token_ids.0", 2, 0, 4},
        {"/v1/chat/completions",
         "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"max_tokens\": 1, "
         "\"chat_template_kwargs\": {\"mood\": \"\"}, \"return_token_ids\": true}",
         "prompt_token_ids.0", 1, 4, 4},
    };
    char        path[160], from[160];
    const char *folder = server_model("dra-ema-tiny");
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    assert_int_equal(dra_file_write(path, around, sizeof around - 1, NULL), DRA_OK);
    snprintf(from, sizeof from, "%s/chat.jinja", folder);
    assert_int_equal(dra_file_write(from, "a", 1, NULL), DRA_OK);
    server own = server_start(
        (const char *const[]){"--model", folder, "--port", "0", "--chat-template", from, NULL});
    assert_true(own.port > 0);
    for (size_t i = 0; i < COUNT(all); i++) {
        answer        a = client_ask(own.port, "POST", all[i].path, all[i].body);
        const json_t *ids = answer_at(&a, all[i].at);
        const size_t  n = json_array_size(ids);
        if (a.status != 200 || n != (size_t)all[i].n ||
            json_integer_value(json_array_get(ids, 0)) != all[i].first ||
            json_integer_value(json_array_get(ids, n - 1)) != all[i].last)
            fail_msg("%s %s: %s", all[i].path, all[i].body, a.text);
        answer_free(&a);
    }
    assert_int_equal(server_stop(&own), 0);
}

/* "localhost" may have two addresses: whoever asks for the name finds the server. */
static void listens_on_all_addresses(void **state)
{
    struct addrinfo  *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    const char *const words[] = {"--model", word, "--port", "0", "--host", "localhost", NULL};
    server            own = server_start(words);
    char              port[16];
    assert_true(own.port > 0);
    snprintf(port, sizeof port, "%d", own.port);
    assert_int_equal(getaddrinfo("localhost", NULL, &hints, &found), 0);
    for (struct addrinfo *a = found; a; a = a->ai_next) {
        const int  free_one = socket(a->ai_family, SOCK_STREAM, 0);
        const bool has = free_one >= 0 && bind(free_one, a->ai_addr, a->ai_addrlen) == 0;
        close(free_one);
        if (!has) continue; /* the machine has no such address */
        struct addrinfo *at = NULL;
        char             host[100];
        assert_int_equal(
            getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST), 0);
        assert_int_equal(getaddrinfo(host, port, &hints, &at), 0);
        const int fd = socket(at->ai_family, SOCK_STREAM, 0);
        if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) fail_msg("nobody listens on %s", host);
        client_send(fd, "GET /health HTTP/1.0\r\n\r\n", 25);
        answer answered = client_read(fd);
        assert_int_equal(answered.status, 200);
        answer_free(&answered);
        freeaddrinfo(at);
    }
    freeaddrinfo(found);
    assert_int_equal(server_stop(&own), 0);
}

static void seeds_have_64_bits(void **state)
{
    static const struct {
        const char *seed;
        int         status;
    } all[] = {{"9223372036854775807", 200},
               {"-9223372036854775808", 200},
               {"9223372036854775808", 400},
               {"1.5", 400},
               {"\"1\"", 400}};
    for (size_t i = 0; i < COUNT(all); i++) {
        char body[100];
        snprintf(body, sizeof body, "{\"prompt\": \"a\", \"max_tokens\": 1, \"seed\": %s}",
                 all[i].seed);
        answer a = post("/v1/completions", body);
        if (a.status != all[i].status) fail_msg("%s: %s", body, a.text);
        answer_free(&a);
    }
}

/* Limits that the machine cannot hold are said to be. */
static void says_what_memory_there_is(void **state)
{
    char              line[256] = "";
    size_t            n = 0;
    const char *const words[] = {"--model", word, "--port", "0", "--memory-limit", "99T", NULL};
    server            own = server_start(words);
    assert_true(own.port > 0);
    while (n + 1 < sizeof line && read(own.log, line + n, 1) == 1 && line[n] != '\n') n++;
    assert_non_null(strstr(line, "warning: --memory-limit"));
    assert_int_equal(server_stop(&own), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(templates_are_applied, open_model),
        cmocka_unit_test(ids_of_tokens),
        cmocka_unit_test(figures_of_requests),
        cmocka_unit_test(says_whether_it_is_ready),
        cmocka_unit_test(seeds_have_64_bits),
        cmocka_unit_test(ends_well),
        cmocka_unit_test(listens_on_all_addresses),
        cmocka_unit_test(says_what_memory_there_is),
        cmocka_unit_test(listens_on_a_socket),
        cmocka_unit_test(cleans_up_after_the_killed),
        cmocka_unit_test(tokens_around_texts),
    };
    return check_main("clients", NULL, 0, tests, COUNT(tests));
}
