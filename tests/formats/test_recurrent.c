/* Recurrent families: what their configs mean beyond the keys that test_llama covers, GGUF both
 * ways, and states in the layout of transformers. */
#include "file/gguf.h"
#include "drawn.h"

#ifdef DRA_REAL_DOUBLE
#define BACK_TOL 5e-6 /* GGUF has all numbers in f32 */
#else
#define BACK_TOL 2e-5
#endif

/* ---- configs --------------------------------------------------------------------------------- */

/* Widths of feed-forwards as published, of which two thirds are meant; layers by their numbers. */
static void knows_the_sizes_of_LFM2(void **state)
{
    static const struct {
        const char *json;
        int64_t     inner;
    } rows[] = {
        {"\"block_ff_dim\": 6656, \"block_multiple_of\": 256", 4608},
        {"\"intermediate_size\": 12288", 8192},
        {"\"intermediate_size\": 12288, \"block_ff_dim\": 10240", 6912},
        {"\"intermediate_size\": 1000, \"block_ffn_dim_multiplier\": 1.5, \"block_multiple_of\": 4",
         1000},
        {"\"intermediate_size\": 1001, \"block_auto_adjust_ff_dim\": false", 1001}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        CHECK_CONFIG(c);
        CHECK_CONFIG(back);
        dra_error err = {0};
        char      json[400];
        snprintf(json, sizeof json,
                 "{\"model_type\": \"lfm2\", \"hidden_size\": 64, \"num_attention_heads\": 4, "
                 "\"num_hidden_layers\": 4, \"num_key_value_heads\": 2, \"full_attn_idxs\": [1, "
                 "3], \"tie_embedding\": %s, %s}",
                 i % 2 ? "false" : "true", rows[i].json);
        expect_ok(dra_model_config_parse("config.json", json, strlen(json), &c, &err), &err);
        assert_int_equal(c->ff.dim, rows[i].inner);
        assert_int_equal(c->tied, i % 2 ? DRA_OFF : DRA_ON);
        for (int l = 0; l < 4; l++)
            assert_int_equal(c->mixer[c->pattern[l]].a.memory != NULL, l % 2 == 0);
        const char *path = in_folder("lfm2-sizes");
        mkdir(path, 0700);
        expect_ok(dra_folder_save_config(path, c, &err), &err);
        expect_ok(dra_folder_config(path, &back, &err), &err);
        assert_int_equal(back->ff.dim, rows[i].inner);
    }
}

/* ---- pitfalls (docs/conformance.md has the list) --------------------------------------------- */

static dra_model_config *parse_config(const char *json, dra_model_config **c)
{
    dra_error err = {0};
    expect_ok(dra_model_config_parse("config.json", json, strlen(json), c, &err), &err);
    return *c;
}

/* G4: a quarter of the channels rotates where no key says it, in either place of that key. */
static void G4_a_quarter_rotates(void **state)
{
    static const char *const more[] = {
        "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e4, "
        "\"mrope_section\": [1, 1, 0], \"mrope_interleaved\": true}",
        "\"rope_theta\": 1e4", "\"partial_rotary_factor\": 0.25",
        "\"rope_parameters\": {\"partial_rotary_factor\": 0.25}"};
    for (size_t i = 0; i < COUNT(more); i++) {
        CHECK_CONFIG(c);
        char json[400];
        snprintf(
            json, sizeof json,
            "{\"model_type\": \"qwen3_5_text\", \"num_hidden_layers\": 4, \"head_dim\": 32, %s}",
            more[i]);
        parse_config(json, &c);
        const dra_mixer_config *attention = &c->mixer[c->pattern[3]];
        assert_true(attention->rotary);
        assert_int_equal(attention->turn.width, 8);
    }
}

