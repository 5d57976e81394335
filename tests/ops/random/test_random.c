/* Random numbers: the values themselves, that they depend on seed, step, path, row, time and inner
 * index and on nothing else, and their statistics. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "graph/op.h"

typedef enum kind { UNIFORM, NORMAL, DROPOUT } kind;

typedef struct args {
    kind      kind;
    dra_shape shape; /* not of dropout */
    double    p;
    bool      pos, row; /* inputs after x (of dropout) and the key */
} args;

/* ---- against the definition, number by number ------------------------------------------------ */

static dra_value build_one(dra_graph *g, const args *a, dra_value x, const dra_random_config *c)
{
    switch (a->kind) {
    case UNIFORM: return dra_random_uniform(g, a->shape, c);
    case NORMAL: return dra_random_normal(g, a->shape, c);
    case DROPOUT: break;
    }
    return dra_dropout(g, x, a->p, c);
}

static void build(dra_graph *g, const void *user, const dra_value *in, dra_value *out)
{
    const args       *a = user;
    const dra_value   x = in[0];
    dra_random_config c = {.name = "noise"};
    if (a->kind == DROPOUT) in++;
    c.key = *in++;
    if (a->pos) c.pos = *in++;
    if (a->row) c.row = *in++;
    dra_scope_push(g, "layer");
    dra_scope_push(g, "one");
    out[0] = build_one(g, a, x, &c);
    dra_scope_pop(g);
    dra_scope_pop(g);
}

static uint64_t path_of_build(void)
{
    dra_graph *g = check_graph();
    dra_scope_push(g, "layer");
    dra_scope_push(g, "one");
    const uint64_t path = dra_scope_hash(g, "noise");
    dra_graph_destroy(g);
    return path;
}

static double uniform(uint64_t key, uint64_t inner, uint32_t time, uint32_t row)
{
    const uint64_t each = sizeof(dra_real) == 4 ? 4 : 2, block = inner / each;
    uint32_t       word[4] = {(uint32_t)block, (uint32_t)(block >> 32), time, row};
    dra_philox(word, key, word);
    if (each == 4) return (double)(word[inner % 4] >> 8) / 16777216;
    const uint32_t high = word[inner % 2 * 2], low = word[inner % 2 * 2 + 1];
    return (double)(((uint64_t)high << 32 | low) >> 11) / 9007199254740992.0;
}

static double number(kind k, uint64_t key, uint64_t inner, uint32_t time, uint32_t row)
{
    if (k != NORMAL) return uniform(key, inner, time, row);
    const uint64_t first = inner / 2 * 2; /* of the pair */
    const double   length = sqrt(-2 * log(1 - uniform(key, first, time, row)));
    const double   angle = 2 * acos(-1) * uniform(key, first + 1, time, row);
    return length * (inner == first ? cos(angle) : sin(angle));
}

static void oracle(const void *user, const check_tensor *in, check_tensor *out)
{
    const args         *a = user;
    const check_tensor *x = in, *pos = NULL, *row = NULL;
    const dra_shape    *s = &out->shape;
    int32_t             seed_step[4];
    if (a->kind == DROPOUT) in++;
    for (int i = 0; i < 4; i++) seed_step[i] = (int32_t)in->at[i];
    in++;
    if (a->pos) pos = in++;
    if (a->row) row = in++;
    const uint64_t key = dra_philox_key(seed_step, path_of_build());
    const int64_t  T = s->dim[s->rank == 1 ? 0 : 1], B = s->rank == 1 ? 1 : s->dim[0];
    for (int64_t i = 0; i < out->count; i++) {
        const int64_t  inner = out->count / (B * T), b = i / (T * inner), t = i / inner % T;
        const uint32_t time = (uint32_t)((int64_t)(pos ? pos->at[b] : 0) + t);
        const uint32_t at_row = (uint32_t)(int64_t)(row ? row->at[b] : (double)b);
        const double   u = number(a->kind, key, (uint64_t)(i % inner), time, at_row);
        out->at[i] = u;
        if (a->kind == DROPOUT)
            out->at[i] = u >= (double)(dra_real)a->p ? x->at[i] / (1 - a->p) : 0;
    }
}

