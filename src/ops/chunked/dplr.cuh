/* What dplr and its gradient share on the GPU; formulas in dplr.cuh. Tokens are taken one after
 * the other, a run of them in shared memory; a thread has a line of the state, a column or a row,
 * in registers. Lines of more than DRA_DPLR_MOST numbers live in memory. */
#ifndef DRA_SRC_OPS_CHUNKED_DPLR_CUH
#define DRA_SRC_OPS_CHUNKED_DPLR_CUH

#include "ops/chunked/chunk.cuh"

enum { DRA_DPLR_RUN = 8, DRA_DPLR_FEW = 64, DRA_DPLR_MOST = 128 };
static_assert(DRA_DPLR_CHUNK % DRA_DPLR_RUN == 0, "states are kept at the starts of chunks");

struct dra_dplr_call {
    dra_chunks     z; /* l: (B, T, H, F) */
    dra_chunk_rows q, k, v, a, c;
    const float   *u; /* rows u_row apart, or NULL */
    int64_t        u_row;
};

static inline dra_dplr_call dra_dplr_call_of(const dra_call *c)
{
    const dra_dplr_attr *at = static_cast<const dra_dplr_attr *>(c->attr);
    const dra_tensor    *q = &c->in[DRA_DPLR_Q], *v = &c->in[DRA_DPLR_V];
    dra_dplr_call        x = {};
    x.z = dra_chunks_of(c, q, v, at->l, at->mark, false);
    x.z.chunks = (int)dra_div_up(x.z.T, DRA_DPLR_CHUNK);
    x.q = dra_chunk_rows_of(q);
    x.k = dra_chunk_rows_of(&c->in[DRA_DPLR_K]);
    x.v = dra_chunk_rows_of(v);
    x.a = dra_chunk_rows_of(at->a ? &c->in[at->a] : nullptr);
    x.c = dra_chunk_rows_of(at->c ? &c->in[at->c] : nullptr);
    x.u = at->u ? static_cast<const float *>(c->in[at->u].data) : nullptr;
    x.u_row = at->u ? c->in[at->u].stride[0] : 0;
    return x;
}

