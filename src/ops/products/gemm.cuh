/* Products of matrices on the GPU. Few rows, as in decoding, are multiplied by a kernel of its own
 * (gemm_small_m.cuh), the rest by cuBLASLt (gemm.cu; in tests without a GPU by plain loops), after
 * factors that it cannot read as they are were packed (gemm_run.cu). */
#ifndef DRA_SRC_OPS_PRODUCTS_GEMM_CUH
#define DRA_SRC_OPS_PRODUCTS_GEMM_CUH

#include "device/cuda/cuda.cuh"

/* y_mn = sum_k a_mk b_kn (+ bias_n) for `batch` matrices, rows of y adjacent. Strides in elements,
 * any. */
struct dra_cuda_gemm {
    int64_t      M, N, K, batch;
    const void  *a, *b;
    dra_dtype    a_dtype, b_dtype; /* f32, bf16, f16; of b also quantised ones */
    int64_t      a_row, a_column, b_row, b_column, y_row;
    int64_t      a_next, b_next, y_next; /* from one matrix of the batch to the next; 0: the same */
    void        *y;
    bool         y_bf16;     /* y is rounded to bf16, else f32; then only a bias is added */
    const void  *bias;       /* (N), adjacent; or NULL */
    dra_dtype    bias_dtype; /* f32; the library wants that of y, and is given it by gemm_run.cu */
    bool         add;        /* to what is in y */
    const float *plus;       /* added, stored as y is; or NULL */
    dra_precision precision;
    void         *scratch; /* on 64 bytes, dra_cuda_gemm_scratch() of them; NULL: none is there, and
                              what has to be packed is multiplied slowly */
};

/* Element i of y. */
__host__ __device__ static inline void *dra_cuda_gemm_y(const dra_cuda_gemm &g, int64_t i)
{
    return static_cast<char *>(g.y) + i * (g.y_bf16 ? 2 : 4);
}

dra_status dra_cuda_gemm_open(dra_cuda_gemm_state **out, dra_error *err);
void       dra_cuda_gemm_close(dra_cuda_gemm_state *s);

/* Bytes of scratch, whatever the addresses. */
size_t dra_cuda_gemm_scratch(const dra_cuda_gemm *g);
void   dra_cuda_gemm_run(const dra_call *c, const dra_cuda_gemm *g);

/* ---- packing, for who multiplies a factor more than once ------------------------------------- */

struct dra_cuda_matrix {
    const void *data;
    dra_dtype   dtype;
    int64_t     rows, columns, batch;
    int64_t     row, column, next; /* strides */
};

/* Bytes for m as a factor in this precision, a multiple of 64; 0: it can be read as it is. */
size_t dra_cuda_pack_bytes(const dra_cuda_matrix *m, dra_precision precision);
/* The matrix to multiply: m, or where its numbers are packed, in memory of that size. */
dra_cuda_matrix dra_cuda_packed_at(const dra_cuda_matrix *m, dra_precision precision, void *to);
/* The same, and packs them. */
dra_cuda_matrix dra_cuda_pack(const dra_call *c, const dra_cuda_matrix *m, dra_precision precision,
                              void *to);

dra_cuda_matrix dra_cuda_factor_a(const dra_cuda_gemm *g);
dra_cuda_matrix dra_cuda_factor_b(const dra_cuda_gemm *g);
void            dra_cuda_set_a(dra_cuda_gemm *g, const dra_cuda_matrix *m);
void            dra_cuda_set_b(dra_cuda_gemm *g, const dra_cuda_matrix *m);

/* ---- ways to multiply ------------------------------------------------------------------------ */

/* Whether the kernel for few rows takes this one. */
bool dra_cuda_gemm_is_small(const dra_cuda_gemm *g);
/* That kernel: any sizes, strides and dtypes, fast where rows are few. */
void dra_cuda_gemm_small_m(const dra_call *c, const dra_cuda_gemm *g);
/* The library: factors as packed; K > 0; a bias on 16 bytes, of the dtype of y. False: it has no
 * algorithm for it. */
bool dra_cuda_gemm_library(const dra_call *c, const dra_cuda_gemm *g);

#endif