#define KEY                                                                                        \
    {                                                                                              \
        {1, {4}}, CHECK_I32, .lo = -100000, .hi = 100000                                           \
    }
#define BATCH(n)                                                                                   \
    {                                                                                              \
        {1, {n}}, CHECK_I32, .lo = -5, .hi = 5000                                                  \
    }

static const args of[] = {
    {UNIFORM, {3, {2, 5, 7}}},
    {UNIFORM, {4, {2, 5, 3, 3}}, .pos = true},
    {UNIFORM, {3, {2, 5, 7}}, .row = true},
    {UNIFORM, {3, {3, 2, 6}}, .pos = true, .row = true},
    {UNIFORM, {1, {11}}, .pos = true, .row = true},
    {UNIFORM, {2, {3, 11}}},
    {UNIFORM, {3, {0, 3, 4}}, .pos = true},
    {UNIFORM, {3, {2, 3, 0}}},
    {UNIFORM, {3, {1, 3, 16389}}},
    {UNIFORM, {2, {1, 1}}},
    {NORMAL, {3, {2, 5, 7}}, .pos = true, .row = true},
    {NORMAL, {1, {11}}},
    {NORMAL, {3, {2, 9, 1001}}},
    {NORMAL, {2, {2, 0}}},
};
static const check_case random_cases[] = {
    {"uniform", 1, {KEY}, &of[0]},
    {"uniform, pos", 2, {KEY, BATCH(2)}, &of[1]},
    {"uniform, row", 2, {KEY, BATCH(2)}, &of[2]},
    {"uniform, pos and row", 3, {KEY, BATCH(3), BATCH(3)}, &of[3]},
    {"uniform, rank 1", 3, {KEY, BATCH(1), BATCH(1)}, &of[4]},
    {"uniform, rank 2", 1, {KEY}, &of[5]},
    {"uniform, no rows", 2, {KEY, BATCH(0)}, &of[6]},
    {"uniform, no width", 1, {KEY}, &of[7]},
    {"uniform, tiles that cut a row", 1, {KEY}, &of[8]},
    {"uniform, one", 1, {KEY}, &of[9]},
    {"normal", 3, {KEY, BATCH(2), BATCH(2)}, &of[10]},
    {"normal, rank 1", 1, {KEY}, &of[11]},
    {"normal, several tiles", 1, {KEY}, &of[12]},
    {"normal, nothing", 1, {KEY}, &of[13]},
};

static const args half = {DROPOUT, .p = 0.5}, tenth = {DROPOUT, .p = 0.1, .pos = true, .row = true},
                  most = {DROPOUT, .p = 0.95, .row = true}, nothing = {DROPOUT, .p = 0};
static const check_case dropout_cases[] = {
    {"p = 0.5", 2, {{{3, {2, 5, 7}}}, KEY}, &half},
    {"p = 0.1, pos and row", 4, {{{3, {2, 5, 7}}}, KEY, BATCH(2), BATCH(2)}, &tenth},
    {"p = 0.95, row", 3, {{{4, {2, 3, 4, 5}}}, KEY, BATCH(2)}, &most},
    {"p = 0", 2, {{{2, {3, 5}}}, KEY}, &nothing},
    {"rank 1", 2, {{{1, {33}}}, KEY}, &half},
    {"rank 2", 2, {{{2, {5, 33}}}, KEY}, &half},
    {"nothing", 2, {{{3, {2, 0, 4}}}, KEY}, &half},
    {"several tiles", 2, {{{3, {2, 9, 1001}}}, KEY}, &half},
    {"far out", 2, {{{2, {5, 33}}, .lo = -1e30, .hi = 1e30}, KEY}, &half, .no_grad = true},
};

/* ---- what the numbers depend on -------------------------------------------------------------- */

typedef struct place { /* where and with what to draw; out gets the numbers */
    kind           kind;
    int64_t        B, T, C;
    const char    *scope, *name;
    int32_t        key[4];
    const int32_t *pos, *row; /* (B), or NULL */
} place;

