/* dra/graph.h - describe a computation once, get its gradients, run it many times.
 *
 * Flow:    builders (dra/ops.h) add nodes to a graph; dra_gradient() adds the nodes of its
 *          gradients; dra_compile() plans memory for one device; dra_buffers holds one running
 *          instance; dra_run() computes.
 * Errors:  a graph keeps its first error; from then on builders return the null value and do
 *          nothing, so a model reads like its formula and dra_compile() checks once.
 * Threads: one thread builds a graph. A compiled program is read-only: many threads may run it,
 *          each with its own dra_buffers. */
#ifndef DRA_GRAPH_H
#define DRA_GRAPH_H

#include "dra/base.h"
#include "dra/device.h"
DRA_BEGIN_C

typedef struct dra_graph   dra_graph;   /* opaque: owns its nodes in one arena            */
typedef struct dra_program dra_program; /* opaque: a compiled graph, independent of it    */
typedef struct dra_buffers dra_buffers; /* opaque: one running instance of a program      */

typedef struct dra_value { /* names one tensor of one graph; 0 = none */
    uint32_t id;
} dra_value;

/* ---- building -------------------------------------------------------------------------------- */

DRA_API dra_status dra_graph_create(dra_graph **out, dra_error *err);
DRA_API void       dra_graph_destroy(dra_graph *g); /* NULL is allowed */

/* The first error of a graph; code DRA_OK when there is none. Lives as long as the graph. */
DRA_API const dra_error *dra_graph_error(const dra_graph *g);

/* Values that come in at run time, bound to memory of the device. Names are unique in a graph.
 *   input: new with every run      parameter: changes rarely, what depends on parameters alone
 *   state: comes in and goes out,  is computed once per change (see dra_touch)
 *   owned by the caller */
DRA_API dra_value dra_input(dra_graph *g, const char *name, dra_dtype dtype, dra_shape shape);
DRA_API dra_value dra_parameter(dra_graph *g, const char *name, dra_dtype dtype, dra_shape shape);
DRA_API dra_value dra_state(dra_graph *g, const char *name, dra_dtype dtype, dra_shape shape);

/* Outputs, read by name after a run. One value may have several names. */
DRA_API void dra_output(dra_graph *g, const char *name, dra_value v);

/* An output that takes over the buffer of `state` (a state or parameter of the same type): after a
 * run the caller's memory holds the new value. All nodes that read the old value must come before
 * the node that computes the new one; otherwise the graph is refused, and the error names the
 * reader. */
DRA_API void dra_donate(dra_graph *g, const char *name, dra_value v, dra_value state);

/* The input, parameter, state or output with this name; null: there is none. So the code that
 * builds a graph and the code that differentiates it can be separate. */
DRA_API dra_value dra_find_input(const dra_graph *g, const char *name);
DRA_API dra_value dra_find_output(const dra_graph *g, const char *name);

DRA_API dra_dtype dra_dtype_of(const dra_graph *g, dra_value v);
DRA_API dra_shape dra_shape_of(const dra_graph *g, dra_value v);

/* Names the part of the model being built. The path of scopes keys random numbers, so that they
 * depend on the place in the model, never on the number of a node. */
DRA_API void dra_scope_push(dra_graph *g, const char *name);
DRA_API void dra_scope_pop(dra_graph *g);

typedef enum dra_precision {
    DRA_PRECISION_FULL,
    DRA_PRECISION_BF16,
    DRA_PRECISION_TF32, /* f32 rounded to 10 bits of fraction, on GPUs; elsewhere full */
    DRA_PRECISION_Q8    /* full, but a factor whose other one is stored in blocks of 32 quantised
                         * numbers is rounded to such blocks of 8 bits; on CPUs, elsewhere full */
} dra_precision;

/* Products (dra_matmul, dra_linear, dra_linear_cross_entropy) built from here on, and their
 * gradients, round both operands to bf16 (to nearest even), or to tf32 where the device multiplies
 * those faster, and sum in f32; so may those inside dra_attend. Values stay real: parameters are
 * the full-precision master weights. Bodies of regions start with the precision of the graph around
 * them. A new graph has DRA_PRECISION_FULL. */
