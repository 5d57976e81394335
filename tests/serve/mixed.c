/* Many requests of all kinds at a time. Good ones come from a small table, so that the answer of
 * each is known from a run of it alone; between them clients leave, send nonsense, and make, fork,
 * read from and delete states. Where the server has keys, half of them use one, half another, and
 * some ask for what is another's, or for more than a limit allows. */
#include "mixed.h"
#include "timing.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GOOD = 32, BODY = 2048, TIMES = 1 << 14, LONG = 700 /* tokens of a state in pieces */ };

const mixed_keys mixed_some_keys = {.text = "sk-one Ann [admin]\nsk-two Bob\n"
                                            "sk-three Cid [read-only]\n"
                                            "sk-four Dan [requests=30]\nsk-five Eve\n",
                                    .admin = "sk-one",
                                    .other = "sk-two",
                                    .reads = "sk-three",
                                    .rated = "sk-four",
                                    .full = "sk-five",
                                    .names = 160,
                                    .prompt = 3000,
                                    .body = 16384};

typedef struct good {
    char path[32], body[BODY], *expected;
    int  tokens;
} good;

struct mixed {
    pthread_mutex_t   lock;
    const mixed_keys *keys;
    int               port;
    long              left;
    uint64_t          seed;
    good              all[GOOD];
    char             *after_state[GOOD]; /* the answer to request i after a state of request 0 */
    char             *after_long[GOOD];  /* the same after a long one */
    mixed_report      report;
    double            times[TIMES];
    long              n_times;
};

