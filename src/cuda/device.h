/* The CUDA device itself, as device.cu and run.cu see it. */
#ifndef DRA_SRC_CUDA_DEVICE_H
#define DRA_SRC_CUDA_DEVICE_H

#include "cuda/cuda.h"
#include "cuda/gemm.h"
extern "C" {
#include "device/plugin.h"
}

struct dra_cuda_graph;    /* a block that was captured, see run.cu */
struct dra_cuda_transfer; /* pinned memory, see transfer.cu */
struct dra_cuda_profile;  /* events around kernels, see profile.cu */

struct dra_cuda_device {
    dra_device       base; /* first */
    int              number;
    char             level[32];
    dra_cuda_context context;
    bool             broken; /* a kernel failed: nothing runs on it any more */
    pthread_mutex_t  lock;   /* of the graphs, and of starting a block as a whole */
    dra_cuda_graph  *graphs;
    uint64_t         runs; /* of blocks, so far */

    dra_cuda_transfer *transfer;
    dra_cuda_profile  *profile; /* NULL: nobody asked for one yet */
};

/* DRA_OK, or an error that says at `what` CUDA failed. */
dra_status dra_cuda_check(dra_cuda_device *d, const char *what, cudaError_t error, dra_error *err);

/* transfer.cu */
dra_status dra_cuda_transfer_open(dra_cuda_device *d, dra_error *err);
void       dra_cuda_transfer_close(dra_cuda_device *d);
dra_status dra_cuda_upload(dra_device *d, void *to, const void *from, size_t bytes, dra_error *err);
dra_status dra_cuda_download(dra_device *d, const dra_fetch *list, size_t n, dra_error *err);

/* run.cu */
struct dra_cuda_walk { /* the instructions of a block on their way into a stream */
    dra_cuda_device  *device;
    const dra_launch *l;
    dra_cuda_context  context;  /* the device's, with this stream */
    bool              captures; /* the stream becomes a graph */
    bool              checks;   /* waits after every kernel, so that one that fails has a name */
    dra_status        status;
    dra_error        *err;
};
/* The call of an instruction, its tensors at their addresses. */
dra_call   dra_cuda_call(const dra_cuda_walk *w, const dra_instr *in);
void       dra_cuda_walk_block(dra_cuda_walk *w, int32_t block);
dra_status dra_cuda_run(dra_device *d, const dra_launch *l, int32_t block, dra_error *err);

/* profile.cu, where w->l->profile is set: around every kernel, and at the end of a block */
void dra_cuda_profile_before(dra_cuda_walk *w, const dra_instr *in);
void dra_cuda_profile_after(dra_cuda_walk *w);
void dra_cuda_profile_read(dra_cuda_walk *w);
void dra_cuda_profile_close(dra_cuda_device *d);

/* limits.cu */
dra_status dra_cuda_limits(dra_device *d, int repeats, dra_limits *out, dra_error *err);

/* graphs.cu */
dra_status  dra_cuda_start(dra_cuda_device *d, const dra_launch *l, int32_t block, dra_error *err);
cudaError_t dra_cuda_capture_cond(dra_cuda_walk *w, const dra_region *r);
void        dra_cuda_forget(dra_device *d, const dra_launch *l);
void        dra_cuda_graphs_close(dra_cuda_device *d);

#endif
