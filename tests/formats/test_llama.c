/* The Llama family: golden numbers of the transformers library in float64 (tests/parity/
 * llama_models.py made them), whole = parts = steps = resumed, folders and GGUF both ways, what is
 * refused, and a second memory. */
#include "file/gguf.h"
#include "drawn.h"
#include "formats/tensor_source.h"
#include "model/model.h"

#ifdef DRA_REAL_DOUBLE
#define TOL 1e-10
#define BACK_TOL 1e-6 /* GGUF has settings in f32 */
#else
#define TOL (check_cuda() ? 1e-4 : 2e-5)
#define BACK_TOL 2e-5
#endif

enum { PROMPT = 5, VOCAB_MOST = 90 };

static const char *const families[] = {
    "llama",      "qwen2",          "qwen3",       "mistral",          "smollm3",
    "granite",    "olmo2",          "olmo3",       "gemma3_text",      "phi3",
    "qwen3_next", "qwen3_5_text",   "olmo_hybrid", "mamba2",           "granitemoehybrid",
    "lfm2",       "gated_deltanet", "delta_net",   "qwen3_5_moe_text", "qwen3_moe"};

/* Chunks of matrix memories are counted from the start of a call. */
enum { FIRST_HYBRID = 10 };

static bool has_matrices(size_t i)
{
    return i >= FIRST_HYBRID && strcmp(families[i], "lfm2") != 0 &&
           strcmp(families[i], "qwen3_moe") != 0;
}

static const char *data_of(const char *name, const char *file)
{
    static char paths[4][200];
    static int  next;
    char       *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "tests/data/llama/%s%s", name, file);
    return path;
}

static void read_ids(const char *family, const char *tensor, int32_t *ids, size_t count)
{
    dra_tensors *t = NULL;
    dra_error    err = {0};
    expect_ok(dra_tensors_open(data_of(family, "/expected.safetensors"), &t, &err), &err);
    const dra_tensor_info *info = dra_tensors_find(t, tensor);
    assert_non_null(info);
    assert_int_equal(info->bytes, count * sizeof *ids);
    memcpy(ids, info->data, info->bytes);
    dra_tensors_close(t);
}

/* ---- golden numbers -------------------------------------------------------------------------- */

static double number_of(const dra_tensors *t, const char *name)
{
    size_t    n;
    dra_real *x = numbers(t, name, &n);
    double    sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    free(x);
    return sqrt(sum);
}

/* The loss of the text, and the length of all gradients as one vector. */
static void learn(const loaded *m, const int32_t *ids, double *loss, double *length)
{
    const dra_specs           *params = dra_model_params(m->model);
    const dra_gradients_config how = {.model = m->model,
                                      .device = check_device(2, dra_device_level_at(0))};
    int32_t                    targets[TOKENS];
    dra_gradients             *g;
    dra_microbatch_result      r;
    dra_error                  err = {0};
    double                     sum = 0;
    for (int i = 0; i < TOKENS; i++) targets[i] = i + 1 < TOKENS ? ids[i + 1] : -1;
    const dra_microbatch batch = {.B = 1, .T = TOKENS, .ids = ids, .targets = targets};
    expect_ok(dra_weights_train(m->weights, how.device, &err), &err);
    expect_ok(dra_gradients_create(&how, &g, &err), &err);
    expect_ok(dra_gradients_bind(g, m->weights, &err), &err);
    expect_ok(dra_gradients_run(g, &batch, &r, &err), &err);
    for (int i = 0; i < dra_specs_count(params); i++) {
        const dra_real *x = dra_gradients_of(g, i);
        const int64_t   n = dra_shape_count(&dra_specs_at(params, i)->shape);
        for (int64_t k = 0; k < n; k++) sum += (double)x[k] * (double)x[k];
    }
    *loss = r.loss;
    *length = sqrt(sum);
    dra_gradients_destroy(g);
}

static void has_the_numbers_of_transformers(void **state)
{
    for (size_t i = 0; i < COUNT(families); i++) {
        dra_tensors *t = NULL;
        dra_error    err = {0};
        int32_t      ids[TOKENS];
        double       loss, length;
        size_t       n;
        loaded       m = open_model(data_of(families[i], ""));
        read_ids(families[i], "ids", ids, TOKENS);
        expect_ok(dra_tensors_open(data_of(families[i], "/expected.safetensors"), &t, &err), &err);
        dra_real *want = numbers(t, "logits", &n), *logits = logits_of(&m, ids, TOKENS);
        expect_near(families[i], n, logits, want, TOL);
        learn(&m, ids, &loss, &length);
        const double should = number_of(t, "loss"), gradients = number_of(t, "norms");
        if (!(fabs(loss - should) <= TOL * should)) fail_msg("%s: loss %g", families[i], loss);
        if (!(fabs(length - gradients) <= 10 * TOL * gradients))
            fail_msg("%s: gradients of length %.12g, expected %.12g", families[i], length,
                     gradients);
        free(want);
        free(logits);
        dra_tensors_close(t);
        load_free(&m);
    }
}

