/* GPT-2 and RWKV-4 in the layout of Hugging Face: numbers of reference models, names, shapes, what
 * is written back. */
#include "model/fixtures.h"

/* ---- GPT-2 ----------------------------------------------------------------------------------- */

static const double gpt2_first[V] = {
    -1.59215771, 0.74649070,  -0.71720513, 0.27032951, -1.04571473, 0.31902454, 0.44329382,
    -1.53572225, -2.36204388, 0.83992415,  0.10561316, -0.64976100, 1.14077319};
static const double gpt2_last[V] = {1.33606101,  -1.60652995, 0.60875973,  -0.33944507, 0.37346397,
                                    -1.43217770, 0.11099441,  -0.97929158, -0.54340173, -1.87382275,
                                    -0.29028283, 0.76125597,  0.40562867};

static void check_gpt2(const char *folder_name)
{
    loaded m;
    double loss;
    load_folder(&m, folder_name);
    for (int64_t chunk = 1; chunk <= T; chunk = 2 * chunk + (chunk == 1)) {
        load_read(&m, chunk);
        check_close("first", V, m.logits, gpt2_first, LOADED_TOL);
        check_close("last", V, m.logits + (T - 1) * V, gpt2_last, LOADED_TOL);
    }
    dra_gradients_destroy(load_learn(&m, &loss));
    assert_true(fabs(loss - 2.966469185) < LOADED_TOL * 3);
    load_free(&m);
}

static void gpt2_by_new_and_old_names(void **unused)
{
    fixture f;
    fixture_make(&f, gpt2_rows, 2, "transformer.", "lm_head.weight");
    fixture_save(&f, "new", gpt2_config);
    fixture_free(&f);
    check_gpt2("new");
    fixture_make(&f, gpt2_rows, 2, "", "lm_head.weight");
    const dra_real mask[4] = {1, 0, 1, 1};
    f.item[f.n++] = (dra_tensor_item){"h.0.attn.bias", DRA_REAL, DRA_SHAPE(1, 1, 2, 2), mask};
    f.item[f.n++] = (dra_tensor_item){"h.0.attn.masked_bias", DRA_REAL, {0}, mask};
    fixture_save(&f, "old", gpt2_config);
    f.n -= 2;
    fixture_free(&f);
    check_gpt2("old");
}

/* Scores as two keys of the config say; numbers of the transformers library in double. */
static const struct {
    const char *keys;
    double      last[V], loss;
} gpt2_scales[] = {
    {"\"scale_attn_weights\": false",
     {1.281683458, -1.233889499, 0.716065217, -0.293825617, 0.133584588, -1.584040956, 0.194455723,
      -1.283014644, -0.735848107, -1.481772803, -0.201979272, 0.421353491, 0.521900017},
     3.0395358412},
    {"\"scale_attn_by_inverse_layer_idx\": true",
     {1.378744203, -1.735460395, 0.355740864, -0.361363606, 0.402809508, -1.372253232, 0.054038246,
      -0.785134575, -0.459263764, -2.045766225, -0.353625548, 1.041281311, 0.426103339},
     2.8721179729},
    {"\"scale_attn_weights\": false, \"scale_attn_by_inverse_layer_idx\": true",
     {1.456968358, -1.553290213, 0.294496598, -0.099827364, 0.331771274, -1.558272995, 0.091455616,
      -0.981340371, -0.593674512, -1.859092941, -0.432414544, 0.815478238, 0.473593911},
     2.9424240532},
};

