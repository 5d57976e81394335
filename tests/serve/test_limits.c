/* The server's limits, states, figures, keys and end, with the engine of fake_engine.c. */
#include "started.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- load ------------------------------------------------------------------------------------ */

static double metric(const char *name)
{
    answer a = get("/metrics");
    char   line[80];
    double x = NAN;
    snprintf(line, sizeof line, "\n%s", name);
    const char *at = strstr(a.body, line), *blank = at ? strchr(at, ' ') : NULL;
    if (blank) x = strtod(blank, NULL);
    answer_free(&a);
    return x;
}

/* A body of about n bytes in a request for ids or text, to be freed. */
static char *large_request(const char *route, size_t n, size_t *bytes)
{
    static const char head[] = "{\"prompt\": \"", tail[] = "\"}";
    static const char format[] = "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                                 "Content-Length: %zu\r\n\r\n%s";
    const size_t      body = sizeof head + n + sizeof tail - 2;
    char             *text = malloc(n + 400);
    assert_non_null(text);
    size_t at = (size_t)snprintf(text, 400, format, route, body, head);
    for (size_t i = 0; i < n; i++) text[at++] = (char)('a' + (i * i / 7 + i) % 26);
    at += (size_t)snprintf(text + at, sizeof tail, "%s", tail);
    *bytes = at;
    return text;
}

static bool has_come(int fd, int ms) { return poll(&(struct pollfd){fd, POLLIN, 0}, 1, ms) > 0; }

/* While a large body is read and its text becomes tokens others are answered; a client that leaves
 * meanwhile leaves nothing behind. */
static void large_bodies_stop_nobody(void **state)
{
    static const char *const routes[] = {"/tokenize", "/v1/completions", "/states/large",
                                         "/v1/embeddings", "/apply-template"};
    size_t                   n;
    const double             before = metric("dra_request_bytes");
    for (size_t i = 0; i < COUNT(routes); i++) {
        char *text = large_request(routes[i], 1 << 20, &n);
        int   fd = client_open(it.port), others = 0;
        assert_true(client_send(fd, text, n));
        for (; !has_come(fd, 0); others++) {
            answer a = get("/health");
            assert_int_equal(a.status, 200);
            answer_free(&a);
        }
        answer a = client_read(fd);
        print_message("# %s: %d, %d others meanwhile\n", routes[i], a.status, others);
        assert_int_equal(a.status, i == 0 ? 200 : 400);
        assert_true(others >= 3);
        answer_free(&a);
        fd = client_open(it.port);
        assert_true(client_send(fd, text, n));
        nap(5);
        close(fd);
        free(text);
    }
    for (int i = 0; i < 200 && metric("dra_request_bytes") > before; i++) nap(20);
    assert_true(metric("dra_request_bytes") <= before);
}

/* Of large bodies as many wait as of requests. */
static void large_bodies_wait_in_a_queue(void **state)
{
    enum { CLIENTS = 30 };
    int    fds[CLIENTS], full = 0;
    size_t n;
    char  *text = large_request("/tokenize", 1 << 18, &n);
    for (int i = 0; i < CLIENTS; i++)
        assert_true(client_send(fds[i] = client_open(it.port), text, n));
    for (int i = 0; i < CLIENTS; i++) {
        answer a = client_read(fds[i]);
        assert_true(a.status == 200 || a.status == 429 || a.status == 503);
        full += a.status == 429;
        answer_free(&a);
    }
    print_message("# %d of %d were refused\n", full, CLIENTS);
    free(text);
}

/* A client that leaves ends its job soon, also while it waits for its turn. */
static void notices_clients_that_leave(void **state)
{
    static const char body[] = "{\"prompt\": \"slow\", \"max_tokens\": 4000, \"stream\": true}";
    char              head[256];
    int               fds[6];
    const double      before = metric("dra_cancelled_total");
    const int         n = snprintf(head, sizeof head,
                                   "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                                           "Content-Length: %zu\r\n\r\n%s",
                                   sizeof body - 1, body);
    for (int i = 0; i < 6; i++) { /* two run, four wait */
        fds[i] = client_open(it.port);
        client_send(fds[i], head, (size_t)n);
    }
    nap(200);
    assert_true(metric("dra_queue_length") == 4);
    for (int i = 0; i < 6; i++) close(fds[i]);
    for (int i = 0; i < 100 && metric("dra_cancelled_total") < before + 6; i++) nap(20);
    assert_true(metric("dra_cancelled_total") == before + 6);
    assert_true(metric("dra_active_sequences") == 0);
}

