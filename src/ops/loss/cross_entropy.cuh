/* The cross entropy of one row of logits with its target, and its gradient, as token_losses and
 * linear_cross_entropy compute them; see cross_entropy.c. */
#ifndef DRA_SRC_OPS_LOSS_CROSS_ENTROPY_CUH
#define DRA_SRC_OPS_LOSS_CROSS_ENTROPY_CUH

#include "device/cuda/rows.cuh"

struct dra_row_target {
    int32_t at;
    bool    ignored, valid; /* valid: it counts, and is inside */
};

__device__ static inline dra_row_target dra_target_of(const dra_cross_entropy_config &k,
                                                      int32_t target, int64_t V)
{
    const bool ignored = k.use_ignore && target == k.ignore;
    return {target, ignored, !ignored && target >= 0 && target < V};
}

__device__ static inline void dra_target_check(dra_fault_place f, const dra_row_target &t,
                                               int64_t row, int64_t V)
{
    if (!t.ignored && !t.valid) dra_fault_raise(f, row, DRA_FAULT_TARGET, t.at, row, V - 1);
}

/* The loss of a row that counts, of V logits; those after them are -inf. Everything is taken
 * relative to the maximum, so that large logits cancel before they round. */
template <typename Team, int W, int HELD, typename From>
__device__ static float dra_row_loss(dra_team_row<Team, W, HELD, From> &row, int64_t V,
                                     float smoothing, int32_t target, float *lse)
{
    const dra_exp_sum s = dra_row_exp_sum(row);
    const float       log_sum = logf(s.sum) + (s.max - s.max); /* NaN where no maximum is */
    float             expected = row.pick(target) - s.max;
    if (smoothing != 0) {
        float sum = 0;
        row.each([&](int64_t i, const float *v) {
            for (int j = 0; j < W; j++) sum += i + j < V ? v[j] - s.max : 0;
        });
        sum = dra_team_sum<Team>(sum);
        expected = (1 - smoothing) * expected + smoothing * (sum / (float)V);
    }
    *lse = s.max + log_sum;
    return log_sum - expected;
}

/* The first largest logit and its place, for all threads of the team. */
template <typename Team, int W, int HELD, typename From>
__device__ static float dra_row_largest(dra_team_row<Team, W, HELD, From> &row, int64_t *place)
{
    float   top = -INFINITY;
    int64_t first = row.n;
    row.each([&](int64_t i, const float *v) {
        for (int j = 0; j < W; j++)
            if (v[j] > top) top = v[j], first = i + j;
    });
    const float max = dra_team_max<Team>(top);
    *place = Team::template join<dra_join_least>(top == max ? first : row.n);
    return max;
}

/* dx = dy (softmax(x) - target distribution), and dy l2wrap max(x) more at the first largest; 0 for
 * rows that do not count. store(i, dx) takes W of them from number i on. */
template <typename Team, int W, int HELD, typename From, typename Store>
__device__ static void dra_row_loss_back(dra_team_row<Team, W, HELD, From> &row, int64_t V,
                                         const dra_cross_entropy_config &k, const dra_row_target &t,
                                         float lse, float dy, Store store)
{
    const float s = (float)k.smoothing, l2wrap = (float)k.l2wrap;
    const float even = s != 0 ? dy * s / (float)V : 0;
    float       pulled = 0;
    int64_t     top = -1;
    if (t.valid && l2wrap > 0) pulled = dy * l2wrap * dra_row_largest(row, &top);
    row.each([&](int64_t i, const float *v) {
        float dx[W];
        DRA_UNROLL
        for (int j = 0; j < W; j++) {
            dx[j] = dra_exp_of<From>(v[j] - lse) * dy - even;
            if (i + j == t.at) dx[j] -= dy * (1 - s);
            if (i + j == top) dx[j] += pulled;
            if (!t.valid) dx[j] = 0;
        }
        store(i, dx);
    });
}

#endif
