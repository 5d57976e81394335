/* Products as plain loops, instead of src/ops/products/gemm.cu. */
#include <cstdio>
#include <cstdlib>

#include "ops/products/gemm.cuh"

struct dra_cuda_gemm_state {
    int none;
};

dra_status dra_cuda_gemm_open(dra_cuda_gemm_state **out, dra_error *err)
{
    *out = nullptr;
    return DRA_OK;
}

void dra_cuda_gemm_close(dra_cuda_gemm_state *) {}

static void one(const dra_cuda_gemm *g, int64_t m)
{
    for (int64_t i = 0; i < g->M; i++)
        for (int64_t j = 0; j < g->N; j++) {
            void  *at = dra_cuda_gemm_y(*g, m * g->y_next + i * g->y_row + j);
            float *y = static_cast<float *>(at);
            double sum = g->add ? *y : 0;
            for (int64_t k = 0; k < g->K; k++)
                sum += (double)dra_load(g->a, g->a_dtype,
                                        m * g->a_next + i * g->a_row + k * g->a_column) *
                       (double)dra_load(g->b, g->b_dtype,
                                        m * g->b_next + k * g->b_row + j * g->b_column);
            sum = g->bias ? sum + (double)dra_load(g->bias, g->bias_dtype, j) : sum;
            if (g->plus) sum = (float)sum + g->plus[m * g->y_next + i * g->y_row + j];
            if (g->y_bf16)
                *static_cast<uint16_t *>(at) = dra_round_bf16((float)sum);
            else
                *y = (float)sum;
        }
}

static bool adjacent(int64_t lines, int64_t n, int64_t line, int64_t step)
{
    return (step == 1 || n == 1) && (line >= n || lines == 1);
}

static void expect(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "cuda_host: a product that cuBLASLt does not take: %s\n", what);
    abort();
}

/* As the library: fails loudly where it would. It has none for few columns, so that what is used in
 * its place is tried. */
bool dra_cuda_gemm_library(const dra_call *, const dra_cuda_gemm *g)
{
    enum { FEW = 3 };
    const dra_dtype dtype = g->precision == DRA_PRECISION_BF16 ? DRA_BF16 : DRA_F32;
    expect(g->a_dtype == dtype && g->b_dtype == dtype, "dtypes");
    expect(adjacent(g->M, g->K, g->a_row, g->a_column) ||
               adjacent(g->K, g->M, g->a_column, g->a_row),
           "strides of a");
    expect(adjacent(g->K, g->N, g->b_row, g->b_column) ||
               adjacent(g->N, g->K, g->b_column, g->b_row),
           "strides of b");
    expect(!g->y_bf16 || (!g->add && !g->plus), "a sum in bf16");
    expect(!g->bias || g->bias_dtype == (g->y_bf16 ? DRA_BF16 : DRA_F32), "the dtype of a bias");
    expect(g->K > 0 && g->a_next >= 0 && g->b_next >= 0 && (uintptr_t)g->bias % 16 == 0, "sizes");
    if (g->N <= FEW) return false;
    for (int64_t m = 0; m < g->batch; m++) one(g, m);
    return true;
}
