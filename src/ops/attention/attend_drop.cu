/* attend_factors: the factors of dropout, 0 or 1/(1-p), as a tensor (B, H, T, J), for attention
 * that holds its scores; see attend_drop.c. */
#include "ops/attention/attend.cuh"

enum { RUN = 4 }; /* keys of a thread: one draw, where positions count up */

__global__ static void factors_kernel(const dra_attend_call a, int64_t runs, float *y)
{
    DRA_EACH(i, a.B * (int64_t)a.H * a.T * runs)
    {
        const int64_t   row = i / runs;
        const int       j0 = (int)(i % runs) * RUN, b = (int)(row / a.T / a.H);
        dra_attend_dice dice = {};
        dice.open(a, b);
        dice.query((int)(row / a.T % a.H), dra_attend_q_pos(a, b, (int)(row % a.T)));
        for (int j = j0; j < j0 + RUN && j < a.J; j++)
            y[row * a.J + j] = dice.factor(a, dra_attend_k_pos(a, b, j));
    }
}

static void launch(const dra_call *c)
{
    const dra_attend_attr *k = static_cast<const dra_attend_attr *>(c->attr);
    const int64_t          runs = dra_div_up(k->J, RUN);
    dra_attend_call        a = {};
    dra_attend_set_options(c, k, &a);
    a.B = (int)k->B, a.H = (int)k->H, a.T = (int)k->T, a.J = (int)k->J;
    DRA_LAUNCH(c, factors_kernel, dra_grid(c, k->B * k->H * k->T * runs, DRA_THREADS), DRA_THREADS,
               0, a, runs, static_cast<float *>(c->out[0].data));
}

const dra_cuda_kernel dra_cuda_attend_factors = {
    {"attend_factors", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_ANY, 0, false, nullptr, nullptr},
    launch,
    false};
