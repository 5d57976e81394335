/* What an op is to the graph: its mathematics, as a row of functions. The graph knows ops only
 * through this struct; a node holds a pointer to its row, there is no list of ops to switch over.
 * How an op is computed belongs to the kernels of a device, see device/kernel.h.
 *
 * To add an op: src/ops/<op>.c (formula, shape rule, gradient rule, CPU kernel, builder), one line
 * in src/ops/ops.def, one prototype in include/dra/ops.h, tests/ops/test_<op>.c. */
#ifndef DRA_SRC_OP_H
#define DRA_SRC_OP_H

#include "device/kernel.h"
#include "dra/graph.h"
#include "dra/ops.h"

typedef struct dra_type {
    dra_dtype dtype;
    dra_shape shape;
} dra_type;

typedef struct dra_op dra_op;

typedef struct dra_node {
    const dra_op    *op;
    int              n_in, n_out;
    const dra_value *in;
    dra_value       *out;
    const void      *attr; /* the op's own struct, op->attr_size bytes of plain data */
    const dra_graph *body; /* the sub-graph of a region, or NULL */
} dra_node;

typedef struct dra_cost {
    double flops, bytes;
} dra_cost;

enum {                       /* flags */
       DRA_OP_VIEW = 1,      /* the output is the memory of input 0, seen through view()         */
       DRA_OP_REGION = 2,    /* run by the executor: scan, cond, recompute                       */
       DRA_OP_NO_GRAD = 4,   /* the gradient is zero by definition (stop-gradient, sign, ..)     */
       DRA_OP_POINTWISE = 8, /* one function of elements, its attribute a dra_function_attr      */
       DRA_OP_CHEAP = 16,  /* output 0 is cheaper to compute again than to keep, rematerialise.c */
       DRA_OP_PROGRAM = 32 /* its attribute ends with a dra_pointwise_attr, whose outputs it has */
};

enum { DRA_MANY = -1 }; /* n_in, n_out: as many as the node has */

struct dra_op {
    const char *name; /* no other op has it: kernels are found by it */
    int8_t      n_in, n_out;
    uint16_t    flags;
    size_t      attr_size;

    /* Types of the outputs from the types of the inputs and the attributes. Null inputs are
     * caught before. Refuses a node by dra_op_fail(). */
    dra_status (*infer)(dra_graph *g, const dra_node *n, dra_type *out);

    /* Builds dx[i] for the inputs from dy; dy[i].id == 0 where an output has none. dx entries left
     * null get no gradient. NULL for a float op on the way to an x is an error. */
    void (*gradient)(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx);

    /* FLOPs and bytes of one call, for the profile; NULL: no FLOPs, every tensor moved once. */
    dra_cost (*cost)(const dra_call *c);

    /* For views: strides of `out` (its shape is set) and, in elements, where it starts. False
     * when the layout of `in` has no such view; a dense copy of it then serves. */
    bool (*view)(const dra_node *n, const dra_tensor *in, dra_tensor *out, int64_t *start);

    /* What the passes of fuse.c make of it, or NULL: this op with a pointwise program after it;
     * several nodes of it with one first input, whose attributes must be the same bytes: the
     * struct has no padding then. See graph/pointwise.h. */
    const dra_op *then, *several;
};

/* ---- for builders ---------------------------------------------------------------------------- */

/* Adds a node; attr is copied. Returns NULL, with the graph's error set, on any mistake. */
const dra_node *dra_node_add(dra_graph *g, const dra_op *op, int n_in, const dra_value *in,
                             const void *attr);

/* The same for an op that has as many outputs as its node asks for. */
const dra_node *dra_node_add_many(dra_graph *g, const dra_op *op, int n_in, const dra_value *in,
                                  int n_out, const void *attr);

/* The same for the common case of one output; the null value on error. */
dra_value dra_add_op(dra_graph *g, const dra_op *op, int n_in, const dra_value *in,
                     const void *attr);

/* Checks handles before a builder looks at types: true when all `n` values are of this graph. */
bool dra_check_values(dra_graph *g, const char *op, int n, const dra_value *v);

/* The type of a value of g; only for handles that were checked. */
const dra_type *dra_type_of(const dra_graph *g, dra_value v);

/* Keeps the first error: "op: text". Returns `code`. */
dra_status dra_op_fail(dra_graph *g, const dra_node *n, dra_status code, const char *format, ...)
    DRA_PRINTF(4, 5);
dra_status dra_build_fail(dra_graph *g, const char *op, dra_status code, const char *format, ...)
    DRA_PRINTF(4, 5);
bool dra_graph_failed(const dra_graph *g);

/* "f32 (4, 8)" into one of a few rotating slots of the graph, for error texts. */
const char *dra_type_text(dra_graph *g, dra_value v);

/* Refuses a node whose input `i` (called `name`) is not of `dtype`. */
dra_status dra_expect_dtype(dra_graph *g, const dra_node *n, int i, const char *name,
                            dra_dtype dtype);

/* What products built now are to compute in, see dra_set_precision(). */
dra_precision dra_graph_precision(const dra_graph *g);

/* A matrix v = w + scale b a. dra_linear() multiplies by its parts instead of making it. */
typedef struct dra_factors {
    dra_value w, a, b;
    double    scale;
} dra_factors;

void               dra_note_factors(dra_graph *g, dra_value v, const dra_factors *factors);
const dra_factors *dra_factors_of(const dra_graph *g, dra_value v); /* NULL: it has none */

/* Hash of the scopes around the node being built and `name`: the "op path" of random numbers. */
uint64_t dra_scope_hash(const dra_graph *g, const char *name);

/* ---- for ops that are regions ---------------------------------------------------------------- */

/* A sub-graph of g, with inputs of the given types. NULL on error. */
dra_graph *dra_body_create(dra_graph *g, int n_in, const dra_type *in, dra_value *in_values);
/* Declares what the body returns; checks that the values belong to it. */
bool            dra_body_return(dra_graph *g, dra_graph *body, int n, const dra_value *out);
const dra_node *dra_region_add(dra_graph *g, const dra_op *op, int n_in, const dra_value *in,
                               const void *attr, const dra_graph *body);
/* Builds the nodes of `body` again inside g, fed by `in`; out: what the body returns. */
void dra_inline(dra_graph *g, const dra_graph *body, const dra_value *in, dra_value *out);
int  dra_body_outputs(const dra_graph *body);
const dra_type *dra_body_output_type(const dra_graph *body, int i);

/* dra_gradient() that looks only at nodes added since `first` (see dra_node_count). */
void   dra_gradient_since(dra_graph *g, size_t first, int n_y, const dra_value *y,
                          const dra_value *dy, int n_x, const dra_value *x, dra_value *dx);
size_t dra_node_count(const dra_graph *g);

/* Ops the graph itself has to know by name. */
extern const dra_op dra_op_copy;      /* out = in, any strides to dense: layouts, donations      */
extern const dra_op dra_op_scan;      /* src/graph/scan.c                                        */
extern const dra_op dra_op_cond;      /* src/graph/cond.c                                        */
extern const dra_op dra_op_recompute; /* src/graph/recompute.c                                   */

typedef struct dra_scan_attr {
    int64_t length, border;
    int32_t carries, xs, constants, ys;
    bool    reverse;
} dra_scan_attr;

typedef struct dra_join_attr { /* of concat and pad */
    int32_t axis;
    int64_t before, after; /* pad */
    double  fill;
} dra_join_attr;

static inline bool dra_is_float(const dra_graph *g, dra_value v)
{
    return dra_dtype_get(dra_type_of(g, v)->dtype)->is_float;
}

#endif
