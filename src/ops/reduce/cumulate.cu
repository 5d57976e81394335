/* cumsum and cummax along an axis, as in cumulate.c.
 *
 * Lines are all elements along the axis, the other indices fixed. Where lines are next to each
 * other in memory and there are many of them, each thread walks along one. Otherwise a line is the
 * work of a team, a warp or a block, which goes along it by tiles of EACH elements of every thread:
 * the states before each thread's elements are a scan over the team.
 *
 * An op is a struct of functions on its state: none(), of(element, where it stands), join(a, b),
 * where a comes first, and give(). */
#include "ops/reduce/reduce.cuh"

enum { EACH = 4, WALK_THREADS = 64, WALK_AHEAD = 8, TEAM_LONG = 1024 };

#ifdef __CUDACC__
enum { WALK_LINES = 2048 };
#else
enum { WALK_LINES = 64 }; /* so that small tensors of tests meet every case */
#endif

struct line_call {
    const void *x;
    void       *y;     /* may be NULL, as index */
    int32_t    *index; /* of cummax, strides as y */
    dra_view    x_lines, y_lines;
    int64_t     lines, T, x_step, y_step;
    bool        reverse;
};

/* ---- ops ------------------------------------------------------------------------------------- */

template <typename Sum, typename T> struct sum_along {
    typedef T element;
    struct state {
        Sum sum;
    };
    static __device__ state none() { return {0}; }
    static __device__ state of(T x, int64_t) { return {(Sum)x}; }
    static __device__ state join(state a, state b) { return {a.sum + b.sum}; }
    static __device__ void  give(state s, const line_call &a, int64_t to)
    {
        static_cast<T *>(a.y)[to] = (T)s.sum;
    }
};

typedef sum_along<double, float>      sum_reals; /* later elements are often differences of sums */
typedef sum_along<uint32_t, uint32_t> sum_integers; /* wraps */

/* The first maximum met; a NaN counts as the maximum. */
struct max_along {
    typedef float element;
    struct state {
        float   max;
        int32_t at; /* -1: of nothing */
    };
    static __device__ state none() { return {0, -1}; }
    static __device__ state of(float x, int64_t t) { return {x, (int32_t)t}; }
    static __device__ state join(state a, state b)
    {
        if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
        return b.max > a.max || (b.max != b.max && a.max == a.max) ? b : a;
    }
    static __device__ void give(state s, const line_call &a, int64_t to)
    {
        if (a.y) static_cast<float *>(a.y)[to] = s.max;
        if (a.index) a.index[to] = s.at;
    }
};

/* ---- a thread for each line ------------------------------------------------------------------ */

template <typename Op> __global__ static void walk_kernel(const line_call a)
{
    typedef typename Op::element element;
    DRA_EACH(line, a.lines)
    {
        const element     *x = static_cast<const element *>(a.x) + dra_offset(a.x_lines, line);
        const int64_t      y = dra_offset(a.y_lines, line);
        typename Op::state s = Op::none();
        for (int64_t first = 0; first < a.T; first += WALK_AHEAD) {
            element held[WALK_AHEAD];
            DRA_UNROLL
            for (int i = 0; i < WALK_AHEAD; i++) {
                const int64_t t = dra_imin(first + i, a.T - 1);
                held[i] = x[(a.reverse ? a.T - 1 - t : t) * a.x_step];
            }
            DRA_UNROLL
            for (int i = 0; i < WALK_AHEAD; i++) {
                const int64_t t = a.reverse ? a.T - 1 - first - i : first + i;
                if (first + i >= a.T) continue;
                s = Op::join(s, Op::of(held[i], t));
                Op::give(s, a, y + t * a.y_step);
            }
        }
    }
}

/* ---- a team for each line -------------------------------------------------------------------- */

/* The joined states of all lanes before this one; *all: of the whole warp. */
template <typename Op>
__device__ static typename Op::state warp_before(typename Op::state s, typename Op::state *all)
{
    const int lane = (int)threadIdx.x % 32;
    DRA_UNROLL
    for (int by = 1; by < 32; by *= 2) {
        const typename Op::state before = dra_shuffle_up(s, by);
        if (lane >= by) s = Op::join(before, s);
    }
    const typename Op::state before = dra_shuffle_up(s, 1);
    *all = dra_shuffle_from(s, 31);
    return lane ? before : Op::none();
}

