/* A long run of mixed requests, with keys, states on a disk and limits, against a server of its
 * own: campaign [REQUESTS [CLIENTS [PRESET]]].
 * First, counted apart, the server gets to know all it will: prompts fill the states up to
 * --memory-limit, and mixed requests go on until 1500 of them lead to no new program and
 * no more memory. Then come the requests, in tenths, a line of a table for each. Fails where an
 * answer differs from that of a lonely run on the fresh server, where the server does not end well,
 * or where its memory after any tenth is GROWTH more than after warming up. */
#include "mixed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What may come late: a program or two that no warming up has met, for a batch and a length of
 * texts that are rare together, 0.2 to 0.4 MiB each; and arenas of malloc, which take a few pages
 * more when many answers are long at the same time. A leak of 64 bytes a request is three times
 * this in 10^5. */
enum { GROWTH = 2048 /* KiB */ };
enum { TENTHS = 10, ROUND = 500, ROUNDS = 40, QUIET = 3, FILL = 1000 };

/* The sanitizer keeps freed memory in a quarantine of 256 MiB, which fills during all of a campaign
 * and looks like growth: here it is full after warming up. */
#if defined(__SANITIZE_ADDRESS__)
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=8:thread_local_quarantine_size_kb=64";
}
#endif

/* What the thread sanitizer remembers of every address is in the process, too, and has no limit. */
#if defined(__SANITIZE_THREAD__)
enum { JUDGED = false };
#else
enum { JUDGED = true };
#endif

typedef struct facts { /* of the server */
    long   kib;        /* resident */
    double states;     /* bytes */
    double programs;
} facts;

