/* Small models of x-transformers whose parameters a test may set: element t of a parameter named s
 * is what it starts with, where that is a constant, + 0.25 sin(h + 1.7 t + 0.013 t t), h a number
 * made of s. Parameters depend on their names alone, so models share what they have in common. */
#ifndef DRA_TESTS_FORMATS_XT_XT_RECIPE_H
#define DRA_TESTS_FORMATS_XT_XT_RECIPE_H

#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "dra/train.h"
#include "xt_text.h"

enum { RECIPE_V = 10, RECIPE_D = 16, RECIPE_H = 4, RECIPE_T = 8 };

typedef struct recipe {
    dra_model   *model;
    dra_weights *weights;
} recipe;

static inline void recipe_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static inline dra_device *recipe_device(void) { return check_device(2, dra_device_level_at(0)); }

/* ---- parameters ------------------------------------------------------------------------------ */

static inline int64_t recipe_count(const recipe *r, int i)
{
    return dra_shape_count(&dra_specs_at(dra_model_params(r->model), i)->shape);
}

static inline dra_real *recipe_at(const recipe *r, int i)
{
    dra_real *x = dra_weights_edit(r->weights, i);
    assert_non_null(x);
    return x;
}

static inline void recipe_fill(const recipe *r, int i)
{
    const dra_spec *p = dra_specs_at(dra_model_params(r->model), i);
    dra_real       *x = recipe_at(r, i);
    int64_t         sigma = 0;
    for (int64_t c = 0; p->name[c]; c++) sigma += (c + 1) * (unsigned char)p->name[c];
    for (int64_t t = 0; t < recipe_count(r, i); t++) {
        const double k = (double)t, wave = sin((double)(sigma % 997) + 1.7 * k + 0.013 * k * k);
        const double start = p->fill == DRA_FILL_CONST    ? p->number
                             : p->fill == DRA_FILL_VALUES ? p->values[t]
                                                          : 0;
        x[t] = (dra_real)(start + 0.25 * wave);
    }
}

/* From a config of dra or x-transformers; apostrophes stand for quotes. */
static inline recipe recipe_open_text(const char *text)
{
    recipe r = {0};
    CHECK_CONFIG(c);
    dra_error err = {0};
    char      json[XT_TEXT];
    snprintf(json, sizeof json, "%s", text);
    xt_quotes(json);
    recipe_ok(xt_parse(json, &c, &err), &err);
    c->maps = true; /* for views that ask for them */
    recipe_ok(dra_model_create(c, &r.model, &err), &err);
    recipe_ok(dra_weights_draw(r.model, 1, &r.weights, &err), &err);
    for (int i = 0; i < dra_specs_count(dra_model_params(r.model)); i++) recipe_fill(&r, i);
    return r;
}

static inline recipe recipe_open(const char *top, const char *shape, const char *stack)
{
    char text[XT_TEXT];
    return recipe_open_text(xt_config_of(top, shape, stack, text));
}

static inline void recipe_close(recipe *r)
{
    dra_weights_destroy(r->weights);
    dra_model_destroy(r->model);
}

/* The parameter of this name, which must be there. */
static inline dra_real *recipe_param(const recipe *r, const char *name)
{
    const int i = dra_specs_find(dra_model_params(r->model), name);
    if (i < 0) fail_msg("no parameter %s", name);
    return recipe_at(r, i);
}

