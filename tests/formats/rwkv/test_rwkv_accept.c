/* What Hugging Face's own tests ask of its RWKV class, restated, and where each is tested; names
 * without a file are in this one.
 *
 *   config: keys read and written, defaults, others kept   test_format: other_keys_stay,
 *                                                          defaults_are_those_of_hugging_face
 *   hidden states: L + 1 of them, and their shapes         test_rwkv: states_and_rows_are_equal
 *   loss and logits with labels                            test_rwkv: every_parameter_learns
 *   2 + 5 tokens with the state = 7; rows = each alone     test_rwkv: states_and_rows_are_equal
 *   "attentions": L outputs (B, T, C) of the time mix      branches_add_up_to_streams, make parity
 *   saved and loaded; names; missing ones reported         test_format: written_as_it_was,
 *                                                          wrong_files_are_named
 *   heads tied or not                                      test_format: heads_tied_or_not
 *   every parameter has a first value                      first_values_are_all_there
 *   time_decay, time_first stay f32 in an f16 file         decays_stay_wide
 *   runs repeat                                            runs_repeat
 *   gradients of all parameters, also recomputed           test_rwkv: every_parameter_learns
 *   gradients of hidden states and attentions              inner_values_have_gradients
 *   vocabulary + 10, - 15, tied and not                    vocabularies_change
 *   embeddings got and set                                 embeddings_are_set
 *   ids = their embeddings, also to generate from          generates_from_embeddings,
 *                                                          test_format: embedded_tokens_and_streams
 *   wrong shapes refused                                   test_format: wrong_files_are_named
 *   logits_to_keep: a number, a list                       test_rwkv: the_last_logits_alone,
 *                                                          chosen_logits_in_any_order
 *   generation: lengths, stops                             generate/test_generate, cli/test_verbs
 *   the 169M model's text                                  not tested: the file is not at hand
 *
 * And where a closer look is due:
 *   reference numbers, learning and not; chunks 1, 2, 3, 8 test_format: rwkv_reads_with_rescale,
 *                                                          rwkv_learns_without_rescale
 *   single tokens of a batch read their own state          test_format: rwkv_states_in_five_tensors
 *   going on from a saved state                            cli/test_convert: goes on from a state
 *   keys of +-80                                           test_rwkv: large_keys_do_no_harm
 *
 * Formulas that are often told wrong, and what shows them right:
 *   the decay is e^w, w = -exp(time_decay)                 decays_are_double_exponentials
 *   the second exponent has the maximum taken off          ops/recurrent/test_wkv: keys_far_out
 *   the list of hidden states begins after layer 0         make parity: hidden states
 *   the head is not tied unless said so                    test_format: defaults_are_those_...
 *   states 2 to 4 are as wide as the attention             attention_of_its_own_width
 *   rescaling: by 2^floor(l / R)                           test_format: rwkv_reads_with_rescale */
#include "model/fixtures.h"
#include "sequence/states.h"
#include "trial.h"

/* ---- a model with first values --------------------------------------------------------------- */

static void draw_folder(const char *name, const char *config)
{
    CHECK_CONFIG(c);
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    char         file[64];
    expect_ok(dra_model_config_parse(name, config, strlen(config), &c, &err), &err);
    expect_ok(dra_model_create(c, &m, &err), &err);
    expect_ok(dra_weights_draw(m, 3, &w, &err), &err);
    expect_ok(dra_folder_save_config(in_folder(name), c, &err), &err);
    snprintf(file, sizeof file, "%s/model.safetensors", name);
    expect_ok(dra_weights_save(w, in_folder(file), &err), &err);
    dra_weights_destroy(w);
    dra_model_destroy(m);
}

static void save_fixtures(void)
{
    fixture f;
    fixture_make(&f, rwkv_rows, 3, "rwkv.", "head.weight");
    fixture_save(&f, "rwkv", rwkv_config);
    fixture_free(&f);
    fixture_make(&f, gpt2_rows, 2, "transformer.", "lm_head.weight");
    fixture_save(&f, "gpt2", gpt2_config);
    fixture_free(&f);
}

static dra_reader *open_reader(const loaded *m, const dra_view *view)
{
    const dra_module module = dra_view_module(view);
    dra_error        err = {0};
    dra_reader      *r = NULL;
    expect_ok(dra_reader_create(check_device(1, "ref"), &module, &r, &err), &err);
    expect_ok(dra_weights_bind(m->weights, r, &err), &err);
    return r;
}

