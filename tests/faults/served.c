/* dra serve with one fault after the other, by a shim that is preloaded (alloc.c) or under a tracer
 * (calls.c): whoever asks gets the answer of a run without fault, an error, or none, and after a
 * single fault the same request is answered right when it is sent again.
 *   served alloc RUNS SHIM DRA MODEL      RUNS: faults of each kind, 0: all
 *   served calls RUNS CALLS DRA MODEL
 * Works in the current folder. A server that does not come up ends with status 1 and a line that
 * says why; one that does ends by SIGTERM. What was killed has every file old, new or not yet, and
 * starts again. */
#include "serve/client.h"
#include "timing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SHOWN = 20, WAIT = 20, BRIEF = 2, STATES = 2 };

typedef struct fault { /* of one run */
    const char *kind;  /* of allocations: once, from; of calls: EIO, kill-before, ... */
    long        at;    /* 0: none */
    bool        kills, stays;
} fault;

static bool        traced; /* by calls.c */
static const char *helper, *dra, *model;
static pid_t       child;
static int         port;

static void nap(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }

static char *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    *bytes = f ? fread(text, 1, (1 << 20) - 1, f) : 0;
    if (f) fclose(f);
    return text;
}

/* ---- the process ----------------------------------------------------------------------------- */

static void start(const fault *f)
{
    char at[32];
    snprintf(at, sizeof at, "%ld", f->at);
    port = 0;
    unlink("log"); /* the port of the run before */
    child = fork();
    if (child != 0) return;
    const int log = open("log", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (log < 0 || dup2(log, 2) < 0 || dup2(log, 1) < 0) _exit(98);
    if (!traced) {
        setenv("DRA_FAULT_AT", at, 1);
        setenv("DRA_FAULT_MODE", f->kind, 1);
        setenv("DRA_FAULT_CLOCK", "goes", 1);
        if (!f->at) setenv("DRA_FAULT_COUNT", "count", 1);
        setenv("LD_PRELOAD", helper, 1);
    }
    const char *words[24] = {helper, f->at ? "--at" : "--count"}, **w = words + 2;
    if (f->at) *w++ = at, *w++ = f->kind;
    if (!traced) w = words;
    const char *const command[] = {
        dra,         "serve", "--model",         model, "--port",      "0",      "--slots", "2",
        "--threads", "1",     "--drain-seconds", "5",   "--state-dir", "states", NULL};
    for (int i = 0; command[i]; i++) *w++ = command[i];
    execvp(words[0], (char *const *)(uintptr_t)words);
    _exit(97);
}

/* Has it ended? Its status is then told. */
static bool ended(int *status) { return waitpid(child, status, WNOHANG) == child; }

static int said_port(void)
{
    size_t      n;
    char       *text = read_file("log", &n);
    const char *at = strstr(text, "http://"), *colon = at ? strchr(at + 7, ':') : NULL;
    const int   found = colon && strchr(colon, '\n') ? (int)strtol(colon + 1, NULL, 10) : 0;
    free(text);
    return found;
}

/* Waits until it answers. 1: it does; 0: it has ended; -1: neither. */
static int come_up(int *status, double seconds)
{
    for (const double began = now(); now() - began < seconds; nap()) {
        if (ended(status)) return 0;
        if (!port) port = said_port();
        answer     a = port ? client_ask(port, "GET", "/health", NULL) : (answer){0};
        const bool ready = a.status == 200;
        answer_free(&a);
        if (ready) return 1;
    }
    return -1;
}

/* The server's own process: of a tracer the child. */
static pid_t own_process(void)
{
    char   path[64];
    size_t n;
    if (!traced) return child;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)child, (int)child);
    char       *text = read_file(path, &n);
    const pid_t pid = (pid_t)strtol(text, NULL, 10);
    free(text);
    return pid;
}

/* SIGTERM, a second one where the first may be what was lost, and SIGKILL if that does not help.
 * false: it did not. */
static bool end(int *status)
{
    const pid_t pid = own_process();
    if (pid > 0) kill(pid, SIGTERM);
    bool again = traced;
    for (const double began = now(); now() - began < WAIT; nap()) {
        if (ended(status)) return true;
        if (again && now() - began > WAIT / 4) again = kill(pid, SIGTERM) != 0;
    }
    if (pid > 0) kill(pid, SIGKILL);
    kill(child, SIGKILL);
    waitpid(child, status, 0);
    return false;
}

/* ---- requests -------------------------------------------------------------------------------- */

