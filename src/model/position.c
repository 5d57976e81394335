/* Positions of attention sublayers: what a distance adds to scores. (Rotations are an option of
 * mixers, learned positions are rows of a table that the model adds to what is embedded.)
 * A scheme is a row of a table: how many distances it tells apart, and the bias of each, (heads,
 * distances), made of parameters alone. Beyond the last distance that is told apart a bias stays
 * what it is. Distance n = position of the query - position of the key. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "base/shape.h"
#include "graph/op.h"
#include "memory/distance.h"
#include "model/stack.h"

typedef struct distances { /* n = column - zero */
    const dra_model_config *config;
    int64_t                 columns, zero;
} distances;

typedef struct scheme {
    void (*declare)(dra_positions *p, const dra_model_config *c, dra_specs *params);
    int64_t (*reach)(const dra_model_config *c, int64_t rows); /* the largest |n| told apart */
    dra_value (*bias)(dra_graph *g, const dra_positions *p, const distances *d,
                      const dra_value *param); /* (columns, heads) */
} scheme;

/* Distances have both signs. */
static bool both_sides(const dra_model_config *c) { return c->visible != DRA_VISIBLE_CAUSAL; }

/* i32 (columns) */
static dra_value numbers(dra_graph *g, const distances *d)
{
    return dra_sub(g, dra_arange(g, d->columns), dra_integer(g, (int32_t)d->zero));
}

/* ---- t5: a learned number for each head and bucket of distances ------------------------------ */

static int64_t buckets(const dra_position_config *p) { return p->buckets ? p->buckets : 32; }
static int64_t farthest(const dra_position_config *p)
{
    return p->max_distance ? p->max_distance : 128;
}

static void t5_declare(dra_positions *p, const dra_model_config *c, dra_specs *params)
{
    p->table = dra_specs_count(params);
    dra_specs_add(params, NULL,
                  &(dra_spec){"position.table", DRA_SHAPE(buckets(&c->position), c->heads),
                              DRA_FILL_NORMAL, .number = 1});
}

static int64_t t5_reach(const dra_model_config *c, int64_t rows) { return farthest(&c->position); }

static int bucket(const dra_model_config *c, int64_t n)
{
    return dra_t5_bucket(n, (int)buckets(&c->position), (int)farthest(&c->position),
                         !both_sides(c));
}

/* The buckets of all columns: every change from one distance to the next is a step. */
static dra_value t5_buckets(dra_graph *g, const distances *d)
{
    const dra_value column = dra_arange(g, d->columns);
    dra_value sum = dra_affine(g, dra_cast(g, column, DRA_REAL), 0, bucket(d->config, -d->zero));
    for (int64_t i = 1; i < d->columns; i++) {
        const int step = bucket(d->config, i - d->zero) - bucket(d->config, i - 1 - d->zero);
        if (!step) continue;
        const dra_value at = dra_greater_equal(g, column, dra_integer(g, (int32_t)i));
        sum = dra_add(g, sum, dra_affine(g, dra_cast(g, at, DRA_REAL), step, 0));
    }
    return dra_cast(g, sum, DRA_I32);
}

static dra_value t5_bias(dra_graph *g, const dra_positions *p, const distances *d,
                         const dra_value *param)
{
    const double    scale = d->config->position.distance_scale;
    const dra_value rows = dra_embedding(g, param[p->table], t5_buckets(g, d));
    return scale > 0 ? dra_affine(g, rows, scale, 0) : rows;
}

/* ---- dynamic: a small network of the distance ------------------------------------------------ */

static int64_t hidden_layers(const dra_position_config *p) { return p->layers ? p->layers : 2; }

static void dynamic_declare(dra_positions *p, const dra_model_config *c, dra_specs *params)
{
    const int64_t L = hidden_layers(&c->position), W = c->dim / 4;
    char          name[48];
    for (int64_t k = 0; k <= L; k++) {
        const int64_t in = k ? W : 1, out = k < L ? W : c->heads;
        const double  within = 1 / sqrt((double)in);
        p->W[k] = dra_specs_count(params);
        snprintf(name, sizeof name, "position.%lld.W", (long long)k);
        dra_specs_add(params, NULL,
                      &(dra_spec){name, DRA_SHAPE(out, in), DRA_FILL_UNIFORM, .number = within});
        p->b[k] = dra_specs_count(params);
        snprintf(name, sizeof name, "position.%lld.b", (long long)k);
        dra_specs_add(params, NULL,
                      &(dra_spec){name, DRA_SHAPE(out), DRA_FILL_UNIFORM, .number = within});
    }
}

static int64_t dynamic_reach(const dra_model_config *c, int64_t rows) { return rows - 1; }

static dra_value dynamic_bias(dra_graph *g, const dra_positions *p, const distances *d,
                              const dra_value *param)
{
    const dra_position_config *c = &d->config->position;
    const int64_t              L = hidden_layers(c);
    dra_value x = dra_cast(g, dra_reshape(g, numbers(g, d), DRA_SHAPE(-1, 1)), DRA_REAL);
    if (c->log) x = dra_mul(g, dra_sign(g, x), dra_log(g, dra_affine(g, dra_abs(g, x), 1, 1)));
    for (int64_t k = 0; k <= L; k++) {
        x = dra_linear(g, x, param[p->W[k]], param[p->b[k]]);
        if (k < L) x = dra_silu(g, x);
    }
    return x;
}

