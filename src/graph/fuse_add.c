/* An add that alone reads the first output of an instruction, such as the gradient of a norm that
 * joins that of the residual stream, becomes a part of it, if its kernel `adds` (device/kernel.h):
 * the other operand is then its last input. The instruction moves to where the add stands. */
#include "graph/fuse.h"

typedef struct adding {
    dra_program *p;
    int32_t      block;
    dra_uses     uses;
} adding;

static bool is_dense_place(const dra_place *x)
{
    return x->storage >= 0 && x->tensor.dtype == DRA_REAL && dra_tensor_is_dense(&x->tensor);
}

/* Whether `maker` may wait until `at`: nobody needs its results before, or overwrites what it
 * reads. */
static bool can_move(const adding *w, const dra_instr *in, int32_t maker, int32_t at)
{
    for (int i = 0; i < in->n_out; i++)
        if (in->out[i].storage >= 0 &&
            dra_touched_between(&w->uses, dra_root(w->p, in->out[i].storage), maker, at))
            return false;
    for (int i = 0; i < in->n_in; i++) {
        const int32_t root = dra_root(w->p, in->in[i].storage);
        if (w->p->storage[root].donor && dra_touched_between(&w->uses, root, maker, at))
            return false;
    }
    return true;
}

/* The instruction of which operand k of the add is the first output, read by nobody else; -1: none
 * that could add. */
static int32_t find_maker(const adding *w, const dra_instr *add, int32_t at, int k)
{
    const dra_place *x = &add->in[k], *other = &add->in[1 - k];
    const int32_t    root = dra_root(w->p, x->storage);
    if (root < 0 || w->uses.shared[root] || !dra_in_order(w->p, x) || !is_dense_place(other) ||
        dra_root(w->p, other->storage) == root)
        return -1;
    const int32_t    maker = w->uses.at[w->uses.first[root]];
    const dra_instr *in = maker < at ? w->p->block[w->block].instr[maker] : NULL;
    if (!in || !in->kernel || !in->kernel->adds || in->n_in > in->op->n_in || /* it adds already */
        dra_root(w->p, in->out[0].storage) != root ||
        !dra_shape_equal(&in->out[0].tensor.shape, &add->out[0].tensor.shape) ||
        !dra_shape_equal(&in->out[0].tensor.shape, &other->tensor.shape))
        return -1;
    for (size_t i = w->uses.first[root]; i < w->uses.end[root]; i++)
        if (w->uses.at[i] != maker && w->uses.at[i] != at) return -1;
    return can_move(w, in, maker, at) ? maker : -1;
}

static void absorb_add(const adding *w, int32_t maker, int32_t at, int k)
{
    dra_code_block  *b = &w->p->block[w->block];
    const dra_instr *old = b->instr[maker], *add = b->instr[at];
    dra_instr       *in = dra_instr_apart(w->p, w->block, old->op, old->n_in + 1, old->n_out);
    if (!in) return;
    for (int i = 0; i < old->n_in; i++) in->in[i] = old->in[i];
    in->in[old->n_in] = add->in[1 - k];
    for (int i = 0; i < old->n_out; i++) in->out[i] = old->out[i];
    in->out[0] = add->out[0];
    in->attr = old->attr;
    dra_set_kernel(w->p, in, old->kernel);
    dra_add_scratch(w->p, w->block, in);
    b->instr[maker] = NULL;
    b->instr[at] = in;
}

void dra_fuse_add(dra_program *p, int32_t block)
{
    adding          w = {.p = p, .block = block};
    dra_code_block *b = &p->block[block];
    bool            any = false;
    for (size_t i = 0; i < b->n; i++)
        any = any || (b->instr[i]->kernel && b->instr[i]->kernel->adds);
    if (!any) return;
    if (!dra_uses_open(&w.uses, p, block)) dra_no_memory(p);
    for (size_t i = 0; i < b->n && !dra_program_failed(p); i++)
        for (int k = 0; k < 2 && b->instr[i] && b->instr[i]->op == &dra_op_add; k++) {
            const int32_t maker = find_maker(&w, b->instr[i], (int32_t)i, k);
            if (maker >= 0) absorb_add(&w, maker, (int32_t)i, k);
        }
    dra_close_gaps(b);
    dra_uses_close(&w.uses);
}
