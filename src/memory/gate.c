/* What multiplies the heads of a mixer: a factor of each, a gate made of x, and a gated output. */
#include <math.h>

#include "file/field_rows.h"
#include "memory/mixer.h"
#include "memory/part.h"

DRA_CHOICES(value_gates, DRA_VALUE_GATE_COUNT, "none", "biased", "plain", "silu", "low-rank",
            "biased-silu");

const dra_field dra_gate_fields[] = {
    BOOL(dra_mixer_config, head_scale, "a learned factor for the output of each head"),
    BOOL(dra_mixer_config, head_gate, "multiply each head by a gate of its own"),
    CHOICE(dra_mixer_config, gate_values, value_gates, "multiply heads by a gate"),
    BOOL(dra_mixer_config, out_glu, "a gated linear unit at the output"),
    {0}};
const dra_field dra_gate_late_fields[] = {
    INT(dra_mixer_config, gate_rank, "none", "gate_values low-rank: its rank"), {0}};

dra_status dra_gate_check(const dra_mixer_config *c, dra_error *err)
{
    const bool ranked = c->gate_values == DRA_GATE_RANK;
    if (ranked && !c->gate_rank)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: gate_rank is 0, expected 1 to %d",
                        DRA_SIZE_MOST);
    if (!ranked && c->gate_rank)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: gate_rank is %lld, but only gate_values low-rank has one",
                        (long long)c->gate_rank);
    return DRA_OK;
}

void dra_gate_declare(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    const int64_t           all = dra_mixer_answer_width(m);
    switch (c->gate_values) {
    case DRA_GATE_NONE: break;
    case DRA_GATE_SILU:
        dra_mixer_add_matrix(m, DRA_W_G, all, c->dim, 1 / sqrt((double)c->dim));
        break;
    case DRA_GATE_RANK:
        dra_mixer_add(m, DRA_W_G_1, DRA_SHAPE(c->gate_rank, c->dim), DRA_FILL_NORMAL,
                      1 / sqrt((double)c->dim));
        dra_mixer_add(m, DRA_W_G_2, DRA_SHAPE(all, c->gate_rank), DRA_FILL_NORMAL,
                      1 / sqrt((double)c->gate_rank));
        break;
    default: dra_mixer_add_constant(m, DRA_W_G, DRA_SHAPE(all, c->dim), 0);
    }
    if (c->gate_values == DRA_GATE_BIASED || c->gate_values == DRA_GATE_SILU_BIASED)
        dra_mixer_add_constant(m, DRA_B_G, DRA_SHAPE(all), 10);
    if (!c->head_gate) return;
    dra_mixer_add_constant(m, DRA_W_HG, DRA_SHAPE(all / c->value_dim, c->dim), 0);
    dra_mixer_add_constant(m, DRA_B_HG, DRA_SHAPE(all / c->value_dim), 10);
}

dra_value dra_gate_build(const dra_mixing *b, dra_value x)
{
    dra_graph      *g = b->g;
    const dra_value none = {0};
    switch (b->m->config.gate_values) {
    case DRA_GATE_SILU: return dra_silu(g, dra_linear(g, x, dra_mixing_param(b, DRA_W_G), none));
    case DRA_GATE_RANK:
        x = dra_sigmoid(g, dra_linear(g, x, dra_mixing_param(b, DRA_W_G_1), none));
        return dra_linear(g, x, dra_mixing_param(b, DRA_W_G_2), none);
    case DRA_GATE_SILU_BIASED:
        return dra_silu(
            g, dra_linear(g, x, dra_mixing_param(b, DRA_W_G), dra_mixing_param(b, DRA_B_G)));
    default:
        return dra_sigmoid(
            g, dra_linear(g, x, dra_mixing_param(b, DRA_W_G), dra_mixing_param(b, DRA_B_G)));
    }
}

dra_value dra_head_gate_build(const dra_mixing *b, dra_value x)
{
    dra_graph      *g = b->g;
    const dra_value z = dra_linear(g, x, dra_mixing_param(b, DRA_W_HG),
                                   dra_mixing_param(b, DRA_B_HG));
    if (dra_graph_failed(g)) return (dra_value){0};
    dra_shape column = dra_shape_of(g, z);
    column.dim[column.rank++] = 1;
    return dra_reshape(g, dra_sigmoid(g, z), column);
}