DRA_API void dra_set_precision(dra_graph *g, dra_precision precision);

/* ---- regions: sub-graphs with declared inputs and outputs ------------------------------------ */

/* A body sees only the values it is handed; values of the outer graph are refused inside. */

/* One step of a scan: new carries and per-step outputs from carries, the step's x and constants. */
typedef void (*dra_scan_body)(dra_graph *step, void *user, const dra_value *carry,
                              const dra_value *x, const dra_value *constant, dra_value *carry_out,
                              dra_value *y);

typedef struct dra_scan_config {
    int64_t          length; /* T: how many steps                                        */
    int              carries, xs, constants, ys;
    const dra_value *carry;    /* start values; a step must return the same types          */
    const dra_value *x;        /* each (T, ...): step t sees x[t]                          */
    const dra_value *constant; /* seen whole by every step                                 */
    bool             reverse;  /* run t = T-1 .. 0                                         */
    int64_t          border;   /* carries are kept every `border` steps; 0: about sqrt(T)  */
    dra_scan_body    body;
    void            *user;
} dra_scan_config;

/* Runs `body` T times. carry_out: the last carries. y: each (T, ...), in the order of x.
 * Gradient: a reverse scan that starts from the carries kept at borders and recomputes inside. */
DRA_API void dra_scan(dra_graph *g, const dra_scan_config *config, dra_value *carry_out,
                      dra_value *y);

typedef void (*dra_region_body)(dra_graph *body, void *user, const dra_value *in, dra_value *out);

/* out = body(in), with nothing inside kept for the gradient: it is computed again there. */
DRA_API void dra_recompute(dra_graph *g, dra_region_body body, void *user, int n_in,
                           const dra_value *in, int n_out, dra_value *out);

/* out = flag != 0 ? body(in) : otherwise. flag: an i32 scalar read at run time; otherwise: n_out
 * values of the types body returns. The body costs nothing when it does not run. */
DRA_API void dra_cond(dra_graph *g, dra_value flag, dra_region_body body, void *user, int n_in,
                      const dra_value *in, int n_out, const dra_value *otherwise, dra_value *out);

/* ---- gradients ------------------------------------------------------------------------------- */

/* Adds the nodes of dx[i] = sum_j dy[j] . d y[j] / d x[i]. `dy` may be NULL, and so may single
 * entries: then y[j] must hold one element and its upstream is 1. An x that no y depends on
 * gets zeros. x may be any float values: inputs, parameters, states or inner values. Gradients
 * are real whatever the dtype of x. */
DRA_API void dra_gradient(dra_graph *g, int n_y, const dra_value *y, const dra_value *dy, int n_x,
                          const dra_value *x, dra_value *dx);

/* ---- looking at a graph ---------------------------------------------------------------------- */

/* Checks every node again: types, order, names, donations, regions. dra_compile() does it too. */
DRA_API dra_status dra_graph_verify(const dra_graph *g, dra_error *err);

/* Write the graph as text, one line a node, or for Graphviz. As snprintf: returns the length
 * needed, writes at most `size` bytes with the terminator. */
DRA_API size_t dra_graph_text(const dra_graph *g, char *text, size_t size);
DRA_API size_t dra_graph_dot(const dra_graph *g, char *text, size_t size);

/* ---- compiling and running ------------------------------------------------------------------- */

/* Plans the outputs of `g` for `device` (borrowed until dra_program_destroy). The graph may be
 * destroyed afterwards. A graph with an error, without outputs, or with an op without a kernel on
 * the device is refused here. */
DRA_API dra_status dra_compile(const dra_graph *g, dra_device *device, dra_program **out,
                               dra_error *err);
DRA_API void       dra_program_destroy(dra_program *p); /* NULL is allowed */

typedef struct dra_memory_report {
    size_t activations;  /* the planned block: all that lives only during a run  */
    size_t prepared;     /* values that depend on parameters alone               */
    size_t without_plan; /* activations if every value had memory of its own     */
    size_t bound;        /* inputs, parameters and states, owned by the caller    */
    size_t steps;        /* kernel calls and regions in the step program          */
    size_t prepare_steps;
} dra_memory_report;