static void gpt2_scales_its_scores(void **unused)
{
    for (size_t i = 0; i < COUNT(gpt2_scales); i++) {
        fixture   f;
        loaded    m;
        double    loss;
        dra_error err = {0};
        char      config[sizeof gpt2_config + 100];
        snprintf(config, sizeof config, "{%s, %s", gpt2_scales[i].keys, gpt2_config + 1);
        fixture_make(&f, gpt2_rows, 2, "", "lm_head.weight");
        fixture_save(&f, "scaled", config);
        fixture_free(&f);
        load_folder(&m, "scaled");
        for (int64_t chunk = 1; chunk <= T; chunk += T - 1) {
            load_read(&m, chunk);
            check_close("last", V, m.logits + (T - 1) * V, gpt2_scales[i].last, LOADED_TOL);
        }
        dra_gradients_destroy(load_learn(&m, &loss));
        assert_true(fabs(loss - gpt2_scales[i].loss) < LOADED_TOL * 3);
        /* Written without any key of before: it reads back as the same. */
        dra_model_config c = *dra_model_config_of(m.model);
        CHECK_CONFIG(back);
        unlink(in_folder("scaled/config.json"));
        expect_ok(dra_folder_save_config(in_folder("scaled"), &c, &err), &err);
        expect_ok(dra_folder_config(in_folder("scaled"), &back, &err), &err);
        assert_true(back->layer_scale == c.layer_scale);
        assert_true(back->mixer[0].score_scale == c.mixer[0].score_scale);
        dra_mixer_config mixer = c.mixer[0];
        mixer.score_scale = 0.25;
        c.mixer = &mixer;
        assert_int_equal(dra_folder_save_config(in_folder("scaled"), &c, &err), DRA_ERR_VALUE);
        load_free(&m);
    }
}

/* ---- RWKV-4 ---------------------------------------------------------------------------------- */

static const double rwkv_first[V] = {-0.93657686, 0.25611226,  -0.60194642, 2.02179002,  0.40391653,
                                     1.42814532,  0.16440050,  1.67829361,  -0.17116786, 0.49212227,
                                     -0.80470752, -0.28921237, 0.09934279};
static const double rwkv_last[V] = {-2.31414384, 0.05732306,  0.14484495, -0.33191344, -0.25180077,
                                    1.67067088,  1.06062075,  0.56917024, -1.12892928, 0.36845588,
                                    0.30679119,  -0.22070960, 0.24935061};

/* After the last token, of layer 2. */
static const struct {
    const char *name;
    double      value[8];
} rwkv_state[] = {
    {"layers.2.ff.x",
     {-2.21293732, -0.52283587, 0.44572484, 1.35575254, 0.92045552, 0.19043637, -1.11020523,
      0.23245180}},
    {"layers.2.mixer.x",
     {-1.33216594, -0.88436749, 0.26715833, 2.08264591, 0.08892030, 0.51481333, -0.34722716,
      0.42390733}},
    {"layers.2.mixer.A",
     {-3.31064245, -3.28385741, 0.07772618, -0.11097698, -0.81639553, 0.18985037, -0.18625579,
      -1.79178743}},
    {"layers.2.mixer.B",
     {3.71634143, 2.03964871, 1.27855440, 2.26252908, 3.79370916, 2.57095902, 2.42819215,
      1.51202505}},
    {"layers.2.mixer.p",
     {-0.40229575, 0.75665501, 0.60863211, 0.67644104, 1.12217186, 2.13111879, 0.68162170,
      0.86755746}},
};

static void check_rwkv_state(const loaded *m)
{
    dra_real  x[8];
    dra_error err = {0};
    for (size_t i = 0; i < COUNT(rwkv_state); i++) {
        const int at = dra_specs_find(dra_model_state(m->model), rwkv_state[i].name);
        assert_true(at >= 0);
        expect_ok(dra_states_read(m->states, at, 0, x, 8, &err), &err);
        check_close(rwkv_state[i].name, 8, x, rwkv_state[i].value, LOADED_TOL);
    }
}

