/* copy: y = x, dense; and all other moves of elements, see move.h. A thread moves 16 bytes at a time
 * where the innermost axes of both sides allow it. */
#include "cuda/move.h"

#include <string.h>

/* ---- wider elements -------------------------------------------------------------------------- */

static bool widens(const dra_view *v, int64_t n, int64_t by, int bytes)
{
    const int64_t inner = v->rank ? v->dim[0] : n;
    bool fits = inner % by == 0 && reinterpret_cast<uintptr_t>(v->data) % (uintptr_t)bytes == 0;
    for (int32_t i = 0; i < v->rank; i++)
        fits = fits && (i ? v->stride[i] % by == 0 : v->stride[0] == 1);
    return fits;
}

static void widen(dra_view *v, int64_t by)
{
    for (int32_t i = 1; i < v->rank; i++) v->stride[i] /= by;
    if (v->rank) v->dim[0] /= by;
}

int dra_cuda_widen(int bytes, int views, dra_view *const *v, int64_t *n)
{
    for (int wide = 16; wide > bytes; wide /= 2) {
        const int64_t by = wide / bytes;
        bool          fits = true;
        for (int i = 0; i < views && fits; i++) fits = widens(v[i], n[i], by, wide);
        if (!fits) continue;
        for (int i = 0; i < views; i++) {
            widen(v[i], by);
            n[i] /= by;
        }
        return wide;
    }
    return bytes;
}

/* ---- moves ----------------------------------------------------------------------------------- */

enum { PARTS = 8 }; /* of one launch: they are its arguments */

struct moves {
    int      parts;
    int64_t  n[PARTS];
    dra_view to[PARTS], from[PARTS];
};

template <typename T> __global__ static void move_kernel(const moves m, T fill)
{
    const int k = (int)blockIdx.y;
    T *const  to = dra_data<T>(m.to[k]);
    if (m.from[k].data) DRA_EACH(i, m.n[k])
    to[dra_offset(m.to[k], i)] = dra_data<const T>(m.from[k])[dra_offset(m.from[k], i)];
    else DRA_EACH(i, m.n[k]) to[dra_offset(m.to[k], i)] = fill;
}

struct number { /* one of any dtype, again and again */
    unsigned char byte[16];
};

template <typename T> static void start(const dra_call *c, const moves *m, const number *fill)
{
    int64_t most = 0;
    T       value;
    memcpy(&value, fill, sizeof value);
    for (int k = 0; k < m->parts; k++) most = dra_imax(most, m->n[k]);
    DRA_LAUNCH(c, move_kernel<T>, dim3(dra_grid(c, most, DRA_THREADS), (unsigned)m->parts),
               DRA_THREADS, 0, *m, value);
}

/* As wide as all parts allow. */
static void start_moves(const dra_call *c, moves *m, int bytes, const number *fill)
{
    dra_view *view[2 * PARTS];
    int64_t   n[2 * PARTS];
    int       views = 0;
    for (int k = 0; k < m->parts; k++) {
        view[views] = &m->to[k], n[views++] = m->n[k];
        if (m->from[k].data) view[views] = &m->from[k], n[views++] = m->n[k];
    }
    const int wide = dra_cuda_widen(bytes, views, view, n);
    for (int k = 0; k < m->parts; k++) m->n[k] /= wide / bytes;
    DRA_BY_BYTES(wide, start, c, m, fill);
}

void dra_cuda_move(const dra_call *c, int n, const dra_cuda_part *part, const void *fill)
{
    const int bytes = (int)dra_dtype_bytes(part[0].to.dtype);
    moves     m = {};
    number    all = {};
    for (int i = 0; fill && i < 16; i++)
        all.byte[i] = static_cast<const unsigned char *>(fill)[i % bytes];
    for (int k = 0; k < n; k++) {
        const int64_t count = dra_shape_count(&part[k].to.shape);
        if (count) {
            m.n[m.parts] = count;
            m.to[m.parts] = dra_view_of(&part[k].to);
            m.from[m.parts++] = dra_view_of(&part[k].from);
        }
        if (m.parts == PARTS || (m.parts && k == n - 1)) {
            start_moves(c, &m, bytes, &all);
            m.parts = 0;
        }
    }
}

static void launch(const dra_call *c)
{
    if (c->in[0].data == c->out[0].data && dra_tensor_is_dense(&c->in[0])) return; /* donated */
    const dra_cuda_part part = {c->out[0], c->in[0]};
    dra_cuda_move(c, 1, &part, nullptr);
}

const dra_cuda_kernel dra_cuda_copy = {
    {"copy", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 0, false, nullptr, nullptr}, launch, false};
