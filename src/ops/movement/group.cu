/* Rows by group, see group.c. group_rows: a warp has a group and goes through all ids in their
 * order; first it counts those of its group, then it puts them behind those of the groups before.
 */
#include "device/cuda/rows.cuh"

enum { ORDER, SOURCE, PLACE, ENDS };

struct group_call {
    dra_fault_place fault;
    int64_t         S, k, n;
    const int32_t  *ids;
    int32_t        *count, *order, *source, *place, *ends;
};

__global__ static void count_kernel(const group_call g)
{
    const int lane = (int)threadIdx.x % 32;
    DRA_EACH_ROW(dra_warp_team, e, g.n)
    {
        int32_t count = 0;
        for (int64_t first = 0; first < g.S; first += 32) {
            const int64_t i = first + lane;
            const int32_t id = i < g.S ? g.ids[i] : (int32_t)e + 1;
            count += __popc(__ballot_sync(~0u, i < g.S && id == e));
            if (e == 0 && i < g.S && (id < 0 || id >= g.n))
                dra_fault_raise(g.fault, i, DRA_FAULT_INDEX, id, 1, g.n);
        }
        if (lane == 0) g.count[e] = count;
    }
}

__global__ static void place_kernel(const group_call g)
{
    const int lane = (int)threadIdx.x % 32;
    DRA_EACH_ROW(dra_warp_team, e, g.n)
    {
        int32_t at = 0;
        for (int64_t before = 0; before < e; before++) at += g.count[before];
        for (int64_t first = 0; first < g.S; first += 32) {
            const int64_t  i = first + lane;
            const bool     mine = i < g.S && g.ids[i] == e;
            const unsigned all = __ballot_sync(~0u, mine);
            const int32_t  to = at + __popc(all & ((1u << lane) - 1));
            if (mine && g.order) g.order[to] = (int32_t)i;
            if (mine && g.source) g.source[to] = (int32_t)(i / g.k);
            if (mine && g.place) g.place[i] = to;
            at += __popc(all);
        }
        if (lane == 0 && g.ends) g.ends[e] = at;
    }
}

static size_t scratch(const dra_call *c)
{
    return (size_t) static_cast<const dra_group_attr *>(c->attr)->groups * sizeof(int32_t);
}

static void rows_launch(const dra_call *c)
{
    group_call g = {};
    g.fault = dra_fault_of(c);
    g.S = dra_shape_count(&c->in[0].shape);
    g.k = c->in[0].shape.dim[1];
    g.n = static_cast<const dra_group_attr *>(c->attr)->groups;
    g.ids = static_cast<const int32_t *>(c->in[0].data);
    g.count = static_cast<int32_t *>(c->scratch);
    g.order = static_cast<int32_t *>(c->out[ORDER].data);
    g.source = static_cast<int32_t *>(c->out[SOURCE].data);
    g.place = static_cast<int32_t *>(c->out[PLACE].data);
    g.ends = static_cast<int32_t *>(c->out[ENDS].data);
    const unsigned grid = dra_grid(c, g.n, DRA_THREADS / 32);
    DRA_LAUNCH(c, count_kernel, grid, DRA_THREADS, 0, g);
    DRA_LAUNCH(c, place_kernel, grid, DRA_THREADS, 0, g);
}

const dra_cuda_kernel dra_cuda_group_rows = {
    {"group_rows", DRA_BIT(DRA_I32), DRA_LAYOUT_DENSE, 0, false, scratch, nullptr},
    rows_launch,
    true};

/* ---- group_take, group_sum ------------------------------------------------------------------- */

struct move_call {
    dra_fault_place fault;
    int64_t         n, C, rows, k; /* elements of y; rows of x; rows that one of y is the sum of */
    const float    *x;
    const int32_t  *from; /* (n / C, k) */
    float          *y;
};

__global__ static void move_kernel(const move_call m)
{
    DRA_EACH(i, m.n)
    {
        const int64_t r = i / m.C, column = i - r * m.C;
        float         sum = 0;
        for (int64_t j = 0; j < m.k; j++) {
            const int32_t at = m.from[r * m.k + j];
            if (at < 0 || at >= m.rows) {
                dra_fault_raise(m.fault, r, DRA_FAULT_INDEX, at, 0, m.rows);
                return;
            }
            const float x = m.x[at * m.C + column];
            sum = j ? sum + x : x;
        }
        m.y[i] = sum;
    }
}

static void move_launch(const dra_call *c, bool sum)
{
    move_call m = {};
    m.fault = dra_fault_of(c);
    m.n = dra_shape_count(&c->out[0].shape);
    m.C = dra_last(&c->out[0]);
    m.rows = c->in[0].shape.dim[0];
    m.k = sum ? c->in[2].shape.dim[1] : 1;
    m.x = static_cast<const float *>(c->in[0].data);
    m.from = static_cast<const int32_t *>(c->in[sum ? 2 : 1].data);
    m.y = static_cast<float *>(c->out[0].data);
    DRA_LAUNCH(c, move_kernel, dra_grid(c, m.n, DRA_THREADS), DRA_THREADS, 0, m);
}

static void take_launch(const dra_call *c) { move_launch(c, false); }
static void sum_launch(const dra_call *c) { move_launch(c, true); }

const dra_cuda_kernel dra_cuda_group_take = {
    {"group_take", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_DENSE, 0, false, nullptr, nullptr},
    take_launch,
    false};

const dra_cuda_kernel dra_cuda_group_sum = {
    {"group_sum", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_DENSE, 0, false, nullptr, nullptr},
    sum_launch,
    false};