static const struct {
    const char *method, *path, *body;
} asks[] = {
    {"POST", "/v1/completions",
     "{\"prompt\": \"once upon\", \"max_tokens\": 6, \"temperature\": 0, \"logprobs\": 2, "
     "\"dra_save_state\": \"kept\"}"},
    {"POST", "/states/kept/fork", "{\"to\": \"other\"}"},
    {"POST", "/v1/completions",
     "{\"prompt\": \" a\", \"max_tokens\": 6, \"seed\": 3, \"top_p\": 0.9, \"stop\": [\"qq\"], "
     "\"dra_state\": \"other\", \"stream\": true}"},
    {"POST", "/v1/chat/completions",
     "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"max_tokens\": 3, "
     "\"temperature\": 0, \"logprobs\": true, \"top_logprobs\": 2, \"dra_return_state\": true}"},
    {"POST", "/v1/completions",
     "{\"prompt\": [[104, 105]], \"max_tokens\": 1, \"temperature\": 0, \"echo\": true, "
     "\"logprobs\": 1}"},
    {"POST", "/v1/embeddings", "{\"input\": [\"one\", \"two\"]}"},
    {"POST", "/tokenize", "{\"prompt\": \"one\"}"},
    {"GET", "/states/other", NULL},
};
enum { ASKS = sizeof asks / sizeof *asks };

static char  *expected[ASKS];
static size_t expected_bytes[ASKS];

/* What counts of an answer; NULL: it is an error, or none. */
static char *essence(const answer *a, int i, size_t *bytes)
{
    const bool  stream = asks[i].body && strstr(asks[i].body, "\"stream\"");
    const char *from = a->body, *to = a->text + a->bytes, *length = NULL;
    *bytes = 0;
    if (a->status != 200 && a->status != 201) return NULL;
    if (stream) {
        char *text = strstr(a->text, "data: [DONE]") ? answer_stream(a, false) : NULL;
        *bytes = text ? strlen(text) : 0;
        return text;
    }
    length = strstr(a->text, "Content-Length: ");
    if (!length || strtol(length + 16, NULL, 10) != to - from) return NULL; /* cut off: no answer */
    const char *choices = strstr(from, "\"choices\""), *usage = strstr(from, ", \"usage\"");
    if (choices && usage) from = choices, to = usage;
    const char *created = strstr(from, "\"created\""); /* of a state */
    if (strstr(from, "\"last_used\"") && created) to = created;
    char *out = calloc(1, (size_t)(to - from) + 1);
    memcpy(out, from, (size_t)(to - from));
    *bytes = (size_t)(to - from);
    return out;
}

typedef enum outcome { RIGHT, REFUSED, SILENT, WRONG } outcome;

/* lacks: something that it needs may not have been made. */
static outcome ask(int i, bool lacks, char why[200])
{
    const double began = now();
    answer       a = client_ask(port, asks[i].method, asks[i].path, asks[i].body);
    size_t       bytes;
    char        *got = essence(&a, i, &bytes);
    outcome      is = WRONG;
    if (got && bytes == expected_bytes[i] && memcmp(got, expected[i], bytes) == 0)
        is = RIGHT;
    else if (a.status == 500 || a.status == 503 || a.status == 429 || a.status == 507 ||
             (lacks && a.status == 404))
        is = REFUSED;
    else if (!got && (a.status == 0 || a.status == 200 || a.status == 201))
        is = SILENT;
    if (now() - began > WAIT) is = WRONG;
    snprintf(why, 200, "%s: %d after %.0f s: %.120s", asks[i].path, a.status, now() - began,
             a.body ? a.body : "");
    free(got);
    answer_free(&a);
    return is;
}