/* G2: narrow weights leave A_log, dt_bias and convolutions' biases as they are. */
static void G2_rates_stay_f32(void **state)
{
    static const char *const kept[] = {"A_log", "dt_bias"};
    dra_tensor_source       *s;
    dra_error                err = {0};
    CHECK_CONFIG(c);
    expect_ok(dra_folder_config("tests/data/llama/qwen3_5_text", &c, &err), &err);
    const dra_convert_config how = {.from = "tests/data/llama/qwen3_5_text",
                                    .to = in_folder("narrow"),
                                    .config = c,
                                    .dtype = DRA_F16};
    size_t                   n = 0;
    expect_ok(dra_convert(&how, &err), &err);
    expect_ok(dra_tensor_source_open(in_folder("narrow"), &s, &err), &err);
    for (size_t i = 0; i < s->count; i++) {
        const dra_tensor_info *t = s->entry[i].info;
        for (size_t k = 0; k < COUNT(kept); k++)
            if (strstr(t->name, kept[k])) assert_int_equal(t->dtype, DRA_REAL), n++;
        if (strstr(t->name, "in_proj_qkv")) assert_int_equal(t->dtype, DRA_F16);
    }
    assert_true(n > 1);
    dra_tensor_source_close(s);
}

/* M8: how long chunks are is not part of the model. */
static void M8_chunks_are_not_the_model(void **state)
{
    CHECK_CONFIG(a);
    CHECK_CONFIG(b);
    dra_model *m[2];
    dra_error  err = {0};
    parse_config("{\"model_type\": \"mamba2\", \"num_hidden_layers\": 1, \"chunk_size\": 8}", &a);
    parse_config("{\"model_type\": \"mamba2\", \"num_hidden_layers\": 1, \"chunk_size\": 256}", &b);
    expect_ok(dra_model_create(a, &m[0], &err), &err);
    expect_ok(dra_model_create(b, &m[1], &err), &err);
    assert_true(dra_model_fingerprint(m[0]) == dra_model_fingerprint(m[1]));
    dra_model_destroy(m[0]);
    dra_model_destroy(m[1]);
}

static const dra_spec *spec_named(const dra_model *m, const char *name)
{
    const int i = dra_specs_find(dra_model_params(m), name);
    if (i < 0) fail_msg("no %s", name);
    return dra_specs_at(dra_model_params(m), i);
}

/* M9: A_log, D and dt_bias are in no group that decays (matrix, map, head), and start as they do:
 * factors from 1 to 16, D 1, rates that give finite half-lives. */
static void M9_rates_do_not_decay(void **state)
{
    CHECK_CONFIG(c);
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    parse_config("{\"model_type\": \"mamba2\", \"num_hidden_layers\": 1, \"hidden_size\": 16, "
                 "\"num_heads\": 4, \"head_dim\": 8, \"n_groups\": 1, \"vocab_size\": 20}",
                 &c);
    expect_ok(dra_model_create(c, &m, &err), &err);
    expect_ok(dra_weights_draw(m, 1, &w, &err), &err);
    static const char *const names[] = {"layers.0.mixer.A_log", "layers.0.mixer.dt_bias",
                                        "layers.0.mixer.D"};
    for (int i = 0; i < 3; i++) {
        const dra_spec *p = spec_named(m, names[i]);
        assert_true(p->group != DRA_PARAM_MATRIX && p->group != DRA_PARAM_MAP &&
                    p->group != DRA_PARAM_HEAD);
        const dra_real *x = dra_weights_at(w, dra_specs_find(dra_model_params(m), names[i]));
        for (int h = 0; h < 4; h++) {
            const double v = (double)x[h];
            if (i == 0) assert_true(v >= 0 && v <= log(16) + 1e-6);
            if (i == 1) assert_true(isfinite(v) && log1p(exp(v)) > 0);
            if (i == 2) assert_true(v == 1);
        }
    }
    dra_weights_destroy(w);
    dra_model_destroy(m);
}

