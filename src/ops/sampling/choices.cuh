/* Tokens of a row on a GPU, a block for each row: the best of them, lists of them, and the one at
 * which a sum in their order reaches a goal.
 *
 * Tokens are in the order of z = x - max x, the largest first, equal ones by id. Nothing is sorted:
 * a token is found bucket by bucket, each level 1024 times as fine: by steps of z, by the bits of
 * z, by ids. Weights are whole numbers, so their sums are the same in whatever order threads add
 * them. */
#ifndef DRA_SRC_OPS_SAMPLING_CHOICES_CUH
#define DRA_SRC_OPS_SAMPLING_CHOICES_CUH

#include "device/cuda/rows.cuh"

extern "C" {
#include "ops/sampling/sample_math.h"
}

enum { ROOMS = 264 }; /* rows that are worked on at a time: two for each processor of a large GPU */
enum { THREADS = DRA_LONG_THREADS, BUCKETS = 1024, STEP_PARTS = 32 };

typedef dra_block_team<THREADS> team;
typedef unsigned long long      u64; /* as atomics have it */

/* Tokens of a row that may still be drawn: list (n). */
struct choices {
    const double *p;   /* (V) */
    u64          *key; /* (V): the bits of -z, which are in the order of -z */
    int32_t      *list, *other;
    int           n, V;
    double        first, unit;
};

/* ---- joins over a block ---------------------------------------------------------------------- */

struct best_of {
    double  x;
    int32_t id, broken; /* id -1: of nothing */
};

struct join_best {
    static __device__ best_of none() { return {-INFINITY, -1, 0}; }
    static __device__ best_of join(best_of a, best_of b)
    {
        const bool first = b.id < 0 || (a.id >= 0 && (a.x > b.x || (a.x == b.x && a.id < b.id)));
        return {first ? a.x : b.x, first ? a.id : b.id, a.broken | b.broken};
    }
};

template <typename T> struct join_add {
    static __device__ T none() { return 0; }
    static __device__ T join(T a, T b) { return a + b; }
};

struct bounds { /* of some tokens */
    u64     low, high;
    int32_t first, last;
};

struct join_bounds {
    static __device__ bounds none() { return {~0ull, 0, INT32_MAX, -1}; }
    static __device__ bounds join(bounds a, bounds b)
    {
        return {a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high,
                a.first < b.first ? a.first : b.first, a.last > b.last ? a.last : b.last};
    }
};

