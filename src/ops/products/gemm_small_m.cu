/* Products of few rows whose b holds numbers; see gemm_small_m.cuh. */
#include "ops/products/gemm_small_m.cuh"

template <typename Stored>
static void launch_plain(const dra_call *c, const small_product &p, bool columns)
{
    if (columns)
        launch_stored<Stored, true>(c, p);
    else
        launch_stored<Stored, false>(c, p);
}

void dra_cuda_gemm_small_m(const dra_call *c, const dra_cuda_gemm *g)
{
    small_product p = {};
    const size_t  bytes = dra_dtype_bytes(g->b_dtype);
    const bool    columns = g->b_row == 1 && (g->b_column != 1 || g->N == 1);
    p.g = *g;
    p.a_whole = g->a_dtype == DRA_F32 && g->a_column == 1 && dra_on_16(g->a, 4, g->a_row) &&
                dra_on_16(g->a, 4, g->a_next);
    p.b_whole = (columns ? g->b_row : g->b_column) == 1 &&
                dra_on_16(g->b, bytes, columns ? g->b_column : g->b_row) &&
                dra_on_16(g->b, bytes, g->b_next);
    if (dra_is_quantised(g->b_dtype))
        dra_cuda_gemm_small_quant(c, p, columns);
    else if (g->b_dtype == DRA_F32)
        launch_plain<dra_stored_f32>(c, p, columns);
    else if (g->b_dtype == DRA_BF16)
        launch_plain<dra_stored_bf16>(c, p, columns);
    else
        launch_plain<dra_stored_f16>(c, p, columns);
}
