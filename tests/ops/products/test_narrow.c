/* The pass of graph/narrow.c, with the kernels of whatever device the tests run on: what products
 * in bf16 read is stored in bf16, and results are what they are without it; so is what products
 * write for pointwise functions, and there results, gradients too, are equal within rounding.
 * The CPU's kernels round by themselves: nothing is narrow there. */
#include "check.h"
#include "graph/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 136, C = 128, WIDE = 256, V = 40, HEADS = 2, D = 64, MOST = 3 * C * C };

typedef struct variant {
    const char *name;
    bool        bias, attends, residual, loss;
    bool        joint, grouped; /* one product makes q, k and v; both heads share keys */
    dra_value (*act)(dra_graph *g, dra_value x);
} variant;

/* ---- a block of a transformer, and its gradients --------------------------------------------- */

typedef struct builder {
    dra_graph *g;
    dra_value  of[32]; /* parameters, of which gradients are asked for */
    int        n;
} builder;

static dra_value parameter(builder *b, const char *name, dra_shape shape)
{
    return b->of[b->n++] = check_real(b->g, name, shape);
}

static dra_value linear(builder *b, dra_value x, const char *name, int64_t in, int64_t out,
                        bool bias)
{
    char bias_name[16];
    snprintf(bias_name, sizeof bias_name, "%s.b", name);
    const dra_value w = parameter(b, name, DRA_SHAPE(out, in));
    const dra_value add = bias ? parameter(b, bias_name, DRA_SHAPE(out)) : (dra_value){0};
    return dra_linear(b->g, x, w, add);
}

static dra_value norm(builder *b, dra_value x, const char *name)
{
    char add[16];
    snprintf(add, sizeof add, "%s.b", name);
    return dra_layer_norm(b->g, x, parameter(b, name, DRA_SHAPE(C)),
                          parameter(b, add, DRA_SHAPE(C)), 1e-5);
}

static dra_value heads(dra_graph *g, dra_value x, int64_t n) /* (T, n D) -> (1, n, T, D) */
{
    return dra_transpose(g, dra_reshape(g, x, DRA_SHAPE(1, T, n, D)), 1, 2);
}

static void project_qkv(builder *b, dra_value x, const variant *a, dra_value *qkv)
{
    const char     *name[] = {"q", "k", "v"};
    const int64_t   few = a->grouped ? 1 : HEADS, n[] = {HEADS, few, few};
    const dra_value all = a->joint ? linear(b, x, "qkv", C, (HEADS + 2 * few) * D, a->bias) : x;
    for (int64_t i = 0, at = 0; i < 3; at += n[i++] * D)
        qkv[i] = heads(b->g,
                       a->joint ? dra_slice(b->g, all, 1, at, n[i] * D)
                                : linear(b, x, name[i], C, n[i] * D, a->bias),
                       n[i]);
}

static dra_value attention(builder *b, dra_value x, const variant *a)
{
    dra_graph *g = b->g;
    dra_value  qkv[3];
    project_qkv(b, x, a, qkv);
    const dra_attend_config how = {.hi = dra_input(g, "hi", DRA_I32, DRA_SHAPE(1, T)),
                                   .path = DRA_ATTEND_TILED};
    const dra_value         y = dra_transpose(g, dra_attend(g, qkv[0], qkv[1], qkv[2], &how), 1, 2);
    return linear(b, dra_reshape(g, y, DRA_SHAPE(T, C)), "o", C, C, a->bias);
}

static dra_value feed_forward(builder *b, dra_value x, const variant *a)
{
    return linear(b, a->act(b->g, linear(b, x, "up", C, WIDE, a->bias)), "down", WIDE, C, a->bias);
}

static dra_value loss_of(builder *b, dra_value y, const variant *a)
{
    dra_graph *g = b->g;
    if (a->loss)
        return dra_linear_cross_entropy(g, norm(b, y, "last"),
                                        parameter(b, "head", DRA_SHAPE(V, C)),
                                        dra_input(g, "target", DRA_I32, DRA_SHAPE(T)), NULL);
    return dra_sum_all(g, dra_mul(g, y, check_real(g, "upstream", DRA_SHAPE(T, C))));
}

static dra_graph *build(const variant *a)
{
    builder    b = {.g = check_graph()};
    dra_graph *g = b.g;
    dra_value  dx[32], x = parameter(&b, "x", DRA_SHAPE(T, C)), y = x;
    dra_set_precision(g, DRA_PRECISION_BF16);
    if (a->attends) y = attention(&b, norm(&b, y, "n1"), a);
    if (a->attends && a->residual) y = dra_add(g, x, y);
    const dra_value z = feed_forward(&b, norm(&b, y, "n2"), a);
    y = a->residual ? dra_add(g, y, z) : z;
    const dra_value loss = loss_of(&b, y, a);
    dra_gradient(g, 1, &loss, NULL, b.n, b.of, dx);
    dra_output(g, "loss", loss);
    for (int i = 0; i < b.n; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%d", i);
        dra_output(g, name, dx[i]);
    }
    return g;
}