/* Attention among delta rules, as an object of fla's configs describes it. */
static void knows_attention_of_fla(void **state)
{
    static const char json[] =
        "{\"model_type\": \"gated_deltanet\", \"vocab_size\": 19, \"hidden_size\": 24, "
        "\"num_hidden_layers\": 3, \"num_heads\": 2, \"head_dim\": 6, \"expand_v\": 1.5, "
        "\"intermediate_size\": 20, \"output_gate_activation\": \"sigmoid\", "
        "\"attn\": {\"layers\": [1], \"num_heads\": 4, \"num_kv_heads\": 2, \"qkv_bias\": true, "
        "\"window_size\": 7, "
        "\"rope_theta\": 500.0}}";
    CHECK_CONFIG(c);
    dra_error   err = {0};
    const char *path = draw("fla", json);
    expect_ok(dra_folder_config(path, &c, &err), &err);
    const dra_mixer_config *delta = &c->mixer[c->pattern[0]], *attention = &c->mixer[c->pattern[1]];
    assert_string_equal(delta->a.memory, "delta");
    assert_int_equal(delta->value_dim, 9);
    assert_int_equal(delta->gate_values, DRA_GATE_PLAIN);
    assert_int_equal(attention->a.window, 7);
    assert_int_equal(attention->kv_heads, 2);
    assert_int_equal(attention->biases, DRA_BIAS_QKV);
    assert_true(attention->turn.base == 500 && attention->turn.halves);
    assert_int_equal(c->pattern[2], c->pattern[0]);
    expect_ok(convert(path, in_folder("own"), DRA_FORMAT_DRA, &err), &err);
    expect_ok(convert(in_folder("own"), in_folder("back"), DRA_FORMAT_GATED_DELTANET, &err), &err);
    expect_same_logits(path, in_folder("own"), 0);
    expect_same_logits(path, in_folder("back"), 0);
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

#define SIZES                                                                                      \
    "\"vocab_size\": 19, \"hidden_size\": 24, \"num_hidden_layers\": 5, "                          \
    "\"max_position_embeddings\": 64, \"tie_word_embeddings\": false, "
#define ATTENTION                                                                                  \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 20, "
#define DELTA                                                                                      \
    "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 6, \"linear_key_head_dim\": 4, "     \
    "\"linear_value_head_dim\": 4, \"rope_theta\": 1000.0, "

static const struct {
    const char     *name, *arch;
    dra_format_kind kind;
    const char     *json;
} ggufs[] = {
    {"qwen35", "qwen35", DRA_FORMAT_QWEN3_5,
     "{\"model_type\": \"qwen3_5_text\", " SIZES ATTENTION DELTA
     "\"head_dim\": 8, \"partial_rotary_factor\": 0.5}"},
    {"qwen35-irregular", "qwen35", DRA_FORMAT_QWEN3_5,
     "{\"model_type\": \"qwen3_5_text\", " SIZES ATTENTION DELTA
     "\"head_dim\": 16, \"layer_types\": [\"full_attention\", \"linear_attention\", "
     "\"linear_attention\", \"full_attention\", \"linear_attention\"]}"},
    {"qwen3-next", "qwen35", DRA_FORMAT_QWEN3_NEXT,
     "{\"model_type\": \"qwen3_next\", " SIZES ATTENTION DELTA
     "\"head_dim\": 8, \"mlp_only_layers\": [0, 1, 2, 3, 4]}"},
    {"mamba2", "mamba2", DRA_FORMAT_MAMBA2,
     "{\"model_type\": \"mamba2\", " SIZES "\"num_heads\": 8, \"head_dim\": 6, \"state_size\": 5, "
     "\"n_groups\": 4, \"conv_kernel\": 3}"},
    {"granite", "granitehybrid", DRA_FORMAT_GRANITE_HYBRID,
     "{\"model_type\": \"granitemoehybrid\", " SIZES ATTENTION
     "\"num_local_experts\": 0, \"shared_intermediate_size\": 20, \"mamba_n_heads\": 8, "
     "\"mamba_d_state\": 5, \"mamba_n_groups\": 1, \"embedding_multiplier\": 12.0, "
     "\"logits_scaling\": 8.0, \"residual_multiplier\": 0.25, \"attention_multiplier\": 0.3, "
     "\"layer_types\": [\"mamba\", \"attention\", \"mamba\", \"mamba\", \"attention\"]}"},
    {"granite-rope", "granitehybrid", DRA_FORMAT_GRANITE_HYBRID,
     "{\"model_type\": \"granitemoehybrid\", " SIZES ATTENTION
     "\"num_local_experts\": 0, \"shared_intermediate_size\": 20, \"mamba_n_heads\": 4, "
     "\"mamba_d_state\": 5, \"mamba_conv_bias\": false, \"position_embedding_type\": \"rope\", "
     "\"layer_types\": [\"mamba\", \"attention\", \"mamba\", \"mamba\", \"attention\"]}"},
    {"lfm2", "lfm2", DRA_FORMAT_LFM2,
     "{\"model_type\": \"lfm2\", " SIZES ATTENTION
     "\"block_multiple_of\": 4, \"conv_L_cache\": 4, \"full_attn_idxs\": [1, 3]}"}};

/* Row i drawn, and as GGUF. */
static void make_gguf(size_t i, char from[60], char file[60])
{
    dra_error err = {0};
    snprintf(from, 60, "%s.drawn", ggufs[i].name);
    snprintf(file, 60, "%s.gguf", ggufs[i].name);
    draw(from, ggufs[i].json);
    expect_ok(convert(in_folder(from), in_folder(file), DRA_FORMAT_GGUF, &err), &err);
}

/* What llama.cpp does not go without. */
static void expect_keys(const char *path, const char *name)
{
    static const char *const keys[] = {"context_length",       "embedding_length",
                                       "block_count",          "feed_forward_length",
                                       "attention.head_count", "attention.layer_norm_rms_epsilon"};
    dra_tensor_source       *s;
    dra_error                err = {0};
    char                     key[100];
    expect_ok(dra_tensor_source_open(path, &s, &err), &err);
    for (size_t i = 0; i < COUNT(keys); i++) {
        snprintf(key, sizeof key, "%s.%s", name, keys[i]);
        if (!json_object_get(s->gguf.pairs, key)) fail_msg("%s: no key %s", path, key);
    }
    dra_tensor_source_close(s);
}

static void gguf_there_and_back(void **state)
{
    for (size_t i = 0; i < COUNT(ggufs); i++) {
        dra_error err = {0};
        char      from[60], file[60], back[60], own[60];
        make_gguf(i, from, file);
        snprintf(back, sizeof back, "%s.back", ggufs[i].name);
        snprintf(own, sizeof own, "%s.own", ggufs[i].name);
        expect_keys(in_folder(file), ggufs[i].arch);
        expect_same_logits(in_folder(from), in_folder(file), BACK_TOL);
        expect_ok(convert(in_folder(file), in_folder(back), ggufs[i].kind, &err), &err);
        expect_same_logits(in_folder(from), in_folder(back), BACK_TOL);
        expect_ok(convert(in_folder(file), in_folder(own), DRA_FORMAT_DRA, &err), &err);
        expect_same_logits(in_folder(file), in_folder(own), 0);
    }
}

/* Tensor `name` of a file as numbers. */
static dra_real *tensor_of(const char *path, const char *name, size_t *n, dra_shape *shape)
{
    dra_tensor_source *s;
    dra_error          err = {0};
    expect_ok(dra_tensor_source_open(path, &s, &err), &err);
    const dra_tensor_source_entry *e = dra_tensor_source_find(s, name);
    if (!e) fail_msg("%s: no tensor %s", path, name);
    *shape = e->info->shape;
    *n = (size_t)dra_shape_count(shape);
    dra_real *x = malloc(*n * sizeof *x + 1);
    assert_non_null(x);
    assert_true(dra_tensor_copy(e->info, 0, *n, DRA_REAL, x));
    dra_tensor_source_close(s);
    return x;
}

/* G5: head 3 g + j, of key g of two, is number 2 j + g wherever heads of values are; gains of norms
 * are whole, but of heads; A is what decays are made of. */
static void heads_of_values_stand_in_tiles(void **state)
{
    static const struct {
        const char *theirs, *name;
        int64_t     first, width; /* of a head, at its rows */
        bool        inward;
    } rows[] = {{"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", 16, 4},
                {"linear_attn.conv1d.weight", "ssm_conv1d.weight", 16, 4},
                {"linear_attn.in_proj_z.weight", "attn_gate.weight", 0, 4},
                {"linear_attn.in_proj_b.weight", "ssm_beta.weight", 0, 1},
                {"linear_attn.in_proj_a.weight", "ssm_alpha.weight", 0, 1},
                {"linear_attn.dt_bias", "ssm_dt.bias", 0, 1},
                {"linear_attn.A_log", "ssm_a", 0, 1},
                {"linear_attn.out_proj.weight", "ssm_out.weight", 0, 4, true}};
    char from[60], file[60], weights[400], path[400], a[120], b[120];
    make_gguf(0, from, file);
    snprintf(weights, sizeof weights, "%s/model.safetensors", in_folder(from));
    snprintf(path, sizeof path, "%s", in_folder(file));
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_shape s, t;
        size_t    n, m;
        snprintf(a, sizeof a, "model.layers.0.%s", rows[i].theirs);
        snprintf(b, sizeof b, "blk.0.%s", rows[i].name);
        dra_real     *x = tensor_of(weights, a, &n, &s), *y = tensor_of(path, b, &m, &t);
        const int64_t outer = rows[i].inward ? s.dim[0] : 1;
        const int64_t all = (int64_t)n / outer, each = all / s.dim[rows[i].inward];
        assert_int_equal(n, m);
        for (int64_t o = 0; o < outer; o++)
            for (int64_t k = 0; k < all; k++) {
                const int64_t at = k / each - rows[i].first, h = at / rows[i].width;
                const int64_t moved = at < 0 ? 0 : (h % 3 * 2 + h / 3 - h) * rows[i].width * each;
                double        want = (double)x[o * all + k];
                if (strstr(rows[i].name, "ssm_a") && s.rank == 1 && each == 1 &&
                    strstr(rows[i].theirs, "A_log"))
                    want = -exp(want);
                if (!(fabs((double)y[o * all + k + moved] - want) <= 1e-6 * fabs(want)))
                    fail_msg("%s: number %d", b, (int)k);
            }
        free(x), free(y);
    }
    for (int i = 0; i < 2; i++) {
        dra_shape s;
        size_t    n;
        dra_real *x = tensor_of(
            weights, i ? "model.layers.0.linear_attn.norm.weight" : "model.norm.weight", &n, &s);
        dra_real *y = tensor_of(path, i ? "blk.0.ssm_norm.weight" : "output_norm.weight", &n, &s);
        for (size_t k = 0; k < n; k++) assert_true(fabs((double)(y[k] - x[k]) - !i) < 1e-6);
        free(x), free(y);
    }
}

