/* The order of kernels in a graph that is being captured: a kernel waits for those whose numbers it
 * needs or overwrites, and for no others, so that small ones run side by side. Who that is follows
 * from the addresses of an instruction's operands and scratch, in memory as it was planned. A
 * region counts as if it touched all memory. */
#include "device/cuda/device.cuh"
extern "C" {
#include "base/shape.h"
#include "device/hazards.h"
}

#include <stdlib.h>

#ifdef __CUDACC__

struct dra_cuda_order {
    dra_hazards     *hazards;
    cudaGraphNode_t *node; /* by number: the last one of an instruction */
    size_t           n, room;
    cudaGraphNode_t  first; /* an empty node, for who waits for nobody */
    cudaGraphNode_t *after; /* of the instruction that has begun */
    size_t           n_after, after_room;
    cudaError_t      error;
};

static bool add_to(dra_cuda_order *o, cudaGraphNode_t *&list, size_t &n, size_t &room,
                   cudaGraphNode_t node)
{
    if (n == room) {
        const size_t more = room ? 2 * room : 64;
        void        *grown = realloc(list, more * sizeof *list);
        if (!grown) o->error = cudaErrorMemoryAllocation;
        if (!grown) return false;
        list = static_cast<cudaGraphNode_t *>(grown);
        room = more;
    }
    list[n++] = node;
    return true;
}

/* ---- the stream ------------------------------------------------------------------------------ */

/* The node that the stream would continue after; NULL: none, or several. */
static cudaGraphNode_t last_node(dra_cuda_order *o, cudaStream_t stream, cudaGraph_t *graph)
{
    cudaStreamCaptureStatus  status;
    unsigned long long       id;
    const cudaGraphNode_t   *node = nullptr;
    const cudaGraphEdgeData *edges;
    size_t                   n = 0;
    const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &id, graph, &node, &edges,
                                                       &n);
    if (error != cudaSuccess) o->error = error;
    return error == cudaSuccess && n == 1 ? node[0] : nullptr;
}

/* The stream continues after the nodes that are waited for: these take the place of what it had, or
 * are added to it. */
static void set_after(dra_cuda_order *o, cudaStream_t stream, unsigned how)
{
    const size_t *wait;
    const size_t  n = dra_hazards_waits(o->hazards, &wait);
    o->n_after = 0;
    for (size_t i = 0; i < n; i++) add_to(o, o->after, o->n_after, o->after_room, o->node[wait[i]]);
    if (n == 0) add_to(o, o->after, o->n_after, o->after_room, o->first);
    if (o->error == cudaSuccess)
        o->error = cudaStreamUpdateCaptureDependencies(stream, o->after, nullptr, o->n_after, how);
}

dra_cuda_order *dra_cuda_order_open(cudaStream_t stream)
{
    dra_cuda_order *o = static_cast<dra_cuda_order *>(calloc(1, sizeof *o));
    cudaGraph_t     graph = nullptr;
    if (!o) return nullptr;
    o->hazards = dra_hazards_open();
    if (!o->hazards) o->error = cudaErrorMemoryAllocation;
    last_node(o, stream, &graph);
    if (o->error == cudaSuccess) o->error = cudaGraphAddEmptyNode(&o->first, graph, nullptr, 0);
    return o;
}

cudaError_t dra_cuda_order_close(dra_cuda_order *o)
{
    if (!o) return cudaErrorMemoryAllocation;
    const cudaError_t error = o->error;
    dra_hazards_close(o->hazards);
    free(o->node);
    free(o->after);
    free(o);
    return error;
}

/* ---- instructions ---------------------------------------------------------------------------- */

static bool touch(dra_cuda_order *o, const void *at, int64_t from, int64_t to, bool writes)
{
    const uintptr_t a = reinterpret_cast<uintptr_t>(at);
    return dra_hazards_touch(o->hazards, a + (uintptr_t)from, a + (uintptr_t)to, writes);
}

/* All that a place may be: its storage, and where its strides lead. */
static void touch_place(dra_cuda_order *o, const dra_launch *l, const dra_place *p, bool writes)
{
    if (p->storage < 0 || !l->base[p->storage]) return;
    const dra_tensor *t = &p->tensor;
    const int64_t     size = (int64_t)dra_dtype_bytes(t->dtype);
    const int64_t     bytes = (int64_t)l->storage[p->storage].bytes;
    int64_t           from = p->offset, to = p->offset + size;
    for (int i = 0; i < t->shape.rank; i++) {
        if (t->shape.dim[i] == 0) return;
        const int64_t reach = (t->shape.dim[i] - 1) * t->stride[i] * size;
        (reach < 0 ? from : to) += reach;
    }
    touch(o, l->base[p->storage], from < 0 ? from : 0, to > bytes ? to : bytes, writes);
}

void dra_cuda_order_begin(const dra_cuda_walk *w, const dra_instr *in)
{
    dra_cuda_order   *o = w->context.order;
    const dra_launch *l = w->l;
    if (o->error != cudaSuccess) return;
    dra_hazards_begin(o->hazards);
    if (in->region) {
        dra_hazards_touch(o->hazards, 0, UINTPTR_MAX, true);
    } else {
        for (int i = 0; i < in->n_in; i++) touch_place(o, l, &in->in[i], false);
        for (int i = 0; i < in->n_out; i++) touch_place(o, l, &in->out[i], true);
        if (in->scratch >= 0)
            touch(o, l->base[in->scratch], 0, (int64_t)l->storage[in->scratch].bytes, true);
    }
    set_after(o, w->context.stream, cudaStreamSetCaptureDependencies);
}

void dra_cuda_order_end(const dra_cuda_walk *w)
{
    dra_cuda_order *o = w->context.order;
    cudaGraph_t     graph;
    if (o->error != cudaSuccess) return;
    const cudaGraphNode_t last = last_node(o, w->context.stream, &graph);
    const bool            nothing = o->n_after > 1 ? !last : last == o->after[0]; /* was started */
    if (nothing || o->error != cudaSuccess) return;
    if (!add_to(o, o->node, o->n, o->room, last)) return;
    if (!dra_hazards_end(o->hazards)) o->error = cudaErrorMemoryAllocation;
}

void dra_cuda_order_claim(const dra_cuda_context *c, const void *memory, size_t bytes)
{
    dra_cuda_order *o = c->order;
    if (!o || o->error != cudaSuccess) return;
    if (touch(o, memory, 0, (int64_t)bytes, true))
        set_after(o, c->stream, cudaStreamAddCaptureDependencies);
}

#else

dra_cuda_order *dra_cuda_order_open(cudaStream_t) { return nullptr; }
cudaError_t     dra_cuda_order_close(dra_cuda_order *) { return cudaSuccess; }
void            dra_cuda_order_begin(const dra_cuda_walk *, const dra_instr *) {}
void            dra_cuda_order_end(const dra_cuda_walk *) {}
void            dra_cuda_order_claim(const dra_cuda_context *, const void *, size_t) {}

#endif
