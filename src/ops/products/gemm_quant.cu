/* Products of few rows straight from quantised blocks, as decoding needs them: 8 elements of a
 * block become floats in registers; see gemm_small_m.cuh. Sums are in f32. Weights lie along k, and
 * each dtype has its kernels; any other order shares one that is slow. */
#include "ops/products/gemm_small_m.cuh"
#include "ops/products/quant.cuh"

template <typename Q> static void launch_columns(const dra_call *c, const small_product &p)
{
    launch_stored<dra_stored_quant<Q>, true>(c, p);
}

void dra_cuda_gemm_small_quant(const dra_call *c, const small_product &given, bool columns)
{
    small_product        p = given;
    const dra_cuda_gemm *g = &p.g;
    p.b_whole = (columns ? g->b_row : g->b_column) == 1 &&
                dra_quant_on_8(columns ? g->b_column : g->b_row) && dra_quant_on_8(g->b_next);
    if (!columns) {
        launch_stored<dra_stored_any_quant, false>(c, p);
        return;
    }
    switch (g->b_dtype) {
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    case DRA_##NAME:                                                                               \
        launch_columns<dra_quant_##name>(c, p);                                                    \
        break;
#include "base/quant.def"
#undef DRA_QUANT
    default: break;
    }
}