/* The numbers of a line that a thread holds, or 0: they live in memory. */
static inline int dra_dplr_held(int longest)
{
    return longest <= DRA_DPLR_FEW ? DRA_DPLR_FEW : longest <= DRA_DPLR_MOST ? DRA_DPLR_MOST : 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

template <int HELD> struct dra_line {
    float own[HELD];

    __device__ void   open(float *, int64_t) {}
    __device__ float &operator[](int i) { return own[i]; }
};

template <> struct dra_line<0> {
    float  *at;
    int64_t step;

    __device__ void   open(float *memory, int64_t apart) { at = memory, step = apart; }
    __device__ float &operator[](int i) { return at[i * step]; }
};

/* for (int i : numbers of a line): those that are not there are zeros. */
#define DRA_EACH_HELD(i, HELD, n) DRA_UNROLL for (int i = 0; i < (HELD ? HELD : (n)); i++)

/* The sum of products, in four sums. */
template <int HELD, typename X, typename Y>
__device__ static inline float dra_line_dot(int n, X &&x, Y &&y)
{
    float sum[4] = {0, 0, 0, 0};
    DRA_EACH_HELD(i, HELD, n) sum[i % 4] = fmaf(x[i], y[i], sum[i % 4]);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

template <int HELD> __device__ static inline void dra_line_clear(int n, dra_line<HELD> &x)
{
    DRA_EACH_HELD(i, HELD, n) x[i] = 0;
}

/* ---- runs of tokens -------------------------------------------------------------------------- */

/* What a run has of each token: rows of width F, `wide` apart. With u there is no a, and its place
 * takes q u k. LESS is e^l - 1; D, which gradients alone read, is e^l. */
enum {
    DRA_DPLR_ROW_Q,
    DRA_DPLR_ROW_K,
    DRA_DPLR_ROW_LESS,
    DRA_DPLR_ROW_A,
    DRA_DPLR_ROW_C,
    DRA_DPLR_ROWS,
    DRA_DPLR_ROW_D = DRA_DPLR_ROWS,
    DRA_DPLR_BACK_ROWS
};

__device__ static inline float dra_dplr_given(const dra_chunk_rows &x, const dra_chunk_place &k,
                                              int t, int f)
{
    return x.at ? dra_chunk_row(x, k, t)[f] : 0;
}

__device__ static inline float dra_dplr_number(const dra_dplr_call &x, const dra_chunk_place &k,
                                               int t, int f, int row)
{
    switch (row) {
    case DRA_DPLR_ROW_Q: return dra_dplr_given(x.q, k, t, f);
    case DRA_DPLR_ROW_K: return dra_dplr_given(x.k, k, t, f);
    case DRA_DPLR_ROW_LESS: return expm1f(dra_dplr_given(x.z.l, k, t, f));
    case DRA_DPLR_ROW_C: return dra_dplr_given(x.c, k, t, f);
    case DRA_DPLR_ROW_D: return expf(dra_dplr_given(x.z.l, k, t, f));
    default: break;
    }
    if (!x.u) return dra_dplr_given(x.a, k, t, f);
    return dra_dplr_given(x.q, k, t, f) * x.u[k.h * x.u_row + f] * dra_dplr_given(x.k, k, t, f);
}

/* The first `rows` rows of n tokens, from that of the place on; nothing of pads. Nobody reads `to`
 * any more; all wait. */
__device__ static inline void dra_dplr_load(const dra_dplr_call &x, const dra_chunk_place &k, int n,
                                            int rows, int wide, float *to)
{
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n * rows * wide; i += (int)blockDim.x) {
        const int  f = i % wide, row = i / wide % rows, token = i / wide / rows;
        const bool pad = dra_chunk_mark(x.z, k, token) & DRA_MARK_PAD;
        to[i] = f < x.z.F && !pad ? dra_dplr_number(x, k, token, f, row) : 0;
    }
    __syncthreads();
}

/* ---- columns --------------------------------------------------------------------------------- */

enum { DRA_DPLR_COLUMNS = DRA_DPLR_FEW }; /* threads of a block, each with a column of a state */

static inline int64_t dra_dplr_column_blocks(const dra_call *c)
{
    const int64_t *q = c->in[DRA_DPLR_Q].shape.dim;
    return q[0] * q[2] * dra_div_up(dra_last(&c->in[DRA_DPLR_V]), DRA_DPLR_COLUMNS);
}

/* Numbers of memory where columns do not fit into registers: the columns, then rows of runs. */
static inline int64_t dra_dplr_column_room(const dra_call *c)
{
    const int64_t *q = c->in[DRA_DPLR_Q].shape.dim, F = q[3], E = dra_last(&c->in[DRA_DPLR_V]);
    const int64_t  rows = dra_dplr_column_blocks(c) * DRA_DPLR_RUN * DRA_DPLR_ROWS * F;
    return dra_dplr_held((int)F) ? 0 : q[0] * q[2] * F * E + rows;
}

template <int HELD> struct dra_dplr_column { /* e of a head */
    dra_chunk_place k;
    int             e, wide;
    bool            live;
    float          *rows; /* of a run */
    dra_line<HELD>  s;

    /* From a state, or zeros. */
    __device__ void open(const dra_chunks &z, float *memory, float *shared,
                         const dra_chunk_state &from)
    {
        const int     tiles = (z.E + DRA_DPLR_COLUMNS - 1) / DRA_DPLR_COLUMNS;
        const int64_t head = blockIdx.x / tiles, all = z.heads * z.F * z.E;
        e = (int)(blockIdx.x % tiles) * DRA_DPLR_COLUMNS + (int)threadIdx.x;
        live = e < z.E;
        k = {head, head / z.H, head % z.H, 0, 0, 0};
        wide = HELD ? HELD : z.F;
        rows = HELD ? shared
                    : memory + all + (int64_t)blockIdx.x * DRA_DPLR_RUN * DRA_DPLR_ROWS * wide;
        if (!live) return;
        s.open(memory + head * z.F * z.E + e, z.E);
        const float *at = from.at ? from.at + k.b * from.b + k.h * from.h + e : nullptr;
        DRA_EACH_HELD(f, HELD, z.F) s[f] = at && f < z.F ? at[f * from.f] : 0;
    }

    /* To rows of a state that are `apart`; the first of the column is at `to`. */
    __device__ void store(const dra_chunks &z, float *to, int64_t apart)
    {
        DRA_EACH_HELD(f, HELD, z.F)
        {
            if (f < z.F) to[f * apart] = s[f];
        }
    }

    /* The first of the column in a state. */
    __device__ float *in(const dra_chunk_state &x) const
    {
        return x.at + k.b * x.b + k.h * x.h + e;
    }

    __device__ const float *row(int token, int which) const
    {
        return rows + (token * DRA_DPLR_ROWS + which) * wide;
    }
};

/* The kernel with lines of the length of the call's columns. */
#define DRA_LAUNCH_COLUMNS(c, kernel, F, ...)                                                      \
    do {                                                                                           \
        const unsigned dra_blocks = (unsigned)dra_dplr_column_blocks(c);                           \
        const int      dra_row = DRA_DPLR_RUN * DRA_DPLR_ROWS * (int)sizeof(float);                \
        switch (dra_dplr_held(F)) {                                                                \
        case DRA_DPLR_FEW:                                                                         \
            DRA_LAUNCH(c, kernel<DRA_DPLR_FEW>, dra_blocks, DRA_DPLR_COLUMNS,                      \
                       dra_row *DRA_DPLR_FEW, __VA_ARGS__);                                        \
            break;                                                                                 \
        case DRA_DPLR_MOST:                                                                        \
            DRA_LAUNCH(c, kernel<DRA_DPLR_MOST>, dra_blocks, DRA_DPLR_COLUMNS,                     \
                       dra_row *DRA_DPLR_MOST, __VA_ARGS__);                                       \
            break;                                                                                 \
        default: DRA_LAUNCH(c, kernel<0>, dra_blocks, DRA_DPLR_COLUMNS, 0, __VA_ARGS__);           \
        }                                                                                          \
    } while (0)

#endif
