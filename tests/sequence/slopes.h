/* Gradients of a trial are derivatives, by central differences in the double build. */
#ifndef DRA_TESTS_SEQUENCE_SLOPES_H
#define DRA_TESTS_SEQUENCE_SLOPES_H

#include <math.h>

#include "trial.h"

/* Moves x and the parameters along a random direction; returns the derivative along it. */
static inline double move_inputs(const trial *t, const outcome *out, double by, uint64_t seed)
{
    dra_real *x = (dra_real *)(uintptr_t)t->x; /* of the test itself */
    double    slope = 0;
    for (int64_t i = 0; i < t->B * t->T * t->C; i++) {
        const double d = 2 * check_random(&seed) - 1;
        x[i] += (dra_real)(by * d);
        slope += d * (double)out->dx[i];
    }
    for (int p = 0; p < dra_specs_count(t->module->params); p++)
        for (int64_t k = 0; k < dra_shape_count(&dra_specs_at(t->module->params, p)->shape); k++) {
            const double d = 2 * check_random(&seed) - 1;
            t->param[p][k] += (dra_real)(by * d);
            slope += d * (double)out->dparam[p][k];
        }
    return slope;
}

static inline double moved_loss(const trial *t, const outcome *out, double by, uint64_t seed)
{
    outcome moved;
    move_inputs(t, out, by, seed);
    trial_run(t, 0, NULL, &moved);
    move_inputs(t, out, -by, seed);
    const double L = moved.L;
    outcome_free(t, &moved);
    return L;
}

/* Does nothing in the float build. x and the parameters must be memory that can be written. */
static inline void expect_slopes(const trial *t)
{
#ifdef DRA_REAL_DOUBLE
    const double h = 1e-5;
    outcome      out;
    trial_run(t, 0, NULL, &out);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        const double slope = move_inputs(t, &out, 0, seed);
        const double near = moved_loss(t, &out, h, seed) - moved_loss(t, &out, -h, seed);
        const double far = moved_loss(t, &out, 2 * h, seed) - moved_loss(t, &out, -2 * h, seed);
        const double found = (8 * near - far) / (12 * h);
        if (!(fabs(found - slope) <= 1e-7 * (fabs(slope) + fabs(out.L) + 1)))
            fail_msg("slope is %.10g, gradients say %.10g", found, slope);
    }
    outcome_free(t, &out);
#else
    (void)t;
    (void)moved_loss;
#endif
}

#endif
