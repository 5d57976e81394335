/* RWKV 5 to 7: the trainers' first values, states as Hugging Face has them, 5.2 as a special 6. */
#include "rwkv567.h"

/* ---- the trainers' first values -------------------------------------------------------------- */

/* Of layer 2 of 4, 64 channels in heads of 16: channels 0, 1, 17 and 63. */
static void first_values(void **unused)
{
    static const struct {
        const char *preset, *param;
        double      value[4];
    } rows[] = {{"rwkv5-tiny", "mixer.mu_v", {0.2, 0.325, 0.715388, 1.192157}},
                {"rwkv5-tiny", "mixer.time_decay", {-6, -5.992414, -5.357747, -1}},
                {"rwkv5-tiny", "mixer.bonus", {0.666667, 0.756085, 0.386772, 0}},
                {"rwkv6-tiny", "mixer.mu_v", {0.8, 0.675, 0.284612, -0.192157}},
                {"rwkv6-tiny", "mixer.mu_q", {1, 0.646447, 0.282095, 0.003929}},
                {"rwkv6-tiny", "mixer.time_decay", {-6, -5.992414, -5.357747, -1}},
                {"rwkv6-tiny", "ff.mu_k", {1, 0.405396, 0.152707, 0.001967}},
                {"rwkv7-tiny", "mixer.mu_q", {1, 0.340246, 0.124156, 0.001574}},
                {"rwkv7-tiny", "mixer.mu_w", {1, 0.846107, 0.449292, 0.007062}},
                {"rwkv7-tiny", "mixer.mu_k", {1, 0.766742, 0.371227, 0.005497}},
                {"rwkv7-tiny", "mixer.time_decay", {-8, -7.375348, -6.870174, 3}},
                {"rwkv7-tiny", "mixer.b_rate", {-0.69, -0.608984, -0.507397, 0.31}},
                {"rwkv7-tiny", "mixer.b_mix", {0.93, 0.923651, 0.822063, 0.53}},
                {"rwkv7-tiny", "mixer.k_k", {0.76, 0.758413, 0.733016, 0.66}},
                {"rwkv7-tiny", "ff.mu_k", {1, 0.228895, 0.079515, 0.000984}},
                {"rwkv7-tiny", "mixer.k_a", {1.02, 1.02, 1.02, 1.02}},
                {"rwkv7-tiny", "mixer.r_k", {-0.04, -0.04, -0.04, -0.04}},
                {"rwkv7-tiny", "mixer.hn_g", {0.8176, 0.8176, 0.8176, 0.8176}},
                {"rwkv7-tiny", "mixer.W_o", {0, 0, 0, 0}},
                {"rwkv7-tiny", "mixer.W_g_1", {0, 0, 0, 0}}};
    static const int at[] = {0, 1, 17, 63};
    for (size_t i = 0; i < COUNT(rows); i++) {
        CHECK_CONFIG(c);
        dra_model   *m;
        dra_weights *w;
        dra_error    err = {0};
        char         name[64];
        expect_ok(dra_preset_config(rows[i].preset, &c, &err), &err);
        c->dim = 64;
        c->heads = 4;
        expect_ok(dra_model_create(c, &m, &err), &err);
        expect_ok(dra_weights_draw_rwkv(m, 3, &w, &err), &err);
        snprintf(name, sizeof name, "layers.2.%s", rows[i].param);
        const int       p = dra_specs_find(dra_model_params(m), name);
        const dra_real *x = dra_weights_at(w, p);
        for (int k = 0; k < 4; k++)
            if (!(fabs((double)x[at[k]] - rows[i].value[k]) < 5e-5))
                fail_msg("%s: %s: %g, expected %g", rows[i].preset, name, (double)x[at[k]],
                         rows[i].value[k]);
        dra_weights_destroy(w);
        dra_model_destroy(m);
    }
}