static void answers_429_when_full(void **state)
{
    static const char body[] = "{\"prompt\": \"slow\", \"max_tokens\": 4000, \"stream\": true}";
    char              head[256];
    int               fds[8];
    const int         n = snprintf(head, sizeof head,
                                   "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                                           "Content-Length: %zu\r\n\r\n%s",
                                   sizeof body - 1, body);
    for (int i = 0; i < 8; i++) {
        fds[i] = client_open(it.port);
        client_send(fds[i], head, (size_t)n);
    }
    nap(200);
    answer a = post("/v1/completions", "{\"prompt\": \"a\"}");
    assert_int_equal(a.status, 429);
    assert_non_null(strstr(a.text, "Retry-After: "));
    assert_string_equal(answer_text(&a, "error.type"), "rate_limit_error");
    answer_free(&a);
    for (int i = 0; i < 8; i++) close(fds[i]);
    nap(200);
    a = post("/v1/completions", "{\"prompt\": \"a\"}");
    assert_int_equal(a.status, 200);
    answer_free(&a);
}

static void bounds_connections(void **state)
{
    int fds[80], told = 0;
    for (int i = 0; i < 80; i++) fds[i] = client_open(it.port);
    for (int i = 79; i >= 64; i--) { /* the limit is 64 */
        answer a = client_read(fds[i]);
        told += a.status == 503;
        answer_free(&a);
    }
    for (int i = 0; i < 64; i++) close(fds[i]);
    assert_true(told >= 14);
    for (int i = 0; i < 100; i++) {
        answer     a = get("/health");
        const bool well = a.status == 200;
        answer_free(&a);
        if (well) return;
        nap(20);
    }
    fail_msg("the server does not come back");
}

/* A thousand connections that say nothing keep nobody out. */
static void holds_a_thousand_connections(void **state)
{
    static int    fds[1000];
    char          word[160];
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < 1200) skip();
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    snprintf(word, sizeof word, "tiny=%s", tiny);
    server own = server_start((const char *const[]){"--model", word, "--port", "0", NULL});
    for (int i = 0; i < 1000; i++) {
        fds[i] = client_open(own.port);
        assert_true(fds[i] >= 0);
    }
    answer a = client_ask(own.port, "POST", "/v1/completions", "{\"prompt\": \"ab\"}");
    assert_int_equal(a.status, 200);
    answer_free(&a);
    for (int i = 0; i < 1000; i++) close(fds[i]);
    assert_int_equal(server_stop(&own), 0);
}

/* Bytes of memory that a process has, in KiB. */
static long resident(pid_t pid)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "VmRSS:", 6) == 0) kib = strtol(line + 6, NULL, 10);
    fclose(f);
    return kib;
}

/* Sends a request again and again until `times` are sent or nobody takes them any more. Returns the
 * bytes that were sent. */
