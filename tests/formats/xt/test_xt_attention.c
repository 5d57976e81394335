/* What attention of x-transformers must do, option by option (F33 to F57): read off its maps and
 * scores. */
#include "xt_recipe.h"

enum { T = RECIPE_T, V = RECIPE_V, D = RECIPE_D, H = RECIPE_H, W = 8 }; /* W: width of a head */

#define NO_POSITIONS ", 'use_abs_pos_emb': false"

static recipe_result show(const recipe *r, const char *what, int l)
{
    char name[40];
    snprintf(name, sizeof name, "layers.%d.%s", l, what);
    return recipe_read(r, &recipe_plain, name);
}

static double at(const recipe_result *m, int h, int t, int64_t j)
{
    return (double)m->at[(h * T + t) * m->shape.dim[3] + j];
}

static bool close_to(double a, double b) { return fabs(a - b) <= RECIPE_CLOSE * fmax(1, fabs(b)); }

/* ---- choosing among keys --------------------------------------------------------------------- */

/* F34: two keys that are the same are chosen together. */
static void ties_are_kept(void **state)
{
    static const int32_t ids[T] = {5, 5, 3, 9, 5, 7, 2, 4};
    for (int k = 1; k <= 3; k++) {
        char stack[60];
        snprintf(stack, sizeof stack, ", 'attn_sparse_topk': %d", k);
        recipe        r = recipe_open(NO_POSITIONS, XT_ENCODER, stack);
        recipe_result a = recipe_read(&r, &(recipe_text){1, T, ids}, "layers.0.attention");
        int           three = 0;
        for (int q = 0; q < H * T; q++) {
            int n = 0;
            for (int j = 0; j < T; j++) n += at(&a, q / T, q % T, j) > 0;
            assert_true(at(&a, q / T, q % T, 0) == at(&a, q / T, q % T, 1));
            assert_true(at(&a, q / T, q % T, 0) == at(&a, q / T, q % T, 4));
            three += at(&a, q / T, q % T, 0) > 0;
            assert_true(n >= k && n <= k + 2);
        }
        assert_true(three > 0 && three < H * T);
        free(a.at);
        recipe_close(&r);
    }
}

