/* Attention: the two paths agree over all combinations of options, results do not depend on how
 * queries are cut or on the capacity of a cache, the tiled path stays linear in memory, costs. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef DRA_REAL_DOUBLE
static const double tolerance = 1e-12;
#else
static const double tolerance = 1e-5;
#endif

/* ---- plain against tiled --------------------------------------------------------------------- */

enum { B = 2, T = 7, J = 70, D = 5, E = 3 };

typedef enum sees { ALL, CAUSAL, WINDOW, RAGGED, SEES } sees;
typedef enum bias { NO_BIAS, OF_KEYS, OF_HEADS, OF_QUERIES, OF_PAIRS, BIASES } bias;
typedef enum where { NO_SLOPES, COUNTED, PLACED, WHERES } where;
typedef enum table { NO_TABLE, ONE_ROW, OF_EACH, TABLES } table;
typedef enum heads { EACH, BY_DIV, BY_MOD, HEADS } heads;

typedef struct options {
    sees  sees;
    bias  bias;
    where where;
    heads heads;
    table table;
    int   always;
    bool  mask, cap, scale, drop, late;
} options;

enum { INPUTS = 16, RESULTS = 7 };

typedef struct job { /* a graph whose inputs are drawn by name, so both paths get the same */
    dra_graph  *g;
    const char *name[INPUTS];
    void       *data[INPUTS];
    size_t      bytes[INPUTS];
    int         n;
} job;

/* A new input, drawn from lo..hi. */
static dra_value drawn(job *j, const char *name, dra_dtype dtype, dra_shape shape, double lo,
                       double hi)
{
    const int64_t n = dra_shape_count(&shape);
    const size_t  size = dra_dtype_get(dtype)->block_bytes;
    uint64_t      seed = 17;
    for (const char *p = name; *p; p++) seed = seed * 31 + (unsigned char)*p;
    void *data = malloc((size_t)n * size + 1);
    for (int64_t i = 0; i < n; i++) {
        const double x = lo + check_random(&seed) * (hi - lo);
        if (dtype == DRA_REAL)
            ((dra_real *)data)[i] = (dra_real)x;
        else if (dtype == DRA_I32)
            ((int32_t *)data)[i] = (int32_t)floor(x);
        else
            ((uint8_t *)data)[i] = x >= 0;
    }
    j->name[j->n] = name;
    j->data[j->n] = data;
    j->bytes[j->n++] = (size_t)n * size;
    return dra_input(j->g, name, dtype, shape);
}

static void set_interval(job *j, const options *o, dra_attend_config *c)
{
    if (o->sees == CAUSAL || o->sees == WINDOW) {
        const dra_value pos = drawn(j, "pos", DRA_I32, DRA_SHAPE(B), 20, J - T + 1);
        dra_causal_interval(j->g, pos, B, T, o->sees == WINDOW ? 9 : 0, &c->lo, &c->hi);
    } else if (o->sees == RAGGED) {
        c->lo = drawn(j, "lo", DRA_I32, DRA_SHAPE(B, T), -5, 60);
        c->hi = drawn(j, "hi", DRA_I32, DRA_SHAPE(B, T), -5, J + 5);
    }
}

static dra_shape bias_shape(bias b, int64_t H)
{
    switch (b) {
    case OF_KEYS: return DRA_SHAPE(J);
    case OF_HEADS: return DRA_SHAPE(H, 1, J);
    case OF_QUERIES: return DRA_SHAPE(B, 1, T, 1);
    case OF_PAIRS: return DRA_SHAPE(B, H, T, J);
    case NO_BIAS:
    case BIASES: break;
    }
    return (dra_shape){0};
}

