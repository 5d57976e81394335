/* What op files share: the real type, pointwise walks over strided tensors, small checks. */
#ifndef DRA_SRC_OPS_COMMON_H
#define DRA_SRC_OPS_COMMON_H

#include "device/cpu_kernel.h"
#include "graph/op.h"
#include "ops/attrs.h"

typedef dra_real real;

/* ---- pointwise: any number of tensors of one shape, output 0 dense --------------------------- */

enum { DRA_POINTWISE_MAX = 8 };
enum { DRA_POINTWISE_TILE = 16384 }; /* elements: fixed by shape, never by threads */

/* n elements of each tensor: ptr[k] moves by step[k] elements. Outputs come first, then inputs. */
typedef void (*dra_pointwise_row)(const dra_call *c, int64_t n, void *const *ptr,
                                  const int64_t *step);

int64_t  dra_pointwise_tiles(const dra_call *c);
void     dra_pointwise_tile(const dra_call *c, int64_t i, dra_pointwise_row row);
dra_cost dra_pointwise_cost(const dra_call *c); /* one FLOP an element, every tensor moved once */

/* The row of a copy, any dtype. */
void dra_copy_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step);

/* ---- checks for shape rules ------------------------------------------------------------------ */

/* Turns a negative axis into 0..rank-1; -1 when it is outside (the caller reports). */
int dra_axis_of(int axis, int32_t rank);

/* All inputs real and of one shape; out[0] of the same type. */
dra_status dra_infer_same(dra_graph *g, const dra_node *n, dra_type *out);

/* Factors of products: real, or stored in bf16 or f16. Refuses a value called `name` of another
 * dtype. */
enum { DRA_FACTORS = DRA_REALS | DRA_BIT(DRA_BF16) | DRA_BIT(DRA_F16) };
dra_status dra_expect_factor(dra_graph *g, const char *op, const char *name, dra_value v);
/* The second operand may be quantised, too. */
enum { DRA_WEIGHTS = DRA_FACTORS | DRA_QUANTISED };
dra_status dra_expect_weight(dra_graph *g, const char *op, const char *name, dra_value v);

/* Broadcasts two shapes against each other; false when they do not fit. */
bool dra_broadcast_shapes(const dra_shape *a, const dra_shape *b, dra_shape *out);

/* Broadcasts two values against each other, in place; false, with the error set, if they differ. */
bool dra_broadcast_pair(dra_graph *g, const char *op, dra_value *pair);

/* Zeros (real) of a shape: a view, no memory. */
dra_value dra_zeros(dra_graph *g, dra_shape shape);

/* Sums dy over the axes along which `x` (any value with x's shape rank <= dy's) was broadcast. */
dra_value dra_unbroadcast(dra_graph *g, dra_value dy, dra_shape shape);

/* The sum of all x^2, a scalar. No gradient. */
dra_value dra_sum_squares(dra_graph *g, dra_value x);

/* The address of element number `offset` of some memory. */
const void *dra_element(const void *data, dra_dtype dtype, int64_t offset);

/* Index of a tensor's element: offset of row-major number i. */
int64_t dra_offset_of(const dra_tensor *t, int64_t i);

/* *p = x in dtype t, by the rules of dra_cast(). */
void dra_store_number(dra_dtype t, void *p, double x);

#endif
