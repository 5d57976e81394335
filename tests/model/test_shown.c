/* What views show of sublayers as they are executed: hidden states, what each adds, attention maps
 * and scores; with tied layers and custom orders, one of each for every execution. */
#include "formats/xt/xt_recipe.h"

enum { T = RECIPE_T, D = RECIPE_D, H = RECIPE_H };

static recipe_result show(const recipe *r, const char *what, int64_t i)
{
    char name[40];
    snprintf(name, sizeof name, what, (long long)i);
    return recipe_read(r, &recipe_plain, name);
}

/* ---- hidden states --------------------------------------------------------------------------- */

#define DRA_MODEL(options)                                                                         \
    "{'model_type': 'dra', 'vocab': 10, 'dim': 16, 'depth': 2, 'heads': 4, 'context': 8, 'ff': "   \
    "{'dim': 8}" options "}"

static const struct {
    const char *name, *text;
    int64_t     n;
} stacks[] = {
    {"blocks", DRA_MODEL(""), 4},
    {"macaron", DRA_MODEL(", 'layout': 'faf', 'block': {'macaron': true}"), 6},
    {"tied layers", DRA_MODEL(", 'tied_layers': true"), 4},
    {"an order", DRA_MODEL(", 'layout': 'aff', 'order': [0, 1, 0, 4, 3, 3, 2]"), 7},
    {"post norm, token shift", DRA_MODEL(", 'block': {'norm': 'post', 'shift': 1}"), 4},
    {"memory tokens", DRA_MODEL(", 'memory_tokens': 3"), 4},
    {"delta, halved while reading",
     DRA_MODEL(", 'rescale_every': 1, 'mixer': [{'memory': 'delta'}, {'memory': 'append'}]"), 4},
};

/* The last of each layer is its stream; without norms after it, the sum of the one before and what
 * was added, to the bit. */
static void hiddens_follow_the_stream(void **state)
{
    for (size_t s = 0; s < COUNT(stacks); s++) {
        recipe        r = recipe_open_text(stacks[s].text);
        const bool    post = strstr(stacks[s].text, "post") != NULL;
        const bool    halved = strstr(stacks[s].text, "rescale") != NULL;
        const int64_t n = dra_model_sublayers(r.model), layers = dra_model_layers(r.model);
        int64_t       met = 0;
        recipe_result before = show(&r, "hidden.%lld", 0), stream = show(&r, "stream.%lld", 0);
        assert_int_equal(n, stacks[s].n);
        assert_int_equal(before.n, T * D);
        recipe_same("embedded", T * D, before.at, stream.at, 0);
        for (int64_t i = 0; i < n; i++) {
            recipe_result after = show(&r, "hidden.%lld", i + 1), add = show(&r, "add.%lld", i);
            if (met < layers) {
                free(stream.at);
                stream = show(&r, "stream.%lld", met + 1);
            }
            met += recipe_difference(T * D, after.at, stream.at) == 0;
            for (int k = 0; k < T * D && !post && !halved; k++)
                assert_true(after.at[k] == before.at[k] + add.at[k]);
            free(before.at);
            free(add.at);
            before = after;
        }
        if (met != layers) fail_msg("%s: %d streams met", stacks[s].name, (int)met);
        free(before.at);
        free(stream.at);
        recipe_close(&r);
    }
}

/* The stream after k executions is that of a model that stops there. */
static void hiddens_are_those_of_shorter_stacks(void **state)
{
    static const char order[] = "0, 1, 0, 4, 3, 3, 2";
    recipe            whole = recipe_open_text(stacks[3].text);
    for (int64_t k = 1; k <= stacks[3].n; k++) {
        char text[400];
        snprintf(text, sizeof text, DRA_MODEL(", 'layout': 'aff', 'order': [%.*s]"),
                 (int)(3 * k - 2), order);
        recipe        part = recipe_open_text(text);
        recipe_result a = show(&whole, "hidden.%lld", k), b = show(&part, "hidden.%lld", k);
        assert_int_equal(dra_model_sublayers(part.model), k);
        recipe_same("hidden", T * D, a.at, b.at, 0);
        free(a.at);
        free(b.at);
        recipe_close(&part);
    }
    recipe_close(&whole);
}

static void hiddens_in_chunks(void **state)
{
    for (size_t s = 0; s < COUNT(stacks); s++) {
        recipe r = recipe_open_text(stacks[s].text);
        for (int64_t i = 0; i <= stacks[s].n; i++) {
            dra_reader *reader = NULL;
            dra_states *states = NULL;
            char        name[40];
            snprintf(name, sizeof name, "hidden.%lld", (long long)i);
            recipe_result whole = recipe_read(&r, &recipe_plain, name);
            recipe_result parts = recipe_read_in(&r, &recipe_plain, name, 3, &reader, &states);
            assert_int_equal(parts.n, whole.n);
            recipe_same(stacks[s].name, whole.n, parts.at, whole.at, RECIPE_CLOSE);
            free(whole.at);
            free(parts.at);
            dra_reader_destroy(reader);
            dra_states_destroy(states);
        }
        recipe_close(&r);
    }
}