static void rwkv_reads_with_rescale(void **unused)
{
    static const int64_t chunks[] = {1, 2, 3, 8};
    fixture              f;
    loaded               m;
    fixture_make(&f, rwkv_rows, 3, "rwkv.", "head.weight");
    fixture_save(&f, "rwkv", rwkv_config);
    fixture_free(&f);
    load_folder(&m, "rwkv");
    for (size_t i = 0; i < COUNT(chunks); i++) {
        load_read(&m, chunks[i]);
        check_close("first", V, m.logits, rwkv_first, LOADED_TOL);
        check_close("last", V, m.logits + (T - 1) * V, rwkv_last, LOADED_TOL);
        check_rwkv_state(&m);
    }
    load_free(&m);
}

/* The state goes out and into another in Hugging Face's layout; reading on is the same. A batch of
 * single tokens reads each row with its own state, where Hugging Face mixes them up. */
static void rwkv_states_in_five_tensors(void **unused)
{
    enum { N = 8 * 3 };
    fixture       f;
    loaded        m;
    dra_error     err = {0};
    dra_states   *two;
    dra_reader   *r;
    const int32_t next[] = {7, 7}, last[] = {7};
    dra_real      five[DRA_RWKV_STATES][2 * N], first[V];
    fixture_make(&f, rwkv_rows, 3, "rwkv.", "head.weight");
    fixture_save(&f, "rwkv", rwkv_config);
    fixture_free(&f);
    load_folder(&m, "rwkv");
    load_read(&m, T);
    expect_ok(dra_states_create(check_device(1, "ref"), dra_model_state(m.model), 2, &two, &err),
              &err);
    for (int i = 0; i < DRA_RWKV_STATES; i++) {
        expect_ok(dra_rwkv_state_get(m.model, m.states, i, five[i], N, &err), &err);
        check_close("layer 2", 1, &five[i][2], rwkv_state[i].value, LOADED_TOL);
        for (int k = 0; k < N; k++)
            five[i][N + k] = i == 4 ? (dra_real)-1e30 : 0; /* nothing read */
        expect_ok(dra_rwkv_state_set(m.model, two, i, five[i], 2 * N, &err), &err);
    }
    const dra_view   view = {.model = m.model, .logits = true};
    const dra_module module = dra_view_module(&view);
    expect_ok(dra_reader_create(check_device(1, "ref"), &module, &r, &err), &err);
    expect_ok(dra_weights_bind(m.weights, r, &err), &err);
    const dra_named one = {"ids", last, sizeof last}, both = {"ids", next, sizeof next};
    expect_ok(dra_reader_read(r, m.states, 1, NULL, 1, &one, &err), &err);
    memcpy(first, dra_reader_result(r, "logits"), sizeof first);
    expect_ok(dra_reader_read(r, two, 1, NULL, 1, &both, &err), &err);
    const dra_real *rows = dra_reader_result(r, "logits");
    assert_memory_equal(rows, first, sizeof first);
    dra_real fresh[V];
    memcpy(fresh, rows + V, sizeof fresh);
    expect_ok(dra_states_reset(m.states, -1, &err), &err);
    expect_ok(dra_reader_read(r, m.states, 1, NULL, 1, &one, &err), &err);
    check_reals(dra_reader_result(r, "logits"), fresh, sizeof fresh);
    assert_int_equal(dra_rwkv_state_get(m.model, two, 5, five[0], N, &err), DRA_ERR_INDEX);
    assert_int_equal(dra_rwkv_state_get(m.model, two, 0, five[0], N, &err), DRA_ERR_SHAPE);
    assert_string_equal(err.text, "rwkv state: 24 numbers, expected (2, 8, 3)");
    dra_reader_destroy(r);
    dra_states_destroy(two);
    load_free(&m);
}

/* What stands for tokens gives what they give; streams are the residual after each layer,
 * halved. */
