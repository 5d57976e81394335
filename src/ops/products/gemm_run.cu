/* How a product is run: by the kernel for few rows, or by the library. The library reads both
 * factors in one dtype, bf16 or f32, adjacent along one of their axes; what is stored otherwise is
 * packed first, in its own order, each line on 16 bytes; so is what is quantised. */
#include "ops/products/gemm.cuh"
#include "ops/products/quant.cuh"

enum { LINE = 64 }; /* bytes that packed matrices begin on */

/* ---- packing --------------------------------------------------------------------------------- */

static dra_dtype packed_dtype(dra_precision p)
{
    return p == DRA_PRECISION_BF16 ? DRA_BF16 : DRA_F32;
}

static bool adjacent(int64_t lines, int64_t n, int64_t line, int64_t step)
{
    return (step == 1 || n == 1) && (line >= n || lines == 1);
}

static bool as_it_is(const dra_cuda_matrix *m, dra_precision p)
{
    return m->dtype == packed_dtype(p) && m->next >= 0 &&
           (adjacent(m->rows, m->columns, m->row, m->column) ||
            adjacent(m->columns, m->rows, m->column, m->row));
}

/* In lines along the axis that is adjacent, or else along rows. */
dra_cuda_matrix dra_cuda_packed_at(const dra_cuda_matrix *m, dra_precision p, void *to)
{
    dra_cuda_matrix y = *m;
    const bool      along_rows = m->column == 1 || m->row != 1;
    if (as_it_is(m, p)) return y;
    y.data = to;
    y.dtype = packed_dtype(p);
    const int64_t some = 16 / (int64_t)dra_dtype_bytes(y.dtype);
    const int64_t lines = along_rows ? m->rows : m->columns;
    const int64_t line = dra_div_up(along_rows ? m->columns : m->rows, some) * some;
    y.row = along_rows ? line : 1;
    y.column = along_rows ? 1 : line;
    y.next = m->next ? lines * line : 0;
    return y;
}

static int64_t matrices(const dra_cuda_matrix *m) { return m->next ? m->batch : 1; }

size_t dra_cuda_pack_bytes(const dra_cuda_matrix *m, dra_precision precision)
{
    if (as_it_is(m, precision)) return 0;
    const dra_cuda_matrix y = dra_cuda_packed_at(m, precision, nullptr);
    const int64_t all = matrices(m) * (y.column == 1 ? m->rows * y.row : m->columns * y.column);
    return dra_div_up((size_t)all * dra_dtype_bytes(y.dtype), (size_t)LINE) * LINE;
}

struct packing {
    const void *x;
    dra_dtype   dtype; /* of x */
    void       *y;
    int64_t     lines, n; /* of a matrix; elements of a line */
    int64_t     chunks;   /* of a line, CHUNK elements each, and of all lines */
    int64_t     all;
    int64_t     x_line, x_step, x_next, y_line;
    bool        whole; /* 16 bytes of x can be read at a time */
};

enum { CHUNK = 8 };

template <typename From>
__device__ static void load_chunk(const packing &p, int64_t x, int64_t left, float *v)
{
    DRA_UNROLL
    for (int i = 0; i < CHUNK; i += From::SOME)
        From::widen_some(From::fetch(p.x, p.dtype, x + i * p.x_step, p.x_step, left - i,
                                     p.whole && left >= CHUNK),
                         v + i);
}

__device__ static void store_chunk(float *y, int64_t left, const float *v)
{
    if (left >= CHUNK) {
        dra_store_some<4>(y, v);
        dra_store_some<4>(y + 4, v + 4);
        return;
    }
    for (int i = 0; i < left; i++) y[i] = v[i];
}

__device__ static void store_chunk(uint16_t *y, int64_t left, const float *v)
{
    if (left >= CHUNK) {
        float word[4];
        DRA_UNROLL
        for (int i = 0; i < 4; i++)
            word[i] = __uint_as_float(dra_pair_bf16(v[2 * i], v[2 * i + 1]));
        *reinterpret_cast<float4 *>(y) = make_float4(word[0], word[1], word[2], word[3]);
        return;
    }
    for (int i = 0; i < left; i++) y[i] = (uint16_t)dra_pair_bf16(v[i], 0);
}