static size_t send_many(int fd, const char *request, int times)
{
    const size_t n = strlen(request);
    size_t       sent = 0;
    for (int waits = 0; sent < (size_t)times * n && waits < 20;) {
        const size_t  at = sent % n;
        const ssize_t took = send(fd, request + at, n - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        waits = took > 0 ? 0 : waits + 1;
        if (took > 0)
            sent += (size_t)took;
        else
            nap(20);
    }
    return sent;
}

/* The head of an answer as often as it comes in `bytes` of a connection that then closes. Not by
 * strstr(), which sanitizers have measure the rest of 117 MB for each of 10,000 answers. */
static size_t count_answers(const answer *a)
{
    static const char head[] = "HTTP/1.1 200 OK\r\n";
    const char       *at = a->text, *end = at + a->bytes;
    size_t            n = 0;
    for (; (at = memchr(at, 'H', (size_t)(end - at))); at++)
        n += (size_t)(end - at) >= sizeof head - 1 && memcmp(at, head, sizeof head - 1) == 0;
    return n;
}

/* A client that sends requests and takes no answers is not read any further: 10,000 answers would
 * have 117 MB. When it takes them, all of them come. */
static void stops_reading_who_does_not_read(void **state)
{
    static const char request[] = "GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const int         fd = client_open(it.port);
    const long        before = resident(it.pid);
    const size_t      sent = send_many(fd, request, 10000);
    nap(300);
    const long more = resident(it.pid) - before;
    print_message("# %zu bytes of requests were taken, %ld KiB of memory\n", sent, more);
    assert_true(more < 32 * 1024);
    assert_true(sent >= sizeof request - 1);
    shutdown(fd, SHUT_WR);
    answer a = client_read(fd);
    assert_true(count_answers(&a) > 0);
    answer_free(&a);
}

/* The same, of one that takes its answers late: nothing is lost or out of order. */
static void goes_on_when_answers_are_taken(void **state)
{
    static const char request[] = "GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static const char last[] =
        "GET /page.js HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const int    fd = client_open(it.port);
    const size_t sent = send_many(fd, request, 2000);
    assert_int_equal(sent, 2000 * (sizeof request - 1)); /* sockets hold that much */
    client_send(fd, last, sizeof last - 1);
    answer a = client_read(fd);
    assert_int_equal(count_answers(&a), 2001);
    answer_free(&a);
}

static void ends_slow_requests(void **state)
{
    answer a = post("/v1/completions", "{\"prompt\": \"slow\", \"max_tokens\": 4000}");
    assert_int_equal(a.status, 504);
    answer_free(&a);
    a = post("/v1/completions", "{\"prompt\": \"fail\"}");
    assert_int_equal(a.status, 400);
    answer_free(&a);
}

/* ---- states ---------------------------------------------------------------------------------- */

static void keeps_states(void **state)
{
    answer a = post("/states/one", "{\"prompt\": \"abc\"}");
    assert_int_equal(a.status, 201);
    assert_int_equal(answer_number(&a, "tokens"), 3);
    answer_free(&a);
    a = post("/v1/completions", "{\"prompt\": \"de\", \"max_tokens\": 2, \"dra_state\": \"one\", "
                                "\"dra_save_state\": \"two\"}");
    assert_int_equal(a.status, 200);
    answer_free(&a);
    a = get("/states");
    assert_string_equal(answer_text(&a, "data.0.name"), "one");
    assert_int_equal(answer_number(&a, "data.0.tokens"), 3); /* what was read stays as it is */
    assert_int_equal(answer_number(&a, "data.1.tokens"), 7);
    answer_free(&a);
    a = post("/states/two/fork", "{\"to\": \"three\"}");
    assert_int_equal(a.status, 201);
    assert_int_equal(answer_number(&a, "tokens"), 7);
    answer_free(&a);
    a = get("/states/three");
    assert_string_equal(a.body, "fake 7\n");
    answer_free(&a);
    a = client_ask(it.port, "PUT", "/states/four", "fake 9\n");
    assert_int_equal(answer_number(&a, "tokens"), 9);
    answer_free(&a);
    a = client_ask(it.port, "PUT", "/states/five", "something else");
    assert_int_equal(a.status, 400);
    answer_free(&a);
    a = get("/states/four/look");
    assert_true(answer_number(&a, "0.norm.1") == 2.5);
    answer_free(&a);
    a = client_ask(it.port, "DELETE", "/states/four", NULL);
    assert_int_equal(a.status, 200);
    answer_free(&a);
    a = client_ask(it.port, "DELETE", "/states/four", NULL);
    assert_int_equal(a.status, 404);
    answer_free(&a);
}

static void carries_states(void **state)
{
    char   body[512];
    answer a = post("/v1/completions", "{\"prompt\": \"abcd\", \"max_tokens\": 1, "
                                       "\"dra_return_state\": true}");
    assert_string_equal(answer_text(&a, "dra_state_data"), "ZmFrZSA1Cg=="); /* fake 5 */
    snprintf(body, sizeof body,
             "{\"prompt\": \"x\", \"max_tokens\": 1, \"dra_state_data\": \"%s\", "
             "\"dra_return_state\": true, \"stream\": true}",
             answer_text(&a, "dra_state_data"));
    answer_free(&a);
    a = post("/v1/completions", body);
    assert_non_null(strstr(a.text, "\"dra_state_data\": \"ZmFrZSA3Cg==\""));
    answer_free(&a);
    a = get("/states");
    assert_null(strstr(a.text, "..temp"));
    answer_free(&a);
}

static void refuses_names(void **state)
{
    static const char *const names[] = {"a%2fb",    "%2e%2e%2fx", "a%20b", "a*b",
                                        "..temp.1", "%ff",        ""};
    for (size_t i = 0; i < COUNT(names); i++) {
        char path[128];
        snprintf(path, sizeof path, "/states/%s", names[i]);
        answer a = client_ask(it.port, "PUT", path, "fake 1\n");
        if (a.status != 400 && a.status != 404) fail_msg("%s: %s", path, a.text);
        answer_free(&a);
    }
}

/* ---- figures --------------------------------------------------------------------------------- */

/* Every sample belongs to a family that was announced; buckets grow up to the count. */
static void figures_can_be_parsed(void **state)
{
    answer a = get("/metrics");
    char   family[80] = "", type[16] = "", *rest = NULL;
    double last = 0;
    int    samples = 0;
    assert_non_null(strstr(a.text, "Content-Type: text/plain; version=0.0.4"));
    for (char *line = strtok_r((char *)(uintptr_t)a.body, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "# HELP ", 7) == 0) continue;
        if (strncmp(line, "# TYPE ", 7) == 0) {
            const size_t n = strcspn(line + 7, " ");
            snprintf(family, sizeof family, "%.*s", (int)n, line + 7);
            snprintf(type, sizeof type, "%s", line + 8 + n);
            continue;
        }
        const size_t n = strcspn(line, "{ ");
        if (strncmp(line, family, strlen(family)) != 0) fail_msg("%s: not of %s", line, family);
        if (strcmp(type, "histogram") != 0 && n != strlen(family)) fail_msg("%s", line);
        char        *end = NULL;
        const double x = strtod(strrchr(line, ' '), &end);
        if (*end || !(x >= 0)) fail_msg("%s: no value", line);
        if (strstr(line, "_bucket")) {
            if (x < last && !strstr(line, "le=\"0.0005\"")) fail_msg("%s: falls", line);
            last = x;
        }
        if (strstr(line, "_count") && x != last) fail_msg("%s: is not the last bucket", line);
        samples++;
    }
    assert_true(samples > 20);
    answer_free(&a);
}

