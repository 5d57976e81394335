/* Outputs of the parts of a call, joined as if the call had been one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "device/array.h"
#include "sequence/segments.h"

void dra_picks_cut(int32_t *to, const dra_join_part *part)
{
    for (int64_t i = 0; i < part->B * part->picks; i++) {
        const int64_t t = part->pick[i] - part->first;
        to[i] = t >= 0 && t < part->n ? (int32_t)t : -1;
    }
}

const dra_joined *dra_joins_find(const dra_joins *j, const char *name)
{
    for (size_t i = 0; i < j->n; i++)
        if (strcmp(j->at[i].name, name) == 0) return &j->at[i];
    return NULL;
}

void dra_joins_free(dra_joins *j)
{
    for (size_t i = 0; i < j->room; i++) free(j->at[i].data);
    free(j->at);
    *j = (dra_joins){0};
}

/* ---- one output ------------------------------------------------------------------------------ */

/* The axis of tokens; -1: there is none. */
static int token_axis(const dra_shape *s) { return s->rank < 2 ? -1 : s->rank == 4 ? 2 : 1; }

static bool is_chosen(const char *name) { return strcmp(name, "logits") == 0; }

/* How many tokens an output of the whole call has. */
static int64_t count_tokens(const char *name, const dra_join_part *p)
{
    if (!is_chosen(name)) return p->T;
    return p->picks > 0 ? p->picks : p->keep > 0 ? dra_imin(p->keep, p->T) : p->T;
}

/* The place in the call's output of token i of a part's output, which has `from` tokens; -1:
 * none. */
static int64_t place_of(const char *name, const dra_join_part *p, int64_t b, int64_t i,
                        int64_t from)
{
    if (is_chosen(name) && p->picks > 0) {
        const int64_t t = p->pick[b * p->picks + i] - p->first;
        return t >= 0 && t < p->n ? i : -1;
    }
    const int64_t t = p->first + p->n - from + i; /* in the call */
    return dra_imax(-1, t - (p->T - count_tokens(name, p)));
}

static void paste_part(dra_joined *j, const dra_join_part *p, const dra_shape *from,
                       const unsigned char *data)
{
    const int     axis = token_axis(from);
    const int64_t n = from->dim[axis], all = j->shape.dim[axis];
    size_t        each = dra_dtype_bytes(j->dtype);
    int64_t       rows = 1; /* before the axis */
    for (int i = 0; i < axis; i++) rows *= from->dim[i];
    for (int i = axis + 1; i < from->rank; i++) each *= (size_t)from->dim[i];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = place_of(j->name, p, r * from->dim[0] / rows, i, n);
            if (at >= 0)
                memcpy(j->data + (size_t)(r * all + at) * each, data + (size_t)(r * n + i) * each,
                       each);
        }
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Makes room for the output of a whole call; NULL: no memory. */
static dra_joined *open_joined(dra_joins *j, const char *name, dra_dtype dtype, dra_shape shape,
                               const dra_join_part *part)
{
    const int axis = token_axis(&shape);
    if (j->n == j->room) {
        dra_joined *grown = realloc(j->at, (j->room + 1) * sizeof *grown);
        if (!grown) return NULL;
        j->at = grown;
        j->at[j->room++] = (dra_joined){0};
    }
    dra_joined *one = &j->at[j->n];
    if (axis >= 0) shape.dim[axis] = count_tokens(name, part);
    const size_t need = (size_t)dra_shape_count(&shape) * dra_dtype_bytes(dtype) + 1;
    if (need > one->room) {
        unsigned char *data = realloc(one->data, need);
        if (!data) return NULL;
        one->data = data;
        one->room = need;
    }
    snprintf(one->name, sizeof one->name, "%s", name);
    one->dtype = dtype;
    one->shape = shape;
    memset(one->data, 0, need);
    j->n++;
    return one;
}

dra_status dra_joins_add(dra_joins *j, const dra_session *s, const dra_join_part *part,
                         dra_error *err)
{
    dra_dtype   dtype;
    dra_shape   shape;
    const char *name;
    dra_status  st = DRA_OK;
    if (part->first == 0) j->n = 0;
    for (size_t i = 0; st == DRA_OK && (name = dra_session_result_at(s, i, &dtype, &shape)); i++) {
        dra_joined *one = part->first == 0 ? open_joined(j, name, dtype, shape, part)
                                           : (dra_joined *)(uintptr_t)dra_joins_find(j, name);
        void       *copy = NULL;
        size_t      room = 0;
        if (!one) return dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
        const void *seen = dra_span_see(dra_session_result(s, name), &copy, &room, err);
        if (!seen)
            st = DRA_ERR_MEMORY;
        else if (token_axis(&shape) >= 0)
            paste_part(one, part, &shape, seen);
        else
            memcpy(one->data, seen, (size_t)dra_shape_count(&shape) * dra_dtype_bytes(dtype));
        free(copy);
    }
    return st;
}
