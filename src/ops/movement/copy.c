/* copy: y = x, dense. cast: y = x in another dtype. */
#include <string.h>

#include "ops/common.h"

/* ---- copy ------------------------------------------------------------------------------------ */

static dra_status copy_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = *dra_type_of(g, n->in[0]);
    return DRA_OK;
}

static void copy_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dx[0] = dy[0];
}

/* Elements of 4 bytes, the common size, as a plain loop; the others by their bytes. */
void dra_copy_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const int64_t        size = (int64_t)dra_dtype_bytes(c->out[0].dtype);
    unsigned char       *y = ptr[0];
    const unsigned char *x = ptr[1];
    if (step[1] == 1 && step[0] == 1) {
        memmove(y, x, (size_t)(n * size)); /* a donated copy may start and end in one place */
    } else if (size == 4) {
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)ptr[0])[i * step[0]] = ((const uint32_t *)ptr[1])[i * step[1]];
    } else {
        for (int64_t i = 0; i < n; i++)
            memcpy(y + i * step[0] * size, x + i * step[1] * size, (size_t)size);
    }
}

static void copy_tile(const dra_call *c, int64_t i) { dra_pointwise_tile(c, i, dra_copy_row); }

const dra_op dra_op_copy = {
    .name = "copy", .n_in = 1, .n_out = 1, .infer = copy_infer, .gradient = copy_gradient};

const dra_cpu_kernel dra_cpu_copy = {
    .base = {.op = "copy", .dtypes = DRA_ANY_DTYPE},
    .tiles = dra_pointwise_tiles,
    .tile = copy_tile,
};

dra_value dra_copy(dra_graph *g, dra_value x) { return dra_add_op(g, &dra_op_copy, 1, &x, NULL); }

/* ---- cast ------------------------------------------------------------------------------------ */

static dra_status cast_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = *dra_type_of(g, n->in[0]);
    out->dtype = ((const dra_cast_attr *)n->attr)->dtype;
    return DRA_OK;
}

/* The gradient of a float value is real whatever its own dtype, so it passes as it is. */
static void cast_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    if (dra_is_float(g, n->in[0])) dx[0] = dy[0];
}

/* Through double: exact for every dtype we have. */
static double load_element(dra_dtype t, const void *p)
{
    switch (t) {
    case DRA_F32: return *(const float *)p;
    case DRA_F64: return *(const double *)p;
    case DRA_BF16: return dra_bf16_to_f32(*(const uint16_t *)p);
    case DRA_F16: return dra_f16_to_f32(*(const uint16_t *)p);
    case DRA_I32: return *(const int32_t *)p;
    case DRA_BOOL: return *(const uint8_t *)p != 0;
    default: break; /* quantised elements have no address */
    }
    return 0;
}

static void narrow_row(int64_t n, const float *x, uint16_t *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = dra_f32_to_bf16(x[i]);
}

static void widen_row(int64_t n, const uint16_t *x, float *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = dra_bf16_to_f32(x[i]);
}

static void cast_row(const dra_call *c, int64_t n, void *const *ptr, const int64_t *step)
{
    const dra_dtype      to = c->out[0].dtype, from = c->in[0].dtype;
    const bool           close = step[0] == 1 && step[1] == 1;
    unsigned char       *y = ptr[0];
    const unsigned char *x = ptr[1];
    if (close && from == DRA_F32 && to == DRA_BF16) {
        narrow_row(n, ptr[1], ptr[0]);
        return;
    }
    if (close && from == DRA_BF16 && to == DRA_F32) {
        widen_row(n, ptr[1], ptr[0]);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        dra_store_number(to, y + i * step[0] * (int64_t)dra_dtype_bytes(to),
                         load_element(from, x + i * step[1] * (int64_t)dra_dtype_bytes(from)));
}

static void cast_tile(const dra_call *c, int64_t i) { dra_pointwise_tile(c, i, cast_row); }

const dra_op dra_op_cast = {.name = "cast",
                            .n_in = 1,
                            .n_out = 1,
                            .attr_size = sizeof(dra_cast_attr),
                            .infer = cast_infer,
                            .gradient = cast_gradient,
                            .cost = dra_pointwise_cost};

const dra_cpu_kernel dra_cpu_cast = {
    .base = {.op = "cast", .dtypes = DRA_ANY_DTYPE},
    .tiles = dra_pointwise_tiles,
    .tile = cast_tile,
};

dra_value dra_cast(dra_graph *g, dra_value x, dra_dtype dtype)
{
    if (!dra_check_values(g, "cast", 1, &x)) return (dra_value){0};
    if (dra_type_of(g, x)->dtype == dtype) return x;
    return dra_add_op(g, &dra_op_cast, 1, &x, &(dra_cast_attr){dtype});
}