/* Columns of low-rank factors have length 0.1, W_k has orthogonal rows of 0.1, W_v of 1. */
static void first_matrices(void **unused)
{
    static const struct {
        const char *param;
        double      length;
        bool        columns;
    } rows[] = {{"layers.1.mixer.W_decay_2", 0.1, true},
                {"layers.1.mixer.W_g_2", 0.1, true},
                {"layers.1.mixer.W_mix_2", 0.1, true},
                {"layers.1.mixer.W_k", 0.1},
                {"layers.1.mixer.W_v", 1},
                {"layers.1.mixer.W_q", 1}};
    CHECK_CONFIG(c);
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    expect_ok(dra_preset_config("rwkv7-tiny", &c, &err), &err);
    c->dim = 64;
    c->heads = 4;
    expect_ok(dra_model_create(c, &m, &err), &err);
    expect_ok(dra_weights_draw_rwkv(m, 3, &w, &err), &err);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const int        p = dra_specs_find(dra_model_params(m), rows[i].param);
        const dra_shape *s = &dra_specs_at(dra_model_params(m), p)->shape;
        const dra_real  *x = dra_weights_at(w, p);
        const int64_t    n = s->dim[rows[i].columns ? 1 : 0], k = s->dim[rows[i].columns ? 0 : 1];
        for (int64_t a = 0; a < n; a++) {
            double square = 0;
            for (int64_t b = 0; b < k; b++) {
                const double y = (double)(rows[i].columns ? x[b * n + a] : x[a * k + b]);
                square += y * y;
            }
            assert_true(fabs(sqrt(square) - rows[i].length) < 1e-5);
        }
    }
    dra_weights_destroy(w);
    dra_model_destroy(m);
}

static void no_start_for_others(void **unused)
{
    CHECK_CONFIG(c);
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    expect_ok(dra_preset_config("dra-delta-tiny", &c, &err), &err);
    expect_ok(dra_model_create(c, &m, &err), &err);
    assert_int_equal(dra_weights_draw_rwkv(m, 3, &w, &err), DRA_ERR_VALUE);
    assert_non_null(strstr(err.text, "rwkv start: expected layers of RWKV"));
    dra_model_destroy(m);
}

/* ---- states as Hugging Face has them --------------------------------------------------------- */

static void states_go_out_and_in(void **unused)
{
    static const char *const folders[] = {DATA "fla-rwkv6", DATA "fla-rwkv7"};
    for (size_t i = 0; i < COUNT(folders); i++) {
        loaded    m = {0};
        dra_error err = {0};
        dra_real  whole[SOME * WORDS], rest[SOME * WORDS];
        expect_ok(dra_folder_load(folders[i], &m.model, &m.weights, &err), &err);
        const int32_t *ids = i ? ids_7 : ids_6;
        dra_states    *a = open_states(&m, 1), *b = open_states(&m, 1), *c = open_states(&m, 1);
        read_rows(&m, a, ids, 1, SOME, SOME, whole);
        read_rows(&m, b, ids, 1, 11, 11, rest);
        assert_int_equal(dra_rwkv_state_count(m.model), 3);
        for (int k = 0; k < 3; k++) {
            const dra_shape s = dra_rwkv_state_shape(m.model, 1, k);
            const size_t    n = (size_t)dra_shape_count(&s);
            dra_real       *x = malloc(n * sizeof *x);
            assert_non_null(x);
            assert_int_equal(s.rank, k == 1 ? 5 : 3);
            expect_ok(dra_rwkv_state_get(m.model, b, k, x, n, &err), &err);
            expect_ok(dra_rwkv_state_set(m.model, c, k, x, n, &err), &err);
            assert_int_equal(dra_rwkv_state_get(m.model, b, k, x, n - 1, &err), DRA_ERR_SHAPE);
            free(x);
        }
        assert_int_equal(dra_rwkv_state_get(m.model, b, 3, rest, 1, &err), DRA_ERR_INDEX);
        read_rows(&m, c, ids + 11, 1, SOME - 11, 4, rest);
        expect_near(folders[i], (SOME - 11) * WORDS, rest, whole + 11 * WORDS, LOGITS_TOL);
        dra_states_destroy(a);
        dra_states_destroy(b);
        dra_states_destroy(c);
        load_free(&m);
    }
}

/* ---- 5.2 is a special case of 6 -------------------------------------------------------------- */

