/* What a kernel is and what it is handed. A kernel belongs to one device and one op; it gets a
 * tile number, never a thread number, and every output element has one writer, so results do not
 * depend on the number of threads. */
#ifndef DRA_SRC_KERNEL_H
#define DRA_SRC_KERNEL_H

#include <stdatomic.h>

#include "base/error.h"
#include "base/shape.h"
#include "device/simd.h"

struct dra_op; /* src/graph/op.h; a device only compares the pointer */

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
    const dra_simd   *simd;
    dra_fault        *fault;
} dra_call;

/* A kernel runs stages() stages one after the other (NULL: one); the tiles of one stage run in
 * any order and at the same time. tiles() is asked anew for each stage. */
typedef struct dra_kernel {
    const struct dra_op *op;
    uint32_t             dtypes; /* bits of the dtypes it takes, see DRA_BIT */
    int64_t (*tiles)(const dra_call *c);
    void (*tile)(const dra_call *c, int64_t i);
    int64_t (*stages)(const dra_call *c);
    size_t (*scratch)(const dra_call *c); /* bytes shared by all tiles of a call */
    /* Bits of the inputs whose memory output `out` may take over, where that is not a matter of
     * the op alone; NULL: see dra_op. */
    uint32_t (*takes)(const void *attr, int out);
} dra_kernel;

#define DRA_BIT(dtype) (1u << (dtype))
enum {
    DRA_REALS = 1u << DRA_REAL,
    DRA_ANY_DTYPE = (1u << DRA_DTYPE_COUNT) - 1,
};

/* All CPU kernels, NULL at the end. Defined by the ops (src/ops/ops.c). */
extern const dra_kernel *const dra_cpu_kernels[];

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
