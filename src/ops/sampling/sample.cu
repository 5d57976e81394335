/* sample: a block for each row, with the arithmetic of sample_math.h. What filters and draws need
 * is the token at which a sum in their order reaches a goal, see choices.cuh. */
#include "ops/sampling/choices.cuh"

struct sample_call {
    const float          *logits, *bias; /* bias (V) or (B, V): step is 0 or V */
    const dra_sample_row *rows;
    const bool           *allowed, *seen;
    int32_t              *ids;
    int64_t               B, V, bias_step;
    unsigned char        *scratch;
};

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

/* p / S >= epsilon, or the largest there is. */
__device__ static void keep_above(choices &c, double epsilon)
{
    const double least = dra_sample_mul(epsilon, (double)total_of(c) / c.unit);
    best_of      own = join_best::none();
    each_choice(c.list, c.n, [&](int32_t id, bool there) {
        if (there && c.p[id] > own.x) own = {c.p[id], id, 0};
    });
    const double largest = team::join<join_best>(own).x;
    filter(c, [&](int32_t id) { return c.p[id] >= (least < largest ? least : largest); });
}

__device__ static double y_of(const choices &c, int32_t id)
{
    return (0 - dra_sample_double(c.key[id])) / c.first;
}

__device__ static u64 surprise_of(const choices &c)
{
    u64 sum = 0;
    each_choice(c.list, c.n, [&](int32_t id, bool there) {
        if (there) sum += dra_sample_weight(dra_sample_surprise(c.p[id], y_of(c, id)), c.unit);
    });
    return team::join<join_add<u64>>(sum);
}

/* For a while keys are distances, by which tokens are found, and then what they were. */
__device__ static void keep_typical(const row_of &r, double max, choices &c)
{
    const u64    surprise = surprise_of(c), total = total_of(c);
    const double first = c.first;
    __syncthreads();
    each_choice(c.list, c.n, [&](int32_t id, bool there) {
        if (there) c.key[id] = dra_sample_distance(y_of(c, id), surprise, total);
    });
    __syncthreads();
    c.first = 1;
    const place last = find<true>(c, true, dra_sample_share(r.how.typical_p, total));
    c.first = first;
    filter(c, [&](int32_t id) { return c.key[id] <= last.key; });
    each_choice(c.list, c.n, [&](int32_t id, bool there) {
        if (there) c.key[id] = dra_sample_bits(0 - (r.logit(id) - max));
    });
    __syncthreads();
}

/* As dra_sample_weigh() of sample_row.c; returns whether tokens are in the order of z. */
__device__ static bool apply_filters(const row_of &r, double max, choices &c)
{
    const dra_sample_row &how = r.how;
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
    if (how.typical_p > 0 && how.typical_p < 1) keep_typical(r, max, c);
    if (how.epsilon_cutoff > 0) keep_above(c, how.epsilon_cutoff);
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
    const bool sorted = apply_filters(r, best.x, c);
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

__global__ static void __launch_bounds__(THREADS, 1)
    sample_kernel(const __grid_constant__ sample_call s)
{
    unsigned char *const room = s.scratch + (int64_t)blockIdx.x * s.V * 24;
    for (int64_t b = blockIdx.x; b < s.B; b += gridDim.x) {
        const int32_t id = choose(row_of(s, b), room);
        if (threadIdx.x == 0) s.ids[b] = id;
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
    s.ids = static_cast<int32_t *>(c->out[0].data);
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
