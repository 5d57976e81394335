/* Files of states of a model that grows with its text, with the library's engine: a fork of a long
 * text costs its difference on the disk, and everything is as it was after a start. */
#include "started.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

enum { LONG = 2324 /* letters: nine pieces of 256 tokens, or of 128, and 20 */ };

extern const struct cli_verb cmd_serve;

static char folder[160];

static void run(const char *const *more)
{
    static char word[160];
    const char *words[16] = {"--model", word, "--port", "0", "--state-dir", folder};
    size_t      n = 6;
    snprintf(word, sizeof word, "tiny=%s", tiny);
    while (more && *more) words[n++] = *more++;
    it = server_start(words);
    assert_int_not_equal(it.port, 0);
}

static int begin(void **state)
{
    tiny = server_model("dra-ema-tiny");
    snprintf(folder, sizeof folder, "%s/states", tiny);
    return 0;
}

static char *long_body(char first)
{
    char *body = malloc(LONG + 40);
    char *at = body + snprintf(body, 20, "{\"prompt\": \"%c", first);
    for (size_t i = 1; i < LONG; i++) *at++ = (char)('a' + (i * i + i / 7) % 26);
    memcpy(at, "\"}", 3);
    return body;
}

static size_t bytes_in(const char *path)
{
    struct stat how;
    size_t      bytes = 0;
    DIR        *d = opendir(path);
    for (struct dirent *x; d && (x = readdir(d));) {
        char one[600];
        snprintf(one, sizeof one, "%.300s/%.255s", path, x->d_name);
        if (strcmp(x->d_name, ".") == 0 || strcmp(x->d_name, "..") == 0) continue;
        assert_int_equal(lstat(one, &how), 0);
        bytes += S_ISDIR(how.st_mode) ? bytes_in(one) : (size_t)how.st_size;
    }
    if (d) closedir(d);
    return bytes;
}

static void make(const char *name, const char *body)
{
    char path[64];
    snprintf(path, sizeof path, "/states/%s", name);
    answer a = post(path, body);
    assert_int_equal(a.status, 201);
    answer_free(&a);
}

static void drop(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/states/%s", name);
    answer a = client_ask(it.port, "DELETE", path, NULL);
    assert_int_equal(a.status, 200);
    answer_free(&a);
}

static answer file_of(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/states/%s", name);
    answer a = get(path);
    assert_int_equal(a.status, 200);
    return a;
}

static size_t body_bytes(const answer *a) { return a->bytes - (size_t)(a->body - a->text); }

static void expect_file(const char *name, const answer *a)
{
    answer b = file_of(name);
    assert_int_equal(body_bytes(a), body_bytes(&b));
    assert_memory_equal(a->body, b.body, body_bytes(a));
    answer_free(&b);
}

/* What is written after a state; to be freed. */
static char *text_after(const char *name)
{
    char body[160];
    snprintf(body, sizeof body,
             "{\"prompt\": \"q\", \"max_tokens\": 12, \"seed\": 3, \"logprobs\": 2, "
             "\"dra_state\": \"%s\"}",
             name);
    answer a = post("/v1/completions", body);
    assert_int_equal(a.status, 200);
    const char *from = strstr(a.body, "\"choices\""), *to = strstr(a.body, ", \"usage\"");
    char       *text = strndup(from, (size_t)(to - from));
    answer_free(&a);
    return text;
}

static void expect_text(const char *name, const char *expected)
{
    char *text = text_after(name);
    assert_string_equal(text, expected);
    free(text);
}

static double metric(const char *name)
{
    answer       a = get("/metrics");
    const char  *at = strstr(a.body, name);
    const char  *space = at ? strchr(at, ' ') : NULL;
    const double x = space ? strtod(space, NULL) : -1;
    answer_free(&a);
    return x;
}