template <typename From, typename To> __global__ static void pack_kernel(const packing p)
{
    DRA_EACH(i, p.all)
    {
        const int64_t line = p.chunks == p.all ? 0 : i / p.chunks,
                      at = (i - line * p.chunks) * CHUNK;
        const int64_t matrix = p.lines == 1 ? line : line / p.lines;
        const int64_t x = matrix * p.x_next + (line - matrix * p.lines) * p.x_line + at * p.x_step;
        float         v[CHUNK];
        load_chunk<From>(p, x, p.n - at, v);
        store_chunk(static_cast<To *>(p.y) + line * p.y_line + at, p.n - at, v);
    }
}

/* Lines that follow each other without a gap, on both sides, are one. */
static void join_lines(packing *p, int64_t matrices)
{
    const int64_t count = p->lines * matrices;
    const bool    lines = p->x_line == p->n * p->x_step || p->lines == 1;
    const bool    runs_on = matrices == 1 || p->x_next == p->lines * p->n * p->x_step;
    if (lines && runs_on && p->y_line == p->n) {
        p->n *= count;
        p->lines = 1;
        matrices = 1;
    }
    p->chunks = dra_div_up(p->n, (int64_t)CHUNK);
    p->all = p->chunks * p->lines * matrices;
}

template <typename From> static void launch_pack(const dra_call *c, const packing &p, dra_dtype to)
{
    const unsigned grid = dra_grid(c, p.all, DRA_THREADS);
    if (to == DRA_F32)
        DRA_LAUNCH(c, (pack_kernel<From, float>), grid, DRA_THREADS, 0, p);
    else
        DRA_LAUNCH(c, (pack_kernel<From, uint16_t>), grid, DRA_THREADS, 0, p);
}

dra_cuda_matrix dra_cuda_pack(const dra_call *c, const dra_cuda_matrix *m, dra_precision precision,
                              void *to)
{
    if (as_it_is(m, precision)) return *m;
    const dra_cuda_matrix y = dra_cuda_packed_at(m, precision, to);
    const bool            along_rows = y.column == 1;
    const size_t          bytes = dra_dtype_bytes(m->dtype);
    packing               p = {};
    p.x = m->data;
    p.dtype = m->dtype;
    p.y = to;
    p.lines = along_rows ? m->rows : m->columns;
    p.n = along_rows ? m->columns : m->rows;
    p.x_line = along_rows ? m->row : m->column;
    p.x_step = along_rows ? m->column : m->row;
    p.x_next = m->next;
    p.y_line = along_rows ? y.row : y.column;
    join_lines(&p, matrices(m));
    const int64_t line = p.lines == 1 ? 0 : p.x_line;
    p.whole = p.x_step == 1 &&
              (dra_is_quantised(m->dtype)
                   ? dra_quant_on_8(line) && dra_quant_on_8(p.x_next)
                   : dra_on_16(p.x, bytes, line) && dra_on_16(p.x, bytes, p.x_next));
    if (p.all <= 0) return y;
    if (dra_is_quantised(m->dtype))
        launch_pack<dra_stored_any_quant>(c, p, y.dtype);
    else if (m->dtype == DRA_F32)
        launch_pack<dra_stored_f32>(c, p, y.dtype);
    else if (m->dtype == DRA_BF16)
        launch_pack<dra_stored_bf16>(c, p, y.dtype);
    else
        launch_pack<dra_stored_f16>(c, p, y.dtype);
    return y;
}

/* ---- factors --------------------------------------------------------------------------------- */

dra_cuda_matrix dra_cuda_factor_a(const dra_cuda_gemm *g)
{
    return {g->a, g->a_dtype, g->M, g->K, g->batch, g->a_row, g->a_column, g->a_next};
}

dra_cuda_matrix dra_cuda_factor_b(const dra_cuda_gemm *g)
{
    return {g->b, g->b_dtype, g->K, g->N, g->batch, g->b_row, g->b_column, g->b_next};
}

void dra_cuda_set_a(dra_cuda_gemm *g, const dra_cuda_matrix *m)
{
    g->a = m->data, g->a_dtype = m->dtype;
    g->a_row = m->row, g->a_column = m->column, g->a_next = m->next;
}

