/* What the tests of ops on two broadcast inputs share: oracles see through the broadcast, and one
 * list of pairs of shapes is run for every op. */
#ifndef DRA_TESTS_OPS_POINTWISE_POINTWISE_H
#define DRA_TESTS_OPS_POINTWISE_POINTWISE_H

#include "check.h"

#ifdef DRA_REAL_DOUBLE
#define REAL "f64" /* as error texts name it */
#else
#define REAL "f32"
#endif

/* The element of `t` that element `i` of `out` sees. */
static inline double broadcast_at(const check_tensor *t, const check_tensor *out, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int32_t a = out->shape.rank - 1; a >= 0; a--) {
        const int64_t index = i % out->shape.dim[a];
        const int32_t own = a - (out->shape.rank - t->shape.rank);
        i /= out->shape.dim[a];
        if (own < 0) continue;
        if (t->shape.dim[own] != 1) at += index * step;
        step *= t->shape.dim[own];
    }
    return t->at[at];
}

typedef struct shape_pair {
    const char *name;
    dra_shape   a, b;
} shape_pair;

static const shape_pair pairs[] = {
    {"same shape", {3, {2, 3, 17}}, {3, {2, 3, 17}}},
    {"a row against rows", {3, {2, 3, 17}}, {1, {17}}},
    {"rows against a row", {1, {5}}, {2, {4, 5}}},
    {"a middle axis", {3, {2, 1, 5}}, {3, {2, 3, 5}}},
    {"both ways", {2, {3, 1}}, {2, {1, 5}}},
    {"a column", {2, {4, 7}}, {2, {4, 1}}},
    {"a scalar", {2, {3, 5}}, {0}},
    {"a scalar first", {0}, {1, {9}}},
    {"two scalars", {0}, {0}},
    {"one element", {1, {1}}, {1, {7}}},
    {"one element and a scalar", {1, {1}}, {0}},
    {"rank 6", {6, {2, 1, 2, 1, 3, 2}}, {6, {1, 2, 2, 2, 1, 2}}},
    {"rank 6 and 2", {6, {1, 2, 1, 2, 3, 2}}, {2, {3, 1}}},
    {"nothing", {2, {0, 8}}, {2, {0, 8}}},
    {"nothing and a row", {2, {0, 8}}, {1, {8}}},
    {"one row becomes none", {2, {1, 8}}, {2, {0, 8}}},
    {"nothing and one", {1, {0}}, {1, {1}}},
    {"several tiles", {2, {130, 257}}, {1, {257}}},
    {"several tiles, columns", {2, {257, 130}}, {2, {257, 1}}},
};

#endif
