/* What a server takes under attack, beside what it may take: `--request-memory` and a quarter more,
 * and that it gives back what is free. With the engine of fake_engine.c. */
#include "started.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MIB = 1 << 20, BUDGET = 48 /* MiB */, ATTACKERS = 40 };

/* Sanitizers keep what is freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MEASURED = false };
#else
enum { MEASURED = true };
#endif

static int begin(void **state)
{
    static char word[160];
    tiny = server_model("dra-ema-tiny");
    snprintf(word, sizeof word, "tiny=%s", tiny);
    it = server_start((const char *const[]){
        "--model", word, "--port", "0", "--slots", "8", "--queue", "128", "--request-memory", "48M",
        "--max-answer", "4M", "--max-prompt", "200000", "--client-seconds", "5", NULL});
    return it.port ? 0 : -1;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A line of the process's status in KiB. */
static long status_of(const char *name)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)it.pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0) kib = strtol(line + strlen(name), NULL, 10);
    fclose(f);
    return kib;
}

static long base; /* KiB that it had before */

static void measure_from_now(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/clear_refs", (int)it.pid);
    FILE *f = fopen(path, "w");
    if (f) fprintf(f, "5"); /* the peak begins anew */
    if (f) fclose(f);
    base = status_of("VmRSS:");
}

static void expect_bytes(const char *what)
{
    const long most = status_of("VmHWM:") - base;
    long       left = 0;
    for (int i = 0; i < 60; i++, nap(50)) {
        left = status_of("VmRSS:") - base;
        if (left < 8 * 1024) break;
    }
    print_message("# %s: %d KiB allowed and a quarter, %ld taken, %ld left\n", what, BUDGET * 1024,
                  most, left);
    if (!MEASURED) return;
    if (most > BUDGET * 1024 * 5 / 4) fail_msg("%s: %ld KiB", what, most);
    if (left > 8 * 1024) fail_msg("%s: %ld KiB are left", what, left);
}

static double acted(const char *limit)
{
    char   line[100];
    answer a = get("/metrics");
    snprintf(line, sizeof line, "dra_limits_total{limit=\"%s\"} ", limit);
    const char  *at = strstr(a.body, line);
    const double n = at ? strtod(at + strlen(line), NULL) : 0;
    answer_free(&a);
    return n;
}

/* ---- attacks --------------------------------------------------------------------------------- */

static void send_until_full(int fd, const char *data, size_t bytes)
{
    for (int waits = 0; bytes > 0 && waits < 3;) {
        const ssize_t n = send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        waits = n > 0 ? 0 : waits + 1;
        if (n > 0) data += n, bytes -= (size_t)n;
        if (n <= 0) nap(2);
    }
}

