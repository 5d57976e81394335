/* concat: tensors one after the other along an axis. pad: new elements before and after. Both fill
 * the output part by part, see move.cuh. */
#include "device/cuda/stored.cuh"
#include "ops/movement/move.cuh"

#include <string.h>

extern "C" {
#include "graph/op.h"
}

/* Rows [start, start + n) of the axis of y. */
static dra_tensor rows_of(const dra_tensor *y, int axis, int64_t start, int64_t n)
{
    dra_tensor t = *y;
    t.shape.dim[axis] = n;
    t.data = static_cast<unsigned char *>(y->data) +
             start * y->stride[axis] * (int64_t)dra_dtype_bytes(y->dtype);
    return t;
}

__global__ static void round_kernel(const dra_view to, const dra_view from, int64_t n)
{
    DRA_EACH(i, n)
    dra_store_real<1>(to.data, true, dra_offset(to, i),
                      dra_data<const float>(from) + dra_offset(from, i));
}

/* Floats of a part of an output that others have made narrow, see graph/narrow.c. */
static void round_part(const dra_call *c, const dra_cuda_part &p)
{
    const int64_t n = dra_shape_count(&p.to.shape);
    if (n == 0) return;
    DRA_LAUNCH(c, round_kernel, dra_grid(c, n, DRA_THREADS), DRA_THREADS, 0, dra_view_of(&p.to),
               dra_view_of(&p.from), n);
}

static void concat_launch(const dra_call *c)
{
    enum { SOME = 32 };
    const int     axis = static_cast<const dra_join_attr *>(c->attr)->axis;
    dra_cuda_part part[SOME];
    int64_t       start = 0;
    int           parts = 0;
    for (int i = 0; i < c->n_in; i++) {
        const int64_t n = c->in[i].shape.dim[axis];
        part[parts] = {rows_of(&c->out[0], axis, start, n), c->in[i]};
        start += n;
        if (part[parts].from.dtype == part[parts].to.dtype)
            parts++;
        else
            round_part(c, part[parts]);
        if (!parts || (parts < SOME && i < c->n_in - 1)) continue;
        dra_cuda_move(c, parts, part, nullptr);
        parts = 0;
    }
}

static uint32_t concat_rounds(const dra_call *c) { return c->out[0].dtype == DRA_BF16 ? ~0u : 0; }

static uint32_t concat_narrows(const dra_call *) { return 1; }

const dra_cuda_kernel dra_cuda_concat = {{"concat", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 0, false,
                                          nullptr, nullptr, concat_rounds, concat_narrows, true},
                                         concat_launch,
                                         false};

/* One element, as it is stored. */
static void store_number(dra_dtype dtype, void *to, double x)
{
    const float    f = (float)x;
    const int32_t  i = x != x ? 0 : (int32_t)fmin(fmax(x, INT32_MIN), INT32_MAX);
    const uint16_t half = dtype == DRA_BF16 ? dra_f32_to_bf16(dra_round_to_odd(x))
                                            : dra_f32_to_f16(dra_round_to_odd(x));
    const uint8_t  truth = x != 0;
    const void    *from = dtype == DRA_F32    ? static_cast<const void *>(&f)
                          : dtype == DRA_F64  ? static_cast<const void *>(&x)
                          : dtype == DRA_I32  ? static_cast<const void *>(&i)
                          : dtype == DRA_BOOL ? static_cast<const void *>(&truth)
                                              : static_cast<const void *>(&half);
    memcpy(to, from, dra_dtype_bytes(dtype));
}

static void pad_launch(const dra_call *c)
{
    const dra_join_attr *a = static_cast<const dra_join_attr *>(c->attr);
    const dra_tensor    *x = &c->in[0], *y = &c->out[0];
    const int64_t        n = x->shape.dim[a->axis];
    dra_cuda_part        part[3] = {{rows_of(y, a->axis, a->before, n), *x},
                                    {rows_of(y, a->axis, 0, a->before), {}},
                                    {rows_of(y, a->axis, a->before + n, a->after), {}}};
    double               fill = 0; /* room for a number of any dtype */
    store_number(y->dtype, &fill, a->fill);
    dra_cuda_move(c, 3, part, &fill);
}

const dra_cuda_kernel dra_cuda_pad = {
    {"pad", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 0, false, nullptr, nullptr}, pad_launch, false};