/* y, dq, dk, dv and, where they are asked, dbias, dslopes and ddistance. */
static int build(job *j, const options *o, dra_attend_path path, dra_value *out)
{
    const int64_t     H = 4, K = o->heads == EACH ? H : 2;
    dra_value         x[6] = {drawn(j, "q", DRA_REAL, DRA_SHAPE(B, H, T, D), -1, 1),
                              drawn(j, "k", DRA_REAL, DRA_SHAPE(B, K, J, D), -1, 1),
                              drawn(j, "v", DRA_REAL, DRA_SHAPE(B, K, J, E), -1, 1)};
    const dra_value   u = drawn(j, "u", DRA_REAL, DRA_SHAPE(B, H, T, E), -1, 1);
    dra_random_config random = {.name = "weights"};
    dra_attend_config c = {.path = path,
                           .heads = o->heads == BY_MOD ? DRA_HEADS_MOD : DRA_HEADS_DIV,
                           .softcap = o->cap ? 1.2 : 0,
                           .softcap_late = o->late,
                           .scale = o->scale ? 1.7 : 0,
                           .always = o->always};
    int               n = 3;
    set_interval(j, o, &c);
    if (o->bias) x[n++] = c.bias = drawn(j, "bias", DRA_REAL, bias_shape(o->bias, H), -1, 1);
    if (o->where) x[n++] = c.slopes = drawn(j, "slopes", DRA_REAL, DRA_SHAPE(H), 0.01, 0.3);
    if (o->table) {
        const dra_shape shape = DRA_SHAPE(o->table == OF_EACH ? H : 1, 50);
        x[n++] = c.distance = drawn(j, "distance", DRA_REAL, shape, -1, 1);
        c.distance_zero = 12;
    }
    if (o->where == PLACED) {
        c.q_pos = drawn(j, "q_pos", DRA_I32, DRA_SHAPE(B, T), 0, 90);
        c.k_pos = drawn(j, "k_pos", DRA_I32, DRA_SHAPE(B, J), 0, 90);
    }
    if (o->mask) c.mask = drawn(j, "mask", DRA_BOOL, DRA_SHAPE(B, 1, T, J), -2, 1);
    if (o->drop) {
        random.key = drawn(j, "key", DRA_I32, DRA_SHAPE(4), 0, 1000);
        random.row = drawn(j, "row", DRA_I32, DRA_SHAPE(B), 0, 1000);
        c.dropout = 0.3;
        c.random = &random;
    }
    out[0] = dra_attend(j->g, x[0], x[1], x[2], &c);
    dra_gradient(j->g, 1, out, &u, n, x, out + 1);
    return n + 1;
}

typedef struct results {
    int     n;
    int64_t count[RESULTS];
    double *at[RESULTS];
} results;

static results run_path(const options *o, dra_attend_path path)
{
    static const char *const names[] = {"y", "dq", "dk", "dv", "d4", "d5", "d6"};
    job                      j = {.g = check_graph()};
    dra_value                out[RESULTS];
    results                  r = {.n = build(&j, o, path, out)};
    for (int i = 0; i < r.n; i++) {
        const dra_shape s = dra_shape_of(j.g, out[i]);
        r.count[i] = dra_shape_count(&s);
        dra_output(j.g, names[i], out[i]);
    }
    check_program p = check_compile(j.g, 1);
    for (int i = 0; i < j.n; i++) check_bind(&p, j.name[i], j.data[i], j.bytes[i]);
    check_run(&p);
    for (int i = 0; i < r.n; i++) {
        const dra_real *from = check_result(&p, names[i]);
        r.at[i] = malloc((size_t)r.count[i] * sizeof *r.at[i]);
        for (int64_t k = 0; k < r.count[i]; k++) r.at[i][k] = (double)from[k];
    }
    check_free(&p);
    for (int i = 0; i < j.n; i++) free(j.data[i]);
    return r;
}