/* ---- alibi: - slope |n|, a fixed slope for each head ----------------------------------------- */

/* Real (heads): 0 for heads without one. */
static dra_value alibi_slopes(dra_graph *g, const dra_model_config *c)
{
    const int64_t   H = c->heads, n = c->position.slopes ? c->position.slopes : H;
    const dra_value head = dra_arange(g, H);
    dra_value       sum = dra_affine(g, dra_cast(g, head, DRA_REAL), 0, 0);
    for (int64_t h = 0; h < n; h++) {
        const dra_value is = dra_cast(g, dra_equal(g, head, dra_integer(g, (int32_t)h)), DRA_REAL);
        sum = dra_add(g, sum, dra_affine(g, is, dra_alibi_slope((int)h, (int)n), 0));
    }
    return sum;
}

static const scheme schemes[] = {
    [DRA_DISTANCE_T5] = {t5_declare, t5_reach, t5_bias},
    [DRA_DISTANCE_DYNAMIC] = {dynamic_declare, dynamic_reach, dynamic_bias},
    [DRA_DISTANCE_ALIBI] = {0},
};

/* ---- the entry ------------------------------------------------------------------------------- */

static dra_status check_t5(const dra_model_config *c, dra_error *err)
{
    const int64_t n = buckets(&c->position) / (both_sides(c) ? 4 : 2);
    if (n < 1 || farthest(&c->position) <= n)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: position.buckets is %lld, which tells %lld distances apart, but "
                        "position.max_distance is %lld",
                        (long long)buckets(&c->position), (long long)n,
                        (long long)farthest(&c->position));
    return DRA_OK;
}

dra_status dra_positions_check(const dra_model_config *c, dra_error *err)
{
    const dra_position_config *p = &c->position;
    if (p->rotate == DRA_ROTATE_NONE && (p->width || p->heads || p->base > 0 || p->xpos_base > 0))
        return dra_fail(err, DRA_ERR_VALUE, "model: position.%s without position.rotate",
                        p->width      ? "width"
                        : p->heads    ? "heads"
                        : p->base > 0 ? "base"
                                      : "xpos_base");
    if (p->rotate != DRA_ROTATE_XPOS && p->xpos_base > 0)
        return dra_fail(err, DRA_ERR_VALUE, "model: position.xpos_base without rotate xpos");
    if (p->distance != DRA_DISTANCE_T5 && (p->buckets || p->max_distance || p->distance_scale > 0))
        return dra_fail(err, DRA_ERR_VALUE, "model: position.%s without distance t5",
                        p->buckets        ? "buckets"
                        : p->max_distance ? "max_distance"
                                          : "distance_scale");
    if (p->distance != DRA_DISTANCE_DYNAMIC && (p->layers || p->log))
        return dra_fail(err, DRA_ERR_VALUE, "model: position.%s without distance dynamic",
                        p->layers ? "layers" : "log");
    if (p->layers > DRA_POSITION_LAYERS)
        return dra_fail(err, DRA_ERR_VALUE, "model: position.layers is %lld, expected at most %d",
                        (long long)p->layers, DRA_POSITION_LAYERS);
    if (p->distance != DRA_DISTANCE_ALIBI && p->slopes)
        return dra_fail(err, DRA_ERR_VALUE, "model: position.slopes without distance alibi");
    if (p->slopes > c->heads)
        return dra_fail(err, DRA_ERR_VALUE, "model: position.slopes is %lld of %lld heads",
                        (long long)p->slopes, (long long)c->heads);
    if (p->distance == DRA_DISTANCE_DYNAMIC && c->dim < 4)
        return dra_fail(err, DRA_ERR_VALUE, "model: position.distance dynamic needs dim 4 or more");
    return p->distance == DRA_DISTANCE_T5 ? check_t5(c, err) : DRA_OK;
}

void dra_positions_declare(dra_positions *p, const dra_model_config *c, dra_specs *params)
{
    const scheme *s = &schemes[c->position.distance];
    p->table = -1;
    if (s->declare) s->declare(p, c, params);
}

void dra_positions_build(dra_graph *g, const dra_positions *p, const dra_model_config *c,
                         const dra_value *param, int64_t rows, dra_channels *out)
{
    const scheme *s = &schemes[c->position.distance];
    if (c->position.distance == DRA_DISTANCE_ALIBI)
        out->value[DRA_CHANNEL_SLOPES] = alibi_slopes(g, c);
    if (!s->bias || dra_graph_failed(g)) return;
    const int64_t   reach = dra_imax(s->reach(c, rows), 0), before = both_sides(c) ? reach : 0;
    const distances d = {c, before + reach + 1, before};
    out->distance_zero = d.zero;
    out->value[DRA_CHANNEL_DISTANCE] = dra_transpose(g, s->bias(g, p, &d, param), 0, 1);
}
