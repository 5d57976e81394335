/* Blocks as CUDA graphs: a block that runs again at the addresses of a run before is captured, and
 * from then on replayed as one launch.
 *
 * The first time a block runs, the host waits after every kernel, so that one that fails is called
 * by its name. A program is run with several sets of addresses where it computes several
 * microbatches of a step, whose numbers go to rows of their own: some sets are remembered. */
#include "device/cuda/device.cuh"

#include <stdlib.h>
#include <string.h>

static dra_status walk_block(dra_cuda_device *d, const dra_launch *l, int32_t block, bool checks,
                             dra_error *err)
{
    dra_cuda_walk w = {d, l, d->context, false, checks, DRA_OK, err};
    if (d->scans.walked) dra_cuda_scans_open(d, l, block);
    dra_cuda_walk_block(&w, block);
    if (l->profile) dra_cuda_profile_read(&w);
    return w.status;
}

#ifdef __CUDACC__

enum { MOST_NODES = 50000, MOST_SETS = 16 };

struct dra_cuda_graph { /* a block at one set of addresses */
    dra_cuda_graph   *next;
    const dra_launch *l;
    int32_t           block;
    unsigned char   **base;  /* the addresses */
    cudaGraphExec_t   exec;  /* NULL: it ran once */
    uint64_t          used;  /* when */
    bool              never; /* it is too large for a graph */
};

/* ---- sets of addresses ----------------------------------------------------------------------- */

static bool same_addresses(const dra_cuda_graph *g, const dra_launch *l)
{
    for (size_t i = 0; i < l->n_storage; i++)
        if (l->storage[i].kind != DRA_STORAGE_MOVING && g->base[i] != l->base[i]) return false;
    return true;
}

/* The one of now; else, where there are many, the one that was not used for the longest time. */
static dra_cuda_graph *find_graph(dra_cuda_device *d, const dra_launch *l, int32_t block, int *sets,
                                  dra_cuda_graph **oldest)
{
    *sets = 0;
    *oldest = nullptr;
    for (dra_cuda_graph *g = d->graphs; g; g = g->next) {
        if (g->l != l || g->block != block) continue;
        if (same_addresses(g, l)) return g;
        if (!*oldest || g->used < (*oldest)->used) *oldest = g;
        (*sets)++;
    }
    return nullptr;
}

static dra_cuda_graph *new_graph(dra_cuda_device *d, const dra_launch *l, int32_t block)
{
    dra_cuda_graph *g = static_cast<dra_cuda_graph *>(calloc(1, sizeof *g));
    if (!g) return nullptr;
    g->base = static_cast<unsigned char **>(calloc(l->n_storage + 1, sizeof *g->base));
    if (!g->base) {
        free(g);
        return nullptr;
    }
    g->l = l;
    g->block = block;
    g->next = d->graphs;
    d->graphs = g;
    return g;
}

static void free_graph(dra_cuda_graph *g)
{
    if (g->exec) cudaGraphExecDestroy(g->exec);
    free(g->base);
    free(g);
}

/* ---- capturing ------------------------------------------------------------------------------- */

/* The block's instructions go into the stream's graph, each after those that it needs. */
static cudaError_t capture_block(dra_cuda_walk *w, int32_t block)
{
    dra_cuda_order *outer = w->context.order;
    w->context.order = dra_cuda_order_open(w->context.stream);
    if (w->context.order) dra_cuda_walk_block(w, block);
    const cudaError_t error = dra_cuda_order_close(w->context.order);
    w->context.order = outer;
    return error;
}

static dra_status capture(dra_cuda_device *d, dra_cuda_graph *g, dra_error *err)
{
    dra_cuda_walk w = {d, g->l, d->context, true, false, DRA_OK, err};
    cudaGraph_t   graph = nullptr;
    /* In a stream of its own: other threads may upload in the device's meanwhile. */
    cudaError_t error = cudaStreamCreateWithFlags(&w.context.stream, cudaStreamNonBlocking);
    dra_status  st = dra_cuda_check(d, "capture", error, err);
    if (st != DRA_OK) return st;
    error = cudaStreamBeginCapture(w.context.stream, cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) {
        const cudaError_t walked = capture_block(&w, g->block);
        error = cudaStreamEndCapture(w.context.stream, &graph);
        if (walked != cudaSuccess) error = walked;
    }
    st = w.status == DRA_OK ? dra_cuda_check(d, "capture", error, err) : w.status;
    if (st == DRA_OK)
        st = dra_cuda_check(d, "capture", cudaGraphInstantiate(&g->exec, graph, 0), err);
    if (graph) cudaGraphDestroy(graph);
    cudaStreamDestroy(w.context.stream);
    return st;
}