static void compare_paths(const options *o)
{
    results plain = run_path(o, DRA_ATTEND_PLAIN), tiled = run_path(o, DRA_ATTEND_TILED);
    for (int i = 0; i < plain.n; i++) {
        /* what all keys share changes no weight: its gradient, a sum of terms of order 0.1, is 0 */
        double largest = i == 4 && o->bias == OF_QUERIES ? 0.1 : 0;
        for (int64_t k = 0; k < plain.count[i]; k++) largest = fmax(largest, fabs(plain.at[i][k]));
        for (int64_t k = 0; k < plain.count[i]; k++)
            if (!(fabs(plain.at[i][k] - tiled.at[i][k]) <= tolerance * largest))
                fail_msg(
                    "sees %d, bias %d, slopes %d, heads %d, table %d, always %d, mask %d, "
                    "cap %d, scale %d, drop %d: result %d, element %lld: plain %.17g, tiled %.17g",
                    o->sees, o->bias, o->where, o->heads, o->table, o->always, o->mask, o->cap,
                    o->scale, o->drop, i, (long long)k, plain.at[i][k], tiled.at[i][k]);
        free(plain.at[i]);
        free(tiled.at[i]);
    }
}

/* One test a kind of interval, so that a failure says where. */
static void all_options(sees s)
{
    enum { FLAGS = 16, COMBINATIONS = BIASES * WHERES * HEADS * FLAGS };
    for (int i = 0; i < COMBINATIONS; i++) {
        const int flags = i % FLAGS, rest = i / FLAGS;
        compare_paths(&(options){.sees = s,
                                 .bias = (bias)(rest % BIASES),
                                 .where = (where)(rest / BIASES % WHERES),
                                 .heads = (heads)(rest / BIASES / WHERES),
                                 .table = (table)(i % TABLES), /* in turns: the rest is by 16 */
                                 .always = (const int[]){0, 0, 0, 4, 33}[i % 5],
                                 .mask = flags & 1,
                                 .cap = flags & 2,
                                 .late = i % 7 < 3,
                                 .scale = flags & 4,
                                 .drop = flags & 8});
    }
}

static void paths_agree_on_all_keys(void **state) { all_options(ALL); }
static void paths_agree_causal(void **state) { all_options(CAUSAL); }
static void paths_agree_in_windows(void **state) { all_options(WINDOW); }
static void paths_agree_ragged(void **state) { all_options(RAGGED); }

/* ---- cutting --------------------------------------------------------------------------------- */

enum { WHOLE = 12, HEAD_COUNT = 4, WIDE = 150, LONG = 300, CHANNELS = 20, COLUMNS = 90 };

static dra_real cut_distance[HEAD_COUNT * COLUMNS];

typedef struct cut_options {
    bool    plain; /* the path: dropout is the same on both */
    int64_t window;
    int64_t always;
    int64_t pos; /* where the whole starts */
    int64_t J;   /* keys there are, at least pos + 12 */
    bool    dropout, slopes, distance;
    bool    placed; /* positions of keys are given */
} cut_options;