static long resident_kib(pid_t pid)
{
    char   path[64], *text = NULL, *next;
    size_t bytes = 0;
    long   pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    if (dra_file_read(path, 4096, &text, &bytes, NULL) == DRA_OK) {
        strtol(text, &next, 10);
        pages = strtol(next, NULL, 10);
    }
    free(text);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static double figure(const answer *a, const char *name)
{
    const char *at = a->status == 200 ? strstr(a->body, name) : NULL;
    const char *space = at ? strchr(at, ' ') : NULL;
    return space ? strtod(space, NULL) : 0;
}

static facts look(const server *s, const mixed *m)
{
    answer      a = mixed_ask(m, "GET", "/metrics", NULL);
    const facts f = {resident_kib(s->pid), figure(&a, "dra_state_bytes{"),
                     figure(&a, "dra_programs{")};
    answer_free(&a);
    return f;
}

/* Which limits have acted, and how often. */
static void print_limits(const mixed *m)
{
    static const char name[] = "\ndra_limits_total{limit=\"";
    answer            a = mixed_ask(m, "GET", "/metrics", NULL);
    printf("limits");
    for (const char *at = a.body; (at = strstr(at, name));) {
        at += sizeof name - 1;
        const long n = strtol(at + strcspn(at, "}") + 1, NULL, 10);
        if (n) printf(" %.*s %ld", (int)strcspn(at, "\""), at, n);
    }
    printf("\n");
    answer_free(&a);
}

/* ---- warming up ------------------------------------------------------------------------------ */

/* Prompts that none before begins with, until kept states are dropped for new ones. */
static void fill(const server *s, const mixed *m)
{
    char   body[1024];
    double most = 0;
    for (int i = 0, stays = 0; i < FILL && stays < 8; i++) {
        const int n = snprintf(body, sizeof body, "{\"prompt\": \"%d", i);
        memset(body + n, 'a' + i % 26, 700);
        snprintf(body + n + 700, sizeof body - (size_t)n - 700, "\", \"max_tokens\": 2}");
        answer a = mixed_ask(m, "POST", "/v1/completions", body);
        answer_free(&a);
        const double states = look(s, m).states;
        stays = states > most ? 0 : stays + 1;
        if (states > most) most = states;
    }
}

static long count(const mixed_report *r)
{
    return r->good + r->cancelled + r->bad + r->states + r->limits;
}

static void print(const char *when, const mixed_report *r, const facts *f)
{
    printf("%-6s %8ld %6ld %5ld %5ld %5ld %6ld %4ld %5ld %8.0f %7.1f %7.1f %8ld %7.0f %5.0f\n",
           when, count(r), r->good, r->cancelled, r->bad, r->states, r->limits, r->busy, r->wrong,
           (double)r->tokens / r->seconds, 1e3 * r->p50, 1e3 * r->p99, f->kib, f->states / 1024,
           f->programs);
    if (r->wrong) printf("       %s\n", r->first);
    fflush(stdout);
}

/* Adds what was done, of two reports; quantiles are those of the second. */
static void add(mixed_report *sum, const mixed_report *r)
{
    mixed_report all = *r;
    all.good += sum->good;
    all.cancelled += sum->cancelled;
    all.bad += sum->bad;
    all.states += sum->states;
    all.limits += sum->limits;
    all.busy += sum->busy;
    all.tokens += sum->tokens;
    all.seconds += sum->seconds;
    all.wrong += sum->wrong;
    if (sum->wrong) memcpy(all.first, sum->first, sizeof all.first);
    *sum = all;
}

/* A short campaign, which is no proof, is not kept waiting by its warming up. */
static facts warm(const server *s, mixed *m, long n, int clients, mixed_report *all)
{
    facts      before = {0}, f = {0};
    const long round = n / 20 < ROUND ? n / 20 : ROUND;
    if (round == ROUND) fill(s, m);
    for (int i = 0, quiet = 0; i < ROUNDS && quiet < QUIET && !all->wrong; i++) {
        const mixed_report r = mixed_run(m, round, clients, 1 + 1000 * (uint64_t)i);
        add(all, &r);
        f = look(s, m);
        quiet = f.programs > before.programs || f.kib > before.kib + 64 ? 0 : quiet + 1;
        before = f;
    }
    print("warm", all, &f);
    return f;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool run(const server *s, long n, int clients)
{
    mixed       *m = mixed_open(s->port, &mixed_some_keys);
    mixed_report first = {0}, all = {0};
    printf(
        "       requests   good  left   bad state limits busy wrong tokens/s  p50 ms  p99 ms     "
        " KiB  "
        "states progs\n");
    const facts before = warm(s, m, n, clients, &first);
    long        most = before.kib;
    for (int i = 0; i < TENTHS && !first.wrong && !all.wrong; i++) {
        const long         part = n * (i + 1) / TENTHS - n * i / TENTHS;
        const mixed_report r = mixed_run(m, part, clients, 1000000 + 1000 * (uint64_t)i);
        const facts        f = look(s, m);
        char               when[16];
        snprintf(when, sizeof when, "%d/%d", i + 1, TENTHS);
        print(when, &r, &f);
        add(&all, &r);
        if (f.kib > most) most = f.kib;
    }
    print_limits(m);
    mixed_close(m);
    const bool flat = most <= before.kib + GROWTH;
    printf("all    %ld requests, %ld good, %ld wrong; %.0f s, %.0f tokens/s; at most %ld KiB more "
           "than warm: %s\n",
           count(&all), all.good, first.wrong + all.wrong, all.seconds,
           (double)all.tokens / all.seconds, most - before.kib,
           !JUDGED ? "not judged with this sanitizer"
           : flat  ? "flat"
                   : "NOT FLAT");
    return (flat || !JUDGED) && !first.wrong && !all.wrong;
}

int main(int argc, char **argv)
{
    const long  n = argc > 1 ? strtol(argv[1], NULL, 10) : 100000;
    const int   clients = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 16;
    const char *preset = argc > 3 ? argv[3] : "dra-ema-tiny";
    char        word[160], keys[160], states[160], names[16], prompt[24], body[24];
    const char *tiny = server_model(preset);

    const mixed_keys *k = &mixed_some_keys;
    snprintf(word, sizeof word, "tiny=%s", tiny);
    snprintf(keys, sizeof keys, "%s/keys", tiny);
    snprintf(states, sizeof states, "%s/states", tiny);
    snprintf(names, sizeof names, "%d", k->names);
    snprintf(prompt, sizeof prompt, "%zu", k->prompt);
    snprintf(body, sizeof body, "%zu", k->body);
    if (dra_file_write(keys, k->text, strlen(k->text), NULL) != DRA_OK) return 1;
    server s = server_start(
        (const char *const[]){"--model", word, "--port", "0", "--slots", "16", "--memory-limit",
                              "64M", "--api-key-file", keys, "--state-dir", states, "--max-states",
                              names, "--max-prompt", prompt, "--max-body", body, NULL});
    if (!s.port) return 1;
    const bool well = run(&s, n, clients);
    const int  status = server_stop(&s);
    if (status) printf("the server ended with %d\n", status);
    return !well || status;
}