static void draw(const place *p, dra_real *out)
{
    dra_graph        *g = check_graph();
    const dra_shape   shape = DRA_SHAPE(p->B, p->T, p->C);
    const size_t      bytes = (size_t)(p->B * p->T * p->C) * sizeof *out, batch = (size_t)p->B * 4;
    const args        a = {p->kind, shape, .p = 0.3};
    dra_random_config c = {.name = p->name, .key = dra_input(g, "key", DRA_I32, DRA_SHAPE(4))};
    if (p->pos) c.pos = dra_input(g, "pos", DRA_I32, DRA_SHAPE(p->B));
    if (p->row) c.row = dra_input(g, "row", DRA_I32, DRA_SHAPE(p->B));
    const dra_value one = dra_broadcast(g, dra_number(g, 1), shape);
    if (p->scope) dra_scope_push(g, p->scope);
    dra_output(g, "y", build_one(g, &a, one, &c));
    check_program q = check_compile(g, 2);
    int32_t       key[4], pos[8], row[8];
    memcpy(key, p->key, sizeof key);
    check_bind(&q, "key", key, sizeof key);
    if (p->pos) check_bind(&q, "pos", memcpy(pos, p->pos, batch), batch);
    if (p->row) check_bind(&q, "row", memcpy(row, p->row, batch), batch);
    check_run(&q);
    memcpy(out, check_result(&q, "y"), bytes);
    check_free(&q);
}

enum { B = 3, T = 10, C = 5 };
static const place whole = {UNIFORM, B, T, C, "block", "noise", {1, 2, 3, 4}, NULL, NULL};
static const kind  kinds[] = {UNIFORM, NORMAL, DROPOUT};

static void does_not_depend_on_chunks(void **state)
{
    static const int32_t zeros[B] = {0}, fours[B] = {4, 4, 4};
    for (size_t k = 0; k < COUNT(kinds); k++) {
        dra_real all[B][T][C], first[B][4][C], second[B][6][C];
        place    p = whole;
        p.kind = kinds[k];
        draw(&p, all[0][0]);
        p.T = 4, p.pos = zeros;
        draw(&p, first[0][0]);
        p.T = 6, p.pos = fours;
        draw(&p, second[0][0]);
        for (int b = 0; b < B; b++) {
            assert_memory_equal(all[b], first[b], sizeof first[b]);
            assert_memory_equal(all[b][4], second[b], sizeof second[b]);
        }
    }
}

static void does_not_depend_on_batches(void **state)
{
    for (size_t k = 0; k < COUNT(kinds); k++) {
        static const int32_t swapped[B] = {2, 0, 1};
        dra_real             all[B][T][C], alone[T][C], other[B][T][C];
        place                p = whole;
        p.kind = kinds[k];
        draw(&p, all[0][0]);
        p.row = swapped;
        draw(&p, other[0][0]);
        p.B = 1;
        for (int32_t b = 0; b < B; b++) {
            p.row = &b;
            draw(&p, alone[0]);
            assert_memory_equal(all[b], alone, sizeof alone);
            assert_memory_equal(all[swapped[b]], other[b], sizeof alone);
        }
    }
}

static int equal_numbers(const dra_real *a, const dra_real *b)
{
    int n = 0;
    for (int i = 0; i < B * T * C; i++) n += a[i] == b[i];
    return n;
}

static void depends_on_seed_step_and_path(void **state)
{
    place p[] = {whole, whole, whole, whole, whole, whole, whole, whole, whole};
    for (int i = 0; i < 4; i++) p[1 + i].key[i]++;
    p[5].name = "other";
    p[6].scope = "other";
    p[7].scope = NULL;
    p[8].scope = "bloc", p[8].name = "knoise";
    dra_real y[COUNT(p)][B * T * C], again[B * T * C];
    for (size_t i = 0; i < COUNT(p); i++) {
        draw(&p[i], y[i]);
        for (size_t j = 0; j < i; j++) assert_true(equal_numbers(y[i], y[j]) <= 1);
    }
    draw(&p[0], again);
    assert_int_equal(equal_numbers(y[0], again), B * T * C);
}

static void no_number_comes_twice(void **state)
{
    dra_real y[B * T * C];
    draw(&whole, y);
    for (int i = 0; i < B * T * C; i++)
        for (int j = 0; j < i; j++) assert_true(y[i] != y[j]);
}

/* ---- statistics ------------------------------------------------------------------------------ */

enum { MANY = 100000 };

typedef struct moments {
    double mean, variance, lag, least, largest; /* lag: correlation of neighbours */
} moments;

