/* Times of kernels, by an event before and one after each. They are read at the end of a block, or
 * when there are many: the host does not wait in between, so that what lies between two events is
 * the time of a kernel and not that of starting it. */
#include "cuda/device.h"

#include <stdlib.h>

enum { MARKS = 1024 };

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

void dra_cuda_profile_read(dra_cuda_walk *w)
{
    dra_cuda_profile *p = w->device->profile;
    if (!p) return;
    for (int i = 0; i < p->n && w->status == DRA_OK; i++) {
        const mark    *m = &p->marks[i];
        const dra_call c = dra_cuda_call(w, m->in);
        float          ms = 0;
        cudaError_t    error = cudaEventSynchronize(m->after);
        if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, m->before, m->after);
        w->status = dra_cuda_check(w->device, m->in->name, error, w->err);
        w->l->profile(w->l->user, m->in, &c, 1e-3 * (double)ms);
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
