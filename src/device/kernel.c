/* Helpers for kernels: rows, layouts, faults. */
#include "device/kernel.h"

#include <stdio.h>

void dra_fault_set(const dra_call *c, int64_t tile, dra_status code, const char *format, ...)
{
    dra_fault *f = c->fault;
    while (atomic_flag_test_and_set_explicit(&f->lock, memory_order_acquire)) {}
    if (!atomic_load(&f->set) || tile < f->tile) {
        va_list args;
        va_start(args, format);
        vsnprintf(f->text, sizeof f->text, format, args);
        va_end(args);
        f->tile = tile;
        f->code = code;
        atomic_store(&f->set, true);
    }
    atomic_flag_clear_explicit(&f->lock, memory_order_release);
}

int64_t dra_rows(const dra_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i + 1 < t->shape.rank; i++) n *= t->shape.dim[i];
    return n;
}

int64_t dra_row_offset(const dra_tensor *t, int64_t r)
{
    int64_t offset = 0;
    for (int32_t i = t->shape.rank - 2; i >= 0; i--) {
        offset += r % t->shape.dim[i] * t->stride[i];
        r /= t->shape.dim[i];
    }
    return offset;
}

double dra_tensor_bytes(const dra_tensor *t)
{
    double n = (double)dra_dtype_bytes(t->dtype);
    for (int32_t i = 0; i < t->shape.rank; i++)
        if (t->stride[i] != 0 || t->shape.dim[i] == 0) n *= (double)t->shape.dim[i];
    return n;
}

double dra_call_bytes(const dra_call *c)
{
    double n = 0;
    for (int i = 0; i < c->n_in; i++) n += dra_tensor_bytes(&c->in[i]);
    for (int i = 0; i < c->n_out; i++) n += c->out[i].data ? dra_tensor_bytes(&c->out[i]) : 0;
    return n;
}

bool dra_tensor_has_rows(const dra_tensor *t)
{
    const int32_t rank = t->shape.rank;
    return rank == 0 || t->shape.dim[rank - 1] <= 1 || t->stride[rank - 1] == 1;
}

bool dra_tensor_is_dense(const dra_tensor *t)
{
    int64_t want = 1;
    for (int32_t i = t->shape.rank - 1; i >= 0; i--) {
        if (t->shape.dim[i] != 1 && t->stride[i] != want) return false;
        want *= t->shape.dim[i];
    }
    return true;
}

void dra_tensor_make_dense(dra_tensor *t)
{
    int64_t stride = 1;
    for (int32_t i = t->shape.rank - 1; i >= 0; i--) {
        t->stride[i] = stride;
        stride *= t->shape.dim[i];
    }
}
