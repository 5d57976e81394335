/* Too much of everything: connections far beyond the limit, a state directory that takes nothing
 * more; and nothing at all, which costs nothing. With the library's engine. */
#include "client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT = 32, ALL = 10000, WAVE = 500, SMALL = 512 };

static const char *tiny;
static char        word[160], folder[160];

static void nap(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static int open_model(void **state)
{
    tiny = server_model("dra-ema-tiny");
    snprintf(word, sizeof word, "tiny=%s", tiny);
    snprintf(folder, sizeof folder, "%s/states", tiny);
    return 0;
}

static server start(void)
{
    return server_start((const char *const[]){"--model", word, "--port", "0", "--connections", "32",
                                              "--state-dir", folder, NULL});
}

static char *text_of(int port)
{
    answer a = client_ask(port, "POST", "/v1/completions",
                          "{\"prompt\": \"once\", \"max_tokens\": 8, \"seed\": 3}");
    char  *text = a.status == 200 ? strdup(answer_text(&a, "choices.0.text")) : NULL;
    answer_free(&a);
    return text;
}

/* ---- connections ----------------------------------------------------------------------------- */

/* A wave of connections, all open at once. Returns how many were told why they are turned away. */
static int send_wave(int port, int n)
{
    static const char ask[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static int        fds[WAVE];
    int               told = 0;
    for (int i = 0; i < n; i++) fds[i] = client_open(port);
    for (int i = 0; i < n; i++) {
        assert_true(fds[i] >= 0);
        client_send(fds[i], ask, sizeof ask - 1);
    }
    for (int i = 0; i < n; i++) {
        answer a = client_read(fds[i]);
        assert_true(a.status == 503 || a.status == 0);
        told += a.status == 503;
        answer_free(&a);
    }
    return told;
}

static void turns_ten_thousand_away(void **state)
{
    int           held[LIMIT], told = 0;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < WAVE + 200) skip();
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    server own = start();
    char  *before = text_of(own.port);
    assert_non_null(before);
    nap(50);
    for (int i = 0; i < LIMIT; i++) {
        held[i] = client_open(own.port);
        assert_true(held[i] >= 0);
    }
    nap(200);
    for (int i = 0; i < ALL / WAVE; i++) told += send_wave(own.port, WAVE);
    print_message("# %d connections beyond the limit: %d were told, %d closed\n", ALL, told,
                  ALL - told);
    assert_true(told > ALL / 10);
    for (int i = 0; i < LIMIT; i++) close(held[i]);
    char *after = NULL;
    for (int i = 0; i < 300 && !after; i++, nap(20)) after = text_of(own.port);
    assert_non_null(after);
    assert_string_equal(after, before);
    assert_int_equal(server_stop(&own), 0);
    free(before);
    free(after);
}

/* ---- files ----------------------------------------------------------------------------------- */

static size_t read_state(char *bytes, size_t room)
{
    char path[256];
    snprintf(path, sizeof path, "%s/tiny/kept.state", folder);
    FILE        *f = fopen(path, "rb");
    const size_t n = f ? fread(bytes, 1, room, f) : 0;
    if (f) fclose(f);
    return n;
}

/* The system refuses bytes beyond the limit of a file, as it does where a disk is full. */
static void says_that_states_are_not_written(void **state)
{
    static char   old[1 << 16], now[1 << 16];
    struct rlimit whole, small;
    server        own = start();
    answer        a = client_ask(own.port, "POST", "/states/kept", "{\"prompt\": \"abc\"}");
    assert_int_equal(a.status, 201);
    answer_free(&a);
    assert_int_equal(server_stop(&own), 0);
    const size_t bytes = read_state(old, sizeof old);
    assert_true(bytes > SMALL && bytes < sizeof old);

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &whole), 0);
    small = (struct rlimit){SMALL, whole.rlim_max};
    signal(SIGXFSZ, SIG_IGN); /* as the program does first of all */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    own = start();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &whole), 0);
    static const char *const bodies[][2] = {
        {"/states/kept", "{\"prompt\": \"abcdef\"}"},
        {"/v1/completions",
         "{\"prompt\": \"ab\", \"max_tokens\": 2, \"dra_save_state\": \"kept\"}"},
        {"/states/kept/fork", "{\"to\": \"more\"}"},
    };
    for (size_t i = 0; i < COUNT(bodies); i++) {
        a = client_ask(own.port, "POST", bodies[i][0], bodies[i][1]);
        assert_int_equal(a.status, 507);
        assert_non_null(strstr(a.body, "state_not_written"));
        answer_free(&a);
        char *text = text_of(own.port); /* others go on */
        assert_non_null(text);
        free(text);
    }
    assert_int_equal(read_state(now, sizeof now), bytes);
    assert_memory_equal(now, old, bytes);
    assert_int_equal(server_stop(&own), 0);
}

/* ---- nothing --------------------------------------------------------------------------------- */

static double processor_seconds(pid_t pid)
{
    char               path[64], text[1024] = "";
    unsigned long long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f && fread(text, 1, sizeof text - 1, f) > 0) {
        const char *at = strrchr(text, ')');
        for (int i = 0; at && i < 12; i++) at = strchr(at + 1, ' ');
        char *next;
        user = at ? strtoull(at, &next, 10) : 0;
        system = at ? strtoull(next, NULL, 10) : 0;
    }
    if (f) fclose(f);
    return text[0] ? (double)(user + system) / (double)sysconf(_SC_CLK_TCK) : -1;
}

static void idles(void **state)
{
    server own = start();
    char  *text = text_of(own.port);
    assert_non_null(text);
    free(text);
    const int fd = client_open(own.port); /* one that stays and says nothing */
    nap(1200);
    const double before = processor_seconds(own.pid);
    assert_true(before >= 0);
    nap(3000);
    const double used = processor_seconds(own.pid) - before;
    print_message("# %.2f s of the processor in 3 idle seconds\n", used);
    assert_true(used <= 0.06);
    close(fd);
    assert_int_equal(server_stop(&own), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(turns_ten_thousand_away, open_model),
        cmocka_unit_test(says_that_states_are_not_written),
        cmocka_unit_test(idles),
    };
    return check_main("floods", NULL, 0, tests, COUNT(tests));
}
