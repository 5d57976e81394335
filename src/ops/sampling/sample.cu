/* sample: a block for each row, with the arithmetic of sample_math.h.
 *
 * Tokens are in the order of z = x - max x, the largest first, equal ones by id. Nothing is sorted:
 * what filters and draws need is the token at which a sum in this order reaches a goal. It is found
 * bucket by bucket, each level 1024 times as fine: by steps of z, by the bits of z, by ids.
 * Weights are whole numbers, so their sums are the same in whatever order threads add them. */
#include "device/cuda/rows.cuh"

extern "C" {
#include "ops/sampling/sample_math.h"
}

enum { THREADS = DRA_LONG_THREADS, BUCKETS = 1024, STEP_PARTS = 32 };
enum { ROOMS = 264 }; /* rows that are worked on at a time: two for each processor of a large GPU */

typedef dra_block_team<THREADS> team;
typedef unsigned long long      u64; /* as atomics have it */

struct sample_call {
    const float          *logits, *bias; /* bias (V) or (B, V): step is 0 or V */
    const dra_sample_row *rows;
    const bool           *allowed, *seen;
    int32_t              *ids;
    float                *logprob;
    int64_t               B, V, bias_step;
    unsigned char        *scratch;
};

/* Tokens of a row that may still be drawn: list (n). */
struct choices {
    const double *p;   /* (V) */
    const u64    *key; /* (V): the bits of -z, which are in the order of -z */
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

__device__ static u64 total_of(const choices &c)
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

/* ---- a row ----------------------------------------------------------------------------------- */

struct row_of {
    const sample_call    &s;
    const dra_sample_row &how;
    int64_t               at; /* b V */
    const float          *bias;

