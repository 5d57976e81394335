/* Nodes of an op with `several` that share their first input become one instruction, where the last
 * of them stood: the products of one x with the matrices for queries, keys and values. */
#include <stdlib.h>
#include <string.h>

#include "graph/fuse.h"
#include "graph/pointwise.h"

typedef struct bundle {
    int     n;
    int32_t at[DRA_SEVERAL];
} bundle;

static bool are_alike(const dra_program *p, const dra_instr *a, const dra_instr *b)
{
    return a->op == b->op && dra_same_elements(p, &a->in[0], &b->in[0]) &&
           dra_shape_equal(&a->in[0].tensor.shape, &b->in[0].tensor.shape) &&
           memcmp(a->attr, b->attr, a->op->attr_size) == 0;
}

/* Whether no other instruction before `until` touches the donated states that instruction `at`
 * reads, or its results. So one that joins cannot read the result of a member. */
static bool may_wait(const dra_program *p, const dra_uses *u, const dra_instr *in, int32_t at,
                     int32_t until)
{
    for (int i = 0; i < in->n_in + in->n_out; i++) {
        const dra_place *x = i < in->n_in ? &in->in[i] : &in->out[i - in->n_in];
        const int32_t    root = dra_root(p, x->storage);
        if (root < 0 || (i < in->n_in && !p->storage[root].donor)) continue;
        for (size_t k = u->first[root]; k < u->end[root]; k++)
            if (u->at[k] > at && u->at[k] <= until) return false;
    }
    return true;
}

static bool joins_bundle(const dra_program *p, const dra_uses *u, const dra_code_block *b,
                         const bundle *g, int32_t at)
{
    if (g->n == 0 || g->n == DRA_SEVERAL || !are_alike(p, b->instr[g->at[0]], b->instr[at]))
        return false;
    for (int k = 0; k < g->n; k++)
        if (!may_wait(p, u, b->instr[g->at[k]], g->at[k], at)) return false;
    return true;
}

static const void *attr_of(dra_program *p, const dra_code_block *b, const bundle *g)
{
    const dra_instr *first = b->instr[g->at[0]];
    const size_t     at = dra_attr_end(first->op->attr_size);
    dra_several_attr several = {.n = g->n};
    unsigned char   *attr = dra_arena_alloc(&p->arena, at + sizeof several);
    if (!attr) {
        dra_no_memory(p);
        return NULL;
    }
    for (int k = 0; k < g->n; k++) several.inputs[k] = b->instr[g->at[k]]->n_in;
    memcpy(attr, first->attr, first->op->attr_size);
    memcpy(attr + at, &several, sizeof several);
    return attr;
}

static void emit_bundle(dra_program *p, int32_t block, const bundle *g)
{
    dra_code_block *b = &p->block[block];
    const dra_op   *op = b->instr[g->at[0]]->op->several;
    int             n_in = 1;
    for (int k = 0; k < g->n; k++) n_in += b->instr[g->at[k]]->n_in - 1;
    dra_instr *made = dra_instr_apart(p, block, op, n_in, g->n);
    if (!made) return;
    made->in[0] = b->instr[g->at[0]]->in[0];
    for (int k = 0, to = 1; k < g->n; k++) {
        const dra_instr *in = b->instr[g->at[k]];
        made->out[k] = in->out[0];
        for (int i = 1; i < in->n_in; i++) made->in[to++] = in->in[i];
    }
    made->attr = attr_of(p, b, g);
    if (!made->attr) return;
    dra_set_kernel(p, made, dra_find_kernel(p, made->op));
    dra_add_scratch(p, block, made);
    for (int k = 0; k < g->n; k++) b->instr[g->at[k]] = NULL;
    b->instr[g->at[g->n - 1]] = made;
}

/* One bundle is open at a time, since instructions that share an input are next to each other. */
void dra_fuse_several(dra_program *p, int32_t block)
{
    dra_code_block *b = &p->block[block];
    dra_uses        u = {0};
    bundle          g = {0};
    const size_t    n = b->n;
    if (!dra_uses_open(&u, p, block)) dra_no_memory(p);
    for (size_t i = 0; i < n && !dra_program_failed(p); i++) {
        const dra_op *several = b->instr[i]->op->several;
        if (!several || !p->device->table->find(p->device, several->name)) continue;
        if (!joins_bundle(p, &u, b, &g, (int32_t)i)) {
            if (g.n > 1) emit_bundle(p, block, &g);
            g.n = 0;
        }
        g.at[g.n++] = (int32_t)i;
    }
    if (g.n > 1 && !dra_program_failed(p)) emit_bundle(p, block, &g);
    dra_close_gaps(b);
    dra_uses_close(&u);
}
