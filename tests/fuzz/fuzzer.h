/* What fuzzers share. Every try has a seed, from which all its numbers are drawn; what breaks tells
 * the seed and how to try it again.
 *   FUZZER SECONDS [SEED]: try number n has seed SEED + n; SECONDS 0 makes one try. */
#ifndef DRA_TESTS_FUZZ_FUZZER_H
#define DRA_TESTS_FUZZ_FUZZER_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/philox.h"

typedef struct fuzzer {
    const char *name;
    void (*one)(void);   /* a try */
    void (*clean)(void); /* removes what tries leave; NULL: nothing */
} fuzzer;

static const fuzzer *fuzz_now;
static uint64_t      fuzz_seed;                   /* of this try */
static uint32_t      fuzz_drawn;                  /* numbers from it so far */
static long          fuzz_damaged, fuzz_accepted; /* files, and how many of these went through */

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* A number in 0 .. n - 1. */
static inline uint32_t below(uint32_t n)
{
    uint32_t out[4];
    dra_philox((uint32_t[]){fuzz_drawn++, 0, 0, 0}, fuzz_seed, out);
    return (uint32_t)((uint64_t)out[0] * n >> 32);
}

static inline void fuzz_tell(void)
{
    printf("FAILED, seed %" PRIu64 "\nreproduce: %s 0 %" PRIu64 "\n", fuzz_seed, fuzz_now->name,
           fuzz_seed);
    fflush(stdout);
}

static inline void broken(const char *what)
{
    printf("%s\n", what);
    fuzz_tell();
    if (fuzz_now->clean) fuzz_now->clean();
    exit(1);
}

/* Where files of tries go: memory, if there is a folder of it. */
static inline const char *fuzz_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder ? folder : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

static inline double fuzz_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* To be called before anything that may break. */
static inline void fuzz_begin(const fuzzer *f)
{
    fuzz_now = f;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(fuzz_tell);
}

/* All tries. Returns the exit status. */
static inline int fuzz_all(int argc, char **argv)
{
    const double seconds = argc > 1 ? strtod(argv[1], NULL) : 10, start = fuzz_clock();
    uint64_t     seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL) * 1000003;
    long         tries = 0;
    printf("first seed %" PRIu64 "\n", seed);
    for (; tries == 0 || fuzz_clock() - start < seconds; tries++) {
        fuzz_seed = seed++;
        fuzz_drawn = 0;
        fuzz_now->one();
    }
    if (fuzz_now->clean) fuzz_now->clean();
    printf("%5.0f s  %ld tries, %ld times damaged, %ld still accepted\n", fuzz_clock() - start,
           tries, fuzz_damaged, fuzz_accepted);
    return 0;
}

#endif
