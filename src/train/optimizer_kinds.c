/* The optimizers. With d the gradient times its factor, and decay decoupled from it in all of them:
 *   adamw  [Loshchilov & Hutter 2019]    see ops/optimizer/adamw.c
 *   sgd    [Sutskever et al. 2013]       m' = b m + d;  u = m', nesterov: d + b m'
 *   lion   [Chen et al. 2023]            u = sign(b1 m + (1-b1) d);  m' = b2 m + (1-b2) d
 *   muon   [Jordan 2024]                 m' = b m + (1-b) d;  u = sqrt(max(1, rows/columns)) times
 *                                        the orthogonal matrix next to (1-b) d + b m'
 *   p' = (1 - rate decay) p - rate u */
#include <math.h>

#include "base/error.h"
#include "train/optimizer.h"

/* ---- parts ----------------------------------------------------------------------------------- */

static dra_value scale_value(dra_graph *g, dra_value x, double s) { return dra_affine(g, x, s, 0); }

static dra_value sum_scaled(dra_graph *g, double s, dra_value x, double t, dra_value y)
{
    return dra_add(g, scale_value(g, x, s), scale_value(g, y, t));
}

/* `now`; `before` if the step is skipped. */
static dra_value unless_skipped(dra_graph *g, const dra_update *u, dra_value now, dra_value before)
{
    return dra_select(g, dra_is_finite(g, u->factor), now, before);
}

/* p' = (1 - rate decay) p - rate way. The product with the rate keeps this out of the prepare
 * block, which runs only after parameters have changed. */
static void step_param(dra_graph *g, dra_update *u, dra_value way)
{
    const dra_value kept = u->decay > 0 ? dra_mul(g, dra_affine(g, u->rate, -u->decay, 1), u->p)
                                        : u->p;
    u->p = unless_skipped(g, u, dra_sub(g, kept, dra_mul(g, u->rate, way)), u->p);
}

/* ---- adamw, sgd, lion ------------------------------------------------------------------------ */

static void update_adamw(dra_graph *g, dra_update *u)
{
    const dra_optimizer_config *c = u->config;
    const dra_adamw_config      config = {c->beta1, c->beta2, c->eps, u->decay};
    const dra_adamw_result r = dra_adamw(g, u->p, u->gradient, u->state[0], u->state[1], u->rate,
                                         u->factor, u->step, &config);
    u->p = r.p, u->state[0] = r.m, u->state[1] = r.v;
}

static void update_sgd(dra_graph *g, dra_update *u)
{
    const double    b = u->config->momentum;
    const dra_value d = dra_mul(g, u->factor, u->gradient);
    if (b < 0) {
        step_param(g, u, d);
        return;
    }
    const dra_value m = dra_add(g, scale_value(g, u->state[0], b), d);
    step_param(g, u, u->config->nesterov ? dra_add(g, d, scale_value(g, m, b)) : m);
    u->state[0] = unless_skipped(g, u, m, u->state[0]);
}

static void update_lion(dra_graph *g, dra_update *u)
{
    const double    b1 = u->config->beta1, b2 = u->config->beta2;
    const dra_value d = dra_mul(g, u->factor, u->gradient), m = u->state[0];
    step_param(g, u, dra_sign(g, sum_scaled(g, b1, m, 1 - b1, d)));
    u->state[0] = unless_skipped(g, u, sum_scaled(g, b2, m, 1 - b2, d), m);
}

/* ---- muon ------------------------------------------------------------------------------------ */

/* Newton-Schulz steps bring the singular values of x close to 1: each s becomes a s + b s^3 + c
 * s^5, which is as steep at 0 as possible. (rows <= columns makes the products smaller.) */
static dra_value orthogonalise_matrix(dra_graph *g, dra_value x)
{
    static const double a = 3.4445, b = -4.7750, c = 2.0315, least = 1e-7;
    enum { STEPS = 5 };
    const dra_value norm = dra_global_norm(g, 1, &x);
    x = dra_div(g, x, dra_affine(g, norm, 1, least));
    for (int i = 0; i < STEPS; i++) {
        const dra_value xx = dra_matmul(g, x, dra_transpose(g, x, 0, 1));
        const dra_value way = sum_scaled(g, b, xx, c, dra_matmul(g, xx, xx));
        x = dra_add(g, scale_value(g, x, a), dra_matmul(g, way, x));
    }
    return x;
}

