/* Pointwise programs on the GPU, for kernels that end with one (matmul_then). */
#ifndef DRA_SRC_OPS_POINTWISE_POINTWISE_CUH
#define DRA_SRC_OPS_POINTWISE_POINTWISE_CUH

#include "device/cuda/cuda.cuh"

/* Runs a program over n elements; in[] seen with any strides, out[] dense; an output whose data is
 * NULL is not written. */
void dra_cuda_run_program(const dra_call *c, int inputs, const dra_tensor *in, int outputs,
                          const dra_tensor *out, int steps, const dra_pointwise_step *step,
                          int64_t n);

#endif
