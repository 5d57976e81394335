/* Running: buffers hold the planned memory and one address per storage, and hand blocks to the
 * device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/program.h"

typedef struct timing {
    int64_t calls;
    double  seconds, flops, bytes;
} timing;

typedef struct binding {
    dra_span memory;
    uint64_t serial; /* serial number of its array when it was bound; 0: not bound */
} binding;

struct dra_buffers {
    const dra_program *p;
    dra_launch         launch;
    dra_array         *prepared;
    dra_array         *workspace; /* the fault record, then the memory of the step */
    uint64_t           serial;    /* of the workspace */
    bool               owns;      /* the workspace */
    binding           *bound;     /* by slot */
    dra_array        **own;       /* by slot: made by dra_put() */
    bool               changed;   /* a parameter changed since the last prepare */
    int64_t            prepare_runs;
    dra_time_slice    *slice;  /* of its runs; NULL: they go to the end */
    dra_time_slice     part;   /* of a run in two parts: where the first one ended */
    bool               halted; /* whether the second one is still to come */
    timing            *timing; /* by instruction */
};

/* ---- memory ---------------------------------------------------------------------------------- */

enum { FAULT_ROOM = 128 }; /* for a dra_fault; memory after it stays aligned */
_Static_assert(sizeof(dra_fault) <= FAULT_ROOM, "the fault record has its room");

size_t dra_workspace_bytes(const dra_program *p)
{
    return FAULT_ROOM + p->block[DRA_BLOCK_STEP].bytes;
}

/* The start of the planned memory of a block; that of a body is in a storage of the block around
 * it. */
static unsigned char *start_of(const dra_buffers *b, int32_t block)
{
    const int32_t outer = b->p->block[block].memory;
    return outer >= 0                   ? b->launch.base[outer]
           : block == DRA_BLOCK_PREPARE ? b->prepared->data
           : block == DRA_BLOCK_STEP    ? b->workspace->data + FAULT_ROOM
                                        : NULL;
}

static void place_storage(dra_buffers *b, int32_t i)
{
    const dra_storage *s = &b->p->storage[i];
    if (s->alias >= 0 || s->kind != DRA_STORAGE_LOCAL) return;
    unsigned char *start = start_of(b, s->block);
    b->launch.base[i] = start ? start + s->offset + b->p->fence : NULL;
}

/* Sets the addresses of all storages in planned memory, outer blocks first: blocks are created from
 * the outside in. */
static void place_storages(dra_buffers *b)
{
    const dra_program *p = b->p;
    for (size_t block = 0; block < p->n_block; block++)
        if (p->block[block].memory >= 0) place_storage(b, p->block[block].memory);
    for (size_t i = 0; i < p->n_storage; i++) place_storage(b, (int32_t)i);
}

static void fill_tensors(dra_buffers *b)
{
    for (size_t k = 0; k < b->p->n_block; k++) {
        for (size_t i = 0; i < b->p->block[k].n; i++) {
            const dra_instr *in = b->p->block[k].instr[i];
            dra_tensor      *t = b->launch.tensors + in->tensors;
            for (int j = 0; j < in->n_in; j++) t[j] = in->in[j].tensor;
            for (int j = 0; j < in->n_out; j++) t[in->n_in + j] = in->out[j].tensor;
        }
    }
}

void dra_buffers_move(dra_buffers *b, dra_array *workspace)
{
    if (b->serial == workspace->serial) return;
    b->workspace = workspace;
    b->serial = workspace->serial;
    b->launch.fault = (dra_fault *)workspace->data;
    b->halted = false; /* what a first part has left is elsewhere */
    place_storages(b);
}