/* ---- attention maps and scores --------------------------------------------------------------- */

static const struct {
    const char *name, *shape, *stack;
    int64_t     attentions, first; /* first: columns before those of tokens */
} maps[] = {
    {"decoder", XT_DECODER, "", 2, 0},
    {"encoder", XT_ENCODER, "", 2, 0},
    {"tied", "'type': 'Decoder', 'depth': 3, " XT_HEADS, ", 'weight_tie_layers': true", 3, 0},
    {"an order", XT_NO_DEPTH,
     ", 'custom_layers': ['a', 'f', 'a'], 'layers_execute_order': [0, 1, 0, 2, 2]", 4, 0},
    {"sandwich", XT_DECODER, ", 'sandwich_coef': 2", 2, 0},
    {"learned keys", XT_DECODER, ", 'attn_num_mem_kv': 3", 2, 3},
    {"T5, residual attention", XT_DECODER, ", 'rel_pos_bias': true, 'residual_attn': true", 2, 0},
    {"alibi, shared keys", XT_ENCODER, ", 'alibi_pos_bias': true, 'attn_kv_heads': 2", 2, 0},
};

/* A row of weights is the softmax of its scores; a decoder sees no later token. */
static void expect_softmax(const recipe_result *a, const recipe_result *s, bool causal,
                           int64_t first)
{
    const int64_t J = s->shape.dim[3];
    for (int64_t q = 0; q < H * T; q++) {
        const dra_real *w = a->at + q * J, *x = s->at + q * J;
        double          sum = 0;
        for (int64_t j = 0; j < J; j++) sum += exp((double)x[j]);
        for (int64_t j = 0; j < J; j++) {
            const bool masked = x[j] == (dra_real)DRA_MASKED;
            const bool later = causal && j - first > q % T;
            assert_int_equal(masked, later || j - first >= T);
            assert_true(fabs((double)w[j] - exp((double)x[j]) / sum) <= RECIPE_CLOSE);
        }
    }
}

static void maps_of_every_execution(void **state)
{
    for (size_t i = 0; i < COUNT(maps); i++) {
        recipe     r = recipe_open("", maps[i].shape, maps[i].stack);
        const bool causal = strstr(maps[i].shape, "Decoder") != NULL;
        assert_int_equal(dra_model_attentions(r.model), maps[i].attentions);
        for (int64_t l = 0; l < maps[i].attentions; l++) {
            const int64_t layer = dra_model_attention_layer(r.model, l);
            recipe_result a = show(&r, "layers.%lld.attention", layer);
            recipe_result s = show(&r, "layers.%lld.scores", layer);
            assert_true(dra_shape_equal(&a.shape, &s.shape));
            assert_true(a.shape.dim[1] == H && a.shape.dim[2] == T);
            assert_true(a.shape.dim[3] >= T + maps[i].first);
            expect_softmax(&a, &s, causal, maps[i].first);
            free(a.at);
            free(s.at);
        }
        recipe_close(&r);
    }
}

/* Memory tokens are rows of maps, as queries and as keys, but no rows of hidden states. */
static void maps_have_memory_tokens(void **state)
{
    recipe        r = recipe_open(", 'num_memory_tokens': 3", XT_DECODER, "");
    recipe_result a = show(&r, "layers.%lld.attention", 1);
    assert_true(a.shape.dim[2] == 3 + T && a.shape.dim[3] >= 3 + T);
    free(a.at);
    a = show(&r, "hidden.%lld", 1);
    assert_true(a.shape.dim[1] == T && a.shape.dim[2] == D);
    free(a.at);
    recipe_close(&r);
}

/* A view that asks for one has no other. */
static void views_choose(void **state)
{
    recipe      r = recipe_open("", XT_DECODER, "");
    dra_reader *reader = NULL;
    dra_states *states = NULL;
    static const struct {
        const char *name, *other;
    } list[] = {{"layers.0.attention", "layers.0.scores"},
                {"layers.0.scores", "layers.0.attention"},
                {"hidden.1", "add.1"},
                {"add.1", "hidden.1"},
                {"logits", "hidden.0"}};
    for (size_t i = 0; i < COUNT(list); i++) {
        free(recipe_read_in(&r, &recipe_plain, list[i].name, T, &reader, &states).at);
        assert_null(dra_reader_result(reader, list[i].other));
        dra_reader_destroy(reader);
        dra_states_destroy(states);
    }
    recipe_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hiddens_follow_the_stream),
        cmocka_unit_test(hiddens_are_those_of_shorter_stacks),
        cmocka_unit_test(hiddens_in_chunks),
        cmocka_unit_test(maps_of_every_execution),
        cmocka_unit_test(maps_have_memory_tokens),
        cmocka_unit_test(views_choose),
    };
    return check_main("shown", NULL, 0, tests, COUNT(tests));
}