/* Blocks that guess further tokens stand after the others. */
static void leaves_out_blocks_that_guess(void **state)
{
    char            from[60], file[60];
    dra_error       err = {0};
    dra_tensor_item items[120];
    static dra_real none[24];
    make_gguf(0, from, file);
    dra_tensor_source *s;
    expect_ok(dra_tensor_source_open(in_folder(file), &s, &err), &err);
    assert_true(s->count + 2 < COUNT(items));
    for (size_t i = 0; i < s->count; i++) {
        const dra_tensor_info *t = s->entry[i].info;
        items[i] = (dra_tensor_item){t->name, t->dtype, t->shape, t->data};
    }
    items[s->count] = (dra_tensor_item){"blk.5.attn_norm.weight", DRA_REAL, DRA_SHAPE(24), none};
    items[s->count + 1] = (dra_tensor_item){"blk.5.nextn.enorm.weight", DRA_REAL, DRA_SHAPE(24),
                                            none};
    json_t *pairs = json_deep_copy(s->gguf.pairs);
    json_object_set_new(pairs, "qwen35.block_count", json_integer(6));
    json_object_set_new(pairs, "qwen35.nextn_predict_layers", json_integer(1));
    expect_ok(dra_gguf_write(in_folder("mtp.gguf"), pairs, items, s->count + 2, &err), &err);
    json_decref(pairs);
    dra_tensor_source_close(s);
    expect_same_logits(in_folder(file), in_folder("mtp.gguf"), 0);
}