dra_status dra_buffers_create_in(const dra_program *p, dra_array *workspace, dra_buffers **out,
                                 dra_error *err)
{
    *out = NULL;
    dra_buffers *b = calloc(1, sizeof *b);
    if (!b) return dra_fail(err, DRA_ERR_MEMORY, "buffers: out of memory");
    *b = (dra_buffers){.p = p, .changed = true};
    b->launch = (dra_launch){.block = p->block,
                             .storage = p->storage,
                             .n_storage = p->n_storage,
                             .base = calloc(p->n_storage + 1, sizeof *b->launch.base),
                             .tensors = calloc(p->n_tensors + 1, sizeof *b->launch.tensors),
                             .fence = p->fence,
                             .user = b};
    b->bound = calloc(p->n_slot + 1, sizeof *b->bound);
    b->own = calloc(p->n_slot + 1, sizeof(dra_array *));
    b->timing = calloc(p->n_instr + 1, sizeof *b->timing);
    dra_status st = b->launch.base && b->launch.tensors && b->bound && b->own && b->timing
                        ? dra_array_create(p->device, p->block[DRA_BLOCK_PREPARE].bytes,
                                           &b->prepared, err)
                        : dra_fail(err, DRA_ERR_MEMORY, "buffers: out of memory");
    if (st != DRA_OK) {
        dra_buffers_destroy(b);
        return st;
    }
    fill_tensors(b);
    dra_buffers_move(b, workspace);
    *out = b;
    return DRA_OK;
}

dra_status dra_workspace_create(dra_device *d, size_t bytes, dra_array **out, dra_error *err)
{
    const dra_fault none = {0};
    dra_status      st = dra_array_create(d, bytes, out, err);
    if (st != DRA_OK) return st;
    st = dra_array_upload(dra_span_part(dra_array_whole(*out), 0, sizeof none), &none, err);
    if (st == DRA_OK) return DRA_OK;
    dra_array_destroy(*out);
    *out = NULL;
    return st;
}

dra_status dra_workspace_fault(dra_array *workspace, const dra_fetch *more, size_t n,
                               dra_error *err)
{
    const dra_span  record = dra_span_part(dra_array_whole(workspace), 0, sizeof(dra_fault));
    const dra_fault none = {0};
    dra_fault       found = {0};
    dra_fetch       list[1 + DRA_FETCHES] = {{&found, record}};
    if (n > DRA_FETCHES) return dra_fail(err, DRA_ERR_INDEX, "run: %zu results at a time", n);
    if (n) memcpy(list + 1, more, n * sizeof *more);
    dra_status st = dra_arrays_fetch(list, 1 + n, err);
    if (st == DRA_OK) st = dra_fault_error(&found, err);
    if (st == DRA_OK) return DRA_OK;
    dra_array_upload(record, &none, NULL);
    return st;
}

dra_status dra_buffers_create(const dra_program *p, dra_buffers **out, dra_error *err)
{
    dra_array *workspace;
    *out = NULL;
    dra_status st = dra_workspace_create(p->device, dra_workspace_bytes(p), &workspace, err);
    if (st != DRA_OK) return st;
    st = dra_buffers_create_in(p, workspace, out, err);
    if (st == DRA_OK)
        (*out)->owns = true;
    else
        dra_array_destroy(workspace);
    return st;
}

void dra_buffers_destroy(dra_buffers *b)
{
    if (!b) return;
    dra_device *d = b->p->device;
    if (d->table->forget) d->table->forget(d, &b->launch);
    for (size_t i = 0; b->own && i < b->p->n_slot; i++) dra_array_destroy(b->own[i]);
    dra_array_destroy(b->prepared);
    if (b->owns) dra_array_destroy(b->workspace);
    free(b->launch.base);
    free(b->launch.tensors);
    free(b->bound);
    free(b->own);
    free(b->timing);
    free(b);
}

/* ---- bindings -------------------------------------------------------------------------------- */

int dra_slot_find(const dra_program *p, const char *name)
{
    return name ? (int)dra_names_find(&p->slots, name) : -1;
}

static dra_status no_input(const char *name, dra_error *err)
{
    return dra_fail(err, DRA_ERR_NAME, "bind: no input is called '%s'", name ? name : "");
}

