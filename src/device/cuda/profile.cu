/* Times of kernels, by an event before and one after each. They are read at the end of a block, or
 * when there are many: the host does not wait in between, so that what is between two events is
 * the time of a kernel and not that of starting it. */
#include "device/cuda/device.cuh"

#include <stdlib.h>

enum { MARKS = 1024, INPUTS = 32 };

struct mark {
    const dra_instr *in;
    cudaEvent_t      before, after;
};

struct dra_cuda_profile {
    mark marks[MARKS];
    int  made, n; /* with events, and of them in use */
};

static cudaError_t record_mark(dra_cuda_profile *p, const dra_instr *in, cudaStream_t stream)
{
    mark       *m = &p->marks[p->n];
    cudaError_t error = cudaSuccess;
    if (p->n == p->made) {
        error = cudaEventCreateWithFlags(&m->before, cudaEventDefault);
        if (error == cudaSuccess) error = cudaEventCreateWithFlags(&m->after, cudaEventDefault);
        p->made += error == cudaSuccess;
    }
    m->in = in;
    return error == cudaSuccess ? cudaEventRecord(m->before, stream) : error;
}

void dra_cuda_profile_before(dra_cuda_walk *w, const dra_instr *in)
{
    dra_cuda_device *d = w->device;
    if (!d->profile) d->profile = static_cast<dra_cuda_profile *>(calloc(1, sizeof *d->profile));
    if (!d->profile) {
        w->status = dra_fail(w->err, DRA_ERR_MEMORY, "cuda device: out of memory");
        return;
    }
    if (d->profile->n == MARKS) dra_cuda_profile_read(w);
    if (w->status == DRA_OK)
        w->status = dra_cuda_check(d, in->name, record_mark(d->profile, in, w->context.stream),
                                   w->err);
}

void dra_cuda_profile_after(dra_cuda_walk *w)
{
    dra_cuda_profile *p = w->device->profile;
    if (w->status != DRA_OK) return;
    mark *m = &p->marks[p->n++];
    w->status = dra_cuda_check(w->device, m->in->name, cudaEventRecord(m->after, w->context.stream),
                               w->err);
}

/* Costs of attention count what queries see, in integers that they read: t becomes a copy on the
 * host, to be freed. */
static cudaError_t bring_down(dra_cuda_walk *w, dra_tensor *t, int32_t **copy)
{
    int64_t first = 0, last = 0; /* elements from t->data */
    for (int32_t k = 0; k < t->shape.rank; k++) {
        const int64_t step = (t->shape.dim[k] - 1) * t->stride[k];
        *(step < 0 ? &first : &last) += step;
    }
    const size_t bytes = (size_t)(last - first + 1) * sizeof **copy;
    *copy = static_cast<int32_t *>(malloc(bytes));
    if (!*copy) return cudaErrorMemoryAllocation;
    cudaError_t error = cudaMemcpyAsync(*copy, static_cast<int32_t *>(t->data) + first, bytes,
                                        cudaMemcpyDeviceToHost, w->context.stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(w->context.stream);
    t->data = *copy - first;
    return error;
}

static cudaError_t report(dra_cuda_walk *w, const dra_instr *in, double seconds)
{
    const dra_call c = dra_cuda_call(w, in);
    dra_tensor    *t = w->l->tensors + in->tensors; /* those of c */
    int32_t       *copy[INPUTS] = {};
    cudaError_t    error = cudaSuccess;
    for (int i = 0; i < c.n_in && i < INPUTS && error == cudaSuccess; i++)
        if (t[i].dtype == DRA_I32 && dra_shape_count(&t[i].shape) > 0)
            error = bring_down(w, &t[i], &copy[i]);
    if (error == cudaSuccess) w->l->profile(w->l->user, in, &c, seconds);
    for (int32_t *at : copy) free(at);
    return error;
}

void dra_cuda_profile_read(dra_cuda_walk *w)
{
    dra_cuda_profile *p = w->device->profile;
    if (!p) return;
    for (int i = 0; i < p->n && w->status == DRA_OK; i++) {
        const mark *m = &p->marks[i];
        float       ms = 0;
        cudaError_t error = cudaEventSynchronize(m->after);
        if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, m->before, m->after);
        if (error == cudaSuccess) error = report(w, m->in, 1e-3 * (double)ms);
        w->status = dra_cuda_check(w->device, m->in->name, error, w->err);
    }
    p->n = 0;
}

void dra_cuda_profile_close(dra_cuda_device *d)
{
    dra_cuda_profile *p = d->profile;
    for (int i = 0; p && i < p->made; i++) {
        cudaEventDestroy(p->marks[i].before);
        cudaEventDestroy(p->marks[i].after);
    }
    free(p);
}
