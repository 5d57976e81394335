/* Recurrent cells over time, backward: see cell.h. A token gives du, the gradient of w h + b, of
 * each row; the next one, walking back, starts with the product of that,
 *   dh_{t-1} += w^T du,   db += du,   dw += du^T h_{t-1}
 * db is added up by row. For dw a segment of tokens leaves du and h_{t-1} in memory, and a product
 * of matrices adds them up; there are several chunks of rows, which are added in order at the end,
 * so that it has enough to do at a time. With slots, dx_t is the sum over the rows of a part. */
#include "cuda/cell.h"
#include "cuda/gemm.h"

#ifdef __CUDACC__
enum { SEGMENT_BYTES = 256 << 20, CHUNKS = 128 };
#else
enum { SEGMENT_BYTES = 8 << 10, CHUNKS = 4 }; /* so that tests meet several segments and chunks */
#endif

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
    /* Scratch. Of a segment, rows as segment_row() says: du, h_{t-1}, and a_n, where dx is a sum. */
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
            m.d(k)[i] = a.dlast[k].at(row, 0)[j];
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* w^T du of a unit; du (rows, G width). In registers, 8 lanes share two units that are next to each
 * other, and lane l has columns 4 l .. 4 l + 3 of every 32; in memory, 4 lanes share one. */
