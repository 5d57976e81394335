/* Gradients through a context, with pads and start vectors, are derivatives: by central
 * differences. */
#include <stdio.h>

#include "pair.h"

/* Sum of y u, and its gradients of x, the context and the parameters. */
static void build_slopes(dra_graph *g, void *user, const void *key, size_t bytes)
{
    const pair             *p = user;
    const dra_context_shape context = dra_context_shape_of(key);
    const dra_module_shape  shape = {
         .B = B, .T = T, .marked = true, .skips = true, .fresh = true, .context = &context};
    dra_value v[PARAMS + 2], dv[PARAMS + 2];
    char      name[DRA_NAME_TEXT];
    (void)bytes;
    dra_module_graph(g, &p->module, &shape, v, NULL, NULL);
    v[PARAMS] = dra_find_input(g, "x"), v[PARAMS + 1] = dra_find_input(g, "source");
    const dra_value u = dra_input(g, "u", DRA_REAL, DRA_SHAPE(B, T, C));
    const dra_value L = dra_sum_all(g, dra_mul(g, dra_find_output(g, "y"), u));
    dra_gradient(g, 1, &L, NULL, PARAMS + 2, v, dv);
    dra_output(g, "L", L);
    for (int i = 0; i < PARAMS + 2; i++) {
        snprintf(name, sizeof name, "d.%d", i);
        if (dv[i].id) dra_output(g, name, dv[i]);
    }
}

typedef struct slopes {
    const pair         *p;
    dra_session        *session;
    dra_extents         tokens;
    dra_context_extents context;
    dra_real           *u, *v[PARAMS + 2]; /* parameters, x, source */
    int64_t             n[PARAMS + 2];
    dra_array          *held[PARAMS];
} slopes;

static void put_reals(const slopes *s, const char *name, const dra_real *x, int64_t n)
{
    dra_error err = {0};
    expect_ok(dra_session_put(s->session, dra_session_name(s->session, name), x,
                              (size_t)n * sizeof *x, &err),
              &err);
}

static dra_real result(const slopes *s, const char *name, int64_t n, dra_real *to)
{
    dra_error      err = {0};
    const dra_span from = dra_session_result(s->session, name);
    dra_real       first;
    assert_int_equal(from.bytes, (size_t)n * sizeof *to);
    expect_ok(dra_array_download(n > 1 ? to : &first, from, &err), &err);
    return n > 1 ? to[0] : first;
}

static double run_slopes(const slopes *s)
{
    const dra_context_key key = dra_context_key_of(&s->context);
    dra_token_names       names;
    dra_context_names     context_names;
    dra_error             err = {0};
    dra_tokens_name(s->session, "tokens", s->p->state, &names);
    dra_context_name(s->session, &context_names);
    expect_ok(dra_session_select(s->session, &key, sizeof key, &err), &err);
    expect_ok(dra_extents_put(&s->tokens, s->session, &names, &err), &err);
    expect_ok(dra_context_extents_put(&s->context, B, true, s->session, &context_names, &err),
              &err);
    for (int i = 0; i < PARAMS; i++) {
        const int name = dra_session_name(s->session, dra_specs_at(s->p->params, i)->name);
        expect_ok(dra_array_upload(dra_array_whole(s->held[i]), s->v[i], &err), &err);
        expect_ok(dra_session_bind(s->session, name, dra_array_whole(s->held[i]), &err), &err);
    }
    put_reals(s, "x", s->v[PARAMS], s->n[PARAMS]);
    put_reals(s, "source", s->v[PARAMS + 1], s->n[PARAMS + 1]);
    put_reals(s, "u", s->u, B * T * C);
    expect_ok(dra_session_start(s->session, &err), &err);
    expect_ok(dra_session_finish(s->session, &err), &err);
    return (double)result(s, "L", 1, NULL);
}

/* L with everything moved along a random direction. */
static double moved(const slopes *s, double by, uint64_t seed)
{
    double L = 0;
    for (int back = 0; back < 2; back++) {
        uint64_t own = seed;
        for (int i = 0; i < PARAMS + 2; i++)
            for (int64_t k = 0; k < s->n[i]; k++)
                s->v[i][k] += (dra_real)((back ? -by : by) * (2 * check_random(&own) - 1));
        if (!back) L = run_slopes(s);
    }
    return L;
}

/* The derivative along that direction. */
static double slope(const slopes *s, uint64_t seed)
{
    dra_real d[B * MOST * C];
    char     name[DRA_NAME_TEXT];
    double   sum = 0;
    for (int i = 0; i < PARAMS + 2; i++) {
        snprintf(name, sizeof name, "d.%d", i);
        result(s, name, s->n[i], d);
        for (int64_t k = 0; k < s->n[i]; k++) sum += (double)d[k] * (2 * check_random(&seed) - 1);
    }
    return sum;
}

static slopes open_slopes(pair *p, const int32_t *mark)
{
    slopes    s = {.p = p, .tokens = {.skips = true}};
    uint64_t  seed = 12;
    dra_error err = {0};
    expect_ok(dra_session_create(reading_device(), build_slopes, p, &s.session, &err), &err);
    expect_ok(dra_extents_fill(&s.tokens, p->state, NULL, B, T, token_marks, &err), &err);
    expect_ok(
        dra_context_extents_fill(&s.context, &p->module, B, &(dra_context_text){S, mark}, &err),
        &err);
    for (int i = 0; i < PARAMS; i++) {
        s.n[i] = dra_shape_count(&dra_specs_at(p->params, i)->shape);
        s.v[i] = p->param[i];
        expect_ok(
            dra_array_create(reading_device(), (size_t)s.n[i] * sizeof(dra_real), &s.held[i], &err),
            &err);
    }
    s.n[PARAMS] = B * T * C, s.n[PARAMS + 1] = B * S * C;
    s.v[PARAMS] = random_reals(&seed, s.n[PARAMS]);
    s.v[PARAMS + 1] = random_reals(&seed, s.n[PARAMS + 1]);
    s.u = random_reals(&seed, B * T * C);
    return s;
}

static void close_slopes(slopes *s)
{
    dra_session_destroy(s->session);
    dra_extents_free(&s->tokens);
    dra_context_extents_free(&s->context);
    for (int i = 0; i < PARAMS; i++) dra_array_destroy(s->held[i]);
    free(s->v[PARAMS]);
    free(s->v[PARAMS + 1]);
    free(s->u);
}

static void gradients_are_derivatives(void **state)
{
    const double h = sizeof(dra_real) == 4 ? 1e-2 : 1e-5;
    const double bound = sizeof(dra_real) == 4 ? 1e-2 : 1e-7;
    for (size_t i = 0; i < COUNT(cases); i++) {
        pair  *p = open_pair(true, M, false);
        slopes s = open_slopes(p, i ? cases[i].mark : NULL);
        for (uint64_t seed = 1; seed <= 3; seed++) {
            const double L = run_slopes(&s), expected = slope(&s, seed);
            const double near = moved(&s, h, seed) - moved(&s, -h, seed);
            const double far = moved(&s, 2 * h, seed) - moved(&s, -2 * h, seed);
            const double found = (8 * near - far) / (12 * h);
            if (!(fabs(found - expected) <= bound * (fabs(expected) + fabs(L) + 1)))
                fail_msg("%s: slope is %.10g, gradients say %.10g", cases[i].name, found, expected);
        }
        close_slopes(&s);
        close_pair(p);
    }
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_derivatives),
    };
    return cmocka_run_group_tests_name("context_grads", tests, NULL, NULL);
}
