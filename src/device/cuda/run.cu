/* Running a block: its instructions one by one into a stream, see graphs.cu for what happens with
 * that, and scan.cu for scans. */
#include "device/cuda/device.cuh"

#include <stdlib.h>
#include <string.h>

typedef dra_cuda_walk walk;

static void check(walk *w, const char *what, cudaError_t error)
{
    if (w->status == DRA_OK) w->status = dra_cuda_check(w->device, what, error, w->err);
}

static void check_launch(walk *w, const char *what)
{
    check(w, what, cudaPeekAtLastError());
    if (w->status == DRA_OK && w->context.failure)
        w->status = dra_fail(w->err, DRA_ERR_DEVICE, "cuda:%d: %s: %s", w->device->number, what,
                             w->context.failure);
}

void dra_cuda_copy_bytes(walk *w, void *to, const void *from, size_t bytes)
{
    if (bytes)
        check(w, "copy",
              cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, w->context.stream));
}

/* ---- fences, for tests: see dra_compile_fenced() --------------------------------------------- */

enum { FENCE = 0xA5, UNWRITTEN = 0xFF };

static unsigned char *fenced(const dra_launch *l, const dra_instr *in, int i, size_t *bytes)
{
    const dra_place *out = &in->out[i];
    if (out->storage < 0) return nullptr;
    const dra_storage *s = &l->storage[out->storage];
    for (int k = 0; k < in->n_in; k++)
        if (in->in[k].storage == out->storage) return nullptr;
    *bytes = s->bytes;
    return s->kind == DRA_STORAGE_LOCAL ? l->base[out->storage] : nullptr;
}

static void set_bytes(walk *w, void *at, int value, size_t bytes)
{
    if (bytes) check(w, "fence", cudaMemsetAsync(at, value, bytes, w->context.stream));
}

static void raise_fences(walk *w, const dra_instr *in)
{
    const size_t fence = w->l->fence;
    for (int i = 0; i < in->n_out; i++) {
        size_t         bytes;
        unsigned char *at = fenced(w->l, in, i, &bytes);
        if (!at) continue;
        set_bytes(w, at - fence, FENCE, fence);
        set_bytes(w, at, UNWRITTEN, bytes);
        set_bytes(w, at + bytes, FENCE, fence);
    }
}

__global__ static void check_fence(dra_fault_place f, int output, const unsigned char *at,
                                   size_t bytes, size_t fence)
{
    for (size_t k = threadIdx.x; k < fence; k += blockDim.x)
        if (at[bytes + k] != FENCE || (at - fence)[k] != FENCE)
            dra_fault_raise(f, output, DRA_FAULT_FENCE, output);
}

static void check_fences(walk *w, const dra_instr *in, const dra_call *c)
{
    for (int i = 0; i < in->n_out; i++) {
        size_t               bytes;
        const unsigned char *at = fenced(w->l, in, i, &bytes);
        if (at) DRA_LAUNCH(c, check_fence, 1, 32, 0, dra_fault_of(c), i, at, bytes, w->l->fence);
    }
}

/* ---- instructions ---------------------------------------------------------------------------- */

static void start_kernel(walk *w, const dra_instr *in, const dra_call *c)
{
    const dra_cuda_kernel *k = reinterpret_cast<const dra_cuda_kernel *>(in->kernel);
    bool                   any = k->empty;
    for (int i = 0; i < in->n_out; i++) any = any || dra_shape_count(&c->out[i].shape) > 0;
    if (w->l->fence) raise_fences(w, in);
    if (any) k->launch(c);
    check_launch(w, in->name);
    if (w->checks) check(w, in->name, cudaStreamSynchronize(w->context.stream));
    if (w->l->fence) check_fences(w, in, c);
}

dra_call dra_cuda_call(const walk *w, const dra_instr *in)
{
    const dra_launch *l = w->l;
    dra_tensor       *t = l->tensors + in->tensors;
    for (int i = 0; i < in->n_in; i++) t[i].data = dra_place_address(l, &in->in[i]);
    for (int i = 0; i < in->n_out; i++) t[in->n_in + i].data = dra_place_address(l, &in->out[i]);
    dra_call c = {};
    c.attr = in->attr;
    c.in = t;
    c.out = t + in->n_in;
    c.n_in = in->n_in;
    c.n_out = in->n_out;
    c.scratch = in->scratch >= 0 ? l->base[in->scratch] : nullptr;
    c.context = &w->context;
    c.threads = 1;
    c.op = in->name;
    c.fault = l->fault;
    return c;
}

static void run_kernel(walk *w, const dra_instr *in)
{
    const dra_call c = dra_cuda_call(w, in);
    if (w->l->profile) dra_cuda_profile_before(w, in);
    if (w->status == DRA_OK) start_kernel(w, in, &c);
    if (w->l->profile) dra_cuda_profile_after(w);
}

/* ---- regions --------------------------------------------------------------------------------- */

/* Outside of a graph the host has to look at the flag. */
static void run_cond(walk *w, const dra_region *r)
{
    if (w->captures) {
        check(w, "cond", dra_cuda_capture_cond(w, r));
        return;
    }
    int32_t flag = 0;
    check(w, "cond",
          cudaMemcpyAsync(&flag, dra_place_address(w->l, &r->flag), sizeof flag,
                          cudaMemcpyDeviceToHost, w->context.stream));
    __atomic_fetch_add(&w->device->base.waits, 1, __ATOMIC_RELAXED);
    check(w, "cond", cudaStreamSynchronize(w->context.stream));
    if (w->status == DRA_OK) dra_cuda_walk_block(w, flag ? r->block : r->otherwise);
}

static void run_instruction(walk *w, const dra_instr *in)
{
    if (in->kernel)
        run_kernel(w, in);
    else if (in->region->kind == DRA_REGION_SCAN)
        dra_cuda_run_scan(w, in->region);
    else
        run_cond(w, in->region);
}

/* What a region starts comes one after the other; bodies may have an order of their own. */
static void run_in_order(walk *w, const dra_instr *in)
{
    dra_cuda_order *order = w->context.order;
    dra_cuda_order_begin(w, in);
    if (in->region) w->context.order = nullptr;
    run_instruction(w, in);
    w->context.order = order;
    dra_cuda_order_end(w);
}

void dra_cuda_walk_block(walk *w, int32_t block)
{
    const dra_code_block *k = &w->l->block[block];
    for (size_t i = 0; i < k->n && w->status == DRA_OK; i++)
        if (w->context.order)
            run_in_order(w, k->instr[i]);
        else
            run_instruction(w, k->instr[i]);
}

dra_status dra_cuda_run(dra_device *base, const dra_launch *l, int32_t block, dra_error *err)
{
    dra_cuda_device *d = reinterpret_cast<dra_cuda_device *>(base);
    cudaSetDevice(d->number);
    pthread_mutex_lock(&d->lock);
    const dra_status st = dra_cuda_start(d, l, block, err);
    pthread_mutex_unlock(&d->lock);
    return st;
}
