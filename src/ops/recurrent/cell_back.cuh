/* Recurrent cells over time, backward: see cell.cuh. A token gives du, the gradient of w h + b, of
 * each row; the next one, walking back, starts with the product of that,
 *   dh_{t-1} += w^T du,   db += du,   dw += du^T h_{t-1}
 * db is added up by row. For dw a segment of tokens leaves du and h_{t-1} in memory, and a product
 * of matrices adds them up; there are several chunks of rows, which are added in order at the end,
 * so that it has enough to do at a time. With slots, dx_t is the sum over the rows of a part. */
#ifndef DRA_SRC_OPS_RECURRENT_CELL_BACK_CUH
#define DRA_SRC_OPS_RECURRENT_CELL_BACK_CUH

#include "ops/recurrent/cell.cuh"

/* ---- a cell ---------------------------------------------------------------------------------- */

struct back_call {
    dra_cell_size size;
    dra_cell_view h, start, kept, dh, dlast[DRA_CELL_STATES];
    const float  *w; /* (sets, gates D, D) */
    int64_t       w_set, w_row;
    dra_cell_mix  mix;
    dra_marks     mark;
    float        *dx;   /* (B, T, H parts, gates D); dense as all outputs, NULL: nobody reads it */
    float        *dmix; /* of slots: (B, T, H S) */
    dra_cell_view dstart[DRA_CELL_STATES];
    int64_t       parts;
    /* Scratch. Of a segment, rows as segment_row() says: du, h_{t-1}, a_n where dx is a sum. */
    int64_t chunks, chunk, segment; /* chunks of a set, rows of a chunk, tokens */
    float  *du, *before, *direct;   /* (.., gates D), (.., D), (.., D) */
    float  *sums;                   /* (rows, gates + 1, D): db and the swing of each row */
    float  *dw;                     /* (sets, chunks, gates D, D) */
    float  *room;
};

typedef dra_cell_batch<back_call> back_batch;

/* Where a segment has a row's token, `t` tokens from its start. */
__device__ static int64_t segment_row(const back_call &a, int64_t set, int64_t row, int64_t t)
{
    const int64_t chunk = set * a.chunks + row / a.chunk;
    return (chunk * a.segment + t) * a.chunk + row % a.chunk;
}

/* A tile's memory: du of even tokens and of odd ones, what goes on to h and c, sums. By row, width
 * for each gate, state and sum. */
template <typename Cell> struct back_room {
    enum { G = Cell::GATES, ROW = 2 * G + Cell::STATES + G + 1 };
    float  *at;
    int64_t part; /* each * width */

    __device__ float *du(int64_t t) const { return at + (t & 1) * G * part; }
    __device__ float *d(int k) const { return at + (2 * G + k) * part; }
    __device__ float *sum(int k) const { return at + (2 * G + Cell::STATES + k) * part; }
};

