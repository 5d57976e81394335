/* embedding_back: dtable[v, c] = sum over all places with id v of dy[.., c].
 *
 * A block has a range of rows of the table and some columns. It looks through all ids, which stay
 * in the cache, and lists those of its range; sorts the list by row, places in order; and sums each
 * row's run. So every element has one writer, and its sum an order that follows from the ids alone.
 * Work: ids times ranges to look through, of which there are a few for each processor, and every
 * element of dy once. A lane has 4 columns where their number allows it. */
#include "device/cuda/cuda.cuh"

enum {
    WARPS = DRA_THREADS / 32,
    LIST = 4 * DRA_THREADS, /* places of a list, and ids looked at between two of them */
    LONG = 32,              /* a run that all warps share */
    BLOCKS = 12             /* for each processor: more would hide no more, but look longer */
};

struct back_call {
    int64_t        V, C, N, each; /* rows of a range */
    const int32_t *ids;
};

struct list {
    int     n;
    int32_t row[LIST]; /* counted from the start of the range */
    int32_t place[LIST];
    int32_t sorted_row[LIST], sorted_place[LIST];
    int32_t count[WARPS];
};

/* ---- lists ----------------------------------------------------------------------------------- */

/* Those of ids first .. first+LIST-1 that are in rows from .. from+rows-1, in order. Each warp
 * looks at a part of its own. */
__device__ static void list_ids(const back_call &b, int64_t first, int64_t from, int64_t rows,
                                list *l)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int32_t   row[LIST / DRA_THREADS];
    unsigned  found[LIST / DRA_THREADS];
    int       mine = 0;
    for (int j = 0; j < LIST / DRA_THREADS; j++) {
        const int64_t i = first + warp * (LIST / WARPS) + j * 32 + lane;
        const int64_t v = i < b.N ? b.ids[i] - from : -1;
        row[j] = (int32_t)v;
        found[j] = __ballot_sync(~0u, v >= 0 && v < rows);
        mine += __popc(found[j]);
    }
    if (lane == 0) l->count[warp] = mine;
    __syncthreads();
    int at = 0, all = 0;
    for (int w = 0; w < WARPS; w++) {
        at += w < warp ? l->count[w] : 0;
        all += l->count[w];
    }
    for (int j = 0; j < LIST / DRA_THREADS; j++) {
        const int to = at + __popc(found[j] & ((1u << lane) - 1));
        if (found[j] >> lane & 1) {
            l->row[to] = row[j];
            l->place[to] = warp * (LIST / WARPS) + j * 32 + lane;
        }
        at += __popc(found[j]);
    }
    if (threadIdx.x == 0) l->n = all;
    __syncthreads();
}

/* By row; those of one row stay in order. Lists are short but for the most frequent ids, so each
 * entry simply counts those before it. */
__device__ static void sort_list(list *l)
{
    for (int i = (int)threadIdx.x; i < l->n; i += DRA_THREADS) {
        const int32_t row = l->row[i];
        int           before = 0;
        for (int j = 0; j < l->n; j++) before += l->row[j] < row || (l->row[j] == row && j < i);
        l->sorted_row[before] = row;
        l->sorted_place[before] = l->place[i];
    }
    __syncthreads();
}

/* ---- sums ------------------------------------------------------------------------------------ */

