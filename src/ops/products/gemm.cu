/* Products by cuBLASLt. A problem is planned when it is first met: its descriptors, and the
 * algorithm that the library's heuristic names first. Both are kept, so that later runs only start
 * it: nothing is allocated, tuned or waited for, and a run can be captured into a CUDA graph.
 *
 * The same bits on every run: one stream, one workspace that is ours, a fixed algorithm, and sums
 * over k that are split only if their parts meet in the workspace, in f32. Across GPUs of another
 * kind and versions of the library they may differ.
 *
 * cuBLASLt counts by columns. A matrix in rows is its transpose in columns, so what it is asked for
 * is y^T = b^T a^T: its A is our b, its B our a, its rows our N. */
#include "ops/products/gemm.cuh"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024, CHOICES = 4 };
static const size_t workspace_bytes = (size_t)32 << 20; /* as recommended for Hopper */

/* All that a choice may depend on, without gaps: it is compared and hashed as bytes. */
struct problem {
    int64_t M, N, K, batch, a_line, b_line, y_line, a_next, b_next, y_next;
    int32_t dtype, y_dtype, precision, a_transposed, b_transposed, bias, add, plus_align;
    int32_t a_align, b_align, y_align, bias_align; /* bytes, up to 256 */
};

struct planned {
    planned               *next;
    problem                key;
    cublasLtMatmulDesc_t   product;
    cublasLtMatrixLayout_t a, b, y;
    cublasLtMatmulAlgo_t   algorithm;
    size_t                 workspace; /* bytes that the algorithm needs */
    bool                   found;     /* false: the library has none */
};

struct dra_cuda_gemm_state {
    cublasLtHandle_t handle;
    void            *workspace;
    planned         *bucket[BUCKETS];
};

/* ---- the problem ----------------------------------------------------------------------------- */

static int32_t alignment(const void *data, int64_t next, size_t bytes)
{
    const uint64_t bits = (uint64_t)(uintptr_t)data | (uint64_t)next * bytes | 256;
    return (int32_t)(bits & ~(bits - 1));
}

/* How a factor is stored: lines of n elements, each adjacent, a number of elements apart. */
static int64_t line_of(int64_t rows, int64_t columns, int64_t row, int64_t column,
                       int32_t *transposed)
{
    *transposed = !((column == 1 || columns == 1) && (row >= columns || rows == 1));
    if (*transposed) return columns == 1 ? rows : column;
    return rows == 1 ? columns : row;
}

static problem problem_of(const dra_cuda_gemm *g)
{
    const size_t bytes = dra_dtype_bytes(g->a_dtype);
    problem      p;
    memset(&p, 0, sizeof p);
    p.M = g->M, p.N = g->N, p.K = g->K, p.batch = g->batch;
    p.a_line = line_of(g->M, g->K, g->a_row, g->a_column, &p.a_transposed);
    p.b_line = line_of(g->K, g->N, g->b_row, g->b_column, &p.b_transposed);
    p.y_line = g->M == 1 ? g->N : g->y_row;
    if (g->batch > 1) p.a_next = g->a_next, p.b_next = g->b_next, p.y_next = g->y_next;
    p.dtype = g->a_dtype;
    p.y_dtype = g->y_bf16 ? DRA_BF16 : DRA_F32;
    p.precision = g->precision;
    p.bias = g->bias != nullptr;
    p.add = g->add;
    p.a_align = alignment(g->a, p.a_next, bytes);
    p.b_align = alignment(g->b, p.b_next, bytes);
    p.y_align = alignment(g->y, p.y_next, dra_dtype_bytes((dra_dtype)p.y_dtype));
    p.plus_align = g->plus ? alignment(g->plus, p.y_next, sizeof(float)) : 0;
    p.bias_align = g->bias ? alignment(g->bias, 0, 0) : 0;
    return p;
}

static unsigned bucket_of(const problem *p)
{
    const unsigned char *at = reinterpret_cast<const unsigned char *>(p);
    uint64_t             hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *p; i++) hash = (hash ^ at[i]) * 1099511628211u;
    return (unsigned)(hash ^ hash >> 32) % BUCKETS;
}

/* ---- planning -------------------------------------------------------------------------------- */

