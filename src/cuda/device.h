/* The CUDA device itself, as device.cu and run.cu see it. */
#ifndef DRA_SRC_CUDA_DEVICE_H
#define DRA_SRC_CUDA_DEVICE_H

#include "cuda/cuda.h"
#include "cuda/gemm.h"
extern "C" {
#include "device/plugin.h"
}

struct dra_cuda_graph; /* a block that was captured, see run.cu */

struct dra_cuda_device {
    dra_device       base; /* first */
    int              number;
    char             level[32];
    dra_cuda_context context;
    bool             broken; /* a kernel failed: nothing runs on it any more */
    int64_t          waits;  /* how often the host waited */
    pthread_mutex_t  lock;   /* of the graphs, and of starting a block as a whole */
    dra_cuda_graph  *graphs;
};

/* DRA_OK, or an error that says at `what` CUDA failed. */
dra_status dra_cuda_check(dra_cuda_device *d, const char *what, cudaError_t error, dra_error *err);
dra_status dra_cuda_wait(dra_cuda_device *d, const char *what, dra_error *err);

/* run.cu */
dra_status dra_cuda_run(dra_device *d, const dra_launch *l, int32_t block, dra_error *err);
void       dra_cuda_forget(dra_device *d, const dra_launch *l);
void       dra_cuda_graphs_close(dra_cuda_device *d);

#endif
