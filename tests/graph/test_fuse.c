/* The passes of fuse.c: with and without them a program gives the same bits, on every level and for
 * every number of threads; and it has fewer instructions. */
#include "check.h"
#include "graph/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUTS = 6, NODES = 60, MOST = 90000 };

typedef struct draw { /* a random graph: the same one for the same seed */
    uint64_t  seed;
    dra_shape shape;
    bool      regions;
} draw;

static uint64_t pick(uint64_t *seed, uint64_t n)
{
    const uint64_t i = (uint64_t)(check_random(seed) * (double)n);
    return i < n ? i : n - 1;
}

/* ---- random graphs --------------------------------------------------------------------------- */

static dra_value one_function(dra_graph *g, uint64_t *seed, dra_value x)
{
    switch (pick(seed, 14)) {
    case 0: return dra_neg(g, x);
    case 1: return dra_sigmoid(g, x);
    case 2: return dra_tanh(g, x);
    case 3: return dra_relu2(g, x);
    case 4: return dra_sin(g, x);
    case 5: return dra_affine(g, x, check_random(seed) - 0.5, 0.3);
    case 6: return dra_clamp(g, x, -0.5, 0.7);
    case 7: return dra_silu(g, x);
    case 8: return dra_gelu_tanh(g, x);
    case 9: return dra_exp(g, dra_clamp(g, x, -3, 3));
    case 10: return dra_abs(g, x);
    case 11: return dra_softplus(g, x);
    case 12: return dra_erf(g, x);
    }
    return dra_sign(g, x);
}

static dra_value two_function(dra_graph *g, uint64_t *seed, dra_value a, dra_value b)
{
    switch (pick(seed, 9)) {
    case 0: return dra_add(g, a, b);
    case 1: return dra_sub(g, a, b);
    case 2: return dra_mul(g, a, b);
    case 3: return dra_div(g, a, dra_affine(g, dra_square(g, b), 1, 1));
    case 4: return dra_maximum(g, a, b);
    case 5: return dra_minimum(g, a, b);
    case 6: return dra_select(g, dra_less(g, a, b), b, dra_number(g, 0.25));
    case 7: return dra_select(g, dra_and(g, dra_greater(g, a, b), dra_is_finite(g, a)), a, b);
    }
    return dra_cast(g, dra_add(g, dra_cast(g, a, DRA_I32), dra_cast(g, b, DRA_I32)), DRA_REAL);
}

static dra_value rows_of(dra_graph *g, dra_value x, dra_shape s)
{
    return dra_reshape(g, x, DRA_SHAPE(s.dim[0] * s.dim[1], s.dim[2]));
}

/* Something that is not pointwise, of the same shape. */
static dra_value other(dra_graph *g, uint64_t *seed, dra_value a, dra_value b, dra_shape s,
                       dra_value w)
{
    const dra_value parts[] = {a, b};
    switch (pick(seed, 6)) {
    case 0: return dra_softmax(g, a);
    case 1: return dra_flip(g, a, 1);
    case 2: return dra_slice(g, dra_concat(g, 2, parts, 1), 1, s.dim[1], s.dim[1]);
    case 3: return dra_broadcast(g, dra_mean(g, a, (dra_axes){1, {1}, true}), s);
    case 4: return dra_reshape(g, dra_transpose(g, rows_of(g, a, s), 0, 1), s);
    }
    return dra_reshape(g, dra_matmul(g, rows_of(g, a, s), w), s);
}

/* A step of a scan, or what a cond runs: functions of a and b. */
static void some_functions(dra_graph *g, uint64_t seed, dra_value a, dra_value b, dra_value *out)
{
    dra_value v[12] = {a, b};
    for (int i = 2; i < 12; i++) {
        const dra_value x = v[pick(&seed, (uint64_t)i)], y = v[pick(&seed, (uint64_t)i)];
        v[i] = i % 2 ? one_function(g, &seed, x) : two_function(g, &seed, x, y);
    }
    out[0] = dra_tanh(g, dra_add(g, v[10], a));
    out[1] = v[11];
}

static void step(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                 const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    dra_value out[2];
    some_functions(g, *(const uint64_t *)user, carry[0], x[0], out);
    carry_out[0] = out[0];
    y[0] = dra_add(g, out[1], constant[0]);
}

static void conditional(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    some_functions(g, *(const uint64_t *)user, in[0], in[1], out);
}

