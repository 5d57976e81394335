/* Recurrent cells on the GPU: gru, slot_gru and lstm share all but their gates, as in cell.cuh.
 *
 * The rows of a set of weights are cut into tiles of at most DRA_CELL_TILE, and a block walks over
 * time with a tile. A few lanes next to each other share a unit: each multiplies its part of the
 * weights with what all units of a row say, for all rows of the tile; then the lanes add up, so
 * that each has the sums of one row, computes its gates, and writes what all units read for the
 * next token. So weights are read once for a tile, and a token costs one barrier.
 *
 * How a cell is computed follows from its width:
 *   D <= 64   the weights are in registers;
 *   wider     they are read again for every token, from the caches;
 *   wide, so that all of them take longer to read than a kernel to start: a launch for each token,
 *             and a block has a slice of the units. Slots are never cut like this: their gradient
 *             is a sum over all units.
 * The bits of a row do not depend on how many rows or tokens there are. */
#ifndef DRA_SRC_OPS_RECURRENT_CELL_CUH
#define DRA_SRC_OPS_RECURRENT_CELL_CUH

#include "ops/recurrent/cell_gates.cuh"
#include "ops/recurrent/recur.cuh"

enum {
    DRA_CELL_TILE = 4,
    DRA_CELL_GROUP = 16,
    DRA_CELL_SLICE = 32,
    DRA_CELL_AHEAD = 4,
    DRA_CELL_THREADS = 512
};

enum dra_cell_way { /* how it is computed */
                    DRA_CELL_HELD_32,
                    DRA_CELL_HELD_64,
                    DRA_CELL_READ,
                    DRA_CELL_SLICED,
                    DRA_CELL_WAYS
};

/* Bytes of weights that one block still reads again and again. The host has fewer, so that small
 * tensors of tests meet every case. */
#ifdef __CUDACC__
enum { DRA_CELL_MOST_READ = 512 << 10 };
#else
enum { DRA_CELL_MOST_READ = 80 << 10 };
#endif

/* ---- sizes ----------------------------------------------------------------------------------- */

struct dra_cell_size {
    int64_t      B, T, H, S, D;
    int64_t      sets, per, rows; /* states of a token and rows that belong to one set */
    int64_t      each, tiles;     /* rows of a tile, tiles of a set */
    int64_t      width;           /* D, up to what lanes read at a time */
    int64_t      slices, slice;   /* of the units, and units of each */
    dra_cell_way way;
    bool         room_outside; /* a tile's memory is no shared memory */
};

/* The first inputs of a cell, forward and backward: something (B, T, ..), weights, mix.
 * processors: 0 when planning; only `each` and `tiles` depend on it. */
static inline dra_cell_size dra_cell_size_of(const dra_cell_attr *a, const dra_tensor *in,
                                             int processors)
{
    const dra_shape *w = &in[1].shape, *mix = &in[2].shape;
    dra_cell_size    n = {};
    n.B = in[0].shape.dim[0], n.T = in[0].shape.dim[1];
    n.S = dra_imax(1, a->slots);
    n.H = a->slots ? mix->dim[2] / n.S : mix->dim[0];
    n.D = w->dim[w->rank - 2] / a->gates;
    n.sets = w->rank == 3 ? n.H : 1;
    n.per = n.sets ? n.H * n.S / n.sets : 0;
    n.rows = n.D ? n.B * n.per : 0; /* without units there is nothing to do */
    const bool many = a->gates * n.D * n.D * (int64_t)sizeof(float) > DRA_CELL_MOST_READ;
    n.way = n.D <= 32           ? DRA_CELL_HELD_32
            : n.D <= 64         ? DRA_CELL_HELD_64
            : many && !a->slots ? DRA_CELL_SLICED
                                : DRA_CELL_READ;
    n.room_outside = many && n.D > 64;
    n.width = n.way == DRA_CELL_HELD_32   ? 32
              : n.way == DRA_CELL_HELD_64 ? 64
                                          : dra_div_up(n.D, DRA_CELL_GROUP) * DRA_CELL_GROUP;
    n.slice = n.way == DRA_CELL_SLICED ? (int64_t)DRA_CELL_SLICE : dra_imax(1, n.D);
    n.slices = dra_div_up(n.D, n.slice);
    /* few rows spread over all multiprocessors */
    n.each = n.way == DRA_CELL_SLICED ? (int64_t)DRA_CELL_TILE
                                      : dra_div_up(n.sets * n.rows, dra_imax(1, processors));
    n.each = dra_imax(1, dra_imin(n.each, DRA_CELL_TILE));
    n.tiles = dra_div_up(n.rows, n.each);
    return n;
}

/* Floats of rooms of all tiles, `row` for each row and column, however they are cut. */
static inline int64_t dra_cell_rooms(const dra_cell_size &n, int64_t row)
{
    return n.sets * (n.rows + DRA_CELL_TILE - 1) * row * n.width;
}

static inline int64_t dra_cell_blocks(const dra_cell_size &n)
{
    return n.sets * n.tiles * n.slices;
}

static inline unsigned dra_cell_threads(const dra_cell_size &n)
{
    const int64_t units = n.way == DRA_CELL_SLICED ? (int64_t)DRA_CELL_SLICE : n.width;
    return (unsigned)dra_imin(DRA_CELL_THREADS, units * DRA_CELL_TILE);
}

/* ---- cells of a call ------------------------------------------------------------------------- */

