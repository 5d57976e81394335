/* The decay of matrix memories: see lambda.h. */
#include "memory/lambda.h"

#include <math.h>
#include <stdlib.h>

#include "file/field_rows.h"
#include "memory/part.h"
#include "ops/chunked/chunk.h" /* DRA_STRONG_DECAY */

static const char *const decays[] = {"none", "fixed", "data", NULL};
static const char *const decay_forms[] = {"sigmoid", "exp", "bounded", "softplus", NULL};
static const char *const bonuses[] = {"none", "head", "channel", NULL};

const dra_field dra_lambda_fields[] = {
    CHOICE(dra_lambda_options, decay, decays,
           "moment, delta: none, learned numbers, or decided by each token"),
    {0}};
const dra_field dra_lambda_late_fields[] = {
    CHOICE(dra_lambda_options, decay_form, decay_forms,
           "moment, delta: how a decay is made of what is learned"),
    INT(dra_lambda_options, decay_rank, "a full matrix",
        "moment, delta: rank of the map that makes decays"),
    CHOICE(dra_lambda_options, bonus, bonuses,
           "moment, delta: learned weight of the token that reads itself"),
    BOOL(dra_lambda_options, bonus_exp, "moment: that weight is e to the power of what is learned"),
    BOOL(dra_lambda_options, rate_values, "moment: values are times the rate of softplus"),
    REAL(dra_lambda_options, rate_least, 0, 1e6, "0", "decay_form softplus: least rate"),
    REAL(dra_lambda_options, rate_most, 0, 1e6, "none", "decay_form softplus: largest rate"),
    {0}};
const dra_part dra_lambda_part = {offsetof(dra_memory_config, lambda),
                                  {dra_lambda_fields, dra_lambda_late_fields}};

static const double ROOT = 16; /* of the data's sigmoid: starts slow, moves gently */
static const double BOUND = 0.60653065971263342360; /* e^(-1/2) */

static bool of_channels(const dra_memory_sizes *s)
{
    return s->config->gamma.per == DRA_PER_CHANNEL;
}

static bool is_softplus(const dra_memory_sizes *s)
{
    return s->config->lambda.decay_form == DRA_FORM_SOFTPLUS;
}

static dra_status check_softplus(const dra_memory_sizes *s, const char *memory, dra_error *err)
{
    const dra_lambda_options *o = &s->config->lambda;
    const char               *said = o->rate_values      ? "rate_values"
                                     : o->rate_least > 0 ? "rate_least"
                                     : o->rate_most > 0  ? "rate_most"
                                                         : NULL;
    if (!is_softplus(s) && said)
        return dra_fail(err, DRA_ERR_VALUE, "%s: %s is set, which only decay_form softplus has",
                        memory, said);
    if (!is_softplus(s)) return DRA_OK;
    if (o->decay != DRA_DECAY_DATA || o->decay_rank || of_channels(s))
        return dra_fail(err, DRA_ERR_VALUE,
                        "%s: decay_form softplus is of heads, by data and a full matrix, found %s",
                        memory,
                        o->decay_rank    ? "decay_rank"
                        : of_channels(s) ? "gamma.per channel"
                                         : "decay fixed");
    if (o->rate_most > 0 && o->rate_least > o->rate_most)
        return dra_fail(err, DRA_ERR_VALUE, "%s: rate_least is %g, but rate_most %g", memory,
                        o->rate_least, o->rate_most);
    return DRA_OK;
}

dra_status dra_lambda_check(const dra_memory_sizes *s, const char *memory, dra_error *err)
{
    const dra_memory_config *c = s->config;
    if (of_channels(s) && c->lambda.decay == DRA_DECAY_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "%s: gamma is per channel, but there is no decay",
                        memory);
    if (c->lambda.decay_form && c->lambda.decay == DRA_DECAY_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "%s: decay_form is set, but there is no decay", memory);
    if (c->gamma.learn == DRA_OFF && c->lambda.decay == DRA_DECAY_DATA)
        return dra_fail(err, DRA_ERR_VALUE, "%s: gamma.learn is off, but decay data is learned",
                        memory);
    if (c->lambda.decay_rank && c->lambda.decay != DRA_DECAY_DATA)
        return dra_fail(err, DRA_ERR_VALUE, "%s: decay_rank is %lld, which only decay data has",
                        memory, (long long)c->lambda.decay_rank);
    return check_softplus(s, memory, err);
}

int dra_lambda_count(const dra_memory_sizes *s)
{
    const dra_lambda_options *o = &s->config->lambda;
    return (int)o->decay + (o->decay_rank ? 1 : 0) + (is_softplus(s) ? 1 : 0);
}

/* ln of the factor of rates: factors from 1 to 16, as Mamba-2 draws them. */
static double first_factor(const dra_memory_sizes *s, int64_t h)
{
    return log(s->H > 1 ? 1 + 15 * (double)h / (double)(s->H - 1) : 1);
}

/* z of a first ln(lambda) = l. */
static double first_z(const dra_memory_config *c, double l)
{
    if (c->lambda.decay_form == DRA_FORM_EXP) return log(-l);
    if (c->lambda.decay_form == DRA_FORM_BOUNDED) {
        const double share = fmin(-l / BOUND, 0.999);
        return log(share / (1 - share));
    }
    if (c->lambda.decay == DRA_DECAY_DATA) l *= ROOT; /* sigmoid(b)^(1/16) = gamma */
    return l - log(-expm1(l));
}

