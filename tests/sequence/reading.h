/* A mixer with its reader, for tests of what goes around mixers. Every function fails the test with
 * the error's text. */
#ifndef DRA_TESTS_SEQUENCE_READING_H
#define DRA_TESTS_SEQUENCE_READING_H

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/memory.h"

typedef struct reading {
    dra_mixer        *mixer;
    const dra_module *module;
    dra_reader       *reader;
    int64_t           C;
} reading;

static inline void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

/* The call was refused by this code and exactly this text; err is ready for the next. */
static inline void expect_refused(dra_status st, dra_error *err, dra_status code, const char *text)
{
    assert_string_equal(err->text, text);
    assert_int_equal(st, code);
    assert_int_equal(err->code, code);
    *err = (dra_error){0};
}

/* n numbers in -1 .. 1; the caller frees them. */
static inline dra_real *random_reals(uint64_t *seed, int64_t n)
{
    dra_real *x = malloc((size_t)n * sizeof *x + 1);
    for (int64_t i = 0; x && i < n; i++) x[i] = (dra_real)(2 * check_random(seed) - 1);
    assert_non_null(x);
    return x;
}

/* Where modules of tests read: states belong there too. */
static inline dra_device *reading_device(void) { return check_device(2, dra_device_level_at(0)); }

/* Parameters as drawn from seed 1. */
static inline reading open_reading(const dra_mixer_config *config)
{
    reading   r = {.C = config->dim};
    dra_error err = {0};
    expect_ok(dra_mixer_create(config, &r.mixer, &err), &err);
    r.module = dra_mixer_module(r.mixer);
    expect_ok(dra_reader_create(reading_device(), r.module, &r.reader, &err), &err);
    expect_ok(dra_reader_start(r.reader, 1, &err), &err);
    return r;
}

static inline void close_reading(reading *r)
{
    dra_reader_destroy(r->reader);
    dra_mixer_destroy(r->mixer);
}

static inline dra_states *new_states(const dra_specs *specs, int64_t B)
{
    dra_states *s = NULL;
    dra_error   err = {0};
    expect_ok(dra_states_create(reading_device(), specs, B, &s, &err), &err);
    return s;
}

/* x and y (B, T, C); y may be NULL. */
static inline void read_tokens(const reading *r, dra_states *s, int64_t T, const int32_t *mark,
                               const dra_real *x, dra_real *y)
{
    const size_t bytes = (size_t)(dra_states_batch(s) * T * r->C) * sizeof *x;
    dra_error    err = {0};
    expect_ok(dra_reader_read(r->reader, s, T, mark, 1, &(dra_named){"x", x, bytes}, &err), &err);
    if (y) memcpy(y, dra_reader_result(r->reader, "y"), bytes);
}

static inline void expect_same_states(const dra_states *a, const dra_states *b)
{
    dra_states_difference d;
    dra_error             err = {0};
    expect_ok(dra_states_compare(a, b, &d, &err), &err);
    if (!(check_cuda() ? d.worst <= 1e-5 : d.same)) fail_msg("%s differs by %g", d.name, d.worst);
}

#endif
