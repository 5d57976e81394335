/* Quantised blocks, as ggml defines them: numbers in a few bits that share a scale. */
#ifndef DRA_SRC_QUANT_H
#define DRA_SRC_QUANT_H

#include "base/shape.h"

enum { DRA_QUANT_BLOCK_MOST = 256 }; /* elements */

/* Elements first .. first + n - 1 of blocks that start at `blocks`. */
void dra_dequantise(dra_dtype dtype, const void *blocks, int64_t first, int64_t n, float *to);
/* One of them. */
float dra_dequantised(dra_dtype dtype, const void *blocks, int64_t i);

/* A block of 32 of Q4_0, Q4_1, Q5_0, Q5_1 or Q8_0 as whole numbers, which its scale multiplies. */
void dra_quantised_integers(dra_dtype dtype, const void *block, int *to);

/* Whether numbers can be written as this dtype: any but Q3_K. */
bool dra_can_quantise(dra_dtype dtype);
/* n elements, whole blocks of them, rounded as ggml's reference does; in blocks of 256 with less
 * error than that has (quant_k.c). Numbers must be finite. */
void dra_quantise(dra_dtype dtype, const float *from, int64_t n, void *blocks);

#endif
