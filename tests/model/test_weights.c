/* Weights used in place in files: GPT-2's matrices (in, out), three in one, in f32, f16 and bf16;
 * dense ones when asked for; the same bits either way. */
#include "fixtures.h"

#include <pthread.h>

#include "base/shape.h"
#include "dra/generate.h"
#include "sequence/module.h"

/* ---- folders --------------------------------------------------------------------------------- */

enum { DIM = 160, WORDS = 50, TOKENS = 11 }; /* some products are large enough to be cut */

static const fixture_row wide_rows[] = {{"wte.weight", MATRIX, {2, {WORDS, DIM}}},
                                        {"wpe.weight", MATRIX, {2, {16, DIM}}},
                                        {"h.*.ln_1.weight", GAIN, {1, {DIM}}},
                                        {"h.*.ln_1.bias", BIAS, {1, {DIM}}},
                                        {"h.*.attn.c_attn.weight", MATRIX, {2, {DIM, 3 * DIM}}},
                                        {"h.*.attn.c_attn.bias", BIAS, {1, {3 * DIM}}},
                                        {"h.*.attn.c_proj.weight", MATRIX, {2, {DIM, DIM}}},
                                        {"h.*.attn.c_proj.bias", BIAS, {1, {DIM}}},
                                        {"h.*.ln_2.weight", GAIN, {1, {DIM}}},
                                        {"h.*.ln_2.bias", BIAS, {1, {DIM}}},
                                        {"h.*.mlp.c_fc.weight", MATRIX, {2, {DIM, 4 * DIM}}},
                                        {"h.*.mlp.c_fc.bias", BIAS, {1, {4 * DIM}}},
                                        {"h.*.mlp.c_proj.weight", MATRIX, {2, {4 * DIM, DIM}}},
                                        {"h.*.mlp.c_proj.bias", BIAS, {1, {DIM}}},
                                        {"ln_f.weight", GAIN, {1, {DIM}}},
                                        {"ln_f.bias", BIAS, {1, {DIM}}},
                                        {0}};

