/* token_losses and its gradient: the cross entropy of each row of logits with its target, as in
 * ops/cross_entropy.c. */
#include "cuda/rows.h"

struct loss_call {
    dra_rows_view            x;
    dra_view                 target, lse, dy; /* lse, dy: of the gradient */
    float                   *y;               /* losses, or dx */
    float                   *y_lse;
    int64_t                  rows, V;
    dra_cross_entropy_config k;
    dra_fault_place          fault;
};

struct row_target {
    int32_t at;
    bool    ignored, valid; /* valid: it counts, and is inside */
};

/* All threads of a team ask; the first one reports a target that is outside. */
template <typename Team> __device__ static row_target target_of(const loss_call &a, int64_t r)
{
    row_target t;
    t.at = dra_data<const int32_t>(a.target)[dra_offset(a.target, r)];
    t.ignored = a.k.use_ignore && t.at == a.k.ignore;
    t.valid = !t.ignored && t.at >= 0 && t.at < a.V;
    if (!t.ignored && !t.valid && Team::rank() == 0)
        dra_fault_raise(a.fault, r, DRA_FAULT_TARGET, t.at, r, a.V - 1);
    return t;
}

static loss_call call_of(const dra_call *c, int target)
{
    loss_call a = {};
    a.x = dra_rows_of(&c->in[0]);
    a.target = dra_view_of(&c->in[target]);
    a.rows = dra_shape_count(&c->in[target].shape);
    a.V = a.x.length;
    a.k = *static_cast<const dra_cross_entropy_config *>(c->attr);
    a.fault = dra_fault_of(c);
    return a;
}

/* ---- (x, target) -> losses, lse -------------------------------------------------------------- */

/* Everything is taken relative to the maximum, so that large logits cancel before they round. */
template <typename Team, int W, int HELD>
__device__ static float row_loss(const loss_call &a, const float *x, int32_t target, float *lse)
{
    const float                 smoothing = (float)a.k.smoothing;
    dra_team_row<Team, W, HELD> row;
    row.open(x, a.V);
    const dra_exp_sum s = dra_row_exp_sum(row);
    const float       log_sum = logf(s.sum) + (s.max - s.max); /* NaN where no maximum is */
    float             expected = x[target] - s.max;
    if (smoothing != 0) {
        float sum = 0;
        row.each([&](int64_t, const float *v) {
            for (int j = 0; j < W; j++) sum += v[j] - s.max;
        });
        sum = dra_team_sum<Team>(sum);
        expected = (1 - smoothing) * expected + smoothing * (sum / (float)a.V);
    }
    *lse = s.max + log_sum;
    return log_sum - expected;
}

template <typename Team, int W, int HELD> __global__ static void losses_kernel(const loss_call a)
{
    DRA_EACH_ROW(Team, r, a.rows)
    {
        const row_target t = target_of<Team>(a, r);
        float            loss = 0, lse = INFINITY; /* ignored: softmax is 0 everywhere */
        if (t.valid) {
            const float *x = dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r);
            loss = row_loss<Team, W, HELD>(a, x, t.at, &lse);
        }
        if (Team::rank() == 0 && a.y) a.y[r] = loss;
        if (Team::rank() == 0 && a.y_lse) a.y_lse[r] = lse;
    }
}

static void losses_launch(const dra_call *c)
{
    loss_call a = call_of(c, 1);
    a.y = static_cast<float *>(c->out[0].data);
    a.y_lse = static_cast<float *>(c->out[1].data);
    DRA_LAUNCH_ROWS(c, losses_kernel, a.rows, a.V, dra_rows_by_four(&c->in[0]), a);
}

const dra_cuda_kernel dra_cuda_token_losses = {
    {"token_losses", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS, 0, false, nullptr, nullptr},
    losses_launch,
    false};

/* ---- (x, lse, target, dy) -> dx -------------------------------------------------------------- */

/* The first largest logit and its place, for all threads of the team. */
template <typename Team, int W, int HELD>
__device__ static float largest(dra_team_row<Team, W, HELD> &row, int64_t *place)
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

template <typename Team, int W, int HELD> __global__ static void back_kernel(const loss_call a)
{
    const float s = (float)a.k.smoothing, pull = (float)a.k.pull;
    DRA_EACH_ROW(Team, r, a.rows)
    {
        const row_target t = target_of<Team>(a, r);
        const float      lse = dra_data<const float>(a.lse)[dra_offset(a.lse, r)];
        const float      dy = dra_data<const float>(a.dy)[dra_offset(a.dy, r)];
        const float      even = s != 0 ? dy * s / (float)a.V : 0;
        float            pulled = 0;
        int64_t          top = -1;

        dra_team_row<Team, W, HELD> row;
        row.open(dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r), a.V);
        if (t.valid && pull > 0) pulled = dy * pull * largest(row, &top);
        row.each([&](int64_t i, const float *v) {
            float dx[W];
            DRA_UNROLL
            for (int j = 0; j < W; j++) {
                dx[j] = expf(v[j] - lse) * dy - even;
                if (i + j == t.at) dx[j] -= dy * (1 - s);
                if (i + j == top) dx[j] += pulled;
                if (!t.valid) dx[j] = 0;
            }
            dra_store_some<W>(a.y + r * a.V + i, dx);
        });
    }
}

static void back_launch(const dra_call *c)
{
    loss_call  a = call_of(c, 2);
    const bool by_four = dra_rows_by_four(&c->in[0]) && dra_rows_by_four(&c->out[0]);
    a.lse = dra_view_of(&c->in[1]);
    a.dy = dra_view_of(&c->in[3]);
    a.y = static_cast<float *>(c->out[0].data);
    DRA_LAUNCH_ROWS(c, back_kernel, a.rows, a.V, by_four, a);
}

const dra_cuda_kernel dra_cuda_token_losses_back = {{"token_losses_back",
                                                     DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ROWS,
                                                     1, false, nullptr, nullptr},
                                                    back_launch,
                                                    false};