static dra_status wrong_size(const char *name, size_t found, size_t expected, dra_error *err)
{
    return dra_fail(err, DRA_ERR_SHAPE, "bind: '%s' has %zu bytes, expected %zu", name, found,
                    expected);
}

static dra_status check_memory(const dra_buffers *b, const dra_slot *s, dra_span memory,
                               dra_error *err)
{
    if (memory.bytes != s->bytes) return wrong_size(s->name, memory.bytes, s->bytes, err);
    const dra_status st = dra_span_check(memory, "bind", s->name, err);
    if (st != DRA_OK) return st;
    if (memory.array->device != b->p->device)
        return dra_fail(err, DRA_ERR_DEVICE, "bind: the array of '%s' is of another device",
                        s->name);
    if (memory.array->read_only && b->p->storage[s->storage].donor)
        return dra_fail(err, DRA_ERR_VALUE, "bind: '%s' is written to, but its array is borrowed",
                        s->name);
    return DRA_OK;
}

dra_status dra_bind_slot(dra_buffers *b, int slot, dra_span memory, dra_error *err)
{
    if (slot < 0 || (size_t)slot >= b->p->n_slot)
        return dra_fail(err, DRA_ERR_INDEX, "bind: input %d of %zu", slot, b->p->n_slot);
    const dra_slot  *s = &b->p->slot[slot];
    const dra_status st = check_memory(b, s, memory, err);
    if (st != DRA_OK) return st;
    b->launch.base[s->storage] = dra_span_address(memory);
    b->bound[slot] = (binding){memory, memory.array->serial};
    b->changed = b->changed || s->role == DRA_ROLE_PARAMETER;
    return DRA_OK;
}

dra_span dra_slot_memory(const dra_buffers *b, int slot) { return b->bound[slot].memory; }

dra_status dra_bind(dra_buffers *b, const char *name, dra_span memory, dra_error *err)
{
    const int slot = dra_slot_find(b->p, name);
    return slot >= 0 ? dra_bind_slot(b, slot, memory, err) : no_input(name, err);
}

dra_status dra_put(dra_buffers *b, const char *name, const void *data, size_t bytes, dra_error *err)
{
    const int slot = dra_slot_find(b->p, name);
    if (slot < 0) return no_input(name, err);
    if (bytes != b->p->slot[slot].bytes)
        return wrong_size(name, bytes, b->p->slot[slot].bytes, err);
    if (!data && bytes) return dra_fail(err, DRA_ERR_VALUE, "bind: '%s' gets no memory", name);
    dra_status st = b->own[slot] ? DRA_OK
                                 : dra_array_create(b->p->device, bytes, &b->own[slot], err);
    if (st == DRA_OK) st = dra_bind_slot(b, slot, dra_array_whole(b->own[slot]), err);
    return st == DRA_OK ? dra_array_upload(dra_array_whole(b->own[slot]), data, err) : st;
}

