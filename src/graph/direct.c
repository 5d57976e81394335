/* Outputs that are written where they are wanted. If a copy into another order of axes is all that
 * reads an output, a kernel that can write with any strides (device/kernel.h) writes where the copy
 * would, and the copy goes; so does a concat of outputs of one instruction. Numbers stay the same.
 * It is the last pass over a block, since bf16 propagation decides which dtypes copies have. */
#include "graph/fuse.h"

enum { LINE = 16 }; /* bytes that rows begin on */
enum { MOST_PARTS = 8 };

typedef struct directing {
    dra_program *p;
    int32_t      block;
    dra_uses     uses;
} directing;

static dra_instr **instr_at(const directing *w, int32_t at)
{
    return &w->p->block[w->block].instr[at];
}

static void ask_strides(const dra_kernel *k, const dra_call *c, void *answer)
{
    *(uint32_t *)answer = k->strides(c);
}

static bool writes_strides(const directing *w, const dra_instr *in, int out)
{
    uint32_t bits = 0;
    if (!in->kernel || !in->kernel->strides) return false;
    return dra_ask_kernel(w->p, in, ask_strides, &bits) && bits >> out & 1;
}

/* The only other instruction that touches the storage of x; -1: there are more, or none. */
static int32_t only_other(const directing *w, const dra_place *x, int32_t but)
{
    const int32_t root = dra_root(w->p, x->storage);
    int32_t       found = -1;
    for (size_t k = w->uses.first[root]; k < w->uses.end[root]; k++) {
        const int32_t at = w->uses.at[k];
        if (at == but || at == found) continue;
        if (found >= 0) return -1;
        found = at;
    }
    return found;
}

/* Whether nobody touches the storage of x before instruction `at`. */
static bool begins_at(const directing *w, const dra_place *x, int32_t at)
{
    const int32_t root = dra_root(w->p, x->storage);
    return w->uses.at[w->uses.first[root]] == at;
}

