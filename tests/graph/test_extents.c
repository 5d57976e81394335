/* Shapes are static, extents are values: a cache of keys and values that grows to 10^5 tokens, one
 * at a time, read by attention each time, compiles O(log) programs. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 2, TOKENS = 100000 };

/* in: query (1, 1, 1, D), k and v (1, 1, cap, D), lo, hi (1, 1) */
static void read_cache(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    out[0] = dra_attend(g, in[0], in[1], in[2], &(dra_attend_config){.lo = in[3], .hi = in[4]});
}

/* key: the capacity. One new (k, v) is written at `pos`; if `look`, a query reads items 0..pos. */
static void build(dra_graph *g, void *user, const void *key, size_t bytes)
{
    const int64_t   cap = *(const int64_t *)key;
    const dra_value k = dra_state(g, "k", DRA_REAL, DRA_SHAPE(1, cap, D));
    const dra_value v = dra_state(g, "v", DRA_REAL, DRA_SHAPE(1, cap, D));
    const dra_value x = dra_input(g, "x", DRA_REAL, DRA_SHAPE(1, 1, D));
    const dra_value pos = dra_input(g, "pos", DRA_I32, DRA_SHAPE(1));
    const dra_value look = dra_input(g, "look", DRA_I32, (dra_shape){0});
    const dra_value at = dra_reshape(g, pos, DRA_SHAPE(1, 1));
    const dra_value k1 = dra_write_rows(g, k, x, at), v1 = dra_write_rows(g, v, dra_exp(g, x), at);
    const dra_value q = dra_reshape(g, x, DRA_SHAPE(1, 1, 1, D));
    dra_value       in[] = {q,
                            dra_reshape(g, k1, DRA_SHAPE(1, 1, cap, D)),
                            dra_reshape(g, v1, DRA_SHAPE(1, 1, cap, D)),
                            {0},
                            {0}},
              y;
    dra_causal_interval(g, pos, 1, 1, 0, &in[3], &in[4]);
    dra_cond(g, look, read_cache, NULL, 5, in, 1, &q, &y); /* reading all, always: 10^10 steps */
    dra_output(g, "y", y);
    dra_donate(g, "k1", k1, k);
    dra_donate(g, "v1", v1, v);
}

typedef struct cache {
    dra_session *session;
    int64_t      cap;
    dra_array   *k, *v;
    dra_real     keys[TOKENS * D], x[D];
    int32_t      pos, look;
} cache;

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static void put(cache *c, const char *name, const void *data, size_t bytes)
{
    dra_error err = {0};
    expect_ok(dra_session_put(c->session, dra_session_name(c->session, name), data, bytes, &err),
              &err);
}

/* Larger memory, with what was there. */
static void enlarge(cache *c, dra_array **a, const char *name, size_t bytes)
{
    dra_error      err = {0};
    dra_array     *more = NULL;
    const dra_span old = dra_array_whole(*a);
    expect_ok(dra_array_create(dra_session_device(c->session), bytes, &more, &err), &err);
    expect_ok(dra_array_fill(dra_array_whole(more), 0, &err), &err);
    if (*a) expect_ok(dra_array_copy((dra_span){more, 0, old.bytes}, old, &err), &err);
    dra_array_destroy(*a);
    *a = more;
    expect_ok(dra_session_bind(c->session, dra_session_name(c->session, name),
                               dra_array_whole(more), &err),
              &err);
}

static void grow(cache *c)
{
    const int64_t cap = dra_capacity(c->pos + 1);
    const size_t  bytes = (size_t)cap * D * sizeof(dra_real);
    dra_error     err = {0};
    if (cap == c->cap) return;
    enlarge(c, &c->k, "k", bytes);
    enlarge(c, &c->v, "v", bytes);
    c->cap = cap;
    expect_ok(dra_session_select(c->session, &cap, sizeof cap, &err), &err);
}

static double expected(const cache *c, int channel)
{
    double sum = 0, y = 0;
    for (int64_t j = 0; j <= c->pos; j++) {
        double s = 0;
        for (int d = 0; d < D; d++) s += (double)c->x[d] * (double)c->keys[j * D + d];
        const double w = exp(s / sqrt(D));
        sum += w;
        y += w * exp((double)c->keys[j * D + channel]);
    }
    return y / sum;
}

static void appends_100000_tokens_with_few_programs(void **state)
{
    static cache c;
    uint64_t     seed = 1;
    dra_error    err = {0};
    expect_ok(dra_session_create(check_device(1, "ref"), build, NULL, &c.session, &err), &err);
    for (c.pos = 0; c.pos < TOKENS; c.pos++) {
        grow(&c);
        for (int d = 0; d < D; d++)
            c.x[d] = c.keys[c.pos * D + d] = (dra_real)(check_random(&seed) - 0.5);
        c.look = c.pos < 40 || c.pos % 9973 == 0 || c.pos == TOKENS - 1;
        put(&c, "x", c.x, sizeof c.x);
        put(&c, "pos", &c.pos, sizeof c.pos);
        put(&c, "look", &c.look, sizeof c.look);
        expect_ok(dra_session_start(c.session, &err), &err);
        expect_ok(dra_session_finish(c.session, &err), &err);
        if (!c.look) continue;
        dra_real y[D];
        expect_ok(dra_array_download(y, dra_session_result(c.session, "y"), &err), &err);
        check_close("y", D, y, (double[]){expected(&c, 0), expected(&c, 1)}, 2e-5);
    }
    assert_int_equal(dra_session_programs(c.session), 14); /* capacities 16, 32, ..., 131072 */
    dra_session_destroy(c.session);
    dra_array_destroy(c.k);
    dra_array_destroy(c.v);
}

static void capacity_doubles(void **state)
{
    assert_int_equal(dra_capacity(0), 16);
    assert_int_equal(dra_capacity(16), 16);
    assert_int_equal(dra_capacity(17), 32);
    assert_int_equal(dra_capacity(100000), 131072);
    assert_int_equal(dra_capacity(INT64_MAX), -1);
}

static void build_wrong(dra_graph *g, void *user, const void *key, size_t bytes)
{
    dra_output(g, "y", dra_exp(g, dra_input(g, "x", DRA_I32, DRA_SHAPE(1))));
}

static void reports_errors_of_the_graph(void **state)
{
    dra_session *p = NULL;
    dra_error    err = {0};
    assert_int_equal(dra_session_create(check_device(1, "ref"), build_wrong, NULL, &p, NULL),
                     DRA_OK);
    assert_int_equal(dra_session_select(p, "key", 3, &err), DRA_ERR_DTYPE);
    assert_int_equal(dra_session_programs(p), 0);
    dra_session_destroy(p);
    assert_int_equal(dra_session_create(NULL, build_wrong, NULL, &p, &err), DRA_ERR_VALUE);
    dra_session_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_100000_tokens_with_few_programs),
        cmocka_unit_test(capacity_doubles),
        cmocka_unit_test(reports_errors_of_the_graph),
    };
    return check_main("extents", NULL, 0, tests, COUNT(tests));
}
