/* Pointwise instructions of a block that work on the same elements become one `pointwise`
 * instruction with a program of their functions (graph/pointwise.h). A value that is only read
 * inside then needs no memory.
 *
 * Instructions are taken in their order. One joins the groups that make its operands or read the
 * same ones, as far as limits allow. A group runs where its last member stood; nothing is moved
 * forwards, so a value that is recomputed late stays late. Hence the rule for joining: a reader of
 * a result that is not a member comes after the last member. So no path leads out of a group and
 * back into it either. */
#include <stdlib.h>
#include <string.h>

#include "graph/fuse.h"
#include "graph/pointwise.h"

typedef struct group {
    int64_t elements;
    int     n;
    int32_t at[DRA_POINTWISE_STEPS]; /* its members, in order */
} group;

typedef struct fuse { /* one block */
    dra_program *p;
    int32_t      block;
    dra_uses     uses;
    int32_t     *maker;  /* by storage: the member of a group that writes it, plus 1 */
    int32_t     *reader; /* by storage: the last pointwise instruction that read it, plus 1 */
    int32_t     *member; /* by instruction: its group, or -1 */
    group       *groups;
    size_t       n_groups;
} fuse;

static dra_instr *instr_at(const fuse *f, int32_t i) { return f->p->block[f->block].instr[i]; }

static int32_t root_of(const fuse *f, const dra_place *x) { return dra_root(f->p, x->storage); }