/* The same of softplus, whose rate is -l / its factor. */
static double first_bias(const dra_memory_sizes *s, int64_t h)
{
    const double rate = -dra_gamma_log(s->config, h, s->H) / exp(first_factor(s, h));
    return rate + log(-expm1(-rate));
}

/* All channels of a head start alike. */
static double *first_values(const dra_memory_sizes *s, int64_t each)
{
    double *z = calloc((size_t)(s->H * each) + 1, sizeof *z);
    for (int64_t i = 0; z && i < s->H * each; i++)
        z[i] = is_softplus(s) ? first_bias(s, i)
                              : first_z(s->config, dra_gamma_log(s->config, i / each, s->H));
    return z;
}

static void declare_factor(const dra_memory_sizes *s, const char *prefix, dra_specs *params)
{
    double *values = calloc((size_t)s->H + 1, sizeof *values);
    for (int64_t h = 0; values && h < s->H; h++) values[h] = first_factor(s, h);
    dra_specs_add(params, prefix,
                  &(dra_spec){"A_log", DRA_SHAPE(s->H), DRA_FILL_VALUES, .values = values,
                              .group = DRA_PARAM_DECAY});
    free(values);
}

static dra_low_rank map_of(const dra_memory_sizes *s, int64_t width)
{
    const bool sigmoid = s->config->lambda.decay_form == DRA_FORM_SIGMOID;
    return (dra_low_rank){"W_decay",
                          "W_decay_1",
                          "W_decay_2",
                          sigmoid          ? "b_decay"
                          : is_softplus(s) ? "dt_bias"
                                           : "time_decay",
                          of_channels(s) ? DRA_SHAPE(s->H, width) : DRA_SHAPE(s->H),
                          s->config->lambda.decay_rank,
                          .group = sigmoid || is_softplus(s) ? DRA_PARAM_DECAY
                                                             : DRA_PARAM_TIME_DECAY};
}

int dra_lambda_declare(const dra_memory_sizes *s, int64_t width, const char *prefix,
                       dra_specs *params)
{
    dra_low_rank m = map_of(s, width);
    const int    before = dra_specs_count(params);
    if (s->config->lambda.decay == DRA_DECAY_NONE) return 0;
    if (s->config->lambda.decay == DRA_DECAY_FIXED &&
        s->config->lambda.decay_form == DRA_FORM_SIGMOID) {
        dra_gamma_declare(s, prefix, "beta", 0, width, params);
        return 1;
    }
    double *z = first_values(s, of_channels(s) ? width : 1);
    m.values = z;
    if (s->config->lambda.decay == DRA_DECAY_DATA)
        dra_low_rank_declare(&m, s->C, prefix, params);
    else
        dra_specs_add(params, prefix,
                      &(dra_spec){m.bias, m.out, DRA_FILL_VALUES, .values = z, .group = m.group,
                                  .frozen = s->config->gamma.learn == DRA_OFF});
    free(z);
    if (is_softplus(s)) declare_factor(s, prefix, params);
    return dra_specs_count(params) - before;
}

static dra_value log_lambda(dra_graph *g, const dra_memory_sizes *s, dra_value z)
{
    switch (s->config->lambda.decay_form) {
    case DRA_FORM_EXP: return dra_neg(g, dra_exp(g, z));
    case DRA_FORM_BOUNDED: return dra_affine(g, dra_sigmoid(g, z), -BOUND, 0);
    default: break;
    }
    const dra_value l = dra_log_sigmoid(g, z);
    return s->config->lambda.decay == DRA_DECAY_DATA ? dra_affine(g, l, 1 / ROOT, 0) : l;
}

dra_value dra_lambda_fixed(dra_graph *g, const dra_memory_sizes *s, const dra_value *param)
{
    return s->config->lambda.decay == DRA_DECAY_FIXED ? log_lambda(g, s, param[0]) : (dra_value){0};
}

/* softplus(z) within its limits. */
static dra_value limit_rate(dra_graph *g, const dra_lambda_options *o, dra_value z)
{
    dra_value rate = dra_softplus(g, z);
    if (o->rate_least > 0) rate = dra_maximum(g, rate, dra_number(g, o->rate_least));
    return o->rate_most > 0 ? dra_minimum(g, rate, dra_number(g, o->rate_most)) : rate;
}

dra_value dra_lambda_code(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                          dra_value x, dra_value *rate)
{
    const int at = s->config->lambda.decay_rank ? 2 : 1; /* of the bias */
    *rate = (dra_value){0};
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_shape    bias = dra_shape_of(g, param[at]);
    const dra_low_rank m = map_of(s, bias.dim[bias.rank - 1]);
    const dra_value    z = dra_low_rank_build(g, &m, param, x, true);
    if (!is_softplus(s)) return log_lambda(g, s, z);
    *rate = limit_rate(g, &s->config->lambda, z);
    return dra_neg(g, dra_mul(g, *rate, dra_exp(g, param[at + 1])));
}

dra_value dra_lambda_step(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                          dra_value code)
{
    const bool      fixed = s->config->lambda.decay == DRA_DECAY_FIXED;
    const dra_value l = fixed ? dra_lambda_fixed(g, s, param) : code;
    if (s->config->lambda.decay == DRA_DECAY_NONE || dra_graph_failed(g)) return (dra_value){0};
    dra_shape shape = dra_shape_of(g, l);
    for (int32_t rank = shape.rank + (of_channels(s) ? 1 : 2); shape.rank < rank; shape.rank++)
        shape.dim[shape.rank] = 1;
    return dra_reshape(g, l, shape);
}

int32_t dra_lambda_rank(const dra_memory_sizes *s) { return of_channels(s) ? 4 : 3; }

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
