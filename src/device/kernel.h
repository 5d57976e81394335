/* What a kernel of any device is to planning, and what it is handed. A kernel belongs to one device
 * and computes one op, which it names: so a table loaded at run time can bring kernels. */
#ifndef DRA_SRC_KERNEL_H
#define DRA_SRC_KERNEL_H

#include "base/error.h"
#include "base/shape.h"

#ifdef __cplusplus
typedef int dra_atomic_int; /* as large; CUDA has atomics of its own */
#else
#include <stdatomic.h>
typedef atomic_int dra_atomic_int;
#endif

typedef struct dra_tensor {
    void     *data;
    dra_dtype dtype;
    dra_shape shape;
    int64_t   stride[DRA_MAX_RANK]; /* in elements; 0 where broadcast */
} dra_tensor;

/* What can go wrong at run time; the texts are in kernel.c. */
typedef enum dra_fault_kind {
    DRA_FAULT_NONE,
    DRA_FAULT_INDEX,  /* index, axis, size                 */
    DRA_FAULT_ID,     /* id, rows of the table             */
    DRA_FAULT_TARGET, /* target, row, the largest there is */
    DRA_FAULT_ROW,    /* batch row, token, row, rows       */
    DRA_FAULT_TWICE,  /* batch row, token, row             */
    DRA_FAULT_STEP,   /* t of the optimizer                */
    DRA_FAULT_FENCE,  /* number of the output              */
    DRA_FAULT_FAR,    /* position, the farthest            */
    DRA_FAULT_PAST,   /* position, the last                */
    DRA_FAULT_COUNT
} dra_fault_kind;

enum { DRA_FAULT_NUMBERS = 4 };

/* A record in the memory of the device: plain numbers, read by the host when it waits for the
 * device. The first instruction that fails sets it, and of its tiles the lowest. All zero: none. */
typedef struct dra_fault {
    dra_atomic_int lock, kind;
    int64_t        tile;
    const char    *op;   /* the host's pointer; a device never follows it */
    const void    *call; /* the same: of its tensors. Set by devices that do not stop at a fault */
    int64_t        number[DRA_FAULT_NUMBERS];
} dra_fault;

typedef struct dra_call {
    const void       *attr; /* the op's own struct */
    const dra_tensor *in;
    const dra_tensor *out; /* dense, see dra_kernel.strides; data is NULL for an output of several
                              that nobody reads */
    int               n_in, n_out;
    int64_t           stage; /* which stage of the kernel runs now */
    void             *scratch;
    const void       *context; /* what the device hands its own kernels */
    int               threads; /* that share its tiles */
    double            work;    /* nanoseconds of one thread, roughly; 0: unknown */
    int64_t           before;  /* tiles of calls that run at the same time and count as earlier */
    const char       *op;      /* its name, for the fault */
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
                                             at shapes, attributes, context and threads alone */
    /* Bits of the inputs whose memory output `out` may take over, where that follows from the
     * attribute; NULL: see in_place and paired. */
    uint32_t (*takes)(const void *attr, int out);
    /* Of a call that computes in bf16, see graph/narrow.c: bits of the inputs that it rounds to
     * bf16 before anything else, and reads in bf16 just as well; bits of the outputs that it can
     * round and store in bf16. NULL: none. They look at what scratch() looks at. */
    uint32_t (*rounds)(const dra_call *c);
    uint32_t (*narrows)(const dra_call *c);
    bool
        packs; /* reads what it rounds once, whole: in bf16 no faster than when it is cast before */
    /* Bits of the inputs that it does not round, but reads in bf16: where others have them rounded
     * (the sums that make the gradient of a bias), and where a product has stored them so
     * (pointwise functions). NULL: none. */
    uint32_t (*accepts)(const dra_call *c);
    uint32_t (*widens)(const dra_call *c);
    bool product; /* its results are stored in bf16 wherever readers can read them so */
    /* Bits of the outputs that it writes with any strides, as long as elements of a row are adjacent
     * and rows begin on 16 bytes, see graph/direct.c; all others are dense. NULL: none. */
    uint32_t (*strides)(const dra_call *c);
    bool adds;    /* takes one more input, like output 0 and dense, and adds it: graph/fuse_add.c */
    bool repeats; /* takes one more output, output 0 rounded to bf16: graph/narrow.c */
} dra_kernel;

#define DRA_BIT(dtype) (1u << (dtype))
enum {
    DRA_REALS = 1u << DRA_REAL,
    DRA_ANY_DTYPE = (1u << DRA_Q4_0) - 1, /* whose elements have an address */
    DRA_QUANTISED = (1u << DRA_DTYPE_COUNT) - 1 - DRA_ANY_DTYPE,
};

/* Reports from inside a tile: e.g. an index outside its range. The run stops after this call.
 * numbers: DRA_FAULT_NUMBERS of them, see dra_fault_kind. */
void dra_fault_set(const dra_call *c, int64_t tile, dra_fault_kind kind, const int64_t *numbers);
#define DRA_FAULT(c, tile, kind, ...)                                                              \
    dra_fault_set(c, tile, kind, (const int64_t[DRA_FAULT_NUMBERS]){__VA_ARGS__})
/* The error that a record stands for; DRA_OK: it is empty. */
dra_status dra_fault_error(const dra_fault *f, dra_error *err);

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
