/* A compiled program: blocks of instructions over storages (device/code.h). Block 0 is the prepare
 * program, block 1 the step program, the others are bodies of regions. Each block has its own
 * planned memory; that of a body is part of a storage of the block around it, so every address but
 * the caller's and the moving ones of a scan is fixed when buffers are created. */
#ifndef DRA_SRC_PROGRAM_H
#define DRA_SRC_PROGRAM_H

#include "base/arena.h"
#include "base/names.h"
#include "device/device.h"
#include "graph/op.h"

typedef enum dra_role {
    DRA_ROLE_NODE,
    DRA_ROLE_INPUT,
    DRA_ROLE_PARAMETER,
    DRA_ROLE_STATE
} dra_role;

typedef struct dra_slot { /* an input, parameter or state */
    const char *name;
    dra_role    role;
    bool        used;
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
    dra_code_block  *block;
    size_t           n_block, block_room;
    dra_slot        *slot;
    size_t           n_slot;
    dra_result_slot *result;
    size_t           n_result;
    dra_names        slots, results; /* by name */
    size_t           n_tensors, n_instr;
    bool             updates_parameters; /* some donated output takes over a parameter */
    size_t           fence;              /* bytes fenced off around every local storage */
    dra_error        error;              /* the first one met while compiling */
};

/* The storage that a storage was finally merged into. */
static inline int32_t dra_root(const dra_program *p, int32_t s)
{
    while (s >= 0 && p->storage[s].alias >= 0) s = p->storage[s].alias;
    return s;
}

/* lower.c: fills the blocks from the graph. fuse.c: joins pointwise instructions. group.c: finds
 * what may run at the same time. plan.c: memory for all blocks. */
dra_status dra_lower(const dra_graph *g, dra_program *p);
dra_status dra_fuse(dra_program *p);
dra_status dra_make_groups(dra_program *p, bool join); /* join: of several instructions */
dra_status dra_plan(dra_program *p);

/* dra_compile() for tests: with fence > 0 (a multiple of 64) every kernel call finds its outputs
 * filled with NaN (0xFF bytes) and fenced by that many bytes, which are checked after it. Plain:
 * without fusing. */
dra_status dra_compile_fenced(const dra_graph *g, dra_device *device, size_t fence,
                              dra_program **out, dra_error *err);
dra_status dra_compile_plain(const dra_graph *g, dra_device *device, size_t fence,
                             dra_program **out, dra_error *err);

/* Calls `see` for every storage an instruction touches, inside its region too. */
typedef void (*dra_see_storage)(dra_program *p, int32_t storage, void *user);
void dra_each_storage(dra_program *p, const dra_instr *in, dra_see_storage see, void *user);

/* ---- run.c: what a session does with buffers ------------------------------------------------- */

/* Bytes of the workspace of a program: the fault record and what lives only during a run. */
size_t dra_workspace_bytes(const dra_program *p);
/* Creates buffers that run in the memory of others, one at a time: in a workspace, large enough and
 * with an empty fault record. Results stay there until something else runs in it. */
dra_status dra_buffers_create_in(const dra_program *p, dra_array *workspace, dra_buffers **out,
                                 dra_error *err);
void       dra_buffers_move(dra_buffers *b, dra_array *workspace);
/* Runs that are started from now on return when the time of the slice is up; dra_run_continue()
 * continues one until slice->at is 0. Devices that run a program as a whole ignore it. NULL: runs
 * go to the end. */
void       dra_buffers_slice(dra_buffers *b, dra_time_slice *slice);
dra_status dra_run_continue(dra_buffers *b, dra_error *err);
dra_span   dra_slot_memory(const dra_buffers *b, int slot); /* what is bound to it */
dra_status dra_workspace_create(dra_device *d, size_t bytes, dra_array **out, dra_error *err);
/* Waits; reads and clears the fault record of a workspace, and fetches `more` with it. */
dra_status dra_workspace_fault(dra_array *workspace, const dra_fetch *more, size_t n,
                               dra_error *err);

/* ---- program_build.c: what lowering and planning build a program from ------------------------ */

static inline bool dra_program_failed(const dra_program *p) { return p->error.code != DRA_OK; }
dra_status         dra_no_memory(dra_program *p); /* keeps the error */

int32_t    dra_storage_new(dra_program *p, dra_storage s); /* -1: out of memory */
int32_t    dra_code_block_new(dra_program *p);
dra_instr *dra_instr_new(dra_program *p, int32_t block, const dra_op *op, int n_in, int n_out);

size_t    dra_bytes_of(const dra_type *t);
dra_place dra_dense_place(int32_t storage, const dra_type *t);
dra_place dra_local_place(dra_program *p, int32_t block, const dra_type *t); /* memory of its own */
dra_place dra_moving_place(dra_program *p, int32_t block, const dra_type *t); /* set by a scan */

/* The device's kernel for an op; NULL, with the error set, if it has none. Then, for an instruction
 * whose places are set: gives it the kernel, if that takes its dtypes, and the scratch memory. */
const dra_kernel *dra_find_kernel(dra_program *p, const dra_op *op);
void              dra_set_kernel(dra_program *p, dra_instr *in, const dra_kernel *kernel);
void dra_add_scratch(dra_program *p, int32_t block, dra_instr *in); /* or its new size */
/* Hands `ask` a call of the instruction without data, for the functions of a kernel that look at
 * shapes and attributes. False: out of memory. */
typedef void (*dra_ask)(const dra_kernel *k, const dra_call *c, void *answer);
bool dra_ask_kernel(dra_program *p, const dra_instr *in, dra_ask ask, void *answer);
void dra_emit_copy(dra_program *p, int32_t block, const dra_place *from, const dra_place *to);

#endif