static void a_fork_costs_its_difference(void **state)
{
    char *body = long_body('a');
    run(NULL);
    make("base", body);
    answer       base = file_of("base");
    const size_t whole = body_bytes(&base), one = bytes_in(folder);
    assert_true(one > whole && one < whole + whole / 8);
    make("fork", "{\"prompt\": \"xy\", \"dra_state\": \"base\"}");
    answer fork = file_of("fork");
    assert_true(body_bytes(&fork) > whole);
    if (bytes_in(folder) - one > whole / 20)
        fail_msg("%zu bytes, a fork that differs by 2 tokens: %zu", one, bytes_in(folder) - one);
    assert_int_equal(metric("dra_named_state_bytes{model=\"tiny\",place=\"disk\"}"),
                     bytes_in(folder));
    char  *text = text_after("fork"), *text_base = text_after("base");
    answer same = post("/states/fork/fork", "{\"to\": \"same\"}");
    assert_int_equal(same.status, 201);
    answer_free(&same);
    expect_file("same", &fork);
    expect_file("fork", &fork);
    drop("base"); /* what the forks need stays */
    drop("same");
    expect_file("fork", &fork);
    ends_well(state);

    run(NULL);
    expect_file("fork", &fork);
    expect_text("fork", text);
    answer a = client_ask_with(it.port, "PUT", "/states/base", "", base.body, whole);
    assert_int_equal(a.status, 201);
    answer_free(&a);
    expect_text("base", text_base);
    drop("fork");
    expect_file("base", &base);
    ends_well(state);

    run(NULL);
    expect_text("base", text_base);
    drop("base");
    assert_int_equal(bytes_in(folder), 0);
    ends_well(state);
    answer_free(&base);
    answer_free(&fork);
    free(text);
    free(text_base);
    free(body);
}

/* A quota counts what is shared once: five states of a text where one and a half have room. */
static void quotas_count_it_once(void **state)
{
    char *body = long_body('b');
    char  name[16], room[24];
    run(NULL);
    make("one", body);
    snprintf(room, sizeof room, "%zu", bytes_in(folder) * 3 / 2);
    ends_well(state);
    run((const char *const[]){"--state-disk", room, "--state-quota", room, NULL});
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "more%d", i);
        make(name, "{\"prompt\": \"z\", \"dra_state\": \"one\"}");
    }
    free(body);
    body = long_body('c'); /* all of it differs: the next one has no room */
    make("other", body);
    answer a = post("/states/last", "{\"prompt\": \"z\"}");
    assert_int_equal(a.status, 507);
    answer_free(&a);
    free(body);
    ends_well(state);
}

/* Killed while it saves: what starts then has every state, old or new. */
static void kills_lose_nothing(void **state)
{
    static const char more[] =
        "POST /states/one HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Length: 35\r\n\r\n{\"prompt\": \"k\", \"dra_state\": \"one\"}";
    char *text = NULL, *before = NULL, *after = NULL; /* of "one", when it is replaced */
    for (int i = 0; i < 4; i++) {
        run(NULL);
        char *now = text_after("more0"), *one = text_after("one");
        if (text) assert_string_equal(now, text);
        if (before) assert_true(strcmp(one, before) == 0 || strcmp(one, after) == 0);
        free(text), free(before), free(after);
        text = now;
        before = one;
        assert_true(strlen(text) > 20);
        make("next", "{\"prompt\": \"k\", \"dra_state\": \"one\"}");
        after = text_after("next");
        assert_true(strcmp(before, after) != 0);
        answer a = file_of("one");
        answer_free(&a);
        const int fd = client_open(it.port);
        client_send(fd, more, sizeof more - 1);
        nap(4 * i); /* any moment will do */
        kill(it.pid, SIGKILL);
        waitpid(it.pid, NULL, 0);
        close(it.log);
        close(fd);
    }
    free(text), free(before), free(after);
}

/* A state of one token takes a page of many: named ones leave memory before others have no room. */
static void small_states_leave_room(void **state)
{
    for (int files = 0; files < 2; files++) {
        char word[200];
        snprintf(word, sizeof word, "tiny=%s", tiny);
        it = server_start((const char *const[]){"--model", word, "--port", "0", "--memory-limit",
                                                "8M", files ? "--state-dir" : NULL, folder, NULL});
        assert_true(it.port > 0);
        for (int i = 0; i < 60; i++) {
            char name[24];
            snprintf(name, sizeof name, "small%d", i);
            make(name, "{\"prompt\": \"s\"}");
        }
        answer a = post("/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 100}");
        if (a.status != 200) fail_msg("%s", a.text);
        answer_free(&a);
        if (files) free(text_after("small0"));
        ends_well(state);
    }
}

/* Two that count the same pieces would remove each other's. */
static void a_folder_has_one_server(void **state)
{
    char word[160];
    run(NULL);
    snprintf(word, sizeof word, "tiny=%s", tiny);
    const int status = client_verb(
        &cmd_serve, "/dev/null",
        (const char *const[]){"--model", word, "--port", "0", "--state-dir", folder, NULL});
    assert_int_equal(status, 1);
    ends_well(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_fork_costs_its_difference, begin),
        cmocka_unit_test(quotas_count_it_once),
        cmocka_unit_test(kills_lose_nothing),
        cmocka_unit_test(small_states_leave_room),
        cmocka_unit_test(a_folder_has_one_server),
    };
    return check_main("sharing", NULL, 0, tests, COUNT(tests));
}
