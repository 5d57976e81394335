/* Positions of attention sublayers: what a distance adds to scores. (Rotations are an option of
 * mixers, learned positions are rows of a table that the model adds to what is embedded.)
 * A scheme is a row of a table: how many distances it tells apart, and the bias of each, (heads,
 * distances), made of parameters alone. Beyond the last distance that is told apart a bias stays
 * what it is. Distance n = position of the query - position of the key. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "base/shape.h"
#include "file/field_rows.h"
#include "file/parts.h"
#include "graph/op.h"
#include "memory/distance.h"
#include "memory/turn.h"
#include "model/parts.h"
#include "model/stack.h"

typedef struct distances { /* n = column - zero */
    const dra_model_config *config;
    int64_t                 columns, zero;
} distances;

typedef struct scheme {
    dra_status (*check)(const dra_model_config *c, dra_error *err);
    void (*declare)(dra_positions *p, const dra_model_config *c, dra_specs *params);
    int64_t (*reach)(const dra_model_config *c, int64_t rows); /* the largest |n| told apart */
    dra_value (*bias)(dra_graph *g, const dra_positions *p, const distances *d,
                      const dra_value *param); /* (columns, heads) */
} scheme;

/* Distances have both signs. */
static bool both_sides(const dra_model_config *c) { return c->visible != DRA_VISIBLE_CAUSAL; }

/* i32 (columns) */
static dra_value distance_numbers(dra_graph *g, const distances *d)
{
    return dra_sub(g, dra_arange(g, d->columns), dra_integer(g, (int32_t)d->zero));
}

/* ---- t5: a learned number for each head and bucket of distances ------------------------------ */

static const dra_field t5_fields[] = {
    INT(dra_t5_options, buckets, "32", "t5: buckets of distances"),
    INT(dra_t5_options, max_distance, "128", "t5: distance from which on all are alike"),
    {.name = "distance_scale",
     .kind = DRA_FIELD_REAL,
     .offset = offsetof(dra_t5_options, scale),
     .max = 1e6,
     .unset = "1",
     .about = "t5: factor"},
    {0}};
static const dra_part t5_part = {offsetof(dra_position_config, t5), {t5_fields}};

static int64_t count_buckets(const dra_position_config *p)
{
    return p->t5.buckets ? p->t5.buckets : 32;
}
static int64_t farthest_distance(const dra_position_config *p)
{
    return p->t5.max_distance ? p->t5.max_distance : 128;
}

static dra_status check_t5(const dra_model_config *c, dra_error *err)
{
    const int64_t n = count_buckets(&c->position) / (both_sides(c) ? 4 : 2);
    if (n < 1 || farthest_distance(&c->position) <= n)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: position.buckets is %lld, which tells %lld distances apart, but "
                        "position.max_distance is %lld",
                        (long long)count_buckets(&c->position), (long long)n,
                        (long long)farthest_distance(&c->position));
    return DRA_OK;
}

static void t5_declare(dra_positions *p, const dra_model_config *c, dra_specs *params)
{
    p->table = dra_specs_count(params);
    dra_specs_add(params, NULL,
                  &(dra_spec){"position.table", DRA_SHAPE(count_buckets(&c->position), c->heads),
                              DRA_FILL_NORMAL, .number = 1, .group = DRA_PARAM_POSITION});
}

static int64_t t5_reach(const dra_model_config *c, int64_t rows)
{
    return farthest_distance(&c->position);
}

static int t5_bucket(const dra_model_config *c, int64_t n)
{
    return dra_t5_bucket(n, (int)count_buckets(&c->position), (int)farthest_distance(&c->position),
                         !both_sides(c));
}

/* The buckets of all columns: every change from one distance to the next is a step. */
static dra_value t5_buckets(dra_graph *g, const distances *d)
{
    const dra_value column = dra_arange(g, d->columns);
    dra_value sum = dra_affine(g, dra_cast(g, column, DRA_REAL), 0, t5_bucket(d->config, -d->zero));
    for (int64_t i = 1; i < d->columns; i++) {
        const int step = t5_bucket(d->config, i - d->zero) - t5_bucket(d->config, i - 1 - d->zero);
        if (!step) continue;
        const dra_value at = dra_greater_equal(g, column, dra_integer(g, (int32_t)i));
        sum = dra_add(g, sum, dra_affine(g, dra_cast(g, at, DRA_REAL), step, 0));
    }
    return dra_cast(g, sum, DRA_I32);
}