/* ---- conditional nodes ----------------------------------------------------------------------- */

/* A node after what is in the stream, and what body() starts as its body. */
template <typename Body>
static cudaError_t capture_node(dra_cuda_walk *w, cudaGraphConditionalNodeType type,
                                cudaGraphConditionalHandle handle, Body body)
{
    cudaStreamCaptureStatus  status;
    unsigned long long       id;
    cudaGraph_t              graph;
    const cudaGraphNode_t   *after;
    const cudaGraphEdgeData *edges;
    size_t                   n;
    cudaGraphNode_t          node;
    cudaGraphNodeParams      params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = 1;
    cudaStream_t stream = w->context.stream, inner = nullptr;
    cudaError_t  error = cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &after, &edges, &n);
    if (error == cudaSuccess) error = cudaGraphAddNode(&node, graph, after, edges, n, &params);
    if (error == cudaSuccess)
        error = cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                                    cudaStreamSetCaptureDependencies);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&inner, cudaStreamNonBlocking);
    if (error != cudaSuccess) return error;
    graph = params.conditional.phGraph_out[0];
    error = cudaStreamBeginCaptureToGraph(inner, graph, nullptr, nullptr, 0,
                                          cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) {
        w->context.stream = inner;
        const cudaError_t walked = body();
        w->context.stream = stream;
        error = cudaStreamEndCapture(inner, &graph);
        if (walked != cudaSuccess) error = walked;
    }
    cudaStreamDestroy(inner);
    return error;
}

/* A handle for a node of the graph that is being captured. A kernel sets it before the node, not a
 * default: that is set once in a launch of the graph, in which bodies may run many times. */
static cudaError_t new_handle(const dra_cuda_walk *w, cudaGraphConditionalHandle *out)
{
    cudaStreamCaptureStatus status;
    unsigned long long      id;
    cudaGraph_t             graph;
    const cudaError_t error = cudaStreamGetCaptureInfo(w->context.stream, &status, &id, &graph,
                                                       nullptr, nullptr, nullptr);
    return error == cudaSuccess ? cudaGraphConditionalHandleCreate(out, graph, 0, 0) : error;
}

__global__ static void decide(cudaGraphConditionalHandle then, cudaGraphConditionalHandle otherwise,
                              const int32_t *flag)
{
    cudaGraphSetConditional(then, *flag != 0);
    cudaGraphSetConditional(otherwise, *flag == 0);
}

cudaError_t dra_cuda_capture_cond(dra_cuda_walk *w, const dra_region *r)
{
    cudaGraphConditionalHandle then, otherwise;
    cudaError_t                error = new_handle(w, &then);
    if (error == cudaSuccess) error = new_handle(w, &otherwise);
    if (error != cudaSuccess) return error;
    decide<<<1, 1, 0, w->context.stream>>>(
        then, otherwise, static_cast<const int32_t *>(dra_place_address(w->l, &r->flag)));
    error = cudaPeekAtLastError();
    if (error == cudaSuccess)
        error = capture_node(w, cudaGraphCondTypeIf, then,
                             [&] { return capture_block(w, r->block); });
    if (error == cudaSuccess)
        error = capture_node(w, cudaGraphCondTypeIf, otherwise,
                             [&] { return capture_block(w, r->otherwise); });
    return error;
}

__global__ static void start_loop(cudaGraphConditionalHandle loop, int64_t *number)
{
    *number = 0;
    cudaGraphSetConditional(loop, 1);
}

