/* Pointwise functions and programs on the CPU. */
#ifndef DRA_SRC_OPS_POINTWISE_POINTWISE_H
#define DRA_SRC_OPS_POINTWISE_POINTWISE_H

#include "graph/pointwise.h"
#include "ops/common.h"

/* ---- functions.c: formulas ------------------------------------------------------------------- */

/* y = f(x[0], ..) for rows of n, all of them dense; y may be any operand. A result depends on its
 * elements alone, not on their place in the row. */
void dra_function_run(const dra_simd *simd, const dra_pointwise_step *s, int64_t n,
                      const void *const *x, void *y);
bool dra_function_takes_i32(dra_function f);

/* ---- pointwise.c: programs over strided tensors ---------------------------------------------- */

typedef struct dra_strip_input { /* read where it is, or gathered into a strip */
    const unsigned char *data;
    int64_t              size; /* bytes of an element */
    int                  rank; /* axes merged where they run on, the last one first; 0: dense */
    int64_t              dim[DRA_MAX_RANK], stride[DRA_MAX_RANK];
} dra_strip_input;

typedef struct dra_strips { /* a program with its tensors, all of one number of elements */
    const dra_simd           *simd;
    const dra_pointwise_step *step;
    const dra_tensor         *out; /* dense */
    int                       inputs, steps;
    int64_t                   most; /* elements of a strip */
    dra_strip_input           in[DRA_POINTWISE_INPUTS];
} dra_strips;

void dra_strips_open(dra_strips *s, const dra_simd *simd, int steps, const dra_pointwise_step *step,
                     const dra_tensor *out);
void dra_strips_input(dra_strips *s, const dra_tensor *x); /* the next one */
/* Elements from..end-1 in row-major order, strip by strip. */
void dra_strips_run(const dra_strips *s, int64_t from, int64_t end);

/* The kernel of an op that is one function, with dra_pointwise_tiles(). */
void dra_function_tile(const dra_call *c, int64_t i);

#endif