/* A scan over the second axis, and a cond that runs; both of the same shape as a. */
static dra_value region(dra_graph *g, uint64_t *seed, dra_value a, dra_value b, dra_shape s)
{
    const int       last[] = {1, 0, 2};
    const dra_value x = dra_permute(g, a, last), row = dra_slice(g, b, 1, 0, 1);
    const dra_value start = dra_reshape(g, row, DRA_SHAPE(s.dim[0], s.dim[2]));
    dra_value       carry, y, in[] = {a, b}, out[2];
    dra_scan(g,
             &(dra_scan_config){.length = s.dim[1],
                                .carries = 1,
                                .xs = 1,
                                .constants = 1,
                                .ys = 1,
                                .carry = &start,
                                .x = &x,
                                .constant = &start,
                                .body = step,
                                .user = seed},
             &carry, &y);
    dra_cond(g, dra_integer(g, 1), conditional, seed, 2, in, 2, in, out);
    return dra_add(g, dra_permute(g, y, last), dra_mul(g, out[0], out[1]));
}

static dra_graph *build(const draw *d)
{
    dra_graph    *g = check_graph();
    uint64_t      seed = d->seed;
    const int64_t C = d->shape.dim[2];
    dra_value     v[NODES + INPUTS];
    v[0] = check_real(g, "x0", d->shape);
    v[1] = check_real(g, "x1", d->shape);
    v[2] = dra_broadcast(g, check_real(g, "row", DRA_SHAPE(C)), d->shape);
    v[3] = dra_broadcast(g, check_real(g, "column", DRA_SHAPE(d->shape.dim[1], 1)), d->shape);
    v[4] = dra_broadcast(g, check_real(g, "one", (dra_shape){0}), d->shape);
    v[5] = dra_exp(g, dra_broadcast(g, dra_parameter(g, "p", DRA_REAL, DRA_SHAPE(C)), d->shape));
    const dra_value w = check_real(g, "w", DRA_SHAPE(C, C));
    for (int i = INPUTS; i < NODES + INPUTS; i++) {
        const uint64_t  from = i > 12 && pick(&seed, 3) ? (uint64_t)i - 8 : 0;
        const dra_value a = v[from + pick(&seed, (uint64_t)i - from)];
        const dra_value b = v[pick(&seed, (uint64_t)i)];
        const uint64_t  kind = pick(&seed, 10);
        v[i] = d->regions && i % 20 == 0 ? region(g, &seed, a, b, d->shape)
               : kind < 4                ? one_function(g, &seed, a)
               : kind < 9                ? two_function(g, &seed, a, b)
                                         : other(g, &seed, a, b, d->shape, w);
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        if (pick(&seed, 8) == 0 || i == NODES + INPUTS - 1) dra_output(g, name, v[i]);
    }
    return g;
}

/* ---- with and without ------------------------------------------------------------------------ */

static check_program compile(const dra_graph *g, dra_device *device, bool plain)
{
    check_program p = {0};
    dra_error     err = {0};
    if ((plain ? dra_compile_plain : dra_compile_fenced)(g, device, 64, &p.program, &err) !=
            DRA_OK ||
        dra_buffers_create(p.program, &p.buffers, &err) != DRA_OK)
        fail_msg("%s", err.text);
    return p;
}

/* Everything bound to numbers of its own. */
static void bind_all(check_program *p, dra_real *memory)
{
    for (size_t i = 0; i < p->program->n_slot; i++) {
        const dra_slot *s = &p->program->slot[i];
        dra_real       *x = memory + i * MOST;
        uint64_t        seed = 77 + i;
        assert_true(s->bytes <= MOST * sizeof *x);
        for (size_t k = 0; k < s->bytes / sizeof *x; k++)
            x[k] = (dra_real)(2 * check_random(&seed) - 1);
        check_bind(p, s->name, x, s->bytes);
    }
}

static void same_results(check_program *a, check_program *b, const char *what)
{
    for (size_t i = 0; i < a->program->n_result; i++) {
        const dra_result_slot *r = &a->program->result[i];
        const size_t           bytes = (size_t)dra_shape_count(&r->place.tensor.shape) *
                             dra_dtype_bytes(r->place.tensor.dtype);
        const void *x = check_result_of(a, r->name), *y = check_result_of(b, r->name);
        if (bytes && memcmp(x, y, bytes) != 0) fail_msg("%s: %s differs", what, r->name);
    }
}

