/* Recipes that hold for every option of x-transformers: parameters that make it vanish, rows of a
 * batch on their own, causality, padding, the order of tokens. */
#include "xt_features.h"

enum { T = RECIPE_T, V = RECIPE_V, D = RECIPE_D, H = RECIPE_H, W = 8 }; /* W: width of a head */

/* ---- parameters that make an option vanish --------------------------------------------------- */

typedef struct side { /* a model and what its parameters are set to: "END=1 END*2 /NAME=0" */
    const char *top, *stack, *edits;
    void (*edit)(const recipe *r);
    bool no_depth;
} side;

typedef struct neutral {
    const char *name;
    side        with, without;
    double      tol; /* 0: the same bits */
    bool        decoder;
} neutral;

static void apply(const recipe *r, const char *edits)
{
    while (edits && *edits) {
        char         name[64];
        const size_t n = strcspn(edits, "=*"), word = strcspn(edits, " ");
        const double x = strtod(edits + n + 1, NULL);
        snprintf(name, sizeof name, "%.*s", (int)n, edits);
        recipe_affine(r, name, edits[n] == '*' ? x : 0, edits[n] == '*' ? 0 : x);
        edits += word + strspn(edits + word, " ");
    }
}

static void set_identity(const recipe *r)
{
    for (int l = 0; l < 2; l++) {
        char name[40];
        snprintf(name, sizeof name, "layers.%d.mixer.talk_after", l);
        for (int i = 0; i < H * H; i++) recipe_param(r, name)[i] = i / H == i % H;
    }
}

static void no_talking(const recipe *r)
{
    set_identity(r);
    recipe_affine(r, "talk_before", 0, 0);
}

/* The gate of a glu becomes what is passed on, and what it gates is 1. */
static void only_the_gate(const recipe *r)
{
    for (int l = 0; l < 2; l++) {
        const char *const names[][2] = {{"W_gate", "W_up"}, {"b_gate", "b_up"}};
        for (int i = 0; i < 2; i++) {
            char to[40], from[40];
            snprintf(to, sizeof to, "layers.%d.ff.%s", l, names[i][0]);
            snprintf(from, sizeof from, "layers.%d.ff.%s", l, names[i][1]);
            const int n = dra_specs_find(dra_model_params(r->model), to);
            memcpy(recipe_param(r, to), recipe_param(r, from),
                   (size_t)recipe_count(r, n) * sizeof(dra_real));
        }
    }
    recipe_affine(r, "W_up", 0, 0);
    recipe_affine(r, "b_up", 0, 1);
}

/* W_o (2 D, H W): twice the first half by sigmoid(0). */
static void half_open(const recipe *r)
{
    recipe_affine(r, "W_o", 2, 0);
    for (int l = 0; l < 2; l++) {
        char name[40];
        snprintf(name, sizeof name, "layers.%d.mixer.W_o", l);
        memset(recipe_param(r, name) + D * H * W, 0, D * H * W * sizeof(dra_real));
    }
}

/* Query head h reads what key head h mod 2 does. */
static void repeat_heads(const recipe *r)
{
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < 2; i++) {
            char name[40];
            snprintf(name, sizeof name, "layers.%d.mixer.%s", l, i ? "W_v" : "W_k");
            dra_real *w = recipe_param(r, name);
            memcpy(w + 2 * W * D, w, 2 * W * D * sizeof *w);
        }
}

/* Channel 0 of the stream stays 5, and channel 0 of each query is what the norm makes of it. */
static void ask_channel_0(const recipe *r)
{
    for (int i = 0; i < V; i++) recipe_param(r, "embedding")[i * D] = 5;
    for (int l = 0; l < 2; l++) {
        char name[40];
        snprintf(name, sizeof name, "layers.%d.mixer.W_o", l);
        memset(recipe_param(r, name), 0, H * W * sizeof(dra_real));
        snprintf(name, sizeof name, "layers.%d.ff.W_down", l);
        memset(recipe_param(r, name), 0, 4 * D * sizeof(dra_real));
        snprintf(name, sizeof name, "layers.%d.ff.b_down", l);
        recipe_param(r, name)[0] = 0;
        snprintf(name, sizeof name, "layers.%d.mixer.W_q", l);
        for (int h = 0; h < H; h++)
            for (int c = 0; c < D; c++) recipe_param(r, name)[h * W * D + c] = c == 0;
    }
}

