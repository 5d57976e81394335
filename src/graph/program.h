/* A compiled program: blocks of instructions over storages.
 *
 * A storage is a piece of memory with one address during a run; a place is a strided view into
 * one. Block 0 is the prepare program, block 1 the step program, the others are bodies of
 * regions. Each block has its own planned memory; that of a body lies inside a storage of the
 * block around it, so every address but the caller's and the moving ones of a scan is fixed when
 * buffers are created. */
#ifndef DRA_SRC_PROGRAM_H
#define DRA_SRC_PROGRAM_H

#include "base/arena.h"
#include "device/device.h"
#include "graph/op.h"

typedef struct dra_place {
    int32_t    storage;
    int64_t    offset; /* bytes */
    dra_tensor tensor; /* dtype, shape, strides; data is set at run time */
} dra_place;

typedef enum dra_storage_kind {
    DRA_STORAGE_LOCAL, /* in the planned memory of its block       */
    DRA_STORAGE_BOUND, /* the caller's: slot number in `slot`      */
    DRA_STORAGE_MOVING /* set by a scan before each step           */
} dra_storage_kind;

typedef struct dra_storage {
    dra_storage_kind kind;
    int32_t          block; /* whose plan it belongs to */
    int32_t          slot;
    int32_t          alias; /* the storage it became one with, or -1 */
    bool             kept;  /* lives to the end of its block: outputs, prepared values */
    bool             donor; /* a bound storage that an output takes over */
    size_t           bytes, offset;
    int32_t          first, last; /* instructions of its block that touch it */
} dra_storage;

typedef struct dra_region { /* what the executor needs beside the instruction */
    int32_t block;          /* the body */
    int32_t memory;         /* the storage that holds the body's planned memory */
    int64_t length, border; /* scan */
    bool    reverse;
    int32_t carries, xs, ys;
    /* scan, by number of carry, x and y; places of the outer block and moving storages inside */
    dra_place *carry[2]; /* the two buffers of each carry; [0] holds the last value */
    dra_place *x, *y;    /* y: storage < 0 where nobody reads it */
    dra_place *kept;     /* carries at borders; storage < 0 where nobody reads them */
    int32_t   *carry_in, *carry_out, *x_in, *y_out;
    /* guard: flag, and copies for the case that the body does not run */
    dra_place flag;
    int32_t   otherwise; /* a block of copies */
} dra_region;

typedef struct dra_instr {
    const dra_op     *op;
    const dra_kernel *kernel; /* NULL for regions */
    const void       *attr;
    int32_t           n_in, n_out;
    dra_place        *in, *out; /* out: storage < 0 where nobody reads it */
    int32_t           scratch;  /* storage or -1 */
    dra_region       *region;
    size_t            tensors; /* where its tensors stand in those of the buffers */
    size_t            number;  /* among all instructions, for the profile */
} dra_instr;

typedef struct dra_block {
    dra_instr **instr;
    size_t      n, room;
    int32_t     memory; /* the storage around it, or -1 */
    size_t      bytes;  /* planned */
    size_t      without_plan;
} dra_block;

typedef struct dra_slot { /* an input, parameter or state */
    const char *name;
    bool        parameter, used;
    size_t      bytes;
    int32_t     storage;
} dra_slot;

typedef struct dra_result_slot {
    const char *name;
    dra_place   place;
    int32_t     donor; /* storage, or -1 */
} dra_result_slot;

enum { DRA_BLOCK_PREPARE = 0, DRA_BLOCK_STEP = 1 };

struct dra_program {
    dra_arena        arena;
    dra_device      *device;
    dra_storage     *storage;
    size_t           n_storage, storage_room;
    dra_block       *block;
    size_t           n_block, block_room;
    dra_slot        *slot;
    size_t           n_slot;
    dra_result_slot *result;
    size_t           n_result;
    size_t           n_tensors, n_instr;
    bool             updates_parameters; /* some donated output takes over a parameter */
    size_t           guard;              /* bytes fenced off around every local storage */
    dra_error        error;              /* the first one met while compiling */
};

/* The storage a storage became. */
static inline int32_t dra_root(const dra_program *p, int32_t s)
{
    while (s >= 0 && p->storage[s].alias >= 0) s = p->storage[s].alias;
    return s;
}

/* lower.c: fills the blocks from the graph. fuse.c: joins pointwise instructions. plan.c: memory
 * for all blocks. */
dra_status dra_lower(const dra_graph *g, dra_program *p);
dra_status dra_fuse(dra_program *p);
dra_status dra_plan(dra_program *p);

/* dra_compile() for tests: with guard > 0 (a multiple of 64) every kernel call finds its outputs
 * filled with NaN (0xFF bytes) and fenced by that many bytes, which are checked after it. Plain:
 * without fusing. */
dra_status dra_compile_guarded(const dra_graph *g, dra_device *device, size_t guard,
                               dra_program **out, dra_error *err);
dra_status dra_compile_plain(const dra_graph *g, dra_device *device, size_t guard,
                             dra_program **out, dra_error *err);

/* Calls `see` for every storage an instruction touches, inside its region too. */
typedef void (*dra_see_storage)(dra_program *p, int32_t storage, void *user);
void dra_each_storage(dra_program *p, const dra_instr *in, dra_see_storage see, void *user);

/* ---- parts.c: what lowering and planning build a program from -------------------------------- */

static inline bool dra_program_failed(const dra_program *p) { return p->error.code != DRA_OK; }
dra_status         dra_no_memory(dra_program *p); /* keeps the error */

int32_t    dra_storage_new(dra_program *p, dra_storage s); /* -1: out of memory */
int32_t    dra_block_new(dra_program *p);
dra_instr *dra_instr_new(dra_program *p, int32_t block, const dra_op *op, int n_in, int n_out);

size_t    dra_bytes_of(const dra_type *t);
dra_place dra_dense_place(int32_t storage, const dra_type *t);
dra_place dra_local_place(dra_program *p, int32_t block, const dra_type *t); /* memory of its own */
dra_place dra_moving_place(dra_program *p, int32_t block, const dra_type *t); /* set by a scan */

/* The device's kernel for an instruction whose places are set, and the scratch memory it wants. */
void dra_find_kernel(dra_program *p, dra_instr *in);
void dra_add_scratch(dra_program *p, int32_t block, dra_instr *in);
void dra_emit_copy(dra_program *p, int32_t block, const dra_place *from, const dra_place *to);

#endif
