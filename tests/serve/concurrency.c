/* A table by concurrency against a server of its own: concurrency MODEL DRA [TOKENS [SECONDS]]. 1
 * to 32 clients ask for streams of TOKENS (64) tokens, one after another for SECONDS (6), by HTTP.
 * Prints tokens per second, seconds of requests, and the time between two tokens of a stream, which
 * is that between two events as they arrive; before it, tokens per second of DRA generate, by the
 * difference of a short and a long text. Judges nothing. */
#include "client.h"
#include "timing.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLIENTS = 32, MOST = 1 << 18 };

typedef struct times {
    double *at;
    size_t  n;
} times;

typedef struct work {
    int             port, tokens;
    double          until;
    pthread_mutex_t lock; /* of the rest */
    times           requests, gaps;
    long            written, failed;
    int             seed;
} work;

static void add(times *t, double x)
{
    if (t->n < MOST) t->at[t->n++] = x;
}

/* Reads a stream to its end; own: room for the times between its events. Returns how many there
 * were, -1: it was none. */
static long read_stream(int fd, times *own)
{
    char   text[1 << 16];
    size_t have = 0;
    double last = 0;
    long   events = 0;
    bool   done = false;
    for (ssize_t n; !done && (n = read(fd, text + have, sizeof text - 1 - have)) > 0;) {
        have += (size_t)n;
        text[have] = '\0';
        char *at = text;
        for (char *end; (end = strstr(at, "\n\n")); at = end + 2) {
            const char *data = strstr(at, "data: ");
            if (!data || data > end) continue;
            done = strncmp(data, "data: [DONE]", 12) == 0;
            if (done) break;
            const double t = now();
            if (last > 0) add(own, t - last);
            last = t;
            events++;
        }
        have -= (size_t)(at - text);
        memmove(text, at, have);
        if (have + 1 == sizeof text) have = 0;
    }
    return done ? events : -1;
}

static bool ask(work *w, int seed, times *own)
{
    char      head[512], body[256];
    const int fd = client_open(w->port);
    const int n = snprintf(
        body, sizeof body,
        "{\"prompt\": \"Once upon a time %d\", \"max_tokens\": %d, \"seed\": %d, "
        "\"stream\": true}",
        seed, w->tokens, seed);
    const int h = snprintf(head, sizeof head,
                           "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                           "Connection: close\r\nContent-Length: %d\r\n\r\n",
                           n);
    if (fd < 0) return false;
    own->n = 0;
    const bool well = client_send(fd, head, (size_t)h) && client_send(fd, body, (size_t)n) &&
                      read_stream(fd, own) >= 0;
    close(fd);
    return well;
}

static void *client(void *user)
{
    work *w = user;
    times own = {malloc(MOST * sizeof *own.at), 0};
    while (now() < w->until) {
        pthread_mutex_lock(&w->lock);
        const int seed = w->seed++;
        pthread_mutex_unlock(&w->lock);
        const double began = now();
        const bool   well = ask(w, seed, &own);
        pthread_mutex_lock(&w->lock);
        if (well) add(&w->requests, now() - began);
        for (size_t i = 0; well && i < own.n; i++) add(&w->gaps, own.at[i]);
        w->written += well ? w->tokens : 0;
        w->failed += !well;
        pthread_mutex_unlock(&w->lock);
    }
    free(own.at);
    return NULL;
}

static double run(int port, int clients, int tokens, double seconds, double first)
{
    pthread_t    thread[CLIENTS];
    const double began = now();
    work         w = {.port = port, .tokens = tokens, .until = began + seconds};
    w.requests.at = malloc(MOST * sizeof *w.requests.at);
    w.gaps.at = malloc(MOST * sizeof *w.gaps.at);
    pthread_mutex_init(&w.lock, NULL);
    for (int i = 0; i < clients; i++) pthread_create(&thread[i], NULL, client, &w);
    for (int i = 0; i < clients; i++) pthread_join(thread[i], NULL);
    const double rate = (double)w.written / (now() - began);
    printf("%7d %10.1f %6.1f x %9.0f %8.0f %9.1f %8.1f\n", clients, rate,
           first > 0 ? rate / first : 1, 1e3 * quantile(w.requests.at, w.requests.n, 0.5),
           1e3 * quantile(w.requests.at, w.requests.n, 0.99),
           1e3 * quantile(w.gaps.at, w.gaps.n, 0.5), 1e3 * quantile(w.gaps.at, w.gaps.n, 0.99));
    if (w.failed) printf("        %ld requests failed\n", w.failed);
    fflush(stdout);
    pthread_mutex_destroy(&w.lock);
    free(w.requests.at);
    free(w.gaps.at);
    return rate;
}

static double generate(const char *dra, const char *model, int tokens)
{
    char         command[1024];
    const double began = now();
    snprintf(command, sizeof command,
             "'%s' generate --model '%s' --prompt Once --tokens %d --ignore-end >/dev/null", dra,
             model, tokens);
    return system(command) == 0 ? now() - began : 0;
}

static void run_peer(const char *dra, const char *model)
{
    enum { SHORT = 16, LONG = 272, TIMES = 3 };
    double rate[TIMES];
    times  t = {rate, 0};
    for (int i = 0; i < TIMES; i++) {
        const double few = generate(dra, model, SHORT), many = generate(dra, model, LONG);
        add(&t, (LONG - SHORT) / (many - few));
    }
    printf("dra generate: %.1f tokens/s\n", quantile(t.at, t.n, 0.5));
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: concurrency MODEL DRA [TOKENS [SECONDS]]\n", stderr);
        return 2;
    }
    const int    tokens = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 64;
    const double seconds = argc > 4 ? strtod(argv[4], NULL) : 6;
    run_peer(argv[2], argv[1]);
    server s = server_start(
        (const char *const[]){"--model", argv[1], "--port", "0", "--slots", "32", NULL});
    double first = 0;
    if (!s.port) return 1;
    printf("         tokens/s   to one   request p50, p99 ms   token p50, p99 ms\n");
    for (int n = 1; n <= CLIENTS; n *= 2) {
        const double rate = run(s.port, n, tokens, seconds, first);
        if (n == 1) first = rate;
        if (rate == 0) break;
    }
    return server_stop(&s);
}
