/* Invariants of mixers: gradients are derivatives, by differences, in the double build. */
#include "setting.h"

#ifdef DRA_REAL_DOUBLE
#include <math.h>
#include <stdlib.h>

static bool is_maximum(const char *name) { return ends_with(name, "p") || ends_with(name, "max"); }

/* Moves everything with a gradient along a random direction; returns the derivative along it. */
static double move(setting *s, const outcome *out, double by, uint64_t seed)
{
    const int64_t n = B * T * s->t.C;
    double        slope = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = 2 * check_random(&seed) - 1;
        s->x[i] += by * d;
        slope += d * out->dx[i];
    }
    for (int i = 0; i < dra_specs_count(s->t.module->params); i++)
        for (int64_t k = 0; k < dra_shape_count(&dra_specs_at(s->t.module->params, i)->shape);
             k++) {
            const double d = 2 * check_random(&seed) - 1;
            s->param[i][k] += by * d;
            slope += d * out->dparam[i][k];
        }
    for (int i = 0; i < dra_specs_count(s->t.module->state); i++) {
        if (is_maximum(dra_specs_at(s->t.module->state, i)->name)) continue;
        for (int64_t b = 0, at = 0; b < B; b++) {
            const size_t size = dra_states_size(s->start, i, b);
            dra_real    *v = malloc((size + 1) * sizeof *v);
            dra_states_read(s->start, i, b, v, size, NULL);
            for (size_t k = 0; k < size; k++, at++) {
                const double d = 2 * check_random(&seed) - 1;
                v[k] += by * d;
                slope += d * out->dstart[i][at];
            }
            dra_states_write(s->start, i, b, v, size, NULL);
            free(v);
        }
    }
    return slope;
}

/* Upstream on everything but a maximum, and what is measured by it where there is one. */
static double upstream_of_outputs(const void *user, int i, int64_t b, int64_t k)
{
    const setting   *s = user;
    const dra_specs *specs = s->t.module->state;
    const char      *name = dra_specs_at(specs, i)->name;
    bool             relative = false;
    for (int j = 0; j < dra_specs_count(specs); j++)
        relative = relative || is_maximum(dra_specs_at(specs, j)->name);
    if (is_maximum(name) || (relative && (is_sum(name) || ends_with(name, "A")))) return 0;
    return upstream(NULL, i, b, k);
}

/* L with everything moved by `by`, and back. */
static double moved_loss(setting *s, const outcome *out, double by, uint64_t seed)
{
    outcome moved;
    move(s, out, by, seed);
    trial_run(&s->t, 0, NULL, &moved);
    move(s, out, -by, seed);
    const double L = moved.L;
    outcome_free(&s->t, &moved);
    return L;
}

/* Four points, so that curvature does not count: it is large for norms of few channels. */
void gradients_are_derivatives(setting *s)
{
    const double h = 1e-5;
    outcome      out;
    s->t.us = upstream_of_outputs;
    s->t.user = s;
    if (s->row->prefix) s->t.mark = prefix_marks();
    trial_run(&s->t, 0, NULL, &out);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        const double slope = move(s, &out, 0, seed);
        const double near = moved_loss(s, &out, h, seed) - moved_loss(s, &out, -h, seed);
        const double far = moved_loss(s, &out, 2 * h, seed) - moved_loss(s, &out, -2 * h, seed);
        const double found = (8 * near - far) / (12 * h);
        if (!(fabs(found - slope) <= 1e-7 * (fabs(slope) + fabs(out.L) + 1)))
            fail_msg("slope is %.10g, gradients say %.10g", found, slope);
    }
    outcome_free(&s->t, &out);
}
#endif