/* ---- keys, addresses, the end ---------------------------------------------------------------- */

static void asks_for_keys(void **state)
{
    char path[128], word[160];
    snprintf(path, sizeof path, "%s/keys", tiny);
    snprintf(word, sizeof word, "tiny=%s", tiny);
    assert_int_equal(dra_file_write(path, "# keys\nsecret \t\r\nother Ann # new\n", 33, NULL),
                     DRA_OK);
    server own = server_start((const char *const[]){"--model", word, "--port", "0", "--host",
                                                    "0.0.0.0", "--api-key-file", path, "--cors",
                                                    "https://a.example", NULL});
    static const struct {
        const char *headers;
        int         status;
    } all[] = {{"", 401},
               {"Authorization: Bearer secre\r\n", 401},
               {"Authorization: Bearer secret2\r\n", 401},
               {"Authorization: secret\r\n", 401},
               {"Authorization: Bearer Ann\r\n", 401},
               {"Authorization: Bearer other Ann\r\n", 401},
               {"Authorization: Bearer \r\n", 401},
               {"Authorization: Bearer secret\r\n", 200},
               {"Authorization: bearer secret\r\n", 200},
               {"Authorization: BEARER  secret\r\n", 200},
               {"Authorization: Bearer other\r\nOrigin: https://a.example\r\n", 200},
               {"Authorization: Bearer other\r\nOrigin: https://b.example\r\n", 403}};
    for (size_t i = 0; i < COUNT(all); i++) {
        answer a = client_ask_with(own.port, "GET", "/v1/models", all[i].headers, NULL, 0);
        if (a.status != all[i].status) fail_msg("%s: %s", all[i].headers, a.text);
        assert_non_null(strstr(a.text, "Access-Control-Allow-Origin: https://a.example"));
        answer_free(&a);
    }
    answer a = client_ask_with(own.port, "OPTIONS", "/v1/chat/completions",
                               "Origin: https://a.example\r\n"
                               "Access-Control-Request-Headers: x-stainless-os\r\n",
                               NULL, 0);
    assert_int_equal(a.status, 204);
    assert_non_null(strstr(a.text, "Access-Control-Allow-Headers: authorization, *\r\n"));
    answer_free(&a);
    assert_int_equal(server_stop(&own), 0);
}

static answer ask_as(const server *x, const char *key, const char *method, const char *path,
                     const char *body)
{
    char head[80];
    snprintf(head, sizeof head, "Authorization: Bearer %s\r\n", key);
    return client_ask_with(x->port, method, path, head, body, body ? strlen(body) : 0);
}

static server start_with_keys(const char *keys, const char *option, const char *value)
{
    static char path[128], word[160];
    snprintf(path, sizeof path, "%s/keys", tiny);
    snprintf(word, sizeof word, "tiny=%s", tiny);
    assert_int_equal(dra_file_write(path, keys, strlen(keys), NULL), DRA_OK);
    return server_start((const char *const[]){"--model", word, "--port", "0", "--api-key-file",
                                              path, option, value, NULL});
}

/* Of each key so many requests or tokens a minute; who has had them is told when to come again.
 * What is only looked at costs nothing. */