/* The same over the team; all its threads must come. */
template <typename Op, typename Team>
__device__ static typename Op::state team_before(typename Op::state s, typename Op::state *all)
{
    const typename Op::state within = warp_before<Op>(s, all);
    if (Team::SIZE == 32) return within;
    __shared__ typename Op::state part[32];
    const unsigned                warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads(); /* it may still be read from before */
    if (lane == 0) part[warp] = *all;
    __syncthreads();
    const bool               there = lane < Team::SIZE / 32;
    const typename Op::state before = warp_before<Op>(there ? part[lane] : Op::none(), all);
    return Op::join(dra_shuffle_from(before, (int)warp), within);
}

template <typename Op, typename Team> __global__ static void team_kernel(const line_call a)
{
    typedef typename Op::element element;
    typedef typename Op::state   state;
    DRA_EACH_ROW(Team, line, a.lines)
    {
        const element *x = static_cast<const element *>(a.x) + dra_offset(a.x_lines, line);
        const int64_t  y = dra_offset(a.y_lines, line);
        state          carry = Op::none();
        for (int64_t tile = 0; tile < a.T; tile += EACH * Team::SIZE) {
            const int64_t first = tile + EACH * Team::rank();
            state         own[EACH], all;
            DRA_UNROLL
            for (int i = 0; i < EACH; i++) {
                const int64_t t = a.reverse ? a.T - 1 - first - i : first + i;
                own[i] = first + i < a.T ? Op::of(x[t * a.x_step], t) : Op::none();
                if (i) own[i] = Op::join(own[i - 1], own[i]);
            }
            const state before = Op::join(carry, team_before<Op, Team>(own[EACH - 1], &all));
            carry = Op::join(carry, all);
            DRA_UNROLL
            for (int i = 0; i < EACH; i++) {
                const int64_t t = a.reverse ? a.T - 1 - first - i : first + i;
                if (first + i < a.T) Op::give(Op::join(before, own[i]), a, y + t * a.y_step);
            }
        }
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

static line_call call_of(const dra_call *c)
{
    const dra_cumulate_attr *attr = static_cast<const dra_cumulate_attr *>(c->attr);
    const dra_tensor        *x = &c->in[0], *y = &c->out[0];
    dra_tensor               lines, axis;
    line_call                a = {};
    a.x = x->data, a.y = y->data;
    a.T = x->shape.dim[attr->axis];
    a.x_step = x->stride[attr->axis], a.y_step = y->stride[attr->axis];
    dra_split_axes(y, 1u << attr->axis, &lines, &axis);
    a.y_lines = dra_view_of(&lines);
    dra_split_axes(x, 1u << attr->axis, &lines, &axis);
    a.x_lines = dra_view_of(&lines);
    a.lines = dra_shape_count(&lines.shape);
    a.reverse = attr->reverse;
    return a;
}

template <typename Op> static void launch_lines(const dra_call *c, const line_call &a)
{
    const int64_t step = a.x_step < 0 ? -a.x_step : a.x_step;
    const bool    across = dra_inner_stride(&a.x_lines) < step;
    if (a.lines == 0 || a.T == 0) return;
    if (a.lines >= WALK_LINES && across)
        DRA_LAUNCH(c, (walk_kernel<Op>), dra_grid(c, a.lines, WALK_THREADS), WALK_THREADS, 0, a);
    else if (a.T <= TEAM_LONG)
        DRA_LAUNCH(c, (team_kernel<Op, dra_warp_team>), dra_grid(c, a.lines, DRA_THREADS / 32),
                   DRA_THREADS, 0, a);
    else
        DRA_LAUNCH(c, (team_kernel<Op, dra_block_team<DRA_LONG_THREADS>>), dra_grid(c, a.lines, 1),
                   DRA_LONG_THREADS, 0, a);
}

static void cumsum_launch(const dra_call *c)
{
    if (c->in[0].dtype == DRA_I32)
        launch_lines<sum_integers>(c, call_of(c));
    else
        launch_lines<sum_reals>(c, call_of(c));
}

static void cummax_launch(const dra_call *c)
{
    line_call a = call_of(c);
    a.index = static_cast<int32_t *>(c->out[1].data);
    launch_lines<max_along>(c, a);
}

/* An element is read and written by one thread, in this order. */
const dra_cuda_kernel dra_cuda_cumsum = {
    {"cumsum", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ANY, 1, false, nullptr, nullptr},
    cumsum_launch,
    false};

const dra_cuda_kernel dra_cuda_cummax = {
    {"cummax", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ANY, 1, false, nullptr, nullptr},
    cummax_launch,
    false};