static bool is_pointwise(const dra_instr *in)
{
    return in->op->flags & DRA_OP_POINTWISE && in->kernel && in->out[0].storage >= 0;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static bool holds_instruction(const group *g, int32_t i)
{
    for (int k = 0; k < g->n; k++)
        if (g->at[k] == i) return true;
    return false;
}

static int32_t last_of(const group *g) { return g->at[g->n - 1]; }

/* The number in the group of the member that computes x; -1: x comes from outside. */
static int made_inside(const fuse *f, const group *g, const dra_place *x)
{
    for (int k = 0; k < g->n; k++)
        if (root_of(f, &instr_at(f, g->at[k])->out[0]) == root_of(f, x)) return k;
    return -1;
}

static int find_input(const fuse *f, int n, const dra_place *list, const dra_place *x)
{
    for (int k = 0; k < n; k++)
        if (dra_same_elements(f->p, &list[k], x)) return k;
    return -1;
}

/* Collects what a group reads from outside, each place once; -1: more than a program can have. */
static int list_inputs(const fuse *f, const group *g, dra_place *list)
{
    int n = 0;
    for (int k = 0; k < g->n; k++) {
        const dra_instr *in = instr_at(f, g->at[k]);
        for (int i = 0; i < in->n_in; i++) {
            if (made_inside(f, g, &in->in[i]) >= 0 || find_input(f, n, list, &in->in[i]) >= 0)
                continue;
            if (n == DRA_POINTWISE_INPUTS) return -1;
            list[n++] = in->in[i];
        }
    }
    return n;
}

/* Whether an instruction outside of the group reads the result of a member. */
static bool is_output(const fuse *f, const group *g, int k)
{
    const int32_t root = root_of(f, &instr_at(f, g->at[k])->out[0]);
    if (f->uses.shared[root]) return true;
    for (size_t i = f->uses.first[root]; i < f->uses.end[root]; i++)
        if (!holds_instruction(g, f->uses.at[i])) return true;
    return false;
}

/* Whether others touch a storage between two instructions. */
static bool touched_between(const fuse *f, const group *g, int32_t root, int32_t from, int32_t to)
{
    for (size_t i = f->uses.first[root]; i < f->uses.end[root]; i++)
        if (f->uses.at[i] > from && f->uses.at[i] < to && !holds_instruction(g, f->uses.at[i]))
            return true;
    return false;
}

/* Whether all members may run where the last one is: no other instruction in between may need their
 * results, or touch a donated state that they read, as it might overwrite it. */
static bool may_wait(const fuse *f, const group *g)
{
    for (int k = 0; k < g->n - 1; k++) {
        const dra_instr *in = instr_at(f, g->at[k]);
        if (touched_between(f, g, root_of(f, &in->out[0]), g->at[k], last_of(g))) return false;
        for (int i = 0; i < in->n_in; i++) {
            const int32_t root = root_of(f, &in->in[i]);
            if (f->p->storage[root].donor && touched_between(f, g, root, g->at[k], last_of(g)))
                return false;
        }
    }
    return true;
}

/* Members must read each other's results in the order in which they are written. */
static bool reads_in_order(const fuse *f, const group *g)
{
    for (int k = 0; k < g->n; k++) {
        const dra_instr *in = instr_at(f, g->at[k]);
        for (int i = 0; i < in->n_in; i++)
            if (made_inside(f, g, &in->in[i]) >= 0 && !dra_in_order(f->p, &in->in[i])) return false;
    }
    return true;
}

static bool is_possible(const fuse *f, const group *g)
{
    dra_place list[DRA_POINTWISE_INPUTS];
    int       outputs = 0;
    if (!may_wait(f, g) || !reads_in_order(f, g) || list_inputs(f, g, list) < 0) return false;
    for (int k = 0; k < g->n; k++) outputs += is_output(f, g, k);
    return outputs <= DRA_POINTWISE_OUTPUTS;
}

/* Both, in order; false: too many. */
static bool unite_groups(const group *a, const group *b, group *out)
{
    if (a->n + b->n > DRA_POINTWISE_STEPS || a->elements != b->elements) return false;
    out->elements = a->elements;
    out->n = 0;
    for (int i = 0, k = 0; i < a->n || k < b->n;)
        out->at[out->n++] = k == b->n || (i < a->n && a->at[i] < b->at[k]) ? a->at[i++]
                                                                           : b->at[k++];
    return true;
}

static void join_group(fuse *f, group *g, int32_t number)
{
    group both;
    if (number < 0 || f->groups[number].n == 0 || holds_instruction(g, f->groups[number].at[0]))
        return;
    if (!unite_groups(g, &f->groups[number], &both) || !is_possible(f, &both)) return;
    f->groups[number].n = 0;
    *g = both;
}

/* Finds groups to join: first those that compute its operands, then those that read the same ones;
 * not those that share only a few numbers, such as a constant. */
static void place_instr(fuse *f, int32_t i)
{
    const dra_instr *in = instr_at(f, i);
    group            g = {dra_shape_count(&in->out[0].tensor.shape), 1, {i}};
    for (int k = 0; k < in->n_in; k++) {
        const int32_t maker = f->maker[root_of(f, &in->in[k])] - 1;
        if (maker >= 0) join_group(f, &g, f->member[maker]);
    }
    for (int k = 0; k < in->n_in; k++) {
        const int32_t reader = f->reader[root_of(f, &in->in[k])] - 1;
        if (reader >= 0 && dra_tensor_is_dense(&in->in[k].tensor))
            join_group(f, &g, f->member[reader]);
    }
    f->groups[f->n_groups] = g;
    for (int k = 0; k < g.n; k++) f->member[g.at[k]] = (int32_t)f->n_groups;
    f->n_groups++;
    f->maker[root_of(f, &in->out[0])] = i + 1;
    for (int k = 0; k < in->n_in; k++) f->reader[root_of(f, &in->in[k])] = i + 1;
}

/* ---- programs -------------------------------------------------------------------------------- */

static int value_of(const fuse *f, const group *g, int inputs, const dra_place *list,
                    const dra_place *x)
{
    const int inside = made_inside(f, g, x);
    return inside >= 0 ? inputs + inside : find_input(f, inputs, list, x);
}

static int write_program(const fuse *f, const group *g, int inputs, const dra_place *list,
                         dra_pointwise_attr *program)
{
    int outputs = 0;
    *program = (dra_pointwise_attr){.inputs = inputs, .steps = g->n};
    for (int k = 0; k < g->n; k++) {
        const dra_instr         *in = instr_at(f, g->at[k]);
        const dra_function_attr *a = in->attr;
        dra_pointwise_step      *step = &program->step[k];
        step->function = a->function;
        step->dtype = in->in[in->n_in - 1].tensor.dtype;
        step->output = is_output(f, g, k) ? (int16_t)outputs++ : -1;
        step->a = a->a;
        step->b = a->b;
        for (int i = 0; i < in->n_in; i++)
            step->x[i] = (int16_t)value_of(f, g, inputs, list, &in->in[i]);
    }
    return outputs;
}

static void remove_members(fuse *f, const group *g)
{
    for (int k = 0; k < g->n; k++) f->p->block[f->block].instr[g->at[k]] = NULL;
}

/* Puts the group's instruction in the place of its last member; none if no result is read: lowering
 * counts all inputs of a region as used, even those that its body ignores, and fuse_joins.c leaves
 * parts of a concat without a reader. */
static void emit_group(fuse *f, const group *g)
{
    dra_program       *p = f->p;
    dra_place          list[DRA_POINTWISE_INPUTS];
    dra_pointwise_attr program;
    const int          inputs = list_inputs(f, g, list);
    const int          outputs = write_program(f, g, inputs, list, &program);
    if (outputs == 0) {
        remove_members(f, g);
        return;
    }
    dra_instr *made = dra_instr_new(p, f->block, &dra_op_pointwise, inputs, outputs);
    if (!made) return;
    p->block[f->block].n--;
    for (int i = 0; i < inputs; i++) made->in[i] = list[i];
    for (int k = 0; k < g->n; k++) {
        const dra_place *out = &instr_at(f, g->at[k])->out[0];
        const int        to = program.step[k].output;
        if (to >= 0) made->out[to] = *out;
    }
    made->attr = dra_arena_copy(&p->arena, &program, dra_pointwise_bytes(&program));
    if (!made->attr) dra_no_memory(p);
    dra_set_kernel(p, made, dra_find_kernel(p, made->op));
    remove_members(f, g);
    p->block[f->block].instr[last_of(g)] = made;
}

/* ---- a block --------------------------------------------------------------------------------- */

static bool open_block(fuse *f)
{
    const size_t n = f->p->n_storage + 1, m = f->p->block[f->block].n + 1;
    f->maker = calloc(n, sizeof *f->maker);
    f->reader = calloc(n, sizeof *f->reader);
    f->member = calloc(m, sizeof *f->member);
    f->groups = calloc(m, sizeof *f->groups);
    if (!f->maker || !f->reader || !f->member || !f->groups) return false;
    return dra_uses_open(&f->uses, f->p, f->block);
}

static void close_block(fuse *f)
{
    dra_uses_close(&f->uses);
    free(f->maker);
    free(f->reader);
    free(f->member);
    free(f->groups);
}

void dra_fuse_pointwise(dra_program *p, int32_t block)
{
    fuse         f = {.p = p, .block = block};
    const size_t n = p->block[block].n;
    if (!open_block(&f)) dra_no_memory(p);
    for (size_t i = 0; i < n && !dra_program_failed(p); i++)
        if (is_pointwise(p->block[block].instr[i])) place_instr(&f, (int32_t)i);
    for (size_t k = 0; k < f.n_groups && !dra_program_failed(p); k++)
        if (f.groups[k].n > 1) emit_group(&f, &f.groups[k]);
    dra_close_gaps(&p->block[block]);
    close_block(&f);
}