/* F36: all weight is on the first of the largest scores. */
static void hard_takes_the_largest(void **state)
{
    recipe r = recipe_open("", XT_DECODER, ", 'attn_hard': true");
    for (int l = 0; l < 2; l++) {
        recipe_result a = show(&r, "attention", l), s = show(&r, "scores", l);
        for (int q = 0; q < H * T; q++) {
            int64_t best = 0;
            for (int64_t j = 1; j < s.shape.dim[3]; j++)
                if (at(&s, q / T, q % T, j) > at(&s, q / T, q % T, best)) best = j;
            for (int64_t j = 0; j < s.shape.dim[3]; j++)
                assert_true(at(&a, q / T, q % T, j) == (j == best));
        }
        free(a.at);
        free(s.at);
    }
    recipe_close(&r);
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* F39: of 4 query heads and 2 key heads, those of one parity read the same keys. */
static void heads_share_by_parity(void **state)
{
    recipe    r = recipe_open("", XT_DECODER, ", 'attn_kv_heads': 2");
    dra_real *q = recipe_param(&r, "layers.0.mixer.W_q");
    for (int h = 1; h < H; h++) memcpy(q + h * W * D, q, W * D * sizeof *q);
    recipe_result s = show(&r, "scores", 0);
    const int64_t each = T * s.shape.dim[3];
    check_reals(s.at, s.at + 2 * each, (size_t)each * sizeof *s.at);
    check_reals(s.at + each, s.at + 3 * each, (size_t)each * sizeof *s.at);
    assert_memory_not_equal(s.at, s.at + each, (size_t)each * sizeof *s.at);
    free(s.at);
    recipe_close(&r);
}

/* F42: a factor of 0 is as if the output did not read the head. */
static void scale_0_removes_a_head(void **state)
{
    recipe a = recipe_open("", XT_DECODER, ", 'attn_head_scale': true");
    recipe b = recipe_open("", XT_DECODER, ", 'attn_head_scale': true");
    for (int l = 0; l < 2; l++) {
        char name[40];
        snprintf(name, sizeof name, "layers.%d.mixer.head_scale", l);
        recipe_param(&a, name)[2] = 0;
        snprintf(name, sizeof name, "layers.%d.mixer.W_o", l);
        for (int o = 0; o < D; o++)
            memset(recipe_param(&b, name) + (o * H + 2) * W, 0, W * sizeof(dra_real));
    }
    recipe_result x = recipe_read(&a, &recipe_plain, "logits");
    recipe_result y = recipe_read(&b, &recipe_plain, "logits");
    recipe_same("without head 2", T * V, x.at, y.at, 0);
    free(x.at);
    free(y.at);
    recipe_close(&a);
    recipe_close(&b);
}

/* ---- queries and keys of length 1 ------------------------------------------------------------ */

/* F43: factors of queries and keys do not count, powers of two to the bit. */
static void lengths_do_not_count(void **state)
{
    const double factors[] = {4, 0.125, 3, 1e-3};
    for (size_t i = 0; i < COUNT(factors); i++)
        for (int k = 0; k < 2; k++) {
            recipe        r = recipe_open("", XT_DECODER, ", 'attn_qk_norm': true");
            recipe_result x = recipe_read(&r, &recipe_plain, "logits");
            recipe_affine(&r, k ? "W_k" : "W_q", factors[i], 0);
            recipe_result y = recipe_read(&r, &recipe_plain, "logits");
            recipe_same("scaled", T * V, y.at, x.at, i < 2 ? 0 : RECIPE_CLOSE);
            free(x.at);
            free(y.at);
            recipe_close(&r);
        }
}

/* F44, F45: each group adds at most the scale; keys like queries reach that. */
static void logits_are_bounded(void **state)
{
    const struct {
        const char *stack;
        double      most;
    } list[] = {{"", 10},
                {", 'attn_qk_norm_groups': 2", 20},
                {", 'attn_qk_norm_scale': 1", 1},
                {", 'attn_qk_norm_groups': 2, 'attn_qk_norm_scale': 1", 2}};
    for (size_t i = 0; i < COUNT(list); i++)
        for (int same = 0; same < 2; same++) {
            char   stack[120];
            double most = 0;
            snprintf(stack, sizeof stack, ", 'attn_qk_norm': true%s", list[i].stack);
            recipe r = recipe_open(NO_POSITIONS, XT_ENCODER, stack);
            if (same)
                memcpy(recipe_param(&r, "layers.0.mixer.W_k"),
                       recipe_param(&r, "layers.0.mixer.W_q"), H * W * D * sizeof(dra_real));
            recipe_result s = show(&r, "scores", 0);
            for (int64_t k = 0; k < s.n; k++) most = fmax(most, fabs((double)s.at[k]));
            assert_true(most <= list[i].most * (1 + RECIPE_CLOSE));
            assert_int_equal(most >= list[i].most * (1 - RECIPE_CLOSE), same);
            free(s.at);
            recipe_close(&r);
        }
}

/* ---- residual attention ---------------------------------------------------------------------- */

/* F47: layers without queries of their own look where the first one looked. */
static void later_layers_look_alike(void **state)
{
    recipe r = recipe_open("", "'type': 'Decoder', 'depth': 3, " XT_HEADS,
                           ", 'residual_attn': true");
    recipe_affine(&r, "layers.1.mixer.W_q", 0, 0);
    recipe_affine(&r, "layers.2.mixer.W_q", 0, 0);
    recipe_result first = show(&r, "attention", 0);
    for (int l = 1; l < 3; l++) {
        recipe_result a = show(&r, "attention", l);
        recipe_same("attention", first.n, a.at, first.at, 0);
        free(a.at);
    }
    free(first.at);
    recipe_close(&r);
}

/* A positional bias is added once more by every layer. */
static void biases_add_up(void **state)
{
    recipe r = recipe_open("", XT_DECODER, ", 'residual_attn': true, 'alibi_pos_bias': true");
    recipe_affine(&r, "W_q", 0, 0);
    recipe_result a = show(&r, "scores", 0), b = show(&r, "scores", 1);
    for (int64_t i = 0; i < a.n; i++)
        if (a.at[i] > (dra_real)DRA_MASKED) assert_true(b.at[i] == 2 * a.at[i]);
    free(a.at);
    free(b.at);
    recipe_close(&r);
}

/* ---- positions ------------------------------------------------------------------------------- */

/* Scores without queries are biases: of the same distance the same, as `bias` has it. */
static void expect_biases(const char *shape, const char *stack,
                          double (*bias)(const recipe *r, int h, int far))
{
    recipe r = recipe_open("", shape, stack);
    recipe_affine(&r, "W_q", 0, 0);
    for (int l = 0; l < 2; l++) {
        recipe_result s = show(&r, "scores", l);
        for (int q = 0; q < H * T; q++)
            for (int j = 0; j < T; j++) {
                const double x = at(&s, q / T, q % T, j);
                if (x > DRA_MASKED) assert_true(close_to(x, bias(&r, q / T, q % T - j)));
            }
        free(s.at);
    }
    recipe_close(&r);
}

/* F49: a row of the table for each distance up to 7, those of later keys from 16 on. */
static double t5_of(const recipe *r, int h, int far)
{
    const int bucket = far < 0 ? 16 - far : far;
    return sqrt(W) * (double)recipe_param(r, "position.table")[bucket * H + h];
}

/* F56: slopes 2^-2, 2^-4, ...; F57: of three heads 2^-4, 2^-8, 2^-2, and none. */
static double alibi_of(const recipe *r, int h, int far)
{
    (void)r;
    return -pow(2, -2 * (h + 1)) * abs(far);
}

static double three_alibi_of(const recipe *r, int h, int far)
{
    static const double slopes[H] = {1.0 / 16, 1.0 / 256, 1.0 / 4, 0};
    (void)r;
    return -slopes[h] * abs(far);
}

static void biases_follow_distance(void **state)
{
    for (int encoder = 0; encoder < 2; encoder++) {
        const char *shape = encoder ? XT_ENCODER : XT_DECODER;
        expect_biases(shape, ", 'rel_pos_bias': true", t5_of);
        expect_biases(shape, ", 'alibi_pos_bias': true", alibi_of);
        expect_biases(shape, ", 'alibi_pos_bias': true, 'alibi_num_heads': 3", three_alibi_of);
    }
}

/* F50: a text of one token has scores that depend on the distance alone. */
static void rotation_is_relative(void **state)
{
    static const int32_t     ids[T] = {6, 6, 6, 6, 6, 6, 6, 6};
    static const char *const stacks[] = {", 'rotary_pos_emb': true",
                                         ", 'rotary_xpos': true, 'rotary_xpos_scale_base': 16"};
    for (size_t i = 0; i < COUNT(stacks); i++) {
        recipe        r = recipe_open("", XT_DECODER, stacks[i]);
        recipe_result s = recipe_read(&r, &(recipe_text){1, T, ids}, "layers.0.scores");
        bool          varies = false;
        for (int h = 0; h < H; h++)
            for (int t = 1; t < T; t++) {
                for (int j = 1; j <= t; j++)
                    assert_true(close_to(at(&s, h, t, j), at(&s, h, t - 1, j - 1)));
                varies = varies || !close_to(at(&s, h, t, 0), at(&s, h, 0, 0));
            }
        assert_true(varies);
        free(s.at);
        recipe_close(&r);
    }
}

/* F51: the last two heads rotate, the others are those of a model that does not. */
static void some_heads_rotate(void **state)
{
    const char *const rotates = ", 'rotary_pos_emb': true";
    const char *const two = ", 'rotary_pos_emb': true, 'rotate_num_heads': 2";
    recipe r[] = {recipe_open(NO_POSITIONS, XT_DECODER, ""), recipe_open("", XT_DECODER, rotates),
                  recipe_open("", XT_DECODER, two)};
    recipe_result s[3];
    for (int i = 0; i < 3; i++) s[i] = show(&r[i], "scores", 0);
    const size_t half = (size_t)s[0].n / 2;
    check_reals(s[2].at, s[0].at, half * sizeof(dra_real));
    check_reals(s[2].at + half, s[1].at + half, half * sizeof(dra_real));
    assert_memory_not_equal(s[0].at, s[1].at, half * sizeof(dra_real));
    for (int i = 0; i < 3; i++) {
        free(s[i].at);
        recipe_close(&r[i]);
    }
}

/* ---- a net that makes biases ----------------------------------------------------------------- */

enum { P = D / 4 };

/* What the last layer of the net reads for this distance. */
static void inner_net(const recipe *r, double x, double out[P])
{
    double first[P];
    for (int i = 0; i < P; i++) {
        const double z = (double)recipe_param(r, "position.0.W")[i] * x +
                         (double)recipe_param(r, "position.0.b")[i];
        first[i] = z / (1 + exp(-z));
    }
    for (int i = 0; i < P; i++) {
        double z = (double)recipe_param(r, "position.1.b")[i];
        for (int k = 0; k < P; k++)
            z += (double)recipe_param(r, "position.1.W")[i * P + k] * first[k];
        out[i] = z / (1 + exp(-z));
    }
}

/* F54, F55: the same biases by T5's table, which has a row for each distance: values agree, and
 * what comes back to the net is the sum over cells of equal distance, which that table holds. */
static void net_learns_by_distance(void **state)
{
    static const char *const stacks[] = {
        ", 'dynamic_pos_bias': true",
        ", 'dynamic_pos_bias': true, 'dynamic_pos_bias_log_distance': true"};
    for (int log_ = 0; log_ < 2; log_++) {
        recipe    net = recipe_open(NO_POSITIONS, XT_DECODER, stacks[log_]);
        recipe    table = recipe_open("", XT_DECODER, ", 'rel_pos_bias': true");
        dra_real *w = recipe_param(&net, "position.2.W"),
                 *t5 = recipe_param(&table, "position.table");
        double inner[T][P], loss[2], want[H * P] = {0};
        for (int n = 0; n < T; n++) {
            inner_net(&net, log_ ? log(n + 1) : n, inner[n]);
            for (int h = 0; h < H; h++) {
                double x = (double)recipe_param(&net, "position.2.b")[h];
                for (int i = 0; i < P; i++) x += (double)w[h * P + i] * inner[n][i];
                t5[n * H + h] = (dra_real)(x / sqrt(W));
            }
        }
        dra_gradients  *a = recipe_learn(&net, &loss[0]), *b = recipe_learn(&table, &loss[1]);
        const dra_real *dw = recipe_gradient(&net, a, "position.2.W");
        const dra_real *dt5 = recipe_gradient(&table, b, "position.table");
        assert_true(close_to(loss[0], loss[1]));
        for (int n = 0; n < T; n++)
            for (int i = 0; i < H * P; i++)
                want[i] += inner[n][i % P] * (double)dt5[n * H + i / P] / sqrt(W);
        check_close("gradient", H * P, dw, want, 50 * RECIPE_CLOSE); /* a sum that nearly cancels */
        dra_gradients_destroy(a);
        dra_gradients_destroy(b);
        recipe_close(&net);
        recipe_close(&table);
    }
}

/* ---- tokens that are no keys ----------------------------------------------------------------- */

/* F76: what a hidden token is changes its own row alone. */
static void hidden_tokens_are_not_read(void **state)
{
    const int32_t mark[T] = {0, 0, DRA_MARK_SKIP, 0, 0, DRA_MARK_SKIP, 0, 0};
    int32_t       ids[T];
    recipe        r = recipe_open("", XT_DECODER, "");
    recipe_result x = recipe_read(&r, &(recipe_text){1, T, recipe_ids, .mark = mark}, "logits");
    memcpy(ids, recipe_ids, sizeof ids);
    ids[2] = 8;
    recipe_result y = recipe_read(&r, &(recipe_text){1, T, ids, .mark = mark}, "logits");
    for (int t = 0; t < T; t++)
        assert_int_equal(memcmp(x.at + t * V, y.at + t * V, V * sizeof *x.at) != 0, t == 2);
    free(x.at);
    free(y.at);
    recipe_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ties_are_kept),
        cmocka_unit_test(hard_takes_the_largest),
        cmocka_unit_test(heads_share_by_parity),
        cmocka_unit_test(scale_0_removes_a_head),
        cmocka_unit_test(lengths_do_not_count),
        cmocka_unit_test(logits_are_bounded),
        cmocka_unit_test(later_layers_look_alike),
        cmocka_unit_test(biases_add_up),
        cmocka_unit_test(biases_follow_distance),
        cmocka_unit_test(rotation_is_relative),
        cmocka_unit_test(some_heads_rotate),
        cmocka_unit_test(net_learns_by_distance),
        cmocka_unit_test(hidden_tokens_are_not_read),
    };
    return check_main("xt attention", NULL, 0, tests, COUNT(tests));
}
