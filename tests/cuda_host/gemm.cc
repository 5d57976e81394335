/* Products as plain loops, instead of src/cuda/gemm.cu. */
#include "cuda/gemm.h"

struct dra_cuda_gemm_state {
    int none;
};

dra_status dra_cuda_gemm_open(dra_cuda_gemm_state **out, dra_error *err)
{
    *out = nullptr;
    return DRA_OK;
}

void dra_cuda_gemm_close(dra_cuda_gemm_state *) {}

static float factor(const void *data, dra_dtype dtype, int64_t i, dra_precision precision)
{
    const float x = dra_load(data, dtype, i);
    return precision == DRA_PRECISION_BF16 ? dra_widen_bf16(dra_round_bf16(x)) : x;
}

static void one(const dra_cuda_gemm *g, int64_t m)
{
    for (int64_t i = 0; i < g->M; i++)
        for (int64_t j = 0; j < g->N; j++) {
            float *y = g->y + m * g->y_next + i * g->y_row + j;
            double sum = g->add ? *y : 0;
            for (int64_t k = 0; k < g->K; k++)
                sum += (double)factor(g->a, g->a_dtype,
                                      m * g->a_next + i * g->a_row + k * g->a_column,
                                      g->precision) *
                       (double)factor(g->b, g->b_dtype,
                                      m * g->b_next + k * g->b_row + j * g->b_column, g->precision);
            *y = (float)(g->bias ? sum + g->bias[j] : sum);
        }
}

void dra_cuda_gemm_run(const dra_call *, const dra_cuda_gemm *g)
{
    for (int64_t m = 0; m < g->batch; m++) one(g, m);
}