static void says_what_gguf_cannot(void **state)
{
    static const struct {
        const char *json, *words[2];
    } rows[] = {
        {"{\"model_type\": \"qwen3_5_text\", " SIZES ATTENTION
         "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 6, \"linear_key_head_dim\": 4, "
         "\"head_dim\": 8, \"partial_rotary_factor\": 0.5, \"linear_value_head_dim\": 5}",
         {"keys of 4 and values of 5", "one width"}},
        {"{\"model_type\": \"mamba2\", " SIZES
         "\"num_heads\": 8, \"head_dim\": 6, \"n_groups\": 1, "
         "\"use_conv_bias\": false}",
         {"without biases", "no GGUF form"}},
        {"{\"model_type\": \"mamba2\", " SIZES
         "\"num_heads\": 8, \"head_dim\": 6, \"n_groups\": 1, "
         "\"time_step_limit\": [0.1, 0.5]}",
         {"cannot hold", "rate_least"}},
        {"{\"model_type\": \"olmo_hybrid\", " SIZES ATTENTION "\"rope_theta\": 1e4}",
         {"delta", "no GGUF form"}}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_error err = {0};
        char      from[40], to[40];
        snprintf(from, sizeof from, "no.%d", (int)i);
        snprintf(to, sizeof to, "no.%d.gguf", (int)i);
        draw(from, rows[i].json);
        assert_int_equal(convert(in_folder(from), in_folder(to), DRA_FORMAT_GGUF, &err),
                         DRA_ERR_VALUE);
        for (int k = 0; k < 2; k++)
            if (!strstr(err.text, rows[i].words[k])) fail_msg("%d: %s", (int)i, err.text);
        assert_null(strchr(err.text, '\n'));
    }
}

