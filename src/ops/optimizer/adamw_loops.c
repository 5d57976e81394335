/* A step of AdamW over some elements, see adamw.c. */
#include "ops/optimizer/adamw_loops.h"

#include "device/simd_level.h"

#ifndef LEVEL_REF

static void adamw_step(int64_t n, const dra_adamw_step *terms, const float *dp, const float *p,
                       const float *m, const float *v, float *p_out, float *m_out, float *v_out)
{
    const dra_adamw_step f = *terms; /* a copy that no store can change */
    const vf             zero = vset(0);
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t left = n - i;
        const vf      d = vset(f.s) * load_some(dp + i, left, zero);
        const vf      old = load_some(p + i, left, zero);
        const vf      m_new = vfma(vset(f.b1), load_some(m + i, left, zero),
                                   vfma(vset(f.new1), d, zero));
        const vf      v_new = vfma(vset(f.b2), load_some(v + i, left, zero),
                                   vfma(vset(f.new2) * d, d, zero));
        const vf      root = vsqrt(v_new * vset(f.fix2));
        const vf      way = m_new * vset(f.fix1) / (root + vset(f.eps));
        const vf      p_new = vfma(vset(-f.rate), vfma(vset(f.decay), old, way), old);
        if (p_out) store_some(p_out + i, left, p_new);
        if (m_out) store_some(m_out + i, left, m_new);
        if (v_out) store_some(v_out + i, left, v_new);
    }
}

#else

static void adamw_step(int64_t n, const dra_adamw_step *f, const dra_real *dp, const dra_real *p,
                       const dra_real *m, const dra_real *v, dra_real *p_out, dra_real *m_out,
                       dra_real *v_out)
{
    for (int64_t i = 0; i < n; i++) {
        const dra_real d = f->s * dp[i];
        const dra_real m_new = f->b1 * m[i] + f->new1 * d;
        const dra_real v_new = f->b2 * v[i] + f->new2 * d * d;
        const dra_real root = sqrt(v_new * f->fix2);
        const dra_real way = m_new * f->fix1 / (root + f->eps);
        const dra_real p_new = p[i] - f->rate * (f->decay * p[i] + way);
        if (p_out) p_out[i] = p_new;
        if (m_out) m_out[i] = m_new;
        if (v_out) v_out[i] = v_new;
    }
}

#endif

const dra_adamw_loops LEVEL_NAMED(dra_adamw_loops) = {.step = adamw_step};