static void update_muon(dra_graph *g, dra_update *u)
{
    const double    b = u->config->momentum;
    const int64_t   rows = u->shape.dim[0], columns = u->shape.dim[1];
    const bool      tall = rows > columns;
    const double    scale = sqrt(tall ? (double)rows / (double)columns : 1);
    const dra_value d = dra_mul(g, u->factor, u->gradient), old = u->state[0];
    const dra_value m = b < 0 ? d : sum_scaled(g, b, old, 1 - b, d);
    const dra_value way = b < 0 ? d : sum_scaled(g, 1 - b, d, b, m);
    dra_value       x = orthogonalise_matrix(g, tall ? dra_transpose(g, way, 0, 1) : way);
    if (tall) x = dra_transpose(g, x, 0, 1);
    u->rate = scale_value(g, u->rate, u->config->muon_rate);
    step_param(g, u, scale == 1 ? x : scale_value(g, x, scale));
    if (b >= 0) u->state[0] = unless_skipped(g, u, m, old);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const dra_optimizer_row rows[] = {
    [DRA_OPTIMIZER_ADAMW] = {.name = "adamw",
                             .states = 2,
                             .defaults = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
                             .update = update_adamw},
    [DRA_OPTIMIZER_SGD] = {.name = "sgd",
                           .states = 1,
                           .defaults = {.momentum = 0.9},
                           .nesterov = true,
                           .update = update_sgd},
    [DRA_OPTIMIZER_LION] = {.name = "lion",
                            .states = 1,
                            .defaults = {.beta1 = 0.9, .beta2 = 0.99},
                            .update = update_lion},
    [DRA_OPTIMIZER_MUON] =
        {.name = "muon",
         .states = 1,
         .defaults = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.95, .muon_rate = 20},
         .update = update_muon,
         .hidden = true,
         .others = DRA_OPTIMIZER_ADAMW},
};
enum { ROWS = sizeof rows / sizeof *rows };

const dra_optimizer_row *dra_optimizer_row_of(dra_optimizer_kind kind)
{
    return (size_t)kind < ROWS ? &rows[kind] : NULL;
}

const dra_optimizer_row *dra_optimizer_rule(const dra_optimizer_config *c, const dra_spec *s)
{
    const dra_optimizer_row *row = &rows[c->kind];
    const bool               matrix = s->shape.rank == 2 && !s->experts && /* (out, in) */
                        dra_group_is_hidden(s->group);
    return row->hidden && !matrix ? &rows[row->others] : row;
}

int dra_optimizer_states(const dra_optimizer_config *c, const dra_spec *s)
{
    const dra_optimizer_row *row = dra_optimizer_rule(c, s);
    if (s->frozen) return 0;
    return row->states - (row->defaults.momentum > 0 && c->momentum < 0);
}

const char *dra_optimizer_state_name(int which) { return which ? "v" : "m"; }

const char *dra_optimizer_name(dra_optimizer_kind kind)
{
    const dra_optimizer_row *row = dra_optimizer_row_of(kind);
    return row ? row->name : NULL;
}

/* ---- settings -------------------------------------------------------------------------------- */

typedef struct setting {
    const char *name;
    double     *at, otherwise;
} setting;

static dra_status complete_setting(const char *what, const dra_optimizer_row *row, const setting *s,
                                   dra_error *err)
{
    if (*s->at == 0) *s->at = s->otherwise;
    if (*s->at == 0 || s->otherwise != 0) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "%s: %s is %g, but optimizer %s has none", what, s->name,
                    fmax(0, *s->at), row->name);
}

dra_status dra_optimizer_complete(const char *what, dra_optimizer_config *c, dra_error *err)
{
    const dra_optimizer_row *row = dra_optimizer_row_of(c->kind);
    dra_status               st = DRA_OK;
    if (!row)
        return dra_fail(err, DRA_ERR_VALUE, "%s: optimizer %d, expected 0 to %d", what,
                        (int)c->kind, ROWS - 1);
    const dra_optimizer_config *d = &row->defaults;
    const setting               all[] = {{"beta1", &c->beta1, d->beta1},
                                         {"beta2", &c->beta2, d->beta2},
                                         {"eps", &c->eps, d->eps},
                                         {"momentum", &c->momentum, d->momentum},
                                         {"muon_rate", &c->muon_rate, d->muon_rate}};
    for (size_t i = 0; i < sizeof all / sizeof *all && st == DRA_OK; i++)
        st = complete_setting(what, row, &all[i], err);
    if (st == DRA_OK && c->nesterov && !row->nesterov)
        st = dra_fail(err, DRA_ERR_VALUE, "%s: nesterov is set, but is for optimizer sgd, not %s",
                      what, row->name);
    if (st == DRA_OK && c->nesterov && c->momentum < 0)
        st = dra_fail(err, DRA_ERR_VALUE, "%s: nesterov is set, but momentum is 0", what);
    if (st == DRA_OK && !(c->beta1 < 1 && c->beta2 < 1 && c->momentum < 1))
        st = dra_fail(err, DRA_ERR_VALUE,
                      "%s: beta1 %g, beta2 %g, momentum %g, expected less than 1", what, c->beta1,
                      c->beta2, c->momentum);
    return st;
}
