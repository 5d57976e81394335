/* Recurrent cells over time, forward: see cell.cuh. */
#include "ops/recurrent/cell.cuh"

/* ---- a cell ---------------------------------------------------------------------------------- */

struct cell_call {
    dra_cell_size size;
    dra_cell_view x; /* (B, T, H, gates D) */
    const float  *w; /* (sets, blocks, D, gates, DRA_CELL_UNITS) */
    int64_t       w_set;
    const float  *b; /* (gates D) of each set */
    int64_t       b_set;
    dra_cell_mix  mix;
    dra_cell_view start[DRA_CELL_STATES];
    dra_marks     mark;
    dra_cell_view h, kept, last[DRA_CELL_STATES]; /* data NULL: nobody reads them */
    float        *room;
};

typedef dra_cell_batch<cell_call> cell_batch;

/* A tile's memory: h before even tokens, before odd ones, and c; (each, width) each. */
struct cell_room {
    float  *at;
    int64_t part;

    __device__ float *h(int64_t t) const { return at + (t & 1) * part; }
    __device__ float *c() const { return at + 2 * part; }
};

/* Before the first token; a reset takes 0. */
template <typename Cell>
__device__ static void open_room(const cell_call &a, const dra_cell_place &at, const cell_room &m)
{
    const dra_cell_size &n = a.size;
    for (int64_t i = threadIdx.x; i < n.each * n.width; i += blockDim.x) {
        const int64_t      r = i / n.width, j = i % n.width;
        const dra_cell_row row = dra_cell_row_at(n, at, (int)r);
        const bool         reset = n.T && dra_mark_at(a.mark, row.b, 0) & DRA_MARK_RESET;
        const bool         there = row.live && j < n.D && !reset;
        m.h(0)[i] = there ? a.start[0].of(row).first[j] : 0;
        m.h(1)[i] = 0;
        if (Cell::STATES > 1) m.c()[i] = there ? a.start[1].of(row).first[j] : 0;
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* Lane l of 4 has columns 4 l .. 4 l + 3 of every 16. HELD: all weights of a unit, up to so many
 * columns, are in registers; 0: in memory. */
template <int G, int HELD> struct cell_weights {
    const float *w; /* of this set; (blocks, D, G, UNITS) */
    int          D, width;
    float        held[HELD ? G : 1][HELD ? HELD / 4 : 1];

    __device__ const float *at(int unit, int k) const
    {
        const int64_t line = (int64_t)(unit / DRA_CELL_UNITS) * D + k;
        return w + line * G * DRA_CELL_UNITS + unit % DRA_CELL_UNITS;
    }

    __device__ void open(const cell_call &a, const dra_cell_place &place)
    {
        const int unit = (int)threadIdx.x / 4;
        w = a.w + place.set * a.w_set;
        D = (int)a.size.D, width = (int)a.size.width;
        if constexpr (HELD > 0) {
            DRA_UNROLL
            for (int i = 0; i < HELD / 4; i++) {
                const int  k = i / 4 * 16 + (int)threadIdx.x % 4 * 4 + i % 4;
                const bool there = k < D && unit < D;
                DRA_UNROLL
                for (int g = 0; g < G; g++)
                    held[g][i] = there ? at(unit, k)[g * DRA_CELL_UNITS] : 0;
            }
        }
    }

    /* sum[g][r] += this lane's part of w h, of R rows. */
    template <int R> __device__ void add(const float *h, int unit, float (*sum)[4]) const
    {
        const int first = (int)threadIdx.x % 4 * 4;
        if constexpr (HELD > 0) {
            DRA_UNROLL
            for (int i = 0; i < HELD / 16; i++) {
                DRA_UNROLL
                for (int r = 0; r < R; r++) {
                    const float4 x = dra_load4(h + r * HELD + 16 * i + first);
                    DRA_UNROLL
                    for (int g = 0; g < G; g++) dra_fma4(x, held[g] + 4 * i, &sum[g][r]);
                }
            }
        } else {
            DRA_UNROLL_BY(1)
            for (int k = first; k < width; k += 16) {
                float part[G][4];
                read(unit, k, part);
                DRA_UNROLL
                for (int r = 0; r < R; r++) {
                    const float4 x = dra_load4(h + r * width + k);
                    DRA_UNROLL
                    for (int g = 0; g < G; g++) dra_fma4(x, part[g], &sum[g][r]);
                }
            }
        }
    }

    __device__ void read(int unit, int k, float (*part)[4]) const
    {
        DRA_UNROLL
        for (int e = 0; e < 4; e++) {
            DRA_UNROLL
            for (int g = 0; g < G; g++)
                part[g][e] = k + e < D ? at(unit, k + e)[g * DRA_CELL_UNITS] : 0;
        }
    }
};

/* ---- the walk -------------------------------------------------------------------------------- */

template <typename Cell, int HELD> struct cell_walk {
    enum { G = Cell::GATES };
    const cell_call      &a;
    const dra_cell_place &at;
    cell_room             room;
    dra_cell_row          row;
    int                   D, width;
    dra_cell_course       x, mix, h, kept;
    const float          *b;
    cell_weights<G, HELD> weights;

    __device__ void open(const cell_room &memory)
    {
        room = memory;
        row = dra_cell_row_at(a.size, at, (int)threadIdx.x % 4);
        D = (int)a.size.D, width = HELD ? HELD : (int)a.size.width;
        x = a.x.of_head(row);
        mix = a.mix.view.of(row);
        h = a.h.of(row);
        kept = a.kept.of(row);
        b = a.b + at.set * a.b_set;
        weights.open(a, at);
    }

    /* u[g] += w h of this thread's row. */
    __device__ void add_product(const float *from, int unit, float *u) const
    {
        float part[G][4] = {};
        DRA_CELL_BY_ROWS(a.size.each, weights.template add, from, unit, part);
        DRA_UNROLL
        for (int g = 0; g < G; g++) u[g] += dra_scatter_sum<4>(part[g]);
    }

    /* One unit of one row; where they are not there, its sums are for other lanes. */
    __device__ void step(int64_t t, int unit, int32_t bits, bool reset_next)
    {
        const int    j = unit < D ? unit : D - 1, here = row.r * width + j;
        const float *from = x.at(t) + j, part = mix.at(t)[j * a.mix.unit];
        const bool   pad = bits & DRA_MARK_PAD, soon = t + DRA_CELL_AHEAD < a.size.T;
        float        own[G], u[G], keep[Cell::KEPT];
        DRA_UNROLL
        for (int g = 0; g < G; g++) {
            own[g] = from[g * D];
            u[g] = b[g * D + j];
            if (soon) dra_prefetch(from + DRA_CELL_AHEAD * x.token + g * D);
        }
        add_product(room.h(t), j, u);
        if (!row.live || unit >= at.end) return;
        const float old = room.h(t)[here];
        float       c = Cell::STATES > 1 ? room.c()[here] : 0, fresh_c = c;
        const float fresh = Cell::step(own, u, part, old, &fresh_c, keep), now = pad ? old : fresh;
        if (!pad) c = fresh_c;
        if (h.first) h.at(t)[j] = now;
        if (kept.first && !pad) {
            DRA_UNROLL
            for (int k = 0; k < Cell::KEPT; k++) kept.at(t)[k * D + j] = keep[k];
        }
        room.h(t + 1)[here] = reset_next ? 0 : now;
        if (Cell::STATES > 1) room.c()[here] = reset_next ? 0 : c;
    }

    __device__ void walk(int64_t begin, int64_t end)
    {
        const int64_t T = a.size.T;
        const int     units = (int)blockDim.x / 4, first = (int)threadIdx.x / 4;
        for (int64_t t = begin; t < end; t++) {
            const int32_t bits = dra_mark_at(a.mark, row.b, t);
            const int32_t next = t + 1 < T ? dra_mark_at(a.mark, row.b, t + 1) : 0;
            for (int j = (int)at.begin; j < at.end; j += units)
                step(t, j + first, bits, next & DRA_MARK_RESET);
            __syncthreads();
        }
        if (end < T || !row.live) return;
        const dra_cell_course last = a.last[0].of(row), last_c = a.last[1].of(row);
        for (int j = (int)at.begin + first; j < at.end; j += units) {
            if (last.first) last.first[j] = room.h(T)[row.r * width + j];
            if (last_c.first) last_c.first[j] = room.c()[row.r * width + j];
        }
    }
};

__device__ static cell_room find_room(const cell_call &a, const dra_cell_place &at, int states,
                                      float *shared)
{
    const int64_t part = a.size.each * a.size.width;
    return {a.room ? a.room + at.tile * (1 + states) * part : shared, part};
}

/* Tokens begin .. end-1. */
template <typename Cell, int HELD>
__global__ static void __launch_bounds__(HELD ? 4 * HELD : DRA_CELL_THREADS)
    walk_kernel(const __grid_constant__ cell_batch all, int64_t begin, int64_t end)
{
    DRA_SHARED(float, shared);
    dra_cell_place        at;
    const cell_call      &a = dra_cell_find(all, at);
    cell_walk<Cell, HELD> w = {a, at};
    w.open(HELD ? cell_room{shared, a.size.each * HELD} : find_room(a, at, Cell::STATES, shared));
    if (a.size.slices == 1) open_room<Cell>(a, at, w.room);
    __syncthreads();
    w.walk(begin, end);
}

/* Where a tile has several blocks. */
template <typename Cell> __global__ static void open_kernel(const __grid_constant__ cell_batch all)
{
    dra_cell_place   at;
    const cell_call &a = dra_cell_find(all, at);
    if (at.slice == 0) open_room<Cell>(a, at, find_room(a, at, Cell::STATES, nullptr));
}

/* ---- launches -------------------------------------------------------------------------------- */

static cell_call call_of(const dra_call *c, int k)
{
    const dra_cell_attr *attr = static_cast<const dra_cell_attr *>(c->attr);
    const dra_tensor    *in = c->in + k * (DRA_CELL_START + attr->states);
    const dra_tensor    *out = c->out + k * (DRA_CELL_LAST + attr->states);
    const dra_tensor    *b = &in[DRA_CELL_B];
    cell_call            a = {};
    a.size = dra_cell_size_of(attr, in, dra_cuda_of(c)->processors);
    a.x = dra_cell_view_of(&in[DRA_CELL_X]);
    a.w = static_cast<const float *>(in[DRA_CELL_PACKED].data);
    a.w_set = in[DRA_CELL_PACKED].stride[0];
    a.b = static_cast<const float *>(b->data);
    a.b_set = b->shape.rank == 2 ? b->stride[0] : 0;
    a.mix = dra_cell_mix_of(&in[DRA_CELL_MIX]);
    a.mark = dra_marks_of(&c->in[c->n_in - 1]);
    a.h = dra_cell_view_of(&out[DRA_CELL_H]);
    a.kept = dra_cell_view_of(&out[DRA_CELL_KEPT]);
    for (int i = 0; i < attr->states; i++) {
        a.start[i] = dra_cell_view_of(&in[DRA_CELL_START + i]);
        a.last[i] = dra_cell_view_of(&out[DRA_CELL_LAST + i]);
    }
    return a;
}

static int64_t room_floats(const dra_cell_attr *a, const dra_cell_size &n)
{
    return n.room_outside ? dra_cell_rooms(n, 1 + a->states) : 0;
}

static int cells_of(const dra_call *c)
{
    const dra_cell_attr *a = static_cast<const dra_cell_attr *>(c->attr);
    return (c->n_in - 1) / (DRA_CELL_START + a->states);
}

static size_t scratch(const dra_call *c)
{
    const dra_cell_attr *a = static_cast<const dra_cell_attr *>(c->attr);
    int64_t              floats = 0;
    for (int k = 0; k < cells_of(c); k++)
        floats += room_floats(a, dra_cell_size_of(a, c->in + k * (DRA_CELL_START + a->states), 0));
    return (size_t)floats * sizeof(float);
}

template <typename Cell>
static void launch_way(const dra_call *c, dra_cell_way way, const cell_batch &all)
{
    const unsigned grid = (unsigned)all.blocks(), threads = all.threads();
    const size_t   shared = all.shared(1 + Cell::STATES);
    if (all.cells == 0) return;
    const int64_t T = all.cell[0].size.T;
    if (way == DRA_CELL_HELD_32) {
        DRA_LAUNCH(c, (walk_kernel<Cell, 32>), grid, threads, shared, all, 0, T);
    } else if (way == DRA_CELL_HELD_64) {
        DRA_LAUNCH(c, (walk_kernel<Cell, 64>), grid, threads, shared, all, 0, T);
    } else if (way == DRA_CELL_READ) {
        DRA_LAUNCH(c, (walk_kernel<Cell, 0>), grid, threads, shared, all, 0, T);
    } else {
        DRA_LAUNCH(c, (open_kernel<Cell>), grid, threads, 0, all);
        for (int64_t t = 0; t < dra_imax(1, T); t++)
            DRA_LAUNCH(c, (walk_kernel<Cell, 0>), grid, threads, shared, all, t,
                       dra_imin(t + 1, T));
    }
}

template <typename Cell> static void launch(const dra_call *c)
{
    const dra_cell_attr *attr = static_cast<const dra_cell_attr *>(c->attr);
    cell_batch           by_way[DRA_CELL_WAYS] = {};
    float               *room = static_cast<float *>(c->scratch);
    for (int k = 0; k < cells_of(c); k++) {
        cell_call a = call_of(c, k);
        if (a.size.room_outside) a.room = room;
        room += room_floats(attr, a.size);
        by_way[a.size.way].add(a);
    }
    for (int way = 0; way < DRA_CELL_WAYS; way++)
        launch_way<Cell>(c, (dra_cell_way)way, by_way[way]);
}

#define CELL(cell, Cell)                                                                           \
    const dra_cuda_kernel dra_cuda_##cell = {                                                      \
        {#cell, DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, scratch, nullptr},        \
        launch<Cell>,                                                                              \
        false}

CELL(gru, dra_gru_gates);
CELL(slot_gru, dra_gru_gates);
CELL(lstm, dra_lstm_gates);