static void embedded_tokens_and_streams(void **unused)
{
    fixture     f;
    loaded      m;
    dra_error   err = {0};
    dra_reader *r;
    dra_states *s;
    dra_real    x[T * 8];
    fixture_make(&f, rwkv_rows, 3, "rwkv.", "head.weight");
    fixture_save(&f, "rwkv", rwkv_config);
    fixture_free(&f);
    load_folder(&m, "rwkv");
    load_read(&m, T);
    const dra_real *table = dra_weights_at(m.weights, 0);
    for (int t = 0; t < T; t++) memcpy(x + t * 8, table + fixture_ids[t] * 8, 8 * sizeof *x);
    const dra_view   view = {.model = m.model, .logits = true, .embedded = true, .streams = true};
    const dra_module module = dra_view_module(&view);
    expect_ok(dra_states_create(check_device(1, "ref"), dra_model_state(m.model), 1, &s, &err),
              &err);
    expect_ok(dra_reader_create(check_device(1, "ref"), &module, &r, &err), &err);
    expect_ok(dra_weights_bind(m.weights, r, &err), &err);
    const dra_named in = {"x", x, sizeof x};
    expect_ok(dra_reader_read(r, s, T, NULL, 1, &in, &err), &err);
    check_reals(dra_reader_result(r, "logits"), m.logits, sizeof m.logits);
    for (int l = 0; l <= 3; l++) {
        char name[32];
        snprintf(name, sizeof name, "stream.%d", l);
        assert_non_null(dra_reader_result(r, name));
    }
    dra_reader_destroy(r);
    dra_states_destroy(s);
    load_free(&m);
}

/* Of the loss, without rescale: norm, first and last element. */
static const struct {
    const char *name;
    double      norm, first, last;
} rwkv_gradient[] = {
    {"embed_norm_g", 0.456239561, -0.133589206, 0.199775115},
    {"embed_norm_b", 0.648345635, 0.326696148, -0.061679362},
    {"layers.0.mixer.time_decay", 0.024733357, 0.019682919, 0.001621198},
    {"layers.0.mixer.time_first", 0.042616045, 0.006194490, 0.004125057},
    {"layers.0.mixer.mu_k", 0.201894517, -0.045654652, -0.009474947},
    {"layers.0.mixer.mu_v", 0.097989319, -0.071364195, 0.028179078},
    {"layers.0.mixer.mu_q", 0.053184462, -0.007794507, 0.010869619},
    {"layers.1.mixer.norm_g", 0.080172517, -0.041225631, -0.006930270},
    {"layers.1.ff.norm_b", 0.062752569, -0.017910094, -0.016431609},
    {"layers.1.mixer.time_decay", 0.010402603, 0.004458579, -0.002242587},
    {"layers.1.mixer.time_first", 0.036378187, 0.027057346, -0.014895144},
    {"layers.1.mixer.W_k", 0.071213750, -0.015921309, 0.002059461},
    {"layers.1.mixer.W_v", 0.317919432, 0.000472188, 0.033077477},
    {"layers.1.mixer.W_q", 0.161219102, 0.008639780, -0.002391658},
    {"layers.1.mixer.W_o", 0.358325421, -0.006975122, -0.028197830},
    {"layers.1.ff.mu_k", 0.135000084, 0.027464639, 0.015104823},
    {"layers.1.ff.mu_r", 0.061396767, -0.001449426, 0.014421110},
    {"layers.1.ff.W_up", 0.495376624, 0.017250707, -0.011035697},
    {"layers.1.ff.W_r", 0.099384447, -0.004395371, 0.000344570},
    {"layers.1.ff.W_down", 0.351966672, 0.012698030, -0.097359312},
    {"norm_g", 0.479818677, -0.024239723, 0.275145402},
    {"head", 1.087998686, -0.011586850, -0.004050780},
};

static double norm_of(const dra_model *m, dra_gradients *l, int i)
{
    const dra_real *d = dra_gradients_of(l, i);
    const int64_t   n = dra_shape_count(&dra_specs_at(dra_model_params(m), i)->shape);
    double          sum = 0;
    for (int64_t k = 0; k < n; k++) sum += (double)d[k] * (double)d[k];
    return sqrt(sum);
}

