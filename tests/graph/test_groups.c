/* Groups: instructions that run at the same time are independent, in storages and, once these are
 * placed, in memory; a training step has far fewer groups than instructions; bits do not depend on
 * groups, however many threads there are. */
#include "check.h"
#include "graph/program.h"

#include <stdio.h>
#include <string.h>

enum { B = 6, C = 24, LAYERS = 3, WEIGHTS = 4 * LAYERS, STEPS = 3 };

/* ---- independence ---------------------------------------------------------------------------- */

static bool overlap(const dra_program *p, int32_t a, int32_t b)
{
    if (a < 0 || b < 0) return false;
    const dra_storage *x = &p->storage[a], *y = &p->storage[b];
    if (a == b) return true;
    return x->kind == DRA_STORAGE_LOCAL && y->kind == DRA_STORAGE_LOCAL && x->block == y->block &&
           x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

static int32_t storage_at(const dra_program *p, const dra_instr *in, int i)
{
    const int32_t s = i < in->n_in               ? in->in[i].storage
                      : i < in->n_in + in->n_out ? in->out[i - in->n_in].storage
                                                 : in->scratch;
    return dra_root(p, s);
}

/* What one writes, its scratch included, the other does not touch. */
static void expect_apart(const dra_program *p, const dra_instr *a, const dra_instr *b)
{
    for (int i = a->n_in; i <= a->n_in + a->n_out; i++)
        for (int k = 0; k <= b->n_in + b->n_out; k++)
            if (overlap(p, storage_at(p, a, i), storage_at(p, b, k)))
                fail_msg("%s and %s of a group share memory", a->name, b->name);
}

static size_t check_groups(const dra_program *p)
{
    size_t groups = 0;
    for (size_t n = 0; n < p->n_block; n++) {
        const dra_code_block *b = &p->block[n];
        for (size_t i = 0; i < b->n; i++) {
            const int32_t group = b->instr[i]->group;
            groups += i == 0 || group != b->instr[i - 1]->group;
            if (i) assert_in_range(group - b->instr[i - 1]->group, 0, 1);
            for (size_t k = i + 1; k < b->n && b->instr[k]->group == group; k++) {
                assert_in_range(k - i, 1, DRA_GROUP - 1);
                assert_true(b->instr[i]->kernel && b->instr[k]->kernel);
                expect_apart(p, b->instr[i], b->instr[k]);
                expect_apart(p, b->instr[k], b->instr[i]);
            }
        }
    }
    return groups;
}

/* ---- a training step ------------------------------------------------------------------------- */

typedef struct weight {
    char      name[8], m[8], v[8];
    dra_shape shape;
    dra_value at;
} weight;

static dra_value new_weight(dra_graph *g, weight *w, int *n, dra_shape shape)
{
    weight *at = &w[*n];
    snprintf(at->name, sizeof at->name, "w%d", *n);
    snprintf(at->m, sizeof at->m, "m%d", *n);
    snprintf(at->v, sizeof at->v, "v%d", (*n)++);
    at->shape = shape;
    return at->at = dra_parameter(g, at->name, DRA_REAL, shape);
}

static dra_value layer(dra_graph *g, dra_value x, weight *w, int *n)
{
    const dra_value gain = new_weight(g, w, n, DRA_SHAPE(C)), none = {0};
    const dra_value bias = new_weight(g, w, n, DRA_SHAPE(C));
    const dra_value a = new_weight(g, w, n, DRA_SHAPE(C, C));
    const dra_value b = new_weight(g, w, n, DRA_SHAPE(C, C));
    const dra_value h = dra_layer_norm(g, x, gain, bias, 1e-5);
    const dra_value gate = dra_softmax(g, dra_linear(g, h, a, none));
    return dra_add(g, x, dra_mul(g, gate, dra_linear(g, dra_tanh(g, h), b, none)));
}

static void update(dra_graph *g, const weight *w, const dra_value *dw)
{
    static const dra_adamw_config config = {0.9, 0.95, 1e-8, 0.1};
    const dra_value               rate = check_real(g, "rate", (dra_shape){0});
    const dra_value               step = dra_input(g, "step", DRA_I32, (dra_shape){0});
    const dra_value               clip = dra_clip_factor(g, dra_global_norm(g, WEIGHTS, dw), 1);
    char                          name[2000];
    for (int i = 0; i < WEIGHTS; i++) {
        const dra_value        m = dra_state(g, w[i].m, DRA_REAL, w[i].shape);
        const dra_value        v = dra_state(g, w[i].v, DRA_REAL, w[i].shape);
        const dra_adamw_result r = dra_adamw(g, w[i].at, dw[i], m, v, rate, clip, step, &config);
        snprintf(name, sizeof name, "new %s", w[i].name);
        dra_donate(g, name, r.p, w[i].at);
        snprintf(name, sizeof name, "new %s", w[i].m);
        dra_donate(g, name, r.m, m);
        snprintf(name, sizeof name, "new %s", w[i].v);
        dra_donate(g, name, r.v, v);
    }
}

static dra_graph *training(weight *w)
{
    dra_graph *g = check_graph();
    dra_value  x = check_real(g, "x", DRA_SHAPE(B, C)), all[WEIGHTS], dw[WEIGHTS];
    int        n = 0;
    for (int l = 0; l < LAYERS; l++) x = layer(g, x, w, &n);
    for (int i = 0; i < WEIGHTS; i++) all[i] = w[i].at;
    const dra_value loss = dra_sum_all(g, dra_square(g, x));
    dra_gradient(g, 1, &loss, NULL, WEIGHTS, all, dw);
    dra_output(g, "loss", loss);
    update(g, w, dw);
    return g;
}

static dra_program *compiled(int threads)
{
    weight       w[WEIGHTS];
    dra_graph   *g = training(w);
    dra_program *p = NULL;
    dra_error    err = {0};
    if (dra_compile(g, check_device(threads, dra_device_level_at(0)), &p, &err) != DRA_OK)
        fail_msg("%s", err.text);
    dra_graph_destroy(g);
    return p;
}

/* The same numbers for every program: small weights, moments of squares that are positive. */
static void put_all(const dra_program *p, dra_buffers *b)
{
    uint64_t seed = 7;
    for (size_t i = 0; i < p->n_slot; i++) {
        const dra_slot *s = &p->slot[i];
        const int32_t   step = 3;
        dra_real        x[C * C];
        const size_t    n = s->bytes / sizeof *x;
        for (size_t k = 0; k < n; k++)
            x[k] = (dra_real)(check_random(&seed) - (strchr("vr", s->name[0]) ? 0 : 0.5)) / 8;
        const void *from = strcmp(s->name, "step") == 0 ? (const void *)&step : x;
        assert_int_equal(dra_put(b, s->name, from, s->bytes, NULL), DRA_OK);
    }
}

/* Loss and all that was updated, after some steps. */
static size_t results(const dra_program *p, dra_real *out)
{
    dra_buffers *b = NULL;
    size_t       n = 1;
    assert_int_equal(dra_buffers_create(p, &b, NULL), DRA_OK);
    put_all(p, b);
    for (int i = 0; i < STEPS; i++) assert_int_equal(dra_run(b, NULL), DRA_OK);
    assert_int_equal(dra_get(b, "loss", out, sizeof *out, NULL), DRA_OK);
    for (size_t i = 0; i < p->n_slot; i++) {
        if (p->slot[i].bytes < sizeof *out || strcmp(p->slot[i].name, "step") == 0) continue;
        assert_int_equal(dra_get(b, p->slot[i].name, out + n, p->slot[i].bytes, NULL), DRA_OK);
        n += p->slot[i].bytes / sizeof *out;
    }
    dra_buffers_destroy(b);
    return n;
}

static void gives_the_same_bits(void **state)
{
    static dra_real  found[4][8 * WEIGHTS * C * C];
    static const int threads[] = {1, 2, 7, 16};
    for (size_t i = 0; i < COUNT(threads); i++) {
        dra_program *p = compiled(threads[i]);
        const size_t n = results(p, found[i]);
        assert_in_range(n, 3 * LAYERS * C * C, COUNT(found[0]));
        assert_memory_equal(found[i], found[0], n * sizeof found[0][0]);
        dra_program_destroy(p);
    }
}

static size_t instructions(const dra_program *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_block; i++) n += p->block[i].n;
    return n;
}