/* Bodies that come and do not end: beyond the memory for them they are refused by their heads. */
static void bodies_of_all(void **state)
{
    static char big[8 * MIB];
    static int  fds[ATTACKERS];
    const char  head[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                         "Content-Length: 8388608\r\n\r\n";
    const char  chunks[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                           "Transfer-Encoding: chunked\r\n\r\n7fffff\r\n";
    int         told = 0;
    memset(big, ' ', sizeof big);
    measure_from_now();
    for (int i = 0; i < ATTACKERS; i++) {
        fds[i] = client_open(it.port);
        if (i % 2)
            client_send(fds[i], chunks, sizeof chunks - 1);
        else
            client_send(fds[i], head, sizeof head - 1);
        send_until_full(fds[i], big, sizeof big - 2);
    }
    for (int i = 0; i < ATTACKERS; i++) {
        char          line[16] = "";
        const ssize_t n = recv(fds[i], line, sizeof line - 1, MSG_DONTWAIT);
        told += n > 12 && strncmp(line + 9, "503", 3) == 0;
        close(fds[i]);
    }
    assert_true(told >= ATTACKERS / 2);
    expect_bytes("bodies");
    assert_true(acted("request-memory") >= told);
}

/* Whole answers with log-probabilities of a long prompt, of many at a time. */
static void answers_that_are_long(void **state)
{
    enum { TOKENS = 150000, AT_ONCE = 4 };
    char *body = malloc(TOKENS + 200);
    char  head[200];
    int   fds[AT_ONCE];
    int   n = snprintf(body, 100, "{\"prompt\": \"");
    memset(body + n, 'a', TOKENS);
    n += TOKENS;
    n += snprintf(body + n, 100, "\", \"max_tokens\": 1, \"echo\": true, \"logprobs\": 20}");
    const int h = snprintf(head, sizeof head,
                           "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                           "Connection: close\r\nContent-Length: %d\r\n\r\n",
                           n);
    measure_from_now();
    for (int i = 0; i < AT_ONCE; i++) {
        fds[i] = client_open(it.port);
        client_send(fds[i], head, (size_t)h);
        client_send(fds[i], body, (size_t)n);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        answer a = client_read(fds[i]);
        if (a.status != 400 && a.status != 503) fail_msg("%.300s", a.text);
        assert_non_null(strstr(a.body, a.status == 400 ? "answer_too_long" : "request_memory"));
        answer_free(&a);
    }
    free(body);
    expect_bytes("log-probabilities");
}

/* Streams of many choices that nobody reads. */
static void streams_that_are_not_read(void **state)
{
    enum { STREAMS = 4 };
    static const char body[] = "{\"prompt\": \"abc\", \"max_tokens\": 4000, \"n\": 16, "
                               "\"logprobs\": 20, \"stream\": true}";
    char              request[400];
    int               fds[STREAMS];
    const int         n = snprintf(request, sizeof request,
                                   "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                                           "Content-Length: %zu\r\n\r\n%s",
                                   sizeof body - 1, body);
    const double      before = acted("max-answer");
    measure_from_now();
    for (int i = 0; i < STREAMS; i++) {
        fds[i] = client_open(it.port);
        client_send(fds[i], request, (size_t)n);
    }
    for (int i = 0; i < 400 && acted("max-answer") - before < STREAMS; i++) nap(20);
    for (int i = 0; i < STREAMS; i++) close(fds[i]);
    expect_bytes("streams");
    assert_int_equal(acted("max-answer") - before, STREAMS);
}

/* A state that is no state goes to a file and nowhere else. */
static void states_that_are_large(void **state)
{
    enum { LARGE = 96 * MIB };
    static char some[MIB];
    char        head[160];
    const int   fd = client_open(it.port);
    const int   n = snprintf(head, sizeof head,
                             "PUT /states/big HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               "Content-Length: %d\r\n\r\n",
                             (int)LARGE);
    measure_from_now();
    client_send(fd, head, (size_t)n);
    for (int i = 0; i < LARGE / MIB; i++) client_send(fd, some, sizeof some);
    answer a = client_read(fd);
    assert_int_equal(a.status, 400);
    answer_free(&a);
    expect_bytes("an upload");
}

static void prompts_that_are_long(void **state)
{
    enum { TOKENS = 200001 };
    char *body = malloc(TOKENS + 200);
    int   n = snprintf(body, 100, "{\"prompt\": \"");
    memset(body + n, 'a', TOKENS);
    n += TOKENS;
    snprintf(body + n, 100, "\", \"max_tokens\": 1}");
    answer a = post("/v1/completions", body);
    assert_int_equal(a.status, 400);
    assert_string_equal(answer_text(&a, "error.code"), "context_length_exceeded");
    assert_string_equal(answer_text(&a, "error.param"), "prompt");
    answer_free(&a);
    assert_int_equal(acted("max-prompt"), 1);
    free(body);
}

/* All that was taken is given back. */
static void nothing_is_left(void **state)
{
    answer a = {0};
    char   said[60] = "";
    for (int i = 0; i < 100 && strncmp(said, "dra_request_bytes 0\n", 20) != 0; i++, nap(20)) {
        a = get("/metrics");
        const char *at = strstr(a.body, "\ndra_request_bytes ");
        snprintf(said, sizeof said, "%s", at ? at + 1 : "");
        answer_free(&a);
    }
    if (strncmp(said, "dra_request_bytes 0\n", 20) != 0) fail_msg("%s", said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(bodies_of_all, begin),
        cmocka_unit_test(answers_that_are_long),
        cmocka_unit_test(streams_that_are_not_read),
        cmocka_unit_test(states_that_are_large),
        cmocka_unit_test(prompts_that_are_long),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(ends_well),
    };
    return check_main("memory", NULL, 0, tests, COUNT(tests));
}