static void rwkv_learns_without_rescale(void **unused)
{
    fixture f;
    loaded  m;
    double  loss, all = 0;
    fixture_make(&f, rwkv_rows, 3, "", "head.weight");
    fixture_save(&f, "learning", rwkv_config);
    fixture_free(&f);
    load_folder(&m, "learning");
    dra_gradients   *l = load_learn(&m, &loss);
    const dra_specs *params = dra_model_params(m.model);
    assert_true(fabs(loss - 3.1186064752) < 3 * LOADED_TOL);
    for (size_t i = 0; i < COUNT(rwkv_gradient); i++) {
        const int       at = dra_specs_find(params, rwkv_gradient[i].name);
        const int64_t   n = dra_shape_count(&dra_specs_at(params, at)->shape);
        const dra_real *d = dra_gradients_of(l, at);
        const dra_real  found[] = {(dra_real)norm_of(m.model, l, at), d[0], d[n - 1]};
        const double    should[] = {rwkv_gradient[i].norm, rwkv_gradient[i].first,
                                    rwkv_gradient[i].last};
        check_close(rwkv_gradient[i].name, 3, found, should, 10 * LOADED_TOL);
    }
    for (int i = 0; i < dra_specs_count(params); i++) all += pow(norm_of(m.model, l, i), 2);
    assert_true(fabs(sqrt(all) - 2.6943030890) < 10 * LOADED_TOL);
    dra_gradients_destroy(l);
    load_free(&m);
}

/* ---- RWKV-4's own start ---------------------------------------------------------------------- */

static const dra_real *weight_at(const loaded *m, const char *name, dra_shape *shape)
{
    const int i = dra_specs_find(dra_model_params(m->model), name);
    assert_true(i >= 0);
    *shape = dra_specs_at(dra_model_params(m->model), i)->shape;
    return dra_weights_at(m->weights, i);
}

/* Columns of w (rows, columns) have this length and are at right angles; rows where they are
 * less. */
static void check_orthogonal(const dra_real *w, const dra_shape *s, double length)
{
    const bool    wide = s->dim[0] < s->dim[1];
    const int64_t n = s->dim[wide ? 0 : 1], k = s->dim[wide ? 1 : 0];
    for (int64_t a = 0; a < n; a++)
        for (int64_t b = 0; b <= a; b++) {
            double dot = 0;
            for (int64_t c = 0; c < k; c++)
                dot += (double)(wide ? w[a * k + c] : w[c * n + a]) *
                       (double)(wide ? w[b * k + c] : w[c * n + b]);
            assert_true(fabs(dot - (a == b) * length * length) < 1e-5);
        }
}

/* Blocks are the identity at first: of their matrices only those that write to the stream learn. */
static void rwkv_starts_as_its_trainer_does(void **unused)
{
    loaded m = {0};
    CHECK_CONFIG(c);
    dra_error err = {0};
    dra_shape s;
    double    loss;
    expect_ok(dra_model_config_parse("c", rwkv_config, strlen(rwkv_config), &c, &err), &err);
    expect_ok(dra_model_create(c, &m.model, &err), &err);
    expect_ok(dra_weights_draw_rwkv(m.model, 5, &m.weights, &err), &err);
    check_orthogonal(weight_at(&m, "layers.1.mixer.W_v", &s), &s, 1);
    check_orthogonal(weight_at(&m, "layers.1.ff.W_up", &s), &s, sqrt(12.0 / 8));
    check_orthogonal(weight_at(&m, "head", &s), &s, 0.5 * sqrt(13.0 / 8));
    const dra_real *mu = weight_at(&m, "layers.1.mixer.mu_v", &s);
    assert_true(fabs((double)mu[3] - (pow(3.0 / 8, 2.0 / 3) + 0.15)) < 1e-6);
    dra_gradients *l = load_learn(&m, &loss);
    assert_true(fabs(loss - log(13)) < 0.5);
    for (int i = 0; i < dra_specs_count(dra_model_params(m.model)); i++) {
        const char *name = dra_specs_at(dra_model_params(m.model), i)->name;
        if (strncmp(name, "layers.", 7) != 0) continue;
        const bool learns = strstr(name, ".W_o") || strstr(name, ".W_down");
        assert_true((norm_of(m.model, l, i) > 0) == learns);
    }
    dra_gradients_destroy(l);
    load_free(&m);
    m = (loaded){0};
    check_drop_config(&c);
    expect_ok(dra_model_config_parse("c", gpt2_config, strlen(gpt2_config), &c, &err), &err);
    expect_ok(dra_model_create(c, &m.model, &err), &err);
    assert_int_equal(dra_weights_draw_rwkv(m.model, 5, &m.weights, &err), DRA_ERR_VALUE);
    assert_null(m.weights);
    dra_model_destroy(m.model);
}

