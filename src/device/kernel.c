/* Helpers for kernels: rows, layouts, faults. */
#include "device/kernel.h"

#include <stdio.h>
#include <string.h>

/* What the numbers of each kind are called; all are taken as long long. */
static const struct {
    dra_status  code;
    const char *format;
} faults[DRA_FAULT_COUNT] = {
    [DRA_FAULT_INDEX] = {DRA_ERR_INDEX, "index %lld, axis %lld of x has size %lld"},
    [DRA_FAULT_ID] = {DRA_ERR_INDEX, "id %lld, the table has %lld rows"},
    [DRA_FAULT_TARGET] = {DRA_ERR_INDEX, "target %lld of row %lld, expected 0 to %lld"},
    [DRA_FAULT_ROW] = {DRA_ERR_INDEX, "at[%lld, %lld] = %lld, x has %lld rows"},
    [DRA_FAULT_TWICE] = {DRA_ERR_INDEX, "at[%lld, %lld] = %lld names a row a second time"},
    [DRA_FAULT_STEP] = {DRA_ERR_VALUE, "t is %lld, expected 1 for the first step"},
    [DRA_FAULT_FENCE] = {DRA_ERR_DEVICE, "output %lld: wrote outside its memory"},
    [DRA_FAULT_FAR] = {DRA_ERR_VALUE,
                       "position %lld, but with xPos factors stay finite only up to %lld"},
    [DRA_FAULT_PAST] = {DRA_ERR_VALUE,
                        "position %lld, but the frequencies of this model hold up to %lld"},
};

void dra_fault_set(const dra_call *c, int64_t tile, dra_fault_kind kind, const int64_t *numbers)
{
    dra_fault *f = c->fault;
    tile += c->before;
    while (atomic_exchange_explicit(&f->lock, 1, memory_order_acquire)) {}
    if (!atomic_load(&f->kind) || tile < f->tile) {
        memcpy(f->number, numbers, sizeof f->number);
        f->tile = tile;
        f->op = c->op;
        atomic_store(&f->kind, (int)kind);
    }
    atomic_store_explicit(&f->lock, 0, memory_order_release);
}

dra_status dra_fault_error(const dra_fault *f, dra_error *err)
{
    const int kind = atomic_load(&f->kind);
    char      text[128];
    long long n[DRA_FAULT_NUMBERS];
    if (kind == DRA_FAULT_NONE) return DRA_OK;
    for (int i = 0; i < DRA_FAULT_NUMBERS; i++) n[i] = f->number[i];
    snprintf(text, sizeof text, faults[kind].format, n[0], n[1], n[2], n[3]);
    return dra_fail(err, faults[kind].code, "%s: %s", f->op ? f->op : "run", text);
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
    const dra_dtype_info *info = dra_dtype_get(t->dtype);
    double                n = (double)info->block_bytes / (double)info->block_elements;
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
