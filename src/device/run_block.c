/* Walking a block on the host: fill in addresses, compute one group of kernel calls after the
 * other. */
#include <string.h>
#include <time.h>

#include "device/device.h"

typedef struct walk {
    dra_device       *device;
    const dra_launch *l;
    dra_walk_run      run;
} walk;

static void run_block(const walk *w, int32_t block);

static bool has_fault(const dra_launch *l)
{
    return atomic_load_explicit(&l->fault->kind, memory_order_relaxed) != DRA_FAULT_NONE;
}

/* ---- fences, for tests: see dra_compile_fenced() --------------------------------------------- */

enum { FENCE = 0xA5, UNWRITTEN = 0xFF };

/* Fenced are outputs in planned memory of their own, not those that took over an input's. */
static unsigned char *find_fenced(const dra_launch *l, const dra_instr *in, int i, size_t *bytes)
{
    const dra_place *out = &in->out[i];
    if (out->storage < 0) return NULL;
    const dra_storage *s = &l->storage[out->storage];
    for (int k = 0; k < in->n_in; k++)
        if (in->in[k].storage == out->storage) return NULL;
    *bytes = s->bytes;
    return s->kind == DRA_STORAGE_LOCAL ? l->base[out->storage] : NULL;
}

static void raise_fences(const dra_launch *l, const dra_instr *in)
{
    for (int i = 0; i < in->n_out; i++) {
        size_t         bytes;
        unsigned char *at = find_fenced(l, in, i, &bytes);
        if (!at) continue;
        memset(at - l->fence, FENCE, l->fence);
        memset(at, UNWRITTEN, bytes);
        memset(at + bytes, FENCE, l->fence);
    }
}

static void check_fences(const dra_launch *l, const dra_instr *in, const dra_call *c)
{
    for (int i = 0; i < in->n_out; i++) {
        size_t               bytes;
        const unsigned char *at = find_fenced(l, in, i, &bytes);
        for (size_t k = 0; at && k < l->fence; k++) {
            if (at[bytes + k] == FENCE && (at - l->fence)[k] == FENCE) continue;
            DRA_FAULT(c, 0, DRA_FAULT_FENCE, i);
            return;
        }
    }
}

/* ---- instructions ---------------------------------------------------------------------------- */

double dra_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static dra_kernel_call call_of(const dra_launch *l, const dra_instr *in)
{
    dra_tensor *t = l->tensors + in->tensors;
    for (int i = 0; i < in->n_in; i++) t[i].data = dra_place_address(l, &in->in[i]);
    for (int i = 0; i < in->n_out; i++) t[in->n_in + i].data = dra_place_address(l, &in->out[i]);
    return (dra_kernel_call){in->kernel,
                             {.attr = in->attr,
                              .in = t,
                              .out = t + in->n_in,
                              .n_in = in->n_in,
                              .n_out = in->n_out,
                              .scratch = in->scratch >= 0 ? l->base[in->scratch] : NULL,
                              .work = in->work,
                              .op = in->name,
                              .fault = l->fault}};
}

static void run_watched(const walk *w, const dra_instr *in)
{
    const dra_launch *l = w->l;
    dra_kernel_call   k = call_of(l, in);
    const double      start = l->profile ? dra_clock() : 0;
    if (l->fence) raise_fences(l, in);
    w->run(w->device, 1, &k);
    if (l->fence) check_fences(l, in, &k.call);
    if (l->profile) l->profile(l->user, in, &k.call, dra_clock() - start);
}

/* The group that begins with instruction number `i`, as far as `end`; returns where it ends. */
static size_t run_group(const walk *w, const dra_code_block *b, size_t i, size_t end)
{
    dra_kernel_call calls[DRA_GROUP];
    const int32_t   group = b->instr[i]->group;
    int             n = 0;
    for (; i < end && b->instr[i]->group == group; i++) calls[n++] = call_of(w->l, b->instr[i]);
    w->run(w->device, n, calls);
    return i;
}