/* ---- what is written ------------------------------------------------------------------------- */

/* Every tensor of the file, to the bit, and no other. */
static void check_saved(const char *name, const fixture *f)
{
    dra_error    err = {0};
    dra_tensors *t;
    expect_ok(dra_tensors_open(in_folder(name), &t, &err), &err);
    assert_int_equal(dra_tensors_count(t), f->n);
    for (int i = 0; i < f->n; i++) {
        const dra_tensor_info *found = dra_tensors_find(t, f->item[i].name);
        if (!found) fail_msg("no tensor %s", f->item[i].name);
        assert_true(dra_shape_equal(&found->shape, &f->item[i].shape));
        assert_memory_equal(found->data, f->item[i].data, found->bytes);
    }
    assert_string_equal(dra_tensors_metadata(t, "format"), "pt");
    dra_tensors_close(t);
}

static void round_trip(const fixture_row *rows, int layers, const char *prefix, const char *head,
                       const char *config)
{
    fixture   f;
    loaded    m, again;
    dra_error err = {0};
    fixture_make(&f, rows, layers, prefix, head);
    fixture_save(&f, "from", config);
    load_folder(&m, "from");
    fixture_folder("to", "{}");
    expect_ok(dra_folder_save_config(in_folder("to"), dra_model_config_of(m.model), &err), &err);
    expect_ok(dra_weights_save(m.weights, in_folder("to/model.safetensors"), &err), &err);
    check_saved("to/model.safetensors", &f);
    load_folder(&again, "to");
    char now[4000], before[4000];
    dra_model_config_text(dra_model_config_of(again.model), now, sizeof now);
    dra_model_config_text(dra_model_config_of(m.model), before, sizeof before);
    assert_string_equal(now, before);
    load_free(&again);
    load_free(&m);
    fixture_free(&f);
}

static void written_as_it_was(void **unused)
{
    round_trip(gpt2_rows, 2, "transformer.", "lm_head.weight", gpt2_config);
    round_trip(rwkv_rows, 3, "rwkv.", "head.weight", rwkv_config);
}

static char *read_text(const char *name)
{
    char     *text;
    size_t    bytes;
    dra_error err = {0};
    expect_ok(dra_file_read(in_folder(name), 1 << 16, &text, &bytes, &err), &err);
    return text;
}

static void other_keys_stay(void **unused)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    fixture_folder("keys", gpt2_config);
    expect_ok(dra_folder_config(in_folder("keys"), &c, &err), &err);
    c->vocab = 14;
    expect_ok(dra_folder_save_config(in_folder("keys"), c, &err), &err);
    char *text = read_text("keys/config.json");
    assert_non_null(strstr(text, "\"summary_type\": \"cls_index\""));
    assert_non_null(strstr(text, "\"bos_token_id\": 12"));
    assert_non_null(strstr(text, "\"vocab_size\": 14"));
    assert_non_null(strstr(text, "\"n_embd\": 8.0")); /* said already */
    free(text);
}

