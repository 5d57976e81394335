/* The decay of matrix memories: ln(lambda) of each token and head, from a parameter or from x.
 *   none: 0     fixed: ln sigmoid(beta), beta (H)     data: ln sigmoid(W x + b) / 16 */
#ifndef DRA_SRC_MEMORY_LAMBDA_H
#define DRA_SRC_MEMORY_LAMBDA_H

#include "memory/memory.h"

/* Adds beta, or W_decay and b_decay; returns how many parameters these are. */
int dra_lambda_declare(const dra_memory_sizes *s, const char *prefix, dra_specs *params);
/* For data decay: ln(lambda) (B, T, H) from x (B, T, C); param: its own. */
dra_value dra_lambda_code(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                          dra_value x);
/* ln(lambda) of one token, (H, 1, 1) or (B, H, 1, 1); null: there is no decay. `code`: of the
 * token, (B, H), for data decay. */
dra_value dra_lambda_step(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                          dra_value code);
/* m + expm1(l) m = e^l m; m where l is null. */
dra_value dra_lambda_apply(dra_graph *g, dra_value l, dra_value m);
/* The same where m is relative to a maximum that may jump: a product where the sum would cancel. */
dra_value dra_lambda_apply_jump(dra_graph *g, dra_value l, dra_value m);

#endif
