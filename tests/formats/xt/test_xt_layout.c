/* What embeddings, norms, feed-forwards, residuals and the layout of x-transformers must do, option
 * by option (F03 to F30, F58 to F67, F75). */
#include "xt_recipe.h"

enum { T = RECIPE_T, V = RECIPE_V, D = RECIPE_D, H = RECIPE_H, W = 8 };

#define NO_POSITIONS ", 'use_abs_pos_emb': false"

static double norm_of(const dra_real *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static bool close_to(double a, double b) { return fabs(a - b) <= RECIPE_CLOSE * fmax(1, fabs(b)); }

/* ---- embeddings ------------------------------------------------------------------------------ */

static void expect_shape(const recipe *r, const char *name, int64_t rows, int64_t columns)
{
    const int i = dra_specs_find(dra_model_params(r->model), name);
    assert_true(i >= 0);
    const dra_shape want = DRA_SHAPE(rows, columns);
    assert_true(dra_shape_equal(&dra_specs_at(dra_model_params(r->model), i)->shape, &want));
}

/* F03: heads are 64 wide unless the config says otherwise. */
static void heads_have_their_width(void **state)
{
    recipe r = recipe_open("", "'type': 'Decoder', 'depth': 1, 'dim': 16, 'heads': 2",
                           ", 'attn_dim_head': 8");
    expect_shape(&r, "layers.0.mixer.W_q", 16, 16);
    recipe_close(&r);
    r = recipe_open("", "'type': 'Decoder', 'depth': 1, 'dim': 16, 'heads': 2", "");
    expect_shape(&r, "layers.0.mixer.W_q", 128, 16);
    expect_shape(&r, "layers.0.mixer.W_o", 16, 128);
    recipe_close(&r);
    r = recipe_open("", "'type': 'Decoder', 'depth': 1, 'dim': 16", "");
    expect_shape(&r, "layers.0.mixer.W_k", 512, 16);
    recipe_close(&r);
}

/* F16: a row of the table and a position by 1 / sqrt(D); F18: both of length 1. */
static void embeds(void **state)
{
    for (int unit = 0; unit < 2; unit++) {
        recipe          r = recipe_open(unit ? ", 'l2norm_embed': true" : "", XT_DECODER, "");
        recipe_result   x = recipe_read(&r, &recipe_plain, "hidden.0");
        const dra_real *table = recipe_param(&r, "embedding"), *pos = recipe_param(&r, "positions");
        for (int t = 0; t < T; t++) {
            const dra_real *e = table + recipe_ids[t] * D, *p = pos + t * D;
            const double    a = unit ? norm_of(e, D) : 1, b = unit ? norm_of(p, D) : sqrt(D);
            for (int c = 0; c < D; c++)
                assert_true(close_to((double)x.at[t * D + c], (double)e[c] / a + (double)p[c] / b));
        }
        free(x.at);
        recipe_close(&r);
    }
    recipe        r = recipe_open(NO_POSITIONS ", 'l2norm_embed': true", XT_DECODER, "");
    recipe_result x = recipe_read(&r, &recipe_plain, "hidden.0");
    for (int t = 0; t < T; t++) assert_true(close_to(norm_of(x.at + t * D, D), 1));
    free(x.at);
    recipe_close(&r);
}

/* F20: memory tokens are the embeddings of tokens before the text. */
static void memory_tokens_are_tokens(void **state)
{
    static const char *const stacks[] = {"", ", 'rotary_pos_emb': true", ", 'alibi_pos_bias': true",
                                         ", 'rel_pos_bias': true", ", 'shift_tokens': 1"};
    for (size_t i = 0; i < COUNT(stacks); i++)
        for (int encoder = 0; encoder < 2; encoder++) {
            const char *shape = encoder ? XT_ENCODER : XT_DECODER;
            recipe      a = recipe_open(NO_POSITIONS ", 'num_memory_tokens': 2", shape, stacks[i]);
            recipe      b = recipe_open(NO_POSITIONS, shape, stacks[i]);
            memcpy(recipe_param(&a, "memory_tokens"),
                   recipe_param(&a, "embedding") + recipe_ids[0] * D, D * sizeof(dra_real));
            memcpy(recipe_param(&a, "memory_tokens") + D,
                   recipe_param(&a, "embedding") + recipe_ids[1] * D, D * sizeof(dra_real));
            recipe_result x = recipe_read(&a, &(recipe_text){1, T - 2, recipe_ids + 2}, "logits");
            recipe_result y = recipe_read(&b, &recipe_plain, "logits");
            recipe_same(stacks[i], (T - 2) * V, x.at, y.at + 2 * V, 0);
            free(x.at);
            free(y.at);
            recipe_close(&a);
            recipe_close(&b);
        }
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* Rows of mean 0 and variance 1, but for eps. */
static void expect_normed(const recipe_result *x)
{
    for (int64_t t = 0; t < x->n / D; t++) {
        double mean = 0, square = 0;
        for (int c = 0; c < D; c++) {
            mean += (double)x->at[t * D + c] / D;
            square += (double)x->at[t * D + c] * (double)x->at[t * D + c] / D;
        }
        if (!(fabs(mean) <= RECIPE_CLOSE && fabs(square - 1) <= 2e-3))
            fail_msg("mean %g, mean square %g", mean, square);
    }
}

/* F19, F21, F58: where layer norms with gains of 1 are. */
static void norms_are_in_place(void **state)
{
    const struct {
        const char *top, *stack, *gain, *where[5];
        double      number;
    } list[] = {
        {", 'post_emb_norm': true", "", "embed_norm_g", {"hidden.0"}, 1},
        {"", "", "norm_g", {"hidden"}, 0},
        {"",
         ", 'pre_norm': false",
         "norm_g",
         {"hidden.1", "hidden.2", "hidden.3", "hidden.4", "hidden"},
         0},
        {"",
         ", 'sandwich_norm': true",
         "norm_g",
         {"add.0", "add.1", "add.2", "add.3", "hidden"},
         0},
    };
    for (size_t i = 0; i < COUNT(list); i++) {
        recipe r = recipe_open(list[i].top, XT_DECODER, list[i].stack);
        recipe_affine(&r, list[i].gain, 0, list[i].number);
        recipe_affine(&r, "embedding", 16, 0); /* what is normed is large, eps small */
        recipe_affine(&r, "W_o", 16, 0);
        for (int k = 0; k < 5 && list[i].where[k]; k++) {
            recipe_result x = recipe_read(&r, &recipe_plain, list[i].where[k]);
            expect_normed(&x);
            free(x.at);
        }
        recipe_close(&r);
    }
}

/* F22 to F24: length sqrt(D) times the gain; of 0 nothing is made. */
static void lengths_of_norms(void **state)
{
    static const char *const stacks[] = {", 'use_simple_rmsnorm': true", ", 'use_scalenorm': true",
                                         ", 'use_rmsnorm': true"};
    const dra_real           zero[T * D] = {0};
    for (size_t i = 0; i < COUNT(stacks); i++) {
        char stack[80];
        snprintf(stack, sizeof stack, "%s, 'ff_no_bias': true", stacks[i]);
        recipe r = recipe_open(NO_POSITIONS, XT_DECODER, stack);
        if (i) recipe_affine(&r, "/norm_g", 0, 0.5);
        recipe_result x = recipe_read(&r, &recipe_plain, "hidden");
        recipe_result y = recipe_read(&r, &(recipe_text){1, T, .x = zero}, "hidden");
        for (int t = 0; t < T; t++)
            assert_true(close_to(norm_of(x.at + t * D, D), i ? 1.5 * sqrt(D) : sqrt(D)));
        for (int k = 0; k < T * D; k++) assert_true(y.at[k] == 0);
        free(x.at);
        free(y.at);
        recipe_close(&r);
    }
}

/* ---- feed-forwards --------------------------------------------------------------------------- */

/* F28: the square of what is not above 0 has no slope. */
static void no_slope_at_0(void **state)
{
    recipe r = recipe_open("", XT_DECODER, ", 'ff_relu_squared': true");
    double loss;
    recipe_affine(&r, "W_up", 0, 0);
    recipe_affine(&r, "b_up", 0, 0);
    dra_gradients  *l = recipe_learn(&r, &loss);
    const dra_real *dw = recipe_gradient(&r, l, "layers.1.ff.W_up");
    for (int i = 0; i < 4 * D * D; i++) assert_true(dw[i] == 0);
    assert_true(norm_of(recipe_gradient(&r, l, "layers.1.ff.b_down"), D) > 0);
    dra_gradients_destroy(l);
    recipe_close(&r);
}

/* F29: a glu keeps the biases that it reads by. */
static void a_glu_keeps_its_bias(void **state)
{
    const struct {
        const char *stack, *has, *lacks;
    } list[] = {{", 'ff_no_bias': true", "W_up", "b_up"},
                {", 'ff_no_bias': true", "W_up", "b_down"},
                {", 'ff_no_bias': true, 'ff_glu': true", "b_up", "b_down"},
                {", 'ff_no_bias': true, 'ff_glu': true", "b_gate", "b_down"}};
    for (size_t i = 0; i < COUNT(list); i++) {
        recipe r = recipe_open("", XT_DECODER, list[i].stack);
        char   name[40];
        snprintf(name, sizeof name, "layers.0.ff.%s", list[i].has);
        assert_true(dra_specs_find(dra_model_params(r.model), name) >= 0);
        snprintf(name, sizeof name, "layers.0.ff.%s", list[i].lacks);
        assert_true(dra_specs_find(dra_model_params(r.model), name) < 0);
        recipe_close(&r);
    }
}

/* F30: a norm after the activation makes its size not count, but for eps. */
static void sizes_of_activations_do_not_count(void **state)
{
    recipe r = recipe_open("", XT_DECODER, ", 'ff_relu_squared': true, 'ff_post_act_ln': true");
    recipe_affine(&r, "W_up", 16, 0);
    recipe_affine(&r, "b_up", 16, 0);
    recipe_result x = recipe_read(&r, &recipe_plain, "logits");
    recipe_affine(&r, "W_up", 8, 0);
    recipe_affine(&r, "b_up", 8, 0);
    recipe_result y = recipe_read(&r, &recipe_plain, "logits");
    recipe_same("activations 64 times as large", T * V, x.at, y.at, 1e-4);
    free(x.at);
    free(y.at);
    recipe_close(&r);
}

/* ---- residuals ------------------------------------------------------------------------------- */

/* F62: a gate that keeps all; F64: gains of 0: the stream stays what was embedded. */
static void streams_stay(void **state)
{
    const struct {
        const char *stack, *name;
        double      number, tol;
    } list[] = {{", 'gate_residual': true", "gru_b_i", 100, RECIPE_CLOSE},
                {", 'sandwich_norm': true", "branch_norm_g", -1, 0}};
    for (size_t i = 0; i < COUNT(list); i++) {
        recipe        r = recipe_open("", XT_DECODER, list[i].stack);
        recipe_result first = recipe_read(&r, &recipe_plain, "hidden.0");
        recipe_affine(&r, list[i].name, 0, list[i].number); /* of the GRU all three gates */
        for (int k = 1; k < 5; k++) {
            char name[32];
            snprintf(name, sizeof name, "hidden.%d", k);
            recipe_result x = recipe_read(&r, &recipe_plain, name);
            recipe_same(name, T * D, x.at, first.at, list[i].tol);
            free(x.at);
        }
        free(first.at);
        recipe_close(&r);
    }
}

/* F65, F66: the scale of the second stream is undone by its norm, but for eps. */
static void dual_scale_does_not_count(void **state)
{
    static const char *const scales[] = {"1", "0.5", "0.1"};
    recipe_result            x[3];
    for (int i = 0; i < 3; i++) {
        char stack[60];
        snprintf(stack, sizeof stack, ", 'resi_dual': true, 'resi_dual_scale': %s", scales[i]);
        recipe r = recipe_open("", XT_DECODER, stack);
        x[i] = recipe_read(&r, &recipe_plain, "hidden");
        recipe_close(&r);
    }
    for (int i = 1; i < 3; i++) recipe_same(scales[i], T * D, x[i].at, x[0].at, 5e-4);
    assert_memory_not_equal(x[2].at, x[0].at, T * D * sizeof(dra_real));
    for (int i = 0; i < 3; i++) free(x[i].at);
}

/* ---- layout ---------------------------------------------------------------------------------- */

/* The parameter of `to` that stands where `name` of layer 0 does in layer l. */
static dra_real *of_layer(const recipe *r, const char *name, int l)
{
    char own[64];
    snprintf(own, sizeof own, "layers.%d.%s", l, name + strlen("layers.0."));
    return recipe_param(r, own);
}

/* Outputs agree to the bit, gradients of shared parameters are sums over their executions. */
static void expect_shared(const char *shared_shape, const char *shared, const char *apart_shape,
                          const char *apart, int copies)
{
    recipe           a = recipe_open("", shared_shape, shared);
    recipe           b = recipe_open("", apart_shape, apart);
    const dra_specs *specs = dra_model_params(a.model);
    double           loss[2];
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const char  *name = dra_specs_at(specs, i)->name;
        const size_t bytes = (size_t)recipe_count(&a, i) * sizeof(dra_real);
        for (int l = 0; l < copies && strncmp(name, "layers.0.", 9) == 0; l++)
            memcpy(of_layer(&b, name, l), recipe_at(&a, i), bytes);
    }
    recipe_result x = recipe_read(&a, &recipe_plain, "logits");
    recipe_result y = recipe_read(&b, &recipe_plain, "logits");
    recipe_same("shared", T * V, x.at, y.at, 0);
    dra_gradients *da = recipe_learn(&a, &loss[0]), *db = recipe_learn(&b, &loss[1]);
    assert_true(loss[0] == loss[1]);
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const char   *name = dra_specs_at(specs, i)->name;
        const int64_t n = recipe_count(&a, i);
        double       *sum = calloc((size_t)n, sizeof *sum);
        const bool    in_layer = strncmp(name, "layers.0.", 9) == 0;
        for (int l = 0; l < (in_layer ? copies : 1); l++) {
            char own[64];
            snprintf(own, sizeof own, "layers.%d.%s", l, name + (in_layer ? 9 : 0));
            const dra_real *d = recipe_gradient(&b, db, in_layer ? own : name);
            for (int64_t k = 0; k < n; k++) sum[k] += (double)d[k];
        }
        check_close(name, n, recipe_gradient(&a, da, name), sum, 10 * RECIPE_CLOSE);
        free(sum);
    }
    free(x.at);
    free(y.at);
    dra_gradients_destroy(da);
    dra_gradients_destroy(db);
    recipe_close(&a);
    recipe_close(&b);
}

