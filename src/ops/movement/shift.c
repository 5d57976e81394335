/* shift: y_i = x_(i - by) along an axis, zeros where there is none. repeat: each element n times in
 * a row. Both are made of other ops, which bring kernels and gradients. */
#include "ops/movement/lines.h"

dra_value dra_shift(dra_graph *g, dra_value x, int axis, int64_t by)
{
    const int at = dra_axis_find(g, "shift", x, axis);
    if (at < 0) return (dra_value){0};
    const int64_t   size = dra_type_of(g, x)->shape.dim[at];
    const int64_t   n = by > size || by < -size ? size
                        : by < 0                ? -by
                                                : by; /* elements that fall out */
    const dra_value rest = dra_slice(g, x, at, by < 0 ? n : 0, size - n);
    return dra_pad(g, rest, at, by < 0 ? 0 : n, by < 0 ? n : 0, 0);
}

/* The axis as (size, 1), then seen as (size, n). Where no axis is left for that, those before and
 * those after it become one each. */
dra_value dra_repeat(dra_graph *g, dra_value x, int axis, int64_t n)
{
    const int at = dra_axis_find(g, "repeat", x, axis);
    if (at < 0) return (dra_value){0};
    const dra_shape shape = dra_type_of(g, x)->shape;
    if (n < 0 || (shape.dim[at] && n > INT64_MAX / shape.dim[at])) {
        dra_build_fail(g, "repeat", DRA_ERR_VALUE, "x %s, axis %d, %lld times", dra_type_text(g, x),
                       at, (long long)n);
        return (dra_value){0};
    }
    const bool full = shape.rank == DRA_MAX_RANK;
    dra_shape  split = {0}, result = shape;
    int        one = 0; /* where the new axis stands in split */
    for (int32_t i = 0; i < shape.rank; i++) {
        const bool join = full && i > 0 && i != at && i - 1 != at;
        if (join)
            split.dim[split.rank - 1] *= shape.dim[i];
        else
            split.dim[split.rank++] = shape.dim[i];
        if (i != at) continue;
        one = split.rank;
        split.dim[split.rank++] = 1;
    }
    const dra_value apart = dra_reshape(g, x, split);
    split.dim[one] = n;
    result.dim[at] *= n;
    return dra_reshape(g, dra_broadcast(g, apart, split), result);
}
