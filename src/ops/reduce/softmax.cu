/* softmax and log_softmax over the last axis, and the gradient of softmax; formulas and the rule of
 * masked entries as in softmax.c. */
#include "device/cuda/rows.cuh"

#define LIMIT ((float)(DRA_MASKED / 2))

struct softmax_call { /* of all kernels here: y like x, dense */
    dra_rows_view x, dy;
    float        *y;
    int64_t       rows, n;
};

/* ---- softmax and log_softmax ----------------------------------------------------------------- */

template <typename Team, int W, int HELD>
__global__ static void softmax_kernel(const softmax_call a)
{
    DRA_EACH_ROW(Team, r, a.rows)
    {
        dra_team_row<Team, W, HELD> row;
        row.open(dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r), a.n);
        const dra_exp_sum s = dra_row_exp_sum(row);
        const bool        masked = s.max <= LIMIT;
        const float       factor = 1 / s.sum;
        row.each([&](int64_t i, const float *v) {
            float y[W];
            DRA_UNROLL
            for (int j = 0; j < W; j++) y[j] = masked ? 0 : expf(v[j] - s.max) * factor;
            dra_store_some<W>(a.y + r * a.n + i, y);
        });
    }
}

template <typename Team, int W, int HELD>
__global__ static void log_softmax_kernel(const softmax_call a)
{
    DRA_EACH_ROW(Team, r, a.rows)
    {
        dra_team_row<Team, W, HELD> row;
        row.open(dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r), a.n);
        const dra_exp_sum s = dra_row_exp_sum(row);
        const float       rest = s.max <= LIMIT ? 0 : logf(s.sum);
        row.each([&](int64_t i, const float *v) {
            float y[W];
            DRA_UNROLL
            for (int j = 0; j < W; j++)
                y[j] = v[j] <= LIMIT ? (float)DRA_MASKED : v[j] - s.max - rest;
            dra_store_some<W>(a.y + r * a.n + i, y);
        });
    }
}

static softmax_call call_of(const dra_call *c)
{
    softmax_call a = {};
    a.x = dra_rows_of(&c->in[0]);
    a.y = static_cast<float *>(c->out[0].data);
    a.rows = dra_shape_count(&c->in[0].shape) / dra_imax(1, a.x.length);
    a.n = a.x.length;
    return a;
}

static void softmax_launch(const dra_call *c)
{
    const softmax_call a = call_of(c);
    const bool         by_four = dra_rows_by_four(&c->in[0]) && dra_rows_by_four(&c->out[0]);
    DRA_LAUNCH_ROWS(c, softmax_kernel, a.rows, a.n, by_four, a);
}

static void log_softmax_launch(const dra_call *c)
{
    const softmax_call a = call_of(c);
    const bool         by_four = dra_rows_by_four(&c->in[0]) && dra_rows_by_four(&c->out[0]);
    DRA_LAUNCH_ROWS(c, log_softmax_kernel, a.rows, a.n, by_four, a);
}

/* A row is read by its team alone, and written after it was read: y may be x. */
const dra_cuda_kernel dra_cuda_softmax = {
    {"softmax", DRA_REALS, DRA_LAYOUT_ROWS, 1, false, nullptr, nullptr}, softmax_launch, false};

const dra_cuda_kernel dra_cuda_log_softmax = {
    {"log_softmax", DRA_REALS, DRA_LAYOUT_ROWS, 1, false, nullptr, nullptr},
    log_softmax_launch,
    false};

/* ---- the gradient of softmax: (y, dy) -> dx -------------------------------------------------- */

template <typename Team, int W, int HELD> __global__ static void back_kernel(const softmax_call a)
{
    DRA_EACH_ROW(Team, r, a.rows)
    {
        dra_team_row<Team, W, HELD> y, dy;
        float                       sum = 0;
        y.open(dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r), a.n);
        dy.open(dra_data<const float>(a.dy.rows) + dra_offset(a.dy.rows, r), a.n);
        y.each_with(dy, [&](int64_t, const float *v, const float *u) {
            for (int j = 0; j < W; j++) sum += v[j] * u[j];
        });
        sum = dra_team_sum<Team>(sum);
        y.each_with(dy, [&](int64_t i, const float *v, const float *u) {
            float dx[W];
            DRA_UNROLL
            for (int j = 0; j < W; j++) dx[j] = v[j] * (u[j] - sum);
            dra_store_some<W>(a.y + r * a.n + i, dx);
        });
    }
}

static void back_launch(const dra_call *c)
{
    softmax_call a = call_of(c);
    const bool   by_four = dra_rows_by_four(&c->in[0]) && dra_rows_by_four(&c->in[1]) &&
                         dra_rows_by_four(&c->out[0]);
    a.dy = dra_rows_of(&c->in[1]);
    DRA_LAUNCH_ROWS(c, back_kernel, a.rows, a.n, by_four, a);
}

const dra_cuda_kernel dra_cuda_softmax_back = {
    {"softmax_back", DRA_REALS, DRA_LAYOUT_ROWS, 1 | 2, false, nullptr, nullptr},
    back_launch,
    false};