__global__ static void go_on(cudaGraphConditionalHandle loop, int64_t *number, int64_t pieces)
{
    const int64_t next = *number + 1;
    *number = next;
    cudaGraphSetConditional(loop, next < pieces);
}

cudaError_t dra_cuda_capture_loop(dra_cuda_walk *w, const dra_cuda_stage *s, int64_t *number,
                                  int64_t pieces)
{
    cudaGraphConditionalHandle loop;
    cudaError_t                error = new_handle(w, &loop);
    if (error != cudaSuccess) return error;
    start_loop<<<1, 1, 0, w->context.stream>>>(loop, number);
    error = cudaPeekAtLastError();
    if (error != cudaSuccess) return error;
    return capture_node(w, cudaGraphCondTypeWhile, loop, [&] {
        dra_cuda_run_piece(w, s);
        go_on<<<1, 1, 0, w->context.stream>>>(loop, number, pieces);
        return cudaPeekAtLastError();
    });
}

/* ---- running --------------------------------------------------------------------------------- */

/* Walks the block, and notes where everything is. */
static dra_status run_once(dra_cuda_device *d, const dra_launch *l, int32_t block, int sets,
                           dra_cuda_graph *oldest, dra_error *err)
{
    dra_cuda_graph *g = sets < MOST_SETS ? new_graph(d, l, block) : oldest;
    if (g) {
        if (g->exec) cudaGraphExecDestroy(g->exec);
        g->exec = nullptr;
        g->used = d->runs;
        memcpy(g->base, l->base, l->n_storage * sizeof *g->base);
    }
    return walk_block(d, l, block, sets == 0, err);
}

dra_status dra_cuda_start(dra_cuda_device *d, const dra_launch *l, int32_t block, dra_error *err)
{
    dra_cuda_graph *oldest;
    int             sets;
    if (l->profile || l->fence) return walk_block(d, l, block, false, err);
    d->runs++;
    dra_cuda_graph *g = find_graph(d, l, block, &sets, &oldest);
    if (!g) return run_once(d, l, block, sets, oldest, err);
    g->used = d->runs;
    if (!g->exec && !g->never) {
        dra_cuda_scans_open(d, l, block);
        g->never = dra_cuda_count_nodes(d, l, block, MOST_NODES) > MOST_NODES;
    }
    if (g->never) return walk_block(d, l, block, false, err);
    const dra_status st = g->exec ? DRA_OK : capture(d, g, err);
    return st == DRA_OK ? dra_cuda_check(d, "run", cudaGraphLaunch(g->exec, d->context.stream), err)
                        : st;
}

void dra_cuda_forget(dra_device *base, const dra_launch *l)
{
    dra_cuda_device *d = reinterpret_cast<dra_cuda_device *>(base);
    pthread_mutex_lock(&d->lock);
    for (dra_cuda_graph **at = &d->graphs; *at;) {
        dra_cuda_graph *g = *at;
        if (g->l == l) {
            *at = g->next;
            free_graph(g);
        } else {
            at = &g->next;
        }
    }
    dra_cuda_scans_forget(d, l);
    pthread_mutex_unlock(&d->lock);
}

void dra_cuda_graphs_close(dra_cuda_device *d)
{
    for (dra_cuda_graph *g = d->graphs, *next; g; g = next) {
        next = g->next;
        free_graph(g);
    }
}

#else

dra_status dra_cuda_start(dra_cuda_device *d, const dra_launch *l, int32_t block, dra_error *err)
{
    return walk_block(d, l, block, false, err);
}

cudaError_t dra_cuda_capture_cond(dra_cuda_walk *, const dra_region *) { return cudaSuccess; }
cudaError_t dra_cuda_capture_loop(dra_cuda_walk *, const dra_cuda_stage *, int64_t *, int64_t)
{
    return cudaSuccess;
}
void dra_cuda_graphs_close(dra_cuda_device *) {}

void dra_cuda_forget(dra_device *base, const dra_launch *l)
{
    dra_cuda_device *d = reinterpret_cast<dra_cuda_device *>(base);
    pthread_mutex_lock(&d->lock);
    dra_cuda_scans_forget(d, l);
    pthread_mutex_unlock(&d->lock);
}

#endif