static moments moments_of(kind k)
{
    static dra_real y[MANY];
    const place     p = {k, 4, 25, MANY / 100, NULL, "noise", {7}, NULL, NULL};
    moments         m = {.least = INFINITY, .largest = -INFINITY};
    draw(&p, y);
    for (int i = 0; i < MANY; i++) {
        m.mean += (double)y[i] / MANY;
        m.least = fmin(m.least, (double)y[i]);
        m.largest = fmax(m.largest, (double)y[i]);
    }
    for (int i = 0; i < MANY; i++) {
        const double d = (double)y[i] - m.mean;
        m.variance += d * d / MANY;
        if (i) m.lag += d * ((double)y[i - 1] - m.mean) / MANY;
    }
    m.lag /= m.variance;
    return m;
}

static void close_to(double found, double want, double allowed)
{
    if (!(fabs(found - want) <= allowed)) fail_msg("%g, expected %g +- %g", found, want, allowed);
}

/* Bounds are five standard deviations of each estimate. */
static void has_the_right_moments(void **state)
{
    const double  root = sqrt(MANY);
    const moments u = moments_of(UNIFORM), n = moments_of(NORMAL), d = moments_of(DROPOUT);
    close_to(u.mean, 0.5, 5 * sqrt(1.0 / 12) / root);
    close_to(u.variance, 1.0 / 12, 5 * sqrt(1.0 / 180) / root);
    close_to(u.lag, 0, 5 / root);
    assert_true(u.least >= 0 && u.least < 1e-3 && u.largest < 1 && u.largest > 1 - 1e-3);
    close_to(n.mean, 0, 5 / root);
    close_to(n.variance, 1, 5 * sqrt(2) / root);
    close_to(n.lag, 0, 5 / root);
    assert_true(n.least < -3.5 && n.largest > 3.5 && n.least > -7 && n.largest < 7);
    close_to(d.mean, 1, 5 * sqrt(0.3 / 0.7) / root); /* of ones, p = 0.3 */
    close_to(d.lag, 0, 5 / root);
}

/* ---- refusals -------------------------------------------------------------------------------- */

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static void dropout_of_nothing_is_x(void **state)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(2, 3));
    assert_int_equal(dra_dropout(g, x, 0, NULL).id, x.id);
    dra_graph_destroy(g);
}

static void refuses_p(void **state)
{
    const double p[] = {-0.1, 1, 1.5, NAN};
    const char  *text[] = {
         "dropout: p -0.1, expected 0 <= p < 1", "dropout: p 1, expected 0 <= p < 1",
         "dropout: p 1.5, expected 0 <= p < 1", "dropout: p nan, expected 0 <= p < 1"};
    for (size_t i = 0; i < COUNT(p); i++) {
        dra_graph        *g = check_graph();
        dra_random_config c = {.name = "a", .key = dra_input(g, "key", DRA_I32, DRA_SHAPE(4))};
        assert_int_equal(dra_dropout(g, check_real(g, "x", DRA_SHAPE(3)), p[i], &c).id, 0);
        check_refused(g, DRA_ERR_VALUE, text[i]);
    }
}

static void refuses_names(void **state)
{
    const char *names[] = {NULL, "", "a/b"};
    for (size_t i = 0; i < COUNT(names); i++) {
        dra_graph        *g = check_graph();
        dra_random_config c = {.name = names[i], .key = dra_input(g, "key", DRA_I32, DRA_SHAPE(4))};
        assert_int_equal(dra_random_normal(g, DRA_SHAPE(2, 3), &c).id, 0);
        check_refused(g, DRA_ERR_NAME, "random_normal: needs a name without '/'");
    }
    dra_graph *g = check_graph();
    assert_int_equal(dra_random_uniform(g, DRA_SHAPE(2, 3), NULL).id, 0);
    check_refused(g, DRA_ERR_NAME, "random_uniform: needs a name without '/'");
}

