/* Dropouts of x-transformers (F71 to F74) as when learning: what is dropped out is right on the
 * average, and a sublayer is left out as a whole. */
#include "xt_recipe.h"

enum { T = RECIPE_T, D = RECIPE_D, DRAWS = 4000 };

/* A reader that draws: the same program for every key. */
typedef struct drawing {
    recipe      r;
    dra_view    view;
    dra_reader *reader;
    dra_states *states;
} drawing;

static void open_drawing(drawing *d, const char *top, const char *stack, const char *name)
{
    dra_error err = {0};
    d->r = recipe_open(top, XT_DECODER, stack);
    d->view = recipe_view(&d->r, &recipe_plain, name);
    dra_module module = dra_view_module(&d->view);
    module.build = recipe_build_drops;
    module.self = &d->view;
    recipe_ok(dra_states_create(recipe_device(), module.state, 1, &d->states, &err), &err);
    recipe_ok(dra_reader_create(recipe_device(), &module, &d->reader, &err), &err);
    recipe_ok(dra_weights_bind(d->r.weights, d->reader, &err), &err);
}

static const dra_real *draw(drawing *d, int32_t number, const char *name)
{
    const int32_t   key[] = {number, 7, 0, 0};
    const dra_named in[] = {{"ids", recipe_ids, sizeof recipe_ids}, {"key", key, sizeof key}};
    dra_error       err = {0};
    recipe_ok(dra_states_reset(d->states, -1, &err), &err);
    recipe_ok(dra_reader_read(d->reader, d->states, T, NULL, 2, in, &err), &err);
    return dra_reader_result(d->reader, name);
}

static void close_drawing(drawing *d)
{
    dra_reader_destroy(d->reader);
    dra_states_destroy(d->states);
    recipe_close(&d->r);
}

/* ---- the average ----------------------------------------------------------------------------- */

typedef struct linear { /* an output that is linear in what is dropped out */
    const char *name, *top, *stack, *output;
} linear;

static const linear outputs[] = {
    {"F71 embeddings", ", 'emb_dropout': 0.3", "", "hidden.0"},
    {"F71 with a norm and memory tokens",
     ", 'emb_dropout': 0.3, 'post_emb_norm': true, 'num_memory_tokens': 2", "", "hidden.0"},
    {"F73 weights", "", ", 'attn_dropout': 0.3", "add.0"},
    {"F73 weights, learned keys", "", ", 'attn_dropout': 0.3, 'attn_num_mem_kv': 2", "add.0"},
    {"F73 before talking heads", "", ", 'attn_dropout': 0.3, 'attn_post_talking_heads': true",
     "add.0"},
    {"F73 weights of top-k", "", ", 'attn_dropout': 0.3, 'attn_sparse_topk': 3", "add.0"},
    {"F74 inner activations", "", ", 'ff_dropout': 0.3", "add.1"},
    {"F74 after the norm", "", ", 'ff_dropout': 0.3, 'ff_glu': true, 'ff_post_act_ln': true",
     "add.1"},
};

/* A probe of a draw, a sum with fixed weights, has the value of reading as its mean: off by less
 * than five standard errors, which happens by chance once in two million. Draws vary. */
static void means_are_what_reading_gives(void **state)
{
    const linear *l = *state;
    drawing       d;
    double        sum = 0, square = 0, want = 0;
    open_drawing(&d, l->top, l->stack, l->output);
    recipe_result plain = recipe_read(&d.r, &recipe_plain, l->output);
    for (int i = 0; i < T * D; i++) want += cos(1.3 * i) * (double)plain.at[i];
    for (int n = 0; n < DRAWS; n++) {
        const dra_real *y = draw(&d, n, l->output);
        double          probe = -want;
        for (int i = 0; i < T * D; i++) probe += cos(1.3 * i) * (double)y[i];
        sum += probe;
        square += probe * probe;
    }
    const double mean = sum / DRAWS, error = sqrt(square / DRAWS / DRAWS);
    assert_true(error > 0 && error < 1);
    if (!(fabs(mean) <= 5 * error))
        fail_msg("the mean is off by %g, its standard error is %g", mean, error);
    free(plain.at);
    close_drawing(&d);
}

