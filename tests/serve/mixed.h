/* Many requests of all kinds at a time, each answer compared with the one it had alone. */
#ifndef DRA_TESTS_SERVE_MIXED_H
#define DRA_TESTS_SERVE_MIXED_H

#include "client.h"

typedef struct mixed_report {
    long   good, cancelled, bad, states, limits, busy; /* requests by kind */
    long   wrong;             /* answers that differ, or with another status */
    char   first[512];        /* what the first of them was */
    double seconds, p50, p99; /* of good ones */
    long   tokens;            /* that these wrote */
} mixed_report;

/* Keys of a server, whose limits are part of the mix; text NULL: it takes anybody. */
typedef struct mixed_keys {
    const char *text; /* of the file of keys */
    const char *admin, *other, *reads, *rated,
        *full;           /* those in it; the first two may do anything */
    int    names;        /* --max-states */
    size_t prompt, body; /* --max-prompt, --max-body */
} mixed_keys;
extern const mixed_keys mixed_some_keys;

/* Asks every good request alone, so that its answer is known. keys NULL: none are needed. */
typedef struct mixed mixed;
mixed               *mixed_open(int port, const mixed_keys *keys);
/* What an admin asks for. */
answer mixed_ask(const mixed *m, const char *method, const char *path, const char *body);
void   mixed_close(mixed *m);
/* n requests by `threads` clients at a time. */
mixed_report mixed_run(mixed *m, long n, int threads, uint64_t seed);

#endif