/* Cells that are computed the same way share a launch. Cell: has a dra_cell_size `size`. */
template <typename Cell> struct dra_cell_batch {
    int  cells;
    Cell cell[DRA_CELL_MOST];

    void add(const Cell &more)
    {
        if (dra_cell_blocks(more.size)) cell[cells++] = more;
    }
    int64_t blocks() const
    {
        int64_t n = 0;
        for (int k = 0; k < cells; k++) n += dra_cell_blocks(cell[k].size);
        return n;
    }
    unsigned threads() const
    {
        unsigned n = 0;
        for (int k = 0; k < cells; k++) n = (unsigned)dra_imax(n, dra_cell_threads(cell[k].size));
        return n;
    }
    size_t shared(int64_t row) const /* bytes; row as in dra_cell_rooms() */
    {
        int64_t n = 0;
        for (int k = 0; k < cells; k++) {
            const dra_cell_size &s = cell[k].size;
            if (!s.room_outside) n = dra_imax(n, s.each * row * s.width);
        }
        return (size_t)n * sizeof(float);
    }
};

/* ---- where a block and its threads stand ----------------------------------------------------- */

struct dra_cell_place {
    int64_t set, tile, first;  /* tile of all sets, its first row in its set */
    int64_t slice, begin, end; /* units */
};

template <typename Cell>
__device__ static inline const Cell &dra_cell_find(const dra_cell_batch<Cell> &all,
                                                   dra_cell_place             &at)
{
    int64_t i = blockIdx.x;
    int     k = 0;
    for (; k + 1 < all.cells; k++) {
        const dra_cell_size &n = all.cell[k].size;
        const int64_t        blocks = n.sets * n.tiles * n.slices;
        if (i < blocks) break;
        i -= blocks;
    }
    const dra_cell_size &n = all.cell[k].size;
    at.tile = i / n.slices;
    at.slice = i % n.slices;
    at.set = at.tile / n.tiles;
    at.first = at.tile % n.tiles * n.each;
    at.begin = at.slice * n.slice;
    at.end = dra_imin(n.D, at.begin + n.slice);
    return all.cell[k];
}

struct dra_cell_row {
    int64_t number;      /* in the set */
    int64_t b, h, state; /* row of the batch, head, state of a token: h S + slot */
    int     r;           /* in the tile */
    bool    live;        /* else it stands for the first of the tile, and writes nothing */
};

__device__ static inline dra_cell_row dra_cell_row_at(const dra_cell_size  &n,
                                                      const dra_cell_place &at, int r)
{
    const bool    live = r < n.each && at.first + r < n.rows;
    const int64_t k = at.first + (live ? r : 0), state = at.set * n.per + k % n.per;
    return {k, k / n.per, state / n.S, state, live ? r : 0, live};
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct dra_cell_course { /* one row of it, token by token */
    float  *first;       /* NULL: nobody reads it */
    int64_t token;

    __device__ float *at(int64_t t) const { return first + t * token; }
};

struct dra_cell_view { /* (B, T, states, ..) or (B, states, ..), the last axis adjacent */
    float  *data;
    int64_t batch, token, state;

    __device__ dra_cell_course of(const dra_cell_row &r) const
    {
        return {data ? data + r.b * batch + r.state * state : nullptr, token};
    }
    __device__ dra_cell_course of_head(const dra_cell_row &r) const /* one for all slots */
    {
        return {data + r.b * batch + r.h * state, token};
    }
};

static inline dra_cell_view dra_cell_view_of(const dra_tensor *x)
{
    const bool tokens = x->shape.rank == 4;
    return {static_cast<float *>(x->data), x->stride[0], tokens ? x->stride[1] : 0,
            x->stride[tokens ? 2 : 1]};
}

struct dra_cell_mix { /* (H, D), of any token; of slots (B, T, H S), of any unit */
    dra_cell_view view;
    int           unit;
};

static inline dra_cell_mix dra_cell_mix_of(const dra_tensor *x)
{
    float *data = static_cast<float *>(x->data);
    if (x->shape.rank == 2) return {{data, 0, 0, x->stride[0]}, 1};
    return {{data, x->stride[0], x->stride[1], x->stride[2]}, 0};
}

/* The memory that a token some steps on will read, into the second cache. */
__device__ static inline void dra_prefetch(const float *at)
{
#ifdef __CUDACC__
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
    (void)at;
#endif
}

/* ---- sums of neighbouring lanes -------------------------------------------------------------- */

/* Lane i of N gets the sum of all lanes' v[i]; v is lost. */
template <int N> __device__ static inline float dra_scatter_sum(float *v)
{
    DRA_UNROLL
    for (int half = N / 2; half; half /= 2) {
        const bool upper = threadIdx.x & half;
        DRA_UNROLL
        for (int i = 0; i < half; i++) {
            const float given = upper ? v[i] : v[i + half], kept = upper ? v[i + half] : v[i];
            v[i] = kept + __shfl_xor_sync(~0u, given, half);
        }
    }
    return v[0];
}

__device__ static inline void dra_fma4(float4 x, const float *w, float *sum)
{
    *sum = fmaf(x.x, w[0], *sum);
    *sum = fmaf(x.y, w[1], *sum);
    *sum = fmaf(x.z, w[2], *sum);
    *sum = fmaf(x.w, w[3], *sum);
}

__device__ static inline float4 dra_load4(const float *x)
{
    return *reinterpret_cast<const float4 *>(x);
}

/* f<R>(..) for a tile of R rows. */
#define DRA_CELL_BY_ROWS(rows, f, ...)                                                             \
    do {                                                                                           \
        switch (rows) {                                                                            \
        case 1: f<1>(__VA_ARGS__); break;                                                          \
        case 2: f<2>(__VA_ARGS__); break;                                                          \
        case 3: f<3>(__VA_ARGS__); break;                                                          \
        default: f<4>(__VA_ARGS__); break;                                                         \
        }                                                                                          \
    } while (0)

#endif
