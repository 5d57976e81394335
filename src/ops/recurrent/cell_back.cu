/* Kernels of recurrent cells backward, what memory they take, and sums: see cell_back.cuh. */
#include "ops/recurrent/cell_back.cuh"
#include "ops/products/gemm.cuh"

#ifdef __CUDACC__
enum { SEGMENT_BYTES = 256 << 20, CHUNKS = 128 };
#else
enum { SEGMENT_BYTES = 8 << 10, CHUNKS = 4 }; /* so that tests meet several segments and chunks */
#endif

/* ---- kernels --------------------------------------------------------------------------------- */

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
    w.open({copies ? shared : outside.at, outside.part});
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