/* Queries from..from+n-1 of the whole, written to their place in y (12, H, E). */
static void run_cut(const cut_options *o, int64_t from, int64_t n, const dra_real *q, dra_real *k,
                    dra_real *v, dra_real *y)
{
    dra_graph        *g = check_graph();
    const dra_value   in_q = check_real(g, "q", DRA_SHAPE(1, n, HEAD_COUNT, CHANNELS));
    const dra_value   in_k = check_real(g, "k", DRA_SHAPE(1, o->J, HEAD_COUNT / 2, CHANNELS));
    const dra_value   in_v = check_real(g, "v", DRA_SHAPE(1, o->J, HEAD_COUNT / 2, CHANNELS));
    const dra_value   pos = dra_input(g, "pos", DRA_I32, DRA_SHAPE(1));
    dra_random_config random = {"weights", dra_input(g, "key", DRA_I32, DRA_SHAPE(4)), pos, {0}};
    dra_attend_config c = {.path = o->plain ? DRA_ATTEND_PLAIN : DRA_ATTEND_TILED,
                           .always = o->always};
    c.q_pos = dra_reshape(g, dra_add(g, dra_arange(g, n), pos), DRA_SHAPE(1, n));
    if (o->slopes) c.slopes = dra_broadcast(g, dra_number(g, 0.125), DRA_SHAPE(HEAD_COUNT));
    if (o->placed) c.k_pos = dra_reshape(g, dra_arange(g, o->J), DRA_SHAPE(1, o->J));
    if (o->distance) {
        c.distance = check_real(g, "distance", DRA_SHAPE(HEAD_COUNT, COLUMNS));
        c.distance_zero = 3;
    }
    if (o->dropout) c.dropout = 0.25, c.random = &random;
    dra_causal_interval(g, pos, 1, n, o->window, &c.lo, &c.hi);
    const dra_value out = dra_attend(g, dra_transpose(g, in_q, 1, 2), dra_transpose(g, in_k, 1, 2),
                                     dra_transpose(g, in_v, 1, 2), &c);
    dra_output(g, "y", dra_copy(g, dra_transpose(g, out, 1, 2)));
    check_program p = check_compile(g, 2);
    const int64_t row = HEAD_COUNT * CHANNELS, key_row = row / 2;
    int32_t       at[] = {(int32_t)(o->pos + from)}, key[] = {1, 2, 3, 4};
    dra_real     *some = malloc((size_t)(n * row) * sizeof *some);
    memcpy(some, q + from * row, (size_t)(n * row) * sizeof *some);
    check_bind(&p, "q", some, (size_t)(n * row) * sizeof *some);
    check_bind(&p, "k", k, (size_t)(o->J * key_row) * sizeof *k);
    check_bind(&p, "v", v, (size_t)(o->J * key_row) * sizeof *v);
    check_bind(&p, "pos", at, sizeof at);
    check_bind(&p, "key", key, sizeof key);
    if (o->distance) check_bind(&p, "distance", cut_distance, sizeof cut_distance);
    check_run(&p);
    memcpy(y + from * row, check_result(&p, "y"), (size_t)(n * row) * sizeof *y);
    check_free(&p);
    free(some);
}

static void fill(uint64_t seed, int64_t n, dra_real *x)
{
    for (int64_t i = 0; i < n; i++) x[i] = (dra_real)(2 * check_random(&seed) - 1);
}

enum { Y_COUNT = WHOLE * HEAD_COUNT * CHANNELS, KEY_COUNT = LONG * HEAD_COUNT / 2 * CHANNELS };

static dra_real cut_q[Y_COUNT], cut_k[KEY_COUNT], cut_v[KEY_COUNT];

static void draw_cut(void)
{
    fill(1, Y_COUNT, cut_q);
    fill(2, KEY_COUNT, cut_k);
    fill(3, KEY_COUNT, cut_v);
    fill(4, HEAD_COUNT * COLUMNS, cut_distance);
}

static const cut_options cuts[] = {
    {.J = WHOLE},
    {.J = WIDE, .pos = 120},
    {.J = WIDE, .pos = 60}, /* the whole crosses a border of key blocks */
    {.J = WIDE, .pos = 120, .window = 30},
    {.J = WIDE, .pos = 130, .window = 100}, /* starts inside one block, ends in another */
    {.J = WIDE, .pos = 55, .window = 9, .dropout = true, .slopes = true},
    {.J = WIDE, .pos = 120, .dropout = true, .slopes = true},
    {.J = LONG, .pos = 0}, /* enough that one query has stages of its own */
    {.J = LONG, .pos = 280},
    {.J = LONG, .pos = 250, .window = 100},
    {.J = LONG, .pos = 120, .dropout = true, .slopes = true},
    {.J = WHOLE, .distance = true},
    {.J = WIDE, .pos = 60, .distance = true},
    {.J = WIDE, .pos = 130, .window = 100, .distance = true, .dropout = true, .slopes = true},
    {.J = LONG, .pos = 120, .distance = true}, /* far ones share the last column */
    {.J = LONG, .pos = 280, .distance = true, .dropout = true},
    {.J = LONG, .pos = 250, .window = 100, .distance = true},
    {.J = WIDE, .pos = 130, .window = 40, .always = 3, .distance = true, .slopes = true},
    {.J = LONG, .pos = 250, .window = 60, .always = 70, .dropout = true},
};

