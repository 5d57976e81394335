/* RWKV 5 to 7 in tests: random models of V 48, C 32, 2 heads of 16, and their tokens. */
#ifndef DRA_TESTS_FORMATS_RWKV_RWKV567_H
#define DRA_TESTS_FORMATS_RWKV_RWKV567_H

#include "model/fixtures.h"
#include "sequence/states.h"
#include "shared.h"
#include "trial.h"

enum { WORDS = 48, WIDTH = 32, LENGTH = 70, ROWS = 2, SOME = 20 };

#ifdef DRA_REAL_DOUBLE
#define LOGITS_TOL 2e-7 /* references are float32 */
#define GRADS_TOL 5e-7
#else
#define LOGITS_TOL 5e-6
#define GRADS_TOL (check_cuda() ? 1e-4 : 5e-5) /* there as in cuda/test_two_devices */
#endif

/* ---- what is compared ------------------------------------------------------------------------ */

/* The largest difference, relative to the largest number that is expected. */
static inline void expect_near(const char *what, size_t n, const dra_real *x, const dra_real *y,
                               double tol)
{
    double most = 0, off = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)y[i]));
        off = fmax(off, fabs((double)x[i] - (double)y[i]));
        if (!isfinite((double)x[i])) fail_msg("%s: number %zu is not finite", what, i);
    }
    if (!(off <= tol * most)) fail_msg("%s: off by %g of %g", what, off, most);
}

/* The numbers of a tensor; to be freed. */
static inline dra_real *numbers(const dra_tensors *t, const char *name, size_t *n)
{
    const dra_tensor_info *info = dra_tensors_find(t, name);
    if (!info) fail_msg("%s is not there", name);
    *n = (size_t)dra_shape_count(&info->shape);
    dra_real *x = malloc(*n * sizeof *x + 1);
    assert_non_null(x);
    assert_true(dra_tensor_copy(info, 0, *n, DRA_REAL, x));
    return x;
}

static inline void ids_of(const dra_tensors *t, int64_t from, int64_t count, int32_t *ids)
{
    const dra_tensor_info *info = dra_tensors_find(t, "ids");
    assert_non_null(info);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t i = 0; i < count; i++) {
            int64_t id;
            memcpy(&id, (const char *)info->data + 8 * (r * (LENGTH + 1) + from + i), sizeof id);
            ids[r * count + i] = (int32_t)id;
        }
}

static inline dra_reader *open_reader(const loaded *m, const dra_view *view)
{
    const dra_module module = dra_view_module(view);
    dra_error        err = {0};
    dra_reader      *r = NULL;
    expect_ok(dra_reader_create(check_device(2, dra_device_level_at(0)), &module, &r, &err), &err);
    expect_ok(dra_weights_bind(m->weights, r, &err), &err);
    return r;
}

static inline dra_states *open_states(const loaded *m, int64_t B)
{
    dra_states *s = NULL;
    dra_error   err = {0};
    expect_ok(dra_states_create(check_device(2, dra_device_level_at(0)), dra_model_state(m->model),
                                B, &s, &err),
              &err);
    return s;
}

/* Logits of rows of ids (B, N), which are read in parts of `part` tokens. */
static inline void read_rows(const loaded *m, dra_states *s, const int32_t *ids, int64_t B,
                             int64_t N, int64_t part, dra_real *logits)
{
    const dra_view view = {.model = m->model, .logits = true};
    dra_error      err = {0};
    dra_reader    *r = open_reader(m, &view);
    const int64_t  words = dra_model_config_of(m->model)->vocab;
    for (int64_t t = 0; t < N; t += part) {
        const int64_t n = N - t < part ? N - t : part;
        int32_t      *some = calloc((size_t)(B * n), sizeof *some);
        assert_non_null(some);
        for (int64_t b = 0; b < B; b++)
            memcpy(some + b * n, ids + b * N + t, (size_t)n * sizeof *some);
        const dra_named in = {"ids", some, (size_t)(B * n) * sizeof *some};
        expect_ok(dra_reader_read(r, s, n, NULL, 1, &in, &err), &err);
        const dra_real *y = dra_reader_result(r, "logits");
        for (int64_t b = 0; b < B; b++)
            memcpy(logits + (b * N + t) * words, y + b * n * words,
                   (size_t)(n * words) * sizeof *logits);
        free(some);
    }
    dra_reader_destroy(r);
}

