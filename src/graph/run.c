/* Running: buffers hold the planned blocks and one address per storage; the executor walks the
 * instructions of a block, fills in addresses and hands each call to the device. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "graph/program.h"

typedef struct timing {
    int64_t calls;
    double  seconds, flops, bytes;
} timing;

struct dra_buffers {
    const dra_program *p;
    unsigned char    **base;      /* by storage */
    dra_tensor        *tensors;   /* of all instructions, one after the other */
    void              *memory[2]; /* prepare, step */
    bool              *bound;     /* by slot */
    bool               changed;   /* a parameter changed since the last prepare */
    int64_t            prepare_runs;
    timing            *timing; /* by instruction */
    bool               profile;
    dra_fault          fault;
};

/* ---- buffers --------------------------------------------------------------------------------- */

/* Addresses of everything in planned memory. A storage around a body is placed before the body's
 * own, because blocks are created from the outside in. */
static void place_storages(dra_buffers *b)
{
    const dra_program *p = b->p;
    for (size_t block = 0; block < p->n_block; block++) {
        const int32_t  outer = p->block[block].memory;
        unsigned char *start = outer >= 0 ? b->base[outer] : block < 2 ? b->memory[block] : NULL;
        for (size_t i = 0; i < p->n_storage; i++) {
            const dra_storage *s = &p->storage[i];
            if (s->alias >= 0 || s->kind != DRA_STORAGE_LOCAL || s->block != (int32_t)block)
                continue;
            b->base[i] = start ? start + s->offset + p->guard : NULL;
        }
    }
}

static void fill_tensors(dra_buffers *b)
{
    for (size_t k = 0; k < b->p->n_block; k++) {
        for (size_t i = 0; i < b->p->block[k].n; i++) {
            const dra_instr *in = b->p->block[k].instr[i];
            dra_tensor      *t = b->tensors + in->tensors;
            for (int j = 0; j < in->n_in; j++) t[j] = in->in[j].tensor;
            for (int j = 0; j < in->n_out; j++) t[in->n_in + j] = in->out[j].tensor;
        }
    }
}

dra_status dra_buffers_create(const dra_program *p, dra_buffers **out, dra_error *err)
{
    *out = NULL;
    dra_device  *d = p->device;
    dra_buffers *b = calloc(1, sizeof *b);
    if (!b) return dra_fail(err, DRA_ERR_MEMORY, "buffers: out of memory");
    b->p = p;
    b->base = calloc(p->n_storage + 1, sizeof *b->base);
    b->tensors = calloc(p->n_tensors + 1, sizeof *b->tensors);
    b->bound = calloc(p->n_slot + 1, sizeof *b->bound);
    b->timing = calloc(p->n_instr + 1, sizeof *b->timing);
    bool ok = b->base && b->tensors && b->bound && b->timing;
    for (int i = 0; i < 2 && ok; i++) {
        b->memory[i] = d->table->alloc(d, p->block[i].bytes);
        ok = b->memory[i] != NULL;
    }
    if (!ok) {
        dra_buffers_destroy(b);
        return dra_fail(err, DRA_ERR_MEMORY, "buffers: cannot have %zu bytes",
                        p->block[DRA_BLOCK_STEP].bytes + p->block[DRA_BLOCK_PREPARE].bytes);
    }
    atomic_flag_clear(&b->fault.lock);
    b->changed = true;
    place_storages(b);
    fill_tensors(b);
    *out = b;
    return DRA_OK;
}

void dra_buffers_destroy(dra_buffers *b)
{
    if (!b) return;
    for (int i = 0; i < 2; i++) b->p->device->table->free(b->p->device, b->memory[i]);
    free(b->base);
    free(b->tensors);
    free(b->bound);
    free(b->timing);
    free(b);
}

static int find_slot(const dra_program *p, const char *name)
{
    for (size_t i = 0; name && i < p->n_slot; i++)
        if (strcmp(p->slot[i].name, name) == 0) return (int)i;
    return -1;
}

dra_status dra_bind(dra_buffers *b, const char *name, void *data, size_t bytes, dra_error *err)
{
    const int i = find_slot(b->p, name);
    if (i < 0)
        return dra_fail(err, DRA_ERR_NAME, "bind: no input is called '%s'", name ? name : "");
    const dra_slot *s = &b->p->slot[i];
    if (bytes != s->bytes)
        return dra_fail(err, DRA_ERR_SHAPE, "bind: '%s' has %zu bytes, expected %zu", name, bytes,
                        s->bytes);
    if (!data && bytes) return dra_fail(err, DRA_ERR_VALUE, "bind: '%s' gets no memory", name);
    b->base[s->storage] = data;
    b->bound[i] = true;
    b->changed = b->changed || s->parameter;
    return DRA_OK;
}