static inline bool recipe_ends(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Its name ends like this; "/NAME": is NAME. */
static inline bool recipe_named(const char *name, const char *end)
{
    return *end == '/' ? strcmp(name, end + 1) == 0 : recipe_ends(name, end);
}

/* x = factor x + number for all parameters of such names, one at least. */
static inline void recipe_affine(const recipe *r, const char *end, double factor, double number)
{
    int found = 0;
    for (int i = 0; i < dra_specs_count(dra_model_params(r->model)); i++) {
        if (!recipe_named(dra_specs_at(dra_model_params(r->model), i)->name, end)) continue;
        dra_real *x = recipe_at(r, i);
        for (int64_t t = 0; t < recipe_count(r, i); t++)
            x[t] = (dra_real)(factor * (double)x[t] + number);
        found++;
    }
    if (!found) fail_msg("no parameter %s", end);
}

/* ---- reading --------------------------------------------------------------------------------- */

static const int32_t recipe_ids[RECIPE_T] = {1, 5, 3, 9, 0, 7, 2, 4};

typedef struct recipe_text {
    int64_t         B, T;
    const int32_t  *ids;  /* (B, T), or */
    const dra_real *x;    /* (B, T, D) */
    const int32_t  *mark; /* (B, T) or NULL */
    const int32_t  *key;  /* (4): something is dropped out; or NULL */
} recipe_text;

static const recipe_text recipe_plain = {1, RECIPE_T, recipe_ids};

typedef struct recipe_result {
    dra_shape shape;
    int64_t   n;
    dra_real *at; /* to be freed */
} recipe_result;

/* As when learning: a key draws what is dropped out. */
static inline void recipe_build_drops(dra_graph *g, const void *self, const dra_module_call *call,
                                      dra_value *state_out)
{
    const dra_module view = dra_view_module(self);
    dra_module_call  own = *call;
    const dra_value  first = dra_broadcast(g, dra_integer(g, 0), DRA_SHAPE(call->tokens.B));
    own.random = dra_input(g, "key", DRA_I32, DRA_SHAPE(4));
    own.at = own.given_at = first;
    view.build(g, view.self, &own, state_out);
}

static inline dra_view recipe_view(const recipe *r, const recipe_text *t, const char *name)
{
    const bool layer = strncmp(name, "layers.", 7) == 0, scores = recipe_ends(name, ".scores");
    return (dra_view){.model = r->model,
                      .embedded = t->x != NULL,
                      .logits = strcmp(name, "logits") == 0,
                      .hidden = strcmp(name, "hidden") == 0,
                      .hiddens = strncmp(name, "hidden.", 7) == 0,
                      .adds = strncmp(name, "add.", 4) == 0,
                      .streams = strncmp(name, "stream.", 7) == 0,
                      .maps = layer && !scores,
                      .scores = scores};
}

/* The output of this name, see dra_view, of a text read in chunks of this length. */
static inline recipe_result recipe_read_in(const recipe *r, const recipe_text *t, const char *name,
                                           int64_t chunk, dra_reader **reader, dra_states **states)
{
    const dra_view view = recipe_view(r, t, name);
    dra_module     module = dra_view_module(&view);
    recipe_result  out = {0};
    dra_error      err = {0};
    const size_t   each = t->x ? RECIPE_D * sizeof *t->x : sizeof *t->ids;
    const char    *from = t->x ? (const char *)t->x : (const char *)t->ids;
    if (t->key) module.build = recipe_build_drops, module.self = &view;
    recipe_ok(dra_states_create(recipe_device(), module.state, t->B, states, &err), &err);
    recipe_ok(dra_reader_create(recipe_device(), &module, reader, &err), &err);
    recipe_ok(dra_weights_bind(r->weights, *reader, &err), &err);
    for (int64_t at = 0; at < t->T; at += chunk) { /* in parts only if B is 1 */
        const int64_t   n = t->T - at < chunk ? t->T - at : chunk;
        const dra_named in[] = {
            {t->x ? "x" : "ids", from + (size_t)at * each, (size_t)(t->B * n) * each},
            {"key", t->key, 4 * sizeof *t->key}};
        recipe_ok(dra_reader_read(*reader, *states, n, t->mark ? t->mark + at : NULL,
                                  t->key ? 2 : 1, in, &err),
                  &err);
        const dra_real *y = dra_reader_result(*reader, name);
        if (!y || !dra_reader_result_shape(*reader, name, &out.shape)) fail_msg("no %s", name);
        const int64_t more = dra_shape_count(&out.shape);
        out.at = realloc(out.at, (size_t)(out.n + more + 1) * sizeof *y);
        assert_non_null(out.at);
        memcpy(out.at + out.n, y, (size_t)more * sizeof *y);
        out.n += more;
    }
    return out;
}

static inline recipe_result recipe_read(const recipe *r, const recipe_text *t, const char *name)
{
    dra_reader         *reader = NULL;
    dra_states         *states = NULL;
    const recipe_result out = recipe_read_in(r, t, name, t->T, &reader, &states);
    dra_reader_destroy(reader);
    dra_states_destroy(states);
    return out;
}

/* ---- learning -------------------------------------------------------------------------------- */

/* Gradients of the loss when each of the plain tokens is the target of the one before. */
static inline dra_gradients *recipe_learn(const recipe *r, double *loss)
{
    int32_t                    targets[RECIPE_T];
    const dra_gradients_config config = {.model = r->model, .device = recipe_device()};
    const dra_microbatch       batch = {
              .B = 1, .T = RECIPE_T, .ids = recipe_ids, .targets = targets, .no_dropout = true};
    dra_microbatch_result result;
    dra_gradients        *l = NULL;
    dra_error             err = {0};
    for (int t = 0; t < RECIPE_T; t++) targets[t] = t + 1 < RECIPE_T ? recipe_ids[t + 1] : -1;
    recipe_ok(dra_gradients_create(&config, &l, &err), &err);
    recipe_ok(dra_gradients_bind(l, r->weights, &err), &err);
    recipe_ok(dra_gradients_run(l, &batch, &result, &err), &err);
    *loss = result.loss;
    return l;
}

static inline const dra_real *recipe_gradient(const recipe *r, dra_gradients *l, const char *name)
{
    const int i = dra_specs_find(dra_model_params(r->model), name);
    if (i < 0) fail_msg("no parameter %s", name);
    return dra_gradients_of(l, i);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* What sums in another order leave: some units in the last place of the largest number. */
#ifdef DRA_REAL_DOUBLE
#define RECIPE_CLOSE 1e-14
#else
#define RECIPE_CLOSE 4e-6
#endif

/* Largest |a - b| / max |b|. */
static inline double recipe_difference(int64_t n, const dra_real *a, const dra_real *b)
{
    double worst = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d;
        size = fmax(size, fabs((double)b[i]));
    }
    return size > 0 ? worst / size : worst;
}

/* tol 0: the same bits (0 and -0 are one number), which CUDA does not promise. */
static inline void recipe_same(const char *what, int64_t n, const dra_real *a, const dra_real *b,
                               double tol)
{
    if (check_cuda()) tol = fmax(tol, 5e-5);
    const double d = recipe_difference(n, a, b);
    if (!(d <= tol)) fail_msg("%s: differs by %.3g, expected at most %.3g", what, d, tol);
}

#endif