static dra_value t5_bias(dra_graph *g, const dra_positions *p, const distances *d,
                         const dra_value *param)
{
    const double    scale = d->config->position.t5.scale;
    const dra_value rows = dra_embedding(g, param[p->table], t5_buckets(g, d));
    return scale > 0 ? dra_affine(g, rows, scale, 0) : rows;
}

/* ---- dynamic: a small network of the distance ------------------------------------------------ */

static const dra_field dynamic_fields[] = {
    {.name = "layers",
     .kind = DRA_FIELD_INT,
     .offset = offsetof(dra_dynamic_options, layers),
     .max = DRA_POSITION_LAYERS,
     .unset = "2",
     .about = "dynamic: hidden layers of its network"},
    BOOL(dra_dynamic_options, log, "dynamic: it sees the logarithm of the distance"),
    {0}};
static const dra_part dynamic_part = {offsetof(dra_position_config, dynamic), {dynamic_fields}};

static int64_t hidden_layers(const dra_position_config *p)
{
    return p->dynamic.layers ? p->dynamic.layers : 2;
}

static dra_status check_dynamic(const dra_model_config *c, dra_error *err)
{
    if (c->dim >= 4) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "model: position.distance dynamic needs dim 4 or more");
}

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
                      &(dra_spec){name, DRA_SHAPE(out, in), DRA_FILL_UNIFORM, .number = within,
                                  .group = DRA_PARAM_POSITION});
        p->b[k] = dra_specs_count(params);
        snprintf(name, sizeof name, "position.%lld.b", (long long)k);
        dra_specs_add(params, NULL,
                      &(dra_spec){name, DRA_SHAPE(out), DRA_FILL_UNIFORM, .number = within,
                                  .group = DRA_PARAM_POSITION});
    }
}

static int64_t dynamic_reach(const dra_model_config *c, int64_t rows) { return rows - 1; }

static dra_value dynamic_bias(dra_graph *g, const dra_positions *p, const distances *d,
                              const dra_value *param)
{
    const dra_position_config *c = &d->config->position;
    const int64_t              L = hidden_layers(c);
    dra_value x = dra_cast(g, dra_reshape(g, distance_numbers(g, d), DRA_SHAPE(-1, 1)), DRA_REAL);
    if (c->dynamic.log)
        x = dra_mul(g, dra_sign(g, x), dra_log(g, dra_affine(g, dra_abs(g, x), 1, 1)));
    for (int64_t k = 0; k <= L; k++) {
        x = dra_linear(g, x, param[p->W[k]], param[p->b[k]]);
        if (k < L) x = dra_silu(g, x);
    }
    return x;
}

/* ---- alibi: - slope |n|, a fixed slope for each head ----------------------------------------- */

static const dra_field alibi_fields[] = {
    INT(dra_alibi_options, slopes, "all", "alibi: the first heads only"), {0}};
static const dra_part alibi_part = {offsetof(dra_position_config, alibi), {alibi_fields}};

static dra_status check_alibi(const dra_model_config *c, dra_error *err)
{
    if (c->position.alibi.slopes <= c->heads) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "model: position.slopes is %lld of %lld heads",
                    (long long)c->position.alibi.slopes, (long long)c->heads);
}

/* Real (heads): 0 for heads without one. */
static dra_value alibi_slopes(dra_graph *g, const dra_model_config *c)
{
    const int64_t   H = c->heads, n = c->position.alibi.slopes ? c->position.alibi.slopes : H;
    const dra_value head = dra_arange(g, H);
    dra_value       sum = dra_affine(g, dra_cast(g, head, DRA_REAL), 0, 0);
    for (int64_t h = 0; h < n; h++) {
        const dra_value is = dra_cast(g, dra_equal(g, head, dra_integer(g, (int32_t)h)), DRA_REAL);
        sum = dra_add(g, sum, dra_affine(g, is, dra_alibi_slope((int)h, (int)n), 0));
    }
    return sum;
}

static const scheme schemes[] = {
    [DRA_DISTANCE_T5] = {check_t5, t5_declare, t5_reach, t5_bias},
    [DRA_DISTANCE_DYNAMIC] = {check_dynamic, dynamic_declare, dynamic_reach, dynamic_bias},
    [DRA_DISTANCE_ALIBI] = {check_alibi},
};

/* ---- rotations, which mixers do -------------------------------------------------------------- */

