/* The parts of a program: storages, blocks, instructions and their kernels. */
#include "graph/program.h"

#include <stdlib.h>
#include <string.h>

dra_status dra_no_memory(dra_program *p)
{
    if (p->error.code == DRA_OK) dra_fail(&p->error, DRA_ERR_MEMORY, "compile: out of memory");
    return DRA_ERR_MEMORY;
}

/* ---- storages and instructions --------------------------------------------------------------- */

int32_t dra_storage_new(dra_program *p, dra_storage s)
{
    if (p->n_storage == p->storage_room) {
        const size_t room = p->storage_room ? 2 * p->storage_room : 64;
        dra_storage *grown = realloc(p->storage, room * sizeof *grown);
        if (!grown || room > INT32_MAX) {
            if (grown) p->storage = grown;
            dra_no_memory(p);
            return -1;
        }
        p->storage = grown;
        p->storage_room = room;
    }
    s.alias = -1;
    p->storage[p->n_storage] = s;
    return (int32_t)p->n_storage++;
}

int32_t dra_code_block_new(dra_program *p)
{
    if (p->n_block == p->block_room) {
        const size_t    room = p->block_room ? 2 * p->block_room : 8;
        dra_code_block *grown = realloc(p->block, room * sizeof *grown);
        if (!grown) {
            dra_no_memory(p);
            return -1;
        }
        p->block = grown;
        p->block_room = room;
    }
    p->block[p->n_block] = (dra_code_block){.memory = -1};
    return (int32_t)p->n_block++;
}

static bool push_instr(dra_program *p, int32_t block, dra_instr *in)
{
    dra_code_block *b = &p->block[block];
    if (b->n == b->room) {
        const size_t room = b->room ? 2 * b->room : 32;
        dra_instr  **grown = realloc(b->instr, room * sizeof(dra_instr *));
        if (!grown) return false;
        b->instr = grown;
        b->room = room;
    }
    in->group = b->n ? b->instr[b->n - 1]->group + 1 : 0;
    b->instr[b->n++] = in;
    return true;
}

dra_instr *dra_instr_new(dra_program *p, int32_t block, const dra_op *op, int n_in, int n_out)
{
    dra_instr *in = dra_arena_alloc(&p->arena, sizeof *in);
    if (in) {
        *in = (dra_instr){.op = op, .name = op->name, .n_in = n_in, .n_out = n_out, .scratch = -1};
        in->in = dra_arena_alloc(&p->arena, (size_t)n_in * sizeof *in->in);
        in->out = dra_arena_alloc(&p->arena, (size_t)n_out * sizeof *in->out);
        in->tensors = p->n_tensors;
        in->number = p->n_instr++;
        p->n_tensors += (size_t)(n_in + n_out);
    }
    if (!in || !in->in || !in->out || !push_instr(p, block, in)) {
        dra_no_memory(p);
        return NULL;
    }
    return in;
}

dra_place dra_dense_place(int32_t storage, const dra_type *t)
{
    dra_place place = {.storage = storage, .tensor = {.dtype = t->dtype, .shape = t->shape}};
    dra_tensor_make_dense(&place.tensor);
    return place;
}

size_t dra_bytes_of(const dra_type *t)
{
    size_t bytes = 0;
    dra_type_bytes(t->dtype, &t->shape, &bytes);
    return bytes;
}

dra_place dra_local_place(dra_program *p, int32_t block, const dra_type *t)
{
    const dra_storage s = {.kind = DRA_STORAGE_LOCAL, .block = block, .bytes = dra_bytes_of(t)};
    return dra_dense_place(dra_storage_new(p, s), t);
}

dra_place dra_moving_place(dra_program *p, int32_t block, const dra_type *t)
{
    const dra_storage s = {.kind = DRA_STORAGE_MOVING, .block = block, .bytes = dra_bytes_of(t)};
    return dra_dense_place(dra_storage_new(p, s), t);
}

/* ---- kernels --------------------------------------------------------------------------------- */

const dra_kernel *dra_find_kernel(dra_program *p, const dra_op *op)
{
    const dra_kernel *kernel = p->device->table->find(p->device, op->name);
    if (!kernel && !dra_program_failed(p))
        dra_fail(&p->error, DRA_ERR_DEVICE, "compile: the device has no kernel for '%s'", op->name);
    return kernel;
}

void dra_set_kernel(dra_program *p, dra_instr *in, const dra_kernel *kernel)
{
    in->kernel = kernel;
    for (int i = 0; i < in->n_in + in->n_out && !dra_program_failed(p); i++) {
        const dra_place *place = i < in->n_in ? &in->in[i] : &in->out[i - in->n_in];
        if (!(in->kernel->dtypes & DRA_BIT(place->tensor.dtype)))
            dra_fail(&p->error, DRA_ERR_DTYPE, "compile: the kernel of '%s' does not take %s",
                     in->op->name, dra_dtype_get(place->tensor.dtype)->name);
    }
}

bool dra_ask_kernel(dra_program *p, const dra_instr *in, dra_ask ask, void *answer)
{
    dra_tensor *t = calloc((size_t)(in->n_in + in->n_out) + 1, sizeof *t);
    if (!t) {
        dra_no_memory(p);
        return false;
    }
    for (int i = 0; i < in->n_in; i++) t[i] = in->in[i].tensor;
    for (int i = 0; i < in->n_out; i++) t[in->n_in + i] = in->out[i].tensor;
    const dra_call c = {.attr = in->attr,
                        .in = t,
                        .out = t + in->n_in,
                        .n_in = in->n_in,
                        .n_out = in->n_out,
                        .context = p->device->context,
                        .threads = p->device->threads};
    ask(in->kernel, &c, answer);
    free(t);
    return true;
}

static void ask_scratch(const dra_kernel *k, const dra_call *c, void *answer)
{
    *(size_t *)answer = k->scratch(c);
}

void dra_add_scratch(dra_program *p, int32_t block, dra_instr *in)
{
    size_t bytes = 0;
    if (dra_program_failed(p) || !in->kernel->scratch) return;
    if (!dra_ask_kernel(p, in, ask_scratch, &bytes)) return;
    if (in->scratch >= 0)
        p->storage[in->scratch].bytes = bytes;
    else if (bytes)
        in->scratch = dra_storage_new(
            p, (dra_storage){.kind = DRA_STORAGE_LOCAL, .block = block, .bytes = bytes});
}

void dra_emit_copy(dra_program *p, int32_t block, const dra_place *from, const dra_place *to)
{
    const dra_kernel *kernel = dra_find_kernel(p, &dra_op_copy);
    dra_instr        *in = kernel ? dra_instr_new(p, block, &dra_op_copy, 1, 1) : NULL;
    if (!in) return;
    in->in[0] = *from;
    in->out[0] = *to;
    dra_set_kernel(p, in, kernel);
}
