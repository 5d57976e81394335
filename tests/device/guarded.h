/* What tests of micro-kernels share: every level, rows in guarded memory. */
#ifndef DRA_TESTS_DEVICE_GUARDED_H
#define DRA_TESTS_DEVICE_GUARDED_H

#include "check.h"

#include <math.h>
#include <string.h>

#include "device/simd.h"

enum { LONGEST = 67, OFFSETS = 4, GUARD = 8, ROOM = GUARD + OFFSETS + 4099 + GUARD };

#ifdef DRA_REAL_DOUBLE
static const double tiny = 4e-16; /* one rounding, relative */
#else
static const double tiny = 2.4e-7;
#endif

typedef void (*level_test)(const dra_simd *simd);

static inline void for_each_level(level_test test)
{
    for (size_t l = 0; dra_simd_levels()[l]; l++) test(dra_simd_levels()[l]);
}

/* ---- rows in guarded memory ------------------------------------------------------------------ */

typedef struct row {
    dra_real  memory[ROOM], before[ROOM];
    dra_real *at;
    int64_t   n;
} row;

static inline void fill(row *r, int64_t n, int offset, double lo, double hi, uint64_t *seed)
{
    r->n = n;
    r->at = r->memory + GUARD + offset;
    for (int64_t i = 0; i < ROOM; i++) r->memory[i] = 12345;
    for (int64_t i = 0; i < n; i++) r->at[i] = (dra_real)(lo + (hi - lo) * check_random(seed));
    memcpy(r->before, r->memory, sizeof r->memory);
}

/* Nothing changed outside at[0..n), or nowhere at all. */
static inline void check_untouched(const row *r, bool inside_too)
{
    for (int64_t i = 0; i < ROOM; i++) {
        const bool inside = r->memory + i >= r->at && r->memory + i < r->at + r->n;
        if (inside && !inside_too) continue;
        if (memcmp(&r->memory[i], &r->before[i], sizeof(dra_real)) != 0)
            fail_msg("element %lld of %lld was written", (long long)(r->memory + i - r->at),
                     (long long)r->n);
    }
}

static inline dra_real was(const row *r, int64_t i) { return r->before[r->at - r->memory + i]; }

static inline void near(const char *what, int64_t n, double found, double want, double allowed)
{
    if (!(fabs(found - want) <= allowed))
        fail_msg("%s of %lld: %.17g, expected %.17g", what, (long long)n, found, want);
}

#endif