/* 12 queries at once, as 5 and 7, and one by one: the same bits. */
static void cutting_changes_nothing(void **state)
{
    dra_real whole[Y_COUNT], two[Y_COUNT], single[Y_COUNT];
    draw_cut();
    for (size_t i = 0; i < COUNT(cuts); i++) {
        run_cut(&cuts[i], 0, WHOLE, cut_q, cut_k, cut_v, whole);
        run_cut(&cuts[i], 0, 5, cut_q, cut_k, cut_v, two);
        run_cut(&cuts[i], 5, 7, cut_q, cut_k, cut_v, two);
        for (int64_t t = 0; t < WHOLE; t++) run_cut(&cuts[i], t, 1, cut_q, cut_k, cut_v, single);
        assert_memory_equal(whole, two, sizeof whole);
        assert_memory_equal(whole, single, sizeof whole);
    }
}

/* A cache with more room gives the same bits, whatever is in the room: here the keys to come. */
static void capacity_changes_nothing(void **state)
{
    dra_real small[Y_COUNT], large[Y_COUNT];
    draw_cut();
    for (int64_t pos = 0; pos <= 60; pos += 20) {
        cut_options o = {
            .pos = pos, .J = pos + WHOLE, .dropout = true, .slopes = true, .distance = true};
        run_cut(&o, 0, WHOLE, cut_q, cut_k, cut_v, small);
        o.J = WIDE;
        run_cut(&o, 0, WHOLE, cut_q, cut_k, cut_v, large);
        assert_memory_equal(small, large, sizeof small);
        o.J = LONG;
        for (int64_t t = 0; t < WHOLE; t++) run_cut(&o, t, 1, cut_q, cut_k, cut_v, large);
        assert_memory_equal(small, large, sizeof small);
    }
}

/* Keys at the positions they have anyway: the same bits. */
static void placing_keys_changes_nothing(void **state)
{
    dra_real counted[Y_COUNT], placed[Y_COUNT];
    draw_cut();
    for (int64_t pos = 0; pos <= 260; pos += 52) {
        cut_options o = {.pos = pos, .J = LONG, .distance = true, .slopes = true};
        run_cut(&o, 0, WHOLE, cut_q, cut_k, cut_v, counted);
        o.placed = true;
        run_cut(&o, 0, WHOLE, cut_q, cut_k, cut_v, placed);
        assert_memory_equal(counted, placed, sizeof counted);
    }
}

/* Both paths drop the same weights, also in pieces. */
static void dropout_is_of_the_place(void **state)
{
    dra_real    tiled[Y_COUNT], plain[Y_COUNT];
    double      want[Y_COUNT];
    cut_options o = {.J = WIDE, .pos = 70, .dropout = true};
    draw_cut();
    run_cut(&o, 0, WHOLE, cut_q, cut_k, cut_v, tiled);
    o.plain = true;
    run_cut(&o, 0, 5, cut_q, cut_k, cut_v, plain);
    run_cut(&o, 5, 7, cut_q, cut_k, cut_v, plain);
    for (int i = 0; i < Y_COUNT; i++) want[i] = (double)plain[i];
    check_close("y", Y_COUNT, tiled, want, tolerance);
}

/* ---- memory and cost ------------------------------------------------------------------------- */