/* ---- with and without ------------------------------------------------------------------------ */

static check_program compile(const dra_graph *g, bool plain)
{
    dra_device   *device = check_device(2, dra_device_level_at(0));
    check_program p = {0};
    dra_error     err = {0};
    if ((plain ? dra_compile_plain : dra_compile_fenced)(g, device, 64, &p.program, &err) !=
            DRA_OK ||
        dra_buffers_create(p.program, &p.buffers, &err) != DRA_OK)
        fail_msg("%s", err.text);
    return p;
}

/* Integers: up to where a token sees keys; targets. */
static void bind_all(check_program *p, dra_real (*memory)[MOST])
{
    for (size_t i = 0; i < p->program->n_slot; i++) {
        const dra_slot *s = &p->program->slot[i];
        uint64_t        seed = 77 + i;
        const bool      ints = strcmp(s->name, "hi") == 0 || strcmp(s->name, "target") == 0;
        int32_t        *n = (int32_t *)memory[i];
        if (ints)
            for (int t = 0; t < T; t++) n[t] = strcmp(s->name, "hi") ? t % V : t + 1;
        else
            for (size_t k = 0; k < s->bytes / sizeof(dra_real); k++)
                memory[i][k] = (dra_real)(0.4 * check_random(&seed) - 0.2);
        check_bind(p, s->name, memory[i], s->bytes);
    }
}

static int narrow_places(const dra_program *p)
{
    const dra_code_block *b = &p->block[DRA_BLOCK_STEP];
    int                   n = 0;
    for (size_t i = 0; i < b->n; i++)
        for (int k = 0; k < b->instr[i]->n_in; k++)
            n += b->instr[i]->in[k].tensor.dtype == DRA_BF16;
    return n;
}

static bool is_gpu(void) /* and not the emulation, whose products have one order */
{
    const dra_device *d = check_device(2, dra_device_level_at(0));
    return check_cuda() && strcmp(dra_device_level(d), "cuda sm_00") != 0;
}

static double largest_of(const dra_real *x, int64_t n)
{
    double most = 0;
    for (int64_t k = 0; k < n; k++) most = fabs((double)x[k]) > most ? fabs((double)x[k]) : most;
    return most;
}

/* The largest number of all gradients of vectors. */
static double largest_of_vectors(check_program *p)
{
    double most = 0;
    for (size_t i = 0; i < p->program->n_result; i++) {
        const dra_result_slot *r = &p->program->result[i];
        if (r->place.tensor.shape.rank != 1) continue;
        most = fmax(most, largest_of(check_result_of(p, r->name), r->place.tensor.shape.dim[0]));
    }
    return most;
}

/* Where products store their results rounded, values differ by 2^-9 of themselves, and sums by what
 * does not cancel; on a GPU the library may also add up in another order where factors lie
 * otherwise. The gradient of a key's bias is 0 but for rounding, so gradients of vectors are
 * compared with the largest of all. */
static double allowed(check_program *plain, const dra_result_slot *r, double most)
{
    return 4e-2 * (r->place.tensor.shape.rank == 1 ? largest_of_vectors(plain) : most);
}

static void same_results(check_program *a, check_program *b, bool rounded, const char *what)
{
    for (size_t i = 0; i < a->program->n_result; i++) {
        const dra_result_slot *r = &a->program->result[i];
        const int64_t          n = dra_shape_count(&r->place.tensor.shape);
        const dra_real        *x = check_result_of(a, r->name), *y = check_result_of(b, r->name);
        const double           most = largest_of(x, n);
        double                 far = 0;
        for (int64_t k = 0; k < n; k++) {
            const double off = fabs((double)x[k] - (double)y[k]);
            far = !(off <= far) ? off : far;
        }
        if (!(far <= (rounded ? allowed(a, r, most) : 0)))
            fail_msg("%s: %s differs by %g, the largest is %g", what, r->name, far, most);
    }
}

static void compare(const variant *a)
{
    static dra_real memory[40][MOST];
    dra_graph      *g = build(a);
    check_program   plain = compile(g, true), fused = compile(g, false);
    bind_all(&plain, memory);
    bind_all(&fused, memory);
    check_run(&plain);
    check_run(&fused);
    same_results(&plain, &fused, check_cuda(), a->name);
    assert_int_equal(narrow_places(plain.program), 0);
    if (check_cuda())
        assert_true(narrow_places(fused.program) >= (a->attends ? 12 : 4));
    else
        assert_int_equal(narrow_places(fused.program), 0);
    check_free(&plain);
    check_free(&fused);
    dra_graph_destroy(g);
}