__device__ static float  plus(float a, float b) { return a + b; }
__device__ static float4 plus(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* sum + the rows of dy named in place[0..n). Several are read before any is added. */
template <typename T>
__device__ static T add_places(T sum, const int32_t *place, int n, const T *dy, int64_t C)
{
    enum { AHEAD = 8 };
    int i = 0;
    for (; i + AHEAD <= n; i += AHEAD) {
        T x[AHEAD];
        for (int k = 0; k < AHEAD; k++) x[k] = dy[place[i + k] * C];
        for (int k = 0; k < AHEAD; k++) sum = plus(sum, x[k]);
    }
    for (; i < n; i++) sum = plus(sum, dy[place[i] * C]);
    return sum;
}

__device__ static int end_of_run(const list *l, int start)
{
    int end = start + 1;
    while (end < l->n && l->sorted_row[end] == l->sorted_row[start]) end++;
    return end;
}

/* A long run: each warp sums a part of it, and the first one what they found. */
template <typename T>
__device__ static void add_long(const int32_t *place, int n, const T *dy, int64_t C, T *to,
                                bool inside)
{
    __shared__ T part[WARPS][32];
    const int    lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int    each = (n + WARPS - 1) / WARPS, first = warp * each;
    const int    mine = n - first < each ? n - first : each;
    if (inside) part[warp][lane] = add_places<T>(T{}, place + first, mine > 0 ? mine : 0, dy, C);
    __syncthreads();
    if (warp == 0 && inside) {
        T sum = *to;
        for (int w = 0; w < WARPS; w++) sum = plus(sum, part[w][lane]);
        *to = sum;
    }
    __syncthreads();
}

/* Adds the list to the table; dy and table from this lane's columns on. Short runs have a warp
 * each. A row may come again with the next list, in another warp: hence the wait at the end. */
template <typename T>
__device__ static void add_list(const list *l, const T *dy, int64_t C, T *table, bool inside)
{
    const int warp = (int)threadIdx.x / 32;
    int       run = 0;
    for (int start = 0, end; start < l->n; start = end) {
        end = end_of_run(l, start);
        T *to = table + l->sorted_row[start] * C;
        if (end - start >= LONG)
            add_long(l->sorted_place + start, end - start, dy, C, to, inside);
        else if (run++ % WARPS == warp && inside)
            *to = add_places<T>(*to, l->sorted_place + start, end - start, dy, C);
    }
    __syncthreads();
}

/* C counts elements of T here. */
template <typename T> __global__ static void back_kernel(const back_call b, const T *dy, T *table)
{
    DRA_SHARED(list, l);
    const int64_t from = blockIdx.x * b.each, rows = dra_imin(b.each, b.V - from);
    const int64_t column = (int64_t)blockIdx.y * 32 + threadIdx.x % 32;
    const bool    inside = column < b.C;
    for (int64_t r = threadIdx.x / 32; inside && r < rows; r += WARPS)
        table[(from + r) * b.C + column] = T{};
    __syncthreads();
    for (int64_t first = 0; first < b.N; first += LIST) {
        list_ids(b, first, from, rows, l);
        if (l->n == 0) continue;
        sort_list(l);
        add_list<T>(l, dy + first * b.C + column, b.C, table + from * b.C + column, inside);
    }
}

template <typename T> static void back_as(const dra_call *c, back_call b)
{
    b.C /= (int64_t)(sizeof(T) / sizeof(float));
    const int64_t columns = dra_div_up(b.C, 32);
    const int64_t most = dra_imax(1, BLOCKS * dra_cuda_of(c)->processors / columns);
    b.each = dra_div_up(b.V, dra_imin(b.V, most));
    const dim3 grid((unsigned)dra_div_up(b.V, b.each), (unsigned)columns);
    DRA_LAUNCH(c, back_kernel<T>, grid, DRA_THREADS, sizeof(list), b,
               static_cast<const T *>(c->in[1].data), static_cast<T *>(c->out[0].data));
}

static void back_launch(const dra_call *c)
{
    const dra_shape *s = &c->out[0].shape;
    const back_call  b = {s->dim[0], s->dim[1], dra_rows(&c->in[1]), 0,
                          static_cast<const int32_t *>(c->in[0].data)};
    if (b.C % 4 == 0 && reinterpret_cast<uintptr_t>(c->in[1].data) % 16 == 0)
        back_as<float4>(c, b);
    else
        back_as<float>(c, b);
}

const dra_cuda_kernel dra_cuda_embedding_back = {
    {"embedding_back", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_DENSE, 0, false, nullptr, nullptr},
    back_launch,
    false};
