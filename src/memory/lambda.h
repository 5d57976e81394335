/* The decay of matrix memories: ln(lambda) of each token, for each head or each channel of a key.
 * z is a parameter (fixed), or b + W x, of decay_rank b + W_2 tanh(W_1 x) (data);
 *   sigmoid: ln sigmoid(z), by data over 16     exp: -e^z     bounded: -e^(-1/2) sigmoid(z)
 *   softplus: -e^A_log softplus(z), of heads by data: A_log is one more parameter, and softplus(z)
 *   the rate, which values may be multiplied by. [Dao, Gu 2024: Mamba-2] */
#ifndef DRA_SRC_MEMORY_LAMBDA_H
#define DRA_SRC_MEMORY_LAMBDA_H

#include "memory/memory.h"

dra_status dra_lambda_check(const dra_memory_sizes *s, const char *memory, dra_error *err);

/* Adds the parameters of z; returns how many there are. width: channels of a key. */
int dra_lambda_declare(const dra_memory_sizes *s, int64_t width, const char *prefix,
                       dra_specs *params);
/* How many that will be. */
int dra_lambda_count(const dra_memory_sizes *s);
/* ln(lambda) where it is a parameter: (H), or (H, width); none for other decays. param: its own. */
dra_value dra_lambda_fixed(dra_graph *g, const dra_memory_sizes *s, const dra_value *param);
/* The same by data, (B, T, H) or (B, T, H, width), from x (B, T, C). *rate: that of softplus, else
 * none. */
dra_value dra_lambda_code(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                          dra_value x, dra_value *rate);
/* ln(lambda) of one token, as a factor of S (B, H, width, E); null: there is no decay. `code`: of
 * the token, (B, H) or (B, H, width), for data decay. */
dra_value dra_lambda_step(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                          dra_value code);
/* m + expm1(l) m = e^l m; m where l is null. */
dra_value dra_lambda_apply(dra_graph *g, dra_value l, dra_value m);
/* The same where m is relative to a maximum that may jump: a product where the sum would cancel. */
dra_value dra_lambda_apply_jump(dra_graph *g, dra_value l, dra_value m);
/* How many axes it has over time: 4 where it is of channels. */
int32_t dra_lambda_rank(const dra_memory_sizes *s);

/* ---- maps that may be of low rank ------------------------------------------------------------ */

typedef struct dra_low_rank {
    const char   *name, *first, *second, *bias; /* of one matrix, of two, and of the bias or NULL */
    dra_shape     out;                          /* of the bias */
    int64_t       rank;                         /* 0: one matrix */
    double        start;                        /* of the bias, where there are no values */
    const double *values;
    dra_param_group group; /* of the bias */
} dra_low_rank;

/* Adds the matrix or both, then the bias; returns how many. They start so that the map is 0. */
int dra_low_rank_declare(const dra_low_rank *m, int64_t C, const char *prefix, dra_specs *params);
/* b + W_2 act(W_1 x), or b + W x, (B, T, out...). tanh: act is that, else nothing. */
dra_value dra_low_rank_build(dra_graph *g, const dra_low_rank *m, const dra_value *param,
                             dra_value x, bool tanh);

#endif