template <int G, int HELD> struct back_weights {
    enum { UNITS = HELD ? 2 : 1, LANES = 4 * UNITS };
    const float *w; /* of this set */
    int64_t      D, width, w_row;
    float        held[UNITS][HELD ? G * HELD / LANES : 1];

    static __device__ int64_t unit()
    {
        return threadIdx.x / LANES * UNITS + threadIdx.x / 4 % UNITS;
    }
    static __device__ int first() { return (int)threadIdx.x % LANES * 4; }

    __device__ void open(const back_call &a, const dra_cell_place &place)
    {
        w = a.w + place.set * a.w_set;
        D = a.size.D, width = HELD ? HELD : a.size.width, w_row = a.w_row;
        if constexpr (HELD > 0) {
            DRA_UNROLL
            for (int i = 0; i < G * HELD / LANES; i++) {
                const int64_t k = i / 4 * 4 * LANES + first() + i % 4, gate = k / HELD;
                DRA_UNROLL
                for (int u = 0; u < UNITS; u++) {
                    const int64_t j = threadIdx.x / LANES * UNITS + u;
                    const bool    there = k % HELD < D && j < D;
                    held[u][i] = there ? w[(gate * D + k % HELD) * w_row + j] : 0;
                }
            }
        }
    }

    /* sum[u][r] += this lane's part, of R rows. */
    template <int R> __device__ void add(const float *du, int64_t unit, float (*sum)[4]) const
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

    template <int R>
    __device__ void add_gate(const float *du, int gate, int64_t unit, float *sum) const
    {
        const float *from = w + gate * D * w_row + unit;
        DRA_UNROLL_BY(4)
        for (int64_t k = first(); k < width; k += DRA_CELL_GROUP) {
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
    own_weights                   weights;

    __device__ back_token<Cell> read(int64_t t, int64_t j, bool reset) const
    {
        const int64_t    D = a.size.D;
        const float     *kept = a.kept.at(row, t) + j, *dh = a.dh.at(row, t) + j;
        back_token<Cell> x;
        DRA_UNROLL
        for (int k = 0; k < Cell::KEPT; k++) x.kept[k] = kept[k * D];
        x.dh = *dh;
        x.h = reset ? 0 : t ? a.h.at(row, t - 1)[j] : a.start.at(row, 0)[j];
        x.mix = *a.mix.at(row, t, j);
        if (t < DRA_CELL_AHEAD + 1) return x;
        DRA_UNROLL
        for (int k = 0; k < Cell::KEPT; k++)
            dra_prefetch(kept - DRA_CELL_AHEAD * a.kept.token + k * D);
        dra_prefetch(dh - DRA_CELL_AHEAD * a.dh.token);
        dra_prefetch(a.h.at(row, t - 1 - DRA_CELL_AHEAD) + j);
        return x;
    }

    /* w^T du_{t+1} of this thread's row and unit. */
    __device__ float product(int64_t t, int64_t unit) const
    {
        float part[own_weights::UNITS][4] = {};
        DRA_CELL_BY_ROWS(a.size.each, weights.template add, room.du(t + 1), unit, part);
        return dra_scatter_sum<own_weights::LANES>(part[0]);
    }

    /* What token t leaves: gradients of a unit of a row, for x, for w and for the sums. */
    __device__ void write(int64_t t, int64_t from, int64_t j, const dra_cell_grads &g, float h,
                          int64_t here)
    {
        const int64_t D = a.size.D, in = segment_row(a, at.set, row.number, t - from);
        float        *dx = a.dx + ((row.b * a.size.T + t) * a.size.H + row.h) * G * D + j;
        DRA_UNROLL
        for (int k = 0; k < G; k++) {
            room.du(t)[(row.r * G + k) * weights.width + j] = g.du[k];
            room.sum(k)[here] += g.du[k];
            if (a.du) a.du[(in * G + k) * D + j] = g.du[k];
            if (a.dx && a.size.S == 1) dx[k * D] = g.dx[k];
        }
        room.sum(G)[here] += g.swing;
        if (a.before) a.before[in * D + j] = h;
        if (a.direct) a.direct[in * D + j] = g.dx[G - 1];
    }

    /* One unit of one row; gives what it adds to the gradient of the number of a slot. from: where
     * the segment starts. */
    __device__ float step(int64_t t, int64_t from, int64_t unit, int32_t bits, bool reset_after)
    {
        const int64_t    j = dra_imin(unit, a.size.D - 1), here = row.r * weights.width + j;
        const bool       pad = bits & DRA_MARK_PAD, reset = bits & DRA_MARK_RESET;
        const bool       live = row.live && unit < at.end;
        back_token<Cell> x = {};
        if (t >= 0) x = read(t, j, reset);
        const float came = product(t, j);
        float       d = reset_after ? 0 : room.d(0)[here] + came;
        float       dc = Cell::STATES > 1 && !reset_after ? room.d(Cell::STATES - 1)[here] : 0;
        if (!live) return 0;
        if (t < 0) {
            if (a.dstart[0].data) a.dstart[0].at(row, 0)[j] = d;
            if (Cell::STATES > 1 && a.dstart[1].data) a.dstart[1].at(row, 0)[j] = dc;
            return 0;
        }
        dra_cell_grads g = {};
        const float    all = d + x.dh;
        const float    mixed = pad ? 0 : all * Cell::change(x.kept, x.h);
        room.d(0)[here] = pad ? all : Cell::back(x.kept, x.mix, x.h, all, &dc, g);
        if (Cell::STATES > 1) room.d(Cell::STATES - 1)[here] = dc;
        write(t, from, j, g, x.h, here);
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
        const int64_t units = blockDim.x / 4;
        for (int64_t t = end - 1; t >= begin; t--) {
            const int32_t bits = t >= 0 ? dra_mark_at(a.mark, row.b, t) : 0;
            const int32_t after = t + 1 < a.size.T ? dra_mark_at(a.mark, row.b, t + 1) : 0;
            float         mixed = 0;
            for (int64_t first = at.begin; first < at.end; first += units)
                mixed += step(t, from, first + weights.unit(), bits, after & DRA_MARK_RESET);
            sum_mixed(t, mixed);
        }
        if (begin >= 0 || !row.live) return;
        for (int64_t j = at.begin + weights.unit(); j < at.end; j += units)
            for (int k = 0; k <= G; k++)
                a.sums[((at.set * a.size.rows + row.number) * (G + 1) + k) * a.size.D + j] =
                    room.sum(k)[row.r * weights.width + j];
    }
};

/* The memory of a tile between launches. */
template <typename Cell>
__device__ static back_room<Cell> room_outside(const back_call &a, const dra_cell_place &at)
{
    const int64_t part = a.size.each * a.size.width;
    return {a.room + at.tile * back_room<Cell>::ROW * part, part};
}

/* Tokens end-1 .. begin of the segment that starts at `from`. */
template <typename Cell, int HELD>
__global__ static void __launch_bounds__(HELD ? 4 * HELD : DRA_CELL_THREADS)
    walk_kernel(const __grid_constant__ back_batch all, int64_t from, int64_t begin, int64_t end)
{
    DRA_SHARED(float, shared);
    dra_cell_place        at;
    const back_call      &a = dra_cell_find(all, at);
    const back_room<Cell> outside = room_outside<Cell>(a, at);
    const bool            copies = HELD || !a.size.room_outside;
    back_walk<Cell, HELD> w = {a, at};
    w.room = {copies ? shared : outside.at, outside.part};
    w.row = dra_cell_row_at(a.size, at, (int)threadIdx.x % 4);
    w.weights.open(a, at);
    if (end == a.size.T && a.size.slices == 1) {
        open_room<Cell>(a, at, w.room);
    } else if (copies) {
        for (int64_t i = threadIdx.x; i < outside.ROW * outside.part; i += blockDim.x)
            shared[i] = outside.at[i];
    }
    __syncthreads();
    w.walk(from, begin, end);
    if (!copies || begin < 0) return;
    for (int64_t i = threadIdx.x; i < outside.ROW * outside.part; i += blockDim.x)
        outside.at[i] = shared[i];
}

/* Where a tile has several blocks. */
template <typename Cell> __global__ static void open_kernel(const __grid_constant__ back_batch all)
{
    dra_cell_place   at;
    const back_call &a = dra_cell_find(all, at);
    if (at.slice == 0) open_room<Cell>(a, at, room_outside<Cell>(a, at));
}

/* ---- dx of slots ----------------------------------------------------------------------------- */

/* Tokens begin .. end-1 of the segment that starts there. */
template <int G>
__global__ static void slots_kernel(const __grid_constant__ back_call a, int64_t begin, int64_t end)
{
    const dra_cell_size &n = a.size;
    const int64_t        heads = n.H / n.sets, columns = G * n.D;
    DRA_EACH(i, n.B * (end - begin) * n.H * a.parts * columns)
    {
        const int64_t column = i % columns, part = i / columns % a.parts;
        const int64_t h = i / columns / a.parts % n.H, token = i / columns / a.parts / n.H;
        const int64_t t = token % (end - begin), b = token / (end - begin);
        const int64_t first = b * n.per + h % heads * n.S;
        float         sum = 0;
        for (int64_t s = part * n.S / a.parts; s < (part + 1) * n.S / a.parts; s++) {
            const int64_t row = segment_row(a, h / heads, first + s, t);
            sum += column < (G - 1) * n.D ? a.du[row * columns + column]
                                          : a.direct[row * n.D + column - (G - 1) * n.D];
        }
        a.dx[((b * n.T + begin + t) * n.H * a.parts + h * a.parts + part) * columns + column] = sum;
    }
}

/* ---- scratch --------------------------------------------------------------------------------- */

static const dra_cell_attr *attr_of(const dra_call *c)
{
    return static_cast<const dra_cell_attr *>(c->attr);
}

static int inputs_of(const dra_call *c) { return DRA_CELL_BACK_DLAST + attr_of(c)->states; }
static int cells_of(const dra_call *c) { return (c->n_in - 1) / inputs_of(c); }

/* Sizes and chunks of cell k. */
static back_call open_call(const dra_call *c, int k, int processors)
{
    back_call a = {};
    a.size = dra_cell_size_of(attr_of(c), c->in + k * inputs_of(c), processors);
    a.parts = dra_div_up(a.size.S, DRA_CELL_ROWS);
    if (a.size.rows == 0) return a;
    const int64_t wanted = dra_imin(a.size.rows, dra_div_up(CHUNKS, a.size.sets));
    a.chunk = dra_div_up(a.size.rows, wanted);
    a.chunks = dra_div_up(a.size.rows, a.chunk);
    return a;
}

/* Rows of a token in a segment, with those that fill the last chunk. */
static int64_t token_rows(const back_call &a) { return a.size.sets * a.chunks * a.chunk; }

static int64_t token_floats(const dra_call *c, const back_call &a)
{
    return token_rows(a) * a.size.D * (attr_of(c)->gates + 1 + (a.size.S > 1));
}

/* The same for all cells. */
static int64_t segment_of(const dra_call *c)
{
    int64_t floats = 0, T = 0;
    for (int k = 0; k < cells_of(c); k++) {
        const back_call a = open_call(c, k, 0);
        floats += token_floats(c, a);
        T = a.size.T;
    }
    const int64_t bytes = dra_imax(1, floats * (int64_t)sizeof(float));
    return dra_imax(1, dra_imin(T, SEGMENT_BYTES / bytes));
}

/* Scratch memory that is handed out piece by piece; at NULL, when planning, only counted. */
struct supply {
    float  *at;
    int64_t used;

    float *take(int64_t floats) /* on 16 bytes */
    {
        float *piece = at ? at + used : nullptr;
        used += dra_div_up(floats, 4) * 4;
        return piece;
    }
};

static void take_scratch(const dra_call *c, back_call &a, int64_t segment, supply &from)
{
    const int64_t G = attr_of(c)->gates, D = a.size.D, rows = segment * token_rows(a);
    a.segment = segment;
    a.du = from.take(rows * G * D);
    a.before = from.take(rows * D);
    if (a.size.S > 1) a.direct = from.take(rows * D);
    a.sums = from.take(a.size.sets * a.size.rows * (G + 1) * D);
    a.dw = from.take(a.size.sets * a.chunks * G * D * D);
    a.room = from.take(dra_cell_rooms(a.size, 3 * G + 1 + attr_of(c)->states));
}

/* ---- sums at the end ------------------------------------------------------------------------- */

static dra_tensor dw_parts(const dra_call *c, const back_call &a)
{
    const int64_t size = attr_of(c)->gates * a.size.D * a.size.D;
    const int64_t dim[] = {a.size.sets, a.chunks, size}, stride[] = {a.chunks * size, size, 1};
    return dra_scratch_tensor(a.dw, 3, dim, stride);
}

static dra_tensor db_parts(const dra_call *c, const back_call &a)
{
    const int64_t G = attr_of(c)->gates, row = (G + 1) * a.size.D, rows = a.size.B * a.size.per;
    const int64_t dim[] = {a.size.sets, rows, G * a.size.D}, stride[] = {rows * row, row, 1};
    return dra_scratch_tensor(a.sums, 3, dim, stride);
}

static dra_tensor swing_parts(const dra_call *c, const back_call &a)
{
    const int64_t G = attr_of(c)->gates, row = (G + 1) * a.size.D, per = a.size.per, B = a.size.B;
    const int64_t dim[] = {a.size.sets, B, per, a.size.D};
    const int64_t stride[] = {B * per * row, per * row, row, 1};
    return dra_scratch_tensor(a.sums ? a.sums + G * a.size.D : nullptr, 4, dim, stride);
}

static size_t sums_scratch(const dra_call *c, const back_call &a)
{
    const dra_tensor x[] = {dw_parts(c, a), db_parts(c, a), swing_parts(c, a)};
    size_t           most = 0;
    for (const dra_tensor &t : x)
        most = (size_t)dra_imax((int64_t)most, (int64_t)dra_recur_sum_scratch(&t, 1));
    return most;
}

static size_t scratch(const dra_call *c)
{
    const int64_t segment = segment_of(c);
    supply        all = {};
    size_t        most = 0;
    for (int k = 0; k < cells_of(c); k++) {
        back_call a = open_call(c, k, 0);
        take_scratch(c, a, segment, all);
        most = (size_t)dra_imax((int64_t)most, (int64_t)sums_scratch(c, a));
    }
    return (size_t)all.used * sizeof(float) + most;
}

static void sum_up(const dra_call *c, const back_call &a, const dra_tensor *out, void *room)
{
    const dra_tensor dw = dw_parts(c, a), db = db_parts(c, a), swing = swing_parts(c, a);
    void            *to = out[DRA_CELL_DW].data;
    if (to && a.size.rows > 0 && a.size.T > 0)
        dra_recur_sum(c, &dw, 1, room, to);
    else if (to)
        cudaMemsetAsync(to, 0, (size_t)dra_shape_count(&out[DRA_CELL_DW].shape) * sizeof(float),
                        dra_cuda_of(c)->stream);
    dra_recur_sum(c, &db, 1, room, out[DRA_CELL_DB].data);
    if (!attr_of(c)->slots) dra_recur_sum(c, &swing, 1, room, out[DRA_CELL_DSWING].data);
}

/* ---- launches -------------------------------------------------------------------------------- */

static back_call call_of(const dra_call *c, int k, int64_t segment, supply &scratch)
{
    const dra_cell_attr *attr = attr_of(c);
    const dra_tensor    *in = c->in + k * inputs_of(c);
    const dra_tensor    *out = c->out + k * (DRA_CELL_DSTART + attr->states);
    const dra_tensor    *w = &in[DRA_CELL_BACK_W];
    back_call            a = open_call(c, k, dra_cuda_of(c)->processors);
    take_scratch(c, a, segment, scratch);
    a.h = dra_cell_view_of(&in[DRA_CELL_BACK_H]);
    a.start = dra_cell_view_of(&in[DRA_CELL_BACK_START]);
    a.kept = dra_cell_view_of(&in[DRA_CELL_BACK_KEPT]);
    a.dh = dra_cell_view_of(&in[DRA_CELL_BACK_DH]);
    a.w = static_cast<const float *>(w->data);
    a.w_set = w->shape.rank == 3 ? w->stride[0] : 0;
    a.w_row = w->stride[w->shape.rank - 2];
    a.mix = dra_cell_mix_of(&in[DRA_CELL_BACK_MIX]);
    a.mark = dra_marks_of(&c->in[c->n_in - 1]);
    a.dx = static_cast<float *>(out[DRA_CELL_DX].data);
    a.dmix = attr->slots ? static_cast<float *>(out[DRA_CELL_DSWING].data) : nullptr;
    for (int i = 0; i < attr->states; i++) {
        a.dlast[i] = dra_cell_view_of(&in[DRA_CELL_BACK_DLAST + i]);
        a.dstart[i] = dra_cell_view_of(&out[DRA_CELL_DSTART + i]);
    }
    if (!out[DRA_CELL_DW].data) a.before = nullptr;
    if (a.size.S == 1 || !a.dx) a.direct = nullptr;
    if (!a.before && !a.direct) a.du = nullptr;
    return a;
}

/* Tokens end-1 .. begin of the segment that starts at `from`. */
template <typename Cell>
static void launch_way(const dra_call *c, dra_cell_way way, const back_batch &all, int64_t from,
                       int64_t begin, int64_t end)
{
    const unsigned grid = (unsigned)all.blocks(), threads = all.threads();
    const size_t   shared = all.shared(back_room<Cell>::ROW);
    if (all.cells == 0) return;
    if (way == DRA_CELL_HELD_32) {
        DRA_LAUNCH(c, (walk_kernel<Cell, 32>), grid, threads, shared, all, from, begin, end);
    } else if (way == DRA_CELL_HELD_64) {
        DRA_LAUNCH(c, (walk_kernel<Cell, 64>), grid, threads, shared, all, from, begin, end);
    } else if (way == DRA_CELL_READ) {
        DRA_LAUNCH(c, (walk_kernel<Cell, 0>), grid, threads, shared, all, from, begin, end);
    } else {
        if (end == all.cell[0].size.T) DRA_LAUNCH(c, (open_kernel<Cell>), grid, threads, 0, all);
        for (int64_t t = end - 1; t >= begin; t--)
            DRA_LAUNCH(c, (walk_kernel<Cell, 0>), grid, threads, shared, all, from, t, t + 1);
    }
}

/* What is left to do with a segment of cell a. */
template <typename Cell>
static void close_segment(const dra_call *c, const back_call &a, int64_t begin, int64_t end)
{
    const int64_t G = Cell::GATES, D = a.size.D, tokens = end - begin;
    if (a.size.rows == 0 || tokens == 0) return;
    if (a.direct)
        DRA_LAUNCH(c, (slots_kernel<Cell::GATES>),
                   dra_grid(c, a.size.B * tokens * a.size.H * a.parts * G * D, DRA_THREADS),
                   DRA_THREADS, 0, a, begin, end);
    if (!a.before) return;
    dra_cuda_gemm g = {};
    g.M = G * D, g.N = D, g.K = tokens * a.chunk, g.batch = a.size.sets * a.chunks;
    g.a = a.du, g.b = a.before;
    g.a_dtype = g.b_dtype = DRA_F32;
    g.a_row = 1, g.a_column = G * D, g.b_row = D, g.b_column = 1, g.y_row = D;
    g.a_next = a.segment * a.chunk * G * D, g.b_next = a.segment * a.chunk * D;
    g.y_next = G * D * D;
    g.y = a.dw;
    g.add = end < a.size.T;
    g.precision = DRA_PRECISION_FULL;
    dra_cuda_gemm_run(c, &g);
}

/* Rows that only fill a chunk add nothing. */
static void clear_fill(const dra_call *c, const back_call &a)
{
    const size_t rows = (size_t)(a.segment * token_rows(a) * a.size.D) * sizeof(float);
    if (!a.before || token_rows(a) == a.size.sets * a.size.rows) return;
    cudaMemsetAsync(a.du, 0, (size_t)attr_of(c)->gates * rows, dra_cuda_of(c)->stream);
    cudaMemsetAsync(a.before, 0, rows, dra_cuda_of(c)->stream);
}

template <typename Cell> static void launch(const dra_call *c)
{
    const int64_t segment = segment_of(c);
    const int     cells = cells_of(c), outputs = DRA_CELL_DSTART + Cell::STATES;
    supply        scratch = {static_cast<float *>(c->scratch), 0};
    back_call     a[DRA_CELL_MOST];
    back_batch    by_way[DRA_CELL_WAYS] = {};
    for (int k = 0; k < cells; k++) {
        a[k] = call_of(c, k, segment, scratch);
        by_way[a[k].size.way].add(a[k]);
        clear_fill(c, a[k]);
    }
    int64_t end = a[0].size.T, begin;
    do {
        begin = dra_imax(0, end - segment);
        for (int way = 0; way < DRA_CELL_WAYS; way++)
            launch_way<Cell>(c, (dra_cell_way)way, by_way[way], begin, begin ? begin : -1, end);
        for (int k = 0; k < cells; k++) close_segment<Cell>(c, a[k], begin, end);
        end = begin;
    } while (begin > 0);
    for (int k = 0; k < cells; k++) sum_up(c, a[k], c->out + k * outputs, scratch.take(0));
}

#define CELL_BACK(cell, Cell)                                                                      \
    const dra_cuda_kernel dra_cuda_##cell##_back = {{#cell "_back", DRA_REALS | DRA_BIT(DRA_I32),  \
                                                     DRA_LAYOUT_ROWS, 0, false, scratch, nullptr}, \
                                                    launch<Cell>,                                  \
                                                    false}

CELL_BACK(gru, dra_gru_gates);
CELL_BACK(slot_gru, dra_gru_gates);
CELL_BACK(lstm, dra_lstm_gates);