static void bounds_rates_of_keys(void **state)
{
    static const char ab[] = "{\"prompt\": \"ab\", \"max_tokens\": 8}";
    static const struct {
        const char *key, *method, *path, *body;
        int         status;
    } all[] = {
        {"k1", "POST", "/tokenize", "{\"prompt\": \"a\"}", 200},
        {"k1", "GET", "/v1/models", NULL, 200},
        {"k1", "POST", "/v1/completions", ab, 200},
        {"k1", "POST", "/v1/completions", ab, 429},
        {"k1b", "POST", "/tokenize", "{\"prompt\": \"a\"}", 429}, /* the same owner */
        {"k1", "GET", "/v1/models", NULL, 200},
        {"k2", "POST", "/v1/completions", ab, 200},
        {"k2", "POST", "/v1/completions", ab, 200},
        {"k2", "POST", "/v1/completions", ab, 200},
        {"k2", "POST", "/v1/completions", ab, 429},
        {"k3", "POST", "/v1/completions", ab, 200},
        {"k3", "POST", "/v1/completions", ab, 429}, /* ten tokens, and has had them */
        {"k3", "POST", "/tokenize", "{\"prompt\": \"a\"}", 429},
    };
    server own = start_with_keys("k1 Ann\nk1b Ann\nk2 Bob [requests=3] [admin]\n"
                                 "k3 Cy [tokens=5] [read-only] [requests=9]\n",
                                 "--key-requests", "2");
    assert_true(own.port > 0);
    for (size_t i = 0; i < COUNT(all); i++) {
        answer      a = ask_as(&own, all[i].key, all[i].method, all[i].path, all[i].body);
        const char *after = strstr(a.text, "Retry-After: ");
        if (a.status != all[i].status) fail_msg("%zu: %s", i, a.text);
        assert_int_equal(!after, a.status != 429);
        if (after) assert_in_range(strtol(after + 13, NULL, 10), 1, 72);
        if (after) assert_string_equal(answer_text(&a, "error.code"), "rate_limit_exceeded");
        answer_free(&a);
    }
    assert_int_equal(server_stop(&own), 0);
}

/* An admin sees whose states there are, and may take them away; others do not even ask. */
static void admins_see_states_of_others(void **state)
{
    server own = start_with_keys("k1 Ann\nk2 Bob\nk3\nroot [admin]\n", "--queue", "9");
    static const struct {
        const char *key, *method, *path, *body;
        int         status;
        const char *found; /* in the answer */
    } all[] = {
        {"k1", "POST", "/states/one", "{\"prompt\": \"abc\"}", 201, ""},
        {"k2", "POST", "/states/two", "{\"prompt\": \"abc\"}", 201, ""},
        {"k3", "POST", "/states/three", "{\"prompt\": \"abc\"}", 201, ""},
        {"k1", "GET", "/states?owner=*", NULL, 403, "not_an_admin_key"},
        {"k1", "GET", "/states/two?owner=Bob", NULL, 403, "not_an_admin_key"},
        {"k1", "DELETE", "/states/two?owner=Bob", NULL, 403, "not_an_admin_key"},
        {"root", "GET", "/states", NULL, 200, "\"data\": []"},
        {"root", "GET", "/states?owner=*", NULL, 200, "\"owner\": \"Ann\""},
        {"root", "GET", "/states?owner=*", NULL, 200, "\"owner\": \"Bob\""},
        {"root", "GET", "/states?owner=*", NULL, 200, "\"owner\": \"@"},
        {"root", "GET", "/states?owner=Bob", NULL, 200, "\"name\": \"two\""},
        {"root", "DELETE", "/states/two?owner=Ann", NULL, 404, ""},
        {"root", "DELETE", "/states/two?owner=Bob", NULL, 200, "true"},
        {"k2", "GET", "/states", NULL, 200, "\"data\": []"},
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        answer a = ask_as(&own, all[i].key, all[i].method, all[i].path, all[i].body);
        if (a.status != all[i].status || !strstr(a.body, all[i].found))
            fail_msg("%zu: %s", i, a.text);
        answer_free(&a);
    }
    assert_int_equal(server_stop(&own), 0);
}

static int status_with(const server *s, const char *key)
{
    static char headers[1000];
    snprintf(headers, sizeof headers, "Authorization: Bearer %s\r\n", key);
    answer    a = client_ask_with(s->port, "GET", "/v1/models", headers, NULL, 0);
    const int status = a.status;
    answer_free(&a);
    return status;
}

/* The next line that the server says; waits for it. */
static void read_line(const server *s, char *line, size_t size)
{
    size_t n = 0;
    while (n + 1 < size && read(s->log, line + n, 1) == 1 && line[n] != '\n') n++;
    line[n] = '\0';
}