dra_status dra_touch(dra_buffers *b, const char *name, dra_error *err)
{
    if (name && find_slot(b->p, name) < 0)
        return dra_fail(err, DRA_ERR_NAME, "touch: no input is called '%s'", name);
    b->changed = true;
    return DRA_OK;
}

const void *dra_result(const dra_buffers *b, const char *name)
{
    for (size_t i = 0; name && i < b->p->n_result; i++) {
        const dra_result_slot *r = &b->p->result[i];
        if (strcmp(r->name, name) != 0) continue;
        return b->base[r->place.storage] ? b->base[r->place.storage] + r->place.offset : NULL;
    }
    return NULL;
}

int64_t dra_prepare_runs(const dra_buffers *b) { return b->prepare_runs; }

/* ---- instructions ---------------------------------------------------------------------------- */

static void run_block(dra_buffers *b, int32_t block);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *address(const dra_buffers *b, const dra_place *place)
{
    return place->storage >= 0 ? b->base[place->storage] + place->offset : NULL;
}

static void record(dra_buffers *b, const dra_instr *in, const dra_call *c, double seconds)
{
    timing        *t = &b->timing[in->number];
    const dra_cost cost = in->op->cost ? in->op->cost(c) : (dra_cost){.bytes = dra_call_bytes(c)};
    t->calls++;
    t->seconds += seconds;
    t->flops += cost.flops;
    t->bytes += cost.bytes;
}

/* ---- fences, for tests: see dra_compile_guarded() -------------------------------------------- */

enum { FENCE = 0xA5, UNWRITTEN = 0xFF };

/* Fenced are outputs in planned memory of their own, not those that took over an input's. */
static unsigned char *fenced(const dra_buffers *b, const dra_instr *in, int i, size_t *bytes)
{
    const dra_place *out = &in->out[i];
    if (out->storage < 0) return NULL;
    const dra_storage *s = &b->p->storage[out->storage];
    for (int k = 0; k < in->n_in; k++)
        if (in->in[k].storage == out->storage) return NULL;
    *bytes = s->bytes;
    return s->kind == DRA_STORAGE_LOCAL ? b->base[out->storage] : NULL;
}

static void raise_fences(const dra_buffers *b, const dra_instr *in)
{
    for (int i = 0; i < in->n_out; i++) {
        size_t         bytes, guard = b->p->guard;
        unsigned char *at = fenced(b, in, i, &bytes);
        if (!at) continue;
        memset(at - guard, FENCE, guard);
        memset(at, UNWRITTEN, bytes);
        memset(at + bytes, FENCE, guard);
    }
}

static void check_fences(dra_buffers *b, const dra_instr *in)
{
    for (int i = 0; i < in->n_out; i++) {
        size_t               bytes, guard = b->p->guard;
        const unsigned char *at = fenced(b, in, i, &bytes);
        for (size_t k = 0; at && k < guard; k++) {
            if (at[bytes + k] == FENCE && (at - guard)[k] == FENCE) continue;
            dra_fault_set(&(dra_call){.fault = &b->fault}, 0, DRA_ERR_DEVICE,
                          "output %d: wrote outside its memory", i);
            return;
        }
    }
}

static void run_kernel(dra_buffers *b, const dra_instr *in)
{
    dra_device *d = b->p->device;
    dra_tensor *t = b->tensors + in->tensors;
    for (int i = 0; i < in->n_in; i++) t[i].data = address(b, &in->in[i]);
    for (int i = 0; i < in->n_out; i++) t[in->n_in + i].data = address(b, &in->out[i]);
    dra_call     c = {.attr = in->attr,
                      .in = t,
                      .out = t + in->n_in,
                      .n_in = in->n_in,
                      .n_out = in->n_out,
                      .scratch = in->scratch >= 0 ? b->base[in->scratch] : NULL,
                      .fault = &b->fault};
    const double start = b->profile ? now() : 0;
    if (b->p->guard) raise_fences(b, in);
    d->table->run(d, in->kernel, &c);
    if (b->p->guard) check_fences(b, in);
    if (b->profile) record(b, in, &c, now() - start);
}

static size_t row_bytes(const dra_place *place) /* of one step of a dense (T, ...) array */
{
    return (size_t)place->tensor.stride[0] * dra_dtype_bytes(place->tensor.dtype);
}

static void keep_carries(dra_buffers *b, const dra_region *r, int64_t step, int current)
{
    const int64_t segments = dra_div_up(r->length, r->border);
    const int64_t at = r->reverse ? segments - 1 - step / r->border : step / r->border;
    dra_device   *d = b->p->device;
    for (int i = 0; i < r->carries; i++) {
        if (r->kept[i].storage < 0) continue;
        const size_t   bytes = row_bytes(&r->kept[i]);
        unsigned char *to = address(b, &r->kept[i]);
        d->table->copy(d, to + (size_t)at * bytes, address(b, &r->carry[current][i]), bytes);
    }
}

