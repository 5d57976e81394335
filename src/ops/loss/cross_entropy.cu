/* token_losses and its gradient: the cross entropy of each row of logits with its target, as in
 * cross_entropy.c. */
#include "ops/loss/cross_entropy.cuh"

struct loss_call {
    dra_rows_view            x;
    dra_view                 target, lse, dy; /* lse, dy: of the gradient */
    float                   *y;               /* losses, or dx */
    float                   *y_lse;
    int64_t                  rows, V;
    dra_cross_entropy_config k;
    dra_fault_place          fault;
};

/* All threads of a team ask; the first one reports a target that is outside. */
template <typename Team> __device__ static dra_row_target target_of(const loss_call &a, int64_t r)
{
    const int32_t        at = dra_data<const int32_t>(a.target)[dra_offset(a.target, r)];
    const dra_row_target t = dra_target_of(a.k, at, a.V);
    if (Team::rank() == 0) dra_target_check(a.fault, t, r, a.V);
    return t;
}

template <typename Row> __device__ static void open_row(const loss_call &a, int64_t r, Row &row)
{
    row.open(dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r), a.V);
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

template <typename Team, int W, int HELD> __global__ static void losses_kernel(const loss_call a)
{
    DRA_EACH_ROW(Team, r, a.rows)
    {
        const dra_row_target t = target_of<Team>(a, r);
        float                loss = 0, lse = INFINITY; /* ignored: softmax is 0 everywhere */
        if (t.valid) {
            dra_team_row<Team, W, HELD> row;
            open_row(a, r, row);
            loss = dra_row_loss(row, a.V, (float)a.k.smoothing, t.at, &lse);
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

template <typename Team, int W, int HELD> __global__ static void back_kernel(const loss_call a)
{
    DRA_EACH_ROW(Team, r, a.rows)
    {
        const dra_row_target t = target_of<Team>(a, r);
        const float          lse = dra_data<const float>(a.lse)[dra_offset(a.lse, r)];
        const float          dy = dra_data<const float>(a.dy)[dra_offset(a.dy, r)];

        dra_team_row<Team, W, HELD> row;
        open_row(a, r, row);
        dra_row_loss_back(row, a.V, a.k, t, lse, dy, [&](int64_t i, const float *dx) {
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