/* F60: tied layers are copies; so is what is executed several times. */
static void shared_parameters_are_copies(void **state)
{
    const char *const three = "'type': 'Decoder', 'depth': 3, " XT_HEADS;
    expect_shared(three, ", 'weight_tie_layers': true", three, "", 3);
    expect_shared(three,
                  ", 'weight_tie_layers': true, 'gate_residual': true, 'rotary_pos_emb': true",
                  three, ", 'gate_residual': true, 'rotary_pos_emb': true", 3);
    expect_shared(XT_NO_DEPTH,
                  ", 'custom_layers': ['a', 'f'], 'layers_execute_order': [0, 1, 0, 1, 0, 1, 0, 1]",
                  "'type': 'Decoder', 'depth': 4, " XT_HEADS, "", 4);
}

/* F59: attention first, feed-forwards last. */
static void sandwich_has_its_order(void **state)
{
    recipe a = recipe_open("", "'type': 'Decoder', 'depth': 6, " XT_HEADS, ", 'sandwich_coef': 2");
    recipe b = recipe_open("", XT_NO_DEPTH,
                           ", 'custom_layers': ['a', 'a', 'a', 'f', 'a', 'f', 'a', 'f', 'a', 'f', "
                           "'f', 'f']");
    recipe_result x = recipe_read(&a, &recipe_plain, "logits");
    recipe_result y = recipe_read(&b, &recipe_plain, "logits");
    assert_int_equal(dra_model_sublayers(a.model), 12);
    recipe_same("aa af af af af ff", T * V, x.at, y.at, 0);
    free(x.at);
    free(y.at);
    recipe_close(&a);
    recipe_close(&b);
}

