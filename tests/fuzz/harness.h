/* A reader and any bytes: what a fuzz_NAME.c defines, and what the drivers give it. Drivers:
 * drive.c mutates by itself and replays what is stored, drive_libfuzzer.c searches by coverage. */
#ifndef DRA_TESTS_FUZZ_HARNESS_H
#define DRA_TESTS_FUZZ_HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/philox.h"
#include "dra/base.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { FUZZ_MOST = 1 << 15, FUZZ_PATH = 256 };

typedef struct fuzz_bytes {
    uint8_t at[FUZZ_MOST];
    size_t  n;
} fuzz_bytes;

/* ---- what a fuzzer defines ------------------------------------------------------------------- */

/* Tries the reader. What must hold is checked here; what does not ends by broken(). Returns 1 where
 * the bytes were accepted, else 0. The same bytes after fuzz_draw_from() of the same seed do the
 * same. */
int harness(const uint8_t *data, size_t bytes);

#define FUZZ_JSON "{", "}", "[", "]", "\"", ",", ":" /* words of all that is JSON */

typedef struct fuzz_subject {
    const char *const *words; /* that mean something to the reader; NULL at the end */
    void (*begin)(void);      /* before all others, and at the end; NULL: nothing to do */
    void (*end)(void);
    /* Appends an input that must be accepted, drawn by below(). NULL: there is no way. */
    void (*make)(fuzz_bytes *out);
    /* Tries what was just made, where more is known of it than that it is accepted. */
    void (*made)(const fuzz_bytes *b);
    /* Makes lengths and sums fit again, so that what comes after them is reached. */
    void (*repair)(fuzz_bytes *b);
} fuzz_subject;

extern const fuzz_subject fuzz_this;

/* ---- what a driver defines ------------------------------------------------------------------- */

extern uint64_t fuzz_seed;  /* of all numbers that are drawn */
extern uint32_t fuzz_drawn; /* so far */

_Noreturn void broken(const char *what); /* something that must hold does not */

/* ---- for both -------------------------------------------------------------------------------- */

static inline void fuzz_draw_from(uint64_t seed)
{
    fuzz_seed = seed;
    fuzz_drawn = 0;
}

/* A number in 0 .. n - 1. */
static inline uint32_t below(uint32_t n)
{
    uint32_t out[4];
    dra_philox((uint32_t[]){fuzz_drawn++, 0, 0, 0}, fuzz_seed, out);
    return (uint32_t)((uint64_t)out[0] * n >> 32);
}

static inline const char *one_of(const char *const *texts, uint32_t n) { return texts[below(n)]; }

static inline void put(fuzz_bytes *b, const void *data, size_t n)
{
    if (b->n + n > FUZZ_MOST) broken("the fuzzer's own room is too small");
    if (n) memcpy(b->at + b->n, data, n);
    b->n += n;
}

static inline void say(fuzz_bytes *b, const char *text) { put(b, text, strlen(text)); }

static inline void must(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) broken(err->text);
}

/* A refusal is one line that begins with `place`, which is fit for an error text. */
static inline void expect_line(const dra_error *err, const char *place)
{
    if (strncmp(err->text, place, strlen(place)) != 0)
        broken(err->text[0] ? err->text : "refused without a reason");
    if (strpbrk(err->text, "\n\r\t\033")) broken("an error of several lines");
}

/* A copy of exactly these bytes, for free(), so that a sanitizer sees the first one beyond. */
static inline void *exact_copy(const uint8_t *data, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    if (!copy) broken("no memory");
    if (bytes) memcpy(copy, data, bytes);
    return copy;
}

/* "FOLDER/fuzz-NAME-PID": a folder of memory, if there is one. */
static inline void fuzz_path(char path[FUZZ_PATH])
{
    const char *folder = getenv("TMPDIR");
    if (!folder) folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, FUZZ_PATH, "%.150s/fuzz-" FUZZ_NAME "-%ld", folder, (long)getpid());
}

static inline void put_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    if (!f || (bytes && fwrite(data, 1, bytes, f) != bytes) || fclose(f) != 0)
        broken("cannot write a file");
}

static inline void get_file(const char *path, fuzz_bytes *b)
{
    FILE *f = fopen(path, "rb");
    b->n = f ? fread(b->at, 1, FUZZ_MOST, f) : FUZZ_MOST;
    if (b->n == FUZZ_MOST) broken("cannot read a file, or the fuzzer's own room is too small");
    fclose(f);
}

#endif
