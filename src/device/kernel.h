/* What a kernel of any device is to planning, and what it is handed. A kernel belongs to one device
 * and computes one op, which it names: so a table loaded at run time can bring kernels. */
#ifndef DRA_SRC_KERNEL_H
#define DRA_SRC_KERNEL_H

#include <stdatomic.h>

#include "base/error.h"
#include "base/shape.h"

typedef struct dra_tensor {
    void     *data;
    dra_dtype dtype;
    dra_shape shape;
    int64_t   stride[DRA_MAX_RANK]; /* in elements; 0 where broadcast */
} dra_tensor;

typedef struct dra_fault { /* what went wrong at run time: the text of the lowest tile */
    atomic_flag lock;
    atomic_bool set;
    int64_t     tile;
    dra_status  code;
    const char *op; /* filled in by the executor */
    char        text[256];
} dra_fault;

typedef struct dra_call {
    const void       *attr; /* the op's own struct */
    const dra_tensor *in;
    const dra_tensor *out; /* dense; data is NULL for an output of several that nobody reads */
    int               n_in, n_out;
    int64_t           stage; /* which stage of the kernel runs now */
    void             *scratch;
    const void       *context; /* what the device hands its own kernels, while they run */
    dra_fault        *fault;
} dra_call;

typedef enum dra_layout { /* what strides of its inputs a kernel takes */
                          DRA_LAYOUT_ANY,
                          DRA_LAYOUT_ROWS, /* last axis contiguous */
                          DRA_LAYOUT_DENSE
} dra_layout;

/* A device extends this by how it runs the kernel; the CPU: see device/cpu_kernel.h. */
typedef struct dra_kernel {
    const char *op;     /* the name of the op it computes */
    uint32_t    dtypes; /* bits of the dtypes it takes, see DRA_BIT */
    dra_layout  layout;
    uint32_t    in_place; /* bits of the inputs whose memory output 0 may take over, if it is
                             dense, as large, and read for the last time by this call */
    bool        paired;   /* instead: output i may take over the memory of input i */
    size_t (*scratch)(const dra_call *c); /* bytes shared by all parts of a call; NULL: none. Looks
                                             at shapes and attributes alone */
} dra_kernel;

#define DRA_BIT(dtype) (1u << (dtype))
enum {
    DRA_REALS = 1u << DRA_REAL,
    DRA_ANY_DTYPE = (1u << DRA_DTYPE_COUNT) - 1,
};

/* Reports from inside a tile: e.g. an index outside its range. The run stops after this call. */
void dra_fault_set(const dra_call *c, int64_t tile, dra_status code, const char *format, ...)
    DRA_PRINTF(4, 5);

/* Rows: all axes but the last. */
int64_t dra_rows(const dra_tensor *t);

static inline int64_t dra_last(const dra_tensor *t)
{
    return t->shape.rank ? t->shape.dim[t->shape.rank - 1] : 1;
}

/* Element offset of row r, in row-major order of the leading axes. */
int64_t dra_row_offset(const dra_tensor *t, int64_t r);

static inline dra_real *dra_row(const dra_tensor *t, int64_t r)
{
    return (dra_real *)t->data + dra_row_offset(t, r);
}

/* Bytes really there of a tensor, where broadcast axes count once, and of all tensors of a call. */
double dra_tensor_bytes(const dra_tensor *t);
double dra_call_bytes(const dra_call *c);

bool dra_tensor_is_dense(const dra_tensor *t);
bool dra_tensor_has_rows(const dra_tensor *t); /* last axis contiguous (or of size <= 1) */
void dra_tensor_make_dense(dra_tensor *t);     /* sets row-major strides */

#endif