static dra_states *open_states(const loaded *m)
{
    dra_states *s = NULL;
    dra_error   err = {0};
    expect_ok(dra_states_create(check_device(1, "ref"), dra_model_state(m->model), 1, &s, &err),
              &err);
    return s;
}

/* ---- weights --------------------------------------------------------------------------------- */

static void first_values_are_all_there(void **unused)
{
    CHECK_CONFIG(c);
    dra_model *m;
    dra_error  err = {0};
    expect_ok(dra_model_config_parse("c", rwkv_config, strlen(rwkv_config), &c, &err), &err);
    expect_ok(dra_model_create(c, &m, &err), &err);
    for (int k = 0; k < 2; k++) {
        dra_weights *w = NULL;
        expect_ok((k ? dra_weights_draw_rwkv : dra_weights_draw)(m, 3, &w, &err), &err);
        for (int i = 0; i < dra_specs_count(dra_model_params(m)); i++) {
            const dra_spec *p = dra_specs_at(dra_model_params(m), i);
            double          most = 0;
            for (int64_t n = 0; n < dra_shape_count(&p->shape); n++) {
                assert_true(isfinite((double)dra_weights_at(w, i)[n]));
                most = fmax(most, fabs((double)dra_weights_at(w, i)[n]));
            }
            if (!k && !strstr(p->name, "norm_b")) assert_true(most > 0);
        }
        dra_weights_destroy(w);
    }
    dra_model_destroy(m);
}

static void decays_stay_wide(void **unused)
{
    static const struct {
        const char *name;
        dra_dtype   dtype;
    } rows[] = {{"rwkv.blocks.1.attention.time_decay", DRA_REAL},
                {"rwkv.blocks.2.attention.time_first", DRA_REAL},
                {"rwkv.blocks.0.attention.key.weight", DRA_F16},
                {"head.weight", DRA_F16}};
    dra_error    err = {0};
    dra_tensors *t;
    save_fixtures();
    const dra_convert_config how = {
        .from = in_folder("rwkv"), .to = in_folder("half"), .dtype = DRA_F16};
    expect_ok(dra_convert(&how, &err), &err);
    expect_ok(dra_tensors_open(in_folder("half/model.safetensors"), &t, &err), &err);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const dra_tensor_info *found = dra_tensors_find(t, rows[i].name);
        assert_non_null(found);
        assert_int_equal(found->dtype, rows[i].dtype);
    }
    dra_tensors_close(t);
}

/* Kept rows stay, also where the head is the embedding, and so does all else. */
static void vocabularies_change(void **unused)
{
    static const int64_t sizes[] = {109, 84};
    for (int k = 0; k < 4; k++) {
        const bool tied = k / 2;
        char       config[300], name[32];
        loaded     a, b;
        dra_error  err = {0};
        snprintf(config, sizeof config,
                 "{\"model_type\": \"rwkv\", \"vocab_size\": 99, \"hidden_size\": 32, "
                 "\"num_hidden_layers\": 2, \"intermediate_size\": 37, "
                 "\"tie_word_embeddings\": %s}",
                 tied ? "true" : "false");
        draw_folder("words", config);
        snprintf(name, sizeof name, "words%d", k);
        load_folder(&a, "words");
        dra_model_config c = *dra_model_config_of(a.model);
        c.vocab = sizes[k % 2];
        const dra_convert_config how = {
            .from = in_folder("words"), .to = in_folder(name), .config = &c};
        expect_ok(dra_convert(&how, &err), &err);
        load_folder(&b, name);
        assert_int_equal(dra_model_config_of(b.model)->tied, tied ? DRA_ON : DRA_OFF);
        assert_int_equal(dra_specs_find(dra_model_params(b.model), "head") < 0, tied);
        for (int i = 0; i < dra_specs_count(dra_model_params(b.model)); i++) {
            const dra_shape *x = &dra_specs_at(dra_model_params(a.model), i)->shape;
            const dra_shape *y = &dra_specs_at(dra_model_params(b.model), i)->shape;
            const int64_t    n = dra_shape_count(x), m = dra_shape_count(y);
            assert_memory_equal(dra_weights_at(a.weights, i), dra_weights_at(b.weights, i),
                                (size_t)(n < m ? n : m) * sizeof(dra_real));
        }
        load_free(&a);
        load_free(&b);
    }
}