static dra_real *edit(const loaded *m, const char *name, size_t *n)
{
    const int i = dra_specs_find(dra_model_params(m->model), name);
    if (i < 0) fail_msg("no %s", name);
    *n = (size_t)dra_shape_count(&dra_specs_at(dra_model_params(m->model), i)->shape);
    return dra_weights_edit(m->weights, i);
}

/* With mu_6 = 1 - mu_5 and no low-rank maps version 6 says what 5.2 says. */
static void five_is_a_special_six(void **unused)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    loaded    five = {0}, six = {0};
    dra_real  x[SOME * WORDS], y[SOME * WORDS];
    expect_ok(dra_preset_config("rwkv5-tiny", &c, &err), &err);
    c->vocab = WORDS;
    c->dim = WIDTH;
    c->heads = 2;
    c->depth = 2;
    c->ff.dim = 96;
    expect_ok(dra_model_create(c, &five.model, &err), &err);
    expect_ok(dra_weights_draw(five.model, 5, &five.weights, &err), &err);
    CHECK_CONFIG(d);
    expect_ok(dra_preset_config("rwkv6-tiny", &d, &err), &err);
    d->vocab = c->vocab, d->dim = c->dim, d->heads = c->heads, d->depth = c->depth,
    d->ff.dim = c->ff.dim;
    expect_ok(dra_model_create(d, &six.model, &err), &err);
    expect_ok(dra_weights_draw(six.model, 6, &six.weights, &err), &err);
    for (int i = 0; i < dra_specs_count(dra_model_params(six.model)); i++) {
        const char *name = dra_specs_at(dra_model_params(six.model), i)->name;
        size_t      n, m;
        dra_real   *to = edit(&six, name, &n);
        if (dra_specs_find(dra_model_params(five.model), name) < 0) {
            if (!strstr(name, "mu_w") && !strstr(name, "mu_x")) memset(to, 0, n * sizeof *to);
            continue;
        }
        const dra_real *from = edit(&five, name, &m);
        assert_int_equal(n, m);
        for (size_t k = 0; k < n; k++) to[k] = strstr(name, ".mu_") ? 1 - from[k] : from[k];
    }
    dra_states *s = open_states(&five, 1), *t = open_states(&six, 1);
    read_rows(&five, s, ids_5, 1, SOME, SOME, x);
    read_rows(&six, t, ids_5, 1, SOME, 7, y);
    expect_near("5.2 as 6", SOME * WORDS, y, x, 1e-6);
    dra_states_destroy(s);
    dra_states_destroy(t);
    load_free(&five);
    load_free(&six);
}

/* ---- folders whose classes come with their models -------------------------------------------- */

static void draw_as(const char *preset, dra_format_kind format, const char *name, int64_t ranks)
{
    CHECK_CONFIG(c);
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    char         file[64];
    expect_ok(dra_preset_config(preset, &c, &err), &err);
    c->format = format;
    c->vocab = WORDS, c->dim = WIDTH, c->heads = 2, c->depth = 2, c->final_eps = 1e-5;
    c->ff.dim = 96;
    dra_mixer_config *mixer = check_mixers(c);
    if (ranks) mixer->shift_rank = ranks, mixer->a.lambda.decay_rank = 2 * ranks;
    expect_ok(dra_model_create(c, &m, &err), &err);
    expect_ok(dra_weights_draw(m, 7, &w, &err), &err);
    expect_ok(dra_folder_save_config(in_folder(name), c, &err), &err);
    snprintf(file, sizeof file, "%s/model.safetensors", name);
    expect_ok(dra_weights_save(w, in_folder(file), &err), &err);
    dra_weights_destroy(w);
    dra_model_destroy(m);
}

static void read_folder(const char *name, const int32_t *ids, dra_real *logits)
{
    loaded m;
    load_folder(&m, name);
    dra_states *s = open_states(&m, 1);
    read_rows(&m, s, ids, 1, SOME, SOME, logits);
    dra_states_destroy(s);
    load_free(&m);
}