/* ---- caches ---------------------------------------------------------------------------------- */

#ifdef DRA_REAL_DOUBLE
#define TOL 1e-10
#else
#define TOL (check_cuda() ? 1e-4 : 2e-5)
#endif

enum { READ = 9 }; /* of the text */

static const char *const cached[] = {"qwen3_5_text", "qwen3_next", "mamba2", "granitemoehybrid",
                                     "lfm2"};

static dra_tensors *open_data(const char *family, const char *file)
{
    char         path[200];
    dra_tensors *t = NULL;
    dra_error    err = {0};
    snprintf(path, sizeof path, "tests/data/llama/%s/%s", family, file);
    expect_ok(dra_tensors_open(path, &t, &err), &err);
    return t;
}

/* States as a cache says, of rows alike. */
static dra_states *states_of(const loaded *m, int n, dra_real *const *data, const size_t *count)
{
    dra_states *s = open_states(m, 1);
    dra_error   err = {0};
    expect_ok(dra_states_place(s, 0, READ, READ, &err), &err);
    for (int i = 0; i < n; i++)
        expect_ok(dra_cache_set(m->model, s, i, data[i], count[i], &err), &err);
    return s;
}

/* The rest of the text; to be freed. */
static dra_real *read_on(const loaded *m, dra_states *s, const int32_t *ids, const dra_real *all)
{
    const int64_t words = dra_model_config_of(m->model)->vocab;
    dra_real     *rest = calloc((size_t)(TOKENS * words), sizeof *rest);
    assert_non_null(rest);
    read_rows(m, s, ids + READ, 1, TOKENS - READ, TOKENS, rest);
    if (all)
        expect_near("resumed", (size_t)((TOKENS - READ) * words), rest, all + READ * words, TOL);
    dra_states_destroy(s);
    return rest;
}