static const char wide_config[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 50, \"n_positions\": 16, \"n_embd\": 160, "
    "\"n_layer\": 2, \"n_head\": 4, \"resid_pdrop\": 0.0, \"embd_pdrop\": 0.0, "
    "\"attn_pdrop\": 0.0}";

/* What a file holds: each dtype that it may have. */
static const dra_dtype dtypes[] = {DRA_F32, DRA_F64, DRA_F16, DRA_BF16};
static const char     *folders[] = {"f32", "f64", "f16", "bf16"};

static dra_tensor_item item_as(const dra_tensor_item *from, dra_dtype dtype)
{
    const size_t    n = (size_t)dra_shape_count(&from->shape), size = dra_dtype_bytes(dtype);
    const dra_real *x = from->data;
    unsigned char  *to = malloc(n * size);
    assert_non_null(to);
    for (size_t i = 0; i < n; i++) {
        const double   wide = (double)x[i];
        const float    f = (float)x[i];
        const uint16_t half = dtype == DRA_F16 ? dra_f32_to_f16(f) : dra_f32_to_bf16(f);
        const void    *at = &half;
        if (dtype == DRA_F32) at = &f;
        if (dtype == DRA_F64) at = &wide;
        memcpy(to + i * size, at, size);
    }
    return (dra_tensor_item){from->name, dtype, from->shape, to};
}

/* A folder for each dtype. */
static void make_folders(void)
{
    fixture f;
    fixture_make(&f, wide_rows, 2, "transformer.", "lm_head.weight");
    for (size_t d = 0; d < COUNT(dtypes); d++) {
        fixture as = f;
        for (int i = 0; i < f.n; i++) as.item[i] = item_as(&f.item[i], dtypes[d]);
        fixture_save(&as, folders[d], wide_config);
        fixture_free(&as);
    }
    fixture_free(&f);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void read_in(const loaded *m, int threads, const char *level, int64_t chunk,
                    dra_real logits[TOKENS * WORDS])
{
    const dra_view   view = {.model = m->model, .logits = true};
    const dra_module module = dra_view_module(&view);
    int32_t          ids[TOKENS];
    dra_error        err = {0};
    dra_reader      *r = NULL;
    dra_states      *s = NULL;
    for (int t = 0; t < TOKENS; t++) ids[t] = (7 * t + 3) % WORDS;
    expect_ok(dra_states_create(check_device(threads, level), module.state, 1, &s, &err), &err);
    expect_ok(dra_reader_create(check_device(threads, level), &module, &r, &err), &err);
    expect_ok(dra_weights_bind(m->weights, r, &err), &err);
    for (int64_t t = 0; t < TOKENS; t += chunk) {
        const int64_t   n = TOKENS - t < chunk ? TOKENS - t : chunk;
        const dra_named in = {"ids", ids + t, (size_t)n * sizeof *ids};
        expect_ok(dra_reader_read(r, s, n, NULL, 1, &in, &err), &err);
        memcpy(logits + t * WORDS, dra_reader_result(r, "logits"),
               (size_t)(n * WORDS) * sizeof *logits);
    }
    dra_reader_destroy(r);
    dra_states_destroy(s);
}

static void expect_same(const loaded *a, const loaded *b)
{
    static const int threads[] = {1, 2, 7};
    static dra_real  x[TOKENS * WORDS], y[TOKENS * WORDS];
    const char      *levels[] = {"ref", dra_device_level_at(0)};
    for (size_t l = 0; l < COUNT(levels); l++)
        for (size_t t = 0; t < COUNT(threads); t++) {
            read_in(b, 1, levels[l], TOKENS, y);
            for (int64_t chunk = 1; chunk <= TOKENS; chunk += 5) {
                read_in(a, threads[t], levels[l], chunk, x);
                check_reals(x, y, sizeof x);
            }
        }
}

static void edit_all(loaded *m)
{
    for (int i = 0; i < dra_specs_count(dra_model_params(m->model)); i++)
        assert_non_null(dra_weights_edit(m->weights, i));
}

/* Whether all matrices have the layout of the file of this dtype, tables included. */
static void expect_in_place(const loaded *m, dra_dtype dtype)
{
    const dra_specs *params = dra_model_params(m->model);
    const bool       taken = dtype == DRA_REAL || dtype == DRA_F16 || dtype == DRA_BF16;
    for (int i = 0; i < dra_specs_count(params); i++) {
        const dra_spec  *p = dra_specs_at(params, i);
        const char      *end = strrchr(p->name, '.');
        const int        part = !end                       ? -1
                                : strcmp(end, ".W_q") == 0 ? 0
                                : strcmp(end, ".W_k") == 0 ? 1
                                : strcmp(end, ".W_v") == 0 ? 2
                                                           : -1;
        dra_param_layout form, should = {DRA_REAL};
        assert_non_null(dra_weights_stored(m->weights, i, &form));
        if (p->product && taken)
            should = (dra_param_layout){dtype, end != NULL, part < 0 ? 0 : part, part < 0 ? 0 : 3};
        if (!dra_param_layout_equal(&form, &should)) fail_msg("%s has another layout", p->name);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void the_same_bits_where_they_lie(void **unused)
{
    for (size_t d = 0; d < COUNT(dtypes); d++) {
        loaded there, dense;
        load_folder(&there, folders[d]);
        load_folder(&dense, folders[d]);
        expect_in_place(&there, dtypes[d]);
        edit_all(&dense);
        expect_same(&there, &dense);
        load_free(&there);
        load_free(&dense);
    }
}

/* Learning asks for dense numbers: they are those of one that was edited, and stay. */
static void learning_makes_them_dense(void **unused)
{
    for (size_t d = 0; d < COUNT(dtypes); d++) {
        loaded           m[2];
        double           loss[2];
        dra_param_layout form;
        dra_gradients   *l[2];
        for (int i = 0; i < 2; i++) {
            load_folder(&m[i], folders[d]);
            if (i) edit_all(&m[i]);
            l[i] = load_learn(&m[i], &loss[i]);
        }
        assert_true(loss[0] == loss[1]);
        const dra_specs *params = dra_model_params(m[0].model);
        for (int i = 0; i < dra_specs_count(params); i++) {
            const size_t n = (size_t)dra_shape_count(&dra_specs_at(params, i)->shape);
            check_reals(dra_gradients_of(l[0], i), dra_gradients_of(l[1], i), n * sizeof(dra_real));
            assert_ptr_equal(dra_weights_stored(m[0].weights, i, &form),
                             dra_weights_at(m[0].weights, i));
            assert_true(dra_param_layout_equal(&form, &(dra_param_layout){DRA_REAL}));
        }
        for (int i = 0; i < 2; i++) {
            dra_gradients_destroy(l[i]);
            load_free(&m[i]);
        }
    }
}

static void expect_files_equal(const char *a, const char *b)
{
    dra_tensors *x, *y;
    dra_error    err = {0};
    expect_ok(dra_tensors_open(in_folder(a), &x, &err), &err);
    expect_ok(dra_tensors_open(in_folder(b), &y, &err), &err);
    assert_int_equal(dra_tensors_count(x), dra_tensors_count(y));
    for (size_t i = 0; i < dra_tensors_count(x); i++) {
        const dra_tensor_info *s = dra_tensors_at(x, i), *t = dra_tensors_find(y, s->name);
        assert_true(t && t->dtype == s->dtype && dra_shape_equal(&t->shape, &s->shape));
        assert_memory_equal(s->data, t->data, s->bytes);
    }
    dra_tensors_close(x);
    dra_tensors_close(y);
}

static void expect_dtype(const char *file, const char *name, dra_dtype dtype)
{
    dra_tensors *t = NULL;
    dra_error    err = {0};
    expect_ok(dra_tensors_open(in_folder(file), &t, &err), &err);
    const dra_tensor_info *info = dra_tensors_find(t, name);
    assert_non_null(info);
    assert_int_equal(info->dtype, dtype);
    dra_tensors_close(t);
}

/* Bytes that were read are written; asking for dense numbers does not change them, editing does. */
static void saved_as_they_were(void **unused)
{
    for (size_t d = 0; d < COUNT(dtypes); d++) {
        loaded    m;
        char      path[64];
        dra_error err = {0};
        load_folder(&m, folders[d]);
        snprintf(path, sizeof path, "%s/model.safetensors", folders[d]);
        expect_ok(dra_weights_save(m.weights, in_folder("again.safetensors"), &err), &err);
        expect_files_equal(path, "again.safetensors");
        for (int i = 0; i < dra_specs_count(dra_model_params(m.model)); i++)
            assert_non_null(dra_weights_at(m.weights, i));
        expect_ok(dra_weights_save(m.weights, in_folder("again.safetensors"), &err), &err);
        expect_files_equal(path, "again.safetensors");
        edit_all(&m);
        expect_ok(dra_weights_save(m.weights, in_folder("again.safetensors"), &err), &err);
        if (dtypes[d] == DRA_REAL) expect_files_equal(path, "again.safetensors");
        expect_dtype("again.safetensors", "transformer.h.0.mlp.c_fc.weight", DRA_REAL);
        load_free(&m);
    }
}

/* One of three parts edited: the tensor is put together again. */
static void saved_after_one_edit(void **unused)
{
    loaded    m, again;
    dra_error err = {0};
    load_folder(&m, "f16");
    fixture_folder("edited", wide_config);
    const dra_specs *params = dra_model_params(m.model);
    const int        at = dra_specs_find(params, "layers.1.mixer.W_k");
    dra_weights_edit(m.weights, at)[5 * DIM + 3] = 17;
    expect_ok(dra_weights_save(m.weights, in_folder("edited/model.safetensors"), &err), &err);
    load_folder(&again, "edited");
    for (int i = 0; i < dra_specs_count(params); i++)
        assert_memory_equal(dra_weights_at(m.weights, i), dra_weights_at(again.weights, i),
                            (size_t)dra_shape_count(&dra_specs_at(params, i)->shape) *
                                sizeof(dra_real));
    assert_true(dra_weights_at(again.weights, at)[5 * DIM + 3] == 17);
    load_free(&again);
    load_free(&m);
}

/* bf16 of whatever is stored there; what is bf16 stays where it is. */
static void shortened_from_where_they_lie(void **unused)
{
    for (size_t d = 0; d < COUNT(dtypes); d++) {
        loaded    there, dense;
        dra_error err = {0};
        load_folder(&there, folders[d]);
        load_folder(&dense, folders[d]);
        edit_all(&dense);
        expect_ok(dra_weights_to_bf16(there.weights, &err), &err);
        expect_ok(dra_weights_to_bf16(dense.weights, &err), &err);
        if (dtypes[d] == DRA_BF16) expect_in_place(&there, DRA_BF16);
        expect_same(&there, &dense);
        for (int i = 0; i < dra_specs_count(dra_model_params(there.model)); i++)
            assert_non_null(dra_weights_at(there.weights, i));
        expect_same(&there, &dense);
        load_free(&there);
        load_free(&dense);
    }
}

/* A state belongs to the numbers of the weights, not to their layout. */
static void states_fit_dense_weights(void **unused)
{
    const int32_t ids[] = {1, 2, 3};
    for (size_t d = 0; d < COUNT(dtypes); d++) {
        dra_error err = {0};
        for (int dense = 0; dense < 2; dense++) {
            loaded         m;
            dra_generator *g;
            load_folder(&m, folders[d]);
            if (dense) edit_all(&m);
            const dra_generator_config c = {m.model, m.weights, check_device(1, "ref")};
            expect_ok(dra_generator_create(&c, &g, &err), &err);
            if (dense)
                expect_ok(dra_generator_load(g, in_folder("state"), &err), &err);
            else
                expect_ok(dra_generator_read(g, 0, COUNT(ids), ids, &err), &err);
            expect_ok(dra_generator_save(g, in_folder("state"), &err), &err);
            dra_generator_destroy(g);
            load_free(&m);
        }
    }
}

/* A reader follows weights that were made dense or edited since it read them. */
static void a_reader_is_bound_anew(void **unused)
{
    const int32_t   id = 3;
    const dra_named in = {"ids", &id, sizeof id};
    loaded          m;
    dra_reader     *r;
    dra_states     *s;
    dra_error       err = {0};
    dra_real        first[WORDS];
    load_folder(&m, "f16");
    const dra_view   view = {.model = m.model, .logits = true};
    const dra_module module = dra_view_module(&view);
    expect_ok(dra_states_create(check_device(1, "ref"), module.state, 1, &s, &err), &err);
    expect_ok(dra_reader_create(check_device(1, "ref"), &module, &r, &err), &err);
    for (int round = 0; round < 3; round++) {
        const int at = dra_specs_find(module.params, "layers.0.ff.W_up");
        if (round == 1) assert_non_null(dra_weights_at(m.weights, at));
        if (round == 2) dra_weights_edit(m.weights, at)[0] += 1;
        expect_ok(dra_weights_bind(m.weights, r, &err), &err);
        expect_ok(dra_states_reset(s, -1, &err), &err);
        expect_ok(dra_reader_read(r, s, 1, NULL, 1, &in, &err), &err);
        const dra_real *logits = dra_reader_result(r, "logits");
        if (round == 0) memcpy(first, logits, sizeof first);
        if (round < 2)
            check_reals(logits, first, sizeof first);
        else
            assert_true(memcmp(first, logits, sizeof first) != 0);
    }
    /* What is refused changes nothing. */
    memcpy(first, dra_reader_result(r, "logits"), sizeof first);
    const size_t bytes = (size_t)dra_shape_count(&dra_specs_at(module.params, 0)->shape) *
                         sizeof(dra_real);
    assert_int_equal(dra_reader_borrow(r, dra_specs_at(module.params, 0)->name,
                                       (dra_param_layout){DRA_REAL, .transposed = true}, NULL,
                                       bytes, &err),
                     DRA_ERR_VALUE);
    expect_ok(dra_states_reset(s, -1, &err), &err);
    expect_ok(dra_reader_read(r, s, 1, NULL, 1, &in, &err), &err);
    check_reals(first, dra_reader_result(r, "logits"), sizeof first);
    dra_reader_destroy(r);
    dra_states_destroy(s);
    load_free(&m);
}

/* A file whose numbers start anywhere: they are copied. */
static void misaligned_files_are_copied(void **unused)
{
    for (size_t d = 0; d < COUNT(dtypes); d++) {
        loaded           odd, even;
        char             path[64], *data;
        size_t           bytes;
        uint64_t         header;
        dra_error        err = {0};
        dra_param_layout form;
        snprintf(path, sizeof path, "%s/model.safetensors", folders[d]);
        expect_ok(dra_file_read(in_folder(path), 1 << 26, &data, &bytes, &err), &err);
        memcpy(&header, data, sizeof header);
        char *odd_data = malloc(bytes + 1);
        assert_non_null(odd_data);
        memcpy(odd_data, data, 8 + header);
        memcpy(odd_data + 8 + header + 1, data + 8 + header, bytes - 8 - header);
        odd_data[8 + header++] = ' ';
        memcpy(odd_data, &header, sizeof header);
        fixture_folder("odd", wide_config);
        put_file("odd/model.safetensors", odd_data, bytes + 1);
        free(odd_data);
        free(data);
        load_folder(&odd, "odd");
        load_folder(&even, folders[d]);
        for (int i = 0; i < dra_specs_count(dra_model_params(odd.model)); i++) {
            dra_weights_stored(odd.weights, i, &form);
            assert_true(dra_param_layout_equal(&form, &(dra_param_layout){DRA_REAL}));
        }
        expect_same(&odd, &even);
        load_free(&odd);
        load_free(&even);
    }
}

/* What more than products read is dense. */
static void only_products_take_other_forms(void **unused)
{
    const uint16_t half[DIM] = {0};
    loaded         m;
    dra_reader    *r;
    dra_error      err = {0};
    load_folder(&m, "f32");
    const dra_view   view = {.model = m.model, .logits = true};
    const dra_module module = dra_view_module(&view);
    expect_ok(dra_reader_create(check_device(1, "ref"), &module, &r, &err), &err);
    assert_int_equal(
        dra_reader_borrow(r, "norm_g", (dra_param_layout){DRA_BF16}, half, sizeof half, &err),
        DRA_ERR_DTYPE);
    assert_string_equal(err.text, "reader: parameter norm_g cannot be bf16");
    dra_reader_destroy(r);
    load_free(&m);
}

static void *ask_all(void *user)
{
    const loaded *m = user;
    for (int i = 0; i < dra_specs_count(dra_model_params(m->model)); i++)
        if (!dra_weights_at(m->weights, i)) return NULL;
    return user;
}

static void threads_may_ask_at_once(void **unused)
{
    loaded    m;
    pthread_t thread[4];
    load_folder(&m, "f16");
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&thread[i], NULL, ask_all, &m), 0);
    for (int i = 0; i < 4; i++) {
        void *done = NULL;
        assert_int_equal(pthread_join(thread[i], &done), 0);
        assert_ptr_equal(done, &m);
    }
    load_free(&m);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t resident(void)
{
    size_t all = 0, pages = 0;
    FILE  *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%zu %zu", &all, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

enum { LARGE_DIM = 512 };

/* 25 MB of GPT-2, or 50 in double: what is not touched takes no memory. */
static void loading_touches_little(void **unused)
{
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"vocab_size\": 300, \"n_positions\": 16, \"n_embd\": 512, "
        "\"n_layer\": 2, \"n_head\": 4}";
    fixture_row rows[COUNT(wide_rows)];
    fixture     f;
    loaded      m;
    memcpy(rows, wide_rows, sizeof rows);
    for (size_t i = 0; rows[i].name; i++)
        for (int32_t k = 0; k < rows[i].shape.rank; k++) {
            int64_t *n = &rows[i].shape.dim[k];
            *n = *n == WORDS ? 300 : *n % DIM ? *n : *n / DIM * LARGE_DIM;
        }
    fixture_make(&f, rows, 2, "transformer.", "lm_head.weight");
    fixture_save(&f, "large", config);
    fixture_free(&f);
    const size_t before = resident();
    load_folder(&m, "large");
    const size_t after = resident();
    if (before == 0) skip(); /* no such file on this system */
    if (after > before + (2 << 20)) fail_msg("loading took %zu bytes", after - before);
    load_free(&m);
}

/* NaN and infinity, wherever they lie, in every form that weights have in files. */
static void what_is_not_finite_is_counted(void **unused)
{
    for (size_t d = 0; d < COUNT(dtypes); d++) {
        loaded      m, again;
        const char *first = "";
        dra_error   err = {0};
        load_folder(&m, folders[d]);
        const dra_specs *params = dra_model_params(m.model);
        assert_int_equal(dra_weights_not_finite(m.weights, &first), 0);
        assert_null(first);
        const int k = dra_specs_find(params, "layers.0.mixer.W_k");
        const int b = dra_specs_find(params, "layers.1.ff.b_down");
        dra_weights_edit(m.weights, k)[DIM * DIM - 1] = (dra_real)NAN;
        dra_weights_edit(m.weights, b)[3] = (dra_real)-INFINITY;
        assert_int_equal(dra_weights_not_finite(m.weights, &first), 2);
        assert_string_equal(first, "layers.0.mixer.W_k");
        expect_ok(dra_weights_save(m.weights, in_folder("broken.safetensors"), &err), &err);
        expect_ok(dra_weights_load(m.model, in_folder("broken.safetensors"), &again.weights, &err),
                  &err);
        assert_int_equal(dra_weights_not_finite(again.weights, &first), 2);
        expect_ok(dra_weights_to_bf16(m.weights, &err), &err);
        assert_int_equal(dra_weights_not_finite(m.weights, &first), 2);
        dra_weights_destroy(again.weights);
        load_free(&m);
    }
}

static void a_folder_may_be_loaded_without_weights(void **unused)
{
    dra_model *m = NULL;
    dra_error  err = {0};
    expect_ok(dra_folder_load(in_folder("f32"), &m, NULL, &err), &err);
    assert_int_equal(dra_model_config_of(m)->dim, DIM);
    dra_model_destroy(m);
    assert_int_equal(dra_folder_load(in_folder("f32"), NULL, NULL, &err), DRA_ERR_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_where_they_lie),
        cmocka_unit_test(learning_makes_them_dense),
        cmocka_unit_test(saved_as_they_were),
        cmocka_unit_test(saved_after_one_edit),
        cmocka_unit_test(shortened_from_where_they_lie),
        cmocka_unit_test(states_fit_dense_weights),
        cmocka_unit_test(a_reader_is_bound_anew),
        cmocka_unit_test(misaligned_files_are_copied),
        cmocka_unit_test(only_products_take_other_forms),
        cmocka_unit_test(threads_may_ask_at_once),
        cmocka_unit_test(loading_touches_little),
        cmocka_unit_test(what_is_not_finite_is_counted),
        cmocka_unit_test(a_folder_may_be_loaded_without_weights),
    };
    if (folder_make(NULL) != 0) return 1;
    make_folders();
    const int failed = cmocka_run_group_tests_name("weights", tests, NULL, NULL);
    fixture_remove();
    return failed;
}