template <typename Cell>
__device__ static void open_room(const back_call &a, const dra_cell_place &at,
                                 const back_room<Cell> &m)
{
    const dra_cell_size &n = a.size;
    for (int64_t i = threadIdx.x; i < m.ROW * m.part; i += blockDim.x) m.at[i] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < m.part; i += blockDim.x) {
        const int64_t      r = i / n.width, j = i % n.width;
        const dra_cell_row row = dra_cell_row_at(n, at, (int)r);
        for (int k = 0; k < Cell::STATES && row.live && j < n.D; k++)
            m.d(k)[i] = a.dlast[k].of(row).first[j];
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* w^T du of a unit; du (rows, G width). In registers, 8 lanes share two units that are next to each
 * other, and lane l has columns 4 l .. 4 l + 3 of every 32; in memory, 4 lanes share one. */
template <int G, int HELD> struct back_weights {
    enum { UNITS = HELD ? 2 : 1, LANES = 4 * UNITS };
    const float *w; /* of this set */
    int          D, width;
    int64_t      w_row;
    float        held[UNITS][HELD ? G * HELD / LANES : 1];

    static __device__ int unit()
    {
        return (int)(threadIdx.x / LANES * UNITS + threadIdx.x / 4 % UNITS);
    }
    static __device__ int first() { return (int)threadIdx.x % LANES * 4; }

    __device__ void open(const back_call &a, const dra_cell_place &place)
    {
        w = a.w + place.set * a.w_set;
        D = (int)a.size.D, width = (int)a.size.width, w_row = a.w_row;
        if constexpr (HELD > 0) {
            DRA_UNROLL
            for (int i = 0; i < G * HELD / LANES; i++) {
                const int k = i / 4 * 4 * LANES + first() + i % 4, gate = k / HELD;
                DRA_UNROLL
                for (int u = 0; u < UNITS; u++) {
                    const int  j = (int)threadIdx.x / LANES * UNITS + u;
                    const bool there = k % HELD < D && j < D;
                    held[u][i] = there ? w[(gate * D + k % HELD) * w_row + j] : 0;
                }
            }
        }
    }

    /* sum[u][r] += this lane's part, of R rows. */
    template <int R> __device__ void add(const float *du, int unit, float (*sum)[4]) const
    {
        if constexpr (HELD > 0) {
            DRA_UNROLL
            for (int i = 0; i < G * HELD / (4 * LANES); i++) {
                DRA_UNROLL
                for (int r = 0; r < R; r++) {
                    const float4 x = dra_load4(du + r * G * HELD + 4 * LANES * i + first());
                    DRA_UNROLL
                    for (int u = 0; u < UNITS; u++) dra_fma4(x, held[u] + 4 * i, &sum[u][r]);
                }
            }
        } else {
            for (int g = 0; g < G; g++) add_gate<R>(du + g * width, g, unit, sum[0]);
        }
    }

    template <int R> __device__ void add_gate(const float *du, int gate, int unit, float *sum) const
    {
        const float *from = w + (int64_t)gate * D * w_row + unit;
        DRA_UNROLL_BY(4)
        for (int k = first(); k < width; k += DRA_CELL_GROUP) {
            float part[4];
            DRA_UNROLL
            for (int e = 0; e < 4; e++) part[e] = k + e < D ? from[(k + e) * w_row] : 0;
            DRA_UNROLL
            for (int r = 0; r < R; r++) dra_fma4(dra_load4(du + r * G * width + k), part, &sum[r]);
        }
    }
};

/* ---- the walk -------------------------------------------------------------------------------- */

/* What a token reads of a unit of a row. */
template <typename Cell> struct back_token {
    float kept[Cell::KEPT], h, dh, mix;
};

template <typename Cell, int HELD> struct back_walk {
    enum { G = Cell::GATES };
    typedef back_weights<G, HELD> own_weights;
    const back_call              &a;
    const dra_cell_place         &at;
    back_room<Cell>               room;
    dra_cell_row                  row;
    int                           D, width;
    dra_cell_course               kept, h, dh, mix;
    const float                  *start;
    int64_t                       in_segment; /* its row of a segment's first token */
    own_weights                   weights;

    __device__ void open(const back_room<Cell> &memory)
    {
        room = memory;
        row = dra_cell_row_at(a.size, at, (int)threadIdx.x % 4);
        D = (int)a.size.D, width = HELD ? HELD : (int)a.size.width;
        kept = a.kept.of(row);
        h = a.h.of(row);
        dh = a.dh.of(row);
        mix = a.mix.view.of(row);
        start = a.start.of(row).first;
        in_segment = segment_row(a, at.set, row.number, 0);
        weights.open(a, at);
    }

    __device__ back_token<Cell> read(int64_t t, int j, bool reset) const
    {
        const float     *keep = kept.at(t) + j, *up = dh.at(t) + j;
        const float     *old = t ? h.at(t - 1) + j : start + j;
        back_token<Cell> x;
        DRA_UNROLL
        for (int k = 0; k < Cell::KEPT; k++) x.kept[k] = keep[k * D];
        x.dh = *up;
        x.h = reset ? 0 : *old;
        x.mix = mix.at(t)[j * a.mix.unit];
        if (t < DRA_CELL_AHEAD + 1) return x;
        DRA_UNROLL
        for (int k = 0; k < Cell::KEPT; k++)
            dra_prefetch(keep - DRA_CELL_AHEAD * kept.token + k * D);
        dra_prefetch(up - DRA_CELL_AHEAD * dh.token);
        dra_prefetch(old - DRA_CELL_AHEAD * h.token);
        return x;
    }

    /* w^T du_{t+1} of this thread's row and unit. */
    __device__ float product(int64_t t, int unit) const
    {
        float part[own_weights::UNITS][4] = {};
        DRA_CELL_BY_ROWS(a.size.each, weights.template add, room.du(t + 1), unit, part);
        return dra_scatter_sum<own_weights::LANES>(part[0]);
    }

    /* What token t leaves: gradients of a unit of a row, for x, for w and for the sums. from: where
     * the segment starts. */
    __device__ void write(int64_t t, int64_t from, int j, const dra_cell_grads &g, float old)
    {
        const int64_t in = in_segment + (t - from) * a.chunk;
        const int     here = row.r * width + j;
        float        *du = a.du + in * G * D + j;
        float        *dx = a.dx + ((row.b * a.size.T + t) * a.size.H + row.h) * G * D + j;
        DRA_UNROLL
        for (int k = 0; k < G; k++) {
            room.du(t)[(row.r * G + k) * width + j] = g.du[k];
            room.sum(k)[here] += g.du[k];
            if (a.du) du[k * D] = g.du[k];
            if (a.dx && !a.direct) dx[k * D] = g.dx[k];
        }
        room.sum(G)[here] += g.swing;
        if (a.before) a.before[in * D + j] = old;
        if (a.direct) a.direct[in * D + j] = g.dx[G - 1];
    }

    /* One unit of one row; gives what it adds to the gradient of the number of a slot. */
    __device__ float step(int64_t t, int64_t from, int unit, int32_t bits, bool reset_after)
    {
        const int        j = unit < D ? unit : D - 1, here = row.r * width + j;
        const bool       pad = bits & DRA_MARK_PAD;
        back_token<Cell> x = {};
        if (t >= 0) x = read(t, j, bits & DRA_MARK_RESET);
        const float came = product(t, j);
        if (!row.live || unit >= at.end) return 0; /* it has summed for others */
        const float d = reset_after ? 0 : room.d(0)[here] + came;
        float       dc = Cell::STATES > 1 && !reset_after ? room.d(Cell::STATES - 1)[here] : 0;
        if (t < 0) {
            if (a.dstart[0].data) a.dstart[0].of(row).first[j] = d;
            if (a.dstart[1].data) a.dstart[1].of(row).first[j] = dc;
            return 0;
        }
        dra_cell_grads g = {};
        const float    all = d + x.dh;
        const float    mixed = pad ? 0 : all * Cell::change(x.kept, x.h);
        room.d(0)[here] = pad ? all : Cell::back(x.kept, x.mix, x.h, all, &dc, g);
        if (Cell::STATES > 1) room.d(Cell::STATES - 1)[here] = dc;
        write(t, from, j, g, x.h);
        return mixed;
    }

    /* The sum over all units, of each row; lanes of one row are 4 apart. */
    __device__ void sum_mixed(int64_t t, float mixed)
    {
        __shared__ float part[2][DRA_CELL_THREADS / 32][4];
        if (!a.dmix || t < 0) {
            __syncthreads();
            return;
        }
        for (int by = 4; by < 32; by *= 2) mixed += __shfl_xor_sync(~0u, mixed, by);
        if (threadIdx.x % 32 < 4) part[t & 1][threadIdx.x / 32][threadIdx.x % 4] = mixed;
        __syncthreads();
        if (threadIdx.x >= 4 || !row.live) return;
        float sum = 0;
        for (unsigned i = 0; i < blockDim.x / 32; i++) sum += part[t & 1][i][threadIdx.x];
        a.dmix[(row.b * a.size.T + t) * a.size.H * a.size.S + row.state] = sum;
    }

    /* Tokens end-1 .. begin; token -1 is what comes before all. */
    __device__ void walk(int64_t from, int64_t begin, int64_t end)
    {
        const int units = (int)blockDim.x / 4;
        for (int64_t t = end - 1; t >= begin; t--) {
            const int32_t bits = t >= 0 ? dra_mark_at(a.mark, row.b, t) : 0;
            const int32_t after = t + 1 < a.size.T ? dra_mark_at(a.mark, row.b, t + 1) : 0;
            float         mixed = 0;
            for (int j = (int)at.begin; j < at.end; j += units)
                mixed += step(t, from, j + weights.unit(), bits, after & DRA_MARK_RESET);
            sum_mixed(t, mixed);
        }
        if (begin >= 0 || !row.live) return;
        float *sums = a.sums + (at.set * a.size.rows + row.number) * (G + 1) * D;
        for (int j = (int)at.begin + weights.unit(); j < at.end; j += units)
            for (int k = 0; k <= G; k++) sums[k * D + j] = room.sum(k)[row.r * width + j];
    }
};

#endif