static void what_a_format_cannot_say(void **unused)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    fixture_folder("keys", gpt2_config);
    expect_ok(dra_folder_config(in_folder("keys"), &c, &err), &err);
    check_mixers(c)->a.memory = "gru";
    assert_int_equal(dra_folder_save_config(in_folder("keys"), c, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "keys/config.json: a gpt2 folder cannot hold mixer."));
    check_mixers(c)->a.memory = NULL;
    c->norm = DRA_NORM_RMS;
    assert_int_equal(dra_folder_save_config(in_folder("keys"), c, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "cannot hold norm by default, only \"layer\""));
}

/* ---- heads ----------------------------------------------------------------------------------- */

static dra_switch tied_after(fixture *f, const char *config)
{
    loaded m;
    fixture_save(f, "head", config);
    load_folder(&m, "head");
    const dra_switch tied = dra_model_config_of(m.model)->tied;
    load_free(&m);
    return tied;
}

/* Tied: one of the two is enough, two that are the same are one, two that differ are two. */
static void heads_tied_or_not(void **unused)
{
    static const fixture_row head = {"lm_head.weight", MATRIX, {2, {13, 8}}};
    fixture                  f;
    fixture_make(&f, gpt2_rows, 2, "transformer.", "lm_head.weight");
    const dra_tensor_item wte = f.item[0];
    assert_int_equal(tied_after(&f, gpt2_config), DRA_ON);
    f.item[0].name = "lm_head.weight";
    assert_int_equal(tied_after(&f, gpt2_config), DRA_ON);
    f.item[0] = wte;
    f.item[f.n] = wte;
    f.item[f.n++].name = "lm_head.weight";
    assert_int_equal(tied_after(&f, gpt2_config), DRA_ON);
    f.n--;
    fixture_add(&f, "", &head, 0);
    assert_int_equal(tied_after(&f, gpt2_config), DRA_OFF);
    fixture_free(&f);
}