static void keys_of_channel_0(const recipe *r, double key)
{
    ask_channel_0(r);
    for (int l = 0; l < 2; l++) {
        char name[40];
        snprintf(name, sizeof name, "layers.%d.mixer.mem_k", l);
        const int n = dra_specs_find(dra_model_params(r->model), name);
        for (int64_t t = 0; t < recipe_count(r, n); t++)
            recipe_param(r, name)[t] = (dra_real)(t % W ? 0 : key);
    }
}

static void far_keys(const recipe *r) { keys_of_channel_0(r, -1e5); }
static void near_keys(const recipe *r) { keys_of_channel_0(r, 1e5); }

#define SIMPLE ", 'use_simple_rmsnorm': true"
#define NO_POSITIONS ", 'use_abs_pos_emb': false"

static const neutral rows[] = {
    {"F16 positions of 0", {"", "", "positions=0"}, {NO_POSITIONS, ""}},
    {"F22 gain 1", {"", ", 'use_scalenorm': true", "norm_g=0"}, {"", SIMPLE}},
    {"F23 gains of 1", {"", ", 'use_rmsnorm': true", "norm_g=0"}, {"", SIMPLE}},
    {"F26 only the gate", {"", ", 'ff_glu': true", .edit = only_the_gate}, {"", ""}},
    {"F27 only the gate",
     {"", ", 'ff_glu': true, 'ff_swish': true", .edit = only_the_gate},
     {"", ", 'ff_swish': true"}},
    {"F28 relu squared before swish",
     {"", ", 'ff_relu_squared': true, 'ff_swish': true"},
     {"", ", 'ff_relu_squared': true"}},
    {"F29 biases of 0", {"", ", 'ff_no_bias': true"}, {"", "", "b_up=0 b_down=0"}},
    {"F29 of a glu",
     {"", ", 'ff_no_bias': true, 'ff_glu': true"},
     {"", ", 'ff_glu': true", "b_down=0"}},
    {"F32 flash", {"", ", 'attn_flash': true"}, {"", ""}},
    {"F32 flash, alibi",
     {"", ", 'attn_flash': true, 'alibi_pos_bias': true"},
     {"", ", 'alibi_pos_bias': true"}},
    {"F32 flash, learned keys, grouped heads, cosine similarity",
     {"", ", 'attn_flash': true, 'attn_num_mem_kv': 2, 'attn_kv_heads': 2, 'attn_qk_norm': true"},
     {"", ", 'attn_num_mem_kv': 2, 'attn_kv_heads': 2, 'attn_qk_norm': true"}},
    {"F33 far keys",
     {NO_POSITIONS, SIMPLE ", 'attn_num_mem_kv': 3", .edit = far_keys},
     {NO_POSITIONS, SIMPLE, .edit = ask_channel_0}},
    {"F34 all keys", {"", ", 'attn_sparse_topk': 8"}, {"", ""}, RECIPE_CLOSE},
    {"F35 values of top-k",
     {"", ", 'attn_sparse_topk': 2, 'attn_sparse_topk_straight_through': true"},
     {"", ", 'attn_sparse_topk': 2"}},
    {"F37 nothing added",
     {"", ", 'attn_pre_talking_heads': true", "talk_before=0"},
     {"", ""},
     RECIPE_CLOSE},
    {"F37 the identity",
     {"", ", 'attn_post_talking_heads': true", .edit = set_identity},
     {"", ""},
     RECIPE_CLOSE},
    {"F37 both",
     {"", ", 'attn_pre_talking_heads': true, 'attn_post_talking_heads': true", .edit = no_talking},
     {"", ""},
     RECIPE_CLOSE},
    {"F38 one head", {"", ", 'attn_one_kv_head': true"}, {"", ", 'attn_kv_heads': 1"}},
    {"F39 all heads", {"", ", 'attn_kv_heads': 4"}, {"", ""}},
    {"F39 repeated", {"", ", 'attn_kv_heads': 2"}, {"", "", .edit = repeat_heads}},
    {"F40 half open", {"", ", 'attn_on_attn': true", .edit = half_open}, {"", ""}},
    {"F41 open", {"", ", 'attn_gate_values': true", "W_g=0 b_g=200"}, {"", ""}},
    {"F41 half open, newer",
     {", 'release': 'N'", ", 'attn_gate_values': true", "W_g=0 W_o*2"},
     {"", ""}},
    {"F42 factors of 1", {"", ", 'attn_head_scale': true", "head_scale=1"}, {"", ""}},
    {"F44 one group",
     {"", ", 'attn_qk_norm': true, 'attn_qk_norm_groups': 1"},
     {"", ", 'attn_qk_norm': true"}},
    {"F45 10",
     {"", ", 'attn_qk_norm': true, 'attn_qk_norm_scale': 10"},
     {"", ", 'attn_qk_norm': true"}},
    {"F46 scales of 1",
     {"", ", 'attn_qk_norm': true, 'attn_qk_norm_dim_scale': true", "gain_q=1 gain_k=1"},
     {"", ", 'attn_qk_norm': true"}},
    {"F46 newer, scales of d^(1/4)",
     {", 'release': 'N'", ", 'attn_qk_norm': true, 'attn_qk_norm_dim_scale': true",
      "gain_q=1.681792830507429 gain_k=1.681792830507429"},
     {"", ", 'attn_qk_norm': true, 'attn_qk_norm_scale': 1"},
     RECIPE_CLOSE},
    {"F49 a table of 0",
     {"", ", 'rel_pos_bias': true", "position.table=0"},
     {NO_POSITIONS, ""},
     RECIPE_CLOSE},
    {"F52 a base without end",
     {"", ", 'rotary_xpos': true, 'rotary_xpos_scale_base': 1e12"},
     {"", ", 'rotary_pos_emb': true"},
     RECIPE_CLOSE + 1e-11, /* the base is 1e12 */
     true},
    {"F54 a net of 0",
     {"", ", 'dynamic_pos_bias': true", "position.2.W=0 position.2.b=0"},
     {"", ""},
     RECIPE_CLOSE},
    {"F54 a bias alone",
     {"", ", 'dynamic_pos_bias': true", "position.2.W=0 position.2.b=0.5"},
     {"", ""},
     RECIPE_CLOSE},
    {"F57 all heads",
     {"", ", 'alibi_pos_bias': true, 'alibi_num_heads': 4"},
     {"", ", 'alibi_pos_bias': true"}},
    {"F58 said", {"", ", 'pre_norm': true"}, {"", ""}},
    {"F59 as a list",
     {"", ", 'sandwich_coef': 1"},
     {"", ", 'custom_layers': ['a', 'a', 'f', 'f']", .no_depth = true}},
    {"F60 as a list",
     {"", ", 'custom_layers': ['a', 'f', 'a', 'f'], 'layers_execute_order': [0, 1, 2, 3]",
      .no_depth = true},
     {"", ""}},
    {"F61 doubled",
     {"", ", 'macaron': true", "W_down*2 b_down*2"},
     {"", ", 'custom_layers': ['f', 'a', 'f', 'f', 'a', 'f']", .no_depth = true}},
    {"F63 factors of 1", {"", ", 'scale_residual': true", "residual_scale=1"}, {"", ""}},
    {"F65 without the second stream",
     {"", ", 'resi_dual': true", "/norm_g=-1"},
     {"", ", 'pre_norm': false"}},
    {"F66 scale 1", {"", ", 'resi_dual': true, 'resi_dual_scale': 1"}, {"", ", 'resi_dual': true"}},
    {"F67 by 0", {"", ", 'shift_tokens': 0"}, {"", ""}},
    {"F67 by 0, a list", {"", ", 'shift_tokens': [0, 0, 0, 0]"}, {"", ""}},
    {"F71 when reading", {", 'emb_dropout': 0.5", ""}, {"", ""}},
    {"F72 when reading", {"", ", 'layer_dropout': 0.5"}, {"", ""}},
    {"F72 a list", {"", ", 'layer_dropout': [0.1, 0.2, 0.3, 0.4]"}, {"", ""}},
    {"F73 when reading", {"", ", 'attn_dropout': 0.5"}, {"", ""}},
    {"F74 when reading", {"", ", 'ff_dropout': 0.5"}, {"", ""}},
};