static void same_memory(const check_program *p, const dra_real *a, const dra_real *b)
{
    for (size_t i = 0; i < p->program->n_slot; i++)
        assert_memory_equal(a + i * MOST, b + i * MOST, p->program->slot[i].bytes);
}

/* On all levels; destroys the graph. */
static void compare(dra_graph *g, const char *what)
{
    static dra_real memory[2][16 * MOST];
    for (size_t i = 0; dra_device_level_at(i); i++) {
        for (int threads = 1; threads <= 7; threads += 6) {
            dra_device   *device = check_device(threads, dra_device_level_at(i));
            check_program plain = compile(g, device, true), fused = compile(g, device, false);
            bind_all(&plain, memory[0]);
            bind_all(&fused, memory[1]);
            for (int run = 0; run < 2; run++) { /* states continue */
                check_run(&plain);
                check_run(&fused);
                same_results(&plain, &fused, what);
                same_memory(&plain, memory[0], memory[1]);
            }
            assert_true(dra_program_memory(fused.program).steps <=
                        dra_program_memory(plain.program).steps);
            check_free(&plain);
            check_free(&fused);
        }
    }
    dra_graph_destroy(g);
}

static void random_graphs(bool regions, int64_t n, int64_t T, int64_t C)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        char what[64];
        snprintf(what, sizeof what, "seed %llu, (%d, %d, %d)", (unsigned long long)seed, (int)n,
                 (int)T, (int)C);
        compare(build(&(draw){seed, DRA_SHAPE(n, T, C), regions}), what);
    }
}

static void random_graphs_give_the_same_bits(void **state) { random_graphs(false, 2, 5, 33); }
static void long_rows(void **state) { random_graphs(false, 2, 3, 300); }
static void single_tokens(void **state) { random_graphs(false, 1, 1, 70); }
static void nothing_at_all(void **state) { random_graphs(false, 2, 3, 0); }
static void bodies_of_regions(void **state) { random_graphs(true, 2, 4, 17); }

static void gradients(void **state)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        dra_graph *g = check_graph();
        uint64_t   s = seed;
        dra_value  x[2] = {check_real(g, "a", DRA_SHAPE(3, 40)), check_real(g, "b", DRA_SHAPE(40))};
        dra_value  v[20] = {x[0], dra_broadcast(g, x[1], DRA_SHAPE(3, 40))}, dx[2];
        for (int i = 2; i < 20; i++)
            v[i] = i % 2 ? two_function(g, &s, v[pick(&s, (uint64_t)i)], v[i - 1])
                         : one_function(g, &s, v[pick(&s, (uint64_t)i)]);
        const dra_value L = dra_sum_all(g, dra_add(g, v[19], v[18]));
        dra_gradient(g, 1, &L, NULL, 2, x, dx);
        dra_output(g, "da", dx[0]);
        dra_output(g, "db", dx[1]);
        compare(g, "gradients");
    }
}

/* ---- counts ---------------------------------------------------------------------------------- */

static size_t steps_of(dra_graph *g)
{
    dra_program *p = NULL;
    dra_error    err = {0};
    if (dra_compile(g, check_device(1, "ref"), &p, &err) != DRA_OK) fail_msg("%s", err.text);
    const size_t n = dra_program_memory(p).steps;
    dra_program_destroy(p);
    return n;
}

static dra_value lerp(dra_graph *g, dra_value a, dra_value b, dra_value w)
{
    return dra_add(g, dra_mul(g, a, w), dra_mul(g, b, dra_affine(g, w, -1, 1)));
}

/* A chain; several outputs of shared inputs; too long for one program. */
static void neighbours_become_one(void **state)
{
    dra_graph *g = check_graph();
    dra_value  a = check_real(g, "a", DRA_SHAPE(2, 3, 5)),
              b = check_real(g, "b", DRA_SHAPE(2, 3, 5));
    for (int i = 0; i < 3; i++) {
        char name[2][8] = {{'w', (char)('0' + i)}, {'y', (char)('0' + i)}};
        dra_output(g, name[1], lerp(g, a, b, check_real(g, name[0], DRA_SHAPE(5))));
    }
    assert_int_equal(steps_of(g), 4); /* 1 - w is of another shape */
    compare(g, "three mixes");
    g = check_graph();
    dra_value h = check_real(g, "x", DRA_SHAPE(7));
    for (int i = 0; i < 60; i++) h = dra_sin(g, h);
    dra_output(g, "y", h);
    assert_int_equal(steps_of(g), 3); /* 24 + 24 + 12 */
    compare(g, "a long chain");
}