/* One key draws the same twice; others draw others. */
static void keys_decide(void **state)
{
    const linear *l = *state;
    drawing       d;
    dra_real      first[T * D];
    open_drawing(&d, l->top, l->stack, l->output);
    memcpy(first, draw(&d, 1, l->output), sizeof first);
    assert_memory_not_equal(draw(&d, 2, l->output), first, sizeof first);
    assert_memory_equal(draw(&d, 1, l->output), first, sizeof first);
    close_drawing(&d);
}

/* ---- sublayers that are left out ------------------------------------------------------------- */

/* F72: after a draw the stream is that of a sublayer, or untouched; how often is as said. Each
 * sublayer is drawn on its own. */
static void sublayers_are_left_out(void **state)
{
    static const double p[4] = {0.2, 0.5, 0.8, 0.1};
    int                 left_out[4] = {0}, both = 0;
    enum { N = 2000 };
    drawing d;
    open_drawing(&d, "", ", 'layer_dropout': [0.2, 0.5, 0.8, 0.1]", "hidden.0");
    for (int n = 0; n < N; n++) {
        dra_real before[T * D];
        bool     gone[4];
        memcpy(before, draw(&d, n, "hidden.0"), sizeof before);
        for (int i = 0; i < 4; i++) {
            char name[32];
            snprintf(name, sizeof name, "hidden.%d", i + 1);
            const dra_real *after = dra_reader_result(d.reader, name);
            int             same = 0;
            for (int k = 0; k < T * D; k++) same += after[k] == before[k];
            gone[i] = same == T * D;
            assert_true(same == T * D || same < T * D / 4); /* as a whole */
            left_out[i] += gone[i];
            memcpy(before, after, sizeof before);
        }
        both += gone[0] && gone[1];
    }
    for (int i = 0; i < 4; i++)
        assert_true(fabs(left_out[i] - N * p[i]) <= 5 * sqrt(N * p[i] * (1 - p[i])));
    assert_true(fabs(both - N * 0.1) <= 5 * sqrt(N * 0.1 * 0.9));
    close_drawing(&d);
}

/* What is left out changes nothing that comes after: the rest is the model without it. */
static void the_rest_is_a_shorter_stack(void **state)
{
    drawing   d;
    recipe    without = recipe_open("", XT_NO_DEPTH,
                                    ", 'custom_layers': ['a', 'f', 'a', 'f'], "
                                       "'layers_execute_order': [0, 1, 3]");
    const int last = 4;
    open_drawing(&d, "", ", 'layer_dropout': [0, 0, 0.5, 0]", "hidden.0");
    recipe_result want = recipe_read(&without, &recipe_plain, "hidden.3");
    int           met = 0;
    for (int n = 0; n < 20; n++) {
        char name[32];
        draw(&d, n, "hidden.0");
        snprintf(name, sizeof name, "hidden.%d", last);
        met += memcmp(dra_reader_result(d.reader, name), want.at, T * D * sizeof *want.at) == 0;
    }
    assert_true(met > 0 && met < 20);
    free(want.at);
    close_drawing(&d);
    recipe_close(&without);
}

int main(void)
{
    static struct CMUnitTest tests[2 * COUNT(outputs) + 2];
    size_t                   n = 0;
    for (size_t i = 0; i < COUNT(outputs); i++) {
        void *row = (void *)(uintptr_t)&outputs[i];
        tests[n++] = (struct CMUnitTest){outputs[i].name, means_are_what_reading_gives, NULL, NULL,
                                         row};
        tests[n++] = (struct CMUnitTest){outputs[i].name, keys_decide, NULL, NULL, row};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(sublayers_are_left_out);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(the_rest_is_a_shorter_stack);
    return _cmocka_run_group_tests("xt dropout", tests, n, NULL, NULL);
}
