/* Fusing, between lowering and planning: fewer and larger instructions, the same numbers. Gradients
 * know nothing of it. What its passes share. */
#include "graph/fuse.h"

#include <stdlib.h>
#include <string.h>

/* ---- who touches what ------------------------------------------------------------------------ */

typedef struct counting {
    dra_uses *uses;
    int32_t   at;
    bool      fill;
} counting;

static void count_touch(dra_program *p, int32_t storage, void *user)
{
    const counting *c = user;
    const int32_t   root = dra_root(p, storage);
    if (root < 0) return;
    const size_t k = c->uses->first[root + 1]++;
    if (c->fill) c->uses->at[k] = c->at;
}

/* Twice: once to count, once to fill. first[s + 1] counts up to where storage s ends. */
static bool list_touches(dra_uses *u, dra_program *p, int32_t block)
{
    const dra_code_block *b = &p->block[block];
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < b->n; i++)
            dra_each_storage(p, b->instr[i], count_touch, &(counting){u, (int32_t)i, pass == 1});
        if (pass == 1) break;
        for (size_t s = 0; s < p->n_storage; s++) u->first[s + 1] += u->first[s];
        u->at = calloc(u->first[p->n_storage] + 1, sizeof *u->at);
        if (!u->at) return false;
        memmove(u->first + 1, u->first, p->n_storage * sizeof *u->first);
        u->first[0] = 0;
    }
    return true;
}

static void share(const dra_program *p, const dra_instr *in, int32_t block, bool *shared)
{
    for (int k = 0; k < in->n_in + in->n_out; k++) {
        const dra_place *x = k < in->n_in ? &in->in[k] : &in->out[k - in->n_in];
        const int32_t    root = dra_root(p, x->storage);
        if (root < 0) continue;
        const dra_storage *s = &p->storage[root];
        if (!in->kernel || s->block != block || s->kind != DRA_STORAGE_LOCAL) shared[root] = true;
    }
}

bool dra_uses_open(dra_uses *u, dra_program *p, int32_t block)
{
    u->shared = calloc(p->n_storage + 1, sizeof *u->shared);
    u->first = calloc(p->n_storage + 2, sizeof *u->first);
    if (!u->shared || !u->first) return false;
    for (size_t b = 0; b < p->n_block; b++)
        for (size_t i = 0; i < p->block[b].n; i++)
            share(p, p->block[b].instr[i], (int32_t)b, u->shared);
    for (size_t i = 0; i < p->n_result; i++)
        u->shared[dra_root(p, p->result[i].place.storage)] = true;
    return list_touches(u, p, block);
}

void dra_uses_close(dra_uses *u)
{
    free(u->shared);
    free(u->first);
    free(u->at);
}

/* ---- places ---------------------------------------------------------------------------------- */

bool dra_in_order(const dra_program *p, const dra_place *x)
{
    return x->offset == 0 && dra_tensor_is_dense(&x->tensor) &&
           (size_t)dra_shape_count(&x->tensor.shape) * dra_dtype_bytes(x->tensor.dtype) ==
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
    dra_remake(p, DRA_BLOCK_STEP);
    for (size_t b = 0; b < p->n_block; b++) {
        if (!dra_program_failed(p)) dra_fuse_joins(p, (int32_t)b);
        if (!dra_program_failed(p) && pointwise) dra_fuse_pointwise(p, (int32_t)b);
        if (!dra_program_failed(p)) dra_fuse_then(p, (int32_t)b);
        if (!dra_program_failed(p)) dra_fuse_several(p, (int32_t)b);
    }
    return p->error.code;
}
