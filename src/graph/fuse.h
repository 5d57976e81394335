/* Passes over lowered blocks that make fewer instructions, see fuse.c. */
#ifndef DRA_SRC_FUSE_H
#define DRA_SRC_FUSE_H

#include "graph/program.h"

/* The instructions that touch the storages of a block, by root: first[root]..end[root] - 1 of `at`,
 * in order, some perhaps twice; instructions of a body count as their region. Storages that the
 * block does not touch have none and are not visited: a program may have many blocks. */
typedef struct dra_uses {
    bool    *placed; /* while it is opened */
    bool    *shared; /* regions, other blocks or the caller use it: it must have memory */
    size_t  *first, *end;
    int32_t *at;
} dra_uses;

bool dra_uses_open(dra_uses *u, dra_program *p, int32_t block); /* false: out of memory */
void dra_uses_close(dra_uses *u);

/* Whether an instruction between two touches a storage. */
bool dra_touched_between(const dra_uses *u, int32_t root, int32_t from, int32_t to);
/* Whether a place is all of a storage that is planned with this block and used by it alone. */
bool dra_is_own(const dra_program *p, const dra_uses *u, int32_t block, const dra_place *x);

/* Creates an instruction that is not in a block yet. */
dra_instr *dra_instr_apart(dra_program *p, int32_t block, const dra_op *op, int n_in, int n_out);
void       dra_close_gaps(dra_code_block *b); /* removes instructions that became NULL */

/* Whether two places have the same elements in the same order. */
bool dra_same_elements(const dra_program *p, const dra_place *a, const dra_place *b);
/* All elements of a storage, in the order in which they were written. */
bool dra_in_order(const dra_program *p, const dra_place *x);

/* The passes. */
void dra_rematerialise(dra_program *p, int32_t block);
void dra_fuse_joins(dra_program *p, int32_t block);
void dra_fuse_add(dra_program *p, int32_t block);
void dra_fuse_pointwise(dra_program *p, int32_t block);
void dra_fuse_then(dra_program *p, int32_t block);
void dra_fuse_several(dra_program *p, int32_t block);
void dra_narrow(dra_program *p, int32_t block);
void dra_direct(dra_program *p, int32_t block);

/* Ops that the passes look for and make. */
extern const dra_op dra_op_concat, dra_op_pad, dra_op_pointwise, dra_op_cast, dra_op_add;

#endif
