/* Maps of x that may be of low rank: b + W_2 act(W_1 x), or b + W x. */
#include "base/shape.h"
#include "memory/lambda.h"

int dra_low_rank_declare(const dra_low_rank *m, int64_t C, const char *prefix, dra_specs *params)
{
    const int64_t n = dra_shape_count(&m->out);
    const int     before = dra_specs_count(params);
    if (m->rank) {
        dra_specs_add(params, prefix,
                      &(dra_spec){m->first, DRA_SHAPE(m->rank, C), .group = DRA_PARAM_LOW_RANK});
        dra_specs_add(params, prefix,
                      &(dra_spec){m->second, DRA_SHAPE(n, m->rank), DRA_FILL_UNIFORM, 0.01,
                                  .group = DRA_PARAM_LOW_RANK});
    } else {
        dra_specs_add(params, prefix, &(dra_spec){m->name, DRA_SHAPE(n, C)});
    }
    if (m->bias)
        dra_specs_add(params, prefix,
                      &(dra_spec){m->bias, m->out, m->values ? DRA_FILL_VALUES : DRA_FILL_CONST,
                                  .number = m->start, .values = m->values, .group = m->group});
    return dra_specs_count(params) - before;
}

dra_value dra_low_rank_build(dra_graph *g, const dra_low_rank *m, const dra_value *param,
                             dra_value x, bool tanh)
{
    const dra_value none = {0};
    const int64_t   n = dra_shape_count(&m->out);
    int             at = 0;
    if (m->rank) x = dra_linear(g, x, param[at++], none);
    if (m->rank && tanh) x = dra_tanh(g, x);
    const dra_value w = param[at++];
    dra_value y = dra_linear(g, x, w, m->bias ? dra_reshape(g, param[at], DRA_SHAPE(n)) : none);
    if (dra_graph_failed(g)) return none;
    dra_shape shape = dra_shape_of(g, y);
    if (m->out.rank == 1) return y;
    shape.dim[shape.rank - 1] = m->out.dim[0];
    shape.dim[shape.rank++] = m->out.dim[1];
    return dra_reshape(g, y, shape);
}