static recipe open_side(const side *s, bool decoder)
{
    const xt_feature f = {"", s->top, s->stack, .no_depth = s->no_depth};
    recipe           r = xt_feature_open(&f, decoder);
    if (s->edit) s->edit(&r);
    apply(&r, s->edits);
    return r;
}

static void vanishes(void **state)
{
    const neutral *n = *state;
    for (int decoder = n->decoder; decoder < 2; decoder++) {
        recipe        a = open_side(&n->with, decoder), b = open_side(&n->without, decoder);
        recipe_result x = recipe_read(&a, &recipe_plain, "logits");
        recipe_result y = recipe_read(&b, &recipe_plain, "logits");
        assert_int_equal(x.n, T * V);
        recipe_same(decoder ? "decoder" : "encoder", x.n, x.at, y.at, n->tol);
        free(x.at);
        free(y.at);
        recipe_close(&a);
        recipe_close(&b);
    }
}

/* Without its setting an option does not vanish: the tests above see something. */
static void options_matter(void **state)
{
    recipe        plain = recipe_open("", XT_DECODER, "");
    recipe_result y = recipe_read(&plain, &recipe_plain, "logits");
    for (size_t i = 0; i < COUNT(xt_features); i++) {
        const char *name = xt_features[i].name;
        if (!xt_has(&xt_features[i], true) || strcmp(name, "plain") == 0) continue;
        recipe        r = xt_feature_open(&xt_features[i], true);
        recipe_result x = recipe_read(&r, &recipe_plain, "logits");
        const double  d = recipe_difference(T * V, x.at, y.at);
        const bool    none = strncmp(name, "F32", 3) == 0 || strncmp(name, "F71", 3) == 0;
        if ((d > 1e-4) == none) fail_msg("%s: differs by %g", name, d);
        free(x.at);
        recipe_close(&r);
    }
    free(y.at);
    recipe_close(&plain);
}