#define DATA "tests/data/rwkv567/"

static const int32_t ids_5[SOME] = {16, 0,  43, 13, 17, 30, 4,  22, 21, 22,
                                    22, 13, 37, 2,  47, 26, 39, 15, 36, 46};
static const int32_t ids_52[SOME] = {21, 12, 27, 45, 39, 6, 12, 7,  32, 21,
                                     10, 11, 11, 42, 3,  3, 17, 35, 33, 37};
static const int32_t ids_6[SOME] = {41, 29, 21, 21, 27, 29, 38, 36, 31, 31,
                                    32, 8,  26, 12, 41, 26, 21, 34, 10, 9};
static const int32_t ids_7[SOME] = {31, 5,  2,  31, 39, 1,  16, 8,  39, 17,
                                    9,  22, 41, 23, 20, 36, 20, 13, 30, 22};

static const int32_t ids_tiny[] = {34, 105, 110}; /* of rwkv.cpp's tiny models, V 256 */

/* Of 5.0, of 5.2, of 6 and 7. */
static inline const int32_t *ids_of_model(const dra_model_config *c)
{
    const int version = dra_model_config_rwkv(c);
    if (c->vocab != WORDS) return ids_tiny;
    if (version == 5) return c->mixer[0].gate_values == DRA_GATE_NONE ? ids_5 : ids_52;
    return version == 6 ? ids_6 : ids_7;
}

/* The logits of a model, a file or a folder, are those under `name` in `expected`. */
static inline void expect_logits(const char *path, const char *expected, const char *name,
                                 double tol)
{
    loaded       m = {0};
    dra_error    err = {0};
    dra_tensors *t = NULL;
    size_t       n;
    dra_real     logits[SOME * WORDS];
    expect_ok(dra_folder_load(path, &m.model, &m.weights, &err), &err);
    expect_ok(dra_tensors_open(expected, &t, &err), &err);
    dra_real      *want = numbers(t, name, &n);
    const int32_t *ids = ids_of_model(dra_model_config_of(m.model));
    const int64_t  N = (int64_t)n / dra_model_config_of(m.model)->vocab;
    assert_true(n <= SOME * WORDS);
    for (int64_t part = N; part > 0; part -= N / 2 + 3) {
        dra_states *s = open_states(&m, 1);
        read_rows(&m, s, ids, 1, N, part, logits);
        expect_near(path, n, logits, want, tol);
        dra_states_destroy(s);
    }
    free(want);
    dra_tensors_close(t);
    load_free(&m);
}

static inline dra_status convert_as(const char *from, const char *to, dra_format_kind format,
                                    double eps, dra_dtype dtype, bool cpp, dra_error *err)
{
    CHECK_CONFIG(c);
    expect_ok(dra_folder_config(from, &c, err), err);
    c->format = format;
    if (eps > 0) check_mixers(c)->a.head_norm_eps = eps;
    dra_convert_config how = {.from = from, .to = to, .config = c, .dtype = dtype, .cpp = cpp};
    return dra_convert(&how, err);
}

static inline void expect_same_file(const char *a, const char *b)
{
    char     *x, *y;
    size_t    n, m;
    dra_error err = {0};
    expect_ok(dra_file_read(a, 1 << 24, &x, &n, &err), &err);
    expect_ok(dra_file_read(b, 1 << 24, &y, &m, &err), &err);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

#endif
