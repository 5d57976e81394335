/* dra_compile(): verify, lower, fuse, group, plan; and reports of a program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "graph/program.h"

static dra_status compile_graph(const dra_graph *g, dra_device *device, size_t fence, bool fuse,
                                dra_program **out, dra_error *err)
{
    *out = NULL;
    if (!g || !device) return dra_fail(err, DRA_ERR_VALUE, "compile: no graph or no device");
    if (dra_graph_failed(g)) {
        if (err) *err = g->error;
        return g->error.code;
    }
    if (g->outputs.n == 0) return dra_fail(err, DRA_ERR_VALUE, "compile: the graph has no output");
    dra_status st = dra_graph_verify(g, err);
    if (st != DRA_OK) return st;
    dra_program *p = calloc(1, sizeof *p);
    if (!p) return dra_fail(err, DRA_ERR_MEMORY, "compile: out of memory");
    p->device = device;
    p->fence = fence;
    st = dra_lower(g, p);
    if (st == DRA_OK && fuse) st = dra_fuse(p);
    if (st == DRA_OK) st = dra_make_groups(p, fuse && device->groups);
    if (st == DRA_OK) st = dra_plan(p);
    if (st != DRA_OK) {
        if (err) *err = p->error;
        dra_program_destroy(p);
        return st;
    }
    *out = p;
    return DRA_OK;
}

dra_status dra_compile(const dra_graph *g, dra_device *device, dra_program **out, dra_error *err)
{
    return compile_graph(g, device, 0, true, out, err);
}

dra_status dra_compile_fenced(const dra_graph *g, dra_device *device, size_t fence,
                              dra_program **out, dra_error *err)
{
    return compile_graph(g, device, fence, true, out, err);
}

dra_status dra_compile_plain(const dra_graph *g, dra_device *device, size_t fence,
                             dra_program **out, dra_error *err)
{
    return compile_graph(g, device, fence, false, out, err);
}

void dra_program_destroy(dra_program *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->n_block; i++) free(p->block[i].instr);
    free(p->block);
    free(p->storage);
    dra_names_free(&p->slots);
    dra_names_free(&p->results);
    dra_arena_free(&p->arena);
    free(p);
}

dra_memory_report dra_program_memory(const dra_program *p)
{
    dra_memory_report r = {.activations = p->block[DRA_BLOCK_STEP].bytes,
                           .prepared = p->block[DRA_BLOCK_PREPARE].bytes,
                           .steps = p->block[DRA_BLOCK_STEP].n,
                           .prepare_steps = p->block[DRA_BLOCK_PREPARE].n};
    for (size_t i = DRA_BLOCK_STEP; i < p->n_block; i++) r.without_plan += p->block[i].without_plan;
    for (size_t i = 0; i < p->n_slot; i++) r.bound += p->slot[i].used ? p->slot[i].bytes : 0;
    return r;
}

size_t dra_program_text(const dra_program *p, char *text, size_t size)
{
    const dra_memory_report r = dra_program_memory(p);
    const char *const       format = /* one line each */
        "activations   %12zu bytes in one block (%zu without reuse)\n"
        "prepared      %12zu bytes, made by %zu instructions when a parameter changes\n"
        "bound         %12zu bytes of the caller: inputs, parameters, states\n"
        "step          %12zu instructions on %s\n";
    const int n = snprintf(text, size, format, r.activations, r.without_plan, r.prepared,
                           r.prepare_steps, r.bound, r.steps, dra_device_level(p->device));
    return n > 0 ? (size_t)n : 0;
}

dra_status dra_result_type(const dra_program *p, const char *name, dra_dtype *dtype,
                           dra_shape *shape, dra_error *err)
{
    const int i = dra_result_find(p, name);
    if (i < 0) return dra_fail(err, DRA_ERR_NAME, "result: no output is called '%s'", name);
    if (dtype) *dtype = p->result[i].place.tensor.dtype;
    if (shape) *shape = p->result[i].place.tensor.shape;
    return DRA_OK;
}