/* What another instruction needs in between, and what is read in another order, stays. */
static void others_keep_their_place(void **state)
{
    dra_graph      *g = check_graph();
    const dra_value x = check_real(g, "x", DRA_SHAPE(4, 4)), e = dra_exp(g, x);
    dra_output(g, "y", dra_mul(g, e, dra_softmax(g, e)));
    assert_int_equal(steps_of(g), 3);
    compare(g, "softmax between");
    g = check_graph();
    const dra_value s = dra_sin(g, check_real(g, "x", DRA_SHAPE(4, 4)));
    dra_output(g, "y", dra_add(g, s, dra_transpose(g, s, 0, 1)));
    assert_int_equal(steps_of(g), 2);
    compare(g, "transposed");
}

/* An output takes over an input that only an earlier step reads, and no other one. */
static void takes_over_what_is_read(void **state)
{
    enum { N = 1024 };
    dra_graph *g = check_graph();
    dra_value  a = dra_softmax(g, check_real(g, "a", DRA_SHAPE(2, N)));
    dra_value  b = dra_softmax(g, check_real(g, "b", DRA_SHAPE(2, N)));
    dra_value  first = dra_sin(g, dra_add(g, a, b)), second = dra_mul(g, first, a);
    dra_output(g, "y", dra_add(g, dra_softmax(g, first), dra_softmax(g, second)));
    dra_program *p = NULL;
    assert_int_equal(dra_compile(g, check_device(1, "ref"), &p, NULL), DRA_OK);
    assert_int_equal(dra_program_memory(p).activations, 2 * 2 * N * sizeof(dra_real));
    dra_program_destroy(p);
    dra_graph_destroy(g);
}

static void states_go_on(void **state)
{
    dra_graph      *g = check_graph();
    const dra_value s = dra_state(g, "s", DRA_REAL, DRA_SHAPE(1, 40));
    const dra_value x = check_real(g, "x", DRA_SHAPE(1, 40)), parts[] = {s, x};
    const dra_value both = dra_concat(g, 2, parts, 0), old = dra_slice(g, both, 0, 0, 1);
    const dra_value now = dra_slice(g, both, 0, 1, 1);
    dra_output(g, "y", dra_add(g, dra_mul(g, old, dra_number(g, 0.5)), now));
    dra_donate(g, "next", dra_tanh(g, dra_add(g, now, old)), s);
    assert_int_equal(steps_of(g), 1); /* no concat, no copy to the state */
    compare(g, "a state");
}

/* A batch of rows: parts of a concat are apart, and a reader that wants both keeps it. */
static void reads_through_a_concat(void **state)
{
    for (int whole = 0; whole < 2; whole++) {
        dra_graph      *g = check_graph();
        const dra_value a = check_real(g, "a", DRA_SHAPE(3, 2, 9)),
                        b = check_real(g, "b", DRA_SHAPE(3, 4, 9));
        const dra_value parts[] = {a, b}, all = dra_concat(g, 2, parts, 1);
        const dra_value x = dra_slice(g, all, 1, 1, 1), y = dra_slice(g, all, 1, 3, 1 + 2);
        dra_output(g, "y", dra_mul(g, dra_exp(g, x), dra_slice(g, y, 1, 1, 1)));
        if (whole) dra_output(g, "z", dra_softmax(g, dra_slice(g, all, 1, 1, 3)));
        assert_int_equal(steps_of(g), whole ? 3 : 1);
        compare(g, "parts of a concat");
    }
}

/* Functions whose results nobody reads make no instruction. It would have no output, so its number
 * of elements would be that of the next instruction's tensors: more than its inputs have. */
static void unread_parts_of_a_concat_go(void **state)
{
    dra_graph      *g = check_graph();
    const dra_value a = check_real(g, "a", DRA_SHAPE(2, 3)),
                    b = check_real(g, "b", DRA_SHAPE(50, 3));
    const dra_value parts[] = {dra_add(g, dra_sin(g, a), a), b}, both = dra_concat(g, 2, parts, 0);
    const dra_value x = check_real(g, "x", DRA_SHAPE(3, 20));
    dra_output(g, "y", dra_softmax(g, dra_matmul(g, dra_slice(g, both, 0, 3, 40), x)));
    assert_int_equal(steps_of(g), 2);
    compare(g, "a part that nobody reads");
}