/* ---- regions --------------------------------------------------------------------------------- */

static size_t row_bytes(const dra_place *place) /* of one step of a dense (T, ...) array */
{
    return (size_t)place->tensor.stride[0] * dra_dtype_bytes(place->tensor.dtype);
}

static void keep_carries(const dra_launch *l, const dra_region *r, int64_t step, int current)
{
    const int64_t segments = dra_div_up(r->length, r->border);
    const int64_t at = r->reverse ? segments - 1 - step / r->border : step / r->border;
    for (int i = 0; i < r->carries; i++) {
        if (r->kept[i].storage < 0) continue;
        const size_t   bytes = row_bytes(&r->kept[i]);
        unsigned char *to = dra_place_address(l, &r->kept[i]);
        if (bytes)
            memcpy(to + (size_t)at * bytes, dra_place_address(l, &r->carry[current][i]), bytes);
    }
}

static void run_scan(const walk *w, const dra_region *r)
{
    const dra_launch *l = w->l;
    int current = (int)(r->length % 2); /* so that the last value ends up in buffer 0 */
    for (int64_t step = 0; step < r->length && !has_fault(l); step++) {
        const int64_t t = r->reverse ? r->length - 1 - step : step;
        if (step % r->border == 0) keep_carries(l, r, step, current);
        for (int i = 0; i < r->carries; i++) {
            l->base[r->carry_in[i]] = dra_place_address(l, &r->carry[current][i]);
            l->base[r->carry_out[i]] = dra_place_address(l, &r->carry[!current][i]);
        }
        for (int i = 0; i < r->xs; i++) {
            const dra_tensor *x = &r->x[i].tensor;
            l->base[r->x_in[i]] = (unsigned char *)dra_place_address(l, &r->x[i]) +
                                  t * x->stride[0] * (int64_t)dra_dtype_bytes(x->dtype);
        }
        for (int i = 0; i < r->ys; i++)
            if (r->y[i].storage >= 0)
                l->base[r->y_out[i]] = (unsigned char *)dra_place_address(l, &r->y[i]) +
                                       (size_t)t * row_bytes(&r->y[i]);
        run_block(w, r->block);
        current = !current;
    }
}

static void run_cond(const walk *w, const dra_region *r)
{
    const int32_t *flag = dra_place_address(w->l, &r->flag);
    run_block(w, *flag ? r->block : r->otherwise);
}

/* Runs the part that begins with instruction number `i`, as far as `end`; returns where it ends. */
static size_t run_next(const walk *w, const dra_code_block *b, size_t i, size_t end)
{
    const dra_instr *in = b->instr[i];
    if (in->kernel && !w->l->fence && !w->l->profile) return run_group(w, b, i, end);
    if (in->kernel)
        run_watched(w, in);
    else if (in->region->kind == DRA_REGION_SCAN)
        run_scan(w, in->region);
    else
        run_cond(w, in->region);
    return i + 1;
}

static void run_block(const walk *w, int32_t block)
{
    const dra_code_block *b = &w->l->block[block];
    for (size_t i = 0; i < b->n && !has_fault(w->l);) i = run_next(w, b, i, b->n);
}

/* At least one instruction, then until the time is up. */
static void run_slice(const walk *w, int32_t block, dra_time_slice *s)
{
    const dra_code_block *b = &w->l->block[block];
    const size_t          end = s->stop ? s->stop : b->n;
    size_t                i = s->at;
    double                then = dra_clock();
    while (i < end && !has_fault(w->l)) {
        i = run_next(w, b, i, end);
        const double now = dra_clock();
        if (now - then > s->longest) s->longest = now - then;
        then = now;
        if (now >= s->until) break;
    }
    s->at = i < b->n && !has_fault(w->l) ? i : 0;
}

void dra_walk(dra_device *d, const dra_launch *l, int32_t block, dra_walk_run run)
{
    const walk w = {d, l, run};
    if (l->slice)
        run_slice(&w, block, l->slice);
    else
        run_block(&w, block);
}
