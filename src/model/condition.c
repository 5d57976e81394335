/* Conditions: a vector for each text by which norms and branches are adapted [Perez et al. 2018;
 * Peebles and Xie 2023].
 *   c, or silu(W c);  gains of norms are 1 + W c; what a core adds, times sigmoid(W c + b) */
#include <math.h>

#include "base/error.h"
#include "base/shape.h"
#include "graph/op.h"
#include "model/model.h"
#include "file/field_rows.h"
#include "model/parts.h"

const dra_field dra_condition_fields[] = {
    INT(dra_condition_config, dim, "dim", "width of the condition"),
    INT(dra_condition_config, expand, "as it is",
        "the condition becomes silu(W c), this many times as wide"),
    BOOL(dra_condition_config, add, "the condition is added to what each sublayer reads"),
    {0},
};

bool dra_condition_used(const dra_model_config *c)
{
    return c->norm_gain == DRA_GAIN_CONDITION || c->block.branch_gate || c->condition.add;
}

int64_t dra_condition_width(const dra_model_config *c)
{
    if (!dra_condition_used(c)) return 0;
    return (c->condition.dim ? c->condition.dim : c->dim) * dra_imax(c->condition.expand, 1);
}

dra_status dra_condition_check(const dra_model_config *c, dra_error *err)
{
    const dra_condition_config *k = &c->condition;
    if (k->dim < 0 || k->dim > 1 << 20 || k->expand < 0 || k->expand > 64)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: condition: dim %lld and expand %lld, expected 0 to 1048576 and 0 "
                        "to 64",
                        (long long)k->dim, (long long)k->expand);
    if ((k->dim || k->expand) && !dra_condition_used(c))
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: condition without norm_gain condition, block.branch_gate or "
                        "condition.add");
    if (k->add && (c->reinject || k->expand || (k->dim && k->dim != c->dim)))
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: condition.add needs a condition of width %lld, and no reinject",
                        (long long)c->dim);
    if (c->norm_gain == DRA_GAIN_CONDITION && c->embed_norm &&
        c->embed_norm_kind == DRA_EMBED_NORM_SAME)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: embed_norm next to norm_gain condition: expected embed_norm_kind "
                        "layer");
    return DRA_OK;
}

void dra_condition_declare(dra_model *m)
{
    const int64_t D = m->config.condition.dim, wide = dra_condition_width(&m->config);
    m->condition_w = -1;
    if (!m->config.condition.expand) return;
    m->condition_w = dra_specs_count(m->params);
    dra_specs_add(m->params, NULL,
                  &(dra_spec){"condition_w", DRA_SHAPE(wide, D), DRA_FILL_UNIFORM,
                              .number = 1 / sqrt((double)D), .product = true,
                              .group = DRA_PARAM_CONDITION});
}

dra_value dra_condition_build(dra_graph *g, const dra_model *m, const dra_module_call *call)
{
    const dra_value none = {0};
    if (!dra_condition_used(&m->config)) return none;
    const dra_shape each = DRA_SHAPE(call->tokens.B, m->config.condition.dim);
    const dra_value c = dra_input(g, "condition", DRA_REAL, each);
    return m->condition_w < 0 ? c
                              : dra_silu(g, dra_linear(g, c, call->param[m->condition_w], none));
}