static cublasStatus_t make_layout(cublasLtMatrixLayout_t *out, dra_dtype dtype, int64_t n,
                                  int64_t lines, int64_t line, int64_t batch, int64_t next)
{
    const int32_t  count = (int32_t)batch;
    cublasStatus_t st = cublasLtMatrixLayoutCreate(
        out, dtype == DRA_BF16 ? CUDA_R_16BF : CUDA_R_32F, (uint64_t)n, (uint64_t)lines, line);
    if (st == CUBLAS_STATUS_SUCCESS && batch > 1)
        st = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof count);
    if (st == CUBLAS_STATUS_SUCCESS && batch > 1)
        st = cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &next, sizeof next);
    return st;
}

static cublasStatus_t make_layouts(planned *e)
{
    const problem  *p = &e->key;
    const dra_dtype dtype = (dra_dtype)p->dtype;
    cublasStatus_t  st = make_layout(&e->b, dtype, p->b_transposed ? p->K : p->N,
                                    p->b_transposed ? p->N : p->K, p->b_line, p->batch, p->b_next);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = make_layout(&e->a, dtype, p->a_transposed ? p->M : p->K, p->a_transposed ? p->K : p->M,
                         p->a_line, p->batch, p->a_next);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = make_layout(&e->y, (dra_dtype)p->y_dtype, p->N, p->M, p->y_line, p->batch, p->y_next);
    return st;
}

static cublasStatus_t set_product(planned *e, cublasLtMatmulDescAttributes_t what,
                                  const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(e->product, what, value, bytes);
}

/* tf32 only where it is asked for; else f32 is multiplied as f32. */
static cublasStatus_t make_product(planned *e)
{
    const problem            *p = &e->key;
    const cublasComputeType_t compute = p->precision == DRA_PRECISION_TF32
                                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    const cublasOperation_t   a = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t   b = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t  end = CUBLASLT_EPILOGUE_BIAS;
    cublasStatus_t            st = cublasLtMatmulDescCreate(&e->product, compute, CUDA_R_32F);
    if (st == CUBLAS_STATUS_SUCCESS) st = set_product(e, CUBLASLT_MATMUL_DESC_TRANSA, &b, sizeof b);
    if (st == CUBLAS_STATUS_SUCCESS) st = set_product(e, CUBLASLT_MATMUL_DESC_TRANSB, &a, sizeof a);
    if (st == CUBLAS_STATUS_SUCCESS && p->bias)
        st = set_product(e, CUBLASLT_MATMUL_DESC_EPILOGUE, &end, sizeof end);
    return st;
}

static cublasStatus_t make_preference(const problem *p, cublasLtMatmulPreference_t *out)
{
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t a = (uint32_t)p->a_align, b = (uint32_t)p->b_align, y = (uint32_t)p->y_align;
    const uint32_t c = p->plus_align ? (uint32_t)p->plus_align : y;
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void                          *value;
        size_t                               bytes;
    } set[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b, sizeof b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a, sizeof a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &y, sizeof y},
    };
    cublasStatus_t st = cublasLtMatmulPreferenceCreate(out);
    for (const auto &s : set)
        if (st == CUBLAS_STATUS_SUCCESS)
            st = cublasLtMatmulPreferenceSetAttribute(*out, s.what, s.value, s.bytes);
    return st;
}

/* No algorithm is no error. */
static cublasStatus_t choose(dra_cuda_gemm_state *s, planned *e)
{
    cublasLtMatmulPreference_t      wanted = nullptr;
    cublasLtMatmulHeuristicResult_t found[CHOICES];
    int                             n = 0;
    cublasStatus_t                  st = make_preference(&e->key, &wanted);
    if (st == CUBLAS_STATUS_SUCCESS) {
        st = cublasLtMatmulAlgoGetHeuristic(s->handle, e->product, e->b, e->a, e->y, e->y, wanted,
                                            CHOICES, found, &n);
        if (st == CUBLAS_STATUS_NOT_SUPPORTED) st = CUBLAS_STATUS_SUCCESS, n = 0;
    }
    for (int i = 0; i < n && st == CUBLAS_STATUS_SUCCESS && !e->found; i++) {
        e->found = found[i].state == CUBLAS_STATUS_SUCCESS &&
                   found[i].workspaceSize <= workspace_bytes;
        e->algorithm = found[i].algo;
        e->workspace = found[i].workspaceSize;
    }
    if (wanted) cublasLtMatmulPreferenceDestroy(wanted);
    return st;
}

