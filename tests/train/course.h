/* A small model of a preset with weights, tokens and what computes gradients of it. */
#ifndef DRA_TESTS_TRAIN_COURSE_H
#define DRA_TESTS_TRAIN_COURSE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/train.h"

#ifdef DRA_REAL_DOUBLE
#define EQUAL 1e-11 /* a sum over all layers of sums that are equal to 1e-12 */
#else
#define EQUAL 5e-5
#endif

enum { B = 2, T = 30, V = 256 };

static inline void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

typedef struct course {
    dra_model     *model;
    dra_weights   *weights;
    dra_device    *device;
    dra_gradients *gradients;
    int32_t        ids[B * T], targets[B * T], mark[B * T];
} course;

enum { DROPS_BRANCHES = 1, DROPS_ATTENTION = 2, DROPS_EMBEDDED = 4 };

/* Fields to set in what a preset says, until a name is missing. */
typedef struct change {
    const char *name, *value;
} change;

static inline void open_model(course *c, const dra_model_config *config,
                              const dra_gradients_config *with)
{
    dra_error err = {0};
    expect_ok(dra_model_create(config, &c->model, &err), &err);
    expect_ok(dra_weights_draw(c->model, 5, &c->weights, &err), &err);
    expect_ok(check_cpu(NULL, &c->device, &err), &err);
    dra_gradients_config lc = *with;
    lc.model = c->model;
    lc.device = c->device;
    expect_ok(dra_gradients_create(&lc, &c->gradients, &err), &err);
    expect_ok(dra_gradients_bind(c->gradients, c->weights, &err), &err);
    for (int i = 0; i < B * T; i++) {
        c->ids[i] = (i * 31 + i * i * 7) % V;
        c->targets[i] = i % 9 == 8 ? -1 : (i * 13 + 5) % V;
        c->mark[i] = i % T == 11 ? DRA_MARK_RESET : i % T == 5 && i > T ? DRA_MARK_PAD : 0;
        if (c->mark[i] & DRA_MARK_PAD) c->targets[i] = -1;
    }
}

static inline void open_changed(course *c, const char *preset, const change *later,
                                const dra_gradients_config *with, int drops)
{
    CHECK_CONFIG(config);
    dra_error err = {0};
    expect_ok(dra_preset_config(preset, &config, &err), &err);
    for (int i = 0; later && later[i].name; i++)
        expect_ok(dra_model_config_set(config, later[i].name, later[i].value, &err), &err);
    config->dropout = drops & DROPS_BRANCHES ? 0.2 : 0;
    config->attention_dropout = drops & DROPS_ATTENTION ? 0.2 : 0;
    config->embed_dropout = drops & DROPS_EMBEDDED ? 0.2 : 0;
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (with->aux_loss[k] != 0) config->aux |= 1u << k;
    config->dim = 16;
    config->heads = 2;
    config->depth = 2;
    config->context = T;
    open_model(c, config, with);
}

static inline void open_course_with(course *c, const char *preset, const dra_gradients_config *with,
                                    int drops)
{
    open_changed(c, preset, NULL, with, drops);
}

static inline void open_course(course *c, const char *preset)
{
    open_course_with(c, preset, &(dra_gradients_config){0}, 0);
}

static inline void close_course(course *c)
{
    dra_gradients_destroy(c->gradients);
    dra_weights_destroy(c->weights);
    dra_model_destroy(c->model);
    dra_device_destroy(c->device);
}

static inline dra_microbatch microbatch_of(const course *c)
{
    return (dra_microbatch){.B = B, .T = T, .ids = c->ids, .targets = c->targets, .mark = c->mark};
}

static inline int64_t size_of(const course *c, int i)
{
    return dra_shape_count(&dra_specs_at(dra_model_params(c->model), i)->shape);
}

static inline dra_real **take_gradients(const course *c)
{
    const int  n = dra_specs_count(dra_model_params(c->model));
    dra_real **all = calloc((size_t)n, sizeof *all);
    for (int i = 0; i < n; i++) {
        const size_t bytes = (size_t)size_of(c, i) * sizeof **all;
        all[i] = malloc(bytes + 1);
        memcpy(all[i], dra_gradients_of(c->gradients, i), bytes);
    }
    return all;
}

static inline void free_gradients(const course *c, dra_real **all)
{
    for (int i = 0; i < dra_specs_count(dra_model_params(c->model)); i++) free(all[i]);
    free(all);
}

/* Of a parameter whose gradient is 0 only rounding is left: that of a thousandth of the largest. */
static inline double least_size(const course *c, dra_real **all)
{
    double most = 0;
    for (int i = 0; i < dra_specs_count(dra_model_params(c->model)); i++)
        for (int64_t k = 0; k < size_of(c, i); k++) most = fmax(most, fabs((double)all[i][k]));
    return most / 1000;
}

static inline void expect_gradients(const course *c, dra_real **all, const char *what)
{
    const double least = least_size(c, all);
    for (int i = 0; i < dra_specs_count(dra_model_params(c->model)); i++) {
        const dra_real *d = dra_gradients_of(c->gradients, i);
        double          most = least, worst = 0;
        for (int64_t k = 0; k < size_of(c, i); k++) {
            const double off = fabs((double)d[k] - (double)all[i][k]);
            if (!(off <= worst)) worst = off;
            most = fmax(most, fabs((double)all[i][k]));
        }
        if (!(worst <= EQUAL * most))
            fail_msg("%s: %s differs by %g of %g", what,
                     dra_specs_at(dra_model_params(c->model), i)->name, worst, most);
    }
}

#endif