static void embeddings_are_set(void **unused)
{
    loaded   m;
    dra_real before[T * V];
    save_fixtures();
    load_folder(&m, "rwkv");
    load_read(&m, T);
    memcpy(before, m.logits, sizeof before);
    dra_real *table = dra_weights_edit(m.weights, 0);
    for (int i = 0; i < 8; i++) table[fixture_ids[4] * 8 + i] += (dra_real)(i % 3);
    load_read(&m, T);
    check_reals(m.logits, before, 4 * V * sizeof *before); /* tokens before it */
    for (int t = 4; t < T; t++)
        assert_memory_not_equal(m.logits + t * V, before + t * V, V * sizeof *before);
    load_free(&m);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void runs_repeat(void **unused)
{
    loaded   m;
    dra_real before[T * V];
    save_fixtures();
    for (int again = 0; again < 3; again++) {
        load_folder(&m, "rwkv");
        load_read(&m, again == 2 ? 3 : T); /* in parts as well */
        if (again) check_reals(m.logits, before, sizeof before);
        memcpy(before, m.logits, sizeof before);
        load_free(&m);
    }
}

static void chosen_logits_in_any_order(void **unused)
{
    static const int32_t picks[] = {6, 0, -1, 6, 3};
    enum { N = 5 };
    loaded    m;
    dra_error err = {0};
    save_fixtures();
    load_folder(&m, "rwkv");
    load_read(&m, T);
    const dra_view  view = {.model = m.model, .logits = true, .picks = N};
    dra_reader     *r = open_reader(&m, &view);
    dra_states     *s = open_states(&m);
    const dra_named in[] = {{"ids", fixture_ids, sizeof fixture_ids},
                            {"picks", picks, sizeof picks}};
    expect_ok(dra_reader_read(r, s, T, NULL, 2, in, &err), &err);
    const dra_real *y = dra_reader_result(r, "logits");
    for (int i = 0; i < N; i++)
        for (int v = 0; v < V; v++)
            assert_true(y[i * V + v] == (picks[i] < 0 ? 0 : m.logits[picks[i] * V + v]));
    const int32_t   wrong[] = {6, 0, -1, T, 3};
    const dra_named other[] = {in[0], {"picks", wrong, sizeof wrong}};
    assert_int_not_equal(dra_reader_read(r, s, T, NULL, 2, other, &err), DRA_OK);
    dra_states_destroy(s);
    dra_reader_destroy(r);
    load_free(&m);
}

/* Layers without a feed-forward: x_{l+1} = x_l + branch_l, where what is shown of layer l is
 * divided by 2^floor(l / R), as reading has it. */
static void branches_add_up_to_streams(void **unused)
{
    static const char config[] =
        "{\"model_type\": \"dra\", \"vocab\": 13, \"dim\": 8, \"depth\": 3, \"context\": 16, "
        "\"norm\": \"layer\", \"rescale_every\": 1, \"ff\": {\"kind\": \"none\"}, "
        "\"mixer\": {\"memory\": \"wkv\", \"shift\": \"mix\"}}";
    enum { L = 3, C = 8 };
    loaded    m;
    dra_error err = {0};
    draw_folder("branches", config);
    load_folder(&m, "branches");
    const dra_view  view = {.model = m.model, .streams = true, .branches = true};
    dra_reader     *r = open_reader(&m, &view);
    dra_states     *s = open_states(&m);
    const dra_named in = {"ids", fixture_ids, sizeof fixture_ids};
    expect_ok(dra_reader_read(r, s, T, NULL, 1, &in, &err), &err);
    for (int l = 0; l < L; l++) {
        char   name[3][32];
        double sum[T * C];
        snprintf(name[0], sizeof name[0], "stream.%d", l);
        snprintf(name[1], sizeof name[1], "branch.%d", l);
        snprintf(name[2], sizeof name[2], "stream.%d", l + 1);
        const dra_real *x = dra_reader_result(r, name[0]), *b = dra_reader_result(r, name[1]);
        for (int i = 0; i < T * C; i++) sum[i] = ((double)x[i] + (double)b[i]) / 2;
        check_close(name[2], T * C, dra_reader_result(r, name[2]), sum, LOADED_TOL);
    }
    assert_null(dra_reader_result(r, "branch.3"));
    dra_states_destroy(s);
    dra_reader_destroy(r);
    load_free(&m);
}

/* Its own width of the attention: A, B and p have as many channels, the rest those of the model;
 * parts are the whole. */
static void attention_of_its_own_width(void **unused)
{
    static const char config[] =
        "{\"model_type\": \"rwkv\", \"vocab_size\": 13, \"hidden_size\": 8, "
        "\"num_hidden_layers\": 2, \"attention_hidden_size\": 12, \"intermediate_size\": 20}";
    loaded    m;
    dra_real  whole[T * V], five[12 * 2];
    dra_error err = {0};
    draw_folder("wide", config);
    load_folder(&m, "wide");
    load_read(&m, T);
    memcpy(whole, m.logits, sizeof whole);
    load_read(&m, 3);
    check_reals(m.logits, whole, sizeof whole);
    for (int i = 0; i < DRA_RWKV_STATES; i++)
        expect_ok(dra_rwkv_state_get(m.model, m.states, i, five, (i < 2 ? 8 : 12) * 2, &err), &err);
    load_free(&m);
}

static int32_t most_likely(const dra_real *logits)
{
    int32_t top = 0;
    for (int32_t v = 1; v < V; v++)
        if (logits[v] > logits[top]) top = v;
    return top;
}

/* A prompt of vectors, then the most likely token again and again: as from its ids. */
static void generates_from_embeddings(void **unused)
{
    enum { MORE = 6 };
    loaded    m;
    dra_error err = {0};
    dra_real  x[T * 8];
    int32_t   made[2][MORE];
    save_fixtures();
    load_folder(&m, "rwkv");
    for (int t = 0; t < T; t++)
        memcpy(x + t * 8, dra_weights_at(m.weights, 0) + fixture_ids[t] * 8, 8 * sizeof *x);
    const dra_view  views[] = {{.model = m.model, .logits = true, .keep = 1},
                               {.model = m.model, .logits = true, .keep = 1, .embedded = true}};
    const dra_named prompt[] = {{"ids", fixture_ids, sizeof fixture_ids}, {"x", x, sizeof x}};
    for (int k = 0; k < 2; k++) {
        dra_reader     *first = open_reader(&m, &views[k]), *next = open_reader(&m, &views[0]);
        dra_states     *s = open_states(&m);
        const dra_real *logits;
        expect_ok(dra_reader_read(first, s, T, NULL, 1, &prompt[k], &err), &err);
        logits = dra_reader_result(first, "logits");
        for (int i = 0; i < MORE; i++) {
            made[k][i] = most_likely(logits);
            const dra_named in = {"ids", &made[k][i], sizeof made[k][i]};
            expect_ok(dra_reader_read(next, s, 1, NULL, 1, &in, &err), &err);
            logits = dra_reader_result(next, "logits");
        }
        dra_states_destroy(s);
        dra_reader_destroy(first);
        dra_reader_destroy(next);
    }
    assert_memory_equal(made[0], made[1], sizeof made[0]);
    load_free(&m);
}

/* After one token the next one changes A to e^(p + w - p') A + ..., so A of a token whose value is
 * 0 and whose key is far below is e^w A: here with time_decay 0.3 in all channels. */
static void decays_are_double_exponentials(void **unused)
{
    loaded    m;
    dra_error err = {0};
    dra_real  held[2][3][8];
    save_fixtures();
    load_folder(&m, "rwkv");
    const dra_specs *params = dra_model_params(m.model);
    dra_real *d = dra_weights_edit(m.weights, dra_specs_find(params, "layers.0.mixer.time_decay"));
    dra_real *k = dra_weights_edit(m.weights, dra_specs_find(params, "layers.0.mixer.W_k"));
    dra_real *v = dra_weights_edit(m.weights, dra_specs_find(params, "layers.0.mixer.W_v"));
    for (int i = 0; i < 8; i++) d[i] = (dra_real)0.3;
    const dra_view view = {.model = m.model, .hidden = true};
    dra_states    *s = open_states(&m);
    for (int t = 0; t < 2; t++) {
        static const char *const names[] = {"layers.0.mixer.A", "layers.0.mixer.B",
                                            "layers.0.mixer.p"};
        const dra_named          in = {"ids", &fixture_ids[t], sizeof *fixture_ids};
        dra_reader              *r = open_reader(&m, &view);
        expect_ok(dra_reader_read(r, s, 1, NULL, 1, &in, &err), &err);
        for (int i = 0; i < 3; i++) {
            const int at = dra_specs_find(dra_model_state(m.model), names[i]);
            expect_ok(dra_states_read(s, at, 0, held[t][i], 8, &err), &err);
        }
        for (int i = 0; i < 64; i++) k[i] = v[i] = 0; /* e^0 and nothing from now on */
        dra_reader_destroy(r);
    }
    for (int i = 0; i < 8; i++) { /* as sums: a = e^p A, b = e^p B */
        const double was = exp((double)held[0][2][i]), is = exp((double)held[1][2][i]);
        const double decay = exp(-exp(0.3));
        const double a = is * (double)held[1][0][i], b = is * (double)held[1][1][i];
        assert_true(fabs(a - decay * was * (double)held[0][0][i]) < 1e-5);
        assert_true(fabs(b - decay * was * (double)held[0][1][i] - 1) < 1e-5);
    }
    dra_states_destroy(s);
    load_free(&m);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The gradient of a value inside; a bias that is added to it has the sum of it over tokens. */
static void check_inner(const char *folder_name, const char *inner, const char *bias)
{
    enum { C = 8 };
    loaded                 m;
    dra_error              err = {0};
    dra_extents            e = {0};
    int32_t                targets[T];
    double                 sum[C] = {0};
    const dra_module_shape shape = {.B = 1, .T = T, .fresh = true};
    load_folder(&m, folder_name);
    const dra_view   view = {.model = m.model, .losses = true, .streams = true, .branches = true};
    const dra_module module = dra_view_module(&view);
    const int        P = dra_specs_count(module.params);
    dra_value       *param = calloc((size_t)P, sizeof *param), d[2];
    dra_graph       *g = check_graph();
    for (int t = 0; t < T; t++) targets[t] = fixture_ids[(t + 1) % T];
    dra_module_graph(g, &module, &shape, param, NULL, NULL);
    const dra_value y = dra_sum_all(g, dra_find_output(g, "losses"));
    const dra_value x[] = {dra_find_output(g, inner), param[dra_specs_find(module.params, bias)]};
    dra_gradient(g, 1, &y, NULL, 2, x, d);
    dra_output(g, "inner", d[0]);
    dra_output(g, "bias", d[1]);
    check_program p = check_compile(g, 1);
    check_bind(&p, "ids", (void *)(uintptr_t)fixture_ids, sizeof fixture_ids);
    check_bind(&p, "targets", targets, sizeof targets);
    for (int i = 0; i < P; i++) {
        const dra_spec *spec = dra_specs_at(module.params, i);
        check_bind(&p, spec->name, (void *)(uintptr_t)dra_weights_at(m.weights, i),
                   (size_t)dra_shape_count(&spec->shape) * sizeof(dra_real));
    }
    expect_ok(dra_extents_fill(&e, module.state, NULL, 1, T, NULL, &err), &err);
    put_extents(p.buffers, &e, false);
    check_run(&p);
    for (int i = 0; i < T * C; i++) sum[i % C] += (double)check_result(&p, "inner")[i];
    check_close(inner, C, check_result(&p, "bias"), sum, 10 * LOADED_TOL);
    dra_extents_free(&e);
    check_free(&p);
    free(param);
    load_free(&m);
}

static void inner_values_have_gradients(void **unused)
{
    save_fixtures();
    check_inner("rwkv", "stream.0", "embed_norm_b");
    check_inner("gpt2", "branch.0", "layers.0.mixer.b_o");
    check_inner("gpt2", "branch.1", "layers.1.mixer.b_o");
    check_inner("gpt2", "stream.2", "layers.1.ff.b_down");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_values_are_all_there),
        cmocka_unit_test(decays_stay_wide),
        cmocka_unit_test(vocabularies_change),
        cmocka_unit_test(embeddings_are_set),
        cmocka_unit_test(runs_repeat),
        cmocka_unit_test(chosen_logits_in_any_order),
        cmocka_unit_test(branches_add_up_to_streams),
        cmocka_unit_test(attention_of_its_own_width),
        cmocka_unit_test(generates_from_embeddings),
        cmocka_unit_test(decays_are_double_exponentials),
        cmocka_unit_test(inner_values_have_gradients),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = cmocka_run_group_tests_name("rwkv_accept", tests, NULL, NULL);
    fixture_remove();
    return failed;
}
