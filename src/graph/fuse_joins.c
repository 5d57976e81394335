/* Removes a concat if every reader wants elements of one part only: they then read the parts. For
 * example, a single token reads the token before it, which is kept in the state. */
#include <stdlib.h>

#include "graph/fuse.h"

typedef struct join { /* a concat, its output dense: rows of parts, one after the other */
    const dra_instr *in;
    int64_t          rows, row; /* how many; elements of one */
} join;

static join join_of(const dra_instr *in)
{
    const dra_join_attr *a = in->attr;
    const dra_shape     *s = &in->out[0].tensor.shape;
    join                 j = {in, 1, 1};
    for (int32_t i = 0; i < s->rank; i++) *(i < a->axis ? &j.rows : &j.row) *= s->dim[i];
    return j;
}

static int64_t part_of(const join *j, int k) /* elements of a row */
{
    return dra_shape_count(&j->in->in[k].tensor.shape) / j->rows;
}

/* The part in which element `at` of a row is; *start: where it begins. */
static int find_part(const join *j, int64_t at, int64_t *start)
{
    int k = 0;
    for (*start = 0; k < j->in->n_in && at >= *start + part_of(j, k); k++) *start += part_of(j, k);
    return k;
}

/* The place x of the concat as a place in the part that holds all of it. */
static bool read_part(const join *j, const dra_place *x, dra_place *out)
{
    const int64_t size = (int64_t)dra_dtype_bytes(x->tensor.dtype);
    const int64_t first = x->offset / size, at = first % j->row;
    int64_t       start, end = at;
    const int     k = find_part(j, at, &start);
    if (k == j->in->n_in || !dra_tensor_is_dense(&j->in->in[k].tensor)) return false;
    const int64_t part = part_of(j, k);
    *out = *x;
    for (int32_t i = 0; i < x->tensor.shape.rank; i++) {
        const int64_t n = x->tensor.shape.dim[i], stride = x->tensor.stride[i];
        if (n < 1 || stride < 0) return false;
        if (n == 1) continue;
        if (j->rows > 1 && stride % j->row == 0)
            out->tensor.stride[i] = stride / j->row * part;
        else
            end += (n - 1) * stride;
    }
    if (end >= start + part) return false;
    out->storage = j->in->in[k].storage;
    out->offset = j->in->in[k].offset + (first / j->row * part + at - start) * size;
    return true;
}

/* Whether a kernel that needs a layout still has it. */
static bool suits_as_before(const dra_tensor *before, const dra_tensor *now)
{
    return (!dra_tensor_is_dense(before) || dra_tensor_is_dense(now)) &&
           (!dra_tensor_has_rows(before) || dra_tensor_has_rows(now));
}

/* Checks the inputs that read the concat, or changes them. */
static bool redirect_inputs(const dra_program *p, const join *j, dra_instr *in, bool change)
{
    const int32_t root = dra_root(p, j->in->out[0].storage);
    for (int i = 0; i < in->n_in; i++) {
        dra_place now;
        if (dra_root(p, in->in[i].storage) != root) continue;
        if (!read_part(j, &in->in[i], &now) || !suits_as_before(&in->in[i].tensor, &now.tensor))
            return false;
        if (change) in->in[i] = now;
    }
    return true;
}

static bool dissolve_concat(dra_program *p, const dra_uses *u, dra_code_block *b, size_t at)
{
    const join    j = join_of(b->instr[at]);
    const int32_t root = dra_root(p, j.in->out[0].storage);
    if (j.rows == 0 || j.row == 0 || root < 0 || u->shared[root]) return false;
    for (int change = 0; change < 2; change++)
        for (size_t i = u->first[root]; i < u->end[root]; i++) {
            const size_t reader = (size_t)u->at[i];
            if (reader != at && !redirect_inputs(p, &j, b->instr[reader], change)) return false;
        }
    return true;
}

void dra_fuse_joins(dra_program *p, int32_t block)
{
    dra_code_block *b = &p->block[block];
    dra_uses        u = {0};
    bool            any = false;
    for (size_t i = 0; i < b->n; i++) any = any || b->instr[i]->op == &dra_op_concat;
    if (!any) return;
    if (!dra_uses_open(&u, p, block)) dra_no_memory(p);
    for (size_t i = 0; i < b->n && !dra_program_failed(p); i++)
        if (b->instr[i] && b->instr[i]->op == &dra_op_concat && dissolve_concat(p, &u, b, i))
            b->instr[i] = NULL;
    dra_close_gaps(b);
    dra_uses_close(&u);
}
