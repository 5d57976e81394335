/* The CUDA device itself, as device.cu and run.cu see it. */
#ifndef DRA_SRC_DEVICE_CUDA_DEVICE_CUH
#define DRA_SRC_DEVICE_CUDA_DEVICE_CUH

#include "device/cuda/cuda.cuh"
#include "ops/products/gemm.cuh"
extern "C" {
#include "device/plugin.h"
}

struct dra_cuda_graph;    /* a block that was captured, see run.cu */
struct dra_cuda_transfer; /* pinned memory, see transfer.cu */
struct dra_cuda_profile;  /* events around kernels, see profile.cu */
struct dra_cuda_stage;    /* memory of a scan that runs in pieces, see scan.cu */

struct dra_cuda_scans { /* how scans become loops */
    int64_t steps;      /* of one iteration; 0: none does, -1: as many as seem good */
    bool    walked;     /* also where a block is walked, for tests */
};

struct dra_cuda_device {
    dra_device       base; /* first */
    int              number;
    char             level[32];
    dra_cuda_context context;
    bool             broken; /* a kernel failed: nothing runs on it any more */
    pthread_mutex_t  lock;   /* of the graphs, and of starting a block as a whole */
    dra_cuda_graph  *graphs;
    uint64_t         runs; /* of blocks, so far */
    dra_cuda_scans   scans;
    dra_cuda_stage  *stages; /* of all programs that still are */

    dra_cuda_transfer *transfer;
    dra_cuda_profile  *profile; /* NULL: nobody asked for one yet */
};

/* DRA_OK, or an error that says at `what` CUDA failed. */
dra_status dra_cuda_check(dra_cuda_device *d, const char *what, cudaError_t error, dra_error *err);

/* transfer.cu */
dra_status dra_cuda_transfer_open(dra_cuda_device *d, dra_error *err);
void       dra_cuda_transfer_close(dra_cuda_device *d);
dra_status dra_cuda_upload(dra_device *d, const dra_send *list, size_t n, dra_error *err);
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
void       dra_cuda_copy_bytes(dra_cuda_walk *w, void *to, const void *from, size_t bytes);
void       dra_cuda_walk_block(dra_cuda_walk *w, int32_t block);
dra_status dra_cuda_run(dra_device *d, const dra_launch *l, int32_t block, dra_error *err);

/* scan.cu */
/* How scans run, as DRA_CUDA_SCAN in the environment says; NULL: as usual. */
dra_cuda_scans dra_cuda_scans_wish(const char *wish);
/* Memory for the scans of a block, and of those inside of it, that are worth a loop; forgets that
 * of a program, or of all (NULL). */
void dra_cuda_scans_open(dra_cuda_device *d, const dra_launch *l, int32_t block);
void dra_cuda_scans_forget(dra_cuda_device *d, const dra_launch *l);
/* Nodes of the graph of a block, as far as it matters: it stops where they are more than `most`. */
int64_t dra_cuda_count_nodes(const dra_cuda_device *d, const dra_launch *l, int32_t block,
                             int64_t most);
void    dra_cuda_run_scan(dra_cuda_walk *w, const dra_region *r);
void    dra_cuda_run_piece(dra_cuda_walk *w, const dra_cuda_stage *s); /* of the number it holds */

/* profile.cu, where w->l->profile is set: around every kernel, and at the end of a block */
void dra_cuda_profile_before(dra_cuda_walk *w, const dra_instr *in);
void dra_cuda_profile_after(dra_cuda_walk *w);
void dra_cuda_profile_read(dra_cuda_walk *w);
void dra_cuda_profile_close(dra_cuda_device *d);

/* limits.cu */
dra_status dra_cuda_limits(dra_device *d, int repeats, dra_limits *out, dra_error *err);

/* order.cu: what is captured in a stream waits for what it needs alone. begin() comes before an
 * instruction is captured, end() after it; close() says whether all went well. */
dra_cuda_order *dra_cuda_order_open(cudaStream_t stream);
cudaError_t     dra_cuda_order_close(dra_cuda_order *o);
void            dra_cuda_order_begin(const dra_cuda_walk *w, const dra_instr *in);
void            dra_cuda_order_end(const dra_cuda_walk *w);

/* graphs.cu */
dra_status  dra_cuda_start(dra_cuda_device *d, const dra_launch *l, int32_t block, dra_error *err);
cudaError_t dra_cuda_capture_cond(dra_cuda_walk *w, const dra_region *r);
/* A loop over the pieces of a scan; *number is that of the piece, on the device. */
cudaError_t dra_cuda_capture_loop(dra_cuda_walk *w, const dra_cuda_stage *s, int64_t *number,
                                  int64_t pieces);
void        dra_cuda_forget(dra_device *d, const dra_launch *l);
void        dra_cuda_graphs_close(dra_cuda_device *d);

#endif