void dra_cuda_set_b(dra_cuda_gemm *g, const dra_cuda_matrix *m)
{
    g->b = m->data, g->b_dtype = m->dtype;
    g->b_row = m->row, g->b_column = m->column, g->b_next = m->next;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Weights are then read once, as they are stored, which is all that takes time. Few columns and a
 * long sum would leave most of the GPU without work. */
bool dra_cuda_gemm_is_small(const dra_cuda_gemm *g)
{
    enum { FEW = 8, LONG = 8192, MANY = 1024 };
    return g->M <= FEW && (g->K <= LONG || g->N * g->batch >= MANY);
}

/* Of a product that is stored in bf16 the bias has to be, too; without columns: as it is. */
static dra_cuda_matrix bias_to_round(const dra_cuda_gemm *g)
{
    return {g->bias, DRA_F32, 1, g->bias && g->y_bf16 ? g->N : 0, 1, g->N, 1, 0};
}

size_t dra_cuda_gemm_scratch(const dra_cuda_gemm *g)
{
    if (dra_cuda_gemm_is_small(g)) return 0;
    const dra_cuda_matrix a = dra_cuda_factor_a(g), b = dra_cuda_factor_b(g);
    const dra_cuda_matrix bias = bias_to_round(g);
    return dra_cuda_pack_bytes(&a, g->precision) + dra_cuda_pack_bytes(&b, g->precision) +
           dra_cuda_pack_bytes(&bias, DRA_PRECISION_BF16);
}

static void round_bias(const dra_call *c, dra_cuda_gemm *g, void *to)
{
    const dra_cuda_matrix bias = bias_to_round(g);
    if (!bias.columns) return;
    g->bias = dra_cuda_pack(c, &bias, DRA_PRECISION_BF16, to).data;
    g->bias_dtype = DRA_BF16;
}

__global__ static void add_bias(const __grid_constant__ dra_cuda_gemm g)
{
    DRA_EACH(i, g.batch * g.M * g.N)
    {
        const int64_t row = i / g.N, column = i - row * g.N, matrix = row / g.M;
        static_cast<float *>(g.y)[matrix * g.y_next + (row - matrix * g.M) * g.y_row + column] +=
            static_cast<const float *>(g.bias)[column];
    }
}

/* The library in batches that it has grids for; where it has no algorithm, the other kernel. */
static void run_batches(const dra_call *c, const dra_cuda_gemm *g)
{
    enum { MOST = 65535 };
    const int64_t a_bytes = (int64_t)dra_dtype_bytes(g->a_dtype);
    const int64_t b_bytes = (int64_t)dra_dtype_bytes(g->b_dtype);
    for (int64_t first = 0; first < g->batch; first += MOST) {
        dra_cuda_gemm part = *g;
        part.batch = dra_imin(MOST, g->batch - first);
        part.a = static_cast<const char *>(g->a) + first * g->a_next * a_bytes;
        part.b = static_cast<const char *>(g->b) + first * g->b_next * b_bytes;
        part.y = dra_cuda_gemm_y(*g, first * g->y_next);
        if (g->plus) part.plus = g->plus + first * g->y_next;
        if (!dra_cuda_gemm_library(c, &part)) dra_cuda_gemm_small_m(c, &part);
    }
}

void dra_cuda_gemm_run(const dra_call *c, const dra_cuda_gemm *g)
{
    const size_t bytes = dra_cuda_gemm_scratch(g);
    if (g->M <= 0 || g->N <= 0 || g->batch <= 0) return;
    if (dra_cuda_gemm_is_small(g) || g->K == 0 || (bytes && !g->scratch)) {
        dra_cuda_gemm_small_m(c, g);
        return;
    }
    dra_cuda_gemm         packed = *g;
    const dra_cuda_matrix a = dra_cuda_factor_a(g), b = dra_cuda_factor_b(g);
    char                 *at = static_cast<char *>(g->scratch);
    const dra_cuda_matrix a_packed = dra_cuda_pack(c, &a, g->precision, at);
    if (at) at += dra_cuda_pack_bytes(&a, g->precision);
    const dra_cuda_matrix b_packed = dra_cuda_pack(c, &b, g->precision, at);
    dra_cuda_set_a(&packed, &a_packed);
    dra_cuda_set_b(&packed, &b_packed);
    if (at) round_bias(c, &packed, at + dra_cuda_pack_bytes(&b, g->precision));
    const bool apart = packed.bias && (uintptr_t)packed.bias % 16 != 0;
    if (apart) packed.bias = nullptr;
    run_batches(c, &packed);
    if (apart)
        DRA_LAUNCH(c, add_bias, dra_grid(c, g->batch * g->M * g->N, DRA_THREADS), DRA_THREADS, 0,
                   *g);
}