static void a_step_has_few_groups(void **state)
{
    dra_program *one = compiled(1), *many = compiled(16);
    if (!check_cuda()) {
        assert_int_equal(check_groups(one), instructions(one)); /* nobody waits for anybody */
        print_message("%zu instructions in %zu groups\n", instructions(many), check_groups(many));
        assert_in_range(check_groups(many), 1, instructions(many) / 2);
    }
    dra_program_destroy(one);
    dra_program_destroy(many);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Of two lookups that fail at the same time, the first one is reported, however many threads. */
static void reports_the_first_fault(void **state)
{
    static const int threads[] = {1, 16};
    for (size_t i = 0; i < COUNT(threads); i++) {
        const int32_t bad[] = {2, 90, 80}, worse[] = {70, 1, 60};
        dra_real      table[4 * C] = {0};
        dra_error     err = {0};
        dra_program  *p = NULL;
        dra_buffers  *b = NULL;
        dra_graph    *g = check_graph();
        dra_value     t = check_real(g, "t", DRA_SHAPE(4, C));
        dra_output(g, "y", dra_embedding(g, t, dra_input(g, "a", DRA_I32, DRA_SHAPE(3))));
        dra_output(g, "z", dra_embedding(g, t, dra_input(g, "b", DRA_I32, DRA_SHAPE(3))));
        dra_device *d = check_device(threads[i], dra_device_level_at(0));
        assert_int_equal(dra_compile(g, d, &p, &err), DRA_OK);
        assert_int_equal(dra_buffers_create(p, &b, &err), DRA_OK);
        assert_int_equal(dra_put(b, "t", table, sizeof table, &err), DRA_OK);
        assert_int_equal(dra_put(b, "a", bad, sizeof bad, &err), DRA_OK);
        assert_int_equal(dra_put(b, "b", worse, sizeof worse, &err), DRA_OK);
        assert_int_equal(dra_run(b, &err), DRA_ERR_INDEX);
        assert_string_equal(err.text, "embedding: id 90, the table has 4 rows");
        dra_buffers_destroy(b);
        dra_program_destroy(p);
        dra_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_same_bits),
        cmocka_unit_test(a_step_has_few_groups),
        cmocka_unit_test(reports_the_first_fault),
    };
    return check_main("groups", NULL, 0, tests, COUNT(tests));
}
