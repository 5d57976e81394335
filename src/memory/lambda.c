/* The decay of matrix memories: see lambda.h. */
#include "memory/lambda.h"

#include <math.h>
#include <stdlib.h>

#include "ops/chunk.h" /* DRA_STRONG_DECAY */

static const double ROOT = 16; /* of the data's sigmoid: starts slow, moves gently */

int dra_lambda_declare(const dra_memory_sizes *s, const char *prefix, dra_specs *params)
{
    if (s->config->decay == DRA_DECAY_FIXED) dra_gamma_declare(s, prefix, "beta", 0, 1, params);
    if (s->config->decay != DRA_DECAY_DATA) return s->config->decay == DRA_DECAY_FIXED;
    double *b = calloc((size_t)s->H + 1, sizeof *b);
    for (int64_t h = 0; b && h < s->H; h++) { /* sigmoid(b)^(1/16) = gamma */
        const double beta = dra_gamma_logit(s->config, h, s->H);
        const double l = -ROOT * log1p(exp(-beta)); /* ln gamma^16 */
        b[h] = l - log(-expm1(l));
    }
    dra_specs_add(params, prefix, &(dra_spec){"W_decay", DRA_SHAPE(s->H, s->C)});
    dra_specs_add(params, prefix,
                  &(dra_spec){"b_decay", DRA_SHAPE(s->H), DRA_FILL_VALUES, .values = b});
    free(b);
    return 2;
}

dra_value dra_lambda_code(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                          dra_value x)
{
    return dra_affine(g, dra_log_sigmoid(g, dra_linear(g, x, param[0], param[1])), 1 / ROOT, 0);
}

dra_value dra_lambda_step(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                          dra_value code)
{
    switch (s->config->decay) {
    case DRA_DECAY_FIXED:
        return dra_reshape(g, dra_log_sigmoid(g, param[0]), DRA_SHAPE(s->H, 1, 1));
    case DRA_DECAY_DATA: return dra_reshape(g, code, DRA_SHAPE(-1, s->H, 1, 1));
    default: return (dra_value){0};
    }
}

dra_value dra_lambda_apply(dra_graph *g, dra_value l, dra_value m)
{
    return l.id ? dra_add(g, m, dra_mul(g, dra_expm1(g, l), m)) : m;
}

dra_value dra_lambda_apply_jump(dra_graph *g, dra_value l, dra_value m)
{
    const dra_value strong = dra_less(g, l, dra_number(g, DRA_STRONG_DECAY));
    const dra_value factor = dra_select(g, strong, dra_exp(g, l), dra_expm1(g, l));
    return dra_add(g, dra_select(g, strong, dra_number(g, 0), m), dra_mul(g, factor, m));
}