static void chooses_the_tokens_of_transformers(void **state)
{
    if (check_cuda()) skip(); /* logits say it, too, and hundreds of readers take long there */
    for (size_t i = 0; i < COUNT(families); i++) {
        int32_t      text[TOKENS] = {0}, want[PROMPT + 12];
        const loaded m = open_model(data_of(families[i], ""));
        const size_t words = (size_t)dra_model_config_of(m.model)->vocab;
        read_ids(families[i], "greedy", want, PROMPT + 12);
        memcpy(text, want, PROMPT * sizeof *text);
        for (int t = PROMPT; t < PROMPT + 12; t++) {
            dra_real *logits = logits_of(&m, text, t);
            dra_real *last = logits + (size_t)(t - 1) * words;
            for (size_t k = 0; k < words; k++)
                if (last[k] > last[text[t]]) text[t] = (int32_t)k;
            free(logits);
        }
        assert_memory_equal(text, want, sizeof want);
        load_free((loaded *)&m);
    }
}

/* ---- exactness ------------------------------------------------------------------------------- */

/* The first `half` tokens, the state through a file, the rest in parts. */
static dra_real *resumed(const loaded *m, const int32_t *ids, int64_t half, int64_t part,
                         dra_states **end)
{
    const int64_t  words = dra_model_config_of(m->model)->vocab;
    const uint64_t print = dra_model_fingerprint(m->model);
    dra_real      *logits = calloc((size_t)(TOKENS * words), sizeof *logits);
    dra_states    *s = open_states(m, 1), *later = NULL;
    dra_error      err = {0};
    assert_non_null(logits);
    read_rows(m, s, ids, 1, half, half, logits);
    expect_ok(dra_states_save(s, print, in_folder("state"), &err), &err);
    expect_ok(dra_states_load(check_device(2, dra_device_level_at(0)), dra_model_state(m->model),
                              print, in_folder("state"), &later, &err),
              &err);
    read_rows(m, later, ids + half, 1, TOKENS - half, part, logits + half * words);
    dra_states_destroy(s);
    *end = later;
    return logits;
}

static void whole_is_parts_is_steps_is_resumed(void **state)
{
    const size_t n = check_cuda() ? 3 : COUNT(families);
    for (size_t i = 0; i < n; i++) {
        const int64_t parts[] = {7, 1};
        int32_t       ids[TOKENS];
        loaded        m = open_model(data_of(families[i], ""));
        const size_t  bytes = sizeof(dra_real) * TOKENS *
                             (size_t)dra_model_config_of(m.model)->vocab;
        read_ids(families[i], "ids", ids, TOKENS);
        dra_states *whole = open_states(&m, 1), *end;
        dra_real   *all = calloc(1, bytes);
        assert_non_null(all);
        read_rows(&m, whole, ids, 1, TOKENS, TOKENS, all);
        for (size_t k = 0; k < COUNT(parts); k++) {
            dra_real *some = logits_of(&m, ids, parts[k]), *later;
            later = resumed(&m, ids, 9, parts[k], &end);
            if (check_cuda() || has_matrices(i)) {
                expect_near(families[i], bytes / sizeof *all, some, all, TOL);
                expect_near(families[i], bytes / sizeof *all, later, all, TOL);
            } else {
                dra_states_difference d;
                dra_error             err = {0};
                assert_memory_equal(some, all, bytes);
                assert_memory_equal(later, all, bytes);
                expect_ok(dra_states_compare(whole, end, &d, &err), &err);
                if (!d.same) fail_msg("%s: %s differs by %g", families[i], d.name, d.worst);
            }
            dra_states_destroy(end);
            free(some);
            free(later);
        }
        dra_states_destroy(whole);
        free(all);
        load_free(&m);
    }
}

/* ---- folders --------------------------------------------------------------------------------- */

