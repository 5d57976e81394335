/* Products of matrices on the GPU: cuBLASLt, gemm.cu; in tests without one, plain loops. */
#ifndef DRA_SRC_CUDA_GEMM_H
#define DRA_SRC_CUDA_GEMM_H

#include "cuda/cuda.h"

/* y_mn = sum_k a_mk b_kn (+ bias_n) for `batch` matrices, y dense with rows of y_row. Strides in
 * elements: of each factor one of row and column is 1, or the size along it is 1. */
struct dra_cuda_gemm {
    int64_t      M, N, K, batch;
    const void  *a, *b;
    dra_dtype    a_dtype, b_dtype; /* f32, bf16, f16 */
    int64_t      a_row, a_column, b_row, b_column, y_row;
    int64_t      a_next, b_next, y_next; /* from one matrix of the batch to the next; 0: the same */
    float       *y;
    const float *bias; /* (N), adjacent; or NULL */
    bool         add;  /* to what is in y */
    dra_precision precision;
};

dra_status dra_cuda_gemm_open(dra_cuda_gemm_state **out, dra_error *err);
void       dra_cuda_gemm_close(dra_cuda_gemm_state *s);
void       dra_cuda_gemm_run(const dra_call *c, const dra_cuda_gemm *g);

#endif
