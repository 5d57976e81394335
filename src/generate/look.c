/* A look into the memory: the norm of each head's part of every tensor of a state. */
#include <math.h>
#include <stdlib.h>

#include "generate/engine.h"

/* norm[h] of x (n, heads, size). */
static void measure_norms(int64_t n, int64_t heads, int64_t size, const dra_real *x, float *norm)
{
    for (int64_t h = 0; h < heads; h++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < size; k++) {
                const double v = (double)x[(i * heads + h) * size + k];
                sum += v * v;
            }
        norm[h] = (float)sqrt(sum);
    }
}

static int64_t row_of(dra_engine *e, uint64_t job, const char *state, dra_saved **held)
{
    *held = state ? dra_saved_hold(e, state) : NULL;
    if (state) return *held ? (*held)->row : -1;
    for (int64_t i = 0; i < e->n_active; i++)
        if (e->active[i]->id == job) return e->active[i]->seq.row;
    return -1;
}

static bool look_at_state(dra_engine *e, int64_t row, int i, dra_look *out)
{
    const dra_spec *p = dra_specs_at(dra_model_state(e->config.model), i);
    const int64_t   all = (int64_t)dra_states_size(e->lane[0].pool, i, row);
    const int64_t heads = p->shape.rank > 1 ? p->shape.dim[0] : 1, one = dra_shape_count(&p->shape);
    dra_real     *x = malloc((size_t)(all + 1) * sizeof *x);
    float        *norms = realloc(e->norms, (size_t)heads * sizeof *norms);
    bool          there = x && norms;
    if (norms) e->norms = norms;
    if (there) there = dra_states_read(e->lane[0].pool, i, row, x, (size_t)all, NULL) == DRA_OK;
    if (there) measure_norms(one ? all / one : 0, heads, one / heads, x, norms);
    free(x);
    *out = (dra_look){p->name, heads, norms};
    return there;
}

bool dra_engine_look_at(dra_engine *e, uint64_t job, const char *state, int i, dra_look *out)
{
    dra_saved    *held;
    const int64_t row = row_of(e, job, state, &held);
    const int     n = dra_specs_count(dra_model_state(e->config.model));
    const bool    there = row >= 0 && i >= 0 && i < n && look_at_state(e, row, i, out);
    dra_saved_drop(e, held);
    return there;
}