DRA_API dra_memory_report dra_program_memory(const dra_program *p);

/* The report as text, a few lines. As snprintf. */
DRA_API size_t dra_program_text(const dra_program *p, char *text, size_t size);

/* One instance: the planned blocks and the bindings. The program must outlive it. */
DRA_API dra_status dra_buffers_create(const dra_program *p, dra_buffers **out, dra_error *err);
DRA_API void       dra_buffers_destroy(dra_buffers *b); /* NULL is allowed */

/* Binds an input, parameter or state to memory of the program's device, which stays there until
 * something else is bound. The span must have exactly the bytes of the value. Binding counts as a
 * change. An input that the outputs do not depend on may be bound; it is ignored. Memory that a
 * donated output is written to belongs to one input: the order of a step's writes is not fixed. */
DRA_API dra_status dra_bind(dra_buffers *b, const char *name, dra_span memory, dra_error *err);
/* The same by number, for frequent bindings; -1: there is no such name. */
DRA_API int        dra_slot_find(const dra_program *p, const char *name);
DRA_API dra_status dra_bind_slot(dra_buffers *b, int slot, dra_span memory, dra_error *err);

/* Copies host data into memory of the buffers' own, bound to an input, parameter or state. */
DRA_API dra_status dra_put(dra_buffers *b, const char *name, const void *data, size_t bytes,
                           dra_error *err);

/* Notes that the caller changed parameter `name` (NULL: all) in place: the next run computes again
 * what depends on parameters alone. Parameters a program updates itself by donation are touched by
 * dra_run(). */
DRA_API dra_status dra_touch(dra_buffers *b, const char *name, dra_error *err);

/* Computes all outputs. Allocates nothing. After an error outputs and donated states are
 * undefined. */
DRA_API dra_status dra_run(dra_buffers *b, dra_error *err);
/* The same in two: start hands the work to the device; finish waits for it and reports faults, such
 * as a wrong index. Between them other programs may be started. */
DRA_API dra_status dra_run_start(dra_buffers *b, dra_error *err);
DRA_API dra_status dra_run_finish(dra_buffers *b, dra_error *err);

/* A run in two parts, for gradients whose upstream is not known yet: the first computes `n` outputs
 * by name, which can be read then, and returns; the rest computes the others from what it has left
 * in the buffers. Inputs that the first part does not read may be bound in between. Each part waits
 * for its end. Refused by devices that run a program as a whole; and where an instruction that the
 * first part needs was fused with one that reads a later input, that input is missing. */
DRA_API dra_status dra_run_until(dra_buffers *b, size_t n, const char *const *outputs,
                                 dra_error *err);
DRA_API dra_status dra_run_rest(dra_buffers *b, dra_error *err);

/* The memory of an output, valid until the next run; the null span for an unknown name. */
DRA_API dra_span dra_result(const dra_buffers *b, const char *name);
DRA_API int      dra_result_find(const dra_program *p, const char *name); /* -1: none */
/* Copies an output, or what is bound to an input, parameter or state, to the host. */
DRA_API dra_status dra_get(const dra_buffers *b, const char *name, void *data, size_t bytes,
                           dra_error *err);
DRA_API dra_status dra_result_type(const dra_program *p, const char *name, dra_dtype *dtype,
                                   dra_shape *shape, dra_error *err);

/* How many times the prepare block, which depends on parameters alone, has run. */
DRA_API int64_t dra_prepare_runs(const dra_buffers *b);

typedef struct dra_profile_row {
    const char *op;
    int64_t     calls;
    double      seconds;
    double      flops, bytes; /* by the ops' own formulas */
} dra_profile_row;

/* Starts (and clears) or stops timing of every kernel call. */
DRA_API void dra_profile_enable(dra_buffers *b, bool on);
/* One row an op, most time first; returns how many there are, writes at most `size`. */
DRA_API size_t dra_profile_read(const dra_buffers *b, dra_profile_row *rows, size_t size);

DRA_END_C
#endif
