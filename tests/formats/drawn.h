/* Folders with drawn weights, what they say about a text, and conversions. */
#ifndef DRA_TESTS_FORMATS_DRAWN_H
#define DRA_TESTS_FORMATS_DRAWN_H

#include "rwkv/rwkv567.h"
#include "formats/tensor_source.h"
#include "model/model.h"
#include "model/nudge.h"

enum { TOKENS = 20 }; /* of texts */

static inline loaded open_model(const char *path)
{
    loaded    m = {0};
    dra_error err = {0};
    expect_ok(dra_folder_load(path, &m.model, &m.weights, &err), &err);
    return m;
}

/* Logits of a text that is read in parts; to be freed. */
static inline dra_real *logits_of(const loaded *m, const int32_t *ids, int64_t part)
{
    const int64_t words = dra_model_config_of(m->model)->vocab;
    dra_real     *logits = calloc((size_t)(TOKENS * words), sizeof *logits);
    assert_non_null(logits);
    dra_states *s = open_states(m, 1);
    read_rows(m, s, ids, 1, TOKENS, part, logits);
    dra_states_destroy(s);
    return logits;
}

static inline dra_status convert(const char *from, const char *to, dra_format_kind format,
                                 dra_error *err)
{
    CHECK_CONFIG(c);
    expect_ok(dra_folder_config(from, &c, err), err);
    c->format = format;
    const dra_convert_config how = {.from = from, .to = to, .config = c};
    return dra_convert(&how, err);
}

/* A folder with drawn weights of a config in the words of Hugging Face. */
static inline const char *draw(const char *name, const char *json)
{
    CHECK_CONFIG(c);
    dra_model   *m;
    dra_weights *w;
    dra_error    err = {0};
    char         file[400];
    const char  *path = in_folder(name);
    expect_ok(dra_model_config_parse(name, json, strlen(json), &c, &err), &err);
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_ok(dra_model_create(c, &m, &err), &err);
    expect_ok(dra_weights_draw(m, 3, &w, &err), &err);
    for (int i = 0; i < dra_specs_count(dra_model_params(m));
         i++) /* nothing is left as it starts */
        nudge(w, i, dra_shape_count(&dra_specs_at(dra_model_params(m), i)->shape), 0.1);
    expect_ok(dra_folder_save_config(path, c, &err), &err);
    expect_ok(dra_weights_save(w, file, &err), &err);
    dra_weights_destroy(w);
    dra_model_destroy(m);
    return path;
}

static inline void expect_same_logits(const char *a, const char *b, double tol)
{
    int32_t ids[TOKENS];
    loaded  x = open_model(a), y = open_model(b);
    for (int i = 0; i < TOKENS; i++) ids[i] = (7 * i + 3) % 19;
    dra_real    *p = logits_of(&x, ids, TOKENS), *q = logits_of(&y, ids, TOKENS);
    const size_t n = TOKENS * (size_t)dra_model_config_of(x.model)->vocab;
    expect_near(b, n, q, p, tol);
    free(p);
    free(q);
    load_free(&x);
    load_free(&y);
}

#endif
