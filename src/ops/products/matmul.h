/* Products, as matmul.c and matmul_fused.c see them. */
#ifndef DRA_SRC_OPS_PRODUCTS_MATMUL_H
#define DRA_SRC_OPS_PRODUCTS_MATMUL_H

#include "ops/pointwise/pointwise.h"

extern const dra_op dra_op_matmul, dra_op_matmul_then, dra_op_matmuls;

/* y (M, N) cut into tiles of `rows` rows and `columns` columns. */
typedef struct dra_tiling {
    int64_t rows, columns, row_blocks, column_blocks;
} dra_tiling;

/* Tiles of a product that let all threads of the call end early and together. */
dra_tiling dra_product_tiling(const dra_call *c, int64_t batch, int64_t M, int64_t N, int64_t K,
                              bool bf16);

/* The kernel of one product. dra_matmul_tile(): true when a tile of y is done, *m says which. */
int64_t  dra_matmul_tiles(const dra_call *c);
int64_t  dra_matmul_stages(const dra_call *c);
size_t   dra_matmul_scratch(const dra_call *c);
bool     dra_matmul_tile(const dra_call *c, int64_t i, dra_gemm *m);
dra_cost dra_matmul_cost(const dra_call *c);

#endif
