/* Endurance: rows whose state has a fixed size read token by token, 5000 of them or DRA_SOAK, which
 * `make soak` sets to 10^6. State and resident memory stay as they are after the first tenths, the
 * last tenth takes no longer than the second, values stay finite and within the bound that is
 * promised. Prints one line for each row. */
#include "sequence/reading.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define SIZES .dim = 12, .heads = 3

typedef struct row {
    const char      *name;
    dra_mixer_config config;
    double           bound; /* of the state; 0: none is promised */
} row;

static const row rows[] = {
    {"wkv", {SIZES, .a = {"wkv"}}},
    {"wkv, mixed shift", {SIZES, .shift = DRA_SHIFT_MIX, .a = {"wkv"}}},
    {"append window", {SIZES, .a = {.retrieval = "window", .window = 64}}},
    {"append window, rotary", {SIZES, .rotary = true, .a = {.retrieval = "window", .window = 100}}},
    {"ema window", {SIZES, .a = {"ema", .retrieval = "window", .window = 7, .timescales = 2}}},
    {"gru window", {SIZES, .a = {"gru", .retrieval = "window", .window = 16}}},
    {"gru joint", {SIZES, .a = {"gru", .retrieval = "joint", .window = 16}}},
    {"gru none", {SIZES, .a = {"gru", .retrieval = "none"}}, 1},
    {"ema slots-own", {SIZES, .a = {"ema", .retrieval = "slots-own", .timescales = 3}}},
    {"ssm none", {SIZES, .a = {"ssm", .retrieval = "none"}}},
    {"lstm slots-all", {SIZES, .a = {"lstm", .retrieval = "slots-all"}}},
    {"moment, fixed decay", {SIZES, .a = {"moment", .decay = DRA_DECAY_FIXED}}},
    {"moment exp, data decay",
     {SIZES, .a = {"moment", .phi = DRA_PHI_EXP, .decay = DRA_DECAY_DATA}}},
    {"delta", {SIZES, .a = {"delta"}}},
    {"slots routed", {SIZES, .a = {"slots", .slots = 4}}},
    {"slots gru", {SIZES, .a = {"slots", .slots = 2, .candidate = DRA_CANDIDATE_GRU}}, 1},
};

static int64_t steps_asked(void)
{
    const char *n = getenv("DRA_SOAK");
    return n ? atoll(n) : 5000;
}

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long resident_kib(void)
{
    long  size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &size, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* The largest number of what is live; infinite where one is not finite. */
static double largest_state(const dra_specs *specs, const dra_states *s)
{
    double largest = 0;
    for (int i = 0; i < dra_specs_count(specs); i++) {
        static dra_real v[4096]; /* the loop allocates nothing that could hide a leak */
        const size_t    n = dra_states_size(s, i, 0);
        dra_error       err = {0};
        assert_true(n <= COUNT(v));
        expect_ok(dra_states_read(s, i, 0, v, n, &err), &err);
        for (size_t k = 0; k < n; k++)
            largest = isfinite((double)v[k]) ? fmax(largest, fabs((double)v[k])) : INFINITY;
    }
    return largest;
}

typedef struct tenth {
    double seconds; /* the best of its slices, for one token */
    size_t live, held;
    long   resident;
} tenth;

enum { SLICES = 50, INPUTS = 64 };

/* A tenth of the steps, in slices: the best one is what no other program disturbed. */
static tenth read_tenth(const reading *r, dra_states *s, const dra_real *x, int64_t steps,
                        double bound)
{
    const int64_t each = steps / SLICES > 0 ? steps / SLICES : 1;
    tenth         out = {.seconds = INFINITY};
    for (int64_t t = 0; t < steps; t += each) {
        const double start = thread_seconds();
        for (int64_t k = 0; k < each; k++)
            read_tokens(r, s, 1, NULL, x + (t + k) % INPUTS * r->C, NULL);
        out.seconds = fmin(out.seconds, (thread_seconds() - start) / (double)each);
        const dra_real *y = dra_reader_result(r->reader, "y");
        for (int64_t i = 0; i < r->C; i++) assert_true(isfinite((double)y[i]));
        const double largest = largest_state(r->module->state, s);
        assert_true(isfinite(largest) && (bound == 0 || largest <= bound));
    }
    out.live = dra_states_bytes(s);
    out.held = dra_states_held(s);
    out.resident = resident_kib();
    return out;
}

static void stays_flat(void **state)
{
    const row    *which = *state;
    reading       r = open_reading(&which->config);
    dra_states   *s = new_states(r.module->state, 1);
    uint64_t      seed = 13;
    dra_real     *x = random_reals(&seed, INPUTS * r.C);
    const int64_t steps = steps_asked() / 10;
    tenth         of[10];
    for (int i = 0; i < 10; i++) of[i] = read_tenth(&r, s, x, steps, which->bound);
    printf("# %s: %lld steps, %zu bytes of state, %.2f us a token at first, %.2f at last, "
           "%ld KiB more memory, %zu programs\n",
           which->name, (long long)steps * 10, of[9].live, 1e6 * of[1].seconds, 1e6 * of[9].seconds,
           of[9].resident - of[1].resident, dra_reader_programs(r.reader));
    for (int i = 2; i < 10; i++) {
        assert_int_equal(of[i].live, of[1].live);
        assert_int_equal(of[i].held, of[1].held);
        assert_true(of[i].resident - of[1].resident < 1024); /* 16 bytes a step would show */
    }
    assert_true(of[9].seconds < 1.5 * of[1].seconds || steps < 10000); /* a few are too short */
    assert_true(dra_reader_programs(r.reader) <= 6);
    free(x);
    dra_states_destroy(s);
    close_reading(&r);
}

int main(void)
{
    struct CMUnitTest tests[COUNT(rows)];
    for (size_t i = 0; i < COUNT(rows); i++)
        tests[i] = (struct CMUnitTest){rows[i].name, stays_flat, NULL, NULL, (void *)&rows[i]};
    return check_main("soak", NULL, 0, tests, COUNT(tests));
}
