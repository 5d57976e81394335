/* A long run of mixed requests against a server of its own: campaign [REQUESTS [CLIENTS [PRESET]]].
 * Prints what it did; fails where an answer differs from that of a lonely run, where the server
 * does not end well, or where its memory grows after the first tenth of the requests. */
#include "serve/mixed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static void print(const char *when, const mixed_report *r, long kib)
{
    printf("%-6s %ld good, %ld left, %ld bad, %ld with states, %ld busy; %ld wrong\n", when,
           r->good, r->cancelled, r->bad, r->states, r->busy, r->wrong);
    printf("       %.0f s, %.1f tokens/s, p50 %.1f ms, p99 %.1f ms, %ld KiB\n", r->seconds,
           (double)r->tokens / r->seconds, 1e3 * r->p50, 1e3 * r->p99, kib);
    if (r->wrong) printf("       %s\n", r->first);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const long  n = argc > 1 ? strtol(argv[1], NULL, 10) : 100000;
    const int   clients = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 16;
    const char *preset = argc > 3 ? argv[3] : "dra-ema-tiny";
    char        word[160];
    snprintf(word, sizeof word, "tiny=%s", server_model(preset));
    server s = server_start((const char *const[]){"--model", word, "--port", "0", "--slots", "16",
                                                  "--memory-limit", "64M", NULL});
    if (!s.port) return 1;
    mixed_report first = mixed_run(s.port, n / 10, clients, 1);
    const long   before = resident_kib(s.pid);
    print("first", &first, before);
    mixed_report rest = mixed_run(s.port, n - n / 10, clients, 1000);
    const long   after = resident_kib(s.pid);
    print("rest", &rest, after);
    const int  status = server_stop(&s);
    const bool flat = after <= before + before / 10 + 8192;
    if (!flat) printf("memory grew from %ld to %ld KiB\n", before, after);
    if (status) printf("the server ended with %d\n", status);
    return first.wrong || rest.wrong || status || !flat;
}
