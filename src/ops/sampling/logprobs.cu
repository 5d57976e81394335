/* token_logprobs: a block for each row. The k most likely tokens are those up to the one at which
 * their number reaches k; each finds its place by counting those before it. */
#include "ops/sampling/choices.cuh"

struct logprobs_call {
    const float   *logits;
    const int32_t *ids;
    float         *logprobs; /* (B, 1 + most); these two may be null */
    int32_t       *top;
    int64_t        B, V, most;
    unsigned char *scratch;
};

/* Key and list of all tokens. */
__device__ static choices list_all(const float *x, int64_t V, double max, unsigned char *room)
{
    u64 *const     key = reinterpret_cast<u64 *>(room);
    int32_t *const list = reinterpret_cast<int32_t *>(key + V);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < V; i += THREADS) {
        key[i] = dra_sample_bits(0 - ((double)x[i] - max));
        list[i] = (int32_t)i;
    }
    __syncthreads();
    return {nullptr, key, list, list + V, (int)V, (int)V, 1, 1};
}

__device__ static bool comes_before(const choices &c, int32_t a, int32_t b)
{
    return c.key[a] < c.key[b] || (c.key[a] == c.key[b] && a < b);
}

__device__ static void put(const logprobs_call &s, int64_t at, int32_t id, double logprob)
{
    if (s.logprobs) s.logprobs[at] = (float)logprob;
    if (s.top) s.top[at] = id;
}

__device__ static void put_top(const logprobs_call &s, int64_t b, choices &c, double log_sum)
{
    const place last = find<false>(c, true, (u64)s.most);
    filter(c, [&](int32_t id) {
        return c.key[id] < last.key || (c.key[id] == last.key && id <= last.id);
    });
    each_choice(c.list, c.n, [&](int32_t id, bool there) {
        int64_t at = b * (1 + s.most) + 1;
        for (int i = 0; i < c.n && there; i++) at += comes_before(c, c.list[i], id);
        if (there) put(s, at, id, 0 - dra_sample_double(c.key[id]) - log_sum);
    });
}

__device__ static void put_row(const logprobs_call &s, int64_t b, unsigned char *room)
{
    const float  *x = s.logits + b * s.V;
    const int32_t id = s.ids[b];
    const best_of best = find_best(s.V, [&](int64_t i) { return (double)x[i]; });
    const bool    there = !best.broken && best.id >= 0, known = id >= 0 && id < s.V;
    double        sum = 0;
    for (int64_t i = threadIdx.x; i < s.V && there; i += THREADS)
        sum += dra_sample_exp((double)x[i] - best.x);
    const double log_sum = log(team::join<join_add<double>>(sum));
    for (int64_t i = threadIdx.x; i <= s.most; i += THREADS)
        put(s, b * (1 + s.most) + i, i ? -1 : id,
            there && known && i == 0 ? (double)x[id] - best.x - log_sum : NAN);
    if (!there || s.most == 0) return;
    choices c = list_all(x, s.V, best.x, room);
    put_top(s, b, c, log_sum);
}

__global__ static void __launch_bounds__(THREADS, 1)
    logprobs_kernel(const __grid_constant__ logprobs_call s)
{
    unsigned char *const room = s.scratch + (int64_t)blockIdx.x * s.V * 16;
    for (int64_t b = blockIdx.x; b < s.B; b += gridDim.x) {
        put_row(s, b, room);
        __syncthreads();
    }
}

/* ---- launch ---------------------------------------------------------------------------------- */

static int64_t rooms(const dra_call *c) { return dra_imin(ROOMS, c->in[0].shape.dim[0]); }

/* key and two lists */
static size_t scratch(const dra_call *c) { return (size_t)(rooms(c) * c->in[0].shape.dim[1]) * 16; }

static void launch(const dra_call *c)
{
    logprobs_call s = {};
    s.logits = static_cast<const float *>(c->in[0].data);
    s.ids = static_cast<const int32_t *>(c->in[1].data);
    s.logprobs = static_cast<float *>(c->out[0].data);
    s.top = static_cast<int32_t *>(c->out[1].data);
    s.B = c->in[0].shape.dim[0];
    s.V = c->in[0].shape.dim[1];
    s.most = static_cast<const dra_logprobs_attr *>(c->attr)->most;
    s.scratch = static_cast<unsigned char *>(c->scratch);
    DRA_LAUNCH(c, logprobs_kernel, (unsigned)rooms(c), THREADS, 0, s);
}

const dra_cuda_kernel dra_cuda_token_logprobs = {
    {"token_logprobs", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_DENSE, 0, false, scratch, nullptr},
    launch,
    false};