/* F33: a key that fits every query takes all. */
static void one_key_takes_all(void **state)
{
    const side    s = {NO_POSITIONS, SIMPLE ", 'attn_num_mem_kv': 1", .edit = near_keys};
    recipe        r = open_side(&s, true);
    recipe_result a = recipe_read(&r, &recipe_plain, "layers.0.attention");
    for (int64_t i = 0; i < a.n; i++) assert_true(a.at[i] == (i % a.shape.dim[3] == 0));
    free(a.at);
    recipe_close(&r);
}

/* ---- rows of a batch ------------------------------------------------------------------------- */

enum { B = 3 };

static const int32_t batch_ids[B * T] = {1, 5, 3, 9, 0, 7, 2, 4, 8, 8, 2, 6,
                                         1, 1, 3, 0, 4, 9, 9, 5, 7, 6, 0, 2};
static const int32_t batch_marks[B * T] = {0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0,
                                           0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1};

static void rows_stand_alone(void **state)
{
    const xt_feature *f = *state;
    recipe            r = xt_feature_open(f, f->kind == XT_DECODERS);
    for (int marked = 0; marked < 2; marked++) {
        const recipe_text all = {B, T, batch_ids, .mark = marked ? batch_marks : NULL};
        recipe_result     y = recipe_read(&r, &all, "logits");
        for (int b = 0; b < B; b++) {
            const recipe_text one = {1, T, batch_ids + b * T,
                                     .mark = marked ? batch_marks + b * T : NULL};
            recipe_result     x = recipe_read(&r, &one, "logits");
            for (int t = 0; t < T; t++)
                if (!marked || !batch_marks[b * T + t])
                    recipe_same(marked ? "with pads" : "plain", V, x.at + t * V,
                                y.at + (b * T + t) * V, 0);
            free(x.at);
        }
        free(y.at);
    }
    recipe_close(&r);
}