/* F67: of 7 channels and a shift by 1, channels 3 to 5 are those of the token before, all others
 * those of the token itself. Here only a feed-forward adds something, and it reads one channel. */
static void the_last_channel_stays(void **state)
{
    enum { C = 7 };
    for (int channel = 0; channel < C; channel++) {
        recipe    r = recipe_open(NO_POSITIONS,
                                  "'type': 'Decoder', 'depth': 1, 'dim': 7, 'heads': 2, "
                                     "'attn_dim_head': 8",
                                  ", 'shift_tokens': 1");
        dra_real *w = recipe_param(&r, "layers.0.ff.W_up");
        int32_t   ids[T];
        recipe_affine(&r, "W_o", 0, 0);
        for (int i = 0; i < 4 * C * C; i++)
            if (i % C != channel) w[i] = 0;
        memcpy(ids, recipe_ids, sizeof ids);
        ids[3] = 6;
        recipe_result x = recipe_read(&r, &recipe_plain, "logits");
        recipe_result y = recipe_read(&r, &(recipe_text){1, T, ids}, "logits");
        recipe_result a = recipe_read(&r, &recipe_plain, "add.1");
        recipe_result b = recipe_read(&r, &(recipe_text){1, T, ids}, "add.1");
        for (int t = 0; t < T; t++) {
            const bool shifted = channel >= 3 && channel < 6;
            assert_int_equal(memcmp(a.at + t * C, b.at + t * C, C * sizeof *a.at) != 0,
                             t == 3 + shifted);
            assert_int_equal(memcmp(x.at + t * V, y.at + t * V, V * sizeof *x.at) != 0,
                             t == 3 || (shifted && t == 4));
        }
        free(x.at);
        free(y.at);
        free(a.at);
        free(b.at);
        recipe_close(&r);
    }
}

/* F13, F75: equal logits of V tokens have the loss ln V. */
static void equal_logits(void **state)
{
    recipe r = recipe_open("", XT_DECODER, "");
    double loss;
    recipe_affine(&r, "head", 0, 0);
    dra_gradients_destroy(recipe_learn(&r, &loss));
    assert_true(close_to(loss, log(V)));
    recipe_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_have_their_width),
        cmocka_unit_test(embeds),
        cmocka_unit_test(memory_tokens_are_tokens),
        cmocka_unit_test(norms_are_in_place),
        cmocka_unit_test(lengths_of_norms),
        cmocka_unit_test(no_slope_at_0),
        cmocka_unit_test(a_glu_keeps_its_bias),
        cmocka_unit_test(sizes_of_activations_do_not_count),
        cmocka_unit_test(streams_stay),
        cmocka_unit_test(dual_scale_does_not_count),
        cmocka_unit_test(shared_parameters_are_copies),
        cmocka_unit_test(sandwich_has_its_order),
        cmocka_unit_test(the_last_channel_stays),
        cmocka_unit_test(equal_logits),
    };
    return check_main("xt layout", NULL, 0, tests, COUNT(tests));
}
