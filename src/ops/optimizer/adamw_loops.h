/* A step of AdamW over some elements, see adamw.c. */
#ifndef DRA_SRC_OPS_OPTIMIZER_ADAMW_LOOPS_H
#define DRA_SRC_OPS_OPTIMIZER_ADAMW_LOOPS_H

#include "device/simd.h"
#include "ops/attrs.h"

typedef struct dra_adamw_step {
    dra_real b1, new1, b2, new2, fix1, fix2, rate, s, eps, decay;
} dra_adamw_step;

typedef struct dra_adamw_loops {
    /* p, m, v become p', m', v'; an output may be NULL or the memory of its input. */
    void (*step)(int64_t n, const dra_adamw_step *f, const dra_real *dp, const dra_real *p,
                 const dra_real *m, const dra_real *v, dra_real *p_out, dra_real *m_out,
                 dra_real *v_out);
} dra_adamw_loops;

extern const dra_adamw_loops DRA_LEVELS(dra_adamw_loops);

/* Those of the level of these micro-kernels. */
const dra_adamw_loops *dra_adamw_loops_of(const dra_simd *simd);

#endif