static void ignores_the_second(dra_graph *g, void *user, const dra_value *in, dra_value *out)
{
    out[0] = dra_softmax(g, in[0]);
}

static void unread_inputs_of_a_region_go(void **state)
{
    dra_graph      *g = check_graph();
    const dra_value e = check_real(g, "e", DRA_SHAPE(0, 4)),
                    x = check_real(g, "x", DRA_SHAPE(3, 4));
    const dra_value half = dra_slice(g, e, 1, 2, 2), rest = dra_slice(g, e, 1, 0, 2);
    const dra_value in[] = {x, dra_mul(g, rest, dra_sigmoid(g, half))};
    dra_value       y;
    dra_recompute(g, ignores_the_second, NULL, 2, in, 1, &y);
    dra_output(g, "y", y);
    assert_int_equal(steps_of(g), 1);
    compare(g, "an input that nobody reads, without elements");
}

static void products_have_ends(void **state)
{
    dra_graph      *g = check_graph();
    const dra_value x = check_real(g, "x", DRA_SHAPE(2, 3, 40)), none = {0};
    const dra_value q = dra_linear(g, x, check_real(g, "wq", DRA_SHAPE(30, 40)), none);
    const dra_value k = dra_linear(g, x, check_real(g, "wk", DRA_SHAPE(40, 40)), none);
    const dra_value v = dra_linear(g, x, check_real(g, "wv", DRA_SHAPE(40, 40)),
                                   check_real(g, "bv", DRA_SHAPE(40)));
    dra_output(g, "q", dra_softmax(g, q));
    dra_output(g, "k", dra_softmax(g, k));
    dra_output(g, "v", dra_softmax(g, v));
    assert_int_equal(steps_of(g), 4); /* one for all products */
    compare(g, "three products");
    g = check_graph();
    const dra_value h = check_real(g, "h", DRA_SHAPE(2, 3, 40));
    const dra_value up = dra_gelu(g, dra_linear(g, h, check_real(g, "up", DRA_SHAPE(50, 40)),
                                                check_real(g, "b", DRA_SHAPE(50))));
    const dra_value down = dra_linear(g, up, check_real(g, "down", DRA_SHAPE(40, 50)), none);
    dra_output(g, "y", dra_add(g, h, down));
    dra_output(g, "z", dra_sigmoid(g, dra_mul(g, down, h)));
    assert_int_equal(steps_of(g), 2);
    compare(g, "a feed-forward layer");
}

/* Few rows and a large matrix: products in stages, with scratch of their own. */
static void products_in_stages(void **state)
{
    dra_graph      *g = check_graph();
    const dra_value x = check_real(g, "x", DRA_SHAPE(2, 50)),
                    f = dra_broadcast(g, x, DRA_SHAPE(6, 2, 50));
    const dra_value a = dra_reshape(g, f, DRA_SHAPE(2, 300));
    const dra_value w = dra_reshape(
        g, dra_broadcast(g, check_real(g, "w", DRA_SHAPE(300, 2)), DRA_SHAPE(150, 300, 2)),
        DRA_SHAPE(300, 300));
    const dra_value u = dra_sin(g, w);
    dra_output(g, "y", dra_softmax(g, dra_matmul(g, a, w)));
    dra_output(g, "z", dra_softmax(g, dra_matmul(g, a, u)));
    dra_output(g, "t", dra_tanh(g, dra_matmul(g, a, dra_cos(g, w))));
    compare(g, "products by chains");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_give_the_same_bits),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(single_tokens),
        cmocka_unit_test(nothing_at_all),
        cmocka_unit_test(bodies_of_regions),
        cmocka_unit_test(gradients),
        cmocka_unit_test(neighbours_become_one),
        cmocka_unit_test(others_keep_their_place),
        cmocka_unit_test(takes_over_what_is_read),
        cmocka_unit_test(states_go_on),
        cmocka_unit_test(reads_through_a_concat),
        cmocka_unit_test(unread_parts_of_a_concat_go),
        cmocka_unit_test(unread_inputs_of_a_region_go),
        cmocka_unit_test(products_have_ends),
        cmocka_unit_test(products_in_stages),
    };
    return check_main("fuse", NULL, 0, tests, COUNT(tests));
}