/* The same numbers by other names; those that differ between the two versions. */
static void folders_of_hugging_face(void **unused)
{
    static const struct {
        const char     *preset, *there, *own;
        dra_format_kind format;
        int64_t         ranks;
        const char     *names[4];
        dra_shape       shapes[4];
    } rows[] = {{"rwkv5-tiny",
                 "five",
                 "own5",
                 DRA_FORMAT_RWKV5,
                 0,
                 {"rwkv.blocks.1.attention.time_mix_gate", "rwkv.blocks.1.attention.time_faaaa",
                  "rwkv.blocks.0.pre_ln.weight", "rwkv.blocks.1.feed_forward.time_mix_key"},
                 {{3, {1, 1, WIDTH}}, {2, {2, 16}}, {1, {WIDTH}}, {3, {1, 1, WIDTH}}}},
                {"rwkv6-tiny",
                 "six",
                 "own6",
                 DRA_FORMAT_RWKV6,
                 32,
                 {"rwkv.blocks.1.attention.time_maa_w1", "rwkv.blocks.1.attention.time_maa_w2",
                  "rwkv.blocks.1.attention.time_decay", "rwkv.blocks.1.attention.time_decay_w1"},
                 {{2, {WIDTH, 160}}, {3, {5, 32, WIDTH}}, {3, {1, 1, WIDTH}}, {2, {WIDTH, 64}}}}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_error    err = {0};
        dra_tensors *t;
        dra_real     x[SOME * WORDS], y[SOME * WORDS];
        char         file[64];
        draw_as(rows[i].preset, rows[i].format, rows[i].there, rows[i].ranks);
        draw_as(rows[i].preset, DRA_FORMAT_DRA, rows[i].own, rows[i].ranks);
        read_folder(rows[i].there, ids_5, x);
        read_folder(rows[i].own, ids_5, y);
        check_reals(x, y, sizeof x);
        snprintf(file, sizeof file, "%s/model.safetensors", rows[i].there);
        expect_ok(dra_tensors_open(in_folder(file), &t, &err), &err);
        for (int k = 0; k < 4; k++) {
            const dra_tensor_info *info = dra_tensors_find(t, rows[i].names[k]);
            if (!info) fail_msg("%s is not there", rows[i].names[k]);
            assert_true(dra_shape_equal(&info->shape, &rows[i].shapes[k]));
        }
        dra_tensors_close(t);
    }
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void try_file(const char *file, size_t bytes, bool cut)
{
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    put_file("bad.bin", file, bytes);
    const char *path = in_folder("bad.bin");
    if (dra_folder_load(path, &m, &w, &err) == DRA_OK) {
        assert_false(cut);
        dra_weights_destroy(w);
        dra_model_destroy(m);
    } else {
        assert_non_null(strstr(err.text, "bad.bin"));
    }
}

/* Cut anywhere it is refused; with any number in its header and first records changed it is refused
 * or read. */
static void damaged_files(void **unused)
{
    static const char *const files[] = {DATA "v5.0-FP16.bin", DATA "v7.0-FP16.bin"};
    for (size_t i = 0; i < COUNT(files); i++) {
        dra_error err = {0};
        char     *file;
        size_t    bytes;
        expect_ok(dra_file_read(files[i], 1 << 24, &file, &bytes, &err), &err);
        for (size_t n = 4; n < bytes; n += n < 100 ? 3 : 1511) try_file(file, n, true);
        for (size_t at = 4; at < bytes; at += at < 60 ? 1 : 613) {
            static const unsigned char values[] = {0, 1, 2, 255};
            const char                 was = file[at];
            file[at] = (char)values[at % 4];
            try_file(file, bytes, false);
            file[at] = was;
        }
        free(file);
    }
}

static int remove_all(void **unused)
{
    fixture_remove();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_values),          cmocka_unit_test(first_matrices),
        cmocka_unit_test(no_start_for_others),   cmocka_unit_test(states_go_out_and_in),
        cmocka_unit_test(five_is_a_special_six), cmocka_unit_test(folders_of_hugging_face),
        cmocka_unit_test(damaged_files),
    };
    return cmocka_run_group_tests_name("rwkv567_start", tests, folder_make, remove_all);
}