static void takes_many_and_long_keys(void **state)
{
    enum { KEYS = 3000, LONG = 800 };
    static char text[KEYS * 12 + LONG + 2], longest[LONG + 1];
    char        path[128], word[160];
    size_t      n = 0;
    memset(longest, 'k', LONG);
    for (int i = 0; i < KEYS; i++) n += (size_t)snprintf(text + n, sizeof text - n, "key-%d\n", i);
    n += (size_t)snprintf(text + n, sizeof text - n, "%s", longest); /* without an end of line */
    snprintf(path, sizeof path, "%s/keys", tiny);
    snprintf(word, sizeof word, "tiny=%s", tiny);
    assert_int_equal(dra_file_write(path, text, n, NULL), DRA_OK);
    server own = server_start(
        (const char *const[]){"--model", word, "--port", "0", "--api-key-file", path, NULL});
    assert_int_equal(status_with(&own, "key-0"), 200);
    assert_int_equal(status_with(&own, "key-2999"), 200);
    assert_int_equal(status_with(&own, "key-3000"), 401);
    assert_int_equal(status_with(&own, longest), 200);
    longest[LONG - 1] = '\0';
    assert_int_equal(status_with(&own, longest), 401);
    assert_int_equal(server_stop(&own), 0);
}

/* On SIGHUP; a file that has none leaves the old ones. */
static void reads_keys_again(void **state)
{
    char path[128], word[160], line[400];
    snprintf(path, sizeof path, "%s/keys", tiny);
    snprintf(word, sizeof word, "tiny=%s", tiny);
    assert_int_equal(dra_file_write(path, "old\n", 4, NULL), DRA_OK);
    server own = server_start(
        (const char *const[]){"--model", word, "--port", "0", "--api-key-file", path, NULL});
    assert_int_equal(dra_file_write(path, "new\n", 4, NULL), DRA_OK);
    assert_int_equal(status_with(&own, "old"), 200);
    kill(own.pid, SIGHUP);
    read_line(&own, line, sizeof line);
    assert_non_null(strstr(line, "keys read again: 1"));
    assert_int_equal(status_with(&own, "old"), 401);
    assert_int_equal(status_with(&own, "new"), 200);
    assert_int_equal(dra_file_write(path, "# none\n", 7, NULL), DRA_OK);
    kill(own.pid, SIGHUP);
    read_line(&own, line, sizeof line);
    assert_non_null(strstr(line, "the old keys stay: "));
    assert_non_null(strstr(line, "expected a key in a line, found none"));
    assert_int_equal(status_with(&own, "new"), 200);
    assert_int_equal(server_stop(&own), 0);
    own = server_start((const char *const[]){"--model", word, "--port", "0", NULL});
    kill(own.pid, SIGHUP);
    int status = -1;
    assert_int_equal(waitpid(own.pid, &status, 0), own.pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(own.log);
}

static json_t *line_of(const char *text, const char *id)
{
    const char *at = strstr(text, id);
    while (at && at > text && at[-1] != '\n') at--;
    return at ? json_loads(at, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
}

static double number_of(json_t *line, const char *name)
{
    return json_number_value(json_object_get(line, name));
}

static void logs_requests(void **state)
{
    char   path[128], keys[128], word[160], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/log", tiny);
    snprintf(keys, sizeof keys, "%s/keys", tiny);
    snprintf(word, sizeof word, "tiny=%s", tiny);
    assert_int_equal(dra_file_write(keys, "secret Ann \"A\"\n", 15, NULL), DRA_OK);
    server own = server_start((const char *const[]){"--model", word, "--port", "0",
                                                    "--api-key-file", keys, "--log", path, NULL});
    answer a = client_ask_with(own.port, "POST", "/v1/completions",
                               "Authorization: Bearer secret\r\nX-Request-Id: mine-1\r\n",
                               "{\"prompt\": \"slow\", \"max_tokens\": 3}", 35);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.text, "\r\nX-Request-Id: mine-1\r\n"));
    answer_free(&a);
    a = client_ask_with(own.port, "GET", "/v1/models?key=x", "X-Request-Id: a\"b\r\n", NULL, 0);
    assert_int_equal(a.status, 401);
    const char *id = strstr(a.text, "X-Request-Id: ") + 14;
    assert_int_equal(strspn(id, "0123456789abcdef"), 16);
    char made[17];
    snprintf(made, sizeof made, "%.16s", id);
    answer_free(&a);
    static const char leaves[] =
        "POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Request-Id: gone\r\n"
        "Authorization: Bearer secret\r\nContent-Length: 36\r\n\r\n"
        "{\"prompt\": \"slow\", \"max_tokens\": 99}";
    const int fd = client_open(own.port);
    client_send(fd, leaves, sizeof leaves - 1);
    nap(150);
    close(fd);
    a = client_ask_with(own.port, "POST", "/v1/embeddings",
                        "Authorization: Bearer secret\r\nX-Request-Id: vector\r\n",
                        "{\"input\": \"abc\"}", 16);
    assert_int_equal(a.status, 200);
    answer_free(&a);
    char moved[160], said[400];
    snprintf(moved, sizeof moved, "%s.1", path);
    assert_int_equal(rename(path, moved), 0);
    kill(own.pid, SIGHUP); /* the file is made anew */
    read_line(&own, said, sizeof said);
    assert_int_equal(status_with(&own, "secret"), 200);
    assert_int_equal(server_stop(&own), 0);
    assert_int_equal(dra_file_read(path, 1 << 16, &text, &bytes, NULL), DRA_OK);
    assert_non_null(strstr(text, "\"/v1/models\""));
    assert_null(strstr(text, "mine-1"));
    free(text);
    assert_int_equal(dra_file_read(moved, 1 << 16, &text, &bytes, NULL), DRA_OK);
    json_t *line = line_of(text, "mine-1");
    assert_string_equal(json_string_value(json_object_get(line, "key")), "Ann \"A\"");
    assert_string_equal(json_string_value(json_object_get(line, "path")), "/v1/completions");
    assert_string_equal(json_string_value(json_object_get(line, "model")), "tiny");
    assert_int_equal(number_of(line, "status"), 200);
    assert_int_equal(number_of(line, "prompt_tokens"), 4);
    assert_int_equal(number_of(line, "completion_tokens"), 3);
    const double first = number_of(line, "first_token_seconds"), all = number_of(line, "seconds");
    if (!(first >= 0.019 && all >= first + 0.039 && all < 5)) fail_msg("%g %g", first, all);
    json_decref(line);
    line = line_of(text, "vector");
    assert_int_equal(number_of(line, "prompt_tokens"), 3);
    json_decref(line);
    line = line_of(text, made);
    assert_int_equal(number_of(line, "status"), 401);
    assert_true(json_is_null(json_object_get(line, "key")));
    assert_true(json_is_null(json_object_get(line, "prompt_tokens")));
    json_decref(line);
    line = line_of(text, "gone");
    assert_true(json_is_true(json_object_get(line, "left")));
    assert_true(json_is_null(json_object_get(line, "status")));
    assert_true(number_of(line, "completion_tokens") >= 1);
    json_decref(line);
    assert_null(strstr(text, "secret"));
    free(text);
}

