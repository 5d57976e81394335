/* What a device is handed to run: blocks of instructions over storages.
 *
 * A storage is a piece of memory with one address during a run; a place is a strided view into
 * one. All addresses but those a scan moves are fixed before a block is run, so a device may walk a
 * block, as the CPU does, or capture it once and replay it. */
#ifndef DRA_SRC_CODE_H
#define DRA_SRC_CODE_H

#include "device/kernel.h"
#include "dra/device.h"

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
    int32_t          first, last; /* groups of its block that touch it */
} dra_storage;

typedef enum dra_region_kind { DRA_REGION_SCAN, DRA_REGION_COND } dra_region_kind;

typedef struct dra_region {
    dra_region_kind kind;
    int32_t         block;          /* the body */
    int32_t         memory;         /* the storage that holds the body's planned memory */
    int64_t         length, border; /* scan */
    bool            reverse;
    int32_t         carries, xs, ys;
    /* scan, by number of carry, x and y; places of the outer block and moving storages inside */
    dra_place *carry[2]; /* the two buffers of each carry; [0] holds the last value */
    dra_place *x, *y;    /* y: storage < 0 where nobody reads it */
    dra_place *kept;     /* carries at borders; storage < 0 where nobody reads them */
    int32_t   *carry_in, *carry_out, *x_in, *y_out;
    /* cond: flag, and copies for the case that the body does not run */
    dra_place flag;
    int32_t   otherwise; /* a block of copies */
} dra_region;

enum { DRA_GROUP = 16 }; /* instructions of a group at most, see graph/group.c */

typedef struct dra_instr {
    const struct dra_op *op;
    const char          *name;   /* of the op */
    const dra_kernel    *kernel; /* NULL for regions */
    const void          *attr;
    int32_t              n_in, n_out;
    dra_place           *in, *out; /* out: storage < 0 where nobody reads it */
    int32_t              scratch;  /* storage or -1 */
    dra_region          *region;
    double               work;  /* nanoseconds of one thread, roughly */
    int32_t              group; /* of its block, ascending: those with one number are independent */
    size_t               tensors; /* where its tensors stand in those of the launch */
    size_t               number;  /* among all instructions, for the profile */
} dra_instr;

typedef struct dra_code_block {
    dra_instr **instr;
    size_t      n, room;
    int32_t     memory; /* the storage around it, or -1 */
    size_t      bytes;  /* planned */
    size_t      without_plan;
} dra_code_block;

/* A run in slices: it returns between two groups of instructions when its time is up, and goes on
 * with the next call. Other programs may run meanwhile, in a workspace of their own. */
typedef struct dra_time_slice {
    double until;   /* dra_clock() at which the run returns; INFINITY: at its end */
    size_t stop;    /* it returns before this instruction, too; 0: there is none */
    size_t at;      /* the instruction to go on with; 0: it has run to its end, or not begun */
    double longest; /* seconds from one chance to return to the next, the most so far */
} dra_time_slice;

typedef struct dra_launch {
    const dra_code_block *block;
    const dra_storage    *storage;
    size_t                n_storage;
    unsigned char       **base;    /* by storage: its address on the device */
    dra_tensor           *tensors; /* of all instructions, one after the other */
    dra_fault            *fault;   /* on the device */
    size_t                fence;   /* bytes around every local storage to check, for tests; or 0 */
    /* Told of every kernel call, where it is not NULL. */
    void (*profile)(void *user, const dra_instr *in, const dra_call *c, double seconds);
    void           *user;
    dra_time_slice *slice; /* how far a block runs, where the device walks; NULL: to its end */
} dra_launch;

static inline void *dra_place_address(const dra_launch *l, const dra_place *place)
{
    return place->storage >= 0 ? l->base[place->storage] + place->offset : NULL;
}

typedef struct dra_kernel_call {
    const dra_kernel *kernel;
    dra_call          call;
} dra_kernel_call;

/* run_block.c: runs block number `block` on the host, group by group; where calls are timed or
 * fenced, instruction by instruction. `run` computes 1 to DRA_GROUP independent kernel calls. Stops
 * where the fault is set. */
typedef void (*dra_walk_run)(dra_device *d, int n, dra_kernel_call *calls);
void dra_walk(dra_device *d, const dra_launch *l, int32_t block, dra_walk_run run);

double dra_clock(void); /* seconds, monotonic */

/* cpu.c: all stages and tiles of independent calls, by the device's threads. */
void dra_cpu_run_calls(dra_device *d, int n, dra_kernel_call *calls);

#endif