static bool rows_fit(const dra_place *x) /* as kernels write them */
{
    const int64_t size = (int64_t)dra_dtype_bytes(x->tensor.dtype);
    bool          fit = dra_tensor_has_rows(&x->tensor) && x->offset % LINE == 0;
    for (int32_t i = 0; i + 1 < x->tensor.shape.rank; i++)
        fit = fit && (x->tensor.shape.dim[i] == 1 || x->tensor.stride[i] * size % LINE == 0);
    return fit;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* The axis of `view`, not taken before, with this size and stride; -1: none. */
static int32_t find_axis(const dra_tensor *view, int64_t dim, int64_t stride, uint32_t *taken)
{
    for (int32_t i = 0; i < view->shape.rank; i++)
        if (!(*taken >> i & 1) && view->shape.dim[i] == dim && view->stride[i] == stride) {
            *taken |= 1u << i;
            return i;
        }
    return -1;
}

/* Where a copy of all of `out`, its axes in another order, puts the elements of `out`. */
static bool find_target(const dra_instr *copy, const dra_place *out, dra_place *to)
{
    const dra_tensor *view = &copy->in[0].tensor, *y = &copy->out[0].tensor;
    uint32_t          taken = 0;
    *to = *out;
    to->storage = copy->out[0].storage;
    for (int32_t i = 0; i < out->tensor.shape.rank; i++) {
        const int64_t dim = out->tensor.shape.dim[i];
        if (dim == 1) continue;
        const int32_t axis = find_axis(view, dim, out->tensor.stride[i], &taken);
        if (axis < 0) return false;
        to->tensor.stride[i] = y->stride[axis];
    }
    return copy->in[0].offset == 0 && view->dtype == out->tensor.dtype && y->dtype == view->dtype &&
           dra_shape_count(&view->shape) == dra_shape_count(&out->tensor.shape) && rows_fit(to);
}

static void skip_copy(const directing *w, int32_t at, int o)
{
    dra_place    *out = &(*instr_at(w, at))->out[o], to;
    const int32_t reader = dra_is_own(w->p, &w->uses, w->block, out) ? only_other(w, out, at) : -1;
    if (reader < 0 || !*instr_at(w, reader)) return;
    const dra_instr *copy = *instr_at(w, reader);
    if (copy->op != &dra_op_copy || !dra_is_own(w->p, &w->uses, w->block, &copy->out[0]) ||
        !begins_at(w, &copy->out[0], reader) || !find_target(copy, out, &to))
        return;
    *out = to;
    *instr_at(w, reader) = NULL;
}

/* ---- concats --------------------------------------------------------------------------------- */

typedef struct joined { /* a concat, and whose outputs its parts are */
    dra_instr *concat, *maker;
    int        out[MOST_PARTS];
    dra_place  to[MOST_PARTS];
    int64_t    rows, row, start; /* start: of the next part in a row */
} joined;

/* The output of the instruction that x is; -1: none. */
static int find_output(const directing *w, const dra_instr *in, const dra_place *x)
{
    int o = 0;
    while (o < in->n_out && (in->out[o].storage < 0 ||
                             dra_root(w->p, in->out[o].storage) != dra_root(w->p, x->storage)))
        o++;
    return o < in->n_out ? o : -1;
}

static bool is_taken(const joined *j, int parts, int out)
{
    int k = 0;
    while (k < parts && j->out[k] != out) k++;
    return k < parts;
}

/* A place in the part that rows of `part` elements make as one in the concat. An axis lies within a
 * row, or goes from row to row. */
static bool move_place(const joined *j, int64_t part, const dra_place *x, dra_place *to)
{
    *to = *x;
    to->storage = j->concat->out[0].storage;
    to->offset = j->start * (int64_t)dra_dtype_bytes(x->tensor.dtype);
    for (int32_t i = 0; i < x->tensor.shape.rank; i++) {
        const int64_t stride = x->tensor.stride[i];
        if (x->tensor.shape.dim[i] == 1) continue;
        if (stride >= part ? stride % part != 0 : x->tensor.shape.dim[i] * stride > part)
            return false;
        if (stride >= part) to->tensor.stride[i] = stride / part * j->row;
    }
    return rows_fit(to);
}

static bool take_part(const directing *w, joined *j, int32_t at, int k)
{
    const dra_place *x = &j->concat->in[k];
    const int32_t    maker = dra_is_own(w->p, &w->uses, w->block, x) ? only_other(w, x, at) : -1;
    const int64_t    part = dra_shape_count(&x->tensor.shape) / j->rows;
    if (maker < 0 || maker > at || !*instr_at(w, maker)) return false;
    if (j->maker && *instr_at(w, maker) != j->maker) return false;
    j->maker = *instr_at(w, maker);
    const int o = j->out[k] = find_output(w, j->maker, x);
    if (o < 0 || is_taken(j, k, o) || !writes_strides(w, j->maker, o) ||
        j->maker->out[o].offset != 0 ||
        j->maker->out[o].tensor.dtype != j->concat->out[0].tensor.dtype ||
        !move_place(j, part, &j->maker->out[o], &j->to[k]))
        return false;
    j->start += part;
    return true;
}

static void skip_concat(const directing *w, int32_t at)
{
    joined               j = {.concat = *instr_at(w, at), .rows = 1, .row = 1};
    const dra_join_attr *a = j.concat->attr;
    const dra_place     *y = &j.concat->out[0];
    if (j.concat->n_in > MOST_PARTS || !dra_is_own(w->p, &w->uses, w->block, y) ||
        !begins_at(w, y, at))
        return;
    for (int32_t i = 0; i < y->tensor.shape.rank; i++)
        *(i < a->axis ? &j.rows : &j.row) *= y->tensor.shape.dim[i];
    if (j.rows == 0 || j.row == 0) return;
    for (int k = 0; k < j.concat->n_in; k++)
        if (!take_part(w, &j, at, k)) return;
    for (int k = 0; k < j.concat->n_in; k++) j.maker->out[j.out[k]] = j.to[k];
    *instr_at(w, at) = NULL;
}

/* ---- a block --------------------------------------------------------------------------------- */

static void skip_copies(const directing *w, int32_t at)
{
    const dra_instr *in = *instr_at(w, at);
    for (int o = 0; in && o < in->n_out; o++)
        if (writes_strides(w, in, o)) skip_copy(w, at, o);
}

static void skip_if_concat(const directing *w, int32_t at)
{
    const dra_instr *in = *instr_at(w, at);
    if (in->op == &dra_op_concat) skip_concat(w, at);
}

static void walk_block(dra_program *p, int32_t block, void (*visit)(const directing *, int32_t))
{
    directing w = {.p = p, .block = block};
    if (!dra_uses_open(&w.uses, p, block)) dra_no_memory(p);
    for (size_t i = 0; i < p->block[block].n && !dra_program_failed(p); i++) visit(&w, (int32_t)i);
    dra_close_gaps(&p->block[block]);
    dra_uses_close(&w.uses);
}

void dra_direct(dra_program *p, int32_t block)
{
    bool any = false;
    for (size_t i = 0; i < p->block[block].n; i++) {
        const dra_kernel *k = p->block[block].instr[i]->kernel;
        any = any || (k && k->strides);
    }
    if (!any) return;
    walk_block(p, block, skip_copies);
    if (!dra_program_failed(p)) walk_block(p, block, skip_if_concat);
}
