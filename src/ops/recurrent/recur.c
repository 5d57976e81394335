/* The parts of recurrences over time that build and check. */
#include "ops/recurrent/recur.h"

bool dra_recur_expect(dra_graph *g, const char *op, const char *name, dra_value v, dra_dtype dtype,
                      dra_shape shape)
{
    const dra_type *t = dra_type_of(g, v);
    char            text[64];
    if (t->dtype == dtype && dra_shape_equal(&t->shape, &shape)) return true;
    dra_build_fail(g, op, t->dtype == dtype ? DRA_ERR_SHAPE : DRA_ERR_DTYPE,
                   "%s is %s, expected %s %s", name, dra_type_text(g, v),
                   dra_dtype_get(dtype)->name, dra_shape_text(&shape, text, sizeof text));
    return false;
}

dra_value dra_recur_upstream(dra_graph *g, dra_value dy, dra_value x)
{
    return dy.id ? dy : dra_zeros(g, dra_type_of(g, x)->shape);
}
