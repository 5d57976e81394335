/* The gates of recurrent cells: one unit of one row for one token. Formulas are in gru.c and
 * lstm.c.
 *   step()   from x and u = w h + b of each gate, the old state h and what is mixed in: the new
 *            state; c goes from the old one to the new one
 *   back()   from `all` that came to the new state: what goes on to the old one besides w^T du; dc
 *            goes from the new c to the old one */
#ifndef DRA_SRC_OPS_RECURRENT_CELL_GATES_CUH
#define DRA_SRC_OPS_RECURRENT_CELL_GATES_CUH

#include "device/cuda/rows.cuh"

__device__ static inline float dra_gate(float x) { return 1 / (1 + expf(-x)); }

struct dra_cell_grads {
    float dx[4], du[4], swing;
};

struct dra_gru_gates {
    enum { GATES = 3, KEPT = 4, STATES = 1 };

    static __device__ float step(const float *x, const float *u, float mix, float h, float *,
                                 float *kept)
    {
        const float r = dra_gate(x[0] + u[0]), fresh = dra_gate(-(x[1] + u[1])); /* 1 - z */
        const float m = u[2], n = tanhf(fmaf(r, m, x[2]));
        kept[0] = r, kept[1] = fresh, kept[2] = n, kept[3] = m;
        return fmaf(mix * fresh, n - h, h);
    }

    static __device__ float back(const float *kept, float mix, float h, float all, float *,
                                 dra_cell_grads &g)
    {
        const float r = kept[0], fresh = kept[1], n = kept[2], m = kept[3];
        const float e = mix * fresh * all, q = e * (h - n);
        const float a_n = e * fmaf(-n, n, 1), b_n = r * a_n;
        g.dx[0] = g.du[0] = m * (1 - r) * b_n;
        g.dx[1] = g.du[1] = q * (1 - fresh);
        g.dx[2] = a_n, g.du[2] = b_n;
        g.swing = q;
        return all - e;
    }

    /* (1-z) (n-h), which the number of a slot mixes in */
    static __device__ float change(const float *kept, float h) { return kept[1] * (kept[2] - h); }
};

struct dra_lstm_gates {
    enum { GATES = 4, KEPT = 6, STATES = 2 };

    static __device__ float step(const float *x, const float *u, float mix, float h, float *c,
                                 float *kept)
    {
        const float i = dra_gate(x[0] + u[0]), f = dra_gate(x[1] + u[1]);
        const float n = tanhf(x[2] + u[2]), o = dra_gate(x[3] + u[3]);
        const float fresh = fmaf(f, *c, i * n), tanh_c = tanhf(fresh);
        kept[0] = i, kept[1] = f, kept[2] = n, kept[3] = o, kept[4] = tanh_c, kept[5] = *c;
        *c = fresh;
        return fmaf(mix, o * tanh_c - h, h);
    }

    static __device__ float back(const float *kept, float mix, float h, float all, float *dc,
                                 dra_cell_grads &g)
    {
        const float i = kept[0], f = kept[1], n = kept[2], o = kept[3], tanh_c = kept[4];
        const float e = mix * all, p = fmaf(e * o, fmaf(-tanh_c, tanh_c, 1), *dc);
        g.du[0] = p * n * i * (1 - i);
        g.du[1] = p * kept[5] * f * (1 - f);
        g.du[2] = p * i * fmaf(-n, n, 1);
        g.du[3] = e * tanh_c * o * (1 - o);
        DRA_UNROLL
        for (int k = 0; k < GATES; k++) g.dx[k] = g.du[k];
        g.swing = e * (h - o * tanh_c);
        *dc = p * f;
        return all - e;
    }

    static __device__ float change(const float *, float) { return 0; } /* it has no slots */
};

#endif
