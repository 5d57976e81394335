/* What tests of generators share that compare them with plain loops: small models, and logits read
 * from scratch for every text. */
#ifndef DRA_TESTS_GENERATE_WRITERS_H
#define DRA_TESTS_GENERATE_WRITERS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/generate.h"

enum { TEXT = 64, WIDE = 256 }; /* the longest text and the largest vocabulary of these tests */

typedef struct writer {
    dra_model   *model;
    dra_weights *weights;
    dra_device  *device; /* NULL: that of another */
} writer;

static inline void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static inline void enlarge(writer *w, const char *name, dra_real by)
{
    const dra_specs *specs = dra_model_params(w->model);
    const int        i = dra_specs_find(specs, name);
    const dra_shape *shape = &dra_specs_at(specs, i)->shape;
    dra_real        *x = dra_weights_edit(w->weights, i);
    for (int64_t k = 0; k < shape->dim[0] * shape->dim[1]; k++) x[k] *= by;
}

/* Likely tokens are likelier than at first, so that rounding does not decide; the head is its own,
 * so that they are not just the last one again. */
static inline writer open_writer(const char *preset, int64_t V, uint64_t seed)
{
    writer w = {0};
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_preset_config(preset, &c, &err), &err);
    c->dim = 24, c->heads = 2, c->depth = 2, c->context = TEXT, c->vocab = V, c->tied = DRA_OFF;
    expect_ok(dra_model_create(c, &w.model, &err), &err);
    expect_ok(dra_weights_draw(w.model, seed, &w.weights, &err), &err);
    enlarge(&w, "embedding", 2);
    enlarge(&w, "head", (dra_real)2.5);
    expect_ok(check_cpu(NULL, &w.device, &err), &err);
    return w;
}

static inline writer open_folder(const char *path)
{
    writer w = {0};
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_folder_config(path, &c, &err), &err);
    expect_ok(dra_model_create(c, &w.model, &err), &err);
    expect_ok(dra_weights_load(w.model, path, &w.weights, &err), &err);
    expect_ok(check_cpu(NULL, &w.device, &err), &err);
    return w;
}

static inline void close_writer(writer *w)
{
    dra_weights_destroy(w->weights);
    dra_model_destroy(w->model);
    dra_device_destroy(w->device);
}

static inline dra_generator_config config_of(const writer *w, int64_t rows)
{
    return (dra_generator_config){
        .model = w->model, .weights = w->weights, .device = w->device, .rows = rows};
}

static inline dra_generator *open_config(dra_generator_config c)
{
    dra_generator *g;
    dra_error      err = {0};
    expect_ok(dra_generator_create(&c, &g, &err), &err);
    return g;
}

static inline void make_prompt(int64_t V, int32_t *ids, int n, int which)
{
    for (int32_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 37 + i * i * 11 + 5 * which) % V);
}

static inline void feed(dra_generator *g, int64_t row, int n, const int32_t *ids)
{
    dra_error err = {0};
    expect_ok(dra_generator_read(g, row, (size_t)n, ids, &err), &err);
}

/* Logits (V) after a text, all of it read at once by a row that has read nothing. */
static inline const dra_real *read_whole(dra_generator *g, int n, const int32_t *ids)
{
    const dra_real *x;
    dra_error       err = {0};
    expect_ok(dra_generator_reset(g, 0, &err), &err);
    feed(g, 0, n, ids);
    expect_ok(dra_generator_logits(g, 0, &x, &err), &err);
    return x;
}

/* With the repetition penalty r for tokens of the text; log-probabilities. */
static inline void log_probs(int64_t V, const dra_real *x, double r, int n, const int32_t *ids,
                             double *out)
{
    double max = -INFINITY, sum = 0;
    for (int64_t v = 0; v < V; v++) {
        bool seen = false;
        for (int i = 0; i < n; i++) seen = seen || ids[i] == v;
        out[v] = (double)x[v];
        if (seen && r > 0) out[v] = out[v] > 0 ? out[v] / r : out[v] * r;
        max = fmax(max, out[v]);
    }
    for (int64_t v = 0; v < V; v++) sum += exp(out[v] - max);
    for (int64_t v = 0; v < V; v++) out[v] -= max + log(sum);
}

static inline void expect_tokens(const char *what, const dra_generated *a, size_t n,
                                 const int32_t *ids)
{
    if (a->n != n) fail_msg("%s: %zu tokens, expected %zu", what, a->n, n);
    for (size_t i = 0; i < n; i++)
        if (a->ids[i] != ids[i])
            fail_msg("%s: token %zu is %d, expected %d", what, i, a->ids[i], ids[i]);
}

/* Scores are sums of a few rounded logits, of the size of 10. */
static inline void expect_score(const char *what, double score, double expected)
{
    const double tolerance = sizeof(dra_real) == 4 ? 1e-4 : 1e-10;
    if (!(fabs(score - expected) <= tolerance * (1 + fabs(expected))))
        fail_msg("%s: score %.9g, expected %.9g", what, score, expected);
}

#endif