/* RwkvModel has no head: its hidden states can be read. */
static void a_bare_model_has_no_head(void **unused)
{
    fixture f;
    fixture_make(&f, rwkv_rows, 3, "", "head.weight");
    f.n--;
    assert_int_equal(tied_after(&f, rwkv_config), DRA_ON);
    f.n++;
    fixture_free(&f);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void check_refused_load(const char *name, const char *text)
{
    dra_model   *model;
    dra_weights *weights;
    dra_error    err = {0};
    assert_int_not_equal(dra_folder_load(in_folder(name), &model, &weights, &err), DRA_OK);
    assert_null(model);
    if (!strstr(err.text, text)) fail_msg("found:    %s\nexpected: %s", err.text, text);
}

static void wrong_files_are_named(void **unused)
{
    fixture f;
    fixture_make(&f, gpt2_rows, 2, "transformer.", "lm_head.weight");
    const dra_tensor_item fc = f.item[10];
    f.item[10].shape = DRA_SHAPE(32, 8);
    fixture_save(&f, "wrong", gpt2_config);
    check_refused_load("wrong",
                       "wrong/model.safetensors: tensor 'transformer.h.0.mlp.c_fc.weight': "
                       "shape (32, 8), expected (8, 32) by its gpt2 config");
    f.item[10].name = "transformer.h.0.mlp.c_fcc.weight";
    fixture_save(&f, "wrong", gpt2_config);
    check_refused_load("wrong", "tensor transformer.h.0.mlp.c_fc.weight is missing; "
                                "unexpected: transformer.h.0.mlp.c_fcc.weight");
    f.item[10] = fc;
    f.item[22].name = "lm_head.weight"; /* which changes no name of the others */
    fixture_save(&f, "wrong", gpt2_config);
    check_refused_load("wrong", "tensor transformer.h.1.mlp.c_fc.weight is missing");
    f.item[22].name = f.name[22];
    f.n -= 2;
    fixture_save(&f, "wrong", gpt2_config);
    check_refused_load("wrong",
                       "2 tensors are missing: transformer.ln_f.weight, transformer.ln_f.bias");
    f.n += 2;
    fixture_free(&f);
}

static void wrong_configs_are_named(void **unused)
{
    static const struct {
        const char *json, *text;
    } rows[] = {
        {"{\"model_type\":\"gpt2\",\"n_embd\":\"8\"}",
         "c: n_embd is \"8\", expected a whole number up to 1048576"},
        {"{\"model_type\":\"gpt2\",\"hidden_size\":8.5}",
         "c: hidden_size is 8.5, expected a whole number up to 1048576"},
        {"{\"model_type\":\"gpt2\",\"activation_function\":\"tanh\"}",
         "c: activation_function is \"tanh\", expected gelu_new, gelu_pytorch_tanh, gelu_fast, "
         "gelu, relu or relu2"},
        {"{\"model_type\":\"gpt2\",\"add_cross_attention\":true}",
         "c: add_cross_attention is true, expected false: dra's models read one text"},
        {"{\"model_type\":\"rwkv\",\"layer_norm_epsilon\":-1}",
         "c: layer_norm_epsilon is -1, expected a number from 0 to 1"},
        {"{\"model_type\":\"rwkv\",\"tie_word_embeddings\":1}",
         "c: tie_word_embeddings is 1, expected true or false"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        CHECK_CONFIG(c);
        dra_error err = {0};
        assert_int_not_equal(
            dra_model_config_parse("c", rows[i].json, strlen(rows[i].json), &c, &err), DRA_OK);
        assert_string_equal(err.text, rows[i].text);
    }
}

static void defaults_are_those_of_hugging_face(void **unused)
{
    CHECK_CONFIG(c);
    dra_error   err = {0};
    const char *gpt2 = "{\"model_type\":\"gpt2\"}", *rwkv = "{\"model_type\":\"rwkv\"}";
    expect_ok(dra_model_config_parse("c", gpt2, strlen(gpt2), &c, &err), &err);
    assert_true(c->vocab == 50257 && c->dim == 768 && c->depth == 12 && c->heads == 12);
    assert_true(c->context == 1024 && c->tied == DRA_ON && c->norm_eps == 1e-5);
    assert_true(c->dropout == 0.1 && c->attention_dropout == 0.1 && c->embed_dropout == 0.1);
    check_drop_config(&c);
    expect_ok(dra_model_config_parse("c", rwkv, strlen(rwkv), &c, &err), &err);
    assert_true(c->vocab == 50277 && c->dim == 4096 && c->depth == 32 && c->key_dim == 4096);
    assert_true(c->ff.dim == 16384 && c->tied == DRA_OFF && c->rescale_every == 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_by_new_and_old_names),
        cmocka_unit_test(gpt2_scales_its_scores),
        cmocka_unit_test(rwkv_reads_with_rescale),
        cmocka_unit_test(rwkv_states_in_five_tensors),
        cmocka_unit_test(embedded_tokens_and_streams),
        cmocka_unit_test(rwkv_learns_without_rescale),
        cmocka_unit_test(rwkv_starts_as_its_trainer_does),
        cmocka_unit_test(written_as_it_was),
        cmocka_unit_test(other_keys_stay),
        cmocka_unit_test(what_a_format_cannot_say),
        cmocka_unit_test(heads_tied_or_not),
        cmocka_unit_test(a_bare_model_has_no_head),
        cmocka_unit_test(wrong_files_are_named),
        cmocka_unit_test(wrong_configs_are_named),
        cmocka_unit_test(defaults_are_those_of_hugging_face),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = cmocka_run_group_tests_name("format", tests, NULL, NULL);
    fixture_remove();
    return failed;
}