static uint64_t draw(uint64_t *x) /* splitmix64 */
{
    uint64_t z = *x += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* ---- requests -------------------------------------------------------------------------------- */

static void put_words(char *to, size_t letters, uint64_t *x)
{
    for (size_t i = 0; i < letters; i++) to[i] = "etaoin shrdlu"[draw(x) % 13];
    to[letters] = '\0';
}

static void make_good(good *g, int i)
{
    static const char *const ways[] = {"\"temperature\": 0", "\"temperature\": 0.8, \"top_p\": 0.9",
                                       "\"top_k\": 20",
                                       "\"min_p\": 0.02, \"presence_penalty\": 0.5"};
    char                     text[BODY / 2];
    uint64_t                 x = (uint64_t)i + 17;
    const bool               chat = i % 4 == 3;
    g->tokens = 1 + (int)(draw(&x) % 24);
    put_words(text, 1 + draw(&x) % (i % 5 == 0 ? 700 : 90), &x);
    snprintf(g->path, sizeof g->path, "%s", chat ? "/v1/chat/completions" : "/v1/completions");
    snprintf(g->body, sizeof g->body,
             chat ? "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}], \"seed\": %d, "
                    "\"max_tokens\": %d, %s%s"
                  : "{\"prompt\": \"%s\", \"seed\": %d, \"max_tokens\": %d, %s%s",
             text, i, g->tokens, ways[i % 4 == 3 ? 1 : i % 4],
             chat         ? ""
             : i % 3 == 0 ? ", \"logprobs\": 3"
             : i % 3 == 1 ? ", \"n\": 2"
                          : ", \"stop\": [\"ee\", \"th\"]");
}

/* What counts of an answer: its choices. NULL: it is none. */
static char *choices_of(const answer *a)
{
    const char *from = a->status == 200 ? strstr(a->body, "\"choices\"") : NULL;
    const char *to = from ? strstr(from, ", \"usage\"") : NULL;
    char       *out = to ? calloc(1, (size_t)(to - from) + 1) : NULL;
    if (out) memcpy(out, from, (size_t)(to - from));
    return out;
}

static answer ask_as(const mixed *w, const char *key, const char *method, const char *path,
                     const char *body)
{
    char headers[100] = "";
    if (key) snprintf(headers, sizeof headers, "Authorization: Bearer %s\r\n", key);
    return client_ask_with(w->port, method, path, headers, body, body ? strlen(body) : 0);
}

answer mixed_ask(const mixed *w, const char *method, const char *path, const char *body)
{
    return ask_as(w, w->keys ? w->keys->admin : NULL, method, path, body);
}

/* One of the two that may do anything. */
static const char *key_of(const mixed *w, uint64_t own)
{
    if (!w->keys) return NULL;
    return own % 2 ? w->keys->other : w->keys->admin;
}

static answer ask_good(const mixed *w, const char *key, const good *g, const char *more)
{
    char body[BODY + 128];
    snprintf(body, sizeof body, "%s%s}", g->body, more);
    return ask_as(w, key, "POST", g->path, body);
}

static void note_wrong(mixed *w, const char *what, const answer *a)
{
    pthread_mutex_lock(&w->lock);
    if (!w->report.wrong++)
        snprintf(w->report.first, sizeof w->report.first, "%.200s: %.250s", what,
                 a->body[0] ? a->body : "(no answer)");
    pthread_mutex_unlock(&w->lock);
}

static void add(mixed *w, long *count)
{
    pthread_mutex_lock(&w->lock);
    ++*count;
    pthread_mutex_unlock(&w->lock);
}

/* Returns whether it was answered; 429 is a way to do so. */
static bool compare(mixed *w, answer *a, const char *expected, const char *what)
{
    char *choices = choices_of(a);
    bool  well = choices && strcmp(choices, expected) == 0;
    if (a->status == 429)
        add(w, &w->report.busy);
    else if (!well)
        note_wrong(w, what, a);
    free(choices);
    answer_free(a);
    return well;
}

/* ---- what clients do ------------------------------------------------------------------------- */

static void do_good(mixed *w, uint64_t *x)
{
    const good  *g = &w->all[draw(x) % GOOD];
    const double began = now();
    answer       a = ask_good(w, key_of(w, draw(x)), g, "");
    if (!compare(w, &a, g->expected, g->body)) return;
    pthread_mutex_lock(&w->lock);
    w->report.good++;
    w->report.tokens += g->tokens;
    w->times[w->n_times++ % TIMES] = now() - began;
    pthread_mutex_unlock(&w->lock);
}

/* Leaves at any moment: with half of the request sent, while it waits, in a stream. */
static void do_leave(mixed *w, uint64_t *x)
{
    const good *g = &w->all[draw(x) % GOOD];
    char        text[BODY + 512], some[256], key[100] = "";
    const int   fd = client_open(w->port);
    if (fd < 0) return;
    if (w->keys) snprintf(key, sizeof key, "Authorization: Bearer %s\r\n", key_of(w, draw(x)));
    const int n = snprintf(text, sizeof text,
                           "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n"
                           "%s, \"stream\": true}",
                           g->path, key, strlen(g->body) + 17, g->body);
    client_send(fd, text, draw(x) % 3 ? (size_t)n : (size_t)(draw(x) % (uint64_t)n));
    nanosleep(&(struct timespec){0, (long)(draw(x) % 5000000)}, NULL);
    if (draw(x) % 2 && recv(fd, some, sizeof some, MSG_DONTWAIT) < 0)
        nanosleep(&(struct timespec){0, 100000}, NULL);
    close(fd);
    add(w, &w->report.cancelled);
}

static void do_bad(mixed *w, uint64_t *x)
{
    char   body[BODY];
    size_t n = 1 + draw(x) % 200;
    snprintf(body, sizeof body, "%s}", w->all[draw(x) % GOOD].body);
    if (n > strlen(body)) n = strlen(body);
    for (size_t i = 0; i < 3; i++) body[draw(x) % n] = "{}[]\",:\\x0"[draw(x) % 10];
    body[n - 1] = '{';
    body[n] = '\0';
    answer a = ask_as(w, key_of(w, draw(x)), "POST", "/v1/completions", body);
    if (a.status != 400) note_wrong(w, body, &a);
    answer_free(&a);
    add(w, &w->report.bad);
}

static void put_long(char *body)
{
    char   text[LONG + 1];
    size_t i = 0;
    for (; i < LONG; i++) text[i] = "etaoin shrdlu"[(i * i + i / 5) % 13];
    text[i] = '\0';
    snprintf(body, BODY, "{\"prompt\": \"%s\"}", text);
}

/* Asks and forgets the answer. Returns its status. */
static int status_as(const mixed *w, const char *key, const char *method, const char *path,
                     const char *body)
{
    answer    a = ask_as(w, key, method, path, body);
    const int status = a.status;
    answer_free(&a);
    return status;
}

/* A state of request 0, or a long one, forked; the fork is read from, both go. */
static void do_states(mixed *w, uint64_t *x, int own)
{
    const char *key = key_of(w, (uint64_t)own);
    char        path[64], more[64], body[BODY];
    const int   i = 4 * (int)(draw(x) % (GOOD / 4)) + 1;
    const bool  grown = w->keys && draw(x) % 4 == 0;
    snprintf(path, sizeof path, "/states/a%d", own);
    snprintf(body, sizeof body, "{\"prompt\": \"state of %d\"}", 0);
    if (grown) put_long(body);
    answer a = ask_as(w, key, "POST", path, body);
    bool   well = a.status == 201;
    if (!well && a.status != 429) note_wrong(w, path, &a);
    answer_free(&a);
    snprintf(body, sizeof body, "{\"to\": \"b%d\"}", own);
    snprintf(path, sizeof path, "/states/a%d/fork", own);
    if (well) well = status_as(w, key, "POST", path, body) == 201;
    snprintf(path, sizeof path, "/states/a%d", own);
    if (well && grown) status_as(w, key, "DELETE", path, NULL); /* what the fork shares stays */
    snprintf(more, sizeof more, ", \"dra_state\": \"b%d\"", own);
    const char *expected = grown ? w->after_long[i] : w->after_state[i];
    if (well && expected) {
        a = ask_good(w, key, &w->all[i], more);
        compare(w, &a, expected, "after a state");
    }
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "/states/%c%d", "ab"[k], own);
        status_as(w, key, "DELETE", path, NULL);
    }
    add(w, &w->report.states);
}