static void run_scan(dra_buffers *b, const dra_region *r)
{
    int current = (int)(r->length % 2); /* so that the last value ends up in buffer 0 */
    for (int64_t step = 0; step < r->length && !atomic_load(&b->fault.set); step++) {
        const int64_t t = r->reverse ? r->length - 1 - step : step;
        if (step % r->border == 0) keep_carries(b, r, step, current);
        for (int i = 0; i < r->carries; i++) {
            b->base[r->carry_in[i]] = address(b, &r->carry[current][i]);
            b->base[r->carry_out[i]] = address(b, &r->carry[!current][i]);
        }
        for (int i = 0; i < r->xs; i++) {
            const dra_tensor *x = &r->x[i].tensor;
            b->base[r->x_in[i]] = (unsigned char *)address(b, &r->x[i]) +
                                  t * x->stride[0] * (int64_t)dra_dtype_bytes(x->dtype);
        }
        for (int i = 0; i < r->ys; i++)
            if (r->y[i].storage >= 0)
                b->base[r->y_out[i]] = (unsigned char *)address(b, &r->y[i]) +
                                       (size_t)t * row_bytes(&r->y[i]);
        run_block(b, r->block);
        current = !current;
    }
}

static void run_guard(dra_buffers *b, const dra_region *r)
{
    dra_device *d = b->p->device;
    run_block(b, d->table->read_flag(d, address(b, &r->flag)) ? r->block : r->otherwise);
}

static void run_block(dra_buffers *b, int32_t block)
{
    const dra_block *k = &b->p->block[block];
    for (size_t i = 0; i < k->n; i++) {
        const dra_instr *in = k->instr[i];
        if (in->kernel)
            run_kernel(b, in);
        else if (in->op == &dra_op_scan)
            run_scan(b, in->region);
        else
            run_guard(b, in->region);
        if (atomic_load_explicit(&b->fault.set, memory_order_relaxed)) {
            if (in->kernel && !b->fault.op) b->fault.op = in->op->name;
            return;
        }
    }
}

static dra_status run_or_fail(dra_buffers *b, int32_t block, dra_error *err)
{
    atomic_store(&b->fault.set, false);
    b->fault.op = NULL;
    run_block(b, block);
    if (!atomic_load(&b->fault.set)) return DRA_OK;
    return dra_fail(err, b->fault.code, "%s: %s", b->fault.op ? b->fault.op : "run", b->fault.text);
}

dra_status dra_run(dra_buffers *b, dra_error *err)
{
    const dra_program *p = b->p;
    for (size_t i = 0; i < p->n_slot; i++)
        if (p->slot[i].used && !b->bound[i])
            return dra_fail(err, DRA_ERR_BIND, "run: '%s' is not bound", p->slot[i].name);
    if (b->changed && p->block[DRA_BLOCK_PREPARE].n > 0) {
        const dra_status st = run_or_fail(b, DRA_BLOCK_PREPARE, err);
        if (st != DRA_OK) return st;
        b->prepare_runs++;
    }
    b->changed = p->updates_parameters;
    return run_or_fail(b, DRA_BLOCK_STEP, err);
}

/* ---- profile --------------------------------------------------------------------------------- */

void dra_profile_enable(dra_buffers *b, bool on)
{
    b->profile = on;
    if (on) memset(b->timing, 0, b->p->n_instr * sizeof *b->timing);
}

static int slower_first(const void *a, const void *b)
{
    const dra_profile_row *x = a, *y = b;
    return x->seconds > y->seconds ? -1 : x->seconds < y->seconds;
}

static void add_timing(dra_profile_row *rows, size_t *n, const char *op, const timing *t)
{
    size_t i = 0;
    while (i < *n && strcmp(rows[i].op, op) != 0) i++;
    if (i == *n) rows[(*n)++] = (dra_profile_row){.op = op};
    rows[i].calls += t->calls;
    rows[i].seconds += t->seconds;
    rows[i].flops += t->flops;
    rows[i].bytes += t->bytes;
}

size_t dra_profile_read(const dra_buffers *b, dra_profile_row *rows, size_t size)
{
    dra_profile_row *all = calloc(b->p->n_instr + 1, sizeof *all);
    size_t           n = 0;
    if (!all) return 0;
    for (size_t k = 0; k < b->p->n_block; k++) {
        for (size_t i = 0; i < b->p->block[k].n; i++) {
            const dra_instr *in = b->p->block[k].instr[i];
            const timing    *t = &b->timing[in->number];
            if (t->calls) add_timing(all, &n, in->op->name, t);
        }
    }
    qsort(all, n, sizeof *all, slower_first);
    for (size_t i = 0; i < n && i < size; i++) rows[i] = all[i];
    free(all);
    return n;
}
