/* Norms over the last axis without gain, and their gradient; formulas in norm.c. */
#include "ops/norm/norm.cuh"

struct norm_call {
    dra_rows_view x, dy;  /* y and dy of the gradient */
    dra_view      factor; /* r of the gradient */
    void         *y;      /* floats; of norm also bf16 */
    bool          y_bf16;
    float        *r;
    int64_t       rows, n;
    dra_row_norm  kind;
    float         eps;
};

static norm_call call_of(const dra_call *c)
{
    const dra_norm_attr *k = static_cast<const dra_norm_attr *>(c->attr);
    norm_call            a = {};
    a.x = dra_rows_of(&c->in[0]);
    a.y = c->out[0].data;
    a.y_bf16 = c->out[0].dtype == DRA_BF16;
    a.n = a.x.length;
    a.rows = dra_shape_count(&c->in[0].shape) / a.n;
    a.kind = k->kind;
    a.eps = (float)k->eps;
    return a;
}

/* ---- x -> y, r (..., 1) ---------------------------------------------------------------------- */

template <typename Team, int W, int HELD> __global__ static void norm_kernel(const norm_call a)
{
    DRA_EACH_ROW(Team, r, a.rows)
    {
        dra_team_row<Team, W, HELD> row;
        row.open(dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, r), a.n);
        const dra_norm_moments m = dra_norm_row(row, a.kind, a.eps);
        if (a.r && Team::rank() == 0) a.r[r] = m.r;
        if (!a.y) continue;
        row.each([&](int64_t i, const float *v) {
            float y[W];
            DRA_UNROLL
            for (int j = 0; j < W; j++) y[j] = (v[j] - m.c - m.rest) * m.r;
            dra_store_real<W>(a.y, a.y_bf16, r * a.n + i, y);
        });
    }
}

static void norm_launch(const dra_call *c)
{
    norm_call  a = call_of(c);
    const bool by_four = dra_rows_by_four(&c->in[0]) && (!a.y || dra_rows_by_four(&c->out[0]));
    a.r = static_cast<float *>(c->out[1].data);
    DRA_LAUNCH_ROWS(c, norm_kernel, a.rows, a.n, by_four, a);
}

const dra_cuda_kernel dra_cuda_norm = {{"norm", DRA_REALS, DRA_LAYOUT_ROWS, 1, false, nullptr,
                                        nullptr, nullptr, dra_narrows_first, false},
                                       norm_launch,
                                       false};

/* ---- (y, r, dy) -> dx = r (dy - [layer: mean(dy)] - y k sum(dy y)) --------------------------- */

template <typename Team, int W, int HELD> __global__ static void back_kernel(const norm_call a)
{
    const bool  layer = a.kind == DRA_ROW_NORM_LAYER;
    const float k = layer || a.kind == DRA_ROW_NORM_RMS ? 1 / (float)a.n : 1;
    const float clamp = a.kind == DRA_ROW_NORM_UNIT_CLAMPED ? 1 / a.eps : INFINITY;
    DRA_EACH_ROW(Team, row, a.rows)
    {
        const float r = dra_data<const float>(a.factor)[dra_offset(a.factor, row)];
        float       sum = 0, with_y = 0;

        dra_team_row<Team, W, HELD> y, dy;
        y.open(dra_data<const float>(a.x.rows) + dra_offset(a.x.rows, row), a.n);
        dy.open(dra_data<const float>(a.dy.rows) + dra_offset(a.dy.rows, row), a.n);
        y.each_with(dy, [&](int64_t, const float *v, const float *u) {
            for (int j = 0; j < W; j++) sum += u[j], with_y += u[j] * v[j];
        });
        const float mean = layer ? dra_team_sum<Team>(sum) / (float)a.n : 0;
        with_y = dra_team_sum<Team>(with_y);
        const float slope = r == clamp ? 0 : k * with_y;
        y.each_with(dy, [&](int64_t i, const float *v, const float *u) {
            float dx[W];
            DRA_UNROLL
            for (int j = 0; j < W; j++) dx[j] = r * (u[j] - mean - slope * v[j]);
            dra_store_real<W>(a.y, a.y_bf16, row * a.n + i, dx);
        });
    }
}

static void back_launch(const dra_call *c)
{
    norm_call  a = call_of(c);
    const bool by_four = dra_rows_by_four(&c->in[0]) && dra_rows_by_four(&c->in[2]) &&
                         dra_rows_by_four(&c->out[0]);
    a.factor = dra_view_of(&c->in[1]);
    a.dy = dra_rows_of(&c->in[2]);
    DRA_LAUNCH_ROWS(c, back_kernel, a.rows, a.n, by_four, a);
}

const dra_cuda_kernel dra_cuda_norm_back = {{"norm_back", DRA_REALS, DRA_LAYOUT_ROWS, 1 | 4, false,
                                             nullptr, nullptr, nullptr, dra_narrows_first, false},
                                            back_launch,
                                            false};
