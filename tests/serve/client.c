/* A server as a process of its own, and requests to it over sockets. */
#include "client.h"

#undef COUNT
#include "options/options.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern const cli_verb cmd_serve;

static void nap(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

/* ---- the server ------------------------------------------------------------------------------ */

static char folders[8][64];
static int  n_folders;

static void remove_folders(void)
{
    char command[640];
    for (int i = 0; i < n_folders; i++) {
        snprintf(command, sizeof command, "rm -rf %s", folders[i]);
        if (system(command) != 0) return;
    }
}

const char *server_model(const char *preset)
{
    char *folder = folders[n_folders++], path[128];
    CHECK_CONFIG(c);
    dra_model   *m = NULL;
    dra_weights *w = NULL;
    if (n_folders == 1) atexit(remove_folders);
    snprintf(folder, sizeof folders[0],
             "/tmp/dra-serve-test-"
             "XX"
             "XX"
             "XX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(dra_preset_config(preset, &c, NULL), DRA_OK);
    assert_int_equal(dra_model_create(c, &m, NULL), DRA_OK);
    assert_int_equal(dra_weights_draw(m, 7, &w, NULL), DRA_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(dra_folder_save_config(folder, c, NULL), DRA_OK);
    assert_int_equal(dra_weights_save(w, path, NULL), DRA_OK);
    dra_weights_destroy(w);
    dra_model_destroy(m);
    return folder;
}

/* In a process of its own, which removes no folders. */
static int run_verb(const cli_verb *verb, const char *const *words)
{
    char  why[CLI_WHY];
    char *args = calloc(1, verb->args_size);
    int   n = 0;
    while (words[n]) n++;
    n_folders = 0;
    if (cli_parse(verb, n, (char *const *)(uintptr_t)words, args, why) != CLI_PARSED) {
        dprintf(STDERR_FILENO, "%s\n", why);
        return CLI_USAGE;
    }
    const int status = verb->run(args);
    cli_release(verb, args);
    free(args);
    return status;
}

int client_verb(const cli_verb *verb, const char *out, const char *const *words)
{
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        if (!freopen(out, "w", stdout)) exit(CLI_FAILED);
        exit(run_verb(verb, words));
    }
    const bool ended = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status);
    return ended ? WEXITSTATUS(status) : -1;
}

/* The port that the server says; 0: it says something else. */
static int port_of(int log)
{
    char   line[256] = "";
    size_t n = 0;
    while (n + 1 < sizeof line && read(log, line + n, 1) == 1 && line[n] != '\n') n++;
    line[n] = '\0';
    const char *colon = strrchr(line, ':');
    return strstr(line, "http://") && colon ? (int)strtol(colon + 1, NULL, 10) : 0;
}

server server_start(const char *const *words)
{
    server s = {0};
    int    ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    s.pid = fork();
    if (s.pid == 0) {
        close(ends[0]);
        dup2(ends[1], STDERR_FILENO);
        exit(run_verb(&cmd_serve, words));
    }
    close(ends[1]);
    s.log = ends[0];
    s.port = port_of(s.log);
    for (int i = 0; s.port && i < 3000; i++) {
        answer     a = client_ask(s.port, "GET", "/health", NULL);
        const bool ready = a.status == 200;
        answer_free(&a);
        if (ready) return s;
        nap(10);
    }
    return s;
}

int server_stop(server *s)
{
    int status = 0;
    kill(s->pid, SIGTERM);
    const bool ended = waitpid(s->pid, &status, 0) == s->pid && WIFEXITED(status);
    close(s->log);
    return ended ? WEXITSTATUS(status) : -1;
}

/* ---- requests -------------------------------------------------------------------------------- */

int client_open(int port)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int                fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof to) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

bool client_send(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        const ssize_t n = send(fd, text, bytes, MSG_NOSIGNAL);
        if (n <= 0) return false;
        text += n;
        bytes -= (size_t)n;
    }
    return true;
}

answer client_read(int fd)
{
    answer a = {0};
    size_t room = 0;
    for (;;) {
        struct pollfd wait = {fd, POLLIN, 0};
        if (a.bytes + 4096 > room) a.text = realloc(a.text, room = 2 * room + 8192);
        if (poll(&wait, 1, 60000) <= 0) break;
        const ssize_t n = read(fd, a.text + a.bytes, 4095);
        if (n <= 0) break;
        a.bytes += (size_t)n;
    }
    close(fd);
    a.text[a.bytes] = '\0';
    if (strncmp(a.text, "HTTP/1.1 ", 9) == 0) a.status = (int)strtol(a.text + 9, NULL, 10);
    const char *end = strstr(a.text, "\r\n\r\n");
    a.body = end ? end + 4 : "";
    char why[160];
    if (end) a.json = serve_json_read(a.body, strlen(a.body), why);
    return a;
}

void answer_free(answer *a)
{
    json_decref(a->json);
    free(a->text);
    *a = (answer){0};
}

answer client_ask_with(int port, const char *method, const char *path, const char *headers,
                       const char *body, size_t bytes)
{
    char      head[2048];
    const int fd = client_open(port);
    if (fd < 0) return (answer){.text = calloc(1, 1), .body = ""};
    const int n = snprintf(head, sizeof head,
                           "%s %s HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n"
                           "Content-Length: %zu\r\n%s\r\n",
                           method, path, port, bytes, headers);
    if (client_send(fd, head, (size_t)n) && bytes) client_send(fd, body, bytes);
    return client_read(fd);
}

answer client_ask(int port, const char *method, const char *path, const char *body)
{
    return client_ask_with(port, method, path, "", body, body ? strlen(body) : 0);
}

/* ---- answers --------------------------------------------------------------------------------- */

static json_t *at_path(json_t *x, const char *path)
{
    char key[64];
    while (x && *path) {
        const size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        path += n + (path[n] == '.');
        x = json_is_array(x) ? json_array_get(x, strtoul(key, NULL, 10)) : json_object_get(x, key);
    }
    return x;
}

json_t *answer_at(const answer *a, const char *path) { return at_path(a->json, path); }

const char *answer_text(const answer *a, const char *path)
{
    json_t *x = answer_at(a, path);
    return json_is_string(x) ? json_string_value(x) : "";
}

double answer_number(const answer *a, const char *path)
{
    json_t *x = answer_at(a, path);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

char *answer_stream(const answer *a, bool chat)
{
    char *out = calloc(1, a->bytes + 1), why[160];
    for (const char *at = a->text; (at = strstr(at, "data: {")); at++) {
        json_t *x = serve_json_read(at + 6, strcspn(at, "\n") - 6, why);
        json_t *text = x ? at_path(x, chat ? "choices.0.delta.content" : "choices.0.text") : NULL;
        if (json_is_string(text))
            snprintf(out + strlen(out), a->bytes - strlen(out), "%s", json_string_value(text));
        json_decref(x);
    }
    return out;
}