/* Names of this machine, and what only looks like one. */
static void knows_its_own_names(void **state)
{
    static const struct {
        const char *host;
        int         status;
    } all[] = {{"LOCALHOST", 200},      {"localhost.", 200}, {"localhost:1", 200},
               {"[::1]:80", 200},       {"127.0.0.1", 200},  {"[::1].evil.example", 403},
               {"localhost.evil", 403}, {"[localhost", 403}, {"evil.example", 403}};
    for (size_t i = 0; i < COUNT(all); i++) {
        char      request[200];
        const int n = snprintf(request, sizeof request,
                               "GET /health HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                               all[i].host);
        const int fd = client_open(it.port);
        client_send(fd, request, (size_t)n);
        answer a = client_read(fd);
        if (a.status != all[i].status) fail_msg("%s: %s", all[i].host, a.text);
        answer_free(&a);
    }
}

/* Who has no key is told so after the head; the body is neither waited for nor kept. */
static void asks_for_keys_before_bodies(void **state)
{
    char path[128], word[160];
    snprintf(path, sizeof path, "%s/keys", tiny);
    snprintf(word, sizeof word, "tiny=%s", tiny);
    assert_int_equal(dra_file_write(path, "secret\n", 7, NULL), DRA_OK);
    server own = server_start(
        (const char *const[]){"--model", word, "--port", "0", "--api-key-file", path, NULL});
    static const struct {
        const char *head;
        int         status;
    } all[] = {
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n", 401},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
         "Authorization: Bearer wrong\r\nExpect: 100-continue\r\n",
         401},
        {"PUT /states/a HTTP/1.1\r\nHost: localhost\r\n", 401},
        {"POST /nothing HTTP/1.1\r\nHost: localhost\r\n", 404},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://b.example\r\n", 403}};
    for (size_t i = 0; i < COUNT(all); i++) {
        const int fd = client_open(own.port);
        client_send(fd, all[i].head, strlen(all[i].head));
        client_send(fd, "Content-Length: 8000000\r\n\r\n", 27);
        answer a = client_read(fd); /* no byte of the body was sent */
        if (a.status != all[i].status) fail_msg("%s: %s", all[i].head, a.text);
        assert_non_null(strstr(a.text, "Connection: close"));
        answer_free(&a);
    }
    answer a = client_ask_with(own.port, "POST", "/v1/completions",
                               "Authorization: Bearer secret\r\n", "{\"prompt\": \"ab\"}", 16);
    assert_int_equal(a.status, 200);
    answer_free(&a);
    assert_int_equal(server_stop(&own), 0);
}

static void needs_a_key_for_others(void **state)
{
    char word[160];
    int  status;
    snprintf(word, sizeof word, "tiny=%s", tiny);
    server own = server_start(
        (const char *const[]){"--model", word, "--port", "0", "--host", "0.0.0.0", NULL});
    assert_int_equal(own.port, 0);
    status = server_stop(&own);
    assert_true(status == 2 || status == -1);
}

/* SIGTERM: what runs is finished and kept, what is new is refused. */
static void drains(void **state)
{
    char word[160], folder[160], file[256];
    snprintf(word, sizeof word, "tiny=%s", tiny);
    snprintf(folder, sizeof folder, "%s/states", tiny);
    snprintf(file, sizeof file, "%s/tiny/kept.state", folder);
    static const char request[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\nContent-Length: 65\r\n\r\n"
                                  "{\"prompt\": \"slow\", \"max_tokens\": 30, "
                                  "\"dra_save_state\": \"kept\"}   ";
    const char *const words[] = {"--model", word, "--port", "0", "--state-dir", folder, NULL};
    server            own = server_start(words);
    const int         fd = client_open(own.port);
    client_send(fd, request, sizeof request - 1);
    nap(200);
    kill(own.pid, SIGTERM);
    answer a = client_read(fd);
    assert_int_equal(a.status, 200);
    assert_int_equal(answer_number(&a, "usage.completion_tokens"), 30);
    answer_free(&a);
    assert_int_equal(server_stop(&own), 0);
    assert_int_equal(access(file, R_OK), 0);
    own = server_start(words); /* and it is there again */
    a = client_ask(own.port, "GET", "/states", NULL);
    assert_string_equal(answer_text(&a, "data.0.name"), "kept");
    assert_true(json_is_false(answer_at(&a, "data.0.in_memory"))); /* its file is not read yet */
    answer_free(&a);
    a = client_ask(own.port, "POST", "/v1/completions",
                   "{\"prompt\": \"ab\", \"max_tokens\": 1, \"dra_state\": \"kept\"}");
    assert_int_equal(a.status, 200);
    answer_free(&a);
    a = client_ask(own.port, "GET", "/states", NULL);
    assert_true(json_is_true(answer_at(&a, "data.0.in_memory")));
    assert_int_equal(answer_number(&a, "data.0.tokens"), 34);
    answer_free(&a);
    a = client_ask(own.port, "DELETE", "/states/kept", NULL);
    answer_free(&a);
    assert_int_equal(server_stop(&own), 0);
    assert_true(access(file, R_OK) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(notices_clients_that_leave, start),
        cmocka_unit_test(large_bodies_stop_nobody),
        cmocka_unit_test(large_bodies_wait_in_a_queue),
        cmocka_unit_test(answers_429_when_full),
        cmocka_unit_test(bounds_connections),
        cmocka_unit_test(holds_a_thousand_connections),
        cmocka_unit_test(stops_reading_who_does_not_read),
        cmocka_unit_test(goes_on_when_answers_are_taken),
        cmocka_unit_test(ends_slow_requests),
        cmocka_unit_test(keeps_states),
        cmocka_unit_test(carries_states),
        cmocka_unit_test(refuses_names),
        cmocka_unit_test(figures_can_be_parsed),
        cmocka_unit_test(asks_for_keys),
        cmocka_unit_test(bounds_rates_of_keys),
        cmocka_unit_test(admins_see_states_of_others),
        cmocka_unit_test(takes_many_and_long_keys),
        cmocka_unit_test(reads_keys_again),
        cmocka_unit_test(logs_requests),
        cmocka_unit_test(knows_its_own_names),
        cmocka_unit_test(asks_for_keys_before_bodies),
        cmocka_unit_test(needs_a_key_for_others),
        cmocka_unit_test(drains),
        cmocka_unit_test(ends_well),
    };
    return check_main("limits", NULL, 0, tests, COUNT(tests));
}