/* Its own format again, over dra's own. */
static void folders_there_and_back(void **state)
{
    for (size_t i = 0; i < COUNT(families); i++) {
        CHECK_CONFIG(c);
        dra_error   err = {0};
        char        own[40], back[40];
        const char *from = data_of(families[i], "");
        snprintf(own, sizeof own, "%s.own", families[i]);
        snprintf(back, sizeof back, "%s.back", families[i]);
        expect_ok(dra_folder_config(from, &c, &err), &err);
        assert_int_equal(dra_model_config_class(c), c->format);
        expect_ok(convert(from, in_folder(own), DRA_FORMAT_DRA, &err), &err);
        expect_ok(convert(in_folder(own), in_folder(back), c->format, &err), &err);
        int32_t ids[TOKENS];
        read_ids(families[i], "ids", ids, TOKENS);
        loaded    a = open_model(from), b = open_model(in_folder(back));
        dra_real *x = logits_of(&a, ids, TOKENS), *y = logits_of(&b, ids, TOKENS);
        assert_memory_equal(x, y, sizeof *x * TOKENS * (size_t)c->vocab);
        assert_true(dra_model_fingerprint(a.model) == dra_model_fingerprint(b.model));
        free(x);
        free(y);
        load_free(&a);
        load_free(&b);
    }
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

#define SIZES                                                                                      \
    "\"vocab_size\": 19, \"hidden_size\": 24, \"intermediate_size\": 20, "                         \
    "\"num_hidden_layers\": 5, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 0.0009765625"
#define LLAMA3                                                                                     \
    "\"rope_theta\": 1000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "      \
    "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "                                        \
    "\"original_max_position_embeddings\": 64}"

#define PHI3(reach, original)                                                                      \
    "{\"model_type\": \"phi3\", " SIZES ", \"dra_rope\": \"" reach "\", "                          \
    "\"original_max_position_embeddings\": " #original ", \"rope_scaling\": {\"type\": \"su\", "   \
    "\"short_factor\": [1.0, 1.25, 1.5], \"long_factor\": [1.5, 4.0, 20.0]}}"

static const struct {
    const char     *name;
    dra_format_kind kind;
    const char     *json;
} ggufs[] = {
    {"llama", DRA_FORMAT_LLAMA,
     "{\"model_type\": \"llama\", " SIZES ", \"attention_bias\": true, \"head_dim\": 32, " LLAMA3
     "}"},
    {"llama-mlp", DRA_FORMAT_LLAMA,
     "{\"model_type\": \"llama\", " SIZES ", \"mlp_bias\": true, \"rope_scaling\": {\"type\": "
     "\"linear\", \"factor\": 2.0}}"},
    {"qwen2", DRA_FORMAT_QWEN2, "{\"model_type\": \"qwen2\", " SIZES "}"},
    {"qwen3", DRA_FORMAT_QWEN3,
     "{\"model_type\": \"qwen3\", " SIZES ", \"head_dim\": 8, \"tie_word_embeddings\": true, "
     "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
     "\"original_max_position_embeddings\": 16}}"},
    {"smollm3", DRA_FORMAT_SMOLLM3, "{\"model_type\": \"smollm3\", " SIZES "}"},
    {"mistral", DRA_FORMAT_MISTRAL,
     "{\"model_type\": \"mistral\", " SIZES ", \"sliding_window\": 4}"},
    {"qwen2-late", DRA_FORMAT_QWEN2,
     "{\"model_type\": \"qwen2\", " SIZES ", \"use_sliding_window\": true, "
     "\"sliding_window\": 3, \"max_window_layers\": 2}"},
    {"smollm3-windows", DRA_FORMAT_SMOLLM3,
     "{\"model_type\": \"smollm3\", " SIZES ", \"use_sliding_window\": true, "
     "\"sliding_window\": 3}"},
    {"granite", DRA_FORMAT_GRANITE,
     "{\"model_type\": \"granite\", " SIZES ", \"embedding_multiplier\": 12.0, "
     "\"logits_scaling\": 3.3, \"residual_multiplier\": 0.22, \"attention_multiplier\": 0.3}"},
    {"olmo2", DRA_FORMAT_OLMO2, "{\"model_type\": \"olmo2\", " SIZES "}"},
    {"olmo3", DRA_FORMAT_OLMO3,
     "{\"model_type\": \"olmo3\", " SIZES ", \"sliding_window\": 3, \"rope_scaling\": "
     "{\"rope_type\": \"linear\", \"factor\": 4.0}}"},
    {"gemma3", DRA_FORMAT_GEMMA3,
     "{\"model_type\": \"gemma3_text\", " SIZES ", \"head_dim\": 8, \"sliding_window\": 3, "
     "\"query_pre_attn_scalar\": 24, \"rope_local_base_freq\": 100.0, \"rope_scaling\": "
     "{\"rope_type\": \"linear\", \"factor\": 8.0}}"},
    {"gemma3-list", DRA_FORMAT_GEMMA3,
     "{\"model_type\": \"gemma3_text\", " SIZES ", \"head_dim\": 8, \"sliding_window\": 3, "
     "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"sliding_attention\", "
     "\"full_attention\", \"sliding_attention\"]}"},
    {"phi3", DRA_FORMAT_PHI3, PHI3("short", 32)},
    {"phi3-long", DRA_FORMAT_PHI3, PHI3("long", 8)},
};

/* Row i drawn, and as GGUF. */
static void make_gguf(size_t i, char from[60], char file[60])
{
    dra_error err = {0};
    snprintf(from, 60, "%s.drawn", ggufs[i].name);
    snprintf(file, 60, "%s.gguf", ggufs[i].name);
    draw(from, ggufs[i].json);
    expect_ok(convert(in_folder(from), in_folder(file), DRA_FORMAT_GGUF, &err), &err);
}

static void gguf_there_and_back(void **state)
{
    for (size_t i = 0; i < COUNT(ggufs); i++) {
        CHECK_CONFIG(c);
        dra_error err = {0};
        char      from[60], file[60], back[60];
        make_gguf(i, from, file);
        snprintf(back, sizeof back, "%s.of-gguf", ggufs[i].name);
        expect_ok(dra_folder_config(in_folder(file), &c, &err), &err);
        const bool halves = ggufs[i].kind != DRA_FORMAT_LLAMA &&
                            ggufs[i].kind != DRA_FORMAT_MISTRAL &&
                            ggufs[i].kind != DRA_FORMAT_SMOLLM3 &&
                            ggufs[i].kind != DRA_FORMAT_GRANITE;
        assert_int_equal(c->mixer[0].turn.halves, halves); /* rows are used as they stand */
        /* Gains of Gemma are rounded with 1 added. */
        const double tol = BACK_TOL * (ggufs[i].kind == DRA_FORMAT_GEMMA3 ? 4 : 1);
        expect_same_logits(in_folder(from), in_folder(file), tol);
        expect_ok(convert(in_folder(file), in_folder(back), ggufs[i].kind, &err), &err);
        expect_same_logits(in_folder(from), in_folder(back), tol);
        char a[1100], b[1100];
        snprintf(a, sizeof a, "%s/model.safetensors", in_folder(from));
        snprintf(b, sizeof b, "%s/model.safetensors", in_folder(back));
#ifndef DRA_REAL_DOUBLE
        if (ggufs[i].kind != DRA_FORMAT_GEMMA3) /* whose gains are rounded with 1 added */
            expect_same_file(a, b);             /* permuted and permuted back */
#endif
    }
}

/* A copy without some of its keys. */
static void drop_keys(const char *from, const char *to, const char *const *own)
{
    dra_tensor_source *s;
    dra_tensor_item    items[80];
    dra_error          err = {0};
    expect_ok(dra_tensor_source_open(from, &s, &err), &err);
    assert_true(s->count < COUNT(items));
    for (size_t i = 0; i < s->count; i++) {
        const dra_tensor_info *t = s->entry[i].info;
        items[i] = (dra_tensor_item){t->name, t->dtype, t->shape, t->data};
    }
    json_t *pairs = json_deep_copy(s->gguf.pairs);
    for (; *own; own++) json_object_del(pairs, *own);
    expect_ok(dra_gguf_write(to, pairs, items, s->count, &err), &err);
    json_decref(pairs);
    dra_tensor_source_close(s);
}

/* A file of others has no keys of dra: Llama 3.1's numbers follow from its tensor. */
static void finds_the_scaling_of_a_gguf(void **state)
{
    static const char *const own[] = {"dra.rope.original", "dra.rope.factor",    "dra.rope.low",
                                      "dra.rope.high",     "dra.attention_bias", NULL};
    CHECK_CONFIG(a);
    CHECK_CONFIG(b);
    dra_error err = {0};
    char      drawn[60], file[60];
    make_gguf(0, drawn, file);
    const char *from = in_folder(file), *to = in_folder("others.gguf");
    drop_keys(from, to, own);
    expect_ok(dra_folder_config(from, &a, &err), &err);
    expect_ok(dra_folder_config(to, &b, &err), &err);
    assert_int_equal(b->mixer[0].turn.scaling, DRA_SCALING_LLAMA3);
    assert_int_equal(b->mixer[0].turn.original, a->mixer[0].turn.original);
    assert_true(b->mixer[0].turn.factor == a->mixer[0].turn.factor);
    assert_true(b->mixer[0].turn.high == a->mixer[0].turn.high);
    assert_int_equal(b->mixer[0].biases, DRA_BIAS_ALL);
    expect_same_logits(from, to, BACK_TOL);
}

/* ---- what is refused, and limits ------------------------------------------------------------- */

/* Those of Phi 3 do not even say that there is LongRoPE: its tensors are there. */
static void finds_longrope_of_a_gguf(void **state)
{
    static const char *const own[] = {"dra.rope.short_factors", "dra.rope.long_factors",
                                      "phi3.rope.scaling.type", NULL};
    char                     drawn[60], file[60];
    size_t                   i = 0;
    while (strcmp(ggufs[i].name, "phi3") != 0) i++;
    make_gguf(i, drawn, file);
    drop_keys(in_folder(file), in_folder("others.gguf"), own);
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_folder_config(in_folder("others.gguf"), &c, &err), &err);
    assert_int_equal(c->mixer[0].turn.scaling, DRA_SCALING_LONGROPE_SHORT);
    assert_int_equal(c->mixer[0].turn.n_long, 3);
    assert_true(c->mixer[0].turn.long_factors[2] == 20);
    expect_same_logits(in_folder(drawn), in_folder("others.gguf"), BACK_TOL);
}

