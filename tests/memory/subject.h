/* A mixer with parameters, inputs and a start state for trials; for tests that compare mixers. */
#ifndef DRA_TESTS_MEMORY_SUBJECT_H
#define DRA_TESTS_MEMORY_SUBJECT_H

#include <math.h>

#include "sequence/reading.h"
#include "trial.h"

#ifdef DRA_REAL_DOUBLE
static const double EQUAL = 1e-12;
#else
static const double EQUAL = 1e-5;
#endif

enum { SUBJECT_PARAMS = 32 };

typedef struct subject {
    dra_sublayer *sublayer;
    trial         t;
    dra_real     *param[SUBJECT_PARAMS], *x, *u;
    dra_states   *start;
} subject;

/* Branches of a blend have the parameters of the mixer alone. */
static inline const char *plain_name(const char *name) { return name[1] == '.' ? name + 2 : name; }

static inline uint64_t seed_of(const char *name)
{
    uint64_t seed = 5;
    for (name = plain_name(name); *name; name++) seed = 31 * seed + (unsigned char)*name;
    return seed;
}

static inline int params_of(const subject *s) { return dra_specs_count(s->t.module->params); }

static inline const dra_spec *param_spec(const subject *s, int i)
{
    return dra_specs_at(s->t.module->params, i);
}

/* Parameters depend on their name alone, so that two subjects share what they have in common. */
static inline subject open_subject_in(const dra_sublayer_config *around, int64_t rows,
                                      int64_t length)
{
    const dra_mixer_config *config = &around->mixer;
    subject                 s = {0};
    dra_error               err = {0};
    uint64_t                seed = 3;
    expect_ok(dra_sublayer_create(around, &s.sublayer, &err), &err);
    s.t = (trial){.module = dra_sublayer_module(s.sublayer),
                  .device = check_device(2, dra_device_level_at(0)),
                  .B = rows,
                  .T = length,
                  .C = config->dim};
    assert_true(params_of(&s) <= SUBJECT_PARAMS);
    for (int i = 0; i < params_of(&s); i++) {
        uint64_t own = seed_of(param_spec(&s, i)->name);
        s.param[i] = random_reals(&own, dra_shape_count(&param_spec(&s, i)->shape));
    }
    s.x = random_reals(&seed, rows * length * config->dim);
    s.u = random_reals(&seed, rows * length * config->dim);
    s.start = new_states(s.t.module->state, rows);
    s.t.x = s.x, s.t.u = s.u, s.t.start = s.start;
    return s;
}

/* A mixer alone: without norm and residual. */
static inline subject open_subject(const dra_mixer_config *config, int64_t rows, int64_t length)
{
    const dra_sublayer_config alone = {.block = {.norm = DRA_PLACE_NONE, .residual = DRA_JOIN_NONE},
                                       .mixer = *config};
    return open_subject_in(&alone, rows, length);
}

static inline void close_subject(subject *s)
{
    for (int i = 0; i < params_of(s); i++) free(s->param[i]);
    free(s->x);
    free(s->u);
    dra_states_destroy(s->start);
    dra_sublayer_destroy(s->sublayer);
}

static inline void run(subject *s, outcome *out)
{
    s->t.param = s->param;
    trial_run(&s->t, 0, NULL, out);
}

/* All parameters whose name begins like this. */
static inline void set(const subject *s, const char *name, double value)
{
    int found = 0;
    for (int i = 0; i < params_of(s); i++) {
        if (strncmp(param_spec(s, i)->name, name, strlen(name)) != 0) continue;
        for (int64_t k = 0; k < dra_shape_count(&param_spec(s, i)->shape); k++)
            s->param[i][k] = (dra_real)value;
        found++;
    }
    assert_true(found > 0);
}

/* Gradients that are 0 but for rounding are measured by the others. */
static inline double least_gradient(const subject *s, const outcome *out)
{
    double largest = 0;
    for (int64_t i = 0; i < s->t.B * s->t.T * s->t.C; i++)
        largest = fmax(largest, fabs((double)out->dx[i]));
    return 0.1 * largest;
}

static inline dra_reader *open_reader(const subject *s)
{
    dra_reader *r = NULL;
    dra_error   err = {0};
    expect_ok(dra_reader_create(s->t.device, s->t.module, &r, &err), &err);
    for (int i = 0; i < params_of(s); i++) {
        const size_t n = (size_t)dra_shape_count(&param_spec(s, i)->shape);
        expect_ok(
            dra_reader_bind(r, param_spec(s, i)->name, s->param[i], n * sizeof(dra_real), &err),
            &err);
    }
    return r;
}

#endif
