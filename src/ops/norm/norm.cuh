/* What norm.cu and norm_gain.cu share: the moments of a row, as in norm.c. */
#ifndef DRA_SRC_OPS_NORM_NORM_CUH
#define DRA_SRC_OPS_NORM_NORM_CUH

#include "device/cuda/stored.cuh"

struct dra_norm_moments { /* of a row: its mean is c + rest, y = (x - c - rest) r */
    float c, rest, r;
};

__device__ static inline float dra_norm_factor(dra_row_norm kind, float eps, int64_t n,
                                               float squares)
{
    if (kind == DRA_ROW_NORM_LAYER || kind == DRA_ROW_NORM_RMS)
        return 1 / sqrtf(squares / (float)n + eps);
    if (kind == DRA_ROW_NORM_UNIT) return 1 / sqrtf(squares + eps);
    const float length = sqrtf(squares);
    return 1 / (length <= eps ? eps : length); /* NaN stays */
}

/* c is the rounded mean; the mean of x - c is what rounding lost, which matters where the mean is
 * large compared with the differences from it. */
template <typename Team, int W, int HELD>
__device__ static inline dra_norm_moments dra_norm_row(dra_team_row<Team, W, HELD> &row,
                                                       dra_row_norm kind, float eps)
{
    dra_norm_moments m = {0, 0, 0};
    float            sum = 0, squares = 0;
    if (kind == DRA_ROW_NORM_LAYER) {
        row.each([&](int64_t, const float *v) {
            for (int j = 0; j < W; j++) sum += v[j];
        });
        m.c = dra_team_sum<Team>(sum) / (float)row.n;
    }
    sum = 0;
    row.each([&](int64_t, const float *v) {
        for (int j = 0; j < W; j++) sum += v[j] - m.c, squares += (v[j] - m.c) * (v[j] - m.c);
    });
    squares = dra_team_sum<Team>(squares);
    if (kind == DRA_ROW_NORM_LAYER) {
        sum = dra_team_sum<Team>(sum);
        m.rest = sum / (float)row.n;
        squares -= sum * m.rest;
        if (squares < 0) squares = 0; /* by rounding, in a constant row */
    }
    m.r = dra_norm_factor(kind, eps, row.n, squares);
    return m;
}

#endif