static void refuses(void **state)
{
    static const struct {
        const char *json, *words[3];
    } rows[] = {
        {"\"model_type\": \"llama\", \"quantization_config\": {\"bits\": 4}",
         {"quantization_config", "bits", "unquantised"}},
        {"\"model_type\": \"llama\", \"vision_config\": {\"size\": 4}",
         {"vision_config", "size", "text"}},
        {"\"model_type\": \"qwen3\", \"num_experts\": 8", {"num_experts", "8", "expert"}},
        {"\"model_type\": \"llama\", \"hidden_act\": \"mish\"", {"hidden_act", "mish", "silu"}},
        {"\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"longrope\"}",
         {"short_factor", "missing", "a list of 64 numbers"}},
        {"\"model_type\": \"llama\", \"hidden_size\": 8, \"num_attention_heads\": 2, "
         "\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 2], \"long_factor\": [1, 0]}",
         {"long_factor", "[1,0]", "above 0"}},
        {"\"model_type\": \"llama\", \"hidden_size\": 8, \"num_attention_heads\": 2, "
         "\"dra_rope\": \"far\", \"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 2], "
         "\"long_factor\": [1, 2]}",
         {"dra_rope", "far", "short or long"}},
        {"\"model_type\": \"llama\", \"rope_scaling\": \"yarn\"",
         {"rope_scaling", "yarn", "an object"}},
        {"\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"mrope\"}",
         {"type", "mrope", "yarn"}},
        {"\"model_type\": \"llama\", \"rope_parameters\": {\"rope_type\": \"linear\"}",
         {"rope_parameters", "factor", "above 0"}},
        {"\"model_type\": \"llama\", \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": "
         "8.0, \"low_freq_factor\": 4.0, \"high_freq_factor\": 1.0}",
         {"high_freq_factor", "1.0", "low_freq_factor"}},
        {"\"model_type\": \"llama\", \"num_key_value_heads\": 3",
         {"num_key_value_heads", "3", "divisor"}},
        {"\"model_type\": \"llama\", \"partial_rotary_factor\": 0.5",
         {"partial_rotary_factor", "0.5", "1"}},
        {"\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"layer_types\": [\"linear\"]",
         {"layer_types", "linear", "each layer"}},
        {"\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"num_hidden_layers\": 1, "
         "\"layer_types\": [\"linear\"]",
         {"layer_types", "linear", "sliding_attention"}},
        {"\"model_type\": \"gemma3_text\", \"final_logit_softcapping\": 30.0",
         {"final_logit_softcapping", "30", "capped"}},
        {"\"model_type\": \"gemma3\"", {"model_type", "gemma3", "gemma3_text"}},
        {"\"model_type\": \"llama\", \"num_hidden_layers\": 0", {"num_hidden_layers", "0", "1"}},
        {"\"model_type\": \"qwen3_5_text\", \"linear_conv_kernel_dim\": 9",
         {"linear_conv_kernel_dim", "9", "2 to 8"}},
        {"\"model_type\": \"qwen3_5_text\", \"linear_num_value_heads\": 24",
         {"linear_num_value_heads", "24", "a multiple of linear_num_key_heads"}},
        {"\"model_type\": \"qwen3_5_text\", \"num_hidden_layers\": 1, \"layer_types\": "
         "[\"mamba\"]",
         {"layer_types", "mamba", "linear_attention"}},
        {"\"model_type\": \"qwen3_5_text\", \"num_experts\": 64",
         {"num_experts", "64", "not of this family"}},
        {"\"model_type\": \"qwen3_5_text\", \"partial_rotary_factor\": 0.001",
         {"partial_rotary_factor", "0.001", "even"}},
        {"\"model_type\": \"mamba2\", \"conv_kernel\": 9", {"conv_kernel", "9", "2 to 8"}},
        {"\"model_type\": \"mamba2\", \"n_groups\": 3", {"n_groups", "3", "divisor"}},
        {"\"model_type\": \"mamba2\", \"expand\": 3", {"expand", "3", "head_dim"}},
        {"\"model_type\": \"mamba2\", \"use_bias\": true", {"use_bias", "true", "false"}},
        {"\"model_type\": \"mamba2\", \"time_step_limit\": [0.5, 0.1]",
         {"time_step_limit", "0.1", "lower one first"}},
        {"\"model_type\": \"mamba2\", \"time_step_limit\": [0.0, \"Infinity\"]",
         {"time_step_limit", "Infinity", "two numbers"}},
        {"\"model_type\": \"granitemoehybrid\", \"num_experts_per_tok\": 9",
         {"num_experts_per_tok", "9", "number of experts"}},
        {"\"model_type\": \"granitemoehybrid\", \"num_local_experts\": 0, \"mamba_n_groups\": 2",
         {"mamba_n_groups", "2", "1"}},
        {"\"model_type\": \"qwen3_5\"", {"text_config", "missing", "an object"}},
        {"\"model_type\": \"qwen3_next\", \"mlp_only_layers\": [0]",
         {"mlp_only_layers", "[0]", "all layers have experts, or none"}},
        {"\"model_type\": \"qwen3_moe\", \"decoder_sparse_step\": 2",
         {"decoder_sparse_step", "2", "all layers have experts, or none"}},
        {"\"model_type\": \"qwen3_moe\", \"moe_intermediate_size\": 0",
         {"moe_intermediate_size", "0", "1 or more"}},
        {"\"model_type\": \"olmo_hybrid\", \"hidden_act\": \"gelu\"",
         {"hidden_act", "gelu", "silu"}},
        {"\"model_type\": \"lfm2\", \"conv_L_cache\": 9, \"full_attn_idxs\": [1]",
         {"conv_L_cache", "9", "2 to 8"}},
        {"\"model_type\": \"lfm2\", \"conv_bias\": true, \"full_attn_idxs\": [1]",
         {"conv_bias", "true", "false"}},
        {"\"model_type\": \"lfm2\", \"num_hidden_layers\": 1, \"layer_types\": "
         "[\"linear_attention\"]",
         {"layer_types", "linear_attention", "full_attention and conv"}},
        {"\"model_type\": \"gated_deltanet\", \"use_short_conv\": false",
         {"use_short_conv", "false", "true"}},
        {"\"model_type\": \"gated_deltanet\", \"attnres_block_size\": 4",
         {"attnres_block_size", "4", "null"}},
        {"\"model_type\": \"gated_deltanet\", \"num_v_heads\": 8",
         {"num_v_heads", "8", "a multiple of num_heads"}},
        {"\"model_type\": \"gated_deltanet\", \"attn\": [{}]", {"attn", "[{}]", "one object"}},
        {"\"model_type\": \"gated_deltanet\", \"attn\": {\"num_heads\": 3}",
         {"num_heads", "3", "a divisor of hidden_size"}},
        {"\"model_type\": \"gated_deltanet\", \"output_gate_activation\": \"relu\"",
         {"output_gate_activation", "relu", "sigmoid"}},
        {"\"model_type\": \"delta_net\", \"qk_norm\": \"sum\"", {"qk_norm", "sum", "l2"}},
        {"\"model_type\": \"delta_net\", \"hidden_act\": \"powlu\"",
         {"hidden_act", "powlu", "swish"}},
        {"\"model_type\": \"gla\"", {"model_type", "gla", "gated_deltanet"}},
        {"\"model_type\": \"retnet\"", {"model_type", "retnet", "gated_deltanet"}},
        {"\"model_type\": \"kda\"", {"model_type", "kda", "gated_deltanet"}},
        {"\"model_type\": \"lfm2\", \"full_attn_idxs\": 3", {"full_attn_idxs", "3", "a list"}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        CHECK_CONFIG(c);
        dra_error err = {0};
        char      json[400];
        snprintf(json, sizeof json, "{%s}", rows[i].json);
        assert_int_equal(dra_model_config_parse("config.json", json, strlen(json), &c, &err),
                         DRA_ERR_VALUE);
        for (int k = 0; k < 3; k++)
            if (!strstr(err.text, rows[i].words[k])) fail_msg("%s: %s", json, err.text);
        assert_null(strchr(err.text, '\n'));
    }
}

/* As published: beside the text part, parts for pictures and for guessing several tokens. */
static void make_whole(const char *to)
{
    dra_tensors    *t = NULL;
    dra_error       err = {0};
    dra_tensor_item items[100];
    char            names[100][160], file[400], text[4000];
    const dra_real  none[4] = {0};
    size_t          n = 0;
    FILE           *f = fopen(data_of("qwen3_5_text", "/config.json"), "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    assert_int_equal(mkdir(to, 0700), 0);
    snprintf(file, sizeof file, "%s/config.json", to);
    f = fopen(file, "w");
    assert_non_null(f);
    fprintf(f,
            "{\"model_type\": \"qwen3_5\", \"vision_config\": {\"depth\": 2}, "
            "\"text_config\": %s}",
            text);
    fclose(f);
    expect_ok(dra_tensors_open(data_of("qwen3_5_text", "/model.safetensors"), &t, &err), &err);
    for (; n < dra_tensors_count(t); n++) {
        const dra_tensor_info *info = dra_tensors_at(t, n);
        const bool             inner = strncmp(info->name, "model.", 6) == 0;
        snprintf(names[n], sizeof names[n], "%s%s", inner ? "model.language_model." : "",
                 info->name + (inner ? 6 : 0));
        items[n] = (dra_tensor_item){names[n], info->dtype, info->shape, info->data};
    }
    items[n++] = (dra_tensor_item){"model.visual.blocks.0.norm1.weight", DRA_REAL, DRA_SHAPE(4),
                                   none};
    items[n++] = (dra_tensor_item){"mtp.norm.weight", DRA_REAL, DRA_SHAPE(4), none};
    snprintf(file, sizeof file, "%s/model.safetensors", to);
    expect_ok(dra_tensors_write(file, items, n, NULL, 0, &err), &err);
    dra_tensors_close(t);
}

static void reads_the_text_part(void **state)
{
    dra_error err = {0};
    int32_t   ids[TOKENS];
    make_whole(in_folder("whole"));
    read_ids("qwen3_5_text", "ids", ids, TOKENS);
    expect_ok(convert(in_folder("whole"), in_folder("text"), DRA_FORMAT_QWEN3_5, &err), &err);
    loaded       a = open_model(data_of("qwen3_5_text", "")), b = open_model(in_folder("whole"));
    loaded       c = open_model(in_folder("text"));
    dra_real    *x = logits_of(&a, ids, TOKENS), *y = logits_of(&b, ids, TOKENS);
    dra_real    *z = logits_of(&c, ids, TOKENS);
    const size_t bytes = sizeof *x * TOKENS * (size_t)dra_model_config_of(a.model)->vocab;
    assert_memory_equal(x, y, bytes);
    assert_memory_equal(x, z, bytes);
    free(x), free(y), free(z);
    load_free(&a), load_free(&b), load_free(&c);
}

/* As Python spells it, as transformers does, and not at all: rates have no limit above. */
static void knows_infinity(void **state)
{
    static const char *const limits[] = {"[0.25, Infinity]",
                                         "[0.25, {\"__float__\": \"Infinity\"}]", "[0.25, 1e31]"};
    for (size_t i = 0; i < COUNT(limits); i++) {
        CHECK_CONFIG(c);
        dra_error err = {0};
        char      json[200];
        snprintf(json, sizeof json,
                 "{\"model_type\": \"mamba2\", \"of\": \"Infinity\", \"time_step_limit\": %s}",
                 limits[i]);
        expect_ok(dra_model_config_parse("config.json", json, strlen(json), &c, &err), &err);
        assert_true(c->mixer[0].a.lambda.rate_least == 0.25);
        assert_true(c->mixer[0].a.lambda.rate_most == 0);
    }
}

static void names_missing_and_further_tensors(void **state)
{
    CHECK_CONFIG(c);
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    const char  *path = draw("bare", "{\"model_type\": \"llama\", " SIZES "}");
    const char   biased[] = "{\"model_type\": \"llama\", " SIZES ", \"mlp_bias\": true}";
    char         text[1200];
    expect_ok(dra_model_config_parse("c", biased, sizeof biased - 1, &c, &err), &err);
    expect_ok(dra_folder_save_config(path, c, &err), &err);
    assert_int_equal(dra_folder_load(path, &m, &w, &err), DRA_ERR_NAME);
    assert_non_null(strstr(err.text, "model.layers.0.mlp.up_proj.bias"));
    snprintf(text, sizeof text, "%s", draw("biased", biased));
    c->ff.bias = DRA_FF_BIAS_MODEL;
    err = (dra_error){0};
    expect_ok(dra_folder_save_config(text, c, &err), &err);
    assert_int_equal(dra_folder_load(text, &m, &w, &err), DRA_ERR_NAME);
    assert_non_null(strstr(err.text, "bias"));
}

/* A whole model whose config says that it has a head of its own has one. */
static void misses_a_head(void **state)
{
    static const char untied[] = "{\"model_type\": \"llama\", " SIZES "}";
    CHECK_CONFIG(c);
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    char         path[1200];
    snprintf(
        path, sizeof path, "%s",
        draw("headless", "{\"model_type\": \"llama\", " SIZES ", \"tie_word_embeddings\": true}"));
    expect_ok(dra_folder_load(path, &m, &w, &err), &err);
    dra_weights_destroy(w);
    dra_model_destroy(m);
    expect_ok(dra_model_config_parse("c", untied, sizeof untied - 1, &c, &err), &err);
    expect_ok(dra_folder_save_config(path, c, &err), &err);
    assert_int_equal(dra_folder_load(path, &m, &w, &err), DRA_ERR_FORMAT);
    assert_non_null(strstr(err.text, "lm_head.weight is missing"));
}

/* Rope that depends on the call: up to the length of training it does not. */
/* Texts of 8 tokens are read, and of 9 not. */
static void expect_end_at_8(const char *name)
{
    for (int64_t n = 8; n < 10; n++) {
        loaded           m = open_model(in_folder(name));
        const dra_view   view = {.model = m.model, .logits = true};
        dra_reader      *r = open_reader(&m, &view);
        dra_states      *s = open_states(&m, 1);
        const int32_t    ids[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
        dra_error        err = {0};
        dra_named        in = {"ids", ids, (size_t)n * sizeof *ids};
        const dra_status st = dra_reader_read(r, s, n, NULL, 1, &in, &err);
        assert_int_equal(st, n == 8 ? DRA_OK : DRA_ERR_VALUE);
        if (n > 8) assert_non_null(strstr(err.text, "position 8"));
        dra_reader_destroy(r);
        dra_states_destroy(s);
        load_free(&m);
    }
}

static void dynamic_rope_ends_where_it_would_change(void **state)
{
    draw("dynamic", "{\"model_type\": \"llama\", \"vocab_size\": 19, \"hidden_size\": 8, "
                    "\"intermediate_size\": 8, \"num_hidden_layers\": 1, "
                    "\"num_attention_heads\": 1, \"max_position_embeddings\": 8, "
                    "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}}");
    expect_end_at_8("dynamic");
}

/* Short factors hold up to the original length; a model with the long ones is another one. */
static void longrope_has_one_of_its_lists(void **state)
{
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = i % 19;
    draw("short", PHI3("short", 32));
    draw("long", PHI3("long", 32));
    loaded    a = open_model(in_folder("short")), b = open_model(in_folder("long"));
    dra_real *x = logits_of(&a, ids, TOKENS), *y = logits_of(&b, ids, TOKENS);
    double    most = 0;
    for (size_t i = 0; i < TOKENS * 19; i++) most = fmax(most, fabs((double)(x[i] - y[i])));
    assert_true(most > 1e-3);
    assert_true(dra_model_fingerprint(a.model) != dra_model_fingerprint(b.model));
    free(x);
    free(y);
    load_free(&a);
    load_free(&b);
    draw("short-8", PHI3("short", 8));
    expect_end_at_8("short-8");
}

/* ---- a second memory ------------------------------------------------------------------------- */

/* With weight 0 it changes no bit; with another weight it does. */
static void takes_a_second_memory(void **state)
{
    static const char *const some[] = {"llama", "qwen3", "smollm3", "gemma3_text"};
    for (size_t i = 0; i < COUNT(some); i++) {
        CHECK_CONFIG(c);
        dra_error err = {0};
        int32_t   ids[TOKENS];
        char      to[40];
        snprintf(to, sizeof to, "%s.grafted", some[i]);
        expect_ok(dra_folder_config(data_of(some[i], ""), &c, &err), &err);
        expect_ok(dra_model_config_graft(c, "delta", &err), &err);
        const dra_convert_config how = {
            .from = data_of(some[i], ""), .to = in_folder(to), .config = c, .seed = 5};
        expect_ok(dra_convert(&how, &err), &err);
        read_ids(some[i], "ids", ids, TOKENS);
        loaded       a = open_model(data_of(some[i], "")), b = open_model(in_folder(to));
        dra_real    *x = logits_of(&a, ids, TOKENS), *y = logits_of(&b, ids, TOKENS);
        const size_t bytes = sizeof *x * TOKENS * (size_t)c->vocab;
        assert_memory_equal(x, y, bytes);
        free(y);
        const int at = dra_specs_find(dra_model_params(b.model), "blend");
        assert_true(at >= 0);
        expect_ok(dra_weights_train(b.weights, check_device(2, dra_device_level_at(0)), &err),
                  &err);
        *dra_weights_edit(b.weights, at) = (dra_real)0.5;
        y = logits_of(&b, ids, TOKENS);
        dra_real *steps = logits_of(&b, ids, 1);
        assert_true(memcmp(x, y, bytes) != 0);
        expect_near(some[i], bytes / sizeof *x, steps, y, TOL);
        free(x);
        free(y);
        free(steps);
        load_free(&a);
        load_free(&b);
    }
}

static int remove_all(void **state)
{
    fixture_remove();
    return 0;
}

#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_make, remove_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_numbers_of_transformers),
        cmocka_unit_test(chooses_the_tokens_of_transformers),
        IN_A_FOLDER(whole_is_parts_is_steps_is_resumed),
        IN_A_FOLDER(folders_there_and_back),
        IN_A_FOLDER(gguf_there_and_back),
        IN_A_FOLDER(finds_the_scaling_of_a_gguf),
        IN_A_FOLDER(finds_longrope_of_a_gguf),
        cmocka_unit_test(refuses),
        IN_A_FOLDER(reads_the_text_part),
        cmocka_unit_test(knows_infinity),
        IN_A_FOLDER(names_missing_and_further_tensors),
        IN_A_FOLDER(misses_a_head),
        IN_A_FOLDER(dynamic_rope_ends_where_it_would_change),
        IN_A_FOLDER(longrope_has_one_of_its_lists),
        IN_A_FOLDER(takes_a_second_memory),
    };
    return check_main("llama", NULL, 0, tests, COUNT(tests));
}
