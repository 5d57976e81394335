/* Endurance: rows whose state has a fixed size read token by token, 5000 of them or DRA_SOAK, which
 * `make soak` sets to 10^6. State and resident memory stay as they are after the first tenths, the
 * last tenth takes no longer than the second, values stay finite, and what a convex memory holds
 * stays within its bound: that of its inputs, or 1 for cells. Prints one line for each row. */
#include "sequence/reading.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define SIZES .dim = 12, .heads = 3

typedef enum bound { NONE, INPUTS, CELLS } bound;

typedef struct row {
    const char      *name;
    dra_mixer_config config;
    bound            bound; /* of h, m, P and Q */
} row;

static const row rows[] = {
    {"wkv", {SIZES, .a = {"wkv"}}},
    {"wkv, mixed shift", {SIZES, .shift = DRA_SHIFT_MIX, .a = {"wkv"}}},
    {"shortconv", {SIZES, .a = {"shortconv"}}},
    {"append window", {SIZES, .a = {.retrieval = "window", .window = 64}}},
    {"append window, rotary", {SIZES, .rotary = true, .a = {.retrieval = "window", .window = 100}}},
    {"ema window",
     {SIZES, .a = {"ema", .retrieval = "window", .window = 7, .ema.timescales = 2}},
     INPUTS},
    {"gru window", {SIZES, .a = {"gru", .retrieval = "window", .window = 16}}, CELLS},
    {"gru joint", {SIZES, .a = {"gru", .retrieval = "joint", .window = 16}}, CELLS},
    {"gru none", {SIZES, .a = {"gru", .retrieval = "none"}}, CELLS},
    {"ema slots-own", {SIZES, .a = {"ema", .retrieval = "slots-own", .ema.timescales = 3}}, INPUTS},
    {"ssm none", {SIZES, .a = {"ssm", .retrieval = "none"}}},
    {"lstm slots-all", {SIZES, .a = {"lstm", .retrieval = "slots-all"}}, CELLS},
    {"moment, fixed decay", {SIZES, .a = {"moment", .lambda.decay = DRA_DECAY_FIXED}}},
    {"moment exp, data decay",
     {SIZES, .a = {"moment", .moment.phi = DRA_PHI_EXP, .lambda.decay = DRA_DECAY_DATA}}},
    {"delta", {SIZES, .a = {"delta"}}},
    {"slots fixed",
     {SIZES, .a = {"slots", .slots.count = 4, .slots.gate = DRA_GATE_FIXED}},
     INPUTS},
    {"slots routed", {SIZES, .a = {"slots", .slots.count = 4}}, INPUTS},
    {"slots gated",
     {SIZES, .a = {"slots", .slots.count = 4, .slots.gate = DRA_GATE_GATED}},
     INPUTS},
    {"slots gru",
     {SIZES, .a = {"slots", .slots.count = 2, .slots.candidate = DRA_CANDIDATE_GRU}},
     CELLS},
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

enum { SLICES = 50, INPUTS_READ = 64, MOST = 4096 };

/* The largest |W x| of the inputs, for the keys or values that the first values of W give, and the
 * token it belongs to. */
static double largest_input(const reading *r, const char *weight, const dra_real *x, int64_t *token)
{
    static dra_real w[MOST];
    const int       at = dra_specs_find(r->module->params, weight);
    const int64_t   n = dra_specs_at(r->module->params, at)->shape.dim[0];
    double          largest = 0;
    assert_true(n * r->C <= MOST);
    dra_specs_fill(r->module->params, at, 1, w);
    for (int64_t i = 0; i < INPUTS_READ * n; i++) {
        double sum = 0;
        for (int64_t c = 0; c < r->C; c++)
            sum += (double)w[i % n * r->C + c] * (double)x[i / n * r->C + c];
        if (fabs(sum) > largest) largest = fabs(sum), *token = i / n;
    }
    return largest;
}

typedef struct bounds {
    double  key, value; /* of states that are convex; 0: none is promised */
    int64_t token;      /* the input with the largest value */
    double  nearest;    /* how near they came: largest |m| / bound */
} bounds;

static bounds open_bounds(const row *which, const reading *r, const dra_real *x)
{
    const double cells = which->bound == CELLS;
    bounds       b = {.key = cells, .value = cells};
    if (which->bound != INPUTS) return b;
    b.key = largest_input(r, "W_k", x, &b.token);
    b.value = largest_input(r, "W_v", x, &b.token);
    return b;
}

/* h_k, m_k, P are keys, h_v, m_v, Q values; all else may be as large as it likes. */
static double bound_of(const bounds *b, const char *name)
{
    if (strcmp(name, "h_k") == 0 || strcmp(name, "m_k") == 0 || strcmp(name, "P") == 0)
        return b->key;
    if (strcmp(name, "h_v") == 0 || strcmp(name, "m_v") == 0 || strcmp(name, "Q") == 0)
        return b->value;
    return 0;
}

/* What is live is finite and within its bound; rounding may add a few parts in 10^7. */
static void expect_bounded(const dra_specs *specs, const dra_states *s, bounds *b)
{
    for (int i = 0; i < dra_specs_count(specs); i++) {
        static dra_real v[MOST]; /* the loop allocates nothing that could hide a leak */
        const size_t    n = dra_states_size(s, i, 0);
        const double    most = bound_of(b, dra_specs_at(specs, i)->name);
        dra_error       err = {0};
        assert_true(n <= COUNT(v));
        expect_ok(dra_states_read(s, i, 0, v, n, &err), &err);
        for (size_t k = 0; k < n; k++) {
            assert_true(isfinite((double)v[k]));
            if (most > 0) b->nearest = fmax(b->nearest, fabs((double)v[k]) / most);
        }
    }
    assert_true(b->nearest <= 1 + 1e-6);
}

typedef struct tenth {
    double seconds; /* the best of its slices, for one token */
    size_t live, held;
    long   resident;
} tenth;

/* A tenth of the steps, in slices: the best one is what no other program disturbed. Reads n inputs
 * in turn; one alone drives means to their bound. */
static tenth read_tenth(const reading *r, dra_states *s, const dra_real *x, int64_t n,
                        int64_t steps, bounds *b)
{
    const int64_t each = steps / SLICES > 0 ? steps / SLICES : 1;
    tenth         out = {.seconds = INFINITY};
    for (int64_t t = 0; t < steps; t += each) {
        const double start = thread_seconds();
        for (int64_t k = 0; k < each; k++) {
            read_tokens(r, s, 1, NULL, x + (t + k) % n * r->C, NULL);
            if (b->key > 0) expect_bounded(r->module->state, s, b); /* after every token */
        }
        out.seconds = fmin(out.seconds, (thread_seconds() - start) / (double)each);
        const dra_real *y = dra_reader_result(r->reader, "y");
        for (int64_t i = 0; i < r->C; i++) assert_true(isfinite((double)y[i]));
        expect_bounded(r->module->state, s, b);
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
    dra_real     *x = random_reals(&seed, INPUTS_READ * r.C);
    bounds        b = open_bounds(which, &r, x);
    const int64_t steps = steps_asked() / 10;
    tenth         of[10];
    for (int i = 0; i < 10; i++) {
        const bool one = i >= 5;
        of[i] = read_tenth(&r, s, x + (one ? b.token * r.C : 0), one ? 1 : INPUTS_READ, steps, &b);
    }
    printf("# %s: %lld steps, %zu bytes of state, %.2f us a token at first, %.2f at last, "
           "%ld KiB more memory, %zu programs\n",
           which->name, (long long)steps * 10, of[9].live, 1e6 * of[1].seconds, 1e6 * of[9].seconds,
           of[9].resident - of[1].resident, dra_reader_programs(r.reader));
    if (which->bound) printf("# %s: at most %.4f of its bound\n", which->name, b.nearest);
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