/* ---- keys and limits ------------------------------------------------------------------------- */

static void expect(mixed *w, const char *key, const char *method, const char *path,
                   const char *body, int status)
{
    answer a = ask_as(w, key, method, path, body);
    if (a.status != status) note_wrong(w, path, &a);
    answer_free(&a);
}

/* What is one's is not another's. */
static void ask_for_anothers(mixed *w, int own)
{
    const mixed_keys *k = w->keys;
    char              path[64], body[100];
    snprintf(path, sizeof path, "/states/mine%d", own);
    snprintf(body, sizeof body, "{\"prompt\": \"a\", \"dra_state\": \"mine%d\"}", own);
    if (status_as(w, k->admin, "POST", path, "{\"prompt\": \"mine\"}") != 201) return;
    expect(w, k->other, "GET", path, NULL, 404);
    expect(w, k->other, "DELETE", path, NULL, 404);
    expect(w, k->other, "POST", "/v1/completions", body, 404);
    expect(w, k->admin, "DELETE", path, NULL, 200);
}

/* One that only reads, one that nobody has, and figures that are an admin's. */
static void ask_without_right(mixed *w)
{
    expect(w, w->keys->reads, "POST", "/states/none", "{\"prompt\": \"a\"}", 403);
    expect(w, w->keys->other, "GET", "/metrics", NULL, 403);
    expect(w, "sk-none", "POST", "/v1/completions", "{\"prompt\": \"a\"}", 401);
}

static void ask_too_much(mixed *w, uint64_t *x)
{
    const bool   tokens = draw(x) % 2;
    const size_t n = tokens ? w->keys->prompt + 1 : w->keys->body;
    char        *body = malloc(n + 64);
    char        *at = body + snprintf(body, 64, "{\"max_tokens\": 1, \"prompt\": \"");
    memset(at, 'e', n);
    memcpy(at + n, "\"}", 3);
    expect(w, w->keys->other, "POST", "/v1/completions", body, tokens ? 400 : 413);
    free(body);
}

/* As many as a key may ask in a minute; what is answered is right. */
static void ask_too_often(mixed *w, uint64_t *x)
{
    const good *g = &w->all[draw(x) % GOOD];
    answer      a = ask_good(w, w->keys->rated, g, "");
    compare(w, &a, g->expected, "a key with a rate");
}