/* ---- causality ------------------------------------------------------------------------------- */

/* F01: another token leaves what was before it as it was, to the bit. */
static void later_tokens_change_nothing(void **state)
{
    recipe        r = xt_feature_open(*state, true);
    recipe_result y = recipe_read(&r, &recipe_plain, "logits");
    for (int t = 1; t < T; t++) {
        int32_t ids[T];
        memcpy(ids, recipe_ids, sizeof ids);
        ids[t] = (ids[t] + 1) % V;
        recipe_result x = recipe_read(&r, &(recipe_text){1, T, ids}, "logits");
        check_reals(x.at, y.at, (size_t)(t * V) * sizeof *x.at);
        assert_memory_not_equal(x.at + t * V, y.at + t * V, V * sizeof *x.at);
        free(x.at);
    }
    free(y.at);
    recipe_close(&r);
}

/* ---- padding and order ----------------------------------------------------------------------- */

/* F02: tokens of a padded text see the others alone, but where shifts reach over. */
static void pads_are_not_there(void **state)
{
    const xt_feature *f = *state;
    const int32_t     mark[6] = {0, 0, 0, 0, 1, 1};
    recipe            r = xt_feature_open(f, f->kind == XT_DECODERS);
    recipe_result     x = recipe_read(&r, &(recipe_text){1, 6, recipe_ids, .mark = mark}, "logits");
    recipe_result     y = recipe_read(&r, &(recipe_text){1, 4, recipe_ids}, "logits");
    if (f->kind == XT_DECODERS || !f->sees_pads)
        recipe_same("pads", 4 * V, x.at, y.at, f->kind == XT_DECODERS ? 0 : RECIPE_CLOSE);
    free(x.at);
    free(y.at);
    recipe_close(&r);
}

/* F17: without positions an encoder does not know the order. */
static void order_does_not_matter(void **state)
{
    static const int  to[T] = {3, 0, 7, 1, 6, 2, 5, 4};
    const xt_feature *f = *state;
    xt_feature        own = *f;
    char              top[80];
    int32_t           ids[T];
    dra_real          back[T * V];
    snprintf(top, sizeof top, "%s%s", f->top, strstr(f->top, "use_abs") ? "" : NO_POSITIONS);
    own.top = top;
    recipe r = xt_feature_open(&own, false);
    for (int t = 0; t < T; t++) ids[to[t]] = recipe_ids[t];
    recipe_result x = recipe_read(&r, &recipe_plain, "logits");
    recipe_result y = recipe_read(&r, &(recipe_text){1, T, ids}, "logits");
    for (int t = 0; t < T; t++) memcpy(back + t * V, y.at + to[t] * V, V * sizeof *back);
    const double d = recipe_difference(T * V, back, x.at);
    if ((d <= RECIPE_CLOSE) == f->ordered) fail_msg("differs by %g", d);
    free(x.at);
    free(y.at);
    recipe_close(&r);
}

static int neutral_tests(void)
{
    static struct CMUnitTest tests[COUNT(rows) + 2];
    for (size_t i = 0; i < COUNT(rows); i++)
        tests[i] = (struct CMUnitTest){rows[i].name, vanishes, NULL, NULL,
                                       (void *)(uintptr_t)&rows[i]};
    tests[COUNT(rows)] = (struct CMUnitTest)cmocka_unit_test(options_matter);
    tests[COUNT(rows) + 1] = (struct CMUnitTest)cmocka_unit_test(one_key_takes_all);
    return _cmocka_run_group_tests("neutral", tests, COUNT(tests), NULL, NULL);
}

int main(void)
{
    int failed = neutral_tests();
    failed += xt_each_feature("rows alone", rows_stand_alone, true, true);
    failed += xt_each_feature("causal", later_tokens_change_nothing, true, false);
    failed += xt_each_feature("pads", pads_are_not_there, true, true);
    failed += xt_each_feature("order", order_does_not_matter, false, true);
    return failed;
}
