/* What a microbatch has besides ids and targets: further inputs by name, and a context that is read
 * in the graph of its tokens, with dropout of its own. */
#include "course.h"
#include "train/gradients.h"

/* ---- further inputs -------------------------------------------------------------------------- */

static void inputs_come_by_name(void **unused)
{
    static const int64_t  chunk[] = {15, 15};
    course                c = {0};
    dra_error             err = {0};
    dra_microbatch_result r, other;
    open_course(&c, "gpt2-tiny");
    dra_microbatch q = microbatch_of(&c);
    expect_ok(dra_gradients_run(c.gradients, &q, &r, &err), &err);
    const dra_real  some = dra_gradients_of(c.gradients, 0)[7];
    const dra_named in[] = {{"ids", c.ids, sizeof c.ids}, {"targets", c.targets, sizeof c.targets}};
    q.ids = q.targets = NULL;
    assert_int_not_equal(dra_gradients_run(c.gradients, &q, &other, &err), DRA_OK);
    assert_string_equal(err.text, "run: 'ids' is not bound");
    q.inputs = in;
    q.n_inputs = 1;
    assert_int_not_equal(dra_gradients_run(c.gradients, &q, &other, &err), DRA_OK);
    assert_string_equal(err.text, "run: 'targets' is not bound");
    q.n_inputs = 2;
    expect_ok(dra_gradients_run(c.gradients, &q, &other, &err), &err);
    assert_true(other.loss == r.loss && dra_gradients_of(c.gradients, 0)[7] == some);
    assert_int_equal(other.count, B * T - 1); /* all but a pad */
    q.chunks = 2, q.chunk = chunk;
    assert_int_not_equal(dra_gradients_run(c.gradients, &q, &other, &err), DRA_OK);
    assert_string_equal(err.text,
                        "gradients: a microbatch with further inputs is read whole, not in chunks");
    q.chunks = 0;
    q.inputs = (dra_named[]){in[0], {"targets", c.targets, sizeof c.targets - 4}};
    assert_int_not_equal(dra_gradients_run(c.gradients, &q, &other, &err), DRA_OK);
    assert_string_equal(err.text, "bind: 'targets' has 236 bytes, expected 240");
    q.inputs = (dra_named[]){in[0], {"labels", c.targets, sizeof c.targets}};
    assert_int_not_equal(dra_gradients_run(c.gradients, &q, &other, &err), DRA_OK);
    assert_string_equal(err.text, "bind: no input is called 'labels'");
    close_course(&c);
}

/* ---- contexts -------------------------------------------------------------------------------- */

enum { SOURCE = 7 };

/* In place of the model, with its embedding E: the mean of a context's items, after dropout, is
 * added to the tokens; the loss is that of the next token by E. */
static void build_translation(dra_graph *g, const void *self, const dra_module_call *call,
                              dra_value *state_out)
{
    const dra_gradients *l = self;
    const dra_tokens    *t = &call->tokens;
    dra_learning         learning;
    dra_gradients_learning(g, l, call, &learning);
    const dra_module_call *text = learning.call.context;
    const dra_value        E = call->param[dra_specs_find(l->params, "embedding")];
    const dra_value        ids = dra_input(g, "ids", DRA_I32, DRA_SHAPE(B, T));
    const dra_value        src = dra_input(g, "src", DRA_I32, DRA_SHAPE(B, text->tokens.given));
    const dra_value        targets = dra_input(g, "targets", DRA_I32, DRA_SHAPE(B, T));
    dra_value x = dra_module_dropout_given(g, text, "src", 0.3, dra_embedding(g, E, src));
    if (call->context_take.id) x = dra_read_rows(g, x, call->context_take);
    const dra_value n = dra_reshape(g, dra_cast(g, t->context_n, DRA_REAL), DRA_SHAPE(B, 1, 1));
    const dra_value sum = dra_sum(g, x, (dra_axes){1, {1}, true});
    x = dra_module_dropout(g, &learning.call, "ids", 0.3, dra_embedding(g, E, ids));
    x = dra_add(g, x, dra_div(g, sum, n));
    dra_output(
        g, "loss",
        dra_linear_cross_entropy(g, x, E, targets,
                                 &(dra_cross_entropy_config){.ignore = -1, .use_ignore = true}));
}

static void open_translation(course *c)
{
    open_course_with(c, "gpt2-tiny", &(dra_gradients_config){0}, DROPS_BRANCHES);
    dra_gradients *l = c->gradients;
    l->module.context = true;
    l->module.build = build_translation;
    dra_context_name(l->session, &l->name.context);
}

static const int32_t source_mark[B * SOURCE] = {0, 0, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0};