static void learn(void)
{
    for (int i = 0; i < ASKS; i++) {
        answer a = client_ask(port, asks[i].method, asks[i].path, asks[i].body);
        expected[i] = essence(&a, i, &expected_bytes[i]);
        if (!expected[i]) {
            printf("%s fails without a fault: %s\n", asks[i].path, a.body);
            exit(1);
        }
        answer_free(&a);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static const char *const files[STATES] = {"states/m/kept.state", "states/m/other.state"};
static char             *state[STATES];
static size_t            state_bytes[STATES];

/* Each is whole, or not there where it need not be. */
static bool files_are_whole(bool must)
{
    for (int i = 0; i < STATES; i++) {
        size_t     n;
        char      *text = read_file(files[i], &n);
        const bool there = access(files[i], F_OK) == 0;
        const bool whole = n == state_bytes[i] && memcmp(text, state[i], n) == 0;
        free(text);
        if (there ? !whole : must) return false;
    }
    return true;
}

static void clear(void)
{
    if (system("rm -rf states") != 0) exit(2);
}

/* ---- one fault ------------------------------------------------------------------------------- */

typedef struct counts {
    long tried, refused, errors, same, killed, bad;
} counts;

static bool log_says(const char *words)
{
    size_t     n;
    char      *text = read_file("log", &n);
    const bool found = strstr(text, words) != NULL;
    free(text);
    return found;
}

/* NULL, or what is wrong with a server that ended by itself. */
static const char *ended_wrong(const fault *f, int status)
{
    static char text[64];
    if (f->kills) return files_are_whole(false) ? NULL : "a file is neither old nor new";
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
        return log_says("dra") && (traced || log_says("out of memory") || log_says("thread") ||
                                   log_says("event loop") || log_says("emory"))
                   ? NULL
                   : "another message";
    snprintf(text, sizeof text, "ended with %s %d", WIFSIGNALED(status) ? "signal" : "status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return text;
}

/* Whether it has ended, for which one that is killed needs a moment. */
static bool gone_now(const fault *f, int *status)
{
    for (const double began = now(); f->kills && now() - began < WAIT; nap())
        if (ended(status)) return true;
    return ended(status);
}

/* All requests; *errors: answers that were none. */
static const char *ask_all(const fault *f, bool *errors, int *status, bool *gone)
{
    static char why[200];
    for (int i = 0; i < ASKS; i++) {
        outcome is = ask(i, *errors, why);
        if (is == WRONG) return why;
        if (is != RIGHT && gone_now(f, status)) {
            *gone = true;
            return NULL;
        }
        *errors |= is != RIGHT;
        if (is != RIGHT && !f->stays) is = ask(i, false, why);
        if (is != RIGHT && !f->stays) return why;
    }
    return NULL;
}

static const char *try_once(const fault *f, counts *c)
{
    int         status = 0;
    bool        errors = false, gone = false;
    const int   up = come_up(&status, f->stays ? BRIEF : WAIT);
    const char *wrong = NULL;
    c->tried++;
    if (up < 0) {
        c->errors++;
        if (end(&status) && f->stays) return NULL; /* it has no memory to answer with */
        return "does not come up and does not end";
    }
    if (up > 0) wrong = ask_all(f, &errors, &status, &gone);
    if (up == 0 || gone) {
        c->killed += f->kills;
        c->refused += !f->kills;
        return f->kills || !gone ? ended_wrong(f, status) : "ended while it was asked";
    }
    if (!end(&status)) return "does not end";
    if (wrong) return wrong;
    c->errors += errors;
    c->same += !errors;
    if (f->kills) return files_are_whole(false) ? NULL : "a file is neither old nor new";
    if (!WIFEXITED(status) || WEXITSTATUS(status) > (f->stays || traced)) {
        const char *how = ended_wrong(f, status);
        return how ? how : "ends with status 1";
    }
    return files_are_whole(!f->stays && !errors) ? NULL : "a file is neither old nor new";
}

/* After a kill: starts again, with what is there, and has nothing left of it. */
static const char *start_again(void)
{
    int status;
    start(&(fault){.kind = "once"});
    if (come_up(&status, WAIT) != 1) return "does not start again";
    end(&status);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) return "does not end after a new start";
    return system("ls -A states/m 2>/dev/null | grep -q tmp") == 0 ? "leaves a temporary file"
                                                                   : NULL;
}

static void try_fault(const fault *f, counts *c)
{
    clear();
    start(f);
    const char *wrong = try_once(f, c);
    if (!wrong && f->kills) wrong = start_again();
    if (!wrong || c->bad++ >= SHOWN) return;
    printf("%s %ld: %s\n", f->kind, f->at, wrong);
    if (system("tail -n 3 log") != 0) exit(2);
    fflush(stdout);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static long rehearse(void)
{
    int    status;
    size_t n;
    clear();
    start(&(fault){.kind = "once"});
    if (come_up(&status, WAIT) != 1) {
        printf("does not come up without a fault\n");
        exit(1);
    }
    learn();
    if (!end(&status)) exit(1);
    for (int i = 0; i < STATES; i++) state[i] = read_file(files[i], &state_bytes[i]);
    char *text = read_file(traced ? "log" : "count", &n), *line = text;
    for (char *at = text; (at = strchr(at, '\n')) && at[1]; at++) line = at + 1; /* the last */
    const long count = strtol(line, NULL, 10);
    free(text);
    return count;
}

int main(int argc, char **argv)
{
    static const fault allocs[] = {{"once"}, {"from", .stays = true}};
    static const fault calls[] = {{"EIO"},
                                  {"ENOSPC"},
                                  {"EINTR"},
                                  {"EMFILE"},
                                  {"EACCES"},
                                  {"kill-before", .kills = true},
                                  {"kill-after", .kills = true}};
    counts             c = {0};
    if (argc < 6) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    traced = strcmp(argv[1], "calls") == 0;
    helper = argv[3], dra = argv[4], model = argv[5];
    signal(SIGPIPE, SIG_IGN);
    const fault *all = traced ? calls : allocs;
    const long   kinds = traced ? 7 : 2, runs = strtol(argv[2], NULL, 10), n = rehearse();
    const long   stride = runs && n > runs ? n / runs : 1;
    const char  *first = getenv("DRA_FAULT_FIRST"); /* where to begin */
    for (long k = 0; k < kinds; k++)
        for (long at = 1 + k * (stride / kinds); at <= n; at += stride) {
            fault f = all[k];
            f.at = at;
            if (!first || at >= strtol(first, NULL, 10)) try_fault(&f, &c);
        }
    printf("%ld %s, %ld faults: %ld refused, %ld killed, %ld with errors, %ld without effect, "
           "%ld bad\n",
           n, traced ? "calls" : "allocations", c.tried, c.refused, c.killed, c.errors, c.same,
           c.bad);
    return c.bad > 0;
}