static void refuse(kind k, dra_dtype key, dra_shape key_shape, dra_shape pos, dra_shape row,
                   dra_status code, const char *text)
{
    dra_graph        *g = check_graph();
    const args        a = {k, DRA_SHAPE(2, 3, 4), .p = 0.5};
    const dra_value   x = check_real(g, "x", DRA_SHAPE(2, 3, 4));
    dra_random_config c = {.name = "a", .key = dra_input(g, "key", key, key_shape)};
    c.pos = dra_input(g, "pos", DRA_I32, pos);
    c.row = dra_input(g, "row", DRA_I32, row);
    assert_int_equal(build_one(g, &a, x, &c).id, 0);
    check_refused(g, code, text);
}

static void refuses_keys(void **state)
{
    const dra_shape two = DRA_SHAPE(2), three = DRA_SHAPE(3), four = DRA_SHAPE(4);
    refuse(UNIFORM, DRA_REAL, four, two, two, DRA_ERR_DTYPE,
           "random: key is " REAL " (4), expected i32 (4)");
    refuse(DROPOUT, DRA_BOOL, four, two, two, DRA_ERR_DTYPE,
           "dropout: key is bool (4), expected i32 (4)");
    refuse(NORMAL, DRA_I32, two, two, two, DRA_ERR_SHAPE,
           "random: key is i32 (2), expected i32 (4)");
    refuse(UNIFORM, DRA_I32, four, three, two, DRA_ERR_SHAPE,
           "random: pos is i32 (3), expected i32 (2)");
    refuse(DROPOUT, DRA_I32, four, two, DRA_SHAPE(2, 3), DRA_ERR_SHAPE,
           "dropout: row is i32 (2, 3), expected i32 (2)");
    dra_graph *g = check_graph();
    assert_int_equal(dra_random_normal(g, two, &(dra_random_config){.name = "a"}).id, 0);
    check_refused(g, DRA_ERR_VALUE, "random_normal: 'a' has no key");
}

static void refuses_shapes(void **state)
{
    dra_graph        *g = check_graph();
    dra_random_config c = {.name = "a", .key = dra_input(g, "key", DRA_I32, DRA_SHAPE(4))};
    assert_int_equal(dra_random_uniform(g, (dra_shape){0}, &c).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "random_uniform: rank 0, expected 1 to 6");
    g = check_graph();
    c.key = dra_input(g, "key", DRA_I32, DRA_SHAPE(4));
    assert_int_equal(dra_random_uniform(g, (dra_shape){.rank = 7}, &c).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "random_uniform: rank 7, expected 1 to 6");
    g = check_graph();
    c.key = dra_input(g, "key", DRA_I32, DRA_SHAPE(4));
    assert_int_equal(dra_random_uniform(g, DRA_SHAPE(2, -3), &c).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "random: axis 1 has size -3");
    g = check_graph();
    c.key = dra_input(g, "key", DRA_I32, DRA_SHAPE(4));
    assert_int_equal(dra_dropout(g, check_real(g, "x", (dra_shape){0}), 0.5, &c).id, 0);
    check_refused(g, DRA_ERR_SHAPE, "dropout: x has no axis");
    g = check_graph();
    c.key = dra_input(g, "key", DRA_I32, DRA_SHAPE(4));
    assert_int_equal(dra_dropout(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(3)), 0.5, &c).id, 0);
    check_refused(g, DRA_ERR_DTYPE, "dropout: x is i32, expected " REAL);
    g = check_graph();
    assert_int_equal(dra_dropout(g, (dra_value){0}, 0.5, NULL).id, 0);
    check_refused(g, DRA_ERR_VALUE, "dropout: input 0 is the null value");
}

int main(void)
{
    const check_spec specs[] = {
        {"random", 1, build, oracle, random_cases, COUNT(random_cases)},
        {"dropout", 1, build, oracle, dropout_cases, COUNT(dropout_cases)},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(does_not_depend_on_chunks),
        cmocka_unit_test(does_not_depend_on_batches),
        cmocka_unit_test(depends_on_seed_step_and_path),
        cmocka_unit_test(no_number_comes_twice),
        cmocka_unit_test(has_the_right_moments),
        cmocka_unit_test(dropout_of_nothing_is_x),
        cmocka_unit_test(refuses_p),
        cmocka_unit_test(refuses_names),
        cmocka_unit_test(refuses_keys),
        cmocka_unit_test(refuses_shapes),
    };
    return check_main("random", specs, COUNT(specs), tests, COUNT(tests));
}
