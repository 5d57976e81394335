/* The harness of mixers: every row of a table is put through every invariant. A new memory joins by
 * adding rows.
 *   whole = chunks of 1, 2, 17, T-1, ... = step by step through a reader = resumed from a file:
 *   outputs, states (bit for bit where the row says so) and gradients; fused form = scanned steps;
 *   causality, pads anywhere, ragged batches, packed segments, rows alone, 1/2/7 threads, every
 *   level; derivatives by central differences in the double build; flat memory and bounds over
 *   many steps. */
#ifndef DRA_TESTS_MIXERS_H
#define DRA_TESTS_MIXERS_H

#include "trial.h"

typedef struct mixer_row {
    const char      *name;
    dra_mixer_config config;
    bool             equal; /* chunks are equal, not the same bits; the reason is next to the row */
    bool             fixed; /* the state has a fixed size: long runs must leave it flat */
    double           bound; /* of |m| if inputs and start are within it; 0: none is promised */
    const dra_sublayer_config *around; /* the mixer as part of this sublayer; NULL: alone */
    /* Or a whole model of this config that reads vectors of config.dim channels, whose hidden
     * outputs count. */
    const char *model;
    bool no_skips; /* refuses skipped tokens where a text is cut, or sees them in positions */
    bool straight; /* its gradients are not derivatives but straight through */
    bool prefix;   /* it has prefixes */
    /* It reads in segments, of which a text has several: none of its programs is fresh, and no
     * gradient passes from one to the next. */
    bool segments;
} mixer_row;

/* Runs all invariants of all rows as tests, with DRA_TEST_ROWS=K/N of rows K, K + N, ... so that N
 * processes can share them. Returns main's status. */
int mixers_main(const char *name, const mixer_row *rows, size_t n);

#endif