__device__ static bool within(const bounds &w, u64 key, int32_t id)
{
    return key >= w.low && key <= w.high && id >= w.first && id <= w.last;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Adds the ids of those lanes that `keep`; all lanes of the warp must come. */
__device__ static void append(int32_t *list, int *n, bool keep, int32_t id)
{
    const unsigned mask = __ballot_sync(~0u, keep), lane = threadIdx.x % 32;
    int            at = 0;
    if (lane == 0 && mask) at = atomicAdd(n, __popc(mask));
    at = __shfl_sync(~0u, at, 0);
    if (keep) list[at + __popc(mask & ((1u << lane) - 1))] = id;
}

/* f(id, there) for every token of a list, all threads at once; there: false beyond its end. */
template <typename F> __device__ static void each_choice(const int32_t *list, int n, F f)
{
    for (int at = 0; at < n; at += THREADS) {
        const int i = at + (int)threadIdx.x;
        f(i < n ? list[i] : 0, i < n);
    }
}

/* Those of the list for which keep(id) is true, to `to`; returns how many. */
template <typename F> __device__ static int gather(const int32_t *list, int n, int32_t *to, F keep)
{
    __shared__ int kept;
    __syncthreads();
    if (threadIdx.x == 0) kept = 0;
    __syncthreads();
    each_choice(list, n, [&](int32_t id, bool there) { append(to, &kept, there && keep(id), id); });
    __syncthreads();
    return kept;
}

template <typename F> __device__ static void filter(choices &c, F keep)
{
    int32_t *const list = c.list;
    c.n = gather(list, c.n, c.other, keep);
    c.list = c.other;
    c.other = list;
}

__device__ static u64 weight_of(const choices &c, int32_t id)
{
    return dra_sample_weight(c.p[id], c.unit);
}

__device__ static inline u64 total_of(const choices &c)
{
    u64 sum = 0;
    each_choice(c.list, c.n, [&](int32_t id, bool there) { sum += there ? weight_of(c, id) : 0; });
    return team::join<join_add<u64>>(sum);
}

/* ---- the token at which a sum reaches a goal ------------------------------------------------- */

enum level { BY_STEP, BY_KEY, BY_ID };

struct grid_of { /* how tokens of a level fall into buckets */
    level  by;
    bounds within;
    int    shift;

    __device__ grid_of(level how, const bounds &w) : by(how), within(w), shift(0)
    {
        const u64 range = by == BY_KEY ? w.high - w.low : (u64)(w.last - w.first);
        while (by != BY_STEP && range >> shift >= BUCKETS) shift++;
    }
    __device__ int bucket(const choices &c, int32_t id) const
    {
        if (by == BY_ID) return (id - within.first) >> shift;
        if (by == BY_KEY) return (int)((c.key[id] - within.low) >> shift);
        const double step = dra_sample_double(c.key[id]) / c.first * STEP_PARTS;
        return step < BUCKETS - 1 ? (int)step : BUCKETS - 1;
    }
};

/* Adds to a bucket for each lane that is there; mostly they mean many buckets, or one. */
__device__ static void add(u64 *sum, int bucket, bool there, u64 amount)
{
    const unsigned mask = __ballot_sync(~0u, there);
    if (!mask) return;
    const int leader = __ffs((int)mask) - 1, one = __shfl_sync(~0u, bucket, leader);
    if (__all_sync(~0u, !there || bucket == one)) {
        amount = dra_warp_join_of<join_add<u64>>(there ? amount : 0);
        if ((int)(threadIdx.x % 32) == leader) atomicAdd(&sum[one], amount);
    } else if (there) {
        atomicAdd(&sum[bucket], amount);
    }
}

/* The bucket in which the sum reaches the goal, which then counts from its start. */
__device__ static int reach(const u64 *sum, u64 *goal)
{
    enum { EACH = BUCKETS / THREADS };
    __shared__ u64 part[THREADS / 32], before;
    __shared__ int found;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64     *own = sum + threadIdx.x * EACH;
    u64            all = 0;
    for (int i = 0; i < EACH; i++) all += own[i];
    u64 upto = all;
    for (int by = 1; by < 32; by *= 2) {
        const u64 left = dra_shuffle_up(upto, by);
        if (lane >= (unsigned)by) upto += left;
    }
    if (lane == 31) part[warp] = upto;
    __syncthreads();
    for (unsigned i = 0; i < warp; i++) upto += part[i];
    if (upto - all < *goal && *goal <= upto) {
        u64 got = upto - all;
        int i = 0;
        while (got + own[i] < *goal) got += own[i++];
        before = got;
        found = (int)threadIdx.x * EACH + i;
    }
    __syncthreads();
    *goal -= before;
    return found;
}

/* One level: the tokens of `list` in the bucket where the sum reaches the goal; sum (BUCKETS). */
template <bool WEIGHTS>
__device__ static grid_of narrow(const choices &c, const int32_t *list, int n, level by,
                                 const bounds &w, u64 *sum, u64 *goal, int *bucket)
{
    const grid_of g(by, w);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < BUCKETS; i += THREADS) sum[i] = 0;
    __syncthreads();
    each_choice(list, n, [&](int32_t id, bool there) {
        there = there && within(w, c.key[id], id);
        add(sum, there ? g.bucket(c, id) : 0, there, WEIGHTS ? (there ? weight_of(c, id) : 0) : 1);
    });
    __syncthreads();
    *bucket = reach(sum, goal);
    return g;
}

struct place { /* of a token in the order */
    u64     key;
    int32_t id;
};

/* The first token at which the sum of weights, or the count, reaches the goal; in the order of z,
 * or of ids alone. */
template <bool WEIGHTS> __device__ static place find(const choices &c, bool sorted, u64 goal)
{
    __shared__ u64 sum[BUCKETS];
    bounds         w = {0, ~0ull, 0, c.V - 1};
    level          by = sorted ? BY_STEP : BY_ID;
    const int32_t *list = c.list;
    int            n = c.n, bucket;
    for (bool begun = false;; begun = true) {
        const grid_of g = narrow<WEIGHTS>(c, list, n, by, w, sum, &goal, &bucket);
        const bounds  outer = w;
        bounds        own = join_bounds::none();
        const auto    is_in = [&](int32_t id) {
            if (!within(outer, c.key[id], id) || g.bucket(c, id) != bucket) return false;
            own = join_bounds::join(own, {c.key[id], c.key[id], id, id});
            return true;
        };
        if (!begun) {
            n = gather(list, n, c.other, is_in);
            list = c.other;
        } else {
            each_choice(list, n, [&](int32_t id, bool there) { (void)(there && is_in(id)); });
        }
        w = team::join<join_bounds>(own);
        if (w.first == w.last) return {w.low, w.first};
        by = sorted && w.low < w.high ? BY_KEY : BY_ID;
    }
}

/* ---- the best -------------------------------------------------------------------------------- */

template <typename F> __device__ static best_of find_best(int64_t V, F x_of)
{
    best_of own = join_best::none();
    for (int64_t i = threadIdx.x; i < V; i += THREADS) {
        const double x = x_of(i);
        own.broken |= !(x < INFINITY);
        if (x > own.x) own.x = x, own.id = (int32_t)i;
    }
    return team::join<join_best>(own);
}

#endif
