/* A pointwise instruction that is the only reader of the result of an op with `then` becomes the
 * end of that op: a bias added to a product, a gelu, the residual stream. The op moves to where the
 * pointwise instruction stands. */
#include <stdlib.h>
#include <string.h>

#include "graph/fuse.h"
#include "graph/pointwise.h"

typedef struct end { /* the pointwise instruction, as a program with inputs named once */
    const dra_instr   *in;
    int32_t            at;
    dra_place          input[DRA_POINTWISE_INPUTS];
    dra_pointwise_attr program;
} end;

/* One function as a program. */
static void single_program(const dra_program *p, end *e)
{
    const dra_function_attr *a = e->in->attr;
    dra_pointwise_step      *s = &e->program.step[0];
    e->program.inputs = 0;
    e->program.steps = 1;
    *s = (dra_pointwise_step){.function = a->function,
                              .dtype = e->in->in[e->in->n_in - 1].tensor.dtype,
                              .a = a->a,
                              .b = a->b};
    for (int i = 0; i < e->in->n_in; i++) {
        int k = 0;
        while (k < e->program.inputs && !dra_same_elements(p, &e->input[k], &e->in->in[i])) k++;
        e->input[k] = e->in->in[i];
        if (k == e->program.inputs) e->program.inputs++;
        s->x[i] = (int16_t)k;
    }
}

static bool end_of(const dra_program *p, const dra_instr *in, int32_t at, end *e)
{
    e->in = in;
    e->at = at;
    if (in->op == &dra_op_pointwise) {
        const dra_pointwise_attr *a = in->attr;
        memcpy(&e->program, a, dra_pointwise_bytes(a));
        for (int i = 0; i < in->n_in; i++) e->input[i] = in->in[i];
        return true;
    }
    if (!(in->op->flags & DRA_OP_POINTWISE) || !in->kernel || in->out[0].storage < 0) return false;
    single_program(p, e);
    return true;
}

/* ---- which op -------------------------------------------------------------------------------- */

/* The instruction that computes input k of the end and could take it as its own end; -1: none. */
static int32_t maker_of(dra_program *p, const dra_uses *u, const dra_code_block *b, const end *e,
                        int k)
{
    const int32_t root = dra_root(p, e->input[k].storage);
    if (u->shared[root] || !dra_in_order(p, &e->input[k]) || u->first[root] == u->end[root])
        return -1;
    const int32_t    at = u->at[u->first[root]];
    const dra_instr *in = b->instr[at];
    if (at >= e->at || !in || !in->op->then || dra_root(p, in->out[0].storage) != root) return -1;
    for (size_t i = u->first[root]; i < u->end[root]; i++)
        if (u->at[i] != at && u->at[i] != e->at) return -1;
    for (int i = 0; i < in->n_in; i++) { /* others may overwrite a donated state */
        const int32_t from = dra_root(p, in->in[i].storage);
        if (p->storage[from].donor && dra_touched_between(u, from, at, e->at)) return -1;
    }
    return p->device->table->find(p->device, in->op->then->name) ? at : -1;
}

/* The output whose memory may hold input k until the program has read it: -1, none. */
static int home_of(const end *e, int k)
{
    int home = -1, last = -1;
    for (int i = 0; i < e->program.steps; i++)
        for (int j = 0; j < dra_function_operands(e->program.step[i].function); j++)
            if (e->program.step[i].x[j] == k) last = i;
    for (int i = last; i >= 0 && i < e->program.steps; i++) {
        const int out = e->program.step[i].output;
        if (out >= 0 && e->in->out[out].tensor.dtype == DRA_REAL) home = out;
    }
    return home;
}

/* If a donated state is among the inputs, the pointwise instruction should take it over itself. */
static bool reads_donor(const dra_program *p, const end *e)
{
    for (int i = 0; i < e->program.inputs; i++)
        if (p->storage[dra_root(p, e->input[i].storage)].donor) return true;
    return false;
}

/* ---- the new instruction --------------------------------------------------------------------- */

/* Input k becomes input 0. */
static void bring_forward(end *e, int k)
{
    const dra_place first = e->input[0];
    e->input[0] = e->input[k];
    e->input[k] = first;
    for (int i = 0; i < e->program.steps; i++)
        for (int j = 0; j < dra_function_operands(e->program.step[i].function); j++) {
            int16_t *x = &e->program.step[i].x[j];
            *x = (int16_t)(*x == k ? 0 : *x == 0 ? k : *x);
        }
}

static const void *attr_of(dra_program *p, const dra_instr *op, const end *e, int home)
{
    const size_t   at = dra_attr_end(op->op->attr_size);
    const size_t   bytes = offsetof(dra_then_attr, program) + dra_pointwise_bytes(&e->program);
    unsigned char *attr = dra_arena_alloc(&p->arena, at + bytes);
    if (!attr) {
        dra_no_memory(p);
        return NULL;
    }
    const dra_then_attr then = {op->n_in, home, op->out[0].tensor.shape, e->program};
    memcpy(attr, op->attr, op->op->attr_size);
    memcpy(attr + at, &then, bytes);
    return attr;
}

static void emit_ended(dra_program *p, int32_t block, int32_t maker, const end *e, int home)
{
    dra_code_block  *b = &p->block[block];
    const dra_instr *op = b->instr[maker];
    const int        n_in = op->n_in + e->program.inputs - 1, n_out = e->in->n_out;
    dra_instr       *made = dra_instr_apart(p, block, op->op->then, n_in, n_out);
    if (!made) return;
    for (int i = 0; i < op->n_in; i++) made->in[i] = op->in[i];
    for (int i = 1; i < e->program.inputs; i++) made->in[op->n_in + i - 1] = e->input[i];
    for (int i = 0; i < n_out; i++) made->out[i] = e->in->out[i];
    made->attr = attr_of(p, op, e, home);
    if (!made->attr) return;
    dra_set_kernel(p, made, dra_find_kernel(p, made->op));
    dra_add_scratch(p, block, made);
    b->instr[maker] = NULL;
    b->instr[e->at] = made;
}

/* Joins the op that comes last, so that as little as possible moves. */
static void fuse_end(dra_program *p, int32_t block, const dra_uses *u, end *e)
{
    const dra_code_block *b = &p->block[block];
    int32_t               maker = -1;
    int                   which = -1;
    if (reads_donor(p, e)) return;
    for (int k = 0; k < e->program.inputs; k++) {
        const int32_t at = maker_of(p, u, b, e, k);
        if (at > maker && home_of(e, k) >= 0) {
            maker = at;
            which = k;
        }
    }
    if (maker < 0) return;
    const int home = home_of(e, which);
    bring_forward(e, which);
    emit_ended(p, block, maker, e, home);
}

void dra_fuse_then(dra_program *p, int32_t block)
{
    dra_uses     u = {0};
    const size_t n = p->block[block].n;
    if (!dra_uses_open(&u, p, block)) dra_no_memory(p);
    for (size_t i = 0; i < n && !dra_program_failed(p); i++) {
        const dra_instr *in = p->block[block].instr[i];
        end              e;
        if (in && end_of(p, in, (int32_t)i, &e)) fuse_end(p, block, &u, &e);
    }
    dra_close_gaps(&p->block[block]);
    dra_uses_close(&u);
}