static size_t training_memory(int64_t t, dra_attend_path path, bool distance)
{
    dra_graph        *g = check_graph();
    dra_value         x[4], dx[4];
    dra_attend_config c = {.path = path};
    const int         n = distance ? 4 : 3;
    if (distance) x[3] = c.distance = check_real(g, "distance", DRA_SHAPE(2, t));
    for (int i = 0; i < 3; i++)
        x[i] = check_real(g, i == 0 ? "q" : i == 1 ? "k" : "v", DRA_SHAPE(1, 2, t, 16));
    dra_causal_interval(g, (dra_value){0}, 1, t, 0, &c.lo, &c.hi);
    const dra_value loss = dra_sum_all(g, dra_square(g, dra_attend(g, x[0], x[1], x[2], &c)));
    dra_gradient(g, 1, &loss, NULL, n, x, dx);
    for (int i = 0; i < n; i++)
        dra_output(g, (const char *[]){"dq", "dk", "dv", "ddistance"}[i], dx[i]);
    dra_program *p = NULL;
    dra_error    err = {0};
    if (dra_compile(g, check_device(1, "ref"), &p, &err) != DRA_OK) fail_msg("%s", err.text);
    const size_t bytes = dra_program_memory(p).activations;
    dra_program_destroy(p);
    dra_graph_destroy(g);
    return bytes;
}

static void memory_is_linear(void **state)
{
    for (int distance = 0; distance < 2; distance++) {
        const size_t small = training_memory(64, DRA_ATTEND_AUTO, distance);
        const size_t large = training_memory(256, DRA_ATTEND_AUTO, distance);
        assert_true(large <= 4 * small + 1024);
    }
    assert_true(training_memory(256, DRA_ATTEND_PLAIN, false) >
                8 * training_memory(64, DRA_ATTEND_PLAIN, false));
}

static double flops_of(const check_program *p, const char *op)
{
    dra_profile_row rows[64];
    const size_t    n = dra_profile_read(p->buffers, rows, COUNT(rows));
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].op, op) == 0) return rows[i].flops;
    return -1;
}

/* A causal square has t (t + 1) / 2 visible pairs. */
static void cost_counts_visible_pairs(void **state)
{
    enum { t = 70, d = 6, e = 4, h = 3, n = h * t * d };
    static dra_real   x[n];
    dra_graph        *g = check_graph();
    dra_attend_config c = {0};
    dra_value         in[3] = {check_real(g, "q", DRA_SHAPE(1, h, t, d)),
                               check_real(g, "k", DRA_SHAPE(1, h, t, d)),
                               check_real(g, "v", DRA_SHAPE(1, h, t, e))};
    dra_value         dx[3];
    dra_causal_interval(g, (dra_value){0}, 1, t, 0, &c.lo, &c.hi);
    const dra_value loss = dra_sum_all(g, dra_attend(g, in[0], in[1], in[2], &c));
    dra_gradient(g, 1, &loss, NULL, 3, in, dx);
    dra_output(g, "dq", dx[0]);
    dra_output(g, "dk", dx[1]);
    dra_output(g, "dv", dx[2]);
    check_program p = check_compile(g, 1);
    check_bind(&p, "q", x, h * t * d * sizeof *x);
    check_bind(&p, "k", x, h * t * d * sizeof *x);
    check_bind(&p, "v", x, h * t * e * sizeof *x);
    dra_profile_enable(p.buffers, true);
    check_run(&p);
    const double pairs = h * t * (t + 1) / 2.0;
    assert_true(flops_of(&p, "attend") == pairs * 2 * (d + e));
    assert_true(flops_of(&p, "attend_back") == pairs * 2 * (3 * d + 2 * e));
    check_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_agree_on_all_keys),   cmocka_unit_test(paths_agree_causal),
        cmocka_unit_test(paths_agree_in_windows),    cmocka_unit_test(paths_agree_ragged),
        cmocka_unit_test(cutting_changes_nothing),   cmocka_unit_test(capacity_changes_nothing),
        cmocka_unit_test(dropout_is_of_the_place),   cmocka_unit_test(memory_is_linear),
        cmocka_unit_test(cost_counts_visible_pairs), cmocka_unit_test(placing_keys_changes_nothing),
    };
    return check_main("attend paths", NULL, 0, tests, COUNT(tests));
}