    __device__ row_of(const sample_call &call, int64_t b)
        : s(call), how(call.rows[b]), at(b * call.V), bias(call.bias + b * call.bias_step)
    {}
    __device__ double logit(int64_t i) const /* x: with bias and penalty */
    {
        float x = s.logits[at + i];
        if (s.bias || s.allowed)
            x = dra_sample_biased(x, s.bias ? bias[i] : 0, !s.allowed || s.allowed[at + i]);
        return s.seen && how.repetition_penalty != 0 && s.seen[at + i]
                   ? dra_sample_penalised((double)x, how.repetition_penalty)
                   : (double)x;
    }
};

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

/* Fills p and key, and lists what can be drawn at all. */
__device__ static choices weigh(const row_of &r, double max, unsigned char *room)
{
    const int64_t  V = r.s.V;
    double *const  p = reinterpret_cast<double *>(room);
    u64 *const     key = reinterpret_cast<u64 *>(p + V);
    int32_t *const list = reinterpret_cast<int32_t *>(key + V);
    const double   first = r.how.options & DRA_SAMPLE_FILTER_FIRST ? 1 : r.how.temperature;
    __shared__ int kept;
    __syncthreads();
    if (threadIdx.x == 0) kept = 0;
    __syncthreads();
    for (int64_t from = 0; from < V; from += THREADS) {
        const int64_t i = from + threadIdx.x;
        const double  z = i < V ? r.logit(i) - max : -INFINITY, y = z / first;
        const bool    keep = y >= DRA_SAMPLE_LEAST;
        if (keep) p[i] = dra_sample_exp(y), key[i] = dra_sample_bits(0 - z);
        append(list, &kept, keep, (int32_t)i);
    }
    __syncthreads();
    return {p, key, list, list + V, kept, (int)V, first, dra_sample_unit(V)};
}

/* As dra_sample_weigh() of sample_row.c; returns whether tokens are in the order of z. */
__device__ static bool apply_filters(const dra_sample_row &how, choices &c)
{
    const bool few = how.top_k > 0 && how.top_k<c.n, share = how.top_p> 0 && how.top_p < 1;
    if (few) {
        const place last = find<false>(c, true, (u64)how.top_k);
        filter(c, [&](int32_t id) { return c.key[id] <= last.key; });
    }
    if (share) {
        const place last = find<true>(c, true, dra_sample_share(how.top_p, total_of(c)));
        filter(c, [&](int32_t id) {
            return c.key[id] < last.key || (c.key[id] == last.key && id <= last.id);
        });
    }
    if (how.top_a > 0) {
        const double least = dra_sample_least(how.top_a, total_of(c), c.unit);
        filter(c, [&](int32_t id) { return c.p[id] >= least; });
    }
    if (how.min_p > 0) filter(c, [&](int32_t id) { return c.p[id] >= how.min_p; });
    return few || share;
}

__device__ static int32_t choose(const row_of &r, unsigned char *room)
{
    const dra_sample_row &how = r.how;
    if (how.options & DRA_SAMPLE_NOTHING) return -1;
    const best_of best = find_best(r.s.V, [&](int64_t i) { return r.logit(i); });
    if (best.broken || best.id < 0) return -1;
    if (how.temperature == 0) return best.id;
    choices    c = weigh(r, best.x, room);
    const bool sorted = apply_filters(how, c);
    if (how.options & DRA_SAMPLE_FILTER_FIRST) {
        double *const p = reinterpret_cast<double *>(room);
        each_choice(c.list, c.n, [&](int32_t id, bool there) {
            if (there) p[id] = dra_sample_exp((0 - dra_sample_double(c.key[id])) / how.temperature);
        });
        __syncthreads();
    }
    const double u = dra_sample_uniform(how.seed, how.position, 0, 0);
    return find<true>(c, sorted, dra_sample_goal(u, total_of(c))).id;
}

/* By the logits as they are. */
__device__ static float logprob_of(const sample_call &s, int64_t b, int32_t id)
{
    const float *x = s.logits + b * s.V;
    if (id < 0) return NAN;
    const best_of best = find_best(s.V, [&](int64_t i) { return (double)x[i]; });
    double        sum = 0;
    for (int64_t i = threadIdx.x; i < s.V; i += THREADS)
        sum += dra_sample_exp((double)x[i] - best.x);
    sum = team::join<join_add<double>>(sum);
    return best.broken ? NAN : (float)((double)x[id] - best.x - log(sum));
}

__global__ static void __launch_bounds__(THREADS, 1)
    sample_kernel(const __grid_constant__ sample_call s)
{
    unsigned char *const room = s.scratch + (int64_t)blockIdx.x * s.V * 24;
    for (int64_t b = blockIdx.x; b < s.B; b += gridDim.x) {
        const int32_t id = choose(row_of(s, b), room);
        const float   logprob = s.logprob ? logprob_of(s, b, id) : 0;
        if (threadIdx.x == 0 && s.ids) s.ids[b] = id;
        if (threadIdx.x == 0 && s.logprob) s.logprob[b] = logprob;
        __syncthreads();
    }
}

/* ---- launch ---------------------------------------------------------------------------------- */

static int64_t rooms(const dra_call *c)
{
    return dra_imin(ROOMS, c->in[DRA_SAMPLE_LOGITS].shape.dim[0]);
}

/* p, key and two lists */
static size_t scratch(const dra_call *c)
{
    return (size_t)(rooms(c) * c->in[DRA_SAMPLE_LOGITS].shape.dim[1]) * 24;
}

template <typename T> static const T *input(const dra_call *c, int i)
{
    return static_cast<const T *>(c->in[i].data);
}

static void launch(const dra_call *c)
{
    const dra_sample_attr *a = static_cast<const dra_sample_attr *>(c->attr);
    const dra_shape       *x = &c->in[DRA_SAMPLE_LOGITS].shape;
    sample_call            s = {};
    s.logits = input<float>(c, DRA_SAMPLE_LOGITS);
    s.rows = input<dra_sample_row>(c, DRA_SAMPLE_ROWS);
    s.bias = a->bias ? input<float>(c, a->bias) : nullptr;
    s.allowed = a->allowed ? input<bool>(c, a->allowed) : nullptr;
    s.seen = a->seen ? input<bool>(c, a->seen) : nullptr;
    s.ids = static_cast<int32_t *>(c->out[DRA_SAMPLE_ID].data);
    s.logprob = static_cast<float *>(c->out[DRA_SAMPLE_LOGPROB].data);
    s.B = x->dim[0];
    s.V = x->dim[1];
    s.bias_step = a->bias && c->in[a->bias].shape.rank == 2 ? s.V : 0;
    s.scratch = static_cast<unsigned char *>(c->scratch);
    DRA_LAUNCH(c, sample_kernel, (unsigned)rooms(c), THREADS, 0, s);
}

const dra_cuda_kernel dra_cuda_sample = {{"sample",
                                          DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL),
                                          DRA_LAYOUT_DENSE, 0, false, scratch, nullptr},
                                         launch,
                                         false};