/* More names than a key may have: 507 for some; of others, some go. */
static void keep_too_many(mixed *w, uint64_t *x)
{
    enum { NAMES = 400, EACH = 6 };
    for (int i = 0; i < EACH; i++) {
        char       path[64];
        const bool goes = i % 3 == 2;
        snprintf(path, sizeof path, "/states/q%d", (int)(draw(x) % NAMES));
        answer     a = ask_as(w, w->keys->full, goes ? "DELETE" : "POST", path,
                          goes ? NULL : "{\"prompt\": \"q\"}");
        const bool well = goes ? a.status == 200 || a.status == 404
                               : a.status == 201 || a.status == 507 || a.status == 429;
        if (!well) note_wrong(w, path, &a);
        answer_free(&a);
    }
}

static void do_limits(mixed *w, uint64_t *x, int own)
{
    switch (draw(x) % 5) {
    case 0: ask_for_anothers(w, own); break;
    case 1: ask_without_right(w); break;
    case 2: ask_too_much(w, x); break;
    case 3: ask_too_often(w, x); break;
    default: keep_too_many(w, x); break;
    }
    add(w, &w->report.limits);
}

static void *client(void *user)
{
    mixed *w = user;
    pthread_mutex_lock(&w->lock);
    uint64_t  x = w->seed++;
    const int own = (int)(x & 0xffff);
    pthread_mutex_unlock(&w->lock);
    for (;;) {
        pthread_mutex_lock(&w->lock);
        const bool more = w->left-- > 0;
        pthread_mutex_unlock(&w->lock);
        if (!more) return NULL;
        const uint64_t what = draw(&x) % (w->keys ? 24 : 20);
        if (what < 12)
            do_good(w, &x);
        else if (what < 15)
            do_leave(w, &x);
        else if (what < 18)
            do_bad(w, &x);
        else if (what < 20)
            do_states(w, &x, own);
        else
            do_limits(w, &x, own);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* The answers after a state that `body` makes. */
static void learn_after(mixed *w, const char *body, char **after)
{
    answer a = mixed_ask(w, "POST", "/states/alone", body);
    answer_free(&a);
    for (int i = 1; i < GOOD; i += 4) {
        a = ask_good(w, key_of(w, 0), &w->all[i], ", \"dra_state\": \"alone\"");
        after[i] = choices_of(&a);
        answer_free(&a);
    }
    a = mixed_ask(w, "DELETE", "/states/alone", NULL);
    answer_free(&a);
}

static void learn(mixed *w)
{
    char body[BODY];
    for (int i = 0; i < GOOD; i++) {
        make_good(&w->all[i], i);
        answer a = ask_good(w, key_of(w, 0), &w->all[i], "");
        w->all[i].expected = choices_of(&a);
        if (!w->all[i].expected) note_wrong(w, w->all[i].body, &a);
        answer_free(&a);
    }
    learn_after(w, "{\"prompt\": \"state of 0\"}", w->after_state);
    put_long(body);
    if (w->keys) learn_after(w, body, w->after_long);
}

mixed *mixed_open(int port, const mixed_keys *keys)
{
    mixed *w = calloc(1, sizeof *w);
    w->port = port;
    w->keys = keys;
    pthread_mutex_init(&w->lock, NULL);
    learn(w);
    return w;
}

mixed_report mixed_run(mixed *w, long n, int threads, uint64_t seed)
{
    pthread_t    thread[64];
    const double began = now();
    w->left = n;
    w->seed = seed;
    w->n_times = 0;
    if (threads > 64) threads = 64;
    if (w->report.wrong) threads = 0; /* of those alone */
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, client, w);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    mixed_report r = w->report;
    w->report = (mixed_report){0};
    r.seconds = now() - began;
    const size_t times = (size_t)(w->n_times < TIMES ? w->n_times : TIMES);
    r.p50 = quantile(w->times, times, 0.5);
    r.p99 = quantile(w->times, times, 0.99);
    return r;
}

void mixed_close(mixed *w)
{
    for (int i = 0; i < GOOD; i++) {
        free(w->all[i].expected);
        free(w->after_state[i]);
        free(w->after_long[i]);
    }
    pthread_mutex_destroy(&w->lock);
    free(w);
}
