/* Fusing, between lowering and planning: fewer and larger instructions, the same numbers. Gradients
 * are not affected. This file has what its passes share. */
#include "graph/fuse.h"

#include <stdlib.h>
#include <string.h>

/* ---- who touches what ------------------------------------------------------------------------ */

typedef struct counting {
    dra_uses *uses;
    size_t   *all; /* touches; while they are filled in: where the next storage starts */
    int32_t   at;
    bool      fill;
} counting;

/* Runs twice: once to count in `end`, once to fill. A storage gets its places when it is first
 * seen. */
static void count_touch(dra_program *p, int32_t storage, void *user)
{
    const counting *c = user;
    dra_uses       *u = c->uses;
    const int32_t   root = dra_root(p, storage);
    if (root < 0) return;
    if (!c->fill) {
        u->end[root]++;
        ++*c->all;
        return;
    }
    if (!u->placed[root]) {
        u->placed[root] = true;
        u->first[root] = *c->all;
        *c->all += u->end[root];
        u->end[root] = u->first[root];
    }
    u->at[u->end[root]++] = c->at;
}

static bool list_touches(dra_uses *u, dra_program *p, int32_t block)
{
    const dra_code_block *b = &p->block[block];
    size_t                all = 0;
    for (size_t i = 0; i < b->n; i++)
        dra_each_storage(p, b->instr[i], count_touch, &(counting){u, &all, (int32_t)i, false});
    u->at = calloc(all + 1, sizeof *u->at);
    if (!u->at) return false;
    all = 0;
    for (size_t i = 0; i < b->n; i++)
        dra_each_storage(p, b->instr[i], count_touch, &(counting){u, &all, (int32_t)i, true});
    return true;
}

static void share_storages(const dra_program *p, const dra_instr *in, int32_t block, bool *shared)
{
    for (int k = 0; k < in->n_in + in->n_out; k++) {
        const dra_place *x = k < in->n_in ? &in->in[k] : &in->out[k - in->n_in];
        const int32_t    root = dra_root(p, x->storage);
        if (root < 0) continue;
        const dra_storage *s = &p->storage[root];
        if (!in->kernel || s->block != block || s->kind != DRA_STORAGE_LOCAL) shared[root] = true;
    }
}

/* The same of a block and the bodies in it. */
static void share_block(const dra_program *p, int32_t block, bool *shared)
{
    const dra_code_block *b = &p->block[block];
    for (size_t i = 0; i < b->n; i++) {
        share_storages(p, b->instr[i], block, shared);
        if (!b->instr[i]->region) continue;
        const int32_t inner[] = {b->instr[i]->region->block, b->instr[i]->region->otherwise};
        for (int k = 0; k < 2; k++)
            if (inner[k] >= 0) share_block(p, inner[k], shared);
    }
}

bool dra_uses_open(dra_uses *u, dra_program *p, int32_t block)
{
    const size_t n = p->n_storage + 1; /* of large arrays of zeros, only touched pages cost
                                        * memory */
    u->shared = calloc(n, sizeof *u->shared);
    u->placed = calloc(n, sizeof *u->placed);
    u->first = calloc(n, sizeof *u->first);
    u->end = calloc(n, sizeof *u->end);
    if (!u->shared || !u->placed || !u->first || !u->end) return false;
    share_block(p, block, u->shared);
    if (block == DRA_BLOCK_PREPARE) share_block(p, DRA_BLOCK_STEP, u->shared); /* reads it */
    for (size_t i = 0; i < p->n_result && block <= DRA_BLOCK_STEP; i++)
        u->shared[dra_root(p, p->result[i].place.storage)] = true;
    return list_touches(u, p, block);
}

void dra_uses_close(dra_uses *u)
{
    free(u->shared);
    free(u->placed);
    free(u->first);
    free(u->end);
    free(u->at);
}

/* ---- places ---------------------------------------------------------------------------------- */

bool dra_in_order(const dra_program *p, const dra_place *x)
{
    return x->offset == 0 && dra_tensor_is_dense(&x->tensor) &&
           (size_t)dra_elements_bytes(x->tensor.dtype, dra_shape_count(&x->tensor.shape)) ==
               p->storage[dra_root(p, x->storage)].bytes;
}

bool dra_same_elements(const dra_program *p, const dra_place *a, const dra_place *b)
{
    if (dra_root(p, a->storage) != dra_root(p, b->storage) || a->offset != b->offset ||
        a->tensor.dtype != b->tensor.dtype ||
        dra_shape_count(&a->tensor.shape) != dra_shape_count(&b->tensor.shape))
        return false;
    if (dra_tensor_is_dense(&a->tensor) && dra_tensor_is_dense(&b->tensor)) return true;
    return dra_shape_equal(&a->tensor.shape, &b->tensor.shape) &&
           memcmp(a->tensor.stride, b->tensor.stride,
                  (size_t)a->tensor.shape.rank * sizeof *a->tensor.stride) == 0;
}

bool dra_touched_between(const dra_uses *u, int32_t root, int32_t from, int32_t to)
{
    for (size_t i = u->first[root]; i < u->end[root]; i++)
        if (u->at[i] > from && u->at[i] < to) return true;
    return false;
}

bool dra_is_own(const dra_program *p, const dra_uses *u, int32_t block, const dra_place *x)
{
    if (x->storage < 0) return false;
    const int32_t      root = dra_root(p, x->storage);
    const dra_storage *s = &p->storage[root];
    return s->kind == DRA_STORAGE_LOCAL && s->block == block && !s->kept && !u->shared[root] &&
           dra_in_order(p, x);
}

/* ---- instructions ---------------------------------------------------------------------------- */

dra_instr *dra_instr_apart(dra_program *p, int32_t block, const dra_op *op, int n_in, int n_out)
{
    dra_instr *in = dra_instr_new(p, block, op, n_in, n_out);
    if (in) p->block[block].n--;
    return in;
}

void dra_close_gaps(dra_code_block *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        if (b->instr[i]) b->instr[n++] = b->instr[i];
    b->n = n;
}

/* ---- passes ---------------------------------------------------------------------------------- */

dra_status dra_fuse(dra_program *p)
{
    const bool pointwise = p->device->table->find(p->device, dra_op_pointwise.name);
    dra_rematerialise(p, DRA_BLOCK_STEP);
    for (size_t b = 0; b < p->n_block; b++) {
        if (!dra_program_failed(p)) dra_fuse_joins(p, (int32_t)b);
        if (!dra_program_failed(p)) dra_fuse_add(p, (int32_t)b);
        if (!dra_program_failed(p) && pointwise) dra_fuse_pointwise(p, (int32_t)b);
        if (!dra_program_failed(p)) dra_fuse_then(p, (int32_t)b);
        if (!dra_program_failed(p)) dra_fuse_several(p, (int32_t)b);
        if (!dra_program_failed(p) && b >= DRA_BLOCK_STEP) dra_narrow(p, (int32_t)b);
        if (!dra_program_failed(p) && b >= DRA_BLOCK_STEP) dra_direct(p, (int32_t)b);
    }
    return p->error.code;
}