/* The caches are those of transformers, and reading on from them is reading on. */
static void caches_are_those_of_transformers(void **state)
{
    for (size_t f = 0; f < COUNT(cached); f++) {
        dra_tensors *want = open_data(cached[f], "cache.safetensors");
        dra_tensors *text = open_data(cached[f], "expected.safetensors");
        dra_error    err = {0};
        char         path[200];
        size_t       words;
        snprintf(path, sizeof path, "tests/data/llama/%s", cached[f]);
        const dra_tensor_info *ids = dra_tensors_find(text, "ids");
        dra_real              *all = numbers(text, "logits", &words);
        loaded                 m = open_model(path);
        const int              n = dra_cache_count(m.model, &err);
        dra_real              *ours[40], *theirs[40];
        size_t                 count[40];
        dra_states            *s = open_states(&m, 1), *fork;
        assert_int_equal(n, dra_tensors_count(want));
        dra_real *first = calloc(READ * words / TOKENS, sizeof *first);
        assert_non_null(first);
        read_rows(&m, s, ids->data, 1, READ, 4, first);
        for (int i = 0; i < n; i++) {
            dra_cache_tensor t;
            expect_ok(dra_cache_at(m.model, i, 1, READ, &t, &err), &err);
            theirs[i] = numbers(want, t.name, &count[i]);
            const dra_tensor_info *info = dra_tensors_find(want, t.name);
            assert_true(dra_shape_equal(&info->shape, &t.shape));
            ours[i] = calloc(count[i] + 1, sizeof *ours[i]);
            assert_non_null(ours[i]);
            expect_ok(dra_cache_get(m.model, s, i, ours[i], count[i], &err), &err);
            assert_int_equal(dra_cache_get(m.model, s, i, ours[i], count[i] + 1, &err),
                             DRA_ERR_SHAPE);
            err = (dra_error){0};
            const int64_t W = t.shape.dim[2]; /* the oldest input is not needed */
            for (size_t k = 0; k < count[i] && strstr(t.name, "conv_states"); k += (size_t)W)
                theirs[i][k] = 0;
            expect_near(t.name, count[i], ours[i], theirs[i], TOL);
        }
        expect_ok(dra_states_fork(s, &fork, &err), &err);
        dra_real *a = read_on(&m, fork, ids->data, all);
        dra_real *b = read_on(&m, states_of(&m, n, ours, count), ids->data, all);
        dra_real *c = read_on(&m, states_of(&m, n, theirs, count), ids->data, all);
        assert_memory_equal(a, b, (TOKENS - READ) * (words / TOKENS) * sizeof *a);
        for (int i = 0; i < n; i++) free(ours[i]), free(theirs[i]);
        free(a), free(b), free(c), free(all), free(first);
        dra_states_destroy(s);
        dra_tensors_close(want);
        dra_tensors_close(text);
        load_free(&m);
    }
}

/* What has no place in one is named. */
static void not_all_states_have_a_cache(void **state)
{
    static const struct {
        const char *preset, *set[2][2], *text;
    } rows[] = {{"rwkv4-tiny", {{0}}, "layers.0.mixer.x"},
                {"gpt2-tiny",
                 {{"mixer.retrieval", "window"}, {"mixer.window", "4"}},
                 "layers.0.mixer.K has a window"},
                {"gpt2-tiny", {{"memory_tokens", "2"}}, "memory_tokens have no place"},
                {"retention-tiny", {{"positions", "learned"}}, "positions but no keys"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        CHECK_CONFIG(c);
        dra_model       *m;
        dra_error        err = {0};
        dra_cache_tensor t;
        expect_ok(dra_preset_config(rows[i].preset, &c, &err), &err);
        for (int k = 0; k < 2 && rows[i].set[k][0]; k++)
            expect_ok(dra_model_config_set(c, rows[i].set[k][0], rows[i].set[k][1], &err), &err);
        expect_ok(dra_model_create(c, &m, &err), &err);
        assert_int_equal(dra_cache_count(m, &err), 0);
        if (!strstr(err.text, rows[i].text)) fail_msg("%s: expected %s", err.text, rows[i].text);
        assert_int_equal(dra_cache_at(m, 99, 1, 1, &t, &err), DRA_ERR_INDEX);
        dra_model_destroy(m);
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
        IN_A_FOLDER(knows_the_sizes_of_LFM2),
        cmocka_unit_test(G4_a_quarter_rotates),
        IN_A_FOLDER(G2_rates_stay_f32),
        cmocka_unit_test(M8_chunks_are_not_the_model),
        cmocka_unit_test(M9_rates_do_not_decay),
        IN_A_FOLDER(knows_attention_of_fla),
        IN_A_FOLDER(gguf_there_and_back),
        IN_A_FOLDER(heads_of_values_stand_in_tiles),
        IN_A_FOLDER(leaves_out_blocks_that_guess),
        IN_A_FOLDER(says_what_gguf_cannot),
        cmocka_unit_test(caches_are_those_of_transformers),
        cmocka_unit_test(not_all_states_have_a_cache),
    };
    return check_main("recurrent families", NULL, 0, tests, COUNT(tests));
}
