/* Recurrent matrices kept in bounds, before a step or a chunk sees them.
 *   spectral: W / max(1, s), s its largest singular value     weight: rows g w / |w|
 *   spectral-all: spectral, and the same of the matrices that take x in
 * s^2 is the largest eigenvalue of A = W^T W. Squaring P = A / tr A again and again, each time
 * divided by its trace, leaves the projector on its eigenvectors, v v^T for one, so s^2 = tr(P A);
 * with P as a constant the derivative of s is u v^T. After n squarings an eigenvalue a fraction d
 * below the largest still weighs (1 - d)^(2^n), which makes s too small by about 2^-n / 5 at worst,
 * whatever the spectrum, and by nothing where there is a visible gap. All of it depends on
 * parameters alone and is prepared once.
 * [Miyato et al. 2018: spectral normalization; Salimans, Kingma 2016: weight normalization] */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "memory/memory.h"

enum { SQUARINGS = 18 };

static const double TINY = 1e-30; /* what a matrix of zeros is divided by */

/* Over the two axes of each matrix, kept. */
static dra_value sum_each(dra_graph *g, dra_value x)
{
    return dra_sum(g, x, (dra_axes){2, {-2, -1}, true});
}

/* The trace of P P is the sum of squares of a symmetric P. */
static dra_value square_normed(dra_graph *g, dra_value P)
{
    const dra_value trace = dra_maximum(g, sum_each(g, dra_square(g, P)), dra_number(g, TINY));
    return dra_div(g, dra_matmul(g, P, P), trace);
}

dra_value dra_spectral(dra_graph *g, dra_value w)
{
    const dra_value A = dra_matmul(g, dra_transpose(g, w, -2, -1), w);
    const dra_value trace = dra_maximum(g, sum_each(g, dra_square(g, w)), dra_number(g, TINY));
    dra_value       P = dra_div(g, A, trace);
    for (int i = 0; i < SQUARINGS; i++) P = square_normed(g, P);
    const dra_value s2 = sum_each(g, dra_mul(g, dra_stop_gradient(g, P), A));
    return dra_sqrt(g, dra_maximum(g, s2, dra_number(g, 1)));
}

/* k_W_hh -> k_g_hh */
static void name_gain(char text[64], const char *name)
{
    snprintf(text, 64, "%s%s", name, strstr(name, "W_") ? "" : "_g");
    char *w = strstr(text, "W_");
    if (w) *w = 'g';
}

/* The length of a row of D numbers drawn evenly from +-1 / sqrt(D) is about 1 / sqrt(3). */
void dra_recurrent_declare(const dra_branch *b, dra_specs *params)
{
    for (int i = 0; i < b->n_params && b->config.cell.recurrent == DRA_RECURRENT_WEIGHT; i++) {
        const dra_spec *p = dra_branch_param(b, i);
        dra_spec        gain = {.shape = p->shape, .number = 1 / sqrt(3), .group = DRA_PARAM_NORM};
        char            name[64];
        if (!p->recurrent) continue;
        name_gain(name, p->name);
        gain.name = name; /* its prefix is in the name already */
        gain.shape.rank--;
        dra_specs_add(params, NULL, &gain);
    }
}

static dra_value weigh_rows(dra_graph *g, dra_value w, dra_value gain)
{
    if (dra_graph_failed(g)) return w;
    dra_shape column = dra_shape_of(g, w);
    column.dim[column.rank - 1] = 1;
    return dra_mul(g, dra_unit(g, w, 1e-12), dra_reshape(g, gain, column));
}

static bool bounds_matrix(const dra_branch *b, const dra_spec *p)
{
    const dra_recurrent_kind kind = b->config.cell.recurrent;
    return kind == DRA_RECURRENT_SPECTRAL_ALL ? p->recurrent || p->feeds
                                              : kind == DRA_RECURRENT_SPECTRAL && p->recurrent;
}

void dra_recurrent_apply(dra_graph *g, const dra_branch *b, const dra_value *param, dra_value *used)
{
    int gain = b->n_params; /* the first of them comes after the memory's own */
    for (int i = 0; i < b->n_params; i++) {
        const dra_spec *p = dra_branch_param(b, i);
        used[i] = param[i];
        if (bounds_matrix(b, p)) used[i] = dra_div(g, param[i], dra_spectral(g, param[i]));
        if (p->recurrent && b->config.cell.recurrent == DRA_RECURRENT_WEIGHT)
            used[i] = weigh_rows(g, param[i], param[gain++]);
    }
}
