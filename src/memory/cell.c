/* Recurrent cells as parts of memories: see cell.h. */
#include "memory/cell.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "file/field_rows.h"
#include "memory/part.h"

/* ---- options --------------------------------------------------------------------------------- */

static const char *const recurrents[] = {"plain", "spectral", "weight", "spectral-all", NULL};

const dra_field dra_cell_fields[] = {
    BOOL(dra_cell_options, per_head, "gru, lstm: a cell for each head"), {0}};
const dra_field dra_cell_late_fields[] = {
    CHOICE(dra_cell_options, recurrent, recurrents,
           "gru, lstm: bounds of the recurrent matrices; spectral-all: of all matrices"),
    {0}};
const dra_part dra_cell_part = {offsetof(dra_memory_config, cell),
                                {dra_cell_fields, dra_cell_late_fields}};

dra_status dra_cell_check(const dra_memory_sizes *s, const char *name, dra_error *err)
{
    if (s->streams == 2 && s->config->gamma.per == DRA_PER_CHANNEL && s->D != s->E)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%s: a gamma per channel for keys and values needs equal widths, found "
                        "%lld and %lld",
                        name, (long long)s->D, (long long)s->E);
    return DRA_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void add_param(const dra_memory_sizes *s, int i, const char *what, const char *prefix,
                      dra_spec p, dra_specs *params)
{
    char name[32];
    snprintf(name, sizeof name, "%s_%s", s->stream[i].name, what);
    p.name = name;
    if (s->config->cell.per_head) {
        for (int32_t k = p.shape.rank++; k > 0; k--) p.shape.dim[k] = p.shape.dim[k - 1];
        p.shape.dim[0] = s->H;
    }
    dra_specs_add(params, prefix, &p);
}

void dra_cell_declare(const dra_memory_sizes *s, int i, int gates, int keep, const char *prefix,
                      dra_specs *params)
{
    const int64_t W = s->stream[i].width, n = (s->config->cell.per_head ? s->H : 1) * gates * W;
    const double  most = 1 / sqrt((double)W);
    dra_spec weight = {.shape = DRA_SHAPE(gates * W, W), .fill = DRA_FILL_UNIFORM, .number = most};
    dra_spec bias = {
        .shape = DRA_SHAPE(gates * W), .fill = DRA_FILL_VALUES, .group = DRA_PARAM_BIAS};
    double *b = calloc((size_t)n + 1, sizeof *b);
    for (int64_t k = 0; b && k < n; k++) b[k] = k / W % gates == keep;
    bias.values = b;
    weight.feeds = true;
    add_param(s, i, "W_ih", prefix, weight, params);
    weight.feeds = false, weight.recurrent = true;
    add_param(s, i, "W_hh", prefix, weight, params);
    add_param(s, i, "b_ih", prefix, bias, params);
    bias.fill = DRA_FILL_CONST;
    add_param(s, i, "b_hh", prefix, bias, params);
    free(b);
}

void dra_cell_declare_state(const dra_memory_sizes *s, int i, const char *what, const char *prefix,
                            dra_specs *state)
{
    char name[32];
    snprintf(name, sizeof name, "%s_%s", what, s->stream[i].name);
    dra_specs_add(state, prefix,
                  &(dra_spec){.name = name, .shape = DRA_SHAPE(s->H, s->stream[i].width)});
}

/* ---- the graph ------------------------------------------------------------------------------- */

dra_value dra_cell_linear(dra_graph *g, const dra_memory_call *c, int i, int weight, dra_value x)
{
    const dra_value *p = c->param + i * DRA_CELL_PARAMS;
    const dra_value  w = p[weight], b = p[weight - DRA_W_IH + DRA_B_IH];
    if (!c->sizes->config->cell.per_head) return dra_linear(g, x, w, b);
    return dra_add(g, dra_head_linear(g, x, w), b);
}

dra_value dra_cell_gates(dra_graph *g, const dra_memory_call *c, int i, dra_value x, dra_value h)
{
    return dra_add(g, dra_cell_linear(g, c, i, DRA_W_IH, x), dra_cell_linear(g, c, i, DRA_W_HH, h));
}

/* c = (1-z) n + z h */
dra_value dra_cell_gru(dra_graph *g, const dra_memory_call *c, int i, dra_value k, dra_value h)
{
    const int64_t W = c->sizes->stream[i].width;
    dra_value     x = dra_cell_linear(g, c, i, DRA_W_IH, k), u;
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_shape s = dra_shape_of(g, h);
    if (s.rank == 4) { /* slots (B, H, S, width): S rows of a head, one x for them */
        x = dra_reshape(g, x, DRA_SHAPE(s.dim[0], s.dim[1], 1, 3 * W));
        u = dra_transpose(g, dra_cell_linear(g, c, i, DRA_W_HH, dra_transpose(g, h, 1, 2)), 1, 2);
    } else {
        u = dra_cell_linear(g, c, i, DRA_W_HH, h);
    }
    const dra_value both = dra_add(g, x, u);
    const dra_value r = dra_sigmoid(g, dra_slice(g, both, -1, 0, W));
    const dra_value z = dra_sigmoid(g, dra_slice(g, both, -1, W, W));
    const dra_value m = dra_mul(g, r, dra_slice(g, u, -1, 2 * W, W));
    const dra_value n = dra_tanh(g, dra_add(g, dra_slice(g, x, -1, 2 * W, W), m));
    return dra_add(g, n, dra_mul(g, z, dra_sub(g, h, n)));
}

dra_value dra_cell_betas(dra_graph *g, const dra_memory_call *c, int i)
{
    const dra_memory_sizes *s = c->sizes;
    dra_value               beta = c->param[s->streams * DRA_CELL_PARAMS];
    if (s->config->gamma.per == DRA_PER_HEAD) beta = dra_reshape(g, beta, DRA_SHAPE(s->H, 1));
    return dra_broadcast(g, beta, DRA_SHAPE(s->H, s->stream[i].width));
}

dra_value dra_cell_mix(dra_graph *g, const dra_memory_call *c, int i, dra_value h, dra_value new)
{
    const dra_value rate = dra_sigmoid(g, dra_neg(g, dra_cell_betas(g, c, i)));
    return dra_add(g, h, dra_mul(g, rate, dra_sub(g, new, h)));
}
