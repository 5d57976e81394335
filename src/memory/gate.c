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
static const dra_field hybrid_fields[] = {
    BOOL(dra_gate_options, heads, "gate_values plain: one gate for each head"),
    BOOL(dra_gate_options, linear, "maps of low rank have no silu in their middle"),
    BOOL(dra_gate_options, output, "gates are made of what was read, too"),
    BOOL(dra_gate_options, output_heads, "output: one for each head"),
    INT(dra_gate_options, output_rank, "none", "output: the rank of its map"),
    {0}};
const dra_field dra_gate_late_fields[] = {
    INT(dra_mixer_config, gate_rank, "none", "gate_values low-rank, plain: its rank"),
    {.name = "hybrid_gate",
     .kind = DRA_FIELD_OBJECT,
     .offset = offsetof(dra_mixer_config, gate),
     .fields = hybrid_fields,
     .about = NULL},
    {0}};

static dra_status check_hybrid(const dra_mixer_config *c, dra_error *err)
{
    const dra_gate_options *o = &c->gate;
    const bool              plain = c->gate_values == DRA_GATE_PLAIN;
    const bool              ranks = (plain && c->gate_rank) || o->output_rank;
    if (o->heads && !plain)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: hybrid_gate.heads without gate_values plain");
    if (o->output && c->gate_values && !plain)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: hybrid_gate.output needs gate_values plain or none");
    if (!o->output && (o->output_heads || o->output_rank))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: hybrid_gate.%s without hybrid_gate.output",
                        o->output_heads ? "output_heads" : "output_rank");
    if ((o->heads && c->gate_rank) || (o->output_heads && o->output_rank))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: hybrid_gate.%s and a rank exclude each other",
                        o->heads && c->gate_rank ? "heads" : "output_heads");
    if (o->linear && !ranks)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: hybrid_gate.linear without a rank");
    return DRA_OK;
}

dra_status dra_gate_check(const dra_mixer_config *c, dra_error *err)
{
    const bool ranked = c->gate_values == DRA_GATE_RANK;
    if (ranked && !c->gate_rank)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: gate_rank is 0, expected 1 to %d",
                        DRA_SIZE_MOST);
    if (!ranked && c->gate_values != DRA_GATE_PLAIN && c->gate_rank)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: gate_rank is %lld, but only gate_values low-rank and plain have "
                        "one",
                        (long long)c->gate_rank);
    return check_hybrid(c, err);
}

/* Starts as 0: gates are half open. Of low rank where the second two are params. */
static void declare_map(dra_mixer *m, dra_mixer_param W, dra_mixer_param first, int64_t rows,
                        int64_t columns, int64_t rank)
{
    if (!rank) {
        dra_mixer_add_constant(m, W, DRA_SHAPE(rows, columns), 0);
        return;
    }
    dra_mixer_add_matrix(m, first, rank, columns, 1 / sqrt((double)columns));
    dra_mixer_add_constant(m, first + 1, DRA_SHAPE(rows, rank), 0);
}

static void declare_hybrid(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    const int64_t           all = dra_mixer_answer_width(m), heads = all / c->value_dim;
    if (c->gate_values == DRA_GATE_PLAIN)
        declare_map(m, DRA_W_G, DRA_W_G_1, c->gate.heads ? heads : all, c->dim, c->gate_rank);
    if (c->gate.output)
        declare_map(m, DRA_W_GO, DRA_W_GO_1, c->gate.output_heads ? heads : all, all,
                    c->gate.output_rank);
}

void dra_gate_declare(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    const int64_t           all = dra_mixer_answer_width(m);
    switch (c->gate_values) {
    case DRA_GATE_NONE:
    case DRA_GATE_PLAIN: declare_hybrid(m); break;
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

static dra_value build_map(const dra_mixing *b, dra_mixer_param W, dra_mixer_param first,
                           dra_value x)
{
    const dra_value none = {0}, whole = dra_mixing_param(b, W);
    if (whole.id) return dra_linear(b->g, x, whole, none);
    x = dra_linear(b->g, x, dra_mixing_param(b, first), none);
    if (!b->m->config.gate.linear) x = dra_silu(b->g, x);
    return dra_linear(b->g, x, dra_mixing_param(b, first + 1), none);
}

/* x (B, T, heads) or (B, T, heads width) as (B, T, heads, 1 or width). */
static dra_value split_gates(const dra_mixing *b, dra_value x, int64_t heads)
{
    if (dra_graph_failed(b->g)) return x;
    const dra_shape s = dra_shape_of(b->g, x);
    return dra_reshape(b->g, x, DRA_SHAPE(s.dim[0], s.dim[1], heads, s.dim[2] / heads));
}

/* y * sigmoid(W x + W' y), each of all channels or of heads. [Hybrid gated attention] */
static dra_value gate_both(const dra_mixing *b, dra_value x, dra_value y)
{
    const dra_mixer_config *c = &b->m->config;
    const int64_t           heads = dra_mixer_answer_width(b->m) / c->value_dim;
    dra_graph              *g = b->g;
    dra_value               z = {0};
    if (c->gate_values) z = split_gates(b, build_map(b, DRA_W_G, DRA_W_G_1, x), heads);
    if (c->gate.output) {
        const dra_value own = split_gates(b, build_map(b, DRA_W_GO, DRA_W_GO_1, y), heads);
        z = z.id ? dra_add(g, z, own) : own;
    }
    const dra_value gated = dra_mul(g, split_gates(b, y, heads), dra_sigmoid(g, z));
    return dra_graph_failed(g) ? y : dra_reshape(g, gated, dra_shape_of(g, y));
}

static dra_value build_gates(const dra_mixing *b, dra_value x)
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

dra_value dra_gate_build(const dra_mixing *b, dra_value x, dra_value y)
{
    const dra_mixer_config *c = &b->m->config;
    const bool              plain = c->gate_values == DRA_GATE_PLAIN;
    if (c->gate.output || (plain && (c->gate.heads || c->gate_rank))) return gate_both(b, x, y);
    return c->gate_values ? dra_mul(b->g, y, build_gates(b, x)) : y;
}