static void free_planned(planned *e)
{
    if (e->product) cublasLtMatmulDescDestroy(e->product);
    if (e->a) cublasLtMatrixLayoutDestroy(e->a);
    if (e->b) cublasLtMatrixLayoutDestroy(e->b);
    if (e->y) cublasLtMatrixLayoutDestroy(e->y);
    free(e);
}

/* Where the bias is can change from run to run. */
static cublasStatus_t set_bias(planned *e, const dra_cuda_gemm *g)
{
    if (!g->bias) return CUBLAS_STATUS_SUCCESS;
    return set_product(e, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias, sizeof g->bias);
}

static cublasStatus_t plan(dra_cuda_gemm_state *s, const dra_cuda_gemm *g, planned **out)
{
    const problem key = problem_of(g);
    planned     **bucket = &s->bucket[bucket_of(&key)];
    for (planned *e = *bucket; e; e = e->next)
        if (memcmp(&e->key, &key, sizeof key) == 0) {
            *out = e;
            return CUBLAS_STATUS_SUCCESS;
        }
    planned *e = static_cast<planned *>(calloc(1, sizeof *e));
    if (!e) return CUBLAS_STATUS_ALLOC_FAILED;
    e->key = key;
    cublasStatus_t st = make_product(e);
    if (st == CUBLAS_STATUS_SUCCESS) st = make_layouts(e);
    if (st == CUBLAS_STATUS_SUCCESS) st = set_bias(e, g);
    if (st == CUBLAS_STATUS_SUCCESS) st = choose(s, e);
    if (st != CUBLAS_STATUS_SUCCESS) {
        free_planned(e);
        return st;
    }
    e->next = *bucket;
    *bucket = *out = e;
    return st;
}

/* ---- running --------------------------------------------------------------------------------- */

bool dra_cuda_gemm_library(const dra_call *c, const dra_cuda_gemm *g)
{
    const float          one = 1, before = g->add || g->plus ? 1.0f : 0.0f;
    const void          *plus = g->plus ? g->plus : g->y;
    dra_cuda_gemm_state *s = dra_cuda_of(c)->gemm;
    planned             *e = nullptr;
    cublasStatus_t       st = plan(s, g, &e);
    if (st == CUBLAS_STATUS_SUCCESS && !e->found) return false;
    if (st == CUBLAS_STATUS_SUCCESS) st = set_bias(e, g);
    if (st == CUBLAS_STATUS_SUCCESS && e->workspace)
        dra_cuda_order_claim(dra_cuda_of(c), s->workspace, e->workspace);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = cublasLtMatmul(s->handle, e->product, &one, g->b, e->b, g->a, e->a, &before, plus,
                            e->y, g->y, e->y, &e->algorithm, s->workspace, workspace_bytes,
                            dra_cuda_of(c)->stream);
    if (st != CUBLAS_STATUS_SUCCESS) dra_cuda_of(c)->failure = cublasLtGetStatusString(st);
    return true;
}

dra_status dra_cuda_gemm_open(dra_cuda_gemm_state **out, dra_error *err)
{
    dra_cuda_gemm_state *s = static_cast<dra_cuda_gemm_state *>(calloc(1, sizeof *s));
    *out = s;
    if (!s) return dra_fail(err, DRA_ERR_MEMORY, "cuBLASLt: out of memory");
    const cublasStatus_t st = cublasLtCreate(&s->handle);
    if (st != CUBLAS_STATUS_SUCCESS)
        return dra_fail(err, DRA_ERR_DEVICE, "cuBLASLt: %s", cublasLtGetStatusString(st));
    const cudaError_t error = cudaMalloc(&s->workspace, workspace_bytes);
    if (error == cudaSuccess) return DRA_OK;
    return dra_fail(err, DRA_ERR_DEVICE, "cuBLASLt: its workspace of %zu bytes: %s",
                    workspace_bytes, cudaGetErrorString(error));
}

void dra_cuda_gemm_close(dra_cuda_gemm_state *s)
{
    if (!s) return;
    for (planned *&bucket : s->bucket)
        while (bucket) {
            planned *e = bucket;
            bucket = e->next;
            free_planned(e);
        }
    if (s->workspace) cudaFree(s->workspace);
    if (s->handle) cublasLtDestroy(s->handle);
    free(s);
}