static void feed_forwards(void **state)
{
    compare(&(variant){"gelu", .act = dra_gelu});
    compare(&(variant){"biases", .bias = true, .act = dra_gelu_tanh});
    compare(&(variant){"residual", .residual = true, .act = dra_relu});
    compare(&(variant){"loss", .bias = true, .residual = true, .loss = true, .act = dra_silu});
}

static void attentions(void **state)
{
    compare(&(variant){"attention", .attends = true, .act = dra_gelu});
    compare(&(variant){"a block", .bias = true, .attends = true, .residual = true, .loss = true,
                       .act = dra_gelu_tanh});
}

static int count_instr(const dra_program *p, const char *op)
{
    const dra_code_block *b = &p->block[DRA_BLOCK_STEP];
    int                   n = 0;
    for (size_t i = 0; i < b->n; i++) n += strcmp(b->instr[i]->name, op) == 0;
    return n;
}

/* Gradients of q, k and v are written where the product reads them (graph/direct.c): what is left
 * is the copy of the attention's own results. Small ones are not narrow, and have to stay apart. */
static void gradients_of_heads(void **state)
{
    const struct {
        variant how;
        int     concats, copies;
    } rows[] = {
        {{"one product", .bias = true, .attends = true, .joint = true, .act = dra_gelu_tanh}, 0, 1},
        {{"three products", .attends = true, .act = dra_gelu_tanh}, 0, 1},
        {{"shared keys", .attends = true, .joint = true, .grouped = true, .act = dra_gelu}, 1, 1}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        compare(&rows[i].how);
        if (!check_cuda()) continue;
        dra_graph    *g = build(&rows[i].how);
        check_program fused = compile(g, false);
        assert_int_equal(count_instr(fused.program, "concat"), rows[i].concats);
        assert_int_equal(count_instr(fused.program, "copy"), rows[i].copies);
        check_free(&fused);
        dra_graph_destroy(g);
    }
}

/* Gradients of norms join that of the stream (graph/fuse_add.c), each once. */
static void gradients_of_norms(void **state)
{
    static dra_real memory[40][MOST];
    builder         b = {.g = check_graph()};
    dra_graph      *g = b.g;
    const dra_value x = parameter(&b, "x", DRA_SHAPE(T, C));
    const dra_value u = linear(&b, norm(&b, x, "n1"), "w1", C, C, false);
    const dra_value v = linear(&b, norm(&b, x, "n2"), "w2", C, C, false);
    const dra_value y = dra_add(g, dra_add(g, x, u), v);
    const dra_value loss = loss_of(&b, y, &(variant){0});
    dra_value       dx;
    dra_gradient(g, 1, &loss, NULL, 1, &x, &dx);
    dra_output(g, "dx", dx);
    check_program plain = compile(g, true), fused = compile(g, false);
    bind_all(&plain, memory);
    bind_all(&fused, memory);
    check_run(&plain);
    check_run(&fused);
    same_results(&plain, &fused, is_gpu(), "norms");
    assert_true(count_instr(plain.program, "add") > 0);
    if (check_cuda()) assert_int_equal(count_instr(fused.program, "add"), 0);
    check_free(&plain);
    check_free(&fused);
    dra_graph_destroy(g);
}

/* Factors that others read as well, views of them, parts put together, and lines that cannot be
 * read as they are. */
static void odd_readers(void **state)
{
    static dra_real memory[40][MOST];
    dra_graph      *g = check_graph();
    dra_set_precision(g, DRA_PRECISION_BF16);
    const dra_value e = dra_sin(g, check_real(g, "x", DRA_SHAPE(T, WIDE)));
    const dra_value half = dra_slice(g, e, 1, C, C), odd = dra_slice(g, e, 1, 3, C);
    const dra_value w = check_real(g, "w", DRA_SHAPE(C, C));
    dra_output(g, "half", dra_matmul(g, half, w));
    dra_output(g, "odd", dra_matmul(g, odd, w));
    dra_output(g, "turned", dra_matmul(g, dra_transpose(g, half, 0, 1), odd));
    const dra_value part[] = {dra_cos(g, half), half, dra_exp(g, half)};
    const dra_value joint = dra_concat(g, 3, part, 0);
    dra_output(g, "part", part[2]); /* read in full, too */
    dra_output(g, "joint", dra_matmul(g, joint, w));
    dra_output(g, "rows", dra_matmul(g, dra_slice(g, e, 0, 1, 40), dra_transpose(g, e, 0, 1)));
    check_program plain = compile(g, true), fused = compile(g, false);
    bind_all(&plain, memory);
    bind_all(&fused, memory);
    check_run(&plain);
    check_run(&fused);
    same_results(&plain, &fused, is_gpu(), "views");
    check_free(&plain);
    check_free(&fused);
    dra_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(feed_forwards),      cmocka_unit_test(attentions),
        cmocka_unit_test(gradients_of_heads), cmocka_unit_test(gradients_of_norms),
        cmocka_unit_test(odd_readers),
    };
    return check_main("narrow", NULL, 0, tests, COUNT(tests));
}