#define TURN(f) offsetof(dra_position_config, turn.f)
static const dra_field rotary_fields[] = {
    {.name = "width",
     .kind = DRA_FIELD_INT,
     .offset = TURN(width),
     .max = MOST,
     .unset = "all",
     .about = "rotate: channels of a head"},
    INT(dra_position_config, heads, "all", "rotate: the last heads only"),
    {.name = "base",
     .kind = DRA_FIELD_REAL,
     .offset = TURN(base),
     .max = 1e12,
     .unset = "10000",
     .about = "rotate: base of its frequencies"},
    {0},
};
static const dra_field rotary_late_fields[] = {
    {.name = "stretch",
     .kind = DRA_FIELD_REAL,
     .offset = TURN(stretch),
     .max = 1e6,
     .unset = "1",
     .about = "rotate: positions are divided by it"},
    {.name = "halves",
     .kind = DRA_FIELD_BOOL,
     .offset = TURN(halves),
     .unset = "false",
     .about = "rotate: pairs are channels of the first and the second half, not neighbours"},
    {.name = "",
     .kind = DRA_FIELD_INLINE,
     .offset = offsetof(dra_position_config, turn),
     .fields = dra_turn_late_fields},
    {0},
};
static const dra_field xpos_fields[] = {
    {.name = "xpos_base",
     .kind = DRA_FIELD_REAL,
     .offset = TURN(xpos_base),
     .max = 1e12,
     .unset = "512",
     .about = "xpos: base of its scales"},
    {0},
};
static const dra_part rotary_part = {0, {rotary_fields, rotary_late_fields}};
static const dra_part xpos_part = {0, {xpos_fields}};

/* ---- the entry ------------------------------------------------------------------------------- */

DRA_CHOICES(rotate_names, DRA_ROTATE_COUNT, "none", "rotary", "xpos");
DRA_CHOICES(distance_names, DRA_DISTANCE_COUNT, "none", "t5", "dynamic", "alibi");

#define PART(at, table)                                                                            \
    {                                                                                              \
        .name = "", .kind = DRA_FIELD_INLINE, .offset = at, .fields = table                        \
    }
#define OPTIONS(part) PART(offsetof(dra_position_config, part), part##_fields)
const dra_field dra_position_fields[] = {
    CHOICE(dra_position_config, rotate, rotate_names, "rotate queries and keys by position"),
    PART(0, rotary_fields),
    PART(0, xpos_fields),
    CHOICE(dra_position_config, distance, distance_names, "what a distance adds to scores"),
    OPTIONS(t5),
    OPTIONS(dynamic),
    OPTIONS(alibi),
    REAL(dra_position_config, scale, 0, 1e6, "1", "factor of learned positions"),
    PART(0, rotary_late_fields),
    {0},
};

#define PARTS(...) ((const dra_part *const[]){__VA_ARGS__, NULL})
static const dra_choice rotations[] = {
    [DRA_ROTATE_NONE] = {"none", NULL},
    [DRA_ROTATE_ROTARY] = {"rotate rotary", PARTS(&rotary_part)},
    [DRA_ROTATE_XPOS] = {"rotate xpos", PARTS(&rotary_part, &xpos_part)},
    {0}};
static const dra_choice biases[] = {
    [DRA_DISTANCE_NONE] = {"none", NULL},
    [DRA_DISTANCE_T5] = {"distance t5", PARTS(&t5_part)},
    [DRA_DISTANCE_DYNAMIC] = {"distance dynamic", PARTS(&dynamic_part)},
    [DRA_DISTANCE_ALIBI] = {"distance alibi", PARTS(&alibi_part)},
    {0}};

/* A mixer turns in its own way, or in that of the model. */
static dra_status check_turns(const dra_model_config *c, dra_error *err)
{
    for (int i = 0; c->position.rotate != DRA_ROTATE_NONE && i < c->mixers; i++)
        if (dra_fields_said(dra_turn_fields, &c->mixer[i].turn))
            return dra_fail(err, DRA_ERR_VALUE,
                            "model: mixer.turn and position.rotate exclude each other");
    return DRA_OK;
}

dra_status dra_positions_check(const dra_model_config *c, dra_error *err)
{
    static const dra_part *const rotary[] = {&rotary_part, &xpos_part, NULL};
    static const dra_part *const distance[] = {&t5_part, &dynamic_part, &alibi_part, NULL};
    const dra_position_config   *p = &c->position;
    dra_status                   st = dra_fields_check(dra_position_fields, "position", p, err);
    if (st != DRA_OK) return st;
    st = dra_parts_check("position", rotary, rotations[p->rotate].parts, rotations, p, err);
    if (st == DRA_OK) st = check_turns(c, err);
    if (st != DRA_OK) return st;
    st = dra_parts_check("position", distance, biases[p->distance].parts, biases, p, err);
    if (st != DRA_OK || !schemes[p->distance].check) return st;
    return schemes[p->distance].check(c, err);
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
