/* A step allocates nothing and takes no page faults after the first: every allocation of the
 * library is counted (the linker wraps malloc and its kin), page faults by the system. */
#include "check.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>

static atomic_long allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
int   __real_posix_memalign(void **p, size_t align, size_t size);

void *__wrap_malloc(size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(size);
}
void *__wrap_calloc(size_t n, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(p, size);
}
void *__wrap_aligned_alloc(size_t align, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __real_aligned_alloc(align, size);
}
int __wrap_posix_memalign(void **p, size_t align, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __real_posix_memalign(p, align, size);
}

static long page_faults(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_minflt + u.ru_majflt;
}

/* ---- a training step with everything in it: regions, attention, loss, optimizer, donation ---- */

enum { B = 2, T = 16, C = 32, V = 64 };

static void mix(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    dra_value x = dra_rms_norm(g, in[0], (dra_value){0}, 1e-5), lo, hi;
    dra_value h = dra_transpose(g, dra_reshape(g, x, DRA_SHAPE(B, T, 2, C / 2)), 1, 2);
    dra_causal_interval(g, (dra_value){0}, B, T, 0, &lo, &hi);
    h = dra_attend(g, h, h, h, &(dra_attend_config){.lo = lo, .hi = hi});
    h = dra_reshape(g, dra_transpose(g, h, 1, 2), DRA_SHAPE(B, T, C));
    out[0] = dra_add(g, in[0], dra_gelu(g, dra_linear(g, h, in[1], (dra_value){0})));
}

static void recur(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                  const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    carry_out[0] = dra_tanh(g,
                            dra_add(g, x[0], dra_linear(g, carry[0], constant[0], (dra_value){0})));
    y[0] = carry_out[0];
}

static check_program training_step(void)
{
    dra_graph *g = check_graph();
    dra_value  ids = dra_input(g, "ids", DRA_I32, DRA_SHAPE(B, T));
    dra_value  target = dra_input(g, "target", DRA_I32, DRA_SHAPE(B, T));
    dra_value  flag = dra_input(g, "flag", DRA_I32, (dra_shape){0});
    dra_value  p[] = {dra_parameter(g, "emb", DRA_REAL, DRA_SHAPE(V, C)),
                      dra_parameter(g, "w", DRA_REAL, DRA_SHAPE(C, C))};
    dra_value  x = dra_embedding(g, p[0], ids), in[] = {x, p[1]}, y;
    dra_recompute(g, mix, NULL, 2, in, 1, &in[0]);
    dra_cond(g, flag, mix, NULL, 2, in, 1, in, &x);
    dra_value time_first = dra_transpose(g, x, 0, 1),
              h0 = dra_broadcast(g, dra_number(g, 0), DRA_SHAPE(B, C)), last;
    dra_scan(g,
             &(dra_scan_config){.length = T,
                                .carries = 1,
                                .xs = 1,
                                .constants = 1,
                                .ys = 1,
                                .carry = &h0,
                                .x = &time_first,
                                .constant = &p[1],
                                .body = recur},
             &last, &y);
    dra_value loss = dra_linear_cross_entropy(g, dra_transpose(g, y, 0, 1), p[0], target, NULL),
              dp[2];
    dra_gradient(g, 1, &loss, NULL, 2, p, dp);
    dra_value   norm = dra_global_norm(g, 2, dp), clip = dra_clip_factor(g, norm, 1);
    const char *names[2][5] = {{"m0", "v0", "p0'", "m0'", "v0'"},
                               {"m1", "v1", "p1'", "m1'", "v1'"}};
    for (int i = 0; i < 2; i++) {
        dra_shape        s = dra_shape_of(g, p[i]);
        dra_value        m = dra_state(g, names[i][0], DRA_REAL, s);
        dra_value        v = dra_state(g, names[i][1], DRA_REAL, s);
        dra_adamw_result r = dra_adamw(g, p[i], dp[i], m, v, dra_number(g, 1e-2), clip,
                                       dra_input(g, i ? "t1" : "t0", DRA_I32, (dra_shape){0}),
                                       &(dra_adamw_config){0.9, 0.95, 1e-8, 0.01});
        dra_donate(g, names[i][2], r.p, p[i]);
        dra_donate(g, names[i][3], r.m, m);
        dra_donate(g, names[i][4], r.v, v);
    }
    dra_output(g, "loss", loss);
    check_program c = {0};
    dra_error     err = {0};
    dra_device   *d = check_device(2, dra_device_level_at(0));
    if (dra_compile(g, d, &c.program, &err) != DRA_OK ||
        dra_buffers_create(c.program, &c.buffers, &err) != DRA_OK)
        fail_msg("%s", err.text);
    dra_graph_destroy(g);
    return c;
}

static void step_allocates_nothing(void **state)
{
    static dra_real emb[V * C], w[C * C], m0[V * C], v0[V * C], m1[C * C], v1[C * C];
    static int32_t  ids[B * T], target[B * T], flag = 1, t = 1;
    check_program   p = training_step();
    uint64_t        seed = 2;
    for (int i = 0; i < V * C; i++) emb[i] = (dra_real)(check_random(&seed) - 0.5);
    for (int i = 0; i < C * C; i++) w[i] = (dra_real)(check_random(&seed) - 0.5) / 4;
    for (int i = 0; i < B * T; i++) ids[i] = i * 7 % V, target[i] = (i * 7 + 7) % V;
    check_bind(&p, "ids", ids, sizeof ids);
    check_bind(&p, "target", target, sizeof target);
    check_bind(&p, "flag", &flag, sizeof flag);
    check_bind(&p, "emb", emb, sizeof emb);
    check_bind(&p, "w", w, sizeof w);
    check_bind(&p, "m0", m0, sizeof m0);
    check_bind(&p, "v0", v0, sizeof v0);
    check_bind(&p, "m1", m1, sizeof m1);
    check_bind(&p, "v1", v1, sizeof v1);
    check_bind(&p, "t0", &t, sizeof t);
    check_bind(&p, "t1", &t, sizeof t);
    check_run(&p);
    const dra_real first = *check_result(&p, "loss");
    for (t = 2; t < 8; t++) { /* both ways of the cond */
        flag = t % 3 != 0;
        check_run(&p);
    }
    const long before = atomic_load(&allocations);
    long       fewest = LONG_MAX; /* the system may fault by itself now and then, a step must not */
    for (int window = 0; window < 5; window++) {
        const long faults = page_faults();
        for (int i = 0; i < 12; i++, t++) {
            flag = t % 3 != 0;
            check_run(&p);
        }
        const long seen = page_faults() - faults;
        if (seen < fewest) fewest = seen;
    }
    assert_int_equal(atomic_load(&allocations) - before, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* shadow memory faults */
    if (!check_cuda()) assert_int_equal(fewest, 0); /* the driver of a GPU has memory of its own */
#endif
    assert_true(*check_result(&p, "loss") < first); /* and it learns */
    check_free(&p);
}

static void counts_what_is_there(void **state) /* the counter itself works */
{
    const long before = atomic_load(&allocations);
    dra_graph *g = check_graph();
    dra_graph_destroy(g);
    assert_true(atomic_load(&allocations) > before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_is_there),
        cmocka_unit_test(step_allocates_nothing),
    };
    return check_main("step", NULL, 0, tests, COUNT(tests));
}