static void contexts_are_read_in_the_same_graph(void **unused)
{
    course                 c = {0};
    dra_error              err = {0};
    dra_microbatch_result  r[4];
    int32_t                src[B * SOURCE];
    const dra_context_text texts[] = {{SOURCE, source_mark}, {SOURCE, NULL}};
    const dra_named        in = {"src", src, sizeof src};
    size_t                 bytes;
    open_translation(&c);
    for (int i = 0; i < B * SOURCE; i++) src[i] = (i * 37 + 11) % V;
    dra_microbatch q = microbatch_of(&c);
    q.n_inputs = 1, q.inputs = &in, q.seed = 3;
    for (int k = 0; k < 2; k++) {
        q.context = &texts[k];
        expect_ok(dra_gradients_bytes(c.gradients, &q, false, &bytes, &err), &err);
        assert_true(bytes > 0);
        for (q.step = 4; q.step < 6; q.step++) {
            expect_ok(dra_gradients_run(c.gradients, &q, &r[2 * k + (int)q.step - 4], &err), &err);
            assert_int_equal(r[2 * k].count, r[0].count);
        }
    }
    for (int i = 1; i < 4; i++) assert_true(isfinite(r[i].loss) && r[i].loss != r[i - 1].loss);
    q.step = 4, q.context = &texts[0];
    expect_ok(dra_gradients_run(c.gradients, &q, &r[1], &err), &err);
    assert_true(r[1].loss == r[0].loss);
    for (int i = 0; i < B * SOURCE; i++)
        if (source_mark[i]) src[i] = 5; /* nobody sees pads */
    expect_ok(dra_gradients_run(c.gradients, &q, &r[1], &err), &err);
    assert_true(r[1].loss == r[0].loss);
#ifdef DRA_REAL_DOUBLE
    const int  E = dra_specs_find(dra_model_params(c.model), "embedding");
    dra_real **all = take_gradients(&c), *w = dra_weights_edit(c.weights, E);
    for (int i = 0; i < B * SOURCE; i++) {
        const int64_t k = src[i] * 16 + i;
        const double  old = w[k], h = 1e-5;
        double        slope = 0;
        for (int sign = -1; sign <= 1; sign += 2) {
            w[k] = old + sign * h;
            expect_ok(dra_gradients_bind(c.gradients, c.weights, &err), &err);
            expect_ok(dra_gradients_run(c.gradients, &q, &r[1], &err), &err);
            slope += sign * r[1].loss / (2 * h);
        }
        w[k] = old;
        if (!(fabs(slope - all[E][k]) < 1e-8 + 1e-6 * fabs(slope)))
            fail_msg("source %d: %g, found %g", i, slope, all[E][k]);
    }
    free_gradients(&c, all);
#endif
    close_course(&c);
}

static void wrong_contexts_are_named(void **unused)
{
    static const int64_t   chunk[] = {15, 15};
    const dra_context_text text = {SOURCE, NULL}, empty = {0, NULL};
    course                 c = {0};
    dra_error              err = {0};
    dra_microbatch_result  r;
    dra_states            *s;
    size_t                 bytes;
    open_translation(&c);
    dra_microbatch q = microbatch_of(&c);
    assert_int_not_equal(dra_gradients_run(c.gradients, &q, &r, &err), DRA_OK);
    assert_string_equal(err.text, "gradients: the model has a context, the microbatch has none");
    q.context = &empty;
    assert_int_not_equal(dra_gradients_run(c.gradients, &q, &r, &err), DRA_OK);
    assert_string_equal(err.text, "gradients: a context of 0 tokens, expected 1 to 2147483647");
    q.context = &text;
    q.chunks = 2, q.chunk = chunk;
    assert_int_not_equal(dra_gradients_run(c.gradients, &q, &r, &err), DRA_OK);
    assert_string_equal(err.text, "gradients: a microbatch with a context is read whole, in fresh "
                                  "rows, not in chunks");
    q.chunks = 0;
    expect_ok(dra_states_create(c.device, dra_model_state(c.model), B, &s, &err), &err);
    q.states = s;
    assert_int_not_equal(dra_gradients_run(c.gradients, &q, &r, &err), DRA_OK);
    assert_string_equal(err.text, "gradients: a microbatch with a context is read whole, in fresh "
                                  "rows, not from states");
    q.states = NULL;
    assert_int_not_equal(dra_gradients_bytes(c.gradients, &q, true, &bytes, &err), DRA_OK);
    assert_string_equal(err.text, "gradients: a microbatch with a context is read whole, in fresh "
                                  "rows, not from states");
    c.gradients->module.context = false;
    assert_int_not_equal(dra_gradients_run(c.gradients, &q, &r, &err), DRA_OK);
    assert_string_equal(err.text, "gradients: the module has no context");
    dra_states_destroy(s);
    close_course(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_come_by_name),
        cmocka_unit_test(contexts_are_read_in_the_same_graph),
        cmocka_unit_test(wrong_contexts_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
