/* Many requests of all kinds at a time, each answer compared with the one it had alone. */
#ifndef DRA_TESTS_SERVE_MIXED_H
#define DRA_TESTS_SERVE_MIXED_H

#include "client.h"

typedef struct mixed_report {
    long   good, cancelled, bad, states, busy; /* requests by kind */
    long   wrong;                              /* answers that differ, or with another status */
    char   first[512];                         /* what the first of them was */
    double seconds, p50, p99;                  /* of good ones */
    long   tokens;                             /* that these wrote */
} mixed_report;

/* Asks every good request alone, so that its answer is known. */
typedef struct mixed mixed;
mixed               *mixed_open(int port);
void                 mixed_close(mixed *m);
/* n requests by `threads` clients at a time. */
mixed_report mixed_run(mixed *m, long n, int threads, uint64_t seed);

#endif