dra_status dra_touch(dra_buffers *b, const char *name, dra_error *err)
{
    if (name && dra_slot_find(b->p, name) < 0)
        return dra_fail(err, DRA_ERR_NAME, "touch: no input is called '%s'", name);
    b->changed = true;
    return DRA_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

int dra_result_find(const dra_program *p, const char *name)
{
    return name ? (int)dra_names_find(&p->results, name) : -1;
}

dra_span dra_result(const dra_buffers *b, const char *name)
{
    const int result = dra_result_find(b->p, name);
    if (result < 0) return (dra_span){0};
    const dra_place   *place = &b->p->result[result].place;
    const dra_storage *s = &b->p->storage[place->storage];
    const size_t       bytes = dra_bytes_of(&(dra_type){place->tensor.dtype, place->tensor.shape});
    dra_array         *a = s->kind == DRA_STORAGE_BOUND    ? b->bound[s->slot].memory.array
                           : s->block == DRA_BLOCK_PREPARE ? b->prepared
                                                           : b->workspace;
    const unsigned char *base = b->launch.base[place->storage];
    return a && base ? (dra_span){a, (size_t)(base - a->data + place->offset), bytes}
                     : (dra_span){0};
}

dra_status dra_get(const dra_buffers *b, const char *name, void *data, size_t bytes, dra_error *err)
{
    const int slot = dra_slot_find(b->p, name);
    dra_span  from = dra_result(b, name);
    if (!from.array && slot >= 0) from = b->bound[slot].memory;
    if (!from.array)
        return dra_fail(err, DRA_ERR_NAME, "get: no value is called '%s'", name ? name : "");
    if (from.bytes != bytes)
        return dra_fail(err, DRA_ERR_SHAPE, "get: '%s' has %zu bytes, expected %zu", name,
                        from.bytes, bytes);
    return dra_array_download(data, from, err);
}

int64_t dra_prepare_runs(const dra_buffers *b) { return b->prepare_runs; }

/* ---- runs ------------------------------------------------------------------------------------ */

static dra_status check_bindings(const dra_buffers *b, dra_error *err)
{
    const dra_program *p = b->p;
    for (size_t i = 0; i < p->n_slot; i++) {
        if (!p->slot[i].used) continue;
        if (!b->bound[i].serial)
            return dra_fail(err, DRA_ERR_BIND, "run: '%s' is not bound", p->slot[i].name);
        if (b->bound[i].memory.array->serial != b->bound[i].serial)
            return dra_fail(err, DRA_ERR_BIND, "run: the array of '%s' is gone", p->slot[i].name);
    }
    return DRA_OK;
}

void dra_buffers_slice(dra_buffers *b, dra_time_slice *slice) { b->slice = slice; }

dra_status dra_run_continue(dra_buffers *b, dra_error *err)
{
    dra_device *d = b->p->device;
    b->launch.slice = b->slice;
    const dra_status st = d->table->run(d, &b->launch, DRA_BLOCK_STEP, err);
    b->launch.slice = NULL;
    return st;
}

/* Computes what depends on parameters alone, if one has changed. */
static dra_status run_prepare(dra_buffers *b, dra_error *err)
{
    const dra_program *p = b->p;
    dra_status         st = DRA_OK;
    if (b->changed && p->block[DRA_BLOCK_PREPARE].n > 0) {
        st = p->device->table->run(p->device, &b->launch, DRA_BLOCK_PREPARE, err);
        b->prepare_runs++;
    }
    if (st == DRA_OK) b->changed = p->updates_parameters;
    return st;
}

dra_status dra_run_start(dra_buffers *b, dra_error *err)
{
    dra_status st = check_bindings(b, err);
    if (st == DRA_OK) st = run_prepare(b, err);
    if (st != DRA_OK) return st;
    b->halted = false;
    if (b->slice) b->slice->at = 0;
    return dra_run_continue(b, err);
}

dra_status dra_run_finish(dra_buffers *b, dra_error *err)
{
    const dra_status st = dra_workspace_fault(b->workspace, NULL, 0, err);
    if (st != DRA_OK) b->changed = true; /* nobody knows how far it came */
    return st;
}

dra_status dra_run(dra_buffers *b, dra_error *err)
{
    const dra_status st = dra_run_start(b, err);
    return st == DRA_OK ? dra_run_finish(b, err) : st;
}

/* ---- runs in two parts ----------------------------------------------------------------------- */

static bool writes_result(const dra_program *p, const dra_instr *in, int result)
{
    const int32_t to = dra_root(p, p->result[result].place.storage);
    for (int i = 0; i < in->n_out; i++)
        if (in->out[i].storage >= 0 && dra_root(p, in->out[i].storage) == to) return true;
    return false;
}

/* The instruction before which some outputs are complete. */
static dra_status find_stop(const dra_program *p, size_t n, const char *const *outputs,
                            size_t *stop, dra_error *err)
{
    const dra_code_block *b = &p->block[DRA_BLOCK_STEP];
    *stop = 0;
    for (size_t k = 0; k < n; k++) {
        const int result = dra_result_find(p, outputs[k]);
        if (result < 0)
            return dra_fail(err, DRA_ERR_NAME, "run: no output is called '%s'", outputs[k]);
        for (size_t i = b->n; i > *stop; i--)
            if (writes_result(p, b->instr[i - 1], result)) *stop = i;
    }
    return DRA_OK;
}

typedef struct bound_check {
    const dra_buffers *b;
    const char        *missing; /* the name of an input; NULL: none is */
} bound_check;

static void check_storage(dra_program *p, int32_t storage, void *user)
{
    bound_check  *c = user;
    const int32_t root = dra_root(p, storage);
    if (root < 0 || p->storage[root].kind != DRA_STORAGE_BOUND) return;
    const binding *bound = &c->b->bound[p->storage[root].slot];
    if (!bound->serial || bound->memory.array->serial != bound->serial)
        c->missing = p->slot[p->storage[root].slot].name;
}

/* What the prepare program and the first `stop` instructions touch is bound. */
static dra_status check_part(const dra_buffers *b, size_t stop, dra_error *err)
{
    dra_program *p = (dra_program *)(uintptr_t)b->p; /* for dra_each_storage(), which looks only */
    bound_check  c = {.b = b};
    for (int k = DRA_BLOCK_PREPARE; k <= DRA_BLOCK_STEP; k++)
        for (size_t i = 0; i < p->block[k].n && (k == DRA_BLOCK_PREPARE || i < stop); i++)
            dra_each_storage(p, p->block[k].instr[i], check_storage, &c);
    return c.missing ? dra_fail(err, DRA_ERR_BIND, "run: '%s' is not bound", c.missing) : DRA_OK;
}

static dra_status run_part(dra_buffers *b, size_t stop, dra_error *err)
{
    dra_device *d = b->p->device;
    b->part.until = INFINITY;
    b->part.stop = stop;
    b->launch.slice = &b->part;
    const dra_status st = d->table->run(d, &b->launch, DRA_BLOCK_STEP, err);
    b->launch.slice = NULL;
    return st == DRA_OK ? dra_run_finish(b, err) : st;
}

dra_status dra_run_until(dra_buffers *b, size_t n, const char *const *outputs, dra_error *err)
{
    size_t stop;
    b->halted = false;
    if (!b->p->device->table->walks)
        return dra_fail(err, DRA_ERR_DEVICE, "run: the device runs a program as a whole");
    dra_status st = find_stop(b->p, n, outputs, &stop, err);
    if (st == DRA_OK) st = check_part(b, stop, err);
    if (st == DRA_OK) st = run_prepare(b, err);
    b->part = (dra_time_slice){0};
    if (st == DRA_OK && stop > 0) st = run_part(b, stop, err);
    b->halted = st == DRA_OK;
    return st;
}

dra_status dra_run_rest(dra_buffers *b, dra_error *err)
{
    if (!b->halted) return dra_fail(err, DRA_ERR_BIND, "run: its first part has not run");
    const dra_status st = check_bindings(b, err);
    if (st != DRA_OK) return st;
    b->halted = false;
    return b->part.stop < b->p->block[DRA_BLOCK_STEP].n ? run_part(b, 0, err) : DRA_OK;
}

/* ---- profile --------------------------------------------------------------------------------- */

static void record_time(void *user, const dra_instr *in, const dra_call *c, double seconds)
{
    timing        *t = &((dra_buffers *)user)->timing[in->number];
    const dra_cost cost = in->op->cost ? in->op->cost(c) : (dra_cost){.bytes = dra_call_bytes(c)};
    t->calls++;
    t->seconds += seconds;
    t->flops += cost.flops;
    t->bytes += cost.bytes;
}

void dra_profile_enable(dra_buffers *b, bool on)
{
    b->launch.profile = on ? record_time : NULL;
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
            if (t->calls) add_timing(all, &n, in->name, t);
        }
    }
    qsort(all, n, sizeof *all, slower_first);
    for (size_t i = 0; i < n && i < size; i++) rows[i] = all[i];
    free(all);
    return n;
}
